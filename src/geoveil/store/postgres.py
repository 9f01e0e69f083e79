"""A store in PostgreSQL: for several server processes that count at the same time."""

from __future__ import annotations

import re
import select
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any, TypeVar

import psycopg
from psycopg import Connection, IsolationLevel, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from geoveil.errors import InvalidInput
from geoveil.store import records
from geoveil.store.contract import Store
from geoveil.store.records import Row, StoreFailed, migrations
from geoveil.store.statements import Run, over, pending_of

V = TypeVar("V")

_SHARED = 4
_WAIT_S = 3
"""For a free connection, or for a lost server to come back, before the store says that it failed."""
_COUNTING_S, _STATEMENT_S, _ALIVE_S, _LONG_S = 2.0, 10.0, 1.0, 3600.0
"""How long a statement may take that counts, any other, a sign of life, and a migration or a copy."""
_SETTINGS: dict[str, Any] = {
    "autocommit": True,
    "client_encoding": "UTF8",
    "connect_timeout": _WAIT_S,
    "keepalives_idle": _WAIT_S,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}
_PARAMETER = re.compile(r"(?<!:):(\w+)")
_MIGRATING, _SHARD = 0x67766C31, 0x67766C32
"""First halves of the advisory locks: one program migrates, one process has a shard."""
_SHARDS = 64

# No join, so that each is found by index, whatever the connection that counts thinks of nested loops.
_NAMED = """
    SELECT n.position - 1, (
        SELECT ARRAY[r.campaign_key, r.key, r.cells, r.ids_dropped] FROM round r
        WHERE r.number = n.number AND r.campaign_key = (SELECT key FROM campaign WHERE id = n.id)
        AND n.mechanism IN ('', r.mechanism)
    ) FROM unnest(%s::text[], %s::bigint[], %s::text[])
    WITH ORDINALITY AS n (id, number, mechanism, position)
"""

# Ids go in in order, so that two processes with the same ids wait for each other instead of in a circle.
# What comes back is the exception: ids that were known, and nothing but nulls where a round is over.
_ADD = """
    WITH over AS (
        SELECT FROM unnest(%(named)b::bigint[]) AS n (key)
        WHERE NOT EXISTS (SELECT FROM round r WHERE r.key = n.key AND r.ids_dropped = 0)
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
_COLUMNS = """
    SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()
