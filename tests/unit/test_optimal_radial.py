"""The best radial: Laplace for ε per km, staircases within a radius, limits that cannot be met."""

from __future__ import annotations

import math
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import geoveil as gv
from geoveil.errors import InvalidInput, SolverFailed
from geoveil.optimal import Region, TablePrivacy, optimal_noise
from geoveil.optimal.radial import RadialPromise
from geoveil.optimal.rings import Rings, chained

threshold = gv.RadialLoss("late", lambda r: np.maximum(r - 0.4, 0))
bounded = gv.RadialLoss("bounded", lambda r: 1 - np.exp(-r))


def laplace_loss(loss, epsilon):
    radius = np.linspace(0, 60 / epsilon, 400_001)
    return float(
        np.trapezoid(epsilon**2 * radius * np.exp(-epsilon * radius) * loss.at(radius), radius)
    )


@pytest.mark.parametrize(
    ("loss", "epsilon"),
    [(gv.distance_km, 0.5), (gv.squared_distance_km2, 4.0), (threshold, 4.0), (bounded, 0.5)],
    ids=repr,
)
def test_laplace_comes_out_for_every_increasing_loss(loss, epsilon):
    """Theorem 9, and the loss is within 0.1 % of the optimum, proven from both sides."""
    noise = optimal_noise(privacy=gv.PerKilometre(epsilon), loss=loss)
    wanted = laplace_loss(loss, epsilon)
    assert noise.loss_reached == pytest.approx(wanted, rel=1e-3)
    assert noise.optimality.lower_bound <= wanted * (1 + 1e-9)
    assert noise.gap <= 1e-3
    radius = np.linspace(0, 6 / epsilon, 40)
    exact = epsilon**2 / (2 * math.pi) * np.exp(-epsilon * radius)
    np.testing.assert_allclose(noise.density_per_km2(radius), exact, rtol=1e-6)


def staircase_loss(first, radius, epsilon, loss):
    """The mean loss of a staircase by sums over rings, for losses r and r²."""
    edges = np.r_[0.0, first + radius * np.arange(math.ceil(60 / epsilon) + 2)]
    heights = np.exp(-epsilon * np.arange(edges.size - 1))
    power = {gv.distance_km: 1, gv.squared_distance_km2: 2}[loss]
    losses = 2 / (power + 2) * np.diff(edges ** (power + 2)) * heights
    return losses.sum() / (np.diff(edges**2) * heights).sum()


@pytest.mark.parametrize(
    ("radius", "epsilon", "loss"),
    [
        (1.0, 1.0, gv.distance_km),
        (0.5, 3.0, gv.squared_distance_km2),
        (2.0, 0.4, gv.distance_km),
        (1.0, 5.0, gv.squared_distance_km2),
    ],
)
def test_a_promise_within_a_radius_gives_the_best_staircase(radius, epsilon, loss):
    """Independent: the best first step among all staircases, by one-dimensional search."""
    noise = optimal_noise(privacy=gv.WithinRadius(radius_km=radius, epsilon=epsilon), loss=loss)
    best = min(

            minimize_scalar(
                staircase_loss, bounds=bounds, args=(radius, epsilon, loss), method="bounded",
                options={"xatol": 1e-9},
            ).fun
            for bounds in pairwise(np.linspace(1e-6, radius, 9))

    )  # fmt: skip
    assert noise.optimality.lower_bound <= best * (1 + 1e-9)
    assert noise.loss_reached == pytest.approx(best, rel=1e-3)
    laplace = 2 * radius / epsilon if loss is gv.distance_km else 6 * (radius / epsilon) ** 2
    assert noise.loss_reached < laplace
    # private as returned, and not for a smaller ε
    assert noise.satisfies(gv.WithinRadius(radius_km=radius, epsilon=epsilon)).holds
    assert not noise.satisfies(gv.WithinRadius(radius_km=radius, epsilon=0.999 * epsilon)).holds
    # nearly all of it on steps e^{−ε} apart
    depth = np.log(noise.pieces.left[0] / noise.pieces.left) / epsilon
    on_step = np.abs(depth - np.rint(depth)) < 1e-6
    assert noise.pieces.masses[on_step].sum() > 0.9


