"""Maps of cells in one colour scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import FloatArray, vector
from geoveil.errors import InvalidInput, Unsupported, percent, require
from geoveil.files import file_name, replaced_file
from geoveil.space import AnyGrid, Grid, MapSpace, MaskedGrid, Points, Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# Oklab (Ottosson 2020): to the cube roots of the responses of the cones, and from these to linear light.
_LAB_TO_CONES = np.array([[1.0, 0.3963377774, 0.2158037573],
                          [1.0, -0.1055613458, -0.0638541728],
                          [1.0, -0.0894841775, -1.2914855480]])  # fmt: skip
_CONES_TO_RGB = np.array([[4.0767416621, -3.3077115913, 0.2309699292],
                          [-1.2684380046, 2.6097574011, -0.3413193965],
                          [-0.0041960863, -0.7034186147, 1.7076147010]])  # fmt: skip


@cache
def quiet_map() -> Colormap:
    """The colour map of shares; what is not a number is grey."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(quiet_colours(256), name="geoveil").with_extremes(bad="#d9d9d9")


def quiet_colours(steps: int) -> FloatArray:
    """(steps, 3): the colours from zero to the largest value, red, green and blue in [0, 1].

    >>> quiet_colours(2).round(1).tolist()
    [[1.0, 1.0, 1.0], [0.1, 0.1, 0.2]]
    """
    along = np.linspace(0.0, 1.0, steps)
    hue = np.radians(np.interp(along, [0.0, 1.0], [125.0, 285.0]))
    chroma = np.interp(along, [0.0, 0.5, 1.0], [0.0, 0.1, 0.07])
    lightness = np.interp(along, [0.0, 1.0], [0.985, 0.24])
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=1)
    linear = np.clip(np.power(lab @ _LAB_TO_CONES.T, 3) @ _CONES_TO_RGB.T, 0.0, 1.0)
    # linear light to sRGB: a power law that is straight near black
    bright = 1.055 * np.power(np.maximum(linear, 0.0031308), 1 / 2.4) - 0.055
    return np.where(linear <= 0.0031308, 12.92 * linear, bright)


# --- Distributions on maps, side by side on one scale

