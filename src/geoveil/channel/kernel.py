"""Products with a kernel k(d) that depends on the distance alone: by FFT on a lattice, dense elsewhere.

On a regular lattice Σ_z k(d(x, z))·v(z) is a convolution, so no m×m array exists and a product costs
O(m log m). An FFT is exact to about 1e-16 of the *largest* value only; ``noise`` says how much that
is, and callers recompute what lies too close to it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from scipy import fft

from geoveil.arrays import FloatArray, IntArray
from geoveil.space.base import Space
from geoveil.space.grid import Grid
from geoveil.space.line import Line

RelativeError = 1e-10
"""What a product may be off by, relative, before a value is recomputed exactly."""

_THREADED_SIZE = 1 << 16
_CHUNK = 1 << 22


def fft_workers(size: int) -> int:
    """Threads for a transform of this many points: one while starting threads would cost more."""
    return (os.cpu_count() or 1) if size >= _THREADED_SIZE else 1


class Kernel(ABC):
    """v ↦ Kv for K[x, z] = k(d(x, z)); symmetric, so it is its own adjoint."""

    norm: float
    """Root of the sum of k² over one row: how much of |v| reaches a result."""

    @abstractmethod
    def apply(self, values: FloatArray) -> FloatArray:
        """Kv over the last axis, to about ``noise(values)`` absolute."""

    @abstractmethod
    def rows(self, cells: IntArray) -> FloatArray:
        """The exact rows of some cells."""

    def noise(self, values: FloatArray) -> FloatArray:
        """An absolute error that ``apply`` stays below, one for each vector (last axis kept as 1)."""
        return np.zeros((*values.shape[:-1], 1))

    def apply_exactly(self, values: FloatArray, *, budget: int = 1 << 28) -> FloatArray:
        """Kv for one vector v ≥ 0, each value right to 1e-10 *relative* wherever the budget allows.

        Values too close to the noise of ``apply`` are summed directly over the support of v, if that
        takes at most ``budget`` terms; otherwise they stay as they are, NaN where they are noise.
        """
        result = self.apply(values)
        floor = float(self.noise(values)[..., 0])
        small = np.flatnonzero(result < floor / RelativeError)
        support = np.flatnonzero(values)
        if small.size * support.size <= budget:
            step = max(1, _CHUNK // max(1, support.size))
            for start in range(0, small.size, step):
                part = small[start : start + step]
                result[part] = self._entries(part, support) @ values[support]
        else:
            result[result < 10 * floor] = np.nan
        return result

    def _entries(self, cells: IntArray, others: IntArray) -> FloatArray:
        return self.rows(cells)[:, others]


class LatticeKernel(Kernel):
    """A kernel on a rectangle of ``shape`` cells; ``table[a, b]`` = k for a rows and b columns apart."""

    def __init__(self, table: FloatArray) -> None:
        self.table = table
        self.shape: tuple[int, int] = (table.shape[0], table.shape[1])
        self._padded = tuple(fft.next_fast_len(2 * n - 1, real=True) for n in self.shape)
        self._workers = fft_workers(self._padded[0] * self._padded[1])
        self._spectrum = fft.rfft2(self._periodic(), workers=self._workers).real
        self.norm = float(2 * np.sqrt(np.square(table).sum()))

    def _periodic(self) -> FloatArray:
        """The table folded round a torus, so that a circular convolution is the linear one."""
        folded = np.zeros(self._padded)
        rows, columns = self.shape
        folded[:rows, :columns] = self.table
        folded[len(folded) - rows + 1 :, :columns] = self.table[:0:-1]
        folded[:, folded.shape[1] - columns + 1 :] = folded[:, columns - 1 : 0 : -1]
        return folded

    def apply(self, values: FloatArray) -> FloatArray:
        lattice = values.reshape(*values.shape[:-1], *self.shape)
        rows, columns = self.shape
        high, wide = self._padded
        # Axis by axis, so that rows known to be zero (or not wanted back) are never transformed.
        spectrum = fft.rfft(lattice, wide, axis=-1, workers=self._workers)
        spectrum = fft.fft(spectrum, high, axis=-2, overwrite_x=True, workers=self._workers)
        spectrum *= self._spectrum
        spectrum = fft.ifft(spectrum, axis=-2, overwrite_x=True, workers=self._workers)
        result = fft.irfft(spectrum[..., :rows, :], wide, axis=-1, workers=self._workers)
        return result[..., :columns].reshape(values.shape)

    def noise(self, values: FloatArray) -> FloatArray:
        length = np.sqrt(np.square(values).sum(axis=-1, keepdims=True))
        return 2e-15 * self.norm * length

    def rows(self, cells: IntArray) -> FloatArray:
        return self._entries(cells, np.arange(self.shape[0] * self.shape[1]))

    def _entries(self, cells: IntArray, others: IntArray) -> FloatArray:
        columns = self.shape[1]
        down = np.abs(cells[:, None] // columns - others[None, :] // columns)
        across = np.abs(cells[:, None] % columns - others[None, :] % columns)
        return self.table[down, across]


class DenseKernel(Kernel):
    """A kernel on a space without a lattice, as a matrix (at most 4,096 cells)."""

    def __init__(self, matrix: FloatArray) -> None:
        self._matrix = matrix
        self.norm = float(np.sqrt(np.square(matrix).sum(axis=1).max()))

    def apply(self, values: FloatArray) -> FloatArray:
        return values @ self._matrix

    def rows(self, cells: IntArray) -> FloatArray:
        return self._matrix[cells]


def lattice_shape(space: Space) -> tuple[int, int] | None:
    """Rows and columns of a space that is a regular lattice in row-major order; ``None`` for others."""
    if isinstance(space, Grid):
        return space.rows, space.columns
    if isinstance(space, Line):
        return 1, space.size
    return None


def lattice_distances_km(space: Space) -> FloatArray:
    """Distance by offset on a lattice: entry (a, b) is the distance of cells a rows and b columns apart."""
    shape = lattice_shape(space)
    if shape is None:
        raise TypeError("only lattices have distances by offset")
    pitch = space.cell_km if isinstance(space, Grid) else 1.0
    return pitch * np.hypot(np.arange(shape[0])[:, None], np.arange(shape[1])[None, :])


def kernel_on(space: Space, function: Callable[[FloatArray], FloatArray]) -> Kernel:
    """The kernel k(d) = ``function(d)`` on a space, in the best structure the space allows."""
    if lattice_shape(space) is not None:
        return LatticeKernel(function(lattice_distances_km(space)))
    return DenseKernel(function(space.distances_km()))
