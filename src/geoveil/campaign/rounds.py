"""Rounds of a campaign, and what closing one leads to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np

from geoveil.arrays import FloatArray, one_blas_thread
from geoveil.channel.channel import Channel, Tally
from geoveil.errors import Unsupported
from geoveil.estimate import Estimate, FisherInformation, IterativeBayesianUpdate, Steps
from geoveil.estimate.bars import EitherErrors, ErrorBars
from geoveil.estimate.fitted import Observations
from geoveil.space.space import MATRIX_LIMIT
from geoveil.verify.alarm import AlarmResult, PoisoningAlarm
from geoveil.verify.guard import Guarded, Suspicion
from geoveil.verify.manipulation import Attack, ManipulationGain

FAKE_SHARE = 0.01
"""The share of fake reports that the manipulation gain is about."""

_BAR_PRODUCTS = MATRIX_LIMIT**3
"""Error bars take cells³ products a round: all rounds up to a thousand cells or so, then the largest."""
_ALARM_EFFORT, _GAIN_EFFORT = 80_000_000, 40_000_000
"""Cells × steps to refit, some two seconds and one; see ``_fits``."""
_SLOWER_FROM = 512
"""Cells from which a step takes longer for each, because its arrays leave the caches."""
_SETTING_UP = 5
"""A refit takes as long as so many steps before its first."""
_ALARM_ROUNDS, _ALARM_REPLICATES = 4, (49, 199)
_GAIN_ROUNDS, _GAIN_CELLS, _GAIN_REPORTS = 2, 16, 100_000

_MOST_REMEMBERED = 1_000

FoundFakes = tuple[int, int, int, int]
"""The number of a round, a report that fakes send in it, and at least and at most how many are fakes."""


def found_fakes(values: Iterable[int]) -> FoundFakes:
    """Four whole numbers as they are kept, or a ``ValueError``."""
    number, report, least, most = (int(value) for value in values)
    return number, report, least, most


@dataclass
class Round:
    """One round: the mechanism it published, what came back under it, what was learnt at its close."""

    number: int
    mechanism: Channel
    tally: Tally
    distribution: FloatArray | None = None
    """The estimate made when the round was closed; ``None`` while it is open, or where none was made."""
    fakes: tuple[FoundFakes, ...] = ()
    """What fakes the guard was sure of at that close, in this round and those before."""

    @property
    def closed(self) -> bool:
        """Whether the round was closed; reports under its mechanism still count for later estimates."""
        return self.distribution is not None


class NewestRounds:
    """The alarm over as many of the newest rounds, against as many honest campaigns, as can be afforded."""

    def check(self, tallies: Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the newest rounds look like honest people."""
        given = list(tallies)
        least, most = _ALARM_REPLICATES
        affordable = _fits(_ALARM_EFFORT, estimate)
        rounds = max(1, min(_ALARM_ROUNDS, len(given), affordable // least))
        replicates = max(least, min(most, affordable // rounds))
        return PoisoningAlarm(replicates=replicates).check(given[-rounds:], estimate)


def _fits(effort: int, estimate: Estimate) -> int:
    """How many sets of counts of one round can be refitted with an effort."""
    cells = estimate.space.size
    each = cells * (estimate.steps + _SETTING_UP) * max(1.0, cells / _SLOWER_FROM)
    return int(effort // each)


def _not_kept() -> NoReturn:
    raise Unsupported("what is recalled of a close must be asked for its error bars only")


@dataclass(frozen=True, eq=False)
class Closing:
    """The close of a round: the estimate from the rounds so far, and what is to be said about it.

    The same rounds always give the same numbers. The alarm (unless a guard has asked it already), the
    error bars and the manipulation gain are worked out when first asked for, each within a bounded
    effort whatever the number of cells and rounds.
    """

    rounds: tuple[Round, ...]
    """Those that the estimate is made from, oldest first, with their counts at the close."""
    estimate: Estimate
    guard: Guarded | None = None
    """What the guard did, where the campaign has one."""

    @property
    def reports(self) -> int:
        """How many reports were counted in these rounds, fakes among them."""
        return sum(done.tally.total for done in self.rounds)

    @cached_property
    def inspected(self) -> Guarded:
        """The estimate with the alarms raised on the way to it; without a guard nothing is left out."""
        if self.guard is not None:
            return self.guard
        tallies = tuple(Observations(done.tally for done in self.rounds).tallies)
        untouched = tuple(np.zeros_like(tally.counts) for tally in tallies)
        alarm = NewestRounds().check(tallies, self.estimate)
        return Guarded(self.estimate, (alarm,), tallies, untouched, untouched)

    @property
    def alarm(self) -> AlarmResult:
        """Whether the newest rounds, as they were received, look like honest people."""
        return self.inspected.alarms[0]

    @property
    def alarm_rounds(self) -> list[Round]:
        """The rounds that the alarm looked at."""
        checked = {tally.channel for tally in self.inspected.received[-self.alarm.rounds :]}
        return [done for done in self.rounds if done.mechanism in checked]

    @property
    def fakes(self) -> tuple[FoundFakes, ...]:
        """What fakes the guard is sure of; of rounds with the same mechanism, the last is named."""
        return () if self.guard is None else self._numbered(self.guard.suspicions)

    @property
    def possible_fakes(self) -> tuple[FoundFakes, ...]:
        """The same of all that may be fakes, sure or not: what the error bars allow for."""
        return () if self.guard is None else self._numbered(self.guard.possible)

    def _numbered(self, suspicions: list[Suspicion]) -> tuple[FoundFakes, ...]:
        numbers = {done.mechanism: done.number for done in self.rounds}
        found = sorted(suspicions, key=lambda each: -each.least)[:_MOST_REMEMBERED]
        return tuple(
            sorted((numbers[each.mechanism], each.report, each.least, each.most) for each in found)
        )

    @classmethod
    def recalled(
        cls,
        rounds: tuple[Round, ...],
        distribution: FloatArray,
        *,
        steps: int,
        stopped: str,
        fakes: Iterable[FoundFakes] = (),
        named: tuple[int, ...] = (),
    ) -> Closing:
        """A close as it was kept, for its error bars: nothing is estimated again.

        ``fakes`` are the ``possible_fakes`` of then, and ``named`` the reports that the guard had named.
        """
        tallies = tuple(Observations(done.tally for done in rounds).tallies)
        estimate = Estimate(
            space=tallies[0].space,
            distribution=distribution,
            total=sum(tally.total for tally in tallies),
            steps=steps,
            stopped=stopped,
            find_fit=_not_kept,
            find_errors=_not_kept,
            find_identifiability=_not_kept,
        )
        places = {tally.channel: place for place, tally in enumerate(tallies)}
        mechanisms = {done.number: done.mechanism for done in rounds}
        taken = tuple(np.zeros_like(tally.counts) for tally in tallies)
        most = tuple(np.zeros_like(tally.counts) for tally in tallies)
        for number, report, fewest, greatest in fakes:
            place = places[mechanisms[number]]
            taken[place][report], most[place][report] = fewest, greatest
        return cls(rounds, estimate, Guarded(estimate, (), tallies, taken, most, named))

    @one_blas_thread()
    def error_bars(self) -> tuple[ErrorBars, list[Round]]:
        """Error bars of the estimate, and the rounds they are made from: all, or the largest.

        Bars from some of the rounds are wider than they could be, and hold what they claim. Where fakes
        were named, those of the named cells run from the low end without the most fakes to the high end
        without the fewest; all others hold also what would be said with all reports.
        """
        guard = self.inspected
        bars, chosen = self._bars(guard.left, self.estimate.distribution)
        if not any(most.any() for most in guard.most):
            return bars, chosen
        steps = Steps(max(1, self.estimate.steps), "as many as the estimate")
        parts = [bars]
        for left in (guard.left_at_least, guard.received):
            counted = [tally for tally in left if tally.total]
            if counted:
                estimate = IterativeBayesianUpdate(stop=steps).fit(counted)
                parts.append(self._bars(left, estimate.distribution)[0])
        named = np.array([y for y in guard.named if y < self.estimate.space.size], dtype=np.int64)
        return EitherErrors.of(self.estimate.distribution, parts, named), chosen

    def _bars(
        self, left: Iterable[Tally], distribution: FloatArray
    ) -> tuple[ErrorBars, list[Round]]:
        """Bars around a distribution, from what is left of the largest rounds."""
        most = max(1, _BAR_PRODUCTS // distribution.size**3)
        largest = sorted(self._without(left), key=lambda done: -done.tally.total)[:most]
        chosen = sorted(largest, key=lambda done: done.number)
        observations = Observations(done.tally for done in chosen)
        bars = FisherInformation().errors(
            observations, distribution, lambda counts, _: counts, None
        )
        return bars, chosen

    def _without(self, left: Iterable[Tally]) -> list[Round]:
        """The rounds with what is left of their reports; those with the same mechanism share it."""
        waiting = {tally.channel: tally.counts for tally in left}
        honest = []
        for done in self.rounds:
            counts = np.minimum(done.tally.counts, waiting[done.mechanism])
            waiting[done.mechanism] = waiting[done.mechanism] - counts
            honest.append(replace(done, tally=Tally(done.mechanism, counts)))
        return honest

    @one_blas_thread()
    def manipulation_gain(self) -> tuple[ManipulationGain, list[Round]]:
        """How far fake reports under the newest mechanisms would move this estimate, and their rounds.

        The steps of the estimate are taken again with the expected counts of honest people and with
        fakes among them, one fake report at a time: of every cell, or of cells spread evenly over
        the space.
        """
        newest = {done.mechanism: done for done in self.rounds}  # a renewed mechanism is the same
        attacked = sorted(newest.values(), key=lambda done: done.number)[-_GAIN_ROUNDS:]
        cells = self.estimate.space.size
        affordable = max(_GAIN_CELLS, _fits(_GAIN_EFFORT, self.estimate) // len(attacked))
        tried = np.unique(
            np.linspace(0, cells - 1, min(cells, affordable)).round().astype(np.int64)
        )
        mechanisms = [done.mechanism for done in attacked]
        people = self.estimate.distribution
        attack = Attack(mechanisms, people, FAKE_SHARE, _GAIN_REPORTS, None)
        gains = attack.screened(tried, max(1, self.estimate.steps), lambda change: change)
        row, target = np.unravel_index(int(gains.argmax()), gains.shape)
        by_target = np.full(cells, np.nan)
        by_target[tried] = gains.max(axis=0)[tried]
        gain = ManipulationGain(
            float(gains[row, target]), int(target), int(tried[row]), attack.share, attack.reports,
            by_target, tried,
        )  # fmt: skip
        return gain, attacked
