"""``geoveil design``: the mechanism for a promise and a dial, or the whole dial as advice."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console as RichConsole
from rich.table import Table

from geoveil.channel.words import rounded_up
from geoveil.cli.choice import describe, promise_in_words
from geoveil.cli.console import Console, json_number, two_columns
from geoveil.cli.optimum import LOSSES, check_flags, design_optimum
from geoveil.cli.options import machine_options
from geoveil.collect import Advice, DesignedElastic, advise, elastic
from geoveil.plot.dial import save_dial
from geoveil.plot.maps import picture_kind
from geoveil.report.document import save_mechanism
from geoveil.table.results import Result, read_result
from geoveil.table.writer import binary_sink, check_target

_FORETELLS = 10
"""Up to here the leverage is near the gain that fakes have: docs/robustness.md."""


@click.command()
@click.option(
    "--prior", "source", required=True, metavar="FILE",
    help="What is believed: an estimate, or any table of cells with a share each.",
)  # fmt: skip
@click.option("--epsilon-per-km", type=float, help="The promise, certified.")
@click.option("--mean-distance-km", type=float, help="A mean distance; the promise is solved for.")
@click.option(
    "--camouflage", type=click.FloatRange(0, 1), default=0.5, show_default=True,
    help="The dial: 0 the sharpest map, 1 the least leakage.",
)  # fmt: skip
@click.option("--most-leverage", type=float, metavar="L",
              help="What a fake report may weigh at most; a low bound costs camouflage.")  # fmt: skip
@click.option("-o", "--output", metavar="MECHANISM.json", help="Where the mechanism goes.")
@click.option("--advise", "advice", is_flag=True, help="Show the whole dial at the promise.")
@click.option("--people", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="For how many people, one report each, the advice expects an error.")  # fmt: skip
@click.option("--plot", metavar="FILE", help="Draw the dial (.png, .svg, .pdf); with --advise.")
@click.option("--optimal", is_flag=True, help="The least loss at the promise (at most 400 cells).")
@click.option("--loss", type=click.Choice(list(LOSSES)), default="distance", show_default=True,
              help="What --optimal makes small.")  # fmt: skip
@click.option("--gap", type=click.FloatRange(0, 1, min_open=True), default=1e-6, show_default=True,
              help="How far --optimal may stay from the optimum.")  # fmt: skip
@click.option("--spanner", type=float, metavar="T",
              help="Let --optimal keep the constraints of a T-spanner only.")  # fmt: skip
@machine_options
def command(machine: bool, advice: bool, optimal: bool, **options: Any) -> None:
    """Design a mechanism for what is believed, at a certified promise and a camouflage.

    \b
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --camouflage 0.5 -o mechanism.json
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --advise --plot dial.png
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --optimal -o mechanism.json
    """
    console = Console(machine=machine)
    check_flags(optimal)
    if optimal:
        design_optimum(console, options)
        return
    _check(advice, options)
    with console.progress("reading the prior") as progress:
        prior = read_result(options["source"])
        progress.stage("designing")
        if advice:
            found = advise(
                prior.space,
                prior.share,
                epsilon_per_km=options["epsilon_per_km"],
                people=options["people"],
                most_leverage=options["most_leverage"],
                progress=lambda done, total: progress.update(done / total),
            )
            _draw(found, options["plot"])
        if options["output"] is not None:
            made = _designed(prior, options)
            save_mechanism(made, options["output"])
    if advice:
        console.result(_advice_values(found), lambda screen: _show_advice(screen, found))
    else:
        console.result(_values(made), lambda screen: _show(screen, made, options["output"]))


def _check(advice: bool, options: dict[str, Any]) -> None:
    if advice and options["epsilon_per_km"] is None:
        raise click.UsageError("--advise must have a promise: --epsilon-per-km")
    if not advice and options["output"] is None:
        raise click.UsageError("-o must be given, or --advise")
    if options["plot"] is not None and not advice:
        raise click.UsageError("--plot must go with --advise")
    for target in (options["output"], options["plot"]):
        if target is not None:
            check_target(target, options["source"])
    if options["plot"] is not None:
        picture_kind(options["plot"])


def _designed(prior: Result, options: dict[str, Any]) -> DesignedElastic:
    return elastic(
        prior.space,
        prior.share,
        epsilon_per_km=options["epsilon_per_km"],
        mean_distance_km=options["mean_distance_km"],
        camouflage=options["camouflage"],
        most_leverage=options["most_leverage"],
    )


def _draw(advice: Advice, path: str | None) -> None:
    if path is not None:
        with binary_sink(path) as sink:
            save_dial(sink, picture_kind(path), advice)


def _values(made: DesignedElastic) -> dict[str, Any]:
    return {
        "beta_per_km": made.beta_per_km,
        "certified_epsilon_per_km": made.certified_epsilon_per_km,
        "mean_distance_km": made.mean_distance_km,
        "leakage_bits": made.leakage_bits,
        "leverage": json_number(made.leverage),
        "cells_with_weight": made.cells_with_weight,
        "rank": made.rank,
        "warning": made.warning,
        **describe(made),
    }


def _show(screen: RichConsole, made: DesignedElastic, output: str) -> None:
    lines = {
        **promise_in_words(made),
        "certified": f"ε = {rounded_up(made.certified_epsilon_per_km)} per km, β = {made.beta_per_km:.6g}",
        "mean distance": f"{made.mean_distance_km:.4g} km between the cell of a person and the report",
        "leakage": f"{made.leakage_bits:.4g} bits a report, on average",
        "fake reports": f"each may weigh for {_weight(made.leverage)} honest ones; geoveil audit --prior "
        "measures what they move",
        "reported cells": f"{made.cells_with_weight} of {made.space.size}",
        "warning": made.warning or "",
        "saved": output,
    }
    screen.print(two_columns({name: text for name, text in lines.items() if text}))


def _weight(leverage: float) -> str:
    """The leverage as far as it foretells anything: beyond ten an estimator stops long before."""
    return f"up to {leverage:.3g}" if leverage <= _FORETELLS else f"over {_FORETELLS}"


def _advice_values(advice: Advice) -> dict[str, Any]:
    kept = ("camouflage", "mean_distance_km", "leakage_bits", "expected_error_km",
            "isolated_posterior", "leverage")  # fmt: skip
    return {
        "epsilon_per_km": advice.epsilon_per_km,
        "people": advice.people,
        "isolated_cell": advice.isolated_cell,
        "choices": [
            {
                "name": choice.name,
                **{name: json_number(getattr(choice, name)) for name in kept},
            }
            for choice in advice.choices
        ],
        "recommended": advice.recommended.camouflage,
        "sentence": advice.sentence(),
    }


def _show_advice(screen: RichConsole, advice: Advice) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for heading in (
        "distance (km)",
        "leakage (bits)",
        "error (km)",
        "isolated place",
        "fake weighs",
    ):
        table.add_column(heading, justify="right")
    for choice in advice.choices:
        style = "bold" if choice is advice.recommended else ""
        table.add_row(
            choice.name, f"{choice.mean_distance_km:.3f}", f"{choice.leakage_bits:.3f}",
            f"{choice.expected_error_km:.4f}", f"{choice.isolated_posterior:.3f}",
            _weight(choice.leverage), style=style,
        )  # fmt: skip
    screen.print(table)
    screen.print(advice.sentence())
