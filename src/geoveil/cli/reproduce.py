"""``geoveil reproduce``: the tables and figures of the papers, ours beside theirs."""

from __future__ import annotations

from typing import Any

import click

from geoveil.cli.console import Console, ProgressBar, Screen, two_columns
from geoveil.cli.options import machine_options
from geoveil.papers import PAPERS, run
from geoveil.papers.data import MissingData
from geoveil.papers.report import Report


@click.command()
@click.argument("paper", type=click.Choice([*PAPERS, "all"]))
@click.option(
    "--data", metavar="DIR", help="Folder of the check-in files; else GEOVEIL_DATA, else data."
)
@click.option("--quick", is_flag=True, help="Fewer settings and repetitions.")
@click.option(
    "--out", default="out/papers", show_default=True, metavar="DIR", help="Where to write."
)
@click.option("--only", multiple=True, metavar="NAME", help="This experiment only; repeatable.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@machine_options
def command(paper: str, machine: bool, **options: Any) -> None:
    """Make the tables and figures of a paper again: pictures, CSV and a page with the verdicts.

    \b
    geoveil reproduce privic --quick
    """
    console = Console(machine=machine)
    names = list(PAPERS) if paper == "all" else [paper]
    with console.progress("reproducing") as progress:
        reports = [run(name, progress=_teller(progress, name), **options) for name in names]
    outcomes = [outcome for report in reports for outcome in report.outcomes]
    if all(outcome.finding is None for outcome in outcomes):
        raise MissingData(f"nothing could be run: {outcomes[0].not_run}")
    values = [report.to_dict() for report in reports]
    console.result({"papers": values}, lambda screen: _show(screen, reports))


def _teller(progress: ProgressBar, paper: str) -> Any:
    """Passes on how far an experiment is; a new one begins a new bar."""
    current = ""

    def tell(name: str, fraction: float | None, detail: str) -> None:
        nonlocal current
        if name != current:
            current = name
            progress.stage(f"{paper}: {name}")
        progress.update(fraction, detail)

    return tell


def _show(screen: Screen, reports: list[Report]) -> None:
    for report in reports:
        screen.print(report.paper.title, style="bold")
        lines = {}
        for outcome in report.outcomes:
            said = outcome.finding.conclusion if outcome.finding else outcome.not_run
            lines[outcome.experiment.title] = f"{outcome.verdict}: {said}"
        screen.print(two_columns(lines))
        screen.print(f"written to {report.page}\n")
