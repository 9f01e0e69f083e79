"""Trips in files: two visits of a person or one row each, both ends reported on, reports counted in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, FloatArray, positive
from geoveil.channel.channel import Channel
from geoveil.document.saved import AnyMechanism
from geoveil.errors import InvalidFile, Unsupported
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table import locations, obfuscation
from geoveil.table.columns import numbers
from geoveil.table.locations import REMEDY, Locations, LocationTable, Reading
from geoveil.table.reader import TableReader
from geoveil.table.reports import TIME_NAMES, Advance, reported, time_of
from geoveil.trips.pairs import TripTally

if TYPE_CHECKING:
    import pyarrow as pa

END_PREFIX = "to_"
"""Of the columns that say where a trip ended."""
_HOUR_S = 3600.0
_LATEST_S = 1e11
"""In the year 5138: larger numbers are milliseconds, or no times."""


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
        self._time = locations.find_column(
            reader.columns, TIME_NAMES, "time", reader.name, chosen=time, option="--time"
        )
        self._within_s = positive("within_hours", within_hours) * _HOUR_S
        self._drop = reading.bad_rows == "drop"
        self._visits = LocationTable(reader, reading, keep=[self._time], person=person)
        self.name = reader.name

    @property
    def read(self) -> int:
        """How many visits were read so far."""
        return self._visits.read

    @property
    def bad(self) -> int:
        """How many of them were left out, without a usable place, person or time."""
        return self._visits.bad

    def check(self, outside: OutsideCount) -> None:
        """Refuse a table, read to its end, without a trip."""
        self._visits.check(outside)
        if not outside.places:
            raise InvalidFile(
                f"{self.name} must have two visits of one person at most {self._within_s / _HOUR_S:g} h "
                "apart; it has none; is it the right column of persons, and of times?"
            )

    def __iter__(self) -> Iterator[Locations]:
        """All trips at once: the visits of a person may stand anywhere in the table."""
        people: dict[Any, int] = {}
        visits: list[tuple[FloatArray, ...]] = []
        rows = 0
        for part in self._visits:
            assert part.persons is not None
            names, which = part.persons
            who = np.array([people.setdefault(name, len(people)) for name in names], np.float64)
            times = _seconds(part.others.column(self._time))
            timed = np.isfinite(times)
            if not (timed.all() or self._drop):
                raise InvalidFile(
                    f"row {rows + int(np.argmin(timed)) + 1} of {self.name} must have a time in "
                    f"{self._time!r}, such as 2026-05-01T08:30Z, or seconds, not milliseconds or days; "
                    f"{REMEDY}"
                )
            self._visits.count_elsewhere(0, int(np.count_nonzero(~timed)))
            rows += times.size
            visits.append(tuple(some[timed] for some in (who[which], times, part.lat, part.lng)))
            others = part.others
        if not visits:
            return
        who, times, lat, lng = (
            np.concatenate([visit[column] for visit in visits]) for column in range(4)
        )
        order = np.lexsort((times, who))
        who, times, lat, lng = who[order], times[order], lat[order], lng[order]
        follows = (np.diff(who) == 0) & (np.diff(times) <= self._within_s)
        begun, ended = np.flatnonzero(follows), np.flatnonzero(follows) + 1
        persons = list(people), who[begun].astype(np.int64)
        yield Locations(
            lat[begun], lng[begun], others.slice(0, 0).select([]), persons, (lat[ended], lng[ended])
        )


def _seconds(values: pa.Array) -> FloatArray:
    """Times as seconds since 1970; NaN where an entry is no time."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        seconds = values.cast(pa.timestamp("s", values.type.tz), safe=False).cast(pa.int64())
        return np.asarray(seconds.to_numpy(zero_copy_only=False), dtype=np.float64)
    plain = numbers(values)
    valid = np.abs(plain) < (0.0 if _all_days(plain) else _LATEST_S)
    seconds = np.where(valid, plain, np.nan)
    others = np.flatnonzero(np.isnan(seconds))
    for at, value in zip(others, values.take(others).to_pylist(), strict=True):
        if (moment := time_of(value)) is not None:
            seconds[at] = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return seconds


def _all_days(plain: FloatArray) -> bool:
    """Whether all numbers read as days, 20260501: then they are no seconds of the year 1970."""
    month, day = plain // 100 % 100, plain % 100
    dated = (plain // 1_000_000 == 20) | (plain // 1_000_000 == 19)
    valid = dated & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31) & (day % 1 == 0)
    return bool(valid.size and valid.all())


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
        cells, usable = self.outside.locate_both(self._space, (lat, lng), (to_lat, to_lng))
        if self.mechanism.told_apart is None:  # type: ignore[union-attr]  # a channel, as checked
            return np.stack([np.column_stack((lat, lng)), np.column_stack(end)], axis=1), usable
        return cells, usable

    def draw(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(trips, 2): a report for each end."""
        return np.stack([super(TripReporter, self).draw(places[:, end]) for end in (0, 1)], axis=1)

    def tally(self, reports: npt.NDArray[Any]) -> TripTally:
        """How often each pair of reports came."""
        assert isinstance(self.mechanism, Channel)
        return TripTally(self.mechanism, *reports.T)

    def columns(self, reports: npt.NDArray[Any]) -> obfuscation.Columns:
        """The reports of both ends as columns of a table."""
        ended = super().columns(reports[:, 1])
        return super().columns(reports[:, 0]) | {
            f"{END_PREFIX}{name}": values for name, values in ended.items()
        }


def count_trip_reports(
    reader: TableReader, channel: Channel, reading: Reading, *, advance: Advance = lambda rows: None
) -> tuple[TripTally, OutsideCount]:
    """Count the noisy trips of a file by pairs: its columns ``cell`` and ``to_cell``, else coordinates.

    Cost: one pass, memory for one batch and the pairs seen.
    """
    outside, ends = OutsideCount("clamp", what="trips"), ("cell", f"{END_PREFIX}cell")
    counted: TripTally | None = None
    for pairs, _ in reported(reader, channel, reading, outside, ends=ends):
        more = TripTally(channel, *pairs.T)
        counted = more if counted is None else counted + more
        advance(counted.total)
    if counted is None or not counted.total:
        raise InvalidFile(f"{reader.name} must have at least one trip; it has none")
    return counted, outside
