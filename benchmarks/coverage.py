"""How often the 95 % intervals hold the truth, on simulated data, near the boundary and far from it.

Run ``python -m benchmarks.coverage``; words after it choose the scenarios whose names hold one of them,
``Fisher`` and ``bootstrap`` the methods.
The check-ins of Paris, San Francisco and New York (the last with 9,800 cells, hours for all of it) are
looked for in ``GEOVEIL_DATA`` or ``../shared/data``, and left out where they are not.
Each row simulates people (their cells drawn from a known distribution), reports and the default
estimate (cross-validated stop), many times over. *cells* is the
share of cells whose interval holds the true share, *mass* the same weighted by the true share (the
chance that the interval of a random person's cell holds), *worst* the cell with the fewest hits,
*occup.* and *empty* the share among the cells where somebody is and where nobody is, *region* the
interval of the first third of the cells, *width* the mean width of the interval of an occupied cell,
*plain* what it would be if crowds around the cell did not bound it, *off* the total variation between the
estimate and the truth.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import geoveil as gv
from benchmarks.maps import Positions
from geoveil.arrays import BoolArray, FloatArray
from geoveil.channel.channel import Channel
from geoveil.estimate import (
    Bootstrap,
    Estimate,
    FisherInformation,
    IterativeBayesianUpdate,
    JointTally,
)
from geoveil.estimate.uncertainty import Uncertainty
from geoveil.papers.data import PARIS, SAN_FRANCISCO, Cut, DataFolder, MissingData, load_city
from geoveil.papers.privic_cycles import CAMPAIGNS
from geoveil.position.positional import PositionalElastic

LEVEL = 0.95
MANHATTAN = 40.70, -74.02, 40.80, -73.93
"""South, west, north, east."""
NEW_YORK = Cut("New York", "foursquare-nyc", 40.55, -74.28, 0.0045, 0.0059, 98, 100)
METHODS: dict[str, Uncertainty] = {
    "Fisher": FisherInformation(),
    "bootstrap": Bootstrap(replicates=60),
}


Draw = Callable[[FloatArray, int, np.random.Generator], gv.Tally]
"""The tally of so many people who follow a distribution."""


@dataclass(frozen=True)
class Scenario:
    """A truth, a way people report, and a number of people."""

    name: str
    truth: FloatArray
    draw: Draw
    people: int
    runs: int


def counted(channel: Channel) -> Draw:
    """One report of each person, counted."""

    def draw(truth: FloatArray, people: int, generator: np.random.Generator) -> gv.Tally:
        law = channel.push(truth)
        return gv.Tally(channel, generator.multinomial(people, law / law.sum()))

    return draw


def vectors(mechanism: gv.Rappor) -> Draw:
    """One bit vector of each person."""

    def draw(truth: FloatArray, people: int, generator: np.random.Generator) -> gv.Tally:
        cells = generator.choice(truth.size, people, p=truth)
        return mechanism.tally(mechanism.sample(cells, randomness=fresh(generator)))

    return draw


def together(*channels: Channel) -> Draw:
    """One report of each person through every channel."""

    def draw(truth: FloatArray, people: int, generator: np.random.Generator) -> gv.Tally:
        cells = generator.choice(truth.size, people, p=truth)
        made = [channel.sample(cells, randomness=fresh(generator)) for channel in channels]
        return JointTally(channels, np.stack(made, axis=1))

    return draw


def fresh(generator: np.random.Generator) -> gv.Randomness:
    """Randomness of its own for every sample."""
    return gv.seeded(int(generator.integers(2**62)))


def scenarios() -> Iterator[Scenario]:
    """Smooth truth, truth with empty cells, skewed truth; blurring and scattering channels."""
    line = gv.Line(20)
    positions = np.arange(20)
    truths = {
        "smooth": np.exp(-((positions - 9.5) ** 2) / 20),
        "block": ((positions >= 4) & (positions < 8)) + 0.0,
        "skewed": np.exp(-positions / 4),
    }
    channels = {
        "geometric 0.5": gv.LinearGeometric(line, epsilon_per_unit=0.5),
        "geometric 1": gv.LinearGeometric(line, epsilon_per_unit=1.0),
        "response 1": gv.RandomizedResponse(line, epsilon=1.0),
        "response 3": gv.RandomizedResponse(line, epsilon=3.0),
    }
    for truth_name, weights in truths.items():
        for channel_name, channel in channels.items():
            for people in (500, 5_000, 50_000) if truth_name == "block" else (500, 5_000):
                name = f"{truth_name}, {channel_name}"
                yield Scenario(name, weights / weights.sum(), counted(channel), people, runs=16)
    yield from city()
    yield from seen_only()
    yield from few_people()
    yield from very_many_people()
    yield from cities()
    yield from people_at_positions()
    yield from noise_on_places()


def city() -> Iterator[Scenario]:
    """A small city of 8 × 10 cells: three crowds, a third of the cells empty."""
    grid = gv.Grid(rows=8, columns=10, cell_km=1.0)
    weights = np.zeros(80)
    for centre, size in ((23, 3.0), (57, 2.0), (9, 1.0)):
        weights += size * np.exp(-grid.distances_from_km(centre) / 1.2)
    weights[weights < np.quantile(weights, 1 / 3)] = 0.0
    for epsilon in (1.0, 2.0):
        channel = gv.PlanarGeometric(grid, epsilon_per_km=epsilon)
        for people in (1_000, 10_000):
            name = f"city, planar geometric {epsilon:g}"
            yield Scenario(name, weights / weights.sum(), counted(channel), people, runs=10)


def seen_only() -> Iterator[Scenario]:
    """Tallies that hold only what was seen: RAPPOR, and two reports of each person."""
    line = gv.Line(5)
    first, second = (gv.RandomizedResponse(line, epsilon=e) for e in (1.5, 1.0))
    draws = {
        "RAPPOR 3": vectors(gv.Rappor(line, epsilon=3.0)),
        "joint responses 1.5, 1": together(first, second),
    }
    truth = np.array([0.5, 0.5, 0.0, 0.0, 0.0])
    for name, draw in draws.items():
        for people in (20, 100, 1_000):
            yield Scenario(f"halves, {name}", truth, draw, people, runs=200)


def few_people() -> Iterator[Scenario]:
    """The map of README: 3,000 people around the middle of Paris, a promise between positions."""
    grid = gv.Grid.from_box(south=48.82, west=2.28, north=48.89, east=2.41, cell_km=0.5)
    across, up = (grid.centres - grid.centres.mean(axis=0)).T
    weights = np.exp(-((across / 1.46) ** 2 + (up / 1.33) ** 2) / 2)
    law = gv.elastic(grid, epsilon_per_km=2.0, camouflage=0.0)
    yield Scenario("few people", weights / weights.sum(), counted(law), 3_000, runs=20)


def very_many_people() -> Iterator[Scenario]:
    """A small city of 6 × 6 cells, the promise between positions, all people of a cell at one place in it."""
    grid = gv.Grid(rows=6, columns=6, cell_km=1.0)
    away_km = grid.distances_from_km(14), grid.distances_from_km(27)
    weights = 0.02 + np.exp(-(away_km[0] ** 2) / 3) + 0.6 * np.exp(-(away_km[1] ** 2))
    for epsilon in (0.5, 0.75, 1.0):
        law = gv.elastic(grid, epsilon_per_km=epsilon, camouflage=0.0, between="positions")
        for people in (10_000, 100_000, 1_000_000):
            name = f"very many at one place, {epsilon:g}"
            yield Scenario(name, weights / weights.sum(), at_one_place(law), people, runs=20)


def at_one_place(law: Channel) -> Draw:
    """One report of each person, all of a cell at one of its places, drawn anew every time."""
    places = law.places(3)
    assert places is not None
    each = [np.flatnonzero(places.cell == cell) for cell in range(law.space.size)]

    def draw(truth: FloatArray, people: int, generator: np.random.Generator) -> gv.Tally:
        crowds = np.zeros(places.cell.size)
        crowds[[generator.choice(some) for some in each]] = truth
        reports = np.maximum(places._push(crowds), 0.0)
        return gv.Tally(law, generator.multinomial(people, reports / reports.sum()))

    return draw


def cities() -> Iterator[Scenario]:
    """Check-ins as the truth, cells of half a kilometre, ε per cell; in New York 9,800 cells."""
    try:
        places = [load_city(cut, DataFolder()) for cut in (PARIS, SAN_FRANCISCO, NEW_YORK)]
    except MissingData as missing:
        print(missing)
        return
    for place in places:
        large = place.grid.size > 1_000
        channels: dict[str, Channel] = {
            f"planar geometric {epsilon:g}": gv.PlanarGeometric(place.grid, epsilon_per_km=epsilon)
            for epsilon in (0.5, 1.0, 2.0)
        }
        channels["planar Laplace 1"] = gv.PlanarLaplace(place.grid, epsilon_per_km=1.0)
        channels["exponential 1"] = gv.Exponential(place.grid, epsilon_per_km=1.0)
        believed = 0.9 * place.truth + 0.1 / place.grid.size
        channels["elastic, β = 1"] = gv.Elastic(place.grid, beta_per_km=1.0, weights=believed)
        for name, channel in channels.items():
            yield Scenario(
                f"{place.name}, {name}",
                place.truth,
                counted(channel),
                place.people.size,
                runs=1 if large else 6,
            )


def people_at_positions() -> Iterator[Scenario]:
    """The law between positions, people at the places of check-ins, evenly in their cells, or all people of a
    cell at one place in it."""
    for published in CAMPAIGNS.values():
        try:
            real = Positions.of(published)
        except MissingData as missing:
            print(missing)
            return
        grid = real.grid()
        crowds = {
            "at their places": real,
            "evenly": real.spread_evenly(),
            "at one place": real.at_one_place(),
        }
        for epsilon in (1.0, 2.0, 4.0):
            law = gv.elastic(grid, epsilon_per_km=epsilon, camouflage=0.0, between="positions")
            assert isinstance(law, PositionalElastic)
            for name, crowd in crowds.items():
                yield Scenario(
                    f"positions, {published.cut.name} {epsilon:g}, {name}",
                    crowd.truth,
                    standing(crowd, law),
                    len(crowd.places),
                    runs=6,
                )


def standing(crowd: Positions, law: PositionalElastic) -> Draw:
    """People drawn from a crowd, each reporting from where they stand."""

    def draw(truth: FloatArray, people: int, generator: np.random.Generator) -> gv.Tally:
        chosen = generator.integers(len(crowd.places), size=people)
        assert isinstance(law.space, gv.Grid)
        places = crowd.in_plane(law.space, chosen)
        return law.tally(law.sample_at_km(places, randomness=fresh(generator)))

    return draw


def noise_on_places() -> Iterator[Scenario]:
    """Noise on real places, counted in cells of half a kilometre: the law of people in the centres of their
    cells, and of people anywhere in them. A few crowds, evenly in their cells; or at check-ins."""
    noise = gv.ContinuousLaplace(epsilon_per_km=4.0)
    south, west, north, east = MANHATTAN
    grid = gv.Grid.from_box(south=south, west=west, north=north, east=east, cell_km=0.5)
    generator = np.random.default_rng(3)
    crowds = generator.choice(grid.size, size=100_000, p=generator.dirichlet([0.05] * grid.size))
    within = generator.random((crowds.size, 2)) - 0.5
    places = {"crowds": grid.plane.to_latlng(grid.centres[crowds] + grid.cell_km * within)}
    try:
        points = DataFolder().check_ins(NEW_YORK.file)
        inside = grid.inside(lat=points.lat, lng=points.lng)
        places["check-ins"] = points.lat[inside], points.lng[inside]
    except MissingData as missing:
        print(missing)
    for name, (lat, lng) in places.items():
        truth = np.bincount(grid.locate(lat=lat, lng=lng), minlength=grid.size) / len(lat)
        for law, spread in (("centres", False), ("spread", True)):
            draw = noisy_points(noise, grid, lat, lng, spread=spread)
            yield Scenario(f"noise on {name}, {law}", truth, draw, 40_000, runs=6)


def noisy_points(
    noise: gv.ContinuousLaplace, grid: gv.Grid, lat: FloatArray, lng: FloatArray, *, spread: bool
) -> Draw:
    """The noisy places of people, counted in cells."""
    channel = noise.on(grid, spread=spread)

    def draw(truth: FloatArray, people: int, generator: np.random.Generator) -> gv.Tally:
        chosen = generator.integers(len(lat), size=people)
        noisy = noise.sample_latlng(lat=lat[chosen], lng=lng[chosen], randomness=fresh(generator))
        return channel.tally(grid.locate(lat=noisy[0], lng=noisy[1], outside="clamp"))

    return draw


@dataclass
class Score:
    """Hits and widths of one method in one scenario."""

    cells: list[BoolArray] = field(default_factory=list)
    regions: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    off: list[float] = field(default_factory=list)

    def add(self, estimate: Estimate, truth: FloatArray) -> None:
        """One more run."""
        low, high = estimate.interval(LEVEL)
        self.cells.append((low <= truth + 1e-12) & (truth <= high + 1e-12))
        region = np.arange(truth.size // 3)
        first, last = estimate.region(region).interval(LEVEL)
        self.regions.append(bool(first <= truth[region].sum() <= last))
        self.widths.append(float((high - low)[truth > 0].mean()))
        low, high = replace(estimate.errors, nearby=None).interval(LEVEL)
        self.plain.append(float((high - low)[truth > 0].mean()))
        self.off.append(gv.total_variation(estimate.distribution, truth))


def measure(scenario: Scenario, methods: Sequence[str]) -> tuple[dict[str, Score], int]:
    """The score of every method, on the same runs, and the median number of steps."""
    generator = np.random.default_rng(1)
    scores = {name: Score() for name in methods}
    steps = []
    for _ in range(scenario.runs):
        tally = scenario.draw(scenario.truth, scenario.people, generator)
        steps.append(IterativeBayesianUpdate().fit(tally).steps)
        for name in methods:
            estimator = IterativeBayesianUpdate(uncertainty=METHODS[name])
            scores[name].add(estimator.fit(tally), scenario.truth)
    return scores, int(np.median(steps))


def main(words: list[str]) -> None:
    """Print the table for every scenario named, or all, and the summary for every method."""
    methods = [name for name in METHODS if name in words] or list(METHODS)
    words = [word for word in words if word not in METHODS]
    summary: dict[str, list[tuple[float, float, float]]] = {name: [] for name in methods}
    print(f"{'truth, channel':31} {'people':>6} {'method':>9} {'steps':>5}  ", end="")
    print(" cells   mass  worst occup.  empty region  width  plain   off")
    for scenario in scenarios():
        if words and not any(word in scenario.name for word in words):
            continue
        scores, steps = measure(scenario, methods)
        for name, score in scores.items():
            held, region = np.mean(score.cells, axis=0), float(np.mean(score.regions))
            mass = float(held @ scenario.truth)
            summary[name].append((float(held.mean()), mass, region))
            empty = held[scenario.truth == 0]
            print(
                f"{scenario.name:31} {scenario.people:6d} {name:>9} {steps:5d}  {held.mean():6.3f} "
                f"{mass:6.3f} {held.min():6.3f} {held[scenario.truth > 0].mean():6.3f} "
                f"{f'{empty.mean():.3f}' if empty.size else '–':>6} {region:6.3f} "
                f"{np.mean(score.widths):6.4f} {np.mean(score.plain):6.4f} {np.mean(score.off):5.3f}",
                flush=True,
            )
    for name, rows in summary.items():
        if not rows:
            continue
        cells, mass, region = np.array(rows).T
        print(
            f"{name}: mean over the scenarios (least) — cells {cells.mean():.3f} ({cells.min():.3f}), "
            f"mass {mass.mean():.3f} ({mass.min():.3f}), region {region.mean():.3f} ({region.min():.3f})"
        )


if __name__ == "__main__":
    began = time.perf_counter()
    main(sys.argv[1:])
    print(f"{time.perf_counter() - began:.0f} s")
