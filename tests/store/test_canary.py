"""Nothing is kept of a report but its id, without its cell, and the count of its cell."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from geoveil.store import Store, Upload, open_store, write_backup
from geoveil.store.records import TABLES
from store.devices import a_campaign, a_round, device_id, start

CELL = 0x1DCA
"""A cell whose number is easy to find again."""


def rows(store: Store, table: str) -> list[tuple[object, ...]]:
    with store.snapshot() as snapshot:
        return list(snapshot(table))


def test_a_report_leaves_its_id_and_a_count_and_nothing_else(address: str) -> None:
    store = open_store(address)
    start(store, cells=10_000)
    before = {table: rows(store, table) for table in TABLES}
    store.add([Upload("paris", 1, device_id(0), CELL)])
    added = {
        table: [row for row in rows(store, table) if row not in before[table]] for table in TABLES
    }
    assert {table: new for table, new in added.items() if new} == {
        "report": [(1, device_id(0), 1)],
        "tally": [(1, CELL, 1)],
        "round_total": [(1, 1)],
    }
    store.close()


def test_two_reports_of_a_cell_cannot_be_told_apart(address: str) -> None:
    store = open_store(address)
    start(store, cells=10_000)
    store.add([Upload("paris", 1, device_id(0), CELL)])
    store.add([Upload("paris", 1, device_id(1), CELL)])
    assert rows(store, "tally") == [(1, CELL, 2)]
    store.close()


def test_the_order_of_arrival_is_not_kept(tmp_path: Path) -> None:
    """Files made from the same reports in two orders hold the same bytes where reports are."""
    contents = []
    for order in (range(60), range(59, -1, -1)):
        store = open_store(tmp_path / f"{order.start}.db")
        start(store)
        for number in order:
            store.add([Upload("paris", 1, device_id(number), 0)])
        contents.append(rows(store, "report"))
        store.close()
    assert contents[0] == contents[1] == sorted(contents[0])


def test_forgotten_ids_are_gone_from_the_file_and_from_backups(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = open_store(path)
    store.create_campaign(a_campaign(), a_round(until_s=1_000))
    store.add([Upload("paris", 1, device_id(number), 0) for number in range(2_000)])
    store.close()
    assert device_id(7) in path.read_bytes()
    store = open_store(path)
    assert store.forget_ids(now_s=2_000) == 2_000
    write_backup(store, tmp_path / "backup.db")
    store.close()
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert not any(device_id(number) in content for number in range(2_000)), file.name


def test_the_log_beside_the_file_keeps_neither_order_nor_what_was_removed(tmp_path: Path) -> None:
    store = open_store(path := tmp_path / "store.db")
    store.create_campaign(a_campaign(), a_round())
    for number in range(100):
        store.add([Upload("paris", 1, device_id(number), number % 3)])
    log = path.with_name("store.db-wal")
    assert log.read_bytes().count(device_id(7)) > 1  # once for every commit around it
    store.settle()
    assert log.stat().st_size == 0
    assert path.read_bytes().count(device_id(7)) == 1
    store.add([Upload("paris", 1, device_id(100), 0)])
    assert store.delete_campaign("paris")
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert not any(device_id(number) in content for number in range(101)), file.name
        assert b"paris" not in content, file.name
    store.close()


def test_whoever_reads_does_not_keep_uploads_waiting_for_the_log(tmp_path: Path) -> None:
    store = open_store(path := tmp_path / "store.db")
    store.create_campaign(a_campaign(), a_round())
    with store.snapshot() as rows_of:
        store.add([Upload("paris", 1, device_id(0), 0)])
        began_s = time.monotonic()
        store.settle()
        assert time.monotonic() - began_s < 5  # a tenth of a second, where nothing else runs
        assert list(rows_of("report")) == []
        assert store.add([Upload("paris", 1, device_id(1), 0)]) == [True]
    store.settle()
    assert path.with_name("store.db-wal").stat().st_size == 0
    assert [row[1] for row in rows(store, "report")] == sorted([device_id(0), device_id(1)])
    store.close()
    store.settle()  # which changes nothing any more


@pytest.mark.skipif(sys.platform == "win32", reason="has no such modes")
def test_files_are_their_owners_only_and_one_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    kept = os.umask(0o022)
    try:
        store = open_store(path := tmp_path / "store.db")
        start(store)
        store.add([Upload("paris", 1, device_id(0), 0)])
        write_backup(store, tmp_path / "backup.db")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(kept)
    assert set(modes) >= {"store.db", "store.db-wal", "backup.db"}
    assert set(modes.values()) == {0o600}
    path.chmod(0o640)  # such as for a group of operators
    open_store(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_token_is_kept_as_its_digest_only(tmp_path: Path) -> None:
    secret = "operator-token-in-clear"
    path = tmp_path / "store.db"
    store = open_store(path)
    digest = hashlib.sha256(secret.encode()).digest()
    store.add_token(digest, label="laptop", at_s=0)
    store.close()
    assert digest in path.read_bytes()
    assert secret.encode() not in path.read_bytes()
