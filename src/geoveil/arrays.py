"""Array types, the checks that every border of the library shares, and threads for small products."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from geoveil.errors import InvalidInput, OutsideSpace

ArrayLike = npt.ArrayLike
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_SUM_TOLERANCE = 1e-6
_MOST = 2**53
"""No count beyond: more people than there are, and floats hold every whole number up to here."""


def positive(name: str, value: Any) -> float:
    """The value as a finite float above zero, or an error that names it."""
    number = finite(name, value)
    if number <= 0:
        raise InvalidInput(f"{name} ({_shown(value)}) must be above 0")
    return number


def finite(name: str, value: Any, *, least: float = -np.inf, most: float = np.inf) -> float:
    """The value as a finite float from ``least`` to ``most``, or an error that names it."""
    try:
        if isinstance(value, str | bytes | bool | np.bool_):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} ({_shown(value)}) must be a number") from None
    except OverflowError:
        number = np.inf
    if not np.isfinite(number):
        raise InvalidInput(f"{name} ({_shown(value)}) must be finite")
    if not least <= number <= most:
        range_ = f"be at least {least:g}" if most == np.inf else f"lie in [{least:g}, {most:g}]"
        raise InvalidInput(f"{name} ({_shown(value)}) must {range_}")
    return number


def part(name: str, value: Any) -> float:
    """The value as a number strictly between 0 and 1, or an error that names it."""
    number = finite(name, value)
    if not 0.0 < number < 1.0:
        raise InvalidInput(f"{name} ({_shown(value)}) must lie between 0 and 1")
    return number


def count(name: str, value: Any, *, least: int = 1, most: float = _MOST) -> int:
    """The value as a whole number from ``least`` to ``most``, or an error that names it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InvalidInput(f"{name} ({_shown(value)}) must be a whole number")
    if value < least:
        raise InvalidInput(f"{name} ({_shown(value)}) must be at least {least}")
    if value > most:
        raise InvalidInput(f"{name} ({_shown(value)}) must be at most {most}")
    return int(value)


def checked_seed(seed: Any) -> int:
    """The seed as a whole number from 0 on, of as many bits as somebody likes."""
    return count("seed", seed, least=0, most=np.inf)


def numbers(name: str, value: Any, such_as: str = "an array of numbers") -> FloatArray:
    """The value as an array of floats of any shape, or an error that names it.

    Times and complex numbers are refused; what is masked is unknown, whatever lies beneath: NaN.
    """
    try:
        array = value if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
        if array.dtype.kind in "cmM":
            raise TypeError
        with np.errstate(over="ignore"):  # what is too large is infinite
            floats = array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        whole = hasattr(value, "distribution")  # an estimate, or a campaign
        advice = f"; use the .distribution of the {type(value).__name__}" if whole else ""
        raise InvalidInput(f"{name} must be {such_as}{advice}") from None
    return cast("FloatArray", np.ma.filled(floats, np.nan))


def lengths(name: str, value: Any) -> FloatArray:
    """The value as distances of any shape, none negative; infinite ones are distances too."""
    array = numbers(name, value, "a distance, or an array of them")
    if not (array >= 0).all():
        raise InvalidInput(f"{name} must be 0 or more everywhere")
    return array


def probabilities(name: str, value: Any) -> FloatArray:
    """The value as probabilities of any shape."""
    array = numbers(name, value)
    if not ((array >= 0) & (array <= 1)).all():
        raise InvalidInput(f"{name} must lie in [0, 1]")
    return array


def by_position(name: str, value: Any, *, axes: int = 1) -> Any:
    """The value itself, unless it is a Series of pandas whose index is another than 0, 1, 2, …

    With two axes, unless it is a DataFrame whose index or columns are.

    Of one that was sorted or filtered nobody can tell whether the cell is the label, as after
    ``value_counts``, or the position, as in a frame that a list of places was made from.
    """
    labels = getattr(value, "axes", ())
    of_pandas = hasattr(getattr(value, "index", None), "get_indexer")
    if of_pandas and len(labels) == axes and not all(map(_are_positions, labels)):
        also, columns = ("", "") if axes == 1 else (" and such columns", ", columns=range(reports)")
        raise InvalidInput(
            f"{name} (a {type(value).__name__}) must have the index 0, 1, 2, …{also}; where its labels are "
            f"cells, use .reindex(range(cells){columns}, fill_value=0), where its rows are in the right "
            "order already, .to_numpy()"
        )
    return value


