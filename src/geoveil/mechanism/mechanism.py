"""What every mechanism shares: its name and reference, and what a user may ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from geoveil.arrays import ArrayLike, positive, prior_over
from geoveil.channel.channel import Channel
from geoveil.errors import InvalidInput
from geoveil.root import NeverSafe, safe_root
from geoveil.space.space import Space, checked_space


class Mechanism(Channel):
    """A channel with a published law: ``name``, ``parameters()`` and ``reference`` say which.

    Two mechanisms are equal when their name, space and parameters are.
    """

    name: ClassVar[str]
    """How the command line and documents call it."""
    reference: ClassVar[str]
    """Where the law comes from."""
    _stated: ClassVar[tuple[str, ...]]
    """The attributes that are its parameters."""

    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments besides the space, as plain JSON values."""
        values = ((name, getattr(self, name)) for name in self._stated)
        return {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in values}

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
        # a design is shown as what it is: the class that names the law
        named = next(kind for kind in type(self).__mro__ if "name" in vars(kind))
        return f"{named.__name__}({', '.join([repr(self.space), *shown])})"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)} numbers]"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


# --- What a user asks for, turned into a mechanism's parameter on the safe side


_TOLERANCE = 1e-6
_EXTREME = 1e100
"""No parameter beyond this, or below its inverse, is tried."""


@dataclass(frozen=True)
class Promise:
    """Exactly one of: ε per km; a level of loss within a radius; a wanted mean distance.

    ``names`` are what a mechanism calls ε, the radius and the distance.
    """

    epsilon_per_km: float | None = None
    level: float | None = None
    radius_km: float | None = None
    mean_distance_km: float | None = None
    names: tuple[str, str, str] = ("epsilon_per_km", "radius_km", "mean_distance_km")

    def __post_init__(self) -> None:
        options = (self.epsilon_per_km, self.level, self.mean_distance_km)
        if sum(value is not None for value in options) != 1 or (self.level is None) != (
            self.radius_km is None
        ):
            epsilon, radius, distance = self.names
            raise InvalidInput(
                f"a promise must be exactly one of {epsilon}=, level= with {radius}=, or {distance}="
            )

    def resolve(self, for_mean_distance: Callable[[float], float]) -> float:
        """ε per km; ``for_mean_distance(km)`` is asked only where a mean distance is wanted."""
        epsilon, radius, distance = self.names
        if self.epsilon_per_km is not None:
            return positive(epsilon, self.epsilon_per_km)
        if self.level is not None:
            return positive("level", self.level) / positive(radius, self.radius_km)
        return for_mean_distance(positive(distance, self.mean_distance_km))

    def solve(self, build: Callable[[float], Channel], space: Space, **limits: Any) -> float:
        """ε per km; for a mean distance that of :func:`parameter_for_mean_distance`."""
        return self.resolve(
            lambda distance: parameter_for_mean_distance(
                build, space, distance, name=self.names[2], **limits
            )
        )


def parameter_for_mean_distance(
    build: Callable[[float], Channel],
    space: Space,
    mean_distance_km: float,
    *,
    prior: ArrayLike | None = None,
    least: float = 1 / _EXTREME,
    most: float = _EXTREME,
    farthest_km: Callable[[], float] | None = None,
    name: str = "mean_distance_km",
) -> float:
    """A parameter whose mean distance is the wanted one or up to 1e-6 more (so: not less private).

    The mean distance falls as the parameter grows from ``least`` to ``most``, the range that ``build``
    takes. What no parameter reaches is refused at once: ``farthest_km()`` bounds what one can, where
    building at ``least`` would take long.
    """
    weights = prior_over(prior, checked_space(space).size)

    def reached_km(parameter: float) -> float:
        return float(weights @ build(parameter).mean_of_distance(lambda d: d))

    def lacking(reached: float) -> float:
        return math.log(mean_distance_km / reached) if reached > 0 else math.inf

    def unreachable(reached: float, without: str) -> InvalidInput:
        unit = "units" if space.unit == "unit" else space.unit
        return InvalidInput(
            f"{name} ({mean_distance_km:.6g}) must be reachable; even almost no {without} gives "
            f"{reached:.6g} {unit} in this space"
        )

    if space.size == 1:
        raise unreachable(0.0, "information")
    # from where the noise is neither much smaller than a cell nor much larger
    step_km = space.least_distance_km
    start = 2 / min(max(mean_distance_km, step_km / 10), 10 * step_km)
    try:
        nearest = safe_root(
            reached_km,
            lacking,
            [min(max(start, least), most)],
            within=(most, least),
            tolerance=_TOLERANCE,
            stride=math.log(4),
            end_excess=farthest_km and (lambda: lacking(farthest_km())),
        )
    except NeverSafe as error:
        raise unreachable(mean_distance_km * math.exp(-error.excess), "information") from None
    if nearest.at == most and nearest.excess < -_TOLERANCE:
        raise unreachable(nearest.result, "noise")
    return nearest.at
