"""An acknowledged report survives a power cut, because its commit was synced before the answer.

The control shows that the test would notice: with ``synchronous=NORMAL`` commits are not synced, and
the same cuts lose acknowledged reports.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from geoveil.store.sqlite import SqliteStore, Synchronous
from store.devices import assert_explained, device_id, start, upload
from store.disk import Disk, Shadow, remains

CALLS_A_CUT = 7


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk("remembering")
    yield disk
    disk.unregister()


class Cuts:
    """Power cuts at random calls of the disk, each with the reports acknowledged by then."""

    def __init__(self, disk: Disk, chance: random.Random) -> None:
        self.acknowledged = 0
        self.taken: list[tuple[dict[str, Shadow], int]] = []
        self._disk = disk
        self._chance = chance

    def __call__(self, what: str) -> None:
        if self._chance.random() < 1 / CALLS_A_CUT:
            self.taken.append((self._disk.power_cut(), self.acknowledged))


def cut(disk: Disk, folder: Path, wanted: int, synchronous: Synchronous, seed: int = 1) -> Cuts:
    """Count reports, a few a commit, until there were as many cuts as wanted."""
    store = SqliteStore(folder / "store.db", vfs="remembering")
    start(store)
    store.close()
    store = SqliteStore(folder / "store.db", synchronous=synchronous, vfs="remembering")
    chance = random.Random(seed)
    disk.at_call = cuts = Cuts(disk, chance)
    while len(cuts.taken) < wanted:
        some = range(cuts.acknowledged, cuts.acknowledged + chance.randrange(1, 6))
        assert all(store.add([upload(number) for number in some]))
        cuts.acknowledged = some.stop
    disk.at_call = lambda what: None
    store.close()
    return cuts


def lost(cuts: Cuts, folder: Path, seed: int = 2) -> int:
    """Acknowledged reports that are gone after the power is back, over all cuts."""
    chance = random.Random(seed)
    gone = 0
    for number, (files, acknowledged) in enumerate(cuts.taken):
        after = folder / f"after-{number}"
        after.mkdir()
        remains(files, after, chance)
        store = SqliteStore(after / "store.db")
        kept = assert_explained(store)
        assert intact(after / "store.db")
        store.close()
        gone += len({device_id(n) for n in range(acknowledged)} - kept)
    return gone


def intact(path: Path) -> bool:
    connection = apsw.Connection(str(path))
    try:
        return connection.pragma("integrity_check") == "ok"
    finally:
        connection.close()


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoveil.store.sqlite._CHECKPOINT_PAGES", 40)


def test_no_acknowledged_report_is_lost(disk: Disk, tmp_path: Path) -> None:
    cuts = cut(disk, tmp_path, 30, "FULL")
    assert cuts.acknowledged > 30
    assert lost(cuts, tmp_path) == 0


def test_the_control_without_full_sync_loses_some(disk: Disk, tmp_path: Path) -> None:
    assert lost(cut(disk, tmp_path, 30, "NORMAL"), tmp_path) > 0


@pytest.mark.slow
def test_500_cuts_lose_nothing(disk: Disk, tmp_path: Path) -> None:
    cuts = cut(disk, tmp_path, 500, "FULL", seed=3)
    assert lost(cuts, tmp_path, seed=4) == 0
