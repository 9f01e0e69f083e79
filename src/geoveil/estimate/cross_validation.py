"""Stopping where held-out reports are predicted best."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, count, finite
from geoveil.channel.operator import Operator
from geoveil.errors import InvalidInput
from geoveil.estimate.em import em_path
from geoveil.estimate.objective import Objective, checked_weights
from geoveil.estimate.stopping import Progress, Steps, StoppingRule


@dataclass(frozen=True)
class CrossValidated:
    """The number of steps that predicts held-out reports best: the default for what people look at.

    The exact maximum of the likelihood fits the noise, and a few steps leave the start visible. The
    reports are dealt at random into ``folds`` parts, ``repeats`` times over; expectation–maximisation
    runs on each complement, and the log-likelihood of the parts left out picks the number of steps
    (tried one by one up to 50, then every two per cent). It is then scaled by folds/(folds − 1),
    because all reports together carry that much more information than a complement. The search
    ends ``patience`` times past the best step so far, or when twice the steps gain less than
    ``least_gain`` nats over all reports.
    Dealing a count of n into parts is a multinomial draw, so the cost does not depend on the number
    of reports; all parts advance together as one batch, folds·repeats times the cost of a step.
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

    def __post_init__(self) -> None:
        count("folds", self.folds, least=2)
        count("repeats", self.repeats)
        count("maximum", self.maximum)
        count("seed", self.seed, least=0)
        if finite("patience", self.patience) < 1:
            raise InvalidInput(f"patience ({self.patience}) must be at least 1")
        if finite("least_gain", self.least_gain) < 0:
            raise InvalidInput(f"least_gain ({self.least_gain}) must not be negative")

    def settled(
        self,
        operator: Operator,
        weights: npt.ArrayLike,
        start: FloatArray,
        progress: Progress | None,
    ) -> StoppingRule:
        """A fixed number of steps, with the words that say how it was chosen."""
        counts = whole(checked_weights(weights, operator.shape[1]))
        held_out = self._parts(counts)
        trained = counts - held_out
        usable = (held_out.sum(axis=-1) > 0) & (trained.sum(axis=-1) > 0)
        if not usable.any():
            return Steps(1, "because one report cannot be cross-validated")
        best, ended = self._best(
            operator, trained[usable], held_out[usable], start, progress or _silent
        )
        chosen = min(self.maximum, round(best * self.folds / (self.folds - 1)))
        return Steps(chosen, self._words(ended))

    def _parts(self, counts: IntArray) -> IntArray:
        """(folds·repeats, observations): how many of each report every part holds."""
        generator = np.random.default_rng(self.seed)
        seen = np.flatnonzero(counts)
        parts = np.zeros((self.repeats * self.folds, counts.size), dtype=np.int64)
        shares = np.full(self.folds, 1.0 / self.folds)
        for repeat in range(self.repeats):
            dealt = generator.multinomial(counts[seen], shares)
            parts[repeat * self.folds : (repeat + 1) * self.folds, seen] = dealt.T
        return parts

    def _best(
        self,
        operator: Operator,
        trained: IntArray,
        held_out: IntArray,
        start: FloatArray,
        progress: Progress,
    ) -> tuple[int, bool]:
        """The step of the best held-out likelihood, and whether the search ended before the limit."""
        objective = Objective(operator, trained)
        left_out = held_out[:, objective.seen]  # what one part leaves out, another learns from
        search = _Search()
        for step, point in enumerate(em_path(objective, np.tile(start, (len(trained), 1)))):
            if step < search.due and step < self.maximum:
                continue
            value = float(np.einsum("ij,ij->", left_out, np.log(point.law)))
            search.add(step, value / self.repeats)
            end = self.patience * search.best + 20
            progress(step, max(step, min(self.maximum, int(end) + 1)))
            over = step > end or search.last_gain() < self.least_gain
            if over or step >= self.maximum:
                return search.best, over
        raise AssertionError("the path has no end")

    def _words(self, ended: bool) -> str:
        how = f"chosen by cross-validation ({self.folds} folds, {self.repeats} times)"
        return how if ended else f"{how}, whose search reached its limit of {self.maximum} steps"


class _Search:
    """The steps tried so far and the best held-out log-likelihood up to each of them."""

    def __init__(self) -> None:
        self.best = 0
        self.due = 0
        self._tried: list[int] = []
        self._best_values: list[float] = []

    def add(self, step: int, value: float) -> None:
        """One more step and its held-out log-likelihood, nats over all reports."""
        if not self._tried or value > self._best_values[-1]:
            self.best = step
        else:
            value = self._best_values[-1]
        self._tried.append(step)
        self._best_values.append(value)
        self.due = step + 1 + step // 50

    def last_gain(self) -> float:
        """What the second half of the steps gained over the first; at least 40 are wanted."""
        if self._tried[-1] < 40:
            return np.inf
        half = bisect_right(self._tried, self._tried[-1] // 2) - 1
        return self._best_values[-1] - self._best_values[half]


def whole(weights: FloatArray) -> IntArray:
    """Counts as whole numbers, or an error: only counts can be dealt into parts."""
    counts = np.rint(weights).astype(np.int64)
    if weights.ndim != 1 or (counts != weights).any():
        raise InvalidInput(
            "weights must be one vector of whole counts to be cross-validated; "
            "use CertifiedWithin or Steps for probabilities"
        )
    return counts


def _silent(done: int, of: int) -> None:
    """No progress is shown."""
