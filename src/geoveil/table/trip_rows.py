"""Trips in files: both ends reported on, reports counted in pairs, and their tally as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.channel.channel import Channel
from geoveil.document.saved import AnyMechanism, mechanism_from_dict, mechanism_to_dict
from geoveil.errors import InvalidFile, InvalidInput, Unsupported
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.outside import Outside, OutsideCount
from geoveil.space.space import MapSpace
from geoveil.table import obfuscation
from geoveil.table.locations import Reading, cell_numbers, numbers
from geoveil.table.persons import PersonLimit, Reporting
from geoveil.table.reader import Source, TableReader
from geoveil.table.report_places import ReportPlaces, rim_reports
from geoveil.table.tallies import read_document, write_document
from geoveil.trips.pairs import TripTally

VERSION = 1
"""Of documents of trip tallies; a reader refuses any other."""
END_PREFIX = "to_"
"""Of the columns that say where a trip ended."""
_ENDS = ("cell", f"{END_PREFIX}cell")
_LISTS = ("origins", "destinations", "counts")


class TripReporter(obfuscation.Reporter):
    """Turns both ends of trips into noisy reports, each drawn by itself: two cells for each trip.

    A trip with an end outside the map is outside. Guarantee: that of the mechanism for each end, so that a
    trip costs twice.
    """

    def __init__(
        self, mechanism: AnyMechanism, *, outside: Outside = "drop", randomness: Randomness = SYSTEM
    ) -> None:
        if not isinstance(mechanism, Channel):
            raise Unsupported(
                f"{mechanism!r} reports points, not cells; use a mechanism on cells for trips, such as "
                "elastic"
            )
        super().__init__(mechanism, outside=outside, randomness=randomness)
        self.outside.what = "trips"
        self.column_names += [f"{END_PREFIX}{name}" for name in self.column_names]

    def place(
        self, lat: FloatArray, lng: FloatArray, *end: FloatArray
    ) -> tuple[npt.NDArray[Any], BoolArray]:
        """Both ends of each trip, (trips, 2) cells or (trips, 2, 2) degrees, and which are taken."""
        to_lat, to_lng = end
        cells, taken = self.outside.locate_both(self._space, (lat, lng), (to_lat, to_lng))
        if self.mechanism.told_apart is None:  # type: ignore[union-attr]  # a channel, as checked
            return np.stack([np.column_stack((lat, lng)), np.column_stack(end)], axis=1), taken
        return cells, taken

    def draw(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(trips, 2): a report for each end."""
        return np.stack([super(TripReporter, self).draw(places[:, end]) for end in (0, 1)], axis=1)

    def columns(self, drawn: npt.NDArray[Any]) -> obfuscation.Columns:
        """The reports of both ends as columns of a table."""
        ended = super().columns(drawn[:, 1])
        return super().columns(drawn[:, 0]) | {
            f"{END_PREFIX}{name}": values for name, values in ended.items()
        }


