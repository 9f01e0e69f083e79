"""Cells and places as GeoJSON (RFC 7946): longitude first, counter-clockwise, cut at ±180°."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.errors import InvalidInput

Position = list[float]
Geometry = dict[str, Any]


def feature_collection(
    geometries: Iterable[Geometry], size: int, properties: Mapping[str, npt.ArrayLike] | None
) -> dict[str, Any]:
    """One feature per cell: ``id`` and property ``cell`` its number, and one value per property.

    Numbers that are not finite become ``null``, since JSON has no others.
    """
    columns = {name: _column(name, value, size) for name, value in (properties or {}).items()}
    features = [
        {
            "type": "Feature",
            "id": cell,
            "geometry": geometry,
            "properties": {"cell": cell, **{name: columns[name][cell] for name in columns}},
        }
        for cell, geometry in enumerate(geometries)
    ]
    return {"type": "FeatureCollection", "features": features}


def cell_polygons(lat: FloatArray, lng: FloatArray) -> Iterable[Geometry]:
    """The cells between lattice corners given as (rows + 1, columns + 1) arrays, row by row.

    ``lng`` runs on beyond ±180 where the lattice crosses it; cells that cross are cut in two.
    """
    corners = np.stack([lng, lat], axis=-1)
    rings = np.stack(
        [corners[:-1, :-1], corners[:-1, 1:], corners[1:, 1:], corners[1:, :-1], corners[:-1, :-1]],
        axis=2,
    ).reshape(-1, 5, 2)
    return (_polygon(ring) for ring in rings.tolist())


def points(lat: FloatArray, lng: FloatArray) -> Iterable[Geometry]:
    """Places as point geometries."""
    return (
        {"type": "Point", "coordinates": position}
        for position in np.stack([lng, lat], axis=-1).tolist()
    )


def _polygon(ring: list[Position]) -> Geometry:
    longitudes = [position[0] for position in ring]
    for edge in (-180.0, 180.0):
        if min(longitudes) < edge < max(longitudes):
            parts = [_half(ring, edge, -1.0), _half(ring, edge, 1.0)]
            return {"type": "MultiPolygon", "coordinates": [[_turned(part)] for part in parts]}
    return {"type": "Polygon", "coordinates": [_turned(ring)]}


def _half(ring: list[Position], edge: float, side: float) -> list[Position]:
    """The part of a closed ring on one side of a meridian (Sutherland and Hodgman's clipping)."""
    kept: list[Position] = []
    for start, end in pairwise(ring):
        if side * (start[0] - edge) >= 0.0:
            kept.append(start)
        if (start[0] - edge) * (end[0] - edge) < 0.0:
            share = (edge - start[0]) / (end[0] - start[0])
            kept.append([edge, start[1] + share * (end[1] - start[1])])
    return [*kept, kept[0]]


def _turned(ring: list[Position]) -> list[Position]:
    """The ring with longitudes in −180 … 180, moved as a whole."""
    middle = (min(lng for lng, _ in ring) + max(lng for lng, _ in ring)) / 2.0
    turn = -360.0 if middle > 180.0 else 360.0 if middle < -180.0 else 0.0
    return [[lng + turn, lat] for lng, lat in ring]


def _column(name: str, value: npt.ArrayLike, size: int) -> list[Any]:
    array = np.asarray(value)
    if array.shape != (size,):
        raise InvalidInput(
            f"property {name!r} (shape {array.shape}) must have {size} entries, one per cell"
        )
    if array.dtype.kind == "f":
        return [entry if np.isfinite(entry) else None for entry in array.tolist()]
    return list(array.tolist())
