"""A simulated city: districts with names, a river nobody lives in, a village apart; and its story drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import geoveil as gv
from geoveil.arrays import BoolArray, FloatArray, IntArray, count
from geoveil.errors import number_of, require, two_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from geoveil.demo.story import Story

RIVER_HALF_WIDTH_KM = 0.28
_COUNTRYSIDE = 0.02


@dataclass(frozen=True)
class District:
    """A place people go to: its middle and spread in km (east, north), and its share of them."""

    name: str
    centre_km: tuple[float, float]
    spread_km: tuple[float, float]
    share: float


DISTRICTS = (
    District("Old Town", (-0.2, 0.5), (0.75, 0.55), 0.23),
    District("Station", (2.0, -0.3), (0.35, 0.30), 0.13),
    District("University", (-2.9, 1.9), (0.55, 0.60), 0.12),
    District("Harbour", (3.9, -3.0), (0.90, 0.35), 0.09),
    District("Stadium", (-4.5, -2.7), (0.25, 0.25), 0.09),
    District("Market", (1.5, 2.9), (0.35, 0.30), 0.08),
    District("Gardens", (-0.9, -3.2), (1.00, 0.50), 0.11),
    District("Hillside", (4.6, 2.2), (0.95, 0.80), 0.11),
    District("Mill", (-5.6, 3.7), (0.12, 0.12), 0.02),
)


@dataclass(frozen=True)
class City:
    """People of a simulated city: true places in degrees, the cell of each, and the map."""

    grid: gv.Grid
    districts: tuple[District, ...]
    lat: FloatArray
    lng: FloatArray
    cells: IntArray

    @property
    def distribution(self) -> FloatArray:
        """The true share of every cell."""
        counts = np.bincount(self.cells, minlength=self.grid.size)
        return np.asarray(counts / counts.sum())

    def cells_of(self, district: District) -> IntArray:
        """The cells whose centre lies within two spreads of the district's middle."""
        offset = (self.grid.centres - np.array(district.centre_km)) / np.array(district.spread_km)
        reach = np.maximum(2.0, self.grid.cell_km / np.array(district.spread_km))
        return np.flatnonzero((np.square(offset / reach) <= 1.0).all(axis=1))


def simulated_city(*, people: int, seed: int, cell_km: float = 0.5) -> City:
    """A city of ``people`` drawn from a mixture of districts, the same for the same seed.

    >>> city = simulated_city(people=1000, seed=7)
    >>> city.lat.size, city.grid.shape
    (1000, (18, 27))
    """
    grid = gv.Grid.from_box(south=45.71, west=4.766, north=45.79, east=4.934, cell_km=cell_km)
    generator = np.random.Generator(np.random.PCG64(seed))
    places = np.empty((0, 2))
    while len(places) < count("people", people):
        points = _mixture(people, grid, generator)
        places = np.concatenate([places, points[~in_river(points)]])
    places = places[:people]
    lat, lng = grid.plane.to_latlng(places)
    return City(
        grid, DISTRICTS, lat, lng, np.asarray(grid.locate(lat=lat, lng=lng, outside="clamp"))
    )


def river_north_km(east_km: FloatArray) -> FloatArray:
    """How far north the middle of the river is, along the city."""
    return np.asarray(-1.45 + 0.55 * np.sin(east_km / 1.7) - 0.12 * east_km)


def in_river(places: FloatArray) -> BoolArray:
    """Which places (east, north in km) are wet."""
    return np.abs(places[:, 1] - river_north_km(places[:, 0])) < RIVER_HALF_WIDTH_KM


def _mixture(people: int, grid: gv.Grid, generator: np.random.Generator) -> FloatArray:
    """Places of a mixture: the districts, and a few people anywhere."""
    shares = np.array([district.share for district in DISTRICTS] + [_COUNTRYSIDE])
    chosen = generator.choice(shares.size, size=people, p=shares / shares.sum())
    half = np.array([grid.columns, grid.rows]) * grid.cell_km / 2
    places = generator.uniform(-half, half, size=(people, 2))
    for index, district in enumerate(DISTRICTS):
        here = chosen == index
        places[here] = generator.normal(
            district.centre_km, district.spread_km, size=(np.count_nonzero(here), 2)
        )
    return places


# --- The story as a picture: truth, what the collector sees, what comes back


_INK, _MUTED, _WATER, _PAPER = "#1f2430", "#6b7280", "#a9cfe6", "#fbfaf7"
_RAMP = ("#fbfaf7", "#fde3b5", "#f9ad73", "#e8636b", "#a8327d", "#4d1d72", "#1b0c3f")


