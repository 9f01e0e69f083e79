"""A file of true locations turned into a file of noisy reports, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, FloatArray
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.outside import OutsideCount
from geoveil.table.frame import check_kept
from geoveil.table.locations import LocationTable
from geoveil.table.persons import PersonLimit, Reporting, Rows, Spend
from geoveil.table.reports import Reporter

if TYPE_CHECKING:
    import pyarrow as pa


Place = Callable[[FloatArray, FloatArray], tuple[npt.NDArray[Any], BoolArray]]
"""place(lat, lng): what is reported on, and which of the places are taken."""


@dataclass(frozen=True)
class TableSummary:
    """What happened to the rows of a file; ``spend`` is ``None`` where persons are not told apart."""

    rows_read: int
    reports: int
    bad_rows_dropped: int
    outside: OutsideCount
    spend: Spend | None


def obfuscate_table(
    locations: LocationTable,
    reporter: Reporter,
    create: Callable[[pa.Schema], Any],
    *,
    limit: PersonLimit | None = None,
    randomness: Randomness = SYSTEM,
    advance: Callable[[int], None] = lambda rows: None,
) -> TableSummary:
    """Read, report and write one batch after another; memory for one batch (and for the persons).

    ``create(schema)`` opens the table to write, as a context manager that keeps what was written
    only when nothing failed. ``limit`` bounds the reports a person, chosen with ``randomness``.
    ``advance(rows)`` is called after each batch, for progress.
    """
    check_kept(locations.keep, reporter.column_names)
    reporting = Reporting(limit, draw=reporter.draw, randomness=randomness)
    batches = (
        _written(rows, reporter)
        for rows in reporting.reports(placed_rows(locations, reporter.place, reporting, advance))
        if rows.numbers.size
    )
    first = next(batches, None)
    if first is None:
        locations.check(reporter.outside)
    assert first is not None
    written = 0
    with create(first.schema) as table:
        for batch in chain([first], batches):
            table.write(batch)
            written += batch.num_rows
        locations.check(reporter.outside)
    return TableSummary(locations.read, written, locations.bad, reporter.outside, reporting.spend)


def placed_rows(
    locations: LocationTable,
    place: Place,
    reporting: Reporting,
    advance: Callable[[int], None] = lambda rows: None,
) -> Iterator[Rows]:
    """The rows of a table that ``place`` takes, batch by batch: cells or degrees, and persons."""
    import pyarrow as pa

    first = 0
    for part in locations:
        places, taken = place(part.lat, part.lng)
        numbers = np.arange(first, first + taken.size)
        first += taken.size
        kept = pa.Table.from_batches([part.kept]) if locations.keep else None
        persons = None
        if part.persons is not None:
            names, which = part.persons
            persons = reporting.number(names)[which]
        if taken.any():
            yield Rows(places, numbers, persons, kept).take(taken)
        advance(locations.read)


def _written(rows: Rows, reporter: Reporter) -> pa.RecordBatch:
    """The reports with the kept columns of the rows they answer."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        name: pa.array(values) for name, values in reporter.columns(rows.places).items()
    }
    if rows.kept is not None:
        kept = rows.kept.combine_chunks()
        columns |= {name: kept.column(name).combine_chunks() for name in kept.column_names}
    return pa.RecordBatch.from_pydict(columns)
