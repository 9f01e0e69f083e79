"""True locations in a table: the columns that hold them, and the box around them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from geoveil.arrays import BoolArray, FloatArray, IntArray, instance
from geoveil.errors import InvalidFile, InvalidInput, number_of
from geoveil.space.box import Box
from geoveil.space.outside import SWAPPED, OutsideCount, no_degrees, on_earth
from geoveil.table.columns import arrow_numbers, entries, holds_geometry, is_said, numbers
from geoveil.table.reader import GEOMETRY, Source, TableReader, open_table

if TYPE_CHECKING:
    import pyarrow as pa

    from geoveil.table.persons import PersonLimit

LATITUDE_NAMES = ("lat", "latitude", "y")
LONGITUDE_NAMES = ("lng", "lon", "long", "longitude", "x")
ORIGIN_WORDS = ("from", "origin", "start", "pickup")
DESTINATION_WORDS = ("to", "destination", "end", "dropoff")
"""With these before their names, columns hold the begin and the end of a trip: ``to_lat``."""

_DATA = re.compile(
    r"^\s*[-+]?\d+([.,]\d*)?\s*$"  # a number
    r"|\d[.,]\d"
    r"|\d\s*[°º˚'’′\"”″]"  # degrees, minutes or seconds
    r"|^\s*[-+]?\d[\d\s:dm]*s?\s*[NSEW]?\s*$"  # 48 51 24 N, 48d51m24s
    r"|^\s*[NSEW]\s*\d+[\s:d]\s*\d",  # N48:51:24
    re.IGNORECASE,
)

_NO_LAND = (1.58, 3.15)
"""Degrees of latitude and longitude around (0, 0) with no land at all: all that radians can be."""
_IN_MINUTES = re.compile(r"\d\s*[°º˚]")
_WITH_LETTER = re.compile(r"^[NSEW]\s*\d|\d\s*[NSEW]$")


def find_column(
    columns: Sequence[str],
    usual: Sequence[str],
    what: str,
    source: str,
    *,
    chosen: str | None = None,
    option: str = "",
) -> str:
    """The column ``chosen`` by an ``option``, else the one with a usual name, in any case.

    >>> find_column(["user", "Latitude"], LATITUDE_NAMES, "latitude", "checkins.csv")
    'Latitude'
    """
    if chosen is not None:
        return check_column(columns, chosen, source)
    matches = [name for name in columns if name.strip().lower() in usual]
    if len(matches) == 1:
        return matches[0]
    problem = "more than one column" if matches else "no column"
    raise InvalidFile(
        f"{source} has {problem} named as a {what} ({', '.join(usual)}); "
        f"{f'say which one it is with {option}' if option else 'rename one'}: {list_columns(columns)}"
    )


def coordinate_columns(
    columns: Sequence[str],
    lat: str | None,
    lng: str | None,
    source: str,
    *,
    end: Sequence[str] | None = None,
    option: str = "--{}",
) -> tuple[str, str]:
    """The columns of the latitude and the longitude: those given, else those with a usual name.

    Of one end of a trip the names begin with a word of ``end``; of its begin they need not. How they are
    given is an ``option`` of a command, or an argument.
    """

    def usual(names: Sequence[str]) -> Sequence[str]:
        plain = names if end in (None, ORIGIN_WORDS) else ()
        return [*plain, *(f"{word}_{name}" for word in end or () for name in names)]

    to = "to-" if end == DESTINATION_WORDS else ""
    of_end = "" if end is None else f" where a trip {'began' if end == ORIGIN_WORDS else 'ended'}"
    named = [
        find_column(
            columns,
            usual(names),
            f"{what}{of_end}",
            source,
            chosen=chosen,
            option=option.format(f"{to}{names[0]}"),
        )
        for chosen, names, what in (
            (lat, LATITUDE_NAMES, "latitude"),
            (lng, LONGITUDE_NAMES, "longitude"),
        )
    ]
    if named[0] == named[1]:
        raise InvalidInput(f"latitude and longitude ({named[0]!r}) must be two columns")
    return named[0], named[1]


def check_column(columns: Sequence[str], name: str, source: str) -> str:
    """The name itself, when the table has exactly one such column."""
    if columns.count(instance("a column", name, str, "given by its name, as text")) == 1:
        return name
    problem = "more than one column" if name in columns else "no column"
    raise InvalidFile(f"{source} has {problem} named {name!r}: {list_columns(columns)}")


def list_columns(columns: Sequence[str]) -> str:
    """The names that exist, in words; withheld where they look like somebody's data."""
    if columns and columns[0].lstrip().startswith("{"):
        return "it looks like JSON, read as CSV; --format geojson says what it is"
    if any(_DATA.search(name) for name in columns):
        return "the first line looks like data, not names; put a line of column names before it"
    shown = ", ".join(name[:40] for name in columns[:40])
    more = f" and {len(columns) - 40} more" if len(columns) > 40 else ""
    return f"it has {shown}{more}" if columns else "it has no columns"


