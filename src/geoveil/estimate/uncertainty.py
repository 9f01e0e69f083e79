"""Error bars from the Fisher information, for cells and for regions.

The estimate people look at is stopped early and kept non-negative; both pull it away from the truth,
and a bootstrap of it does not see how far. The intervals here are therefore those of the *unbiased*
estimate of the same data: one weighted least-squares step from the fit, neither stopped nor clipped.
They are then cut to [0, 1] and stretched to hold the estimate itself. On simulated data they cover
what they claim (``benchmarks/coverage.py``); where a channel blurs much, they are wide, and a region
of several cells is far better known than each cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import eigh, lapack
from scipy.special import ndtri

from geoveil.arrays import BoolArray, FloatArray, finite
from geoveil.errors import InvalidInput, TooLarge
from geoveil.estimate.information import tally_information
from geoveil.estimate.observations import Observations
from geoveil.estimate.stopping import Progress
from geoveil.space.base import MATRIX_LIMIT

_SINGULAR = 1e-12
LOST = 1e-6
"""A combination that holds more than this of a direction without information is unknown."""

Refit = Callable[[FloatArray, int], FloatArray]
"""Estimates (…, cells) for counts (…, observations), with the steps of the fit times a factor, but at
least 50."""


class ErrorBars(Protocol):
    """Standard errors and intervals of every cell, or of combinations a·θ (rows of an array)."""

    @property
    def method(self) -> str:
        """How they were found, in words."""

    @property
    def centre(self) -> FloatArray:
        """What the intervals are drawn around; less biased than the estimate, maybe negative."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        """The standard error of every cell or combination; infinite where the data say nothing."""

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Low and high ends of the interval of every cell or combination, in [0, 1]."""


class Uncertainty(Protocol):
    """A way to find error bars for a fitted distribution."""

    def errors(
        self,
        observations: Observations,
        distribution: FloatArray,
        refit: Refit,
        progress: Progress | None,
    ) -> ErrorBars:
        """The error bars of ``distribution``, which was estimated from ``observations``."""


@dataclass(frozen=True, eq=False)
class GaussianErrors:
    """Error bars from an unbiased companion of the estimate and its covariance."""

    distribution: FloatArray
    centre: FloatArray
    """The unbiased estimate; it may be negative."""
    covariance: FloatArray
    lost: FloatArray
    """(cells, k): directions the data say nothing about."""
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
        reach = ndtri(0.5 + checked_level(level) / 2) * self.standard_error(combinations)
        return around(
            combined(self.distribution, combinations),
            combined(self.centre, combinations) - reach,
            combined(self.centre, combinations) + reach,
        )


@dataclass(frozen=True)
class FisherInformation:
    """Error bars by the delta method on the simplex, up to 4,096 cells.

    Law: J = Σ_A n_A·C_A·diag(1/p_A)·C_Aᵀ, the expected information of all reports, p_A = θC_A (at least
    2.4 reports, see ``RARE``); the companion is θ + J⁺·Σ_A C_A((counts_A − n_A p_A)/p_A) and its
    covariance J⁺, both within Σθ = 1. RAPPOR enters by the sums of its bits and their covariance,
    several reports of one person by all combinations (at least 2.4 people in each cell). Where
    cells × combinations exceed 8,388,608 the observed information stands in; ``method`` says so, and the
    intervals are then too narrow unless each combination seen was seen many times.
    Cost: m²·n for the information, n the reports or combinations; m³ to invert it.
    """

    def errors(
        self,
        observations: Observations,
        distribution: FloatArray,
        refit: Refit,
        progress: Progress | None,
    ) -> GaussianErrors:
        information, score, how = fisher_information(observations, distribution)
        covariance, lost = tangent_inverse(information)
        return GaussianErrors(
            distribution=distribution,
            centre=distribution + covariance @ score,
            covariance=covariance,
            lost=lost,
            method=f"Fisher information, one unbiased step from the estimate{how}",
        )


def fisher_information(
    observations: Observations, distribution: FloatArray
) -> tuple[FloatArray, FloatArray, str]:
    """The information of all tallies at a distribution, the score (up to a constant), and how."""
    cells = observations.space.size
    if cells > MATRIX_LIMIT:
        raise TooLarge(
            f"cells ({cells}) must be at most {MATRIX_LIMIT} for the Fisher information; "
            "use uncertainty=Bootstrap(), which needs no matrix"
        )
    information, score = np.zeros((cells, cells)), np.zeros(cells)
    ways: dict[str, None] = {}
    for number, tally in enumerate(observations.tallies):
        if tally.total:
            added = tally_information(observations, number, distribution)
            information += added.matrix
            score += added.score
            ways[added.how] = None
    return information, score, "".join(f"; {how}" for how in ways if how)


def tangent_inverse(information: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The inverse of the information among changes that sum to zero, and directions without any.

    J + s·11ᵀ equals J on those changes and is regular exactly where J is regular on them.
    """
    bordered = information + information.diagonal().mean()
    scale = np.sqrt(np.maximum(bordered.diagonal(), np.finfo(float).tiny))
    scaled = bordered / scale / scale[:, None]
    inverse, lost = _regular_inverse(scaled) or _singular_inverse(scaled)
    inverse = inverse / scale / scale[:, None]
    lost = lost / scale[:, None]
    lost = lost / np.linalg.norm(lost, axis=0)
    total = inverse.sum(axis=1)
    return inverse - np.outer(total, total) / total.sum(), lost


def _regular_inverse(matrix: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        return None
    condition, _ = lapack.dpocon(factor, np.abs(matrix).sum(axis=0).max(), uplo="L")
    if condition < _SINGULAR:
        return None
    half, _ = lapack.dpotri(factor, lower=1)
    return np.tril(half) + np.tril(half, -1).T, np.zeros((len(matrix), 0))


def _singular_inverse(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    values, vectors = eigh(matrix)
    kept = values > _SINGULAR * values[-1]
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T, vectors[:, ~kept]


def combined(values: FloatArray, combinations: FloatArray | None) -> FloatArray:
    """The values themselves, or their combinations."""
    return values if combinations is None else combinations @ values


def certain(cells: int, combinations: FloatArray | None) -> BoolArray:
    """Which cells or combinations have the same value for every distribution, such as all cells."""
    if combinations is None:
        return np.full(cells, cells == 1)
    return np.asarray(np.ptp(combinations, axis=-1) == 0)


def around(
    estimate: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """An interval cut to [0, 1] and stretched to hold the estimate."""
    return np.clip(np.minimum(low, estimate), 0, 1), np.clip(np.maximum(high, estimate), 0, 1)


def checked_level(level: float) -> float:
    """A level strictly between 0 and 1, or an error."""
    if not 0 < finite("level", level) < 1:
        raise InvalidInput(f"level ({level}) must lie between 0 and 1, such as 0.95")
    return float(level)
