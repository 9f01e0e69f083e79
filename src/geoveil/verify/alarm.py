"""The poisoning alarm: do the reports look like honest people under the fitted model?

Noise spreads every honest crowd over neighbouring reports in proportions that the mechanism fixes.
Fake reports skip the noise: many of one kind stand out from what any map of honest people explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from geoveil.arrays import (
    FloatArray,
    IntArray,
    checked_seed,
    count,
    instance,
    one_blas_thread,
    part,
    uniform,
)
from geoveil.channel.channel import Tally
from geoveil.channel.observed import TINY
from geoveil.channel.operator import Operator
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate import CrossValidated, IterativeBayesianUpdate, Steps
from geoveil.estimate.bayesian_update import slots_with_reports
from geoveil.estimate.fitted import Estimate, Observations
from geoveil.estimate.objective import Objective, point_after
from geoveil.estimate.uncertainty import MATRIX_CELLS
from geoveil.estimate.uneven import MAP_SHOWS, PlacesOfAll, crowds_show
from geoveil.space.space import MATRIX_LIMIT
from geoveil.trips.pairs import TripTally, pair_chances

_FARTHER = 1.5
"""So many more steps than the map takes where those places are open: crowds that it stopped short of would
stand out, and honest people with them."""
_FIRST, _CLEARLY = 49, 10
"""Replicates that come first, at least, and times the false alarms allowed: whatever is likelier than this
among them is chance."""
_SURELY = 0.95
"""The level of the interval by which a cell surely has people: its low end is above zero."""
_OF_A_SLOT = 0.5
"""A slot with a share s of all reports takes s to this power of the steps of the map of all: more than
cross-validation takes, so that no crowd of its own is stopped short of."""
_OF_PAIRS = 0.02
"""The part of the false alarms of trips that is for pairs, whose chances fall so fast that it is enough."""
_MOST_PAIRS = 100
_CHUNK_ENTRIES = 1 << 22
_FEWER = 0.75
"""Above 4,096 cells: with a share s of the reports of a map, s to this power of its steps are taken. How many
cross-validation takes falls faster (docs/robustness.md), so that no crowd is stopped short of."""


@dataclass(frozen=True, eq=False)
class AlarmResult:
    """What the alarm found; ``excess`` is the standardised surplus of every report, in any round."""

    raised: bool
    """Whether some report stands out, or all of them together do."""
    p_value: float
    """How often honest people would send one report that stands out at least so far, by simulation."""
    statistic: float
    threshold: float
    """The statistic from which a report stands out."""
    suspicious: IntArray
    """The reports that stand out above the threshold, the worst first; empty where none does."""
    excess: FloatArray
    surplus: FloatArray
    """Reports counted above those the model expects, for every report."""
    overall_p_value: float
    """How often honest people would lie at least so far from the model over all reports together."""
    false_alarm: float
    replicates: int
    """Honest campaigns that the reports were compared with."""
    rounds: int
    """Tallies that were checked, those of equal mechanisms together."""
    groups: tuple[Any, ...] = ()
    """Of several groups of people, those that stand out, the worst first: by number, or slots by name."""

    def to_dict(self) -> dict[str, Any]:
        """For files and machines: what was found, without the scores of all reports."""
        names = ("raised", "p_value", "statistic", "threshold", "overall_p_value", "false_alarm")
        return {
            **{name: getattr(self, name) for name in names},
            "replicates": self.replicates,
            "suspicious": self.suspicious.tolist(),
            "summary": self.summary(),
        }

    def unless(self, other: AlarmResult) -> AlarmResult:
        """Odd only where another result, of the same reports beside other honest people, says so too."""
        if other.replicates < self.replicates:  # clearly chance there
            return other
        milder = self if self.p_value >= other.p_value else other
        overall = max(self.overall_p_value, other.overall_p_value)
        raised = bool(milder.suspicious.size) or overall <= self.false_alarm
        both = tuple(group for group in milder.groups if group in {*self.groups} & {*other.groups})
        groups = both or milder.groups if raised else ()
        return replace(milder, raised=raised, overall_p_value=overall, groups=groups)

    def summary(self) -> str:
        """The result in words."""
        chance, alarm = self._chance(self.p_value), "Alarm"
        if not self.raised:
            return f"No alarm: the reports fit a map of honest people ({chance})."
        if names := [group for group in self.groups if isinstance(group, str)]:
            alarm = f"Alarm in {_listed(names)}"
        if not self.suspicious.size:
            return (
                f"{alarm}: no single report stands out, but all of them together lie farther from the "
                f"estimated map than chance explains ({self._chance(self.overall_p_value)}). "
                "Nobody is named; compare the estimate with what else is known before using it."
            )
        come = "report {} comes" if self.suspicious.size == 1 else "reports {} come"
        named = come.format(_listed(self.suspicious.tolist()))
        return (
            f"{alarm}: {named} more often than the estimated map explains "
            f"({chance}). Look at where these reports came from before using the estimate."
        )

    def _chance(self, p_value: float) -> str:
        """How many of the simulated campaigns look as odd."""
        honest = round(p_value * (self.replicates + 1)) - 1  # the reports themselves are one
        words = {self.replicates: "all look", 0: "none looks", 1: "1 looks"}
        look = words.get(honest, f"{honest} look")
        return (
            f"of {self.replicates} simulated campaigns of honest people {look} as odd or odder, "
            f"p = {p_value:.3g}"
        )


def check_comparable(tallies: Iterable[Tally]) -> None:
    """Refuse tallies that no alarm can look at together; worth asking before an estimate is made for one."""
    every = list(tallies)
    if len({tally.counts.size for tally in every}) > 1 or not all(t.complete for t in every):
        raise Unsupported(
            "the alarm compares counts of all reports, the same in every round; check tallies of "
            "other mechanisms one by one"
        )


def _listed(names: Sequence[object]) -> str:
    """The first five of some names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(str, names[:5])) + more


