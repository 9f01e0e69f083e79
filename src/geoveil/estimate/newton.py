"""The exact maximum: Newton steps on the cells that carry mass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy.linalg import lapack

from geoveil.arrays import FloatArray, IntArray, count
from geoveil.errors import TooLarge
from geoveil.estimate.acceleration import Squarem
from geoveil.estimate.em import em_step
from geoveil.estimate.objective import Objective, Point
from geoveil.space.base import MATRIX_LIMIT

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
            found = _newton_step(dense, point, damping)
            objective.products = dense.products
            if found is None:
                return
            point, damping = found
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
        theta = np.where((point.theta == 0) & (point.gradient > 1), _ENTRY, point.theta)
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
        factor, failed = lapack.dpotrf(system, lower=1, clean=0, overwrite_a=1)
        if failed:
            return None
        solution: FloatArray = lapack.dpotrs(factor, self.slope, lower=1)[0]
        return solution if np.isfinite(solution).all() else None

    def moved(self, step: FloatArray) -> FloatArray:
        """The distribution after a step that no cell may use to shrink below a thousandth."""
        kept = np.maximum(self.theta + step, _SHRINK * self.theta)
        kept[kept < _GONE] = 0.0
        theta = np.zeros(self.point.theta.size)
        theta[self.working] = kept / kept.sum()
        return theta

    def gain(self, theta: FloatArray) -> float:
        """f(θ) − f at the point, from the ratio of the laws: exact to far below the rounding of f."""
        law = theta[self.working] @ self.rows
        if law.min() <= 0:
            return -np.inf
        return float(self.weights @ np.log1p((law - self.point.law) / self.point.law))
