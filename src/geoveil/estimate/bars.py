"""Error bars with a closed form: of linear estimates, and of averages of independent ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from geoveil.arrays import FloatArray
from geoveil.estimate.uncertainty import ErrorBars, around, certain, checked_level, combined


@dataclass(frozen=True, eq=False)
class DiagonalErrors:
    """Error bars from a covariance diag(spread) − factorsᵀ·factors: no matrix, any number of cells."""

    distribution: FloatArray
    centre: FloatArray
    """The unbiased estimate; it may be negative."""
    spread: FloatArray
    factors: FloatArray
    """(k, cells)."""
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
        return normal_interval(self, self.distribution, level, combinations)


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

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        errors = np.stack([part.standard_error(combinations) for part in self.parts])
        return np.asarray(np.sqrt(np.square(self.weights) @ np.square(errors)))

    def interval(
        self, level: float, combinations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        return normal_interval(self, self.distribution, level, combinations)


def normal_interval(
    errors: ErrorBars, distribution: FloatArray, level: float, combinations: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Centre ± quantile·(standard error), cut to [0, 1] and stretched to hold the estimate."""
    reach = ndtri(0.5 + checked_level(level) / 2) * errors.standard_error(combinations)
    centre = combined(errors.centre, combinations)
    return around(combined(distribution, combinations), centre - reach, centre + reach)
