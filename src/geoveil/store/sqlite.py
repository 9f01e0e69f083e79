"""A store in one SQLite file: one writing connection that also checkpoints, readers that only read."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import apsw

from geoveil.errors import InvalidInput, Unsupported
from geoveil.store import records
from geoveil.store.contract import Store
from geoveil.store.records import migrations
from geoveil.store.statements import Pending, Run, pending_of

OLDEST = (3, 51, 3)
"""Older libraries can corrupt a file in WAL mode when two connections write (the WAL-reset bug)."""

APPLICATION_ID = 0x67_76_6C_31
"""In the header of the file, so that other programs' databases are left alone ("gvl1")."""

_PATIENCE_MS = 10_000
_SETTLE_MS = 100
_CHECKPOINT_PAGES = 4_000  # 16 MiB of log: a page written often is copied once
_CACHE_KIB = 32_768
_ROOM_BYTES = 1 << 20  # what a commit of some thousand reports adds to the log

_COLUMNS = "SELECT s.name, c.name FROM sqlite_schema s, pragma_table_info(s.name) c"

Synchronous = Literal["FULL", "NORMAL"]


class _Reader:
    """A read-only connection: of one thread, closed by another."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()


class SqliteStore(Store):
    """Campaigns, rounds and counts in a SQLite file (WAL, full sync, one writing connection).

    A commit is on the disk when it is acknowledged. ``synchronous="NORMAL"`` exists for the test that
    shows what it loses. Where not ``create``, the file must exist with the schema of this program; or, for
    copies only, with that of an older one, by its number. A file that is made is its owner's only: it holds
    the counts of small rounds, which nobody is told. One that is ``only_read`` is left as it is.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        synchronous: Synchronous = "FULL",
        vfs: str | None = None,
        schema: int | None = None,
        only_read: bool = False,
    ) -> None:
        version = apsw.sqlite_lib_version()
        if tuple(int(part) for part in version.split(".")[:3]) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise Unsupported(f"SQLite ({version}) must be at least {oldest}; install a newer apsw")
        self.path = Path(path)
        self.engine = f"SQLite {version} at {self.path}"
        self._synchronous = synchronous
        self._vfs = vfs
        self.schema = schema
        self._steps = migrations("sqlite")[:schema]
        self._only_read = only_read
        self._closed = False
        self._write_lock = threading.Lock()
        self._mine = threading.local()
        self._readers: WeakSet[_Reader] = WeakSet()
        self._readers_lock = threading.Lock()
        self._writer: apsw.Connection | None
        if create and vfs is None:
            with suppress(OSError):  # it is there, or cannot be: SQLite says so
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with _translated():
            try:
                self._writer = None if only_read else self._connect_writer(create=create)
                self._opened = self._place()
                with closing(self._connect_reader()) as reader:
                    self._missing_steps(reader, create=False)
                    if schema is not None:
                        self.tables = records.tables_among(reader.execute(_COLUMNS))
            except apsw.NotADBError:
                raise InvalidInput(f"{self.path.name} must be a SQLite database") from None
            except (apsw.CantOpenError, apsw.ReadOnlyError):
                raise InvalidInput(
                    f"store ({self.path.name}) must be a file that can be written, in a folder that can"
                ) from None

    # -- counting --------------------------------------------------------------------------------

    def add(self, uploads: Sequence[records.Upload]) -> list[bool]:
        """Count reports in one transaction; ``True`` where the id was new in its campaign.

        A handful of statements, whatever the number of reports: each statement lets go of the
        interpreter and has to win it back from the busy thread of the server.
        """
        counted = [False] * len(uploads)
        if uploads:
            with self.writing() as run:  # keys are looked up here, where no campaign can be deleted
                pending, _ = pending_of(uploads, partial(_named, run))
                for position in _count(run, pending):
                    counted[position] = True
        return counted

    # -- transactions ----------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[Run]:
        """A transaction of the one writing connection; opened again when it is beyond repair."""
        with self._write_lock, _translated():
            if self._closed or self._only_read:
                raise records.StoreFailed("the store is closed, or only read")
            self._check_place()
            if self._writer is None:
                self._writer = self._recovered_writer()
            connection, began = self._writer, False
            try:
                connection.execute("BEGIN IMMEDIATE")
                began = True
                yield partial(_run, connection)
                connection.execute("COMMIT")
            except BaseException as error:
                if began or not isinstance(
                    error, apsw.BusyError
                ):  # that another writes is no failure
                    self._undo(connection, began)
                raise

    @contextmanager
    def reading(self) -> Iterator[Run]:
        """A transaction that only reads, on this thread's own connection."""
        if self._closed:
            raise records.StoreFailed("the store is closed")
        self._check_place()
        reader: _Reader | None = getattr(self._mine, "reader", None)
        if reader is None:
            reader = self._mine.reader = _Reader(self._connect_reader())
            with self._readers_lock:
                self._readers.add(reader)
        with reader.lock, _translated():
            try:
                reader.connection.execute("BEGIN")
                yield partial(_run, reader.connection)
                reader.connection.execute("COMMIT")
            except BaseException:
                reader.connection.close(force=True)
                del self._mine.reader
                raise

    def check(self) -> None:
        """Raise ``StoreFailed`` unless the store can read and write now: rewrites the file's header.

        The log may have room for that in a file that is already there, and none for reports; so room is
        asked for as well.
        """
        try:
            with tempfile.TemporaryFile(dir=self.path.parent, buffering=0) as room:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(room.fileno(), 0, _ROOM_BYTES)
                elif room.write(bytes(_ROOM_BYTES)) < _ROOM_BYTES:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise records.StoreFailed(
                f"the disk must have room for a commit ({error.strerror}); make some"
            ) from None
        with self.writing() as run:
            ((version,),) = run("PRAGMA user_version")
            run(f"PRAGMA user_version = {int(version)}")

    def settle(self) -> None:
        """Copy the log into the file and empty it; nobody waits long for whoever reads meanwhile."""
        with self._write_lock:
            connection = self._writer
            if connection is None or self._closed:
                return
            try:
                connection.set_busy_timeout(_SETTLE_MS)
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except apsw.BusyError:
                pass
            except apsw.Error:
                self._undo(connection, False)  # opened anew by whoever writes next
                return
            connection.set_busy_timeout(_PATIENCE_MS)

    @contextmanager
    def snapshot(self) -> Iterator[records.Snapshot]:
        connection = self._connect_reader()

        def rows(table: str) -> Iterator[records.Row]:
            columns = ", ".join(self.tables[table])
            return iter(connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2"))

        try:
            with _translated():
                connection.execute("BEGIN")
                connection.execute("SELECT 1 FROM campaign LIMIT 1").fetchall()  # the moment
                yield rows
        finally:
            connection.close(force=True)

    def fill(self, snapshot: records.Snapshot) -> None:
        with self.writing() as run:
            if any(
                run(f"SELECT 1 FROM {table} LIMIT 1")
                for table in self.tables.keys() & {"campaign", "token"}
            ):
                raise InvalidInput("the store must be empty to take over another one")
            assert self._writer is not None
            for table, columns in self.tables.items():
                marks = ", ".join("?" * len(columns))
                insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
                self._writer.executemany(insert, iter(snapshot(table)))

    def close(self, *, whole: bool = False) -> None:
        """Finish what is under way and close the file; where ``whole``, leave no log beside it."""
        with self._readers_lock:
            self._closed = True
            readers = list(self._readers)
        for reader in readers:
            with reader.lock:
                reader.connection.close(force=True)
        with self._write_lock, _translated():
            connection, self._writer = self._writer, None
            if connection and whole:
                connection.execute("PRAGMA journal_mode = DELETE")
            if connection:
                connection.close()

    # -- connections -----------------------------------------------------------------------------

    def _place(self) -> tuple[int, int] | None:
        """Which file bears the name of the store; ``None`` where none does."""
        with suppress(OSError):
            found = self.path.stat()
            return found.st_dev, found.st_ino
        return None

    def _check_place(self) -> None:
        """What is written into a file that was moved or deleted is lost: nobody would find it there."""
        if self._place() != self._opened:
            raise records.StoreFailed(
                "SQLite's file must stay where it was opened; put it back, or start again"
            )

    def _connect_reader(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY
        with _translated():
            connection = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
            connection.set_busy_timeout(_PATIENCE_MS)
        return connection

    def _recovered_writer(self) -> apsw.Connection:
        """A new connection after a failure, with all of the log copied into the file.

        The log may hold what a failed sync never brought to the disk and the system now takes for
        clean; nothing may be appended to it before it was written elsewhere.
        """
        connection = self._connect_writer(create=False)
        in_log, copied = connection.wal_checkpoint()
        if in_log != copied:
            connection.close()
            raise records.StoreFailed(
                "the log is still being read after a failure; try again later"
            )
        return connection

    def _connect_writer(self, *, create: bool) -> apsw.Connection:
        """Open the file and bring its schema up to date; where not ``create``, both must be so already."""
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(str(self.path), flags=flags, vfs=self._vfs)
        try:
            connection.set_busy_timeout(_PATIENCE_MS)
            self._missing_steps(connection, create=create)  # before anything is written
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.wal_autocheckpoint(_CHECKPOINT_PAGES)
            if create:
                self._migrate(connection)
        except BaseException:
            connection.close(force=True)
            raise
        return connection

    def _missing_steps(
        self, connection: apsw.Connection, *, create: bool
    ) -> tuple[records.Migration, ...]:
        """What the file lacks; raises where it is not ours, too new, or lacks some without ``create``."""
        ours = connection.pragma("application_id") == APPLICATION_ID
        empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        if not ours and not (create and empty):
            raise InvalidInput("the SQLite file must be one that Geoveil made; choose another name")
        version = int(connection.pragma("user_version"))
        return records.missing(self._steps, version, create=create)

    def _migrate(self, connection: apsw.Connection) -> None:
        """Run the missing migrations in one transaction, which closing the connection undoes."""
        connection.execute("BEGIN IMMEDIATE")
        for step in self._missing_steps(connection, create=True):
            connection.execute(step.up)
            connection.execute(f"PRAGMA user_version = {step.number}")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")

    def _undo(self, connection: apsw.Connection, began: bool) -> None:
        """Roll back; a connection that can neither begin nor do that is given up."""
        with suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if began:
                return
        self._writer = None
        with suppress(apsw.Error):
            connection.close(force=True)


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of SQLite as ours: their kind, and none of the values they may name."""
    try:
        yield
    except apsw.Error as error:
        kind = f"{type(error).__name__} {getattr(error, 'extendedresult', 0)}"
        full = ": no room is left on the disk" if isinstance(error, apsw.FullError) else ""
        raise records.StoreFailed(
            f"SQLite failed ({kind}){full}; nothing was acknowledged, try again later"
        ) from None


def _run(connection: apsw.Connection, statement: str, **values: Any) -> list[records.Row]:
    return list(connection.execute(statement, values))


def _named(run: Run, *names: list[Any]) -> list[records.Row]:
    """The rounds that uploads name."""
    return run(
        "SELECT j.key, c.key, r.key, r.cells, r.ids_dropped FROM json_each(:named) j"
        " CROSS JOIN campaign c ON c.id = j.value ->> 0"
        " CROSS JOIN round r ON r.campaign_key = c.key AND r.number = j.value ->> 1"
        " AND j.value ->> 2 IN ('', r.mechanism)",
        named=json.dumps(list(zip(*names, strict=True))),
    )


def _count(run: Run, pending: Pending) -> Iterator[int]:
    """Keep new ids and add up their cells; the position of each that was new."""
    for campaign_key, ids in pending.items():
        rows = run(
            "SELECT r.id FROM json_each(:ids) j CROSS JOIN report r"
            " ON r.campaign_key = :campaign_key AND r.id = unhex(j.value)",
            campaign_key=campaign_key,
            ids=json.dumps([id.hex() for id in ids]),
        )
        repeats = {id for (id,) in rows}
        new: dict[int, list[str]] = {}
        cells: dict[int, Counter[int]] = {}
        for id, (round_key, cell, position) in ids.items():
            if id in repeats:
                continue
            if round_key not in new:
                new[round_key], cells[round_key] = [], Counter()
            new[round_key].append(id.hex())
            cells[round_key][cell] += 1
            yield position
        for round_key, fresh in new.items():
            _keep(run, campaign_key, round_key, fresh, cells[round_key])


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
