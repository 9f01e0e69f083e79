"""Estimates held to bounds: the nearest distribution within them, and the estimate that it makes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.estimate.fitted import Estimate, Observations, fit_of
from geoveil.estimate.mixture import Estimator
from geoveil.estimate.uncertainty import FisherInformation

SEED_LEVEL = 0.95
"""Of the bars of a seed round, for all cells together: so often they hold the whole truth."""
_STEPS = 200
_MOST_SWEEPS, _SETTLED = 300, 1e-6
_TINY = 1e-300


def held(
    estimate: Estimate, tallies: Sequence[Tally], distribution: FloatArray, words: str
) -> Estimate:
    """An estimate from these tallies with another distribution; itself where that is the same."""
    if np.abs(distribution - estimate.distribution).max() <= 1e-12:
        return estimate
    observations = Observations(tallies)
    return Estimate(
        space=estimate.space,
        distribution=distribution,
        total=estimate.total,
        steps=estimate.steps,
        stopped=f"{estimate.stopped}; then {words}",
        find_fit=lambda: fit_of(observations, distribution),
        find_errors=lambda: FisherInformation().about(observations, distribution),
        find_identifiability=lambda: estimate.identifiable,
        find_promises=lambda: estimate.promises,
        uneven=estimate.uneven,
    )


def held_to_seed(
    estimate: Estimate, tallies: Sequence[Tally], seed: Sequence[Tally], estimator: Estimator
) -> Estimate:
    """An estimate held to the error bars of a trusted seed round; itself where it lies within them.

    No estimator can tell fakes that behave like people from people. Reports that are known to be honest, of
    one's own staff or of a panel, bound what the others can do, not by their number, but by what they say.
    The bars are those of the seed alone, wide enough to hold all cells at once 19 times in 20 (each at
    1 − 0.05/cells), so that an honest campaign is hardly ever touched. A cell can then be moved by the
    width of its bar at most, whatever the fakes send and however many they are.
    """
    low, high = estimator.fit(seed).interval(1 - (1 - SEED_LEVEL) / estimate.space.size)
    nearest = held_within(estimate.distribution, low, high)
    return held(estimate, tallies, nearest, "held to the error bars of the trusted seed round")


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
    found = np.clip(above * given, low, high)
    return np.asarray(found / found.sum())


def held_between(
    distribution: FloatArray,
    members: FloatArray,
    least: FloatArray,
    most: FloatArray,
    allowed: FloatArray,
) -> FloatArray:
    """The nearest distribution, by Kullback–Leibler divergence, that gives each region least to most.

    ``members`` (regions, cells) are one where a cell is in a region. Law: Bregman's projections, one region
    at a time, each with a multiplier that a later sweep gives back as far as it may; then as far on the way
    from ``allowed``, which keeps to all bounds, as these let it.

    >>> pairs = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    >>> nothing, thirds = np.zeros(2), np.full(3, 1 / 3)
    >>> most = np.array([0.7, 0.7])
    >>> held_between(np.array([0.6, 0.3, 0.1]), pairs, nothing, most, thirds).round(2).tolist()
    [0.47, 0.23, 0.3]
    """
    found = np.maximum(distribution, _TINY)
    moved = np.zeros(len(members))  # what each region was multiplied by, its logarithm
    regions = [np.flatnonzero(row) for row in members]
    lowest, highest = np.log(np.maximum(least, _TINY)), np.log(np.maximum(most, _TINY))
    for _ in range(_MOST_SWEEPS):
        shares = members @ found
        outside = (shares > most * (1 + _SETTLED)) | (shares < least * (1 - _SETTLED))
        if not outside.any():
            break
        for number in np.flatnonzero(outside | (moved != 0)).tolist():
            region = regions[number]
            free = np.log(max(found[region].sum(), _TINY)) - moved[number]
            target = min(max(free, float(lowest[number])), float(highest[number]))
            change = target - free - moved[number]
            moved[number] = target - free
            found[region] *= np.exp(change)
        found /= found.sum()
    away = members @ (found - allowed)
    there = members @ allowed
    room = np.maximum(np.where(away > 0, most - there, there - least), 0.0)
    beyond = np.abs(away) > room + 1e-12
    shares = np.divide(room, np.abs(away), out=np.ones_like(away), where=beyond)
    return np.asarray(allowed + float(shares.min(initial=1.0)) * (found - allowed))