@dataclass(frozen=True, eq=False)
class TripAlarm:
    """What the alarm found among trips."""

    ends: AlarmResult
    """Of origins and destinations, each by itself; ``groups`` names the end that stands out."""
    pairs: IntArray
    """(k, 2): pairs of reports that come more often than any flows explain, the worst first."""
    pair_p_value: float
    """How often honest people would send one pair that stands out at least so far, at most."""
    false_alarm: float
    """Of all of it together, at most."""

    @property
    def raised(self) -> bool:
        """Whether an end or a pair stands out."""
        return self.ends.raised or bool(len(self.pairs))

    def to_dict(self) -> dict[str, Any]:
        """For files and machines: what was found, with the worst hundred pairs."""
        return {
            **self.ends.to_dict(),
            "raised": self.raised,
            "false_alarm": self.false_alarm,
            "pair_p_value": self.pair_p_value,
            "ends": list(self.ends.groups),
            "pairs": self.pairs[:_MOST_PAIRS].tolist(),
            "summary": self.summary(),
        }

    def summary(self) -> str:
        """The result in words."""
        chance, ends = f"p at most {self.pair_p_value:.3g}", self.ends.summary()
        if not len(self.pairs):
            return f"{ends} No pair of reports comes more often than any flows explain ({chance})."
        named = _listed([f"{begun} → {ended}" for begun, ended in self.pairs.tolist()])
        rest = ends if self.ends.raised else "The ends of the trips by themselves look honest."
        return (
            f"Alarm: more often than any flows explain ({chance}) come reports of {named}. {rest}"
        )


