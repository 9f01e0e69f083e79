"""Error bars: standard errors and intervals of cells and of regions, whichever way they were found.

Two rules hold for all of them. An unbiased estimate may lie below zero; its interval then reaches as
far up as if it lay at zero, so that no interval closes on nothing. And no share is known better
than in a poll of as many people without noise: an interval holds that of Clopper and Pearson, whose
upper end is 3.7 people where nobody was counted (at 95 %). A third holds for bars from the Fisher
information. Nobody counts less than nothing: a cell holds no more than a crowd that it is part of, which
noise often lets us know far better (:class:`Nearby`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy

from geoveil import arrays
from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.channel.channel import RARE
from geoveil.errors import InvalidInput, Unsupported

Ends = tuple[FloatArray, FloatArray]
"""The low and the high ends of intervals."""
LOST = 1e-6
"""A combination that holds more than this of a direction without information is unknown."""
_COUNTED = 1e8
"""With more answers on both sides a normal law agrees with Clopper and Pearson to three digits."""
_WORTH = 0.98
"""A wider crowd must lower the end to this part of it to be worth it."""


Sums = Callable[[FloatArray], FloatArray]
"""(…, cells) to (…, groups)."""


@dataclass(frozen=True, eq=False)
class ErrorBars(ABC):
    """Standard errors and intervals of every cell, or of combinations a·θ (rows of an array)."""

    method: str
    """How they were found, in words."""
    distribution: FloatArray
    """The estimate itself, which every interval holds."""
    centre: FloatArray
    """What the intervals are drawn around; less biased than the estimate, maybe negative."""
    people: int
    """How many people the estimate was made from."""
    nearby: Nearby | None = field(default=None, kw_only=True)
    """The crowds that bound what a cell may hold, where they are known."""
    finer: tuple[ErrorBars, scipy.sparse.csr_array] | None = field(default=None, kw_only=True)
    """Where these are bars of groups: the bars of the cells, and (groups, cells) which group has which."""

    @abstractmethod
    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        """The standard error of every cell or combination; infinite where the data say nothing."""

    def interval(self, level: float, combinations: FloatArray | None = None) -> Ends:
        """Low and high ends of the interval of every cell or combination, among its possible values."""
        least, most = self._possible(combinations)
        centre = combined(self.centre, combinations)
        level = arrays.part("level", level)
        quantile = self._quantile(level)
        reach = quantile * self.standard_error(combinations)
        low, high = np.minimum(centre, most) - reach, np.maximum(centre, least) + reach
        expected = combined(self.distribution, combinations) + reach
        bounded = np.flatnonzero(np.broadcast_to((least == 0.0) & (most > 0.0), high.shape))
        if self.finer is not None and combinations is None:
            bars, members = self.finer
            high = bars._within_crowds(quantile, members, expected, high, bounded)
        elif self.nearby is not None:
            sparse = None if combinations is None else scipy.sparse.csr_array(combinations)
            high = self._within_crowds(quantile, sparse, expected, high, bounded)
        return self._stretched(level, combinations, np.minimum(low, high), high)

    def _within_crowds(
        self,
        quantile: float,
        combinations: scipy.sparse.csr_array | None,
        expected: FloatArray,
        high: FloatArray,
        bounded: IntArray,
    ) -> FloatArray:
        """High ends; those ``bounded`` are lowered to the end of a crowd around, where that is lower.

        A crowd is chosen by where its end would lie if the companion were the estimate (``expected`` is that
        end without a crowd): the lowest of several noisy ends would lie below the truth too often. Wider
        crowds are tried while they lower the end by a fiftieth.
        """
        high, expected, nearby = high.copy(), expected.copy(), self.nearby
        if nearby is None:
            return high
        for width in nearby.widths:
            crowds = nearby.crowds(width, bounded, combinations) if bounded.size else None
            if crowds is None:
                break
            further = quantile * self._crowd_error(crowds)
            instead = crowds @ self.distribution + further
            lower = instead < _WORTH * expected[bounded]
            end = np.maximum(crowds @ self.centre, 0.0) + further
            bounded = bounded[lower]
            high[bounded], expected[bounded] = end[lower], instead[lower]
        return high

    def _crowd_error(self, crowds: scipy.sparse.csr_array) -> FloatArray:
        """The standard error of combinations in a sparse array; infinite where it is not known."""
        return np.full(crowds.shape[0], np.inf)

    def of_groups(self, groups: IntArray) -> ErrorBars:
        """Error bars of groups of cells in the place of cells; each cell is in the group of its number.

        What ``combinations`` of ones and zeros say, without an array of groups × cells.
        """
        cells, number = self.distribution.size, int(groups.max(initial=-1)) + 1
        if groups.shape != (cells,) or (np.bincount(groups, minlength=number) == 0).any():
            raise InvalidInput("groups must number every cell, from 0 on, and none may be empty")
        ones = (np.ones(cells), (groups, np.arange(cells)))
        members = scipy.sparse.csr_array(ones, shape=(number, cells))

        def sums(values: FloatArray) -> FloatArray:
            return np.asarray(values @ members.T)

        both = {"distribution": sums(self.distribution), "centre": sums(self.centre)}
        by_group = both | self._summed(groups, sums)
        return replace(self, **by_group, nearby=None, finer=(self, members))

    def _summed(self, groups: IntArray, sums: Sums) -> dict[str, Any]:
        """The fields of this kind of bars that are by cell, summed by group."""
        raise Unsupported("these error bars know nothing of cells")

    def _quantile(self, level: float) -> float:
        return float(scipy.special.ndtri(0.5 + level / 2))

    def _stretched(
        self, level: float, combinations: FloatArray | None, low: FloatArray, high: FloatArray
    ) -> Ends:
        """An interval stretched to hold the estimate and a poll's interval, cut to what is possible.

        0 ≤ low ≤ estimate ≤ high ≤ 1 for every cell and every set of cells. A difference is that of two
        polls; how far they reach adds in squares (Zou & Donner, Statistics in Medicine 27, 2008).
        """
        least, most = self._possible(combinations)
        centre = np.clip(combined(self.centre, combinations), low, high).clip(least, most)
        # a = base + up − down, base the possible value nearest to zero; only differences have both parts
        base = np.clip(0.0, least, most)
        fallen, down = np.zeros_like(centre), base - least
        if combinations is not None:
            fallen = np.maximum(base[..., None] - combinations, 0.0) @ self.centre
        fallen = np.clip(fallen, np.maximum(base - centre, 0.0), down)
        ups = self._poll(level, centre - base + fallen, most - base)
        downs = self._poll(level, fallen, down)
        estimate = combined(self.distribution, combinations)
        lowest = np.minimum.reduce([low, centre - np.hypot(ups[0], downs[1]), estimate])
        highest = np.maximum.reduce([high, centre + np.hypot(ups[1], downs[0]), estimate])
        return np.clip(lowest, least, most), np.clip(highest, least, most)

    def _poll(self, level: float, value: FloatArray, width: FloatArray) -> Ends:
        """How far down and up Clopper and Pearson reach after a poll in which value/width said yes."""
        share = np.divide(value, width, out=np.zeros_like(value), where=width > 0).clip(0, 1)
        tail, tiny = (1 - level) / 2, np.finfo(float).tiny
        yes, no = self.people * share, self.people * (1 - share)
        quantile = float(scipy.special.ndtri(1 - tail))
        # wider than theirs by a few people, where quantiles would take long or are not right
        many = quantile * np.sqrt(share * (1 - share) / self.people)
        many += (quantile**2 + 3) / self.people
        few = np.minimum(yes, no) <= _COUNTED
        some, others = np.where(few, yes, 1.0), np.where(few, no, 1.0)
        fewest = np.where(
            some > 0, scipy.special.betaincinv(np.maximum(some, tiny), others + 1, tail), 0.0
        )
        most_of = np.where(
            others > 0, scipy.special.betaincinv(some + 1, np.maximum(others, tiny), 1 - tail), 1.0
        )
        down, up = (
            width * np.where(few & (gap >= 0), gap, many)
            for gap in (share - fewest, most_of - share)
        )
        return down, up

    def _possible(self, combinations: FloatArray | None) -> Ends:
        """The least and the greatest value that any distribution gives a cell or a combination."""
        if combinations is None:
            return np.full(self.distribution.size, float(self.distribution.size == 1)), np.ones(())
        return np.asarray(combinations.min(axis=-1)), np.asarray(combinations.max(axis=-1))

    def _certain(self, combinations: FloatArray | None) -> BoolArray:
        """Which cells or combinations have the same value for every distribution, such as all cells."""
        least, most = self._possible(combinations)
        return np.asarray(least == most)

    def _poll_error(self, combinations: FloatArray | None) -> FloatArray:
        """The standard error that as many people would leave who all said where they are."""
        share = combined(self.centre, combinations)
        if combinations is None:
            squares, reach = share, np.array(float(share.size > 1))
        else:
            squares, reach = np.square(combinations) @ self.centre, np.ptp(combinations, axis=-1)
        variance = np.maximum(self.people * (squares - share**2), RARE * reach**2)
        return np.asarray(np.sqrt(variance) / self.people)


@dataclass(frozen=True, eq=False)
class GaussianErrors(ErrorBars):
    """Error bars from an unbiased companion of the estimate and its covariance (cells, cells)."""

    covariance: FloatArray
    lost: FloatArray
    """(cells, k): directions the data say nothing about."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        if combinations is None:
            variance = np.diag(self.covariance)
        else:
            variance = np.einsum("...i,...i->...", combinations @ self.covariance, combinations)
        errors = np.sqrt(np.maximum(variance, 0.0))
        errors[_unknown(self.lost, combinations)] = np.inf
        errors[self._certain(combinations)] = 0.0
        return np.asarray(errors)

    def _crowd_error(self, crowds: scipy.sparse.csr_array) -> FloatArray:
        variance = np.asarray(crowds.multiply(crowds @ self.covariance).sum(axis=-1))
        errors = np.sqrt(np.maximum(variance, 0.0))
        return np.where((np.abs(crowds @ self.lost) > LOST).any(axis=-1), np.inf, errors)

    def _summed(self, groups: IntArray, sums: Sums) -> dict[str, Any]:
        between = sums(sums(self.covariance).T)
        return {"covariance": between, "lost": sums(self.lost.T).T}


