"""``geoveil obfuscate`` and ``tally``: true locations in, noisy reports or their counts out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

import geoveil as gv
from geoveil.cli import choice as choices
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, in_words
from geoveil.document.saved import AnyMechanism, mechanism_to_dict
from geoveil.engine.part_reports import obfuscate_file, tally_file
from geoveil.errors import Unsupported, number_of
from geoveil.files import PIPE
from geoveil.table import obfuscation, persons, tallies, trip_rows, writer
from geoveil.table.reader import format_of, is_pipe
from geoveil.trips.pairs import TripTally

_ON_THE_MAP = (
    "no promise covers that whoever is reported on was on it; --outside clamp draws for everybody"
)


@dataclass(frozen=True)
class Request:
    """A file of true places, the mechanism that answers them, and where the answers go."""

    rows: shared.RowFile
    output: str
    choice: choices.MechanismChoice
    seed: int | None

    @classmethod
    def of(cls, source: str, **options: Any) -> Request:
        """From the options."""
        return cls(shared.RowFile.from_options(source, options), **options)

    def check(self) -> None:
        """Refuse names that cannot be, before anything is read."""
        rows, needs_box = self.rows, self.choice.needs_box
        rows.check_engine()
        folder = rows.where.is_dataset(rows.source)
        format_of(rows.source, rows.reading.format, folder=folder)
        format_of(self.output, rows.reading.format, writing=True)
        self.check_target(self.output)
        if not rows.area.is_chosen and needs_box and is_pipe(rows.source):
            raise click.UsageError("--box must be given for a pipe, which cannot be read twice")
        if not rows.area.is_chosen and needs_box and folder:
            raise click.UsageError("--box must be given for a folder or an address")
        if not needs_box:
            rows.area.refuse("the mechanism brings its own map or needs none")

    def check_target(self, target: str, *others: str) -> None:
        """Refuse to write where the request reads."""
        document = self.choice.name if self.choice.is_document else None
        writer.check_target(target, self.rows.source, self.rows.area.within, document, *others)

    def build(self, console: Console, progress: ProgressBar) -> AnyMechanism:
        """The mechanism asked for, on a grid over the box asked for or over that of the data."""
        self.rows.where.require()
        if not self.choice.needs_box:
            return self.choice.build(None)
        rows, box = self.rows, self.rows.area.box
        if not rows.area.is_chosen:
            progress.stage("finding the box")
            box = tuple(rows.reading.box(rows.source, limit=rows.limit, advance=progress.update))
            edges = ",".join(f"{edge:g}" for edge in box)
            console.note(
                f"the box {edges} is taken from the data: it says that somebody is within 0.01 "
                "degrees of each edge, which no promise covers; give --box to avoid it"
            )
            progress.stage("building the mechanism")
        return self.choice.build(rows.area.grid(box))

    def tell(
        self, console: Console, summary: obfuscation.TableSummary, mechanism: AnyMechanism, reports: str,
        first: dict[str, str], last: dict[str, str],
    ) -> None:  # fmt: skip
        """What happened to the rows, what is promised, what a person has spent.

        ``reports`` is the machines' name of the number of reports; lines go before and after the rest.
        """
        console.warn_of_outside(summary.outside)
        spend, who = summary.spend, ""
        trips, limit = self.rows.trips is not None, self.rows.limit
        largest, cost = None if spend is None else spend.largest, mechanism.guarantee
        if trips and cost is not None:
            cost = cost * 2
        if isinstance(mechanism, gv.Channel) and mechanism.told_apart is None:
            both = "both trips on the map" if trips else "both on the map"
            who = "" if self.rows.outside == "clamp" else both
        values = {
            "output": self.output,
            "rows_read": summary.rows_read,
            reports: summary.reports,
            "bad_rows_dropped": summary.bad_rows_dropped,
            "outside_dropped": summary.outside.dropped,
            "outside_clamped": summary.outside.clamped,
            "per_person": spend_values(spend, cost),
            **choices.describe(mechanism, who, trips=trips),
            "seed": self.seed,
        }
        lines: dict[str, str | None] = {
            **first,
            "outside": summary.outside.sentence(),
            "mechanism": repr(mechanism),
            **choices.promise_in_words(mechanism, largest, who=who, trips=trips),
            "map": who and _ON_THE_MAP,
        }
        if spend is not None and limit is not None:
            lines["persons"] = persons_in_words(spend, limit, cost, "trip" if trips else "report")
        console.result(values, lines | last)


def _request_options(output: str, names: Iterable[str]) -> shared.Decorator:
    """What both commands take; ``names`` are the mechanisms."""
    return shared.together(
        click.argument("source", type=shared.INPUT, metavar="IN"),
        shared.output_option(output),
        choices.mechanism_options(names),
        shared.row_options,
    )


@click.command()
@_request_options("File of noisy reports; - for a pipe.", choices.ON_MAPS)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column too; repeatable.")
@click.option(
    "--exact", is_flag=True,
    help="Draw in whole numbers, as between positions anyway; elsewhere at most 4,096 cells.",
)  # fmt: skip
@shared.seed_option
@click.option("--save-mechanism", metavar="FILE", help="Write the mechanism document as well.")
@shared.machine_options
def command(
    keep: tuple[str, ...], exact: bool, save_mechanism: str | None, machine: bool, **options: Any
) -> None:
    """Turn true locations into noisy reports, one for each row of IN.

    IN and OUT are CSV, Parquet or GeoJSON by their ending, - is a pipe. OUT holds the
    report and nothing else of the row, unless a column is kept. Each row is one report, and the
    reports about a person add up: --person says whom a row is about, --per-person limits them.
    With --trips each row is a trip, both ends are drawn, and it costs twice.

    \b
    geoveil obfuscate checkins.csv -o noisy.parquet --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    geoveil obfuscate checkins.csv -o noisy.csv --epsilon-per-km 2 --person user --per-person 1
    geoveil obfuscate trips.csv --trips -o noisy.parquet --mechanism elastic --epsilon-per-km 1
    """
    request = Request.of(**options)
    request.check()
    rows, source, output = request.rows, request.rows.source, request.output
    if rows.where.engine != "local":
        rows.where.check(source, *["--exact"] * exact)
        rows.where.check_file(source)
        if output == PIPE:
            raise click.UsageError("--engine spark must write a file, not a pipe")
    if save_mechanism is not None:
        request.check_target(save_mechanism, output)
        if save_mechanism == output == PIPE:
            raise click.UsageError("only one output can go to a pipe; name a file for the other")
    console = Console(machine=machine, output=PIPE if save_mechanism == PIPE else output)
    console.randomness(request.seed)  # for its warning: each batch has a source of its own
    with console.progress("building the mechanism") as progress:
        built = request.build(console, progress)
        progress.stage("obfuscating")
        sampler = built
        if exact and isinstance(built, gv.ContinuousLaplace):
            raise click.UsageError("--exact is for noise on cells; points are drawn in doubles")
        if exact and isinstance(built, gv.Channel) and built.told_apart is not None:
            sampler = gv.ExactTable(built)  # those between positions are drawn from integers anyway
        document = mechanism_to_dict(built)
        if rows.where.engine != "local":
            with rows.where.open(None, source) as engine:
                summary = obfuscate_file(
                    source, rows.reading, built, output, engine, keep=keep, outside=rows.outside,
                    seed=request.seed,
                    advance=lambda share, rows: progress.update(share, number_of(rows, "row")),
                )  # fmt: skip
        else:
            kind = obfuscation.Reporter if rows.trips is None else trip_rows.TripReporter
            with rows.reading.open(source) as reader:
                summary = obfuscation.obfuscate_table(
                    rows.table(reader, keep), kind(sampler, outside=rows.outside),
                    lambda schema: writer.create_table(
                        output, schema, format=rows.reading.format, document=document
                    ),
                    limit=rows.limit, seed=request.seed,
                    advance=lambda count: progress.update(reader.fraction, number_of(count, "row")),
                )  # fmt: skip
    if save_mechanism is not None:
        gv.save_mechanism(built, save_mechanism)
    words = f"{summary.reports:,} from {number_of(summary.rows_read, 'row')}, in {in_words(output)}"
    last, what = {"saved": in_words(save_mechanism)}, "reports" if rows.trips is None else "trips"
    request.tell(console, summary, built, f"{what}_written", {what: words}, last)


@click.command()
@_request_options(
    "Tally (.json); - for a pipe.",
    [name for name in choices.ON_MAPS if name != "continuous-laplace"],
)
@click.option("--processes", type=click.IntRange(min=1),
              help="How many share the work; for large files all cores unless given.")  # fmt: skip
@shared.seed_option
@shared.machine_options
def tally(processes: int | None, machine: bool, **options: Any) -> None:
    """Obfuscate the places of IN, count the reports, and keep only the counts.

    OUT is a small document: the mechanism and how often each cell was reported. It goes to
    geoveil estimate. Each row of IN is one report, and the reports about a person add up: --person
    says whom a row is about, --per-person limits them.

    \b
    geoveil tally checkins.csv -o tally.json --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    """
    request = Request.of(**options)
    rows, output = request.rows, request.output
    if rows.limit is not None and (processes or 1) > 1:
        raise click.UsageError(
            "--processes must be 1 with --person: the rows of a person may lie anywhere in the file"
        )
    if rows.trips is not None and (processes or 1) > 1:
        raise click.UsageError("--processes must be 1 with --trips")
    if output != PIPE and not output.lower().endswith((".json", ".json.gz")):
        raise click.UsageError(f"output ({output}) must end in .json")
    request.check()
    console = Console(machine=machine, output=output)
    randomness = console.randomness(request.seed)  # of persons and trips, and for its warning
    counted: Any
    with console.progress("building the mechanism") as progress:
        built = request.build(console, progress)
        if not isinstance(built, gv.Channel):
            raise Unsupported(f"{built!r} reports points, not cells; use planar-laplace to count")
        progress.stage("counting")
        if rows.trips is not None or rows.limit is not None:
            # this process reads all: what belongs together may stand anywhere in the file
            kind = obfuscation.Reporter if rows.trips is None else trip_rows.TripReporter
            reporter = kind(built, outside=rows.outside, randomness=randomness)
            with rows.reading.open(rows.source) as reader:
                noisy = reporter.reports_for(rows.table(reader), limit=rows.limit)
                batches = noisy.rows(
                    lambda count: progress.update(reader.fraction, number_of(count, "row"))
                )
                counted = sum(reporter.tally(batch.places) for batch in batches)
            summary = noisy.summary()
        else:
            counted, summary = _tally_places(request, processes, built, progress)
        tallies.save_tally(counted, output)
    what = "report" if rows.trips is None else "trip"
    rows_read = number_of(summary.rows_read, "row")
    words = f"{number_of(counted.total, what)} from {rows_read}, in {in_words(output)}"
    first = {"counted": words, "seen": _coverage(counted)}
    request.tell(console, summary, built, f"{what}s_counted", first, {})


def _tally_places(
    request: Request, processes: int | None, mechanism: gv.Channel, progress: ProgressBar
) -> tuple[gv.Tally, obfuscation.TableSummary]:
    rows, reading = request.rows, request.rows.reading
    with rows.where.open(processes, rows.source) as engine:
        if rows.where.is_dataset(rows.source):  # which Spark reads as a DataFrame
            from geoveil.engine.spark import SparkEngine, dataset_frame, tally_frame

            assert isinstance(engine, SparkEngine)
            return tally_frame(
                dataset_frame(engine.session, rows.source, reading), mechanism, lat=reading.lat,
                lng=reading.lng, outside=rows.outside, bad_rows=reading.bad_rows, seed=request.seed,
            )  # fmt: skip
        return tally_file(
            rows.source, reading, mechanism, outside=rows.outside, seed=request.seed, engine=engine,
            advance=lambda share, count: progress.update(share, number_of(count, "row")),
        )  # fmt: skip


def _coverage(counted: gv.Tally | TripTally) -> str:
    """How much of what can be reported was reported."""
    if not isinstance(counted, gv.Tally):
        return number_of(len(counted.pairs), "different pair")
    named = counted.counts[: counted.space.size]
    reported, beside = int((named > 0).sum()), counted.total - int(named.sum())
    cells = f"{reported:,} of {named.size:,} cells {'was' if reported == 1 else 'were'} reported"
    if counted.counts.size > named.size:
        names = number_of(beside, "report names", "reports name")
        cells += f", and {names} a place beside the map"
    return cells


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
    spend: persons.Spend, limit: persons.PersonLimit, guarantee: gv.Guarantee | None, what: str
) -> str:
    """How many persons there are, and what is typical of them: how many reports, or trips."""
    many = f"one {what}" if spend.typical == 1 else f"{spend.typical:,} {what}s"
    cost = f" ({(guarantee * spend.typical).amount()})" if guarantee else ""
    once = ", drawn once for each place of a person" if limit.by == "memoise" else ""
    return f"{spend.persons:,}, typically with {many}{cost}{once}"
