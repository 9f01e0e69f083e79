"""What a promise means for circular noise: how far it reaches, how fast it may fall."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.guarantee import Guarantee
from geoveil.errors import InvalidInput
from geoveil.optimal.region import Region
from geoveil.optimal.regularity import WithinRegion, check_increasing
from geoveil.optimal.rings import RingLimits, chained
from geoveil.space.loss import RadialLoss

_TAIL = 1e-9  # the probability, and the share of the loss, that may lie beyond the rings
_NOTHING = 1e-16  # the probability that may lie beyond the noise itself
_COARSE = 8  # steps per length in which the reach is measured
_FARTHEST = 1 << 16  # steps after which a noise is taken to have no end
_FIRST_RINGS = 1024
_JUMP = 1e-4  # a loss allowed between neighbours that counts as a jump


@dataclass(frozen=True)
class RadialPromise:
    """ℓ on a region, with the lengths that matter.

    ``length_km``: where ℓ has grown by 1, or jumps to ∞. ``reach_km``: where the steepest private noise has
    1e-9 of its probability and loss left; ``end_km``: where it has 1e-16. ``jumps``: whether ℓ allows a
    loss between neighbours, so that the density may have steps.
    """

    stated: Guarantee | None
    length_km: float
    reach_km: float
    end_km: float
    jumps: bool

    @classmethod
    def of(
        cls, privacy: Guarantee | None, region: Region | None, loss: RadialLoss, limits: RingLimits
    ) -> RadialPromise:
        """The promise, or an error when no noise can keep it."""
        _check_loss(loss)
        if region is not None and region.lengths_km is not None:
            raise InvalidInput(
                "region must be connected; for separate places use optimal_mechanism"
            )
        diameter = math.inf if region is None else region.diameter_km
        if privacy is None:
            return cls._without(limits)
        check_increasing(privacy)
        local = privacy if math.isinf(diameter) else WithinRegion(privacy, diameter)
        length = _length_km(local)
        rough = cls(local, length, 0.0, 0.0, _neighbours(local, length) > _JUMP)
        reach, end = rough._measured(loss, limits)
        return cls(local, length, reach, end, rough.jumps)

    @classmethod
    def _without(cls, limits: RingLimits) -> RadialPromise:
        if math.isinf(limits.bound):
            raise InvalidInput(
                "bound_per_km2 must be given where nothing is promised: without it the best noise is none"
            )
        core = limits.core_km
        return cls(None, core, 1.25 * core, 1.25 * core, True)

    @property
    def first_width_km(self) -> float:
        """A ring width to begin with: where steps must fall on edges, a whole part of the length."""
        if not self.jumps:
            return self.reach_km / 256
        parts = _COARSE
        while parts > 1 and self.reach_km * parts > _FIRST_RINGS * self.length_km:
            parts //= 2
        return self.length_km / parts

    def levels(self, width_km: float, rings: int, *, whole: bool = False) -> FloatArray:
        """ℓ between rings k = 0, 1, … apart: for points kh apart, or for any points of the two rings."""
        k = np.arange(rings)
        distances = k * width_km * (1 - 1e-12)
        if whole:
            distances = np.maximum(k - 1, 0) * width_km * (1 + 1e-12) + 1e-12 * width_km
        if self.stated is None:
            return np.where(k > 0, math.inf, 0.0)
        levels = np.array(self.stated.loss(distances), dtype=np.float64)
        levels[0] = 0.0
        return levels

    def _measured(self, loss: RadialLoss, limits: RingLimits) -> tuple[float, float]:
        """Reach and end of the steepest noise, plus the disk that a bound makes flat."""
        width, steps = self.length_km / _COARSE, 128
        while True:
            radius = width * np.arange(steps)
            masses = np.exp(-chained(self.levels(width, steps))) * (radius + width)
            with np.errstate(over="ignore", invalid="ignore"):
                weighted = masses * loss.at(radius + limits.core_km + width)
            if not np.isfinite(weighted).all():
                _refuse_endless(True, loss)
            ends = _end(masses, _NOTHING), max(_end(masses, _TAIL), _end(weighted, _TAIL))
            if max(ends) < steps // 2:
                end, reach = (width * (steps_in + 1) + limits.core_km for steps_in in ends)
                return reach, max(end, reach)
            if steps >= _FARTHEST:
                _refuse_endless(_end(masses, _TAIL) < steps // 2, loss)
            steps *= 2


def _end(weights: FloatArray, share: float) -> int:
    """The first index beyond which no more than a share of the total is left."""
    left = np.cumsum(weights[::-1])[::-1]
    return int(np.flatnonzero(left > share * left[0])[-1]) + 1


def _refuse_endless(falls: bool, loss: RadialLoss) -> None:
    if falls:
        raise InvalidInput(
            f"loss ({loss!r}) must not grow faster than the promise lets the noise fall; its mean "
            "would be infinite"
        )
    raise InvalidInput(
        "privacy must allow more loss the farther two people are apart, without end; what it allows now "
        "keeps every noise on the plane from falling off"
    )


def _length_km(privacy: Guarantee) -> float:
    """The distance at which ℓ has grown by 1, or the last before it is infinite."""
    distances = np.unique(np.concatenate([np.geomspace(1e-6, 1e6, 2401), privacy._corners()]))
    losses = privacy.loss(distances)
    reached = np.flatnonzero((losses >= losses[0] + 1.0) | np.isinf(losses))
    if not reached.size:
        return 1.0
    first = int(reached[0])
    return float(distances[max(first - 1, 0) if np.isinf(losses[first]) else first])


def _neighbours(privacy: Guarantee, length_km: float) -> float:
    """ℓ just above 0; refused where small moves add up to no loss at all."""
    small = length_km * np.array([1e-9, 1e-6, 1e-3])
    losses = privacy.loss(small)
    steepness = losses / small * length_km
    if steepness.min() < 1e-2 * max(float(privacy.loss(length_km)), 1e-300) or losses[0] == 0:
        raise InvalidInput(
            "privacy must not vanish faster than the distance: with this ℓ many small moves add up to "
            "no loss at all, and no noise is flat enough"
        )
    return float(losses[0])


def _check_loss(loss: RadialLoss) -> None:
    if not isinstance(loss, RadialLoss):
        raise InvalidInput("loss must be a RadialLoss: noise on the plane knows distances only")
    radius = np.concatenate([[0.0], np.geomspace(1e-4, 1e3, 2001)])
    with np.errstate(over="ignore", invalid="ignore"):
        values = loss.at(radius)
        falls = np.diff(values) < -1e-12 * np.abs(values[1:])
    if values.shape != radius.shape or np.isnan(values).any() or (values < 0).any():
        raise InvalidInput(f"loss ({loss!r}) must be a number, not negative, at every distance")
    if falls.any():
        raise InvalidInput(f"loss ({loss!r}) must not decrease with the distance")
