"""Devices of a campaign with slots: which one they name, by whose clock, and what they say about it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from client.world import CUT, NOW_S, PLACE, Collector, Eye, device, document, problem, refused
from geoveil.client import Unacknowledged
from geoveil.client.ledger_book import MIGRATIONS
from geoveil.client.network import Answer
from geoveil.document.slots import Slots
from geoveil.document.wire import MechanismDocument
from geoveil.errors import InvalidFile, Unsupported

HOURS = Slots.of_hours("Europe/Paris", weekdays=False)


def seconds(*given: int) -> float:
    return datetime(*given, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


def with_slots(slots: Slots = HOURS, **changed: Any) -> MechanismDocument:
    """The campaign of the other tests, valid for a year, with slots."""
    plain = document(not_before_s=NOW_S - 20_000_000, expires_s=NOW_S + 20_000_000, **changed)
    return MechanismDocument.read(replace(plain, slots=slots).to_bytes(), certified=True)


@dataclass
class Dated(Collector):
    """A collector that says when it answers."""

    date_s: float | None = None

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        return replace(super().get(path, tag=tag, limit=limit), date_s=self.date_s)


def at(time_s: float) -> Callable[[], float]:
    return lambda: time_s


PERIODS = Slots("UTC", "once", ("first", "second"), (0, 10, 20))


@pytest.mark.parametrize("slots", [HOURS, Slots.of_hours("UTC", weekdays=True), PERIODS])
def test_what_is_written_is_read_as_it_was(slots: Slots) -> None:
    assert Slots.from_dict(slots.to_dict()) == slots
    assert len(slots.starts) == len(slots.names) + (slots.every == "once")


def test_a_period_begins_at_its_start_and_outside_of_all_there_is_none() -> None:
    times = (-1.0, 0.0, 9.9, 10.0, 19.9, 20.0)
    assert [PERIODS.at(time_s) for time_s in times] == [None, 0, 0, 1, 1, None]


DAY = {"zone": "UTC", "every": "day", "names": ["a", "b"], "starts": [0, 360]}
MANY = [str(number) for number in range(169)]


@pytest.mark.parametrize(
    ("kept", "wrong"),
    [
        ({"starts": [0, 1439]}, {"starts": [0, 1440]}),
        ({}, {"starts": [0, 360.5]}),
        ({}, {"starts": [0, True]}),
        ({}, {"starts": "01"}),
        ({}, {"starts": {"0": 0, "1": 360}}),
        ({}, {"starts": [0, 0]}),
        ({}, {"starts": [0]}),
        ({"every": "once", "starts": [0, 1, 1 << 40]}, {"every": "once", "starts": [0, 1, (1 << 40) + 1]}),
        ({"every": "once", "starts": [0, 1, 2]}, {"every": "once", "starts": [-1, 0, 1]}),
        ({"names": ["a" * 40, "b"]}, {"names": ["a" * 41, "b"]}),
        ({"names": ["a b", "b"]}, {"names": ["a ", "b"]}),
        ({}, {"names": ["a\n", "b"]}),
        ({"names": ["a\u0378", "b"]}, {"names": ["a\u00a0", "b"]}),  # one that no Unicode has so far is none
        ({"names": ["\U0001f6b2" * 40, "b"]}, {"names": ["a\u202eb", "b"]}),
        ({}, {"names": ["a", 7]}),
        ({}, {"names": "ab"}),
        ({}, {"names": [], "starts": []}),
        ({"names": MANY[:168], "starts": list(range(168))}, {"names": MANY, "starts": list(range(169))}),
        ({"zone": "Etc/GMT+1"}, {"zone": 7}),
        ({}, {"every": ["day"]}),
        ({}, {"more": 1}),
    ],
)  # fmt: skip
def test_slots_of_anybody_are_checked_in_every_respect(
    kept: dict[str, Any], wrong: dict[str, Any]
) -> None:
    assert Slots.from_dict(DAY | kept).to_dict() == DAY | kept
    with pytest.raises(InvalidFile):
        Slots.from_dict(DAY | wrong)


def test_the_slot_is_that_of_the_zone_when_the_location_is_read(tmp_path: Path) -> None:
    collector = Collector(with_slots().served())
    hour = HOURS.at(NOW_S)
    assert hour == 9  # 08:00 UTC in winter
    receipt = device(collector, tmp_path / "ledger").report(**PLACE)
    (sent,) = collector.attempts
    assert sent == {
        "mechanism": receipt.mechanism, "id": receipt.report, "cell": receipt.cell, "slot": 9
    }  # fmt: skip
    assert receipt.slot == 9


@pytest.mark.parametrize("date_s", [None, NOW_S, NOW_S - 290])
def test_reading_a_location_may_take_hours(tmp_path: Path, date_s: float | None) -> None:
    """Whoever is asked for a permission answers when the telephone is unlocked again."""
    now_s = [float(NOW_S)]

    def later() -> tuple[float, float]:
        now_s[0] += 7200.0
        return PLACE["lat"], PLACE["lng"]

    collector = Dated(with_slots().served(), date_s=date_s)
    it = device(collector, tmp_path / "ledger", clock=lambda: now_s[0])
    assert it.report(locate=later).slot == 11
    assert [sent["slot"] for sent in collector.attempts] == [11]


@pytest.mark.parametrize(
    ("time_s", "hour"),
    [
        (seconds(2027, 3, 28, 0, 59, 59), 1),  # then clocks go from 2 to 3
        (seconds(2027, 3, 28, 1, 0, 0), 3),
        (seconds(2026, 10, 25, 0, 30), 2),  # the hour that comes twice is one slot
        (seconds(2026, 10, 25, 1, 30), 2),
        (seconds(2026, 10, 25, 2, 0), 3),
    ],
)
def test_when_clocks_change(tmp_path: Path, time_s: float, hour: int) -> None:
    collector = Dated(with_slots().served(), date_s=time_s)
    receipt = device(collector, tmp_path / "ledger", clock=at(time_s)).report(**PLACE)
    assert receipt.slot == collector.attempts[0]["slot"] == hour


def test_without_slots_none_is_sent(tmp_path: Path) -> None:
    collector = Collector()
    assert device(collector, tmp_path / "ledger").report(**PLACE).slot is None
    assert "slot" not in collector.attempts[0]


def test_what_was_drawn_keeps_its_slot_however_late_it_arrives(tmp_path: Path) -> None:
    collector = Collector(with_slots().served(), faults=[CUT, CUT, CUT])
    with pytest.raises(Unacknowledged) as caught:
        device(collector, tmp_path / "ledger").report(**PLACE)
    assert caught.value.receipt.slot == 9
    later = device(collector, tmp_path / "ledger", clock=at(NOW_S + 5 * 3600))
    (receipt,) = later.flush()
    assert receipt.slot == 9
    assert len({tuple(each.items()) for each in collector.attempts}) == 1  # the very same report
    assert later.report(**PLACE).slot == 9
    assert [charge.slot for charge in later.history()] == [9]


@pytest.mark.parametrize(
    ("wrong_by_s", "passes"),
    [(-290.0, True), (290.0, True), (-3600.0, False), (3600.0, False), (86_400.0, True)],
)
def test_clocks_that_disagree_about_the_slot(
    tmp_path: Path, wrong_by_s: float, passes: bool
) -> None:
    """Minutes are forgiven, and so is a day: the hour is the same."""
    collector, eye = Dated(with_slots().served(), date_s=NOW_S), Eye()
    here = device(collector, tmp_path / "ledger", clock=at(NOW_S + wrong_by_s))
    if passes:
        assert here.report(locate=eye).slot == HOURS.at(NOW_S + wrong_by_s)
        return
    refusal = refused(here.report, locate=eye)
    assert (refusal.reason, refusal.sent, eye.looks) == ("clocks", False, 0)
    assert collector.attempts == []
    assert here.history() == []  # nothing was charged
    assert device(collector, tmp_path / "ledger").report(locate=eye).slot == 9  # the clock was set


def test_no_date_and_a_date_without_sense_are_not_held_against_a_device(tmp_path: Path) -> None:
    for number, date_s in enumerate((None, float(NOW_S))):
        collector = Dated(with_slots().served(), date_s=date_s)
        assert device(collector, tmp_path / f"ledger-{number}").report(**PLACE).slot == 9


@pytest.mark.parametrize("year", [1, 1970, 9999])
def test_a_date_of_another_age_is_a_clock_that_disagrees(tmp_path: Path, year: int) -> None:
    """Calendars end with the years 1 and 9999, at the latest a zone's offset away."""
    far_s = seconds(year, 12, 31, 23, 59, 59) if year > 1 else seconds(1, 1, 1)
    for zone in ("Asia/Tokyo", "America/New_York"):
        hours = Slots.of_hours(zone, weekdays=False)
        assert hours.at(NOW_S) != hours.at(0.0 if year == 1970 else far_s)
        collector = Dated(with_slots(hours).served(), date_s=0.0 if year == 1970 else far_s)
        assert (
            refused(device(collector, tmp_path / zone[:4]).report, locate=Eye()).reason == "clocks"
        )


