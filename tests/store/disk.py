"""A disk that remembers what was synced: SQLite writes to it, and at a power cut the rest is lost.

Files are real, so that everything else works as always; beside each, this keeps what a disk would hold
if the power failed now: all that was written before the last sync, and of later writes none, some, or
torn ones. Writes since the last sync reach the disk in any order and in sectors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw

SECTOR = 512
Change = tuple[int, bytes] | int
"""A write at an offset, or a new size."""


@dataclass
class Shadow:
    """One file: what is on the disk for certain, and what was written since the last sync."""

    synced: bytearray = field(default_factory=bytearray)
    since: list[Change] = field(default_factory=list)
    exists: bool = False
    """Whether the name itself is on the disk."""

    def sync(self) -> None:
        for change in self.since:
            apply(self.synced, change)
        self.since.clear()
        self.exists = True

    def copy(self) -> Shadow:
        return Shadow(bytearray(self.synced), list(self.since), self.exists)


def apply(content: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del content[change:]
        return
    offset, data = change
    if len(content) < offset + len(data):
        content.extend(bytes(offset + len(data) - len(content)))
    content[offset : offset + len(data)] = data


class Disk(apsw.VFS):
    """A VFS over the usual one. ``at_call`` is told before each write, sync, truncation or deletion."""

    def __init__(self, name: str) -> None:
        self.files: dict[str, Shadow] = {}
        self.at_call: Callable[[str], None] = lambda what: None
        super().__init__(name, "")

    def xOpen(self, name, flags):
        return DiskFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.at_call("delete")
        super().xDelete(filename, syncdir)
        self.files.pop(Path(filename).name, None)

    def power_cut(self) -> dict[str, Shadow]:
        """The state of the disk at this moment."""
        return {name: shadow.copy() for name, shadow in self.files.items()}


class DiskFile(apsw.VFSFile):
    """A file that tells its shadow what happens to it."""

    def __init__(self, disk: Disk, name, flags) -> None:
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._shadow = disk.files.setdefault(Path(path).name, Shadow()) if path else Shadow()
        super().__init__("", name, flags)

    def xWrite(self, data, offset: int) -> None:
        self._disk.at_call("write")
        super().xWrite(data, offset)
        self._shadow.since.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        self._disk.at_call("truncate")
        super().xTruncate(newsize)
        self._shadow.since.append(newsize)

    def xSync(self, flags: int) -> None:
        try:
            self._disk.at_call("sync")
        except apsw.Error:
            self._shadow.since.clear()  # Linux takes pages for clean after a failed sync: never written
            raise
        self._shadow.sync()  # the bytes are in the shadow: the real disk need not be waited for

    def xDeviceCharacteristics(self) -> int:
        return 0  # promises nothing about the order or the size of writes


def remains(files: dict[str, Shadow], folder: Path, chance: random.Random) -> None:
    """Write what a disk holds after the power cut; what was not synced is lost in one of three ways."""
    way = chance.choice([lose_all, lose_some, tear])
    for name, shadow in files.items():
        if shadow.exists or chance.random() < 0.5:
            content = bytearray(shadow.synced)
            for change in way(shadow.since, chance):
                apply(content, change)
            (folder / name).write_bytes(content)


def lose_all(since: list[Change], chance: random.Random) -> Iterator[Change]:
    yield from ()


def lose_some(since: list[Change], chance: random.Random) -> Iterator[Change]:
    yield from (change for change in since if chance.random() < 0.5)


def tear(since: list[Change], chance: random.Random) -> Iterator[Change]:
    """Each sector of each write reaches the disk or does not."""
    for change in since:
        if isinstance(change, int):
            if chance.random() < 0.5:
                yield change
            continue
        offset, data = change
        for begin in range(0, len(data), SECTOR):
            if chance.random() < 0.5:
                yield offset + begin, data[begin : begin + SECTOR]


class FailingCall:
    """Makes the n-th call from now on fail, as a disk that is full or broken does."""

    def __init__(self, disk: Disk, nth: int) -> None:
        self._left = nth
        self._disk = disk
        self.failed = False
        disk.at_call = self

    def __call__(self, what: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.failed = True
            self._disk.at_call = lambda what: None
            raise apsw.FullError("planted") if what == "write" else apsw.IOError("planted")
