"""The connection to a SQLite file that writes and checkpoints, and the schema it finds or makes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import apsw

from geoveil.errors import InvalidInput, Unsupported
from geoveil.store.contract import StoreFailed
from geoveil.store.layout import Row
from geoveil.store.migration import Migration, migrations, missing
from geoveil.store.records import Run

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
