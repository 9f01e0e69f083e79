"""GeoJSON that operators send: read strictly, bounded, and kept without anything that is no shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from geoveil.errors import GeoveilError
from geoveil.server.problem import Problem, decode
from geoveil.space.outline import Outline, checked_polygon

BACKDROP_BYTES = 4 << 20
"""Longest body of a backdrop."""
DISTRICT = "district"
KINDS = ("water", "green", "road", "rail", "border", DISTRICT)
"""What a shape of a backdrop may say it is, for its colour. Districts are areas, and keep their names."""
MOST_REGIONS = 200
_MOST_SHAPES, _MOST_POSITIONS = 100_000, 400_000
_NAME_LENGTH = 200
_DECIMALS = 6
"""Of degrees: a tenth of a metre."""

_Position = Annotated[list[float], Meta(min_length=2, max_length=4)]
_Line = Annotated[list[_Position], Meta(min_length=2)]
_Ring = Annotated[list[_Position], Meta(min_length=4)]
_Area = Annotated[list[_Ring], Meta(min_length=1)]
_COORDINATES: dict[str, Any] = {
    "LineString": _Line,
    "MultiLineString": list[_Line],
    "Polygon": _Area,
    "MultiPolygon": list[_Area],
}
POINTS = ("Point", "MultiPoint")
_ANY = msgspec.json.Decoder()


class Shape(NamedTuple):
    """One geometry: its type, its coordinates as GeoJSON has them, and what its feature says."""

    type: str
    coordinates: Any
    properties: dict[str, Any]


def read_shapes(body: bytes) -> list[Shape]:
    """Lines and areas of a GeoJSON text; raises ``malformed-body`` or ``invalid-geojson``.

    Points are left out, heights too. Degrees must be degrees.
    """
    shapes: list[Shape] = []
    positions = 0
    for geometry, properties in geometries_of(body):
        shape = _shape(geometry, properties)
        if shape is None:
            continue
        shapes.append(shape)
        positions += sum(len(line) for line in lines_of(shape))
        if len(shapes) > _MOST_SHAPES or positions > _MOST_POSITIONS:
            raise _invalid(
                f"it must have at most {_MOST_SHAPES:,} shapes with {_MOST_POSITIONS:,} positions in "
                "all; simplify it"
            )
    if not shapes:
        raise _invalid("it must hold lines or areas")
    return shapes


def _invalid(detail: str) -> Problem:
    return Problem("invalid-geojson", detail)


def geometries_of(body: bytes) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every geometry of a GeoJSON text with the properties of its feature, in their order.

    Collections are opened, one inside another too; raises ``malformed-body`` or ``invalid-geojson``.
    """
    return list(_geometries(decode(_ANY, body)))


def _geometries(document: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    waiting: list[tuple[Any, dict[str, Any]]] = [(document, {})]
    while waiting:
        found, properties = waiting.pop()
        if not isinstance(found, dict):
            raise _invalid("every part must be a GeoJSON object")
        inside = {"FeatureCollection": "features", "GeometryCollection": "geometries"}.get(
            str(found.get("type"))
        )
        if inside is not None:
            several = found.get(inside)
            if not isinstance(several, list):
                raise _invalid(f"a collection must have a list of {inside}")
            waiting += [(each, properties) for each in reversed(several)]
        elif found.get("type") == "Feature":
            if found.get("geometry") is not None:
                own = found.get("properties")
                waiting.append((found["geometry"], own if isinstance(own, dict) else {}))
        else:
            yield found, properties


def _shape(geometry: dict[str, Any], properties: dict[str, Any]) -> Shape | None:
    kind = geometry.get("type")
    if kind in POINTS:
        return None
    if not isinstance(kind, str) or kind not in _COORDINATES:
        raise _invalid(f"a geometry must be one of {', '.join(_COORDINATES)}")
    try:
        coordinates = msgspec.convert(geometry.get("coordinates"), _COORDINATES[kind])
    except (msgspec.ValidationError, RecursionError):
        raise _invalid(f"the coordinates of a {kind} must be those of one, in degrees") from None
    shape = Shape(kind, coordinates, properties)
    for line in lines_of(shape):
        line[:] = _checked(line)
    return shape


def _checked(line: list[list[float]]) -> list[list[float]]:
    degrees = np.array([position[:2] for position in line])
    if not (np.abs(degrees) <= (180.0, 90.0)).all():
        raise _invalid("longitudes must lie within ±180 and latitudes within ±90 degrees")
    rounded: list[list[float]] = degrees.round(_DECIMALS).tolist()
    return rounded


def lines_of(shape: Shape) -> list[list[list[float]]]:
    """The lines or rings of a shape."""
    return {
        "LineString": lambda c: [c],
        "MultiPolygon": lambda c: [ring for area in c for ring in area],
    }.get(shape.type, list)(shape.coordinates)


def backdrop_of(body: bytes) -> bytes:
    """What is kept and given out of a backdrop: shapes, their kind, names of districts, no other word."""
    features, districts = [], 0
    for shape in read_shapes(body):
        kind = shape.properties.get("kind")
        said = {"kind": kind} if isinstance(kind, str) and kind in KINDS else {}
        if kind == DISTRICT:
            districts += 1
            said["name"] = _region(shape, districts).name
        geometry = {"type": shape.type, "coordinates": shape.coordinates}
        features.append({"type": "Feature", "properties": said, "geometry": geometry})
    if districts > MOST_REGIONS:
        raise _invalid(f"there must be at most {MOST_REGIONS} districts")
    return msgspec.json.encode({"type": "FeatureCollection", "features": features})


def districts_of(backdrop: bytes) -> list[Outline]:
    """The districts of a backdrop that was kept."""
    kept = [each for each in read_shapes(backdrop) if each.properties.get("kind") == DISTRICT]
    return [_region(shape, number) for number, shape in enumerate(kept, start=1)]


def _region(shape: Shape, number: int) -> Outline:
    """An area with its name; refused where it is none."""
    if shape.type not in ("Polygon", "MultiPolygon"):
        raise _invalid("a region must be a Polygon or a MultiPolygon")
    name = shape.properties.get("name", f"region {number}")
    if not isinstance(name, str) or len(name) > _NAME_LENGTH or not name.isprintable():
        raise _invalid(f"the name of a region must have up to {_NAME_LENGTH} printable characters")
    several = [shape.coordinates] if shape.type == "Polygon" else shape.coordinates
    try:
        return Outline(name, tuple(checked_polygon(each, name) for each in several))
    except GeoveilError as problem:
        raise _invalid(str(problem)) from None


def read_regions(body: bytes) -> list[Outline]:
    """The areas of a GeoJSON text with their names, at most 200; lines are refused."""
    regions = [_region(shape, number) for number, shape in enumerate(read_shapes(body), start=1)]
    if len(regions) > MOST_REGIONS:
        raise _invalid(f"there must be at most {MOST_REGIONS} regions; ask in several requests")
    return regions
