"""The tangent plane against geodesics of pyproj, an independent projection, and the whole globe."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import geoveil as gv
from geoveil.errors import InvalidInput, OutsideSpace
from geoveil.space.projection import TangentPlane, wrapped

CENTRES = [
    (0.0, 20.0),
    (48.8542, 2.3382),
    (80.0, 15.0),
    (-33.9, 151.2),
    (-16.8, 179.98),
    (89.0, -60.0),
]
centres = pytest.mark.parametrize(("lat", "lng"), CENTRES)


def ground(lat: float, lng: float, reach_km: float, size: int = 2000) -> tuple[np.ndarray, ...]:
    """Places within ``reach_km`` of a centre on the ground, by pyproj."""
    pyproj = pytest.importorskip("pyproj")
    generator = np.random.default_rng(11)
    azimuth = generator.uniform(0, 360, size)
    distance = reach_km * np.sqrt(generator.uniform(size=size))
    origin = np.full(size, lng), np.full(size, lat)
    far_lng, far_lat, _ = pyproj.Geod(ellps="WGS84").fwd(*origin, azimuth, 1000 * distance)
    return far_lat, far_lng, azimuth, distance


def geodesic_km(
    lat_a: np.ndarray, lng_a: np.ndarray, lat_b: np.ndarray, lng_b: np.ndarray
) -> np.ndarray:
    pyproj = pytest.importorskip("pyproj")
    _, _, metres = pyproj.Geod(ellps="WGS84").inv(lng_a, lat_a, lng_b, lat_b)
    return np.asarray(metres) / 1000


@centres
@pytest.mark.parametrize(("reach_km", "kept"), [(25.0, 0.99999), (100.0, 0.99985)])
def test_plane_distances_fall_short_of_geodesics_by_little(
    lat: float, lng: float, reach_km: float, kept: float
) -> None:
    far_lat, far_lng, _, _ = ground(lat, lng, reach_km)
    xy = TangentPlane(lat, lng).to_plane(lat=far_lat, lng=far_lng)
    half = len(xy) // 2
    plane = np.hypot(*(xy[:half] - xy[half:]).T)
    true = geodesic_km(far_lat[:half], far_lng[:half], far_lat[half:], far_lng[half:])
    assert (plane <= true * (1 + 1e-12) + 1e-9).all()
    # a pair far out and close together is shortened most, by the slope of the ground there
    assert (plane >= kept * true - 1e-9).all()


@centres
def test_directions_are_east_and_north(lat: float, lng: float) -> None:
    far_lat, far_lng, azimuth, distance = ground(lat, lng, 20.0)
    xy = TangentPlane(lat, lng).to_plane(lat=far_lat, lng=far_lng)
    expected = distance[:, None] * np.stack(
        [np.sin(np.deg2rad(azimuth)), np.cos(np.deg2rad(azimuth))], 1
    )
    assert np.abs(xy - expected).max() < 20.0 * 1e-5


@centres
def test_agrees_with_the_orthographic_projection_of_pyproj(lat: float, lng: float) -> None:
    pyproj = pytest.importorskip("pyproj")
    far_lat, far_lng, _, _ = ground(lat, lng, 3000.0)
    theirs = pyproj.Proj(proj="ortho", lat_0=lat, lon_0=lng, ellps="WGS84")(far_lng, far_lat)
    ours = TangentPlane(lat, lng).to_plane(lat=far_lat, lng=far_lng)
    assert np.abs(ours - np.stack(theirs, axis=1) / 1000).max() < 1e-6


@pytest.mark.parametrize(("lat", "lng"), [*CENTRES, (90.0, 0.0), (-89.9, 180.0)])
@pytest.mark.parametrize("reach_km", [1e-6, 1.0, 500.0, 6000.0])
def test_round_trip(lat: float, lng: float, reach_km: float) -> None:
    plane = TangentPlane(lat, lng)
    xy = np.random.default_rng(5).uniform(-0.7, 0.7, (500, 2)) * reach_km
    back_lat, back_lng = plane.to_latlng(xy)
    assert (np.abs(back_lat) <= 90).all()
    assert (back_lng >= -180).all()
    assert (back_lng < 180).all()
    assert np.abs(plane.to_plane(lat=back_lat, lng=back_lng) - xy).max() < 1e-9


def test_the_far_side_is_farther_than_the_near_side() -> None:
    generator = np.random.default_rng(3)
    lat = np.rad2deg(np.arcsin(generator.uniform(-1, 1, 20_000)))
    lng = generator.uniform(-180, 180, 20_000)
    for centre in CENTRES:
        radius = np.hypot(*TangentPlane(*centre).to_plane(lat=lat, lng=lng).T)
        distance = geodesic_km(np.full(20_000, centre[0]), np.full(20_000, centre[1]), lat, lng)
        beyond = distance > 10_100  # past the outline of the globe, which lies 10,000 km off
        assert radius[beyond].min() > radius[distance < 9_900].max() > 6300.0
        assert (radius <= distance + 1e-9).all()


@centres
def test_the_far_side_is_one_place(lat: float, lng: float) -> None:
    generator = np.random.default_rng(4)
    angle, turn = np.deg2rad(generator.uniform(0, 89.7, 5000)), generator.uniform(0, 360, 5000)
    pole = np.rad2deg(np.arcsin(np.cos(angle)))  # around the south pole, seen from the north one
    far = TangentPlane(90.0, 0.0).to_plane(lat=-pole, lng=turn)
    assert (far == far[0]).all()
    antipode = -lat + generator.normal(0, 0.3, 1000), lng + 180.0 + generator.normal(0, 0.3, 1000)
    places = TangentPlane(lat, lng).to_plane(lat=np.clip(antipode[0], -90, 90), lng=antipode[1])
    assert (places == far[0]).all()
    assert np.hypot(*far[0]) > 6378.2


@centres
def test_neighbours_anywhere_on_the_near_side_are_no_farther_apart_in_the_plane(
    lat: float, lng: float
) -> None:
    generator = np.random.default_rng(6)
    here_lat = np.rad2deg(np.arcsin(generator.uniform(-0.999, 0.999, 20_000)))
    here_lng = generator.uniform(-180, 180, 20_000)
    there_lat = np.clip(here_lat + generator.normal(0, 0.01, 20_000), -90, 90)
    there_lng = here_lng + generator.normal(0, 0.01, 20_000)
    plane = TangentPlane(lat, lng)
    here, there = (
        plane.to_plane(lat=here_lat, lng=here_lng),
        plane.to_plane(lat=there_lat, lng=there_lng),
    )
    far = TangentPlane(lat, lng).to_plane(lat=-lat, lng=lng + 180.0)
    one_side = (here == far).all(axis=1) == (there == far).all(axis=1)
    assert one_side.mean() > 0.99
    assert 0.4 < (here == far).all(axis=1).mean() < 0.6
    apart = np.hypot(*(here - there).T)
    ground = geodesic_km(here_lat, here_lng, there_lat, there_lng)
    assert (apart <= ground * (1 + 1e-9) + 1e-9)[one_side].all()


def test_longitudes_are_wrapped() -> None:
    plane = TangentPlane(-16.8, 179.98)
    expected = plane.to_plane(lat=-16.8, lng=-179.99)
    for turns in (-720.0, 360.0, 3600.0):
        assert np.abs(plane.to_plane(lat=-16.8, lng=-179.99 + turns) - expected).max() < 1e-9
    assert expected[0] == pytest.approx(0.03 * 106.6, rel=1e-3)
    assert TangentPlane(-16.8, 179.98 + 360.0).lng == pytest.approx(179.98)
    assert wrapped(np.array([180.0, -180.0, 540.0, 12.5])).tolist() == [
        -180.0,
        -180.0,
        -180.0,
        12.5,
    ]
    # to the last digit: web/sdk/test/parts.test.ts has the same
    beyond = np.array([180.1, 359.9, -180.3, -370.1, 1000000.1])
    turned = [-179.9, -0.10000000000002274, 179.7, -10.100000000000023, -79.90000000002328]
    assert wrapped(beyond).tolist() == turned


def test_shapes_follow_the_input() -> None:
    plane = TangentPlane(48.0, 2.0)
    assert plane.to_plane(lat=48.0, lng=2.0).tolist() == pytest.approx([0.0, 0.0], abs=1e-11)
    assert plane.to_plane(lat=np.full((3, 4), 48), lng=np.full((3, 4), 2)).shape == (3, 4, 2)
    assert plane.to_plane(lat=[], lng=[]).shape == (0, 2)
    lat, lng = plane.to_latlng(np.zeros((2, 5, 2)))
    assert lat.shape == lng.shape == (2, 5)


def test_blocks_do_not_show() -> None:
    generator = np.random.default_rng(8)
    lat, lng = generator.uniform(48, 49, 70_001), generator.uniform(2, 3, 70_001)
    plane = TangentPlane(48.5, 2.5)
    whole = plane.to_plane(lat=lat, lng=lng)
    for place in (0, 32_767, 32_768, 70_000):
        assert np.abs(whole[place] - plane.to_plane(lat=lat[place], lng=lng[place])).max() < 1e-11


def test_beyond_the_outline_there_is_no_place() -> None:
    for xy in ([6400.0, 0.0], [0.0, -1e300], [[0.0, 0.0], [5000.0, 5000.0]]):
        with pytest.raises(OutsideSpace, match="outline of the globe"):
            TangentPlane(10.0, 10.0).to_latlng(xy)


@pytest.mark.parametrize(
    ("lat", "lng", "message"),
    [
        ([48.123456, np.nan], [2.0, 2.0], "lat must be finite; the entry at position 1 is not"),
        ([48.0, 48.0], [2.0, np.inf], "lng must be finite; the entry at position 1 is not"),
        ([48.0, 90.5], [2.0, 2.0], "lat must lie in -90 … 90 degrees; the entry at position 1"),
        ([48.0], [2.0, 2.0], "must have one shape"),
        (["48.123456"], ["2.0"], "lat must be numbers"),
        (np.array(["48.123456"], dtype=object), [2.0], "lat must be numbers"),
        ([48.0, None], [2.0, 2.0], "lat must be finite"),
        ([True], [2.0], "lat must be numbers"),
        ([48 + 1j], [2.0], "lat must be numbers"),
        ([[48.0], [48.0, 1.0]], [2.0], "lat must be numbers"),
        ([10**400], [2.0], "lat must be numbers"),
        (np.ma.array([48.0, 48.0], mask=[0, 1]), [2.0, 2.0], "lat must be finite"),
        (np.array(["2020-01-01"], dtype="M8[D]"), [2.0], "lat must be numbers"),
    ],
)
def test_poison_gets_one_clear_line(lat: object, lng: object, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        TangentPlane(48.0, 2.0).to_plane(lat=lat, lng=lng)  # type: ignore[arg-type]
    text = str(caught.value)
    assert message in text
    assert "\n" not in text
    assert "48.123456" not in text


def test_the_origin_is_checked_without_being_told() -> None:
    for origin in ((91.2345, 0.0), (np.nan, 0.0), ("48.12345", 0.0), ([1.2345], [2.0])):
        with pytest.raises(InvalidInput) as caught:
            TangentPlane(*origin)
        assert "2345" not in str(caught.value)
    for xy in (3.0, [1.0, 2.0, 3.0]):
        with pytest.raises(InvalidInput, match="pairs"):
            TangentPlane(0.0, 0.0).to_latlng(xy)


# -- two names of the longitude, and coordinates that are none --------------------------------------

PARIS = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=0.5)
PLACES = gv.Points(lat=[48.83, 48.85], lon=[2.30, 2.35])
NOISE = gv.ContinuousLaplace(epsilon_per_km=2.0)
NAMED: list[Callable[..., object]] = [
    PARIS.locate,
    PARIS.inside,
    PARIS.nearest_cells,
    PLACES.locate,
    PLACES.nearest_cells,
    PARIS.plane.to_plane,
    lambda **at: gv.Grid.around(**at, cell_km=0.5).to_dict(),
    lambda **at: tuple(gv.Box.around(**at)),
    lambda **at: gv.Points(**at).to_dict(),
    lambda **at: NOISE.sample_latlng(**at, randomness=gv.seeded(3)),
    gv.NearestPlace(NOISE, PARIS).remap_latlng,
]


@pytest.mark.parametrize("call", NAMED)
def test_the_longitude_has_two_names_and_is_given_once(call: Callable[..., object]) -> None:
    lat, lng = [48.84, 48.86], [2.31, 2.36]
    np.testing.assert_equal(call(lat=lat, lon=lng), call(lat=lat, lng=lng))
    for wrong in ({}, {"lng": lng, "lon": lng}):
        with pytest.raises(InvalidInput, match=r"must be given once|must be given as lat and lng"):
            call(lat=lat, **wrong)


def test_a_plane_takes_either_name() -> None:
    assert TangentPlane(lat=48.85, lon=2.35) == TangentPlane(lat=48.85, lng=2.35)
    with pytest.raises(InvalidInput, match=r"longitude \(neither\) must be given once"):
        TangentPlane(lat=48.85)


def test_what_coordinates_look_like_is_said_without_them() -> None:
    with pytest.raises(
        OutsideSpace, match=r"2 of 2 .* latitude and longitude look swapped"
    ) as caught:
        PARIS.locate(lat=[2.31, 2.36], lng=[48.84, 48.86])
    assert "48.8" not in str(caught.value)
    with pytest.raises(
        InvalidInput, match="position 0 is not; latitude and longitude look swapped"
    ):
        PARIS.locate(lat=[-118.2, -118.3], lng=[34.1, 34.0])
    with pytest.raises(InvalidInput, match="projected coordinates in metres"):
        PARIS.locate(lat=6_250_000.0, lng=262_000.0)
    with pytest.raises(OutsideSpace, match="leave these out or use outside='clamp'"):
        PARIS.locate(lat=45.0, lng=3.0)
