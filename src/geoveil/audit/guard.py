"""Estimating with a guard: what the alarm finds suspicious is explained as fake and taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count, indices
from geoveil.audit.alarm import AlarmResult, PoisoningAlarm
from geoveil.channel.tally import Tally
from geoveil.estimate.bayesian_update import IterativeBayesianUpdate
from geoveil.estimate.em import maximise
from geoveil.estimate.estimate import Estimate
from geoveil.estimate.likelihood import Likelihood
from geoveil.estimate.mixture import Estimator
from geoveil.estimate.observations import Observations
from geoveil.estimate.stopping import LikelihoodChange


class Alarm(Protocol):
    """Whatever tells suspicious reports."""

    def check(self, tallies: Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the reports fit the estimate."""


class FakesLikelihood(Likelihood):
    """A likelihood with more unknowns: for each suspicious observation, those who only send it.

    Rows of honest people are scaled by the share of each round, so that they sum to one; the row of a
    source of fakes is a single one.
    """

    def __init__(self, honest: Likelihood, scale: FloatArray, sources: IntArray) -> None:
        self.honest = honest
        self.scale = scale
        self.sources = sources
        self.unknowns = honest.unknowns + sources.size
        self.observations = honest.observations

    def push(self, theta: FloatArray) -> FloatArray:
        cells = self.honest.unknowns
        law = self.honest.push(theta[..., :cells]) * self.scale
        law[..., self.sources] += theta[..., cells:]
        return law

    def pull(self, values: FloatArray) -> FloatArray:
        parts = (self.honest.pull(values * self.scale), values[..., self.sources])
        return np.concatenate(parts, axis=-1)

    def column(self, observation: int) -> FloatArray:
        honest = self.honest.column(observation) * self.scale[observation]
        return np.concatenate((honest, self.sources == observation))


def estimated_fakes(tallies: Tally | Iterable[Tally], suspicious: IntArray) -> list[IntArray]:
    """How many of the suspicious reports are fake, round by round, by maximum likelihood.

    The map and the fakes of each round are estimated together by the one loop: what neighbouring
    reports show of an honest crowd stays honest, and only the rest is fake.
    """
    observations = Observations(tallies)
    sizes = [tally.counts.size for tally in observations.tallies]
    shares = [tally.total / observations.total for tally in observations.tallies]
    starts = np.cumsum([0, *sizes[:-1]])
    sources = (starts[:, None] + suspicious[None, :]).ravel()
    likelihood = FakesLikelihood(observations.likelihood, np.repeat(shares, sizes), sources)
    ascent = maximise(likelihood, observations.counts, stop=LikelihoodChange(1e-9))
    share = ascent.distribution[observations.space.size :]
    fakes = np.rint(share * observations.total).astype(np.int64)
    return [
        _spread(each, suspicious, size)
        for each, size in zip(np.split(fakes, len(sizes)), sizes, strict=True)
    ]


def _spread(fakes: IntArray, suspicious: IntArray, size: int) -> IntArray:
    counts = np.zeros(size, dtype=np.int64)
    counts[suspicious] = fakes
    return counts


@dataclass(frozen=True, eq=False)
class Guarded:
    """An estimate made with a guard, and what the guard did."""

    estimate: Estimate
    alarms: tuple[AlarmResult, ...]
    """The checks in turn; the last one was quiet unless the guard gave up."""
    fakes: IntArray
    """How many of each report were taken out, over all rounds."""
    left: tuple[Tally, ...]
    """What the estimate is made from, those of equal mechanisms added up."""

    def summary(self) -> str:
        """What the guard did, in words."""
        taken = int(self.fakes.sum())
        if not taken:
            return "The guard took nothing out. " + self.alarms[-1].summary()
        kinds = int((self.fakes > 0).sum())
        return (
            f"The guard took out {taken} reports of {kinds} kind{'' if kinds == 1 else 's'} as fake. "
            + self.alarms[-1].summary()
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
    Cost: an alarm and a fit for every pass. Reference: method §9.

    >>> import numpy as np
    >>> import geoveil as gv
    >>> from geoveil.audit.guard import GuardedUpdate
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

    def __post_init__(self) -> None:
        count("most", self.most, least=0)

    def fit(self, tallies: Tally | Iterable[Tally]) -> Estimate:
        """The estimate from what the guard left."""
        return self.inspect(tallies).estimate

    def inspect(self, tallies: Tally | Iterable[Tally], *, suspects: Sequence[int] = ()) -> Guarded:
        """The estimate, the alarms on the way to it, and how many reports were taken out.

        ``suspects`` are reports known to be faked: what is fake of them goes before the alarm is asked.
        """
        left = list(Observations(tallies).tallies)
        before = _counted(left)
        if len(suspects):
            left = without_fakes(left, np.unique(indices("suspects", suspects, before.size)))
        estimate = self.estimator.fit(left)
        alarms = [self.alarm.check(left, estimate)]
        while alarms[-1].raised and len(alarms) <= self.most:
            left = without_fakes(left, alarms[-1].suspicious[:1])
            estimate = self.estimator.fit(left)
            alarms.append(self.alarm.check(left, estimate))
        return Guarded(estimate, tuple(alarms), before - _counted(left), tuple(left))


def without_fakes(tallies: list[Tally], suspicious: IntArray) -> list[Tally]:
    """The tallies less the estimated fakes among the suspicious reports, round by round."""
    fakes = estimated_fakes(tallies, suspicious)
    return [
        Tally(tally.channel, tally.counts - np.minimum(taken, tally.counts))
        for tally, taken in zip(tallies, fakes, strict=True)
    ]


def _counted(tallies: list[Tally]) -> IntArray:
    """Each report over all rounds."""
    return np.sum([tally.counts for tally in tallies], axis=0, dtype=np.int64)
