"""The area of a document: what is taken at the very limits, and what is not."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.document.area import (
    WIDEST_GRID,
    Area,
    packed_integers,
    packed_weights,
    unpacked_weights,
)
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput
from geoveil.position.whole_law import leading_bits, whole_weights
from geoveil.space import MOST_CELLS, MaskedGrid
from geoveil.space.projection import TangentPlane

BOX = {"south": 48.8, "west": 2.3, "north": 48.83, "east": 2.34}
GRID = gv.Grid.from_box(**BOX, cell_km=0.5)
PLANE = TangentPlane(lat=48.8, lng=2.3)


def a_list(**changed: Any) -> dict[str, Any]:
    points = packed_integers(np.array([0, 0, 3, -2, 5, 7]), signed=True)
    whole = {"kind": "centres", "origin": [48.8, 2.3], "cell_km": 0.5, "points": points}
    return {**whole, **changed}


def masked(mask: np.ndarray, extra: int = 0) -> dict[str, Any]:
    bits = np.packbits(np.concatenate((mask, np.zeros(extra, dtype=bool))))
    return {**GRID.to_dict(), "mask": b64encode(bits.tobytes()).decode()}


@pytest.mark.parametrize("kind", ["grid", "mask", "list"])
def test_it_comes_back_as_it_was_written(kind: str) -> None:
    mask = np.arange(GRID.size) % 3 > 0
    area = {
        "grid": lambda: Area.of_squares(GRID),
        "mask": lambda: Area.of_squares(MaskedGrid(GRID, mask)),
        "list": lambda: Area.of_places(PLANE, np.array([[0, 0], [3, -2], [5, 7]]), 0.5),
    }[kind]()
    again = Area.from_dict(area.to_dict())
    assert again.to_dict() == area.to_dict()
    assert again.size == {"grid": GRID.size, "mask": mask.sum(), "list": 3}[kind]
    assert again.cell_km == 0.5
    here, there = area.centres(step=4, rim=0), again.centres(step=4, rim=0)
    assert np.array_equal(here.points, there.points)
    assert (here.low, here.high) == (there.low, there.high)


def test_two_cells_are_enough_and_one_is_not() -> None:
    two = np.zeros(GRID.size, dtype=bool)
    two[[1, 4]] = True
    assert Area.of_squares(MaskedGrid(GRID, two)).size == 2
    assert Area.from_dict(masked(two)).size == 2
    two[4] = False
    with pytest.raises(InvalidInput, match="must leave at least two cells"):
        MaskedGrid(GRID, two)
    one = gv.Grid.from_box(south=48.0, west=2.0, north=48.001, east=2.001, cell_km=0.5)
    with pytest.raises(InvalidInput, match="2 to 65536 cells, not 1"):
        Area.of_squares(one)
    places = np.array([[0, 0], [1, 0]])
    assert Area.of_places(PLANE, places, 1.0).size == 2
    for wrong in (places[:1], places[[0, 0]]):
        with pytest.raises(InvalidInput, match="different places"):
            Area.of_places(PLANE, wrong, 1.0)


def test_a_mask_is_kept_apart_from_the_one_that_was_given() -> None:
    mask = np.ones(GRID.size, dtype=bool)
    area = Area.of_squares(MaskedGrid(GRID, mask))
    mask[:] = False
    assert area.size == GRID.size


def test_where_somebody_stands_is_inside_only_in_a_cell_that_exists() -> None:
    mask = np.ones(GRID.size, dtype=bool)
    mask[0] = False
    lat, lng = (float(axis[0]) for axis in GRID.centres_latlng())
    assert Area.of_squares(GRID).inside(lat, lng)
    assert not Area.of_squares(MaskedGrid(GRID, mask)).inside(lat, lng)
    assert not Area.of_squares(GRID).inside(lat - 1, lng)
    places = Area.of_places(PLANE, np.array([[0, 0], [1, 0]]), 1.0)
    assert places.inside(lat - 1, lng)


def test_places_are_measured_from_cell_0_or_from_the_plane() -> None:
    area = Area.of_squares(GRID)
    lat, lng = (float(axis[3]) for axis in GRID.centres_latlng())
    assert np.allclose(area.place_km(lat, lng), GRID.centres[3] - GRID.centres[0], atol=1e-9)
    assert np.allclose(area.latlng(area.place_km(lat, lng)), (lat, lng), atol=1e-9)
    assert np.array_equal(Area.from_dict(a_list()).origin_km, [0.0, 0.0])


def test_a_rim_goes_round_grids_only() -> None:
    assert Area.of_squares(GRID).centres(step=4, rim=1).size > GRID.size
    with pytest.raises(InvalidInput, match="rim must be 0"):
        Area.from_dict(a_list()).centres(step=4, rim=1)


def test_places_reach_as_far_as_a_plane_is_true_and_no_farther() -> None:
    for axis in (0, 1):
        points = np.array([[0, 0], [0, 0]])
        points[1, axis] = 1_996  # 499 km
        assert Area.of_places(PLANE, points, 1.0).centres(step=4, rim=0).size == 2
        points[1, axis] += 8  # 501 km
        with pytest.raises(InvalidInput, match=r"the list of places .* must reach at most 500 km"):
            Area.of_places(PLANE, points, 1.0).centres(step=4, rim=0)


@pytest.mark.parametrize("cell_km", [1e-3, 1e3, 1])
def test_cells_at_the_limits_are_taken(cell_km: float) -> None:
    assert Area.from_dict(a_list(cell_km=cell_km)).cell_km == cell_km


@pytest.mark.parametrize(
    "changed",
    [
        {"cell_km": 0.99e-3},
        {"cell_km": 1.01e3},
        {"cell_km": True},
        {"cell_km": "1"},
        {"origin": [48.8]},
        {"origin": [48.8, 2.3, 1.0]},
        {"origin": "48.8"},
        {"origin": [48.8, None]},
        {"points": packed_integers(np.array([0, 0, 1]), signed=True)},
        {"points": ""},
        {"points": 3},
        {"points": "AAAA"},
        {"points": "AAAAAA=="},
        {"points": "AAAAAB=="},
        {"points": "é"},
        {"more": 1},
    ],
)
def test_a_list_that_is_not_one_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidFile):
        Area.from_dict(a_list(**changed))


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_sides_are_whole_numbers_from_one(side: str) -> None:
    """One row or one column is a grid; what is no side is refused as such, before anything is computed."""
    thin = gv.Grid.from_box(south=48.8, west=2.3, north=48.804, east=2.34, cell_km=0.5)
    tall = gv.Grid.from_box(south=48.8, west=2.3, north=48.83, east=2.306, cell_km=0.5)
    row = thin if side == "rows" else tall
    assert row.to_dict()[side] == 1
    assert Area.from_dict(row.to_dict()).size == row.size
    for wrong in (0, -1, MOST_CELLS + 1, True, 1.0, "2", None, [2], 10**30):
        with pytest.raises(InvalidFile, match=f"must be whole numbers up to {MOST_CELLS}"):
            Area.from_dict({**GRID.to_dict(), side: wrong})


def test_other_things_are_refused() -> None:
    short = masked(np.ones(GRID.size, dtype=bool))
    spare = np.ones(GRID.size + 1, dtype=bool)
    wrong: list[Any] = [
        None,
        [],
        {"kind": "grid"},
        {**GRID.to_dict(), "rows": 0},
        {**GRID.to_dict(), "rows": True},
        {**GRID.to_dict(), "rows": 65_537},
        {**GRID.to_dict(), "columns": 1.0},
        {**GRID.to_dict(), "box": None},
        {**short, "mask": short["mask"][:-4]},
        {**short, "mask": 7},
        masked(np.ones(GRID.size, dtype=bool), extra=8),
    ]
    if GRID.size % 8:
        wrong.append(masked(spare))
    for values in wrong:
        with pytest.raises(GeoveilError):
            Area.from_dict(values)


# -- many cells --------------------------------------------------------------------------------


def test_as_many_cells_as_may_be_and_no_more() -> None:
    whole = gv.Grid.from_box(south=48.0, west=1.0, north=50.29, east=4.5, cell_km=1.0)
    rows, columns = 256, 256
    assert whole.rows >= rows
    assert whole.columns >= columns
    assert whole.size <= WIDEST_GRID
    mask = np.zeros(whole.shape, dtype=bool)
    mask[:rows, :columns] = True
    area = Area.of_squares(MaskedGrid(whole, mask.ravel()))
    assert (area.size, area.many) == (MOST_CELLS, True)
    again = Area.from_dict(area.to_dict())
    assert np.array_equal(again.centres(step=2, rim=0).points, area.centres(step=2, rim=0).points)
    mask[rows, 0] = True
    with pytest.raises(InvalidInput, match="2 to 65536 cells, not 65537"):
        Area.of_squares(MaskedGrid(whole, mask.ravel()))
    with pytest.raises(InvalidFile, match="at most 65536 cells"):
        Area.from_dict(whole.to_dict())
    wide = gv.Grid.from_box(south=46.0, west=0.0, north=49.5, east=6.0, cell_km=1.0)
    few = np.arange(wide.size) < 9
    with pytest.raises(InvalidInput, match="must have at most 131072 cells"):
        Area.of_squares(MaskedGrid(wide, few))


def test_every_weight_of_two_bytes_has_one_code() -> None:
    codes = np.arange(1, 22 << 11)
    text = b64encode(codes.astype(">u2").tobytes()).decode()
    weights = unpacked_weights(text)
    assert packed_weights(weights) == text
    assert (np.diff(weights) > 0).all()
    assert weights[[0, 2046, 2047, -1]].tolist() == [1, 2047, 2048, 4095 << 20]
    assert unpacked_weights("AAA=").tolist() == [0]


@pytest.mark.parametrize("text", ["", "AA==", "AAAAAAA", "sAA=", "//8=", 7, None])
def test_what_is_no_list_of_weights_is_refused(text: Any) -> None:
    """No code, half a code, no base 64, 2³² and more, no text."""
    with pytest.raises(InvalidFile):
        unpacked_weights(text)


def test_weights_of_more_bits_are_not_packed_as_others() -> None:
    with pytest.raises(InvalidInput, match="12 leading bits"):
        packed_weights(np.array([4097]))


def test_rounding_to_leading_bits_changes_little() -> None:
    weights = np.random.default_rng(1).gamma(0.3, size=70_000)
    exact, short = whole_weights(weights), whole_weights(weights, short=True)
    assert np.array_equal(leading_bits(short), short)
    assert (np.abs(short - exact) <= exact / 4096).all()
    assert np.array_equal(short[exact < 4096], exact[exact < 4096])
    assert unpacked_weights(packed_weights(short)).sum() < 1 << 31
