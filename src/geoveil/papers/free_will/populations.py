"""FREEWILL: people with different mechanisms, and what every method makes of their reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray, uniform
from geoveil.channel.composed import AverageChannel
from geoveil.channel.operator import DenseOperator
from geoveil.estimate import Estimator
from geoveil.estimate.linear import LinearSystem
from geoveil.papers import repeated
from geoveil.papers.data import SAN_FRANCISCO, DataFolder, load_city
from geoveil.papers.report import Setting

Alphabet = Literal["linear", "planar"]
Kind = Literal["k-RR", "geometric", "geometric and k-RR", "Shokri's"]

RAPPOR = {
    "high privacy": tuple(level / 10 for level in range(1, 11)),
    "low privacy": tuple(float(level) for level in range(1, 11)),
}
"""Table 4."""

RESPONSE: dict[Alphabet, tuple[float, ...]] = {
    "linear": (3.00, 3.54, 3.96, 4.34, 4.69, 5.06, 5.46, 5.93, 6.60, 8.08),
    "planar": (3.05, 4.19, 4.81, 5.27, 5.67, 6.05, 6.44, 6.87, 7.40, 8.20),
}
"""Table 5."""

GEOMETRIC: dict[Alphabet, tuple[float, ...]] = {
    "linear": (0.020, 0.025, 0.031, 0.039, 0.050, 0.065, 0.088, 0.131, 0.236, 0.869),
    "planar": (0.190, 0.244, 0.310, 0.390, 0.493, 0.632, 0.835, 1.159, 1.762, 3.124),
}
"""Table 6, per unit and per kilometre."""

SHOKRI: dict[Alphabet, tuple[float, ...]] = {
    "linear": (1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0, 24.5, 28.0),
    "planar": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0),
}
"""Table 8: bounds on the mean loss, in units and in kilometres."""

GENERAL = "GIBU"
RESULTS = ("[INV]_R, normalised", "[INV]_R, projected", "[IBU]_R")
INVERTED = ("[INV]_M, normalised", "[INV]_M, projected")
UPDATED = "[IBU]_M"
RAPPOR_RESULTS = ("[RAP]_R, normalised", "[RAP]_R, projected")
RAPPOR_MECHANISMS = ("[RAP]_M, normalised", "[RAP]_M, projected")


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mechanisms over one space, and the true distribution of the people."""

    space: gv.Space
    truth: FloatArray
    mechanisms: tuple[gv.Channel, ...]
    invertible: bool = True
    """Whether inversion is one of the methods; for strategies the paper leaves it out."""


def mixture(kind: Kind, alphabet: Alphabet, data: DataFolder) -> Mixture:
    """The mixture of a kind: on 0 … 99, binomial, or on the cells of San Francisco and its check-ins."""
    space: gv.Space
    if alphabet == "linear":
        space, truth = gv.Line(100), repeated.binomial(100)
    else:
        city = load_city(SAN_FRANCISCO, data, cell_km=0.5)
        space, truth = city.grid, city.truth
    if kind == "Shokri's":  # of largest entropy, for people of whom nothing is known
        profile, limits = uniform(space.size), SHOKRI[alphabet]
        strategies = [gv.optimal_strategy(space, profile, mean_loss_km=limit) for limit in limits]
        return Mixture(space, truth, tuple(strategies), invertible=False)
    # the five weakest of one kind with the five strictest of the other, or all ten of one
    geometric = {"k-RR": (), "geometric": GEOMETRIC[alphabet]}.get(kind, GEOMETRIC[alphabet][5:])
    response = {"geometric": (), "k-RR": RESPONSE[alphabet]}.get(kind, RESPONSE[alphabet][:5])
    mechanisms = [
        *(_geometric(space, level) for level in geometric),
        *(gv.RandomizedResponse(space, epsilon=level) for level in response),
    ]
    return Mixture(space, truth, tuple(mechanisms))


def _geometric(space: gv.Space, level: float) -> gv.Channel:
    if isinstance(space, gv.Line):
        return gv.LinearGeometric(space, epsilon_per_unit=level)
    assert isinstance(space, gv.Grid)
    return gv.PlanarGeometric(space, epsilon_per_km=level)


Estimates = dict[str, FloatArray]
"""method → (repetitions, cells)"""


