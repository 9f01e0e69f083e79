"""One experiment many times over: reports drawn, estimated by every method, measured against the truth.

Repetitions advance together: their counts are the rows of one array, so that a step of expectation–
maximisation is one product for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray, uniform
from geoveil.channel.channel import inverse_distribution
from geoveil.channel.operator import Operator
from geoveil.estimate import maximise
from geoveil.estimate.linear import REPAIRS, LinearSystem
from geoveil.estimate.objective import Objective, em_path

TOLERANCE = 1e-8
"""Change of the log-likelihood, nats per report, at which expectation–maximisation stops: one δ under every
mechanism and level, in both papers that stop so (Alg. 1) and print none. Ten times as much stops far
from the maximum under RAPPOR; a smaller one fits the noise under noise that depends on distance."""

CERTIFIED = 1e-9
"""Nats per report between an exact maximum and the true one, at most."""

MOST_STEPS = 20_000

NORMALISED, PROJECTED, MAXIMUM = "INV-N", "INV-P", "EM"
METHODS = (NORMALISED, PROJECTED, MAXIMUM)

Draw = Callable[[gv.Randomness], IntArray]
"""The true cells of the people of one repetition."""


def repeated_counts(channel: gv.Channel, draw: Draw, repetitions: int, seed: int) -> IntArray:
    """(repetitions, reports): how often each report was made, each repetition with a seed of its own."""
    counted = []
    for number in range(repetitions):
        randomness = gv.seeded(seed * 1_000_003 + number)
        reports = channel.sample(draw(randomness), randomness=randomness)
        if reports.ndim == 2:  # bits, read as a number
            reports = reports @ (1 << np.arange(reports.shape[1]))
        counted.append(np.bincount(reports, minlength=channel.report_count))
    return np.stack(counted)


def people_of(theta: FloatArray, number: int) -> Draw:
    """People drawn independently from a distribution."""
    return lambda randomness: inverse_distribution(theta, randomness.uniform(number))


def maximum_likelihood(
    operator: Operator, counts: IntArray, tolerance: float = TOLERANCE
) -> FloatArray:
    """(repetitions, cells): EM from uniform, each repetition stopped by the rule of the papers.

    Stops where one step changes the mean log-likelihood by less than ``tolerance``.
    """
    unknowns = operator.shape[0]
    starts = np.broadcast_to(uniform(unknowns), (len(counts), unknowns))
    estimates = np.empty((len(counts), unknowns))
    running = np.ones(len(counts), dtype=np.bool_)
    before = np.full(len(counts), -np.inf)
    for step, point in enumerate(em_path(Objective(operator, counts), starts)):
        settled = (np.abs(point.log_likelihood - before) < tolerance) | (step >= MOST_STEPS)
        settled &= running
        before = point.log_likelihood
        if settled.any():
            estimates[settled] = point.theta[settled]
            running &= ~settled
            if not running.any():
                break
    return estimates


def exact_maximum(operator: Operator, counts: IntArray) -> FloatArray:
    """(repetitions, cells): the maximum itself, by active-set Newton steps, certified."""
    rule, newton = gv.CertifiedWithin(CERTIFIED), gv.ActiveSetNewton()
    return np.stack(
        [maximise(operator, row, stop=rule, accelerate=newton).distribution for row in counts]
    )


def repaired(solved: FloatArray) -> list[FloatArray]:
    """(repetitions, cells) of solutions made distributions: normalised, and projected."""
    return [np.stack([REPAIRS[name](row) for row in solved]) for name in ("normalise", "project")]


def all_methods(channel: gv.Channel, counts: IntArray) -> dict[str, FloatArray]:
    """INV-N, INV-P and EM of every repetition, the channel factorised once."""
    solved = LinearSystem(channel).solve(counts / counts.sum(axis=1, keepdims=True))
    estimates = [*repaired(solved), maximum_likelihood(channel, counts)]
    return dict(zip(METHODS, estimates, strict=True))


Key = TypeVar("Key")


def stacked(results: Sequence[Mapping[Key, FloatArray]]) -> dict[Key, FloatArray]:
    """One array for each key from one result after the other, such as levels or numbers of people."""
    return {key: np.array([result[key] for result in results]) for key in results[0]}


def errors(
    estimates: Mapping[Key, FloatArray], distance: Callable[[FloatArray], float]
) -> dict[Key, FloatArray]:
    """The distance of every method's estimates, (repetitions, cells), from the truth: one a repetition."""
    return {key: np.array([distance(row) for row in own]) for key, own in estimates.items()}


def binomial(size: int) -> FloatArray:
    """Binomial(size − 1, ½) on 0 … size − 1, as in both papers."""
    from scipy.stats import binom

    return np.asarray(binom.pmf(np.arange(size), size - 1, 0.5))


def uniform_between(size: int, first: int, last: int) -> FloatArray:
    """Uniform on first … last, zero elsewhere."""
    inside = (np.arange(size) >= first) & (np.arange(size) <= last)
    return np.asarray(inside / inside.sum())
