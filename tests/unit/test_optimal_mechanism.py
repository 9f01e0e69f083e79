"""The optimal mechanism against the whole linear program, and private as returned."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

import geoveil as gv
from geoveil.errors import InvalidInput, TooLarge
from geoveil.optimal.optimal_mechanism import PrivacyConstraints, repair


def whole_program(space, prior, epsilon, losses):
    """min Σ π·C·L under every constraint C[x, y] e^{−εd} ≤ C[x′, y], all at once, by HiGHS."""
    m = space.size
    factors = np.exp(-epsilon * space.distances_km())
    rows, rights = [], []
    for x in range(m):
        for other in range(m):
            if x == other:
                continue
            for y in range(m):
                row = np.zeros((m, m))
                row[x, y], row[other, y] = factors[x, other], -1.0
                rows.append(row.ravel())
                rights.append(0.0)
    sums = np.kron(np.eye(m), np.ones(m))
    solved = linprog(
        (prior[:, None] * losses).ravel(), np.array(rows), rights, sums, np.ones(m), method="highs"
    )
    return solved.fun


SPACES = {
    "line": gv.Line(5),
    "grid": gv.Grid(rows=3, columns=3, cell_km=1.0),
    "narrow grid": gv.Grid(rows=2, columns=4, cell_km=0.7),
    "points": gv.Points(xy_km=[[0, 0], [0.4, 0.1], [2, 1], [2.2, 1.3], [5, 0]]),
}


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", SPACES)
def test_same_optimum_as_the_whole_program(name, epsilon):
    space = SPACES[name]
    prior = np.random.default_rng(len(name)).dirichlet(np.full(space.size, 0.5))
    best = gv.optimal_mechanism(space, prior, epsilon_per_km=epsilon)
    wanted = whole_program(space, prior, epsilon, space.distances_km())
    assert best.optimality.expected_loss == pytest.approx(wanted, rel=1e-7, abs=1e-9)
    assert gv.expected_loss(best, prior, gv.distance_km) == pytest.approx(
        wanted, rel=1e-7, abs=1e-9
    )
    assert best.optimality.lower_bound <= wanted * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_private_as_returned_and_better_than_the_others(epsilon):
    grid = gv.Grid(rows=4, columns=5, cell_km=1.0)
    prior = np.random.default_rng(3).dirichlet(np.full(grid.size, 0.3))
    best = gv.optimal_mechanism(grid, prior, epsilon_per_km=epsilon)
    certificate = gv.certify(gv.DenseChannel(grid, best.matrix()))
    assert certificate.epsilon_per_km <= epsilon * (1 + 1e-9)
    assert best.certificate.holds
    np.testing.assert_allclose(best.matrix().sum(axis=1), 1.0, atol=1e-12)
    for other in (
        gv.PlanarGeometric(grid, epsilon_per_km=epsilon),
        gv.elastic(grid, prior, epsilon_per_km=epsilon),
    ):
        remapped = gv.bayesian_remap(other, prior)
        assert best.optimality.expected_loss <= gv.mean_distance_km(remapped, prior) + 1e-9


def test_a_prior_with_zeros_and_another_loss():
    grid = gv.Grid(rows=3, columns=3, cell_km=1.0)
    prior = np.array([0, 0.5, 0, 0, 0, 0.25, 0, 0, 0.25])
    best = gv.optimal_mechanism(grid, prior, epsilon_per_km=0.7, loss=gv.squared_distance_km2)
    wanted = whole_program(grid, prior, 0.7, grid.distances_km() ** 2)
    assert best.optimality.expected_loss == pytest.approx(wanted, rel=1e-7)
    assert best.certificate.holds


def test_a_spanner_is_private_and_says_what_it_may_lose():
    grid = gv.Grid(rows=4, columns=4, cell_km=1.0)
    prior = np.full(16, 1 / 16)
    exact = gv.optimal_mechanism(grid, prior, epsilon_per_km=1.0)
    spanned = gv.optimal_mechanism(grid, prior, epsilon_per_km=1.0, spanner=1.2)
    assert spanned.certificate.holds
    assert spanned.optimality.pairs < exact.optimality.pairs
    assert spanned.optimality.expected_loss >= exact.optimality.expected_loss - 1e-9
    assert spanned.optimality.lower_bound <= exact.optimality.expected_loss + 1e-9
    divided = gv.optimal_mechanism(grid, prior, epsilon_per_km=1.0 / 1.2)
    assert spanned.optimality.expected_loss <= divided.optimality.expected_loss + 1e-9


def test_constraints_are_added_as_they_are_broken():
    """Above 64 cells the program starts with a spanner's pairs and never writes down all of them."""
    grid = gv.Grid(rows=5, columns=13, cell_km=1.0)
    prior = np.random.default_rng(5).dirichlet(np.full(65, 0.4))
    best = gv.optimal_mechanism(grid, prior, epsilon_per_km=1.0, gap=1e-2)
    assert best.optimality.gap <= 1e-2
    assert best.optimality.pairs < 65 * 64
    assert best.certificate.holds


