"""A full disk or a lost database: nothing is acknowledged that is not kept, and it heals by itself."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import psycopg
import pytest

from databases import Cluster
from geoveil.errors import InvalidInput, Unsupported
from geoveil.store import Store, StoreFailed, open_store
from geoveil.store.postgres import Patient
from geoveil.store.sqlite import SqliteStore
from store.devices import Writer, assert_explained, device_id, start, upload
from store.disk import Disk, FailingCall, remains

PATIENCE_S = 300


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("failing")
    yield disk
    disk.unregister()


def acknowledged(writer: Writer, numbers: range) -> set[bytes]:
    """Hand in reports, one a commit or several; the ids of those acknowledged."""
    futures = {device_id(number): writer.hand_in([upload(number)]) for number in numbers}
    return {id for id, future in futures.items() if future.exception(PATIENCE_S) is None}


def limit_pages(store: SqliteStore, pages: int) -> None:
    with store.writing() as run:
        run(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_acknowledges_nothing_and_heals(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    start(store)
    limit_pages(store, 30)
    with Writer(store, most_a_commit=50) as writer:
        told = acknowledged(writer, range(2_000))
        assert 0 < len(told) < 2_000
        with pytest.raises(StoreFailed, match=r"FullError 13\): no room is left") as failed:
            writer.hand_in([upload(number) for number in range(2_000, 6_000)]).result(PATIENCE_S)
        assert upload(2_000).id.hex() not in str(failed.value)
        assert assert_explained(store) == told
        limit_pages(store, 100_000)
        assert acknowledged(writer, range(2_000)) == {device_id(n) for n in range(2_000)}
    assert len(assert_explained(store)) == 2_000
    store.close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_elsewhere_acknowledges_nothing_until_it_is_back(
    replaced: bool, tmp_path: Path
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    start(store)
    store.add([upload(0)])
    moved = store.path.rename(tmp_path / "moved.db")
    if replaced:
        shutil.copyfile(moved, store.path)
    for asked in (lambda: store.add([upload(1)]), store.check, store.campaigns):
        with pytest.raises(StoreFailed, match="must stay where it was opened"):
            asked()
    moved.replace(store.path)
    assert store.add([upload(1)]) == [True]
    store.check()
    assert assert_explained(store) == {device_id(0), device_id(1)}
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four MiB, where this machine lets a test mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_file_system_acknowledges_nothing_and_heals(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((4 << 20) - (300 << 10)))
    store = SqliteStore(small_disk / "store.db")
    start(store)
    with Writer(store, most_a_commit=50) as writer:
        told = acknowledged(writer, range(4_000))
        assert 0 < len(told) < 4_000
        assert assert_explained(store) == told
        ballast.unlink()
        assert acknowledged(writer, range(4_000)) == {device_id(n) for n in range(4_000)}
    assert len(assert_explained(store)) == 4_000
    store.close()


@pytest.mark.parametrize("nth", range(1, 31))
def test_the_nth_call_of_the_disk_failing(nth: int, disk: Disk, tmp_path: Path) -> None:
    fail_once(nth, disk, tmp_path, commits=12)


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(31, 231))
def test_any_call_of_the_disk_failing(nth: int, disk: Disk, tmp_path: Path) -> None:
    fail_once(nth, disk, tmp_path, commits=60)


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoveil.store.sqlite._CHECKPOINT_PAGES", 10)


def fail_once(nth: int, disk: Disk, folder: Path, commits: int) -> None:
    """One call fails during some commits and checkpoints; afterwards the power is cut as well."""
    store = SqliteStore(folder / "store.db", vfs="failing")
    start(store)
    failing = FailingCall(disk, nth)
    told: set[bytes] = set()
    for number in range(commits):
        told |= add_or_fail(store, number)
    assert failing.failed
    assert add_or_fail(store, 99) == {device_id(99)}
    told.add(device_id(99))
    assert told <= assert_explained(store)

    after = folder / "after"
    after.mkdir()
    remains(disk.power_cut(), after, random.Random(nth))
    store.close()
    store = SqliteStore(after / "store.db")
    assert told <= assert_explained(store)
    store.close()


def add_or_fail(store: Store, number: int) -> set[bytes]:
    try:
        store.add([upload(number)])
    except StoreFailed:
        return set()
    return {device_id(number)}


def test_a_lost_postgres_acknowledges_nothing_and_heals(postgres: Cluster) -> None:
    store = open_store(postgres.database())
    start(store)
    with Writer(store) as writer:
        told = acknowledged(writer, range(100))
        assert len(told) == 100
        postgres.stop("immediate")
        try:
            assert acknowledged(writer, range(100, 150)) == set()
            for asked in (store.check, store.campaigns, lambda: store.counts("paris")):
                with pytest.raises(StoreFailed):
                    asked()
        finally:
            postgres.start()
        assert len(acknowledged(writer, range(100, 200))) == 100
        store.check()
    assert len(assert_explained(store)) == 200
    store.close()


def test_postgres_on_a_full_disk_acknowledges_nothing_and_heals(postgres: Cluster) -> None:
    with postgres.on_small_disk(16) as (address, folder):
        store = open_store(address)
        start(store)
        ballast = folder / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):  # until there is no room for a page
                pass
        with Writer(store, most_a_commit=50) as writer:
            told = acknowledged(writer, range(5_000))
            assert len(told) < 5_000
            assert assert_explained(store) == told
            with pytest.raises(StoreFailed) as failed:
                writer.hand_in([upload(number) for number in range(5_000, 9_000)]).result(
                    PATIENCE_S
                )
            assert upload(5_000).id.hex() not in str(failed.value)
            ballast.unlink()
            assert acknowledged(writer, range(5_000)) == {device_id(n) for n in range(5_000)}
        assert len(assert_explained(store)) == 5_000
        store.close()


def test_postgres_stopped_while_reports_arrive(postgres: Cluster) -> None:
    store = open_store(postgres.database())
    start(store)
    with Writer(store, most_a_commit=20) as writer:
        futures = {n: writer.hand_in([upload(n)]) for n in range(2_000)}
        futures[100].result(PATIENCE_S)
        postgres.stop("immediate")
        told = {device_id(n) for n, one in futures.items() if one.exception(PATIENCE_S) is None}
        postgres.start()
    assert told <= assert_explained(store)
    store.close()


def test_a_database_that_is_not_there() -> None:
    with pytest.raises(StoreFailed, match="PostgreSQL failed") as failed:
        open_store("postgresql://secret@/nowhere?host=/no/such/folder")
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_pooler_of_transactions_is_refused(
    behind: int, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own connections in turn, whoever asks: settings and locks would be another's."""
    address = postgres.database()
    with contextlib.ExitStack() as stack:
        opened = [psycopg.connect(address, autocommit=True) for _ in range(behind)]
        pool = itertools.cycle(map(stack.enter_context, opened))
        monkeypatch.setattr(Patient, "execute", lambda self, *given: next(pool).execute(*given))
        with pytest.raises(InvalidInput, match="pool_mode = session"):
            open_store(address)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("default_transaction_read_only%3Don", "cannot execute UPDATE in a read-only transaction"),
        ("role%3Dpg_monitor", "permission denied for table schema_version"),
    ],
)
def test_postgres_that_cannot_be_written_says_why_when_it_is_opened(
    setting: str, why: str, postgres: Cluster
) -> None:
    address = postgres.database()
    open_store(address).close()
    with psycopg.connect(address, autocommit=True) as connection:
        ((schema,),) = connection.execute("SELECT current_schema()")
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO pg_monitor")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO pg_monitor")
    with pytest.raises(StoreFailed, match=why):
        open_store(f"{address}%20-c{setting}")


