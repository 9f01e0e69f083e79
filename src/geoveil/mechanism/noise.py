"""Noise around points of the plane and of the globe, for any law of its radius.

On the sphere a radius drawn for the plane is kept with probability sin(r/R)/(r/R), the ratio of the
circumferences there and here: the density per unit *area* is then the same function of the
great-circle distance, up to a constant that does not depend on the place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import ArrayLike, ByParts, FloatArray, IntArray, frozen
from geoveil.channel.channel import PrivacyLoss, Tally, inverse_distribution
from geoveil.channel.guarantee import GeoIndistinguishability, Promising
from geoveil.channel.truncated import Tables, TruncatedLattice, summed_tables
from geoveil.channel.words import explain_with_cost
from geoveil.errors import InvalidInput
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space.grid import Grid
from geoveil.space.projection import coordinates, either_longitude, plane_coordinates, wrapped
from geoveil.space.space import checked_space

SAFE_RADIUS_KM = 6335.439
"""The smallest radius of curvature of WGS84: distances on this sphere never exceed those on the ground."""

_CHUNK = 1 << 15
TAIL = 42.0
"""Steps with ε·distance beyond this carry less than 1e-15 of the noise."""

_TABLE_DECAY = 0.3
_NEAR = 3
"""Cells closer than this many steps are integrated in polar coordinates: the density has a cusp at 0."""
_FAR = 32
_MOST_REACH = 4600
"""In cells; farther, the noise of one person would be summed over more than 10⁸ of them."""


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


# --- Noise in the plane: its law, points of it, and what it gives to the cells of a grid


class Noise(Promising, ABC):
    """Noise added to a location, the same in all directions: a density by distance, and a promise."""

    @abstractmethod
    def density_per_km2(self, radius_km: ArrayLike) -> FloatArray:
        """The density of the noise at each distance."""

    @abstractmethod
    def radius_km(self, probability: ArrayLike) -> FloatArray:
        """The radius that the noise stays within with each probability in [0, 1]."""

    @abstractmethod
    def _knots_km(self) -> FloatArray:
        """From 0 to the reach of the noise: the radii at which its density jumps, and some between."""

    @abstractmethod
    def _polar(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        """Draws of the noise: lengths in km, and angles."""

    def loss_across(self, cell_km: float) -> float:
        """ε times the side of a cell, of planar Laplace noise with the same median."""
        return float(scipy.special.gammaincinv(2.0, 0.5) * cell_km / self.radius_km(0.5))

    def loss_on_cells(self) -> PrivacyLoss | None:
        """A bound on the loss between cells that noisy points are counted in, whatever the map and wherever
        points are moved; ``None`` where the promise is no ε per km."""
        promise, how = self.guarantee, "the bound of the density of the noise"
        if not isinstance(promise, GeoIndistinguishability) or promise.between_positions:
            return None
        return PrivacyLoss(promise.epsilon_per_km, None, None, False, how)

    def sample_km(self, xy_km: ArrayLike, *, randomness: Randomness = SYSTEM) -> FloatArray:
        """Noisy points of the plane, rounded to a lattice of 0.1 m that is the same for everybody."""
        source = checked_randomness(randomness)
        points = plane_coordinates("xy_km", xy_km)
        radius, angle = self._polar(points.size // 2, source)
        steps = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
        return np.rint((points + steps.reshape(points.shape)) * 1e4) / 1e4

    def sample_latlng(
        self,
        *,
        lat: ArrayLike,
        lng: ArrayLike | None = None,
        lon: ArrayLike | None = None,
        randomness: Randomness = SYSTEM,
    ) -> tuple[FloatArray, FloatArray]:
        """Noisy latitudes and longitudes, in degrees, rounded to a lattice of 1e-6 degrees (0.1 m)."""
        source = checked_randomness(randomness)
        true_lat, true_lng = coordinates(lat=lat, lng=either_longitude(lng, lon))
        flat_lat, flat_lng = true_lat.ravel(), wrapped(true_lng.ravel())
        noisy = np.empty((2, true_lat.size))
        for start in range(0, true_lat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            radius, angle = self._polar_on_sphere(flat_lat[part].size, source)
            arc = radius / SAFE_RADIUS_KM
            noisy[:, part] = destination(flat_lat[part], flat_lng[part], arc, angle)
        rounded = np.rint(noisy * 1e6) / 1e6
        rounded[1] = wrapped(rounded[1])  # rounding can reach 180
        noisy_lat, noisy_lng = rounded.reshape(2, *true_lat.shape)
        return noisy_lat[()], noisy_lng[()]  # a scalar for a scalar

    def _polar_on_sphere(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        radius, angle = self._polar(size, randomness)
        open_draws = np.arange(size)
        while open_draws.size:
            arc = radius[open_draws] / SAFE_RADIUS_KM
            chance = np.where(arc < math.pi, np.sinc(arc / math.pi), 0.0)
            open_draws = open_draws[~randomness.chance(chance, open_draws.size)]
            radius[open_draws], angle[open_draws] = self._polar(open_draws.size, randomness)
        return radius, angle

    def explain(self, distance_km: float) -> str:
        """What a noisy point tells about two people this far apart, in plain words, and what it costs."""
        return explain_with_cost(self.guarantee, None, distance_km)

    def on(self, space: Grid, *, spread: bool = True) -> TruncatedLattice:
        """The channel from the cell that people stand in to the cell their noisy point falls in.

        They stand anywhere in it, all places alike, or in its centre where ``spread`` is false. Points
        outside the grid go to their nearest cell. Guarantee: that of the noise.
        """
        return NoisyCells(space, self, spread=spread)

    def tally(
        self,
        space: Grid,
        *,
        lat: ArrayLike,
        lng: ArrayLike | None = None,
        lon: ArrayLike | None = None,
    ) -> Tally:
        """Count noisy points in the cells of a grid, for an estimate of where people are.

        Those outside go to their nearest cell, as in the law: noise leads there from inside.

        >>> import geoveil as gv
        >>> grid = gv.Grid.from_box(south=48.83, west=2.29, north=48.88, east=2.39, cell_km=0.5)
        >>> noise = gv.ContinuousLaplace(epsilon_per_km=4.0)
        >>> noisy_lat, noisy_lng = noise.sample_latlng(lat=[48.85] * 100, lng=[2.35] * 100)
        >>> tally = noise.tally(grid, lat=noisy_lat, lng=noisy_lng)
        >>> gv.IterativeBayesianUpdate().fit(tally).total
        100
        """
        where = either_longitude(lng, lon)
        return self.on(space).tally(space.locate(lat=lat, lng=where, outside="clamp"))


class NoisyCells(ByParts, TruncatedLattice):
    """The channel of noise on a grid: from the cell somebody stands in to that of the noisy point.

    Law: P(z|x) = ∫_z ∫_x R(|u − v|) dv du over both cells, per km² of x (people anywhere in their cell),
    or with v in the centre of x. Both depend on the offset of the cells alone, so products are FFTs.
    Guarantee: that of the noise. Cost: O(m log m) per product; the integrals are exact to 1e-10.
    Reference: docs/estimation.md.
    """

    _parts = ("noise", "space", "spread")

    def __init__(self, space: Grid, noise: Noise, *, spread: bool = True) -> None:
        check_grid("noise", space)
        self.noise, self.spread, cell = noise, spread, space.cell_km
        self.guarantee = noise.guarantee

        def density(radius: FloatArray) -> FloatArray:
            return cell**2 * noise.density_per_km2(cell * radius)

        knots = noise._knots_km()
        if knots[-1] / cell > _MOST_REACH:
            raise InvalidInput(
                f"cell_km ({cell:g}) must be at least {knots[-1] / _MOST_REACH:.3g} for "
                "noise that reaches so far; choose larger cells"
            )
        super().__init__(space, noise_tables(space.shape, density, knots / cell, spread=spread))

    def closed_form_loss(self) -> PrivacyLoss | None:
        """That of the noise, an upper bound: integrals over a cell keep the ratio of the densities."""
        return self.noise.loss_on_cells()

    @property
    def loss_across_cell(self) -> float:  # type: ignore[override]
        return self.noise.loss_across(self.space.cell_km) if self.spread else 0.0

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        radius, angle = self.noise._polar(cells.size, randomness)
        return noisy_cells(self.space, cells, radius, angle, randomness if self.spread else None)

    def __repr__(self) -> str:
        return f"{self.noise!r}.on({self.space!r})"


def check_grid(name: str, space: Any) -> None:
    """Noise in the plane needs a grid."""
    if not isinstance(checked_space(space), Grid):
        raise InvalidInput(
            f"{name} (on {space!r}) must be on a whole grid; use elastic or exponential on other maps"
        )


def most_mean_distance_km(space: Grid, decay: float) -> float:
    """What clamped noise of this rate per cell, or of a larger one, does not exceed on average.

    From 25,600 steps of planar Laplace noise spread evenly and at most 256 cells, with 1 % to spare.
    """
    radius = np.repeat(scipy.special.gammaincinv(2.0, (np.arange(400) + 0.5) / 400) / decay, 64)
    angle = np.tile(np.arange(64) * (2 * math.pi / 64), 400)
    moved = []
    for cells, steps in zip(
        space.shape, (radius * np.sin(angle), radius * np.cos(angle)), strict=True
    ):
        some = min(cells, 16)
        places = ((np.arange(some) + 0.5) * cells / some - 0.5)[:, None]
        moved.append(np.clip(places + steps, 0, cells - 1) - places)
    down, over = moved
    mean = np.mean([np.hypot(line, over).mean() for line in down])
    return float(1.01 * space.cell_km * mean)


def noisy_cells(
    space: Grid,
    cells: IntArray,
    radius_km: FloatArray,
    angle: FloatArray,
    spread: Randomness | None,
) -> IntArray:
    """Where noise leads from the centres of cells, or from places drawn in them by ``spread``."""
    row, column = (part.astype(np.float64) for part in np.divmod(cells, space.columns))
    if spread is not None:
        row += spread.uniform(cells.size) - 0.5
        column += spread.uniform(cells.size) - 0.5
    row = np.rint(row + radius_km * np.sin(angle) / space.cell_km)
    column = np.rint(column + radius_km * np.cos(angle) / space.cell_km)
    return clamped(space, row, column)


def clamped(space: Grid, row: FloatArray | IntArray, column: FloatArray | IntArray) -> IntArray:
    """The cells at whole rows and columns; those outside go to their nearest cell."""
    inside = np.clip(row, 0, space.rows - 1) * space.columns + np.clip(column, 0, space.columns - 1)
    return np.asarray(inside, dtype=np.int64)


# -- integrals over cells, lengths in cells ---------------------------------------------------------


def laplace_tables(shape: tuple[int, int], decay: float, *, spread: bool) -> Tables:
    """Tables of planar Laplace noise of rate ``decay`` per cell."""
    # beyond all cells that are integrated in polar coordinates, which end at the last knot
    reach = max((TAIL + math.log1p(1 / decay)) / decay, 2 * _NEAR)
    knots = np.append(np.arange(0.0, 2 * _NEAR, 2 / decay), reach)

    def density(radius: FloatArray) -> FloatArray:
        return decay**2 / (2 * math.pi) * np.exp(-decay * radius)

    return noise_tables(shape, density, knots, spread=spread, decay=decay)


def noise_tables(
    shape: tuple[int, int],
    density: Callable[[FloatArray], FloatArray],
    knots: FloatArray,
    *,
    spread: bool,
    decay: float = math.inf,
) -> Tables:
    """Tables of noise with a density by distance, integrated over unit cells.

    ``spread``: of people anywhere in their cell, all places alike; else in its centre. Both are
    ∫ R(|v|)·Λ(v₁ − a)·Λ(v₂ − b) dv, Λ a hat two cells wide or a box of one. ``knots`` go from 0 to the
    reach, R smooth between them; ``decay`` is its rate where it is smooth everywhere but at 0.
    """
    integrals = _CellIntegrals(density, knots, spread, decay)
    return summed_tables(*shape, math.ceil(knots[-1]) + 1, integrals.row)


@lru_cache(64)
def _gauss(nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of Gauss–Legendre on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return frozen((points + 1) / 2), frozen(weights / 2)


@dataclass(frozen=True)
class _CellIntegrals:
    """∫ R(|v|)·Λ(v₁ − a)·Λ(v₂ − b) dv for the cells at offsets (a, b)."""

    density: Callable[[FloatArray], FloatArray]
    knots: FloatArray
    spread: bool
    decay: float

    def row(self, a: int, width: int) -> FloatArray:
        """The cells b = 0 … width − 1 of row a."""
        near = width
        # small values as well as large ones: a promise is about ratios
        if math.isfinite(self.decay):
            near = min(_NEAR, width) if a < _NEAR else 0
        line = np.zeros(width)
        if near < width:  # where the density is smooth: products of one rule along each axis
            points, weights = self._cell_rule(smooth=a >= _FAR and self.decay <= 0.1)
            down, over = (a + points)[:, None], np.arange(near, width)
            for point, weight in zip(points, weights, strict=True):
                line[near:] += weight * weights @ self.density(np.hypot(down, over + point))
        within = np.arange(near)
        nearest = np.hypot(max(a - 1, 0), np.maximum(within - 1, 0))
        within = within[nearest < self.knots[-1]]
        if within.size:
            line[within] = self._in_polar_coordinates(a, within)
        return line

    def _cell_rule(self, *, smooth: bool) -> tuple[FloatArray, FloatArray]:
        """∫ f(v)·Λ(v) dv along one axis; ``smooth`` where both the law and its distances hardly bend."""
        if not self.spread:
            points, weights = _gauss(4 if smooth else 8 + math.ceil(self.decay))
            return points - 0.5, weights
        if smooth:  # the Gauss rule of the hat itself, right for polynomials up to the fifth degree
            return np.array([-math.sqrt(0.4), 0.0, math.sqrt(0.4)]), np.array([5, 14, 5]) / 24
        points, weights = _gauss(8 + math.ceil(self.decay))
        return np.r_[-points, points], np.tile(weights * (1 - points), 2)

    def _in_polar_coordinates(self, a: int, b: IntArray) -> FloatArray:
        """The cells at offsets (a, b), quarter by quarter: ∫ R(r)·r·∫ Λ·Λ dφ dr.

        Circles change how they cross a quarter at the distances of its corners; there the arc may begin
        like a root, which r = t²(3 − 2t) makes smooth at both ends of an interval.
        """
        side = 1.0 if self.spread else 0.5
        result = np.zeros(b.size)
        for top in (0, 1):
            for right in (0, 1):
                # the lower quarter of the cell at 0 is the mirror image of its upper one
                x0 = np.maximum(b - side * (1 - right), 0.0)
                y0 = np.full(b.size, max(a - side * (1 - top), 0.0))
                result += self._quarters(np.stack((x0, y0, x0 + side, y0 + side)), b, a)
        return result

    def _quarters(self, quarters: FloatArray, x: IntArray, y: int) -> FloatArray:
        """Integrals over rectangles (x0, y0, x1, y1) beyond both axes, of hats around (x, y) or of boxes."""
        owner, low, high = self._intervals(quarters)
        t, t_weights = _gauss(12)
        length = (high - low)[:, None]
        radius = low[:, None] + length * (t * t * (3 - 2 * t))  # (intervals, 12)
        ring = t_weights * length * 6 * t * (1 - t) * radius * self.density(radius)
        x0, y0, x1, y1 = np.minimum(quarters[:, owner, None] / radius, 1)
        first = np.maximum(np.arccos(x1), np.arcsin(y0))
        arc = np.maximum(np.minimum(np.arccos(x0), np.arcsin(y1)) - first, 0.0)
        if self.spread:
            turn, turn_weights = _gauss(8)
            angle = first[..., None] + arc[..., None] * turn
            across = 1 - np.abs(radius[..., None] * np.cos(angle) - x[owner, None, None])
            along = 1 - np.abs(radius[..., None] * np.sin(angle) - y)
            arc = arc * (across * along @ turn_weights)
        summed = np.bincount(owner, (ring * arc).sum(axis=1), minlength=quarters.shape[1])
        return summed.astype(np.float64, copy=False)

    def _intervals(self, quarters: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """For every rectangle the radii between which its circles and the density change smoothly."""
        x0, y0, x1, y1 = quarters
        knots, numbers = self.knots, np.arange(x0.size)
        corners = np.hypot([x0, x1, x0, x1], [y0, y0, y1, y1])
        begin, end = np.searchsorted(knots, corners[0]), np.searchsorted(knots, corners[3])
        many = np.maximum(end - begin, 0)
        inner = np.repeat(begin - np.cumsum(many) + many, many) + np.arange(many.sum())
        owner = np.concatenate((np.tile(numbers, 4), np.repeat(numbers, many)))
        radius = np.minimum(np.concatenate((corners.ravel(), knots[inner])), knots[-1])
        order = np.lexsort((radius, owner))
        owner, radius = owner[order], radius[order]
        proper = (owner[1:] == owner[:-1]) & (radius[1:] > radius[:-1])
        return owner[1:][proper], radius[:-1][proper], radius[1:][proper]


# -- points of noise ----------------------------------------------------------------------------------


def lattice_steps(decay: float, size: int, randomness: Randomness) -> tuple[IntArray, IntArray]:
    """Steps (rows, columns) with P ∝ e^{−decay·√(i²+j²)} on the whole lattice.

    From a table where that is small; else a point u of density ∝ e^{−a|u|}, rounded to z, is accepted with
    probability e^{a(|u| − |z| − 1/√2)}. That of z is then ∝ ∫ e^{−a|u|}·e^{a|u| − a|z|} du over its unit
    square: ∝ e^{−a|z|}, exactly.
    """
    if decay >= _TABLE_DECAY:
        reach = math.ceil(TAIL / decay) + 1
        line = np.arange(-reach, reach + 1)
        law = np.exp(-decay * np.hypot(line[:, None], line[None, :])).ravel()
        places = inverse_distribution(law, randomness.uniform(size))
        return places // line.size - reach, places % line.size - reach
    steps = np.empty((2, size), dtype=np.int64)
    missing = np.arange(size)
    while missing.size:
        radius, angle = planar_laplace_polar(decay, missing.size, randomness)
        rounded = np.rint(np.stack((radius * np.sin(angle), radius * np.cos(angle))))
        excess = radius - np.hypot(rounded[0], rounded[1]) - math.sqrt(0.5)
        accepted = randomness.uniform(missing.size) < np.exp(decay * excess)
        steps[:, missing[accepted]] = rounded[:, accepted].astype(np.int64)
        missing = missing[~accepted]
    return steps[0], steps[1]


def planar_laplace_polar(
    epsilon: float, size: int, randomness: Randomness
) -> tuple[FloatArray, FloatArray]:
    """Radius ~ Gamma(2, 1/ε) and a uniform angle: polar coordinates of planar Laplace noise."""
    radius = -np.log(randomness.uniform(size) * randomness.uniform(size)) / epsilon
    angle = randomness.uniform(size) * (2 * math.pi)
    return radius, angle
