"""The rounded cone: how the weight of a report falls with its distance from a position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from geoveil.arrays import FloatArray

ROUNDING_CELLS = 0.87
"""Radius of the rounded tip in cells; docs/decisions/0011-positions.md compares others."""
FLOOR = 2.0**-21
"""What is left far away: flat is private, and integers of 32 bits can hold it."""


class Slopes(NamedTuple):
    """The kernel k = e^{−φ} at offsets v, as arrays of one shape; r = |v|."""

    value: FloatArray
    """k."""
    rate: FloatArray
    """φ′/r, so that ∇φ = rate·v, also at r = 0."""
    bend: FloatArray
    """(φ″ − φ′/r)/r², so that ∇²φ = rate·1 + bend·vvᵀ."""


class Majorants(NamedTuple):
    """Bounds on the derivatives of φ within ρ of offsets v."""

    second: FloatArray
    """‖∇²φ‖ at most."""
    third: FloatArray
    """‖∇³φ‖ at most."""


@dataclass(frozen=True)
class RoundedCone:
    """k(r) = e^{−ψ(r)} + τ, where ψ is a cone of slope β with a rounded tip of radius a.

    ψ′(r) = β·t(5 − t⁴)/4 for t = r/a ≤ 1 and β beyond, so that ψ has two continuous derivatives, slope at
    most β and no cusp at a centre. φ = −log k then has slope at most β too, and is flat far away.
    """

    beta_per_km: float
    radius_km: float
    floor: float = FLOOR

    def decay(self, distance_km: FloatArray) -> FloatArray:
        """ψ(r)."""
        t = np.minimum(distance_km / self.radius_km, 1.0)
        inside = self.radius_km * t * t * (15.0 - t**4) / 24.0
        return self.beta_per_km * (inside + np.maximum(distance_km - self.radius_km, 0.0))

    def values(self, distance_km: FloatArray) -> FloatArray:
        """k(r)."""
        return np.exp(-self.decay(distance_km)) + self.floor

    def rates(self, distance_km: FloatArray) -> FloatArray:
        """φ′/r alone."""
        near = np.exp(-self.decay(distance_km))
        return self._rates(distance_km) * (near / (near + self.floor))

    def _rates(self, distance_km: FloatArray) -> FloatArray:
        """ψ′/r: β(5 − t⁴)/4a inside, β/r outside."""
        t = np.minimum(distance_km / self.radius_km, 1.0)
        return self.beta_per_km * (5.0 - t**4) / 4.0 / np.maximum(distance_km, self.radius_km)

    def slopes(self, east: FloatArray, north: FloatArray) -> Slopes:
        """k and the first two derivatives of φ = −log k.

        With s = e^{−ψ}/k: φ′ = s·ψ′ and φ″ = s·ψ″ − s(1 − s)·ψ′².
        """
        r = np.hypot(east, north)
        near = np.exp(-self.decay(r))
        value = near + self.floor
        share, rate = near / value, self._rates(r)
        # (ψ″ − ψ′/r)/r² is −βr²/a⁵ inside and −β/r³ outside: no division by a small r.
        t = np.minimum(r / self.radius_km, 1.0)
        turn = -self.beta_per_km * t**2 / np.maximum(r, self.radius_km) ** 3
        return Slopes(value, share * rate, share * (turn - (1.0 - share) * rate**2))

    def majorants(self, distance_km: FloatArray, within_km: float) -> Majorants:
        """Bounds on ‖∇²φ‖ and ‖∇³φ‖ within ``within_km`` of places this far from the centre.

        ‖∇²ψ‖ = ψ′/r ≤ 5β/4a falls with r, and so does the bound 5β/a² (inside), 2β/(√3·r²) (outside) on
        ‖∇³ψ‖. φ = u(ψ) with |u″|, |u‴| ≤ s(1 − s) ≤ min(1/4, τ·e^ψ), which grows with r.
        """
        beta, a = self.beta_per_km, self.radius_km
        low = np.maximum(distance_km - within_km, 0.0)
        second = self._rates(low)
        third = np.where(
            low < a, 5.0 * beta / a**2, 2.0 / math.sqrt(3.0) * beta / np.maximum(low, a) ** 2
        )
        high = np.minimum(self.decay(distance_km + within_km), 50.0)
        bent = np.minimum(0.25, self.floor * np.exp(high))
        return Majorants(
            second + bent * beta**2, third + 3.0 * bent * second * beta + bent * beta**3
        )
