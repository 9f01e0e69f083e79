"""The strategy of Shokri et al.: the largest error of an adversary at a limited loss of quality.

The adversary knows the prior and the channel, sees a report and guesses. Guessing the report itself
costs them no more than the user's own loss, and the best single place no more than its mean loss, so

    privacy ≤ min(Q, min_z Σ_x π(x)·L(x, z)),

whatever the channel. Keeping the truth with probability 1 − s and reporting the best single place with
probability s reaches this bound, so it *is* the optimum, and a great many channels reach it: all for
which each report is the best guess of whoever sees it. Which one a solver of the linear program
returns is an accident. Here it is the one of largest entropy, Σ_x π(x)·H(report | x), which is unique.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy
from scipy import sparse

from geoveil.arrays import FloatArray, IntArray, positive, prior_over
from geoveil.channel.composed import DenseChannel
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure.distance import Loss, loss_values
from geoveil.optimal.interior_point import ROUNDING
from geoveil.space.space import Space, distance_km

CELL_LIMIT = 1024
"""Above this one product of the adversary's losses no longer takes a fraction of a second."""

_NEIGHBOURS = 8  # guesses each report is defended against from the start; 2 on a line
_ROUNDS = 6
_ENOUGH = 20  # fewer steps than this in a round bring nothing more
_MOST_STEPS = 3000

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class StrategyOptimality:
    """How good a strategy is: ``privacy`` cannot exceed ``upper_bound``, nor ``loss`` its limit."""

    privacy: float
    """The adversary's expected loss with their best guesses, in the unit of the loss."""
    upper_bound: float
    loss: float
    limit: float
    steps: int
    stopped: str

    @property
    def gap(self) -> float:
        """(bound − privacy)/bound."""
        missing = self.upper_bound - self.privacy
        return 0.0 if missing <= 0 else missing / self.upper_bound

    def __str__(self) -> str:
        return (
            f"privacy {self.privacy:.9g} of at most {self.upper_bound:.9g}, loss {self.loss:.9g} of "
            f"{self.limit:.6g} allowed ({self.stopped}, {self.steps} steps)"
        )


class OptimalStrategy(DenseChannel):
    """A channel that leaves an adversary the largest error at a limited loss. It promises nothing.

    Guarantee: none; whoever does not know the prior exactly may be told a person's place. The
    ``optimality`` says how close the adversary's error is to what is possible.
    """

    def __init__(self, space: Space, matrix: FloatArray, optimality: StrategyOptimality) -> None:
        super().__init__(space, matrix, guarantee=None)
        self.optimality = optimality

    def __repr__(self) -> str:
        return f"OptimalStrategy({self.space!r}, {self.optimality})"


def optimal_strategy(
    space: Space,
    prior: npt.ArrayLike,
    *,
    mean_loss_km: float,
    loss: Loss = distance_km,
    gap: float = 1e-6,
    progress: Progress = lambda fraction, detail: None,
) -> OptimalStrategy:
    """The channel of largest entropy among those with the largest error of an adversary.

    Law: maximise Σ_y min_z Σ_x π(x)·C[x, y]·L(x, z) subject to Σ π(x)·C[x, y]·L(x, y) ≤ Q; of all
    channels that reach the largest value, min(Q, min_z Σ_x π(x)·L(x, z)), the one with the largest
    Σ_x π(x)·H(C[x, ·]). It has the form C[x, y] ∝ exp(−β·L(x, y) + Σ_z η(y, z)·(L(x, z) − L(x, y))), η ≥ 0.
    Guarantee: **none**. Cost: seconds for 384 cells, at most 1,024. Units: Q in those of the loss, km
    for ``distance_km``.
    Reference: Shokri et al., CCS 2012; FREEWILL §8.2.4 (the same L for user and adversary).

    >>> import geoveil as gv
    >>> strategy = optimal_strategy(gv.Line(5), [0.2] * 5, mean_loss_km=0.5)
    >>> round(strategy.optimality.privacy, 5), strategy.guarantee is None
    (0.5, True)
    """
    weights = prior_over(prior, space.size)
    limit = positive("mean_loss_km", mean_loss_km)
    losses = _checked_losses(space, loss)
    return _Search(space, weights, losses, limit, positive("gap", gap), progress).strategy()


