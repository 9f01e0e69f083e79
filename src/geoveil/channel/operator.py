"""The operator: a non-negative linear map by its products, and how small values of a product stay exact.

Everything that an estimator, a design or an audit multiplies with is one: channels, the columns of the
reports that were seen, kernels of distances, several of them side by side.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, ReadOnly, indices, vector
from geoveil.channel.backend import HOST, Array, Backend, Selection, backend_of, host_array
from geoveil.errors import InvalidInput, Unsupported

RelativeError = 1e-10
"""What a product may be off by, relative, before a value is summed again term by term."""

Product = Callable[[Array], Array]
EXACT_ENTRIES = 1 << 25
"""So many numbers of exact columns are held at once."""
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
    the mechanisms of a campaign's rounds; ``None`` where that is not known."""

    # -- may be overridden: where products go through an FFT -------------------------------------

    exact: bool = False
    """Whether small values of ``_push`` are as accurate as large ones: sums, no FFT."""

    fft_noise: float = 0.0
    """What a product may be off by, absolute, for a vector of length 1; 0 for sums without FFT."""

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        """What ``_push`` may be off by, absolute: (…, 1) or (…, columns)."""
        return noise_of(theta, 0.0 if self.exact else self.fft_noise, self._at)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        """What ``_pull`` may be off by, absolute: (…, 1) or (…, rows)."""
        return noise_of(values, 0.0 if self.exact else self.fft_noise, self._at)

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

    # -- should be overridden where products are made on another device, too -----------------------

    _at: Backend = HOST
    """Where the products are made: those with ``_made_of`` take what they need from its library."""

    _made_of: ClassVar[tuple[str, ...]] = ()
    """The attributes that the products are made of: arrays, selections, and operators or tuples of these."""

    def _on(self, backend: Backend) -> MovedOperator:
        """Moved to another device: what it is made of, or a matrix where it does not say."""
        if self._made_of:
            parts = {name: _moved(getattr(self, name), backend) for name in self._made_of}
            there = object.__new__(type(self))
            vars(there).update(vars(self), _at=backend, **parts)
            noises = there._push_noise, there._pull_noise
            return MovedOperator(
                self, backend, there._push, there._pull, exact=_exact(parts), noises=noises
            )
        if math.prod(self.shape) > EXACT_ENTRIES:
            raise Unsupported(
                f"{type(self).__name__} ({self.shape[0]:,} × {self.shape[1]:,}) must be smaller to be "
                "multiplied on another device; use arrays of NumPy"
            )
        held = backend.put(self.matrix())
        turned = backend.xp.matrix_transpose(held)
        return MovedOperator(
            self, backend, lambda theta: theta @ held, lambda values: values @ turned, exact=True
        )

    # -- what follows ----------------------------------------------------------------------------

    def on(self, backend: Backend) -> MovedOperator:
        """The same operator, its products made on another device; what they need is moved there once."""
        moved: dict[str, MovedOperator] = self.__dict__.setdefault("_moved", {})
        if backend.name not in moved:
            moved[backend.name] = self._on(backend)
        return moved[backend.name]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_moved"}

    def push(self, theta: ArrayLike) -> FloatArray:
        """θL: the law of the columns where the rows follow ``theta``; the last axis is the rows."""
        backend = backend_of(theta)
        if backend is not None:
            return self.on(backend).push(theta)
        array = vector("theta", theta, self.shape[0])
        return refined(array, self._push(array), self._push_noise(array), _several(self._column))

    def pull(self, values: ArrayLike) -> FloatArray:
        """L·v: the mean of ``values`` in each row; the last axis is the columns."""
        backend = backend_of(values)
        if backend is not None:
            return self.on(backend).pull(values)
        array = vector("values", values, self.shape[1])
        return refined(array, self._pull(array), self._pull_noise(array), _several(self._row))

    def row(self, row: int) -> FloatArray:
        """One row, such as the law of the reports of somebody in a cell."""
        return self._row(self._one(0, row))

    def column(self, column: int) -> FloatArray:
        """One column, such as the probability of a report at every cell."""
        return self._column(self._one(1, column))

    def _one(self, axis: int, number: int) -> int:
        name, size = self._names[axis], self.shape[axis]
        index = indices(name, number, size)
        if index.ndim:
            raise InvalidInput(f"{name} must be one number; take several from matrix()")
        return int(index)


