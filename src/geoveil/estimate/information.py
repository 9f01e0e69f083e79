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
from geoveil.estimate.bounds import rappor_mixture, rappor_moments
from geoveil.estimate.joint import ObservedCombinations
from geoveil.estimate.observations import Observations
from geoveil.mechanism.rappor import ObservedVectors

RARE = 2.4
"""Reports expected less often count as if expected this often: a report never seen then bounds a
share by 1.96·√2.4 ≈ 3 reports, the rule of three, instead of by nothing."""

_POSSIBLE = 1e-200
_LEAST_SLACK = 1e-6


class Information(NamedTuple):
    """What one tally adds: an information matrix, a score, and how they were found."""

    matrix: FloatArray
    score: FloatArray
    how: str
    """Empty where all reports of the channel were counted, as usual."""


def tally_information(
    observations: Observations, number: int, distribution: FloatArray
) -> Information:
    """The information of one tally at a distribution.

    Cost: m²·(reports of the channel, combinations, or kinds of reports seen); m² for RAPPOR.
    """
    tally = observations.tallies[number]
    if isinstance(tally.channel, ObservedVectors):
        return _of_bit_sums(tally, tally.channel, distribution)
    if isinstance(tally.channel, ObservedCombinations):
        every = tally.channel.every_combination()
        if every is not None:
            return _of_combinations(tally, tally.channel, every, distribution)
    elif observations.complete(number):
        return _of_all_reports(tally, observations.parts[number].channel.matrix(), distribution)
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


def _of_all_reports(tally: Tally, columns: FloatArray, distribution: FloatArray) -> Information:
    expected = tally.total * np.maximum(distribution @ columns, np.finfo(float).tiny)
    variance = np.maximum(expected, RARE)
    return Information(
        (columns * (tally.total**2 / variance)) @ columns.T,
        columns @ ((tally.counts - expected) * tally.total / variance),
        "",
    )


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
    inverse = np.diag(1.0 / own) + np.outer(y, y) / max(1.0 - float(u @ y), _LEAST_SLACK)
    scale = group.people * group.gain
    missing = tally.counts @ channel.vectors - group.people * group.noise - scale * distribution
    return Information(scale**2 * inverse, scale * (inverse @ missing), "RAPPOR by its bit sums")


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
        (columns * (tally.total**2 / variance)) @ columns.T,
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
        (columns * (counts / law**2)) @ columns.T,
        columns @ (counts / law),
        "observed information of the reports seen, too narrow where each kind was seen a few times",
    )
