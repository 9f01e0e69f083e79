"""``--trips`` and ``geoveil flows``: both ends reported, pairs counted, flows between districts written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

import geoveil as gv
from geoveil.cli.program import program
from geoveil.errors import InvalidFile
from geoveil.table.tallies import load_tally, load_trip_tally, save_tally
from geoveil.trips.pairs import TripTally

BOX = ["--box", "48.83,2.30,48.87,2.36", "--cell-km", "1"]
PROMISE = ["--mechanism", "elastic", "--epsilon-per-km", "4", "--between", "cells"]
HERE, THERE, OUTSIDE = (48.8412345, 2.3123456), (48.8612345, 2.3423456), (49.5, 2.33)


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(program, list(map(str, arguments)))


def write(path: Path, header: str, rows: list[Any]) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    """Sixty people: two of three go from here to there, the others stay."""
    rows = [(f"user{k}", *HERE, *(THERE if k % 3 else HERE)) for k in range(60)]
    return write(tmp_path / "trips.csv", "user,lat,lng,to_lat,to_lng", rows)


def noisy(trips: Path, *more: Any, ending: str = "csv") -> Path:
    target = trips.with_name(f"noisy.{ending}")
    result = run("obfuscate", trips, "--trips", "-o", target, *PROMISE, *BOX, *more)
    assert result.exit_code == 0, result.stderr
    return target


# --- Reports


def test_both_ends_are_reported_and_nothing_else_of_the_row(trips: Path) -> None:
    target = noisy(trips)
    rows = read(target)
    assert list(rows[0]) == ["cell", "lat", "lng", "to_cell", "to_lat", "to_lng", "geoveil"]
    assert len(rows) == 60
    text = target.read_text()
    assert "user" not in text
    for place in (*HERE, *THERE):
        assert str(place) not in text


def test_the_reports_of_both_ends_follow_the_law_of_their_own_place(trips: Path) -> None:
    rows = [(*HERE, *THERE)] * 4_000
    many = write(trips.with_name("many.csv"), "lat,lng,to_lat,to_lng", rows)
    target = many.with_name("many.json")
    arguments = ("tally", many, "--trips", "-o", target, *PROMISE, *BOX, "--seed", 5)
    assert run(*arguments).exit_code == 0
    tally = load_trip_tally(str(target))
    grid: Any = tally.channel.space
    begun, ended = grid.locate(lat=[HERE[0], THERE[0]], lng=[HERE[1], THERE[1]])
    law = np.outer(tally.channel.row(begun), tally.channel.row(ended))
    seen = np.zeros_like(law)
    seen[tally.pairs[:, 0], tally.pairs[:, 1]] = tally.counts / 4_000
    spread = np.sqrt(law * (1 - law) / 4_000)
    assert (np.abs(seen - law) <= 6 * spread + 2e-3).all()
    assert np.abs(seen - law.T).max() > 0.1  # there and back are told apart


def test_a_trip_costs_twice_and_the_summary_says_so(trips: Path) -> None:
    more = ["--person", "user", "--per-person", "1"]
    target = trips.with_name("noisy.csv")
    result = run("obfuscate", trips, "--trips", "-o", target, *PROMISE, *BOX, *more)
    said = " ".join(result.stdout.split())
    assert "so a trip costs twice" in said
    assert "Two people whose trips begin 200 m apart and end 200 m apart" in said
    assert "in one trip." in said
    assert "typically with one trip (ε = 8 per km" in said
    alone = run("obfuscate", trips, "--trips", "-o", target, *PROMISE, *BOX).stdout
    assert "Each trip spends ε = 8 per km; the trips of one person" in " ".join(alone.split())
    spent = gv.elastic(
        gv.Grid.from_box(south=48.83, west=2.30, north=48.87, east=2.36, cell_km=1.0),
        epsilon_per_km=4.0,
        between="cells",
    ).guarantee
    assert spent is not None
    machine = run("obfuscate", trips, "--trips", "-o", target, *PROMISE, *BOX, *more, "--json")
    told = json.loads(machine.stdout)
    assert told["per_person"]["largest"]["spent"] == (spent * 2).amount()
    assert told["trips_written"] == 60


def test_one_trip_a_person_is_kept_and_others_are_not(tmp_path: Path) -> None:
    rows = [(f"user{k % 7}", *HERE, *THERE) for k in range(70)]
    trips = write(tmp_path / "trips.csv", "user,lat,lng,to_lat,to_lng", rows)
    target = noisy(trips, "--person", "user", "--per-person", 1)
    assert len(read(target)) == 7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--zone-name", "n"], "--zone-name must come with --zones"),
        (["--zones", "d.geojson", "--block", 2], "--block must not go with --zones"),
        (["--no-intervals", "--replicates", 5], "--replicates must not go with --no-intervals"),
    ],
)
def test_what_would_do_nothing_to_flows_is_refused(given: list[Any], said: str) -> None:
    assert said in run("flows", "noisy.csv", "-o", "flows.csv", *given).stderr


def test_a_map_of_trips_says_that_it_is_of_where_they_begin(trips: Path) -> None:
    result = run("estimate", noisy(trips), "-o", trips.with_name("e.csv"), "--uncertainty", "none")
    assert result.exit_code == 0
    assert "this is where they begin; geoveil flows reads both ends" in result.stderr


@pytest.mark.parametrize("ending", ["csv", "parquet", "geojson"])
def test_every_format_of_reports_leads_to_the_same_flows(trips: Path, ending: str) -> None:
    source = noisy(trips, "--seed", 3, ending=ending)
    target = trips.with_name(f"flows-{ending}.csv")
    result = run("flows", source, "-o", target, "--block", 2, "--no-intervals")
    assert result.exit_code == 0, result.stderr
    shares = [float(row["share"]) for row in read(target)]
    again = noisy(trips, "--seed", 3)
    run("flows", again, "-o", trips.with_name("flows.csv"), "--block", 2, "--no-intervals")
    wanted = [float(row["share"]) for row in read(trips.with_name("flows.csv"))]
    assert shares == pytest.approx(wanted)
    assert sum(shares) == pytest.approx(1.0)


# --- Visits one after another


def visits(tmp_path: Path) -> Path:
    rows = [
        ("a", "2026-05-01T08:00Z", *HERE),
        ("b", "2026-05-01T08:10Z", *THERE),
        ("a", "2026-05-01T09:00Z", *THERE),
        ("a", "2026-05-03T09:00Z", *HERE),  # two days later: no trip
        ("b", "2026-05-01T10:10+02:00", *HERE),  # the same moment as its first
    ]
    return write(tmp_path / "visits.csv", "user,time,lat,lon", rows)


def test_consecutive_visits_of_a_person_are_trips(tmp_path: Path) -> None:
    source = visits(tmp_path)
    target = source.with_name("tally.json")
    arguments = ["tally", source, "--trips", "--consecutive-hours", "8", "-o", target]
    result = run(*arguments, *PROMISE, *BOX, "--person", "user", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["rows_read"], told["trips_counted"]) == (5, 2)
    assert told["per_person"]["persons"] == 2
    alone = run(*arguments, *PROMISE, *BOX)
    assert alone.exit_code == 2
    assert "--consecutive-hours must come with --person" in alone.stderr


def test_visits_without_trips_or_times_are_refused(tmp_path: Path) -> None:
    rows = [("a", "2026-05-01T08:00Z", *HERE), ("b", "2026-05-01", *HERE), ("c", "noon", *HERE)]
    source = write(tmp_path / "visits.csv", "user,time,lat,lon", rows)
    arguments = ["tally", source, "--trips", "--consecutive-hours", 8, "--person", "user"]
    arguments += ["-o", tmp_path / "tally.json", *PROMISE, *BOX]
    assert "row 2 of" in run(*arguments).stderr
    dropped = run(*arguments, "--bad-rows", "drop")
    assert "must have two visits of one person at most 8 h apart" in dropped.stderr


def test_milliseconds_are_no_seconds_and_one_number_changes_no_other_time(tmp_path: Path) -> None:
    begun = 1_777_622_400  # 2026-05-01T08:00Z
    rows = [("a", begun, *HERE), ("a", "2026-05-01T09:00Z", *THERE), ("a", begun + 9000, *HERE)]
    source = write(tmp_path / "visits.csv", "user,time,lat,lon", rows)
    arguments = ["tally", source, "--trips", "--consecutive-hours", 1, "--person", "user", "--json"]
    arguments += ["-o", tmp_path / "tally.json", *PROMISE, *BOX]
    assert json.loads(run(*arguments).stdout)["trips_counted"] == 1
    # Python takes the second for a day in 1612, and the third would be in August of 1970
    for number in (1000 * begun, 1_612_111_512_345, 20260501):
        write(source, "user,time,lat,lon", [("a", number + k, *HERE) for k in (0, 1)])
        refused = run(*arguments)
        assert refused.exit_code == 2
        assert "row 1 of" in refused.stderr
        assert "seconds, not milliseconds" in refused.stderr


# --- Bad input


def test_a_trip_with_one_end_outside_is_left_out_and_counted_or_kept(trips: Path) -> None:
    with trips.open("a") as file:
        file.write(f"late,{HERE[0]},{HERE[1]},{OUTSIDE[0]},{OUTSIDE[1]}\n")
    for rule, written in (("drop", 60), ("clamp", 61)):
        target = trips.with_name("noisy.csv")
        arguments = ["obfuscate", trips, "--trips", "-o", target, *PROMISE, *BOX]
        result = run(*arguments, "--outside", rule, "--json")
        told = json.loads(result.stdout)
        assert told["trips_written"] == written
        assert told["outside_dropped" if rule == "drop" else "outside_clamped"] == 1
        assert "1 of 61 trips (1.64 %) has an end outside the map" in result.stderr
    refused = run(*arguments, "--outside", "raise")
    assert "every trip must lie on the map; number 61 does not" in refused.stderr


@pytest.mark.parametrize("rule", ["drop", "clamp"])
def test_between_positions_trips_left_out_are_not_spoken_of(trips: Path, rule: str) -> None:
    target = trips.with_name("noisy.csv")
    arguments = ["obfuscate", trips, "--trips", "-o", target, "--epsilon-per-km", 2, *BOX]
    told = json.loads(run(*arguments, "--outside", rule, "--json").stdout)
    assert ("end 200 m apart, both trips on the map: " in told["explanation"]) == (rule == "drop")


def test_a_trip_with_only_one_end_known_is_named_or_dropped(trips: Path) -> None:
    with trips.open("a") as file:
        file.write(f"half,{HERE[0]},{HERE[1]},,\n")
    target = trips.with_name("noisy.csv")
    arguments = ["obfuscate", trips, "--trips", "-o", target, *PROMISE, *BOX]
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert "row 61 of" in refused.stderr
    assert "where its trip ended, not only where it began" in refused.stderr
    assert str(HERE[0]) not in refused.stderr
    dropped = json.loads(run(*arguments, "--bad-rows", "drop", "--json").stdout)
    assert (dropped["trips_written"], dropped["bad_rows_dropped"]) == (60, 1)


def test_a_table_without_ends_or_persons_is_refused_by_name(trips: Path) -> None:
    target = trips.with_name("noisy.csv")
    places = write(trips.with_name("places.csv"), "lat,lng", [HERE])
    arguments = ["--trips", "-o", target, *PROMISE, *BOX]
    refused = run("obfuscate", places, *arguments)
    assert "no column named as a latitude where a trip ended (to_lat" in refused.stderr
    assert "say which one it is with --to-lat: it has" in refused.stderr
    nobody = run("obfuscate", trips, *arguments, "--person", "who")
    assert "has no column named 'who'" in nobody.stderr
    kept = run("obfuscate", trips, *arguments, "--keep", "to_lat")
    assert "must not be the true coordinates" in kept.stderr
    alone = run("obfuscate", trips, "-o", target, *PROMISE, *BOX, "--to-lat", "to_lat")
    assert "must come with --trips" in alone.stderr
    points = ["--mechanism", "continuous-laplace", "--epsilon-per-km", "4"]
    refused = run("obfuscate", trips, "--trips", "-o", target, *points)
    assert "reports points, not cells" in refused.stderr


def test_columns_of_taxis_are_found_by_their_names(tmp_path: Path) -> None:
    header = "pickup_latitude,pickup_longitude,dropoff_latitude,dropoff_longitude"
    source = write(tmp_path / "taxis.csv", header, [(*HERE, *THERE)] * 3)
    assert len(read(noisy(source))) == 3


def test_half_a_million_pairs_each_seen_once_go_through_a_document(tmp_path: Path) -> None:
    channel = gv.RandomizedResponse(gv.Line(1_000), epsilon=3.0)
    tally = TripTally(channel, *np.divmod(np.arange(500_000), 1_000))
    save_tally(tally, tmp_path / "tally.json.gz")
    again = load_trip_tally(str(tmp_path / "tally.json.gz"))
    assert np.array_equal(again.pairs, tally.pairs)
    assert again.total == 500_000


def test_documents_of_the_other_kind_and_broken_ones_are_refused(tmp_path: Path) -> None:
    channel = gv.RandomizedResponse(gv.Line(3), epsilon=1.0)
    path = tmp_path / "tally.json"
    save_tally(TripTally(channel, [0], [1]), path)
    with pytest.raises(InvalidFile, match="geoveil flows"):
        load_tally(str(path))
    save_tally(gv.Tally(channel, [1, 0, 0]), path)
    with pytest.raises(InvalidFile, match="geoveil estimate"):
        load_trip_tally(str(path))
    save_tally(TripTally(channel, [0], [1]), path)
    values = json.loads(path.read_text())
    for wrong in ({"counts": [1.0]}, {"counts": [1, 2]}, {"origins": "0"}, {"trip_tally": 2},
                  {"counts": [2**64]}, {"origins": [7]}, {"counts": [-1]}):  # fmt: skip
        path.write_text(json.dumps({**values, **wrong}))
        with pytest.raises(InvalidFile):
            load_trip_tally(str(path))


# --- Flows


def test_flows_have_intervals_lines_and_a_picture(trips: Path) -> None:
    source = noisy(trips, "--seed", 4)
    picture, target = trips.with_name("flows.png"), trips.with_name("flows.geojson")
    more = ["--block", "2", "--replicates", "8", "--plot", picture]
    result = run("flows", source, "-o", target, *more)
    assert result.exit_code == 0, result.stderr
    assert picture.read_bytes()[:4] == b"\x89PNG"
    collection = json.loads(target.read_text())
    features = collection["features"]
    kinds = {feature["geometry"]["type"] for feature in features}
    assert kinds == {"Point", "LineString"}
    for feature in features:
        told = feature["properties"]
        stays = told["from"] == told["to"]
        assert stays == (feature["geometry"]["type"] == "Point")
        assert 0 <= told["low"] <= told["high"] <= 1
    largest = max(features, key=lambda feature: feature["properties"]["share"])
    assert largest["properties"]["from"] != largest["properties"]["to"]  # two of three move
    begun, ended = largest["geometry"]["coordinates"]
    assert ended[1] > begun[1]  # northwards, as they go
    about = collection["geoveil"]
    assert about["trips"] == 60
    assert about["interval_level"] == 0.95
    assert about["stay_interval"][0] <= about["stay_share"] + 0.2


def test_fakes_among_trips_are_looked_for_where_asked(trips: Path) -> None:
    source, target = noisy(trips, "--seed", 4), trips.with_name("flows.csv")
    asked = ["flows", source, "-o", target, "--no-intervals", "--alarm"]
    honest = run(*asked)
    assert "No alarm" in honest.stdout
    assert "No pair of reports comes more often" in honest.stdout
    header, *rows = source.read_text().splitlines()
    ends = [header.split(",").index(name) for name in ("cell", "to_cell")]
    fake = ["0" if place in ends else "" for place in range(header.count(",") + 1)]
    source.write_text("\n".join([header, *rows, *[",".join(fake)] * 600]) + "\n")
    told = run(*asked)
    assert "warning: Alarm: more often than any flows explain" in told.stderr
    assert "reports of 0 → 0" in told.stderr
    assert "Alarm" not in told.stdout  # said once
    assert '""pairs"":[[0,0]' in target.read_text()


def test_flows_as_geoparquet_and_as_csv_say_the_same(trips: Path) -> None:
    source = noisy(trips, "--seed", 4)
    tables = {}
    for ending in ("csv", "parquet"):
        target = trips.with_name(f"flows.{ending}")
        result = run("flows", source, "-o", target, "--block", 2, "--replicates", 4)
        assert result.exit_code == 0, result.stderr
        assert "Intervals of pairs: parametric bootstrap" in result.stdout
        tables[ending] = target
    rows = read(tables["csv"])
    columns = parquet.read_table(tables["parquet"])
    assert [float(row["share"]) for row in rows] == pytest.approx(columns["share"].to_pylist())
    assert [row["to"] for row in rows] == columns["to"].to_pylist()
    assert b"LineString" in columns.schema.metadata[b"geo"]
    first = columns["geometry"].to_pylist()
    assert first[0][1] == 1  # a point: within one district
    assert first[1][1] == 2  # a line


def test_tallies_of_one_mechanism_add_and_others_are_not_pooled(trips: Path) -> None:
    parts = []
    for name, epsilon in (("one", 4), ("two", 4), ("three", 2)):
        parts.append(trips.with_name(f"{name}.json"))
        promise = ["--mechanism", "elastic", "--epsilon-per-km", epsilon, "--between", "cells"]
        assert run("tally", trips, "--trips", "-o", parts[-1], *promise, *BOX).exit_code == 0
    target = trips.with_name("flows.csv")
    both = run("flows", *parts[:2], "-o", target, "--no-intervals", "--json")
    assert json.loads(both.stdout)["trips"] == 120
    refused = run("flows", *parts, "-o", target, "--no-intervals")
    assert "flows of different mechanisms are not pooled" in refused.stderr


def test_flows_refuse_what_is_no_file_of_trips(trips: Path) -> None:
    target = trips.with_name("out.csv")
    places = trips.with_name("places.csv")
    assert run("obfuscate", trips, "-o", places, *PROMISE, *BOX).exit_code == 0
    refused = run("flows", places, "-o", target)
    assert "must have the columns cell and to_cell" in refused.stderr
    assert run("flows", noisy(trips), "-o", target, "--no-intervals").exit_code == 0
    again = run("flows", target, "-o", trips.with_name("again.csv"))
    assert "it is an estimate already" in again.stderr
    asked = ["design", "--prior", target, "--epsilon-per-km", 1, "-o", trips.with_name("new.json")]
    assert "must hold shares of cells; it holds flows of trips" in run(*asked).stderr
    bare = run("flows", trips, "-o", trips.with_name("again.csv"))
    assert "does not say which mechanism made its reports" in bare.stderr


# --- Simulation


def test_simulated_trips_are_compared_with_the_truth(tmp_path: Path) -> None:
    picture = tmp_path / "flows.png"
    arguments = [
        "simulate",
        "--trips",
        "--epsilon-per-km",
        "4",
        "--cell-km",
        "2",
        "--between",
        "cells",
    ]
    result = run(*arguments, "--people", "4000", "--camouflage", "0", "--json", "--plot", picture)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    raw, product, flows = told["common_part"].values()
    assert flows[1] > max(raw[1], product[1]) - 0.02
    low, high = told["stay_interval"]
    assert low <= told["true_stay_share"] <= high
    assert picture.exists()
    shown = run(*arguments, "--people", "100", "--cell-km", "4")
    assert "in one trip" in shown.stdout


def test_simulated_trips_of_a_file_are_its_own(trips: Path) -> None:
    arguments = ["simulate", trips, "--trips", "--epsilon-per-km", "6", "--between", "cells", *BOX]
    told = json.loads(run(*arguments, "--json", "--person", "user").stdout)
    assert told["trips"] == 60
    assert told["true_stay_share"] == pytest.approx(1 / 3)
    assert told["per_person"]["persons"] == 60


@pytest.mark.parametrize(
    "more", [["--rounds", "3"], ["--promises", "1,2"], ["--guarded"], ["--map", "m.png"]]
)
def test_options_of_campaigns_are_refused_with_trips(more: list[str]) -> None:
    refused = run("simulate", "--trips", "--epsilon-per-km", "2", *more)
    assert f"{more[0]} must not go with --trips" in refused.stderr


def test_flows_between_the_districts_of_a_file_in_a_city_with_limits(trips: Path) -> None:
    def part(west: float, east: float, name: str) -> dict[str, Any]:
        ring = [[west, 48.80], [east, 48.80], [east, 48.90], [west, 48.90], [west, 48.80]]
        polygon = {"type": "Polygon", "coordinates": [ring]}
        return {"type": "Feature", "properties": {"name": name}, "geometry": polygon}

    zones, limits = trips.with_name("zones.geojson"), trips.with_name("limits.geojson")
    features = [part(2.25, 2.33, "west"), part(2.33, 2.40, "east")]
    zones.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    limits.write_text(json.dumps(part(2.30, 2.36, "city")["geometry"]))
    source, target = trips.with_name("noisy.csv"), trips.with_name("flows.csv")
    more = ["--mechanism", "elastic", "--epsilon-per-km", "2", "--within", limits, "--cell-km", "1"]
    made = run("obfuscate", trips, "--trips", "-o", source, *more, "--seed", 1)
    assert made.exit_code == 0, made.stderr
    result = run("flows", source, "-o", target, "--zones", zones, "--no-intervals")
    assert result.exit_code == 0, result.stderr
    rows = read(target)
    assert len(rows) == 4
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1.0, abs=0.01)
    picture = trips.with_name("flows.png")
    blocks = run("flows", source, "-o", target, "--block", 3, "--no-intervals", "--plot", picture)
    assert blocks.exit_code == 0, blocks.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
