"""Files that people have: GPX, GeoPackage, zstd, and rasters as priors."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from PIL import Image

import geoveil as gv
from geoveil import errors
from geoveil.cli.program import program
from geoveil.errors import InvalidFile, InvalidInput, MissingExtra
from geoveil.space.masked_grid import MaskedGrid
from geoveil.table.amounts import Districts, read_districts, read_raster
from geoveil.table.columns import numbers
from geoveil.table.reader import open_table
from geoveil.table.results import read_result
from geoveil.table.streamed import GeoJSONReader

BOX = "48.82,2.28,48.89,2.41"
PLACES = np.random.default_rng(1).normal([48.855, 2.345], [0.008, 0.012], size=(300, 2)).round(6)
CANARY = "48.8512345"


def run(*arguments: Any, given: bytes = b"") -> Any:
    return CliRunner().invoke(program, [*map(str, arguments)], input=given)


def rows_of(path: Path) -> dict[str, Any]:
    with open_table(str(path)) as reader:
        names = list(reader.coordinates or ("lat", "lng"))
        kept = [name for name in reader.columns if name not in names]
        table = pa.Table.from_batches(list(reader.batches(names, kept)))
    columns = {name: table.column(name).to_pylist() for name in kept}
    lat, lng = (numbers(table.column(name).combine_chunks()) for name in names)
    return {"lat": lat, "lng": lng, **columns}


def csv_text() -> str:
    return "lat,lng\n" + "".join(f"{lat},{lng}\n" for lat, lng in PLACES.tolist())


# --- zstd


def test_zstd_is_read_and_written(tmp_path: Path) -> None:
    packed = tmp_path / "checkins.csv.zst"
    packed.write_bytes(pa.compress(csv_text().encode(), codec="zstd", asbytes=True))
    found = rows_of(packed)
    np.testing.assert_array_equal(found["lat"], PLACES[:, 0])
    noisy = tmp_path / "noisy.geojson.zst"
    asked = ("--mechanism", "planar-geometric", "--epsilon-per-km", 2, "--box", BOX, "-o", noisy)
    result = run("obfuscate", packed, *asked)
    assert result.exit_code == 0, result.stderr
    assert noisy.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    estimate = tmp_path / "estimate.csv.zst"
    assert run("estimate", noisy, "-o", estimate).exit_code == 0
    assert read_result(str(estimate)).share.sum() == pytest.approx(1.0)


def test_a_zstd_file_that_breaks_off_is_refused(tmp_path: Path) -> None:
    whole = pa.compress(csv_text().encode(), codec="zstd", asbytes=True)
    (tmp_path / "cut.csv.zst").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidFile, match="whole gzip or zstd file"):
        rows_of(tmp_path / "cut.csv.zst")
    for wrong in ("a.parquet.zst", "a.gpkg.gz", "a.zst"):
        with pytest.raises(InvalidInput, match=r"must end in \.csv"):
            open_table(str(tmp_path / wrong))


# --- GPX


GPX = """<?xml version="1.0"?>
<gpx version="1.1" creator="x" xmlns="http://www.topografix.com/GPX/1/1">
 <metadata><time>2020-01-01T00:00:00Z</time></metadata>
 <wpt lat="48.85" lon="2.35"><name>home</name></wpt>
 <rte><rtept lat="48.86" lon="2.36"/></rte>
 <trk><trkseg>
  <trkpt lat="48.87" lon="2.37"><ele>35</ele><time>2021-05-01T08:00:00Z</time></trkpt>
  <trkpt lat="48.88" lon="2.38"><time> 2021-05-01T08:01:00Z </time></trkpt>
 </trkseg></trk>
