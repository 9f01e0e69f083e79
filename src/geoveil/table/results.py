"""Estimates, shares and counts as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray, prior_over
from geoveil.errors import GeoveilError, InvalidFile, Unsupported
from geoveil.space import Points, Space, space_from_dict
from geoveil.table.geojson import PlainDocument
from geoveil.table.locations import check_column, find_column, list_columns, numbers
from geoveil.table.reader import DOCUMENT, Format, TableReader, format_of, open_table
from geoveil.table.writer import binary_sink, create_table, table_into

VERSION = 1
"""Of the description that a file of results carries; a reader refuses any other."""

_INTERVAL = ("low", "high")


@dataclass(frozen=True)
class Result:
    """Shares by cell as a file holds them; what a file does not hold is ``None``.

    ``reports`` counts how often each cell was reported; ``description`` is what the file says about
    itself (certificate, steps, mechanisms …).
    """

    space: Space
    share: FloatArray
    standard_error: FloatArray | None = None
    low: FloatArray | None = None
    high: FloatArray | None = None
    reports: IntArray | None = None
    description: Mapping[str, Any] | None = None

    def columns(self) -> dict[str, Any]:
        """The columns of the file, in order; coordinates only where the space has a map."""
        made: dict[str, Any] = {"cell": np.arange(self.space.size)}
        made |= _centres(self.space)
        made["share"] = self.share
        for name in ("standard_error", *_INTERVAL, "reports"):
            if getattr(self, name) is not None:
                made[name] = getattr(self, name)
        return made


def write_result(path: str, result: Result, *, format: str | None = None) -> None:
    """Write a result by the ending of its name: cells as GeoJSON polygons, or a CSV or Parquet table.

    Every file names its space and carries the description, so that ``read_result`` gives both back.
    """
    kind = format_of(path, format)
    if kind is Format.GEOJSON and not _centres(result.space):
        raise Unsupported(f"{result.space!r} has no map; write the estimate as .csv or .parquet")
    with binary_sink(path) as sink:
        put_result(sink, kind, result)


def put_result(sink: IO[bytes], kind: Format, result: Result) -> None:
    """Write the bytes of a file of results."""
    import pyarrow as pa

    document = {"estimate": VERSION, "space": result.space.to_dict(), **(result.description or {})}
    columns = result.columns()
    if kind is Format.GEOJSON:
        _put_features(sink, result.space, columns, document)
        return
    # What is not known has no number: an empty field, or null.
    arrays = {name: pa.array(values, mask=~np.isfinite(values)) for name, values in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    with table_into(sink, kind, batch.schema, document) as table:
        table.write(batch)


def _put_features(
    sink: IO[bytes], space: Any, columns: Mapping[str, Any], document: Mapping[str, Any]
) -> None:
    collection = space.to_geojson({name: columns[name] for name in columns if name != "cell"})
    features = ",\n".join(
        json.dumps(feature, allow_nan=False) for feature in collection["features"]
    )
    head = json.dumps(document, ensure_ascii=False, allow_nan=False)
    sink.write(f'{{"type":"FeatureCollection",\n"{DOCUMENT}":{head},\n"features":['.encode())
    sink.write(f"\n{features}\n]}}\n".encode())


def read_result(
    path: str, *, column: str | None = None, format: str | None = None, delimiter: str = ","
) -> Result:
    """Read a file that ``write_result`` or the service wrote, or any table of cells with a share each.

    The space is the one that the file names. Where it names none, the columns lat and lng are places
    (whoever is elsewhere belongs to the nearest of them). Shares, or the amounts of another ``column``
    such as counts of people, are divided by their sum.
    """
    try:
        with open_table(path, format=format, delimiter=delimiter) as reader:
            return read_cells(reader, column)
    except PlainDocument as found:
        return result_of(found, path)


def read_cells(reader: TableReader, column: str | None = None) -> Result:
    """The result of an open table whose rows are cells."""
    amounts = amount_column(reader, column)
    others = _OTHERS if column is None else _OTHERS[:3]
    wanted = [name for name in dict.fromkeys((*others, amounts)) if name in reader.columns]
    table = read_numbers(reader, wanted)
    table["share"] = checked_amounts(table.pop(amounts), amounts, reader.name)
    table = _in_order(table, reader.name)
    try:  # the document after the rows: in a pipe it may stand behind them
        return _built(table, reader.metadata, f"column {amounts!r}")
    except GeoveilError as problem:
        raise InvalidFile(f"{reader.name}: {problem}") from None


def read_numbers(reader: TableReader, names: Sequence[str]) -> dict[str, FloatArray]:
    """Whole columns of an open table, as numbers."""
    batches = list(reader.batches(names))
    return {
        name: np.concatenate([numbers(batch.column(name)) for batch in batches] or [np.empty(0)])
        for name in names
    }


def amount_column(reader: TableReader, column: str | None) -> str:
    """The column that says how many people are where: the one given, or ``share``."""
    if column is not None:
        return check_column(reader.columns, column, reader.name)
    return find_column(reader.columns, ("share",), "share of people", reader.name)


def checked_amounts(values: FloatArray, column: str, path: str) -> FloatArray:
    """Numbers of at least 0, the first other one named by its row."""
    wrong = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
    if wrong.size:
        raise InvalidFile(
            f"column {column!r} of {path} must hold numbers of at least 0; row {wrong[0] + 1} does not"
        )
    return values


def result_of(found: PlainDocument, path: str) -> Result:
    """The estimate of a JSON file that is no FeatureCollection: as the service keeps it."""
    if found.values.get("kind") != "estimate":
        raise found
    try:
        return result_from_dict(found.values)
    except GeoveilError as problem:
        raise InvalidFile(f"{path}: {problem}") from None


def result_from_dict(values: Mapping[str, Any]) -> Result:
    """The estimate that the service released as JSON: arrays by cell, and the rest about them."""
    try:
        interval = values["interval"]
        table = {name: values[given] for name, given in _OF_DOCUMENT.items()}
        table |= {name: interval[name] for name in _INTERVAL}
        arrays = {name: np.array(listed, dtype=np.float64) for name, listed in table.items()}
        about = {name: values[name] for name in values if name not in _BY_CELL}
        about["interval_level"] = interval["level"]
        about["interval"] = {name: interval[name] for name in interval if name not in _INTERVAL}
    except (KeyError, TypeError, ValueError):
        raise InvalidFile(
            "an estimate of the service must have all its entries; it has not"
        ) from None
    return _built(arrays, {"estimate": VERSION, **about})


_OF_DOCUMENT = {"share": "distribution", "standard_error": "standard_error"}
_BY_CELL = (*_OF_DOCUMENT.values(), "geoveil")
_OTHERS = ("cell", "lat", "lng", "standard_error", *_INTERVAL, "reports")


def _in_order(table: dict[str, FloatArray], path: str) -> dict[str, FloatArray]:
    """Rows by cell number, every cell once; a table without numbers is taken as it stands."""
    rows = table["share"].size
    if not rows:
        raise InvalidFile(f"{path} must have one row for each cell; it has none")
    cells = table.pop("cell", np.arange(float(rows)))
    order = np.argsort(cells, kind="stable")
    if not np.array_equal(cells[order], np.arange(rows)):
        raise InvalidFile(f"{path} must have every cell 0 … {rows - 1} once in its column 'cell'")
    return {name: values[order] for name, values in table.items()}


def _built(
    table: dict[str, FloatArray], described: Mapping[str, Any] | None, name: str = "distribution"
) -> Result:
    about = dict(described or {})
    if about and about.pop("estimate", None) != VERSION:
        raise InvalidFile(f'the description of an estimate must say "estimate": {VERSION}')
    space = space_from_dict(about.pop("space")) if "space" in about else _places(table)
    given = {name: table[name] for name in ("standard_error", *_INTERVAL) if name in table}
    if "standard_error" in given:  # JSON has no infinity: null stands for it
        given["standard_error"] = np.nan_to_num(given["standard_error"], nan=np.inf, posinf=np.inf)
    reports = table.get("reports")
    return Result(
        space=space,
        share=prior_over(table["share"], space.size, name=name),
        reports=None if reports is None else _whole(reports),
        description=about,
        **given,
    )


def _places(table: Mapping[str, FloatArray]) -> Space:
    if "lat" not in table or "lng" not in table:
        raise InvalidFile("it must have the columns lat and lng, or describe its space")
    return Points(lat=table["lat"], lng=table["lng"])


def _whole(reports: FloatArray) -> IntArray:
    if not ((reports >= 0) & (reports == np.floor(reports))).all():
        raise InvalidFile("its column 'reports' must hold whole numbers")
    return reports.astype(np.int64)


def _centres(space: Any) -> dict[str, FloatArray]:
    """Latitudes and longitudes to a centimetre; nothing where the space has no map."""
    try:
        lat, lng = space.centres_latlng()
    except (AttributeError, Unsupported):
        return {}
    return {"lat": np.round(lat, 7), "lng": np.round(lng, 7)}


# --- Counts, priors and histories in files: places by name, timestamps by column


PERSON, PLACE, TIMESTAMP = ("person", "user", "name"), ("place", "location", "region"), "timestamp"


@dataclass(frozen=True)
class CountTable:
    """How many people are at each place at each timestamp."""

    place_column: str
    places: tuple[str, ...]
    timestamps: tuple[str, ...]
    counts: FloatArray
    """(timestamps, places), as the file has them: not checked yet."""

    def merged(self, names: Sequence[str], groups: Sequence[Sequence[int]]) -> CountTable:
        """The counts of merged places under their new names."""
        columns = [self.counts[:, list(group)].sum(axis=1) for group in groups]
        return CountTable(
            self.place_column, tuple(names), self.timestamps, np.stack(columns, axis=1)
        )


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


def write_counts(
    path: str, table: CountTable, counts: IntArray, *, format: str | None = None
) -> None:
    """Write counts (timestamps, places) in the shape of the table they stand for."""
    import pyarrow as pa

    columns = {table.place_column: pa.array(list(table.places))}
    columns |= {name: pa.array(row) for name, row in zip(table.timestamps, counts, strict=True)}
    batch = pa.RecordBatch.from_pydict(columns)
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