class DenseOperator(Operator):
    """L as a matrix (rows, columns)."""

    exact = True

    def __init__(self, matrix: FloatArray) -> None:
        array = np.asarray(matrix, dtype=np.float64)
        # By columns is as good as by rows, and products of neither make a copy.
        self._matrix = array if array.flags.f_contiguous else np.ascontiguousarray(array)

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

    _made_of = ("parts",)

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
        return [values[..., start:end] for start, end in pairwise(self.starts.tolist())]

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._side_by_side(part._push(theta) for part in self.parts)

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        shapes = [(*theta.shape[:-1], part.shape[1]) for part in self.parts]
        noises = [part._push_noise(theta) for part in self.parts]
        return self._side_by_side(map(self._at.xp.broadcast_to, noises, shapes))

    def _pull(self, values: FloatArray) -> FloatArray:
        own = zip(self.parts, self.split(values), strict=True)
        return self._summed(part._pull(part_values) for part, part_values in own)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        own = zip(self.parts, self.split(values), strict=True)
        return self._summed(part._pull_noise(part_values) for part, part_values in own)

    def _scaled(self, parts: Iterable[FloatArray]) -> Iterable[FloatArray]:
        if (self.scales == 1).all():  # as in every loop of an estimator: spare it the copies
            return parts
        return (scale * part for scale, part in zip(self.scales.tolist(), parts, strict=True))

    def _side_by_side(self, laws: Iterable[FloatArray]) -> FloatArray:
        return self._at.joined([*self._scaled(laws)])

    def _summed(self, parts: Iterable[FloatArray]) -> Array:
        """One after another, so that not all of them are held at once."""
        return sum(self._scaled(parts))

    def _row(self, row: int) -> FloatArray:
        return self._side_by_side(part._row(row) for part in self.parts)

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


class MovedOperator(Operator):
    """An operator whose products are made on another device: what goes in and comes out lies there.

    Entries and columns are those of the host. ``exact`` where no FFT is behind the products; else these are
    off by ``fft_noise`` as on the host, or by what ``noises`` say for a push and a pull.
    """

    def __init__(
        self,
        home: Operator,
        backend: Backend,
        push: Product,
        pull: Product,
        *,
        exact: bool = False,
        noises: tuple[Product, Product] | None = None,
    ) -> None:
        self.home, self.exact, self.fft_noise = home, exact, home.fft_noise
        self._at = backend
        self._products, self._noises = (push, pull), noises

    @property
    def shape(self) -> tuple[int, int]:
        return self.home.shape

    def _push(self, theta: Array) -> Array:
        return self._products[0](theta)

    def _pull(self, values: Array) -> Array:
        return self._products[1](values)

    def _push_noise(self, theta: Array) -> Array:
        return self._noises[0](theta) if self._noises else super()._push_noise(theta)

    def _pull_noise(self, values: Array) -> Array:
        return self._noises[1](values) if self._noises else super()._pull_noise(values)

    def push(self, theta: Array) -> Array:
        vectors = self._checked("theta", theta, self.shape[0])
        return self._refined(vectors, self._push(vectors), self._push_noise, self.home.push)

    def pull(self, values: Array) -> Array:
        vectors = self._checked("values", values, self.shape[1])
        return self._refined(vectors, self._pull(vectors), self._pull_noise, self.home.pull)

    def _checked(self, name: str, array: Array, size: int) -> Array:
        xp, own = self._at.xp, self._at.own(array)
        if own.ndim == 0 or own.shape[-1] != size:
            raise InvalidInput(
                f"{name} (shape {tuple(own.shape)}) must have {size} entries, one per cell"
            )
        if not bool(xp.all(xp.isfinite(own))):
            raise InvalidInput(f"{name} must hold finite numbers only")
        return own

    def _refined(self, vectors: Array, result: Array, noise: Product, at_home: Product) -> Array:
        """The product; where values are small, that of the host, which sums them exactly."""
        if not self.exact and bool(self._at.xp.any(result < noise(vectors) / RelativeError)):
            return self._at.put(at_home(host_array(vectors)))
        return result

    def _row(self, row: int) -> FloatArray:
        return self.home._row(row)

    def _column(self, column: int) -> FloatArray:
        return self.home._column(column)

    def columns(self, chosen: IntArray) -> FloatArray:
        return self.home.columns(chosen)

    def matrix(self) -> FloatArray:
        return self.home.matrix()


