"""Everything Geoveil raises on purpose, and how messages say a number.

Below ``GeoveilError`` packages add what only they can raise: ``BudgetSpent`` in ``client``;
``Refused`` and ``Unacknowledged`` in ``client``; ``StoreFailed``, ``NewerSchema`` and ``Overloaded`` in
``store``; the problems of ``server``, which all become ``application/problem+json``.

Messages read ``name (value) must condition; what to do``. They never hold a true location: where a
value could be one, the message gives its position in the input instead.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any


class GeoveilError(Exception):
    """Base of every deliberate error."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: as it is, whatever it was made from."""
        return _made_again, (type(self), self.args), vars(self)


def _made_again(kind: type[GeoveilError], said: tuple[Any, ...]) -> GeoveilError:
    return kind.__new__(kind, *said)


class InvalidInput(GeoveilError, ValueError):
    """An argument breaks a stated condition."""


class OutsideSpace(InvalidInput):
    """A location or cell lies outside the space."""


class InvalidFile(InvalidInput):
    """A file or document cannot be read as what it should be."""


class ImpossibleReport(InvalidInput):
    """A report has probability zero at every cell under the channel said to have made it."""


class TooLarge(GeoveilError, ValueError):
    """The answer would need a matrix or table beyond reach."""


class Unsupported(GeoveilError, TypeError):
    """The object has no such operation."""


class RandomnessFailed(GeoveilError, RuntimeError):
    """The source of randomness failed; nothing was sampled."""


class EngineFailed(GeoveilError, RuntimeError):
    """The processes or machines that share the work gave up; nothing was written."""


class SolverFailed(GeoveilError, RuntimeError):
    """A linear program was not solved, for the reason in the message."""


class MissingExtra(GeoveilError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}; install geoveil[{extra}]")
        self.package = package
        self.extra = extra


def require(module: str, extra: str, purpose: str, package: str | None = None) -> None:
    """Say before the work, in one line, what has to be installed for it.

    ``package`` is the name to install, where it is not that of the module.
    """
    if find_spec(module) is None:
        raise MissingExtra(package or module, extra, purpose)


def number_of(number: int, one: str, several: str = "") -> str:
    """So many of them, in the singular where it is one.

    >>> number_of(1, "report"), number_of(1200, "report"), number_of(1, "person", "people")
    ('1 report', '1,200 reports', '1 person')
    """
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def two_digits(value: float) -> str:
    """A length or a share as people write it: two digits, and no power of ten before a million.

    >>> two_digits(0.0123), two_digits(123.4), two_digits(99.96)
    ('0.012', '120', '100')
    """
    return f"{float(f'{value:.2g}'):g}"


def percent(share: float, decimals: int | None = None) -> str:
    """A share as people write it: with three digits, or so many decimals.

    >>> percent(0.05), percent(0.0025), percent(0.2094, 1), percent(0.99996)
    ('5 %', '0.25 %', '20.9 %', '100 %')
    """
    if decimals is None:
        return f"{float(f'{100 * share:.3g}'):g} %"
    return f"{100 * share:.{decimals}f} %"
