"""Noise on real places, counted in cells: the law of people who stand anywhere in theirs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import dblquad, quad

import geoveil as gv
from geoveil.errors import InvalidInput, Unsupported
from geoveil.mechanism.noise import Noise
from geoveil.mechanism.remap import BayesianPlace, NearestPlace
from geoveil.optimal import CircularNoise

SQUARE = gv.Grid(rows=9, columns=9, cell_km=1.0)
CENTRE = 40
CITY = gv.Grid.from_box(south=48.82, west=2.28, north=48.8645, east=2.348, cell_km=0.5)
NOISE = gv.ContinuousLaplace(epsilon_per_km=4.0)
CROWDS = np.random.default_rng(1).dirichlet(np.full(CITY.size, 0.03))


def entry(channel: gv.Channel, a: int, b: int) -> float:
    return float(channel.row(CENTRE)[(4 + a) * 9 + 4 + b])


@pytest.mark.parametrize(
    ("a", "b", "decay"), [(0, 0, 0.4), (0, 0, 12.0), (0, 1, 12.0), (2, 1, 0.4)]
)
def test_both_integrals_of_laplace_by_cubature(a: int, b: int, decay: float) -> None:
    """Over the offsets of two points in the cells, whose law along each axis is a hat."""

    def density(y: float, x: float) -> float:
        hats = (1 - abs(y - a)) * (1 - abs(x - b))
        return hats * decay**2 / (2 * math.pi) * math.exp(-decay * math.hypot(x, y))

    quarters = [(dx, dy) for dx in (-1, 0) for dy in (-1, 0)]
    wanted = sum(
        dblquad(density, b + dx, b + dx + 1, a + dy, a + dy + 1, epsabs=1e-10, epsrel=1e-9)[0]
        for dx, dy in quarters
    )
    channel = gv.ContinuousLaplace(epsilon_per_km=decay).on(SQUARE)
    assert entry(channel, a, b) == pytest.approx(wanted, abs=2e-9)


def disk_share(a: int, b: int, radius: float) -> float:
    """P(two places in the cells 0 and (a, b) are at most ``radius`` apart)/(π·radius²), one integral."""

    def below(y: float) -> float:  # ∫ of the hat around a up to y
        t = min(max(y - a, -1.0), 1.0)
        return (t + 1) ** 2 / 2 if t < 0 else 1 - (1 - t) ** 2 / 2

    def slice_(x: float) -> float:
        half = math.sqrt(max(radius**2 - x**2, 0.0))
        return (1 - abs(x - b)) * (below(half) - below(-half))

    inside = [x for x in (-radius, b, radius) if b - 1 < x < b + 1]
    return float(quad(slice_, b - 1, b + 1, points=inside, limit=200)[0]) / (math.pi * radius**2)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (0, 1), (1, 1), (2, 1), (3, 0), (4, 4)])
@pytest.mark.parametrize("radius", [0.3, 0.9, 2.2, 3.0])
def test_noise_with_an_edge_by_slices(a: int, b: int, radius: float) -> None:
    disk = CircularNoise.of_rings([0.0, radius], [1 / (math.pi * radius**2)])
    assert entry(disk.on(SQUARE), a, b) == pytest.approx(disk_share(a, b, radius), abs=1e-7)


def test_rings_add_up_and_the_rim_takes_what_leaves() -> None:
    edges, heights = np.array([0.0, 0.4, 1.1, 2.0]), np.array([3.0, 1.0, 0.2])
    total = float(math.pi * np.diff(edges**2) @ heights)
    rings = CircularNoise.of_rings(edges, heights / total)
    narrow = gv.Grid(rows=3, columns=4, cell_km=0.5)
    for spread in (False, True):
        channel = rings.on(narrow, spread=spread)
        np.testing.assert_allclose(channel.matrix().sum(axis=1), 1.0, atol=1e-12)
        theta = np.random.default_rng(3).dirichlet(np.ones(12))
        np.testing.assert_allclose(channel.push(theta), theta @ channel.matrix(), atol=1e-14)
    assert rings.on(narrow) == rings.on(narrow) != rings.on(narrow, spread=False)
    assert hash(rings.on(narrow)) == hash(rings.on(narrow))


def test_a_density_given_as_a_function_is_the_same_law() -> None:
    radial = CircularNoise.of_function(lambda r: 4 / (2 * math.pi) * np.exp(-2 * r))
    grid = gv.Grid(rows=3, columns=4, cell_km=1.5)
    laplace = gv.ContinuousLaplace(epsilon_per_km=2.0).on(grid)
    np.testing.assert_allclose(radial.on(grid).matrix(), laplace.matrix(), atol=1e-9)
    assert laplace == gv.PlanarLaplace(grid, epsilon_per_km=2.0, spread=True)
    assert laplace != gv.PlanarLaplace(grid, epsilon_per_km=2.0)
    for probability in (0.1, 0.5, 0.9999):
        own = gv.ContinuousLaplace(epsilon_per_km=2.0).radius_km(probability)
        assert own == pytest.approx(radial.radius_km(probability), rel=1e-6)


def people(seed: int, number: int = 40_000) -> tuple[np.ndarray, np.ndarray]:
    """Places in degrees: cells from the crowds, anywhere in each."""
    generator = np.random.default_rng(seed)
    cells = generator.choice(CITY.size, number, p=CROWDS)
    within = CITY.cell_km * (generator.random((number, 2)) - 0.5)
    return CITY.plane.to_latlng(CITY.centres[cells] + within)


def judged(tally: gv.Tally) -> tuple[float, float]:
    estimate = gv.IterativeBayesianUpdate().fit(tally)
    low, high = estimate.interval(0.95)
    covered = float(((low <= CROWDS) & (high >= CROWDS)).mean())
    return gv.total_variation(estimate.distribution, CROWDS), covered


@pytest.mark.statistical
def test_people_anywhere_in_their_cells_are_estimated_right() -> None:
    """As if they stood in the centres: wrong beyond any amount of data, and sure of it."""
    lat, lng = people(1)
    lat, lng = NOISE.sample_latlng(lat=lat, lng=lng, randomness=gv.seeded(11))
    tally = NOISE.tally(CITY, lat=lat, lng=lng)
    distance, covered = judged(tally)
    assert distance < 0.06
    assert covered > 0.9
    snapped = gv.PlanarLaplace(CITY, epsilon_per_km=4.0)
    distance, covered = judged(gv.Tally(snapped, tally.counts))
    assert distance > 0.15
    assert covered < 0.85


WIDE = "stand evenly in cells that are wide for the noise"


@pytest.mark.parametrize(
    "noise", [NOISE, CircularNoise.of_rings([0.0, 0.5], [4 / math.pi])], ids=["laplace", "disk"]
)
def test_error_bars_say_where_cells_are_wide_against_the_noise(noise: Noise) -> None:
    """Nobody's place in the cell is known, and in wide cells the noisy point depends on it."""
    fine, few = (gv.Grid(rows=4, columns=4, cell_km=side_km) for side_km in (0.15, 0.5))
    for channel, wide in [
        (noise.on(CITY), True),
        (noise.on(CITY, spread=False), False),  # everybody stands in the middle
        (noise.on(fine), False),
        (NearestPlace(noise, CITY), True),
        (BayesianPlace(noise, few, np.arange(1.0, 17.0) / 136), True),
        (gv.Remapped(noise.on(CITY), np.arange(CITY.size)), True),
    ]:
        everybody = np.arange(channel.space.size).repeat(9)
        tally = channel.tally(channel.sample(everybody, randomness=gv.seeded(1)))
        found = gv.IterativeBayesianUpdate(stop=gv.Steps(5)).fit(tally)
        assert (WIDE in found.errors.method) is wide, channel
    assert noise.on(fine).loss_across_cell == pytest.approx(noise.loss_across(0.15))
    assert NOISE.loss_across(0.5) == pytest.approx(2.0)


