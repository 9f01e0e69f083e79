"""Local differential privacy that knows the map: discs around the true cell, in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import BoolArray, FloatArray, IntArray, finite, frozen, positive
from geoveil.channel.channel import PrivacyLoss
from geoveil.channel.guarantee import LocalDifferentialPrivacy
from geoveil.channel.kernel import FFT_NOISE, LatticeKernel, fft_workers, lattice_beneath
from geoveil.errors import TooLarge, Unsupported
from geoveil.mechanism.local import local_loss
from geoveil.mechanism.mechanism import Mechanism
from geoveil.randomness import Randomness
from geoveil.space.grid import CELL_LIMIT
from geoveil.space.space import Space, checked_space

_BITS = 62
"""Of the random number that decides whether a report comes from the disc."""
_LARGEST = 700.0
"""e^ε is still a number; a larger ε is kept as well, by the same law."""


class Disc(Mechanism):
    """Any place within a radius of the true cell is e^ε times as likely as any other.

    Law: P(y|x) = e^ε/Z for d(x, y) ≤ b, 1/Z elsewhere. Reports are the cells and, numbered after them, the
    places of the lattice around the map within b of some cell, so that all discs are whole and Z is the same
    for everybody. b is the radius at which a report tells most about the cell of somebody anywhere on the
    map (in bits), unless ``disc_radius_km`` gives one. With b = 0 it is randomised response.
    Draws: a number of 62 bits says whether the report is any place of the disc or any place at all; both
    are drawn exactly, for everybody in the same steps.
    Guarantee: ε-local differential privacy, tight up to the rounding of that number, which is downwards.
    Cost: O(n log n) per product, n the places of the padded map; O(1) per sample. Units: ε has none.
    Reference: Du et al. 2024 (disk area mechanism, arXiv 2412.06541); Li et al. 2020 on a line (square wave).
    There b is from a bound on the information; here from the information itself, on this map.

    >>> import geoveil as gv
    >>> mechanism = gv.Disc(gv.Grid(rows=11, columns=15, cell_km=0.5), epsilon=2.0)
    >>> mechanism.guarantee
    LocalDifferentialPrivacy(epsilon=2.0)
    >>> round(mechanism.disc_radius_km, 3), mechanism.report_count
    (1.803, 353)
    """

    name = "disc"
    reference = "Du, Cheng, Zheng, Lian, Chen, Xi & Ni, 2024 (disk area mechanism)"
    _stated = ("epsilon", "disc_radius_km")

    def __init__(
        self, space: Space, *, epsilon: float, disc_radius_km: float | None = None
    ) -> None:
        self.space = checked_space(space)
        self.epsilon = positive("epsilon", epsilon)
        self.guarantee = LocalDifferentialPrivacy(self.epsilon)
        beneath = lattice_beneath(space)
        if beneath is None:
            raise Unsupported(
                f"discs (on {space!r}) must be on a grid or a line; use RandomizedResponse elsewhere"
            )
        pitch, cells = beneath
        chosen = disc_radius_km is None
        square = _telling_most(cells, self.epsilon) if chosen else _square(disc_radius_km, pitch)
        self._discs = Discs.of(cells, square)
        self._pitch_km = pitch
        self.disc_radius_km = pitch * math.sqrt(self._discs.square)
        self.report_count = self._discs.reports
        self._from_disc = _threshold(self.epsilon, self._discs.inside, self.report_count)
        self.fft_noise = FFT_NOISE * math.sqrt(self._discs.inside) * self._rise

    @property
    def report_steps(self) -> IntArray:
        """(reports, 2): east and north of cell 0, in cells."""
        return self._discs.steps

    def closed_form_loss(self) -> PrivacyLoss:
        """The loss of the whole numbers drawn from, between any two cells: no two discs are the same."""
        share, discs = Fraction(self._from_disc, 1 << _BITS), self._discs
        ratio = 1 + share * discs.reports / (discs.inside * (1 - share))
        loss = min(self.epsilon, math.log(ratio) * (1 + 1e-15))
        return local_loss(self.space, loss, "the closed form of discs in whole numbers")

    # -- draws ---------------------------------------------------------------------------------

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        discs = self._discs
        near = randomness.words(cells.size) >> np.uint64(64 - _BITS) < np.uint64(self._from_disc)
        within = randomness.below(discs.inside, cells.size)
        anywhere = randomness.below(discs.reports, cells.size)
        return np.where(near, discs.reports_at(cells, within), anywhere)

    # -- products ------------------------------------------------------------------------------

    @property
    def _rise(self) -> float:
        """What being in the disc adds to the probability of a report."""
        return self._from_disc / (1 << _BITS) / self._discs.inside

    @property
    def _level(self) -> float:
        """The probability of a report outside of the disc."""
        return ((1 << _BITS) - self._from_disc) / (1 << _BITS) / self.report_count

    def _push(self, theta: FloatArray) -> FloatArray:
        near = self._discs.sums(theta, self._discs.cells, self._discs.places)
        return self._rise * near + self._level * theta.sum(axis=-1, keepdims=True)

    def _pull(self, values: FloatArray) -> FloatArray:
        near = self._discs.sums(values, self._discs.places, self._discs.cells)
        return self._rise * near + self._level * values.sum(axis=-1, keepdims=True)

    def _row(self, row: int) -> FloatArray:
        law = np.full(self.report_count, self._level)
        law[self._discs.reports_at(np.array(row), np.arange(self._discs.inside))] += self._rise
        return law

    def _column(self, column: int) -> FloatArray:
        away = self._discs.steps[: self.space.size] - self._discs.steps[column]
        near = np.square(away).sum(axis=1) <= self._discs.square
        return np.where(near, self._level + self._rise, self._level)

    def row_entropies_nats(self) -> FloatArray:
        inside, outside = self._discs.inside, self.report_count - self._discs.inside
        near, far = scipy.special.entr([self._level + self._rise, self._level])
        return np.full(self.space.size, inside * near + outside * far)

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Σ_y C[x, y]·f(distance from the cell to the place reported), on the map or around it."""
        discs, pitch = self._discs, self._pitch_km
        rows, columns = (pitch * np.arange(size) for size in discs.box)
        everywhere = np.zeros(math.prod(discs.box))
        everywhere[discs.places] = 1.0
        away = LatticeKernel(function(np.hypot(rows[:, None], columns)))
        steps_km = pitch * np.sqrt(np.square(discs.offsets).sum(axis=1))
        near = float(function(steps_km).sum())
        return np.asarray(self._rise * near + self._level * away._push(everywhere)[discs.cells])

    @property
    def leverage(self) -> float:
        """The largest 1/C[x, x] over the cells: the same for all."""
        return 1 / (self._level + self._rise)


