"""Where people are, one law for all or one each, and the law of their counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, rel_entr, xlogy

from geoveil.arrays import (
    ArrayLike,
    FloatArray,
    IntArray,
    by_position,
    count,
    frozen,
    numbers,
    sums_of_rows,
    without_gaps,
)
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure import entropy_bits
from geoveil.release import counts as counting


@dataclass(frozen=True, eq=False)
class Prior:
    """Where each of the people is likely to be: the different rows, and which row is whose.

    ``rows`` (kinds, places) are distributions over the places; ``kind`` (people,) says for each person
    which of them is theirs. People are independent of each other (AGG §2.1).
    """

    rows: FloatArray
    kind: IntArray

    @classmethod
    def parse(cls, prior: ArrayLike, people: int) -> Prior:
        """One distribution for everybody, (places,), or one row per person, (people, places).

        >>> Prior.parse([[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]], people=3).rows.tolist()
        [[0.5, 0.5], [0.9, 0.1]]
        """
        people = count("people", people)
        if people > counting.MOST_PEOPLE:
            raise TooLarge(
                f"people ({people:.3g}) must be at most {counting.MOST_PEOPLE:,} here; "
                "GeometricRelease takes more"
            )
        values = numbers("prior", by_position("prior", prior), "rows of numbers, all of one length")
        if values.ndim == 2 and values.shape[0] == 1:
            values = values[0]
        if values.ndim not in (1, 2) or values.shape[-1] == 0:
            raise InvalidInput(
                f"prior (shape {values.shape}) must be one distribution, or one row per person"
            )
        if values.ndim == 2 and values.shape[0] != people:
            raise InvalidInput(
                f"prior ({values.shape[0]} rows) must have one row, or {people}, one per person"
            )
        rows = np.atleast_2d(values)
        rows = rows / sums_of_rows("prior", rows)[:, None]
        return cls._of_rows(rows if values.ndim == 2 else np.repeat(rows, people, axis=0))

    @classmethod
    def _of_rows(cls, rows: FloatArray) -> Prior:
        """The different rows in the order in which they first occur."""
        _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return cls(frozen(rows[first[order]]), frozen(np.argsort(order)[kind.ravel()]))

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

    @cached_property
    def equal_places(self) -> tuple[tuple[int, ...], ...]:
        """The places in classes: those of one class are as likely as each other for everybody.

        >>> Prior.parse([0.5, 0.2, 0.1, 0.2], people=3).equal_places
        ((0,), (1, 3), (2,))
        """
        classes: dict[bytes, list[int]] = {}
        for place, column in enumerate(np.ascontiguousarray(self.rows.T)):
            classes.setdefault(column.tobytes(), []).append(place)
        return tuple(tuple(group) for group in classes.values())

    def merged(self, groups: Sequence[Sequence[int]]) -> Prior:
        """The same people on merged places: each group of places becomes one."""
        return self._of_rows(put_together(self.rows, groups)[self.kind])

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

    def window(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The bounds of the vectors that a design looks at: all of few, else all but ``TAIL``/2."""
        if counting.number_of_vectors(self.people, self.places) <= counting.WHOLE_LIMIT:
            return (0,) * self.places, (self.people,) * self.places
        return self.bounds(TAIL / 2)

    # -- laws of the counts ----------------------------------------------------------------------

    def law(self, vectors: counting.CountVectors) -> FloatArray:
        """P(A = a) for each of the vectors.

        Multinomial for a common prior (AGG Def. 6), else Poisson-multinomial, exactly: people join
        one at a time, so every value is a sum of non-negative terms, right to about 1e-13 relative.
        """
        if self.is_common:
            counts = vectors.vectors
            ways = gammaln(self.people + 1) - gammaln(counts + 1).sum(axis=1)
            return np.exp(ways + xlogy(counts, self.rows[0]).sum(axis=1))
        crowd = Crowd(vectors)
        law = crowd.nobody
        for row, number in zip(self.rows, self.head_counts, strict=True):
            law = crowd.joined(law, row, number)
        return law[crowd.chosen]

    def laws_given_place(self, vectors: counting.CountVectors) -> Iterator[tuple[int, FloatArray]]:
        """For each kind of person k: (k, P(A = a | that person is at l)) with a row for each place l.

        The others are what is left: all people but one of that kind. For a common prior this is
        p(a)·a_l/(M·θ_l); else the others are put together by halves, M·log₂(kinds) steps in all.
        """
        if self.is_common:
            expected = self.people * self.rows[0][:, None]
            counts = vectors.vectors.T.astype(np.float64)
            share = np.divide(counts, expected, out=np.zeros_like(counts), where=expected > 0)
            yield 0, share * self.law(vectors)
            return
        crowd = Crowd(vectors)
        for kind, others in crowd.without_one(crowd.nobody, range(len(self.rows)), self):
            padded = np.append(others, 0.0)
            yield kind, padded[crowd.before][:, crowd.chosen]