def test_noisy_points_are_counted_alike_by_the_noise_and_by_its_nearest_places() -> None:
    lat, lng = NOISE.sample_latlng(lat=[48.84] * 500, lng=[2.31] * 500, randomness=gv.seeded(12))
    nearest = gv.NearestPlace(NOISE, CITY)
    counted = nearest.tally_latlng(lat=lat, lng=lng)
    np.testing.assert_array_equal(counted.counts, NOISE.tally(CITY, lat=lat, lng=lng).counts)
    np.testing.assert_array_equal(nearest.row(7), NOISE.on(CITY).row(7))


@pytest.mark.statistical
def test_points_moved_by_a_prior_are_estimated_right() -> None:
    """Bayesian remapping pulls reports to the crowds; the estimate takes that back."""
    grid = gv.Grid(rows=3, columns=4, cell_km=0.5)
    truth = np.random.default_rng(6).dirichlet(np.ones(12))
    remap = gv.BayesianPlace(gv.ContinuousLaplace(epsilon_per_km=4.0), grid, 0.2 * truth + 0.8 / 12)
    people = np.random.default_rng(7).choice(12, 40_000, p=truth)
    reports = remap.sample(people, randomness=gv.seeded(8))
    nearest = gv.Tally(remap.noise.on(grid), np.bincount(reports, minlength=12))
    found = [
        gv.total_variation(gv.IterativeBayesianUpdate().fit(tally).distribution, truth)
        for tally in (remap.tally(reports), nearest)
    ]
    assert found[0] < 0.05
    assert found[1] > 2 * found[0]


