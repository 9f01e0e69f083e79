"""Reports of a file drawn in parts on an engine, and put together in the order of the file."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geoveil.document.saved import AnyMechanism, mechanism_to_dict
from geoveil.engine import tallying
from geoveil.engine.engines import Engine, FilePart
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table import writer
from geoveil.table.locations import Locations, Reading
from geoveil.table.obfuscation import Reporter, TableSummary, obfuscate_table
from geoveil.table.reader import Section


@dataclass
class Written(tallying.Summand):
    """The files that parts were written to, by the section of the source, and what became of the rows."""

    files: dict[Section, str] = field(default_factory=dict)
    reports: int = 0

    def add(self, other: Written) -> None:
        super().add(other)
        self.files |= other.files
        self.reports += other.reports


class PartWriter:
    """Draws a report for every place of a part and writes them to a file of their own.

    A part that is worked on again is written to another file: the one that the answer names is used.
    """

    def __init__(
        self, mechanism: AnyMechanism, outside: Outside, seed: int | None, folder: str
    ) -> None:
        self._mechanism, self._rule, self._seed, self._folder = mechanism, outside, seed, folder

    def __reduce__(self) -> tuple[Any, ...]:
        document = tallying.document_bytes(self._mechanism)
        return _part_writer, (document, self._rule, self._seed, self._folder)

    def nothing(self) -> Written:
        """No file."""
        return Written(Reporter(self._mechanism, outside=self._rule).outside)

    def locate(self, batch: Locations, outside: OutsideCount) -> Any:
        """What is reported on, and which of the places are taken."""
        reporter = Reporter(self._mechanism, outside=self._rule)
        reporter.outside = outside
        return reporter.place(batch.lat, batch.lng)

    def __call__(self, part: FilePart) -> Written:
        path = str(Path(self._folder) / f"{secrets.token_hex(8)}.parquet")
        reporter = Reporter(self._mechanism, outside=self._rule)
        with part.open() as locations:
            done = obfuscate_table(
                locations,
                reporter,
                lambda schema: writer.create_table(path, schema),
                seed=self._seed,
                whole=False,
            )
        files = {part.section or (): path} if done.reports else {}
        rows = {"read": done.rows_read, "bad": done.bad_rows_dropped}
        return Written(done.outside, files, done.reports, **rows)


def _part_writer(document: bytes, outside: Outside, seed: int | None, folder: str) -> PartWriter:
    return PartWriter(tallying.mechanism_from_bytes(document), outside, seed, folder)


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
    advance: tallying.Advance = tallying.silent,
) -> TableSummary:
    """A file of reports from a file of places, whose parts an engine works on.

    Parts are written to a passing folder beside the output, which the workers must be able to write to, and
    put together here in the order of the source; the output appears when it is complete, and is the same
    to the last byte for every engine and the same seed.
    """
    document = mechanism_to_dict(mechanism)
    with _passing_folder(output) as folder:
        work = PartWriter(mechanism, outside, seed, str(folder))
        written = tallying.summed(engine, work, source, reading, keep=keep, advance=advance)
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
