"""Chains against first-step analysis, and the chain of the published rule against loops and runs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import geoveil.campaign.long_run as module
from geoveil.campaign.campaign import Campaign
from geoveil.campaign.long_run import Chain, LongRun, Mesh, compositions, long_run
from geoveil.errors import InvalidInput, TooLarge
from geoveil.randomness import seeded
from geoveil.space.grid import Line

STEPS = {"design_steps": 4, "update_steps": 5}


# -- chains ----------------------------------------------------------------------------------------


@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_stationary_law_and_return_times(size: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).dirichlet(np.full(size, 0.5), size=size)
    chain = Chain(matrix)
    if not chain.irreducible:
        return
    np.testing.assert_allclose(chain.stationary @ matrix, chain.stationary, atol=1e-9)
    for state in range(size):
        # h(x) = expected steps to `state` from x: h = 1 + Σ_{z ≠ state} P(x, z) h(z)
        others = matrix.copy()
        others[:, state] = 0.0
        steps = np.linalg.solve(np.eye(size) - others, np.ones(size))
        assert 1 / chain.stationary[state] == pytest.approx(steps[state], rel=1e-6)


def test_period_and_classes() -> None:
    cycle = Chain(np.roll(np.eye(4), 1, axis=1))
    assert cycle.irreducible
    assert cycle.period == 4
    assert "period 4" in cycle.summary()
    lazy = Chain(0.5 * np.eye(4) + 0.5 * np.roll(np.eye(4), 1, axis=1))
    assert lazy.period == 1
    leaving = Chain([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.6, 0.4]])
    assert not leaving.irreducible
    assert leaving.recurrent.tolist() == [1, 2]
    assert leaving.stationary[0] == 0
    apart = Chain(np.eye(2))
    assert len(apart.closed_classes) == 2
    with pytest.raises(InvalidInput, match="closed classes"):
        _ = apart.stationary


def test_what_is_possible_may_be_too_small_for_a_float() -> None:
    assert not Chain([[1.0, 0.0], [0.5, 0.5]]).irreducible
    assert Chain([[1.0, 0.0], [0.5, 0.5]], possible=[[True, True], [True, True]]).irreducible


@pytest.mark.parametrize("wrong", [[[0.5, 0.4], [0.5, 0.5]], [[1.0, 0.0]], [[1.5, -0.5], [0, 1]]])
def test_wrong_matrices(wrong: list[list[float]]) -> None:
    with pytest.raises(InvalidInput):
        Chain(wrong)


# -- the mesh --------------------------------------------------------------------------------------


@given(st.integers(0, 8), st.integers(2, 4))
def test_compositions_are_all_and_different(total: int, parts: int) -> None:
    found = compositions(total, parts)
    assert len(found) == math.comb(total + parts - 1, parts - 1)
    assert len({tuple(row) for row in found.tolist()}) == len(found)
    assert (found.sum(axis=1) == total).all()
    assert (found >= 0).all()


@given(st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_nearest_is_nearest(size: int, seed: int) -> None:
    mesh = Mesh(size, 9)
    theta = np.random.default_rng(seed).dirichlet(np.ones(size))
    apart = np.square(mesh.states - theta).sum(axis=1)
    assert apart[mesh.nearest(theta[None, :])[0]] == pytest.approx(apart.min(), abs=1e-8)
    assert mesh.nearest(mesh.states).tolist() == list(range(len(mesh.states)))


# -- the chain of the rule -------------------------------------------------------------------------


def row_by_hand(believed: np.ndarray, truth: np.ndarray, beta: float, people: int) -> dict:
    """P(next counts and update), over every sequence of reports, with matrices and loops only."""
    size = believed.size
    kernel = np.exp(-beta * np.abs(np.subtract.outer(np.arange(size), np.arange(size))))
    weights = np.full(size, 1 / size)
    for _ in range(STEPS["design_steps"] - 1):
        channel = kernel * weights / (kernel @ weights)[:, None]
        weights = believed @ channel
    channel = kernel * weights / (kernel @ weights)[:, None]
    found: dict[tuple[float, ...], float] = {}
    for reports in itertools.product(range(size), repeat=people):
        chance = math.prod((truth @ channel)[list(reports)])
        theta = believed.copy()
        for _ in range(STEPS["update_steps"]):
            posterior = [theta * channel[:, y] / (theta @ channel[:, y]) for y in reports]
            theta = np.mean(posterior, axis=0)
        key = tuple(np.round(theta, 9))
        found[key] = found.get(key, 0.0) + chance
    return found


@pytest.mark.parametrize("truth", [(0.7, 0.3), (0.5, 0.2, 0.3)])
def test_transitions_by_hand(truth: tuple[float, ...]) -> None:
    run = long_run(Line(len(truth)), truth, beta_per_km=0.8, people=4, parts=8, **STEPS)
    assert run.exact
    for number in (0, len(run.mesh.states) // 2):
        wanted = np.zeros(len(run.mesh.states))
        by_hand = row_by_hand(run.mesh.states[number], np.array(truth), 0.8, 4)
        for theta, chance in by_hand.items():
            wanted[run.mesh.nearest(np.array([theta]))[0]] += chance
        np.testing.assert_allclose(run.chain.transitions[number], wanted, atol=1e-9)
        np.testing.assert_array_equal(run.chain.possible[number], wanted > 0)


def test_lemma_of_the_paper_in_part() -> None:
    """Irreducible and aperiodic, as Lemma 6.1 says; but not every transition is possible at once."""
    run = long_run(Line(2), [0.7, 0.3], beta_per_km=1.0, people=12, parts=20, **STEPS)
    assert run.chain.irreducible
    assert run.chain.period == 1
    assert not run.chain.possible.all()
    assert "one stationary law" in run.summary()
    late = run.chain.after(400, start=0)
    np.testing.assert_allclose(late, run.chain.stationary, atol=1e-9)


def test_more_people_bring_the_long_run_to_the_truth() -> None:
    errors = [
        long_run(
            Line(2), [0.7, 0.3], beta_per_km=1.0, people=people, parts=30, **STEPS
        ).expected_error
        for people in (20, 100, 500)
    ]
    assert errors[0] > 1.5 * errors[1] > 2.25 * errors[2]


def test_sampled_rows_are_near_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"beta_per_km": 1.0, "people": 15, "parts": 10, **STEPS}
    exact = long_run(Line(2), [0.6, 0.4], **arguments)
    monkeypatch.setattr(module, "_MOST_OUTCOMES", 3)
    sampled = long_run(Line(2), [0.6, 0.4], samples=20_000, **arguments)
    assert not sampled.exact
    # Hoeffding: each entry is off by 0.025 with probability at most 2·exp(−2·20,000·0.025²) = 3e-11.
    assert np.abs(sampled.chain.transitions - exact.chain.transitions).max() < 0.025


def g_test(run: LongRun, visited: np.ndarray, start: int) -> float:
    """The p-value of a simulated run's transitions under the chain (pairs are independent given states)."""
    states = np.concatenate(([start], visited))
    statistic, freedom = 0.0, 0
    for state in np.unique(states[:-1]):
        seen = np.bincount(states[1:][states[:-1] == state], minlength=len(run.mesh.states))
        wanted = seen.sum() * run.chain.transitions[state]
        common = wanted >= 5
        if common.sum() < 2 or seen.sum() < 20:
            continue
        groups = [*zip(seen[common], wanted[common], strict=True)]
        rest = (seen[~common].sum(), wanted[~common].sum())
        groups += [rest] if rest[1] >= 5 else []
        statistic += sum((count - mean) ** 2 / mean for count, mean in groups)
        freedom += len(groups) - 1
    assert freedom > 10
    return float(chi2.sf(statistic, freedom))


