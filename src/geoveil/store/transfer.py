"""Copies of a whole store: to another database, to a backup, and back."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from geoveil.errors import InvalidInput
from geoveil.store.contract import Snapshot, Store
from geoveil.store.layout import Row
from geoveil.store.opening import open_store


@dataclass(slots=True)
class Contents:
    """What a copy holds."""

    campaigns: int = 0
    rounds: int = 0
    reports: int = 0
    """Reports counted, over all rounds."""


def copy_store(source: Store, target: Store) -> Contents:
    """Copy everything into an empty store, as of one moment; counting goes on in the source meanwhile.

    >>> from geoveil.store import MemoryStore
    >>> source, target = MemoryStore(), MemoryStore()
    >>> source.add_token(bytes(32), label="laptop", at_s=0)
    >>> copy_store(source, target)
    Contents(campaigns=0, rounds=0, reports=0)
    >>> target.token_known(bytes(32))
    True
    """
    with source.snapshot() as snapshot:
        watched = _Watched(snapshot)
        target.fill(watched)
    return watched.contents


class _Watched:
    """A snapshot that counts what is read from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.contents = Contents()

    def tables(self) -> Sequence[str]:
        return self._snapshot.tables()

    def rows(self, table: str) -> Iterator[Row]:
        for row in self._snapshot.rows(table):
            self._count(table, row)
            yield row

    def _count(self, table: str, row: Row) -> None:
        if table == "campaign":
            self.contents.campaigns += 1
        elif table == "round":
            self.contents.rounds += 1
        elif table == "round_total":
            self.contents.reports += row[1]


def write_backup(store: Store, path: Path | str) -> Contents:
    """Copy a store into a new SQLite file, on the disk when this returns.

    The file appears whole or not at all, and never in the place of another.
    """
    from geoveil.store.sqlite import SqliteStore

    final = Path(path)
    if final.exists():
        raise InvalidInput(f"backup ({final.name}) must be a new file; this one exists")
    if not final.parent.is_dir():
        raise InvalidInput(f"backup ({final.name}) must lie in a folder that exists; make it first")
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".backup-") as folder:
        made = Path(folder) / final.name
        backup = SqliteStore(made)
        try:
            contents = copy_store(store, backup)
        finally:
            backup.close(whole=True)
        _sync(made)
        try:
            os.link(made, final)  # unlike a renaming, refuses where the name was taken meanwhile
        except FileExistsError:
            raise InvalidInput(
                f"backup ({final.name}) must be a new file; this one exists"
            ) from None
    _sync(final.parent)
    return contents


def restore_backup(path: Path | str, target: Store) -> Contents:
    """Copy a backup into an empty store; one of an older program is brought up to date on the way.

    The backup itself is only read.
    """
    source = Path(path)
    if not source.is_file():
        raise InvalidInput(f"backup ({source.name}) must be a file; there is none")
    if source.stat().st_size == 0:
        raise InvalidInput(f"backup ({source.name}) must not be empty")
    with tempfile.TemporaryDirectory() as folder:
        private = Path(folder) / "backup.db"
        shutil.copyfile(source, private)
        backup = open_store(private)
        try:
            return copy_store(backup, target)
        finally:
            backup.close()


def _sync(path: Path) -> None:
    """Bring a file or the entries of a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