_LEAST_TOP = 1e-12
_PANEL_INCHES = 4.0
_SMALL_INCHES = 2.2
_IN_A_ROW = 6
_NO_DATE = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""The same picture gives the same bytes."""


@dataclass(frozen=True)
class Panel:
    """One map: a title and a share (or any other amount) for each cell."""

    title: str
    values: FloatArray


def estimate_panels(share: FloatArray, reported: FloatArray | None) -> list[Panel]:
    """An estimate beside the shares of the reports as they came, where these are known."""
    before = [] if reported is None else [Panel("noisy reports, as they came", reported)]
    return [*before, Panel("estimate", share)]


def draw_maps(
    figure: Figure,
    space: Space,
    panels: Sequence[Panel],
    *,
    label: str = "share per cell",
    gamma: float = 0.5,
    columns: int | None = None,
) -> None:
    """Draw maps on one colour scale, with a scale bar; a line is drawn as steps.

    They stand side by side, or in rows of ``columns``.
    The scale runs from zero to the largest value of all panels; ``gamma`` bends it (0.5: the square
    root, because a few cells of a city hold most of its people), and the colour bar says so.
    """
    if not panels:
        raise InvalidInput("panels must not be empty; give at least one map")
    columns = columns or len(panels)
    frames = figure.subplots(
        -(-len(panels) // columns), columns, squeeze=False, sharex=True, sharey=True
    ).ravel()
    for blank in frames[len(panels) :]:
        blank.set_axis_off()
    draw_on_one_scale(figure, list(frames[: len(panels)]), space, panels, label=label, gamma=gamma)


def draw_on_one_scale(
    figure: Figure,
    axes: Sequence[Axes],
    space: Space,
    panels: Sequence[Panel],
    *,
    label: str,
    gamma: float = 0.5,
) -> None:
    """Draw one map on each of the axes, and one colour bar for all; lines have one height."""
    values = [vector(panel.title, panel.values, space.size) for panel in panels]
    top = max(_LEAST_TOP, *(float(shares.max()) for shares in values))
    if space.centres.shape[1] == 1:
        for part, panel, shares in zip(axes, panels, values, strict=True):
            part.stairs(shares, np.arange(space.size + 1) - 0.5, fill=True, color="#3a7ca5")
            part.set_ylim(0.0, 1.05 * top)
            part.set_title(panel.title, fontsize=9)
            part.set_xlabel(f"cell (1 {space.unit} apart)")
            part.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
            part.yaxis.set_major_formatter(lambda share, _: percent(share))
        axes[0].set_ylabel(label)
        return
    for part, panel, shares in zip(axes, panels, values, strict=True):
        image = _draw_map(part, space, shares, top, gamma)
        part.set_title(panel.title, fontsize=9)
        _label_edges(part, space)
    _scale_bar(axes[0], space)
    bent = {1.0: "", 0.5: ", square-root scale"}.get(gamma, f", scale to the power {gamma:g}")
    bar = figure.colorbar(image, ax=list(axes), shrink=0.85, pad=0.02)
    bar.set_label(label + bent, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.set_ticks(round_amounts(top).tolist())
    bar.ax.yaxis.set_major_formatter(lambda share, _: percent(share))


def draw_grounds(axes: Axes, space: Space, values: FloatArray) -> None:
    """A pale map as the ground for something else, with degrees at its edges and a scale bar."""
    _draw_map(axes, space, values, max(_LEAST_TOP, 4 * float(values.max())), 1.0)
    _label_edges(axes, space)
    _scale_bar(axes, space)


def save_maps(path: str, space: Space, panels: Sequence[Panel]) -> None:
    """Draw maps into a picture (.png, .svg or .pdf), in rows of six where there are many."""
    inches = _PANEL_INCHES if len(panels) <= _IN_A_ROW else _SMALL_INCHES
    height = panel_height(space, inches)
    columns = min(len(panels), _IN_A_ROW)
    rows = -(-len(panels) // max(1, columns))
    with picture(path, columns * inches + 1.2, rows * height + 0.6) as figure:
        draw_maps(figure, space, panels, columns=columns)


def panel_height(space: Space, width: float) -> float:
    """In inches: a map has the proportions of its space, within reason; a line always has one height."""
    if space.centres.shape[1] == 1:
        return 2.6
    wide, high = np.ptp(space.centres, axis=0)[:2] + 1e-9  # more have no map, which drawing says
    return width * float(np.clip(high / wide, 0.4, 1.6))


@contextmanager
def picture(path: str, width: float, height: float) -> Iterator[Figure]:
    """A figure without a window, of a size in inches, that becomes a file when the block ends well."""
    picture_kind(path)
    figure = blank_figure(width, height)
    yield figure
    write_figure(path, figure)


def write_figure(path: str, figure: Figure) -> None:
    """Write a figure whole or not at all; the same figure gives the same bytes."""
    kind = picture_kind(path)
    with replaced_file(path) as sink:
        figure.savefig(sink, format=kind, dpi=130, metadata=_NO_DATE[kind])


def blank_figure(width: float, height: float) -> Figure:
    """A figure without a window, of a size in inches."""
    require("matplotlib", "plot", "drawing")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def picture_kind(path: str) -> str:
    """The kind of picture by the ending of its name; refused before the work where nothing can draw it.

    >>> picture_kind("map.PNG")
    'png'
    """
    kind = PurePath(file_name(path)).suffix.lower().removeprefix(".")
    if kind not in _NO_DATE:
        raise InvalidInput(f"picture ({path}) must end in .png, .svg or .pdf")
    require("matplotlib", "plot", f"drawing {path}")
    return kind


def _draw_map(axes: Axes, space: Space, shares: FloatArray, top: float, gamma: float) -> Any:
    from matplotlib.colors import PowerNorm

    scale = PowerNorm(gamma, vmin=0.0, vmax=top)
    axes.set_aspect("equal")
    axes.grid(False)
    for edge in axes.spines.values():
        edge.set(visible=True, linewidth=0.6, color="0.5")
    if isinstance(space, AnyGrid):
        grid = space.grid if isinstance(space, MaskedGrid) else space
        west, south = grid.corner_km
        east, north = west + grid.width_km, south + grid.height_km
        # cells that do not exist are left blank
        image = shares if isinstance(space, Grid) else space.spread(shares, empty=np.nan)
        return axes.imshow(
            image.reshape(grid.shape), origin="lower", extent=(west, east, south, north),
            cmap=quiet_map(), norm=scale, interpolation="nearest",
        )  # fmt: skip
    if not isinstance(space, Points):
        raise Unsupported(f"{space!r} has no map to draw")
    x, y = space.centres.T
    order = np.argsort(shares)  # the fullest places on top
    return axes.scatter(
        x[order], y[order], c=shares[order], cmap=quiet_map(), norm=scale, s=24,
        edgecolors="#999999", linewidths=0.3,
    )  # fmt: skip


def _label_edges(axes: Axes, space: Space) -> None:
    """Degrees at the edges where the space has a map, else nothing: the scale bar says the size."""
    axes.tick_params(labelsize=7, length=2)
    try:
        if not isinstance(space, MapSpace):
            raise Unsupported(f"{space!r} has no map")
        plane = space.plane
    except Unsupported:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    (west, east), (south, north) = axes.get_xlim(), axes.get_ylim()
    narrow = axes.bbox.width / axes.figure.dpi < 2.2  # inches: three labels would touch
    lat, lng = plane.to_latlng(np.array([[west, south], [east, south], [west, north]]))
    # a whole turn more where the map crosses ±180°, so that longitudes grow from west to east
    lng = lng[0] + np.remainder(lng - lng[0], 360.0)
    meridians = round_degrees(lng[0], lng[1], 2 if narrow else 3)
    parallels = round_degrees(lat[0], lat[2], 3)
    across = plane.to_plane(lat=np.full(meridians.size, lat[0]), lng=meridians)[:, 0]
    up = plane.to_plane(lat=parallels, lng=np.full(parallels.size, lng[0]))[:, 1]
    axes.set_xticks(across, degrees_in_words((meridians + 180.0) % 360.0 - 180.0, "EW"))
    axes.set_yticks(up, degrees_in_words(parallels, "NS"))
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)


def round_degrees(low: float, high: float, most: int) -> FloatArray:
    """Up to ``most`` (at least one) round values between two others, a step of 1, 2 or 5 apart.

    >>> round_degrees(2.2855, 2.3909, 3).tolist()
    [2.3, 2.35]
    >>> round_degrees(48.8286, 48.8798, 3).tolist()
    [48.84, 48.86]
    """
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-12)))
    widths = [k * step * size for size in (0.1, 1.0) for k in (1, 2, 5)]
    for width in widths:
        first, last = math.ceil(low / width - 1e-9), math.floor(high / width + 1e-9)
        if 1 <= last - first + 1 <= most:
            digits = max(0, -math.floor(math.log10(width) + 1e-9))
            return np.round(np.arange(first, last + 1) * width, digits)
    return np.array([(low + high) / 2])


def degrees_in_words(values: FloatArray, sides: str) -> list[str]:
    """Coordinates as people write them, all with the same decimals.

    >>> degrees_in_words(np.array([2.3, 2.35]), "EW"), degrees_in_words(np.array([-1.0, 0.0]), "NS")
    (['2.30°E', '2.35°E'], ['1°S', '0°N'])
    """
    decimals = next(
        n for n in range(13) if n == 12 or np.allclose(values, np.round(values, n), 0, 1e-9)
    )
    return [f"{abs(x):.{decimals}f}°{sides[int(x < 0)]}" for x in values.tolist()]


def round_amounts(top: float) -> FloatArray:
    """Round values from zero to the largest one, closer where a square-root scale is wide.

    >>> round_amounts(0.043).round(4).tolist()
    [0.0, 0.001, 0.005, 0.01, 0.02, 0.04]
    """
    power = 10.0 ** math.floor(math.log10(top))
    lead = max(step for step in (1.0, 2.0, 4.0, 5.0, 8.0) if step * power <= top * (1 + 1e-9))
    down = {1.0: (0.5, 0.2, 0.05), 2.0: (1.0, 0.5, 0.1), 4.0: (2.0, 1.0, 0.5, 0.1),
            5.0: (2.0, 1.0, 0.5, 0.1), 8.0: (5.0, 2.0, 1.0, 0.2)}[lead]  # fmt: skip
    return power * np.array([0.0, *sorted(down), lead])


def _scale_bar(axes: Axes, space: Space) -> None:
    """A bar of 1, 2 or 5 times a power of ten, about a quarter of the width, below the corner."""
    (west, east), (south, north) = axes.get_xlim(), axes.get_ylim()
    length = round_length((east - west) / 4)
    start, base = west + 0.04 * (east - west), south + 0.05 * (north - south)
    axes.plot([start, start + length], [base, base], color="black", lw=2.5, solid_capstyle="butt")
    axes.text(
        start + length / 2, base + 0.015 * (north - south), f"{length:g} {space.unit}",
        ha="center", va="bottom", fontsize=7,
        bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.8},
    )  # fmt: skip


def round_length(about: float) -> float:
    """1, 2 or 5 times a power of ten, no more than this.

    >>> round_length(3.7), round_length(0.6)
    (2.0, 0.5)
    """
    power = 10.0 ** math.floor(math.log10(max(about, 1e-300)))
    return power * max(step for step in (1.0, 2.0, 5.0) if step * power <= about * 1.0001)
