"""Count vectors: all ways to spread people over places, and the box of the lattice around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy import fft

from geoveil.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    by_position,
    count,
    frozen,
    numbers,
    ragged,
)
from geoveil.channel.kernel import DenseKernel, Kernel, LatticeKernel, PartialKernel, kernel_on
from geoveil.errors import InvalidInput, OutsideSpace, TooLarge
from geoveil.space import register_space
from geoveil.space.space import Space, entries

VECTOR_LIMIT = 1 << 22
"""No more count vectors than this are listed."""
MOST_PEOPLE = 1 << 24
"""Of a release that leaks least; its tables have an entry for each number of people."""
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class CountVectors(Space):
    """The vectors of ``places`` counts, whole and not negative, that sum to ``people``.

    There are C(M + L − 1, L − 1) of them for M people and L places, in lexicographic order.
    ``lower`` and ``upper`` (one bound per place) keep a part of them: a window.

    Units: distances are the Euclidean norm of the difference of two vectors, in people; one person who
    goes elsewhere moves the vector by √2. Every name that ends in ``_km`` reads in that unit.
    Cost: L·N numbers; refused above 2²² vectors.
    Reference: AGG §2.1 and §4.3 (there ``EC(M, L)``).

    >>> vectors = CountVectors(people=4, places=2)
    >>> vectors.vectors.tolist()
    [[0, 4], [1, 3], [2, 2], [3, 1], [4, 0]]
    >>> vectors.index([3, 1]).item(), vectors.distance_km(0, 1).round(3).item()
    (3, 1.414)
    """

    people: int
    places: int
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    unit = "people"

    def __post_init__(self) -> None:
        count("people", self.people)
        count("places", self.places)
        for name, default, within in (("lower", 0, max), ("upper", self.people, min)):
            limits = getattr(self, name)
            if len(limits) not in (0, self.places):
                raise InvalidInput(
                    f"{name} ({len(limits)} bounds) must have {self.places}, one per place"
                )
            bounds = [count(name, bound, least=-self.people) for bound in limits]
            clipped = (within(bound, default) for bound in bounds or [default] * self.places)
            object.__setattr__(self, name, tuple(clipped))
        size = self.estimated_size(self.people, self.lower, self.upper)
        if size > VECTOR_LIMIT:
            raise TooLarge(
                f"count vectors (about {size:.3g}, {self.people} people over {self.places} places) "
                f"must be at most {VECTOR_LIMIT:,}; merge places or split the people into groups"
            )
        if size < 1:
            raise InvalidInput(f"bounds must leave a vector that sums to {self.people}")
        object.__setattr__(self, "size", int(self._ways[0, self.people]))

    @staticmethod
    def estimated_size(people: int, lower: tuple[int, ...], upper: tuple[int, ...]) -> float:
        """How many vectors a window has, to rounding, without listing them."""
        return float(_completions(people, lower, upper, np.float64)[0, people])

    # -- order -----------------------------------------------------------------------------------

    @cached_property
    def _ways(self) -> IntArray:
        # Sums may pass 2⁶³ where no vector of this lattice needs them; the differences, taken modulo
        # 2⁶⁴ by NumPy's integers, are right all the same.
        return _completions(self.people, self.lower, self.upper, np.int64)

    @cached_property
    def vectors(self) -> IntArray:
        """(size, places): the counts themselves."""
        least = np.append(np.cumsum(self.lower[::-1])[::-1], 0)
        most = np.append(np.cumsum(self.upper[::-1])[::-1], 0)
        columns: list[IntArray] = []
        remaining = np.array([self.people])
        for place in range(self.places):
            first = np.maximum(self.lower[place], remaining - most[place + 1])
            last = np.minimum(self.upper[place], remaining - least[place + 1])
            which, more = ragged(last - first + 1)
            columns = [*(column[which] for column in columns), first[which] + more]
            remaining = remaining[which] - columns[-1]
        return frozen(np.stack(columns, axis=1))

    @cached_property
    def squared_distances(self) -> npt.NDArray[np.unsignedinteger]:
        """(size, size): ‖a − ã‖² of all pairs, at most 2M², in as few bytes as hold it."""
        counts = self.vectors.astype(np.float64)
        lengths = np.square(counts).sum(axis=1)
        kind = np.min_scalar_type(2 * self.people**2)
        squares = np.empty((self.size, self.size), dtype=kind)
        step = max(1, _CHUNK // self.size)
        for at in range(0, self.size, step):
            part = slice(at, at + step)
            squares[part] = lengths[part, None] + lengths - 2.0 * (counts[part] @ counts.T)
        return squares

    def index(self, counts: npt.ArrayLike) -> IntArray:
        """The numbers of vectors (…, places); a vector that is none of these is refused."""
        checked = checked_counts(counts, self.people, self.places)
        if not self.holds(checked).all():
            raise OutsideSpace("counts must lie within the bounds of the window")
        return self._index(checked)

    def _index(self, vectors: IntArray) -> IntArray:
        before = np.cumsum(self._ways, axis=1)
        remaining = np.full(vectors.shape[:-1], self.people)
        rank = np.zeros(vectors.shape[:-1], dtype=np.int64)
        for place in range(self.places):
            value, low = vectors[..., place], self.lower[place]
            # Vectors that agree so far and have fewer here: completions of remaining − low … − value + 1.
            rank += np.where(
                value > low,
                before[place + 1, np.clip(remaining - low, 0, None)]
                - before[place + 1, np.clip(remaining - value, 0, None)],
                0,
            )
            remaining = remaining - value
        return rank

    def holds(self, counts: npt.ArrayLike) -> BoolArray:
        """Which of some valid vectors (…, places) lie within the bounds."""
        checked = checked_counts(counts, self.people, self.places)
        return np.asarray(((checked >= self.lower) & (checked <= self.upper)).all(axis=-1))

    # -- metric ----------------------------------------------------------------------------------

    def _centres(self) -> FloatArray:
        return self.vectors.astype(np.float64)  # (size, places)

    @staticmethod
    def _norm(difference: FloatArray) -> FloatArray:
        return np.sqrt(np.einsum("...i,...i->...", difference, difference))

    def distances_km(self) -> FloatArray:
        self._check_distances()
        return np.asarray(scipy.spatial.distance.cdist(self.centres, self.centres))

    @cached_property
    def spare(self) -> int:
        """The place whose count follows from the others in the box of a transform: the widest one."""
        return int(np.argmax(np.subtract(self.upper, self.lower)))

    # -- documents -------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Kind, people, places, lower and upper bounds."""
        sizes = {"kind": "count-vectors", "people": self.people, "places": self.places}
        return {**sizes, "lower": list(self.lower), "upper": list(self.upper)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CountVectors:
        people, places, lower, upper = entries(
            values, "count-vectors", "people", "places", "lower", "upper"
        )
        return cls(people, places, tuple(lower), tuple(upper))


register_space("count-vectors", CountVectors)


def checked_counts(counts: npt.ArrayLike, people: int, places: int) -> IntArray:
    """Counts (…, places) as integers, each vector valid; the message never repeats a count."""
    values = numbers("counts", by_position("counts", counts), "whole numbers")
    if values.ndim == 0 or values.shape[-1] != places:
        raise InvalidInput(
            f"counts (shape {values.shape}) must have {places} entries, one per place"
        )
    if not np.isfinite(values).all() or (values != np.round(values)).any():
        raise InvalidInput("counts must be whole numbers; round them before")
    if (values < 0).any():
        raise InvalidInput("counts must not be negative")
    with np.errstate(over="ignore"):  # what is too large is infinite
        sums = values.sum(axis=-1)
    if (sums != people).any():
        wrong = int(np.flatnonzero(np.atleast_1d(sums != people).ravel())[0])
        raise InvalidInput(
            f"counts must sum to {people}, the number of people; vector {wrong} does not"
        )
    return values.astype(np.int64)


def number_of_vectors(people: int, places: int) -> int:
    """C(M + L − 1, L − 1): how many vectors of ``places`` counts sum to ``people``.

    >>> number_of_vectors(1000, 3)
    501501
    """
    return math.comb(people + places - 1, places - 1)


def _completions(
    people: int, lower: tuple[int, ...], upper: tuple[int, ...], kind: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Entry (i, s): how many ways places i, i + 1, … can hold s people within their bounds."""
    ways = np.zeros((len(lower) + 1, people + 1), dtype=kind)
    ways[-1, 0] = 1
    for place in range(len(lower) - 1, -1, -1):
        low, high = min(lower[place], people + 1), min(upper[place], people)
        total = np.cumsum(ways[place + 1])
        ways[place, low:] = total[: people + 1 - low]
        ways[place, high + 1 :] -= total[: people - high]
    return ways


# --- Products with a kernel k(d) over count vectors: on a box by FFT, or entry by entry


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
_CHUNK_OF_BOX = 1 << 16  # values looked up at a time, few enough for the cache


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

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._squares), len(self._squares)

    def _push(self, theta: FloatArray) -> FloatArray:
        size = len(self._squares)
        step = max(1, _CHUNK_OF_BOX // size)
        block, result = np.empty((step, size)), np.empty(theta.shape)
        for at in range(0, size, step):
            part = slice(at, at + step)
            result[..., part] = theta @ self.rows(part, block).T
        return result

    def rows(self, cells: Any, block: FloatArray | None = None) -> FloatArray:
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
    # the box of all places but the spare one, whose count follows: distances by signed offset ...
    sides = box_sides(space.lower, space.upper)
    offsets = np.meshgrid(*(np.arange(1.0 - n, n) for n in sides), indexing="ij", sparse=True)
    squares = np.square(sum(offsets)) + sum(np.square(offset) for offset in offsets)
    # ... and where in it, in row-major order, each vector lies
    cells = np.zeros(1, dtype=np.int64)
    if space.places > 1:
        free = np.delete(space.vectors - np.asarray(space.lower), space.spare, axis=1)
        cells = np.asarray(np.ravel_multi_index(tuple(free.T), sides), dtype=np.int64)
    return PartialKernel(LatticeKernel(function(np.sqrt(squares)), signed=True), cells)
