"""The ledger: durable, shared by processes, refused when it cannot be trusted, never begun again."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

from client.crashes import Crash, Machine, everything_in, on
from client.world import NOW_S, PLACE, Collector, Eye, device, document, refused
from geoveil.channel.guarantee import BetweenPositions
from geoveil.client import Charge, Ledger, Refused, ledger_book
from geoveil.client import ledger as durable
from geoveil.client.budget import Limits
from geoveil.client.ledger_book import MIGRATIONS, MOST_STEPS, Period, Round, moved_on
from geoveil.client.network import Answer
from geoveil.errors import InvalidInput, RandomnessFailed
from geoveil.position.whole_law import DRAW_BYTES
from geoveil.randomness import SYSTEM, Randomness

LIMITS = Limits(10.0)
SPACE = "5" * 64
A = "https://a.example/c/x"


def a_round(number: int = 1, *, campaign: str = A, cost: float = 2.0) -> Round:
    mechanism, promise = f"{number:064x}", BetweenPositions(cost, 0.01)
    return Round(campaign, SPACE, number, mechanism, promise, NOW_S + 1000, mechanism)


def reported(
    ledger: Ledger,
    number: int = 1,
    *,
    campaign: str = A,
    cost: float = 2.0,
    limits: Limits = LIMITS,
    randomness: Randomness = SYSTEM,
    now_s: float = NOW_S,
) -> Charge:
    """One report for a round, as a device makes it; its cell is made from its bits."""
    current, period = a_round(number, campaign=campaign, cost=cost), Period("round", number)
    accepted = ledger.accept(current, period, limits, now_s, randomness)
    if isinstance(accepted, Charge):
        return accepted
    report, bits = accepted
    return ledger.charge(current, period, limits, now_s, report, (bits[0], 45.0, 4.0))[0]


def reason(call: Any, *arguments: Any) -> str:
    return refused(call, *arguments).reason


def rows(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as book:
        return book.execute(question).fetchall()


def test_it_survives_restarts(path: Path) -> None:
    charge = reported(Ledger(path))
    again = Ledger(path)
    assert again.charges() == [charge]
    assert again.spent_per_km == 2.0
    assert reported(again) == charge
    assert again.spent_per_km == 2.0
    assert reported(again, 2).report != charge.report
    assert again.spent_per_km == 4.0


def test_only_its_owner_may_read_it(path: Path) -> None:
    reported(Ledger(path))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    path.chmod(0o644)
    reported(Ledger(path), 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_journal_is_its_owners_too(path: Path) -> None:
    ledger = Ledger(path)
    with ledger._book(write=True) as book:
        book.execute("INSERT INTO day_total VALUES (1, '1')")
        journal = path.with_name("ledger.db-journal")
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600


def test_commits_are_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is erased is overwritten, also by an SQLite that was not built to do so by itself."""
    monkeypatch.undo()
    connect = sqlite3.connect

    def careless(*given: Any, **options: Any) -> sqlite3.Connection:
        book = connect(*given, **options)
        book.execute("PRAGMA secure_delete = OFF")
        return book

    monkeypatch.setattr(sqlite3, "connect", careless)
    with Ledger(path)._book() as book:
        settings = [
            book.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("synchronous", "journal_mode", "secure_delete")
        ]
    assert settings == [3, "truncate", 1]


def test_campaigns_share_the_budget_and_nothing_else(path: Path) -> None:
    ledger = Ledger(path)
    first = reported(ledger)
    other = reported(ledger, campaign="https://b.example:8443/c/x")
    assert first.report != other.report
    assert ledger.spent_per_km == 4.0
    totals = [ledger.totals(origin)[1].epsilon_per_km for origin in (first.origin, other.origin)]
    assert totals == [2.0, 2.0]
    assert other.origin == "https://b.example:8443"
    third = reported(ledger, campaign="https://a.example/geo/c/y")
    assert ledger.totals(third.origin)[1].epsilon_per_km == 4.0


def test_the_charge_is_on_disk_before_the_sending(path: Path) -> None:
    seen: list[Any] = []

    class Looking(Collector):
        def post(self, path_: str, body: bytes, *, limit: int) -> Answer:
            seen.extend(rows(path, "SELECT report, cell, state, epsilon_per_km FROM charge"))
            return super().post(path_, body, limit=limit)

    receipt = device(Looking(), path).report(locate=Eye())
    assert seen == [(receipt.report, receipt.cell, "sent", 2.0)]


def test_many_small_charges_are_added_exactly(path: Path) -> None:
    ledger = Ledger(path)
    for number in range(1, 101):
        reported(ledger, number, cost=0.1)
    assert ledger.spent_per_km == 10.0
    assert reason(lambda: reported(ledger, 101, cost=1e-9)) == "budget"
    (total,) = rows(path, "SELECT epsilon_per_km FROM origin_total WHERE origin = ''")
    assert Fraction(total[0]) == 10


