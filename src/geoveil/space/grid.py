"""A grid of square cells, over a box of the map or in the abstract."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, FloatArray, IntArray, count, frozen, indices, positive
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.space.box import Box, cell_polygons, check_reach, feature_collection
from geoveil.space.outside import Outside, check_outside, elsewhere, settle
from geoveil.space.projection import Places, TangentPlane, coordinates, either_longitude
from geoveil.space.space import Space, entries

CELL_LIMIT = 10**8
"""No grid has more cells than this."""
SLACK = 0.01
"""A place at most this part of a cell off the lattice counts as inside."""


@dataclass(frozen=True)
class Lattice:
    """``rows`` × ``columns`` squares of side ``cell_km``, ``corner_km`` being their south-west."""

    rows: int
    columns: int
    cell_km: float
    corner_km: tuple[float, float]

    def nearest(self, east: FloatArray, north: FloatArray) -> IntArray:
        """The nearest cell: on a rectangle of squares, both coordinates clamped."""
        row = self._step(north - self.corner_km[1], self.rows)
        return row * self.columns + self._step(east - self.corner_km[0], self.columns)

    def _step(self, offset: FloatArray, cells: int) -> IntArray:
        # clipped before the division, so that nothing overflows
        steps = np.clip(offset, 0.0, cells * self.cell_km) / self.cell_km
        return np.minimum(steps.astype(np.int64), cells - 1)

    def nearest_or_outside(self, east: FloatArray, north: FloatArray) -> IntArray:
        """The nearest cell n, or −1 − n of a place that lies outside."""
        cells = self.nearest(east, north)
        return np.where(self.contains(east, north), cells, ~cells)

    def contains(self, east: FloatArray, north: FloatArray) -> BoolArray:
        """Which places lie on the lattice, up to the slack."""
        slack = SLACK * self.cell_km
        x, y = east - self.corner_km[0], north - self.corner_km[1]
        in_columns = (x >= -slack) & (x <= self.columns * self.cell_km + slack)
        return in_columns & (y >= -slack) & (y <= self.rows * self.cell_km + slack)

    def centres(self) -> FloatArray:
        """(rows, columns, 2): the centres of the cells."""
        return self._mesh(np.arange(0.5, self.columns), np.arange(0.5, self.rows))

    def corners(self) -> FloatArray:
        """(rows + 1, columns + 1, 2): the corners of the cells."""
        return self._mesh(np.arange(self.columns + 1.0), np.arange(self.rows + 1.0))

    def _mesh(self, x: FloatArray, y: FloatArray) -> FloatArray:
        mesh = np.empty((y.size, x.size, 2))
        mesh[..., 0] = self.corner_km[0] + x * self.cell_km
        mesh[..., 1] = (self.corner_km[1] + y * self.cell_km)[:, None]
        return mesh

    def distance_km(self, rows: npt.ArrayLike, columns: npt.ArrayLike) -> FloatArray:
        """The distance at an offset; equal offsets, up to sign, have exactly equal distances."""
        north = self.cell_km * np.asarray(rows)
        east = self.cell_km * np.asarray(columns)
        distance: FloatArray = np.hypot(north, east)
        return distance

    def distances_km(self) -> FloatArray:
        """The matrix of distances: for each cell the window of one table of all offsets."""
        rows, columns = self.rows, self.columns
        along, across = np.arange(1 - rows, rows), np.arange(1 - columns, columns)
        table = self.distance_km(along[:, None], across)
        windows = np.lib.stride_tricks.sliding_window_view(table, (rows, columns))
        return windows[::-1, ::-1].reshape(rows * columns, rows * columns)


def side_km(value: Any) -> float:
    """A side whose multiples and squares neither vanish nor overflow."""
    cell = positive("cell_km", value)
    if not 1e-9 <= cell <= 1e9:
        raise InvalidInput(f"cell_km ({cell:g}) must lie in 1e-9 … 1e9")
    return cell


def check_cell_count(rows: float, columns: float) -> None:
    """Refuse more cells than any grid may have."""
    rows, columns = (min(max(cells, 1.0), 1e100) for cells in (rows, columns))
    if rows * columns > CELL_LIMIT:
        raise TooLarge(
            f"the grid ({rows:.4g} × {columns:.4g} cells) must have at most {CELL_LIMIT:,} cells; "
            "choose larger cells or a smaller box"
        )


# --- The grid: a rectangle of square cells, on a map or abstract


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Grid(Space):
    """A rectangle of square cells; cell = row · columns + column, row 0 south, column 0 west.

    ``Grid(rows=, columns=, cell_km=)`` is abstract: distances, no coordinates. ``Grid.from_box``
    lays the cells on the tangent plane at the centre of a lat/lng box, over the bounding rectangle
    of the box (its parallels curve) and centred on it.

    Units: ``cell_km``, ``centres`` and distances in kilometres; latitude and longitude in degrees.
    Cost: locating is linear in the points; centres are made once, on first use.

    >>> paris = Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=0.5)
    >>> paris
    Grid(12 × 16 cells of 0.5 km, lat 48.8286…48.8798, lng 2.2855…2.3909)
    >>> paris.locate(lat=48.8584, lng=2.2945)
    97
    >>> paris.distance_km(0, [1, 16, 17]).round(3).tolist()
    [0.5, 0.5, 0.707]
    """

    rows: int
    columns: int
    cell_km: float
    box: Box | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        rows, columns = count("rows", self.rows), count("columns", self.columns)
        check_cell_count(rows, columns)
        cell_km = side_km(self.cell_km)
        checked = {"rows": rows, "columns": columns, "cell_km": cell_km, "size": rows * columns}
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.box is not None:
            self._check_map(self.box)

    # -- making one ------------------------------------------------------------------------------

    @classmethod
    def from_box(
        cls, *, south: float, west: float, north: float, east: float, cell_km: float
    ) -> Grid:
        """Cover a box in degrees with cells of ``cell_km``; ``west > east`` crosses ±180°.

        Rows are ⌈height / cell − 0.01⌉ and columns likewise, so that a box of whole cells does not
        gain a row by rounding.
        """
        return cls._over(Box(south=south, west=west, north=north, east=east), cell_km)

    @classmethod
    def around(
        cls,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
        cell_km: float,
        margin_cells: int = 0,
    ) -> Grid:
        """The grid over the bounding box of data, with ``margin_cells`` more on every side.

        Without a margin the box ends at the outermost places of the data, and whoever sees the
        grid sees the box: where these are secret, give a box of your own to ``from_box``.
        """
        cell = side_km(cell_km)
        margin = min(count("margin_cells", margin_cells, least=0), CELL_LIMIT)
        box = Box.around(lat=lat, lng=lng, lon=lon)
        return cls._over(box.widened(margin * cell, least_km=cell), cell)

    @classmethod
    def _over(cls, box: Box, cell_km: float) -> Grid:
        cell = side_km(cell_km)
        rows, columns = (math.ceil(cells) for cells in _cells_across(box, cell))
        return cls(rows=rows, columns=columns, cell_km=cell, box=box)

    def _check_map(self, box: Box) -> None:
        """The cells cover the box, none is idle, and the whole lattice lies on a sound map."""
        for cells, across in zip(self.shape, _cells_across(box, self.cell_km), strict=True):
            # another machine's sine may have rounded to the other side of a whole number
            if not -1e-6 <= cells - across <= 1.0 + 1e-6:
                raise InvalidInput(
                    f"rows and columns ({self.rows}, {self.columns}) must be those that cover the "
                    "box; use Grid.from_box"
                )
        check_reach("the grid", self.columns * self.cell_km, self.rows * self.cell_km)
        pole = self.plane.to_plane(lat=math.copysign(90.0, self.plane.lat), lng=0.0)
        if self.inside_km(pole):
            raise InvalidInput("the grid must not reach over a pole; choose a smaller box or cell")

    # -- its shape -------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows, self.columns

    @cached_property
    def lattice(self) -> Lattice:
        """The cells in the plane; those of an abstract grid are centred on (0, 0)."""
        west, south, east, north = self.box.rectangle_km if self.box else (0.0, 0.0, 0.0, 0.0)
        corner = (
            (west + east - self.columns * self.cell_km) / 2.0,
            (south + north - self.rows * self.cell_km) / 2.0,
        )
        return Lattice(self.rows, self.columns, self.cell_km, corner)

    @cached_property
    def centres(self) -> FloatArray:  # type: ignore[override]  # made on first use, then fixed
        """(size, 2): east and north of the centres, in kilometres."""
        made: FloatArray = frozen(self.lattice.centres().reshape(-1, 2))
        return made

    def centres_latlng(self) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of the centres."""
        return self.plane.to_latlng(self.centres)

    @property
    def plane(self) -> TangentPlane:
        """The tangent plane at the centre of the box; an abstract grid has none."""
        if self.box is None:
            raise Unsupported(
                "an abstract grid has no coordinates; build it with Grid.from_box, or use locate_km"
            )
        return self.box.plane

    @property
    def closest_cells(self) -> tuple[int, int] | None:
        """The first two cells, which are neighbours; ``None`` where there is only one."""
        return (0, 1) if self.size > 1 else None

    def distance_km(self, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
        """Distances between the centres of cells ``a`` and ``b`` (arrays broadcast).

        Equal offsets have exactly equal distances, wherever the two cells lie.
        """
        (row_a, column_a), (row_b, column_b) = self.row_column(a), self.row_column(b)
        return self.lattice.distance_km(row_a - row_b, column_a - column_b)

    def distances_km(self) -> FloatArray:
        """The full matrix of distances; refused above 4,096 cells."""
        self.check_matrix("the matrix of distances")
        return self.lattice.distances_km()

    def distances_from_km(self, cell: int) -> FloatArray:
        """Distances from one cell to every cell."""
        row, column = self.row_column(cell)
        rows, columns = np.arange(self.rows) - row, np.arange(self.columns) - column
        return self.lattice.distance_km(rows[:, None], columns).ravel()

    def apart_km(self, distance_km: float) -> FloatArray:
        """How far apart the centres may be of the cells of two people ``distance_km`` apart.

        Cells i rows and j columns apart hold two such people if √(max(i−1, 0)² + max(j−1, 0)²) cells,
        the gap between them, are no more than that: neighbours hold people a step apart. Whoever is
        outside and taken to the nearest cell comes no farther from anybody (clamping to a rectangle).
        """
        reach = distance_km / self.cell_km * (1 + 1e-9)
        down = np.arange(min(self.rows, math.floor(reach) + 2))
        across = np.arange(min(self.columns, math.floor(reach) + 2))
        gap = np.hypot(np.maximum(down - 1, 0)[:, None], np.maximum(across - 1, 0))
        row, column = np.nonzero(gap <= reach)
        return self.lattice.distance_km(row, column)

    # -- cells -----------------------------------------------------------------------------------

    def cell_at(self, row: npt.ArrayLike, column: npt.ArrayLike) -> IntArray:
        """Cells at rows and columns (arrays broadcast)."""
        at_row = indices("row", row, self.rows)
        return at_row * self.columns + indices("column", column, self.columns)

    def row_column(self, cells: npt.ArrayLike) -> tuple[IntArray, IntArray]:
        """Rows and columns of cells."""
        rows, columns = np.divmod(indices("cells", cells, self.size), self.columns)
        return rows, columns

    @overload
    def locate(
        self, *, lat: float, lng: float = ..., lon: float = ..., outside: Outside = ...
    ) -> int: ...
    @overload
    def locate(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike = ...,
        lon: npt.ArrayLike = ...,
        outside: Outside = ...,
    ) -> IntArray: ...
    def locate(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
        outside: Outside = "raise",
    ) -> int | IntArray:
        """Cells of places in degrees: an ``int`` for one place, else an array of the same shape.

        Outside places are refused (``"raise"``), left out (``"drop"``: the cells of the others, flat;
        ``inside`` tells which) or go to the nearest cell (``"clamp"``; all those more than a quarter
        of the globe away to one and the same). A place at most 1 % of a cell off the lattice counts
        as inside, and so does all of the box.
        """
        check_outside(outside)
        latitude, longitude = coordinates(lat=lat, lng=lng, lon=lon)
        cells, inside = self.nearest_cells(lat=latitude, lng=longitude)
        return settle(
            cells,
            inside,
            outside,
            lambda beyond: elsewhere(self, latitude.ravel()[beyond], longitude.ravel()[beyond]),
        )

    def locate_km(self, xy: npt.ArrayLike, *, outside: Outside = "raise") -> int | IntArray:
        """Cells of places (…, 2) in kilometres east and north, the coordinates of ``centres``."""
        check_outside(outside)
        return settle(*self._nearest(Places.in_km(xy)), outside)

    def nearest_cells(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
    ) -> tuple[IntArray, BoolArray]:
        """The nearest cells of places in degrees, and which of the places lie in the grid."""
        return self._nearest(Places.in_degrees(self.plane, lat, either_longitude(lng, lon)))

    def _nearest(self, places: Places) -> tuple[IntArray, BoolArray]:
        # one pass: the cell n of a place outside is written as −1 − n
        signed = places.each(self.lattice.nearest_or_outside, np.int64)
        return np.where(signed < 0, ~signed, signed), signed >= 0

    def inside(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
    ) -> BoolArray:
        """Which places lie in the grid; ``lat[inside]`` are those that ``outside="drop"`` keeps."""
        places = Places.in_degrees(self.plane, lat, either_longitude(lng, lon))
        return places.each(self.lattice.contains, np.bool_)

    def inside_km(self, xy: npt.ArrayLike) -> BoolArray:
        """Which places (…, 2), in kilometres east and north, lie in the grid."""
        return Places.in_km(xy).each(self.lattice.contains, np.bool_)

    # -- documents -------------------------------------------------------------------------------

    def to_geojson(self, properties: Mapping[str, npt.ArrayLike] | None = None) -> dict[str, Any]:
        """The cells as a GeoJSON FeatureCollection, with one value per cell for each property.

        Rings are (lng, lat), counter-clockwise; cells across ±180° are cut there (RFC 7946).
        """
        lat, lng = self.plane.to_latlng(self.lattice.corners())
        turn = np.remainder(lng - self.plane.lng + 180.0, 360.0) - 180.0
        return feature_collection(cell_polygons(lat, self.plane.lng + turn), self.size, properties)

    def to_dict(self) -> dict[str, Any]:
        """Kind, rows, columns, cell_km and box ([south, west, north, east], or null)."""
        shape = {"kind": "grid", "rows": self.rows, "columns": self.columns}
        return {**shape, "cell_km": self.cell_km, "box": list(self.box) if self.box else None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Grid:
        """The grid that ``to_dict`` described."""
        rows, columns, cell_km, box = entries(values, "grid", "rows", "columns", "cell_km", "box")
        edges = None if box is None else Box.from_list(box)
        return cls(rows=rows, columns=columns, cell_km=cell_km, box=edges)

    def __repr__(self) -> str:
        cells = f"{self.rows} × {self.columns} cells of {self.cell_km:g} km"
        if self.box is None:
            return f"Grid({cells})"
        south, west, north, east = self.box
        return f"Grid({cells}, lat {south:g}…{north:g}, lng {west:g}…{east:g})"


def _cells_across(box: Box, cell_km: float) -> tuple[float, float]:
    """How many cells, before rounding up, the height and the width of a box need."""
    if not (box.south < box.north and box.width > 0.0):
        raise InvalidInput("the box must have a height and a width; move its edges apart")
    west, south, east, north = box.rectangle_km
    height, width = (north - south) / cell_km, (east - west) / cell_km
    check_cell_count(height, width)
    return max(height - SLACK, 0.5), max(width - SLACK, 0.5)
