"""What an engine is, the parts of a table that it works on, and the engine of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

from geoveil.arrays import count
from geoveil.errors import EngineFailed
from geoveil.table.locations import Locations, LocationTable, Reading
from geoveil.table.reader import Section, TableReader

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class FilePart:
    """A section of a file, which whoever works on it opens by its name; ``None`` is all of it."""

    path: str
    reading: Reading
    section: Section | None = None
    keep: tuple[str, ...] = ()
    before: int = 0

    @contextmanager
    def open(self) -> Iterator[LocationTable]:
        """The rows of the section."""
        with self.reading.open(self.path) as reader:
            if self.section is not None:
                reader.narrow(self.section)
            yield self.reading.locations(reader, keep=self.keep)


@dataclass(frozen=True)
class ReadPart:
    """One batch of a table that was read already."""

    locations: Locations
    read: int
    bad: int
    before: int
    keep: tuple[str, ...] = ()

    @property
    def section(self) -> Section:
        """Its place among the parts that hold a location."""
        return (self.before,)

    @contextmanager
    def open(self) -> Iterator[ReadPart]:
        """The batch itself."""
        yield self

    def __iter__(self) -> Iterator[Locations]:
        return iter([self.locations])


Part = FilePart | ReadPart
"""Some rows of a table, that whoever works on them can open; ``before`` as many places are known to come
earlier. It travels between processes."""


def read_parts(locations: LocationTable) -> Iterator[ReadPart]:
    """The batches of a table, read here."""
    rows = bad = before = 0
    for batch in locations:
        yield ReadPart(
            batch, locations.read - rows, locations.bad - bad, before, tuple(locations.keep)
        )
        rows, bad, before = locations.read, locations.bad, before + batch.lat.size


def file_parts(
    reader: TableReader, path: str, reading: Reading, keep: Iterable[str] = ()
) -> Iterator[FilePart]:
    """The sections of a file; one part of all where it cannot be cut."""
    sections: Iterator[Section | None] = reader.sections()
    first = next(sections, None)
    for section in chain([first], sections):
        yield FilePart(path, reading, section, tuple(keep))


class Engine(Protocol):
    """Where parts are worked on.

    ``reads_files`` says whether its workers read their parts of a file themselves; otherwise every part
    is read here and handed on.
    """

    reads_files: bool

    def sums(self, work: Callable[[Any], Answer], parts: Iterable[Any]) -> Iterator[Answer]:
        """Sums of ``work(part)``, every part in exactly one of them, whatever fails on the way.

        Work and parts must be such that they can be sent to another process; answers are added by their
        ``add``, where it pleases the engine. A ``GeoveilError`` of the work is raised here, and
        ``EngineFailed`` where the engine itself gives up.
        """


def usable_processes() -> int:
    """The processor cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


_LARGE_BYTES = 1 << 28  # below, starting processes takes longer than the work


def usable_for(path: str) -> int:
    """How many processes of this machine are worth starting for a file."""
    return usable_processes() if Path(path).stat().st_size >= _LARGE_BYTES else 1


_AHEAD = 2  # parts that wait for each process


@dataclass
class LocalEngine:
    """Processes of this machine; one of them is this process itself.

    >>> list(LocalEngine().sums(len, ["ab", "c"]))
    [2, 1]
    """

    processes: int = 1
    reads_files: bool = field(init=False)

    def __post_init__(self) -> None:
        self.reads_files = count("processes", self.processes) > 1

    def sums(self, work: Callable[[Any], Answer], parts: Iterable[Any]) -> Iterator[Answer]:
        """The answers, not added, in the order of the parts, of which a few are under way at a time."""
        if self.processes == 1:
            yield from map(work, parts)
            return
        # Fresh processes: a copy of one that has threads may hang.
        fresh, others = multiprocessing.get_context("spawn"), set(multiprocessing.active_children())
        with ProcessPoolExecutor(self.processes, fresh, _begin, (work,)) as pool:
            waiting: deque[Future[Answer]] = deque()
            try:
                for part in parts:
                    with _deaf():
                        waiting.append(pool.submit(_answer, part))
                    if len(waiting) > _AHEAD * self.processes:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenProcessPool:
                raise EngineFailed(
                    "a process that shared the work was ended from outside (is there enough memory?); "
                    "nothing was written; run again, with fewer processes if memory was short"
                ) from None
            except BaseException:
                for process in set(multiprocessing.active_children()) - others:
                    process.terminate()  # the pool, without them, drops what was still to do
                raise


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started meanwhile never hear Ctrl-C, which this one answers for them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_work: Callable[[Any], Any] | None = None  # of this process, where it is one of a pool


def _begin(work: Callable[[Any], Any]) -> None:
    global _work  # noqa: PLW0603 (a process of a pool has no other memory)
    _work = work


def _answer(part: Any) -> Any:
    assert _work is not None
    return _work(part)
