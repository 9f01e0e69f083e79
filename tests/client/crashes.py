"""A machine that stops at the n-th thing it asks of the operating system."""

from __future__ import annotations

import os
from typing import Any

import pytest

from geoveil.client import ledger as durable

CALLS = ("open", "fchmod", "write", "fsync", "replace")


class Crash(BaseException):
    """The process ends here; nothing catches it."""


class Machine:
    """Stands for ``os`` in the module that writes files; counts calls, and stops at one of them.

    A write that is cut off leaves half of its bytes; any other call that is cut off did not happen, or
    (``late``) did. Nothing is really synced: these processes end, their machine does not.
    """

    def __init__(self, stop_at: int | None = None, *, late: bool = False) -> None:
        self.stop_at = stop_at
        self.late = late
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = (lambda _: None) if name == "fsync" else getattr(os, name)
        if name not in CALLS:
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) != self.stop_at:
                return real(*arguments, **options)
            if name == "write":
                handle, content = arguments
                real(handle, content[: len(content) // 2])
            elif self.late:
                answer = real(*arguments, **options)
                if name == "open":
                    os.close(answer)
            raise Crash

        return call


def on(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> Machine:
    monkeypatch.setattr(durable, "os", machine)
    return machine
