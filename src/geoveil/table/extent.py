"""The extent of locations that arrive in batches, in whole hundredths of a degree."""

from __future__ import annotations

import math

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.space.box import Box

_STEPS = 100  # per degree
_ROUND = 360 * _STEPS


class Extent:
    """The smallest box of whole 0.01° that holds every place seen, by the shorter way round.

    Rounding outwards to 0.01° (about a kilometre) keeps exact coordinates of the outermost people
    out of the box; that somebody is near each edge it still says, and no ε covers that.
    Cost: one pass over the data, 36,000 flags of memory.

    >>> extent = Extent()
    >>> extent.add(np.array([-17.713, -17.8]), np.array([179.984, -179.991]))
    >>> tuple(extent.box())
    (-17.8, 179.98, -17.71, -179.99)
    """

    def __init__(self) -> None:
        self._south, self._north = math.inf, -math.inf
        self._occupied = np.zeros(_ROUND, dtype=np.bool_)

    def add(self, lat: FloatArray, lng: FloatArray) -> None:
        """Take in a batch of checked places, in degrees."""
        if lat.size:
            self._south = min(self._south, float(lat.min()))
            self._north = max(self._north, float(lat.max()))
            step = np.floor((lng + 180.0) * _STEPS).astype(np.int64)
            self._occupied[step % _ROUND] = True

    def box(self, name: str = "the table") -> Box:
        """The box; an error that names the table when no place was seen."""
        if math.isinf(self._south):
            raise InvalidFile(f"{name} must have a row with a usable location; it has none")
        south = math.floor(self._south * _STEPS)
        north = max(math.ceil(self._north * _STEPS), south + 1)
        west, east = _covering_arc(self._occupied)
        try:
            return Box(
                south=south / _STEPS,
                west=(west - _ROUND // 2) / _STEPS,
                north=north / _STEPS,
                east=(east - _ROUND // 2) / _STEPS,
            )
        except InvalidInput:
            raise InvalidFile(
                f"the places of {name} must fit on one map to find its box, at most 500 km from its "
                "centre; give --box around those you mean, or check which columns are the coordinates"
            ) from None


def _covering_arc(occupied: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> tuple[int, int]:
    """First and last edge, in steps from −180°, of all but the widest run of empty steps."""
    steps = np.flatnonzero(occupied)
    gaps = np.diff(steps, append=steps[0] + _ROUND)
    last = int(np.argmax(gaps))
    return int(steps[(last + 1) % steps.size]), int(steps[last]) + 1
