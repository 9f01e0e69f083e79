"""Areas drawn on a map, such as city limits: which places they hold, and how much of every cell."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import ArrayLike, BoolArray, FloatArray, IntArray, instance, ragged
from geoveil.errors import InvalidFile, InvalidInput, TooLarge, number_of
from geoveil.space.box import Box
from geoveil.space.grid import Grid
from geoveil.space.outside import no_degrees
from geoveil.space.projection import TangentPlane, check_degrees

_LONGEST = 0.1
"""Degrees: longer edges are cut, since a straight line of degrees is a curve in the plane (a metre here)."""
_LOOK = 256
"""A polygon is looked at on so many × so many squares to see whether its rings cross."""
_AMISS = 0.05
"""The part of such a square that may be covered twice, or less than never, as by a kink in a coast."""
_OVERLAP = 1e-6
"""The part of a cell that rounding may let the parts of an area cover twice."""
_TOGETHER = 1 << 20
"""Pairs of a place and an edge that are looked at together."""
_ROUNDING = 1e-9
"""So small a part of a cell is nothing, and all but so small a part is all."""
_MOST_PIECES = 1 << 23
"""Edges are cut into at most so many pieces, each in one cell."""

Polygon = tuple[FloatArray, ...]
"""Rings of (longitude, latitude): the outer one, then holes."""
Feature = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A geometry of GeoJSON, and the properties of its feature."""
_NAMED = 5
"""So many names stand in a warning."""
_NO_SHAPE = {"type": "GeometryCollection", "geometries": ()}