def put_together(values: npt.NDArray[Any], groups: Sequence[Sequence[int]]) -> npt.NDArray[Any]:
    """Values (…, places) on groups of places: the sums over each."""
    return np.stack([values[..., list(group)].sum(axis=-1) for group in groups], axis=-1)


@dataclass(frozen=True)
class MergedPlaces:
    """Places put together: ``groups`` of their numbers, each place in exactly one.

    A release of the merged counts Ã′ depends on the counts A through the merged ones A′ alone, so
    I(A; Ã′) = I(A′; Ã′), and so for one person. What is lost are the counts inside a merged place.

    >>> merged = MergedPlaces(((0,), (1, 2)))
    >>> merged.counts([16, 2, 2]).tolist()
    [16, 4]
    >>> merged.prior([0.8, 0.1, 0.1]).round(3).tolist()
    [0.8, 0.2]
    """

    groups: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        groups = parted(self.groups, "place")
        object.__setattr__(self, "groups", tuple(tuple(group.tolist()) for group in groups))

    @property
    def places(self) -> int:
        """How many places there were."""
        return sum(len(group) for group in self.groups)

    def counts(self, counts: npt.ArrayLike) -> IntArray:
        """Counts (…, places) on the merged places."""
        values = self._checked("counts", counts)
        if (values != np.round(values)).any() or (values < 0).any():
            raise InvalidInput("counts must be whole numbers of at least 0; round them before")
        return put_together(values.astype(np.int64), self.groups)

    def prior(self, prior: npt.ArrayLike) -> FloatArray:
        """Priors (…, places) on the merged places."""
        return put_together(self._checked("prior", prior), self.groups)

    def _checked(self, name: str, given: npt.ArrayLike) -> FloatArray:
        values = numbers(name, by_position(name, given))
        if values.ndim == 0 or values.shape[-1] != self.places or not np.isfinite(values).all():
            raise InvalidInput(
                f"{name} (shape {values.shape}) must have {self.places} finite entries, one per place"
            )
        return values


def parted(groups: Any, each: str, size: int | None = None) -> list[IntArray]:
    """Groups of numbers as they are used: each of 0 … ``size`` − 1, or of all there are, in exactly one."""
    try:
        parts = [without_gaps("groups", group) for group in groups]
        listed = np.concatenate(parts)  # refuses what are no lists, or none at all
    except (TypeError, ValueError):
        raise InvalidInput(f"groups must be lists of whole numbers, one for each {each}") from None
    whole = all(part.ndim == 1 and part.size and part.dtype.kind in "iu" for part in parts)
    last = (listed.size if size is None else size) - 1
    if not (whole and np.array_equal(np.sort(listed), np.arange(last + 1))):
        raise InvalidInput(
            f"groups must hold each {each} 0 … {last} exactly once, and none be empty"
        )
    return [part.astype(np.int64) for part in parts]


def merge_least_visited(prior: Prior, places: int) -> MergedPlaces:
    """Merge places, always the two least visited ones, until so many are left."""
    groups: list[tuple[int, ...]] = [(place,) for place in range(prior.places)]
    visits = prior.mean.tolist()
    while len(groups) > count("places", places):
        one, other = sorted(np.argsort(visits, kind="stable")[:2].tolist())
        groups[one] += groups.pop(other)
        visits[one] += visits.pop(other)
    return MergedPlaces(tuple(tuple(sorted(group)) for group in groups))


