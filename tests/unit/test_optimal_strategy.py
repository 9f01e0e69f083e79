"""Shokri's strategy: its value against the linear program of the paper, and its own bound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

import geoveil as gv
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure import adversary_loss
from geoveil.optimal import optimal_strategy


def program_value(losses, prior, limit):
    """max Σ_y p_y with p_y ≤ Σ_x π A ℓ(x, z) for all z, Σ π A ℓ ≤ Q: FREEWILL §8.2.4, by HiGHS."""
    m = len(losses)
    costs = np.r_[np.zeros(m * m), -np.ones(m)]
    rows = []
    for y in range(m):
        for z in range(m):
            row = np.zeros((m, m))
            row[:, y] = -prior * losses[:, z]
            rows.append(np.r_[row.ravel(), np.eye(m)[y]])
    rows.append(np.r_[(prior[:, None] * losses).ravel(), np.zeros(m)])
    sums = np.hstack([np.kron(np.eye(m), np.ones(m)), np.zeros((m, m))])
    found = linprog(
        costs, np.array(rows), np.r_[np.zeros(m * m), limit], sums, np.ones(m),
        bounds=[(0, None)] * (m * m) + [(None, None)] * m, method="highs",
    )  # fmt: skip
    return -found.fun


SPACES = {
    "line": gv.Line(7),
    "grid": gv.Grid(rows=3, columns=4, cell_km=1.0),
    "points": gv.Points(xy_km=[[0, 0], [0.4, 0.1], [2, 1], [2.2, 1.3], [5, 0]]),
}


@pytest.mark.parametrize("share", [0.2, 0.7, 0.95, 1.5])
@pytest.mark.parametrize("name", SPACES)
def test_the_value_is_that_of_the_program_and_of_the_bound(name, share):
    space = SPACES[name]
    prior = np.random.default_rng(7).dirichlet(np.ones(space.size))
    losses = space.distances_km()
    single = (prior @ losses).min()
    limit = share * single
    strategy = optimal_strategy(space, prior, mean_loss_km=limit)
    found = strategy.optimality
    assert found.upper_bound == pytest.approx(min(limit, single))
    assert program_value(losses, prior, limit) == pytest.approx(found.upper_bound, rel=1e-6)
    assert found.gap <= 1e-5
    assert found.privacy == pytest.approx(gv.adversary_error_km(strategy, prior), rel=1e-9)
    assert gv.mean_distance_km(strategy, prior) <= limit * (1 + 1e-9)
    assert strategy.guarantee is None


def conditional_entropy(matrix, prior):
    logs = np.log(matrix, where=matrix > 0, out=np.zeros_like(matrix))
    return -float(prior @ (matrix * logs).sum(axis=1))


def test_of_all_optimal_channels_it_has_the_largest_entropy():
    """Truth with probability 1 − s, else the best single place, is optimal too, and says much more."""
    line, prior = gv.Line(9), np.full(9, 1 / 9)
    losses = line.distances_km()
    single = prior @ losses
    limit = 0.6 * single.min()
    ours = optimal_strategy(line, prior, mean_loss_km=limit).matrix()
    plain = 0.4 * np.eye(9)
    plain[:, single.argmin()] += 0.6
    other = gv.DenseChannel(line, plain)
    assert gv.adversary_error_km(other, prior) == pytest.approx(limit)
    assert conditional_entropy(ours, prior) > conditional_entropy(plain, prior) + 0.5
    for share in (0.01, 0.3):  # also against mixtures, which are optimal as well
        mixed = (1 - share) * ours + share * plain
        assert gv.adversary_error_km(gv.DenseChannel(line, mixed), prior) == pytest.approx(
            limit, rel=1e-5
        )
        assert conditional_entropy(ours, prior) > conditional_entropy(mixed, prior)


def test_it_respects_the_symmetry_of_its_space():
    """What is unique has every symmetry of the problem; a vertex of the program need not."""
    ours = optimal_strategy(gv.Line(8), np.full(8, 1 / 8), mean_loss_km=1.1).matrix()
    np.testing.assert_allclose(ours, ours[::-1, ::-1], atol=1e-4)


def test_a_prior_with_zeros_and_another_loss():
    grid = gv.Grid(rows=2, columns=3, cell_km=1.0)
    prior = np.array([0.5, 0, 0.2, 0, 0.3, 0])
    strategy = optimal_strategy(grid, prior, mean_loss_km=0.4, loss=gv.squared_distance_km2)
    found = strategy.optimality
    assert found.gap <= 1e-5
    assert found.privacy == pytest.approx(
        adversary_loss(strategy, prior, gv.squared_distance_km2), rel=1e-9
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean_loss_km": 0.0},
        {"mean_loss_km": -1.0},
        {"mean_loss_km": 1.0, "prior": [0.5, 0.7, -0.2]},
        {"mean_loss_km": 1.0, "loss": gv.RadialLoss("late", lambda d: d + 1)},
        {"mean_loss_km": 1.0, "loss": gv.RadialLoss("negative", lambda d: -d)},
        {"mean_loss_km": 1.0, "gap": 0.0},
    ],
)
def test_bad_input(wrong):
    with pytest.raises(InvalidInput):
        optimal_strategy(gv.Line(3), **{"prior": [0.2, 0.3, 0.5], **wrong})


def test_too_many_cells():
    grid = gv.Grid(rows=40, columns=40, cell_km=1.0)
    with pytest.raises(TooLarge, match="1024"):
        optimal_strategy(grid, np.full(1600, 1 / 1600), mean_loss_km=1.0)


@pytest.mark.slow
def test_the_map_and_the_line_of_the_paper():
    """FREEWILL Table 8: 100 integers, and 24 × 16 cells of 0.5 km, all of them proven optimal."""
    line, city = gv.Line(100), gv.Grid(rows=16, columns=24, cell_km=0.5)
    for space, limits in ((line, (1.0, 13.0, 24.5, 28.0)), (city, (0.3, 1.5, 3.0))):
        prior = np.full(space.size, 1 / space.size)
        for limit in limits:
            found = optimal_strategy(space, prior, mean_loss_km=limit).optimality
            assert found.gap <= 1e-6
            assert found.loss <= limit * (1 + 1e-12)


def test_a_space_of_more_dimensions():
    """Vectors of counts lie in as many dimensions as there are places."""
    vectors = gv.CountRelease(people=3, prior=[0.5, 0.3, 0.2], multiplier=1.0).designs[0].vectors
    prior = np.full(vectors.size, 1 / vectors.size)
    strategy = optimal_strategy(vectors, prior, mean_loss_km=0.5)
    assert strategy.optimality.privacy == pytest.approx(0.5, rel=1e-4)
    assert adversary_loss(strategy, prior, gv.distance_km) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("limit", [1e-3, 1e-5])
def test_a_metre_or_less_may_be_lost_in_large_cells(limit):
    """No report but the truth had a chance in double precision, and the adversary knew all."""
    prior = np.arange(1.0, 7.0) / 21
    reached = optimal_strategy(gv.Line(6), prior, mean_loss_km=limit).optimality
    assert reached.stopped == "within the gap"
    assert reached.privacy == pytest.approx(limit, rel=1e-6)
    assert reached.loss <= limit * (1 + 1e-12)
