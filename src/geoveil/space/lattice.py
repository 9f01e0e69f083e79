"""The lattice: square cells in the plane, row by row from the south-west."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, FloatArray, IntArray, positive
from geoveil.errors import InvalidInput, TooLarge

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
