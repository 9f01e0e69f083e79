"""Promise 38: no true location in a ledger, a receipt, an exception or a frame that outlives the call."""

from __future__ import annotations

import gc
import pickle
import sqlite3
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from client.crashes import Crash, Machine, everything_in, on
from client.world import CUT, NOW_S, Collector, device, document, problem
from geoveil.client import Device, Refused, Unacknowledged, ledger_book
from geoveil.client.ledger_book import Period, moved_on
from geoveil.client.network import Answer
from geoveil.document.wire import MechanismDocument
from geoveil.position.whole_law import WholeLaw
from geoveil.space.projection import TangentPlane

GRID = gv.Grid.from_box(south=45.74, west=4.78, north=45.80, east=4.88, cell_km=0.6)
LAT, LNG = 45.76543210987, 4.82345678901
TRUE = GRID.locate(lat=LAT, lng=LNG)
PLANTED = (LAT, LNG)
DIGITS = ("7654321", "8234567")
PACKAGE = str(Path(gv.__file__).parent)
"""Whose frames are searched, wherever it lies."""


def fine() -> MechanismDocument:
    return document(grid=GRID)


@cache
def true_places() -> tuple[np.ndarray, ...]:
    """Where it is, as a document sees it: in km and in steps of its lattice."""
    place = fine().area.place_km(LAT, LNG)
    return place, fine().law.steps_of(place), place + fine().area.origin_km


def secrets_of_somebody() -> tuple[bytes, bytes]:
    """The key and the bits of the report that ``somebody`` makes: beside the sent cell they tell where."""
    key = gv.seeded(1).bytes(32)
    return key, Period("never", 0).bits(key, fine().id)[1]


def somebody(collector: Collector, path: Path, **options: Any) -> Device:
    """A device whose report is not its true cell, so that the two cannot be mixed up."""
    return device(collector, path, **{"randomness": gv.seeded(1), **options})


def at_home() -> tuple[float, float]:
    return PLANTED


@pytest.fixture(scope="module", autouse=True)
def places_known_before_anything_is_patched() -> None:
    true_places()
    secrets_of_somebody()


