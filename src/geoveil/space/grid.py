"""A grid of square cells, over a box of the map or in the abstract; and a line of whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from geoveil import arrays
from geoveil.arrays import ArrayLike, FloatArray, IntArray, count, indices, positive
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.space.box import Box, cell_polygons, check_reach, feature_collection
from geoveil.space.outside import Outside, settle
from geoveil.space.projection import Degrees, TangentPlane, numbers
from geoveil.space.space import MapSpace, Space, entries

if TYPE_CHECKING:
    from geoveil.space.masked_grid import MaskedGrid

CELL_LIMIT = 10**8
"""No grid and no line has more cells than this."""
SLACK = 0.01
"""A place at most this part of a cell off the lattice counts as inside."""


def _side_km(value: Any) -> float:
    """A side whose multiples and squares neither vanish nor overflow."""
    cell = positive("cell_km", value)
    if not 1e-9 <= cell <= 1e9:
        raise InvalidInput(f"cell_km ({cell:g}) must lie in 1e-9 … 1e9")
    return cell


def _check_cell_count(rows: float, columns: float) -> None:
    """Refuse more cells than any grid may have."""
    rows, columns = (min(max(cells, 1.0), 1e100) for cells in (rows, columns))
    if rows * columns > CELL_LIMIT:
        raise TooLarge(
            f"the grid ({rows:.4g} × {columns:.4g} cells) must have at most {CELL_LIMIT:,} cells; "
            "choose larger cells or a smaller box"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Grid(MapSpace):
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
    in_rows = True

    def __post_init__(self) -> None:
        rows = count("rows", self.rows, most=np.inf)  # too many are too large, below
        columns = count("columns", self.columns, most=np.inf)
        _check_cell_count(rows, columns)
        checked = {"rows": rows, "columns": columns, "cell_km": _side_km(self.cell_km)}
        for name, value in (checked | {"size": rows * columns}).items():
            object.__setattr__(self, name, value)
        if self.box is not None:
            arrays.instance("box", self.box, Box, "a gv.Box; use gv.Grid.from_box(…)")
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
    def from_polygon(cls, area: Any, *, cell_km: float) -> MaskedGrid:
        """The cells of an area such as city limits; cells outside do not exist.

        ``area`` is GeoJSON (a dictionary, or the name of a file), or what Shapely and GeoPandas have: one
        or several polygons, with holes. A cell exists where the area covers at least 1 % of it. Rings that
        cross themselves are refused; those across ±180° are taken the shorter way round.
        """
        from geoveil.space import masked_grid, outline  # which have a grid beneath

        outlines = outline.read_outlines(area)
        grid = cls._over(outline.box_around(outlines), cell_km)
        return masked_grid.MaskedGrid.covered(grid, outlines)

    @classmethod
    def around(
        cls,
        *,
        lat: ArrayLike,
        lng: Degrees = None,
        lon: Degrees = None,
        cell_km: float,
        margin_cells: int = 0,
    ) -> Grid:
        """The grid over the bounding box of data, with ``margin_cells`` more on every side.

        Without a margin the box ends at the outermost places of the data, and whoever sees the
        grid sees the box: where these are secret, give a box of your own to ``from_box``.
        """
        cell = _side_km(cell_km)
        margin = min(count("margin_cells", margin_cells, least=0), CELL_LIMIT)
        box = Box.around(lat=lat, lng=lng, lon=lon)
        return cls._over(box.widened(margin * cell, least_km=cell), cell)

    @classmethod
    def _over(cls, box: Box, cell_km: float) -> Grid:
        rows, columns = (math.ceil(cells) for cells in _cells_across(box, _side_km(cell_km)))
        return cls(rows=rows, columns=columns, cell_km=cell_km, box=box)

    def _check_map(self, box: Box) -> None:
        """The cells cover the box, none is idle, and the whole lattice lies on a sound map."""
        for cells, across in zip(self.shape, _cells_across(box, self.cell_km), strict=True):
            # another machine's sine may have rounded to the other side of a whole number
            if not -1e-6 <= cells - across <= 1.0 + 1e-6:
                raise InvalidInput(
                    f"rows and columns ({self.rows}, {self.columns}) must be those that cover the "
                    "box; use Grid.from_box"
                )
        check_reach("the grid", self.width_km, self.height_km)
        pole = self.plane.to_plane(lat=math.copysign(90.0, self.plane.lat), lng=0.0)
        if self.inside_km(pole):
            raise InvalidInput("the grid must not reach over a pole; choose a smaller box or cell")

    # -- its shape -------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows, self.columns

    @property
    def width_km(self) -> float:
        """From the western to the eastern edge."""
        return self.columns * self.cell_km

    @property
    def height_km(self) -> float:
        """From the southern to the northern edge."""
        return self.rows * self.cell_km

    @cached_property
    def corner_km(self) -> tuple[float, float]:
        """East and north of the south-western corner; an abstract grid is centred on (0, 0)."""
        west, south, east, north = self.box.rectangle_km if self.box else (0.0, 0.0, 0.0, 0.0)
        return ((west + east - self.width_km) / 2.0, (south + north - self.height_km) / 2.0)

    def _centres(self) -> FloatArray:
        return self._mesh(np.arange(0.5, self.columns), np.arange(0.5, self.rows)).reshape(-1, 2)

    def corners_km(self) -> FloatArray:
        """(rows + 1, columns + 1, 2): east and north of the corners of the cells."""
        return self._mesh(np.arange(self.columns + 1.0), np.arange(self.rows + 1.0))

    def _mesh(self, x: FloatArray, y: FloatArray) -> FloatArray:
        mesh = np.empty((y.size, x.size, 2))
        mesh[..., 0] = self.corner_km[0] + x * self.cell_km
        mesh[..., 1] = (self.corner_km[1] + y * self.cell_km)[:, None]
        return mesh

    @property
    def plane(self) -> TangentPlane:
        """The tangent plane at the centre of the box; an abstract grid has none."""
        if self.box is None:
            raise Unsupported(
                "an abstract grid has no coordinates; build it with Grid.from_box, or use locate_km"
            )
        return self.box.plane

    def distance_km(self, a: ArrayLike, b: ArrayLike) -> FloatArray:
        """Distances between the centres of cells ``a`` and ``b`` (arrays broadcast).

        Equal offsets have exactly equal distances, wherever the two cells lie.
        """
        (row_a, column_a), (row_b, column_b) = self.row_column(a), self.row_column(b)
        arrays.check_broadcast(a=row_a, b=row_b)
        return self._offset_km(row_a - row_b, column_a - column_b)

    def _offset_km(self, rows: IntArray, columns: IntArray) -> FloatArray:
        distance: FloatArray = np.hypot(self.cell_km * rows, self.cell_km * columns)
        return distance

    def distances_km(self) -> FloatArray:
        self._check_distances()
        along, across = (np.arange(1 - cells, cells) for cells in self.shape)
        table = self._offset_km(along[:, None], across)  # for each cell, one window of it
        windows = np.lib.stride_tricks.sliding_window_view(table, self.shape)
        return windows[::-1, ::-1].reshape(self.size, self.size)

    def distances_from_km(self, cell: int) -> FloatArray:
        row, column = self.row_column(cell)
        rows, columns = np.arange(self.rows) - row, np.arange(self.columns) - column
        return self._offset_km(rows[:, None], columns).ravel()

    def apart_km(self, distance_km: float) -> FloatArray:
        """How far apart the centres may be of the cells of two people ``distance_km`` apart.

        Cells i rows and j columns apart hold two such people if √(max(i−1, 0)² + max(j−1, 0)²) cells,
        the gap between them, are no more than that: neighbours hold people a step apart. Whoever is
        outside and taken to the nearest cell comes no farther from anybody (clamping to a rectangle).
        """
        reach = arrays.finite("distance_km", distance_km) / self.cell_km * (1 + 1e-9)
        down = np.arange(min(self.rows, math.floor(reach) + 2))
        across = np.arange(min(self.columns, math.floor(reach) + 2))
        gap = np.hypot(np.maximum(down - 1, 0)[:, None], np.maximum(across - 1, 0))
        row, column = np.nonzero(gap <= reach)
        return self._offset_km(row, column)

    # -- cells -----------------------------------------------------------------------------------

    def cell_at(self, row: ArrayLike, column: ArrayLike) -> IntArray:
        """Cells at rows and columns (arrays broadcast)."""
        at_row, at_column = indices("row", row, self.rows), indices("column", column, self.columns)
        arrays.check_broadcast(row=at_row, column=at_column)
        return at_row * self.columns + at_column

    def row_column(self, cells: ArrayLike) -> tuple[IntArray, IntArray]:
        """Rows and columns of cells."""
        rows, columns = np.divmod(indices("cells", cells, self.size), self.columns)
        return rows, columns

    def _nearest(self, east: FloatArray, north: FloatArray) -> IntArray:
        x, y = east - self.corner_km[0], north - self.corner_km[1]
        # on a rectangle of squares both coordinates are clamped; first, so that nothing overflows
        sides = ((y, self.height_km, self.rows), (x, self.width_km, self.columns))
        row, column = (
            np.minimum((np.clip(at, 0.0, most) / self.cell_km).astype(np.int64), cells - 1)
            for at, most, cells in sides
        )
        cell = row * self.columns + column
        slack = SLACK * self.cell_km
        inside = (x >= -slack) & (x <= self.width_km + slack)
        inside &= (y >= -slack) & (y <= self.height_km + slack)
        return np.where(inside, cell, ~cell)

    # -- documents -------------------------------------------------------------------------------

    def to_geojson(
        self, properties: Mapping[str, ArrayLike] | None = None, cells: IntArray | None = None
    ) -> dict[str, Any]:
        """The cells as a GeoJSON FeatureCollection, with one value per cell for each property.

        Rings are (lng, lat), counter-clockwise; cells across ±180° are cut there (RFC 7946). Where only
        some ``cells`` are wanted, they are numbered anew, from 0.
        """
        lat, lng = self.plane.to_latlng(self.corners_km())
        turn = np.remainder(lng - self.plane.lng + 180.0, 360.0) - 180.0
        shapes = cell_polygons(lat, self.plane.lng + turn, cells)
        return feature_collection(shapes, self.size if cells is None else cells.size, properties)

    def to_dict(self) -> dict[str, Any]:
        """Kind, rows, columns, cell_km and box ([south, west, north, east], or null)."""
        shape = {"kind": "grid", "rows": self.rows, "columns": self.columns}
        return {**shape, "cell_km": self.cell_km, "box": list(self.box) if self.box else None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Grid:
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
    _check_cell_count(height, width)
    return max(height - SLACK, 0.5), max(width - SLACK, 0.5)


@dataclass(frozen=True, eq=False)
class Line(Space):
    """The whole numbers 0 … size − 1 with distance \\|a − b\\|: ages, hours, steps along a road.

    Units: ``unit`` is "unit", one step; every name that ends in ``_km`` reads in it.

    >>> line = Line(100)
    >>> line.distance_km(3, [3, 10]).tolist()
    [0.0, 7.0]
    >>> line.locate([-4.0, 2.4, 200.0], outside="clamp").tolist()
    [0, 2, 99]
    """

    size: int
    unit = "unit"
    in_rows = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", count("size", self.size, most=np.inf))
        if self.size > CELL_LIMIT:
            raise TooLarge(f"the size of a line must be at most {CELL_LIMIT:,}; use wider steps")

    def _centres(self) -> FloatArray:
        return np.arange(self.size, dtype=np.float64)[:, None]

    @overload
    def locate(self, values: float, *, outside: Outside = ...) -> int: ...
    @overload
    def locate(self, values: ArrayLike, *, outside: Outside = ...) -> IntArray: ...
    def locate(self, values: ArrayLike, *, outside: Outside = "raise") -> int | IntArray:
        """The nearest whole numbers, halves upward: an ``int`` for one value, else an array.

        A value more than half a step beyond an end is outside: it is refused (``"raise"``), left out
        (``"drop"``) or goes to that end (``"clamp"``).
        """
        points = numbers("values", values)
        cells = np.floor(np.clip(points, 0.0, self.size - 1.0) + 0.5).astype(np.int64)
        return settle(cells, (points >= -0.5) & (points <= self.size - 0.5), outside)

    def to_dict(self) -> dict[str, Any]:
        """Kind and size."""
        return {"kind": "line", "size": self.size}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Line:
        (size,) = entries(values, "line", "size")
        return cls(size)
