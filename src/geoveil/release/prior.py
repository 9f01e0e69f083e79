"""Where people are, one law for all or one each, and the law of their counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, rel_entr, xlogy

from geoveil.arrays import FloatArray, IntArray, count, frozen
from geoveil.channel.kernel import kernel_on
from geoveil.errors import InvalidInput
from geoveil.measure.information import entropy_bits
from geoveil.release.counts import (
    LATTICE_LIMIT,
    WHOLE_LIMIT,
    CountVectors,
    number_of_vectors,
    within_products,
)

_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Prior:
    """Where each of the people is likely to be: the different rows, and which row is whose.

    ``rows`` (kinds, places) are distributions over the places; ``kind`` (people,) says for each person
    which of them is theirs. People are independent of each other (AGG §2.1).
    """

    rows: FloatArray
    kind: IntArray

    @classmethod
    def parse(cls, prior: npt.ArrayLike, people: int) -> Prior:
        """One distribution for everybody, (places,), or one row per person, (people, places).

        >>> Prior.parse([[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]], people=3).rows.tolist()
        [[0.5, 0.5], [0.9, 0.1]]
        """
        people = count("people", people)
        given = _numbers(prior)
        if given.ndim == 2 and given.shape[0] == 1:
            given = given[0]
        if given.ndim not in (1, 2) or given.shape[-1] == 0:
            raise InvalidInput(
                f"prior (shape {given.shape}) must be one distribution, or one row per person"
            )
        if given.ndim == 2 and given.shape[0] != people:
            raise InvalidInput(
                f"prior ({given.shape[0]} rows) must have one row, or {people}, one per person"
            )
        rows = _distributions(np.atleast_2d(given))
        return cls._of_rows(rows if given.ndim == 2 else np.repeat(rows, people, axis=0))

    @classmethod
    def _of_rows(cls, rows: FloatArray) -> Prior:
        """The different rows in the order in which they first occur."""
        _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        return cls(frozen(rows[first[order]]), frozen(rank[kind.ravel()]))

    @property
    def people(self) -> int:
        """How many people there are."""
        return self.kind.size

    @property
    def places(self) -> int:
        """How many places there are."""
        return self.rows.shape[1]

    @property
    def is_common(self) -> bool:
        """Whether everybody has the same prior."""
        return self.rows.shape[0] == 1

    @cached_property
    def head_counts(self) -> IntArray:
        """How many people have each row."""
        return np.bincount(self.kind, minlength=self.rows.shape[0])

    @cached_property
    def mean(self) -> FloatArray:
        """The average row over the people: what share of them a place can expect."""
        return self.head_counts @ self.rows / self.people

    def merged(self, groups: Sequence[Sequence[int]]) -> Prior:
        """The same people on merged places: each group of places becomes one."""
        columns = [self.rows[:, list(group)].sum(axis=1) for group in groups]
        merged = np.stack(columns, axis=1)
        return self._of_rows(merged[self.kind])

    def bounds(self, tail: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Lowest and highest count of each place, but for events of probability ``tail`` in all.

        By Chernoff's bound: P(count ≥ k) ≤ exp(−M·KL(k/M ‖ mean)) for k above its mean, and likewise
        below; people with different priors only make the count less spread (Hoeffding 1956).
        """
        share = np.arange(self.people + 1) / self.people
        allowed = np.log(2 * self.places / tail) / self.people
        inside = [
            np.flatnonzero(rel_entr(share, mean) + rel_entr(1 - share, 1 - mean) < allowed)
            for mean in np.clip(self.mean, 0.0, 1.0)
        ]
        return tuple(int(k[0]) for k in inside), tuple(int(k[-1]) for k in inside)

    # -- laws of the counts ----------------------------------------------------------------------

    def law(self, vectors: CountVectors) -> FloatArray:
        """P(A = a) for each of the vectors.

        Multinomial for a common prior (AGG Def. 6), else Poisson-multinomial, exactly: people join
        one at a time, so every value is a sum of non-negative terms, right to about 1e-13 relative.
        """
        if self.is_common:
            return self._multinomial(vectors)
        crowd = Crowd(vectors)
        law = crowd.empty
        for row, number in zip(self.rows, self.head_counts, strict=True):
            law = crowd.joined(law, row, int(number))
        return crowd.at_vectors(law)

    def _multinomial(self, vectors: CountVectors) -> FloatArray:
        counts = vectors.vectors
        ways = gammaln(self.people + 1) - gammaln(counts + 1).sum(axis=1)
        return np.exp(ways + xlogy(counts, self.rows[0]).sum(axis=1))

    def laws_given_place(self, vectors: CountVectors) -> Iterator[tuple[int, FloatArray]]:
        """For each kind of person k: (k, P(A = a | that person is at l)) with a row for each place l.

        The others are what is left: all people but one of that kind. For a common prior this is
        p(a)·a_l/(M·θ_l); else the others are put together by halves, M·log₂(kinds) steps in all.
        """
        if self.is_common:
            expected = self.people * self.rows[0][:, None]
            counts = vectors.vectors.T.astype(np.float64)
            share = np.divide(counts, expected, out=np.zeros_like(counts), where=expected > 0)
            yield 0, share * self._multinomial(vectors)
            return
        crowd = Crowd(vectors)
        for kind, others in crowd.without_one(self.rows, self.head_counts):
            yield kind, crowd.at_vectors_with_one(others)


