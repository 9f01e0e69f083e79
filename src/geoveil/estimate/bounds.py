"""Estimates held to bounds: the nearest distribution within them, and the estimate that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.channel.observed import TINY
from geoveil.estimate import bars, fitted
from geoveil.estimate.mixture import AverageOfEstimates, Estimator
from geoveil.estimate.uncertainty import FisherInformation

_SEED_LEVEL = 0.95
"""How often the bars of a seed round hold the truth of all cells together."""
_STEPS = 200
_MOST_SWEEPS, _SETTLED = 300, 1e-6


def held(
    estimate: fitted.Estimate,
    tallies: Sequence[Tally],
    distribution: FloatArray,
    words: str,
    *,
    average: bool = False,
) -> fitted.Estimate:
    """An estimate from these tallies with another distribution; itself where that is the same.

    Of an ``average`` of estimates the bars stay those: all tallies together would say something else.
    """
    if np.abs(distribution - estimate.distribution).max() <= 1e-12:
        return estimate
    observations = fitted.Observations(tallies)

    def errors() -> bars.ErrorBars:
        if average:
            return replace(estimate.errors, distribution=distribution)
        return FisherInformation().about(observations, distribution)

    return fitted.Estimate(
        space=estimate.space,
        distribution=distribution,
        total=estimate.total,
        steps=estimate.steps,
        stopped=f"{estimate.stopped}; then {words}",
        find_fit=lambda: fitted.fit_of(observations, distribution),
        find_errors=errors,
        find_identifiability=lambda: estimate.identifiable,
        find_promises=lambda: estimate.promises,
        uneven=estimate.uneven,
    )


def held_to_seed(
    estimate: fitted.Estimate, tallies: Sequence[Tally], seed: Sequence[Tally], estimator: Estimator
) -> fitted.Estimate:
    """An estimate held to the error bars of a trusted seed round; itself where it lies within them.

    No estimator can tell fakes that behave like people from people. Reports that are known to be honest, of
    one's own staff or of a panel, bound what the others can do, not by their number, but by what they say.
    The bars are those of the seed alone, wide enough to hold all cells at once 19 times in 20 (each at
    1 − 0.05/cells), so that an honest campaign is hardly ever touched. A cell can then be moved by the
    width of its bar at most, whatever the fakes send and however many they are.
    ``estimator`` is what the estimate was made with: where that is an average of estimates, so is the seed's.
    """
    low, high = estimator.fit(seed).interval(1 - (1 - _SEED_LEVEL) / estimate.space.size)
    nearest = held_within(estimate.distribution, low, high)
    words = "held to the error bars of the trusted seed round"
    return held(
        estimate, tallies, nearest, words, average=isinstance(estimator, AverageOfEstimates)
    )


def held_within(distribution: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The distribution within bounds that is nearest by Kullback–Leibler divergence.

    Law: min(max(τ·θ, low), high) with the τ for which it sums to one; Σ low ≤ 1 ≤ Σ high must hold.

    >>> held_within(np.array([0.7, 0.2, 0.1]), np.zeros(3), np.array([0.4, 1.0, 1.0])).round(2).tolist()
    [0.4, 0.4, 0.2]
    """
    theta = np.maximum(distribution, np.finfo(float).tiny)
    below, above = 0.0, 1.0
    while np.clip(above * theta, low, high).sum() < 1.0 and above < 1e300:
        above *= 2.0
    for _ in range(_STEPS):
        middle = (below + above) / 2
        if np.clip(middle * theta, low, high).sum() < 1.0:
            below = middle
        else:
            above = middle
    clipped = np.clip(above * theta, low, high)
    return np.asarray(clipped / clipped.sum())


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
    theta = np.maximum(distribution, TINY)
    moved = np.zeros(len(members))  # what each region was multiplied by, its logarithm
    regions = [np.flatnonzero(row) for row in members]
    lowest, highest = np.log(np.maximum(least, TINY)), np.log(np.maximum(most, TINY))
    for _ in range(_MOST_SWEEPS):
        shares = members @ theta
        outside = (shares > most * (1 + _SETTLED)) | (shares < least * (1 - _SETTLED))
        if not outside.any():
            break
        for number in np.flatnonzero(outside | (moved != 0)).tolist():
            region = regions[number]
            free = np.log(max(theta[region].sum(), TINY)) - moved[number]
            target = min(max(free, float(lowest[number])), float(highest[number]))
            change = target - free - moved[number]
            moved[number] = target - free
            theta[region] *= np.exp(change)
        theta /= theta.sum()
    away = members @ (theta - allowed)
    there = members @ allowed
    room = np.maximum(np.where(away > 0, most - there, there - least), 0.0)
    beyond = np.abs(away) > room + 1e-12
    shares = np.divide(room, np.abs(away), out=np.ones_like(away), where=beyond)
    return np.asarray(allowed + float(shares.min(initial=1.0)) * (theta - allowed))
