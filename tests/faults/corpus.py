"""Broken mechanisms, each with one fault that somebody once made: an audit must find all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp

import geoveil as gv
from geoveil.channel.channel import inverse_distribution
from geoveil.mechanism.noise import planar_laplace_polar

EPSILON = 2.0
GRID = gv.Grid(rows=5, columns=7, cell_km=0.5)
MAKERS: dict[str, Callable[[], gv.Channel]] = {}


def fault(maker: Callable[[], gv.Channel]) -> Callable[[], gv.Channel]:
    """Enter a maker of a broken mechanism under its name."""
    MAKERS[maker.__name__.replace("_", " ")] = maker
    return maker


class Loose(gv.Channel):
    """A channel by its matrix that nobody checks, with any sampler."""

    def __init__(
        self, matrix: Any, *, like: gv.Channel, guarantee: Any = None, sampler: Any = None
    ) -> None:
        self.table = np.array(matrix, dtype=np.float64)
        self.space = like.space
        self.report_count = self.table.shape[1]
        self.guarantee = guarantee or like.guarantee
        self.sampler = sampler

    def _push(self, theta: np.ndarray) -> np.ndarray:
        return theta @ self.table

    def _pull(self, values: np.ndarray) -> np.ndarray:
        return values @ self.table.T

    def _row(self, cell: int) -> np.ndarray:
        return self.table[cell]

    def _sample(self, cells: np.ndarray, randomness: gv.Randomness) -> np.ndarray:
        if self.sampler is None:
            return super()._sample(cells, randomness)
        return self.sampler(cells, randomness)


def claiming(claim: gv.Guarantee, kind: type[gv.Channel], *given: Any, **named: Any) -> gv.Channel:
    """A mechanism of this kind that was programmed to promise something else."""

    class Boastful(kind):  # type: ignore[misc, valid-type]
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, claim if name == "guarantee" else value)

    return Boastful(*given, **named)


def geometric(**changes: Any) -> gv.PlanarGeometric:
    return gv.PlanarGeometric(GRID, **{"epsilon_per_km": EPSILON, **changes})


def sampling(sampler: Any, *, of: gv.Channel | None = None) -> Loose:
    """The right matrix and the right claim with a sampler of its own."""
    sound = of or geometric()
    return Loose(sound.matrix(), like=sound, sampler=sampler)


def rows_scaled(matrix: np.ndarray) -> np.ndarray:
    return matrix / matrix.sum(axis=1, keepdims=True)


# -- the table ---------------------------------------------------------------------------------


@fault
def zero_cell_in_a_column() -> gv.Channel:
    matrix = geometric().matrix().copy()
    matrix[17, 3] = 0.0
    return Loose(rows_scaled(matrix), like=geometric())


@fault
def swapped_rows() -> gv.Channel:
    matrix = geometric().matrix().copy()
    matrix[[3, 31]] = matrix[[31, 3]]
    return Loose(matrix, like=geometric())


@fault
def not_a_number() -> gv.Channel:
    matrix = geometric().matrix().copy()
    matrix[20, 20] = np.nan
    return Loose(matrix, like=geometric())


@fault
def negative_probability() -> gv.Channel:
    matrix = geometric().matrix().copy()
    matrix[8, 8] += 2 * matrix[8, 34]
    matrix[8, 34] *= -1
    return Loose(matrix, like=geometric())


@fault
def rows_that_do_not_sum_to_one() -> gv.Channel:
    matrix = geometric().matrix().copy()
    matrix[6] *= 0.999
    return Loose(matrix, like=geometric())


@fault
def probabilities_rounded_to_three_digits() -> gv.Channel:
    return Loose(rows_scaled(geometric().matrix().round(3)), like=geometric())


@fault
def integers_of_eight_bits() -> gv.Channel:
    return Loose(rows_scaled(np.floor(geometric().matrix() * 255)), like=geometric())


@fault
def outside_dropped_and_not_renormalised() -> gv.Channel:
    side = np.arange(-60, 61)
    total = np.exp(-EPSILON * GRID.cell_km * np.hypot(side[:, None], side)).sum()
    return Loose(np.exp(-EPSILON * GRID.distances_km()) / total, like=geometric())


@fault
def outside_dropped_and_renormalised() -> gv.Channel:
    return Loose(rows_scaled(np.exp(-EPSILON * GRID.distances_km())), like=geometric())


@fault
def a_grid_taken_to_be_square() -> gv.Channel:
    row, column = np.divmod(np.arange(GRID.size), GRID.rows)
    distance = GRID.cell_km * np.hypot(row[:, None] - row, column[:, None] - column)
    return Loose(rows_scaled(np.exp(-EPSILON / 2 * distance)), like=geometric())


@fault
def elastic_normalised_over_the_wrong_index() -> gv.Channel:
    weights = np.linspace(1, 5, GRID.size)
    kernel = weights * np.exp(-EPSILON / 2 * GRID.distances_km())
    return Loose(kernel / (weights @ np.exp(-EPSILON / 2 * GRID.distances_km())), like=geometric())


# -- the claim ---------------------------------------------------------------------------------


@fault
def epsilon_per_metre_taken_per_km() -> gv.Channel:
    grid = gv.Grid(rows=5, columns=7, cell_km=0.1)
    claim = gv.GeoIndistinguishability(EPSILON)
    return claiming(claim, gv.PlanarGeometric, grid, epsilon_per_km=1000 * EPSILON)


@fault
def epsilon_per_cell_taken_per_km() -> gv.Channel:
    claim = gv.GeoIndistinguishability(EPSILON)
    return claiming(claim, gv.PlanarGeometric, GRID, epsilon_per_km=EPSILON / GRID.cell_km)


@fault
def half_the_truth_claimed() -> gv.Channel:
    claim = gv.GeoIndistinguishability(EPSILON / 4)
    return claiming(claim, gv.Elastic, GRID, beta_per_km=EPSILON / 2)


@fault
def half_the_truth_claimed_on_many_cells() -> gv.Channel:
    grid = gv.Grid(rows=65, columns=64, cell_km=0.5)
    claim = gv.GeoIndistinguishability(EPSILON / 2)
    return claiming(claim, gv.PlanarLaplace, grid, epsilon_per_km=EPSILON)


@fault
def local_privacy_claimed_by_a_geometric_mechanism() -> gv.Channel:
    claim = gv.LocalDifferentialPrivacy(EPSILON)
    return claiming(claim, gv.PlanarGeometric, GRID, epsilon_per_km=EPSILON)


@fault
def two_reports_averaged_for_the_price_of_one() -> gv.Channel:
    sound = gv.LinearGeometric(gv.Line(9), epsilon_per_unit=0.8)
    once = sound.matrix()
    mean = np.add.outer(np.arange(9), np.arange(9)) // 2
    both = once[:, :, None] * once[:, None, :]
    matrix = [np.bincount(mean.ravel(), weights=pair.ravel(), minlength=9) for pair in both]
    return Loose(matrix, like=sound)


@fault
def weights_that_vanish_for_some_people_only() -> gv.Channel:
    weights = np.where(np.arange(GRID.size) % 7 < 3, 0.0, 1.0)
    sparse = gv.Elastic(GRID, beta_per_km=EPSILON / 2, weights=weights)
    full = gv.Elastic(GRID, beta_per_km=EPSILON / 2)
    lonely = (weights == 0)[:, None]
    return Loose(np.where(lonely, full.matrix(), sparse.matrix()), like=sparse)


@fault
def remap_that_looks_at_the_true_cell() -> gv.Channel:
    matrix = geometric().matrix()
    closer = np.zeros_like(matrix)
    row, column = GRID.row_column(np.arange(GRID.size))
    for x in range(GRID.size):
        target = GRID.cell_at(row + np.sign(row[x] - row), column + np.sign(column[x] - column))
        closer[x] = np.bincount(target, weights=matrix[x], minlength=GRID.size)
    return Loose(closer, like=geometric())


# -- the distances -----------------------------------------------------------------------------


class Bent(gv.Points):
    """Places whose distances are any function of their coordinates."""

    def __init__(
        self, distance: Callable[[np.ndarray, np.ndarray], np.ndarray], **places: Any
    ) -> None:
        super().__init__(**places)
        self.between = distance

    def distance_km(self, a: Any, b: Any) -> np.ndarray:
        return self.between(np.asarray(a), np.asarray(b))

    def distances_from_km(self, cell: int) -> np.ndarray:
        return self.between(np.asarray(cell), np.arange(self.size))

    def distances_km(self) -> np.ndarray:
        return self.between(np.arange(self.size)[:, None], np.arange(self.size)[None, :])


@fault
def squared_distance_as_distance() -> gv.Channel:
    spots = GRID.centres
    bent = Bent(lambda a, b: np.square(spots[a] - spots[b]).sum(axis=-1), xy_km=spots)
    return gv.Exponential(bent, epsilon_per_km=EPSILON)


PARIS = np.array([(48.83 + 0.01 * i, 2.29 + 0.02 * j) for i in range(5) for j in range(5)])


@fault
def latitude_and_longitude_swapped() -> gv.Channel:
    swapped = gv.Points(lat=PARIS[:, 1], lng=PARIS[:, 0])
    bent = Bent(swapped.distance_km, lat=PARIS[:, 0], lng=PARIS[:, 1])
    return gv.Exponential(bent, epsilon_per_km=EPSILON)


@fault
def degrees_of_longitude_as_long_as_at_the_equator() -> gv.Channel:
    flat = 111.2 * PARIS
    bent = Bent(
        lambda a, b: np.hypot(*np.moveaxis(flat[a] - flat[b], -1, 0)),
        lat=PARIS[:, 0],
        lng=PARIS[:, 1],
    )
    return gv.Exponential(bent, epsilon_per_km=EPSILON)


@fault
def one_way_streets() -> gv.Channel:
    spots = np.arange(12.0)
    bent = Bent(
        lambda a, b: np.abs(spots[a] - spots[b]) * np.where(spots[a] < spots[b], 1.0, 1.3),
        xy_km=np.stack([spots, 0 * spots], axis=1),
    )
    return gv.Exponential(bent, epsilon_per_km=EPSILON)


# -- the sampler -------------------------------------------------------------------------------


@fault
def sampler_that_swaps_rows() -> gv.Channel:
    order = np.arange(GRID.size)
    order[[0, 34]] = 34, 0
    return sampling(lambda cells, source: geometric()._sample(order[cells], source))


@fault
def sampler_with_another_epsilon() -> gv.Channel:
    return sampling(geometric(epsilon_per_km=1.05 * EPSILON)._sample)


@fault
def far_reports_drawn_again() -> gv.Channel:
    def sampler(cells: np.ndarray, source: gv.Randomness) -> np.ndarray:
        reports = geometric()._sample(cells, source)
        far = GRID.distance_km(cells, reports) > 1.5
        reports[far] = geometric()._sample(cells[far], source)
        return reports

    return sampling(sampler)


@fault
def columns_off_by_one() -> gv.Channel:
    def sampler(cells: np.ndarray, source: gv.Randomness) -> np.ndarray:
        row, column = np.divmod(geometric()._sample(cells, source), GRID.columns)
        return row * GRID.columns + np.minimum(column, GRID.columns - 2)

    return sampling(sampler)


def polar(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Loose:
    """Planar Laplace noise with radius (in cells) and angle tampered with."""

    def sampler(cells: np.ndarray, source: gv.Randomness) -> np.ndarray:
        radius, angle = change(*planar_laplace_polar(EPSILON * GRID.cell_km, cells.size, source))
        row, column = np.divmod(cells, GRID.columns)
        row = np.clip(np.rint(row + radius * np.sin(angle)), 0, GRID.rows - 1)
        column = np.clip(np.rint(column + radius * np.cos(angle)), 0, GRID.columns - 1)
        return (row * GRID.columns + column).astype(np.int64)

    return sampling(sampler, of=gv.PlanarLaplace(GRID, epsilon_per_km=EPSILON))


@fault
def angle_rounded() -> gv.Channel:
    step = np.pi / 8
    return polar(lambda radius, angle: (radius, np.rint(angle / step) * step))


@fault
def radius_rounded() -> gv.Channel:
    return polar(lambda radius, angle: (np.rint(radius), angle))


@fault
def radius_exponential_instead_of_gamma() -> gv.Channel:
    return polar(lambda radius, angle: (radius / 2, angle))


@fault
def uniform_numbers_of_two_digits() -> gv.Channel:
    return from_uniform(lambda uniform, source: np.clip(uniform.round(2), 1e-9, 1 - 1e-9))


@fault
def coin_biased_by_one_percent() -> gv.Channel:
    sound = gv.RandomizedResponse(GRID, epsilon=1.0)

    def sampler(cells: np.ndarray, source: gv.Randomness) -> np.ndarray:
        honest = source.chance(0.01, cells.size)
        return np.where(honest, cells, sound._sample(cells, source))

    return sampling(sampler, of=sound)


@fault
def the_same_bits_at_every_call() -> gv.Channel:
    return sampling(lambda cells, source: geometric()._sample(cells, gv.seeded(4)))


@fault
def a_generator_of_its_own() -> gv.Channel:
    own = gv.seeded(5)
    return sampling(lambda cells, source: geometric()._sample(cells, own))


def from_uniform(change: Callable[[np.ndarray, gv.Randomness], np.ndarray]) -> Loose:
    """Draws by inversion from tampered uniform numbers."""
    matrix = geometric().matrix()

    def sampler(cells: np.ndarray, source: gv.Randomness) -> np.ndarray:
        uniform = change(source.uniform(cells.size), source)
        reports = np.empty(cells.size, dtype=np.int64)
        for cell in np.unique(cells):
            reports[cells == cell] = inverse_distribution(matrix[cell], uniform[cells == cell])
        return reports

    return sampling(sampler)


@fault
def a_generator_with_a_short_period() -> gv.Channel:
    return from_uniform(lambda uniform, _: np.resize(uniform[:1000], uniform.size))


@fault
def draws_that_stick_to_the_last() -> gv.Channel:
    def sticky(uniform: np.ndarray, source: gv.Randomness) -> np.ndarray:
        stuck = source.chance(0.2, uniform.size)
        stuck[0] = False
        return uniform[np.maximum.accumulate(np.where(stuck, 0, np.arange(uniform.size)))]

    return from_uniform(sticky)


@fault
def the_report_remembered_for_ever() -> gv.Channel:
    remembered = geometric()._sample(np.arange(GRID.size), gv.seeded(6))
    return sampling(lambda cells, source: remembered[cells])


@fault
def reports_that_are_not_whole() -> gv.Channel:
    return sampling(lambda cells, source: geometric()._sample(cells, source) + 0.5)


@fault
def reports_outside_the_space() -> gv.Channel:
    return sampling(lambda cells, source: geometric()._sample(cells, source) + 1)


@fault
def sampler_that_fails_at_the_rim() -> gv.Channel:
    def sampler(cells: np.ndarray, source: gv.Randomness) -> np.ndarray:
        if (cells == GRID.size - 1).any():
            raise IndexError("index 35 is out of bounds")
        return geometric()._sample(cells, source)

    return sampling(sampler)


# -- the products and the bits -----------------------------------------------------------------


@fault
def pull_that_takes_the_matrix_for_symmetric() -> gv.Channel:
    class Symmetric(Loose):
        def _pull(self, values: np.ndarray) -> np.ndarray:
            return values @ self.table

    return Symmetric(geometric().matrix(), like=geometric())


class TamperedRappor(gv.Rappor):
    """RAPPOR with another probability of keeping a bit."""

    def __init__(self, space: gv.Space, *, epsilon: float, bit_epsilon: float) -> None:
        super().__init__(space, epsilon=epsilon)
        self.keep = 1 / (1 + np.exp(-bit_epsilon))
        self.flip = 1 - self.keep


@fault
def rappor_with_epsilon_on_every_bit() -> gv.Channel:
    return TamperedRappor(gv.Line(8), epsilon=1.0, bit_epsilon=1.0)


@fault
def rappor_with_epsilon_on_every_bit_of_many() -> gv.Channel:
    return TamperedRappor(gv.Line(300), epsilon=1.0, bit_epsilon=1.0)


@fault
def rappor_with_one_coin_for_two_bits() -> gv.Channel:
    class Coupled(gv.Rappor):
        def sample(self, cells: Any, *, randomness: gv.Randomness) -> np.ndarray:
            bits = super().sample(cells, randomness=randomness)
            truth = np.eye(self.space.size, dtype=np.uint8)[np.asarray(cells)]
            flipped = bits ^ truth
            flipped[..., 1::2] = flipped[..., : self.space.size - 1 : 2]
            return flipped ^ truth

    return Coupled(gv.Line(20), epsilon=2.0)


@fault
def log_normaliser_lost_for_one_row() -> gv.Channel:
    class Lost(gv.Elastic):
        def _row(self, cell: int) -> np.ndarray:
            terms = self._log_terms(cell)
            return np.exp(terms - (logsumexp(terms) if cell != 9 else self.log_normaliser[0]))

    return Lost(GRID, beta_per_km=1.0)