@given(st.floats(0.2, 3), st.floats(0.2, 4), st.floats(0.05, 1))
@settings(max_examples=10)
def test_no_private_noise_is_below_the_bound(radius, epsilon, first):
    noise = optimal_noise(privacy=gv.WithinRadius(radius_km=radius, epsilon=epsilon), gap=1e-2)
    some = staircase_loss(first * radius, radius, epsilon, gv.distance_km)
    assert noise.optimality.lower_bound <= min(some, noise.loss_reached) * (1 + 1e-9)


def test_a_finer_gap_is_reached_by_finer_rings():
    promise = gv.WithinRadius(radius_km=1.0, epsilon=1.0)
    coarse, fine = (optimal_noise(privacy=promise, gap=gap) for gap in (1e-2, 2e-4))
    assert fine.gap <= 2e-4
    assert fine.optimality.rings > coarse.optimality.rings
    assert fine.optimality.lower_bound >= coarse.optimality.lower_bound


@pytest.mark.parametrize("bound", [0.2, 1.0, 7.0])
def test_without_a_promise_the_bound_fills_a_disk(bound):
    noise = optimal_noise(privacy=None, bound_per_km2=bound)
    radius = 1 / math.sqrt(math.pi * bound)
    assert noise.loss_reached == pytest.approx(2 / 3 * radius, rel=1e-6)
    assert noise.reach_km == pytest.approx(radius, rel=1e-9)
    assert noise.guarantee is None


def test_a_bound_flattens_the_centre():
    """Laplace noise with R ≤ M: flat up to some radius, exponential beyond, found by search apart."""
    bound = 0.05
    noise = optimal_noise(privacy=gv.PerKilometre(1.0), bound_per_km2=bound, gap=5e-4)
    radius = np.linspace(0, 60, 60_001)

    def flat_until(core):
        shape = np.exp(-np.maximum(radius - core, 0)) * radius
        return shape / np.trapezoid(shape, radius)

    cores = np.linspace(0, 4, 401)
    heights = np.array([flat_until(core)[1] / radius[1] / (2 * math.pi) for core in cores])
    core = cores[np.argmax(heights <= bound)]
    wanted = np.trapezoid(flat_until(core) * radius, radius)
    assert noise.loss_reached == pytest.approx(wanted, rel=2e-3)
    assert noise.pieces.left.max() <= bound * (1 + 1e-9)
    assert noise.satisfies(gv.PerKilometre(1.0)).holds


def test_a_tightness_that_binds_is_kept():
    """Laplace noise loses least; a tail that it breaks can be bought for a loss of r within 0.4 km free."""
    promise = gv.PerKilometre(1.0)
    flat = gv.RadialLoss("free within 3 km", lambda r: np.maximum(r - 3, 0))
    free = optimal_noise(privacy=promise, loss=flat, bound_per_km2=0.02)
    radius = np.linspace(0.5, 12, 24)
    tail = 1 - free.probability_within(radius)

    def asked(r):
        return np.minimum(1.0, 1.1 * np.interp(r, np.r_[0, radius], np.r_[1, tail], right=0.2))

    kept = optimal_noise(privacy=promise, loss=flat, bound_per_km2=0.02, tightness=asked)
    assert (1 - kept.probability_within(radius) <= asked(radius) + 1e-6).all()
    assert kept.loss_reached == pytest.approx(free.loss_reached, rel=1e-3)
    assert kept.optimality.lower_bound >= free.optimality.lower_bound * (1 - 1e-6)


