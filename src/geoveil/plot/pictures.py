"""Pictures that could go into a report: what is shown, how many reports it is from, and how sure it is."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from geoveil.campaign.advice import Advice
from geoveil.channel.channel import Tally
from geoveil.errors import GeoveilError, Unsupported
from geoveil.estimate.fitted import Estimate
from geoveil.plot import maps
from geoveil.plot.curves import draw_dial
from geoveil.space.space import Space
from geoveil.table.frames import columns_of
from geoveil.table.results import Result, shares_and_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEVEL = 0.95
_PANEL_INCHES = 4.4
_LINE_CHARACTERS = 30
"""Of the notes below a picture, for each inch of its width."""


def picture_of(result: object, path: str | None = None, title: str | None = None) -> Figure:
    """A figure without a window, also written to ``path`` (.png, .svg or .pdf) where one is given."""
    if path is not None:
        maps.picture_kind(path)
    figure = drawn(result, title)
    if path is not None:
        maps.write_figure(path, figure)
    return figure


@singledispatch
def drawn(result: object, title: str | None) -> Figure:
    """The picture of a result."""
    raise Unsupported(f"{type(result).__name__} has no picture")


@drawn.register(Estimate)
def _drawn_estimate(result: Estimate, title: str | None) -> Figure:
    try:
        shown = shares_and_bars(result, _LEVEL)
    except GeoveilError:
        shown = shares_and_bars(result, None)
    return report_map(
        shown, promises=list(result.promises), reports=result.total, level=_LEVEL, title=title
    )


@drawn.register(Tally)
def _drawn_tally(result: Tally, title: str | None) -> Figure:
    named = np.asarray(columns_of(result)["reports"], dtype=np.float64)
    beside = result.total - int(named.sum())
    notes = [
        _counted(result.total, result.space),
        f"Promise: {result.channel.short_promise}.",
        "These are noisy reports, not places of people.",
    ]
    if beside > 0:
        notes.append(f"{beside:,} reports name no cell of the map.")
    panel = maps.Panel("share of the reports", named / max(result.total, 1))
    figure = _figure(result.space, 1)
    maps.draw_on_one_scale(
        figure, [figure.subplots()], result.space, [panel], label="share of reports per cell"
    )
    _frame(figure, title or "Reports as they came", notes)
    return figure


@drawn.register(Advice)
def _drawn_advice(result: Advice, title: str | None) -> Figure:
    figure = maps.blank_figure(11.0, 5.6)
    draw_dial(figure, result)
    if title is not None:
        figure.suptitle(title)
    return figure


def report_map(
    result: Result,
    *,
    promises: list[str],
    reports: int | None,
    level: float,
    title: str | None = None,
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
    notes = [] if reports is None else [_counted(reports, space)]
    notes += [f"Promise: {promise}." for promise in promises]
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
    cells = f"{space.size:,} cells" + (f" of {side:g} {space.unit}" if side is not None else "")
    return f"{reports:,} reports; {cells}."


def _figure(space: Space, panels: int) -> Figure:
    height = 2.6
    if space.centres.shape[1] > 1:  # panels with the proportions of the space
        wide, high = np.ptp(space.centres, axis=0) + 1e-9
        height = _PANEL_INCHES * float(np.clip(high / wide, 0.4, 1.6))
    return maps.blank_figure(panels * _PANEL_INCHES + 1.0, height + 1.2)


def _frame(figure: Figure, title: str, notes: list[str]) -> None:
    """The title above, and the notes below, broken to the width of the figure."""
    from textwrap import fill

    figure.suptitle(title, fontsize=12)
    wide = int(figure.get_figwidth() * _LINE_CHARACTERS * 0.55)
    figure.supxlabel(fill(" ".join(notes), wide), fontsize=8, x=0.02, ha="left", color="0.25")
