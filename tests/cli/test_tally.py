"""``geoveil tally`` and tally documents: only counts are kept, and they are the right ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.program import program
from geoveil.document.saved import save_mechanism
from geoveil.errors import InvalidFile
from geoveil.table.tallies import load_tally, save_tally

CANARY = "48.8512345"
BOX = ["--box", "48.8,2.2,48.9,2.4"]
PROMISE = ["--mechanism", "planar-geometric", "--epsilon-per-km", "2"]


def tally(*arguments: Any, stdin: str | None = None) -> Result:
    return CliRunner().invoke(program, ["tally", *map(str, arguments)], input=stdin)


@pytest.fixture
def checkins(tmp_path: Path) -> Path:
    """Five thousand people in two places, with names."""
    path = tmp_path / "checkins.csv"
    rows = [f"user{k},48.85{k % 2}2345,2.35" for k in range(5000)]
    path.write_text("\n".join(["who,lat,lon", *rows]) + "\n")
    return path


def test_only_counts_and_the_mechanism_are_kept(checkins: Path) -> None:
    target = checkins.with_name("tally.json")
    result = tally(checkins, "-o", target, *PROMISE, *BOX)
    assert result.exit_code == 0, result.stderr
    document = json.loads(target.read_bytes())
    assert set(document) == {"tally", "mechanism", "counts"}
    assert sum(document["counts"]) == 5000
    assert b"user" not in target.read_bytes()
    assert CANARY.encode() not in target.read_bytes()


def test_the_counts_are_those_of_noise_around_the_places(checkins: Path) -> None:
    """Within a kilometre of the two places lie about as many reports as the law says."""
    target = checkins.with_name("tally.json")
    assert tally(checkins, "-o", target, *PROMISE, *BOX, "--seed", "5").exit_code == 0
    counted = load_tally(str(target))
    grid: Any = counted.channel.space
    places = grid.locate(lat=[48.8502345, 48.8512345], lng=[2.35, 2.35])
    theta = np.bincount(places, minlength=grid.size) / 2
    near = grid.distances_from_km(int(places[0])) < 1.0
    expected = float(counted.channel.push(theta)[near].sum())
    spread = np.sqrt(expected * (1 - expected) / 5000)
    assert abs(counted.counts[near].sum() / 5000 - expected) < 6.2 * spread  # false alarm 6e-10
    assert abs(counted.counts[near].sum() / 5000 - 1.5 * expected) > 6.2 * spread


def test_processes_do_not_change_seeded_counts(checkins: Path) -> None:
    one, two = checkins.with_name("one.json"), checkins.with_name("two.json")
    assert tally(checkins, "-o", one, *PROMISE, *BOX, "--seed", "3").exit_code == 0
    assert (
        tally(checkins, "-o", two, *PROMISE, *BOX, "--seed", "3", "--processes", "2").exit_code == 0
    )
    assert one.read_bytes() == two.read_bytes()


def test_the_json_summary_counts_what_was_left_out(checkins: Path) -> None:
    with checkins.open("a") as file:
        file.write("last,x,2.35\nfar,10,10\n")
    options = ["--bad-rows", "drop", "--outside", "drop", "--json"]
    result = tally(checkins, "-o", checkins.with_name("t.json"), *PROMISE, *BOX, *options)
    values = json.loads(result.stdout)
    told = {name: values[name] for name in ("rows_read", "reports_counted")}
    assert told == {"rows_read": 5002, "reports_counted": 5000}
    assert (values["bad_rows_dropped"], values["outside_dropped"]) == (1, 1)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_file_all_outside_is_refused_and_leaves_nothing(checkins: Path, processes: str) -> None:
    target = checkins.with_name("tally.json")
    options = [*PROMISE, *BOX, "--lat", "lon", "--lng", "lat", "--processes", processes]
    swapped = tally(checkins, "-o", target, *options)
    assert swapped.exit_code == 2
    assert "all 5,000 lie outside; latitude and longitude look swapped" in swapped.stderr
    assert "use --lat lat --lng lon" in swapped.stderr
    assert not target.exists()


def test_few_places_outside_are_said_without_a_warning(checkins: Path) -> None:
    with checkins.open("a") as file:
        file.write("far,10,10\n")
    result = tally(checkins, "-o", checkins.with_name("tally.json"), *PROMISE, *BOX)
    assert result.stderr == ""
    assert "1 of 5,001 places (0.02 %) lies outside the map and was left out" in result.stdout


@pytest.mark.parametrize(
    ("limit", "counted"), [(["--per-person", "1"], 3), (["--limit-by", "memoise"], 5000)]
)
def test_persons_are_counted_within_their_limit(
    checkins: Path, limit: list[str], counted: int
) -> None:
    path, target = checkins.with_name("persons.csv"), checkins.with_name("tally.json")
    rows = [f"{k % 3},48.8512345,2.35" for k in range(5000)]
    path.write_text("\n".join(["user,lat,lon", *rows]) + "\n")
    options = [*PROMISE, *BOX, "--person", "user", *limit, "--seed", "4"]
    result = tally(path, "-o", target, *options, "--json")
    values = json.loads(result.stdout)
    assert values["reports_counted"] == counted == load_tally(str(target)).counts.sum()
    assert np.count_nonzero(load_tally(str(target)).counts) <= 3
    assert values["per_person"]["largest"]["epsilon_per_km"] == 2.0
    again = checkins.with_name("again.json")
    tally(path, "-o", again, *options)
    assert again.read_bytes() == target.read_bytes()
    refused = tally(path, "-o", target, *options, "--processes", "2")
    assert "--processes must be 1 with --person" in refused.stderr


def test_the_mechanism_document_is_not_overwritten(checkins: Path) -> None:
    saved = checkins.with_name("mechanism.json")
    grid = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=0.5)
    save_mechanism(gv.PlanarGeometric(grid, epsilon_per_km=2.0), saved)
    before = saved.read_bytes()
    result = tally(checkins, "--mechanism", saved, "-o", saved)
    assert result.exit_code == 2
    assert "must not be the same file" in result.stderr
    assert saved.read_bytes() == before


def test_a_folder_that_is_missing_is_noticed_before_anything_is_read(checkins: Path) -> None:
    target = checkins.parent / "none" / "tally.json"
    result = tally(checkins.with_name("unread.csv"), "-o", target, *PROMISE, *BOX)
    assert result.exit_code == 2
    assert "must lie in a folder that exists" in result.stderr


def test_a_pipe_gives_the_document_on_standard_output(checkins: Path) -> None:
    result = tally("-", "-o", "-", *PROMISE, *BOX, stdin=checkins.read_text())
    assert result.exit_code == 0, result.stderr
    assert sum(json.loads(result.stdout)["counts"]) == 5000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "t.csv", *PROMISE, *BOX], "must end in .json"),
        (["-o", "t.json", *PROMISE, "--mechanism", "continuous-laplace"], "points, not cells"),
        (["-o", "t.json", *BOX], "a promise must be given"),
    ],
)
def test_what_cannot_be_is_one_line(checkins: Path, arguments: list[str], said: str) -> None:
    result = tally(checkins, *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("t.json").exists()


def test_a_document_gives_the_tally_back(tmp_path: Path) -> None:
    mechanism = gv.RandomizedResponse(gv.Line(3), epsilon=1.0)
    save_tally(gv.Tally(mechanism, [5, 0, 7]), tmp_path / "tally.json")
    again = load_tally(str(tmp_path / "tally.json"))
    assert again.channel == mechanism
    assert again.counts.tolist() == [5, 0, 7]


@pytest.mark.parametrize(
    "change",
    [
        {"tally": 2},
        {"counts": [1.0, 2, 3]},
        {"counts": [True, 2, 3]},
        {"counts": [-1, 2, 3]},
        {"counts": [1, 2]},
        {"counts": None},
        {"counts": [2**70, 1, 1]},
        {"mechanism": {}},
        {"mechanism": None},
    ],
)
def test_a_changed_document_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "tally.json"
    save_tally(gv.Tally(gv.RandomizedResponse(gv.Line(3), epsilon=1.0), [5, 0, 7]), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidFile, match=r"tally\.json"):
        load_tally(str(path))


@pytest.mark.parametrize("entry", ["counts", "mechanism", "epsilon"])
def test_an_entry_that_is_named_twice_is_refused(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "tally.json"
    save_tally(gv.Tally(gv.RandomizedResponse(gv.Line(3), epsilon=1.0), [5, 0, 7]), path)
    path.write_text(path.read_text().replace(f'"{entry}":', f'"{entry}":0.1,"{entry}":', 1))
    with pytest.raises(InvalidFile, match="names no entry twice"):
        load_tally(str(path))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_refused_place_is_named_by_its_number_in_the_file(checkins: Path, processes: int) -> None:
    rows = checkins.read_text().replace("user4321,48.8512345", "user4321,41.8512345")
    checkins.write_text(rows)
    target = checkins.with_name("tally.json")
    asked = [checkins, "-o", target, *PROMISE, *BOX, "--outside", "raise"]
    result = tally(*asked, "--processes", processes)
    assert result.exit_code == 2
    assert "number 4322 does not" in result.stderr
    assert "41.85" not in result.stderr
    assert not target.exists()
