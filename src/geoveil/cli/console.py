"""What a command says: results on standard output, notes and progress on standard error."""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import click
from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

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
