"""The radial of least loss for a promise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count, positive, teller
from geoveil.channel.guarantee import Guarantee
from geoveil.errors import InvalidInput, SolverFailed, two_digits
from geoveil.optimal.circular import CircularNoise
from geoveil.optimal.interior_point import Progress
from geoveil.optimal.regularity import Region, WithinRegion, check_increasing, checked_region
from geoveil.optimal.rings import RingLimits, Rings, RingSolution, Tightness, chained
from geoveil.optimal.segments import Segments
from geoveil.root import safe_root
from geoveil.space.space import RadialLoss, distance_km

_TAIL = 1e-9  # the probability, and the share of the loss, that may lie beyond the rings
_NOTHING = 1e-16  # the probability that may lie beyond the noise itself
_COARSE = 8  # steps per length in which the reach is measured
_FARTHEST = 1 << 16  # steps after which a noise is taken to have no end
_FIRST_RINGS = 256
_PLANE_KM = 1e6  # an ℓ that is finite so far away is finite everywhere
_PARTS = np.geomspace(1e-4, 1.0, 64)[:-1]  # of a ring, where ℓ is compared with straight lines
_STRAIGHT = 1e-11
_PIECES: FloatArray = np.exp2(np.arange(30.0))  # into which a move of one ring is cut
_SAMPLES, _FEW = 1000, 100  # distances at which ℓ has so few values are those of a step function


@dataclass(frozen=True)
class RadialPromise:
    """ℓ on a region, with the lengths that matter.

    ``length_km``: where ℓ has grown by 1, or becomes ∞; ``span_km``: the last distance at which it is
    finite, of which all ring widths are whole parts. ``reach_km``: where the steepest private noise has
    1e-9 of its probability and loss left; ``end_km``: where it has 1e-16. ``steps``: whether ℓ is a
    step function, and so the best density too; otherwise that is continuous.
    """

    stated: Guarantee | None
    length_km: float
    span_km: float
    reach_km: float
    end_km: float
    steps: bool

    @classmethod
    def of(
        cls, privacy: Guarantee | None, region: Region | None, loss: RadialLoss, limits: RingLimits
    ) -> RadialPromise:
        """The promise, or an error when no noise can keep it."""
        _check_loss(loss, np.r_[0.0, np.geomspace(1e-4, 1e3, 2001)])
        if checked_region(region).lengths_km is not None:
            raise InvalidInput(
                "region must be connected; for separate places use optimal_mechanism"
            )
        if privacy is None:
            if math.isinf(limits.bound):
                raise InvalidInput(
                    "bound_per_km2 must be given where nothing is promised: without it the best noise is none"
                )
            core = limits.core_km
            return cls(None, core, core, 1.25 * core, 1.25 * core, True)
        check_increasing(privacy)
        diameter = math.inf if region is None else region.diameter_km
        local = privacy if math.isinf(diameter) else WithinRegion(privacy, diameter)
        length, span = _length_km(local), _span_km(local)
        near = local.loss(length * np.array([1e-9, 1e-6, 1e-3]))
        flattest = (near / [1e-9, 1e-6, 1e-3]).min()
        if flattest < 1e-2 * max(float(local.loss(length)), 1e-300) or near[0] == 0:
            raise InvalidInput(
                "privacy must not vanish faster than the distance: with this ℓ many small moves add up to "
                "no loss at all, and no noise is flat enough"
            )
        reach, end = cls(local, length, span, 0.0, 0.0, False)._reach_and_end_km(loss, limits)
        # a step function has few values, and begins with a step at 0
        scale = np.r_[np.geomspace(1e-9, 1, _SAMPLES), np.linspace(1e-3, 1, _SAMPLES)]
        steps = np.unique(local.loss(min(span, reach) * scale)).size <= _FEW
        return cls(local, length, span, reach, end, steps)

    def part_km(self, width_km: float) -> float:
        """A whole part of the span, half as wide at least, that divides the corners of ℓ best."""
        if math.isinf(self.span_km):
            return width_km
        least = math.ceil(self.span_km / width_km)
        parts = np.arange(least, 2 * least + 1)
        corners = np.zeros(0) if self.stated is None else self.stated._corners()
        places = corners[corners < self.span_km, None] / self.span_km * parts
        return float(self.span_km / parts[np.abs(places - np.rint(places)).sum(axis=0).argmin()])

    def levels(self, width_km: float, rings: int) -> FloatArray:
        """What every private noise keeps: ℓ between points kh apart, k = 0, 1, …

        One ring is also crossed in n steps of h/n each: where ℓ is convex, that is the stricter promise.
        """
        width = width_km * (1 - 1e-12)
        levels = self._levels(np.asarray(np.arange(rings) * width, dtype=np.float64))
        levels[1] = float((_PIECES * self._levels(np.asarray(width / _PIECES))).min())
        return levels

    def sufficient_levels(self, width_km: float, rings: int) -> FloatArray:
        """What suffices between rings k apart, for steps on the rings or straight lines of log R.

        Steps: ℓ at the smallest distance between the two rings. Lines through the middles: between points
        (k + t)h apart, 0 ≤ t ≤ 1, their logarithms differ by a mean of differences between middles, a
        share 1 − t of them k and a share t of them k + 1 apart. So it suffices that the line through
        the levels lies nowhere above ℓ; where ℓ is concave, ℓ itself will do.
        """
        k = np.arange(rings)
        nearest = self._levels(np.maximum(k - 1, 0) * width_km * (1 + 1e-12) + 1e-12 * width_km)
        if self.steps:
            return nearest
        levels = self.levels(width_km, rings)
        inside = self._levels((k[:-1, None] + _PARTS) * width_km * (1 - 1e-12))
        low, high = levels[:-1, None], levels[1:, None]
        with np.errstate(invalid="ignore"):
            steepest = levels[:-1] + ((inside - low) / _PARTS).min(axis=1)
            sudden = np.diff(np.hstack([low, inside, high])).max(axis=1) > (high - low)[:, 0] / 2
            bent = steepest < levels[1:] * (1 - _STRAIGHT)
        levels[1:] = np.where(bent, steepest, levels[1:])
        sudden[0] = False  # at 0 a jump does no harm
        levels[1:] = np.where(sudden, np.minimum(levels[1:], nearest[1:]), levels[1:])
        return np.minimum.accumulate(levels[::-1])[::-1]

    def _levels(self, distances_km: FloatArray) -> FloatArray:
        if self.stated is None:
            return np.where(np.arange(distances_km.size) > 0, math.inf, 0.0)
        return np.where(distances_km > 0, self.stated.loss(distances_km), 0.0)

    def _reach_and_end_km(self, loss: RadialLoss, limits: RingLimits) -> tuple[float, float]:
        """Reach and end of the steepest noise, plus the disk that a bound makes flat."""
        width, steps = self.part_km(self.length_km / _COARSE), 128
        while True:
            radius = width * np.arange(steps)
            masses = np.exp(-chained(self.levels(width, steps))) * (radius + width)
            with np.errstate(over="ignore", invalid="ignore"):
                weighted = masses * loss.at(radius + limits.core_km + width)
            ends = _end(masses, _NOTHING), max(_end(masses, _TAIL), _end(weighted, _TAIL))
            if not np.isfinite(weighted).all() or (
                steps >= _FARTHEST and max(ends) >= steps // 2 > _end(masses, _TAIL)
            ):
                raise InvalidInput(
                    f"loss ({loss!r}) must not grow faster than the promise lets the noise fall; its mean "
                    "would be infinite"
                )
            if max(ends) < steps // 2:
                end, reach = (width * (last + 1) + limits.core_km for last in ends)
                return reach, max(end, reach)
            if steps >= _FARTHEST:
                raise InvalidInput(
                    "privacy must allow more loss the farther two people are apart, without end, and so much "
                    f"that noise falls off within {two_digits(width * steps)} km, where the search ends; "
                    "choose a larger ε, or a promise that grows with the distance"
                )
            steps *= 2


def _end(weights: FloatArray, share: float) -> int:
    """The first index beyond which no more than a share of the total is left."""
    tails = np.cumsum(weights[::-1])[::-1]
    return int(np.count_nonzero(tails > share * tails[0]))


def _length_km(privacy: Guarantee) -> float:
    """The distance at which ℓ has grown by 1, or the last before it is infinite."""
    distances = np.unique(np.concatenate([np.geomspace(1e-6, 1e6, 2401), privacy._corners()]))
    losses = privacy.loss(distances)
    reached = np.flatnonzero((losses >= losses[0] + 1.0) | np.isinf(losses))
    if not reached.size:
        return 1.0
    first = int(reached[0])
    return float(distances[max(first - 1, 0) if np.isinf(losses[first]) else first])


def _span_km(privacy: Guarantee) -> float:
    """The last distance at which ℓ is finite; ∞ where there is none."""
    corners = [d for d in np.sort(privacy._corners())[::-1].tolist() if d < _PLANE_KM]
    nearest = safe_root(
        lambda distance: distance > 0.0 and math.isinf(float(privacy.loss(distance))),
        lambda infinite: 1.0 if infinite else -1.0,
        [_PLANE_KM, *corners, 0.0],
        within=(_PLANE_KM, 0.0),
        tolerance=0.0,
        step=1e-300,
        linear=True,
    )
    return math.inf if nearest.at == _PLANE_KM else nearest.at


def _check_loss(loss: RadialLoss, radius: FloatArray) -> None:
    if not isinstance(loss, RadialLoss):
        raise InvalidInput("loss must be a RadialLoss: noise on the plane knows distances only")
    with np.errstate(over="ignore", invalid="ignore"):
        values = loss.at(radius)
        falls = np.diff(values) < -1e-12 * np.abs(values[1:])
    if values.shape != radius.shape or np.isnan(values).any() or (values < 0).any():
        raise InvalidInput(f"loss ({loss!r}) must be a number, not negative, at every distance")
    if falls.any():
        raise InvalidInput(f"loss ({loss!r}) must not decrease with the distance")


# --- The best circular noise for any promise, loss, bound and tightness, by linear programs over rings


_STEEPEST = 700.0  # e to a larger loss leaves double precision
_FLAT = 1e-7  # rings that differ by less are one step


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
        self, pieces: Segments, privacy: Guarantee | None, loss: RadialLoss, optimality: NoiseOptimality
    ) -> None:  # fmt: skip
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
        optimality = self.optimality
        return (
            f"OptimalNoise({self.loss!r} {self.loss_reached:.6g}, at most {self.gap:.2g} of it above "
            f"the optimum; {optimality.rings} rings of {optimality.width_km:.4g} km, {optimality.stopped})"
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
    tell, limits = teller(progress), RingLimits.of(bound_per_km2, tightness)
    promise = RadialPromise.of(privacy, region, loss, limits)
    gap, most = positive("gap", gap), count("most_rings", most_rings, least=64)
    width = promise.part_km(promise.reach_km / _FIRST_RINGS)
    best, lowest, expected = None, 0.0, None
    while promise.reach_km / width <= most:
        rings = Rings(width, promise.levels(width, math.ceil(promise.reach_km / width)))
        solved = _solved_bound(rings, loss, limits, expected)
        lowest = max(lowest, solved.bound)
        best = _noise(rings, promise, loss, limits, lowest, solved.pairs) or best
        reached = 1.0 if best is None else best.gap
        tell(min(1.0, gap / max(reached, 1e-300)), f"{rings.count} rings")
        if reached <= gap:
            break
        # the tight pairs among rings half as wide, to begin with there
        width, expected = width / 2.0, np.hstack([2 * solved.pairs, 2 * solved.pairs + 1])
    if best is None:
        raise SolverFailed(
            f"{most} rings were too few to find a noise with these limits; raise most_rings, or "
            "loosen the bound or the tightness"
        )
    stopped = "within the gap" if best.gap <= gap else "the rings ran out"
    best.optimality = replace(best.optimality, stopped=stopped)
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
    solution = rings.solve(costs, limits, beyond=float(loss.at(rings.edges[-1])), expected=expected)
    if solution is None:
        raise InvalidInput(_why_empty(rings, limits))
    # without a promise only the bound caps the innermost ring: its share is a constant
    bound = solution.bound - (limits.bound * float(rings.inward(loss)[0]) if free else 0.0)
    return replace(solution, bound=bound)


def _noise(
    rings: Rings, promise: RadialPromise, loss: RadialLoss, limits: RingLimits, lowest: float,
    expected: IntArray,
) -> OptimalNoise | None:  # fmt: skip
    """The best noise that is constant, or exponential, on these rings; ``None`` where none is."""
    levels = promise.sufficient_levels(rings.width, rings.count)
    solved = Rings(rings.width, levels).solve(rings.mean_losses(loss), limits, expected=expected)
    if solved is None:
        return None
    values = _extended(rings, promise, solved.densities)
    edges = np.arange(values.size + 1, dtype=np.float64) * rings.width
    if promise.steps:
        pieces = Segments.constant(edges, values)
    else:  # exponential between the middles of the rings
        # where ℓ is proportional to the distance the first slope goes on to the centre
        finite = np.flatnonzero(np.isfinite(rings.levels))
        proportional = np.allclose(rings.levels[finite], finite * rings.levels[1], rtol=1e-9)
        steep = proportional and math.isinf(limits.bound)
        centre = values[0] * (math.sqrt(values[0] / values[1]) if steep else 1.0)
        middles = (edges[1:] + edges[:-1]) / 2
        pieces = Segments(np.r_[0.0, middles], np.r_[centre, values[:-1]], values)
    optimality = NoiseOptimality(lowest, rings.count, rings.width, "")
    try:
        return OptimalNoise(pieces.bounded(limits.bound), promise.stated, loss, optimality)
    except InvalidInput:  # ℓ jumps between rings, unseen, or they cannot end at the bound
        return None  # narrower ones look closer


def _extended(rings: Rings, promise: RadialPromise, densities: FloatArray) -> FloatArray:
    """The smallest private densities that are nowhere below these, out to where nothing is left."""
    decreasing = np.maximum.accumulate(densities[::-1])[::-1]
    if promise.stated is None:
        return _flattened(decreasing[decreasing > 0])
    total = math.ceil(promise.end_km / rings.width)
    falls = np.exp(-chained(promise.sufficient_levels(rings.width, total)))
    values = np.zeros(total)
    values[: min(total, decreasing.size)] = decreasing[:total]
    for _ in range(2):  # raising can leave a ring a rounding error above its neighbour
        flat = _flattened(values)
        values = flat.copy()
        for k in range(1, total):
            np.maximum(values[k:], falls[k] * flat[:-k], out=values[k:])
    return values


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
        radius, least, tail = rings.tightest(RingLimits(math.inf, limits.tightness))
        return (
            f"tightness (ρ({radius:.4g} km) = {tail:.4g}) must be at least {least:.4g} there: the promise "
            "spreads the noise that far; allow a heavier tail or more loss"
        )
    return f"{bound} and tightness must be possible together; raise the bound or the tail"
