"""What a command says: results for people or machines, notes, warnings, progress."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import geoveil as gv
from geoveil.files import PIPE

if TYPE_CHECKING:  # what this module loads, every command loads
    from geoveil.space.outside import OutsideCount

_PATIENCE_SECONDS = 1.0
_WIDTH = 120  # of what is printed into a file or a pipe

Screen = RichConsole
"""What a result for people is printed on."""

Shown = Mapping[str, str | None] | Callable[[Screen], None]
"""A result for people: lines by name, those without text left out, or a function that prints it."""


class Console:
    """Prints for a person, or one JSON document for a machine.

    Where the data of a command goes to standard output (``output`` is ``-``), all the rest goes to
    standard error.
    """

    def __init__(self, *, machine: bool = False, output: str | None = None) -> None:
        self._machine = machine
        self._stream = "stderr" if output == PIPE else "stdout"

    def result(self, values: Mapping[str, Any], shown: Shown) -> None:
        """The outcome of the command: ``values`` as JSON, or ``shown`` for a person."""
        stream = getattr(sys, self._stream)  # looked up here: tests put others in its place
        if stream is None:  # closed by whoever started the program, and wants no words
            return
        if self._machine:
            click.echo(json.dumps(values, indent=2, ensure_ascii=False), file=stream)
            return
        lasting = not stream.isatty()  # in a file or a pipe, where blanks at the end of a line stay
        target = io.StringIO() if lasting else stream
        width = _WIDTH if lasting else None
        screen = Screen(file=target, width=width, soft_wrap=True, highlight=False)
        if callable(shown):
            shown(screen)
        else:
            screen.print(two_columns(shown))
        if lasting:
            stream.write(re.sub(r" +$", "", target.getvalue(), flags=re.MULTILINE))
            stream.flush()  # a server prints where it listens, and goes on

    def note(self, text: str) -> None:
        """Something worth knowing, said once."""
        _say("geoveil: note: ", text)

    def warn(self, text: str) -> None:
        """Something that may be a mistake, said once."""
        plain = os.environ.get("NO_COLOR")  # rich knows of it, click does not
        _say(click.style("geoveil: warning: ", fg=None if plain else "yellow"), text)

    def warn_of_outside(self, outside: OutsideCount) -> None:
        """Say where one place in a hundred or more lies outside, and what may be wrong."""
        if outside.worth_a_warning:
            self.warn(f"{outside.sentence()}; {outside.hint or 'is it the right map?'}")

    def alarm_of(self, description: Mapping[str, Any]) -> str:
        """What an alarm found, where one looked; said as a warning where it was raised."""
        alarm = description.get("alarm")
        if alarm and alarm["raised"]:
            self.warn(alarm["summary"])
        return "" if not alarm or alarm["raised"] else str(alarm["summary"])

    def randomness(self, seed: int | None) -> gv.Randomness:
        """The system's randomness; with a seed, and a warning, one that can be repeated."""
        if seed is None:
            return gv.randomness.SYSTEM
        self.warn("seeded noise is for simulations: whoever knows the seed can undo it")
        return gv.seeded(seed)

    def progress(self, description: str) -> ProgressBar:
        """A bar on a terminal for work that takes longer than a second; nothing elsewhere."""
        return ProgressBar(description, visible=sys.stderr.isatty())


class LibraryNotes(logging.Handler):
    """What the library logs while a command runs, as notes of the command; its warnings as the command's."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._logger = logging.getLogger("geoveil.notes")

    def emit(self, record: logging.LogRecord) -> None:
        say = Console().note if record.levelno < logging.WARNING else Console().warn
        say(record.getMessage())

    def __enter__(self) -> None:
        self._before = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        self._show_warning, warnings.showwarning = warnings.showwarning, self._shown

    def __exit__(self, *ended: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before)
        warnings.showwarning = self._show_warning

    def _shown(
        self, message: Warning | str, category: type[Warning], *where: Any, **more: Any
    ) -> None:
        if category is UserWarning:
            Console().warn(str(message))
        else:
            self._show_warning(message, category, *where, **more)


def _say(mark: str, text: str) -> None:
    """One line on standard error; nothing where the command has said it before."""
    context = click.get_current_context(silent=True)
    said: set[str] = set() if context is None else context.meta.setdefault("geoveil.said", set())
    if text not in said:
        said.add(text)
        click.echo(mark + text, err=True)


class ProgressBar:
    """A bar that appears when its work has taken a second and leaves no trace."""

    def __init__(self, description: str, *, visible: bool) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=Screen(stderr=True),
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

    def steps(self, step: int, total: int) -> None:
        """How far the work is, in steps."""
        self.update(step / total)

    def stage(self, description: str) -> None:
        """Begin another part of the work."""
        self._progress.reset(self._task, description=description, total=None, detail="")

    def __enter__(self) -> ProgressBar:
        if self._visible:
            self._timer.start()
        return self

    def __exit__(self, *ended: object) -> None:
        if self._visible:
            self._timer.cancel()
            self._timer.join()
        if self._progress.live.is_started:
            self._progress.stop()


def two_columns(rows: Mapping[str, str | None]) -> Table:
    """Names on the left, what they are on the right; a name without text is left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value:
            table.add_row(name, Text(value))  # as text: a name in brackets is no style
    return table


def columns_of_numbers(
    headings: Sequence[str], *, first: str | None = None, indent: int = 0
) -> Table:
    """An empty table of numbers, right-justified; ``first`` heads a column of names before them."""
    table = Table(box=None, pad_edge=indent > 0, padding=(0, 3, 0, indent))
    if first is not None:
        table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def in_words(path: str | None) -> str:
    """Where data goes, as a person says it."""
    return "standard output" if path == PIPE else path or ""
