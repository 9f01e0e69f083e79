"""Noise around points of the plane and of the globe, for any law of its radius.

On the sphere a radius drawn for the plane is kept with probability sin(r/R)/(r/R), the ratio of the
circumferences there and here: the density per unit *area* is then the same function of the
great-circle distance, up to a constant that does not depend on the place.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Tally, inverse_distribution
from geoveil.channel.guarantee import Guarantee
from geoveil.channel.truncated import Tables, TruncatedLattice, summed_tables
from geoveil.channel.words import explain
from geoveil.errors import InvalidInput
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space.grid import Grid
from geoveil.space.projection import coordinates, either_longitude, plane_coordinates, wrapped

SAFE_RADIUS_KM = 6335.439
"""The smallest radius of curvature of WGS84: distances on this sphere never exceed those on the ground."""

Polar = Callable[[int, Randomness], tuple[FloatArray, FloatArray]]
"""polar(size, randomness): so many radii in km and angles in radians of noise in the plane."""

_CHUNK = 1 << 15


def noisy_km(polar: Polar, xy_km: npt.ArrayLike, randomness: Randomness) -> FloatArray:
    """Noisy points of the plane, rounded to a lattice of 0.1 m that is the same for everybody."""
    points = plane_coordinates("xy_km", xy_km)
    radius, angle = polar(points.size // 2, randomness)
    steps = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
    return np.rint((points + steps.reshape(points.shape)) * 1e4) / 1e4


def noisy_latlng(
    polar: Polar, lat: npt.ArrayLike, lng: npt.ArrayLike, randomness: Randomness
) -> tuple[FloatArray, FloatArray]:
    """Noisy latitudes and longitudes, rounded to a lattice of 1e-6 degrees (0.1 m)."""
    true_lat, true_lng = coordinates(lat=lat, lng=lng)
    noisy_lat, noisy_lng = np.empty(true_lat.size), np.empty(true_lat.size)
    flat_lat, flat_lng = true_lat.ravel(), wrapped(true_lng.ravel())
    for start in range(0, true_lat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        radius, angle = _spherical(polar, flat_lat[part].size, randomness)
        noisy_lat[part], noisy_lng[part] = destination(
            flat_lat[part], flat_lng[part], radius / SAFE_RADIUS_KM, angle
        )
    lattice_lng = wrapped(_on_lattice(noisy_lng, true_lat.shape))  # rounding can reach 180
    return _on_lattice(noisy_lat, true_lat.shape), lattice_lng


def _spherical(polar: Polar, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
    radius, angle = polar(size, randomness)
    open_draws = np.arange(size)
    while open_draws.size:
        arc = radius[open_draws] / SAFE_RADIUS_KM
        kept = np.where(arc < math.pi, np.sinc(arc / math.pi), 0.0)
        open_draws = open_draws[~randomness.chance(kept, open_draws.size)]
        radius[open_draws], angle[open_draws] = polar(open_draws.size, randomness)
    return radius, angle


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


# --- Noise in the plane: its law, points of it, and what it gives to the cells of a grid


TAIL = 42.0
"""Steps with ε·distance beyond this carry less than 1e-15 of the noise."""

_TABLE_DECAY = 0.3
_NEAR = 3
"""Cells closer than this many steps are integrated in polar coordinates: the density has a cusp at 0."""
_FAR = 32
_MOST_REACH = 4600
"""In cells; farther, the noise of one person would be summed over more than 10⁸ of them."""

Rule = tuple[FloatArray, FloatArray]
"""Nodes and weights of a quadrature."""


class Noise(ABC):
    """Noise added to a location, the same in all directions: a density by distance, and a promise."""

    guarantee: Guarantee | None
    """What it promises on the plane."""

    @abstractmethod
    def density_per_km2(self, radius_km: npt.ArrayLike) -> FloatArray:
        """The density of the noise at each distance."""

    @abstractmethod
    def radius_km(self, probability: npt.ArrayLike) -> FloatArray:
        """The radius that the noise stays within with each probability in [0, 1]."""

    @abstractmethod
    def _knots_km(self) -> FloatArray:
        """From 0 to the reach of the noise: the radii at which its density jumps, and some between."""

    @abstractmethod
    def _polar(self, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
        """So many lengths in km and angles of the noise."""

    def sample_km(self, xy_km: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> FloatArray:
        """Noisy points of the plane, rounded to a lattice of 0.1 m that is the same for everybody."""
        return noisy_km(self._polar, xy_km, checked_randomness(randomness))

    def sample_latlng(
        self,
        *,
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
        randomness: Randomness = SYSTEM,
    ) -> tuple[FloatArray, FloatArray]:
        """Noisy latitudes and longitudes for true ones, in degrees."""
        source = checked_randomness(randomness)
        return noisy_latlng(self._polar, lat, either_longitude(lng, lon), source)

    def explain(self, distance_km: float) -> str:
        """What a noisy point tells about two people this far apart, in plain words."""
        return explain(self.guarantee, None, distance_km)

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
        lat: npt.ArrayLike,
        lng: npt.ArrayLike | None = None,
        lon: npt.ArrayLike | None = None,
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


class NoisyCells(TruncatedLattice):
    """The channel of noise on a grid: from the cell somebody stands in to that of the noisy point.

    Law: P(z|x) = ∫_z ∫_x R(|u − v|) dv du over both cells, per km² of x (people anywhere in their cell),
    or with v in the centre of x. Both depend on the offset of the cells alone, so products are FFTs.
    Guarantee: that of the noise. Cost: O(m log m) per product; the integrals are exact to 1e-10.
    Reference: docs/estimation.md.
    """

    def __init__(self, space: Grid, noise: Noise, *, spread: bool = True) -> None:
        check_grid("noise", space)
        self.noise, self.spread, cell = noise, spread, space.cell_km
        self.guarantee = noise.guarantee

        def density(radius: FloatArray) -> FloatArray:
            return cell**2 * noise.density_per_km2(cell * radius)

        knots = noise._knots_km() / cell
        if knots[-1] > _MOST_REACH:
            raise InvalidInput(
                f"cell_km ({cell:g}) must be at least {noise._knots_km()[-1] / _MOST_REACH:.3g} for "
                "noise that reaches so far; choose larger cells"
            )
        super().__init__(space, noise_tables(space.shape, density, knots, spread=spread))

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        radius, angle = self.noise._polar(cells.size, randomness)
        return noisy_cells(self.space, cells, radius, angle, randomness if self.spread else None)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, NoisyCells)
            and (self.noise, self.space, self.spread) == (other.noise, other.space, other.spread)
        )

    def __hash__(self) -> int:
        return hash((NoisyCells, self.noise, self.space, self.spread))

    def __repr__(self) -> str:
        return f"{self.noise!r}.on({self.space!r})"


def check_grid(name: str, space: object) -> None:
    """Noise in the plane needs a grid."""
    if not isinstance(space, Grid):
        raise InvalidInput(
            f"{name} (on {space!r}) must be on a Grid; use Exponential or Elastic elsewhere"
        )


def most_mean_distance_km(space: Grid, decay: float) -> float:
    """What clamped noise of this rate per cell, or of a larger one, does not exceed on average.

    From 25,600 steps of planar Laplace noise spread evenly and at most 256 cells, with 1 % to spare.
    """
    radius = np.repeat(gammaincinv(2.0, (np.arange(400) + 0.5) / 400) / decay, 64)
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
    row, column = np.clip(row, 0, space.rows - 1), np.clip(column, 0, space.columns - 1)
    return (row * space.columns + column).astype(np.int64)


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
    farthest = float(knots[-1])

    def noise_row(a: int, width: int) -> FloatArray:
        near = width
        if math.isfinite(decay):  # small values as well as large ones: a promise is about ratios
            near = min(_NEAR, width) if a < _NEAR else 0
        line = np.zeros(width)
        if near < width:
            rule = _cell_rule(decay, spread, smooth=a >= _FAR and decay <= 0.1)
            line[near:] = _by_products(a, np.arange(near, width), density, rule)
        within = np.arange(near)
        within = within[np.hypot(max(a - 1, 0), np.maximum(within - 1, 0)) < farthest]
        if within.size:
            line[within] = _in_polar_coordinates(a, within, density, knots, spread)
        return line

    return summed_tables(*shape, math.ceil(farthest) + 1, noise_row)


def _cell_rule(decay: float, spread: bool, *, smooth: bool) -> Rule:
    """∫ f(v)·Λ(v) dv along one axis; ``smooth`` where both the law and its distances hardly bend."""
    if not spread:
        points, weights = _gauss(4 if smooth else 8 + math.ceil(decay))
        return points - 0.5, weights
    if smooth:  # the Gauss rule of the hat itself, right for polynomials up to the fifth degree
        return np.array([-math.sqrt(0.4), 0.0, math.sqrt(0.4)]), np.array([5, 14, 5]) / 24
    points, weights = _gauss(8 + math.ceil(decay))
    heights = weights * (1 - points)
    return np.concatenate((-points, points)), np.concatenate((heights, heights))


def _gauss(nodes: int) -> Rule:
    """Gauss–Legendre on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return (points + 1) / 2, weights / 2


