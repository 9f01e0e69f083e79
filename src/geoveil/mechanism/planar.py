"""Noise that fades with the distance: on the cells of a grid and of a line, and around real coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import ArrayLike, ByParts, FloatArray, IntArray, lengths, probabilities
from geoveil.channel.channel import PrivacyLoss
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.truncated import Tables, TruncatedLattice, summed_tables
from geoveil.errors import InvalidInput
from geoveil.mechanism import noise
from geoveil.mechanism.mechanism import Mechanism, Promise
from geoveil.randomness import Randomness
from geoveil.space.grid import Grid, Line
from geoveil.space.space import checked_space

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
    _stated = ("epsilon_per_km",)
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
        noise.check_grid(self.name, space)
        promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
        self.epsilon_per_km = epsilon = _epsilon_within_reach(
            promise, lambda value: PlanarGeometric(space, epsilon_per_km=value), space, _LEAST_DECAY
        )
        self.guarantee = GeoIndistinguishability(epsilon)
        super().__init__(
            space, geometric_tables(space.rows, space.columns, epsilon * space.cell_km)
        )

    def closed_form_loss(self) -> PrivacyLoss:
        """ε by the triangle inequality: tight across an edge and inside, nowhere beside a corner."""
        rows, columns = self.space.shape
        tight = rows > 1 and columns > 1 and self.space.size > 4
        across = (1, columns + 1) if rows == 2 else (columns, columns + 1)
        pair = across if tight else None
        how = "the closed form of the geometric law"
        return PrivacyLoss(self.epsilon_per_km, None, pair, tight, how)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        steps = noise.lattice_steps(
            self.epsilon_per_km * self.space.cell_km, cells.size, randomness
        )
        row, column = np.divmod(cells, self.space.columns)
        return noise.clamped(self.space, row + steps[0], column + steps[1])


def _epsilon_within_reach(
    promise: Promise, build: Callable[[float], Mechanism], space: Grid, least: float
) -> float:
    """ε per km, ε·cell from ``least`` on: within what the sums over the infinite lattice can reach."""
    epsilon = promise.solve(
        build,
        space,
        least=least / space.cell_km,
        most=MOST_DECAY / space.cell_km,
        farthest_km=lambda: noise.most_mean_distance_km(space, least),
    )
    decay = epsilon * space.cell_km
    if not least * (1 - 1e-12) <= decay <= MOST_DECAY * (1 + 1e-12):
        raise InvalidInput(
            f"epsilon_per_km × cell_km ({decay:.3g}) must lie in {least:g} … {MOST_DECAY:g}; "
            "choose other cells or another ε"
        )
    return epsilon


def geometric_tables(rows: int, columns: int, decay: float) -> Tables:
    """Tables of the law e^{−decay·√(a²+b²)}, normalised over the whole lattice."""
    reach = math.ceil((noise.TAIL + math.log1p(1 / decay)) / decay) + 1
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
        noise.check_grid(self.name, space)
        promise = Promise(epsilon_per_km, level, radius_km, mean_distance_km)
        self.epsilon_per_km = epsilon = _epsilon_within_reach(
            promise,
            lambda value: PlanarLaplace(space, epsilon_per_km=value, spread=spread),
            space,
            _LEAST_DECAY_OF_PLANAR_LAPLACE,
        )
        self.spread = spread
        self.guarantee = GeoIndistinguishability(epsilon)
        decay = epsilon * space.cell_km
        super().__init__(space, noise.laplace_tables(space.shape, decay, spread=spread))

    def parameters(self) -> dict[str, Any]:
        promised = {"epsilon_per_km": self.epsilon_per_km}
        return {**promised, "spread": True} if self.spread else promised

    def closed_form_loss(self) -> PrivacyLoss:
        """ε: integrals over a cell keep the ratio of the densities. An upper bound."""
        how = "the bound of the Laplace density"
        return PrivacyLoss(self.epsilon_per_km, None, None, False, how)

    @property
    def loss_across_cell(self) -> float:  # type: ignore[override]
        return self.epsilon_per_km * self.space.cell_km if self.spread else 0.0

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        radius, angle = noise.planar_laplace_polar(self.epsilon_per_km, cells.size, randomness)
        return noise.noisy_cells(
            self.space, cells, radius, angle, randomness if self.spread else None
        )


class ContinuousLaplace(ByParts, noise.Noise):
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
    _parts = ("epsilon_per_km",)

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

    def density_per_km2(self, radius_km: ArrayLike) -> FloatArray:
        """The density ε²/(2π)·e^{−εr} in the plane, at each distance."""
        radius = lengths("radius_km", radius_km)
        return self.epsilon_per_km**2 / (2 * math.pi) * np.exp(-self.epsilon_per_km * radius)

    def radius_km(self, probability: ArrayLike) -> FloatArray:
        """The radius that the noise of the plane stays within with each probability in [0, 1]."""
        chances = probabilities("probability", probability)
        return np.asarray(
            scipy.special.gammaincinv(2.0, chances) / self.epsilon_per_km, dtype=np.float64
        )

    def on(self, space: Grid, *, spread: bool = True) -> PlanarLaplace:
        """The channel of this noise on a grid; people stand anywhere in their cells, or in the centres."""
        return PlanarLaplace(space, epsilon_per_km=self.epsilon_per_km, spread=spread)

    def _knots_km(self) -> FloatArray:
        return np.array([0.0, noise.TAIL / self.epsilon_per_km])

    def _polar(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        """Radius and angle from 16 bytes a point: 52 + 32 bits for the radius, 32 for the angle."""
        words = randomness.words(2 * size)
        first = (words[:size] >> np.uint64(12)).astype(np.float64) * 2.0**-52 + 2.0**-53
        second = (words[size:] >> np.uint64(32)).astype(np.float64) * 2.0**-32 + 2.0**-33
        third = (words[size:] & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
        return -np.log(first * second) / self.epsilon_per_km, third * (2 * math.pi)

    def __repr__(self) -> str:
        return f"ContinuousLaplace(epsilon_per_km={self.epsilon_per_km:.6g})"


# --- Two-sided geometric noise on a line of whole numbers


_LEAST_PER_UNIT = 1e-9  # below, steps outgrow whole numbers of 64 bits


class LinearGeometric(Mechanism):
    """Two-sided geometric noise on 0 … n−1, clamped at both ends.

    Law: P(z|x) = c_z·e^{−ε|z−x|}, c_z = 1/(1+e^{−ε}) at the two ends, (1−e^{−ε})/(1+e^{−ε}) inside.
    Guarantee: ε per unit of the line, tight.
    Cost: O(n) per product by recursions, O(1) per sample.
    Reference: Ghosh, Roughgarden & Sundararajan 2009; FREEWILL §8.1.

    >>> import geoveil as gv
    >>> mechanism = gv.LinearGeometric(gv.Line(100), epsilon_per_unit=0.5)
    >>> round(float(mechanism.row(3).sum()), 12)
    1.0
    """

    name = "linear-geometric"
    reference = "Ghosh, Roughgarden & Sundararajan, STOC 2009"
    _stated = ("epsilon_per_unit",)
    space: Line
    guarantee: GeoIndistinguishability

    def __init__(
        self,
        space: Line,
        *,
        epsilon_per_unit: float | None = None,
        level: float | None = None,
        radius: float | None = None,
        mean_distance: float | None = None,
    ) -> None:
        if not isinstance(checked_space(space), Line):
            raise InvalidInput(f"linear-geometric (on {space!r}) must be on a Line")
        names = ("epsilon_per_unit", "radius", "mean_distance")
        promise = Promise(epsilon_per_unit, level, radius, mean_distance, names)
        self.epsilon_per_unit = promise.solve(
            lambda value: LinearGeometric(space, epsilon_per_unit=value),
            space,
            least=_LEAST_PER_UNIT,
        )
        if self.epsilon_per_unit < _LEAST_PER_UNIT:
            raise InvalidInput(
                f"epsilon_per_unit ({self.epsilon_per_unit:.3g}) must be at least 1e-9"
            )
        self.space = space
        self.report_count = space.size
        self.guarantee = GeoIndistinguishability(self.epsilon_per_unit)
        self._ratio = math.exp(-self.epsilon_per_unit)
        # c_z: what each report's column is scaled by
        inside = -math.expm1(-self.epsilon_per_unit) / (1 + self._ratio)
        self._ends = np.full(space.size, inside)
        self._ends[[0, -1]] = 1 / (1 + self._ratio) if space.size > 1 else 1.0

    def closed_form_loss(self) -> PrivacyLoss:
        """ε: met at every report by the cells on one side of it."""
        pair = (0, 1) if self.space.size > 1 else None
        epsilon = self.epsilon_per_unit if pair else 0.0
        how = "the closed form of the geometric law"
        return PrivacyLoss(epsilon, epsilon * (self.space.size - 1), pair, True, how)

    def _spread(self, values: FloatArray) -> FloatArray:
        """Σ_x e^{−ε|z−x|}·v_x: one recursion from each side, their common term once."""
        # y_z = v_z + a·y_{z−1} is a triangular system with two diagonals, one of them of ones
        band = np.stack((np.ones(self.space.size), np.full(self.space.size, -self._ratio)))
        sides = np.stack((values, values[..., ::-1])).reshape(-1, self.space.size).T
        solved = scipy.linalg.lapack.dtbtrs(band, sides, uplo="L", diag="U")[0]
        up, down = solved.T.reshape(2, *values.shape)
        return np.asarray(up + down[..., ::-1] - values)

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._ends * self._spread(theta)

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._spread(self._ends * values)

    def _row(self, row: int) -> FloatArray:
        distance = np.abs(np.arange(self.space.size) - row)
        return self._ends * np.exp(-self.epsilon_per_unit * distance)

    def _column(self, column: int) -> FloatArray:
        distance = np.abs(np.arange(self.space.size) - column)
        return self._ends[column] * np.exp(-self.epsilon_per_unit * distance)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        # P(n) = (1−a)·aⁿ for n ≥ 0, a = e^{−ε}; the difference of two is the two-sided law
        draws = (np.log(randomness.uniform(cells.size)) / -self.epsilon_per_unit for _ in range(2))
        up, down = (np.floor(draw).astype(np.int64) for draw in draws)
        return np.clip(cells + up - down, 0, self.space.size - 1)
