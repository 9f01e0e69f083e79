"""Products with a kernel k(d) over count vectors: on a box by FFT, or entry by entry.

The count of one place, the spare one, follows from the others, so vectors are points of a box in L − 1
dimensions. The distance depends on their offset there alone: with o the offset of the other places,
d² = Σo² + (Σo)². A kernel is a convolution on the box, made by FFT. The box grows with a power of L and is
soon almost empty; where there are few vectors in it, all N² entries are summed instead: d² is a
whole number of at most 2M², so each is looked up in a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.kernel import DenseKernel, Kernel, LatticeKernel, PartialKernel, kernel_on
from geoveil.errors import TooLarge
from geoveil.release.counts import CountVectors

LATTICE_LIMIT, REACH = 1 << 26, 1 << 24
"""Points of the largest transform that is made once (half a gibibyte), and of one made at every step."""
WHOLE_LIMIT = 1024
"""Up to so many vectors products are sums of a matrix, exact for small values too."""
ENTRY_LIMIT = 1 << 28
"""Entries of the largest product that is summed: N up to 16,384, up to half a gibibyte of distances."""
_MATRIX_ENTRIES = 1 << 25
"""Entries of the largest matrix of numbers (a quarter of a gibibyte); above, only distances are kept."""
_DENSE_ADVANTAGE, _LOOKED_UP_ADVANTAGE = 64, 8
"""Entries of a matrix multiplied, or looked up, in the time that one point of a transform takes."""
_CHUNK = 1 << 16  # values looked up at a time, few enough for the cache


def box_sides(lower: tuple[int, ...], upper: tuple[int, ...]) -> tuple[int, ...]:
    """The sides of the box for a window: one more than the room of every place but the widest.

    >>> box_sides((0, 0, 0), (20, 20, 20))
    (21, 21)
    """
    sides = np.subtract(upper, lower) + 1
    return tuple(np.delete(sides, int(np.argmax(sides))).tolist()) or (1,)


def transform_points(lower: tuple[int, ...], upper: tuple[int, ...]) -> int:
    """How many points an FFT on the box of a window needs, the padding included."""
    sides = box_sides(lower, upper)
    return math.prod(fft.next_fast_len(2 * side - 1, real=True) for side in sides)


def box_cells(vectors: CountVectors) -> IntArray:
    """The place of each vector in its box, in row-major order."""
    if vectors.places == 1:
        return np.zeros(1, dtype=np.int64)
    free = np.delete(vectors.vectors - np.asarray(vectors.lower), vectors.spare, axis=1)
    cells = np.ravel_multi_index(tuple(free.T), box_sides(vectors.lower, vectors.upper))
    return np.asarray(cells, dtype=np.int64)


def box_distances(vectors: CountVectors) -> FloatArray:
    """The distance at every signed offset in the box, 0 in the middle."""
    sides = box_sides(vectors.lower, vectors.upper)
    offsets = np.meshgrid(*(np.arange(1.0 - n, n) for n in sides), indexing="ij", sparse=True)
    total: Any = sum(offsets)
    return np.sqrt(np.square(total) + sum(np.square(offset) for offset in offsets))


def within_products(
    people: int, lower: tuple[int, ...], upper: tuple[int, ...], points: int
) -> bool:
    """Whether products on a window are possible: entry by entry, or by a transform of so many points."""
    size = CountVectors.estimated_size(people, lower, upper)
    return size**2 <= ENTRY_LIMIT or transform_points(lower, upper) <= points


class CountKernel(Kernel):
    """A kernel on count vectors, its values looked up by squared distance, a block of rows at a time."""

    exact = True

    def __init__(self, space: CountVectors, function: Callable[[FloatArray], FloatArray]) -> None:
        self._squares = space.squared_distances
        self._values = function(np.sqrt(np.arange(2.0 * space.people**2 + 1)))
        self.norm = float(np.abs(self._values).max() * math.sqrt(space.size))

    def apply(self, values: FloatArray) -> FloatArray:
        size = len(self._squares)
        step = max(1, _CHUNK // size)
        block, result = np.empty((step, size)), np.empty(values.shape)
        for at in range(0, size, step):
            part = self._looked_up(slice(at, at + step), block)
            result[..., at : at + step] = values @ part.T
        return result

    def rows(self, cells: Any) -> FloatArray:
        return self._looked_up(cells, None)

    def _looked_up(self, cells: Any, block: FloatArray | None) -> FloatArray:
        squares = self._squares[cells]
        out = None if block is None else block[: len(squares)]
        # every index is in range; "clip" spares NumPy a slower check of it
        return np.take(self._values, squares, out=out, mode="clip")


@kernel_on.register
def _kernel_on_counts(space: CountVectors, function: Callable[[FloatArray], FloatArray]) -> Kernel:
    """By FFT on the box, or entry by entry where that takes less time."""
    points, entries = transform_points(space.lower, space.upper), space.size**2
    as_matrix = entries <= _MATRIX_ENTRIES
    advantage = _DENSE_ADVANTAGE if as_matrix else _LOOKED_UP_ADVANTAGE
    worth = space.size <= WHOLE_LIMIT or entries <= advantage * points
    if entries <= ENTRY_LIMIT and (worth or points > LATTICE_LIMIT):
        kernel = CountKernel(space, function)
        return DenseKernel(kernel.rows(slice(None))) if as_matrix else kernel
    if points > LATTICE_LIMIT:
        raise TooLarge(
            f"count vectors ({space.size:,}) must have at most {ENTRY_LIMIT:.3g} distances ({entries:.3g}) "
            f"or a transform of {LATTICE_LIMIT:.3g} points ({points:.3g}); merge places or split the "
            "people into groups"
        )
    lattice = LatticeKernel(function(box_distances(space)), signed=True)
    return PartialKernel(lattice, box_cells(space))