@pytest.mark.parametrize("weekdays", [False, True])
def test_where_calendars_end_there_is_no_slot(tmp_path: Path, weekdays: bool) -> None:
    """Each calendar ends on a day of its own, and the device in TypeScript has another one."""
    hours = Slots.of_hours("Asia/Tokyo", weekdays=weekdays)
    assert [hours.at(time_s) is None for time_s in (-1.0, 0.0, 253e9 - 1.0, 253e9)] == [
        True, False, False, True
    ]  # fmt: skip
    plain = document(expires_s=1 << 40)
    collector = Collector(replace(plain, slots=hours).served())
    late = device(collector, tmp_path / "ledger", clock=at(253e9))
    assert refused(late.report, locate=Eye()).reason == "slot"


def test_slots_follow_no_zone_of_the_device(tmp_path: Path) -> None:
    """Else the slot would say in which zone somebody is."""
    own = replace(with_slots(), slots=replace(HOURS, zone="localtime"))
    eye, collector = Eye(), Collector(own.served())
    refusal = refused(device(collector, tmp_path / "ledger").report, locate=eye)
    assert (refusal.reason, refusal.detail, eye.looks) == ("document", "slots", 0)
    with pytest.raises(Unsupported, match="zone"):
        replace(HOURS, zone="localtime").at(NOW_S)


