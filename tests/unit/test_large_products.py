"""Shortcuts of large products: strips along the edges, windows, preconditioning."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from geoveil.channel.kernel import LatticeKernel
from geoveil.channel.truncated import TruncatedOperator
from geoveil.estimate import ActiveSetNewton, CertifiedWithin
from geoveil.estimate.em import maximise
from geoveil.mechanism.elastic import exponential_kernel
from geoveil.mechanism.planar import geometric_tables
from geoveil.position.centres import Centres
from geoveil.position.cone import RoundedCone
from geoveil.position.spread import SpreadKernel, layers_of


@pytest.mark.parametrize(("rows", "columns", "decay"), [(40, 50, 3.0), (1, 60, 2.0), (45, 2, 4.0)])
def test_strips_along_the_edges_are_enough(rows: int, columns: int, decay: float) -> None:
    products = TruncatedOperator(geometric_tables(rows, columns, decay))
    near_columns, near_rows = (near.places.size for near, *_ in (products._sides, products._ends))
    assert min(near_rows / rows, near_columns / columns) < 0.8
    exact = np.stack([products._row(cell) for cell in range(rows * columns)])
    given = np.random.default_rng(1).random((2, rows * columns))
    np.testing.assert_allclose(products._push(given), given @ exact, rtol=0, atol=1e-13)
    np.testing.assert_allclose(products._pull(given), given @ exact.T, rtol=0, atol=1e-13)


def test_rows_of_a_kernel_are_windows_of_its_table() -> None:
    signed = np.random.default_rng(1).random((5, 9))
    signed = signed + signed[::-1, ::-1]  # only the signs of both offsets together do not matter
    kernel = LatticeKernel(signed, signed=True)
    places = np.array(np.unravel_index(np.arange(15), (3, 5))).T
    offsets = places[:, None] - places[None, :]
    wanted = signed[offsets[..., 0] + 2, offsets[..., 1] + 4]
    np.testing.assert_array_equal(kernel.rows(np.arange(15)), wanted)
    np.testing.assert_allclose(kernel._push(np.arange(15.0)), wanted @ np.arange(15.0), rtol=1e-12)


@pytest.mark.parametrize(
    ("sides", "beta", "rim", "share"),
    [((80, 70), 1.5, 1, 1.0), ((90, 150), 0.7, 0, 0.6), ((66, 66), 8.0, 0, 1.0), ((300, 16), 0.3, 1, 1.0)],
)  # fmt: skip
def test_the_law_of_many_cells_takes_no_room_for_what_has_faded(
    sides: tuple[int, int], beta: float, rim: int, share: float
) -> None:
    generator = np.random.default_rng(1)
    mask = None if share == 1.0 else generator.random(sides[0] * sides[1]) < share
    centres = Centres.of_grid(*sides, step=10, pitch_km=0.1, rim=rim, mask=mask)
    kernel = SpreadKernel(centres, RoundedCone(beta, 0.87), layers_of(centres, 2))
    assert centres.lattice is not None
    assert np.prod(kernel._shape) < 0.75 * np.prod(centres.lattice.shape)
    # every entry is right to 1e-9 of itself, the floor of the kernel far away included
    ends = np.array([0, 5, centres.size // 2, centres.size - 1])
    columns = generator.integers(0, kernel.shape[1], 200)
    exact = np.stack([kernel._column(int(column)) for column in columns])
    pushed = kernel._push(np.eye(centres.size)[ends])
    np.testing.assert_allclose(pushed[:, columns], exact[:, ends].T, rtol=1e-9)
    values = np.zeros((2, kernel.shape[1]))
    values[0, columns[0]] = values[1, columns[1]] = 1.0
    np.testing.assert_allclose(kernel._pull(values), exact[:2], rtol=1e-9)
    back, forth = generator.normal(size=centres.size), generator.normal(size=kernel.shape[1])
    assert kernel._push(back) @ forth == pytest.approx(back @ kernel._pull(forth), rel=1e-9)


def test_up_to_4096_cells_the_law_has_room_for_all_of_its_kernel() -> None:
    centres = Centres.of_grid(64, 64, step=10, pitch_km=0.1)
    kernel = SpreadKernel(centres, RoundedCone(8.0, 0.87), layers_of(centres, 2))
    assert centres.lattice is not None
    assert kernel._shape == centres.lattice.shape == (128, 128)


def test_the_preconditioner_is_near_the_inverse_and_positive() -> None:
    grid = gv.Grid(rows=12, columns=15, cell_km=0.5)
    kernel = exponential_kernel(grid, 2.0)
    near = np.stack([kernel.apply_near_inverse(unit) for unit in np.eye(grid.size)])
    np.testing.assert_allclose(near, near.T, atol=1e-12)
    assert np.linalg.eigvalsh(near).min() > 0
    spread = np.linalg.eigvals(near @ kernel.rows(np.arange(grid.size))).real
    plain = np.linalg.eigvalsh(kernel.rows(np.arange(grid.size)))
    assert spread.max() / spread.min() < plain.max() / plain.min() / 3


def test_without_a_positive_spectrum_nothing_is_preconditioned() -> None:
    grid = gv.Grid(rows=12, columns=12, cell_km=0.5)
    kernel = exponential_kernel(grid, 0.01)
    values = np.arange(144.0)
    np.testing.assert_array_equal(kernel.apply_near_inverse(values), values)


def test_the_matrix_of_an_elastic_mechanism_is_its_rows() -> None:
    grid = gv.Grid(rows=3, columns=4, cell_km=0.5)
    weights = np.r_[0.0, np.arange(1.0, 12.0)]
    mechanism = gv.Elastic(grid, beta_per_km=3.0, weights=weights)
    rows = np.stack([mechanism.row(cell) for cell in range(12)])
    np.testing.assert_allclose(mechanism.matrix(), rows, rtol=1e-13)


def test_accelerated_blahut_arimoto_is_certified_where_the_plain_one_goes() -> None:
    grid = gv.Grid(rows=5, columns=6, cell_km=0.5)
    prior = np.random.default_rng(1).dirichlet(np.ones(30))
    stop = CertifiedWithin(1e-8)
    plain = maximise(exponential_kernel(grid, 1.0), prior, stop=stop)
    quick = gv.blahut_arimoto(
        grid, prior, beta_per_km=1.0, stop=stop, accelerate=ActiveSetNewton()
    ).ascent
    assert quick.certificate <= 1e-8
    assert abs(quick.log_likelihood - plain.log_likelihood) <= 1e-8
    assert quick.steps < plain.steps


def test_rappor_knows_its_space_without_looking_for_distinct_vectors() -> None:
    mechanism = gv.Rappor(gv.Line(30), epsilon=1.0)
    tally = mechanism.tally(mechanism.sample(np.zeros(5, dtype=int)))
    assert tally.space == gv.Line(30)
    gv.RapporEstimator().fit(tally)
    assert "_found" not in vars(tally)
