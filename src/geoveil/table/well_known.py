"""Shapes of cells as well-known binary, and what GeoParquet says about a column of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

GEOMETRY_COLUMN = "geometry"
_TYPES = {"Point": 1, "LineString": 2, "Polygon": 3, "MultiPolygon": 6}


def well_known_binary(geometry: Any) -> bytes:
    """A GeoJSON geometry as well-known binary, little-endian.

    >>> well_known_binary({"type": "Point", "coordinates": [4.8, 45.7]}).hex()[:18]
    '010100000033333333'
    """
    kind, coordinates = geometry["type"], geometry["coordinates"]
    head = struct.pack("<BI", 1, _TYPES[kind])
    if kind == "Point":
        return head + struct.pack("<2d", *coordinates)
    if kind == "LineString":
        return head + _ring(coordinates)
    if kind == "Polygon":
        return head + struct.pack("<I", len(coordinates)) + b"".join(map(_ring, coordinates))
    parts = ({"type": "Polygon", "coordinates": part} for part in coordinates)
    return head + struct.pack("<I", len(coordinates)) + b"".join(map(well_known_binary, parts))


def _ring(ring: Sequence[Sequence[float]]) -> bytes:
    flat = [value for position in ring for value in position]
    return struct.pack(f"<I{len(flat)}d", len(ring), *flat)


def geoparquet_metadata(geometries: Iterable[Any]) -> bytes:
    """The entry ``geo`` of a Parquet file whose column ``geometry`` holds these; degrees of WGS84."""
    types = sorted({geometry["type"] for geometry in geometries})
    column = {"encoding": "WKB", "geometry_types": types, "edges": "planar"}
    described = {
        "version": "1.1.0",
        "primary_column": GEOMETRY_COLUMN,
        "columns": {GEOMETRY_COLUMN: column},
    }
    return json.dumps(described).encode()