class Outline(NamedTuple):
    """A named area: polygons with holes, their corners in degrees.

    Edges are straight in degrees, as in GeoJSON, and go the shorter way round where they cross ±180°.
    """

    name: str
    polygons: tuple[Polygon, ...]

    def holds(self, *, lat: ArrayLike, lng: ArrayLike) -> BoolArray:
        """Which places lie inside: those that an odd number of rings surround.

        >>> rectangle = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 1], [0, 1], [0, 0]]]}
        >>> read_outlines(rectangle)[0].holds(lat=[0.5, 0.5], lng=[1.0, 3.0]).tolist()
        [True, False]
        """
        north, east = np.asarray(lat, np.float64), np.asarray(lng, np.float64)
        inside = np.zeros(north.shape, dtype=np.bool_)
        for ring in (ring for polygon in self.polygons for ring in polygon):
            middle = (ring[:, 0].min() + ring[:, 0].max()) / 2.0
            here = middle + np.remainder(east - middle + 180.0, 360.0) - 180.0
            start, end = ring, np.roll(ring, -1, axis=0)
            step = max(1, _TOGETHER // max(north.size, 1))
            for first in range(0, len(ring), step):
                x, y = start[first : first + step].T
                x_next, y_next = end[first : first + step].T
                across = (y > north[..., None]) != (y_next > north[..., None])
                level = np.where(y_next == y, 1.0, y_next - y)
                at = x + (north[..., None] - y) / level * (x_next - x)
                inside ^= (across & (at > here[..., None])).sum(axis=-1) % 2 == 1
        return inside

    def coverage(self, grid: Grid) -> FloatArray:
        """(cells,): how much of every cell of a grid over a box lies inside, 0 to 1, exactly by area.

        Cost: linear in the edges, the cells and how often edges go from cell to cell.
        """
        corners = grid.corners_km()
        window = _window(
            grid.plane, np.concatenate((corners[0], corners[-1], corners[:, 0], corners[:, -1]))
        )
        covered = np.zeros(grid.size)
        for polygon in self.polygons:
            rings = [
                (ring - grid.corner_km) / grid.cell_km
                for ring in _in_plane(polygon, grid.plane, window)
            ]
            covered += _covered(rings, grid.rows, grid.columns).ravel()
        return self._whole(covered)

    def coverage_of(self, cells: Sequence[FloatArray], plane: TangentPlane) -> FloatArray:
        """(cells,): the same of any convex cells, by their corners (any, 2) in a plane, in km.

        Cost: a few passes over the edges for every cell.
        """
        window = _window(plane, np.concatenate(cells))
        rings = [ring for polygon in self.polygons for ring in _in_plane(polygon, plane, window)]
        covered = np.zeros(len(cells))
        for number, corners in enumerate(cells):
            around = _turned(corners, hole=False)
            parts = sum(area_of(_within(ring, around)) for ring in rings)
            covered[number] = parts / area_of(around)
        return self._whole(covered)

    def _whole(self, covered: FloatArray) -> FloatArray:
        """The parts without what rounding adds or takes; areas that cover something twice are refused."""
        if covered.max() > 1.0 + _OVERLAP or covered.min() < -_OVERLAP:
            raise InvalidInput(
                f"the parts of {self.name!r} must not overlap, and holes must lie inside; join the parts"
            )
        covered[covered < _ROUNDING] = 0.0
        covered[covered > 1.0 - _ROUNDING] = 1.0
        return covered

    def area_km2(self, plane: TangentPlane) -> float:
        """Its area in the plane of a map."""
        area = 0.0
        for polygon in self.polygons:
            for number, ring in enumerate(polygon):
                area += abs(area_of(_laid(ring, plane))) * (1 if number == 0 else -1)
        return area


def read_outlines(source: Any, *, name: str = "name") -> list[Outline]:
    """The areas of GeoJSON, each feature one: a dictionary, a file, or what has ``__geo_interface__``.

    ``name`` is the property that says what a feature is called; without it, it has a number. Shapely
    geometries and GeoDataFrames are such things, a GeoDataFrame in any reference system. Features without
    a shape are left out, with a warning.
    """
    instance("name", name, str, "the name of a property, as text")
    document = _document(source)
    outlines: list[Outline] = []
    shapeless: list[str] = []
    for geometry, properties in geometries(document):
        number = len(outlines) + 1
        called = properties.get(name)
        title = f"area {number}" if called is None else str(called)
        if geometry:
            outlines.append(Outline(title, _polygons(geometry, title)))
        else:
            shapeless.append("one without a name" if called is None else repr(title))
    if not outlines:
        raise InvalidInput("the GeoJSON must hold an area, a Polygon or a MultiPolygon")
    if shapeless:
        left_out = number_of(
            len(shapeless), "feature has no shape and is", "features have no shape and are"
        )
        warnings.warn(f"{left_out} left out: {some_of(shapeless)}", stacklevel=2)
    return outlines


def some_of(names: Sequence[str]) -> str:
    """The first few of some names, in words."""
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def box_around(outlines: Iterable[Outline]) -> Box:
    """The box that holds all of some areas."""
    corners = np.concatenate([polygon[0] for outline in outlines for polygon in outline.polygons])
    return Box.around(lat=corners[:, 1], lng=corners[:, 0])


def _document(source: Any) -> Any:
    if isinstance(source, str | Path):
        try:
            document = json.loads(Path(source).read_bytes())
        except (ValueError, RecursionError):
            raise InvalidFile(f"{source} must be GeoJSON in UTF-8") from None
        if isinstance(document, Mapping):
            check_degrees(document.get("crs"), str(source))
        return document
    if isinstance(source, Mapping):
        check_degrees(source.get("crs"), "the GeoJSON")
        return source
    if getattr(source, "crs", None) is not None:
        source = source.to_crs(4326)
    if not hasattr(source, "__geo_interface__"):
        raise InvalidInput(
            f"the area ({type(source).__name__}) must be GeoJSON, the name of a file of it, or a geometry"
        )
    return source.__geo_interface__


def geometries(document: Any) -> Iterator[Feature]:
    """Every geometry with the properties of its feature; collections are opened, one in another too.

    A feature without one, and an empty collection of geometries, have an empty one.
    """
    waiting: list[tuple[Any, Mapping[str, Any]]] = [(document, {})]
    while waiting:
        node, properties = waiting.pop()
        if not isinstance(node, Mapping):
            raise InvalidInput("every part of the GeoJSON must be an object")
        inside = {"FeatureCollection": "features", "GeometryCollection": "geometries"}.get(
            str(node.get("type"))
        )
        if inside is not None:
            several = node.get(inside)
            if not isinstance(several, list | tuple):
                raise InvalidInput(f"a collection of the GeoJSON must have a list of {inside}")
            waiting += [(child, properties) for child in reversed(several)]
            if not several and inside == "geometries":
                yield {}, properties
        elif node.get("type") == "Feature":
            own, shape = node.get("properties"), node.get("geometry")
            waiting.append(
                (_NO_SHAPE if shape is None else shape, own if isinstance(own, Mapping) else {})
            )
        else:
            yield node, properties


def _polygons(geometry: Mapping[str, Any], title: str) -> tuple[Polygon, ...]:
    kind, coordinates = geometry.get("type"), geometry.get("coordinates")
    if kind not in ("Polygon", "MultiPolygon"):
        raise InvalidInput(f"the shape of {title!r} ({kind}) must be a Polygon or a MultiPolygon")
    several = [coordinates] if kind == "Polygon" else coordinates
    if not isinstance(several, list | tuple) or not several:
        raise InvalidInput(f"the coordinates of {title!r} must be those of a {kind}")
    return tuple(checked_polygon(rings, title) for rings in several)


def checked_polygon(rings: Any, title: str) -> Polygon:
    """Rings of places in degrees that do not cross, or an error that names the area."""
    if not isinstance(rings, list | tuple) or not rings:
        raise InvalidInput(f"a polygon of {title!r} must have an outer ring")
    polygon = tuple(_ring(ring, title) for ring in rings)
    corners = np.concatenate(polygon)
    low, high = corners.min(axis=0), corners.max(axis=0)
    if not (high > low).all():
        raise InvalidInput(
            f"the outer ring of {title!r} must have an area; it is a line or a point"
        )
    scale = _LOOK / (high - low)
    coverage = _covered(
        [_turned((ring - low) * scale, hole=number > 0) for number, ring in enumerate(polygon)],
        _LOOK,
        _LOOK,
    )
    if coverage.min() < -_AMISS or coverage.max() > 1.0 + _AMISS:
        raise InvalidInput(
            f"the rings of {title!r} must not cross themselves or each other, and holes must lie inside; "
            "mend the shape, as with buffer(0) of Shapely"
        )
    return polygon


def _ring(places: Any, title: str) -> FloatArray:
    try:
        ring = np.array([place[:2] for place in places], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        ring = np.empty((0, 2))
    if ring.ndim != 2 or ring.shape[1] != 2 or len(ring) < 4 or not np.isfinite(ring).all():
        raise InvalidInput(
            f"a ring of {title!r} must be at least four pairs of longitude, latitude"
        )
    if (np.abs(ring) > (360.0, 90.0)).any():
        hint = no_degrees(ring[:, 1], ring[:, 0])
        raise InvalidInput(
            f"a ring of {title!r} must be in degrees, latitudes within ±90{hint and '; ' + hint}"
        )
    ring[:, 0] = np.unwrap(ring[:, 0], period=360.0)
    return ring


_Window = tuple[FloatArray, FloatArray]


def _window(plane: TangentPlane, corners_km: FloatArray) -> _Window:
    """(longitude, latitude) of the south-west and north-east of a little more than places of a plane."""
    lat, lng = plane.to_latlng(corners_km)
    lng = np.remainder(lng - plane.lng + 180.0, 360.0) - 180.0 + plane.lng
    low, high = np.array((lng.min(), lat.min())), np.array((lng.max(), lat.max()))
    margin = 0.01 * (high - low)
    return low - margin, high + margin


def _in_plane(polygon: Polygon, plane: TangentPlane, window: _Window) -> Iterator[FloatArray]:
    """The rings of a polygon cut to a window, in km, holes the other way round."""
    low, high = window
    for number, ring in enumerate(polygon):
        turn = np.round((plane.lng - (ring[:, 0].min() + ring[:, 0].max()) / 2.0) / 360.0)
        for turns in (turn - 1.0, turn, turn + 1.0):
            part = ring + np.array((360.0 * turns, 0.0))
            for axis, along in enumerate(np.eye(2)):
                part = _clipped(part, along, float(low[axis]))
                part = _clipped(part, -along, -float(high[axis]))
            if len(part):
                yield _turned(_laid(part, plane), hole=number > 0)


def _within(ring: FloatArray, around: FloatArray) -> FloatArray:
    """A ring cut to a convex one that goes counter-clockwise."""
    for one, other in zip(around, np.roll(around, -1, axis=0), strict=True):
        inward = np.array((one[1] - other[1], other[0] - one[0]))
        ring = _clipped(ring, inward, float(inward @ one))
    return ring


def _clipped(ring: FloatArray, along: FloatArray, bound: float) -> FloatArray:
    """A ring cut to what lies at least so far along a direction (Sutherland and Hodgman)."""
    if not len(ring):
        return ring
    after, far = np.roll(ring, -1, axis=0), ring @ along - bound
    far_after = np.roll(far, -1)
    inside = far >= 0.0
    across = inside != (far_after >= 0.0)
    part = np.divide(far, far - far_after, out=np.zeros_like(far), where=across)
    crossing = ring + part[:, None] * (after - ring)
    both = np.stack((ring, crossing), axis=1).reshape(-1, 2)
    return both[np.stack((inside, across), axis=1).ravel()]


def _laid(ring: FloatArray, plane: TangentPlane) -> FloatArray:
    """A ring in the plane, in km, with no edge longer than a tenth of a degree."""
    after = np.roll(ring, -1, axis=0)
    parts = np.maximum(np.ceil(np.abs(after - ring).max(axis=1) / _LONGEST), 1.0).astype(np.int64)
    _check_pieces(int(parts.sum()))
    edge, part = ragged(parts)
    fine = ring[edge] + (part / parts[edge])[:, None] * (after - ring)[edge]
    return plane.to_plane(lat=np.clip(fine[:, 1], -90.0, 90.0), lng=fine[:, 0])


def _turned(ring: FloatArray, *, hole: bool) -> FloatArray:
    """The ring counter-clockwise, or clockwise where it is a hole."""
    return ring[::-1] if (area_of(ring) < 0.0) != hole else ring


def area_of(ring: FloatArray) -> float:
    """The area of a ring, negative where it goes clockwise."""
    if not len(ring):
        return 0.0
    x, y = (ring - ring.mean(axis=0)).T
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum()) / 2.0


def _covered(rings: list[FloatArray], rows: int, columns: int) -> FloatArray:
    """(rows, columns): how often each unit square is surrounded by rings, on average over its area.

    An edge that goes up by dy within one square takes dy from all squares east of it in its row, and from
    its own what lies east of it: with x its mean place in the square, dy·(1 − x).
    """
    changes = np.zeros((rows, columns + 1))
    if not rings:
        return changes[:, :-1]
    start = np.concatenate(rings)
    end = np.concatenate([np.roll(ring, -1, axis=0) for ring in rings])
    start, end = _between_rows(start, end, rows)
    edge, at = _crossings(start, end, columns)
    order = np.lexsort((at, edge))
    edge, at = edge[order], at[order]
    same = edge[1:] == edge[:-1]  # one edge's pieces, from each crossing to the next
    edge, begin, finish = edge[:-1][same], at[:-1][same], at[1:][same]
    away = end[edge] - start[edge]
    middle = start[edge] + ((begin + finish) / 2.0)[:, None] * away
    rises = (finish - begin) * away[:, 1]
    row = np.clip(np.floor(middle[:, 1]).astype(np.int64), 0, rows - 1)
    x = np.clip(middle[:, 0], 0.0, float(columns))
    column = np.minimum(np.floor(x).astype(np.int64), columns)
    own = np.where(column < columns, column + 1.0 - x, 1.0)
    np.subtract.at(changes, (row, column), rises * own)
    np.subtract.at(changes, (row, np.minimum(column + 1, columns)), rises * (1.0 - own))
    return np.cumsum(changes, axis=1)[:, :-1]


def _between_rows(start: FloatArray, end: FloatArray, rows: int) -> tuple[FloatArray, FloatArray]:
    """The parts of edges at heights from 0 to ``rows``; level ones are left out."""
    low, high = np.minimum(start[:, 1], end[:, 1]), np.maximum(start[:, 1], end[:, 1])
    steep = (high > low) & (high > 0.0) & (low < rows)
    start, end = start[steep], end[steep]
    away = end - start
    first, last = (
        np.clip((np.clip(place[:, 1], 0.0, rows) - start[:, 1]) / away[:, 1], 0.0, 1.0)
        for place in (start, end)
    )
    return start + first[:, None] * away, start + last[:, None] * away


def _crossings(start: FloatArray, end: FloatArray, columns: int) -> tuple[IntArray, FloatArray]:
    """Where edges begin, end and cross the lines between squares: which edge, and which part of it."""
    number = np.arange(len(start))
    edges, places = [number, number], [np.zeros(len(start)), np.ones(len(start))]
    for axis, bounds in ((0, (-1.0, float(columns))), (1, (-np.inf, np.inf))):
        low = np.clip(np.minimum(start[:, axis], end[:, axis]), *bounds)
        high = np.clip(np.maximum(start[:, axis], end[:, axis]), *bounds)
        first = np.floor(low).astype(np.int64) + 1
        lines = np.maximum(np.ceil(high).astype(np.int64) - first, 0)
        if axis == 0:  # an edge that leaves to the east crosses the last line too
            lines += (np.maximum(start[:, 0], end[:, 0]) > columns) & (low < columns)
        _check_pieces(int(lines.sum()))
        edge, line = ragged(lines)
        away = end[edge, axis] - start[edge, axis]
        edges.append(edge)
        places.append(np.clip((first[edge] + line - start[edge, axis]) / away, 0.0, 1.0))
    return np.concatenate(edges), np.concatenate(places)


def _check_pieces(pieces: int) -> None:
    if pieces > _MOST_PIECES:
        raise TooLarge(
            f"the edges of an area ({pieces:,} pieces) must be at most {_MOST_PIECES:,}; simplify it"
        )
