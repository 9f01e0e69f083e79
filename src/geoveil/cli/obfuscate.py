"""``geoveil obfuscate``: a file of true locations in, a file of noisy reports out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Console as RichConsole

from geoveil.channel.base import Channel
from geoveil.cli.choice import ON_MAPS, MechanismChoice, describe, lay_grid, promise_in_words
from geoveil.cli.console import Console, ProgressBar, two_columns
from geoveil.cli.options import (
    PROMISE_NAMES,
    location_options,
    machine_options,
    outside_option,
    promise_options,
    space_options,
)
from geoveil.randomness import SYSTEM, seeded
from geoveil.report.document import AnyMechanism, mechanism_to_dict, save_mechanism
from geoveil.report.table import ExactTable
from geoveil.space.box import Box
from geoveil.space.outside import Outside
from geoveil.table import (
    Extent,
    LocationTable,
    ObfuscationSummary,
    create_table,
    obfuscate_table,
    open_table,
    reporter_for,
)
from geoveil.table.format import PIPE, format_of
from geoveil.table.locations import BadRows
from geoveil.table.reader import TableReader
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
    bad_rows: BadRows
    delimiter: str
    format: str | None
    exact: bool
    seed: int | None
    save_mechanism: str | None

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
            reader, lat=self.lat, lng=self.lng, keep=self.keep, bad_rows=self.bad_rows
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
    report and nothing else of the row, unless a column is kept. Each row is one report: rows about
    the same person add up.

    \b
    geoveil obfuscate checkins.csv -o noisy.parquet --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    """
    promise = {name: options.pop(name) for name in PROMISE_NAMES}
    request = Request(choice=MechanismChoice.parse(mechanism, promise), **options)
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
    warn_of_outside(console, summary.outside_clamped, summary.reports_written)
    values = {"output": request.output, **asdict(summary), **describe(built), "seed": request.seed}
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


def _obfuscate(
    request: Request, mechanism: AnyMechanism, progress: ProgressBar
) -> ObfuscationSummary:
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
            advance=lambda rows: progress.update(reader.fraction, f"{rows:,} rows"),
        )


def outside_in_words(moved: int, rows: int) -> str:
    """How many places were moved into the box; nothing where none was."""
    return f"{moved:,} of {rows:,} rows moved to the nearest cell" if moved else ""


def warn_of_outside(console: Console, moved: int, rows: int) -> None:
    """Ask about the coordinates where most of the places lie outside the box."""
    if 2 * moved > rows:
        console.warn(
            f"{outside_in_words(moved, rows)}, because they lie outside the box; are latitude and "
            "longitude in the right order, and is it the right box?"
        )


def _show(
    screen: RichConsole, request: Request, mechanism: AnyMechanism, summary: ObfuscationSummary
) -> None:
    where = "standard output" if request.output == PIPE else request.output
    dropped = [
        f"{count:,} {why}"
        for count, why in (
            (summary.bad_rows_dropped, "without usable coordinates"),
            (summary.outside_dropped, "outside the box"),
        )
        if count
    ]
    lines = {
        "reports": f"{summary.reports_written:,} from {summary.rows_read:,} rows, in {where}",
        "left out": ", ".join(dropped),
        "outside": outside_in_words(summary.outside_clamped, summary.reports_written),
        "mechanism": repr(mechanism),
        **promise_in_words(mechanism),
        "saved": request.save_mechanism or "",
    }
    screen.print(two_columns({name: text for name, text in lines.items() if text}))
