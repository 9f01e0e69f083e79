"""Maps of cells in one colour scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import FloatArray, vector
from geoveil.errors import InvalidInput, Unsupported, require
from geoveil.space.grid import Grid
from geoveil.space.points import Points
from geoveil.space.space import MapSpace, Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure


LIGHTEST, DARKEST = 0.985, 0.24
_HUES_DEGREES = (125.0, 285.0)
_MOST_CHROMA = 0.1
_STEPS = 256

_LAB_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_CONES_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


@cache
def quiet_map() -> Colormap:
    """The colour map of shares; what is not a number is grey."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(quiet_colours(_STEPS), name="geoveil").with_extremes(bad="#d9d9d9")


def quiet_colours(steps: int) -> FloatArray:
    """(steps, 3): the colours from zero to the largest value, red, green and blue in [0, 1].

    >>> quiet_colours(2).round(1).tolist()
    [[1.0, 1.0, 1.0], [0.1, 0.1, 0.2]]
    """
    along = np.linspace(0.0, 1.0, steps)
    hue = np.radians(np.interp(along, [0.0, 1.0], _HUES_DEGREES))
    chroma = np.interp(along, [0.0, 0.5, 1.0], [0.0, _MOST_CHROMA, 0.07])
    lightness = np.interp(along, [0.0, 1.0], [LIGHTEST, DARKEST])
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=1)
    linear = np.power(lab @ _LAB_TO_CONES.T, 3) @ _CONES_TO_RGB.T
    return _gamma(np.clip(linear, 0.0, 1.0))


def _gamma(linear: FloatArray) -> FloatArray:
    """Linear light to sRGB."""
    bright = 1.055 * np.power(np.maximum(linear, 0.0031308), 1 / 2.4) - 0.055
    return np.where(linear <= 0.0031308, 12.92 * linear, bright)


# --- Distributions on maps, side by side on one scale


PICTURES = ("png", "svg", "pdf")
"""The endings of pictures that can be written."""

_LEAST_TOP = 1e-12
_PANEL_INCHES = 4.0


