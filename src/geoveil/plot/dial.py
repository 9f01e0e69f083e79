"""The dial as a picture: what each camouflage costs and hides at one promise."""

from __future__ import annotations

from typing import IO

from geoveil.collect.advice import Advice, Choice
from geoveil.errors import require
from geoveil.plot.curves import COLOURS

_SIDES = (
    ("mean distance (km)", "mean_distance_km"),
    ("leakage (bits)", "leakage_bits"),
    ("expected error of the map (km)", "expected_error_km"),
    ("attacker's belief in the isolated place", "isolated_posterior"),
    ("honest reports that a fake one may weigh for", "leverage"),
)


def save_dial(target: IO[bytes], kind: str, advice: Advice) -> None:
    """Write the dial as a picture of the given kind (png, svg or pdf), without a window."""
    require("matplotlib", "plot", "drawing the dial")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    beside = [choice for choice in advice.choices if choice.camouflage is None]
    *sides, legend = figure.subplots(2, 3).ravel()
    for axes, (title, name) in zip(sides, _SIDES, strict=True):
        dial = [choice.camouflage for choice in advice.dial]
        axes.plot(dial, _side(advice.dial, name), color=COLOURS[0], marker="o", markersize=4,
                  label="the dial")  # fmt: skip
        best = advice.recommended
        axes.plot([best.camouflage], _side((best,), name), "o", color=COLOURS[0], markersize=10,
                  fillstyle="none", label="recommended")  # fmt: skip
        for number, choice in enumerate(beside, start=1):
            axes.axhline(_side((choice,), name)[0], color=COLOURS[number], linestyle="--",
                         linewidth=1, label=choice.name)  # fmt: skip
        axes.set(title=title, xlabel="camouflage")
        if name == "leverage":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
    legend.axis("off")
    legend.legend(*sides[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.suptitle(f"Every setting keeps the promise: {advice.promise}")
    figure.savefig(target, format=kind, dpi=130)


def _side(choices: tuple[Choice, ...], name: str) -> list[float]:
    return [float(getattr(choice, name)) for choice in choices]
