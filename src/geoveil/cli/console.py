"""What a command says, and the options that commands share."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar

import click
from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from geoveil.table.persons import LimitBy, PersonLimit

_PATIENCE_SECONDS = 1.0
_WIDTH = 120  # of what is printed into a file or a pipe


class Console:
    """Prints for a person, or one JSON document for a machine.

    ``data_on_stdout`` is for commands whose data goes to standard output: then all the rest goes to
    standard error.
    """

    def __init__(self, *, machine: bool = False, data_on_stdout: bool = False) -> None:
        self.machine = machine
        self._result_on_stderr = data_on_stdout

    def result(self, values: Mapping[str, Any], show: Callable[[RichConsole], None]) -> None:
        """The outcome of the command: ``values`` as JSON, or ``show`` for a person."""
        if self.machine:
            click.echo(json.dumps(values, indent=2, ensure_ascii=False), err=self._result_on_stderr)
            return
        stream = sys.stderr if self._result_on_stderr else sys.stdout
        width = None if stream.isatty() else _WIDTH
        show(RichConsole(file=stream, width=width, soft_wrap=True, highlight=False))

    def note(self, text: str) -> None:
        """Something worth knowing, said once."""
        _say("geoveil: note: ", text)

    def warn(self, text: str) -> None:
        """Something that may be a mistake, said once."""
        _say(click.style("geoveil: warning: ", fg="yellow"), text)

    def progress(self, description: str) -> ProgressBar:
        """A bar on a terminal for work that takes longer than a second; nothing elsewhere."""
        return ProgressBar(description, visible=sys.stderr.isatty())


class LibraryNotes(logging.Handler):
    """What the library logs while a command runs, as notes of the command."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._logger = logging.getLogger("geoveil.notes")

    def emit(self, record: logging.LogRecord) -> None:
        Console().note(record.getMessage())

    def __enter__(self) -> None:
        self._before = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)

    def __exit__(self, *ended: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before)


def _say(mark: str, text: str) -> None:
    """One line on standard error; nothing where the command has said it before."""
    context = click.get_current_context(silent=True)
    said: set[str] = set() if context is None else context.meta.setdefault("geoveil.said", set())
    if text not in said:
        said.add(text)
        click.echo(mark + text, err=True)


def json_number(value: float | None) -> float | str | None:
    """A number for machines: JSON has no infinity, a word stands for it."""
    if value is None or math.isfinite(value):
        return value
    return "infinite" if value > 0 else "-infinite"


class ProgressBar:
    """A bar that appears when its work has taken a second and leaves no trace."""

    def __init__(self, description: str, *, visible: bool) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=RichConsole(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(description, total=None, detail="")
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._progress.start)
        self._timer.daemon = True
        self._visible = visible

    def update(self, fraction: float | None = None, detail: str = "") -> None:
        """How far the work is, in [0, 1] where that is known, and a word about it."""
        total, completed = (None, None) if fraction is None else (1.0, fraction)
        self._progress.update(self._task, total=total, completed=completed, detail=detail)

    def stage(self, description: str) -> None:
        """Begin another part of the work."""
        self._progress.reset(self._task, description=description, total=None, detail="")

    def __enter__(self) -> ProgressBar:
        if self._visible:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._visible:
            self._timer.cancel()
            self._timer.join()
        if self._progress.live.is_started:
            self._progress.stop()


def two_columns(rows: Mapping[str, str]) -> Table:
    """Names on the left, what they are on the right."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))  # as text: a name in brackets is no style
    return table


# --- Options that several commands share


Command = TypeVar("Command", bound=Callable[..., Any])


class BoxType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.2 only
    """A box as ``SOUTH,WEST,NORTH,EAST`` in degrees."""

    name = "S,W,N,E"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        try:
            edges = tuple(float(edge) for edge in value.split(","))
        except ValueError:
            edges = ()
        if len(edges) != 4:
            self.fail("must be four numbers: south,west,north,east in degrees", param, ctx)
        return edges


def one_mark(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A delimiter: one character, or the word for the one that is hard to type."""
    mark = "\t" if value in ("tab", "\\t") else value
    if len(mark) != 1 or mark in '"\r\n':
        raise click.BadParameter("must be one character that is no quote", context, parameter)
    return mark


def machine_options(command: Command) -> Command:
    """``--json`` and ``--debug``, which every command has."""
    command = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show where an error comes from."
    )(command)
    return click.option("--json", "machine", is_flag=True, help="Print the result as JSON.")(
        command
    )


def space_options(command: Command) -> Command:
    """``--box`` and ``--cell-km``: the grid that places are put on."""
    for decorate in (
        click.option(
            "--cell-km",
            type=float,
            default=0.5,
            show_default=True,
            help="Side of a cell in kilometres.",
        ),
        click.option(
            "--box", type=BoxType(), help="Edges of the map in degrees; else taken from the data."
        ),
    ):
        command = decorate(command)
    return command


def location_options(command: Command) -> Command:
    """How a table of true locations is read: its columns, its format, and rows that are no places."""
    for decorate in (
        click.option(
            "--format",
            type=click.Choice(["csv", "parquet", "geojson"]),
            help="Format of a pipe; csv unless given.",
        ),
        click.option(
            "--delimiter",
            default=",",
            show_default=True,
            callback=one_mark,
            help="Mark between the fields of CSV; tab for tabulators.",
        ),
        click.option(
            "--bad-rows",
            type=click.Choice(["raise", "drop"]),
            default="raise",
            show_default=True,
            help="Rows without usable coordinates: an error, or left out and counted.",
        ),
        click.option(
            "--lng", "--lon", "lng", help="Column of the longitude; else found by its usual names."
        ),
        click.option("--lat", help="Column of the latitude; else found by its usual names."),
    ):
        command = decorate(command)
    return command


def outside_option(command: Command) -> Command:
    """``--outside``: what becomes of places beyond the edges of the map."""
    return click.option(
        "--outside",
        type=click.Choice(["drop", "clamp", "raise"]),
        default="drop",
        show_default=True,
        help="Places outside the box: left out and counted, to the nearest cell, or an error.",
    )(command)


def person_options(command: Command) -> Command:
    """``--person``, ``--per-person`` and ``--limit-by``: how many reports there are about a person."""
    for decorate in (
        click.option(
            "--limit-by",
            type=click.Choice(["sample", "cap", "memoise"]),
            help="Which: rows at random (sample, unless given), the first rows (cap), or different "
            "cells, each of which always gives the same report (memoise).",
        ),
        click.option(
            "--per-person", type=click.IntRange(min=1), help="At most so many reports a person."
        ),
        click.option("--person", metavar="COLUMN", help="Column that says whom a row is about."),
    ):
        command = decorate(command)
    return command


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


def promise_options(command: Command) -> Command:
    """What is promised: one of these, in the mechanism's own terms."""
    for flag, text in reversed(_PROMISES):
        command = click.option(flag, type=float, help=text)(command)
    return command


_PROMISES = (
    ("--epsilon-per-km", "Promise: loss per kilometre between two places."),
    ("--level", "Promise: loss between places within --radius-km of each other."),
    ("--radius-km", "The radius that --level speaks of."),
    ("--mean-distance-km", "Promise the wanted mean distance between place and report."),
    ("--beta-per-km", "Promise of the elastic mechanism by its β (loss at most 2β per km)."),
    ("--epsilon", "Promise of randomized-response: loss at any distance."),
)

PROMISE_NAMES = tuple(flag.removeprefix("--").replace("-", "_") for flag, _ in _PROMISES)
"""The parameters that ``promise_options`` gives to a command."""
