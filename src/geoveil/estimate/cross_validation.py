"""Stopping where held-out reports are predicted best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, count, finite
from geoveil.errors import InvalidInput
from geoveil.estimate.em import em_path
from geoveil.estimate.likelihood import Likelihood
from geoveil.estimate.objective import Objective, checked_weights
from geoveil.estimate.stopping import Progress, Steps, StoppingRule


@dataclass(frozen=True)
class CrossValidated:
    """The number of steps that predicts held-out reports best: the default for what people look at.

    The exact maximum of the likelihood fits the noise, and a few steps leave the start visible. The
    reports are dealt at random into ``folds`` parts, ``repeats`` times over; expectation–maximisation
    runs on each complement, and the mean log-likelihood of the parts left out picks the number of
    steps. It is then scaled by folds/(folds − 1), because all reports together carry that much
    more information than a complement. The search ends ``patience`` times past the best step so far.
    Dealing a count of n into parts is a multinomial draw, so the cost does not depend on the number
    of reports; all parts advance together as one batch, folds·repeats times the cost of a step.
    ``seed`` makes the result reproducible.

    Reference: method §3 and §10.

    >>> CrossValidated().folds, CrossValidated(repeats=4).repeats
    (5, 4)
    """

    folds: int = 5
    repeats: int = 2
    maximum: int = 5_000
    patience: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        count("folds", self.folds, least=2)
        count("repeats", self.repeats)
        count("maximum", self.maximum)
        count("seed", self.seed, least=0)
        if finite("patience", self.patience) < 1:
            raise InvalidInput(f"patience ({self.patience}) must be at least 1")

    def settled(
        self,
        likelihood: Likelihood,
        weights: npt.ArrayLike,
        start: FloatArray,
        progress: Progress | None,
    ) -> StoppingRule:
        """A fixed number of steps, with the words that say how it was chosen."""
        counts = whole(checked_weights(weights, likelihood.observations))
        held_out = self._parts(counts)
        trained = counts - held_out
        usable = (held_out.sum(axis=-1) > 0) & (trained.sum(axis=-1) > 0)
        if not usable.any():
            return Steps(1, "because one report cannot be cross-validated")
        best, ended = self._best(
            likelihood, trained[usable], held_out[usable], start, progress or _silent
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
        likelihood: Likelihood,
        trained: IntArray,
        held_out: IntArray,
        start: FloatArray,
        progress: Progress,
    ) -> tuple[int, bool]:
        """The step of the best held-out likelihood, and whether the search ended before the limit."""
        objective = Objective(likelihood, trained)
        left_out = held_out[:, objective.seen]  # what one part leaves out, another learns from
        best, best_value = 0, -np.inf
        for step, point in enumerate(em_path(objective, np.tile(start, (len(trained), 1)))):
            value = float((left_out * np.log(point.law)).sum())
            if value > best_value:
                best, best_value = step, value
            progress(step, self.maximum)
            if step >= self.maximum or step > self.patience * best + 20:
                return best, step < self.maximum
        raise AssertionError("the path has no end")

    def _words(self, ended: bool) -> str:
        how = f"chosen by cross-validation ({self.folds} folds, {self.repeats} times)"
        return how if ended else f"{how}, whose search reached its limit of {self.maximum} steps"


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
