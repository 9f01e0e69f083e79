"""The best circular noise for any promise, loss, bound and tightness, by linear programs over rings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count, positive
from geoveil.channel.guarantee import Guarantee
from geoveil.errors import InvalidInput, SolverFailed
from geoveil.optimal.circular import CircularNoise
from geoveil.optimal.promise import RadialPromise
from geoveil.optimal.region import Region
from geoveil.optimal.rings import RingLimits, Rings, RingSolution, Tightness, chained
from geoveil.optimal.segments import Segments
from geoveil.space.loss import RadialLoss, distance_km

_STEEPEST = 700.0  # e to a larger loss leaves double precision
_FLAT = 1e-7  # rings that differ by less are one step

Progress = Callable[[float, str], None]
"""progress(fraction done in [0, 1], a word about it)"""


@dataclass(frozen=True)
class NoiseOptimality:
    """What is known about the loss of a noise: every other with its promise loses ``lower_bound``."""

    lower_bound: float
    rings: int
    width_km: float
    stopped: str


class OptimalNoise(CircularNoise):
    """Circular noise of least expected loss, with the bound that proves it.

    It loses ``loss_reached`` on average; nothing with the same promise and limits loses less than
    ``optimality.lower_bound``.
    """

    def __init__(
        self,
        pieces: Segments,
        privacy: Guarantee | None,
        loss: RadialLoss,
        optimality: NoiseOptimality,
    ) -> None:
        super().__init__(pieces, privacy=privacy)
        self.loss = loss
        self.loss_reached = self.expected_loss(loss)
        self.optimality = optimality

    @property
    def gap(self) -> float:
        """(loss − bound)/loss."""
        missing = self.loss_reached - self.optimality.lower_bound
        return 0.0 if missing <= 0 else missing / self.loss_reached

    def __repr__(self) -> str:
        known = self.optimality
        return (
            f"OptimalNoise({self.loss!r} {self.loss_reached:.6g}, at most {self.gap:.2g} of it above "
            f"the optimum; {known.rings} rings of {known.width_km:.4g} km, {known.stopped})"
        )


def optimal_noise(
    *,
    privacy: Guarantee | None,
    loss: RadialLoss = distance_km,
    bound_per_km2: float | None = None,
    tightness: Tightness | None = None,
    region: Region | None = None,
    gap: float = 1e-3,
    most_rings: int = 3_000,
    progress: Progress = lambda fraction, detail: None,
) -> OptimalNoise:
    """The noise with the least expected loss among all that keep a promise.

    Law: minimise ∫ R(r)·L(r)·2πr dr over ``R(r) ≤ e^{ℓ(|r − r′|)}·R(r′)``, ∫ R·2πr dr = 1, R ≤ bound
    and P(noise > r) ≤ tightness(r). Rings are halved until loss and lower bound agree to ``gap``.
    Guarantee: ``privacy`` on the plane, checked on the result (Theorem 4); on a ``region`` only moves
    up to its diameter count. ``None`` promises nothing and needs a bound.
    For ε per km this is planar Laplace noise (Theorem 9); for a promise within a radius D it is a
    staircase: flat, falling by e^{−ε} at c, c + D, c + 2D, …
    Cost: one small linear program per ring width; under a second for ε per km and a gap of 0.1 %.
    Units: km, per km². The loss must not decrease.
    Reference: NOISE, Theorems 4, 8 and 9.

    >>> from geoveil.channel.guarantee import GeoIndistinguishability
    >>> noise = optimal_noise(privacy=GeoIndistinguishability(1.0))
    >>> round(noise.loss_reached, 3), noise.gap < 1e-3
    (2.0, True)
    """
    limits = RingLimits.of(bound_per_km2, tightness)
    promise = RadialPromise.of(privacy, region, loss, limits)
    wanted, most = positive("gap", gap), count("most_rings", most_rings, least=64)
    width, best, lowest, expected = promise.first_width_km, None, 0.0, None
    while promise.reach_km / width <= most:
        rings = Rings(width, promise.levels(width, math.ceil(promise.reach_km / width)))
        solved = _solved_bound(rings, loss, limits, expected)
        lowest, expected = max(lowest, solved.bound), solved.halved()
        best = _noise(rings, promise, loss, limits, lowest, solved.pairs) or best
        reached = 1.0 if best is None else best.gap
        progress(min(1.0, wanted / max(reached, 1e-300)), f"{rings.count} rings")
        if reached <= wanted:
            break
        width /= 2.0
    if best is None:
        raise SolverFailed(
            f"{most} rings were too few to find a noise with these limits; raise most_rings, or "
            "loosen the bound or the tightness"
        )
    best.optimality = replace(
        best.optimality, stopped="within the gap" if best.gap <= wanted else "the rings ran out"
    )
    return best


def _solved_bound(
    rings: Rings, loss: RadialLoss, limits: RingLimits, expected: IntArray | None
) -> RingSolution:
    """What every noise loses at least; where not even means over rings exist, there is no noise."""
    level = float(rings.levels[1])
    free = math.isinf(level)
    if not free and level > _STEEPEST:
        raise InvalidInput(
            f"privacy (a loss of {level:.6g} between neighbours) must allow at most {_STEEPEST:g} there: "
            "ε above that promises nothing that noise could be made for"
        )
    costs = rings.least_losses(loss, 0.0 if free else math.exp(level))
    found = rings.solve(costs, limits, beyond=float(loss.at(rings.edges[-1])), expected=expected)
    if found is None:
        raise InvalidInput(_why_empty(rings, limits))
    # without a promise only the bound caps the innermost ring: its share is a constant
    bound = found.bound - (limits.bound * rings.inward(loss) if free else 0.0)
    return replace(found, bound=bound)


def _noise(
    rings: Rings,
    promise: RadialPromise,
    loss: RadialLoss,
    limits: RingLimits,
    lowest: float,
    expected: IntArray,
) -> OptimalNoise | None:
    """The best noise that is constant, or exponential, on these rings; ``None`` where none is."""
    levels = promise.kept_levels(rings.width, rings.count)
    solved = Rings(rings.width, levels).solve(rings.mean_losses(loss), limits, expected=expected)
    if solved is None:
        return None
    pieces = _pieces(rings, promise, solved.densities, limits)
    kept = pieces.bounded(limits.bound)
    if promise.stated is not None and not CircularNoise(kept).satisfies(promise.stated).holds:
        return None  # ℓ jumps between rings, unseen; narrower ones look closer
    optimality = NoiseOptimality(lowest, rings.count, rings.width, "")
    return OptimalNoise(kept, promise.stated, loss, optimality)


def _pieces(
    rings: Rings, promise: RadialPromise, densities: FloatArray, limits: RingLimits
) -> Segments:
    """The densities made exactly private, continued as low as the promise admits, as a function."""
    values = _extended(rings, promise, densities)
    edges = np.arange(values.size + 1, dtype=np.float64) * rings.width
    if promise.steps:
        return Segments.constant(edges, values)
    middles = (edges[1:] + edges[:-1]) / 2
    # where ℓ is proportional to the distance the first slope goes on to the centre
    finite = np.flatnonzero(np.isfinite(rings.levels))
    proportional = np.allclose(rings.levels[finite], finite * rings.levels[1], rtol=1e-9)
    steep = proportional and math.isinf(limits.bound)
    first = values[0] * (math.sqrt(values[0] / values[1]) if steep else 1.0)
    return Segments(np.r_[0.0, middles], np.r_[first, values[:-1]], values)


def _extended(rings: Rings, promise: RadialPromise, densities: FloatArray) -> FloatArray:
    """The smallest private densities above the given ones, out to where nothing is left."""
    decreasing = np.maximum.accumulate(densities[::-1])[::-1]
    if promise.stated is None:
        return _flattened(decreasing[decreasing > 0])
    total = math.ceil(promise.end_km / rings.width)
    falls = np.exp(-chained(promise.kept_levels(rings.width, total)))
    values = np.zeros(total)
    values[: min(total, decreasing.size)] = decreasing[:total]
    for _ in range(2):  # raising can leave a ring a rounding error above its neighbour
        values = _raised(_flattened(values), falls)
    return values


def _raised(values: FloatArray, falls: FloatArray) -> FloatArray:
    raised = values.copy()
    for k in range(1, values.size):
        np.maximum(raised[k:], falls[k] * values[:-k], out=raised[k:])
    return raised


def _flattened(values: FloatArray) -> FloatArray:
    """Each ring as high as the one before where the two differ by no more than the solver's error."""
    flat = values.tolist()
    for i in range(1, len(flat)):
        if flat[i] >= flat[i - 1] * (1 - _FLAT):
            flat[i] = flat[i - 1]
    return np.array(flat)


def _why_empty(rings: Rings, limits: RingLimits) -> str:
    """Which limit cannot be met, in words."""
    free = np.zeros(rings.count)
    bound = f"bound_per_km2 ({limits.bound:.6g})"
    if rings.solve(free, RingLimits(limits.bound)) is None:
        return f"{bound} must leave room for a noise; raise it"
    if rings.solve(free, RingLimits(math.inf, limits.tightness)) is None:
        radius, least, asked = rings.tightest(RingLimits(math.inf, limits.tightness))
        return (
            f"tightness (ρ({radius:.4g} km) = {asked:.4g}) must be at least {least:.4g} there: the promise "
            "spreads the noise that far; allow a heavier tail or more loss"
        )
    return f"{bound} and tightness must be possible together; raise the bound or the tail"
