"""Figures 5 and 6: leakage against distortion, for common and for personal priors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from geoveil.papers.aggregates.series import (
    CASES,
    COLUMNS,
    PRIORS,
    Series,
    disorder_bits,
    series,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import COLOURS
from geoveil.release import SimpleCounting

PEOPLE = (5, 10, 15, 20)
_QUICK_PEOPLE = (5, 10)
_ROUNDING_BITS = 1e-9


def _figure_5(setting: Setting) -> Finding:
    crowds = _QUICK_PEOPLE if setting.quick else PEOPLE
    found: dict[int, list[Series]] = {}
    for number, people in enumerate(crowds):
        setting.progress(number / len(crowds), f"{people} people")
        found[people] = [series(setting, name, people, prior) for name, prior in PRIORS.items()]
    every = [curve for curves in found.values() for curve in curves]
    alike = [curves[2].leakage_bits - curves[3].leakage_bits for curves in found.values()]
    order = max(disorder_bits(*curves[:3]) for curves in found.values())
    rows = [
        [people, curve.name, *row]
        for people, curves in found.items()
        for curve in curves
        for row in curve.rows()
    ]
    return Finding(
        *judge_common(least_ratio(every), float(np.abs(alike).max()), order, _largest_gap(every)),
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
    orders = disorder_bits(*curves[:3]), disorder_bits(*curves[3:])
    advantage = [curve.ratio_at(1.0) for curve in curves]
    rows = [[curve.name, *row] for curve in curves for row in curve.rows()]
    return Finding(
        *judge_personal(least_ratio(curves), orders, advantage),
        table=Table.of(("case", *COLUMNS), rows),
        draw=partial(draw_panels, {"cases 1 to 3": curves[:3], "cases 4 to 6": curves[3:]}),
        numbers={
            "least_ratio_of_scm": least_ratio(curves),
            "ratio_of_scm_at_1": least_ratio(curves, 1.0),
        },
        figure_size=(8.4, 3.6),
    )


def judge_scm(ratio: float, whose: str = "") -> Claim:
    """Less leakage than SCM at equal distortion, from the least ratio of the two."""
    return Claim(
        f"the mechanism always leaks less than SCM at equal distortion{whose}",
        ratio > 1,
        f"SCM leaks at least {ratio:.3f} times as much",
    )


def judge_common(ratio: float, apart_bits: float, order_bits: float, gap_bits: float) -> Verdict:
    """§5.2.1: below SCM in all cases, p3 and p4 alike and lowest, p1 highest."""
    return Verdict.of(
        judge_scm(ratio),
        Claim(
            "the curves of p3 and p4 coincide", apart_bits < 1e-6, f"{apart_bits:.1g} bits apart"
        ),
        Claim(
            "at equal distortion p1 leaks most, then p2, and p3 and p4 least",
            order_bits <= _ROUNDING_BITS,
            f"out of order by {order_bits:.1g} bits at most",
        ),
        note=(
            f"Stopped by its threshold, Algorithm 1 is at most {gap_bits:.3f} bits above the least leakage "
            "at its distortion."
        ),
    )


def judge_personal(
    ratio: float, orders_bits: tuple[float, float], advantage: Sequence[float]
) -> Verdict:
    """§5.2.2: below SCM, less leakage and a greater advantage the more priors are skewed."""
    first, second = orders_bits
    listed = ", ".join(f"{value:.2f}" for value in advantage)
    return Verdict.of(
        judge_scm(ratio),
        Claim(
            "C1 leaks most, then C2, then C3",
            first <= _ROUNDING_BITS,
            f"out of order by {first:.1g} bits at most",
        ),
        Claim(
            "the more people have skewed priors, the less leaks: C4 most, then C5, then C6",
            second <= _ROUNDING_BITS,
            f"out of order by {second:.1g} bits at most",
        ),
        Claim(
            "the advantage over SCM grows with the people who have skewed priors",
            advantage[3] < advantage[4] < advantage[5],
            f"at λ = 1 SCM leaks {listed} times as much in C1 to C6",
        ),
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
    judge_common,
)
FIGURE_6 = Experiment(
    "figure-6",
    "Figure 6: leakage and distortion when people have priors of their own",
    "The mechanism always leaks less than SCM, and less where more people have skewed priors: C1 most, "
    "then C2, C3; C4 most, then C5, C6. Its advantage over SCM becomes greater with more such people.",
    _figure_6,
    judge_personal,
)
