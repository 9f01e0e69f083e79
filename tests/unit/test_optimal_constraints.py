"""Privacy constraints: what can be left out, what spanners keep, and the repair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import geoveil as gv
from geoveil.errors import InvalidInput
from geoveil.optimal.optimal_mechanism import PrivacyConstraints, majorant, repair, spanner

sizes = st.integers(2, 14)
seeds = st.integers(0, 10_000)


def shortest(weights):
    """Floyd and Warshall."""
    lengths = weights.copy()
    for k in range(len(lengths)):
        lengths = np.minimum(lengths, lengths[:, k : k + 1] + lengths[k])
    return lengths


@given(sizes, seeds, st.floats(1.0, 2.5))
def test_chains_of_a_spanner_are_at_most_so_much_longer(size, seed, stretch):
    points = np.random.default_rng(seed).random((size, 2))
    distances = cdist(points, points)
    pairs, lengths = spanner(distances, stretch)
    graph = np.full((size, size), np.inf)
    np.fill_diagonal(graph, 0.0)
    graph[pairs[:, 0], pairs[:, 1]] = distances[pairs[:, 0], pairs[:, 1]]
    np.testing.assert_allclose(shortest(graph), lengths, rtol=1e-12)
    assert (lengths <= stretch * distances * (1 + 1e-9) + 1e-12).all()


@given(st.integers(1, 5), st.integers(1, 6), st.floats(0.1, 3))
def test_what_follows_from_others_is_left_out_and_no_more(rows, columns, epsilon):
    grid = gv.Grid(rows=rows, columns=columns, cell_km=0.7)
    if grid.size == 1:
        return
    found = PrivacyConstraints.of(grid, gv.PerKilometre(epsilon))
    np.testing.assert_allclose(found.weights, epsilon * grid.distances_km(), rtol=1e-9)
    # on a lattice exactly the pairs that see each other matter: no cell between them
    row, column = (np.abs(np.subtract.outer(a, a)) for a in grid.row_column(np.arange(grid.size)))
    assert ((np.gcd(row, column) == 1) == found.direct).all()


def test_promises_within_a_radius_add_up_along_chains():
    found = PrivacyConstraints.of(gv.Line(5), gv.WithinRadius(radius_km=1.0, epsilon=0.5))
    np.testing.assert_allclose(found.weights, 0.5 * gv.Line(5).distances_km())
    parted = PrivacyConstraints.of(
        gv.Points(xy_km=[[0, 0], [0.5, 0], [9, 0]]), gv.WithinRadius(radius_km=1.0, epsilon=0.5)
    )
    assert np.isinf(parted.weights[0, 2])


@given(sizes, seeds, st.floats(0.05, 4), st.floats(0, 0.3))
@settings(max_examples=40)
def test_any_matrix_becomes_private(size, seed, epsilon, noise):
    rng = np.random.default_rng(seed)
    space = gv.Points(xy_km=rng.random((size, 2)) * 3 + np.arange(size)[:, None] * 0.2)
    promise = gv.PerKilometre(epsilon)
    constraints = PrivacyConstraints.of(space, promise)
    law = np.exp(-epsilon / 2 * space.distances_km())
    broken = law / law.sum(axis=1, keepdims=True)
    broken = np.maximum(broken + noise * (rng.random((size, size)) - 0.5), 0.0)
    mended = repair(broken, constraints, rng.random((size, size)))
    np.testing.assert_allclose(mended.sum(axis=1), 1.0, atol=1e-12)
    assert gv.certify(gv.DenseChannel(space, mended, guarantee=promise)).holds


def test_a_private_matrix_stays_as_it_is():
    grid = gv.Grid(rows=3, columns=3, cell_km=1.0)
    exponential = gv.Exponential(grid, epsilon_per_km=1.0).matrix()
    constraints = PrivacyConstraints.of(grid, gv.PerKilometre(1.0))
    np.testing.assert_allclose(majorant(exponential, constraints), exponential, rtol=1e-12)
    mended = repair(exponential, constraints, np.ones((9, 9)))
    np.testing.assert_allclose(mended, exponential, atol=1e-12)


@pytest.mark.parametrize(
    "promise", [gv.PerKilometre(0.0), gv.WithinRadius(radius_km=1.0, epsilon=0.0)]
)
def test_no_loss_at_all_is_refused(promise):
    with pytest.raises(InvalidInput, match="must allow a loss above 0"):
        PrivacyConstraints.of(gv.Line(3), promise)
