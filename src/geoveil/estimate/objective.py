"""The function that is maximised, the log-likelihood of weighted observations, and the plain way up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, distribution, uniform, vector
from geoveil.channel.observed import ObservedColumns
from geoveil.channel.operator import DenseOperator, Operator, StackedOperator
from geoveil.errors import InvalidInput

QUICK_ENTRIES = 1 << 18
"""Up to so many unknowns × reports every step is one of all rounds."""
_LONGEST = 6
"""All rounds are looked at again after one more step for every so many that were made, at the latest."""
_MOVED = 1e-3
"""How far the factor of shared steps may move between two looks, on average over all people."""
_NOTHING = 1e-9


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
            xp, gradient = self.xp, self.gradient
            if xp is np:  # fewer calls: they are most of a step on a hundred cells
                self._certificate = np.log(np.maximum(gradient.max(axis=-1), 1.0))
            else:
                steepest = xp.asarray(xp.max(gradient, axis=-1))
                self._certificate = xp.log(
                    xp.where(steepest > 1.0, steepest, xp.ones_like(steepest))
                )
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
        checked = checked_weights(weights, observations)
        self.columns = ObservedColumns(operator, checked)
        self.observed = self.columns.observations
        """Which observations are looked at, all with weight among them; ``Point.law`` follows their order."""
        self.weights = self.columns.at.own(
            checked[..., self.observed] / checked.sum(axis=-1, keepdims=True)
        )
        self.products = 0

    def at(self, theta: FloatArray) -> Point:
        """Everything about one distribution (or one for each problem): a push and a pull."""
        self.products += 2
        law = self.columns.push(theta)
        gradient = self.columns.pull(self.weights / law)
        return Point(theta, law, gradient, self.weights, self.columns.xp)

    def others(self, counts: IntArray) -> FloatArray:
        """Counts of other observations (…, observations), in the order and place of ``Point.law``."""
        return self.columns.at.own(counts[..., self.observed].astype(np.float64))

    def dense(self) -> Objective:
        """The same objective on a matrix of the columns seen, for methods that need one."""
        return Objective(DenseOperator(self.columns.matrix()), self.weights)


def checked_weights(weights: ArrayLike, observations: int) -> FloatArray:
    """Weights as an array, each vector non-negative and not all zero."""
    checked = vector("weights", weights, observations)
    if (checked < 0).any():
        raise InvalidInput("weights must not be negative")
    if not (checked.sum(axis=-1) > 0).all():
        raise InvalidInput("weights must not all be zero; nothing was observed")
    return checked


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
    point = objective.at(objective.columns.at.own(start))
    while True:
        yield point
        point = objective.at(em_step(point))


def em_step(point: Point) -> FloatArray:
    """θ∘g; its sum is one but for rounding."""
    raised = point.theta * point.gradient
    if point.xp is np:  # the method, since its function takes longer than the sum
        raised /= raised.sum(axis=-1, keepdims=True)
    else:
        raised /= point.xp.sum(raised, axis=-1, keepdims=True)
    return raised


def em_point(objective: Objective, start: FloatArray, steps: int) -> Point:
    """Where so many steps of expectation–maximisation lead."""
    return next(islice(em_path(objective, start), steps, None))


# --- Steps over many rounds whose mechanisms are nearly alike, most of them at the cost of one round
#
# The mechanisms of a campaign's rounds differ by the weights of their reports, and little by their noise. A
# step of expectation–maximisation over all of them is then a step with the counts of all rounds added up,
# under the mechanism of one, times a factor for each cell that hardly changes from one step to the next.


def pooled(operator: Operator, weights: FloatArray) -> Objective | None:
    """The counts of alike rounds added up, under the mechanism of the one with the most reports.

    ``None`` unless these are so many that sharing steps takes at most half as long, and have so many unknowns
    and reports that a step takes time.
    """
    if not isinstance(operator, StackedOperator) or math.prod(operator.shape) <= QUICK_ENTRIES:
        return None
    groups, own = _alike(operator), operator.split(weights)
    if 2 * len(groups) > len(operator.parts):
        return None
    largest = [max(reversed(group), key=lambda number: own[number].sum()) for group in groups]
    added = [np.sum([own[number] for number in group], axis=0) for group in groups]
    one_each = StackedOperator([operator.parts[number] for number in largest])
    return Objective(one_each, np.concatenate(added, axis=-1))


def _alike(operator: StackedOperator) -> list[list[int]]:
    """The numbers of the parts, those of one kind together."""
    groups: dict[object, list[int]] = {}
    for number, part in enumerate(operator.parts):
        kind = None if part.alike is None else (part.alike, part.shape)
        groups.setdefault(number if kind is None else kind, []).append(number)
    return list(groups.values())


def shared_path(
    objective: Objective, few: Objective | None, start: FloatArray, last: int | None = None
) -> Iterator[tuple[int, Point]]:
    """Points of expectation–maximisation with the numbers of their steps, without end.

    ``few`` is what :func:`pooled` made of the same weights. Without it every step is there; else some are,
    and the one numbered ``last``.

    Law: with g the gradient of all rounds and h that of ``few``, θ ← θ·g at the points that come out and
    θ ← θ·h·f between, where f is g/h at the last of these, carried on by half of what it moved since the one
    before. g/h depends on θ only as far as rounds differ within the reach of their noise; where it moves by
    more than 0.001 on average, all rounds are looked at more often.
    Guarantee: law and gradient of every point that comes out are those of all rounds.
    Cost: of a point that comes out, a push and a pull of every round; of a step between, of one round.
    """
    if few is None:
        yield from enumerate(em_path(objective, start))
        return
    point, step, stride = objective.at(objective.columns.at.own(start)), 0, 1
    factor: FloatArray | None = None
    while True:
        yield step, point
        before, factor = factor, _ratio(point.gradient, few.at(point.theta).gradient)
        held = factor
        if before is not None:
            change, earlier = np.log(factor / before), step - stride
            moved = float((point.theta * np.abs(change)).sum(axis=-1).max())
            stride = max(1, min(step // _LONGEST, int(stride * _MOVED / max(moved, _NOTHING))))
            if last is not None and step < last:
                stride = min(stride, last - step)
            if earlier:
                onward = math.log(1 + stride / step) / math.log(step / earlier)
                held = factor * np.exp(0.5 * onward * change)
        theta = em_step(point)
        for _ in range(stride - 1):
            near = few.at(theta)
            near.gradient *= held
            theta = em_step(near)
        step += stride
        point = objective.at(theta)


def point_after(operator: Operator, weights: FloatArray, start: FloatArray, steps: int) -> Point:
    """Where so many steps lead, of which rounds that are alike share some."""
    objective, few = Objective(operator, weights), pooled(operator, weights)
    path = shared_path(objective, few, start, steps)
    return next(point for step, point in path if step == steps)


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    return np.divide(above, below, out=np.ones_like(above), where=(below > 0) & (above > 0))
