"""The story: people report noisily, the promise is checked, the map comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.audit import AuditReport, Certificate, audit, certify
from geoveil.channel.tally import Tally
from geoveil.demo.city import City, simulated_city
from geoveil.estimate import Estimate, IterativeBayesianUpdate
from geoveil.measure.transport import earth_movers_distance_km
from geoveil.mechanism import PlanarGeometric
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
class Story:
    """Everything that happened, from the true places to the reconstructed map."""

    city: City
    mechanism: PlanarGeometric
    table: ExactTable
    reports: IntArray
    tally: Tally
    certificate: Certificate
    audit: AuditReport
    estimate: Estimate

    @cached_property
    def reported(self) -> FloatArray:
        """The share of reports in every cell: what a map without estimation would show."""
        shares: FloatArray = self.tally.counts / self.tally.total
        return shares

    @cached_property
    def mean_distance_km(self) -> float:
        """How far a report was from its person, on average."""
        return float(self.city.grid.distance_km(self.city.cells, self.reports).mean())

    @cached_property
    def reported_error_km(self) -> float:
        """Earth mover's distance of the reports from the truth."""
        return earth_movers_distance_km(self.city.distribution, self.reported, self.city.grid)

    @cached_property
    def estimated_error_km(self) -> float:
        """Earth mover's distance of the estimate from the truth."""
        return earth_movers_distance_km(
            self.city.distribution, self.estimate.distribution, self.city.grid
        )

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
    seed: int = 7,
    randomness: Randomness = SYSTEM,
    stage: Callable[[str], None] = lambda words: None,
) -> Story:
    """Simulate a city, obfuscate it, certify and audit the mechanism, estimate the map.

    ``seed`` makes the city; the noise comes from the operating system unless ``randomness`` is given.
    ``stage`` hears what happens next, for progress.
    """
    stage("simulating a city")
    city = simulated_city(people=people, seed=seed)
    stage("building and certifying the mechanism")
    mechanism = PlanarGeometric(city.grid, epsilon_per_km=epsilon_per_km)
    table = ExactTable(mechanism)
    certificate = certify(table)
    stage("auditing the sampler")
    checked = audit(table, randomness=randomness)
    stage("everybody reports once")
    reports = np.asarray(table.sample(city.cells, randomness=randomness))
    tally = table.tally(reports)
    stage("reconstructing the map")
    estimate = IterativeBayesianUpdate().fit(tally)
    return Story(city, mechanism, table, reports, tally, certificate, checked, estimate)
