"""``geoveil obfuscate`` and ``tally``: true locations in, noisy reports or their counts out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from geoveil.channel.channel import Channel
from geoveil.channel.guarantee import Guarantee
from geoveil.cli import options as shared
from geoveil.cli.choice import (
    ON_MAPS,
    MechanismChoice,
    describe,
    mechanism_options,
    promise_in_words,
)
from geoveil.cli.console import Console, ProgressBar, in_words
from geoveil.document import saved
from geoveil.document.exact import ExactTable
from geoveil.document.saved import AnyMechanism, mechanism_to_dict
from geoveil.errors import Unsupported
from geoveil.space.outside import Outside
from geoveil.table.locations import Reading
from geoveil.table.obfuscation import Reporter, TableSummary, obfuscate_table
from geoveil.table.persons import PersonLimit, Spend
from geoveil.table.reader import PIPE, format_of
from geoveil.table.tallies import save_tally, tally_table, usable_processes
from geoveil.table.writer import check_target, create_table

_LARGE_BYTES = 1 << 28  # below, starting processes takes longer than the work


@click.command()
@click.argument("source", metavar="IN")
@shared.output_option("File of noisy reports; - for a pipe.")
@mechanism_options(ON_MAPS)
@shared.space_options
@shared.outside_option
@shared.location_options
@shared.person_options
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy this column too; repeatable.")
@click.option("--exact", is_flag=True, help="Draw from the integer table (at most 4,096 cells).")
@shared.seed_option
@click.option("--save-mechanism", metavar="FILE", help="Write the mechanism document as well.")
@shared.machine_options
def command(
    source: str, output: str, choice: MechanismChoice, area: shared.Area, outside: Outside,
    reading: Reading, limit: PersonLimit | None, keep: tuple[str, ...], exact: bool,
    seed: int | None, save_mechanism: str | None, machine: bool,
) -> None:  # fmt: skip
    """Turn true locations into noisy reports, one for each row of IN.

    IN and OUT are CSV (also .gz), Parquet or GeoJSON by their ending, - is a pipe. OUT holds the
    report and nothing else of the row, unless a column is kept. Each row is one report, and the
    reports about a person add up: --person says whom a row is about, --per-person limits them.

    \b
    geoveil obfuscate checkins.csv -o noisy.parquet --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    geoveil obfuscate checkins.csv -o noisy.csv --epsilon-per-km 2 --person user --per-person 1
    """
    _check(source, output, choice, area, reading)
    if save_mechanism is not None:
        check_target(save_mechanism, source, output)
    console = Console(machine=machine, output=output)
    randomness = console.randomness(seed)
    with console.progress("building the mechanism") as progress:
        built = _build(source, choice, area, reading, limit, console, progress)
        progress.stage("obfuscating")
        sampler = ExactTable(built) if exact and isinstance(built, Channel) else built
        document = mechanism_to_dict(built)
        with reading.open(source) as reader:
            summary = obfuscate_table(
                reading.locations(reader, keep=keep, limit=limit),
                Reporter(sampler, outside=outside, randomness=randomness),
                lambda schema: create_table(output, schema, format=reading.format, document=document),
                limit=limit,
                randomness=randomness,
                advance=lambda rows: progress.update(reader.fraction, f"{rows:,} rows"),
            )  # fmt: skip
    if save_mechanism is not None:
        saved.save_mechanism(built, save_mechanism)
    console.warn_of_outside(summary.outside)
    values = {"output": output, **_values(summary, built, "reports_written"), "seed": seed}
    reports = f"{summary.reports:,} from {summary.rows_read:,} rows, in {in_words(output)}"
    console.result(
        values, {"reports": reports, **_lines(summary, built, limit), "saved": save_mechanism}
    )


@click.command()
@click.argument("source", metavar="IN")
@shared.output_option("Tally (.json); - for a pipe.")
@mechanism_options(name for name in ON_MAPS if name != "continuous-laplace")
@shared.space_options
@shared.outside_option
@shared.location_options
@shared.person_options
@click.option("--processes", type=click.IntRange(min=1),
              help="How many share the work; for large files all cores unless given.")  # fmt: skip
@shared.seed_option
@shared.machine_options
def tally(
    source: str, output: str, choice: MechanismChoice, area: shared.Area, outside: Outside,
    reading: Reading, limit: PersonLimit | None, processes: int | None, seed: int | None, machine: bool,
) -> None:  # fmt: skip
    """Obfuscate the places of IN, count the reports, and keep only the counts.

    OUT is a small document: the mechanism and how often each cell was reported. It goes to
    geoveil estimate. Each row of IN is one report, and the reports about a person add up: --person
    says whom a row is about, --per-person limits them.

    \b
    geoveil tally checkins.csv -o tally.json --epsilon-per-km 2 --box 48.82,2.28,48.88,2.40
    """
    if limit is not None and (processes or 1) > 1:
        raise click.UsageError(
            "--processes must be 1 with --person: the rows of a person may lie anywhere in the file"
        )
    if output != PIPE and not output.lower().endswith((".json", ".json.gz")):
        raise click.UsageError(f"output ({output}) must end in .json")
    _check(source, output, choice, area, reading)
    console = Console(machine=machine, output=output)
    console.randomness(seed)  # for its warning: each batch is drawn from a seed of its own
    with console.progress("building the mechanism") as progress:
        built = _build(source, choice, area, reading, limit, console, progress)
        if not isinstance(built, Channel):
            raise Unsupported(f"{built!r} reports points, not cells; use planar-laplace to count")
        progress.stage("counting")
        large = source != PIPE and Path(source).stat().st_size >= _LARGE_BYTES
        with reading.open(source) as reader:
            counted, summary = tally_table(
                reading.locations(reader, limit=limit),
                built,
                outside=outside,
                limit=limit,
                seed=seed,
                processes=processes or (usable_processes() if large else 1),
                advance=lambda rows: progress.update(reader.fraction, f"{rows:,} rows"),
            )
        save_tally(counted, output)
    console.warn_of_outside(summary.outside)
    values = {"output": output, **_values(summary, built, "reports_counted"), "seed": seed}
    seen = int((counted.counts > 0).sum())
    rows = f"{counted.total:,} reports from {summary.rows_read:,} rows, in {in_words(output)}"
    cells = f"{seen:,} of {counted.counts.size:,} cells were reported"
    console.result(values, {"counted": rows, "seen": cells, **_lines(summary, built, limit)})


def _check(
    source: str, output: str, choice: MechanismChoice, area: shared.Area, reading: Reading
) -> None:
    """Refuse names that cannot be, before anything is read."""
    format_of(source, reading.format)
    format_of(output, reading.format)
    check_target(output, source, *([choice.name] if choice.is_document else []))
    if area.box is None and choice.needs_box and source == PIPE:
        raise click.UsageError("--box must be given for a pipe, which cannot be read twice")
    if area.box is not None and not choice.needs_box:
        raise click.UsageError(
            "--box is of no use here: the mechanism brings its own map or needs none"
        )


def _build(
    source: str, choice: MechanismChoice, area: shared.Area, reading: Reading,
    limit: PersonLimit | None, console: Console, progress: ProgressBar,
) -> AnyMechanism:  # fmt: skip
    """The mechanism asked for, on a grid over the box asked for or over that of the data."""
    if not choice.needs_box:
        return choice.build(None)
    box = area.box
    if box is None:
        progress.stage("finding the box")
        box = tuple(reading.box(source, limit=limit, advance=progress.update))
        edges = ",".join(f"{edge:g}" for edge in box)
        console.note(
            f"the box {edges} is taken from the data: it says that somebody is within 0.01 degrees "
            "of each edge, which no promise covers; give --box to avoid it"
        )
        progress.stage("building the mechanism")
    return choice.build(area.grid(box))


def _values(summary: TableSummary, mechanism: AnyMechanism, reports: str) -> dict[str, Any]:
    """What happened to the rows, for machines; ``reports`` is the name of their number."""
    return {
        "rows_read": summary.rows_read,
        reports: summary.reports,
        "bad_rows_dropped": summary.bad_rows_dropped,
        "outside_dropped": summary.outside.dropped,
        "outside_clamped": summary.outside.clamped,
        "per_person": spend_values(summary.spend, mechanism.guarantee),
        **describe(mechanism),
    }


def _lines(
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


def spend_values(spend: Spend | None, guarantee: Guarantee | None) -> dict[str, Any] | None:
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


def persons_in_words(spend: Spend, limit: PersonLimit, guarantee: Guarantee | None) -> str:
    """How many persons there are, and what is typical of them."""
    many = "one report" if spend.typical == 1 else f"{spend.typical:,} reports"
    cost = f" ({(guarantee * spend.typical).amount()})" if guarantee else ""
    once = ", drawn once for each place of a person" if limit.by == "memoise" else ""
    return f"{spend.persons:,}, typically with {many}{cost}{once}"
