"""The ledger: durable, locked, refused when it cannot be trusted, and never begun again by itself."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

from client.crashes import Crash, Machine, on
from client.world import Collector, Eye, device, refused
from geoveil.client import Ledger, Refused
from geoveil.client import ledger as durable
from geoveil.client.collector import Answer
from geoveil.client.ledger import Book, Charge, Round

LIMIT = 10.0
SPACE = "5" * 64


def a_round(
    number: int = 1, *, campaign: str = "https://a.example/c/x", cost: float = 2.0
) -> Round:
    return Round(campaign, SPACE, number, f"{number:064x}", cost)


def answered(ledger: Ledger, cell: int, *, number: int = 1, cost: float = 2.0) -> Charge:
    current = a_round(number, cost=cost)
    ledger.accept(current, LIMIT)
    return ledger.answer(
        current,
        cell,
        report=os.urandom(16).hex(),
        limit_per_km=LIMIT,
        draw=lambda: (7, 45.0, 4.0),
    )


def reason(call: Any, *arguments: Any) -> str:
    return refused(call, *arguments).reason


def test_it_survives_restarts(path: Path) -> None:
    charge = answered(Ledger(path), 3)
    again = Ledger(path)
    assert again.charges() == [charge]
    assert again.spent_per_km == 2.0
    assert answered(again, 3) == charge
    assert again.spent_per_km == 2.0
    assert answered(again, 4).report != charge.report
    assert again.left_per_km(LIMIT) == 6.0


def test_only_its_owner_may_read_it(path: Path) -> None:
    answered(Ledger(path), 3)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    path.chmod(0o644)
    answered(Ledger(path), 4)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_file_is_synced_before_it_takes_the_place_of_the_old_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger(path)
    machine = on(monkeypatch, Machine())
    durable.replace_durably(path, b"x")
    assert machine.calls == ["open", "fchmod", "write", "fsync", "replace", "open", "fsync"]


def test_what_was_true_is_forgotten_with_the_round(path: Path) -> None:
    ledger = Ledger(path)
    first = answered(ledger, 3)
    secret = json.loads(path.read_text())["pages"]["https://a.example/c/x"]["secret"]
    assert first.place
    ledger.accept(a_round(2), LIMIT)
    assert [charge.place for charge in ledger.charges()] == [""]
    assert secret not in path.read_text()
    assert first.place not in path.read_text()


def test_campaigns_share_the_budget_and_nothing_else(path: Path) -> None:
    ledger = Ledger(path)
    answered(ledger, 3)
    other = a_round(campaign="https://b.example/c/x")

    def made() -> Charge:
        drawn = (1, 0.0, 0.0)
        return ledger.answer(other, 3, report="0" * 32, limit_per_km=LIMIT, draw=lambda: drawn)

    assert reason(made) == "round-back"
    ledger.accept(other, LIMIT)
    assert made().report == "0" * 32
    assert ledger.spent_per_km == 4.0


def test_the_charge_is_on_disk_before_the_draw_and_the_draw_before_the_sending(path: Path) -> None:
    seen: dict[str, list[Charge]] = {}

    class Looking(Collector):
        def post(self, path_: str, body: bytes, *, limit: int) -> Answer:
            seen["sending"] = Book.from_bytes(path.read_bytes()).charges
            return super().post(path_, body, limit=limit)

    ledger = Ledger(path)
    current = a_round()
    ledger.accept(current, LIMIT)

    def draw() -> tuple[int, float, float]:
        seen["drawing"] = Book.from_bytes(path.read_bytes()).charges
        return (7, 45.0, 4.0)

    ledger.answer(current, 3, report="0" * 32, limit_per_km=LIMIT, draw=draw)
    receipt = device(Looking(), ledger).report(locate=Eye())
    assert [(c.report, c.state) for c in seen["drawing"]] == [("0" * 32, "charged")]
    assert (seen["sending"][-1].cell, seen["sending"][-1].state) == (receipt.cell, "sent")


def test_a_draw_that_fails_is_paid_for(path: Path) -> None:
    ledger = Ledger(path)
    ledger.accept(a_round(), LIMIT)
    with pytest.raises(ZeroDivisionError):
        ledger.answer(a_round(), 3, report="0" * 32, limit_per_km=LIMIT, draw=lambda: 1 // 0)
    assert Ledger(path).spent_per_km == 2.0
    assert answered(ledger, 3).report != "0" * 32
    assert ledger.spent_per_km == 4.0


# -- files that cannot be trusted ----------------------------------------------------------------


def spoil_digit(content: bytes) -> bytes:
    return content.replace(b'"epsilon_per_km":2.0', b'"epsilon_per_km":1.0')


def resealed(change: Any) -> Any:
    """A forger who knows the checksum."""
    from geoveil.client.ledger import sealed

    def spoil(content: bytes) -> bytes:
        values = json.loads(content)
        values.pop("check")
        change(values)
        return sealed(values)

    return spoil


SPOILED = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "not JSON": lambda content: b"ledger",
    "a list": lambda content: b"[]",
    "nested": lambda content: b"[" * 100_000,
    "a cheaper charge": spoil_digit,
    "no check": lambda content: content.replace(b'"check"', b'"chuck"'),
    "another version": resealed(lambda v: v.update(geoveil=2)),
    "another kind": resealed(lambda v: v.update(kind="anchor")),
    "an extra entry": resealed(lambda v: v.update(more=1)),
    "a negative charge": resealed(lambda v: v["charges"][0].update(epsilon_per_km=-2)),
    "a charge of NaN text": resealed(lambda v: v["charges"][0].update(epsilon_per_km="NaN")),
    "a charge true": resealed(lambda v: v["charges"][0].update(epsilon_per_km=True)),
    "an unknown state": resealed(lambda v: v["charges"][0].update(state="refunded")),
    "a missing entry": resealed(lambda v: v["charges"][0].pop("cell")),
    "drawn without a cell": resealed(lambda v: v["charges"][0].update(cell=None)),
    "an entry twice": lambda content: content.replace(b'"serial"', b'"serial":9,"serial"'),
    "a charge twice": resealed(lambda v: v["charges"].append(v["charges"][0])),
    "charges an object": resealed(lambda v: v.update(charges={})),
    "a page of text": resealed(lambda v: v.update(pages={"x": "y"})),
    "a serial of text": resealed(lambda v: v.update(serial="2")),
}


@pytest.mark.parametrize("name", SPOILED)
def test_an_untrustworthy_ledger_is_refused_and_left_alone(name: str, path: Path) -> None:
    ledger = Ledger(path)
    answered(ledger, 3)
    spoiled = SPOILED[name](path.read_bytes())
    assert spoiled != path.read_bytes()
    path.write_bytes(spoiled)
    assert reason(Ledger, path) == "ledger-unreadable"
    assert reason(answered, ledger, 4) == "ledger-unreadable"
    assert path.read_bytes() == spoiled


@pytest.mark.parametrize("name", ["empty", "truncated", "zeros", "no check"])
def test_an_untrustworthy_anchor_is_refused(name: str, path: Path) -> None:
    answered(Ledger(path), 3)
    anchor = path.with_name("ledger.json.anchor")
    anchor.write_bytes(SPOILED[name](anchor.read_bytes()))
    assert reason(Ledger, path) == "ledger-unreadable"


def test_a_lost_ledger_is_not_begun_again(path: Path) -> None:
    ledger = Ledger(path)
    answered(ledger, 3)
    path.unlink()
    assert reason(Ledger, path) == "ledger-lost"
    assert reason(answered, ledger, 3) == "ledger-lost"
    assert not path.exists()


def test_a_ledger_never_used_that_vanished_is_noticed_too(path: Path) -> None:
    Ledger(path)
    path.unlink()
    assert reason(Ledger, path) == "ledger-lost"


def test_a_lost_anchor_is_noticed(path: Path) -> None:
    answered(Ledger(path), 3)
    path.with_name("ledger.json.anchor").unlink()
    assert reason(Ledger, path) == "ledger-lost"


def test_an_older_copy_is_noticed(path: Path) -> None:
    ledger = Ledger(path)
    answered(ledger, 3)
    copy = path.read_bytes()
    answered(ledger, 4)
    path.write_bytes(copy)
    assert reason(Ledger, path) == "ledger-rolled-back"


def test_another_ledger_in_its_place_is_noticed(path: Path) -> None:
    answered(Ledger(path), 3)
    other = path.with_name("other.json")
    answered(Ledger(other), 3)
    other.replace(path)
    assert reason(Ledger, path) == "ledger-rolled-back"


def test_the_anchor_may_stand_elsewhere(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    anchor = tmp_path / "elsewhere" / "anchor.json"
    answered(Ledger(path, anchor=anchor), 3)
    path.unlink()
    with pytest.raises(Refused, match="missing"):
        Ledger(path, anchor=anchor)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert reason(Ledger, tmp_path / "nowhere" / "ledger.json") == "ledger-unwritable"


def test_a_ledger_that_is_a_folder(path: Path) -> None:
    path.mkdir()
    assert reason(Ledger, path) == "ledger-unreadable"


# -- crashes and failures ------------------------------------------------------------------------


def calls_of_a_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    with monkeypatch.context() as patch:
        machine = on(patch, Machine())
        device(Collector(), folder / "dry.json").report(locate=Eye())
    return len(machine.calls)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_crash_at_any_call_leaves_a_sound_ledger_and_no_free_report(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = calls_of_a_report(tmp_path, monkeypatch)
    assert calls > 30
    for stop_at in range(1, calls + 1):
        path = tmp_path / f"{stop_at}.json"
        collector = Collector()
        with monkeypatch.context() as patch:
            on(patch, Machine(stop_at, late=late))
            with pytest.raises(Crash):
                device(collector, path).report(locate=Eye())
        after = device(collector, path)
        spent, seen = after.ledger.spent_per_km, dict(collector.reports)
        assert spent >= 2.0 * len(seen)
        after.flush()
        receipt = after.report(locate=Eye())
        assert spent <= after.ledger.spent_per_km <= spent + 2.0
        if seen or any(c.state != "charged" for c in after.ledger.charges()[:1]):
            assert after.ledger.spent_per_km == 2.0
        assert list(collector.reports) == [receipt.report]
        assert {a["cell"] for a in collector.attempts} == {receipt.cell}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_full_or_broken_disk_sends_nothing(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Machine):
        def __getattr__(self, name: str) -> Any:
            if name == "fsync":
                raise OSError(code, os.strerror(code))
            return getattr(os, name)

    collector = Collector()
    it = device(collector, tmp_path / "ledger.json")
    with monkeypatch.context() as patch:
        on(patch, Broken())
        assert reason(lambda: it.report(locate=Eye())) == "ledger-unwritable"
    assert collector.attempts == []
    it.report(locate=Eye())
    assert len(collector.reports) == 1


def test_an_answer_that_cannot_be_noted_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills after the report was sent: the receipt stands, and flush settles the ledger."""
    collector = Collector()
    it = device(collector, tmp_path / "ledger.json")
    mark = it.ledger.mark

    def failing(report: str, state: Any, problem: str = "") -> Charge:
        if state == "acknowledged":
            raise Refused("ledger-unwritable")
        return mark(report, state, problem)

    with monkeypatch.context() as patch:
        patch.setattr(it.ledger, "mark", failing)
        receipt = it.report(locate=Eye())
    assert receipt.acknowledged
    assert [charge.state for charge in it.history()] == ["sent"]
    assert it.flush() == [receipt]
    assert [charge.state for charge in it.history()] == ["acknowledged"]
    assert list(collector.reports) == [receipt.report]