def _by_products(
    a: int, b: IntArray, density: Callable[[FloatArray], FloatArray], rule: Rule
) -> FloatArray:
    """The cells at offsets (a, b) where the density is smooth."""
    result = np.zeros(b.size)
    for point, weight in zip(*rule, strict=True):
        radius = np.hypot((a + rule[0])[:, None], (b + point)[None, :])
        result += weight * rule[1] @ density(radius)
    return result


def _in_polar_coordinates(
    a: int,
    b: IntArray,
    density: Callable[[FloatArray], FloatArray],
    knots: FloatArray,
    spread: bool,
) -> FloatArray:
    """The cells at offsets (a, b), quarter by quarter: ∫ R(r)·r·∫ Λ·Λ dφ dr.

    Circles change how they cross a quarter at the distances of its corners; there the arc may begin
    like a root, which r = t²(3 − 2t) makes smooth at both ends of an interval.
    """
    side = 1.0 if spread else 0.5
    result = np.zeros(b.size)
    for top in (0, 1):
        for right in (0, 1):
            # the lower quarter of the cell at 0 is the mirror image of its upper one
            x0 = np.maximum(b - side * (1 - right), 0.0)
            y0 = np.full(b.size, max(a - side * (1 - top), 0.0))
            quarters = np.stack((x0, y0, x0 + side, y0 + side))
            result += _quarters(quarters, b, a, density, knots, spread)
    return result


