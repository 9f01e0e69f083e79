"""Real check-ins through the core: the noise they get is the noise that was promised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import geoveil as gv

pytestmark = pytest.mark.statistical


@pytest.fixture
def paris(shared_data: Callable[[str], Path]) -> np.ndarray:
    return np.loadtxt(shared_data("gowalla-paris.csv.gz"), delimiter=",", skiprows=1)


def grid_over(places: np.ndarray) -> gv.Grid:
    return gv.Grid.around(lat=places[:, 0], lng=places[:, 1], cell_km=0.5)


@pytest.mark.parametrize("kind", [gv.PlanarGeometric, gv.PlanarLaplace, gv.Exponential])
def test_cells_move_as_far_as_the_mechanism_says(paris: np.ndarray, kind: type) -> None:
    grid = grid_over(paris)
    cells = grid.locate(lat=paris[:, 0], lng=paris[:, 1])
    mechanism = kind(grid, epsilon_per_km=2.0)
    moved = grid.distance_km(cells, mechanism.sample(cells, randomness=gv.seeded(1)))
    mean = mechanism.mean_of_distance(lambda d: d)[cells]
    square = mechanism.mean_of_distance(np.square)[cells]
    deviation = np.sqrt((square - mean**2).sum())
    assert abs(moved.sum() - mean.sum()) < 6 * deviation


def test_tallies_of_real_cells_have_the_law_of_the_push(paris: np.ndarray) -> None:
    grid = grid_over(paris)
    cells = grid.locate(lat=paris[:, 0], lng=paris[:, 1])
    truth = np.bincount(cells, minlength=grid.size) / cells.size
    mechanism = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
    counts = mechanism.tally(mechanism.sample(cells, randomness=gv.seeded(2))).counts
    expected = cells.size * mechanism.push(truth)
    assert counts.sum() == cells.size
    assert (np.abs(counts - expected) < 7 * np.sqrt(expected + 4)).all()


def test_points_move_as_far_as_asked_on_the_ground(paris: np.ndarray) -> None:
    pyproj = pytest.importorskip("pyproj")
    noise = gv.ContinuousLaplace(epsilon_per_km=2.0)
    lat, lng = noise.sample_latlng(lat=paris[:, 0], lng=paris[:, 1], randomness=gv.seeded(3))
    _, _, metres = pyproj.Geod(ellps="WGS84").inv(paris[:, 1], paris[:, 0], lng, lat)
    deviation = np.sqrt(0.5 / len(paris))  # Gamma(2, 1/2): mean 1 km, variance 1/2 km²
    assert 1.0 - 6 * deviation < np.mean(metres) / 1000 < 1.01 + 6 * deviation
