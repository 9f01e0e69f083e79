"""Opening a store by its address, and moving everything from one to another."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from geoveil.errors import InvalidInput, MissingExtra
from geoveil.files import sync
from geoveil.store.contract import Store
from geoveil.store.records import OlderSchema, Row


def open_store(url: str | Path, *, create: bool = True, schema: int | None = None) -> Store:
    """The store at ``sqlite:///path`` (or just a path), or ``postgresql://…``.

    A database that is empty or of an older program gets the schema of this one; where not ``create``,
    it must have it already or, to be copied only, the older ``schema`` with this number.
    ``sqlite:///a`` is relative to the working folder, ``sqlite:////a`` is not.
    """
    address = str(url)
    scheme = address.partition("://")[0]
    try:
        if scheme in ("postgresql", "postgres"):
            from geoveil.store.postgres import PostgresStore

            return PostgresStore(address, create=create, schema=schema)
        if scheme == "sqlite" or "://" not in address:
            from geoveil.store.sqlite import SqliteStore

            path = sqlite_path(address)
            if not create and not path.is_file():
                raise InvalidInput(f"store ({path.name}) must exist; there is no such file")
            _check_folder("store", path)
            return SqliteStore(path, create=create, schema=schema)
    except ModuleNotFoundError as missing:
        if missing.name in ("apsw", "psycopg"):
            raise MissingExtra(missing.name, "server", "this store") from None
        raise
    raise InvalidInput(f"store (scheme {scheme}) must be sqlite:///path, a path, or postgresql://…")


def _check_folder(what: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise InvalidInput(f"{what} ({path.name}) must lie in a folder that exists; make it first")


def sqlite_path(address: str) -> Path:
    """The file that a SQLite address names.

    >>> sqlite_path("sqlite:///counts.db").as_posix(), sqlite_path("data/counts.db").as_posix()
    ('counts.db', 'data/counts.db')
    """
    if address.startswith("sqlite:"):
        rest = address.removeprefix("sqlite:")
        if not rest.startswith("///"):
            raise InvalidInput("store must be sqlite:///path, with three slashes before the path")
        address = unquote(rest.removeprefix("///"))
    if address in ("", ":memory:"):
        raise InvalidInput("store must name a file, such as sqlite:///counts.db")
    return Path(address)


# --- Copies of a whole store: to another database, to a backup, and back


@dataclass(slots=True)
class Contents:
    """What a copy holds."""

    campaigns: int = 0
    rounds: int = 0
    reports: int = 0
    """Reports counted, over all rounds."""


def open_to_copy(url: str | Path) -> Store:
    """The store at an address as it is, to be copied: of this program, or of an older one."""
    try:
        return open_store(url, create=False)
    except OlderSchema as older:
        if not older.version:  # an empty database
            raise
        return open_store(url, create=False, schema=older.version)


def copy_store(source: Store, target: Store) -> Contents:
    """Copy everything into an empty store, as of one moment; counting goes on in the source meanwhile."""
    contents = Contents()

    def counted(table: str) -> Iterator[Row]:
        for row in snapshot(table):
            contents.campaigns += table == "campaign"
            contents.rounds += table == "round"
            contents.reports += row[1] if table == "round_total" else 0
            yield row

    with source.snapshot() as snapshot:
        target.fill(counted)
    return contents


def write_backup(store: Store, path: Path | str) -> Contents:
    """Copy a store into a new SQLite file, on the disk when this returns.

    The copy of an older program's store is brought up to date, and the store itself left as it is.
    The file appears whole or not at all, and never in the place of another. It says of which time it
    is, so that a service that begins with it opens rounds above all that were published since.
    """
    from geoveil.store.sqlite import SqliteStore

    final = Path(path)
    exists = InvalidInput(f"backup ({final.name}) must be a new file; this one exists")
    if final.exists():
        raise exists
    _check_folder("backup", final)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".backup-") as folder:
        copy = Path(folder) / final.name
        at_s = int(time.time())
        with closing(SqliteStore(copy, schema=store.schema)) as filled:
            contents = copy_store(store, filled)
        backup = SqliteStore(copy)
        try:
            backup.mark_copy(at_s)
        finally:
            backup.close(whole=True)
        sync(copy)
        try:
            _name(copy, final)
        except FileExistsError:
            raise exists from None
    sync(final.parent)
    return contents


def _name(copy: Path, final: Path) -> None:
    """Give a file its name; ``FileExistsError`` where that was taken meanwhile."""
    try:
        os.link(copy, final)  # unlike a renaming, refuses where there is such a file
    except FileExistsError:
        raise
    except OSError:  # a stick or a share whose files have one name each
        final.touch(exist_ok=False)
        copy.replace(final)


def restore_backup(path: Path | str, target: Store | str) -> Contents:
    """Copy a backup into an empty store; one of an older program is brought up to date on the way.

    The backup itself is only read, where it lies; one that has to be brought up to date, or was made by
    other means, is copied first, beside the store. A store that is named by its address is made when the
    backup has been opened, so that a wrong one leaves none behind.
    """
    source = Path(path)
    if not source.is_file():
        raise InvalidInput(f"backup ({source.name}) must be a file; there is none")
    if source.stat().st_size == 0:
        raise InvalidInput(f"backup ({source.name}) must not be empty")
    with _opened(source, target) as backup:
        if not isinstance(target, str):
            return copy_store(backup, target)
        with closing(open_store(target)) as store:
            return copy_store(backup, store)


@contextmanager
def _opened(source: Path, target: Store | str) -> Iterator[Store]:
    """A backup to be read: where it lies or, where that cannot be, a copy of it."""
    as_it_is = _as_it_is(source)
    if as_it_is is not None:
        with closing(as_it_is):
            yield as_it_is
        return
    folder = None
    if isinstance(target, str) and not target.startswith("postgres"):
        folder = sqlite_path(target).parent
        _check_folder("store", sqlite_path(target))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".restore-") as private:
        copy = Path(private) / source.name
        shutil.copyfile(source, copy)
        with closing(open_store(copy)) as backup:
            yield backup


def _as_it_is(source: Path) -> Store | None:
    """A backup that only has to be read; ``None`` where it is of an older program, or a log belongs to it."""
    from geoveil.store.sqlite import SqliteStore

    with source.open("rb") as file:
        alone = file.read(20)[18:] == b"\1\1"
    try:
        return SqliteStore(source, create=False, only_read=True) if alone else None
    except OlderSchema:
        return None
