"""From true locations to reports: in data frames and in files."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, FloatArray, IntArray, able, numbers
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.composed import Remapped
from geoveil.document.saved import AnyMechanism
from geoveil.errors import InvalidInput, Unsupported
from geoveil.mechanism.planar import ContinuousLaplace
from geoveil.randomness import SYSTEM, Randomness, seeded, seeded_for
from geoveil.space.outside import Outside, OutsideCount, check_outside
from geoveil.space.projection import coordinates, either_longitude
from geoveil.space.space import MapSpace
from geoveil.table.columns import arrow_numbers, holds_geometry, is_geometry, is_said, without_views
from geoveil.table.locations import LocationTable, check_column, coordinate_columns
from geoveil.table.persons import Draw, LimitBy, PersonLimit, Reporting, Rows, Spend
from geoveil.table.reports import ReportPlaces

if TYPE_CHECKING:
    import pyarrow as pa

    from geoveil.table.trip_rows import ConsecutiveTrips
    from geoveil.trips.pairs import TripTally

Columns = dict[str, npt.NDArray[Any]]


@runtime_checkable
class DrawsAtPositions(Protocol):
    """A mechanism whose promise is between positions: a report is drawn where somebody stands."""

    def sample_at(
        self, *, lat: FloatArray, lng: FloatArray, randomness: Randomness = SYSTEM
    ) -> IntArray:
        """One report for each position in degrees."""


class Reporter:
    """Turns true latitudes and longitudes into columns of noisy reports, in three steps.

    ``place`` says what is reported on (cells; degrees for continuous noise and where the promise is
    between positions) and which of the places are taken; ``draw`` draws a report for each; ``columns``
    writes reports as columns: ``cell`` and its centre, or the point. Nothing but the report is in them.
    ``outside`` counts the places outside the map; for continuous noise nothing is outside.
    Guarantee: that of the mechanism, for each report; reports about one person add up. Where places
    outside are left out, whoever is reported on was on the map, and no promise covers that.
    """

    def __init__(
        self, mechanism: AnyMechanism, *, outside: Outside = "drop", randomness: Randomness = SYSTEM
    ) -> None:
        check_outside(outside)
        self.mechanism = mechanism
        self.randomness = randomness
        self.outside = OutsideCount(outside)
        self.column_names = ["lat", "lng"]
        if isinstance(mechanism, ContinuousLaplace):
            return
        if not isinstance(mechanism, Channel):
            kind = type(mechanism).__name__
            raise InvalidInput(f"mechanism ({kind}) must be a mechanism, such as PlanarGeometric")
        self._places = ReportPlaces(mechanism)
        self._space = cast(MapSpace, mechanism.space)
        self.column_names = ["cell", "lat", "lng"]
        if mechanism.told_apart is None:
            _check_draws_at_positions(mechanism)
            self.outside.moved = "onto the map"  # as the law does: if near, to its nearest point

    def place(self, lat: FloatArray, lng: FloatArray) -> tuple[npt.NDArray[Any], BoolArray]:
        """What is reported on, for places in degrees, and which of the places are taken."""
        if isinstance(self.mechanism, ContinuousLaplace):
            places = np.column_stack(coordinates(lat=lat, lng=lng))
            return places, np.ones(len(places), dtype=np.bool_)
        cells, usable = self.outside.locate(self._space, lat, lng)
        return (np.column_stack((lat, lng)) if self.mechanism.told_apart is None else cells), usable

    def draw(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One noisy report for each."""
        if isinstance(self.mechanism, ContinuousLaplace):
            lat, lng = places[:, 0], places[:, 1]
            return np.column_stack(
                self.mechanism.sample_latlng(lat=lat, lng=lng, randomness=self.randomness)
            )
        if self.mechanism.told_apart is None:
            return reports_at(self.mechanism, places[:, 0], places[:, 1], self.randomness)
        return self.mechanism.sample(places, randomness=self.randomness)

    def columns(self, reports: npt.NDArray[Any]) -> Columns:
        """The reports as columns of a table; centres to a centimetre."""
        if isinstance(self.mechanism, ContinuousLaplace):
            return {"lat": reports[:, 0], "lng": reports[:, 1]}
        lat, lng = self._places.latlng
        return {"cell": reports, "lat": lat[reports], "lng": lng[reports]}

    def tally(self, reports: npt.NDArray[Any]) -> Tally | TripTally:
        """How often each report came."""
        assert isinstance(self.mechanism, Channel)
        return self.mechanism.tally(reports)

    def reports_for(
        self, table: PlaceTable, *, limit: PersonLimit | None = None, whole: bool = True
    ) -> DrawnRows:
        """Reports for the rows of a table."""
        return DrawnRows(
            table, self.place, self.draw, self.outside, limit=limit, randomness=self.randomness,
            whole=whole,
        )  # fmt: skip


