"""``geoveil obfuscate``: from a file of places to a file of reports, and every way it may fail."""

from __future__ import annotations

import gzip
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.program import program
from geoveil.document.saved import load_mechanism, mechanism_from_dict
from geoveil.table.columns import numbers
from geoveil.table.reader import open_table
from geoveil.table.results import read_result
from geoveil.table.tallies import load_tally

CANARY = "48.8512345"
BOX = ["--box", "48.8,2.2,48.9,2.4"]
PROMISE = ["--mechanism", "planar-geometric", "--epsilon-per-km", "2"]


def obfuscate(*arguments: Any, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(program, ["obfuscate", *map(str, arguments)], input=stdin)


@pytest.fixture
def checkins(tmp_path: Path) -> Path:
    """A thousand people in two places, with names."""
    path = tmp_path / "checkins.csv"
    rows = [f"user{k},48.85{k % 2}2345,2.35" for k in range(1000)]
    path.write_text("\n".join(["who,lat,lon", *rows]) + "\n")
    return path


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "geojson"])
def test_reports_hold_a_cell_and_its_centre_and_nothing_else(checkins: Path, ending: str) -> None:
    target = checkins.with_name(f"noisy.{ending}")
    result = obfuscate(checkins, "-o", target, *PROMISE, *BOX)
    assert result.exit_code == 0, result.stderr
    data = gzip.decompress(target.read_bytes()) if ending.endswith("gz") else target.read_bytes()
    assert b"user" not in data
    assert CANARY.encode() not in data
    assert names(checkins.parent) == ["checkins.csv", target.name]
    with open_table(str(target)) as reader:
        assert set(reader.columns) <= {"cell", "lat", "lng"}
        assert sum(batch.num_rows for batch in reader.batches(["cell"])) == 1000


def test_parquet_carries_the_mechanism(checkins: Path) -> None:
    target = checkins.with_name("noisy.parquet")
    saved = checkins.with_name("mechanism.json")
    obfuscate(checkins, "-o", target, *PROMISE, *BOX, "--save-mechanism", saved)
    carried = json.loads(pq.read_metadata(target).metadata[b"geoveil"])
    assert mechanism_from_dict(carried) == load_mechanism(saved)
    cells = pq.read_table(target)["cell"].to_numpy()
    assert cells.min() >= 0
    assert cells.max() < load_mechanism(saved).space.size  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["m.json", "m.txt", "mechanism"])
def test_a_saved_mechanism_can_be_used_again(checkins: Path, name: str) -> None:
    saved, first, second = (checkins.with_name(each) for each in (name, "a.csv", "b.csv"))
    obfuscate(checkins, "-o", first, *PROMISE, *BOX, "--save-mechanism", saved, "--seed", "3")
    result = obfuscate(checkins, "-o", second, "--mechanism", saved, "--seed", "3")
    assert result.exit_code == 0, result.stderr
    assert first.read_bytes() == second.read_bytes()


def test_the_promise_is_between_positions_unless_another_mechanism_is_named(checkins: Path) -> None:
    target = checkins.with_name("noisy.csv")
    area = ["--box", "48.84,2.33,48.86,2.37", "--cell-km", "1"]
    told = obfuscate(checkins, "-o", target, "--epsilon-per-km", "2", *area, "--json")
    assert told.exit_code == 0, told.output
    assert "the loss between any two positions" in json.loads(told.stdout)["guarantee"]


def test_a_promise_per_metre_is_noticed(checkins: Path) -> None:
    asked = ["-o", checkins.with_name("noisy.csv"), *BOX, "--epsilon-per-km"]
    assert "next to nothing comes back" not in obfuscate(checkins, *asked, "0.05").stdout
    assert "next to nothing comes back" in obfuscate(checkins, *asked, "0.002").stdout


def test_the_json_summary(checkins: Path) -> None:
    with checkins.open("a") as file:
        file.write("last,x,2.35\nfar,10,10\n")
    target = checkins.with_name("noisy.csv")
    options = ["--bad-rows", "drop", "--outside", "drop", "--json"]
    values = json.loads(obfuscate(checkins, "-o", target, *PROMISE, *BOX, *options).stdout)
    assert (values["rows_read"], values["reports_written"]) == (1002, 1000)
    assert (values["bad_rows_dropped"], values["outside_dropped"]) == (1, 1)
    assert values["mechanism"]["parameters"] == {"epsilon_per_km": 2.0}
    assert len(values["mechanism_id"]) == 64


