"""The poisoning alarm, and the guard that takes out what it finds.

Do the reports look like honest people under the fitted model?

Noise spreads every honest crowd over neighbouring reports in proportions that the mechanism fixes.
Fake reports skip the noise: many of one kind stand out from what any map of honest people explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count, finite, indices, one_blas_thread, uniform
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.operator import Operator
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate import Estimator, IterativeBayesianUpdate, LikelihoodChange, maximise
from geoveil.estimate.fitted import Estimate, Observations
from geoveil.estimate.objective import Objective, em_path

_CHUNK_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class AlarmResult:
    """What the alarm found; ``excess`` is the standardised surplus of every report, in any round."""

    raised: bool
    p_value: float
    """How often honest people would look at least this suspicious, by simulation."""
    statistic: float
    threshold: float
    """The statistic from which the alarm is raised."""
    suspicious: IntArray
    """The reports that stand out above the threshold, the worst first; empty unless raised."""
    excess: FloatArray
    surplus: FloatArray
    """Reports counted above those the model expects, for every report."""
    false_alarm: float
    replicates: int
    """Honest campaigns that the reports were compared with."""
    rounds: int
    """Tallies that were checked, those of equal mechanisms together."""

    def summary(self) -> str:
        """The result in words."""
        honest = round(self.p_value * (self.replicates + 1)) - 1  # the reports themselves are one
        words = {self.replicates: "all look", 0: "none looks", 1: "1 looks"}
        look = words.get(honest, f"{honest} look")
        chance = (
            f"of {self.replicates} simulated campaigns of honest people {look} as odd or odder, "
            f"p = {self.p_value:.3g}"
        )
        if not self.raised:
            return f"No alarm: the reports fit a map of honest people ({chance})."
        named = ", ".join(str(report) for report in self.suspicious[:5])
        more = f" and {self.suspicious.size - 5} more" if self.suspicious.size > 5 else ""
        come = "report {} comes" if self.suspicious.size == 1 else "reports {} come"
        return (
            f"Alarm: {come.format(named + more)} more often than any map of honest people explains "
            f"({chance}). Look at where these reports came from before using the estimate."
        )


@dataclass(frozen=True)
class PoisoningAlarm:
    """A test that the reports were made by the mechanisms, for some map of honest people.

    Law: with N_y the number of reports y and E_y what the refitted model expects, the surplus
    a_y = 2√(N_y + 3/8) − 2√(E_y + 3/8), of all rounds together and of each, is standardised by its
    mean and spread over ``replicates`` data sets drawn from the fitted model and refitted in the same
    way; the statistic is the largest. All data sets, the observed one among them, are treated alike
    (each standardised by the others), so its rank gives the p-value.
    Guarantee: false alarms at most ``false_alarm`` as far as the fitted map is like the true one;
    measured in ``docs/robustness.md``, with the attacks that are found and those that are not.
    It cannot see fakes that honest people could have sent: a single round has as many cells to
    explain reports as there are reports, and crowded places explain much. Two rounds with different
    mechanisms leave far less room.
    Cost: replicates × the steps of the estimate, in one batch.
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
        count("seed", self.seed, least=0)
        if not 0.0 < finite("false_alarm", self.false_alarm) < 1.0:
            raise InvalidInput(f"false_alarm ({self.false_alarm!r}) must lie between 0 and 1")
        least = math.ceil(1 / self.false_alarm - 1e-9) - 1
        if count("replicates", self.replicates) < least:
            raise InvalidInput(
                f"replicates ({self.replicates}) must be at least {least} to tell one in "
                f"{1 / self.false_alarm:g}"
            )

    @one_blas_thread()
    def check(self, tallies: Tally | Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the reports fit the model that was estimated from them."""
        observations = Observations(tallies)
        rounds, sizes = len(observations.tallies), {t.counts.size for t in observations.tallies}
        if len(sizes) > 1 or not all(tally.complete for tally in observations.tallies):
            raise Unsupported(
                "the alarm compares counts of all reports, the same in every round; check tallies of "
                "other mechanisms one by one"
            )
        if estimate.space != observations.space:
            raise InvalidInput("estimate must be about the same space as the tallies")
        drawn, operator = self._drawn(observations, estimate.distribution), observations.operator
        steps = max(1, estimate.steps)
        fitted = (after_steps(operator, drawn[k], steps) for k in batches(len(drawn), operator))
        laws = np.concatenate([np.maximum(operator._push(theta), 0.0) for theta in fitted])
        totals = np.repeat([float(tally.total) for tally in observations.tallies], sizes.pop())
        counted, expected = _by_round(drawn, rounds), _by_round(laws * totals, rounds)
        excess = _standardised(counted, expected).max(axis=1)
        return self._judged(excess, counted[0, 0] - expected[0, 0], rounds)

    def _drawn(self, observations: Observations, distribution: FloatArray) -> FloatArray:
        """The observed counts, and below them those of honest people under the fitted model."""
        generator = np.random.default_rng(self.seed)
        drawn = []
        for tally in observations.tallies:
            law = np.maximum(tally.operator._push(distribution), 0.0)
            copies = generator.multinomial(tally.total, law / law.sum(), size=self.replicates)
            drawn.append(np.concatenate((tally.counts[None, :], copies)))
        return np.concatenate(drawn, axis=1).astype(np.float64)

    def _judged(self, excess: FloatArray, surplus: FloatArray, rounds: int) -> AlarmResult:
        largest = excess.max(axis=1)
        p_value = float((largest >= largest[0]).mean())
        allowed = math.floor(self.false_alarm * len(largest) + 1e-9)
        threshold = float(np.sort(largest[1:])[-allowed])
        raised = p_value <= self.false_alarm
        above = np.flatnonzero(excess[0] > threshold) if raised else np.zeros(0, dtype=np.int64)
        worst_first = above[np.argsort(-excess[0, above], kind="stable")]
        return AlarmResult(
            raised, p_value, float(largest[0]), threshold, worst_first, excess[0], surplus,
            self.false_alarm, self.replicates, rounds,
        )  # fmt: skip


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
    return next(islice(em_path(Objective(operator, counts), starts), steps, None)).theta


def _standardised(counted: FloatArray, expected: FloatArray) -> FloatArray:
    """The surplus of each data set by the mean and spread of the others.

    Where few reports are expected the spread over the replicates says little: 1/(1 + E) is added to
    the variance, one for a report that nobody should send and nothing for those that many do.
    """
    surplus = 2 * np.sqrt(counted + 0.375) - 2 * np.sqrt(expected + 0.375)
    others = len(surplus) - 1
    mean = (surplus.sum(axis=0) - surplus) / others
    square = (np.square(surplus).sum(axis=0) - np.square(surplus)) / others
    variance = np.maximum(square - np.square(mean), 0.0)
    rare = 1 / (1 + expected[1:].mean(axis=0))
    return (surplus - mean) / np.sqrt(variance + rare)


# --- Estimating with a guard: what the alarm finds suspicious is explained as fake and taken out


class Alarm(Protocol):
    """Whatever tells suspicious reports."""

    def check(self, tallies: Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the reports fit the estimate."""


class WithFakes(Operator):
    """An operator with more rows: for each suspicious observation, those who only send it.

    Rows of honest people are scaled by the share of each round, so that they sum to one; the row of a
    source of fakes is a single one.
    """

    def __init__(self, honest: Operator, scale: FloatArray, sources: IntArray) -> None:
        self.honest = honest
        self.scale = scale
        self.sources = sources

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.honest.shape
        return rows + self.sources.size, columns

    def _push(self, theta: FloatArray) -> FloatArray:
        cells = self.honest.shape[0]
        law = self.honest._push(theta[..., :cells]) * self.scale
        law[..., self.sources] += theta[..., cells:]
        return law

    def _pull(self, values: FloatArray) -> FloatArray:
        parts = (self.honest._pull(values * self.scale), values[..., self.sources])
        return np.concatenate(parts, axis=-1)

    def _column(self, column: int) -> FloatArray:
        honest = self.honest._column(column) * self.scale[column]
        return np.concatenate((honest, self.sources == column))


Suspect = tuple[int, int]
"""A place among the tallies, and a report of it."""


def estimated_fakes(tallies: Sequence[Tally], suspects: Sequence[Suspect]) -> list[IntArray]:
    """How many of the suspicious reports are fake, tally by tally, by maximum likelihood.

    The map and the fakes of each tally are estimated together by the one loop: what neighbouring
    reports show of an honest crowd stays honest, and only the rest is fake. The tallies must be of
    mechanisms that all differ.
    """
    observations = Observations(tallies)
    sizes = [tally.counts.size for tally in observations.tallies]
    shares = [tally.total / observations.total for tally in observations.tallies]
    starts = np.cumsum([0, *sizes[:-1]])
    sources = np.array([starts[place] + report for place, report in suspects])
    operator = WithFakes(observations.operator, np.repeat(shares, sizes), sources)
    ascent = maximise(operator, observations.counts, stop=LikelihoodChange(1e-9))
    share = ascent.distribution[observations.space.size :]
    fakes = [np.zeros(size, dtype=np.int64) for size in sizes]
    for (place, report), number in zip(suspects, np.rint(share * observations.total), strict=True):
        fakes[place][report] = min(int(number), int(tallies[place].counts[report]))
    return fakes


@dataclass(frozen=True, eq=False)
class Guarded:
    """An estimate made with a guard, and what the guard did."""

    estimate: Estimate
    alarms: tuple[AlarmResult, ...]
    """The checks in turn; the last one was quiet unless the guard gave up."""
    left: tuple[Tally, ...]
    """What the estimate is made from, those of equal mechanisms added up."""
    taken: tuple[IntArray, ...]
    """What was taken out of each of them."""

    @property
    def fakes(self) -> IntArray:
        """How many of each report were taken out, over all rounds."""
        return np.sum(self.taken, axis=0, dtype=np.int64)

    @property
    def suspects(self) -> list[Suspect]:
        """Where reports were taken out: the place among ``left``, and the report."""
        return [
            (place, int(report))
            for place, taken in enumerate(self.taken)
            for report in np.flatnonzero(taken)
        ]

    def summary(self) -> str:
        """What the guard did, in words."""
        found, fakes = self.alarms[0].summary(), self.fakes
        if not fakes.any():
            return f"{found} The guard took nothing out."
        kinds = int((fakes > 0).sum())
        rest = "still does not fit" if self.alarms[-1].raised else "fits"
        return (
            f"{found} The guard took out {int(fakes.sum())} reports of {kinds} "
            f"kind{'' if kinds == 1 else 's'} as fake; what is left {rest} a map of honest people."
        )


@dataclass(frozen=True)
class GuardedUpdate:
    """The iterative Bayesian update, with fakes taken out that the alarm has found.

    Law: estimate; where the alarm is raised, estimate how many of the most suspicious report are fake
    (:func:`estimated_fakes`), take them out of the tallies, and estimate and check again, ``most``
    times at most (0 only looks). One report at a time, because fakes of one kind make others look
    suspicious too.
    Guarantee: without an alarm it is the plain update, so honest campaigns are touched only as often
    as there are false alarms; fakes that honest people could have sent stay.
    Cost: an alarm and a fit for every pass. Reference: docs/robustness.md.

    >>> import numpy as np
    >>> import geoveil as gv
    >>> from geoveil.verify.alarm import GuardedUpdate
    >>> mechanism = gv.LinearGeometric(gv.Line(30), epsilon_per_unit=0.7)
    >>> people = np.repeat([5, 6, 20], 1500)
    >>> honest = mechanism.tally(mechanism.sample(people, randomness=gv.seeded(1)))
    >>> guarded = GuardedUpdate().inspect(honest + mechanism.tally(np.full(250, 13)))
    >>> np.flatnonzero(guarded.fakes).tolist(), bool(abs(guarded.fakes.sum() - 250) < 25)
    ([13], True)
    """

    alarm: Alarm = field(default_factory=PoisoningAlarm)
    estimator: Estimator = field(default_factory=IterativeBayesianUpdate)
    most: int = 5
    least: int = 1
    """Reports that every round must keep: where fewer would be left, the guard gives up instead."""

    def __post_init__(self) -> None:
        count("most", self.most, least=0)
        count("least", self.least)

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from what the guard left."""
        return self.inspect(tallies).estimate

    @one_blas_thread()
    def inspect(
        self, tallies: Tally | Iterable[Tally], *, suspects: Iterable[tuple[Channel, int]] = ()
    ) -> Guarded:
        """The estimate, the alarms on the way to it, and how many reports were taken out.

        ``suspects`` are reports of mechanisms that were found fake before: what is fake of them goes
        before the alarm is asked; those of mechanisms that are not here are left out.
        """
        given = list(Observations(tallies).tallies)
        positions = {tally.channel: position for position, tally in enumerate(given)}
        here = {(positions[of], int(report)) for of, report in suspects if of in positions}
        for position, report in here:
            indices("suspects", report, given[position].counts.size)
        left = self._without(given, sorted(here)) or given
        estimate = self.estimator.fit(left)
        alarms = [self.alarm.check(left, estimate)]
        while alarms[-1].raised and len(alarms) <= self.most:
            worst = int(alarms[-1].suspicious[0])
            fewer = self._without(left, [(place, worst) for place in range(len(left))])
            if fewer is None:
                break
            left = fewer
            estimate = self.estimator.fit(left)
            alarms.append(self.alarm.check(left, estimate))
        taken = tuple(
            before.counts - after.counts for before, after in zip(given, left, strict=True)
        )
        return Guarded(estimate, tuple(alarms), tuple(left), taken)

    def _without(self, tallies: list[Tally], suspects: Sequence[Suspect]) -> list[Tally] | None:
        """The tallies less the fakes; ``None`` where there are none, or too few reports would be left."""
        if not suspects:
            return None
        fakes = estimated_fakes(tallies, suspects)
        fewer = [
            Tally(tally.channel, tally.counts - taken)
            for tally, taken in zip(tallies, fakes, strict=True)
        ]
        pairs = list(zip(tallies, fewer, strict=True))
        enough = all(left.total >= min(self.least, given.total) for given, left in pairs)
        return fewer if enough and any(left.total < given.total for given, left in pairs) else None
