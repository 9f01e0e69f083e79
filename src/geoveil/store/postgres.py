"""A store in PostgreSQL: for several server processes that count at the same time."""

from __future__ import annotations

import re
import select
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from geoveil.errors import InvalidInput
from geoveil.store.contract import (
    TABLES,
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


# --- A store in PostgreSQL: for several server processes that count at the same time


# Ids go in in order, so that two processes with the same ids wait for each other instead of in a circle.
# What comes back is the exception: ids that were known, and nothing but nulls where a round is over.
_ADD = """
    WITH over AS (
        SELECT FROM round WHERE key = ANY(%(named)b::bigint[]) AND ids_dropped > 0
    ), given AS (
        SELECT * FROM unnest(
            %(campaign_keys)b::bigint[], %(ids)b::bytea[], %(round_keys)b::bigint[], %(cells)b::bigint[]
        ) AS upload (campaign_key, id, round_key, cell)
        WHERE NOT EXISTS (SELECT FROM over)
    ), new AS (
        INSERT INTO report (campaign_key, id, round_key)
        SELECT campaign_key, id, round_key FROM given ORDER BY campaign_key, id
        ON CONFLICT DO NOTHING RETURNING campaign_key, id
    ), counted AS (
        INSERT INTO tally (round_key, cell, shard, count)
        SELECT round_key, cell, %(shard)s, count(*) FROM given JOIN new USING (campaign_key, id)
        GROUP BY round_key, cell ORDER BY round_key, cell
        ON CONFLICT (round_key, cell, shard) DO UPDATE SET count = tally.count + excluded.count
    ), totalled AS (
        INSERT INTO round_total (round_key, shard, count)
        SELECT round_key, %(shard)s, count(*) FROM given JOIN new USING (campaign_key, id)
        GROUP BY round_key ORDER BY round_key
        ON CONFLICT (round_key, shard) DO UPDATE SET count = round_total.count + excluded.count
    )
    (SELECT campaign_key, id FROM given EXCEPT SELECT campaign_key, id FROM new)
    UNION ALL SELECT NULL, NULL FROM over
"""
_SUMMED = {
    "tally": "SELECT round_key, cell, CAST(sum(count) AS bigint) FROM tally GROUP BY 1, 2 ORDER BY 1, 2",
    "round_total": "SELECT round_key, CAST(sum(count) AS bigint) FROM round_total GROUP BY 1 ORDER BY 1",
}


class PostgresStore(Forgetting):
    """Campaigns, rounds and counts in a PostgreSQL database.

    ``url`` is what PostgreSQL's own programs take: ``postgresql://user@host/database``. Where not
    ``create``, the database must have the schema of this program.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        super().__init__()
        self._url = url
        check_address(url)
        with connect(url) as connection:
            migrate(connection, create=create)
            version = connection.info.parameter_status("server_version") or ""
        self._engine = f"PostgreSQL {version}"
        self._counter = Counter(url)
        self._pool = Pool(url)

    @property
    def engine(self) -> str:
        """The PostgreSQL server and its version when the store was opened."""
        return self._engine

    def reading(self) -> AbstractContextManager[Run]:
        """A transaction that only reads, all of it from one moment."""
        return self._pool.transaction(write=False)

    def writing(self) -> AbstractContextManager[Run]:
        """A transaction that changes something other than counts."""
        return self._pool.transaction(write=True)

    def lock(self, run: Run, campaign: str) -> int | None:
        """The key of a campaign whose rounds nobody else changes until the transaction ends."""
        rows = run("SELECT key FROM campaign WHERE id = :campaign FOR UPDATE", campaign=campaign)
        return int(rows[0][0]) if rows else None

    def add(self, uploads: Sequence[Upload]) -> list[bool]:
        """Count reports in one statement; ``True`` where the id was new in its campaign."""
        pending, named = sort_out(uploads, self.keys)
        counted = [False] * len(uploads)
        given = [(key, id, *what) for key, ids in pending.items() for id, what in ids.items()]
        if given:
            campaign_keys, ids, round_keys, cells, positions = map(list, zip(*given, strict=True))
            values = {
                "campaign_keys": campaign_keys,
                "ids": ids,
                "round_keys": round_keys,
                "cells": cells,
                "named": named,
            }
            known = set(self._counter.run(_ADD, values))
            if (None, None) in known:
                raise over()
            for key, id, position in zip(campaign_keys, ids, positions, strict=True):
                counted[position] = (key, id) not in known
        return counted

    def check(self) -> None:
        """Raise ``StoreFailed`` unless the store can read and write now: rewrites its version."""
        with self.writing() as run:
            run("UPDATE schema_version SET version = version")

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Everything as of one moment; counting goes on meanwhile."""
        with translated(), connect(self._url) as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                connection.execute("SELECT 1")  # the moment
                yield PostgresSnapshot(connection)

    def fill(self, snapshot: Snapshot) -> None:
        """Take over everything of another store, in one transaction."""
        with translated(), connect(self._url) as connection, connection.transaction():
            connection.execute("LOCK TABLE campaign, token IN EXCLUSIVE MODE")
            kept = connection.execute("SELECT FROM campaign UNION ALL SELECT FROM token LIMIT 1")
            if kept.fetchall():
                raise InvalidInput("the store must be empty to take over another one")
            for table in snapshot.tables():
                _copy_in(connection, table, snapshot)
            for table in ("campaign", "round"):
                connection.execute(
                    sql.SQL(
                        "SELECT setval(pg_get_serial_sequence({}, 'key'), max(key)) FROM {}"
                    ).format(sql.Literal(table), sql.Identifier(table))
                )

    def close(self) -> None:
        """Finish what is under way and close all connections."""
        self._counter.close()
        self._pool.close()


class PostgresSnapshot:
    """A view of all tables through one transaction."""

    def __init__(self, connection: Connection[Row]) -> None:
        self._connection = connection

    def tables(self) -> Sequence[str]:
        """Names of the tables, parents before children."""
        return tuple(TABLES)

    def rows(self, table: str) -> Iterator[Row]:
        """All rows of a table, in the order of its key; fetched as they are read."""
        plain = f"SELECT {', '.join(TABLES[table])} FROM {table} ORDER BY 1, 2"
        with translated(), self._connection.cursor(name=table) as cursor:
            cursor.itersize = 10_000
            cursor.execute(_SUMMED.get(table, plain))
            yield from cursor


def _copy_in(connection: Connection[Row], table: str, snapshot: Snapshot) -> None:
    """All rows of a table; those of sharded ones go to shard 0."""
    sharded = table in _SUMMED
    columns = (*TABLES[table], "shard") if sharded else TABLES[table]
    shard = (0,) if sharded else ()
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in snapshot.rows(table):
            copy.write_row((*row, *shard))
