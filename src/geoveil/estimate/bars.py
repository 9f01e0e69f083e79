"""Error bars: standard errors and intervals of cells and of regions, whichever way they were found.

Two rules hold for all of them, in :func:`held_interval`. An unbiased estimate may lie below zero; its
interval then reaches as far up as if it lay at zero, so that no interval closes on nothing. And no
share is known better than in a poll of as many people without noise: an interval holds that of
Clopper and Pearson, whose upper end is 3.7 people where nobody was counted (at 95 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from geoveil.arrays import BoolArray, FloatArray, finite
from geoveil.channel.channel import RARE
from geoveil.errors import InvalidInput

LOST = 1e-6
"""A combination that holds more than this of a direction without information is unknown."""


class ErrorBars(Protocol):
    """Standard errors and intervals of every cell, or of combinations a·θ (rows of an array)."""

    @property
    def method(self) -> str:
        """How they were found, in words."""

    @property
    def distribution(self) -> FloatArray:
        """The estimate itself, which every interval holds."""

    @property
    def centre(self) -> FloatArray:
        """What the intervals are drawn around; less biased than the estimate, maybe negative."""

    @property
    def people(self) -> int:
        """How many people the estimate was made from."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        """The standard error of every cell or combination; infinite where the data say nothing."""

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Low and high ends of the interval of every cell or combination, in [0, 1]."""


@dataclass(frozen=True, eq=False)
class GaussianErrors:
    """Error bars from an unbiased companion of the estimate and its covariance."""

    distribution: FloatArray
    centre: FloatArray
    """The unbiased estimate; it may be negative."""
    covariance: FloatArray
    lost: FloatArray
    """(cells, k): directions the data say nothing about."""
    people: int
    method: str

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        if combinations is None:
            variance, lost = np.diag(self.covariance), self.lost
        else:
            variance = np.einsum("...i,ij,...j->...", combinations, self.covariance, combinations)
            lost = combinations @ self.lost
        errors: FloatArray = np.sqrt(np.maximum(variance, 0.0))
        errors[(np.abs(lost) > LOST).any(axis=-1)] = np.inf
        errors[certain(self.distribution.size, combinations)] = 0.0
        return errors

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        return _normal_interval(self, level, combinations)


@dataclass(frozen=True, eq=False)
class DiagonalErrors:
    """Error bars from a covariance diag(spread) − factorsᵀ·factors: no matrix, any number of cells."""

    distribution: FloatArray
    centre: FloatArray
    """The unbiased estimate; it may be negative."""
    spread: FloatArray
    factors: FloatArray
    """(k, cells)."""
    people: int
    method: str

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        if combinations is None:
            variance = self.spread - np.square(self.factors).sum(axis=0)
        else:
            shared = np.square(combinations @ self.factors.T).sum(axis=-1)
            variance = np.square(combinations) @ self.spread - shared
        known = certain(self.distribution.size, combinations)
        return np.where(known, 0.0, np.sqrt(np.maximum(variance, 0.0)))

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        return _normal_interval(self, level, combinations)


@dataclass(frozen=True, eq=False)
class AveragedErrors:
    """Error bars of Σ w_A θ_A for independent estimates θ_A: variances add with weights w_A²."""

    distribution: FloatArray
    parts: Sequence[ErrorBars]
    weights: FloatArray

    @property
    def method(self) -> str:
        """How the parts' were found; they are independent of each other."""
        methods = dict.fromkeys(part.method for part in self.parts)
        return f"{len(self.parts)} independent estimates, each by: {'; '.join(methods)}"

    @property
    def centre(self) -> FloatArray:
        """The average of the parts' centres."""
        return np.asarray(self.weights @ np.stack([part.centre for part in self.parts]))

    @property
    def people(self) -> int:
        """Those of all parts."""
        return sum(part.people for part in self.parts)

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        errors = np.stack([part.standard_error(combinations) for part in self.parts])
        return np.asarray(np.sqrt(np.square(self.weights) @ np.square(errors)))

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        return _normal_interval(self, level, combinations)


