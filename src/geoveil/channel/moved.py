"""An operator moved to another device, for loops of products there."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.backend import Array, Backend, scattered
from geoveil.channel.operator import EXACT_ENTRIES, LOOP_NOISE, TINY, Operator, SeenColumns


class MovedOperator(Operator):
    """The same operator, its products made on a device: what goes in and comes out lies there.

    Entries and columns are those of the host.
    """

    def __init__(self, operator: Operator, backend: Backend) -> None:
        self.home = operator
        self.backend = backend
        self.products = operator.products_on(backend)
        self.exact = self.products.push_noise is None

    @property
    def shape(self) -> tuple[int, int]:
        return self.home.shape

    def _push(self, theta: Array) -> Array:
        return self.products.push(theta)

    def _pull(self, values: Array) -> Array:
        return self.products.pull(values)

    def _row(self, row: int) -> FloatArray:
        return self.home._row(row)

    def _column(self, column: int) -> FloatArray:
        return self.home._column(column)

    def columns(self, chosen: IntArray) -> FloatArray:
        return self.home.columns(chosen)

    def matrix(self) -> FloatArray:
        return self.home.matrix()

    def observed(self, weights: FloatArray) -> SeenColumns:
        return MovedColumns(self, weights)


class MovedColumns(SeenColumns):
    """All columns, those without weight too: on a device leaving them out would cost more than they do.

    Columns with weight whose law lies at the noise of the products are summed exactly, as on the host.
    """

    def __init__(self, operator: MovedOperator, weights: FloatArray) -> None:
        backend, columns = operator.backend, operator.shape[1]
        self.operator: MovedOperator = operator
        self.xp = backend.xp
        self.observations = np.arange(columns)
        counted = weights.reshape(-1, columns).any(axis=0)
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
        columns, places, kept, _ = self._apart
        result = self.operator._pull(values * kept)
        apart = self.xp.take(values, places, axis=-1) @ self.xp.matrix_transpose(columns)
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
                backend.put_places(wanted),
                backend.put(kept),
                scattered(backend, wanted, total),
            )
        columns, _, kept, spread = self._apart
        return law * kept + spread(theta @ columns)
