"""What every mechanism shares: its name and reference, and what a user may ask for."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt

from geoveil.arrays import positive, prior_over
from geoveil.channel.channel import Channel
from geoveil.errors import InvalidInput
from geoveil.space.space import Space


class Mechanism(Channel):
    """A channel with a published law: ``name``, ``parameters()`` and ``reference`` say which.

    Two mechanisms are equal when their name, space and parameters are.
    """

    name: ClassVar[str]
    """How the command line and documents call it."""
    reference: ClassVar[str]
    """Where the law comes from."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments besides the space, as plain JSON values."""

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Mechanism)
            and self.name == other.name
            and self.space == other.space
            and self.parameters() == other.parameters()
        )

    def __hash__(self) -> int:
        return hash((self.name, self.space, json.dumps(self.parameters(), sort_keys=True)))

    def __repr__(self) -> str:
        shown = (f"{key}={_short(value)}" for key, value in self.parameters().items())
        return f"{type(self).__name__}({', '.join([repr(self.space), *shown])})"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)} numbers]"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


# --- What a user asks for, turned into a mechanism's parameter on the safe side


_TOLERANCE = 1e-6
_STEPS = 60
_EXTREME = 1e100
"""No parameter beyond this, or below its inverse, is tried."""


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
    least: float = 1 / _EXTREME,
    most: float = _EXTREME,
    farthest_km: Callable[[], float] | None = None,
) -> float:
    """A parameter whose mean distance is the wanted one or up to 1e-6 more (so: not less private).

    The mean distance falls as the parameter grows from ``least`` to ``most``, the range that ``build``
    takes: false position on its logarithm, after a search by growing factors; at most 60 steps each.
    What no parameter reaches is refused at once: ``farthest_km()`` bounds what one can, where building
    at ``least`` would take long.
    """
    weights = prior_over(prior, space.size)

    def excess(parameter: float) -> float:
        reached = float(weights @ build(parameter).mean_of_distance(lambda d: d))
        return math.log(reached / mean_distance_km) if reached > 0 else -math.inf

    if space.size == 1:
        raise _unreachable(mean_distance_km, 0.0, "information")
    # from where the noise is neither much smaller than a cell nor much larger
    step_km = space.least_distance_km
    start = 2 / min(max(mean_distance_km, step_km / 10), 10 * step_km)
    first = _Tried(min(max(start, least), most), excess(min(max(start, least), most)))
    if first.excess < 0:
        reached = (
            mean_distance_km * math.exp(excess(least)) if farthest_km is None else farthest_km()
        )
        if reached < mean_distance_km:
            raise _unreachable(mean_distance_km, reached, "information")
    low, high = _bracket(excess, first, least, most, mean_distance_km)
    return _false_position(excess, low, high)


def _bracket(
    excess: Callable[[float], float], first: _Tried, least: float, most: float, wanted_km: float
) -> tuple[_Tried, _Tried]:
    """Two parameters, the first on the safe side; ``excess`` is log(mean distance / the wanted one)."""
    low = high = first
    for step in range(_STEPS):
        if low.excess >= 0 or low.parameter <= least:
            break
        lower = max(low.parameter / _stride(step), least)
        low, high = _Tried(lower, excess(lower)), low
    if low.excess < 0:
        raise _unreachable(wanted_km, wanted_km * math.exp(low.excess), "information")
    for step in range(_STEPS):
        if high.excess <= _TOLERANCE or high.parameter >= most:
            break
        higher = min(high.parameter * _stride(step), most)
        low, high = high, _Tried(higher, excess(higher))
    if high.excess > _TOLERANCE:
        raise _unreachable(wanted_km, wanted_km * math.exp(high.excess), "noise")
    return low, high


def _stride(step: int) -> float:
    """A factor of 4 at first, then more and more: 20 steps go to the end of any range."""
    return 4.0 ** max(1, step - 1)


def _false_position(excess: Callable[[float], float], low: _Tried, high: _Tried) -> float:
    """A parameter with an excess in 0 … 1e-6: lines through both ends aim at the middle of that.

    An end that stays twice is counted half as far off (the Illinois rule).
    """
    left, right = _aimed(low), _aimed(high)
    stayed = 0
    for _ in range(_STEPS):
        if high.excess >= 0:
            return high.parameter
        if low.excess <= _TOLERANCE:
            break
        middle = low.parameter * (high.parameter / low.parameter) ** (left / (left - right))
        tried = _Tried(middle, excess(middle))
        if _aimed(tried) >= 0:
            low, left = tried, _aimed(tried)
            right, stayed = (right / 2, 1) if stayed == 1 else (right, 1)
        else:
            high, right = tried, _aimed(tried)
            left, stayed = (left / 2, -1) if stayed == -1 else (left, -1)
    return low.parameter


def _aimed(tried: _Tried) -> float:
    return max(tried.excess, -1.0) - _TOLERANCE / 2


@dataclass(frozen=True)
class _Tried:
    parameter: float
    excess: float


def _unreachable(wanted_km: float, reached_km: float, without: str) -> InvalidInput:
    return InvalidInput(
        f"mean_distance_km ({wanted_km:.6g}) must be reachable; even almost no {without} gives "
        f"{reached_km:.6g} km in this space"
    )
