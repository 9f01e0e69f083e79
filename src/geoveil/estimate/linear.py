"""Matrix inversion: solve for the distribution, then bring it back to the simplex."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray, one_blas_thread
from geoveil.channel.tally import Tally
from geoveil.errors import InvalidInput
from geoveil.estimate.bars import RARE, GaussianErrors
from geoveil.estimate.estimate import Estimate
from geoveil.estimate.fit import fit_of
from geoveil.estimate.identifiability import tell_apart_by
from geoveil.estimate.likelihood import ChannelLikelihood
from geoveil.estimate.mixture import by_mechanism
from geoveil.estimate.observations import Observations
from geoveil.estimate.simplex import REPAIRS, Repair, checked_repair
from geoveil.estimate.system import LinearSystem


@dataclass(frozen=True)
class MatrixInversion:
    """The distribution whose law of reports is nearest to what was seen, made valid afterwards.

    Law: v solves vC = q (least squares where C is not square or is singular; ``stopped`` says so).
    ``repair="project"`` takes the distribution nearest to v, ``"normalise"`` sets negative entries to
    zero and rescales. v is unbiased where C has full rank; the repaired estimate is not. Error bars
    are those of v (delta method), cut to [0, 1] and stretched to hold the estimate.
    Cost: m³, once; refused above 4,096 cells.
    Reference: FREEWILL §5.1 (INV, INV-P, INV-N).

    >>> import geoveil as gv
    >>> mechanism = gv.RandomizedResponse(gv.Line(3), epsilon=2.0)
    >>> estimate = MatrixInversion(repair="project").fit(gv.Tally(mechanism, [600, 300, 100]))
    >>> estimate.distribution.round(3).tolist()
    [0.72, 0.28, 0.0]
    >>> estimate.stopped
    'solved exactly, then projected onto the simplex'
    """

    repair: Repair = "project"

    def __post_init__(self) -> None:
        checked_repair(self.repair)

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from one tally, or from several of one mechanism."""
        observations = Observations(tallies)
        tally = _only_mechanism(observations)
        system = LinearSystem(tally.channel)
        solution = system.solve(tally.counts / tally.total)
        distribution = REPAIRS[self.repair](solution)
        return Estimate(
            space=observations.space,
            distribution=distribution,
            total=observations.total,
            steps=0,
            stopped=f"{system.how}, then {repair_words(self.repair, solution)}",
            find_fit=lambda: fit_of(observations, distribution),
            find_errors=lambda: _errors(system, tally.total, solution, distribution),
            find_identifiability=lambda: tell_apart_by(ChannelLikelihood(tally.channel)),
        )


def repair_words(repair: Repair, solution: FloatArray) -> str:
    """What the repair had to do."""
    if solution.min() >= 0 and abs(float(solution.sum()) - 1.0) < 1e-9:
        return "left as it was: a distribution already"
    return {
        "project": "projected onto the simplex",
        "normalise": "cut at zero and normalised",
    }[repair]


def _only_mechanism(observations: Observations) -> Tally:
    tallies = by_mechanism(observations.tallies)
    if len(tallies) > 1:
        raise InvalidInput(
            f"tallies (of {len(tallies)} mechanisms) must come from one mechanism to invert it; use "
            "AverageMechanism(MatrixInversion()), AverageOfEstimates(MatrixInversion()) or "
            "IterativeBayesianUpdate()"
        )
    return tallies[0]


def _errors(
    system: LinearSystem, total: int, solution: FloatArray, distribution: FloatArray
) -> GaussianErrors:
    """Cov(v) = Pᵀ(diag(p) − pᵀp)P/n with p = θC, where v = qP.

    Each count has a variance n·p(1 − p) of at least ``RARE``: a report that nearly everybody makes is
    known no better than one that hardly anybody makes.
    """
    law = distribution @ system.matrix
    own = np.maximum(total * law * (1.0 - law), RARE) + total * np.square(law)
    spread = system.solve(np.diag(np.sqrt(own) / total))
    mean = system.solve(law)
    return GaussianErrors(
        distribution=distribution,
        centre=solution,
        covariance=spread.T @ spread - np.outer(mean, mean) / total,
        lost=system.lost(),
        people=total,
        method="delta method on the solution before its repair",
    )
