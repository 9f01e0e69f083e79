"""City limits, districts and hexagons: what they cost, and how well intervals of districts hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from time import process_time

import numpy as np

from benchmarks.timing import Figure
from geoveil.arrays import FloatArray
from geoveil.campaign.elastic_design import elastic
from geoveil.channel.channel import Channel, Tally
from geoveil.document.wire import MechanismDocument, publish
from geoveil.estimate import IterativeBayesianUpdate
from geoveil.estimate.regions import RegionShares, members_of
from geoveil.measure import earth_movers_distance_km
from geoveil.mechanism.planar import PlanarGeometric
from geoveil.position.positional import PositionalElastic
from geoveil.randomness import seeded
from geoveil.space import MOST_CELLS, Grid, Hexagons, MapSpace, MaskedGrid, Points
from geoveil.space.outline import Outline

_RUNS = 60
_SEEDS = 10
_BOX = (2.25, 48.82, 2.42, 48.90)


def areas() -> Iterator[Figure]:
    """Districts of a large map, their coverage, and hexagons beside squares of the same area."""
    yield districts_of_many_cells()
    yield from coverage()
    yield from hexagons()
    yield from places()
    yield from limited()
    yield from many_cells()


def blocks(west: float, south: float, east: float, north: float, side: int) -> list[Outline]:
    """``side`` × ``side`` districts that share a box among them, and cut through cells."""
    lng, lat = np.linspace(west, east, side + 1), np.linspace(south, north, side + 1)
    return [
        Outline(
            f"{i}-{j}",
            ((np.array([(a, c), (b, c), (b, d), (a, d), (a, c)]),),),
        )
        for i, (a, b) in enumerate(pairwise(lng))
        for j, (c, d) in enumerate(pairwise(lat))
    ]


def districts_of_many_cells() -> Figure:
    """100 districts of 10,000 cells whose error bars are there: cut, summed, with intervals."""
    grid = Grid.from_box(south=48.4, west=1.7, north=49.29, east=3.05, cell_km=1.0)
    mechanism = PlanarGeometric(grid, epsilon_per_km=1.0)
    people = np.random.default_rng(1).choice(grid.size, size=100_000, p=_crowd(grid))
    estimate = IterativeBayesianUpdate().fit(
        mechanism.tally(mechanism.sample(people, randomness=seeded(2)))
    )
    bars = estimate.errors  # made before
    zones = blocks(1.7, 48.4, 3.05, 49.29, 10)
    before = process_time()
    members = members_of(grid, zones)
    RegionShares([each.name for each in zones], members, estimate.distribution, bars).interval(0.95)
    seconds = process_time() - before
    name = f"100 districts of {grid.size:,} cells"
    return Figure(name, seconds, seconds, "s", 2.0)


def coverage() -> Iterator[Figure]:
    """How often the 95 % intervals of 25 districts that cut through cells hold the truth."""
    grid = Grid.from_box(south=48.82, west=2.25, north=48.90, east=2.42, cell_km=0.7)
    members = members_of(grid, blocks(*_BOX, 5))
    for epsilon in (1.0, 2.0):
        mechanism = elastic(grid, epsilon_per_km=epsilon, camouflage=0.5)
        held, before, generator = [], process_time(), np.random.default_rng(7)
        for run in range(_RUNS):
            truth = generator.dirichlet(np.full(grid.size, 0.3))
            people = generator.choice(grid.size, size=20_000, p=truth)
            estimate = IterativeBayesianUpdate().fit(
                mechanism.tally(mechanism.sample(people, randomness=seeded(run)))
            )
            names = [""] * len(members)
            found = RegionShares(names, members, estimate.distribution, estimate.errors)
            low, high = found.interval(0.95)
            share = members @ truth
            held.append(float(((low <= share) & (share <= high)).mean()))
        name = f"districts held by their 95 % interval, ε = {epsilon:g} per km"
        spent = process_time() - before
        yield Figure(name, spent, float(np.mean(held)), "share", 0.93, at_least=True)
        yield Figure(f"{name}, at most", spent, float(np.mean(held)), "share", 0.98)


def hexagons() -> Iterator[Figure]:
    """The error of maps of hexagons beside that of squares of the same area, everybody where they stand."""
    west, south, east, north = _BOX
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    limits = {"type": "Polygon", "coordinates": [ring]}
    cells = Hexagons(limits, resolution=8)
    squares = Grid.from_polygon(limits, cell_km=cells.cell_km)
    for camouflage in (0.5, 0.0):
        before = process_time()
        ours, theirs = (_error(space, camouflage) for space in (cells, squares))
        spent = process_time() - before
        name = f"error of hexagons, camouflage {camouflage:g}, over that of squares"
        yield Figure(name, spent, ours / theirs, "×", 1.2)


def places() -> Iterator[Figure]:
    """What it takes to design for a list of places 0.7 km apart, on no grid, at ε = 1 per km."""
    for number, most_s in ((400, 10.0), (1024, 60.0)):
        generator = np.random.default_rng(number)
        side_km = 0.7 * np.sqrt(number)
        lat, lng = 48.0 + generator.random(number) * side_km / 111.2, generator.random(number)
        listed = Points(lat=lat, lng=2.0 + lng * side_km / 74.4)
        before = process_time()
        elastic(listed, epsilon_per_km=1.0, camouflage=0.5, between="positions")
        spent = process_time() - before
        yield Figure(f"design of {number:,} places, camouflage 0.5", spent, spent, "s", most_s)


def limited() -> Iterator[Figure]:
    """What it takes to design for a round city of some hundred cells of 0.2 km, at ε = 1 per km."""
    grid = Grid.from_box(south=48.82, west=2.28, north=48.89, east=2.41, cell_km=0.2)
    nearest = np.argsort(np.hypot(*grid.centres.T), kind="stable")
    for number, most_s in ((400, 30.0), (1200, 60.0)):
        mask = np.zeros(grid.size, dtype=bool)
        mask[nearest[:number]] = True
        before = process_time()
        elastic(MaskedGrid(grid, mask), epsilon_per_km=1.0, camouflage=0.5)
        spent = process_time() - before
        yield Figure(f"design of {number:,} cells within limits", spent, spent, "s", most_s)


def many_cells() -> Iterator[Figure]:
    """A round country of 65,536 cells: its design, its document, and what a device takes to check that."""
    grid = Grid.from_box(south=48.0, west=1.2, north=50.6, east=5.2, cell_km=1.0)
    mask = np.zeros(grid.size, dtype=bool)
    mask[np.argsort(np.hypot(*grid.centres.T), kind="stable")[:MOST_CELLS]] = True
    country = MaskedGrid(grid, mask)
    away = np.hypot(*(country.centres - np.array((40.0, -30.0))).T)
    crowd = 0.05 + np.exp(-away / 20.0)
    for camouflage, most_s in ((0.5, 60.0), (0.0, 180.0)):
        before = process_time()
        mechanism = elastic(country, crowd / crowd.sum(), epsilon_per_km=1.0, camouflage=camouflage)
        spent = process_time() - before
        name = f"{country.size:,} cells of a mask, camouflage {camouflage:g}"
        yield Figure(f"design of {name}", spent, spent, "s", most_s)
        assert isinstance(mechanism, PositionalElastic)
        document = publish(mechanism, campaign="large", round=1, not_before_s=0, expires_s=1)
        served = document.served()
        before = process_time()
        MechanismDocument.read(served)
        spent = process_time() - before
        yield Figure(f"document of {name}", spent, len(served) / 1024, "KiB", 256.0)
        yield Figure(f"a device checks that of {name}", spent, spent, "s", 30.0)
        if camouflage > 0.0:
            yield _round(mechanism, crowd)


def _round(mechanism: PositionalElastic, crowd: FloatArray) -> Figure:
    """The estimate from a million reports, and its error bars."""
    generator = np.random.default_rng(3)
    people = crowd * generator.gamma(0.5, size=crowd.size)
    law = np.maximum(mechanism.push(people / people.sum()), 0.0)
    tally = Tally(mechanism, generator.multinomial(1_000_000, law / law.sum()))
    before = process_time()
    estimate = IterativeBayesianUpdate().fit(tally)
    estimate.errors.standard_error()
    spent = process_time() - before
    name = f"estimate of {crowd.size:,} cells from 10⁶ reports, with error bars"
    return Figure(name, spent, spent, "s", 180.0)


def _error(space: MapSpace, camouflage: float) -> float:
    mechanism: Channel = elastic(
        space, epsilon_per_km=1.0, camouflage=camouflage, between="positions"
    )
    errors = []
    for seed in range(_SEEDS):
        lat, lng = space.plane.to_latlng(_people(seed))
        there = space.inside(lat=lat, lng=lng)
        cells = space.locate(lat=lat[there], lng=lng[there])
        truth = np.bincount(cells, minlength=space.size) / there.sum()
        reports = mechanism.sample_at(lat=lat[there], lng=lng[there], randomness=seeded(seed))  # type: ignore[attr-defined]
        estimate = IterativeBayesianUpdate().fit(mechanism.tally(reports)).distribution
        errors.append(earth_movers_distance_km(estimate, truth, space))
    return float(np.mean(errors))


def _people(seed: int) -> FloatArray:
    """Two crowds over a thin spread, in km from the middle of the map."""
    generator = np.random.default_rng(seed)
    return np.concatenate(
        (
            generator.normal((-2.0, 1.0), (1.2, 1.0), (12_000, 2)),
            generator.normal((3.0, -1.5), (0.8, 0.8), (6_000, 2)),
            generator.uniform((-5.5, -4.0), (5.5, 4.0), (4_000, 2)),
        )
    )


def _crowd(grid: Grid) -> FloatArray:
    away = np.hypot(*(grid.centres - np.array((10.0, -5.0))).T)
    density = 0.02 + np.exp(-away / 8.0)
    shares: FloatArray = density / density.sum()
    return shares
