"""Rounds of a campaign, and what closing one leads to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from geoveil import arrays
from geoveil.arrays import FloatArray, one_blas_thread
from geoveil.campaign.one_map import NO_ROUNDS, Choices, Standing, average_of_levels, by_promise
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.guarantee import Guarantee
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import InvalidFile, Unsupported
from geoveil.estimate import Estimate, FisherInformation, IterativeBayesianUpdate, Steps
from geoveil.estimate.bars import EitherErrors, ErrorBars
from geoveil.estimate.fitted import Observations, promises_of
from geoveil.space.space import MATRIX_LIMIT
from geoveil.verify.alarm import AlarmResult, PoisoningAlarm
from geoveil.verify.guard import Guarded, Suspicion
from geoveil.verify.manipulation import Attack, ManipulationGain

FAKE_SHARE = 0.01
"""The share of fake reports that the manipulation gain is about."""

_BAR_PRODUCTS = MATRIX_LIMIT**3
"""Error bars take cells³ products a round: all rounds up to a thousand cells or so, then the largest."""
_ALARM_EFFORT, _GAIN_EFFORT = 80_000_000, 40_000_000
"""Cells × steps to refit, some two seconds and one; see ``_refits``."""
SLOWER_FROM = 512
"""Cells from which a step takes longer for each, because its arrays leave the caches."""
_SETTING_UP = 5
"""A refit takes as long as so many steps before its first."""
_ALARM_ROUNDS, _ALARM_REPLICATES = 4, (49, 199)
_GAIN_ROUNDS, _GAIN_CELLS, _GAIN_REPORTS = 2, 16, 100_000

_MOST_REMEMBERED = 1_000


class FoundFakes(NamedTuple):
    """A report that fakes send in a round, and at least and at most how many of them are fakes."""

    number: int
    report: int
    least: int
    most: int
    level: int = 0
    """Which promise the fakes chose, by its place among those of the campaign."""


def read_fakes(values: Iterable[int]) -> FoundFakes:
    """Four or five whole numbers as they are kept, or a ``ValueError``."""
    number, report, least, most, *level = (int(value) for value in values)
    if len(level) > 1:
        raise ValueError("too many values")
    return FoundFakes(number, report, least, most, *level)


@dataclass
class Round:
    """One round: the mechanisms it published, what came back under them, what was learnt at its close."""

    number: int
    tallies: tuple[Tally, ...]
    """One for each promise that the campaign offers, the strongest first."""
    distribution: FloatArray | None = None
    """The estimate made when the round was closed; ``None`` while it is open, or where none was made."""
    fakes: tuple[FoundFakes, ...] = ()
    """What fakes the guard was sure of at that close, in this round and those before."""
    standing: Standing = NO_ROUNDS
    """Which rounds agreed at that close."""
    dependent: bool = False
    """Whether the choice of a promise was known to depend on the place at that close."""
    seed: tuple[Tally, ...] = ()
    """What a trusted first round had counted at its close; empty in all other rounds. What comes later under
    its mechanisms may be anybody's."""

    @classmethod
    def opened(cls, number: int, mechanisms: Iterable[Channel]) -> Round:
        """A round in which nobody has reported."""
        return cls(number, tuple(Tally(mechanism, np.zeros(mechanism.report_count, dtype=np.int64))
                                 for mechanism in mechanisms))  # fmt: skip

    @property
    def mechanisms(self) -> tuple[Channel, ...]:
        """What it published."""
        return tuple(tally.channel for tally in self.tallies)

    @property
    def tally(self) -> Tally:
        """What came back, where the campaign offers one promise."""
        (only,) = self.tallies
        return only

    @property
    def total(self) -> int:
        """Reports counted in it, whichever promise they were made under."""
        return sum(tally.total for tally in self.tallies)

    @property
    def counted(self) -> list[Tally]:
        """The tallies with reports."""
        return [tally for tally in self.tallies if tally.total]

    @property
    def closed(self) -> bool:
        """Whether the round was closed; reports under its mechanism still count for later estimates."""
        return self.distribution is not None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; its number is its place among the rounds."""
        more: dict[str, Any] = {}
        if self.fakes:
            more["fakes"] = [list(fakes) for fakes in self.fakes]
        if self.standing != NO_ROUNDS:
            more["standing"] = self.standing.to_dict()
        if self.dependent:
            more["dependent"] = True
        if self.seed:
            more["seed"] = [tally.counts.tolist() for tally in self.seed]
        return {
            "mechanisms": [mechanism_to_dict(mechanism) for mechanism in self.mechanisms],
            "counts": [tally.counts.tolist() for tally in self.tallies],
            "distribution": None if self.distribution is None else self.distribution.tolist(),
            **more,
        }

    @classmethod
    def from_dict(
        cls, number: int, values: Mapping[str, Any], size: int, promise: Guarantee
    ) -> Round:
        """The round that ``to_dict`` described, if its mechanisms keep the promise of the campaign."""
        several = "mechanisms" in values  # older files have one mechanism a round
        descriptions = values["mechanisms"] if several else [values["mechanism"]]
        mechanisms = [mechanism_from_dict(description) for description in descriptions]
        counts_of = values["counts"] if several else [values["counts"]]
        tallies = []
        for mechanism, counts in zip(mechanisms, counts_of, strict=True):
            if not isinstance(mechanism, Channel):
                raise InvalidFile("a round must have a mechanism over cells")
            if mechanism.guarantee is None or not mechanism.guarantee.implies(promise):
                raise InvalidFile(
                    f"the mechanism of round {number} ({mechanism.guarantee}) must keep the promise "
                    f"of the campaign ({promise})"
                )
            tallies.append(Tally(mechanism, counts))
        believed = values["distribution"]
        if believed is not None:
            believed = as_saved("distribution", believed, size)
        fakes = tuple(read_fakes(numbers) for numbers in values.get("fakes", ()))
        standing = Standing.from_dict(values["standing"]) if "standing" in values else NO_ROUNDS
        dependent = values.get("dependent", False) is True
        seed = values.get("seed") or [()] * len(tallies)
        pairs = zip(tallies, seed, strict=True)
        trusted = tuple(Tally(tally.channel, counts) for tally, counts in pairs if len(counts))
        return cls(number, tuple(tallies), believed, fakes, standing, dependent, trusted)


def as_saved(name: str, values: Any, size: int) -> FloatArray:
    """A distribution to the last digit: checked, and not scaled again."""
    arrays.distribution(name, values, size)
    saved: FloatArray = arrays.frozen(np.array(values, dtype=np.float64))
    return saved


def counted(rounds: Iterable[Round]) -> list[Tally]:
    """The tallies with reports of some rounds."""
    return [tally for round_ in rounds for tally in round_.counted]


@dataclass(frozen=True)
class NewestRounds:
    """The alarm over as many of the newest rounds, against as many honest campaigns, as can be afforded."""

    promises: int = 1
    """Tallies of one round, which are looked at together: fakes may choose any of the promises."""

    def check(self, tallies: Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the newest rounds look like honest people."""
        received = list(tallies)
        number, alarm = self._affordable(len(received), estimate)
        return alarm.check(received[-number:], estimate)

    def check_levels(
        self, tallies: Sequence[Tally], levels: Sequence[Sequence[Tally]], estimate: Estimate
    ) -> AlarmResult:
        """The same check where each promise has a map of its own, because the choice depends on the place."""
        number, alarm = self._affordable(len(tallies), estimate)
        newest = {tally.channel: tally for tally in tallies[-number:]}
        groups = []
        for level in levels:
            mechanisms = dict.fromkeys(tally.channel for tally in level)
            if some := [newest[mechanism] for mechanism in mechanisms if mechanism in newest]:
                groups.append((some, IterativeBayesianUpdate().fit(level)))
        return alarm.check_groups(groups)

    def _affordable(self, tallies: int, estimate: Estimate) -> tuple[int, PoisoningAlarm]:
        """How many of the newest tallies are looked at, and by what: those of one round at least."""
        least, most = _ALARM_REPLICATES
        affordable = _refits(_ALARM_EFFORT, estimate)
        number = min(_ALARM_ROUNDS * self.promises, affordable // least)
        number = min(tallies, max(self.promises, number))
        replicates = max(least, min(most, affordable // number))
        return number, PoisoningAlarm(replicates=replicates)


def _refits(effort: int, estimate: Estimate) -> int:
    """How often the counts of one round can be fitted again with an effort, in cells × steps."""
    cells = estimate.space.size
    effort_per_fit = cells * (estimate.steps + _SETTING_UP) * max(1.0, cells / SLOWER_FROM)
    return int(effort // effort_per_fit)


def _bars_only() -> NoReturn:
    raise Unsupported("what is recalled of a close must be asked for its error bars only")


@dataclass(frozen=True, eq=False)
class Closing:
    """The close of a round: the estimate from the rounds so far, and what is to be said about it.

    The same rounds always give the same numbers. The alarm (unless a guard has asked it already), the
    error bars and the manipulation gain are worked out when first asked for, each within a bounded
    effort whatever the number of cells and rounds.
    """

    rounds: tuple[Round, ...]
    """The rounds that the estimate is made from, oldest first, with their counts at the close."""
    estimate: Estimate
    guard: Guarded | None = None
    """What the guard did, where the campaign has one."""
    standing: Standing = NO_ROUNDS
    """Which rounds agree; the estimate is made from those."""
    waiting: tuple[Round, ...] = ()
    """Newer rounds that disagree, too few to take over: intervals hold what they say as well."""
    choices: Choices | None = None
    """What each promise contributed, where people have a choice."""

    @property
    def reports(self) -> int:
        """How many reports were counted in these rounds, fakes among them."""
        return sum(round_.total for round_ in self.rounds)

    @property
    def depends(self) -> bool:
        """Whether the estimate is an average over promises, because the choice depends on the place."""
        return self.choices is not None and self.choices.dependent

    @cached_property
    def inspected(self) -> Guarded:
        """The estimate with the alarms raised on the way to it; without a guard nothing is left out."""
        if self.guard is not None:
            return self.guard
        tallies = Observations(counted(self.rounds)).tallies
        untouched = tuple(np.zeros_like(tally.counts) for tally in tallies)
        newest = NewestRounds(len(self.rounds[-1].tallies))
        if self.depends:
            levels = by_promise([round_.tallies for round_ in self.rounds])
            alarm = newest.check_levels(tallies, list(filter(None, levels)), self.estimate)
        else:
            alarm = newest.check(tallies, self.estimate)
        return Guarded(self.estimate, (alarm,), tallies, untouched, untouched)

    @property
    def alarm(self) -> AlarmResult:
        """Whether the newest of these rounds, as they were received, look like honest people."""
        return self.inspected.alarms[0]

    @property
    def alarm_rounds(self) -> list[Round]:
        """The rounds that the alarm looked at."""
        checked = {tally.channel for tally in self.inspected.received[-self.alarm.rounds :]}
        return [round_ for round_ in self.rounds if checked & set(round_.mechanisms)]

    @property
    def fakes(self) -> tuple[FoundFakes, ...]:
        """What fakes the guard is sure of; of rounds with the same mechanism, the last is named."""
        return () if self.guard is None else self._numbered(self.guard.suspicions)

    @property
    def possible_fakes(self) -> tuple[FoundFakes, ...]:
        """What may be fakes, sure or not: the error bars allow for all of it."""
        return () if self.guard is None else self._numbered(self.guard.possible)

    def _numbered(self, suspicions: list[Suspicion]) -> tuple[FoundFakes, ...]:
        places = {
            mechanism: (round_.number, level)
            for round_ in self.rounds
            for level, mechanism in enumerate(round_.mechanisms)
        }
        largest = sorted(suspicions, key=lambda suspicion: -suspicion.least)[:_MOST_REMEMBERED]
        fakes = []
        for mechanism, report, least, most in largest:
            number, level = places[mechanism]
            fakes.append(FoundFakes(number, report, least, most, level))
        return tuple(sorted(fakes))

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
        waiting: tuple[Round, ...] = (),
        dependent: bool = False,
    ) -> Closing:
        """A close as it was kept, for its error bars.

        ``fakes`` are the ``possible_fakes`` of then, and ``named`` the reports that the guard had named.
        Nothing is estimated again but the maps of each promise where the choice of one was ``dependent`` on
        the place.
        """
        tallies = Observations(counted(rounds)).tallies

        def errors() -> ErrorBars:
            return replace(_average_bars(rounds), distribution=distribution)

        estimate = Estimate(
            space=tallies[0].space,
            distribution=distribution,
            total=sum(tally.total for tally in tallies),
            steps=steps,
            stopped=stopped,
            find_fit=_bars_only,
            find_errors=errors if dependent else _bars_only,
            find_identifiability=_bars_only,
            find_promises=lambda: promises_of(tallies),
        )
        places = {tally.channel: place for place, tally in enumerate(tallies)}
        mechanisms = {round_.number: round_.mechanisms for round_ in rounds}
        least = tuple(np.zeros_like(tally.counts) for tally in tallies)
        most = tuple(np.zeros_like(tally.counts) for tally in tallies)
        for number, report, fewest, greatest, level in fakes:
            place = places[mechanisms[number][level]]
            least[place][report], most[place][report] = fewest, greatest
        guard = Guarded(estimate, (), tallies, least, most, named)
        choices = Choices((), 0, None, True) if dependent else None
        return cls(rounds, estimate, guard, waiting=waiting, choices=choices)

    @one_blas_thread()
    def error_bars(self, about: FloatArray | None = None) -> tuple[ErrorBars, list[Round]]:
        """Error bars of the estimate, and the rounds they are made from: all, or the largest.

        Bars from some of the rounds are wider than they could be, and hold what they claim. Where one
        report was named, those of its cell run from the low end without the most fakes to the high end
        without the fewest; all others, and all of them where several were named, hold also what would be
        said with all reports. Where newer rounds disagree, every interval holds also what they say.
        With ``about``, parts of every cell in some regions (k, cells), there need be bars of those alone.
        """
        bars, chosen = self._agreeing_bars(about)
        if not self.waiting:
            return bars, chosen
        if self.depends:
            others = _average_bars(self.waiting)
        else:
            newer = counted(self.waiting)
            estimate = IterativeBayesianUpdate().fit(newer)
            others, _ = self._bars(newer, self.waiting, estimate.distribution, about)
        nobody = np.zeros(0, dtype=np.int64)
        either = "; whatever these and the bars of the newer rounds that disagree hold"
        return EitherErrors.of(self.estimate.distribution, [bars, others], nobody, either), chosen

    def _agreeing_bars(self, about: FloatArray | None) -> tuple[ErrorBars, list[Round]]:
        """Error bars from the rounds that the estimate is made from."""
        if self.depends:
            return self.estimate.errors, list(self.rounds)
        guard = self.inspected
        bars, chosen = self._bars(guard.left, self.rounds, self.estimate.distribution, about)
        if not any(most.any() for most in guard.most):
            return bars, chosen
        steps = Steps(max(1, self.estimate.steps), "as many as the estimate")
        parts = [bars]
        for tallies in (guard.left_at_least, guard.received):
            some = [tally for tally in tallies if tally.total]
            if some:
                estimate = IterativeBayesianUpdate(stop=steps).fit(some)
                parts.append(self._bars(tallies, self.rounds, estimate.distribution, about)[0])
        # Of one report named, all reports together are known to be wrong about its cell. What is sure of
        # several is sure of their sum: any one of them may be sent by honest people.
        wrong = [y for y in guard.named if len(guard.named) == 1 and y < self.estimate.space.size]
        named = np.array(wrong, dtype=np.int64)
        ways = f"; whatever the bars of {len(parts)} ways to count fakes hold"
        return EitherErrors.of(self.estimate.distribution, parts, named, ways), chosen

    def _bars(
        self,
        remaining: Iterable[Tally],
        rounds: Sequence[Round],
        distribution: FloatArray,
        about: FloatArray | None,
    ) -> tuple[ErrorBars, list[Round]]:
        """Bars around a distribution, from the reports that remain of the largest rounds."""
        most = max(1, _BAR_PRODUCTS // distribution.size**3)
        largest = sorted(cleaned_rounds(rounds, remaining), key=lambda round_: -round_.total)[:most]
        chosen = sorted(largest, key=lambda round_: round_.number)
        observations = Observations(counted(chosen))
        return FisherInformation().about(observations, distribution, about), chosen

    @one_blas_thread()
    def manipulation_gain(self) -> tuple[ManipulationGain, list[Round]]:
        """How far fake reports under the newest mechanisms would move this estimate, and their rounds.

        The steps of the estimate are taken again with the expected counts of honest people and with
        fakes among them, one fake report at a time: of every cell, or of cells spread evenly over
        the space. Above 4,096 cells they are sent in the newest round alone, else in two. Where people
        choose among promises, all fakes choose the one under which they weigh most.
        """
        newest = {round_.mechanisms: round_ for round_ in self.rounds}  # a renewed one is the same
        cells = self.estimate.space.size
        number = _GAIN_ROUNDS if cells <= MATRIX_LIMIT else 1
        attacked = sorted(newest.values(), key=lambda round_: round_.number)[-number:]
        mechanisms = [mechanism for round_ in attacked for mechanism in round_.mechanisms]
        promises = len(attacked[-1].mechanisms)
        affordable = _refits(_GAIN_EFFORT, self.estimate) // (len(mechanisms) * promises)
        spread = np.linspace(0, cells - 1, min(cells, max(_GAIN_CELLS, affordable)))
        fakes = np.unique(spread.round().astype(np.int64))
        steps = max(1, self.estimate.steps)
        gains = np.zeros((promises, fakes.size, cells))
        for level in range(promises):
            attack = self._attack(mechanisms, level, promises)
            gains[level] = attack.screened(fakes, steps, lambda change: change)
        level, row, target = map(int, np.unravel_index(int(gains.argmax()), gains.shape))
        by_target = np.full(cells, np.nan)
        by_target[fakes] = gains.max(axis=(0, 1))[fakes]
        promise = attacked[-1].mechanisms[level].guarantee
        under = f" under {promise.amount()}" if promises > 1 and promise is not None else ""
        gain = ManipulationGain(
            float(gains[level, row, target]), target, int(fakes[row]), attack.share, attack.reports,
            by_target, fakes, under,
        )  # fmt: skip
        return gain, attacked

    def _attack(self, mechanisms: Sequence[Channel], level: int, promises: int) -> Attack:
        """Fakes among the people of this estimate, all under one promise of those that people chose."""
        people = self.estimate.distribution
        if promises == 1:
            return Attack(mechanisms, people, FAKE_SHARE, _GAIN_REPORTS, None)
        levels = [range(first, len(mechanisms), promises) for first in range(promises)]
        totals = [sum(r.tallies[place].total for r in self.rounds) for place in range(promises)]
        shares = np.tile(totals, len(mechanisms) // promises).astype(np.float64)
        return Attack(
            mechanisms, people, FAKE_SHARE, _GAIN_REPORTS, None,
            honest_shares=shares / shares.sum(), under=levels[level],
            maps=levels if self.depends else None,
        )  # fmt: skip


def cleaned_rounds(rounds: Iterable[Round], remaining: Iterable[Tally]) -> list[Round]:
    """The rounds with the reports that remain; those of one mechanism share its tally, oldest first."""
    counts_left = {tally.channel: tally.counts for tally in remaining}
    honest = []
    for round_ in rounds:
        tallies = []
        for tally in round_.tallies:
            counts = np.minimum(tally.counts, counts_left.get(tally.channel, 0))
            if counts.any():
                counts_left[tally.channel] = counts_left[tally.channel] - counts
            tallies.append(Tally(tally.channel, counts))
        honest.append(replace(round_, tallies=tuple(tallies)))
    return [round_ for round_ in honest if round_.total]


def _average_bars(rounds: Iterable[Round]) -> ErrorBars:
    """Error bars of the average over one map for each promise."""
    levels = by_promise([round_.tallies for round_ in rounds])
    return average_of_levels(levels, IterativeBayesianUpdate()).errors
