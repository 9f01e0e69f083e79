"""The options that commands share, each defined once.

Options that say one thing together reach the command as one argument: ``location_options`` gives it
``reading``, ``space_options`` ``area``, ``person_options`` ``limit``, ``engine_options`` ``where``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from geoveil.engine.engines import Engine, LocalEngine, usable_for
from geoveil.files import PIPE
from geoveil.plot.maps import picture_kind
from geoveil.position.positional import Placed
from geoveil.space import Grid, Hexagons, Outside
from geoveil.table.locations import Reading, TripEnd
from geoveil.table.obfuscation import PlaceTable
from geoveil.table.persons import LimitBy, PersonLimit
from geoveil.table.reader import TableReader, is_pipe
from geoveil.table.trip_rows import ConsecutiveTrips
from geoveil.table.writer import check_target

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]


def together(
    *options: Decorator, name: str = "", make: Callable[..., Any] | None = None
) -> Decorator:
    """One decorator of several options; with ``make`` the command gets ``name=make(**their_values)``."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def call(*arguments: Any, **values: Any) -> Any:
            if make is not None:
                own = [option.name for option in listed[before:after]]
                values[name] = make(**{key: values.pop(key) for key in own})
            return command(*arguments, **values)

        # Click collects what it is given here, and so do we; decorators may be such groups themselves.
        listed: list[Any] = vars(call).setdefault("__click_params__", [])
        before, after = len(listed), len(listed) + len(options)
        decorated: Command = call
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def refuse_given(names: Iterable[str], why: str) -> None:
    """Refuse options of the command that runs, by their names in it, where the user gave one of them."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} {why}")


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """Numbers with commas between them, so many where ``count`` says it; ``words`` say what is wanted."""

    def __init__(
        self,
        name: str = "NUMBERS",
        words: str = "must be numbers with commas between them, such as 0.5,1,2",
        count: int | None = None,
    ) -> None:
        self.name, self._words, self._count = name, words, count

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            numbers = tuple(map(float, value.split(",")))
        except ValueError:
            self.fail(self._words, param, ctx)
        if self._count not in (None, len(numbers)):
            self.fail(self._words, param, ctx)
        return numbers


BOX = Numbers("S,W,N,E", "must be four numbers: south,west,north,east in degrees", 4)


class Input(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """The name of a file to read; - is standard input, which only one file of a command can be."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        piped = {} if ctx is None else ctx.meta
        if value == PIPE and piped.setdefault("geoveil.piped", param) is not param:
            self.fail("only one input can come from a pipe; name a file for the other", param, ctx)
        return str(value)


INPUT = Input()


