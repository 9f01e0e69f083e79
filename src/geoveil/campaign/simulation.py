"""Simulated campaigns: a population goes through the rounds, and the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np

from geoveil import arrays
from geoveil.arrays import ArrayLike, FloatArray, IntArray
from geoveil.campaign.campaign import Campaign
from geoveil.campaign.rounds import counted
from geoveil.campaign.rules import PromiseRule
from geoveil.channel.channel import Channel, Tally
from geoveil.errors import InvalidInput
from geoveil.estimate.fitted import Observations
from geoveil.estimate.objective import Objective, em_path
from geoveil.estimate.stopping import Progress
from geoveil.measure import (
    check_transport,
    earth_movers_distance_km,
    mean_distance_km,
    mutual_information_bits,
)
from geoveil.position.positional import PositionalElastic
from geoveil.randomness import seeded
from geoveil.space.space import Space

_HINDSIGHT_STEPS = 400


@dataclass(frozen=True)
class Crowd:
    """Who reports when.

    ``everybody="once"`` deals the people into disjoint rounds; ``"each round"`` lets all of them report
    in every round, which costs each of them that many promises. ``churn`` is the share of people who stay
    away from a round; ``fake_share`` is the share of all reports that are fake, all of the report
    ``fake_report``. ``people`` are cells; a mechanism between positions draws from ``positions_km`` in the
    plane of the space where they are given, else from anywhere in the cell. ``choices`` are the shares of
    people who choose each promise, the strongest first; all the same where it is empty. Fakes do likewise.
    """

    people: IntArray
    everybody: str = "once"
    churn: float = 0.0
    fake_share: float = 0.0
    fake_report: int = 0
    positions_km: FloatArray | None = None
    choices: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.choices:
            arrays.distribution("choices", self.choices, len(self.choices))
        if self.positions_km is not None and self.positions_km.shape != (len(self.people), 2):
            raise InvalidInput(
                f"positions_km (shape {self.positions_km.shape}) must have a row for each of "
                f"{len(self.people)} people, east and north"
            )
        if self.everybody not in ("once", "each round"):
            raise InvalidInput(f"everybody ({self.everybody!r}) must be 'once' or 'each round'")
        for name in ("churn", "fake_share"):
            if not 0.0 <= arrays.finite(name, getattr(self, name)) < 1.0:
                raise InvalidInput(f"{name} ({getattr(self, name)!r}) must lie in [0, 1)")

    def rounds(self, number: int, generator: np.random.Generator) -> Iterator[IntArray]:
        """Which of the people report, round by round."""
        order = generator.permutation(len(self.people))
        parts = np.array_split(order, number) if self.everybody == "once" else [order] * number
        for part in parts:
            yield part[generator.random(part.size) >= self.churn]

    def chosen(self, number: int, promises: int, generator: np.random.Generator) -> IntArray:
        """Which of so many promises each of some people chooses."""
        if promises == 1:
            return np.zeros(number, dtype=np.int64)
        if self.choices and len(self.choices) != promises:
            raise InvalidInput(
                f"choices ({len(self.choices)}) must be one share for each of {promises} promises"
            )
        shares = np.array(self.choices) if self.choices else arrays.uniform(promises)
        return generator.choice(promises, size=number, p=shares / shares.sum())

    def with_fakes(self, honest: Tally) -> Tally:
        """Honest reports, and the fake ones that go with so many."""
        fakes = round(honest.total * self.fake_share / (1 - self.fake_share))
        return honest + honest.channel.tally(np.full(fakes, self.fake_report)) if fakes else honest

    def counts(self, space: Space) -> IntArray:
        """How many people are in each cell."""
        people = arrays.indices("people", self.people, space.size)
        return np.bincount(people, minlength=space.size)

    def collected(
        self, campaign: Campaign, *, rounds: int, seed: int
    ) -> Iterator[tuple[list[Tally], IntArray]]:
        """What comes back in each round, and where those are who reported in it."""
        people, size = self.people, campaign.space.size
        generator = np.random.default_rng(seed)
        for index, everybody in enumerate(self.rounds(rounds, generator)):
            mechanisms, tallies = list(campaign.mechanisms.values()), []
            source = seeded(seed * 1_000_003 + index)
            chosen = self.chosen(everybody.size, len(mechanisms), generator)
            for level, mechanism in enumerate(mechanisms):
                who = everybody[chosen == level]
                if self.positions_km is not None and isinstance(mechanism, PositionalElastic):
                    reports = mechanism.sample_at_km(self.positions_km[who], randomness=source)
                else:
                    reports = mechanism.sample(people[who], randomness=source)
                tallies.append(self.with_fakes(mechanism.tally(reports)))
            yield tallies, np.bincount(people[everybody], minlength=size)


class Population(Protocol):
    """People who report round by round: a :class:`Crowd`, or the rows of a file."""

    def counts(self, space: Space) -> IntArray:
        """How many people are in each cell."""

    def collected(
        self, campaign: Campaign, *, rounds: int, seed: int
    ) -> Iterator[tuple[list[Tally], IntArray]]:
        """What comes back in each round, and where those are who reported in it.

        A round is drawn when it is asked for, under the mechanisms that the campaign has then.
        """


@dataclass(frozen=True)
class RoundResult:
    """One round of a simulated campaign, seen by somebody who knows the truth."""

    number: int
    reports: int
    error_km: float
    """Earth mover's distance of the estimate from the truth."""
    floor_km: float
    """The same for exact counts of everybody who has reported so far: no privacy, the sampling error."""
    hindsight_km: float | None
    """The same for the stop that would have been best, had the truth been known."""
    mean_distance_km: float
    leakage_bits: float
    steps: int
    distribution: FloatArray


