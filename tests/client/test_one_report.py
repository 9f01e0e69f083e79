"""One report per campaign, whatever the operator does; what is charged again only where a person says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

import geoveil as gv
from client.crashes import everything_in
from client.world import CUT, LYON, NOW_S, PLACE, Collector, Eye, device, document, problem, refused
from geoveil.arrays import IntArray
from geoveil.channel.words import NEARBY_KM, between_places, explain_nearby
from geoveil.client import Device, Ledger, Receipt, Unacknowledged
from geoveil.client.device import AROUND_KM
from geoveil.client.network import Answer
from geoveil.errors import InvalidInput
from geoveil.position.whole_law import WholeLaw

DAY_S = 86_400
ELSEWHERE = {"lat": 45.745, "lng": 4.82}
YEAR_S = 365 * DAY_S


def opens_round(collector: Collector, number: int, **changes: Any) -> None:
    collector.served = replace(document(), round=number, **changes).served()


class Clock:
    def __init__(self, now_s: float = NOW_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


ALWAYS = {"not_before_s": 0, "expires_s": 1 << 39}
"""A document that is valid whatever the clock shows."""


# -- never again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_an_operator_who_closes_rounds_quickly_spends_one_report(rounds: int, path: Path) -> None:
    collector, eye = Collector(), Eye()
    it = device(collector, path, budget_per_km=100.0)
    first = it.report(locate=eye)
    for number in range(2, rounds):
        opens_round(collector, number)
        eye.place = (45.74 + number % 40 / 1000, 4.82)
        assert it.report(locate=eye) == first
    assert eye.looks == 1
    assert len(collector.attempts) == 1
    assert it.ledger.spent_per_km == 2.0


def test_the_summary_is_about_as_many_reports_as_there_were(path: Path) -> None:
    collector = Collector()
    it = device(collector, path, again="round")
    for sent in (0, 1, 2):
        if sent:
            opens_round(collector, sent)
            it.report(**PLACE)
        spent = it.ledger.spent(it.address.origin, NOW_S).lifetime
        told = between_places(spent, NEARBY_KM, reports=max(1, sent))
        assert (told in it.summary()) is (sent > 0)
        assert ("2 reports, where neither of you moves" in it.summary()) is (sent > 1)
        more = explain_nearby(spent, NEARBY_KM, AROUND_KM, reports=max(1, sent))
        assert (more in it.summary()) is (sent > 1)


def test_an_operator_who_opens_campaigns_is_shown_with_all_of_them(path: Path) -> None:
    ledger = Ledger(path)
    for name in ("lyon", "lyon-2", "lyon-3"):
        it = Device(
            f"https://collector.example/c/{name}",
            max_epsilon_per_km=2.0,
            budget_per_km=10.0,
            ledger=ledger,
            transport=Collector(document(campaign=name).served()),
            clock=lambda: NOW_S,
        )
        words = it.explain()
        receipt = it.report(**PLACE)
    cost = (
        "together have cost ε = 4 per km and 0.024 for rounding so far, and ε = 6 per km and 0.036"
    )
    assert cost in words
    assert receipt.operator_spent_per_km == 6.0
    other = device("https://other.example/c/lyon", ledger)
    assert (
        "Nothing was reported to any campaign at https://other.example so far." in other.summary()
    )
    cost = "3 reports so far, together ε = 6 per km and 0.036 for rounding; 4 of 10 per km are left"
    assert cost in other.summary()
    same = "within 200 m of you could have sent the same 3 reports, where neither of you moves"
    assert same in other.summary()
    moving = (
        "Two people who each stay within 100 m of a place, these places 200 m apart: any 3 reports"
    )
    assert moving in other.summary()


def test_the_report_counts_under_its_own_mechanism(path: Path) -> None:
    """It went without an answer; rounds later it is still that one which is sent."""
    collector = Collector(faults=[CUT] * 3)
    it = device(collector, path)
    with pytest.raises(Unacknowledged):
        it.report(**PLACE)
    opens_round(collector, 7)
    receipt = it.report(**ELSEWHERE)
    assert (receipt.round, receipt.mechanism) == (1, document().id)
    assert collector.attempts[0] == collector.attempts[-1]


def test_a_person_who_reported_in_rounds_can_stop(path: Path) -> None:
    collector = Collector()
    first = device(collector, path, again="round").report(**PLACE)
    opens_round(collector, 2)
    assert device(collector, path).report(**PLACE) == first
    assert device(collector, path, again="round").report(**PLACE).round == 2


def test_many_apps_at_once_from_many_places_make_one_report(path: Path) -> None:
    collector = Collector()

    def reports(number: int) -> Receipt:
        return device(collector, path).report(lat=45.742 + number / 300, lng=4.83)

    with ThreadPool(8) as pool:
        receipts = pool.map(reports, range(10))
    assert len({(receipt.report, receipt.cell) for receipt in receipts}) == 1
    assert len({(attempt["id"], attempt["cell"]) for attempt in collector.attempts}) == 1
    assert Ledger(path).spent_per_km == 2.0


# -- again ---------------------------------------------------------------------------------------


def test_every_round_is_charged_where_a_person_says_so(path: Path) -> None:
    collector = Collector()
    it = device(collector, path, again="round")
    receipts = []
    for number in (1, 1, 2, 2, 3):
        opens_round(collector, number)
        receipts.append(it.report(**PLACE))
    assert [receipt.round for receipt in receipts] == [1, 1, 2, 2, 3]
    assert len(collector.attempts) == 3
    assert it.ledger.spent_per_km == 6.0


def test_every_day_is_charged_where_a_person_says_so(path: Path) -> None:
    clock = Clock()
    collector = Collector()
    it = device(collector, path, again="day", clock=clock)
    ids = []
    for hours in (0, 1, 23, 24, 30, 72):
        clock.now_s = NOW_S - NOW_S % DAY_S + 3600 * hours + 1
        opens_round(collector, hours + 1, **ALWAYS)
        ids.append(it.report(**PLACE).report)
    assert len(set(ids[:3])) == 1
    assert len(set(ids[3:5])) == 1
    assert len(set(ids)) == 3
    assert it.ledger.spent_per_km == 6.0


# -- restores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("again", ["never", "day", "round"])
def test_after_an_older_ledger_is_put_back_the_same_report_comes_again(
    again: Any, seen: bool, path: Path
) -> None:
    """Made at any time since a device was first opened for the campaign."""
    collector = Collector()
    it = device(collector, path, again=again)
    if seen:
        with pytest.raises(
            TimeoutError
        ):  # its document was accepted, and no location could be read
            it.report(locate=no_signal)
    copy = path.read_bytes()
    first = it.report(**PLACE)
    path.write_bytes(copy)
    assert device(collector, path, again=again).report(**PLACE) == first
    assert len(collector.attempts) == 2
    path.write_bytes(copy)
    assert device(collector, path, again=again).report(**ELSEWHERE).report == first.report
    assert list(collector.reports) == [first.report]
    assert it.ledger.spent_per_km == 2.0


def test_an_older_copy_reports_once_more_under_a_later_mechanism(path: Path) -> None:
    """The documentation says so: the same bits under two laws would tell more than two draws do."""
    collector = Collector()
    it, copy = device(collector, path), path.read_bytes()
    first = it.report(**PLACE)
    path.write_bytes(copy)
    collector.served = document(2).served()
    again = device(collector, path).report(**PLACE)
    assert list(collector.reports) == [first.report, again.report]
    assert it.ledger.spent_per_km == 2.0  # what the copy knows


def no_signal() -> tuple[float, float]:
    raise TimeoutError("no signal")


@pytest.mark.parametrize("again", ["never", "round"])
def test_a_collector_put_back_from_a_backup_locks_nobody_out(again: Any, tmp_path: Path) -> None:
    """Devices that saw round 7 meet round 5 again, and then another round 6 than the one they saw."""
    collector = Collector()
    opens_round(collector, 7)
    reported = device(collector, tmp_path / "reported.db", again=again)
    seven = reported.report(**PLACE)
    only_saw = device(collector, tmp_path / "saw.db", again=again)
    with pytest.raises(TimeoutError):
        only_saw.report(locate=no_signal)
    collector.reports.clear()
    opens_round(collector, 5)
    five = only_saw.report(**PLACE)
    assert (five.round, five.acknowledged) == (5, True)
    back = reported.report(**PLACE)
    if again == "never":
        assert back == seven
    else:
        assert (back.round, back.acknowledged) == (5, True)
    collector.served = replace(document(epsilon_per_km=1.0), round=6).served()
    assert reported.report(**PLACE).round == (7 if again == "never" else 6)
    opens_round(collector, 5)
    # the same mechanism again is the same report, however often it comes back
    attempts = len(collector.attempts)
    only_saw.report(**ELSEWHERE)
    assert len(collector.attempts) == attempts
    opens_round(collector, 7)
    assert reported.report(**ELSEWHERE).report == seven.report
    assert len(collector.attempts) == attempts


def test_a_collector_that_forgot_a_mechanism_costs_nothing_more(path: Path) -> None:
    collector = Collector(faults=[problem(404, "unknown-mechanism")] * 5)
    it = device(collector, path)
    for _ in range(3):
        with pytest.raises(Unacknowledged):
            it.report(**PLACE)
    assert it.ledger.spent_per_km == 2.0
    assert len({attempt["id"] for attempt in collector.attempts}) == 1


# -- the end of a campaign -----------------------------------------------------------------------


def keys(path: Path) -> bytes:
    with Ledger(path)._book() as book:
        name = "https://collector.example/c/lyon"
        ((key,),) = book.execute("SELECT key FROM campaign WHERE name = ?", (name,))
        return key or b""


def ended(collector: Collector, _: Clock) -> None:
    collector.get = lambda *_, **__: problem(410, "campaign-ended")  # type: ignore[method-assign]


def expired(_: Collector, clock: Clock) -> None:
    clock.now_s += 1000


@pytest.mark.parametrize("end", [ended, expired])
def test_at_the_end_the_key_is_erased_and_the_charge_stays(
    end: Callable[[Collector, Clock], None], path: Path
) -> None:
    collector, clock = Collector(), Clock()
    it = device(collector, path, again="round", clock=clock)
    receipt = it.report(**PLACE)
    key = keys(path)
    assert len(key) == 32
    end(collector, clock)
    assert refused(it.report, **PLACE).reason == end.__name__
    assert keys(path) == b""
    assert key not in everything_in(path.parent)
    assert it.ledger.spent_per_km == 2.0
    assert device(collector, path, clock=clock).report(**PLACE) == receipt


def test_whoever_opens_the_ledger_later_erases_the_keys_of_what_has_ended(path: Path) -> None:
    device(Collector(), path, again="round").report(**PLACE)
    key = keys(path)
    device("https://other.example/c/lyon", path)
    assert keys(path) == key
    device("https://other.example/c/lyon", path, clock=lambda: NOW_S + 1000)
    assert keys(path) == b""
    device("https://other.example/c/lyon", path, clock=lambda: float("nan"))


def test_a_report_that_comes_too_late_ends_the_campaign_too(path: Path) -> None:
    collector = Collector(faults=[problem(410, "campaign-ended")])
    it = device(collector, path, again="round")
    caught = refused(it.report, **PLACE)
    assert (caught.detail, caught.sent) == ("campaign-ended", True)
    assert keys(path) == b""


# -- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "reports", "broken"),
    [
        ({"budget_per_km": 6.0}, 3, "lifetime"),
        ({"budget_per_day_per_km": 4.0}, 2, "day"),
        ({"budget_per_year_per_km": 4.0}, 2, "year"),
        ({"budget_per_day_per_km": 2.0, "budget_per_year_per_km": 2.0}, 1, "day"),
        ({"slack_budget_nats": 0.03}, 2, "slack"),
    ],
)
def test_each_limit_holds_before_a_location_is_read(
    limits: dict[str, float], reports: int, broken: str, path: Path
) -> None:
    collector, eye = Collector(), Eye()
    it = device(collector, path, again="round", **{"budget_per_km": 100.0, **limits})
    for number in range(1, 8):
        opens_round(collector, number)
        if number <= reports:
            it.report(locate=eye)
        else:
            caught = refused(it.report, locate=eye)
            assert (caught.reason, caught.detail) == ("budget", broken)
            assert refused(it.explain).detail == broken
    assert eye.looks == len(collector.reports) == reports


def test_days_and_years_pass(path: Path) -> None:
    clock = Clock()
    collector = Collector()
    it = device(
        collector, path, again="round", clock=clock, budget_per_km=100.0,
        budget_per_day_per_km=2.0, budget_per_year_per_km=4.0,
    )  # fmt: skip
    outcomes = []
    for number, days in enumerate((0, 0, 1, 2, 364, 365, 366), start=1):
        clock.now_s = NOW_S + days * DAY_S
        opens_round(collector, number, **ALWAYS)
        try:
            it.report(**PLACE)
            outcomes.append("")
        except gv.errors.GeoveilError as refusal:
            outcomes.append(refusal.detail)  # type: ignore[attr-defined]
    assert outcomes == ["", "day", "", "year", "year", "", ""]
    assert it.ledger.spent_per_km == 8.0


def test_limits_are_exact_for_numbers_as_written(path: Path) -> None:
    collector = Collector()
    it = device(collector, path, again="round", budget_per_km=0.3, budget_per_day_per_km=0.3)
    for number in (1, 2, 3):
        collector.served = document(number, epsilon_per_km=0.1).served()
        left = it.report(**PLACE).budget_left_per_km
    assert left == 0.0
    collector.served = document(4, epsilon_per_km=0.1).served()
    assert refused(it.report, **PLACE).detail == "lifetime"


# -- clocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("years", [-40, -10, 10, 40])
def test_a_clock_that_jumps_never_opens_the_lifetime_limit_and_heals(
    years: int, path: Path
) -> None:
    clock = Clock()
    collector = Collector(replace(document(), **ALWAYS).served())
    it = device(
        collector, path, again="day", clock=clock, budget_per_km=6.0,
        budget_per_day_per_km=2.0, budget_per_year_per_km=4.0,
    )  # fmt: skip
    it.report(**PLACE)
    clock.now_s = NOW_S + years * YEAR_S
    it.report(**PLACE)
    clock.now_s = NOW_S + DAY_S  # put right: reports go on at once
    assert it.report(**PLACE).budget_left_per_km == 0.0
    for jump in (-20, -1, 1, 20):
        clock.now_s = NOW_S + jump * YEAR_S
        assert refused(it.report, **PLACE).detail == "lifetime"
    assert len(collector.reports) == 3
    clock.now_s = NOW_S + DAY_S
    assert ("bear a later date than this device's clock" in it.summary()) == (years > 0)


@pytest.mark.parametrize(("years", "reason"), [(-10, "not-yet-valid"), (10, "expired")])
def test_a_clock_years_off_is_named_in_the_answer(years: int, reason: str, path: Path) -> None:
    clock = Clock(NOW_S + years * YEAR_S)
    it = device(Collector(), path, clock=clock)
    caught = refused(it.report, **PLACE)
    assert caught.reason == reason
    assert "this device's clock is" in str(caught)
    clock.now_s = NOW_S
    assert it.report(**PLACE).acknowledged


@pytest.mark.parametrize("now_s", [float("nan"), float("inf"), -1.0, 1e300])
def test_a_clock_that_tells_no_time(now_s: float, path: Path) -> None:
    it = device(Collector(), path, clock=lambda: now_s)
    assert refused(it.report, **PLACE).reason == "clock"
    assert refused(it.explain).reason == "clock"


# -- accuracy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("accuracy_km", [0.501, 5.0, float("inf")])
@pytest.mark.parametrize("how", ["argument", "fix"])
def test_a_fix_coarser_than_a_cell_is_refused_before_it_is_charged(
    accuracy_km: float, how: str, path: Path
) -> None:
    collector, eye = Collector(), Eye()
    it = device(collector, path)
    if how == "fix":
        eye.place = (*eye.place, accuracy_km)  # type: ignore[assignment]
        caught = refused(it.report, locate=eye)
    else:
        caught = refused(it.report, locate=eye, accuracy_km=accuracy_km)
    assert (caught.reason, caught.detail) == ("accuracy", "cells of 500 m")
    assert eye.looks == 1
    assert it.ledger.spent_per_km == 0.0
    assert collector.attempts == []
    assert it.report(**PLACE, accuracy_km=0.5).acknowledged


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), "0.1", True, (1,)])
def test_what_is_no_accuracy(wrong: Any, path: Path) -> None:
    it = device(Collector(), path)
    with pytest.raises(InvalidInput, match="accuracy_km must be a number of kilometres"):
        it.report(**PLACE, accuracy_km=wrong)
    assert refused(it.report, locate=lambda: (*PLACE.values(), wrong)).reason == "accuracy"


# -- what is seen from outside -------------------------------------------------------------------


PLACES = {
    "inside": (45.76, 4.84),
    "a corner": (45.74, 4.81),
    "an edge": (45.7601, 4.87),
    "a step outside": (45.76, 4.8702),
    "the next town": (45.19, 5.72),
    "a pole": (90.0, 0.0),
    "the far side": (-45.76, -175.16),
}


class Watched(Collector):
    """Keeps everything that a device asks for, in order."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: list[tuple[Any, ...]] = []

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        self.seen.append(("GET", path, tag))
        return super().get(path, tag=tag, limit=limit)

    def post(self, path: str, body: bytes, *, limit: int) -> Answer:
        answer = super().post(path, body, limit=limit)
        sent = {**self.attempts[-1], "cell": "drawn"}
        digits = len(str(self.attempts[-1]["cell"]))
        self.seen.append(("POST", path, sent, len(body) - digits))
        return answer


