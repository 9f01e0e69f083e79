"""The truncated geometric mechanism on a line of integers."""

from __future__ import annotations

import math

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import PrivacyLoss
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.errors import InvalidInput
from geoveil.mechanism.mechanism import Mechanism, Promise
from geoveil.randomness import Randomness
from geoveil.space.line import Line

_LEAST = 1e-9  # below, steps outgrow whole numbers of 64 bits


class LinearGeometric(Mechanism):
    """Two-sided geometric noise on 0 … n−1, clamped at both ends.

    Law: P(z|x) = c_z·e^{−ε|z−x|}, c_z = 1/(1+e^{−ε}) at the two ends, (1−e^{−ε})/(1+e^{−ε}) inside.
    Guarantee: ε per unit of the line, tight.
    Cost: O(n) per product by recursions, O(1) per sample.
    Reference: Ghosh, Roughgarden & Sundararajan 2009; FREEWILL §8.1.

    >>> import geoveil as gv
    >>> mechanism = gv.LinearGeometric(gv.Line(100), epsilon_per_unit=0.5)
    >>> round(float(mechanism.row(3).sum()), 12)
    1.0
    """

    name = "linear-geometric"
    reference = "Ghosh, Roughgarden & Sundararajan, STOC 2009"
    _stated = ("epsilon_per_unit",)
    space: Line
    guarantee: GeoIndistinguishability

    def __init__(
        self,
        space: Line,
        *,
        epsilon_per_unit: float | None = None,
        level: float | None = None,
        radius: float | None = None,
        mean_distance: float | None = None,
    ) -> None:
        if not isinstance(space, Line):
            raise InvalidInput(f"linear-geometric (on {space!r}) must be on a Line")
        promise = Promise(epsilon_per_unit, level, radius, mean_distance)
        self.epsilon_per_unit = promise.solve(
            lambda value: LinearGeometric(space, epsilon_per_unit=value), space, least=_LEAST
        )
        if self.epsilon_per_unit < _LEAST:
            raise InvalidInput(
                f"epsilon_per_unit ({self.epsilon_per_unit:.3g}) must be at least 1e-9"
            )
        self.space = space
        self.report_count = space.size
        self.guarantee = GeoIndistinguishability(self.epsilon_per_unit)
        self._ratio = math.exp(-self.epsilon_per_unit)
        # c_z: what each report's column is scaled by
        inside = -math.expm1(-self.epsilon_per_unit) / (1 + self._ratio)
        self._ends = np.full(space.size, inside)
        self._ends[[0, -1]] = 1 / (1 + self._ratio) if space.size > 1 else 1.0

    def closed_form_loss(self) -> PrivacyLoss:
        """ε: met at every report by the cells on one side of it."""
        pair = (0, 1) if self.space.size > 1 else None
        epsilon = self.epsilon_per_unit if pair else 0.0
        how = "the closed form of the geometric law"
        return PrivacyLoss(epsilon, epsilon * (self.space.size - 1), pair, True, how)

    def _spread(self, values: FloatArray) -> FloatArray:
        """Σ_x e^{−ε|z−x|}·v_x: one recursion from each side, their common term once."""
        from scipy.signal import lfilter  # here, since importing it takes longer than all the rest

        up = lfilter([1.0], [1.0, -self._ratio], values, axis=-1)
        down = lfilter([1.0], [1.0, -self._ratio], values[..., ::-1], axis=-1)[..., ::-1]
        return up + down - values

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._ends * self._spread(theta)

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._spread(self._ends * values)

    def _row(self, row: int) -> FloatArray:
        distance = np.abs(np.arange(self.space.size) - row)
        return self._ends * np.exp(-self.epsilon_per_unit * distance)

    def _column(self, column: int) -> FloatArray:
        distance = np.abs(np.arange(self.space.size) - column)
        return self._ends[column] * np.exp(-self.epsilon_per_unit * distance)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        steps = _geometric(self.epsilon_per_unit, cells.size, randomness) - _geometric(
            self.epsilon_per_unit, cells.size, randomness
        )
        return np.clip(cells + steps, 0, self.space.size - 1)


def _geometric(epsilon: float, size: int, randomness: Randomness) -> IntArray:
    """P(n) = (1−a)·aⁿ for n ≥ 0, a = e^{−ε}; the difference of two is the two-sided law."""
    return np.floor(np.log(randomness.uniform(size)) / -epsilon).astype(np.int64)
