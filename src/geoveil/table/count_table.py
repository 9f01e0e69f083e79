"""Counts, priors and histories in files: places by name, timestamps by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.errors import InvalidFile
from geoveil.table.locations import find_column, list_columns, numbers
from geoveil.table.reader import open_table
from geoveil.table.writer import create_table

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
    columns = _read(path, format, delimiter)
    names = list(columns)
    if len(names) < 2:
        raise InvalidFile(
            f"{path} must have a column of places and a column of counts for each timestamp; "
            f"{list_columns(names)}"
        )
    places = _names(columns[names[0]], path)
    counts = np.stack([_numbers(columns[name], name, path) for name in names[1:]])
    return CountTable(names[0], places, tuple(names[1:]), counts)


def read_prior(
    path: str, table: CountTable, *, format: str | None = None, delimiter: str = ","
) -> PriorTable:
    """Read priors for the places and timestamps of a table of counts."""
    columns = _read(path, format, delimiter)
    if set(table.places) <= set(columns):
        return _by_person(columns, table, path)
    return PriorTable(_by_place(columns, table, path))


def read_history(
    path: str, table: CountTable, *, format: str | None = None, delimiter: str = ","
) -> PriorTable:
    """Priors from past visits: shares of each place, by person where the file tells people apart."""
    columns = _read(path, format, delimiter)
    if any(name.strip().lower() in PERSON for name in columns):
        return _from_visits(columns, table, path)
    places = _names(columns[next(iter(columns))], path)
    order = _order(places, table.places, path)
    past = [_numbers(values, name, path) for name, values in list(columns.items())[1:]]
    if not past or (np.stack(past) < 0).any():
        raise InvalidFile(f"{path} must have a column of past counts, none negative")
    visits = np.sum(past, axis=0)[order] + 1.0
    return PriorTable(visits / visits.sum())


def write_columns(path: str, columns: Mapping[str, Any], *, format: str | None = None) -> None:
    """Write a small table, column by column."""
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in columns.items()})
    with create_table(path, batch.schema, format=format) as target:
        target.write(batch)


# -- priors ----------------------------------------------------------------------------------------


def _by_place(columns: dict[str, Any], table: CountTable, path: str) -> FloatArray:
    names = list(columns)
    order = _order(_names(columns[names[0]], path), table.places, path)
    values = {name: _numbers(columns[name], name, path)[order] for name in names[1:]}
    if len(values) == 1:
        return next(iter(values.values()))
    if set(values) == set(table.timestamps):
        return np.stack([values[name] for name in table.timestamps])[:, None, :]
    raise InvalidFile(
        f"{path} must have one column of probabilities, or one for each timestamp of the counts; "
        f"{list_columns(names)}"
    )


def _by_person(columns: dict[str, Any], table: CountTable, path: str) -> PriorTable:
    rows = np.stack([_numbers(columns[name], name, path) for name in table.places], axis=1)
    others = [name for name in columns if name not in table.places]
    labels = [name for name in others if name.strip().lower() != TIMESTAMP]
    people = tuple(map(str, columns[labels[0]].to_pylist())) if labels else ()
    moments = [name for name in others if name.strip().lower() == TIMESTAMP]
    if not moments:
        return PriorTable(rows, people)
    when = np.array(list(map(str, columns[moments[0]].to_pylist())))
    parts = [np.flatnonzero(when == moment) for moment in table.timestamps]
    sizes = {part.size for part in parts}
    if len(sizes) != 1 or sum(part.size for part in parts) != when.size:
        raise InvalidFile(f"{path} must have the same people at every timestamp of the counts")
    if people and len({tuple(people[row] for row in part) for part in parts}) != 1:
        raise InvalidFile(f"{path} must list the people in the same order at every timestamp")
    named = tuple(people[row] for row in parts[0]) if people else ()
    return PriorTable(np.stack([rows[part] for part in parts]), named)


def _from_visits(columns: dict[str, Any], table: CountTable, path: str) -> PriorTable:
    names = list(columns)
    who = find_column(names, PERSON, "person", path)
    where = find_column(names, PLACE, "place", path)
    people, person = np.unique(list(map(str, columns[who].to_pylist())), return_inverse=True)
    known = {name: number for number, name in enumerate(table.places)}
    visited = [known.get(str(name).strip()) for name in columns[where].to_pylist()]
    visits = np.ones((people.size, len(known)))
    for row, place in zip(person.ravel(), visited, strict=True):
        if (
            place is not None
        ):  # a visit to a place that is not counted says nothing about those that are
            visits[row, place] += 1
    return PriorTable(visits / visits.sum(axis=1, keepdims=True), tuple(people.tolist()))


# -- columns ---------------------------------------------------------------------------------------


def _read(path: str, format: str | None, delimiter: str) -> dict[str, Any]:
    """All columns of a table by name, each as one array."""
    import pyarrow as pa

    with open_table(path, format=format, delimiter=delimiter) as reader:
        names = reader.columns
        if len(set(names)) != len(names):
            raise InvalidFile(f"{path} must have columns of different names; {list_columns(names)}")
        batches = list(reader.batches((), names))
    if not sum(batch.num_rows for batch in batches):
        raise InvalidFile(f"{path} must have at least one row; it has none")
    return {
        name: pa.chunked_array([batch.column(name) for batch in batches]).combine_chunks()
        for name in names
    }


def _names(values: Any, path: str) -> tuple[str, ...]:
    names = tuple(str(value).strip() for value in values.to_pylist())
    if len(set(names)) != len(names) or not all(names):
        raise InvalidFile(f"{path} must name each place once in its first column")
    return names


def _order(found: tuple[str, ...], wanted: tuple[str, ...], path: str) -> list[int]:
    """Where each wanted place stands in the file."""
    if set(found) != set(wanted):
        raise InvalidFile(
            f"{path} must have the places of the counts, all of them and no others: "
            f"{', '.join(wanted[:20])}"
        )
    return [found.index(name) for name in wanted]


def _numbers(values: Any, name: str, path: str) -> FloatArray:
    found = numbers(values)
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found))[0]) + 1
        raise InvalidFile(f"column {name!r} of {path} must hold numbers only; row {row} does not")
    return found
