"""The law of positions in whole numbers: what a device draws from, and what everybody certifies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, frozen
from geoveil.channel.guarantee import BetweenPositions
from geoveil.errors import InvalidInput
from geoveil.position.centres import Centres
from geoveil.position.cone import RoundedCone
from geoveil.position.position_certificate import Law, PositionCertificate
from geoveil.randomness import Randomness

KERNEL_BITS = 31
"""The kernel at distance 0 is about 2³¹, its flat tail 2¹⁰."""
WEIGHT_BITS = 30
"""Weights sum to about 2³⁰, so that a row of weight × kernel sums below 2⁶³."""
LEADING_BITS = 12
"""Of each weight on a map of many cells, so that two bytes hold it; the rest of its bits are zeros."""
DRAW_BYTES = 16
"""Random bytes that one report of a device takes."""
LONGEST_TABLE = 1 << 14
"""Entries of the kernel, at most."""
_OFF = 0.51
"""How far an entry may lie from the kernel, in units: half of one, and the last digit of a logarithm."""
_AROUND = 9
"""Places a side that are looked at around one that was the worst."""
_ROWS = 1 << 22
"""How many entries of rows are held at once while drawing."""
_BLOCK = 0.7
"""β times the side of the squares whose people are drawn for together."""
_CROWD = 8
"""People in such a square, on average, from which on one row for the square saves work."""
_TRIES = 6
"""Draws from the row of a square; whoever still has none gets a row of their own."""


@dataclass(frozen=True, eq=False)
class WholeLaw:
    """P(y|x) ∝ c(y)·T[⌊|x − y|⌋], with whole numbers c and T and x on a lattice, all lengths in its steps.

    A position is first moved into the rectangle of the ``centres``, then to the nearest point of the lattice.
    T[j] is the kernel at (j + ½) steps in units of 2⁻³¹, off by 0.51 at most; the last one goes on for ever.
    ``stated`` is the T of a document, which is checked; without one it is computed.
    """

    centres: Centres
    weights: IntArray
    """One for each centre."""
    cone: RoundedCone
    stated: IntArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", frozen(_checked_weights(self.weights, self.centres)))
        if self.stated is not None:
            self._check(self.stated)

    # -- the promise ---------------------------------------------------------------------------

    @property
    def _law(self) -> Law:
        """The law of its weights before the kernel is rounded: what is certified."""
        return Law(self.centres, self.weights.astype(np.float64), self.cone)

    @cached_property
    def certificate(self) -> PositionCertificate:
        """What was shown about every two positions, from the whole-number weights."""
        return self._law.certify()

    @property
    def work(self) -> int:
        """What a device has to sum to check a promise, about; more than ``MOST_WORK`` it does not."""
        return self._law.work

    def estimate_per_km(self) -> float:
        """About what its certificate says, in some part of the time."""
        return self._law.estimate_per_km()

    def around_worst_per_km(
        self, worst_km: Sequence[tuple[float, float]], within_km: float
    ) -> float:
        """The worst loss around places that were the worst of laws much like this one: a lower bound."""
        low, high = self.centres.rectangle_km
        steps = np.linspace(-within_km, within_km, _AROUND)
        around = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
        places = np.clip(np.concatenate([around + place for place in worst_km]), low, high)
        return self._law.worst_at(np.unique(places, axis=0))

    @property
    def slack(self) -> float:
        """η of the certified ε."""
        return self.slack_at(self.certificate.epsilon_per_km)

    def slack_at(self, epsilon_per_km: float) -> float:
        """η, rounded up: two moves to the lattice, two whole steps of distance, the rounding of T."""
        pitch = self.centres.pitch_km
        moved = math.sqrt(2.0) * pitch * epsilon_per_km + 2.0 * pitch * self.cone.beta_per_km
        return math.ceil((moved + 4.0 * _OFF / float(self.table.min())) * 1e4 + 1e-6) / 1e4

    def keeps(self, promise: BetweenPositions) -> bool:
        """Whether it keeps a promise; a device asks this, which takes less time than the certificate."""
        claim = promise.epsilon_per_km
        return self.slack_at(claim) <= promise.slack and self._certified_at(claim)

    def _certified_at(self, claim_per_km: float) -> bool:
        answers: dict[float, bool] = self.__dict__.setdefault("_claims", {})
        designed: PositionCertificate | None = self.__dict__.get("certificate")
        if designed is not None and designed.epsilon_per_km <= claim_per_km:  # shown at its design
            return True
        if claim_per_km not in answers:
            certificate = self._law.certify(claim_per_km)
            if certificate.seen_per_km <= claim_per_km < certificate.epsilon_per_km < math.inf:
                certificate = self.certificate  # neither shown nor broken: a design's decides
            answers[claim_per_km] = certificate.epsilon_per_km <= claim_per_km
        return answers[claim_per_km]

    # -- the kernel ----------------------------------------------------------------------------

    @cached_property
    def table(self) -> IntArray:
        """T."""
        if self.stated is not None:
            return frozen(self.stated)
        pitch = self.centres.pitch_km
        flat = (KERNEL_BITS + 1) * math.log(2.0) / self.cone.beta_per_km + self.cone.radius_km
        length = min(math.ceil(flat / pitch), self._widest) + 1
        return frozen(np.rint(self._kernel(length)).astype(np.int64))

    def _kernel(self, length: int) -> FloatArray:
        """The kernel at half a step, one and a half, …, in the units of T."""
        places = (np.arange(length, dtype=np.float64) + 0.5) * self.centres.pitch_km
        return self.cone.values(places) * 2.0**KERNEL_BITS

    @property
    def _widest(self) -> int:
        """No position is so many steps away from a centre, or more."""
        centres = self.centres
        ends = np.concatenate((centres.points, (centres.low, centres.high)))
        east, north = (ends.max(axis=0) - ends.min(axis=0)).tolist()  # squares may need more bits
        return math.isqrt(east**2 + north**2) + 1

    def _check(self, table: IntArray) -> None:
        """Raise unless a table is the kernel, rounded, as far as any position is from any centre."""
        if table.ndim != 1 or not 1 <= table.size <= LONGEST_TABLE or table.dtype.kind != "i":
            raise InvalidInput(f"kernel must be 1 to {LONGEST_TABLE} whole numbers")
        kernel = self._kernel(table.size)
        if not (np.abs(table - kernel) <= _OFF).all():
            raise InvalidInput("kernel must be that of its β, rounded to whole numbers")
        tail = self.cone.floor * 2.0**KERNEL_BITS
        if table.size <= self._widest and not abs(float(table[-1]) - tail) <= _OFF:
            raise InvalidInput("kernel must go on until it is flat")

    # -- draws ---------------------------------------------------------------------------------

    def steps_of(self, places_km: npt.ArrayLike) -> IntArray:
        """(…, 2) places in km from the origin of the centres → whole steps.

        Moved into the rectangle first, so that the ends of the world fit whole numbers too.
        """
        inside = np.clip(np.asarray(places_km, np.float64), *self.centres.rectangle_km)
        return np.rint(inside / self.centres.pitch_km).astype(np.int64)

    def rows_at(self, steps: IntArray) -> IntArray:
        """(k, 2) positions in steps of the lattice → (k, reports): weight × kernel, whole numbers."""
        offsets = self.centres.moved_inside(steps)[:, None] - self.centres.points
        return self.weights * self.table[self._distance(offsets)]

    def _distance(self, offsets: IntArray) -> IntArray:
        """(…, 2) steps → the entry of T: whole steps between two places."""
        square = offsets[..., 0] ** 2 + offsets[..., 1] ** 2
        distance = np.sqrt(square).astype(np.int64)
        distance -= distance**2 > square  # a root may have been rounded up to a whole number
        return np.minimum(distance, self.table.size - 1)

    def draw(self, steps: IntArray, random_bytes: bytes) -> int:
        """The report from one position (2,) for 16 random bytes (big-endian).

        The place of ⌊u·S/2¹²⁸⌋ among the running sums of the row: the same work wherever it is.
        """
        if len(random_bytes) != DRAW_BYTES:
            raise InvalidInput(f"a draw must take exactly {DRAW_BYTES} random bytes")
        sums = np.cumsum(self.rows_at(steps[None])[0])
        target = int.from_bytes(random_bytes, "big") * int(sums[-1]) >> 8 * DRAW_BYTES
        return int((sums <= target).sum())

    def sample(self, steps: IntArray, randomness: Randomness) -> IntArray:
        """One report for each position (k, 2), with exactly the chances of its row.

        Cost: a row for each position; for crowds, a row for each square of 0.7/β and a few draws a person.
        """
        inside = self.centres.moved_inside(steps)
        reports = np.empty(len(inside), dtype=np.int64)
        waiting = np.arange(len(inside))
        if waiting.size >= _CROWD:
            waiting = self._sample_crowds(inside, reports, randomness)
        width = max(1, _ROWS // self.centres.size)
        for start in range(0, waiting.size, width):
            some = waiting[start : start + width]
            sums = np.cumsum(self.rows_at(inside[some]), axis=1)
            reports[some] = (sums <= below_each(sums[:, -1], randomness)[:, None]).sum(axis=1)
        return reports

    def _sample_crowds(
        self, inside: IntArray, reports: IntArray, randomness: Randomness
    ) -> IntArray:
        """Fill in reports of people who share a square; returns whose are missing.

        y is drawn ∝ c(y)·U(y), U(y) ≥ T[⌊|x − y|⌋] for every x of the square, and accepted with
        probability T[⌊|x − y|⌋]/U(y): an accepted y has the chances of the row of x, exactly, and whoever
        accepts none is as before the draw.
        """
        side = max(1, math.floor(_BLOCK / (self.cone.beta_per_km * self.centres.pitch_km)))
        column, row = ((inside - self.centres.low) // side).T
        squares, square = np.unique((row << 32) + column, return_inverse=True)
        if len(inside) < _CROWD * squares.size:
            return np.arange(len(inside))
        order = np.argsort(square, kind="stable")
        ends = np.searchsorted(square[order], np.arange(squares.size + 1))
        width, missing = max(1, _ROWS // self.centres.size), []
        for start in range(0, squares.size, width):
            some = squares[start : start + width]
            corner = np.array(self.centres.low, dtype=np.int64)
            low = np.stack((some & 0xFFFFFFFF, some >> 32), -1) * side + corner
            bound = self._bound_over(low, side)  # U
            sums = np.cumsum(self.weights * bound, axis=1)
            people = order[ends[start] : ends[start + len(some)]]
            for _ in range(_TRIES):
                of = square[people] - start
                proposals = _place_in(sums, of, below_each(sums[of, -1], randomness))
                kernel = self.table[self._distance(inside[people] - self.centres.points[proposals])]
                accepted = below_each(bound[of, proposals], randomness) < kernel
                reports[people[accepted]] = proposals[accepted]
                people = people[~accepted]
            missing.append(people)
        return np.concatenate(missing)

    def _bound_over(self, low: IntArray, side: int) -> IntArray:
        """(k, 2) south-west corners of squares of side² places → (k, reports): T there, at most."""
        most = np.maximum.accumulate(self.table[::-1])[::-1]  # a stated table may rise by one
        beyond = low[:, None] - self.centres.points
        nearest = np.maximum(np.maximum(beyond, -beyond - (side - 1)), 0)
        return most[self._distance(nearest)]


def _place_in(sums: IntArray, rows: IntArray, targets: IntArray) -> IntArray:
    """How many running sums of its row are at most each target, by halving."""
    low, high = np.zeros_like(rows), np.full_like(rows, sums.shape[1] - 1)
    for _ in range(sums.shape[1].bit_length()):
        middle = (low + high) // 2
        beyond = sums[rows, middle] <= targets
        low = np.where(beyond, np.minimum(middle + 1, high), low)
        high = np.where(beyond, high, middle)
    return low


def whole_weights(weights: FloatArray, *, short: bool = False) -> IntArray:
    """Weights as whole numbers that sum to about 2³⁰, none below one; of 12 leading bits where ``short``."""
    scaled = np.rint(weights / weights.sum() * 2.0**WEIGHT_BITS).astype(np.int64)
    whole = np.maximum(scaled, 1)
    return leading_bits(whole) if short else whole


def leading_bits(weights: IntArray) -> IntArray:
    """The nearest whole numbers that have at most 12 bits before their zeros.

    >>> leading_bits(np.array([1, 4095, 4096, 4097, 8191, 1000003])).tolist()
    [1, 4095, 4096, 4098, 8192, 999936]
    """
    shift = beyond_leading(weights)
    half = np.where(shift > 0, 1 << np.maximum(shift - 1, 0), 0)
    return (weights + half) >> shift << shift


def beyond_leading(weights: IntArray) -> IntArray:
    """How many bits whole numbers have after their first twelve."""
    bits = np.frexp(weights.astype(np.float64))[1].astype(np.int64)
    return np.maximum(bits - LEADING_BITS, 0)


def _checked_weights(weights: npt.ArrayLike, centres: Centres) -> IntArray:
    array = np.asarray(weights)
    if array.dtype.kind not in "iu" or array.shape != (centres.size,):
        raise InvalidInput(
            f"weights must be {centres.size} whole numbers, one for each cell and for the rim"
        )
    if (array < 1).any() or array.sum(dtype=np.float64) >= 2.0 ** (WEIGHT_BITS + 1):
        raise InvalidInput("weights must be at least 1 each and sum to less than 2^31")
    return array.astype(np.int64)


def below_each(totals: IntArray, randomness: Randomness) -> IntArray:
    """A whole number exactly even in 0 … total − 1 for each total below 2⁶³, by rejection."""
    # 2^bits ≥ total, up to rounding
    bits = np.frexp(totals.astype(np.float64))[1].astype(np.uint64)
    numbers = np.empty(totals.size, dtype=np.int64)
    waiting = np.arange(totals.size)
    while waiting.size:
        shift = np.uint64(64) - np.minimum(bits[waiting], np.uint64(63))
        numbers[waiting] = (randomness.words(waiting.size) >> shift).astype(np.int64)
        waiting = waiting[numbers[waiting] >= totals[waiting]]
    return numbers
