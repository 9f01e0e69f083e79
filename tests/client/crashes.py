"""A process that ends at the n-th thing its ledger asks of SQLite or of the file system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geoveil.client import ledger

FILES = ("make_empty", "move_durably", "write_durably", "keep_private")


class Crash(BaseException):
    """The process ends here; nothing catches it."""


class Machine:
    """Counts what a ledger asks for, and stops at one of them: before it happened, or (``late``) after.

    A connection that is dropped in the middle of a transaction is rolled back, as the next process would.
    """

    def __init__(self, stop_at: int | None = None, *, late: bool = False) -> None:
        self.stop_at = stop_at
        self.late = late
        self.calls: list[str] = []

    def call(self, name: str, real: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append(name)
        if len(self.calls) != self.stop_at:
            return real(*arguments)
        if self.late:
            real(*arguments)
        raise Crash


class Connection:
    """A connection whose statements go through the machine."""

    def __init__(self, real: Any, machine: Machine) -> None:
        self.real = real
        self.machine = machine

    def execute(self, *arguments: Any) -> Any:
        return self.machine.call(
            arguments[0].split(None, 1)[0], lambda: self.real.execute(*arguments)
        )

    def close(self) -> None:
        self.real.close()


@contextmanager
def on(machine: Machine) -> Iterator[Machine]:
    """Ledgers run on this machine."""
    kept = {name: getattr(ledger, name) for name in (*FILES, "_connection")}

    def through(name: str) -> Callable[..., Any]:
        return lambda *given: machine.call(name, kept[name], *given)

    for name in FILES:
        setattr(ledger, name, through(name))
    ledger._connection = lambda path: Connection(kept["_connection"](path), machine)  # type: ignore[assignment, return-value]
    try:
        yield machine
    finally:
        for name, real in kept.items():
            setattr(ledger, name, real)


def everything_in(folder: Path) -> bytes:
    """All bytes of all files of a ledger."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file())
