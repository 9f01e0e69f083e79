"""The box around count vectors, in one dimension less than there are places, and products on it.

The count of one place, the spare one, follows from the others, so vectors are points of a box in L − 1
dimensions. The distance depends on their offset there alone: with o the offset of the other places,
d² = Σo² + (Σo)². A kernel k(d) is a convolution on the box, made by FFT.
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
from geoveil.space.base import MATRIX_LIMIT

LATTICE_LIMIT, REACH = 1 << 26, 1 << 24
"""Points of the largest transform that is made once (half a gibibyte), and of one made at every step."""
WHOLE_LIMIT = 1024
"""Up to so many vectors products are sums of a matrix, exact for small values too."""
_DENSE_ADVANTAGE = 64
"""Entries of a matrix multiplied in the time that one point of a transform takes."""


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


@kernel_on.register
def _kernel_on_counts(space: CountVectors, function: Callable[[FloatArray], FloatArray]) -> Kernel:
    """By FFT on the box; as a matrix where there are few vectors and the box is mostly empty."""
    points = transform_points(space.lower, space.upper)
    worth = space.size <= WHOLE_LIMIT or space.size**2 <= _DENSE_ADVANTAGE * points
    if space.size <= MATRIX_LIMIT and worth:
        return DenseKernel(function(space.distances_km()))
    if points > LATTICE_LIMIT:
        raise TooLarge(
            f"the transform of {space.size:,} count vectors ({points:.3g} points) must have at most "
            f"{LATTICE_LIMIT:,}; merge places or split the people into groups"
        )
    lattice = LatticeKernel(function(box_distances(space)), signed=True)
    return PartialKernel(lattice, box_cells(space))
