"""Counts, priors and histories in files: places by name, timestamps by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.errors import InvalidFile
from geoveil.table.columns import marked_row, numbers
from geoveil.table.locations import find_column, list_columns
from geoveil.table.reader import open_table

PERSON, PLACE, TIMESTAMP = ("person", "user", "name"), ("place", "location", "region"), "timestamp"


@dataclass(frozen=True)
class CountTable:
    """How many people are at each place at each timestamp."""

    place_column: str
    places: tuple[str, ...]
    timestamps: tuple[str, ...]
    counts: FloatArray
    """(timestamps, places), as the file has them: not checked yet."""

    def with_counts(self, counts: IntArray) -> dict[str, Any]:
        """Columns in the shape of this table, with other counts (timestamps, places)."""
        return {self.place_column: self.places, **dict(zip(self.timestamps, counts, strict=True))}


@dataclass(frozen=True)
class PriorTable:
    """Where people are likely to be, and their names where the file has them."""

    prior: FloatArray
    """(places,), (people, places), or (timestamps, people or 1, places)."""
    people: tuple[str, ...] = ()


def read_counts(path: str, *, format: str | None = None, delimiter: str = ",") -> CountTable:
    """Read a table of counts; negative, fractional or uneven ones are for the release to refuse."""
    file = _Columns(path, format, delimiter)
    if len(file.names) < 2:
        raise InvalidFile(
            f"{path} must have a column of places and a column of counts for each timestamp; "
            f"{list_columns(file.names)}"
        )
    first, *others = file.names
    counts = np.stack([file.numbers(name, counts=True) for name in others])
    return CountTable(first, file.places(), tuple(others), counts)


def read_prior(
    path: str, table: CountTable, *, format: str | None = None, delimiter: str = ","
) -> PriorTable:
    """Read priors for the places and timestamps of a table of counts."""
    file = _Columns(path, format, delimiter)
    if set(table.places) <= set(file.names):
        return _by_person(file, table)
    order = file.order(table.places)
    values = {name: file.numbers(name)[order] for name in file.names[1:]}
    if len(values) == 1:
        return PriorTable(next(iter(values.values())))
    if set(values) == set(table.timestamps):
        return PriorTable(np.stack([values[name] for name in table.timestamps])[:, None, :])
    raise InvalidFile(
        f"{path} must have one column of probabilities, or one for each timestamp of the counts; "
        f"{list_columns(file.names)}"
    )


def _by_person(file: _Columns, table: CountTable) -> PriorTable:
    """A row for each person, or for each person at each timestamp, and a column for each place."""
    rows = np.stack([file.numbers(name) for name in table.places], axis=1)
    others = [name for name in file.names if name not in table.places]
    moments = [name for name in others if name.strip().lower() == TIMESTAMP]
    labels = [name for name in others if name not in moments]
    people = tuple(file.texts(labels[0])) if labels else ()
    if not moments:
        return PriorTable(rows, people)
    when = np.array(file.texts(moments[0]))
    parts = [np.flatnonzero(when == moment.strip()) for moment in table.timestamps]
    if len({part.size for part in parts}) != 1 or sum(part.size for part in parts) != when.size:
        raise InvalidFile(f"{file.path} must have the same people at every timestamp of the counts")
    named = [tuple(people[row] for row in part) if people else () for part in parts]
    if len(set(named)) != 1:
        raise InvalidFile(f"{file.path} must list the people in the same order at every timestamp")
    return PriorTable(np.stack([rows[part] for part in parts]), named[0])


def read_history(
    path: str, table: CountTable, *, format: str | None = None, delimiter: str = ","
) -> PriorTable:
    """Priors from past visits: shares of each place, by person where the file tells people apart.

    Every place has one visit more than were counted, so that none is impossible.
    """
    file = _Columns(path, format, delimiter)
    if not any(name.strip().lower() in PERSON for name in file.names):
        order = file.order(table.places)
        past = [file.numbers(name, counts=True) for name in file.names[1:]]
        if not past or (np.stack(past) < 0).any():
            raise InvalidFile(f"{path} must have a column of past counts, none negative")
        visits = np.sum(past, axis=0)[order] + 1.0
        return PriorTable(visits / visits.sum())
    who = find_column(file.names, PERSON, "person", path)
    where = find_column(file.names, PLACE, "place", path)
    people, person = np.unique(file.texts(who), return_inverse=True)
    if not people[0]:
        raise InvalidFile(
            f"{path} must name a person in every row; row {person.argmin() + 1} does not"
        )
    numbered = {name: number for number, name in enumerate(table.places)}
    # A visit to a place that is not counted says nothing about those that are: column -1 is dropped.
    place = np.array([numbered.get(name, -1) for name in file.texts(where)])
    visits = np.ones((people.size, len(numbered) + 1))
    np.add.at(visits, (person.ravel(), place), 1)
    visits = visits[:, :-1]
    return PriorTable(visits / visits.sum(axis=1, keepdims=True), tuple(people.tolist()))


class _Columns:
    """All columns of a small table by name."""

    def __init__(self, path: str, format: str | None, delimiter: str) -> None:
        import pyarrow as pa

        self.path = path
        with open_table(path, format=format, delimiter=delimiter) as reader:
            self.names = list(reader.columns)
            if len(set(self.names)) != len(self.names):
                raise InvalidFile(
                    f"{path} must have columns of different names; {list_columns(self.names)}"
                )
            batches = list(reader.batches((), self.names))
        if not sum(batch.num_rows for batch in batches):
            raise InvalidFile(f"{path} must have at least one row; it has none")
        self._table = pa.Table.from_batches(batches)

    def texts(self, name: str) -> list[str]:
        """A column as texts, without blanks around them; none is an empty one."""
        column = self._table.column(name).to_pylist()
        return ["" if value is None else str(value).strip() for value in column]

    def numbers(self, name: str, *, counts: bool = False) -> FloatArray:
        """A column as numbers; the first row that holds none is named.

        Points that may be marks for thousands are refused in ``counts``, and in what is no probability.
        """
        written = self._table.column(name).combine_chunks()
        values = numbers(written)
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            raise InvalidFile(
                f"column {name!r} of {self.path} must hold numbers only; row {wrong[0] + 1} does not: write "
                "them with a decimal point, and without marks for thousands"
            )
        row = marked_row([written], alone=counts)
        if row is not None and (counts or values.max() > 1.0):
            raise InvalidFile(
                f"column {name!r} of {self.path} must not have points that may mark thousands, as in row "
                f"{row + 1}; write 1.204 as 1204 where they do, and as 1.2040 where they are decimal"
            )
        return values

    def places(self) -> tuple[str, ...]:
        """The names in the first column, each of them once."""
        names = tuple(self.texts(self.names[0]))
        if len(set(names)) != len(names) or not all(names):
            raise InvalidFile(f"{self.path} must name each place once in its first column")
        return names

    def order(self, expected: tuple[str, ...]) -> list[int]:
        """Where each expected place stands in the file."""
        places = self.places()
        if set(places) != set(expected):
            raise InvalidFile(
                f"{self.path} must have the places of the counts, all of them and no others: "
                f"{', '.join(expected[:20])}"
            )
        return [places.index(name) for name in expected]