def test_an_empty_set_says_which_limit_is_impossible():
    per_km = gv.PerKilometre(1.0)
    with pytest.raises(InvalidInput, match=r"tightness \(ρ\(.* km\) = .*\) must be at least"):
        optimal_noise(privacy=per_km, tightness=lambda r: np.exp(-3 * r))
    with pytest.raises(InvalidInput, match=r"bound_per_km2 \(0.001\) and tightness"):
        optimal_noise(
            privacy=per_km, bound_per_km2=0.001,
            tightness=lambda r: np.minimum(1.0, 1.5 * (1 + r) * np.exp(-r)),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        (gv.GeneralPrivacy(lambda d: 1 / d, "1/d"), "must not decrease"),
        (gv.GeneralPrivacy(np.square, "d²"), "must not vanish faster"),
        (gv.LocalDifferentialPrivacy(1.0), "without end"),
        # these do grow without end, but too slowly to be looked at so far
        (gv.PerKilometre(1e-6), "falls off within 8200 km.*; choose a larger ε"),
        (gv.WithinRadius(radius_km=1e-3, epsilon=1e-3), "falls off within 8.2 km"),
    ],
)
def test_promises_that_no_noise_can_keep(privacy, words):
    with pytest.raises(InvalidInput, match=words):
        optimal_noise(privacy=privacy)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"privacy": None}, "bound_per_km2"),
        ({"bound_per_km2": -1.0}, "bound_per_km2"),
        ({"loss": gv.RadialLoss("falls", lambda r: 1 / (1 + r))}, "must not decrease"),
        ({"loss": gv.RadialLoss("negative", lambda r: r - 1)}, "not negative"),
        ({"loss": gv.RadialLoss("steep", lambda r: np.exp(2 * r))}, "grow faster"),
        ({"loss": lambda space, a, b: a}, "RadialLoss"),
        ({"tightness": lambda r: 2 + 0 * r}, "probability"),
        ({"gap": 0.0}, "gap"),
        ({"region": Region.cells(gv.Line(3))}, "connected"),
        ({"privacy": gv.WithinRadius(radius_km=1.0, epsilon=800.0)}, "at most 700"),
    ],
)
def test_bad_input(wrong, words):
    with pytest.raises(InvalidInput, match=words):
        optimal_noise(**{"privacy": gv.PerKilometre(1.0), **wrong})


def test_a_small_region_allows_steeper_noise():
    promise = gv.PerKilometre(1.0)
    plane = optimal_noise(privacy=promise)
    local = optimal_noise(privacy=promise, region=Region.disk(diameter_km=0.5))
    # Theorem 6: any disk is as good as the plane for ε per km
    assert local.loss_reached == pytest.approx(plane.loss_reached, rel=2e-3)
    table = TablePrivacy(distances_km=(0.5, 2.0), losses=(0.5, 1.0))
    near = optimal_noise(privacy=table, region=Region.disk(diameter_km=0.5))
    assert near.loss_reached <= optimal_noise(privacy=table).loss_reached * (1 + 1e-3)


def test_too_few_rings_are_a_failure_that_says_what_to_try():
    with pytest.raises(SolverFailed, match="most_rings"):
        optimal_noise(privacy=gv.PerKilometre(1.0), most_rings=64)
    with pytest.raises(
        SolverFailed, match="most_rings"
    ):  # a disk of half the globe, and a sharp rim
        optimal_noise(privacy=gv.PerKilometre(1.0), bound_per_km2=1e-9, most_rings=400)


def test_noise_that_breaks_the_promise_is_not_taken(monkeypatch):
    steep = lambda self, width, rings: 1.01 * self.levels(width, rings)  # noqa: E731
    monkeypatch.setattr(RadialPromise, "sufficient_levels", steep)
    with pytest.raises(SolverFailed, match="400 rings were too few"):
        optimal_noise(privacy=gv.PerKilometre(1.0), most_rings=400)


def test_a_solver_that_gives_up(monkeypatch):
    class Failed:
        status, message = 4, "numerical trouble"

    monkeypatch.setattr("scipy.optimize.linprog", lambda *args, **kwargs: Failed)
    with pytest.raises(SolverFailed, match=r"numerical trouble\); try"):
        optimal_noise(privacy=gv.PerKilometre(1.0))


@given(st.lists(st.floats(0.1, 5), min_size=2, max_size=40), st.integers(1, 41), st.booleans())
def test_chains_are_the_cheapest_ways_to_add_up(rises, finite, falling):
    levels = np.r_[0.0, np.cumsum(sorted(rises, reverse=True) if falling else rises)]
    levels[finite:] = math.inf
    proper, cheapest = np.full(levels.size, math.inf), levels.copy()
    for k in range(2, levels.size):
        proper[k] = min(cheapest[j] + cheapest[k - j] for j in range(1, k))
        cheapest[k] = min(levels[k], proper[k])
    assert chained(levels) == pytest.approx(cheapest, rel=1e-12)
    assert chained(levels, whole=False) == pytest.approx(proper, rel=1e-12)


