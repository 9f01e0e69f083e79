"""Noise on the plane whose points are moved to places where somebody may be.

Moving a noisy point is post-processing: it costs no privacy. To the nearest place needs no knowledge;
to the place that is best on average for its posterior needs a prior, which the point then reflects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, count, distribution, frozen, indices
from geoveil.channel.guarantee import Guarantee
from geoveil.channel.words import explain
from geoveil.errors import InvalidInput
from geoveil.measure.distance import Loss, loss_values
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.grid import Grid
from geoveil.space.loss import distance_km
from geoveil.space.points import Points
from geoveil.space.projection import plane_coordinates

_BLOCK = 1 << 21  # entries of the largest array at work


class Noise(Protocol):
    """What continuous noise offers: a density by distance, samples, and a promise."""

    @property
    def guarantee(self) -> Guarantee | None:
        """What it promises on the plane."""

    def density_per_km2(self, radius_km: npt.ArrayLike) -> FloatArray:
        """The density of the noise at each distance."""

    def sample_km(self, xy_km: npt.ArrayLike, *, randomness: Randomness) -> FloatArray:
        """Noisy points of the plane."""


class RemappedNoise(ABC):
    """Continuous noise, its points replaced by cells of a map or by places of interest.

    Guarantee: that of the noise. ``remap_km`` and ``remap_latlng`` move points; ``sample`` is the whole
    mechanism, from the centre of a true cell to a reported cell.
    Reference: NOISE §7.3.
    """

    def __init__(self, noise: Noise, space: Grid | Points) -> None:
        if not isinstance(space, Grid | Points):
            raise InvalidInput("space must be a grid or places of interest: noise needs a plane")
        self.noise = noise
        self.space = space
        self.guarantee = noise.guarantee

    def explain(self, distance_km: float) -> str:
        """What a report of ``sample`` tells about two people this far apart, in plain words."""
        return explain(self.guarantee, self.space, distance_km)

    @abstractmethod
    def _remap(self, points: FloatArray) -> IntArray:
        """The cells of points (n, 2)."""

    def remap_km(self, xy_km: npt.ArrayLike) -> IntArray:
        """The cells that points (…, 2) in the plane of the space are moved to."""
        points = plane_coordinates("xy_km", xy_km)
        return self._remap(points.reshape(-1, 2)).reshape(points.shape[:-1])

    def remap_latlng(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
    ) -> IntArray:
        """The cells that points in degrees are moved to."""
        return self.remap_km(self.space.plane.to_plane(lat=lat, lng=lng, lon=lon))

    def sample(self, cells: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """One reported cell for each true one."""
        true = indices("cells", cells, self.space.size)
        return self.remap_km(self.noise.sample_km(self.space.centres[true], randomness=randomness))

    def expected_loss(
        self,
        prior: npt.ArrayLike,
        loss: Loss = distance_km,
        *,
        draws: int = 20_000,
        randomness: Randomness = SYSTEM,
    ) -> tuple[float, float]:
        """The mean loss of people who follow a prior, from samples, and its standard error.

        True cells are spread over the prior evenly, so that only the noise is left to chance.
        """
        size = count("draws", draws, least=2)
        weights = distribution("prior", prior, self.space.size)
        even = (np.arange(size) + randomness.uniform(1)) / size
        true = np.minimum(np.searchsorted(np.cumsum(weights), even, side="right"), weights.size - 1)
        reported = self.sample(true, randomness=randomness)
        losses = loss_values(loss, self.space, true, reported)
        return float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(size))


class NearestPlace(RemappedNoise):
    """Every noisy point to the nearest cell or place.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=1, columns=3, cell_km=1.0)
    >>> NearestPlace(gv.ContinuousLaplace(epsilon_per_km=1.0), grid).remap_km([9.0, 0.1]).item()
    2
    """

    def _remap(self, points: FloatArray) -> IntArray:
        return np.atleast_1d(
            np.asarray(self.space.locate_km(points, outside="clamp"), dtype=np.int64)
        )


class BayesianPlace(RemappedNoise):
    """Every noisy point to the place that is best on average for its posterior.

    Law: argmin over places y of Σ_x π(x)·R(d(x, z))·L(x, y) for a noisy point z, the first in case of a
    tie; a point that the prior and the noise rule out goes where it is best without any point.
    Cost: points × cells with positive prior × cells, in blocks.
    Reference: NOISE §7.3, second technique.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=1, columns=3, cell_km=1.0)
    >>> home = BayesianPlace(gv.ContinuousLaplace(epsilon_per_km=0.1), grid, [0.9, 0.05, 0.05])
    >>> home.remap_km([1.0, 0.0]).item()
    0
    """

    def __init__(
        self, noise: Noise, space: Grid | Points, prior: npt.ArrayLike, *, loss: Loss = distance_km
    ) -> None:
        super().__init__(noise, space)
        weights = distribution("prior", prior, space.size)
        self._support = np.flatnonzero(weights)
        self._weights: FloatArray = frozen(weights[self._support])
        places = np.arange(space.size)
        self._losses: FloatArray = frozen(loss_values(loss, space, self._support[:, None], places))

    def _remap(self, points: FloatArray) -> IntArray:
        step = max(1, _BLOCK // max(self._losses.shape))
        parts = [self._best(points[i : i + step]) for i in range(0, len(points), step)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _best(self, points: FloatArray) -> IntArray:
        centres = self.space.centres[self._support]
        offsets = points[:, None, :] - centres
        posterior = self._weights * self.noise.density_per_km2(
            np.hypot(*np.moveaxis(offsets, -1, 0))
        )
        ruled_out = ~(posterior.sum(axis=1) > 0)
        posterior[ruled_out] = self._weights
        posterior /= posterior.sum(axis=1, keepdims=True)
        return np.argmin(posterior @ self._losses, axis=1)
