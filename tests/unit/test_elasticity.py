"""Isolation, islands and posteriors against loops, and the numbers of method §10 for Paris."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.campaign.elastic_design import elastic
from geoveil.channel.composed import DenseChannel
from geoveil.errors import InvalidInput, OutsideSpace
from geoveil.estimate.stopping import Steps
from geoveil.measure import (
    isolation_km,
    mean_posterior,
    most_crowded_cell,
    most_isolated_cell,
    plant_island,
    report_within,
)
from geoveil.mechanism import PlanarLaplace
from geoveil.papers.data import PARIS, DataFolder, load_city
from geoveil.space.grid import Grid, Line

GRID = Grid(rows=3, columns=4, cell_km=0.5)
seeds = st.integers(0, 2**32 - 1)


def random_prior(seed: int, size: int = GRID.size) -> np.ndarray:
    generator = np.random.default_rng(seed)
    weights = generator.gamma(0.5, size=size) * (generator.random(size) < 0.7)
    weights[0] += 0.01
    return weights / weights.sum()


def random_channel(seed: int) -> DenseChannel:
    generator = np.random.default_rng(seed)
    return DenseChannel(GRID, generator.dirichlet(np.full(GRID.size, 0.4), size=GRID.size))


@given(seeds, st.floats(0.01, 0.6))
def test_isolation_is_the_first_radius_with_a_crowd(seed: int, crowd: float) -> None:
    prior = random_prior(seed)
    for cell, radius in enumerate(isolation_km(GRID, prior, crowd=crowd)):
        distances = [float(GRID.distance_km(cell, other)) for other in range(GRID.size)]

        def met(limit: float, cell: int = cell, distances: list[float] = distances) -> float:
            others = (k for k in range(GRID.size) if k != cell and distances[k] <= limit + 1e-12)
            return sum(prior[k] for k in others)

        if np.isinf(radius):
            assert met(np.inf) < crowd
        else:
            assert met(radius) >= crowd * (1 - 1e-9)
            nearer = [d for d in distances if d < radius - 1e-9]
            assert not nearer or met(max(nearer)) < crowd


@given(seeds)
def test_extremes_are_occupied_and_extreme(seed: int) -> None:
    prior = random_prior(seed)
    isolation = isolation_km(GRID, prior)
    alone, crowd = most_isolated_cell(GRID, prior), most_crowded_cell(GRID, prior)
    assert prior[alone] > 0
    assert prior[crowd] > 0
    assert isolation[alone] == isolation[prior > 0].max()
    assert isolation[crowd] == isolation[prior > 0].min()


@given(seeds, st.integers(0, GRID.size - 1))
def test_posterior_is_the_average_over_reports(seed: int, cell: int) -> None:
    channel, prior = random_channel(seed), random_prior(seed + 1)
    matrix = channel.matrix()
    by_hand = 0.0
    for report in range(GRID.size):
        joint = [prior[x] * matrix[x, report] for x in range(GRID.size)]
        if matrix[cell, report] > 0 and sum(joint) > 0:
            by_hand += matrix[cell, report] * joint[cell] / sum(joint)
    assert mean_posterior(channel, cell, prior) == pytest.approx(by_hand, abs=1e-12)
    assert mean_posterior(channel, cell, prior) >= prior[cell] - 1e-12


@given(seeds, st.integers(0, GRID.size - 1), st.floats(0, 2))
def test_reports_within_a_radius(seed: int, cell: int, radius: float) -> None:
    channel = random_channel(seed)
    near = [y for y in range(GRID.size) if float(GRID.distance_km(cell, y)) <= radius]
    by_hand = sum(channel.matrix()[cell, y] for y in near)
    assert report_within(channel, cell, radius_km=radius) == pytest.approx(by_hand, abs=1e-12)


@given(seeds, st.integers(0, GRID.size - 1), st.floats(0, 1.2))
def test_an_island_keeps_everybody(seed: int, cell: int, radius: float) -> None:
    prior = random_prior(seed)
    planted = plant_island(GRID, prior, cell=cell, radius_km=radius)
    distances = GRID.distances_from_km(cell)
    assert planted.sum() == pytest.approx(1)
    assert (planted[(distances <= radius) & (np.arange(GRID.size) != cell)] == 0).all()
    np.testing.assert_allclose(planted[distances > radius], prior[distances > radius], rtol=1e-12)


def test_the_dial_hides_an_island_and_laplace_does_not() -> None:
    grid = Grid(rows=7, columns=9, cell_km=0.5)
    middle = int(grid.cell_at(4, 6))
    weights = np.exp(-grid.distances_from_km(middle) / 0.6)
    prior = plant_island(grid, weights / weights.sum(), cell=0, radius_km=1.5)
    assert most_isolated_cell(grid, prior) == 0
    crowded = most_crowded_cell(grid, prior)
    found = [elastic(grid, prior, epsilon_per_km=1.6, camouflage=dial) for dial in (0.0, 0.5, 1.0)]
    posteriors = [mean_posterior(each, 0, prior) for each in found]
    assert posteriors[0] > posteriors[1] > 2 * posteriors[2]
    laplace = PlanarLaplace(grid, epsilon_per_km=1.6)
    within = [report_within(each, 0, radius_km=1.0) for each in (laplace, found[2])]
    assert within[0] > 3 * within[1]
    crowds = [mean_posterior(each, crowded, prior) for each in (laplace, found[2])]
    assert abs(crowds[0] - crowds[1]) < 0.05


def test_paris_with_its_island(shared_data: Callable[[str], Path]) -> None:
    """Method §10: 0.60, 0.42, 0.22 and 0.08; the paper's N = 8 iterations are 7 updates of c."""
    city = load_city(PARIS, DataFolder(shared_data("gowalla-paris.csv.gz").parent))
    prior = plant_island(city.grid, city.truth, cell=16, radius_km=2.9)
    assert most_isolated_cell(city.grid, prior) == 16
    found = [
        mean_posterior(
            elastic(city.grid, prior, epsilon_per_km=0.8, camouflage=dial, stop=Steps(7)), 16, prior
        )
        for dial in (0.0, 0.5, 0.9, 1.0)
    ]
    assert np.round(found, 2).tolist() == [0.60, 0.42, 0.22, 0.08]


def test_wrong_input() -> None:
    with pytest.raises(InvalidInput, match="crowd"):
        isolation_km(Line(3), [0.2, 0.3, 0.5], crowd=0.0)
    with pytest.raises(OutsideSpace):
        plant_island(Line(3), [0.2, 0.3, 0.5], cell=3, radius_km=1.0)
    with pytest.raises(InvalidInput, match="sum"):
        most_isolated_cell(Line(3), [0.0, 0.0, 0.0])