# --- The lattice around the map, and the discs on it


@dataclass(frozen=True, eq=False)
class Discs:
    """The places within a radius of every cell, on a lattice with room for them around the map."""

    square: int
    """The radius squared, in cells²."""
    box: tuple[int, int]
    """Rows and columns of the lattice."""
    cells: IntArray
    """Where the cells are in it."""
    places: IntArray
    """Where the reports are in it: the cells first."""
    steps: IntArray
    """(reports, 2): columns and rows of the reports from cell 0."""
    offsets: IntArray
    """(inside, 2): rows and columns from a cell to the places of its disc."""

    @classmethod
    def of(cls, cells: BoolArray, square: int) -> Discs:
        """The discs of a squared radius on a map (rows, columns); what no cell reaches is no report."""
        apart = _squares_from_map(cells, square)
        at_cells = np.flatnonzero(apart == 0)
        places = np.concatenate((at_cells, np.flatnonzero((apart > 0) & (apart <= square))))
        rows, columns = np.divmod(places, apart.shape[1])
        steps = np.stack((columns - columns[0], rows - rows[0]), axis=-1)
        box = apart.shape[0], apart.shape[1]
        offsets = _disc(square, cells.shape)
        return cls(square, box, frozen(at_cells), frozen(places), frozen(steps), frozen(offsets))

    @property
    def inside(self) -> int:
        """How many places a disc has."""
        return len(self.offsets)

    @property
    def reports(self) -> int:
        """How many places may be reported."""
        return self.places.size

    def reports_at(self, cells: IntArray, within: IntArray) -> IntArray:
        """The reports at the given places of the discs around cells."""
        rows, columns = self.offsets[within].T
        return self._numbers[self.cells[cells] + rows * self.box[1] + columns]

    @cached_property
    def _numbers(self) -> IntArray:
        """The report of every place of the lattice; −1 where there is none."""
        numbers = np.full(math.prod(self.box), -1)
        numbers[self.places] = np.arange(self.reports)
        return frozen(numbers)

    def sums(self, values: FloatArray, sources: IntArray, targets: IntArray) -> FloatArray:
        """(…, sources) values at places → (…, targets): sums over the discs around those.

        Either all sources or all targets are cells, which lie a radius from the edge: a convolution round
        the torus of the box is right there.
        """
        lattice = np.zeros((*values.shape[:-1], math.prod(self.box)))
        lattice[..., sources] = values
        lattice = lattice.reshape(*values.shape[:-1], *self.box)
        workers = fft_workers(math.prod(self._torus))
        spectrum = scipy.fft.rfft2(lattice, self._torus, workers=workers) * self._spectrum
        near = scipy.fft.irfft2(spectrum, self._torus, workers=workers)
        near = near[..., : self.box[0], : self.box[1]].reshape(*values.shape[:-1], -1)
        return np.asarray(near[..., targets])

    @cached_property
    def _torus(self) -> tuple[int, int]:
        rows, columns = (scipy.fft.next_fast_len(size, real=True) for size in self.box)
        return rows, columns

    @cached_property
    def _spectrum(self) -> FloatArray:
        """Real, as a disc is the same in all directions."""
        disc = np.zeros(self._torus)
        disc[tuple(self.offsets.T)] = 1.0  # negative steps count from the end
        return frozen(scipy.fft.rfft2(disc).real)


