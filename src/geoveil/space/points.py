"""Points: places of interest, the nearest one standing for wherever a person is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, frozen, positive
from geoveil.errors import InvalidInput, Unsupported
from geoveil.space.box import Box, feature_collection
from geoveil.space.projection import Degrees, TangentPlane, coordinates, plane_coordinates, wrapped
from geoveil.space.space import MapSpace, Space, entries, kind_of

_FARTHEST_KM = 1e9
_CORNER = math.sqrt(2.0 / (3.0 * math.sqrt(3.0)))
"""How far from the middle the corners of a hexagon of area 1 are."""
_SPREAD = math.sqrt(5.0 / 12.0) * _CORNER
"""How far from the middle three places stand for a hexagon of area 1: its second moments are theirs."""
_CORNERS = 24
"""Of the shape that is taken for the round cell around a place."""


class Points(MapSpace):
    """Places of interest with the distances between them; cell i is the i-th place.

    ``Points(lat=, lng=)`` lies on the tangent plane at the centre of the places' bounding box,
    within the limits of :class:`~geoveil.space.box.Box`; ``Points(xy_km=)`` has plane coordinates
    only. No two places may be the same, or the distance would be no metric.

    Units: kilometres, degrees. Cost: locating n points among m places is O(n log m) (a k-d tree).
    A person is taken to be at a place: whoever is elsewhere moves to the nearest, however far. With
    ``cell_km`` a place is the middle of a cell instead, as large as a square of that side, and people stand
    evenly around it; so are hexagons given by their centres.

    >>> places = Points(lat=[48.8584, 48.8606], lng=[2.2945, 2.3376])
    >>> places.distance_km(0, 1).round(2).item()
    3.17
    >>> places.locate(lat=48.86, lng=2.33)
    1
    """

    def __init__(
        self,
        *,
        lat: ArrayLike | None = None,
        lng: Degrees = None,
        lon: Degrees = None,
        xy_km: ArrayLike | None = None,
        cell_km: float | None = None,
    ) -> None:
        if (lat is None) == (xy_km is None) or (lat is None) != (lng is None and lon is None):
            raise InvalidInput("places must be given as lat and lng, or as xy_km, and not as both")
        self._degrees: tuple[FloatArray, FloatArray] | None = None
        if lat is not None:
            latitude, longitude = coordinates(lat=lat, lng=lng, lon=lon)
            self._degrees = frozen(latitude.copy()), frozen(np.array(wrapped(longitude)))
            self._plane = Box.around(lat=latitude, lng=longitude).plane
            xy_km = self._plane.to_plane(lat=latitude, lng=longitude)
        self.centres = frozen(_distinct(xy_km))
        self.size = len(self.centres)
        self.around = cell_km is not None
        """Whether people stand around a place, in its cell, and not at it."""
        self.step: int | None = None
        """How many steps of the lattice that the places lie on make a cell; ``None`` without one."""
        if cell_km is not None:
            vars(self)["cell_km"] = positive("cell_km", cell_km)

    @classmethod
    def on_lattice(
        cls, plane: TangentPlane, points: IntArray, *, step: int, cell_km: float, around: bool
    ) -> Points:
        """Places on a lattice in a plane of the map, as a document has them: ``step`` steps make a cell."""
        made = Points(xy_km=points * (cell_km / step))
        lat, lng = plane.to_latlng(made.centres)
        made._degrees, made._plane = (frozen(lat), frozen(lng)), plane
        made.around, made.step = around, step
        vars(made)["cell_km"] = cell_km
        return made

    @property
    def plane(self) -> TangentPlane:
        """The tangent plane at the centre of the places; places in plane coordinates have none."""
        if self._degrees is None:
            raise Unsupported(
                "places given as xy_km have no coordinates in degrees; give lat and lng, "
                "or use locate_km"
            )
        return self._plane

    def centres_latlng(self) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of the places, as given."""
        return self._degrees or super().centres_latlng()  # the latter refuses

    @cached_property
    def cell_km(self) -> float:
        """How far apart places are: the side of a square if the rectangle around them were shared evenly;
        a kilometre where there is one place only."""
        if self.size == 1:
            return 1.0
        width, height = np.ptp(self.centres, axis=0).tolist()
        return max(math.sqrt(width * height / self.size), max(width, height) / self.size)

    @property
    def standing(self) -> FloatArray:
        """(any, 2): where people of a place stand, in cells from it: at it, or three places around it."""
        return self._around(self._first_turn) if self.around else np.zeros((1, 2))

    @property
    def all_over(self) -> tuple[FloatArray, FloatArray]:
        """(k, 2) and (k,): places all over a cell, in cells from its middle, with shares; or the middle.

        Four in each triangle between the middle and a side of a hexagon: means of distances from the
        middle, which have a cusp there, are right to two thousandths.
        """
        if not self.around:
            return np.zeros((1, 2)), np.ones(1)
        corners = _CORNER * _turned(self._first_turn, 6)
        sides = np.roll(corners, -1, axis=0) - corners
        along = 0.5 + np.array((-1.0, 1.0)) / math.sqrt(12.0)
        edge = (corners[:, None] + along[:, None] * sides[:, None]).reshape(-1, 2)
        out = (6.0 + np.array((-1.0, 1.0)) * math.sqrt(6.0)) / 10.0
        shares = (9.0 + np.array((-1.0, 1.0)) * math.sqrt(6.0)) / (18.0 * len(edge))
        return (out[:, None, None] * edge).reshape(-1, 2), np.repeat(shares, len(edge))

    @property
    def _first_turn(self) -> float:
        """Where the first corner of a cell is, as an angle from the east."""
        return 0.0

    @staticmethod
    def _around(turned: float) -> FloatArray:
        """Three places that stand for all in a cell, in cells from its middle."""
        return _SPREAD * _turned(turned, 3)

    def somewhere_km(self, cells: IntArray, uniform: FloatArray) -> FloatArray:
        """(k, 2): where somebody of each cell stands, from its centre; from two even numbers (k, 2)."""
        if not self.around:
            return np.zeros((cells.size, 2))
        away, turn = np.sqrt(uniform[:, 0] / math.pi) * self.cell_km, 2.0 * math.pi * uniform[:, 1]
        return np.stack([away * np.cos(turn), away * np.sin(turn)], axis=-1)

    @property
    def boundaries_km(self) -> list[FloatArray]:
        """(corners, 2) of the cell around each place, in the plane: round, of the area of a cell."""
        part = 2.0 * math.pi / _CORNERS
        radius_km = self.cell_km / math.sqrt(_CORNERS / 2.0 * math.sin(part))
        turns = part * np.arange(_CORNERS)
        ring = radius_km * np.stack([np.cos(turns), np.sin(turns)], axis=-1)
        return list(self.centres[:, None] + ring)

    def _nearest(self, east: FloatArray, north: FloatArray) -> IntArray:
        # squared distances overflow for what lies beyond
        reachable = np.clip(np.stack([east, north], axis=-1), -_FARTHEST_KM, _FARTHEST_KM)
        _, nearest = self._tree.query(reachable)
        return np.asarray(nearest, dtype=np.int64)

    def to_geojson(self, properties: Mapping[str, ArrayLike] | None = None) -> dict[str, Any]:
        """The places as a GeoJSON FeatureCollection of points, with one value each per property."""
        lat, lng = self.centres_latlng()
        places = np.stack([lng, lat], axis=-1).tolist()
        geometries = ({"type": "Point", "coordinates": place} for place in places)
        return feature_collection(geometries, self.size, properties)

    def to_dict(self) -> dict[str, Any]:
        """Kind, and the places: lat and lng, or xy_km; the side of a cell where people stand around them."""
        size = {"cell_km": self.cell_km} if self.around else {}
        if self._degrees is None:
            return {"kind": "points", "xy_km": self.centres.tolist(), **size}
        lat, lng = self._degrees
        return {"kind": "points", "lat": lat.tolist(), "lng": lng.tolist(), **size}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Points:
        """The places that ``to_dict`` described."""
        in_plane = kind_of(values) == "points" and "xy_km" in values
        names: tuple[str, ...] = ("xy_km",) if in_plane else ("lat", "lng")
        if kind_of(values) == "points" and "cell_km" in values:
            names = (*names, "cell_km")
        return cls(**dict(zip(names, entries(values, "points", *names), strict=True)))

    def __repr__(self) -> str:
        around = f", cell_km={self.cell_km:.3g}" if self.around else ""
        return f"Points(size={self.size}{around})"


def _turned(first: float, number: int) -> FloatArray:
    """(number, 2): so many directions all around, from an angle on."""
    turns = first + np.arange(number) * 2.0 * math.pi / number
    return np.stack([np.cos(turns), np.sin(turns)], axis=-1)


def at_places(space: Space) -> bool:
    """Whether people stand at places that have no cells around them."""
    return isinstance(space, Points) and not space.around


def _distinct(xy_km: Any) -> FloatArray:
    """A list of places (size, 2), none given twice."""
    centres = np.array(plane_coordinates("places", xy_km))
    if centres.ndim != 2 or len(centres) == 0:
        raise InvalidInput(f"places (shape {centres.shape[:-1]}) must be a list of at least one")
    if np.abs(centres).max() > _FARTHEST_KM:
        raise InvalidInput(f"places must lie within {_FARTHEST_KM:g} km of the origin")
    order = np.lexsort(centres.T)
    same = (centres[order[1:]] == centres[order[:-1]]).all(axis=1)
    if same.any():
        first = int(np.flatnonzero(same)[0])
        one, other = sorted(order[first : first + 2].tolist())
        raise InvalidInput(f"places must differ; those at positions {one} and {other} are the same")
    return centres
