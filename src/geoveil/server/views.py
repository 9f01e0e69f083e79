"""An estimate as files: JSON as it is kept, GeoJSON and CSV and Parquet made from it.

A table has a row for each cell: its number, its centre in degrees, its share and the ends of its
interval. All of it is numbers under fixed names, so that no spreadsheet can take it for a formula.
The files are those of ``geoveil estimate``: ``geoveil evaluate`` and ``design`` read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from geoveil.server.estimates import read_body
from geoveil.space import Grid
from geoveil.table.format import require_pyarrow
from geoveil.table.results import VERSION, Result

_BY_CELL = ("distribution", "standard_error", "interval")
"""Entries of the body that become columns."""


@dataclass(frozen=True, slots=True)
class View:
    """A form of an estimate: how it is asked for, what it is called, how it is made."""

    ending: str
    media_type: str
    render: Callable[[bytes], bytes]


def to_geojson(body: bytes) -> bytes:
    """A polygon for each cell; the rest of the body is the member ``geoveil``.

    Reference: RFC 7946.
    """
    result, grid = _result(body)
    columns = {name: values for name, values in result.columns().items() if name != "cell"}
    collection = {**grid.to_geojson(columns), "geoveil": _document(result)}
    return json.dumps(collection, ensure_ascii=False, allow_nan=False).encode()


def to_csv(body: bytes) -> bytes:
    """A header line and a line for each cell; an unknown standard error is left empty."""
    columns = _result(body)[0].columns()
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(_written, row)) for row in rows)]
    return ("\r\n".join(lines) + "\r\n").encode()


def to_parquet(body: bytes) -> bytes:
    """A table with the rest of the body in its metadata; needs pyarrow."""
    require_pyarrow()
    import pyarrow as pa

    from geoveil.table.writer import ParquetWriter

    result, _ = _result(body)
    batch = pa.RecordBatch.from_pydict(
        {name: pa.array(values) for name, values in result.columns().items()}
    )
    sink = BytesIO()
    writer = ParquetWriter(sink, batch.schema, _document(result))
    writer.write(batch)
    writer.finish()
    return sink.getvalue()


VIEWS: Mapping[str, View] = {
    view.ending: view
    for view in (
        View("json", "application/json", bytes),
        View("geojson", "application/geo+json", to_geojson),
        View("csv", "text/csv", to_csv),
        View("parquet", "application/vnd.apache.parquet", to_parquet),
    )
}
"""By their endings."""


def _result(body: bytes) -> tuple[Result, Grid]:
    values = read_body(body)
    grid = Grid.from_dict(values["space"])
    interval = values["interval"]
    about = {name: values[name] for name in values if name not in (*_BY_CELL, "space", "geoveil")}
    about["interval"] = {name: interval[name] for name in interval if name not in ("low", "high")}
    result = Result(
        space=grid,
        share=np.array(values["distribution"]),
        standard_error=np.array(values["standard_error"], dtype=np.float64),
        low=np.array(interval["low"]),
        high=np.array(interval["high"]),
        description=about,
    )
    return result, grid


def _document(result: Result) -> dict[str, Any]:
    """What a file says about itself, as ``geoveil.table`` reads it."""
    return {
        "estimate": VERSION,
        "space": result.space.to_dict(),
        **(result.description or {}),
    }


def _written(value: float) -> str:
    """A number with the fewest digits that read back the same; nothing for one that is not known."""
    return repr(value) if np.isfinite(value) else ""