def test_a_promise_that_the_law_does_not_keep_is_refused(checkins: Path) -> None:
    target = checkins.with_name("noisy.csv")
    law = ["-o", target, *BOX, "--mechanism", "elastic", "--beta-per-km", "5"]
    refused = obfuscate(checkins, *law, "--epsilon-per-km", "0.1")
    assert refused.exit_code == 2
    assert "ε = 0.1 per km" in refused.stderr
    assert "must not be smaller than the loss" in refused.stderr
    assert not target.exists()
    assert obfuscate(checkins, *law, "--epsilon-per-km", "10").exit_code == 0


def test_the_summary_says_what_is_promised(checkins: Path) -> None:
    shown = obfuscate(checkins, "-o", checkins.with_name("noisy.csv"), *PROMISE, *BOX).stdout
    for words in (
        "1,000 from 1,000 rows",
        "ε = 2 per km",
        "200 m apart, wherever they stand in their cells",
        "at most 4.12 times",
        "Each report spends ε = 2 per km; the reports of one person add up.",
    ):
        assert words in " ".join(shown.split())


def test_columns_are_kept_only_when_named(checkins: Path) -> None:
    target = checkins.with_name("noisy.parquet")
    obfuscate(checkins, "-o", target, *PROMISE, *BOX, "--keep", "who")
    assert pq.read_table(target).column_names == ["cell", "lat", "lng", "who"]
    result = obfuscate(checkins, "-o", target, *PROMISE, *BOX, "--keep", "lon")
    assert result.exit_code == 2
    assert "true coordinates" in result.stderr


def test_the_box_comes_from_the_data_with_a_note(checkins: Path) -> None:
    target = checkins.with_name("noisy.csv")
    result = obfuscate(checkins, "-o", target, *PROMISE, "--json")
    assert "somebody is within 0.01 degrees of each edge" in result.stderr
    assert json.loads(result.stdout)["mechanism"]["space"]["box"] == [48.85, 2.35, 48.86, 2.36]
    assert "note" not in obfuscate(checkins, "-o", target, *PROMISE, *BOX).stderr


def test_pipes_in_and_out(checkins: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "geoveil",
        "obfuscate",
        "-",
        "-o",
        "-",
        *PROMISE,
        *BOX,
        "--json",
    ]
    finished = subprocess.run(
        command, input=checkins.read_bytes(), capture_output=True, timeout=60, check=True
    )
    lines = finished.stdout.decode().splitlines()
    assert lines[0] == "cell,lat,lng,geoveil"
    assert len(lines) == 1001
    assert json.loads(finished.stderr)["reports_written"] == 1000


def test_a_mechanism_can_come_from_a_pipe_that_the_places_do_not(checkins: Path) -> None:
    mechanism, target = checkins.with_name("m.json"), checkins.with_name("noisy.csv")
    assert (
        obfuscate(checkins, "-o", target, *PROMISE, *BOX, "--save-mechanism", mechanism).exit_code
        == 0
    )
    asked = ["-o", target, "--mechanism", "-"]
    assert obfuscate(checkins, *asked, stdin=mechanism.read_text()).exit_code == 0
    refused = obfuscate("-", *asked, stdin=mechanism.read_text())
    assert refused.exit_code == 2
    assert "only one input can come from a pipe" in refused.stderr


def test_a_pipe_needs_a_box(checkins: Path) -> None:
    result = obfuscate("-", "-o", "-", *PROMISE, stdin=checkins.read_text())
    assert result.exit_code == 2
    assert "--box must be given for a pipe" in result.stderr


def test_geojson_through_pipes() -> None:
    point = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [2.35, 48.85]}}
    text = json.dumps({"type": "FeatureCollection", "features": [point]})
    result = obfuscate("-", "-o", "-", "--format", "geojson", *PROMISE, *BOX, stdin=text)
    assert result.exit_code == 0, result.stderr
    made = json.loads(result.stdout)
    assert made["features"][0]["geometry"]["type"] == "Point"
    assert made["geoveil"]["mechanism"] == "planar-geometric"