@dataclass(frozen=True, eq=False)
class DrawnErrors:
    """Error bars from draws (draws, cells) out of the covariance: no matrix, any number of cells.

    A standard error out of k draws is known to a relative 1/√(2k); intervals take the quantile of
    Student's law with k degrees of freedom, which is that much wider than the normal one.
    """

    distribution: FloatArray
    centre: FloatArray
    """The less biased companion of the estimate; it may be negative."""
    draws: FloatArray
    people: int
    method: str

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        drawn = self.draws if combinations is None else self.draws @ combinations.T
        spread = np.sqrt(np.square(drawn).mean(axis=0))
        poll = poll_error(self.centre, self.people, combinations)
        return np.where(
            certain(self.distribution.size, combinations), 0.0, np.maximum(spread, poll)
        )

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        quantile = float(stdtrit(len(self.draws), 0.5 + checked_level(level) / 2))
        return _normal_interval(self, level, combinations, quantile)


def _normal_interval(
    bars: ErrorBars, level: float, combinations: FloatArray | None, quantile: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Centre ± quantile·(standard error), the centre moved to what a distribution can have."""
    if quantile is None:
        quantile = float(ndtri(0.5 + checked_level(level) / 2))
    reach = quantile * bars.standard_error(combinations)
    centre = combined(bars.centre, combinations)
    least, most = _possible(combinations)
    low, high = np.minimum(centre, most) - reach, np.maximum(centre, least) + reach
    return held_interval(bars, level, combinations, low, high)


def held_interval(
    bars: ErrorBars,
    level: float,
    combinations: FloatArray | None,
    low: FloatArray,
    high: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """An interval stretched to hold the estimate and a poll's interval, cut to [0, 1].

    0 ≤ low ≤ estimate ≤ high ≤ 1 for every cell and every set of cells.
    """
    least, most = _possible(combinations)
    width = np.where(certain(bars.distribution.size, combinations), 0.0, most - least)
    centre = np.clip(combined(bars.centre, combinations), least, most)
    share = np.divide(centre - least, width, out=np.zeros_like(centre), where=width > 0)
    poll_low, poll_high = poll_interval(share, bars.people, level)
    estimate = combined(bars.distribution, combinations)
    lowest = np.minimum.reduce([low, centre - width * (share - poll_low), estimate])
    highest = np.maximum.reduce([high, centre + width * (poll_high - share), estimate])
    return np.clip(lowest, 0, 1), np.clip(highest, 0, 1)


def poll_interval(share: FloatArray, people: int, level: float) -> tuple[FloatArray, FloatArray]:
    """What Clopper and Pearson say after a poll in which so large a share of the people said yes."""
    tail = (1 - checked_level(level)) / 2
    yes, no = people * share, people * (1 - share)
    tiny = np.finfo(float).tiny
    low = np.where(yes > 0, betaincinv(np.maximum(yes, tiny), no + 1, tail), 0.0)
    high = np.where(no > 0, betaincinv(yes + 1, np.maximum(no, tiny), 1 - tail), 1.0)
    return np.minimum(low, share), np.maximum(high, share)


def poll_error(centre: FloatArray, people: int, combinations: FloatArray | None) -> FloatArray:
    """The standard error that as many people would leave who all said where they are."""
    share = combined(centre, combinations)
    if combinations is None:
        squares, reach = share, np.array(float(share.size > 1))
    else:
        squares, reach = np.square(combinations) @ centre, np.ptp(combinations, axis=-1)
    variance = np.maximum(people * (squares - share**2), RARE * reach**2)
    return np.asarray(np.sqrt(variance) / people)


def combined(values: FloatArray, combinations: FloatArray | None) -> FloatArray:
    """The values themselves, or their combinations."""
    return values if combinations is None else combinations @ values


def certain(cells: int, combinations: FloatArray | None) -> BoolArray:
    """Which cells or combinations have the same value for every distribution, such as all cells."""
    if combinations is None:
        return np.full(cells, cells == 1)
    return np.asarray(np.ptp(combinations, axis=-1) == 0)


def _possible(combinations: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """The least and the greatest value that any distribution gives a cell or a combination."""
    if combinations is None:
        return np.zeros(()), np.ones(())
    return np.asarray(combinations.min(axis=-1)), np.asarray(combinations.max(axis=-1))


def checked_level(level: float) -> float:
    """A level strictly between 0 and 1, or an error."""
    if not 0 < finite("level", level) < 1:
        raise InvalidInput(f"level ({level}) must lie between 0 and 1, such as 0.95")
    return float(level)
