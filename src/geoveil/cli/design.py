"""``geoveil design``: a mechanism for a promise and a dial, or the optimal one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console as RichConsole
from rich.table import Table

from geoveil.arrays import FloatArray, IntArray, prior_over
from geoveil.campaign import Advice, DesignedElastic, advise, elastic
from geoveil.channel.words import rounded_up
from geoveil.cli.choice import describe, lay_grid, promise_in_words
from geoveil.cli.console import (
    Console,
    json_number,
    location_options,
    machine_options,
    space_options,
    two_columns,
)
from geoveil.document.saved import save_mechanism
from geoveil.errors import InvalidFile
from geoveil.optimal.optimal_mechanism import OptimalMechanism, optimal_mechanism
from geoveil.plot.curves import save_dial
from geoveil.plot.maps import picture_kind
from geoveil.space.grid import Grid
from geoveil.space.space import distance_km, squared_distance_km2
from geoveil.table import Extent, LocationTable, open_table
from geoveil.table.geojson import PlainDocument
from geoveil.table.locations import BadRows, list_columns, numbers
from geoveil.table.reader import TableReader
from geoveil.table.results import (
    Result,
    amount_column,
    checked_amounts,
    read_cells,
    read_numbers,
    result_of,
)
from geoveil.table.writer import binary_sink, check_target

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


# --- ``geoveil design``: the mechanism for a promise and a dial, or the whole dial as advice


_FORETELLS = 10
"""Up to here the leverage is near the gain that fakes have: docs/robustness.md."""

_MANY_OUTSIDE = 0.01


@dataclass(frozen=True)
class PriorFile:
    """Where people are believed to be: cells, or places that are put into the cells of a grid."""

    source: str
    column: str | None
    box: tuple[float, ...] | None
    cell_km: float
    lat: str | None
    lng: str | None
    bad_rows: BadRows
    delimiter: str
    format: str | None

    def read(self, console: Console) -> Result:
        """The share of every cell."""
        drop = self.bad_rows == "drop"
        try:
            with open_table(
                self.source, format=self.format, delimiter=self.delimiter, drop_bad=drop
            ) as reader:
                return self._read(reader, console)
        except PlainDocument as found:
            return result_of(found, self.source)

    def _read(self, reader: TableReader, console: Console) -> Result:
        columns, carried = reader.columns, reader.metadata
        if carried is not None and "estimate" not in carried:
            raise InvalidFile(
                f"{self.source} must be a prior; it holds reports: estimate them first"
            )
        if self.column is None and "share" not in columns:
            raise click.UsageError(f"--column must name the amounts; {list_columns(columns)}")
        if carried is not None and self.box is not None:
            raise click.UsageError("--box is of no use here: the prior brings its own map")
        if "cell" not in columns:
            return self._located(reader, console)
        if carried is None and self.box is None and not {"lat", "lng"} <= set(columns):
            raise click.UsageError(f"--box must be given: {self.source} has cells without a map")
        return read_cells(reader, self.column) if self.box is None else self._cells(reader)

    def _cells(self, reader: TableReader) -> Result:
        amounts, grid = amount_column(reader, self.column), lay_grid(self.box or (), self.cell_km)
        table = read_numbers(reader, ["cell", amounts])
        cells = table["cell"]
        wrong = np.flatnonzero(~((cells >= 0) & (cells < grid.size) & (cells == np.floor(cells))))
        if wrong.size:
            raise InvalidFile(
                f"row {wrong[0] + 1} of {self.source} must name a cell in 0 … {grid.size - 1} of {grid!r}"
            )
        return self._result(grid, cells.astype(np.int64), table[amounts], amounts)

    def _located(self, reader: TableReader, console: Console) -> Result:
        amounts = amount_column(reader, self.column)
        parts = list(
            LocationTable(
                reader, lat=self.lat, lng=self.lng, keep=[amounts], bad_rows=self.bad_rows
            )
        )
        extent = Extent()
        for part in parts:
            extent.add(part.lat, part.lng)
        box = tuple(extent.box(self.source))  # refuses a table without places
        grid = lay_grid(self.box or box, self.cell_km)
        lat = np.concatenate([part.lat for part in parts])
        lng = np.concatenate([part.lng for part in parts])
        values = np.concatenate([numbers(part.kept.column(amounts)) for part in parts])
        inside = grid.inside(lat=lat, lng=lng)
        checked_amounts(values, amounts, self.source)
        cells = np.asarray(grid.locate(lat=lat[inside], lng=lng[inside]))
        self._tell_outside(inside.size - cells.size, inside.size, console)
        result = self._result(grid, cells, values[inside], amounts)
        if self.box is None:
            console.note(
                f"the places of {self.source} are put into {grid!r}; --box chooses another"
            )
        return result

    def _tell_outside(self, outside: int, rows: int, console: Console) -> None:
        words = f"{outside:,} of {rows:,} rows of {self.source} lie outside the box"
        if outside == rows:
            raise InvalidFile(
                f"{words}; give another --box, or are latitude and longitude in the other order?"
            )
        if outside:
            tell = console.warn if outside >= _MANY_OUTSIDE * rows else console.note
            tell(f"{words} and are left out")

    def _result(self, grid: Grid, cells: IntArray, values: FloatArray, column: str) -> Result:
        amounts = checked_amounts(values, column, self.source)
        people = np.bincount(cells, weights=amounts, minlength=grid.size)
        name = f"column {column!r} of {self.source}"
        return Result(grid, prior_over(people, grid.size, name=name))


@click.command()
@click.option(
    "--prior", "source", required=True, metavar="FILE",
    help="What is believed: an estimate, or a table of cells or places with an amount each.",
)  # fmt: skip
@click.option("--column", metavar="NAME",
              help="Column of the prior's amounts, such as population; share unless given.")  # fmt: skip
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
@space_options
@location_options
@machine_options
def command(machine: bool, advice: bool, optimal: bool, **options: Any) -> None:
    """Design a mechanism for what is believed, at a certified promise and a camouflage.

    Rows of the prior with a cell are cells; rows with a latitude and a longitude are put into the cells
    of a grid (--box, --cell-km). Amounts are shares or counts of people.

    \b
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --camouflage 0.5 -o mechanism.json
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --advise --plot dial.png
    geoveil design --prior estimate.geojson --epsilon-per-km 2 --optimal -o mechanism.json
    geoveil design --prior census.csv --column population --epsilon-per-km 2 -o mechanism.json
    """
    console = Console(machine=machine)
    check_flags(optimal)
    file = PriorFile(**{each.name: options[each.name] for each in fields(PriorFile)})
    if optimal:
        design_optimum(console, lambda: file.read(console), options)
        return
    _check_design(advice, options)
    with console.progress("reading the prior") as progress:
        prior = file.read(console)
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
        console.result(
            _design_values(made), lambda screen: _show_design(screen, made, options["output"])
        )


def _check_design(advice: bool, options: dict[str, Any]) -> None:
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


def _design_values(made: DesignedElastic) -> dict[str, Any]:
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


def _show_design(screen: RichConsole, made: DesignedElastic, output: str) -> None:
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
