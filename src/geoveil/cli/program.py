"""The program itself: its commands, and how it ends.

Exit codes: 0 done; 1 a claim does not hold (``audit``); 2 bad input, said in one line; 70 a fault
of the program; 130 interrupted; 141 the reader of a pipe went away; 143 terminated.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

from geoveil import __version__
from geoveil.errors import GeoveilError, MissingExtra

COMMANDS = {
    "demo": ("demo", "A simulated city, collected through a real collector."),
    "serve": ("serve", "Collect reports: campaigns, rounds and estimates over HTTP."),
    "backup": ("serve:backup", "Copy a store into a file while the server goes on."),
    "tokens": ("serve:tokens", "List the operators' tokens, or take one back."),
    "obfuscate": ("obfuscate", "Turn true locations into noisy reports."),
    "tally": ("obfuscate:tally", "Obfuscate places and keep only the counts of reports."),
    "estimate": ("estimate", "Estimate how people are distributed from noisy reports."),
    "flows": ("flow_map", "Estimate how many trips go from where to where, from noisy trips."),
    "evaluate": ("evaluate", "Compare an estimate with the truth."),
    "design": ("design", "Design a mechanism for what is believed, at a certified promise."),
    "hexagons": ("design:hexagons", "Write hexagons over an area, for a campaign of the service."),
    "simulate": ("simulate", "Run a population through the rounds of a campaign."),
    "audit": ("audit", "Check what a mechanism document promises."),
    "release": ("release", "Release counts of people at places."),
    "reproduce": ("reproduce", "Make the tables and figures of a paper again."),
    "completion": ("program:completion", "Print the completion script of a shell."),
}
"""Each command: its module in this package (as ``command`` there, or the name behind the colon), and the
line about it in the list of commands, for which nothing is imported."""

EXTRAS = {
    **dict.fromkeys(("rich", "pyarrow"), "cli"),
    **dict.fromkeys(("pandas", "geopandas"), "geo"),
    **dict.fromkeys(("apsw", "httptools", "msgspec", "psycopg", "starlette", "uvicorn"), "server"),
    "matplotlib": "plot",
    "ot": "transport",
}
"""Each module that may be missing, and the extra that brings it."""

_LONGEST = 600
"""Characters of an error, at most."""

BAD_INPUT, FAULT, INTERRUPTED, BROKEN_PIPE, TERMINATED = 2, 70, 130, 141, 143


class Program(click.Group):
    """A group whose commands are imported when they are called and whose errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The name of a command and the line about it: what listing and completing need."""
        if cmd_name not in COMMANDS:
            return None
        return click.Command(cmd_name, short_help=COMMANDS[cmd_name][1])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments call, imported now."""
        called, command, rest = super().resolve_command(ctx, args)
        if called in COMMANDS:
            module, _, name = COMMANDS[called][0].partition(":")
            command = getattr(import_module(f"geoveil.cli.{module}"), name or "command")
        return called, command, rest

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(arguments, prog_name or "geoveil", complete_var, False, **extra)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BaseException as error:
            if "--debug" in arguments and not isinstance(error, (click.ClickException, SystemExit)):
                raise
            code = _explain(error)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click, whose exit code for it means something else here
            ctx.exit(_leave_pipe())


@click.group(
    name="geoveil",
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def program(context: click.Context) -> None:
    """Location privacy: noisy cells under a certified guarantee, and the distribution back."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
    else:
        from geoveil.cli.console import LibraryNotes  # here, since rich is slow to import

        context.with_resource(LibraryNotes())


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(geoveil completion bash)"       # in ~/.bashrc; zsh likewise
    geoveil completion fish | source        # in config.fish
    """
    kind = get_completion_class(shell)
    if kind is None:  # the choice above names what click has
        raise click.UsageError(f"no completion for {shell}", context)
    click.echo(kind(context.find_root().command, {}, "geoveil", "_GEOVEIL_COMPLETE").source())


def _explain(error: BaseException) -> int:
    """One clear line on standard error, and the exit code that goes with it."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        click.echo("geoveil: interrupted", err=True)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return _leave_pipe()
    message = _message(error)
    if message is None:
        kind = type(error).__name__
        click.echo(f"geoveil: internal error: {kind}; run again with --debug to see it", err=True)
        return FAULT
    line = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    if len(line) > _LONGEST:  # a value from a file may be of any length
        line = f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
    click.echo(f"geoveil: error: {line}", err=True)
    return BAD_INPUT


def _message(error: BaseException) -> str | None:
    """What to tell the user about an expected failure; ``None`` for a fault of the program."""
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None) if isinstance(error, click.UsageError) else None
        where = f" (see {context.command_path} --help)" if context else ""
        return error.format_message() + where
    if isinstance(error, GeoveilError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        missing = str(error.name).partition(".")[0]
        extra = EXTRAS.get(missing)
        return str(MissingExtra(missing, extra, "this command")) if extra else None
    if isinstance(error, IsADirectoryError):
        return f"{error.filename} must be a file; it is a folder: name a file in it"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return "not enough memory for this; choose larger cells or a smaller box"
    return None


def _leave_pipe() -> int:
    """Standard output goes nowhere from here on, so that leaving does not fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    return BROKEN_PIPE


def _fill_closed_streams() -> None:
    """Let no file get the number of a standard stream that was closed before the program began.

    ``sys.stdout`` and ``sys.stdin`` stay ``None`` then, and data for them is refused; words go nowhere.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the first that is free, which is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115


def run() -> None:
    """The program as a process of its own: SIGTERM unwinds it, so half-written files are removed.

    So does a terminal that is closed, unless ``nohup`` has made the program deaf to it.
    """

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    def end(number: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGTERM)  # which the server may have made its own

    signal.signal(signal.SIGTERM, terminate)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, end)
    _fill_closed_streams()
    for stream in (sys.stdout, sys.stderr):  # a terminal without Greek letters gets question marks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    program()
