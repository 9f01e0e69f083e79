"""A store in one SQLite file: the default, for one server process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import apsw

from geoveil.errors import InvalidInput
from geoveil.store.contract import Snapshot, Upload
from geoveil.store.forgetting import Forgetting
from geoveil.store.layout import TABLES, Row
from geoveil.store.records import Run
from geoveil.store.sqlite_connection import SqliteWriter, Synchronous, failure, library_version
from geoveil.store.sqlite_readers import SqliteReaders
from geoveil.store.uploads import Pending, over, sort_out


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
