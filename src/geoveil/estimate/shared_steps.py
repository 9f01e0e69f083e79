"""Steps over many rounds whose mechanisms are nearly alike, most of them at the cost of one round.

The mechanisms of a campaign's rounds differ by the weights of their reports, and little by their noise. A
step of expectation–maximisation over all of them is then a step with the counts of all rounds added up, under
the mechanism of one, times a factor for each cell that hardly changes from one step to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeGuard

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.operator import Operator, StackedOperator
from geoveil.estimate.objective import Objective, Point, em_path, em_step

_LONGEST = 6
"""All rounds are looked at again after one more step for every so many that were made, at the latest."""
_MOVED = 1e-3
"""How far that factor may move between two looks, on average over all people."""
_NOTHING = 1e-9


def shares(operator: Operator) -> TypeGuard[StackedOperator]:
    """Whether rounds that are alike are so many that sharing steps takes at most half as long."""
    return isinstance(operator, StackedOperator) and (
        2 * len(_alike(operator)) <= len(operator.parts)
    )


def pooled(operator: Operator, weights: FloatArray) -> Objective | None:
    """The counts of alike rounds added up, under the newest of these; ``None`` where nothing is shared."""
    if not shares(operator):
        return None
    groups, own = _alike(operator), operator.split(weights)
    newest = StackedOperator([operator.parts[group[-1]] for group in groups])
    added = [np.sum([own[number] for number in group], axis=0) for group in groups]
    return Objective(newest, np.concatenate(added, axis=-1))


def _alike(operator: StackedOperator) -> list[list[int]]:
    """The numbers of the parts, those of one kind together."""
    groups: dict[object, list[int]] = {}
    for number, part in enumerate(operator.parts):
        kind = None if part.alike is None else (part.alike, part.shape)
        groups.setdefault(number if kind is None else kind, []).append(number)
    return list(groups.values())


def path(
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
    point, step, stride = objective.at(objective.columns.own(start)), 0, 1
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


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    return np.divide(above, below, out=np.ones_like(above), where=(below > 0) & (above > 0))
