"""Planar Laplace noise integrated over the cells of a grid."""

from __future__ import annotations

from typing import Any

from geoveil.arrays import IntArray
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.loss import PrivacyLoss
from geoveil.channel.truncated import TruncatedLattice
from geoveil.errors import InvalidInput
from geoveil.mechanism.base import Mechanism
from geoveil.mechanism.noise import (
    check_grid,
    laplace_tables,
    most_mean_distance_km,
    noisy_cells,
    planar_laplace_polar,
)
from geoveil.mechanism.planar_geometric import MOST_DECAY, check_decay
from geoveil.mechanism.promise import Promise, parameter_for_mean_distance
from geoveil.randomness import Randomness
from geoveil.space.grid import Grid

_LEAST_DECAY = 0.01
"""Below, the noise of one person would be summed over more than 10⁸ cells."""


class PlanarLaplace(TruncatedLattice, Mechanism):
    """Planar Laplace noise around the centre of the true cell, reported as the cell it falls in.

    Law: P(z|x) = ∫_z ε²/(2π)·e^{−ε|u−x|} du, points outside the grid to their nearest cell; with
    ``spread`` the mean of this over all places of the cell x, for people who stand anywhere in theirs
    and add noise to their own place: the law of :class:`ContinuousLaplace` as a grid sees it.
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
        spread: bool = False,
    ) -> None:
        if not isinstance(spread, bool):
            raise InvalidInput(f"spread ({spread!r}) must be true or false")
        check_grid(self.name, space)
        promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
        epsilon = promise.resolve(
            lambda distance: parameter_for_mean_distance(
                lambda value: PlanarLaplace(space, epsilon_per_km=value, spread=spread),
                space,
                distance,
                least=_LEAST_DECAY / space.cell_km,
                most=MOST_DECAY / space.cell_km,
                farthest_km=lambda: most_mean_distance_km(space, _LEAST_DECAY),
            )
        )
        self.epsilon_per_km = epsilon
        self.spread = spread
        self.guarantee = GeoIndistinguishability(epsilon)
        decay = epsilon * space.cell_km
        check_decay(decay, least=_LEAST_DECAY)
        super().__init__(space, laplace_tables(space.shape, decay, spread=spread))

    def parameters(self) -> dict[str, Any]:
        promised = {"epsilon_per_km": self.epsilon_per_km}
        return {**promised, "spread": True} if self.spread else promised

    def closed_form_loss(self) -> PrivacyLoss:
        """ε: integrals over a cell keep the ratio of the densities. An upper bound."""
        how = "the bound of the Laplace density"
        return PrivacyLoss(self.epsilon_per_km, None, None, False, how)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        radius, angle = planar_laplace_polar(self.epsilon_per_km, cells.size, randomness)
        return noisy_cells(self.space, cells, radius, angle, randomness if self.spread else None)
