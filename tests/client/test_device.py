"""One report, from the checks to the receipt; retries that never draw again."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.hostile import encoded
from client.world import (
    CUT,
    LYON,
    NOW_S,
    PLACE,
    Collector,
    Eye,
    device,
    document,
    problem,
    refused,
)
from geoveil.channel.guarantee import BetweenPositions
from geoveil.client import Device, Ledger, Patience, Refused, Unacknowledged
from geoveil.client import collector as module
from geoveil.client.budget import BudgetSpent
from geoveil.client.ledger_book import Period
from geoveil.client.network import Answer
from geoveil.document.wire import MechanismDocument, served_levels, tag_of
from geoveil.errors import GeoveilError, InvalidInput, MissingExtra, RandomnessFailed
from geoveil.position.position_certificate import Law
from geoveil.randomness import Randomness

# -- one report ----------------------------------------------------------------------------------


def test_a_receipt_says_what_was_sent(path: Path) -> None:
    collector = Collector()
    receipt = device(collector, path).report(**PLACE)
    (sent,) = collector.attempts
    assert sent == {"mechanism": document().id, "id": receipt.report, "cell": receipt.cell}
    assert (receipt.campaign, receipt.round, receipt.mechanism) == ("lyon", 1, document().id)
    assert (receipt.epsilon_per_km, receipt.budget_left_per_km) == (2.0, 8.0)
    assert receipt.acknowledged
    assert LYON.locate(lat=receipt.lat, lng=receipt.lng) == receipt.cell


def test_the_longitude_has_two_names(path: Path) -> None:
    collector = Collector()
    first = device(collector, path).report(**PLACE)
    assert device(collector, path).report(lat=PLACE["lat"], lon=PLACE["lng"]) == first
    with pytest.raises(InvalidInput, match="must be given once, as lng or as lon"):
        device(collector, path).report(**PLACE, lon=PLACE["lng"])


def test_a_second_call_returns_the_first_receipt(path: Path) -> None:
    collector = Collector()
    first = device(collector, path).report(**PLACE)
    asked = len(collector.tags)
    eye = Eye(45.745, 4.82)
    for it in (device(collector, path), device(collector, path)):
        assert it.report(locate=eye) == first
    assert eye.looks == 0
    assert len(collector.attempts) == 1
    assert len(collector.tags) == asked


def test_the_budget_is_checked_before_a_location_is_read(path: Path) -> None:
    collector = Collector()
    it = device(collector, path, budget_per_km=3.0, again="round")
    it.report(**PLACE)
    collector.served = document(2).served()
    eye = Eye()
    caught = refused(it.report, locate=eye)
    assert (caught.reason, caught.detail) == ("budget", "lifetime")
    assert eye.looks == 0
    assert len(collector.attempts) == 1


def test_a_spent_budget_still_gives_the_old_answer_and_no_new_one(path: Path) -> None:
    collector = Collector()
    it = device(collector, path, budget_per_km=2.0, again="round")
    first = it.report(**PLACE)
    assert it.report(lat=45.745, lng=4.82) == first
    collector.served = document(2).served()
    assert refused(it.report, **PLACE).reason == "budget"
    assert len(collector.attempts) == 1
    assert it.ledger.spent_per_km == 2.0


def test_a_location_is_read_once_and_only_after_the_checks(path: Path) -> None:
    collector, eye = Collector(), Eye()
    it = device(collector, path)
    it.explain()
    assert eye.looks == 0
    it.report(locate=eye)
    assert eye.looks == 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"lat": 1.0},
        {"lng": 1.0},
        {**PLACE, "locate": Eye()},
        {"locate": (45.76, 4.84)},
        {**PLACE, "outside": "drop"},
    ],
)
def test_what_report_must_be_given(given: Any, path: Path) -> None:
    collector = Collector()
    with pytest.raises(InvalidInput):
        device(collector, path).report(**given)
    assert collector.tags == []


def test_a_location_that_cannot_be_read_costs_nothing(path: Path) -> None:
    def no_signal() -> tuple[float, float]:
        raise TimeoutError("no signal")

    it = device(Collector(), path)
    with pytest.raises(TimeoutError):
        it.report(locate=no_signal)
    assert it.ledger.spent_per_km == 0.0


def test_a_document_that_expires_while_a_location_is_read_is_not_drawn_from(path: Path) -> None:
    """Whoever is asked for a permission answers when the telephone is unlocked again."""
    now_s = [float(NOW_S)]

    def later() -> tuple[float, float]:
        now_s[0] = document().expires_s
        return PLACE["lat"], PLACE["lng"]

    collector = Collector()
    it = device(collector, path, clock=lambda: now_s[0])
    assert refused(it.report, locate=later).reason == "expired"
    assert (collector.attempts, it.history()) == ([], [])
    collector.served = document(2, not_before_s=NOW_S, expires_s=NOW_S + 9000).served()
    assert it.report(**PLACE).round == 2


def test_a_report_is_of_the_day_on_which_its_location_was_read(path: Path) -> None:
    now_s = [float(NOW_S)]
    days = {"again": "day", "budget_per_day_per_km": 2.0, "clock": lambda: now_s[0]}
    collector = Collector(document(expires_s=NOW_S + 9 * 86_400).served())

    def tomorrow() -> tuple[float, float]:
        now_s[0] += 86_400.0
        return PLACE["lat"], PLACE["lng"]

    eye, it = Eye(), device(collector, path, **days)
    first = it.report(locate=tomorrow)
    assert it.report(locate=eye) == first
    assert eye.looks == 0

    def after_another() -> tuple[float, float]:
        place = tomorrow()
        device(collector, path, **days).report(locate=eye)
        return place

    now_s[0] += 86_400.0
    assert it.report(locate=after_another) == device(collector, path, **days).report(locate=Eye())
    assert [charge.day - NOW_S // 86_400 for charge in it.history()] == [1, 3]


def test_the_certificate_is_computed_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    it = device(collector, path, again="round")
    certified = []
    certify = Law.certify
    monkeypatch.setattr(
        Law, "certify", lambda law, claim=0.0: certified.append(law) or certify(law, claim)
    )
    module.offered.cache_clear()
    it.explain()
    assert len(certified) == 1
    for _ in range(3):
        it.report(**PLACE)
    device(collector, path, again="round").report(**PLACE)
    assert len(certified) == 1
    assert collector.tags == [None, *[document().id] * 3, None]
    module.offered.cache_clear()  # as in another process: the ledger knows it
    device(collector, path, again="round").report(**PLACE)
    assert len(certified) == 1
    # the same law in the next round
    collector.served = document(2, expires_s=NOW_S + 2000).served()
    later = device(collector, path, again="round")
    assert later.report(**PLACE).round == 2
    assert len(certified) == 1
    later.ledger.forget_ended(document().expires_s)
    assert later.ledger.certified(document().timeless_id)
    other = replace(document(), promise=BetweenPositions(2.0, 0.02))
    assert not later.ledger.certified(other.timeless_id)
    fresh = device(collector, path.with_name("other.db"))
    fresh.report(**PLACE)
    assert len(certified) == 2


def test_a_fix_that_fails_costs_no_second_certificate(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, certified, certify = Collector(), [], Law.certify
    monkeypatch.setattr(
        Law, "certify", lambda law, claim=0.0: certified.append(law) or certify(law, claim)
    )
    for _ in range(2):
        module.offered.cache_clear()  # as in another process
        failed = refused(device(collector, path).report, locate=lambda: (math.nan, math.nan))
        assert failed.reason == "location"
    assert len(certified) == 1
    assert collector.attempts == Ledger(path).charges() == []


def test_the_id_is_that_of_what_was_served(path: Path) -> None:
    """A slack stated a little larger is another document, and reports must name that one."""
    values = document().to_dict()
    served = encoded({**values, "slack_nats": values["slack_nats"] + 0.001})
    collector = Collector(served)
    assert device(collector, path).report(**PLACE).mechanism == json.loads(served)["id"]
    assert collector.attempts[0]["mechanism"] != document().id


def test_a_clock_a_little_behind_is_forgiven(path: Path) -> None:
    collector = Collector(document(not_before_s=NOW_S + 299).served())
    assert device(collector, path).report(**PLACE).acknowledged


# -- nothing without randomness (promise 18) -----------------------------------------------------


class Failing(Randomness):
    def bytes(self, size: int) -> bytes:
        raise RandomnessFailed("the generator failed")


def test_no_randomness_no_report(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    it = device(collector, path, randomness=Failing())
    with pytest.raises(GeoveilError, match="generator failed"):
        it.report(**PLACE)
    assert collector.attempts == []
    assert it.ledger.charges() == []

    def broken(_: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr("os.urandom", broken)
    with pytest.raises(GeoveilError, match="nothing was sampled"):
        device(collector, path).report(**PLACE)
    with pytest.raises(GeoveilError, match="nothing was sampled"):
        device(collector, path.with_name("new.db"))
    assert collector.attempts == []


def test_too_few_random_bytes_are_no_report(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    Ledger(path)
    monkeypatch.setattr("os.urandom", lambda size: bytes(size - 1))
    it = device(collector, path)
    with pytest.raises(GeoveilError, match="nothing was sampled"):
        it.report(**PLACE)
    assert collector.attempts == []


# -- retries -------------------------------------------------------------------------------------

LATER = {
    "cut": CUT,
    "too many requests": problem(429, "too-many-requests", retry_after_s=5.0),
    "overloaded": problem(503, "overloaded", retry_after_s=1.0),
    "storage": problem(503, "storage-unavailable"),
    "gateway": Answer(502, "text/html", 0.0, b"<html>"),
}


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("when", ["faults", "after"])
def test_a_retry_sends_the_same_report(name: str, when: str, path: Path) -> None:
    collector = Collector()
    setattr(collector, when, [LATER[name]] * 2)
    receipt = device(collector, path).report(**PLACE)
    assert receipt.acknowledged
    assert len(collector.attempts) == 3
    assert all(attempt == collector.attempts[0] for attempt in collector.attempts)
    assert list(collector.reports) == [receipt.report]


@pytest.mark.parametrize("name", LATER)
def test_a_report_without_an_answer_waits_for_flush(name: str, path: Path) -> None:
    collector = Collector(after=[LATER[name]] * 3)
    it = device(collector, path)
    with pytest.raises(Unacknowledged) as caught:
        it.report(**PLACE)
    assert not caught.value.receipt.acknowledged
    assert [charge.state for charge in it.history()] == ["sent"]
    (receipt,) = device(collector, path).flush()
    assert receipt == replace(caught.value.receipt, acknowledged=True)
    assert device(collector, path).flush() == []
    assert list(collector.reports) == [receipt.report]
    assert it.ledger.spent_per_km == 2.0


def test_a_transport_that_fails_in_its_own_way_leaves_the_report_waiting(path: Path) -> None:
    """The budget is charged by then, and the report may have arrived."""
    collector = Collector(after=[RuntimeError("its own")])
    it = device(collector, path)
    with pytest.raises(Unacknowledged, match=r"the transport failed \(RuntimeError\)") as waits:
        it.report(**PLACE)
    assert waits.value.problem == ""
    assert list(collector.reports) == [waits.value.receipt.report]
    assert [receipt.acknowledged for receipt in it.flush()] == [True]


def test_an_answer_that_names_an_entry_twice_counts_nothing(path: Path) -> None:
    collector = Collector()

    def post(path: str, body: bytes, *, limit: int) -> Answer:
        name = json.loads(body)["id"]
        answer = f'{{"id":"other","id":"{name}","status":"counted"}}'
        return Answer(200, "application/json", 0.0, answer.encode())

    collector.post = post  # type: ignore[method-assign]
    it = device(collector, path)
    with pytest.raises(Unacknowledged, match="not a collector's"):
        it.report(**PLACE)
    assert [charge.state for charge in it.history()] == ["sent"]


def test_asking_again_also_delivers_what_waits(path: Path) -> None:
    collector = Collector(faults=[CUT] * 3)
    it = device(collector, path)
    with pytest.raises(Unacknowledged) as caught:
        it.report(**PLACE)
    assert it.report(**PLACE).report == caught.value.receipt.report
    assert it.ledger.spent_per_km == 2.0


def two_waiting(path: Path) -> tuple[Collector, Device]:
    """A device with reports of two rounds that went without an answer."""
    collector = Collector(faults=[CUT] * 6)
    it = device(collector, path, again="round")
    for number in (1, 2):
        collector.served = document(number).served()
        with pytest.raises(Unacknowledged) as caught:
            it.report(**PLACE)
        assert caught.value.problem == ""
    return collector, it


def test_flush_stops_where_the_network_does(path: Path) -> None:
    collector, it = two_waiting(path)
    collector.faults = [CUT] * 3
    assert it.flush() == []
    assert len(it.flush()) == 2


PROBLEMS = [
    (410, "mechanism-expired"),
    (422, "cell-out-of-range"),
    (400, "malformed-body"),
    (410, "campaign-ended"),
]


@pytest.mark.parametrize(("status", "name"), PROBLEMS)
def test_a_refusal_of_the_collector_is_final(status: int, name: str, path: Path) -> None:
    collector = Collector(faults=[problem(status, name)])
    it = device(collector, path)
    caught = refused(it.report, **PLACE)
    assert (caught.reason, caught.detail, caught.sent) == ("problem", name, True)
    assert str(caught) == f"sent and charged, and the collector did not count it ({name})"
    again = refused(it.report, **PLACE)
    assert (again.detail, again.sent, str(again)) == (name, True, str(caught))
    assert it.flush() == []
    assert len(collector.attempts) == 1
    assert [(c.state, c.problem) for c in it.history()] == [("refused", name)]
    assert it.ledger.spent_per_km == 2.0


PASSING = [
    (401, "unauthorised"),
    (404, "not-found"),
    (404, "unknown-campaign"),
    (404, "unknown-mechanism"),
    (405, "method-not-allowed"),
    (409, "round-too-small"),
    (413, "body-too-large"),
    (415, "unsupported-media-type"),
    (422, "of-a-later-version"),
]


@pytest.mark.parametrize(("status", "name"), PASSING)
def test_a_problem_that_may_pass_is_not_final(status: int, name: str, path: Path) -> None:
    collector = Collector(faults=[problem(status, name)])
    it = device(collector, path)
    with pytest.raises(Unacknowledged, match=name) as caught:
        it.report(**PLACE)
    assert caught.value.problem == name
    assert [charge.state for charge in it.history()] == ["sent"]
    (receipt,) = it.flush()
    assert receipt == replace(caught.value.receipt, acknowledged=True)
    assert collector.attempts[0] == collector.attempts[1]
    assert it.ledger.spent_per_km == 2.0


def test_flush_goes_on_past_a_problem_that_may_pass(path: Path) -> None:
    collector, it = two_waiting(path)
    collector.faults = [problem(404, "unknown-mechanism")]
    assert len(it.flush()) == 1
    assert [charge.state for charge in it.history()] == ["sent", "acknowledged"]


def test_flush_goes_on_after_a_refusal(path: Path) -> None:
    collector, it = two_waiting(path)
    collector.faults = [problem(410, "mechanism-expired")]
    assert len(it.flush()) == 1
    assert [charge.state for charge in it.history()] == ["refused", "acknowledged"]


STRANGE: dict[str, Answer | Exception] = {
    "another id": Answer(200, "application/json", 0.0, b'{"id":"00","status":"counted"}'),
    "not JSON": Answer(200, "text/html", 0.0, b"<html>Log in</html>"),
    "nested": Answer(200, "application/json", 0.0, b"[" * 50_000),
    "a redirect": Answer(307, "text/html", 0.0, b""),
    "forbidden by a proxy": Answer(403, "text/html", 0.0, b"no"),
    "too long": Refused("answer", "size"),
    "a problem of somebody else": Answer(
        404, "application/problem+json", 0.0, b'{"type":"https://elsewhere.example/x"}'
    ),
    "a problem with a message in it": Answer(
        404,
        "application/problem+json",
        0.0,
        b'{"type":"https://geoveil.org/problems/<b>pay here</b>"}',
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_answer_settles_nothing(name: str, path: Path) -> None:
    collector = Collector(faults=[STRANGE[name]])
    it = device(collector, path)
    with pytest.raises(Unacknowledged) as caught:
        it.report(**PLACE)
    assert "not reported" not in str(caught.value)  # it may have been
    assert len(it.flush()) == 1


def answering(answer: Answer) -> Collector:
    """A collector that has this answer instead of a document."""

    class Elsewhere(Collector):
        def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
            return answer

    return Elsewhere()


def test_what_is_raised_comes_whole_from_another_process(path: Path) -> None:
    """A pool whose worker raised what cannot be read back would wait for ever."""
    with pytest.raises(Unacknowledged) as waits:
        device(Collector(faults=[CUT] * 3), path).report(**PLACE)
    for raised in (
        waits.value,
        Refused("budget", "day"),
        Refused("problem", "mechanism-expired", sent=True),
        BudgetSpent(2.0, 1.0),
        MissingExtra("pandas", "tables", "a frame"),
    ):
        read = pickle.loads(pickle.dumps(raised))
        assert (type(read), str(read), vars(read)) == (type(raised), str(raised), vars(raised))


def test_an_unknown_campaign(path: Path) -> None:
    caught = refused(device(answering(problem(404, "unknown-campaign")), path).report, **PLACE)
    assert (caught.reason, caught.detail, caught.sent) == ("problem", "unknown-campaign", False)
    assert str(caught) == "not reported: the collector refused (unknown-campaign)"


def test_a_campaign_that_has_ended(path: Path) -> None:
    caught = refused(device(answering(problem(410, "campaign-ended")), path).report, **PLACE)
    assert (caught.reason, caught.detail, caught.sent) == ("ended", "", False)


def test_pauses_grow_are_random_and_end() -> None:
    pauses: list[float] = []
    jitters = itertools.cycle([0.5, 1.0])
    waits = iter([0.0, 0.0, 7.0, 0.0, 0.0])
    patience = Patience(
        attempts=5,
        first_s=1.0,
        sleep=pauses.append,
        clock=lambda: sum(pauses),
        jitter=lambda: next(jitters),
    )
    assert not patience.until(lambda: next(waits))
    assert pauses == [0.5, 2.0, 7.0, 8.0]


def test_a_pause_beyond_the_time_left_is_not_waited_for() -> None:
    pauses: list[float] = []
    patience = Patience(attempts=9, total_s=30.0, sleep=pauses.append)
    assert not patience.until(lambda: 3600.0)
    assert pauses == []
    assert patience.until(lambda: None)


# -- in words ------------------------------------------------------------------------------------


def test_the_explanation_is_plain_and_changes_nothing(path: Path) -> None:
    it = device(Collector(), path)
    before = path.read_bytes()
    words = it.explain()
    assert path.read_bytes() == before
    for part in (
        "lyon",
        "https://collector.example",
        f"{LYON.size} cells of 500 m",
        "10 of 10 per km",
    ):
        assert part in words


def test_the_explanation_refuses_what_a_report_would_refuse(path: Path) -> None:
    it = device(Collector(), path, max_epsilon_per_km=1.0)
    assert refused(it.explain).reason == "promise"


# -- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "2", True])
@pytest.mark.parametrize(
    "name",
    [
        "max_epsilon_per_km",
        "budget_per_km",
        "budget_per_day_per_km",
        "budget_per_year_per_km",
        "slack_budget_nats",
    ],
)
def test_limits_must_be_numbers_above_zero(name: str, wrong: Any, path: Path) -> None:
    with pytest.raises(InvalidInput, match=name):
        device(Collector(), path, **{name: wrong})


@pytest.mark.parametrize("again", ["always", "", None, "Round"])
def test_when_to_report_again_is_one_of_three(again: Any, path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"again .* must be one of never, day, round"):
        device(Collector(), path, again=again)


def test_a_ledger_may_be_shared(path: Path) -> None:
    ledger = Ledger(path)
    here = device(Collector(), ledger)
    there = Device(
        "https://other.example/c/lyon",
        max_epsilon_per_km=2.0,
        budget_per_km=10.0,
        ledger=ledger,
        transport=Collector(),
        clock=lambda: NOW_S,
    )
    here.report(**PLACE)
    there.report(**PLACE)
    assert ledger.spent_per_km == 4.0
    assert len({charge.campaign for charge in here.history()}) == 2


# -- levels -------------------------------------------------------------------------------------


def two_levels() -> Collector:
    strong, weak = document(epsilon_per_km=1.0), replace(document(epsilon_per_km=2.0), level=1)
    return Collector(served_levels((strong, weak)))


@pytest.mark.parametrize(("chosen", "epsilon"), [(None, 1.0), (1.0, 1.0), (2.0, 2.0)])
def test_a_person_chooses_among_promises_and_asking_does_not_show_it(
    chosen: float | None, epsilon: float, path: Path
) -> None:
    collector = two_levels()
    it = device(collector, path, promise_per_km=chosen, again="round")
    receipt = it.report(**PLACE)
    assert receipt.epsilon_per_km == it.ledger.spent_per_km == epsilon
    levels = {
        level["epsilon_per_km"]: level["id"] for level in json.loads(collector.served)["levels"]
    }
    assert collector.attempts[0]["mechanism"] == receipt.mechanism == levels[epsilon]
    it.report(**PLACE)
    both = MechanismDocument.read_levels(collector.served, certified=True)
    assert collector.tags == [None, tag_of(both)]


def test_a_promise_that_is_not_offered_or_not_allowed_is_refused(path: Path) -> None:
    it = device(two_levels(), path, promise_per_km=1.5)
    caught = refused(it.report, **PLACE)
    assert (caught.reason, caught.detail) == ("level", "it offers 1, 2 per km")
    exact = device(Collector(document(epsilon_per_km=1.2345678).served()), path, promise_per_km=1.5)
    caught = refused(exact.report, **PLACE)
    assert caught.detail == "it offers 1.2345678 per km"  # as it must be chosen
    it = device(two_levels(), path, promise_per_km=2.0, max_epsilon_per_km=1.0)
    assert refused(it.report, **PLACE).reason == "promise"
    with pytest.raises(InvalidInput, match="promise_per_km"):
        device(two_levels(), path, promise_per_km=-1.0)


# -- at the limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now_s", "told"),
    [
        *[(0.0, True), (2**40, True), (np.int64(0), True), (-1e-6, False), (2.0**40 + 1, False)],
        *[(10**400, False), (math.nan, False), (None, False), ("noon", False), (1j, False)],
    ],
)
def test_the_first_and_the_last_time_that_a_clock_may_tell(
    now_s: Any, told: bool, path: Path
) -> None:
    it = device(Collector(), path, clock=lambda: now_s)
    assert (refused(it.report, **PLACE).reason != "clock") is told


@pytest.mark.parametrize("clock", [None, NOW_S, "now", float])
def test_a_clock_is_a_function(clock: Any, path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"clock \(.*\) must be a function that tells the time"):
        device(Collector(), path, clock=clock)


@pytest.mark.parametrize(
    ("again", "number"), [("never", 0), ("day", int(NOW_S // 86_400)), ("round", 3)]
)
def test_the_period_of_a_report_is_that_which_ledgers_of_before_have(
    again: Any, number: int, path: Path
) -> None:
    """Once: nothing. Once a day: the day, whatever the round. Once a round: the round."""
    it = device(Collector(), path, again=again)
    assert it._period(NOW_S, document(3)) == Period(again, number)
    assert it._period(NOW_S) == Period(again, number if again == "day" else 0)


def test_the_warning_names_the_line_that_asked_for_silence(path: Path) -> None:
    with pytest.warns(UserWarning, match="silence tells") as warned:
        device(Collector(), path).report(**PLACE, outside="refuse")
    assert [each.filename for each in warned] == [__file__]
    trips = Collector(served=document(trips=True).served())
    it = device(trips, path.with_name("trips.db"), max_epsilon_per_km=9.0)
    place = PLACE["lat"], PLACE["lng"]
    with pytest.warns(UserWarning, match="silence tells") as warned:
        it.report_trip(origin=place, destination=place, outside="refuse")
    assert [each.filename for each in warned] == [__file__]


def test_somebody_who_stays_around_a_place_moves_a_hundred_metres(path: Path) -> None:
    assert "100 m" in device(Collector(), path, again="day").explain()
    assert "100 m" not in device(Collector(), path).explain()
