"""``geoveil release --epsilon``: geometric noise on every count, for tables of any size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.cli.console import in_words
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure.distance import mean_distance_km
from geoveil.release import GeometricCounting, comparator_leakage
from geoveil.table.count_table import CountTable


@dataclass(frozen=True)
class Beside:
    """The release that leaks least at the same worst case, and geometric noise under the same prior.

    Numbers are ``None`` where they are out of reach, and ``problem`` says why.
    """

    least_bits: float | None = None
    least_distortion: float | None = None
    geometric_bits: float | None = None
    geometric_distortion: float | None = None
    problem: str = ""

    def sentence(self) -> str:
        """Both beside each other, in words."""
        if self.least_bits is None or self.least_distortion is None:
            return f"the release that leaks least is out of reach: {self.problem}"
        said = (
            "at the same worst case the release that leaks least (--multiplier) tells "
            f"{self.least_bits:.4g} bits and is {self.least_distortion:.4g} people off on average"
        )
        if self.geometric_bits is None or self.geometric_distortion is None:
            return f"{said}; what this one tells on average is out of reach"
        return (
            f"{said}; this one tells {self.geometric_bits:.4g} bits and is "
            f"{self.geometric_distortion:.4g} off"
        )


@dataclass(frozen=True)
class NoisyTable:
    """A table with geometric noise that was drawn, and all there is to say about it."""

    table: CountTable
    release: gv.GeometricRelease
    released: IntArray
    people: IntArray
    """At each timestamp."""
    beside: Beside | None

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        table, release = self.table, self.release
        beside = None if self.beside is None else vars(self.beside)
        return {
            "people": dict(zip(table.timestamps, self.people.tolist(), strict=True)),
            "places": list(table.places),
            "timestamps": list(table.timestamps),
            "epsilon": release.epsilon,
            "mean_noise": release.mean_noise,
            "beside": beside,
            "released": dict(zip(table.timestamps, self.released.tolist(), strict=True)),
        }

    def lines(self, output: str | None) -> dict[str, str | None]:
        """For people."""
        few, most = int(self.people.min()), int(self.people.max())
        people = f"{most:,}" if few == most else f"{few:,} to {most:,}"
        moments = len(self.table.timestamps)
        at = f" at {moments} timestamps" if moments > 1 else ""
        return {
            "released": f"{people} people over {len(self.table.places):,} places{at}, in {in_words(output)}",
            "noise": (
                f"moves each count by {self.release.mean_noise:.3g} people on average, before the counts are "
                "made to sum up again"
            ),
            "worst case": self.release.sentence(),
            "not hidden": "how many people there are at each timestamp, and whether somebody is among them",
            "least leakage": None if self.beside is None else self.beside.sentence(),
        }


def noisy_table(
    table: CountTable, epsilon: float, prior: FloatArray | None, randomness: gv.Randomness
) -> NoisyTable:
    """Noise on the counts of a table; beside the least leakage where there is a prior."""
    release = gv.GeometricRelease(epsilon, timestamps=len(table.timestamps))
    rows = table.counts if release.timestamps > 1 else table.counts[0]
    released = np.atleast_2d(release.sample(rows, randomness=randomness))
    people = released.sum(axis=1)
    beside = None if prior is None else least_leakage(release, table, prior)
    return NoisyTable(table, release, released, people, beside)


def least_leakage(release: gv.GeometricRelease, table: CountTable, prior: FloatArray) -> Beside:
    """What the least leakage and geometric noise come to under a prior, at the same worst case."""
    sums = table.counts.sum(axis=1)
    if np.ptp(sums) > 0:
        return Beside(problem="it needs the same number of people at every timestamp")
    moments = release.timestamps
    try:
        least = gv.CountRelease(
            people=round(float(sums[0])),
            prior=prior,
            timestamps=moments,
            multiplier=release.epsilon / (2 * math.sqrt(2) * moments),
        )
    except (TooLarge, InvalidInput) as problem:
        return Beside(problem=str(problem))
    bits, distortion = least.leakage_bits, least.distortion
    try:
        beside = [
            (
                GeometricCounting(design.law.vectors, epsilon=release.epsilon / (2 * moments)),
                design.law.probabilities,
            )
            for design in least.designs
        ]
        told = sum(comparator_leakage(channel, law).bits for channel, law in beside)
        off = sum(mean_distance_km(channel, law) for channel, law in beside)
    except (TooLarge, InvalidInput):
        return Beside(bits, distortion)
    return Beside(bits, distortion, told, off)
