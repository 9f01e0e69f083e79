"""Pictures that could go into a report: what is shown, how many reports it is from, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.advice import Advice
from geoveil.channel.channel import Tally
from geoveil.errors import GeoveilError, Unsupported, number_of, two_digits
from geoveil.estimate.fitted import Estimate
from geoveil.plot import maps
from geoveil.plot.curves import draw_dial
from geoveil.plot.maps import draw_grounds, picture
from geoveil.space import MapSpace, Space
from geoveil.table.frames import columns_of
from geoveil.table.results import Result, shares_and_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVEL = 0.95
_PANEL_INCHES = 4.4
_LINE_CHARACTERS = 30
"""Characters in a line of notes below a picture, for each inch of its width."""


def picture_of(result: object, path: str | None = None, title: str | None = None) -> Figure:
    """A figure without a window, also written to ``path`` (.png, .svg or .pdf) where one is given."""
    if path is not None:
        maps.picture_kind(path)
    figure = figure_of(result, title)
    if path is not None:
        maps.write_figure(path, figure)
    return figure


@singledispatch
def figure_of(result: object, title: str | None) -> Figure:
    """The picture of a result."""
    raise Unsupported(f"{type(result).__name__} has no picture")


@figure_of.register(Estimate)
def _estimate_figure(result: Estimate, title: str | None) -> Figure:
    try:
        shown = shares_and_bars(result, _LEVEL)
    except GeoveilError:
        shown = shares_and_bars(result, None)
    return report_map(result, shown, _LEVEL, title)


@figure_of.register(Tally)
def _tally_figure(result: Tally, title: str | None) -> Figure:
    named = np.asarray(columns_of(result)["reports"], dtype=np.float64)
    beside = result.total - int(named.sum())
    notes = [
        _counted(result.total, result.space),
        f"Promise: {result.channel.short_promise}.",
        "These are noisy reports, not places of people.",
    ]
    if beside > 0:
        notes.append(f"{number_of(beside, 'report names', 'reports name')} no cell of the map.")
    panel = maps.Panel("share of the reports", named / max(result.total, 1))
    figure = _figure(result.space, 1)
    maps.draw_on_one_scale(
        figure, [figure.subplots()], result.space, [panel], label="share of reports per cell"
    )
    _frame(figure, title or "Reports as they came", notes)
    return figure


@figure_of.register(Advice)
def _advice_figure(result: Advice, title: str | None) -> Figure:
    figure = maps.blank_figure(11.0, 5.6)
    draw_dial(figure, result)
    if title is not None:
        figure.suptitle(title, parse_math=False)
    return figure


def report_map(
    estimate: Estimate, result: Result, level: float, title: str | None = None
) -> Figure:
    """An estimate beside the reports as they came, where these are known, and how sure each cell is.

    Title, promise, number of reports, size of the cells and unit stand with it.
    """
    space, panels = result.space, maps.estimate_panels(result.share, result.reported_share)
    unsure = None
    if result.low is not None and result.high is not None:
        half = f"how unsure: half of the {100 * level:g} % interval"
        unsure = maps.Panel(half, (result.high - result.low) / 2)
    figure = _figure(space, len(panels) + (unsure is not None))
    axes = list(np.atleast_1d(figure.subplots(1, len(panels) + (unsure is not None))))
    maps.draw_on_one_scale(
        figure, axes[: len(panels)], space, panels, label="share of people per cell"
    )
    notes = [_counted(estimate.total, space)]
    notes += [f"Promise: {promise}." for promise in estimate.promises]
    if unsure is not None:
        maps.draw_on_one_scale(
            figure, axes[-1:], space, [unsure], label="± share of people per cell"
        )
        notes.append(f"Each interval is for one cell by itself, at {100 * level:g} %.")
    else:
        notes.append("Error bars are not known.")
    _frame(figure, title or "Where people are, estimated", notes)
    return figure


def _counted(reports: int, space: Space) -> str:
    side = getattr(space, "cell_km", None)
    wide = "" if side is None else f" of {side:g} {space.unit}"
    return f"{number_of(reports, 'report')}; {number_of(space.size, 'cell')}{wide}."


def _figure(space: Space, panels: int) -> Figure:
    height = maps.panel_height(space, _PANEL_INCHES)
    return maps.blank_figure(panels * _PANEL_INCHES + 1.0, height + 1.2)


def _frame(figure: Figure, title: str, notes: list[str]) -> None:
    """The title above, and the notes below, broken to the width of the figure."""
    from textwrap import fill

    figure.suptitle(title, fontsize=12, parse_math=False)
    wide = int(figure.get_figwidth() * _LINE_CHARACTERS * 0.55)
    figure.supxlabel(fill(" ".join(notes), wide), fontsize=8, x=0.02, ha="left", color="0.25")


# --- Flows between districts on a map: widths are shares, arrows directions, and pale what may be nothing

MOST_LINES = 60
"""So many of the largest flows are drawn; more would hide each other."""
_SURE, _UNSURE, _STAY = "#b0413e", "#d9a5a3", "#2f4b6e"
_WIDEST_POINTS = 9.0
_THINNEST_POINTS = 0.4
_LARGEST_STAY_POINTS = 26.0
_INCHES = 7.0


@dataclass(frozen=True)
class FlowPicture:
    """What is drawn: districts by their middles, shares between them, and their low ends."""

    space: Space
    middles_km: FloatArray
    """(districts, 2): east, north in the plane of the space."""
    share: FloatArray
    """(districts, districts)."""
    low: FloatArray | None = None
    """Low ends of the intervals; a flow whose interval reaches zero is drawn pale."""
    ends: FloatArray | None = None
    """Shares of trips that begin or end in each cell, as the ground."""

    def shown(self) -> tuple[IntArray, IntArray]:
        """Origins and destinations of the largest flows between two districts, the smallest first."""
        apart = self.share.copy()
        np.fill_diagonal(apart, 0.0)
        order = np.argsort(apart, axis=None, kind="stable")[-MOST_LINES:]
        order = order[apart.ravel()[order] > 0]
        begun, ended = np.divmod(order, len(self.share))
        return begun, ended


def save_flows(path: str, shown: FlowPicture) -> None:
    """Draw flows into a picture (.png, .svg or .pdf)."""
    if not isinstance(shown.space, MapSpace):
        raise Unsupported(f"{shown.space!r} has no map to draw flows on; leave the picture out")
    with picture(path, _INCHES + 0.4, maps.panel_height(shown.space, _INCHES) + 0.9) as figure:
        axes = figure.subplots()
        ground = np.zeros(shown.space.size) if shown.ends is None else shown.ends
        draw_grounds(axes, shown.space, ground)
        _draw_lines(axes, shown)
        # trips that stay in their district as discs, whose area is their share
        stays = np.diagonal(shown.share)
        size = np.square(_LARGEST_STAY_POINTS) * stays / max(stays.max(initial=0.0), 1e-300)
        east, north = shown.middles_km.T
        axes.scatter(
            east, north, s=size, facecolor="none", edgecolor=_STAY, linewidths=1.1, zorder=4
        )
        _draw_legend(axes, shown)
        begun, ended = shown.shown()
        share = float(shown.share[begun, ended].sum())
        title = (
            f"{begun.size} largest flows between districts ({100 * share:.0f} % of trips); "
            f"{100 * stays.sum():.0f} % stay in their district"
        )
        axes.set_title(title, fontsize=9)


def _draw_lines(axes: Axes, shown: FlowPicture) -> None:
    """Curved arrows, so that there and back lie beside each other; the largest on top."""
    from matplotlib.patches import FancyArrowPatch

    begun, ended = shown.shown()
    top = float(shown.share[begun, ended].max(initial=0.0))
    for origin, destination in zip(begun.tolist(), ended.tolist(), strict=True):
        part = float(shown.share[origin, destination]) / top
        width = max(_THINNEST_POINTS, _WIDEST_POINTS * part)
        sure = shown.low is None or bool(shown.low[origin, destination] > 0)
        arrow = FancyArrowPatch(
            tuple(shown.middles_km[origin]), tuple(shown.middles_km[destination]),
            connectionstyle="arc3,rad=0.18", shrinkA=3, shrinkB=3,
            arrowstyle=f"simple,tail_width={width:.3g},head_width={width + 4:.3g},head_length=5",
            facecolor=_SURE if sure else _UNSURE, edgecolor="none", alpha=0.8, zorder=2 + part,
        )  # fmt: skip
        axes.add_patch(arrow)


def _draw_legend(axes: Axes, shown: FlowPicture) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    begun, ended = shown.shown()
    handles: list[Line2D | Patch] = []
    if begun.size:
        top = float(shown.share[begun, ended].max())
        for part in (1.0, 0.5):
            label = f"{two_digits(100 * part * top)} % of trips"
            handles.append(Line2D([], [], color=_SURE, lw=_WIDEST_POINTS * part, label=label))
        if shown.low is not None:
            handles.append(Patch(color=_UNSURE, label="the interval reaches zero"))
    stay = float(np.diagonal(shown.share).max(initial=0.0))
    label = f"stays in its district, at most {two_digits(100 * stay)} %"
    handles.append(
        Line2D([], [], linestyle="", marker="o", markerfacecolor="none", color=_STAY, label=label)
    )
    axes.legend(handles=handles, fontsize=7, loc="upper left", framealpha=0.9)