# --- The extent of locations that arrive in batches, in whole hundredths of a degree

_STEPS = 100  # per degree
_ROUND = 360 * _STEPS


class Extent:
    """The smallest box of whole 0.01° that holds every place seen, by the shorter way round.

    Rounding outwards to 0.01° (about a kilometre) keeps exact coordinates of the outermost people
    out of the box; that somebody is near each edge it still says, and no ε covers that.
    Cost: one pass over the data, 36,000 flags of memory.

    >>> extent = Extent()
    >>> extent.add(np.array([-17.713, -17.8]), np.array([179.984, -179.991]))
    >>> tuple(extent.box())
    (-17.8, 179.98, -17.71, -179.99)
    """

    def __init__(self) -> None:
        self._south, self._north = math.inf, -math.inf
        self._occupied = np.zeros(_ROUND, dtype=np.bool_)

    def add(self, lat: FloatArray, lng: FloatArray) -> None:
        """Take in a batch of checked places, in degrees."""
        if lat.size:
            self._south = min(self._south, float(lat.min()))
            self._north = max(self._north, float(lat.max()))
            step = np.floor((lng + 180.0) * _STEPS).astype(np.int64)
            self._occupied[step % _ROUND] = True

    def check(self, name: str) -> None:
        """An error that names the table when no place was seen."""
        if math.isinf(self._south):
            raise InvalidFile(f"{name} must have a row with a usable location; it has none")

    def box(self, name: str = "the table") -> Box:
        """The box; an error that names the table when no place was seen, or all lie on no one map."""
        self.check(name)
        south = math.floor(self._south * _STEPS)
        north = max(math.ceil(self._north * _STEPS), south + 1)
        steps = np.flatnonzero(self._occupied)  # all but the widest run of empty steps is covered
        last = int(np.argmax(np.diff(steps, append=steps[0] + _ROUND)))
        west, east = int(steps[(last + 1) % steps.size]), int(steps[last]) + 1
        try:
            return Box(
                south=south / _STEPS,
                west=(west - _ROUND // 2) / _STEPS,
                north=north / _STEPS,
                east=(east - _ROUND // 2) / _STEPS,
            )
        except InvalidInput:
            raise InvalidFile(
                f"the places of {name} must fit on one map to find its box, at most 500 km from its "
                "centre; give --box around those you mean, or check which columns are the coordinates"
            ) from None


# --- Checked locations out of a table, bad rows named or dropped, with the columns to keep

BadRows = Literal["raise", "drop"]
REMEDY = "correct it, or drop bad rows (--bad-rows drop)"
"""What to do about a row that cannot be used."""


def tell_bad_rows(name: str, bad: int, read: int, lacking: str = "usable values") -> None:
    """Note how many of the rows read from the table ``name`` were left out, where some were."""
    if bad:
        have, were = ("has", "was") if bad == 1 else ("have", "were")
        words = (
            f"{bad:,} of {number_of(read, 'row')} of {name} {have} no {lacking} and {were} left out"
        )
        logging.getLogger("geoveil.notes").info(words)


class TripEnd(NamedTuple):
    """The columns that say where trips ended; ``None``: found by their usual names."""

    lat: str | None = None
    lng: str | None = None


@dataclass(frozen=True)
class Locations:
    """Some consecutive rows of a table: true places in degrees, persons, and the columns to keep.

    ``persons`` are the different ones and, for each row, the position of its own among them.
    ``number`` belongs to these rows and to no others of the table.
    """

    lat: FloatArray
    lng: FloatArray
    others: pa.RecordBatch
    persons: tuple[list[Any], IntArray] | None = None
    to: tuple[FloatArray, FloatArray] | None = None
    """Latitudes and longitudes where trips ended, where rows are trips."""
    number: int = 0

    @property
    def ends(self) -> tuple[FloatArray, ...]:
        """Latitudes and longitudes, of trips those of both ends."""
        return self.lat, self.lng, *(self.to or ())

    def __repr__(self) -> str:
        return f"Locations({self.lat.size} rows)"


class LocationTable:
    """The locations of a table, batch by batch.

    Columns are found by their usual names in any case (lat, latitude, y; lng, lon, long, longitude,
    x) or given. A row whose coordinates are missing, not numbers, not finite or out of range is an
    error that says its number (the first row after the header is row 1) and never its value; with
    ``bad_rows="drop"`` such rows are left out and counted in ``bad``. ``person`` names the column that
    says whom a row is about; a row that does not say it is as bad. With ``to`` a row is a trip, and both
    its ends must be known.
    """

    def __init__(
        self,
        reader: TableReader,
        reading: Reading,
        *,
        keep: Sequence[str] = (),
        person: str | None = None,
    ) -> None:
        lat, lng, to = reading.lat, reading.lng, reading.to
        self._reader = reader
        self.name = reader.name
        if reader.coordinates is not None and lat is None and lng is None:
            self._lat, self._lng = reader.coordinates
        elif reader.coordinates is not None and not {lat, lng} <= set(reader.columns):
            raise InvalidInput(
                f"{reader.name} has coordinates of its own and no such columns; leave the names out, "
                f"or name two that exist: {list_columns(reader.columns)}"
            )
        else:
            begin = None if to is None else ORIGIN_WORDS
            self._lat, self._lng = coordinate_columns(
                reader.columns, lat, lng, reader.name, end=begin
            )
        self._to: tuple[str, ...] = ()
        if to is not None:
            self._to = coordinate_columns(reader.columns, *to, reader.name, end=DESTINATION_WORDS)
            if {self._lat, self._lng} & set(self._to):
                raise InvalidInput("the two ends of a trip must be four columns; name them all")
        self.keep = [check_column(reader.columns, name, self.name) for name in dict.fromkeys(keep)]
        self._person = person and check_column(reader.columns, person, self.name)
        self._advice = ""
        self._check_kept({self._lat, self._lng, *self._to, *reader.geometries})
        self._drop = reading.bad_rows == "drop"
        self._bad = 0
        self._rows = 0

    def _check_kept(self, true: set[str]) -> None:
        """Refuse to keep any of these columns."""
        if wrong := true.intersection(self.keep):
            raise InvalidInput(
                f"columns to keep ({', '.join(sorted(wrong))}) must not be the true coordinates; "
                "leave them out"
            )

    @property
    def bad(self) -> int:
        """How many rows were left out because their coordinates are not usable."""
        return self._bad + self._reader.refused

    @property
    def read(self) -> int:
        """How many rows were read so far, with those left out."""
        return self._rows + self._reader.refused

    def __iter__(self) -> Iterator[Locations]:
        others = list(dict.fromkeys([*self.keep, *([self._person] if self._person else [])]))
        for batch in self._reader.batches([self._lat, self._lng, *self._to], others):
            yield self._check(batch)

    def count_elsewhere(self, rows: int, bad: int) -> None:
        """Take in rows of the table that others have read."""
        self._rows += rows
        self._bad += bad

    def check(self, outside: OutsideCount) -> None:
        """Refuse a table, read to its end, without a usable row or without a place on the map.

        How many rows were left out is noted.
        """
        if self.read == 0:
            raise InvalidFile(f"{self.name} must have at least one row; it has none")
        if self.read == self.bad:
            advice = self._advice and f"; {self._advice}"
            raise InvalidFile(
                f"{self.name} must have a usable location; none of "
                f"{number_of(self.read, 'row')} has one{advice}"
            )
        advice = outside.hint  # what may be wrong with places that all lie outside, or many of them
        if advice == SWAPPED:
            order = "--box as south,west,north,east, --within with the longitude first"
            advice = f"{advice}: {self._swap}, or write {order}"
        outside.check(self.name, advice or f"{self._columns}, and is it the right map?")
        tell_bad_rows(self.name, self.bad, self.read)

    @property
    def _swap(self) -> str:
        if self._lat in GEOMETRY:
            return "write the longitude first in its points"
        return f"use --lat {self._lng} --lng {self._lat}"

    @property
    def _columns(self) -> str:
        if self._lat in GEOMETRY:
            return "are its points in degrees, the longitude first"
        names = list_columns(self._reader.columns)
        return f"are {self._lat!r} and {self._lng!r} the right columns ({names})"

    def _check(self, batch: pa.RecordBatch) -> Locations:
        columns = self._lat, self._lng, *self._to
        lat, lng, *ends = (numbers(batch.column(name), degrees=True) for name in columns)
        self._check_kept({name for name in self.keep if holds_geometry(batch.column(name))})
        others, persons, named = batch.select(self.keep), None, np.ones(lat.size, dtype=np.bool_)
        if self._person is not None:
            names, which = persons = entries(batch.column(self._person), self.name)
            named = np.array([is_said(name) for name in names])[which]
        good, to = on_earth(lat, lng) & named, None
        if self._to:
            to = ends[0], ends[1]
            good &= on_earth(*to)
        first = self._rows
        self._rows += lat.size
        if good.all():
            return Locations(lat, lng, others, persons, to, self._reader.number)
        if not self._advice or not self._drop:
            self._advice = self._suspicion(lat, lng, batch.column(self._lat))
        if not self._drop:
            raise InvalidFile(self._problem(lat, lng, named, good, first))
        self._bad += int(good.size - np.count_nonzero(good))
        if persons is not None:
            persons = persons[0], persons[1][good]
        to = to and (to[0][good], to[1][good])
        others = others.take(arrow_numbers(np.flatnonzero(good)))
        return Locations(lat[good], lng[good], others, persons, to, self._reader.number)

    def _suspicion(self, lat: FloatArray, lng: FloatArray, written: pa.Array) -> str:
        """What may be wrong with the coordinates of a batch, or with the choice of the columns."""
        good, finite = on_earth(lat, lng), np.isfinite(lat) & np.isfinite(lng)
        hint = no_degrees(lat[finite & ~good], lng[finite & ~good])
        few = 2 * np.count_nonzero(good) >= good.size  # then the columns are the right ones
        if hint:
            return f"{hint}; {REMEDY if few else self._swap}" if hint == SWAPPED else hint
        if few:
            return ""
        text = written.slice(int(np.flatnonzero(~good)[0]), 1).to_pylist()[0]
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        if _IN_MINUTES.search(text):
            return "these look like degrees, minutes and seconds; write decimal degrees"
        if _WITH_LETTER.search(text.strip()):
            return "these have letters for north and south; write a minus in the south and west"
        return f"{self._columns}?"

    def _problem(
        self, lat: FloatArray, lng: FloatArray, named: BoolArray, good: BoolArray, first: int
    ) -> str:
        """What is wrong with the first bad row, by its number and never by its value."""
        worst = int(np.flatnonzero(~good)[0])
        row = f"row {first + worst + 1} of {self.name}"
        if not named[worst]:
            return f"{row} must say in {self._person!r} whom it is about; {REMEDY}"
        shape = self._reader.shape_of(worst) if self._lat == GEOMETRY[0] else None
        if shape is not None:
            return f"{row} must be a point; it is a {shape}; give points, such as the centroids"
        if (on_earth(lat, lng) & named)[worst]:
            return (
                f"{row} must say in degrees where its trip ended, not only where it began; {REMEDY}"
            )
        finite = np.isfinite(lat[worst]) and np.isfinite(lng[worst])
        degrees = "a latitude in -90 to 90 and a longitude in -180 to 180"
        requirement = degrees if finite else "numbers for its coordinates"
        return f"{row} must have {requirement}; {self._advice or REMEDY}"


@dataclass(frozen=True)
class Reading:
    """How files of places are read: their columns, rows that are no places, their format."""

    lat: str | None = None
    lng: str | None = None
    bad_rows: BadRows = "raise"
    delimiter: str = ","
    format: str | None = None
    to: TripEnd | None = None
    """Where rows are trips: the columns of their ends."""

    def open(self, source: str | Source) -> TableReader:
        """The file, to be read once from the front."""
        drop = self.bad_rows == "drop"
        return open_table(source, format=self.format, delimiter=self.delimiter, drop_bad=drop)

    def locations(
        self, reader: TableReader, *, keep: Sequence[str] = (), limit: PersonLimit | None = None
    ) -> LocationTable:
        """The places of an open file, with the columns to keep and the persons that are limited."""
        person = None if limit is None else limit.column
        return LocationTable(reader, self, keep=keep, person=person)

    def box(
        self,
        *sources: str,
        limit: PersonLimit | None = None,
        advance: Callable[[float | None, str], None] = lambda fraction, rows: None,
    ) -> Box:
        """The box around the places of all these files, each of which is read to its end."""
        extent = Extent()
        for source in sources:
            with self.open(source) as reader:
                locations = self.locations(reader, limit=limit)
                for part in locations:
                    extent.add(part.lat, part.lng)
                    if part.to is not None:
                        extent.add(*part.to)
                    advance(reader.fraction, number_of(locations.read, "row"))
        box = extent.box(sources[0])
        if -_NO_LAND[0] <= box.south <= box.north <= _NO_LAND[0] and (
            -_NO_LAND[1] <= box.west <= box.east <= _NO_LAND[1]
        ):
            raise InvalidFile(
                f"{sources[0]} must have places in degrees; all lie in the sea around 0° north and 0° east, "
                "as radians and empty places (0, 0) do; convert them, or give --box where they are right"
            )
        return box
