"""Planar Laplace noise on real coordinates, right on the globe."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.errors import InvalidInput
from geoveil.mechanism.promise import Promise
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.projection import coordinates, plane_coordinates, wrapped

SAFE_RADIUS_KM = 6335.439
"""The smallest radius of curvature of WGS84: distances on this sphere never exceed those on the ground."""

_CHUNK = 1 << 15


class ContinuousLaplace:
    """Laplace noise around a real location, for points that are not cells.

    Law: density ∝ e^{−ε·r} per unit *area*, r the great-circle distance. In the plane this is
    ε²/(2π)·e^{−εr}, radius Gamma(2, 1/ε), angle uniform; on the sphere the radius keeps a Gamma draw
    with probability sin(r/R)/(r/R), which makes the density exactly homogeneous.
    Guarantee: ε-geo-indistinguishability in true distance. The sphere has the smallest radius of
    curvature of the Earth, so a distance on it is never more than one on the ground (and at most 1 %
    less: noise on the ground is up to 1 % wider than asked).
    Results are rounded to a fixed lattice of 1e-6 degrees (0.1 m), the same for everybody, so that the
    low bits of a float tell nothing; beyond that the law is that of double precision, an idealisation
    the finite mechanisms with :class:`~geoveil.ExactTable` do not need.
    Cost: O(1) per point. Units: ε per km, degrees in and out.
    Reference: Andrés et al., CCS 2013, §5; on the sphere: the same argument by the triangle inequality.

    >>> noise = ContinuousLaplace(epsilon_per_km=2.0)
    >>> lat, lng = noise.sample_latlng(lat=48.85, lng=2.35)
    >>> bool(abs(lat - 48.85) < 1)
    True
    """

    name = "continuous-laplace"
    reference = "Andrés, Bordenabe, Chatzikokolakis & Palamidessi, CCS 2013"

    def __init__(
        self,
        *,
        epsilon_per_km: float | None = None,
        level: float | None = None,
        radius_km: float | None = None,
        mean_distance_km: float | None = None,
    ) -> None:
        promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
        self.epsilon_per_km = promise.resolve(lambda distance: 2 / distance)
        if self.epsilon_per_km < 1e-3:
            raise InvalidInput(f"epsilon_per_km ({self.epsilon_per_km:.3g}) must be at least 0.001")
        self.guarantee = GeoIndistinguishability(self.epsilon_per_km)

    def sample_km(self, xy_km: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> FloatArray:
        """Noisy points of the plane, rounded to a lattice of 0.1 m that is the same for everybody."""
        points = plane_coordinates("xy_km", xy_km)
        radius, angle = self._polar(points.size // 2, randomness)
        steps = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
        return np.rint((points + steps.reshape(points.shape)) * 1e4) / 1e4

    def sample_latlng(
        self, *, lat: npt.ArrayLike, lng: npt.ArrayLike, randomness: Randomness = SYSTEM
    ) -> tuple[FloatArray, FloatArray]:
        """Noisy latitudes and longitudes for true ones, in degrees."""
        true_lat, true_lng = coordinates(lat=lat, lng=lng)
        noisy_lat, noisy_lng = np.empty(true_lat.size), np.empty(true_lat.size)
        flat_lat, flat_lng = true_lat.ravel(), true_lng.ravel()
        for start in range(0, true_lat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            radius, angle = self._spherical(flat_lat[part].size, randomness)
            noisy_lat[part], noisy_lng[part] = destination(
                flat_lat[part], flat_lng[part], radius / SAFE_RADIUS_KM, angle
            )
        return _on_lattice(noisy_lat, true_lat.shape), _on_lattice(noisy_lng, true_lat.shape)

    def _polar(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        """Radius and angle from 16 bytes a point: 64 + 32 bits for the radius, 32 for the angle."""
        words = randomness.words(2 * size)
        first = (words[:size] >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
        second = (words[size:] >> np.uint64(32)).astype(np.float64) * 2.0**-32 + 2.0**-33
        third = (words[size:] & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
        return -np.log(first * second) / self.epsilon_per_km, third * (2 * math.pi)

    def _spherical(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        radius, angle = self._polar(size, randomness)
        open_draws = np.arange(size)
        while open_draws.size:
            arc = radius[open_draws] / SAFE_RADIUS_KM
            kept = np.where(arc < math.pi, np.sinc(arc / math.pi), 0.0)
            open_draws = open_draws[~randomness.chance(kept, open_draws.size)]
            radius[open_draws], angle[open_draws] = self._polar(open_draws.size, randomness)
        return radius, angle

    def __repr__(self) -> str:
        return f"ContinuousLaplace(epsilon_per_km={self.epsilon_per_km:.6g})"


def _on_lattice(degrees: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Rounded to 1e-6 degrees; a scalar for a scalar."""
    return (np.rint(degrees * 1e6) / 1e6).reshape(shape)[()]


def destination(
    lat: FloatArray, lng: FloatArray, arc: FloatArray, bearing: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Where one arrives after an ``arc`` (radians) along a great circle, in degrees."""
    sin_lat, cos_lat = np.sin(np.radians(lat)), np.cos(np.radians(lat))
    sin_arc, cos_arc = np.sin(arc), np.cos(arc)
    along, across = np.cos(bearing) * sin_arc, np.sin(bearing) * sin_arc
    sine = sin_lat * cos_arc + cos_lat * along
    turn = np.arctan2(across, cos_lat * cos_arc - sin_lat * along)
    return np.degrees(np.arcsin(np.clip(sine, -1, 1))), wrapped(lng + np.degrees(turn))
