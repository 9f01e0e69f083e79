"""From true locations straight to counts: no file of reports in between, several processes if wanted."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count
from geoveil.channel.base import Channel
from geoveil.channel.tally import Tally
from geoveil.errors import Unsupported
from geoveil.randomness import SYSTEM, Randomness, seeded
from geoveil.report.document import mechanism_from_dict, mechanism_to_dict
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table.locations import LocationTable
from geoveil.table.obfuscation import TableSummary, placed_rows
from geoveil.table.persons import PersonLimit, Reporting, Spend
from geoveil.table.reports import CellReporter

Part = tuple[int, FloatArray, FloatArray]
"""Number of a batch, its latitudes, its longitudes."""

Counted = tuple[IntArray, OutsideCount]
"""How often each cell was reported in a batch, and how many of its places lie outside."""

_AHEAD = 2  # batches that wait for each process


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
        outside = self._reporter.outside
        before = outside.places, outside.outside
        cells, taken = self._reporter.place(lat, lng)
        self._reporter.randomness = self._source(number)
        counts = np.bincount(self._reporter.draw(cells[taken]), minlength=self._size)
        here = outside.places - before[0], outside.outside - before[1]
        return counts, OutsideCount(outside.rule, *here, outside.hint)

    def _source(self, number: int) -> Randomness:
        if self._seed is None:
            return SYSTEM
        return seeded(int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0]))


def tally_table(
    locations: LocationTable,
    mechanism: Channel,
    *,
    outside: Outside = "drop",
    limit: PersonLimit | None = None,
    seed: int | None = None,
    processes: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[Tally, TableSummary]:
    """One noisy report for each location of a file, counted at once; the reports are not kept.

    Guarantee: that of the mechanism, for each report; reports about one person add up, and ``limit``
    bounds them. Cost: memory for a few batches; batches are shared among ``processes``, unless
    persons are told apart.
    """
    if not isinstance(mechanism, Channel):
        raise Unsupported(f"{mechanism!r} reports points, not cells; use planar-laplace to count")
    spend = None
    if limit is None:
        counter = BatchCounter(mechanism, outside, seed)
        counts, elsewhere = _in_batches(locations, counter, processes, advance)
    else:
        randomness = SYSTEM if seed is None else seeded(seed)
        reporter = CellReporter(mechanism, outside=outside, randomness=randomness)
        counts, spend = _by_person(locations, reporter, limit, advance)
        elsewhere = reporter.outside
    locations.check(elsewhere)
    total = int(counts.sum())
    summary = TableSummary(locations.read, total, locations.bad, elsewhere, spend)
    return Tally(mechanism, counts), summary


def _in_batches(
    locations: LocationTable, counter: BatchCounter, processes: int, advance: Callable[[int], None]
) -> tuple[IntArray, OutsideCount]:
    mechanism, outside, _ = counter.given
    counts, elsewhere = np.zeros(mechanism.report_count, dtype=np.int64), OutsideCount(outside)
    parts = ((number, part.lat, part.lng) for number, part in enumerate(locations))
    for found, missing in _counted(counter, parts, count("processes", processes)):
        counts += found
        elsewhere.add(missing)
        advance(locations.read)
    return counts, elsewhere


def _by_person(
    locations: LocationTable,
    reporter: CellReporter,
    limit: PersonLimit,
    advance: Callable[[int], None],
) -> tuple[IntArray, Spend | None]:
    """In one process, since the rows of a person may lie anywhere in the file."""
    counts = np.zeros(reporter.mechanism.report_count, dtype=np.int64)
    reporting = Reporting(limit, draw=reporter.draw, randomness=reporter.randomness)
    for rows in reporting.reports(placed_rows(locations, reporter.place, reporting, advance)):
        counts += np.bincount(rows.places, minlength=counts.size)
    return counts, reporting.spend


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
