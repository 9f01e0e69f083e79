"""Migrations: numbered without gaps, reversible, commented, and refused where they are too new."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import geoveil.store
from databases import cluster
from geoveil.errors import InvalidInput
from geoveil.store import (
    EstimateRecord,
    NewerSchema,
    RoundRecord,
    Store,
    open_store,
    open_to_copy,
    write_backup,
)
from geoveil.store.records import TABLES, Migration, migrations, missing
from geoveil.store.statements import CLOSINGS, OVER, Run
from store.devices import a_round, assert_explained, start, upload

DATABASES = ("sqlite", "postgres")
FOLDER = Path(geoveil.store.__file__).parent / "schema"
each = pytest.mark.parametrize("database", DATABASES)
COLUMN = re.compile(r"^    (?P<name>[a-z]\w*) (?P<type>INTEGER|TEXT|BLOB|bigint|text|bytea)\b.*$")


class Raw:
    """A database without the program: for its schema, and for taking steps one by one."""

    def __init__(self, database: str, folder: Path) -> None:
        self.steps = migrations(database)
        self.address = str(folder / "raw.db") if database == "sqlite" else cluster().database()
        self._connection: Any = (
            apsw.Connection(self.address)
            if database == "sqlite"
            else psycopg.connect(self.address, autocommit=True)
        )
        self._catalogue = "sqlite_schema" if database == "sqlite" else None

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement)
        return cursor.fetchall() if self._catalogue or cursor.description else []

    def schema(self) -> list[tuple[Any, ...]]:
        """Everything there is, as the database itself tells it."""
        if self._catalogue:
            return self.run("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")
        columns = self.run(
            "SELECT table_name, column_name, data_type, is_nullable, column_default"
            " FROM information_schema.columns WHERE table_schema = current_schema()"
            " ORDER BY 1, ordinal_position"
        )
        constraints = self.run(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2"
        )
        return columns + constraints

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def raw(database: str, tmp_path: Path) -> Iterator[Raw]:
    raw = Raw(database, tmp_path)
    yield raw
    raw.close()


@each
def test_steps_are_numbered_without_gaps_and_have_both_directions(database: str) -> None:
    steps = migrations(database)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    names = {f"{step.number:04}_{step.name}.{way}.sql" for step in steps for way in ("up", "down")}
    assert {path.name for path in (FOLDER / database).iterdir()} == names


def test_both_databases_take_the_same_steps() -> None:
    one, other = ([(step.number, step.name) for step in migrations(each)] for each in DATABASES)
    assert one == other


@each
def test_every_step_can_be_taken_back(raw: Raw) -> None:
    before = [raw.schema()]
    for step in raw.steps:
        raw.run(step.up)
        before.append(raw.schema())
    for step in reversed(raw.steps):
        assert raw.schema() == before.pop()
        raw.run(step.down)
    assert raw.schema() == before.pop() == []


@each
def test_every_table_and_column_has_a_comment_with_its_life(database: str) -> None:
    for step in migrations(database):
        lines = step.up.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("CREATE TABLE"):
                assert lines[number - 1].startswith("-- "), line
            if COLUMN.match(line):
                assert re.search(r"-- .+; (immutable|mutable|written once)", line), line


@each
def test_every_constraint_has_a_name(database: str) -> None:
    text = "\n".join(step.up for step in migrations(database))
    for kind in ("CHECK (", "UNIQUE (", "PRIMARY KEY ("):
        named = re.findall(rf"CONSTRAINT \w+ {re.escape(kind)}", text)
        assert len(named) == text.count(kind) > 0


@each
def test_the_layout_names_every_column_in_order(database: str) -> None:
    found: dict[str, list[str]] = {}
    for step in migrations(database):
        for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)^\)", step.up, re.M | re.S):
            found[table] = [m["name"] for line in body.splitlines() if (m := COLUMN.match(line))]
        for table, line in re.findall(r"ALTER TABLE (\w+) ADD COLUMN\n(.*)", step.up):
            added = COLUMN.match(line)
            assert added, line
            found[table].append(added["name"])
    found.pop("schema_version", None)
    plain = {table: [c for c in columns if c != "shard"] for table, columns in found.items()}
    assert plain == {table: list(columns) for table, columns in TABLES.items()}


def test_what_is_to_be_done_is_found_without_a_look_at_all_that_was_done(tmp_path: Path) -> None:
    """A service that has run for a year has hundreds of thousands of rounds, each with its estimate."""
    open_store(tmp_path / "raw.db").close()
    with closing(apsw.Connection(str(tmp_path / "raw.db"))) as connection:
        for statement, index in ((CLOSINGS, "closing_that_waits"), (OVER, "round_with_ids")):
            plan = list(connection.execute(f"EXPLAIN QUERY PLAN {statement}", {"now_s": 0}))
            assert any(f"INDEX {index}" in step[3] for step in plan), plan
            assert not any("TEMP B-TREE FOR ORDER" in step[3] for step in plan), plan
        for table in TABLES:  # or each round that is deleted needs a look at all of the table
            indexed = {
                each[0]
                for row in connection.execute(f"PRAGMA index_list({table})")
                for each in connection.execute(
                    "SELECT name FROM pragma_index_info(?) WHERE seqno = 0", (row[1],)
                )
            }
            for key in connection.execute(f"PRAGMA foreign_key_list({table})"):
                assert key[3] in indexed, (table, key[3])


@each
def test_what_an_older_program_published_meanwhile_waits_for_no_second_estimate(raw: Raw) -> None:
    with closing(open_store(raw.address)) as store:
        start(store)
        store.add([upload(0)])
        store.close_round("paris", 1, minimum=1, at_s=5)
        made = EstimateRecord("paris", 1, 6, 1, b"{}")
        assert store.publish(made, a_round(number=2))
        raw.run("UPDATE closing SET estimated = 0")
        assert not store.publish(made, a_round(number=2))
        assert store.closings() == []


@each
def test_a_store_of_an_older_program_is_brought_up_to_date(
    database: str, raw: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = raw.steps[:1]
    with monkeypatch.context() as patch:
        use_steps(patch, old)
        store = open_store(raw.address)
        start(store)
        store.add([upload(number) for number in range(100)])
        store.close()
        before = dict(raw.run("SELECT cell, count FROM tally"))
    with pytest.raises(InvalidInput, match=rf"schema \(1\) must be {len(raw.steps)}"):
        open_store(raw.address, create=False)
    backup_of_older(raw, tmp_path, 100).close()
    store = open_store(raw.address)
    by_cell = store.counts("paris")[1].tolist()
    assert {cell: count for cell, count in enumerate(by_cell) if count} == before
    assert sum(by_cell) == store.rounds("paris")[0].total == 100
    assert store.close_round("paris", 1, minimum=1, at_s=5)
    store.close()


def backup_of_older(raw: Raw, folder: Path, reports: int) -> Store:
    """A backup of a store that stays as an older program left it; the backup is of this program."""
    before = raw.schema()
    store = open_to_copy(raw.address)
    assert write_backup(store, folder / "backup.db").reports == reports
    store.close()
    assert raw.schema() == before
    backup = open_store(folder / "backup.db", create=False)
    assert backup.copied_at_s()
    return backup


@each
def test_copies_of_counts_become_counts_kept_once(
    database: str, raw: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rome has its estimate, Paris waits for it: both as the program before kept them."""
    with monkeypatch.context() as patch:
        use_steps(patch, raw.steps[:3])
        store = open_store(raw.address)
        for name in ("paris", "rome"):
            start(store, name)
            store.add([upload(number, campaign=name) for number in range(50)])
        store.close()
    blob = "zeroblob(512)" if database == "sqlite" else f"'\\x{'00' * 512}'::bytea"
    for key in (1, 2):
        raw.run(f"UPDATE round SET closed_at_s = 5 WHERE key = {key}")
        raw.run(f"INSERT INTO closing (round_key, closed_at_s) VALUES ({key}, 5)")
        raw.run(f"INSERT INTO closing_tally VALUES ({key}, {key}, {blob})")
    text = "x'7b7d'" if database == "sqlite" else "'{}'::bytea"
    raw.run(f"INSERT INTO estimate VALUES (2, 6, 50, {text})")
    backup = backup_of_older(raw, tmp_path, 100)
    store = open_store(raw.address)
    with store.snapshot() as migrated, backup.snapshot() as copied:
        for table in set(TABLES) - {"upkeep", "closing_tally"}:  # counts as JSON in any order
            assert sorted(copied(table)) == sorted(migrated(table))
    waiting = backup.closing_counts("paris", 1)[1].tolist()
    backup.close()
    expected = {name: store.counts(name)[1].tolist() for name in ("paris", "rome")}
    assert [sum(each) for each in expected.values()] == [50, 50]
    assert [closing.campaign for closing in store.closings()] == ["paris"]
    assert store.closing_counts("paris", 1)[1].tolist() == expected["paris"] == waiting
    store.close()
    raw.schema()  # this connection has not seen what the store's has changed
    for step in reversed(raw.steps[3:]):
        raw.run(step.down)
    for key, name in ((1, "paris"), (2, "rome")):
        rows = raw.run(f"SELECT cell, count FROM tally WHERE round_key = {key}")
        assert dict(rows) == {n: count for n, count in enumerate(expected[name]) if count}
    assert raw.run("SELECT closed_at_s FROM round ORDER BY key") == [(None,), (5,)]