class Crowd:
    """The law of the counts while people join one at a time.

    The state is the count of every place but the spare one, whose count follows from how many have
    joined; so the same vectors serve for every number of people, and somebody who joins at place l
    moves probability from a − e_l to a.
    Cost: L gathers for each person, on the vectors below the upper bounds of the window.
    """

    def __init__(self, window: counting.CountVectors) -> None:
        upper = list(window.upper)
        upper[window.spare] = window.people
        states = counting.CountVectors(window.people, window.places, upper=tuple(upper))
        self.chosen = states._index(window.vectors)
        """(window,): the states that are the vectors of the window."""
        self.nobody = np.zeros(states.size)
        """(states,): the law before anybody has joined."""
        empty = window.people * np.eye(window.places, dtype=np.int64)[window.spare]
        self.nobody[states._index(empty)] = 1
        # (places, states): the number of a − e_l; one past the last where there is none
        self.before = np.full((window.places, states.size), states.size)
        self.before[window.spare] = np.arange(states.size)
        for place in set(range(window.places)) - {window.spare}:
            possible = np.flatnonzero(states.vectors[:, place])
            moved = states.vectors[possible]
            moved[:, place] -= 1
            moved[:, window.spare] += 1
            self.before[place, possible] = states._index(moved)

    def joined(self, law: FloatArray, row: FloatArray, number: int) -> FloatArray:
        """The law after ``number`` people with the prior ``row`` have joined."""
        padded = np.append(law, 0.0)
        for _ in range(number):
            gathers = (row[place] * padded[self.before[place]] for place in np.flatnonzero(row))
            padded[:-1] = sum(gathers)
        return padded[:-1]

    def without_one(
        self, law: FloatArray, kinds: Sequence[int], prior: Prior
    ) -> Iterator[tuple[int, FloatArray]]:
        """For each of some kinds, the law when all of them but one person of that kind have joined too."""
        if len(kinds) == 1:
            yield kinds[0], self.joined(law, prior.rows[kinds[0]], prior.head_counts[kinds[0]] - 1)
            return
        halves = kinds[: len(kinds) // 2], kinds[len(kinds) // 2 :]
        for own, other in (halves, halves[::-1]):
            joined = law
            for kind in other:
                joined = self.joined(joined, prior.rows[kind], prior.head_counts[kind])
            yield from self.without_one(joined, own, prior)


TAIL = 1e-9
"""Vectors together less likely than this are left out of sums where there are more than 1,024."""
EQUALLY_LIKELY = 1e-9
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
    vectors: counting.CountVectors
    probabilities: FloatArray
    left_out: float
    """A bound on the probability of all vectors that were left out."""

    @classmethod
    def of(cls, prior: Prior) -> CountLaw:
        """The law of the counts of people with this prior."""
        whole = counting.number_of_vectors(prior.people, prior.places) <= counting.WHOLE_LIMIT
        vectors = counting.CountVectors(prior.people, prior.places, *prior.window())
        law = prior.law(vectors) if whole else without_tail(prior.law(vectors), TAIL / 2)
        return cls(prior, vectors, frozen(law / law.sum()), 0.0 if whole else TAIL)

    @property
    def is_whole(self) -> bool:
        """Whether the window holds every count vector."""
        return self.vectors.size == counting.number_of_vectors(self.prior.people, self.prior.places)

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
        no_likelier = self.probabilities <= own * (1 + EQUALLY_LIKELY)
        return float(self.probabilities[no_likelier].sum()) if own > 0 else 0.0

    def widened(self, margin: int) -> CountLaw:
        """The same law on a window that is ``margin`` wider on every side."""
        old = self.vectors
        vectors = counting.CountVectors(old.people, old.places, *self._bounds(margin))
        probabilities = np.zeros(vectors.size)
        probabilities[vectors.index(old.vectors)] = self.probabilities
        return CountLaw(self.prior, vectors, frozen(probabilities), self.left_out)

    def can_widen(self, margin: int) -> bool:
        """Whether products on the widened window are possible."""
        return counting.within_products(
            self.vectors.people, *self._bounds(margin), counting.LATTICE_LIMIT
        )

    def _bounds(self, margin: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        old = self.vectors
        lower = tuple(max(0, low - margin) for low in old.lower)
        return lower, tuple(min(old.people, high + margin) for high in old.upper)


def without_tail(law: FloatArray, tail: float) -> FloatArray:
    """The law with its smallest values set to zero, as many as sum to at most ``tail``."""
    order = np.argsort(law)
    likely = law.copy()
    likely[order[np.cumsum(law[order]) <= tail]] = 0.0
    return likely
