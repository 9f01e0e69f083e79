"""A store in SQLite: one writer that also checkpoints, readers that only read."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Literal
from weakref import WeakSet

import apsw

from geoveil.errors import InvalidInput, Unsupported
from geoveil.store.contract import (
    TABLES,
    Migration,
    Pending,
    Row,
    Snapshot,
    StoreFailed,
    Upload,
    migrations,
    missing,
    over,
    sort_out,
)
from geoveil.store.records import Forgetting, Run

OLDEST = (3, 51, 3)
"""Older libraries can corrupt a file in WAL mode when two connections write (the WAL-reset bug)."""

APPLICATION_ID = 0x67_76_6C_31
"""In the header of the file, so that other programs' databases are left alone ("gvl1")."""

PATIENCE_MS = 10_000
_CHECKPOINT_PAGES = 4_000  # 16 MiB of log: a page written often is copied once
_CACHE_KIB = 32_768

Synchronous = Literal["FULL", "NORMAL"]


def library_version() -> str:
    """The version of SQLite in use; raises ``Unsupported`` where it is too old to be trusted."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise Unsupported(f"SQLite ({version}) must be at least {oldest}; install a newer apsw")
    return version


def failure(error: apsw.Error) -> StoreFailed:
    """What to say of an error of SQLite: its kind, and none of the values it may name."""
    code = getattr(error, "extendedresult", 0)
    return StoreFailed(
        f"SQLite failed ({type(error).__name__} {code}); nothing was acknowledged, try again later"
    )


def runner(connection: apsw.Connection) -> Run:
    """Statements on a connection."""

    def run(statement: str, **values: object) -> list[Row]:
        return list(connection.execute(statement, values))

    return run


class SqliteWriter:
    """The connection that writes: used by one thread at a time, opened again when it is beyond repair."""

    def __init__(
        self, path: Path, *, synchronous: Synchronous = "FULL", vfs: str | None = None
    ) -> None:
        self._path = path
        self._synchronous = synchronous
        self._vfs = vfs
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[Run]:
        """One transaction; committed, or undone where anything was raised."""
        with self._lock:
            connection = self._ready()
            began = False
            try:
                connection.execute("BEGIN IMMEDIATE")
                began = True
                yield runner(connection)
                connection.execute("COMMIT")
            except BaseException as error:
                self._undo(connection, began)
                if isinstance(error, apsw.Error):
                    raise failure(error) from None
                raise

    def executemany(self, statement: str, rows: Iterator[Row]) -> None:
        """Many rows inside the transaction that the caller began."""
        assert self._connection is not None
        self._connection.executemany(statement, rows)

    def open(self, *, create: bool) -> None:
        """Open the file and bring its schema up to date; where not ``create``, both must be so already."""
        with self._lock:
            try:
                self._connection = self._connect(create=create)
            except apsw.NotADBError:
                raise InvalidInput(f"{self._path.name} must be a SQLite database") from None
            except apsw.Error as error:
                raise failure(error) from None

    def close(self, *, whole: bool = False) -> None:
        """Close; where ``whole``, with everything in the one file and no log beside it."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
            try:
                if connection and whole:
                    connection.execute("PRAGMA journal_mode = DELETE")
                if connection:
                    connection.close()
            except apsw.Error as error:
                raise failure(error) from None

    def _ready(self) -> apsw.Connection:
        if self._closed:
            raise StoreFailed("the store is closed")
        if self._connection is None:
            try:
                self._connection = self._recovered()
            except apsw.Error as error:
                raise failure(error) from None
        return self._connection

    def _recovered(self) -> apsw.Connection:
        """A new connection after a failure, with all of the log copied into the file.

        The log may hold what a failed sync never brought to the disk and the system now takes for
        clean; nothing may be appended to it before it was written elsewhere.
        """
        connection = self._connect(create=False)
        in_log, copied = connection.wal_checkpoint()
        if in_log != copied:
            connection.close()
            raise StoreFailed("the log is still being read after a failure; try again later")
        return connection

    def _connect(self, *, create: bool) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(str(self._path), flags=flags, vfs=self._vfs)
        try:
            connection.set_busy_timeout(PATIENCE_MS)
            _missing_steps(connection, create=create)  # before anything is written
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.wal_autocheckpoint(_CHECKPOINT_PAGES)
            if create:
                _migrate(connection)
        except BaseException:
            connection.close(force=True)
            raise
        return connection

    def _undo(self, connection: apsw.Connection, began: bool) -> None:
        """Roll back; a connection that can neither begin nor do that is given up."""
        with suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if began:
                return
        self._connection = None
        with suppress(apsw.Error):
            connection.close(force=True)


