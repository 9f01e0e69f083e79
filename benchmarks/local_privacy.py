"""``python -m benchmarks.local_privacy [CITY …] [--seeds N]``: maps under local differential privacy.

Check-ins of four cities, at most 10,000 of each, report once, with an ε that holds whatever the distance:
by discs, randomised response, RAPPOR and subset selection. All are estimated by the same iterative Bayesian
update; RAPPOR and subset selection also by their unbiased counts brought to the nearest distribution, and the
better of the two stands for them. Errors are earth mover's distances from the check-ins, in cells of the
grid, means over seeds. ``python -m benchmarks local-privacy`` measures discs beside RAPPOR.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.timing import Figure
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.estimate import IterativeBayesianUpdate, RapporEstimator
from geoveil.estimate.linear import project_onto_simplex
from geoveil.measure import earth_movers_distance_km
from geoveil.mechanism import Disc, RandomizedResponse, Rappor
from geoveil.mechanism.local import BitArray
from geoveil.papers.data import (
    PARIS,
    SAN_FRANCISCO,
    Cut,
    DataFolder,
    MissingData,
    load_city,
)
from geoveil.randomness import Randomness, seeded
from geoveil.space.grid import Grid

CITIES = {
    "Paris": PARIS,
    "San Francisco": SAN_FRANCISCO,
    "Los Angeles": Cut("Los Angeles", "gowalla-los-angeles", 33.9301, -118.5354, 0.018, 0.0217, 15, 18),
    "New York": Cut("New York", "foursquare-nyc", 40.5509, -74.2748, 0.0219, 0.0289, 20, 20),
}  # fmt: skip
PROMISES = (1.0, 2.0, 3.5, 5.0)
_LIMITED = (1.0, 2.0)
_MOST = 0.65
"""The error of discs as a share of RAPPOR's, at most, at these promises."""
_PEOPLE = 10_000
_SEEDS = 2


@dataclass(frozen=True, eq=False)
class Place:
    """A city and some of the people in it."""

    grid: Grid
    people: IntArray

    @classmethod
    def of(cls, cut: Cut) -> Place:
        """At most 10,000 check-ins of a city, the same at every call."""
        city = load_city(cut, DataFolder())
        some = np.random.default_rng(1).permutation(city.people.size)[:_PEOPLE]
        return cls(city.grid, city.people[some])

    def error(self, estimate: FloatArray) -> float:
        """The earth mover's distance of an estimate from the people, in cells."""
        truth = np.bincount(self.people, minlength=self.grid.size) / self.people.size
        return earth_movers_distance_km(estimate, truth, self.grid)

    def errors(self, epsilon: float, seed: int) -> dict[str, float]:
        """By mechanism."""
        own = seeded(seed)
        discs = Disc(self.grid, epsilon=epsilon)
        response = RandomizedResponse(self.grid, epsilon=epsilon)
        bits = Rappor(self.grid, epsilon=epsilon)
        return {
            "disc": self._updated(_tally(discs, self.people, own)),
            "RAPPOR": self._rappor(_tally(bits, self.people, own)),
            "subset selection": self._subsets(bits, own),
            "randomised response": self._updated(_tally(response, self.people, own)),
        }

    def _updated(self, tally: Tally) -> float:
        return self.error(IterativeBayesianUpdate().fit(tally).distribution)

    def _rappor(self, tally: Tally) -> float:
        linear = self.error(RapporEstimator().fit(tally).distribution)
        return min(linear, self._updated(tally))

    def _subsets(self, bits: Rappor, randomness: Randomness) -> float:
        """A subset is a bit vector whose likelihood is that of RAPPOR's up to a factor of the vector."""
        size, epsilon = self.grid.size, bits.epsilon
        vectors, chosen = subsets(self.people, size, epsilon, randomness)
        tally = bits.tally(vectors)
        stays, other = subset_chances(size, chosen, epsilon)
        shares = (tally.sums / tally.total - other) / (stays - other)
        return min(self.error(project_onto_simplex(shares)), self._updated(tally))


def _tally(mechanism: Channel, people: IntArray, randomness: Randomness) -> Tally:
    return mechanism.tally(mechanism.sample(people, randomness=randomness))


def subset_chances(size: int, chosen: int, epsilon: float) -> tuple[float, float]:
    """How likely the own cell, and any other one, is in a subset of ``chosen`` cells."""
    power = math.exp(epsilon)
    stays = chosen * power / (chosen * power + size - chosen)
    return stays, stays * (chosen - 1) / (size - 1) + (1 - stays) * chosen / (size - 1)


def subsets(
    people: IntArray, size: int, epsilon: float, randomness: Randomness
) -> tuple[BitArray, int]:
    """Subset selection (Ye & Barg 2018): (people, cells) zeros and ones, and how many ones each has."""
    chosen = max(1, round(size / (1 + math.exp(epsilon))))
    stays, _ = subset_chances(size, chosen, epsilon)
    own = randomness.chance(stays, people.size)
    order = randomness.uniform(people.size * size).reshape(people.size, size)
    order[np.arange(people.size), people] = np.where(own, -1.0, 2.0)
    vectors = np.zeros((people.size, size), dtype=np.uint8)
    smallest = np.argpartition(order, chosen - 1, axis=1)[:, :chosen]
    np.put_along_axis(vectors, smallest, 1, axis=1)
    return vectors, chosen


def mean_errors(city: str, epsilon: float, seeds: int) -> dict[str, float]:
    """The mean error of every mechanism over some seeds."""
    place = Place.of(CITIES[city])
    runs = [place.errors(epsilon, seed) for seed in range(seeds)]
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def local_privacy() -> Iterator[Figure]:
    """The error of discs as a share of RAPPOR's, in every city whose data are there."""
    for city in CITIES:
        for epsilon in _LIMITED:
            try:
                errors = mean_errors(city, epsilon, _SEEDS)
            except MissingData:
                continue
            told = "; ".join(f"{name} {error:.2f}" for name, error in errors.items())
            yield Figure(
                f"map error of discs beside RAPPOR's, {city}, ε = {epsilon:g}",
                0.0,
                errors["disc"] / errors["RAPPOR"],
                "×",
                _MOST,
                f"cells: {told}",
            )


def main(given: Sequence[str] | None = None) -> int:
    """Print the errors of every mechanism as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cities", nargs="*", metavar="CITY", help=f"of {', '.join(CITIES)}")
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    asked = parser.parse_args(given)
    unknown = [city for city in asked.cities if city not in CITIES]
    if unknown:
        parser.error(f"CITY ({unknown[0]}) must be one of {', '.join(CITIES)}")
    titles: list[str] = []
    for city in asked.cities or CITIES:
        for epsilon in PROMISES:
            errors = mean_errors(city, epsilon, asked.seeds)
            if not titles:
                titles = ["city", "ε", *errors, "disc / RAPPOR"]
                print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
            cells = [city, f"{epsilon:g}", *(f"{error:.2f}" for error in errors.values())]
            print(f"| {' | '.join(cells)} | {errors['disc'] / errors['RAPPOR']:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
