"""From the true places of a file straight to counts: no file of reports in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np

from geoveil.arrays import BoolArray, IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.document.canonical import canonical_bytes, strict_json
from geoveil.document.saved import AnyMechanism, mechanism_from_dict, mechanism_to_dict
from geoveil.engine.engines import Engine, LocalEngine, Part, file_parts, read_parts
from geoveil.errors import InvalidFile, OutsideSpace, Unsupported
from geoveil.randomness import SYSTEM, seeded, seeded_for
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table import obfuscation, persons
from geoveil.table.locations import Locations, Reading
from geoveil.table.obfuscation import Reporter, TableSummary
from geoveil.table.reader import PIPE

Advance = Callable[[float | None, int], None]
"""advance(share, rows): how far the work is, where that is known, and rows read so far."""


def silent(share: float | None, rows: int) -> None:
    """Nobody is told."""


@dataclass
class Summand:
    """What comes of a part: it adds to what comes of others, and says what became of the rows."""

    outside: OutsideCount
    read: int = field(default=0, kw_only=True)
    bad: int = field(default=0, kw_only=True)

    def add(self, other: Any) -> None:
        """Take in another part, whose answer must not have been taken in before."""
        self.outside.add(other.outside)
        self.read += other.read
        self.bad += other.bad


Sum_co = TypeVar("Sum_co", bound=Summand, covariant=True)


class Work(Protocol[Sum_co]):
    """What is done with every part of a file."""

    def __call__(self, part: Any) -> Sum_co:
        """What comes of a part."""

    def nothing(self) -> Sum_co:
        """What comes of no rows at all."""

    def locate(self, batch: Locations, outside: OutsideCount) -> Any:
        """Find places on the map, count those outside, and refuse what is to be refused."""


@dataclass
class Counted(Summand):
    """How often each report was drawn, and what became of the rows."""

    counts: IntArray

    def add(self, other: Counted) -> None:
        super().add(other)
        self.counts = self.counts + other.counts


class PartCounter:
    """Draws a report for every place of a part and counts them; nothing else leaves it.

    With a seed, each batch of a file is drawn from a source of its own, made from the seed and the number
    of the batch: the counts depend neither on how the file is cut nor on who works on it. It travels
    between processes as the document of its mechanism.
    """

    def __init__(self, mechanism: Channel, outside: Outside, seed: int | None) -> None:
        self._mechanism = mechanism
        self._reporter = Reporter(mechanism, outside=outside)
        self._seed = seed

    def __reduce__(self) -> tuple[Any, ...]:
        outside = self._reporter.outside.rule
        return _counter, (document_bytes(self._mechanism), outside, self._seed)

    def nothing(self) -> Counted:
        """No report, and nothing known of any place."""
        outside = replace(self._reporter.outside, places=0, outside=0, hint="")
        return Counted(outside, np.zeros(self._mechanism.report_count, dtype=np.int64))

    def __call__(self, part: Part) -> Counted:
        counted = self.nothing()
        # An error names a place by its number in the table, as far as it is known.
        outside = replace(counted.outside, places=part.before)
        with part.open() as rows:
            for batch in rows:
                if self._seed is not None:
                    self._reporter.randomness = seeded_for(self._seed, batch.number)
                places, taken = self.locate(batch, outside)
                drawn = self._reporter.draw(places[taken])
                counted.counts += np.bincount(drawn, minlength=counted.counts.size)
            outside.places -= part.before
            return replace(counted, outside=outside, read=rows.read, bad=rows.bad)

    def locate(self, batch: Locations, outside: OutsideCount) -> tuple[Any, BoolArray]:
        """What is reported on, and which of the places are taken."""
        self._reporter.outside = outside
        return self._reporter.place(batch.lat, batch.lng)


def document_bytes(mechanism: AnyMechanism) -> bytes:
    """The mechanism as it travels."""
    return canonical_bytes(mechanism_to_dict(mechanism))


@lru_cache(maxsize=8)
def mechanism_from_bytes(document: bytes) -> AnyMechanism:
    """The mechanism that has travelled; put together once in a process."""
    return mechanism_from_dict(strict_json(document))


def _counter(document: bytes, outside: Outside, seed: int | None) -> PartCounter:
    mechanism = mechanism_from_bytes(document)
    assert isinstance(mechanism, Channel)
    return PartCounter(mechanism, outside, seed)


def tally_file(
    source: str,
    reading: Reading,
    mechanism: AnyMechanism,
    *,
    outside: Outside = "drop",
    limit: persons.PersonLimit | None = None,
    seed: int | None = None,
    engine: Engine | None = None,
    advance: Advance = silent,
) -> tuple[Tally, TableSummary]:
    """One noisy report for each location of a file, counted at once; the reports are not kept.

    The same seed gives the same counts on every engine. Rows of a person may lie anywhere in the file, so
    that with a ``limit`` this process reads all of it.
    Guarantee: that of the mechanism, for each report; reports about one person add up, and ``limit``
    bounds them. Cost: memory for a few batches in every process.
    """
    if not isinstance(mechanism, Channel):
        raise Unsupported(f"{mechanism!r} reports points, not cells; use planar-laplace to count")
    if limit is not None:
        return _tally_persons(source, reading, mechanism, outside, limit, seed, advance)
    work = PartCounter(mechanism, outside, seed)
    total = summed(engine or LocalEngine(), work, source, reading, advance=advance)
    reports = int(total.counts.sum())
    summary = TableSummary(total.read, reports, total.bad, total.outside, None)
    return Tally(mechanism, total.counts), summary


def _tally_persons(
    source: str, reading: Reading, mechanism: Channel, outside: Outside,
    limit: persons.PersonLimit, seed: int | None, advance: Advance,
) -> tuple[Tally, TableSummary]:  # fmt: skip
    """The same, with so many reports a person."""
    randomness = SYSTEM if seed is None else seeded(seed)
    reporter = Reporter(mechanism, outside=outside, randomness=randomness)
    reporting = persons.Reporting(limit, draw=reporter.draw, randomness=randomness)
    counts = np.zeros(mechanism.report_count, dtype=np.int64)
    with reading.open(source) as reader:
        locations = reading.locations(reader, limit=limit)
        placed = obfuscation.placed_rows(
            locations, reporter.place, reporting, lambda rows: advance(reader.fraction, rows)
        )
        for rows in reporting.reports(placed):
            counts += np.bincount(rows.places, minlength=counts.size)
    locations.check(reporter.outside)
    total = int(counts.sum())
    summary = TableSummary(locations.read, total, locations.bad, reporter.outside, reporting.spend)
    return Tally(mechanism, counts), summary


def summed(
    engine: Engine,
    work: Work[Sum_co],
    source: str,
    reading: Reading,
    *,
    keep: Sequence[str] = (),
    advance: Advance = silent,
) -> Sum_co:
    """The sum of what ``work`` makes of the parts of a file; one clear error where a row is wrong."""
    with reading.open(source) as reader:
        locations = reading.locations(reader, keep=keep)
        apart = engine.reads_files and source != PIPE
        parts: Iterable[Part] = read_parts(locations)
        if apart:
            parts = file_parts(reader, source, reading, keep)
        total = work.nothing()
        try:
            for answer in engine.sums(work, parts):
                total.add(answer)
                advance(None if apart else reader.fraction, total.read)
            if apart:
                locations.count_elsewhere(total.read, total.bad)
            locations.check(total.outside)
        except (InvalidFile, OutsideSpace):
            if apart:  # nobody who works on a part knows which row of the file it begins with
                _name_the_row(source, reading, work)
            raise
    return total


def _name_the_row(source: str, reading: Reading, work: Work[Any]) -> None:
    """Read a file from its front and raise what is wrong with it; nothing is drawn."""
    total = work.nothing()
    with reading.open(source) as reader:
        locations = reading.locations(reader)
        for batch in locations:
            work.locate(batch, total.outside)
        locations.check(total.outside)