def _one_mark(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A delimiter: one character, or the word for the one that is hard to type."""
    mark = "\t" if value in ("tab", "\\t") else value
    if len(mark) != 1 or mark in '"\r\n':
        raise click.BadParameter("must be one character that is no quote", context, parameter)
    return mark


@dataclass(frozen=True)
class Area:
    """The grid that places are put on: over the box or the city limits that were given, or over another."""

    box: tuple[float, ...] | None
    cell_km: float
    within: str | None = None
    """A file of city limits."""
    hexagons: int | None = None
    """The resolution of H3 cells, in the place of squares."""

    def __post_init__(self) -> None:
        if self.box is not None and self.within is not None:
            raise click.UsageError("--box and --within must not both be given")
        if self.hexagons is not None and self.within is None:
            raise click.UsageError("--hexagons must go with --within, the area to cover")

    @property
    def is_chosen(self) -> bool:
        """Whether options say which area; else it is found from the data."""
        return self.box is not None or self.within is not None

    def refuse(self, why: str) -> None:
        """Refuse what was given of an area, the side of its cells too, where there is one already."""
        given = [name for name, value in vars(self).items() if value is not None]
        refuse_given(given, f"is of no use here: {why}")

    def grid(self, box: Any = None) -> Placed:
        """The cells of the given area, else of ``box``: south, west, north, east."""
        if self.hexagons is not None:
            return Hexagons(self.within, resolution=self.hexagons)
        if self.within is not None:
            return Grid.from_polygon(self.within, cell_km=self.cell_km)
        south, west, north, east = self.box or box
        return Grid.from_box(south=south, west=west, north=north, east=east, cell_km=self.cell_km)


@dataclass(frozen=True)
class TripChoice:
    """How rows are trips: by columns for both ends, or as consecutive visits of a person."""

    end: TripEnd
    consecutive_hours: float | None
    time: str | None

    @classmethod
    def parse(
        cls, trips: bool, to_lat: str | None, to_lng: str | None, consecutive_hours: float | None,
        time: str | None,
    ) -> TripChoice | None:  # fmt: skip
        """The choice that ``trip_options`` ask for; none where rows are places."""
        choices = (to_lat, to_lng, consecutive_hours, time)
        if not trips and choices != (None, None, None, None):
            raise click.UsageError(
                "--to-lat, --to-lng, --consecutive-hours and --time must come with --trips"
            )
        if consecutive_hours is None and time is not None:
            raise click.UsageError("--time must come with --consecutive-hours")
        if consecutive_hours is not None and (to_lat or to_lng):
            raise click.UsageError(
                "--consecutive-hours makes trips out of visits; --to-lat and --to-lng are for rows that "
                "are trips already"
            )
        return cls(TripEnd(to_lat, to_lng), consecutive_hours, time) if trips else None


def person_limit(
    person: str | None, per_person: int | None, limit_by: LimitBy | None
) -> PersonLimit | None:
    """The limit that ``person_options`` ask for; none without a person."""
    if person is None and (per_person is not None or limit_by is not None):
        raise click.UsageError(
            "--per-person and --limit-by must come with --person COLUMN, which says whom a row is about"
        )
    if per_person is None and limit_by in ("sample", "cap"):
        raise click.UsageError(f"--limit-by {limit_by} must come with --per-person N")
    return None if person is None else PersonLimit(person, per_person, limit_by or "sample")


machine_options = together(
    click.option("--json", "machine", is_flag=True, help="Print the result as JSON."),
    click.option(
        "--debug", is_flag=True, expose_value=False, help="Show where an error comes from."
    ),
)
"""``--json`` and ``--debug``, which every command has."""

space_options = together(
    click.option("--box", type=BOX,
                 help="Edges of the map in degrees; else taken from the data."),
    click.option("--cell-km", type=float, default=0.5, show_default=True,
                 help="Side of a cell in kilometres."),
    click.option("--within", metavar="FILE",
                 help="City limits in GeoJSON instead of a box: cells outside do not exist."),
    click.option("--hexagons", type=click.IntRange(0, 15), metavar="RESOLUTION",
                 help="With --within: H3 cells of this resolution instead of squares."),
    name="area", make=Area,
)  # fmt: skip
"""``--box``, ``--cell-km`` and ``--within``: the cells that places are put into."""

delimiter_option = click.option(
    "--delimiter", default=",", show_default=True, callback=_one_mark,
    help="Mark between the fields of CSV; tab for tabulators.",
)  # fmt: skip


def format_option(*formats: str) -> Decorator:
    """``--format``: one of these, for names that do not say it."""
    return click.option(
        "--format", type=click.Choice(formats),
        help="Format of a pipe, csv unless given; and of files with an ending that is not known.",
    )  # fmt: skip


location_options = together(
    click.option("--lat", help="Column of the latitude; else found by its usual names."),
    click.option("--lng", "--lon", "lng",
                 help="Column of the longitude; else found by its usual names."),
    click.option("--bad-rows", type=click.Choice(["raise", "drop"]), default="raise", show_default=True,
                 help="Rows without usable coordinates: an error, or left out and counted."),
    delimiter_option,
    format_option("csv", "parquet", "geojson"),
    name="reading", make=Reading,
)  # fmt: skip
"""How a file of places is read: its columns, its format, and rows that are no places."""

trip_options = together(
    click.option("--trips", is_flag=True,
                 help="Rows are trips: columns such as lat, lng, to_lat, to_lng; both ends are reported."),
    click.option("--to-lat", help="Column of the latitude where trips end; else found by its usual names."),
    click.option("--to-lng", "--to-lon", "to_lng",
                 help="Column of the longitude where trips end; else found by its usual names."),
    click.option("--consecutive-hours", type=click.FloatRange(min=0, min_open=True), metavar="H",
                 help="Rows are visits: two of a --person at most H hours apart, one after the other, "
                 "are a trip."),
    click.option("--time", metavar="COLUMN",
                 help="Column of the times of visits; else found by its usual names."),
    name="trips", make=TripChoice.parse,
)  # fmt: skip
"""``--trips`` and how rows are trips; the command gets ``trips``, ``None`` where rows are places."""


@dataclass(frozen=True)
class EngineChoice:
    """Who works on a file."""

    engine: str
    master: str | None

    def check(self, source: str, *refused: str) -> None:
        """Refuse what the engine cannot do; ``refused`` are options given that need this process."""
        if self.engine == "local":
            if self.master is not None:
                raise click.UsageError("--master must come with --engine spark")
            return
        if is_pipe(source):
            raise click.UsageError("--engine spark must read a file: workers cannot read a pipe")
        if refused:
            raise click.UsageError(f"{refused[0]} must go with --engine local")

    def is_dataset(self, source: str) -> bool:
        """Whether Spark is to read a folder of files, or an address."""
        return self.engine == "spark" and ("://" in source or Path(source).is_dir())

    def check_file(self, source: str) -> None:
        """Refuse what is more than a file."""
        if self.is_dataset(source):
            raise click.UsageError(
                f"IN ({source}) must be one file; of a folder or an address Spark makes a tally"
            )

    def require(self) -> None:
        """Say before the work what has to be installed for the engine."""
        if self.engine == "spark":
            from geoveil.engine.spark import require_spark

            require_spark(self.master)

    @contextmanager
    def open(self, processes: int | None, source: str) -> Iterator[Engine]:
        """The engine for a file, while it is needed; ``processes`` of this machine, if given."""
        if self.engine == "local":
            yield LocalEngine(processes or (1 if is_pipe(source) else usable_for(source)))
            return
        from geoveil.engine.spark import SparkEngine, spark_session

        with spark_session(self.master, quiet="--debug" not in sys.argv) as session:
            yield SparkEngine(session)


engine_options = together(
    click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True,
                 help="Who works on the file: this machine, or Spark."),
    click.option("--master", metavar="URL",
                 help="Of Spark: spark://…, sc://… or yarn; this machine unless given."),
    name="where", make=EngineChoice,
)  # fmt: skip
"""``--engine`` and ``--master``: where the parts of a file are worked on."""

outside_option = click.option(
    "--outside", type=click.Choice(["drop", "clamp", "raise"]), default="drop", show_default=True,
    help="Places outside the box: left out and counted, moved onto the map, or an error.",
)  # fmt: skip

person_options = together(
    click.option("--person", metavar="COLUMN", help="Column that says whom a row is about."),
    click.option("--per-person", type=click.IntRange(min=1), help="At most so many reports a person."),
    click.option(
        "--limit-by", type=click.Choice(["sample", "cap", "memoise"]),
        help="Which: rows at random (sample, unless given), the first rows (cap), or different "
        "places, each of which always gives the same report (memoise).",
    ),
    name="limit", make=person_limit,
)  # fmt: skip
"""``--person``, ``--per-person`` and ``--limit-by``: how many reports there are about a person."""

row_options = together(
    space_options, outside_option, location_options, person_options, trip_options, engine_options
)
"""What a :class:`RowFile` is made of."""


@dataclass(frozen=True)
class RowFile:
    """A file of true places or trips: how it is read, whom it is about, its map, and who works on it."""

    source: str
    """Empty where there is no file."""
    area: Area
    outside: Outside
    reading: Reading
    limit: PersonLimit | None
    trips: TripChoice | None
    where: EngineChoice

    @classmethod
    def from_options(cls, source: str | None, options: dict[str, Any]) -> RowFile:
        """The file of the values of ``row_options``, which are taken out of ``options``."""
        names = ("area", "outside", "reading", "limit", "trips", "where")
        own = {name: options.pop(name) for name in names}
        trips: TripChoice | None = own["trips"]
        if trips is not None and trips.consecutive_hours is None:
            own["reading"] = replace(own["reading"], to=trips.end)
        return cls(source or "", **own)

    def check_engine(self) -> None:
        """Refuse an engine that cannot do what is asked for."""
        here = {"a simulated city": not self.source, "--person": self.limit, "--trips": self.trips}
        self.where.check(self.source, *(name for name, used in here.items() if used))

    def grid(self) -> Placed:
        """The cells of the area that was given, else of the box around the data."""
        return self.area.grid(
            None if self.area.is_chosen else self.reading.box(self.source, limit=self.limit)
        )

    def table(self, reader: TableReader, keep: Sequence[str] = ()) -> PlaceTable:
        """The rows of the open file: places, or trips."""
        hours = None if self.trips is None else self.trips.consecutive_hours
        if self.trips is None or hours is None:
            return self.reading.locations(reader, keep=keep, limit=self.limit)
        if self.limit is None:
            raise click.UsageError(
                "--consecutive-hours must come with --person COLUMN: a trip is between two visits of one "
                "person"
            )
        if keep:
            raise click.UsageError("--keep must not go with --consecutive-hours: trips are no rows")
        who, time = self.limit.column, self.trips.time
        return ConsecutiveTrips(reader, self.reading, person=who, within_hours=hours, time=time)


seed_option = click.option(
    "--seed", type=click.IntRange(min=0), help="For simulations only: noise that can be repeated."
)


def _each_once(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse a file named twice, by whatever path: its reports would count twice."""
    paths: set[Path] = set()
    for name in names:
        if (path := Path(name).resolve()) in paths:
            raise click.BadParameter(
                f"{name} must be given once; its reports would count twice", context, parameter
            )
        paths.add(path)
    return names


inputs_argument = click.argument(
    "sources", type=INPUT, metavar="IN...", nargs=-1, required=True, callback=_each_once
)


def output_option(help: str, *, metavar: str = "OUT", required: bool = True) -> Decorator:
    """``-o``: where the data goes."""
    return click.option("-o", "--output", required=required, metavar=metavar, help=help)


def plot_option(help: str) -> Decorator:
    """``--plot``: a picture to draw."""
    return click.option("--plot", metavar="FILE", help=f"{help} (.png, .svg, .pdf).")


def check_picture(plot: str | None, *others: str) -> None:
    """Refuse, before the work, a picture that nothing can draw or that would replace another file."""
    if plot is not None:
        picture_kind(plot)
        check_target(plot, *others)


def level_option(what: str) -> Decorator:
    """``--level``: how sure an interval is."""
    return click.option("--level", type=float, default=0.95, show_default=True,
                        help=f"Of the interval of each {what}.")  # fmt: skip


def alarm_option(what: str) -> Decorator:
    """``--alarm``: whether the reports look like those of honest people."""
    return click.option("--alarm", is_flag=True,
                        help=f"Look for fakes as well: {what} that come more often than honest people "
                        "explain. It takes 50 estimates more, or hundreds where some do.")  # fmt: skip


mechanism_file_option = click.option(
    "--mechanism", type=INPUT, metavar="FILE",
    help="Document of the mechanism that made the reports, where IN does not carry it.",
)  # fmt: skip


def zone_options(help: str) -> Decorator:
    """``--zones`` and ``--zone-name``: districts in a file."""
    return together(
        click.option("--zones", metavar="FILE", help=help),
        click.option("--zone-name", metavar="PROPERTY", default="name", show_default=True,
                     help="What a district is called, among its properties."),
    )  # fmt: skip


camouflage_option = click.option(
    "--camouflage", type=click.FloatRange(0, 1), default=0.5, show_default=True,
    help="The dial: 0 the sharpest map, 1 the least leakage.",
)  # fmt: skip

leverage_option = click.option(
    "--most-leverage", type=float, metavar="L",
    help="What a fake report may weigh at most; a low bound costs camouflage. With --between cells.",
)  # fmt: skip

between_option = click.option(
    "--between", type=click.Choice(["positions", "cells"]),
    help="What the promise of an elastic mechanism is between: any two positions (on maps, unless "
    "given), or the centres of cells, as in the papers.",
)  # fmt: skip
