"""Tallies in files, and counting straight into them."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count
from geoveil.channel.channel import Channel, Tally
from geoveil.document.canonical import canonical_bytes, strict_json
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.randomness import SYSTEM, seeded
from geoveil.space import MapSpace, Outside, OutsideCount
from geoveil.table import obfuscation, persons, writer
from geoveil.table.locations import LocationTable, Reading, cell_numbers, numbers
from geoveil.table.reader import PIPE, Source, TableReader, unpacking
from geoveil.table.report_places import ReportPlaces, rim_reports

VERSION = 1
"""Of tally documents; a reader refuses any other."""

_LOOKED_AT = 1 << 16


def tally_to_dict(tally: Tally) -> dict[str, Any]:
    """The tally as plain JSON values: version, the mechanism's document, the counts of its reports.

    >>> import geoveil as gv
    >>> tally = gv.Tally(gv.RandomizedResponse(gv.Line(2), epsilon=1.0), [3, 4])
    >>> tally_to_dict(tally)["counts"]
    [3, 4]
    """
    document = mechanism_to_dict(tally.channel)
    return {"tally": VERSION, "mechanism": document, "counts": tally.counts.tolist()}


def tally_from_dict(values: object) -> Tally:
    """The tally that ``tally_to_dict`` described; a clear error for anything else."""
    if isinstance(values, Mapping) and "trip_tally" in values:
        raise InvalidFile("the tally counts trips, not places; give it to geoveil flows")
    if not isinstance(values, Mapping) or values.get("tally") != VERSION:
        raise InvalidFile(f'a tally document must say "tally": {VERSION}')
    mechanism, counts = mechanism_from_dict(values.get("mechanism")), values.get("counts")
    if not isinstance(mechanism, Channel):
        raise InvalidFile("a tally document must hold a mechanism on cells")
    if not isinstance(counts, list) or not all(
        type(each) is int for each in counts
    ):  # no true, no 1.0
        raise InvalidFile("the counts of a tally document must be a list of whole numbers")
    try:
        return Tally(mechanism, np.array(counts, dtype=np.int64))
    except OverflowError:
        raise InvalidFile("the counts of a tally document must be below 2⁶³") from None


def save_tally(tally: Tally, path: str | Path) -> None:
    """Write the tally's document; ``-`` is standard output."""
    with writer.binary_sink(str(path)) as sink:
        sink.write(canonical_bytes(tally_to_dict(tally)) + b"\n")


def load_tally(path: str | Source) -> Tally:
    """Read a tally's document, plain or gzip; ``-`` is a pipe."""
    values, name = document_of(path)
    try:
        return tally_from_dict(values)
    except GeoveilError as problem:
        raise InvalidFile(f"{name}: {problem}") from None


def document_of(path: str | Source) -> tuple[object, str]:
    """The values of a tally document, plain or gzip, and the name of the file."""
    with Source.of(path) as source, unpacking(source.name):
        data = source.read()
    try:
        return strict_json(data), source.name
    except (ValueError, RecursionError):
        raise InvalidFile(
            f"{source.name} must be a JSON tally document in UTF-8 that names no entry twice"
        ) from None


def is_tally(path: str | Source) -> bool:
    """Whether a file is a tally document, by its ending and its first bytes; an open pipe by these."""
    if isinstance(path, str):
        if not path.lower().removesuffix(".gz").endswith(".json"):
            return False
        with Source(path) as source:
            return is_tally(source)
    with unpacking(path.name):
        head = path.head(_LOOKED_AT)
    features = b'"features"' in head or b'"FeatureCollection"' in head
    return not features and (path.path != PIPE or head.lstrip()[:1] == b"{")


