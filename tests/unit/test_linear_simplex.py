"""Repairs of an estimate against a quadratic program and the conditions that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from geoveil.errors import InvalidInput
from geoveil.estimate.linear import MatrixInversion, clip_and_normalise, project_onto_simplex

values = st.lists(st.floats(-3, 3), min_size=1, max_size=12).map(np.array)


def nearest_by_program(point: np.ndarray) -> np.ndarray:
    """min ‖p − point‖² over the simplex, by sequential quadratic programming."""
    solved = minimize(
        lambda p: ((p - point) ** 2).sum(),
        np.full(point.size, 1 / point.size),
        jac=lambda p: 2 * (p - point),
        bounds=[(0, None)] * point.size,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return np.asarray(solved.x)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_projection_is_the_nearest_distribution(seed: int, size: int) -> None:
    point = np.random.default_rng(seed).normal(1 / size, 0.5, size)
    projected = project_onto_simplex(point)
    assert projected == pytest.approx(nearest_by_program(point), abs=1e-6)


@given(values, st.integers(0, 2**32 - 1))
def test_no_distribution_lies_at_an_acute_angle_behind_the_projection(
    point: np.ndarray, seed: int
) -> None:
    """⟨point − projection, other − projection⟩ ≤ 0 for every other distribution: its definition."""
    projected = project_onto_simplex(point)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(1, abs=1e-12)
    corners = np.eye(point.size)
    inside = np.random.default_rng(seed).dirichlet(np.ones(point.size), size=5)
    for other in (*corners, *inside):
        assert (point - projected) @ (other - projected) <= 1e-12


@given(values)
def test_repairs_leave_a_distribution_alone_and_keep_the_order(point: np.ndarray) -> None:
    for repair in (project_onto_simplex, clip_and_normalise):
        if repair is clip_and_normalise and point.max() <= 0:
            continue
        repaired = repair(point)
        assert repair(repaired) == pytest.approx(repaired, abs=1e-14)
        assert (np.diff(repaired[np.argsort(point, kind="stable")]) >= 0).all()


def test_normalising_clips_and_rescales() -> None:
    assert clip_and_normalise([0.9, 0.3, -0.2]).tolist() == pytest.approx([0.75, 0.25, 0.0])


def test_huge_values_are_projected_onto_a_corner() -> None:
    assert project_onto_simplex([1e300, 0.0, -1e300]).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("wrong", [[], [np.nan], [[0.5, 0.5]], 0.5])
def test_what_is_no_vector_is_refused(wrong: object) -> None:
    for repair in (project_onto_simplex, clip_and_normalise):
        with pytest.raises(InvalidInput, match="values"):
            repair(wrong)  # type: ignore[arg-type]


def test_nothing_positive_cannot_be_normalised() -> None:
    with pytest.raises(InvalidInput, match="positive"):
        clip_and_normalise([-1.0, 0.0])


def test_an_unknown_repair_is_answered_with_those_that_exist() -> None:
    with pytest.raises(InvalidInput, match="project, normalise"):
        MatrixInversion(repair="truncate")  # type: ignore[arg-type]
