"""Campaigns of the service in which people choose a promise, and people who move."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.campaign import one_map
from geoveil.document.wire import MechanismDocument, unpack_levels
from geoveil.errors import InvalidInput
from geoveil.server.conclusion import conclude
from geoveil.server.region_shares import evidence_of, recalled, shares_of
from geoveil.server.round_documents import served
from geoveil.store import Upload
from server.rounds_support import City, campaign_settings

PROMISES = [1.0, 2.0]


def offering(**changed: Any) -> City:
    """A campaign that offers two promises."""
    return City(campaign_settings(epsilon_per_km=None, promises_per_km=(2.0, 1.0), **changed))


def report(city: City, numbers: dict[float, int], people: FloatArray | None = None) -> None:
    """So many people report under each promise."""
    record = city.campaigns.mechanism(city.campaign)
    theta = city.truth if people is None else people
    uploads = []
    for document in unpack_levels(record.document):
        law = document.mechanism.push(theta)
        number = numbers.get(document.epsilon_per_km, 0)
        counts = city.people.multinomial(number, law / law.sum())
        for cell in np.repeat(np.arange(counts.size), counts).tolist():
            at = record.report_number(document.id, 0, cell)
            uploads.append(Upload(city.campaign, record.number, city.people.bytes(16), at))
    assert all(city.store.add(uploads))


def closed(city: City) -> dict[str, Any]:
    city.campaigns.close(city.campaign)
    city.work()
    city.wait(2)
    return city.estimated()


@pytest.mark.usefixtures("one_design")
def test_all_levels_are_one_answer_that_devices_read() -> None:
    city = offering()
    record = city.campaigns.mechanism("paris")
    levels = MechanismDocument.read_levels(served(record.mechanism, record.document))
    assert [level.epsilon_per_km for level in levels] == PROMISES
    assert [level.level for level in levels] == [0, 1]
    assert record.levels.split() == [level.id for level in levels]
    assert record.cells == 2 * record.cells_each == 2 * levels[0].law.centres.size
    for level in levels:
        found = city.campaigns.find(level.id)
        assert found is not None
        assert found.number == 1


@pytest.mark.usefixtures("one_design")
def test_the_estimate_pools_the_promises_and_says_what_each_gave() -> None:
    city = offering()
    report(city, {1.0: 500, 2.0: 400})
    body = closed(city)
    assert body["reports"] == 900
    assert body["promises_per_km"] == PROMISES
    assert body["epsilon_per_km"] == 2.0
    levels = body["choices"]["levels"]
    assert [(each["epsilon_per_km"], each["reports"]) for each in levels] == [
        (1.0, 500),
        (2.0, 400),
    ]
    assert levels[0]["bits_per_report"] < levels[1]["bits_per_report"]
    assert body["choices"]["dependent"] is False
    assert body["drift"]["agreeing"] == [1]
    following = unpack_levels(city.campaigns.mechanism("paris").document)
    assert [(each.round, each.epsilon_per_km) for each in following] == [(2, 1.0), (2, 2.0)]
    assert city.campaigns.state("paris")["choices"] == body["choices"]


@pytest.mark.usefixtures("one_design")
def test_a_promise_that_few_chose_is_used_and_not_told() -> None:
    city = offering()
    report(city, {1.0: 3, 2.0: 200})
    body = closed(city)
    assert body["reports"] == 203
    assert body["choices"]["levels"][0] == {
        "epsilon_per_km": 1.0, "reports": None, "bits_per_report": None
    }  # fmt: skip
    assert "1 of the promises had fewer than 100 reports" in body["choices"]["summary"]


@pytest.mark.usefixtures("one_design")
def test_a_choice_that_depends_on_the_place_is_remembered_and_regions_have_its_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city = offering()
    report(city, {2.0: 1500})
    report(city, {1.0: 1500}, people=city.truth[::-1])
    body = closed(city)
    assert body["choices"]["dependent"] is True
    members = np.zeros((1, len(body["distribution"])))
    members[0, :24] = 1.0
    evidence = evidence_of(city.campaigns, "paris")
    again = recalled(body, evidence).error_bars()[0].interval(0.95)
    np.testing.assert_allclose(again[1], body["interval"]["high"], rtol=1e-6, atol=1e-9)
    found = shares_of(print, evidence, members)
    assert not isinstance(found, str)
    share, low, high, _ = found.rows[0]
    assert low <= share <= high
    report(city, {1.0: 150, 2.0: 150})
    monkeypatch.setattr(one_map, "allowed_at", lambda look: 0.0)  # it would not be found again
    assert closed(city)["choices"]["dependent"] is True


@pytest.mark.usefixtures("one_design")
def test_the_same_closing_gives_the_same_bytes() -> None:
    city = offering()
    report(city, {1.0: 200, 2.0: 100})
    city.campaigns.close("paris")
    (work,) = city.due()
    once, again = conclude(work), conclude(work)
    assert once.body == again.body
    assert once.following == again.following


@pytest.mark.usefixtures("one_design")
def test_late_reports_and_renewed_rounds_keep_their_level() -> None:
    city = offering()
    report(city, {1.0: 60, 2.0: 50})
    assert city.next_round() == 2
    renewed = unpack_levels(city.campaigns.mechanism("paris").document)
    assert [each.round for each in renewed] == [2, 2]
    report(city, {1.0: 100, 2.0: 10})
    body = closed(city)
    assert body["reports"] == 220
    assert [each["reports"] for each in body["choices"]["levels"]] == [160, None]


@pytest.mark.parametrize(
    "changed",
    [
        {"epsilon_per_km": 1.0, "promises_per_km": (1.0, 2.0)},
        {"epsilon_per_km": None},
        {"epsilon_per_km": None, "promises_per_km": (1.0,)},
        {"epsilon_per_km": None, "promises_per_km": (1.0, 1.0)},
        {"epsilon_per_km": None, "promises_per_km": (0.0, 1.0)},
        {"epsilon_per_km": None, "promises_per_km": (float("nan"), 1.0)},
        {"epsilon_per_km": None, "promises_per_km": tuple(range(1, 10))},
    ],
)
def test_promises_that_cannot_be(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="promises_per_km"):
        campaign_settings(**changed).problems()


def test_who_gives_both_kinds_of_promise_is_told() -> None:
    with pytest.raises(InvalidInput, match="not both"):
        campaign_settings(epsilon_per_km=1.0, promises_per_km=(1.0, 2.0)).problems()


def test_settings_of_campaigns_made_before_are_read() -> None:
    kept = msgspec.json.decode(campaign_settings().to_bytes())
    del kept["promises_per_km"]
    read = msgspec.json.decode(msgspec.json.encode(kept), type=type(campaign_settings()))
    assert read.rule.promises == (2.0,)


# --- People who move


@pytest.mark.usefixtures("one_design")
def test_a_round_that_disagrees_waits_widens_and_is_told() -> None:
    city = City()
    moved = city.truth[::-1].copy()
    for _ in range(2):
        report(city, {2.0: 1500})
        closed(city)
    report(city, {2.0: 1500}, people=moved)
    body = closed(city)
    assert body["drift"]["waiting"] == [3]
    assert [each["round"] for each in body["rounds"]] == [1, 2]
    assert "Round 3 says otherwise" in body["drift"]["summary"]
    busiest = int(moved.argmax())
    interval = body["interval"]
    assert interval["low"][busiest] <= moved[busiest] <= interval["high"][busiest]
    evidence = evidence_of(city.campaigns, "paris")
    again = recalled(body, evidence).error_bars()[0].interval(0.95)
    np.testing.assert_allclose(again[1], interval["high"], rtol=1e-6, atol=1e-9)
    for _ in range(2):
        report(city, {2.0: 1500}, people=moved)
        body = closed(city)
    assert body["drift"]["agreeing"] == [3, 4, 5]
    assert body["drift"]["aside"] == [1, 2]
    assert gv.total_variation(np.array(body["distribution"]), moved) < 0.3
