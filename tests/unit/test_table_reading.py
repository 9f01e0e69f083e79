"""Reading tables: the same places from every format, and bad rows named without their values."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.table.indexed import wkb_points
from geoveil.table.locations import LocationTable, Reading
from geoveil.table.reader import blocks_of_rows, format_of, open_table
from geoveil.table.streamed import FeatureScanner

LAT = [48.85, -17.7, 0.0, 89.9]
LNG = [2.35, 179.99, -180.0, 180.0]
WHO = ["ann", "bob, jr", 'carl "c"', "dée"]


def read(path: Path | str, **options: Any) -> tuple[list[float], list[float], list[dict[str, Any]]]:
    lat: list[float] = []
    lng: list[float] = []
    kept: list[dict[str, Any]] = []
    keep = options.pop("keep", ())
    opening = {key: options.pop(key) for key in ("delimiter", "drop_bad") if key in options}
    with open_table(str(path), **opening) as reader:
        for part in LocationTable(reader, Reading(**options), keep=keep):
            lat += part.lat.tolist()
            lng += part.lng.tolist()
            kept += part.others.to_pylist()
    return lat, lng, kept


def csv_text(lat: list[Any] = LAT, lng: list[Any] = LNG) -> str:
    rows = zip(WHO, lat, lng, strict=True)
    quoted = ['"' + who.replace('"', '""') + f'",{a},{b}' for who, a, b in rows]
    return "\n".join(["who,lat,lng", *quoted]) + "\n"


def feature(lat: Any, lng: Any, **properties: Any) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [lng, lat]}
    return {"type": "Feature", "geometry": point, "properties": properties}


def write_every_format(folder: Path) -> list[Path]:
    plain = folder / "a.csv"
    plain.write_text(csv_text(), encoding="utf-8")
    packed = folder / "a.csv.gz"
    packed.write_bytes(gzip.compress(csv_text().encode()))
    columnar = folder / "a.parquet"
    pq.write_table(pa.table({"who": WHO, "Latitude": LAT, "LON": LNG}), columnar)
    features = folder / "a.geojson"
    rows = zip(LAT, LNG, WHO, strict=True)
    collection = {
        "type": "FeatureCollection",
        "features": [feature(a, b, who=w) for a, b, w in rows],
    }
    features.write_text(json.dumps(collection, indent=3))
    wkb = [struct.pack("<BIdd", 1, 1, b, a) for a, b in zip(LAT, LNG, strict=True)]
    geo = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    table = pa.table({"who": WHO, "geometry": wkb})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), folder / "geo.parquet")
    geo["columns"] = {"geometry": {"encoding": "point"}}
    pairs = [{"x": b, "y": a} for a, b in zip(LAT, LNG, strict=True)]
    table = pa.table({"who": WHO, "geometry": pairs})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), folder / "xy.parquet")
    return [plain, packed, columnar, features, folder / "geo.parquet", folder / "xy.parquet"]


def test_every_format_gives_the_same_places_and_kept_columns(tmp_path: Path) -> None:
    for path in write_every_format(tmp_path):
        lat, lng, kept = read(path, keep=["who"])
        assert (lat, lng) == (LAT, LNG), path.name
        assert [row["who"] for row in kept] == WHO, path.name


def test_nothing_is_kept_unless_asked(tmp_path: Path) -> None:
    for path in write_every_format(tmp_path):
        assert read(path)[2] in ([], [{}] * 4)


def test_kept_text_is_not_reinterpreted(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("lat,lng,code,empty\n1,2,007,\n3,4,1e5,NA\n")
    kept = read(path, keep=["code", "empty"])[2]
    assert kept == [{"code": "007", "empty": ""}, {"code": "1e5", "empty": "NA"}]


@pytest.mark.parametrize(
    ("header", "lat", "lng"),
    [
        ("LAT,Lng", None, None),
        ("y,x", None, None),
        (" latitude , longitude ", None, None),
        ("lat,long", None, None),
        ("lat,Lon", None, None),
        ("a,b", "a", "b"),
        ("lat,b,lng", "b", None),
        ("\ufefflat,lng", None, None),
    ],
)
def test_columns_are_found_by_usual_names_or_given(
    tmp_path: Path, header: str, lat: str | None, lng: str | None
) -> None:
    path = tmp_path / "a.csv"
    count = header.count(",") + 1
    path.write_text(f"{header}\n{','.join(str(k + 1) for k in range(count))}\n", encoding="utf-8")
    found_lat, found_lng, _ = read(path, lat=lat, lng=lng)
    assert (found_lat, found_lng) == ([1.0 if lat != "b" else 2.0], [float(count)])


@pytest.mark.parametrize(
    "header", ["a,b", "lat,b", "lat,latitude,lng", "lat,lng,lon", "lat,lng,LAT"]
)
def test_missing_or_ambiguous_columns_are_listed(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n" + ",".join("1" * (header.count(",") + 1)) + "\n")
    with pytest.raises(InvalidFile, match=f"it has {', '.join(header.split(','))}$"):
        read(path)


DEGREES = [
    "48°51'24N,2°21'07E",
    "48 51 24 N,2 21 07 E",
    "N48:51:24,E2:21:07",
    "48d51m24s,2d21m07s",
    "ann,48° 51′",
]


@pytest.mark.parametrize(
    "first", ["48.8512345,2.35", "ann,48.8512345,2.35", "48.8512345;2.35", "7,x", *DEGREES]
)
def test_a_missing_header_is_not_repeated(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\n{first}\n")
    with pytest.raises(InvalidFile, match="looks like data") as caught:
        read(path)
    said = str(caught.value).replace(str(path), "")  # the folder's own name may hold a 48
    assert not any(part in said for part in ("48", "51", "ann"))


@pytest.mark.parametrize("first", ["{", '{"type":"FeatureCollection","features":[48.8512345]}'])
def test_json_that_is_read_as_csv_is_called_what_it_is(tmp_path: Path, first: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{first}\n{first}\n")
    with pytest.raises(InvalidFile, match="looks like JSON, read as CSV; --format geojson"):
        read(path)


CANARY = "48.8512345"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "NaN",
        "inf",
        "-inf",
        "abc",
        "1,012.5",
        "0x10",
        "1_000",
        "90.5123456",
        "-1e300",
        "--5",
        "4 8",
    ],
)
def test_bad_values_name_the_row_and_not_the_value(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "a.csv"
    cell = f'"{wrong}"'
    path.write_text(f"lat,lng\n{CANARY},2\n{CANARY},2\n{cell},{CANARY}\n{CANARY},2\n")
    with pytest.raises(InvalidFile, match=r"row 3 of .*a\.csv must have") as caught:
        read(path)
    assert CANARY not in str(caught.value)
    assert not wrong or f" {wrong} " not in str(caught.value)


def test_numbers_in_every_usual_spelling(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('lat,lng\n 1.5 ,+2\n"-3",.5\n1e1,5.\nbad,1\n')
    with open_table(str(path), drop_bad=True) as reader:
        table = LocationTable(reader, Reading(bad_rows="drop"))
        parts = list(table)
    assert np.concatenate([part.lat for part in parts]).tolist() == [1.5, -3.0, 10.0]
    assert np.concatenate([part.lng for part in parts]).tolist() == [2.0, 0.5, 5.0]
    assert (table.read, table.bad) == (4, 1)


def test_dropping_counts_every_kind_of_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"who,lat,lng\na,1,2\nb,x,2\nc,1\nd,1,2,3\ne,91,0\nf,0,181\ng,\xff,1\nh,3,4\n")
    with open_table(str(path), drop_bad=True) as reader:
        table = LocationTable(reader, Reading(bad_rows="drop"), keep=["who"])
        parts = list(table)
    assert np.concatenate([part.lat for part in parts]).tolist() == [1.0, 3.0]
    assert [row["who"] for part in parts for row in part.others.to_pylist()] == ["a", "h"]
    assert (table.read, table.bad) == (8, 6)


def test_a_row_with_missing_fields_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"lat,lng\n1,2\n\n{CANARY},2\n{CANARY}\n")
    with pytest.raises(InvalidFile, match=r"row 3 of .* must have 2 fields") as caught:
        read(path)
    assert CANARY not in str(caught.value)


def test_row_numbers_go_on_over_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("lat,lng\n" + "1.123456789,2.123456789\n" * 400_000 + "x,2\n")
    with pytest.raises(InvalidFile, match="row 400001 of"):
        read(path)


def test_other_delimiters_are_named_and_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("lat;lng\n1;2\n")
    with pytest.raises(InvalidFile, match="seems to part its fields by ';'"):
        read(path)
    assert read(path, delimiter=";")[:2] == ([1.0], [2.0])
    for asked in (",", ";"):  # the file says it itself, as spreadsheets write it
        path.write_bytes(b"\xef\xbb\xbfsep=;\r\nlat;note;lng\r\n1,5;a;2\r\n3;b;4\r\n")
        assert read(path, delimiter=asked, keep=["note"])[:2] == ([1.5, 3.0], [2.0, 4.0])
    with open_table(str(path)) as reader:
        assert [*reader.sections()] == [(0, len(b"1,5;a;2\r\n3;b;4\r\n"))]


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("lat;lng\n1;2\n", "--delimiter ';'"),
        ("lat\tlng\n1\t2\n", "--delimiter tab"),
        ("lat,lng\n1,2\n1\n", "--bad-rows drop"),
        ("lat,lng\n1,2\n,\n", "--bad-rows drop"),
    ],
)
def test_a_wrong_file_is_told_with_the_option_that_helps(
    tmp_path: Path, text: str, option: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InvalidFile, match=option):
        read(path)


def test_quoted_line_ends_inside_a_kept_field(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('lat,note,lng\n1,"two\nlines",2\n3,one,4\n')
    lat, lng, kept = read(path, keep=["note"])
    assert (lat, lng) == ([1.0, 3.0], [2.0, 4.0])
    assert kept[0]["note"] == "two\nlines"


def test_true_coordinates_cannot_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("lat,lng\n1,2\n")
    with pytest.raises(InvalidInput, match="must not be the true coordinates"):
        read(path, keep=["lat"])


WRITTEN = {
    "text": "POINT (2.3522 48.8566)",
    "with a system": "SRID=4326;point z(2.3522 48.8566 35)",
    "area": "MULTIPOLYGON (((2.3 48.8, 2.4 48.8, 2.4 48.9, 2.3 48.8)))",
    "geojson": '{"type": "Point", "coordinates": [2.3522, 48.8566]}',
    "binary": struct.pack("<BIdd", 1, 1, 2.3522, 48.8566),
    "binary, large end first": struct.pack(">BIdd", 0, 1, 2.3522, 48.8566),
    "digits": struct.pack("<BIdd", 1, 1, 2.3522, 48.8566).hex(),
    "digits of a database": struct.pack("<BIIdd", 1, 1 | 1 << 29, 4326, 2.3522, 48.8566)
    .hex()
    .upper(),
}
"""Geometry that no metadata says is one."""
WORDS = [
    "",
    "point (3 of 5)",
    "Polygon Street 4",
    '{"coordinates": "none"}',
    "0" * 64,
    "0101000020",
]


@pytest.mark.parametrize("entry", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.dictionary(pa.int8(), pa.string())])
def test_geometry_in_a_column_of_texts_cannot_be_kept(
    tmp_path: Path, entry: str | bytes, kind: pa.DataType
) -> None:
    if isinstance(entry, bytes) and kind != pa.binary():
        return
    table = {"lat": [1.0, 2.0], "lng": [2.0, 1.0], "home": pa.array([None, entry]).cast(kind)}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match=r"\(home\) must not be the true coordinates") as caught:
        read(tmp_path / "a.parquet", keep=["home"])
    assert "8566" not in str(caught.value)


def test_words_like_those_of_geometry_are_kept(tmp_path: Path) -> None:
    table: dict[str, Any] = {"lat": [1.0] * len(WORDS), "lng": [2.0] * len(WORDS), "note": WORDS}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", keep=["note"])[2][0]["note"] == WORDS[0]
    table["note"] = [struct.pack("<q", 257)] * len(WORDS)  # numbers begin as geometry does
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", keep=["note"])[2][0]["note"] == table["note"][0]


@pytest.mark.parametrize("columns", [{}, {"lat": "a", "lng": "b"}])
@pytest.mark.parametrize("keep", ["geometry", "home", "arrow"])
def test_geometry_of_a_parquet_file_cannot_be_kept(
    tmp_path: Path, columns: dict[str, str], keep: str
) -> None:
    wkb = [struct.pack("<BIdd", 1, 1, 2.0, 1.0)]
    geometry = {"encoding": "WKB"}
    geo = {"primary_column": "geometry", "columns": {"geometry": geometry, "home": geometry}}
    arrow = pa.field("arrow", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb"})
    fields = [pa.field(name, pa.binary()) for name in ("geometry", "home")]
    numbers = [pa.field("a", pa.float64()), pa.field("b", pa.float64())]
    schema = pa.schema([*fields, arrow, *numbers], metadata={"geo": json.dumps(geo)})
    pq.write_table(pa.table([wkb, wkb, wkb, [1.0], [2.0]], schema=schema), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", **columns)[:2] == ([1.0], [2.0])
    with pytest.raises(InvalidInput, match=rf"\({keep}\) must not be the true coordinates"):
        read(tmp_path / "a.parquet", keep=[keep], **columns)


def test_geometry_among_the_properties_of_geojson_cannot_be_kept(tmp_path: Path) -> None:
    place = {"type": "Point", "coordinates": [2, 1]}
    collection = {"type": "FeatureCollection", "features": [feature(1, 2, home=place, a=1, b=2)]}
    (tmp_path / "a.geojson").write_text(json.dumps(collection))
    with pytest.raises(InvalidInput, match=r"\(home\) must not be the true coordinates"):
        read(tmp_path / "a.geojson", keep=["home"])
    with pytest.raises(InvalidInput, match=r"\(a\) must not be the true coordinates"):
        read(tmp_path / "a.geojson", lat="a", lng="b", keep=["a"])
    with pytest.raises(InvalidFile, match="no column named 'geometry'"):
        read(tmp_path / "a.geojson", keep=["geometry"])


def projjson(kind: str, name: str, authority: str = "", code: Any = None) -> dict[str, Any]:
    identity = {"id": {"authority": authority, "code": code}} if authority else {}
    return {"type": kind, "name": name, **identity}


def geoparquet(path: Path, **described: Any) -> Path:
    wkb = [struct.pack("<BIdd", 1, 1, 2.0, 1.0)]
    geo = {"primary_column": "g", "columns": {"g": {"encoding": "WKB", **described}}}
    table = pa.table({"g": wkb, "a": [1.0], "b": [2.0]})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return path


@pytest.mark.parametrize("geo", ["{", "[]", '{"columns": {}, "columns": {}}', '{"x": NaN}', "\xff"])
def test_metadata_of_geoparquet_that_cannot_be_read_is_refused(tmp_path: Path, geo: str) -> None:
    table = pa.table({"lat": [1.0], "lng": [2.0]})
    named = table.replace_schema_metadata({"geo": geo.encode("latin-1")})
    pq.write_table(named, tmp_path / "a.parquet")
    with pytest.raises(
        InvalidFile, match=r"a\.parquet must carry its GeoParquet metadata as a JSON"
    ):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    "crs",
    [
        None,
        projjson("GeographicCRS", "WGS 84", "EPSG", 4326),
        projjson("GeographicCRS", "WGS 84 (CRS84)", "OGC", "CRS84"),
        projjson("GeographicCRS", "WGS 84"),
        'GEOGCRS["WGS 84",ENSEMBLE[]]',
        "EPSG:4326",
    ],
)
def test_geoparquet_in_degrees_is_read(tmp_path: Path, crs: Any) -> None:
    assert read(geoparquet(tmp_path / "a.parquet", crs=crs))[:2] == ([1.0], [2.0])


@pytest.mark.parametrize(
    ("crs", "shown"),
    [
        (projjson("ProjectedCRS", "RGF93 v1 / Lambert-93", "EPSG", 2154), "EPSG:2154"),
        (projjson("GeographicCRS", "NAD27", "EPSG", 4267), "EPSG:4267"),
        (projjson("ProjectedCRS", "unknown"), "unknown"),
        (projjson("ProjectedCRS", "WGS 84"), "WGS 84"),
        ('PROJCRS["WGS 84 / UTM zone 31N"]', "PROJCRS"),
        ("EPSG:43260", "EPSG:43260"),
        ("+proj=aeqd +lat_0=48.8512345", "one of its own"),
        ({}, "one of its own"),
        (7, "one of its own"),
    ],
)
def test_geoparquet_in_metres_is_refused(tmp_path: Path, crs: Any, shown: str) -> None:
    path = geoparquet(tmp_path / "a.parquet", crs=crs)
    with pytest.raises(InvalidFile, match="convert it to EPSG:4326") as caught:
        read(path)
    assert f"system is {shown}" in str(caught.value)
    assert "48.85" not in str(caught.value)
    assert read(path, lat="a", lng="b")[:2] == ([1.0], [2.0])  # other columns are degrees


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("urn:ogc:def:crs:OGC:1.3:CRS84", True),
        ("urn:ogc:def:crs:EPSG::4326", True),
        ("EPSG:4326", True),
        ("urn:ogc:def:crs:EPSG::2154", False),
        ("urn:ogc:def:crs:OGC:1.3:CRS27", False),
    ],
)
def test_the_reference_system_of_geojson(
    tmp_path: Path, name: str, fine: bool, after: bool
) -> None:
    crs = {"crs": {"type": "name", "properties": {"name": name}}}
    features = {"features": [feature(1, 2, a=1, b=2)]}
    parts = features | crs if after else crs | features
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", **parts}))
    if fine:
        assert read(path)[:2] == ([1.0], [2.0])
        return
    with pytest.raises(InvalidFile, match=f"system is {name}; convert"):
        read(path)
    assert read(path, lat="a", lng="b")[:2] == ([1.0], [2.0])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.int32()),
        pa.array([1.0, 2.0], pa.float32()),
        pa.array(["1", "2"]),
        pa.array(["1", "2"]).dictionary_encode(),
        pa.array([1, 2], pa.decimal128(10, 2)),
    ],
)
def test_parquet_numbers_of_every_type(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"lat": column, "lng": column}), path)
    assert read(path)[:2] == ([1.0, 2.0], [1.0, 2.0])


@pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 21, reason="pyarrow converts views from 21 on"
)
@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_texts_as_polars_stores_them_are_texts(tmp_path: Path, kind: pa.DataType) -> None:
    grid = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=1.0)
    mechanism = gv.PlanarGeometric(grid, epsilon_per_km=1.0)
    who = pa.array(["a", "b", "c"], kind)
    parts = pa.array([{"all": [name]} for name in "abc"], pa.struct({"all": pa.large_list(kind)}))
    places = {"lat": [48.85, 10.0, 48.85], "lng": [2.3, 2.3, 2.3]}
    table = pa.table({**places, "who": who, "parts": parts})
    expected = [who[0].as_py(), who[2].as_py()]
    with pytest.warns(UserWarning, match="left out"):
        noisy = gv.obfuscate(table, mechanism, keep=["who", "parts"], person="who")
    assert noisy["who"].to_pylist() == expected
    assert noisy["parts"].to_pylist() == [{"all": [name]} for name in expected]
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    with open_table(str(path)) as reader:
        rows = [part.others.take([0, 2]) for part in LocationTable(reader, Reading(), keep=["who"])]
    assert rows[0]["who"].to_pylist() == expected


@pytest.mark.parametrize("column", [pa.array([1.0, None]), pa.array([1.0, float("nan")])])
def test_parquet_nulls_are_bad_rows(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"lat": column, "lng": [1.0, 2.0]}), path)
    with pytest.raises(InvalidFile, match="row 2 of"):
        read(path)
    assert read(path, bad_rows="drop")[0] == [1.0]


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "Feature", "geometry": None, "properties": {}},
        {"type": "Feature", "properties": None},
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [[[0, 0]]]}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1]}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": ["1", 2]}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [True, 2]}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 10**400]}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": {"a": 1}}},
        "text",
        None,
        [],
        3,
    ],
)
def test_features_that_are_no_points_are_bad_rows(tmp_path: Path, broken: Any) -> None:
    path = tmp_path / "a.geojson"
    features = [feature(1.0, 2.0), broken, feature(3.0, 4.0, a=1)]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with pytest.raises(InvalidFile, match="row 2 of"):
        read(path)
    assert read(path, bad_rows="drop")[0] == [1.0, 3.0]


def test_pairs_that_are_no_points(tmp_path: Path) -> None:
    """Missing ones are named by their row, and a column that holds no pairs is no geometry."""
    geo = {"primary_column": "g", "columns": {"g": {"encoding": "point"}}}
    pairs = [{"x": 2.0, "y": 1.0}, None, {"x": None, "y": 1.0}, {"x": 2.0, "y": 3.0}]
    for column in (pairs, [{"x": 1.0}], [b"\0"], [1.0]):
        table = pa.table({"g": column})
        path = tmp_path / "a.parquet"
        pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
        if column is pairs:
            with pytest.raises(InvalidFile, match=r"row 2 of .* must have numbers"):
                read(path)
            assert read(path, bad_rows="drop")[:2] == ([1.0, 3.0], [2.0, 2.0])
        else:
            with pytest.raises(InvalidFile, match="no column named as a latitude"):
                read(path)


def shapes(path: Path, *made: Any) -> Path:
    """GeoJSON or GeoParquet of any shapes, by the ending of the name."""
    if path.suffix == ".geojson":
        features = [{"type": "Feature", "geometry": each.__geo_interface__} for each in made]
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        return path
    geo = {"primary_column": "g", "columns": {"g": {"encoding": "WKB"}}}
    table = pa.table({"g": [each.wkb for each in made]})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return path


@pytest.mark.parametrize("ending", ["geojson", "parquet"])
def test_a_shape_that_is_no_point_is_named(tmp_path: Path, ending: str) -> None:
    for made in (
        shapely.Polygon([(2, 1), (3, 1), (3, 2)]),
        shapely.MultiPoint([(2, 1), (3, 1)]),
        shapely.LineString([(2, 1, 7), (3, 1, 7)]),
    ):
        path = shapes(tmp_path / f"a.{ending}", shapely.Point(2, 1), made)
        with pytest.raises(InvalidFile, match=f"row 2 of .* it is a {made.geom_type}; give points"):
            read(path)
        assert read(path, bad_rows="drop")[0] == [1.0]


@pytest.mark.parametrize("ending", ["geojson", "parquet"])
def test_a_height_is_left_out(tmp_path: Path, ending: str) -> None:
    path = shapes(tmp_path / f"a.{ending}", shapely.Point(2, 1, 9), shapely.Point(4, 3))
    assert read(path)[:2] == ([1.0, 3.0], [2.0, 4.0])


def one_point(entry: bytes | None) -> list[float]:
    """(x, y) of one entry, by the words of the standard; NaN where it is no such point."""
    if entry is not None and entry[:1] in (b"\0", b"\1"):
        mark = "><"[entry[0]]
        for kinds, numbers in (((1,), 2), ((1001, 0x80000001), 3)):
            form = f"{mark}BI{numbers}d"
            if len(entry) == struct.calcsize(form) and struct.unpack(form, entry)[1] in kinds:
                return list(struct.unpack(form, entry)[2:4])
    return [np.nan, np.nan]


def test_points_of_every_form_are_read_at_once() -> None:
    kinds = (1, 2, 3, 1001, 2001, 3001, 0x80000001, 0x40000001, 0x20000001)
    made: list[bytes | None] = [None, b"", b"\1", struct.pack("<BIdd", 1, 1, np.nan, np.nan)]
    for order, kind, numbers in itertools.product((0, 1, 2), kinds, range(5)):
        mark = "<" if order == 1 else ">"
        made.append(struct.pack(f"{mark}BI{numbers}d", order, kind, *np.arange(1.0, numbers + 1)))
    made += [entry[:20] for entry in made if entry]
    expected = np.array([one_point(entry) for entry in made]).T
    assert np.isfinite(expected).all(axis=0).sum() == 6
    for kind in (pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())):
        column = pa.array(made).cast(kind)
        np.testing.assert_array_equal(wkb_points(column), expected)
        np.testing.assert_array_equal(wkb_points(column[7:40]), expected[:, 7:40])
        np.testing.assert_array_equal(wkb_points(column[:1]), expected[:, :1])
        assert wkb_points(column[:0])[0].size == 0


class _Drip:
    """A source that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def read(self, size: int) -> bytes:
        taken, self.data = self.data[: self.size], self.data[self.size :]
        return taken


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(
    features=st.lists(json_values, max_size=6),
    before=st.dictionaries(
        st.text(max_size=6).filter(lambda k: k not in ("features", "type", "geoveil")),
        json_values,
        max_size=2,
    ),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
    drip=st.integers(1, 40),
)
def test_the_scanner_reads_what_json_reads_however_it_is_cut(
    features: list[Any], before: dict[str, Any], indent: int | None, ascii_only: bool, drip: int
) -> None:
    whole = {**before, "type": "FeatureCollection", "features": features}
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    )
    try:
        text.decode()
    except UnicodeDecodeError:
        return  # a lone surrogate is not UTF-8
    source: Any = _Drip(text, drip)
    assert list(FeatureScanner(source, "drip").features()) == json.loads(text)["features"]


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "[]", "{}", "nonsense", '{"type":"FeatureCollection"}', '{"features":[}',
        '{"features":[1,2',
        '{"type":"Feature","features":[]}', '{"features":[{"a":1}{"b":2}]}', '{"features":[]',
        '{"features":{}}',
        '{"features" []}', '{"features":[1,]}',
    ],
)  # fmt: skip
def test_broken_geojson_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.geojson"
    path.write_text(text)
    with pytest.raises(InvalidFile, match="must be a whole GeoJSON FeatureCollection"):
        read(path, bad_rows="drop")


