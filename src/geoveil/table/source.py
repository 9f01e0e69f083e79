"""Bytes of a file or a pipe, unpacked when they are gzip, with the share already read."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import cast

from geoveil.errors import InvalidFile
from geoveil.table.format import PIPE

_GZIP_MAGIC = b"\x1f\x8b"


class Source:
    """The bytes of a table, read once from front to back.

    Bytes can be looked at before they are read (``head``); gzip is recognised by its first bytes,
    whatever the name of the file. ``fraction`` is the share of the file already read, for progress.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "standard input" if path == PIPE else path
        raw = sys.stdin.buffer if path == PIPE else Path(path).open("rb")  # noqa: SIM115 (see close)
        self._raw = cast(io.BufferedReader, raw)
        self._size = _size_of(self._raw)
        self._head = b""
        self._bytes: io.BufferedReader | gzip.GzipFile = self._raw
        self._ended = False
        if self.head(2) == _GZIP_MAGIC:
            self._bytes = gzip.GzipFile(fileobj=_Chained(self._head, self._raw))
            self._head, self._ended = b"", False

    @property
    def fraction(self) -> float | None:
        """The share of the file already read, in [0, 1]; ``None`` for a pipe."""
        return min(1.0, self._raw.tell() / self._size) if self._size else None

    @property
    def ended(self) -> bool:
        """Whether ``head`` has seen the last byte."""
        return self._ended

    def head(self, size: int) -> bytes:
        """The next ``size`` bytes (fewer at the end) without consuming them."""
        while len(self._head) < size and not self._ended:
            piece = self._bytes.read1(size - len(self._head))
            self._ended = not piece
            self._head += piece
        return self._head[:size]

    def read(self, size: int = -1) -> bytes:
        """The next ``size`` bytes, fewer only at the end; or all that is left.

        One system call at a time, so that an interrupt is noticed between any two of them.
        """
        if size < 0:
            return self.read(len(self._head)) + self._bytes.read()
        taken = self._head[:size]
        self._head = self._head[len(taken) :]
        pieces, missing = [taken], size - len(taken)
        while missing and (piece := self._bytes.read1(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Chained(io.RawIOBase):
    """Bytes already taken from a stream, then the rest of it."""

    def __init__(self, head: bytes, rest: io.BufferedReader) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._rest.read(size)
        taken = self._head if size < 0 else self._head[:size]
        self._head = self._head[len(taken) :]
        return taken + (self._rest.read() if size < 0 else b"")


def _size_of(raw: io.BufferedReader) -> int | None:
    """The length of a regular file; ``None`` where there is no knowing it."""
    try:
        size = os.fstat(raw.fileno()).st_size
        return size if size > 0 and raw.seekable() else None
    except (OSError, ValueError):
        return None


@contextmanager
def unpacking(name: str) -> Iterator[None]:
    """Turn the ways in which unpacking fails into one clear line."""
    try:
        yield
    except (EOFError, zlib.error):
        raise InvalidFile(f"{name} must be a whole gzip file; it is cut off or damaged") from None
    except OSError as error:
        if error.errno is not None or isinstance(error, BrokenPipeError):
            raise
        raise InvalidFile(f"{name} must be a whole gzip file; it is cut off or damaged") from None
