"""Tables drawn from positions: the law at each row's own place, the rim in files, every sentence true."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import geoveil as gv
from geoveil.channel.composed import AverageChannel
from geoveil.channel.joint import JointChannel
from geoveil.cli.program import program
from geoveil.engine.engines import FilePart
from geoveil.engine.part_reports import PartCounter
from geoveil.errors import InvalidFile, InvalidInput, OutsideSpace, Unsupported
from geoveil.table.locations import Reading
from geoveil.table.reports import ReportPlaces, count_reports
from geoveil.table.results import read_result
from sentences import read

MAP = gv.Grid.from_box(south=48.85, west=2.30, north=48.862, east=2.326, cell_km=0.5)
PROMISE = 2.0


def positional(camouflage: float) -> gv.PositionalElastic:
    made = gv.elastic(MAP, epsilon_per_km=PROMISE, camouflage=camouflage, between="positions")
    assert isinstance(made, gv.PositionalElastic)
    return made


@pytest.fixture(scope="module")
def plain() -> gv.PositionalElastic:
    return positional(0.5)


@pytest.fixture(scope="module")
def rimmed() -> gv.PositionalElastic:
    made = positional(0.0)
    assert made.report_count > MAP.size
    return made


def law_at(mechanism: gv.PositionalElastic, lat: float, lng: float) -> Any:
    """The law of the whole numbers at one position."""
    place = MAP.plane.to_plane(lat=lat, lng=lng, folded=True)
    steps = mechanism.law.steps_of(place[None] - MAP.centres[0])
    row = mechanism.law.rows_at(steps)[0]
    return row / row.sum()


def misfit(seen: Any, law: Any, draws: int) -> float:
    """Pearson's statistic in standard deviations: large where the reports follow another law."""
    expected = law * draws
    rare = expected < 10
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], max(float(expected[rare].sum()), 1e-9))
    statistic = ((seen - expected) ** 2 / expected).sum()
    return float((statistic - len(expected)) / math.sqrt(2 * len(expected)))


# -- the law ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rim", [False, True])
def test_a_report_is_drawn_from_the_position_of_its_row(
    rim: bool, plain: gv.PositionalElastic, rimmed: gv.PositionalElastic
) -> None:
    mechanism, draws = rimmed if rim else plain, 40_000
    west, south = MAP.corner_km
    corner = (
        np.array([west, south]) + 0.5 * np.array([1, 1]) + 0.02
    )  # beside a corner of four cells
    lat, lng = MAP.plane.to_latlng(corner)
    frame = {"lat": np.full(draws, lat), "lng": np.full(draws, lng)}
    noisy = gv.obfuscate(frame, mechanism, randomness=gv.seeded(1))
    seen = np.bincount(noisy["cell"], minlength=mechanism.report_count)
    assert abs(misfit(seen, law_at(mechanism, float(lat), float(lng)), draws)) < 6
    cell = int(MAP.locate(lat=float(lat), lng=float(lng)))
    assert (
        misfit(seen, mechanism.row(cell), draws) > 20
    )  # what a draw from the cell would look like
    places = ReportPlaces(mechanism)
    assert np.array_equal(np.column_stack(places.latlng)[noisy["cell"]],
                          np.column_stack([noisy["lat"], noisy["lng"]]))  # fmt: skip


def test_renamed_reports_are_drawn_from_positions_too(rimmed: gv.PositionalElastic) -> None:
    inward = np.append(np.arange(MAP.size), np.zeros(rimmed.report_count - MAP.size, dtype=int))
    renamed = gv.Remapped(rimmed, inward)
    lat, lng = MAP.plane.to_latlng(np.array([MAP.corner_km]) + 0.49)
    frame = {"lat": np.repeat(lat, 500), "lng": np.repeat(lng, 500)}
    drawn = gv.obfuscate(frame, rimmed, randomness=gv.seeded(4))["cell"]
    assert np.array_equal(
        gv.obfuscate(frame, renamed, randomness=gv.seeded(4))["cell"], inward[drawn]
    )


