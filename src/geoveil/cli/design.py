"""``geoveil design``: a mechanism for a promise and a dial, the whole dial, or the optimum; ``hexagons``."""

from __future__ import annotations

import json
import math
from typing import Any

import click

import geoveil as gv
from geoveil.campaign import Advice, DesignedElastic
from geoveil.campaign.positional_design import DesignedPositional
from geoveil.cli import options as shared
from geoveil.cli import prior_file
from geoveil.cli.choice import describe, distance_in_words, promise_in_words
from geoveil.cli.console import Console, Screen, columns_of_numbers, in_words
from geoveil.document.canonical import json_number
from geoveil.errors import InvalidInput, TooLarge, number_of
from geoveil.optimal.optimal_mechanism import OptimalMechanism
from geoveil.space import MATRIX_LIMIT, Box
from geoveil.table import locations, writer
from geoveil.table.reader import Format, format_of
from geoveil.table.reports import rim_reports

LOSSES = {"distance": gv.distance_km, "squared-distance": gv.squared_distance_km2}
"""The losses that the command line knows by name."""

_OF_THE_DIAL = (
    "advice", "between", "camouflage", "mean_distance_km", "most_leverage", "people", "plot"
)  # fmt: skip
_OF_THE_OPTIMUM = ("loss", "gap", "spanner")
_FORETELLS = 10
"""Up to here the leverage is near the gain that fakes have: docs/robustness.md."""


@click.command()
@prior_file.prior_options(
    "What is believed: an estimate, or a table of cells or places with an amount each.",
    required=True,
)
@click.option("--epsilon-per-km", type=float, help="The promise, certified.")
@click.option("--mean-distance-km", type=float, help="A mean distance; the promise is solved for.")
@shared.camouflage_option
@shared.between_option
@shared.leverage_option
@shared.output_option("Where the mechanism goes.", metavar="MECHANISM.json", required=False)
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
@shared.space_options
@shared.location_options
@shared.machine_options
def command(
    prior: prior_file.PriorFile, area: shared.Area, reading: locations.Reading, machine: bool, advice: bool,
    optimal: bool, **options: Any,
) -> None:  # fmt: skip
    """Design a mechanism for what is believed, at a certified promise and a camouflage.

    Rows of the prior with a cell are cells; rows with a latitude and a longitude are put into the cells
    of a grid (--box, --cell-km). Amounts are shares or counts of people. On a map the promise is between
    any two positions, wherever people stand; elsewhere, and with --between cells, between cells. The
    mechanism of --optimal is one between cells.

    \b
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --camouflage 0.5 -o mechanism.json
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --advise --plot dial.png
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --optimal -o mechanism.json
    geoveil design --prior census.csv --column population --epsilon-per-km 2 -o mechanism.json
    """
    output, plot, promise = options["output"], options["plot"], options["epsilon_per_km"]
    console = Console(machine=machine, output=output)
    mean_km = options["mean_distance_km"]
    _check(prior.source, area.within, optimal, advice, output, plot, promise, mean_km)
    with console.progress("reading the prior") as progress:
        believed = prior.read(console, reading, area)
        space, share = believed.space, believed.share
        dial = {name: options[name] for name in ("epsilon_per_km", "most_leverage", "between")}
        if optimal:
            progress.stage("optimising")
            best = gv.optimal_mechanism(
                space, share, epsilon_per_km=promise, loss=LOSSES[options["loss"]],
                gap=options["gap"], spanner=options["spanner"], progress=progress.update,
            )  # fmt: skip
            gv.save_mechanism(best, output)
        else:
            progress.stage("designing")
        if advice:
            advised = gv.advise(
                space, share, people=options["people"], progress=progress.steps, **dial
            )
            if plot is not None:
                advised.plot(plot)
        if not optimal and output is not None:
            dial |= {name: options[name] for name in ("mean_distance_km", "camouflage")}
            designed = gv.elastic(space, share, **dial)
            gv.save_mechanism(designed, output)
    if optimal:
        _tell_optimum(console, best, options["gap"], options["loss"], output)
    elif advice:
        _tell_advice(console, advised)
    else:
        _tell_design(console, designed, output)


