"""GeoJSON of cells and places, read back with shapely where it is installed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from geoveil.errors import InvalidInput
from geoveil.space import Grid, Points

PARIS = Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=0.5)
FIJI = Grid.from_box(south=-17.5, west=179.3, north=-16.2, east=-179.5, cell_km=9.0)
BESIDE = Grid.from_box(south=-17.5, west=-180.0, north=-16.2, east=-179.0, cell_km=9.0)
ARCTIC = Grid.from_box(south=89.3, west=120.0, north=89.9, east=-160.0, cell_km=3.0)


def polygons(feature: dict) -> list[list[list[float]]]:
    """The outer rings of a feature."""
    geometry = feature["geometry"]
    if geometry["type"] == "Polygon":
        return [geometry["coordinates"][0]]
    assert geometry["type"] == "MultiPolygon"
    return [polygon[0] for polygon in geometry["coordinates"]]


def signed_area(ring: list[list[float]]) -> float:
    x, y = np.array(ring).T
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


@pytest.mark.parametrize("grid", [PARIS, FIJI, BESIDE, ARCTIC], ids=repr)
def test_rings_are_closed_counter_clockwise_and_within_range(grid: Grid) -> None:
    document = json.loads(json.dumps(grid.to_geojson(), allow_nan=False))
    assert document["type"] == "FeatureCollection"
    assert [feature["id"] for feature in document["features"]] == list(range(grid.size))
    for feature in document["features"]:
        for ring in polygons(feature):
            assert ring[0] == ring[-1]
            assert len(ring) >= 4
            assert signed_area(ring) > 0
            assert all(-180 <= lng <= 180 and -90 <= lat <= 90 for lng, lat in ring)
            assert max(lng for lng, _ in ring) - min(lng for lng, _ in ring) < 90


@pytest.mark.parametrize("grid", [FIJI, BESIDE, ARCTIC], ids=repr)
def test_cells_are_cut_at_the_date_line_and_nowhere_else(grid: Grid) -> None:
    features = grid.to_geojson()["features"]
    lng = grid.plane.to_latlng(grid.corners_km())[1]
    turned = np.remainder(lng - grid.plane.lng + 180, 360) - 180 + grid.plane.lng
    side = np.sign(np.abs(turned) - 180)
    corners = np.stack([side[:-1, :-1], side[:-1, 1:], side[1:, 1:], side[1:, :-1]])
    crosses = (corners.min(axis=0) * corners.max(axis=0) < 0).ravel()
    for feature, cut in zip(features, crosses, strict=True):
        rings = polygons(feature)
        assert len(rings) == (2 if cut else 1)
        if cut:
            west, east = sorted(rings, key=lambda ring: -ring[0][0])
            assert max(lng for lng, _ in west) == 180.0
            assert min(lng for lng, _ in east) == -180.0
    if grid is not BESIDE:
        assert crosses.sum() >= grid.rows - 1


def test_a_cell_holds_its_centre_and_the_cells_fill_the_grid() -> None:
    shapely = pytest.importorskip("shapely.geometry")
    for grid in (PARIS, FIJI, ARCTIC):
        lat, lng = grid.centres_latlng()
        shapes = [shapely.shape(feature["geometry"]) for feature in grid.to_geojson()["features"]]
        assert all(shape.is_valid for shape in shapes)
        for cell in range(0, grid.size, 7):
            centre = shapely.Point(lng[cell], lat[cell])
            assert shapes[cell].covers(centre)
            assert sum(shape.covers(centre) for shape in shapes) == 1
    corners = PARIS.corners_km()
    outline = np.concatenate([corners[0], corners[1:, -1], corners[-1, -2::-1], corners[-2::-1, 0]])
    lat, lng = PARIS.plane.to_latlng(outline)
    whole = shapely.Polygon(np.stack([lng, lat], axis=1)).area
    parts = sum(shapely.shape(f["geometry"]).area for f in PARIS.to_geojson()["features"])
    assert parts == pytest.approx(whole, rel=1e-9)


def test_properties_travel_and_gaps_are_null() -> None:
    share = np.full(PARIS.size, 1 / PARIS.size)
    share[3] = np.nan
    names = [f"cell {cell}" for cell in range(PARIS.size)]
    document = PARIS.to_geojson({"share": share, "count": np.arange(PARIS.size), "name": names})
    features = json.loads(json.dumps(document, allow_nan=False))["features"]
    assert features[3]["properties"] == {"cell": 3, "share": None, "count": 3, "name": "cell 3"}
    assert features[5]["properties"]["share"] == 1 / PARIS.size
    with pytest.raises(InvalidInput, match="property 'share'"):
        PARIS.to_geojson({"share": share[1:]})


def test_points_are_points() -> None:
    places = Points(lat=[-16.5, -16.6], lng=[179.5, 180.5])
    features = json.loads(json.dumps(places.to_geojson({"people": [3, 4]})))["features"]
    assert features[0]["geometry"] == {"type": "Point", "coordinates": [179.5, -16.5]}
    assert features[1]["geometry"]["coordinates"] == [-179.5, -16.6]
    assert features[1]["properties"] == {"cell": 1, "people": 4}
