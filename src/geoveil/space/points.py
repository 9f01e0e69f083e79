"""Points: places of interest, the nearest one standing for wherever a person is; and hexagons of H3."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, count, frozen, positive
from geoveil.errors import InvalidFile, InvalidInput, TooLarge, Unsupported, require
from geoveil.space.box import Box, feature_collection
from geoveil.space.outline import area_of, read_outlines
from geoveil.space.projection import Degrees, TangentPlane, coordinates, plane_coordinates, wrapped
from geoveil.space.space import MapSpace, Space, entries, kind_of

if TYPE_CHECKING:
    from types import ModuleType

_FARTHEST_KM = 1e9
_CORNER = math.sqrt(2.0 / (3.0 * math.sqrt(3.0)))
"""How far from the middle the corners of a hexagon of area 1 are."""
_SPREAD = math.sqrt(5.0 / 12.0) * _CORNER
"""How far from the middle three places stand for a hexagon of area 1: its second moments are theirs."""
_CORNERS = 24
"""Corners of the polygon that stands for the round cell around a place."""


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
        places = Points(xy_km=points * (cell_km / step))
        lat, lng = plane.to_latlng(places.centres)
        places._degrees, places._plane = (frozen(lat), frozen(lng)), plane
        places.around, places.step = around, step
        vars(places)["cell_km"] = cell_km
        return places

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
        return _SPREAD * _turned(self._first_turn, 3) if self.around else np.zeros((1, 2))

    @property
    def seven_in_a_cell(self) -> FloatArray:
        """(7, 2): the middle of a cell and six places around it, in cells, which have the spread of the three
        together: where people of a cell may stand."""
        ring = math.sqrt(7.0 / 6.0) * _SPREAD * _turned(self._first_turn, 6)
        return np.concatenate((np.zeros((1, 2)), ring))

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
        return list(self.centres[:, None] + radius_km * _turned(0.0, _CORNERS))

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


_FINEST = 15
_MOST = 1 << 16
"""Hexagons, at most."""


class Hexagons(Points):
    """The H3 cells that overlap an area, such as city limits; cell i is the i-th of ``ids``, in their order.

    H3 hexagons are no exact lattice on the ground, so that mechanisms take them as a list of places, their
    centres, around which people stand in hexagons. Needs the extra ``h3``; devices do not.

    Units: kilometres, degrees. ``cell_km`` is the side of a square of their mean area.
    Cost: locating asks H3 place by place.
    """

    def __init__(self, area: Any, *, resolution: int) -> None:
        h3 = _h3()
        fine = count("resolution", resolution, least=0, most=_FINEST)
        shapes = [
            h3.LatLngPoly(*([(lat, lng) for lng, lat in ring.tolist()] for ring in polygon))
            for outline in read_outlines(area)
            for polygon in outline.polygons
        ]
        # From coarse to fine, since H3 cannot be stopped: a cell lies in at most three coarser ones, so
        # that more than three times as many of these are too many already.
        for coarse in range(fine + 1):
            ids: set[str] = set()
            for shape in shapes:
                ids |= set(h3.h3shape_to_cells_experimental(shape, coarse, contain="overlap"))
                if len(ids) > (_MOST if coarse == fine else 3 * _MOST):
                    raise TooLarge(
                        f"the area must have at most {_MOST:,} hexagons; choose a lower resolution"
                    )
        self._lay(sorted(ids))

    @classmethod
    def of_ids(cls, ids: Iterable[str]) -> Hexagons:
        """Cells by their H3 ids, all of one resolution."""
        hexagons = cls.__new__(cls)
        hexagons._lay(list(ids))
        return hexagons

    def _lay(self, ids: list[str]) -> None:
        h3 = _h3()
        if not ids or not all(h3.is_valid_cell(str(cell)) for cell in ids):
            raise InvalidInput("hexagons must be ids of H3 cells, and at least one")
        if len({h3.get_resolution(cell) for cell in ids}) > 1 or len(set(ids)) < len(ids):
            raise InvalidInput("hexagons must be of one resolution, each once")
        self.ids = tuple(ids)
        lat, lng = np.array([h3.cell_to_latlng(cell) for cell in ids]).T
        super().__init__(lat=lat, lng=lng)
        self.around = True

    @property
    def resolution(self) -> int:
        """The resolution of H3, 0 to 15."""
        return int(_h3().get_resolution(self.ids[0]))

    @cached_property
    def boundaries_km(self) -> list[FloatArray]:
        """(corners, 2) of each, in the plane; a few cells of H3 have others than six."""
        corners = [np.array(_h3().cell_to_boundary(cell)) for cell in self.ids]
        return [self.plane.to_plane(lat=ring[:, 0], lng=ring[:, 1]) for ring in corners]

    @cached_property
    def cell_km(self) -> float:
        """The side of a square of their mean area."""
        return math.sqrt(float(self.areas_km2.mean()))

    @property
    def areas_km2(self) -> FloatArray:
        """(size,): the area of each."""
        return np.array([abs(area_of(corners)) for corners in self.boundaries_km])

    @property
    def _first_turn(self) -> float:
        away = self.boundaries_km[0][0] - self.centres[0]
        return math.atan2(away[1], away[0])

    def somewhere_km(self, cells: IntArray, uniform: FloatArray) -> FloatArray:
        """(k, 2): a place in each cell, even over its area, from two even numbers (k, 2), from its centre."""
        places = np.empty((cells.size, 2))
        for cell in np.unique(cells).tolist():
            here = np.flatnonzero(cells == cell)
            corners = self.boundaries_km[cell] - self.centres[cell]
            after = np.roll(corners, -1, axis=0)
            parts = np.abs(corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0])
            ends = np.cumsum(parts) / parts.sum()
            side = np.minimum(np.searchsorted(ends, uniform[here, 0], side="right"), len(parts) - 1)
            begin = np.concatenate(([0.0], ends))[side]
            along = (uniform[here, 0] - begin) / (ends[side] - begin)  # even again
            out = np.sqrt(uniform[here, 1])
            edge = corners[side] + along[:, None] * (after[side] - corners[side])
            places[here] = out[:, None] * edge
        return places

    def _nearest(self, east: FloatArray, north: FloatArray) -> IntArray:
        nearest = super()._nearest(east, north)
        numbers = {cell: number for number, cell in enumerate(self.ids)}
        away = np.hypot(east - self.centres[nearest, 0], north - self.centres[nearest, 1])
        signed = ~nearest
        close = np.flatnonzero(away <= 2.0 * self.cell_km)
        lat, lng = self.plane.to_latlng(np.stack([east[close], north[close]], axis=-1))
        fine, ask = self.resolution, _h3().latlng_to_cell
        for at, place in zip(close, zip(lat, lng, strict=True), strict=True):
            signed[at] = numbers.get(ask(*place, fine), signed[at])
        return signed

    def to_geojson(self, properties: Mapping[str, ArrayLike] | None = None) -> dict[str, Any]:
        """The hexagons as a GeoJSON FeatureCollection, with one value per cell for each property."""
        shapes = (_h3().cells_to_geo([cell]) for cell in self.ids)
        return feature_collection(shapes, self.size, properties)

    def middles_to_geojson(self) -> dict[str, Any]:
        """The middles of the hexagons as points, each with its area and its H3 id, for the service."""
        said = {"area_km2": self.areas_km2, "h3": np.array(self.ids)}
        return Points.to_geojson(self, said)

    def to_dict(self) -> dict[str, Any]:
        """Kind, and the ids of the cells."""
        return {"kind": "hexagons", "ids": list(self.ids)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Hexagons:
        (ids,) = entries(values, "hexagons", "ids")
        if not isinstance(ids, list):
            raise InvalidFile("ids must be a list of H3 ids")
        return cls.of_ids(ids)

    def __repr__(self) -> str:
        return f"Hexagons({self.size} of resolution {self.resolution}, {self.cell_km:.3g} km wide)"


def _h3() -> ModuleType:
    require("h3", "h3", "hexagons")
    import h3

    return h3
