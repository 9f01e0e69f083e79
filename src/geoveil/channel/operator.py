"""The operator: a non-negative linear map by its products, and how small values of a product stay exact.

Everything that an estimator, a design or an audit multiplies with is one: channels, the columns of the
reports that were seen, kernels of distances, several of them side by side.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, ReadOnly, indices, vector
from geoveil.channel.backend import Array, Backend, ProductsOn, backend_of, dense_products
from geoveil.errors import InvalidInput, Unsupported

RelativeError = 1e-10
"""What a product may be off by, relative, before a value is summed again term by term."""

_BUDGET = 1 << 26
_CHUNK = 1 << 22


class Operator(ReadOnly, ABC):
    """A linear map L with no negative entry: rows are unknowns (cells), columns observations (reports).

    ``push`` and ``pull`` check what they are given, and are right to 1e-9 *relative* for vectors without
    negative entries: values too close to the noise of an FFT are summed again, term by term, while
    that takes at most 2²⁶ terms for all the vectors of one call (always, for one vector of up to 8,192
    rows and columns). Past that, small values are right to 1e-15 of the largest, and never negative.
    ``_push`` and ``_pull``, for inner loops, leave all of that out. Arrays of CuPy, torch and other
    libraries of the array API standard are multiplied where they are, and come back as such.
    """

    _names: ClassVar[tuple[str, str]] = ("row", "column")
    """What a message calls a row and a column."""

    # -- must be defined -------------------------------------------------------------------------

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @abstractmethod
    def _push(self, theta: FloatArray) -> FloatArray:
        """θL: (…, rows) → (…, columns), without checks."""

    @abstractmethod
    def _pull(self, values: FloatArray) -> FloatArray:
        """L·v: (…, columns) → (…, rows), without checks."""

    alike: Hashable | None = None
    """What operators have in common that are nearly one another times factors of rows and of columns, such as
    the mechanisms of a campaign's rounds; ``None`` where that is not known, or they are small."""

    # -- may be overridden: where products go through an FFT -------------------------------------

    exact: bool = False
    """Whether small values of ``_push`` are as accurate as large ones: sums, no FFT."""

    fft_noise: float = 0.0
    """What a product may be off by, absolute, for a vector of length 1; 0 for sums without FFT."""

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        """What ``_push`` may be off by, absolute: (…, 1) or (…, columns)."""
        return noise_of(theta, 0.0 if self.exact else self.fft_noise)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        """What ``_pull`` may be off by, absolute: (…, 1) or (…, rows)."""
        return noise_of(values, 0.0 if self.exact else self.fft_noise)

    # -- should be overridden for speed; exact where the products are not --------------------------

    def _row(self, row: int) -> FloatArray:
        """One exact row, (columns,)."""
        unit = np.zeros(self.shape[0])
        unit[row] = 1.0
        return self._push(unit)

    def _column(self, column: int) -> FloatArray:
        """One exact column, (rows,)."""
        unit = np.zeros(self.shape[1])
        unit[column] = 1.0
        return self._pull(unit)

    def columns(self, chosen: IntArray) -> FloatArray:
        """Some exact columns side by side, (rows, chosen)."""
        stacked = [self._column(int(column)) for column in chosen]
        return np.stack(stacked, axis=-1) if stacked else np.zeros((self.shape[0], 0))

    def matrix(self) -> FloatArray:
        """All entries, (rows, columns)."""
        return np.stack([self._row(row) for row in range(self.shape[0])])

    def _products_on(self, backend: Backend) -> ProductsOn:
        """The products on another device: of a matrix, where the operator has no better way there."""
        if math.prod(self.shape) > EXACT_ENTRIES:
            raise Unsupported(
                f"{type(self).__name__} ({self.shape[0]:,} × {self.shape[1]:,}) must be smaller to be "
                "multiplied on another device; use arrays of NumPy"
            )
        return dense_products(backend, self.matrix())

    # -- what follows ----------------------------------------------------------------------------

    def products_on(self, backend: Backend) -> ProductsOn:
        """The products on another device; what they need is moved there once."""
        moved: dict[str, ProductsOn] = self.__dict__.setdefault("_moved", {})
        if backend.name not in moved:
            moved[backend.name] = self._products_on(backend)
        return moved[backend.name]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_moved"}

    def observed(self, weights: FloatArray) -> SeenColumns:
        """The columns with any weight (…, columns), for a loop of products."""
        counted = weights.reshape(-1, weights.shape[-1]).any(axis=0)
        return SeenColumns(self, np.flatnonzero(counted))

    def push(self, theta: ArrayLike) -> FloatArray:
        """θL: the law of the columns where the rows follow ``theta``; the last axis is the rows."""
        backend = backend_of(theta)
        if backend is not None:
            return self._product_on(backend, theta, pushed=True)
        given = vector("theta", theta, self.shape[0])
        return refined(given, self._push(given), self._push_noise(given), _several(self._column))

    def pull(self, values: ArrayLike) -> FloatArray:
        """L·v: the mean of ``values`` in each row; the last axis is the columns."""
        backend = backend_of(values)
        if backend is not None:
            return self._product_on(backend, values, pushed=False)
        given = vector("values", values, self.shape[1])
        return refined(given, self._pull(given), self._pull_noise(given), _several(self._row))

    def _product_on(self, backend: Backend, given: Array, *, pushed: bool) -> Array:
        """A product on another device; where values are small, by the host, which sums them exactly."""
        products, xp, own = self.products_on(backend), backend.xp, backend.own(given)
        name, size = ("theta", self.shape[0]) if pushed else ("values", self.shape[1])
        if own.ndim == 0 or own.shape[-1] != size:
            raise InvalidInput(
                f"{name} (shape {tuple(own.shape)}) must have {size} entries, one per cell"
            )
        if not bool(xp.all(xp.isfinite(own))):
            raise InvalidInput(f"{name} must hold finite numbers only")
        result = (products.push if pushed else products.pull)(own)
        noise = products.push_noise if pushed else products.pull_noise
        if noise is not None and bool(xp.any(result < noise(own) / RelativeError)):
            return backend.put((self.push if pushed else self.pull)(backend.host(own)))
        return result

    def row(self, row: int) -> FloatArray:
        """One row, such as the law of the reports of somebody in a cell."""
        return self._row(self._one(0, row))

    def column(self, column: int) -> FloatArray:
        """One column, such as the probability of a report at every cell."""
        return self._column(self._one(1, column))

    def _one(self, axis: int, number: int) -> int:
        name, size = self._names[axis], self.shape[axis]
        found = indices(name, number, size)
        if found.ndim:
            raise InvalidInput(f"{name} must be one number; take several from matrix()")
        return int(found)


