"""``geoveil benchmark``: each figure beside its yardstick."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console as RichConsole
from rich.table import Table

from geoveil.benchmark import BENCHMARKS, Figure, markdown
from geoveil.benchmark.timing import HEADINGS
from geoveil.cli.console import Console
from geoveil.cli.options import machine_options


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown table.")
@machine_options
def command(names: tuple[str, ...], as_markdown: bool, machine: bool) -> None:
    """Time what the project promises, each beside its yardstick in the same run.

    NAME is products, sampling, certificates, locating, release, estimation, collection or optimal;
    all of them unless given.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        raise click.UsageError(f"benchmark ({unknown[0]}) must be one of {', '.join(BENCHMARKS)}")
    console = Console(machine=machine)
    figures: list[Figure] = []
    with console.progress("measuring") as progress:
        for name in dict.fromkeys(names or BENCHMARKS):
            progress.stage(f"measuring {name}")
            figures += BENCHMARKS[name]()
    values = {"figures": [{**asdict(figure), "met": figure.met} for figure in figures]}
    if as_markdown and not machine:
        click.echo(markdown(figures))
    else:
        console.result(values, lambda screen: _show(screen, figures))


def _show(screen: RichConsole, figures: list[Figure]) -> None:
    table = Table(*HEADINGS, box=None, pad_edge=False)
    for figure in figures:
        style = "" if figure.met else "bold red"
        table.add_row(*figure.cells(), style=style)
    screen.print(table)