@dataclass(frozen=True)
class PoisoningAlarm:
    """A test that the reports were made by the mechanisms, for some map of honest people.

    Law: with N_y the number of reports y and E_y what the refitted model expects, the surplus
    a_y = 2√(N_y + 3/8) − 2√(E_y + 3/8), of all rounds together and of each, is standardised by its
    mean and spread over ``replicates`` data sets drawn from the fitted model and refitted in the same
    way to z_y; the statistic is the largest. All data sets, the observed one among them, are treated
    alike (each standardised by the others), so its rank gives the p-value. A second alarm ranks Σ z²
    over all reports and rounds: it finds fakes spread thinly over many cells, and names nobody.
    Some replicates come first (49 for one in fifty): where both p-values among these are above ten times
    ``false_alarm``, the others are left out; there is no alarm.
    Of several groups of people (promises, slots, the two ends of trips) the oddest counts.
    Where a cell is wide for its promise (ε·cell above 0.75, or less where crowds are large), the model leaves
    open where in their cells people stand: crowds at an edge of their cell are no fakes.
    Guarantee: false alarms of each at most ``false_alarm`` as far as the fitted map is like the true one;
    measured in ``docs/robustness.md``, with the attacks that are found and those that are not. A map stopped
    after a few steps, as the published rule stops, is not like it, and raises the alarm by itself. Where all
    people are in a few cells the map has some in cells that have none, which under noise that is the same
    everywhere (randomised response) looks odd. So where a map of those cells alone that surely have people
    explains the reports as well (likelihood ratio), they must be odd beside its people too (up to 4,096).
    It cannot see fakes that honest people could have sent: a single round has as many cells to
    explain reports as there are reports, and crowded places explain much. Two rounds with different
    mechanisms leave far less room.
    Cost: replicates × the steps of the estimate (fewer for a part of the reports above 4,096 cells); a
    quarter of that where nothing looks odd, and the error bars of the estimate where something does.
    Reference: docs/robustness.md; for the calibration, Davison & Hinkley (1997), §4.

    >>> import numpy as np
    >>> import geoveil as gv
    >>> from geoveil.verify.alarm import PoisoningAlarm
    >>> mechanism = gv.LinearGeometric(gv.Line(30), epsilon_per_unit=0.7)
    >>> people = np.repeat([5, 6, 20], 1500)
    >>> honest = mechanism.tally(mechanism.sample(people, randomness=gv.seeded(1)))
    >>> fakes = mechanism.tally(np.full(250, 13))
    >>> for tally in (honest, honest + fakes):
    ...     result = PoisoningAlarm().check(tally, gv.IterativeBayesianUpdate().fit(tally))
    ...     print(result.raised, result.suspicious.tolist())
    False []
    True [13]
    """

    false_alarm: float = 0.02
    replicates: int = 199
    seed: int = 0

    def __post_init__(self) -> None:
        checked_seed(self.seed)
        part("false_alarm", self.false_alarm)
        if count("replicates", self.replicates) < self._least:
            raise InvalidInput(
                f"replicates ({self.replicates}) must be at least {self._least} to tell one in "
                f"{1 / self.false_alarm:g}"
            )

    @property
    def _least(self) -> int:
        """The fewest replicates that can tell false alarms as rare as they must be."""
        return math.ceil(min(1 / self.false_alarm, 2.0**53) - 1e-9) - 1

    @one_blas_thread()
    def check(self, tallies: Tally | Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the reports fit the model that was estimated from them."""
        return self.check_groups([(tallies, estimate)])

    @one_blas_thread()
    def check_groups(
        self, groups: Iterable[tuple[Tally | Iterable[Tally], Estimate]]
    ) -> AlarmResult:
        """The same for several groups of people, each with its own map; one error rate for all of them."""
        pairs: list[tuple[Tally | Iterable[Tally], Estimate]] = []
        with suppress(TypeError, ValueError):  # then they are none
            pairs = [(tallies, estimate) for tallies, estimate in groups]
        if not pairs:
            raise InvalidInput("groups must be pairs of tallies and their estimate, one or more")
        parts = [(Observations(tallies), estimate) for tallies, estimate in pairs]
        check_comparable(tally for observations, _ in parts for tally in observations.tallies)
        crowds = [_Crowd.of(observations, estimate) for observations, estimate in parts]
        result = self._compared(crowds)
        if not result.raised or parts[0][1].space.size > MATRIX_LIMIT:
            return result
        fewer = list(crowds)
        for group in result.groups:
            fewer[group] = crowds[group].surely(parts[group][1], self.false_alarm)
        if all(one is other for one, other in zip(crowds, fewer, strict=True)):
            return result
        return result.unless(self._compared(fewer))

    @one_blas_thread()
    def check_slots(
        self, slots: Mapping[Any, Tally | Iterable[Tally]], pooled: Estimate
    ) -> AlarmResult:
        """Whether the reports of each slot look like honest people of that slot; ``groups`` names the others.

        ``slots`` are tallies by the name of their slot, those without reports left out, and ``pooled`` the
        map of all slots. All slots together raise a false alarm at most as often as ``false_alarm``, which
        both tests share.
        """
        full, groups = slots_with_reports(slots), []
        names = list(full)
        every = [Observations(tallies).tallies for tallies in full.values()]
        check_comparable(tally for parts in every for tally in parts)
        for parts in every:
            update = IterativeBayesianUpdate(stop=Steps(steps_of_slot(parts, pooled)))
            groups.append((parts, update.fit(parts)))
        result = replace(self, false_alarm=self.false_alarm / 2).check_groups(groups)
        return replace(result, groups=tuple(names[group] for group in result.groups))

    @one_blas_thread()
    def check_trips(self, tally: TripTally) -> TripAlarm:
        """Whether trips look honest: where they begin, where they end, and every pair of reports.

        Both ends are counts of reports like any others. A pair may come no more often than any flows explain
        (:func:`~geoveil.trips.pairs.pair_chances`). All of it together raises a false alarm at most as often
        as ``false_alarm``.
        """
        fits = IterativeBayesianUpdate(stop=CrossValidated(repeats=1))
        sides = tally.of_origins(), tally.of_destinations()
        ends = [Tally(tally.channel, side) for side in sides]
        of_ends = replace(self, false_alarm=self.false_alarm * (1 - _OF_PAIRS) / 2)
        found = of_ends.check_groups([(end, fits.fit(end)) for end in ends])
        named = tuple(("origins", "destinations")[group] for group in found.groups)
        chances = np.minimum(1.0, tally.channel.report_count**2 * pair_chances(tally))
        odd = np.flatnonzero(chances <= self.false_alarm * _OF_PAIRS)
        pairs = tally.pairs[odd[np.argsort(chances[odd], kind="stable")]]
        least = float(chances.min(initial=1.0))
        return TripAlarm(replace(found, groups=named), pairs, least, self.false_alarm)

    def _compared(self, crowds: Sequence[_Crowd]) -> AlarmResult:
        """The reports beside those of honest people who are where the models say."""
        generator = np.random.default_rng(self.seed)
        data_sets = [self._data_sets(crowd, generator) for crowd in crowds]
        laws = [np.empty((0, counts.shape[1])) for counts in data_sets]
        rounds = sum(len(crowd.observations.tallies) for crowd in crowds)
        first = min(self.replicates, max(_FIRST, math.ceil(0.25 / self.false_alarm) - 1))
        for number in sorted({1 + first, 1 + self.replicates}):
            groups, surplus = [], np.zeros(1)  # the observed data set is the first
            for place, (crowd, counts) in enumerate(zip(crowds, data_sets, strict=True)):
                more = counts[len(laws[place]) : number]
                laws[place] = np.concatenate([laws[place], *crowd.refitted(more)])
                tallies = crowd.observations.tallies
                totals = [np.full(tally.counts.size, float(tally.total)) for tally in tallies]
                counted = _by_round(counts[:number], len(tallies))
                expected = _by_round(laws[place] * np.concatenate(totals), len(tallies))
                groups.append(_Scores.of(_standardised(counted, expected)))
                surplus = surplus + counted[0, 0] - expected[0, 0]
            result = self._judged(groups, surplus, rounds)
            if min(result.p_value, result.overall_p_value) > _CLEARLY * self.false_alarm:
                break
        return result

    def _data_sets(self, crowd: _Crowd, generator: np.random.Generator) -> FloatArray:
        """The observed counts, and below them those of honest people under the fitted model."""
        observations = crowd.observations
        laws = observations.split(crowd.operator._push(crowd.model))
        blocks = []
        for tally, own in zip(observations.tallies, laws, strict=True):
            law = np.maximum(own, 0.0)
            copies = generator.multinomial(tally.total, law / law.sum(), size=self.replicates)
            blocks.append(np.concatenate((tally.counts[None, :], copies)))
        return np.concatenate(blocks, axis=1).astype(np.float64)

    def _judged(self, groups: Sequence[_Scores], surplus: FloatArray, rounds: int) -> AlarmResult:
        """From the scores of every group: what stands out in the group that is oddest."""
        largest = np.stack([group.largest for group in groups])
        overall = np.stack([_beside_others(group.squares) for group in groups])
        named, p_value, threshold = self._ranked(largest)
        odd, overall_p_value, _ = self._ranked(overall)
        excess = np.stack([group.excess for group in groups]).max(axis=0)
        above = np.flatnonzero(excess > threshold) if named else np.zeros(0, dtype=np.int64)
        worst_first = above[np.argsort(-excess[above], kind="stable")]
        return AlarmResult(
            bool(named or odd), p_value, float(largest[:, 0].max()), threshold, worst_first, excess, surplus,
            overall_p_value, self.false_alarm, largest.shape[1] - 1, rounds,
            tuple(dict.fromkeys((*named, *odd))),
        )  # fmt: skip

    def _ranked(self, scores: FloatArray) -> tuple[list[int], float, float]:
        """Of scores (groups, data sets), the largest of a data set being its own: the groups that stand out,
        the worst first, how often honest people have one at least so large, and from where on."""
        largest = scores.max(axis=0)
        p_value = float((largest >= largest[0]).mean())
        allowed = max(1, math.floor(self.false_alarm * len(largest) + 1e-9))
        threshold = float(np.sort(largest[1:])[-allowed])
        if p_value > self.false_alarm:
            return [], p_value, threshold
        worst = np.argsort(-scores[:, 0], kind="stable").tolist()
        return [group for group in worst if scores[group, 0] > threshold], p_value, threshold


class _Scores(NamedTuple):
    """The scores z of one group of people, of every data set the largest and Σ z²; the observed one first."""

    excess: FloatArray
    """(reports,): of the observed data set, the largest z of each report over the rounds."""
    largest: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> _Scores:
        """From z (data sets, 1 + rounds, reports)."""
        return cls(
            scores[0].max(axis=0), scores.max(axis=(1, 2)), np.square(scores).sum(axis=(1, 2))
        )


class _Crowd(NamedTuple):
    """Honest people of one map, beside whom some tallies are looked at."""

    observations: Observations
    operator: Operator
    model: FloatArray
    steps: int
    """To fit it again from other counts."""
    cell: IntArray
    """The cell of every row of the operator; where places in cells are open, several rows are of one cell."""

    @classmethod
    def of(cls, observations: Observations, estimate: Estimate) -> _Crowd:
        """The people of an estimate, anywhere in their cells where these places are open."""
        instance("estimate", estimate, Estimate, "an estimate, such as update.fit(tally)")
        if estimate.space != observations.space:
            raise InvalidInput("estimate must be about the same space as the tallies")
        steps = _steps(estimate, observations)
        across = max(tally.channel.positions_across for tally in observations.tallies)
        shows = crowds_show(observations.total, estimate.distribution, MATRIX_CELLS)
        places = PlacesOfAll.of(observations, across, shows=min(MAP_SHOWS, shows))
        model = estimate.distribution
        if places is None:
            return cls(observations, observations.operator, model, steps, np.arange(model.size))
        # honest people stand anywhere in their cells
        steps = math.ceil(_FARTHER * steps)
        counts = observations.counts[None, :].astype(np.float64)
        model = after_steps(places.operator, counts, steps)[0]
        return cls(observations, places.operator, model, steps, places.cell)

    def surely(self, estimate: Estimate, false_alarm: float) -> _Crowd:
        """The people of those cells alone that surely have some, where they explain the reports as well."""
        surely = estimate.interval(_SURELY)[0] > 0
        fewer = self.model * surely[self.cell]
        left_out = int(surely.size - surely.sum())
        if not (left_out and fewer.any()):
            return self
        fewer /= fewer.sum()
        objective = Objective(self.operator, self.observations.counts)
        worse = objective.at(self.model).log_likelihood - objective.at(fewer).log_likelihood
        if 2 * self.observations.total * worse > scipy.special.chdtri(left_out, false_alarm):
            return self
        return self._replace(model=fewer)

    def refitted(self, counts: FloatArray) -> Iterator[FloatArray]:
        """The laws of reports after as many steps from other counts (data sets, columns)."""
        for some in batches(len(counts), self.operator):
            theta = after_steps(self.operator, counts[some], self.steps)
            yield np.maximum(self.operator._push(theta), 0.0)


def _steps(estimate: Estimate, observations: Observations) -> int:
    """Steps of a fit: as many as the map took, or fewer where a large map had more reports than these."""
    if estimate.space.size <= MATRIX_LIMIT:
        return max(1, estimate.steps)
    share = min(1.0, observations.total / max(1, estimate.total))
    return max(1, math.ceil(estimate.steps * share**_FEWER))


def steps_of_slot(tallies: Iterable[Tally], pooled: Estimate) -> int:
    """Steps of the fit of one slot, from those of the map of all slots."""
    share = min(1.0, sum(tally.total for tally in tallies) / max(1, pooled.total))
    return max(1, math.ceil(pooled.steps * share**_OF_A_SLOT))


def _by_round(values: FloatArray, rounds: int) -> FloatArray:
    """(data sets, 1 + rounds, reports): all rounds together, then each; a single round only once."""
    by_round = values.reshape(len(values), rounds, -1)
    together = by_round.sum(axis=1, keepdims=True)
    return together if rounds == 1 else np.concatenate((together, by_round), axis=1)


def batches(size: int, operator: Operator) -> Iterator[slice]:
    """Slices of ``size`` rows of counts that are few enough to be fitted together."""
    step = max(1, _CHUNK_ENTRIES // max(operator.shape))
    return (slice(start, start + step) for start in range(0, size, step))


def after_steps(operator: Operator, counts: FloatArray, steps: int) -> FloatArray:
    """(data sets, rows): the model after plain steps from uniform, for counts (data sets, columns)."""
    starts = np.tile(uniform(operator.shape[0]), (len(counts), 1))
    return point_after(operator, counts, starts, steps).theta


def _standardised(counted: FloatArray, expected: FloatArray) -> FloatArray:
    """The surplus of each data set by the mean and spread of the others.

    Where few reports are expected the spread over the replicates says little: 1/(1 + E) is added to
    the variance, one for a report that nobody should send and nothing for those that many do.
    """
    surplus = 2 * np.sqrt(counted + 0.375) - 2 * np.sqrt(expected + 0.375)
    return _beside_others(surplus, 1 / (1 + expected[1:].mean(axis=0)))


def _beside_others(values: FloatArray, more: FloatArray | float = 0.0) -> FloatArray:
    """Every value of a data set by the mean and spread of the others, and ``more`` variance."""
    others = len(values) - 1
    mean = (values.sum(axis=0) - values) / others
    square = (np.square(values).sum(axis=0) - np.square(values)) / others
    variance = np.maximum(square - np.square(mean), 0.0)
    return np.asarray((values - mean) / np.sqrt(np.maximum(variance + more, TINY)))
