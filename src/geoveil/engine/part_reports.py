"""Reports drawn from the parts of a file on an engine: counted at once, or written in its order."""

from __future__ import annotations

import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from geoveil.arrays import BoolArray, IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.document.canonical import canonical_bytes, strict_json
from geoveil.document.saved import AnyMechanism, mechanism_from_dict, mechanism_to_dict
from geoveil.engine.engines import Engine, LocalEngine, Part, file_parts, read_parts
from geoveil.errors import InvalidFile, OutsideSpace, Unsupported
from geoveil.randomness import seeded_for
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table import obfuscation, writer
from geoveil.table.locations import Locations, Reading
from geoveil.table.obfuscation import Reporter, TableSummary
from geoveil.table.reader import Section, is_pipe

Advance = Callable[[float | None, int], None]
"""advance(share, rows): how far the work is, where that is known, and rows read so far."""


def silent(share: float | None, rows: int) -> None:
    """Nobody is told."""


@dataclass
class Summand:
    """The result of a part, which adds to the results of others; and what became of its rows."""

    outside: OutsideCount
    read: int = field(default=0, kw_only=True)
    bad: int = field(default=0, kw_only=True)

    def add(self, other: Any) -> None:
        """Take in another part, whose answer must not have been taken in before."""
        self.outside.add(other.outside)
        self.read += other.read
        self.bad += other.bad


Sum = TypeVar("Sum", bound=Summand)


class Work(ABC, Generic[Sum]):
    """What is done with every part of a file."""

    @abstractmethod
    def nothing(self) -> Sum:
        """The result of no rows at all."""

    @abstractmethod
    def locate(self, batch: Locations, outside: OutsideCount) -> tuple[Any, BoolArray]:
        """What reports are drawn from, and which places report; those outside are counted, or refused."""

    @abstractmethod
    def __call__(self, part: Part) -> Sum:
        """The result of a part."""


class BatchWork(Work[Sum]):
    """Work that takes one batch of rows after another."""

    @abstractmethod
    def take(self, batch: Locations, total: Sum) -> None:
        """Add the result of some rows."""

    def __call__(self, part: Part) -> Sum:
        with part.open() as rows:
            return self.over(rows, part.before)

    def over(self, rows: Any, before: int = 0) -> Sum:
        """The result of an open table; ``before`` is how many places of the file came earlier."""
        total = self.nothing()
        total.outside.places = before  # so that an error names a place by its number
        for batch in rows:
            self.take(batch, total)
        total.outside.places -= before
        total.read, total.bad = rows.read, rows.bad
        return total


class Sent:
    """A mechanism on its way to another process: it leaves as its document and arrives as itself."""

    def __init__(self, mechanism: AnyMechanism) -> None:
        self._document = canonical_bytes(mechanism_to_dict(mechanism))

    def __reduce__(self) -> tuple[Any, ...]:
        return _mechanism_of, (self._document,)


@lru_cache(maxsize=8)
def _mechanism_of(document: bytes) -> AnyMechanism:
    """The mechanism that was sent; put together once in a process."""
    return mechanism_from_dict(strict_json(document))


class _Drawing(Work[Sum]):
    """Work that draws a report for every place.

    With a seed, each batch of a file is drawn from a source of its own, made from the seed and the number
    of the batch: reports depend neither on how the file is cut nor on who works on it.
    """

    def __init__(self, mechanism: AnyMechanism, outside: Outside, seed: int | None) -> None:
        self._mechanism = mechanism
        self._reporter = Reporter(mechanism, outside=outside)
        self._seed = seed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (Sent(self._mechanism), self._reporter.outside.rule, self._seed)

    def locate(self, batch: Locations, outside: OutsideCount) -> tuple[Any, BoolArray]:
        self._reporter.outside = outside
        return self._reporter.place(batch.lat, batch.lng)

    def _nobody_outside(self) -> OutsideCount:
        return replace(self._reporter.outside, places=0, outside=0, hint="")


@dataclass
class Counted(Summand):
    """How often each report was drawn, and what became of the rows."""

    counts: IntArray

    def add(self, other: Counted) -> None:
        super().add(other)
        self.counts = self.counts + other.counts


class PartCounter(_Drawing[Counted], BatchWork[Counted]):
    """Draws a report for every place of a part and counts them; nothing else leaves it."""

    _mechanism: Channel

    def nothing(self) -> Counted:
        size = self._mechanism.report_count
        return Counted(self._nobody_outside(), np.zeros(size, dtype=np.int64))

    def take(self, batch: Locations, total: Counted) -> None:
        if self._seed is not None:
            self._reporter.randomness = seeded_for(self._seed, batch.number)
        places, inside = self.locate(batch, total.outside)
        reports = self._reporter.draw(places[inside])
        total.counts += np.bincount(reports, minlength=total.counts.size)


