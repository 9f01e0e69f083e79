"""Files that appear whole: written beside their name, and renamed when all is there; and pipes."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from geoveil.errors import InvalidInput

PIPE = "-"
"""The name that stands for standard input or standard output."""

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends


def file_name(path: object) -> str:
    """The name of a file that was given as text or as a path; an error for anything else."""
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise InvalidInput(
            f"path ({type(path).__name__}) must be the name of a file, which has no NUL"
        )
    return str(path)


def standard_input() -> IO[bytes]:
    """The bytes that come in, which stay open; an error where nothing can."""
    if sys.stdin is None:
        raise InvalidInput("standard input must be open to read from it; it is closed")
    return sys.stdin.buffer


@contextmanager
def replaced_file(path: str | Path) -> Iterator[IO[bytes]]:
    """A file written under a passing name beside its own, renamed when the block ends well.

    ``-`` is standard output. A file that was there before leaves its permissions to the new one.
    """
    if file_name(path) == PIPE:
        if sys.stdout is None:
            raise InvalidInput("standard output must be open to write to it; it is closed")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(file_name(path)).resolve()
    mode = target.stat().st_mode if target.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("wb") as special:  # a device or a named pipe cannot be replaced
            yield special
        return
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        try:
            # new, and with the permissions of the old one from its first byte
            permissions = 0o666 if mode is None else stat.S_IMODE(mode)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
            handle = os.fdopen(os.open(partial, flags, permissions), "wb")
            if mode is not None:
                partial.chmod(permissions)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        with handle:
            yield handle
        partial.replace(target)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.errno in _FULL:  # a write does not name its file
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def sync(path: Path) -> None:
    """Bring a file, or the entries of a folder, to the disk."""
    if sys.platform == "win32" and path.is_dir():
        return  # no such call there; a renaming is journalled
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
