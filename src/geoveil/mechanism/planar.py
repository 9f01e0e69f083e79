"""Noise on a grid: planar geometric, and planar Laplace integrated over cells."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import PrivacyLoss
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.truncated import Tables, TruncatedLattice, summed_tables
from geoveil.errors import InvalidInput
from geoveil.mechanism.mechanism import Mechanism, Promise, parameter_for_mean_distance
from geoveil.mechanism.noise import (
    TAIL,
    check_grid,
    laplace_tables,
    lattice_steps,
    most_mean_distance_km,
    noisy_cells,
    planar_laplace_polar,
)
from geoveil.randomness import Randomness
from geoveil.space.grid import Grid

_LEAST_DECAY = 0.002
MOST_DECAY = 700.0
"""Beyond, what leaves its cell has no probability that a float can hold."""


class PlanarGeometric(TruncatedLattice, Mechanism):
    """Lattice noise that fades with the true distance, clamped to the grid.

    Law: P(z|x) = λ·e^{−ε·d(x, z)} on the infinite lattice of the grid's pitch s,
    λ = 1/Σ e^{−εs√(i²+j²)}; a point outside goes to its nearest cell (both coordinates clamped).
    Guarantee: ε-geo-indistinguishability, tight but for narrow grids (one row or column, or two by two);
    clamping is post-processing.
    Cost: O(m log m) per product, O(1) per sample.
    Units: ε per km.
    Reference: NOISE §5 and FREEWILL §8 (truncated geometric); the tail left out of the sums is below 1e-15.

    >>> import geoveil as gv
    >>> mechanism = gv.PlanarGeometric(gv.Grid(rows=11, columns=15, cell_km=0.5), epsilon_per_km=2.0)
    >>> mechanism.guarantee
    GeoIndistinguishability(epsilon_per_km=2.0)
    >>> round(float(mechanism.row(0).sum()), 12)
    1.0
    """

    name = "planar-geometric"
    reference = "ElSalamouny & Palamidessi, free-will privacy, §8"
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
                lambda value: PlanarGeometric(space, epsilon_per_km=value),
                space,
                distance,
                least=_LEAST_DECAY / space.cell_km,
                most=MOST_DECAY / space.cell_km,
                farthest_km=lambda: most_mean_distance_km(space, _LEAST_DECAY),
            )
        )
        self.epsilon_per_km = epsilon
        self.guarantee = GeoIndistinguishability(epsilon)
        decay = epsilon * space.cell_km
        check_decay(decay)
        super().__init__(space, geometric_tables(space.rows, space.columns, decay))

    def parameters(self) -> dict[str, Any]:
        return {"epsilon_per_km": self.epsilon_per_km}

    def closed_form_loss(self) -> PrivacyLoss:
        """ε by the triangle inequality; met across an edge, and inside, beside a corner nowhere."""
        rows, columns = self.space.shape
        met = rows > 1 and columns > 1 and self.space.size > 4
        across = (1, columns + 1) if rows == 2 else (columns, columns + 1)
        pair = across if met else None
        how = "the closed form of the geometric law"
        return PrivacyLoss(self.epsilon_per_km, None, pair, met, how)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        steps = lattice_steps(self.epsilon_per_km * self.space.cell_km, cells.size, randomness)
        row = cells // self.space.columns + steps[0]
        column = cells % self.space.columns + steps[1]
        row = np.clip(row, 0, self.space.rows - 1)
        column = np.clip(column, 0, self.space.columns - 1)
        clamped: IntArray = row * self.space.columns + column
        return clamped


def check_decay(decay: float, *, least: float = _LEAST_DECAY) -> None:
    """ε·cell within what the sums over the infinite lattice can reach."""
    if not least * (1 - 1e-12) <= decay <= MOST_DECAY * (1 + 1e-12):
        raise InvalidInput(
            f"epsilon_per_km × cell_km ({decay:.3g}) must lie in {least:g} … {MOST_DECAY:g}; "
            "choose other cells or another ε"
        )


def geometric_tables(rows: int, columns: int, decay: float) -> Tables:
    """Tables of the law e^{−decay·√(a²+b²)}, normalised over the whole lattice."""
    reach = math.ceil((TAIL + math.log1p(1 / decay)) / decay) + 1
    squares = np.square(np.arange(columns + reach, dtype=np.float64))

    sums = np.zeros(rows + reach)

    def noise_row(a: int, width: int) -> FloatArray:
        line = np.exp(-decay * np.sqrt(a * a + squares[:width]))
        sums[a] = line.sum()
        return line

    tables = summed_tables(rows, columns, reach, noise_row)
    # One quadrant with its axes: Σ over the lattice = 4·quadrant − 4·half axis + 1.
    total = 4 * float(sums.sum()) - 4 * float(sums[0]) + 1.0
    return tables.map(lambda table: table / total)


# --- Planar Laplace noise integrated over the cells of a grid


_LEAST_DECAY_OF_PLANAR_LAPLACE = 0.01
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
                least=_LEAST_DECAY_OF_PLANAR_LAPLACE / space.cell_km,
                most=MOST_DECAY / space.cell_km,
                farthest_km=lambda: most_mean_distance_km(space, _LEAST_DECAY_OF_PLANAR_LAPLACE),
            )
        )
        self.epsilon_per_km = epsilon
        self.spread = spread
        self.guarantee = GeoIndistinguishability(epsilon)
        decay = epsilon * space.cell_km
        check_decay(decay, least=_LEAST_DECAY_OF_PLANAR_LAPLACE)
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