class DenseOperator(Operator):
    """L as a matrix (rows, columns)."""

    exact = True

    def __init__(self, matrix: FloatArray) -> None:
        given = np.asarray(matrix, dtype=np.float64)
        # By columns is as good as by rows, and products of neither make a copy.
        self._matrix = given if given.flags.f_contiguous else np.ascontiguousarray(given)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self._matrix.shape
        return rows, columns

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta @ self._matrix

    def _pull(self, values: FloatArray) -> FloatArray:
        return values @ self._matrix.T

    def _row(self, row: int) -> FloatArray:
        return self._matrix[row]

    def _column(self, column: int) -> FloatArray:
        return self._matrix[:, column]

    def columns(self, chosen: IntArray) -> FloatArray:
        return self._matrix[:, chosen]

    def matrix(self) -> FloatArray:
        return self._matrix


class StackedOperator(Operator):
    """Several operators of the same rows side by side, the columns of each times its scale.

    People with different mechanisms, or the rounds of one campaign: the generalised iterative
    Bayesian update is the ordinary one on these columns.

    Reference: FREEWILL Alg. 1.
    """

    def __init__(self, parts: Sequence[Operator], scales: ArrayLike = 1.0) -> None:
        if not parts:
            raise InvalidInput("parts must not be empty")
        if len({part.shape[0] for part in parts}) > 1:
            raise InvalidInput("parts must have the same rows")
        self.parts = tuple(parts)
        self.scales: FloatArray = np.broadcast_to(np.asarray(scales, np.float64), len(parts))
        self.starts: IntArray = np.cumsum([0, *(part.shape[1] for part in parts)])
        self.exact = all(part.exact for part in parts)

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts[0].shape[0], int(self.starts[-1])

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Values by column, cut into one array for each part."""
        return np.split(values, self.starts[1:-1], axis=-1)

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._side_by_side([part._push(theta) for part in self.parts])

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        shapes = [(*theta.shape[:-1], part.shape[1]) for part in self.parts]
        noises = [part._push_noise(theta) for part in self.parts]
        return self._side_by_side([*map(np.broadcast_to, noises, shapes)])

    def _pull(self, values: FloatArray) -> FloatArray:
        own = zip(self.parts, self.split(values), strict=True)
        return self._summed(part._pull(part_values) for part, part_values in own)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        own = zip(self.parts, self.split(values), strict=True)
        return self._summed(part._pull_noise(part_values) for part, part_values in own)

    def _products_on(self, backend: Backend) -> ProductsOn:
        xp, parts = backend.xp, [part.products_on(backend) for part in self.parts]
        scales, ends = self.scales.tolist(), self.starts.tolist()

        def side_by_side(laws: Iterable[Any]) -> Any:
            return xp.concat(
                [scale * law for scale, law in zip(scales, laws, strict=True)], axis=-1
            )

        def wide(theta: Any) -> Any:
            none = xp.zeros_like(theta[..., :1])
            noises = [none if part.push_noise is None else part.push_noise(theta) for part in parts]
            return side_by_side(
                xp.broadcast_to(noise, (*theta.shape[:-1], own.shape[1]))
                for noise, own in zip(noises, self.parts, strict=True)
            )

        def summed(values: Any, products: list[Callable[[Array], Array] | None]) -> Any:
            total: Any = 0.0
            for number, product in enumerate(products):
                if product is not None:
                    own = values[..., ends[number] : ends[number + 1]]
                    total = total + scales[number] * product(own)
            return total

        exact = all(part.push_noise is None for part in parts)
        return ProductsOn(
            backend,
            lambda theta: side_by_side(part.push(theta) for part in parts),
            lambda values: summed(values, [part.pull for part in parts]),
            None if exact else wide,
            None if exact else lambda values: summed(values, [part.pull_noise for part in parts]),
        )

    def _scaled(self, parts: Iterable[FloatArray]) -> Iterable[FloatArray]:
        if (self.scales == 1).all():  # as in every loop of an estimator: spare it the copies
            return parts
        return (scale * part for scale, part in zip(self.scales, parts, strict=True))

    def _side_by_side(self, laws: list[FloatArray]) -> FloatArray:
        return np.concatenate([*self._scaled(laws)], axis=-1)

    def _summed(self, parts: Iterable[FloatArray]) -> FloatArray:
        """One after another, so that not all of them are held at once."""
        return np.asarray(sum(self._scaled(parts)))

    def _row(self, row: int) -> FloatArray:
        return self._side_by_side([part._row(row) for part in self.parts])

    def _column(self, column: int) -> FloatArray:
        return self.columns(np.array([column]))[:, 0]

    def columns(self, chosen: IntArray) -> FloatArray:
        result = np.empty((self.shape[0], chosen.size))
        owners = np.searchsorted(self.starts, chosen, side="right") - 1
        for number in np.unique(owners):
            mine = np.flatnonzero(owners == number)
            own = self.parts[number].columns(chosen[mine] - self.starts[number])
            result[:, mine] = self.scales[number] * own
        return result


# --- Small values made exact again: after one product, and throughout a loop of products


def noise_of(vectors: FloatArray, fft_noise: float) -> FloatArray:
    """(…, 1): what products of vectors (…, n) may be off by, absolute."""
    if not fft_noise:
        return np.zeros((*vectors.shape[:-1], 1))
    return fft_noise * np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True))


def _several(line: Callable[[int], FloatArray]) -> Callable[[IntArray], FloatArray]:
    """Lines (i, n) of several numbers, by a function that gives one."""
    return lambda numbers: np.stack([line(number) for number in numbers.tolist()])


def refined(
    given: FloatArray,
    result: FloatArray,
    noise: FloatArray,
    lines: Callable[[IntArray], FloatArray],
    *,
    budget: int = _BUDGET,
    otherwise: float | None = None,
) -> FloatArray:
    """A product with its small values summed again over exact entries, for vectors without negatives.

    ``given`` (…, n) was multiplied, ``result`` (…, k) came out, right to ``noise`` (…, 1 or k) absolute.
    Values below noise/1e-10 are small, and ``lines(i)`` gives the entries (i, n) they come from. Where
    all of them would take more than ``budget`` terms they stay as they are, or become ``otherwise``
    where they are noise.
    """
    if not (result < noise / RelativeError).any():
        return result
    vectors, values = given.reshape(-1, given.shape[-1]), result.reshape(-1, result.shape[-1])
    floors = np.broadcast_to(noise, result.shape).reshape(values.shape)
    sound = (vectors >= 0).all(axis=1, keepdims=True)
    small = sound & (values < floors / RelativeError)
    if np.count_nonzero(small) * given.shape[-1] <= budget:
        wanted = np.flatnonzero(small.any(axis=0))
        step = max(1, _CHUNK // given.shape[-1])
        for start in range(0, wanted.size, step):
            part = wanted[start : start + step]
            block = lines(part)
            for one, value, mine in zip(vectors, values, small[:, part], strict=True):
                # not a BLAS product: its threads would cost more than so short a sum
                value[part[mine]] = (block[mine] * one).sum(axis=1)
    elif otherwise is not None:
        values[values < 10 * floors] = otherwise
    return np.where(sound, np.maximum(values, 0.0), values).reshape(result.shape)


LOOP_NOISE = 1e-9
"""A law this far below the largest may be rounding noise of an FFT; its column is then taken exactly."""
TINY = 1e-300
EXACT_ENTRIES = 1 << 25
"""So many numbers of exact columns are held at once."""
_SMALL_ROWS, _SMALL_COLUMNS = 512, 256
"""Up to so many rows, or columns of a part, a product with a matrix beats any structure.

More rows than that are places in cells, with as many FFTs as a cell has places: both ways grow with
them alike, and the columns say which is faster."""


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
