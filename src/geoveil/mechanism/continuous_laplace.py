"""Planar Laplace noise on real coordinates, right on the globe."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from geoveil.arrays import FloatArray
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.errors import InvalidInput
from geoveil.mechanism.mechanism import Promise
from geoveil.mechanism.noise import TAIL, Noise
from geoveil.mechanism.planar import PlanarLaplace
from geoveil.randomness import Randomness
from geoveil.space.grid import Grid


class ContinuousLaplace(Noise):
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

    def density_per_km2(self, radius_km: npt.ArrayLike) -> FloatArray:
        """The density ε²/(2π)·e^{−εr} in the plane, at each distance."""
        radius = np.asarray(radius_km, dtype=np.float64)
        return self.epsilon_per_km**2 / (2 * math.pi) * np.exp(-self.epsilon_per_km * radius)

    def radius_km(self, probability: npt.ArrayLike) -> FloatArray:
        """The radius that the noise of the plane stays within with each probability in [0, 1]."""
        wanted = np.asarray(probability, dtype=np.float64)
        if not ((wanted >= 0) & (wanted <= 1)).all():
            raise InvalidInput("probability must lie in [0, 1]")
        return np.asarray(gammaincinv(2.0, wanted) / self.epsilon_per_km, dtype=np.float64)

    def on(self, space: Grid, *, spread: bool = True) -> PlanarLaplace:
        """The channel of this noise on a grid; people stand anywhere in their cells, or in the centres."""
        return PlanarLaplace(space, epsilon_per_km=self.epsilon_per_km, spread=spread)

    def _knots_km(self) -> FloatArray:
        return np.array([0.0, TAIL / self.epsilon_per_km])

    def _polar(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        """Radius and angle from 16 bytes a point: 52 + 32 bits for the radius, 32 for the angle."""
        words = randomness.words(2 * size)
        first = (words[:size] >> np.uint64(12)).astype(np.float64) * 2.0**-52 + 2.0**-53
        second = (words[size:] >> np.uint64(32)).astype(np.float64) * 2.0**-32 + 2.0**-33
        third = (words[size:] & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
        return -np.log(first * second) / self.epsilon_per_km, third * (2 * math.pi)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContinuousLaplace) and self.epsilon_per_km == other.epsilon_per_km

    def __hash__(self) -> int:
        return hash((self.name, self.epsilon_per_km))

    def __repr__(self) -> str:
        return f"ContinuousLaplace(epsilon_per_km={self.epsilon_per_km:.6g})"
