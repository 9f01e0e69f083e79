"""The rounded cone: how the weight of a report falls with its distance from a position."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from geoveil.arrays import FloatArray

ROUNDING_CELLS = 0.87
"""Radius of the rounded tip in cells; docs/decisions/0011-positions.md compares others."""
FLOOR = 2.0**-21
"""What is left far away: flat is private, and integers of 32 bits can hold it."""
_PIECES = 64
"""Pieces of the tip on which its fourth derivative is bounded."""


class Slopes(NamedTuple):
    """The kernel k = e^{−φ} at offsets v, as arrays of one shape; r = |v|."""

    value: FloatArray
    """k."""
    rate: FloatArray
    """φ′/r, so that ∇φ = rate·v, also at r = 0."""
    bend: FloatArray
    """(φ″ − φ′/r)/r², so that ∇²φ = rate·1 + bend·vvᵀ."""


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
        t *= t
        inside = self.radius_km / 24.0 * t * (15.0 - t * t)
        return self.beta_per_km * (inside + np.maximum(distance_km - self.radius_km, 0.0))

    def reach_km(self, decay: float) -> float:
        """Where ψ is so much, at least the radius of the tip."""
        tip = float(self.decay(np.array(self.radius_km)))
        return self.radius_km + max(decay - tip, 0.0) / self.beta_per_km

    def values(self, distance_km: FloatArray) -> FloatArray:
        """k(r)."""
        return np.exp(-self.decay(distance_km)) + self.floor

    def rates(self, distance_km: FloatArray) -> FloatArray:
        """φ′/r alone."""
        near = np.exp(-self.decay(distance_km))
        return self.cone_rates(distance_km) * (near / (near + self.floor))

    def cone_rates(self, distance_km: FloatArray) -> FloatArray:
        """ψ′/r: β(5 − t⁴)/4a inside, β/r outside."""
        t = np.minimum(distance_km / self.radius_km, 1.0)
        t *= t
        return self.beta_per_km / 4.0 * (5.0 - t * t) / np.maximum(distance_km, self.radius_km)

    def slopes(self, east: FloatArray, north: FloatArray) -> Slopes:
        """k and the first two derivatives of φ = −log k.

        With s = e^{−ψ}/k: φ′ = s·ψ′ and φ″ = s·ψ″ − s(1 − s)·ψ′².
        """
        r = np.sqrt(east * east + north * north)
        near = np.exp(-self.decay(r))
        value = near + self.floor
        share, rate = near / value, self.cone_rates(r)
        turn = self._turns(r)
        return Slopes(value, share * rate, share * (turn - (1.0 - share) * rate * rate))

    def _turns(self, distance_km: FloatArray) -> FloatArray:
        """(ψ″ − ψ′/r)/r²: −βr²/a⁵ inside and −β/r³ outside, so that nothing is divided by a small r."""
        t = np.minimum(distance_km / self.radius_km, 1.0)
        far = np.maximum(distance_km, self.radius_km)
        return -self.beta_per_km * t * t / (far * far * far)

    def bend_changes(self, distance_km: FloatArray, within_km: float | FloatArray) -> FloatArray:
        """‖∇³φ‖, at most, within ``within_km`` of places this far from the centre.

        ‖∇²ψ‖ = ψ′/r ≤ 5β/4a falls with r, and so does the bound 5β/a² (inside), 2β/(√3·r²) (outside) on
        ‖∇³ψ‖. φ = u(ψ) with |u″|, |u‴| ≤ s(1 − s) ≤ min(1/4, τ·e^ψ), which grows with r.
        """
        beta, a = self.beta_per_km, self.radius_km
        low = np.maximum(distance_km - within_km, 0.0)
        third = np.where(
            low < a, 5.0 * beta / a**2, 2.0 / math.sqrt(3.0) * beta / np.maximum(low, a) ** 2
        )
        bent = self.fades(distance_km + within_km)
        return third + bent * beta * (3.0 * self.cone_rates(low) + beta**2)

    def fades(self, distance_km: FloatArray) -> FloatArray:
        """s(1 − s), at most, so far from the centre and nearer; s = e^{−ψ}/k."""
        falls = np.minimum(self.decay(distance_km), 50.0)
        return np.minimum(0.25, self.floor * np.exp(falls))

    # -- the part that falls, f = e^{−ψ} -------------------------------------------------------

    def expansion(self, east: FloatArray, north: FloatArray, within_km: float) -> FloatArray:
        """(11, …): f = e^{−ψ}, its derivatives ∂e, ∂n, ∂ee, ∂en, ∂nn, ∂eee, ∂een, ∂enn, ∂nnn, and how far
        ∇f may be, within ``within_km`` (at most a), from its expansion to second order.

        With p = ψ′/r, d = p′/r and e = d′/r: ∇f = −pf·v, and each further derivative brings in
        D₂ = (p² − d)f, D₃ = (3pd − e − p³)f. ∇³f jumps at r = a, by 5βf/a² at most.
        """
        beta, a = self.beta_per_km, self.radius_km
        r = np.sqrt(east * east + north * north)
        f, p, d = np.exp(-self.decay(r)), self.cone_rates(r), self._turns(r)
        e = np.where(r < a, -2.0 * beta / a**5, -3.0 * d / np.maximum(r * r, a**2))
        first, second = -p * f, (p * p - d) * f
        third = (p * (3.0 * d - p * p) - e) * f
        ee, en, nn = east * east, east * north, north * north
        crossing = np.maximum(within_km - np.abs(r - a), 0.0) ** 2 / 2.0
        rest = within_km**3 / 6.0 * self.fourth_at_most(np.maximum(r - within_km, 0.0))
        rest += crossing * (5.0 * beta / a**2 * math.exp(-beta * a * 14.0 / 24.0))
        return np.stack(
            (
                f,
                first * east,
                first * north,
                first + second * ee,
                second * en,
                first + second * nn,
                (3.0 * second + third * ee) * east,
                (second + third * ee) * north,
                (second + third * nn) * east,
                (3.0 * second + third * nn) * north,
                rest,
            )
        )

    def fourth_at_most(self, distance_km: FloatArray) -> FloatArray:
        """‖∇⁴f‖, at most, so far from the centre and farther (but at r = a, where ∇³f jumps).

        In a direction with cosine c to v it is 3D₂ + 6D₃r²x + D₄r⁴x², x = c²; outside, with
        D₄ = (3d² + 4pe − e′/r − 6p²d + p⁴)f, at most max(β⁴, 3β³/2r + 3β²/r² + 3β/r³)·f, which falls with r.
        """
        table, beta, a = self._fourth, self.beta_per_km, self.radius_km
        r = np.maximum(distance_km, a)
        outside = np.maximum(beta**4, beta * (1.5 * beta**2 + (3.0 * beta + 3.0 / r) / r) / r)
        outside *= np.exp(-self.decay(r))
        piece = np.minimum(distance_km / a * _PIECES, _PIECES - 1.0).astype(np.int64)
        return np.where(distance_km < a, table[piece], outside)

    @cached_property
    def _fourth(self) -> FloatArray:
        """For each piece of the tip, ‖∇⁴f‖ there and farther out, at most; last, outside.

        In units of a, with b = βa, p = b(5 − t⁴)/4 and x = c²: 3D₂ = 3(p² + bt²)f, 6D₃r² = 6t²(2b − 3pbt² −
        p³)f, D₄r⁴ = t⁴(3b²t⁴ − 8pb + 6p²bt² + p⁴)f. Each term rises or falls with t, so that its ends on a
        piece bound it; the quadratic in x is bounded by its Bernstein coefficients of degree four.
        """
        beta, a = self.beta_per_km, self.radius_km
        b, ends = beta * a, np.arange(_PIECES + 1) / _PIECES
        low, high = ends[:-1], ends[1:]
        most, least = (b * (5.0 - t**4) / 4.0 for t in (low, high))  # of p
        constant = 3.0 * (least**2 + b * low**2), 3.0 * (most**2 + b * high**2)
        inner = (
            2.0 * b - 3.0 * b * most * high**2 - most**3,
            2.0 * b - 3.0 * b * least * low**2 - least**3,
        )
        linear = _times(6.0 * low**2, 6.0 * high**2, *inner)
        inner = (
            3.0 * b**2 * low**4 - 8.0 * b * most + 6.0 * b * least**2 * low**2 + least**4,
            3.0 * b**2 * high**4 - 8.0 * b * least + 6.0 * b * most**2 * high**2 + most**4,
        )
        square = _times(low**4, high**4, *inner)
        bound = np.zeros(_PIECES)
        for of_linear, of_square in ((0.0, 0.0), (0.25, 0.0), (0.5, 1 / 6), (0.75, 0.5), (1, 1)):
            for sign, side in ((-1.0, 0), (1.0, 1)):
                reached = constant[side] + of_linear * linear[side] + of_square * square[side]
                bound = np.maximum(bound, sign * reached)
        bound *= np.exp(-self.decay(low * a)) / a**4
        outside = max(beta**4, 1.5 * beta**3 / a + 3.0 * beta**2 / a**2 + 3.0 * beta / a**3)
        bound = np.append(bound, outside * math.exp(-b * 14.0 / 24.0))
        return np.maximum.accumulate(bound[::-1])[::-1]


def _times(
    low: FloatArray, high: FloatArray, least: FloatArray, most: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The ends of a product of a number ≥ 0 between two others and one between two more."""
    return np.minimum(low * least, high * least), np.maximum(low * most, high * most)