def test_seeds_repeat_and_warn(checkins: Path) -> None:
    first, second, third = (checkins.with_name(f"{k}.csv") for k in range(3))
    assert "simulations" in obfuscate(checkins, "-o", first, *PROMISE, *BOX, "--seed", "5").stderr
    obfuscate(checkins, "-o", second, *PROMISE, *BOX, "--seed", "5")
    obfuscate(checkins, "-o", third, *PROMISE, *BOX)
    assert first.read_bytes() == second.read_bytes() != third.read_bytes()


@pytest.mark.parametrize(
    ("mechanism", "promise"),
    [
        ("planar-geometric", ["--level", "1.4", "--radius-km", "0.7"]),
        ("planar-geometric", ["--mean-distance-km", "0.7"]),
        ("planar-laplace", ["--epsilon-per-km", "2"]),
        ("exponential", ["--epsilon-per-km", "2"]),
        ("elastic", ["--beta-per-km", "1"]),
        ("elastic", ["--epsilon-per-km", "2"]),
        ("randomized-response", ["--epsilon", "3"]),
        ("disc", ["--epsilon", "3"]),
    ],
)
def test_every_mechanism_by_every_promise(
    checkins: Path, mechanism: str, promise: list[str]
) -> None:
    target = checkins.with_name("noisy.csv")
    result = obfuscate(
        checkins, "-o", target, "--mechanism", mechanism, *promise, *BOX, "--cell-km", 2
    )
    assert result.exit_code == 0, result.stderr
    assert len(target.read_text().splitlines()) == 1001


def test_continuous_noise_needs_no_box(checkins: Path) -> None:
    target = checkins.with_name("noisy.csv")
    noise = ["--mechanism", "continuous-laplace", "--epsilon-per-km", "2"]
    assert obfuscate(checkins, "-o", target, *noise).exit_code == 0
    values = np.loadtxt(target, delimiter=",", quotechar='"', skiprows=1, usecols=(0, 1))
    assert values.shape == (1000, 2)
    assert 0.2 < np.hypot((values[:, 0] - 48.85) * 111, (values[:, 1] - 2.35) * 73).mean() < 5
    assert obfuscate(checkins, "-o", target, *noise, *BOX).exit_code == 2


DISCS = ("--mechanism", "disc", "--epsilon", "4", *BOX, "--cell-km", 1)


@pytest.mark.parametrize("ending", ["csv", "geojson", "parquet"])
@pytest.mark.parametrize("exact", [(), ("--exact",)])
def test_reports_of_discs_around_the_map_come_back(
    checkins: Path, ending: str, exact: tuple[str, ...]
) -> None:
    target = checkins.with_name(f"noisy.{ending}")
    assert obfuscate(checkins, "-o", target, *DISCS, *exact).exit_code == 0
    with open_table(str(target)) as reader:
        document = reader.metadata
        cells = np.concatenate(
            [numbers(batch.column("cell")) for batch in reader.batches(["cell"])]
        )
    mechanism = mechanism_from_dict(document)
    assert isinstance(mechanism, gv.Disc)
    assert (cells >= mechanism.space.size).any()  # some lie beside the map
    assert share_of_the_crowd(target, mechanism.space) > 0.7


def test_counts_of_discs_around_the_map_come_back(checkins: Path) -> None:
    tally = checkins.with_name("tally.json")
    words = ["tally", str(checkins), "-o", str(tally), *map(str, DISCS)]
    assert CliRunner().invoke(program, words).exit_code == 0
    assert share_of_the_crowd(tally, load_tally(str(tally)).space) > 0.7


def share_of_the_crowd(source: Path, grid: Any) -> float:
    """What the estimate from a file has in the cells of the places in ``checkins``."""
    found = source.with_name("estimate.csv")
    result = CliRunner().invoke(program, ["estimate", str(source), "-o", str(found)])
    assert result.exit_code == 0, result.stderr
    truth = grid.locate(lat=[48.8502345, 48.8512345], lng=[2.35, 2.35])
    return float(read_result(str(found)).share[np.unique(truth)].sum())


