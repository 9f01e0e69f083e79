"""The columns of an operator with observations, for loops of products on the processor or another device."""

from __future__ import annotations

import numpy as np

from geoveil.arrays import BoolArray, FloatArray
from geoveil.channel.backend import Array, Selection, host_array
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
_MANY_VECTORS, _MANY_ENTRIES = 32, 1 << 22
"""For so many vectors at once it does with twice as many columns, while these are so few entries."""


class ObservedColumns:
    """The columns of an operator with any weight (…, columns), for a loop of products.

    Cost: one product of the operator each; a small one is turned into a matrix first. Columns whose
    law lies at the noise of the products are fetched once and summed exactly from then on. On another
    device these are all columns: leaving out those without weight would cost more than they do.
    """

    def __init__(self, operator: Operator, weights: FloatArray) -> None:
        rows, columns = operator.shape
        counted: BoolArray = np.any(weights.reshape(-1, columns), axis=0)
        elsewhere = isinstance(operator, MovedOperator)
        chosen = np.arange(columns) if elsewhere else np.flatnonzero(counted)
        self.observations = chosen
        """Which columns these are."""
        parts = len(operator.parts) if isinstance(operator, StackedOperator) else 1
        many = weights.size >= _MANY_VECTORS * columns and rows * columns <= _MANY_ENTRIES
        small = rows <= _SMALL_ROWS or columns <= (1 + many) * _SMALL_COLUMNS * parts
        if not elsewhere and (operator.exact or small) and rows * chosen.size <= EXACT_ENTRIES:
            everything = np.array_equal(chosen, np.arange(columns))
            dense = isinstance(operator, DenseOperator) and everything
            operator = operator if dense else DenseOperator(operator.columns(chosen))
            chosen = np.arange(chosen.size)
        self.operator = operator
        self._chosen = chosen
        self._all = chosen.size == operator.shape[1]
        self.at = operator._at
        """Where the products are made, and the arrays that go in and come out."""
        self.xp = self.at.xp
        self._counted = self.at.put_as(counted, np.bool_) if elsewhere else None
        self._least, self._none = self.at.put(TINY), self.at.put(0.0)
        # What is summed exactly: which, their columns, and a factor that leaves the others.
        self._exact = Selection(np.zeros(0, dtype=np.int64), chosen.size)
        self._columns: Array = self.at.put(np.zeros((rows, 0)))
        self._places, self._others = self._exact, self._none

    def push(self, theta: Array) -> Array:
        """(θL)_i > 0 for the columns seen: (…, rows) → (…, seen)."""
        law = self.operator._push(theta)
        if not self._all:
            law = law.take(self._chosen, axis=-1)
        if not self.operator.exact:
            floor = LOOP_NOISE * self.xp.max(law, axis=-1, keepdims=True)
            low = law < floor if self._counted is None else (law < floor) & self._counted
            if bool(self.xp.any(low)):
                law = self._refined(theta, law, floor, low)
        return self.xp.maximum(law, self._least)

    def pull(self, values: Array) -> Array:
        """Σ_i L[x, i]·v_i over the columns seen, never negative for v ≥ 0: (…, seen) → (…, rows)."""
        apart = self._places.take(values) if self._exact.places.size else None
        if apart is not None:
            values = values * self._others
        if not self._all:
            spread = np.zeros((*values.shape[:-1], self.operator.shape[1]))
            spread.T[self._chosen] = values.T
            values = spread
        result = self.operator._pull(values)
        if apart is not None:
            result = result + apart @ self._columns.T
        # sums of what is not negative are not; an FFT may be off by a little
        return result if self.operator.exact else self.xp.maximum(result, self._none)

    def matrix(self) -> FloatArray:
        """(rows, seen), as an array."""
        whole = self._all and isinstance(self.operator, DenseOperator | MovedOperator)
        return self.operator.matrix() if whole else self.operator.columns(self._chosen)

    def _refined(self, theta: Array, law: Array, floor: Array, low: Array) -> Array:
        """The law with exact sums where the fast product may be noise."""
        exact, size = self._exact.places, self._exact.size
        new = np.setdiff1d(np.flatnonzero(host_array(low).reshape(-1, size).any(axis=0)), exact)
        if (exact.size + new.size) * self.operator.shape[0] > EXACT_ENTRIES:
            return self.xp.maximum(law, LOOP_NOISE * floor)
        if new.size:
            fetched = self.at.put(self.operator.columns(self._chosen[new]))
            self._columns = self.at.joined((self._columns, fetched))
            self._exact = Selection(np.concatenate((exact, new)), size)
            self._places = self._exact.on(self.at)
            others = np.ones(size)
            others[self._exact.places] = 0.0
            self._others = self.at.put(others)
        return law * self._others + self._places.put(theta @ self._columns)
