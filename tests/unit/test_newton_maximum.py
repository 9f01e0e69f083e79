"""The exact maximum, and acceleration on the way to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from contract.estimators import counts_of, matrices
from geoveil.arrays import FloatArray
from geoveil.estimate import (
    ActiveSetNewton,
    CertifiedWithin,
    DenseOperator,
    Operator,
    Squarem,
    Steps,
    maximise,
)
from geoveil.estimate.em import _Model, _newton_step
from geoveil.estimate.objective import Objective


def geometric(size: int, epsilon: float) -> FloatArray:
    return gv.LinearGeometric(gv.Line(size), epsilon_per_unit=epsilon).matrix()


def response(size: int, epsilon: float) -> FloatArray:
    return gv.RandomizedResponse(gv.Line(size), epsilon=epsilon).matrix()


def drawn(matrix: FloatArray, people: int, seed: int = 0) -> FloatArray:
    generator = np.random.default_rng(seed)
    truth = generator.dirichlet(np.full(len(matrix), 0.3))
    law = truth @ matrix
    return generator.multinomial(people, law / law.sum())


def design(people: FloatArray, beta: float, steps: int, grid: gv.Grid) -> FloatArray:
    """The elastic channel after some steps of Blahut–Arimoto."""
    kernel = np.exp(-beta * grid.distances_km())
    ascent = maximise(DenseOperator(kernel.T), people / people.sum(), stop=Steps(steps))
    channel = ascent.distribution * kernel
    return channel / channel.sum(axis=1, keepdims=True)


ZOO: dict[str, tuple[FloatArray, Any]] = {
    "randomised response": (response(30, 2.0), drawn(response(30, 2.0), 5_000)),
    "little signal": (response(30, 0.2), drawn(response(30, 0.2), 1_000)),
    "strong blur": (geometric(60, 0.1), drawn(geometric(60, 0.1), 100_000)),
    "few reports, many cells": (geometric(80, 0.5), drawn(geometric(80, 0.5), 7)),
    "one report": (geometric(20, 0.5), np.eye(20, dtype=int)[3]),
    "cells alike": (np.repeat(response(6, 1.0), 3, axis=0), drawn(response(6, 1.0), 500)),
    "no information": (np.full((5, 4), 0.25), np.array([5, 1, 2, 3])),
    "zeros": (np.eye(6) * 0.5 + np.roll(np.eye(6), 1, axis=1) * 0.5, np.array([9, 0, 3, 0, 4, 1])),
    "one cell": (np.array([[0.25, 0.75]]), np.array([3, 4])),
    "noiseless": (np.eye(7), np.array([5, 0, 1, 0, 0, 2, 9])),
}


def gap(matrix: FloatArray, counts: FloatArray, theta: FloatArray) -> float:
    """The certificate, computed apart from the library."""
    seen = counts > 0
    law = theta @ matrix[:, seen]
    return float(np.log((matrix[:, seen] @ (counts[seen] / counts.sum() / law)).max()))


@pytest.mark.parametrize("name", ZOO)
def test_the_maximum_is_found_and_certified(name: str) -> None:
    matrix, counts = ZOO[name]
    ascent = maximise(
        DenseOperator(matrix), counts, stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton()
    )
    assert ascent.stopped.startswith("certified within 1e-09")
    assert gap(matrix, counts, ascent.distribution) <= 1e-9 + 1e-13
    assert ascent.distribution.sum() == pytest.approx(1, abs=1e-12)
    assert (ascent.distribution >= 0).all()
    assert ascent.steps <= 120


@pytest.mark.parametrize("name", ["randomised response", "strong blur", "zeros"])
def test_the_likelihood_is_that_of_long_plain_ascent(name: str) -> None:
    matrix, counts = ZOO[name]
    newton = maximise(
        DenseOperator(matrix), counts, stop=CertifiedWithin(1e-10), accelerate=ActiveSetNewton()
    )
    plain = maximise(DenseOperator(matrix), counts, stop=Steps(3_000))
    assert newton.log_likelihood >= plain.log_likelihood - newton.certificate
    assert newton.log_likelihood - plain.log_likelihood <= plain.certificate


@settings(max_examples=40)
@given(st.data())
def test_any_problem_is_solved(data: st.DataObject) -> None:
    matrix = data.draw(matrices())
    counts = data.draw(counts_of(matrix.shape[1]))
    ascent = maximise(
        DenseOperator(matrix), counts, stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton()
    )
    assert gap(matrix, counts, ascent.distribution) <= 1e-9 + 1e-12


def test_a_unique_interior_maximum_is_the_inverse() -> None:
    matrix = response(5, 2.0)
    truth = np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    counts = (truth @ matrix * 10**9).round()
    ascent = maximise(
        DenseOperator(matrix), counts, stop=CertifiedWithin(1e-13), accelerate=ActiveSetNewton()
    )
    inverse = np.linalg.solve(matrix.T, counts / counts.sum())
    np.testing.assert_allclose(ascent.distribution, inverse, atol=1e-6)


def test_empty_cells_are_exactly_empty() -> None:
    matrix, counts = ZOO["noiseless"]
    ascent = maximise(
        DenseOperator(matrix),
        counts,
        stop=CertifiedWithin(1e-12),
        accelerate=ActiveSetNewton(warm_steps=0),
    )
    np.testing.assert_allclose(ascent.distribution, counts / counts.sum(), atol=1e-9)
    np.testing.assert_array_equal(ascent.distribution[counts == 0], 0)


def test_a_warm_start_near_the_maximum_saves_steps() -> None:
    matrix, counts = ZOO["strong blur"]
    likelihood, stop = DenseOperator(matrix), CertifiedWithin(1e-9)
    cold = maximise(likelihood, counts, stop=stop, accelerate=ActiveSetNewton(warm_steps=5))
    near = 0.999 * cold.distribution + 0.001 / len(matrix)
    warm = maximise(
        likelihood, counts, start=near, stop=stop, accelerate=ActiveSetNewton(warm_steps=5)
    )
    assert warm.steps < cold.steps


def test_it_takes_a_few_dozen_steps_where_plain_ascent_takes_thousands() -> None:
    """A city of 17 × 24 cells, an elastic channel after eight design steps, 123,000 reports."""
    grid = gv.Grid(rows=17, columns=24, cell_km=1.0)
    weights = np.zeros(grid.size)
    for centre, size in ((60, 5.0), (200, 3.0), (330, 2.0), (350, 1.0)):
        weights += size * np.exp(-grid.distances_from_km(centre) / 1.5)
    weights *= np.random.default_rng(0).gamma(0.5, size=grid.size)
    people = np.random.default_rng(1).multinomial(123_000, weights / weights.sum())
    matrix = design(people, 1.0, 8, grid)
    counts = np.random.default_rng(2).multinomial(123_000, people / people.sum() @ matrix)
    likelihood = DenseOperator(matrix)
    newton = maximise(likelihood, counts, stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton())
    assert newton.certificate <= 1e-9
    assert newton.steps <= 30 + 40
    plain = maximise(likelihood, counts, stop=Steps(2_000))
    assert plain.certificate > 1e-5


class Counted(Operator):
    """An operator that knows how often it was used."""

    def __init__(self, matrix: FloatArray) -> None:
        self._inner = DenseOperator(matrix)
        self.products = 0

    @property
    def shape(self) -> tuple[int, int]:
        return self._inner.shape

    def _push(self, theta: FloatArray) -> FloatArray:
        self.products += 1
        return self._inner._push(theta)

    def _pull(self, values: FloatArray) -> FloatArray:
        self.products += 1
        return self._inner._pull(values)


def test_squarem_needs_no_matrix_and_fewer_products() -> None:
    matrix = geometric(600, 0.3)
    counts = drawn(matrix, 10_000)
    plain, fast = Counted(matrix), Counted(matrix)
    slow = maximise(plain, counts, stop=CertifiedWithin(3e-4))
    quick = maximise(fast, counts, stop=CertifiedWithin(3e-4), accelerate=Squarem())
    assert slow.products == plain.products
    assert quick.products == fast.products
    assert quick.products < slow.products / 2


def test_squarem_goes_on_at_a_maximum() -> None:
    ascent = maximise(
        DenseOperator(np.full((3, 2), 0.5)), [1, 1], stop=Steps(4), accelerate=Squarem()
    )
    np.testing.assert_allclose(ascent.distribution, 1 / 3)
    assert ascent.certificate == 0


def test_newton_ends_where_nothing_can_be_gained() -> None:
    ascent = maximise(
        DenseOperator(np.eye(3)), [1, 2, 1], stop=Steps(10**6), accelerate=ActiveSetNewton()
    )
    assert ascent.stopped == "no step raises the log-likelihood any more in double precision"
    np.testing.assert_allclose(ascent.distribution, [0.25, 0.5, 0.25], atol=1e-12)


def test_cells_that_were_emptied_too_early_come_back() -> None:
    objective = Objective(DenseOperator(response(4, 2.0)), [30, 25, 25, 20])
    point, damping = objective.at(np.array([1.0, 0.0, 0.0, 0.0])), 1e-3
    for _ in range(60):
        found = _newton_step(objective, point, damping)
        if found is None:
            break
        point, damping = found
    assert point.certificate < 1e-10
    assert (point.theta > 0.1).all()


def test_a_step_is_as_large_as_the_cells_that_have_people() -> None:
    matrix = geometric(60, 0.2)
    weights = drawn(matrix, 50_000)
    found = maximise(
        DenseOperator(matrix), weights, stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton()
    )
    support = np.count_nonzero(found.distribution)
    assert support < 45
    objective = Objective(DenseOperator(matrix), weights)
    nearby = found.distribution + 1e-12  # what a fit starts from that follows another
    model = _Model(objective, objective.at(nearby / nearby.sum()))
    assert support <= model.working.size <= support + 2


def test_a_cell_with_next_to_nobody_comes_back_where_it_is_wanted() -> None:
    matrix = geometric(30, 0.7)
    before, after = (np.rint(1e5 * matrix[cell]) for cell in (5, 20))
    asked = {"stop": CertifiedWithin(1e-9), "accelerate": ActiveSetNewton(3)}
    first = maximise(DenseOperator(matrix), before, **asked).distribution + 1e-12
    moved = maximise(DenseOperator(matrix), after, start=first / first.sum(), **asked)
    assert moved.certificate <= 1e-9
    assert moved.distribution.argmax() == 20
    assert moved.steps < 40
