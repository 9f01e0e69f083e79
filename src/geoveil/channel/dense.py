"""A channel given as a matrix."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, frozen
from geoveil.channel.base import Channel
from geoveil.channel.guarantee import Guarantee, checked_guarantee
from geoveil.errors import InvalidInput
from geoveil.space.base import Space


class DenseChannel(Channel):
    """Any channel, by its matrix: C[x, y] = P(y | x).

    Guarantee: whatever is claimed, or ``None``; ``certify`` finds the exact loss either way.
    Cost: m·n per product.

    >>> import geoveil as gv
    >>> coin = gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> coin.push([1.0, 0.0]).tolist()
    [0.75, 0.25]
    """

    def __init__(
        self, space: Space, matrix: npt.ArrayLike, *, guarantee: Guarantee | None = None
    ) -> None:
        self.space = space
        self._matrix = frozen(_stochastic(matrix, space.size))
        self.report_count = self._matrix.shape[1]
        self.guarantee = checked_guarantee("guarantee", guarantee)

    @property
    def only_claimed(self) -> bool:
        return self.guarantee is not None

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta @ self._matrix

    def _pull(self, values: FloatArray) -> FloatArray:
        return values @ self._matrix.T

    def _row(self, cell: int) -> FloatArray:
        row: FloatArray = self._matrix[cell]
        return row

    def _column(self, report: int) -> FloatArray:
        column: FloatArray = self._matrix[:, report]
        return column

    def matrix(self) -> FloatArray:
        return self._matrix

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, DenseChannel)
            and self.space == other.space
            and np.array_equal(self._matrix, other._matrix)
        )

    def __hash__(self) -> int:
        return hash((self.space, self.report_count))

    def __repr__(self) -> str:
        return f"DenseChannel({self.space!r}, {self.space.size} × {self.report_count})"


def _stochastic(matrix: npt.ArrayLike, size: int) -> FloatArray:
    try:
        array = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("matrix must be rows of numbers, all of one length") from None
    if array.ndim != 2 or array.shape[0] != size or array.shape[1] == 0:
        raise InvalidInput(
            f"matrix (shape {array.shape}) must have {size} rows, one per cell, and a column per report"
        )
    if not np.isfinite(array).all() or (array < 0).any():
        raise InvalidInput("matrix must hold probabilities: finite and not negative")
    sums = array.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > 1e-9:
        raise InvalidInput(f"matrix row {worst} (sum {sums[worst]:.12g}) must sum to 1")
    return array
