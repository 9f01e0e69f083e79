"""Logs: one JSON object a line on standard error, with nothing in it that belongs to a person.

A line has a time, a level, the name of an event, and facts of the service: route templates, status
classes, durations, numbers of rounds. It never has an address, agent, cookie, query, header, body, cell,
or id of a report. Only operators' calls are logged one by one: a time beside each upload would be a time
kept for each report, so everybody else's requests appear as totals, once a minute.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_FRAMES = 8


@dataclass(frozen=True, slots=True)
class Trace:
    """An error as it may be logged: its kind and its place in the code, never its message or values.

    It can be sent to another process.
    """

    kind: str
    where: tuple[str, ...]
    """File names without folders, with lines: ``em.py:98``; the innermost last."""


def trace_of(error: BaseException) -> Trace:
    """What may be said of an error."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = tuple(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    return Trace(type(error).__name__, where)


class Log:
    """Writes events at or above a level as JSON lines."""

    def __init__(
        self,
        level: str = "info",
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._least = _LEVELS[level]
        self._stream = stream
        self._clock = clock
        self._counted: Counter[tuple[str, str]] = Counter()

    def event(self, name: str, *, level: str = "info", **facts: Any) -> None:
        """One line, where the level is high enough."""
        if _LEVELS[level] >= self._least:
            line = {"time": _stamp(self._clock()), "level": level, "event": name, **facts}
            stream = self._stream or sys.stderr
            with suppress(OSError, ValueError):  # a log that cannot be written stops nobody
                stream.write(json.dumps(line, ensure_ascii=True) + "\n")
                stream.flush()

    def request(self, route: str, status: int, duration_s: float) -> None:
        """A request of an operator: template, status class, duration."""
        self.event(
            "request",
            route=route,
            status=f"{status // 100}xx",
            milliseconds=round(duration_s * 1e3, 1),
        )

    def count(self, route: str, status: int) -> None:
        """A request of anybody else: counted, not logged."""
        self._counted[route, f"{status // 100}xx"] += 1

    def summary(self) -> None:
        """The requests counted since the last summary, as totals."""
        counted, self._counted = self._counted, Counter()
        for (route, status), number in sorted(counted.items()):
            self.event("requests", route=route, status=status, number=number)

    def fault(self, name: str, error: BaseException | Trace, **facts: Any) -> None:
        """An error nobody foresaw: its kind and where it happened, without its message or values."""
        trace = error if isinstance(error, Trace) else trace_of(error)
        self.event(name, level="error", error=trace.kind, where=trace.where, **facts)


def _stamp(now_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))


class Bridge(logging.Handler):
    """What libraries log, as events with the library's name and level; their words are left out.

    The words of a library may hold addresses or what was sent.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        place = f"{Path(record.pathname).name}:{record.lineno}"
        self._log.event("library", level=level, library=record.name, where=place)


def capture_libraries(log: Log) -> None:
    """Send what uvicorn and asyncio log through :class:`Bridge`, and nowhere else."""
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [Bridge(log)]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True