@pytest.mark.statistical
def test_simulated_runs_follow_the_chain_and_not_another() -> None:
    run = long_run(Line(2), [0.7, 0.3], beta_per_km=1.0, people=25, parts=10, **STEPS)
    other = long_run(Line(2), [0.55, 0.45], beta_per_km=1.0, people=25, parts=10, **STEPS)
    visited = run.simulate(450, randomness=seeded(4), start=4)
    assert g_test(run, visited, 4) > 1e-9
    assert g_test(other, visited, 4) < 1e-9
    seen = np.bincount(visited, minlength=9) / 450
    assert 0.5 * np.abs(seen - run.chain.stationary).sum() < 0.2


def test_off_the_mesh_it_is_the_published_collection() -> None:
    run = long_run(Line(2), [0.7, 0.3], beta_per_km=1.0, people=50, parts=10, **STEPS)
    visited = run.simulate(12, randomness=seeded(9), on_mesh=False, start=4)  # 4: (0.5, 0.5)
    collection = Campaign.as_published(Line(2), beta_per_km=1.0, **STEPS)
    randomness = seeded(9)
    for state in visited:
        people = (randomness.uniform(50) >= 0.7).astype(np.int64)
        reports = collection.mechanism.sample(people, randomness=randomness)
        collection.receive(collection.mechanism.tally(reports))
        collection.close_round()
        assert run.mesh.nearest(collection.distribution[None, :])[0] == state


def test_too_large() -> None:
    with pytest.raises(TooLarge, match="fewer cells or parts"):
        Mesh(4, 60)
