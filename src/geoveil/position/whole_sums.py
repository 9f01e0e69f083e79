"""Sums over all centres of a grid, at one place of every cell at once, by FFT."""

from __future__ import annotations

import numpy as np
import scipy

from geoveil.arrays import FloatArray
from geoveil.channel.kernel import fft_workers
from geoveil.position.centres import Lattice
from geoveil.position.cone import RoundedCone

_NOISE = 1e-15
"""What a product by FFT may be off by, in units of the norms of its factors."""
_MARGIN = 4.0
"""How much more the noise of sums is allowed to change g than to first order."""


class WholeSums:
    """Σ_y c(y)·(each term of the expansion of the kernel) at a place of every cell.

    Cost: eleven transforms of the kernel and eleven back, for each place in the cell.
    """

    def __init__(
        self, lattice: Lattice, weights: FloatArray, cone: RoundedCone, side_km: float
    ) -> None:
        self._lattice, self._cone, self._side_km = lattice, cone, side_km
        height, width = lattice.shape
        self._workers = fft_workers(height * width)
        self._spectrum = scipy.fft.rfft2(
            lattice.spread(weights), lattice.shape, workers=self._workers
        )
        self._norm = float(np.linalg.norm(weights))

    def at(self, east: float, north: float, rho: float) -> tuple[FloatArray, float]:
        """(11, rows, columns), and how much g may change, times Z, for what the sums are off by.

        So far east and north of the centres, in cells. With δᵢ the noise of the i-th sum over Z,
        g = n + A·h + ½B·hh + … changes by δ₁ + δ₂ + ρ(δ₃ + 2δ₄ + δ₅) + ½ρ²(δ₆ + 3δ₇ + 3δ₈ + δ₉) + δ₁₀ +
        2β·δ₀, to first order.
        """
        lattice, cone = self._lattice, self._cone
        right, up = lattice.offsets(east, north)
        terms = cone.expansion(right * self._side_km, up * self._side_km, rho)
        scale = np.array([2.0 * cone.beta_per_km, 1, 1, *(rho * np.array((1, 2, 1)))])
        scale = np.append(scale, (*(rho**2 / 2.0 * np.array((1, 3, 3, 1))), 1.0))
        noise = _NOISE * self._norm * np.sqrt(np.square(terms).sum(axis=(1, 2)))
        return self._products(terms), _MARGIN * float(scale @ noise)

    def at_centres(self) -> FloatArray:
        """(3, rows, columns): Σ c·f and its gradient at the centres themselves."""
        right, up = self._lattice.offsets(0.0, 0.0)
        return self._products(
            self._cone.expansion(right * self._side_km, up * self._side_km, 0.0)[:3]
        )

    def _products(self, terms: FloatArray) -> FloatArray:
        lattice, found = self._lattice, []
        for term in terms:
            product = self._spectrum * scipy.fft.rfft2(term, workers=self._workers)
            whole = scipy.fft.irfft2(product, lattice.shape, workers=self._workers)
            found.append(whole[: lattice.rows, : lattice.columns])
        return np.stack(found)
