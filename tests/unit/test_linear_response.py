"""Randomised response and RAPPOR at mixed levels against the printed formulas and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoveil.channel.channel import Tally
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate.linear import MatrixInversion, RandomizedResponseEstimator, RapporEstimator
from geoveil.estimate.mixture import (
    AverageMechanism,
    randomized_response_error_bound,
    rappor_error_bound,
)
from geoveil.mechanism.local import RandomizedResponse, Rappor, RapporTally
from geoveil.randomness import seeded
from geoveil.space.grid import Line

LINE = Line(4)
levels = st.lists(st.floats(0.1, 6.0), min_size=1, max_size=4)
seeds = st.integers(0, 2**32 - 1)


def response_tallies(epsilons: list[float], seed: int) -> list[Tally]:
    counts = np.random.default_rng(seed).integers(100, 400, (len(epsilons), 4))
    return [
        Tally(RandomizedResponse(LINE, epsilon=e), row)
        for e, row in zip(epsilons, counts, strict=True)
    ]


def rappor_tallies(epsilons: list[float], seed: int) -> list[RapporTally]:
    generator = np.random.default_rng(seed)
    return [
        Rappor(LINE, epsilon=e).tally(generator.integers(0, 2, (generator.integers(100, 400), 4)))
        for e in epsilons
    ]


@given(levels, seeds)
def test_randomised_response_is_equations_8_and_9(epsilons: list[float], seed: int) -> None:
    tallies = response_tallies(epsilons, seed)
    n = sum(tally.total for tally in tallies)
    mean = sum(t.total / (3 + math.exp(e)) for t, e in zip(tallies, epsilons, strict=True)) / n
    grown = 1 / mean - 3
    shares = sum(tally.counts for tally in tallies) / n
    printed = (grown + 3) / (grown - 1) * shares - 1 / (grown - 1)
    estimate = RandomizedResponseEstimator().fit(tallies)
    assert estimate.errors.centre == pytest.approx(printed, rel=1e-6, abs=1e-9)
    assert estimate.total == n


@given(levels, seeds)
def test_rappor_is_equations_13_and_14(epsilons: list[float], seed: int) -> None:
    tallies = rappor_tallies(epsilons, seed)
    n = sum(tally.total for tally in tallies)
    mean = sum(t.total / (1 + math.exp(e / 2)) for t, e in zip(tallies, epsilons, strict=True)) / n
    grown = 1 / mean - 1
    bits = sum(tally.counts @ tally.operator.vectors for tally in tallies) / n
    printed = (grown + 1) / (grown - 1) * bits - 1 / (grown - 1)
    estimate = RapporEstimator().fit(tallies)
    assert estimate.errors.centre == pytest.approx(printed, rel=1e-6, abs=1e-9)
    assert estimate.total == n


@settings(max_examples=30)
@given(levels, seeds, st.sampled_from(["project", "normalise"]))
def test_randomised_response_is_the_inverted_average_mechanism(
    epsilons: list[float], seed: int, repair: str
) -> None:
    tallies = response_tallies(epsilons, seed)
    general = AverageMechanism(MatrixInversion(repair)).fit(tallies)  # type: ignore[arg-type]
    special = RandomizedResponseEstimator(repair).fit(tallies)  # type: ignore[arg-type]
    assert special.distribution == pytest.approx(general.distribution, abs=1e-9)
    assert special.certificate == pytest.approx(general.certificate, abs=1e-9)
    assert special.log_likelihood == pytest.approx(general.log_likelihood, abs=1e-9)
    assert (special.standard_error <= general.standard_error * (1 + 1e-9)).all()


def report_covariance(vectors: np.ndarray, law: np.ndarray) -> np.ndarray:
    mean = law @ vectors
    return (vectors.T * law) @ vectors - np.outer(mean, mean)


def rappor_law(epsilon: float, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    vectors = np.array(list(itertools.product([0, 1], repeat=4)))
    keep = math.exp(epsilon / 2) / (1 + math.exp(epsilon / 2))
    same = (vectors[None] == np.eye(4)[:, None]).sum(axis=2)
    return vectors, theta @ (keep**same * (1 - keep) ** (4 - same))


@settings(max_examples=30)
@given(levels, seeds)
def test_error_bars_are_the_exact_variances_of_all_reports(
    epsilons: list[float], seed: int
) -> None:
    responses, vectors = response_tallies(epsilons, seed), rappor_tallies(epsilons, seed)
    found = RandomizedResponseEstimator().fit(responses)
    theta = found.distribution
    laws = [(np.eye(4), theta @ tally.channel.matrix()) for tally in responses]
    gains = [(math.exp(e) - 1) / (3 + math.exp(e)) for e in epsilons]
    check_errors(found, laws, gains, [tally.total for tally in responses])
    found = RapporEstimator().fit(vectors)
    laws = [rappor_law(e, found.distribution) for e in epsilons]
    gains = [math.tanh(e / 4) for e in epsilons]
    check_errors(found, laws, gains, [tally.total for tally in vectors])


def check_errors(estimate, laws, gains, people) -> None:  # type: ignore[no-untyped-def]
    scale = sum(n * gain for n, gain in zip(people, gains, strict=True))
    parts = zip(people, laws, strict=True)
    covariance = sum(n * report_covariance(*law) for n, law in parts) / scale**2
    assert estimate.standard_error == pytest.approx(np.sqrt(np.diag(covariance)))
    region = estimate.region([0, 2])
    assert region.standard_error == pytest.approx(covariance[np.ix_([0, 2], [0, 2])].sum() ** 0.5)
    low, high = region.interval(0.9)
    assert 0 <= low <= region.share <= high <= 1


@pytest.mark.statistical
@pytest.mark.parametrize("epsilons", [[1.0, 1.0], [0.5, 3.0]])
@pytest.mark.parametrize("kind", ["response", "rappor"])
def test_the_simulated_error_is_the_exact_one_and_the_bound(
    kind: str, epsilons: list[float]
) -> None:
    """Mean of 400 squared errors, 6.5 standard errors wide; levels a third off must be rejected."""
    truth = np.array([0.55, 0.3, 0.1, 0.05])
    exact, bound = exact_error(kind, epsilons, truth), BOUNDS[kind](truth, epsilons, 50)
    assert bound == pytest.approx(exact) if epsilons == [1.0, 1.0] else bound > 1.01 * exact
    errors = squared_errors(kind, epsilons, truth)
    slack = 6.5 * errors.std() / math.sqrt(errors.size)
    assert abs(errors.mean() - exact) < slack
    assert abs(errors.mean() - exact_error(kind, [1.33 * e for e in epsilons], truth)) > slack


BOUNDS = {"response": randomized_response_error_bound, "rappor": rappor_error_bound}


def exact_error(kind: str, epsilons: list[float], truth: np.ndarray) -> float:
    """Σ Var(θ̂_x) for fifty people at each level, from the law of one report."""
    if kind == "response":
        laws = [(np.eye(4), truth @ RandomizedResponse(LINE, epsilon=e).matrix()) for e in epsilons]
        gains = [(math.exp(e) - 1) / (3 + math.exp(e)) for e in epsilons]
    else:
        laws = [rappor_law(e, truth) for e in epsilons]
        gains = [math.tanh(e / 4) for e in epsilons]
    return sum(50 * np.trace(report_covariance(*law)) for law in laws) / (50 * sum(gains)) ** 2


def squared_errors(kind: str, epsilons: list[float], truth: np.ndarray) -> np.ndarray:
    randomness, generator = seeded(11), np.random.default_rng(12)
    made = RandomizedResponse if kind == "response" else Rappor
    estimator = RandomizedResponseEstimator() if kind == "response" else RapporEstimator()
    mechanisms = [made(LINE, epsilon=e) for e in epsilons]
    errors = []
    for _ in range(400):
        tallies = [
            mechanism.tally(
                mechanism.sample(generator.choice(4, 50, p=truth), randomness=randomness)
            )
            for mechanism in mechanisms
        ]
        errors.append(np.square(estimator.fit(tallies).errors.centre - truth).sum())
    return np.array(errors)


def test_equal_levels_are_one_level_and_empty_tallies_are_nothing() -> None:
    first, other = response_tallies([1.0, 1.0], 3)
    assert "one privacy level" in RandomizedResponseEstimator().fit([first, other]).stopped
    empty = Tally(RandomizedResponse(LINE, epsilon=5.0), [0, 0, 0, 0])
    alone = RandomizedResponseEstimator().fit(first)
    assert (
        RandomizedResponseEstimator().fit([first, empty]).distribution.tolist()
        == alone.distribution.tolist()
    )
    mixed = RapporEstimator().fit(rappor_tallies([1.0, 2.0], 4))
    assert "2 privacy levels together" in mixed.stopped
    assert mixed.identifiable


def test_a_cell_nobody_reported_may_still_hold_some_people() -> None:
    """No report among n bounds the share by 1 − 0.025^(1/n), about 3.7/n, at 95 %."""
    tally = Tally(RandomizedResponse(LINE, epsilon=25.0), [5000, 5000, 0, 0])
    low, high = RandomizedResponseEstimator().fit(tally).interval(0.95)
    assert low[2] == 0
    assert high[2] == pytest.approx(1 - 0.025 ** (1 / 10_000), rel=0.02)


def test_many_cells_need_no_matrix() -> None:
    many = 200_000
    mechanism = RandomizedResponse(Line(many), epsilon=12.0)
    truth = np.zeros(many)
    truth[:4] = [0.4, 0.3, 0.2, 0.1]
    counts = np.rint(1e9 * mechanism.push(truth)).astype(np.int64)
    estimate = RandomizedResponseEstimator().fit(Tally(mechanism, counts))
    assert estimate.distribution[:4] == pytest.approx(truth[:4], abs=1e-3)
    assert estimate.standard_error.shape == (many,)
    assert estimate.certificate >= 0


def test_tallies_of_other_mechanisms_are_refused() -> None:
    response, rappor = response_tallies([1.0], 1), rappor_tallies([1.0], 1)
    with pytest.raises(Unsupported, match="must come from RandomizedResponse"):
        RandomizedResponseEstimator().fit(rappor)
    with pytest.raises(Unsupported, match="must come from Rappor"):
        RapporEstimator().fit([*rappor, *response])
    for estimator in (RandomizedResponseEstimator, RapporEstimator):
        with pytest.raises(InvalidInput, match="repair"):
            estimator("clip")  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="empty"):
            estimator().fit([])