def _missing_steps(connection: apsw.Connection, *, create: bool) -> tuple[Migration, ...]:
    """What the file lacks; raises where it is not ours, too new, or lacks something without ``create``."""
    steps = migrations("sqlite")
    version = int(connection.pragma("user_version"))
    ours = connection.pragma("application_id") == APPLICATION_ID
    empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    if not ours and not (create and empty):
        raise InvalidInput("the SQLite file must be one that Geoveil made; choose another name")
    todo = missing(steps, version)
    if todo and not create:
        raise InvalidInput(
            f"schema ({version}) must be {steps[-1].number}; start the server once to migrate it"
        )
    return todo


def _migrate(connection: apsw.Connection) -> None:
    """Run the missing migrations in one transaction, which closing the connection undoes."""
    connection.execute("BEGIN IMMEDIATE")
    for step in _missing_steps(connection, create=True):
        connection.execute(step.up)
        connection.execute(f"PRAGMA user_version = {step.number}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")


# --- Read-only connections to a SQLite file: they wait for nobody, and nobody for them


class SqliteReaders:
    """Read-only connections, one for each thread that reads."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._mine = threading.local()
        self._all: WeakSet[_Reader] = WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[Run]:
        """Statements that all see one moment."""
        reader = self._reader()
        with reader.lock:
            try:
                reader.connection.execute("BEGIN")
                yield runner(reader.connection)
                reader.connection.execute("COMMIT")
            except BaseException as error:
                reader.connection.close(force=True)
                del self._mine.reader
                if isinstance(error, apsw.Error):
                    raise failure(error) from None
                raise

    def connect(self) -> apsw.Connection:
        """A read-only connection of the caller's own."""
        try:
            connection = apsw.Connection(
                str(self._path), flags=apsw.SQLITE_OPEN_READONLY, vfs=self._vfs
            )
            connection.set_busy_timeout(PATIENCE_MS)
        except apsw.Error as error:
            raise failure(error) from None
        return connection

    def close(self) -> None:
        """Close all, each when what it is doing is done."""
        with self._lock:
            self._closed = True
            readers = list(self._all)
        for reader in readers:
            with reader.lock:
                reader.connection.close(force=True)

    def _reader(self) -> _Reader:
        if self._closed:
            raise StoreFailed("the store is closed")
        reader: _Reader | None = getattr(self._mine, "reader", None)
        if reader is None:
            reader = self._mine.reader = _Reader(self.connect())
            with self._lock:
                self._all.add(reader)
        return reader


class _Reader:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()


# --- A store in one SQLite file: the default, for one server process


