"""``geoveil evaluate``: distances to the truth, beside the yardsticks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.program import program
from geoveil.table.results import Result as Estimated
from geoveil.table.results import read_result, write_result

GRID = gv.Grid.from_box(south=48.83, west=2.28, north=48.85, east=2.32, cell_km=1.0)


def evaluate(*arguments: Any, given: bytes = b"") -> Result:
    return CliRunner().invoke(program, ["evaluate", *map(str, arguments)], input=given)


def values(*arguments: Any) -> dict[str, Any]:
    result = evaluate(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Everybody in cell 0, and an estimate that puts a quarter of them in cell 1, 1 km east."""
    lat, lng = GRID.centres_latlng()
    (tmp_path / "truth.csv").write_text("lat,lng\n" + f"{lat[0]},{lng[0]}\n" * 40)
    share, reports = np.zeros(GRID.size), np.zeros(GRID.size, dtype=np.int64)
    share[:2], reports[:2] = (0.75, 0.25), (50, 50)
    low, high = np.maximum(share - 0.1, 0), np.minimum(share + 0.1, 1)
    result = Estimated(
        GRID, share, np.full(GRID.size, np.inf), low, high, reports, {"interval_level": 0.9}
    )
    for ending in ("geojson", "parquet", "csv"):
        write_result(str(tmp_path / f"estimate.{ending}"), result)
    return tmp_path


@pytest.mark.parametrize("ending", ["geojson", "parquet", "csv"])
def test_distances_are_those_of_the_definition(folder: Path, ending: str) -> None:
    found = values(folder / f"estimate.{ending}", "--truth", folder / "truth.csv")
    assert found["estimate"]["emd_km"] == pytest.approx(0.25 * 1.0, rel=1e-5)
    assert found["estimate"]["total_variation"] == pytest.approx(0.25)
    assert found["noisy_reports"]["emd_km"] == pytest.approx(0.5, rel=1e-5)
    uniform = GRID.distances_from_km(0).mean()
    assert found["uniform_guess"]["emd_km"] == pytest.approx(uniform, rel=1e-5)
    assert found["true_places"] == 40


def test_coverage_counts_cells_whose_interval_holds_the_truth(folder: Path) -> None:
    """The intervals of cells 0 and 1 miss; all empty cells hold."""
    coverage = values(folder / "estimate.parquet", "--truth", folder / "truth.csv")["coverage"]
    assert coverage["all_cells"] == pytest.approx(1 - 2 / GRID.size)
    assert coverage["occupied_cells"] == 0.0
    assert coverage["level"] == 0.9


def test_the_truth_may_be_shares(folder: Path) -> None:
    share = np.zeros(GRID.size)
    share[0] = 1.0
    write_result(str(folder / "true-shares.csv"), Estimated(GRID, share))
    found = values(folder / "estimate.geojson", "--truth", folder / "true-shares.csv")
    assert found["estimate"]["total_variation"] == pytest.approx(0.25)
    assert found["true_places"] is None
    piped = evaluate(
        folder / "estimate.geojson", "--truth", "-", "--json",
        given=(folder / "true-shares.csv").read_bytes(),
    )  # fmt: skip
    assert json.loads(piped.stdout) == found


def test_places_outside_go_to_the_nearest_cell_or_nowhere(folder: Path) -> None:
    with (folder / "truth.csv").open("a") as file:
        file.write("10,10\n" * 40)
    dropped = values(folder / "estimate.parquet", "--truth", folder / "truth.csv")
    clamped = values(
        folder / "estimate.parquet", "--truth", folder / "truth.csv", "--outside", "clamp"
    )
    assert (clamped["true_places"], clamped["outside_clamped"]) == (80, 40)
    assert (dropped["true_places"], dropped["outside_dropped"]) == (40, 40)
    shown = evaluate(folder / "estimate.parquet", "--truth", folder / "truth.csv")
    assert "40 of 80 places (50 %) lie outside the map and were left out" in shown.stdout
    assert "warning: 40 of 80 places" in shown.stderr
    assert dropped["estimate"]["total_variation"] == pytest.approx(0.25)


@pytest.mark.parametrize("made", ["clamp", "drop"])
def test_an_estimate_from_clamped_reports_is_noticed(folder: Path, made: str) -> None:
    """A tenth of the people are beyond one edge; clamped, they are a crowd that is not there."""
    with (folder / "truth.csv").open("a") as file:
        file.write("48.9,2.30\n" * 4)
    edge = GRID.locate(lat=48.9, lng=2.30, outside="clamp")
    share = np.zeros(GRID.size)
    share[0] = 0.85
    share[1] = 0.15
    if made == "clamp":
        share[[0, 1, edge]] = 0.8, 0.1, 0.1
    write_result(str(folder / "made.geojson"), Estimated(GRID, share))
    found = evaluate(folder / "made.geojson", "--truth", folder / "truth.csv", "--json")
    assert json.loads(found.stdout)["estimate_looks_clamped"] is (made == "clamp")
    assert ("its reports were probably clamped" in found.stderr) is (made == "clamp")