def test_the_exact_table_can_be_asked_for(checkins: Path) -> None:
    target = checkins.with_name("noisy.csv")
    assert obfuscate(checkins, "-o", target, *PROMISE, *BOX, "--exact").exit_code == 0
    fine = ["--cell-km", "0.05", "--exact"]
    result = obfuscate(checkins, "-o", target, *PROMISE, *BOX, *fine)
    assert result.exit_code == 2
    assert "exact table" in result.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "a promise must be given: one of --epsilon-per-km, --level"),
        (["--epsilon", "2"], "--epsilon is not for elastic"),
        (["--level", "2"], "--level and --radius-km must be given together"),
        (["--epsilon-per-km", "2", "--mean-distance-km", "1"], "only one promise"),
        (["--epsilon-per-km", "-2"], "must be above 0"),
        (["--epsilon-per-km", "nan"], "must be finite"),
        (["--epsilon-per-km", "two"], "not a valid float"),
        (
            [*PROMISE, "--mechanism", "laplace"],
            r"must be one of planar-geometric, .*, or the file of one",
        ),
        ([*PROMISE, "--mechanism", "m.json"], "must be left out with --mechanism m.json"),
        (["--mechanism", "m.json"], "m.json: No such file"),
        (["--mechanism", "m.json", "--cell-km", "1"], "--cell-km is of no use here: the mechanism"),
        ([*PROMISE, "--box", "1,2,3"], "four numbers"),
        ([*PROMISE, "--box", "48.9,2.2,48.8,2.4"], "south .* must be below north"),
        ([*PROMISE, "--box", "-80,-170,80,170"], "flat map"),
        ([*PROMISE, "--cell-km", "0"], "cell_km .* must be above 0"),
        ([*PROMISE, "--cell-km", "0.00001"], "must have at most"),
        ([*PROMISE, "--lat", "north"], "no column named 'north': it has who, lat, lon"),
        ([*PROMISE, "--keep", "name"], "no column named 'name'"),
        (
            [*PROMISE, "--delimiter", ";"],
            "seems to part its fields by ',', not ';'; give --delimiter ','",
        ),
        ([*PROMISE, "--delimiter", "ab"], "delimiter"),
        (
            ["--mechanism", "continuous-laplace", "--epsilon-per-km", "1", "--exact"],
            "drawn in doubles",
        ),
        ([*PROMISE, "--box", "10,10,11,11", "--outside", "raise"], "number 1 does not"),
        (
            [*PROMISE, "--box", "10,10,11,11"],
            "all 1,000 lie outside; are 'lat' and 'lon' the right",
        ),
        ([*PROMISE, "--box", "10,10,11,11", "--outside", "clamp"], "all 1,000 lie outside"),
        ([*PROMISE, "--box", "2.2,48.8,2.4,48.9"], "swapped: .* --box as south,west,north,east"),
        ([*PROMISE, "--lat", "who"], "are 'who' and 'lon' the right columns"),
        ([*PROMISE, "--per-person", "1"], "--per-person and --limit-by must come with --person"),
        ([*PROMISE, "--person", "who", "--limit-by", "cap"], "must come with --per-person N"),
        ([*PROMISE, "--person", "user"], "no column named 'user': it has who, lat, lon"),
    ],
)
def test_wrong_options(checkins: Path, options: list[str], problem: str) -> None:
    target = checkins.with_name("noisy.csv")
    result = obfuscate(checkins, "-o", target, *options)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if ": note: " not in line]
    assert len(lines) == 1, result.stderr
    assert re.search(problem, lines[0]), lines[0]
    assert names(checkins.parent) == ["checkins.csv"]


