"""Connections to PostgreSQL: one that counts, and a few that everything else shares."""

from __future__ import annotations

import re
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from geoveil.errors import InvalidInput
from geoveil.store.contract import StoreFailed
from geoveil.store.layout import Row
from geoveil.store.migration import migrations, missing
from geoveil.store.records import Run

_PATIENCE_S = 5
_SHARED = 4
_WAIT_S = 3
"""For a free connection, or for a lost server to come back, before the store says that it failed."""
_SETTINGS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": _PATIENCE_S,
    "keepalives_idle": _PATIENCE_S,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
_PARAMETER = re.compile(r"(?<!:):(\w+)")
MIGRATING, SHARD = 0x67766C31, 0x67766C32
"""First halves of the advisory locks: one program migrates, one process has a shard."""


def failure(error: psycopg.Error) -> StoreFailed:
    """What to say of an error of PostgreSQL: its code, and none of the values it may name."""
    code = error.sqlstate or type(error).__name__
    return StoreFailed(f"PostgreSQL failed ({code}); nothing was acknowledged, try again later")


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the driver as ours."""
    try:
        yield
    except psycopg.Error as error:
        raise failure(error) from None


@cache
def _dialect(statement: str) -> str:
    """A statement with ``:name`` parameters as psycopg wants them."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def runner(connection: Connection[Row]) -> Run:
    """Statements on a connection."""

    def run(statement: str, **values: object) -> list[Row]:
        cursor = connection.execute(_dialect(statement), values)
        return cursor.fetchall() if cursor.description else []

    return run


def check_address(url: str) -> None:
    """Raise ``InvalidInput`` where PostgreSQL cannot read the address; it may hold a password."""
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise InvalidInput("store must be an address such as postgresql://user@host/name") from None


def connect(url: str) -> Connection[Row]:
    """A connection whose commits are on the disk when they are acknowledged."""
    with translated():
        connection = psycopg.connect(url, **_SETTINGS)
        _configure(connection)
        return connection


def _configure(connection: Connection[Row]) -> None:
    connection.execute("SET synchronous_commit = on")
    connection.execute("SET client_min_messages = warning")


def alive(connection: Connection[Row]) -> bool:
    """Whether an idle connection is still one: a server that went away left its farewell to be read."""
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


class Pool:
    """A few connections shared by all threads; a broken one is replaced when next needed."""

    def __init__(self, url: str) -> None:
        self._pool = ConnectionPool(
            url,
            kwargs=_SETTINGS,
            min_size=1,
            max_size=_SHARED,
            timeout=_WAIT_S,
            reconnect_timeout=1,
            configure=_configure,
            check=ConnectionPool.check_connection,
            open=True,
        )

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Run]:
        """One transaction; a reading one sees one moment."""
        with translated(), self._pool.connection() as connection:
            connection.isolation_level = None if write else IsolationLevel.REPEATABLE_READ
            connection.read_only = not write
            with connection.transaction():
                yield runner(connection)

    def close(self) -> None:
        """Close all, each when what it is doing is done."""
        self._pool.close()


class Counter:
    """The connection that counts, with a shard that no other process uses at the time."""

    SHARDS = 64

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._connection: Connection[Row] | None = None
        self._shard = 0
        self._closed = False

    def run(self, statement: str, values: dict[str, Any]) -> list[Row]:
        """One statement, which is a transaction of its own; ``shard`` is added to its values."""
        with self._lock, translated():
            connection = self._ready()
            try:
                return connection.execute(statement, values | {"shard": self._shard}).fetchall()
            except psycopg.OperationalError:
                self._let_go()
                raise

    def close(self) -> None:
        """Close once the statement under way is done."""
        with self._lock:
            self._closed = True
            self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ready(self) -> Connection[Row]:
        if self._closed:
            raise StoreFailed("the store is closed")
        if self._connection is None or not alive(self._connection):
            self._let_go()
            connection = connect(self._url)
            connection.execute("SET enable_nestloop = off")  # given and new are equally long lists
            self._shard = _free_shard(connection)
            self._connection = connection
        return self._connection


def _free_shard(connection: Connection[Row]) -> int:
    """The first shard nobody holds, held until the connection ends; 0, shared, where all are taken."""
    for shard in range(Counter.SHARDS):
        ((mine,),) = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (SHARD, shard))
        if mine:
            return shard
    return 0


def migrate(connection: Connection[Row], *, create: bool) -> None:
    """Run the missing migrations in one transaction, one program at a time."""
    steps = migrations("postgres")
    with translated(), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
        ((table,),) = connection.execute("SELECT to_regclass('schema_version')")
        version = 0
        if table is not None:
            ((version,),) = connection.execute("SELECT version FROM schema_version")
        todo = missing(steps, version)
        if todo and not create:
            raise InvalidInput(
                f"schema ({version}) must be {steps[-1].number}; start the server once to migrate it"
            )
        for step in todo:
            connection.execute(step.up)
            connection.execute("UPDATE schema_version SET version = %s", (step.number,))
