"""A box of latitudes and longitudes, and cells as GeoJSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, by_position, finite
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.space.projection import Degrees, TangentPlane, coordinates, wrapped

REACH_KM = 500.0
"""How far a flat map may reach from its centre: there it still keeps 0.996 of a distance."""
_POLE_MARGIN = 0.05
_WIDEST = 90.0
_SHORTEST_DEGREE_KM = 110.574  # of a meridian, at the equator
_EQUATOR_DEGREE_KM = 111.319
_EDGES = ("south", "west", "north", "east")


@dataclass(frozen=True, kw_only=True)
class Box:
    """All places between two parallels and two meridians; ``west > east`` crosses ±180°.

    Refused where one tangent plane is no sound map: within 0.05° of a pole, wider than 90° of
    longitude, or reaching more than 500 km from the centre. Iterates as south, west, north, east.
    """

    south: float
    west: float
    north: float
    east: float

    def __post_init__(self) -> None:
        edges = {name: finite(name, getattr(self, name)) for name in _EDGES}
        turn = edges["east"] - edges["west"]
        for name, edge in edges.items():
            turned = name in ("west", "east") and edge != 180.0
            object.__setattr__(self, name, float(wrapped(edge)) if turned else edge)
        for name in ("south", "north"):
            if abs(edges[name]) > 90.0:
                raise InvalidInput(f"{name} ({edges[name]:g}) must lie in -90 … 90 degrees")
        if self.south > self.north:
            raise InvalidInput(
                f"south ({self.south:g}) must be below north ({self.north:g}); swap them"
            )
        # no edges in what follows: a box drawn around data ends at somebody's place
        if self.north > 90.0 - _POLE_MARGIN or self.south < _POLE_MARGIN - 90.0:
            raise InvalidInput(
                f"the box must stay {_POLE_MARGIN}° away from the poles, where rows and columns "
                "have no meaning; choose a smaller box"
            )
        _check_width(turn if turn >= 360.0 else self.width)  # a turn would be wrapped to 0
        west, south, east, north = self.rectangle_km
        check_reach("the box", east - west, north - south)

    @classmethod
    def around(cls, *, lat: ArrayLike, lng: Degrees = None, lon: Degrees = None) -> Box:
        """The smallest box that holds all places; in longitude the smallest covering arc."""
        latitude, longitude = coordinates(lat=lat, lng=lng, lon=lon)
        if latitude.size == 0:
            raise InvalidInput("lat and lng (empty) must hold at least one place")
        west, east = _covering_arc(wrapped(longitude.ravel()))
        south, north = float(latitude.min()), float(latitude.max())
        return cls(south=south, west=west, north=north, east=east)

    @classmethod
    def from_list(cls, edges: Any) -> Box:
        """The box of a list [south, west, north, east]."""
        if not isinstance(edges, list | tuple) or len(edges) != 4:
            raise InvalidFile("box must be a list [south, west, north, east] in degrees")
        return cls(**dict(zip(_EDGES, edges, strict=True)))

    def widened(self, margin_km: float, *, least_km: float = 0.0) -> Box:
        """The box with at least ``margin_km`` more on every side; a flat one gains ``least_km``.

        Degrees are taken at their shortest, so that the margin is never less on the ground.
        """
        height = margin_km + (0.45 * least_km if self.south == self.north else 0.0)
        width = margin_km + (0.45 * least_km if self.west == self.east else 0.0)
        rise = height / _SHORTEST_DEGREE_KM
        poleward = min(max(abs(self.south), abs(self.north)) + rise, 90.0 - _POLE_MARGIN)
        turn = width / (_EQUATOR_DEGREE_KM * np.cos(np.deg2rad(poleward)))
        _check_width(self.width + 2.0 * turn)  # before the edges are wrapped
        return Box(
            south=max(self.south - rise, -90.0),
            west=self.west - turn,
            north=min(self.north + rise, 90.0),
            east=self.east + turn,
        )

    def __iter__(self) -> Iterator[float]:
        return iter((self.south, self.west, self.north, self.east))

    @property
    def width(self) -> float:
        """Degrees of longitude from west to east."""
        turn = self.east - self.west
        return turn if turn >= 0.0 else turn + 360.0

    @cached_property
    def plane(self) -> TangentPlane:
        """The tangent plane at the centre."""
        middle = (self.south + self.north) / 2.0
        return TangentPlane(lat=middle, lng=self.west + self.width / 2.0)

    @cached_property
    def rectangle_km(self) -> tuple[float, float, float, float]:
        """West, south, east and north of the bounding rectangle in the plane.

        Along a parallel north is monotone on each side of the central meridian, along a meridian
        east is monotone on each side of the equator: corners, middles and equator are extreme.
        """
        nearest_equator = min(max(0.0, self.south), self.north)
        lat = np.repeat([self.south, nearest_equator, self.north], 3)
        lng = np.tile([self.west, self.plane.lng, self.east], 3)
        xy = self.plane.to_plane(lat=lat, lng=lng)
        (west, south), (east, north) = xy.min(axis=0), xy.max(axis=0)
        return float(west), float(south), float(east), float(north)


def _check_width(degrees: float) -> None:
    if not degrees <= _WIDEST:
        raise InvalidInput(
            f"the box ({degrees:.4g}° of longitude) must be at most {_WIDEST:g}° wide for one flat "
            "map; check west and east, or choose a smaller box"
        )


def check_reach(what: str, width_km: float, height_km: float) -> None:
    """Refuse a map that reaches farther from its centre than a plane is true to the globe."""
    reach = float(np.hypot(width_km, height_km)) / 2.0
    if not reach <= REACH_KM:
        raise InvalidInput(
            f"{what} ({reach:.4g} km from centre to corner) must reach at most {REACH_KM:g} km, "
            "where a flat map is sound; choose a smaller box or cell"
        )


def _covering_arc(lng: FloatArray) -> tuple[float, float]:
    """West and east of the shortest arc through all longitudes: all but the widest gap."""
    west, east = float(lng.min()), float(lng.max())
    if east - west <= 180.0:
        return west, east
    ordered = np.unique(lng)
    gaps = np.append(ordered[1:], ordered[0] + 360.0) - ordered
    widest = int(np.argmax(gaps))
    return float(ordered[(widest + 1) % ordered.size]), float(ordered[widest])


# --- Cells and places as GeoJSON (RFC 7946): longitude first, counter-clockwise, cut at ±180°


Ring = list[list[float]]
Geometry = dict[str, Any]


def feature_collection(
    geometries: Iterable[Geometry], size: int, properties: Mapping[str, ArrayLike] | None
) -> dict[str, Any]:
    """One feature per cell: ``id`` and property ``cell`` its number, and one value per property.

    Numbers that are not finite become ``null``, since JSON has no others.
    """
    columns: dict[str, list[Any]] = {"cell": list(range(size))}
    for name, value in (properties or {}).items():
        array = np.asarray(by_position(f"property {name!r}", value))
        if array.shape != (size,):
            raise InvalidInput(
                f"property {name!r} (shape {array.shape}) must have {size} entries, one per cell"
            )
        gaps = ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros(size, dtype=np.bool_)
        columns[name] = [None if gap else v for gap, v in zip(gaps, array.tolist(), strict=True)]
    features = [
        {
            "type": "Feature",
            "id": cell,
            "geometry": geometry,
            "properties": {name: column[cell] for name, column in columns.items()},
        }
        for cell, geometry in enumerate(geometries)
    ]
    return {"type": "FeatureCollection", "features": features}


def cell_polygons(
    lat: FloatArray, lng: FloatArray, cells: IntArray | None = None
) -> Iterable[Geometry]:
    """The cells, or some of them, between lattice corners given as (rows + 1, columns + 1) arrays.

    ``lng`` runs on beyond ±180 where the lattice crosses it; cells that cross are cut in two.
    """
    corners = np.stack([lng, lat], axis=-1)
    rings = np.stack(
        [corners[:-1, :-1], corners[:-1, 1:], corners[1:, 1:], corners[1:, :-1], corners[:-1, :-1]],
        axis=2,
    ).reshape(-1, 5, 2)
    return (_polygon(ring) for ring in rings[slice(None) if cells is None else cells].tolist())


def _polygon(ring: Ring) -> Geometry:
    longitudes = [position[0] for position in ring]
    for edge in (-180.0, 180.0):
        if min(longitudes) < edge < max(longitudes):
            parts = [_half(ring, edge, -1.0), _half(ring, edge, 1.0)]
            return {"type": "MultiPolygon", "coordinates": [[_turned(part)] for part in parts]}
    return {"type": "Polygon", "coordinates": [_turned(ring)]}


def _half(ring: Ring, edge: float, side: float) -> Ring:
    """The part of a closed ring on one side of a meridian (Sutherland and Hodgman's clipping)."""
    clipped: Ring = []
    for start, end in pairwise(ring):
        if side * (start[0] - edge) >= 0.0:
            clipped.append(start)
        if (start[0] - edge) * (end[0] - edge) < 0.0:
            share = (edge - start[0]) / (end[0] - start[0])
            clipped.append([edge, start[1] + share * (end[1] - start[1])])
    return [*clipped, clipped[0]]


def _turned(ring: Ring) -> Ring:
    """The ring with longitudes in −180 … 180, moved as a whole."""
    middle = (min(lng for lng, _ in ring) + max(lng for lng, _ in ring)) / 2.0
    turn = -360.0 if middle > 180.0 else 360.0 if middle < -180.0 else 0.0
    return [[lng + turn, lat] for lng, lat in ring]