class SqliteStore(Forgetting):
    """Campaigns, rounds and counts in a SQLite file (WAL, full sync, one writing connection).

    A commit is on the disk when it is acknowledged. ``synchronous="NORMAL"`` exists for the test that
    shows what it loses. Where not ``create``, the file must exist with the schema of this program.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        synchronous: Synchronous = "FULL",
        vfs: str | None = None,
    ) -> None:
        super().__init__()
        self._engine = f"SQLite {library_version()}"
        self.path = Path(path)
        self._writer = SqliteWriter(self.path, synchronous=synchronous, vfs=vfs)
        self._readers = SqliteReaders(self.path, vfs=vfs)
        self._writer.open(create=create)

    @property
    def engine(self) -> str:
        """The SQLite library and its version."""
        return self._engine

    def reading(self) -> AbstractContextManager[Run]:
        """A transaction that only reads, on this thread's own connection."""
        return self._readers.transaction()

    def writing(self) -> AbstractContextManager[Run]:
        """A transaction of the one writing connection."""
        return self._writer.transaction()

    def lock(self, run: Run, campaign: str) -> int | None:
        """The key of a campaign: a transaction that writes is the only one."""
        rows = run("SELECT key FROM campaign WHERE id = :campaign", campaign=campaign)
        return int(rows[0][0]) if rows else None

    def add(self, uploads: Sequence[Upload]) -> list[bool]:
        """Count reports in one transaction; ``True`` where the id was new in its campaign.

        A handful of statements, whatever the number of reports: each statement lets go of the
        interpreter and has to win it back from the busy thread of the server.
        """
        pending, round_keys = sort_out(uploads, self.keys)
        counted = [False] * len(uploads)
        if pending:
            with self.writing() as run:
                _check_open(run, round_keys)
                for position in _count(run, pending):
                    counted[position] = True
        return counted

    def check(self) -> None:
        """Raise ``StoreFailed`` unless the store can read and write now: rewrites the file's header."""
        with self.writing() as run:
            ((version,),) = run("PRAGMA user_version")
            run(f"PRAGMA user_version = {int(version)}")

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Everything as of one moment; counting goes on meanwhile."""
        connection = self._readers.connect()
        try:
            connection.execute("BEGIN")
            connection.execute("SELECT 1 FROM campaign LIMIT 1").fetchall()  # the moment
            yield SqliteSnapshot(connection)
        except apsw.Error as error:
            raise failure(error) from None
        finally:
            connection.close(force=True)

    def fill(self, snapshot: Snapshot) -> None:
        """Take over everything of another store, in one transaction."""
        with self.writing() as run:
            if run("SELECT 1 FROM campaign UNION ALL SELECT 1 FROM token LIMIT 1"):
                raise InvalidInput("the store must be empty to take over another one")
            for table in snapshot.tables():
                columns = TABLES[table]
                marks = ", ".join("?" * len(columns))
                self._writer.executemany(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",
                    iter(snapshot.rows(table)),
                )

    def close(self, *, whole: bool = False) -> None:
        """Finish what is under way and close the file; where ``whole``, leave no log beside it."""
        self._readers.close()
        self._writer.close(whole=whole)


class SqliteSnapshot:
    """A view of all tables through one read transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def tables(self) -> Sequence[str]:
        """Names of the tables, parents before children."""
        return tuple(TABLES)

    def rows(self, table: str) -> Iterator[Row]:
        """All rows of a table, in the order of its key."""
        columns = ", ".join(TABLES[table])
        return iter(self._connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2"))


def _check_open(run: Run, round_keys: list[int]) -> None:
    """A round whose ids are gone cannot tell a repeated report from a new one."""
    if run(
        "SELECT 1 FROM json_each(:keys) j CROSS JOIN round r ON r.key = j.value"
        " WHERE r.ids_dropped > 0 LIMIT 1",
        keys=json.dumps(round_keys),
    ):
        raise over()


def _count(run: Run, pending: Pending) -> Iterator[int]:
    """Keep new ids and add up their cells; the position of each that was new."""
    for campaign_key, ids in pending.items():
        known = _known(run, campaign_key, ids)
        new: dict[int, list[str]] = {}
        cells: dict[int, Counter[int]] = {}
        for id, (round_key, cell, position) in ids.items():
            if id in known:
                continue
            if round_key not in new:
                new[round_key], cells[round_key] = [], Counter()
            new[round_key].append(id.hex())
            cells[round_key][cell] += 1
            yield position
        for round_key, fresh in new.items():
            _keep(run, campaign_key, round_key, fresh, cells[round_key])


def _known(run: Run, campaign_key: int, ids: dict[bytes, tuple[int, int, int]]) -> set[bytes]:
    rows = run(
        "SELECT r.id FROM json_each(:ids) j CROSS JOIN report r"
        " ON r.campaign_key = :campaign_key AND r.id = unhex(j.value)",
        campaign_key=campaign_key,
        ids=json.dumps([id.hex() for id in ids]),
    )
    return {id for (id,) in rows}


def _keep(run: Run, campaign_key: int, round_key: int, ids: list[str], cells: Counter[int]) -> None:
    run(
        "INSERT INTO report (campaign_key, id, round_key)"
        " SELECT :campaign_key, unhex(value), :round_key FROM json_each(:ids)",
        campaign_key=campaign_key,
        round_key=round_key,
        ids=json.dumps(ids),
    )
    run(
        "INSERT INTO tally (round_key, cell, count)"
        " SELECT :round_key, CAST(key AS INTEGER), value FROM json_each(:cells) WHERE true"
        " ON CONFLICT (round_key, cell) DO UPDATE SET count = count + excluded.count",
        round_key=round_key,
        cells=json.dumps(cells),
    )
    run(
        "INSERT INTO round_total (round_key, count) VALUES (:round_key, :count)"
        " ON CONFLICT (round_key) DO UPDATE SET count = count + excluded.count",
        round_key=round_key,
        count=len(ids),
    )
