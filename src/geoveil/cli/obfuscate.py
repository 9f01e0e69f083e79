"""``geoveil obfuscate``: a file of true locations in, a file of noisy reports out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console as RichConsole

from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import Guarantee
from geoveil.cli.choice import ON_MAPS, MechanismChoice, describe, lay_grid, promise_in_words
from geoveil.cli.console import (
    PROMISE_NAMES,
    Console,
    ProgressBar,
    location_options,
    machine_options,
    outside_option,
    person_limit,
    person_options,
    promise_options,
    space_options,
    two_columns,
)
from geoveil.document.exact import ExactTable
from geoveil.document.saved import AnyMechanism, mechanism_to_dict, save_mechanism
from geoveil.randomness import SYSTEM, seeded
from geoveil.space.box import Box
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table import (
    Extent,
    LocationTable,
    PersonLimit,
    TableSummary,
    create_table,
    obfuscate_table,
    open_table,
    reporter_for,
)
from geoveil.table.locations import BadRows
from geoveil.table.persons import Spend
from geoveil.table.reader import PIPE, TableReader, format_of
from geoveil.table.writer import check_target


@dataclass(frozen=True)
class Request:
    """Everything that was asked for."""

    source: str
    output: str
    choice: MechanismChoice
    box: tuple[float, ...] | None
    cell_km: float
    outside: Outside
    lat: str | None
    lng: str | None
    keep: tuple[str, ...]
    limit: PersonLimit | None
    bad_rows: BadRows
    delimiter: str
    format: str | None
    exact: bool
    seed: int | None
    save_mechanism: str | None

    @classmethod
    def parse(cls, mechanism: str, options: dict[str, Any]) -> Request:
        """From the options of a command, taken out of them."""
        promise = {name: options.pop(name) for name in PROMISE_NAMES}
        limit = person_limit(*(options.pop(name) for name in ("person", "per_person", "limit_by")))
        return cls(choice=MechanismChoice.parse(mechanism, promise), limit=limit, **options)

    def check(self) -> None:
        """Refuse names that cannot be, before anything is read."""
        format_of(self.source, self.format)
        format_of(self.output, self.format)
        documents = [self.choice.name] if self.choice.is_document else []
        check_target(self.output, self.source, *documents)
        if self.save_mechanism is not None:
            check_target(self.save_mechanism, self.source, self.output)
        if self.box is None and self.choice.needs_box and self.source == PIPE:
            raise click.UsageError("--box must be given for a pipe, which cannot be read twice")
        if self.box is not None and not self.choice.needs_box:
            raise click.UsageError(
                "--box is of no use here: the mechanism brings its own map or needs none"
            )

    def open(self) -> TableReader:
        """The file of true locations, to be read once from the front."""
        drop = self.bad_rows == "drop"
        return open_table(self.source, format=self.format, delimiter=self.delimiter, drop_bad=drop)

    def locations(self, reader: TableReader) -> LocationTable:
        """Its locations, with the columns to keep."""
        return LocationTable(
            reader,
            lat=self.lat,
            lng=self.lng,
            keep=self.keep,
            person=None if self.limit is None else self.limit.column,
            bad_rows=self.bad_rows,
        )


@click.command()
@click.argument("source", metavar="IN")
@click.option(
    "-o", "--output", required=True, metavar="OUT", help="File of noisy reports; - for a pipe."
)
@click.option(
    "--mechanism",
    default="planar-geometric",
    show_default=True,
    metavar="NAME",
    help=f"One of {', '.join(ON_MAPS)}; or a mechanism document (.json).",
)
@promise_options
@space_options
@outside_option
@location_options
@person_options
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column too; repeatable.")
@click.option("--exact", is_flag=True, help="Draw from the integer table (at most 4,096 cells).")
@click.option(
    "--seed", type=click.IntRange(min=0), help="For simulations only: noise that can be repeated."
)
@click.option("--save-mechanism", metavar="FILE", help="Write the mechanism document as well.")
@machine_options
def command(mechanism: str, machine: bool, **options: Any) -> None:
    """Turn true locations into noisy reports, one for each row of IN.

    IN and OUT are CSV (also .gz), Parquet or GeoJSON by their ending, - is a pipe. OUT holds the
    report and nothing else of the row, unless a column is kept. Each row is one report, and the
    reports about a person add up: --person says whom a row is about, --per-person limits them.

    \b
    geoveil obfuscate checkins.csv -o noisy.parquet --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    geoveil obfuscate checkins.csv -o noisy.csv --epsilon-per-km 2 --person user --per-person 1
    """
    request = Request.parse(mechanism, options)
    request.check()
    console = Console(machine=machine, data_on_stdout=request.output == PIPE)
    if request.seed is not None:
        console.warn("seeded noise is for simulations: whoever knows the seed can undo it")
    with console.progress("building the mechanism") as progress:
        built = build_mechanism(request, console, progress)
        progress.stage("obfuscating")
        summary = _obfuscate(request, built, progress)
    if request.save_mechanism is not None:
        save_mechanism(built, request.save_mechanism)
    warn_of_outside(console, summary.outside)
    values = {"output": request.output, **summary_values(summary, built, "reports_written")}
    values |= {**describe(built), "seed": request.seed}
    console.result(values, lambda screen: _show(screen, request, built, summary))


def build_mechanism(request: Request, console: Console, progress: ProgressBar) -> AnyMechanism:
    """The mechanism asked for, on a grid over the box asked for or over that of the data."""
    if not request.choice.needs_box:
        return request.choice.build(None)
    box = request.box
    if box is None:
        progress.stage("finding the box")
        box = tuple(_box_of_data(request, progress))
        edges = ",".join(f"{edge:g}" for edge in box)
        console.note(
            f"the box {edges} is taken from the data: it says that somebody is within 0.01 degrees "
            "of each edge, which no promise covers; give --box to avoid it"
        )
        progress.stage("building the mechanism")
    return request.choice.build(lay_grid(box, request.cell_km))


def _box_of_data(request: Request, progress: ProgressBar) -> Box:
    extent = Extent()
    with request.open() as reader:
        locations = request.locations(reader)
        for part in locations:
            extent.add(part.lat, part.lng)
            progress.update(reader.fraction, f"{locations.read:,} rows")
    return extent.box(request.source)


def _obfuscate(request: Request, mechanism: AnyMechanism, progress: ProgressBar) -> TableSummary:
    runs = ExactTable(mechanism) if request.exact and isinstance(mechanism, Channel) else mechanism
    randomness = SYSTEM if request.seed is None else seeded(request.seed)
    reporter = reporter_for(runs, outside=request.outside, randomness=randomness)
    document = mechanism_to_dict(mechanism)
    with request.open() as reader:
        return obfuscate_table(
            request.locations(reader),
            reporter,
            lambda schema: create_table(
                request.output, schema, format=request.format, document=document
            ),
            limit=request.limit,
            randomness=randomness,
            advance=lambda rows: progress.update(reader.fraction, f"{rows:,} rows"),
        )


def warn_of_outside(console: Console, outside: OutsideCount) -> None:
    """Say where one place in a hundred or more lies outside, and what may be wrong."""
    if outside.worth_a_warning:
        console.warn(f"{outside.sentence()}; {outside.hint or 'is it the right box?'}")


def summary_values(summary: TableSummary, mechanism: AnyMechanism, reports: str) -> dict[str, Any]:
    """What happened to the rows, for machines; ``reports`` is the name of their number."""
    return {
        "rows_read": summary.rows_read,
        reports: summary.reports,
        "bad_rows_dropped": summary.bad_rows_dropped,
        "outside_dropped": summary.outside.dropped,
        "outside_clamped": summary.outside.clamped,
        "per_person": spend_values(summary.spend, mechanism.guarantee),
    }


def spend_values(spend: Spend | None, guarantee: Guarantee | None) -> dict[str, Any] | None:
    """What persons have spent, for machines: the largest and the median, reports times promise."""
    if spend is None:
        return None
    return {
        "persons": spend.persons,
        "largest": _spent(spend.largest, guarantee),
        "typical": _spent(spend.typical, guarantee),
    }


def _spent(reports: int, guarantee: Guarantee | None) -> dict[str, Any]:
    if guarantee is None:
        return {"reports": reports, "spent": None}
    total = guarantee * reports
    amounts = {name: value for name, value in vars(total).items() if isinstance(value, float)}
    return {"reports": reports, "spent": total.amount(), **amounts}


def summary_in_words(
    summary: TableSummary, mechanism: AnyMechanism, limit: PersonLimit | None
) -> dict[str, str]:
    """What was left out, what is promised, and what a person has spent."""
    bad, spend = summary.bad_rows_dropped, summary.spend
    lines = {
        "left out": f"{bad:,} without usable values" if bad else "",
        "outside": summary.outside.sentence(),
        "mechanism": repr(mechanism),
        **promise_in_words(mechanism, None if spend is None else spend.largest),
    }
    if spend is not None and limit is not None:
        lines["persons"] = persons_in_words(spend, limit, mechanism.guarantee)
    return lines


def persons_in_words(spend: Spend, limit: PersonLimit, guarantee: Guarantee | None) -> str:
    """How many persons there are, and what is typical of them."""
    many = "one report" if spend.typical == 1 else f"{spend.typical:,} reports"
    cost = f" ({(guarantee * spend.typical).amount()})" if guarantee else ""
    once = ", drawn once for each place of a person" if limit.by == "memoise" else ""
    return f"{spend.persons:,}, typically with {many}{cost}{once}"


def _show(
    screen: RichConsole, request: Request, mechanism: AnyMechanism, summary: TableSummary
) -> None:
    where = "standard output" if request.output == PIPE else request.output
    lines = {
        "reports": f"{summary.reports:,} from {summary.rows_read:,} rows, in {where}",
        **summary_in_words(summary, mechanism, request.limit),
        "saved": request.save_mechanism or "",
    }
    screen.print(two_columns({name: text for name, text in lines.items() if text}))
