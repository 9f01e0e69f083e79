"""What is written down: logs without people, and counters for Prometheus."""

from __future__ import annotations

import bisect
import json
import logging
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

from geoveil import __version__
from geoveil.files import replaced_file
from geoveil.store import StoreFailed

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_FRAMES = 8
_AGAIN_S = 60.0
"""After so long what a library says again is told again."""


@dataclass(frozen=True, slots=True)
class Trace:
    """An error as it may be logged: its kind and its place in the code, never its message or values.

    It can be sent to another process.
    """

    kind: str
    where: tuple[str, ...]
    """File names without folders, with lines: ``em.py:98``; the innermost last."""


def trace_of(error: BaseException) -> Trace:
    """What may be said of an error: here, or where it was raised if it comes with a trace of that."""
    trace = getattr(error, "trace", None)
    if isinstance(trace, Trace):
        return trace
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
        self.refused: Counter[tuple[str, str]] = Counter()
        """What was refused since the last summary, and why where that is not all."""

    def event(self, name: str, *, level: str = "info", **facts: Any) -> None:
        """One line, where the level is high enough."""
        if _LEVELS[level] >= self._least:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
            line = {"time": stamp, "level": level, "event": name, **facts}
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
        """What was counted since the last summary, as totals."""
        refused, self.refused = self.refused, Counter()
        for (what, why), number in sorted(refused.items()):
            reason = {"why": why} if why else {}
            self.event("refused", level="warning", what=what, **reason, number=number)
        counted, self._counted = self._counted, Counter()
        for (route, status), number in sorted(counted.items()):
            self.event("requests", route=route, status=status, number=number)

    def fault(self, name: str, error: BaseException | Trace, **facts: Any) -> None:
        """An error nobody foresaw: its kind and where it happened, without its message or values.

        Of a store that failed the message, which is ours.
        """
        if isinstance(error, StoreFailed):
            facts["why"] = str(error)
        trace = error if isinstance(error, Trace) else trace_of(error)
        self.event(name, level="error", error=trace.kind, where=trace.where, **facts)


