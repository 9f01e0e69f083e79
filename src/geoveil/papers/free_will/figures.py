"""Figures 2 to 14: methods against each other under one mixture of mechanisms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

from geoveil.papers.free_will import rappor
from geoveil.papers.free_will.populations import (
    GENERAL,
    INVERTED,
    RAPPOR,
    RESULTS,
    UPDATED,
    Alphabet,
    Kind,
    Simulated,
    simulated,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import draw_curves

Found = Mapping[str, Simulated]
"""The panels of a figure: the alphabet or the regime, and what was simulated there."""
Test = Callable[[str, Simulated, Sequence[str]], Claim]
"""A claim about one panel and the methods beside GIBU."""

_SIGNIFICANT = 1.5
_SIMILAR = 1.25


def better(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """GIBU has the least mean error, however many people there are."""
    own, leads = (
        one.errors[GENERAL].mean(axis=1),
        one.least(methods) > one.errors[GENERAL].mean(axis=1),
    )
    return Claim(
        f"{panel}: GIBU is better",
        bool(leads.all()),
        f"at {int(leads.sum())} of {len(own)} numbers of people; with the most {_told(one, methods)}",
    )


def significantly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """With the most people the best of the others has at least one and a half times the error."""
    ratio = _ratio(one, methods)
    return Claim(
        f"{panel}: GIBU is significantly better",
        ratio >= _SIGNIFICANT,
        f"{ratio:.1f} times the error",
    )


def clearly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Over all numbers of people the best of the others has at least a quarter more error."""
    ratio = one.behind(methods)
    return Claim(
        f"{panel}: GIBU is clearly better",
        ratio >= _SIMILAR,
        f"{ratio:.2f} times the error on average; with the most people {_told(one, methods)}",
    )


