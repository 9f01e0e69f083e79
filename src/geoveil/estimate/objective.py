"""The function that is maximised, the log-likelihood of weighted observations, and the plain way up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, distribution, uniform, vector
from geoveil.channel.operator import DenseOperator, Operator
from geoveil.errors import InvalidInput


class Point:
    """A distribution and what the objective says there; leading axes are independent problems.

    ``law`` is (θL)_i for the observations that were seen; ``gradient`` is g = L·(w/(θL)), and θ∘g the
    next step of expectation–maximisation. A loop makes one every few microseconds: plain attributes.
    """

    __slots__ = ("_certificate", "_log_likelihood", "gradient", "law", "theta", "weights", "xp")

    def __init__(
        self,
        theta: FloatArray,
        law: FloatArray,
        gradient: FloatArray,
        weights: FloatArray,
        xp: Any = np,
    ) -> None:
        self.xp = xp
        self.theta = theta
        self.law = law
        self.gradient = gradient
        self.weights = weights
        self._log_likelihood: FloatArray | None = None
        self._certificate: FloatArray | None = None

    @property
    def log_likelihood(self) -> FloatArray:
        """f(θ), nats per observation; computed at first use."""
        if self._log_likelihood is None:
            logs = self.xp.log(self.law)
            if logs.ndim == 1:
                self._log_likelihood = self.xp.asarray(self.weights @ logs)
            else:
                self._log_likelihood = self.xp.sum(self.weights * logs, axis=-1)
        return self._log_likelihood

    @property
    def certificate(self) -> FloatArray:
        """log max g ≥ f* − f(θ), nats per observation; computed at first use."""
        if self._certificate is None:
            xp = self.xp
            steepest = xp.asarray(xp.max(self.gradient, axis=-1))
            self._certificate = xp.log(xp.where(steepest > 1.0, steepest, xp.ones_like(steepest)))
        return self._certificate

    def score(self, counts: FloatArray) -> float:
        """Σ counts·log law over all problems: how well other observations are predicted."""
        return float(self.xp.sum(counts * self.xp.log(self.law)))


class Objective:
    """f for given weights; counts the products it spends.

    ``weights`` are counts or probabilities, (…, observations); each vector is scaled to sum to one,
    and observations of weight zero are left out altogether. Leading axes are independent problems
    that share the operator: folds, bootstrap replicates.

    >>> import numpy as np
    >>> from geoveil.channel.operator import DenseOperator
    >>> objective = Objective(DenseOperator(np.eye(2)), [3, 1])
    >>> point = objective.at(np.array([0.5, 0.5]))
    >>> point.theta * point.gradient
    array([0.75, 0.25])
    """

    def __init__(self, operator: Operator, weights: ArrayLike) -> None:
        self.unknowns, observations = operator.shape
        given = checked_weights(weights, observations)
        self.columns = operator.observed(given)
        self.seen = self.columns.observations
        """Which observations are looked at, all with weight among them; ``Point.law`` follows their order."""
        self.weights = self.columns.own(given[..., self.seen] / given.sum(axis=-1, keepdims=True))
        self.products = 0

    def at(self, theta: FloatArray) -> Point:
        """Everything about one distribution (or one for each problem): a push and a pull."""
        self.products += 2
        law = self.columns.push(theta)
        gradient = self.columns.pull(self.weights / law)
        return Point(theta, law, gradient, self.weights, self.columns.xp)

    def others(self, counts: IntArray) -> FloatArray:
        """Counts of other observations (…, observations), in the order and place of ``Point.law``."""
        return self.columns.own(counts[..., self.seen].astype(np.float64))

    def dense(self) -> Objective:
        """The same objective on a matrix of the columns seen, for methods that need one."""
        return Objective(DenseOperator(self.columns.matrix()), self.weights)


def checked_weights(weights: ArrayLike, observations: int) -> FloatArray:
    """Weights as an array, each vector non-negative and not all zero."""
    given = vector("weights", weights, observations)
    if (given < 0).any():
        raise InvalidInput("weights must not be negative")
    if not (given.sum(axis=-1) > 0).all():
        raise InvalidInput("weights must not all be zero; nothing was observed")
    return given


def full_support(start: ArrayLike | None, unknowns: int) -> FloatArray:
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


def em_path(objective: Objective, start: FloatArray) -> Iterator[Point]:
    """The points of expectation–maximisation from ``start`` on, for all problems at once, without end."""
    point = objective.at(objective.columns.own(start))
    while True:
        yield point
        point = objective.at(em_step(point))


def em_step(point: Point) -> FloatArray:
    """θ∘g; its sum is one but for rounding."""
    raised = point.theta * point.gradient
    raised /= point.xp.sum(raised, axis=-1, keepdims=True)
    return raised
