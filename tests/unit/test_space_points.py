"""Places of interest: nearest by brute force, on the ground, and what is refused."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

from geoveil.errors import InvalidFile, InvalidInput, Unsupported
from geoveil.space import Points, space_from_dict

GENERATOR = np.random.default_rng(21)
PARIS = Points(lat=GENERATOR.uniform(48.82, 48.88, 60), lng=GENERATOR.uniform(2.28, 2.39, 60))
FIJI = Points(lat=GENERATOR.uniform(-17.5, -16.0, 40), lng=GENERATOR.uniform(179.0, 181.0, 40))
ABSTRACT = Points(xy_km=[[0.0, 0.0], [3.0, 4.0], [-1.0, 2.0]])
spaces = pytest.mark.parametrize("space", [PARIS, FIJI], ids=["paris", "fiji"])


@spaces
def test_the_nearest_place_on_the_ground(space: Points) -> None:
    pyproj = pytest.importorskip("pyproj")
    lat, lng = space.centres_latlng()
    share = np.random.default_rng(1).uniform(-0.2, 1.2, (2, 300))
    middle = space.plane.lng
    turn = np.remainder(lng - middle + 180, 360) - 180
    here_lat = lat.min() + share[0] * np.ptp(lat)
    here_lng = middle + turn.min() + share[1] * np.ptp(turn)
    cells = space.locate(lat=here_lat, lng=here_lng)
    pairs = [np.repeat(here_lng, space.size), np.repeat(here_lat, space.size)]
    there = [np.tile(lng, 300), np.tile(lat, 300)]
    true = np.reshape(pyproj.Geod(ellps="WGS84").inv(*pairs, *there)[2], (300, space.size)) / 1000
    chosen = true[np.arange(300), cells]
    assert (chosen <= true.min(axis=1) * 1.0005 + 1e-9).all()  # the plane's own error at a tie


@spaces
def test_distances_hold_on_the_ground(space: Points) -> None:
    pyproj = pytest.importorskip("pyproj")
    lat, lng = space.centres_latlng()
    a, b = np.divmod(np.arange(space.size**2), space.size)
    true = np.array(pyproj.Geod(ellps="WGS84").inv(lng[a], lat[a], lng[b], lat[b])[2]) / 1000
    plane = space.distances_km().ravel()
    assert (plane <= true + 1e-9).all()
    assert (plane >= 0.9995 * true - 1e-9).all()


@spaces
def test_places_find_themselves(space: Points) -> None:
    lat, lng = space.centres_latlng()
    assert (space.locate(lat=lat, lng=lng) == np.arange(space.size)).all()
    assert (space.locate_km(space.centres) == np.arange(space.size)).all()
    assert (space.locate(lat=lat, lng=lng + 360) == np.arange(space.size)).all()


def test_plane_coordinates() -> None:
    assert ABSTRACT.distance_km(0, [0, 1]).tolist() == [0.0, 5.0]
    assert ABSTRACT.locate_km([2.9, 3.0]) == 1
    assert type(ABSTRACT.locate_km([2.9, 3.0])) is int
    assert ABSTRACT.locate_km([[1e300, 1e300], [-1e300, 0]]).tolist() == [1, 2]  # type: ignore[union-attr]
    for call in (
        ABSTRACT.centres_latlng,
        ABSTRACT.to_geojson,
        lambda: ABSTRACT.locate(lat=1, lng=1),
    ):
        with pytest.raises(Unsupported, match="no coordinates in degrees"):
            call()


def test_one_place_and_one_point() -> None:
    one = Points(lat=[48.85], lng=[2.35])
    assert one.size == 1
    assert one.locate(lat=-48.0, lng=-170.0) == 0
    assert type(one.locate(lat=48.0, lng=2.0)) is int
    assert one.locate(lat=[], lng=[]).shape == (0,)
    assert repr(one) == "Points(size=1)"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "as lat and lng, or as xy_km"),
        ({"lat": [1.0]}, "as lat and lng, or as xy_km"),
        ({"lat": [1.0], "xy_km": [[1.0, 2.0]]}, "as lat and lng, or as xy_km"),
        ({"lat": [1.0], "lng": [1.0], "xy_km": [[1.0, 2.0]]}, "as lat and lng, or as xy_km"),
        ({"lat": [], "lng": []}, "at least one"),
        ({"lat": 1.0, "lng": 1.0}, "a list of at least one"),
        ({"lat": [[1.0, 2.0]], "lng": [[1.0, 1.0]]}, "a list of at least one"),
        ({"xy_km": []}, "pairs"),
        ({"xy_km": [[1.0, np.nan]]}, "finite"),
        ({"xy_km": [[1.0, 1e200]]}, "within 1e\\+09 km"),
        ({"xy_km": [[0, 1], [2, 3], [0, 1]]}, "positions 0 and 2 are the same"),
        ({"lat": [5.0, 6.0, 5.0], "lng": [180.0, 0.0, -180.0]}, "wide"),
        ({"lat": [5.0, 6.0, 5.0], "lng": [180.0, 179.5, -180.0]}, "positions 0 and 2 are the same"),
        ({"lat": [0.0, 20.0], "lng": [0.0, 0.0]}, "500 km"),
        ({"lat": [89.99, 89.0], "lng": [0.0, 0.0]}, "poles"),
        ({"lat": [1.0, 2.0], "lng": [1.0]}, "one shape"),
        ({"lat": [1.0, 92.0], "lng": [1.0, 2.0]}, "position 1"),
    ],
)
def test_bad_places_get_one_clear_line(given: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        Points(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("space", [PARIS, FIJI, ABSTRACT], ids=["paris", "fiji", "abstract"])
def test_places_survive_json_and_pickle(space: Points) -> None:
    again = space_from_dict(json.loads(json.dumps(space.to_dict(), allow_nan=False)))
    for other in (again, pickle.loads(pickle.dumps(space))):
        assert other == space
        assert hash(other) == hash(space)
        assert (other.centres == space.centres).all()
    assert PARIS != FIJI
    with pytest.raises(ValueError, match="read-only"):
        space.centres[0] = 0.0


def test_what_is_given_is_copied() -> None:
    lat, lng = np.array([48.0, 48.1]), np.array([2.0, 2.1])
    xy = np.array([[0.0, 1.0]])
    places, plane = Points(lat=lat, lng=lng), Points(xy_km=xy)
    lat[0], xy[0, 0] = 0.0, 9.0
    assert places.centres_latlng()[0][0] == 48.0
    assert plane.centres[0, 0] == 0.0


def test_a_wrong_document_is_refused() -> None:
    for values in ({"kind": "points"}, {"kind": "points", "lat": [1]}, {"kind": "grid"}, None):
        with pytest.raises(InvalidFile):
            Points.from_dict(values)  # type: ignore[arg-type]
    for values in ({"lat": ["1"], "lng": [2]}, {"lat": None, "lng": None}, {"xy_km": "xy"}):
        with pytest.raises(InvalidInput):
            Points.from_dict({"kind": "points", **values})
