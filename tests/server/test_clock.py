"""Promises 33 and 37: a clock that is wrong heals by itself, and so does a store that was put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geoveil.document.wire import MechanismDocument
from geoveil.server import campaigns, upkeep
from geoveil.server.campaigns import Campaigns
from geoveil.server.trusted_clock import CERTAIN_S, JUMP_S, SETTLE_S, SLOW_S, TrustedClock
from geoveil.server.upkeep import QUEUED_S
from geoveil.server.worker import Jobs
from geoveil.store import Store, copy_store, open_store, restore_backup, write_backup
from server.rounds_support import HOUR, NOON, City, campaign_settings, concluded, tick
from store.devices import kept_ids
from store.memory import MemoryStore

YEAR = 31_557_600
YEARS = pytest.mark.parametrize("wrong_s", [10 * YEAR, -10 * YEAR])
pytestmark = pytest.mark.usefixtures("one_design")


class Machine:
    """A machine whose clock somebody sets; its uptime goes on."""

    def __init__(self) -> None:
        self.true_s: float = NOON
        self.wrong_s: float = 0.0
        self.told: list[str] = []

    def wall(self) -> float:
        return self.true_s + self.wrong_s

    def uptime(self) -> float:
        return self.true_s - NOON + 100.0

    def clock(
        self, seen_s: float | None = None, shared: Callable[[], float | None] = lambda: None
    ) -> TrustedClock:
        ours = {"wall": self.wall, "uptime": self.uptime, "tell": self._tell}
        return TrustedClock(seen_s=seen_s, shared=shared, **ours)  # type: ignore[arg-type]

    def _tell(self, name: str, **facts: Any) -> None:
        self.told.append(name)


# -- the clock itself ------------------------------------------------------------------------------


def test_corrections_are_followed_and_jumps_are_not() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(100):
        machine.true_s += 60
        machine.wrong_s += 0.9 * JUMP_S
        assert clock() == machine.wall()
    assert machine.told == []
    assert clock.certain
    machine.wrong_s += 1e9
    before = clock()
    machine.true_s += SETTLE_S / 2
    assert clock() == before + SETTLE_S / 2
    assert clock.in_doubt
    assert not clock.certain
    machine.wrong_s -= 1e9
    assert clock() == machine.wall()
    assert not clock.in_doubt
    assert clock.certain  # nothing was done meanwhile
    assert machine.told == ["clock-jumped", "clock-back"]


def test_a_clock_that_stays_where_it_jumped_to_is_believed() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wrong_s = -1e8
    assert clock.in_doubt
    for _ in range(3):  # hither and thither: not yet
        machine.true_s += SETTLE_S - 1
        machine.wrong_s -= 1_000
        assert clock.in_doubt
    machine.true_s += SETTLE_S
    assert not clock.in_doubt
    assert clock() == machine.wall()
    assert not clock.certain
    machine.true_s += CERTAIN_S
    assert clock.certain
    assert machine.told[-1] == "clock-taken"


@pytest.mark.parametrize(
    ("stopped_s", "trusted"), [(0, True), (20 * HOUR, True), (30 * HOUR, False), (-60, False)]
)
def test_a_start_long_after_or_before_the_last_look_is_a_jump(
    stopped_s: float, trusted: bool
) -> None:
    machine = Machine()
    clock = machine.clock(seen_s=machine.wall() - stopped_s)
    assert (not clock.in_doubt, clock.certain) == (trusted, trusted)
    machine.true_s += SETTLE_S
    assert not clock.in_doubt


@YEARS
def test_a_clock_that_others_share_is_gone_by(wrong_s: float) -> None:
    machine, theirs = Machine(), Machine()
    machine.wrong_s = wrong_s
    clock = machine.clock(seen_s=NOON, shared=theirs.wall)
    assert (clock(), clock.in_doubt, clock.certain) == (NOON, False, True)
    assert machine.told == ["clock-apart"]
    machine.true_s += 60
    theirs.true_s += 60
    machine.wrong_s = 0.0  # put right between two looks: a jump, until the next one
    assert (clock(), clock.in_doubt) == (NOON + 60, True)
    clock.compare()
    assert (clock(), clock.in_doubt, clock.apart_s) == (NOON + 60, False, 0.0)
    assert machine.told[1:] == ["clock-jumped", "clock-apart", "clock-back"]
    theirs.true_s += 600.0  # the shared one jumps
    clock.compare()
    assert (clock(), clock.in_doubt) == (NOON + 60, True)


def test_an_answer_about_the_time_that_was_long_on_its_way_tells_nothing() -> None:
    machine = Machine()

    def slowly(seconds: float) -> float:
        machine.true_s += seconds
        return machine.true_s - 100.0

    assert machine.clock(shared=lambda: slowly(SLOW_S + 0.1)).apart_s == 0.0
    assert machine.clock(shared=lambda: slowly(0.5)).apart_s == 99.75


# -- campaigns under it ----------------------------------------------------------------------------


class Town(City):
    """A city that looks at its campaigns every few seconds, by a machine's clock."""

    def __init__(self, store: Store | None = None, **settings: Any) -> None:
        self.machine = Machine()
        few = {"cell_km": 2.0} | settings  # of what they report nothing is asked here
        super().__init__(campaign_settings(**few), store or MemoryStore(), self.machine.clock())

    def pass_s(self, seconds: float, every_s: float = 1.0) -> None:
        until_s = self.machine.true_s + seconds
        while self.machine.true_s < until_s:
            self.machine.true_s += every_s
            for closing in tick(self.campaigns):
                if not self.campaigns.clock.in_doubt:
                    work = Jobs(self.campaigns).work(closing)
                    Jobs(self.campaigns).publish(work, concluded(work))

    def usable(self) -> MechanismDocument:
        """The mechanism as a device with a right clock gets it, and a report that counts under it."""
        self.campaigns._current.clear()
        current = self.campaigns.mechanism(self.campaign)
        document = MechanismDocument.read(current.document)
        assert document.not_before_s <= self.machine.true_s <= document.expires_s
        assert current.closed_at_s is None
        self.report(1, under=current)
        return document


