"""``geoveil simulate --trips``: trips whose truth is known, obfuscated, and the flows that come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.words import spend_in_words
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, Screen, columns_of_numbers
from geoveil.cli.flow_map import flow_table, numbered_blocks, picture_of
from geoveil.cli.obfuscate import persons_in_words, spend_values
from geoveil.demo.city import simulated_city
from geoveil.errors import number_of
from geoveil.plot.pictures import save_flows
from geoveil.position.positional import Placed
from geoveil.space import OutsideCount
from geoveil.table.obfuscation import DrawnRows, Place
from geoveil.table.persons import PersonLimit, Rows, Spend
from geoveil.trips.flows import DistrictFlows, Flows

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


def run(file: shared.RowFile, plot: str | None, console: Console, options: dict[str, Any]) -> None:
    """The whole command: read or make trips, report them once each, estimate, compare, tell."""
    with console.progress("reading the trips") as progress:
        if file.source:
            people = _read(file, options["seed"], progress)
        else:
            people = _simulated(options["number"], file.area.cell_km)
        progress.stage("designing")
        mechanism = gv.elastic(
            people.grid,
            epsilon_per_km=options["epsilon_per_km"],
            camouflage=options["camouflage"],
            between=options["between"] or "positions",
        )
        progress.stage("estimating")
        flows, reports = _reported(people, mechanism, options["seed"] + 1, progress)
        numbers, told = numbered_blocks(people.grid, _BLOCK)
        between = flows.between(numbers)
        if plot is not None:
            save_flows(plot, picture_of(between, flow_table(between, told, _LEVEL)))
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
        "spent": spend_in_words(cost, None if spend is None else spend.largest),
    }
    sentences = [str(values["spent"]), *told_of_people(spend, file.limit, cost, people.outside)]
    console.result(values, lambda screen: _show(screen, people, values, sentences))


def _reported(
    people: TripPopulation, mechanism: gv.Channel, seed: int, progress: ProgressBar
) -> tuple[Flows, IntArray]:
    """The flows that come back, and the noisy cells (trips, 2); from the size of the map on, beside it."""
    trips, noise = gv.Trips(mechanism), gv.seeded(seed)
    if mechanism.told_apart is None:
        begun, ended = people.places[:, 0], people.places[:, 1]
        reports = trips.sample_at(
            lat=begun[:, 0], lng=begun[:, 1], to_lat=ended[:, 0], to_lng=ended[:, 1],
            randomness=noise,
        )  # fmt: skip
    else:
        reports = trips.sample(people.cells[:, 0], people.cells[:, 1], randomness=noise)
    flows = trips.fit(
        trips.tally(*reports), progress=lambda done, of: progress.update(0.4 * done / of)
    )
    progress.update(0.4, "intervals")
    return flows, np.stack(reports, axis=1)


def _common_parts(
    flows: Flows, between: DistrictFlows, truth: FloatArray, reports: IntArray
) -> dict[str, list[float]]:
    """Σ min with the truth, of pairs of cells and of districts: raw reports, product, flows."""
    made = {
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
        for name, matrix in made.items()
    }


def _covered(between: DistrictFlows, truth: FloatArray) -> float:
    """Of the pairs of districts with a trip, the part whose interval holds the truth."""
    low, high = between.interval(_LEVEL)
    true = between.summed(truth)
    return float(((low <= true) & (true <= high))[true > 0].mean())


def _read(file: shared.RowFile, seed: int, progress: ProgressBar) -> TripPopulation:
    """The grid and the true trips of a file, of each person as many as the limit lets through."""
    grid, counted = file.grid(), OutsideCount(file.outside, what="trips")

    def place(*ends: FloatArray) -> tuple[FloatArray, Any]:
        cells, taken = counted.locate_both(grid, ends[:2], ends[2:])
        return np.column_stack([*ends, cells]), taken

    rows, spend = chosen_rows(file, place, counted, seed, progress)
    found = np.concatenate([part.places for part in rows])
    places, cells = found[:, :4].reshape(-1, 2, 2), found[:, 4:].astype(np.int64)
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
        rows = list(chosen.rows(lambda read: progress.update(reader.fraction)))
    return rows, chosen.summary().spend


def told_of_people(
    spend: Spend | None, limit: PersonLimit | None, cost: gv.Guarantee | None, outside: OutsideCount
) -> list[str]:
    """What there is to say of the people of a simulation."""
    told = []
    if spend is not None and limit is not None:
        told.append(f"Persons: {persons_in_words(spend, limit, cost)}.")
    if outside.outside:
        told.append(f"{outside.sentence()}.")
    return told


def _simulated(number: int, cell_km: float) -> TripPopulation:
    """Trips in the simulated city: some stay, the others go to where people are, rather near than far."""
    city = simulated_city(people=number, seed=CITY_SEED, cell_km=cell_km)
    generator = np.random.Generator(np.random.PCG64([CITY_SEED, 1]))
    here = np.stack([city.lat, city.lng], axis=1)
    plane = city.grid.plane.to_plane(lat=city.lat, lng=city.lng)
    offered = generator.integers(number, size=(number, _LOOKED_AT))
    away = np.linalg.norm(plane[offered] - plane[:, None], axis=2)
    weights = np.exp(-away / _REACH_KM).cumsum(axis=1)
    drawn = generator.random((number, 1)) * weights[:, -1:]
    chosen = offered[np.arange(number), (weights < drawn).sum(axis=1)]
    stays = generator.random(number) < _STAYING
    there = np.where(stays[:, None], here, here[chosen])
    cells = np.where(stays, city.cells, city.cells[chosen])
    places, both = np.stack([here, there], axis=1), np.stack([city.cells, cells], axis=1)
    nowhere = OutsideCount("drop", what="trips")
    return TripPopulation(city.grid, places, both, nowhere, Spend(number, 1, 1))


def _show(
    screen: Screen, people: TripPopulation, told: dict[str, Any], sentences: list[str]
) -> None:
    screen.print(f"{people.grid!r}, {number_of(len(people.cells), 'trip')}")
    table = columns_of_numbers(("pairs of cells", "pairs of districts"), first="in the right pair")
    for name, (cells, districts) in told["common_part"].items():
        table.add_row(name, f"{cells:.3f}", f"{districts:.3f}")
    screen.print(table)
    low, high = told["stay_interval"]
    screen.print(
        f"Stay in their cell: {told['stay_share']:.3f} ({low:.3f}–{high:.3f}), truly "
        f"{told['true_stay_share']:.3f}. Intervals of district pairs with a trip hold the truth in "
        f"{100 * told['districts_covered']:.1f} %."
    )
    for sentence in sentences:
        screen.print(sentence)


def check_options(epsilon_per_km: float | None) -> None:
    """Refuse options of campaigns where trips are asked for."""
    why = "must not go with --trips, which reports every trip once, under one mechanism"
    shared.refuse_given(NOT_FOR_TRIPS, why)
    if epsilon_per_km is None:
        raise click.UsageError("a promise must be given with --trips: --epsilon-per-km")
