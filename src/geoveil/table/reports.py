"""Noisy reports in files: the places that they name, and their counts by cell, by slot and by person."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import scipy

from geoveil.arrays import BoolArray, FloatArray, IntArray, frozen
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.joint import JointTally
from geoveil.document.slots import DAYS, MOST_SLOTS, Slots
from geoveil.errors import InvalidFile, InvalidInput, Unsupported
from geoveil.mechanism import PlanarLaplace
from geoveil.space import AnyGrid, MapSpace, OutsideCount, Points
from geoveil.table import locations
from geoveil.table.columns import arrow_numbers, cell_numbers, entries, is_said, numbers
from geoveil.table.locations import Reading
from geoveil.table.reader import TableReader

if TYPE_CHECKING:
    import pyarrow as pa

Advance = Callable[[int], None]
"""advance(rows): how many were counted so far."""


def rim_reports(channel: Channel) -> int | None:
    """How many reports name the rim, after the cells; ``None`` where reports are no places at all."""
    beyond = channel.report_count - channel.space.size
    return beyond if beyond == 0 or channel.report_steps is not None else None


_AWAY_CELLS = 0.25
"""From the middle of a cell: reports are nearer, however coarsely written, but one true place in five."""


class ReportPlaces:
    """Reports of a channel as places on its map, and places as reports.

    Reports 0 … size − 1 are the cells of the space; those of the rim follow, places beside the map that
    are nobody's cell.

    >>> import geoveil as gv
    >>> grid = gv.Grid.from_box(south=48.8, west=2.2, north=48.82, east=2.23, cell_km=1.0)
    >>> places = ReportPlaces(gv.PlanarGeometric(grid, epsilon_per_km=2.0))
    >>> places.nearest_cells(lat=np.array([48.815]), lng=np.array([2.201]))[0].tolist()
    [6]
    """

    def __init__(self, channel: Channel) -> None:
        if not isinstance(channel.space, MapSpace):
            raise Unsupported(
                f"{channel.space!r} has no map; use a mechanism on a Grid.from_box or on Points"
            )
        if rim_reports(channel) is None:
            raise Unsupported(f"reports of {channel!r} are not cells; use its sample method")
        self._space = channel.space
        self._steps = channel.report_steps if rim_reports(channel) else None

    @cached_property
    def latlng(self) -> tuple[FloatArray, FloatArray]:
        """Latitude and longitude of every report, to a centimetre."""
        degrees = self._space.centres_latlng()
        if self._steps is not None:
            degrees = self._space.plane.to_latlng(self._middles_km)
        lat, lng = (frozen(np.round(angles, 7)) for angles in degrees)
        return lat, lng

    def nearest_cells(self, *, lat: FloatArray, lng: FloatArray) -> tuple[IntArray, BoolArray]:
        """The reports nearest to places in degrees, and which of the places lie in what they name."""
        if self._steps is None:
            return self._space.nearest_cells(lat=lat, lng=lng)
        offset = self._space.plane.to_plane(lat=lat, lng=lng) - self._space.centres[0]
        first, last = self._steps.min(axis=0), self._steps.max(axis=0)  # columns and rows
        steps = np.rint(offset / self._cell_km)
        nearest = np.clip(steps, first, last).astype(np.int64)
        column, row = (nearest - first).T
        inside = (nearest == steps).all(axis=1) & (self._numbers[row, column] >= 0)
        return self._nearest[row, column], inside

    def are_away(self, reports: IntArray, lat: FloatArray, lng: FloatArray) -> BoolArray:
        """Which places lie farther than a quarter of a cell from the middle of the report they are."""
        at = self._space.plane.to_plane(lat=lat, lng=lng)
        return np.hypot(*(at - self._middles_km[reports]).T) > _AWAY_CELLS * self._cell_km

    @property
    def _cell_km(self) -> float:
        assert isinstance(self._space, AnyGrid | Points)
        return self._space.cell_km

    @cached_property
    def _middles_km(self) -> FloatArray:
        centres = self._space.centres
        return centres if self._steps is None else self._steps * self._cell_km + centres[0]

    @cached_property
    def _numbers(self) -> IntArray:
        """(rows, columns) of the rectangle around all reports: the report of each, −1 for none."""
        assert self._steps is not None
        column, row = (self._steps - self._steps.min(axis=0)).T
        numbers = np.full((row.max() + 1, column.max() + 1), -1)
        numbers[row, column] = np.arange(row.size)
        return frozen(numbers)

    @cached_property
    def _nearest(self) -> IntArray:
        """(rows, columns): the report nearest to each place of the rectangle."""
        empty = self._numbers < 0
        at = scipy.ndimage.distance_transform_edt(
            empty, return_distances=False, return_indices=True
        )
        return self._numbers[tuple(at)]


def reported(
    reader: TableReader,
    channel: Channel,
    reading: Reading,
    outside: OutsideCount,
    *,
    ends: Sequence[str] = ("cell",),
    beside: Sequence[str] = (),
) -> Iterator[tuple[IntArray, pa.RecordBatch]]:
    """The reports of a file, batch by batch, with the columns ``beside`` them.

    They are read from the columns ``ends`` of cells, (rows,) or, of trips with two ends, (rows, 2); a file
    without them has coordinates. Coordinates are those of reports, so a report outside of all that the
    channel may report belongs to the nearest of it; such reports are counted, and a file all of whose
    reports are is refused. So is one most of whose places are no middles of cells, as true ones are not.
    """
    what, trips, space = " and ".join(ends), len(ends) > 1, channel.space
    if rim_reports(channel) is None:
        advice = "trips cannot be counted from them" if trips else "use its tally method"
        raise Unsupported(f"reports of {channel!r} are not cells; {advice}")
    there = [name for name in ends if name in reader.columns]
    if there and reading.lat is None and reading.lng is None:
        if there != list(ends):
            raise InvalidFile(
                f"{reader.name} must have the columns {what}, one for each end of a trip; make it with "
                "geoveil obfuscate --trips"
            )
        for cells, batch in _cells_of(reader, channel, reading.bad_rows == "drop", ends, beside):
            yield cells if trips else cells[:, 0], batch
        return
    if not isinstance(space, MapSpace):
        required = f"columns {what}" if trips else "a column 'cell'"
        raise InvalidInput(f"{reader.name} must have {required}, since {space!r} has no map")
    table, places, away = reading.locations(reader, keep=beside), ReportPlaces(channel), 0
    for part in table:
        if part.to is None:
            cells, _ = outside.locate(places, part.lat, part.lng)
        else:
            cells, _ = outside.locate_both(places, (part.lat, part.lng), part.to)
        begun = cells if part.to is None else cells[:, 0]
        away += int(np.count_nonzero(places.are_away(begun, part.lat, part.lng)))
        yield cells, part.others
    if table.read:
        table.check(outside)
    continuous = isinstance(channel, PlanarLaplace)  # whose reports may be points still
    if not continuous and 2 * (away - outside.outside) > outside.places - outside.outside:
        raise InvalidFile(
            f"{reader.name} must hold noisy reports, whose places are the middles of cells; most of these "
            "are not: are they true places? obfuscate them first, or name the cell of each report in a "
            "column cell"
        )


def _cells_of(
    reader: TableReader, channel: Channel, drop: bool, ends: Sequence[str], beside: Sequence[str]
) -> Iterator[tuple[IntArray, pa.RecordBatch]]:
    """(rows, ends): the cells that columns name; where bad rows drop, those that have no number.

    A number that is no cell's is no bad row: it says that another mechanism made the file.
    """
    rows, bad, why = 0, 0, "; was the file made by another mechanism?"
    if channel.report_count > channel.space.size:
        why = f", of which {channel.space.size} and up lie beside the map{why}"
    for batch in reader.batches(ends, beside):
        columns = np.stack([numbers(batch.column(name)) for name in ends], axis=1)
        known: BoolArray = np.asarray(np.isfinite(columns).all(axis=1) | (not drop))
        checked = np.where(known[:, None], columns, 0.0)
        about = (channel.report_count, reader.name, why, rows)
        cells = [cell_numbers(column, *about)[known] for column in checked.T]
        yield np.stack(cells, axis=1), batch.take(arrow_numbers(np.flatnonzero(known)))
        rows += known.size
        bad += int(np.count_nonzero(~known))
    locations.tell_bad_rows(reader.name, bad + reader.refused, rows + reader.refused)


def count_reports(
    reader: TableReader, channel: Channel, reading: Reading, *, advance: Advance = lambda rows: None
) -> tuple[Tally, OutsideCount]:
    """Count the noisy reports of a file. Cost: one pass, memory for one batch."""
    outside, rows = OutsideCount("clamp"), 0
    counts = np.zeros(channel.report_count, dtype=np.int64)
    for cells, _ in reported(reader, channel, reading, outside):
        counts += np.bincount(cells, minlength=counts.size)
        rows += cells.size
        advance(rows)
    if not rows:
        raise InvalidFile(f"{reader.name} must have at least one report; it has none")
    return Tally(channel, counts), outside


# --- Counts by slot: the hour of a time column, the hour of the week, or whatever a column says

TIME_NAMES = ("time", "timestamp", "datetime", "date_time", "when")
"""What columns of times are called."""
_SECONDS = re.compile(r"[1-9][0-9]{9}(\.[0-9]*)?", re.ASCII)
_UTC = re.compile(r" ?UTC\Z")
"""As some databases write the offset."""
_HOURS: Mapping[str, Callable[[datetime], str]] = {
    "hour": lambda at: f"{at.hour:02}",
    "weekday-hour": lambda at: f"{DAYS[at.weekday()]} {at.hour:02}",
}
_ORDER = {name: n for n, name in enumerate(Slots.of_hours("UTC", weekdays=True).names)}


def time_of(value: Any) -> datetime | None:
    """The time that an entry says; ``None`` where it says none, as a day without an hour.

    Ten digits are seconds since 1970, from 2001 on; eight are a day, thirteen milliseconds.

    >>> time_of("2026-05-01T08:30Z").hour, time_of("2026-05-01"), time_of("soon")
    (8, None, None)
    >>> time_of(1777624200.0).isoformat(), time_of("20260501"), time_of(1777624200000)
    ('2026-05-01T08:30:00+00:00', None, None)
    >>> time_of("2026-05-01 08:30:00 UTC").isoformat()
    '2026-05-01T08:30:00+00:00'
    """
    if isinstance(value, datetime):
        return value
    text = (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)).strip()
    if _SECONDS.fullmatch(text):
        return datetime.fromtimestamp(float(text), UTC)
    if text.isdecimal():  # of some such numbers Python would make a time
        return None
    with suppress(ValueError):
        date.fromisoformat(text)
        return None
    with suppress(ValueError):
        return datetime.fromisoformat(_UTC.sub("+00:00", text))
    return None


@dataclass(frozen=True)
class SlotColumn:
    """Which slot a row belongs to.

    ``by`` is "hour" or "weekday-hour" of the column ``time``, else a column of its own. In ``zone`` times
    that name an offset are converted, so that an hour that clocks repeat counts twice and one that they
    skip does not exist; others are taken as they stand, as are all without a zone.
    """

    by: str
    time: str | None = None
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.by not in _HOURS and (self.time or self.zone):
            raise InvalidInput("time and zone must go with hour or weekday-hour")
        if self.zone is not None:
            try:
                ZoneInfo(self.zone)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise InvalidInput(
                    f"zone ({self.zone}) must be a time zone that this machine knows, such as "
                    "Europe/Paris"
                ) from None

    def column(self, reader: TableReader) -> str:
        """The column of a file that slots are found in."""
        columns, name = reader.columns, reader.name
        if self.by not in _HOURS:
            return locations.check_column(columns, self.by, name)
        return locations.find_column(
            columns, TIME_NAMES, "time", name, chosen=self.time, option="--time"
        )

    def name(self, value: Any) -> str | None:
        """The slot of an entry; ``None`` where it has none."""
        if not is_said(value):
            return None
        if self.by not in _HOURS:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            return text.strip()
        at = time_of(value)
        if at is not None and self.zone is not None and at.tzinfo is not None:
            try:
                at = at.astimezone(ZoneInfo(self.zone))
            except OverflowError:  # before the year 1 there, or after 9999
                return None
        return None if at is None else _HOURS[self.by](at)

    def stands(self, value: Any) -> bool:
        """Whether there is a zone that does not convert the time of an entry: it names no offset."""
        at = time_of(value) if self.zone is not None and is_said(value) else None
        return at is not None and at.tzinfo is None


def in_order(names: set[str]) -> list[str]:
    """Slots as they follow each other: hours of the week by the week, whole numbers by size, else by name."""
    if names <= set(_ORDER):
        return sorted(names, key=lambda name: _ORDER[name])
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=int)
    return sorted(names)


def count_by_slot(
    reader: TableReader,
    channel: Channel,
    reading: Reading,
    slots: SlotColumn,
    *,
    advance: Advance = lambda rows: None,
) -> tuple[dict[str, Tally], int, int]:
    """Count the noisy reports of a file by slot: the tallies, how many rows without a slot were left out, and
    how many have a time that the zone does not convert.

    Rows without a slot are refused, or left out where bad rows are. Cost: one pass, memory for one batch
    and the counts.
    """
    column, size = slots.column(reader), channel.report_count
    counts: dict[str, IntArray] = {}
    rows = left_out = standing = 0
    for cells, batch in reported(reader, channel, reading, OutsideCount("clamp"), beside=[column]):
        different, which = entries(batch.column(column), reader.name)
        named = [slots.name(entry) for entry in different]
        numbers = {name: number for number, name in enumerate({*named} - {None})}
        mine = np.array([numbers.get(name, -1) for name in named])[which]
        without = np.flatnonzero(mine < 0)
        if without.size and reading.bad_rows == "raise":
            raise InvalidFile(
                f"row {rows + int(without[0]) + 1} of {reader.name} must have a slot in column "
                f"{column!r}, such as 2026-05-01T08:30Z or seconds since 1970 for hours; leave such rows "
                "out with --bad-rows drop"
            )
        for name, number in numbers.items():
            assert name is not None
            own = np.bincount(cells[mine == number], minlength=size)
            if own.any():  # a dictionary may have entries that no row has
                counts[name] = counts.get(name, 0) + own
            if len(counts) > MOST_SLOTS:
                raise InvalidFile(
                    f"column {column!r} of {reader.name} must name at most {MOST_SLOTS} slots; it "
                    "names more"
                )
        left_out += without.size
        standing += int(np.array([slots.stands(entry) for entry in different])[which].sum())
        rows += mine.size
        advance(rows)
    if not counts:
        raise InvalidFile(f"{reader.name} must have at least one report with a slot; it has none")
    tallies = {name: Tally(channel, counts[name]) for name in in_order(set(counts))}
    return tallies, left_out, standing


# --- Several reports of one person about one place, joined by person

MOST_ENTRIES = 1 << 27
"""Cells × combinations of reports: a gibibyte, and some ten seconds for each position in a cell."""
MOST_REPORTS = 64
"""Of one person."""
_WHOLE = re.compile(r"^(\d+)\.0$")
"""7.0, which pandas makes of the 7 of another file where some row of a column has no number."""


class PersonReports(NamedTuple):
    """The reports of one file: the mechanism, and those of each person."""

    channel: Channel
    by_person: dict[str, list[int]]


def read_persons(
    reader: TableReader,
    channel: Channel,
    reading: Reading,
    column: str,
    *,
    advance: Advance = lambda rows: None,
) -> PersonReports:
    """The reports of a file by the entries of a column; rows without one are refused, or left out as bad."""
    locations.check_column(reader.columns, column, reader.name)
    by_person: dict[str, list[int]] = {}
    rows = nobody = 0
    for cells, batch in reported(reader, channel, reading, OutsideCount("clamp"), beside=[column]):
        different, which = entries(batch.column(column), reader.name)
        named = np.array([is_said(entry) for entry in different])[which]
        unnamed = np.flatnonzero(~named)
        if unnamed.size and reading.bad_rows == "raise":
            raise InvalidFile(
                f"row {rows + int(unnamed[0]) + 1} of {reader.name} must name a person in column "
                f"{column!r}; it names none"
            )
        nobody += unnamed.size
        names = [_person(entry) for entry in different]
        for cell, name in zip(cells[named].tolist(), which[named].tolist(), strict=True):
            by_person.setdefault(names[name], []).append(cell)
        rows += which.size
        advance(rows)
    if not by_person:
        raise InvalidFile(f"{reader.name} must have at least one report; it has none")
    locations.tell_bad_rows(reader.name, nobody, rows, f"person in {column!r}")
    return PersonReports(channel, by_person)


def _person(entry: Any) -> str:
    """What a person is called, whatever the type of the column."""
    name = entry.decode("utf-8", "replace") if isinstance(entry, bytes) else str(entry)
    return _WHOLE.sub(r"\1", name.strip())


def joint_tallies(files: Sequence[PersonReports]) -> list[Tally]:
    """One tally for everybody with a single report, and one for each way to have several.

    A way is how many reports come from which file. No sentence names a person.
    """
    ways: dict[tuple[int, ...], list[list[int]]] = {}
    for person in dict.fromkeys(person for file in files for person in file.by_person):
        mine = [file.by_person.get(person, []) for file in files]
        way = [number for number, some in enumerate(mine) for _ in some]
        reports = [cell for some in mine for cell in some]
        if len(reports) > MOST_REPORTS:
            raise InvalidInput(
                f"reports of one person ({len(reports)}) must be at most {MOST_REPORTS}; is the column "
                "that of persons?"
            )
        ways.setdefault(tuple(way), []).append(reports)
    return [_tally(files, way, rows) for way, rows in sorted(ways.items())]


def _tally(files: Sequence[PersonReports], way: Sequence[int], rows: list[list[int]]) -> Tally:
    channels = [files[number].channel for number in way]
    if len(channels) == 1:
        single: IntArray = np.array(rows, dtype=np.int64)[:, 0]
        return Tally(channels[0], np.bincount(single, minlength=channels[0].report_count))
    kinds = len(Counter(map(tuple, rows)))
    cells = channels[0].space.size
    if cells * kinds > MOST_ENTRIES:
        raise InvalidInput(
            f"combinations of reports ({kinds:,}) × cells ({cells:,}) must be at most {MOST_ENTRIES:,}; "
            "choose larger cells"
        )
    return JointTally(channels, rows)