def test_mechanisms_made_of_those_between_positions_are_never_drawn_from_cells(
    plain: gv.PositionalElastic,
) -> None:
    frame = {"lat": [48.855], "lng": [2.31]}
    average = AverageChannel([plain, plain], [0.5, 0.5])
    stacked, joint = gv.StackedChannel([plain, plain]), JointChannel([plain, plain])
    for made in (average, stacked, joint, gv.Remapped(average, np.arange(MAP.size))):
        assert made.told_apart is None
        with pytest.raises(Unsupported):
            gv.obfuscate(frame, made)
        with pytest.raises(Unsupported, match="sample_at"):
            gv.ExactTable(made)
        with pytest.raises(InvalidInput, match="sample_at"):
            gv.Budget(limit_per_km=9.0).report(made, 0)
    for made in (average, stacked):  # nobody loses more by it
        assert made.explain(0.2) == plain.explain(0.2)
    (said,) = read(joint.explain(0.2))
    assert said.level >= 2 * (PROMISE * 0.2 + plain.slack)
    cells = gv.PlanarGeometric(MAP, epsilon_per_km=2.0)
    assert gv.StackedChannel([plain, cells]).told_apart == MAP


def test_places_outside_are_left_out_or_moved_onto_the_map(plain: gv.PositionalElastic) -> None:
    beyond = {"lat": [48.856, 48.95, -48.856, 48.856], "lng": [2.31, 2.31, -177.69, -177.69]}
    with pytest.warns(
        UserWarning, match=r"3 of 4 places \(75 %\) lie outside the map and were left"
    ):
        assert len(gv.obfuscate(beyond, plain)["cell"]) == 1
    with pytest.raises(OutsideSpace, match="number 2"):
        gv.obfuscate(beyond, plain, outside="raise")
    drawn = gv.obfuscate(beyond, plain, outside="clamp", randomness=gv.seeded(2))
    again = plain.sample_at(lat=beyond["lat"], lng=beyond["lng"], randomness=gv.seeded(2))
    assert np.array_equal(drawn["cell"], again)


@pytest.mark.parametrize("who", ["cap", "sample", "memoise"])
def test_persons_are_limited_as_with_any_mechanism(who: Any, plain: gv.PositionalElastic) -> None:
    frame = {"who": ["a", "a", "a", "b"], "lat": [48.855, 48.855, 48.8551, 48.86],
             "lng": [2.31, 2.31, 2.31, 2.32]}  # fmt: skip
    noisy = gv.obfuscate(frame, plain, person="who", per_person=1, limit_by=who, keep=["who"])
    # the same place again is the same report; the third is another place, and one too many
    assert noisy["who"].tolist() == (["a", "a", "b"] if who == "memoise" else ["a", "b"])
    assert who != "memoise" or noisy["cell"][0] == noisy["cell"][1]


# -- the rim in files ------------------------------------------------------------------------------


def test_nobody_gives_no_reports(plain: gv.PositionalElastic) -> None:
    nobody = {"who": [], "lat": [], "lng": []}
    for limit in ({}, {"person": "who", "per_person": 1}):
        noisy = gv.obfuscate(nobody, plain, **limit)
        assert [len(noisy[name]) for name in ("cell", "lat", "lng")] == [0, 0, 0]
        assert noisy["cell"].dtype == np.int64


def test_every_report_is_found_again_at_its_own_place(rimmed: gv.PositionalElastic) -> None:
    places = ReportPlaces(rimmed)
    lat, lng = places.latlng
    found, inside = places.nearest_cells(lat=lat, lng=lng)
    assert np.array_equal(found, np.arange(rimmed.report_count))
    assert inside.all()
    assert not MAP.inside(lat=lat[MAP.size :], lng=lng[MAP.size :]).any()
    far, inside = places.nearest_cells(lat=np.array([89.0, -48.0]), lng=np.array([2.31, -177.0]))
    assert not inside.any()
    assert (far >= MAP.size).all()


def test_a_rim_across_the_end_of_the_longitudes_and_beside_a_pole() -> None:
    for box in ((-17.8, 179.99, -17.78, -179.99), (89.93, 10.0, 89.949, 40.0)):
        south, west, north, east = box
        grid = gv.Grid.from_box(south=south, west=west, north=north, east=east, cell_km=1.0)
        mechanism = gv.elastic(grid, epsilon_per_km=1.0, camouflage=0.0, between="positions")
        lat, lng = ReportPlaces(mechanism).latlng
        found, _ = ReportPlaces(mechanism).nearest_cells(lat=lat, lng=lng)
        assert np.array_equal(found, np.arange(mechanism.report_count))
        drawn = gv.obfuscate({"lat": [south, north, 90.0], "lng": [west, east, 180.0]}, mechanism,
                             outside="clamp")  # fmt: skip
        assert (drawn["cell"] < mechanism.report_count).all()


