"""The worker: a process of its own, that may die at any moment and changes nothing by it."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from multiprocessing import popen_spawn_posix
from pathlib import Path
from queue import Queue
from threading import Event
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from databases import cluster
from geoveil.campaign import rounds
from geoveil.document.wire import MechanismDocument
from geoveil.errors import InvalidFile
from geoveil.server import round_documents
from geoveil.server.apart import CalculationFailed, ProcessApart
from geoveil.server.app import Service
from geoveil.server.campaigns import Campaigns
from geoveil.server.conclusion import Conclusion, Work, conclude
from geoveil.server.logs import Log, Trace, trace_of
from geoveil.server.map_files import rendered
from geoveil.server.problem import VIEWS, Problem
from geoveil.server.round_documents import SLOW_CLOCKS_S, Preparing, prepare
from geoveil.server.settings import Settings
from geoveil.server.worker import (
    CLAIM_S,
    ELSEWHERE_S,
    KEEP_EVERY_S,
    LARGE_LIMIT_S,
    LIMIT_S,
    MOST_FAILURES,
    QUICK_S,
    Estimator,
    EstimatorLate,
    EstimatorLost,
    Jobs,
    WorkedElsewhere,
    Worker,
    newest_rounds,
)
from geoveil.store import ClosingRecord, Store, StoreFailed
from server.rounds_support import (
    HOUR,
    NOON,
    City,
    Clock,
    campaign_settings,
    concluded,
    raises_problem,
    tick,
)
from store.memory import MemoryStore, open_any

PATIENCE_S = 300.0
"""Longer than anything here takes; only a fault runs into it."""
YEAR = 365 * 24 * HOUR


class Watched:
    """A worker over a city, whose events can be waited for."""

    def __init__(
        self,
        campaigns: Campaigns,
        estimator: Estimator | None = None,
        uptime: Callable[[], float] | None = None,
    ) -> None:
        self.events: Queue[str] = Queue()
        self.traces: list[Trace] = []
        self.worker = Worker(
            campaigns,
            event=self.events.put,
            fault=self._fault,
            estimator=estimator,
            patient=estimator,
            large=estimator,
            uptime=uptime or campaigns.clock,
        )
        self.worker.start()

    def _fault(self, name: str, trace: Trace) -> None:
        self.traces.append(trace)
        self.events.put(name)

    def next(self) -> str:
        return self.events.get(timeout=PATIENCE_S)


class Here(Estimator):
    """No process: what there is to compute is computed here, when ``gate`` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Event()
        self.gate.set()

    def conclude(self, work: Work, **asked: Any) -> Conclusion:
        assert self.gate.wait(PATIENCE_S)
        try:
            return concluded(work)
        except InvalidFile as problem:
            raise CalculationFailed(trace_of(problem)) from None


@pytest.fixture
def here(city: City) -> Iterator[Watched]:
    """A worker without a process."""
    made = Watched(city.campaigns, Here())
    yield made
    assert made.worker.stop(PATIENCE_S)


TOWN = campaign_settings(cell_km=2.0)
"""Few cells: nothing here is about its map."""


@pytest.fixture
def city(one_design: None) -> City:
    """A town whose mechanisms do not matter."""
    return City(TOWN)


@pytest.fixture(scope="module")
def process() -> Iterator[Estimator]:
    """A process for all tests that leave it as they found it, or dead: to start one takes a second."""
    made = Estimator()
    yield made
    made.stop()
    made.close()


@pytest.fixture
def town() -> City:
    """Another, where the process and this one must design the same."""
    return City(TOWN)


@pytest.fixture
def watched(town: City, process: Estimator) -> Iterator[Watched]:
    made = Watched(town.campaigns, process)
    yield made
    for lane in made.worker._lanes:
        lane.queue.put(None)
        assert lane.thread is not None
        lane.thread.join(PATIENCE_S)
        assert not lane.thread.is_alive()


SQLITE, POSTGRES = "sqlite:///{}/geoveil.db", "postgresql:"


def opened(address: str, folder: Path) -> Store:
    return open_any(cluster().database() if address == POSTGRES else address.format(folder))


def closed(city: City, reports: int = 200) -> ClosingRecord:
    """A closing to work on."""
    city.report(reports)
    city.campaigns.close(city.campaign)
    (closing,) = tick(city.campaigns)
    return closing


def test_a_killed_process_is_started_again_and_the_result_is_the_same(
    town: City, watched: Watched
) -> None:
    work = closed(town)
    expected = conclude(Jobs(town.campaigns).work(work))
    assert watched.worker.submit(work)
    assert watched.next() == "estimate-made"
    first = watched.worker.pid
    assert first not in (None, os.getpid())
    assert town.campaigns.estimate("paris").body == expected.body
    town.wait(2)

    work = closed(town)
    expected = conclude(Jobs(town.campaigns).work(work))
    assert first is not None
    os.kill(first, signal.SIGSTOP)  # so that it is killed before it answers, not after
    assert watched.worker.submit(work)
    os.kill(first, signal.SIGKILL)
    assert watched.next() == "estimator-lost"
    with raises_problem("no-estimate-yet"):
        town.campaigns.estimate("paris", 2)
    town.report(10)  # uploads go on; the closing keeps its counts
    (again,) = tick(town.campaigns)
    assert watched.worker.submit(again)
    assert watched.next() == "estimate-made"
    assert watched.worker.pid not in (None, first)
    assert town.campaigns.estimate("paris", 2).body == expected.body
    assert town.store.rounds("paris")[-1].document == expected.following.document
    assert watched.worker.waiting == 0


