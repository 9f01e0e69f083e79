"""Copies of a store are whole, of one moment, and the same in every database."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from databases import cluster
from geoveil.cli.program import program
from geoveil.errors import InvalidInput
from geoveil.store import (
    ClosingRecord,
    Contents,
    EstimateRecord,
    PreparationRecord,
    Store,
    StoreFailed,
    Upload,
    copy_store,
    open_store,
    restore_backup,
    write_backup,
)
from geoveil.store.records import TABLES, Migration, migrations
from geoveil.store.sqlite import SqliteStore
from store.devices import Writer, a_campaign, a_round, assert_explained, device_id, start, upload
from store.memory import MemoryStore, open_any

KINDS = ("memory", "sqlite", "postgres")
Opens = Callable[[str], Store]


@pytest.fixture
def opens(tmp_path: Path):
    """Opens an empty store of a kind; all are closed at the end."""
    opened: list[Store] = []

    def open_one(kind: str) -> Store:
        addresses = {"memory": "memory:", "sqlite": f"{tmp_path}/{len(opened)}.db"}
        opened.append(open_any(addresses.get(kind) or cluster().database()))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


def eventful(store: Store) -> Store:
    """Something in every table, an open claim and forgotten ids included."""
    start(store, cells=300)
    store.create_campaign(a_campaign("rome"), a_round("rome"), 256 * b"p")
    store.add([Upload("rome", 1, device_id(900), 3)])
    store.add([Upload("paris", 1, device_id(n), n) for n in range(300)])
    store.close_round("paris", 1, minimum=1, at_s=500)
    levels = f"{64 * 'c'} {64 * 'd'}"
    several = replace(a_round(number=2, until_s=700), levels=levels, slots=2, ends=2, around=1)
    store.publish(EstimateRecord("paris", 1, 600, 300, b'{"a":1}'), several)
    store.add([Upload("paris", 2, device_id(300 + n), 5) for n in range(10)])
    store.close_round("paris", 2, minimum=1, at_s=650)
    store.claim(ClosingRecord("paris", 2, 650), until_s=760)
    store.forget_ids(now_s=900)
    wanted = PreparationRecord("rome", 2, b'{"mask":"x"}')
    assert store.prepare(wanted)
    assert store.claim(wanted, until_s=760)
    store.failed(wanted)
    store.invite("rome", [32 * b"a", 32 * b"b"])
    store.use_invitation("rome", 32 * b"a", 32 * b"r")
    store.add_token(bytes(range(32)), label="laptop", at_s=3)
    store.keep_time(1_000)
    return store


def test_a_copy_has_few_documents_in_memory_at_a_time(opens) -> None:
    store, rounds, size = opens("postgres"), 80, 1 << 17
    start(store)
    with store.writing() as run:
        run(
            "INSERT INTO round (campaign_key, number, mechanism, document, cells, opened_at_s,"
            " expires_at_s, accept_until_s) SELECT campaign_key, n, lpad(n::text, 64),"
            " convert_to(repeat('x', :size), 'utf8'), 1, 0, 0, 0"
            " FROM round, generate_series(2, :rounds) n",
            size=size,
            rounds=rounds,
        )
    with store.snapshot() as snapshot:
        tracemalloc.start()
        try:
            assert sum(1 for _ in snapshot("round")) == rounds
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size < peak_bytes < rounds * size * 3 / 4


def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    with store.snapshot() as snapshot:
        return {table: sorted(snapshot(table)) for table in TABLES}


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_a_copy_holds_everything_and_goes_on(source: str, target: str, opens: Opens) -> None:
    original, copy = eventful(opens(source)), opens(target)
    assert copy_store(original, copy) == Contents(campaigns=2, rounds=3, reports=311)
    assert everything(copy) == everything(original)
    assert all(everything(copy).values())
    for store in (original, copy):
        assert store.add([Upload("paris", 1, device_id(0), 7)]) == [False]
        assert not store.claim(ClosingRecord("paris", 2, 650), until_s=701)
        assert store.publish(EstimateRecord("paris", 2, 900, 310, b"{}"), a_round(number=3))
        start(store, "oslo")
    assert everything(copy) == everything(original)


@pytest.mark.parametrize("target", KINDS)
def test_a_store_that_holds_something_is_not_overwritten(target: str, opens: Opens) -> None:
    copy = opens(target)
    copy.add_token(bytes(32), label="mine", at_s=0)
    with pytest.raises(InvalidInput, match="must be empty"):
        copy_store(eventful(MemoryStore()), copy)
    assert copy.campaigns() == []


@pytest.mark.parametrize("target", KINDS)
def test_a_copy_that_fails_half_way_keeps_nothing(target: str, opens: Opens) -> None:
    def half(table: str):
        if table == "round":
            raise InvalidInput("torn")
        return [(1, "paris", "Paris", b"{}", 0, "running", None, None)]

    copy = opens(target)
    with pytest.raises(InvalidInput, match="torn"):
        copy.fill(half)
    assert copy.campaigns() == []
    copy_store(eventful(MemoryStore()), copy)


def while_counting(store: Store, act: Callable[[], None]) -> tuple[set[bytes], set[bytes]]:
    """Do something while reports are counted; the ids acknowledged before it, and all of them."""
    told: list[bytes] = []
    enough, stop = threading.Event(), threading.Event()

    def count() -> None:
        with Writer(store) as writer:
            for number in range(1_000_000):
                if stop.is_set():
                    return
                some = [upload(5 * number + k) for k in range(5)]
                assert all(writer.hand_in(some).result())
                told.extend(one.id for one in some)
                if number == 20:
                    enough.set()

    thread = threading.Thread(target=count)
    thread.start()
    try:
        assert enough.wait(60)
        before = set(told)
        act()
    finally:
        stop.set()
        thread.join()
    return before, set(told)


@pytest.mark.parametrize("restored", ["sqlite", "postgres"])
def test_backup_and_restore_while_reports_arrive(
    address: str, restored: str, opens: Opens, tmp_path: Path
) -> None:
    store = open_store(address)
    start(store)
    backup = tmp_path / "backup.db"
    before, told = while_counting(store, lambda: write_backup(store, backup) and None)
    store.close()
    copy = opens(restored)
    restore_backup(backup, copy)
    kept = assert_explained(copy)
    assert before <= kept <= told


def test_a_migration_while_reports_arrive(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer program adds to the schema; the one that is counting neither fails nor loses."""
    store = open_store(address)
    start(store)
    kind = "sqlite" if address.startswith("sqlite") else "postgres"
    newer = Migration(
        len(migrations(kind)) + 1, "newer", "CREATE INDEX report_by_round ON report (round_key)", ""
    )
    for module in ("sqlite", "postgres"):
        steps = (*migrations(kind), newer)
        monkeypatch.setattr(f"geoveil.store.{module}.migrations", lambda database, s=steps: s)
    _, told = while_counting(store, lambda: open_store(address).close())
    assert assert_explained(store) == told
    store.close()