@dataclass(frozen=True)
class Simulation:
    """All rounds of a simulated campaign and the truth it was to find."""

    space: Space
    truth: FloatArray
    rounds: tuple[RoundResult, ...]
    campaign: Campaign

    @property
    def start_km(self) -> float:
        """The earth mover's distance of knowing nothing: the uniform distribution."""
        return earth_movers_distance_km(arrays.uniform(self.space.size), self.truth, self.space)


@arrays.one_blas_thread()
def simulate(
    campaign: Campaign,
    crowd: Population,
    *,
    rounds: int,
    seed: int,
    hindsight: bool = False,
    ends: bool = False,
    progress: Progress | None = None,
) -> Simulation:
    """Run a population through the rounds of a campaign, with seeded randomness.

    The truth is the distribution of all people of the crowd. With ``ends`` the campaign ends with the last
    round: no mechanism is designed that nobody will use. ``hindsight`` also finds the best stop
    of the update on the pooled rounds, which costs an earth mover's distance at some 25 step counts;
    it says nothing about a guarded campaign or the paper's rule, which have none.
    """
    arrays.instance("campaign", campaign, Campaign, "a campaign, such as gv.Campaign(grid, …)")
    arrays.able(
        "crowd", crowd, "collected", "people, such as geoveil.campaign.simulation.Crowd(cells)"
    )
    check_transport(campaign.space)
    number = arrays.count("rounds", rounds)
    arrays.checked_seed(seed)
    tell = arrays.teller(progress)
    everybody = crowd.counts(campaign.space)
    truth = everybody / max(1, int(everybody.sum()))
    reporters = np.zeros(campaign.space.size)
    results = []
    collected = crowd.collected(campaign, rounds=number, seed=seed)
    for round_number, (tallies, reported) in enumerate(collected, start=1):
        for tally in tallies:
            campaign.receive(tally)
        reporters = reporters + reported
        if campaign.close_round(last=ends and round_number == number) is not None:
            results.append(_result(campaign, truth, reporters, hindsight=hindsight))
        tell(round_number, number)
    return Simulation(campaign.space, truth, tuple(results), campaign)


def _result(
    campaign: Campaign, truth: FloatArray, reporters: FloatArray, *, hindsight: bool
) -> RoundResult:
    space, believed, last = campaign.space, campaign.distribution, campaign.rounds[-1]

    def mean(measure: Callable[[Channel, FloatArray], float]) -> float:
        """Over the reports of the round, whichever promise they were made under."""
        return sum(measure(t.channel, truth) * t.total for t in last.counted) / last.total

    plain = isinstance(campaign.rule, PromiseRule) and not campaign.rule.guarded
    return RoundResult(
        number=last.number,
        reports=sum(round_.total for round_ in campaign.rounds),
        error_km=earth_movers_distance_km(believed, truth, space),
        floor_km=earth_movers_distance_km(reporters / reporters.sum(), truth, space),
        hindsight_km=best_in_hindsight_km(campaign, truth) if hindsight and plain else None,
        mean_distance_km=mean(mean_distance_km),
        leakage_bits=mean(mutual_information_bits),
        steps=campaign.estimate.steps,
        distribution=believed,
    )


def best_in_hindsight_km(campaign: Campaign, truth: ArrayLike) -> float:
    """The smallest error over the stops of the update on all rounds, had the truth been known."""
    observations = Observations(counted(campaign.rounds))
    objective = Objective(observations.operator, observations.counts)
    path = em_path(objective, arrays.uniform(campaign.space.size))
    steps = set(np.unique(np.geomspace(1, _HINDSIGHT_STEPS, 40).astype(int)).tolist())
    return min(
        earth_movers_distance_km(point.theta, truth, campaign.space)
        for step, point in enumerate(islice(path, _HINDSIGHT_STEPS + 1))
        if step in steps
    )