def _check_draws_at_positions(mechanism: Channel) -> None:
    """Refuse what promises between positions and can only be drawn from cells."""
    inner = mechanism
    while isinstance(inner, Remapped):
        inner = inner.channel
    if not isinstance(inner, DrawsAtPositions):
        raise Unsupported(
            f"{inner!r} promises between positions and can be drawn from cells only; draw from the "
            "mechanisms that it is made of"
        )


def reports_at(
    mechanism: Channel, lat: FloatArray, lng: FloatArray, randomness: Randomness
) -> IntArray:
    """A report for each position, of a mechanism between positions, or of one whose reports are renamed."""
    if isinstance(mechanism, Remapped):
        renamed: IntArray = mechanism.map[reports_at(mechanism.channel, lat, lng, randomness)]
        return renamed
    assert isinstance(mechanism, DrawsAtPositions)
    return mechanism.sample_at(lat=lat, lng=lng, randomness=randomness)


# --- Noisy reports from whatever holds the locations in memory: frames, tables, dictionaries

_WGS84 = "EPSG:4326"


def obfuscate(
    frame: Any,
    mechanism: AnyMechanism,
    *,
    lat: str | None = None,
    lng: str | None = None,
    lon: str | None = None,
    keep: Sequence[str] = (),
    person: str | None = None,
    per_person: int | None = None,
    limit_by: LimitBy = "sample",
    outside: Outside = "drop",
    randomness: Randomness = SYSTEM,
) -> Any:
    """One noisy report for each row of a DataFrame, GeoDataFrame, pyarrow Table or dict of arrays.

    Where the promise is between positions, a report is drawn from the position of the row itself. The
    result is of the same kind, in the same order, and holds the report only: ``cell``, ``lat``
    and ``lng`` (the centre of the reported cell; from ``space.size`` on, of one beside the map), or
    ``lat`` and ``lng`` of continuous noise, and points for a GeoDataFrame. Other columns, and the
    index, may tell who somebody is and are left behind; name the ones to ``keep``, which must not be
    geometry. Columns are found by their usual names unless given. Places outside the map are left out,
    with a warning that says how many; it is an error when all are. ``outside="clamp"`` moves them to
    the nearest cell, or, between positions, onto the map as the law does.

    Rows about one ``person`` (the column that says who) are held to ``per_person`` reports: rows at
    random (``limit_by="sample"``), the first (``"cap"``), or as many different places, each of which
    always gives the same report (``"memoise"``).

    Guarantee: that of the mechanism, for each report; reports about one person add up. No promise
    covers that whoever is reported on was on the map, unless ``outside="clamp"``.
    Cost: that of sampling, and of locating: about 0.2 µs a row.

    >>> import geoveil as gv
    >>> grid = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=0.5)
    >>> mechanism = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
    >>> people = {"who": ["a", "b"], "lat": [48.85, 48.86], "lon": [2.35, 2.30]}
    >>> noisy = obfuscate(people, mechanism)
    >>> sorted(noisy), len(noisy["cell"])
    (['cell', 'lat', 'lng'], 2)
    """
    columns = _column_names(frame)
    longitude = None if lng is None and lon is None else either_longitude(lng, lon)
    true_lat, true_lng, used = _coordinates(frame, columns, lat, longitude)
    if person is None and per_person is not None:
        raise InvalidInput(
            f"per_person ({per_person}) must come with person, the column that says who"
        )
    limit = None if person is None else PersonLimit(person, per_person, limit_by)
    if isinstance(keep, str):
        raise InvalidInput(
            f"keep ({keep!r}) must be a list of names of columns, such as [{keep!r}]"
        )
    able("keep", keep, "__iter__", "a list of names of columns")
    names = list(dict.fromkeys(check_column(columns, name, "the table") for name in keep))
    reporter = Reporter(mechanism, outside=outside, randomness=randomness)
    check_kept(names, [*used, *_geometries(frame, names), *reporter.column_names])
    reporting = Reporting(limit, draw=reporter.draw, randomness=randomness)
    whom = None if limit is None else check_column(columns, limit.column, "the table")
    if isinstance(frame, Mapping):  # whose columns need not be of one length
        _check_entries(frame, [*names, *filter(None, [whom])], true_lat.size)
    persons = None if whom is None else reporting.number(_persons(frame[whom], whom))
    places, usable = reporter.place(true_lat, true_lng)
    count = reporter.outside
    count.check("the table", count.hint or "are these the right columns, and is it the right map?")
    if count.dropped:
        advice = count.hint and f"; {count.hint}"
        warnings.warn(f"{count.sentence()}{advice}", stacklevel=2)
    rows = Rows(places, np.arange(usable.size), persons).take(usable)
    if rows.numbers.size:
        (rows,) = reporting.reports([rows])
    else:  # no reports, of the type that reports have
        rows = Rows(reporter.draw(rows.places), rows.numbers)
    return _like(frame, reporter.columns(rows.places), rows.numbers, names)


