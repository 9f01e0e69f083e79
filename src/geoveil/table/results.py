"""Estimates in files: one row for each cell, with error bars and how the estimate was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray, distribution
from geoveil.errors import GeoveilError, InvalidFile, Unsupported
from geoveil.space import Points, Space, space_from_dict
from geoveil.table.columns import find_column, numbers
from geoveil.table.format import Format, format_of
from geoveil.table.reader import open_table
from geoveil.table.writer import binary_sink, create_table

VERSION = 1
"""Of the description that a file of results carries; a reader refuses any other."""

_INTERVAL = ("low", "high")


@dataclass(frozen=True)
class Result:
    """Shares by cell as a file holds them; what a file does not hold is ``None``.

    ``reports`` counts how often each cell was reported; ``description`` is what the file says about
    itself (certificate, steps, mechanisms …), empty for CSV.
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

    GeoJSON carries the description as its member ``geoveil``, Parquet in its metadata under the same
    key; CSV has no place for it.
    """
    import pyarrow as pa

    document = {"estimate": VERSION, "space": result.space.to_dict(), **(result.description or {})}
    if format_of(path, format) is Format.GEOJSON:
        _write_features(path, result, document)
        return
    arrays = {name: pa.array(values) for name, values in result.columns().items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    with create_table(path, batch.schema, format=format, document=document) as table:
        table.write(batch)


def _write_features(path: str, result: Result, document: Mapping[str, Any]) -> None:
    space: Any = result.space
    if not _centres(space):
        raise Unsupported(f"{space!r} has no map; write the estimate as .csv or .parquet")
    columns = result.columns()
    collection = space.to_geojson({name: columns[name] for name in columns if name != "cell"})
    features = ",\n".join(
        json.dumps(feature, allow_nan=False) for feature in collection["features"]
    )
    head = json.dumps(document, ensure_ascii=False, allow_nan=False)
    with binary_sink(path) as sink:
        sink.write(f'{{"type":"FeatureCollection",\n"geoveil":{head},\n"features":['.encode())
        sink.write(f"\n{features}\n]}}\n".encode())


def read_result(path: str, *, format: str | None = None, delimiter: str = ",") -> Result:
    """Read a file that ``write_result`` wrote, or any table with columns cell, lat, lng and share.

    The space is the one the file describes; a CSV file has none, and the centres of its cells stand
    in as points (a place belongs to the nearest centre, as on a grid).
    """
    with open_table(path, format=format, delimiter=delimiter) as reader:
        described = reader.metadata
        find_column(reader.columns, ("share",), "share of people", path)
        wanted = [name for name in _ALL_COLUMNS if name in reader.columns]
        batches = list(reader.batches(wanted))
    table = {
        name: np.concatenate([numbers(batch.column(name)) for batch in batches] or [np.empty(0)])
        for name in wanted
    }
    table = _in_order(table, path)
    try:
        return _built(table, described)
    except GeoveilError as problem:
        raise InvalidFile(f"{path}: {problem}") from None


_ALL_COLUMNS = ("cell", "lat", "lng", "share", "standard_error", *_INTERVAL, "reports")


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


def _built(table: dict[str, FloatArray], described: Mapping[str, Any] | None) -> Result:
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
        share=distribution("share", table["share"], space.size),
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