class Crowd:
    """The law of the counts while people join one at a time.

    The state is the count of every place but the spare one, whose count follows from how many have
    joined; so the same vectors serve for every number of people, and somebody who joins at place l
    moves probability from a − e_l to a.
    Cost: L gathers for each person, on the vectors below the upper bounds of the window.
    """

    def __init__(self, window: CountVectors) -> None:
        self._window = window
        self._spare = window.spare
        upper = list(window.upper)
        upper[self._spare] = window.people
        self._states = CountVectors(window.people, window.places, upper=tuple(upper))
        self._before = [self._predecessors(place) for place in range(window.places)]
        self._chosen = self._states._index(window.vectors)

    def _predecessors(self, place: int) -> IntArray:
        """The number of a − e_l for every state a; one past the last where there is none."""
        vectors = self._states.vectors
        if place == self._spare:
            return np.arange(self._states.size)
        before = np.full(self._states.size, self._states.size)
        possible = np.flatnonzero(vectors[:, place])
        moved = vectors[possible]
        moved[:, place] -= 1
        moved[:, self._spare] += 1
        before[possible] = self._states._index(moved)
        return before

    @property
    def empty(self) -> FloatArray:
        """The law before anybody has joined."""
        nobody = np.zeros(self._window.places, dtype=np.int64)
        nobody[self._spare] = self._window.people
        law = np.zeros(self._states.size)
        law[self._states._index(nobody)] = 1.0
        return law

    def joined(self, law: FloatArray, row: FloatArray, number: int = 1) -> FloatArray:
        """The law after ``number`` people with the prior ``row`` have joined."""
        padded = np.append(law, 0.0)
        for _ in range(number):
            total = row[self._spare] * padded[:-1]
            for place, before in enumerate(self._before):
                if place != self._spare and row[place] > 0:
                    total += row[place] * padded[before]
            padded[:-1] = total
        return padded[:-1]

    def without_one(self, rows: FloatArray, numbers: IntArray) -> Iterator[tuple[int, FloatArray]]:
        """For each kind, the law of everybody but one person of that kind."""
        yield from self._descend(self.empty, list(range(len(rows))), rows, numbers)

    def _descend(
        self, law: FloatArray, kinds: list[int], rows: FloatArray, numbers: IntArray
    ) -> Iterator[tuple[int, FloatArray]]:
        if len(kinds) == 1:
            (kind,) = kinds
            yield kind, self.joined(law, rows[kind], int(numbers[kind]) - 1)
            return
        halves = kinds[: len(kinds) // 2], kinds[len(kinds) // 2 :]
        for own, other in (halves, halves[::-1]):
            joined = law
            for kind in other:
                joined = self.joined(joined, rows[kind], int(numbers[kind]))
            yield from self._descend(joined, own, rows, numbers)

    def at_vectors(self, law: FloatArray) -> FloatArray:
        """The law at the vectors of the window."""
        return law[self._chosen]

    def at_vectors_with_one(self, law: FloatArray) -> FloatArray:
        """With one more person at place l, for each l: rows over the vectors of the window."""
        padded = np.append(law, 0.0)
        return np.stack([padded[before][self._chosen] for before in self._before])


def _numbers(prior: npt.ArrayLike) -> FloatArray:
    try:
        given = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("prior must be rows of numbers, all of one length") from None
    if not np.isfinite(given).all() or (given < 0).any():
        raise InvalidInput("prior must hold probabilities: finite and not negative")
    return given


def _distributions(rows: FloatArray) -> FloatArray:
    sums = rows.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        raise InvalidInput(
            f"prior row {worst} (sum {sums[worst]:.9g}) must sum to 1; divide it by its sum"
        )
    return rows / sums[:, None]


# --- The law of the counts on the vectors that matter


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
