"""Local differential privacy: randomised response and RAPPOR."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, frozen, indices, positive
from geoveil.channel.channel import Channel, PrivacyLoss, Tally
from geoveil.channel.composed import RankOneChannel
from geoveil.channel.guarantee import LocalDifferentialPrivacy
from geoveil.errors import InvalidInput, TooLarge
from geoveil.mechanism.mechanism import Mechanism, parameter_for_mean_distance
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space.space import Space


class RandomizedResponse(RankOneChannel, Mechanism):
    """Tell the truth with one probability, else any other cell, all alike.

    Law: P(x|x) = e^ε/(k − 1 + e^ε), P(y|x) = 1/(k − 1 + e^ε) for y ≠ x, k cells.
    Guarantee: ε-local differential privacy, tight. ε has no unit.
    Cost: O(k) per product, O(1) per sample.
    Reference: Kairouz, Bonawitz & Ramage 2016; FREEWILL §3 (k-RR).

    >>> import geoveil as gv
    >>> mechanism = gv.RandomizedResponse(gv.Line(4), epsilon=math.log(3))
    >>> mechanism.row(0).round(6).tolist()
    [0.5, 0.166667, 0.166667, 0.166667]
    """

    name = "randomized-response"
    reference = "Kairouz, Bonawitz & Ramage, ICML 2016"

    def __init__(
        self, space: Space, *, epsilon: float | None = None, mean_distance_km: float | None = None
    ) -> None:
        if (epsilon is None) == (mean_distance_km is None):
            raise InvalidInput("a promise must be exactly one of epsilon= or mean_distance_km=")
        if mean_distance_km is not None:
            epsilon = parameter_for_mean_distance(
                lambda value: RandomizedResponse(space, epsilon=value),
                space,
                positive("mean_distance_km", mean_distance_km),
                farthest_km=lambda: _mean_distance_between_cells_km(space),
            )
        self.epsilon = positive("epsilon", epsilon)
        self.guarantee = LocalDifferentialPrivacy(self.epsilon)
        # Divided by e^ε, so that a large ε does not overflow.
        shrink = math.exp(-self.epsilon)
        share = 1 + (space.size - 1) * shrink
        ones = np.ones(space.size)
        super().__init__(
            space, -math.expm1(-self.epsilon) / share * ones, ones, shrink / share * ones
        )

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def closed_form_loss(self) -> PrivacyLoss:
        """ε between any two cells, met at both of them."""
        pair = self.space.closest_cells
        epsilon = 0.0 if pair is None else self.epsilon
        per_km = epsilon / self.space.least_distance_km
        return PrivacyLoss(per_km, epsilon, pair, True, "the closed form of randomised response")

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        # The same law: with probability k/(k − 1 + e^ε) any cell, the own one included; else the own.
        lost = randomness.chance(min(1.0, self.space.size * self._right[0]), cells.size)
        return np.where(lost, randomness.below(self.space.size, cells.size), cells)


def _mean_distance_between_cells_km(space: Space) -> float:
    """What an answer without any truth gives."""
    ones = np.ones(space.size)
    blind = RankOneChannel(space, 0 * ones, ones, ones / space.size)
    return float(blind.mean_of_distance(lambda d: d).mean())


# --- Basic one-time RAPPOR: a one-hot vector with every bit perturbed


BitArray = npt.NDArray[np.uint8]

_LARGEST = 1400.0  # e^{ε/2} is still a number
_ALPHABET_LIMIT = 16
_CHUNK_BITS = 1 << 22


class Rappor(Mechanism):
    """Every bit of the one-hot vector of the true cell is kept with probability e^{ε/2}/(1+e^{ε/2}).

    Law: P(v|x) = keep^(size − f)·(1 − keep)^f, f the number of bits in which v and the one-hot differ.
    Reports are bit vectors, one bit per cell, so ``sample`` gives shape (…, size). The alphabet has
    2^size letters; ``row``, ``push`` and ``pull`` exist up to 16 cells (letter Σ_j bit_j·2^j). A
    tally keeps the distinct vectors that were seen, which is all an estimator needs.
    Guarantee: ε-local differential privacy, tight (two bits differ between two cells, ε/2 each).
    Cost: O(size) per sample; O(distinct vectors × size) per product of a tally.
    Reference: Erlingsson, Pihur & Korolova 2014; IBU §V.

    >>> import geoveil as gv
    >>> mechanism = gv.Rappor(gv.Line(3), epsilon=1.0)
    >>> mechanism.sample([0, 1, 2, 2]).shape
    (4, 3)
    """

    name = "rappor"
    reference = "Erlingsson, Pihur & Korolova, CCS 2014"

    def __init__(self, space: Space, *, epsilon: float) -> None:
        self.space = space
        self.epsilon = positive("epsilon", epsilon)
        if self.epsilon > _LARGEST:
            raise InvalidInput(f"epsilon ({self.epsilon:.6g}) must be at most {_LARGEST:g}")
        self.report_count = 2**space.size
        self.guarantee = LocalDifferentialPrivacy(self.epsilon)
        self.keep = 1 / (1 + math.exp(-self.epsilon / 2))
        self.flip = math.exp(-self.epsilon / 2) / (1 + math.exp(-self.epsilon / 2))

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def closed_form_loss(self) -> PrivacyLoss:
        """ε between any two cells, met where their two bits differ."""
        pair = self.space.closest_cells
        epsilon = 0.0 if pair is None else self.epsilon
        per_km = epsilon / self.space.least_distance_km
        return PrivacyLoss(per_km, epsilon, pair, True, "the closed form of RAPPOR")

    def sample(self, cells: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> BitArray:  # type: ignore[override]
        """One noisy bit vector for each true cell: shape (…, size), zeros and ones."""
        true, source = indices("cells", cells, self.space.size), checked_randomness(randomness)
        flat = true.ravel()
        bits = np.empty((flat.size, self.space.size), dtype=np.uint8)
        step = max(1, _CHUNK_BITS // self.space.size)
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            flipped = source.chance(self.flip, part.size * self.space.size)
            bits[start : start + step] = flipped.reshape(part.size, self.space.size)
        bits[np.arange(flat.size), flat] ^= 1
        return bits.reshape(*true.shape, self.space.size)

    def tally(self, reports: npt.ArrayLike) -> RapporTally:
        """Count the distinct vectors among the reports (shape (n, size), zeros and ones)."""
        vectors = np.asarray(reports)
        if (
            vectors.ndim != 2
            or vectors.shape[1] != self.space.size
            or vectors.dtype.kind not in "biu"
        ):
            raise InvalidInput(
                f"reports (shape {vectors.shape}) must be bit vectors of {self.space.size} bits"
            )
        if vectors.size and (vectors.min() < 0 or vectors.max() > 1):
            raise InvalidInput("reports must hold zeros and ones only")
        bits = vectors.astype(np.uint8, copy=False)
        ones = np.ones(len(bits), dtype=np.int64)
        return RapporTally(
            self,
            np.packbits(bits, axis=1),
            ones,
            bits.sum(axis=0, dtype=np.uint32).astype(np.int64),
        )

    def _row(self, cell: int) -> FloatArray:
        size = self.space.size
        if size > _ALPHABET_LIMIT:
            raise TooLarge(
                f"the alphabet (2^{size} vectors) must have at most 2^{_ALPHABET_LIMIT}; "
                "use sample and tally, which need no alphabet"
            )
        letters = (np.arange(self.report_count)[:, None] >> np.arange(size)) & 1
        letters[:, cell] ^= 1
        flips = letters.sum(axis=1)
        return self.keep ** (size - flips) * self.flip**flips

    def _column(self, report: int) -> FloatArray:
        size = self.space.size
        bits = np.array([report >> j & 1 for j in range(size)])
        flips = bits.sum() + 1 - 2 * bits  # the bit of the true cell is flipped where it is 0
        return self.keep ** (size - flips) * self.flip**flips

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta @ np.stack([self._row(cell) for cell in range(self.space.size)])

    def _pull(self, values: FloatArray) -> FloatArray:
        return values @ np.stack([self._row(cell) for cell in range(self.space.size)]).T


class ObservedVectors(Channel):
    """The columns of RAPPOR for some vectors v, up to a factor of each column.

    P(v|x) = b_v·(e^{−ε/2} + (e^{ε/2} − e^{−ε/2})·v_x); the factor b_v does not depend on x, so no
    estimate depends on it, and it is left out (for many cells it would underflow).
    """

    def __init__(self, mechanism: Rappor, vectors: BitArray) -> None:
        self.mechanism = mechanism
        self.space = mechanism.space
        self.guarantee = mechanism.guarantee
        self.vectors = frozen(vectors)
        self.report_count = len(vectors)
        self._low = math.exp(-mechanism.epsilon / 2)
        self._rise = 2 * math.sinh(mechanism.epsilon / 2)
        self._bits = vectors.astype(np.float64)

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._low * theta.sum(axis=-1)[..., None] + self._rise * (theta @ self._bits.T)

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._low * values.sum(axis=-1)[..., None] + self._rise * (values @ self._bits)

    def matrix(self) -> FloatArray:
        return self._low + self._rise * self._bits.T

    def _row(self, cell: int) -> FloatArray:
        return self._low + self._rise * self._bits[:, cell]

    def _column(self, report: int) -> FloatArray:
        return self._low + self._rise * self._bits[report]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ObservedVectors)
            and self.mechanism == other.mechanism
            and np.array_equal(self.vectors, other.vectors)
        )

    def __hash__(self) -> int:
        return hash((self.mechanism, self.report_count))


class RapporTally(Tally):
    """Counts of the distinct bit vectors seen; ``bit_sums`` is how often each bit was set.

    The distinct vectors are found when they are first asked for: the linear estimator needs only the
    sums.
    """

    def __init__(
        self, mechanism: Rappor, packed: BitArray, times: IntArray, bit_sums: IntArray
    ) -> None:
        self.mechanism = mechanism
        self._packed = packed
        self._times = times
        self.bit_sums: IntArray = frozen(bit_sums)

    @cached_property
    def _found(self) -> tuple[BitArray, IntArray]:
        return _distinct(self._packed, self._times)

    @cached_property
    def channel(self) -> ObservedVectors:  # type: ignore[override]
        """The columns of the distinct vectors."""
        size = self.mechanism.space.size
        return ObservedVectors(self.mechanism, np.unpackbits(self._found[0], axis=1, count=size))

    @cached_property
    def counts(self) -> IntArray:  # type: ignore[override]
        """How often each distinct vector was seen."""
        return frozen(self._found[1])

    @property
    def space(self) -> Space:
        """The mechanism's, known without looking for distinct vectors."""
        return self.mechanism.space

    @property
    def total(self) -> int:
        """How many reports were counted."""
        return int(self._times.sum())

    def __add__(self, other: Tally) -> RapporTally:
        if not isinstance(other, RapporTally):
            return NotImplemented
        if other.mechanism != self.mechanism:
            raise InvalidInput(
                "tallies must come from the same channel to be added; pass both to fit([…])"
            )
        return RapporTally(
            self.mechanism,
            np.concatenate((self._packed, other._packed)),
            np.concatenate((self._times, other._times)),
            self.bit_sums + other.bit_sums,
        )


def _distinct(packed: BitArray, counts: IntArray) -> tuple[BitArray, IntArray]:
    """The distinct rows of packed bits and the sum of the counts of each."""
    if not len(packed):
        return packed, counts
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    summed = np.bincount(inverse.ravel(), weights=counts, minlength=len(first))
    return packed[first], summed.astype(np.int64)
