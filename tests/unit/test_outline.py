"""Areas drawn on a map: read strictly, and cut into cells exactly by area."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

import geoveil as gv
from geoveil.errors import InvalidInput
from geoveil.space.outline import Outline, _covered, _turned, read_outlines

GRID = gv.Grid.from_box(south=48.82, west=2.25, north=48.90, east=2.42, cell_km=0.7)


def ring(*corners: tuple[float, float]) -> list[list[float]]:
    return [[lng, lat] for lat, lng in (*corners, corners[0])]


def polygon(*rings: list[list[float]]) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def rectangle(south: float, west: float, north: float, east: float) -> list[list[float]]:
    return ring((south, west), (south, east), (north, east), (north, west))


def star(seed: int, lat: float, lng: float, radius: float, corners: int = 40) -> list[list[float]]:
    """A ragged ring that does not cross itself."""
    generator = np.random.default_rng(seed)
    turns = np.sort(generator.uniform(0, 2 * np.pi, corners))
    away = radius * generator.uniform(0.3, 1.0, corners)
    return ring(*zip(lat + 0.7 * away * np.sin(turns), lng + away * np.cos(turns), strict=True))


def in_cells(grid: gv.Grid, shape: dict[str, Any]) -> shapely.Geometry:
    """The shape in the plane, in cells, its edges straight there."""

    def moved(places: np.ndarray) -> np.ndarray:
        xy = grid.plane.to_plane(lat=places[:, 1], lng=places[:, 0])
        return np.asarray((xy - grid.corner_km) / grid.cell_km)

    return shapely.transform(shapely.geometry.shape(shape), moved)


@pytest.mark.parametrize("seed", range(6))
def test_coverage_is_the_area_of_the_intersection(seed: int) -> None:
    outer = star(seed, 48.86, 2.33, 0.09)
    hole = star(seed + 100, 48.86, 2.33, 0.02)
    shape = shapely.geometry.mapping(
        shapely.geometry.shape(polygon(outer)) - shapely.geometry.shape(polygon(hole))
    )
    covered = read_outlines(shape)[0].coverage(GRID)
    truth = in_cells(GRID, shape)
    rows, columns = np.divmod(np.arange(GRID.size), GRID.columns)
    squares = shapely.box(columns, rows, columns + 1, rows + 1)
    exact = shapely.area(shapely.intersection(squares, truth))
    rings = [
        _turned(shapely.get_coordinates(part)[:-1], hole=number > 0)
        for number, part in enumerate((truth.exterior, *truth.interiors))
    ]
    assert _covered(rings, GRID.rows, GRID.columns).ravel() == pytest.approx(exact, abs=1e-10)
    # straight in degrees is not straight in the plane: a metre at most here
    assert covered == pytest.approx(exact, abs=1e-3)


def test_all_of_a_grid_and_nothing_of_it() -> None:
    everything = read_outlines(polygon(rectangle(40, -10, 60, 20)))[0]
    assert everything.coverage(GRID) == pytest.approx(np.ones(GRID.size), abs=1e-12)
    elsewhere = read_outlines(polygon(rectangle(40, 10, 60, 20)))[0]
    assert not elsewhere.coverage(GRID).any()
    holed = read_outlines(polygon(rectangle(40, -10, 60, 20), rectangle(48, 2, 49, 3)))[0]
    assert holed.coverage(GRID) == pytest.approx(np.zeros(GRID.size), abs=1e-12)


def test_a_long_edge_is_straight_in_degrees_and_not_in_the_plane() -> None:
    wide = gv.Grid.from_box(south=59.0, west=5.0, north=61.0, east=11.0, cell_km=5.0)
    half = read_outlines(polygon(rectangle(40, 0, 60, 20)))[0].coverage(wide)
    south = wide.centres_latlng()[0] < 60.0
    inner = (half > 1e-9) & (half < 1 - 1e-9)
    assert ((half > 0.5) == south)[~inner].all()
    assert half.sum() == pytest.approx((south * 1.0).sum(), rel=0.005)


@pytest.mark.parametrize("cut", [False, True])
def test_areas_across_the_date_line(cut: bool) -> None:
    fiji = gv.Grid.from_box(south=-18.0, west=178.0, north=-16.0, east=-179.0, cell_km=10.0)
    whole = ring((-17.5, 179.0), (-17.5, -179.5), (-16.5, -179.5), (-16.5, 179.0))
    parts = [[rectangle(-17.5, 179.0, -16.5, 180.0)], [rectangle(-17.5, -180.0, -16.5, -179.5)]]
    shape = {"type": "MultiPolygon", "coordinates": parts} if cut else polygon(whole)
    (outline,) = read_outlines(shape)
    covered = outline.coverage(fiji).sum() * 100.0
    assert covered == pytest.approx(1.5 * 106.6 * 110.65, rel=0.01)
    inside = outline.holds(lat=[-17.0, -17.0, -17.0], lng=[179.9, -179.9, -179.0])
    assert inside.tolist() == [True, True, False]
    grid = gv.Grid.from_polygon(shape, cell_km=10.0)
    assert 150 < grid.size < 220


def test_holds_agrees_with_shapely() -> None:
    shape = polygon(star(3, 48.86, 2.33, 0.08))
    generator = np.random.default_rng(0)
    lat, lng = generator.uniform(48.8, 48.92, 2000), generator.uniform(2.2, 2.45, 2000)
    truth = shapely.contains_xy(shapely.geometry.shape(shape), lng, lat)
    assert np.array_equal(read_outlines(shape)[0].holds(lat=lat, lng=lng), truth)


def test_names_of_features_collections_and_files(tmp_path: Path) -> None:
    square = polygon(rectangle(0, 0, 1, 1))
    named = {"type": "Feature", "properties": {"name": "North"}, "geometry": square}
    plain = {"type": "Feature", "properties": None, "geometry": square}
    collection = {"type": "FeatureCollection", "features": [named, plain]}
    assert [each.name for each in read_outlines(collection)] == ["North", "area 2"]
    assert [each.name for each in read_outlines(collection, name="other")] == ["area 1", "area 2"]
    path = tmp_path / "districts.geojson"
    path.write_text(json.dumps(collection))
    assert [each.name for each in read_outlines(path)] == ["North", "area 2"]
    assert len(read_outlines(shapely.box(0, 0, 1, 1))) == 1


def test_geopandas_in_any_reference_system() -> None:
    geopandas = pytest.importorskip("geopandas")
    square = shapely.box(2.30, 48.85, 2.34, 48.87)
    frame = geopandas.GeoDataFrame({"name": ["Centre"]}, geometry=[square], crs=4326)
    plain = read_outlines(frame)[0].coverage(GRID)
    metres = read_outlines(frame.to_crs(2154))[0]
    assert metres.name == "Centre"
    assert metres.coverage(GRID) == pytest.approx(plain, abs=0.01)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (polygon(ring((0, 0), (1, 1), (0, 1), (1, 0))), "must not cross"),
        (polygon(rectangle(0, 0, 1, 1), rectangle(0.5, 0.5, 2.0, 0.7)), "must not cross"),
        (polygon(ring((0, 0), (0, 1), (0, 2))), "must have an area"),
        (polygon([[0, 0], [1, 1], [0, 0]]), "at least four"),
        (polygon([[0, 0], [1, "x"], [1, 1], [0, 0]]), "at least four"),
        (polygon([[0, 0], [1, float("nan")], [1, 1], [0, 0]]), "at least four"),
        (polygon([[652000, 6862000], [653000, 6862000], [653000, 6863000], [652000, 6862000]]), "metres"),
        ({"type": "Point", "coordinates": [0, 0]}, "must be a Polygon"),
        ({"type": "FeatureCollection", "features": []}, "must hold an area"),
        ({"type": "FeatureCollection", "features": 3}, "list of features"),
        ({"type": "Polygon"}, "outer ring"),
        ({"type": "MultiPolygon", "coordinates": []}, "coordinates"),
        ({"type": "Polygon", "coordinates": [[]]}, "at least four"),
        ([1, 2], "must be GeoJSON"),
        (7, "must be GeoJSON"),
    ],
)  # fmt: skip
def test_what_is_no_area_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_outlines(given)


def test_another_reference_system_is_refused(tmp_path: Path) -> None:
    crs = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::2154"}}
    with pytest.raises(InvalidInput, match="EPSG::2154"):
        read_outlines({**polygon(rectangle(0, 0, 1, 1)), "crs": crs})
    broken = tmp_path / "broken.geojson"
    broken.write_text("{")
    with pytest.raises(InvalidInput, match="must be GeoJSON"):
        read_outlines(broken)


def test_parts_that_overlap_are_refused() -> None:
    parts = [[rectangle(48.84, 2.3, 48.87, 2.35)], [rectangle(48.85, 2.32, 48.88, 2.38)]]
    (outline,) = read_outlines({"type": "MultiPolygon", "coordinates": parts})
    with pytest.raises(InvalidInput, match="must not overlap"):
        outline.coverage(GRID)


def test_a_kink_in_a_coast_is_no_crossing() -> None:
    kinked = ring(
        (0, 0), (0, 0.5), (0.001, 0.499), (-0.001, 0.501), (0, 0.5), (0, 1), (1, 1), (1, 0)
    )
    assert isinstance(read_outlines(polygon(kinked))[0], Outline)


def test_features_without_a_shape_are_said_to_be_left_out() -> None:
    nothing = {"type": "GeometryCollection", "geometries": []}
    feature = {"type": "Feature", "properties": {"name": "South"}, "geometry": None}
    bare = {"type": "Feature", "properties": None}
    square = {**feature, "properties": {}, "geometry": polygon(rectangle(0, 0, 1, 1))}
    several = {"type": "FeatureCollection", "features": [feature, square]}
    with pytest.warns(UserWarning, match="^1 feature has no shape and is left out: 'South'$"):
        assert [each.name for each in read_outlines(several)] == ["area 1"]
    several["features"] += [{**feature, "geometry": nothing}, bare]
    said = "^3 features have no shape and are left out: 'South', 'South', one without a name$"
    with pytest.warns(UserWarning, match=said):
        assert len(read_outlines(several)) == 1
    several["features"] = [feature] * 2
    with pytest.raises(InvalidInput, match="must hold an area"):
        read_outlines(several)
