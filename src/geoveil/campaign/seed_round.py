"""A trusted seed round: later estimates stay within its error bars, however many fakes come after.

No estimator can tell fakes that behave like people from people. Reports that are known to be honest, of
one's own staff or of a panel, bound what the others can do: not by their number, but by what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from geoveil.channel.channel import Tally
from geoveil.estimate import Estimate, Estimator
from geoveil.estimate.held import held, held_within

LEVEL = 0.95
"""Of the bars, for all cells together: so often they hold the whole truth."""


def held_to_seed(
    estimate: Estimate, tallies: list[Tally], seed: Sequence[Tally], estimator: Estimator
) -> Estimate:
    """An estimate held to the error bars of a trusted round; itself where it lies within them.

    The bars are those of the seed alone, wide enough to hold all cells at once 19 times in 20 (each at
    1 − 0.05/cells), so that an honest campaign is hardly ever touched. A cell can then be moved by the
    width of its bar at most, whatever the fakes send and however many they are.
    """
    low, high = estimator.fit(seed).interval(1 - (1 - LEVEL) / estimate.space.size)
    nearest = held_within(estimate.distribution, low, high)
    return held(estimate, tallies, nearest, "held to the error bars of the trusted seed round")