def draw(story: Story) -> Figure:
    """Three maps side by side in one colour scale: people per square kilometre."""
    require("matplotlib", "plot", "drawing the picture")
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.6, 5.15), dpi=150, facecolor=_PAPER)
    gain = story.reported_error_km / story.estimated_error_km
    reported = (
        f"each report {two_digits(story.mean_distance_km)} km off on average; "
        f"the map is {story.reported_error_km * 1000:.0f} m off"
    )
    estimated = (
        f"the map is {story.estimated_error_km * 1000:.0f} m off: {gain:.2g} times nearer the truth"
    )
    maps = (
        (story.city.distribution, "Where people are", "the truth, which nobody collects"),
        (story.reported, "What the collector receives", reported),
        (story.estimate.distribution, "What Geoveil reconstructs", estimated),
    )
    most = story.city.distribution.max() * story.people / story.city.grid.cell_km**2
    scale = PowerNorm(0.5, vmin=0.0, vmax=float(most), clip=True)
    for index, (shares, title, words) in enumerate(maps):
        axes = figure.add_axes((0.016 + index * 0.328, 0.085, 0.312, 0.665))
        image = _map(axes, story, shares, scale)
        place: dict[str, Any] = {"x": 0, "transform": axes.transAxes}
        axes.text(y=1.085, s=title, color=_INK, fontsize=12.5, weight="bold", **place)
        axes.text(y=1.025, s=words, color=_MUTED, fontsize=9.5, **place)
    _legend(figure, image)
    headline = (
        f"{story.people:,} people each report one noisy cell, in "
        f"{number_of(len(story.rounds), 'round')}, and the map comes back"
    )
    promise = (
        f"Promise between any two positions, certified: {story.guarantee.amount()}. "
        f"Map error: earth mover's distance.\n{story.promise}"
    )
    figure.text(0.016, 0.925, headline, color=_INK, fontsize=15, weight="bold")
    figure.text(0.016, 0.016, promise, color=_MUTED, fontsize=9.5, linespacing=1.3)
    return figure


def _map(axes: Axes, story: Story, shares: FloatArray, scale: Any) -> Any:
    from matplotlib import patheffects
    from matplotlib.colors import LinearSegmentedColormap

    grid = story.city.grid
    west, south = -grid.columns * grid.cell_km / 2, -grid.rows * grid.cell_km / 2
    image = axes.imshow(
        shares.reshape(grid.shape) * story.people / grid.cell_km**2,
        origin="lower",
        extent=(west, -west, south, -south),
        cmap=LinearSegmentedColormap.from_list("dusk", _RAMP),
        norm=scale,
        interpolation="nearest",
    )
    east = np.linspace(west, -west, 300)
    middle = river_north_km(east)
    banks = (middle - RIVER_HALF_WIDTH_KM, middle + RIVER_HALF_WIDTH_KM)
    axes.fill_between(east, *banks, color=_WATER, alpha=0.6, linewidth=0, zorder=2)
    halo = [patheffects.withStroke(linewidth=2.4, foreground="white", alpha=0.9)]
    words: dict[str, Any] = {"color": _INK, "fontsize": 8, "ha": "center", "va": "bottom"}
    for district in story.city.districts:
        x, y = district.centre_km
        above = 1.05 * max(district.spread_km[1], 0.25) + 0.12
        axes.text(x, y + above, district.name, path_effects=halo, zorder=4, **words)
    start, base = west + 0.4, south + 0.4  # the scale bar
    axes.plot([start, start + 2], [base, base], color=_INK, linewidth=2, solid_capstyle="butt")
    axes.text(start + 1, base + 0.12, "2 km", **words)
    axes.set(xticks=[], yticks=[], xlim=(west, -west), ylim=(south, -south), facecolor=_PAPER)
    for side in axes.spines.values():
        side.set(color="#d6d3cb", linewidth=0.8)
    return image


def _legend(figure: Figure, image: Any) -> None:
    most = image.norm.vmax
    digits = 10.0 ** np.floor(np.log10(most))
    top = float(np.floor(most / digits) * digits)
    axes = figure.add_axes((0.80, 0.945, 0.184, 0.026))
    bar = figure.colorbar(image, cax=axes, orientation="horizontal")
    bar.outline.set_visible(False)
    # a round number near the top, and quarters of it: evenly spaced on a square-root scale
    bar.set_ticks([0.0, top / 16, top / 4, top])
    bar.ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    bar.ax.tick_params(labelsize=8, colors=_MUTED, length=2, pad=2)
    axes.text(-0.03, 0.5, "people per km²", transform=axes.transAxes, color=_MUTED, fontsize=9,
              ha="right", va="center")  # fmt: skip
