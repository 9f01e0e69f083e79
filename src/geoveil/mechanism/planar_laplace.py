"""Planar Laplace noise integrated over the cells of a grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.loss import PrivacyLoss
from geoveil.channel.truncated import Tables, TruncatedLattice, summed_tables
from geoveil.mechanism.base import Mechanism
from geoveil.mechanism.noise import TAIL, planar_laplace_polar
from geoveil.mechanism.planar_geometric import MOST_DECAY, check_decay, check_grid
from geoveil.mechanism.promise import Promise, parameter_for_mean_distance
from geoveil.randomness import Randomness
from geoveil.space.grid import Grid

_NEAR = 3
"""Cells closer than this many steps get the finer quadrature."""
_FAR = 32
_LEAST_DECAY = 0.01
"""Below, the noise of one person would be summed over more than 10⁸ cells."""


class PlanarLaplace(TruncatedLattice, Mechanism):
    """Planar Laplace noise around the centre of the true cell, reported as the cell it falls in.

    Law: P(z|x) = ∫_z ε²/(2π)·e^{−ε|u−x|} du, points outside the grid to their nearest cell.
    Guarantee: ε-geo-indistinguishability between cell centres (tight in the limit of small cells).
    Cost: O(m log m) per product, O(1) per sample; the integrals are exact to 1e-10.
    Units: ε per km.
    Reference: Andrés et al. 2013; method as in PRIVIC §2.

    >>> import geoveil as gv
    >>> mechanism = gv.PlanarLaplace(gv.Grid(rows=3, columns=5, cell_km=0.5), epsilon_per_km=2.0)
    >>> round(float(mechanism.row(7).sum()), 9)
    1.0
    """

    name = "planar-laplace"
    reference = "Andrés, Bordenabe, Chatzikokolakis & Palamidessi, CCS 2013"
    guarantee: GeoIndistinguishability

    def __init__(
        self,
        space: Grid,
        *,
        epsilon_per_km: float | None = None,
        level: float | None = None,
        radius_km: float | None = None,
        mean_distance_km: float | None = None,
    ) -> None:
        check_grid(self.name, space)
        promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
        epsilon = promise.resolve(
            lambda distance: parameter_for_mean_distance(
                lambda value: PlanarLaplace(space, epsilon_per_km=value),
                space,
                distance,
                least=_LEAST_DECAY / space.cell_km,
                most=MOST_DECAY / space.cell_km,
            )
        )
        self.epsilon_per_km = epsilon
        self.guarantee = GeoIndistinguishability(epsilon)
        decay = epsilon * space.cell_km
        check_decay(decay, least=_LEAST_DECAY)
        super().__init__(space, laplace_tables(space.rows, space.columns, decay))

    def parameters(self) -> dict[str, Any]:
        return {"epsilon_per_km": self.epsilon_per_km}

    def closed_form_loss(self) -> PrivacyLoss:
        """ε: integrals over a cell keep the ratio of the densities. An upper bound."""
        how = "the bound of the Laplace density"
        return PrivacyLoss(self.epsilon_per_km, None, None, False, how)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        radius, angle = planar_laplace_polar(
            self.epsilon_per_km * self.space.cell_km, cells.size, randomness
        )
        row = np.rint(cells // self.space.columns + radius * np.sin(angle))
        column = np.rint(cells % self.space.columns + radius * np.cos(angle))
        row = np.clip(row, 0, self.space.rows - 1)
        column = np.clip(column, 0, self.space.columns - 1)
        return (row * self.space.columns + column).astype(np.int64)


def laplace_tables(rows: int, columns: int, decay: float) -> Tables:
    """Tables of planar Laplace noise of rate ``decay`` per cell, integrated over unit cells."""
    reach = math.ceil((TAIL + math.log1p(1 / decay)) / decay) + 1

    def noise_row(a: int, width: int) -> FloatArray:
        smooth = a >= _FAR and decay <= 0.1  # both the law and its distances hardly bend there
        far = _cell_integrals(a, np.arange(width), decay, 4 if smooth else 8 + math.ceil(decay))
        near = min(_NEAR, width) if a < _NEAR else 0
        if near:
            far[:near] = _cell_integrals(a, np.arange(near), decay, 40 + 2 * math.ceil(decay))
        if a == 0:
            far[0] = _own_cell(decay)
        return far

    return summed_tables(rows, columns, reach, noise_row)


def _cell_integrals(a: int, b: IntArray, decay: float, nodes: int) -> FloatArray:
    """∫ over the unit squares centred at (a, b) by Gauss–Legendre; smooth there, as 0 is not inside."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    rows = a + points / 2
    result = np.zeros(b.size)
    for point, weight in zip(points / 2, weights / 2, strict=True):
        radius = np.hypot(rows[:, None], (b + point)[None, :])
        result += weight * (weights / 2) @ np.exp(-decay * radius)
    return decay**2 / (2 * math.pi) * result


def _own_cell(decay: float) -> float:
    """∫ over the unit square around 0: in polar coordinates the radius integrates in closed form.

    Eight equal triangles: 8/(2π)·∫_0^{π/4} 1 − (1 + aρ)e^{−aρ} dφ with ρ = 1/(2·cos φ).
    """
    points, weights = np.polynomial.legendre.leggauss(64)
    angle = (points + 1) * math.pi / 8
    reach = decay / (2 * np.cos(angle))
    inner = -np.expm1(-reach) - reach * np.exp(-reach)
    return float(8 / (2 * math.pi) * (weights * math.pi / 8) @ inner)
