"""Noisy points moved to places: nearest, and best for a posterior."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import InvalidInput, Unsupported
from geoveil.mechanism.noise import Noise
from geoveil.mechanism.remap import BayesianPlace, NearestPlace
from geoveil.optimal import CircularNoise

GRID = gv.Grid(rows=4, columns=5, cell_km=0.8)
PRIOR = np.random.default_rng(2).dirichlet(np.full(20, 0.4))
NOISE = gv.ContinuousLaplace(epsilon_per_km=1.3)
POINTS = np.random.default_rng(3).normal(scale=2.0, size=(60, 2))


@pytest.mark.parametrize("loss", [gv.distance_km, gv.squared_distance_km2], ids=repr)
def test_the_best_place_by_its_definition(loss):
    prior = PRIOR.copy()
    prior[:7] = 0
    prior /= prior.sum()
    remap = BayesianPlace(NOISE, GRID, prior, loss=loss)
    losses = np.asarray(loss(GRID, np.arange(20)[:, None], np.arange(20)))
    for point, found in zip(POINTS, remap.remap_km(POINTS), strict=True):
        radius = np.hypot(*(point - GRID.centres).T)
        posterior = prior * np.exp(-1.3 * radius)
        assert found == (posterior @ losses).argmin()


def test_the_nearest_place():
    found = NearestPlace(NOISE, GRID).remap_km(POINTS)
    distances = np.hypot(*(POINTS[:, None] - GRID.centres).transpose(2, 0, 1))
    np.testing.assert_allclose(distances[np.arange(60), found], distances.min(axis=1), rtol=1e-12)


def test_places_of_interest_and_degrees():
    places = gv.Points(lat=[48.85, 48.86, 48.87], lng=[2.33, 2.35, 2.34])
    lat, lng = np.array([48.851, 48.869]), np.array([2.331, 2.341])
    assert NearestPlace(NOISE, places).remap_latlng(lat=lat, lng=lng).tolist() == [0, 2]
    sure = BayesianPlace(NOISE, places, [0.0, 1.0, 0.0])
    assert sure.remap_latlng(lat=lat, lng=lng).tolist() == [1, 1]


def test_a_point_that_cannot_be_goes_where_it_is_best_without_it():
    disk = CircularNoise.of_rings([0.0, 0.5], [1 / (np.pi * 0.25)])
    remap = BayesianPlace(disk, GRID, PRIOR)
    without = int((PRIOR @ GRID.distances_km()).argmin())
    assert remap.remap_km([100.0, 100.0]).item() == without


@pytest.mark.statistical
def test_the_whole_mechanism_against_its_cells():
    """Nearest cells of Laplace noise are the discretised Laplace mechanism, and Bayes is never worse."""
    nearest, bayesian = NearestPlace(NOISE, GRID), BayesianPlace(NOISE, GRID, PRIOR)
    cells = gv.PlanarLaplace(GRID, epsilon_per_km=1.3, spread=True)
    wanted = gv.mean_distance_km(cells, PRIOR)
    loss, error = nearest.expected_loss(PRIOR, draws=40_000, randomness=gv.seeded(1))
    assert abs(loss - wanted) < 6.2 * error
    assert abs(loss - 1.1 * wanted) > 6.2 * error
    better, _ = bayesian.expected_loss(PRIOR, draws=40_000, randomness=gv.seeded(1))
    assert better < loss - 6.2 * error
    assert nearest.guarantee == bayesian.guarantee == NOISE.guarantee


def test_shapes_and_bad_input():
    remap = NearestPlace(NOISE, GRID)
    assert remap.remap_km(np.zeros((3, 4, 2))).shape == (3, 4)
    assert remap.sample([[0, 1], [2, 3]], randomness=gv.seeded(1)).shape == (2, 2)
    assert BayesianPlace(NOISE, GRID, PRIOR).remap_km(np.empty((0, 2))).shape == (0,)
    with pytest.raises(InvalidInput, match="needs a plane"):
        NearestPlace(NOISE, gv.Line(4))
    with pytest.raises(InvalidInput, match="above 0 somewhere"):
        BayesianPlace(NOISE, GRID, np.zeros(20))


@pytest.mark.parametrize(
    "noise",
    [NOISE, CircularNoise.of_rings([0.0, 0.5, 1.0], [1.6 / np.pi, 0.8 / np.pi])],
    ids=["laplace", "rings"],
)
def test_noise_of_the_same_parts_is_equal_and_its_tallies_add(noise):
    other = CircularNoise.of_rings([0.0, 1.0], [1 / np.pi])
    assert pickle.loads(pickle.dumps(noise)) == noise != other
    for made, different in [
        (NearestPlace(noise, GRID), NearestPlace(noise, GRID, spread=False)),
        (BayesianPlace(noise, GRID, PRIOR), BayesianPlace(noise, GRID, PRIOR[::-1])),
    ]:
        copy = pickle.loads(pickle.dumps(made))
        assert copy == made != different
        assert hash(copy) == hash(made)
        assert (copy.tally([0, 1]) + made.tally([1])).counts[:2].tolist() == [1, 2]
        assert type(made).__name__ in repr(made)
        with pytest.raises(InvalidInput, match="same channel"):
            _ = made.tally([1]) + different.tally([1])


def test_what_hardly_anybody_reports_is_as_exact_as_the_rest():
    """Steep noise: a report from the other end of the map has next to no probability, and its own."""
    channel = BayesianPlace(gv.ContinuousLaplace(epsilon_per_km=15.0), GRID, PRIOR)
    exact, ends = channel.matrix(), np.eye(20)[[0, 19]]
    assert 0.0 < exact[exact > 0].min() < 1e-17
    for found, wanted in (
        (channel.push(ends), exact[[0, 19]]),
        (channel.pull(ends), exact.T[[0, 19]]),
        (channel.likelihood(0), exact[:, 0]),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


def falling(privacy: gv.Guarantee) -> CircularNoise:
    """Planar Laplace noise of 2 per km, by its density."""
    return CircularNoise.of_function(
        lambda radius: 4 / (2 * np.pi) * np.exp(-2 * radius), privacy=privacy
    )


@pytest.mark.parametrize(
    "noise", [gv.ContinuousLaplace(epsilon_per_km=2.0), falling(gv.PerKilometre(2.0))]
)
def test_the_loss_of_noise_is_known_on_maps_of_any_size_and_at_places(noise: Noise) -> None:
    """No matrix, and no law of what was moved: moving points costs nothing."""
    wide, places = (
        gv.Grid(rows=70, columns=70, cell_km=0.5),
        gv.Points(lat=[0.0, 0.1], lng=[0.0, 0.1]),
    )
    even, snapped = np.full(wide.size, 1 / wide.size), noise.on(wide)
    for channel in (
        snapped,
        NearestPlace(noise, wide),
        BayesianPlace(noise, wide, even, loss=gv.squared_distance_km2),
        gv.Remapped(snapped, np.arange(wide.size)[::-1]),
        NearestPlace(noise, places),
        BayesianPlace(noise, places, [0.5, 0.5]),
    ):
        certificate = gv.certify(channel)
        assert certificate.holds
        assert certificate.epsilon_per_km == 2.0
        assert not gv.certify(channel, claim=gv.PerKilometre(1.9)).holds
    with pytest.raises(Unsupported, match="claim an ε per km"):
        gv.certify(BayesianPlace(noise, GRID, PRIOR), claim=gv.LocalDifferentialPrivacy(9.0))


def test_what_promises_no_loss_per_km_is_enumerated() -> None:
    for promise in (gv.WithinRadius(1.0, 2.0), gv.BetweenPositions(2.0, 1.0)):
        assert falling(promise).on(GRID).closed_form_loss() is None


def test_points_at_borders_go_among_what_is_best_around_as_among_all_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
    prior = np.random.default_rng(0).dirichlet(np.ones(grid.size))
    noise = gv.ContinuousLaplace(epsilon_per_km=4.0)
    matrix = BayesianPlace(noise, grid, prior).matrix()

    def of_all(mechanism: BayesianPlace, points: np.ndarray, cells: np.ndarray) -> np.ndarray:
        return mechanism._remap(points.reshape(-1, 2))

    monkeypatch.setattr(BayesianPlace, "_best_of", of_all)
    expected = BayesianPlace(noise, grid, prior).matrix()
    assert np.abs(matrix - expected).sum(axis=1).max() < 1e-3
