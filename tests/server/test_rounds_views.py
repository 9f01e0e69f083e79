"""Estimates as files: they parse, they sum to one, they hold numbers only."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

from geoveil.estimate import uncertainty
from geoveil.server import region_shares
from geoveil.server.map_files import rendered
from geoveil.server.problem import VIEWS
from geoveil.table.results import read_result
from server.rounds_support import City, campaign_settings

COLUMNS = ["cell", "lat", "lng", "share", "standard_error", "low", "high"]
HOSTILE = '=HYPERLINK("http://x","y")'


@pytest.fixture(scope="module")
def body() -> bytes:
    city = City(campaign_settings(name=HOSTILE))
    city.report(500)
    city.campaigns.close("paris")
    city.work()
    return city.campaigns.estimate("paris").body


def test_the_json_is_what_was_kept(body: bytes) -> None:
    assert rendered("json", body) == body
    values = msgspec.json.decode(body)
    assert sum(values["distribution"]) == pytest.approx(1.0, abs=1e-12)
    low, high = np.array(values["interval"]["low"]), np.array(values["interval"]["high"])
    share = np.array(values["distribution"])
    assert ((low >= 0) & (low <= share) & (share <= high) & (high <= 1)).all()
    assert values["certificate_nats_per_report"] >= 0
    assert values["interval"]["level"] == 0.95
    assert values["alarm"]["replicates"] in (49, 199)  # the first may be enough
    assert values["manipulation_gain"]["fakes_tried"] == 48


def test_the_csv_holds_numbers_under_fixed_names(body: bytes) -> None:
    text = rendered("csv", body).decode()
    header, *rows = csv.reader(io.StringIO(text))
    assert header == [*COLUMNS, "geoveil"]
    assert rows[0].pop().startswith("{")  # what no spreadsheet takes for a formula
    assert [int(row[0]) for row in rows] == list(range(48))
    number = re.compile(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")
    assert all(number.fullmatch(value) for row in rows for value in row if value)
    shares = [float(row[3]) for row in rows]
    assert shares == msgspec.json.decode(body)["distribution"]


def test_the_geojson_is_a_collection_of_cells(body: bytes) -> None:
    collection = json.loads(rendered("geojson", body))
    assert collection["type"] == "FeatureCollection"
    assert len(collection["features"]) == 48
    cells = [feature["properties"] for feature in collection["features"]]
    assert sum(cell["share"] for cell in cells) == pytest.approx(1.0, abs=1e-12)
    assert all(cell["low"] <= cell["share"] <= cell["high"] for cell in cells)
    ring = collection["features"][0]["geometry"]["coordinates"][0]
    assert ring[0] == ring[-1]
    (west, south), (east, north) = ring[0], ring[2]
    assert south < cells[0]["lat"] < north
    assert west < cells[0]["lng"] < east
    assert collection["geoveil"]["round"] == 1


def test_the_parquet_is_a_table(body: bytes) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(rendered("parquet", body)))
    assert table.column_names == [*COLUMNS, "geometry"]
    assert table.num_rows == 48
    assert sum(table["share"].to_pylist()) == pytest.approx(1.0, abs=1e-12)
    about = json.loads(table.schema.metadata[b"geoveil"])
    assert about["campaign"] == "paris"
    assert "distribution" not in about
    assert "blocks" not in about


def test_the_parquet_is_geoparquet(body: bytes, tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    (tmp_path / "map.parquet").write_bytes(rendered("parquet", body))
    frame = geopandas.read_parquet(tmp_path / "map.parquet")
    assert (len(frame), str(frame.crs)) == (48, "OGC:CRS84")
    cells = json.loads(rendered("geojson", body))["features"]
    corners = cells[17]["geometry"]["coordinates"][0]
    assert [list(each) for each in frame.geometry[17].exterior.coords] == corners


@pytest.mark.parametrize("ending", ["geojson", "parquet", "csv"])
def test_the_command_line_reads_what_the_service_wrote(
    body: bytes, ending: str, tmp_path: Path
) -> None:
    file = tmp_path / f"estimate.{ending}"
    file.write_bytes(rendered(ending, body))
    result = read_result(str(file))
    np.testing.assert_allclose(result.share, msgspec.json.decode(body)["distribution"], rtol=1e-14)
    assert result.low is not None
    assert result.space.size == 48


@pytest.mark.parametrize("ending", VIEWS)
def test_no_view_repeats_what_somebody_typed(body: bytes, ending: str) -> None:
    made = rendered(ending, body)
    assert b"HYPERLINK" not in made
    assert rendered(ending, body) == made
    assert VIEWS[ending].count("/") == 1


def test_few_regions_of_many_cells_are_solved_for_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city = City()
    city.report(3_000)
    city.campaigns.close("paris")
    city.work()
    evidence = region_shares.evidence_of(city.campaigns, "paris")
    members = np.zeros((2, 48))
    members[0, :20], members[0, 20], members[1, 30:] = 1.0, 0.5, 1.0
    by_matrix = region_shares.shares_of(print, evidence, members)
    assert not isinstance(by_matrix, str)
    monkeypatch.setattr(region_shares, "MATRIX_LIMIT", 40)
    monkeypatch.setattr(uncertainty, "MATRIX_CELLS", 40)
    monkeypatch.setattr(uncertainty.InformationSolver, "_chunks", None)  # nobody draws
    solved = region_shares.shares_of(print, evidence, members)
    assert not isinstance(solved, str)
    np.testing.assert_allclose(solved.rows, by_matrix.rows, atol=0.005)
    assert solved[1:] == by_matrix[1:]
    region_shares._bars.cache_clear()
    many = np.repeat(members, region_shares.FEW_REGIONS, axis=0)
    with pytest.raises(TypeError):  # which would be drawn
        region_shares.shares_of(print, evidence, many)
