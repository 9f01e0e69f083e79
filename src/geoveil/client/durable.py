"""Files that survive a crash at any moment: written beside, synced, renamed, the folder synced."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geoveil.client.refusal import Refused

WAIT_S = 10.0
"""How long to wait for another process's lock."""
_POLL_S = 0.01


def replace_durably(path: Path, content: bytes) -> None:
    """The file with this content, readable by its owner only; after a crash the old or the new one."""
    beside = path.with_name(path.name + ".new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if sys.platform != "win32":
            os.fchmod(handle, 0o600)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(beside, path)  # noqa: PTH105  # tests make the n-th of these calls fail
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return  # no such call there; the rename is journalled
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file against every other process and thread."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(handle)
        yield  # closing the handle lets the lock go, and so does the end of the process
    finally:
        os.close(handle)


def _acquire(handle: int) -> None:
    last = time.monotonic() + WAIT_S
    while not _try_lock(handle):
        if time.monotonic() > last:
            raise Refused("ledger-busy")
        time.sleep(_POLL_S)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
