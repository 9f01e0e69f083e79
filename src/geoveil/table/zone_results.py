"""Districts as tables: one row for each, and for each slot where there are several."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geoveil.estimate.regions import RegionShares
from geoveil.space.outline import Outline
from geoveil.table import well_known, writer
from geoveil.table.reader import DOCUMENT, Format, format_of

VERSION = 1
"""Of the description that a file of districts carries."""


def write_zones(
    path: str,
    outlines: Sequence[Outline],
    shares: Mapping[str, RegionShares],
    level: float,
    description: Mapping[str, Any],
    *,
    format: str | None = None,
) -> None:
    """Write the districts of one or several maps, each under the name of its slot.

    Columns: region, share, standard_error, low, high, in_cut_cells, and slot where slots have names. As
    GeoJSON and in Parquet the districts keep their shapes.
    """
    import pyarrow as pa

    kind = format_of(path, format)
    columns = _columns(shares, level)
    shapes = [_geometry(each) for each in outlines] * len(shares)
    stated = {**description, "zones": VERSION, "interval_level": level}
    stated["people"] = {name: _people(each) for name, each in shares.items()}
    with writer.binary_sink(path) as sink:
        if kind is Format.GEOJSON:
            features = ",\n".join(
                json.dumps(_feature(shape, columns, row), allow_nan=False)
                for row, shape in enumerate(shapes)
            )
            head = json.dumps(stated, ensure_ascii=False, allow_nan=False)
            start = f'{{"type":"FeatureCollection",\n"{DOCUMENT}":{head},\n"features":['
            sink.write(f"{start}\n{features}\n]}}\n".encode())
            return
        arrays = {name: _array(values) for name, values in columns.items()}
        described = {}
        if kind is Format.PARQUET:
            arrays[well_known.GEOMETRY_COLUMN] = pa.array(map(well_known.well_known_binary, shapes))
            described = {"geo": well_known.geoparquet_metadata(shapes)}
        batch = pa.RecordBatch.from_pydict(arrays, metadata=described)
        with writer.table_into(sink, kind, batch.schema, stated) as table:
            table.write(batch)


def _columns(shares: Mapping[str, RegionShares], level: float) -> dict[str, Any]:
    rows = [each.rows(level) for each in shares.values()]
    columns: dict[str, Any] = {"region": [name for each in rows for name in each["region"]]}
    if len(shares) > 1 or "" not in shares:
        columns["slot"] = [name for name, each in shares.items() for _ in each.names]
    for name in list(rows[0])[1:]:
        columns[name] = np.concatenate([each[name] for each in rows])
    return columns


def _people(shares: RegionShares) -> dict[str, Any]:
    return {"left_out": shares.left_out, "counted_twice": shares.counted_twice}


def _array(values: Any) -> Any:
    """What is not known has no number: an empty field, or null."""
    import pyarrow as pa

    return (
        pa.array(values)
        if isinstance(values, list)
        else pa.array(values, mask=~np.isfinite(values))
    )


def _feature(shape: dict[str, Any], columns: Mapping[str, Any], row: int) -> dict[str, Any]:
    properties = {"name": columns["region"][row]}
    for name, values in columns.items():
        if name != "region":
            value = values[row]
            properties[name] = value if isinstance(value, str) else _number(float(value))
    return {"type": "Feature", "geometry": shape, "properties": properties}


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _geometry(outline: Outline) -> dict[str, Any]:
    """The polygons of a district, closed, longitudes as they run."""
    polygons = [
        [np.concatenate((ring, ring[:1])).tolist() if (ring[0] != ring[-1]).any() else ring.tolist()
         for ring in polygon]
        for polygon in outline.polygons
    ]  # fmt: skip
    if len(polygons) == 1:
        return {"type": "Polygon", "coordinates": polygons[0]}
    return {"type": "MultiPolygon", "coordinates": polygons}
