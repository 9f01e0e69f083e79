"""From places to reports: extents, reporters, and frames in memory."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.cli.estimate_inputs import mechanism_of
from geoveil.errors import InvalidFile, InvalidInput, OutsideSpace, Unsupported
from geoveil.mechanism import ContinuousLaplace, PlanarGeometric, RandomizedResponse, Rappor
from geoveil.randomness import seeded
from geoveil.space import Grid, Line
from geoveil.table.columns import entries
from geoveil.table.locations import Extent, Reading, TripEnd
from geoveil.table.obfuscation import Reporter, obfuscate
from geoveil.table.reader import TableReader
from geoveil.table.reports import SlotColumn, count_by_slot, count_reports, read_persons
from geoveil.table.trip_rows import count_trip_reports
from geoveil.table.writer import create_table

PARIS = Grid.from_box(south=48.82, west=2.28, north=48.88, east=2.40, cell_km=0.5)
TRUTHFUL = RandomizedResponse(PARIS, epsilon=700.0)  # as good as no noise
MECHANISM = PlanarGeometric(PARIS, epsilon_per_km=2.0)
LAT, LNG = np.array([48.83, 48.85, 48.87]), np.array([2.30, 2.35, 2.39])


# -- extents -------------------------------------------------------------------------------------

latitudes = st.floats(-80, 80)


@given(
    centre=st.tuples(latitudes, st.floats(-180, 180)),
    offsets=st.lists(st.tuples(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5)), min_size=1, max_size=8),
    cut=st.integers(0, 8),
)
def test_the_extent_holds_every_place_and_little_more(
    centre: tuple[float, float], offsets: list[tuple[float, float]], cut: int
) -> None:
    lat = np.array([centre[0] + a for a, _ in offsets])
    lng = np.array([(centre[1] + b + 180.0) % 360.0 - 180.0 for _, b in offsets])
    extent = Extent()
    extent.add(lat[:cut], lng[:cut])
    extent.add(lat[cut:], lng[cut:])
    box = extent.box()
    assert box.south <= lat.min() <= lat.max() <= box.north
    assert box.south > lat.min() - 0.0101
    assert box.north < lat.max() + 0.0201
    eastward = (lng - box.west + 1e-9) % 360.0
    assert (eastward <= box.width + 2e-9).all()
    assert box.width <= eastward.max() - eastward.min() + 0.0201


def test_the_extent_is_in_whole_hundredths() -> None:
    extent = Extent()
    extent.add(np.array([48.8286, 48.8798]), np.array([2.2855, 2.3909]))
    assert [round(edge, 9) for edge in extent.box()] == [48.82, 2.28, 48.88, 2.4]


def test_no_places_have_no_extent() -> None:
    with pytest.raises(InvalidFile, match="usable location"):
        Extent().box()


# -- reporters -----------------------------------------------------------------------------------


def report(reporter: Reporter, lat: Any, lng: Any) -> tuple[dict[str, Any], list[int]]:
    """The columns of the reports, and the numbers of the places they answer."""
    places, taken = reporter.place(lat, lng)
    return reporter.columns(reporter.draw(places[taken])), np.flatnonzero(taken).tolist()


def test_cells_come_with_their_centres() -> None:
    columns, rows = report(Reporter(TRUTHFUL), LAT, LNG)
    cells = PARIS.locate(lat=LAT, lng=LNG)
    lat, lng = PARIS.centres_latlng()
    assert columns["cell"].tolist() == cells.tolist()
    assert np.abs(columns["lat"] - lat[cells]).max() < 1e-7
    assert np.abs(columns["lng"] - lng[cells]).max() < 1e-7
    assert rows == [0, 1, 2]


def test_places_outside_are_dropped_clamped_or_refused_by_number() -> None:
    lat, lng = np.array([48.85, 10.0, 48.86]), np.array([2.35, 2.35, 2.35])
    clamping = Reporter(TRUTHFUL, outside="clamp")
    assert len(report(clamping, lat, lng)[0]["cell"]) == 3
    dropping = Reporter(TRUTHFUL)
    columns, rows = report(dropping, lat, lng)
    assert rows == [0, 2]
    assert len(columns["cell"]) == 2
    assert dropping.outside.dropped == 1
    refusing = Reporter(TRUTHFUL, outside="raise")
    report(refusing, LAT, LNG)
    with pytest.raises(OutsideSpace, match="number 5 does not"):
        report(refusing, lat, lng)


def test_clamped_places_are_counted() -> None:
    reporter = Reporter(TRUTHFUL, outside="clamp")
    for _ in range(2):
        report(reporter, np.array([48.85, 0.0, 2.35]), np.array([2.35, 2.35, 48.85]))
    assert (reporter.outside.clamped, reporter.outside.dropped) == (4, 0)
    assert reporter.outside.sentence().startswith("4 of 6 places (66.7 %) lie outside the map")


def test_continuous_noise_has_points_and_no_cells() -> None:
    reporter = Reporter(ContinuousLaplace(epsilon_per_km=100.0), randomness=seeded(1))
    columns, _ = report(reporter, LAT, LNG)
    assert list(columns) == ["lat", "lng"] == reporter.column_names
    assert 0 < np.abs(columns["lat"] - LAT).max() < 0.01


def test_mechanisms_without_a_map_are_refused() -> None:
    with pytest.raises(Unsupported, match="no map"):
        Reporter(RandomizedResponse(Line(4), epsilon=1.0))
    with pytest.raises(Unsupported, match=r"not cells|no map"):
        Reporter(Rappor(PARIS, epsilon=1.0))
    with pytest.raises(InvalidInput, match="must be a mechanism"):
        Reporter("planar-geometric")  # type: ignore[arg-type]


# -- frames --------------------------------------------------------------------------------------


def test_a_dictionary_gives_a_dictionary() -> None:
    noisy = obfuscate({"lat": LAT, "lon": LNG, "who": ["a", "b", "c"]}, TRUTHFUL, keep=["who"])
    assert list(noisy) == ["cell", "lat", "lng", "who"]
    assert noisy["cell"].tolist() == PARIS.locate(lat=LAT, lng=LNG).tolist()
    assert noisy["who"].tolist() == ["a", "b", "c"]


def test_a_pyarrow_table_gives_a_pyarrow_table() -> None:
    table = pa.table({"y": LAT, "x": LNG, "who": ["a", "b", "c"]})
    noisy = obfuscate(table, TRUTHFUL, keep=["who"])
    assert noisy.column_names == ["cell", "lat", "lng", "who"]
    assert noisy["cell"].to_pylist() == PARIS.locate(lat=LAT, lng=LNG).tolist()


@pytest.mark.filterwarnings("ignore:.*lies? outside the map")
def test_dropped_places_take_their_kept_values_with_them() -> None:
    far = {"lat": [48.85, 0.0], "lng": [2.35, 0.0], "who": ["near", "far"]}
    assert obfuscate(far, TRUTHFUL, keep=["who"], outside="drop")["who"].tolist() == ["near"]
    table = pa.table(far)
    assert obfuscate(table, TRUTHFUL, keep=["who"], outside="drop")["who"].to_pylist() == ["near"]


def test_seeded_reports_repeat_and_others_do_not() -> None:
    many = {"lat": np.full(200, 48.85), "lng": np.full(200, 2.35)}
    first, second = (obfuscate(many, MECHANISM, randomness=seeded(5))["cell"] for _ in range(2))
    assert first.tolist() == second.tolist()
    assert obfuscate(many, MECHANISM)["cell"].tolist() != first.tolist()


def test_reports_follow_the_law_of_the_mechanism() -> None:
    many = {"lat": np.full(100_000, 48.85), "lng": np.full(100_000, 2.35)}
    counts = Counter(obfuscate(many, MECHANISM, randomness=seeded(11))["cell"].tolist())
    row = MECHANISM.row(PARIS.locate(lat=48.85, lng=2.35))
    spread = np.sqrt(row * (1 - row) / 100_000)
    seen = np.array([counts[cell] / 100_000 for cell in range(PARIS.size)])
    assert (np.abs(seen - row) <= 7 * spread + 20 / 100_000).all()
    assert not (np.abs(seen - np.roll(row, 1)) <= 7 * spread + 20 / 100_000).all()


@pytest.mark.parametrize("keep", [["lat"], ["lon"], ["cell"]])
def test_coordinates_and_cells_cannot_be_kept(keep: list[str]) -> None:
    with pytest.raises(InvalidInput, match="must not be coordinates"):
        obfuscate({"lat": LAT, "lon": LNG, "cell": [1, 2, 3]}, MECHANISM, keep=keep)


def test_geometry_of_a_pyarrow_table_cannot_be_kept() -> None:
    arrow = pa.field("geom", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb"})
    schema = pa.schema([("lat", pa.float64()), ("lon", pa.float64()), arrow])
    table = pa.table([LAT, LNG, [b"", b"", b""]], schema=schema)
    with pytest.raises(InvalidInput, match="geom"):
        obfuscate(table, MECHANISM, keep=["geom"])


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ([1, 2], r"builtins\.list\) must be a DataFrame of pandas"),
        (pa.RecordBatch.from_pydict({"lat": LAT}), r"pyarrow\.table\(frame\) makes one"),
        (pa.chunked_array([LAT]), "pyarrow Table, or a dict"),
        ({"lat": LAT, "y": LAT, "lng": LNG}, "say which one it is with lat=: "),
        ({"lat": np.ma.array(LAT, mask=[0, 1, 0]), "lng": LNG}, "finite; the entry at position 1"),
        ({"lat": np.ones(3) + 1j, "lng": LNG}, "must hold numbers only"),
        ({"lat": LAT}, "no column named as a longitude"),
        ({"lat": LAT, "lng": LNG, "x": LNG}, "more than one column named as a longitude"),
        ({"latitude": LAT, "lng": LNG, "y": LAT}, "more than one column named as a latitude"),
        ({"lat": LAT, "lng": ["a", "b", "c"]}, "must hold numbers"),
        ({"lat": LAT, "lng": LNG[:2]}, "same length"),
        ({"lat": [[1.0]], "lng": [[2.0]]}, "one-dimensional"),
        ({"lat": [48.8512345, np.nan], "lng": [2.3, 2.3]}, "position 1|finite"),
    ],
)
def test_frames_that_cannot_be_read(frame: Any, problem: str) -> None:
    with pytest.raises((InvalidInput, Unsupported), match=problem) as caught:
        obfuscate(frame, MECHANISM)
    assert "48.85" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "asked", "problem"),
    [
        ([7], {"keep": ["more"]}, "'more' must hold one entry for each of the 3 rows"),
        ([7, 8, 9, 10], {"keep": ["more"]}, "'more' must hold one entry for each of the 3 rows"),
        (
            [[7], [], [8, 9]],
            {"keep": ["more"]},
            "'more' must hold one entry for each of the 3 rows",
        ),
        ([7], {"person": "more"}, "'more' must hold one entry for each of the 3 rows"),
        (
            pa.array([[7], [8], [9]]),
            {"person": "more"},
            "position 0 of column 'more' must say whom",
        ),
        (LAT, {"keep": "more"}, r"keep \('more'\) must be a list"),
    ],
)
def test_other_columns_that_cannot_be_read(more: Any, asked: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        obfuscate({"lat": LAT, "lng": LNG, "more": more}, MECHANISM, **asked)


def test_frames_of_names_that_are_no_text_and_without_geometry() -> None:
    geopandas = pytest.importorskip("geopandas")
    with pytest.raises(InvalidInput, match="columns of frame must have names that are text"):
        obfuscate({0: LAT, 1: LNG}, MECHANISM, lat="0", lng="1")
    assert len(obfuscate(geopandas.GeoDataFrame({"lat": LAT, "lng": LNG}), MECHANISM)) == 3


def test_what_is_slow_to_import_is_not_imported_for_others(tmp_path: Path) -> None:
    (tmp_path / "places.csv").write_text("who,lat,lng\na,1,2\n\n")
    code = (
        "import sys; from geoveil.table.obfuscation import obfuscate;"
        "from geoveil.mechanism import ContinuousLaplace, PlanarGeometric;"
        "from geoveil.space import Grid;"
        "grid = Grid.from_box(south=0.99, west=1.99, north=1.01, east=2.01, cell_km=0.5);"
        "made = [ContinuousLaplace(epsilon_per_km=1.0), PlanarGeometric(grid, epsilon_per_km=1.0)];"
        "[obfuscate({'lat': [1.0], 'lng': [2.0]}, each) for each in made];"
        "slow = {'pandas', 'geopandas', 'pyarrow', 'scipy.fft', 'scipy.ndimage', 'scipy.special'};"
        "assert not slow & set(sys.modules), slow & set(sys.modules);"
        "from geoveil.table.locations import Reading; from geoveil.table import obfuscation, writer;"
        "[obfuscation.obfuscate_table("
        "    Reading().locations(Reading().open(source), keep=['who']), obfuscation.Reporter(made[1]),"
        "    lambda schema: writer.create_table(target, schema, document={}))"
        " for source, target in (('places.csv', 'noisy.csv'), ('places.csv', 'noisy.parquet'),"
        "                        ('places.csv', 'noisy.geojson'), ('noisy.geojson', 'again.csv'))];"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=tmp_path)
    assert (tmp_path / "again.csv").read_text().startswith("cell,lat,lng,who,geoveil\n")


def test_times_are_read_without_pandas_and_in_zones_that_are_known(tmp_path: Path) -> None:
    fine = pa.array([1_001], pa.timestamp("ns"))
    assert [type(entry) for entry in entries(fine, "visits")[0]] == [datetime, type(None)]
    far = pa.array([0], pa.timestamp("us", "Mars/Olympus"))
    unknown = "time zone that this machine knows, not Mars/Olympus; write them in UTC"
    with pytest.raises(InvalidFile, match=f"the times of visits must be in a {unknown}"):
        entries(far, "visits")
    for unit in ("s", "ms", "us"):  # milliseconds, say, that are stored as seconds
        with pytest.raises(InvalidFile, match="times of visits must lie in the years 1 to 9999"):
            entries(pa.array([10**18], pa.timestamp(unit)), "visits")
    batch = pa.RecordBatch.from_pydict({"lat": [1.0], "lng": [2.0], "at": far})
    for name in ("noisy.csv", "noisy.geojson"):
        with (
            pytest.raises(InvalidFile, match=unknown),
            create_table(str(tmp_path / name), batch.schema) as table,
        ):
            table.write(batch)
    assert not list(tmp_path.iterdir())


needs_pandas = pytest.mark.skipif(
    importlib.util.find_spec("pandas") is None, reason="pandas is not installed"
)
needs_geopandas = pytest.mark.skipif(
    importlib.util.find_spec("geopandas") is None, reason="geopandas is not installed"
)


@needs_pandas
def test_a_data_frame_gives_a_data_frame_without_its_index() -> None:
    import pandas as pd

    frame = pd.DataFrame({"lat": LAT, "lon": LNG, "who": ["a", "b", "c"]}, index=["x", "y", "z"])
    noisy = obfuscate(frame, TRUTHFUL, lat="lat", lng="lon", keep=["who"])
    assert isinstance(noisy, pd.DataFrame)
    assert list(noisy.columns) == ["cell", "lat", "lng", "who"]
    assert list(noisy.index) == [0, 1, 2]
    assert noisy["cell"].tolist() == PARIS.locate(lat=LAT, lng=LNG).tolist()
    far = frame.assign(lat=[48.83, 0.0, 48.87])
    with pytest.warns(UserWarning, match=r"1 of 3 places \(33.3 %\) lies outside the map"):
        assert obfuscate(far, TRUTHFUL, keep=["who"])["who"].tolist() == ["a", "c"]
    assert len(obfuscate(far, TRUTHFUL, outside="clamp")) == 3


def test_a_frame_of_which_nothing_is_on_the_map_is_refused_and_the_reason_named() -> None:
    with pytest.raises(
        OutsideSpace, match="all 3 lie outside; latitude and longitude look swapped"
    ):
        obfuscate({"lat": LNG, "lon": LAT}, MECHANISM)
    with pytest.raises(InvalidInput, match="projected coordinates in metres"):
        obfuscate({"y": [6.25e6, 6.26e6], "x": [262e3, 263e3]}, MECHANISM)


def test_the_longitude_has_two_names() -> None:
    columns = {"a": LAT, "b": LNG}
    for named in ({"lng": "b"}, {"lon": "b"}):
        assert len(obfuscate(columns, MECHANISM, lat="a", **named)["cell"]) == 3
    with pytest.raises(InvalidInput, match="must be given once, as lng or as lon"):
        obfuscate(columns, MECHANISM, lat="a", lng="b", lon="b")


def test_at_most_so_many_reports_a_person() -> None:
    rows = {"lat": np.tile(LAT, 4), "lng": np.tile(LNG, 4), "who": list("aaaaaabbbbbc")}
    noisy = obfuscate(rows, MECHANISM, person="who", per_person=2, keep=["who"])
    assert sorted(noisy["who"].tolist()) == list("aabbc")
    assert "who" not in obfuscate(rows, MECHANISM, person="who", per_person=2)
    first = obfuscate(rows, TRUTHFUL, person="who", per_person=1, limit_by="cap")
    assert first["cell"].tolist() == PARIS.locate(lat=LAT[[0, 0, 2]], lng=LNG[[0, 0, 2]]).tolist()
    with pytest.raises(InvalidInput, match="must come with person"):
        obfuscate(rows, MECHANISM, per_person=1)
    with pytest.raises(InvalidInput, match="position 1 of column 'who' must say whom"):
        obfuscate(rows | {"who": ["a", None, *"aaaaaaaaaa"]}, MECHANISM, person="who")


def test_a_missing_person_of_pandas_is_named_by_its_row() -> None:
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"lat": LAT, "lng": LNG})
    rows["who"] = pandas.array(["a", pandas.NA, "b"], dtype="string")
    with pytest.raises(InvalidInput, match="position 1 of column 'who' must say whom"):
        obfuscate(rows, MECHANISM, person="who")


@needs_geopandas
def test_a_geo_data_frame_gives_points_in_degrees() -> None:
    import geopandas

    points = geopandas.points_from_xy(LNG, LAT, crs="EPSG:4326")
    frame = geopandas.GeoDataFrame({"who": ["a", "b", "c"]}, geometry=points).to_crs("EPSG:3857")
    noisy = obfuscate(frame, TRUTHFUL, keep=["who"])
    assert isinstance(noisy, geopandas.GeoDataFrame)
    assert noisy.crs.to_epsg() == 4326
    assert noisy["cell"].tolist() == PARIS.locate(lat=LAT, lng=LNG).tolist()
    assert np.abs(noisy.geometry.y - LAT).max() < 0.01


@needs_geopandas
def test_geometry_must_be_points_in_a_system_that_converts() -> None:
    import geopandas
    from shapely.geometry import box

    points = geopandas.points_from_xy(LNG, LAT)
    local = geopandas.GeoDataFrame(geometry=points, crs='LOCAL_CS["the yard",UNIT["metre",1]]')
    with pytest.raises(InvalidInput, match=r"converts to degrees .* it is in 'the yard'"):
        obfuscate(local, MECHANISM)
    areas = geopandas.GeoDataFrame(geometry=[box(2.3, 48.84, 2.31, 48.85)], crs="EPSG:4326")
    with pytest.raises(InvalidInput, match="must hold points only"):
        obfuscate(areas, MECHANISM)


@needs_geopandas
def test_geometry_cannot_be_kept() -> None:
    import geopandas
    import pandas as pd

    points = geopandas.points_from_xy(LNG, LAT, crs="EPSG:4326")
    series = geopandas.GeoSeries(points)
    columns = {"lat": LAT, "lon": LNG, "geom": series}
    frames = [
        geopandas.GeoDataFrame({"lat": LAT, "lon": LNG}, geometry=points).rename_geometry("geom"),
        geopandas.GeoDataFrame(columns, geometry=points),
        pd.DataFrame(columns),
        pd.DataFrame(columns | {"geom": [None, *list(series)[1:]]}, dtype=object),
        columns,
        pd.DataFrame(columns | {"geom": [np.nan, *series.to_wkt()[1:]]}),
        pd.DataFrame(columns | {"geom": pd.Categorical(series.to_wkt())}),
        columns | {"geom": series.to_wkb(hex=True).to_numpy()},
        columns | {"geom": list(series.to_wkb())},
        columns | {"geom": [{"type": "Point", "coordinates": [2.35, 48.85]}] * len(LAT)},
        columns | {"geom": [SimpleNamespace(__geo_interface__=0)] * len(LAT)},
        pa.table({"lat": LAT, "lon": LNG, "geom": list(series.to_wkt())}),
        pa.table({"lat": LAT, "lon": LNG, "geom": [{"coordinates": [2.35, 48.85]}] * len(LAT)}),
        pa.table({"lat": LAT, "lon": LNG, "geom": pa.array(series.to_wkt()).dictionary_encode()}),
    ]
    for frame in frames:
        for lat, lng in ((None, None), ("lat", "lon")):
            with pytest.raises(InvalidInput, match=r"\(geom\) must not be coordinates"):
                obfuscate(frame, MECHANISM, keep=["geom"], lat=lat, lng=lng)


# -- reports of a file, however they are counted ---------------------------------------------------

COUNTS: dict[str, Any] = {
    "plain": count_reports,
    "slots": lambda reader, channel, reading: count_by_slot(
        reader, channel, reading, SlotColumn("who")
    ),
    "persons": lambda reader, channel, reading: read_persons(reader, channel, reading, "who"),
    "trips": count_trip_reports,
}


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize(
    ("text", "channel", "error", "said"),
    [
        ("who,cell,to_cell\na,7,999\nb,999,7\n", MECHANISM, InvalidFile, r"row \d of .* a cell in 0 …"),
        ("who,lat,lng,to_lat,to_lng\n", MECHANISM, InvalidFile, "at least one (report|trip)"),
        ("who,lat,lng,to_lat,to_lng\na,x,2,48,2\n", MECHANISM, InvalidFile, "none of 1 row has one"),
        ("who,lat,lng,to_lat,to_lng\na,1,2,1,2\n", MECHANISM, OutsideSpace, "the only one lies outside"),
        ("who,lat,lng,to_lat,to_lng\na,1,2,1,2\n", Rappor(Line(3), epsilon=1.0), Unsupported,
         "are not cells"),
        ("who,lat,lng,to_lat,to_lng\na,1,2,1,2\n", RandomizedResponse(Line(3), epsilon=1.0),
         InvalidInput, r"must have (a column 'cell'|columns cell and to_cell), since .* has no map"),
    ],
)  # fmt: skip
def test_files_without_reports_are_refused_alike_however_they_are_counted(
    tmp_path: Path, kind: str, text: str, channel: Any, error: type[Exception], said: str
) -> None:
    path = tmp_path / "reports.csv"
    path.write_text(text)
    reading = Reading(bad_rows="drop", to=TripEnd() if kind == "trips" else None)
    with reading.open(str(path)) as reader, pytest.raises(error, match=said):
        COUNTS[kind](reader, channel, reading)


@pytest.mark.parametrize("what", ["reports", "trips"])
@pytest.mark.parametrize("carried", [{"estimate": 1}, {"flows": 1}])
def test_what_was_estimated_is_not_taken_for_reports(what: str, carried: dict[str, int]) -> None:
    reader = SimpleNamespace(name="flows.csv", metadata=carried)
    with pytest.raises(InvalidFile, match=rf"flows.csv must hold noisy {what}; it is an estimate"):
        mechanism_of(cast(TableReader, reader), None, what=what)
