"""Distinguishability functions: tables, Definition 3, the condition of Theorem 6, regions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from geoveil.errors import InvalidInput
from geoveil.optimal import (
    Region,
    TablePrivacy,
    applicable_theorems,
    regularity,
    superadditive_from_km,
)
from geoveil.optimal.regularity import check_increasing

root = gv.GeneralPrivacy(np.sqrt, "√d")
square = gv.GeneralPrivacy(np.square, "d²")
table = TablePrivacy(distances_km=(0.5, 2.0), losses=(0.5, 1.0))


@pytest.mark.parametrize(
    ("privacy", "regular", "start"),
    [
        (gv.PerKilometre(2.0), True, 0.0),
        (gv.GeneralPrivacy(lambda d: 0.7 * d, "0.7 d"), True, 0.0),
        (gv.LocalDifferentialPrivacy(1.0), True, None),
        (gv.BetweenPositions(2.0), True, 0.0),
        (gv.BetweenPositions(2.0, slack=0.01), True, None),
        (gv.WithinRadius(radius_km=1.5, epsilon=1.0), False, 1.5),
        (table, False, 2.0),
        (root, True, None),
        (square, False, 0.0),
        (gv.PerKilometre(1.0) + gv.WithinRadius(radius_km=3.0, epsilon=0.5), False, 3.0),
    ],
)
def test_regularity_and_the_distance_of_theorem_6(privacy, regular, start):
    found = regularity(privacy)
    assert bool(found) is regular
    assert superadditive_from_km(privacy) == start
    if not regular:
        a, b = found.counterexample_km
        assert privacy.loss(a + b) > privacy.loss(a) + privacy.loss(b)


@given(st.floats(0.1, 20), st.floats(0.1, 20), st.floats(0.1, 5))
@settings(max_examples=10)
def test_a_promise_within_a_radius_needs_exactly_that_disk(radius, disk, epsilon):
    words = applicable_theorems(
        gv.WithinRadius(radius_km=radius, epsilon=epsilon), Region.disk(diameter_km=disk)
    )
    assert words.superadditive_from_km == pytest.approx(radius, rel=1e-12)
    if abs(disk - radius) > 1e-9:
        assert words.as_on_the_plane is (disk >= radius)


def test_which_theorems_hold_in_words():
    city = Region.rectangle(width_km=3.0, height_km=1.5)
    per_km = applicable_theorems(gv.PerKilometre(1.0), city)
    assert per_km.laplace_is_optimal
    assert per_km.circular_suffices
    assert "Theorem 7" in str(per_km)
    assert "Theorem 9" in str(per_km)
    near = applicable_theorems(gv.WithinRadius(radius_km=1.0, epsilon=1.0), city)
    assert near.as_on_the_plane
    assert near.circular_suffices
    assert "rearrangement" in str(near)
    far = applicable_theorems(gv.WithinRadius(radius_km=2.0, epsilon=1.0), city)
    assert not far.as_on_the_plane
    assert "there is none" in str(far)
    places = applicable_theorems(gv.PerKilometre(1.0), Region.cells(gv.Line(4)))
    assert not places.laplace_is_optimal


def test_laplace_noise_is_best_only_where_the_loss_grows_with_distance_alone():
    """What rounding adds allows more at once, in a small region still more; and ε = 0 has no noise."""
    assert applicable_theorems(gv.BetweenPositions(1.0)).laplace_is_optimal
    rounded = gv.BetweenPositions(1.0, slack=0.3)
    disk = Region.disk(diameter_km=1.5)
    for where in (Region.plane(), disk):
        words = applicable_theorems(rounded, where)
        assert not words.laplace_is_optimal
        assert "Theorem 6 does not apply" in str(words)
    assert not applicable_theorems(rounded, disk).as_on_the_plane
    reached = [
        gv.optimal_noise(privacy=rounded, region=where, gap=5e-3).loss_reached
        for where in (None, disk)
    ]
    assert reached[1] < 1.7 < reached[0] < 1.9 < 2.0  # planar Laplace noise: 2/ε
    assert not applicable_theorems(gv.PerKilometre(0.0)).laplace_is_optimal


def test_a_disk_with_a_regular_function_is_theorem_5():
    words = applicable_theorems(gv.LocalDifferentialPrivacy(1.0), Region.disk(diameter_km=2.0))
    assert words.circular_suffices
    assert "Theorem 5" in str(words)
    elsewhere = Region.rectangle(width_km=2.0, height_km=2.0)
    assert not applicable_theorems(gv.LocalDifferentialPrivacy(1.0), elsewhere).circular_suffices


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda d: 1.0 / d, "must not decrease"),
        (lambda d: -d, "must not be negative"),
        (lambda d: np.where(d > 1, np.nan, d), "one number"),
        (np.cos, "must not"),
    ],
)
def test_functions_that_promise_nothing_sound(function, words):
    for check in (check_increasing, regularity, superadditive_from_km, applicable_theorems):
        with pytest.raises(InvalidInput, match=words):
            check(gv.GeneralPrivacy(function, "?"))


@pytest.mark.parametrize(
    ("distances", "losses"),
    [
        ((1.0, 1.0), (0.5, 1.0)),
        ((2.0, 1.0), (0.5, 1.0)),
        ((1.0, 2.0), (1.0, 0.5)),
        ((0.0, 2.0), (0.1, 0.5)),
        ((1.0,), (0.5, 1.0)),
        ((1.0,), (-0.5,)),
        ((1.0,), (math.nan,)),
        ((), ()),
    ],
)
def test_tables_that_are_none(distances, losses):
    with pytest.raises(InvalidInput):
        TablePrivacy(distances_km=distances, losses=losses)


def test_a_table_is_a_guarantee_like_the_others():
    assert table.loss(0.5) == 0.5
    assert table.loss(np.nextafter(0.5, 1)) == 1.0
    assert math.isinf(table.loss(2.1))
    assert gv.WithinRadius(radius_km=2.0, epsilon=0.5).implies(table)
    assert not table.implies(gv.WithinRadius(radius_km=2.0, epsilon=0.9))
    assert "0.5 up to 0.5 km" in table.sentence()


def test_the_moves_of_a_region():
    three = Region.cells(gv.Line(3))
    r, other = np.array([0.0, 0.2, 1.5, 0.1]), np.array([0.9, 0.2, 5.0, 0.2])
    moves = three.shortest_move_km(np.abs(r - other), r + other, 1e-9)
    # |r − r′| ≤ s ≤ r + r′ with s in {0, 1, 2}: none between 0.9 and 0.9, 0, none, none
    assert moves.tolist() == [math.inf, 0.0, math.inf, math.inf]
    disk = Region.disk(diameter_km=1.0)
    assert disk.shortest_move_km(np.abs(r - other), r + other, 1e-9).tolist() == pytest.approx(
        [0.9, 0.0, math.inf, 0.1]
    )


def test_a_box_is_a_rectangle_of_its_kilometres():
    box = gv.Box(south=48.8, west=2.3, north=48.9, east=2.4)
    region = Region.box(box)
    west, south, east, north = box.rectangle_km
    assert region.disk_km == pytest.approx(min(east - west, north - south))
    assert region.diameter_km == pytest.approx(math.hypot(east - west, north - south))