def test_a_database_that_cannot_hold_every_name_is_refused(postgres: Cluster) -> None:
    address = postgres.database()
    name = f"latin_{address.rpartition('%3D')[2]}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(InvalidInput, match=r"encoding LATIN1\) must be UTF8"):
        open_store(address.replace("/postgres?", f"/{name}?"))


def test_a_store_that_cannot_be_written_says_so_when_it_is_opened(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be a file that can be written"):
        open_store(tmp_path)  # a folder; a disk that is mounted read-only says the same


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute("CREATE TABLE treasure (x)")
    connection.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be read as one" * 50)
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(InvalidInput, match="Geoveil made"):
        open_store(tmp_path / "other.db")
    with pytest.raises(InvalidInput, match="SQLite database"):
        open_store(text)
    assert (tmp_path / "other.db").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "other.db"]


def test_another_program_that_writes_long_stops_nobody_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while a backup is taken, which keeps the log from being copied."""
    monkeypatch.setattr("geoveil.store.sqlite._PATIENCE_MS", 1)
    store, backed_up = (SqliteStore(tmp_path / "store.db") for _ in range(2))
    start(store)
    with contextlib.closing(apsw.Connection(str(store.path))) as other, backed_up.snapshot():
        assert store.add([upload(0)]) == [True]
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match="BusyError"):
            store.add([upload(1)])
        other.execute("ROLLBACK")
        assert store.add([upload(1)]) == [True]
    store.close()
    backed_up.close()


def test_an_old_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(Unsupported, match=r"3\.51\.2.*3\.51\.3"):
        open_store(tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize(
    "address",
    [
        "mysql://x/y",
        "sqlite:store.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "no/such/folder/store.db",
        "postgresql://host/name?nonsense=1",
    ],
)
def test_addresses_that_name_no_store(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match="store"):
        open_store(address)
    assert not list(tmp_path.iterdir())
