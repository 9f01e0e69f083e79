"""Trips out of visits: two visits of one person, one after the other, are a trip."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import FloatArray, positive
from geoveil.errors import InvalidFile
from geoveil.space.outside import OutsideCount
from geoveil.table.locations import (
    Locations,
    LocationTable,
    Reading,
    check_column,
    find_column,
    numbers,
)
from geoveil.table.reader import TableReader

if TYPE_CHECKING:
    import pyarrow as pa

TIME_NAMES = ("time", "timestamp", "datetime", "date_time", "when")
_HOUR_S = 3600.0


class ConsecutiveTrips:
    """The trips between consecutive visits of each person, at most ``within_hours`` apart.

    Rows are visits; the column ``time`` (found by its usual names unless given) orders those of a person:
    ISO 8601, without an offset taken as UTC, or seconds. Every visit but the first and the last of a
    chain belongs to two trips, and each trip costs twice the promise (docs/trips.md).
    Cost: memory for all visits.
    """

    keep: tuple[str, ...] = ()
    """No column of a visit goes with a trip."""

    def __init__(
        self,
        reader: TableReader,
        reading: Reading,
        *,
        person: str,
        within_hours: float,
        time: str | None = None,
    ) -> None:
        columns = reader.columns
        self._time = (
            find_column(columns, TIME_NAMES, "time", reader.name)
            if time is None
            else check_column(columns, time, reader.name)
        )
        self._within_s = positive("within_hours", within_hours) * _HOUR_S
        self._drop = reading.bad_rows == "drop"
        self._untimed = 0
        self._visits = LocationTable(
            reader,
            lat=reading.lat,
            lng=reading.lng,
            keep=[self._time],
            person=person,
            bad_rows=reading.bad_rows,
        )
        self.name = reader.name

    @property
    def read(self) -> int:
        """How many visits were read so far."""
        return self._visits.read

    @property
    def bad(self) -> int:
        """How many of them were left out, without a usable place, person or time."""
        return self._visits.bad + self._untimed

    def check(self, outside: OutsideCount) -> None:
        """Refuse a table, read to its end, without a trip."""
        self._visits.check(outside)
        if not outside.places:
            raise InvalidFile(
                f"{self.name} must have two visits of one person within {self._within_s / _HOUR_S:g} "
                "hours; it has none; is it the right column of persons, and of times?"
            )

    def __iter__(self) -> Iterator[Locations]:
        """All trips at once: the visits of a person may stand anywhere in the table."""
        known: dict[Any, int] = {}
        found: list[tuple[FloatArray, ...]] = []
        rows = 0
        for part in self._visits:
            assert part.persons is not None
            names, which = part.persons
            who = np.array([known.setdefault(name, len(known)) for name in names], np.float64)
            times = _seconds(part.kept.column(self._time))
            self._check_times(times, rows)
            rows += times.size
            timed = np.isfinite(times)
            found.append(tuple(each[timed] for each in (who[which], times, part.lat, part.lng)))
            kept = part.kept
        if not found:
            return
        who, times, lat, lng = (
            np.concatenate([each[column] for each in found]) for column in range(4)
        )
        order = np.lexsort((times, who))
        who, times, lat, lng = who[order], times[order], lat[order], lng[order]
        follows = (np.diff(who) == 0) & (np.diff(times) <= self._within_s)
        begun, ended = np.flatnonzero(follows), np.flatnonzero(follows) + 1
        persons = list(known), who[begun].astype(np.int64)
        yield Locations(
            lat[begun], lng[begun], kept.slice(0, 0).select([]), persons, (lat[ended], lng[ended])
        )

    def _check_times(self, times: FloatArray, before: int) -> None:
        missing = np.flatnonzero(~np.isfinite(times))
        if not missing.size:
            return
        if not self._drop:
            raise InvalidFile(
                f"usable row {before + int(missing[0]) + 1} of {self.name} must have a time in "
                f"{self._time!r}, such as 2026-05-01T08:30Z; correct it, or drop bad rows"
            )
        self._untimed += missing.size


def _seconds(values: pa.Array) -> FloatArray:
    """Times as seconds since 1970; NaN where an entry is no time."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        seconds = values.cast(pa.timestamp("s", values.type.tz), safe=False).cast(pa.int64())
        return np.asarray(seconds.to_numpy(zero_copy_only=False), dtype=np.float64)
    plain = numbers(values)
    if np.isfinite(plain).any():
        return plain
    return np.array([_second(value) for value in values.to_pylist()], dtype=np.float64)


def _second(value: Any) -> float:
    try:
        at = datetime.fromisoformat(str(value).strip())
    except ValueError:
        return float("nan")
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
