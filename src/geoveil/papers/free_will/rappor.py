"""Figures 2 and 14: ten RAPPOR mechanisms on twenty values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.tally import Tally
from geoveil.estimate import ActiveSetNewton, CertifiedWithin, IterativeBayesianUpdate
from geoveil.estimate.mixture import AverageOfEstimates, Estimator
from geoveil.estimate.response import RapporEstimator
from geoveil.mechanism.rappor import Rappor
from geoveil.papers.free_will.mixtures import RAPPOR
from geoveil.papers.free_will.simulation import GENERAL, Simulated
from geoveil.papers.repeated import binomial, earth_movers, people_of
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.plot.curves import draw_curves
from geoveil.randomness import seeded
from geoveil.space.line import Line

SIZE = 20
PEOPLE, QUICK_PEOPLE = (1_000, 3_000, 10_000, 30_000, 100_000), (1_000, 10_000)
REPETITIONS, QUICK_REPETITIONS = 10, 3

RESULTS = ("[RAP]_R, normalised", "[RAP]_R, projected")
MECHANISMS = ("[RAP]_M, normalised", "[RAP]_M, projected")

METHODS: dict[str, Estimator] = {
    GENERAL: IterativeBayesianUpdate(stop=CertifiedWithin(1e-8), accelerate=ActiveSetNewton()),
    RESULTS[0]: AverageOfEstimates(RapporEstimator(repair="normalise")),
    RESULTS[1]: AverageOfEstimates(RapporEstimator(repair="project")),
    MECHANISMS[0]: RapporEstimator(repair="normalise"),
    MECHANISMS[1]: RapporEstimator(repair="project"),
}


@dataclass(frozen=True)
class Asked:
    """What is simulated; whom to tell is no part of it."""

    regime: str
    quick: bool
    seed: int
    progress: Any = field(compare=False)


def simulated_rappor(regime: str, setting: Setting) -> Simulated:
    """The errors of a regime, kept for the other figure that shows it."""
    return _simulated(Asked(regime, setting.quick, setting.seed, setting.progress))


@lru_cache(maxsize=8)
def _simulated(asked: Asked) -> Simulated:
    line, truth = Line(SIZE), binomial(SIZE)
    people = QUICK_PEOPLE if asked.quick else PEOPLE
    repetitions = QUICK_REPETITIONS if asked.quick else REPETITIONS
    mechanisms = [Rappor(line, epsilon=level) for level in RAPPOR[asked.regime]]
    errors: dict[str, list[FloatArray]] = {method: [] for method in METHODS}
    for number, size in enumerate(people):
        found: dict[str, list[FloatArray]] = {method: [] for method in METHODS}
        for repetition in range(repetitions):
            done = (number + repetition / repetitions) / len(people)
            asked.progress(done, f"{asked.regime}, {size:,} people")
            tallies = _tallies(mechanisms, truth, size, asked.seed * 10_007 + repetition + size)
            for method, estimator in METHODS.items():
                found[method].append(estimator.fit(tallies).distribution)
        for method, each in found.items():
            errors[method].append(earth_movers(np.stack(each), truth, line))
    arrays = {method: np.array(each) for method, each in errors.items()}
    return Simulated(people, arrays, "units")


def _tallies(mechanisms: list[Rappor], truth: FloatArray, size: int, seed: int) -> list[Tally]:
    """Each mechanism is used by an equal share of the people."""
    randomness = seeded(seed)
    draw = people_of(truth, size // len(mechanisms))
    return [each.tally(each.sample(draw(randomness), randomness=randomness)) for each in mechanisms]


def _figure_2(setting: Setting) -> Finding:
    found = {regime: simulated_rappor(regime, setting) for regime in RAPPOR}
    least = {regime: min(map(one.final, RESULTS)) for regime, one in found.items()}
    conditions = [least[regime] > 2.0 * one.final(GENERAL) for regime, one in found.items()]
    return _finding(found, RESULTS, conditions)


def _figure_14(setting: Setting) -> Finding:
    found = {regime: simulated_rappor(regime, setting) for regime in RAPPOR}
    ratios = {regime: _best(one, MECHANISMS) for regime, one in found.items()}
    conditions = [0.8 < ratios["high privacy"] < 1.25, ratios["low privacy"] > 1.2]
    return _finding(found, MECHANISMS, conditions)


def _best(one: Simulated, methods: tuple[str, ...]) -> float:
    """The better of the methods over GIBU, averaged over the sizes."""
    means = [one.errors[method].mean(axis=1) for method in methods]
    return float((np.min(means, axis=0) / one.errors[GENERAL].mean(axis=1)).mean())


def _finding(
    found: dict[str, Simulated], methods: tuple[str, ...], conditions: list[bool]
) -> Finding:
    shown = (GENERAL, *methods)
    rows = [
        [regime, size, *(float(one.errors[method][at].mean()) for method in shown)]
        for regime, one in found.items()
        for at, size in enumerate(one.people)
    ]
    return Finding(
        agreement=Agreement.of(*conditions),
        conclusion=" ".join(_words(regime, one, methods) for regime, one in found.items()),
        table=Table.of(("regime", "people", *(f"EMD (units), {method}" for method in shown)), rows),
        draw=partial(_draw, found, shown),
        numbers={f"{regime}: best over GIBU": _best(one, methods) for regime, one in found.items()},
        figure_size=(10.0, 3.8),
    )


def _words(regime: str, one: Simulated, methods: tuple[str, ...]) -> str:
    errors = ", ".join(f"{method} {one.final(method):.3g}" for method in methods)
    return (
        f"{regime.capitalize()}, {one.people[-1]:,} people: GIBU {one.final(GENERAL):.3g} units, {errors}; "
        f"over all sizes the better of them has {_best(one, methods):.2f} times the error of GIBU."
    )


def _draw(found: dict[str, Simulated], methods: tuple[str, ...], figure: Any) -> None:
    axes = figure.subplots(1, len(found))
    for each, (regime, one) in zip(axes, found.items(), strict=True):
        draw_curves(
            each,
            [one.curve(method) for method in methods],
            x_label="people",
            y_label="earth mover's distance (units)",
            title=f"{regime}: ε between {min(RAPPOR[regime]):g} and {max(RAPPOR[regime]):g}",
            x_scale="log",
            y_scale="log",
        )


FIGURE_2 = Experiment(
    name="figure-2",
    title="Fig. 2: [RAP]_R and GIBU, RAPPOR mechanisms",
    statement="Combining the results of ten RAPPOR estimates is far poorer than GIBU in both regimes.",
    run=_figure_2,
)
FIGURE_14 = Experiment(
    name="figure-14",
    title="Fig. 14: [RAP]_M and GIBU, RAPPOR mechanisms",
    statement=(
        "[RAP]_M and GIBU are similar at high privacy, while GIBU is clearly better at low privacy."
    ),
    run=_figure_14,
)