def test_reports_that_are_no_places_are_refused() -> None:
    with pytest.raises(Unsupported, match="are not cells"):
        gv.obfuscate({"lat": [48.85], "lng": [2.31]}, gv.Rappor(MAP, epsilon=1.0))


def geoveil(*arguments: object) -> str:
    result = CliRunner().invoke(program, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, rimmed: gv.PositionalElastic) -> Path:
    """People spread about the map and somewhat around it, and the two mechanisms."""
    folder = tmp_path_factory.mktemp("positions")
    generator = np.random.default_rng(7)
    size = np.array([MAP.width_km, MAP.height_km])
    xy = np.array(MAP.corner_km) + generator.uniform(-0.1, 1.1, (3000, 2)) * size
    lat, lng = MAP.plane.to_latlng(xy)
    rows = [f"u{k % 900},{a:.7f},{b:.7f}" for k, (a, b) in enumerate(zip(lat, lng, strict=True))]
    (folder / "people.csv").write_text("\n".join(["who,lat,lng", *rows]) + "\n")
    gv.save_mechanism(rimmed, folder / "rimmed.json")
    gv.save_mechanism(positional(0.5), folder / "plain.json")
    return folder


@pytest.mark.parametrize("ending", ["csv", "parquet", "geojson"])
def test_rim_reports_are_written_read_back_and_estimated(
    ending: str, folder: Path, tmp_path: Path
) -> None:
    noisy, result = tmp_path / f"noisy.{ending}", tmp_path / f"estimate.{ending}"
    asked = ("--mechanism", folder / "rimmed.json", "--outside", "clamp", "--seed", 3)
    told = geoveil("obfuscate", folder / "people.csv", "-o", noisy, *asked)
    assert "lie outside the map and were moved onto the map" in " ".join(told.split())
    mechanism = gv.load_mechanism(folder / "rimmed.json")
    assert isinstance(mechanism, gv.PositionalElastic)
    tallies = []
    for reading in (Reading(), Reading(lat="lat", lng="lng")):
        if ending == "geojson" and reading.lat:
            continue  # the points of GeoJSON are its coordinates
        with reading.open(str(noisy)) as reader:
            tally, outside = count_reports(reader, mechanism, reading)
        assert outside.outside == 0
        tallies.append(tally.counts)
    assert all(np.array_equal(each, tallies[0]) for each in tallies)
    beside = int(tallies[0][MAP.size :].sum())
    assert beside > 100
    shown = " ".join(geoveil("estimate", noisy, "-o", result).split())
    assert f"{beside:,} of 3,000 reports" in shown
    values = json.loads(geoveil("estimate", noisy, "-o", result, "--json"))
    assert values["reports_beside_the_map"] == beside
    back = read_result(str(result))
    assert back.space == MAP
    assert back.description is not None
    assert back.description["reports_beside_the_map"] == beside
    assert back.reports is not None
    assert np.array_equal(back.reports, tallies[0][: MAP.size])
    assert back.share.size == MAP.size


