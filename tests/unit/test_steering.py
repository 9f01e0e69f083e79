"""Fakes that behave like people of a lonely place cannot strip the camouflage of who is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.campaign.elastic_design import Between
from geoveil.campaign.rules import PromiseRule, PublishedRule, averaged, reach_in_cells
from geoveil.channel.channel import Tally
from geoveil.papers.data import PARIS, SAN_FRANCISCO, Cut, DataFolder, load_city
from geoveil.space import Grid, Line, Points
from geoveil.verify.manipulation import expected_counts

ROUNDS, REPORTS = 4, 25_000
LINE = 1.5
"""P(own cell) may grow by this factor over the opening mechanism's."""
TOWN = Grid(rows=9, columns=9, cell_km=1.0)


def town() -> FloatArray:
    """A crowd in one corner and hardly anybody elsewhere."""
    weights = np.exp(-TOWN.distances_from_km(10) / 1.2) + 0.001
    return np.asarray(weights / weights.sum())


def own_cell(campaign: gv.Campaign, truth: FloatArray, cell: int, share: float) -> list[float]:
    """P(own cell) of somebody in a cell under every mechanism of a campaign, fakes mimicking them."""
    chances = []
    for _ in range(ROUNDS):
        mechanism = campaign.mechanism
        chances.append(float(mechanism.row(cell)[cell]))
        fakes = round(share * REPORTS)
        counts = expected_counts(mechanism.push(truth), REPORTS - fakes)
        counts += expected_counts(mechanism.row(cell), fakes)
        campaign.receive(Tally(mechanism, counts))
        campaign.close_round()
    return [*chances, float(campaign.mechanism.row(cell)[cell])]


@pytest.mark.parametrize(
    ("epsilon", "between"),
    [
        (1.0, "cells"),
        (2.0, "cells"),
        pytest.param(1.0, "positions", marks=pytest.mark.slow),
    ],
)
def test_mimicking_fakes_strip_nobodys_camouflage(epsilon: float, between: Between) -> None:
    for share in (0.05, 0.2):
        campaign = gv.Campaign(TOWN, epsilon_per_km=epsilon, between=between)
        opening, *others = own_cell(campaign, town(), 58, share)
        assert max(others) <= LINE * opening


def test_without_the_average_they_would() -> None:
    """The power twin: designed for the estimate itself, 20 % fakes raise it fivefold."""

    class Plain(PromiseRule):
        def steering(self, space: gv.Space, estimated: FloatArray) -> FloatArray:
            return estimated

    campaign = gv.Campaign(TOWN, rule=Plain(1.0))
    opening, *others = own_cell(campaign, town(), 58, 0.2)
    assert max(others) > 3 * opening


def lonely_cells(grid: Grid, truth: FloatArray) -> list[int]:
    """The loneliest cells in a corner, at an edge and inside: the fewest people within two cells."""
    around = averaged(grid, truth, epsilon_per_km=1.0 / grid.cell_km, between="cells")
    row, column = np.divmod(np.arange(grid.size), grid.columns)
    top = np.minimum(row, grid.rows - 1 - row) == 0
    side = np.minimum(column, grid.columns - 1 - column) == 0
    kinds = (top & side, top ^ side, ~top & ~side)
    return [int(np.flatnonzero(kind)[np.argmin(around[kind])]) for kind in kinds]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "between", "epsilon"),
    [
        *((PARIS, "cells", epsilon) for epsilon in (0.5, 1.0, 2.0, 4.0)),
        *((PARIS, "positions", epsilon) for epsilon in (1.0, 2.0)),
        *((SAN_FRANCISCO, "cells", epsilon) for epsilon in (1.0, 2.0)),
    ],
    ids=lambda value: value.name if isinstance(value, Cut) else str(value),
)
def test_camouflage_stays_in_real_cities(
    shared_data: Callable[[str], Path], cut: Cut, between: Between, epsilon: float
) -> None:
    city = load_city(cut, DataFolder(shared_data("gowalla-paris.csv.gz").parent))
    for cell in lonely_cells(city.grid, city.truth):
        for share in (0.05, 0.2):
            campaign = gv.Campaign(city.grid, epsilon_per_km=epsilon, between=between)
            opening, *others = own_cell(campaign, city.truth, cell, share)
            assert max(others) <= LINE * opening


# -- the average ---------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 8), st.sampled_from([0.3, 1.0, 3.0]), st.integers(0, 99))
def test_the_average_is_that_of_the_cells_around(
    rows: int, columns: int, epsilon: float, seed: int
) -> None:
    grid = Grid(rows=rows, columns=columns, cell_km=1.0)
    believed = np.random.default_rng(seed).dirichlet(np.full(grid.size, 0.2))
    found = averaged(grid, believed, epsilon_per_km=epsilon, between="cells")
    reach = reach_in_cells(epsilon, 1.0, "cells")
    table = believed.reshape(rows, columns)
    by_hand = np.array(
        [
            table[max(0, i - reach) : i + reach + 1, max(0, j - reach) : j + reach + 1].sum()
            for i in range(rows)
            for j in range(columns)
        ]
    )
    np.testing.assert_allclose(found, by_hand / by_hand.sum(), atol=1e-12)


def test_other_spaces_take_the_nearest_cells() -> None:
    believed = np.eye(9)[4]
    line = averaged(Line(9), believed, epsilon_per_km=1.5, between="cells")
    assert np.flatnonzero(line).tolist() == [2, 3, 4, 5, 6]
    spots = np.linspace(0.0, 0.4, 40)
    places = Points(lat=48.0 + spots, lng=np.full(40, 2.0))
    spread = averaged(places, np.eye(40)[20], epsilon_per_km=5.0, between="cells")
    assert 9 <= np.count_nonzero(spread) <= 11
    assert float(spread.sum()) == pytest.approx(1.0)


def test_a_prior_and_the_papers_rule_are_taken_as_they_are() -> None:
    prior = np.full(TOWN.size, 0.1 / (TOWN.size - 1))
    prior[58] = 0.9
    campaign = gv.Campaign(TOWN, epsilon_per_km=1.0, between="cells", prior=prior)
    designed = gv.elastic(TOWN, prior, epsilon_per_km=1.0, between="cells")
    np.testing.assert_array_equal(campaign.mechanism.row(58), designed.row(58))
    np.testing.assert_array_equal(PublishedRule(1.0, 3, 5).steering(TOWN, prior), prior)
