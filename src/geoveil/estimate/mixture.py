"""People with different mechanisms, for estimators made for one: two ways to reuse them.

Neither is maximum likelihood: ``IterativeBayesianUpdate().fit([…])`` uses the same tallies better
(FREEWILL §7 and §8). The certificate of the results says how much likelihood they may lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from geoveil.arrays import one_blas_thread
from geoveil.channel.channel import Tally
from geoveil.channel.composed import AverageChannel
from geoveil.errors import Unsupported
from geoveil.estimate.bars import AveragedErrors
from geoveil.estimate.estimate import Estimate, fit_of
from geoveil.estimate.identifiability import Identifiability
from geoveil.estimate.observations import Observations, checked_tallies, joined


class Estimator(Protocol):
    """Whatever turns tallies into an estimate."""

    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from one tally or several."""


@dataclass(frozen=True)
class AverageOfEstimates:
    """[e]_R: one estimate for each mechanism, averaged by the number of reports.

    Law: θ̂ = Σ_A (n^A/n)·e(A, D^A), after joining the tallies of equal mechanisms.
    Cost: that of the estimator, once for each mechanism.
    Reference: FREEWILL eqs. (4) and (5). Each estimate sees only a part of the reports, and what a
    repair adds to each does not average out.

    >>> import geoveil as gv
    >>> from geoveil.estimate.linear import MatrixInversion
    >>> line = gv.Line(2)
    >>> strict, open_ = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 3.0))
    >>> tallies = [gv.Tally(strict, [60, 40]), gv.Tally(open_, [240, 60])]
    >>> AverageOfEstimates(MatrixInversion()).fit(tallies).distribution.round(3).tolist()
    [0.803, 0.197]
    """

    estimator: Estimator

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from tallies of one space, whatever their mechanisms."""
        each = by_mechanism(checked_tallies(tallies))
        parts = [self.estimator.fit(tally) for tally in each]
        weights = np.array([part.total for part in parts], dtype=np.float64)
        weights /= weights.sum()
        distribution = weights @ np.stack([part.distribution for part in parts])
        return Estimate(
            space=parts[0].space,
            distribution=distribution,
            total=sum(part.total for part in parts),
            steps=max(part.steps for part in parts),
            stopped=f"average of {_each(parts)}",
            find_fit=lambda: fit_of(Observations(each), distribution),
            find_errors=lambda: AveragedErrors(distribution, [p.errors for p in parts], weights),
            find_identifiability=lambda: _least_identifiable(parts),
        )


@dataclass(frozen=True)
class AverageMechanism:
    """[e]_M: one estimate from all reports, as if made by the average of the mechanisms.

    Law: e(A[n], q[n]) with A[n] = Σ_A (n^A/n)·A and q[n] the share of each report among all.
    All mechanisms must have the same reports. Consistent for matrix inversion; for maximum likelihood
    it is not maximum likelihood, and where mechanisms cancel each other in the average, nothing is
    left to estimate from. Error bars are those under the average mechanism: on the safe side,
    because knowing who used which mechanism only lowers the variance of q[n].
    Reference: FREEWILL §5.1, §5.3 and Proposition 1.

    >>> import geoveil as gv
    >>> from geoveil.estimate.linear import MatrixInversion
    >>> line = gv.Line(2)
    >>> strict, open_ = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 3.0))
    >>> tallies = [gv.Tally(strict, [60, 40]), gv.Tally(open_, [240, 60])]
    >>> AverageMechanism(MatrixInversion()).fit(tallies).distribution.round(3).tolist()
    [0.815, 0.185]
    """

    estimator: Estimator

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from tallies of one space whose channels have the same reports."""
        observations = Observations(by_mechanism(checked_tallies(tallies)))
        inner = self.estimator.fit(_averaged(observations))
        several = len(observations.tallies)
        return Estimate(
            space=inner.space,
            distribution=inner.distribution,
            total=inner.total,
            steps=inner.steps,
            stopped=f"{inner.stopped}, under the average of {several} mechanisms",
            find_fit=lambda: fit_of(observations, inner.distribution),
            find_errors=lambda: inner.errors,
            find_identifiability=lambda: inner.identifiable,
        )


def by_mechanism(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """One tally for each mechanism that made a report, in the order in which they come first."""
    return joined([tally for tally in tallies if tally.total])


def _averaged(observations: Observations) -> Tally:
    tallies = observations.tallies
    if not all(tally.complete for tally in tallies):
        raise Unsupported(
            "the average mechanism needs every report of each channel, and a tally keeps only "
            "those seen; use RapporEstimator for RAPPOR, or IterativeBayesianUpdate"
        )
    shares = [tally.total / observations.total for tally in tallies]
    average = AverageChannel([tally.channel for tally in tallies], shares)
    return Tally(average, sum(tally.counts for tally in tallies))


def _each(parts: Sequence[Estimate]) -> str:
    reasons = dict.fromkeys(part.stopped for part in parts)
    more = "" if len(reasons) == 1 else f" (and {len(reasons) - 1} other ways)"
    return f"{len(parts)} estimates, each {next(iter(reasons))}{more}"


def _least_identifiable(parts: Sequence[Estimate]) -> Identifiability:
    return min((part.identifiable for part in parts), key=lambda found: found.rank)
