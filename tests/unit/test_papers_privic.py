"""PRIVIC made again: the published numbers of the real cities, and the shape of the frame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import geoveil as gv
from geoveil.papers.cities import PARIS, SAN_FRANCISCO, City, load_city
from geoveil.papers.data import DataFolder
from geoveil.papers.privic import PAPER
from geoveil.papers.privic.campaign import PARIS_CAMPAIGN, errors, re_reporting
from geoveil.papers.privic.laplace import wider_laplace
from geoveil.papers.privic.published import PUBLISHED
from geoveil.papers.report import Agreement, Setting

pytest.importorskip("ot")


@pytest.fixture
def setting(shared_data: Callable[[str], Path]) -> Setting:
    folder = shared_data("gowalla-san-francisco.csv.gz").parent
    shared_data("gowalla-paris.csv.gz")
    return Setting(data=DataFolder(folder), quick=True)


def test_every_figure_and_table_of_the_issue_is_there() -> None:
    names = {experiment.name for experiment in PAPER.experiments}
    figures = {"figure-1", "figure-2", "figure-3a", "figure-3b", "figure-6", "figure-10"}
    assert figures | {"table-2", "table-3", "collapse"} <= names
    assert len(names) == len(PAPER.experiments)


def test_published_means_are_those_of_the_method_page() -> None:
    assert PUBLISHED["Paris", 1.0].mean(axis=0)[[0, 2, 6, 13]] == pytest.approx(
        [0.2744, 0.2066, 0.1613, 0.1400], abs=1e-4
    )
    assert PUBLISHED["San Francisco", 0.5].mean(axis=0)[[0, 2, 6]] == pytest.approx(
        [0.8018, 0.5707, 0.4364], abs=1e-4
    )


def test_cities_have_the_published_people_and_start(setting: Setting) -> None:
    for cut, people, start in ((PARIS, 10_078, 2.02262), (SAN_FRANCISCO, 123_025, 7.37595)):
        city = load_city(cut, setting.data)
        uniform = np.full(city.grid.size, 1 / city.grid.size)
        assert city.people.size == people
        found = gv.earth_movers_distance_km(uniform, city.truth, city.grid)
        assert found == pytest.approx(start, abs=1e-3)
        assert city.grid.unit == "cells"


def test_a_point_on_an_edge_is_in_the_cell_below_it(tmp_path: Path) -> None:
    """−122.464153 is the upper edge of column 8: nine steps of 0.005683 from −122.5153."""
    lines = ["lat,lon", "37.75,-122.40", "37.75,-122.464153", "37.75,-122.464152"]
    (tmp_path / "gowalla-san-francisco.csv").write_text("\n".join(lines) + "\n")
    city = load_city(SAN_FRANCISCO, DataFolder(tmp_path))
    assert (city.people % 24).tolist() == [8, 9]


def test_first_cycles_of_paris_are_the_published_ones(setting: Setting) -> None:
    city = PARIS_CAMPAIGN.city(setting)
    runs = errors(re_reporting(PARIS_CAMPAIGN, city, 1.0, setting, 1))
    published = PUBLISHED["Paris", 1.0].mean(axis=0)
    assert np.abs(runs[0] - published).max() < 0.03
    assert runs[0, 0] > 1.5 * runs[0, -1]  # a rule that learnt nothing would not fall


def test_the_island_is_hidden_by_the_dial(setting: Setting) -> None:
    finding = PAPER.chosen(["figure-2"])[0].run(setting)
    posterior = {(row[0], row[1]): row[3] for row in finding.table.rows}
    assert posterior[0.8, "camouflage 0"] == pytest.approx(0.60, abs=0.02)
    assert posterior[0.8, "camouflage 0.5"] == pytest.approx(0.42, abs=0.02)
    assert posterior[0.8, "camouflage 1"] == pytest.approx(0.08, abs=0.02)


def test_laplace_may_report_beyond_the_city() -> None:
    grid = gv.Grid(rows=3, columns=4, cell_km=1.0)
    wide = wider_laplace(City("Toy", grid, np.arange(12)), 1.0)
    assert wide.report_count == 13 * 14
    np.testing.assert_allclose(wide.matrix().sum(axis=1), 1.0)
    middle = wide.row(5).reshape(13, 14)
    assert np.unravel_index(middle.argmax(), middle.shape) == (5 + 1, 5 + 1)


@pytest.mark.slow
def test_same_promise_beats_the_papers_rule(setting: Setting) -> None:
    finding = PAPER.chosen(["same-promise-paris"])[0].run(setting)
    assert finding.agreement is Agreement.YES
