"""``geoveil estimate --zones``: a row for each district, in every format, and what is amiss is said."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from geoveil.cli.program import program
from unit.test_regions import HALVES, districts, zone

LIMITS = zone(48.82, 2.25, 48.89, 2.40, "city")["geometry"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zones")
    places = np.random.default_rng(1).normal([48.855, 2.32], [0.012, 0.02], size=(1500, 2))
    np.savetxt(folder / "people.csv", places, delimiter=",", header="lat,lng", comments="")
    (folder / "zones.geojson").write_text(json.dumps(HALVES))
    (folder / "limits.geojson").write_text(json.dumps(LIMITS))
    gaps = districts(zone(48.8, 2.2, 48.92, 2.32, "a"), zone(48.8, 2.31, 48.92, 2.33, "b"))
    (folder / "gaps.geojson").write_text(json.dumps(gaps))
    run(
        "obfuscate", folder / "people.csv", "-o", folder / "noisy.csv",
        "--epsilon-per-km", 1, "--within", folder / "limits.geojson", "--cell-km", 1, "--seed", 1,
    )  # fmt: skip
    return folder


def run(*arguments: Any) -> dict[str, Any]:
    done = CliRunner().invoke(program, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_row_for_each_district(folder: Path) -> None:
    out = folder / "districts.csv"
    said = run("estimate", folder / "noisy.csv", "--zones", folder / "zones.geojson", "-o", out)
    assert said["zones"] == 2
    assert "each interval is for one district by itself" in said["error_bars"]
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["region"] for row in rows] == ["west", "east"]
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1.0)
    for row in rows:
        assert float(row["low"]) < float(row["share"]) < float(row["high"])


def test_districts_are_told_with_their_intervals(folder: Path) -> None:
    asked = ["estimate", "noisy.csv", "--zones", "zones.geojson", "-o", "told.csv"]
    paths = [str(folder / each) if "." in each else each for each in asked]
    told = CliRunner().invoke(program, paths)
    assert told.exit_code == 0, told.output
    with (folder / "told.csv").open() as file:
        rows = {row["region"]: row for row in csv.DictReader(file)}
    fullest = max(rows.values(), key=lambda row: float(row["share"]))
    share, low, high = (f"{100 * float(fullest[name]):.2f}" for name in ("share", "low", "high"))
    assert f"{fullest['region']}: {share} % ({low}–{high})" in " ".join(told.stdout.split())
    assert "fullest cells" not in told.stdout
    prior = ["--prior", str(folder / "told.csv"), "-o", str(folder / "new.json")]
    refused = CliRunner().invoke(program, ["design", *prior, "--epsilon-per-km", "1"])
    assert "it holds shares of districts: estimate without --zones" in refused.stderr


def test_shapes_are_kept(folder: Path) -> None:
    out = folder / "districts.geojson"
    run("estimate", folder / "noisy.csv", "--zones", folder / "zones.geojson", "-o", out)
    made = json.loads(out.read_text())
    assert [each["properties"]["name"] for each in made["features"]] == ["west", "east"]
    assert made["features"][0]["geometry"] == HALVES["features"][0]["geometry"]
    assert made["geoveil"]["interval_level"] == 0.95
    parquet = folder / "districts.parquet"
    run("estimate", folder / "noisy.csv", "--zones", folder / "zones.geojson", "-o", parquet)
    geopandas = pytest.importorskip("geopandas")
    frame = geopandas.read_parquet(parquet)
    assert list(frame["region"]) == ["west", "east"]
    assert frame.geometry.iloc[0].equals(
        geopandas.GeoDataFrame.from_features(HALVES).geometry.iloc[0]
    )


def test_overlaps_gaps_and_limits(folder: Path) -> None:
    noisy, gaps = folder / "noisy.csv", folder / "gaps.geojson"
    said = run("estimate", noisy, "--zones", gaps, "-o", folder / "gaps.csv")
    assert "in no region" in said["zones_summary"]
    assert "counted again" in said["zones_summary"]
    inside = run(
        "estimate", noisy, "--zones", folder / "zones.geojson", "--within", folder / "limits.geojson",
        "-o", folder / "inside.csv",
    )  # fmt: skip
    assert inside["zones_summary"].startswith("every cell")


def test_what_cannot_be(folder: Path) -> None:
    for arguments, words in (
        (["--zones", folder / "noisy.csv"], "must be GeoJSON"),
        (["--zones", folder / "zones.geojson", "--uncertainty", "none"], "error bars"),
    ):
        out = ["-o", folder / "x.csv"]
        done = CliRunner().invoke(
            program, list(map(str, ["estimate", folder / "noisy.csv", *out, *arguments]))
        )
        assert done.exit_code == 2
        assert words in done.output


def test_a_warning_of_the_library_is_one_of_the_command_said_once(folder: Path) -> None:
    west, east = HALVES["features"]
    three = districts(west, {**east, "geometry": None}, {**east, "properties": west["properties"]})
    (folder / "odd.geojson").write_text(json.dumps(three))
    asked = ["estimate", "noisy.csv", "--zones", "odd.geojson", "-o", "odd.csv"]
    paths = [str(folder / each) if "." in each else each for each in asked]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning
        done = CliRunner().invoke(program, paths)
        assert warnings.showwarning is before
    assert done.exit_code == 0, done.output
    shapeless, alike = done.stderr.splitlines()
    assert shapeless == "geoveil: warning: 1 feature has no shape and is left out: 'east'"
    assert alike.startswith("geoveil: warning: several districts have the name 'west' and stay")