def test_a_backup_is_one_file_and_never_replaces_another(tmp_path: Path, opens: Opens) -> None:
    store = eventful(opens("sqlite"))
    folder = tmp_path / "backups"
    folder.mkdir()
    write_backup(store, folder / "monday.db")
    assert [path.name for path in folder.iterdir()] == ["monday.db"]
    before = (folder / "monday.db").read_bytes()
    with pytest.raises(InvalidInput, match="must be a new file"):
        write_backup(store, folder / "monday.db")
    assert (folder / "monday.db").read_bytes() == before
    with pytest.raises(InvalidInput, match="folder that exists"):
        write_backup(store, tmp_path / "nowhere" / "monday.db")


def test_restoring_only_reads_the_backup(
    tmp_path: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = tmp_path / "monday.db"
    write_backup(eventful(opens("sqlite")), backup)
    before = backup.read_bytes()
    backup.chmod(0o400)
    restored = opens("memory")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))  # it is not copied first
    restore_backup(backup, restored)
    assert backup.read_bytes() == before
    assert restored.campaigns()


def test_a_copy_that_has_to_be_brought_up_to_date_lies_beside_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, store = tmp_path / "monday.db", tmp_path / "city" / "store.db"
    store.parent.mkdir()
    with closing(SqliteStore(backup, schema=10)) as older:
        older.fill(lambda table: [(b"d" * 32, "laptop", 3)] if table == "token" else [])
    before = backup.read_bytes()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    restore_backup(backup, str(store))
    assert [path.name for path in store.parent.iterdir()] == ["store.db"]
    assert backup.read_bytes() == before
    with closing(open_store(store, create=False)) as restored:
        assert [each.label for each in restored.tokens()] == ["laptop"]


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_file_that_is_no_backup_is_refused(content: bytes, tmp_path: Path, opens: Opens) -> None:
    (tmp_path / "backup.db").write_bytes(content)
    with pytest.raises(InvalidInput):
        restore_backup(tmp_path / "backup.db", opens("memory"))
    with pytest.raises(InvalidInput, match="there is none"):
        restore_backup(tmp_path / "missing.db", opens("memory"))


