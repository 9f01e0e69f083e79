"""``geoveil estimate --joint``: several reports of one person about one place count as one person."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.arrays import IntArray
from geoveil.cli.program import program
from geoveil.table.results import read_result
from geoveil.table.tallies import save_tally

TOWN = gv.Grid.from_box(south=48.83, west=2.31, north=48.86, east=2.36, cell_km=1.0)
STRONG = gv.PlanarGeometric(TOWN, epsilon_per_km=1.0)
WEAK = gv.PlanarGeometric(TOWN, epsilon_per_km=2.0)


def geoveil(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


def written(path: Path, mechanism: gv.Channel, persons: list[str], reports: IntArray) -> Path:
    """A file of reports that carries its mechanism, as ``obfuscate --keep`` writes it."""
    text = [["cell", "person", "geoveil"]]
    text += [[str(cell), person, ""] for cell, person in zip(reports, persons, strict=True)]
    saved = path.with_suffix(".json")
    gv.save_mechanism(mechanism, saved)
    text[1][2] = saved.read_text().strip()
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(text)
    return path


def people() -> IntArray:
    return np.repeat([3, 12, 7], [120, 100, 40])


def drawn(mechanism: gv.PlanarGeometric, seed: int) -> IntArray:
    return mechanism.sample(people(), randomness=gv.seeded(seed))


NAMES = [f"p{number}" for number in range(260)]


def test_two_files_of_the_same_people_are_joined_by_person(tmp_path: Path) -> None:
    first, second = drawn(STRONG, 1), drawn(WEAK, 2)
    files = [
        written(tmp_path / "a.csv", STRONG, NAMES, first),
        written(tmp_path / "b.csv", WEAK, [f" {name}" for name in NAMES[::-1]], second[::-1]),
    ]
    output = tmp_path / "map.csv"
    result = geoveil("estimate", *files, "--joint", "person", "-o", output, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert (values["reports"], values["people_with_several_reports"]) == (260, 260)
    assert len(values["mechanisms"]) == 2
    by_library = gv.IterativeBayesianUpdate().fit(
        gv.JointTally([STRONG, WEAK], np.stack([first, second], axis=1))
    )
    found = read_result(str(output))
    np.testing.assert_allclose(found.share, by_library.distribution, atol=1e-12)
    low, high = by_library.interval(0.95)
    np.testing.assert_allclose(found.low, low, atol=1e-12)
    np.testing.assert_allclose(found.high, high, atol=1e-12)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_people_that_are_numbers_are_the_same_in_every_file(
    tmp_path: Path, kind: type[np.number[Any]]
) -> None:
    """With a gap somewhere pandas makes floats of them, in CSV too."""
    file = written(tmp_path / "a.csv", WEAK, [str(kind(k)) for k in range(260)], drawn(WEAK, 1))
    table = pa.table({"cell": drawn(WEAK, 2), "person": np.arange(260)})
    parquet.write_table(table, tmp_path / "b.parquet")
    words = ["--mechanism", file.with_suffix(".json"), "--joint", "person", "--json"]
    result = geoveil("estimate", file, tmp_path / "b.parquet", *words, "-o", tmp_path / "map.csv")
    assert json.loads(result.stdout)["reports"] == 260
    assert result.stderr == ""


def test_files_that_name_nobody_alike_are_told(tmp_path: Path) -> None:
    others = [f"P{number}" for number in range(260)]
    files = [
        written(tmp_path / "a.csv", WEAK, NAMES, drawn(WEAK, 1)),
        written(tmp_path / "b.csv", WEAK, others, drawn(WEAK, 2)),
    ]
    result = geoveil("estimate", *files, "--joint", "person", "-o", tmp_path / "map.csv", "--json")
    assert json.loads(result.stdout)["reports"] == 520
    assert "nobody is in two of the 2 files by 'person'" in result.stderr
    one = geoveil("estimate", files[0], "--joint", "person", "-o", tmp_path / "map.csv", "--json")
    assert one.stderr == ""


def test_people_with_one_report_and_with_three_are_estimated_together(tmp_path: Path) -> None:
    one, again = drawn(WEAK, 3), drawn(WEAK, 4)
    persons = [*NAMES, *NAMES[:100], *NAMES[:100]]
    reports = np.concatenate([one, again[:100], drawn(WEAK, 5)[:100]])
    file = written(tmp_path / "a.csv", WEAK, persons, reports)
    output = tmp_path / "map.csv"
    result = geoveil("estimate", file, "--joint", "person", "-o", output, "--json")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert (values["reports"], values["people_with_several_reports"]) == (260, 100)
    by_library = gv.IterativeBayesianUpdate().fit(
        [
            WEAK.tally(one[100:]),
            gv.JointTally([WEAK] * 3, np.stack([one[:100], again[:100], reports[360:]], axis=1)),
        ]
    )
    share = read_result(str(output)).share
    np.testing.assert_allclose(share, by_library.distribution, atol=1e-12)
    words = geoveil("estimate", file, "--joint", "person", "-o", output)
    assert "from 260 people" in words.output


def test_the_joint_map_is_better_than_one_that_takes_reports_for_people(tmp_path: Path) -> None:
    rounds = [drawn(STRONG, 10 + number) for number in range(4)]
    file = written(tmp_path / "a.csv", STRONG, NAMES * 4, np.concatenate(rounds))
    errors = []
    truth = np.bincount(people(), minlength=TOWN.size) / 260
    for words in (("--joint", "person"), ()):
        output = tmp_path / "map.csv"
        assert geoveil("estimate", file, "-o", output, *words).exit_code == 0
        errors.append(gv.earth_movers_distance_km(read_result(str(output)).share, truth, TOWN))
    assert errors[0] < errors[1]


def test_what_cannot_be_joined_is_said_without_naming_anybody(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", WEAK, ["alice"] * 65 + ["bob"], np.zeros(66, dtype=np.int64))
    output = tmp_path / "map.csv"
    many = geoveil("estimate", file, "--joint", "person", "-o", output)
    assert many.exit_code == 2
    assert "reports of one person (65) must be at most 64" in many.output
    assert "alice" not in many.output
    nobody = written(tmp_path / "b.csv", WEAK, ["bob", ""], np.zeros(2, dtype=np.int64))
    missing = geoveil("estimate", nobody, "--joint", "person", "-o", output)
    assert missing.exit_code == 2
    assert "row 2" in missing.output
    unknown = geoveil("estimate", file, "--joint", "who", "-o", output)
    assert unknown.exit_code == 2
    assert "who" in unknown.output
    tally = tmp_path / "tally.json"
    save_tally(WEAK.tally([1, 2]), tally)
    counted = geoveil("estimate", tally, "--joint", "person", "-o", output)
    assert counted.exit_code == 2
    assert "says nothing of persons" in counted.output
    for words in (("--by", "hour"), ("--method", "inversion")):
        both = geoveil("estimate", file, "--joint", "person", "-o", output, *words)
        assert both.exit_code == 2
        assert "--joint must go with --method ibu and without --by" in both.output
    assert not output.exists()


def test_more_than_fits_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoveil.table.reports.MOST_ENTRIES", 100)
    file = written(tmp_path / "a.csv", WEAK, NAMES * 2, np.concatenate([drawn(WEAK, 1)] * 2))
    result = geoveil("estimate", file, "--joint", "person", "-o", tmp_path / "map.csv")
    assert result.exit_code == 2
    assert "must be at most 100; choose larger cells" in result.output


def test_positions_in_a_cell_do_not_count_for_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = gv.elastic(
        gv.Grid(rows=3, columns=3, cell_km=1.0), epsilon_per_km=2.0, between="positions"
    )
    assert len(wide.standing) > 1
    monkeypatch.setattr("geoveil.table.reports.MOST_ENTRIES", 9 * 9)  # as many as there can be
    who = [f"p{number // 2}" for number in range(40)]
    reports = wide.sample(np.zeros(40, dtype=int), randomness=gv.seeded(1)) % 3
    file = written(tmp_path / "a.csv", wide, who, reports)
    result = geoveil("estimate", file, "--joint", "person", "-o", tmp_path / "map.csv")
    assert result.exit_code == 0, result.output