def _are_positions(labels: Any) -> bool:
    order = np.asarray(labels)
    return order.dtype.kind in "iuf" and np.array_equal(order, np.arange(order.size))


def vector(name: str, value: Any, size: int) -> FloatArray:
    """The value as a finite float array whose last axis has ``size`` entries."""
    array = numbers(name, by_position(name, value))
    if array.ndim == 0 or array.shape[-1] != size:
        raise InvalidInput(f"{name} (shape {array.shape}) must have {size} entries, one per cell")
    if not np.isfinite(array).all():
        raise InvalidInput(f"{name} must hold finite numbers only")
    return array


def distribution(name: str, value: Any, size: int) -> FloatArray:
    """The value as one probability distribution over ``size`` cells, scaled to sum to exactly one."""
    array, total = _amounts(name, value, size)
    if abs(total - 1.0) > _SUM_TOLERANCE:
        raise InvalidInput(f"{name} (sum {total:.9g}) must sum to 1; divide it by its sum")
    return array / total


def sums_of_rows(name: str, rows: FloatArray, *, tolerance: float = _SUM_TOLERANCE) -> FloatArray:
    """The sums of rows that are distributions; refused where one is none."""
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise InvalidInput(f"{name} must hold probabilities: finite and not negative")
    sums = rows.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > tolerance:
        raise InvalidInput(
            f"{name} row {worst} (sum {sums[worst]:.12g}) must sum to 1; divide it by its sum"
        )
    return sums


def prior_over(prior: Any, size: int, *, name: str = "prior") -> FloatArray:
    """Where people are, as a distribution over ``size`` cells: amounts such as counts of people are
    divided by their sum; ``None`` is everywhere alike.

    A line in the log ``geoveil.notes`` (level INFO) says so; it is no warning, since nothing is wrong.
    """
    if prior is None:
        return uniform(size)
    array, total = _amounts(name, prior, size)
    if not 0.0 < total < np.inf:
        raise InvalidInput(f"{name} (sum {total:g}) must be above 0 somewhere, with a finite sum")
    if abs(total - 1.0) > _SUM_TOLERANCE:
        import logging  # here, since it is seldom needed

        logging.getLogger("geoveil.notes").info("%s (sum %.9g) is divided by its sum", name, total)
    return array / total


def uniform(size: int) -> FloatArray:
    """Everywhere alike: 1/size in each of ``size`` cells."""
    return np.full(size, 1.0 / size)


def _amounts(name: str, value: Any, size: int) -> tuple[FloatArray, float]:
    """One amount for each cell, none negative, and their sum."""
    array = vector(name, value, size)
    if array.ndim != 1:
        raise InvalidInput(f"{name} (shape {array.shape}) must be one distribution")
    if (array < 0).any():
        raise InvalidInput(f"{name} must not be negative anywhere")
    with np.errstate(over="ignore"):  # an endless sum is refused by whoever asks
        return array, float(array.sum())


def without_gaps(name: str, value: Any) -> npt.NDArray[Any]:
    """The value as an array of any shape, where its rows are of one length and nothing is masked."""
    try:
        if np.ma.is_masked(value):
            raise ValueError
        return np.asarray(value)
    except ValueError:
        raise InvalidInput(f"{name} must be whole numbers, in one array without gaps") from None


def indices(name: str, value: Any, size: int) -> IntArray:
    """The value as whole numbers in ``0 … size − 1``; the message never repeats a value."""
    array = without_gaps(name, value)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidInput(f"{name} (type {array.dtype}) must be whole numbers")
    wrong = (array < 0) | (array >= size)
    if wrong.any():
        first = int(np.flatnonzero(wrong.ravel())[0])
        raise OutsideSpace(
            f"{name} must lie in 0 … {size - 1}; the entry at position {first} does not"
        )
    return array.astype(np.int64, copy=False)


