"""``geoveil audit``: does a saved mechanism keep what it promises?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from rich.console import Console as RichConsole
from rich.markup import escape

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Channel
from geoveil.channel.words import rounded_down
from geoveil.cli.choice import describe, promise_in_words
from geoveil.cli.console import Console, json_number, machine_options, two_columns
from geoveil.document.certify import Certificate
from geoveil.document.saved import load_mechanism_and_claim
from geoveil.errors import InvalidFile, TooLarge, Unsupported
from geoveil.measure.distance import mean_distance_km
from geoveil.table.results import read_result
from geoveil.verify.auditor import AuditReport, audit
from geoveil.verify.manipulation import ManipulationGain, manipulation_gain

_GAIN_CELLS = 2048


@click.command()
@click.argument("document", metavar="MECHANISM.json")
@click.option(
    "--draws",
    type=click.IntRange(min=1000),
    default=200_000,
    show_default=True,
    help="Reports drawn through the public sampler.",
)
@click.option(
    "--false-alarm",
    type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
    default=1e-3,
    show_default=True,
    help="Chance that a sound mechanism is blamed.",
)
@click.option(
    "--prior", "source", metavar="FILE",
    help="Where people are, for distance and manipulation gain; everywhere alike unless given.",
)  # fmt: skip
@click.option(
    "--gain", is_flag=True, help="Show how far fake reports reach; takes a minute at 500 cells."
)
@machine_options
@click.pass_context
def command(
    context: click.Context,
    document: str,
    draws: int,
    false_alarm: float,
    source: str | None,
    gain: bool,
    machine: bool,
) -> None:
    """Check a mechanism document: its exact loss, its structure and its sampler.

    Shows also what it costs: the mean distance, and with --gain how far fake reports reach (the
    manipulation gain of 1 % fakes among 100,000 reports, up to 2,048 cells).

    Ends with 0 when nothing was found, 1 when the claim is broken, 2 when MECHANISM.json cannot be
    read. Nothing found in draws proves nothing; the certificate, where there is one, does. Every other
    command refuses a document whose claim is broken.
    """
    console = Console(machine=machine)
    with console.progress("auditing") as progress:
        mechanism, claim = load_mechanism_and_claim(document)
        if not isinstance(mechanism, Channel):
            raise Unsupported(
                f"{document} must be a mechanism on cells; {mechanism!r} has no table"
            )
        prior = _prior(mechanism, source)
        report = audit(mechanism, claim=claim, draws=draws, false_alarm=false_alarm)
        distance = _mean_distance(mechanism, prior)
        if gain:
            progress.stage("trying fake reports")
        costs = Costs(distance, _gain(mechanism, prior) if gain else None, source is None)
    values = {**_values(report), **costs.values(), **describe(mechanism)}
    promise, unit = promise_in_words(mechanism), mechanism.space.unit
    if claim is not None and not report.passed:  # nothing is said in the name of a broken claim
        promise = {"claim": claim.sentence(unit)}
        values |= {"guarantee": promise["claim"], "explanation": None}
    lines = {"mechanism": repr(mechanism), **promise, **costs.lines()}
    console.result(values, lambda screen: _show(screen, lines, report, unit))
    context.exit(0 if report.passed else 1)


@dataclass(frozen=True)
class Costs:
    """What a mechanism costs an estimate; ``None`` where it cannot be said."""

    mean_distance_km: float | None
    gain: ManipulationGain | None
    assumed: bool
    """Whether nothing was said about where people are: everywhere alike."""

    def values(self) -> dict[str, Any]:
        """For machines."""
        gain = self.gain and {"worst": self.gain.gain, "target": self.gain.target}
        prior = "uniform" if self.assumed else "given"
        distance = self.mean_distance_km
        return {"prior": prior, "mean_distance_km": distance, "manipulation_gain": gain}

    def lines(self) -> dict[str, str]:
        """For people."""
        where = "everywhere alike; --prior says otherwise" if self.assumed else "as in the prior"
        lines = {"people": where}
        if self.mean_distance_km is not None:
            far = f"{self.mean_distance_km:.4g} km between the cell of a person and the report"
            lines["mean distance"] = far
        if self.gain is not None:
            lines["fake reports"] = (
                f"the worst attack found, 1 % fakes, moves {100 * self.gain.moved:.3g} % of the map onto "
                f"one place: a gain of {self.gain.gain:.2g}"
            )
        return lines


def _prior(mechanism: Channel, source: str | None) -> FloatArray:
    """Where people are: a file of cells with a share each, or everywhere alike."""
    size = mechanism.space.size
    if source is None:
        return np.full(size, 1 / size)
    given = read_result(source)
    if given.space != mechanism.space:
        raise InvalidFile(f"{source} must have the cells of the mechanism; it has others")
    return given.share


def _mean_distance(mechanism: Channel, prior: FloatArray) -> float | None:
    """The mean distance, where reports are places."""
    try:
        return mean_distance_km(mechanism, prior)
    except Unsupported:
        return None


def _gain(mechanism: Channel, prior: FloatArray) -> ManipulationGain:
    """The manipulation gain, where it takes minutes at most."""
    cells = max(mechanism.space.size, mechanism.report_count)
    if cells > _GAIN_CELLS:
        raise TooLarge(
            f"--gain must have at most {_GAIN_CELLS:,} cells and reports; here are {cells:,}"
        )
    return manipulation_gain(mechanism, prior)


def _values(report: AuditReport) -> dict[str, Any]:
    return {
        "passed": report.passed,
        "findings": list(report.findings),
        "certificate": None if report.certificate is None else _certificate(report.certificate),
        "fit_p_value": report.fit_p_value,
        "epsilon_lower_bound_per_km": json_number(report.epsilon_lower_bound_per_km),
        "draws": report.draws,
        "false_alarm": report.false_alarm,
    }


def _certificate(certificate: Certificate) -> dict[str, Any]:
    return {
        "holds": certificate.holds,
        "epsilon_per_km": json_number(certificate.epsilon_per_km),
        "epsilon": json_number(certificate.epsilon),
        "worst_pair": certificate.worst_pair,
        "exact": certificate.exact,
        "how": certificate.how,
        "problem": certificate.problem,
    }


def _show(screen: RichConsole, lines: dict[str, str], report: AuditReport, unit: str) -> None:
    lines.pop("spent", None)
    lines |= _certificate_lines(report.certificate)
    fit = "not tested" if report.fit_p_value is None else f"p = {report.fit_p_value:.3g}"
    lines["sampler"] = (
        f"{report.draws:,} draws follow the rows ({fit}) and prove a loss of at least "
        f"{rounded_down(report.epsilon_lower_bound_per_km, 4)} per {unit}"
    )
    screen.print(two_columns(lines))
    for finding in report.findings:
        screen.print(f"[bold red]found[/]  {escape(finding)}")
    verdict = (
        "[bold green]nothing found[/]" if report.passed else "[bold red]THE CLAIM IS BROKEN[/]"
    )
    screen.print(f"{verdict} (a sound mechanism is blamed with probability {report.false_alarm:g})")


def _certificate_lines(certificate: Certificate | None) -> dict[str, str]:
    if certificate is None:
        return {"certificate": "none: too many cells to enumerate, and no closed form"}
    kind = "exactly" if certificate.exact else "at most"
    verdict = "holds" if certificate.holds else "DOES NOT HOLD"
    lines = {
        "certificate": f"{verdict}: the loss is {kind} {certificate.found}, by {certificate.how}"
    }
    if certificate.worst_pair is not None:
        first, second = certificate.worst_pair
        lines["worst pair"] = f"cells {first} and {second}"
    return lines
