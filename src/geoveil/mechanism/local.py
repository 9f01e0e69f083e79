"""Local differential privacy: randomised response and RAPPOR."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, frozen, indices, positive, without_gaps
from geoveil.channel.channel import RARE, Excerpt, Information, PrivacyLoss, Reports, Tally
from geoveil.channel.composed import RankOneChannel
from geoveil.channel.guarantee import LocalDifferentialPrivacy
from geoveil.channel.operator import DenseOperator, Operator, StackedOperator
from geoveil.errors import InvalidInput, TooLarge
from geoveil.mechanism.mechanism import Mechanism, parameter_for_mean_distance
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space.grid import Line
from geoveil.space.space import Space, checked_space


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
    _stated = ("epsilon",)

    def __init__(
        self, space: Space, *, epsilon: float | None = None, mean_distance_km: float | None = None
    ) -> None:
        checked_space(space)
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

    def closed_form_loss(self) -> PrivacyLoss:
        """ε between any two cells, met at both of them."""
        return local_loss(self.space, self.epsilon, "the closed form of randomised response")

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        # The same law: with probability k/(k − 1 + e^ε) any cell, the own one included; else the own.
        lost = randomness.chance(min(1.0, self.space.size * self._right[0]), cells.size)
        return np.where(lost, randomness.below(self.space.size, cells.size), cells)


def local_loss(space: Space, epsilon: float, how: str) -> PrivacyLoss:
    """The same loss between any two cells: per km it is largest between the closest two."""
    pair = space.closest_cells
    loss = 0.0 if pair is None else epsilon
    return PrivacyLoss(loss / space.least_distance_km, loss, pair, True, how)


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
_LEAST_SLACK = 1e-6


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
    _stated = ("epsilon",)

    def __init__(self, space: Space, *, epsilon: float) -> None:
        self.space = checked_space(space)
        self.epsilon = positive("epsilon", epsilon)
        if self.epsilon > _LARGEST:
            raise InvalidInput(f"epsilon ({self.epsilon:.6g}) must be at most {_LARGEST:g}")
        self.report_count = 2**space.size
        self.guarantee = LocalDifferentialPrivacy(self.epsilon)
        self.keep = 1 / (1 + math.exp(-self.epsilon / 2))
        self.flip = math.exp(-self.epsilon / 2) / (1 + math.exp(-self.epsilon / 2))

    def closed_form_loss(self) -> PrivacyLoss:
        """ε between any two cells, met where their two bits differ."""
        return local_loss(self.space, self.epsilon, "the closed form of RAPPOR")

    def sample(self, cells: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> Reports:
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

    excerpt_cells = 10

    def excerpt(self, cells: IntArray) -> Excerpt:
        """Reports cut to the bits of some cells: what is left is RAPPOR on those cells alone."""
        places = np.arange(cells.size)
        laws = Rappor(Line(cells.size), epsilon=self.epsilon).matrix()

        def letters(reports: Reports) -> IntArray:
            return np.asarray((reports[..., cells].astype(np.int64) << places).sum(axis=-1))

        return Excerpt(laws, letters, (self.space.size,), 2)

    def tally(self, reports: npt.ArrayLike) -> RapporTally:
        """Count the distinct vectors among the reports (shape (n, size), zeros and ones)."""
        vectors = without_gaps("reports", reports)
        fits = vectors.ndim == 2 and vectors.shape[1] == self.space.size
        if not fits or vectors.dtype.kind not in "biu":
            raise InvalidInput(
                f"reports (shape {vectors.shape}) must be bit vectors of {self.space.size} bits"
            )
        if vectors.size and (vectors.min() < 0 or vectors.max() > 1):
            raise InvalidInput("reports must hold zeros and ones only")
        bits = vectors.astype(np.uint8, copy=False)
        sums = bits.sum(axis=0, dtype=np.uint32).astype(np.int64)
        once = np.ones(len(bits), dtype=np.int64)
        return RapporTally(self, np.packbits(bits, axis=1), once, sums)

    def _row(self, row: int) -> FloatArray:
        size = self.space.size
        if size > _ALPHABET_LIMIT:
            raise TooLarge(
                f"the alphabet (2^{size} vectors) must have at most 2^{_ALPHABET_LIMIT}; "
                "use sample and tally, which need no alphabet"
            )
        letters = (np.arange(self.report_count)[:, None] >> np.arange(size)) & 1
        letters[:, row] ^= 1
        flips = letters.sum(axis=1)
        return self.keep ** (size - flips) * self.flip**flips

    def _column(self, column: int) -> FloatArray:
        size = self.space.size
        bits = np.array([column >> j & 1 for j in range(size)])
        flips = bits.sum() + 1 - 2 * bits  # the bit of the true cell is flipped where it is 0
        return self.keep ** (size - flips) * self.flip**flips

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta @ np.stack([self._row(cell) for cell in range(self.space.size)])

    def _pull(self, values: FloatArray) -> FloatArray:
        return values @ np.stack([self._row(cell) for cell in range(self.space.size)]).T


class ObservedVectors(Operator):
    """The columns of RAPPOR for some vectors v, up to a factor of each column.

    P(v|x) = b_v·(e^{−ε/2} + (e^{ε/2} − e^{−ε/2})·v_x); the factor b_v does not depend on x, so no
    estimate depends on it, and it is left out (for many cells it would underflow).
    """

    def __init__(self, epsilon: float, vectors: BitArray) -> None:
        self._low = math.exp(-epsilon / 2)
        self._rise = 2 * math.sinh(epsilon / 2)
        self.vectors: BitArray = frozen(vectors)  # (vectors, cells)
        self._bits = vectors.astype(np.float64)

    @property
    def shape(self) -> tuple[int, int]:
        vectors, cells = self._bits.shape
        return cells, vectors

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._low * theta.sum(axis=-1)[..., None] + self._rise * (theta @ self._bits.T)

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._low * values.sum(axis=-1)[..., None] + self._rise * (values @ self._bits)

    def columns(self, chosen: IntArray) -> FloatArray:
        return self._low + self._rise * self._bits[chosen].T

    def _column(self, column: int) -> FloatArray:
        return self._low + self._rise * self._bits[column]


class _Identity(Operator):
    """Every row is seen by itself."""

    exact = True

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def shape(self) -> tuple[int, int]:
        return self._size, self._size

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta

    def _pull(self, values: FloatArray) -> FloatArray:
        return values


class RapporTally(Tally):
    """Counts of the distinct bit vectors seen; ``sums`` is how often each bit was set.

    The distinct vectors are found when they are first asked for: the linear estimator needs only the
    sums.
    """

    channel: Rappor
    complete = False

    def __init__(
        self, mechanism: Rappor, packed: BitArray, times: IntArray, bit_sums: IntArray
    ) -> None:
        self.channel = mechanism
        self._packed = packed
        self._times = times
        self._bit_sums: IntArray = frozen(bit_sums)

    @cached_property
    def _found(self) -> tuple[ObservedVectors, IntArray]:
        packed, counts = self._packed, self._times
        if len(packed):
            keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
            _, first, which = np.unique(keys, return_index=True, return_inverse=True)
            packed = packed[first]
            counts = np.bincount(which.ravel(), weights=counts).astype(np.int64)
        vectors = np.unpackbits(packed, axis=1, count=self.space.size)
        return ObservedVectors(self.channel.epsilon, vectors), frozen(counts)

    @property
    def operator(self) -> ObservedVectors:
        """The columns of the distinct vectors."""
        return self._found[0]

    @property
    def counts(self) -> IntArray:
        """How often each distinct vector was seen."""
        return self._found[1]

    @property
    def sums(self) -> IntArray:
        """How often each bit was set."""
        return self._bit_sums

    @property
    def total(self) -> int:
        """How many reports were counted."""
        return int(self._times.sum())

    @property
    def nats_left_out(self) -> float:
        """Σ log b_v over all vectors, b_v = keep^(size − ones)·flip^ones (:class:`ObservedVectors`)."""
        all_bits, ones = self.total * self.space.size, int(self.sums.sum())
        return all_bits * math.log(self.channel.keep) - ones * self.channel.epsilon / 2

    def information(self, distribution: FloatArray) -> Information:
        """From the sums of the bits, which have covariance diag(own) − uuᵀ.

        Its inverse is diag(1/own) + yyᵀ/(1 − u·y), y = u/own. The slack 1 − u·y is that of the sum of
        all bits, which tells no cells apart: its floor keeps the matrix regular and costs nothing.
        """
        people, noise, gain = self.total, self.channel.flip, math.tanh(self.channel.epsilon / 4)
        mean = noise + gain * distribution
        u = math.sqrt(people) * gain * distribution
        own = np.maximum(people * mean * (1 - mean), RARE) + u**2
        y = u / own
        slack = max(1.0 - float(u @ y), _LEAST_SLACK)
        columns = StackedOperator([_Identity(y.size), DenseOperator(y[:, None])])
        weights = np.append(1.0 / own, 1.0 / slack)
        scale = people * gain
        missing = self.sums - people * mean
        score = scale * columns._pull(columns._push(missing) * weights)
        return Information(columns, scale**2 * weights, score, "RAPPOR by its bit sums")

    def telling_columns(self) -> FloatArray:
        """Every cell has a bit of its own."""
        return np.eye(self.space.size)

    def _plus(self, other: Tally) -> RapporTally:
        assert isinstance(other, RapporTally)
        return RapporTally(
            self.channel,
            np.concatenate((self._packed, other._packed)),
            np.concatenate((self._times, other._times)),
            self.sums + other.sums,
        )