"""
_REWRITE = "UPDATE schema_version SET version = version"
_AT_ONCE = dict.fromkeys(("report", "tally", "round_total"), 10_000)
_AT_ONCE_WIDE = 20
"""Rows that a copy has in memory: of other tables one may have megabytes."""
_SUMMED = {
    "tally": "SELECT round_key, cell, CAST(sum(count) AS bigint) FROM tally GROUP BY 1, 2 ORDER BY 1, 2",
    "round_total": "SELECT round_key, CAST(sum(count) AS bigint) FROM round_total GROUP BY 1 ORDER BY 1",
}


class TookTooLong(psycopg.OperationalError):
    """The server did not answer in time."""


class Patient(Connection[Row]):
    """A connection on which nobody waits for ever.

    The server ends statements that take too long. Where it does not even do that (it was stopped, the
    network swallows everything), the connection is given up here, a second later.
    """

    patience_s = _STATEMENT_S

    def wait(self, gen: Generator[Any, Any, V], *arguments: Any, **keywords: Any) -> V:
        """Run what the driver does on the connection, up to the limit."""
        limited = _limited(gen, time.monotonic() + self.patience_s)
        try:
            return super().wait(limited, *arguments, **keywords)
        except TookTooLong:
            self.close()
            raise

    def limit(self, statement_s: float) -> None:
        """No statement from here on takes longer."""
        self.patience_s = statement_s + 1.0
        self.execute(f"SET statement_timeout = {int(1000 * statement_s)}")


def _limited(gen: Generator[Any, Any, V], until_s: float) -> Generator[Any, Any, V]:
    """The same steps, and an end where nothing has come for too long."""
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() >= until_s:
                raise TookTooLong("the server must answer in time")
            state = gen.send(ready)
    except StopIteration as end:
        result: V = end.value
        return result


class PostgresStore(Store):
    """Campaigns, rounds and counts in a PostgreSQL database.

    ``url`` is what PostgreSQL's own programs take: ``postgresql://user@host/database``. Where not
    ``create``, the database must have the schema of this program; or, for copies only, that of an older one,
    by its number. One connection counts, with a shard
    of the counts that no other process uses at the time; a few more are shared by all threads.
    """

    LOCKED = f"{Store.LOCKED} FOR UPDATE"
    ALONE = "LOCK TABLE tally IN SHARE ROW EXCLUSIVE MODE"

    def __init__(self, url: str, *, create: bool = True, schema: int | None = None) -> None:
        try:
            conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # says nothing of the address: it may hold a password
            raise InvalidInput(
                "store must be an address such as postgresql://user@host/name"
            ) from None
        self._url = url
        self.schema = schema
        with _connected(url, statement_s=_LONG_S) as connection:
            _check_lasting(connection, url)
            encoding = connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":  # no other has all the names that campaigns may have
                raise InvalidInput(
                    f"database (encoding {encoding}) must be UTF8; make it with ENCODING 'UTF8'"
                )
            _migrate(connection, migrations("postgres")[:schema], create=create)
            if schema is not None:
                self.tables = records.tables_among(connection.execute(_COLUMNS))
            version = connection.info.parameter_status("server_version") or ""
            place = f"{connection.info.host}:{connection.info.port}/{connection.info.dbname}"
        self.engine = f"PostgreSQL {version} at {place}"
        self._closed = False
        self._counting = threading.Lock()
        self._counter: Patient | None = None
        self._shard = 0
        self._pool = ConnectionPool(
            url,
            connection_class=Patient,
            kwargs=_SETTINGS,
            min_size=1,
            max_size=_SHARED,
            timeout=_WAIT_S,
            reconnect_timeout=1,
            configure=_configure,
            check=_check_alive,
            open=True,
        )

    # -- counting --------------------------------------------------------------------------------

    def add(self, uploads: Sequence[records.Upload]) -> list[bool]:
        counted = [False] * len(uploads)
        if not uploads:
            return counted
        with self._counting_on() as connection:
            pending, named = pending_of(uploads, partial(_named, connection))
            rows = [(key, id, *what) for key, ids in pending.items() for id, what in ids.items()]
            campaign_keys, ids, round_keys, cells, positions = map(list, zip(*rows, strict=True))
            values = {
                "campaign_keys": campaign_keys, "ids": ids, "round_keys": round_keys, "cells": cells,
                "named": named, "shard": self._shard,
            }  # fmt: skip
            repeats = set(connection.execute(_ADD, values))  # a transaction of its own
        if (None, None) in repeats:
            raise over()
        for key, id, position in zip(campaign_keys, ids, positions, strict=True):
            counted[position] = (key, id) not in repeats
        return counted

    @contextmanager
    def _counting_on(self) -> Iterator[Patient]:
        """The connection that counts; one that failed is given up."""
        with self._counting, _translated():
            if self._closed:
                raise StoreFailed("the store is closed")
            try:
                if self._counter is None or not _alive(self._counter):
                    self._let_go()
                    counter = _connected(self._url, statement_s=_COUNTING_S)
                    counter.execute("SET enable_nestloop = off")  # given and new are equally long
                    self._shard = _free_shard(counter)
                    self._counter = counter
                yield self._counter
            except psycopg.OperationalError:
                self._let_go()
                raise

    def _let_go(self) -> None:
        connection, self._counter = self._counter, None
        if connection is not None:
            connection.close()

    # -- transactions ----------------------------------------------------------------------------

    def reading(self) -> AbstractContextManager[Run]:
        return self._transaction(IsolationLevel.REPEATABLE_READ)

    def writing(self) -> AbstractContextManager[Run]:
        return self._transaction(None)

    @contextmanager
    def _transaction(self, isolation: IsolationLevel | None) -> Iterator[Run]:
        with _translated(), self._pool.connection() as connection:
            connection.isolation_level = isolation
            connection.read_only = isolation is not None

            def run(statement: str, **values: object) -> list[Row]:
                cursor = connection.execute(_dialect(statement), values)
                return cursor.fetchall() if cursor.description else []

            with connection.transaction():
                yield run

    def settle(self) -> None:
        """The log is the server's own."""

    def shared_time_s(self) -> float:
        return float(self._value("SELECT extract(epoch FROM clock_timestamp())"))

    def check(self) -> None:
        """Raise ``StoreFailed`` unless the store can read and write now: rewrites its version.

        By the connection that counts, as reports do, so that it is true for them.
        """
        with self._counting_on() as connection:
            connection.execute(_REWRITE)

    @contextmanager
    def snapshot(self) -> Iterator[records.Snapshot]:
        """Rows are fetched as they are read."""

        def rows(table: str) -> Iterator[Row]:
            plain = f"SELECT {', '.join(self.tables[table])} FROM {table} ORDER BY 1, 2"
            with _translated(), connection.cursor(name=table) as cursor:
                cursor.itersize = _AT_ONCE.get(table, _AT_ONCE_WIDE)
                cursor.execute(_SUMMED.get(table, plain))
                yield from cursor

        with _translated(), _connected(self._url, statement_s=_LONG_S) as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            with connection.transaction():
                connection.execute("SELECT 1")  # the moment
                yield rows

    def fill(self, snapshot: records.Snapshot) -> None:
        long = _connected(self._url, statement_s=_LONG_S)
        with _translated(), long as connection, connection.transaction():
            connection.execute("LOCK TABLE campaign, token IN EXCLUSIVE MODE")
            rows = connection.execute("SELECT FROM campaign UNION ALL SELECT FROM token LIMIT 1")
            if rows.fetchall():
                raise InvalidInput("the store must be empty to take over another one")
            for table in records.TABLES:
                _copy_in(connection, table, snapshot)
            for table in ("campaign", "round"):
                connection.execute(
                    sql.SQL(
                        "SELECT setval(pg_get_serial_sequence({}, 'key'), max(key)) FROM {}"
                    ).format(sql.Literal(table), sql.Identifier(table))
                )

    def close(self) -> None:
        with self._counting:
            self._closed = True
            self._let_go()
        self._pool.close()


