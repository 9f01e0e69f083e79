"""The elastic mechanism between positions: its law, its promise and its draws, in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, count, positive, without_gaps
from geoveil.channel.backend import Array
from geoveil.channel.channel import PrivacyLoss, over_cell, positions_on_a_side
from geoveil.channel.guarantee import BetweenPositions, Guarantee
from geoveil.errors import InvalidInput, Unsupported
from geoveil.mechanism.mechanism import Mechanism
from geoveil.position.centres import Centres
from geoveil.position.cone import ROUNDING_CELLS, RoundedCone
from geoveil.position.position_certificate import PositionCertificate
from geoveil.position.spread import (
    ListedKernel,
    PlacesInCells,
    SpreadKernel,
    kernel_by_rows,
    means_by_offset,
    spread_kernel,
)
from geoveil.position.whole_law import LONGEST_TABLE, WholeLaw
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space import AnyGrid, Points, Space
from geoveil.space.masked_grid import grid_beneath
from geoveil.space.points import at_places
from geoveil.space.projection import plane_coordinates

_FINE = 0.004
"""ε times the pitch of the lattice of positions, at most."""
_MOST_LISTED = 1_024
"""Cells of a list in which it can be left open where people stand: seven kernels of all pairs are kept."""
FINEST = 1 << 16
"""Steps of the lattice in a cell, at most."""
MOST_SLACK = 0.02
"""η, at most, of a mechanism that was designed."""
STEEPEST_CELL = 8.0
"""ε times the side of a cell, at most: beyond, a report tells the cell, and noise cannot hide it."""
_ROOM = 1e-9
"""How far above its certificate a law promises, relative: another machine may round otherwise."""
_LONGEST_REACH = 48.0
"""The kernel is flat beyond so many 1/ε, where β is at least half of ε."""


class PositionalElastic(Mechanism):
    """Report a cell y from a position x with probability ∝ c(y)·k(d(x, y)); the promise is between positions.

    Law: k is a rounded cone of slope β (:class:`RoundedCone`), x any position, taken to a fine lattice and,
    from outside, to the nearest point of the rectangle; y a cell of the grid or of its rim, which is numbered
    after the cells. ``row``, ``push`` and ``pull`` take people as spread evenly in their cells, by a few
    positions in each: docs/guarantee.md says how right that is.
    Guarantee: P(y|x) ≤ e^{ε·d(x, x′) + η}·P(y|x′) for any two positions, ε certified over all of them, and η
    (below 0.02) for the lattice and the rounding of the kernel.
    Cost: a product takes one FFT more than a cell has positions (4 up to ε·cell = 1, then 9); a draw, a row.
    Units: ε and β per km; positions in degrees, or in km in the plane of the space.
    Reference: docs/guarantee.md.
    """

    name = "elastic-positions"
    reference = "Geoveil, docs/guarantee.md: Blahut–Arimoto weights under a rounded cone"
    _stated = ("beta_per_km", "weights", "step", "rim")
    space: Placed

    def __init__(
        self, space: Space, *, beta_per_km: float, weights: npt.ArrayLike, step: int, rim: int = 0
    ) -> None:
        if not isinstance(space, Placed):
            raise Unsupported(
                "a promise between positions needs a grid or places; use between='cells'"
            )
        self.space = space
        self.beta_per_km = positive("beta_per_km", beta_per_km)
        self.rim = count("rim", rim, least=0)
        self.step = count("step", step, least=2)
        if self.rim > 1 or self.step % 2 or self.step > FINEST:
            raise InvalidInput(
                f"rim ({rim}) must be 0 or 1, and step ({step}) an even number up to {FINEST}"
            )
        self.centres = centres_over(space, step=self.step, rim=self.rim)
        self.report_count = self.centres.size
        self.cone = RoundedCone(self.beta_per_km, ROUNDING_CELLS * space.cell_km)
        self.law = WholeLaw(self.centres, without_gaps("weights", weights), self.cone)
        self.weights = self.law.weights

    @classmethod
    def of_law(
        cls, space: Placed, law: WholeLaw, *, step: int, rim: int, promise: BetweenPositions | None
    ) -> PositionalElastic:
        """A law in whole numbers, with a promise that was checked when it was published or read, if any."""
        beta = law.cone.beta_per_km
        mechanism = cls(space, beta_per_km=beta, weights=law.weights, step=step, rim=rim)
        mechanism.law = law
        if promise is not None:
            mechanism._fixed = promise
        return mechanism

    # -- the promise ---------------------------------------------------------------------------

    @property
    def certificate(self) -> PositionCertificate:
        """What was shown about every two positions, from the whole-number weights."""
        return self.law.certificate

    @property
    def slack(self) -> float:
        """η, rounded up."""
        return self.law.slack

    def _promise(self) -> Guarantee | None:
        if hasattr(self, "_fixed"):
            return self._fixed
        epsilon = self.certificate.epsilon_per_km * (1.0 + _ROOM)
        return BetweenPositions(epsilon, self.law.slack_at(epsilon))

    @property
    def told_apart(self) -> None:
        """The positions themselves."""
        return None

    def closed_form_loss(self) -> PrivacyLoss:
        """The certificate, a little above the exact loss."""
        proof, how = self.certificate, "a bound over all positions"
        east, north = (origin_km(self.space) + np.array(proof.worst_km)).tolist()
        return PrivacyLoss(
            proof.epsilon_per_km, None, None, False, how, self.slack, (east, north), self.law.keeps
        )

    @property
    def report_steps(self) -> IntArray | None:
        """The cells of the grid, then those of its rim; places are on no grid."""
        if isinstance(self.space, Points):
            return None
        return (self.centres.points - self.centres.points[0]) // self.step

    # -- draws ---------------------------------------------------------------------------------

    def sample_at(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
        randomness: Randomness = SYSTEM,
    ) -> IntArray:
        """One report for each position in degrees, wherever on the globe it is."""
        places = self.space.plane.to_plane(lat=lat, lng=lng, lon=lon, folded=True)
        return self.sample_at_km(places, randomness=randomness)

    def sample_at_km(
        self, places_km: npt.ArrayLike, *, randomness: Randomness = SYSTEM
    ) -> IntArray:
        """One report for each place (…, 2) in the plane of the space, in km."""
        places = plane_coordinates("places_km", places_km) - origin_km(self.space)
        steps = self.law.steps_of(places)
        reports = self.law.sample(steps.reshape(-1, 2), checked_randomness(randomness))
        return reports.reshape(steps.shape[:-1])

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        """From a position drawn evenly in each cell first: for simulations, since the promise is about
        the position that is drawn from. A person's own report comes from :meth:`sample_at`."""
        uniform = randomness.uniform(2 * cells.size).reshape(-1, 2)
        return self._sample_from(cells, self.somewhere(cells, uniform), randomness)

    def somewhere(self, cells: IntArray, uniform: FloatArray) -> FloatArray:
        if isinstance(self.space, Points):
            return self.space.somewhere_km(cells, uniform) / self.space.cell_km
        return super().somewhere(cells, uniform)

    def _sample_from(self, cells: IntArray, inside: FloatArray, randomness: Randomness) -> IntArray:
        return self.law.sample(self._steps_in(cells, inside), randomness)

    def _steps_in(self, cells: IntArray, inside: FloatArray) -> IntArray:
        """(k, 2) positions of the lattice, from positions in the cells."""
        return self.centres.points[cells] + np.rint(inside * self.step).astype(np.int64)

    def laws_from(self, cell: int, inside: FloatArray) -> FloatArray:
        """By the whole numbers that draws are made from."""
        rows = self.law.rows_at(self._steps_in(np.full(len(inside), cell), inside))
        return np.asarray(rows / rows.sum(axis=1, keepdims=True))

    # -- products ------------------------------------------------------------------------------

    @cached_property
    def loss_across_cell(self) -> float:  # type: ignore[override]
        """ε·cell; nothing among places without cells, at which people stand."""
        if at_places(self.space):
            return 0.0
        promise = self.guarantee
        assert isinstance(promise, BetweenPositions)
        return promise.epsilon_per_km * self.space.cell_km

    @cached_property
    def positions_across(self) -> int:  # type: ignore[override]
        """Two up to ε·cell = 1, then three: so that error bars cover (docs/guarantee.md)."""
        if isinstance(self.space, Points):
            return 1
        return 2 if self.loss_across_cell <= 1.0 + 1e-9 else 3

    @property
    def standing(self) -> tuple[FloatArray, FloatArray]:
        if isinstance(self.space, Points):
            around = self.space.standing
            return around, np.full(len(around), 1.0 / len(around))
        return super().standing

    @cached_property
    def alike(self) -> str | None:  # type: ignore[override]
        """The promise, on a grid."""
        promise = self.guarantee
        if self.centres.lattice is None:
            return None
        assert isinstance(promise, BetweenPositions)
        return f"{promise.epsilon_per_km:.2g} per km between positions"

    @cached_property
    def _spread(self) -> SpreadKernel | ListedKernel:
        return self._spread_over(self.positions_across)

    def _spread_over(self, across: int) -> SpreadKernel | ListedKernel:
        return spread_kernel(self.space, self.centres, self.cone, across)

    @cached_property
    def _shares(self) -> FloatArray:
        """(layers, cells): the share of each position of a cell over its Z."""
        shares = np.stack([layer.share for layer in self._spread.layers])
        return shares / self._spread.push(self.weights.astype(np.float64)).reshape(shares.shape)

    def places(self, across: int) -> PlacesInCells | None:
        """The law of reports at ``across`` × ``across`` places in every cell; at seven in each of a list of
        at most 1,024; none among places without cells."""
        spread: SpreadKernel | ListedKernel
        if isinstance(self.space, Points):
            if not self.space.around or self.space.size > _MOST_LISTED:
                return None
            seven, cell_km = self.space.seven_in_a_cell, self.space.cell_km
            spread = ListedKernel(self.centres, self.cone, seven, cell_km)
        else:
            spread = self._spread if across == self.positions_across else self._spread_over(across)
        return PlacesInCells(spread, self.weights.astype(np.float64), self.alike)

    _made_of = ("_spread", "_shares", "weights")

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._spread._pull(self._by_place(theta)) * self.weights

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        return self._spread._pull_noise(self._by_place(theta)) * self.weights

    def _by_place(self, theta: FloatArray) -> Array:
        """(…, cells) → (…, layers · cells)."""
        shape = *theta.shape[:-1], math.prod(self._shares.shape)
        return self._at.xp.reshape(theta[..., None, :] * self._shares, shape)

    def _pull(self, values: FloatArray) -> FloatArray:
        xp, shape = self._at.xp, (*values.shape[:-1], *self._shares.shape)
        laws = xp.reshape(self._spread._push(values * self.weights), shape)
        return xp.sum(laws * self._shares, axis=-2)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        noise = self._spread._push_noise(values * self.weights)
        return noise * self._at.xp.sum(self._shares, axis=0)

    def _row(self, row: int) -> FloatArray:
        columns = row + self._spread.cells * np.arange(len(self._spread.layers))
        law = self._shares[:, row] @ np.stack([self._spread._column(int(at)) for at in columns])
        return law * self.weights

    def _column(self, column: int) -> FloatArray:
        law = self._spread._row(column).reshape(self._shares.shape) * self._shares
        return law.sum(axis=0) * float(self.weights[column])

    def columns(self, chosen: IntArray) -> FloatArray:
        """Some columns at once: the same numbers as one by one."""
        law, centres = np.zeros((self.space.size, chosen.size)), self.centres.points_km[chosen]
        for layer, share in zip(self._spread.layers, self._shares, strict=True):
            places = self._spread.positions_km(layer)
            for part, near in kernel_by_rows(self.cone, places, centres):
                law[part] += near * share[part, None]
        return law * self.weights[chosen]

    def matrix(self) -> FloatArray:
        self.space.check_matrix("the matrix")
        return self.columns(np.arange(self.report_count))

    def columns_from(self, inside: FloatArray, chosen: IntArray) -> FloatArray:
        places = self.centres.points_km[: self.space.size] + inside * self.space.cell_km
        law = np.empty((self.space.size, chosen.size))
        for part, rows in self._rows_from(places):
            law[part] = rows[:, chosen]
        return law

    def _rows_from(self, places_km: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """(k, 2) places from the centre of cell 0 → (k, reports): their laws, part by part."""
        inside = np.clip(places_km, *self.centres.rectangle_km)
        for part, near in kernel_by_rows(self.cone, inside, self.centres.points_km):
            rows = self.weights * near
            yield part, rows / rows.sum(axis=1, keepdims=True)

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Σ_y of f(distance from a position of the cell to the centre of y), people spread evenly."""
        return self.mean_of_distance_to(np.arange(self.report_count), function)

    def mean_of_distance_to(
        self, cells: IntArray, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        points, total = self.centres.points_km, np.zeros(self.space.size)
        for inside, share in zip(*self.all_over, strict=True):
            away = inside * self.space.cell_km
            if self.centres.lattice is not None:
                means = means_by_offset(
                    self.centres, self.cone, self.weights, away, cells, function
                )
                total += share * means
                continue
            places = points + away
            for part, rows in self._rows_from(places):
                apart = places[part, None] - points[cells]
                means = (rows * function(np.hypot(apart[..., 0], apart[..., 1]))).sum(axis=1)
                total[part] += share * means
        return total

    @property
    def all_over(self) -> tuple[FloatArray, FloatArray]:
        """(k, 2) and (k,): positions all over a cell, in cells from its centre, and their shares.

        Distances have a cusp at the centre of a cell: a side is averaged half by half.
        """
        if isinstance(self.space, Points):
            return self.space.all_over
        line, shares = positions_on_a_side(2)
        sides = np.concatenate((line - 0.5, line + 0.5)) / 2.0
        return over_cell(sides, np.tile(shares, 2) / 2.0)

    @property
    def leverage(self) -> float:
        """The largest 1/C[x, x] over the cells, people spread evenly; the rim is nobody's cell."""
        stays = min(float(self._column(cell)[cell]) for cell in range(self.space.size))
        return 1 / stays


Placed = AnyGrid | Points
"""Cells with centres in the plane: squares, or any list of places."""
LEAST_APART_KM = 1e-3
"""How far apart places must be."""


def centres_over(space: Placed, *, step: int, rim: int) -> Centres:
    """Where reports lie, ``step`` steps of the lattice making a cell: the cells, then the rim of the grid."""
    pitch_km = space.cell_km / step
    if isinstance(space, Points):
        if rim:
            raise InvalidInput("rim must be 0 around a list of places")
        points = np.rint(space.centres / pitch_km).astype(np.int64)
        if len(np.unique(points, axis=0)) < len(points):
            raise InvalidInput(
                f"places must be at least {_metres(1.5 * pitch_km)} apart; merge some"
            )
        return Centres.of_places(points, pitch_km=pitch_km)
    grid, mask = grid_beneath(space)
    return Centres.of_grid(*grid.shape, step=step, pitch_km=pitch_km, rim=rim, mask=mask)


def origin_km(space: Placed) -> FloatArray:
    """Where the centres are measured from, in the plane of the space: cell 0 of the whole grid, or 0."""
    return np.zeros(2) if isinstance(space, Points) else grid_beneath(space)[0].centres[0]


def check_steepness(space: Placed, epsilon_per_km: float) -> None:
    """Raise where cells are so large, or places so far apart, that no law keeps this promise among them."""
    steepness = epsilon_per_km * space.cell_km
    if steepness <= STEEPEST_CELL * (1.0 + 1e-9):
        return
    if at_places(space):
        raise InvalidInput(
            f"places must be closer together, {STEEPEST_CELL / epsilon_per_km:.3g} km and not "
            f"{space.cell_km:.3g}, at ε = {epsilon_per_km:g} per km; add some between, or lower ε"
        )
    raise InvalidInput(
        f"epsilon_per_km × cell ({steepness:.4g}) must be at most {STEEPEST_CELL:g} for a promise "
        "between positions; make the cells smaller"
    )


def lattice_step(epsilon_per_km: float, cell_km: float) -> int:
    """How many steps of the lattice make a cell: an even number, fine enough for the promise."""
    return max(2, 2 * math.ceil(epsilon_per_km * cell_km / _FINE / 2.0))


def on_one_lattice(places: Points, promises_per_km: Sequence[float]) -> Points:
    """The places on a lattice that is fine enough for each of several promises, and stays the same.

    A mechanism for any of them, whatever it is designed for, then has its reports at the same whole numbers.
    Raises as :func:`step_among`.
    """
    step = max(step_among(places, promise) for promise in promises_per_km)
    points = centres_over(places, step=step, rim=0).points
    settled = Points.on_lattice(
        places.plane, points, step=step, cell_km=places.cell_km, around=places.around
    )
    for promise in promises_per_km:
        step_among(settled, promise)
    return settled


def step_among(places: Points, epsilon_per_km: float) -> int:
    """The same for a list of places, as fine as it must be to tell all of them apart.

    Places that lie on a lattice already keep it where it is fine enough.
    Raises where they are closer than a metre, or too close for a kernel that reaches so far.
    """
    check_steepness(places, epsilon_per_km)
    closest = places.least_distance_km
    if closest < LEAST_APART_KM:
        one, other = places.closest_cells or (0, 0)
        raise InvalidInput(
            f"places must be at least a metre apart; those at positions {one} and {other} are closer: "
            "merge them"
        )
    least = lattice_step(epsilon_per_km, places.cell_km)
    if places.step is not None and places.step >= least:
        step = places.step
    else:
        step = 2 * math.ceil(max(least, 3.0 * places.cell_km / closest) / 2.0)
    reach_km = min(
        _LONGEST_REACH / epsilon_per_km, float(np.hypot(*np.ptp(places.centres, axis=0)))
    )
    longest = (LONGEST_TABLE - 2) / (reach_km + places.cell_km)  # steps in a km
    if step > min(FINEST, longest * places.cell_km):
        needed = max(3.0 / longest, 3.0 * places.cell_km / FINEST)
        raise InvalidInput(
            f"places must be at least {_metres(needed)} apart at this promise; merge those that are closer"
        )
    return step


def _metres(distance_km: float) -> str:
    return f"{math.ceil(1000.0 * distance_km)} m"
