"""The story as a picture: truth, what the collector sees, what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.demo.city import RIVER_HALF_WIDTH_KM, river_north_km
from geoveil.demo.story import Story
from geoveil.errors import number_of, require, two_digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
