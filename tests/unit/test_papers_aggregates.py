"""The paper on aggregates: its experiments run, and their verdicts can be otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from geoveil.papers import load_paper
from geoveil.papers.aggregates import scale, series, threshold, tradeoff, visits
from geoveil.papers.aggregates.series import CASES, PRIORS, in_order
from geoveil.papers.data import DataFolder, MissingData
from geoveil.papers.page import write_figure
from geoveil.papers.report import Agreement, Finding, Setting

QUICK = Setting(quick=True)


def run(name: str, setting: Setting = QUICK) -> Finding:
    (experiment,) = load_paper("aggregates").chosen([name])
    return experiment.run(setting)


def drawn(finding: Finding, folder: Path) -> bool:
    write_figure(finding, folder / "figure.png")
    return (folder / "figure.png").stat().st_size < 300_000


def test_every_figure_of_the_paper_is_there() -> None:
    names = {experiment.name for experiment in load_paper("aggregates").experiments}
    assert names == {"algorithm-1", "table-2", *(f"figure-{number}" for number in range(4, 10))}


def test_priors_and_cases_are_distributions() -> None:
    for rows in (*CASES.values(), PRIORS.values()):
        np.testing.assert_allclose([sum(row) for row in rows], 1.0, atol=1e-12)
    assert all(len(rows) == 5 for rows in CASES.values())


def test_the_values_at_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("algorithm-1")
    assert found.agreement is Agreement.YES
    assert found.numbers["leakage_bits_20_p1"] == pytest.approx(1.5534, abs=1e-4)
    monkeypatch.setitem(threshold.VALUES, (5, "p1"), (0.404, 1.292))
    assert run("algorithm-1").agreement is Agreement.PARTLY


def test_laws(tmp_path: Path) -> None:
    found = run("figure-4")
    assert found.agreement is Agreement.YES
    assert len(found.table.rows) == 21
    assert drawn(found, tmp_path)


def test_common_priors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tradeoff, "_QUICK_PEOPLE", (5,))
    found = run("figure-5")
    assert found.agreement is Agreement.YES
    assert len(found.table.rows) == 12
    assert found.numbers["ratio_of_scm_at_1"] > 1.3
    assert drawn(found, tmp_path)


def test_personal_priors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = run("figure-6")
    assert found.agreement is Agreement.YES
    assert drawn(found, tmp_path)
    swapped = {name: CASES[name] for name in ("C3", "C2", "C1", "C4", "C5", "C6")}
    monkeypatch.setattr(tradeoff, "CASES", swapped)
    assert run("figure-6").agreement is Agreement.PARTLY


def test_one_person_below_the_counts(tmp_path: Path) -> None:
    found = run("figure-7")
    assert found.agreement is Agreement.YES
    assert 0 < found.numbers["largest_personal_share"] < 1
    assert drawn(found, tmp_path)


def test_five_people_of_a_dataset(shared_data: Callable[[str], Path], tmp_path: Path) -> None:
    folder = DataFolder(shared_data("gowalla-los-angeles.csv.gz").parent)
    found = run("figure-8", Setting(folder, quick=True))
    assert found.agreement is Agreement.YES
    assert drawn(found, tmp_path)


def test_without_the_dataset_it_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(MissingData):
        run("figure-8", Setting(DataFolder(tmp_path)))
    (tmp_path / "gowalla-los-angeles.csv").write_text("user,place\n1,a\n")
    with pytest.raises(ValueError, match="whole numbers as user and place"):
        run("figure-8", Setting(DataFolder(tmp_path)))


def test_shares_of_rounded_places() -> None:
    users = np.array([7, 7, 7, 7, 9, 9, 9, 4])
    places = np.array([1201, 1249, 880, 31, 1199, 884, 5, 1200])
    shares, popular = visits.visit_shares(users, places, np.array([7, 9]))
    assert popular.tolist() == [1200, 880, 5]
    np.testing.assert_allclose(shares, [[3 / 6, 2 / 6, 1 / 6], [2 / 6, 2 / 6, 2 / 6]])


def test_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "THRESHOLDS", (1e-4, 1e-3, 1e-1))
    found = run("figure-9")
    assert found.agreement is Agreement.YES
    steps = [row[1] for row in found.table.rows[:-1]]
    assert steps[0] > steps[1] > steps[2]
    assert found.table.rows[-1][5] < 1e-6
    assert drawn(found, tmp_path)


def test_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "_QUICK", ((20, 3), (200, 3)))
    found = run("table-2")
    assert found.numbers["largest_count_vectors"] == 20_301
    assert all(row[7] <= 1e-3 for row in found.table.rows)


def test_the_order_of_curves_is_that_of_leakage_at_equal_distortion() -> None:
    high, low = (series.series(QUICK, name, 5, PRIORS[name]) for name in ("p1", "p3"))
    assert in_order(high, low)
    assert not in_order(low, high)
    assert high.is_below_comparators
