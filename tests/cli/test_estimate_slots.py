"""``geoveil estimate --by``: one map for each slot of a time column, or of any column."""

from __future__ import annotations

import csv
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.program import program

TOWN = gv.Grid.from_box(south=48.83, west=2.31, north=48.86, east=2.36, cell_km=1.0)
MECHANISM = gv.PlanarGeometric(TOWN, epsilon_per_km=2.0)


def geoveil(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


def written(folder: Path, times: list[str], shift: list[str] | None = None) -> tuple[Path, Path]:
    """Reports with times beside them, people of the morning elsewhere than those of the evening."""
    mechanism = folder / "mechanism.json"
    gv.save_mechanism(MECHANISM, mechanism)
    people = np.array([3 if "T08" in time else 12 for time in times])
    reports = MECHANISM.sample(people, randomness=gv.seeded(5))
    path = folder / "noisy.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["cell", "time", "shift"])
        table.writerows(zip(reports.tolist(), times, shift or times, strict=True))
    return path, mechanism


def by(path: Path, mechanism: Path, output: Path, *words: object) -> Result:
    return geoveil("estimate", path, "--mechanism", mechanism, "-o", output, "--json", *words)


TIMES = ["2026-05-04T08:10Z"] * 300 + ["2026-05-09T18:40Z"] * 200


def test_one_map_for_each_hour(tmp_path: Path) -> None:
    path, mechanism = written(tmp_path, TIMES)
    output = tmp_path / "hours.csv"
    result = by(path, mechanism, output, "--by", "hour")
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert values["slots"] == {"08": 300, "18": 200}
    rows = [line for line in output.read_text().splitlines() if not line.startswith("#")]
    table = list(csv.DictReader(rows))
    assert len(table) == 2 * TOWN.size
    for slot, place in (("08", 3), ("18", 12)):
        shares = [float(row["share"]) for row in table if row["slot"] == slot]
        assert int(np.argmax(shares)) == place
        assert sum(shares) == pytest.approx(1.0)
    assert {"standard_error", "low", "high"} <= set(table[0])
    again = by(output, mechanism, tmp_path / "again.csv")
    assert "hours.csv must hold noisy reports; it is an estimate already" in again.stderr
    prior = geoveil("design", "--prior", output, "--epsilon-per-km", 1, "-o", tmp_path / "new.json")
    assert "it holds maps of several slots: estimate without --by" in prior.stderr


def test_fakes_of_one_hour_are_looked_for_where_asked(tmp_path: Path) -> None:
    path, mechanism = written(tmp_path, TIMES)
    asked = [path, mechanism, tmp_path / "hours.csv", "--by", "hour", "--alarm"]
    assert json.loads(by(*asked).stdout)["alarm"]["raised"] is False  # type: ignore[arg-type]
    with path.open("a") as file:
        file.writelines(["0,2026-05-09T18:40Z,\n"] * 50)  # far from the people of the evening
    result = by(*asked)  # type: ignore[arg-type]
    found = json.loads(result.stdout)["alarm"]
    assert (found["raised"], found["slots"], found["suspicious"]) == (True, ["18"], [0])
    assert "warning: Alarm in 18: report 0 comes more often" in result.stderr


def test_hours_are_those_of_the_zone_and_follow_its_clocks(tmp_path: Path) -> None:
    """On 25 October 2026 clocks in Paris went from 03:00 back to 02:00: both hours are slot 02."""
    times = ["2026-10-25T00:30Z"] * 60 + ["2026-10-25T01:30Z"] * 50 + ["2026-10-25T02:30Z"] * 40
    path, mechanism = written(tmp_path, times)
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "hour", "--zone", "Europe/Paris")
    assert json.loads(result.stdout)["slots"] == {"02": 110, "03": 40}
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "weekday-hour", "--time", "time")
    assert list(json.loads(result.stdout)["slots"]) == ["Sunday 00", "Sunday 01", "Sunday 02"]


def test_times_that_a_zone_does_not_convert_are_said(tmp_path: Path) -> None:
    path, mechanism = written(tmp_path, ["2026-05-04T08:10"] * 300 + ["2026-05-09T18:40Z"] * 200)
    asked = [path, mechanism, tmp_path / "h.csv", "--by", "hour"]
    result = by(*asked, "--zone", "Europe/Paris")  # type: ignore[arg-type]
    assert json.loads(result.stdout)["slots"] == {"08": 300, "20": 200}
    assert "warning: 300 times without an offset in" in result.stderr
    assert by(*asked).stderr == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("written_as", ["{:.0f}", "{:.1f}", "{:.3f}"])
def test_seconds_since_1970_are_times(tmp_path: Path, written_as: str) -> None:
    times = [datetime.fromisoformat(time).timestamp() for time in TIMES]
    path, mechanism = written(tmp_path, [written_as.format(time) for time in times])
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "hour", "--zone", "Europe/Paris")
    assert json.loads(result.stdout)["slots"] == {"10": 300, "20": 200}


