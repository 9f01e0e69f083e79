"""Evidence of loss: what draws alone prove about a channel, whatever it claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import betainccinv, betaincinv

from geoveil.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class LossBounds:
    """Lower bounds on the loss between pairs of cells (in nats), one for each event tried.

    All hold at once, except with the probability they were made for.
    """

    first: IntArray
    second: IntArray
    """The event is at least e^bound times as likely at ``first`` as at ``second`` (cells tested)."""
    loss: FloatArray


def loss_bounds(letters: IntArray, false_alarm: float) -> LossBounds:
    """Bounds on the loss between every two cells tested, from ``letters[:, k]`` drawn at each.

    The first half of the draws picks two events for every ordered pair: the single report, and the
    group of reports gathered greedily by their ratio, with the best prospects. The second half is
    counted, and Clopper–Pearson intervals, ``false_alarm`` shared equally by all, bound the ratio.
    """
    learn, test = _halves(letters)
    draws = len(letters) - len(letters) // 2
    cells = letters.shape[1]
    pairs = [(x, other) for x in range(cells) for other in range(cells) if x != other]
    seen = [
        (x, other, int(test[x, event].sum()), int(test[other, event].sum()))
        for x, other in pairs
        for event in _events(learn[x], learn[other])
    ]
    first, second, often, seldom = np.array(seen, dtype=np.int64).reshape(-1, 4).T
    level = false_alarm / (2 * max(1, len(seen)))
    bounds = np.log(lower_limit(often, draws, level) / upper_limit(seldom, draws, level))
    return LossBounds(first, second, bounds)


def _halves(letters: IntArray) -> tuple[IntArray, IntArray]:
    """Counts (cells, reports that occur) in the first and in the second half of the draws."""
    observed, index = np.unique(letters, return_inverse=True)
    index = index.reshape(letters.shape)
    half = len(letters) // 2

    def counted(part: IntArray) -> IntArray:
        return np.stack([np.bincount(cell, minlength=observed.size) for cell in part.T])

    return counted(index[:half]), counted(index[half:])


def _events(often: IntArray, seldom: IntArray) -> Iterator[BoolArray]:
    """The report and the group of reports that promise the largest ratio of the two counts."""
    single = np.zeros(often.size, dtype=np.bool_)
    single[np.argmax(_prospect(often, seldom))] = True
    yield single
    order = np.argsort((seldom + 0.5) / (often + 0.5), kind="stable")
    best = int(np.argmax(_prospect(np.cumsum(often[order]), np.cumsum(seldom[order]))))
    group = np.zeros(often.size, dtype=np.bool_)
    group[order[: best + 1]] = True
    yield group


def _prospect(often: IntArray, seldom: IntArray) -> FloatArray:
    """About the bound to expect: four standard deviations against us on both counts."""
    low = np.maximum(often - 4 * np.sqrt(often), 1e-3)
    return low / (seldom + 4 * np.sqrt(seldom) + 12)


def lower_limit(successes: IntArray, draws: int, level: float) -> FloatArray:
    """Clopper–Pearson: the probability is at least this, but for a chance of ``level``."""
    some = np.maximum(successes, 1)
    return np.where(successes > 0, betaincinv(some, draws - some + 1, level), 1e-300)


def upper_limit(successes: IntArray, draws: int, level: float) -> FloatArray:
    """Clopper–Pearson: the probability is at most this, but for a chance of ``level``."""
    some = np.minimum(successes, draws - 1)
    return np.where(successes < draws, betainccinv(some + 1, draws - some, level), 1.0)
