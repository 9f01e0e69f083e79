"""``geoveil tally``: obfuscate and count in one go; only the counts are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console as RichConsole

from geoveil.channel.channel import Channel, Tally
from geoveil.cli.choice import ON_MAPS, describe
from geoveil.cli.console import (
    Console,
    ProgressBar,
    location_options,
    machine_options,
    outside_option,
    person_options,
    promise_options,
    space_options,
    two_columns,
)
from geoveil.cli.obfuscate import (
    Request,
    build_mechanism,
    summary_in_words,
    summary_values,
    warn_of_outside,
)
from geoveil.errors import Unsupported
from geoveil.table import TableSummary
from geoveil.table.reader import PIPE
from geoveil.table.tallies import save_tally, tally_table, usable_processes

_COUNTED = tuple(name for name in ON_MAPS if name != "continuous-laplace")
_LARGE_BYTES = 1 << 28  # below, starting processes takes longer than the work


@click.command()
@click.argument("source", metavar="IN")
@click.option("-o", "--output", required=True, metavar="OUT", help="Tally (.json); - for a pipe.")
@click.option(
    "--mechanism",
    default="planar-geometric",
    show_default=True,
    metavar="NAME",
    help=f"One of {', '.join(_COUNTED)}; or a mechanism document (.json).",
)
@promise_options
@space_options
@outside_option
@location_options
@person_options
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="How many share the work; for large files all cores unless given.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="For simulations only: noise that can be repeated."
)
@machine_options
def command(mechanism: str, machine: bool, processes: int | None, **options: Any) -> None:
    """Obfuscate the places of IN, count the reports, and keep only the counts.

    OUT is a small document: the mechanism and how often each cell was reported. It goes to
    geoveil estimate. Each row of IN is one report, and the reports about a person add up: --person
    says whom a row is about, --per-person limits them.

    \b
    geoveil tally checkins.csv -o tally.json --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    """
    request = Request.parse(
        mechanism, options | {"keep": (), "exact": False, "save_mechanism": None}
    )
    _check(request, processes)
    console = Console(machine=machine, data_on_stdout=request.output == PIPE)
    if request.seed is not None:
        console.warn("seeded noise is for simulations: whoever knows the seed can undo it")
    with console.progress("building the mechanism") as progress:
        built = build_mechanism(request, console, progress)
        if not isinstance(built, Channel):
            raise Unsupported(f"{built!r} reports points, not cells; use planar-laplace to count")
        progress.stage("counting")
        tally, summary = _count(request, built, processes or _processes(request.source), progress)
        save_tally(tally, request.output)
    warn_of_outside(console, summary.outside)
    values = {"output": request.output, **summary_values(summary, built, "reports_counted")}
    values |= {**describe(built), "seed": request.seed}
    console.result(values, lambda screen: _show(screen, request, tally, summary))


def _check(request: Request, processes: int | None) -> None:
    if request.limit is not None and (processes or 1) > 1:
        raise click.UsageError(
            "--processes must be 1 with --person: the rows of a person may lie anywhere in the file"
        )
    if request.output != PIPE and not request.output.lower().endswith((".json", ".json.gz")):
        raise click.UsageError(f"output ({request.output}) must end in .json")
    request.check()


def _processes(source: str) -> int:
    large = source != PIPE and Path(source).stat().st_size >= _LARGE_BYTES
    return usable_processes() if large else 1


def _count(
    request: Request, mechanism: Channel, processes: int, progress: ProgressBar
) -> tuple[Tally, TableSummary]:
    with request.open() as reader:
        return tally_table(
            request.locations(reader),
            mechanism,
            outside=request.outside,
            limit=request.limit,
            seed=request.seed,
            processes=processes,
            advance=lambda rows: progress.update(reader.fraction, f"{rows:,} rows"),
        )


def _show(screen: RichConsole, request: Request, tally: Tally, summary: TableSummary) -> None:
    where = "standard output" if request.output == PIPE else request.output
    seen = int((tally.counts > 0).sum())
    lines = {
        "counted": f"{tally.total:,} reports from {summary.rows_read:,} rows, in {where}",
        "seen": f"{seen:,} of {tally.counts.size:,} cells were reported",
        **summary_in_words(summary, tally.channel, request.limit),
    }
    screen.print(two_columns({name: text for name, text in lines.items() if text}))
