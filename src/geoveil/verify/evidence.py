"""What draws say: goodness of fit, losses that they prove, where to draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import scipy

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Channel, Excerpt
from geoveil.randomness import Randomness, seeded
from geoveil.space import Grid, Space


def loss_bounds(letters: IntArray, false_alarm: float) -> tuple[IntArray, IntArray, FloatArray]:
    """Lower bounds on the loss between every two cells tested, from ``letters[:, k]`` drawn at each.

    The first half of the draws picks two events for every ordered pair: the single report, and the
    group of reports gathered greedily by their ratio, with the best prospects. The second half is
    counted, and Clopper–Pearson intervals, ``false_alarm`` shared equally by all, bound the ratio.

    For each event tried: the positions (first, second) of two cells, and the bound in nats. The event is
    at least e^bound times as likely at the first as at the second; all bounds hold at once, except with
    probability ``false_alarm``.
    """
    observed, index = np.unique(letters, return_inverse=True)
    index = index.reshape(letters.shape)
    half, cells = len(letters) // 2, letters.shape[1]
    # (cells, reports that occur): how often in the first and in the second half of the draws
    learn, test = (
        np.stack([np.bincount(cell, minlength=observed.size) for cell in part.T])
        for part in (index[:half], index[half:])
    )
    events = [
        (x, other, int(test[x, event].sum()), int(test[other, event].sum()))
        for x, other in permutations(range(cells), 2)
        for event in _events(learn[x], learn[other])
    ]
    first, second, often, seldom = np.array(events, dtype=np.int64).reshape(-1, 4).T
    draws, level = len(letters) - half, false_alarm / (2 * max(1, len(events)))
    bounds = np.log(lower_limit(often, draws, level) / upper_limit(seldom, draws, level))
    return first, second, bounds


def _events(often: IntArray, seldom: IntArray) -> tuple[IntArray, IntArray]:
    """The report, and the group of reports, that promise the largest ratio of the two counts."""
    single = np.argmax(_prospect(often, seldom))
    order = np.argsort((seldom + 0.5) / (often + 0.5), kind="stable")
    best = int(np.argmax(_prospect(np.cumsum(often[order]), np.cumsum(seldom[order]))))
    return np.array([single]), order[: best + 1]


def _prospect(often: IntArray, seldom: IntArray) -> FloatArray:
    """About the bound to expect: four standard deviations against us on both counts."""
    low = np.maximum(often - 4 * np.sqrt(often), 1e-3)
    return low / (seldom + 4 * np.sqrt(seldom) + 12)


def lower_limit(successes: IntArray, draws: int, level: float) -> FloatArray:
    """Clopper–Pearson: the probability is at least this, but for a chance of ``level``."""
    some = np.maximum(successes, 1)
    return np.where(successes > 0, scipy.special.betaincinv(some, draws - some + 1, level), 1e-300)


def upper_limit(successes: IntArray, draws: int, level: float) -> FloatArray:
    """Clopper–Pearson: the probability is at most this, but for a chance of ``level``."""
    some = np.minimum(successes, draws - 1)
    return np.where(
        successes < draws, scipy.special.betainccinv(some + 1, draws - some, level), 1.0
    )


# --- Do draws follow a law? Tests with false-alarm probabilities that can be added up


_EXPECTED = 100.0
"""Outcomes are put together until each group is expected this often."""
_GROUPS = 8
_LONGEST = 512


def goodness_of_fit(letters: IntArray, laws: FloatArray) -> list[tuple[str, float]]:
    """p-values of the draws ``letters[:, k]`` under ``laws[k]``, each with what it looked at.

    For every cell Pearson's χ² and an exact binomial test of every single outcome; for all cells
    together the sum of the χ², and the same two tests by rank (the likeliest report of each cell,
    the second, …): equal numbers of draws at each cell vary less than draws of the mean law
    (Hoeffding 1956). Multiply the smallest by their number (Bonferroni) to judge them.
    """
    p_values: list[tuple[str, float]] = []
    total, pooled, mean = np.zeros(3), np.zeros(laws.shape[1]), np.zeros(laws.shape[1])
    for k, unordered in enumerate(laws):
        order = np.argsort(-unordered, kind="stable")
        law, counts = unordered[order], np.bincount(letters[:, k], minlength=order.size)[order]
        moments = np.array(chi_square(counts, law))
        total, pooled, mean = total + moments, pooled + counts, mean + law / len(laws)
        p_values.append((f"cell {k} of those tested", tail(*moments)))
        p_values.append((f"cell {k} of those tested, rare reports", excess(counts, law)))
    p_values.append(("all cells together", tail(*total)))
    p_values.append(("all cells, reports by rank", tail(*chi_square(pooled, mean))))
    p_values.append(("all cells, one rank", excess(pooled, mean)))
    return p_values


def chi_square(counts: FloatArray | IntArray, law: FloatArray) -> tuple[float, float, float]:
    """Pearson's statistic over grouped outcomes, with its exact mean and variance."""
    draws = int(counts.sum())
    groups = grouped(law, _EXPECTED / draws)
    observed = np.bincount(groups, weights=counts)
    chances = np.bincount(groups, weights=law)
    chances = chances / chances.sum()
    size = chances.size
    if size == 1:
        return 0.0, 0.0, 0.0
    statistic = float((np.square(observed - draws * chances) / (draws * chances)).sum())
    variance = 2 * (size - 1) + (float((1 / chances).sum()) - size**2 - 2 * size + 2) / draws
    return statistic, float(size - 1), variance


def tail(statistic: float, mean: float, variance: float) -> float:
    """P(at least this much) for a multiple of χ² with this mean and variance, doubled.

    Simulated down to 1e-5, the approximation is off by a factor below 1.4: twice it is a bound.
    """
    if mean <= 0:
        return 1.0
    scale = variance / (2 * mean)
    return min(1.0, 2 * float(scipy.special.gammaincc(mean / (2 * scale), statistic / (2 * scale))))