def test_city_limits_with_the_latitude_first_are_named(checkins: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits.geojson"
    ring = [[48.8, 2.2], [48.9, 2.2], [48.9, 2.4], [48.8, 2.4], [48.8, 2.2]]
    limits.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    promise = ["--mechanism", "exponential", *PROMISE[2:], "--within", limits]
    result = obfuscate(checkins, "-o", tmp_path / "noisy.csv", *promise)
    assert "swapped: use --lat lon --lng lat, or write" in result.stderr
    assert "--within with the longitude first" in result.stderr


@pytest.mark.parametrize("bad_rows", ["raise", "drop"])
def test_degrees_with_minutes_are_named(tmp_path: Path, bad_rows: str) -> None:
    source = tmp_path / "checkins.csv"
    source.write_text("lat;lng\n" + 9 * "48°51'24\"N;2°21'03\"E\n")
    result = obfuscate(source, "-o", tmp_path / "noisy.csv", *PROMISE, *BOX, "--delimiter", ";",
                       "--bad-rows", bad_rows)  # fmt: skip
    assert result.exit_code == 2
    assert "minutes and seconds; write decimal degrees" in result.stderr
    assert "48°" not in result.stderr
    assert names(tmp_path) == ["checkins.csv"]


def test_a_decimal_comma_is_a_point(tmp_path: Path) -> None:
    written = [("48.8512", "2.35"), ("48,8512", " 2,35 "), ("48.8512", "+2,35")]
    noisy = []
    for number, (lat, lng) in enumerate(written):
        for delimiter, quote in ((";", ""), (",", '"')):
            source, target = tmp_path / "checkins.csv", tmp_path / f"{number}{delimiter}.csv"
            row = delimiter.join(f"{quote}{each}{quote}" for each in (lat, lng))
            source.write_text(f"lat{delimiter}lng\n" + 9 * f"{row}\n")
            result = obfuscate(source, "-o", target, *PROMISE, *BOX, "--delimiter", delimiter,
                               "--seed", "1")  # fmt: skip
            assert result.exit_code == 0, result.output
            noisy.append(target.read_text())
    assert len(set(noisy)) == 1


@pytest.mark.parametrize("place", ["48,8512,1;2", "1,048.5;2", "48,;2", ",5;2", "4 8,5;2"])
def test_other_commas_are_no_numbers(tmp_path: Path, place: str) -> None:
    source = tmp_path / "checkins.csv"
    source.write_text(f"lat;lng\n{place}\n")
    result = obfuscate(source, "-o", tmp_path / "n.csv", *PROMISE, *BOX, "--delimiter", ";")
    assert result.exit_code == 2
    assert "must have numbers for its coordinates" in result.stderr


def test_a_file_of_another_ending_is_what_format_says(checkins: Path) -> None:
    source = checkins.rename(checkins.with_suffix(".txt"))
    target = checkins.with_name("noisy.csv")
    refused = obfuscate(source, "-o", target, *PROMISE, *BOX)
    assert refused.exit_code == 2
    assert "--format says what a file with another ending is" in refused.stderr
    assert obfuscate(source, "-o", target, *PROMISE, *BOX, "--format", "csv").exit_code == 0


def test_the_input_is_not_overwritten(checkins: Path) -> None:
    before = checkins.read_bytes()
    for extra in (["-o", checkins], ["-o", "n.csv", "--save-mechanism", checkins]):
        result = obfuscate(checkins, *extra, *PROMISE, *BOX)
        assert result.exit_code == 2
        assert "must not be the same file" in result.stderr
    assert checkins.read_bytes() == before


def test_the_mechanism_document_is_not_overwritten(checkins: Path) -> None:
    saved = checkins.with_name("mechanism.json")
    assert (
        obfuscate(
            checkins, "-o", checkins.with_name("a.csv"), *PROMISE, *BOX, "--save-mechanism", saved
        ).exit_code
        == 0
    )
    before = saved.read_bytes()
    result = obfuscate(checkins, "--mechanism", saved, "-o", saved)
    assert result.exit_code == 2
    assert "must not be the same file" in result.stderr
    assert saved.read_bytes() == before


def test_points_of_a_geoparquet_file_do_not_leak(tmp_path: Path) -> None:
    point = struct.pack("<BIdd", 1, 1, 2.35, 48.85)
    geo = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    table = pa.table({"geometry": [point] * 3})
    source = tmp_path / "geo.parquet"
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), source)
    result = obfuscate(
        source, "-o", tmp_path / "leak.parquet", *PROMISE, *BOX, "--keep", "geometry"
    )
    assert result.exit_code == 2
    assert "(geometry) must not be the true coordinates" in result.stderr
    assert names(tmp_path) == ["geo.parquet"]


