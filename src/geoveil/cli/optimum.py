"""``geoveil design --optimal``: the mechanism of least loss for what is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console as RichConsole

from geoveil.cli.choice import describe, promise_in_words
from geoveil.cli.console import Console, two_columns
from geoveil.optimal.mechanism import OptimalMechanism, optimal_mechanism
from geoveil.report.document import save_mechanism
from geoveil.space.loss import distance_km, squared_distance_km2
from geoveil.table.results import Result
from geoveil.table.writer import check_target

LOSSES = {"distance": distance_km, "squared-distance": squared_distance_km2}
"""The losses that the command line knows by name."""

_OF_THE_DIAL = {
    "advice": "--advise",
    "camouflage": "--camouflage",
    "mean_distance_km": "--mean-distance-km",
    "most_leverage": "--most-leverage",
    "people": "--people",
    "plot": "--plot",
}
_OF_THE_OPTIMUM = {"loss": "--loss", "gap": "--gap", "spanner": "--spanner"}


def check_flags(optimal: bool) -> None:
    """Refuse what was given for the other kind of design."""
    source = click.get_current_context().get_parameter_source
    for name, flag in (_OF_THE_DIAL if optimal else _OF_THE_OPTIMUM).items():
        if source(name) is ParameterSource.COMMANDLINE:
            why = "is not for --optimal, which has no dial" if optimal else "must go with --optimal"
            raise click.UsageError(f"{flag} {why}")


def design_optimum(console: Console, read: Callable[[], Result], options: dict[str, Any]) -> None:
    """Read the prior, solve, save the mechanism and say how good it is."""
    _check(options)
    check_target(options["output"], options["source"])
    with console.progress("reading the prior") as progress:
        prior = read()
        progress.stage("optimising")
        made = optimal_mechanism(
            prior.space,
            prior.share,
            epsilon_per_km=options["epsilon_per_km"],
            loss=LOSSES[options["loss"]],
            gap=options["gap"],
            spanner=options["spanner"],
            progress=progress.update,
        )
        save_mechanism(made, options["output"])
    found = made.optimality
    if found.gap > options["gap"] and found.stretch == 1:
        console.warn(f"the gap is {found.gap:.2g}, stopped because {found.stopped}")
    console.result(_values(made), lambda screen: _show(screen, made, options))


def _check(options: dict[str, Any]) -> None:
    if options["epsilon_per_km"] is None or options["output"] is None:
        raise click.UsageError("--optimal must have a promise and a file: --epsilon-per-km and -o")


def _values(made: OptimalMechanism) -> dict[str, Any]:
    found = made.optimality
    return {
        "expected_loss": found.expected_loss,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "extra_loss": found.extra_loss,
        "steps": found.steps,
        "pairs": found.pairs,
        "stretch": found.stretch,
        "stopped": found.stopped,
        "certified_epsilon_per_km": made.certificate.epsilon_per_km,
        "holds": made.certificate.holds,
        **describe(made),
    }


def _show(screen: RichConsole, made: OptimalMechanism, options: dict[str, Any]) -> None:
    found = made.optimality
    unit = "km²" if options["loss"] == "squared-distance" else "km"
    lines = {
        **promise_in_words(made),
        "certified": f"ε = {made.certificate.found}",
        "expected loss": f"{found.expected_loss:.6g} {unit}; no mechanism with this promise is below "
        f"{found.lower_bound:.6g} {unit}",
        "solved": f"{found.stopped}, {found.steps} steps, {found.pairs} pairs of cells",
        "spanner": ""
        if found.stretch == 1
        else f"stretch {found.stretch:.4g}: solved for ε divided by it",
        "saved": options["output"],
    }
    screen.print(two_columns({name: text for name, text in lines.items() if text}))
