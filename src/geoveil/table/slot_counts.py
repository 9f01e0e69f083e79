"""Reports counted by slot: the hour of a time column, the hour of the week, or whatever a column says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from geoveil.arrays import IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.document.slots import DAYS, MOST_SLOTS, Slots
from geoveil.errors import InvalidFile, InvalidInput, Unsupported
from geoveil.space import MapSpace, OutsideCount
from geoveil.table import locations, results, writer
from geoveil.table.consecutive import TIME_NAMES
from geoveil.table.locations import Reading, cell_numbers, check_column, find_column, numbers
from geoveil.table.reader import DOCUMENT, Format, TableReader, format_of
from geoveil.table.report_places import ReportPlaces, rim_reports

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""Of files with one map a slot."""
_HOURS: Mapping[str, Callable[[datetime], str]] = {
    "hour": lambda at: f"{at.hour:02}",
    "weekday-hour": lambda at: f"{DAYS[at.weekday()]} {at.hour:02}",
}
_ORDER = {name: n for n, name in enumerate(Slots.of_hours("UTC", weekdays=True).names)}


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
            return check_column(columns, self.by, name)
        if self.time is not None:
            return check_column(columns, self.time, name)
        return find_column(columns, TIME_NAMES, "time", name)

    def names(self, values: pa.Array) -> list[str | None]:
        """The slot of every entry; ``None`` where it has none."""
        known: dict[Any, str | None] = {}
        found = []
        for value in values.to_pylist():
            if value not in known:
                known[value] = self._name(value)
            found.append(known[value])
        return found

    def _name(self, value: Any) -> str | None:
        if value is None or value == "":
            return None
        if self.by not in _HOURS:
            return value.decode() if isinstance(value, bytes) else str(value)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        try:
            at = (
                value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
            )
        except ValueError:
            return None
        if self.zone is not None and at.tzinfo is not None:
            at = at.astimezone(ZoneInfo(self.zone))
        return _HOURS[self.by](at)


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
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[dict[str, Tally], int]:
    """Count the noisy reports of a file by slot; the tallies, and how many rows without a slot were left out.

    Rows without a slot are refused, or left out where bad rows are. Cost: one pass, memory for one batch
    and the counts.
    """
    if rim_reports(channel) is None:
        raise Unsupported(f"reports of {channel!r} are not cells; use its tally method")
    column = slots.column(reader)
    counts: dict[str, IntArray] = {}
    rows = left_out = 0
    for cells, values in reported_beside(reader, channel, reading, column):
        names = slots.names(values)
        if None in names and reading.bad_rows == "raise":
            raise InvalidFile(
                f"row {rows + names.index(None) + 1} of {reader.name} must have a slot in column "
                f"{column!r}, such as 2026-05-01T08:30Z for hours; leave such rows out with "
                "--bad-rows drop"
            )
        for name in set(names) - {None}:
            assert name is not None
            if name not in counts:
                counts[name] = np.zeros(channel.report_count, dtype=np.int64)
            if len(counts) > MOST_SLOTS:
                raise InvalidFile(
                    f"column {column!r} of {reader.name} must name at most {MOST_SLOTS} slots; it "
                    "names more"
                )
            mine = np.fromiter((each == name for each in names), np.bool_, len(names))
            counts[name] += np.bincount(cells[mine], minlength=channel.report_count)
        left_out += names.count(None)
        rows += len(names)
        advance(rows)
    if not counts:
        raise InvalidFile(f"{reader.name} must have at least one report with a slot; it has none")
    return {name: Tally(channel, counts[name]) for name in in_order(set(counts))}, left_out


def reported_beside(
    reader: TableReader, channel: Channel, reading: Reading, column: str
) -> Iterator[tuple[IntArray, pa.Array]]:
    """The reports of a file and the entries of a column beside them, batch by batch."""
    if "cell" in reader.columns and reading.lat is None and reading.lng is None:
        rows, why = 0, "; was the file made by another mechanism?"
        for batch in reader.batches(["cell"], [column]):
            named = numbers(batch.column("cell"))
            cells = cell_numbers(named, channel.report_count, reader.name, why, rows)
            yield cells, batch.column(column)
            rows += named.size
        return
    if not isinstance(channel.space, MapSpace):
        raise InvalidInput(f"{reader.name} must have a column 'cell': {channel.space!r} has no map")
    outside, places = OutsideCount("clamp"), ReportPlaces(channel)
    table = reading.locations(reader, keep=[column])
    for part in table:
        yield outside.locate(places, part.lat, part.lng)[0], part.kept.column(column)
    locations.LocationTable.check(table, outside)


def write_by_slot(
    path: str,
    maps: Mapping[str, results.Result],
    description: Mapping[str, Any],
    *,
    format: str | None = None,
) -> None:
    """One row for each cell of each slot, by the ending of the name: CSV, Parquet or GeoJSON."""
    kind = format_of(path, format, writing=True)
    space = next(iter(maps.values())).space
    if kind is Format.GEOJSON and not isinstance(space, MapSpace):
        raise Unsupported(f"{space!r} has no map; write the maps as .csv or .parquet")
    with writer.binary_sink(path) as sink:
        put_by_slot(sink, kind, maps, description)


def put_by_slot(
    sink: IO[bytes],
    kind: Format,
    maps: Mapping[str, results.Result],
    description: Mapping[str, Any],
) -> None:
    """Write the bytes of such a file."""
    import json

    import pyarrow as pa

    space = next(iter(maps.values())).space
    document = {"estimate_by_slot": VERSION, "space": space.to_dict(), **description}
    tables = {slot: result.columns() for slot, result in maps.items()}
    if kind is Format.GEOJSON:
        head = json.dumps(document, ensure_ascii=False, allow_nan=False)
        sink.write(f'{{"type":"FeatureCollection",\n"{DOCUMENT}":{head},\n"features":['.encode())
        comma = "\n"
        for slot, columns in tables.items():
            by_cell = {name: columns[name] for name in columns if name != "cell"}
            for feature in space.to_geojson(by_cell)["features"]:  # type: ignore[attr-defined]
                feature["properties"] = {"slot": slot, **feature["properties"]}
                sink.write(f"{comma}{json.dumps(feature, allow_nan=False)}".encode())
                comma = ",\n"
        sink.write(b"\n]}\n")
        return
    rows = {"slot": pa.array([s for s, table in tables.items() for _ in table["cell"]])}
    for name in next(iter(tables.values())):
        values = np.concatenate([table[name] for table in tables.values()])
        rows[name] = pa.array(values, mask=~np.isfinite(values))
    batch = pa.RecordBatch.from_pydict(rows)
    with writer.table_into(sink, kind, batch.schema, document) as table:
        table.write(batch)
