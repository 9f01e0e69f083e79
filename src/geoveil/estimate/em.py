"""The one loop: expectation–maximisation, for every estimate and every design.

Maximise f(θ) = Σ_i w_i log (θL)_i over the simplex by θ ← θ∘g, g = L·(w/(θL)), from a start with
full support. The iterative Bayesian update, its generalisation to many mechanisms, RAPPOR and
several reports of one person differ in L and w only; Blahut–Arimoto swaps the roles of cells and
reports. f never falls, and at every step the certificate log max g bounds what is missing.

Reference: IBU Alg. 1 and Thm 5, FREEWILL Alg. 1, PRIVIC §4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, distribution, frozen
from geoveil.errors import InvalidInput
from geoveil.estimate.likelihood import Likelihood
from geoveil.estimate.objective import Objective, Point, uniform
from geoveil.estimate.stopping import CertifiedWithin, Meter, Progress, Stop, Trace

_SETTLING = 0.9
"""The part of the work that a rule takes which looks at the data first, such as cross-validation."""


class Accelerator(Protocol):
    """A faster way uphill that never lowers f and never leaves the simplex."""

    def path(self, objective: Objective, start: FloatArray) -> Iterator[Point]:
        """The start, then one point after every step; ends where no step raises f any more."""


@dataclass(frozen=True)
class Ascent:
    """Where the ascent ended, how it ended, and how far below the maximum it can be."""

    distribution: FloatArray
    log_likelihood: float
    """f, nats per observation (up to the factors left out of the columns)."""
    certificate: float
    """At least f* − f, nats per observation."""
    steps: int
    products: int
    """How many pushes and pulls were made."""
    stopped: str
    trace: Trace


def em_path(objective: Objective, start: FloatArray) -> Iterator[Point]:
    """The points of expectation–maximisation from ``start`` on, for all problems at once, without end."""
    point = objective.at(start)
    while True:
        yield point
        point = objective.at(em_step(point))


def em_step(point: Point) -> FloatArray:
    """θ∘g; its sum is one but for rounding."""
    raised = point.theta * point.gradient
    raised /= np.add.reduce(raised, axis=-1, keepdims=True)
    return raised


def maximise(
    likelihood: Likelihood,
    weights: npt.ArrayLike,
    *,
    start: npt.ArrayLike | None = None,
    stop: Stop | None = None,
    accelerate: Accelerator | None = None,
    progress: Progress | None = None,
) -> Ascent:
    """The distribution over the unknowns that makes the weighted observations most likely.

    ``weights`` are counts or probabilities, one per observation. ``start`` must have full support:
    what starts at zero stays there (IBU §V-B). The default rule is ``CertifiedWithin(1e-6)``.
    Cost: a push and a pull per step; accelerators say theirs.

    >>> import numpy as np
    >>> from geoveil.estimate.likelihood import DenseLikelihood
    >>> coin = DenseLikelihood(np.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> ascent = maximise(coin, [60, 40])
    >>> ascent.distribution.round(3).tolist(), ascent.certificate <= 1e-6
    ([0.7, 0.3], True)
    """
    first = full_support(start, likelihood.unknowns)
    wanted = CertifiedWithin() if stop is None else stop
    meter = Meter(progress)
    rule = wanted.settled(likelihood, weights, first, meter.first(_SETTLING))
    begun = 0.0 if rule is wanted else _SETTLING
    objective = Objective(likelihood, weights)
    path = em_path(objective, first) if accelerate is None else accelerate.path(objective, first)
    trace = Trace()
    reason = "no step raises the log-likelihood any more in double precision"
    for point in path:
        trace.add(float(point.log_likelihood), float(point.certificate))
        meter.at(begun + (1 - begun) * rule.fraction(trace))
        said = rule.reason(trace)
        if said is not None:
            reason = said
            break
    meter.at(1.0)
    return Ascent(
        distribution=frozen(np.array(point.theta)),
        log_likelihood=trace.log_likelihood[-1],
        certificate=trace.certificate[-1],
        steps=trace.steps,
        products=objective.products,
        stopped=reason,
        trace=trace,
    )


def full_support(start: npt.ArrayLike | None, unknowns: int) -> FloatArray:
    """The start as a distribution that is positive everywhere; uniform where none is given."""
    if start is None:
        return uniform(unknowns)
    first = distribution("start", start, unknowns)
    if (first <= 0).any():
        empty = int((first <= 0).sum())
        raise InvalidInput(
            f"start (zero at {empty} of {unknowns} entries) must be positive everywhere, because "
            "what starts at zero stays zero; mix it with the uniform distribution"
        )
    return first
