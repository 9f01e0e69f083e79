"""k-ary randomised response."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geoveil.arrays import IntArray, positive
from geoveil.channel.guarantee import LocalDifferentialPrivacy
from geoveil.channel.loss import PrivacyLoss
from geoveil.channel.rank_one import RankOneChannel
from geoveil.errors import InvalidInput
from geoveil.mechanism.base import Mechanism
from geoveil.mechanism.promise import parameter_for_mean_distance
from geoveil.randomness import Randomness
from geoveil.space.base import Space


class RandomizedResponse(RankOneChannel, Mechanism):
    """Tell the truth with one probability, else any other cell, all alike.

    Law: P(x|x) = e^ε/(k − 1 + e^ε), P(y|x) = 1/(k − 1 + e^ε) for y ≠ x, k cells.
    Guarantee: ε-local differential privacy, tight. ε has no unit.
    Cost: O(k) per product, O(1) per sample.
    Reference: Kairouz, Bonawitz & Ramage 2016; FREEWILL §3 (k-RR).

    >>> import geoveil as gv
    >>> mechanism = gv.RandomizedResponse(gv.Line(4), epsilon=math.log(3))
    >>> mechanism.row(0).round(6).tolist()
    [0.5, 0.166667, 0.166667, 0.166667]
    """

    name = "randomized-response"
    reference = "Kairouz, Bonawitz & Ramage, ICML 2016"

    def __init__(
        self, space: Space, *, epsilon: float | None = None, mean_distance_km: float | None = None
    ) -> None:
        if (epsilon is None) == (mean_distance_km is None):
            raise InvalidInput("a promise must be exactly one of epsilon= or mean_distance_km=")
        if mean_distance_km is not None:
            epsilon = parameter_for_mean_distance(
                lambda value: RandomizedResponse(space, epsilon=value),
                space,
                positive("mean_distance_km", mean_distance_km),
                farthest_km=lambda: _mean_distance_between_cells_km(space),
            )
        self.epsilon = positive("epsilon", epsilon)
        self.guarantee = LocalDifferentialPrivacy(self.epsilon)
        # Divided by e^ε, so that a large ε does not overflow.
        shrink = math.exp(-self.epsilon)
        share = 1 + (space.size - 1) * shrink
        ones = np.ones(space.size)
        super().__init__(
            space, -math.expm1(-self.epsilon) / share * ones, ones, shrink / share * ones
        )

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon}

    def closed_form_loss(self) -> PrivacyLoss:
        """ε between any two cells, met at both of them."""
        pair = self.space.closest_cells
        epsilon = 0.0 if pair is None else self.epsilon
        per_km = epsilon / self.space.least_distance_km
        return PrivacyLoss(per_km, epsilon, pair, True, "the closed form of randomised response")

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        # The same law: with probability k/(k − 1 + e^ε) any cell, the own one included; else the own.
        lost = randomness.chance(min(1.0, self.space.size * self._right[0]), cells.size)
        return np.where(lost, randomness.below(self.space.size, cells.size), cells)


def _mean_distance_between_cells_km(space: Space) -> float:
    """What an answer without any truth gives."""
    ones = np.ones(space.size)
    blind = RankOneChannel(space, 0 * ones, ones, ones / space.size)
    return float(blind.mean_of_distance(lambda d: d).mean())
