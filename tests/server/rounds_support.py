"""What the tests of rounds share: a clock turned by hand, a small city, people who report in it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.campaign import positional_design, rounds
from geoveil.document.wire import MechanismDocument
from geoveil.server.campaigns import Campaigns
from geoveil.server.conclusion import Conclusion, Work, conclude
from geoveil.server.problem import Problem
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.server.upkeep import Upkeep
from geoveil.server.worker import Jobs
from geoveil.store import ClosingRecord, RoundRecord, Store, Upload
from store.memory import MemoryStore

BOX = (48.8286, 2.2855, 48.8798, 2.3909)
NOON = 1_750_000_000
HOUR = 3600


def raises_problem(name: str, match: str | None = None) -> Any:
    """A block that must end in this problem."""
    return pytest.raises(Problem, match=match, check=lambda problem: problem.name == name)


@dataclass
class Clock:
    """Seconds since 1970, when somebody says so."""

    now: float = NOON
    in_doubt: bool = False
    certain: bool = True
    apart_s: float = 0.0

    def __call__(self) -> float:
        return self.now

    def compare(self) -> None:
        """Nobody shares it."""


def campaign_settings(**changed: Any) -> CampaignSettings:
    """48 cells of a kilometre; by hand, from 100 reports on."""
    given: dict[str, Any] = {
        "name": "Paris", "id": "paris", "box": BOX, "cell_km": 1.0, "epsilon_per_km": 2.0,
        "minimum_round_hours": 0.0, **changed,
    }  # fmt: skip
    return CampaignSettings(**given)


def tick(campaigns: Campaigns) -> list[ClosingRecord]:
    """One look at the campaigns, by the same upkeep as before: it goes with them."""
    upkeep: Upkeep = vars(campaigns).setdefault("upkeep", Upkeep(campaigns, fault=_failed))
    return upkeep.tick()


def _failed(name: str, error: Exception) -> None:
    raise error


_CONCLUDED: dict[tuple[Any, ...], Conclusion] = {}


def concluded(work: Work) -> Conclusion:
    """What a closing leads to, found once for the same one: it takes as long as all the rest of a test.

    That it is the same each time is tested with :func:`conclude` itself.
    """
    replaced = positional_design._promising, rounds._ALARM_ROUNDS, rounds._ALARM_REPLICATES
    key = (*replaced, pickle.dumps(work))
    if key not in _CONCLUDED:
        _CONCLUDED[key] = conclude(work)
    return _CONCLUDED[key]


@dataclass
class City:
    """A campaign, its store, and people whose true cells only this class knows."""

    settings: CampaignSettings = field(default_factory=campaign_settings)
    store: Store = field(default_factory=MemoryStore)
    clock: Clock = field(default_factory=Clock)
    seed: int = 1

    def __post_init__(self) -> None:
        self.campaigns = Campaigns(self.store, clock=self.clock)
        self.campaign = self.campaigns.create(self.settings).id
        self.people = np.random.default_rng(self.seed)
        cells = self.settings.grid.size
        self.truth: FloatArray = self.people.dirichlet(np.full(cells, 0.2))
        self._sent = 0

    def report(self, number: int, under: RoundRecord | None = None) -> list[int]:
        """So many people report, under the current mechanism or an older one; the cells they sent."""
        record = under or self.campaigns.mechanism(self.campaign)
        mechanism = MechanismDocument.read(record.document, certified=True).mechanism
        at = self.people.choice(self.truth.size, size=number, p=self.truth)
        self._sent += 1
        sent = mechanism.sample(at, randomness=gv.seeded(10_000 + self._sent)).tolist()
        self.count(sent, record)
        return sent

    def count(self, cells: list[int], record: RoundRecord) -> None:
        """Keep reports as the server does."""
        ids = self.people.integers(0, 256, size=(len(cells), 16), dtype=np.uint8)
        uploads = [
            Upload(self.campaign, record.number, each.tobytes(), cell)
            for each, cell in zip(ids, cells, strict=True)
        ]
        assert all(self.store.add(uploads))

    def work(self) -> None:
        """One look at the campaigns, and the work it found, done here."""
        for work in self.due():
            assert Jobs(self.campaigns).publish(work, concluded(work))

    def due(self) -> list[Work]:
        """One look at the campaigns, and the work it found."""
        return [Jobs(self.campaigns).work(closing) for closing in tick(self.campaigns)]

    def estimated(self, number: int | None = None) -> dict[str, Any]:
        """The body of an estimate."""
        import msgspec

        made: dict[str, Any] = msgspec.json.decode(
            self.campaigns.estimate(self.campaign, number).body
        )
        return made

    def next_round(self) -> int:
        """Open the next round now, as an operator does; its number."""
        self.campaigns.change(self.campaign, next_round_now=True)
        return self.campaigns.look(self.campaign).number

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