def test_the_command_line(tmp_path: Path, address: str) -> None:
    store, began_s = eventful(open_store(address)), int(time.time())  # open: a server is running
    backup, other = str(tmp_path / "monday.db"), f"sqlite:///{tmp_path}/restored.db"
    run = CliRunner().invoke
    written = run(program, ["backup", address, backup, "--json"])
    assert written.exit_code == 0, written.stderr
    assert json.loads(written.stdout) == {
        "written": backup,
        "campaigns": 2,
        "rounds": 3,
        "reports": 311,
    }
    again = run(program, ["backup", address, backup])
    assert again.exit_code == 2
    assert "must be a new file" in again.stderr
    restored = run(program, ["backup", "--restore", backup, other])
    assert restored.exit_code == 0, restored.stderr
    assert "311 reports in 2 campaigns, 3 rounds" in restored.stdout
    assert run(program, ["backup", "--restore", backup, other]).exit_code == 2
    copy = open_store(other)
    kept, found = everything(store), everything(copy)
    ((_, _, copied_at_s),) = found.pop("upkeep")
    assert copied_at_s >= began_s
    assert found == {table: rows for table, rows in kept.items() if table != "upkeep"}
    copy.close()
    store.close()


def test_the_command_line_makes_no_store_to_back_up(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    result = CliRunner().invoke(program, ["backup", str(missing), str(tmp_path / "backup.db")])
    assert result.exit_code == 2
    assert "no such file" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"", b"lat,lng\n48.85,2.35\n" * 99])
def test_a_restore_that_cannot_be_leaves_no_store(content: bytes | None, tmp_path: Path) -> None:
    backup, store = tmp_path / "monday.db", tmp_path / "store.db"
    if content is not None:
        backup.write_bytes(content)
    result = CliRunner().invoke(program, ["backup", "--restore", str(backup), str(store)])
    assert result.exit_code == 2
    assert "monday.db" in result.stderr
    assert not store.exists()


def test_a_backup_goes_to_a_disk_whose_files_have_one_name(
    tmp_path: Path, opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")  # as of FAT

    monkeypatch.setattr("os.link", refuse)
    store, backup = eventful(opens("memory")), tmp_path / "stick" / "monday.db"
    backup.parent.mkdir()
    assert write_backup(store, backup).reports == 311
    assert [path.name for path in backup.parent.iterdir()] == ["monday.db"]
    assert restore_backup(backup, opens("memory")).reports == 311
    monkeypatch.setattr(Path, "exists", lambda self: False)  # the name is taken meanwhile
    with pytest.raises(InvalidInput, match="must be a new file"):
        write_backup(store, backup)


def test_what_postgresql_says_of_a_connection_is_told_without_the_password() -> None:
    with pytest.raises(StoreFailed, match="port 1 failed") as found:
        open_store("postgresql://geoveil:a-secret-word@127.0.0.1:1/geoveil")
    assert "a-secret-word" not in str(found.value)


@pytest.mark.parametrize("password", ["first#last", "first?last", "first[last"])
def test_no_part_of_a_password_of_any_characters_is_told(password: str) -> None:
    address = cluster().database().replace("geoveil@", f"geoveil:{password}@")
    with closing(open_store(address)) as store:
        assert store.engine.endswith("/postgres")
        assert "first" not in store.engine
