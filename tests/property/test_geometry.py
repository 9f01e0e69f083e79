"""Geometry is safe everywhere: whatever comes in, a cell or a typed error, and a true metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoveil.errors import GeoveilError, InvalidInput
from geoveil.space import Grid, Line, Points, Space, TangentPlane

NASTY = [
    0.0, -0.0, 90.0, -90.0, 89.95, 89.949, -89.95, 180.0, -180.0, 179.9999999, 360.0, -540.0,
    1e-300, 5e-324, 1e16, 1e300, -1e308, np.inf, -np.inf, np.nan, 48.85, 2.35,
]  # fmt: skip
CASES = 100_000
cities = [
    Grid.from_box(south=48.8286, west=2.2855, north=48.8798, east=2.3909, cell_km=0.5),
    Grid.from_box(south=-18.3, west=177.0, north=-16.0, east=-178.4, cell_km=11.0),
    Grid.from_box(south=89.5, west=0.0, north=89.93, east=80.0, cell_km=2.0),
    Grid.from_box(south=-0.4, west=-0.3, north=0.1, east=0.2, cell_km=0.7),
]
degrees = st.one_of(
    st.sampled_from(NASTY), st.floats(), st.floats(-90, 90), st.floats(-180, 180), st.integers()
)


def nasty_numbers(generator: np.random.Generator, size: int) -> np.ndarray:
    """Special values, their neighbours, plain degrees, and any 64 bits read as a number."""
    kind = generator.integers(0, 4, size)
    special = generator.choice(NASTY, size)
    with np.errstate(over="ignore", invalid="ignore"):
        beside = np.nextafter(special, generator.choice([-np.inf, np.inf], size))
    plain = generator.uniform(-200, 200, size)
    bits = generator.integers(0, 2**64, size, dtype=np.uint64).view(np.float64)
    return np.choose(kind, [special, beside, plain, bits])


def sound(lat: np.ndarray, lng: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.isfinite(lat) & np.isfinite(lng) & (np.abs(lat) <= 90)


@pytest.mark.parametrize("grid", cities, ids=repr)
def test_100000_nasty_places_find_a_cell_or_a_typed_error(grid: Grid) -> None:
    generator = np.random.default_rng(27)
    lat, lng = nasty_numbers(generator, CASES), nasty_numbers(generator, CASES)
    good = sound(lat, lng)
    assert 0.2 * CASES < good.sum() < 0.9 * CASES
    cells = grid.locate(lat=lat[good], lng=lng[good], outside="clamp")
    assert ((cells >= 0) & (cells < grid.size)).all()
    inside = grid.inside(lat=lat[good], lng=lng[good])
    assert (grid.locate(lat=lat[good], lng=lng[good], outside="drop") == cells[inside]).all()
    for place in np.flatnonzero(~good)[:400]:
        with pytest.raises(InvalidInput):
            grid.locate(lat=lat[place], lng=lng[place])
    first = int(np.flatnonzero(~good)[0])
    with pytest.raises(InvalidInput, match=f"position {first} ") as caught:
        grid.locate(lat=lat[: first + 1], lng=lng[: first + 1])
    assert "\n" not in str(caught.value)


def test_100000_nasty_places_find_a_nearest_place() -> None:
    generator = np.random.default_rng(28)
    lat, lng = nasty_numbers(generator, CASES), nasty_numbers(generator, CASES)
    good = sound(lat, lng)
    places = Points(lat=[48.83, 48.85, 48.87], lng=[2.29, 2.38, 2.33])
    cells = places.locate(lat=lat[good], lng=lng[good])
    assert ((cells >= 0) & (cells < 3)).all()
    with pytest.raises(InvalidInput):
        places.locate(lat=lat, lng=lng)


@settings(max_examples=200, deadline=None)
@given(south=degrees, west=degrees, height=degrees, width=degrees, cell_km=degrees)
def test_any_box_makes_a_sound_grid_or_a_typed_error(
    south: Any, west: Any, height: Any, width: Any, cell_km: Any
) -> None:
    try:
        with np.errstate(all="ignore"):
            north, east = float(south) + float(height), float(west) + float(width)
    except OverflowError:
        north, east = height, width
    try:
        grid = Grid.from_box(south=south, west=west, north=north, east=east, cell_km=cell_km)
    except GeoveilError:
        return
    assert grid.box is not None
    south, west, north, east = grid.box
    assert grid.inside(lat=[south, north], lng=[west, east]).all()
    assert Grid.from_dict(grid.to_dict()) == grid


@settings(max_examples=100, deadline=None)
@given(
    lat=st.floats(-89.8, 89.8),
    lng=st.floats(-400, 400),
    height=st.floats(0.001, 2.0),
    width=st.floats(0.001, 4.0),
    cells=st.floats(0.5, 40.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_place_of_any_sound_box_lies_in_a_cell_around_it(
    lat: float, lng: float, height: float, width: float, cells: float, seed: int
) -> None:
    try:
        # a share of the longer side; a degree is at most 112 km
        cell_km = 112.0 * max(height, width) / cells
        grid = Grid.from_box(
            south=lat, west=lng, north=lat + height, east=lng + width, cell_km=cell_km
        )
    except GeoveilError:
        return
    assert grid.box is not None
    share = np.random.default_rng(seed).uniform(size=(2, 200))
    here_lat = grid.box.south + share[0] * (grid.box.north - grid.box.south)
    here_lng = grid.box.west + share[1] * grid.box.width
    found = grid.locate(lat=here_lat, lng=here_lng, outside="raise")
    offset = grid.plane.to_plane(lat=here_lat, lng=here_lng) - grid.centres[found]
    assert np.hypot(*offset.T).max() <= 0.51 * grid.cell_km * np.sqrt(2)
    lat_of, lng_of = grid.centres_latlng()
    assert (grid.locate(lat=lat_of, lng=lng_of, outside="raise") == np.arange(grid.size)).all()


@settings(max_examples=100, deadline=None)
@given(
    origin=st.tuples(st.floats(-90, 90), st.floats(-180, 180)),
    seed=st.integers(0, 2**32 - 1),
    reach=st.floats(1e-6, 6000.0),
)
def test_the_plane_round_trips_from_any_origin(
    origin: tuple[float, float], seed: int, reach: float
) -> None:
    plane = TangentPlane(*origin)
    xy = np.random.default_rng(seed).uniform(-0.7, 0.7, (50, 2)) * reach
    lat, lng = plane.to_latlng(xy)
    assert np.abs(plane.to_plane(lat=lat, lng=lng) - xy).max() < 1e-8


spaces = st.one_of(
    st.builds(Line, st.integers(1, 40)),
    st.builds(
        Grid,
        rows=st.integers(1, 9),
        columns=st.integers(1, 9),
        cell_km=st.floats(1e-9, 1e9),
    ),
    st.sampled_from(cities),
    st.lists(
        st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=20, unique=True
    ).map(lambda xy: Points(xy_km=xy)),
)


@settings(max_examples=100, deadline=None)
@given(space=spaces, seed=st.integers(0, 2**32 - 1))
def test_distances_are_a_metric(space: Space, seed: int) -> None:
    a, b, c = np.random.default_rng(seed).integers(0, space.size, (3, 200))
    forth, back = space.distance_km(a, b), space.distance_km(b, a)
    assert (forth == back).all()
    assert ((forth == 0) == (a == b)).all()
    detour = forth + space.distance_km(b, c)
    assert (space.distance_km(a, c) <= detour * (1 + 1e-12)).all()
    from_first = space.distances_from_km(int(a[0]))
    assert (from_first[b] == space.distance_km(a[0], b)).all()
