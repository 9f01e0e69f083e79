"""Promise, dial and plain Blahut–Arimoto."""

import itertools
from inspect import signature
from typing import get_overloads, get_type_hints

import numpy as np
import pytest

import geoveil as gv
from geoveil.campaign.rules import PublishedRule
from geoveil.campaign.weights import (
    equalising_weights,
    least_leverage,
    with_leverage,
)
from geoveil.errors import InvalidInput
from geoveil.estimate.em import maximise
from geoveil.mechanism.elastic import exponential_kernel
from geoveil.space import MaskedGrid

GRID = gv.Grid(rows=7, columns=9, cell_km=0.5)


@pytest.fixture
def prior():
    weights = np.random.default_rng(3).random(GRID.size) ** 6
    return weights / weights.sum()


def plain_blahut_arimoto(prior, beta, steps):
    """The textbook iteration on dense matrices, rows normalised as method §11 says."""
    kernel = np.exp(-beta * GRID.distances_km())
    c = np.full(GRID.size, 1 / GRID.size)
    for _ in range(steps):
        channel = c * kernel
        channel /= channel.sum(axis=1, keepdims=True)
        c = prior @ channel
    channel = c * kernel
    return channel / channel.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("steps", [0, 1, 8])
def test_blahut_arimoto_is_the_textbook_iteration(prior, steps):
    mechanism = gv.blahut_arimoto(GRID, prior, beta_per_km=1.3, stop=gv.Steps(steps))
    expected = plain_blahut_arimoto(prior, 1.3, steps)
    np.testing.assert_allclose(mechanism.matrix(), expected, rtol=1e-9)


def test_leakage_falls_with_every_step_and_rate_distortion_is_certified(prior):
    designs = [
        gv.blahut_arimoto(GRID, prior, beta_per_km=1.0, stop=gv.Steps(n)) for n in (1, 4, 16, 64)
    ]
    costs = [d.leakage_bits * np.log(2) + d.beta_per_km * d.mean_distance_km for d in designs]
    assert all(a > b for a, b in itertools.pairwise(costs))
    best = gv.blahut_arimoto(GRID, prior, beta_per_km=1.0, stop=gv.CertifiedWithin(1e-7))
    optimum = -best.ascent.log_likelihood
    for design, cost in zip(designs, costs, strict=True):
        # R + βD of the channel lies between the optimum and −f of its weights, which the certificate bounds
        assert optimum - 1e-7 <= cost <= optimum + design.ascent.certificate + 1e-9


def test_limit_of_blahut_arimoto_warns_of_its_empty_cells(prior):
    few = gv.blahut_arimoto(GRID, prior, beta_per_km=1.0)
    limit = gv.blahut_arimoto(GRID, prior, beta_per_km=1.0, stop=gv.Steps(3000))
    assert few.warning is None
    assert limit.cells_with_weight < GRID.size / 2
    assert str(limit.cells_with_weight) in limit.warning


def test_floor_keeps_every_cell_reportable(prior):
    mechanism = gv.blahut_arimoto(GRID, prior, beta_per_km=1.0, stop=gv.Steps(500), floor=0.1)
    assert mechanism.weights.min() >= 0.1 / GRID.size * (1 - 1e-9)
    assert mechanism.rank == GRID.size


def test_rank_counts_what_a_dense_rank_counts():
    prior = np.zeros(GRID.size)
    prior[[3, 30]] = 0.5
    mechanism = gv.blahut_arimoto(GRID, prior, beta_per_km=8.0, stop=gv.Steps(4000))
    assert mechanism.rank == np.linalg.matrix_rank(mechanism.matrix(), tol=1e-12)


@pytest.mark.parametrize(("beta", "above"), [(0.5, 1.25), (2.0, 1.01), (6.0, 1.001)])
def test_equalising_weights_halve_the_guarantee(beta, above):
    """Exactly β where no corner had to be clipped; a little more where noise is as wide as the grid."""
    weights = equalising_weights(GRID, beta)
    mechanism = gv.Elastic(GRID, beta_per_km=beta, weights=weights)
    assert weights.min() >= 0
    assert gv.certify(mechanism).epsilon_per_km <= above * beta
    assert gv.certify(gv.Elastic(GRID, beta_per_km=beta)).epsilon_per_km > 1.02 * beta


