"""Acceleration without a matrix: extrapolate two steps of expectation–maximisation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray, positive
from geoveil.errors import InvalidInput
from geoveil.estimate.em import em_step
from geoveil.estimate.objective import Objective, Point


@dataclass(frozen=True)
class Squarem:
    """Squared extrapolation of expectation–maximisation, for spaces too large for a matrix.

    Law: θ₁, θ₂ are the next two plain steps, r = θ₁ − θ₀, v = θ₂ − θ₁ − r, α = ‖r‖/‖v‖ ≥ 1, and
    θ' = θ₀ + 2αr + α²v, kept at or above ``floor``·θ₂ so that it stays inside the simplex. Where
    f(θ') < f(θ₂) the step is θ₂ itself, so f never falls.
    Cost: three pushes and three pulls per step.
    Reference: Varadhan & Roland, Scandinavian Journal of Statistics 35 (2008), scheme S3.

    >>> Squarem()
    Squarem(floor=0.1)
    """

    floor: float = 0.1

    def __post_init__(self) -> None:
        if not positive("floor", self.floor) < 1:
            raise InvalidInput(f"floor ({self.floor}) must be below 1")

    def path(self, objective: Objective, start: FloatArray) -> Iterator[Point]:
        """The start, then the point after each extrapolated step."""
        point = objective.at(start)
        while True:
            yield point
            point = self._advanced(objective, point)

    def _advanced(self, objective: Objective, point: Point) -> Point:
        once = objective.at(em_step(point))
        twice = objective.at(em_step(once))
        leap = objective.at(self._extrapolated(point.theta, once.theta, twice.theta))
        return leap if leap.log_likelihood >= twice.log_likelihood else twice

    def _extrapolated(self, first: FloatArray, once: FloatArray, twice: FloatArray) -> FloatArray:
        change = once - first
        bend = twice - once - change
        length = float(np.linalg.norm(bend))
        stride = max(1.0, float(np.linalg.norm(change)) / length) if length > 0 else 1.0
        leap = first + 2 * stride * change + stride**2 * bend
        kept = np.maximum(leap, self.floor * twice)
        return np.asarray(kept / kept.sum())
