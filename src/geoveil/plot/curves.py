"""Curves: campaigns, the dial, releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.errors import InvalidInput
from geoveil.plot.maps import picture

if TYPE_CHECKING:  # a picture of one kind needs no other
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from geoveil.campaign import Advice, Simulation
    from geoveil.release.comparator import CurvePoint

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
        heights = plotted(axes, curve.x, curve.mean, y_scale, color=colour)
        axes.plot(curve.x, heights, color=colour, marker=mark, markersize=3.5, label=curve.name)
        if np.ndim(curve.repetitions) > 1 and len(curve.repetitions) > 1:
            low, high = np.quantile(curve.repetitions, (0.1, 0.9), axis=0)
            if y_scale == "log":  # a band that reaches zero ends where the lowest line does
                low = np.maximum(low, np.nanmin(np.append(heights, np.inf)))
            axes.fill_between(curve.x, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.set(xlabel=x_label, ylabel=y_label, title=title, xscale=x_scale, yscale=y_scale)
    if x_scale == "linear" and all(np.equal(np.mod(curve.x, 1), 0).all() for curve in curves):
        axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    if y_scale == "linear":
        axes.set_ylim(bottom=0.0)
    for axis, scale in ((axes.xaxis, x_scale), (axes.yaxis, y_scale)):
        if scale == "log":
            plain_ticks(axis)
    if len(curves) > 1:
        axes.legend(fontsize=8)


def plain_ticks(axis: Axis) -> None:
    """On a log axis 0.02 and 100 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def plotted(
    axes: Axes, x: npt.ArrayLike, values: npt.ArrayLike, scale: str, *, color: str
) -> FloatArray:
    """The values of a line; on a log axis it ends before zero, and zeros are marked at the lower edge."""
    line = np.asarray(values, dtype=np.float64)
    if scale != "log" or (line > 0).all():
        return line
    zero = np.flatnonzero(line <= 0)
    axes.plot(
        np.asarray(x)[zero], np.full(zero.size, 0.015), linestyle="", marker="v", color=color,
        markersize=5, fillstyle="none", transform=axes.get_xaxis_transform(), zorder=6,
    )  # fmt: skip
    if not any(text.get_text() == _AT_ZERO for text in axes.texts):
        axes.text(0.01, 0.035, _AT_ZERO, fontsize=7, color="0.4", transform=axes.transAxes)
    return np.where(line > 0, line, np.nan)


_AT_ZERO = "▽ zero"


def save_campaign(path: str, simulation: Simulation) -> None:
    """Draw the error of a campaign by round into a picture (.png, .svg or .pdf)."""
    rounds = simulation.rounds
    if not rounds:
        raise InvalidInput("a campaign must have closed a round before its curve can be drawn")
    with picture(path, 6.4, 4.0) as figure:
        axes: Any = figure.subplots()
        scale = "log" if simulation.start_km > 0 else "linear"  # on one cell nothing is ever wrong
        axes.set(xlabel="round", ylabel="earth mover's distance (km)", yscale=scale)
        if scale == "log":
            plain_ticks(axes.yaxis)
        numbers, errors = [one.number for one in rounds], [one.error_km for one in rounds]
        best = [one.hindsight_km for one in rounds]

        def line(values: Sequence[float], color: str, **style: Any) -> None:
            shown = plotted(axes, numbers, values, scale, color=color)
            axes.plot(numbers, shown, color=color, **style)

        axes.axhline(simulation.start_km, color="0.6", linestyle=":", label="knowing nothing")
        line(errors, COLOURS[0], marker="o", markersize=3.5, label="estimate")
        values = [value for value in best if value is not None]
        if len(values) == len(best):
            line(values, COLOURS[2], linestyle="--", label="best stop in hindsight")
        floor = [one.floor_km for one in rounds]
        line(floor, "0.3", linestyle="-.", label="exact counts, no privacy")
        least = min([value for value in errors if value > 0] or [simulation.start_km])
        axes.set_ylim(bottom=least / 30)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize=8)


# --- The dial as a picture: what each camouflage costs and hides at one promise

_SIDES = {
    "mean_distance_km": "mean distance (km)",
    "leakage_bits": "leakage (bits)",
    "expected_error_km": "expected error of the map (km)",
    "isolated_posterior": "attacker's belief in the isolated place",
    "leverage": "honest reports that a fake one may weigh for",
}


def draw_dial(figure: Figure, advice: Advice) -> None:
    """Draw the dial: what every camouflage costs and hides."""
    best, dial = advice.recommended, [choice.camouflage for choice in advice.dial]
    beside = [choice for choice in advice.choices if choice.camouflage is None]
    *sides, legend = figure.subplots(2, 3).ravel()
    for axes, (name, title) in zip(sides, _SIDES.items(), strict=True):
        along = [getattr(choice, name) for choice in advice.dial]
        axes.plot(dial, along, color=COLOURS[0], marker="o", markersize=4, label="the dial")
        axes.plot([best.camouflage], [getattr(best, name)], "o", color=COLOURS[0], markersize=10,
                  fillstyle="none", label="recommended")  # fmt: skip
        for number, choice in enumerate(beside, start=1):
            axes.axhline(getattr(choice, name), color=COLOURS[number], linestyle="--",
                         linewidth=1, label=choice.name)  # fmt: skip
        axes.set(title=title, xlabel="camouflage")
        if name == "leverage":
            axes.set_yscale("log")
            plain_ticks(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
    legend.axis("off")
    legend.legend(*sides[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.suptitle(f"Every setting keeps the promise: {advice.promise}")


_LABELS = {
    "simple-counting": "Laplace noise on each count (SCM)",
    "geometric-counting": "geometric noise on each count",
}


def save_leakage_curve(path: str, points: Sequence[CurvePoint], multiplier: float) -> None:
    """The least leakage at each distortion, the comparators', and the most about one person.

    Drawn into a picture (.png, .svg or .pdf); the release at ``multiplier`` is marked.
    """
    chosen = next((point for point in points if point.multiplier == multiplier), None)
    if chosen is None:
        known = ", ".join(f"{point.multiplier:.6g}" for point in points)
        raise InvalidInput(
            f"multiplier ({multiplier:g}) must be one of those of the points: {known}"
        )
    distortion = [point.distortion for point in points]
    with picture(path, 6.4, 4.2) as figure:
        axes = figure.subplots()
        axes.plot(distortion, [point.leakage_bits for point in points], color=COLOURS[0], marker="o",
                  markersize=4, label="least leakage (this mechanism)")  # fmt: skip
        names = dict.fromkeys(name for point in points for name in point.comparators_bits)
        for number, name in enumerate(names, start=1):
            beside = [point for point in points if name in point.comparators_bits]
            axes.plot([point.distortion for point in beside],
                      [point.comparators_bits[name] for point in beside],
                      color=COLOURS[number], marker="sx"[number % 2], markersize=5 - number,
                      linestyle=("--", ":")[number % 2], label=_LABELS.get(name, name))  # fmt: skip
        axes.plot(distortion, [point.personal_bits for point in points], color=COLOURS[6],
                  linestyle=":", label="most about one person")  # fmt: skip
        axes.plot([chosen.distortion], [chosen.leakage_bits], "o", color=COLOURS[0], markersize=11,
                  fillstyle="none", label=f"this release (λ = {chosen.multiplier:.3g})")  # fmt: skip
        axes.set(xlabel="distortion (people)", ylabel="leakage (bits)")
        axes.set_xlim(left=0.0)
        axes.set_ylim(bottom=0.0)
        axes.grid(color="#dddddd", linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