def _quarters(
    quarters: FloatArray,
    x: IntArray,
    y: int,
    density: Callable[[FloatArray], FloatArray],
    knots: FloatArray,
    spread: bool,
) -> FloatArray:
    """Integrals over rectangles (x0, y0, x1, y1) beyond both axes, of hats around (x, y) or of boxes."""
    owner, low, high = _intervals(quarters, knots)
    t, t_weights = _gauss(12)
    length = (high - low)[:, None]
    radius = low[:, None] + length * (t * t * (3 - 2 * t))
    ring = t_weights * length * 6 * t * (1 - t) * radius * density(radius)
    x0, y0, x1, y1 = quarters[:, owner, None]
    first = np.maximum(np.arccos(np.minimum(x1 / radius, 1)), np.arcsin(np.minimum(y0 / radius, 1)))
    last = np.minimum(np.arccos(np.minimum(x0 / radius, 1)), np.arcsin(np.minimum(y1 / radius, 1)))
    arc = np.maximum(last - first, 0.0)
    if spread:
        turn, turn_weights = _gauss(8)
        angle = first[..., None] + arc[..., None] * turn
        across = 1 - np.abs(radius[..., None] * np.cos(angle) - x[owner, None, None])
        along = 1 - np.abs(radius[..., None] * np.sin(angle) - y)
        arc = arc * (across * along @ turn_weights)
    summed = np.bincount(owner, (ring * arc).sum(axis=1), minlength=quarters.shape[1])
    return summed.astype(np.float64, copy=False)


