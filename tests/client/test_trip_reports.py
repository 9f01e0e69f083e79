"""Trips from a device: two draws in one report, charged twice, and nothing true of either end."""

from __future__ import annotations

import gc
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.world import CUT, LYON, NOW_S, PLACE, Collector, device, document
from geoveil.client import Ledger, Refused, Unacknowledged
from geoveil.document.wire import MechanismDocument
from geoveil.errors import InvalidInput

HOME, WORK = (45.7512345, 4.8223456), (45.7712345, 4.8623456)


def trips() -> MechanismDocument:
    return document(trips=True, epsilon_per_km=1.0)


def refused(reason: str) -> Any:
    """A block that must end with this reason."""
    return pytest.raises(Refused, check=lambda caught: caught.reason == reason)


def collecting() -> Collector:
    return Collector(served=trips().served())


def test_a_trip_is_one_report_of_two_cells_and_costs_twice(path: Path) -> None:
    collector = collecting()
    receipt = device(collector, path).report_trip(origin=HOME, destination=WORK)
    (sent,) = collector.attempts
    assert sent == {
        "mechanism": trips().id, "id": receipt.report, "cell": receipt.cell, "to": receipt.to_cell
    }  # fmt: skip
    assert (receipt.epsilon_per_km, receipt.budget_left_per_km) == (2.0, 8.0)
    assert receipt.slack_nats == pytest.approx(2 * trips().promise.slack)
    assert LYON.locate(lat=receipt.to_lat, lng=receipt.to_lng) == receipt.to_cell
    again = device(collector, path).report_trip(origin=WORK, destination=HOME)
    assert again == receipt  # one report to a campaign, whatever is asked later
    assert len(collector.attempts) == 1


def test_both_ends_follow_their_own_law_and_are_independent(path: Path) -> None:
    """Many devices: each end as often within a kilometre of its place as the law says."""
    collector, near, both = collecting(), np.zeros(2), 0
    number = 60
    for each in range(number):
        made = device(collector, path.with_name(f"ledger-{each}.db"))
        receipt = made.report_trip(origin=HOME, destination=WORK)
        ends = ((receipt.lat, receipt.lng), (receipt.to_lat, receipt.to_lng))
        close = [_apart_km(end, place) < 1.0 for end, place in zip(ends, (HOME, WORK), strict=True)]
        near += close
        both += all(close)
    law = trips().law
    for place, seen in zip((HOME, WORK), near, strict=True):
        row = law.rows_at(law.steps_of(trips().area.place_km(*place))[None])[0].astype(float)
        centres = [trips().area.latlng(point) for point in law.centres.points_km]
        within = np.array([_apart_km(centre, place) < 1.0 for centre in centres])
        expected = float(row[within].sum() / row.sum())
        assert abs(seen / number - expected) < 5 * np.sqrt(expected * (1 - expected) / number)
    share = near / number
    assert abs(both / number - share.prod()) < 5 * np.sqrt(0.25 / number)


def _apart_km(one: tuple[float | None, ...], other: tuple[float, ...]) -> float:
    assert one[0] is not None
    assert one[1] is not None
    east = (one[1] - other[1]) * 111.2 * np.cos(np.radians(other[0]))
    return float(np.hypot((one[0] - other[0]) * 111.2, east))


def test_a_campaign_of_the_other_kind_is_refused_before_anything_is_read(path: Path) -> None:
    def never() -> tuple[float, float]:
        raise AssertionError("a location was read")

    with refused("trips"):
        device(collecting(), path).report(locate=never)
    with refused("places"):
        device(Collector(), path).report_trip(origin=never, destination=never)
    assert Ledger(path).charges() == []


def test_the_limit_holds_for_what_the_trip_costs(path: Path) -> None:
    dear = Collector(served=document(trips=True, epsilon_per_km=1.5).served())
    with refused("promise"):  # twice 1.5 is above the limit of 2
        device(dear, path).report_trip(origin=HOME, destination=WORK)
    with refused("budget"):
        device(collecting(), path, budget_per_km=1.9).report_trip(origin=HOME, destination=WORK)


def test_the_words_say_both_ends_and_twice(path: Path) -> None:
    reporting = device(collecting(), path)
    told = reporting.explain()
    assert "Two people whose trips begin 200 m apart and end 200 m apart" in told
    assert "This report costs ε = 2 per km" in told
    assert "is why a trip costs twice" in told
    receipt = reporting.report_trip(origin=HOME, destination=WORK)
    assert f"cell {receipt.cell} to cell {receipt.to_cell}" in reporting.explain()
    assert "Some reports are trips: both their ends were charged" in reporting.summary()
    assert "trips" not in device(Collector(), path.with_name("other.db")).summary()


def test_what_was_not_acknowledged_is_sent_again_as_it_was(path: Path) -> None:
    collector = collecting()
    collector.faults += [CUT] * 9
    with pytest.raises(Unacknowledged) as waits:
        device(collector, path).report_trip(origin=HOME, destination=WORK)
    collector.faults.clear()
    (receipt,) = device(collector, path).flush()
    assert (receipt.cell, receipt.to_cell) == (
        waits.value.receipt.cell,
        waits.value.receipt.to_cell,
    )
    assert len({str(attempt) for attempt in collector.attempts}) == 1


def test_an_end_that_is_missing_or_no_place_is_refused_and_told_of_neither(path: Path) -> None:
    reporting = device(collecting(), path)
    with pytest.raises(InvalidInput, match=r"destination must be .* both ends of a trip"):
        reporting.report_trip(origin=HOME, destination=None)  # type: ignore[arg-type]
    for wrong in ((HOME[0], "x"), (99.0, 4.8), (float("nan"), 4.8)):
        with refused("location") as caught:
            reporting.report_trip(origin=HOME, destination=wrong)  # type: ignore[arg-type]
        text = "".join(traceback.format_exception(caught.value))
        assert str(HOME[0]) not in text
    with refused("accuracy"):
        reporting.report_trip(origin=(*HOME, 30.0), destination=WORK)
    assert Ledger(path).charges() == []


def test_nothing_true_of_either_end_stays_in_the_ledger_or_the_frames(path: Path) -> None:
    collector = collecting()
    device(collector, path).report_trip(origin=HOME, destination=WORK)
    for file in path.parent.iterdir():
        data = file.read_bytes()
        for place in (*HOME, *WORK):
            assert str(place).encode() not in data
            assert np.float64(place).tobytes() not in data
            assert np.float64(place).tobytes()[::-1] not in data
    frames = Collector(served=trips().served())
    with refused("outside") as caught, pytest.warns(UserWarning, match="silence tells"):
        device(frames, path.with_name("two.db")).report_trip(
            origin=HOME, destination=(48.8512345, 2.35), outside="refuse"
        )
    frame = caught.value.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename != __file__:
            assert HOME not in frame.tb_frame.f_locals.values()
        frame = frame.tb_next
    gc.collect()


def test_a_place_and_a_trip_to_the_same_campaign_name_are_one_report(path: Path) -> None:
    """A campaign that turns from places to trips has its report already."""
    places = Collector()
    first = device(places, path).report(**PLACE)
    places.served = document(2, trips=True, epsilon_per_km=1.0, expires_s=NOW_S + 900).served()
    assert device(places, path).report_trip(origin=HOME, destination=WORK) == first