@dataclass(frozen=True, eq=False)
class DiagonalErrors(ErrorBars):
    """Error bars from a covariance diag(spread) − factorsᵀ·factors: no matrix, any number of cells."""

    spread: FloatArray
    factors: FloatArray
    """(k, cells)."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        if combinations is None:
            variance = self.spread - np.square(self.factors).sum(axis=0)
        else:
            shared = np.square(combinations @ self.factors.T).sum(axis=-1)
            variance = np.square(combinations) @ self.spread - shared
        return np.where(self._certain(combinations), 0.0, np.sqrt(np.maximum(variance, 0.0)))

    def _summed(self, groups: IntArray, sums: Sums) -> dict[str, Any]:
        return {"spread": sums(self.spread), "factors": sums(self.factors)}


@dataclass(frozen=True, eq=False)
class AveragedErrors(ErrorBars):
    """Error bars of Σ w_A θ_A for independent estimates θ_A of groups, w_A their shares of n people.

    Variances add with weights w_A². The shares are those of the people who took part and might have been
    others: where groups are at different places that adds Σ w_A(θ_A − θ)²/n, as in a poll.
    """

    parts: Sequence[ErrorBars]
    weights: FloatArray

    @classmethod
    def of(
        cls, distribution: FloatArray, parts: Sequence[ErrorBars], weights: FloatArray
    ) -> ErrorBars:
        """The bars of the average, from the bars of the parts."""
        methods = "; ".join(dict.fromkeys(part.method for part in parts))
        centre = np.asarray(weights @ np.stack([part.centre for part in parts]))
        method = f"{len(parts)} independent estimates, each by: {methods}"
        return cls(method, distribution, centre, sum(p.people for p in parts), parts, weights)

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        errors = np.stack([part.standard_error(combinations) for part in self.parts])
        away = np.stack([combined(part.centre - self.centre, combinations) for part in self.parts])
        within = np.square(self.weights) @ np.square(errors)
        return np.asarray(np.sqrt(within + self.weights @ np.square(away) / self.people))

    def _summed(self, groups: IntArray, sums: Sums) -> dict[str, Any]:
        return {"parts": [part.of_groups(groups) for part in self.parts]}


@dataclass(frozen=True, eq=False)
class EitherErrors(ErrorBars):
    """Error bars where it is not known which of several sets of reports is the right one.

    An interval runs from the lowest of their low ends to the highest of their high ends; for the cells
    ``named``, about which the last set is known to be wrong, without that.
    """

    parts: Sequence[ErrorBars]
    named: IntArray

    @classmethod
    def of(
        cls, distribution: FloatArray, parts: Sequence[ErrorBars], named: IntArray, words: str
    ) -> ErrorBars:
        """The bars of an estimate from the first of the sets; ``words`` say which sets there are."""
        first, people = parts[0], min(part.people for part in parts)
        return cls(f"{first.method}{words}", distribution, first.centre, people, parts, named)

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        centre = combined(self.centre, combinations)
        away = [combined(part.centre, combinations) - centre for part in self.parts]
        errors = np.hypot([part.standard_error(combinations) for part in self.parts], away)
        if combinations is None and len(self.parts) > 1:
            errors[-1, self.named] = 0.0
        return np.asarray(errors.max(axis=0))

    def interval(self, level: float, combinations: FloatArray | None = None) -> Ends:
        ends = [part.interval(level, combinations) for part in self.parts]
        low, high = (np.array(side) for side in zip(*ends, strict=True))
        if combinations is None and len(self.parts) > 1:
            low[-1, self.named], high[-1, self.named] = low[0, self.named], high[0, self.named]
        return self._stretched(level, combinations, low.min(axis=0), high.max(axis=0))

    def _summed(self, groups: IntArray, sums: Sums) -> dict[str, Any]:
        parts = [part.of_groups(groups) for part in self.parts]
        return {"parts": parts, "named": self.named[:0]}


@dataclass(frozen=True, eq=False)
class DrawnErrors(ErrorBars):
    """Error bars from draws (draws, cells) out of the covariance: no matrix, any number of cells.

    A standard error out of k draws is known to a relative 1/√(2k); intervals take the quantile of
    Student's law with k degrees of freedom, which is that much wider than the normal one.
    """

    draws: FloatArray
    lost: FloatArray | None = None
    """(cells, k): directions the data say nothing about, where there are some."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        spread = np.sqrt(np.square(combined(self.draws.T, combinations)).mean(axis=-1))
        errors = np.maximum(spread, self._poll_error(combinations))
        if self.lost is not None:
            errors = np.where(_unknown(self.lost, combinations), np.inf, errors)
        return np.where(self._certain(combinations), 0.0, errors)

    def _crowd_error(self, crowds: scipy.sparse.csr_array) -> FloatArray:
        return np.asarray(np.sqrt(np.square(crowds @ self.draws.T).mean(axis=-1)))

    def _quantile(self, level: float) -> float:
        return float(scipy.special.stdtrit(len(self.draws), 0.5 + level / 2))

    def _summed(self, groups: IntArray, sums: Sums) -> dict[str, Any]:
        lost = None if self.lost is None else sums(self.lost.T).T
        return {"draws": sums(self.draws), "lost": lost}


