"""Hexagons: the cells of H3 over an area, with centres and distances of ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, count
from geoveil.errors import InvalidFile, InvalidInput, TooLarge, require
from geoveil.space.box import feature_collection
from geoveil.space.outline import area_of, read_outlines
from geoveil.space.points import Points
from geoveil.space.space import entries

if TYPE_CHECKING:
    from types import ModuleType

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
        fine = count("resolution", resolution, least=0)
        if fine > _FINEST:
            raise InvalidInput(f"resolution ({fine}) must be at most {_FINEST}")
        shapes = [
            h3.LatLngPoly(*([(lat, lng) for lng, lat in ring.tolist()] for ring in polygon))
            for outline in read_outlines(area)
            for polygon in outline.polygons
        ]
        # From coarse to fine, since H3 cannot be stopped: a cell lies in at most three coarser ones, so
        # that more than three times as many of these are too many already.
        for coarse in range(fine + 1):
            found: set[str] = set()
            for shape in shapes:
                found |= set(h3.h3shape_to_cells_experimental(shape, coarse, contain="overlap"))
                if len(found) > (_MOST if coarse == fine else 3 * _MOST):
                    raise TooLarge(
                        f"the area must have at most {_MOST:,} hexagons; choose a lower resolution"
                    )
        self._lay(sorted(found))

    @classmethod
    def of_ids(cls, ids: Iterable[str]) -> Hexagons:
        """Cells by their H3 ids, all of one resolution."""
        made = cls.__new__(cls)
        made._lay(list(ids))
        return made

    def _lay(self, ids: list[str]) -> None:
        h3 = _h3()
        if not ids or not all(h3.is_valid_cell(str(each)) for each in ids):
            raise InvalidInput("hexagons must be ids of H3 cells, and at least one")
        if len({h3.get_resolution(each) for each in ids}) > 1 or len(set(ids)) < len(ids):
            raise InvalidInput("hexagons must be of one resolution, each once")
        self.ids = tuple(ids)
        lat, lng = np.array([h3.cell_to_latlng(each) for each in ids]).T
        super().__init__(lat=lat, lng=lng)
        self.around = True

    @property
    def resolution(self) -> int:
        """That of H3, 0 to 15."""
        return int(_h3().get_resolution(self.ids[0]))

    @cached_property
    def boundaries_km(self) -> list[FloatArray]:
        """(corners, 2) of each, in the plane; a few cells of H3 have others than six."""
        corners = [np.array(_h3().cell_to_boundary(each)) for each in self.ids]
        return [self.plane.to_plane(lat=each[:, 0], lng=each[:, 1]) for each in corners]

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
        known = {each: number for number, each in enumerate(self.ids)}
        reach = 2.0 * self.cell_km
        away = np.hypot(east - self.centres[nearest, 0], north - self.centres[nearest, 1])
        signed = ~nearest
        close = np.flatnonzero(away <= reach)
        if close.size:
            lat, lng = self.plane.to_latlng(np.stack([east[close], north[close]], axis=-1))
            fine, ask = self.resolution, _h3().latlng_to_cell
            cells = [known.get(ask(*place, fine), -1) for place in zip(lat, lng, strict=True)]
            found = np.array(cells)
            signed[close[found >= 0]] = found[found >= 0]
        return signed

    def to_geojson(self, properties: Mapping[str, ArrayLike] | None = None) -> dict[str, Any]:
        """The hexagons as a GeoJSON FeatureCollection, with one value per cell for each property."""
        h3 = _h3()
        shapes = (h3.cells_to_geo([each]) for each in self.ids)
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
        """The hexagons that ``to_dict`` described."""
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