def test_the_sums_are_those_of_the_charges(path: Path) -> None:
    ledger = Ledger(path)
    for number in range(1, 30):
        campaign = f"https://{'abc'[number % 3]}.example/c/x"
        day_s = NOW_S + 86_400 * (number % 4)
        reported(ledger, number, campaign=campaign, cost=0.1 + number / 7, limits=Limits(1e9),
                 now_s=day_s)  # fmt: skip
    charges = ledger.charges()
    for origin in ("https://a.example", "https://b.example"):
        costs = [Fraction(repr(c.epsilon_per_km)) for c in charges if c.origin == origin]
        assert ledger.spent(origin, NOW_S).operator.exact == sum(costs)
    spent = ledger.spent("", NOW_S)
    today = [Fraction(repr(c.epsilon_per_km)) for c in charges if c.day == NOW_S // 86_400]
    assert spent.day.exact == sum(today)
    assert spent.year.exact == spent.lifetime.exact
    assert spent.lifetime == spent.operator
    assert spent.lifetime.slack == 0.29
    assert (spent.reports, spent.ahead, spent.cells) == (29, True, False)


# -- keys ----------------------------------------------------------------------------------------


def test_a_key_makes_its_report_again_and_never_an_earlier_one() -> None:
    key = bytes(range(32))
    later = moved_on(key, 3)
    assert moved_on(moved_on(key, 1), 2) == later != key
    bits = {
        Period(again, number).bits(key, mechanism)
        for again in ("never", "day", "round")
        for number in (0, 1, 11)
        for mechanism in ("1" * 64, "2" * 64)
    }
    assert len({report for report, _ in bits}) == len({drawn for _, drawn in bits}) == 18
    report, drawn = Period("never", 0).bits(key, "1" * 64)
    assert (len(report), len(drawn)) == (32, 2 * DRAW_BYTES)
    assert drawn[:DRAW_BYTES] != drawn[DRAW_BYTES:]
    assert bytes.fromhex(report) != drawn


@pytest.mark.parametrize("change", ["DELETE FROM ledger", "UPDATE ledger SET id = ''", "schema"])
def test_a_ledger_that_is_damaged_is_refused(path: Path, change: str) -> None:
    """Whatever SQLite says of it: of a schema that is no text, in bytes that are none either."""
    Ledger(path)
    if change == "schema":
        damaged = path.read_bytes().replace(b"TABLE ledger (", b"TABLE ledger \xdf", 1)
        path.write_bytes(damaged)
    else:
        with closing(sqlite3.connect(path)) as book, book:
            book.execute(change)
    assert reason(lambda: Ledger(path)) == "ledger-unreadable"


def test_an_older_copy_makes_the_same_reports(path: Path) -> None:
    ledger = Ledger(path)
    reported(ledger, 1)
    copy = path.read_bytes()
    later = [reported(ledger, number) for number in (2, 4)]
    path.write_bytes(copy)
    assert [reported(ledger, number) for number in (2, 4)] == later
    path.write_bytes(copy)
    assert reported(Ledger(path), 4) == later[1]


def test_a_round_far_ahead_begins_with_a_new_key(path: Path) -> None:
    """A collector that jumps by a billion rounds costs a device no time."""
    ledger = Ledger(path)
    reported(ledger, 1)
    reported(ledger, 2 + MOST_STEPS)
    reported(ledger, 2**31 - 1)
    reported(ledger, 5)
    assert len({charge.report for charge in ledger.charges()}) == 4


def key_of(path: Path) -> bytes | None:
    ((key,),) = rows(path, "SELECT key FROM campaign")
    return key


def test_what_is_erased_is_overwritten(path: Path) -> None:
    ledger = Ledger(path)
    reported(ledger, 1)
    first = key_of(path)
    reported(ledger, 2)
    second = key_of(path)
    assert first
    assert second
    assert second == moved_on(first, 1)
    assert first not in everything_in(path.parent)
    ledger.forget_ended(NOW_S + 999)
    assert key_of(path) == second
    ledger.forget_ended(NOW_S + 1000)
    assert key_of(path) is None
    assert second not in everything_in(path.parent)
    assert ledger.spent_per_km == 4.0
    ledger.end(A)
    assert [charge.round for charge in ledger.charges()] == [1, 2]
    assert reported(ledger, 2).round == 2


def test_a_report_erases_the_keys_of_other_campaigns_that_have_ended(path: Path) -> None:
    ledger = Ledger(path)
    reported(ledger)
    key = key_of(path)
    assert key
    reported(ledger, 2, campaign="https://b.example/c/y", now_s=NOW_S + 999)
    assert key in everything_in(path.parent)
    reported(ledger, 3, campaign="https://c.example/c/z", now_s=NOW_S + 1000)
    assert key not in everything_in(path.parent)
    assert sum(row == (None,) for row in rows(path, "SELECT key FROM campaign")) == 2


# -- files that cannot be trusted ----------------------------------------------------------------


def changed(statement: str) -> Any:
    def spoil(path: Path) -> None:
        with closing(sqlite3.connect(path)) as book:
            book.execute("PRAGMA ignore_check_constraints = ON")
            book.execute("PRAGMA writable_schema = ON")
            book.execute(statement)
            book.commit()

    return spoil


def rewritten(change: Any) -> Any:
    return lambda path: path.write_bytes(change(path.read_bytes()))


SPOILED = {
    "empty": rewritten(lambda content: b""),
    "half": rewritten(lambda content: content[: len(content) // 2]),
    "zeros": rewritten(lambda content: bytes(len(content))),
    "pages of noise": rewritten(lambda content: content[:4096] + os.urandom(len(content) - 4096)),
    "text": rewritten(lambda content: b"ledger"),
    "a broken first format": rewritten(lambda content: b'{"geoveil":1}'),
    "nested": rewritten(lambda content: b"{" * 100_000),
    "another program's": changed("PRAGMA application_id = 7"),
    "a newer version": changed(f"PRAGMA user_version = {len(MIGRATIONS) + 1}"),
    "no table": changed("DROP TABLE charge"),
    "no sums": changed("DROP TABLE origin_total"),
    "a sum of text": changed("UPDATE origin_total SET epsilon_per_km = 'much'"),
    "a sum over nothing": changed("UPDATE origin_total SET epsilon_per_km = '1/0'"),
    "a sum below nothing": changed("UPDATE day_total SET epsilon_per_km = '-9'"),
    "a sum beyond all numbers": changed("UPDATE origin_total SET slack_nats = '1e400'"),
    "a number of words": changed("UPDATE origin_total SET reports = 'many'"),
    "drawn without a cell": changed("UPDATE charge SET cell = NULL"),
    "a cell of bytes": changed("UPDATE charge SET cell = x'00'"),
    "text that is none": changed("UPDATE charge SET problem = CAST(x'fffe' AS TEXT)"),
    "a round of words": changed("UPDATE campaign SET next = 'soon'"),
    "a key of words": changed("UPDATE campaign SET key = 'secret'"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_an_untrustworthy_ledger_is_refused_and_left_alone(name: str, path: Path) -> None:
    ledger = Ledger(path)
    reported(ledger)
    SPOILED[name](path)
    spoiled = path.read_bytes()
    caught = refused(lambda: (Ledger(path).charges(), reported(ledger, 2)))
    assert caught.reason == "ledger-unreadable"
    assert path.read_bytes() == spoiled


def test_a_newer_ledger_says_so(path: Path) -> None:
    Ledger(path)
    SPOILED["a newer version"](path)
    assert refused(Ledger, path).detail == "written by a newer version"


def test_a_lost_ledger_is_not_begun_again(path: Path) -> None:
    ledger = Ledger(path)
    reported(ledger)
    path.unlink()
    assert reason(Ledger, path) == "ledger-lost"
    assert reason(reported, ledger) == "ledger-lost"
    assert not path.exists()


def test_a_lost_anchor_is_written_again(path: Path) -> None:
    """Whoever brings the ledger to another machine need not bring its anchor."""
    reported(Ledger(path))
    anchor = path.with_name("ledger.db.anchor")
    content = anchor.read_bytes()
    anchor.unlink()
    assert Ledger(path).spent_per_km == 2.0
    assert anchor.read_bytes() == content


def test_another_ledger_in_its_place_is_noticed(path: Path) -> None:
    reported(Ledger(path))
    other = path.with_name("other.db")
    reported(Ledger(other))
    other.replace(path)
    assert reason(Ledger, path) == "ledger-exchanged"


def test_the_anchor_may_stand_elsewhere(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    anchor = tmp_path / "elsewhere" / "anchor"
    reported(Ledger(path, anchor=anchor))
    path.unlink()
    with pytest.raises(Refused, match="missing"):
        Ledger(path, anchor=anchor)


def test_an_anchor_that_cannot_be_read(path: Path) -> None:
    anchor = Ledger(path).anchor
    anchor.unlink()
    anchor.mkdir()
    caught = refused(Ledger, path)
    assert (caught.reason, caught.detail[:10]) == ("ledger-unreadable", "its anchor")


def test_a_program_that_goes_to_another_folder_keeps_its_ledger(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    it = device(Collector(), path.name)
    receipt = it.report(locate=Eye())
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert it.report(locate=Eye()) == receipt
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("given", [None, 7, b"ledger.db", "ledger.db\0"])
def test_what_is_no_name_of_a_file(given: Any, path: Path) -> None:
    with pytest.raises(InvalidInput, match="name of a file"):
        Ledger(given)
    if given is not None:
        with pytest.raises(InvalidInput, match="name of a file"):
            Ledger(path, anchor=given)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    answer = refused(Ledger, tmp_path / "nowhere" / "ledger.db")
    assert answer.reason == "ledger-unwritable"
    assert "make room, or choose a place" in str(answer)


def test_a_ledger_that_is_a_folder(path: Path) -> None:
    path.mkdir()
    assert reason(Ledger, path) == "ledger-unreadable"


def test_the_journal_of_a_former_ledger_is_not_played_back(path: Path) -> None:
    with Ledger(path)._book(write=True) as book:
        book.execute("UPDATE ledger SET id = 'another'")
        former = path.with_name("ledger.db-journal").read_bytes()
    for file in path.parent.iterdir():
        file.unlink()
    for end in ("journal", "wal", "shm"):
        path.with_name(f"ledger.db-{end}").write_bytes(former)
    Ledger(path)
    ((identity,),) = rows(path, "SELECT id FROM ledger")
    assert identity.encode() not in former
    assert former not in everything_in(path.parent)


def test_a_name_with_odd_characters(tmp_path: Path) -> None:
    path = tmp_path / "my ledger?#%41.db"
    reported(Ledger(path))
    assert Ledger(path).spent_per_km == 2.0


# -- versions ------------------------------------------------------------------------------------


def test_an_older_schema_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported(Ledger(path))
    later = (*MIGRATIONS, ("ALTER TABLE charge ADD COLUMN note TEXT",))
    monkeypatch.setattr(durable, "MIGRATIONS", later)
    ledger = Ledger(path)
    reported(ledger, 2)
    assert rows(path, "PRAGMA user_version") == [(len(later),)]
    assert rows(path, "SELECT count(note), count(*) FROM charge") == [(0, 2)]
    monkeypatch.undo()
    assert reason(Ledger, path) == "ledger-unreadable"


def first_format(charges: list[dict[str, Any]], *, key: str = "7" * 64) -> bytes:
    """A ledger as the first version wrote it, with a true cell of each charge under its key."""
    values: dict[str, Any] = {
        "geoveil": 1,
        "kind": "ledger",
        "id": "ab" * 16,
        "serial": len(charges) + 1,
        "pages": {A: {"space": SPACE, "round": 2, "mechanism": f"{2:064x}", "secret": key}},
        "charges": charges,
    }
    body = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    check = hashlib.sha256(body).hexdigest()
    return json.dumps({**values, "check": check}, sort_keys=True, separators=(",", ":")).encode()


def old_charge(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "campaign": A, "round": number, "mechanism": f"{number:064x}", "report": f"{number:032x}",
        "epsilon_per_km": 0.1, "state": "acknowledged", "cell": 4, "lat": 45.0, "lng": 4.0,
        "problem": "", "place": "9" * 64, **changes,
    }  # fmt: skip


NOTHING = {"cell": None, "lat": None, "lng": None, "place": ""}
OLD = [
    old_charge(1),
    old_charge(2, state="drawn"),
    old_charge(3, state="charged", **NOTHING),
]


def test_a_ledger_of_the_first_format_is_taken_over_once(path: Path) -> None:
    path.write_bytes(first_format(OLD))
    path.with_name("ledger.db.anchor").write_text('{"geoveil":1,"id":"' + "ab" * 16 + '"}')
    ledger = Ledger(path)
    assert ledger.spent_per_km == 0.3
    assert [(c.round, c.state, c.cell, c.day) for c in ledger.charges()] == [
        (1, "acknowledged", 4, None),
        (2, "sent", 4, None),
        (3, "charged", None, None),
    ]
    content = everything_in(path.parent)
    assert b"7" * 64 not in content
    assert b"9" * 64 not in content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Ledger(path)
    assert again.spent_per_km == 0.3
    mine = ledger.totals("https://a.example")[1]
    assert (mine.epsilon_per_km, mine.slack) == (0.3, 0.0)
    assert reported(again, 2).report == f"{2:032x}"
    assert reported(again, 4).round == 4
    moved = replace(a_round(5), space="6" * 64)
    assert reason(lambda: again.check(moved, LIMITS, NOW_S)) == "space"


@pytest.mark.skipif(sys.platform == "win32", reason="only some users may make links there")
@pytest.mark.parametrize("content", [first_format(OLD), b""], ids=["taken over", "new"])
def test_a_link_to_a_ledger_is_followed(path: Path, tmp_path: Path, content: bytes) -> None:
    """Else what was drawn would stay where the link leads, and could be reported from again."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = elsewhere / "kept.db"
    if content:
        file.write_bytes(content)
        file.with_name("kept.db-journal").write_bytes(b"former")
    path.symlink_to(file)
    ledger = Ledger(path)
    reported(ledger, 4)
    assert path.is_symlink()
    assert Ledger(file).charges() == ledger.charges()
    assert b"7" * 64 not in everything_in(elsewhere)
    assert ledger.anchor.parent == path.parent


@pytest.mark.parametrize("name", ["", ".", "folder"])
def test_a_folder_is_no_ledger_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    here = tmp_path / "here"
    (here / "folder").mkdir(parents=True)
    monkeypatch.chdir(here)
    caught = refused(Ledger, name)
    assert (caught.reason, caught.detail) == ("ledger-unreadable", "a folder")
    assert [each.name for each in sorted(tmp_path.rglob("*"))] == ["here", "folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="only some users may make links there")
def test_links_that_lead_in_a_circle_lead_to_no_ledger(path: Path) -> None:
    """Nothing takes their place, and nothing is begun beside them."""
    path.symlink_to(path.with_name("other.db"))
    path.with_name("other.db").symlink_to(path)
    before = sorted(path.parent.iterdir())
    caught = refused(Ledger, path)
    assert (caught.reason, caught.detail) == ("ledger-unreadable", "a loop of links")
    assert sorted(path.parent.iterdir()) == before


class OfAnApp(Randomness):
    """A source that does what it was told to, until it is mended."""

    def __init__(self, does: Any) -> None:
        self.does = does

    def bytes(self, size: int) -> bytes:
        if isinstance(self.does, Exception):
            raise self.does
        return SYSTEM.bytes(size) if self.does is None else self.does


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (ValueError("of the app"), "(ValueError)"),
        (sqlite3.OperationalError("of the app"), "(OperationalError)"),
        (OSError("of the app"), "(OSError)"),
        (RandomnessFailed("the source of randomness is the app's"), "the app's"),
        (b"short", "32 bytes"),
        ("x" * 32, "32 bytes"),
    ],
    ids=repr,
)
def test_what_an_apps_own_randomness_does_is_no_fault_of_the_ledger(
    does: Any, said: str, path: Path
) -> None:
    source = OfAnApp(does)
    it = device(collector := Collector(), path, randomness=source)
    for call in (lambda: it.report(**PLACE), lambda: it.ledger.ticket_seed(A, source)):
        with pytest.raises(RandomnessFailed, match="source of randomness") as caught:
            call()
        assert said in str(caught.value)
    assert (collector.attempts, it.history()) == ([], [])
    source.does = None
    assert it.report(**PLACE).acknowledged
    assert len(it.ledger.ticket_seed(A, source) or b"") == 32


@pytest.mark.parametrize("now_s", [float("nan"), float("inf"), -1.0])
def test_a_time_that_is_none_is_no_fault_of_the_ledger(now_s: float, path: Path) -> None:
    ledger = Ledger(path)
    for call in (
        lambda: ledger.spent("", now_s),
        lambda: ledger.forget_ended(now_s),
        lambda: ledger.open_campaign(A, Period("never", 0), now_s),
        lambda: reported(ledger, now_s=now_s),
    ):
        assert reason(call) == "clock"
    assert ledger.charges() == []


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon_per_km": -1},
        {"epsilon_per_km": "2"},
        {"round": 0},
        {"state": "refunded"},
        {"cell": None},
        {"report": "x"},
        {"report": f"{2:032x}"},
    ],
    ids=str,
)
def test_a_first_format_that_is_not_sound_is_refused_and_left_alone(
    change: dict[str, Any], path: Path
) -> None:
    spoiled = first_format([old_charge(1, **change), old_charge(2)])
    path.write_bytes(spoiled)
    assert reason(Ledger, path) == "ledger-unreadable"
    assert path.read_bytes() == spoiled
    sound = first_format(OLD)
    path.write_bytes(sound.replace(b'"epsilon_per_km":0.1', b'"epsilon_per_km":0.0'))
    assert reason(Ledger, path) == "ledger-unreadable"


def test_a_crash_while_it_is_taken_over_changes_nothing_or_all(path: Path) -> None:
    machine = Machine()
    path.write_bytes(first_format(OLD))
    with on(machine):
        Ledger(path)
    for late in (False, True):  # after one call is before the next, but after the last
        for stop_at in range(len(machine.calls), 0, -3 if late else -1):
            for file in path.parent.iterdir():
                file.unlink()
            path.write_bytes(first_format(OLD))
            with pytest.raises(Crash), on(Machine(stop_at, late=late)):
                Ledger(path)
            assert Ledger(path).spent_per_km == 0.3


# -- crashes and failures ------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_crash_at_any_call_leaves_a_sound_ledger_and_one_report(
    late: bool, tmp_path: Path
) -> None:
    with on(Machine()) as whole:
        device(Collector(), tmp_path / "dry.db").report(locate=Eye())
    assert len(whole.calls) > 50
    # after one call is before the next, but after the last
    for stop_at in range(len(whole.calls), 0, -3 if late else -1):
        path = tmp_path / f"{stop_at}.db"
        collector = Collector()
        with pytest.raises(Crash), on(Machine(stop_at, late=late)):
            device(collector, path).report(locate=Eye())
        after = device(collector, path)
        assert after.ledger.spent_per_km >= 2.0 * len(collector.reports)
        after.flush()
        receipt = after.report(locate=Eye())
        assert after.ledger.spent_per_km == 2.0
        assert list(collector.reports) == [receipt.report]
        assert {a["cell"] for a in collector.attempts} == {receipt.cell}


def ended_at(line: int, path: Path, served: bytes) -> bool:
    """Whether a child process that ends, without a farewell, at the n-th line of the client got there."""
    seen = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal seen
        if "geoveil/client/" not in frame.f_code.co_filename:
            return None
        seen += event == "line"
        if seen == line:
            os._exit(9)
        return trace

    child = os.fork()
    if child == 0:
        try:
            sys.settrace(trace)
            device(Collector(served), path).report(locate=Eye())
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process that is copied")
@pytest.mark.filterwarnings("ignore:This process")  # has threads, which the child does not use
def test_a_process_that_is_killed_leaves_a_sound_ledger(tmp_path: Path) -> None:
    """Every few lines of the client: the journal it leaves behind is rolled back by the next process."""
    served, line, killed = document().served(), 1, 0
    while ended_at(line, tmp_path / f"{line}.db", served):
        collector, path = Collector(), tmp_path / f"{line}.db"
        after = device(collector, path)
        spent = after.ledger.spent_per_km
        receipt = after.report(locate=Eye())
        assert spent in (0.0, 2.0)
        assert after.ledger.spent_per_km == 2.0
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
        assert [charge.report for charge in after.history()] == [receipt.report]
        line, killed = line + 41, killed + 1
    assert killed > 10


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (sqlite3.SQLITE_FULL, "ledger-unwritable"),
        (sqlite3.SQLITE_IOERR, "ledger-unwritable"),
        (sqlite3.SQLITE_READONLY, "ledger-unwritable"),
        (sqlite3.SQLITE_CANTOPEN, "ledger-unwritable"),
        (sqlite3.SQLITE_BUSY, "ledger-busy"),
        (sqlite3.SQLITE_CORRUPT, "ledger-unreadable"),
    ],
)
def test_a_full_or_broken_disk_sends_nothing(code: int, name: str, path: Path) -> None:
    class Broken(Machine):
        def call(self, what: str, real: Any, *arguments: Any) -> Any:
            if what == "COMMIT":
                failure = sqlite3.OperationalError("the disk")
                failure.sqlite_errorcode = code
                raise failure
            return real(*arguments)

    collector = Collector()
    it = device(collector, path)
    with on(Broken()):
        assert reason(lambda: it.report(locate=Eye())) == name
    assert collector.attempts == []
    it.report(locate=Eye())
    assert len(collector.reports) == 1


def test_a_small_disk_is_a_refusal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it = device(Collector(), path)
    connection = durable._connection

    def small(path: Path) -> sqlite3.Connection:
        book = connection(path)
        (pages,) = book.execute("PRAGMA page_count").fetchone()
        book.execute(f"PRAGMA max_page_count = {pages}")
        return book

    monkeypatch.setattr(durable, "_connection", small)
    outcomes = {spend_one(str(path), number, cost=0.001) for number in range(1, 100)}
    assert "ledger-unwritable" in outcomes
    assert it.ledger.spent_per_km == pytest.approx(0.001 * (len(outcomes) - 1))


def test_an_answer_that_cannot_be_noted_is_asked_for_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills after the report was sent: the receipt stands, and flush settles the ledger."""
    collector = Collector()
    it = device(collector, path)

    def failing(report: str, state: Any, problem: str = "") -> Charge:
        raise Refused("ledger-unwritable")

    with monkeypatch.context() as patch:
        patch.setattr(it.ledger, "mark", failing)
        receipt = it.report(locate=Eye())
    assert receipt.acknowledged
    assert [charge.state for charge in it.history()] == ["sent"]
    assert it.flush() == [receipt]
    assert [charge.state for charge in it.history()] == ["acknowledged"]
    assert list(collector.reports) == [receipt.report]


# -- several at once -----------------------------------------------------------------------------


def spend_one(path: str, number: int, cost: float = 2.0) -> str:
    try:
        return reported(Ledger(path), number, cost=cost).report
    except Refused as refused:
        return refused.reason


def threads() -> Any:
    return ThreadPool(8)


def processes() -> Any:
    return multiprocessing.get_context("spawn").Pool(3)


@pytest.mark.parametrize("pool", [threads, pytest.param(processes, marks=pytest.mark.slow)])
def test_many_at_once_never_spend_more_than_the_limit(pool: Any, path: Path) -> None:
    with pool() as workers:
        outcomes = workers.starmap(spend_one, [(str(path), number) for number in range(1, 25)])
    assert outcomes.count("budget") == 19
    assert len(set(outcomes)) == 6
    assert Ledger(path).spent_per_km == 10.0


@pytest.mark.parametrize("pool", [threads, pytest.param(processes, marks=pytest.mark.slow)])
def test_many_at_once_make_one_report(pool: Any, path: Path) -> None:
    with pool() as workers:
        outcomes = workers.starmap(spend_one, [(str(path), 1)] * 24)
    assert len(set(outcomes)) == 1
    assert Ledger(path).spent_per_km == 2.0


def test_a_look_lets_no_other_process_write(path: Path) -> None:
    """Whoever closes a file lets go of all locks that any thread of the process has on it; SQLite knows."""
    write = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0).execute('BEGIN IMMEDIATE')"
    with Ledger(path)._book(write=True):
        assert Ledger(path).charges() == []
        assert durable._is_database(path)
        other = [sys.executable, "-c", write, str(path)]
        ended = subprocess.run(other, capture_output=True, text=True, check=False)
    assert "database is locked" in ended.stderr


@pytest.mark.parametrize("content", [b"", b"first format"], ids=["new", "taken over"])
def test_another_process_may_begin_a_ledger_first(
    path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    if content:
        path.write_bytes(first_format(OLD))
    connect = durable._connection

    def late(file: Path) -> sqlite3.Connection:
        monkeypatch.setattr(durable, "_connection", connect)
        try:
            return connect(file)
        finally:
            reported(Ledger(path), 7)

    monkeypatch.setattr(durable, "_connection", late)
    assert [charge.round for charge in Ledger(path).charges()][-1] == 7


def test_a_ledger_that_is_never_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path)
    monkeypatch.setattr(durable, "WAIT_S", 0.0)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        monkeypatch.context() as patch,
    ):
        other.execute("BEGIN EXCLUSIVE")
        patch.setattr(ledger, "_locked", pytest.fail)  # who has that one may wait for this one
        assert reason(ledger.charges) == "ledger-busy"
    assert ledger.charges() == []
    with durable.locked(path.with_name("new.db.lock"), 0.0):
        assert reason(Ledger, path.with_name("new.db")) == "ledger-busy"


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.open_campaign(A, Period("round", 1), NOW_S),
        lambda ledger: ledger.accept(a_round(), Period("round", 1), LIMITS, NOW_S),
        lambda ledger: ledger.charge(
            a_round(), Period("round", 1), LIMITS, NOW_S, "f" * 32, (1, 45.0, 4.0)
        ),
        lambda ledger: ledger.ticket_seed(A),
        lambda ledger: ledger.keep_ticket(A, b"ticket"),
        lambda ledger: ledger.mark("f" * 32, "refused"),
        lambda ledger: ledger.end(A),
        lambda ledger: ledger.forget_ended(NOW_S),
    ],
    ids=["open", "accept", "charge", "seed", "ticket", "mark", "end", "forget"],
)
def test_a_change_waits_for_others_before_it_reads(
    path: Path, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    ledger, said = Ledger(path), []
    connect = durable._connection

    def traced(file: Path) -> sqlite3.Connection:
        book = connect(file)
        book.set_trace_callback(said.append)
        return book

    monkeypatch.setattr(durable, "_connection", traced)
    change(ledger)
    begun = [statement for statement in said if statement.startswith("BEGIN")]
    assert begun == ["BEGIN IMMEDIATE"]  # what it read could be old by the time it writes
    assert said[-1] == "COMMIT"


def test_a_report_opens_its_ledger_five_times(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look, for what was certified, for the bits, with the charge, for the answer."""
    it, connect, opened = device(Collector(), path), durable._connection, []

    def counted(file: Path) -> sqlite3.Connection:
        opened.append(file)
        return connect(file)

    monkeypatch.setattr(durable, "_connection", counted)
    assert it.report(locate=Eye()).operator_spent_per_km == 2.0
    assert len(opened) == 5


def test_asking_writes_nothing(path: Path) -> None:
    ledger = Ledger(path)
    charge = reported(ledger)
    before, changed_ns = path.read_bytes(), path.stat().st_mtime_ns
    assert ledger.charges() == ledger.waiting(A) == [charge]
    assert ledger.reported(A, Period("round", 1), charge.mechanism) == charge
    assert ledger.spent_per_km == 2.0
    assert ledger.certified(charge.mechanism)
    assert not ledger.certified("0" * 64)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, changed_ns)


def test_accepting_writes_nothing_where_a_key_stands(path: Path) -> None:
    """What is not written need not be synced; the charge notes what was accepted."""
    ledger, current = Ledger(path), a_round()
    ledger.open_campaign(A, Period("round", 1), NOW_S)
    before = path.read_bytes()
    accepted = ledger.accept(current, Period("round", 1), LIMITS, NOW_S)
    assert path.read_bytes() == before
    assert ledger.accept(current, Period("round", 1), LIMITS, NOW_S) == accepted
    reported(ledger)
    assert rows(path, "SELECT space, expires_s FROM campaign") == [(SPACE, NOW_S + 1000)]
    assert ledger.certified(current.timeless)
    fresh = Ledger(path.with_name("fresh.db"))
    accepted = fresh.accept(current, Period("round", 1), LIMITS, NOW_S)
    assert fresh.accept(current, Period("round", 1), LIMITS, NOW_S) == accepted


def test_what_has_ended_is_forgotten_and_nothing_before(path: Path) -> None:
    ledger, current = Ledger(path), a_round()
    assert ledger.spent("https://a.example", NOW_S).reports == 0
    reported(ledger)
    for now_s, kept in ((current.expires_s - 0.5, True), (float(current.expires_s), False)):
        ledger.forget_ended(now_s)
        assert ledger.certified(current.timeless) is kept
        assert rows(path, "SELECT key IS NOT NULL FROM campaign") == [(kept,)]
    assert ledger.spent("https://a.example", NOW_S).reports == 1


def test_the_file_says_what_it_is_and_which_one(path: Path) -> None:
    """In the header of SQLite, where other versions and programs look; the id has 128 bits."""
    ledger = Ledger(path)
    assert path.read_bytes()[68:72] == b"gvld"
    named = ledger.anchor.read_text()
    assert rows(path, "SELECT id FROM ledger") == [(named.strip(),)]
    assert len(bytes.fromhex(named)) == 16


def test_a_failure_of_which_nothing_is_known_is_no_proof_that_the_file_is_bad() -> None:
    assert durable._reason(sqlite3.Error()) == "ledger-unwritable"
    for code, reason in (
        (sqlite3.SQLITE_BUSY, "ledger-busy"),
        (sqlite3.SQLITE_LOCKED, "ledger-busy"),
        (sqlite3.SQLITE_IOERR, "ledger-unwritable"),
        (sqlite3.SQLITE_FULL, "ledger-unwritable"),
        (sqlite3.SQLITE_NOTADB, "ledger-unreadable"),
        (sqlite3.SQLITE_CORRUPT, "ledger-unreadable"),
        (sqlite3.SQLITE_ERROR, "ledger-unreadable"),
    ):
        for extended in (0, 1 << 8, 3 << 8):
            failure = sqlite3.Error()
            failure.sqlite_errorcode = code | extended
            assert durable._reason(failure) == reason


def test_a_key_moves_on_alone_and_only_as_far_as_it_reaches() -> None:
    with closing(sqlite3.connect(":memory:")) as book:
        for change in (each for version in MIGRATIONS for each in version):
            book.execute(change)

        def keys() -> dict[str, tuple[Any, ...]]:
            rows = book.execute("SELECT name, again, next, key FROM campaign")
            return {name: (again, least, key) for name, again, least, key in rows}

        def key_for(number: int, again: Any = "day") -> bytes:
            return ledger_book.key(book, "b", Period(again, number), SYSTEM)

        for name, number in (("a", 3), ("b", 5), ("c", 5)):
            ledger_book.open_campaign(book, name, Period("day", number), SYSTEM)
        ledger_book.erase(book, "name = ?", "c")
        others = {name: keys()[name] for name in "ac"}
        assert others["c"] == (None, None, None)
        key = keys()["b"][2]
        assert len(key) == 32
        for ahead in (0, 1, MOST_STEPS):
            assert key_for(5 + ahead) == moved_on(key, ahead)
        for name, again, number in (("b", "day", 4), ("b", "round", 5), ("c", "day", 5)):
            ledger_book.move_on(book, name, Period(again, number))
        ledger_book.move_on(book, "b", Period("day", 6 + MOST_STEPS))
        assert keys() == {**others, "b": ("day", 5, key)}
        ledger_book.move_on(book, "b", Period("day", 5))
        assert keys() == {**others, "b": ("day", 6, moved_on(key, 1))}
        ledger_book.move_on(book, "b", Period("day", 6 + MOST_STEPS))
        key = moved_on(key, 2 + MOST_STEPS)
        assert keys() == {**others, "b": ("day", 7 + MOST_STEPS, key)}
        for number, again in ((6 + MOST_STEPS, "day"), (8 + 2 * MOST_STEPS, "day"), (9, "round")):
            new = key_for(number, again)  # one that it does not reach begins with a new key
            assert new not in (key, moved_on(key, 1))
            assert keys() == {**others, "b": (again, number, new)}


# --- Tickets


B = "https://b.example/c/x"


@pytest.mark.parametrize("end", ["acknowledged", "refused"])
def test_a_ticket_has_one_seed_until_it_is_spent(tmp_path: Path, end: Any) -> None:
    ledger = Ledger(tmp_path / "ledger")
    seed, other = ledger.ticket_seed(A), ledger.ticket_seed(B)
    assert len(seed) == 32
    assert seed == ledger.ticket_seed(A) != other
    assert ledger.ticket(A) is None
    ledger.keep_ticket(A, b"ticket")
    assert (ledger.ticket(A), ledger.ticket(B)) == (b"ticket", None)
    assert ledger.totals("https://a.example", A)[2] == b"ticket"
    assert ledger.totals("https://a.example")[2] is None
    charge = reported(ledger)
    ledger.mark(charge.report, "sent")
    assert ledger.ticket(A) == b"ticket"
    assert ledger.ticket_seed(A) == seed
    ledger.mark(charge.report, end)
    assert ledger.ticket(A) is None
    assert ledger.ticket_seed(A) is None
    assert ledger.ticket_seed(B) == other


@pytest.mark.parametrize("column", ["seed", "token"])
def test_a_ticket_of_words_is_refused(path: Path, column: str) -> None:
    ledger = Ledger(path)
    ledger.ticket_seed(A)
    changed(f"UPDATE ticket SET {column} = 'words'")(path)
    assert reason(lambda: (ledger.ticket(A), ledger.ticket_seed(A))) == "ledger-unreadable"


def test_the_end_of_a_campaign_erases_its_ticket(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    seed, other = ledger.ticket_seed(A), ledger.ticket_seed(B)
    ledger.keep_ticket(A, b"ticket-of-a")
    ledger.end(A)
    assert ledger.ticket(A) is None
    assert ledger.ticket_seed(B) == other
    kept = (tmp_path / "ledger").read_bytes()
    assert seed not in kept
    assert b"ticket-of-a" not in kept


def test_the_seed_of_a_ticket_is_the_operating_systems(tmp_path: Path) -> None:
    class Fixed(Randomness):
        def bytes(self, size: int) -> bytes:
            return b"7" * size

    assert Ledger(tmp_path / "ledger").ticket_seed(A, Fixed()) == b"7" * 32
