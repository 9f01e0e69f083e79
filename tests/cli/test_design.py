"""``geoveil design`` with a prior of the user's own: counts of people, by cell or by place."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.program import program
from geoveil.errors import InvalidInput
from geoveil.measure import mean_distance_km
from geoveil.table import results

BOX = ["--box", "48.83,2.28,48.85,2.31"]
GRID = gv.Grid.from_box(south=48.83, west=2.28, north=48.85, east=2.31, cell_km=0.5)
CENSUS = "block,Latitude,Longitude,population\na,48.835,2.285,300\nb,48.835,2.2851,100\nc,48.845,2.3,600\n"


def design(*arguments: Any) -> Result:
    return CliRunner().invoke(program, ["design", "--epsilon-per-km", "2", *map(str, arguments)])


def expected() -> gv.Channel:
    people = np.zeros(GRID.size)
    np.add.at(
        people, GRID.locate(lat=[48.835, 48.835, 48.845], lng=[2.285, 2.2851, 2.3]), [300, 100, 600]
    )
    return gv.elastic(GRID, people / 1000, epsilon_per_km=2.0)


def write(path: Path) -> None:
    """The census in the format of the name."""
    names, *rows = [line.split(",") for line in CENSUS.splitlines()]
    if path.suffix == ".csv":
        path.write_text(CENSUS)
    elif path.suffix == ".parquet":
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        numbers = {name: [float(each) for each in columns[name]] for name in names[1:]}
        pq.write_table(pa.table({"block": list(columns["block"]), **numbers}), path)
    else:
        features = [
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [float(lng), float(lat)]},
                "properties": {"block": block, "population": int(people)},
            }
            for block, lat, lng, people in rows
        ]
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


@pytest.mark.parametrize("ending", ["csv", "parquet", "geojson"])
def test_a_census_is_a_prior(ending: str, tmp_path: Path) -> None:
    census, target = tmp_path / f"census.{ending}", tmp_path / "mechanism.json"
    write(census)
    result = design("--prior", census, "--column", "population", *BOX, "-o", target)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == (
        f"geoveil: note: column 'population' of {census} (sum 1000) is divided by its sum\n"
    )
    assert gv.load_mechanism(target) == expected()
    assert "geoveil audit --gain measures what they move" in " ".join(result.stdout.split())


def test_what_design_says_of_audit_is_so(tmp_path: Path) -> None:
    target = tmp_path / "mechanism.json"
    few = gv.Grid(rows=3, columns=4, cell_km=0.5)
    gv.save_mechanism(gv.elastic(few, epsilon_per_km=2.0), target)
    audited = CliRunner().invoke(program, ["audit", str(target), "--draws", "1000", "--gain"])
    assert "a gain of" in " ".join(audited.stdout.split())


def test_cells_with_people_are_a_prior(tmp_path: Path) -> None:
    """Cells may be missing, and may come more than once."""
    cells = GRID.locate(lat=[48.835, 48.845], lng=[2.285, 2.3]).tolist()
    table = tmp_path / "cells.csv"
    table.write_text(f"population,cell\n300,{cells[0]}\n600,{cells[1]}\n100,{cells[0]}\n")
    target = tmp_path / "mechanism.json"
    result = design("--prior", table, "--column", "population", *BOX, "-o", target)
    assert result.exit_code == 0, result.stderr
    assert gv.load_mechanism(target) == expected()


def test_without_a_box_the_grid_is_over_the_places(tmp_path: Path) -> None:
    (tmp_path / "census.csv").write_text(CENSUS)
    target = tmp_path / "mechanism.json"
    result = design("--prior", tmp_path / "census.csv", "--column", "population", "-o", target)
    assert "are put into Grid(5 × 5 cells of 0.5 km" in result.stderr, result.stderr
    assert result.stderr.count("\n") == 2
    found: Any = gv.load_mechanism(target)
    assert found.space.box == gv.Box(south=48.83, west=2.28, north=48.85, east=2.31)


def test_rows_outside_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "census.csv").write_text(CENSUS + "d,40.0,2.3,5000\n")
    target = tmp_path / "mechanism.json"
    result = design(
        "--prior", tmp_path / "census.csv", "--column", "population", *BOX, "-o", target
    )
    assert "warning: 1 of 4 rows" in result.stderr
    assert gv.load_mechanism(target) == expected()


@pytest.mark.parametrize(
    ("people", "said"),
    [
        (["812", "1.204"], "warning: points of column 'population'"),
        (["812.5", "1.204"], ""),
        (["0.812", "0.204"], ""),
        (["812", "1,204"], "row 2 does not: write them with a decimal point"),
        (["812", "1.204.100"], "row 2 does not: write them with a decimal point"),
    ],
)
def test_marks_for_thousands_do_not_pass_for_decimal_points(
    people: list[str], said: str, tmp_path: Path
) -> None:
    census, cells, stored = (tmp_path / name for name in ("a.csv", "b.csv", "c.parquet"))
    rows = [f"48,83{k};2,28{k};{amount}" for k, amount in enumerate(people, start=2)]
    census.write_text("\n".join(["lat;lng;population", *rows]))
    rows = [f"{k};{amount}" for k, amount in enumerate(people)]
    cells.write_text("\n".join(["cell;population", *rows]))
    columns = {"lat": [48.832, 48.833], "lng": [2.282, 2.283]}
    amounts = pa.array(people, pa.large_string())
    pq.write_table(pa.table({**columns, "population": amounts}), stored)
    words = ["--column", "population", "--delimiter", ";", *BOX, "-o", tmp_path / "mechanism.json"]
    for prior in (census, cells, stored):
        stderr = design("--prior", prior, *words).stderr
        assert said in stderr
        assert said or "warning" not in stderr


POLYGON = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"population": 3},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[2.3, 48.84], [2.31, 48.84], [2.3, 48.85]]],
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("c.csv", CENSUS, ["--column", "people"], "it has block, Latitude, Longitude, population"),
        (
            "c.csv",
            CENSUS,
            [],
            "c.csv; it has block, Latitude, Longitude, population; places without amounts go",
        ),
        ("c.csv", "cell,n\n3,4\n", ["--column", "n"], "--box must be given"),
        ("c.csv", "cell,n\n99,4\n", ["--column", "n", *BOX], "row 1 of"),
        ("c.csv", "lat,lng,n\n1,2,3\n1,2,-3\n", ["--column", "n"], "at least 0; row 2"),
        ("c.csv", "lat,lng,n\n1,2,3\n1,2,\n", ["--column", "n"], "at least 0; row 2"),
        ("c.csv", "lat,lng,n\n1,2,nan\n", ["--column", "n"], "at least 0; row 1"),
        ("c.csv", "lat,lng,n\n1,2,0\n1,2.1,0\n", ["--column", "n"], "must be above 0 somewhere"),
        ("c.csv", "lat,lng,n\n1,2,3\n", ["--column", "n", *BOX], "1 of 1 row of"),
        ("c.csv", "lat,lng,n\n", ["--column", "n", *BOX], "it has none"),
        ("c.geojson", json.dumps(POLYGON), ["--column", "population"], "at least four pairs"),
        ("c.json", '{"kind": "estimate"}', [], "must have all its entries"),
        ("c.json", "{}", [], "must be a whole GeoJSON"),
    ],
)
def test_what_is_no_prior_is_one_line_and_leaves_no_file(
    name: str, text: str, options: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    result = design("--prior", tmp_path / name, *options, "-o", tmp_path / "m.json")
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_people_are_asked_for_by_advice_only(tmp_path: Path) -> None:
    said = design("--prior", tmp_path / "e.csv", "--people", 5, "-o", tmp_path / "m.json").stderr
    assert "--people must go with --advise" in said


@pytest.mark.parametrize("area", [BOX, ["--cell-km", "1"]])
def test_an_area_beside_a_prior_with_a_map_of_its_own_is_refused(
    area: list[str], tmp_path: Path
) -> None:
    estimate = results.Result(GRID, np.full(GRID.size, 1 / GRID.size))
    results.write_result(str(tmp_path / "e.geojson"), estimate)
    said = design("--prior", tmp_path / "e.geojson", *area, "-o", tmp_path / "m.json").stderr
    assert f"{area[0]} is of no use here: the prior brings its own map" in said
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize("promise", [[], ["--epsilon-per-km", "2", "--mean-distance-km", "1"]])
def test_a_promise_is_asked_for_by_the_names_of_the_options(
    promise: list[str], tmp_path: Path
) -> None:
    asked = ["design", "--prior", str(tmp_path / "c.csv"), "-o", str(tmp_path / "m.json")]
    result = CliRunner().invoke(program, [*asked, *promise])
    assert result.exit_code == 2
    assert "--epsilon-per-km or --mean-distance-km must be given, one of them" in result.stderr


def test_the_library_divides_counts_and_says_so_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A log line, no warning: whoever turns warnings into errors is not stopped."""
    people = np.arange(GRID.size) * 100.0
    with caplog.at_level(logging.INFO, "geoveil"):
        counted = gv.elastic(GRID, people, epsilon_per_km=2.0)
    assert [each.getMessage() for each in caplog.records] == [
        f"prior (sum {people.sum():g}) is divided by its sum"
    ]
    assert counted == gv.elastic(GRID, people / people.sum(), epsilon_per_km=2.0)
    assert mean_distance_km(counted, people) == mean_distance_km(counted, people / people.sum())
    for wrong in (-people, people * np.nan, people * 0, people + np.inf, people[:-1]):
        with pytest.raises(InvalidInput, match="prior"):
            gv.elastic(GRID, wrong, epsilon_per_km=2.0)
