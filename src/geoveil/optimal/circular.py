"""Circular noise: added to a location, the same in all directions, by any radial R(r)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import (
    ArrayLike,
    ByParts,
    FloatArray,
    instance,
    lengths,
    numbers,
    positive,
    probabilities,
)
from geoveil.channel.guarantee import Guarantee, checked_guarantee
from geoveil.errors import InvalidInput, number_of
from geoveil.mechanism.noise import Noise
from geoveil.optimal.regularity import Region, check_increasing
from geoveil.optimal.segments import Segments, checked_radial, from_function
from geoveil.randomness import Randomness
from geoveil.space.space import RadialLoss, distance_km

_TOLERANCE = 1e-9
_DENSITY_TOLERANCE = 1e-6
_TESTED = 600  # radii at which Theorem 4 is tested, besides the edges
_FINEST = 400  # pieces into which the reach is cut for a loss
_AT_ONCE = 1 << 18  # pairs of radii compared at once: what the cache of a processor holds
_FARTHEST_KM = 20_000.0
_NEGLIGIBLE = 1e-12  # a rim with no more probability than this is where double precision ends


@dataclass(frozen=True)
class PrivacyCheck:
    """Whether a noise satisfies ℓ-privacy on a region, and the pair of radii that breaks it most.

    ``loss`` is the log-ratio of the densities at the two radii, ``allowed`` what ℓ admits there.
    """

    holds: bool
    worst_pair_km: tuple[float, float]
    loss: float
    allowed: float

    def __str__(self) -> str:
        r, other = self.worst_pair_km
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"{verdict}: noise of {r:.6g} km and of {other:.6g} km differ by {self.loss:.6g} nats "
            f"where {self.allowed:.6g} are allowed"
        )


class CircularNoise(ByParts, Noise):
    """Noise whose density depends on its length alone: R(r) per km².

    Law: ``F(v) = R(|v|)``, ∫ R(r)·2πr dr = 1; the length is drawn by the inverse of its distribution
    function, the direction is uniform.
    Guarantee: ℓ-privacy where ``R(r) ≤ e^{ℓ(|r − r′|)}·R(r′)`` for all r, r′ (checked when ``privacy`` is
    given). On the globe the density is the same function of the great-circle distance, so the
    promise holds in true distance. Results are rounded to a fixed lattice of 0.1 m; beyond that
    the law is that of double precision, which ends where 1e-15 of the probability is left.
    Cost: O(log pieces) per point. Units: km, degrees, densities per km².
    Reference: NOISE §4.2, Theorem 4; ElSalamouny & Gambs 2016, §6 (sampling).

    >>> import numpy as np
    >>> disk = CircularNoise.of_rings([0.0, 1.0], [1 / np.pi])
    >>> round(disk.expected_loss(), 9)
    0.666666667
    >>> from geoveil.channel.guarantee import WithinRadius
    >>> disk.satisfies(WithinRadius(radius_km=0.5, epsilon=1.0)).holds
    False
    """

    _parts = ("pieces", "guarantee")

    def __init__(self, pieces: Segments, *, privacy: Guarantee | None = None) -> None:
        instance(
            "pieces", pieces, Segments, "those of a density; use of_function(…) or of_rings(…)"
        )
        if abs(pieces.total - 1.0) > _DENSITY_TOLERANCE:
            raise InvalidInput(
                f"radial (total probability {pieces.total:.9g}) must be a density: "
                "∫ R(r)·2πr dr = 1; divide it by its total"
            )
        whole = pieces.trimmed()
        self.pieces = whole if whole.total == 1.0 else whole.scaled(1.0 / whole.total)
        self.guarantee = checked_guarantee("privacy", privacy)
        if privacy is not None:
            check = self.satisfies(privacy)
            if not check.holds:
                raise InvalidInput(f"radial must satisfy the promise; {check}")

    @classmethod
    def of_function(
        cls,
        radial: Callable[[FloatArray], FloatArray],
        *,
        reach_km: float | None = None,
        breaks_km: Sequence[float] = (),
        privacy: Guarantee | None = None,
    ) -> CircularNoise:
        """From any function R(r) per km², vectorised; ``breaks_km`` are radii at which it jumps.

        ``reach_km`` is where it may be cut off; it is found when not given.
        """
        reach = _reach(radial) if reach_km is None else positive("reach_km", reach_km)
        pieces = from_function(radial, reach, numbers("breaks_km", breaks_km))
        return cls(pieces, privacy=privacy)

    @classmethod
    def of_rings(
        cls, edges_km: ArrayLike, densities_per_km2: ArrayLike, *, privacy: Guarantee | None = None
    ) -> CircularNoise:
        """A step function: one density for each ring between two edges."""
        edges = np.array(numbers("edges_km", edges_km))
        values = np.array(numbers("densities_per_km2", densities_per_km2))
        if edges.ndim != 1 or values.shape != (edges.size - 1,) or values.size == 0:
            raise InvalidInput("densities_per_km2 must be one number per ring between two edges")
        if edges[0] != 0 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
            raise InvalidInput("edges_km must begin at 0 and increase")
        checked_radial(lambda radius: values, values)
        return cls(Segments.constant(edges, values), privacy=privacy)

    # -- the law -----------------------------------------------------------------------------------

    @property
    def reach_km(self) -> float:
        """No noise is longer than this."""
        return float(self.pieces.edges[-1])

    @property
    def has_edge(self) -> bool:
        """Whether the noise really ends at its reach, rather than where double precision does."""
        return 1.0 - float(self.probability_within(0.99 * self.reach_km)) > _NEGLIGIBLE

    def density_per_km2(self, radius_km: ArrayLike) -> FloatArray:
        """R at each radius."""
        return self.pieces.at(lengths("radius_km", radius_km))

    def probability_within(self, radius_km: ArrayLike) -> FloatArray:
        """P(noise ≤ r) at each radius."""
        return self.pieces.within(lengths("radius_km", radius_km))

    def radius_km(self, probability: ArrayLike) -> FloatArray:
        """The radius that the noise stays within with each probability in [0, 1]."""
        return self.pieces.quantile(probabilities("probability", probability))

    def expected_loss(self, loss: RadialLoss = distance_km) -> float:
        """∫ R(r)·L(r)·2πr dr for any loss that depends on the distance. Reference: NOISE, eq. (7)."""
        return self.pieces.mean(loss.at, self.reach_km / _FINEST)

    def satisfies(self, privacy: Guarantee, region: Region | None = None) -> PrivacyCheck:
        """Whether the noise satisfies ℓ-privacy on a region (the plane unless given).

        R(r) ≤ e^{ℓ_X(r, r′)}·R(r′), with ℓ_X the least ℓ(s) over the moves s that the region admits
        between the two radii. Tested just before and after every edge, at these plus and minus
        the corners of ℓ, the shortest move between places and the diameter, and at 600 radii between;
        beyond the reach only where the noise has an edge there. Reference: NOISE, Theorem 4.
        """
        check_increasing(privacy)
        where = region or Region.plane()
        edges = self.pieces.edges
        edges = edges[np.linspace(0, edges.size - 1, min(edges.size, _TESTED)).astype(np.int64)]
        ends = [length for length in (where.shortest_km, where.diameter_km) if length < math.inf]
        corners = np.append(privacy._corners(), ends)
        near = np.concatenate([edges, *(edges + c for c in corners), *(edges - c for c in corners)])
        nudge, farthest = 1e-9 * self.reach_km, self.reach_km * (1 - 1e-12)
        if self.has_edge:
            farthest = self.reach_km + max(self.reach_km, where.shortest_km)
        around = np.concatenate([near - nudge, near + nudge, np.linspace(0, farthest, _TESTED)])
        radius = np.unique(around[(around >= 0) & (around <= farthest)])
        with np.errstate(divide="ignore"):
            logs = np.log(self.pieces.at(radius))
        return _worst(radius, logs, privacy, where, nudge * 1e-3)

    # -- sampling ----------------------------------------------------------------------------------

    def _knots_km(self) -> FloatArray:
        """The edges at which R jumps, and some 300 of the others."""
        edges, left, right = self.pieces.edges, self.pieces.left, self.pieces.right
        jumps = np.abs(left[1:] - right[:-1]) > _TOLERANCE * np.maximum(left[1:], right[:-1])
        some = np.arange(edges.size) % (1 + edges.size // 300) == 0
        return edges[np.r_[True, jumps, True] | some]

    def _polar(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        radius = self.pieces.quantile(randomness.uniform(size))
        return radius, randomness.uniform(size) * (2 * math.pi)

    def __repr__(self) -> str:
        promise = "" if self.guarantee is None else f", {self.guarantee.sentence()}"
        return (
            f"CircularNoise({number_of(self.pieces.left.size, 'piece')}, mean {self.expected_loss():.6g} km"
            f"{promise})"
        )


def _worst(
    radius: FloatArray, logs: FloatArray, privacy: Guarantee, where: Region, tolerance: float
) -> PrivacyCheck:
    """The pair of radii with the largest excess of log R(r) − log R(r′) over what is allowed.

    What is allowed between two radii is so in both directions: each pair is looked at once.
    """

    def allowed(rows: slice, others: slice) -> FloatArray:
        one, other = radius[rows, None], radius[others]
        moves = where.shortest_move_km(np.abs(one - other), one + other, tolerance)
        losses = privacy.loss(np.maximum(moves - tolerance, 0.0))
        return np.where(np.isinf(moves), math.inf, losses)  # no move leads from one to the other

    worst, r, other = -math.inf, 0, 0
    step = max(1, _AT_ONCE // radius.size)
    for start in range(0, radius.size, step):
        rows, others = slice(start, start + step), slice(start, None)
        with np.errstate(invalid="ignore"):
            excess = np.abs(logs[rows, None] - logs[others]) - allowed(rows, others)
        # both impossible, or a move that the region or the promise leaves free
        excess[np.isnan(excess) | (radius[rows, None] == radius[others])] = -math.inf
        if excess.max() > worst:
            at = np.unravel_index(excess.argmax(), excess.shape)
            worst, r, other = float(excess[at]), start + int(at[0]), start + int(at[1])
    r, other = (other, r) if logs[other] > logs[r] else (r, other)
    return PrivacyCheck(
        worst <= _TOLERANCE,
        (float(radius[r]), float(radius[other])),
        float(logs[r] - logs[other]),
        float(allowed(slice(r, r + 1), slice(other, other + 1))[0, 0]),
    )


def _reach(radial: Callable[[FloatArray], FloatArray]) -> float:
    """Where a radial may be cut off: twice as far holds less than 1e-15 more."""

    def mass(low: float, high: float) -> float:
        radius = np.linspace(low, high, 2001)
        return float(np.trapezoid(checked_radial(radial, radius) * (2 * math.pi) * radius, radius))

    reach = 1.0
    while reach <= _FARTHEST_KM:
        inner, outer = mass(reach, 2 * reach), mass(2 * reach, 4 * reach)
        total = mass(0.0, reach) + inner
        if total > 0 and inner + outer <= 1e-15 * total:
            return reach
        reach *= 2.0
    raise InvalidInput(
        f"radial must fall off within {_FARTHEST_KM:g} km to be a density; give reach_km if it does"
    )