@each
def test_campaigns_of_version_1_have_ended_and_stay_readable(
    database: str, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        use_steps(patch, raw.steps[:4])
        store = open_store(raw.address)
        for name in ("paris", "rome"):
            start(store, name)
            store.add([upload(number, campaign=name) for number in range(50)])
        store.close()
    for key, version in ((1, 1), (2, 2)):
        text = f'{{"campaign":"x","geoveil":{version},"kind":"mechanism"}}'.encode().hex()
        blob = f"x'{text}'" if database == "sqlite" else f"'\\x{text}'::bytea"
        raw.run(f"UPDATE round SET document = {blob} WHERE key = {key}")
        raw.run(f"INSERT INTO closing (round_key, closed_at_s) VALUES ({key}, 5)")
    store = open_store(raw.address)
    assert [closing.campaign for closing in store.closings()] == ["rome"]
    states = {name: store.campaign(name).state for name in ("paris", "rome")}  # type: ignore[union-attr]
    assert states == {"paris": "ended", "rome": "running"}
    assert [int(store.counts(name)[1].sum()) for name in states] == [50, 50]
    store.close()


def use_steps(patch: pytest.MonkeyPatch, steps: tuple[Migration, ...]) -> None:
    for module in ("sqlite", "postgres"):
        patch.setattr(f"geoveil.store.{module}.migrations", lambda database: steps)
    patch.setattr("geoveil.store.statements.open_round", open_first_round)


def open_first_round(run: Run, campaign_key: int, opened: RoundRecord) -> None:
    """As the program did that knew the first steps only."""
    names = [
        "number",
        "mechanism",
        "document",
        "cells",
        "opened_at_s",
        "expires_at_s",
        "accept_until_s",
    ]
    run(
        f"INSERT INTO round (campaign_key, {', '.join(names)}) VALUES (:key, :{', :'.join(names)})",
        key=campaign_key,
        **{name: getattr(opened, name) for name in names},
    )


@each
def test_a_migration_that_fails_changes_nothing(
    database: str, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(raw.address).close()
    before = raw.schema()
    fails = "CREATE TABLE half (x integer); SELECT no_such_function()"
    broken = Migration(len(raw.steps) + 1, "broken", fails, "")
    with monkeypatch.context() as patch:
        use_steps(patch, (*raw.steps, broken))
        with pytest.raises(geoveil.store.StoreFailed):
            open_store(raw.address)
    assert raw.schema() == before
    open_store(raw.address, create=False).close()


@each
def test_a_newer_schema_is_refused_and_left_alone(
    database: str, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = len(raw.steps)
    makes, drops = "CREATE TABLE tomorrow (x integer)", "DROP TABLE tomorrow"
    newer = Migration(latest + 1, "newer", makes, drops)
    with monkeypatch.context() as patch:
        use_steps(patch, (*raw.steps, newer))
        open_store(raw.address).close()
    before = raw.schema()
    for create in (True, False):
        with pytest.raises(NewerSchema, match=rf"\({latest + 1}\) must be at most {latest}"):
            open_store(raw.address, create=create)
    assert raw.schema() == before


def test_what_is_missing() -> None:
    steps = migrations("sqlite")
    assert missing(steps, 0) == steps
    assert missing(steps, 1) == steps[1:]
    assert missing(steps, len(steps)) == ()


@each
def test_constraints_hold_whoever_writes(database: str, raw: Raw) -> None:
    store = open_store(raw.address)
    start(store)
    store.add([upload(0)])
    store.close()
    blob = "zeroblob(15)" if database == "sqlite" else "'123456789012345'::bytea"
    error = apsw.ConstraintError if database == "sqlite" else psycopg.errors.CheckViolation
    for wrong in (
        f"INSERT INTO report (campaign_key, id, round_key) VALUES (1, {blob}, 1)",
        "UPDATE tally SET count = 0",
        "UPDATE tally SET cell = -1",
        "UPDATE round SET number = 0",
        "UPDATE round SET accept_until_s = expires_at_s - 1",
    ):
        with pytest.raises(error):
            raw.run(wrong)
    store = open_store(raw.address)
    assert len(assert_explained(store)) == 1
    assert store.rounds("paris")[0].mechanism == a_round().mechanism
    store.close()
