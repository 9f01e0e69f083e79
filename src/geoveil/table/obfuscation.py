"""A file of true locations turned into a file of noisy reports, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from geoveil.errors import InvalidFile
from geoveil.table.frame import check_kept
from geoveil.table.locations import Locations, LocationTable
from geoveil.table.reports import Reporter, Reports

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ObfuscationSummary:
    """What happened to the rows of a file."""

    rows_read: int
    reports_written: int
    bad_rows_dropped: int
    outside_dropped: int
    outside_clamped: int


def obfuscate_table(
    locations: LocationTable,
    reporter: Reporter,
    create: Callable[[pa.Schema], Any],
    *,
    advance: Callable[[int], None] = lambda rows: None,
) -> ObfuscationSummary:
    """Read, report and write one batch after another; memory for one batch.

    ``create(schema)`` opens the table to write, as a context manager that keeps what was written
    only when nothing failed. ``advance(rows)`` is called after each batch, for progress.
    """
    check_kept(locations.keep, reporter.column_names)
    batches = _noisy_batches(locations, reporter)
    first = next(batches, None)
    if first is None:
        raise InvalidFile(_nothing(locations))
    written = 0
    with create(first.schema) as table:
        for batch in chain([first], batches):
            table.write(batch)
            written += batch.num_rows
            advance(locations.read)
    return ObfuscationSummary(
        rows_read=locations.read,
        reports_written=written,
        bad_rows_dropped=locations.bad,
        outside_dropped=reporter.left_out,
        outside_clamped=reporter.clamped,
    )


def _noisy_batches(locations: LocationTable, reporter: Reporter) -> Iterator[pa.RecordBatch]:
    """The batches that are not empty."""
    for part in locations:
        batch = _joined(reporter.report(lat=part.lat, lng=part.lng), part)
        if batch.num_rows:
            yield batch


def _nothing(locations: LocationTable) -> str:
    if locations.read == 0:
        return f"{locations.name} must have at least one row; it has none"
    return f"{locations.name} must have a usable location; none of {locations.read} rows has one"


def _joined(reports: Reports, part: Locations) -> pa.RecordBatch:
    """The reports with the kept columns of the rows they answer."""
    import pyarrow as pa

    kept = part.kept if reports.answered is None else part.kept.filter(pa.array(reports.answered))
    arrays = [pa.array(values) for values in reports.columns.values()]
    names = [*reports.columns, *kept.schema.names]
    return pa.RecordBatch.from_arrays([*arrays, *kept.columns], names=names)
