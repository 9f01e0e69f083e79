"""Designing a mechanism between positions: a promise, a dial, and weights that make Z flat."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import numpy as np

from geoveil.arrays import FloatArray, positive
from geoveil.campaign.weights import LEAST_SHARE, flat_weights, least_loss_weights
from geoveil.channel.certificate import promising
from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import BetweenPositions
from geoveil.errors import InvalidInput, SolverFailed, Unsupported
from geoveil.estimate.em import maximise
from geoveil.estimate.stopping import Stop
from geoveil.measure import mean_distance_km, mutual_information_bits
from geoveil.mechanism.mechanism import Promise
from geoveil.position.cone import ROUNDING_CELLS, RoundedCone
from geoveil.position.positional import (
    STEEPEST_CELL,
    Placed,
    PositionalElastic,
    centres_over,
    check_steepness,
    lattice_step,
    step_among,
)
from geoveil.position.spread import spread_kernel
from geoveil.position.whole_law import whole_weights
from geoveil.root import NeverSafe, safe_root
from geoveil.space import Grid, MaskedGrid, Points, Space

_SHARP = 0.25
"""Camouflage below which a rim makes a sharper law of a whole grid, and weights of the least loss one of a
list of places; above, they make a worse one."""
_WITHIN_LIMITS = 0.5
"""Of the mean weight, at least, below that camouflage in a part of a grid: flatter weights leave shores a
twentieth, and one fake there would count as ten times as many people."""
CLOSE, _INSIDE = 1e-3, 1e-6
"""How near the promise the certificate comes, and how far inside: another machine may round otherwise."""
_RANGE = 2.0**10
_ALIKE, _NEAR, _CERTIFICATES = 0.03, 0.01, 8
"""Of many cells: up to this part apart two β share flat weights, so closely estimates are sought, and so many
certificates are made at most."""
_ROOM, _ROOM_CELL = 0.045, 0.5
"""Of many cells, how far β stays below the promise at least, as a share of it, and up to which ε·cell; beyond
it the room falls with the square. In it the first bounds of most squares lie: without it devices take many
times as long to check, for distances that are 4 % shorter at most."""
_TRIES = 6
"""Looks at the loss around the worst places between two certificates, at most."""


class Designed(Channel):
    """A mechanism designed for a prior, with what the design achieved."""

    prior: FloatArray

    @cached_property
    def leakage_bits(self) -> float:
        """Mutual information of true cell and report under the prior."""
        return mutual_information_bits(self, self.prior)

    @cached_property
    def mean_distance_km(self) -> float:
        """Mean distance of a person and their report under the prior: of true cell and report, or between
        positions of true position and report, people spread in their cells."""
        return mean_distance_km(self, self.prior)


class DesignedPositional(PositionalElastic, Designed):
    """A mechanism between positions designed for a prior."""

    @property
    def certified_epsilon_per_km(self) -> float:
        """ε between any two positions, as certified."""
        return self.certificate.epsilon_per_km


_Mechanism = TypeVar("_Mechanism", bound=Designed)


def wide_enough(
    build: Callable[[float], _Mechanism],
    distance_km: float,
    parameter: str,
    start: float,
    within: tuple[float, float],
    stride: float = math.log(2),
) -> _Mechanism:
    """The mechanism of the largest parameter, such as β, whose mean distance is still ``distance_km``."""

    def unreachable(at: float, reached_km: float) -> InvalidInput:
        return InvalidInput(
            f"mean_distance_km ({distance_km:g}) must be reachable; {parameter} = {at:.3g} per km gives "
            f"{reached_km:.6g} km"
        )

    def lacking(mechanism: _Mechanism) -> float:
        return 1.0 - mechanism.mean_distance_km / distance_km

    try:
        nearest = safe_root(build, lacking, [start], within=within, tolerance=CLOSE, stride=stride)
    except NeverSafe as error:
        raise unreachable(error.at, distance_km * (1.0 - error.excess)) from None
    if nearest.at == within[0] and nearest.excess < -CLOSE:
        raise unreachable(within[0], nearest.result.mean_distance_km)
    return nearest.result


def positional(
    space: Space, prior: FloatArray, promise: Promise, *, camouflage: float, stop: Stop
) -> DesignedPositional:
    """c = (1 − κ)·c_flat + κ·c_BA under the steepest cone whose certificate meets the promise (to 0.1 %).

    With a mean distance, the largest ε is found that still has it.
    """
    if not isinstance(space, Placed):
        raise Unsupported("a promise between positions needs a grid or places; use between='cells'")
    if promise.mean_distance_km is None:
        return _promising(space, prior, promise.resolve(lambda _: 0.0), camouflage, stop)
    distance_km = positive("mean_distance_km", promise.mean_distance_km)
    steepest = STEEPEST_CELL / space.cell_km
    return wide_enough(
        lambda epsilon: _promising(space, prior, epsilon, camouflage, stop),
        distance_km,
        "ε",
        min(2.0 / distance_km, steepest),
        (steepest, steepest / _RANGE),
    )


def _promising(
    space: Placed, prior: FloatArray, epsilon_per_km: float, camouflage: float, stop: Stop
) -> DesignedPositional:
    check_steepness(space, epsilon_per_km)
    build = _Mixed(space, prior, epsilon_per_km, camouflage, stop)

    def excess(mechanism: DesignedPositional) -> float:
        return mechanism.certificate.epsilon_per_km / (epsilon_per_km * (1.0 - _INSIDE)) - 1.0

    start = [epsilon_per_km * (1.0 - 0.4 * camouflage), epsilon_per_km / 2.0]
    if space.size == 1:
        designed = build(epsilon_per_km)
    elif build.many:
        designed = _by_estimates(build, excess, epsilon_per_km, start[0])
    else:
        within = epsilon_per_km * _RANGE, epsilon_per_km / _RANGE
        designed = safe_root(build, excess, start, within=within, tolerance=CLOSE, power=1.0).result
    slack = designed.law.slack_at(epsilon_per_km)
    designed = promising(designed, BetweenPositions(epsilon_per_km, slack))
    designed.prior = prior
    return designed


class _Mixed:
    """The mechanism of every β: flat weights and Blahut–Arimoto's, mixed by the camouflage."""

    def __init__(
        self, space: Placed, prior: FloatArray, epsilon_per_km: float, camouflage: float, stop: Stop
    ) -> None:
        self._space, self._prior = space, prior
        self.cell_km = space.cell_km
        self._camouflage, self._stop = camouflage, stop
        self._rim = 1 if camouflage < _SHARP and isinstance(space, Grid) else 0
        if isinstance(space, Points):
            self._step = step_among(space, epsilon_per_km)
        else:
            self._step = lattice_step(epsilon_per_km, space.cell_km)
        self.centres = centres_over(space, step=self._step, rim=self._rim)
        lattice = self.centres.lattice
        self.many = lattice is not None and lattice.many
        self._flat: dict[float, FloatArray] = {}
        self._last: FloatArray | None = None

    def __call__(self, beta: float) -> DesignedPositional:
        space, camouflage = self._space, self._camouflage
        cone = RoundedCone(beta, ROUNDING_CELLS * space.cell_km)
        weights = np.zeros(self.centres.size)
        if camouflage < 1.0:
            settled = next(iter(self._flat.values()), None)
            weights += (1.0 - camouflage) * (self._flat_at(beta) if settled is None else settled)
        if camouflage > 0.0:
            kernel = spread_kernel(space, self.centres, cone, 2)
            people = np.concatenate([self._prior * layer.share for layer in kernel.layers])
            weights += camouflage * maximise(kernel, people, stop=self._stop).distribution
        return DesignedPositional(
            space,
            beta_per_km=beta,
            weights=whole_weights(weights, short=self.many),
            step=self._step,
            rim=self._rim,
        )

    def settle(self, beta: float) -> None:
        """Take the flat weights of a β, or of one near it that are known, for all others from now on."""
        if self._camouflage == 1.0:
            return
        if not self._flat or abs(beta / next(iter(self._flat)) - 1.0) > _ALIKE:
            self._flat = {beta: self._flat_at(beta)}

    def _flat_at(self, beta: float) -> FloatArray:
        cone = RoundedCone(beta, ROUNDING_CELLS * self._space.cell_km)
        cell_km = self._space.cell_km
        if not isinstance(self._space, Points) or self._camouflage >= _SHARP:
            starved = isinstance(self._space, MaskedGrid) and self._camouflage < _SHARP
            least = _WITHIN_LIMITS if starved else LEAST_SHARE
            return flat_weights(self.centres, cone, cell_km, least)
        self._last = least_loss_weights(self.centres, cone, cell_km, self._last)
        return self._last