def similar(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Over all numbers of people the best of the others is within a quarter of GIBU."""
    ratio = one.behind(methods)
    return Claim(
        f"{panel}: the performances are similar",
        1 / _SIMILAR < ratio < _SIMILAR,
        f"{ratio:.2f} times the error on average; with the most people {_told(one, methods)}",
    )


def slightly(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """With the most people the best of the others has less than one and a half times the error."""
    ratio = _ratio(one, methods)
    return Claim(
        f"{panel}: GIBU is slightly better",
        1 < ratio < _SIGNIFICANT,
        f"{ratio:.2f} times the error",
    )


def projection_better(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """Projection has significantly less error than normalisation, with the most people."""
    normalised, projected = (one.final(method) for method in INVERTED)
    return Claim(
        f"{panel}: projection is significantly better than normalisation",
        normalised >= _SIGNIFICANT * projected,
        f"{projected:.3g} against {normalised:.3g} {one.units}",
    )


def behind_inversion(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """§8.2.1: [IBU]_M is worse than [INV]_M with projection."""
    updated, projected = one.final(UPDATED), one.final(INVERTED[1])
    return Claim(
        f"{panel}: [IBU]_M is worse than [INV]_M",
        updated > projected,
        f"{updated:.3g} against {projected:.3g} {one.units}",
    )


def stalls(panel: str, one: Simulated, methods: Sequence[str]) -> Claim:
    """§1.1: with Shokri's mechanisms [IBU]_M may not converge: more people hardly help."""
    error = one.least(methods)
    return Claim(
        f"{panel}: [IBU]_M does not converge to the truth",
        bool(error[-1] >= 0.8 * error[-2]),
        f"{error[-2]:.3g} {one.units} with {one.people[-2]:,} people, {error[-1]:.3g} with "
        f"{one.people[-1]:,}",
    )


def _ratio(one: Simulated, methods: Sequence[str]) -> float:
    return float(one.least(methods)[-1]) / one.final(GENERAL)


def _told(one: Simulated, methods: Sequence[str]) -> str:
    others = ", ".join(f"{method} {one.final(method):.3g}" for method in methods)
    return f"GIBU {one.final(GENERAL):.3g} {one.units}, {others}"


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: a mixture, its panels, the methods beside GIBU, and what is said of them."""

    number: int
    kind: Kind | Literal["RAPPOR"]
    panels: tuple[str, ...]
    methods: tuple[str, ...]
    statement: str
    tests: tuple[Test, ...]
    note: str = ""

    def experiment(self) -> Experiment:
        """The figure as an experiment."""
        others = ", ".join(dict.fromkeys(method.split(",")[0] for method in self.methods))
        return Experiment(
            name=f"figure-{self.number}",
            title=f"Fig. {self.number}: {others} and GIBU, {self.kind} mechanisms",
            statement=self.statement,
            run=self._run,
            judge=self.judge,
        )

    def judge(self, found: Found) -> Verdict:
        """Every claim about every panel; under RAPPOR of Fig. 14 each regime has its own."""
        pairs = [(panel, test) for panel in self.panels for test in self.tests]
        if similar in self.tests:
            pairs = list(zip(self.panels, self.tests, strict=True))
        claims = [test(panel.capitalize(), found[panel], self.methods) for panel, test in pairs]
        return Verdict.of(*claims, note=self.note)

    def _found(self, setting: Setting) -> Found:
        if self.kind == "RAPPOR":
            return {regime: rappor.simulated_rappor(regime, setting) for regime in self.panels}
        alphabets = cast("tuple[Alphabet, ...]", self.panels)
        return {each: simulated(self.kind, each, setting) for each in alphabets}

    def _run(self, setting: Setting) -> Finding:
        found, shown = self._found(setting), (GENERAL, *self.methods)
        return Finding(
            *self.judge(found),
            table=_table(found, shown),
            draw=partial(_draw, found, shown),
            numbers={
                f"{panel}: {method} over GIBU": one.final(method) / one.final(GENERAL)
                for panel, one in found.items()
                for method in self.methods
            },
            figure_size=(4.8 * len(found) + 0.6, 3.8),
        )


def _table(found: Found, methods: Sequence[str]) -> Table:
    rows = [
        [panel, one.units, size, *(float(one.errors[method][at].mean()) for method in methods)]
        for panel, one in found.items()
        for at, size in enumerate(one.people)
    ]
    return Table.of(("panel", "unit", "people", *(f"EMD, {method}" for method in methods)), rows)


def _draw(found: Found, methods: Sequence[str], figure: Any) -> None:
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for each, (panel, one) in zip(axes, found.items(), strict=True):
        draw_curves(
            each,
            [one.curve(method) for method in methods],
            x_label="people",
            y_label=f"earth mover's distance ({one.units})",
            title=panel,
            x_scale="log",
            y_scale="log",
        )


_LINE, _BOTH, _REGIMES = ("linear",), ("linear", "planar"), tuple(RAPPOR)
_FAR: tuple[Test, ...] = (better, significantly)
_MIXED: Kind = "geometric and k-RR"
_POOR = (
    "Combining the results of separate estimates is significantly poorer than GIBU, because every "
    "estimate sees only a small part of the reports."
)
_RAPPOR_POOR = "Combining the results of ten RAPPOR estimates is bad in both regimes (Table 2)."
_INVERTED = "GIBU is {} than [INV]_M on both alphabets."
_PROJECTED = (
    "Projection is significantly better than normalisation for [INV]_M, and GIBU slightly outperforms "
    "[INV]_M with projection."
)
_PRETENDS = (
    "GIBU outperforms [IBU]_M, which pretends that the average mechanism made all reports and is worse "
    "than [INV]_M too."
)
_SUPERIOR = "GIBU is superior to [IBU]_M on both alphabets."
_STALLS = (
    "GIBU is superior to [IBU]_M, which may not converge to the truth with many people (§1.1)."
)
_ENTROPY = "Of the many optimal strategies ours have the largest entropy, and their average can be inverted."
_SIMILAR_WORDS = (
    "[RAP]_M and GIBU are similar at high privacy, while GIBU is clearly better at low privacy."
)

FIGURES = tuple(
    figure.experiment()
    for figure in (
        Figure(2, "RAPPOR", _REGIMES, rappor.RESULTS, _RAPPOR_POOR, _FAR),
        Figure(3, "k-RR", _LINE, RESULTS, _POOR, _FAR),
        Figure(4, _MIXED, _LINE, RESULTS, _POOR, _FAR),
        Figure(5, "geometric", _LINE, RESULTS, _POOR, _FAR),
        Figure(6, "Shokri's", _LINE, RESULTS[-1:], _POOR, _FAR),
        Figure(7, "k-RR", _BOTH, INVERTED, _PROJECTED, (projection_better, better, slightly)),
        Figure(8, "geometric", _BOTH, INVERTED, _INVERTED.format("significantly better"), _FAR),
        Figure(9, _MIXED, _BOTH, INVERTED, _INVERTED.format("better"), (better,)),
        Figure(10, "k-RR", _BOTH, (UPDATED,), _PRETENDS, (better, behind_inversion)),
        Figure(11, "geometric", _BOTH, (UPDATED,), _SUPERIOR, (better,)),
        Figure(12, _MIXED, _BOTH, (UPDATED,), _SUPERIOR, (better,)),
        Figure(13, "Shokri's", _BOTH, (UPDATED,), _STALLS, (better, stalls), note=_ENTROPY),
        Figure(14, "RAPPOR", _REGIMES, rappor.MECHANISMS, _SIMILAR_WORDS, (similar, clearly)),
    )
)