def test_the_document_of_a_geojson_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"geoveil": {"a": 1}, "features": [feature(1.0, 2.0)]}))
    with open_table(str(path)) as reader:
        assert reader.metadata == {"a": 1}


@pytest.mark.parametrize(
    "document", ['{"a":1,"a":2}', '{"b":{"a":1,"a":2}}', '{"a":1},"geoveil":{}']
)
def test_a_document_that_names_an_entry_twice_is_refused(tmp_path: Path, document: str) -> None:
    (tmp_path / "a.geojson").write_text(f'{{"geoveil":{document},"features":[]}}')
    with pytest.raises(InvalidFile, match=r"a\.geojson"):
        open_table(str(tmp_path / "a.geojson"))
    table = pa.table({"cell": [1]}).replace_schema_metadata({"geoveil": document})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidFile, match=r"a\.parquet"):
        open_table(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.parquet.gz", "a.gz", ""])
def test_unknown_endings_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"must end in \.csv"):
        format_of(name)
    with pytest.raises(InvalidInput, match="save the spreadsheet as CSV"):
        format_of(f"places{name}.xlsx")


fields = st.text(alphabet='ab,"\n', max_size=5)


@given(
    rows=st.lists(st.tuples(fields, fields), min_size=1, max_size=12),
    size=st.integers(1, 30),
    ended=st.booleans(),
)
def test_blocks_hold_whole_rows_wherever_the_stream_is_cut(
    rows: list[tuple[str, str]], size: int, ended: bool
) -> None:
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    text = written.getvalue() if ended else written.getvalue()[:-1]
    source: Any = _Drip(text.encode(), size)
    blocks = [block for _, block in blocks_of_rows(source, b"\n", size=size)]
    assert b"".join(blocks).decode() == text
    read_back = [
        row for block in blocks for row in csv.reader(io.StringIO(block.decode(), newline=""))
    ]
    assert read_back == [list(row) for row in rows]


