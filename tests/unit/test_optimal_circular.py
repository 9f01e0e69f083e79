"""Circular noise: densities, Theorem 4, losses and the inverse of the distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import gamma

import geoveil as gv
from geoveil.errors import InvalidInput
from geoveil.optimal import CircularNoise, Region

EPSILON = 2.0


def laplace(epsilon: float = EPSILON) -> CircularNoise:
    return CircularNoise.of_function(lambda r: epsilon**2 / (2 * math.pi) * np.exp(-epsilon * r))


def test_laplace_from_its_function():
    noise = laplace()
    assert noise.expected_loss() == pytest.approx(2 / EPSILON, rel=1e-9)
    assert noise.expected_loss(gv.squared_distance_km2) == pytest.approx(6 / EPSILON**2, rel=1e-9)
    law = gamma(2, scale=1 / EPSILON)
    radius = np.linspace(0, 8, 50)
    np.testing.assert_allclose(noise.probability_within(radius), law.cdf(radius), atol=1e-10)
    wanted = np.array([1e-9, 0.1, 0.5, 0.9, 1 - 1e-9])
    np.testing.assert_allclose(noise.radius_km(wanted), law.ppf(wanted), rtol=1e-7)


@given(st.floats(0.05, 30))
@settings(max_examples=12)
def test_laplace_at_every_scale(epsilon):
    noise = laplace(epsilon)
    assert noise.expected_loss() == pytest.approx(2 / epsilon, rel=1e-7)
    assert noise.satisfies(gv.PerKilometre(epsilon)).holds
    assert not noise.satisfies(gv.PerKilometre(epsilon * (1 - 1e-6))).holds


RADIALS = {
    "gauss": lambda r: np.exp(-(r**2) / 2) / (2 * math.pi),
    "cone": lambda r: 3 / math.pi * np.maximum(1 - r, 0),
    "ring": lambda r: np.where((r >= 1) & (r < 2), 1 / (3 * math.pi), 0.0),
}
threshold = gv.RadialLoss("late", lambda r: np.maximum(r - 0.5, 0))


@pytest.mark.parametrize("name", RADIALS)
@pytest.mark.parametrize("loss", [gv.distance_km, gv.squared_distance_km2, threshold], ids=repr)
def test_losses_against_quadrature(name, loss):
    radial = RADIALS[name]
    noise = CircularNoise.of_function(radial, reach_km=12.0, breaks_km=(1.0, 2.0))
    wanted, _ = quad(
        lambda r: float(radial(np.array(r)) * loss.at(r)) * 2 * math.pi * r, 0, 12,
        points=[0.5, 1.0, 2.0], limit=200, epsabs=1e-12,
    )  # fmt: skip
    assert noise.expected_loss(loss) == pytest.approx(wanted, rel=1e-5)


def test_the_loss_of_whoever_is_far_is_the_tail():
    noise = CircularNoise.of_rings([0.0, 1.0, 4.0], np.array([4.0, 1.0]) / (19 * math.pi))
    beside = 0.75 + np.array([-1e-3, -1e-6, 1e-6, 1e-3])  # of the edges of pieces, where no node is
    for radius in (0.1234, 1.5, *beside):
        late = gv.RadialLoss("late", lambda r, radius=radius: np.where(r > radius, 1.0, 0.0))
        tail = 1.0 - float(noise.probability_within(radius))
        assert noise.expected_loss(late) == pytest.approx(tail, abs=1e-12)


@pytest.mark.parametrize("name", RADIALS)
def test_the_inverse_of_the_distribution(name):
    noise = CircularNoise.of_function(RADIALS[name], reach_km=9.0, breaks_km=(1.0, 2.0))
    wanted = np.linspace(0, 1, 401)
    np.testing.assert_allclose(noise.probability_within(noise.radius_km(wanted)), wanted, atol=1e-9)


@pytest.mark.parametrize("factor", [0.5, 1.01, 2.0])
def test_what_is_no_density_is_refused_with_its_total(factor):
    with pytest.raises(InvalidInput, match="must be a density"):
        CircularNoise.of_function(lambda r: factor * np.exp(-r) / (2 * math.pi))


@pytest.mark.parametrize(
    "radial",
    [
        lambda r: -np.exp(-r),
        lambda r: np.where(r > 1, np.nan, 1.0),
        lambda r: 1.0 / (1.0 + r),
        lambda r: np.float64(1.0),
    ],
)
def test_radials_that_are_none(radial):
    with pytest.raises(InvalidInput):
        CircularNoise.of_function(radial)


@pytest.mark.parametrize(
    ("edges", "values"),
    [
        ([0.0, 1.0], [1.0, 2.0]),
        ([1.0, 2.0], [1 / (3 * math.pi)]),
        ([0.0, 1.0, 1.0], [1.0, 1.0]),
        ([0.0], []),
        ([0.0, 1.0], [-1.0]),
        (["a", "b"], [1.0]),
        ([0.0, 1.0], {1.0: 1.0}),
    ],
)
def test_rings_that_are_none(edges, values):
    with pytest.raises(InvalidInput):
        CircularNoise.of_rings(edges, values)


def test_theorem_4_names_the_radii_that_break_it():
    noise = laplace()
    check = noise.satisfies(gv.PerKilometre(1.9))
    r, other = check.worst_pair_km
    assert not check.holds
    assert check.loss == pytest.approx(EPSILON * abs(r - other), rel=1e-6)
    assert check.allowed == pytest.approx(1.9 * abs(r - other), rel=1e-6)
    assert check.loss > check.allowed
    assert "DOES NOT HOLD" in str(check)
    with pytest.raises(InvalidInput, match="must satisfy the promise"):
        CircularNoise(noise.pieces, privacy=gv.PerKilometre(1.9))


REGIONS = {
    "the plane": None,
    "a wide disk": Region.disk(diameter_km=40.0),
    "a narrow disk": Region.disk(diameter_km=0.01),
    "a rectangle": Region.rectangle(width_km=3.0, height_km=0.2),
    "places 1 km apart": Region.cells(gv.Line(4)),
    "places 5 km apart": Region.cells(gv.Grid(rows=6, columns=8, cell_km=5.0)),
    "places 300 km apart": Region.cells(gv.Grid(rows=1, columns=2, cell_km=300.0)),
}
COMPACT = {
    "disk": CircularNoise.of_rings([0.0, 1.0], [1 / math.pi]),
    "two rings": CircularNoise.of_rings([0.0, 1.0, 2.0], [1 / (2 * math.pi), 1 / (6 * math.pi)]),
    "cone": CircularNoise.of_function(RADIALS["cone"], reach_km=1.0),
    "cone and nothing around it": CircularNoise.of_function(RADIALS["cone"], reach_km=4.0),
}


@pytest.mark.parametrize("where", REGIONS)
@pytest.mark.parametrize("name", COMPACT)
def test_noise_that_ends_keeps_no_promise_and_the_pair_shows_it(name, where):
    noise, region, promise = COMPACT[name], REGIONS[where], gv.PerKilometre(50.0)
    check = noise.satisfies(promise, region)
    inside, outside = check.worst_pair_km
    assert not check.holds
    assert math.isinf(check.loss)
    assert math.isfinite(check.allowed)
    assert noise.density_per_km2(inside) > 0 == noise.density_per_km2(outside)
    # and between the two lies a move that the region admits
    moves = (region or Region.plane()).shortest_move_km(
        np.abs(inside - outside), inside + outside, 1e-9
    )
    assert np.isfinite(moves)


def test_noise_that_ends_may_do_so_where_nobody_else_can_be():
    disk = COMPACT["disk"]
    assert disk.satisfies(gv.PerKilometre(1.0), Region.cells(gv.Line(1))).holds
    near = gv.WithinRadius(radius_km=0.5, epsilon=3.0)
    assert not disk.satisfies(near).holds
    assert disk.satisfies(near, Region.cells(gv.Line(4))).holds


def test_an_edge_is_told_from_the_end_of_double_precision():
    assert all(noise.has_edge for noise in (COMPACT["disk"], COMPACT["cone"]))
    assert not laplace().has_edge


@given(st.floats(0.3, 3), st.floats(0.2, 3), st.floats(0.01, 1.0))
@settings(max_examples=12)
def test_staircases_are_private_and_a_little_narrower_ones_are_not(radius, epsilon, share):
    steps = math.ceil(45 / epsilon) + 2
    for narrower, expected in ((1.0, True), (0.98, False)):
        edges = np.r_[0.0, share * radius + narrower * radius * np.arange(steps)]
        heights = np.exp(-epsilon * np.arange(steps))
        total = (math.pi * np.diff(edges**2) * heights).sum()
        noise = CircularNoise.of_rings(edges, heights / total)
        promise = gv.WithinRadius(radius_km=radius, epsilon=epsilon)
        assert noise.satisfies(promise).holds is expected


def test_a_region_admits_more_than_the_plane():
    smooth, promise = laplace(), gv.WithinRadius(radius_km=2.0, epsilon=EPSILON)
    assert not smooth.satisfies(promise).holds
    assert smooth.satisfies(promise, Region.disk(diameter_km=1.0)).holds
    # Between places 1 km apart no move is shorter than that: steps up to e^ε are then allowed at once.
    edges = np.arange(0.0, 40.0)
    heights = np.exp(-0.9 * np.arange(39))
    step = CircularNoise.of_rings(edges, heights / (math.pi * np.diff(edges**2) * heights).sum())
    assert not step.satisfies(gv.PerKilometre(2.0)).holds
    assert step.satisfies(gv.PerKilometre(2.0), Region.cells(gv.Line(60))).holds
    assert not step.satisfies(gv.PerKilometre(0.8), Region.cells(gv.Line(60))).holds


def test_what_nobody_can_move_is_free_under_a_promise_that_is_bounded():
    """Two people of a disk differ by its diameter at most, however little ℓ allows far away."""
    local, disk = gv.LocalDifferentialPrivacy(1.0), Region.disk(diameter_km=1.5)
    noise = gv.optimal_noise(privacy=local, region=disk)
    assert noise.satisfies(local, disk).holds
    assert not noise.satisfies(local).holds
    assert not noise.satisfies(local, Region.disk(diameter_km=1.6)).holds
    # smooth noise loses exactly ε between people a diameter apart, and more than a little less
    smooth = laplace(1.0)
    assert smooth.satisfies(gv.LocalDifferentialPrivacy(1.5), disk).holds
    assert not smooth.satisfies(gv.LocalDifferentialPrivacy(1.4999), disk).holds


def test_probabilities_are_checked():
    with pytest.raises(InvalidInput):
        laplace().radius_km([0.5, 1.5])