</gpx>
"""


def test_every_point_of_a_gpx_file_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "walk.gpx"
    path.write_text(GPX)
    found = rows_of(path)
    assert found["lat"].tolist() == [48.85, 48.86, 48.87, 48.88]
    assert found["lng"].tolist() == [2.35, 2.36, 2.37, 2.38]
    assert found["time"] == [None, None, "2021-05-01T08:00:00Z", "2021-05-01T08:01:00Z"]
    assert found["kind"] == ["waypoint", "route", "track", "track"]
    result = run(
        "obfuscate",
        path,
        "-o",
        tmp_path / "noisy.csv",
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        2,
        "--box",
        BOX,
    )
    assert result.exit_code == 0, result.stderr
    assert len((tmp_path / "noisy.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GPX[:-80], "whole GPX file"),
        (f"<gpx><wpt lat='{CANARY}' lon=></gpx>", "no XML at line 1"),
        ("<kml/>", "it is other XML"),
        ("", "whole GPX file"),
        ('<!DOCTYPE x [<!ENTITY a "aa">]><gpx>&a;</gpx>', "document type"),
        ("<gpx><wpt lat='48.85'/></gpx>", "row 1"),
        (f"<gpx><wpt lat='{CANARY}x' lon='2'/></gpx>", "row 1"),
    ],
)
def test_what_is_no_gpx_is_refused_without_a_place(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "walk.gpx"
    path.write_text(text)
    result = run(
        "obfuscate",
        path,
        "-o",
        tmp_path / "noisy.csv",
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        2,
        "--box",
        BOX,
    )
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())
    assert CANARY not in result.stderr
    assert not (tmp_path / "noisy.csv").exists()


def test_gpx_and_geopackage_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(csv_text())
    for target in ("noisy.gpx", "noisy.gpkg"):
        result = run(
            "obfuscate", tmp_path / "a.csv", "-o", tmp_path / target, "--epsilon-per-km", 2
        )
        assert result.exit_code == 2
        assert "must end in" in result.stderr


# --- GeoPackage


def package(path: Path, crs: str = "EPSG:4326", layer: str = "people") -> None:
    import geopandas

    points = geopandas.points_from_xy(PLACES[:, 1], PLACES[:, 0], crs="EPSG:4326").to_crs(crs)
    frame = geopandas.GeoDataFrame({"who": np.arange(300)}, geometry=points)
    frame.to_file(path, driver="GPKG", layer=layer)


def test_points_of_a_geopackage_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "people.gpkg"
    package(path)
    found = rows_of(path)
    np.testing.assert_allclose(found["lat"], PLACES[:, 0], atol=1e-12)
    np.testing.assert_allclose(found["lng"], PLACES[:, 1], atol=1e-12)
    assert found["who"] == list(range(300))
    result = run(
        "tally",
        path,
        "-o",
        tmp_path / "t.json",
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        2,
        "--box",
        BOX,
    )
    assert result.exit_code == 0, result.stderr
    assert gv.load_tally(str(tmp_path / "t.json")).total == 300
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == "pyogrio" else "here")
    with pytest.raises(MissingExtra, match=r"pyogrio; install geoveil\[geo\]"):
        open_table(str(path))


def test_a_geopackage_that_cannot_be_is_refused(tmp_path: Path) -> None:
    import geopandas
    import shapely

    metres = tmp_path / "metres.gpkg"
    package(metres, "EPSG:2154")
    with pytest.raises(InvalidFile, match="EPSG:2154; convert it to EPSG:4326"):
        rows_of(metres)
    package(metres, layer="second")
    with pytest.raises(InvalidFile, match="one layer; it has 2: people, second"):
        open_table(str(metres))
    (tmp_path / "no.gpkg").write_bytes(b"no package")
    with pytest.raises(InvalidFile, match="whole GeoPackage"):
        open_table(str(tmp_path / "no.gpkg"))
    with pytest.raises(FileNotFoundError):
        open_table(str(tmp_path / "missing.gpkg"))
    shapes = geopandas.GeoDataFrame(geometry=[shapely.box(2.3, 48.8, 2.4, 48.9)], crs="EPSG:4326")
    shapes.to_file(tmp_path / "shapes.gpkg", driver="GPKG")
    out = (
        "-o",
        tmp_path / "n.csv",
        "--mechanism",
        "planar-geometric",
        "--epsilon-per-km",
        2,
        "--box",
        BOX,
    )
    result = run("obfuscate", tmp_path / "shapes.gpkg", *out)
    assert result.exit_code == 2
    assert "Polygon" in result.stderr


# --- Rasters


def ascii_grid(path: Path, amounts: np.ndarray, *, west: float, south: float, step: float) -> None:
    rows, columns = amounts.shape
    head = f"ncols {columns}\nnrows {rows}\nxllcorner {west}\nyllcorner {south}\ncellsize {step}\n"
    lines = "\n".join(" ".join(f"{value:g}" for value in row) for row in amounts)
    path.write_text(f"{head}NODATA_value -9999\n{lines}\n")


def geotiff(path: Path, amounts: np.ndarray, *, west: float, north: float, step: float,
            keys: tuple[int, ...] = (1024, 0, 1, 2, 2048, 0, 1, 4326),
            packed: str | None = "tiff_deflate", absent: str = "-9999") -> None:  # fmt: skip
    image = Image.fromarray(amounts.astype(np.float32))
    info: dict[int, Any] = {
        33550: (step, step, 0.0),
        33922: (0.0, 0.0, 0.0, west, north, 0.0),
        34735: (1, 1, 0, len(keys) // 4, *keys),
        42113: absent,
    }
    image.save(path, tiffinfo=info, compression=packed)


def test_amounts_are_shared_out_by_area(tmp_path: Path) -> None:
    grid = gv.Grid.from_box(south=48.82, west=2.28, north=48.89, east=2.41, cell_km=1.0)
    amounts = np.random.default_rng(2).gamma(1.0, 100.0, size=(30, 40))
    amounts[3, 4] = -9999.0
    path = tmp_path / "people.asc"
    ascii_grid(path, amounts, west=2.25, south=48.80, step=0.005)
    raster = read_raster(str(path))
    assert raster.amounts[3, 4] == 0
    found, lost = raster.by_cell(grid)
    # by brute force: many places in every pixel, each with its share
    fine = 40
    inner = (np.arange(fine) + 0.5) / fine
    lat = (48.95 - (np.arange(30)[:, None] + inner).ravel() * 0.005).repeat(40 * fine)
    lng = np.tile(2.25 + (np.arange(40)[:, None] + inner).ravel() * 0.005, 30 * fine)
    weights = raster.amounts.repeat(fine, 0).repeat(fine, 1).ravel() / fine**2
    cells, inside = grid.nearest_cells(lat=lat, lng=lng)
    wanted = np.bincount(cells[inside], weights[inside], minlength=grid.size)
    np.testing.assert_allclose(found, wanted, rtol=0.04)
    assert found.sum() == pytest.approx(wanted.sum(), rel=0.01)
    assert lost == pytest.approx(1 - found.sum() / raster.amounts.sum())
    tif = tmp_path / "people.tif"
    geotiff(tif, amounts, west=2.25, north=48.95, step=0.005)
    np.testing.assert_allclose(read_raster(str(tif)).by_cell(grid)[0], found, rtol=1e-5)


def test_a_raster_within_city_limits(tmp_path: Path) -> None:
    grid = gv.Grid.from_box(south=48.82, west=2.28, north=48.89, east=2.41, cell_km=1.0)
    ascii_grid(tmp_path / "a.asc", np.ones((30, 40)), west=2.25, south=48.80, step=0.005)
    raster, mask = read_raster(str(tmp_path / "a.asc")), np.arange(grid.size) % 3 > 0
    whole, _ = raster.by_cell(grid)
    limited, lost = raster.by_cell(MaskedGrid(grid, mask))
    np.testing.assert_array_equal(limited, whole[mask])
    assert lost == pytest.approx(1 - limited.sum() / raster.amounts.sum())


def test_a_raster_across_the_end_of_the_world(tmp_path: Path) -> None:
    fiji = gv.Grid.from_box(south=-17.0, west=179.8, north=-16.8, east=-179.8, cell_km=2.0)
    path = tmp_path / "fiji.asc"
    ascii_grid(path, np.ones((20, 60)), west=179.7, south=-17.0, step=0.01)
    found, _ = read_raster(str(path)).by_cell(fiji)
    inner = found.reshape(fiji.shape)[1:-1, 1:-1]
    assert inner.min() > 0.93 * inner.max()  # people spread evenly stay so


def test_a_prior_from_a_raster_and_from_census_points(tmp_path: Path) -> None:
    ascii_grid(tmp_path / "people.asc", np.ones((14, 26)), west=2.28, south=48.82, step=0.005)
    out = tmp_path / "mechanism.json"
    asked = ("--epsilon-per-km", 1, "--cell-km", 2, "-o", out)
    result = run("design", "--prior", tmp_path / "people.asc", *asked, "--between", "cells")
    assert result.exit_code == 0, result.stderr
    assert gv.load_mechanism(out).space.cell_km == 2
    boxed = run(
        "design", "--prior", tmp_path / "people.asc", *asked, "--box", "48.83,2.3,48.86,2.35"
    )
    assert boxed.exit_code == 0, boxed.stderr
    assert "lie outside the box and are left out" in " ".join(boxed.stderr.split())
    census = tmp_path / "census.csv"
    census.write_text("lat,lng,population\n" + "".join(f"{a},{b},10\n" for a, b in PLACES.tolist()))
    asked = (*asked, "--column", "population")
    assert run("design", "--prior", census, *asked).exit_code == 0
    wrong = run("design", "--prior", tmp_path / "people.asc", *asked)
    assert "--column is for tables" in " ".join(wrong.stderr.split())
    elsewhere = run("design", "--prior", tmp_path / "people.asc", "--epsilon-per-km", 1, "-o", out,
                    "--box", "10,10,10.1,10.1")  # fmt: skip
    assert "it has none there" in " ".join(elsewhere.stderr.split())


def test_a_raster_in_another_system_has_a_clear_answer(tmp_path: Path) -> None:
    path = tmp_path / "metres.tif"
    keys = (1024, 0, 1, 1, 3072, 0, 1, 32631)
    geotiff(path, np.ones((5, 5)), west=450000.0, north=5410000.0, step=100.0, keys=keys)
    with pytest.raises(InvalidFile, match=r"EPSG:32631; convert it with gdalwarp -t_srs EPSG:4326"):
        read_raster(str(path))
    text = tmp_path / "metres.asc"
    ascii_grid(text, np.ones((5, 5)), west=450000.0, south=5410000.0, step=100.0)
    with pytest.raises(InvalidFile, match="must be in degrees of WGS84"):
        read_raster(str(text))
    ascii_grid(text, np.ones((5, 5)), west=2.0, south=48.0, step=0.1)
    (tmp_path / "metres.prj").write_text('PROJCS["RGF93 / Lambert-93",GEOGCS["RGF93"]]')
    with pytest.raises(InvalidFile, match="convert it to EPSG:4326"):
        read_raster(str(text))
    (tmp_path / "metres.prj").write_text('GEOGCS["WGS 84",DATUM["WGS_1984"]]')
    assert read_raster(str(text)).amounts.sum() == 25


def test_what_is_no_raster_of_amounts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.asc"
    ascii_grid(path, np.ones((2, 2)), west=2.0, south=48.0, step=0.1)
    path.write_text(path.read_text().replace(" ", "\t"))  # as some programs write it
    assert read_raster(str(path)).amounts.sum() == 4
    for text in ("", "ncols 2\nnrows 2\ncellsize 1\n1 2 3 4\n", "ncols x\n", "\x00\xff"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(InvalidFile, match="ASCII grid"):
            read_raster(str(path))
    ascii_grid(path, np.ones((2, 2)), west=2.0, south=48.0, step=0.1)
    path.write_text(path.read_text() + "and more words")
    with pytest.raises(InvalidFile, match="ASCII grid"):
        read_raster(str(path))
    ascii_grid(path, np.array([[1.0, -2.0]]), west=2.0, south=48.0, step=0.1)
    with pytest.raises(InvalidFile, match="at least 0"):
        read_raster(str(path))
    tif = tmp_path / "a.tif"
    tif.write_bytes(b"II*\x00nothing")
    with pytest.raises(InvalidFile, match="GeoTIFF of one band"):
        read_raster(str(tif))
    Image.fromarray(np.ones((3, 3), dtype=np.float32)).save(tif)
    with pytest.raises(InvalidFile, match="not said"):
        read_raster(str(tif))
    Image.fromarray(np.zeros((3, 3, 3), dtype=np.uint8)).save(
        tif, tiffinfo={33550: (0.1, 0.1, 0.0), 33922: (0.0, 0.0, 0.0, 2.0, 48.0, 0.0),
                       34735: (1, 1, 0, 2, 1024, 0, 1, 2, 2048, 0, 1, 4326)},
    )  # fmt: skip
    with pytest.raises(InvalidFile, match="one band"):
        read_raster(str(tif))


@pytest.mark.parametrize(("tag", "named"), [(262, 262), (279, 279), (279, 325)])
def test_pixels_that_would_be_read_as_others_are_refused(
    tmp_path: Path, tag: int, named: int
) -> None:
    """White is zero: read as 255 less; a strip or a tile without bytes: read from wherever it points to."""
    path = tmp_path / "a.tif"
    geotiff(path, np.ones((2, 2)), west=2.0, north=48.2, step=0.1, packed=None)
    assert read_raster(str(path)).amounts.sum() == 4
    content = path.read_bytes()
    (at,) = (
        content.index(entry)
        for kind in (3, 4)
        if (entry := struct.pack("<HHI", tag, kind, 1)) in content
    )
    path.write_bytes(content[:at] + struct.pack("<HHII", named, 4, 1, 0) + content[at + 12 :])
    with pytest.raises(InvalidFile, match="without sparse parts; write it anew"):
        read_raster(str(path))


def test_bytes_with_a_sign_are_refused(tmp_path: Path) -> None:
    """Pillow does not know them: -1, where there is nobody, would be 255 people."""
    path = tmp_path / "a.tif"
    geotiff(path, np.ones((2, 2)), west=2.0, north=48.2, step=0.1, packed=None)
    content = path.read_bytes()
    for tag, value, new in ((258, 32, 8), (339, 3, 2), (279, 16, 4)):
        (old,) = (
            entry
            for kind in (3, 4)
            if (entry := struct.pack("<HHII", tag, kind, 1, value)) in content
        )
        content = content.replace(old, old[:8] + struct.pack("<I", new))
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match="-ot Float32"):
        read_raster(str(path))


@pytest.mark.parametrize("absent", ["1e+20", "0.1", "1e300"])
def test_a_value_for_no_data_is_compared_as_pixels_hold_it(tmp_path: Path, absent: str) -> None:
    path, nothing = tmp_path / "a.tif", np.float64(absent)
    with np.errstate(over="ignore"):
        amounts = np.where(np.eye(2) == 1, nothing, 3.0)
        geotiff(path, amounts, west=2.0, north=48.2, step=0.1, absent=absent)
    assert read_raster(str(path)).amounts.tolist() == [[0, 3], [3, 0]]


# --- Districts


def districts(path: Path, *populations: Any, apart: float = 0.02) -> None:
    """Squares of 0.02°, from west to east; the last is so far from the one before."""
    wests = [2.30 + 0.02 * number for number in range(len(populations))]
    wests[-1] += apart - 0.02
    features = [
        {
            "type": "Feature",
            "properties": {"population": people},
            "geometry": {"type": "Polygon", "coordinates": [square(west)]},
        }
        for west, people in zip(wests, populations, strict=True)
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def opened_districts(path: Path) -> Districts:
    with open_table(str(path)) as reader:
        assert isinstance(reader, GeoJSONReader)
        return read_districts(reader, "population")


def square(west: float) -> list[list[float]]:
    corners = [(west, 48.84), (west + 0.02, 48.84), (west + 0.02, 48.86), (west, 48.86)]
    return [list(corner) for corner in [*corners, corners[0]]]


def test_a_census_by_district_is_shared_out_by_area(tmp_path: Path) -> None:
    path = tmp_path / "census.geojson"
    districts(path, 1000, 3000)
    found = opened_districts(path)
    wide = gv.Grid.from_box(south=48.82, west=2.28, north=48.88, east=2.36, cell_km=0.5)
    people, lost = found.by_cell(wide)
    assert people.sum() == pytest.approx(4000, rel=1e-6)
    assert lost == 0
    _, lng = wide.centres_latlng()
    assert people[lng < 2.319].sum() == pytest.approx(1000, rel=0.2)
    assert people[lng > 2.345].sum() == 0
    half = gv.Grid.from_box(south=48.82, west=2.32, north=48.88, east=2.36, cell_km=0.2)
    there, beyond = found.by_cell(half)
    assert there.sum() == pytest.approx(3000, rel=0.02)
    assert beyond == pytest.approx(1 - there.sum() / 4000)
    out = tmp_path / "mechanism.json"
    asked = ("--prior", path, "--column", "population", "--epsilon-per-km", 1, "-o", out)
    result = run("design", *asked, "--cell-km", 1)
    assert result.exit_code == 0, result.stderr
    piped = ("--prior", "-", "--format", "geojson", *asked[2:-1], tmp_path / "piped.json")
    assert run("design", *piped, "--cell-km", 1, given=path.read_bytes()).exit_code == 0
    assert (tmp_path / "piped.json").read_bytes() == out.read_bytes()
    inner = gv.Grid.from_box(south=48.84, west=2.30, north=48.86, east=2.34, cell_km=0.5)
    mask = np.ones(inner.size, dtype=bool)
    mask[0] = False
    masked, _ = found.by_cell(MaskedGrid(inner, mask))
    np.testing.assert_allclose(masked, found.by_cell(inner)[0][1:])


@pytest.mark.parametrize("name", ["people.asc", "census.geojson", "census.csv"])
def test_a_city_is_cut_out_of_a_country_that_fits_on_no_map(tmp_path: Path, name: str) -> None:
    path, out = tmp_path / name, tmp_path / "mechanism.json"
    if name == "people.asc":
        ascii_grid(path, np.ones((10, 160)), west=2.28, south=48.0, step=0.1)
    elif name == "census.geojson":
        districts(path, 10, 10, 7_980, apart=16.0)
    else:
        path.write_text("lat,lng,population\n48.85,2.31,30\n48.85,2.33,10\n43.3,15.4,800\n")
    column = () if name == "people.asc" else ("--column", "population")
    asked = ("--prior", path, *column, "--epsilon-per-km", 1, "--cell-km", 2, "-o", out)
    boxed = run("design", *asked, "--box", "48.84,2.3,48.86,2.34")
    assert boxed.exit_code == 0, boxed.stderr
    said = " ".join(boxed.stderr.split())
    assert ("outside the box and" in said, "100 %" in said) == (True, False)
    assert run("audit", out, "--prior", path, *column, "--draws", 1000).exit_code == 0
    whole = run("design", *asked)
    assert (whole.exit_code, "500 km" in whole.stderr) == (2, True)


def test_districts_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "census.geojson"
    for wrong in (None, -1, "many", True, math.nan, 10**400):
        districts(path, 10, wrong)
        with pytest.raises(InvalidFile, match=r"feature 2 of .* at least 0 as 'population'"):
            opened_districts(path)
    districts(path, 10)
    with pytest.raises(InvalidFile, match="is none"):
        opened_districts(path).by_cell(gv.Line(3))
    path.write_text(path.read_text().replace('"type": "Polygon"', '"type": "Point"'))
    with pytest.raises(InvalidFile, match=r"feature 1 of .*must be a Polygon"):
        opened_districts(path)
    districts(path, 10)
    path.write_text(path.read_text()[:-1])
    with pytest.raises(InvalidFile, match="must be a whole GeoJSON FeatureCollection in UTF-8"):
        opened_districts(path)