def grouped(law: FloatArray, least: float) -> IntArray:
    """A group for every outcome: likely ones alone, the others together until they have ``least``."""
    order = np.argsort(-law, kind="stable")
    common = int(np.searchsorted(-law[order], -least, side="right"))
    reached = np.floor(np.cumsum(law[order[common:]]) / (2 * least)).astype(np.int64)
    rare = np.cumsum(np.diff(reached, prepend=reached[:1]) > 0)  # each step up is another group
    groups = np.empty(law.size, dtype=np.int64)
    groups[order] = np.concatenate((np.arange(common), common + rare))
    last = int(groups.max(initial=0))
    if last and law[groups == last].sum() < least:
        groups[groups == last] = last - 1
    return groups


def excess(counts: FloatArray | IntArray, law: FloatArray) -> float:
    """The smallest P(this often or more) of a single outcome, times the number of outcomes."""
    draws = int(counts.sum())
    occurring = np.flatnonzero(counts)
    chances = scipy.special.betainc(
        counts[occurring], draws - counts[occurring] + 1, np.clip(law[occurring], 0.0, 1.0)
    )
    return min(1.0, law.size * float(chances.min()))


def dependence(letters: IntArray, law: FloatArray) -> float:
    """The p-value of consecutive draws being independent, whatever their law: χ² of disjoint pairs."""
    pairs = letters[: letters.size // 2 * 2].reshape(-1, 2)
    groups = _even_groups(law, math.sqrt(_EXPECTED / max(1, len(pairs))))
    number = int(groups.max()) + 1
    table = np.zeros((number, number))
    np.add.at(table, (groups[pairs[:, 0]], groups[pairs[:, 1]]), 1.0)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(1, len(pairs))
    possible = expected > 0
    statistic = float((np.square(table - expected)[possible] / expected[possible]).sum())
    freedom = float((number - 1) ** 2)
    return tail(statistic, freedom, 2 * freedom)


def _even_groups(law: FloatArray, least: float) -> IntArray:
    """At most eight groups of outcomes of about equal probability, none below ``least``."""
    order = np.argsort(-law, kind="stable")
    reached = np.cumsum(law[order]) - law[order] / 2
    groups = np.zeros(law.size, dtype=np.int64)
    for number in range(_GROUPS, 1, -1):
        groups[order] = np.clip(np.floor(reached * number), 0, number - 1)
        _, groups = np.unique(groups, return_inverse=True)
        if np.bincount(groups, weights=law).min() >= least:
            return groups
    return np.zeros(law.size, dtype=np.int64)


def repeats(letters: IntArray, law: FloatArray, false_alarm: float) -> bool:
    """Whether a stretch of draws occurs twice that is too long to do so by chance.

    Two stretches of w independent draws that do not overlap are equal with probability (Σp²)^w; w is
    taken so large that all pairs together reach ``false_alarm``. Too little noise: no answer.
    """
    collision = float(np.square(law).sum())
    chance = math.log(letters.size) * 2 - math.log(2 * false_alarm)
    if collision >= 1 or chance / -math.log(collision) > min(_LONGEST, letters.size // 4):
        return False
    width = max(1, math.ceil(chance / -math.log(collision)))
    windows = np.lib.stride_tricks.sliding_window_view(letters.astype(np.int32), width)
    keys = np.ascontiguousarray(windows).view(np.dtype((np.void, 4 * width))).ravel()
    _, group = np.unique(keys, return_inverse=True)
    first = np.full(group.max() + 1, letters.size)
    position = np.arange(group.size)
    np.minimum.at(first, group.ravel(), position)
    return bool((position - first[group.ravel()] >= width).any())


# --- What an audit looks at: some cells, their reports as whole numbers, and the law these should have


class Fault(Exception):
    """Something an audit found, as a plain sentence."""


@dataclass(frozen=True)
class View:
    """The cells under test, and what reports tell about them."""

    channel: Channel
    cells: IntArray
    excerpt: Excerpt

    @classmethod
    def of(cls, channel: Channel) -> View:
        """Some cells of a channel."""
        cells = spread_cells(channel.space, channel.excerpt_cells)
        return cls(channel, cells, channel.excerpt(cells))

    def draw(self, cells: IntArray, randomness: Randomness) -> IntArray:
        """Letters of the reports that the public sampler makes for the given cells."""
        reports = np.asarray(self.channel.sample(cells, randomness=randomness))
        shape, values = (*cells.shape, *self.excerpt.report_shape), self.excerpt.report_values
        if reports.shape != shape:
            raise Fault(f"the sampler gave shape {reports.shape} for cells of shape {shape}")
        if reports.dtype.kind not in "iu":
            kind = reports.dtype
            raise Fault(f"the sampler gave reports of type {kind} instead of whole numbers")
        if reports.size and (int(reports.min()) < 0 or int(reports.max()) >= values):
            raise Fault(f"the sampler gave a report outside 0 … {values - 1}")
        return self.excerpt.letters(reports.astype(np.int64))


def spread_cells(space: Space, most: int) -> IntArray:
    """All cells if they are few; else the corners, the centre with a neighbour, and some at random."""
    size = space.size
    if size <= most:
        return np.arange(size)
    columns = space.columns if isinstance(space, Grid) else size
    middle = size // columns // 2 * columns + columns // 2
    fixed = [middle, middle - 1, 0, 1, size - 1, columns - 1, size - columns]
    order = dict.fromkeys([*fixed, *seeded(size).below(min(size, 2**32), 4 * most).tolist()])
    return np.sort(np.array(list(order)[:most]))