def _check(
    source: str, within: str | None, optimal: bool, advice: bool, output: str | None, plot: str | None,
    promise: float | None, mean_km: float | None,
) -> None:  # fmt: skip
    """Refuse what was given for the other kind of design, and what cannot be written."""
    if optimal:
        shared.refuse_given(_OF_THE_DIAL, "is not for --optimal, which has no dial")
    else:
        shared.refuse_given(_OF_THE_OPTIMUM, "must go with --optimal")
    if optimal and (promise is None or output is None):
        raise click.UsageError("--optimal must have a promise and a file: --epsilon-per-km and -o")
    if not advice:
        shared.refuse_given(["people"], "must go with --advise")
    if advice and promise is None:
        raise click.UsageError("--advise must have a promise: --epsilon-per-km")
    if not optimal and (promise is None) == (mean_km is None):
        raise click.UsageError("--epsilon-per-km or --mean-distance-km must be given, one of them")
    if not advice and output is None:
        raise click.UsageError("-o must be given, or --advise")
    if plot is not None and not advice:
        raise click.UsageError("--plot must go with --advise")
    if output is not None:
        writer.check_target(output, source, within)
    shared.check_picture(plot, source)


def _tell_optimum(
    console: Console, best: OptimalMechanism, gap: float, loss: str, output: str
) -> None:
    solved = best.optimality
    if solved.gap > gap and solved.stretch == 1:
        console.warn(f"the gap is {solved.gap:.2g}, stopped because {solved.stopped}")
    unit = "km²" if loss == "squared-distance" else "km"
    shown = ("expected_loss", "lower_bound", "gap", "extra_loss", "steps", "pairs", "stretch",
             "stopped")  # fmt: skip
    values = {
        **{name: getattr(solved, name) for name in shown},
        "certified_epsilon_per_km": best.certificate.epsilon_per_km,
        "holds": best.certificate.holds,
        **describe(best),
    }
    stretched = f"stretch {solved.stretch:.4g}: solved for ε divided by it"
    lines = {
        **promise_in_words(best),
        "certified": f"ε = {best.certificate.found}",
        "expected loss": f"{solved.expected_loss:.6g} {unit}; no mechanism with this promise is below "
        f"{solved.lower_bound:.6g} {unit}",
        "solved": f"{solved.stopped}, {number_of(solved.steps, 'step')}, "
        f"{number_of(solved.pairs, 'pair')} of cells",
        "spanner": "" if solved.stretch == 1 else stretched,
        "saved": in_words(output),
    }
    console.result(values, lines)


def _tell_design(
    console: Console, designed: DesignedElastic | DesignedPositional, output: str
) -> None:
    values = {
        "beta_per_km": designed.beta_per_km,
        "certified_epsilon_per_km": designed.certified_epsilon_per_km,
        "mean_distance_km": designed.mean_distance_km,
        "leakage_bits": designed.leakage_bits,
        "leverage": json_number(designed.leverage),
    }
    certified = gv.GeoIndistinguishability(designed.certified_epsilon_per_km)
    if isinstance(designed, DesignedPositional):
        certified = gv.BetweenPositions(designed.certified_epsilon_per_km, designed.slack)
    lines = {
        **promise_in_words(designed),
        "certified": f"{certified.amount()}, β = {designed.beta_per_km:.6g}",
        "mean distance": distance_in_words(designed, designed.mean_distance_km),
        "leakage": f"{designed.leakage_bits:.4g} bits a report, on average",
        "fake reports": f"each may weigh for {_weight(designed.leverage)} honest ones; "
        "geoveil audit --gain measures what they move, up to 2,048 cells",
    }
    if isinstance(designed, DesignedElastic):
        values |= {
            "cells_with_weight": designed.cells_with_weight,
            "rank": designed.rank,
            "warning": designed.warning,
        }
        lines["reported cells"] = f"{designed.cells_with_weight} of {designed.space.size}"
        lines["warning"] = designed.warning or ""
    else:
        values |= {"slack": designed.slack, "rim_reports": rim_reports(designed)}
        lines["certified"] += ", a bound over all positions"
    lines["saved"] = in_words(output)
    console.result(values | describe(designed), lines)