def test_an_endless_row_is_refused_and_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    from geoveil.table import reader as rows

    monkeypatch.setattr(rows, "_LONGEST_ROW", 1000)
    source: Any = _Drip(b'"' + b"x\n" * 10_000, 100)
    source.name = "endless.csv"
    with pytest.raises(InvalidFile, match="is a quote left open"):
        list(blocks_of_rows(source, b"\n", size=100))
    assert len(source.data) > 15_000


def test_old_line_ends_are_read_too(tmp_path: Path) -> None:
    for end in ("\r\n", "\r"):
        path = tmp_path / "a.csv"
        path.write_bytes(f"lat,lng{end}1,2{end}3,4{end}".encode())
        assert read(path)[:2] == ([1.0, 3.0], [2.0, 4.0])


OPEN = '48.85,2.34,"Joe'


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "others", [["48.85,2.34,x"], ['48.85,2.34,5" pipe', "48.85,2.34,x"]], ids=["plain", "stray"]
)
def test_a_quote_left_open_is_named_by_its_row(
    tmp_path: Path, others: list[str], end: str, delimiter: str
) -> None:
    rows = [others[k % len(others)] for k in range(1000)]
    path = tmp_path / "a.csv"

    def written(lines: list[str]) -> Path:
        text = end.join(["lat,lon,name", *lines]) + end
        path.write_bytes(text.replace(",", delimiter).encode())
        return path

    assert len(read(written(rows), delimiter=delimiter)[0]) == 1000
    with pytest.raises(InvalidFile, match=r"row 11 of .* must close its quote") as caught:
        read(written([*rows[:10], OPEN, *rows[11:]]), delimiter=delimiter)
    assert "Joe" not in str(caught.value)
    lines = [*rows[:10], "1,2", OPEN, *rows[12:]]
    with pytest.raises(InvalidFile, match=r"row 12 of .* must close its quote"):
        read(written(lines), delimiter=delimiter, drop_bad=True, bad_rows="drop")
    with pytest.raises(InvalidFile, match=r"row 11 of .* must close its quote"):
        read(written([*rows[:10], OPEN, *rows[11:500], OPEN, *rows[501:]]), delimiter=delimiter)
    assert len(read(written([*rows, '48.85,2.34,"a"'][1:]), delimiter=delimiter)[0]) == 1000


@given(
    fields=st.lists(
        st.sampled_from(["a", '"a"b', 'a"b', '"a"', '"a\nb"', '"a""\n"', ""]), min_size=1
    ),
    size=st.integers(1, 30),
)
def test_stray_quotes_do_not_part_quoted_rows(fields: list[str], size: int) -> None:
    text = "".join(f"{field},1\n" for field in fields)
    source: Any = _Drip(text.encode(), size)
    blocks = [block for _, block in blocks_of_rows(source, b"\n", size=size)]
    read_back = [
        row for block in blocks for row in csv.reader(io.StringIO(block.decode(), newline=""))
    ]
    assert read_back == list(csv.reader(io.StringIO(text, newline="")))
