"""Promises 19 and 20: asking again tells nothing new, and nothing makes a device spend beyond its limit."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import geoveil as gv
from client.crashes import Crash, Machine, on
from client.world import CUT, LYON, NOW_S, Collector, device, document, problem
from geoveil.client import Refused, Unacknowledged

LAT, LNG = LYON.centres_latlng()


# -- averaging (promise 19) ----------------------------------------------------------------------


def best_guess(cells: list[int]) -> int:
    """The likeliest true cell given reports about it, all cells being as likely before."""
    evidence = np.log(document().mechanism.matrix()[:, cells]).sum(axis=1)
    return int(np.argmax(evidence))


def asked_often(true: int, times: int, path: Path) -> list[int]:
    """The cells that a collector sees when one place is reported again and again, over restarts."""
    collector = Collector(after=[CUT])
    source = gv.seeded(true)
    for asked in range(times):
        if asked % 50 == 0:
            it = device(collector, path, randomness=source)
        it.report(lat=float(LAT[true]), lng=float(LNG[true]))
    assert len(collector.reports) == 1
    assert it.ledger.spent_per_km == 2.0
    return [attempt["cell"] for attempt in collector.attempts]


@pytest.mark.parametrize("true", [0, pytest.param(45, marks=pytest.mark.slow)])
def test_three_hundred_reports_are_one(true: int, tmp_path: Path) -> None:
    seen = asked_often(true, 300, tmp_path / "ledger.db")
    assert len(seen) == 2  # the second because the first went without an answer
    assert len(set(seen)) == 1


def test_the_best_guess_gains_nothing_but_would_without_a_memory(tmp_path: Path) -> None:
    one, many, forgetful = 0, 0, 0
    cells = range(1, LYON.size, 4)  # both edges and the middle
    for true in cells:
        seen = asked_often(true, 3, tmp_path / f"{true}.json")
        one += best_guess(seen[:1]) == true
        many += best_guess(seen) == true
        fresh = document().mechanism.sample(np.full(300, true), randomness=gv.seeded(true))
        forgetful += best_guess(fresh.tolist()) == true
    assert one == many < 0.5 * len(cells)
    assert forgetful > 0.9 * len(cells)


# -- the limit (promise 20) ----------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_rounds_in_a_day(rounds: int, tmp_path: Path) -> None:
    """Even of somebody who wants to report in every one of them."""
    collector = Collector()
    options: dict[str, Any] = {"budget_per_km": 10.0, "again": "round"}
    it = device(collector, tmp_path / "ledger.db", **options)
    refusals: Counter[str] = Counter()
    for number in range(1, rounds + 1):
        collector.served = replace(document(), round=number).served()
        if number % 8 == 0:
            it = device(collector, tmp_path / "ledger.db", **options)
        try:
            it.report(lat=45.76, lng=4.84)
        except Refused as refused:
            refusals[refused.reason] += 1
    assert len(collector.reports) == 5
    assert refusals == {"budget": rounds - 5}
    assert it.ledger.spent_per_km == 10.0


@pytest.mark.parametrize("years", [-40, -1, 0, 1, 40])
def test_a_clock_gives_nothing_back(years: int, tmp_path: Path) -> None:
    time_s = [NOW_S]
    collector = Collector()
    options: dict[str, Any] = {"budget_per_km": 2.0, "again": "round"}
    it = device(collector, tmp_path / "ledger.db", clock=lambda: time_s[0], **options)
    it.report(lat=45.76, lng=4.84)
    time_s[0] += years * 31_557_600
    later = {"not_before_s": time_s[0] - 9, "expires_s": time_s[0] + 9}
    collector.served = document(2, **later).served()
    with pytest.raises(Refused) as caught:
        it.report(lat=45.76, lng=4.84)
    assert caught.value.reason == "budget"
    assert len(collector.reports) == 1


def test_a_lower_limit_holds_for_what_was_spent_before(tmp_path: Path) -> None:
    collector = Collector()
    device(collector, tmp_path / "ledger.db").report(lat=45.76, lng=4.84)
    collector.served = document(2).served()
    with pytest.raises(Refused, match="budget"):
        device(collector, tmp_path / "ledger.db", budget_per_km=3.0, again="round").report(
            lat=45.76, lng=4.84
        )


class Person(RuleBasedStateMachine):
    """A device among crashes, restarts, cuts, lost files, old copies and a collector that tries it on."""

    limit_per_km = 4.0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "ledger.db"
        self.collector = Collector()
        self.number = 1
        self.promised = {document().id: 2.0}
        self.time_s = NOW_S
        self.days = {0}
        self.crash_at: int | None = None
        self.lost = False
        self.restored = False
        self.copies: list[bytes] = []
        self.again: Any = "never"
        self._restart()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def _restart(self) -> None:
        options: dict[str, Any] = {"budget_per_km": self.limit_per_km, "max_epsilon_per_km": 3.0}
        try:
            self.device = device(
                self.collector, self.path, clock=lambda: self.time_s, again=self.again, **options
            )
        except Refused:
            assert self.lost

    def _does(self, act: Any) -> None:
        before = len(self.collector.attempts)
        machine, self.crash_at = Machine(self.crash_at), None
        try:
            with on(machine):
                act()
        except Crash:
            self._restart()
        except (Refused, Unacknowledged):
            pass
        if self.lost:
            assert len(self.collector.attempts) == before

    @rule(cell=st.sampled_from([0, 7, 33]))
    def reports(self, cell: int) -> None:
        self._does(lambda: self.device.report(lat=float(LAT[cell]), lng=float(LNG[cell])))

    @rule()
    def flushes(self) -> None:
        self._does(self.device.flush)

    @rule(at=st.integers(1, 120))
    def will_crash(self, at: int) -> None:
        self.crash_at = at

    @rule(again=st.sampled_from(["never", "round", "day"]))
    def restarts(self, again: Any) -> None:
        self.again = again
        self._restart()

    @rule(
        step=st.sampled_from([1, 1, 1, 0, -1, 50]),
        epsilon=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    )
    def another_document(self, step: int, epsilon: float) -> None:
        self._serve(max(1, self.number + step), epsilon)

    @rule(cell=st.sampled_from([0, 7, 33]), epsilon=st.sampled_from([1.0, 2.0]))
    def the_next_round_reports(self, cell: int, epsilon: float) -> None:
        self._serve(self.number + 1, epsilon)
        self.reports(cell)

    def _serve(self, number: int, epsilon: float) -> None:
        self.number = number
        valid = {"not_before_s": 0, "expires_s": 1 << 39}
        made = replace(document(epsilon_per_km=epsilon), round=self.number, **valid)
        self.promised[made.id] = epsilon
        self.collector.served = made.served()

    @rule(days=st.sampled_from([-11_000, -1, 0, 1, 11_000]))
    def clock_is_set(self, days: int) -> None:
        self.time_s = NOW_S + 86_400 * days
        self.days.add(days)

    @rule(
        fault=st.sampled_from([CUT, problem(503, "overloaded"), problem(410, "mechanism-expired")]),
        times=st.integers(1, 4),
        after=st.booleans(),
    )
    def network_fails(self, fault: Any, times: int, after: bool) -> None:
        self.collector.faults = [] if after else [fault] * times
        self.collector.after = [fault] * times if after else []

    @precondition(lambda self: not self.lost)
    @rule()
    def is_copied(self) -> None:
        self.copies.append(self.path.read_bytes())

    @precondition(lambda self: self.copies and not self.lost)
    @rule(which=st.integers(0, 9))
    def an_old_copy_is_put_back(self, which: int) -> None:
        self.path.write_bytes(self.copies[which % len(self.copies)])
        self.restored = True
        self.device.ledger.charges()

    @precondition(lambda self: self.number > 20)
    @rule()
    def the_file_vanishes(self) -> None:
        self.path.unlink(missing_ok=True)
        self.lost = True

    @precondition(lambda self: not self.restored)
    @invariant()
    def never_beyond_the_limit(self) -> None:
        mechanisms = {attempt["id"]: attempt["mechanism"] for attempt in self.collector.attempts}
        told = sum(self.promised[mechanism] for mechanism in mechanisms.values())
        assert told <= self.limit_per_km * (1 + 1e-12)

    @precondition(lambda self: not self.lost)
    @invariant()
    def the_ledger_never_holds_more_than_the_limit(self) -> None:
        assert self.device.ledger.spent_per_km <= self.limit_per_km

    @precondition(lambda self: not self.restored)
    @invariant()
    def one_id_one_cell(self) -> None:
        cells: dict[str, set[int]] = {}
        for attempt in self.collector.attempts:
            cells.setdefault(attempt["id"], set()).add(attempt["cell"])
        assert all(len(each) == 1 for each in cells.values())

    @precondition(lambda self: not self.restored)
    @invariant()
    def one_report_for_one_mechanism_and_day(self) -> None:
        ids: dict[str, set[str]] = {}
        for attempt in self.collector.attempts:
            ids.setdefault(attempt["mechanism"], set()).add(attempt["id"])
        assert all(len(each) <= len(self.days) for each in ids.values())

    @precondition(lambda self: not (self.lost or self.restored))
    @invariant()
    def the_ledger_knows_all_that_was_told(self) -> None:
        known = {charge.report for charge in self.device.ledger.charges()}
        assert {attempt["id"] for attempt in self.collector.attempts} <= known


class TestPerson(Person.TestCase):
    settings = settings(max_examples=15, stateful_step_count=40)


@pytest.mark.slow
class TestPersonAtLength(Person.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=60)
