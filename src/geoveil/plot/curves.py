"""Curves with bands: a mean over repetitions and what lies around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from geoveil.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours, which most people can tell apart."""

_MARKS = "osD^vPX"
_MOST_MARKS = 24


@dataclass(frozen=True)
class Curve:
    """One curve: values at x, one row for each repetition."""

    name: str
    x: FloatArray
    repetitions: FloatArray
    """(repetitions, len(x))."""

    @property
    def mean(self) -> FloatArray:
        """The mean over the repetitions at each x."""
        return np.atleast_2d(self.repetitions).mean(axis=0)

    @property
    def low(self) -> FloatArray:
        """The lower end of the band: a tenth of the repetitions lie below."""
        return np.quantile(np.atleast_2d(self.repetitions), 0.1, axis=0)

    @property
    def high(self) -> FloatArray:
        """The upper end of the band: a tenth of the repetitions lie above."""
        return np.quantile(np.atleast_2d(self.repetitions), 0.9, axis=0)


def draw_curves(
    axes: Axes,
    curves: Sequence[Curve],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    x_scale: Literal["linear", "log"] = "linear",
    y_scale: Literal["linear", "log"] = "linear",
) -> None:
    """Means as lines and the middle eight tenths of the repetitions as bands."""
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        mark = _MARKS[number % len(_MARKS)] if curve.x.size <= _MOST_MARKS else None
        axes.plot(curve.x, curve.mean, color=colour, marker=mark, markersize=3.5, label=curve.name)
        if np.ndim(curve.repetitions) > 1 and len(curve.repetitions) > 1:
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    axes.set(xlabel=x_label, ylabel=y_label, title=title, xscale=x_scale, yscale=y_scale)
    if x_scale == "linear" and all(np.equal(np.mod(curve.x, 1), 0).all() for curve in curves):
        axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    if y_scale == "linear":
        axes.set_ylim(bottom=0.0)
    for axis, scale in ((axes.xaxis, x_scale), (axes.yaxis, y_scale)):
        if scale == "log":
            _plain_numbers(axis)
    if len(curves) > 1:
        axes.legend(fontsize=8)


def _plain_numbers(axis: Axis) -> None:
    """0.02 and 100 instead of powers of ten, at 1, 2 and 5 times each power."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())
