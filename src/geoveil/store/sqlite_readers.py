"""Read-only connections to a SQLite file: they wait for nobody, and nobody for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import apsw

from geoveil.store.contract import StoreFailed
from geoveil.store.records import Run
from geoveil.store.sqlite_connection import PATIENCE_MS, failure, runner


class SqliteReaders:
    """Read-only connections, one for each thread that reads."""

    def __init__(self, path: Path, *, vfs: str | None = None) -> None:
        self._path = path
        self._vfs = vfs
        self._mine = threading.local()
        self._all: WeakSet[_Reader] = WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def transaction(self) -> Iterator[Run]:
        """Statements that all see one moment."""
        reader = self._reader()
        with reader.lock:
            try:
                reader.connection.execute("BEGIN")
                yield runner(reader.connection)
                reader.connection.execute("COMMIT")
            except BaseException as error:
                reader.connection.close(force=True)
                del self._mine.reader
                if isinstance(error, apsw.Error):
                    raise failure(error) from None
                raise

    def connect(self) -> apsw.Connection:
        """A read-only connection of the caller's own."""
        try:
            connection = apsw.Connection(
                str(self._path), flags=apsw.SQLITE_OPEN_READONLY, vfs=self._vfs
            )
            connection.set_busy_timeout(PATIENCE_MS)
        except apsw.Error as error:
            raise failure(error) from None
        return connection

    def close(self) -> None:
        """Close all, each when what it is doing is done."""
        with self._lock:
            self._closed = True
            readers = list(self._all)
        for reader in readers:
            with reader.lock:
                reader.connection.close(force=True)

    def _reader(self) -> _Reader:
        if self._closed:
            raise StoreFailed("the store is closed")
        reader: _Reader | None = getattr(self._mine, "reader", None)
        if reader is None:
            reader = self._mine.reader = _Reader(self.connect())
            with self._lock:
                self._all.add(reader)
        return reader


class _Reader:
    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.lock = threading.Lock()
