"""Basic one-time RAPPOR: a one-hot vector with every bit perturbed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, frozen, indices, positive
from geoveil.channel.base import Channel
from geoveil.channel.guarantee import LocalDifferentialPrivacy
from geoveil.channel.tally import Tally
from geoveil.errors import InvalidInput, TooLarge
from geoveil.mechanism.base import Mechanism
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.base import Space

BitArray = npt.NDArray[np.uint8]

_ALPHABET_LIMIT = 16
_CHUNK_BITS = 1 << 22


class Rappor(Mechanism):
    """Every bit of the one-hot vector of the true cell is kept with probability e^{ε/2}/(1+e^{ε/2}).

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
        self.report_count = 2**space.size
        self.guarantee = LocalDifferentialPrivacy(self.epsilon)
        self.keep = 1 / (1 + math.exp(-self.epsilon / 2))

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def sample(self, cells: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> BitArray:  # type: ignore[override]
        """One noisy bit vector for each true cell: shape (…, size), zeros and ones."""
        true = indices("cells", cells, self.space.size)
        flat = true.ravel()
        bits = np.empty((flat.size, self.space.size), dtype=np.uint8)
        step = max(1, _CHUNK_BITS // self.space.size)
        for start in range(0, flat.size, step):
            part = flat[start : start + step]
            flipped = randomness.chance(1 - self.keep, part.size * self.space.size)
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
        packed = np.packbits(vectors.astype(np.uint8), axis=1)
        distinct, counts = _distinct(packed, np.ones(len(packed), dtype=np.int64))
        return RapporTally(self, distinct, counts)

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
        return self.keep ** (size - flips) * (1 - self.keep) ** flips

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
    """Counts of the distinct bit vectors seen; ``bit_sums`` is how often each bit was set."""

    def __init__(self, mechanism: Rappor, packed: BitArray, counts: IntArray) -> None:
        bits = np.unpackbits(packed, axis=1, count=mechanism.space.size)
        super().__init__(ObservedVectors(mechanism, bits), counts)
        self.mechanism = mechanism
        self._packed = packed
        self.bit_sums: IntArray = self.counts @ bits.astype(np.int64)

    def __add__(self, other: Tally) -> RapporTally:
        if not isinstance(other, RapporTally):
            return NotImplemented
        if other.mechanism != self.mechanism:
            raise InvalidInput(
                "tallies must come from the same channel to be added; pass both to fit([…])"
            )
        packed = np.concatenate((self._packed, other._packed))
        return RapporTally(
            self.mechanism, *_distinct(packed, np.concatenate((self.counts, other.counts)))
        )


def _distinct(packed: BitArray, counts: IntArray) -> tuple[BitArray, IntArray]:
    """The distinct rows of packed bits and the sum of the counts of each."""
    if not len(packed):
        return packed, counts
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    summed = np.bincount(inverse.ravel(), weights=counts, minlength=len(first))
    return packed[first], summed.astype(np.int64)