def tally_file(
    source: str,
    reading: Reading,
    mechanism: AnyMechanism,
    *,
    outside: Outside = "drop",
    seed: int | None = None,
    engine: Engine | None = None,
    advance: Advance = silent,
) -> tuple[Tally, TableSummary]:
    """One noisy report for each location of a file, counted at once; the reports are not kept.

    The same seed gives the same counts on every engine.
    Guarantee: that of the mechanism, for each report; reports about one person add up.
    Cost: memory for a few batches in every process.
    """
    if not isinstance(mechanism, Channel):
        raise Unsupported(f"{mechanism!r} reports points, not cells; use planar-laplace to count")
    work = PartCounter(mechanism, outside, seed)
    total = summed(engine or LocalEngine(), work, source, reading, advance=advance)
    reports = int(total.counts.sum())
    summary = TableSummary(total.read, reports, total.bad, total.outside, None)
    return Tally(mechanism, total.counts), summary


def summed(
    engine: Engine,
    work: Work[Sum],
    source: str,
    reading: Reading,
    *,
    keep: Sequence[str] = (),
    advance: Advance = silent,
) -> Sum:
    """The sum of what ``work`` makes of the parts of a file; one clear error where a row is wrong."""
    with reading.open(source) as reader:
        locations = reading.locations(reader, keep=keep)
        apart = engine.reads_files and not is_pipe(source)
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


@dataclass
class Written(Summand):
    """The files that parts were written to, by the section of the source, and what became of the rows."""

    files: dict[Section, str] = field(default_factory=dict)
    reports: int = 0

    def add(self, other: Written) -> None:
        super().add(other)
        self.files |= other.files
        self.reports += other.reports


class PartWriter(_Drawing[Written]):
    """Draws a report for every place of a part and writes them to a file of their own.

    A part that is worked on again is written to another file: the one that the answer names is used.
    """

    def __init__(
        self, mechanism: AnyMechanism, outside: Outside, seed: int | None, folder: str
    ) -> None:
        super().__init__(mechanism, outside, seed)
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        kind, arguments = super().__reduce__()
        return kind, (*arguments, self._folder)

    def nothing(self) -> Written:
        return Written(self._nobody_outside())

    def __call__(self, part: Any) -> Written:
        path = str(Path(self._folder) / f"{secrets.token_hex(8)}.parquet")
        self._reporter.outside = self._nobody_outside()
        with part.open() as locations:
            summary = obfuscation.obfuscate_table(
                locations,
                self._reporter,
                lambda schema: writer.create_table(path, schema),
                seed=self._seed,
                whole=False,
            )
        files = {part.section or (): path} if summary.reports else {}
        rows = {"read": summary.rows_read, "bad": summary.bad_rows_dropped}
        return Written(summary.outside, files, summary.reports, **rows)


def obfuscate_file(
    source: str,
    reading: Reading,
    mechanism: AnyMechanism,
    output: str,
    engine: Engine,
    *,
    keep: Sequence[str] = (),
    outside: Outside = "drop",
    seed: int | None = None,
    advance: Advance = silent,
) -> TableSummary:
    """A file of reports from a file of places, whose parts an engine works on.

    Parts are written to a passing folder beside the output, which the workers must be able to write to, and
    put together here in the order of the source; the output appears when it is complete, and is the same
    to the last byte for every engine and the same seed.
    """
    document = mechanism_to_dict(mechanism)
    with _passing_folder(output) as folder:
        work = PartWriter(mechanism, outside, seed, str(folder))
        written = summed(engine, work, source, reading, keep=keep, advance=advance)
        files = [written.files[section] for section in sorted(written.files)]
        _join(files, output, reading.format, document)
    return TableSummary(written.read, written.reports, written.bad, written.outside, None)


@contextmanager
def _passing_folder(output: str) -> Iterator[Path]:
    """A folder beside the output that nobody else can read, gone at the end with all that is in it."""
    target = Path(output).resolve()
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}.parts")
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), output) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _join(
    files: Sequence[str], output: str, format: str | None, document: Mapping[str, Any]
) -> None:
    """The batches of all files, one after another, in one table."""
    from pyarrow import parquet

    schema = parquet.read_schema(files[0]).remove_metadata()
    with writer.create_table(output, schema, format=format, document=document) as table:
        for path in files:
            with parquet.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    for batch in file.read_row_group(group).combine_chunks().to_batches():
                        table.write(batch)
