"""Sums over the centres of a grid: over all of them by FFT, or over those near a place."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.kernel import fft_workers
from geoveil.position.centres import Lattice
from geoveil.position.cone import RoundedCone

_NOISE = 1e-15
"""What a product by FFT may be off by, in units of the norms of its factors."""
_MARGIN = 4.0
"""How much more the noise of sums is allowed to change g than to first order."""
_WIDEST = 1 << 24
"""No grid has so many cells in a row: a window that would reach farther, for a tiny β, holds all of them."""
_FADED = 40.0
"""From where on all that lies farther counts as if it lay here: e⁻⁴⁰ of its weight."""
_TOGETHER, _WINDOWS = 1 << 14, 1 << 21
"""So many values of the kernel, of as many places in a cell as have them, and products with so many weights
are made together: a tenth quicker than with four times as many."""


class InCells(NamedTuple):
    """Places on a grid, with those at the same place of their cells known as such."""

    inner: FloatArray
    """(m, 2): where in a cell, east and north of the centre next to it, in cells."""
    which: IntArray
    """(k,): which of these each place has."""
    column: IntArray
    row: IntArray
    """(k,): of that centre, those of the rim included."""


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
        lattice, products = self._lattice, []
        for term in terms:
            product = self._spectrum * scipy.fft.rfft2(term, workers=self._workers)
            whole = scipy.fft.irfft2(product, lattice.shape, workers=self._workers)
            products.append(whole[: lattice.rows, : lattice.columns])
        return np.stack(products)


class WindowSums:
    """The sums of :class:`WholeSums` over a window of centres around the one nearest to a place."""

    def __init__(
        self,
        lattice: Lattice,
        weights: FloatArray,
        cone: RoundedCone,
        side_km: float,
        reach_km: float,
    ) -> None:
        self.lattice, self.cone, self.side_km = lattice, cone, side_km
        self.cells = window_cells(reach_km, side_km)
        self.up, self.across = (
            min(self.cells, size - 1) for size in (lattice.rows, lattice.columns)
        )
        self.weights = lattice.spread(weights)
        padded = np.pad(self.weights, ((self.up, self.up), (self.across, self.across)))
        self.windows = np.lib.stride_tricks.sliding_window_view(
            padded, (2 * self.up + 1, 2 * self.across + 1)
        )

    def at(self, places: InCells, rho: float) -> tuple[FloatArray, FloatArray]:
        """(11, k), (k,): of :meth:`RoundedCone.expansion`, and of f beyond the window, at most.

        Those at one place of their cells share the values of the kernel.
        """
        inner, which, column, row = places
        cells = row * self.lattice.columns + column
        together = max(1, _TOGETHER // self.windows[0, 0].size)
        order = np.argsort(which, kind="stable")
        starts = np.searchsorted(which[order], np.arange(0, len(inner), together))
        sums = np.empty((11, which.size))
        for number, members in enumerate(np.split(order, starts[1:])):
            begin = number * together
            terms = self._terms(inner[begin : begin + together], rho)
            parts, at = terms.shape[1], which[members] - begin
            used, of_used = np.unique(cells[members], return_inverse=True)
            if 2 * members.size > parts * used.size:  # most cells have one at most places
                product = self._products(used, terms.reshape(11 * parts, -1))
                sums[:, members] = product.reshape(used.size, 11, -1)[of_used, :, at].T
                continue
            ends = np.searchsorted(at, np.arange(parts + 1))
            for place, (first, last) in enumerate(pairwise(ends)):
                some = members[first:last]
                sums[:, some] = self._products(cells[some], terms[:, place]).T
        return sums, self.beyond[row, column] * math.exp(self.cone.beta_per_km * rho)

    def _terms(self, inner: FloatArray, rho: float) -> FloatArray:
        """(11, m, window) for m places in a cell."""
        side = self.side_km
        east = inner[:, 0, None, None] - np.arange(-self.across, self.across + 1)
        north = inner[:, 1, None, None] - np.arange(-self.up, self.up + 1)[:, None]
        east, north = np.broadcast_arrays(east * side, north * side)
        return self.cone.expansion(east, north, rho).reshape(11, len(inner), -1)

    def _products(self, cells: IntArray, terms: FloatArray) -> FloatArray:
        """(cells, 11·m)."""
        result = np.empty((cells.size, len(terms)))
        step = max(1, _WINDOWS // terms.shape[1])
        for start in range(0, cells.size, step):
            rows, columns = np.divmod(cells[start : start + step], self.lattice.columns)
            windows = self.windows[rows, columns].reshape(rows.size, -1)
            result[start : start + step] = windows @ terms.T
        return result

    @cached_property
    def beyond(self) -> FloatArray:
        """(rows, columns): Σ c·f over the centres outside the window, at most, shell by shell."""
        rows, columns = self.weights.shape
        below = np.zeros((rows + 1, columns + 1))
        below[1:, 1:] = self.weights.cumsum(axis=0).cumsum(axis=1)
        side, total, cells = self.side_km, np.zeros(self.weights.shape), self.cells
        step = math.ceil(1.0 / max(self.cone.beta_per_km * side, 1.0 / _WIDEST))
        held = _boxes(below, cells)
        while cells < max(rows, columns) - 1:
            falls = float(self.cone.decay(np.asarray((cells + 0.5) * side)))
            wider = _boxes(below, cells + step) if falls < _FADED else below[-1, -1]
            total += (wider - held) * math.exp(-falls)
            if falls >= _FADED:
                break
            held, cells = wider, cells + step
        return np.maximum(total, 0.0)


def window_cells(reach_km: float, side_km: float) -> int:
    """How many cells of a window lie on every side."""
    return math.ceil(min(reach_km / side_km, _WIDEST) + 0.5)


def _boxes(below: FloatArray, cells: int) -> FloatArray:
    """(rows, columns): sums of weights within so many cells, from the sums below and left of each."""
    (south, north), (west, east) = (
        (np.maximum(at - cells, 0), np.minimum(at + cells + 1, at.size))
        for at in (np.arange(size - 1) for size in below.shape)
    )
    boxes: FloatArray = (
        below[np.ix_(north, east)]
        - below[np.ix_(south, east)]
        - below[np.ix_(north, west)]
        + below[np.ix_(south, west)]
    )
    return boxes
