"""Campaigns of the service with slots of time: what is counted where, and one map for each."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.document.wire import unpack_levels
from geoveil.errors import InvalidInput
from geoveil.server.conclusion import conclude, read_body
from geoveil.server.map_files import rendered
from geoveil.server.maps_by_slot import _affordable, read_maps
from geoveil.server.problem import Problem
from geoveil.server.settings_of_campaign import OwnSlots
from geoveil.store import Upload
from server.rounds_support import City, campaign_settings

NIGHT_AND_DAY = OwnSlots(every="day", names=("night", "day", "evening"), starts=(0, 360, 1080))
ZONE = "Europe/Paris"
pytestmark = pytest.mark.usefixtures("one_design")


def slotted(**changed: Any) -> City:
    """A campaign with three slots."""
    return City(campaign_settings(slots=NIGHT_AND_DAY, zone=ZONE, **changed))


def report(city: City, people: Mapping[int, tuple[int, FloatArray]], level: int = 0) -> None:
    """So many people of such a city report in each slot, under one of the promises."""
    record = city.campaigns.mechanism(city.campaign)
    document = unpack_levels(record.document)[level]
    uploads = []
    for slot, (number, theta) in people.items():
        law = document.mechanism.push(theta)
        counts = city.people.multinomial(number, law / law.sum())
        for cell in np.repeat(np.arange(counts.size), counts).tolist():
            at = record.report_number(document.id, slot, cell)
            uploads.append(Upload(city.campaign, record.number, city.people.bytes(16), at))
    assert all(city.store.add(uploads))


def closed(city: City) -> dict[str, Any]:
    city.campaigns.close(city.campaign)
    city.work()
    city.wait(2)
    return city.estimated()


def maps_of(city: City, number: int = 1) -> dict[str, Any]:
    return read_body(read_maps(city.store.slot_maps(city.campaign, number)))


def test_every_slot_with_enough_reports_has_a_map_of_its_own_people() -> None:
    city = slotted(trusted_seed=True)
    night, day = city.truth, city.truth[::-1].copy()
    report(city, {0: (900, night), 1: (900, day), 2: (40, night)})
    body = closed(city)
    assert body["reports"] == 1840
    assert body["slots"]["names"] == ["night", "day", "evening"]
    assert body["slots"]["reports"] == [900, 900, None]  # a slot below the minimum is not told
    assert "2 of 3 slots" in body["slots"]["summary"]
    assert "1 has fewer than 100 reports" in body["slots"]["summary"]
    told = body["alarm"]["slots"]
    assert (told["raised"], told["slots"], told["checked"]) == (False, [], 2)
    assert "2 of 2 slots with a map looked at" in told["summary"]
    assert "None of the maps is held to the trusted first round" in body["slots"]["summary"]
    maps = maps_of(city)["maps"]
    assert [(each["slot"], each["name"], each["reports"]) for each in maps] == [
        (0, "night", 900),
        (1, "day", 900),
    ]
    for each, mine, other in ((maps[0], night, day), (maps[1], day, night)):
        found = np.array(each["distribution"])
        near, far = (gv.total_variation(found / found.sum(), theta) for theta in (mine, other))
        assert near < 0.6 * far
        inside = (np.array(each["low"]) <= mine) & (mine <= np.array(each["high"]))
        assert inside.mean() > 0.85


def test_fakes_in_one_slot_raise_its_alarm_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("geoveil.server.maps_by_slot.ALARM_REPLICATES", (99, 99))
    city = slotted()
    report(city, {0: (400, city.truth), 1: (400, city.truth)})
    record, quietest = city.campaigns.mechanism("paris"), int(city.truth.argmin())
    document = unpack_levels(record.document)[0]
    at = record.report_number(document.id, 1, quietest)
    fakes = [Upload("paris", record.number, city.people.bytes(16), at) for _ in range(60)]
    assert all(city.store.add(fakes))
    body = closed(city)
    told = body["alarm"]["slots"]
    assert (told["raised"], told["slots"], told["checked"]) == (True, [1], 2)
    assert told["suspicious"] == [quietest]
    assert told["summary"].startswith(f"Alarm in day: report {quietest} comes more often")
    assert city.campaigns.state("paris")["alarm"]["slots"] == told
    kept = city.store.slot_maps("paris", 1)
    of_slots = [
        read_body(rendered("json", city.campaigns.estimate("paris").body, kept, slot))
        for slot in (0, 1)
    ]
    assert [one["alarm"]["raised"] for one in of_slots] == [False, True]


def test_where_not_all_slots_can_be_looked_at_those_with_most_reports_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise = gv.RandomizedResponse(gv.Line(4), epsilon=1.0)
    slots = {(slot, 0): [gv.Tally(noise, [number] * 4)] for slot, number in enumerate((20, 90, 40))}
    pooled = gv.IterativeBayesianUpdate(stop=gv.Steps(9)).fit([tally for [tally] in slots.values()])
    assert _affordable(slots, pooled) == (slots, 199)
    monkeypatch.setattr("geoveil.server.maps_by_slot.MOST_CHECKED", 99 * 4 * (7 + 5))
    assert _affordable(slots, pooled) == ({key: slots[key] for key in ((1, 0), (2, 0))}, 99)
    monkeypatch.setattr("geoveil.server.maps_by_slot.MOST_CHECKED", 1)
    assert _affordable(slots, pooled) == ({(1, 0): slots[1, 0]}, 99)


def test_maps_of_slots_are_kept_short() -> None:
    """Beside the count of a cell in a slot, which takes ten bytes or so, its map takes fewer than 14."""
    city = City(campaign_settings(slots="hour", zone=ZONE))
    report(city, dict.fromkeys(range(24), (150, np.full(city.truth.size, 1 / city.truth.size))))
    assert closed(city)["slots"]["reports"] == [150] * 24
    kept = city.store.slot_maps("paris", 1)
    assert read_maps(zlib.decompress(kept)) == read_maps(kept)  # as older programs kept them
    assert len(kept) < 14 * 24 * city.truth.size
    low = np.array(maps_of(city)["maps"][0]["low"])
    assert (low >= 0).all()


def test_reports_of_several_rounds_add_up_and_a_slot_comes_to_its_map_when_it_can() -> None:
    city = slotted()
    report(city, {0: (150, city.truth), 1: (60, city.truth)})
    assert closed(city)["slots"]["reports"] == [150, None, None]
    report(city, {0: (60, city.truth), 1: (60, city.truth)})
    assert closed(city)["slots"]["reports"] == [210, 120, None]
    assert [each["reports"] for each in maps_of(city, 1)["maps"]] == [150]  # stays as it was
    assert [each["reports"] for each in maps_of(city, 2)["maps"]] == [210, 120]


def test_no_slot_with_enough_reports_loses_nothing() -> None:
    city = slotted()
    report(city, {0: (60, city.truth), 1: (60, city.truth)})
    body = closed(city)
    assert body["slots"]["reports"] == [None, None, None]
    assert city.store.slot_maps("paris", 1) == b""
    with pytest.raises(Problem, match="0 of 3 slots") as caught:
        rendered("csv", city.campaigns.estimate("paris").body, b"", "all")
    assert caught.value.name == "no-estimate-yet"
    report(city, {0: (60, city.truth), 1: (60, city.truth)})
    assert closed(city)["slots"]["reports"] == [120, 120, None]


def test_levels_and_slots_together_and_a_level_with_three_people() -> None:
    city = slotted(epsilon_per_km=None, promises_per_km=(1.0, 2.0))
    report(city, {0: (400, city.truth), 1: (300, city.truth)}, level=1)
    report(city, {0: (3, city.truth)}, level=0)
    body = closed(city)
    assert body["slots"]["reports"] == [403, 300, None]
    assert [each["reports"] for each in body["choices"]["levels"]] == [None, 700]
    record = city.campaigns.mechanism("paris")
    assert (record.slots, record.cells) == (3, 6 * record.cells_each)
    assert all(each.slots == city.settings.time_slots for each in unpack_levels(record.document))


def test_where_the_choice_depends_on_the_place_every_slot_is_an_average_of_promises() -> None:
    city = slotted(epsilon_per_km=None, promises_per_km=(1.0, 2.0))
    others = city.truth[::-1].copy()
    report(city, {0: (1000, city.truth), 1: (1000, city.truth)}, level=1)
    report(city, {0: (1000, others), 1: (300, others)}, level=0)
    body = closed(city)
    assert body["choices"]["dependent"] is True
    first, second = maps_of(city)["maps"]
    assert "average of 2 estimates" in first["stopped"]
    assert (first["reports"], second["reports"]) == (2000, 1300)
    found = np.array(first["distribution"])
    assert gv.total_variation(found / found.sum(), 0.5 * (city.truth + others)) < 0.35


def test_the_same_closing_gives_the_same_bytes_and_each_part_can_be_left_out() -> None:
    city = slotted()
    report(city, {0: (150, city.truth), 1: (150, city.truth)})
    city.campaigns.close("paris")
    (work,) = city.due()
    told: list[Any] = []
    once, again = conclude(work, told.append), conclude(work)
    assert (once.body, once.slots) == (again.body, again.slots)
    assert [each.unfinished for each in told][-3:] == [
        ("slots", "manipulation_gain", "slot_alarm"),
        ("manipulation_gain", "slot_alarm"),
        ("slot_alarm",),
    ]
    assert "slots" not in read_body(told[-1].body)["alarm"]  # nor is anything said of it
    without = told[-3]
    assert without.slots == b""
    with pytest.raises(Problem, match="no time to make maps of slots"):
        rendered("json", without.body, without.slots, 0)
    assert told[-1].slots == once.slots


def test_a_campaign_without_slots_has_no_such_part() -> None:
    city = City()
    city.report(150)
    body = closed(city)
    assert "slots" not in body
    assert body["unfinished"] == []
    with pytest.raises(Problem, match="has no slots") as caught:
        rendered("json", city.campaigns.estimate("paris").body, b"", 0)
    assert caught.value.name == "unknown-slot"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"slots": "hour"}, "slots and zone must be given together"),
        ({"zone": ZONE}, "slots and zone must be given together"),
        ({"slots": "hour", "zone": "Europe/Atlantis"}, "time zone that the service knows"),
        ({"slots": "hour", "zone": "../../etc/passwd"}, "zone"),
        ({"slots": "hour", "zone": ""}, "zone"),
        ({"slots": "hour", "zone": "localtime"}, "time zone that the service knows"),
        ({"slots": OwnSlots(every="day", names=("all",), starts=(0,)), "zone": ZONE}, "at least 2"),
        ({"slots": OwnSlots(every="day", names=("a", "a"), starts=(0, 9)), "zone": ZONE}, "names"),
        ({"slots": OwnSlots(every="day", names=("a", "=1+1"), starts=(0, 9)), "zone": ZONE}, "spreadsheets"),
        ({"slots": OwnSlots(every="day", names=("@a", "b"), starts=(0, 9)), "zone": ZONE}, "spreadsheets"),
        ({"slots": OwnSlots(every="day", names=("a", "b"), starts=(9, 0)), "zone": ZONE}, "starts"),
        ({"slots": OwnSlots(every="day", names=("a", "b"), starts=(0, 1440)), "zone": ZONE}, "star"),
        ({"slots": OwnSlots(every="once", names=("a", "b"), starts=(0, 9)), "zone": ZONE}, "starts"),
        ({"slots": OwnSlots(every="once", names=("a", "b"), starts=(-9, 0, 9)), "zone": ZONE}, "1970"),
        ({"slots": "weekday-hour", "zone": ZONE, "cell_km": 0.2}, "must be at most 131,072"),
    ],
)  # fmt: skip
def test_slots_that_cannot_be(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        campaign_settings(**changed).problems()


def test_hours_and_periods_that_can_be() -> None:
    hours = campaign_settings(slots="hour", zone=ZONE)
    hours.problems()
    assert hours.time_slots is not None
    assert hours.time_slots.names[8] == "08"
    week = campaign_settings(slots="weekday-hour", zone=ZONE).time_slots
    assert week is not None
    assert (len(week.names), week.names[167], week.starts[167]) == (168, "Sunday 23", 10_020)
    periods = OwnSlots(every="once", names=("before", "after"), starts=(0, 10**9, 2 * 10**9))
    campaign_settings(slots=periods, zone="UTC").problems()
    kept = msgspec.json.decode(hours.to_bytes(), type=type(hours))
    assert kept == hours
