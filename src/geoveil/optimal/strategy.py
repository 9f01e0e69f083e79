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

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from scipy import sparse

from geoveil.arrays import ArrayLike, FloatArray, IntArray, positive, prior_over, teller
from geoveil.channel.composed import UnpromisedChannel
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure import Loss, loss_values
from geoveil.optimal.interior_point import ROUNDING, Progress
from geoveil.space.space import Space, checked_space, distance_km

CELL_LIMIT = 1024
"""Above this one product of the adversary's losses no longer takes a fraction of a second."""

_NEIGHBOURS = 8  # guesses each report is defended against from the start; 2 on a line
_ROUNDS = 6
_ENOUGH = 20  # fewer steps than this in a round bring nothing more
_MOST_STEPS = 3000


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


class OptimalStrategy(UnpromisedChannel):
    """A channel that leaves an adversary the largest error at a limited loss. It promises nothing.

    Guarantee: none; whoever does not know the prior exactly may be told a person's place. The
    ``optimality`` says how close the adversary's error is to what is possible.
    """

    def __init__(self, space: Space, matrix: FloatArray, optimality: StrategyOptimality) -> None:
        super().__init__(space, matrix)
        self.optimality = optimality

    def __repr__(self) -> str:
        return f"OptimalStrategy({self.space!r}, {self.optimality})"


def optimal_strategy(
    space: Space,
    prior: ArrayLike,
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
    tell = teller(progress)
    weights = prior_over(prior, checked_space(space).size)
    limit, gap = positive("mean_loss_km", mean_loss_km), positive("gap", gap)
    size, cells = space.size, np.arange(space.size)
    if size > CELL_LIMIT:
        raise TooLarge(
            f"the strategy ({size} cells) must have at most {CELL_LIMIT}; take larger cells"
        )
    losses = loss_values(loss, space, cells[:, None], cells)
    if (losses < 0).any() or np.diag(losses).any():
        raise InvalidInput(
            "loss must not be negative, and 0 for whoever is taken for where they are"
        )
    single = weights @ losses  # the mean loss of every guess made without seeing a report
    best = float(single.min())
    # what the adversary shall find best: the report, or one place where the limit is no limit
    guesses = cells if limit < best else np.full_like(cells, int(single.argmin()))
    program = _LargestEntropy(weights, losses, limit, guesses, free=limit < best)
    pairs = _nearest_guesses(space, guesses)
    # where little may be lost, so that the nearest report still has a chance: e^{−β·L} ≈ limit/L
    least = float(losses[losses > 0].min()) if losses.any() else limit
    steep = min(1.0 / limit, math.log1p(size * least / limit) / least)
    prices, steps = np.r_[steep, np.zeros(pairs.shape[1])], 0
    for number in range(_ROUNDS):
        prices, used = program.solve(pairs, prices)
        steps += used
        matrix = program.channel(pairs, prices)[0]
        joint = weights[:, None] * matrix
        if (reached := float(np.vdot(joint, losses))) > limit:
            # mixed with the truth just so much that the loss does not exceed the limit
            matrix = limit / reached * matrix + (1.0 - limit / reached) * np.eye(size)
            joint = weights[:, None] * matrix
        errors = losses.T @ joint  # (guesses, reports): what the adversary loses
        optimality = StrategyOptimality(
            float(errors.min(axis=0).sum()), min(limit, best), float(np.vdot(joint, losses)), limit,
            steps, ROUNDING,
        )  # fmt: skip
        tell((number + 1) / _ROUNDS, f"{pairs.shape[1]} guesses defended against")
        # reports after which some new guess beats the intended one, with the best such guess
        rival = errors.argmin(axis=0)
        wrong = errors[rival, cells] < errors[guesses, cells]
        wrong &= ~np.isin(cells * size + rival, pairs[0] * size + pairs[1])
        if optimality.gap <= gap:
            optimality = replace(optimality, stopped="within the gap")
            break
        if used < _ENOUGH and not wrong.any():
            break
        pairs = np.concatenate([pairs, np.stack([cells[wrong], rival[wrong]])], axis=1)
        prices = np.r_[prices, np.zeros(int(wrong.sum()))]
    return OptimalStrategy(space, matrix, optimality)


def _nearest_guesses(space: Space, guesses: IntArray) -> IntArray:
    """(2, n): reports y and the guesses z nearest to the intended one."""
    number = min((2 if space.centres.shape[1] == 1 else _NEIGHBOURS) + 1, space.size)
    _, near = scipy.spatial.cKDTree(space.centres).query(space.centres, k=number)
    reports = np.repeat(np.arange(space.size), number)
    others = np.asarray(near).reshape(space.size, number)[guesses].ravel()
    different = others != guesses[reports]
    return np.stack([reports[different], others[different]])


@dataclass(frozen=True)
class _LargestEntropy:
    """The concave program in its multipliers: β of the loss, then η(y, z) of each pair of ``pairs``.

    ``pairs`` (2, n) are reports y and guesses z; ``free`` where the whole loss is wanted, not only allowed.
    """

    prior: FloatArray
    losses: FloatArray
    limit: float
    guesses: IntArray
    free: bool

    def solve(self, pairs: IntArray, prices: FloatArray) -> tuple[FloatArray, int]:
        """The multipliers of least dual value, from ``prices`` on, and the steps it took."""
        bounds = [(None if self.free else 0.0, None)] + [(0.0, None)] * pairs.shape[1]
        advantage = self.losses[:, pairs[1]] - self.losses[:, self.guesses[pairs[0]]]

        def dual(values: FloatArray) -> tuple[float, FloatArray]:
            channel, logs = self.channel(pairs, values)
            joint = self.prior[:, None] * channel
            slope = np.r_[
                self.limit - np.vdot(joint, self.losses),
                np.einsum("xp,xp->p", advantage, joint[:, pairs[0]]),
            ]
            return float(self.prior @ logs + values[0] * self.limit), slope

        minimize: Any = scipy.optimize.minimize
        result = minimize(
            dual, prices, jac=True, method="L-BFGS-B", bounds=bounds,
            options={
                "maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "maxcor": 30,
                "ftol": 1e-15, "gtol": 1e-9 * self.limit,
            },
        )  # fmt: skip
        return result.x, int(result.nit)

    def channel(self, pairs: IntArray, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The channel (m, m) of the multipliers, and log Z(x)."""
        reports, others = pairs
        spread = sparse.csr_array((prices[1:], (reports, others)), shape=self.losses.shape)
        paid = np.bincount(reports, prices[1:], minlength=len(self.losses))
        exponent = (spread @ self.losses.T).T - prices[0] * self.losses
        exponent -= self.losses[:, self.guesses] * paid
        top = exponent.max(axis=1, keepdims=True)
        law = np.exp(exponent - top)
        total = law.sum(axis=1, keepdims=True)
        return law / total, (np.log(total) + top)[:, 0]
