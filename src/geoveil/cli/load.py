"""``geoveil load``: simulated devices against a collector, and what it answered."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console as RichConsole

from geoveil.cli.console import Console, two_columns
from geoveil.cli.options import machine_options
from geoveil.load import LoadResult, Plan, run_load


@click.command()
@click.argument("url", metavar="LINK")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="At most this long.")
@click.option("--requests", type=click.IntRange(min=1), default=1_000_000, show_default=True,
              help="At most so many.")  # fmt: skip
@click.option("--connections", type=click.IntRange(1, 4096), default=32, show_default=True)
@click.option("--batch", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="Reports in one request.")  # fmt: skip
@click.option("--rate", "rate_per_s", type=float, metavar="R",
              help="Open loop: R requests a second, answered or not.")  # fmt: skip
@click.option("--max-epsilon-per-km", type=float, default=10.0, show_default=True,
              help="The largest promise the devices accept.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Where the simulated people are; reports are always drawn by the system.")  # fmt: skip
@click.option("--anywhere", is_flag=True,
              help="Allow a collector that is not on this machine; yours, one hopes.")  # fmt: skip
@machine_options
def command(
    machine: bool, url: str, max_epsilon_per_km: float, anywhere: bool, **options: Any
) -> None:
    """Load a campaign's collector with simulated devices: real checks, exact draws, one report each.

    \b
    geoveil load http://localhost:8000/c/paris-k3x7qa --seconds 60 --connections 128
    geoveil load http://localhost:8000/c/paris-k3x7qa --rate 1000 --seconds 600
    """
    console = Console(machine=machine)
    plan = Plan(**options)
    with console.progress("sending reports") as bar:
        result = run_load(
            url, plan, max_epsilon_per_km=max_epsilon_per_km, anywhere=anywhere,
            progress=lambda so_far: bar.update(None, f"{so_far.counted:,} counted"),
        )  # fmt: skip
    console.result(result.to_dict(), lambda screen: _show(screen, result))


def _show(screen: RichConsole, result: LoadResult) -> None:
    pace = f"{result.reports_per_s:,.0f} a second"
    rows = {
        "Counted": f"{result.counted:,} reports in {result.seconds:.3g} s: {pace}",
        "Requests": f"{result.requests:,}",
        "Latency": ", ".join(f"p{p} {1000 * result.latency_s(p):.3g} ms" for p in (50, 95, 99)),
        "Refused": f"{result.refused:,} reports, for a stated reason",
        "Shed": f"{result.shed:,} requests asked to come again",
        "Unknown": f"{result.unknown:,} requests without an answer",
    }
    screen.print(two_columns(rows))
