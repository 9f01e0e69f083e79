"""The columns of an operator that were seen, for loops of products on the processor or another device."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.channel.backend import Array, Selection
from geoveil.channel.operator import (
    EXACT_ENTRIES,
    DenseOperator,
    MovedOperator,
    Operator,
    StackedOperator,
)

LOOP_NOISE = 1e-9
"""A law this far below the largest may be rounding noise of an FFT; its column is then taken exactly."""
TINY = 1e-300
_SMALL_ROWS, _SMALL_COLUMNS = 512, 256
"""Up to so many rows, or columns of a part, a product with a matrix beats any structure.

More rows than that are places in cells, with as many FFTs as a cell has places: both ways grow with
them alike, and the columns say which is faster."""


def observed(operator: Operator, weights: FloatArray) -> SeenColumns:
    """The columns with any weight (…, columns), for a loop of products."""
    counted: BoolArray = np.any(weights.reshape(-1, weights.shape[-1]), axis=0)
    if isinstance(operator, MovedOperator):
        return MovedColumns(operator, counted)
    return SeenColumns(operator, np.flatnonzero(counted))


class SeenColumns:
    """Some columns of an operator for a loop of products: the observations that were seen.

    Cost: one product of the operator each; a small one is turned into a matrix first. Columns whose
    law lies at the noise of the products are fetched once and summed exactly from then on.
    """

    xp: Any = np
    """The library of the arrays that go in and come out."""

    def __init__(self, operator: Operator, seen: IntArray) -> None:
        rows, columns = operator.shape
        self.observations = seen
        """Which columns these are."""
        parts = len(operator.parts) if isinstance(operator, StackedOperator) else 1
        small = rows <= _SMALL_ROWS or columns <= _SMALL_COLUMNS * parts
        if (operator.exact or small) and rows * seen.size <= EXACT_ENTRIES:
            everything = np.array_equal(seen, np.arange(columns))
            dense = isinstance(operator, DenseOperator) and everything
            operator = operator if dense else DenseOperator(operator.columns(seen))
            seen = np.arange(seen.size)
        self.operator = operator
        self.seen = seen
        self._all = seen.size == operator.shape[1]
        self._exact: IntArray = np.zeros(0, dtype=np.int64)
        self._columns: FloatArray = np.zeros((rows, 0))

    def own(self, array: FloatArray) -> FloatArray:
        """An array of the host where the products are made."""
        return array

    def host(self, array: FloatArray) -> FloatArray:
        """The other way round."""
        return array

    def push(self, theta: FloatArray) -> FloatArray:
        """(θL)_i > 0 for the columns seen: (…, rows) → (…, seen)."""
        law = self.operator._push(theta)
        if not self._all:
            law = law.take(self.seen, axis=-1)
        if not self.operator.exact:
            floor = LOOP_NOISE * law.max(axis=-1, keepdims=True)
            if (law < floor).any():
                law = self._refined(theta, law, floor)
        return np.maximum(law, TINY)

    def pull(self, values: FloatArray) -> FloatArray:
        """Σ_i L[x, i]·v_i over the columns seen, never negative for v ≥ 0: (…, seen) → (…, rows)."""
        apart = values[..., self._exact] if self._exact.size else None
        if apart is not None:
            values = values.copy()
            values[..., self._exact] = 0.0
        if not self._all:
            spread = np.zeros((*values.shape[:-1], self.operator.shape[1]))
            spread.T[self.seen] = values.T
            values = spread
        result = self.operator._pull(values)
        if apart is not None:
            result = result + apart @ self._columns.T
        # sums of what is not negative are not; an FFT may be off by a little
        return result if self.operator.exact else np.maximum(result, 0.0)

    def matrix(self) -> FloatArray:
        """(rows, seen), as an array."""
        whole = self._all and isinstance(self.operator, DenseOperator)
        return self.operator.matrix() if whole else self.operator.columns(self.seen)

    def _refined(self, theta: FloatArray, law: FloatArray, floor: FloatArray) -> FloatArray:
        """The law with exact sums where the fast product may be noise."""
        low = np.flatnonzero((law < floor).reshape(-1, law.shape[-1]).any(axis=0))
        new = np.setdiff1d(low, self._exact)
        if (self._exact.size + new.size) * len(self._columns) > EXACT_ENTRIES:
            return np.maximum(law, LOOP_NOISE * floor)
        if new.size:
            fetched = self.operator.columns(self.seen[new])
            self._columns = np.concatenate((self._columns, fetched), axis=1)
            self._exact = np.concatenate((self._exact, new))
        law = law.copy()
        law[..., self._exact] = theta @ self._columns
        return law


class MovedColumns(SeenColumns):
    """All columns, those without weight too: on a device leaving them out would cost more than they do.

    Columns with weight whose law lies at the noise of the products are summed exactly, as on the host.
    """

    def __init__(self, operator: MovedOperator, counted: BoolArray) -> None:
        backend = operator.backend
        self.operator: MovedOperator = operator
        self.xp = backend.xp
        self.observations = np.arange(operator.shape[1])
        self._counted = backend.put_as(counted, np.bool_)
        self._least, self._none = backend.put(TINY), backend.put(0.0)
        self._exact: IntArray = np.zeros(0, dtype=np.int64)
        self._apart: Any = None

    def own(self, array: FloatArray) -> Array:
        return self.operator.backend.own(array)

    def host(self, array: Array) -> FloatArray:
        return self.operator.backend.host(array)

    def push(self, theta: Array) -> Array:
        law = self.operator._push(theta)
        if not self.operator.exact:
            floor = LOOP_NOISE * self.xp.max(law, axis=-1, keepdims=True)
            low = (law < floor) & self._counted
            if bool(self.xp.any(low)):
                law = self._summed(theta, law, floor, low)
        return self.xp.maximum(law, self._least)

    def pull(self, values: Array) -> Array:
        if self._apart is None:
            return self.xp.maximum(self.operator._pull(values), self._none)
        columns, kept, places = self._apart
        result = self.operator._pull(values * kept)
        apart = places.take(values) @ self.xp.matrix_transpose(columns)
        return self.xp.maximum(result + apart, self._none)

    def matrix(self) -> FloatArray:
        return self.operator.matrix()

    def _summed(self, theta: Array, law: Array, floor: Array, low: Array) -> Array:
        """The law with exact sums where the fast product may be noise."""
        backend, (rows, total) = self.operator.backend, self.operator.shape
        found = self.host(low).reshape(-1, total).any(axis=0)
        wanted = np.union1d(np.flatnonzero(found), self._exact)
        if wanted.size * rows > EXACT_ENTRIES:
            return self.xp.maximum(law, LOOP_NOISE * floor)
        if wanted.size > self._exact.size:
            kept = np.ones(total)
            kept[wanted] = 0.0
            self._exact = wanted
            self._apart = (
                backend.put(self.operator.columns(wanted)),
                backend.put(kept),
                Selection(wanted, total).on(backend),
            )
        columns, kept, places = self._apart
        return law * kept + places.put(theta @ columns)