def test_a_truth_all_outside_is_refused(folder: Path) -> None:
    (folder / "truth.csv").write_text("lat,lng\n" + "2.3,48.84\n" * 5)
    result = evaluate(folder / "estimate.geojson", "--truth", folder / "truth.csv")
    assert result.exit_code == 2
    assert "all 5 lie outside; latitude and longitude look swapped" in result.stderr


def test_noisy_reports_are_no_truth(folder: Path) -> None:
    box = ("--box", "48.8,2.2,48.9,2.4")
    places, noisy = folder / "people.csv", folder / "noisy.csv"
    places.write_text("lat,lng\n48.85,2.3\n")
    made = [
        "obfuscate",
        places,
        "-o",
        noisy,
        *box,
        "--epsilon",
        2,
        "--mechanism",
        "randomized-response",
    ]
    assert CliRunner().invoke(program, [str(each) for each in made]).exit_code == 0
    result = evaluate(folder / "estimate.csv", "--truth", noisy)
    assert result.exit_code == 2
    assert "it holds noisy reports" in result.stderr


def test_infinite_errors_survive_every_format(folder: Path) -> None:
    for ending in ("geojson", "parquet", "csv"):
        error = read_result(str(folder / f"estimate.{ending}")).standard_error
        assert error is not None
        assert np.isinf(error).all()


def test_the_table_for_people_and_the_picture(folder: Path) -> None:
    result = evaluate(
        folder / "estimate.geojson", "--truth", folder / "truth.csv", "--plot", folder / "m.png"
    )
    assert result.exit_code == 0, result.stderr
    for word in ("earth mover's distance (km)", "uniform guess", "noisy reports", "0.2500", "90 %"):
        assert word in result.stdout
    assert result.stdout.endswith("\n")
    assert not any(line.endswith(" ") for line in result.stdout.splitlines())
    assert (folder / "m.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "cell,lat,lng\n0,1,2\n",
            "must have a column share, as geoveil estimate writes it; it has",
        ),
        ("cell,lat,lng,share\n0,48.8,2.3,0.5\n0,48.8,2.4,0.5\n", "every cell"),
        ("cell,lat,lng,share\n0,48.8,2.3,0.5\n1,48.8,2.4,-0.4\n", "at least 0; row 2"),
        ("cell,share\n0,0.5\n1,0.5\n", "lat and lng"),
        ("cell,lat,lng,share\n", "it has none"),
        ("cell,lat,lng,share\n0,48.8,2.3,x\n", "at least 0; row 1"),
    ],
)
def test_what_is_no_estimate_is_one_line(folder: Path, text: str, said: str) -> None:
    (folder / "wrong.csv").write_text(text)
    result = evaluate(folder / "wrong.csv", "--truth", folder / "truth.csv")
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("west", "cell_km"), [(2.28, 0.5), (2.29, 1.0), (139.69, 1.0)])
def test_shares_of_other_cells_are_no_truth(folder: Path, west: float, cell_km: float) -> None:
    other = gv.Grid.from_box(south=48.83, west=west, north=48.85, east=west + 0.04, cell_km=cell_km)
    write_result(str(folder / "other.csv"), Estimated(other, np.full(other.size, 1 / other.size)))
    result = evaluate(folder / "estimate.geojson", "--truth", folder / "other.csv")
    assert result.exit_code == 2
    assert "the same cells" in result.stderr


def test_paris_is_estimated_better_than_the_reports_show_it(
    shared_data: Any, tmp_path: Path
) -> None:
    """The whole way on real check-ins: obfuscate, estimate, evaluate."""
    checkins = shared_data("gowalla-paris.csv.gz")
    run = CliRunner().invoke
    box = ["--box", "48.8286,2.2855,48.8798,2.3909"]
    noisy, estimate = tmp_path / "noisy.parquet", tmp_path / "estimate.geojson"
    first = [
        "obfuscate",
        checkins,
        "-o",
        noisy,
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        2,
        *box,
        "--seed",
        7,
    ]
    for arguments in (first, ["estimate", noisy, "-o", estimate]):
        result = run(program, [*map(str, arguments)])
        assert result.exit_code == 0, result.stderr
    found = values(estimate, "--truth", checkins)
    assert found["estimate"]["emd_km"] < 0.6 * found["noisy_reports"]["emd_km"]
    assert found["estimate"]["emd_km"] < 0.25 * found["uniform_guess"]["emd_km"]
    assert found["coverage"]["all_cells"] > 0.85


def test_reports_are_no_estimate(folder: Path) -> None:
    made = [
        "obfuscate",
        folder / "truth.csv",
        "-o",
        folder / "noisy.parquet",
        "--epsilon-per-km",
        2,
        "--box",
        "48.83,2.28,48.85,2.32",
    ]
    assert CliRunner().invoke(program, [*map(str, made)]).exit_code == 0
    found = evaluate(folder / "noisy.parquet", "--truth", folder / "truth.csv")
    assert found.exit_code == 2
    assert "it holds reports: estimate them first" in found.stderr
