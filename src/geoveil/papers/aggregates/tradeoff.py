"""Figures 5 and 6: leakage against distortion, for common and for personal priors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from geoveil.papers.aggregates.series import CASES, COLUMNS, PRIORS, Series, in_order, series
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.plot.curves import COLOURS
from geoveil.release import SimpleCounting

PEOPLE = (5, 10, 15, 20)
_QUICK_PEOPLE = (5, 10)


def _figure_5(setting: Setting) -> Finding:
    crowds = _QUICK_PEOPLE if setting.quick else PEOPLE
    found: dict[int, list[Series]] = {}
    for number, people in enumerate(crowds):
        setting.progress(number / len(crowds), f"{people} people")
        found[people] = [series(setting, name, people, prior) for name, prior in PRIORS.items()]
    every = [curve for curves in found.values() for curve in curves]
    below = all(curve.is_below_comparators for curve in every)
    alike = all(
        np.allclose(curves[2].leakage_bits, curves[3].leakage_bits, atol=1e-6)
        for curves in found.values()
    )
    ordered = all(in_order(*curves[:3]) for curves in found.values())
    rows = [
        [people, curve.name, *row]
        for people, curves in found.items()
        for curve in curves
        for row in curve.rows()
    ]
    return Finding(
        agreement=Agreement.of(below, alike, ordered),
        conclusion=(
            f"{ratio_in_words(every)}, over {len(rows)} points; p3 and p4 "
            f"{'coincide' if alike else 'differ'}; "
            f"{'p1 leaks most, then p2, then p3' if ordered else 'the order p1, p2, p3 does not hold'}. "
            f"Stopped by its threshold, Algorithm 1 is at most {_largest_gap(every):.3f} bits above the "
            "least leakage at its distortion."
        ),
        table=Table.of(("people", "prior", *COLUMNS), rows),
        draw=partial(draw_panels, {f"{people} people": curves for people, curves in found.items()}),
        numbers={
            "least_ratio_of_scm": least_ratio(every),
            "ratio_of_scm_at_1": least_ratio(every, 1.0),
            "largest_gap_bits": _largest_gap(every),
        },
        figure_size=(8.4, 6.2),
    )


def _figure_6(setting: Setting) -> Finding:
    curves = []
    for number, (name, prior) in enumerate(CASES.items()):
        setting.progress(number / len(CASES), name)
        curves.append(series(setting, name, len(prior), prior))
    below = all(curve.is_below_comparators for curve in curves)
    first, second = in_order(*curves[:3]), in_order(*curves[3:])
    rows = [[curve.name, *row] for curve in curves for row in curve.rows()]
    return Finding(
        agreement=Agreement.of(below, first, second),
        conclusion=(
            f"C1 leaks most, then C2 and C3: {'yes' if first else 'no'}; C4 most, then C5 and C6: "
            f"{'yes' if second else 'no'}, at every distortion. {ratio_in_words(curves)}."
        ),
        table=Table.of(("case", *COLUMNS), rows),
        draw=partial(draw_panels, {"cases 1 to 3": curves[:3], "cases 4 to 6": curves[3:]}),
        numbers={
            "least_ratio_of_scm": least_ratio(curves),
            "ratio_of_scm_at_1": least_ratio(curves, 1.0),
        },
        figure_size=(8.4, 3.6),
    )


def least_ratio(curves: Sequence[Series], multiplier: float | None = None) -> float:
    """How many times as much the simple counting mechanism leaks, where it comes nearest.

    Over all multipliers, or at one of them.
    """
    return min(
        point.comparators_bits[SimpleCounting.name] / point.leakage_bits
        for curve in curves
        for point in curve.points
        if SimpleCounting.name in point.comparators_bits and multiplier in (None, point.multiplier)
    )


def ratio_in_words(curves: Sequence[Series]) -> str:
    """How much more the simple counting mechanism leaks at equal distortion."""
    return (
        f"At equal distortion the simple counting mechanism leaks at least {least_ratio(curves):.3f} "
        f"times as much everywhere and {least_ratio(curves, 1.0):.2f} times at λ = 1"
    )


def _largest_gap(curves: Sequence[Series]) -> float:
    """A bound on how far the threshold leaves Algorithm 1 above the least leakage, in bits."""
    return max(point.certificate_nats for curve in curves for point in curve.points) / float(
        np.log(2)
    )


def draw_panels(panels: dict[str, list[Series]], figure: Any) -> None:
    """Leakage against distortion, ours beside SCM, one panel for each group of curves."""
    columns = min(2, len(panels))
    axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).ravel()
    for each, (title, curves) in zip(axes, panels.items(), strict=True):
        for number, curve in enumerate(curves):
            colour, line = COLOURS[number], ("-", "-", "-", ":")[number]
            each.plot(curve.distortion, curve.leakage_bits, color=colour, linestyle=line,
                      label=f"{curve.name}, least leakage")  # fmt: skip
            each.plot(curve.distortion, [point.comparators_bits.get(SimpleCounting.name, np.nan)
                                         for point in curve.points],
                      color=colour, linestyle="--", linewidth=1, marker="s", markersize=2.5,
                      label=f"{curve.name}, SCM")  # fmt: skip
        each.set(title=title, xlabel="distortion (people)", ylabel="leakage (bits)")
        each.set_ylim(bottom=0)
        each.set_xlim(left=0)
    axes[0].legend(fontsize=6, ncols=2)


FIGURE_5 = Experiment(
    "figure-5",
    "Figure 5: leakage and distortion when everybody has the same prior",
    "The mechanism leaks less than SCM at equal distortion in all cases; the curves of p3 and p4 "
    "coincide and are the lowest, that of p1 is the highest.",
    _figure_5,
)
FIGURE_6 = Experiment(
    "figure-6",
    "Figure 6: leakage and distortion when people have priors of their own",
    "The mechanism always leaks less than SCM, and less where more people have skewed priors: C1 most, "
    "then C2, C3; C4 most, then C5, C6.",
    _figure_6,
)
