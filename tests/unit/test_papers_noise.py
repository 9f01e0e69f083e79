"""The paper on optimal noise made again: facts of its figures that could fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import geoveil as gv
from geoveil.papers import load_paper, run
from geoveil.papers.data import DataFolder
from geoveil.papers.noise_functions import REGION, busiest, first_step_km, staircase, true_loss
from geoveil.papers.report import Agreement, Finding, Setting

LOS_ANGELES = "gowalla-los-angeles.csv.gz"


@pytest.fixture
def setting(shared_data: Callable[[str], Path]) -> Setting:
    return Setting(data=DataFolder(shared_data(LOS_ANGELES).parent), quick=True)


def finding(name: str, setting: Setting) -> Finding:
    return load_paper("noise").chosen([name])[0].run(setting)


def column(found: Finding, name: str) -> np.ndarray:
    at = found.table.columns.index(name)
    return np.array([row[at] for row in found.table.rows], dtype=np.float64)


@pytest.mark.slow
def test_what_needs_no_data(tmp_path: Path) -> None:
    names = ["figure-2", "figure-3", "open-question"]
    report = run("noise", quick=True, out=tmp_path, only=names)
    assert [outcome.verdict for outcome in report.outcomes] == ["agrees"] * 3
    assert all((tmp_path / "noise" / f"{name}.png").stat().st_size > 5000 for name in names)


def test_without_the_data_its_figures_are_not_run(tmp_path: Path) -> None:
    report = run("noise", quick=True, data=tmp_path, out=tmp_path / "out", only=["figure-5"])
    assert report.outcomes[0].verdict == "not run"
    assert "gowalla-los-angeles" in str(report.outcomes[0].not_run)


def test_the_region_is_40_by_30_km_and_ends_in_empty_cells(setting: Setting) -> None:
    west, south, east, north = REGION.rectangle_km
    assert (east - west, north - south) == (
        pytest.approx(40, abs=0.2),
        pytest.approx(30, abs=0.2),
    )
    people = busiest(setting.data, 4, cell_km=0.5)
    assert [len(person.places_km) for person in people] == sorted(
        (len(person.places_km) for person in people), reverse=True
    )
    assert people[0].grid.shape == (60, 80)
    for person in people:
        assert person.prior.sum() == pytest.approx(1.0)
        # the file ends 4 km before the region does
        assert not person.prior.reshape(60, 80)[:, 73:].any()


@pytest.mark.slow
def test_coarse_cells_cost_more_than_noise_where_privacy_is_weak(setting: Setting) -> None:
    found = finding("figure-4", setting)
    assert found.agreement is Agreement.YES
    epsilon = column(found, "epsilon per km")
    symmetric, personal = column(found, "symmetric km"), column(found, "optimal km")
    assert (personal[epsilon <= 0.6] < symmetric[epsilon <= 0.6]).all()
    assert (personal[epsilon >= 2.0] > symmetric[epsilon >= 2.0]).all()
    assert (column(found, "certified epsilon per km") <= epsilon).all()


def test_true_losses_are_measured_from_where_people_were(setting: Setting) -> None:
    person = busiest(setting.data, 1, cell_km=5.0)[0]
    truthful = gv.optimal_mechanism(person.grid, person.prior, epsilon_per_km=20.0)
    to_centres = np.hypot(*(person.places_km - person.grid.centres[person.cells]).T).mean()
    assert true_loss(person, truthful) == pytest.approx(to_centres, rel=1e-6)


def test_bayesian_remapping_loses_less(setting: Setting) -> None:
    found = finding("figure-5", setting)
    assert found.agreement is Agreement.YES
    error = np.hypot(column(found, "nearest error km"), column(found, "Bayesian error km"))
    assert (column(found, "nearest km") - column(found, "Bayesian km") > 6 * error).all()


def test_staircases_and_their_first_step() -> None:
    noise = staircase(2.0, 1.5, 0.7)
    assert first_step_km(noise) == pytest.approx(0.7)
    assert noise.satisfies(gv.WithinRadius(radius_km=2.0, epsilon=1.5)).holds
    density = noise.density_per_km2([0.1, 0.8, 2.8])
    np.testing.assert_allclose(density[:-1] / density[1:], np.exp(1.5))


EPSILONS = np.array([0.5, 0.9, 1.1, 2.0, 3.0])
LOSSES = np.array([[3.0, 2.1, 2.0, 1.95, 1.95]])


@pytest.mark.parametrize(
    ("name", "figures", "agreement"),
    [
        ("figure-2", ([1.8, 1.0, 0.5], 1e-9), Agreement.YES),
        ("figure-2", ([1.8, 1.0, 1.0], 1e-9), Agreement.PARTLY),
        ("figure-2", ([1.8, 1.0, 1.0], 0.1), Agreement.NO),
        ("figure-3", (1e-4, 1e-9, 3, 2), Agreement.YES),
        ("figure-3", (0.1, 1e-9, 3, 2), Agreement.PARTLY),
        ("figure-3", (0.1, 0.1, 3, 2), Agreement.NO),
        ("figure-4", (EPSILONS, 2 / EPSILONS, LOSSES), Agreement.YES),
        ("figure-4", (EPSILONS, 2 / EPSILONS, LOSSES - 0.5), Agreement.PARTLY),
        ("figure-4", (EPSILONS, EPSILONS, EPSILONS[None] + 1), Agreement.NO),
        (
            "figure-5",
            (np.ones((2, 3)), 0.6 * np.ones((2, 3)), 0.01 * np.ones((2, 3))),
            Agreement.YES,
        ),
        ("figure-5", (np.ones((2, 3)), 0.6 * np.ones((2, 3)), 0.5 * np.ones((2, 3))), Agreement.NO),
        ("open-question", (2e-4, True, [0.01, 0.2]), Agreement.YES),
        ("open-question", (2e-2, True, [0.01, 0.2]), Agreement.NO),
    ],
)
def test_every_verdict_can_come_out_otherwise(name, figures, agreement) -> None:
    (experiment,) = load_paper("noise").chosen([name])
    assert experiment.judge(*figures).agreement is agreement