def _by_estimates(
    build: _Mixed, excess: Callable[[DesignedPositional], float], epsilon_per_km: float, beta: float
) -> DesignedPositional:
    """A mechanism within its promise where a certificate takes long: β from estimates, then few certificates.

    Between two certificates β is sought by the loss around the places that were the worst so far.
    """

    def about(mechanism: DesignedPositional) -> float:
        return mechanism.law.estimate_per_km() / epsilon_per_km - 1.0

    build.settle(beta)
    near = beta / (1.0 + about(build(beta)))
    within, start = (near * _RANGE, near / _RANGE), [near * (1.0 + _NEAR), near * (1.0 - _NEAR)]
    beta = safe_root(build, about, start, within=within, tolerance=_NEAR, stride=_NEAR).at
    cell_km, worst = build.cell_km, []
    room = _ROOM * min(1.0, _ROOM_CELL / (epsilon_per_km * cell_km)) ** 2
    steepest = epsilon_per_km * (1.0 - room)
    for number in range(_CERTIFICATES):
        beta = min(beta, steepest)
        if number < 2:
            build.settle(beta)
        mechanism = build(beta)
        over = excess(mechanism)
        close = over >= -CLOSE or beta == steepest or number >= _CERTIFICATES // 2
        if over <= 0.0 and close:
            return mechanism
        worst.append(mechanism.certificate.worst_km)
        loss = mechanism.law.around_worst_per_km(worst, cell_km / 2.0)
        above = math.log1p(over) - math.log(loss)  # of the certificate, over the loss there
        beta *= math.exp(-math.log1p(over) - CLOSE / 2.0)
        if number < 1:
            build.settle(beta)
        beta = _with_loss(build, beta, worst, math.exp(-above - CLOSE / 2.0))
    raise SolverFailed(
        f"no mechanism of {build.centres.size:,} cells was certified within ε = {epsilon_per_km:g} per km; "
        "use larger cells"
    )


def _with_loss(
    build: _Mixed, beta: float, worst: list[tuple[float, float]], target: float
) -> float:
    """A β near this one whose loss around the worst places is ``target``, or nearly."""
    rises, before = 1.0, None
    for _ in range(_TRIES):
        loss = build(beta).law.around_worst_per_km(worst, build.cell_km / 2.0)
        off = math.log(loss / target)
        if abs(off) < CLOSE / 10.0:
            break
        if before is not None:
            rises = min(max((off - before[1]) / (math.log(beta) - before[0]), 0.5), 2.0)
        before = math.log(beta), off
        beta *= math.exp(-off / rises)
    return beta
