"""AGG, Figs 4 to 8: leakage against distortion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import COLOURS
from geoveil.randomness import seeded
from geoveil.release import (
    CountRelease,
    CurvePoint,
    GeometricCounting,
    SimpleCounting,
    leakage_curve,
)

THRESHOLD = 1e-3
"""Nats; the paper's threshold for convergence."""

PRIORS: Mapping[str, Sequence[float]] = {
    "p1": (1 / 3, 1 / 3, 1 / 3),
    "p2": (0.25, 0.5, 0.25),
    "p3": (0.1, 0.1, 0.8),
    "p4": (0.8, 0.1, 0.1),
}
_EVEN, _FIRST, _SECOND, _THIRD = PRIORS["p1"], PRIORS["p4"], (0.1, 0.8, 0.1), PRIORS["p3"]
CASES: Mapping[str, Sequence[Sequence[float]]] = {
    "C1": (_EVEN,) * 5,
    "C2": (
        (0.421, 0.129, 0.450),
        (0.415, 0.219, 0.366),
        (0.188, 0.777, 0.035),
        (0.659, 0.110, 0.231),
        (0.449, 0.379, 0.172),
    ),
    "C3": (
        (0.06, 0.9, 0.04),
        (0.8, 0.1, 0.1),
        (0.2, 0.7, 0.1),
        (0.1, 0.05, 0.85),
        (0.75, 0.15, 0.1),
    ),
    "C4": (_FIRST, _EVEN, _EVEN, _EVEN, _EVEN),
    "C5": (_SECOND, _THIRD, _FIRST, _EVEN, _EVEN),
    "C6": (_SECOND, _THIRD, _SECOND, _THIRD, _FIRST),
}
MULTIPLIERS = (0.4, 0.5, 0.63, 0.8, 1.0, 1.26, 1.6, 2.0, 2.5, 3.2, 4.0)
QUICK_MULTIPLIERS = (0.5, 1.0, 2.0)
COLUMNS = (
    "λ",
    "distortion (people)",
    "leakage (bits)",
    "certificate (nats)",
    "most about one person (bits)",
    "SCM at equal distortion (bits)",
    "geometric at equal distortion (bits)",
    "certified optimum: distortion",
    "certified optimum: leakage (bits)",
)


@dataclass(frozen=True)
class Series:
    """One curve of the paper: Algorithm 1 with its threshold, and the certified optimum beside it."""

    name: str
    points: Sequence[CurvePoint]
    optimum: Sequence[CurvePoint]

    def rows(self) -> list[list[float | None]]:
        """One row for each multiplier, in the order of ``COLUMNS``."""
        return [
            [
                point.multiplier,
                point.distortion,
                point.leakage_bits,
                point.certificate_nats,
                point.personal_bits,
                point.comparators_bits.get(SimpleCounting.name),
                point.comparators_bits.get(GeometricCounting.name),
                best.distortion,
                best.leakage_bits,
            ]
            for point, best in zip(self.points, self.optimum, strict=True)
        ]

    @property
    def distortion(self) -> FloatArray:
        """E d(A, Ã) along the curve, in people."""
        return np.array([point.distortion for point in self.points])

    @property
    def leakage_bits(self) -> FloatArray:
        """I(A; Ã) along the curve."""
        return np.array([point.leakage_bits for point in self.points])

    def leakage_at(self, distortion: FloatArray) -> FloatArray:
        """The leakage at given distortions, between the points of the optimum."""
        found = sorted((point.distortion, point.leakage_bits) for point in self.optimum)
        return np.interp(distortion, *np.transpose(found))

    def ratio_at(self, multiplier: float) -> float:
        """How many times as much the simple counting mechanism leaks at the distortion of a multiplier."""
        (point,) = (point for point in self.points if point.multiplier == multiplier)
        return point.comparators_bits[SimpleCounting.name] / point.leakage_bits


