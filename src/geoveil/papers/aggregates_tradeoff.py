"""AGG, Figs 5 to 8: leakage against distortion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np

import geoveil as gv
from geoveil.arrays import ArrayLike, FloatArray, IntArray
from geoveil.errors import percent
from geoveil.papers import report
from geoveil.papers.report import Claim, Draw, Measured, Setting, Verdict, experiment
from geoveil.plot.curves import COLOURS
from geoveil.release import CurvePoint, GeometricCounting, SimpleCounting

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
        (0.421, 0.129, 0.450), (0.415, 0.219, 0.366), (0.188, 0.777, 0.035), (0.659, 0.110, 0.231),
        (0.449, 0.379, 0.172),
    ),
    "C3": ((0.06, 0.9, 0.04), (0.8, 0.1, 0.1), (0.2, 0.7, 0.1), (0.1, 0.05, 0.85), (0.75, 0.15, 0.1)),
    "C4": (_FIRST, _EVEN, _EVEN, _EVEN, _EVEN),
    "C5": (_SECOND, _THIRD, _FIRST, _EVEN, _EVEN),
    "C6": (_SECOND, _THIRD, _SECOND, _THIRD, _FIRST),
}  # fmt: skip
MULTIPLIERS = (0.4, 0.5, 0.63, 0.8, 1.0, 1.26, 1.6, 2.0, 2.5, 3.2, 4.0)
QUICK_MULTIPLIERS = (0.5, 1.0, 2.0)
COLUMNS = """λ | distortion (people) | leakage (bits) | certificate (nats) |
    most about one person (bits) | SCM at equal distortion (bits) |
    geometric at equal distortion (bits) | certified optimum: distortion |
    certified optimum: leakage (bits)"""
_ROUNDING_BITS = 1e-9


def published(
    people: int, prior: ArrayLike, multiplier: float, threshold: float = THRESHOLD
) -> gv.CountRelease:
    """The release of Algorithm 1, stopped by its threshold."""
    return gv.CountRelease.as_published(
        people=people, prior=prior, multiplier=multiplier, threshold=threshold
    )


class Series(NamedTuple):
    """One curve of the paper: Algorithm 1 with its threshold, and the certified optimum beside it."""

    name: str
    points: Sequence[CurvePoint]
    optimum: Sequence[CurvePoint]

    def rows(self) -> list[list[float | None]]:
        """One row for each multiplier, in the order of ``COLUMNS``."""
        rows = []
        for point, best in zip(self.points, self.optimum, strict=True):
            *own, beside = astuple(point)
            others = [beside.get(kind.name) for kind in (SimpleCounting, GeometricCounting)]
            rows.append([*own, *others, best.distortion, best.leakage_bits])
        return rows


def series(setting: Setting, name: str, people: int, prior: ArrayLike) -> Series:
    """The curve of Algorithm 1 for one prior or one row per person, comparators tuned to it."""
    multipliers = setting.pick(MULTIPLIERS, QUICK_MULTIPLIERS)
    points = gv.leakage_curve(
        lambda rate: published(people, prior, rate), multipliers, (SimpleCounting, GeometricCounting)
    )  # fmt: skip
    optimum = gv.leakage_curve(
        lambda rate: gv.CountRelease(people=people, prior=prior, multiplier=rate), multipliers
    )
    return Series(name, points, optimum)


def disorder_bits(*curves: Series) -> float:
    """By how much any curve leaks more than the one before it at a distortion that all have; 0 if none."""
    reached = [[point.distortion for point in curve.points] for curve in curves]
    shared = np.linspace(max(map(min, reached)), min(map(max, reached)), 25)
    optima = [sorted((p.distortion, p.leakage_bits) for p in curve.optimum) for curve in curves]
    levels = [np.interp(shared, *np.transpose(optimum)) for optimum in optima]
    return max(0.0, float(np.diff(levels, axis=0).max()))


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


def _panels(panels: Mapping[str, Sequence[Series]]) -> Draw:
    """Leakage against distortion, ours beside SCM, one panel for each group of curves."""

    def draw(figure: Any) -> None:
        columns = min(2, len(panels))
        axes = figure.subplots(-(-len(panels) // columns), columns, squeeze=False).ravel()
        for part, (title, curves) in zip(axes, panels.items(), strict=True):
            for colour, line, curve in zip(COLOURS, ("-", "-", "-", ":"), curves, strict=False):
                _, distortion, leakage, *_, scm, _, _, _ = np.array(
                    curve.rows(), dtype=np.float64
                ).T
                part.plot(distortion, leakage, color=colour, linestyle=line,
                          label=f"{curve.name}, least leakage")  # fmt: skip
                part.plot(distortion, scm, "--s", color=colour, linewidth=1, markersize=2.5,
                          label=f"{curve.name}, SCM")  # fmt: skip
            part.set(title=title, xlabel="distortion (people)", ylabel="leakage (bits)")
            part.set_ylim(bottom=0)
            part.set_xlim(left=0)
        axes[0].legend(fontsize=6, ncols=2)

    return draw


def _less_than_scm(ratio: float, whose: str = "") -> Claim:
    """Less leakage than SCM at equal distortion, from the least ratio of the two."""
    words = f"the mechanism always leaks less than SCM at equal distortion{whose}"
    return Claim(words, ratio > 1, f"SCM leaks at least {ratio:.3f} times as much")


# --- Figures 5 and 6: for common and for personal priors


PEOPLE, QUICK_PEOPLE = (5, 10, 15, 20), (5, 10)


def judge_common(ratio: float, apart_bits: float, order_bits: float, gap_bits: float) -> Verdict:
    """§5.2.1: below SCM in all cases, p3 and p4 alike and lowest, p1 highest."""
    return Verdict.of(
        _less_than_scm(ratio),
        Claim("the curves of p3 and p4 coincide", apart_bits < 1e-6, f"{apart_bits:.1g} bits apart"),
        Claim("at equal distortion p1 leaks most, then p2, and p3 and p4 least",
              order_bits <= _ROUNDING_BITS, f"out of order by {order_bits:.1g} bits at most"),
        note=f"Stopped by its threshold, Algorithm 1 is at most {gap_bits:.3f} bits above the least leakage "
        "at its distortion.",
    )  # fmt: skip


@experiment("Figure 5: leakage and distortion when everybody has the same prior", judge_common)
def figure_5(setting: Setting) -> Measured:
    """The mechanism leaks less than SCM at equal distortion in all cases; the curves of p3 and p4
    coincide and are the lowest, that of p1 is the highest.
    """
    groups = {
        people: [series(setting, name, people, prior) for name, prior in PRIORS.items()]
        for people in setting.each(setting.pick(PEOPLE, QUICK_PEOPLE), "{} people")
    }
    every = [curve for curves in groups.values() for curve in curves]
    apart = [
        abs(one.leakage_bits - other.leakage_bits)
        for curves in groups.values()
        for one, other in zip(curves[2].points, curves[3].points, strict=True)
    ]
    order = max(disorder_bits(*curves[:3]) for curves in groups.values())
    certificates = [point.certificate_nats for curve in every for point in curve.points]
    ratio, gap = least_ratio(every), max(certificates) / float(np.log(2))
    figures = (ratio, max(apart), order, gap)
    rows = [
        [people, curve.name, *row]
        for people, curves in groups.items()
        for curve in curves
        for row in curve.rows()
    ]
    draw = _panels({f"{people} people": curves for people, curves in groups.items()})
    numbers = {"least_ratio_of_scm": ratio, "ratio_of_scm_at_1": least_ratio(every, 1.0)}
    numbers["largest_gap_bits"] = gap
    return Measured(figures, f"people | prior | {COLUMNS}", rows, draw, numbers, (8.4, 6.2))


def judge_personal(
    ratio: float, orders_bits: tuple[float, float], advantage: Sequence[float]
) -> Verdict:
    """§5.2.2: below SCM, less leakage and a greater advantage the more priors are skewed."""
    first, second = orders_bits
    return Verdict.of(
        _less_than_scm(ratio),
        Claim("C1 leaks most, then C2, then C3", first <= _ROUNDING_BITS,
              f"out of order by {first:.1g} bits at most"),
        Claim("the more people have skewed priors, the less leaks: C4 most, then C5, then C6",
              second <= _ROUNDING_BITS, f"out of order by {second:.1g} bits at most"),
        Claim("the advantage over SCM grows with the people who have skewed priors",
              advantage[3] < advantage[4] < advantage[5],
              f"at λ = 1 SCM leaks {report.listed(advantage)} times as much in C1 to C6"),
    )  # fmt: skip


@experiment("Figure 6: leakage and distortion when people have priors of their own", judge_personal)
def figure_6(setting: Setting) -> Measured:
    """The mechanism always leaks less than SCM, and less where more people have skewed priors: C1 most,
    then C2, C3; C4 most, then C5, C6. Its advantage over SCM becomes greater with more such people.
    """
    curves = [
        series(setting, name, len(CASES[name]), CASES[name])
        for name in setting.each(list(CASES), "{}")
    ]
    orders = disorder_bits(*curves[:3]), disorder_bits(*curves[3:])
    advantage = [least_ratio([curve], 1.0) for curve in curves]
    figures = (least_ratio(curves), orders, advantage)
    rows = [[curve.name, *row] for curve in curves for row in curve.rows()]
    draw = _panels({"cases 1 to 3": curves[:3], "cases 4 to 6": curves[3:]})
    numbers = {"least_ratio_of_scm": least_ratio(curves), "ratio_of_scm_at_1": min(advantage)}
    return Measured(figures, f"case | {COLUMNS}", rows, draw, numbers, (8.4, 3.6))


def judge_people(share: float, releases: int) -> Verdict:
    """§5.2.2: from the largest leakage about one person as a share of that about the counts."""
    words = "the largest leakage about one person is always less than that about the counts"
    return Verdict.of(
        Claim(words, share < 1, f"at most {percent(share, 0)} of it in {releases} releases")
    )


@experiment("Figure 7: leakage about the most exposed person and about the counts", judge_people)
def figure_7(setting: Setting) -> Measured:
    """The largest leakage about one person is always less than the leakage about the counts (Theorem 1)."""
    rows: list[list[Any]] = []
    for name in setting.each(list(CASES), "{}"):
        for rate in setting.pick(MULTIPLIERS, QUICK_MULTIPLIERS):
            release = published(len(CASES[name]), CASES[name], rate)
            chain, person = release.chain, int(release.personal_leakage_bits.argmax()) + 1
            leakage = [chain.personal_bits, person, chain.aggregate_bits]
            rows.append([name, rate, release.distortion, *leakage])
    share = max(row[3] / row[5] for row in rows if row[5] > 1e-6)

    def draw(figure: Any) -> None:
        groups = list(CASES)[:3], list(CASES)[3:]
        for axes, names in zip(figure.subplots(1, 2, sharey=True), groups, strict=True):
            for colour, name in zip(COLOURS, names, strict=False):
                own = [row[2:] for row in rows if row[0] == name]
                distortion, personal, _, counts = zip(*own, strict=True)
                axes.plot(distortion, counts, "-", color=colour, label=f"{name}, the counts")
                axes.plot(distortion, personal, "--", color=colour, label=f"{name}, one person")
            axes.set(xlabel="distortion (people)", ylabel="leakage (bits)", ylim=(0, None))
            axes.legend(fontsize=7)

    columns = """case | λ | distortion (people) | most about one person (bits) | person |
        about the counts (bits)"""
    numbers = {"largest_personal_share": share}
    return Measured((share, len(rows)), columns, rows, draw, numbers, (8.4, 3.6))


DATA = "gowalla-los-angeles"
_PEOPLE, _PLACES, _LEAST_VISITS = 5, 3, 20


def judge_visits(ratio: float, visits: int) -> Verdict:
    """§5.3: less leakage than SCM for five people and three places."""
    return Verdict.of(
        _less_than_scm(ratio, " for five users of Gowalla"),
        note=(
            f"Five people drawn at random from {DATA} ({visits} visits), places rounded to two digits, "
            "the three most frequent kept; those of the paper are not known, so the curve itself cannot "
            "be compared."
        ),
    )


@experiment("Figure 8: leakage and distortion on a real dataset", judge_visits)
def figure_8(setting: Setting) -> Measured:
    """For five users of Gowalla and three locations the mechanism always leaks less than SCM."""
    users, places = setting.data.visits(DATA)
    people, counts = np.unique(users, return_counts=True)
    active = people[counts >= _LEAST_VISITS]  # enough visits to tell where they go
    order = np.argsort(gv.seeded(setting.seed).uniform(active.size))
    chosen = np.sort(active[order[:_PEOPLE]])
    prior, popular = visit_shares(users, places, chosen)
    curve = series(setting, "five people", _PEOPLE, prior.tolist())
    ratio, visits = least_ratio([curve]), int(np.isin(users, chosen).sum())
    draw = _panels({"five people, three places": [curve]})
    numbers = {"least_ratio_of_scm": ratio, "visits": visits, "places": len(popular)}
    return Measured((ratio, visits), COLUMNS, curve.rows(), draw, numbers, (5.6, 3.8))


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
