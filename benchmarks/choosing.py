"""``python -m benchmarks.choosing [CITY] [--seeds N]``: the error of the map by the number of people.

People are drawn from the crowd of a real city, anywhere in their cells, and each reports once. The error is
the earth mover's distance in metres from the crowd of the whole city, so that even exact counts have one: who
happened to be drawn. Means over seeds; everything is seeded. Without the data of a city it is left out.

Counts of a trusted holder, and of secure aggregation, get two-sided geometric noise of e^(−ε/2) a step: who
moves from one cell to another changes two counts by one. Their estimate is the nearest distribution
(projection); so is that of randomised response and RAPPOR after inversion. The disc and ours are estimated
by EM, stopped by cross-validation. Ours promises ε per km between positions; with camouflage it is collected
in two rounds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

import geoveil as gv
from benchmarks.choices import City, cities
from geoveil.arrays import FloatArray, IntArray
from geoveil.estimate.linear import project_onto_simplex
from geoveil.papers.data import default_folder

PEOPLE = (10**3, 10**4, 10**5, 10**6)

Map = Callable[[City, int, np.random.Generator], FloatArray]
"""map(city, people, generator): the shares of cells that somebody ends up with."""


def exact(city: City, people: int, generator: np.random.Generator) -> FloatArray:
    """Counts of a holder who sees everybody's cell and publishes them as they are."""
    return _crowd(city, people, generator) / people


def noisy_counts(epsilon: float) -> Map:
    """Counts with two-sided geometric noise, ε between any two cells of one person."""

    def shares(city: City, people: int, generator: np.random.Generator) -> FloatArray:
        counts = _crowd(city, people, generator)
        stop = -np.expm1(-epsilon / 2)  # the difference of two geometric numbers is two-sided
        noise = np.subtract(*generator.geometric(stop, (2, counts.size)))
        return project_onto_simplex((counts + noise) / people)

    return shares


def reported(make: Callable[[gv.Grid], gv.Channel]) -> Map:
    """Reports of a mechanism whose reports are few enough to count, estimated by EM."""

    def shares(city: City, people: int, generator: np.random.Generator) -> FloatArray:
        tally = said(make(city.grid), city, people, generator)
        return gv.IterativeBayesianUpdate().fit(tally).distribution

    return shares


def randomized_response(epsilon: float) -> Map:
    """Randomised response, inverted: EM needs very many steps where ε is small."""

    def shares(city: City, people: int, generator: np.random.Generator) -> FloatArray:
        tally = said(gv.RandomizedResponse(city.grid, epsilon=epsilon), city, people, generator)
        return gv.RandomizedResponseEstimator(repair="project").fit(tally).distribution

    return shares


def rappor(epsilon: float) -> Map:
    """Bits of RAPPOR: the sums of bits, which are all that inversion needs, drawn at once."""

    def shares(city: City, people: int, generator: np.random.Generator) -> FloatArray:
        counts = _crowd(city, people, generator)
        bits = gv.Rappor(city.grid, epsilon=epsilon)
        ones = generator.binomial(counts, bits.keep) + generator.binomial(
            people - counts, bits.flip
        )
        return project_onto_simplex((ones / people - bits.flip) / (bits.keep - bits.flip))

    return shares


def ours(epsilon_per_km: float, camouflage: float) -> Map:
    """Two rounds, half of the people in each; the second is made for what the first found."""

    def shares(city: City, people: int, generator: np.random.Generator) -> FloatArray:
        tallies: list[gv.Tally] = []
        believed = np.full(city.grid.size, 1 / city.grid.size)
        for size in (people // 2, people - people // 2):
            mechanism = gv.elastic(
                city.grid, believed, epsilon_per_km=epsilon_per_km, camouflage=camouflage
            )
            tallies.append(said(mechanism, city, size, generator))
            believed = gv.IterativeBayesianUpdate().fit(tallies).distribution
        return believed

    return shares


def _crowd(city: City, people: int, generator: np.random.Generator) -> IntArray:
    return generator.multinomial(people, city.truth)


def said(
    mechanism: gv.Channel, city: City, people: int, generator: np.random.Generator
) -> gv.Tally:
    """What so many people report, each drawn from the crowd and reporting by themselves."""
    law = np.maximum(mechanism.push(city.truth), 0.0)
    return gv.Tally(mechanism, generator.multinomial(people, law / law.sum()))


def ways() -> dict[str, Map]:
    """Every way in the table, by what it is called there."""
    found: dict[str, Map] = {"trusted server, exact counts": exact}
    for epsilon in (1.0, 4.0):
        found[f"trusted server or secure aggregation, ε = {epsilon:g}"] = noisy_counts(epsilon)
    for epsilon in (1.0, 4.0):
        found[f"randomised response, ε = {epsilon:g}"] = randomized_response(epsilon)
        found[f"RAPPOR, ε = {epsilon:g}"] = rappor(epsilon)
        found[f"disc, ε = {epsilon:g}"] = reported(
            lambda grid, each=epsilon: gv.Disc(grid, epsilon=each)  # type: ignore[misc]
        )
        found[f"planar geometric, ε = {epsilon:g} per km"] = reported(
            partial(gv.PlanarGeometric, epsilon_per_km=epsilon)
        )
    for epsilon in (1.0, 4.0):
        name = f"ours, ε = {epsilon:g} per km, camouflage"
        found[f"{name} 0"] = reported(partial(_sharpest, epsilon_per_km=epsilon))
        found[f"{name} 0.5"] = ours(epsilon, 0.5)
    return found


@cache
def _sharpest(grid: gv.Grid, *, epsilon_per_km: float) -> gv.Channel:
    """Camouflage 0: designed for nobody in particular, so that one round is as good as several."""
    return gv.elastic(grid, epsilon_per_km=epsilon_per_km, camouflage=0.0)


def error_m(city: City, shares: FloatArray) -> float:
    """The earth mover's distance from the crowd of the city, in metres."""
    return 1000 * gv.earth_movers_distance_km(shares, city.truth, city.grid)


def table(city: City, seeds: int, only: str = "") -> Iterator[str]:
    """The errors of one city as lines of Markdown; ``only`` those ways whose name has this in it."""
    knowing = error_m(city, np.full(city.grid.size, 1 / city.grid.size))
    yield f"{city.name}, {city.grid.size} cells of 500 m; knowing nothing: {knowing:,.0f} m"
    yield ""
    yield "| error of the map (m) | " + " | ".join(f"{people:,}" for people in PEOPLE) + " |"
    yield "|---|" + "---|" * len(PEOPLE)
    for name, way in ways().items():
        if only not in name:
            continue
        print(f"{city.name}: {name} ...", file=sys.stderr)
        means = []
        for people in PEOPLE:
            drawn = [np.random.default_rng([seed, people]) for seed in range(seeds)]
            means.append(np.mean([error_m(city, way(city, people, each)) for each in drawn]))
        yield f"| {name} | " + " | ".join(f"{mean:,.0f}" for mean in means) + " |"
    yield ""


def main() -> int:
    """Print one table for each city whose data are there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choosing", description=__doc__)
    parser.add_argument("city", nargs="?", default="", help="such as gowalla-paris; else all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose name has this in it, such as ours")
    parser.add_argument("--data", type=Path, default=default_folder())
    asked = parser.parse_args()
    for city in cities(asked.data, asked.city):
        for line in table(city, asked.seeds, asked.only):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
