"""``geoveil simulate``: a population goes through the rounds of a campaign, and the truth is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import click
import numpy as np

import geoveil as gv
from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.campaign import Crowd, Simulation
from geoveil.campaign.simulation import Population
from geoveil.channel.words import spend_in_words
from geoveil.cli import flow_map
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, Screen, columns_of_numbers
from geoveil.cli.obfuscate import spend_values
from geoveil.demo.city import simulated_city
from geoveil.engine.engines import Engine
from geoveil.engine.file_crowd import FileCrowd
from geoveil.files import PIPE
from geoveil.measure import check_transport
from geoveil.plot import curves
from geoveil.plot.maps import Panel, save_maps
from geoveil.position.positional import Placed
from geoveil.space import OutsideCount
from geoveil.table.persons import Spend
from geoveil.table.reader import is_pipe

_OF_FILES = (
    "box", "within", "outside", "lat", "lng", "to_lat", "to_lng", "consecutive_hours", "bad_rows",
    "delimiter", "format", "person",
)  # fmt: skip
"""Options about a file of people, which a simulated city has not."""


class People(NamedTuple):
    """Who reports, on which grid; ``spend`` is ``None`` where persons are not told apart."""

    grid: Placed
    crowd: Population
    outside: OutsideCount
    """Of those of a file, known when it was read."""
    spend: Spend | None


@click.command()
@click.argument("source", metavar="[CHECKINS]", required=False)
@click.option("--rounds", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--epsilon-per-km", type=float, help="The promise, certified.")
@click.option(
    "--promises", type=shared.Numbers(), metavar="E1,E2,…",
    help="Several promises instead, ε per km: everybody chooses one.",
)  # fmt: skip
@click.option(
    "--choices", type=shared.Numbers(), metavar="S1,S2,…",
    help="Shares of people who choose each of --promises; all the same where not given.",
)  # fmt: skip
@shared.camouflage_option
@shared.between_option
@click.option(
    "--as-published", is_flag=True,
    help="The paper's rule instead: Blahut–Arimoto at β = ε/2, the last round alone; it has no camouflage.",
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
@shared.leverage_option
@click.option("--guarded", is_flag=True, help="Leave out what the poisoning alarm finds fake.")
@click.option("--fake-cell", type=click.IntRange(min=0), help="What fakes report; else the middle.")
@click.option(
    "--minimum-reports", type=click.IntRange(min=0), default=0, show_default=True,
    help="A round with fewer does not close.",
)  # fmt: skip
@click.option("--people", "number", type=click.IntRange(min=10), default=50_000, show_default=True,
              help="Of the simulated city, where no file is given.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@shared.plot_option("Draw the error by round")
@click.option("--map", "maps", metavar="FILE", help="Draw truth and estimate as maps.")
@shared.row_options
@shared.machine_options
def command(
    source: str | None, plot: str | None, maps: str | None, machine: bool, **options: Any
) -> None:
    """Run a population through the rounds of a campaign, and compare with the truth.

    CHECKINS is a file of true places; without it a city is simulated. The error is the earth mover's
    distance in km, beside the error of exact counts (no privacy) and of the best stop in hindsight.
    Each row reports once, or in each round; --person says whom a row is about, --per-person limits
    the rows that report (memoise: each cell of a person once). A mechanism between positions draws from
    the place of the row; of the simulated city and with memoise, from anywhere in the cell.
    With --trips every trip is reported once, and flows are compared with the true ones.

    \b
    geoveil simulate checkins.csv --rounds 15 --epsilon-per-km 2 --camouflage 0.5 --plot curve.png
    geoveil simulate checkins.csv --rounds 4 --promises 0.5,1,2 --choices 0.2,0.3,0.5
    geoveil simulate --trips --epsilon-per-km 2 --cell-km 1 --people 20000 --plot flows.png
    """
    people = shared.RowFile.from_options(source, options)
    if people.trips is not None:
        flow_map.check_options(options["epsilon_per_km"])
    _check_promises(options)
    people.check_engine()
    _check_use(source, options["as_published"])
    people.where.check_file(people.source)
    for picture in (plot, maps):
        shared.check_picture(picture, people.source)
    console = Console(machine=machine)
    if people.trips is not None:
        flow_map.simulate_trips(people, plot, console, options)
    else:
        with people.where.open(None, source or PIPE) as engine:
            _campaign(people, engine, plot, maps, console, options)


def _campaign(
    file: shared.RowFile, engine: Engine, plot: str | None, maps: str | None, console: Console,
    options: dict[str, Any],
) -> None:  # fmt: skip
    """The rounds of a campaign, and what is told of them."""
    with console.progress("reading the people") as progress:
        if not file.source:
            number = options["number"]
            city = simulated_city(people=number, seed=flow_map.CITY_SEED, cell_km=file.area.cell_km)
            crowd = _crowd(city.grid, options, city.cells)
            people = People(city.grid, crowd, OutsideCount("drop"), Spend(number, 1, 1))
        elif file.limit is None and not is_pipe(file.source):
            grid, count = file.grid(), OutsideCount(file.outside)
            crowd = _crowd(grid, options, np.zeros(0, dtype=np.int64))
            rows = FileCrowd(file.source, file.reading, grid, count, crowd, engine)
            people = People(grid, rows, count, None)
        else:
            people = _read(file, options, progress)
        progress.stage("collecting")
        simulation = _run(people, options, progress)
        if plot is not None:
            curves.save_campaign(plot, simulation)
        if maps is not None:
            panels = [Panel("truth", simulation.truth)]
            panels += [Panel("estimate", last.distribution) for last in simulation.rounds[-1:]]
            save_maps(maps, simulation.space, panels)
    console.warn_of_outside(people.outside)
    promise, spend = simulation.campaign.rule.guarantee, people.spend
    if spend is not None and options["everybody"] == "each-round":
        often = int(options["rounds"])  # those that did not close as well
        spend = Spend(spend.persons, spend.largest * often, spend.typical * often)
    reports = None if spend is None else spend.largest
    several = len(simulation.campaign.rule.promises) > 1
    sentences = [spend_in_words(promise, reports, chosen=several)]
    names = ("number", "reports", "error_km", "floor_km", "hindsight_km", "mean_distance_km",
             "leakage_bits", "steps")  # fmt: skip
    values = {
        "rule": simulation.campaign.rule.to_dict(),
        "cells": simulation.space.size,
        "everybody": options["everybody"],
        "outside_dropped": people.outside.dropped,
        "outside_clamped": people.outside.clamped,
        "reports_per_person": reports,
        "per_person": spend_values(spend, promise),
        "spent": sentences[0],
        "start_error_km": simulation.start_km,
        "rounds": [{name: getattr(one, name) for name in names} for one in simulation.rounds],
        **_beside_the_map(simulation, sentences),
    }
    sentences += flow_map.people_in_words(spend, file.limit, promise, people.outside)
    console.result(values, lambda screen: _show(screen, simulation, sentences))


def _check_promises(options: dict[str, Any]) -> None:
    """One promise or several, and as many shares as promises."""
    promises, choices = options["promises"], options["choices"]
    if (promises is None) == (options["epsilon_per_km"] is None):
        raise click.UsageError("a promise must be given: --epsilon-per-km, or several, --promises")
    if promises is None and choices is not None:
        raise click.UsageError("--choices must come with --promises")
    if choices is not None and len(choices) != len(promises):
        raise click.UsageError(
            f"--choices ({len(choices)}) must be one share for each of {len(promises)} promises"
        )
    if choices is not None and (min(choices) < 0 or not sum(choices) > 0):
        raise click.UsageError("--choices must not be negative, and not all be 0")
    if promises is not None and options["as_published"]:
        raise click.UsageError("--promises must not go with --as-published: the paper has one")


def _check_use(source: str | None, as_published: bool) -> None:
    """Refuse what the other rule or the other people would be asked for."""
    if as_published:
        shared.refuse_given(["camouflage"], "must not go with --as-published: the paper has none")
    else:
        shared.refuse_given(["design_steps", "update_steps"], "must come with --as-published")
    if source is None:
        shared.refuse_given(_OF_FILES, "must come with a file of people")
    else:
        shared.refuse_given(["number"], "is for the simulated city, where no file is given")


def _beside_the_map(simulation: Simulation, sentences: list[str]) -> dict[str, Any]:
    """What the last close says about choice and drift, for machines; its words are added to the sentences."""
    if not simulation.rounds:
        return {}
    closing, described = simulation.campaign.closing, {}
    if closing.choices is not None:
        choices = closing.choices
        described["choices"] = {
            "levels": [level._asdict() for level in choices.levels],
            "dependent": choices.dependent,
            "p_value": None if choices.compared is None else choices.compared.p_value,
            "summary": choices.summary(),
        }
        sentences.append(f"Choices: {choices.summary()}")
    if len(simulation.campaign.rounds) > 1 and simulation.campaign.rule.pools:
        described["drift"] = {**closing.standing.to_dict(), "summary": closing.standing.summary()}
        sentences.append(f"Rounds: {closing.standing.summary()}")
    return described


def _read(file: shared.RowFile, options: dict[str, Any], progress: ProgressBar) -> People:
    """Everybody in a file who reports, chosen person by person or from a pipe, and kept in memory."""
    grid, count, limit = file.grid(), OutsideCount(file.outside), file.limit
    by_cell = limit is not None and limit.by == "memoise"

    def place(lat: FloatArray, lng: FloatArray) -> tuple[FloatArray | IntArray, BoolArray]:
        """Cells and, unless each is to be reported on once, where in the plane people stand."""
        cells, usable = count.locate(grid, lat, lng)
        if by_cell:
            return cells, usable
        return np.column_stack([cells, grid.plane.to_plane(lat=lat, lng=lng, folded=True)]), usable

    rows, spend = flow_map.chosen_rows(file, place, count, options["seed"], progress)
    places = np.concatenate([part.places for part in rows])
    if not by_cell:
        cells = places[:, 0].astype(np.int64)
        return People(grid, _crowd(grid, options, cells, places[:, 1:]), count, spend)
    persons = np.concatenate([part.persons for part in rows if part.persons is not None])
    cells = np.unique(np.column_stack([persons, places]), axis=0)[:, 1]
    return People(grid, _crowd(grid, options, cells), count, spend)


def _middle(space: Placed) -> int:
    """A cell in the middle of the map; of the cells of a city, the one nearest to the middle of all."""
    if isinstance(space, gv.Grid):
        return space.rows // 2 * space.columns + space.columns // 2
    away = space.centres - space.centres.mean(axis=0)
    return int(np.hypot(away[:, 0], away[:, 1]).argmin())


def _crowd(
    grid: Placed, options: dict[str, Any], cells: IntArray, positions_km: FloatArray | None = None
) -> Crowd:
    """People in these cells with the habits asked for."""
    everybody = options["everybody"].replace("-", " ")
    fake_cell = _middle(grid) if options["fake_cell"] is None else options["fake_cell"]
    if fake_cell >= grid.size:
        raise click.UsageError(
            f"--fake-cell ({fake_cell}) must be below {grid.size}, the number of cells"
        )
    habits = (everybody, options["churn"], options["fakes"], fake_cell)
    shares: tuple[float, ...] = ()
    if options["choices"] is not None:  # in the order of the promises, from the strongest on
        pairs = sorted(zip(options["promises"], options["choices"], strict=True))
        shares = tuple(share / sum(options["choices"]) for _, share in pairs)
    return Crowd(cells, *habits, positions_km, shares)


def _run(people: People, options: dict[str, Any], progress: ProgressBar) -> Simulation:
    grid, epsilon = people.grid, options["epsilon_per_km"]
    check_transport(grid)  # before a campaign designs its first mechanism
    if options["as_published"]:
        for name, flag in (("guarded", "--guarded"), ("most_leverage", "--most-leverage")):
            if options[name]:
                raise click.UsageError(
                    f"{flag} must not go with --as-published: the paper has none"
                )
        if options["between"] == "positions":
            raise click.UsageError(
                "--between positions must not go with --as-published: the paper promises between cells"
            )
        steps = {name: options[name] for name in ("design_steps", "update_steps")}
        campaign = gv.Campaign.as_published(grid, beta_per_km=epsilon / 2, **steps)
    else:
        names = ("epsilon_per_km", "camouflage", "minimum_reports", "most_leverage", "guarded",
                 "between")  # fmt: skip
        settings = {name: options[name] for name in names}
        campaign = gv.Campaign(grid, promises_per_km=options["promises"], **settings)
    return gv.simulate(
        campaign,
        people.crowd,
        rounds=options["rounds"],
        seed=options["seed"],
        hindsight=True,
        ends=True,
        progress=lambda step, total: progress.update(step / total, f"round {step} of {total}"),
    )


def _show(screen: Screen, simulation: Simulation, sentences: list[str]) -> None:
    table = columns_of_numbers(
        ("round", "reports", "error (km)", "no privacy (km)", "best stop (km)", "mean distance (km)",
         "leakage (bits)", "steps")
    )  # fmt: skip
    for one in simulation.rounds:
        best = "" if one.hindsight_km is None else f"{one.hindsight_km:.4f}"
        table.add_row(
            str(one.number), f"{one.reports:,}", f"[bold]{one.error_km:.4f}[/]",
            f"{one.floor_km:.4f}", best, f"{one.mean_distance_km:.3f}",
            f"{one.leakage_bits:.3f}", str(one.steps),
        )  # fmt: skip
    screen.print(
        f"{simulation.space!r}; knowing nothing, the error is {simulation.start_km:.4f} km"
    )
    screen.print(table)
    for sentence in sentences:
        screen.print(sentence)
    if not simulation.rounds:
        screen.print("No round reached the minimum of reports: nothing was released.")