def tally_trips(
    trips: obfuscation.PlaceTable,
    mechanism: AnyMechanism,
    *,
    outside: Outside = "drop",
    limit: PersonLimit | None = None,
    randomness: Randomness = SYSTEM,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[TripTally, obfuscation.TableSummary]:
    """One noisy pair for each trip of a file, counted at once; the reports are not kept."""
    reporter = TripReporter(mechanism, outside=outside, randomness=randomness)
    reporting = Reporting(limit, draw=reporter.draw, randomness=randomness)
    counted = _PairCounts(reporter.mechanism)
    placed = obfuscation.placed_rows(trips, reporter.place, reporting, advance)
    for rows in reporting.reports(placed):
        counted.add(rows.places)
    trips.check(reporter.outside)
    tally = counted.tally()
    summary = obfuscation.TableSummary(
        trips.read, tally.total, trips.bad, reporter.outside, reporting.spend
    )
    return tally, summary


def count_trip_reports(
    reader: TableReader,
    channel: Channel,
    reading: Reading,
    *,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[TripTally, OutsideCount]:
    """Count the noisy trips of a file by pairs: its columns ``cell`` and ``to_cell``, else coordinates.

    Cost: one pass, memory for one batch and the pairs seen.
    """
    if rim_reports(channel) is None:
        raise Unsupported(
            f"reports of {channel!r} are not cells; trips cannot be counted from them"
        )
    outside, counted, rows = OutsideCount("clamp", what="trips"), _PairCounts(channel), 0
    for pairs in _reported(reader, channel, reading, outside):
        counted.add(pairs)
        rows += len(pairs)
        advance(rows)
    if not rows:
        raise InvalidFile(f"{reader.name} must have at least one trip; it has none")
    return counted.tally(), outside


def _reported(
    reader: TableReader, channel: Channel, reading: Reading, outside: OutsideCount
) -> Iterator[IntArray]:
    """(trips, 2): the reports of a file, batch by batch."""
    by_cell = [name for name in _ENDS if name in reader.columns]
    if by_cell and reading.lat is None and reading.lng is None:
        if len(by_cell) < len(_ENDS):
            raise InvalidFile(
                f"{reader.name} must have the columns {_ENDS[0]} and {_ENDS[1]}, one for each end of a "
                "trip; make it with geoveil obfuscate --trips"
            )
        rows, why = 0, "; was the file made by another mechanism?"
        for batch in reader.batches(_ENDS):
            ends = [numbers(batch.column(name)) for name in _ENDS]
            size = channel.report_count
            cells = [cell_numbers(each, size, reader.name, why, rows) for each in ends]
            yield np.stack(cells, axis=1)
            rows += batch.num_rows
        return
    if not isinstance(channel.space, MapSpace):
        raise InvalidInput(
            f"{reader.name} must have columns {' and '.join(_ENDS)}: {channel.space!r} has no map"
        )
    places, table = ReportPlaces(channel), reading.locations(reader)
    for part in table:
        assert part.to is not None
        yield outside.locate_both(places, (part.lat, part.lng), part.to)[0]
    table.check(outside)


class _PairCounts:
    """Counts of pairs that come in batches; memory for the different ones."""

    def __init__(self, mechanism: AnyMechanism) -> None:
        assert isinstance(mechanism, Channel)
        self._mechanism = mechanism
        self._tally: TripTally | None = None

    def add(self, pairs: IntArray) -> None:
        more = TripTally(self._mechanism, pairs[:, 0], pairs[:, 1])
        self._tally = more if self._tally is None else self._tally + more

    def tally(self) -> TripTally:
        return TripTally(self._mechanism, [], []) if self._tally is None else self._tally


# --- Documents


def trip_tally_to_dict(tally: TripTally) -> dict[str, Any]:
    """The tally as plain JSON values: the mechanism's document, and each pair seen with its count."""
    first, second = tally.pairs.T
    lists = (first.tolist(), second.tolist(), tally.counts.tolist())
    return {
        "trip_tally": VERSION,
        "mechanism": mechanism_to_dict(tally.channel),
        **dict(zip(_LISTS, lists, strict=True)),
    }


def trip_tally_from_dict(values: object) -> TripTally:
    """The tally that ``trip_tally_to_dict`` described; a clear error for anything else."""
    if isinstance(values, Mapping) and "tally" in values:
        raise InvalidFile("the tally counts places, not trips; give it to geoveil estimate")
    if not isinstance(values, Mapping) or values.get("trip_tally") != VERSION:
        raise InvalidFile(f'a tally of trips must say "trip_tally": {VERSION}')
    mechanism = mechanism_from_dict(values.get("mechanism"))
    if not isinstance(mechanism, Channel):
        raise InvalidFile("a tally of trips must hold a mechanism on cells")
    lists = [values.get(name) for name in _LISTS]
    sound = all(
        isinstance(each, list) and all(type(number) is int for number in each) for each in lists
    )
    if not sound or len({len(each) for each in lists if each is not None}) != 1:
        raise InvalidFile(
            f"a tally of trips must hold {', '.join(_LISTS)}: lists of whole numbers of one length"
        )
    try:
        return TripTally(mechanism, *(np.array(each, dtype=np.int64) for each in lists))
    except OverflowError:
        raise InvalidFile("the numbers of a tally of trips must be below 2⁶³") from None


def save_trip_tally(tally: TripTally, path: str | Path) -> None:
    """Write the tally's document; ``-`` is standard output."""
    write_document(trip_tally_to_dict(tally), path)


def load_trip_tally(path: str | Source) -> TripTally:
    """Read a tally's document, plain or gzip; ``-`` is a pipe."""
    return read_document(path, trip_tally_from_dict)
