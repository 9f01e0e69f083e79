"""The leakage–distortion curve of a release as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from geoveil.errors import require
from geoveil.plot.curves import COLOURS
from geoveil.release.curve import CurvePoint

_LABELS = {
    "simple-counting": "Laplace noise on each count (SCM)",
    "geometric-counting": "geometric noise on each count",
}


def save_leakage_curve(
    target: IO[bytes], kind: str, points: Sequence[CurvePoint], chosen: CurvePoint
) -> None:
    """Write the curve as a picture of the given kind (png, svg or pdf), without a window.

    ``chosen`` is the release that is published; it is marked.
    """
    require("matplotlib", "plot", "drawing the curve")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    draw_leakage_curve(axes, points)
    axes.plot([chosen.distortion], [chosen.leakage_bits], "o", color=COLOURS[0], markersize=11,
              fillstyle="none", label=f"this release (λ = {chosen.multiplier:.3g})")  # fmt: skip
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(target, format=kind, dpi=130)


def draw_leakage_curve(axes: Any, points: Sequence[CurvePoint], *, title: str = "") -> None:
    """The least leakage at each distortion, the comparators', and the most about one person."""
    distortion = [point.distortion for point in points]
    leakage = [point.leakage_bits for point in points]
    axes.plot(distortion, leakage, color=COLOURS[0], marker="o", markersize=4,
              label="least leakage (this mechanism)")  # fmt: skip
    names = dict.fromkeys(name for point in points for name in point.comparators_bits)
    for number, name in enumerate(names, start=1):
        found = [point for point in points if name in point.comparators_bits]
        axes.plot([point.distortion for point in found],
                  [point.comparators_bits[name] for point in found],
                  color=COLOURS[number], marker="sx"[number % 2], markersize=5 - number,
                  linestyle=("--", ":")[number % 2], label=_LABELS.get(name, name))  # fmt: skip
    axes.plot(distortion, [point.personal_bits for point in points], color=COLOURS[6],
              linestyle=":", label="most about one person")  # fmt: skip
    axes.set(xlabel="distortion (people)", ylabel="leakage (bits)", title=title)
    axes.set_xlim(left=0.0)
    axes.set_ylim(bottom=0.0)
    axes.grid(color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
