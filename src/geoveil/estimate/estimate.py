"""An estimate: the distribution, its certificate, its error bars, and what the data cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, frozen, indices, one_blas_thread, refrozen
from geoveil.errors import GeoveilError, InvalidInput
from geoveil.estimate.bars import ErrorBars
from geoveil.estimate.identifiability import Identifiability
from geoveil.estimate.objective import Objective
from geoveil.estimate.observations import Observations
from geoveil.space.space import Space


class RegionEstimate:
    """The share of several cells together."""

    def __init__(self, cells: IntArray, share: float, combination: FloatArray, errors: ErrorBars):
        self.cells = cells
        self.share = share
        self._combination = combination[None, :]
        self._errors = errors

    @cached_property
    def standard_error(self) -> float:
        """The standard error of the share."""
        return float(self._errors.standard_error(self._combination)[0])

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The ends of an interval that holds the true share with probability about ``level``."""
        low, high = self._errors.interval(level, self._combination)
        return float(low[0]), float(high[0])

    def __repr__(self) -> str:
        return f"RegionEstimate({self.cells.size} cells, share {self.share:.4g})"


class Fit(NamedTuple):
    """How well a distribution explains the reports, in nats per report."""

    log_likelihood: float
    certificate: float


class Estimate:
    """A distribution over the cells of a space, estimated from noisy reports.

    ``certificate`` bounds from above what the log-likelihood still lacks to its maximum, nats per
    report; ``stopped`` says in words why the estimator stopped where it did. Fit, error bars
    and identifiability are computed when first asked for, and when the estimate is pickled: a copy says
    what the original says.
    Units: ``log_likelihood`` and ``certificate`` in nats per report.
    """

    def __init__(
        self,
        *,
        space: Space,
        distribution: FloatArray,
        total: int,
        steps: int,
        stopped: str,
        find_fit: Callable[[], Fit],
        find_errors: Callable[[], ErrorBars],
        find_identifiability: Callable[[], Identifiability],
    ) -> None:
        self.space = space
        self.distribution: FloatArray = frozen(np.array(distribution, dtype=np.float64))
        self.total = total
        self.steps = steps
        self.stopped = stopped
        self._find_fit = find_fit
        self._find_errors = find_errors
        self._find_identifiability = find_identifiability

    @cached_property
    @one_blas_thread()
    def _fit(self) -> Fit:
        return self._find_fit()

    @property
    def log_likelihood(self) -> float:
        """The mean log-likelihood of the reports, in nats."""
        return self._fit.log_likelihood

    @property
    def certificate(self) -> float:
        """An upper bound on what the log-likelihood still lacks to its maximum, nats per report."""
        return self._fit.certificate

    @cached_property
    @one_blas_thread()
    def errors(self) -> ErrorBars:
        """The error bars, found at first use; ``errors.method`` says how."""
        return self._find_errors()

    @cached_property
    @one_blas_thread()
    def identifiable(self) -> Identifiability:
        """False where the reports cannot tell cells apart; its ``reason`` says which and why."""
        return self._find_identifiability()

    @cached_property
    def standard_error(self) -> FloatArray:
        """The standard error of every cell; infinite where the data say nothing about it."""
        found: FloatArray = frozen(np.array(self.errors.standard_error()))
        return found

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Low and high ends, for every cell, of an interval that holds its true share.

        Each interval is for one cell by itself: of many cells, about a share 1 − ``level`` lies outside.
        """
        return self.errors.interval(level)

    def region(self, cells: npt.ArrayLike) -> RegionEstimate:
        """The share of several cells together, with its own error: regions are known far better."""
        chosen = np.unique(indices("cells", cells, self.space.size))
        if not chosen.size:
            raise InvalidInput("cells must not be empty")
        combination = np.zeros(self.space.size)
        combination[chosen] = 1.0
        share = min(1.0, float(self.distribution[chosen].sum()))
        return RegionEstimate(chosen, share, combination, self.errors)

    def __getstate__(self) -> dict[str, Any]:
        """Everything found out, instead of the functions that would find it."""
        found = (self._pickled(name) for name in ("_fit", "errors", "identifiable"))
        names = ("_find_fit", "_find_errors", "_find_identifiability")
        return {**vars(self), **dict(zip(names, found, strict=True))}

    def _pickled(self, name: str) -> Callable[[], Any]:
        try:
            return partial(_given, getattr(self, name))
        except GeoveilError as problem:  # the copy says so when it is asked
            return partial(_raised, problem)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(refrozen(state))

    def __repr__(self) -> str:
        return f"Estimate({self.total} reports, {self.space.size} cells, {self.stopped})"


def _given(value: Any) -> Any:
    return value


def _raised(problem: GeoveilError) -> NoReturn:
    raise problem


# --- How well a distribution explains the reports, however it was found


_IMPOSSIBLE = 1e-300  # the objective puts this in the place of probability zero


def fit_of(observations: Observations, distribution: FloatArray) -> Fit:
    """Log-likelihood and certificate, nats per report; infinite where a report seen is excluded.

    Linear estimators do not maximise the likelihood; the certificate says how much they may lack.
    """
    point = Objective(observations.operator, observations.counts).at(distribution)
    if point.law.min() <= _IMPOSSIBLE:
        return Fit(-np.inf, np.inf)
    return Fit(float(point.log_likelihood), float(point.certificate))
