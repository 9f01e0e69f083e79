"""Boxes: where a flat map is sound, and the rectangle that holds all of a box."""

from __future__ import annotations

import numpy as np
import pytest

from geoveil.errors import InvalidFile, InvalidInput
from geoveil.space.box import Box

PARIS = Box(south=48.8286, west=2.2855, north=48.8798, east=2.3909)
BOXES = [
    PARIS,
    Box(south=-3.0, west=10.0, north=2.0, east=14.0),
    Box(south=78.0, west=-5.0, north=81.5, east=25.0),
    Box(south=-34.5, west=150.5, north=-33.0, east=151.5),
    Box(south=-18.0, west=178.5, north=-16.0, east=-179.0),
    Box(south=89.5, west=-100.0, north=89.94, east=-12.0),
    Box(south=-89.9, west=170.0, north=-89.0, east=-150.0),
]
boxes = pytest.mark.parametrize("box", BOXES, ids=str)


def edges(box: Box, samples: int = 4001) -> np.ndarray:
    """Plane coordinates of densely sampled edges."""
    lat = np.linspace(box.south, box.north, samples)
    lng = box.west + np.linspace(0.0, box.width, samples)
    sides = [
        box.plane.to_plane(lat=lat, lng=np.full(samples, side)) for side in (box.west, box.east)
    ]
    ends = [
        box.plane.to_plane(lat=np.full(samples, end), lng=lng) for end in (box.south, box.north)
    ]
    return np.concatenate(sides + ends)


@boxes
def test_the_rectangle_bounds_the_curved_edges_tightly(box: Box) -> None:
    sampled = edges(box)
    west, south, east, north = box.rectangle_km
    tight = np.array([[west, south], [east, north]])
    assert (sampled.min(axis=0) >= tight[0] - 1e-9).all()
    assert (sampled.max(axis=0) <= tight[1] + 1e-9).all()
    found = np.stack([sampled.min(axis=0), sampled.max(axis=0)])
    assert np.abs(found - tight).max() < 1e-4  # the samples miss an extreme by less


@boxes
def test_a_box_around_its_corners_is_itself(box: Box) -> None:
    lat, lng = [box.south, box.north], [box.west, box.east]
    assert list(Box.around(lat=lat, lng=lng)) == list(box)


def test_the_smallest_covering_arc() -> None:
    box = Box.around(lat=[1.0, 2.0, 1.5], lng=[179.5, -179.0, 180.0])
    assert list(box) == [1.0, 179.5, 2.0, -179.0]
    assert box.width == pytest.approx(1.5)
    box = Box.around(lat=[1.0], lng=[722.0])
    assert (box.west, box.east, box.width) == (2.0, 2.0, 0.0)
    assert Box.around(lat=[0, 0], lng=[-1.0, 2.0]).width == 3.0
    assert Box.around(lat=[0, 0], lng=[-180.0, 180.0]).width == 0.0


def test_longitudes_are_wrapped_and_180_stays() -> None:
    box = Box(south=0, west=176.0, north=1, east=181.0)
    assert (box.west, box.east, box.width) == (176.0, -179.0, 5.0)
    assert Box(south=0, west=175, north=1, east=180).width == 5.0
    assert Box(south=0, west=180, north=1, east=-175).width == 5.0
    assert Box(south=0, west=-180, north=1, east=-175).width == 5.0


def test_a_margin_is_at_least_what_was_asked() -> None:
    for box in BOXES[:5]:
        wider = box.widened(10.0)
        margins = np.array(wider.rectangle_km) - np.array(box.rectangle_km)
        shift = box.plane.to_plane(lat=wider.plane.lat, lng=wider.plane.lng)
        assert np.abs(shift).max() < 1e-6  # the same centre, so the rectangles compare
        assert (margins * [-1, -1, 1, 1] >= 10.0 - 0.02).all()  # the plane shortens
        assert (margins * [-1, -1, 1, 1] <= 17.0).all()  # a degree at its shortest
    flat = Box.around(lat=[5.0], lng=[6.0]).widened(0.0, least_km=1.0)
    west, south, east, north = flat.rectangle_km
    assert 0.89 < east - west < 0.92
    assert 0.89 < north - south < 0.92


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((48.9, 2.2, 48.8, 2.4), r"south \(48.9\) must be below north \(48.8\); swap them"),
        ((48.8, 2.2, 95.0, 2.4), r"north \(95\) must lie in -90 … 90 degrees"),
        ((-90.5, 2.2, -90.0, 2.4), r"south \(-90.5\) must lie in -90 … 90 degrees"),
        ((np.nan, 2.2, 48.9, 2.4), r"south \(nan\) must be finite"),
        ((48.8, 2.2, 48.9, np.inf), r"east \(inf\) must be finite"),
        (("48.8", 2.2, 48.9, 2.4), r"south \('48.8'\) must be a number"),
        ((True, 2.2, 48.9, 2.4), r"south \(True\) must be a number"),
        ((89.0, 2.2, 89.96, 2.4), "away from the poles"),
        ((-90.0, 2.2, -89.0, 2.4), "away from the poles"),
        ((-90.0, -180.0, 90.0, 180.0), "away from the poles"),
        ((0.0, -180.0, 1.0, 180.0), r"\(360° of longitude\) must be at most 90° wide"),
        ((0.0, 0.0, 1.0, 360.0), r"\(360° of longitude\) must be at most 90° wide"),
        ((0.0, -10.0, 1.0, 370.0), r"\(380° of longitude\) must be at most 90° wide"),
        ((0.0, 3.0, 1.0, 2.0), r"\(359° of longitude\) must be at most 90° wide"),
        ((0.0, 2.0, 1.0, 15.0), r"km from centre to corner\) must reach at most 500 km"),
        ((40.0, 2.0, 50.0, 3.0), r"km from centre to corner\) must reach at most 500 km"),
    ],
)
def test_a_box_without_a_sound_map_is_refused(edges: tuple, message: str) -> None:
    south, west, north, east = edges
    with pytest.raises(InvalidInput, match=message) as caught:
        Box(south=south, west=west, north=north, east=east)
    assert "\n" not in str(caught.value)


def test_a_refused_box_around_data_does_not_tell_the_data() -> None:
    for lat, lng in (
        ([89.98123, 80.0], [1, 2]),
        ([0, 0], [11.98123, 170]),
        ([41.98123, 60], [1, 1]),
    ):
        with pytest.raises(InvalidInput) as caught:
            Box.around(lat=lat, lng=lng)
        assert "98123" not in str(caught.value)
    with pytest.raises(InvalidInput, match="at least one place"):
        Box.around(lat=[], lng=[])


def test_a_margin_around_the_globe_is_refused() -> None:
    for margin in (6_000.0, 40_000.0, 1e300, np.inf):
        with pytest.raises(InvalidInput):
            PARIS.widened(margin)
    beside_the_pole = Box(south=89.7, west=0.0, north=89.8, east=80.0)
    with pytest.raises(InvalidInput, match=r"\(4\d\d.*° of longitude"):  # not once around less
        beside_the_pole.widened(16.5)


@pytest.mark.parametrize("edges", [None, "box", [1, 2, 3], [1, 2, 3, 4, 5], {"south": 1}])
def test_a_list_of_another_form_is_refused(edges: object) -> None:
    with pytest.raises(InvalidFile, match="south, west, north, east"):
        Box.from_list(edges)
