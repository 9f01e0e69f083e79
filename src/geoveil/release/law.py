"""The law of the counts on the vectors that matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geoveil.arrays import FloatArray, IntArray, frozen
from geoveil.channel.kernel import kernel_on
from geoveil.measure.information import entropy_bits
from geoveil.release.box import LATTICE_LIMIT, WHOLE_LIMIT, within_products
from geoveil.release.counts import CountVectors, number_of_vectors
from geoveil.release.prior import Prior

TAIL = 1e-9
"""Vectors together less likely than this are left out of sums where there are more than 1,024."""
_EQUALLY_LIKELY = 1e-9
"""Relative difference of two probabilities that is rounding."""


@dataclass(frozen=True, eq=False)
class CountLaw:
    """P(A = a) on a window of the count vectors.

    Up to 1,024 vectors the window is the whole lattice and nothing is left out. Above, each count is
    bounded by what all but ``TAIL``/2 of the probability needs, and the least likely vectors in the
    window, again ``TAIL``/2 together, count as impossible: ``left_out`` is 1e-9. All vectors stay valid
    as counts to release; only averages do without them.
    """

    prior: Prior
    vectors: CountVectors
    probabilities: FloatArray
    left_out: float
    """A bound on the probability of all vectors that were left out."""

    @classmethod
    def of(cls, prior: Prior) -> CountLaw:
        """The law of the counts of people with this prior."""
        people, places = prior.people, prior.places
        if number_of_vectors(people, places) <= WHOLE_LIMIT:
            vectors = CountVectors(people, places)
            return cls(prior, vectors, _scaled(prior.law(vectors)), 0.0)
        vectors = CountVectors(people, places, *prior.bounds(TAIL / 2))
        return cls(prior, vectors, _scaled(without_tail(prior.law(vectors), TAIL / 2)), TAIL)

    @property
    def is_whole(self) -> bool:
        """Whether the window holds every count vector."""
        return self.vectors.size == number_of_vectors(self.prior.people, self.prior.places)

    @cached_property
    def entropy_bits(self) -> float:
        """H(A): what an unchanged release would tell about the counts, in bits."""
        return entropy_bits(self.probabilities)

    def surprise(self, counts: IntArray) -> float:
        """P(p(A) ≤ p(a)) for valid counts a: how likely counts are that are no likelier than these.

        0 for counts that are impossible under the prior or were left out.
        """
        if not self.vectors.holds(counts):
            return 0.0
        own = float(self.probabilities[self.vectors.index(counts)])
        no_likelier = self.probabilities <= own * (1 + _EQUALLY_LIKELY)
        return float(self.probabilities[no_likelier].sum()) if own > 0 else 0.0

    @cached_property
    def widest_distortion(self) -> float:
        """The least mean distance of one fixed vector to the counts: reached without any leakage."""
        distances = kernel_on(self.vectors, lambda distance: distance)
        return max(0.0, float(distances.apply(self.probabilities).min()))

    def widened(self, margin: int) -> CountLaw:
        """The same law on a window that is ``margin`` wider on every side."""
        old = self.vectors
        vectors = CountVectors(old.people, old.places, *self._bounds(margin))
        probabilities = np.zeros(vectors.size)
        probabilities[vectors.index(old.vectors)] = self.probabilities
        return CountLaw(self.prior, vectors, frozen(probabilities), self.left_out)

    def can_widen(self, margin: int) -> bool:
        """Whether products on the widened window are possible."""
        return within_products(self.vectors.people, *self._bounds(margin), LATTICE_LIMIT)

    def _bounds(self, margin: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        old = self.vectors
        lower = tuple(max(0, low - margin) for low in old.lower)
        return lower, tuple(min(old.people, high + margin) for high in old.upper)


def without_tail(law: FloatArray, tail: float) -> FloatArray:
    """The law with its smallest values set to zero, as many as sum to at most ``tail``."""
    order = np.argsort(law)
    kept = law.copy()
    kept[order[np.cumsum(law[order]) <= tail]] = 0.0
    return kept


def _scaled(law: FloatArray) -> FloatArray:
    scaled: FloatArray = frozen(law / law.sum())
    return scaled
