"""The information each tally holds about the distribution, and the score that goes with it.

Information and score are those of a linear statistic of the reports whose weights do not depend on the
counts, so one step with them is unbiased wherever it starts. Three kinds of tallies have one: all
reports of a channel by their counts, RAPPOR by the sums of its bits, several reports of one person by
the counts of all combinations. For any other tally only what was seen is known, and weights taken from
the counts themselves make intervals too narrow where reports are few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.tally import Tally
from geoveil.estimate.bars import RARE
from geoveil.estimate.bounds import rappor_mixture, rappor_moments
from geoveil.estimate.joint import ObservedCombinations
from geoveil.estimate.likelihood import DenseLikelihood, Likelihood, StackedLikelihood
from geoveil.estimate.observations import Observations
from geoveil.mechanism.rappor import ObservedVectors

_POSSIBLE = 1e-200
_LEAST_SLACK = 1e-6


class Information(NamedTuple):
    """What one tally adds: the information A·diag(weights)·Aᵀ, the score, and how they were found."""

    columns: Likelihood
    """A (cells, any), as products."""
    weights: FloatArray
    score: FloatArray
    how: str
    """Empty where all reports of the channel were counted, as usual."""

    def matrix(self) -> FloatArray:
        """(cells, cells). Cost: cells²·columns."""
        columns = self.columns.columns(np.arange(self.columns.observations))
        return np.asarray((columns * self.weights) @ columns.T)

    def times(self, changes: FloatArray) -> FloatArray:
        """The information times changes (…, cells). Cost: a push and a pull."""
        return self.columns.pull(self.columns.push(changes) * self.weights)

    def noise(self, draws: int, generator: np.random.Generator) -> FloatArray:
        """(draws, cells): random scores, with the information for their covariance. Cost: a pull."""
        drawn = generator.standard_normal((draws, self.weights.size))
        return self.columns.pull(drawn * np.sqrt(self.weights))


class _Identity(Likelihood):
    """Every cell is seen by itself."""

    exact = True

    def __init__(self, cells: int) -> None:
        self.unknowns = self.observations = cells

    def push(self, theta: FloatArray) -> FloatArray:
        return theta

    def pull(self, values: FloatArray) -> FloatArray:
        return values


def tally_information(
    observations: Observations, number: int, distribution: FloatArray
) -> Information:
    """The information of one tally at a distribution. Cost: a push and a pull."""
    tally = observations.tallies[number]
    if isinstance(tally.channel, ObservedVectors):
        return _of_bit_sums(tally, tally.channel, distribution)
    if isinstance(tally.channel, ObservedCombinations):
        every = tally.channel.every_combination()
        if every is not None:
            return _of_combinations(tally, tally.channel, every, distribution)
    elif observations.complete(number):
        return _of_all_reports(tally, observations.parts[number], distribution)
    return _of_reports_seen(observations, number, distribution)


def telling_columns(observations: Observations, number: int) -> FloatArray:
    """(cells, any): columns that tell apart exactly the cells which the tally's reports tell apart.

    Reports not seen count as well: that they were not seen says something. Where a tally holds only
    what was seen and its alphabet is too large, the columns are those seen.
    """
    part, tally = observations.parts[number], observations.tallies[number]
    if isinstance(tally.channel, ObservedVectors):
        return np.eye(part.unknowns)
    if isinstance(tally.channel, ObservedCombinations):
        every = tally.channel.every_combination()
        if every is not None:
            return every
    return part.channel.matrix()


def _of_all_reports(tally: Tally, columns: Likelihood, distribution: FloatArray) -> Information:
    expected = tally.total * np.maximum(columns.push(distribution), np.finfo(float).tiny)
    variance = np.maximum(expected, RARE)
    score = columns.pull((tally.counts - expected) * tally.total / variance)
    return Information(columns, tally.total**2 / variance, score, "")


def _of_bit_sums(tally: Tally, channel: ObservedVectors, distribution: FloatArray) -> Information:
    """The bits have covariance diag(own) − uuᵀ; its inverse is diag(1/own) + yyᵀ/(1 − u·y), y = u/own.

    The slack 1 − u·y is that of the sum of all bits, which tells no cells apart: its floor keeps
    the matrix regular and costs nothing.
    """
    group = rappor_mixture(channel.mechanism.epsilon, tally.total)
    spread, shared = rappor_moments(group, distribution)
    u = np.sqrt(group.people) * shared
    own = np.maximum(group.people * spread - u**2, RARE) + u**2
    y = u / own
    slack = max(1.0 - float(u @ y), _LEAST_SLACK)
    columns = StackedLikelihood([_Identity(y.size), DenseLikelihood(y[:, None])])
    weights = np.append(1.0 / own, 1.0 / slack)
    scale = group.people * group.gain
    missing = tally.counts @ channel.vectors - group.people * group.noise - scale * distribution
    score = scale * columns.pull(columns.push(missing) * weights)
    return Information(columns, scale**2 * weights, score, "RAPPOR by its bit sums")


def _of_combinations(
    tally: Tally, channel: ObservedCombinations, every: FloatArray, distribution: FloatArray
) -> Information:
    """Combinations are many and most are rare; the floor is therefore on the people of each cell."""
    people = np.maximum(tally.total * distribution, RARE)
    counts = np.bincount(channel.numbers(), weights=tally.counts, minlength=every.shape[1])
    possible = people @ every > _POSSIBLE
    columns = every[:, possible]
    variance = people @ columns
    missing = counts[possible] - tally.total * (distribution @ columns)
    return Information(
        DenseLikelihood(columns),
        tally.total**2 / variance,
        columns @ (missing * tally.total / variance),
        "several reports of one person by all their combinations",
    )


def _of_reports_seen(
    observations: Observations, number: int, distribution: FloatArray
) -> Information:
    """The observed information, and the score up to a constant."""
    tally = observations.tallies[number]
    seen = np.flatnonzero(tally.counts)
    columns, counts = observations.parts[number].columns(seen), tally.counts[seen]
    law = np.maximum(distribution @ columns, np.finfo(float).tiny)
    return Information(
        DenseLikelihood(columns),
        counts / law**2,
        columns @ (counts / law),
        "observed information of the reports seen, too narrow where each kind was seen a few times",
    )