@pytest.mark.parametrize("longest", [9, 1 << 16])
def test_long_chains_take_no_longer_than_their_parts(longest):
    k = np.arange(1 << 16)
    levels = np.where(k > longest, math.inf, 0.1 * k * (1 - 1e-12) + 1.0 * (k > 0))
    start = time.process_time()
    chains = chained(levels)
    took_s = time.process_time() - start
    np.testing.assert_allclose(chains, np.ceil(k / longest) + 0.1 * k, rtol=1e-11)
    assert took_s < 0.5  # seconds, where every way to split in two is tried


@given(st.integers(2, 40), st.floats(0.01, 2))
def test_ring_losses_bracket_every_decreasing_density(count, width):
    rings = Rings(width, np.r_[0.0, np.full(count, np.inf)])
    rng = np.random.default_rng(count)
    radius = (np.arange(rings.count * 50) + 0.5) * width / 50
    density = np.sort(rng.random(radius.size))[::-1]
    areas = 2 * np.pi * radius * width / 50
    means = np.array([part.sum() for part in np.split(density * areas, rings.count)]) / rings.areas
    largest = density[0] / means[0]
    loss = float((density * areas * radius).sum())
    costs = rings.least_losses(gv.distance_km, largest)
    assert (costs * means * rings.areas).sum() <= loss * (1 + 1e-9)


@given(st.integers(2, 40), st.floats(0.01, 2), st.floats(0, 1))
@settings(max_examples=25)
def test_ring_losses_are_no_larger_than_those_of_a_loss_that_jumps(count, width, where):
    rings = Rings(width, np.r_[0.0, np.full(count, np.inf)])
    jump = where * width * count
    late = gv.RadialLoss("late", lambda r: np.where(r > jump, 1.0, 0.0))
    inside = np.clip(jump, rings.edges[:-1], rings.edges[1:])
    true = np.pi * (rings.edges[1:] ** 2 - inside**2)
    assert (rings.mean_losses(late) * rings.areas <= true + 1e-9 * rings.areas).all()
    assert (rings.mean_losses(late) * rings.areas >= true - rings.areas / 100).all()


def test_a_loss_that_jumps_is_never_below_the_bound():
    """It was, by sums that did not see where it jumps."""
    late = gv.RadialLoss("late", lambda r: np.where(r > 6.001, 1.0, 0.0))
    promise = gv.WithinRadius(radius_km=1.0, epsilon=0.3)
    noise = optimal_noise(privacy=promise, loss=late, most_rings=400)
    true = 1.0 - float(noise.probability_within(6.001))
    assert noise.loss_reached == pytest.approx(true, rel=1e-9)
    assert noise.optimality.lower_bound <= true
    assert noise.gap < 1e-3


concave = {
    "2√d": lambda d: 2 * np.sqrt(d),
    "log(1 + d)": np.log1p,
    "d/(1 + d)": lambda d: d / (1 + d),
    "min(d, 0.5)": lambda d: np.minimum(d, 0.5),
    "d^0.3": lambda d: np.power(d, 0.3),
    "0.5 + d": lambda d: 0.5 + d,
}


def largest_excess(noise, function, diameter):
    """By how much log R(r) − log R(r′) exceeds ℓ(|r − r′|) anywhere within the diameter.

    log R is straight between the edges and ℓ concave, so the excess is convex on every triangle of
    (r, r′) cut by the edges, the diagonal and the diameter: it is largest at the corners, which are
    pairs of edges and points a diameter beyond or before one. Random pairs are looked at besides.
    """
    reach = 0.999 * noise.reach_km
    edges = noise.pieces.edges
    points = np.r_[edges, edges + diameter, edges - diameter]
    points = np.r_[points, np.random.default_rng(1).uniform(0, reach, 500)]
    radius = np.unique(points[(points >= 0) & (points <= reach)])
    apart = np.abs(radius[:, None] - radius)
    within = (apart > 0) & (apart <= diameter * (1 + 1e-12))
    logs = np.log(noise.density_per_km2(radius))
    excess = (logs[:, None] - logs)[within] - function(np.minimum(apart[within], diameter))
    return excess.max()


