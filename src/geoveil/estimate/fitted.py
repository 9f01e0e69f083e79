"""What was observed and what was estimated from it: the distribution, its certificate and error bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from geoveil import arrays
from geoveil.arrays import ArrayLike, FloatArray, IntArray, ReadOnly
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.guarantee import BetweenPositions
from geoveil.channel.operator import Operator, StackedOperator
from geoveil.errors import GeoveilError, ImpossibleReport, InvalidInput, number_of
from geoveil.estimate.bars import ErrorBars
from geoveil.estimate.identifiability import Identifiability
from geoveil.estimate.objective import Objective
from geoveil.estimate.regions import RegionShares, named_members
from geoveil.holding import Drawn, Framed, Shown, below
from geoveil.space.space import Space

_SUSPECT = 1e-12
A_TALLY = "a tally; make one with mechanism.tally(reports)"


class Observations:
    """Tallies of one space as one operator and one vector of counts.

    ``fit`` of every estimator starts here, so that wrong input is refused once and in one voice:
    no tallies, tallies of different spaces, no report at all, reports that no cell can have made.
    """

    space: Space
    tallies: tuple[Tally, ...]
    """In the order of the input, tallies of equal channels added up."""
    operator: Operator
    counts: IntArray
    """The counts of all tallies, one after the other."""

    def __init__(self, tallies: Tally | Iterable[Tally]) -> None:
        checked = checked_tallies(tallies)
        for number, tally in enumerate(checked):
            operator = tally.operator
            law = operator._push(arrays.uniform(operator.shape[0]))
            doubtful = (tally.counts > 0) & (law <= _SUSPECT * law.max(initial=0.0))
            for report in np.flatnonzero(doubtful):
                if not (operator._column(int(report)) > 0).any():
                    raise ImpossibleReport(
                        f"tally {number} must hold reports its channel can make; report {report} was "
                        f"counted {tally.counts[report]} times and has probability zero at every cell"
                    )
        self.tallies = checked if len(checked) == 1 else joined(checked)
        self.space = self.tallies[0].space
        parts = [tally.operator for tally in self.tallies]
        self.operator = parts[0] if len(parts) == 1 else StackedOperator(parts)
        self.counts = np.concatenate([tally.counts for tally in self.tallies])
        self.total = int(self.counts.sum())

    def fit(self, log_likelihood: float, certificate: float) -> Fit:
        """How well the reports are explained, from what the columns say, which may lack factors."""
        left_out = sum(tally.nats_left_out for tally in self.tallies) / self.total
        return Fit(log_likelihood + left_out, certificate)

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Values by observation, cut into one array for each tally."""
        ends = np.cumsum([tally.counts.size for tally in self.tallies])[:-1]
        return np.split(values, ends, axis=-1)


def checked_tallies(tallies: Tally | Iterable[Tally]) -> tuple[Tally, ...]:
    """One tally or several of one space, with at least one report among them, or an error."""
    if not isinstance(tallies, Iterable | Tally):
        raise InvalidInput(
            f"tallies ({type(tallies).__name__}) must be a tally or a list of tallies; "
            "make one with mechanism.tally(reports)"
        )
    listed: list[Any] = [tallies] if isinstance(tallies, Tally) else list(tallies)
    if not listed:
        raise InvalidInput("tallies must not be empty; pass at least one tally")
    for number, tally in enumerate(listed):
        arrays.instance(f"tally {number}", tally, Tally, A_TALLY)
        if tally.space != listed[0].space:
            raise InvalidInput(f"tally {number} must be about the same space as tally 0")
    if not any(tally.total for tally in listed):
        raise InvalidInput("tallies must hold at least one report; all counts are zero")
    return tuple(listed)