@contextmanager
def _translated(*, opening: bool = False) -> Iterator[None]:
    """Errors of the driver as ours: their kind and code, and none of the values they may name.

    While a store is opened no value of anybody is at hand, and they are told in full.
    """
    try:
        yield
    except psycopg.Error as error:
        kind = " ".join(filter(None, (type(error).__name__, error.sqlstate)))
        more = error.diag.message_primary if opening else None
        raise StoreFailed(
            f"PostgreSQL failed ({kind}): {more or 'nothing was acknowledged, try again later'}"
        ) from None


@cache
def _dialect(statement: str) -> str:
    """A statement with ``:name`` parameters as psycopg wants them."""
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def _connected(url: str, *, statement_s: float) -> Patient:
    """A connection whose commits are on the disk when they are acknowledged.

    Raises with the reason that PostgreSQL gives where it takes none: there is no such server, user or
    database, it has too many, or the password is wrong, which the reason does not hold.
    """
    try:
        connection = Patient.connect(url, **_SETTINGS)
    except psycopg.OperationalError as error:
        reason = " ".join(str(error).removeprefix("connection failed: ").split())
        raise StoreFailed(f"PostgreSQL failed to take a connection: {reason}") from None
    with _translated():
        _configure(connection, statement_s)
    return connection


def _check_lasting(connection: Patient, url: str) -> None:
    """Raise where a pooler lends what is behind a connection to others after every transaction.

    Settings would go with it, also that commits wait for the disk, and a prepared statement could be
    another's of the same name.
    """
    with _translated(), _connected(url, statement_s=_STATEMENT_S) as other:
        ask = "SELECT pg_backend_pid()"
        asked = (connection, other, other, connection) * 2
        pairs = {(one is other, one.execute(ask).fetchone()) for one in asked}
    if len(pairs) > 2 or len({behind for _, behind in pairs}) < 2:
        raise InvalidInput(
            "store must be reached by connections that last, not by a pooler that changes them with every "
            "transaction; let it pool sessions (pool_mode = session)"
        )


def _configure(connection: Patient, statement_s: float = _STATEMENT_S) -> None:
    """Whatever the database or the role has set otherwise."""
    connection.limit(statement_s)
    connection.execute("SET synchronous_commit = on")
    connection.execute("SET default_transaction_isolation = 'read committed'")  # or no round closes
    connection.execute("SET lock_timeout = 0")
    connection.execute("SET idle_in_transaction_session_timeout = 60000")
    connection.execute("SET client_min_messages = warning")


def _named(connection: Patient, *names: list[Any]) -> list[Row]:
    """The rounds that uploads name."""
    rows = connection.execute(_NAMED, names)
    return [(position, *keys) for position, keys in rows if keys is not None]


def _check_alive(connection: Patient) -> None:
    """Raise where a shared connection does not answer at once."""
    connection.patience_s, usual_s = _ALIVE_S, connection.patience_s
    connection.execute("")
    connection.patience_s = usual_s


def _alive(connection: Connection[Row]) -> bool:
    """Whether an idle connection is still one: a server that went away left its farewell to be read."""
    if connection.closed:
        return False
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return not waiting.poll(0)


def _free_shard(connection: Connection[Row]) -> int:
    """The first shard nobody holds, held until the connection ends; 0, shared, where all are taken."""
    for shard in range(_SHARDS):
        ((mine,),) = connection.execute("SELECT pg_try_advisory_lock(%s, %s)", (_SHARD, shard))
        if mine:
            return shard
    return 0


def _migrate(
    connection: Connection[Row], steps: tuple[records.Migration, ...], *, create: bool
) -> None:
    """Run the missing migrations in one transaction, one program at a time, and see whether it can write."""
    with _translated(opening=True), connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        ((table,),) = connection.execute("SELECT to_regclass('schema_version')")
        version = 0
        if table is not None:
            ((version,),) = connection.execute("SELECT version FROM schema_version")
        for step in records.missing(steps, version, create=create):
            connection.execute(step.up)
            connection.execute("UPDATE schema_version SET version = %s", (step.number,))
        if create:
            connection.execute(_REWRITE)


def _copy_in(connection: Connection[Row], table: str, snapshot: records.Snapshot) -> None:
    """All rows of a table; those of sharded ones go to shard 0."""
    sharded = table in _SUMMED
    columns = (*records.TABLES[table], "shard") if sharded else records.TABLES[table]
    shard = (0,) if sharded else ()
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for row in snapshot(table):
            copy.write_row((*row, *shard))
