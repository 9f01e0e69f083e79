"""People of a file who go through the rounds of a campaign, wherever the file is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import BoolArray, IntArray
from geoveil.campaign.campaign import Campaign
from geoveil.campaign.simulation import Crowd
from geoveil.channel.channel import Channel, Tally
from geoveil.engine import part_reports
from geoveil.engine.engines import Engine
from geoveil.randomness import seeded_for
from geoveil.space import MapSpace, Space
from geoveil.space.outside import Outside, OutsideCount
from geoveil.table.locations import Locations, Reading
from geoveil.table.obfuscation import reports_at


@dataclass(frozen=True)
class Turn:
    """Which round it is, of how many, and the seed that decides who reports in it."""

    seed: int
    index: int
    rounds: int


@dataclass
class RoundCrowd(part_reports.Summand):
    """Where those who report are, and how often each report came under each mechanism."""

    cells: IntArray
    reports: list[IntArray]

    def add(self, other: RoundCrowd) -> None:
        super().add(other)
        self.cells = self.cells + other.cells
        self.reports = [mine + more for mine, more in zip(self.reports, other.reports, strict=True)]


@dataclass(eq=False, repr=False)
class RoundWork(part_reports.BatchWork[RoundCrowd]):
    """Lets those people of a part report whose turn it is; without mechanisms all are only counted."""

    space: MapSpace
    outside: Outside
    habits: Crowd
    turn: Turn | None = None
    mechanisms: Sequence[Channel] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        mechanisms = [part_reports.Sent(mechanism) for mechanism in self.mechanisms]
        return RoundWork, (self.space, self.outside, self.habits, self.turn, mechanisms)

    def nothing(self) -> RoundCrowd:
        reports = [np.zeros(law.report_count, dtype=np.int64) for law in self.mechanisms]
        return RoundCrowd(
            OutsideCount(self.outside), np.zeros(self.space.size, dtype=np.int64), reports
        )

    def locate(self, batch: Locations, outside: OutsideCount) -> tuple[IntArray, BoolArray]:
        return outside.locate(self.space, batch.lat, batch.lng)

    def take(self, batch: Locations, total: RoundCrowd) -> None:
        """Draw and count the reports of a batch, and count where those who reported are."""
        cells, reporting = self.locate(batch, total.outside)
        if self.turn is not None:
            habits, rows = self.habits, reporting.size
            seed, index = self.turn.seed, self.turn.index
            own = np.random.default_rng([seed, batch.number, index + 1, 1])
            reporting = reporting & (own.random(rows) >= habits.churn)
            if habits.everybody == "once":  # a row always belongs to the same round
                dealt = np.random.default_rng([seed, batch.number]).integers(
                    self.turn.rounds, size=rows
                )
                reporting &= dealt == index
            chosen = habits.chosen(rows, len(self.mechanisms), own)
            source = seeded_for(seed, batch.number, index + 1)
            for level, mechanism in enumerate(self.mechanisms):
                who = reporting & (chosen == level)
                if mechanism.told_apart is None:
                    reports = reports_at(mechanism, batch.lat[who], batch.lng[who], source)
                else:
                    reports = mechanism.sample(cells[who], randomness=source)
                total.reports[level] += np.bincount(reports, minlength=mechanism.report_count)
        total.cells += np.bincount(cells[reporting], minlength=self.space.size)


@dataclass
class FileCrowd:
    """The rows of a file as people: each is read again in every round, and nobody is kept in memory.

    ``habits`` says who reports when; its own people are of no account. The same seed gives the same
    rounds on every engine. ``outside`` counts the places outside the map in the first pass.
    """

    source: str
    reading: Reading
    space: MapSpace
    outside: OutsideCount
    habits: Crowd
    engine: Engine
    advance: part_reports.Advance = part_reports.silent

    def counts(self, space: Space) -> IntArray:
        """How many people are in each cell, from a pass over the file."""
        total = self._pass(RoundWork(self.space, self.outside.rule, self.habits))
        self.outside.add(total.outside)
        return total.cells

    def collected(
        self, campaign: Campaign, *, rounds: int, seed: int
    ) -> Iterator[tuple[list[Tally], IntArray]]:
        """The tallies of each round, and how many of those who reported in it are in each cell."""
        for index in range(rounds):
            mechanisms = list(campaign.mechanisms.values())
            turn = Turn(seed, index, rounds)
            total = self._pass(
                RoundWork(self.space, self.outside.rule, self.habits, turn, mechanisms)
            )
            tallies = [
                self.habits.with_fakes(Tally(mechanism, counts))
                for mechanism, counts in zip(mechanisms, total.reports, strict=True)
            ]
            yield tallies, total.cells

    def _pass(self, work: RoundWork) -> RoundCrowd:
        return part_reports.summed(
            self.engine, work, self.source, self.reading, advance=self.advance
        )