def test_other_promises_than_per_kilometre():
    line = gv.Line(5)
    near = gv.WithinRadius(radius_km=1.0, epsilon=1.0)
    best = gv.optimal_mechanism(line, np.full(5, 0.2), privacy=near)
    assert best.guarantee == near
    assert best.certificate.holds
    assert not np.allclose(best.matrix(), np.eye(5))


def test_the_repair_makes_a_broken_matrix_private():
    """A solver's matrix: zeros beside positives in one column, an infinite loss as it stands."""
    line = gv.Line(4)
    broken = np.array([[0.6, 0.4, 0, 0], [0.3, 0.4, 0.3, 0], [0, 0.3, 0.4, 0.3], [0, 0, 0.4, 0.6]])
    promise = gv.GeoIndistinguishability(1.0)
    mended = repair(
        broken, PrivacyConstraints.of(line, promise), np.abs(np.subtract.outer(range(4), range(4)))
    )
    assert not gv.certify(gv.DenseChannel(line, broken)).holds
    assert gv.certify(gv.DenseChannel(line, mended, guarantee=promise)).holds


def test_too_few_steps_are_a_result_with_a_reason():
    grid = gv.Grid(rows=3, columns=4, cell_km=1.0)
    best = gv.optimal_mechanism(grid, np.full(12, 1 / 12), epsilon_per_km=1.0, most_steps=3)
    assert best.certificate.holds
    assert best.optimality.gap > 1e-8
    assert "allow more of them" in best.optimality.stopped


def test_a_gap_below_rounding_is_a_result_with_a_reason():
    grid = gv.Grid(rows=3, columns=3, cell_km=1.0)
    best = gv.optimal_mechanism(grid, np.full(9, 1 / 9), epsilon_per_km=1.0, gap=1e-17)
    assert best.certificate.holds
    assert best.optimality.gap < 1e-8
    assert "ask for a larger gap" in best.optimality.stopped


@pytest.mark.parametrize("gap", [0.03, 0.3])
def test_a_wide_gap_is_reached_at_once(gap):
    grid = gv.Grid(rows=6, columns=11, cell_km=1.0)
    best = gv.optimal_mechanism(grid, np.full(66, 1 / 66), epsilon_per_km=1.0, gap=gap)
    assert best.optimality.gap <= gap
    assert best.optimality.rounds <= 3


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"epsilon_per_km": -1.0},
        {"epsilon_per_km": 1.0, "privacy": gv.WithinRadius(radius_km=1.0, epsilon=1.0)},
        {"epsilon_per_km": 1.0, "spanner": 0.9},
        {"epsilon_per_km": 1.0, "gap": 0.0},
        {"epsilon_per_km": 1.0, "loss": np.ones((2, 2))},
        {"epsilon_per_km": 1.0, "loss": -np.ones((3, 3))},
        {"epsilon_per_km": 1.0, "loss": "distance"},
    ],
)
def test_bad_input_is_refused(wrong):
    with pytest.raises(InvalidInput):
        gv.optimal_mechanism(gv.Line(3), [0.2, 0.3, 0.5], **wrong)


def test_priors_must_not_be_negative_and_spaces_must_be_small():
    with pytest.raises(InvalidInput, match="prior must not be negative"):
        gv.optimal_mechanism(gv.Line(3), [0.7, 0.5, -0.2], epsilon_per_km=1.0)
    with pytest.raises(TooLarge, match="at most 400"):
        gv.optimal_mechanism(gv.Line(500), np.full(500, 1 / 500), epsilon_per_km=1.0)


def test_it_can_be_saved_and_audited(tmp_path):
    grid = gv.Grid(rows=3, columns=3, cell_km=1.0)
    best = gv.optimal_mechanism(grid, np.full(9, 1 / 9), epsilon_per_km=1.0)
    gv.save_mechanism(best, tmp_path / "mechanism.json")
    again = gv.load_mechanism(tmp_path / "mechanism.json")
    assert gv.certify(again).holds
    np.testing.assert_array_equal(again.matrix(), best.matrix())


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_where_the_place_is_known_nothing_is_lost_and_nothing_is_missing(epsilon):
    space = gv.Grid(rows=3, columns=3, cell_km=1.0)
    best = gv.optimal_mechanism(space, np.eye(9)[4], epsilon_per_km=epsilon).optimality
    assert best.expected_loss == pytest.approx(0.0, abs=1e-12)
    assert best.lower_bound == 0.0
    assert best.gap == 0.0
    assert best.stopped == "within the gap"
