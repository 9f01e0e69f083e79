"""When to stop: small frozen rules, each with a limit on the steps and a reason in words."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from geoveil.arrays import (
    ArrayLike,
    FloatArray,
    IntArray,
    able,
    checked_seed,
    count,
    finite,
    positive,
    teller,
)
from geoveil.channel.observed import ObservedColumns
from geoveil.channel.operator import MovedOperator, Operator
from geoveil.errors import InvalidInput, number_of
from geoveil.estimate.objective import (
    Objective,
    Point,
    checked_weights,
    em_step,
    pooled,
    shared_path,
)

Progress = Callable[[int, int], None]
"""Called with how much of the work is done and how much there is; the ratio never falls."""

_PARTS = 1000
_STILL_GROWING = 1.5
"""Gains of twice the steps that are so many times those before: 2 where each step gains the same."""


class Meter:
    """Tells a progress in thousandths of the whole: it never falls, and reaches the end once."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = teller(progress)
        self._thousandths = -1

    def at(self, fraction: float) -> None:
        """So much is done, in [0, 1]; nothing is reported where it is less than before."""
        thousandths = int(_PARTS * min(1.0, fraction))
        if thousandths > self._thousandths:
            self._thousandths = thousandths
            self._progress(thousandths, _PARTS)

    def first(self, share: float) -> Progress:
        """A progress of its own for the first ``share`` of the work."""
        return lambda part, whole: self.at(share * part / whole)


@dataclass
class Trace:
    """The start and every step that was looked at: log-likelihood and certificate, nats per observation."""

    log_likelihood: list[float] = field(default_factory=list)
    certificate: list[float] = field(default_factory=list)
    steps: int = 0
    """How many steps were made; the start is not one."""

    def add(self, log_likelihood: float, certificate: float, step: int) -> None:
        """One more point of the ascent, after so many steps."""
        self.log_likelihood.append(log_likelihood)
        self.certificate.append(certificate)
        self.steps = step


class Stop(Protocol):
    """What ``stop=`` takes: a rule, or what becomes one after a look at the data."""

    def settled(
        self, operator: Operator, weights: ArrayLike, start: FloatArray, progress: Progress | None
    ) -> StoppingRule:
        """The rule to apply to these data."""


def check_stop(stop: Any) -> None:
    """Refuse what is no rule, such as a bare number of steps."""
    able("stop", stop, "settled", "a rule, such as gv.Steps(10) or gv.CertifiedWithin(1e-6)")


class StoppingRule(ABC):
    """Decides after every step whether the ascent ends, and says why."""

    maximum: int
    """The ascent ends here at the latest."""

    @abstractmethod
    def satisfied(self, trace: Trace) -> str | None:
        """Why the ascent ends here, in words; ``None`` to go on."""

    def reason(self, trace: Trace) -> str | None:
        """Why the ascent ends here, the limit on the steps included."""
        said = self.satisfied(trace)
        if said is None and trace.steps >= self.maximum:
            return (
                f"at the limit of {number_of(self.maximum, 'step')}; the log-likelihood is at most "
                f"{trace.certificate[-1]:.2g} nats per report below its maximum"
            )
        return said

    def fraction(self, trace: Trace) -> float:
        """How much of the ascent is done, as far as can be told: the steps out of their limit."""
        return trace.steps / max(1, self.maximum)

    def settled(
        self, operator: Operator, weights: ArrayLike, start: FloatArray, progress: Progress | None
    ) -> StoppingRule:
        """This rule itself, whatever the data."""
        return self


@dataclass(frozen=True)
class Steps(StoppingRule):
    """A fixed number of steps, to reproduce the papers or to stop as another run did.

    >>> Steps(10).maximum
    10
    """

    number: int
    words: str = "as asked"
    uneven: bool = False
    """Whether people are not taken to stand evenly in their cells, where that matters."""
    maximum: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "maximum", count("number", self.number, least=0))

    def satisfied(self, trace: Trace) -> str | None:
        if trace.steps < self.number:
            return None
        return f"after {number_of(self.number, 'step')}, {self.words}"


@dataclass(frozen=True)
class _Tolerant(StoppingRule):
    """Until a number that falls is within a tolerance."""

    tolerance: float
    maximum: int = 100_000

    def __post_init__(self) -> None:
        positive("tolerance", self.tolerance)
        count("maximum", self.maximum, least=0)

    def _way(self, first: float, now: float) -> float:
        """How far a falling positive number has come from the first on, in powers of ten."""
        if now <= self.tolerance or first <= self.tolerance:
            return 1.0
        return 1.0 - math.log(now / self.tolerance) / math.log(first / self.tolerance)


@dataclass(frozen=True)
class CertifiedWithin(_Tolerant):
    """Until the log-likelihood is proven to be within ``tolerance`` nats per report of its maximum.

    Law: log max_x g_x ≤ tolerance, which bounds f* − f from above.
    """

    tolerance: float = 1e-6

    def satisfied(self, trace: Trace) -> str | None:
        if trace.certificate[-1] > self.tolerance:
            return None
        return (
            f"certified within {self.tolerance:.2g} nats per report of the maximum, "
            f"after {number_of(trace.steps, 'step')}"
        )

    def fraction(self, trace: Trace) -> float:
        return self._way(trace.certificate[0], trace.certificate[-1])