def methods(
    people: Mixture, tolerance: float, *, separate: bool = True
) -> Callable[[Sequence[IntArray]], Estimates]:
    """All methods for one mixture, as a function of the (repetitions, reports) counts of each mechanism.

    Matrices and factorisations are made once. ``separate`` adds the mean of an estimate for each mechanism.
    """
    number = len(people.mechanisms)
    average = AverageChannel(people.mechanisms, np.full(number, 1 / number))
    matrices = [mechanism.matrix() for mechanism in people.mechanisms]
    parts = [DenseOperator(matrix) for matrix in matrices]
    side_by_side, pooled = DenseOperator(np.hstack(matrices)), DenseOperator(average.matrix())
    channels = (average, *people.mechanisms) if separate else (average,)
    systems = [LinearSystem(channel) for channel in channels] if people.invertible else []

    def estimate(counts: Sequence[IntArray]) -> Estimates:
        total = np.sum(counts, axis=0)
        updates = repeated.maximum_likelihood
        # one estimate from the columns of all mechanisms, or under the average mechanism (eq. 7)
        estimates = {
            GENERAL: updates(side_by_side, np.concatenate(counts, axis=1), tolerance),
            UPDATED: updates(pooled, total, tolerance),
        }
        # an estimate for each mechanism, then their mean (eqs. 4 and 5)
        if separate:
            own = [updates(*pair, tolerance) for pair in zip(parts, counts, strict=True)]
            estimates[RESULTS[-1]] = np.mean(own, axis=0)
        if people.invertible:
            tables = [total, *counts][: len(systems)]
            solved = [
                repeated.repaired(system.solve(table / table.sum(axis=1, keepdims=True)))
                for system, table in zip(systems, tables, strict=True)
            ]
            estimates |= zip(INVERTED, solved[0], strict=True)
            if separate:
                estimates |= zip(RESULTS[:-1], np.mean(solved[1:], axis=0), strict=True)
        return estimates

    return estimate


@dataclass(frozen=True, eq=False)
class Simulated:
    """EMD (sizes, repetitions) by method, in the unit of the space."""

    people: tuple[int, ...]
    errors: dict[str, FloatArray]
    units: str

    def final(self, method: str) -> float:
        """The mean error with the most people."""
        return float(self.errors[method][-1].mean())

    def least(self, methods: Sequence[str]) -> FloatArray:
        """The least mean error of the methods, for each number of people."""
        return np.min([self.errors[method].mean(axis=1) for method in methods], axis=0)

    def behind(self, methods: Sequence[str]) -> float:
        """The least error of the methods over that of GIBU, averaged over the numbers of people."""
        return float((self.least(methods) / self.errors[GENERAL].mean(axis=1)).mean())


PEOPLE = (1_000, 3_000, 10_000, 30_000, 100_000)


@lru_cache(maxsize=16)
def simulated(kind: Kind, alphabet: Alphabet, setting: Setting) -> Simulated:
    """The errors under a mixture, kept for the other figures that show it.

    Each mechanism is used by an equal share of the people. The paper combines results on the line only.
    """
    people = mixture(kind, alphabet, setting.data)
    distance = partial(gv.earth_movers_distance_km, q=people.truth, space=people.space)
    tolerance, repetitions = setting.pick(1, 10) * repeated.TOLERANCE, setting.pick(20, 3)
    estimate = methods(people, tolerance, separate=alphabet == "linear")
    sizes, errors = setting.pick(PEOPLE, (1_000, 10_000, 100_000)), []
    for size in setting.each(sizes, f"{kind}, {alphabet}, {{:,}} people"):
        draw = repeated.people_of(people.truth, size // len(people.mechanisms))
        counts = [
            repeated.repeated_counts(each, draw, repetitions, setting.seed + 100 * number + size)
            for number, each in enumerate(people.mechanisms)
        ]
        errors.append(repeated.errors(estimate(counts), distance))
    return Simulated(sizes, repeated.stacked(errors), "units" if alphabet == "linear" else "km")


# --- Ten RAPPOR mechanisms on twenty values


_EXACT = gv.IterativeBayesianUpdate(stop=gv.CertifiedWithin(1e-8), accelerate=gv.ActiveSetNewton())
RAPPOR_METHODS: dict[str, Estimator] = {
    GENERAL: _EXACT,
    RAPPOR_RESULTS[0]: gv.AverageOfEstimates(gv.RapporEstimator(repair="normalise")),
    RAPPOR_RESULTS[1]: gv.AverageOfEstimates(gv.RapporEstimator(repair="project")),
    RAPPOR_MECHANISMS[0]: gv.RapporEstimator(repair="normalise"),
    RAPPOR_MECHANISMS[1]: gv.RapporEstimator(repair="project"),
}


@lru_cache(maxsize=8)
def simulated_rappor(regime: str, setting: Setting) -> Simulated:
    """The errors of a regime, kept for the other figure that shows it."""
    line, truth = gv.Line(20), repeated.binomial(20)
    distance = partial(gv.earth_movers_distance_km, q=truth, space=line)
    mechanisms = [gv.Rappor(line, epsilon=level) for level in RAPPOR[regime]]
    sizes, repetitions = setting.pick(PEOPLE, (1_000, 10_000)), setting.pick(10, 3)
    errors = []
    for number, size in enumerate(sizes):
        draw = repeated.people_of(truth, size // len(mechanisms))
        runs = []
        for repetition in range(repetitions):
            done = (number + repetition / repetitions) / len(sizes)
            setting.progress(done, f"{regime}, {size:,} people")
            randomness = gv.seeded(setting.seed * 10_007 + repetition + size)
            tallies = [
                each.tally(each.sample(draw(randomness), randomness=randomness))
                for each in mechanisms
            ]
            runs.append({m: e.fit(tallies).distribution for m, e in RAPPOR_METHODS.items()})
        errors.append(repeated.errors(repeated.stacked(runs), distance))
    return Simulated(sizes, repeated.stacked(errors), "units")