class Bridge(logging.Handler):
    """What libraries log, as events with the library's name and level; their words are left out.

    The words of a library may hold addresses or what was sent. What one says again and again, such as
    the pool of connections while PostgreSQL is away, is told once a minute.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._last_s: dict[tuple[str, str, str], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        place = f"{Path(record.pathname).name}:{record.lineno}"
        said, now_s = (level, record.name, place), time.monotonic()
        if now_s - self._last_s.get(said, -math.inf) >= _AGAIN_S:
            self._last_s[said] = now_s
            self._log.event("library", level=level, library=record.name, where=place)


def capture_libraries(log: Log) -> None:
    """Send what libraries log, and their warnings, through :class:`Bridge`, and nowhere else."""
    logging.captureWarnings(True)
    root = logging.getLogger()
    root.handlers = [Bridge(log)]
    root.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("geoveil.notes").handlers.clear()  # what a command would print


# --- What Prometheus reads: counters by route and status, commit latency, queue, totals; nothing by cell


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """How many observations fell at or below each bound.

    >>> histogram = Histogram((1.0, 2.0))
    >>> for value in (0.5, 1.5, 9.0):
    ...     histogram.observe(value)
    >>> histogram.cumulative(), histogram.total
    ([1, 2, 3], 11.0)
    """

    def __init__(self, bounds: tuple[float, ...] = _BOUNDS_S) -> None:
        self.bounds = bounds
        self.total = 0.0
        self.counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count an observation."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[int]:
        """Counts at or below each bound; the last is the number of observations."""
        return list(accumulate(self.counts))


_COUNTED = {
    "reports": ("outcome", "Reports by what became of them."),
    "estimates": ("outcome", "Attempts at an estimate by outcome."),
    "refused": ("what", "What was refused, and why."),
}
"""Counters of :class:`Metrics` by one label: its name, and what they are."""


class Metrics:
    """Counts of one server process, kept in memory."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """(route template, status) → requests."""
        self.reports: Counter[str] = Counter(counted=0, repeated=0, refused=0)
        self.estimates: Counter[str] = Counter(
            {"made": 0, "failed": 0, "unfinished": 0, "given up": 0}
        )
        """Attempts by what became of them; one that failed is made again, until it is given up."""
        self.refused: Counter[str] = Counter()
        """What was refused for want of room, time or patience."""
        self.commit_s = Histogram()
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        """Name → a sentence, and a number that is read when somebody asks."""

    def values(self) -> dict[str, Any]:
        """Everything as plain values, for another process; from any thread."""
        return {
            "requests": [[*key, count] for key, count in dict(self.requests).items()],
            **{name: dict(getattr(self, name)) for name in _COUNTED},
            "commits": [*self.commit_s.counts],
            "commits_s": self.commit_s.total,
            "gauges": {name: read() for name, (_, read) in self.gauges.items()},
        }

    def add(self, values: Mapping[str, Any]) -> None:
        """Add the counts of another process; its gauges are its own."""
        for route, status, count in values["requests"]:
            self.requests[route, status] += count
        for name in _COUNTED:
            getattr(self, name).update(values[name])
        self.commit_s.counts = [
            own + other for own, other in zip(self.commit_s.counts, values["commits"], strict=True)
        ]
        self.commit_s.total += values["commits_s"]

    def lines(self) -> Iterator[str]:
        """Everything in the text format of Prometheus."""
        yield from _head("geoveil_info", "gauge", "The program that answers.")
        yield f'geoveil_info{{version="{__version__}"}} 1'
        yield from _head("geoveil_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self.requests.items()):
            yield f'geoveil_requests_total{{route="{route}",status="{status}"}} {count}'
        for what, (label, text) in _COUNTED.items():
            name = f"geoveil_{what}_total"
            yield from _head(name, "counter", text)
            for value, count in sorted(getattr(self, what).items()):
                yield f'{name}{{{label}="{value}"}} {count}'
        name = "geoveil_commit_seconds"
        yield from _head(name, "histogram", "From the upload to the commit that holds it.")
        sums = self.commit_s.cumulative()
        for bound, count in zip([*map(str, self.commit_s.bounds), "+Inf"], sums, strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self.commit_s.total:.6f}"
        yield f"{name}_count {sums[-1]}"
        for name, (text, read) in sorted(self.gauges.items()):
            yield from _head(name, "gauge", text)
            yield f"{name} {read():g}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


# --- Counts of several server processes as those of one service: whichever is asked tells the sums


class SharedMetrics:
    """The counts of this process, and of those beside it where there are any.

    The processes share a port, and whoever asks meets any of them. Each keeps its counts in a file of its own
    in a folder that they share, when it is asked and once a second, and adds what the others have kept. A
    counter that was told never goes back: what a process tells of itself is in its file before, and one that
    takes the place of another goes on with the counts of that.
    """

    def __init__(self, own: Metrics, place: Path | None = None) -> None:
        self._own = own
        self._place = place
        self._writing = Lock()
        if place is not None:
            for before in _read(place):
                own.add(before)

    @property
    def alone(self) -> bool:
        """Whether there is one process, so that nothing is read or written to tell its counts."""
        return self._place is None

    def keep(self) -> None:
        """Write down the counts of this process, for the others and for whoever takes its place."""
        if self._place is None:
            return
        full = suppress(OSError)  # where the disk is, the sums of others are late
        with self._writing, full, replaced_file(self._place) as file:
            file.write(json.dumps(self._own.values()).encode())

    def text(self) -> str:
        """The counts of all in the text format of Prometheus."""
        metrics = self._own
        if self._place is not None:
            self.keep()
            metrics = Metrics()
            metrics.add(own := self._own.values())
            gauges: Counter[str] = Counter(own["gauges"])
            for path in sorted(self._place.parent.glob("[0-9]*.json")):
                for other in _read(path) if path != self._place else ():
                    metrics.add(other)
                    gauges.update(other["gauges"])
            metrics.gauges = {
                name: (text, partial(gauges.__getitem__, name))
                for name, (text, _) in self._own.gauges.items()
            }
        return "\n".join([*metrics.lines(), ""])


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """What a process has kept; nothing where it has kept nothing yet."""
    with suppress(OSError, ValueError):
        yield json.loads(path.read_bytes())
