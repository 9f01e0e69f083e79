"""Rows about persons: at most so many reports a person, and how many there were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, IntArray, count, one_of, ragged
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.table.columns import arrow_numbers

if TYPE_CHECKING:
    import pyarrow as pa

LimitBy = Literal["sample", "cap", "memoise"]
"""``"sample"``: rows of a person at random; ``"cap"``: the first ones; ``"memoise"``: the same place of
a person always gives the same report, and only new places count."""

Tickets = npt.NDArray[np.unsignedinteger]
Draw = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
"""draw(places): a noisy report for each."""


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: places (cells, or degrees), their numbers, persons, and the columns to keep."""

    places: npt.NDArray[Any]
    numbers: IntArray
    persons: IntArray | None = None
    others: pa.Table | None = None

    def take(self, which: IntArray | BoolArray) -> Rows:
        """Those of the rows, by position or where true."""
        if which.dtype == np.bool_ and which.all():
            return self
        at = np.flatnonzero(which) if which.dtype == np.bool_ else which
        persons = None if self.persons is None else self.persons[at]
        others = None if self.others is None else self.others.take(arrow_numbers(at))
        return Rows(self.places[at], self.numbers[at], persons, others)

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Rows about persons, one part after another."""
        names, others = ("places", "numbers", "persons"), None
        if parts[0].others is not None:
            import pyarrow as pa

            others = pa.concat_tables([part.others for part in parts]).combine_chunks()
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return Rows(**joined, others=others)


@dataclass(frozen=True)
class Spend:
    """How many reports there are about a person: of how many persons, at most, and in the median."""

    persons: int
    largest: int
    typical: int

    @classmethod
    def of(cls, reports: IntArray) -> Spend:
        """From the number of reports about each person; who has none is not counted."""
        counted = reports[reports > 0]
        if not counted.size:
            return cls(0, 0, 0)
        return cls(counted.size, int(counted.max()), int(np.sort(counted)[counted.size // 2]))


@dataclass(frozen=True)
class PersonLimit:
    """Which column says whom a row is about, how many reports a person, and which.

    Guarantee: a person with n reports has spent n times the promise of one. A memoised report is
    spent once, however often its place comes back; that two rows were about one place stays visible.
    Cost: memory for each person (and, sampled, the rows chosen so far; memoised, each place of each
    person), never for each row.
    """

    column: str
    most: int | None = None
    by: LimitBy = "sample"

    def __post_init__(self) -> None:
        one_of("limit_by", self.by, get_args(LimitBy))
        if self.most is not None:
            count("per_person", self.most)


class Reporting:
    """Reports for rows in batches, within the limit a person; ``spend`` says what each has spent.

    >>> reporting = Reporting(PersonLimit("user", 1, "cap"), draw=lambda places: places + 100)
    >>> rows = Rows(np.array([7, 8, 9]), np.arange(3), reporting.number(["a", "a", "b"]))
    >>> [(part.places.tolist(), part.numbers.tolist()) for part in reporting.reports([rows])]
    [([107, 109], [0, 2])]
    >>> reporting.spend
    Spend(persons=2, largest=1, typical=1)
    """

    def __init__(
        self, limit: PersonLimit | None, *, draw: Draw, randomness: Randomness = SYSTEM
    ) -> None:
        self._limit = limit
        self._draw = draw
        self._randomness = checked_randomness(randomness)
        self._numbers: dict[Any, int] = {}
        self._spent = np.zeros(0, dtype=np.int64)
        self._remembered: dict[tuple[float, ...], Any] = {}

    @property
    def spend(self) -> Spend | None:
        """How many reports were drawn about a person; ``None`` where nobody knows."""
        return None if self._limit is None else Spend.of(self._spent)

    def number(self, persons: Sequence[Any]) -> IntArray:
        """A number for each person, the same whenever they come again, with blanks around the name or not."""
        names = (person.strip() if isinstance(person, str) else person for person in persons)
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in names]
        new = np.zeros(len(self._numbers) - self._spent.size, dtype=np.int64)
        self._spent = np.concatenate([self._spent, new])
        return np.array(numbers, dtype=np.int64)

    def reports(self, batches: Iterable[Rows]) -> Iterator[Rows]:
        """The rows that are reported on, with reports in the place of their places."""
        limit = self._limit
        if limit is not None and limit.by == "memoise":
            yield from map(self._memoised, batches)
            return
        if limit is not None and limit.most is not None:
            chosen = self._sampled if limit.by == "sample" else self._capped
            batches = chosen(batches, limit.most)
        for rows in batches:
            if rows.persons is not None:
                self._spent += np.bincount(rows.persons, minlength=self._spent.size)
            yield replace(rows, places=self._draw(rows.places))

    def _capped(self, batches: Iterable[Rows], most: int) -> Iterator[Rows]:
        """The first rows of each person. What came before is charged by the time it is looked up."""
        for rows in batches:
            persons = _persons(rows)
            ranks = _ranks(persons, np.argsort(persons, kind="stable"))
            yield rows.take(self._spent[persons] + ranks < most)

    def _sampled(self, batches: Iterable[Rows], most: int) -> Iterator[Rows]:
        """Rows at random, each set of ``most`` rows of a person as likely as any other.

        Every row draws a ticket, and the smallest of each person stay. New rows wait until they are
        as many as those that stay, so that each row is sorted a few times only.
        """
        candidates: list[tuple[Rows, Tickets]] = []
        waiting, staying = 0, 0
        for rows in batches:
            candidates.append((rows, self._randomness.words(rows.numbers.size)))
            waiting += rows.numbers.size
            if waiting >= staying:
                candidates = [_smallest(candidates, most)]
                waiting, staying = 0, candidates[0][0].numbers.size
        if candidates:
            rows, _ = _smallest(candidates, most)
            yield rows.take(np.argsort(rows.numbers))

    def _memoised(self, rows: Rows) -> Rows:
        """Every place of a person by the report it was given first; new ones are drawn here."""
        places = rows.places.reshape(len(rows.places), -1)
        keyed = np.column_stack([_persons(rows), places]).astype(np.float64)
        keys, first, which = np.unique(keyed, axis=0, return_index=True, return_inverse=True)
        names = list(map(tuple, keys.tolist()))
        new = [k for k in np.argsort(first).tolist() if self._is_new(names[k])]
        fresh = self._draw(rows.places[first[new]])
        self._remembered |= dict(zip([names[k] for k in new], fresh.tolist(), strict=True))
        answered = np.array([name in self._remembered for name in names], dtype=np.bool_)
        values = [self._remembered[name] for name in names if name in self._remembered]
        reports = np.array(values, dtype=fresh.dtype).reshape(-1, *fresh.shape[1:])
        covered = answered[which.ravel()]
        positions = (np.cumsum(answered) - 1)[which.ravel()[covered]]
        return replace(rows.take(covered), places=reports[positions])

    def _is_new(self, name: tuple[float, ...]) -> bool:
        """Whether a place of a person is to be drawn for; if so, it is charged."""
        person, most = int(name[0]), self._limit.most if self._limit else None
        if name in self._remembered or (most is not None and self._spent[person] >= most):
            return False
        self._spent[person] += 1
        return True


def _persons(rows: Rows) -> IntArray:
    assert rows.persons is not None
    return rows.persons


def _ranks(persons: IntArray, order: IntArray) -> IntArray:
    """The rank of each row among those of its person; ``order`` sorts by person, then by rank."""
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    ranks = np.empty_like(order)
    ranks[order] = ragged(np.diff(starts, append=order.size))[1]
    return ranks


def _smallest(parts: Sequence[tuple[Rows, Tickets]], most: int) -> tuple[Rows, Tickets]:
    """For each person the rows with the smallest tickets."""
    rows, tickets = Rows.joined([part for part, _ in parts]), np.concatenate([t for _, t in parts])
    stay = np.flatnonzero(_ranks(_persons(rows), np.lexsort((tickets, _persons(rows)))) < most)
    return rows.take(stay), tickets[stay]