@YEARS
def test_a_clock_wrong_for_fifteen_seconds_does_nothing(wrong_s: float) -> None:
    town = Town(round_size=100, round_hours=2.0, mechanism_hours=48.0, rounds=3)
    town.report(150)
    before, ids = town.store.rounds("paris"), kept_ids(town.store)
    town.machine.wrong_s = wrong_s
    town.campaigns.clock.in_doubt  # noqa: B018 - the jump is noticed at the first look
    town.pass_s(15)
    assert town.store.rounds("paris") == before
    assert town.store.closings() == []
    town.machine.wrong_s = 0
    town.pass_s(5)
    assert town.campaigns.state("paris")["estimate"]["round"] == 1  # what was due all along
    assert kept_ids(town.store) == ids
    assert town.usable().round == 2


@YEARS
@pytest.mark.parametrize("hours", [0.02, 5])
def test_a_clock_wrong_for_long_heals_within_a_minute(wrong_s: float, hours: float) -> None:
    town = Town(round_hours=3.0, rounds=3)
    town.report(50)
    first = town.campaigns.mechanism("paris")
    ids = kept_ids(town.store)
    town.machine.wrong_s = wrong_s
    town.pass_s(hours * HOUR, every_s=20)
    town.report(1, under=first)  # documents of before still count
    town.machine.wrong_s = 0
    town.pass_s(60)
    town.usable()
    town.report(1, under=first)
    assert ids < kept_ids(town.store)
    state = town.campaigns.state("paris")
    assert (state["state"], state["estimate"]) == ("open", None)
    town.report(100)
    town.pass_s(3 * HOUR + 60, every_s=60)
    assert town.campaigns.state("paris")["estimate"]["reports"] >= 100


@YEARS
def test_services_whose_clocks_are_apart_do_not_replace_each_others_rounds(wrong_s: float) -> None:
    """Over one database, whose clock they share."""
    town, other = Town(round_hours=3.0), Machine()
    shared = town.machine.wall
    town.campaigns.clock = town.machine.clock(shared=shared)
    other.wrong_s = wrong_s
    beside = Campaigns(town.store, clock=other.clock(shared=shared))
    town.report(1)
    for _ in range(60):
        town.pass_s(1)
        other.true_s += 1
        tick(beside)
    assert town.usable().round == 1
    assert other.told == ["clock-apart"]


@YEARS
def test_a_campaign_made_under_a_wrong_clock_heals_too(wrong_s: float) -> None:
    town = Town()
    town.machine.wrong_s = wrong_s
    town.pass_s(120)
    town.campaigns.create(campaign_settings(id="lyon"))
    town.pass_s(HOUR, every_s=30)
    town.machine.wrong_s = 0
    town.pass_s(60)
    town.campaign = "lyon"
    town.usable()


@YEARS
def test_an_estimate_that_waits_over_a_wrong_clock_opens_a_round_of_now(wrong_s: float) -> None:
    town = Town()
    town.machine.wrong_s = wrong_s
    town.pass_s(SETTLE_S + 2)
    town.report(100)
    town.campaigns.close("paris")
    (closing,) = tick(town.campaigns)
    conclusion = concluded(Jobs(town.campaigns).work(closing))
    assert Jobs(town.campaigns).claim(closing, for_s=60)
    town.machine.wrong_s = 0
    town.campaigns.clock()
    town.machine.true_s += SETTLE_S + 1
    (seen,) = tick(town.campaigns)  # whoever had it had it in another decade
    assert Jobs(town.campaigns).claim(closing, for_s=60, held_until_s=seen.claimed_until_s)
    Jobs(town.campaigns).publish(Jobs(town.campaigns).work(closing), conclusion)
    assert town.usable().round > 1


