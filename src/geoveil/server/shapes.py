"""GeoJSON that operators send: read strictly and bounded; a backdrop, regions, or the area of a campaign.

The area is drawn before the first report: city limits over the box, or places in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from geoveil.arrays import FloatArray
from geoveil.errors import GeoveilError, InvalidInput
from geoveil.position.positional import on_one_lattice
from geoveil.server.problem import Problem, decode
from geoveil.server.settings_of_campaign import CampaignSettings, InvalidSetting
from geoveil.space import MATRIX_LIMIT, MOST_CELLS, Box, MaskedGrid, Points
from geoveil.space.outline import Feature, Outline, checked_polygon, geometries

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
_POINTS = ("Point", "MultiPoint")
_ANY = msgspec.json.Decoder()
MOST_PLACES = MATRIX_LIMIT
AREA = "area_km2"
"""What a point says that is the middle of a cell: as large as this, with people anywhere in it."""
_ALIKE = 2.0
"""The largest of such cells is at most so many times as large as the smallest."""
_EDGE_DEGREES = 1e-5
"""A place so near the box, about a metre, is in it: boxes are written with fewer digits than places."""
Drawn = Sequence[Outline] | Points
"""City limits, or places."""


class Shape(NamedTuple):
    """One geometry: its type, its coordinates as GeoJSON has them, and what its feature says."""

    type: str
    coordinates: Any
    properties: Mapping[str, Any]


def read_shapes(body: bytes, *, every: bool = False) -> list[Shape]:
    """Lines and areas of a GeoJSON text; raises ``malformed-body`` or ``invalid-geojson``.

    Points and features without a shape are left out, or refused where ``every`` feature must be one; heights
    are left out. Degrees must be degrees.
    """
    shapes: list[Shape] = []
    positions = 0
    for geometry, properties in _geometries(body):
        if not geometry or geometry.get("type") in _POINTS:
            if every:
                raise _invalid(
                    "every feature must have a shape that is a Polygon or a MultiPolygon"
                )
            continue
        positions += _positions(geometry)
        if len(shapes) >= _MOST_SHAPES or positions > _MOST_POSITIONS:
            raise _invalid(
                f"it must have at most {_MOST_SHAPES:,} shapes with {_MOST_POSITIONS:,} positions in "
                "all; simplify it"
            )
        shapes.append(_shape(geometry, properties))
    if not shapes:
        raise _invalid("it must hold lines or areas")
    return shapes


def _invalid(detail: str) -> Problem:
    return Problem("invalid-geojson", detail)


def _geometries(body: bytes) -> list[Feature]:
    """Every geometry of a GeoJSON text, all parts checked; ``malformed-body`` or ``invalid-geojson``."""
    try:
        return list(geometries(decode(_ANY, body)))
    except InvalidInput as problem:
        raise _invalid(str(problem)) from None


def _positions(geometry: Mapping[str, Any]) -> int:
    """How many a line or an area has, before they are looked at; 0 where they cannot be counted."""
    kind = geometry.get("type")
    if not isinstance(kind, str) or kind not in _COORDINATES:
        return 0
    try:
        return sum(map(len, lines_of(Shape(kind, geometry.get("coordinates"), {}))))
    except TypeError:
        return 0


def _shape(geometry: Mapping[str, Any], properties: Mapping[str, Any]) -> Shape:
    kind = geometry.get("type")
    if not isinstance(kind, str) or kind not in _COORDINATES:
        raise _invalid(f"a geometry must be one of {', '.join(_COORDINATES)}")
    try:
        coordinates = msgspec.convert(geometry.get("coordinates"), _COORDINATES[kind])
    except (msgspec.ValidationError, RecursionError):
        raise _invalid(f"the coordinates of a {kind} must be those of one, in degrees") from None
    shape = Shape(kind, coordinates, properties)
    lines = lines_of(shape)
    degrees = iter(_degrees(list(chain.from_iterable(lines))).round(_DECIMALS).tolist())
    for line in lines:
        line[:] = islice(degrees, len(line))
    return shape


def _degrees(positions: list[list[float]]) -> FloatArray:
    """(k, 2): longitudes and latitudes; heights are left out."""
    degrees = np.array([position[:2] for position in positions]).reshape(-1, 2)
    if not (np.abs(degrees) <= (180.0, 90.0)).all():
        raise _invalid("longitudes must lie within ±180 and latitudes within ±90 degrees")
    return degrees


def lines_of(shape: Shape) -> list[list[list[float]]]:
    """The lines or rings of a shape."""
    return {
        "LineString": lambda c: [c],
        "MultiPolygon": lambda c: [ring for area in c for ring in area],
    }.get(shape.type, list)(shape.coordinates)


def backdrop_of(body: bytes) -> bytes:
    """A backdrop as it is stored and served: shapes, their kind, names of districts, no other word."""
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
    shapes = read_shapes(backdrop)
    districts = [shape for shape in shapes if shape.properties.get("kind") == DISTRICT]
    return [_region(shape, number) for number, shape in enumerate(districts, start=1)]


def _region(shape: Shape, number: int) -> Outline:
    """An area with its name; refused where it is none."""
    if shape.type not in ("Polygon", "MultiPolygon"):
        raise _invalid("a region must be a Polygon or a MultiPolygon")
    name = shape.properties.get("name", f"region {number}")
    if not isinstance(name, str) or len(name) > _NAME_LENGTH or not name.isprintable():
        raise _invalid(f"the name of a region must have up to {_NAME_LENGTH} printable characters")
    several = [shape.coordinates] if shape.type == "Polygon" else shape.coordinates
    try:
        return Outline(name, tuple(checked_polygon(rings, name) for rings in several))
    except GeoveilError as problem:
        raise _invalid(str(problem)) from None


def read_regions(body: bytes) -> list[Outline]:
    """The areas of a GeoJSON text with their names, at most 200; answers to them stand in their order."""
    shapes = read_shapes(body, every=True)
    regions = [_region(shape, number) for number, shape in enumerate(shapes, start=1)]
    if len(regions) > MOST_REGIONS:
        several = "merge some into a MultiPolygon, or ask about regions in several requests"
        raise _invalid(f"there must be at most {MOST_REGIONS} areas; {several}")
    return regions


# --- The area of a campaign


def read_area(body: bytes) -> Drawn:
    """The areas of a GeoJSON text, or its points; ``invalid-geojson`` for both, and for neither.

    Points are places, in their order. Where each says its ``area_km2`` they are the middles of cells, such as
    hexagons. Nothing else that is said of them is read.
    """
    geometries = _geometries(body)
    points = [geometry for geometry in geometries if geometry[0].get("type") in _POINTS]
    if not points:
        return read_regions(body)
    if len(points) < len(geometries):
        raise _invalid(
            "it must hold points only, or areas only, all with a shape: places, or city limits"
        )
    return _places(points)


def _places(points: Sequence[Feature]) -> Points:
    positions: list[list[float]] = []
    areas: list[Any] = []
    for geometry, said in points:
        coordinates = geometry.get("coordinates")
        here = [coordinates] if geometry["type"] == "Point" else coordinates
        try:
            positions += msgspec.convert(here, list[_Position])
        except (msgspec.ValidationError, RecursionError):
            raise _invalid(
                "the coordinates of a point must be a longitude and a latitude"
            ) from None
        if len(positions) > MOST_PLACES:
            raise _invalid(
                f"places must be at most {MOST_PLACES:,}; take larger cells, or merge some"
            )
        areas += [said.get(AREA)] * (len(positions) - len(areas))
    if len(positions) < 2:
        raise _invalid(f"places ({len(positions)}) must be at least 2")
    lng, lat = _degrees(positions).T
    try:
        Box.around(lat=lat, lng=lng)
    except InvalidInput as problem:
        raise _invalid(f"places must lie on one flat map: {problem}") from None
    try:
        return Points(lat=lat, lng=lng, cell_km=_cell_km(areas))
    except InvalidInput as problem:
        raise _invalid(str(problem)) from None


def _cell_km(areas: list[Any]) -> float | None:
    """The side of a square as large as a cell on average; ``None`` where points are no cells."""
    if all(area is None for area in areas):
        return None
    sound = all(type(area) in (int, float) and math.isfinite(area) and area > 0 for area in areas)
    if not sound:
        raise _invalid(f"{AREA} must be a number of square kilometres for every point, or for none")
    if max(areas) > _ALIKE * min(areas):
        raise _invalid(
            f"{AREA} ({min(areas):.4g} to {max(areas):.4g}) must be alike for all points, the largest at "
            f"most {_ALIKE:g} times the smallest; leave it out where places are no cells"
        )
    return math.sqrt(math.fsum(areas) / len(areas))


def space_of(settings: CampaignSettings, area: Drawn) -> MaskedGrid | Points:
    """The cells of a campaign whose operator drew this; ``InvalidInput`` where it cannot have them."""
    space = space_within(settings, area)
    if isinstance(space, Points):
        on_one_lattice(space, settings.rule.promises)  # raises where they suit no mechanism
    return space


def space_within(settings: CampaignSettings, area: Drawn) -> MaskedGrid | Points:
    """The same before any promise is chosen: only the box matters, and what reports tell apart."""
    if settings.trips:
        raise InvalidSetting(
            "trips",
            "trips must be between all cells of a box: flows are told by blocks of its rows and columns; "
            "leave the area as it is, or make a campaign without trips",
        )
    if not isinstance(area, Points):
        return checked_area(MaskedGrid.covered(settings.grid, area))
    settings.check_counts(area.size, "places")
    lat, lng = area.centres_latlng()
    box = Box.from_list(settings.box)
    up = (lat >= box.south - _EDGE_DEGREES) & (lat <= box.north + _EDGE_DEGREES)
    east = np.remainder(lng - box.west + _EDGE_DEGREES, 360.0)
    outside = np.flatnonzero(~(up & (east <= box.width + 2.0 * _EDGE_DEGREES)))
    if outside.size:
        raise InvalidInput(
            f"places must lie in the box of the campaign; that at position {outside[0]} does not"
        )
    return area


def checked_area(space: MaskedGrid) -> MaskedGrid:
    """The cells that city limits leave, unless they are more than a mechanism is made for."""
    if space.size > MOST_CELLS:
        raise InvalidInput(
            f"the area must leave at most {MOST_CELLS:,} cells of {space.cell_km:g} km, not {space.size:,}; "
            "choose larger cells or a smaller area"
        )
    return space