def _check_entries(frame: Mapping[str, Any], names: Sequence[str], rows: int) -> None:
    """Refuse a column that has not one entry for each row."""
    for name in names:
        try:
            fits = np.shape(frame[name]) == (rows,)
        except ValueError:  # lists of several lengths
            fits = False
        if not fits:
            raise InvalidInput(f"column {name!r} must hold one entry for each of the {rows:,} rows")


def _persons(column: Any, name: str) -> list[Any]:
    """Whom each row is about."""
    persons = column.to_pylist() if hasattr(column, "to_pylist") else np.asanyarray(column).tolist()
    for position, person in enumerate(persons):
        if not (isinstance(person, Hashable) and is_said(person)):
            raise InvalidInput(
                f"the entry at position {position} of column {name!r} must say whom it is about"
            )
    return persons


def check_kept(names: Sequence[str], reserved: Sequence[str]) -> None:
    """Refuse to keep a true coordinate, or a column with the name of a report's."""
    wrong = [name for name in names if name in reserved]
    if wrong:
        raise InvalidInput(
            f"columns to keep ({', '.join(wrong)}) must not be coordinates or cells; leave them out"
        )


def _column_names(frame: Any) -> list[str]:
    if isinstance(frame, Mapping) or _is(frame, "pandas", "DataFrame"):
        names = [name for name in frame if isinstance(name, str)]
        if names or not len(frame):
            return names
        raise InvalidInput("the columns of frame must have names that are text; rename them")
    if _is(frame, "pyarrow", "Table"):
        return [str(name) for name in frame.column_names]
    table = hasattr(frame, "__arrow_c_stream__") and len(getattr(frame, "shape", ())) == 2
    arrow = "; pyarrow.table(frame) makes one" if table else ""
    raise Unsupported(
        f"frame ({type(frame).__module__.partition('.')[0]}.{type(frame).__name__}) must be a DataFrame "
        f"of pandas, a GeoDataFrame, a pyarrow Table{arrow}, or a dict of arrays"
    )


