"""The line: whole numbers in a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, count
from geoveil.errors import TooLarge
from geoveil.space.outside import Outside, settle
from geoveil.space.projection import numbers
from geoveil.space.space import Space, entries

LENGTH_LIMIT = 10**8
"""No line has more cells than this."""


@dataclass(frozen=True, eq=False)
class Line(Space):
    """The whole numbers 0 … size − 1 with distance \\|a − b\\|: ages, hours, steps along a road.

    Units: ``unit`` is "unit", one step; every name that ends in ``_km`` reads in it.

    >>> line = Line(100)
    >>> line.distance_km(3, [3, 10]).tolist()
    [0.0, 7.0]
    >>> line.locate([-4.0, 2.4, 200.0], outside="clamp").tolist()
    [0, 2, 99]
    """

    size: int
    unit = "unit"
    in_rows = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", count("size", self.size))
        if self.size > LENGTH_LIMIT:
            raise TooLarge(f"the size of a line must be at most {LENGTH_LIMIT:,}; use wider steps")

    def _centres(self) -> FloatArray:
        return np.arange(self.size, dtype=np.float64)[:, None]

    @overload
    def locate(self, values: float, *, outside: Outside = ...) -> int: ...
    @overload
    def locate(self, values: ArrayLike, *, outside: Outside = ...) -> IntArray: ...
    def locate(self, values: ArrayLike, *, outside: Outside = "raise") -> int | IntArray:
        """The nearest whole numbers, halves upward: an ``int`` for one value, else an array.

        A value more than half a step beyond an end is outside: it is refused (``"raise"``), left out
        (``"drop"``) or goes to that end (``"clamp"``).
        """
        given = numbers("values", values)
        cells = np.floor(np.clip(given, 0.0, self.size - 1.0) + 0.5).astype(np.int64)
        return settle(cells, (given >= -0.5) & (given <= self.size - 0.5), outside)

    def to_dict(self) -> dict[str, Any]:
        """Kind and size."""
        return {"kind": "line", "size": self.size}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Line:
        """The line that ``to_dict`` described."""
        (size,) = entries(values, "line", "size")
        return cls(size)