@pytest.mark.statistical
@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("kind", ["nearest", "bayesian"])
def test_samples_follow_the_law_of_remapped_noise(kind: str, spread: bool) -> None:
    grid = gv.Grid(rows=3, columns=4, cell_km=0.5)
    prior = np.random.default_rng(2).dirichlet(np.full(12, 0.7))
    noise = gv.ContinuousLaplace(epsilon_per_km=3.0)
    remap: gv.Channel = (
        gv.NearestPlace(noise, grid, spread=spread)
        if kind == "nearest"
        else gv.BayesianPlace(noise, grid, prior, spread=spread)
    )
    seen = np.bincount(remap.sample(np.full(40_000, 5), randomness=gv.seeded(4)), minlength=12)
    assert 0.5 * np.abs(seen / 40_000 - remap.row(5)).sum() < 0.015
    assert 0.5 * np.abs(seen / 40_000 - remap.row(0)).sum() > 0.2
    matrix = remap.matrix()
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-9)
    theta, values = np.random.default_rng(5).random((2, 12))
    np.testing.assert_allclose(remap.push(theta), theta @ matrix, atol=1e-12)
    np.testing.assert_allclose(remap.pull(values), matrix @ values, atol=1e-12)
    assert gv.certify(remap).epsilon_per_km <= 3.0 + 1e-9


def test_what_has_no_law_says_so() -> None:
    places = gv.Points(lat=[48.85, 48.86, 48.87], lng=[2.33, 2.35, 2.34])
    with pytest.raises(Unsupported, match="on a Grid only"):
        gv.NearestPlace(NOISE, places).row(0)
    with pytest.raises(InvalidInput, match="must be on a whole grid"):
        CircularNoise.of_rings([0.0, 1.0], [1 / math.pi]).on(places)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="choose larger cells"):
        CircularNoise.of_rings([0.0, 10.0], [1 / (100 * math.pi)]).on(
            gv.Grid(rows=2, columns=2, cell_km=0.001)
        )
    with pytest.raises(InvalidInput, match=r"spread \('yes'\) must be true or false"):
        gv.PlanarLaplace(CITY, epsilon_per_km=1.0, spread="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("decay", [7.9, 8.1, 12.8, 20.0])
def test_far_cells_keep_the_ratio_of_steep_noise(decay: float) -> None:
    """A cell that hardly any noise reaches has a small probability, not none: a promise is about ratios."""
    grid = gv.Grid(rows=3, columns=7, cell_km=1.0)
    law = gv.PlanarLaplace(grid, epsilon_per_km=decay).matrix()
    assert law.min() > 0
    losses = np.log(law[:, None, :] / law[None, :, :]).max(axis=2)
    assert (losses <= decay * grid.distances_km() + 1e-9).all()