def _coordinates(
    frame: Any, columns: Sequence[str], lat: str | None, lng: str | None
) -> tuple[FloatArray, FloatArray, list[str]]:
    """Latitudes, longitudes, and the names of the columns they came from."""
    geometry = _is(frame, "geopandas", "GeoDataFrame") and frame.active_geometry_name is not None
    if lat is None and lng is None and geometry:
        points = _in_degrees(frame)
        return np.asarray(points.y), np.asarray(points.x), [frame.geometry.name]
    names = coordinate_columns(columns, lat, lng, "the table", option="{}=")
    arrays = []
    for name in names:
        try:
            arrays.append(numbers(name, frame[name]))
        except InvalidInput:
            raise InvalidInput(f"column {name!r} must hold numbers only") from None
        if arrays[-1].ndim != 1:
            raise InvalidInput(f"column {name!r} must be one-dimensional")
    if arrays[0].shape != arrays[1].shape:
        raise InvalidInput(f"columns {names[0]!r} and {names[1]!r} must have the same length")
    return arrays[0], arrays[1], list(names)


def _in_degrees(frame: Any) -> Any:
    """The points of a GeoDataFrame in WGS84; without a reference system they are taken to be."""
    geometry = frame.geometry
    if not (geometry.geom_type == "Point").all():
        raise InvalidInput(
            "the geometry must hold points only; use its centroids, or drop the rest"
        )
    if frame.crs is None:
        return geometry
    try:
        return geometry.to_crs(_WGS84)
    except (RuntimeError, ValueError):  # what pyproj raises where there is no way
        named = str(getattr(frame.crs, "name", frame.crs))[:60]
        raise InvalidInput(
            f"the geometry must be in a system that converts to degrees (WGS84); it is in {named!r}"
        ) from None


def _geometries(frame: Any, names: Sequence[str]) -> list[str]:
    """Those of the named columns that hold geometry: true places in another form."""
    if _is(frame, "pyarrow", "Table"):
        from geoveil.table.indexed import geometry_columns  # needs pyarrow, which is here then

        texts = [name for name in names if any(map(holds_geometry, frame.column(name).chunks))]
        return [*geometry_columns(frame.schema, "the table"), *texts]

    def geometry(values: Any) -> bool:
        typed = str(getattr(values, "dtype", "")) == "geometry"
        kind = getattr(getattr(values, "dtype", None), "kind", "O")
        return typed or (kind not in "biufcmM" and any(map(is_geometry, values)))

    return [name for name in names if geometry(frame[name])]


def _like(frame: Any, reports: Columns, rows: IntArray, names: Sequence[str]) -> Any:
    """The reports and the kept columns of their rows, as the kind of thing that came in."""
    if isinstance(frame, Mapping):
        return reports | {name: np.asanyarray(frame[name])[rows] for name in names}
    if _is(frame, "pyarrow", "Table"):
        import pyarrow as pa

        at, kept = pa.array(rows), ((name, without_views(frame.column(name))) for name in names)
        return pa.table(reports | {name: column.take(at) for name, column in kept})
    import pandas as pd

    table = pd.DataFrame(reports)
    for name in names:
        table[name] = frame[name].array[rows]
    if _is(frame, "geopandas", "GeoDataFrame"):
        import geopandas

        points = geopandas.points_from_xy(table["lng"], table["lat"])
        return geopandas.GeoDataFrame(table, geometry=points, crs=_WGS84)
    return table


def _is(frame: Any, package: str, name: str) -> bool:
    """Whether the frame is of this class, without importing a package nobody has used."""
    module = sys.modules.get(package)
    return module is not None and isinstance(frame, getattr(module, name))


# --- A file of true locations turned into a file of noisy reports, batch by batch

Place = Callable[..., tuple[npt.NDArray[Any], BoolArray]]
"""place(lat, lng), of trips place(lat, lng, to_lat, to_lng): what is reported on, and which are taken."""

PlaceTable: TypeAlias = "LocationTable | ConsecutiveTrips"
"""Rows to report on: places, or trips."""


