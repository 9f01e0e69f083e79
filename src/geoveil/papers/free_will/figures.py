"""Figures 3 to 13: methods against each other under one mixture of mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from geoveil.papers.free_will.mixtures import Alphabet, Kind
from geoveil.papers.free_will.simulation import (
    GENERAL,
    INVERTED,
    RESULTS,
    UPDATED,
    Simulated,
    simulated,
)
from geoveil.papers.report import Agreement, Experiment, Finding, Number, Setting, Table
from geoveil.plot.curves import draw_curves


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: a mixture, the alphabets shown, and the methods beside GIBU."""

    number: int
    kind: Kind
    alphabets: tuple[Alphabet, ...]
    methods: tuple[str, ...]
    statement: str
    factor: float
    """GIBU is at least this many times better than the best other method with the most people."""
    stalls: bool = False
    """Whether the paper says that the other method need not come closer with more people."""

    def experiment(self) -> Experiment:
        """The figure as an experiment."""
        others = ", ".join(dict.fromkeys(method.split(",")[0] for method in self.methods))
        return Experiment(
            name=f"figure-{self.number}",
            title=f"Fig. {self.number}: {others} and GIBU, {self.kind} mechanisms",
            statement=self.statement,
            run=self._run,
        )

    def _run(self, setting: Setting) -> Finding:
        found = {each: simulated(self.kind, each, setting) for each in self.alphabets}
        ratios = {each: self._ratios(one) for each, one in found.items()}
        return Finding(
            agreement=Agreement.of(*self._conditions(ratios, found)),
            conclusion=" ".join(self._words(each, one) for each, one in found.items()),
            table=_table(found, (GENERAL, *self.methods)),
            draw=partial(_draw, found, (GENERAL, *self.methods)),
            numbers=_numbers(ratios),
            figure_size=(4.8 * len(found) + 0.6, 3.8),
        )

    def _ratios(self, one: Simulated) -> dict[str, float]:
        return {method: one.final(method) / one.final(GENERAL) for method in self.methods}

    def _conditions(
        self, ratios: dict[Alphabet, dict[str, float]], found: dict[Alphabet, Simulated]
    ) -> list[bool]:
        """GIBU ahead by the factor and at every size; for [INV]_M under k-RR projection ahead too."""
        conditions = [min(each.values()) >= self.factor for each in ratios.values()]
        conditions += [self._leads(one) == len(one.people) for one in found.values()]
        if self.kind == "k-RR" and self.methods == INVERTED:
            normalised, projected = INVERTED
            conditions += [
                one.final(projected) < 0.8 * one.final(normalised) for one in found.values()
            ]
        if self.stalls:
            conditions += [not self._converges(one) for one in found.values()]
        return conditions

    def _converges(self, one: Simulated) -> bool:
        """Whether every method is much closer with the most people than with the next fewer."""
        errors = [one.errors[method].mean(axis=1) for method in self.methods]
        return all(error[-1] < 0.8 * error[-2] for error in errors)

    def _leads(self, one: Simulated) -> int:
        """At how many sizes GIBU has the least mean error."""
        others = np.min([one.errors[method].mean(axis=1) for method in self.methods], axis=0)
        return int((one.errors[GENERAL].mean(axis=1) < others).sum())

    def _words(self, alphabet: Alphabet, one: Simulated) -> str:
        errors = ", ".join(
            f"{method} {one.final(method):.3g} ({one.final(method) / one.final(GENERAL):.1f} times)"
            for method in self.methods
        )
        converges = _CONVERGES if self.stalls and self._converges(one) else ""
        return (
            f"{alphabet.capitalize()}, {one.people[-1]:,} people: GIBU {one.final(GENERAL):.3g} {one.units}, "
            f"{errors}; GIBU leads at {self._leads(one)} of {len(one.people)} sizes{converges}."
        )


def _numbers(ratios: dict[Alphabet, dict[str, float]]) -> dict[str, Number]:
    return {
        f"{alphabet}: {method} over GIBU": value
        for alphabet, each in ratios.items()
        for method, value in each.items()
    }


def _table(found: dict[Alphabet, Simulated], methods: Sequence[str]) -> Table:
    rows = [
        [alphabet, one.units, size, *(float(one.errors[method][at].mean()) for method in methods)]
        for alphabet, one in found.items()
        for at, size in enumerate(one.people)
    ]
    return Table.of(("alphabet", "unit", "people", *(f"EMD, {method}" for method in methods)), rows)


def _draw(found: dict[Alphabet, Simulated], methods: Sequence[str], figure: Any) -> None:
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for each, (alphabet, one) in zip(axes, found.items(), strict=True):
        draw_curves(
            each,
            [one.curve(method) for method in methods],
            x_label="people",
            y_label=f"earth mover's distance ({one.units})",
            title=f"{alphabet} alphabet",
            x_scale="log",
            y_scale="log",
        )


_CONVERGES = (
    ", yet [IBU]_M comes closer with more people: of the many optimal strategies ours have the largest "
    "entropy, and their average can be inverted"
)
_POOR = (
    "Combining the results of separate estimates is significantly poorer than GIBU, because every "
    "estimate sees only a small part of the reports."
)

FIGURES = {
    figure.number: figure.experiment()
    for figure in (
        Figure(3, "k-RR", ("linear",), RESULTS, _POOR, factor=2.0),
        Figure(4, "geometric and k-RR", ("linear",), RESULTS, _POOR, factor=2.0),
        Figure(5, "geometric", ("linear",), RESULTS, _POOR, factor=2.0),
        Figure(6, "Shokri's", ("linear",), RESULTS[-1:], _POOR, factor=2.0),
        Figure(
            7,
            "k-RR",
            ("linear", "planar"),
            INVERTED,
            "Projection is significantly better than normalisation for [INV]_M, and GIBU slightly "
            "outperforms [INV]_M with projection.",
            factor=1.0,
        ),
        Figure(
            8,
            "geometric",
            ("linear", "planar"),
            INVERTED,
            "GIBU is significantly better than [INV]_M on both alphabets.",
            factor=2.0,
        ),
        Figure(
            9,
            "geometric and k-RR",
            ("linear", "planar"),
            INVERTED,
            "GIBU is better than [INV]_M on both alphabets.",
            factor=1.5,
        ),
        Figure(
            10,
            "k-RR",
            ("linear", "planar"),
            (UPDATED,),
            "GIBU outperforms [IBU]_M, which pretends that the average mechanism made all reports.",
            factor=1.2,
        ),
        Figure(
            11,
            "geometric",
            ("linear", "planar"),
            (UPDATED,),
            "GIBU is superior to [IBU]_M on both alphabets.",
            factor=1.2,
        ),
        Figure(
            12,
            "geometric and k-RR",
            ("linear", "planar"),
            (UPDATED,),
            "GIBU is superior to [IBU]_M on both alphabets.",
            factor=1.2,
        ),
        Figure(
            13,
            "Shokri's",
            ("linear", "planar"),
            (UPDATED,),
            "GIBU is superior to [IBU]_M, which may not converge to the truth at all.",
            factor=1.2,
            stalls=True,
        ),
    )
}
"""By their numbers in the paper."""