def _inside(value: Any) -> Iterator[Any]:
    """What an object of ours or of Python's holds: entries, attributes, closures, arguments."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, tuple | list | set | frozenset):
        yield from value
    elif isinstance(value, types.FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _full(cell))
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, BaseException):
        yield from value.args
    if type(value).__module__.startswith("geoveil"):
        yield from gc.get_referents(value)


def _full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_true(value: Any) -> bool:
    if isinstance(value, np.ndarray):  # the place in km, or in steps of the lattice
        return value.size == 2 and any(
            np.allclose(value.ravel(), at, atol=1e-6) for at in true_places()
        )
    if isinstance(value, float | np.floating):
        return any(abs(float(value) - true) < 1e-6 for true in PLANTED)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value) == TRUE
    if isinstance(value, bytes):
        return value in secrets_of_somebody()
    return isinstance(value, str) and any(digits in value for digits in DIGITS)


def true_things(error: BaseException) -> list[str]:
    """Every place in an exception, and in the frames of the package it went through, that holds the truth."""
    found: list[str] = []
    errors, seen = [error], set()
    while errors:
        each = errors.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        errors += [e for e in (each.__cause__, each.__context__) if e is not None]
        holders = [("message", str(each)), ("repr", repr(each)), ("attributes", vars(each))]
        trace = each.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename.startswith(PACKAGE):
                holders += [(f"{code.co_name}: {k}", v) for k, v in trace.tb_frame.f_locals.items()]
            trace = trace.tb_next
        for name, value in holders:  # what was drawn and not charged tells too, beside its key
            found += [name] * (name == "_reported: drawn" or _holds(value))
    return found


def _holds(value: Any) -> bool:
    seen: set[int] = set()
    stack = [value]
    while stack:
        each = stack.pop()
        if id(each) in seen or isinstance(each, type | types.ModuleType | MechanismDocument):
            continue
        seen.add(id(each))
        if _is_true(each):
            return True
        stack += list(_inside(each))
    return False


# -- exceptions ----------------------------------------------------------------------------------


def stopped(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


class Full(Machine):
    """A disk that fills up at some call."""

    def __init__(self, stop_at: int, failure: type[BaseException]) -> None:
        super().__init__(stop_at)
        self.failure = failure

    def call(self, what: str, real: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return super().call(what, real, *arguments)
        except Crash:
            raise self.failure("database or disk is full") from None


def cut_off(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    collector.faults = [CUT] * 3


def refused_for_good(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    collector.faults = [problem(410, "mechanism-expired")]


def hung_up(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(collector, "post", stopped)


def no_document(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(collector, "get", lambda *_, **__: Answer(403, "text/html", 0.0, b""))


def interrupted(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TangentPlane, "project", stopped)


def interrupted_later(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WholeLaw, "rows_at", stopped)


def interrupted_at_the_key(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_book, "moved_on", stopped)


def interrupted_at_the_slot(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    """When it is asked for once more, after the document was taken."""
    answers = iter([it._collector.slot, stopped])

    def slot(*given: Any) -> Any:
        return next(answers)(*given)

    patch.setattr(it._collector, "slot", slot)


def poor(it: Any, collector: Collector, patch: pytest.MonkeyPatch) -> None:
    it.ledger.charge = stopped


FAILURES = [
    cut_off,
    refused_for_good,
    hung_up,
    no_document,
    interrupted,
    interrupted_later,
    interrupted_at_the_key,
    interrupted_at_the_slot,
    poor,
]


@pytest.mark.parametrize("how", ["numbers", "function"])
@pytest.mark.parametrize("fails", FAILURES)
def test_no_location_in_what_is_raised(
    fails: Any, how: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(fine().served())
    it = somebody(collector, path)
    fails(it, collector, monkeypatch)
    given = {"lat": LAT, "lng": LNG} if how == "numbers" else {"locate": at_home}
    with pytest.raises((Refused, Unacknowledged, KeyboardInterrupt)) as caught:
        it.report(**given)  # type: ignore[arg-type]
    assert true_things(caught.value) == []


@pytest.mark.parametrize(
    ("failure", "every"),
    [
        (sqlite3.OperationalError, 1),
        (KeyboardInterrupt, 3),  # a transaction asks for more than three things
        pytest.param(KeyboardInterrupt, 1, marks=pytest.mark.slow),
    ],
)
def test_no_location_wherever_the_ledger_fails(
    failure: type[BaseException], every: int, tmp_path: Path
) -> None:
    with on(Machine()) as whole:
        somebody(Collector(fine().served()), tmp_path / "dry.db").report(lat=LAT, lng=LNG)
    assert len(whole.calls) > 50
    raised = []
    for stop_at in range(1, len(whole.calls) + 1, every):
        collector, path = Collector(fine().served()), tmp_path / f"{stop_at}.db"
        try:
            with on(Full(stop_at, failure)):
                somebody(collector, path).report(lat=LAT, lng=LNG)
        except (Refused, KeyboardInterrupt) as caught:
            raised.append((stop_at, true_things(caught)))
    assert [found for found in raised if found[1]] == []
    assert len(raised) > 50 / every


WRONG: list[dict[str, Any]] = [
    {"lat": LAT, "lng": LNG, "lon": LNG},
    {"lat": LAT},
    {"lat": LAT, "lng": LNG, "locate": at_home},
    {"lat": LAT, "lng": LNG, "outside": "drop"},
    {"lat": LAT, "lng": LNG, "accuracy_km": -1},
    {"lat": LAT, "lng": LNG, "accuracy_km": 5.0},
    {"lat": LAT, "lng": str(LNG)},
    {"lat": str(LAT), "lng": LNG},
    {"lat": LAT, "lng": float("nan")},
    {"lat": complex(LAT), "lng": LNG},
    {"locate": lambda: (LAT, LNG, 0.1, 7)},
    {"locate": lambda: (LAT, str(LNG))},
    {"locate": lambda: {LAT: LNG}},
]


@pytest.mark.parametrize("given", WRONG, ids="-".join)
def test_no_location_where_what_was_given_is_wrong(given: dict[str, Any], path: Path) -> None:
    it = somebody(Collector(fine().served()), path)
    with pytest.raises(gv.errors.GeoveilError) as caught:
        it.report(**given)
    assert true_things(caught.value) == []
    assert it.ledger.spent_per_km == 0.0


@pytest.mark.parametrize("wrong", [None, (LAT,), "home"])
def test_no_end_of_a_trip_where_the_other_is_wrong(wrong: Any, path: Path) -> None:
    it = somebody(Collector(fine().served()), path)
    with pytest.raises(gv.errors.InvalidInput) as caught:
        it.report_trip(origin=(LAT, LNG), destination=wrong)
    assert true_things(caught.value) == []


def test_what_reading_raises_comes_without_its_frames(path: Path) -> None:
    def half_read() -> tuple[float, float]:
        lat, _ = PLANTED
        try:
            raise ValueError(f"{lat}")
        except ValueError:
            raise TimeoutError("no signal") from None

    it = somebody(Collector(fine().served()), path)
    with pytest.raises(TimeoutError, match="no signal") as caught:
        it.report(locate=half_read)
    names = []
    trace = caught.value.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "half_read" not in names
    assert caught.value.__context__ is None
    assert true_things(caught.value) == []
    assert it.ledger.spent_per_km == 0.0


def test_the_search_finds_what_is_planted() -> None:
    """Its power: an exception of a careless device is full of the truth."""
    code = compile(
        "def report(lat, lng):\n    where = lambda: (lat, lng)\n    raise Refused('budget')\n",
        f"{PACKAGE}/client/careless.py",
        "exec",
    )
    space: dict[str, Any] = {"Refused": Refused}
    exec(code, space)
    with pytest.raises(Refused) as caught:
        space["report"](LAT, LNG)
    assert true_things(caught.value) == ["report: lat", "report: lng", "report: where"]
    assert Device.report.__code__.co_filename.startswith(PACKAGE)
    assert all(_holds({"kept": [secret]}) for secret in secrets_of_somebody())
    with pytest.raises(ValueError, match="no") as other:
        raise ValueError("no") from ValueError(f"at {LAT}")
    assert "message" in true_things(other.value)


# -- receipts, devices, ledgers ------------------------------------------------------------------


def test_a_receipt_a_device_and_its_history_hold_nothing_true(path: Path) -> None:
    collector = Collector(fine().served())
    it = somebody(collector, path)
    receipt = it.report(lat=LAT, lng=LNG)
    assert receipt.cell != TRUE
    law, area = fine().law, fine().area
    assert receipt.cell == law.draw(
        law.steps_of(area.place_km(LAT, LNG)), secrets_of_somebody()[1][:16]
    )
    text = f"{receipt!r}{it.history()!r}{it.explain()}{it.summary()}{vars(it)!r}"
    assert not [digits for digits in DIGITS if digits in text]
    assert not _holds((receipt, it.history()))
    assert pickle.loads(pickle.dumps(receipt)) == receipt
    assert not [digits for digits in DIGITS if digits.encode() in pickle.dumps(it.history())]


def kept_anywhere(value: float) -> list[Any]:
    """All that in this whole process still holds a number, as far as the garbage collector knows."""
    gc.unfreeze()  # what was there before the tests is asked too
    kinds = (tuple, list, dict, types.CellType)
    found, asked = [], [holder for holder in gc.get_objects() if isinstance(holder, kinds)]
    while asked:
        holder = asked.pop()
        for each in gc.get_referents(holder):
            if type(each) is float and each == value:
                found.append(holder)
            elif isinstance(each, tuple | dict) and not gc.is_tracked(each):
                asked.append(each)  # of numbers and texts alone: the collector does not list it
    return found


def test_nothing_in_the_process_holds_the_location_afterwards(path: Path) -> None:
    """Sent, refused and cut off; the number is made while it is read, and stands nowhere else."""
    digits = 65_432_109_876_543
    collector = Collector(fine().served())
    it = somebody(collector, path, again="round")

    def read() -> tuple[float, float]:
        return 45.0 + (digits + 1) / 10**14, 4.82

    it.report(locate=read)
    errors = []
    for number, faults in ((2, [CUT] * 3), (3, [problem(410, "mechanism-expired")])):
        collector.served = document(number, grid=GRID).served()
        collector.faults = list(faults)
        with pytest.raises((Refused, Unacknowledged)) as caught:
            it.report(locate=read)
        errors.append(caught.value)
    collector.served = document(4, grid=GRID).served()
    lat = read()[0]
    with pytest.raises(Refused) as coarse:
        it.report(lat=lat, lng=4.82, accuracy_km=9.0)
    errors.append(coarse.value)
    control = [lat]
    found = kept_anywhere(lat)
    assert [type(each) for each in found if each is not control] == []
    assert found
    assert len(errors) == 3


@pytest.mark.parametrize("again", ["never", "day", "round"])
def test_the_true_cell_cannot_be_worked_out_from_the_ledger(again: Any, tmp_path: Path) -> None:
    """A thief tries every key in the file on every cell: the first format gave the cell away."""
    law = fine().law
    for seed in range(3):
        path = tmp_path / f"{seed}" / "ledger.db"
        path.parent.mkdir()
        it = device(Collector(fine().served()), path, again=again, randomness=gv.seeded(seed))
        receipt = it.report(lat=LAT, lng=LNG)
        content = everything_in(path.parent)
        for true in (str(LAT), str(LNG), *DIGITS):
            assert true.encode() not in content
        first = gv.seeded(seed).bytes(32)
        made = moved_on(first, again == "round")  # the key that it was drawn with
        number = {"never": 0, "day": NOW_S // 86_400, "round": 1}[again]
        assert Period(again, number).bits(made, receipt.mechanism)[0] == receipt.report
        assert made not in content
        assert first not in content
        # control: with that key the cells it can have been drawn from are few
        bits = Period(again, number).bits(made, receipt.mechanism)[1][:16]
        places = law.centres.points
        possible = [c for c in range(GRID.size) if law.draw(places[c], bits) == receipt.cell]
        assert law.draw(law.steps_of(fine().area.place_km(LAT, LNG)), bits) == receipt.cell
        assert len(possible) < GRID.size / 4
        with sqlite3.connect(path) as book:
            kept = [key for (key,) in book.execute("SELECT key FROM campaign") if key]
        book.close()
        for key in kept:
            assert Period(again, number).bits(key, receipt.mechanism)[0] != receipt.report


def test_two_ledgers_from_two_places_differ_in_what_was_sent_only(tmp_path: Path) -> None:
    contents = []
    for name, place in (("here", PLANTED), ("there", (45.71, 4.75))):
        path = tmp_path / name / "ledger.db"
        path.parent.mkdir()
        it = device(Collector(fine().served()), path, randomness=gv.seeded(1))
        it.report(lat=place[0], lng=place[1])
        with sqlite3.connect(path) as book:
            tables = [
                row for (row,) in book.execute("SELECT name FROM sqlite_master WHERE rootpage")
            ]
            contents.append(
                {
                    table: book.execute(f"SELECT * FROM {table}").fetchall()
                    for table in tables
                    if not table.startswith(("sqlite_", "charge_"))
                }
            )
        book.close()
    here, there = contents
    assert here.keys() == there.keys() >= {"campaign", "charge", "day_total", "origin_total"}
    assert {name for name in here if here[name] != there[name]} <= {"charge", "ledger"}
    (mine,), (other,) = here["charge"], there["charge"]
    differing = [k for k, (a, b) in enumerate(zip(mine, other, strict=True)) if a != b]
    assert set(differing) <= {7, 8, 9}  # cell, lat and lng: what was sent
