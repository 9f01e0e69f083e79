"""Propositions 2 and 3 against exact moments found by enumerating every outcome."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.errors import InvalidInput
from geoveil.estimate.mixture import (
    randomized_response_error_bound,
    randomized_response_level,
    randomized_response_mixture,
    rappor_error_bound,
    rappor_level,
    rappor_mixture,
)

THETA = np.array([0.6, 0.3, 0.1])
levels = st.floats(0.05, 8.0)


def response_law(epsilon: float, size: int) -> np.ndarray:
    """Row x: the law of the report, as one-hot vectors in the columns' order."""
    weights = np.ones((size, size)) + (math.exp(epsilon) - 1) * np.eye(size)
    return weights / (size - 1 + math.exp(epsilon))


def rappor_law(epsilon: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All bit vectors, and the law of the report at each cell."""
    vectors = np.array(list(itertools.product([0, 1], repeat=size)))
    keep = math.exp(epsilon / 2) / (1 + math.exp(epsilon / 2))
    same = (vectors[None, :, :] == np.eye(size)[:, None, :]).sum(axis=2)
    return vectors, keep**same * (1 - keep) ** (size - same)


def moments(
    laws: list[np.ndarray], vectors: np.ndarray, estimate: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, float]:
    """E θ̂ and E‖θ̂ − θ‖² over every combination of one report per person."""
    mean, error = np.zeros(THETA.size), 0.0
    reports = [THETA @ law for law in laws]
    for outcome in itertools.product(range(len(vectors)), repeat=len(laws)):
        chance = math.prod(law[y] for law, y in zip(reports, outcome, strict=True))
        found = estimate(vectors[list(outcome)].mean(axis=0))
        mean += chance * found
        error += chance * float(((found - THETA) ** 2).sum())
    return mean, error


def response_moments(epsilons: list[float]) -> tuple[np.ndarray, float]:
    average = np.mean([response_law(epsilon, 3) for epsilon in epsilons], axis=0)
    inverse = np.linalg.inv(average)
    return moments([response_law(e, 3) for e in epsilons], np.eye(3), lambda q: q @ inverse)


def rappor_moments(epsilons: list[float]) -> tuple[np.ndarray, float]:
    flip = float(np.mean([1 / (1 + math.exp(e / 2)) for e in epsilons]))
    vectors, _ = rappor_law(1.0, 3)
    laws = [rappor_law(e, 3)[1] for e in epsilons]
    return moments(laws, vectors, lambda s: (s - flip) / (1 - 2 * flip))


CASES = [
    (response_moments, randomized_response_error_bound),
    (rappor_moments, rappor_error_bound),
]


@pytest.mark.parametrize(("exact", "bound"), CASES)
@pytest.mark.parametrize("epsilon", [0.4, 1.0, 3.0])
def test_the_bound_is_exact_when_all_share_a_level(
    exact: Callable[[list[float]], tuple[np.ndarray, float]],
    bound: Callable[..., float],
    epsilon: float,
) -> None:
    mean, error = exact([epsilon] * 3)
    assert mean == pytest.approx(THETA, abs=1e-10)
    assert bound(THETA, epsilon, 3) == pytest.approx(error, rel=1e-10)
    assert bound(THETA, [epsilon, epsilon], [2, 1]) == pytest.approx(error, rel=1e-10)


@pytest.mark.parametrize(("exact", "bound"), CASES)
def test_the_bound_holds_and_is_not_exact_when_levels_differ(
    exact: Callable[[list[float]], tuple[np.ndarray, float]], bound: Callable[..., float]
) -> None:
    mixed = [0.3, 1.0, 4.0]
    mean, error = exact(mixed)
    assert mean == pytest.approx(THETA, abs=1e-10)
    assert error < bound(THETA, mixed, 1) < 1.3 * error


@given(st.lists(levels, min_size=1, max_size=5), st.integers(2, 40))
def test_the_level_of_a_mixture_solves_its_equation(epsilons: list[float], size: int) -> None:
    level = randomized_response_level(epsilons, size=size)
    mean = np.mean([1 / (size - 1 + math.exp(e)) for e in epsilons])
    assert 1 / (size - 1 + math.exp(level)) == pytest.approx(mean)
    half = rappor_level(epsilons)
    assert 1 / (1 + math.exp(half / 2)) == pytest.approx(
        np.mean([1 / (1 + math.exp(e / 2)) for e in epsilons])
    )
    for found in (level, half):
        assert min(epsilons) - 1e-9 <= found <= max(epsilons) + 1e-9


@given(st.lists(levels, min_size=1, max_size=5), st.integers(2, 40), st.integers(1, 1000))
def test_the_bounds_are_the_printed_formulas(epsilons: list[float], k: int, each: int) -> None:
    theta = np.random.default_rng(k).dirichlet(np.ones(k))
    n, left = each * len(epsilons), 1 - float((theta**2).sum())
    grown = math.exp(randomized_response_level(epsilons, size=k))
    printed = left / n + (k - 1) / n * (k + 2 * (grown - 1)) / (grown - 1) ** 2
    assert randomized_response_error_bound(theta, epsilons, each) == pytest.approx(printed)
    grown = math.exp(rappor_level(epsilons) / 2)
    printed = left / n + k * grown / (grown - 1) ** 2 / n
    assert rappor_error_bound(theta, epsilons, each) == pytest.approx(printed)


def test_people_weigh_the_levels() -> None:
    spread = randomized_response_level([1.0, 1.0, 1.0, 3.0], size=5)
    assert randomized_response_level([1.0, 3.0], size=5, people=[3, 1]) == pytest.approx(spread)
    assert rappor_level([1.0, 3.0], people=[1, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 50.0, 5000.0])
def test_extreme_levels_stay_accurate(epsilon: float) -> None:
    """To first order the gain is ε/k and ε/4; without noise the error is that of plain counting."""
    response, rappor = randomized_response_mixture(epsilon, 1, 4), rappor_mixture(epsilon, 1)
    if epsilon < 1:
        assert response.gain == pytest.approx(epsilon / 4, rel=epsilon)
        assert rappor.gain == pytest.approx(epsilon / 4, rel=epsilon)
        assert randomized_response_level(epsilon, size=4) == pytest.approx(epsilon, rel=1e-12)
    else:
        counting = (1 - float(THETA @ THETA)) / 10
        assert randomized_response_error_bound(THETA, epsilon, 10) == pytest.approx(counting)
        assert rappor_error_bound(THETA, epsilon, 10) == pytest.approx(counting, rel=1e-8)
        assert rappor_level(epsilon) in (pytest.approx(epsilon), math.inf)


@pytest.mark.parametrize(
    ("epsilon", "people"),
    [
        (0.0, 1),
        (-1.0, 1),
        (math.inf, 1),
        ([1.0, 2.0], [1]),
        (1.0, 0),
        (1.0, -2),
        ([[1.0]], 1),
        ([], 1),
        ("a", 1),
        (1.0, {}),
    ],
)
def test_levels_and_people_are_checked(epsilon: object, people: object) -> None:
    for bound in (randomized_response_error_bound, rappor_error_bound):
        with pytest.raises(InvalidInput, match=r"epsilon|people"):
            bound(THETA, epsilon, people)  # type: ignore[arg-type]
