"""``geoveil obfuscate`` and ``tally``: true locations in, noisy reports or their counts out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

import geoveil as gv
from geoveil.cli import options as shared
from geoveil.cli.choice import (
    ON_MAPS,
    MechanismChoice,
    describe,
    mechanism_options,
    promise_in_words,
    trip_promise,
)
from geoveil.cli.console import Console, ProgressBar, in_words
from geoveil.document.saved import AnyMechanism, mechanism_to_dict
from geoveil.engine.part_reports import obfuscate_file, tally_file
from geoveil.errors import Unsupported
from geoveil.space.outside import Outside
from geoveil.table import locations, obfuscation, persons, tallies, trip_rows, writer
from geoveil.table.reader import PIPE, TableReader, format_of

_ON_THE_MAP = (
    "that somebody who is reported on was on it no promise covers; --outside clamp draws for "
    "everybody"
)


@dataclass(frozen=True)
class Request:
    """A file of true places, the mechanism that answers them, and where the answers go."""

    source: str
    output: str
    choice: MechanismChoice
    area: shared.Area
    outside: Outside
    reading: locations.Reading
    limit: persons.PersonLimit | None
    trips: shared.TripChoice | None
    where: shared.EngineChoice
    seed: int | None

    @classmethod
    def of(cls, **given: Any) -> Request:
        """From the options; where rows are trips, both their ends are read."""
        trips: shared.TripChoice | None = given["trips"]
        if trips is not None:
            given["reading"] = trips.read_by(given["reading"])
        return cls(**given)

    def table(self, reader: TableReader, keep: tuple[str, ...] = ()) -> obfuscation.PlaceTable:
        """The rows of the open file: places, or trips."""
        if self.trips is None:
            return self.reading.locations(reader, keep=keep, limit=self.limit)
        return self.trips.table(reader, self.reading, self.limit, keep)

    def reporter(self, mechanism: AnyMechanism) -> obfuscation.Reporter:
        """What turns the rows into reports."""
        kind = obfuscation.Reporter if self.trips is None else trip_rows.TripReporter
        return kind(mechanism, outside=self.outside)

    def check(self) -> None:
        """Refuse names that cannot be, before anything is read."""
        needs_this_process = {"--person": self.limit is not None, "--trips": self.trips is not None}
        self.where.check(
            self.source, *(name for name, given in needs_this_process.items() if given)
        )
        format_of(self.source, self.reading.format)
        format_of(self.output, self.reading.format, writing=True)
        writer.check_target(self.output, self.source, *[self.choice.name] * self.choice.is_document)
        if not self.area.given and self.choice.needs_box and self.source == PIPE:
            raise click.UsageError("--box must be given for a pipe, which cannot be read twice")
        if not self.area.given and self.choice.needs_box and self.where.is_dataset(self.source):
            raise click.UsageError("--box must be given for a folder or an address")
        if self.area.given and not self.choice.needs_box:
            raise click.UsageError(
                "--box is of no use here, nor is --within: the mechanism brings its own map or needs none"
            )

    def tally_dataset(
        self, engine: Any, mechanism: gv.Channel
    ) -> tuple[gv.Tally, obfuscation.TableSummary]:
        """The tally of a folder of files or an address, which Spark reads as a DataFrame."""
        from geoveil.engine.spark import dataset_frame, tally_frame

        frame, reading = dataset_frame(engine.session, self.source, self.reading), self.reading
        return tally_frame(
            frame,
            mechanism,
            lat=reading.lat,
            lng=reading.lng,
            outside=self.outside,
            bad_rows=reading.bad_rows,
            seed=self.seed,
        )

    def build(self, console: Console, progress: ProgressBar) -> AnyMechanism:
        """The mechanism asked for, on a grid over the box asked for or over that of the data."""
        if not self.choice.needs_box:
            return self.choice.build(None)
        box = self.area.box
        if not self.area.given:
            progress.stage("finding the box")
            box = tuple(self.reading.box(self.source, limit=self.limit, advance=progress.update))
            edges = ",".join(f"{edge:g}" for edge in box)
            console.note(
                f"the box {edges} is taken from the data: it says that somebody is within 0.01 "
                "degrees of each edge, which no promise covers; give --box to avoid it"
            )
            progress.stage("building the mechanism")
        return self.choice.build(self.area.grid(box))

    def tell(
        self, console: Console, summary: obfuscation.TableSummary, mechanism: AnyMechanism, reports: str,
        first: dict[str, str], last: dict[str, str | None],
    ) -> None:  # fmt: skip
        """What happened to the rows, what is promised, what a person has spent.

        ``reports`` is the machines' name of the number of reports; lines go before and after the rest.
        """
        console.warn_of_outside(summary.outside)
        bad, spend, who, trips = summary.bad_rows_dropped, summary.spend, "", self.trips is not None
        largest, cost = None if spend is None else spend.largest, mechanism.guarantee
        if trips and cost is not None:
            cost = cost * 2
        if isinstance(mechanism, gv.Channel) and mechanism.told_apart is None:
            who = "" if self.outside == "clamp" else "both on the map"
        values = {
            "output": self.output,
            "rows_read": summary.rows_read,
            reports: summary.reports,
            "bad_rows_dropped": bad,
            "outside_dropped": summary.outside.dropped,
            "outside_clamped": summary.outside.clamped,
            "per_person": spend_values(spend, cost),
            **describe(mechanism, who, trips=trips),
            "seed": self.seed,
        }
        lines: dict[str, str | None] = {
            **first,
            "left out": f"{bad:,} without usable values" if bad else "",
            "outside": summary.outside.sentence(),
            "mechanism": repr(mechanism),
            **(
                trip_promise(mechanism, largest)
                if trips
                else promise_in_words(mechanism, largest, who=who)
            ),
            "map": who and _ON_THE_MAP,
        }
        if spend is not None and self.limit is not None:
            lines["persons"] = persons_in_words(spend, self.limit, cost)
        console.result(values, lines | last)


def _request_options(output: str, names: Iterable[str]) -> shared.Decorator:
    """What both commands take; ``names`` are the mechanisms."""
    return shared.together(
        click.argument("source", metavar="IN"),
        shared.output_option(output),
        mechanism_options(names),
        shared.space_options,
        shared.outside_option,
        shared.location_options,
        shared.person_options,
        shared.trip_options,
        shared.engine_options,
    )


@click.command()
@_request_options("File of noisy reports; - for a pipe.", ON_MAPS)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column too; repeatable.")
@click.option("--exact", is_flag=True, help="Draw from the integer table (at most 4,096 cells).")
@shared.seed_option
@click.option("--save-mechanism", metavar="FILE", help="Write the mechanism document as well.")
@shared.machine_options
def command(
    keep: tuple[str, ...], exact: bool, save_mechanism: str | None, machine: bool, **given: Any
) -> None:
    """Turn true locations into noisy reports, one for each row of IN.

    IN and OUT are CSV (also .gz), Parquet or GeoJSON by their ending, - is a pipe. OUT holds the
    report and nothing else of the row, unless a column is kept. Each row is one report, and the
    reports about a person add up: --person says whom a row is about, --per-person limits them.
    With --trips each row is a trip, both ends are drawn, and it costs twice.

    \b
    geoveil obfuscate checkins.csv -o noisy.parquet --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    geoveil obfuscate checkins.csv -o noisy.csv --epsilon-per-km 2 --person user --per-person 1
    geoveil obfuscate trips.csv --trips -o noisy.parquet --mechanism elastic --epsilon-per-km 1
    """
    request = Request.of(**given)
    request.check()
    source, output, reading, limit = request.source, request.output, request.reading, request.limit
    if request.where.engine != "local":
        request.where.check(source, *["--exact"] * exact)
        request.where.check_file(source)
        if output == PIPE:
            raise click.UsageError("--engine spark must write a file, not a pipe")
    if save_mechanism is not None:
        writer.check_target(save_mechanism, source, output)
    console = Console(machine=machine, output=output)
    console.randomness(
        request.seed
    )  # for its warning: each batch is drawn from a source of its own
    with console.progress("building the mechanism") as progress:
        built = request.build(console, progress)
        progress.stage("obfuscating")
        sampler = built
        if exact and isinstance(built, gv.Channel) and built.told_apart is not None:
            sampler = gv.ExactTable(built)  # those between positions are drawn from integers anyway
        document = mechanism_to_dict(built)
        if request.where.engine != "local":
            with request.where.open(None, source) as engine:
                summary = obfuscate_file(
                    source, reading, built, output, engine, keep=keep, outside=request.outside,
                    seed=request.seed,
                    advance=lambda share, rows: progress.update(share, f"{rows:,} rows"),
                )  # fmt: skip
        else:
            with reading.open(source) as reader:
                summary = obfuscation.obfuscate_table(
                    request.table(reader, keep),
                    request.reporter(sampler),
                    lambda schema: writer.create_table(
                        output, schema, format=reading.format, document=document
                    ),
                    limit=limit,
                    seed=request.seed,
                    advance=lambda rows: progress.update(reader.fraction, f"{rows:,} rows"),
                )  # fmt: skip
    if save_mechanism is not None:
        gv.save_mechanism(built, save_mechanism)
    rows = f"{summary.reports:,} from {summary.rows_read:,} rows, in {in_words(output)}"
    last, what = {"saved": save_mechanism}, "reports" if request.trips is None else "trips"
    request.tell(console, summary, built, f"{what}_written", {what: rows}, last)


@click.command()
@_request_options(
    "Tally (.json); - for a pipe.", [name for name in ON_MAPS if name != "continuous-laplace"]
)
@click.option("--processes", type=click.IntRange(min=1),
              help="How many share the work; for large files all cores unless given.")  # fmt: skip
@shared.seed_option
@shared.machine_options
def tally(processes: int | None, machine: bool, **given: Any) -> None:
    """Obfuscate the places of IN, count the reports, and keep only the counts.

    OUT is a small document: the mechanism and how often each cell was reported. It goes to
    geoveil estimate. Each row of IN is one report, and the reports about a person add up: --person
    says whom a row is about, --per-person limits them.

    \b
    geoveil tally checkins.csv -o tally.json --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    """
    request = Request.of(**given)
    source, output, reading, limit = request.source, request.output, request.reading, request.limit
    if limit is not None and (processes or 1) > 1:
        raise click.UsageError(
            "--processes must be 1 with --person: the rows of a person may lie anywhere in the file"
        )
    if request.trips is not None and (processes or 1) > 1:
        raise click.UsageError("--processes must be 1 with --trips")
    if output != PIPE and not output.lower().endswith((".json", ".json.gz")):
        raise click.UsageError(f"output ({output}) must end in .json")
    request.check()
    console = Console(machine=machine, output=output)
    randomness = console.randomness(request.seed)  # of trips, and for its warning
    with console.progress("building the mechanism") as progress:
        built = request.build(console, progress)
        if not isinstance(built, gv.Channel):
            raise Unsupported(f"{built!r} reports points, not cells; use planar-laplace to count")
        progress.stage("counting")
        if request.trips is not None:
            _tally_trips(request, built, randomness, console, progress)
            return
        with request.where.open(processes, source) as engine:
            if request.where.is_dataset(source):
                counted, summary = request.tally_dataset(engine, built)
            else:
                counted, summary = tally_file(
                    source,
                    reading,
                    built,
                    outside=request.outside,
                    limit=limit,
                    seed=request.seed,
                    engine=engine,
                    advance=lambda share, rows: progress.update(share, f"{rows:,} rows"),
                )
        tallies.save_tally(counted, output)
    rows = f"{counted.total:,} reports from {summary.rows_read:,} rows, in {in_words(output)}"
    named = counted.counts[: built.space.size]
    cells = f"{int((named > 0).sum()):,} of {named.size:,} cells were reported"
    if counted.counts.size > named.size:
        cells += f", and {counted.total - int(named.sum()):,} reports name a place beside the map"
    first = {"counted": rows, "seen": cells}
    request.tell(console, summary, built, "reports_counted", first, {})


def _tally_trips(
    request: Request, mechanism: gv.Channel, randomness: gv.Randomness, console: Console,
    progress: ProgressBar,
) -> None:  # fmt: skip
    """The same for trips: pairs of reports are counted."""
    with request.reading.open(request.source) as reader:
        counted, summary = trip_rows.tally_trips(
            request.table(reader),
            mechanism,
            outside=request.outside,
            limit=request.limit,
            randomness=randomness,
            advance=lambda rows: progress.update(reader.fraction, f"{rows:,} rows"),
        )
    tallies.save_tally(counted, request.output)
    rows = f"{counted.total:,} trips from {summary.rows_read:,} rows, in {in_words(request.output)}"
    first = {"counted": rows, "seen": f"{len(counted.pairs):,} different pairs"}
    request.tell(console, summary, mechanism, "trips_counted", first, {})


def spend_values(
    spend: persons.Spend | None, guarantee: gv.Guarantee | None
) -> dict[str, Any] | None:
    """What persons have spent, for machines: the largest and the median, reports times promise."""
    if spend is None:
        return None

    def spent(reports: int) -> dict[str, Any]:
        if guarantee is None:
            return {"reports": reports, "spent": None}
        total = guarantee * reports
        amounts = {name: value for name, value in vars(total).items() if isinstance(value, float)}
        return {"reports": reports, "spent": total.amount(), **amounts}

    return {
        "persons": spend.persons,
        "largest": spent(spend.largest),
        "typical": spent(spend.typical),
    }


def persons_in_words(
    spend: persons.Spend, limit: persons.PersonLimit, guarantee: gv.Guarantee | None
) -> str:
    """How many persons there are, and what is typical of them."""
    many = "one report" if spend.typical == 1 else f"{spend.typical:,} reports"
    cost = f" ({(guarantee * spend.typical).amount()})" if guarantee else ""
    once = ", drawn once for each place of a person" if limit.by == "memoise" else ""
    return f"{spend.persons:,}, typically with {many}{cost}{once}"