def check_broadcast(**given: IntArray) -> None:
    """Refuse arrays that have neither one shape nor shapes that NumPy broadcasts."""
    try:
        np.broadcast_shapes(*(array.shape for array in given.values()))
    except ValueError:
        shapes = " and ".join(f"{name} (shape {array.shape})" for name, array in given.items())
        raise InvalidInput(f"{shapes} must have one shape, or shapes that broadcast") from None


def ragged(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """For every i, ``sizes[i]`` entries: i itself, and 0, 1, 2, …"""
    which = np.repeat(np.arange(sizes.size), sizes)
    return which, np.arange(which.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def instance(name: str, value: Any, kind: type, such_as: str) -> Any:
    """The value itself, where it is of the kind; a class is none yet."""
    if not isinstance(value, kind):
        called = _shown(value) if isinstance(value, type) else type(value).__name__
        raise InvalidInput(f"{name} ({called}) must be {such_as}")
    return value


def one_of(name: str, value: Any, words: Iterable[str]) -> Any:
    """The value itself, where it is one of the words."""
    words = tuple(words)
    if not isinstance(value, str) or value not in words:
        raise InvalidInput(f"{name} ({_shown(value)}) must be one of {', '.join(words)}")
    return value


def yes_or_no(name: str, value: Any) -> bool:
    """The value itself, where it is True or False."""
    plain = bool(value) if isinstance(value, np.bool_) else value
    return bool(instance(name, plain, bool, "True or False"))


def teller(progress: Any) -> Callable[..., None]:
    """The function that tells how far the work is; a silent one where ``progress`` is ``None``."""
    if progress is None:
        return lambda *how_far: None
    able("progress", progress, "__call__", "a function that is told how far the work is")
    return cast("Callable[..., None]", progress)


def able(name: str, value: Any, method: str, such_as: str) -> None:
    """An error where the value is no object with such a method; a class is none yet."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise InvalidInput(f"{name} ({_shown(value)}) must be {such_as}")


def _shown(value: Any) -> str:
    """How a message names a value: a word or a number itself, anything else by its kind."""
    if (
        isinstance(value, int) and abs(value) >> 64
    ):  # Python writes no more than some thousand digits
        return f"of {value.bit_length()} bits"
    if value is None or isinstance(value, str | bytes | int | float | np.generic):
        return repr(value)
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def frozen(array: Any) -> Any:
    """The array itself, made read-only, so that what was certified cannot change."""
    array.setflags(write=False)
    return array


class _Limits:
    """What was set for all who entered, from whichever thread: the last to leave puts it back."""

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.set: list[Any] = []

    def enter(self) -> None:
        blas = _blas("scipy.linalg" in sys.modules)
        with self.lock:
            if any(library.num_threads != 1 for library in blas.lib_controllers):
                self.set.append(blas.limit(limits=1))
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            while self.set and not self.inside:
                self.set.pop().restore_original_limits()


_limits = _Limits()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While it is entered, or around a function: matrix products run on one thread of BLAS.

    For loops of products that take microseconds each: handing half of one to another thread takes as
    long, and on a busy machine the threads wait for each other (an audit of 320 cells: 332 processor
    seconds instead of 38). Where that is so already, as within another, nothing is set: that takes longer
    than a step on a hundred cells.
    """
    _limits.enter()
    try:
        yield
    finally:
        _limits.leave()


@cache
def _blas(with_scipy: bool) -> Any:
    """The libraries of BLAS that are loaded: NumPy's, and SciPy's own once it is there."""
    return ThreadpoolController().select(user_api="blas")


class ReadOnly:
    """An object whose arrays are read-only, also in a copy made from a pickle, which forgets that."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, np.ndarray):
                    frozen(part)
        vars(self).update(state)


class ByParts:
    """Equal to another of its kind with the same parts, the attributes that ``_parts`` names."""

    _parts: ClassVar[tuple[str, ...]]

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, type(self)):
            return self is other
        pairs = ((getattr(self, name), getattr(other, name)) for name in self._parts)
        return all(
            np.array_equal(one, two) if isinstance(one, np.ndarray) else one == two
            for one, two in pairs
        )

    def __hash__(self) -> int:
        parts = (getattr(self, name) for name in self._parts)
        return hash((type(self), *(part for part in parts if not isinstance(part, np.ndarray))))
