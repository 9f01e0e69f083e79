"""What becomes of a place outside its space: clamped, dropped or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from geoveil.arrays import BoolArray, IntArray
from geoveil.errors import InvalidInput, OutsideSpace

Outside = Literal["clamp", "drop", "raise"]
"""``"clamp"``: to the nearest cell; ``"drop"``: left out; ``"raise"``: an error."""


def check_outside(outside: str) -> None:
    """Refuse a word that is none of the three."""
    if outside not in get_args(Outside):
        raise InvalidInput(f"outside ({outside!r}) must be one of {', '.join(get_args(Outside))}")


def settle(cells: IntArray, inside: Callable[[], BoolArray], outside: Outside) -> int | IntArray:
    """The clamped ``cells``, less those outside (then flat) or refused, as ``outside`` says.

    One place that lies outside cannot be left out of one answer: there ``"drop"`` refuses too.
    """
    if outside != "clamp":
        within = inside()
        if outside == "drop" and cells.ndim:
            return cells[within]
        _refuse(within)
    return cells if cells.ndim else int(cells)


def _refuse(within: BoolArray) -> None:
    beyond = np.flatnonzero(~within.ravel())
    if beyond.size:
        raise OutsideSpace(
            f"every place must lie in the space; {beyond.size} of {within.size} do not, "
            f"the first at position {beyond[0]}; leave these out or use outside='clamp'"
        )