@YEARS
def test_a_round_that_closed_under_a_wrong_clock_keeps_nobody_waiting(wrong_s: float) -> None:
    town = Town()
    town.machine.wrong_s = wrong_s
    town.pass_s(SETTLE_S + 2)
    town.report(100)
    town.campaigns.close("paris")
    town.machine.wrong_s = 0
    for _ in range(60):  # its estimate takes its time
        town.machine.true_s += 1
        tick(town.campaigns)
    number = town.usable().round
    town.pass_s(2)
    assert town.campaigns.state("paris")["estimate"]["reports"] == 100
    assert town.usable().round == number


def test_ids_are_forgotten_on_time_and_not_after_a_jump() -> None:
    town = Town(mechanism_hours=1.0, grace_hours=1.0)
    town.report(20)
    over_s = 2 * HOUR + QUEUED_S
    town.pass_s(over_s - 60, every_s=30)
    assert len(kept_ids(town.store)) == 20
    town.pass_s(180, every_s=30)
    assert kept_ids(town.store) == set()

    town = Town(mechanism_hours=1.0, grace_hours=1.0)
    town.report(20)
    town.machine.wrong_s = YEAR
    town.pass_s(CERTAIN_S - HOUR, every_s=60)
    assert len(kept_ids(town.store)) == 20
    town.pass_s(2 * HOUR, every_s=60)  # a day without any jump: a year has passed
    assert kept_ids(town.store) == set()


def test_the_time_is_kept_for_the_next_start() -> None:
    town = Town()
    town.pass_s(300)
    kept_s = town.store.time_kept()
    assert kept_s is not None
    assert town.machine.true_s - 61 <= kept_s <= town.machine.true_s


def test_the_next_round_opens_when_the_operator_says_so() -> None:
    town = Town()
    town.report(10)
    town.machine.true_s += 5
    assert town.next_round() == 2
    town.report(100)
    town.campaigns.close("paris")
    assert town.next_round() == 3  # without waiting for the estimate
    assert town.usable().round == 3
    town.pass_s(2)
    assert town.campaigns.state("paris")["estimate"]["round"] == 2
    assert [each.number for each in town.store.rounds("paris")] == [1, 2, 3]


# -- a backup put back -----------------------------------------------------------------------------


@pytest.mark.parametrize("restored", ["as it is", "into a store"])
@pytest.mark.parametrize("waits", [False, True])
def test_a_backup_put_back_opens_above_everything_ever_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: str, waits: bool
) -> None:
    town = Town(store=open_store(tmp_path / "one.db"), rounds=5)
    town.report(120)
    if waits:
        town.campaigns.close("paris")
    monkeypatch.setattr("time.time", lambda: town.machine.true_s)
    write_backup(town.store, tmp_path / "backup.db")
    for _ in range(3):  # a round every few seconds
        town.report(120)
        town.campaigns.close("paris")
        town.pass_s(3)
    seen = town.usable().round
    town.store.close()
    if restored == "as it is":
        store = open_store(tmp_path / "backup.db")
    else:
        store = open_store(tmp_path / "two.db")
        restore_backup(tmp_path / "backup.db", store)
    town.store = store
    town.campaigns = Campaigns(store, clock=town.machine.clock(store.time_kept()))
    town.pass_s(2)
    number = town.usable().round
    assert number > seen > 1
    assert store.copied_at_s() is None
    town.pass_s(2)
    assert town.usable().round == number
    town.report(100)
    town.campaigns.close("paris")  # the campaign goes on: it has not had its five rounds
    town.pass_s(2)
    assert town.usable().round == number + 1
    store.close()


def test_no_number_of_a_round_goes_back_however_large_it_is() -> None:
    for number in (1, campaigns.LARGEST_ROUND - 1, campaigns.LARGEST_ROUND, 2**31 - 2):
        assert number <= upkeep._later(number, 2**40) <= max(number, campaigns.LARGEST_ROUND)


@pytest.mark.parametrize("wrong_s", [-HOUR, -YEAR, 50 * YEAR, -50 * YEAR])
def test_a_backup_put_back_under_a_slow_clock_opens_above_everything(wrong_s: float) -> None:
    town, copy = Town(), MemoryStore()
    copy_store(town.store, copy)
    copy.mark_copy(int(town.machine.true_s))
    for _ in range(20):
        town.machine.true_s += 2
        seen = town.next_round()
    town.machine.wrong_s = wrong_s
    town.store, town.campaigns = copy, Campaigns(copy, clock=town.machine.clock(NOON))
    town.pass_s(SETTLE_S + 5)
    town.machine.wrong_s = 0
    town.pass_s(SETTLE_S + 5)
    assert town.usable().round > seen


def test_a_campaign_that_was_over_stays_so_when_put_back() -> None:
    town = Town(rounds=1)
    town.report(100)
    town.campaigns.close("paris")
    town.pass_s(2)
    assert town.campaigns.state("paris")["state"] == "finished"
    town.store.keep_time(int(town.machine.true_s))
    copy = MemoryStore()
    copy_store(town.store, copy)
    copy.mark_copy(int(town.machine.true_s))
    town.store, town.campaigns = copy, Campaigns(copy, clock=town.machine.clock())
    town.pass_s(100)
    assert len(copy.rounds("paris")) == 1
    assert town.campaigns.state("paris")["state"] == "finished"