@pytest.mark.parametrize("camouflage", [0.0, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_designs_meet_the_promise_from_below(prior, epsilon, camouflage):
    mechanism = gv.elastic(GRID, prior, epsilon_per_km=epsilon, camouflage=camouflage)
    enumerated = gv.certify(gv.DenseChannel(GRID, mechanism.matrix())).epsilon_per_km
    assert 0.99 * epsilon <= enumerated <= epsilon * (1 + 1e-9)
    assert mechanism.guarantee == gv.GeoIndistinguishability(epsilon)
    assert gv.certify(mechanism).holds


def test_camouflage_trades_distance_for_leakage(prior):
    dial = [gv.elastic(GRID, prior, epsilon_per_km=2.0, camouflage=k) for k in (0.0, 0.5, 1.0)]
    assert dial[0].mean_distance_km < dial[1].mean_distance_km < dial[2].mean_distance_km
    assert dial[0].leakage_bits > dial[1].leakage_bits > dial[2].leakage_bits


def test_leverage_is_the_rarest_truth(prior):
    mechanism = gv.elastic(GRID, prior, epsilon_per_km=4.0)
    rarest = 1 / np.diag(mechanism.matrix()).min()
    assert mechanism.leverage == pytest.approx(rarest, rel=1e-12)
    assert gv.DenseChannel(GRID, mechanism.matrix()).leverage == pytest.approx(rarest, rel=1e-12)
    prior = np.zeros(GRID.size)
    prior[[3, 30]] = 0.5
    emptied = gv.blahut_arimoto(GRID, prior, beta_per_km=8.0, stop=gv.Steps(4000))
    assert emptied.leverage == np.inf


def test_a_bound_on_the_leverage_costs_camouflage(prior):
    bounds = (2.5, 3.5)
    made = [gv.elastic(GRID, prior, epsilon_per_km=4.0, most_leverage=bound) for bound in bounds]
    for bound, mechanism in zip(bounds, made, strict=True):
        assert 0.99 * bound <= mechanism.leverage <= bound
        assert 0.99 * 4.0 <= mechanism.certified_epsilon_per_km <= 4.0
        assert mechanism.guarantee.epsilon_per_km == 4.0
    free = gv.elastic(GRID, prior, epsilon_per_km=4.0)
    leakage = [mechanism.leakage_bits for mechanism in (*made, free)]
    assert all(tight > loose for tight, loose in itertools.pairwise(leakage))
    assert gv.elastic(GRID, prior, epsilon_per_km=4.0, most_leverage=free.leverage) == free


def test_a_loose_bound_keeps_the_camouflage(prior):
    """Only the cells beyond the bound are reported more often: lowering the dial would leak far more."""
    free = gv.elastic(GRID, prior, epsilon_per_km=4.0)
    bound = 0.8 * free.leverage
    raised = gv.elastic(GRID, prior, epsilon_per_km=4.0, most_leverage=bound)
    shares = np.linspace(0.0, 0.5, 26)
    dial = [gv.elastic(GRID, prior, epsilon_per_km=4.0, camouflage=share) for share in shares]
    lowered = [mechanism for mechanism in dial if mechanism.leverage <= bound][-1]
    assert raised.leakage_bits - free.leakage_bits < 0.3 * (
        lowered.leakage_bits - free.leakage_bits
    )


def test_raised_weights_are_the_least_that_keep_the_bound(prior):
    kernel = exponential_kernel(GRID, 3.0)
    given = gv.blahut_arimoto(GRID, prior, beta_per_km=3.0).weights
    raised = with_leverage(kernel, given, 5.0)
    reached = kernel._push(raised) / 5.0
    scale = (given / raised).max()  # that of a cell left alone
    assert np.allclose(raised * scale, np.maximum(given, reached * scale), rtol=1e-7)
    assert 0 < np.isclose(raised, reached, rtol=1e-7).sum() < GRID.size
    assert (raised * (1 + 1e-12) >= reached).all()


@pytest.mark.parametrize("space", [GRID, gv.Line(7)], ids=["grid", "line"])
def test_no_weights_keep_a_bound_below_the_top_eigenvalue(space):
    kernel = exponential_kernel(space, 1.0)
    top = np.linalg.eigvalsh(kernel.rows(np.arange(space.size)))[-1]
    assert least_leverage(kernel, space.size) == pytest.approx(1.01 * top, rel=1e-3)
    given = np.linspace(1, 9, space.size) / (5 * space.size)
    assert with_leverage(kernel, given, 0.99 * top) is given
    raised = with_leverage(kernel, given, 1.02 * top)
    assert (kernel._push(raised) <= 1.02 * top * raised).all()


def test_a_bound_goes_with_a_wanted_distance(prior):
    free = gv.elastic(GRID, prior, mean_distance_km=0.4)
    made = gv.elastic(GRID, prior, mean_distance_km=0.4, most_leverage=0.7 * free.leverage)
    assert made.leverage <= 0.7 * free.leverage
    assert made.mean_distance_km == pytest.approx(0.4, rel=2e-3)


def test_a_bound_below_the_sharpest_mechanism_is_refused(prior):
    with pytest.raises(InvalidInput, match="sharpest"):
        gv.elastic(GRID, prior, epsilon_per_km=2.0, most_leverage=2.0)
    with pytest.raises(InvalidInput, match="most_leverage"):
        gv.elastic(GRID, prior, epsilon_per_km=2.0, most_leverage=-1.0)


def test_a_mean_distance_can_be_asked_for(prior):
    mechanism = gv.elastic(GRID, prior, mean_distance_km=0.6, camouflage=0.5)
    distances = GRID.distances_km()
    found = float(prior @ (mechanism.matrix() * distances).sum(axis=1))
    assert 0.6 * (1 - 1e-9) <= found <= 0.6 * 1.002
    assert gv.certify(mechanism).holds


def test_a_level_within_a_radius_can_be_asked_for(prior):
    by_level = gv.elastic(GRID, prior, level=1.0, radius_km=0.5)
    assert by_level.guarantee.epsilon_per_km == pytest.approx(2.0)


@pytest.mark.parametrize("camouflage", [-0.1, 1.1, float("nan")])
def test_dial_beyond_its_ends_is_refused(prior, camouflage):
    with pytest.raises(InvalidInput, match="camouflage"):
        gv.elastic(GRID, prior, epsilon_per_km=1.0, camouflage=camouflage)


def test_one_promise_only(prior):
    with pytest.raises(InvalidInput, match="exactly one"):
        gv.elastic(GRID, prior, epsilon_per_km=1.0, mean_distance_km=0.5)


def test_designed_mechanism_survives_its_document(prior, tmp_path):
    mechanism = gv.elastic(GRID, prior, epsilon_per_km=2.0)
    gv.save_mechanism(mechanism, tmp_path / "mechanism.json")
    again = gv.load_mechanism(tmp_path / "mechanism.json")
    assert again == mechanism
    np.testing.assert_array_equal(again.matrix(), mechanism.matrix())


def test_points_can_have_designs_too():
    places = gv.Points(xy_km=[[0, 0], [0.3, 0.1], [4, 4], [4.2, 4.1], [9, 0]])
    mechanism = gv.elastic(places, [0.3, 0.3, 0.2, 0.1, 0.1], epsilon_per_km=1.0, camouflage=0.5)
    found = gv.certify(gv.DenseChannel(places, mechanism.matrix())).epsilon_per_km
    assert 0.98 <= found <= 1.0 + 1e-9


def test_large_grid_needs_no_matrix(monkeypatch):
    grid = gv.Grid(rows=80, columns=90, cell_km=0.5)
    monkeypatch.setattr(type(grid), "distances_km", None)
    weights = np.random.default_rng(0).random(grid.size)
    mechanism = gv.elastic(grid, weights / weights.sum(), epsilon_per_km=2.0)
    assert 0.99 * 2 <= mechanism.certified_epsilon_per_km <= 2.0


def test_ascent_starts_from_uniform_and_never_rises(prior):
    ascent = maximise(exponential_kernel(GRID, 1.0), prior, stop=gv.Steps(20))
    assert np.all(np.diff(ascent.trace.log_likelihood) >= -1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0])
def test_the_sharpest_mechanism_can_be_inverted_however_wide_its_noise(epsilon):
    city = gv.Grid(rows=11, columns=15, cell_km=0.5)
    sharpest = gv.elastic(city, epsilon_per_km=epsilon, camouflage=0.0)
    assert sharpest.rank == city.size
    assert sharpest.warning is None
    assert 0.99 * epsilon <= sharpest.certified_epsilon_per_km <= epsilon
    bound = 0.5 * sharpest.leverage
    assert gv.elastic(city, epsilon_per_km=epsilon, most_leverage=bound).leverage <= bound


def test_a_bound_that_a_campaign_began_with_can_be_kept_for_every_map():
    city = gv.Grid(rows=8, columns=10, cell_km=0.5)
    opening = gv.elastic(city, epsilon_per_km=1.0, camouflage=0.9)
    bound = 1.05 * opening.leverage
    for seed in range(3):
        crowd = np.random.default_rng(seed).dirichlet(np.full(city.size, 0.05))
        made = gv.elastic(city, crowd, epsilon_per_km=1.0, camouflage=0.9, most_leverage=bound)
        assert made.leverage <= bound
        assert made.certified_epsilon_per_km <= 1.0
        np.testing.assert_array_equal(made.prior, crowd / crowd.sum())


def test_one_cell_hides_nothing_and_needs_nothing():
    alone = gv.elastic(gv.Grid(rows=1, columns=1, cell_km=0.5), epsilon_per_km=2.0)
    assert alone.matrix().tolist() == [[1.0]]
    assert alone.guarantee.epsilon_per_km == 2.0


@pytest.mark.parametrize("distance", [100.0, 1e-300])
def test_a_distance_out_of_reach_is_said_to_be_so(distance):
    with pytest.raises(InvalidInput, match="reachable"):
        gv.elastic(GRID, mean_distance_km=distance)


def test_camouflage_must_be_a_number():
    with pytest.raises(InvalidInput, match="camouflage"):
        gv.elastic(GRID, epsilon_per_km=2.0, camouflage="0.5")


def test_large_spaces_are_not_taken_for_emptied_ones():
    large = gv.Elastic(gv.Grid(rows=1100, columns=1000, cell_km=0.1), beta_per_km=20.0)
    assert large.cells_with_weight == large.space.size


def test_steps_are_updates_and_the_papers_iterations_are_channels(prior):
    """Steps(N) updates the weights N times; the paper's N_BA channels hold N_BA − 1 updates."""
    kernel = np.exp(-1.0 * GRID.distances_km())
    weights = np.full(GRID.size, 1 / GRID.size)
    updated = [weights]
    for _ in range(8):
        channel = updated[-1] * kernel
        channel /= channel.sum(axis=1, keepdims=True)
        updated.append(prior @ channel)
    plain = gv.blahut_arimoto(GRID, prior, beta_per_km=1.0, stop=gv.Steps(8))
    assert plain.ascent.steps == 8
    np.testing.assert_allclose(plain.weights, updated[8], rtol=1e-9)
    rule = PublishedRule(beta_per_km=1.0, design_steps=8, update_steps=10)
    assert rule.design_updates == 7
    published = rule.design(GRID, prior)
    assert published.ascent.steps == 7
    np.testing.assert_allclose(published.weights, updated[7], rtol=1e-9)
    assert not np.allclose(published.weights, updated[8], rtol=1e-3)


def test_what_a_type_checker_takes_a_design_for_is_what_it_is():
    # the first of the overloads whose space it is and that needs no ``between``
    def typed(space):
        for overload in get_overloads(gv.elastic):
            hints, given = get_type_hints(overload), signature(overload).parameters["between"]
            if given.default is not given.empty and isinstance(space, hints["space"]):
                return hints["return"]
        raise AssertionError(space)

    paris = gv.Grid.from_box(south=48.85, west=2.3, north=48.86, east=2.32, cell_km=0.5)
    parts = MaskedGrid(paris, [True] * (paris.size - 1) + [False])
    for space in (paris, parts, gv.Line(3)):
        assert typed(space) is type(gv.elastic(space, epsilon_per_km=2.0))
    places = gv.Points(lat=[48.85, 48.86], lng=[2.3, 2.3])
    assert isinstance(gv.elastic(places, epsilon_per_km=2.0), typed(places))


def test_advice_goes_on_without_those_that_have_no_law_for_noise_so_wide():
    """Beside the dial: planar Laplace from 0.01 for each cell on, planar geometric a fifth of it."""
    small = gv.Grid(rows=2, columns=3, cell_km=1.0)
    for epsilon_per_km, there in ((0.005, ["planar geometric"]), (0.001, [])):
        advice = gv.advise(
            small, np.full(6, 1 / 6), epsilon_per_km=epsilon_per_km, people=50, repeats=1
        )
        assert [choice.name for choice in advice.choices if choice.camouflage is None] == [
            *there,
            "exponential",
            "discs",
        ]