@dataclass(frozen=True)
class LikelihoodChange(_Tolerant):
    """Until one step changes the log-likelihood by less than ``tolerance`` nats per report.

    The rule of the papers (IBU and FREEWILL, Alg. 1: ``|L(θᵗ) − L(θᵗ⁻¹)| < δ``). A small change does not
    mean that the maximum is near: look at the certificate.
    """

    tolerance: float = 1e-8

    def satisfied(self, trace: Trace) -> str | None:
        values = trace.log_likelihood
        if trace.steps == 0 or abs(values[-1] - values[-2]) >= self.tolerance:
            return None
        return (
            f"the log-likelihood changed by less than {self.tolerance:.2g} nats per report, "
            f"after {number_of(trace.steps, 'step')}"
        )

    def fraction(self, trace: Trace) -> float:
        values = trace.log_likelihood
        if trace.steps == 0:
            return 0.0
        return self._way(abs(values[1] - values[0]), abs(values[-1] - values[-2]))


# --- Stopping where held-out reports are predicted best


class ChosenSteps(NamedTuple):
    """The steps that cross-validation chose, and how well they predict."""

    rule: Steps
    held_out: float
    """The log-likelihood of the reports left out, nats over all reports; only differences mean anything."""


@dataclass(frozen=True)
class CrossValidated:
    """The number of steps that predicts held-out reports best: the default for what people look at.

    The exact maximum of the likelihood fits the noise, and a few steps leave the start visible. The
    reports are dealt at random into ``folds`` parts, ``repeats`` times over; expectation–maximisation
    runs on each complement, and the log-likelihood of the parts left out picks the number of steps
    (tried one by one up to 50, then every two per cent). It is then scaled by folds/(folds − 1),
    because all reports together carry that much more information than a complement. The search
    ends ``beyond`` steps after ``patience`` times the best step so far, or when twice the steps gain less
    than ``least_gain`` nats over all reports and will not before ``maximum``.
    Dealing a count of n into parts is a multinomial draw, so the cost does not depend on the number
    of reports; all parts advance together as one batch, folds·repeats times the cost of a step (from four
    million cells on they take turns, and one vector of each is held beside one ascent). Rounds that are
    alike share steps where these take time (:func:`~geoveil.estimate.objective.shared_path`): the number is
    then tried only where all of them are looked at, from the twelfth on after a sixth more steps. Where maps
    are so large, or rounds so many, that parts × observations exceed 2²¹, fewer parts are left out, at least
    two: over so many observations each of them says nearly the same.
    ``seed`` makes the result reproducible.
    Reference: docs/estimation.md and docs/decisions/0006-stopping.md.

    >>> CrossValidated().folds, CrossValidated(repeats=4).repeats
    (5, 4)
    """

    folds: int = 5
    repeats: int = 2
    maximum: int = 5_000
    patience: float = 2.0
    least_gain: float = 0.5
    seed: int = 0
    beyond: int = 20

    def __post_init__(self) -> None:
        count("folds", self.folds, least=2)
        count("repeats", self.repeats)
        count("maximum", self.maximum)
        checked_seed(self.seed)
        count("beyond", self.beyond)
        finite("patience", self.patience, least=1)
        finite("least_gain", self.least_gain, least=0)

    def settled(
        self, operator: Operator, weights: ArrayLike, start: FloatArray, progress: Progress | None
    ) -> StoppingRule:
        """A fixed number of steps, with the words that say how it was chosen."""
        return self.found(operator, weights, start, progress).rule

    def found(
        self, operator: Operator, weights: ArrayLike, start: FloatArray, progress: Progress | None
    ) -> ChosenSteps:
        """The number of steps, and how well held-out reports are predicted after them."""
        checked = checked_weights(weights, operator.shape[1])
        counts = np.rint(checked).astype(np.int64)
        if checked.ndim != 1 or (counts != checked).any():  # only counts can be dealt into parts
            raise InvalidInput(
                "weights must be one vector of whole counts to be cross-validated; "
                "use CertifiedWithin or Steps for probabilities"
            )
        used = self.folds * self.repeats
        used = min(used, max(_FEWEST_PARTS, _MOST_ENTRIES // counts.size))
        dealt = replace(self, repeats=-(-used // self.folds)).parts(counts)
        held_out = dealt if used == len(dealt) else dealt[:used].copy()
        left_out = held_out.sum(axis=-1)
        usable = (left_out > 0) & (left_out < counts.sum())
        if not usable.any():
            return ChosenSteps(Steps(1, "because one report cannot be cross-validated"), 0.0)
        held_out = held_out if usable.all() else held_out[usable]
        apart = counts.size >= _LARGE_SIZE and not isinstance(operator, MovedOperator)
        scores = (_apart if apart else _together)(operator, counts, held_out, start)
        search, ended = self.best(scores, used / self.folds, progress)
        chosen = min(self.maximum, round(search.best * self.folds / (self.folds - 1)))
        times = f"{self.folds} folds, {'once' if self.repeats == 1 else f'{self.repeats} times'}"
        if used < self.folds * self.repeats:
            times = f"{used} parts left out, each one in {self.folds} of the reports"
        how = f"chosen by cross-validation ({times})"
        limit = f", whose search reached its limit of {number_of(self.maximum, 'step')}"
        return ChosenSteps(Steps(chosen, how if ended else how + limit), search.best_value)

    def parts(self, counts: IntArray) -> IntArray:
        """(folds·repeats, observations): how many of each report every part holds."""
        generator = np.random.default_rng(self.seed)
        observed = np.flatnonzero(counts)
        parts = np.zeros((self.repeats * self.folds, counts.size), dtype=np.int64)
        shares = np.full(self.folds, 1.0 / self.folds)
        for repeat in range(self.repeats):
            dealt = generator.multinomial(counts[observed], shares)
            parts[repeat * self.folds : (repeat + 1) * self.folds, observed] = dealt.T
        return parts

    def is_over(self, search: Search, step: int) -> bool:
        """Whether more steps are not worth trying."""
        if step > self.patience * search.best + self.beyond:
            return True
        gain, before = search.last_gains()
        if gain >= self.least_gain:
            return False
        # Far from the maximum EM may begin slowly (randomised response with many cells): as long as twice the
        # steps gain more and more, go on if that would become worth it within the limit.
        growth = gain / before if before > 0 else 0.0
        if growth < _STILL_GROWING or step >= self.maximum:
            return True
        doublings = math.log2(self.maximum / step)
        return gain * growth**doublings < self.least_gain

    def best(
        self, scores: Iterator[Scored], times: float, progress: Progress | None
    ) -> tuple[Search, bool]:
        """The search, where every report is left out so many times; whether it ended before the limit."""
        search = Search()
        for step, score in scores:
            if step < search.due and step < self.maximum:
                continue
            search.add(step, score() / times)
            end = self.patience * search.best + self.beyond
            if progress is not None:
                progress(step, max(step, min(self.maximum, int(end) + 1)))
            over = self.is_over(search, step)
            if over or step >= self.maximum:
                return search, over
        raise AssertionError("the path has no end")


Scored = tuple[int, Callable[[], float]]
"""A number of steps, and how well what was left out is predicted after them."""
_MOST_ENTRIES, _FEWEST_PARTS = 1 << 21, 2
"""Parts × observations, at most, but for so many parts."""
_LARGE_SIZE = 1 << 22
"""From so many observations on, the complements of parts take turns, in the memory of one ascent."""


def _together(
    operator: Operator, counts: IntArray, held_out: IntArray, start: FloatArray
) -> Iterator[Scored]:
    """How well the parts are predicted after 0, 1, … steps: all complements advance as one batch."""
    learnt = (counts - held_out).astype(np.float64)
    objective, few = Objective(operator, learnt), pooled(operator, learnt)
    left_out = objective.others(held_out)  # what one part leaves out, another learns from
    for step, point in shared_path(objective, few, np.tile(start, (len(held_out), 1))):
        yield step, partial(point.score, left_out)


def _apart(
    operator: Operator, counts: IntArray, held_out: IntArray, start: FloatArray
) -> Iterator[Scored]:
    """The same, one complement after another: only its distribution is kept of each."""
    columns = ObservedColumns(operator, counts.astype(np.float64))
    observed = columns.observations
    thetas = np.tile(start, (len(held_out), 1))
    for step in itertools.count():
        predicted = 0.0
        for theta, part in zip(thetas, held_out, strict=True):
            left_out = part[observed].astype(np.float64)
            weights = counts[observed] - left_out
            weights /= weights.sum()
            law = columns.push(theta)
            point = Point(theta, law, columns.pull(weights / law), weights)
            predicted += point.score(left_out)
            theta[:] = em_step(point)
        yield step, partial(float, predicted)


class Search:
    """The steps tried so far and the best held-out log-likelihood up to each of them."""

    def __init__(self) -> None:
        self.best = 0
        self.due = 0
        self._steps: list[int] = []
        self._best_values: list[float] = []

    def add(self, step: int, value: float) -> None:
        """One more step and its held-out log-likelihood, nats over all reports."""
        if not self._steps or value > self._best_values[-1]:
            self.best = step
        else:
            value = self._best_values[-1]
        self._steps.append(step)
        self._best_values.append(value)
        self.due = step + 1 + step // 50

    @property
    def best_value(self) -> float:
        """The best held-out log-likelihood so far."""
        return self._best_values[-1]

    def last_gains(self) -> tuple[float, float]:
        """The gain of the second half of the steps, and the gain of the second quarter of them.

        Infinite before 40 steps.
        """
        last = self._steps[-1]
        if last < 40:
            return math.inf, math.inf
        end, half, quarter = (
            self._best_values[bisect_right(self._steps, last // part) - 1] for part in (1, 2, 4)
        )
        return end - half, half - quarter