@pytest.mark.parametrize(
    ("name", "diameter", "gap"), [(name, 1.0, 5e-3) for name in concave] + [("2√d", 0.37, 1e-3)]
)
def test_concave_promises_on_a_disk(name, diameter, gap):
    """Private between all radii, within the gap, no worse than e^{−ℓ} chained."""
    function = concave[name]
    promise = gv.GeneralPrivacy(function, name)
    noise = optimal_noise(privacy=promise, region=Region.disk(diameter_km=diameter), gap=gap)
    assert noise.gap <= gap
    assert largest_excess(noise, function, diameter) <= 1e-9

    # of a concave ℓ the cheapest chain takes as many whole diameters as there are
    radius = np.linspace(1e-9, noise.reach_km, 50_001)
    whole, rest = np.divmod(radius, diameter)
    steps = np.where(rest > 0, function(rest), 0.0) + whole * function(diameter)
    shape = np.exp(-steps) * radius
    chained_loss = np.trapezoid(shape * radius, radius) / np.trapezoid(shape, radius)
    assert noise.optimality.lower_bound <= noise.loss_reached <= chained_loss * (1 + gap)


@pytest.mark.parametrize("diameter", [1.0, None])
def test_a_jump_beside_a_slope_falls_at_the_best_radius(diameter):
    """ℓ = 0.5 + d admits one jump per diameter besides the slope; where, by search apart."""
    region = None if diameter is None else Region.disk(diameter_km=diameter)
    noise = optimal_noise(privacy=gv.GeneralPrivacy(lambda d: 0.5 + d, "0.5 + d"), region=region)
    radius = np.linspace(0, 40, 100_001)

    def with_jump_at(first):
        jumps = radius > first
        if diameter is not None:
            jumps = np.maximum(np.ceil((radius - first) / diameter), 0)
        shape = np.exp(-radius - 0.5 * jumps) * radius
        return np.trapezoid(shape * radius, radius) / np.trapezoid(shape, radius)

    best = minimize_scalar(with_jump_at, bounds=(0, diameter or 4), method="bounded").fun
    assert noise.optimality.lower_bound <= best * (1 + 1e-6)
    assert noise.loss_reached == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(
    "function",
    [lambda d: 4 * d, lambda d: 4 * d + d**2, lambda d: np.maximum(4 * d, 9 * d - 3)],
    ids=["4d", "4d + d²", "max(4d, 9d − 3)"],
)
def test_what_small_moves_make_as_strict_as_a_slope_is_laplace(function):
    """No smaller than 4d, and 4d for small moves, which add up: Theorem 9 with ε = 4."""
    noise = optimal_noise(
        privacy=gv.GeneralPrivacy(function, "ℓ"), region=Region.disk(diameter_km=0.37)
    )
    assert noise.loss_reached == pytest.approx(0.5, rel=1e-3)
    assert noise.optimality.lower_bound <= 0.5 * (1 + 1e-9)
    assert noise.gap <= 1e-3


def test_an_end_inside_a_function_is_found():
    """ℓ that is ∞ beyond 0.777 km is the same promise as on a disk of that diameter."""
    ends = gv.GeneralPrivacy(lambda d: np.where(d <= 0.777, np.sqrt(d), np.inf), "√d up to 0.777")
    plain = gv.GeneralPrivacy(np.sqrt, "√d")
    on_plane, on_disk = (
        optimal_noise(privacy=ends, gap=1e-2),
        optimal_noise(privacy=plain, region=Region.disk(diameter_km=0.777), gap=1e-2),
    )
    assert on_plane.loss_reached == pytest.approx(on_disk.loss_reached, rel=1e-3)


def test_a_jump_that_rings_cannot_see_keeps_the_promise():
    """A jump inside ℓ that no edge falls on: the noise is private all the same, and says its gap."""
    promise = gv.GeneralPrivacy(lambda d: d + np.where(d > 0.4142, 1.0, 0.0), "d + 1[d > 0.4142]")
    noise = optimal_noise(privacy=promise, region=Region.disk(diameter_km=1.0), gap=0.2)
    assert noise.gap <= 0.2
    assert noise.satisfies(promise, Region.disk(diameter_km=1.0)).holds