def _intervals(quarters: FloatArray, knots: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """For every rectangle the radii between which its circles and the density change smoothly."""
    x0, y0, x1, y1 = quarters
    numbers = np.arange(x0.size)
    corners = np.hypot([x0, x1, x0, x1], [y0, y0, y1, y1])
    begin, end = np.searchsorted(knots, corners[0]), np.searchsorted(knots, corners[3])
    many = np.maximum(end - begin, 0)
    inner = np.repeat(begin - np.cumsum(many) + many, many) + np.arange(many.sum())
    owner = np.concatenate((np.tile(numbers, 4), np.repeat(numbers, many)))
    radius = np.minimum(np.concatenate((corners.ravel(), knots[inner])), knots[-1])
    order = np.lexsort((radius, owner))
    owner, radius = owner[order], radius[order]
    kept = (owner[1:] == owner[:-1]) & (radius[1:] > radius[:-1])
    return owner[1:][kept], radius[:-1][kept], radius[1:][kept]


# -- points of noise ----------------------------------------------------------------------------------


def lattice_steps(decay: float, size: int, randomness: Randomness) -> tuple[IntArray, IntArray]:
    """Steps (rows, columns) with P ∝ e^{−decay·√(i²+j²)} on the whole lattice."""
    if decay >= _TABLE_DECAY:
        return _steps_by_table(decay, size, randomness)
    return _steps_by_rejection(decay, size, randomness)


def _steps_by_table(decay: float, size: int, randomness: Randomness) -> tuple[IntArray, IntArray]:
    reach = math.ceil(TAIL / decay) + 1
    line = np.arange(-reach, reach + 1)
    law = np.exp(-decay * np.hypot(line[:, None], line[None, :])).ravel()
    found = inverse_distribution(law, randomness.uniform(size))
    return found // line.size - reach, found % line.size - reach


def _steps_by_rejection(
    decay: float, size: int, randomness: Randomness
) -> tuple[IntArray, IntArray]:
    """A point u of density ∝ e^{−a|u|}, rounded to z, kept with probability e^{a(|u| − |z| − 1/√2)}.

    The probability of z is then ∝ ∫ e^{−a|u|}·e^{a|u| − a|z|} du over its unit square: ∝ e^{−a|z|}, exactly.
    """
    steps = np.empty((2, size), dtype=np.int64)
    missing = np.arange(size)
    while missing.size:
        radius, angle = planar_laplace_polar(decay, missing.size, randomness)
        rounded = np.rint(np.stack((radius * np.sin(angle), radius * np.cos(angle))))
        excess = radius - np.hypot(rounded[0], rounded[1]) - math.sqrt(0.5)
        kept = randomness.uniform(missing.size) < np.exp(decay * excess)
        steps[:, missing[kept]] = rounded[:, kept].astype(np.int64)
        missing = missing[~kept]
    return steps[0], steps[1]


def planar_laplace_polar(
    epsilon: float, size: int, randomness: Randomness
) -> tuple[FloatArray, FloatArray]:
    """Radius ~ Gamma(2, 1/ε) and a uniform angle: polar coordinates of planar Laplace noise."""
    radius = -np.log(randomness.uniform(size) * randomness.uniform(size)) / epsilon
    angle = randomness.uniform(size) * (2 * math.pi)
    return radius, angle
