"""Estimates and shares of cells as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np

from geoveil.arrays import FloatArray, IntArray, prior_over
from geoveil.errors import GeoveilError, InvalidFile, Unsupported
from geoveil.space import Points, Space, space_from_dict
from geoveil.table import geojson, locations, well_known, writer
from geoveil.table.reader import DOCUMENT, Format, TableReader, format_of, open_table

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

    @property
    def reported_share(self) -> FloatArray | None:
        """Of the reports that name a cell, the share that names each; ``None`` where there are none."""
        if self.reports is None or not self.reports.any():
            return None
        return self.reports / self.reports.sum()

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
    with writer.binary_sink(path) as sink:
        put_result(sink, kind, result)


def put_result(sink: IO[bytes], kind: Format, result: Result) -> None:
    """Write the bytes of a file of results."""
    import pyarrow as pa

    document = {"estimate": VERSION, "space": result.space.to_dict(), **(result.description or {})}
    columns = result.columns()
    if kind is Format.GEOJSON:
        by_cell = {name: columns[name] for name in columns if name != "cell"}
        collection = cast(Any, result.space).to_geojson(by_cell)
        features = ",\n".join(json.dumps(each, allow_nan=False) for each in collection["features"])
        head = json.dumps(document, ensure_ascii=False, allow_nan=False)
        start = f'{{"type":"FeatureCollection",\n"{DOCUMENT}":{head},\n"features":['
        sink.write(f"{start}\n{features}\n]}}\n".encode())
        return
    # What is not known has no number: an empty field, or null.
    arrays = {name: pa.array(values, mask=~np.isfinite(values)) for name, values in columns.items()}
    described = {}
    if kind is Format.PARQUET and "lat" in columns:
        shapes = [each["geometry"] for each in cast(Any, result.space).to_geojson()["features"]]
        arrays[well_known.GEOMETRY_COLUMN] = pa.array(map(well_known.well_known_binary, shapes))
        described = {"geo": well_known.geoparquet_metadata(shapes)}
    batch = pa.RecordBatch.from_pydict(arrays, metadata=described)
    with writer.table_into(sink, kind, batch.schema, document) as table:
        table.write(batch)


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
    except geojson.PlainDocument as found:
        return result_of(found, path)


def read_cells(reader: TableReader, column: str | None = None) -> Result:
    """The result of an open table whose rows are cells."""
    amounts = amount_column(reader, column)
    others = _OTHERS if column is None else _OTHERS[:3]
    wanted = [name for name in dict.fromkeys((*others, amounts)) if name in reader.columns]
    table = read_numbers(reader, wanted)
    table["share"] = checked_amounts(table.pop(amounts), amounts, reader.name)
    rows = table["share"].size
    if not rows:
        raise InvalidFile(f"{reader.name} must have one row for each cell; it has none")
    cells = table.pop("cell", np.arange(float(rows)))  # without numbers as it stands
    order = np.argsort(cells, kind="stable")
    if not np.array_equal(cells[order], np.arange(rows)):
        raise InvalidFile(
            f"{reader.name} must have every cell 0 … {rows - 1} once in its column 'cell'"
        )
    table = {name: values[order] for name, values in table.items()}
    try:  # the document after the rows: in a pipe it may stand behind them
        return _built(table, reader.metadata, f"column {amounts!r}")
    except GeoveilError as problem:
        raise InvalidFile(f"{reader.name}: {problem}") from None


def read_numbers(reader: TableReader, names: Sequence[str]) -> dict[str, FloatArray]:
    """Whole columns of an open table, as numbers."""
    batches = list(reader.batches(names))
    return {
        name: np.concatenate(
            [locations.numbers(batch.column(name)) for batch in batches] or [np.empty(0)]
        )
        for name in names
    }


def amount_column(reader: TableReader, column: str | None) -> str:
    """The column that says how many people are where: the one given, or ``share``."""
    if column is not None:
        return locations.check_column(reader.columns, column, reader.name)
    return locations.find_column(reader.columns, ("share",), "share of people", reader.name)


def checked_amounts(values: FloatArray, column: str, path: str) -> FloatArray:
    """Numbers of at least 0, the first other one named by its row."""
    wrong = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
    if wrong.size:
        raise InvalidFile(
            f"column {column!r} of {path} must hold numbers of at least 0; row {wrong[0] + 1} does not"
        )
    return values


def result_of(found: geojson.PlainDocument, path: str) -> Result:
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
        interval = values.get("interval", {})
        table = {
            name: values[given]
            for name, given in _OF_DOCUMENT.items()
            if interval or name == "share"
        }
        table |= {name: interval[name] for name in _INTERVAL if interval}
        arrays = {name: np.array(listed, dtype=np.float64) for name, listed in table.items()}
        about = {name: values[name] for name in values if name not in _BY_CELL}
        if interval:  # an estimate without bars says so
            about["interval_level"] = interval["level"]
            about["interval"] = {name: interval[name] for name in interval if name not in _INTERVAL}
    except (KeyError, TypeError, ValueError):
        raise InvalidFile(
            "an estimate of the service must have all its entries; it has not"
        ) from None
    return _built(arrays, {"estimate": VERSION, **about})


_OF_DOCUMENT = {"share": "distribution", "standard_error": "standard_error"}
_BY_CELL = (*_OF_DOCUMENT.values(), "blocks", "geoveil")
_OTHERS = ("cell", "lat", "lng", "standard_error", *_INTERVAL, "reports")


def _built(
    table: dict[str, FloatArray], described: Mapping[str, Any] | None, name: str = "distribution"
) -> Result:
    about = dict(described or {})
    if about and about.pop("estimate", None) != VERSION:
        raise InvalidFile(f'the description of an estimate must say "estimate": {VERSION}')
    if "space" in about:
        space = space_from_dict(about.pop("space"))
    elif "lat" in table and "lng" in table:
        space = Points(lat=table["lat"], lng=table["lng"])
    else:
        raise InvalidFile("it must have the columns lat and lng, or describe its space")
    names = ("standard_error", *_INTERVAL)
    given: dict[str, Any] = {name: table[name] for name in names if name in table}
    if "standard_error" in given:  # JSON has no infinity: null stands for it
        given["standard_error"] = np.nan_to_num(given["standard_error"], nan=np.inf, posinf=np.inf)
    share, reports = prior_over(table["share"], space.size, name=name), table.get("reports")
    if reports is None:
        return Result(space, share, description=about, **given)
    if not ((reports >= 0) & (reports == np.floor(reports))).all():
        raise InvalidFile("its column 'reports' must hold whole numbers")
    return Result(space, share, reports=reports.astype(np.int64), description=about, **given)


def _centres(space: Any) -> dict[str, FloatArray]:
    """Latitudes and longitudes to a centimetre; nothing where the space has no map."""
    try:
        lat, lng = space.centres_latlng()
    except (AttributeError, Unsupported):
        return {}
    return {"lat": np.round(lat, 7), "lng": np.round(lng, 7)}