def test_a_signal_to_all_processes_of_the_service_ends_no_estimate(
    town: City, watched: Watched
) -> None:
    assert watched.worker.submit(closed(town))
    assert watched.next() == "estimate-made"
    process = watched.worker.pid
    assert process is not None
    town.wait(2)
    os.kill(process, signal.SIGTERM)  # as systemd stops a service, and a terminal with Ctrl-C
    os.kill(process, signal.SIGINT)
    work = closed(town)
    assert watched.worker.submit(work)
    assert watched.next() == "estimate-made"
    assert watched.worker.pid == process


def test_a_signal_to_all_processes_ends_no_estimate_that_has_just_begun(
    town: City, watched: Watched
) -> None:
    assert watched.worker.submit(closed(town))
    until_s = time.monotonic() + PATIENCE_S
    while (process := watched.worker.pid) is None:
        assert time.monotonic() < until_s
    os.kill(process, signal.SIGTERM)
    assert watched.next() == "estimate-made"
    assert watched.worker.pid == process


def test_a_closing_waits_only_once(city: City) -> None:
    estimator = Here()
    estimator.gate.clear()
    watched = Watched(city.campaigns, estimator)
    work = closed(city)
    assert watched.worker.submit(work)
    assert not watched.worker.submit(work)
    assert watched.worker.waiting == 1
    estimator.gate.set()
    assert watched.next() == "estimate-made"
    assert watched.worker.stop(PATIENCE_S)


def test_a_claimed_closing_is_left_to_the_other_process(city: City, here: Watched) -> None:
    work = closed(city)
    other = Campaigns(city.store, clock=city.clock)
    assert Jobs(other).claim(work, for_s=CLAIM_S)
    assert here.worker.submit(work)
    lyon = City(campaign_settings(id="lyon", cell_km=2.0), store=city.store, clock=city.clock)
    lyon.report(100)
    lyon.campaigns.close("lyon")
    for each in tick(lyon.campaigns):
        here.worker.submit(each)
    assert here.next() == "estimate-made"  # of the one that nobody has
    assert [known.campaign for known in city.store.closings()] == ["paris"]
    assert not here.worker.submit(work)
    for seconds in (ELSEWHERE_S, CLAIM_S):  # the other process has died
        city.wait(seconds)
        assert [here.worker.submit(left) for left in tick(city.campaigns)] == [True]
        while here.worker.waiting:
            time.sleep(0.001)
    assert here.next() == "estimate-made"
    assert not city.store.closings()


def taken_over_s(city: City, uptime: Clock, other: Callable[[], object] = lambda: None) -> int:
    """How long a process waits for a closing that another has, which says so every 20 seconds or never."""
    watched = Watched(city.campaigns, Here(), uptime)
    try:
        for second in range(0, 301, int(ELSEWHERE_S)):
            for closing in tick(city.campaigns):
                watched.worker.submit(closing)
            while watched.worker.waiting:
                time.sleep(0.001)
            if not city.store.closings():
                return second
            if second % KEEP_EVERY_S == 0:
                other()
            uptime.now += ELSEWHERE_S
            city.wait(ELSEWHERE_S)
        return second
    finally:
        assert watched.worker.stop(PATIENCE_S)


@pytest.mark.usefixtures("one_design")
@pytest.mark.parametrize(
    ("address", "set_s"),
    [
        (SQLITE, -HOUR / 2),
        (POSTGRES, -HOUR / 2),
        ("memory:", -60),
        ("memory:", HOUR),
        ("memory:", -YEAR),
    ],
)
def test_a_claim_of_the_dead_is_taken_over_in_a_minute_whatever_became_of_the_clock(
    address: str, set_s: float, tmp_path: Path
) -> None:
    city, uptime = (
        City(TOWN, store=opened(address, tmp_path)),
        Clock(100.0),
    )
    assert Jobs(city.campaigns).claim(closed(city), for_s=CLAIM_S)
    city.wait(set_s)
    assert CLAIM_S <= taken_over_s(city, uptime) <= CLAIM_S + ELSEWHERE_S
    assert city.campaigns.estimate("paris").round == 1
    city.store.close()


@pytest.mark.usefixtures("one_design")
@pytest.mark.parametrize(
    ("address", "set_s"),
    [
        (SQLITE, -KEEP_EVERY_S),
        (POSTGRES, -KEEP_EVERY_S),
        ("memory:", -HOUR),
        ("memory:", 0),
        ("memory:", HOUR),
    ],
)
def test_a_claim_of_the_living_is_left_to_them_whatever_their_clock_says(
    address: str, set_s: float, tmp_path: Path
) -> None:
    city, theirs = City(TOWN, store=opened(address, tmp_path)), Clock()
    work, other = closed(city), Jobs(Campaigns(city.store, clock=theirs))
    held = [other.claim(work, for_s=CLAIM_S)]

    def says() -> None:
        theirs.now += KEEP_EVERY_S + set_s  # set again and again
        held.append(other.claim(work, for_s=CLAIM_S, held_until_s=held[-1]))

    assert taken_over_s(city, Clock(100.0), says) == 300
    assert all(held)
    city.store.close()


