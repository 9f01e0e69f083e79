"""From true locations straight to counts: no file of reports in between, several processes if wanted."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count
from geoveil.channel.base import Channel
from geoveil.channel.tally import Tally
from geoveil.errors import InvalidFile, Unsupported
from geoveil.randomness import SYSTEM, Randomness, seeded
from geoveil.report.document import mechanism_from_dict, mechanism_to_dict
from geoveil.space.outside import Outside
from geoveil.table.locations import LocationTable
from geoveil.table.reports import CellReporter

Part = tuple[int, FloatArray, FloatArray]
"""Number of a batch, its latitudes, its longitudes."""

Counted = tuple[IntArray, int, int]
"""How often each cell was reported in a batch; how many places were left out, and how many moved."""

_AHEAD = 2  # batches that wait for each process


@dataclass(frozen=True)
class TallySummary:
    """What happened to the rows of a file."""

    rows_read: int
    reports_counted: int
    bad_rows_dropped: int
    outside_dropped: int
    outside_clamped: int


class BatchCounter:
    """Draws the reports of one batch of places after another and counts them; nothing else leaves it.

    With a seed, batch k is drawn from a generator of its own, made from the seed and k, so that the
    counts do not depend on the number of processes.
    """

    def __init__(self, mechanism: Channel, outside: Outside, seed: int | None) -> None:
        self.given = (mechanism, outside, seed)
        self._size = mechanism.report_count
        self._reporter = CellReporter(mechanism, outside=outside)
        self._seed = seed

    def __call__(self, part: Part) -> Counted:
        number, lat, lng = part
        before = self._reporter.left_out, self._reporter.clamped
        cells, _ = self._reporter.draw(lat=lat, lng=lng, randomness=self._source(number))
        missing, moved = self._reporter.left_out - before[0], self._reporter.clamped - before[1]
        return np.bincount(cells, minlength=self._size), missing, moved

    def _source(self, number: int) -> Randomness:
        if self._seed is None:
            return SYSTEM
        return seeded(int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]))


def tally_table(
    locations: LocationTable,
    mechanism: Channel,
    *,
    outside: Outside = "clamp",
    seed: int | None = None,
    processes: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[Tally, TallySummary]:
    """One noisy report for each location of a file, counted at once; the reports are not kept.

    Guarantee: that of the mechanism, for each row; rows about one person add up.
    Cost: memory for a few batches; batches are shared among ``processes``.
    """
    if not isinstance(mechanism, Channel):
        raise Unsupported(f"{mechanism!r} reports points, not cells; use planar-laplace to count")
    counter = BatchCounter(mechanism, outside, seed)  # refuses what has no cells on a map
    parts = ((number, part.lat, part.lng) for number, part in enumerate(locations))
    counts, left_out, clamped = np.zeros(mechanism.report_count, dtype=np.int64), 0, 0
    for found, missing, moved in _counted(counter, parts, count("processes", processes)):
        counts += found
        left_out += missing
        clamped += moved
        advance(locations.read)
    tally = Tally(mechanism, counts)
    if not tally.total:
        raise InvalidFile(
            f"{locations.name} must have a usable location; none of {locations.read} rows has one"
        )
    return tally, TallySummary(locations.read, tally.total, locations.bad, left_out, clamped)


def usable_processes() -> int:
    """The processor cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _counted(counter: BatchCounter, parts: Iterable[Part], processes: int) -> Iterator[Counted]:
    mechanism, outside, seed = counter.given
    if processes == 1 or outside == "raise":  # an error has to name the place among all of them
        yield from map(counter, parts)
        return
    # Fresh processes: a copy of one that has threads may hang.
    fresh = multiprocessing.get_context("spawn")
    given = (mechanism_to_dict(mechanism), outside, seed)
    with ProcessPoolExecutor(processes, fresh, _begin, given) as pool:
        waiting: deque[Future[Counted]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(_count, part))
                if len(waiting) > _AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_counter: BatchCounter | None = None  # of this process, where it is one of a pool


def _begin(document: dict[str, Any], outside: Outside, seed: int | None) -> None:
    global _counter  # noqa: PLW0603 (a process of a pool has no other memory)
    mechanism = mechanism_from_dict(document)
    assert isinstance(mechanism, Channel)
    _counter = BatchCounter(mechanism, outside, seed)


def _count(part: Part) -> Counted:
    assert _counter is not None
    return _counter(part)
