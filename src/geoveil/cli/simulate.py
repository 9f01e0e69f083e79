"""``geoveil simulate``: a population goes through the rounds of a campaign, and the truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from rich.console import Console as RichConsole
from rich.table import Table

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.campaign import Campaign, Crowd, Simulation, simulate
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.channel.words import spend_in_words
from geoveil.cli.choice import lay_grid
from geoveil.cli.console import (
    Console,
    ProgressBar,
    location_options,
    machine_options,
    outside_option,
    person_limit,
    person_options,
    space_options,
)
from geoveil.cli.obfuscate import persons_in_words, spend_values, warn_of_outside
from geoveil.demo.city import simulated_city
from geoveil.plot.curves import save_campaign
from geoveil.plot.maps import Panel, picture_kind, save_maps
from geoveil.randomness import seeded
from geoveil.space.grid import Grid
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table import Extent, LocationTable, PersonLimit, open_table
from geoveil.table.locations import BadRows
from geoveil.table.obfuscation import placed_rows
from geoveil.table.persons import Reporting, Spend
from geoveil.table.reader import TableReader
from geoveil.table.writer import binary_sink, check_target

CITY_SEED = 7
_PLOT_HELP = "Draw the error by round (.png, .svg, .pdf)."


@dataclass(frozen=True)
class Located:
    """A population on a grid; ``spend`` is ``None`` where its persons are not told apart."""

    grid: Grid
    cells: IntArray
    outside: OutsideCount
    spend: Spend | None


@dataclass(frozen=True)
class People:
    """Where the population comes from: a file of true places, or a simulated city."""

    source: str | None
    box: tuple[float, ...] | None
    cell_km: float
    lat: str | None
    lng: str | None
    bad_rows: BadRows
    delimiter: str
    format: str | None
    outside: Outside
    limit: PersonLimit | None

    def located(self, number: int, seed: int, progress: ProgressBar) -> Located:
        """The grid and the true cells of everybody who reports."""
        if self.source is None:
            if self.limit is not None:
                raise click.UsageError("--person must come with a file that has such a column")
            city = simulated_city(people=number, seed=CITY_SEED, cell_km=self.cell_km)
            return Located(city.grid, city.cells, OutsideCount("drop"), Spend(number, 1, 1))
        grid = lay_grid(self.box or tuple(self._extent().box(self.source)), self.cell_km)
        outside = OutsideCount(self.outside)
        # chosen here, drawn round by round
        reporting = Reporting(self.limit, draw=lambda cells: cells, randomness=seeded(seed))

        def place(lat: FloatArray, lng: FloatArray) -> tuple[IntArray, BoolArray]:
            return outside.locate(grid, lat, lng)

        with self._open() as reader:
            locations = self._locations(reader)
            rows = list(
                reporting.reports(
                    placed_rows(
                        locations, place, reporting, lambda _: progress.update(reader.fraction)
                    )
                )
            )
        locations.check(outside)
        cells = np.concatenate([part.places for part in rows])
        if self.limit is not None and self.limit.by == "memoise":
            persons = np.concatenate([part.persons for part in rows if part.persons is not None])
            cells = np.unique(np.column_stack([persons, cells]), axis=0)[:, 1]
        return Located(grid, cells, outside, reporting.spend)

    def _extent(self) -> Extent:
        extent = Extent()
        with self._open() as reader:
            for part in self._locations(reader):
                extent.add(part.lat, part.lng)
        return extent

    def _open(self) -> TableReader:
        drop = self.bad_rows == "drop"
        source = str(self.source)
        return open_table(source, format=self.format, delimiter=self.delimiter, drop_bad=drop)

    def _locations(self, reader: TableReader) -> LocationTable:
        person = None if self.limit is None else self.limit.column
        return LocationTable(
            reader, lat=self.lat, lng=self.lng, person=person, bad_rows=self.bad_rows
        )


@click.command()
@click.argument("source", metavar="[CHECKINS]", required=False)
@click.option("--rounds", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--epsilon-per-km", type=float, required=True, help="The promise, certified.")
@click.option(
    "--camouflage", type=click.FloatRange(0, 1), default=0.5, show_default=True,
    help="The dial: 0 the sharpest map, 1 the least leakage.",
)  # fmt: skip
@click.option(
    "--as-published", is_flag=True,
    help="The paper's rule instead: Blahut–Arimoto at β = ε/2, the last round alone.",
)  # fmt: skip
@click.option(
    "--design-steps", type=click.IntRange(min=1), default=8, show_default=True,
    help="The paper's N_BA: so many channels, and one update of the weights fewer.",
)  # fmt: skip
@click.option(
    "--update-steps", type=click.IntRange(min=1), default=10, show_default=True,
    help="The paper's N_IBU: steps of each estimate.",
)  # fmt: skip
@click.option(
    "--everybody", type=click.Choice(["once", "each-round"]), default="once", show_default=True,
    help="Each person (row of a file) reports in one round, or in all and spends the promise each time.",
)  # fmt: skip
@click.option(
    "--churn", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True,
    help="Share of people who stay away from a round.",
)  # fmt: skip
@click.option(
    "--fakes", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True,
    help="Share of all reports that are fake.",
)  # fmt: skip
@click.option("--most-leverage", type=float, metavar="L",
              help="What a fake report may weigh at most; a low bound costs camouflage.")  # fmt: skip
@click.option("--guarded", is_flag=True, help="Leave out what the poisoning alarm finds fake.")
@click.option("--fake-cell", type=click.IntRange(min=0), help="What fakes report; else the middle.")
@click.option(
    "--minimum-reports", type=click.IntRange(min=0), default=0, show_default=True,
    help="A round with fewer does not close.",
)  # fmt: skip
@click.option("--people", "number", type=click.IntRange(min=10), default=50_000, show_default=True,
              help="Of the simulated city, where no file is given.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option("--plot", metavar="FILE", help=_PLOT_HELP)
@click.option("--map", "maps", metavar="FILE", help="Draw truth and estimate as maps.")
@space_options
@outside_option
@location_options
@person_options
@machine_options
def command(machine: bool, **options: Any) -> None:
    """Run a population through the rounds of a campaign, and compare with the truth.

    CHECKINS is a file of true places; without it a city is simulated. The error is the earth mover's
    distance in km, beside the error of exact counts (no privacy) and of the best stop in hindsight.
    Each row reports once, or in each round; --person says whom a row is about, --per-person limits
    the rows that report (memoise: each cell of a person once, as a device does).

    \b
    geoveil simulate checkins.csv --rounds 15 --epsilon-per-km 2 --camouflage 0.5 --plot curve.png
    """
    names = ("source", "box", "cell_km", "lat", "lng", "bad_rows", "delimiter", "format", "outside")
    limit = person_limit(*(options[name] for name in ("person", "per_person", "limit_by")))
    people = People(**{name: options[name] for name in names}, limit=limit)
    for picture in (options["plot"], options["maps"]):
        if picture is not None:
            picture_kind(picture)
            check_target(picture, people.source or "")
    console = Console(machine=machine)
    with console.progress("reading the people") as progress:
        located = people.located(options["number"], options["seed"], progress)
        progress.stage("collecting")
        simulation = _run(located.grid, located.cells, options, progress)
        _draw(simulation, options)
    warn_of_outside(console, located.outside)
    spend = None if located.spend is None else _in_all_rounds(located.spend, options)
    values = _values(simulation, options, located, spend)
    sentences = [values["spent"]]
    if spend is not None and limit is not None:
        promise = GeoIndistinguishability(options["epsilon_per_km"])
        sentences.append(f"Persons: {persons_in_words(spend, limit, promise)}.")
    if located.outside.outside:
        sentences.append(f"{located.outside.sentence()}.")
    console.result(values, lambda screen: _show(screen, simulation, sentences))


def _run(grid: Grid, cells: IntArray, options: dict[str, Any], progress: ProgressBar) -> Simulation:
    middle = grid.rows // 2 * grid.columns + grid.columns // 2
    fake = middle if options["fake_cell"] is None else options["fake_cell"]
    crowd = Crowd(
        cells, options["everybody"].replace("-", " "), options["churn"], options["fakes"], fake
    )
    return simulate(
        _collection(grid, options),
        crowd,
        rounds=options["rounds"],
        seed=options["seed"],
        hindsight=True,
        progress=lambda done, total: progress.update(done / total, f"round {done} of {total}"),
    )


def _collection(grid: Grid, options: dict[str, Any]) -> Campaign:
    epsilon = options["epsilon_per_km"]
    if options["as_published"]:
        for name in ("guarded", "most_leverage"):
            if options[name]:
                flag = "--" + name.replace("_", "-")
                raise click.UsageError(
                    f"{flag} must not go with --as-published: the paper has none"
                )
        return Campaign.as_published(
            grid,
            beta_per_km=epsilon / 2,
            design_steps=options["design_steps"],
            update_steps=options["update_steps"],
        )
    return Campaign(
        grid,
        epsilon_per_km=epsilon,
        camouflage=options["camouflage"],
        minimum_reports=options["minimum_reports"],
        most_leverage=options["most_leverage"],
        guarded=options["guarded"],
    )


def _draw(simulation: Simulation, options: dict[str, Any]) -> None:
    if options["plot"] is not None:
        with binary_sink(options["plot"]) as sink:
            save_campaign(sink, picture_kind(options["plot"]), simulation)
    if options["maps"] is not None:
        panels = [Panel("truth", simulation.truth)]
        if simulation.rounds:
            panels.append(Panel("estimate", simulation.rounds[-1].distribution))
        with binary_sink(options["maps"]) as sink:
            save_maps(sink, picture_kind(options["maps"]), simulation.space, panels)


def _values(
    simulation: Simulation, options: dict[str, Any], located: Located, spend: Spend | None
) -> dict[str, Any]:
    kept = ("number", "reports", "error_km", "floor_km", "hindsight_km", "mean_distance_km",
            "leakage_bits", "steps")  # fmt: skip
    guarantee = GeoIndistinguishability(options["epsilon_per_km"])
    reports = None if spend is None else spend.largest
    return {
        "rule": simulation.campaign.rule.to_dict(),
        "cells": simulation.space.size,
        "everybody": options["everybody"],
        "outside_dropped": located.outside.dropped,
        "outside_clamped": located.outside.clamped,
        "reports_per_person": reports,
        "per_person": spend_values(spend, guarantee),
        "spent": spend_in_words(guarantee, reports),
        "start_error_km": simulation.start_km,
        "rounds": [{name: getattr(done, name) for name in kept} for done in simulation.rounds],
    }


def _in_all_rounds(spend: Spend, options: dict[str, Any]) -> Spend:
    """How often persons report, in rounds that did not close as well."""
    rounds = int(options["rounds"]) if options["everybody"] == "each-round" else 1
    return Spend(spend.persons, spend.largest * rounds, spend.typical * rounds)


def _show(screen: RichConsole, simulation: Simulation, sentences: list[str]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for heading in ("round", "reports", "error (km)", "no privacy (km)", "best stop (km)",
                    "mean distance (km)", "leakage (bits)", "steps"):  # fmt: skip
        table.add_column(heading, justify="right")
    for done in simulation.rounds:
        best = "" if done.hindsight_km is None else f"{done.hindsight_km:.4f}"
        table.add_row(
            str(done.number), f"{done.reports:,}", f"[bold]{done.error_km:.4f}[/]",
            f"{done.floor_km:.4f}", best, f"{done.mean_distance_km:.3f}",
            f"{done.leakage_bits:.3f}", str(done.steps),
        )  # fmt: skip
    screen.print(
        f"{simulation.space!r}; knowing nothing, the error is {simulation.start_km:.4f} km"
    )
    screen.print(table)
    for sentence in sentences:
        screen.print(sentence)
    if not simulation.rounds:
        screen.print("No round reached the minimum of reports: nothing was released.")
