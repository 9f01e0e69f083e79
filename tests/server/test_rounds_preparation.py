"""Campaigns of many cells are kept at once, and open when the worker has made their mechanism.

A failure: a campaign that gives out no mechanism for ever, one that gives out another than was asked for, a
round that opens twice, or a reason that is not told. Where so many cells would take long, the bound above
which a campaign is prepared is lowered for the test.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from queue import Queue
from typing import Any

import msgspec
import numpy as np
import pytest

from geoveil.campaign import Campaign
from geoveil.document.wire import MechanismDocument, unpack_levels
from geoveil.errors import InvalidInput
from geoveil.server import round_documents
from geoveil.server.apart import CalculationFailed
from geoveil.server.campaigns import Campaigns
from geoveil.server.logs import Trace
from geoveil.server.round_documents import Prepared, Preparing, first_documents, prepare
from geoveil.server.settings_of_campaign import InvalidSetting
from geoveil.server.worker import CLAIM_S, GIVEN_UP, MOST_FAILURES, Estimator, Jobs, Worker
from geoveil.space import MaskedGrid
from geoveil.space.outline import Outline
from geoveil.store import PreparationRecord, Store, open_store, restore_backup, write_backup
from server.live import Live, new_id
from server.rounds_support import HOUR, City, Clock, campaign_settings, raises_problem, tick
from store.memory import MemoryStore

PATIENCE_S = 300.0
WEST = Outline(
    "west",
    ((np.array([(2.28, 48.82), (2.34, 48.82), (2.34, 48.89), (2.28, 48.89), (2.28, 48.82)]),),),
)
CORNER = Outline(
    "corner",
    ((np.array([(2.28, 48.82), (2.31, 48.82), (2.31, 48.85), (2.28, 48.85), (2.28, 48.82)]),),),
)


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty cells are many."""
    monkeypatch.setattr(round_documents, "AT_ONCE_CELLS", 20)


@pytest.fixture
def campaigns(few_at_once: None) -> Campaigns:
    return waiting_campaigns()


def waiting_campaigns(store: Store | None = None, **changed: Any) -> Campaigns:
    made = Campaigns(store or MemoryStore(), clock=Clock())
    made.create(campaign_settings(**changed))
    return made


def prepared(campaigns: Campaigns) -> None:
    """What the worker does, done here."""
    (wanted,) = Jobs(campaigns).preparations()
    work = Jobs(campaigns).work(wanted)
    assert Jobs(campaigns).publish(work, prepare(work))


class Here(Estimator):
    """No process: prepared in the thread of the worker."""

    def conclude(self, work: Any, **asked: Any) -> Any:
        assert isinstance(work, Preparing)
        return prepare(work)


class Watched:
    """A worker whose events can be waited for."""

    def __init__(self, campaigns: Campaigns, estimator: Estimator | None = None) -> None:
        self.campaigns = campaigns
        self.events: Queue[str] = Queue()
        self.worker = Worker(
            campaigns,
            event=self.events.put,
            fault=lambda name, trace: self.events.put(name),
            estimator=Here(),
            patient=estimator or Here(),
            uptime=campaigns.clock,
        )
        self.worker.start()

    def submit(self) -> bool:
        return any(self.worker.submit(each) for each in Jobs(self.campaigns).preparations())

    def next(self) -> str:
        return self.events.get(timeout=PATIENCE_S)


@pytest.fixture
def watched(campaigns: Campaigns) -> Iterator[Watched]:
    made = Watched(campaigns)
    yield made
    assert made.worker.stop(PATIENCE_S)


def test_a_campaign_of_many_cells_says_that_it_is_being_prepared(campaigns: Campaigns) -> None:
    state = campaigns.state("paris")
    assert (state["state"], state["round"]) == ("preparing", 0)
    assert (state["mechanism"], state["expires"]) == (None, None)
    assert state["preparation"] == {"round": 1, "problem": None, "needs_area": False}
    opening = partial(campaigns.change, next_round_now=True)
    for ask in (campaigns.mechanism, campaigns.close, opening):
        with raises_problem("campaign-preparing", "try again later"):
            ask("paris")
    with raises_problem("no-estimate-yet"):
        campaigns.estimate("paris")
    with raises_problem("unknown-round"):
        campaigns.estimate("paris", 1)
    assert tick(campaigns) == []
    assert campaigns.store.rounds("paris") == []


