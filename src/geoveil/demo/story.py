"""The story: people report in rounds to a real collector, and the map comes back."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.guarantee import BetweenPositions
from geoveil.channel.words import NEARBY_KM, explain, spend_in_words
from geoveil.client import Device, Patience
from geoveil.client.collector import Collector, check_promise
from geoveil.client.network import Address, Network
from geoveil.demo.city import City, simulated_city
from geoveil.document.wire import MechanismDocument, report_texts
from geoveil.errors import GeoveilError
from geoveil.randomness import SYSTEM, Randomness
from geoveil.verify.auditor import AuditReport, audit

_STOP_S = 60.0
"""How long a collector that was told to stop may take before it is killed."""
_POLL_S = 0.2
_LOOKS = 25
"""After so many it is also asked whether the estimate failed: asking takes time from making it."""
_ATTEMPTS = 3
"""So many failed estimates of one round end the wait for it; a slow one never does."""
CITY_NAME = "A simulated city"
_DIRECTLY = build_opener(ProxyHandler({}))  # a proxy could not reach this machine


class CollectorFailed(GeoveilError):
    """The collector did not start, or did not do what it was asked."""


class Released(NamedTuple):
    """What a collector says when a round has closed."""

    distribution: FloatArray = np.zeros(0)
    """The share of every cell."""
    rounds: tuple[int, ...] = ()
    """The rounds that it is made from."""


class LocalCollector:
    """A server process over a fresh database in a temporary folder, and its operator's hand.

    What it could not do goes into the file ``log``, which is there only then; without one, to the terminal.
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._folder = tempfile.TemporaryDirectory(prefix="geoveil-demo-")
        self.token = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.pages = False
        """Whether browsers get pages there."""

    @property
    def folder(self) -> Path:
        """Where the database is, and the ledgers of the simulated devices."""
        return Path(self._folder.name)

    def __enter__(self) -> LocalCollector:
        others = {
            name: text for name, text in os.environ.items() if not name.startswith("GEOVEIL_")
        }
        database = f"sqlite:///{self.folder / 'collector.db'}"
        with nullcontext() if self._log is None else self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "geoveil", "serve", "--json", "--port=0",
                 "--no-limit-loopback", "--tick-s=0.1", "--log-level=error"],
                env={**others, "GEOVEIL_DATABASE": database, "GEOVEIL_OPERATOR_TOKEN": self.token},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )  # fmt: skip
        text = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:  # the announcement, then nothing
            text += line
            if line.rstrip() == "}":
                announced = json.loads(text)
                self.url, self.pages = str(announced["url"]), bool(announced["pages"])
                return self
        self._process.wait()
        raise CollectorFailed(f"the collector did not start; {self._why}")

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
        if self._log is not None and not self.troubled:
            self._log.unlink(missing_ok=True)
        self._folder.cleanup()

    @property
    def troubled(self) -> bool:
        """Whether there was anything that it could not do, or not in time."""
        return self._log is not None and self._log.exists() and self._log.stat().st_size > 0

    @property
    def _why(self) -> str:
        return f"{self._log if self.troubled else 'geoveil serve'} may say why"

    # -- what an operator does -----------------------------------------------------------------

    def campaign(
        self, grid: gv.Grid, *, epsilon_per_km: float, camouflage: float, rounds: int | None
    ) -> str:
        """Create a campaign that closes its rounds by hand, so many or (``None``) no end; its link."""
        assert grid.box is not None
        settings = {
            "name": CITY_NAME, "box": list(grid.box), "cell_km": grid.cell_km,
            "epsilon_per_km": epsilon_per_km, "camouflage": camouflage, "rounds": rounds,
            "minimum_reports": 10,
        }  # fmt: skip
        return str(self.call("/api/campaigns", settings)["link"])

    def close_round(self, campaign: str, number: int) -> Released:
        """Close the open round and wait for its estimate, however long."""
        self.call(f"/api/campaigns/{campaign}/rounds", {})
        path = f"/api/campaigns/{campaign}/rounds/{number}/estimate"
        looks = 0
        while True:
            looks += 1
            try:
                estimate = self.call(path)
                used = tuple(entry["round"] for entry in estimate["rounds"])
                return Released(np.array(estimate["distribution"]), used)
            except HTTPError as answer:
                answer.close()
                if answer.code != 404:
                    raise
            if looks % _LOOKS == 0 and self._failed_estimates() >= _ATTEMPTS:
                failed = f"the estimate of round {number} failed {_ATTEMPTS} times"
                raise CollectorFailed(f"{failed}; {self._why}")
            self.pause(_POLL_S)

    def reports(self, campaign: str) -> int:
        """How many reports were counted so far: a visitor may have taken part."""
        return int(self.call(f"/api/campaigns/{campaign}")["reports_counted"]["all"])

    def _failed_estimates(self) -> int:
        """How often the collector could not make an estimate, by its own count."""
        failed = r'^geoveil_estimates_total{.*"failed"} (\d+)'
        return int(next(iter(re.findall(failed, self._text("/metrics"), re.M)), 0))

    def call(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request as the operator, waited for while the collector lives; the JSON that comes back."""
        values: dict[str, Any] = json.loads(self._text(path, body))
        return values

    def _text(self, path: str, body: dict[str, Any] | None = None) -> str:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with _DIRECTLY.open(Request(self.url + path, content, headers)) as answer:
            return str(answer.read(), "utf-8")

    def pause(self, seconds: float) -> None:
        """Wait; a slow machine is waited for, a collector that has ended is not."""
        if self._process is not None and self._process.poll() is not None:
            raise CollectorFailed(f"the collector ended; {self._why}")
        time.sleep(seconds)


# --- The people of the story: some with a whole device each, the others with its checks and its sampler

DEVICES_A_ROUND = 20
_TOGETHER = 1000
_ANSWER_BYTES = 1 << 20
_REQUEST_S = 600.0
"""For one request: the machine may be slow and the collector runs on it too."""


class Participants:
    """Everybody who takes part in one campaign."""

    def __init__(
        self,
        collector: LocalCollector,
        link: str,
        max_epsilon_per_km: float,
        randomness: Randomness,
    ) -> None:
        self._folder = collector.folder
        self._link = link
        self._limit = max_epsilon_per_km
        self._randomness = randomness
        self._address = Address.of(link)
        self._network = Network(self._address, timeout_s=_REQUEST_S)
        self._patience = Patience(attempts=12, total_s=2 * _REQUEST_S, sleep=collector.pause)
        self._collector = Collector(self._address, self._network, self._patience)
        self.devices = 0

    def mechanism(self) -> MechanismDocument:
        """The current document, after the checks of a device."""
        document = self._collector.mechanism(max_epsilon_per_km=self._limit, now_s=time.time())
        check_promise(document)
        return document

    def report(self, current: MechanismDocument, lat: FloatArray, lng: FloatArray) -> IntArray:
        """Everybody at these places reports once; what they reported."""
        alone = min(DEVICES_A_ROUND, lat.size)
        singly = [self._device_report(float(lat[i]), float(lng[i])) for i in range(alone)]
        reports = current.mechanism.sample_at(
            lat=lat[alone:], lng=lng[alone:], randomness=self._randomness
        )
        texts = report_texts(current, reports)
        for start in range(0, len(texts), _TOGETHER):
            self._send(texts[start : start + _TOGETHER])
        return np.concatenate([np.array(singly, dtype=np.int64), reports])

    def _device_report(self, lat: float, lng: float) -> int:
        self.devices += 1
        device = Device(
            self._link,
            max_epsilon_per_km=self._limit,
            budget_per_km=self._limit,
            ledger=self._folder / f"ledger-{self.devices}.db",
            randomness=self._randomness,
            transport=self._network,
            patience=self._patience,
        )
        return device.report(lat=lat, lng=lng).cell

    def _send(self, texts: list[bytes]) -> None:
        """Hand reports over together, again while the collector is busy: an id is counted once."""
        path, body = self._address.path("/reports"), b'{"reports":[%s]}' % b",".join(texts)
        answer = self._patience.answer(lambda: self._network.post(path, body, limit=_ANSWER_BYTES))
        if answer is None or answer.status != 200:
            raise CollectorFailed("the collector must take the reports of the story")
        results = json.loads(answer.body)["results"]
        if sum(result["status"] == "counted" for result in results) != len(texts):
            raise CollectorFailed("the collector must count every report of the story")


# --- The story: people report in rounds, the promise is checked, the map comes back sharper each time


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
    certificate: gv.Certificate
    mean_distance_km: float
    leakage_bits: float
    estimated_error_km: float
    released: FloatArray
    """The map that the collector released."""


@dataclass(frozen=True)
class Story:
    """Everything that happened, from the true places to the reconstructed map."""

    city: City
    reports: IntArray
    """Of everybody, in the order of the city's people."""
    documents: tuple[MechanismDocument, ...]
    """What the collector published, round by round."""
    estimate: gv.Estimate
    """From the rounds that agree, made again from the same reports: the released map, with its error bars."""
    audit: AuditReport
    rounds: tuple[RoundStory, ...]
    devices: int
    """How many people reported through a device with a ledger of its own."""
    problem: str = ""
    """What ended the story before its last round; the rounds before it are all here."""

    @property
    def mechanism(self) -> gv.PositionalElastic:
        """The mechanism of the last round."""
        return self.documents[-1].mechanism

    @property
    def epsilon_per_km(self) -> float:
        """The promise, the same in every round."""
        return self.documents[-1].epsilon_per_km

    @property
    def guarantee(self) -> BetweenPositions:
        """The promise of a report in the last round."""
        return self.documents[-1].promise

    @property
    def promise(self) -> str:
        """What a report tells about two people close to each other, in words."""
        return explain(self.guarantee, None, NEARBY_KM)

    @property
    def spent(self) -> str:
        """What taking part has cost everybody, in words: each reports once."""
        return spend_in_words(self.guarantee, 1)

    @property
    def certificate(self) -> gv.Certificate:
        """The weakest certificate of all rounds."""
        return max((story.certificate for story in self.rounds), key=lambda c: c.epsilon_per_km)

    @property
    def people(self) -> int:
        """How many reported, once each."""
        return self.reports.size

    @cached_property
    def reported(self) -> FloatArray:
        """The share of reports in every cell: what a map without estimation would show."""
        cells = self.city.grid.size
        counts = np.bincount(self.reports, minlength=cells)[:cells]  # the rim is not on the map
        return np.asarray(counts / counts.sum())

    @cached_property
    def mean_distance_km(self) -> float:
        """How far a report was from its person, on average."""
        return _mean_distance_km(self.city, self.mechanism, np.arange(self.people), self.reports)

    @cached_property
    def reported_error_km(self) -> float:
        """Earth mover's distance of the reports from the truth."""
        return gv.earth_movers_distance_km(self.city.distribution, self.reported, self.city.grid)

    @property
    def estimated_error_km(self) -> float:
        """Earth mover's distance of the last estimate from the truth."""
        return self.rounds[-1].estimated_error_km

    def districts(self) -> list[DistrictResult]:
        """Each district with its shares."""
        results, truth = [], self.city.distribution
        for place in self.city.districts:
            cells = self.city.cells_of(place)
            region = self.estimate.region(cells)
            before = float(truth[cells].sum()), float(self.reported[cells].sum())
            after = region.share, region.interval(0.95)
            results.append(DistrictResult(place.name, *before, *after))
        return results


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
    begun: Callable[[City, str], None] | None = None,
) -> Story:
    """Simulate a city and collect it in rounds through a running collector, everybody reporting once.

    Every round publishes a document at the promise and the dial; its estimate shapes the next one. In
    each round some people report through the whole :class:`~geoveil.client.Device`, ledger included; the
    others check the document and draw with the same code and send their reports together. ``seed`` makes
    the city; the noise comes from the operating system unless ``randomness`` is given. ``stage`` hears
    what happens next, for progress. A collector that fails ends the story with the rounds finished till
    then; ``problem`` says so. ``begun`` is told the city and the link as soon as people can report, and
    the campaign then goes on after the last round of the story.
    """
    stage("simulating a city")
    city = simulated_city(people=people, seed=seed)
    link = collector.campaign(
        city.grid,
        epsilon_per_km=epsilon_per_km,
        camouflage=camouflage,
        rounds=rounds if begun is None else None,
    )
    if begun is not None:
        begun(city, link)
    crowd = Participants(collector, link, epsilon_per_km, randomness)
    checked: AuditReport | None = None
    stories: list[RoundStory] = []
    tallies, reports, documents, problem, last = [], [], [], "", Released()
    for number, people_now in enumerate(np.array_split(np.arange(people), rounds), start=1):
        stage(f"round {number} of {rounds}")
        try:
            current = crowd.mechanism()
            channel = current.mechanism
            checked = checked or audit(channel, randomness=randomness)
            reported = crowd.report(current, city.lat[people_now], city.lng[people_now])
            released = collector.close_round(current.campaign, number)
        except (GeoveilError, OSError) as error:
            if not stories:
                raise
            problem = f"round {number} of {rounds} failed ({error})"
            break
        tallies.append(channel.tally(reported))
        reports.append(reported)
        documents.append(current)
        away = _mean_distance_km(city, channel, people_now, reported)
        bits = gv.mutual_information_bits(channel, city.distribution)
        missed = gv.earth_movers_distance_km(city.distribution, released.distribution, city.grid)
        shares, last = released.distribution, released
        stories.append(RoundStory(number, gv.certify(channel), away, bits, missed, shares))
    assert checked is not None
    alone = begun is None or collector.reports(documents[-1].campaign) == sum(map(len, reports))
    estimate = made_again(tallies, last, alone=alone)
    reported = np.concatenate(reports)
    return Story(
        city, reported, tuple(documents), estimate, checked, tuple(stories), crowd.devices, problem
    )


def made_again(tallies: Sequence[gv.Tally], released: Released, *, alone: bool) -> gv.Estimate:
    """The estimate from the same rounds and reports: the released one, where nobody else sent any.

    One campaign in fifty takes a round that differs by chance for people who moved, and waits with it.
    """
    estimate = gv.IterativeBayesianUpdate().fit([tallies[number - 1] for number in released.rounds])
    if alone and not np.allclose(estimate.distribution, released.distribution, atol=1e-9):
        raise CollectorFailed("the released map must be the one that the reports give")
    return estimate


def _mean_distance_km(
    city: City, mechanism: gv.PositionalElastic, people: IntArray, reported: IntArray
) -> float:
    """From where these people stand to the centre of what each reported."""
    stand = city.grid.plane.to_plane(lat=city.lat[people], lng=city.lng[people])
    away = mechanism.centres.points_km[reported] + city.grid.centres[0] - stand
    return float(np.hypot(away[:, 0], away[:, 1]).mean())