@dataclass(frozen=True, eq=False)
class SolvedErrors(ErrorBars):
    """Error bars of some combinations alone: no matrix and no draws, any number of cells."""

    combinations: FloatArray
    """(k, cells): those that can be asked for."""
    variance: FloatArray
    """(k,)."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        if combinations is None or not np.array_equal(combinations, self.combinations):
            raise Unsupported(
                "these error bars are those of the regions they were made for; ask the estimate for others"
            )
        spread = np.sqrt(np.maximum(self.variance, 0.0))
        errors = np.maximum(spread, self._poll_error(combinations))
        return np.where(self._certain(combinations), 0.0, errors)


@dataclass(frozen=True, eq=False)
class BootstrapErrors(ErrorBars):
    """Error bars from estimates of resampled data; the centre is the estimate carried on.

    Interval: whatever the percentile and the basic bootstrap interval hold, one or the other; for
    estimates near zero either alone misses far too often. Standard error: the spread of the replicates
    and how far the estimate itself still moves when it is carried on. What the reports cannot tell apart
    has an infinite error and the interval [0, 1].
    """

    replicates: FloatArray
    lost: FloatArray
    """(cells, k): directions the data say nothing about."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        spread = combined(self.replicates.T, combinations).std(axis=-1, ddof=1)
        moved = combined(self.centre - self.distribution, combinations)
        errors = np.maximum(np.hypot(spread, moved), self._poll_error(combinations))
        return np.where(_unknown(self.lost, combinations), np.inf, errors)

    def interval(self, level: float, combinations: FloatArray | None = None) -> Ends:
        tail = (1 - arrays.part("level", level)) / 2
        replicates = combined(self.replicates.T, combinations)
        low, high = np.quantile(replicates, [tail, 1 - tail], axis=-1)
        centre = combined(self.centre, combinations)
        lost = np.where(_unknown(self.lost, combinations), np.inf, 0.0)
        lowest, highest = np.minimum(low, 2 * centre - high), np.maximum(high, 2 * centre - low)
        return self._stretched(level, combinations, lowest - lost, highest + lost)

    def _summed(self, groups: IntArray, sums: Sums) -> dict[str, Any]:
        return {"replicates": sums(self.replicates), "lost": sums(self.lost.T).T}


