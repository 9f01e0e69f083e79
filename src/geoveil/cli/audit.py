"""``geoveil audit``: does a saved mechanism keep what it promises?"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

import geoveil as gv
from geoveil.arrays import FloatArray, uniform
from geoveil.channel.certificate import promising
from geoveil.channel.words import rounded_down
from geoveil.cli import choice, prior_file
from geoveil.cli import options as shared
from geoveil.cli.console import Console, Screen, two_columns
from geoveil.client.network import Address, Network, Unreachable
from geoveil.client.refusal import REASONS, Refused
from geoveil.document.canonical import json_number
from geoveil.document.saved import Claimed, load_mechanism_and_claim
from geoveil.document.wire import LARGEST_ANSWER, MechanismDocument, RefusedDocument
from geoveil.errors import InvalidFile, InvalidInput, TooLarge, Unsupported
from geoveil.space import Space
from geoveil.space.points import at_places
from geoveil.table import locations
from geoveil.verify.auditor import AuditReport

_GAIN_CELLS = 2048


@click.command()
@click.argument("document", type=shared.INPUT, metavar="MECHANISM.json|LINK")
@click.option("--draws", type=click.IntRange(min=1000), default=200_000, show_default=True,
              help="Reports drawn through the public sampler.")  # fmt: skip
@click.option(
    "--false-alarm", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=1e-3,
    show_default=True, help="Chance that a sound mechanism is blamed.",
)  # fmt: skip
@prior_file.prior_options(
    "Where people are, for distance and manipulation gain; everywhere alike unless given."
)
@click.option("--gain", "with_gain", is_flag=True,
              help="Show how far fake reports reach; takes a minute at 90 cells "
              "where nearly everybody is in one of them, else at 500.")  # fmt: skip
@shared.machine_options
@click.pass_context
def command(
    context: click.Context, document: str, draws: int, false_alarm: float, prior: prior_file.PriorFile | None,
    with_gain: bool, machine: bool,
) -> None:  # fmt: skip
    """Check a mechanism document, or the one that a campaign's LINK publishes now; where there are several
    promises to choose from, that of the strongest.

    - is a pipe. Looks at its exact loss, its structure and its sampler. A published document is shown with
    its fingerprint, to compare with what others see, and certified from its whole numbers as a device does.

    Shows also what it costs: the mean distance, and with --gain how far fake reports reach (the
    manipulation gain of 1 % fakes among 100,000 reports, up to 2,048 cells).

    Ends with 0 when nothing was found, 1 when the claim is broken or not shown, 2 when the document cannot
    be read. Nothing found in draws proves nothing; the certificate, where there is one, does. Every other
    command refuses a document whose claim is broken.
    """
    console = Console(machine=machine)
    with console.progress("auditing") as progress:
        read = _fetched if "://" in document else _from_file
        mechanism, claim, levels = read(document)
        published = levels[0] if levels else None
        if not isinstance(mechanism, gv.Channel):
            raise Unsupported(
                f"{document} must be a mechanism on cells; {mechanism!r} has no table"
            )
        people = _people(mechanism, prior, console)
        report = gv.audit(mechanism, claim=claim, draws=draws, false_alarm=false_alarm)
        try:
            distance = gv.mean_distance_km(mechanism, people)
        except Unsupported:  # reports that are no places
            distance = None
        gain = None
        if with_gain:
            progress.stage("trying fake reports")
            cells = max(mechanism.space.size, mechanism.report_count)
            if cells > _GAIN_CELLS:  # where it would take more than minutes
                raise TooLarge(
                    f"--gain must have at most {_GAIN_CELLS:,} cells and reports; here are {cells:,}"
                )
            gain = gv.manipulation_gain(mechanism, people)
    if report.passed and claim is not None and claim != mechanism.guarantee and report.certificate:
        mechanism = promising(mechanism, claim)  # what the document says, now that it was checked
    values = {
        **_values(report),
        "prior": "uniform" if prior is None else "given",
        "mean_distance_km": distance,
        "manipulation_gain": gain and {"worst": gain.gain, "target": gain.target},
        **choice.describe(mechanism),
        "fingerprint": published and published.id,
    }
    promise, space = choice.promise_in_words(mechanism), mechanism.space
    if claim is not None and not report.passed:  # nothing is said in the name of a broken claim
        promise = {"claim": claim.sentence(space.unit)}
        values |= {"guarantee": promise["claim"], "explanation": None}
    lines: dict[str, str | None] = {
        "mechanism": repr(mechanism),
        "published": None if published is None else _published_in_words(published, len(levels)),
        "fingerprint": None if published is None else published.id,
        **promise,
        "people": "as in the prior" if prior else "everywhere alike; --prior says otherwise",
        "mean distance": None if distance is None
        else choice.distance_in_words(mechanism, distance),
        "fake reports": None if gain is None
        else f"the worst attack found, 1 % fakes, moves {100 * gain.moved:.3g} % of the map onto one "
        f"place: a gain of {gain.gain:.2g}",
        "spent": None,
    }  # fmt: skip
    console.result(values, lambda screen: _show(screen, lines, report, space))
    context.exit(0 if report.passed else 1)


_LINK = "https://collector.example/c/lyon"
_FAILURES = {
    "gaierror": "its host is not known here",
    "ConnectionRefusedError": "nobody listens at its host and port",
    "SSLError": "its host does not speak https at that port",
}
"""What a request failed with → in words."""
_STATUS = {404: "there is no campaign of that name", 410: "the campaign has ended"}


def _fetched(link: str) -> Claimed:
    """What a campaign's link publishes now: the strongest promise first."""
    shown = "the link" if "@" in link else link  # a password may stand there
    try:
        address = Address.of(link.strip().removesuffix("/mechanism"), insecure=True)
    except InvalidInput:
        raise InvalidFile(
            f"{shown} must be a campaign's link, such as {_LINK}, with nothing before its host and nothing "
            "after the campaign's name"
        ) from None
    try:
        answer = Network(address).get(address.path("/mechanism"), tag=None, limit=LARGEST_ANSWER)
    except Unreachable as failure:
        why = _FAILURES.get(str(failure), "no whole answer came in time")
        raise InvalidFile(f"{shown} must answer with a mechanism document; {why}") from None
    except Refused as failure:
        more = f" ({failure.detail})" if failure.detail else ""
        raise InvalidFile(
            f"{shown} must answer with a mechanism document; {REASONS[failure.reason]}{more}"
        ) from None
    if answer.status != 200:
        why = _STATUS.get(answer.status, "try again later, or ask whoever gave you the link")
        raise InvalidFile(
            f"{shown} must answer with a mechanism document, not with {answer.status}; {why}"
        )
    try:
        return Claimed.of_levels(MechanismDocument.read_levels(answer.body, certified=True))
    except RefusedDocument as problem:
        raise InvalidFile(f"{shown}: {problem}") from None


