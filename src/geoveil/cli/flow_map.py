"""``geoveil flows``: from noisy trips to flows between districts; and ``geoveil simulate --trips``."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np

import geoveil as gv
from geoveil import arrays
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.words import spend_in_words
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, Screen, columns_of_numbers, in_words
from geoveil.cli.estimate_inputs import mechanism_of
from geoveil.cli.obfuscate import persons_in_words, spend_values
from geoveil.demo.city import simulated_city
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, number_of, percent
from geoveil.plot.pictures import FlowPicture, save_flows
from geoveil.position.positional import Placed
from geoveil.space import AnyGrid, MapSpace, OutsideCount
from geoveil.table import district_tables, trip_rows, writer
from geoveil.table.locations import Reading, TripEnd
from geoveil.table.obfuscation import DrawnRows, Place
from geoveil.table.persons import PersonLimit, Rows, Spend
from geoveil.table.reader import Source, format_of, is_pipe
from geoveil.table.tallies import is_tally, load_trip_tally
from geoveil.trips.flows import DistrictFlows, Flows, blocks, middles_km
from geoveil.trips.pairs import TripTally
from geoveil.verify.alarm import PoisoningAlarm

_SHOWN = 8
"""The largest flows that are printed."""
_FITTING = 0.4
"""The part of the work before the intervals, roughly."""


@click.command()
@shared.inputs_argument
@shared.output_option("File of flows between districts; - for a pipe.")
@click.option("--block", type=click.IntRange(min=1), default=3, show_default=True,
              help="Districts are blocks of so many by so many cells.")  # fmt: skip
@shared.zone_options("Districts in GeoJSON in the place of blocks.")
@shared.level_option("pair of districts")
@click.option("--replicates", type=click.IntRange(min=2), default=40, show_default=True,
              help="How often the estimate is made again for the intervals.")  # fmt: skip
@click.option("--no-intervals", is_flag=True, help="Leave the intervals out, which take longest.")
@shared.alarm_option("ends and pairs of reports")
@shared.mechanism_file_option
@shared.plot_option("Draw the largest flows on a map")
@shared.location_options
@click.option("--to-lat", help="Column of the latitude where trips end.")
@click.option("--to-lng", "--to-lon", "to_lng", help="Column of the longitude where trips end.")
@shared.machine_options
def command(
    sources: tuple[str, ...], output: str, block: int, zones: str | None, zone_name: str,
    level: float, replicates: int,
    no_intervals: bool, alarm: bool, mechanism: str | None, plot: str | None, reading: Reading,
    to_lat: str | None, to_lng: str | None, machine: bool,
) -> None:  # fmt: skip
    """Estimate how many trips go from where to where, from noisy trips.

    IN are files that geoveil obfuscate --trips wrote, or tallies of geoveil tally --trips; several must
    come from one mechanism. OUT has one row for each pair of districts: the share of all trips, standard
    error and interval; as GeoJSON the pairs are lines. Single pairs of cells are known badly; quote
    districts, with their intervals.

    \b
    geoveil flows noisy.parquet -o flows.geojson --plot flows.png
    geoveil flows monday.json tuesday.json -o flows.csv --block 4
    geoveil flows noisy.parquet -o flows.csv --zones districts.geojson
    """
    format_of(output, reading.format, writing=True)
    arrays.part("level", level)
    writer.check_target(output, *sources, mechanism, zones)
    shared.check_picture(plot, *sources, output)
    if zones is None:
        shared.refuse_given(["zone_name"], "must come with --zones")
    else:
        shared.refuse_given(["block"], "must not go with --zones")
    if no_intervals:
        shared.refuse_given(["replicates", "level"], "must not go with --no-intervals")
    console = Console(machine=machine, output=output)
    reading = replace(reading, to=TripEnd(to_lat, to_lng))
    with console.progress("counting") as progress:
        tally = _counted(sources, mechanism, reading, console, progress)
        progress.stage("estimating")
        whole = 1.0 if no_intervals else _FITTING
        flows = gv.Trips(tally.channel).fit(
            tally, replicates=replicates,
            progress=lambda step, of: progress.update(whole * step / of),
        )  # fmt: skip
        if zones is None:
            numbers, districts = numbered_blocks(flows.space, block)
            between = flows.between(numbers)
        else:
            districts = f"those of {in_words(zones)}"
            between = flows.between(zones, name=zone_name)
        if not no_intervals:
            progress.update(_FITTING, "intervals")
        table = flow_table(between, districts, None if no_intervals else level)
        if alarm:
            progress.stage("looking for fakes")
            found = PoisoningAlarm().check_trips(tally).to_dict()
            table = replace(table, description={**(table.description or {}), "alarm": found})
        progress.stage("writing")
        writer.write_by(district_tables.put_flows, output, table, format=reading.format)
        if plot is not None:
            save_flows(plot, picture_of(between, table))
    values = {"output": output, **(table.description or {})}
    said = console.alarm_of(values)
    console.result(values, lambda screen: _show(screen, table, said, output, plot))


def numbered_blocks(space: gv.Space, side: int) -> tuple[IntArray, str]:
    """The block of side × side cells that each is in, from the south-west row by row, and what they are."""
    if not isinstance(space, AnyGrid):
        return np.arange(space.size), f"places of {space!r}"
    what = "cells" if side == 1 else f"blocks of {side} × {side} cells"
    # those without a cell of the city are left out of the numbers
    return np.unique(blocks(space, side), return_inverse=True)[1], what


def flow_table(between: DistrictFlows, kind: str, level: float | None) -> district_tables.FlowTable:
    """All that a file says of flows; ``kind`` says what the districts are; without a level, no intervals."""
    flows = between.flows
    bars: dict[str, FloatArray] = {}
    stays: dict[str, Any] = {
        "stay_share": flows.stay_share,
        "stay_in_district_share": between.stay_share,
    }
    if level is not None:
        low, high = between.interval(level)
        bars = {"standard_error": between.standard_error, "low": low, "high": high}
        stays["stay_interval"] = list(flows.stay_interval(level))
    description = {
        "space": flows.space.to_dict(),
        "trips": flows.total,
        "districts": kind,
        "pairs": between.count**2,
        "steps": flows.steps,
        "stopped": flows.stopped,
        **stays,
        "elsewhere_share": between.elsewhere_share,
        "interval_level": level,
        "error_bars": "none: they were not asked for" if level is None else between.errors.method,
    }
    middles, space = None, flows.space
    with suppress(GeoveilError):  # not all spaces have a map
        if isinstance(space, MapSpace):
            middles = np.stack(space.plane.to_latlng(middles_km(space, between.members)), axis=1)
    return district_tables.FlowTable(
        between.names, between.matrix, middles, description=description, **bars
    )


def picture_of(between: DistrictFlows, table: district_tables.FlowTable) -> FlowPicture:
    """The same as a picture."""
    flows = between.flows
    ends = (flows.origins + flows.destinations) / 2
    middles = middles_km(flows.space, between.members)
    return FlowPicture(flows.space, middles, table.share, table.low, ends)


def _counted(
    sources: tuple[str, ...], mechanism: str | None, reading: Reading, console: Console,
    progress: ProgressBar,
) -> TripTally:  # fmt: skip
    """One tally of all files, which must come from one mechanism."""
    total: TripTally | None = None
    for path in sources:
        progress.stage(f"counting {path}")
        source = Source(path) if is_pipe(path) else path
        if is_tally(source):
            tally = load_trip_tally(source)
        else:
            with reading.open(source) as reader:
                channel = mechanism_of(reader, mechanism, what="trips")
                if not isinstance(channel, gv.Channel):
                    raise InvalidFile(
                        f"{reader.name} must hold trips between cells; its reports are points"
                    )
                tally, outside = trip_rows.count_trip_reports(
                    reader, channel, reading,
                    advance=lambda rows: progress.update(reader.fraction, number_of(rows, "trip")),
                )  # fmt: skip
                console.warn_of_outside(outside)
        if total is not None and tally.channel != total.channel:
            raise InvalidInput(
                f"{path} must come from the mechanism of the files before it; flows of different "
                "mechanisms are not pooled; estimate each by itself"
            )
        total = tally if total is None else total + tally
    assert total is not None
    return total


def _show(
    screen: Screen, table: district_tables.FlowTable, alarm: str, output: str, plot: str | None
) -> None:
    about = table.description or {}
    screen.print(
        f"{number_of(about['pairs'], 'pair')} of districts ({about['districts']}) from "
        f"{number_of(about['trips'], 'trip')}, in {in_words(output)}{f', drawn in {plot}' if plot else ''}"
    )
    interval = about.get("stay_interval")
    ends = f" ({_percents(*interval)})" if interval else ""
    screen.print(
        f"{percent(about['stay_share'])} of trips stay in their cell{ends}, "
        f"{percent(about['stay_in_district_share'])} in their district"
    )
    headings = ["to", "share"] + (["interval"] if table.low is not None else [])
    rows = columns_of_numbers(headings, first="from")
    for place in np.argsort(-table.share, axis=None, kind="stable")[:_SHOWN].tolist():
        begun, ended = divmod(place, len(table.names))
        row = [table.names[begun], table.names[ended], percent(table.share[begun, ended])]
        if table.low is not None and table.high is not None:
            row.append(_percents(table.low[begun, ended], table.high[begun, ended]))
        rows.add_row(*row)
    screen.print(rows)
    if table.low is not None:
        screen.print(f"Intervals of pairs: {about['error_bars']}; each is for one pair by itself.")
    if alarm:
        screen.print(alarm)


def _percents(low: float, high: float) -> str:
    return f"{percent(low).removesuffix(' %')}–{percent(high)}"


# --- ``geoveil simulate --trips``: trips whose truth is known, obfuscated, and the flows that come back

NOT_FOR_TRIPS = (
    "rounds", "promises", "choices", "as_published", "design_steps", "update_steps", "everybody",
    "churn", "fakes", "most_leverage", "guarded", "fake_cell", "minimum_reports", "maps",
)  # fmt: skip
"""Options of campaigns, which have nothing to do with trips."""
CITY_SEED = 7
"""Of the simulated city, that of campaigns as well."""
_BLOCK = 3
_LEVEL = 0.95
_STAYING, _REACH_KM, _LOOKED_AT = 0.3, 2.0, 8
"""Of the simulated city: who stays, how far others go, and among how many places they choose."""


@dataclass(frozen=True)
class TripPopulation:
    """True trips on a grid: positions in degrees, (trips, 2, 2) by end, and the cells of both ends."""

    grid: Placed
    places: FloatArray
    cells: IntArray
    outside: OutsideCount
    spend: Spend | None


def shares(pairs: IntArray, size: int) -> FloatArray:
    """The share of each pair of cells among those with both ends on the map."""
    here = pairs[(pairs < size).all(axis=1)]
    matrix = np.zeros((size, size))
    np.add.at(matrix, (here[:, 0], here[:, 1]), 1.0)
    return np.asarray(matrix / max(1.0, matrix.sum()))


def simulate_trips(
    file: shared.RowFile, plot: str | None, console: Console, options: dict[str, Any]
) -> None:
    """The whole command: read or make trips, report them once each, estimate, compare, tell."""
    with console.progress("reading the trips") as progress:
        if file.source:
            people = _read_trips(file, options["seed"], progress)
        else:
            people = _simulated_trips(options["number"], file.area.cell_km)
        progress.stage("designing")
        mechanism = gv.elastic(
            people.grid,
            epsilon_per_km=options["epsilon_per_km"],
            camouflage=options["camouflage"],
            between=options["between"] or "positions",
        )
        progress.stage("estimating")
        flows, reports = _reported(people, mechanism, options["seed"] + 1, progress)
        numbers, districts = numbered_blocks(people.grid, _BLOCK)
        between = flows.between(numbers)
        if plot is not None:
            save_flows(plot, picture_of(between, flow_table(between, districts, _LEVEL)))
    console.warn_of_outside(people.outside)
    cost, spend = gv.Trips(mechanism).guarantee, people.spend
    truth = shares(people.cells, people.grid.size)
    values = {
        "trips": len(people.cells),
        "cells": people.grid.size,
        "common_part": _common_parts(flows, between, truth, reports),
        "stay_share": flows.stay_share,
        "stay_interval": list(flows.stay_interval(_LEVEL)),
        "true_stay_share": float(np.trace(truth)),
        "districts_covered": _covered(between, truth),
        "outside_dropped": people.outside.dropped,
        "outside_clamped": people.outside.clamped,
        "per_person": spend_values(spend, cost),
        "spent": spend_in_words(cost, None if spend is None else spend.largest, what="trip"),
    }
    sentences = [
        str(values["spent"]),
        *people_in_words(spend, file.limit, cost, people.outside, "trip"),
    ]
    console.result(values, lambda screen: _show_simulated(screen, people, values, sentences))


def _reported(
    people: TripPopulation, mechanism: gv.Channel, seed: int, progress: ProgressBar
) -> tuple[Flows, IntArray]:
    """The flows that come back, and the noisy cells (trips, 2); from the size of the map on, beside it."""
    trips = gv.Trips(mechanism)
    reporter = trip_rows.TripReporter(mechanism, randomness=gv.seeded(seed))
    reports = reporter.draw(people.places if mechanism.told_apart is None else people.cells)
    flows = trips.fit(
        trips.tally(*reports.T), progress=lambda step, of: progress.update(_FITTING * step / of)
    )
    progress.update(_FITTING, "intervals")
    return flows, reports


def _common_parts(
    flows: Flows, between: DistrictFlows, truth: FloatArray, reports: IntArray
) -> dict[str, list[float]]:
    """Σ min with the truth, of pairs of cells and of districts: raw reports, product, flows."""
    matrices = {
        "raw reports": shares(reports, len(truth)),
        "product of marginals": np.outer(flows.origins, flows.destinations),
        "flows": flows.matrix,
    }
    true = between.summed(truth)
    return {
        name: [
            float(np.minimum(matrix, truth).sum()),
            float(np.minimum(between.summed(matrix), true).sum()),
        ]
        for name, matrix in matrices.items()
    }


def _covered(between: DistrictFlows, truth: FloatArray) -> float:
    """Of the pairs of districts with a trip, the part whose interval holds the truth."""
    low, high = between.interval(_LEVEL)
    true = between.summed(truth)
    return float(((low <= true) & (true <= high))[true > 0].mean())


def _read_trips(file: shared.RowFile, seed: int, progress: ProgressBar) -> TripPopulation:
    """The grid and the true trips of a file, of each person as many as the limit lets through."""
    grid, counted = file.grid(), OutsideCount(file.outside, what="trips")

    def place(*ends: FloatArray) -> tuple[FloatArray, Any]:
        cells, usable = counted.locate_both(grid, ends[:2], ends[2:])
        return np.column_stack([*ends, cells]), usable

    rows, spend = chosen_rows(file, place, counted, seed, progress)
    columns = np.concatenate([part.places for part in rows])
    places, cells = columns[:, :4].reshape(-1, 2, 2), columns[:, 4:].astype(np.int64)
    return TripPopulation(grid, places, cells, counted, spend)


def chosen_rows(
    file: shared.RowFile, place: Place, count: OutsideCount, seed: int, progress: ProgressBar
) -> tuple[list[Rows], Spend | None]:
    """The rows that report, of each person as many as the limit lets through; what is drawn comes later."""
    with file.reading.open(file.source) as reader:
        chosen = DrawnRows(
            file.table(reader), place, lambda places: places, count, limit=file.limit,
            randomness=gv.seeded(seed),
        )  # fmt: skip
        rows = list(chosen.rows(lambda _: progress.update(reader.fraction)))
    return rows, chosen.summary().spend


def people_in_words(
    spend: Spend | None, limit: PersonLimit | None, cost: gv.Guarantee | None, outside: OutsideCount,
    what: str = "report",
) -> list[str]:  # fmt: skip
    """What there is to say of the people of a simulation."""
    sentences = []
    if spend is not None and limit is not None:
        sentences.append(f"Persons: {persons_in_words(spend, limit, cost, what)}.")
    if outside.outside:
        sentences.append(f"{outside.sentence()}.")
    return sentences


def _simulated_trips(number: int, cell_km: float) -> TripPopulation:
    """Trips in the simulated city: some stay, the others go to where people are, rather near than far."""
    city = simulated_city(people=number, seed=CITY_SEED, cell_km=cell_km)
    generator = np.random.Generator(np.random.PCG64([CITY_SEED, 1]))
    here = np.stack([city.lat, city.lng], axis=1)
    plane = city.grid.plane.to_plane(lat=city.lat, lng=city.lng)
    offered = generator.integers(number, size=(number, _LOOKED_AT))
    away = np.linalg.norm(plane[offered] - plane[:, None], axis=2)
    weights = np.exp(-away / _REACH_KM).cumsum(axis=1)
    targets = generator.random((number, 1)) * weights[:, -1:]
    chosen = offered[np.arange(number), (weights < targets).sum(axis=1)]
    stays = generator.random(number) < _STAYING
    there = np.where(stays[:, None], here, here[chosen])
    cells = np.where(stays, city.cells, city.cells[chosen])
    places, both = np.stack([here, there], axis=1), np.stack([city.cells, cells], axis=1)
    nowhere = OutsideCount("drop", what="trips")
    return TripPopulation(city.grid, places, both, nowhere, Spend(number, 1, 1))


def _show_simulated(
    screen: Screen, people: TripPopulation, values: dict[str, Any], sentences: list[str]
) -> None:
    screen.print(f"{people.grid!r}, {number_of(len(people.cells), 'trip')}")
    table = columns_of_numbers(("pairs of cells", "pairs of districts"), first="in the right pair")
    for name, (cells, districts) in values["common_part"].items():
        table.add_row(name, f"{cells:.3f}", f"{districts:.3f}")
    screen.print(table)
    low, high = values["stay_interval"]
    screen.print(
        f"Stay in their cell: {values['stay_share']:.3f} ({low:.3f}–{high:.3f}), truly "
        f"{values['true_stay_share']:.3f}. Intervals of district pairs with a trip hold the truth in "
        f"{100 * values['districts_covered']:.1f} %."
    )
    for sentence in sentences:
        screen.print(sentence)


def check_options(epsilon_per_km: float | None) -> None:
    """Refuse options of campaigns where trips are asked for."""
    why = "must not go with --trips, which reports every trip once, under one mechanism"
    shared.refuse_given(NOT_FOR_TRIPS, why)
    if epsilon_per_km is None:
        raise click.UsageError("a promise must be given with --trips: --epsilon-per-km")