def test_a_tally_of_positions_is_that_of_its_reports(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "tally.json"
    asked = ("--mechanism", folder / "rimmed.json", "--outside", "clamp", "--seed", 5)
    told = geoveil("tally", folder / "people.csv", "-o", target, *asked)
    tally = gv.load_tally(str(target))
    assert tally.total == 3000
    named = tally.counts[: MAP.size]
    assert (
        f"{(named > 0).sum()} of {MAP.size} cells were reported, and "
        f"{tally.total - named.sum():,} reports name a place beside the map"
    ) in " ".join(told.split())
    again = tmp_path / "again.json"
    geoveil("tally", folder / "people.csv", "-o", again, *asked, "--processes", 2)
    assert again.read_bytes() == target.read_bytes()
    estimate = json.loads(geoveil("estimate", target, "-o", tmp_path / "e.csv", "--json"))
    assert estimate["reports_beside_the_map"] == tally.total - named.sum()


def test_a_report_of_another_mechanism_is_named_by_its_row(
    folder: Path, tmp_path: Path, rimmed: gv.PositionalElastic
) -> None:
    path = tmp_path / "reports.csv"
    path.write_text(f"cell\n3\n{MAP.size}\n{rimmed.report_count}\n")
    reading = Reading()
    with reading.open(str(path)) as reader, pytest.raises(InvalidFile) as refused:
        count_reports(reader, rimmed, reading)
    assert str(refused.value).startswith("row 3 of ")
    assert f"must name a cell in 0 … {rimmed.report_count - 1}, of which {MAP.size}" in str(
        refused.value
    )


# -- what is printed -------------------------------------------------------------------------------


@pytest.mark.parametrize("outside", ["drop", "clamp"])
@pytest.mark.parametrize("command", ["obfuscate", "tally"])
def test_what_is_said_is_about_positions_and_those_who_are_reported_on(
    command: str, outside: str, folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / ("out.csv" if command == "obfuscate" else "out.json")
    asked = (command, folder / "people.csv", "-o", target, "--mechanism", folder / "plain.json")
    asked = (*asked, "--outside", outside, "--person", "who", "--per-person", 2)
    text = " ".join(geoveil(*asked).split())
    values = json.loads(geoveil(*asked, "--json"))
    mechanism = gv.load_mechanism(folder / "plain.json")
    assert isinstance(mechanism, gv.PositionalElastic)
    slack = mechanism.slack
    for each in (text, values["explanation"]):
        (said,) = read(each)
        assert (said.who, said.in_cells, said.distance_km) == ("people", False, 0.2)
        assert said.level >= PROMISE * 0.2 + slack
        assert ("both on the map" in each) == (
            outside == "drop"
        )  # one of them may have been left out
    assert ("no promise covers" in text) == (outside == "drop")
    spent = gv.BetweenPositions(PROMISE, slack) * 2
    assert f"Every person has spent at most {spent.amount()}, in at most 2 reports." in text
    assert values["per_person"]["largest"]["epsilon_per_km"] == 2 * PROMISE
    assert values["per_person"]["largest"]["slack"] >= 2 * slack
    dropped = "lie outside the map and were left out"
    moved = "lie outside the map and were moved onto the map"
    assert (dropped if outside == "drop" else moved) in text


def test_exact_draws_are_what_a_mechanism_between_positions_has(
    folder: Path, tmp_path: Path
) -> None:
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    asked = ("--mechanism", folder / "plain.json", "--seed", 3)
    geoveil("obfuscate", folder / "people.csv", "-o", files[0], *asked)
    geoveil("obfuscate", folder / "people.csv", "-o", files[1], *asked, "--exact")
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_batch_without_a_place_on_the_map_gives_no_report(
    plain: gv.PositionalElastic, tmp_path: Path
) -> None:
    (tmp_path / "far.csv").write_text("lat,lng\n10,10\n")
    counted = PartCounter(plain, "drop", None)(FilePart(str(tmp_path / "far.csv"), Reading()))
    assert (int(counted.counts.sum()), counted.outside.dropped) == (0, 1)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            ("--mechanism", "elastic", "--beta-per-km", 1, "--between", "positions"),
            "--between cells",
        ),
        (
            ("--mechanism", "exponential", "--epsilon-per-km", 1, "--between", "cells"),
            "is for --mechanism elastic",
        ),
        (("--mechanism", "PLAIN", "--between", "cells"), "is for --mechanism elastic"),
        (("--mechanism", "elastic", "--epsilon-per-km", 1, "--between", "places"), "places"),
    ],
)
def test_a_promise_that_makes_no_sense_is_one_line(
    asked: tuple[object, ...], why: str, folder: Path, tmp_path: Path
) -> None:
    words = [str(folder / "plain.json") if word == "PLAIN" else str(word) for word in asked]
    command = ["obfuscate", str(folder / "people.csv"), "-o", str(tmp_path / "out.csv"), *words]
    result = CliRunner().invoke(program, command)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert why in result.stderr
    assert not (tmp_path / "out.csv").exists()