def _from_file(document: str) -> Claimed:
    """What the file claims."""
    if "/c/" in document and not Path(document).exists():
        raise InvalidFile(
            f"{document} must be a file, or a campaign's link that begins with https://, such as {_LINK}"
        )
    return load_mechanism_and_claim(document)


def _published_in_words(document: MechanismDocument, levels: int) -> str:
    words = f"round {document.round} of the campaign {document.campaign}"
    if levels > 1:
        words = f"the strongest of the {levels} promises in {words}"
    try:
        until = datetime.fromtimestamp(document.expires_s, UTC)
    except (ValueError, OverflowError, OSError):  # a year that no calendar here has
        return f"{words}, for longer than the year 9999"
    return f"{words}, until {until:%Y-%m-%d %H:%M} UTC"


def _people(
    mechanism: gv.Channel, prior: prior_file.PriorFile | None, console: Console
) -> FloatArray:
    """Where people are: as the file says, in the cells of the mechanism, or everywhere alike."""
    if prior is None:
        return uniform(mechanism.space.size)
    result = prior.read(console, locations.Reading(), on=mechanism.space)
    if result.space != mechanism.space:
        raise InvalidFile(f"{prior.source} must have the cells of the mechanism; it has others")
    return result.share


def _values(report: AuditReport) -> dict[str, Any]:
    checked = report.certificate
    names = ("holds", "verdict", "epsilon_per_km", "epsilon", "worst_pair", "slack_nats", "worst_place_km",
             "exact", "how", "problem")  # fmt: skip
    certificate = checked and {name: getattr(checked, name) for name in names} | {
        name: json_number(getattr(checked, name)) for name in ("epsilon_per_km", "epsilon")
    }
    return {
        "passed": report.passed,
        "findings": list(report.findings),
        "certificate": certificate,
        "fit_p_value": report.fit_p_value,
        "epsilon_lower_bound_per_km": json_number(report.epsilon_lower_bound_per_km),
        "draws": report.draws,
        "false_alarm": report.false_alarm,
    }


def _show(screen: Screen, lines: dict[str, str | None], report: AuditReport, space: Space) -> None:
    fit = "not tested" if report.fit_p_value is None else f"p = {report.fit_p_value:.3g}"
    lines |= _certificate_lines(report.certificate, "places" if at_places(space) else "cells")
    lines["sampler"] = (
        f"{report.draws:,} draws follow the rows ({fit}) and prove a loss of at least "
        f"{rounded_down(report.epsilon_lower_bound_per_km, 4)} per {space.unit}"
    )
    screen.print(two_columns(lines))
    for finding in report.findings:
        screen.print(f"[bold red]found[/]  {escape(finding)}")
    screen.print(
        f"{_verdict(report)} (a sound mechanism is blamed with probability {report.false_alarm:g})"
    )


def _verdict(report: AuditReport) -> str:
    if report.passed:
        return "[bold green]nothing found[/]"
    certificate = report.certificate
    if certificate and certificate.verdict == "is not shown to hold" and len(report.findings) == 1:
        return "[bold red]THE CLAIM IS NOT SHOWN[/]"
    return "[bold red]THE CLAIM IS BROKEN[/]"


def _certificate_lines(certificate: gv.Certificate | None, of: str) -> dict[str, str]:
    if certificate is None:
        return {"certificate": f"none: too many {of} to enumerate, and no closed form"}
    kind = "exactly" if certificate.exact else "at most"
    verdict = "holds" if certificate.holds else certificate.verdict.upper()
    loss = f"{verdict}: the loss is {kind} {certificate.found}, by {certificate.how}"
    pair = certificate.worst_pair
    worst = "" if pair is None else f"{of} {pair[0]} and {pair[1]}"
    if certificate.worst_place_km is not None:
        east_km, north_km = certificate.worst_place_km
        east = f"{abs(east_km):.3g} km {'east' if east_km >= 0 else 'west'}"
        north = f"{abs(north_km):.3g} km {'north' if north_km >= 0 else 'south'}"
        worst = f"positions around {east} and {north} of the middle of the map"
    return {"certificate": loss, "worst pair": worst}