def test_a_campaign_made_anew_never_gets_the_mechanism_of_the_deleted_one(
    campaigns: Campaigns,
) -> None:
    class Overtaken(Here):
        """While it prepares, the operator deletes the campaign and makes another of the same id."""

        first = True

        def conclude(self, work: Any, **asked: Any) -> Any:
            outcome = super().conclude(work, **asked)
            if self.first:
                self.first = False
                campaigns.delete("paris")
                campaigns.create(campaign_settings(epsilon_per_km=1.0))
            return outcome

    watched = Watched(campaigns, Overtaken())
    for _ in range(2):
        assert watched.submit()
        while watched.worker.waiting:
            time.sleep(0.01)
        campaigns.clock.now += CLAIM_S  # type: ignore[attr-defined]
        if campaigns.store.rounds("paris"):
            break
    (opened,) = campaigns.store.rounds("paris")
    assert unpack_levels(opened.document)[0].epsilon_per_km == 1.0
    assert watched.worker.stop(PATIENCE_S)


def test_it_opens_with_the_mechanism_that_a_small_one_would_have_at_once(
    campaigns: Campaigns, watched: Watched
) -> None:
    campaigns.clock.now += 7 * 24 * HOUR  # type: ignore[attr-defined]
    assert watched.submit()
    assert watched.next() == "campaign-prepared"
    assert Jobs(campaigns).preparations() == []
    (record,) = campaigns.store.rounds("paris")
    (document,) = unpack_levels(record.document)
    (at_once,) = first_documents(campaign_settings(), "paris", int(campaigns.clock()))
    assert record.mechanism == document.id == at_once.id
    assert record.opened_at_s == int(campaigns.clock())
    assert campaigns.mechanism("paris").mechanism == record.mechanism
    state = campaigns.state("paris")
    assert (state["state"], state["round"], state["preparation"]) == ("open", 1, None)


def test_a_small_campaign_is_there_at_once(few_at_once: None) -> None:
    small = Campaigns(MemoryStore(), clock=Clock())
    small.create(campaign_settings(cell_km=2.0))
    assert small.mechanism("paris").number == 1
    assert Jobs(small).preparations() == []


def test_what_a_mechanism_depends_on_is_designed_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    designed = []

    def counted(*args: Any, **options: Any) -> Campaign:
        designed.append(options["rule"])
        return Campaign(*args, **options)

    monkeypatch.setattr(round_documents, "Campaign", counted)
    round_documents._begun_in_box.cache_clear()

    def law(name: str, **changed: Any) -> list[Any]:
        (document,) = first_documents(campaign_settings(**{"cell_km": 4.0, **changed}), name, 7)
        assert document.campaign == name
        values = document.to_dict()
        return [values[each] for each in ("space", "step", "rim", "beta_per_km", "weights")]

    first = law("paris")
    assert law("another", trips=True, minimum_reports=7) == first
    assert len(designed) == 1
    one_by_one = [{"cell_km": 3.0}, {"camouflage": 1.0}, {"epsilon_per_km": 1.5}]
    one_by_one.append({"box": (48.82, 2.28, 48.89, 2.40)})
    for changed in one_by_one:
        assert law("paris", **changed) != first
    assert len(designed) == 1 + len(one_by_one)


def test_a_process_that_is_killed_is_started_again(campaigns: Campaigns) -> None:
    estimator = Estimator()
    watched = Watched(campaigns, estimator)
    process, _ = estimator._started()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)  # so that it is killed before it answers
    assert watched.submit()
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    assert watched.next() == "preparation-failed"
    assert campaigns.state("paris")["state"] == "preparing"
    while watched.worker.waiting:
        time.sleep(0.01)
    assert watched.submit()
    assert watched.next() == "campaign-prepared"
    assert campaigns.mechanism("paris").number == 1
    assert watched.worker.stop(PATIENCE_S)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_another_process_takes_over_from_one_that_died(
    kind: str, few_at_once: None, tmp_path: Path
) -> None:
    store = MemoryStore() if kind == "memory" else open_store(tmp_path / "geoveil.db")
    first = waiting_campaigns(store)
    (wanted,) = Jobs(first).preparations()
    assert Jobs(first).claim(wanted, for_s=CLAIM_S)
    second = Campaigns(store, clock=first.clock)
    assert not Jobs(second).claim(wanted, for_s=CLAIM_S)
    (seen,) = Jobs(second).preparations()
    assert Jobs(second).claim(wanted, for_s=CLAIM_S, held_until_s=seen.claimed_until_s)
    assert not Jobs(first).claim(wanted, for_s=CLAIM_S, held_until_s=seen.claimed_until_s)
    prepared(second)
    work = Jobs(first).work(wanted)
    assert not Jobs(first).publish(work, prepare(work)), "it opens once"
    assert len(store.rounds("paris")) == 1
    store.close()


