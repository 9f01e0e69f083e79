"""A trusted seed round: later estimates stay within its error bars, however many fakes come after.

No estimator can tell fakes that behave like people from people. Reports that are known to be honest, of
one's own staff or of a panel, bound what the others can do: not by their number, but by what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.estimate import Estimate, Estimator, FisherInformation
from geoveil.estimate.fitted import Observations, fit_of

LEVEL = 0.95
"""Of the bars, for all cells together: so often they hold the whole truth."""
_STEPS = 200


def held_to_seed(
    estimate: Estimate, tallies: list[Tally], seed: Sequence[Tally], estimator: Estimator
) -> Estimate:
    """An estimate held to the error bars of a trusted round; itself where it lies within them.

    The bars are those of the seed alone, wide enough to hold all cells at once 19 times in 20 (each at
    1 − 0.05/cells), so that an honest campaign is hardly ever touched. A cell can then be moved by the
    width of its bar at most, whatever the fakes send and however many they are.
    """
    low, high = estimator.fit(seed).interval(1 - (1 - LEVEL) / estimate.space.size)
    held = held_within(estimate.distribution, low, high)
    moved = int(np.count_nonzero(np.abs(held - estimate.distribution) > 1e-12))
    if not moved:
        return estimate
    observations = Observations(tallies)
    return Estimate(
        space=estimate.space,
        distribution=held,
        total=estimate.total,
        steps=estimate.steps,
        stopped=f"{estimate.stopped}; then held to the error bars of the trusted seed round",
        find_fit=lambda: fit_of(observations, held),
        find_errors=lambda: FisherInformation().errors(
            observations, held, lambda counts, _: counts, None
        ),
        find_identifiability=lambda: estimate.identifiable,
        find_promises=lambda: estimate.promises,
    )


def held_within(distribution: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The distribution within bounds that is nearest by Kullback–Leibler divergence.

    Law: min(max(τ·θ, low), high) with the τ for which it sums to one; Σ low ≤ 1 ≤ Σ high must hold.

    >>> held_within(np.array([0.7, 0.2, 0.1]), np.zeros(3), np.array([0.4, 1.0, 1.0])).round(2).tolist()
    [0.4, 0.4, 0.2]
    """
    given = np.maximum(distribution, np.finfo(float).tiny)
    below, above = 0.0, 1.0
    while np.clip(above * given, low, high).sum() < 1.0 and above < 1e300:
        above *= 2.0
    for _ in range(_STEPS):
        middle = (below + above) / 2
        if np.clip(middle * given, low, high).sum() < 1.0:
            below = middle
        else:
            above = middle
    held = np.clip(above * given, low, high)
    return np.asarray(held / held.sum())