def _weight(leverage: float) -> str:
    """The leverage as far as it foretells anything: beyond ten an estimator stops long before."""
    return f"up to {leverage:.3g}" if leverage <= _FORETELLS else f"over {_FORETELLS}"


def _tell_advice(console: Console, advice: Advice) -> None:
    names = ("camouflage", "mean_distance_km", "leakage_bits", "expected_error_km",
             "isolated_posterior", "leverage")  # fmt: skip
    values = {
        "epsilon_per_km": advice.epsilon_per_km,
        "people": advice.people,
        "isolated_cell": advice.isolated_cell,
        "choices": [
            {"name": choice.name, **{name: json_number(getattr(choice, name)) for name in names}}
            for choice in advice.choices
        ],
        "recommended": advice.recommended.camouflage,
        "sentence": advice.sentence(),
    }

    def show(screen: Screen) -> None:
        headings = (
            "distance (km)", "leakage (bits)", "error (km)", "isolated place", "fake weighs"
        )  # fmt: skip
        table = columns_of_numbers(headings, first="")
        for choice in advice.choices:
            table.add_row(
                choice.name, f"{choice.mean_distance_km:.3f}", f"{choice.leakage_bits:.3f}",
                f"{choice.expected_error_km:.4f}", f"{choice.isolated_posterior:.3f}",
                _weight(choice.leverage), style="bold" if choice is advice.recommended else "",
            )  # fmt: skip
        screen.print(table)
        screen.print(advice.sentence())

    console.result(values, show)


# --- ``geoveil hexagons``: cells for a campaign of the service, in the place of squares

_DECIMALS = 5
"""Of the edges of the box, about a metre."""


@click.command()
@click.argument("limits", metavar="LIMITS.geojson")
@click.option("--resolution", type=click.IntRange(0, 15), required=True,
              help="Of H3: hexagons of 8 are 0.7 km² on average, of 7 5 km².")  # fmt: skip
@shared.output_option("Where the points go, as GeoJSON.", metavar="POINTS.geojson")
@shared.machine_options
def hexagons(limits: str, resolution: int, output: str, machine: bool) -> None:
    """Write the middles of all H3 hexagons that overlap an area, for PUT …/area of a campaign.

    Every point says the area of its hexagon (area_km2), by which the service knows that people are anywhere
    in it, and its H3 id (h3), which is for you: the service does not keep it. Cells of the campaign are
    numbered in the order of the file. The box shown is the smallest that a campaign over them may have.
    Needs the extra h3; neither the service nor any device does.

    \b
    geoveil hexagons limits.geojson --resolution 8 -o hexagons.geojson
    """
    if format_of(output, "geojson", writing=True) is not Format.GEOJSON:
        raise InvalidInput(f"output ({output}) must end in .geojson or .json")
    writer.check_target(output, limits)
    cells = gv.Hexagons(limits, resolution=resolution)
    if cells.size > MATRIX_LIMIT:
        raise TooLarge(
            f"hexagons ({cells.size:,}) must be at most {MATRIX_LIMIT:,} in a campaign; choose a lower "
            "resolution, or a smaller area"
        )
    points = cells.middles_to_geojson()
    console = Console(machine=machine, output=output)
    with writer.binary_sink(output) as sink:
        sink.write(json.dumps(points).encode() + b"\n")
    lat, lng = cells.centres_latlng()
    south, west, north, east = Box.around(lat=lat, lng=lng)
    scale = 10.0**_DECIMALS
    box = [math.floor(edge * scale) / scale for edge in (south, west)]
    box += [math.ceil(edge * scale) / scale for edge in (north, east)]
    area = cells.cell_km**2
    values = {"written": output, "hexagons": cells.size, "area_km2": area, "box": box}
    lines = {
        "written": in_words(output),
        "hexagons": f"{cells.size:,} of {area:.3g} km² on average",
        "box": ", ".join(map(str, box)),
    }
    console.result(values, lines)