# -- several at once -----------------------------------------------------------------------------


def spend_one(path: str, cell: int) -> str:
    try:
        return answered(Ledger(path), cell).report
    except Refused as refused:
        return refused.reason


def threads() -> Any:
    return ThreadPool(8)


def processes() -> Any:
    return multiprocessing.get_context("spawn").Pool(3)


@pytest.mark.parametrize("pool", [threads, pytest.param(processes, marks=pytest.mark.slow)])
def test_many_at_once_never_spend_more_than_the_limit(pool: Any, path: Path) -> None:
    with pool() as workers:
        outcomes = workers.starmap(spend_one, [(str(path), cell) for cell in range(24)])
    assert outcomes.count("budget") == 19
    assert len(set(outcomes)) == 6
    assert Ledger(path).spent_per_km == 10.0


def test_a_lock_that_is_never_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path)
    monkeypatch.setattr(durable, "WAIT_S", 0.0)
    with durable.locked(path.with_name("ledger.json.lock")):
        assert reason(ledger.charges) == "ledger-busy"
    assert ledger.charges() == []


def test_the_book_reads_back_what_it_wrote() -> None:
    book = Book("0" * 32)
    assert Book.from_bytes(book.to_bytes()) == book
    charge = Charge("https://a.example/c/x", 1, "1" * 64, "2" * 32, 0.1)
    book.add(charge)
    assert Book.from_bytes(book.to_bytes()).charges == [charge]
    with pytest.raises(ValueError, match="nothing was drawn"):
        _ = charge.drawn


def test_many_small_charges_are_added_exactly() -> None:
    book = Book("0" * 32)
    for k in range(1000):
        book.add(Charge("https://a.example/c/x", 1, "1" * 64, f"{k:032x}", 0.1))
    assert book.spent_per_km == 100.0
