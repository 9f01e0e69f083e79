"""Designing a mechanism between positions: a promise, a dial, and weights that make Z flat."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy
from scipy import fft
from scipy.spatial import cKDTree

from geoveil.arrays import FloatArray, positive
from geoveil.channel.certificate import promising
from geoveil.channel.guarantee import BetweenPositions
from geoveil.errors import InvalidInput, SolverFailed, Unsupported
from geoveil.estimate.em import maximise
from geoveil.estimate.stopping import Stop
from geoveil.measure.information import mutual_information_bits
from geoveil.mechanism.mechanism import Promise
from geoveil.position.centres import Centres, Lattice
from geoveil.position.cone import ROUNDING_CELLS, RoundedCone
from geoveil.position.positional import (
    STEEPEST_CELL,
    Placed,
    PositionalElastic,
    centres_over,
    lattice_step,
    step_among,
)
from geoveil.position.spread import spread_kernel
from geoveil.position.whole_law import whole_weights
from geoveil.root import NeverSafe, safe_root
from geoveil.space import Grid, Points, Space

_RIM_BELOW = 0.25
"""Camouflage below which a rim makes a sharper law of a whole grid; above, it makes a worse one."""
_CLOSE, _INSIDE = 1e-3, 1e-6
"""How near the promise the certificate comes, and how far inside: another machine may round otherwise."""
_RANGE = 2.0**10
_LEAST_SHARE = 0.05
"""Of the mean weight: every centre stays reportable."""
_SLOPE_WEIGHT = 3.0
"""How much more a slope of Z counts than its height: slopes are what costs ε."""
_STEPS, _STEPS_OF_MANY = 300, 20
"""Least squares end here at the latest; on large grids the rest moves no edge by more than a thousandth."""
_ALIKE, _NEAR, _CERTIFICATES = 0.03, 0.01, 8
"""Of many cells: up to this part apart two β share flat weights, so closely estimates are sought, and so many
certificates are made at most."""
_FEW_PLACES = 1_024


class DesignedPositional(PositionalElastic):
    """A mechanism between positions designed for a prior, with what the design achieved."""

    prior: FloatArray

    @cached_property
    def leakage_bits(self) -> float:
        """Mutual information of true cell and report under the prior."""
        return mutual_information_bits(self, self.prior)

    @cached_property
    def mean_distance_km(self) -> float:
        """Mean distance of true position and report under the prior, people spread in their cells."""
        return float(self.prior @ self.mean_of_distance(lambda distance: distance))

    @property
    def certified_epsilon_per_km(self) -> float:
        """ε between any two positions, as certified."""
        return self.certificate.epsilon_per_km


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
    wanted = positive("mean_distance_km", promise.mean_distance_km)
    steepest = STEEPEST_CELL / space.cell_km

    def unreachable(epsilon: float, reached_km: float) -> InvalidInput:
        return InvalidInput(
            f"mean_distance_km ({wanted:g}) must be reachable; ε = {epsilon:.3g} per km gives "
            f"{reached_km:.6g} km"
        )

    try:
        nearest = safe_root(
            lambda epsilon: _promising(space, prior, epsilon, camouflage, stop),
            lambda tried: 1.0 - tried.mean_distance_km / wanted,
            [min(2.0 / wanted, steepest)],
            within=(steepest, steepest / _RANGE),
            tolerance=_CLOSE,
        )
    except NeverSafe as error:
        raise unreachable(error.at, wanted * (1.0 - error.excess)) from None
    if nearest.at == steepest and nearest.excess < -_CLOSE:
        raise unreachable(steepest, nearest.made.mean_distance_km)
    return nearest.made


def _promising(
    space: Placed, prior: FloatArray, epsilon_per_km: float, camouflage: float, stop: Stop
) -> DesignedPositional:
    steepness = epsilon_per_km * space.cell_km
    if steepness > STEEPEST_CELL * (1.0 + 1e-9):
        raise InvalidInput(
            f"epsilon_per_km × cell ({steepness:.4g}) must be at most {STEEPEST_CELL:g} for a promise "
            "between positions; make the cells smaller"
        )
    build = _Mixed(space, prior, epsilon_per_km, camouflage, stop)

    def excess(tried: DesignedPositional) -> float:
        return tried.certificate.epsilon_per_km / (epsilon_per_km * (1.0 - _INSIDE)) - 1.0

    start = [epsilon_per_km * (1.0 - 0.4 * camouflage), epsilon_per_km / 2.0]
    if space.size == 1:
        designed = build(epsilon_per_km)
    elif build.many:
        designed = _by_estimates(build, excess, epsilon_per_km, start[0])
    else:
        within = epsilon_per_km * _RANGE, epsilon_per_km / _RANGE
        designed = safe_root(build, excess, start, within=within, tolerance=_CLOSE).made
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
        self._camouflage, self._stop = camouflage, stop
        self._rim = 1 if camouflage < _RIM_BELOW and isinstance(space, Grid) else 0
        if isinstance(space, Points):
            self._step = step_among(space, epsilon_per_km)
        else:
            self._step = lattice_step(epsilon_per_km, space.cell_km)
        self.centres = centres_over(space, step=self._step, rim=self._rim)
        lattice = self.centres.lattice
        self.many = lattice is not None and lattice.many
        self._flat: dict[float, FloatArray] = {}

    def __call__(self, beta: float) -> DesignedPositional:
        space, camouflage = self._space, self._camouflage
        cone = RoundedCone(beta, ROUNDING_CELLS * space.cell_km)
        weights = np.zeros(self.centres.size)
        if camouflage < 1.0:
            settled = next(iter(self._flat.values()), None)
            weights += (1.0 - camouflage) * (self._flat_at(beta) if settled is None else settled)
        if camouflage > 0.0:
            kernel = spread_kernel(space, self.centres, cone, 2)
            seen = np.concatenate([self._prior * layer.share for layer in kernel.layers])
            weights += camouflage * maximise(kernel, seen, stop=self._stop).distribution
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
        return flat_weights(self.centres, cone, self._space.cell_km)


def _by_estimates(
    build: _Mixed,
    excess: Callable[[DesignedPositional], float],
    epsilon_per_km: float,
    beta: float,
) -> DesignedPositional:
    """The same where a certificate takes long: β is sought by an estimate of it, then by few certificates."""

    def about(tried: DesignedPositional) -> float:
        return tried.law.estimate_per_km() / epsilon_per_km - 1.0

    build.settle(beta)
    near = beta / (1.0 + about(build(beta)))
    within, start = (near * _RANGE, near / _RANGE), [near * (1.0 + _NEAR), near * (1.0 - _NEAR)]
    beta = safe_root(build, about, start, within=within, tolerance=_NEAR, stride=_NEAR).at
    tried: list[tuple[float, float]] = []  # log β, log of certificate over promise
    for number in range(_CERTIFICATES):
        if number < 2:
            build.settle(beta)
        made = build(beta)
        over = excess(made)
        if -_CLOSE <= over <= 0.0 or (over < 0.0 and number >= _CERTIFICATES // 2):
            return made
        tried.append((math.log(beta), math.log1p(over)))
        (first, low), (last, high) = tried[-2:] if number else (tried[0], tried[0])
        rises = (high - low) / (last - first) if last != first else 1.0
        beta = math.exp(last - (high + _CLOSE / 3.0) / min(max(rises, 0.5), 2.0))
    raise SolverFailed(
        f"no mechanism of {build.centres.size:,} cells was certified within ε = {epsilon_per_km:g} per km; "
        "use larger cells"
    )


def flat_weights(centres: Centres, cone: RoundedCone, cell_km: float) -> FloatArray:
    """c ≥ 5 % of the mean that brings Z to 1 and ∇Z to 0 by least squares, as :func:`flat_on_grid` does.

    Among places the positions are those at every half cell (whole cell, where places are many) of the
    rectangle that have a place within a cell.
    Cost: some hundred products with a matrix of 12 (or 3) entries for every two places.
    """
    if centres.lattice is not None:
        return flat_on_grid(centres, cone)
    places = _around(centres, cell_km * (0.5 if centres.size <= _FEW_PLACES else 1.0), cell_km)
    away = places[:, None] - centres.points_km
    slopes = cone.slopes(away[..., 0], away[..., 1])
    mean = 2.0 * np.pi / (cone.beta_per_km * cell_km) ** 2 + 1.0
    steep = -_SLOPE_WEIGHT / cone.beta_per_km * slopes.value * slopes.rate
    terms = np.concatenate((slopes.value, steep * away[..., 0], steep * away[..., 1])) / mean
    target = np.concatenate((np.ones(len(places)), np.zeros(2 * len(places))))

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        off = terms @ weights - target
        return float(off @ off), 2.0 * (off @ terms)

    return _least(loss, centres.size)


def _around(centres: Centres, pitch_km: float, within_km: float) -> FloatArray:
    """(any, 2): positions of the rectangle so far apart that are no farther from a centre than that."""
    low, high = centres.rectangle_km
    axes = [
        np.linspace(a, b, max(2, math.ceil((b - a) / pitch_km) + 1))
        for a, b in zip(low, high, strict=True)
    ]
    places = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    near, _ = cKDTree(centres.points_km).query(places)
    return np.concatenate((centres.points_km, places[near <= within_km]))


def flat_on_grid(centres: Centres, cone: RoundedCone) -> FloatArray:
    """c ≥ 5 % of the mean that brings Z to 1 and ∇Z to 0, by least squares, at every half cell.

    Minimises Σ_x (Z − 1)² + (3|∇Z|/β)² over the positions x on a lattice of half cells; under a mask over
    those in cells that exist, since nothing can be done about Z where there are no centres.
    Cost: some hundred steps of twelve FFTs, twenty above 4,096 cells.
    """
    lattice = centres.lattice
    if lattice is None:
        raise InvalidInput("only weights on a grid can be flattened")
    cell_km, shape = lattice.step * centres.pitch_km, lattice.shape
    size = (lattice.rows + 1, lattice.columns + 1)
    mean = (
        2.0 * np.pi / (cone.beta_per_km * cell_km) ** 2 + 1.0
    )  # about Σ k, so that weights are about 1
    terms = []
    for east_at in (0.0, -0.5):
        for north_at in (0.0, -0.5):
            east, north = lattice.offsets(east_at, north_at)
            slopes = cone.slopes(east * cell_km, north * cell_km)
            steep = -_SLOPE_WEIGHT * slopes.value * slopes.rate / cone.beta_per_km * cell_km
            inside = np.outer(
                _within(
                    size[0], north_at, lattice.rim, lattice.step, centres.low[1], centres.high[1]
                ),
                _within(
                    size[1], east_at, lattice.rim, lattice.step, centres.low[0], centres.high[0]
                ),
            )
            inside *= _on_cells(lattice, east_at < 0.0, north_at < 0.0)
            for kernel, target in ((slopes.value, 1.0), (steep * east, 0.0), (steep * north, 0.0)):
                terms.append((fft.rfft2(kernel / mean), target, inside))

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        spectrum = fft.rfft2(lattice.spread(weights), shape)
        total, gradient = 0.0, np.zeros_like(spectrum)
        for kernel, target, inside in terms:
            off = (fft.irfft2(spectrum * kernel, shape)[: size[0], : size[1]] - target) * inside
            total += float((off**2).sum())
            gradient += fft.rfft2(off, shape) * kernel.conj()
        return total, 2.0 * lattice.gather(fft.irfft2(gradient, shape))

    return _least(loss, centres.size, _STEPS_OF_MANY if lattice.many else _STEPS)


def _least(
    loss: Callable[[FloatArray], tuple[float, FloatArray]], size: int, steps: int = _STEPS
) -> FloatArray:
    """The weights of the least loss (value and gradient), none below 5 % of the mean, with a sum of one."""
    result = scipy.optimize.minimize(
        loss,
        np.ones(size),
        jac=True,
        method="L-BFGS-B",
        bounds=[(_LEAST_SHARE, None)] * size,
        options={
            "maxiter": steps,
            "maxcor": 20,
            "ftol": 1e-10,
        },
    )
    flat: FloatArray = result.x / result.x.sum()
    return flat


def _on_cells(lattice: Lattice, west: bool, south: bool) -> FloatArray:
    """(rows + 1, columns + 1): 1 at the centres of cells that exist, or half a cell west or south of them."""
    found = np.zeros((lattice.rows + 1, lattice.columns + 1))
    rows, columns = (slice(lattice.rim, lattice.rim + size) for size in lattice.inner_shape)
    found[rows, columns] = lattice.spread_inner(np.ones(lattice.inner))
    if south:  # which is half a cell north of the cell before
        found[1:] = np.maximum(found[1:], found[:-1])
    if west:
        found[:, 1:] = np.maximum(found[:, 1:], found[:, :-1])
    return found


def _within(size: int, at: float, rim: int, step: int, low: int, high: int) -> FloatArray:
    """Which nodes, so far from the centres of one row or column, lie in the rectangle: 1 or 0."""
    places = (np.arange(size) - rim + at) * step
    return ((places >= low) & (places <= high)).astype(np.float64)
