"""Estimating with a guard: what the alarm finds suspicious is explained as fake and taken out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count, indices, one_blas_thread
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.operator import Operator
from geoveil.estimate.bayesian_update import IterativeBayesianUpdate
from geoveil.estimate.em import maximise
from geoveil.estimate.fitted import Estimate, Observations
from geoveil.estimate.mixture import Estimator
from geoveil.estimate.stopping import LikelihoodChange
from geoveil.verify.alarm import AlarmResult, PoisoningAlarm


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
    >>> from geoveil.verify.guard import GuardedUpdate
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