def test_what_cannot_be_made_ends_the_campaign_and_says_why(
    few_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoveil.document.wire.MOST_WORK", 1000)
    campaigns = waiting_campaigns()
    watched = Watched(campaigns)
    assert watched.submit()
    assert watched.next() == "preparation-refused"
    campaigns.clock.now += 2  # type: ignore[attr-defined]
    state = campaigns.state("paris")
    assert state["state"] == "ended"
    assert "must be fewer at ε × cell" in state["preparation"]["problem"]
    with raises_problem("campaign-ended"):
        campaigns.mechanism("paris")
    with raises_problem("campaign-ended"):
        campaigns.draw("paris", [WEST])
    assert tick(campaigns) == []
    with pytest.raises(
        InvalidInput, match="must be fewer at ε"
    ):  # a small one is refused with the same words
        Campaigns(MemoryStore(), clock=Clock()).create(campaign_settings(cell_km=2.0))
    campaigns.delete("paris")
    assert watched.worker.stop(PATIENCE_S)


@pytest.mark.parametrize(
    ("promise", "field"),
    [({"epsilon_per_km": 9.0}, "epsilon_per_km"),
     ({"epsilon_per_km": None, "promises_per_km": (1.0, 9.0)}, "promises_per_km")],
)  # fmt: skip
def test_cells_too_wide_for_a_promise_are_refused_at_once_beside_it(
    few_at_once: None, promise: dict[str, Any], field: str
) -> None:
    for cell_km in (1.0, 2.0):  # many cells, which would be prepared, and few
        with pytest.raises(InvalidSetting, match=r"× cell_km \(\d\) must be at most 8;") as refusal:
            waiting_campaigns(cell_km=cell_km, **promise)
        assert refusal.value.field == field


def test_what_always_fails_is_given_up(campaigns: Campaigns) -> None:
    class Failing(Here):
        def conclude(self, work: Any, **asked: Any) -> Any:
            raise CalculationFailed(Trace("MemoryError", ()))

    watched, told = Watched(campaigns, Failing()), []
    while "preparation-given-up" not in told:
        if watched.submit():
            told.append(watched.next())
            if len(told) == MOST_FAILURES:
                told.append(watched.next())
            while watched.worker.waiting:
                time.sleep(0.001)
        campaigns.clock.now += 1  # type: ignore[attr-defined]
    assert told == ["preparation-failed"] * MOST_FAILURES + ["preparation-given-up"]
    assert Jobs(campaigns).preparations() == []
    said = {"round": 1, "problem": GIVEN_UP, "needs_area": False}
    assert campaigns.state("paris")["preparation"] == said
    assert watched.worker.stop(PATIENCE_S)


# --- City limits


def test_limits_drawn_meanwhile_are_what_is_prepared(campaigns: Campaigns) -> None:
    (box,) = Jobs(campaigns).preparations()
    late = prepare(Jobs(campaigns).work(box))
    campaigns.draw("paris", [WEST])
    assert not Jobs(campaigns).publish(Jobs(campaigns).work(box), late)
    (city,) = Jobs(campaigns).preparations()
    assert city.round == 1
    assert MaskedGrid.from_dict(json.loads(city.space)).size < campaign_settings().grid.size
    prepared(campaigns)
    (document,) = unpack_levels(campaigns.mechanism("paris").document)
    assert 20 < document.area.size < campaign_settings().grid.size
    assert document.round == 1


@pytest.mark.parametrize(
    ("most", "promises", "waits"),
    [(50, [1.0], False), (50, [1.0, 2.0], True), (20, [1.0], True)],
)
def test_limits_of_some_hundred_cells_keep_no_operator_waiting(
    monkeypatch: pytest.MonkeyPatch, most: int, promises: list[float], waits: bool
) -> None:
    monkeypatch.setattr(round_documents, "AT_ONCE_LIMITED", most)
    several = {"epsilon_per_km": None, "promises_per_km": promises}
    campaigns = waiting_campaigns(**(several if len(promises) > 1 else {}))
    assert campaigns.mechanism("paris").number == 1  # the box, which takes a moment
    campaigns.draw("paris", [WEST])
    assert (campaigns.state("paris")["state"] == "preparing") == waits
    if waits:
        prepared(campaigns)
    record = campaigns.mechanism("paris")
    assert record.number == 2
    documents = unpack_levels(record.document)
    assert len(documents) == len(promises)
    assert documents[0].area.size == 30


def test_limits_of_few_cells_open_at_once(campaigns: Campaigns) -> None:
    campaigns.draw("paris", [CORNER])
    (document,) = unpack_levels(campaigns.mechanism("paris").document)
    assert document.area.size <= 20
    assert Jobs(campaigns).preparations() == []


def test_limits_of_an_open_box_are_prepared_and_no_report_under_the_box_enters_the_map(
    few_at_once: None,
) -> None:
    city = City()
    prepared(city.campaigns)
    box = city.campaigns.mechanism("paris")
    city.campaigns.draw("paris", [WEST])
    assert city.campaigns.state("paris")["state"] == "preparing"
    city.wait(2)
    with raises_problem("campaign-preparing"):
        city.campaigns.mechanism("paris")
    city.count([0, 1, 2], box)  # devices that had fetched it before
    city.wait(31 * 24 * HOUR)  # the box expires: no round follows it meanwhile
    assert tick(city.campaigns) == []
    assert len(city.store.rounds("paris")) == 1
    prepared(city.campaigns)
    city.wait(2)
    now = city.campaigns.mechanism("paris")
    assert (now.number, now.opened_at_s) == (2, int(city.clock()) - 2)
    assert [each.closed_at_s is None for each in city.store.rounds("paris")] == [False, True]
    (document,) = unpack_levels(now.document)
    city.truth = np.full(document.area.size, 1 / document.area.size)
    city.report(150)
    city.campaigns.close("paris")
    city.work()
    body = city.estimated()
    assert (body["reports"], len(body["distribution"])) == (150, document.area.size)
    with raises_problem("area-fixed"):
        city.campaigns.draw("paris", [WEST])


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("write", ["replace_document", "finish_preparation"])
def test_of_two_areas_drawn_at_once_the_later_one_is_meant(
    campaigns: Campaigns, write: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if write == "replace_document":
        prepared(campaigns)
    keep = getattr(campaigns.store, write)

    def drawn_before(*asked: Any, **more: Any) -> bool:
        monkeypatch.setattr(campaigns.store, write, keep)
        if ended:
            campaigns.change("paris", state="ended")
        else:
            campaigns.draw("paris", [CORNER])
        return bool(keep(*asked, **more))

    monkeypatch.setattr(campaigns.store, write, drawn_before)
    with raises_problem("campaign-ended") if ended else nullcontext():
        campaigns.draw("paris", [CORNER])
    rounds = [] if write == "finish_preparation" else [1]
    rounds += [] if ended else [len(rounds) + 1, len(rounds) + 2]
    assert [one.number for one in campaigns.store.rounds("paris")] == rounds


def test_limits_are_prepared_for_the_round_after_one_that_was_opened_meanwhile(
    campaigns: Campaigns,
) -> None:
    prepared(campaigns)
    current = campaigns.look("paris")
    for number in (2, 3):
        campaigns.draw("paris", [WEST])
        (wanted,) = Jobs(campaigns).preparations()
        assert wanted.round == number
        campaigns.renew(current, campaigns.settings("paris"), number)
        current = campaigns.look("paris")


# --- What operators do meanwhile


def test_a_campaign_can_be_paused_ended_and_deleted_while_it_is_prepared(
    campaigns: Campaigns,
) -> None:
    campaigns.change("paris", name="Lutetia", state="paused", published=True)
    assert campaigns.state("paris")["state"] == "paused"
    with raises_problem("campaign-paused"):
        campaigns.mechanism("paris")
    (wanted,) = Jobs(campaigns).preparations()
    campaigns.change("paris", state="ended")
    assert campaigns.state("paris")["state"] == "ended"
    assert Jobs(campaigns).preparations() == []
    with raises_problem("campaign-ended"):
        campaigns.mechanism("paris")
    with raises_problem("campaign-ended"):
        campaigns.close("paris")
    work = Jobs(campaigns).work(wanted)
    assert not Jobs(campaigns).publish(work, prepare(work))
    campaigns.delete("paris")
    with raises_problem("unknown-campaign"):
        campaigns.state("paris")


def test_a_paused_campaign_is_prepared_all_the_same(campaigns: Campaigns) -> None:
    campaigns.change("paris", state="paused")
    prepared(campaigns)
    campaigns.change("paris", state="running")
    assert campaigns.mechanism("paris").number == 1


def test_a_backup_put_back_prepares_above_all_that_may_have_opened_since(
    few_at_once: None, tmp_path: Path
) -> None:
    store = open_store(tmp_path / "geoveil.db")
    waiting_campaigns(store)
    write_backup(store, tmp_path / "backup.db")
    again = open_store(tmp_path / "again.db")
    restore_backup(tmp_path / "backup.db", again)
    copied_at_s = again.copied_at_s()
    assert copied_at_s is not None
    campaigns = Campaigns(again, clock=Clock(now=copied_at_s + 100.0))
    tick(campaigns)
    prepared(campaigns)
    number = campaigns.mechanism("paris").number
    assert number == 1 + 10 * 100
    (document,) = unpack_levels(campaigns.mechanism("paris").document)
    assert document.round == number
    for each in (store, again):
        each.close()


def test_what_travels_to_the_process_is_plain() -> None:
    wanted = PreparationRecord("paris", 3)
    work = Preparing(wanted, campaign_settings(), 5)
    assert not work.record.space
    assert work.large
    assert Prepared(None, "why").event == "preparation-refused"


# --- Bounds


def test_a_box_has_at_most_twice_the_cells_that_city_limits_may_leave() -> None:
    assert not campaign_settings(box=(48.0, 2.0, 50.2, 5.2)).needs_area
    wide = campaign_settings(box=(48.0, 1.2, 50.6, 5.2))
    wide.problems()
    assert wide.needs_area
    with pytest.raises(
        InvalidSetting, match=r"up to 131,072 of which .* no more, not 132,"
    ) as refusal:
        campaign_settings(box=(48.0, 0.2, 51.15, 5.2)).problems()
    assert refusal.value.field == "cell_km"


@pytest.fixture
def few_in_a_mechanism(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty cells are as many as a mechanism has, and Paris has more."""
    monkeypatch.setattr("geoveil.server.shapes.MOST_CELLS", 30)
    monkeypatch.setattr("geoveil.server.settings_of_campaign.MOST_CELLS", 30)


@pytest.mark.parametrize("at_once", [40, 20])
def test_a_box_of_too_many_cells_waits_for_city_limits(
    few_in_a_mechanism: None, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(round_documents, "AT_ONCE_CELLS", 20)
    campaigns = waiting_campaigns()
    assert campaigns.settings("paris").grid.size > 40
    state = campaigns.state("paris")
    assert (state["state"], state["preparation"]["needs_area"]) == ("preparing", True)
    assert Jobs(campaigns).preparations() == [], "nothing is made, and nothing is refused"
    with raises_problem("campaign-preparing", "waits for the city limits"):
        campaigns.mechanism("paris")
    assert tick(campaigns) == []
    corners = [(2.28, 48.82), (2.41, 48.82), (2.41, 48.89), (2.28, 48.89), (2.28, 48.82)]
    everywhere = Outline("everywhere", ((np.array(corners),),))
    with pytest.raises(InvalidInput, match="the area must leave at most 30 cells of 1 km, not"):
        campaigns.draw("paris", [everywhere])
    assert Jobs(campaigns).preparations() == []
    monkeypatch.setattr(round_documents, "AT_ONCE_CELLS", at_once)
    campaigns.draw("paris", [WEST])
    assert 20 < MaskedGrid.covered(campaigns.settings("paris").grid, [WEST]).size <= 30
    if at_once == 20:  # many, so that the worker makes the mechanism
        campaigns.clock.now += 2  # type: ignore[attr-defined]
        assert campaigns.state("paris")["preparation"]["needs_area"] is False
        prepared(campaigns)
    (document,) = unpack_levels(campaigns.mechanism("paris").document)
    assert 20 < document.area.size <= 30
    campaigns.clock.now += 2  # type: ignore[attr-defined]
    assert campaigns.state("paris")["state"] == "open"


def test_a_campaign_that_is_deleted_meanwhile_is_not_prepared(few_in_a_mechanism: None) -> None:
    campaigns = waiting_campaigns()
    kept = campaigns.store.preparations()
    campaigns.delete("paris")
    campaigns.store.preparations = lambda: kept  # type: ignore[method-assign]
    assert Jobs(campaigns).preparations() == []


def test_promises_times_cells_are_bounded() -> None:
    large = {"box": (48.0, 2.0, 50.2, 5.2), "epsilon_per_km": None}
    campaign_settings(**large, promises_per_km=(1.0, 2.0)).problems()
    with pytest.raises(InvalidInput, match=r"promises \(3\) × cells \(58,794\) must be at most"):
        campaign_settings(**large, promises_per_km=(1.0, 2.0, 4.0)).problems()


# --- A real server


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_while_it_prepares_goes_on_at_its_next_start(
    end: int, tmp_path: Path
) -> None:
    box = [48.0, 2.0, 48.575, 2.864]
    with Live(tmp_path, tick_s=0.1) as server:
        began = time.monotonic()
        campaign = server.campaign(box=box)
        asked_s = time.monotonic() - began
        with server.client() as client:
            early = client.get(f"/api/campaigns/{campaign}/mechanism")
            assert (early.status_code, early.headers["retry-after"]) == (409, "10")
            assert early.json()["type"].endswith("/campaign-preparing")
            assert client.get(f"/api/campaigns/{campaign}").json()["state"] == "preparing"
        server.stop(end)
        server.start()
        with server.client() as client:
            until = time.monotonic() + CLAIM_S + PATIENCE_S
            while client.get(f"/api/campaigns/{campaign}").json()["state"] == "preparing":
                assert time.monotonic() < until
                time.sleep(0.1)
            prepared_s = time.monotonic() - began
            assert asked_s < prepared_s / 2, "the operator did not wait for it"
            body = client.get(f"/api/campaigns/{campaign}/mechanism").content
            document = MechanismDocument.read(body, certified=True)
            assert document.area.size > 4096
            for cell, status in ((document.law.centres.size - 1, 200), (1 << 18, 400)):
                report = {"mechanism": document.id, "id": new_id(), "cell": cell}
                sent = client.post(f"/api/campaigns/{campaign}/reports", json=report)
                assert sent.status_code == status, sent.text
        told = [json.loads(line) for line in server.log.read_text().splitlines()]
        assert [line["event"] for line in told].count("campaign-prepared") == 1


@pytest.mark.slow
def test_a_round_of_many_cells_is_estimated_with_all_its_parts(tmp_path: Path) -> None:
    """About 5,000 cells under a mask, drawn in the service, from report to estimate and next mechanism."""
    box = [48.0, 2.0, 48.72, 3.08]
    lake = [[2.5, 48.3], [2.6, 48.3], [2.6, 48.4], [2.5, 48.4], [2.5, 48.3]]
    around = [[2.0, 48.0], [2.98, 48.0], [2.98, 48.7], [2.0, 48.7], [2.0, 48.0]]
    limits = {"type": "Polygon", "coordinates": [around, lake]}
    with Live(tmp_path, tick_s=0.1) as server:
        campaign = server.campaign(box=box, minimum_reports=100)
        with server.operator() as operator:
            drawn = operator.put(f"/api/campaigns/{campaign}/area", json=limits)
            assert drawn.status_code == 204, drawn.text
            until = time.monotonic() + 300
            while operator.get(f"/api/campaigns/{campaign}").json()["state"] == "preparing":
                assert time.monotonic() < until
                time.sleep(0.2)
            body = operator.get(f"/api/campaigns/{campaign}/mechanism").content
            document = MechanismDocument.read(body)
            assert document.area.size > 4096
            assert document.round == 1
            cells = np.random.default_rng(1).integers(0, document.area.size, 3000).tolist()
            reports = [{"mechanism": document.id, "id": new_id(), "cell": cell} for cell in cells]
            for first in range(0, 3000, 1000):
                sent = {"reports": reports[first : first + 1000]}
                answer = operator.post(f"/api/campaigns/{campaign}/reports", json=sent)
                assert answer.status_code == 200
            assert operator.post(f"/api/campaigns/{campaign}/rounds").status_code == 202
            while operator.get(f"/api/campaigns/{campaign}").json()["round"] == 1:
                assert time.monotonic() < until
                time.sleep(0.2)
            estimate = msgspec.json.decode(
                operator.get(f"/api/campaigns/{campaign}/estimate").content
            )
        assert estimate["unfinished"] == []
        assert estimate["reports"] == 3000
        assert len(estimate["interval"]["low"]) == document.area.size
        assert [block["side"] for block in estimate["blocks"]] == [2, 4, 8]
