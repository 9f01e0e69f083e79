"""Losses: how bad it is to be taken for b when one is at a."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.space.base import Space


@dataclass(frozen=True)
class RadialLoss:
    """A loss that depends on the distance alone: L(a, b) = f(d(a, b)).

    Called as ``loss(space, a, b)`` on cells (arrays broadcast); :meth:`at` gives f itself, for the
    plane, where there are no cells. ``f`` is vectorised and takes kilometres.

    Reference: NOISE §4.1, where losses are increasing functions of the distance.

    >>> from geoveil.space.line import Line
    >>> late = RadialLoss("minutes on foot", lambda kilometres: 12 * kilometres)
    >>> late(Line(5), [0, 1], 4).tolist()
    [48.0, 36.0]
    """

    name: str
    function: Callable[[FloatArray], FloatArray]

    def __call__(self, space: Space, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
        return self.at(space.distance_km(a, b))

    def at(self, distance_km: npt.ArrayLike) -> FloatArray:
        """The loss at each distance."""
        distance = np.asarray(distance_km, dtype=np.float64)
        return np.asarray(self.function(distance), dtype=np.float64)

    def __repr__(self) -> str:
        return self.name


def _itself(distance: FloatArray) -> FloatArray:
    return distance


distance_km = RadialLoss("distance_km", _itself)
"""The distance itself, in kilometres."""

squared_distance_km2 = RadialLoss("squared_distance_km2", np.square)
"""The squared distance, in square kilometres."""
