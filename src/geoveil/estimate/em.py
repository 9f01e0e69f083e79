"""The one loop: expectation–maximisation with its certificate, and what makes it faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
import scipy

from geoveil.arrays import ArrayLike, FloatArray, IntArray, able, count, frozen, positive
from geoveil.channel.backend import host_array
from geoveil.channel.operator import Operator
from geoveil.errors import InvalidInput, TooLarge
from geoveil.estimate.objective import Objective, Point, em_step, full_support, pooled, shared_path
from geoveil.estimate.stopping import (
    CertifiedWithin,
    Meter,
    Progress,
    Steps,
    Stop,
    Trace,
    check_stop,
)
from geoveil.space.space import MATRIX_LIMIT

_SETTLING = 0.9
"""The part of the work that a rule takes which looks at the data first, such as cross-validation."""


class Accelerator(Protocol):
    """A faster way uphill that never lowers f and never leaves the simplex."""

    def path(self, objective: Objective, start: FloatArray) -> Iterator[Point]:
        """The start, then one point after every step; ends where no step raises f any more."""


def check_accelerator(accelerate: Any) -> None:
    """Refuse what is no accelerator, such as its name."""
    if accelerate is not None:
        able("accelerate", accelerate, "path", "gv.Squarem() or gv.ActiveSetNewton()")


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


def maximise(
    operator: Operator,
    weights: ArrayLike,
    *,
    start: ArrayLike | None = None,
    stop: Stop | None = None,
    accelerate: Accelerator | None = None,
    progress: Progress | None = None,
) -> Ascent:
    """The distribution over the unknowns that makes the weighted observations most likely.

    ``weights`` are counts or probabilities, one per observation. ``start`` must have full support:
    what starts at zero stays there (IBU §V-B). The default rule is ``CertifiedWithin(1e-6)``.
    Cost: a push and a pull per step; accelerators say theirs.

    >>> import numpy as np
    >>> from geoveil.channel.operator import DenseOperator
    >>> coin = DenseOperator(np.array([[0.75, 0.25], [0.25, 0.75]]))
    >>> ascent = maximise(coin, [60, 40])
    >>> ascent.distribution.round(3).tolist(), ascent.certificate <= 1e-6
    ([0.7, 0.3], True)
    """
    first = full_support(start, operator.shape[0])
    stop = CertifiedWithin() if stop is None else stop
    check_stop(stop)
    check_accelerator(accelerate)
    meter = Meter(progress)
    rule = stop.settled(operator, weights, first, meter.first(_SETTLING))
    begun = 0.0 if rule is stop else _SETTLING
    objective = Objective(operator, weights)
    few = None
    if accelerate is None and isinstance(rule, Steps):  # other rules look at every step
        few = pooled(operator, np.asarray(weights, dtype=np.float64))
    path = (
        shared_path(objective, few, first, rule.maximum)
        if accelerate is None
        else enumerate(accelerate.path(objective, first))
    )
    trace = Trace()
    reason = "no step raises the log-likelihood any more in double precision"
    for step, point in path:
        trace.add(float(point.log_likelihood), float(point.certificate), step)
        if progress is not None:
            meter.at(begun + (1 - begun) * rule.fraction(trace))
        said = rule.reason(trace)
        if said is not None:
            reason = said
            break
    meter.at(1.0)
    shared = len(trace.certificate) <= trace.steps  # not every one was looked at
    return Ascent(
        distribution=frozen(np.array(host_array(point.theta))),
        log_likelihood=trace.log_likelihood[-1],
        certificate=trace.certificate[-1],
        steps=trace.steps,
        products=objective.products + (few.products if few is not None else 0),
        stopped=reason + (", rounds that are alike sharing steps" if shared else ""),
        trace=trace,
    )


# --- Acceleration without a matrix: extrapolate two steps of expectation–maximisation


@dataclass(frozen=True)
class Squarem:
    """Squared extrapolation of expectation–maximisation, for spaces too large for a matrix.

    Law: θ₁, θ₂ are the next two plain steps, r = θ₁ − θ₀, v = θ₂ − θ₁ − r, α = ‖r‖/‖v‖ ≥ 1, and
    θ' = θ₀ + 2αr + α²v, kept at or above ``floor``·θ₂ so that it stays inside the simplex, and
    at zero where θ₂ is: no leap brings back what cannot be. Where f(θ') < f(θ₂) the step is θ₂ itself, so
    f never falls.
    Cost: three pushes and three pulls per step.
    Reference: Varadhan & Roland, Scandinavian Journal of Statistics 35 (2008), scheme S3.

    >>> Squarem()
    Squarem(floor=0.1)
    """

    floor: float = 0.1

    def __post_init__(self) -> None:
        if not positive("floor", self.floor) < 1:
            raise InvalidInput(f"floor ({self.floor}) must be below 1")

    def path(self, objective: Objective, start: FloatArray) -> Iterator[Point]:
        """The start, then the point after each extrapolated step."""
        point = objective.at(objective.columns.at.own(start))
        while True:
            yield point
            once = objective.at(em_step(point))
            twice = objective.at(em_step(once))
            leap = objective.at(self._extrapolated(point, once, twice))
            point = leap if leap.log_likelihood >= twice.log_likelihood else twice

    def _extrapolated(self, first: Point, once: Point, twice: Point) -> FloatArray:
        xp = first.xp
        change = once.theta - first.theta  # r
        bend = twice.theta - once.theta - change  # v
        length = float(xp.sum(bend * bend)) ** 0.5
        # α
        stride = max(1.0, float(xp.sum(change * change)) ** 0.5 / length) if length > 0 else 1.0
        leap = first.theta + 2 * stride * change + stride**2 * bend
        inside = xp.maximum(leap, self.floor * twice.theta)
        theta = xp.where(twice.theta > 0, inside, twice.theta)
        return theta / xp.sum(theta)


# --- The exact maximum: Newton steps on the cells that carry mass


_ENTRY = 1e-7
_GONE = 1e-11
_SHRINK = 1e-3
_LEAST_DAMPING = 1e-12
_MOST_DAMPING = 1e3


@dataclass(frozen=True)
class ActiveSetNewton:
    """Newton's method on the support, damped in the metric of expectation–maximisation.

    Law: on the cells with θ > 0 and those with g > 1 that want to enter, solve
    (H + diag((max(1 − g, 0) + λ)/θ))·Δ = g − 1, H = L·diag(w/(θL)²)·Lᵀ, and move to max(θ + Δ, θ/1000),
    rescaled. The multiplier 1 − g sends cells that are to be empty to zero (Coleman & Li); λ makes up
    for a singular H and falls or grows with success or failure; at large λ the step is that of
    expectation–maximisation. A step is taken only if f rises. Cells below 1e-11 become empty.
    Cost: s²·n + s³/3 per step for s cells in the support and n reports seen, after ``warm_steps``
    steps of :class:`Squarem` on the matrix of the columns seen (at most 4,096 cells).
    Reference: the quadratic model is that of Kim, Carbonetto, Stephens & Anitescu, Journal of
    Computational and Graphical Statistics 29 (2020).

    >>> ActiveSetNewton().warm_steps
    30
    """

    warm_steps: int = 30

    def __post_init__(self) -> None:
        count("warm_steps", self.warm_steps, least=0)

    def path(self, objective: Objective, start: FloatArray) -> Iterator[Point]:
        """The start, the warm steps, then the point after each Newton step."""
        if objective.unknowns > MATRIX_LIMIT:
            raise TooLarge(
                f"cells ({objective.unknowns}) must be at most {MATRIX_LIMIT} for the exact maximum; "
                "use accelerate=Squarem(), which needs no matrix"
            )
        dense = objective.dense()
        for point in islice(Squarem().path(dense, start), self.warm_steps + 1):
            objective.products = dense.products
            yield point
        damping = 1e-3
        while True:
            successor = _newton_step(dense, point, damping)
            objective.products = dense.products
            if successor is None:
                return
            point, damping = successor
            yield point


def _newton_step(objective: Objective, point: Point, damping: float) -> tuple[Point, float] | None:
    """A point with a larger f and the damping for the next step; ``None`` where there is none."""
    quadratic = _Model(objective, point)
    while damping <= _MOST_DAMPING:
        step = quadratic.step(damping)
        for share in (1.0, 0.3):
            if step is None:
                break
            theta = quadratic.moved(share * step)
            if quadratic.gain(theta) > 0:
                easier = damping / 10 if share == 1.0 else damping
                return objective.at(theta), max(easier, _LEAST_DAMPING)
        damping *= 10
    plain = em_step(point)
    return (objective.at(plain), 1.0) if quadratic.gain(plain) > 0 else None


class _Model:
    """f near one point: gradient and curvature on the working cells."""

    def __init__(self, objective: Objective, point: Point) -> None:
        self.point = point
        self.weights = objective.weights
        self.matrix = objective.columns.matrix()
        coming = np.where(point.gradient > 1, _ENTRY, 0.0)
        theta = np.where(point.theta < _GONE, coming, point.theta)
        self.working: IntArray = np.flatnonzero(theta)
        self.theta = theta[self.working]
        everywhere = self.working.size == theta.size
        self.rows = self.matrix if everywhere else self.matrix[self.working]
        self.slope = point.gradient[self.working] - 1.0
        scaled = self.rows * (np.sqrt(self.weights) / point.law)
        self.curvature = scaled @ scaled.T

    def step(self, damping: float) -> FloatArray | None:
        """Δ for this damping; ``None`` where the damped curvature is still singular."""
        system = self.curvature.copy()
        system[np.diag_indices_from(system)] += (np.maximum(-self.slope, 0) + damping) / self.theta
        factor, failed = scipy.linalg.lapack.dpotrf(system, lower=1, clean=0, overwrite_a=1)
        if failed:
            return None
        solution: FloatArray = scipy.linalg.lapack.dpotrs(factor, self.slope, lower=1)[0]
        return solution if np.isfinite(solution).all() else None

    def moved(self, step: FloatArray) -> FloatArray:
        """The distribution after a step that no cell may use to shrink below a thousandth."""
        shares = np.maximum(self.theta + step, _SHRINK * self.theta)
        shares[shares < _GONE] = 0.0
        theta = np.zeros(self.point.theta.size)
        theta[self.working] = shares / shares.sum()
        return theta

    def gain(self, theta: FloatArray) -> float:
        """f(θ) − f at the point, from the ratio of the laws: exact to far below the rounding of f."""
        law = theta[self.working] @ self.rows
        if law.min() <= 0:
            return -np.inf
        with np.errstate(divide="ignore"):  # next to nothing may round to nothing: then it is −∞
            return float(self.weights @ np.log1p((law - self.point.law) / self.point.law))
