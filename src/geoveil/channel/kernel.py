"""Lattices: products by FFT with small values recomputed exactly, and how steep a function on one is."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, singledispatch
from typing import NamedTuple

import numpy as np
import scipy

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.channel.backend import Array, Backend, Selection, Torus
from geoveil.channel.operator import (
    DenseOperator,
    MovedOperator,
    Operator,
    RelativeError,
    noise_of,
    refined,
)
from geoveil.space import AnyGrid, Line, MaskedGrid, Space
from geoveil.space.masked_grid import grid_beneath

_DENSE_SIZE = 512
"""Up to so many cells a product with a matrix takes less time than a transform."""
_THREADED_SIZE = 1 << 16
_LARGE_SIZE = 1 << 22
"""From so many points on, vectors are transformed one after another, in the memory of one transform."""
FFT_NOISE = 2e-15
"""What a product may be off by, in units of the norms of its factors."""


def fft_workers(size: int) -> int:
    """Threads for a transform of this many points: one while starting threads would cost more."""
    return (os.cpu_count() or 1) if size >= _THREADED_SIZE else 1


class Kernel(Operator):
    """K[x, z] = k(d(x, z)): a symmetric operator, its own adjoint, so that ``_push`` serves as both.

    It is Kv over the last axis, to about ``noise(values)`` absolute.
    """

    @abstractmethod
    def rows(self, cells: IntArray) -> FloatArray:
        """The exact rows of some cells."""

    def noise(self, values: FloatArray) -> FloatArray:
        """An absolute error that ``_push`` stays below, one for each vector (last axis kept as 1)."""
        return noise_of(values, self.fft_noise)

    def apply_near_inverse(self, values: FloatArray) -> FloatArray:
        """Roughly K⁻¹v, symmetric and positive definite: a preconditioner. Here v itself."""
        return values

    def apply_exactly(self, values: FloatArray, *, budget: int = 1 << 28) -> FloatArray:
        """Kv for one vector v ≥ 0, each value right to 1e-10 *relative* wherever the budget allows.

        Small values are summed directly over the support of v, if that takes at most ``budget`` terms;
        otherwise they stay as they are, NaN where they are noise.
        """
        support = np.flatnonzero(values)
        return refined(
            values[support],
            self._push(values),
            self._push_noise(values),
            lambda cells: self._entries(cells, support),
            budget=budget,
            otherwise=math.nan,
        )

    def _entries(self, cells: IntArray, others: IntArray) -> FloatArray:
        return self.rows(cells)[:, others]

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._push(values)

    def _row(self, row: int) -> FloatArray:
        return self.rows(np.array([row]))[0]

    def _column(self, column: int) -> FloatArray:
        return self._row(column)

    def columns(self, chosen: IntArray) -> FloatArray:
        return self.rows(chosen).T


class LatticeKernel(Kernel):
    """A kernel on a box of ``box`` cells in any number of dimensions, by its values at offsets.

    ``table`` has the shape of the lattice where the sign of a single offset does not matter, as on a
    grid: ``table[a, b]`` = k for a rows and b columns apart. With ``signed`` it is 2n − 1 wide on every
    axis, offset 0 in its middle, and only the signs of all offsets together do not matter.
    """

    def __init__(self, table: FloatArray, *, signed: bool = False) -> None:
        self.table = table
        self.box = tuple((n + 1) // 2 if signed else n for n in table.shape)
        self._signed = signed
        self._axes = tuple(range(-table.ndim, 0))
        self.exact = math.prod(self.box) <= _DENSE_SIZE
        copies = 1 if signed else 2**table.ndim
        self.norm = float(np.sqrt(copies * np.square(table).sum()))
        """Root of the sum of k² over one row: how much of |v| reaches a result."""
        self.fft_noise = FFT_NOISE * self.norm

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(self.box), math.prod(self.box)

    @cached_property
    def _padded(self) -> tuple[int, ...]:
        """The torus of the products; looked for when there is one, since reports are drawn without any."""
        return tuple(scipy.fft.next_fast_len(2 * n - 1, real=True) for n in self.box)

    @cached_property
    def _workers(self) -> int:
        return fft_workers(math.prod(self._padded))

    @cached_property
    def _spectrum(self) -> FloatArray:
        """Every value twice: for the real and the imaginary part of what it multiplies."""
        once = scipy.fft.rfftn(self._periodic(), workers=self._workers).real
        return np.repeat(once, 2, axis=-1)

    def _periodic(self) -> FloatArray:
        """The table folded round a torus, so that a circular convolution is the linear one."""
        folded = self.table
        for axis, (cells, padded) in enumerate(zip(self.box, self._padded, strict=True)):
            table = folded.swapaxes(0, axis)
            onward = table[cells - 1 :] if self._signed else table
            back = table[: cells - 1] if self._signed else table[:0:-1]
            gap = np.zeros((padded - 2 * cells + 1, *table.shape[1:]))
            folded = np.concatenate((onward, gap, back)).swapaxes(0, axis)
        return folded

    def _push(self, theta: FloatArray) -> FloatArray:
        if self.exact:
            return np.asarray(theta @ self._matrix)
        if theta.ndim > 1 and math.prod(self._padded) >= _LARGE_SIZE:
            result = np.empty(theta.shape)
            for place in np.ndindex(theta.shape[:-1]):
                result[place] = self._filtered(theta[place], self._spectrum)
            return result
        return self._filtered(theta, self._spectrum)

    @cached_property
    def _matrix(self) -> FloatArray:
        return self._windows.reshape(self.shape)

    def apply_near_inverse(self, values: FloatArray) -> FloatArray:
        """Right but for the rim: divided by the spectrum of the torus, where that is positive."""
        inverse = self._inverse_spectrum
        return values if inverse is None else self._filtered(values, inverse)

    @cached_property
    def _inverse_spectrum(self) -> FloatArray | None:
        safe = self._spectrum.min() > RelativeError * self._spectrum.max()
        return 1 / self._spectrum if safe else None

    def _filtered(self, values: FloatArray, factors: FloatArray) -> FloatArray:
        """Convolved with what has the spectrum ``factors`` on the padded torus."""
        lattice = values.reshape(*values.shape[:-1], *self.box)
        # Axis by axis, so that rows known to be zero (or not wanted back) are never transformed.
        wide, workers = self._padded[-1], self._workers
        spectrum = scipy.fft.rfft(lattice, wide, axis=-1, workers=workers)
        for axis in self._axes[-2::-1]:
            padded = self._padded[axis]
            spectrum = scipy.fft.fft(spectrum, padded, axis=axis, overwrite_x=True, workers=workers)
        parts = spectrum.view(np.float64)  # half the work of complex numbers times real ones
        parts *= factors
        for axis in self._axes[:-1]:
            spectrum = scipy.fft.ifft(spectrum, axis=axis, overwrite_x=True, workers=workers)
            rows = np.moveaxis(spectrum, axis, 0)[: self.box[axis]]
            spectrum = np.moveaxis(rows, 0, axis)
        result = scipy.fft.irfft(spectrum, wide, axis=-1, workers=workers)
        return result[..., : self.box[-1]].reshape(values.shape)

    def _on(self, backend: Backend) -> MovedOperator:
        if self.exact:
            return super()._on(backend)
        torus, reshape = Torus(backend, self._padded), backend.xp.reshape
        spectrum = torus.held(scipy.fft.rfftn(self._periodic(), workers=self._workers).real)
        inside = (..., *(slice(cells) for cells in self.box))

        def product(values: Array) -> Array:
            lattice = reshape(values, (*values.shape[:-1], *self.box))
            result = torus.values(torus.transformed(lattice) * spectrum)
            return reshape(result[inside], values.shape)

        return MovedOperator(self, backend, product, product)

    def rows(self, cells: IntArray) -> FloatArray:
        if self.exact:
            return self._matrix[cells]
        return self._windows[np.unravel_index(cells, self.box)].reshape(len(cells), -1)

    @property
    def _windows(self) -> FloatArray:
        """(box, box): rows by cell, each a window of the table of all offsets, with its cell at offset 0."""
        windows = np.lib.stride_tricks.sliding_window_view(self._offsets, self.box)
        return windows[(slice(None, None, -1),) * len(self.box)]

    @cached_property
    def _offsets(self) -> FloatArray:
        """k by signed offset, 2n − 1 wide on every axis."""
        if self._signed:
            return self.table
        return self.table[np.ix_(*(np.abs(np.arange(1 - n, n)) for n in self.box))]

    def _entries(self, cells: IntArray, others: IntArray) -> FloatArray:
        table = self._offsets
        steps = np.cumprod((1, *table.shape[:0:-1]))[::-1]

        def flat(places: IntArray) -> IntArray:
            return np.asarray(sum(np.unravel_index(places, self.box) * steps[:, None]))

        middle = (table.size - 1) // 2
        return table.ravel()[flat(cells)[:, None] + (middle - flat(others))]


class PartialKernel(Kernel):
    """A kernel on some cells of a lattice only: ``cells`` are their places in its row-major order.

    Values spread over the lattice, zero elsewhere, so a product costs what it costs on the lattice.
    """

    _made_of = ("_lattice", "_chosen")

    def __init__(self, lattice: LatticeKernel, cells: IntArray) -> None:
        self._lattice = lattice
        self._cells = cells
        self._chosen = Selection(cells, lattice.shape[0])
        self.fft_noise = lattice.fft_noise

    @property
    def shape(self) -> tuple[int, int]:
        return self._cells.size, self._cells.size

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._chosen.take(self._lattice._push(self._chosen.put(theta)))

    def rows(self, cells: IntArray) -> FloatArray:
        return self._entries(cells, np.arange(self._cells.size))

    def _entries(self, cells: IntArray, others: IntArray) -> FloatArray:
        return self._lattice._entries(self._cells[cells], self._cells[others])


class DenseKernel(DenseOperator, Kernel):
    """A kernel on a space without a lattice, as a matrix (at most 4,096 cells)."""

    def rows(self, cells: IntArray) -> FloatArray:
        return self._matrix[cells]


class Beneath(NamedTuple):
    """The rectangle of places beneath a space, some of which are its cells, both numbered row by row."""

    pitch_km: float
    mask: BoolArray
    """(rows, columns): which are cells."""

    def spread(self, values: FloatArray, empty: float) -> FloatArray:
        """(…, cells) → (…, rows, columns), ``empty`` where there is no cell."""
        wide = np.full((*values.shape[:-1], *self.mask.shape), empty)
        wide[..., self.mask] = values
        return wide


def lattice_beneath(space: Space) -> Beneath | None:
    """The lattice that all cells of a space lie on; ``None`` where it has none."""
    if isinstance(space, Line):
        return Beneath(1.0, np.ones((1, space.size), dtype=np.bool_))
    if not isinstance(space, AnyGrid):
        return None
    grid, mask = grid_beneath(space)
    flags = np.ones(grid.size, dtype=np.bool_) if mask is None else mask
    return Beneath(grid.cell_km, flags.reshape(grid.shape))


def lattice_distances_km(space: Space) -> FloatArray:
    """Distance by offset on a lattice: entry (a, b) is the distance of places a rows and b columns apart."""
    beneath = lattice_beneath(space)
    if beneath is None:
        raise TypeError("only lattices have distances by offset")
    rows, columns = (np.arange(size) for size in beneath.mask.shape)
    return beneath.pitch_km * np.hypot(rows[:, None], columns[None, :])


@singledispatch
def kernel_on(space: Space, function: Callable[[FloatArray], FloatArray]) -> Kernel:
    """The kernel k(d) = ``function(d)`` on a space, in the best structure the space allows.

    A kind of space with a structure of its own registers it here.
    """
    if lattice_beneath(space) is None:
        return DenseKernel(function(space.distances_km()))
    kernel = LatticeKernel(function(lattice_distances_km(space)))
    return PartialKernel(kernel, space.cells) if isinstance(space, MaskedGrid) else kernel


# --- How steep a function on a space is: the largest |v(x) − v(x′)| / d(x, x′) over all pairs


_STEPS = 1 << 32
"""Differences looked at before far pairs are bounded instead."""


class Steepness(NamedTuple):
    """The steepest slope per km, the pair of cells that has it, and whether it is exact or a bound."""

    slope_per_km: float
    pair: tuple[int, int]
    exact: bool = True


def steepness(values: FloatArray, space: Space) -> Steepness:
    """The steepest slope of ``values`` (one per cell) over all pairs of cells.

    On a lattice pairs are visited by offset, near ones first: once (max − min)/d falls below the best
    slope found, no farther pair can beat it. Usually few offsets are needed; after 2³² differences
    the rest is bounded by (max − min)/d and the answer is marked as not exact.
    """
    if space.size == 1:
        return Steepness(0.0, (0, 0))
    beneath = lattice_beneath(space)
    if beneath is not None:
        result = _steepness_by_offset(beneath.spread(values, np.nan), beneath.pitch_km)
        one, other = np.searchsorted(np.flatnonzero(beneath.mask), result.pair).tolist()
        return Steepness(result.slope_per_km, (one, other), result.exact)
    best = Steepness(0.0, (0, 1))
    for cell in range(space.size - 1):
        distance = space.distances_from_km(cell)[cell + 1 :]
        slopes = np.abs(values[cell + 1 :] - values[cell]) / distance
        steepest = int(np.argmax(slopes))
        if slopes[steepest] > best.slope_per_km:
            best = Steepness(float(slopes[steepest]), (cell, cell + 1 + steepest))
    return best


def _steepness_by_offset(values: FloatArray, pitch_km: float) -> Steepness:
    """``values`` is (rows, columns), not a number where there is no cell; pairs by offset (down ≥ 0,
    across ≥ 0), in order of distance."""
    rows, columns = values.shape
    spread = float(np.nanmax(values) - np.nanmin(values))
    distances = np.hypot(np.arange(rows)[:, None], np.arange(columns)[None, :]).ravel()
    first, second = np.flatnonzero(~np.isnan(values))[:2].tolist()
    best, steps = Steepness(0.0, (first, second)), 0
    for offset in np.argsort(distances, kind="stable")[1:]:  # the first is no offset at all
        (down, across), far_km = divmod(int(offset), columns), pitch_km * float(distances[offset])
        if spread <= best.slope_per_km * far_km:
            return best
        if steps > _STEPS:
            return Steepness(max(best.slope_per_km, spread / far_km), best.pair, exact=False)
        west, east = slice(0, columns - across), slice(across, columns)
        # down to the east, and (where that is another offset) down to the west
        for near, far in ((west, east), (east, west))[: 1 + (down > 0 and across > 0)]:
            change = np.fmax(np.abs(values[down:, far] - values[: rows - down, near]), 0.0)
            steps += change.size
            row, column = divmod(int(np.argmax(change)), columns - across)
            slope = float(change[row, column]) / far_km
            if slope > best.slope_per_km:
                start = row * columns + column
                best = Steepness(slope, (start + near.start, start + down * columns + far.start))
    return best
