"""Whether several groups of reports come from one and the same map: rounds of a campaign, or levels.

Groups are compared by what the most careful mechanism among them would have been told in each of up to 64
blocks of cells (16 above 1,024 cells; above 4,096 cells their edges are as soft as its noise). That is smooth
enough to be estimated from every group without bias, whatever the estimate that they are compared at, so that
the law of the difference is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from geoveil.arrays import FloatArray, IntArray, one_blas_thread, uniform
from geoveil.channel.channel import Channel, Information, Tally
from geoveil.errors import InvalidInput
from geoveil.estimate.fitted import Observations, by_mechanism
from geoveil.estimate.objective import Objective, em_point
from geoveil.estimate.uncertainty import conjugate_gradients
from geoveil.estimate.uneven import PlacesOfAll
from geoveil.space.space import MATRIX_LIMIT, Space

MOST_BLOCKS = 64
LEAST_REPORTS = 40
"""A group with fewer says too little to be compared."""
_REPORTS_PER_BLOCK = 20
_FEW_BLOCKS = 8
"""The groups are compared a second time in so many: a move of a whole district shows there first."""
_MATRIX_CELLS = 1_024
"""Up to so many cells the information is a matrix; above, conjugate gradients need none."""
_BLOCKS_ABOVE = 16
_MOST_STEPS = 200
_STEPS = 10
"""Of the update, towards what all groups say: enough where a report names few cells, and only there it
matters."""
_SINGULAR = 1e-10


class Agreement(NamedTuple):
    """How well groups of reports agree about one map."""

    p_value: float
    """How often groups from one map would differ at least so much."""
    statistic: float
    freedom: int
    """The statistic has the law of χ² with so many degrees of freedom where all come from one map."""
    blocks: int
    """In how many parts of the space the groups were compared."""


@one_blas_thread()
def agreement(groups: Sequence[Sequence[Tally]], distribution: FloatArray) -> Agreement:
    """Compare groups of tallies, each from different people, near a distribution fitted to any of them.

    Law: with θ the distribution, J_g and s_g the information and the score of group g at θ, and F what the
    first channel of the first group makes of blocks of reports, v_g = F·(θ + J_g⁻¹s_g) estimates F·θ*
    without bias whatever θ is, because counts are linear in the true θ*, with covariance F·J_g⁻¹·Fᵀ.
    The statistic is dᵀV⁻¹d, d all v_g − v_1 and V their covariance. Where positions are wide apart in a cell
    (ε·cell above one), v_g leans on where in their cells people stand, under each mechanism in its own way:
    V allows for the crowd of every cell at any one place in it.
    The first channel should be the one with most noise: what it was told, all others know.
    Cost: conjugate gradients for every group, one product of all its channels for each block and step.

    >>> import geoveil as gv
    >>> line = gv.Line(20)
    >>> strict, open_ = (gv.LinearGeometric(line, epsilon_per_unit=e) for e in (0.5, 1.0))
    >>> def said(mechanism, cells, seed):
    ...     return [mechanism.tally(mechanism.sample(cells, randomness=gv.seeded(seed)))]
    >>> here, there = np.repeat([5, 9, 15], 500), np.repeat([5, 9, 12], 500)
    >>> start = np.full(20, 0.05)
    >>> agreement([said(strict, here, 1), said(open_, here, 2)], start).p_value > 0.01
    True
    >>> agreement([said(strict, here, 1), said(open_, there, 2)], start).p_value > 0.01
    False
    """
    counted = [by_mechanism(group) for group in groups]
    fewest = min((sum(t.total for t in group) for group in counted), default=0)
    if len(counted) < 2 or fewest < LEAST_REPORTS:
        raise InvalidInput(
            f"groups ({len(counted)}, the smallest of {fewest} reports) must be two or more of at "
            f"least {LEAST_REPORTS} reports each to be compared"
        )
    together = Observations([tally for group in counted for tally in group])
    theta = _fitted_to_all(together, distribution)
    smooth = counted[0][0].channel
    most = MOST_BLOCKS if theta.size <= _MATRIX_CELLS else _BLOCKS_ABOVE
    blocks = blocks_of(smooth.space, theta, max(2, min(most, fewest // _REPORTS_PER_BLOCK)))
    if not blocks.any():  # one cell, about which nobody can differ
        return Agreement(1.0, 0.0, 0, 1)
    features = _features(smooth, blocks, theta)
    anywhere = PlacesOfAll.of(together)
    offsets = [_offset(group, theta, features, anywhere) for group in counted]
    number = int(blocks.max()) + 1
    looks = [_look(offsets, number, few) for few in (number, _FEW_BLOCKS) if few <= number]
    best = min(looks, key=lambda look: look.p_value)
    return best._replace(p_value=min(1.0, len(set(looks)) * best.p_value))


def _fitted_to_all(together: Observations, distribution: FloatArray) -> FloatArray:
    """The distribution moved to what all groups say, with a little everywhere.

    Where it was fitted to some of them and chance made their reports few, the variance there would come out
    too small, and the others would seem to differ. An empty cell would have no law to be compared with.
    """
    even = uniform(distribution.size)
    start = 0.99 * distribution + 0.01 * even
    moved = em_point(Objective(together.operator, together.counts), start, _STEPS).theta
    theta = 0.99 * moved + 0.01 * even
    return np.asarray(theta / theta.sum())


class _Offset(NamedTuple):
    """How far the features of a group lie from those of the distribution, and what makes them vary."""

    value: FloatArray
    covariance: FloatArray
    astray: FloatArray
    """(features, any): by independent numbers of variance one, the same for all groups, which say where in
    their cells people stand."""


def _look(offsets: Sequence[_Offset], number: int, few: int) -> Agreement:
    """The groups compared in so many blocks, each a run of the blocks there are; the last adds nothing."""
    runs = np.arange(number - 1) * few // number
    joined = (np.arange(few - 1)[:, None] == runs).astype(np.float64)
    fewer = [
        _Offset(joined @ value, joined @ covariance @ joined.T, joined @ astray)
        for value, covariance, astray in offsets
    ]
    statistic, freedom = _statistic(fewer)
    return Agreement(float(scipy.special.chdtrc(freedom, statistic)), statistic, freedom, few)


def blocks_of(space: Space, weights: FloatArray, most: int) -> IntArray:
    """The number of its block for every cell: cut in two, again and again, where the weights are halved.

    As many blocks as the largest power of two up to ``most`` allows, fewer where cells are few.
    """
    places = space.centres.reshape(space.size, -1)
    parts = [np.arange(space.size)]
    while 2 * len(parts) <= most and any(part.size > 1 for part in parts):
        parts = [half for part in parts for half in _halves(part, places, weights)]
    blocks = np.empty(space.size, dtype=np.int64)
    for number, part in enumerate(parts):
        blocks[part] = number
    return blocks


def _halves(part: IntArray, places: FloatArray, weights: FloatArray) -> list[IntArray]:
    """A part cut across its longer side, so that both halves weigh about the same."""
    if part.size == 1:
        return [part]
    across = int(np.ptp(places[part], axis=0).argmax())
    order = part[np.argsort(places[part, across], kind="stable")]
    passed = np.cumsum(weights[order])
    at = int(np.abs(passed - passed[-1] / 2).argmin()) + 1
    at = min(max(at, 1), part.size - 1)
    return [order[:at], order[at:]]


def _features(smooth: Channel, blocks: IntArray, theta: FloatArray) -> FloatArray:
    """(blocks − 1, cells): the chance of a report in each block but the last, from every cell; mean zero.

    Above 4,096 cells, the chance that somebody at the report would report from there: such blocks have no
    edges, and conjugate gradients take a seventh of the steps (111 and 17 at 16,384 cells).
    """
    cells, number = blocks.size, int(blocks.max()) + 1
    values = np.zeros((number - 1, smooth.report_count))
    inside = np.arange(min(cells, smooth.report_count))
    for block in range(number - 1):
        values[block, inside] = blocks[inside] == block
    if cells > MATRIX_LIMIT and smooth.report_count >= cells:
        values[:, inside] = smooth._pull(values)
    chances = smooth._pull(values)
    return np.asarray(chances - (chances @ theta)[:, None])


def _offset(
    group: Sequence[Tally], theta: FloatArray, features: FloatArray, anywhere: PlacesOfAll | None
) -> _Offset:
    parts = [tally.information(theta) for tally in group]
    solve = _by_matrix if theta.size <= _MATRIX_CELLS else _by_gradients
    solved, image = solve(parts, features, theta)
    score = np.asarray(sum(part.score for part in parts))
    astray = np.zeros((len(features), 0))
    if anywhere is not None:
        influences = (part.columns._push(solved) * part.weights for part in parts)
        channels = (tally.channel for tally in group)
        astray = anywhere.astray(zip(channels, influences, strict=True), theta)
    # the covariance of what was solved, to the last digit
    return _Offset(solved @ score, solved @ image.T, astray)


def _by_matrix(
    parts: Sequence[Information], sides: FloatArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """x with J·x = sides (any, cells), and J·x; directions without information are left out."""
    information = np.asarray(sum(part.matrix() for part in parts))
    scale = np.sqrt(theta)  # J·θ is constant, so that the scaled matrix has eigenvalues up to n
    scaled = information * scale * scale[:, None]
    scaled[np.diag_indices_from(scaled)] += _SINGULAR * scaled.diagonal().max()
    solved = (
        scale
        * scipy.linalg.cho_solve(scipy.linalg.cho_factor(scaled, lower=True), (sides * scale).T).T
    )
    return solved, solved @ information


def _by_gradients(
    parts: Sequence[Information], sides: FloatArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """What :func:`_by_matrix` gives, by conjugate gradients, where the matrix would be too large."""
    values, lacking, _, _ = conjugate_gradients(
        lambda x: np.asarray(sum(part.times(x) for part in parts)),
        sides, lambda residual: residual * theta, _MOST_STEPS,
    )  # fmt: skip
    return values, sides - lacking


def _statistic(offsets: Sequence[_Offset]) -> tuple[float, int]:
    """All groups against the first: the statistic and its degrees of freedom."""
    first, *others = offsets
    apart = np.concatenate([offset.value - first.value for offset in others])
    astray = np.concatenate([offset.astray - first.astray for offset in others])
    total = np.tile(first.covariance, (len(others), len(others))) + astray @ astray.T
    total += scipy.linalg.block_diag(*(offset.covariance for offset in others))
    size = np.sqrt(np.maximum(total.diagonal(), np.finfo(float).tiny))
    values, vectors = scipy.linalg.eigh(total / size / size[:, None])
    informative = values > _SINGULAR * values[-1]
    statistic = np.square((apart / size) @ vectors[:, informative]) / values[informative]
    return float(statistic.sum()), int(informative.sum())