def series(setting: Setting, name: str, people: int, prior: npt.ArrayLike) -> Series:
    """The curve of Algorithm 1 for one prior or one row per person, comparators tuned to it."""
    multipliers = QUICK_MULTIPLIERS if setting.quick else MULTIPLIERS

    def published(rate: float) -> CountRelease:
        return CountRelease.as_published(
            people=people, prior=prior, multiplier=rate, threshold=THRESHOLD
        )

    def certified(rate: float) -> CountRelease:
        return CountRelease(people=people, prior=prior, multiplier=rate)

    points = leakage_curve(published, multipliers, (SimpleCounting, GeometricCounting))
    return Series(name, points, leakage_curve(certified, multipliers))


def disorder_bits(*curves: Series) -> float:
    """By how much any curve leaks more than the one before it at a distortion that all have; 0 if none."""
    lowest = max(float(curve.distortion.min()) for curve in curves)
    highest = min(float(curve.distortion.max()) for curve in curves)
    shared = np.linspace(lowest, highest, 25)
    levels = np.stack([curve.leakage_at(shared) for curve in curves])
    return max(0.0, float(np.diff(levels, axis=0).max()))


# --- Figures 5 and 6: leakage against distortion, for common and for personal priors


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


# --- Figure 8: five people of a real dataset


DATA = "gowalla-los-angeles"
_PEOPLE, _PLACES, _LEAST_VISITS = 5, 3, 20


def _figure_8(setting: Setting) -> Finding:
    users, places = setting.data.visits(DATA)
    chosen = _drawn_people(users, setting.seed)
    prior, popular = visit_shares(users, places, chosen)
    curve = series(setting, "five people", _PEOPLE, prior.tolist())
    ratio = least_ratio([curve])
    visits = int(np.isin(users, chosen).sum())
    return Finding(
        *judge_visits(ratio, visits),
        table=Table.of(COLUMNS, curve.rows()),
        draw=partial(draw_panels, {"five people, three places": [curve]}),
        numbers={"least_ratio_of_scm": ratio, "visits": visits, "places": len(popular)},
        figure_size=(5.6, 3.8),
    )


def judge_visits(ratio: float, visits: int) -> Verdict:
    """§5.3: less leakage than SCM for five people and three places."""
    return Verdict.of(
        judge_scm(ratio, " for five users of Gowalla"),
        note=(
            f"Five people drawn at random from {DATA} ({visits} visits), places rounded to two digits, "
            "the three most frequent kept; those of the paper are not known, so the curve itself cannot "
            "be compared."
        ),
    )


def _drawn_people(users: IntArray, seed: int) -> IntArray:
    """Five people at random among those with enough visits to tell where they go."""
    people, visits = np.unique(users, return_counts=True)
    active = people[visits >= _LEAST_VISITS]
    order = np.argsort(seeded(seed).uniform(active.size))
    return np.sort(active[order[:_PEOPLE]])


def visit_shares(
    users: IntArray, places: IntArray, chosen: IntArray
) -> tuple[FloatArray, IntArray]:
    """Shares of the three most frequent rounded places in the visits of each person (AGG §5.3).

    One visit is added to each, so that no place is impossible.
    """
    own = np.isin(users, chosen)
    person, place = np.searchsorted(chosen, users[own]), two_digits(places[own])
    codes, frequency = np.unique(place, return_counts=True)
    popular = codes[np.argsort(-frequency, kind="stable")[:_PLACES]]
    visits = np.ones((chosen.size, _PLACES))
    for column, code in enumerate(popular):
        visits[:, column] += np.bincount(person[place == code], minlength=chosen.size)
    return visits / visits.sum(axis=1, keepdims=True), popular


def two_digits(codes: IntArray) -> IntArray:
    """Codes rounded to their two leading digits.

    >>> two_digits(np.array([1234567, 98, 7, 1995])).tolist()
    [1200000, 98, 7, 2000]
    """
    digits = np.floor(np.log10(np.maximum(codes, 1))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 1, 0)
    return (codes + unit // 2) // unit * unit


FIGURE_8 = Experiment(
    "figure-8",
    "Figure 8: leakage and distortion on a real dataset",
    "For five users of Gowalla and three locations the mechanism always leaks less than SCM.",
    _figure_8,
    judge_visits,
)