def _square(radius_km: Any, pitch_km: float) -> int:
    """The squared radius in cells, as the largest sum of two squares that it reaches."""
    radius = finite("disc_radius_km", radius_km, least=0)
    reach = radius / pitch_km
    if reach > math.sqrt(CELL_LIMIT):
        raise TooLarge(f"disc_radius_km ({radius:g}) must be at most {CELL_LIMIT**0.5:g} cells")
    most = math.floor(reach * reach * (1 + 1e-9))
    return max(a * a + math.isqrt(most - a * a) ** 2 for a in range(math.isqrt(most) + 1))


def _disc(square: int, shape: tuple[int, ...]) -> IntArray:
    """(n, 2): the steps of at most the radius, in rows and columns; not across a map one cell wide."""
    down, along = (np.arange(-pad, pad + 1) for pad in _pads(square, shape))
    near = np.square(down)[:, None] + np.square(along) <= square
    return np.argwhere(near) + np.array((down[0], along[0]))


def _pads(square: int, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns that the lattice has beyond the map on either side."""
    reach = math.isqrt(square)
    return (reach if shape[0] > 1 else 0), (reach if shape[1] > 1 else 0)


def _squares_from_map(cells: BoolArray, square: int) -> IntArray:
    """(rows, columns) of the map and what is around it: squared distances from the nearest cell."""
    down, along = _pads(square, cells.shape)
    rows, columns = cells.shape[0] + 2 * down, cells.shape[1] + 2 * along
    if rows * columns > CELL_LIMIT:
        raise TooLarge(
            f"the map and what is around it ({rows} × {columns} places) must have at most "
            f"{CELL_LIMIT:,}; choose larger cells or a smaller disc"
        )
    elsewhere = np.pad(~cells, ((down, down), (along, along)), constant_values=True)
    apart = scipy.ndimage.distance_transform_edt(elsewhere)
    return np.rint(np.square(apart)).astype(np.int64)


# --- The whole number behind a draw, and the radius


def _threshold(epsilon: float, inside: int, reports: int) -> int:
    """How many of 2⁶² numbers say that the report comes from the disc.

    With a share p of them a place of the disc is 1 + p·n/(k·(1 − p)) times as likely as another, k of n
    places: e^ε at p = k·(e^ε − 1)/(k·(e^ε − 1) + n). Rounded down, and so is e^ε.
    """
    power = math.exp(min(epsilon, _LARGEST))
    excess = inside * max(Fraction(0), Fraction(math.nextafter(math.nextafter(power, 0), 0)) - 1)
    share = excess / (excess + reports)
    return min(math.floor(share * (1 << _BITS)), (1 << _BITS) - 1)


_TRIED = 24
"""So many radii are tried, and so many between the neighbours of the best."""
_COARSE = 4096
"""On a map of more cells the radius is sought with larger ones."""


def _telling_most(cells: BoolArray, epsilon: float) -> int:
    """The squared radius at which a report tells most about the cell of somebody anywhere on the map."""
    larger = math.ceil(math.sqrt(cells.size / _COARSE))
    coarse = cells[::larger, ::larger]
    reach = math.isqrt(coarse.shape[0] ** 2 + coarse.shape[1] ** 2) + 1
    steps = np.square(np.arange(reach + 1))
    squares = np.unique(steps if min(coarse.shape) == 1 else (steps[:, None] + steps))
    squares = squares[squares <= reach * reach]
    bits: dict[int, float] = {}

    def best_of(radii: FloatArray) -> int:
        for square in squares[np.unique(np.searchsorted(squares, np.square(radii)))].tolist():
            if square not in bits:
                bits[square] = _information(Discs.of(coarse, square), epsilon)
        return max(bits, key=lambda square: (bits[square], -square))

    first = math.sqrt(best_of(np.linspace(0.0, reach, _TRIED)))
    stride = reach / (_TRIED - 1)
    around = np.linspace(max(0.0, first - stride), min(reach, first + stride), _TRIED)
    return _square(larger * math.sqrt(best_of(around)), 1.0)


def _information(discs: Discs, epsilon: float) -> float:
    """What a report tells about the cell of somebody anywhere on the map, in nats."""
    other = math.exp(-epsilon)  # beside a place of the disc, so that a large ε does not overflow
    everybody = np.full(discs.cells.size, 1.0 / discs.cells.size)
    near = np.maximum(discs.sums(everybody, discs.cells, discs.places), 0.0)
    total = discs.inside * (1.0 - other) + discs.reports * other
    law = (near * (1.0 - other) + other) / total
    inside, outside = scipy.special.entr(1.0 / total), scipy.special.entr(other / total)
    own = discs.inside * inside + (discs.reports - discs.inside) * outside
    return float(scipy.special.entr(law).sum() - own)
