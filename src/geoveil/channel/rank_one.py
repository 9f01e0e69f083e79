"""A channel that is a diagonal plus a matrix of rank one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.base import Channel
from geoveil.channel.kernel import kernel_on, lattice_shape
from geoveil.space.base import Space


class RankOneChannel(Channel):
    """C[x, y] = diagonal[x]·[x = y] + left[x]·right[y], reports are cells; products cost O(m)."""

    def __init__(
        self, space: Space, diagonal: FloatArray, left: FloatArray, right: FloatArray
    ) -> None:
        self.space = space
        self.report_count = space.size
        self._diagonal, self._left, self._right = diagonal, left, right

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta * self._diagonal + (theta @ self._left)[..., None] * self._right

    def _pull(self, values: FloatArray) -> FloatArray:
        return values * self._diagonal + (values @ self._right)[..., None] * self._left

    def _row(self, cell: int) -> FloatArray:
        row = self._left[cell] * self._right
        row[cell] += self._diagonal[cell]
        return row

    def _column(self, report: int) -> FloatArray:
        column = self._left * self._right[report]
        column[report] += self._diagonal[report]
        return column

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        if lattice_shape(self.space) is None:
            return super().mean_of_distance(function)
        own = self._diagonal * function(np.zeros(1))
        return np.asarray(own + self._left * kernel_on(self.space, function).apply(self._right))
