"""Kernel products, by FFT and as matrices, against sums written out, near and far."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.channel import kernel as kernel_module
from geoveil.channel.kernel import DenseKernel, LatticeKernel, kernel_on, lattice_distances_km
from geoveil.mechanism.elastic import exponential_kernel

SHAPES = [(1, 1), (1, 9), (9, 1), (2, 2), (7, 12)]


@pytest.fixture(params=[0, 512], ids=["by FFT", "as a matrix"])
def dense_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Up to how many cells products are those with a matrix."""
    size = int(request.param)
    monkeypatch.setattr(kernel_module, "_DENSE_SIZE", size)
    return size


def direct(space: gv.Space, beta: float, values: np.ndarray) -> np.ndarray:
    distances = space.distances_km().astype(np.longdouble)
    return np.asarray(np.exp(-beta * distances) @ values.astype(np.longdouble), dtype=np.float64)


@pytest.mark.parametrize("shape", SHAPES)
def test_apply_is_the_sum_written_out(shape: tuple[int, int], dense_size: int) -> None:
    grid = gv.Grid(rows=shape[0], columns=shape[1], cell_km=0.7)
    kernel = kernel_on(grid, lambda distance: np.exp(-1.3 * distance))
    assert isinstance(kernel, LatticeKernel)
    assert kernel.exact == (dense_size > 0)
    values = np.random.default_rng(0).normal(size=(2, 3, grid.size))
    wanted = np.array([[direct(grid, 1.3, v) for v in row] for row in values])
    np.testing.assert_allclose(kernel._push(values), wanted, rtol=0, atol=1e-13)
    assert (np.abs(kernel._push(values) - wanted) <= kernel.noise(values)).all()
    rows = kernel.rows(np.arange(grid.size))
    np.testing.assert_allclose(rows, np.exp(-1.3 * grid.distances_km()), rtol=1e-14)


@pytest.mark.parametrize("beta", [1.0, 8.0, 19.0])
def test_values_far_from_all_mass_are_right_to_nine_digits(beta: float) -> None:
    grid = gv.Grid(rows=20, columns=31, cell_km=1.0)
    kernel = kernel_on(grid, lambda distance: np.exp(-beta * distance))
    values = np.zeros(grid.size)
    values[[0, 1, 33]] = 0.5, 0.3, 0.2
    wanted = direct(grid, beta, values)
    assert wanted.min() < 1e-10
    assert beta * grid.distances_km().max() < 700
    np.testing.assert_allclose(kernel.apply_exactly(values), wanted, rtol=1e-9)


def test_small_lattices_keep_small_values_without_a_budget() -> None:
    grid = gv.Grid(rows=9, columns=21, cell_km=1.0)
    kernel = kernel_on(grid, lambda distance: np.exp(-9 * distance))
    values = np.zeros(grid.size)
    values[0] = 1.0
    wanted = direct(grid, 9, values)
    assert wanted.min() < 1e-80
    np.testing.assert_allclose(kernel.apply_exactly(values, budget=0), wanted, rtol=1e-13)


def test_without_a_budget_noise_is_marked_as_such() -> None:
    grid = gv.Grid(rows=20, columns=31, cell_km=1.0)
    kernel = kernel_on(grid, lambda distance: np.exp(-9 * distance))
    values = np.zeros(grid.size)
    values[0] = 1.0
    result = kernel.apply_exactly(values, budget=0)
    wanted = direct(grid, 9, values)
    assert np.isnan(result).any()
    known = ~np.isnan(result)
    assert (np.abs(result - wanted)[known] <= kernel.noise(values)).all()


def test_spaces_choose_their_structure() -> None:
    line = kernel_on(gv.Line(5), np.exp)
    places = kernel_on(gv.Points(xy_km=[(0, 0), (3, 4)]), lambda distance: 1 / (1 + distance))
    assert isinstance(line, LatticeKernel)
    assert isinstance(places, DenseKernel)
    assert places._push(np.array([1.0, 0.0])).tolist() == [1.0, 1 / 6]
    assert places.rows(np.array([1])).tolist() == [[1 / 6, 1.0]]
    assert lattice_distances_km(gv.Line(3)).tolist() == [[0.0, 1.0, 2.0]]
    with pytest.raises(TypeError):
        lattice_distances_km(gv.Points(xy_km=[(0, 0), (3, 4)]))


def test_a_mechanism_takes_the_one_product_of_its_kernel_both_ways() -> None:
    draws = np.random.default_rng(11)
    places = gv.Points(xy_km=10 * draws.random((70, 2)))
    mechanism, values = gv.Exponential(places, epsilon_per_km=1.5), draws.gamma(0.5, size=70)
    kernel, weights = exponential_kernel(places, mechanism.beta_per_km), mechanism.weights
    assert np.array_equal(
        mechanism.pull(values),
        kernel._push(values * weights) * np.exp(-mechanism.log_normaliser),
    )