def joined(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """One tally for each channel, in the order in which they come first."""
    sums: dict[Channel, Tally] = {}
    for tally in tallies:
        earlier = sums.get(tally.channel)
        sums[tally.channel] = tally if earlier is None else earlier + tally
    return tuple(sums.values())


def by_mechanism(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """One tally for each mechanism that made a report, in the order in which they come first."""
    return joined(tally for tally in tallies if tally.total)


def promises_of(tallies: Iterable[Tally]) -> tuple[str, ...]:
    """The promises of the mechanisms that made reports, for one report, in words, each once.

    Promises between positions that differ in their rounding alone, as those of the rounds of a campaign
    do, are one, with the largest.
    """
    channels = [tally.channel for tally in tallies if tally.total]
    promises: dict[object, tuple[float, str]] = {}
    for channel in channels:
        promise = None if channel.promise_takes_long else channel.guarantee
        key, slack = (channel.short_promise, 0.0)
        if isinstance(promise, BetweenPositions):
            key, slack = f"{promise.epsilon_per_km} between positions", promise.slack
        if key not in promises or slack > promises[key][0]:
            promises[key] = slack, channel.short_promise
    return tuple(words for _, words in promises.values())


# --- The estimate


class RegionEstimate:
    """The share of several cells together."""

    def __init__(
        self, cells: IntArray, share: float, combination: FloatArray, errors: ErrorBars
    ) -> None:
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
        return f"RegionEstimate({number_of(self.cells.size, 'cell')}, share {self.share:.4g})"


class Fit(NamedTuple):
    """How well a distribution explains the reports, in nats per report."""

    log_likelihood: float
    certificate: float


class Estimate(Framed, Drawn, Shown, ReadOnly):
    """A distribution over the cells of a space, estimated from noisy reports.

    ``stopped`` says in words why the estimator stopped where it did. Fit, error bars and identifiability
    are computed when first asked for, and when the estimate is pickled: a copy says what the original says.
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
        find_promises: Callable[[], tuple[str, ...]] = tuple,
        uneven: bool = False,
    ) -> None:
        self.space = space
        self.distribution: FloatArray = arrays.frozen(np.array(distribution, dtype=np.float64))
        self.total = total
        self.steps = steps
        self.stopped = stopped
        self.uneven = uneven
        """Whether people were not taken to stand evenly in their cells."""
        self._find_fit = find_fit
        self._find_errors = find_errors
        self._find_identifiability = find_identifiability
        self._find_promises = find_promises

    @cached_property
    @arrays.one_blas_thread()
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
    @arrays.one_blas_thread()
    def errors(self) -> ErrorBars:
        """The error bars, found at first use; ``errors.method`` says how."""
        return self._find_errors()

    @cached_property
    @arrays.one_blas_thread()
    def identifiable(self) -> Identifiability:
        """False where the reports cannot tell cells apart; its ``reason`` says which and why."""
        return self._find_identifiability()

    @cached_property
    def standard_error(self) -> FloatArray:
        """The standard error of every cell; infinite where the data say nothing about it."""
        errors: FloatArray = arrays.frozen(np.array(self.errors.standard_error()))
        return errors

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Low and high ends, for every cell, of an interval that holds its true share.

        Each interval is for one cell by itself: of many cells, about a share 1 − ``level`` lies outside.
        """
        return self.errors.interval(level)

    @cached_property
    def promises(self) -> tuple[str, ...]:
        """What the mechanisms of the reports promise, in words, each once; empty where it is not known."""
        return self._find_promises()

    def save(self, path: str | Path, *, level: float = 0.95) -> None:
        """Write shares, standard errors and intervals by cell: .geojson, .parquet (GeoParquet) or .csv.

        ``gv.load_estimate`` reads it back. Needs the extra ``cli``.
        """
        below("save_estimate")(self, path, level=level)

    def region(self, cells: ArrayLike) -> RegionEstimate:
        """The share of several cells together, with its own error: regions are known far better."""
        chosen = np.unique(arrays.indices("cells", cells, self.space.size))
        if not chosen.size:
            raise InvalidInput("cells must not be empty")
        combination = np.zeros(self.space.size)
        combination[chosen] = 1.0
        share = min(1.0, float(self.distribution[chosen].sum()))
        return RegionEstimate(chosen, share, combination, self.errors)

    def regions(self, districts: Any, *, name: str = "name", within: Any = None) -> RegionShares:
        """The share of every district, with an interval of its own; shapes cut through cells by area.

        ``districts`` are GeoJSON (a dictionary or a file), a GeoDataFrame, or {name: cells}; ``name`` is
        the property that names them. ``within`` are city limits, where cells reach beyond them: the
        people of such a cell are in its part inside.
        """
        names, members = named_members(self.space, districts, name=name, within=within)
        return RegionShares(names, members, self.distribution, self.errors)

    def __getstate__(self) -> dict[str, Any]:
        """The results, in the place of the functions that compute them."""
        results = (self._pickled(name) for name in ("_fit", "errors", "identifiable", "promises"))
        names = ("_find_fit", "_find_errors", "_find_identifiability", "_find_promises")
        return {**vars(self), **dict(zip(names, results, strict=True))}

    def _pickled(self, name: str) -> Callable[[], Any]:
        try:
            return partial(_given, getattr(self, name))
        except GeoveilError as problem:  # the copy says so when it is asked
            return partial(_raised, problem)

    def __repr__(self) -> str:
        reports, cells = number_of(self.total, "report"), number_of(self.space.size, "cell")
        return f"Estimate({reports}, {cells}, {self.stopped})"


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
    return observations.fit(float(point.log_likelihood), float(point.certificate))
