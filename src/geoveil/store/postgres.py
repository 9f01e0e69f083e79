"""A store in PostgreSQL: for several server processes that count at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from psycopg import Connection, IsolationLevel, sql

from geoveil.errors import InvalidInput
from geoveil.store.contract import Snapshot, Upload
from geoveil.store.forgetting import Forgetting
from geoveil.store.layout import TABLES, Row
from geoveil.store.postgres_connection import (
    Counter,
    Pool,
    check_address,
    connect,
    migrate,
    translated,
)
from geoveil.store.records import Run
from geoveil.store.uploads import over, sort_out

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
