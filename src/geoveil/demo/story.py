"""The story: people report in rounds, the promise is checked, the map comes back sharper each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.audit import AuditReport, Certificate, audit, certify
from geoveil.channel.base import Channel
from geoveil.channel.words import NEARBY_KM, spend_in_words
from geoveil.demo.city import City, simulated_city
from geoveil.demo.collector import CollectorFailed, LocalCollector
from geoveil.demo.participants import Participants
from geoveil.errors import GeoveilError
from geoveil.estimate import Estimate, IterativeBayesianUpdate
from geoveil.measure.information import mutual_information_bits
from geoveil.measure.transport import earth_movers_distance_km
from geoveil.randomness import SYSTEM, Randomness
from geoveil.report.wire import MechanismDocument


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
    released: FloatArray
    """The map that the collector released."""


@dataclass(frozen=True)
class Story:
    """Everything that happened, from the true places to the reconstructed map."""

    city: City
    cells: IntArray
    """The true cell of everybody, in the order of the reports."""
    reports: IntArray
    documents: tuple[MechanismDocument, ...]
    """What the collector published, round by round."""
    estimate: Estimate
    """From all rounds, made again from the same reports: the released map, with its error bars."""
    audit: AuditReport
    rounds: tuple[RoundStory, ...]
    devices: int
    """How many people reported through a device with a ledger of its own."""
    problem: str = ""
    """What ended the story before its last round; the rounds before it are all here."""

    @property
    def mechanism(self) -> Channel:
        """The mechanism of the last round."""
        return self.documents[-1].mechanism

    @property
    def epsilon_per_km(self) -> float:
        """The promise, the same in every round."""
        return self.documents[-1].epsilon_per_km

    @property
    def promise(self) -> str:
        """What a report tells about two people close to each other, in words."""
        return self.mechanism.explain(NEARBY_KM)

    @property
    def spent(self) -> str:
        """What taking part has cost everybody, in words: each reports once."""
        return spend_in_words(self.documents[-1].mechanism.guarantee, 1)

    @property
    def certificate(self) -> Certificate:
        """The weakest certificate of all rounds."""
        return max((each.certificate for each in self.rounds), key=lambda c: c.epsilon_per_km)

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
        """How far a report was from the cell of its person, on average."""
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
    collector: LocalCollector,
    *,
    people: int = 100_000,
    epsilon_per_km: float = 2.0,
    camouflage: float = 0.5,
    rounds: int = 5,
    seed: int = 7,
    randomness: Randomness = SYSTEM,
    stage: Callable[[str], None] = lambda words: None,
) -> Story:
    """Simulate a city and collect it in rounds through a running collector, everybody reporting once.

    Every round publishes a document at the promise and the dial; its estimate shapes the next one. In
    each round some people report through the whole :class:`~geoveil.client.Device`, ledger included; the
    others check the document and draw with the same code and send their reports together. ``seed`` makes
    the city; the noise comes from the operating system unless ``randomness`` is given. ``stage`` hears
    what happens next, for progress. A collector that fails ends the story with the rounds finished till
    then; ``problem`` says so.
    """
    stage("simulating a city")
    city = simulated_city(people=people, seed=seed)
    link = collector.campaign(
        city.grid, epsilon_per_km=epsilon_per_km, camouflage=camouflage, rounds=rounds
    )
    crowd = Participants(collector, link, epsilon_per_km, randomness)
    checked: AuditReport | None = None
    told: list[RoundStory] = []
    tallies, reports, documents, problem = [], [], [], ""
    for number, people_now in enumerate(np.array_split(np.arange(people), rounds), start=1):
        stage(f"round {number} of {rounds}")
        try:
            current = crowd.mechanism()
            channel = current.document.mechanism
            checked = checked or audit(channel, randomness=randomness)
            made = crowd.report(current, city.lat[people_now], city.lng[people_now])
            released = collector.close_round(current.document.campaign, number)
        except (GeoveilError, OSError) as error:
            if not told:
                raise
            problem = f"round {number} of {rounds} failed ({error})"
            break
        tallies.append(channel.tally(made))
        reports.append(made)
        documents.append(current.document)
        told.append(_told(city, current.document, city.cells[people_now], made, released))
    assert checked is not None
    estimate = IterativeBayesianUpdate().fit(tallies)
    if not np.allclose(estimate.distribution, told[-1].released, atol=1e-9):
        raise CollectorFailed("the released map must be the one that the reports give")
    made = np.concatenate(reports)
    return Story(
        city, city.cells[: made.size], made, tuple(documents), estimate, checked,
        tuple(told), crowd.devices, problem,
    )  # fmt: skip


def _told(
    city: City, document: MechanismDocument, cells: IntArray, made: IntArray, released: FloatArray
) -> RoundStory:
    return RoundStory(
        document.round,
        certify(document.mechanism),
        float(city.grid.distance_km(cells, made).mean()),
        mutual_information_bits(document.mechanism, city.distribution),
        earth_movers_distance_km(city.distribution, released, city.grid),
        released,
    )
