"""FREEWILL, Figs 2 to 14 and Tables 1 and 2: the methods against each other, in curves and in a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

import numpy as np

from geoveil.papers import report
from geoveil.papers.free_will import populations
from geoveil.papers.free_will.populations import GENERAL, INVERTED, RESULTS, UPDATED, Simulated
from geoveil.papers.report import Claim, Experiment, Measured, Setting, Verdict, experiment
from geoveil.plot.curves import Curve

Test = Callable[[str, Simulated, Sequence[str]], Claim]
"""A claim about one panel and the methods beside GIBU."""

_SIGNIFICANT = 1.5
_SIMILAR = 1.25


def better(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """GIBU has the least mean error, however many people there are."""
    leads = one.least(methods) > one.errors[GENERAL].mean(axis=1)
    figures = f"at {report.share(leads)} numbers of people; with the most {_finals(one, methods)}"
    return Claim(f"{panel}: GIBU is better", leads.all(), figures)


def significantly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """With the most people the best of the others has at least one and a half times the error."""
    ratio = one.least(methods)[-1] / one.final(GENERAL)
    words = f"{panel}: GIBU is significantly better"
    return Claim(words, ratio >= _SIGNIFICANT, f"{ratio:.1f} times the error")


def slightly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """With the most people the best of the others has less than one and a half times the error."""
    ratio = one.least(methods)[-1] / one.final(GENERAL)
    words = f"{panel}: GIBU is slightly better"
    return Claim(words, 1 < ratio < _SIGNIFICANT, f"{ratio:.2f} times the error")


def clearly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Over all numbers of people the best of the others has at least a quarter more error."""
    holds = one.behind(methods) >= _SIMILAR
    return Claim(f"{panel}: GIBU is clearly better", holds, _on_average(one, methods))


