"""Stopping where held-out reports are predicted best."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray, uniform
from geoveil.errors import InvalidInput
from geoveil.estimate import (
    CrossValidated,
    DenseOperator,
    IterativeBayesianUpdate,
    Steps,
    maximise,
    stopping,
)
from geoveil.measure import earth_movers_distance_km

BLUR = np.exp(-0.4 * np.abs(np.arange(12)[:, None] - np.arange(12)))
BLUR /= BLUR.sum(axis=1, keepdims=True)


def noisy_counts(people: int, seed: int = 0) -> IntArray:
    truth = np.zeros(12)
    truth[[2, 7, 8]] = 0.5, 0.3, 0.2
    return np.random.default_rng(seed).multinomial(people, truth @ BLUR)


@given(st.lists(st.integers(0, 40), min_size=3, max_size=6), st.integers(2, 6), st.integers(1, 3))
def test_every_report_is_left_out_once_in_every_round(
    counts: list[int], folds: int, repeats: int
) -> None:
    parts = CrossValidated(folds=folds, repeats=repeats).parts(np.array(counts))
    assert parts.shape == (folds * repeats, len(counts))
    assert (parts >= 0).all()
    for dealt in parts.reshape(repeats, folds, -1):
        np.testing.assert_array_equal(dealt.sum(axis=0), counts)


def test_parts_are_dealt_evenly() -> None:
    # 10⁶ reports in 5 parts: a share differs from 1/5 by 6.3 standard errors (√(0.16/10⁶) = 4e-4)
    # with probability 3e-10.
    parts = CrossValidated().parts(np.array([1_000_000, 1_000_000]))
    assert np.abs(parts / 1_000_000 - 0.2).max() < 6.3 * 4e-4
    assert len(np.unique(parts)) > 10  # and not all alike


def by_hand(counts: IntArray, rule: CrossValidated, used: int = 10) -> int:
    """The same choice, fold by fold and step by step, from the first parts."""
    parts = rule.parts(counts)[:used]
    steps = 300
    curve = np.zeros(2 * steps)
    for held_out in parts:
        share = (counts - held_out) / (counts - held_out).sum()
        theta = np.full(len(BLUR), 1 / len(BLUR))
        for step in range(2 * steps):
            law = theta @ BLUR
            curve[step] += held_out @ np.log(law)
            theta = theta * (BLUR @ (share / law))
    tried = [0]
    while tried[-1] < steps:
        tried.append(tried[-1] + 1 + tried[-1] // 50)
        half = curve[[step for step in tried if step <= tried[-1] // 2]].max()
        if tried[-1] >= 40 and curve[tried].max() - half < 0.5 * used / rule.folds:
            break
    best = max(tried, key=lambda step: float(curve[step]))
    return round(best * rule.folds / (rule.folds - 1))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_step_of_the_best_held_out_likelihood_is_chosen(seed: int) -> None:
    rule = CrossValidated(seed=seed)
    counts = noisy_counts(400, seed)
    ascent = maximise(DenseOperator(BLUR), counts, stop=rule)
    assert ascent.steps == by_hand(counts, rule)
    same = maximise(DenseOperator(BLUR), counts, stop=Steps(ascent.steps))
    np.testing.assert_array_equal(ascent.distribution, same.distribution)
    assert ascent.stopped == (
        f"after {ascent.steps} steps, chosen by cross-validation (5 folds, 2 times)"
    )


@pytest.mark.parametrize(("entries", "used"), [(12 * 7, 7), (12 * 5, 5), (12 * 3, 3), (1, 2)])
def test_of_very_many_observations_fewer_parts_are_left_out(
    monkeypatch: pytest.MonkeyPatch, entries: int, used: int
) -> None:
    monkeypatch.setattr(stopping, "_MOST_ENTRIES", entries)
    rule, counts = CrossValidated(), noisy_counts(400)
    found = rule.found(DenseOperator(BLUR), counts, np.full(12, 1 / 12), None)
    assert found.rule.number == by_hand(counts, rule, used)
    said = f"chosen by cross-validation ({used} parts left out, each one in 5 of the reports)"
    assert found.rule.words == said
    monkeypatch.undo()
    whole = rule.found(DenseOperator(BLUR), counts, np.full(12, 1 / 12), None)
    # still nats over all reports, which estimates compare
    assert found.held_out == pytest.approx(whole.held_out, rel=0.1)


def test_the_choice_depends_on_the_seed_alone() -> None:
    counts = noisy_counts(500)
    chosen = {maximise(DenseOperator(BLUR), counts, stop=CrossValidated()).steps for _ in "aa"}
    others = {
        maximise(DenseOperator(BLUR), counts, stop=CrossValidated(seed=seed)).steps
        for seed in range(8)
    }
    assert len(chosen) == 1
    assert len(others) > 1


def test_more_reports_allow_more_steps() -> None:
    few, many = (
        maximise(DenseOperator(BLUR), noisy_counts(people), stop=CrossValidated()).steps
        for people in (100, 100_000)
    )
    assert few < many


def test_the_search_ends_at_its_limit_and_says_so() -> None:
    ascent = maximise(DenseOperator(BLUR), noisy_counts(1_000_000), stop=CrossValidated(maximum=10))
    assert ascent.steps == 10
    assert ascent.stopped.endswith("whose search reached its limit of 10 steps")


def test_the_search_ends_when_nothing_is_gained_any_more() -> None:
    """People in three cells only: the held-out likelihood creeps up for thousands of steps."""
    weak = DenseOperator(0.5 * np.full((12, 12), 1 / 12) + 0.5 * np.eye(12))
    truth = np.zeros(12)
    truth[[2, 7, 8]] = 0.5, 0.3, 0.2
    counts = np.random.default_rng(0).multinomial(20_000, truth @ weak.matrix())
    patient = CrossValidated(least_gain=0.0)
    quick, slow = (maximise(weak, counts, stop=rule) for rule in (CrossValidated(), patient))
    assert quick.steps < slow.steps / 5
    missed = (slow.log_likelihood - quick.log_likelihood) * counts.sum()
    assert missed < 0.5  # nats over all reports


def test_one_report_cannot_be_cross_validated() -> None:
    counts = np.zeros(12, dtype=np.int64)
    counts[4] = 1
    ascent = maximise(DenseOperator(BLUR), counts, stop=CrossValidated())
    assert ascent.stopped == "after 1 step, because one report cannot be cross-validated"


@pytest.mark.parametrize("people", [2, 3, 5])
def test_a_handful_of_reports_is_enough(people: int) -> None:
    ascent = maximise(DenseOperator(BLUR), noisy_counts(people), stop=CrossValidated())
    assert np.isfinite(ascent.distribution).all()


def test_probabilities_cannot_be_dealt_into_parts() -> None:
    with pytest.raises(InvalidInput, match="whole counts"):
        maximise(DenseOperator(BLUR), np.full(12, 1 / 12), stop=CrossValidated())


def paris(path: Path) -> IntArray:
    """The cells of the PRIVIC authors: 11 × 15 degrees, lower edges open, first point lost."""
    with gzip.open(path, "rt") as lines:
        points = np.loadtxt(lines, delimiter=",", skiprows=1)
    row = np.ceil((points[:, 0] - 48.8286) / 0.00427).astype(int) - 1
    column = np.ceil((points[:, 1] - 2.2855) / 0.0066).astype(int) - 1
    inside = (row >= 0) & (row < 11) & (column >= 0) & (column < 15)
    return np.bincount((row * 15 + column)[inside][1:], minlength=165)


def best_in_hindsight(tally: gv.Tally, truth: FloatArray, grid: gv.Grid) -> float:
    steps = [5, 8, 12, 18, 27, 40, 60, 90, 135]
    fits = [IterativeBayesianUpdate(stop=Steps(number)).fit(tally) for number in steps]
    return min(earth_movers_distance_km(fit.distribution, truth, grid) for fit in fits)


def test_paris_is_drawn_nearly_as_well_as_by_the_best_stop_in_hindsight(
    shared_data: Callable[[str], Path],
) -> None:
    people = paris(shared_data("gowalla-paris.csv.gz"))
    assert people.sum() == 10_078
    grid, truth = gv.Grid(rows=11, columns=15, cell_km=1.0), people / people.sum()
    channel = gv.Elastic(grid, beta_per_km=1.0, weights=np.full(165, 1 / 165))
    ratios = []
    for seed in range(3):
        cells = np.repeat(np.arange(165), people)
        tally = channel.tally(channel.sample(cells, randomness=gv.seeded(seed)))
        estimate = IterativeBayesianUpdate().fit(tally)
        found = earth_movers_distance_km(estimate.distribution, truth, grid)
        ratios.append(found / best_in_hindsight(tally, truth, grid))
    assert np.mean(ratios) < 1.1


def test_a_slow_beginning_is_no_end() -> None:
    """Randomised response with many cells gains little at first, and more with every doubling."""
    grid = gv.Grid(rows=10, columns=10, cell_km=1.0)
    truth = np.random.default_rng(2).dirichlet(np.full(grid.size, 0.2))
    mechanism = gv.RandomizedResponse(grid, epsilon=1.0)
    law = mechanism.push(truth)
    counts = np.random.default_rng(3).multinomial(1_000_000, law / law.sum())
    estimate = IterativeBayesianUpdate().fit(gv.Tally(mechanism, counts))
    assert estimate.steps > 500
    even = np.full(grid.size, 1 / grid.size)
    error = np.abs(estimate.distribution - truth).sum()
    assert error < 0.5 * np.abs(even - truth).sum()


def test_what_cannot_become_worth_it_within_the_limit_ends() -> None:
    grid = gv.Grid(rows=10, columns=10, cell_km=1.0)
    mechanism = gv.RandomizedResponse(grid, epsilon=0.1)
    truth = np.random.default_rng(2).dirichlet(np.full(grid.size, 0.2))
    counts = np.random.default_rng(3).multinomial(1_000_000, mechanism.push(truth))
    assert IterativeBayesianUpdate().fit(gv.Tally(mechanism, counts)).steps < 200


def test_on_large_maps_complements_take_turns_in_the_memory_of_one_ascent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = gv.Grid(rows=72, columns=72, cell_km=0.25)
    mechanism = gv.PlanarGeometric(grid, epsilon_per_km=4.0)
    tally = gv.Tally(mechanism, np.random.default_rng(1).poisson(0.5, grid.size))
    rule = CrossValidated(maximum=12)
    found, vectors = [], []
    for large in (grid.size + 1, 1):
        monkeypatch.setattr("geoveil.estimate.stopping._LARGE_SIZE", large)
        tracemalloc.start()
        found.append(rule.found(mechanism, tally.counts, uniform(grid.size), None))
        vectors.append(tracemalloc.get_traced_memory()[1] / (8 * grid.size))
        tracemalloc.stop()
    together, apart = found
    assert apart.rule == together.rule
    assert apart.held_out == pytest.approx(together.held_out, rel=1e-12)
    assert vectors[1] < 60 < 120 < vectors[0], "beside one ascent, a vector or three of each"
