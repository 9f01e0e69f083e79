"""The linear system vC = q behind matrix inversion, factorised once and solved many times."""

from __future__ import annotations

from typing import cast

import numpy as np
from scipy.linalg import lstsq, qr, solve_triangular
from scipy.linalg.lapack import dgecon, dgetrf, dgetrs

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.base import Channel
from geoveil.errors import Unsupported

SINGULAR = 1e-13
"""A channel is singular when its reciprocal condition (relative singular value) is below this."""


class LinearSystem:
    """q ↦ v with vC = q, or the shortest v with vC nearest to q.

    A square channel of full rank is factorised (LU); any other is solved by least squares (a complete
    orthogonal factorisation), and ``how`` says so. Never an inverse.

    Cost: m³ once and m² per solution when square; otherwise about 4·m³ per call, however many
    right-hand sides it has. Refused above 4,096 cells.

    >>> from geoveil.channel.dense import DenseChannel
    >>> from geoveil.space.line import Line
    >>> system = LinearSystem(DenseChannel(Line(2), [[0.75, 0.25], [0.25, 0.75]]))
    >>> system.solve(np.array([0.625, 0.375])).round(12).tolist()
    [0.75, 0.25]
    >>> system.how
    'solved exactly'
    """

    def __init__(self, channel: Channel) -> None:
        self.matrix = channel.matrix()
        _check_alphabet(self.matrix)
        self.cells, self.reports = self.matrix.shape
        self.rank = self.cells
        self.how = "solved exactly"
        self._factors = self._factorised()

    def solve(self, laws: FloatArray) -> FloatArray:
        """(…, reports) → (…, cells)."""
        columns = laws.reshape(-1, self.reports).T
        if self._factors is not None:
            solved = dgetrs(*self._factors, columns, trans=1)[0]
        else:
            solved = lstsq(self.matrix.T, columns, cond=SINGULAR, lapack_driver="gelsy")[0]
        return cast(FloatArray, solved.T.reshape(*laws.shape[:-1], self.cells))

    def lost(self) -> FloatArray:
        """(cells, cells − rank): an orthonormal basis of the changes of v that vC does not show."""
        if self.rank == self.cells:
            return np.zeros((self.cells, 0))
        triangle, order = qr(self.matrix.T, mode="r", pivoting=True)
        known = solve_triangular(
            triangle[: self.rank, : self.rank], triangle[: self.rank, self.rank :]
        )
        basis = np.empty((self.cells, self.cells - self.rank))
        basis[order] = np.concatenate([-known, np.eye(self.cells - self.rank)])
        return cast(FloatArray, qr(basis, mode="economic")[0])

    def _factorised(self) -> tuple[FloatArray, IntArray] | None:
        if self.cells != self.reports:
            self._note_least_squares(f"{self.reports} reports for {self.cells} cells")
            return None
        factors = _lu(self.matrix)
        if factors is None:
            self._note_least_squares("the channel is singular")
        return factors

    def _note_least_squares(self, why: str) -> None:
        unit = np.zeros(self.reports)
        self.rank = int(lstsq(self.matrix.T, unit, cond=SINGULAR, lapack_driver="gelsy")[2])
        told = "" if self.rank == self.cells else f"; it cannot tell all {self.cells} cells apart"
        self.how = f"solved by least squares: {why}{told}"


def _lu(matrix: FloatArray) -> tuple[FloatArray, IntArray] | None:
    """The factors of a square matrix, or None where it is singular to working accuracy."""
    factors, pivots, zero_at = dgetrf(matrix)
    if zero_at > 0:
        return None
    reciprocal = dgecon(factors, np.abs(matrix).sum(axis=0).max(), norm="1")[0]
    return (factors, pivots) if reciprocal > SINGULAR else None


def _check_alphabet(matrix: FloatArray) -> None:
    if np.abs(matrix.sum(axis=1) - 1.0).max() > 1e-6:
        raise Unsupported(
            "matrix inversion needs every report of the channel, and this tally keeps only those "
            "seen; use RapporEstimator for RAPPOR, or IterativeBayesianUpdate"
        )
