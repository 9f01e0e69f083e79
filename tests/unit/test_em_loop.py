"""The loop itself: its step, its certificate, and the laws it obeys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from contract.estimators import counts_of, matrices
from geoveil.arrays import FloatArray, uniform
from geoveil.errors import InvalidInput
from geoveil.estimate import (
    ActiveSetNewton,
    CertifiedWithin,
    DenseOperator,
    Operator,
    Squarem,
    StackedOperator,
    Steps,
    maximise,
)
from geoveil.estimate.objective import Objective, em_path

ACCELERATORS: list[Any] = [None, Squarem(), ActiveSetNewton()]


@st.composite
def problems(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    matrix = draw(matrices())
    return matrix, draw(counts_of(matrix.shape[1]))


def log_likelihood(matrix: FloatArray, counts: FloatArray, theta: FloatArray) -> float:
    """Term by term, as the papers write it."""
    terms = [
        n * np.log(sum(theta[x] * matrix[x, i] for x in range(len(theta))))
        for i, n in enumerate(counts)
        if n
    ]
    return float(sum(terms) / sum(counts))


@settings(max_examples=15)
@given(problems())
def test_one_step_is_the_update_of_the_papers(problem: tuple[FloatArray, FloatArray]) -> None:
    matrix, counts = problem
    theta = np.arange(1.0, len(matrix) + 1)
    theta /= theta.sum()
    expected = [
        sum(
            n / counts.sum() * theta[x] * matrix[x, i] / (theta @ matrix[:, i])
            for i, n in enumerate(counts)
        )
        for x in range(len(matrix))
    ]
    ascent = maximise(DenseOperator(matrix), counts, start=theta, stop=Steps(1))
    np.testing.assert_allclose(ascent.distribution, expected, rtol=1e-12)
    assert ascent.log_likelihood == pytest.approx(log_likelihood(matrix, counts, expected))


@pytest.mark.parametrize("accelerate", ACCELERATORS, ids=["plain", "squarem", "newton"])
@settings(max_examples=15)
@given(problem=problems())
def test_the_likelihood_never_falls_and_the_simplex_is_never_left(
    problem: tuple[FloatArray, FloatArray], accelerate: Any
) -> None:
    matrix, counts = problem
    objective = Objective(DenseOperator(matrix), counts)
    start = np.full(len(matrix), 1 / len(matrix))
    path = em_path(objective, start) if accelerate is None else accelerate.path(objective, start)
    last = -np.inf
    for _, point in zip(range(40), path, strict=False):
        assert (point.theta >= 0).all()
        assert point.theta.sum() == pytest.approx(1, abs=1e-12)
        assert point.log_likelihood >= last - 1e-14
        last = float(point.log_likelihood)


def test_a_leap_brings_nobody_back_to_where_nobody_can_be() -> None:
    generator = np.random.default_rng(242)
    matrix = generator.dirichlet(np.full(6, 0.5), size=8)
    matrix[:3] = np.repeat([[1, 0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0, 0]], [2, 1], axis=0)
    counts = np.r_[0, 0, generator.integers(1, 100, 4)]  # what the first three report never came
    ascent = maximise(
        DenseOperator(matrix), counts, stop=CertifiedWithin(1e-6), accelerate=Squarem()
    )
    assert not ascent.distribution[:3].any()
    assert ascent.certificate <= 1e-6


@settings(max_examples=15)
@given(problems(), st.integers(0, 30))
def test_the_certificate_bounds_what_is_missing(
    problem: tuple[FloatArray, FloatArray], steps: int
) -> None:
    matrix, counts = problem
    likelihood = DenseOperator(matrix)
    early = maximise(likelihood, counts, stop=Steps(steps))
    best = maximise(likelihood, counts, stop=CertifiedWithin(1e-13), accelerate=ActiveSetNewton())
    found = log_likelihood(matrix, counts, best.distribution)
    assert found - log_likelihood(matrix, counts, early.distribution) <= early.certificate + 1e-12
    vertices = [log_likelihood(matrix, counts, vertex) for vertex in np.eye(len(matrix))]
    assert max(vertices) - found <= best.certificate + 1e-12  # nothing simple beats the maximum


@settings(max_examples=15)
@given(problems(), st.integers(0, 2**32 - 1))
def test_factors_of_columns_change_nothing_but_the_level(
    problem: tuple[FloatArray, FloatArray], seed: int
) -> None:
    matrix, counts = problem
    factors = np.random.default_rng(seed).uniform(0.01, 100, size=matrix.shape[1])
    plain = maximise(DenseOperator(matrix), counts, stop=Steps(7))
    scaled = maximise(DenseOperator(matrix * factors), counts, stop=Steps(7))
    np.testing.assert_allclose(scaled.distribution, plain.distribution, rtol=1e-9)
    assert scaled.certificate == pytest.approx(plain.certificate, abs=1e-9)
    level = counts @ np.log(factors) / counts.sum()
    assert scaled.log_likelihood == pytest.approx(plain.log_likelihood + level)


@settings(max_examples=15)
@given(problems())
def test_observations_never_made_contribute_nothing(
    problem: tuple[FloatArray, FloatArray],
) -> None:
    matrix, counts = problem
    impossible = np.concatenate([matrix, np.zeros((len(matrix), 1))], axis=1)
    plain = maximise(DenseOperator(matrix), counts, stop=Steps(5))
    wider = maximise(DenseOperator(impossible), [*counts, 0], stop=Steps(5))
    np.testing.assert_allclose(wider.distribution, plain.distribution, rtol=1e-12)


@settings(max_examples=15)
@given(problems(), st.integers(0, 2**32 - 1))
def test_renumbering_cells_commutes_with_every_step(
    problem: tuple[FloatArray, FloatArray], seed: int
) -> None:
    matrix, counts = problem
    order = np.random.default_rng(seed).permutation(len(matrix))
    for accelerate in ACCELERATORS:
        plain = maximise(DenseOperator(matrix), counts, stop=Steps(4), accelerate=accelerate)
        moved = maximise(DenseOperator(matrix[order]), counts, stop=Steps(4), accelerate=accelerate)
        np.testing.assert_allclose(
            moved.distribution, plain.distribution[order], rtol=1e-7, atol=1e-9
        )


@settings(max_examples=15)
@given(problems(), st.integers(0, 2**32 - 1))
def test_one_mechanism_split_in_two_is_one_mechanism(
    problem: tuple[FloatArray, FloatArray], seed: int
) -> None:
    matrix, counts = problem
    part = np.random.default_rng(seed).binomial(counts, 0.5)
    likelihood = DenseOperator(matrix)
    stacked = StackedOperator([likelihood, likelihood])
    together = maximise(likelihood, counts, stop=Steps(9))
    apart = maximise(stacked, np.concatenate([part, counts - part]), stop=Steps(9))
    np.testing.assert_allclose(apart.distribution, together.distribution, rtol=1e-9)
    assert apart.log_likelihood == pytest.approx(together.log_likelihood, abs=1e-12)


@settings(max_examples=15)
@given(problems(), st.integers(2, 4))
def test_problems_side_by_side_are_the_same_problems(
    problem: tuple[FloatArray, FloatArray], several: int
) -> None:
    matrix, counts = problem
    batch = np.stack([np.roll(counts, shift) for shift in range(several)])
    start = np.full((several, len(matrix)), 1 / len(matrix))
    path = em_path(Objective(DenseOperator(matrix), batch), start)
    after_three = [next(path) for _ in range(4)][-1]
    for row, own in enumerate(batch):
        alone = maximise(DenseOperator(matrix), own, stop=Steps(3))
        np.testing.assert_allclose(after_three.theta[row], alone.distribution, rtol=1e-9)
        assert after_three.log_likelihood[row] == pytest.approx(alone.log_likelihood)
        assert after_three.certificate[row] == pytest.approx(alone.certificate, abs=1e-9)


def test_a_warm_start_goes_on_where_it_stopped() -> None:
    matrix = np.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    likelihood, counts = DenseOperator(matrix), [5, 2, 9]
    first = maximise(likelihood, counts, stop=Steps(4))
    second = maximise(likelihood, counts, start=first.distribution, stop=Steps(6))
    whole = maximise(likelihood, counts, stop=Steps(10))
    np.testing.assert_allclose(second.distribution, whole.distribution, rtol=1e-12)
    assert whole.products == 2 * 11


def test_the_trace_tells_the_ascent_and_progress_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    ascent = maximise(
        DenseOperator(np.array([[0.75, 0.25], [0.25, 0.75]])),
        [3, 1],
        stop=Steps(3),
        progress=lambda done, of: seen.append((done, of)),
    )
    assert seen == [(0, 1000), (333, 1000), (666, 1000), (1000, 1000)]
    assert len(ascent.trace.log_likelihood) == len(ascent.trace.certificate) == 4
    assert ascent.trace.log_likelihood == sorted(ascent.trace.log_likelihood)
    assert ascent.trace.certificate[-1] == ascent.certificate


def test_a_start_without_full_support_is_refused() -> None:
    likelihood = DenseOperator(np.eye(3))
    with pytest.raises(InvalidInput, match=r"start .zero at 1 of 3 entries. must be positive"):
        maximise(likelihood, [1, 1, 1], start=[0.5, 0.5, 0.0])


@pytest.mark.parametrize(
    "start", [[0.5, np.nan, 0.5], [0.5, 0.5], [0.7, 0.7, 0.7], [1.5, -0.75, 0.25], "uniform"]
)
def test_a_start_that_is_no_distribution_is_refused(start: object) -> None:
    with pytest.raises(InvalidInput, match="start"):
        maximise(DenseOperator(np.eye(3)), [1, 1, 1], start=start)


@pytest.mark.parametrize("weights", [[0, 0, 0], [1, -1, 1], [1, np.inf, 1], [1, 1]])
def test_weights_that_make_no_sense_are_refused(weights: list[float]) -> None:
    with pytest.raises(InvalidInput, match="weights"):
        maximise(DenseOperator(np.eye(3)), weights)


class NoisyProducts(Operator):
    """An operator whose products carry the rounding noise of an FFT, and exact columns."""

    def __init__(self, matrix: FloatArray) -> None:
        self._matrix = matrix
        self._generator = np.random.default_rng(0)
        self.fetched: list[int] = []

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self._matrix.shape
        return rows, columns

    def _noisy(self, result: FloatArray) -> FloatArray:
        return result + self._generator.uniform(-3e-16, 1e-16, result.shape) * result.max()

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._noisy(theta @ self._matrix)

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._noisy(values @ self._matrix.T)

    def _column(self, column: int) -> FloatArray:
        self.fetched.append(column)
        return self._matrix[:, column]


def test_noise_of_fast_products_does_not_reach_the_estimate() -> None:
    size = 600  # above the size that is turned into a matrix
    line = np.arange(size)
    matrix = np.exp(-0.2 * np.abs(line[:, None] - line)) * np.where(line == 5, 1e-17, 1.0)
    counts = np.zeros(size)
    counts[300:] = 7
    counts[5] = 1  # far away and nearly impossible: its law drowns in the noise
    noisy = NoisyProducts(matrix)
    fast = maximise(noisy, counts, stop=Steps(30))
    exact = maximise(DenseOperator(matrix), counts, stop=Steps(30))
    np.testing.assert_allclose(fast.distribution, exact.distribution, rtol=1e-6, atol=1e-12)
    assert noisy.fetched == [5]
    assert exact.distribution[:20].sum() == pytest.approx(1 / counts.sum(), rel=1e-3)


def test_design_is_the_same_loop_with_the_roles_swapped() -> None:
    """Blahut–Arimoto: unknown weights c over reports, L[y, x] = e^{−βd}, weights π (PRIVIC §4)."""
    grid, beta = gv.Grid(rows=3, columns=4, cell_km=1.0), 1.2
    distances = grid.distances_km()
    prior = np.arange(1.0, 13.0) / 78
    kernel = np.exp(-beta * distances)
    by_hand = np.full(12, 1 / 12)
    for _ in range(5):
        by_hand = by_hand * (kernel @ (prior / (kernel @ by_hand)))
    ascent = maximise(DenseOperator(kernel.T), prior, stop=Steps(5))
    np.testing.assert_allclose(ascent.distribution, by_hand, rtol=1e-10)

    optimum = maximise(DenseOperator(kernel.T), prior, stop=CertifiedWithin(1e-10, 10**6))
    channel = optimum.distribution * kernel
    channel /= channel.sum(axis=1, keepdims=True)
    joint = prior[:, None] * channel
    reported = joint > 1e-100
    ratio = np.divide(channel, prior @ channel, out=np.ones_like(channel), where=reported)
    information = (joint * np.log(ratio, where=reported, out=np.zeros_like(ratio))).sum()
    assert -optimum.log_likelihood == pytest.approx(
        information + beta * (joint * distances).sum(), abs=1e-8
    )


def test_channels_and_matrices_give_the_same_products() -> None:
    grid = gv.Grid(rows=25, columns=25, cell_km=1.0)  # 625 cells: no matrix is made by itself
    channel = gv.PlanarGeometric(grid, epsilon_per_km=0.7)
    counts = np.random.default_rng(1).multinomial(5_000, channel.push(np.full(625, 1 / 625)))
    fast = maximise(channel, counts, stop=Steps(25))
    dense = maximise(DenseOperator(channel.matrix()), counts, stop=Steps(25))
    np.testing.assert_allclose(fast.distribution, dense.distribution, rtol=1e-8, atol=1e-15)
    assert fast.certificate == pytest.approx(dense.certificate, rel=1e-8)


def test_columns_come_out_in_order_from_a_stack() -> None:
    generator = np.random.default_rng(0)
    parts = [DenseOperator(generator.uniform(size=(3, n))) for n in (2, 4, 1)]
    stacked = StackedOperator(parts)
    whole = np.concatenate([part.matrix() for part in parts], axis=1)
    np.testing.assert_array_equal(stacked.columns(np.array([6, 0, 3])), whole[:, [6, 0, 3]])
    np.testing.assert_array_equal(stacked.column(5), whole[:, 5])
    np.testing.assert_array_equal(stacked.matrix(), whole)
    with pytest.raises(InvalidInput, match="same rows"):
        StackedOperator([DenseOperator(np.eye(2)), DenseOperator(np.eye(3))])
    with pytest.raises(InvalidInput, match="empty"):
        StackedOperator([])


@pytest.mark.parametrize(("columns", "small"), [(20, True), (30, False)])
def test_places_in_few_cells_are_one_matrix_also_of_two_rounds(columns: int, small: bool) -> None:
    grid = gv.Grid.from_box(
        south=45.0, west=4.0, north=45.08, east=4.0 + columns / 78.7, cell_km=1.0
    )
    law = gv.PositionalElastic(
        grid, beta_per_km=1.4, weights=np.full(grid.size, 1_000), step=126
    ).places(3)
    assert law is not None
    assert law.shape[0] > 512
    for operator in (law, StackedOperator([law, law])):
        counts = np.random.default_rng(1).integers(1, 50, operator.shape[1])
        objective = Objective(operator, counts)
        assert isinstance(objective.columns.operator, DenseOperator) is small
        theta = uniform(operator.shape[0])
        point = objective.at(theta)
        np.testing.assert_allclose(point.law, operator.push(theta), rtol=1e-9)
        by_hand = operator.pull(counts / counts.sum() / operator.push(theta))
        np.testing.assert_allclose(point.gradient, by_hand, rtol=1e-9)
