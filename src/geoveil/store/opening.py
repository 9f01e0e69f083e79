"""A store by its address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from geoveil.errors import InvalidInput, MissingExtra
from geoveil.store.contract import Store
from geoveil.store.memory import MemoryStore

_POSTGRES = ("postgresql", "postgres")


def open_store(url: str | Path, *, create: bool = True) -> Store:
    """The store at ``memory:``, ``sqlite:///path`` (or just a path), or ``postgresql://…``.

    A database that is empty or of an older program gets the schema of this one; where not ``create``,
    it must have it already. ``sqlite:///a`` is relative to the working folder, ``sqlite:////a`` is not.

    >>> open_store("memory:").campaigns()
    []
    """
    address = str(url)
    scheme = urlsplit(address).scheme
    if address == "memory:":
        return MemoryStore()
    if scheme in _POSTGRES:
        return _postgres(address, create=create)
    if scheme == "sqlite" or "://" not in address:
        return _sqlite(sqlite_path(address), create=create)
    raise InvalidInput(
        f"store (scheme {scheme}) must be memory:, sqlite:///path, a path, or postgresql://…"
    )


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
    if not address:
        raise InvalidInput("store must name a file, such as sqlite:///counts.db")
    return Path(address)


def _sqlite(path: Path, *, create: bool) -> Store:
    try:
        from geoveil.store.sqlite import SqliteStore
    except ModuleNotFoundError as missing:
        raise _without("apsw", missing) from None
    if not create and not path.is_file():
        raise InvalidInput(f"store ({path.name}) must exist; there is no such file")
    if not path.parent.is_dir():
        raise InvalidInput(f"store ({path.name}) must lie in a folder that exists; make it first")
    return SqliteStore(path, create=create)


def _postgres(address: str, *, create: bool) -> Store:
    try:
        from geoveil.store.postgres import PostgresStore
    except ModuleNotFoundError as missing:
        raise _without("psycopg", missing) from None
    return PostgresStore(address, create=create)


def _without(package: str, missing: ModuleNotFoundError) -> Exception:
    """What to install where the driver is missing; anything else that is missing as it was."""
    return MissingExtra(package, "server", "this store") if missing.name == package else missing