def count_reports(
    reader: TableReader,
    channel: Channel,
    reading: Reading,
    *,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[Tally, OutsideCount]:
    """Count the noisy reports of a file: its column ``cell``, else its coordinates put in cells.

    Coordinates are those of reports, so a report outside of all that the channel may report belongs to
    the nearest of it; such reports are counted, and a file all of whose reports are is refused.
    Cost: one pass, memory for one batch.
    """
    if rim_reports(channel) is None:
        raise Unsupported(f"reports of {channel!r} are not cells; use its tally method")
    outside = OutsideCount("clamp")
    counts = np.zeros(channel.report_count, dtype=np.int64)
    rows = 0
    for cells in _reported(reader, channel, reading, outside):
        counts += np.bincount(cells, minlength=counts.size)
        rows += cells.size
        advance(rows)
    if not rows:
        raise InvalidFile(f"{reader.name} must have at least one report; it has none")
    return Tally(channel, counts), outside


def _reported(
    reader: TableReader, channel: Channel, reading: Reading, outside: OutsideCount
) -> Iterator[IntArray]:
    """The reports of a file, batch by batch."""
    space = channel.space
    if "cell" in reader.columns and reading.lat is None and reading.lng is None:
        rows, why = 0, "; was the file made by another mechanism?"
        if channel.report_count > space.size:
            why = f", of which {space.size} and up lie beside the map{why}"
        for batch in reader.batches(["cell"]):
            named = numbers(batch.column("cell"))
            yield cell_numbers(named, channel.report_count, reader.name, why, rows)
            rows += named.size
        return
    if not isinstance(space, MapSpace):
        raise InvalidInput(f"{reader.name} must have a column 'cell', since {space!r} has no map")
    locations, places = reading.locations(reader), ReportPlaces(channel)
    for part in locations:
        yield outside.locate(places, part.lat, part.lng)[0]
    if outside.places:
        locations.check(outside)


# --- From true locations straight to counts: no file of reports in between, several processes if wanted


Part = tuple[int, int, FloatArray, FloatArray]
"""Number of a batch, how many places came before it, its latitudes, its longitudes."""

Counted = tuple[IntArray, OutsideCount]
"""How often each report came in a batch, and how many of its places lie outside."""

_AHEAD = 2  # batches that wait for each process


def tally_table(
    locations: LocationTable,
    mechanism: Channel,
    *,
    outside: Outside = "drop",
    limit: persons.PersonLimit | None = None,
    seed: int | None = None,
    processes: int = 1,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[Tally, obfuscation.TableSummary]:
    """One noisy report for each location of a file, counted at once; the reports are not kept.

    Guarantee: that of the mechanism, for each report; reports about one person add up, and ``limit``
    bounds them. Cost: memory for a few batches; batches are shared among ``processes``, unless
    persons are told apart: the rows of a person may lie anywhere in the file.
    """
    if not isinstance(mechanism, Channel):
        raise Unsupported(f"{mechanism!r} reports points, not cells; use planar-laplace to count")
    randomness = SYSTEM if seed is None else seeded(seed)
    reporter = obfuscation.Reporter(mechanism, outside=outside, randomness=randomness)
    counts, elsewhere = np.zeros(mechanism.report_count, dtype=np.int64), reporter.outside
    spend = None
    if limit is None:
        for counted, beyond in _counted(
            locations, mechanism, outside, seed, count("processes", processes)
        ):
            counts += counted
            elsewhere.add(beyond)
            advance(locations.read)
    else:
        reporting = persons.Reporting(limit, draw=reporter.draw, randomness=randomness)
        for rows in reporting.reports(
            obfuscation.placed_rows(locations, reporter.place, reporting, advance)
        ):
            counts += np.bincount(rows.places, minlength=counts.size)
        spend = reporting.spend
    locations.check(elsewhere)
    total = int(counts.sum())
    summary = obfuscation.TableSummary(locations.read, total, locations.bad, elsewhere, spend)
    return Tally(mechanism, counts), summary


def usable_processes() -> int:
    """The processor cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _counted(
    locations: LocationTable, mechanism: Channel, outside: Outside, seed: int | None, processes: int
) -> Iterator[Counted]:
    """The counts of each batch, in the order of the file."""
    if processes == 1:
        yield from map(BatchCounter(mechanism, outside, seed), _parts(locations))
        return
    # Fresh processes: a copy of one that has threads may hang.
    fresh = multiprocessing.get_context("spawn")
    given = (mechanism_to_dict(mechanism), outside, seed)
    with ProcessPoolExecutor(processes, fresh, _begin, given) as pool:
        waiting: deque[Future[Counted]] = deque()
        try:
            for part in _parts(locations):
                waiting.append(pool.submit(_count, part))
                if len(waiting) > _AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _parts(locations: LocationTable) -> Iterator[Part]:
    before = 0
    for number, part in enumerate(locations):
        yield number, before, part.lat, part.lng
        before += part.lat.size


class BatchCounter:
    """Draws the reports of one batch of places after another and counts them; nothing else leaves it.

    With a seed, batch k is drawn from a generator of its own, made from the seed and k, so that the
    counts do not depend on the number of processes.
    """

    def __init__(self, mechanism: Channel, outside: Outside, seed: int | None) -> None:
        self._size = mechanism.report_count
        self._reporter = obfuscation.Reporter(mechanism, outside=outside)
        self._seed = seed

    def __call__(self, part: Part) -> Counted:
        number, before, lat, lng = part
        if self._seed is not None:
            own = np.random.SeedSequence([self._seed, number]).generate_state(1)[0]
            self._reporter.randomness = seeded(int(own))
        # An error names a place by its number in the whole file.
        outside = replace(self._reporter.outside, places=before, outside=0, hint="")
        self._reporter.outside = outside
        cells, taken = self._reporter.place(lat, lng)
        outside.places -= before
        return np.bincount(self._reporter.draw(cells[taken]), minlength=self._size), outside


_counter: BatchCounter | None = None  # of this process, where it is one of a pool


def _begin(document: dict[str, Any], outside: Outside, seed: int | None) -> None:
    global _counter  # noqa: PLW0603 (a process of a pool has no other memory)
    mechanism = mechanism_from_dict(document)
    assert isinstance(mechanism, Channel)
    _counter = BatchCounter(mechanism, outside, seed)


def _count(part: Part) -> Counted:
    assert _counter is not None
    return _counter(part)