def _moved(part: Any, backend: Backend) -> Any:
    """A part that products need (an array, an operator, a tuple of these), on another device."""
    if isinstance(part, tuple):
        return tuple(_moved(item, backend) for item in part)
    if isinstance(part, Operator | Selection):
        return part.on(backend)
    return part if part is None else backend.put(part)


def _exact(parts: Any) -> bool:
    """Whether no operator among them makes its products by FFT."""
    if isinstance(parts, dict | tuple):
        return all(map(_exact, parts.values() if isinstance(parts, dict) else parts))
    return not isinstance(parts, Operator) or parts.exact


# --- Small values made exact again: after one product, and throughout a loop of products


def noise_of(vectors: Array, fft_noise: float, at: Backend = HOST) -> Array:
    """(…, 1): what products of vectors (…, n) may be off by, absolute."""
    if not fft_noise:
        return at.xp.zeros_like(vectors[..., :1])
    return fft_noise * at.xp.sqrt(at.xp.sum(vectors * vectors, axis=-1, keepdims=True))


def _several(line: Callable[[int], FloatArray]) -> Callable[[IntArray], FloatArray]:
    """Lines (i, n) of several numbers, by a function that gives one."""
    return lambda numbers: np.stack([line(number) for number in numbers.tolist()])


def refined(
    vectors: FloatArray,
    result: FloatArray,
    noise: FloatArray,
    lines: Callable[[IntArray], FloatArray],
    *,
    budget: int = _BUDGET,
    otherwise: float | None = None,
) -> FloatArray:
    """A product with its small values summed again over exact entries, for vectors without negatives.

    ``result`` (…, k) is what came out for ``vectors`` (…, n), right to ``noise`` (…, 1 or k) absolute.
    Values below noise/1e-10 are small, and ``lines(i)`` gives the entries (i, n) they come from. Where
    all of them would take more than ``budget`` terms they stay as they are, or become ``otherwise``
    where they are noise.
    """
    if not (result < noise / RelativeError).any():
        return result
    rows, values = vectors.reshape(-1, vectors.shape[-1]), result.reshape(-1, result.shape[-1])
    floors = np.broadcast_to(noise, result.shape).reshape(values.shape)
    sound = (rows >= 0).all(axis=1, keepdims=True)
    small = sound & (values < floors / RelativeError)
    if np.count_nonzero(small) * vectors.shape[-1] <= budget:
        numbers = np.flatnonzero(small.any(axis=0))
        step = max(1, _CHUNK // vectors.shape[-1])
        for start in range(0, numbers.size, step):
            part = numbers[start : start + step]
            block = lines(part)
            for one, value, mine in zip(rows, values, small[:, part], strict=True):
                # not a BLAS product: its threads would cost more than so short a sum
                value[part[mine]] = (block[mine] * one).sum(axis=1)
    elif otherwise is not None:
        values[values < 10 * floors] = otherwise
    return np.where(sound, np.maximum(values, 0.0), values).reshape(result.shape)
