"""The story: people report in rounds, the promise is checked, the map comes back sharper each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.audit import AuditReport, Certificate, audit, certify
from geoveil.channel.base import Channel
from geoveil.collect import Collection
from geoveil.demo.city import City, simulated_city
from geoveil.estimate import Estimate
from geoveil.measure.information import mutual_information_bits
from geoveil.measure.transport import earth_movers_distance_km
from geoveil.randomness import SYSTEM, Randomness
from geoveil.report.table import ExactTable


@dataclass(frozen=True)
class DistrictResult:
    """The share of one district: true, as reported, and as estimated with its interval."""

    name: str
    true_share: float
    reported_share: float
    estimated_share: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class RoundStory:
    """One round: the mechanism it published, what that cost, and how good the map was at its close."""

    number: int
    certificate: Certificate
    mean_distance_km: float
    leakage_bits: float
    estimated_error_km: float


@dataclass(frozen=True)
class Story:
    """Everything that happened, from the true places to the reconstructed map."""

    city: City
    collection: Collection
    cells: IntArray
    """The true cell of everybody, in the order of the reports."""
    reports: IntArray
    audit: AuditReport
    rounds: tuple[RoundStory, ...]

    @property
    def mechanism(self) -> Channel:
        """The mechanism of the last round."""
        return self.collection.rounds[-1].mechanism

    @property
    def epsilon_per_km(self) -> float:
        """The promise, the same in every round."""
        return float(self.collection.rule.to_dict()["epsilon_per_km"])

    @property
    def certificate(self) -> Certificate:
        """The weakest certificate of all rounds."""
        return max((each.certificate for each in self.rounds), key=lambda c: c.epsilon_per_km)

    @property
    def estimate(self) -> Estimate:
        """The estimate from all rounds."""
        return self.collection.estimate

    @property
    def people(self) -> int:
        """How many reported, once each."""
        return self.reports.size

    @cached_property
    def reported(self) -> FloatArray:
        """The share of reports in every cell: what a map without estimation would show."""
        counts = np.bincount(self.reports, minlength=self.city.grid.size)
        shares: FloatArray = counts / counts.sum()
        return shares

    @cached_property
    def mean_distance_km(self) -> float:
        """How far a report was from its person, on average."""
        return float(self.city.grid.distance_km(self.cells, self.reports).mean())

    @cached_property
    def reported_error_km(self) -> float:
        """Earth mover's distance of the reports from the truth."""
        return earth_movers_distance_km(self.city.distribution, self.reported, self.city.grid)

    @property
    def estimated_error_km(self) -> float:
        """Earth mover's distance of the last estimate from the truth."""
        return self.rounds[-1].estimated_error_km

    def districts(self) -> list[DistrictResult]:
        """Each district with its shares."""
        return [
            self._district(place.name, self.city.cells_of(place)) for place in self.city.districts
        ]

    def _district(self, name: str, cells: IntArray) -> DistrictResult:
        region = self.estimate.region(cells)
        return DistrictResult(
            name,
            float(self.city.distribution[cells].sum()),
            float(self.reported[cells].sum()),
            region.share,
            region.interval(0.95),
        )


def tell(
    *,
    people: int = 100_000,
    epsilon_per_km: float = 2.0,
    camouflage: float = 0.5,
    rounds: int = 5,
    seed: int = 7,
    randomness: Randomness = SYSTEM,
    stage: Callable[[str], None] = lambda words: None,
) -> Story:
    """Simulate a city and collect it in rounds, everybody reporting once.

    Every round publishes a mechanism at the promise and the dial, certified from the integers it
    draws with; its estimate shapes the next one. ``seed`` makes the city; the noise comes from the
    operating system unless ``randomness`` is given. ``stage`` hears what happens next, for progress.
    """
    stage("simulating a city")
    city = simulated_city(people=people, seed=seed)
    collection = Collection(city.grid, epsilon_per_km=epsilon_per_km, camouflage=camouflage)
    stage("auditing the sampler")
    checked = audit(ExactTable(collection.mechanism), randomness=randomness)
    told, reports = [], []
    for number, cells in enumerate(np.array_split(city.cells, rounds), start=1):
        stage(f"round {number} of {rounds}")
        made, result = _collect(city, collection, cells, number, randomness)
        reports.append(made)
        told.append(result)
    return Story(city, collection, city.cells, np.concatenate(reports), checked, tuple(told))


def _collect(
    city: City, collection: Collection, cells: IntArray, number: int, randomness: Randomness
) -> tuple[IntArray, RoundStory]:
    mechanism = collection.mechanism
    table = ExactTable(mechanism)
    reports = np.asarray(table.sample(cells, randomness=randomness))
    collection.receive(mechanism.tally(reports))  # the table is the mechanism to within 1e-6
    collection.close_round()
    result = RoundStory(
        number,
        certify(table),
        float(city.grid.distance_km(cells, reports).mean()),
        mutual_information_bits(mechanism, city.distribution),
        earth_movers_distance_km(city.distribution, collection.distribution, city.grid),
    )
    return reports, result
