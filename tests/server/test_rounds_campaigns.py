"""Campaigns over several rounds: people report, rounds roll over, the map gets better."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import geoveil as gv
from geoveil.campaign import rounds
from geoveil.channel.channel import Tally
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import MechanismDocument
from geoveil.errors import InvalidInput
from geoveil.server import round_documents
from geoveil.server.campaigns import Campaigns
from geoveil.server.conclusion import NothingToRelease, conclude
from geoveil.server.problem import NewerSettings
from geoveil.server.recent import Recent
from geoveil.server.round_documents import SLOW_CLOCKS_S, served
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.server.upkeep import QUEUED_S, Upkeep
from geoveil.server.worker import Jobs
from geoveil.store import CampaignRecord, Progress, RoundRecord, RoundTimes, open_store
from geoveil.store.sqlite import SqliteStore
from geoveil.verify.guard import Guarded, GuardedUpdate
from server.rounds_support import HOUR, NOON, City, Clock, campaign_settings, raises_problem, tick
from store.disk import Disk, Shadow, remains
from store.memory import MemoryStore, open_any

FEW = (48.8286, 2.2855, 48.8542, 2.3382)
"""A quarter of the city: 12 cells."""


@pytest.mark.slow
def test_the_error_falls_over_the_rounds() -> None:
    pytest.importorskip("ot")
    city = City(campaign_settings(round_size=300))
    errors_km = []
    for number in range(1, 7):
        city.report(300)
        city.work()
        body = city.estimated()
        assert (body["round"], body["reports"]) == (number, 300 * number)
        found = np.array(body["distribution"])
        errors_km.append(gv.earth_movers_distance_km(found, city.truth, city.settings.grid))
        city.wait(HOUR)
    assert errors_km[-1] < 0.75 * errors_km[0]


def test_every_document_keeps_the_promise_and_builds_on_the_estimate() -> None:
    city = City(campaign_settings(round_size=500))
    documents = [MechanismDocument.read(city.campaigns.mechanism("paris").document)]
    for _ in range(2):
        city.report(500)
        city.work()
        city.wait(2)
        documents.append(MechanismDocument.read(city.campaigns.mechanism("paris").document))
    assert [document.round for document in documents] == [1, 2, 3]
    assert all(known.law.certificate.epsilon_per_km <= 2.0 for known in documents)
    first, second = documents[0].mechanism.weights, documents[1].mechanism.weights
    busiest = int(np.argmax(city.estimated(1)["distribution"]))
    assert second[busiest] / second.sum() > first[busiest] / first.sum()


@pytest.mark.usefixtures("one_design")
def test_late_reports_count_under_the_mechanism_they_carry() -> None:
    city = City()
    old = city.campaigns.mechanism("paris")
    sent = city.report(300)
    city.campaigns.close("paris")
    sent += city.report(50, under=old)  # after the closing, before its estimate
    city.work()
    city.wait(2)
    new = city.campaigns.mechanism("paris")
    assert new.number == 2
    sent_new = city.report(200)
    sent += city.report(70, under=old)
    counts = city.store.counts("paris")
    assert Counter(dict(enumerate(counts[1].tolist()))) == Counter(sent) + Counter({0: 0})
    assert counts[2].tolist() == np.bincount(sent_new, minlength=48).tolist()
    city.campaigns.close("paris")
    city.work()
    used = {known["round"]: known for known in city.estimated(2)["rounds"]}
    assert (used[1]["reports"], used[2]["reports"]) == (420, 200)
    assert used[1]["mechanism"] == old.mechanism
    assert city.estimated(1)["reports"] == 300


# -- when a round ends ---------------------------------------------------------------------------


def test_a_round_closes_at_its_size() -> None:
    city = City(campaign_settings(round_size=150))
    city.report(149)
    assert tick(city.campaigns) == []
    city.report(1)
    assert [(work.campaign, work.round) for work in tick(city.campaigns)] == [("paris", 1)]


@pytest.mark.usefixtures("one_design")
def test_a_round_closes_on_schedule_once_it_has_the_minimum() -> None:
    city = City(campaign_settings(round_hours=6.0))
    city.report(99)
    city.wait(6 * HOUR - 1)
    city.report(50)
    assert tick(city.campaigns) == []
    city.wait(1)
    city.work()
    assert city.estimated()["reports"] == 149
    city.wait(6 * HOUR)
    city.report(99)
    assert tick(city.campaigns) == []
    city.report(1)
    assert [work.round for work in tick(city.campaigns)] == [2]


def test_a_round_closed_by_hand_twice_is_closed_once() -> None:
    city = City()
    city.report(100)
    assert city.campaigns.close("paris") == 1
    assert city.campaigns.close("paris") == 1
    assert len(tick(city.campaigns)) == 1


def test_a_round_is_closed_by_hand_where_enough_report_while_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city = City()
    close = city.store.close_round

    def just_before(*asked: Any, **more: Any) -> bool:
        monkeypatch.undo()
        closed = close(*asked, **more)
        city.report(100)
        return closed

    monkeypatch.setattr(city.store, "close_round", just_before)
    assert city.campaigns.close("paris") == 1
    assert [closing.round for closing in city.store.closings()] == [1]


def test_a_campaign_deleted_while_a_round_of_it_is_closed_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city = City()

    def deleted(campaign: str, *asked: Any, **more: Any) -> bool:
        assert city.store.delete_campaign(campaign)
        return False

    monkeypatch.setattr(city.store, "close_round", deleted)
    with raises_problem("unknown-campaign"):
        city.campaigns.close("paris")


@pytest.mark.parametrize("reports", [0, 1, 99])
def test_nothing_is_released_below_the_minimum(reports: int) -> None:
    city = City(campaign_settings(round_size=100, round_hours=1.0, mechanism_hours=2.0))
    if reports:
        city.report(reports)
    with raises_problem("round-too-small", match=rf"\({reports} reports?\)"):
        city.campaigns.close("paris")
    for _ in range(4):
        city.wait(HOUR)
        assert tick(city.campaigns) == []
        for number in (None, 1):
            with raises_problem("no-estimate-yet"):
                city.campaigns.estimate("paris", number)
    assert city.campaigns.state("paris")["estimate"] is None


@pytest.mark.usefixtures("one_design")
def test_rounds_below_the_minimum_are_used_in_no_estimate() -> None:
    city = City(campaign_settings(mechanism_hours=2.0))
    small = city.campaigns.mechanism("paris")
    city.report(99)
    city.wait(2 * HOUR)
    tick(city.campaigns)
    city.report(300)
    city.campaigns.close("paris")
    city.work()
    assert [known["round"] for known in city.estimated()["rounds"]] == [2]
    with raises_problem("no-estimate-yet"):
        city.campaigns.estimate("paris", 1)
    city.wait(2)
    city.report(1, under=small)  # with a hundred reports it may be used
    city.report(100)
    city.campaigns.close("paris")
    city.work()
    assert [known["round"] for known in city.estimated()["rounds"]] == [1, 2, 3]


def test_a_closing_below_the_minimum_is_never_concluded() -> None:
    city = City()
    city.report(120)
    city.campaigns.close("paris")
    (work,) = city.due()
    stricter = type(work)(
        work.campaign, work.round, work.closed_at_s, campaign_settings(minimum_reports=121),
        work.documents, work.counts,
    )  # fmt: skip
    with pytest.raises(NothingToRelease):
        conclude(stricter)


def test_an_expired_document_is_renewed_with_the_same_belief() -> None:
    city = City(campaign_settings(mechanism_hours=48.0))
    city.report(200)
    city.campaigns.close("paris")
    city.work()
    city.wait(2)
    old = city.campaigns.mechanism("paris")
    city.report(99)
    city.wait(48 * HOUR)
    assert tick(city.campaigns) == []
    new = city.campaigns.mechanism("paris")
    before, after = MechanismDocument.read(old.document), MechanismDocument.read(new.document)
    assert (before.round, after.round) == (2, 3)
    assert old.mechanism != new.mechanism
    assert before.mechanism.weights.tolist() == after.mechanism.weights.tolist()
    assert before.law.table.tolist() == after.law.table.tolist()
    assert after.not_before_s < city.clock.now < after.expires_s
    assert city.campaigns.estimate("paris").round == 1
    with raises_problem("no-estimate-yet"):
        city.campaigns.estimate("paris", 2)


@pytest.mark.usefixtures("one_design")
def test_an_expired_document_with_enough_reports_is_closed() -> None:
    city = City(campaign_settings(mechanism_hours=1.0))
    city.report(100)
    city.wait(HOUR)
    city.work()
    assert city.estimated()["round"] == 1


# -- the end of a campaign -----------------------------------------------------------------------


@pytest.mark.usefixtures("one_design")
def test_a_campaign_ends_with_its_last_round() -> None:
    city = City(campaign_settings(rounds=2, round_size=100))
    for _ in range(2):
        city.report(100)
        assert city.campaigns.state("paris")["state"] == "open"
        city.work()
        city.wait(2)
    state = city.campaigns.state("paris")
    assert (state["state"], state["round"], state["rounds_closed"]) == ("finished", 2, 2)
    with raises_problem("campaign-finished", "no map any more"):
        city.campaigns.mechanism("paris")  # so that no device spends anything on it
    last = city.store.last_round("paris")
    assert last is not None
    city.report(30, under=last)  # drawn before, and late
    city.wait(2)
    assert city.campaigns.state("paris")["reports_counted"] == {"round": 130, "all": 230}
    assert last.accept_until_s == last.expires_at_s + 24 * HOUR
    city.wait(10_000 * HOUR)
    assert tick(city.campaigns) == []
    assert city.campaigns.close("paris") == 2
    with raises_problem("unknown-round"):
        city.campaigns.estimate("paris", 3)
    assert all(known.accept_until_s < city.clock.now for known in city.store.rounds("paris"))


def test_no_round_is_opened_after_the_last() -> None:
    city = City(campaign_settings(rounds=1))
    city.report(100)
    city.campaigns.close("paris")
    assert city.campaigns.state("paris")["state"] == "finished"  # nobody is asked any more
    city.work()
    assert city.campaigns.state("paris")["state"] == "finished"
    assert [known.number for known in city.store.rounds("paris")] == [1]
    assert city.store.closings() == []
    assert city.estimated()["round"] == 1


def test_nobody_opens_a_round_after_the_last(tmp_path: Path) -> None:
    city = City(campaign_settings(rounds=1), open_store(tmp_path / "store.db"))
    city.report(10)
    assert city.next_round() == 2  # ten reports are no round of the one
    city.report(100)
    city.campaigns.close("paris")
    for _ in range(2):  # before its estimate, and after it
        with raises_problem("campaign-finished", "round 2 was the last of the campaign"):
            city.next_round()
        city.work()
    assert [known.number for known in city.store.rounds("paris")] == [1, 2]
    assert city.campaigns.state("paris")["state"] == "finished"
    city.store.close()


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"state": "ended"}, ("ended", 1, 1)),  # it waits for its estimate
        ({"state": "paused", "next_round_now": True}, ("paused", 0, 2)),
    ],
)
def test_all_changes_that_are_asked_for_together_are_kept_together(
    tmp_path: Path, changes: dict[str, Any], after: tuple[object, ...]
) -> None:
    """The power is cut at every call of the disk."""
    disk, found = Disk("ending"), set()
    city = City(store=SqliteStore(tmp_path / "store.db", vfs="ending"))
    city.report(100)
    cuts: list[dict[str, Shadow]] = []
    disk.at_call = lambda what: cuts.append(disk.power_cut())
    city.campaigns.change("paris", name="Lutetia", published=True, **changes)
    cuts.append(disk.power_cut())
    city.store.close()
    disk.unregister()
    for turn, cut in enumerate(cuts):
        folder = tmp_path / str(turn)
        folder.mkdir()
        remains(cut, folder, random.Random(turn))
        store = SqliteStore(folder / "store.db")
        kept = store.campaign("paris")
        assert kept is not None
        told = kept.name, kept.published_at_s is not None
        found.add((kept.state, len(store.closings()), len(store.rounds("paris")), *told))
        store.close()
    assert found == {("running", 0, 1, "Paris", False), (*after, "Lutetia", True)}


def test_a_campaign_ends_without_estimate_when_its_last_document_expires_too_small() -> None:
    city = City(campaign_settings(rounds=1, mechanism_hours=1.0))
    city.report(99)
    city.wait(HOUR)
    assert tick(city.campaigns) == []
    assert city.campaigns.state("paris")["state"] == "finished"
    city.report(1, under=city.campaigns.mechanism("paris"))  # a late one makes it large enough
    city.work()
    assert city.estimated()["reports"] == 100


# -- the same again ------------------------------------------------------------------------------


def test_the_same_closing_gives_the_same_bytes_whenever_it_is_worked_on() -> None:
    city = City()
    city.report(400)
    city.campaigns.close("paris")
    (work,) = city.due()
    city.report(100)
    city.wait(5 * HOUR)
    (again,) = city.due()
    first, second = conclude(work), conclude(again)
    assert first.body == second.body
    assert first.following == second.following
    assert Jobs(city.campaigns).publish(work, first)
    assert not Jobs(city.campaigns).publish(again, second)
    opened = city.store.rounds("paris")[-1]
    assert opened.document == first.following.document
    assert opened.opened_at_s == NOON + 5 * HOUR


def test_every_store_leads_to_the_same_bytes(tmp_path: Path) -> None:
    bodies, documents = [], []
    for url in ("memory:", f"sqlite:///{tmp_path}/rounds.db"):
        store = open_any(url)
        city = City(campaign_settings(rounds=3, mechanism_hours=5.0), store=store)
        old = city.campaigns.mechanism("paris")
        city.report(50)
        city.wait(5 * HOUR)
        city.work()
        city.report(200)
        city.report(60, under=old)
        city.campaigns.close("paris")
        city.work()
        bodies.append(city.campaigns.estimate("paris").body)
        documents.append([known.document for known in store.rounds("paris")])
        assert [known["reports"] for known in city.estimated()["rounds"]] == [110, 200]
        store.close()
    assert bodies[0] == bodies[1]
    assert documents[0] == documents[1]


@pytest.mark.usefixtures("one_design")
def test_an_estimate_stays_as_it_was() -> None:
    city = City(campaign_settings(round_size=200))
    city.report(200)
    city.work()
    kept = city.campaigns.estimate("paris", 1)
    city.wait(2)
    city.report(200)
    city.work()
    assert city.campaigns.estimate("paris", 1) == kept
    assert city.campaigns.estimate("paris").round == 2


# -- looking up ----------------------------------------------------------------------------------


class CountingStore(MemoryStore):
    """A store that counts how often it is asked for a round with its document."""

    asked = 0

    def round_of(self, mechanism: str) -> RoundRecord | None:
        self.asked += 1
        return super().round_of(mechanism)

    def rounds(  # and so the last one
        self, campaign: str, numbers: Iterable[int] | None = None
    ) -> list[RoundRecord]:
        self.asked += 1
        return super().rounds(campaign, numbers)

    def progress(self, campaign: str) -> Progress:
        return MemoryStore.progress(self.copy(), campaign)

    def last_rounds(self) -> list[RoundTimes]:
        return MemoryStore.last_rounds(self.copy())


@pytest.mark.usefixtures("one_design")
def test_no_document_is_read_while_nothing_is_due() -> None:
    store = CountingStore()
    city = City(campaign_settings(rounds=1, mechanism_hours=2.0), store)
    for name, changed in (("bern", {"rounds": 1}), ("oslo", {"round_hours": 0.5}), ("rome", {})):
        city.campaigns.create(campaign_settings(id=name, mechanism_hours=2.0, **changed))
    for name in ("paris", "bern", "oslo", "rome"):
        assert city.campaigns.mechanism(name).number == 1
    city.report(100)
    city.campaigns.close("paris")
    city.work()

    def read_by_ticks() -> int:
        tick(city.campaigns)
        before = store.asked
        for _ in range(3):
            city.wait(1)
            tick(city.campaigns)
            assert city.campaigns.mechanism("rome").campaign == "rome"
        return store.asked - before

    assert read_by_ticks() == 0, "all is young"
    city.wait(HOUR)
    assert read_by_ticks() == 0, "Oslo should close, and has too few reports"
    city.wait(HOUR)
    assert tick(city.campaigns) == []
    rounds = {name: city.campaigns.look(name).number for name in ("paris", "bern", "oslo", "rome")}
    assert rounds == {"paris": 1, "bern": 1, "oslo": 2, "rome": 2}, "two are finished for good"
    assert read_by_ticks() == 0
    assert city.campaigns.finished() == {"paris", "bern"}
    store.rounds_concluded = None  # type: ignore[method-assign, assignment]
    assert city.campaigns.finished() == {"paris", "bern"}, "which is asked once"
    del store.rounds_concluded
    city.campaign = "bern"
    city.report(100, under=store.last_round("bern"))
    assert [each.campaign for each in tick(city.campaigns)] == ["bern"], "late reports are seen"


def test_what_a_request_changes_while_a_tick_reads_is_not_forgotten(monkeypatch) -> None:
    city = City()
    city.report(100)

    def read_then_closed() -> list[RoundTimes]:
        read = MemoryStore.last_rounds(city.store)
        city.campaigns.close("paris")
        assert city.campaigns.mechanism("paris").closed_at_s is not None
        return read

    monkeypatch.setattr(city.store, "last_rounds", read_then_closed)
    tick(city.campaigns)
    assert city.campaigns.mechanism("paris").closed_at_s is not None


@pytest.mark.parametrize(
    ("read", "look"),
    [("campaigns", Campaigns.refresh), ("campaign", lambda campaigns: campaigns.state("paris"))],
)
def test_a_pause_holds_though_the_campaign_was_read_just_before_it(
    read: str, look: Callable[[Campaigns], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    city = City()
    city.campaigns.settings("paris")
    reads = getattr(city.store, read)

    def read_then_paused(*names: str) -> Any:
        running = reads(*names)
        monkeypatch.undo()
        city.campaigns.change("paris", state="paused")
        return running

    monkeypatch.setattr(city.store, read, read_then_paused)
    look(city.campaigns)
    with raises_problem("campaign-paused"):
        city.campaigns.check_running("paris")


def test_the_state_of_a_campaign_reads_one_document_of_however_many_rounds() -> None:
    store = CountingStore()
    city = City(store=store)
    for number in range(2, 8):
        city.wait(1)
        assert city.next_round() == number
    before = store.asked
    city.wait(1)
    state = city.campaigns.state("paris")
    assert (state["round"], state["rounds_closed"]) == (7, 6)
    assert store.asked == before


def test_the_state_of_a_campaign_looks_at_no_closing_of_long_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city, looks = City(), []
    city.report(100)
    city.campaigns.close("paris")
    city.work()
    given_up = city.store.given_up

    def looked(campaign: str, *, after: int = 0) -> dict[int, int]:
        looks.append(after)
        return given_up(campaign, after=after)

    monkeypatch.setattr(city.store, "given_up", looked)
    monkeypatch.setattr(
        city.store, "rounds_concluded", None
    )  # of a campaign that has no last round
    city.wait(2)
    assert city.campaigns.state("paris")["estimate"]["round"] == 1
    assert looks == [1]


def test_a_known_mechanism_is_found_without_the_store() -> None:
    store = CountingStore()
    city = City(store=store)
    mechanism = city.campaigns.mechanism("paris").mechanism
    found = city.campaigns.find(mechanism)
    assert found is not None
    assert found.document == b""  # thousands are remembered
    before = store.asked
    city.wait(1000)
    assert city.campaigns.find(mechanism) is found
    assert store.asked == before


def test_an_unknown_mechanism_is_asked_for_once_a_second() -> None:
    store = CountingStore()
    city = City(store=store)
    for _ in range(5):
        assert city.campaigns.find("0" * 64) is None
    assert store.asked == 1
    city.wait(1)
    assert city.campaigns.find("0" * 64) is None
    assert store.asked == 2
    for number in range(3000):
        city.campaigns.find(f"{number:064x}")
    assert len(city.campaigns._unknown) <= 1024


def test_a_campaign_made_anew_by_another_process_has_its_own_settings() -> None:
    city = City(campaign_settings(minimum_reports=1))
    other = Campaigns(city.store, clock=city.clock)
    assert other.settings("paris").minimum_reports == 1
    city.campaigns.delete("paris")
    city.campaigns.create(campaign_settings(minimum_reports=100))
    tick(other)
    assert other.settings("paris").minimum_reports == 100


@pytest.mark.usefixtures("one_design")
def test_two_processes_agree_within_a_second() -> None:
    city = City()
    other = Campaigns(city.store, clock=city.clock)
    assert other.mechanism("paris").number == 1
    city.report(100)
    city.campaigns.close("paris")
    city.work()
    assert city.campaigns.mechanism("paris").number == 2
    city.wait(1)
    assert other.mechanism("paris").number == 2
    assert other.state("paris") == city.campaigns.state("paris")


def test_documents_suit_devices_whose_clocks_are_slow() -> None:
    city = City()
    record = city.campaigns.mechanism("paris")
    document = MechanismDocument.read(served(record.mechanism, record.document))
    assert document.id == record.mechanism
    assert document.not_before_s == NOON - SLOW_CLOCKS_S
    assert document.expires_s == record.expires_at_s == NOON + 720 * HOUR
    assert record.accept_until_s == NOON + 744 * HOUR


@pytest.mark.usefixtures("one_design")
def test_the_state_says_what_everybody_may_know() -> None:
    city = City()
    city.report(250)
    state = city.campaigns.state("paris")
    assert state["id"] == "paris"
    assert state["settings"]["minimum_reports"] == 100
    assert state["reports_counted"] == {"round": 250, "all": 250}
    assert (state["state"], state["alarm"], state["manipulation_gain"]) == ("open", None, None)
    city.campaigns.close("paris")
    assert city.campaigns.state("paris")["state"] == "estimating"
    city.work()
    state = city.campaigns.state("paris")
    assert (state["state"], state["round"], state["rounds_closed"]) == ("open", 2, 1)
    assert state["estimate"] == {"round": 1, "reports": 250, "made_at": NOON}
    assert state["alarm"]["raised"] is False
    assert state["manipulation_gain"]["gain"] > 1


def poisoned_city(guarded: bool, fakes: int = 150) -> tuple[City, int]:
    """A closed round with fakes at the cell that honest people named least."""
    city = City(campaign_settings(guarded=guarded))
    city.report(3000)
    quietest = int(np.argmin(city.store.counts("paris")[1]))
    city.count([quietest] * fakes, city.campaigns.mechanism("paris"))
    city.campaigns.close("paris")
    city.work()
    return city, quietest


@cache
def known_city(guarded: bool) -> tuple[City, int]:
    """The same for all tests that only look at it."""
    return poisoned_city(guarded)


def test_fakes_raise_the_alarm() -> None:
    for guarded in (True, False):
        city, quietest = known_city(guarded)
        alarm = city.campaigns.state("paris")["alarm"]
        assert alarm["raised"] is True
        assert alarm["suspicious"][0] == quietest
        assert alarm["p_value"] <= alarm["false_alarm"]
        assert ("guard" in alarm["summary"]) is guarded  # without one there is nothing to say of it


def test_a_guarded_campaign_leaves_fakes_out_of_the_map_and_of_the_next_mechanism() -> None:
    (guarded, target), (plain, _) = known_city(True), known_city(False)
    honest, _ = poisoned_city(True, fakes=0)
    alarm = guarded.estimated()["alarm"]
    fakes = alarm["fakes"]
    assert fakes["named"] == [target]
    # in one round of wide cells, people who stand unevenly explain many of them
    assert 30 <= fakes["least"] == fakes["left_out"] <= 150 <= fakes["most"] <= 200
    assert fakes["found"] == [[1, target, fakes["least"], fakes["most"], 0]]
    assert alarm["still_raised"] is False
    assert f"the guard took out {fakes['least']}." in alarm["summary"]
    shares = [city.estimated()["distribution"][target] for city in (honest, guarded, plain)]
    # what may be fakes is taken out only where that is sure at 99 %
    assert shares[1] - shares[0] < 0.85 * (shares[2] - shares[0])
    interval = guarded.estimated()["interval"]
    assert interval["low"][target] <= shares[0] <= interval["high"][target]
    weights = [
        MechanismDocument.read(city.campaigns.mechanism("paris").document).mechanism.weights[target]
        for city in (honest, guarded, plain)
    ]
    # the averaged estimate that designs are made from hardly moves, guarded or not
    assert max(weights) / min(weights) < 1.02


def test_fakes_of_a_round_long_past_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    city, target = poisoned_city(True)
    monkeypatch.setattr(rounds, "_ALARM_ROUNDS", 1)  # of four, each would take as long as this one
    before = city.estimated()["distribution"][target]
    found = city.estimated()["alarm"]["fakes"]["least"]
    city.report(500)
    city.campaigns.close("paris")
    city.work()
    alarm = city.estimated()["alarm"]
    assert 1 not in alarm["rounds"]
    assert [each[:2] for each in alarm["fakes"]["found"]] == [[1, target]]
    assert found - 20 <= alarm["fakes"]["least"] <= 160  # later rounds make more of them sure
    assert city.estimated()["distribution"][target] < before + 0.01


def test_fakes_are_found_in_a_mechanism_that_was_renewed() -> None:
    """Rounds with the same mechanism are one to the estimate, and stay two on the page."""
    city = City(campaign_settings(guarded=True))
    city.report(200)
    city.campaigns.close("paris")
    city.work()
    city.report(20)
    city.wait(721 * HOUR)
    tick(city.campaigns)
    target = 40
    city.count([target] * 90, city.campaigns.mechanism("paris"))
    city.report(2000)
    city.campaigns.close("paris")
    city.work()
    body = city.estimated()
    assert [known["reports"] for known in body["rounds"]] == [200, 2090]
    assert [3, target] in [each[:2] for each in body["alarm"]["fakes"]["found"]]
    assert body["interval"]["rounds"] == [1, 3]


def test_new_fakes_at_a_known_cell_are_an_alarm_again(monkeypatch: pytest.MonkeyPatch) -> None:
    city, target = poisoned_city(True)
    inspect, looks = GuardedUpdate.inspect, []

    def counted(guard: GuardedUpdate, tallies: list[Tally], **given: Any) -> Guarded:
        looks.append(len(tallies))
        return inspect(guard, tallies, **given)

    monkeypatch.setattr(GuardedUpdate, "inspect", counted)
    monkeypatch.setattr(rounds, "_ALARM_REPLICATES", (49, 49))
    city.report(2000)
    city.campaigns.close("paris")
    city.work()
    assert city.estimated()["alarm"]["raised"] is False
    city.report(2000)
    city.count([target] * 150, city.campaigns.mechanism("paris"))
    city.campaigns.close("paris")
    city.work()
    assert looks == [2, 3]  # once at a close, though the new round seems to disagree
    alarm = city.estimated()["alarm"]
    assert alarm["raised"] is True
    assert [3, target] in [each[:2] for each in alarm["fakes"]["found"]]


@pytest.mark.usefixtures("one_design")
@pytest.mark.parametrize("kinds", [1, 3])
def test_a_round_of_nothing_but_fakes_is_estimated(kinds: int) -> None:
    city = City()
    city.count([41, 0, 20][:kinds] * 100, city.campaigns.mechanism("paris"))
    city.campaigns.close("paris")
    city.work()
    alarm = city.estimated()["alarm"]
    assert (alarm["raised"], alarm["still_raised"]) == (True, True)
    assert city.campaigns.state("paris")["round"] == 2


@pytest.mark.usefixtures("one_design")
def test_no_estimate_is_made_from_fewer_than_the_minimum() -> None:
    city = City(campaign_settings(minimum_reports=1000))
    city.report(40)
    city.count([20] * 960, city.campaigns.mechanism("paris"))
    city.campaigns.close("paris")
    city.work()
    body = city.estimated()
    assert body["reports"] - body["alarm"]["fakes"]["left_out"] == 1000
    assert body["alarm"]["still_raised"] is True


def test_what_is_left_out_still_counts_as_received() -> None:
    city, _ = known_city(True)
    body = city.estimated()
    assert body["reports"] == 3150 == sum(known["reports"] for known in body["rounds"])
    assert city.campaigns.state("paris")["estimate"]["reports"] == 3150


def test_an_unguarded_campaign_leaves_nothing_out() -> None:
    city, _ = known_city(False)
    alarm = city.estimated()["alarm"]
    assert not any(alarm["fakes"].values())
    assert alarm["still_raised"] is True


@pytest.mark.slow
def test_the_largest_campaign_says_what_its_estimate_was_made_from() -> None:
    city = City(campaign_settings(cell_km=0.105, epsilon_per_km=20.0))
    for _ in range(2):
        city.report(20_000)
        city.campaigns.close("paris")
        city.work()
        city.wait(2)
    body = city.estimated()
    assert len(body["distribution"]) == 4070
    assert [known["round"] for known in body["rounds"]] == [1, 2]
    assert len(body["interval"]["rounds"]) == 1
    assert 49 <= body["alarm"]["replicates"] < 199
    gain = body["manipulation_gain"]
    assert (gain["fakes_tried"] < gain["fakes_possible"], gain["fakes_possible"]) == (True, 4070)


def test_unknown_campaigns_and_rounds_are_said_to_be_so() -> None:
    city = City()
    for ask in (city.campaigns.settings, city.campaigns.mechanism, city.campaigns.state,
                city.campaigns.close, city.campaigns.estimate):  # fmt: skip
        with raises_problem("unknown-campaign"):
            ask("lyon")
    for number in (-1, 0, 2, 10**9):
        with raises_problem("unknown-round"):
            city.campaigns.estimate("paris", number)


def test_an_id_is_given_once() -> None:
    city = City()
    with raises_problem("campaign-exists"):
        city.campaigns.create(campaign_settings(name="Another"))
    made = city.campaigns.create(campaign_settings(id=None))
    assert made.id.startswith("paris-")
    assert city.campaigns.settings(made.id).id == made.id


def test_a_bound_on_what_a_fake_may_weigh_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"most_leverage \(4\) must be left out"):
        City(campaign_settings(most_leverage=4.0))


@pytest.mark.usefixtures("one_design")
def test_ids_of_rounds_that_accept_nothing_are_dropped() -> None:
    city = City(campaign_settings(mechanism_hours=1.0, grace_hours=1.0))
    city.report(100)
    city.wait(HOUR)
    city.work()
    forgotten: list[int] = []
    forget = city.store.forget_ids
    city.store.forget_ids = lambda *, now_s: forgotten.append(forget(now_s=now_s))  # type: ignore[method-assign,assignment]
    for seconds in (HOUR + 10, QUEUED_S - 70, 130):
        city.wait(seconds)
        tick(city.campaigns)
    assert forgotten == [0, 0, 100]
    assert city.store.counts("paris")[1].sum() == 100


@pytest.mark.parametrize("epsilon", [8.1, 30.0, 1000.0])
def test_promises_that_hide_nobody_in_a_cell_are_refused(epsilon: float) -> None:
    campaigns = Campaigns(MemoryStore(), clock=Clock())
    with pytest.raises(InvalidInput, match=r"must be at most 8; make the cells smaller"):
        campaigns.create(campaign_settings(epsilon_per_km=epsilon))


@pytest.mark.parametrize("epsilon", [0.001, 0.05, 8.0])
def test_extreme_promises_are_kept(epsilon: float) -> None:
    campaigns = Campaigns(MemoryStore(), clock=Clock())
    campaigns.create(campaign_settings(epsilon_per_km=epsilon, box=FEW))
    document = MechanismDocument.read(campaigns.mechanism("paris").document)
    assert document.law.certificate.epsilon_per_km <= epsilon


def test_a_campaign_made_anew_with_the_same_settings_is_another_to_other_processes() -> None:
    city = City()
    other = Campaigns(city.store, clock=city.clock)
    old = city.campaigns.mechanism("paris").mechanism
    assert other.find(old) is not None
    city.campaigns.delete("paris")
    city.wait(1)
    city.campaigns.create(city.settings)
    tick(other)
    assert other.find(old) is None
    assert other.find(city.campaigns.mechanism("paris").mechanism) is not None


def test_a_campaign_deleted_during_a_look_keeps_no_other_from_closing() -> None:
    city = City()
    lyon = City(
        campaign_settings(id="lyon", round_size=100), store=city.store, clock=city.clock, seed=2
    )
    lyon.report(100)
    other = Campaigns(city.store, clock=city.clock)
    refresh = other.refresh

    def seen_until_now() -> list[RoundTimes]:
        newest = refresh()
        city.store.delete_campaign("paris")
        return newest

    other.refresh = seen_until_now  # type: ignore[method-assign]
    assert [closing.campaign for closing in tick(other)] == ["lyon"]


def test_a_campaign_that_fails_keeps_no_other_from_closing_and_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city, told = City(campaign_settings(round_hours=1.0)), []
    lyon = City(
        campaign_settings(id="lyon", round_size=100), store=city.store, clock=city.clock, seed=2
    )
    upkeep = Upkeep(lyon.campaigns, fault=lambda name, error: told.append((name, type(error))))
    settings = lyon.campaigns.settings

    def unread(campaign: str) -> CampaignSettings:
        if campaign == "paris":
            raise ValueError("written by a newer program")
        return settings(campaign)

    with monkeypatch.context() as patch:
        patch.setattr(lyon.campaigns, "settings", unread)
        lyon.report(100)
        for _ in range(3):
            assert [closing.campaign for closing in upkeep.tick()] == ["lyon"]
    assert told == [("campaign-failed", ValueError)]
    city.report(100)
    city.wait(HOUR)
    assert [closing.campaign for closing in upkeep.tick()] == ["lyon", "paris"]
    assert not upkeep._failing


@pytest.mark.parametrize("newer", [{"unheard_of": 1}, {"slots": "month"}])
def test_campaigns_of_a_newer_program_stop_no_other(newer: dict[str, Any]) -> None:
    city, told = City(campaign_settings(round_hours=1.0)), []
    city.store.mark_copy(NOON - 100)
    ours = city.store.last_round("paris")
    assert ours is not None
    for name, prepared in (("oslo", False), ("rome", True)):
        settings = msgspec.json.encode(msgspec.to_builtins(campaign_settings(id=name)) | newer)
        first = replace(ours, campaign=name, mechanism=64 * "b") if prepared else None
        assert city.store.create_campaign(CampaignRecord(name, name, settings, NOON), first)
    city.campaigns = Campaigns(city.store, clock=city.clock)
    fault = lambda name, error: told.append((name, str(error)))  # noqa: E731
    upkeep = Upkeep(city.campaigns, fault=fault)
    for _ in range(2):
        assert upkeep.tick() == Jobs(city.campaigns).preparations() == []
    assert sorted(told) == [
        ("campaign-failed", str(NewerSettings(name))) for name in ("oslo", "rome")
    ]
    assert city.campaigns.mechanism("paris").number == 1 + 1 + 10 * 100
    assert city.store.copied_at_s(), "the other one opens above when it can be read"
    city.report(100)
    city.wait(HOUR)
    assert [closing.campaign for closing in upkeep.tick()] == ["paris"]
    city.wait(1e7)
    assert not city.campaigns.finished()
    for name in ("oslo", "rome"):
        with pytest.raises(NewerSettings, match=f"{name}.* start the newer one again"):
            city.campaigns.state(name)
        city.campaigns.delete(name)
    assert "paris" in {record.id for record in city.store.campaigns()}


def test_documents_are_kept_for_devices_in_a_bounded_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = {
        f"{number:064}": canonical_bytes({"kind": "mechanism", "text": number * "x"})
        for number in (100, 101, 102, 5000)
    }
    kept = Recent[bytes](500)  # two of them
    monkeypatch.setattr(round_documents, "_SERVED", kept)
    first, second, third, large = documents
    for mechanism in (first, second, first, third, first, large, first):
        body = served(mechanism, documents[mechanism])
        assert body == canonical_bytes({"id": mechanism, **json.loads(documents[mechanism])})
        if mechanism != large:
            assert served(mechanism, b"not read again") is body
    assert kept.get(first)
    assert kept.get(third)
    assert kept.get(second) is None, "the one asked for longest ago goes"
    assert kept.get(large) is None, "and one that is longer is not kept"
    kept.keep(first, b"another", 1)
    assert kept._held_bytes == sum(size for _, size in kept._values.values()) < 500
    levels = canonical_bytes({"kind": "levels"})
    assert served("several", levels) is levels


def test_what_is_known_of_a_deleted_campaign_is_dropped() -> None:
    city = City(campaign_settings(round_hours=1.0))
    city.wait(HOUR)
    tick(city.campaigns)
    upkeep = vars(city.campaigns)["upkeep"]
    assert [*upkeep._settled] == ["paris"]
    city.campaigns.delete("paris")
    tick(city.campaigns)
    assert not upkeep._settled


def test_a_campaign_deleted_while_its_state_is_read_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city = City()
    progress = city.store.progress

    def deleted(campaign: str) -> Progress:
        city.store.delete_campaign(campaign)
        return progress(campaign)

    monkeypatch.setattr(city.store, "progress", deleted)
    with raises_problem("unknown-campaign"):
        city.campaigns.state("paris")


@pytest.mark.parametrize("read", ["progress", "rounds_concluded", "estimate"])
def test_a_campaign_is_not_finished_because_a_round_closes_while_its_state_is_read(
    read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = City(campaign_settings(rounds=2))
    city.report(100)
    city.wait(721 * HOUR)  # the mechanism of the first round has expired
    reads = getattr(city.store, read)

    def closed_after(campaign: str) -> Any:
        value = reads(campaign)
        city.store.close_round(campaign, 1, minimum=100, at_s=int(city.clock()))
        return value

    monkeypatch.setattr(city.store, read, closed_after)
    assert city.campaigns.state("paris")["state"] in ("open", "estimating")


def test_a_campaign_is_not_finished_because_a_round_closes_while_all_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    city = City(campaign_settings(rounds=2))
    city.report(100)
    city.wait(721 * HOUR)  # the mechanism of the first round has expired
    reads = city.store.last_rounds

    def closed_after() -> list[RoundTimes]:
        newest = reads()
        city.store.close_round("paris", 1, minimum=100, at_s=int(city.clock()))
        return newest

    monkeypatch.setattr(city.store, "last_rounds", closed_after)
    assert not city.campaigns.finished()
    monkeypatch.undo()
    assert not city.campaigns.finished()


@pytest.mark.parametrize("set_s", [-HOUR, HOUR])
def test_a_state_is_kept_for_a_second_also_after_the_clock_was_set(
    set_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    city, looks = City(), []
    rounds = city.store.rounds
    monkeypatch.setattr(city.store, "rounds", lambda name: looks.append(name) or rounds(name))
    city.campaigns.state("paris")
    city.wait(set_s)
    for _ in range(5):
        city.campaigns.state("paris")
    assert len(looks) == 2
