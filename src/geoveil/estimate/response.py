"""Randomised response and RAPPOR in closed form, whatever privacy level each person chose.

Both replace a one-hot datum b by noise + gain·b on average, so the share of each report (of each bit)
gives the distribution back by one subtraction and one division. No matrix, any number of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray, IntArray, frozen, one_blas_thread
from geoveil.channel.tally import Tally
from geoveil.errors import Unsupported
from geoveil.estimate.bars import RARE, DiagonalErrors
from geoveil.estimate.bounds import (
    Mixture,
    pooled,
    randomized_response_mixture,
    rappor_mixture,
    rappor_moments,
)
from geoveil.estimate.estimate import Estimate
from geoveil.estimate.fit import fit_of
from geoveil.estimate.identifiability import Identifiability
from geoveil.estimate.linear import repair_words
from geoveil.estimate.observations import Observations, checked_tallies
from geoveil.estimate.simplex import REPAIRS, Repair, checked_repair
from geoveil.mechanism.randomized_response import RandomizedResponse
from geoveil.mechanism.rappor import RapporTally

Moments = Callable[[Mixture, FloatArray], tuple[FloatArray, FloatArray]]
"""Of one report: d and u with covariance diag(d) − u·uᵀ."""


@dataclass(frozen=True)
class RandomizedResponseEstimator:
    """[INV]_M for people who use k-ary randomised response at levels of their own.

    Law: θ̂ = ((e^{ε[n]}+k−1)·q − 1)/(e^{ε[n]}−1) with 1/(k−1+e^{ε[n]}) = mean of 1/(k−1+e^{ε_i}), then
    the repair. Before the repair it is unbiased, and its error at most that of
    ``randomized_response_error_bound``. Error bars are exact variances at θ̂.
    Cost: O(k), any k. The same as ``AverageMechanism(MatrixInversion())``, without a matrix.
    Reference: FREEWILL eqs. (8) and (9), Proposition 2.

    >>> import geoveil as gv
    >>> line = gv.Line(2)
    >>> strict, open_ = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 3.0))
    >>> tallies = [gv.Tally(strict, [60, 40]), gv.Tally(open_, [240, 60])]
    >>> RandomizedResponseEstimator().fit(tallies).distribution.round(3).tolist()
    [0.815, 0.185]
    """

    repair: Repair = "project"

    def __post_init__(self) -> None:
        checked_repair(self.repair)

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from tallies of randomised response over one space."""
        given = [tally for tally in checked_tallies(tallies) if tally.total]
        groups = [
            randomized_response_mixture(_level(tally), tally.total, tally.space.size)
            for tally in given
        ]
        seen = np.sum([tally.counts for tally in given], axis=0)
        return _estimate(given, groups, seen, self.repair, _response_moments)


@dataclass(frozen=True)
class RapporEstimator:
    """[RAP]_M for people who use RAPPOR at levels of their own, from the sums of the bits alone.

    Law: θ̂ = ((e^{ε[n]/2}+1)·s − 1)/(e^{ε[n]/2}−1) with s the mean bit vector and
    1/(1+e^{ε[n]/2}) = mean of 1/(1+e^{ε_i/2}), then the repair. Before the repair it is unbiased, and
    its error at most that of ``rappor_error_bound``. Error bars are exact variances at θ̂.
    Cost: O(k), any k.
    Reference: FREEWILL eqs. (13) and (14), Proposition 3.

    >>> import geoveil as gv
    >>> rappor = gv.Rappor(gv.Line(2), epsilon=2.0)
    >>> bits = [[1, 0]] * 60 + [[0, 1]] * 20 + [[0, 0]] * 10 + [[1, 1]] * 10
    >>> RapporEstimator().fit(rappor.tally(bits)).distribution.round(3).tolist()
    [0.933, 0.067]
    """

    repair: Repair = "project"

    def __post_init__(self) -> None:
        checked_repair(self.repair)

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from RAPPOR tallies over one space."""
        given = [_rappor(tally) for tally in checked_tallies(tallies) if tally.total]
        groups = [rappor_mixture(tally.mechanism.epsilon, tally.total) for tally in given]
        seen = np.sum([tally.bit_sums for tally in given], axis=0)
        return _estimate(given, groups, seen, self.repair, rappor_moments)


def _level(tally: Tally) -> float:
    if not isinstance(tally.channel, RandomizedResponse):
        raise Unsupported(
            f"a tally (of {tally.channel!r}) must come from RandomizedResponse for this estimator; "
            "use AverageMechanism(MatrixInversion()) or IterativeBayesianUpdate()"
        )
    return tally.channel.epsilon


def _rappor(tally: Tally) -> RapporTally:
    if not isinstance(tally, RapporTally):
        raise Unsupported(
            f"a tally (of {tally.channel!r}) must come from Rappor for this estimator; "
            "use AverageMechanism(MatrixInversion()) or IterativeBayesianUpdate()"
        )
    return tally


def _estimate(
    tallies: Sequence[Tally],
    groups: Sequence[Mixture],
    seen: IntArray,
    repair: Repair,
    moments: Moments,
) -> Estimate:
    noise, gain, total = pooled(groups)
    solution = (seen / total - noise) / gain
    distribution = REPAIRS[repair](solution)
    levels = len({group[:2] for group in groups})
    levels_said = "one privacy level" if levels == 1 else f"{levels} privacy levels together"
    return Estimate(
        space=tallies[0].space,
        distribution=distribution,
        total=int(total),
        steps=0,
        stopped=f"solved exactly for {levels_said}, then {repair_words(repair, solution)}",
        find_fit=lambda: fit_of(Observations(tallies), distribution),
        find_errors=lambda: _errors(groups, solution, distribution, moments),
        find_identifiability=lambda: _identifiable(distribution.size),
    )


def _errors(
    groups: Sequence[Mixture], solution: FloatArray, distribution: FloatArray, moments: Moments
) -> DiagonalErrors:
    """Reports are independent, so their covariances add, group by group; ``RARE`` is the least."""
    overall = pooled(groups)
    scale = overall.people * overall.gain
    spreads, factors = zip(*(moments(group, distribution) for group in groups), strict=True)
    people = np.array([group.people for group in groups])
    shared = people @ np.square(factors)
    return DiagonalErrors(
        distribution=distribution,
        centre=solution,
        spread=(np.maximum(people @ np.stack(spreads) - shared, RARE) + shared) / scale**2,
        factors=np.sqrt(people)[:, None] * np.stack(factors) / scale,
        people=int(overall.people),
        method="exact variances at the estimate, before its repair",
    )


def _response_moments(group: Mixture, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One report of law p, as a one-hot vector: diag(p) − ppᵀ."""
    law = group.noise + group.gain * theta
    return law, law


def _identifiable(cells: int) -> Identifiability:
    reason = f"identifiable: every level above 0 tells all {cells} cells apart"
    return Identifiability(cells, cells, frozen(np.zeros(cells, dtype=np.bool_)), (), reason)