@dataclass(frozen=True)
class _Search:
    """The concave program of largest entropy, solved in its multipliers β and η."""

    space: Space
    prior: FloatArray
    losses: FloatArray
    limit: float
    gap: float
    progress: Progress

    @cached_property
    def single(self) -> FloatArray:
        """The mean loss of every single guess, made without seeing a report."""
        return self.prior @ self.losses

    @property
    def largest(self) -> float:
        """What no strategy exceeds."""
        return min(self.limit, float(self.single.min()))

    @cached_property
    def guesses(self) -> IntArray:
        """What the adversary shall find best: the report, or one place where the limit is no limit."""
        cells = np.arange(self.space.size)
        if self.limit < self.single.min():
            return cells
        return np.full_like(cells, int(self.single.argmin()))

    def strategy(self) -> OptimalStrategy:
        """Solve, defending against more guesses until none is better than the intended ones."""
        pairs = self._near()
        prices = np.zeros(pairs.shape[1] + 1)
        prices[0] = 1.0 / self.limit
        steps = 0
        for number in range(_ROUNDS):
            prices, used = self._solved(pairs, prices)
            steps += used
            matrix = self._within_limit(self._channel(pairs, prices)[0])
            reached = self._judged(matrix, steps)
            self.progress((number + 1) / _ROUNDS, f"{pairs.shape[1]} guesses defended against")
            more = self._better_guesses(matrix, pairs)
            if reached.gap <= self.gap or (used < _ENOUGH and not more.shape[1]):
                break
            pairs = np.concatenate([pairs, more], axis=1)
            prices = np.r_[prices, np.zeros(more.shape[1])]
        stopped = "within the gap" if reached.gap <= self.gap else ROUNDING
        return OptimalStrategy(self.space, matrix, replace(reached, stopped=stopped))

    def _near(self) -> IntArray:
        """(2, n): reports y and the guesses z nearest to the intended one."""
        size = self.space.size
        wanted = min((2 if self.space.centres.shape[1] == 1 else _NEIGHBOURS) + 1, size)
        _, near = scipy.spatial.cKDTree(self.space.centres).query(self.space.centres, k=wanted)
        near = np.asarray(near).reshape(size, wanted)[self.guesses]
        reports = np.repeat(np.arange(size), wanted)
        others = near.ravel()
        kept = others != self.guesses[reports]
        return np.stack([reports[kept], others[kept]])

    def _solved(self, pairs: IntArray, prices: FloatArray) -> tuple[FloatArray, int]:
        free = self.limit < self.single.min()  # then the whole loss is wanted, not only allowed
        bounds = [(None if free else 0.0, None)] + [(0.0, None)] * pairs.shape[1]
        advantage = self.losses[:, pairs[1]] - self.losses[:, self.guesses[pairs[0]]]

        def dual(values: FloatArray) -> tuple[float, FloatArray]:
            channel, logs = self._channel(pairs, values)
            joint = self.prior[:, None] * channel
            slope = np.r_[
                self.limit - np.vdot(joint, self.losses),
                np.einsum("xp,xp->p", advantage, joint[:, pairs[0]]),
            ]
            return float(self.prior @ logs + values[0] * self.limit), slope

        minimize: Any = scipy.optimize.minimize
        found = minimize(
            dual, prices, jac=True, method="L-BFGS-B", bounds=bounds,
            options={
                "maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "maxcor": 30,
                "ftol": 1e-15, "gtol": 1e-9 * self.limit,
            },
        )  # fmt: skip
        return found.x, int(found.nit)

    def _channel(self, pairs: IntArray, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The channel of the multipliers, and log Z(x)."""
        reports, others = pairs
        size = self.space.size
        spread = sparse.csr_array((prices[1:], (reports, others)), shape=(size, size))
        exponent = (spread @ self.losses.T).T - prices[0] * self.losses
        exponent -= self.losses[:, self.guesses] * np.bincount(reports, prices[1:], minlength=size)
        top = exponent.max(axis=1, keepdims=True)
        law = np.exp(exponent - top)
        total = law.sum(axis=1, keepdims=True)
        return law / total, (np.log(total) + top)[:, 0]

    def _within_limit(self, channel: FloatArray) -> FloatArray:
        """Mixed with the truth just so much that the loss does not exceed the limit."""
        reached = float(np.vdot(self.prior[:, None] * channel, self.losses))
        if reached <= self.limit:
            return channel
        truth = 1.0 - self.limit / reached
        return (1.0 - truth) * channel + truth * np.eye(self.space.size)

    def _better_guesses(self, channel: FloatArray, pairs: IntArray) -> IntArray:
        """(2, n): reports after which some new guess beats the intended one, with the best such guess."""
        size = self.space.size
        errors = self.losses.T @ (self.prior[:, None] * channel)
        reports = np.arange(size)
        best = errors.argmin(axis=0)
        wrong = errors[best, reports] < errors[self.guesses, reports]
        wrong &= ~np.isin(reports * size + best, pairs[0] * size + pairs[1])
        return np.stack([reports[wrong], best[wrong]])

    def _judged(self, channel: FloatArray, steps: int) -> StrategyOptimality:
        joint = self.prior[:, None] * channel
        privacy = float((self.losses.T @ joint).min(axis=0).sum())
        loss = float(np.vdot(joint, self.losses))
        return StrategyOptimality(privacy, self.largest, loss, self.limit, steps, "")


def _checked_losses(space: Space, loss: Loss) -> FloatArray:
    if space.size > CELL_LIMIT:
        raise TooLarge(
            f"the strategy ({space.size} cells) must have at most {CELL_LIMIT}; take larger cells"
        )
    cells = np.arange(space.size)
    losses = loss_values(loss, space, cells[:, None], cells)
    if (losses < 0).any() or np.diag(losses).any():
        raise InvalidInput(
            "loss must not be negative, and 0 for whoever is taken for where they are"
        )
    return losses