@pytest.mark.parametrize("ending", ["geojson", "parquet"])
def test_any_column_and_every_format(tmp_path: Path, ending: str) -> None:
    shifts = ["early"] * 200 + [" early "] * 100 + ["late\t"] * 200  # blanks make no other slot
    path, mechanism = written(tmp_path, TIMES, shifts)
    output = tmp_path / f"shifts.{ending}"
    result = by(path, mechanism, output, "--by", "shift")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["slots"] == {"early": 300, "late": 200}
    if ending == "geojson":
        features = json.loads(output.read_text())["features"]
        assert len(features) == 2 * TOWN.size
        assert {feature["properties"]["slot"] for feature in features} == {"early", "late"}


def test_small_slots_have_no_map(tmp_path: Path) -> None:
    path, mechanism = written(tmp_path, [*TIMES, "2026-05-04T03:00Z"])
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "hour", "--minimum-reports", 100)
    values = json.loads(result.stdout)
    assert values["slots_without_a_map"] == ["03"]
    assert list(values["slots"]) == ["08", "18"]
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "hour", "--minimum-reports", 1000)
    assert result.exit_code == 2
    assert "no slot has 1,000 reports" in result.output


def test_rows_without_a_time_are_refused_or_left_out(tmp_path: Path) -> None:
    path, mechanism = written(tmp_path, [*TIMES, "soon", ""])
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "hour")
    assert result.exit_code == 2
    assert "row 501" in result.output
    assert "soon" not in result.output
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "hour", "--bad-rows", "drop")
    assert result.exit_code == 0
    assert "2 rows" in result.stderr


@pytest.mark.parametrize("time", ["2026-05-01", "20260501", "0001-01-01T00:00Z", "1612111512345"])
def test_a_day_has_no_hour_and_a_zone_no_year_0(tmp_path: Path, time: str) -> None:
    path, mechanism = written(tmp_path, [*TIMES, time])
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "hour", "--zone", "America/New_York")
    assert result.exit_code == 2
    assert "row 501" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "hour", "--zone", "Paris"), "must be a time zone that this machine knows"),
        (("--by", "hour", "--time", "moment"), "no column named 'moment'"),
        (("--by", "decade"), "no column named 'decade'"),
        (("--by", "shift", "--zone", "Europe/Paris"), "must go with hour or weekday-hour"),
        (("--by", "cell", "--method", "inversion"), "must go with --method ibu"),
        (("--time", "time"), "must come with --by"),
    ],
)
def test_slots_that_cannot_be(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    path, mechanism = written(tmp_path, TIMES)
    result = by(path, mechanism, tmp_path / "h.csv", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


@pytest.mark.parametrize("coded", [False, True])
def test_slots_of_parquet_may_be_numbers_with_gaps_or_coded(tmp_path: Path, coded: bool) -> None:
    _, mechanism = written(tmp_path, TIMES)
    cells = MECHANISM.sample(np.zeros(6, dtype=np.int64), randomness=gv.seeded(5))
    shift = pa.array([8.5, float("nan"), None, 8.5, 9.0, 9.0])
    if coded:
        codes = pa.array([0, 2, None, 0, 1, 1], pa.int8())
        shift = pa.DictionaryArray.from_arrays(codes, pa.array(["8.5", "9.0", "", "never"]))
    parquet.write_table(pa.table({"cell": cells, "shift": shift}), tmp_path / "n.parquet")
    words = ["--by", "shift", "--minimum-reports", 1, "--bad-rows", "drop"]
    result = by(tmp_path / "n.parquet", mechanism, tmp_path / "h.csv", *words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["slots"] == {"8.5": 2, "9.0": 2}
    assert "2 rows of" in result.stderr


def test_a_slot_is_no_list(tmp_path: Path) -> None:
    _, mechanism = written(tmp_path, TIMES)
    table = pa.table({"cell": [1, 2], "shift": [[1], [2]]})
    parquet.write_table(table, tmp_path / "n.parquet")
    result = by(tmp_path / "n.parquet", mechanism, tmp_path / "h.csv", "--by", "shift")
    assert result.exit_code == 2
    assert "must hold numbers or text" in result.stderr


def test_too_many_slots_are_refused(tmp_path: Path) -> None:
    path, mechanism = written(tmp_path, TIMES, [str(n) for n in range(500)])
    result = by(path, mechanism, tmp_path / "h.csv", "--by", "shift")
    assert result.exit_code == 2
    assert "at most 168 slots" in result.output


def test_tallies_have_no_slots(tmp_path: Path) -> None:
    from geoveil.table.tallies import save_tally

    save_tally(MECHANISM.tally([1, 2, 3]), tmp_path / "tally.json")
    result = geoveil("estimate", tmp_path / "tally.json", "-o", tmp_path / "h.csv", "--by", "hour")
    assert result.exit_code == 2
    assert "says nothing of slots" in " ".join(result.output.split())