def test_nothing_seen_from_outside_depends_on_the_place_but_the_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same key at seven places: requests, sizes, ids and the work of the draw are the same."""
    scans: list[Any] = []
    rows_at = WholeLaw.rows_at

    def watched(law: WholeLaw, steps: IntArray) -> IntArray:
        scans.append(rows_at(law, steps).shape)
        return rows_at(law, steps)

    monkeypatch.setattr(WholeLaw, "rows_at", watched)
    seen, cells = [], set()
    for name, place in PLACES.items():
        collector = Watched()
        it = device(collector, tmp_path / f"{name}.db", randomness=gv.seeded(3))
        cells.add(it.report(locate=lambda place=place: place).cell)
        seen.append(collector.seen)
    assert all(each == seen[0] for each in seen)
    assert [kind for kind, *_ in seen[0]] == ["GET", "POST"]
    assert scans == [(1, LYON.size)] * len(PLACES)
    assert len(cells) > 1


def test_silence_outside_is_a_choice_with_a_warning(path: Path) -> None:
    it = device(Collector(), path)
    with pytest.warns(UserWarning, match="silence tells") as warned:
        caught = refused(it.report, lat=45.19, lng=5.72, outside="refuse")
    assert (caught.reason, len(warned)) == ("outside", 1)
    assert it.ledger.spent_per_km == 0.0
    with pytest.raises(InvalidInput, match=r"outside .* must be one of clamp, refuse"):
        it.report(**PLACE, outside="drop")  # type: ignore[arg-type]


# -- in words ------------------------------------------------------------------------------------


def test_what_is_explained_before_and_after(path: Path) -> None:
    collector = Collector()
    it = device(collector, path, budget_per_day_per_km=4.0, budget_per_year_per_km=8.0)
    before = it.explain()
    for part in (
        "10 of 10 per km are left (today 4 of 4; within 365 days 8 of 8)",
        "Nothing was reported to any campaign at https://collector.example so far.",
        "only report to this campaign, whatever rounds follow",
    ):
        assert part in before
    receipt = it.report(**PLACE)
    asked = len(collector.tags)
    after = it.explain()
    assert len(collector.tags) == asked
    for part in (
        f"it said cell {receipt.cell}, under the mechanism of round 1",
        "reads no location, sends nothing new and costs nothing",
        "8 of 10 per km are left (today 2 of 4; within 365 days 6 of 8)",
        "All campaigns at https://collector.example together have cost ε = 2 per km and 0.012 for",
    ):
        assert part in after
    again = device(collector, path, again="round")
    assert "in this round" in again.explain()
    opens_round(collector, 2)
    many = "is charged anew. 30 such reports cost ε = 60 per km and 0.36 for rounding together. Two people"
    assert many in again.explain()
    clock = Clock(NOW_S)
    assert "today: it said" in device(collector, path, again="day", clock=clock).explain()