def test_outside_all_periods_nothing_is_sent(tmp_path: Path) -> None:
    periods = Slots("UTC", "once", ("spring", "summer"), (NOW_S, NOW_S + 100, NOW_S + 200))
    collector, eye = Collector(with_slots(periods).served()), Eye()
    for time_s in (NOW_S - 1, NOW_S + 200):
        late = device(collector, tmp_path / "ledger", clock=at(time_s))
        assert refused(late.report, locate=eye).reason == "slot"
        assert refused(late.explain).reason == "slot"
    assert (eye.looks, collector.attempts) == (0, [])
    receipt = device(collector, tmp_path / "ledger", clock=at(NOW_S + 100)).report(locate=eye)
    assert receipt.slot == 1


def test_the_person_is_told_that_the_slot_is_sent_as_it_is(tmp_path: Path) -> None:
    words = device(Collector(with_slots().served()), tmp_path / "ledger").explain()
    assert (
        "and the slot of now (“09”, one of 24 of every day, Europe/Paris), which says when, not where, and "
        "is not changed by chance; nothing else." in words
    )
    plain = device(Collector(), tmp_path / "other").explain()
    assert "slot" not in plain


def test_a_slot_that_the_collector_does_not_know_is_refused_for_good(tmp_path: Path) -> None:
    collector = Collector(with_slots().served(), faults=[problem(422, "slot-out-of-range")])
    refusal = refused(device(collector, tmp_path / "ledger").report, **PLACE)
    assert (refusal.reason, refusal.detail, refusal.sent) == ("problem", "slot-out-of-range", True)


def test_a_ledger_of_before_slots_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first = device(Collector(), path).report(**PLACE)
    book = sqlite3.connect(path)
    later = [statement for step in MIGRATIONS[2:] for statement in step]
    for statement in reversed(later):  # what came last goes first
        column = re.match(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", statement)
        other = re.match(r"CREATE (INDEX|TABLE) (\w+)", statement)
        assert column or other, statement
        if other:
            book.execute(f"DROP {other[1]} {other[2]}")
        elif column:
            book.execute(f"ALTER TABLE {column[1]} DROP COLUMN {column[2]}")
    book.execute("PRAGMA user_version = 2")
    book.commit()
    book.close()
    again = device(Collector(), path)
    assert again.report(**PLACE) == first
    assert again.history()[0].slot is None