@dataclass(frozen=True)
class Panel:
    """One map: a title and a share (or any other amount) for each cell."""

    title: str
    values: FloatArray


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
    values = [vector(panel.title, panel.values, space.size) for panel in panels]
    axes = _panels(figure, len(panels), columns or len(panels))
    if space.centres.shape[1] == 1:
        _draw_steps(axes, space, panels, label)
        return
    top = max(_LEAST_TOP, *(float(each.max()) for each in values))
    for each, panel, shares in zip(axes, panels, values, strict=True):
        image = _draw_map(each, space, shares, top, gamma)
        each.set_title(panel.title, fontsize=9)
        _label_edges(each, space)
    _scale_bar(axes[0], space)
    bent = {1.0: "", 0.5: ", square-root scale"}.get(gamma, f", scale to the power {gamma:g}")
    bar = figure.colorbar(image, ax=list(axes), shrink=0.85, pad=0.02)
    bar.set_label(label + bent, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.ax.yaxis.set_major_formatter(_percent)


def save_maps(target: IO[bytes], kind: str, space: Space, panels: Sequence[Panel]) -> None:
    """Write the maps as a picture of the given kind (png, svg or pdf), without a window."""
    require("matplotlib", "plot", "drawing maps")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = _inches(space)
    figure = Figure(figsize=(len(panels) * width + 1.2, height + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    draw_maps(figure, space, panels)
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(target, format=kind, dpi=130, metadata=metadata[kind])


def picture_kind(path: str) -> str:
    """The kind of picture by the ending of its name; refused before the work where nothing can draw it.

    >>> picture_kind("map.PNG")
    'png'
    """
    kind = PurePath(path).suffix.lower().removeprefix(".")
    if kind not in PICTURES:
        raise InvalidInput(f"picture ({path}) must end in .png, .svg or .pdf")
    require("matplotlib", "plot", f"drawing {path}")
    return kind


def _panels(figure: Figure, number: int, columns: int) -> list[Axes]:
    """So many axes in rows of ``columns``; what is left of the last row stays blank."""
    rows = -(-number // columns)
    made = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for blank in made[number:]:
        blank.set_axis_off()
    return list(made[:number])


def _draw_map(axes: Axes, space: Space, shares: FloatArray, top: float, gamma: float) -> Any:
    from matplotlib.colors import PowerNorm

    scale = PowerNorm(gamma, vmin=0.0, vmax=top)
    axes.set_aspect("equal")
    axes.grid(False)
    for edge in axes.spines.values():
        edge.set(visible=True, linewidth=0.6, color="0.5")
    if isinstance(space, Grid):
        west, south = space.corner_km
        extent = (
            west,
            west + space.columns * space.cell_km,
            south,
            south + space.rows * space.cell_km,
        )
        return axes.imshow(
            shares.reshape(space.shape),
            origin="lower",
            extent=extent,
            cmap=quiet_map(),
            norm=scale,
            interpolation="nearest",
        )
    if not isinstance(space, Points):
        raise Unsupported(f"{space!r} has no map to draw")
    east, north = space.centres.T
    order = np.argsort(shares)  # the fullest places on top
    return axes.scatter(
        east[order],
        north[order],
        c=shares[order],
        cmap=quiet_map(),
        norm=scale,
        s=24,
        edgecolors="#999999",
        linewidths=0.3,
    )


def _draw_steps(axes: Sequence[Axes], space: Space, panels: Sequence[Panel], label: str) -> None:
    for each, panel in zip(axes, panels, strict=True):
        each.stairs(panel.values, np.arange(space.size + 1) - 0.5, fill=True, color="#3a7ca5")
        each.set_title(panel.title, fontsize=9)
        each.set_xlabel(f"cell (1 {space.unit} apart)")
    axes[0].set_ylabel(label)


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
    across, up = np.linspace(west, east, 5)[1:-1], np.linspace(south, north, 5)[1:-1]
    lng = plane.to_latlng(np.stack([across, np.full(3, south)], axis=1))[1]
    lat = plane.to_latlng(np.stack([np.full(3, west), up], axis=1))[0]
    axes.set_xticks(across, [f"{abs(x):.3f}°{'W' if x < 0 else 'E'}" for x in lng])
    axes.set_yticks(up, [f"{abs(y):.3f}°{'S' if y < 0 else 'N'}" for y in lat])
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)


def _scale_bar(axes: Axes, space: Space) -> None:
    """A bar of 1, 2 or 5 times a power of ten, about a quarter of the width, below the corner."""
    (west, east), (south, north) = axes.get_xlim(), axes.get_ylim()
    length = _round_length((east - west) / 4)
    start, base = west + 0.04 * (east - west), south + 0.05 * (north - south)
    axes.plot([start, start + length], [base, base], color="black", lw=2.5, solid_capstyle="butt")
    axes.text(
        start + length / 2,
        base + 0.015 * (north - south),
        f"{length:g} {space.unit}",
        ha="center",
        va="bottom",
        fontsize=7,
        bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.8},
    )


def _round_length(about: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above a length."""
    power = 10.0 ** np.floor(np.log10(about))
    return float(power * max(step for step in (1.0, 2.0, 5.0) if step * power <= about * 1.0001))


def _inches(space: Space) -> tuple[float, float]:
    """Width and height of one panel with the proportions of the space."""
    if space.centres.shape[1] == 1:
        return _PANEL_INCHES, 2.6
    wide, high = np.ptp(space.centres, axis=0) + 1e-9
    ratio = float(np.clip(high / wide, 0.4, 1.6))
    return _PANEL_INCHES, _PANEL_INCHES * ratio


def _percent(value: float, position: float = 0.0) -> str:
    """A share as people read it.

    >>> _percent(0.05), _percent(0.0025)
    ('5 %', '0.25 %')
    """
    return f"{100 * value:.3g} %"
