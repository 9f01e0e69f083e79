"""What a user asks for, turned into a mechanism's parameter on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoveil.arrays import distribution, positive
from geoveil.channel.base import Channel
from geoveil.errors import InvalidInput
from geoveil.space.base import Space

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Promise:
    """Exactly one of: ε per km; a level of loss within a radius; a wanted mean distance."""

    epsilon_per_km: float | None = None
    level: float | None = None
    radius_km: float | None = None
    mean_distance_km: float | None = None

    def __post_init__(self) -> None:
        asked = (self.epsilon_per_km, self.level, self.mean_distance_km)
        if sum(value is not None for value in asked) != 1 or (self.level is None) != (
            self.radius_km is None
        ):
            raise InvalidInput(
                "a promise must be exactly one of epsilon_per_km=, level= with radius_km=, "
                "or mean_distance_km="
            )

    def resolve(self, for_mean_distance: Callable[[float], float]) -> float:
        """ε per km; ``for_mean_distance(km)`` is asked only where a mean distance is wanted."""
        if self.epsilon_per_km is not None:
            return positive("epsilon_per_km", self.epsilon_per_km)
        if self.level is not None:
            return positive("level", self.level) / positive("radius_km", self.radius_km)
        return for_mean_distance(positive("mean_distance_km", self.mean_distance_km))


def parameter_for_mean_distance(
    build: Callable[[float], Channel],
    space: Space,
    mean_distance_km: float,
    *,
    prior: npt.ArrayLike | None = None,
) -> float:
    """The largest parameter whose mean distance is still at least the wanted one (so: not less private).

    The mean distance falls as the parameter grows; bisection on its logarithm to 1e-9.
    """
    weights = (
        np.full(space.size, 1 / space.size)
        if prior is None
        else distribution("prior", prior, space.size)
    )

    def distance(parameter: float) -> float:
        return float(weights @ build(parameter).mean_of_distance(lambda d: d))

    low, high = _bracket(distance, mean_distance_km, 2 / mean_distance_km)
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if distance(middle) >= mean_distance_km else (low, middle)
    return low


def _bracket(
    distance: Callable[[float], float], wanted: float, start: float
) -> tuple[float, float]:
    low = high = start
    for _ in range(12):
        if distance(low) >= wanted:
            break
        low /= 4
    else:
        raise InvalidInput(
            f"mean_distance_km ({wanted:.6g}) must be reachable; even almost no information gives "
            f"{distance(low * 4):.6g} km in this space"
        )
    while distance(high) >= wanted:
        high *= 4
    return low, high