def combined(values: FloatArray, combinations: FloatArray | None) -> FloatArray:
    """The values themselves, or their combinations."""
    return values if combinations is None else combinations @ values


def _unknown(lost: FloatArray, combinations: FloatArray | None) -> BoolArray:
    """Which cells or combinations hold something of a lost direction."""
    return np.asarray((np.abs(combined(lost, combinations)) > LOST).any(axis=-1))


# --- Crowds: weighted people around a cell, of whom its own are a part


_ENDS = 3.0
_ENTRIES = 1 << 22
"""The most weights of crowds that are held at once."""


class Nearby:
    """Crowds around cells and regions, which hold all the people of these: weights v ≥ a for every a ≥ 0.

    Since nobody counts less than nothing, a·θ ≤ v·θ. Law: v_y = max_x a_x·exp(−d(x, y)²/2s²), cut off where
    d exceeds 3s, with s from 0.63 of the distance of neighbours on, each 1.26 times the last.
    """

    widths = range(12)
    """The numbers of s."""

    def __init__(self, centres_km: FloatArray) -> None:
        self._centres_km = centres_km

    def crowds(
        self, width: int, rows: IntArray, combinations: scipy.sparse.csr_array | None
    ) -> scipy.sparse.csr_array | None:
        """(rows, cells): around these cells or combinations; ``None`` where they are too many weights."""
        from scipy.spatial import cKDTree  # here, since it is slow to import

        cells, tree = len(self._centres_km), cKDTree(self._centres_km)
        nearest_km = np.asarray(tree.query(self._centres_km, k=2)[0])[:, 1]
        spread_km = float(np.median(nearest_km)) * 2 ** ((width - 2) / 3)
        pairs = tree.sparse_distance_matrix(tree, _ENDS * spread_km, output_type="ndarray")
        weights = np.exp(-np.square(pairs["v"] / spread_km) / 2)
        around = scipy.sparse.csr_array((weights, (pairs["i"], pairs["j"])), shape=(cells, cells))
        if combinations is None:
            return around[rows] if around.nnz <= _ENTRIES else None
        chosen = combinations[rows]
        if chosen.nnz * (around.nnz / cells) > _ENTRIES:
            return None
        return _largest(chosen, around)


def _largest(
    combinations: scipy.sparse.csr_array, around: scipy.sparse.csr_array
) -> scipy.sparse.csr_array:
    """(k, cells): max_x a_x·around[x, y] for each combination a of (k, cells)."""
    factors, cells = around[combinations.indices], around.shape[1]
    weights = factors.data * np.repeat(combinations.data, np.diff(factors.indptr))
    row = np.repeat(np.arange(combinations.shape[0]), np.diff(combinations.indptr))
    place = np.repeat(row, np.diff(factors.indptr)) * cells + factors.indices
    order = np.argsort(place, kind="stable")
    places, first = np.unique(place[order], return_index=True)
    largest = np.maximum.reduceat(weights[order], first)
    return scipy.sparse.csr_array((largest, np.divmod(places, cells)), shape=combinations.shape)
