"""Rings: the linear program of a radial, and its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy
from scipy import sparse

from geoveil.arrays import FloatArray, IntArray, able, positive
from geoveil.errors import InvalidInput, SolverFailed
from geoveil.space.space import RadialLoss

_TOLERANCES = (1e-10, 1e-9, 1e-7)  # tried in turn: the smallest is now and then too small for HiGHS
_SOLVED, _INFEASIBLE = 0, 2  # what HiGHS says


def minimise(
    costs: FloatArray, cone: sparse.csr_array, first: float, tails: FloatArray | None
) -> tuple[FloatArray, float] | None:
    """min costs·m with cone·m ≤ 0, m₀ ≤ first, tails of m ≤ tails, Σm = 1, m ≥ 0, and a proven bound.

    Tails are variables of their own, t_i = t_{i+1} + m_i, so that their limits are bounds. ``None`` where
    there is nothing to choose from. Solved by HiGHS.
    """
    size = costs.size
    most = np.where(np.arange(size) == 0, first, np.inf)
    sums, right, extra = sparse.csr_array(np.ones((1, size))), np.ones(1), 0
    if tails is not None:
        steps = sparse.eye_array(size) - sparse.eye_array(size, k=1)
        blocks: Any = [[sums, None], [sparse.eye_array(size), -steps]]
        sums = sparse.csr_array(sparse.block_array(blocks))
        right, most, extra = np.r_[right, np.zeros(size)], np.r_[most, tails], size
    linprog: Any = scipy.optimize.linprog  # whose stubs know no sparse matrices
    for tolerance in _TOLERANCES:
        result = linprog(
            np.r_[costs, np.zeros(extra)], A_eq=sums, b_eq=right, b_ub=np.zeros(cone.shape[0]),
            A_ub=sparse.csr_array(sparse.hstack([cone, sparse.csr_array((cone.shape[0], extra))])),
            bounds=np.stack([np.zeros(most.size), most], axis=1), method="highs-ds",
            options={
                "primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance
            },
        )  # fmt: skip
        if result.status == _INFEASIBLE:
            return None
        if result.status == _SOLVED:
            break
    else:
        raise SolverFailed(
            f"HiGHS could not solve the program over rings ({' '.join(result.message.split())}); try a "
            "larger gap, or a promise that allows more loss"
        )
    # for any multipliers ≥ 0 of cone (μ), m₀ (κ) and tails (ν):
    # costs·m ≥ min_i (costs + μ·cone + κ[i = 0] + Σ_{j ≤ i} ν_j) − κ·first − ν·tails
    prices = np.maximum(-result.ineqlin.marginals, 0.0)
    caps = np.maximum(-result.upper.marginals, 0.0)
    reduced = costs + cone.T @ prices
    reduced[0] += caps[0]
    paid = caps[0] * first if caps[0] > 0 else 0.0
    if tails is not None:
        reduced += np.cumsum(caps[size:])
        paid += float(caps[size:] @ tails)
    return np.maximum(result.x[:size], 0.0), float(reduced.min() - paid)


# --- The plane cut into rings of one width, and the linear programs over them


_PARTS = 256  # of a ring, on each of which a loss is taken to be what it is at its inner edge
_LIGHTEST = 1e-7  # tails are controlled down to this; below, the solver's own errors rule
_FEW = 6  # constraints of so many distances are written down at once, of more as they are broken
_BROKEN, _TIGHT = 1e-7, 1e-6

Tightness = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class RingLimits:
    """What the noise must respect besides privacy: R ≤ bound per km², P(> r) ≤ tightness(r)."""

    bound: float = math.inf
    tightness: Tightness | None = None

    @classmethod
    def of(cls, bound_per_km2: float | None, tightness: Tightness | None) -> RingLimits:
        """Checked; a tightness becomes the smallest value so far, since tails only fall."""
        bound = math.inf if bound_per_km2 is None else positive("bound_per_km2", bound_per_km2)
        if tightness is None:
            return cls(bound)
        able(
            "tightness", tightness, "__call__", "a function of radii in km that bounds P(noise > r)"
        )
        radius = np.concatenate([[0.0], np.geomspace(1e-6, 1e4, 20_001)])
        values = np.asarray(tightness(radius), dtype=np.float64)
        if values.shape != radius.shape or not ((values >= 0) & (values <= 1)).all():
            raise InvalidInput("tightness must give a probability in [0, 1] for every radius")
        least = np.minimum.accumulate(values)
        return cls(bound, lambda at: np.interp(at, radius, least))

    @property
    def core_km(self) -> float:
        """The radius of the disk that the bound alone fills."""
        return 0.0 if math.isinf(self.bound) else 1.0 / math.sqrt(math.pi * self.bound)


@dataclass(frozen=True)
class RingSolution:
    """Densities of the rings, a value that multipliers prove unbeatable, and the pairs that are tight."""

    densities: FloatArray
    bound: float
    pairs: IntArray


class Rings:
    """Rings of ``width_km`` around the origin; ``levels[k]`` is the loss allowed between those k apart."""

    def __init__(self, width_km: float, levels: FloatArray) -> None:
        self.width = width_km
        self.levels = levels
        self.count = levels.size

    @cached_property
    def edges(self) -> FloatArray:
        """The radii between the rings, from 0."""
        return np.arange(self.count + 1, dtype=np.float64) * self.width

    @cached_property
    def areas(self) -> FloatArray:
        """π(r_{i+1}² − r_i²)."""
        return math.pi * self.width**2 * (2.0 * np.arange(self.count, dtype=np.float64) + 1.0)

    def mean_losses(self, loss: RadialLoss) -> FloatArray:
        """The mean of the loss over each ring, by area: never above the true one of an increasing loss."""
        losses, areas = self._parts(loss)
        return (losses * areas).sum(axis=1) / areas.sum(axis=1)

    def least_losses(self, loss: RadialLoss, largest: float) -> FloatArray:
        """Costs of the rings that no decreasing density can beat, whatever it does inside them.

        On ring i it lies between the means of its neighbours, so in layers it loses at least
        R_i·∫L dA − (R_{i−1} − R_{i+1})·κ_i, κ_i as in :meth:`inward`. In the innermost ring it is at most
        ``largest`` times its mean. The error is of second order in the width.
        """
        inward = self.inward(loss)
        before, after = np.r_[0.0, inward[:-1]], np.r_[inward[1:], 0.0]
        change = before - after
        change[0] = -largest * inward[0] - after[0]
        return self.mean_losses(loss) + change / self.areas

    def inward(self, loss: RadialLoss) -> FloatArray:
        """κ_i = max_c ∫ (mean − L) dA over ring i up to c: what it can gain by leaning inwards."""
        losses, areas = self._parts(loss)
        below = self.mean_losses(loss)[:, None] - losses
        return np.cumsum(below * areas, axis=1).max(axis=1)

    def _parts(self, loss: RadialLoss) -> tuple[FloatArray, FloatArray]:
        """(rings, 256): the least loss in each of 256 parts of a ring, and their areas.

        All else is exact for this loss in steps, which lies nowhere above the loss; so a bound for it is one
        for the loss, wherever that jumps.
        """
        low = self.edges[:-1, None] + np.arange(_PARTS) * (self.width / _PARTS)
        high = low + self.width / _PARTS
        return loss.at(low), math.pi * (high**2 - low**2)

    # -- the programs ----------------------------------------------------------------------------

    def solve(
        self,
        losses: FloatArray,
        limits: RingLimits,
        *,
        beyond: float | None = None,
        expected: IntArray | None = None,
    ) -> RingSolution | None:
        """The least Σ R_i·area_i·loss_i; ``None`` where no densities satisfy all constraints.

        ``beyond`` prices probability outside all rings (for the bound); without it there is none.
        Constraints of many distances are added as they are broken, after those of the ``expected``
        pairs. Solved by HiGHS.
        """
        costs = losses if beyond is None else np.append(losses, beyond)
        first, tails = limits.bound * float(self.areas[0]), None
        if limits.tightness is not None:
            # a noise must keep to ρ up to the next radius, a bound on all noise only here
            at = self.edges[1:] if beyond is None else self.edges[:-1]
            allowed = np.asarray(limits.tightness(at))
            tails = np.where(allowed > _LIGHTEST, allowed, 1.0)
            tails = np.append(tails, np.ones(costs.size - self.count))
        distances = self._needed()
        few = distances.size <= _FEW
        pairs = self._pairs(distances if few else distances[:1])
        if expected is not None and not few:
            inside = (expected[1] < self.count) & np.isin(expected[1] - expected[0], distances[1:])
            pairs = np.hstack([pairs, expected[:, inside]])
        while True:
            solved = minimise(costs, self._cone(pairs, costs.size), first, tails)
            if solved is None:
                return None
            masses, bound = solved
            densities = masses[: self.count] / self.areas
            more = pairs[:, :0] if few else self._broken(densities, distances)
            if not more.size:
                # the pairs that make a difference: the outer ring lies as low as it may
                inner, outer = pairs
                least = densities[inner] * np.exp(-self.levels[outer - inner])
                tight = pairs[:, densities[outer] <= least * (1 + _TIGHT)]
                return RingSolution(densities, bound, tight)
            pairs = np.hstack([pairs, more])

    def tightest(self, limits: RingLimits) -> tuple[float, float, float]:
        """Where tails cannot be as light as they must: the radius, the least tail there, the tail allowed."""
        worst = (0.0, 0.0, 0.0)
        if limits.tightness is None:
            return worst
        for at in np.unique(np.linspace(1, self.count - 1, 32).astype(np.int64)).tolist():
            beyond = np.where(np.arange(self.count) >= at, 1.0, 0.0)
            best = self.solve(beyond, RingLimits(limits.bound))
            allowed = float(limits.tightness(np.asarray(self.edges[at])))
            least = 0.0 if best is None else float((best.densities * self.areas * beyond).sum())
            if least - allowed > worst[1] - worst[2]:
                worst = (float(self.edges[at]), least, allowed)
        return worst

    def _needed(self) -> IntArray:
        """Distances whose constraint follows neither from shorter ones nor from the next longer one."""
        k = np.arange(1, self.count)
        following = np.append(self.levels[2:], np.inf)
        chain = chained(self.levels, whole=False)[1:]
        with np.errstate(invalid="ignore"):
            needed = np.isfinite(self.levels[1:]) & (self.levels[1:] < following * (1 - 1e-12))
            needed &= self.levels[1:] < chain - 1e-12
        return k[needed]

    def _pairs(self, distances: IntArray) -> IntArray:
        """(2, n): all pairs of rings at the given distances, the inner one first."""
        inner = [np.arange(self.count - k) for k in distances.tolist()]
        first = np.concatenate([*inner, np.arange(0)])
        return np.stack([first, first + np.repeat(distances, [part.size for part in inner])])

    def _broken(self, densities: FloatArray, distances: IntArray) -> IntArray:
        """(2, n): for each ring that lies too low, the inner ring that shows it most."""
        least, shown_by = np.zeros(self.count), np.zeros(self.count, dtype=np.int64)
        for k in distances.tolist():
            needed = densities[:-k] * math.exp(-self.levels[k])
            higher = needed > least[k:]
            least[k:][higher] = needed[higher]
            shown_by[k:][higher] = np.flatnonzero(higher)
        low = np.flatnonzero(densities < least * (1 - _BROKEN) - _BROKEN / self.areas)
        return np.stack([shown_by[low], low])

    def _cone(self, pairs: IntArray, columns: int) -> sparse.csr_array:
        """Rows ≤ 0 in the probabilities of the rings, no coefficient above 1: privacy and decrease."""
        inner, outer = pairs
        everywhere = np.arange(self.count)
        level = np.r_[self.levels[outer - inner], np.zeros(self.count - 1)]
        first, other = np.r_[inner, everywhere[1:]], np.r_[outer, everywhere[:-1]]
        # m/a ≤ e^{level}·m′/a′, both sides divided by what is largest
        factor = np.exp(-level) * self.areas[other] / self.areas[first]
        largest = np.maximum(factor, 1.0)
        at = np.arange(first.size)
        return sparse.csr_array(
            (np.r_[factor / largest, -1.0 / largest], (np.r_[at, at], np.r_[first, other])),
            shape=(at.size, columns),
        )


def chained(levels: FloatArray, *, whole: bool = True) -> FloatArray:
    """The least Σ levels over all ways to split a distance into parts; proper splits only on request.

    Levels do not fall, and may be infinite from some distance on.
    """
    size, last = levels.size, int(np.isfinite(levels).sum()) - 1  # the longest part
    chains, split, begun = levels.copy(), np.full(size, np.inf), 2
    if whole:
        per_step = levels[1 : last + 1] / np.arange(1, last + 1)
        if (per_step <= np.minimum.accumulate(per_step) * (1 + 1e-12)).all():
            begun = max(2, last + 1)  # ℓ/d never rises: no sum of parts is below ℓ
    for k in range(begun, min(size, 2 * last + 2)):
        half = chains[1 : k // 2 + 1] + chains[k - 1 : k - k // 2 - 1 : -1]
        split[k] = half.min()
        chains[k] = min(chains[k], split[k])
    # Of parts no longer than this, some come to within half of it below the middle, the others to the rest.
    begun, aside = max(begun, 2 * last + 2), (last + 1) // 2
    while begun < size:
        ahead = np.arange(begun, min(size, 2 * (begun - aside) - 1))
        for near in ahead // 2 - np.arange(aside + 1)[:, None]:
            split[ahead] = np.minimum(split[ahead], chains[near] + chains[ahead - near])
        chains[ahead], begun = split[ahead], int(ahead[-1]) + 1
    return chains if whole else split
