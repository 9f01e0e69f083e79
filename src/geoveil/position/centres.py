"""Where reports lie: the cells of a grid and the rim around it, or any list of places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy
from numpy.lib.stride_tricks import sliding_window_view

from geoveil.arrays import BoolArray, FloatArray, IntArray, frozen
from geoveil.errors import InvalidInput
from geoveil.space import MATRIX_LIMIT


@dataclass(frozen=True, eq=False)
class Centres:
    """Places that a report may name, in whole steps of ``pitch_km`` east and north of an origin.

    A position outside the rectangle ``low`` … ``high`` is first moved to its nearest point, which brings
    no two positions farther apart. ``lattice`` says that the places lie on a grid, for products by FFT.
    """

    pitch_km: float
    points: IntArray
    """(n, 2): east and north, in steps."""
    low: tuple[int, int]
    high: tuple[int, int]
    lattice: Lattice | None = None

    @classmethod
    def of_grid(
        cls,
        rows: int,
        columns: int,
        *,
        step: int,
        pitch_km: float,
        rim: int = 0,
        mask: BoolArray | None = None,
    ) -> Centres:
        """The cells of a grid that exist, row by row from the south-west, then the rim of the whole grid.

        The origin is the centre of cell 0, and neighbours are ``step`` apart, an even number. With a rim,
        positions are moved into the rectangle of the centres of the cells; without one, of the cells.
        """
        inside = (
            np.ones((rows, columns), dtype=bool) if mask is None else mask.reshape(rows, columns)
        )
        if not inside.any():
            raise InvalidInput("mask must leave a cell")
        wide = np.pad(np.zeros((rows, columns), dtype=bool), rim, constant_values=True)
        cells = np.concatenate((np.argwhere(inside), np.argwhere(wide) - rim))
        north, east = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
        lattice = Lattice(
            rows + 2 * rim, columns + 2 * rim, step, rim, frozen(cells + rim), int(inside.sum())
        )
        beyond = 0 if rim else step // 2
        low = int(east[0]) * step - beyond, int(north[0]) * step - beyond
        high = int(east[-1]) * step + beyond, int(north[-1]) * step + beyond
        return cls(pitch_km, frozen(cells[:, ::-1] * step), low, high, lattice)

    @classmethod
    def of_places(cls, points: IntArray, *, pitch_km: float) -> Centres:
        """Any places; positions are moved into their bounding rectangle."""
        low, high = points.min(axis=0), points.max(axis=0)
        return cls(
            pitch_km,
            frozen(np.array(points, dtype=np.int64)),
            (int(low[0]), int(low[1])),
            (int(high[0]), int(high[1])),
        )

    @property
    def size(self) -> int:
        """How many places there are."""
        return len(self.points)

    @cached_property
    def points_km(self) -> FloatArray:
        """(n, 2): east and north of the origin."""
        return frozen(self.points * self.pitch_km)

    @cached_property
    def rectangle_km(self) -> FloatArray:
        """((west, south), (east, north)) of the rectangle that positions are moved into."""
        return frozen(np.array((self.low, self.high)) * self.pitch_km)

    def moved_inside(self, steps: IntArray) -> IntArray:
        """(…, 2) positions in steps, moved to the nearest point of the rectangle."""
        return np.clip(steps, self.low, self.high)


@dataclass(frozen=True, eq=False)
class Lattice:
    """A grid that the places lie on: ``cells`` are their (row, column) from 0, the rim's included."""

    rows: int
    columns: int
    step: int
    rim: int
    cells: IntArray
    inner: int
    """How many of the places are cells of the grid; they come first, and the rim after them."""

    @cached_property
    def shape(self) -> tuple[int, int]:
        """The shape of arrays for products by FFT: room for offsets from 1 − size to size."""
        rows, columns = (
            scipy.fft.next_fast_len(2 * size, real=True) for size in (self.rows, self.columns)
        )
        return rows, columns

    @property
    def many(self) -> bool:
        """Whether there are more cells than those that a matrix is made of."""
        return self.inner > MATRIX_LIMIT

    @cached_property
    def within(self) -> Lattice:
        """The grid without its rim, and those of its cells that exist."""
        rows, columns = self.rows - 2 * self.rim, self.columns - 2 * self.rim
        cells = frozen(self.cells[: self.inner] - self.rim)
        return Lattice(rows, columns, self.step, 0, cells, self.inner) if self.rim else self

    @cached_property
    def places(self) -> IntArray:
        """(n,): the numbers of the places, row by row."""
        return frozen(self.cells[:, 0] * self.columns + self.cells[:, 1])

    @property
    def plain(self) -> bool:
        """Whether every place of the grid is there, row by row."""
        return not self.rim and len(self.cells) == self.rows * self.columns

    def shape_for(self, reach_cells: float) -> tuple[int, int]:
        """``shape`` for a kernel that is 0 beyond a reach: room for that reach, where it takes less."""
        rows, columns = (
            min(padded, scipy.fft.next_fast_len(size + math.ceil(reach_cells) + 2, real=True))
            for size, padded in zip((self.rows, self.columns), self.shape, strict=True)
        )
        return rows, columns

    def offsets(
        self, east: float, north: float, shape: tuple[int, int] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """East and north, in cells, from the centres to places so far from a node, in the order of FFTs.

        Of arrays of a ``shape`` that :meth:`shape_for` gives, the farther of two offsets at one entry is left
        out.
        """
        ranges = []
        sides = zip(shape or self.shape, (self.rows, self.columns), (north, east), strict=True)
        for length, size, at in sides:
            steps = np.arange(length)
            ranges.append(np.where(steps <= min(size, length // 2), steps, steps - length) + at)
        up, right = np.meshgrid(*ranges, indexing="ij")
        return right, up

    def lengths_km(self, away_km: FloatArray, pitch_km: float) -> FloatArray:
        """(k, 2) ways east and north → (k, 2·rows − 1, 2·columns − 1): how long each is with every offset
        between two places added, the farthest south-west first."""
        east, north = (
            pitch_km * self.step * np.arange(1 - size, size) + away_km[:, axis, None]
            for axis, size in enumerate((self.columns, self.rows))
        )
        return np.hypot(east[:, None, :], north[:, :, None])

    def sums(self, tables: FloatArray, values: npt.ArrayLike) -> FloatArray:
        """(k, 2·rows − 1, 2·columns − 1) by offset and (n,) values → (k, n): Σ_y table[x − y]·value[y]."""
        grid = self.spread(np.asarray(values, dtype=np.float64))
        turned = self.columns > self.rows  # the matrices have the shorter side
        if turned:
            tables, grid = tables.swapaxes(-2, -1), grid.T
        rows, columns = grid.shape
        total = np.zeros((len(tables), rows, columns))
        across = sliding_window_view(tables, columns, axis=-1)[..., ::-1, :]
        for north in range(1 - rows, rows):
            there = slice(max(0, -north), rows - max(0, north))
            here = slice(there.start + north, there.stop + north)
            # copied, or they would be multiplied one by one
            total[:, here] += grid[there] @ across[:, north + rows - 1].copy()
        return self.gather(total.swapaxes(-2, -1) if turned else total)

    def spread(self, values: FloatArray) -> FloatArray:
        """(…, n) values of places → (…, rows, columns), zero where there is none."""
        array = values
        if not self.plain:
            array = np.zeros((*values.shape[:-1], self.rows * self.columns))
            array[..., self.places] = values
        return array.reshape(*values.shape[:-1], self.rows, self.columns)

    def gather(self, array: FloatArray) -> FloatArray:
        """(…, rows, columns) → (…, n)."""
        flat = array[..., : self.rows, : self.columns].reshape(*array.shape[:-2], -1)
        return flat if self.plain else flat[..., self.places]