@dataclass(frozen=True)
class TableSummary:
    """What happened to the rows of a file; ``spend`` is ``None`` where persons are not told apart."""

    rows_read: int
    reports: int
    bad_rows_dropped: int
    outside: OutsideCount
    spend: Spend | None


@dataclass(eq=False, repr=False)
class DrawnRows:
    """The rows of a table that are reported on, with their reports, batch by batch; ``outside`` counts.

    ``place`` says what is reported on and which rows are taken, ``draw`` draws for those within the limit a
    person. ``whole=False`` is for a section of a table, which may be without a place on the map.
    """

    table: PlaceTable
    place: Place
    draw: Draw
    outside: OutsideCount
    limit: PersonLimit | None = None
    randomness: Randomness = SYSTEM
    whole: bool = True

    def __post_init__(self) -> None:
        self._reporting = Reporting(self.limit, draw=self.draw, randomness=self.randomness)
        self._reports = 0

    def rows(
        self,
        advance: Callable[[int], None] = lambda rows: None,
        begin: Callable[[int], None] = lambda number: None,
    ) -> Iterator[Rows]:
        """The rows with reports in the place of their places; a table without a usable one is refused.

        ``begin(number)`` is called with the number of each batch before it is drawn for, ``advance(rows)``
        after it, for progress.
        """
        for rows in self._reporting.reports(self._placed(advance, begin)):
            self._reports += rows.numbers.size
            yield rows
        if self.whole:
            self.table.check(self.outside)

    def _placed(
        self, advance: Callable[[int], None], begin: Callable[[int], None]
    ) -> Iterator[Rows]:
        """The rows that are taken: cells or degrees, and persons."""
        import pyarrow as pa

        first = 0
        for part in self.table:
            places, usable = self.place(*part.ends)
            numbers = np.arange(first, first + usable.size)
            first += usable.size
            others = pa.Table.from_batches([part.others]) if self.table.keep else None
            persons = None
            if part.persons is not None:
                names, which = part.persons
                persons = self._reporting.number(names)[which]
            begin(part.number)
            if usable.any():
                yield Rows(places, numbers, persons, others).take(usable)
            advance(self.table.read)

    def summary(self) -> TableSummary:
        """What happened to the rows, once all were drawn for."""
        rows, bad, spend = self.table.read, self.table.bad, self._reporting.spend
        return TableSummary(rows, self._reports, bad, self.outside, spend)


def obfuscate_table(
    locations: PlaceTable,
    reporter: Reporter,
    create: Callable[[pa.Schema], Any],
    *,
    limit: PersonLimit | None = None,
    seed: int | None = None,
    whole: bool = True,
    advance: Callable[[int], None] = lambda rows: None,
) -> TableSummary:
    """Read, report and write one batch after another; memory for one batch (and for the persons).

    ``create(schema)`` opens the table to write, as a context manager that keeps what was written
    only when nothing failed; it is not called where there is nothing to write. With a ``seed`` every batch
    is drawn from a source of its own, unless persons are told apart.
    """
    check_kept(locations.keep, reporter.column_names)
    reporter.randomness = SYSTEM if seed is None else seeded(seed)

    def begin(number: int) -> None:
        if seed is not None and limit is None:
            reporter.randomness = seeded_for(seed, number)

    noisy = reporter.reports_for(locations, limit=limit, whole=whole)
    batches = (_written(reporter, rows) for rows in noisy.rows(advance, begin) if rows.numbers.size)
    first = next(batches, None)
    if first is not None:
        with create(first.schema) as table:
            for batch in chain([first], batches):
                table.write(batch)
    return noisy.summary()


def _written(reporter: Reporter, rows: Rows) -> pa.RecordBatch:
    """Reports as they are written, with the kept columns of the rows they answer."""
    import pyarrow as pa

    reports = reporter.columns(rows.places)
    columns = {name: arrow_numbers(values) for name, values in reports.items()}
    if rows.others is not None:
        others = rows.others.combine_chunks()
        columns |= {name: others.column(name).combine_chunks() for name in others.column_names}
    return pa.RecordBatch.from_pydict(columns)
