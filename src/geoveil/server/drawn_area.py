"""The area that an operator draws before the first report: city limits over the box, or places in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from geoveil.arrays import FloatArray
from geoveil.errors import InvalidInput
from geoveil.position.positional import on_one_lattice
from geoveil.server.problem import Problem
from geoveil.server.settings_of_campaign import CampaignSettings, InvalidSetting
from geoveil.server.shapes import POINTS, geometries_of, read_regions
from geoveil.space import MATRIX_LIMIT, MOST_CELLS, Box, MaskedGrid, Points
from geoveil.space.outline import Outline

MOST_PLACES = MATRIX_LIMIT
AREA = "area_km2"
"""What a point says that is the middle of a cell: as large as this, with people anywhere in it."""
_ALIKE = 2.0
"""The largest of such cells is at most so many times as large as the smallest."""
_EDGE_DEGREES = 1e-5
"""A place so near the box, about a metre, is in it: boxes are written with fewer digits than places."""

Drawn = Sequence[Outline] | Points
"""City limits, or places."""
_Position = Annotated[list[float], Meta(min_length=2, max_length=4)]


def read_area(body: bytes) -> Drawn:
    """The areas of a GeoJSON text, or its points; ``invalid-geojson`` for both, and for neither.

    Points are places, in their order. Where each says its ``area_km2`` they are the middles of cells, such as
    hexagons. Nothing else that is said of them is read.
    """
    found = geometries_of(body)
    points = [each for each in found if each[0].get("type") in POINTS]
    if not points:
        return read_regions(body)
    if len(points) < len(found):
        raise _invalid("it must hold points only, or areas only: places, or city limits")
    return _places(points)


def _places(points: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Points:
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
    degrees = np.array([each[:2] for each in positions])
    if not (np.abs(degrees) <= (180.0, 90.0)).all():
        raise _invalid("longitudes must lie within ±180 and latitudes within ±90 degrees")
    try:
        Box.around(lat=degrees[:, 1], lng=degrees[:, 0])
    except InvalidInput as problem:
        raise _invalid(f"places must lie on one flat map: {problem}") from None
    try:
        return Points(lat=degrees[:, 1], lng=degrees[:, 0], cell_km=_cell_km(areas))
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


def _invalid(detail: str) -> Problem:
    return Problem("invalid-geojson", detail)


def space_of(settings: CampaignSettings, drawn: Drawn) -> MaskedGrid | Points:
    """The cells of a campaign whose operator drew this; ``InvalidInput`` where it cannot have them."""
    space = space_within(settings, drawn)
    if isinstance(space, Points):
        on_one_lattice(space, settings.rule.promises)  # raises where they suit no mechanism
    return space


def space_within(settings: CampaignSettings, drawn: Drawn) -> MaskedGrid | Points:
    """The same where nothing is promised yet: only the box matters, and what reports tell apart."""
    if settings.trips:
        raise InvalidSetting(
            "trips",
            "trips must be between all cells of a box: flows are told by blocks of its rows and columns; "
            "leave the area as it is, or make a campaign without trips",
        )
    if not isinstance(drawn, Points):
        return checked_area(MaskedGrid.covered(settings.grid, drawn))
    settings.check_counts(drawn.size, "places")
    lat, lng = drawn.centres_latlng()
    outside = np.flatnonzero(~_in_box(Box.from_list(settings.box), lat, lng))
    if outside.size:
        raise InvalidInput(
            f"places must lie in the box of the campaign; that at position {outside[0]} does not"
        )
    return drawn


def checked_area(space: MaskedGrid) -> MaskedGrid:
    """The cells that city limits leave, unless they are more than a mechanism is made for."""
    if space.size > MOST_CELLS:
        raise InvalidInput(
            f"the area must leave at most {MOST_CELLS:,} cells of {space.cell_km:g} km, not {space.size:,}; "
            "choose larger cells or a smaller area"
        )
    return space


def _in_box(box: Box, lat: FloatArray, lng: FloatArray) -> Any:
    up = (lat >= box.south - _EDGE_DEGREES) & (lat <= box.north + _EDGE_DEGREES)
    east = np.remainder(lng - box.west + _EDGE_DEGREES, 360.0)
    return up & (east <= box.width + 2.0 * _EDGE_DEGREES)
