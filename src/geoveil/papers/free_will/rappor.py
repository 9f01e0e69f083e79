"""Ten RAPPOR mechanisms on twenty values, simulated for Figures 2 and 14."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Tally
from geoveil.estimate import ActiveSetNewton, CertifiedWithin, IterativeBayesianUpdate
from geoveil.estimate.linear import RapporEstimator
from geoveil.estimate.mixture import AverageOfEstimates, Estimator
from geoveil.mechanism.local import Rappor
from geoveil.papers.free_will.populations import GENERAL, RAPPOR, Simulated
from geoveil.papers.repeated import binomial, earth_movers, people_of
from geoveil.papers.report import Setting
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