def test_places_outside_are_left_out_and_one_in_a_hundred_is_a_warning(checkins: Path) -> None:
    target = checkins.with_name("noisy.csv")
    with checkins.open("a") as file:
        file.write("far,10,10\n")
    few = obfuscate(checkins, "-o", target, *PROMISE, *BOX)
    assert few.stderr == ""
    said = r"outside +1 of 1,001 places \(0.0999 %\) lies outside the map and was left out"
    assert re.search(said, few.stdout)
    assert len(target.read_text().splitlines()) == 1001
    with checkins.open("a") as file:
        file.write("far,10,10\n" * 10)
    many = obfuscate(checkins, "-o", target, *PROMISE, *BOX, "--json")
    assert "warning: 11 of 1,011 places (1.09 %) lie outside the map" in many.stderr
    values = json.loads(many.stdout)
    assert (values["outside_clamped"], values["outside_dropped"]) == (0, 11)
    clamped = obfuscate(checkins, "-o", target, *PROMISE, *BOX, "--json", "--outside", "clamp")
    values = json.loads(clamped.stdout)
    assert (values["outside_clamped"], values["outside_dropped"]) == (11, 0)
    assert "moved to the nearest cell" in clamped.stderr


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("-122.41,37.77", "look swapped; use --lat lon --lng lat"),
        ("6250000,262000", "projected coordinates in metres; convert them to WGS84"),
        ("488512345,23512345", "look like degrees times 10,000,000; divide"),
        ("48851234,2351234", "look like degrees times 1,000,000 or 10,000,000; divide"),
        ("48.85 N,2.35 E", "have letters for north and south; write a minus in the south"),
        ("4711,2.35", "are 'lat' and 'lon' the right columns (it has lat, lon)?"),
    ],
)
@pytest.mark.parametrize("drop", [False, True])
def test_what_is_no_degrees_is_named(tmp_path: Path, row: str, said: str, drop: bool) -> None:
    (tmp_path / "places.csv").write_text("lat,lon\n" + f"{row}\n" * 20)
    dropping = ["--bad-rows", "drop"] if drop else []
    target = tmp_path / "noisy.csv"
    result = obfuscate(tmp_path / "places.csv", "-o", target, *PROMISE, *BOX, *dropping)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not target.exists()


