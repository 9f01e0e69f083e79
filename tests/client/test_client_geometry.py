"""Promise 27 at the device: any numbers for a location give a cell or a typed refusal, never more."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from client.world import LYON, Collector, device, document
from geoveil.arrays import IntArray
from geoveil.client import Refused
from geoveil.client import location as module
from geoveil.client.collector import offered
from geoveil.document.wire import MechanismDocument
from geoveil.position.whole_law import WholeLaw

BOXES = {
    "lyon": (45.74, 4.81, 45.78, 4.87),
    "dateline": (-17.0, 179.9, -16.8, -179.9),
    "north": (89.7, -40.0, 89.8, 20.0),
    "south": (-78.0, 166.0, -77.8, 167.0),
    "equator": (-0.1, -0.1, 0.1, 0.1),
}


def campaign(name: str) -> MechanismDocument:
    south, west, north, east = BOXES[name]
    grid = gv.Grid.from_box(south=south, west=west, north=north, east=east, cell_km=4.0)
    return offered(document(grid=grid).served())[0]


STRANGE = [
    (math.nan, 4.84),
    (45.76, math.nan),
    (math.inf, 4.84),
    (45.76, -math.inf),
    (90.0000001, 0.0),
    (-91.0, 0.0),
    (1e308, 0.0),
    (10**400, 4.84),
    ("45.76", "4.84"),
    (None, None),
    (True, 4.84),
    (45.76 + 0j, 4.84),
    ([45.76], [4.84]),
    (np.array([45.76, 45.77]), np.array([4.84, 4.85])),
    (Decimal("45.76"), Decimal("4.84")),
]


@pytest.mark.filterwarnings("ignore:with outside")
@pytest.mark.parametrize("outside", ["refuse", "clamp"])
@pytest.mark.parametrize("place", STRANGE, ids=lambda place: str(place)[:40])
def test_what_is_no_location(place: Any, outside: Any, tmp_path: Path) -> None:
    collector = Collector()
    it = device(collector, tmp_path / "ledger.db")
    with pytest.raises(Refused) as caught:
        it.report(locate=lambda: place, outside=outside)
    assert caught.value.reason == "location"
    assert collector.attempts == []
    assert it.ledger.spent_per_km == 0.0


@pytest.mark.parametrize("place", [None, 7, (), (45.76,), (45.76, 4.84, 0.1, 7.0), "45"])
def test_what_is_no_pair(place: Any, tmp_path: Path) -> None:
    it = device(Collector(), tmp_path / "ledger.db")
    with pytest.raises(Refused) as caught:
        it.report(locate=lambda: place)
    assert caught.value.reason == "location"


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, Fraction])
def test_numbers_of_any_kind(kind: Any, tmp_path: Path) -> None:
    receipt = device(Collector(), tmp_path / "ledger.db").report(lat=kind(45.76), lng=kind(4.84))
    assert receipt.acknowledged


FAR = [
    (90.0, 0.0),
    (-90.0, 123.0),
    (45.76, 180.0),
    (45.76, -180.0),
    (-45.76, -175.16),
    (0, 0),
    (45.76, 1e9),
]


@pytest.mark.parametrize("place", FAR, ids=str)
def test_far_outside_the_nearest_cell_is_reported_unless_told_otherwise(
    place: Any, tmp_path: Path
) -> None:
    collector = Collector()
    it = device(collector, tmp_path / "ledger.db")
    with pytest.raises(Refused) as caught, pytest.warns(UserWarning, match="silence tells"):
        it.report(lat=place[0], lng=place[1], outside="refuse")
    assert caught.value.reason == "outside"
    assert collector.attempts == []
    assert it.ledger.spent_per_km == 0.0
    assert 0 <= it.report(lat=place[0], lng=place[1]).cell < LYON.size


SPECIAL = [0.0, 90.0, -90.0, 180.0, -180.0, 360.0, math.nan, math.inf, -math.inf, 5e-324, 1e308]


def places(count: int, box: tuple[float, ...], seed: int) -> np.ndarray:
    """Places near the box, all over the globe, and values that are no place at all."""
    source = np.random.default_rng(seed)
    south, west, north, east = box
    height, width = north - south, (east - west) % 360.0
    near = np.stack([south + height * source.uniform(-0.3, 1.3, count), np.full(count, west)])
    near[1] += width * source.uniform(-0.3, 1.3, count) + source.choice([-360.0, 0.0, 360.0], count)
    globe = np.stack([source.uniform(-90, 90, count), source.uniform(-720, 720, count)])
    odd = source.choice(SPECIAL, (2, count))
    which = source.integers(0, 6, count)
    return np.where(which == 0, odd, np.where(which < 3, globe, near)).T


def outcome(
    current: MechanismDocument, place: Any, outside: Any, patch: pytest.MonkeyPatch
) -> tuple[int, ...] | str:
    """The steps of the lattice that a report would be drawn from, or why there are none."""
    drawn_from: list[tuple[int, ...]] = []

    def draw(law: WholeLaw, steps: IntArray, bits: bytes) -> int:
        drawn_from.append(tuple(steps.tolist()))
        return 0

    patch.setattr(WholeLaw, "draw", draw)
    try:
        module.Whereabouts(lambda: place, None).draw(current, bytes(16), outside)
    except Refused as refused:
        return refused.reason
    return drawn_from[0]


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("count", [400, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_position_on_the_map_or_a_typed_refusal_everywhere(
    count: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = campaign(name)
    grid, low, high = current.area.squares, current.law.centres.low, current.law.centres.high
    assert grid is not None
    seen = set()
    for place in places(count, BOXES[name], 3):
        strict, clamped = (
            outcome(current, place, rule, monkeypatch) for rule in ("refuse", "clamp")
        )
        finite = bool(np.isfinite(place).all()) and abs(place[0]) <= 90
        assert (clamped == "location") == (not finite)
        if finite:
            assert not isinstance(clamped, str)
            assert (np.array(low) <= clamped).all()
            assert (np.array(clamped) <= high).all()
            assert strict in (clamped, "outside")
            assert (strict != "outside") == bool(grid.inside(lat=place[0], lng=place[1]))
        seen.add(strict if isinstance(strict, str) else "position")
    assert seen == {"position", "outside", "location"}


@pytest.mark.parametrize("name", BOXES)
def test_a_turn_of_the_globe_is_the_same_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    current = campaign(name)
    assert current.area.squares is not None
    lat, lng = current.area.squares.centres_latlng()
    for cell in range(0, lat.size, 7):
        for turn in (-720.0, -360.0, 0.0, 360.0):
            found = outcome(current, (lat[cell], lng[cell] + turn), "refuse", monkeypatch)
            assert found == tuple(current.law.centres.points[cell].tolist())