def similar(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Over all numbers of people the best of the others is within a quarter of GIBU."""
    holds = 1 / _SIMILAR < one.behind(methods) < _SIMILAR
    return Claim(f"{panel}: the performances are similar", holds, _on_average(one, methods))


def projection_better(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Projection has significantly less error than normalisation, with the most people."""
    normalised, projected = (one.final(method) for method in INVERTED)
    words = f"{panel}: projection is significantly better than normalisation"
    figures = f"{projected:.3g} against {normalised:.3g} {one.units}"
    return Claim(words, normalised >= _SIGNIFICANT * projected, figures)


def behind_inversion(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """§8.2.1: [IBU]_M is worse than [INV]_M with projection."""
    updated, projected = one.final(UPDATED), one.final(INVERTED[1])
    figures = f"{updated:.3g} against {projected:.3g} {one.units}"
    return Claim(f"{panel}: [IBU]_M is worse than [INV]_M", updated > projected, figures)


def stalls(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """§1.1: with Shokri's mechanisms [IBU]_M may not converge: more people hardly help."""
    (*_, before, last), (*_, fewer, most) = one.least(methods), one.people
    figures = f"{before:.3g} {one.units} with {fewer:,} people, {last:.3g} with {most:,}"
    return Claim(f"{panel}: [IBU]_M does not converge to the truth", last >= 0.8 * before, figures)


def _finals(one: Simulated, methods: Sequence[str]) -> str:
    others = ", ".join(f"{method} {one.final(method):.3g}" for method in methods)
    return f"GIBU {one.final(GENERAL):.3g} {one.units}, {others}"


def _on_average(one: Simulated, methods: Sequence[str]) -> str:
    ratio = f"{one.behind(methods):.2f} times the error on average"
    return f"{ratio}; with the most people {_finals(one, methods)}"


def figure(
    number: int, kind: populations.Kind | Literal["RAPPOR"], panels: tuple[str, ...],
    methods: tuple[str, ...], statement: str, tests: tuple[Test, ...], note: str = "",
) -> Experiment:  # fmt: skip
    """A figure of the paper: a mixture, its panels, the methods beside GIBU, and what is said of them."""

    def judge(errors: Mapping[str, Simulated]) -> Verdict:
        """Every claim about every panel; under RAPPOR of Fig. 14 each regime has its own."""
        pairs = [(panel, test) for panel in panels for test in tests]
        if similar in tests:
            pairs = list(zip(panels, tests, strict=True))
        claims = [test(panel.capitalize(), errors[panel], methods) for panel, test in pairs]
        return Verdict.of(*claims, note=note)

    def measure(setting: Setting) -> Measured:
        if kind == "RAPPOR":
            errors = {regime: populations.simulated_rappor(regime, setting) for regime in panels}
        else:
            alphabets = cast("tuple[populations.Alphabet, ...]", panels)
            errors = {each: populations.simulated(kind, each, setting) for each in alphabets}
        shown = (GENERAL, *methods)
        curves = {
            panel: [Curve(m, np.array(one.people, float), one.errors[m].T) for m in shown]
            for panel, one in errors.items()
        }
        labels = [f"earth mover's distance ({one.units})" for one in errors.values()]
        columns = ("panel", "unit", "people", *(f"EMD, {method}" for method in shown))
        rows = [
            [panel, one.units, size, *(one.errors[method][at].mean() for method in shown)]
            for panel, one in errors.items()
            for at, size in enumerate(one.people)
        ]
        draw = report.curves(curves, "people", labels, x_scale="log", y_scale="log")
        numbers = {
            f"{panel}: {method} over GIBU": one.final(method) / one.final(GENERAL)
            for panel, one in errors.items()
            for method in methods
        }
        return Measured((errors,), columns, rows, draw, numbers, (4.8 * len(errors) + 0.6, 3.8))

    others = ", ".join(dict.fromkeys(method.split(",")[0] for method in methods))
    title = f"Fig. {number}: {others} and GIBU, {kind} mechanisms"
    return Experiment(f"figure-{number}", title, " ".join(statement.split()), judge, measure)


_LINE, _BOTH, _REGIMES = ("linear",), ("linear", "planar"), tuple(populations.RAPPOR)
_FAR: tuple[Test, ...] = (better, significantly)
_MIXED: populations.Kind = "geometric and k-RR"
_POOR = """Combining the results of separate estimates is significantly poorer than GIBU, because every
    estimate sees only a small part of the reports."""
_RAPPOR_POOR = "Combining the results of ten RAPPOR estimates is bad in both regimes (Table 2)."
_INVERTED = "GIBU is {} than [INV]_M on both alphabets."
_PROJECTED = """Projection is significantly better than normalisation for [INV]_M, and GIBU slightly
    outperforms [INV]_M with projection."""
_PRETENDS = """GIBU outperforms [IBU]_M, which pretends that the average mechanism made all reports and is
    worse than [INV]_M too."""
_SUPERIOR = "GIBU is superior to [IBU]_M on both alphabets."
_STALLS = (
    "GIBU is superior to [IBU]_M, which may not converge to the truth with many people (§1.1)."
)
_ENTROPY = "Of the many optimal strategies ours have the largest entropy, and their average can be inverted."
_SIMILAR_WORDS = (
    "[RAP]_M and GIBU are similar at high privacy, while GIBU is clearly better at low privacy."
)

FIGURES = (
    figure(2, "RAPPOR", _REGIMES, populations.RAPPOR_RESULTS, _RAPPOR_POOR, _FAR),
    figure(3, "k-RR", _LINE, RESULTS, _POOR, _FAR),
    figure(4, _MIXED, _LINE, RESULTS, _POOR, _FAR),
    figure(5, "geometric", _LINE, RESULTS, _POOR, _FAR),
    figure(6, "Shokri's", _LINE, RESULTS[-1:], _POOR, _FAR),
    figure(7, "k-RR", _BOTH, INVERTED, _PROJECTED, (projection_better, better, slightly)),
    figure(8, "geometric", _BOTH, INVERTED, _INVERTED.format("significantly better"), _FAR),
    figure(9, _MIXED, _BOTH, INVERTED, _INVERTED.format("better"), (better,)),
    figure(10, "k-RR", _BOTH, (UPDATED,), _PRETENDS, (better, behind_inversion)),
    figure(11, "geometric", _BOTH, (UPDATED,), _SUPERIOR, (better,)),
    figure(12, _MIXED, _BOTH, (UPDATED,), _SUPERIOR, (better,)),
    figure(13, "Shokri's", _BOTH, (UPDATED,), _STALLS, (better, stalls), note=_ENTROPY),
    figure(
        14, "RAPPOR", _REGIMES, populations.RAPPOR_MECHANISMS, _SIMILAR_WORDS, (similar, clearly)
    ),
)


# --- Tables 1 and 2: every method under every mixture, in a word


EXCELLENT, GOOD, BAD = "Excellent", "Good", "Bad"
_EXCELLENT_UP_TO, _GOOD_UP_TO = 1.3, 2.2

COMPARED = {
    "[INV]_R": RESULTS[:2],
    "[IBU]_R": RESULTS[2:],
    "[INV]_M": INVERTED,
    "[IBU]_M": (UPDATED,),
    "[RAP]_R": populations.RAPPOR_RESULTS,
    "[RAP]_M": populations.RAPPOR_MECHANISMS,
}

PUBLISHED_1: dict[populations.Kind, dict[str, str]] = {
    "k-RR": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": EXCELLENT, "[IBU]_M": GOOD},
    "geometric": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": BAD, "[IBU]_M": BAD},
    "geometric and k-RR": {"[INV]_R": BAD, "[IBU]_R": BAD, "[INV]_M": BAD, "[IBU]_M": BAD},
    "Shokri's": {"[IBU]_R": BAD, "[IBU]_M": BAD},
}
PUBLISHED_2 = {
    "high privacy": {"[RAP]_R": BAD, "[RAP]_M": EXCELLENT},
    "low privacy": {"[RAP]_R": BAD, "[RAP]_M": GOOD},
}
_SCALE = (
    f"Ours is {EXCELLENT} up to {_EXCELLENT_UP_TO:g} times the EMD of GIBU with the most people, {GOOD} up "
    f"to {_GOOD_UP_TO:g} times, else {BAD}."
)


def rating(ratio: float) -> str:
    """A word for the error of a method over that of GIBU.

    >>> rating(1.1), rating(2.0), rating(7.0)
    ('Excellent', 'Good', 'Bad')
    """
    return EXCELLENT if ratio <= _EXCELLENT_UP_TO else GOOD if ratio <= _GOOD_UP_TO else BAD


def judge_words(rows: Sequence[Sequence[str | float]]) -> Verdict:
    """Tables 1 and 2: GIBU is excellent, and every other method has the word printed for it."""
    ahead = np.array([float(row[3]) for row in rows]) >= 1
    least = f"it has the least error in {report.share(ahead)} comparisons"
    claims = [Claim("GIBU is excellent", ahead.all(), least)]
    for method in dict.fromkeys(str(row[2]) for row in rows):
        own = [row for row in rows if row[2] == method]
        other = [
            f"{row[4]}, {row[3]:.2f} times, under {row[0]}, {row[1]}"
            for row in own
            if row[4] != row[5]
        ]
        words = "; ".join([f"{len(own) - len(other)} of {len(own)} words are the same", *other])
        claims.append(Claim(f"the words for {method}", not other, words))
    return Verdict.of(*claims, note=_SCALE)


def _rated(errors: Mapping[tuple[str, str], tuple[Simulated, Mapping[str, str]]]) -> Measured:
    """One row for each mixture, alphabet and method, from the errors and the words of the paper."""
    rows: list[list[str | float]] = []
    for key, (one, published) in errors.items():
        for method, word in published.items():
            if all(name in one.errors for name in COMPARED[method]):
                ratio = min(one.final(name) for name in COMPARED[method]) / one.final(GENERAL)
                rows.append([*key, method, ratio, rating(ratio), word])
    columns = "mixture | alphabet | method | EMD over that of GIBU | ours | the paper"
    numbers = {"same": sum(row[4] == row[5] for row in rows), "words": len(rows)}
    return Measured((rows,), columns, rows, numbers=numbers)


@experiment("Table 1: the methods in a word", judge_words)
def table_1(setting: Setting) -> Measured:
    """GIBU is excellent under every mixture; of the others only [INV]_M under k-RR is excellent and
    [IBU]_M under k-RR good, all else is bad.
    """
    alphabets: tuple[populations.Alphabet, ...] = ("linear", "planar")
    return _rated({
        (kind, alphabet): (populations.simulated(kind, alphabet, setting), published)
        for kind, published in PUBLISHED_1.items()
        for alphabet in alphabets
    })  # fmt: skip


@experiment("Table 2: the methods under RAPPOR in a word", judge_words)
def table_2(setting: Setting) -> Measured:
    """[RAP]_R is bad; [RAP]_M is excellent at high and good at low privacy; GIBU is excellent."""
    return _rated({
        (f"RAPPOR, {regime}", "linear"): (populations.simulated_rappor(regime, setting), published)
        for regime, published in PUBLISHED_2.items()
    })  # fmt: skip