class Slow(Here):
    """An estimate of ten minutes by the city's clock, with something to do every twenty seconds."""

    def __init__(self, clock: Clock, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.clock, self.meanwhile = clock, meanwhile

    def conclude(self, work: Work, *, limit_s: float, keep: Callable[[], None]) -> Conclusion:
        for _ in range(int(limit_s / KEEP_EVERY_S)):
            self.clock.now += KEEP_EVERY_S
            self.meanwhile()
            keep()
        return super().conclude(work)


@pytest.mark.usefixtures("one_design")
@pytest.mark.parametrize("address", ["memory:", "sqlite:///{}/geoveil.db"])
def test_a_claim_outlives_the_longest_estimate(address: str, tmp_path: Path) -> None:
    city = City(TOWN, store=open_any(address.format(tmp_path)))
    work = closed(city)
    other, taken = Campaigns(city.store, clock=city.clock), []
    slow = Slow(city.clock, lambda: taken.append(Jobs(other).claim(work, for_s=CLAIM_S)))
    watched = Watched(city.campaigns, slow)
    watched.worker._slow["paris"] = watched.worker._patient
    assert watched.worker.submit(work)
    assert watched.next() == "estimate-made"
    assert taken == [0] * int(LIMIT_S / KEEP_EVERY_S)
    assert watched.worker.stop(PATIENCE_S)
    city.store.close()


class Unfinished(Here):
    """A process that never gets beyond so many parts."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts

    def conclude(self, work: Work, **asked: Any) -> Conclusion:
        ready: list[Conclusion] = []
        conclude(work, ready.append)
        return ready[self.parts]


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        (0, ["error_bars", "alarm", "manipulation_gain"]),
        (1, ["alarm", "manipulation_gain"]),
        (2, ["manipulation_gain"]),
    ],
)
def test_an_estimate_that_cannot_be_finished_is_published_and_says_what_it_lacks(
    city: City, parts: int, missing: list[str]
) -> None:
    work = closed(city)
    whole = concluded(Jobs(city.campaigns).work(work))
    watched = Watched(city.campaigns, Unfinished(parts))
    assert watched.worker.submit(work)
    assert [watched.next(), watched.next()] == ["estimate-unfinished", "estimate-made"]
    assert watched.traces[0].where == tuple(missing)
    record = city.campaigns.estimate("paris")
    body, expected = msgspec.json.decode(record.body), msgspec.json.decode(whole.body)
    assert body["unfinished"] == missing
    assert expected.pop("unfinished") == []
    assert {name: body[name] for name in body if name != "unfinished"} == {
        name: expected[name] for name in expected if name in body
    }
    assert ("interval" in body, "alarm" in body) == (parts > 0, parts > 1)
    for ending in VIEWS:
        assert rendered(ending, record.body)
    city.wait(2)
    state = city.campaigns.state("paris")
    assert (state["round"], state["alarm"]) == (2, body.get("alarm"))
    city.report(200)
    city.campaigns.close("paris")
    city.work()  # and the next one remembers what there was
    assert city.estimated(2)["unfinished"] == []
    assert watched.worker.stop(PATIENCE_S)


def test_a_large_campaign_keeps_no_small_one_waiting(city: City) -> None:
    class Late(Here):
        def conclude(self, work: Work, **asked: Any) -> Conclusion:
            if work.campaign == "paris" and asked["limit_s"] <= QUICK_S:
                raise EstimatorLate("an estimate must be made in time")
            if work.campaign == "paris":
                assert self.gate.wait(PATIENCE_S)
            return concluded(work)

    estimator = Late()
    estimator.gate.clear()
    watched = Watched(city.campaigns, estimator)
    assert watched.worker.submit(closed(city))
    lyon = City(campaign_settings(id="lyon", cell_km=2.0), store=city.store, clock=city.clock)
    for number in (1, 2):
        lyon.report(100)
        lyon.campaigns.close("lyon")
        for each in tick(lyon.campaigns):
            watched.worker.submit(each)
        assert watched.next() == "estimate-made"
        lyon.wait(2)
        assert lyon.campaigns.estimate("lyon").round == number
    assert city.store.estimate("paris") is None
    estimator.gate.set()
    assert watched.next() == "estimate-made"
    assert city.store.estimate("paris") is not None
    assert watched.worker.stop(PATIENCE_S)


def test_an_estimate_of_many_cells_keeps_no_long_one_and_no_preparation_waiting(
    city: City, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paris has many cells and is never done, Lyon takes longer than others may wait, Nice is prepared."""
    seen: dict[str, list[float]] = {"paris": [], "lyon": [], "nice": []}

    class Busy(Here):
        def conclude(self, work: Any, **asked: Any) -> Any:
            campaign = work.record.campaign if isinstance(work, Preparing) else work.campaign
            seen[campaign].append(asked["limit_s"])
            if campaign == "nice":
                return prepare(work)
            if campaign == "lyon" and asked["limit_s"] <= QUICK_S:
                raise EstimatorLate("an estimate must be made in time")
            return super().conclude(work) if campaign == "paris" else concluded(work)

    monkeypatch.setattr(Work, "large", property(lambda work: work.campaign == "paris"))
    estimator = Busy()
    estimator.gate.clear()
    watched = Watched(city.campaigns, estimator)
    assert watched.worker.submit(closed(city))
    while not seen["paris"]:
        time.sleep(0.001)
    lyon = City(campaign_settings(id="lyon", cell_km=2.0), store=city.store, clock=city.clock)
    lyon.report(100)
    lyon.campaigns.close("lyon")
    (closing,) = (each for each in tick(lyon.campaigns) if each.campaign == "lyon")
    assert watched.worker.submit(closing)
    assert watched.next() == "estimate-made"
    assert lyon.campaigns.estimate("lyon").round == 1
    monkeypatch.setattr(round_documents, "AT_ONCE_CELLS", 20)
    city.campaigns.create(campaign_settings(id="nice"))
    (wanted,) = Jobs(city.campaigns).preparations()
    assert watched.worker.submit(wanted)
    assert watched.next() == "campaign-prepared"
    assert city.store.estimate("paris") is None
    estimator.gate.set()
    assert watched.next() == "estimate-made"
    assert seen == {"paris": [LARGE_LIMIT_S], "lyon": [QUICK_S, LIMIT_S], "nice": [LARGE_LIMIT_S]}
    assert watched.worker.stop(PATIENCE_S)


def test_an_estimate_that_always_fails_is_given_up_and_the_campaign_goes_on(city: City) -> None:
    class Failing(Here):
        def conclude(self, work: Work, **asked: Any) -> Conclusion:
            if work.round == 1:
                raise CalculationFailed(Trace("MemoryError", ()))
            return super().conclude(work, **asked)

    watched = Watched(city.campaigns, Failing())
    first = closed(city)
    told, began = [], city.clock.now
    while "estimate-given-up" not in told:
        (closing,) = tick(city.campaigns)
        if watched.worker.submit(closing):
            told.append(watched.next())
            if len(told) == MOST_FAILURES:
                told.append(watched.next())
            while watched.worker.waiting:
                time.sleep(0.001)
        city.wait(1)
    assert told == ["estimate-failed"] * MOST_FAILURES + ["estimate-given-up"]
    assert city.clock.now - began > 2 ** (MOST_FAILURES - 3)  # pauses grew
    assert tick(city.campaigns) == []
    city.wait(2)
    assert city.campaigns.mechanism("paris").number == 2
    assert city.campaigns.state("paris")["given_up"] == 1
    with raises_problem("no-estimate-yet", "that of round 1 was given up after 10 attempts that"):
        city.campaigns.estimate("paris")
    city.report(150)
    assert watched.worker.submit(closed(city, 1))
    assert watched.next() == "estimate-made"
    body = city.estimated()
    assert (body["round"], body["reports"]) == (2, 351)
    city.wait(2)
    assert city.campaigns.state("paris")["given_up"] is None  # its reports are in this one
    assert [known["round"] for known in body["rounds"]] == [first.round, 2]
    assert watched.worker.stop(PATIENCE_S)


@pytest.mark.usefixtures("one_design")
@pytest.mark.parametrize(
    ("address", "clock_s"),
    [(SQLITE, 60), (POSTGRES, -HOUR), ("memory:", -YEAR), ("memory:", YEAR)],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_campaign_at_its_end_stays_there_when_a_round_before_is_given_up(
    address: str, first: bool, clock_s: float, tmp_path: Path
) -> None:
    city = City(
        campaign_settings(rounds=2, mechanism_hours=1.0, cell_km=2.0),
        store=opened(address, tmp_path),
    )
    jobs, failing = Jobs(city.campaigns), closed(city, 100)
    city.wait(HOUR + 1)  # its estimate takes so long that the next round opens without it
    tick(city.campaigns)
    city.report(150)
    city.campaigns.close("paris")
    _, last = tick(city.campaigns)
    work = jobs.work(last)
    assert work.last
    while city.store.failed(failing) < MOST_FAILURES:
        pass
    city.wait(clock_s)
    for given_up in (True, False) if first else (False, True):
        if given_up:
            assert jobs.give_up(failing)
        else:
            assert jobs.publish(work, concluded(work))
        assert jobs.work(last).last
        for _ in range(2):
            city.wait(2)
            tick(city.campaigns)
            assert city.campaigns.state("paris")["state"] == "finished"
    city.wait(2 * HOUR)
    assert tick(city.campaigns) == []
    assert city.campaigns.state("paris")["state"] == "finished"
    assert (city.estimated()["round"], city.estimated()["reports"]) == (2, 250)
    with raises_problem("no-estimate-yet", "round 1 and gets none: .* 10 attempts that failed"):
        city.campaigns.estimate("paris", 1)
    city.store.close()


def test_what_a_process_had_when_its_time_was_up_is_taken(city: City) -> None:
    work, ready = Jobs(city.campaigns).work(closed(city)), []
    conclude(work, ready.append)

    class Played(Estimator):
        """The part of the process is played by this thread."""

        fails = False

        def _started(self) -> Any:
            here, theirs = multiprocessing.Pipe()
            self.ends, alive, over = [here, theirs], *multiprocessing.Pipe()
            self.ends += [alive, over]
            for each in ready[:2]:
                theirs.send(each)
            if self.fails:
                theirs.send(Trace("MemoryError", ()))
            return SimpleNamespace(sentinel=alive), here

    for fails in (False, True):
        estimator = Played()
        estimator.fails = fails
        conclusion = estimator.conclude(work, limit_s=0.5)
        assert conclusion.unfinished == ("alarm", "manipulation_gain")
        for each in estimator.ends:
            each.close()


def test_fewer_and_fewer_rounds_are_tried_where_all_are_too_many(city: City) -> None:
    for _ in range(5):
        city.report(100)
        city.campaigns.close("paris")
        city.work()
        city.wait(2)
    closing = closed(city)
    used = [
        sorted(Jobs(city.campaigns).work(replace(closing, failures=failures)).documents)
        for failures in range(4)
    ]
    assert used == [[1, 2, 3, 4, 5, 6]] * 2 + [[6]] * 2
    work = Jobs(city.campaigns).work(replace(closing, failures=2))
    made = conclude(work)
    body = msgspec.json.decode(made.body)
    assert [known["round"] for known in body["rounds"]] == [6]
    assert body["rounds_left_out"] == 5

    # the next begin near where that ended, and come back to all
    for used in ([5, 6, 7], [4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8, 9], list(range(2, 11))):
        assert Jobs(city.campaigns).publish(work, made)
        city.wait(2)
        work = Jobs(city.campaigns).work(closed(city))
        assert sorted(work.documents) == used
        made = concluded(work)
        assert msgspec.json.decode(made.body)["rounds_left_out"] == work.round - len(used)


def test_rounds_are_left_out_where_an_estimate_of_many_was_not_finished() -> None:
    filled = list(range(1, 101))
    kept = {"round": 99, "unfinished": ["error_bars"]}
    assert newest_rounds(filled, {**kept, "unfinished": []}, 0) == filled
    assert newest_rounds(filled, kept, 0) == filled[-74:]
    assert newest_rounds(filled, kept, 2) == filled[-18:]
    assert newest_rounds(filled, {**kept, "rounds_left_out": 70}, 0) == filled[-24:]
    assert newest_rounds(filled[-20:], kept, 0) == filled[-20:]
    assert newest_rounds([7], {"round": 3, "rounds_left_out": 9, "unfinished": []}, 9) == [7]
    finished = {**kept, "unfinished": [], "rounds_left_out": 1}
    assert newest_rounds(filled, finished, 0) == filled


@pytest.mark.usefixtures("one_design")
def test_a_trusted_first_round_is_in_every_attempt_as_it_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "_ALARM_REPLICATES", (49, 49))  # most of the time
    city = City(campaign_settings(cell_km=2.0, trusted_seed=True))
    opening = city.campaigns.mechanism("paris")
    assert city.next_round() == 2, "nobody had reported in the first"
    city.wait(2)
    first = city.campaigns.mechanism("paris")
    sent = Counter(dict.fromkeys(range(city.settings.grid.size), 0))
    sent.update(city.report(600))
    fake = min(sent, key=sent.__getitem__)
    for _ in range(4):
        city.campaigns.close("paris")
        city.work()
        city.wait(2)
        city.report(100)
    city.count([fake] * 2000, first)  # late, by whoever has the link by now
    city.count([fake] * 200, opening)  # which does not become the first by that
    city.campaigns.close("paris")
    (closing,) = city.store.closings()
    for failures, used in ((1, {1, 2, 3, 4, 5, 6}), (2, {2, 6})):
        read: list[set[int]] = []  # and nothing of any other, however many there are
        reading = city.store.rounds

        def noted(campaign: str, numbers: set[int]) -> Any:
            read.append(numbers)  # noqa: B023
            return reading(campaign, numbers)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(city.store, "rounds", noted)
            work = Jobs(city.campaigns).work(replace(closing, failures=failures))
        assert read == [used] == [set(work.counts)]
        assert work.seed is not None
        assert (work.seed[0], work.seed[1].sum(), set(work.documents)) == (2, 600, used)
    body = msgspec.json.decode(conclude(work).body)
    assert "held to the error bars of the trusted seed round" in body["stopped"]
    assert body["distribution"][fake] < 0.15


@pytest.mark.usefixtures("one_design")
def test_a_round_is_no_seed_where_some_had_reported_before_it() -> None:
    city = City(campaign_settings(cell_km=2.0, trusted_seed=True))
    city.report(5)
    city.next_round()
    for _ in range(2):
        city.wait(2)
        work = Jobs(city.campaigns).work(closed(city))
        assert work.seed is None
        assert Jobs(city.campaigns).publish(work, concluded(work))


def test_an_estimate_ends_where_another_process_has_taken_the_closing(city: City) -> None:
    work = closed(city)
    other, taken = Campaigns(city.store, clock=city.clock), []

    def suspended() -> None:
        city.wait(CLAIM_S)  # this process stood still, and the other saw it
        (left,) = city.store.closings()
        taken.append(Jobs(other).claim(work, for_s=CLAIM_S, held_until_s=left.claimed_until_s))

    watched = Watched(city.campaigns, Slow(city.clock, suspended))
    assert watched.worker.submit(work)
    while watched.worker.waiting:
        time.sleep(0.01)
    assert taken == [int(city.clock.now) + CLAIM_S]
    assert [known.round for known in city.store.closings()] == [1]
    assert watched.events.empty()
    city.wait(ELSEWHERE_S)
    assert Jobs(other).claim(work, for_s=CLAIM_S, held_until_s=taken[0])  # theirs, and kept by them
    assert watched.worker.stop(PATIENCE_S)
    assert not Jobs(other).claim(work, for_s=CLAIM_S)


def test_a_campaign_made_anew_never_gets_the_estimate_of_the_deleted_one(city: City) -> None:
    class Overtaken(Here):
        """While it estimates, the campaign is deleted, made anew, and its first round closes too."""

        first = True

        def conclude(self, work: Work, **asked: Any) -> Conclusion:
            outcome = super().conclude(work, **asked)
            if self.first:
                self.first = False
                city.campaigns.delete("paris")
                city.campaigns.create(city.settings)
                closed(city, 150)
            return outcome

    watched = Watched(city.campaigns, Overtaken())
    assert watched.worker.submit(closed(city, 200))
    while watched.worker.waiting:
        time.sleep(0.01)
    city.wait(ELSEWHERE_S)
    assert [watched.worker.submit(left) for left in tick(city.campaigns)] == [True]
    assert watched.next() == "estimate-made"
    assert city.campaigns.estimate("paris").reports == 150
    assert watched.worker.stop(PATIENCE_S)


@pytest.mark.parametrize("read", ["reported_rounds", "given_up", "closing_counts", "rounds"])
def test_work_on_a_campaign_that_is_deleted_while_it_is_read_is_none(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = City(campaign_settings(trusted_seed=True), open_any(f"{tmp_path}/store.db"))
    city.report(100)
    city.campaigns.close("paris")
    city.work()
    city.wait(2)
    work, reads = closed(city), getattr(city.store, read)

    def deleted(*asked: Any) -> Any:
        city.store.delete_campaign("paris")
        return reads(*asked)

    monkeypatch.setattr(city.store, read, deleted)
    with raises_problem("unknown-campaign", "deleted meanwhile"):
        Jobs(city.campaigns).work(work)
    city.store.close()


def test_a_campaign_deleted_when_its_estimate_is_given_up_ends_no_work(
    city: City, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Here):
        def conclude(self, work: Work, **asked: Any) -> Conclusion:
            if work.settings.name == "Paris":
                raise CalculationFailed(Trace("MemoryError", ()))
            return super().conclude(work, **asked)

    def deleted(job: ClosingRecord) -> int:
        city.campaigns.delete("paris")
        return MOST_FAILURES

    watched = Watched(city.campaigns, Failing())
    work = closed(city)
    monkeypatch.setattr(city.store, "failed", deleted)
    assert watched.worker.submit(work)
    assert watched.next() == "estimate-failed"
    until_s = time.monotonic() + 60.0
    while watched.worker.waiting and time.monotonic() < until_s:
        time.sleep(0.01)
    assert watched.worker.waiting == 0
    city.campaigns.create(campaign_settings(name="Paris again"))
    closed(city)
    while city.store.closings() and time.monotonic() < until_s:
        city.wait(ELSEWHERE_S)
        for left in tick(city.campaigns):
            watched.worker.submit(left)
        time.sleep(0.1)
    assert watched.next() == "estimate-made"
    assert watched.worker.stop(PATIENCE_S)


def test_an_estimate_that_cannot_be_given_up_ends_no_work(
    city: City, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Here):
        def conclude(self, work: Work, **asked: Any) -> Conclusion:
            if work.campaign == "paris":
                raise CalculationFailed(Trace("InvalidFile", ()))
            return super().conclude(work, **asked)

    def unreadable(job: ClosingRecord) -> bool:
        raise InvalidFile("the document of its newest round cannot be read")

    watched = Watched(city.campaigns, Failing())
    monkeypatch.setattr(watched.worker.jobs, "give_up", unreadable)
    monkeypatch.setattr(city.store, "failed", lambda job: MOST_FAILURES)
    lyon = City(campaign_settings(id="lyon", cell_km=2.0), store=city.store, clock=city.clock)
    assert watched.worker.submit(closed(city))
    assert [watched.next(), watched.next()] == ["estimate-failed"] * 2
    assert watched.traces[-1].kind == "InvalidFile"
    lyon.report(100)
    lyon.campaigns.close("lyon")
    for closing in tick(lyon.campaigns):
        if closing.campaign == "lyon":
            assert watched.worker.submit(closing)
    assert watched.next() == "estimate-made"
    assert watched.worker.stop(PATIENCE_S)


def test_a_store_that_is_gone_for_a_moment_ends_no_estimate(city: City) -> None:
    class Flickering(Jobs):
        calls = 0

        def claim(self, work: Work, **asked: int) -> int:
            self.calls += 1
            if self.calls % 2:
                return super().claim(work, **asked)
            raise StoreFailed("the database is gone")

    watched = Watched(city.campaigns, Slow(city.clock, lambda: None))
    watched.worker.jobs = Flickering(city.campaigns)
    assert watched.worker.submit(closed(city))
    assert watched.next() == "estimate-made"
    assert watched.worker.stop(PATIENCE_S)


def test_what_fails_is_tried_again_after_longer_and_longer(
    city: City, here: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, loaded = closed(city), here.worker.jobs.work
    monkeypatch.setattr(
        here.worker.jobs,
        "work",
        lambda c: replace(loaded(c), documents={1: b"{}"}) if c == bad else loaded(c),
    )
    for wait_s in (0.0, 1.0, 2.0, 4.0):
        assert here.worker.submit(bad)
        assert here.next() == "estimate-failed"
        if wait_s:
            city.wait(wait_s / 2)
            assert not here.worker.submit(bad)
        city.wait(wait_s / 2)
    other = City(campaign_settings(id="lyon", cell_km=2.0), store=city.store, clock=city.clock)
    other.report(100)
    other.campaigns.close("lyon")
    work = next(work for work in tick(other.campaigns) if work.campaign == "lyon")
    assert here.worker.submit(work)
    assert here.next() == "estimate-made"
    assert other.campaigns.estimate("lyon").round == 1


class FailingJobs(Jobs):
    """Jobs whose store is gone when the first estimate is ready."""

    lost = 1

    def publish(self, work: Work, conclusion: Conclusion) -> bool:
        if self.lost:
            self.lost -= 1
            raise StoreFailed("the database is gone")
        return super().publish(work, conclusion)


@pytest.mark.parametrize(("problem", "told"), [("unknown-campaign", 0), ("campaign-ended", 1)])
def test_only_a_campaign_that_is_gone_is_no_failure(
    city: City, problem: str, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(city.campaigns, Here())

    def refused(job: ClosingRecord) -> Work:
        raise Problem(problem)

    monkeypatch.setattr(watched.worker.jobs, "work", refused)
    assert watched.worker.submit(closed(city))
    while watched.worker.waiting:
        time.sleep(0.001)
    assert watched.worker.stop(PATIENCE_S)
    assert (watched.events.qsize(), city.store.closings()[0].failures) == (told, 0)


def test_an_estimate_that_could_not_be_kept_is_made_again(city: City) -> None:
    watched = Watched(city.campaigns, Here())
    watched.worker.jobs = FailingJobs(city.campaigns)
    work = closed(city)
    assert watched.worker.submit(work)
    assert watched.next() == "estimate-not-kept"
    (trace,) = watched.traces
    assert trace.kind == "StoreFailed"
    assert trace.where[-1].startswith("test_rounds_worker.py:")
    assert watched.worker.submit(work)
    assert watched.next() == "estimate-made"
    assert watched.worker.stop(PATIENCE_S)


class Lost(Here):
    """A process that dies the first time."""

    lost = 1

    def conclude(self, work: Work, **asked: Any) -> Conclusion:
        if self.lost:
            self.lost -= 1
            raise EstimatorLost("paris")
        return super().conclude(work, **asked)


async def _failing_service(city: City, said: StringIO, estimator: Estimator) -> str:
    """A service of which one estimate fails and the next is made; its metrics then."""
    service = Service(
        city.store, Settings(tick_s=3600.0), log=Log("info", stream=said), clock=city.clock
    )
    for lane in service.worker._lanes:
        lane.estimator = estimator
    await service.start()
    outcomes = service.metrics.estimates
    for outcome in ("failed", "made"):
        while not outcomes[outcome]:
            service._look()
            await asyncio.sleep(0.01)
    text = "\n".join(service.metrics.lines())
    await service.stop(PATIENCE_S)
    return text


def test_a_failure_is_an_error_in_the_log_with_its_place_and_counted(city: City) -> None:
    closed(city)
    said = StringIO()
    text = asyncio.run(asyncio.wait_for(_failing_service(city, said, Lost()), timeout=PATIENCE_S))
    assert 'geoveil_estimates_total{outcome="failed"} 1' in text
    assert 'geoveil_estimates_total{outcome="made"} 1' in text
    lost, made = (json.loads(line) for line in said.getvalue().splitlines())
    assert (made["event"], made["level"]) == ("estimate-made", "info")
    assert (lost["event"], lost["level"]) == ("estimator-lost", "error")
    assert lost["error"] == "EstimatorLost"
    assert lost["where"][-1].startswith("test_rounds_worker.py:")
    assert "paris" not in said.getvalue()
    assert "/" not in "".join(lost["where"])


def test_stopping_does_not_wait_for_an_estimate(
    town: City, watched: Watched, process: Estimator
) -> None:
    assert watched.worker.submit(closed(town))
    assert watched.next() == "estimate-made"
    pid = watched.worker.pid
    assert pid is not None
    town.wait(2)
    os.kill(pid, signal.SIGSTOP)  # it will never answer
    watched.worker._quick.limit_s = 2 * PATIENCE_S  # and nothing but a stop will end it
    assert watched.worker.submit(closed(town))
    while not town.store.closings()[0].claimed_until_s:  # until it is being worked on
        time.sleep(0.001)
    assert watched.worker.stop(PATIENCE_S)
    assert watched.worker.pid is None
    process.over = False  # the next test may start another
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    (left,) = tick(town.campaigns)
    assert left.round == 2
    assert Jobs(town.campaigns).claim(
        left, for_s=60
    )  # given back, so that a restart begins at once


ORPHAN = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from server.rounds_support import City, raises_problem
from geoveil.server.worker import Estimator

if __name__ == "__main__":
    city, estimator = City(), Estimator()
    city.report(100)
    city.campaigns.close("paris")
    estimator.conclude(city.due()[0], limit_s=60.0)
    sys.stdout.write(str(estimator.pid))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_process_does_not_outlive_a_killed_server(tmp_path: Path) -> None:
    script = tmp_path / "server_that_dies.py"
    script.write_text(ORPHAN, encoding="utf-8")
    tests = Path(__file__).parent.parent
    # the process inherits the standard output: to read it to its end is to wait for both to be gone
    ended = subprocess.run(
        [sys.executable, str(script), str(tests)],
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert int(ended.stdout) > 0


LATE = campaign_settings(cell_km=2.0, mechanism_hours=1.0, grace_hours=0.5)


@pytest.mark.usefixtures("one_design")
@pytest.mark.parametrize("late_s", [0, HOUR // 2])
def test_a_round_that_opens_in_time_has_the_document_of_its_closing(late_s: int) -> None:
    city = City(LATE)
    work = Jobs(city.campaigns).work(closed(city))
    conclusion = concluded(work)
    city.wait(late_s)
    assert Jobs(city.campaigns).publish(work, conclusion)
    assert conclusion.following is not None
    opened = city.store.rounds("paris")[-1]
    assert opened == replace(conclusion.following, opened_at_s=NOON + late_s)


@pytest.mark.usefixtures("one_design")
@pytest.mark.parametrize("late_s", [HOUR // 2 + 1, HOUR + 1, 100 * HOUR])
def test_a_round_that_opens_late_lives_as_long_as_any(late_s: int) -> None:
    city = City(LATE)
    work = Jobs(city.campaigns).work(closed(city))
    conclusion = concluded(work)
    city.wait(late_s)
    elsewhere = MemoryStore()
    with city.store.snapshot() as everything:
        elsewhere.fill(everything)
    for store in (city.store, elsewhere):
        assert Jobs(Campaigns(store, clock=city.clock)).publish(work, conclusion)
        assert not Jobs(Campaigns(store, clock=city.clock)).publish(work, conclusion)
    opened = city.store.rounds("paris")[-1]
    assert opened == elsewhere.rounds("paris")[-1]
    assert opened.number == 2
    assert opened.opened_at_s == NOON + late_s
    assert opened.expires_at_s == opened.opened_at_s + HOUR
    assert opened.accept_until_s == opened.expires_at_s + HOUR // 2
    document = MechanismDocument.read(opened.document)
    assert (document.id, document.round) == (opened.mechanism, 2)
    assert document.not_before_s == opened.opened_at_s - SLOW_CLOCKS_S
    assert conclusion.following is not None
    intended = MechanismDocument.read(conclusion.following.document)
    assert replace(document, not_before_s=0, expires_s=1).to_bytes() == (
        replace(intended, not_before_s=0, expires_s=1).to_bytes()
    )
    city.report(150)
    city.campaigns.close("paris")
    city.work()
    assert city.campaigns.estimate("paris").round == 2


def test_where_no_process_can_be_started_the_next_call_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    apart = ProcessApart()
    monkeypatch.setattr(popen_spawn_posix.Popen, "_launch", refused)
    for _ in range(2):
        with pytest.raises(EstimatorLost):
            list(apart.answers(math.inf, print))
        assert apart.pid is None
    apart.stop()


@pytest.mark.slow
def test_a_process_that_takes_too_long_or_is_not_wanted_is_stopped(city: City) -> None:
    estimator, looks = Estimator(), []
    work = Jobs(city.campaigns).work(closed(city))
    with pytest.raises(EstimatorLost):
        estimator.conclude(work, limit_s=0.0)
    assert estimator.pid is None
    with pytest.raises(match="RefusedDocument") as caught:
        estimator.conclude(
            replace(work, documents={1: b"{}"}),
            limit_s=PATIENCE_S,
            keep=lambda: looks.append("claimed"),
            keep_every_s=0.01,
        )
    assert looks  # starting the process takes longer than that
    trace = caught.value.trace  # of the other process
    assert trace.kind == "RefusedDocument"
    assert any(place.startswith("worker.py:") for place in trace.where)
    assert trace.where[-1].startswith("wire.py:")
    assert estimator.conclude(work, limit_s=PATIENCE_S).body == conclude(work).body

    def unwanted() -> None:
        raise WorkedElsewhere("another process has it")

    assert estimator.pid is not None
    os.kill(estimator.pid, signal.SIGSTOP)
    with pytest.raises(WorkedElsewhere):
        estimator.conclude(work, limit_s=PATIENCE_S, keep=unwanted, keep_every_s=0.01)
    assert estimator.pid is None  # or it would answer this to the next question