def test_one_swapped_row_says_nothing_of_the_columns(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text("lat,lon\n" + "48.85,2.35\n" * 9 + "-122.41,37.77\n")
    result = obfuscate(tmp_path / "places.csv", "-o", tmp_path / "n.csv", *PROMISE, *BOX)
    assert result.exit_code == 2
    assert "row 10 of" in result.stderr
    assert "look swapped; correct it, or drop bad rows" in result.stderr


@pytest.mark.parametrize("row", ["48.85,-2.35", "0.85259,0.04102"])
def test_lost_signs_and_radians_are_named(tmp_path: Path, row: str) -> None:
    (tmp_path / "places.csv").write_text("lat,lon\n" + f"{row}\n" * 20)
    result = obfuscate(tmp_path / "places.csv", "-o", tmp_path / "n.csv", *PROMISE, *BOX)
    assert result.exit_code == 2
    assert re.search("minus sign|radians", result.stderr)


def test_radians_are_named_without_a_box_too(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text("lat,lon\n0.85259,0.04102\n0.85262,-0.0411\n")
    result = obfuscate(tmp_path / "places.csv", "-o", tmp_path / "n.csv", *PROMISE)
    assert result.exit_code == 2
    assert "must have places in degrees; all lie in the sea" in result.stderr
    assert "0.85" not in result.stderr


def test_places_that_fit_on_no_map_need_a_box(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text("lat,lon\n48.85,2.35\n0,0\n")
    result = obfuscate(tmp_path / "places.csv", "-o", tmp_path / "noisy.csv", *PROMISE)
    assert result.exit_code == 2
    assert "give --box around those you mean" in result.stderr


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """Nine persons with 100 visits to two places in turn, and one with a single visit."""
    path = tmp_path / "visits.csv"
    rows = [f"user{k % 9},{48.82 + 0.06 * (k // 9 % 2)},2.35" for k in range(900)]
    path.write_text("\n".join(["who,lat,lon", *rows, "user9,48.85,2.35"]) + "\n")
    return path


@pytest.mark.parametrize("limit_by", [["--limit-by", "cap"], ["--limit-by", "sample"], []])
@pytest.mark.parametrize("piped", [False, True])
def test_a_person_has_at_most_so_many_reports(
    visits: Path, limit_by: list[str], piped: bool
) -> None:
    target = visits.with_name("noisy.parquet")
    options = ["--person", "who", "--per-person", "3", "--keep", "who", *limit_by, "--json"]
    source, stdin = ("-", visits.read_text()) if piped else (visits, None)
    result = obfuscate(source, "-o", target, *PROMISE, *BOX, *options, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    names, counts = np.unique(pq.read_table(target)["who"].to_numpy(), return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        **{f"user{k}": 3 for k in range(9)},
        "user9": 1,
    }
    told = json.loads(result.stdout)["per_person"]
    assert told["persons"] == 10
    assert told["largest"] == {"reports": 3, "spent": "ε = 6 per km", "epsilon_per_km": 6.0}


def test_a_memoised_cell_of_a_person_gives_one_report(visits: Path) -> None:
    target = visits.with_name("noisy.parquet")
    options = ["--person", "who", "--limit-by", "memoise", "--keep", "who"]
    shown = " ".join(obfuscate(visits, "-o", target, *PROMISE, *BOX, *options).stdout.split())
    assert "Every person has spent at most ε = 4 per km, in at most 2 reports." in shown
    table = pq.read_table(target)
    assert table.num_rows == 901
    cells, who = table["cell"].to_numpy(), table["who"].to_numpy()
    for k in range(9):
        there = cells[who == f"user{k}"]
        assert np.unique(there[::2]).size == np.unique(there[1::2]).size == 1
    assert np.unique(cells).size > 2  # persons in the same cell draw for themselves
    capped = obfuscate(visits, "-o", target, *PROMISE, *BOX, *options, "--per-person", 1, "--json")
    values = json.loads(capped.stdout)
    assert values["reports_written"] == 9 * 50 + 1
    assert values["per_person"]["largest"]["reports"] == 1


def test_memoised_continuous_noise_repeats_at_the_same_place(visits: Path) -> None:
    target = visits.with_name("noisy.csv")
    noise = [*PROMISE, "--mechanism", "continuous-laplace"]
    assert obfuscate(visits, "-o", target, *noise, "--person", "who", "--limit-by", "memoise",
                     "--keep", "who").exit_code == 0  # fmt: skip
    rows = [line.split(",")[:2] for line in target.read_text().splitlines()[1:]]
    assert len(rows) == 901
    assert len(set(map(tuple, rows))) == 19


def test_the_person_is_not_written_and_without_one_reports_are_spoken_of(visits: Path) -> None:
    target = visits.with_name("noisy.csv")
    limited = obfuscate(visits, "-o", target, *PROMISE, *BOX, "--person", "who", "--per-person", 1)
    assert "Every person has spent at most ε = 2 per km, in one report." in limited.stdout
    assert "10, typically with one report (ε = 2 per km)" in limited.stdout
    assert "user" not in target.read_text()
    plain = obfuscate(visits, "-o", target, *PROMISE, *BOX)
    assert "Each report spends ε = 2 per km" in plain.stdout
    assert "person has" not in plain.stdout
    whole = obfuscate(visits, "-o", target, *PROMISE, *BOX, "--person", "who")
    assert "at most ε = 200 per km, in at most 100 reports" in " ".join(whole.stdout.split())


def test_rows_that_do_not_say_whom_they_are_about(visits: Path) -> None:
    with visits.open("a") as file:
        file.write(",48.85,2.35\n")
    options = [*PROMISE, *BOX, "--person", "who", "--per-person", 1]
    result = obfuscate(visits, "-o", visits.with_name("noisy.csv"), *options)
    assert result.exit_code == 2
    assert "row 902 of" in result.stderr
    assert "must say in 'who' whom it is about" in result.stderr
    result = obfuscate(
        visits, "-o", visits.with_name("n.csv"), *options, "--bad-rows", "drop", "--json"
    )
    assert json.loads(result.stdout)["bad_rows_dropped"] == 1


def geojson(kind: str, coordinates: str) -> bytes:
    geometry = f'{{"type":"{kind}","coordinates":{coordinates}}}'
    return f'{{"type":"FeatureCollection","features":[{{"geometry":{geometry}}}]}}'.encode()


ROW = f"{CANARY},2.35\n"
HOSTILE: dict[str, bytes] = {
    "empty.csv": b"",
    "blank.csv": b"\n\n  \n",
    "header-only.csv": b"lat,lng\n",
    "no-header.csv": (ROW * 3).encode(),
    "nan.csv": f"lat,lng\n{ROW}NaN,{CANARY}\n".encode(),
    "infinite.csv": f"lat,lng\n{ROW}{CANARY},inf\n".encode(),
    "text.csv": f"lat,lng\n{ROW}north of {CANARY},2.35\n".encode(),
    "comma.csv": f'lat,lng\n"{CANARY.replace(".", ",")},5",2\n'.encode(),
    "delimiter.csv": f"lat;lng\n{CANARY};2.35\n".encode(),
    "tabs.csv": f"lat\tlng\n{CANARY}\t2.35\n".encode(),
    "missing-column.csv": f"lat,elevation\n{ROW}".encode(),
    "two-latitudes.csv": f"lat,latitude,lng\n{CANARY},{CANARY},2\n".encode(),
    "out-of-range.csv": f"lat,lng\n{ROW}91,{CANARY}\n".encode(),
    "huge.csv": f"lat,lng\n{CANARY}e300,2.35\n".encode(),
    "swapped.csv": f"lat,lng\n148.8512345,{CANARY}\n".encode(),
    "short-row.csv": f"lat,lng\n{ROW}{CANARY}\n".encode(),
    "long-row.csv": f"lat,lng\n{ROW}{CANARY},{CANARY},{CANARY}\n".encode(),
    "open-quote.csv": f'lat,lng\n"{CANARY},2.35\n{ROW}'.encode(),
    "late-quote.csv": f'lat,lng,who\n{CANARY},2,x\n{CANARY},2,"Joe\n{CANARY},2,x\n'.encode(),
    "degrees.csv": b"48\xc2\xb051'24N,2\xc2\xb021'07E\n",
    "junk.csv": bytes(range(256)) * 40,
    "nul.csv": f"lat,lng\n{CANARY}\0,2\n".encode(),
    "latin-1.csv": f"lat,lng\n{ROW}{CANARY}°,2\n".encode("latin-1"),
    "utf-16.csv": f"lat,lng\n{ROW}".encode("utf-16"),
    "cut.csv.gz": gzip.compress(b"lat,lng\n" + ROW.encode() * 50_000)[:300],
    "garbled.csv.gz": gzip.compress(b"lat,lng\n" + ROW.encode() * 500)[:40] + b"\0" * 90,
    "only-magic.csv.gz": b"\x1f\x8b",
    "parquet-inside.csv": b"PAR1" + CANARY.encode(),
    "not.parquet": f"lat,lng\n{ROW}".encode(),
    "empty.parquet": b"",
    "magic.parquet": b"PAR1" + CANARY.encode() * 9 + b"PAR1",
    "empty.geojson": b"",
    "list.geojson": f"[{CANARY}]".encode(),
    "cut.geojson": b'{"type":"FeatureCollection","features":[{"type":"Feature","geometry":',
    "polygon.geojson": geojson("Polygon", f"[[{CANARY}, 2]]"),
    "nan.geojson": geojson("Point", f"[{CANARY}, NaN]"),
    "deep.geojson": b'{"features":' + b"[" * 100_000,
    "no-features.geojson": b'{"type":"FeatureCollection","features":[]}',
    "unknown.xlsx": b"PK",
}  # fmt: skip


@pytest.mark.parametrize("box", [BOX, []], ids=["box", "no box"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_one_line_and_leave_nothing(
    tmp_path: Path, name: str, box: list[str]
) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name])
    result = obfuscate(tmp_path / name, "-o", tmp_path / "noisy.csv", *PROMISE, *box)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("geoveil: error: ")
    assert result.stderr.count("\n") == 1
    assert not any(part in result.stderr for part in (CANARY, "48.85", "8512345", "48,85"))
    assert names(tmp_path) == [name]


@pytest.mark.parametrize("name", [name for name in HOSTILE if name.endswith(".csv")])
def test_hostile_pipes_get_one_line_too(name: str) -> None:
    result = obfuscate("-", "-o", "-", *PROMISE, *BOX, stdin=HOSTILE[name])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert CANARY not in result.stderr


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    lat = np.linspace(48.8, 48.9, 50_000)
    pq.write_table(pa.table({"lat": lat, "lng": lat}), path, compression="none")
    data = bytearray(path.read_bytes())
    data[4:40_000] = b"\xff" * (40_000 - 4)
    path.write_bytes(bytes(data))
    result = obfuscate(path, "-o", tmp_path / "noisy.csv", *PROMISE, *BOX)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert names(tmp_path) == ["a.parquet"]


def test_a_folder_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "a.csv").write_text("lat,lng\n48.85,2.35\n")
    for source, target in (
        ("folder.csv", "b.csv"),
        ("a.csv", "folder.csv"),
        ("a.csv", "none/b.csv"),
    ):
        result = obfuscate(tmp_path / source, "-o", tmp_path / target, *PROMISE, *BOX)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.stderr
        assert "partial" not in result.stderr
    assert names(tmp_path) == ["a.csv", "folder.csv"]
