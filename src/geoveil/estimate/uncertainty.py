"""The information in reports, and the standard errors that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import eigh, lapack

from geoveil.arrays import FloatArray, count
from geoveil.channel.channel import Tally
from geoveil.estimate.bars import RARE, DrawnErrors, ErrorBars, GaussianErrors
from geoveil.estimate.bounds import rappor_mixture, rappor_moments
from geoveil.estimate.likelihood import DenseLikelihood, Likelihood, StackedLikelihood
from geoveil.estimate.observations import Observations, ObservedCombinations
from geoveil.estimate.stopping import Meter, Progress
from geoveil.mechanism.local import ObservedVectors

_POSSIBLE = 1e-200
_LEAST_SLACK = 1e-6


class Information(NamedTuple):
    """What one tally adds: the information A·diag(weights)·Aᵀ, the score, and how they were found."""

    columns: Likelihood
    """A (cells, any), as products."""
    weights: FloatArray
    score: FloatArray
    how: str
    """Empty where all reports of the channel were counted, as usual."""

    def matrix(self) -> FloatArray:
        """(cells, cells). Cost: cells²·columns."""
        columns = self.columns.columns(np.arange(self.columns.observations))
        return np.asarray((columns * self.weights) @ columns.T)

    def times(self, changes: FloatArray) -> FloatArray:
        """The information times changes (…, cells). Cost: a push and a pull."""
        return self.columns.pull(self.columns.push(changes) * self.weights)

    def noise(self, draws: int, generator: np.random.Generator) -> FloatArray:
        """(draws, cells): random scores, with the information for their covariance. Cost: a pull."""
        drawn = generator.standard_normal((draws, self.weights.size))
        return self.columns.pull(drawn * np.sqrt(self.weights))


class _Identity(Likelihood):
    """Every cell is seen by itself."""

    exact = True

    def __init__(self, cells: int) -> None:
        self.unknowns = self.observations = cells

    def push(self, theta: FloatArray) -> FloatArray:
        return theta

    def pull(self, values: FloatArray) -> FloatArray:
        return values


def tally_information(
    observations: Observations, number: int, distribution: FloatArray
) -> Information:
    """The information of one tally at a distribution. Cost: a push and a pull."""
    tally = observations.tallies[number]
    if isinstance(tally.channel, ObservedVectors):
        return _of_bit_sums(tally, tally.channel, distribution)
    if isinstance(tally.channel, ObservedCombinations):
        every = tally.channel.every_combination()
        if every is not None:
            return _of_combinations(tally, tally.channel, every, distribution)
    elif observations.complete(number):
        return _of_all_reports(tally, observations.parts[number], distribution)
    return _of_reports_seen(observations, number, distribution)


def telling_columns(observations: Observations, number: int) -> FloatArray:
    """(cells, any): columns that tell apart exactly the cells which the tally's reports tell apart.

    Reports not seen count as well: that they were not seen says something. Where a tally holds only
    what was seen and its alphabet is too large, the columns are those seen.
    """
    part, tally = observations.parts[number], observations.tallies[number]
    if isinstance(tally.channel, ObservedVectors):
        return np.eye(part.unknowns)
    if isinstance(tally.channel, ObservedCombinations):
        every = tally.channel.every_combination()
        if every is not None:
            return every
    return part.channel.matrix()


def _of_all_reports(tally: Tally, columns: Likelihood, distribution: FloatArray) -> Information:
    expected = tally.total * np.maximum(columns.push(distribution), np.finfo(float).tiny)
    variance = np.maximum(expected, RARE)
    score = columns.pull((tally.counts - expected) * tally.total / variance)
    return Information(columns, tally.total**2 / variance, score, "")


def _of_bit_sums(tally: Tally, channel: ObservedVectors, distribution: FloatArray) -> Information:
    """The bits have covariance diag(own) − uuᵀ; its inverse is diag(1/own) + yyᵀ/(1 − u·y), y = u/own.

    The slack 1 − u·y is that of the sum of all bits, which tells no cells apart: its floor keeps
    the matrix regular and costs nothing.
    """
    group = rappor_mixture(channel.mechanism.epsilon, tally.total)
    spread, shared = rappor_moments(group, distribution)
    u = np.sqrt(group.people) * shared
    own = np.maximum(group.people * spread - u**2, RARE) + u**2
    y = u / own
    slack = max(1.0 - float(u @ y), _LEAST_SLACK)
    columns = StackedLikelihood([_Identity(y.size), DenseLikelihood(y[:, None])])
    weights = np.append(1.0 / own, 1.0 / slack)
    scale = group.people * group.gain
    missing = tally.counts @ channel.vectors - group.people * group.noise - scale * distribution
    score = scale * columns.pull(columns.push(missing) * weights)
    return Information(columns, scale**2 * weights, score, "RAPPOR by its bit sums")


def _of_combinations(
    tally: Tally, channel: ObservedCombinations, every: FloatArray, distribution: FloatArray
) -> Information:
    """Combinations are many and most are rare; the floor is therefore on the people of each cell."""
    people = np.maximum(tally.total * distribution, RARE)
    counts = np.bincount(channel.numbers(), weights=tally.counts, minlength=every.shape[1])
    possible = people @ every > _POSSIBLE
    columns = every[:, possible]
    variance = people @ columns
    missing = counts[possible] - tally.total * (distribution @ columns)
    return Information(
        DenseLikelihood(columns),
        tally.total**2 / variance,
        columns @ (missing * tally.total / variance),
        "several reports of one person by all their combinations",
    )


def _of_reports_seen(
    observations: Observations, number: int, distribution: FloatArray
) -> Information:
    """The observed information, and the score up to a constant."""
    tally = observations.tallies[number]
    seen = np.flatnonzero(tally.counts)
    columns, counts = observations.parts[number].columns(seen), tally.counts[seen]
    law = np.maximum(distribution @ columns, np.finfo(float).tiny)
    return Information(
        DenseLikelihood(columns),
        counts / law**2,
        columns @ (counts / law),
        "observed information of the reports seen, too narrow where each kind was seen a few times",
    )


# --- Error bars from the Fisher information, for cells and for regions


MATRIX_CELLS = 2_048
"""Up to so many cells the information is inverted as a matrix, in a few seconds."""

_SINGULAR = 1e-12
_EFFORT = 60_000_000
"""Cells × draws × steps of conjugate gradients: some fifteen seconds on one core."""
_DRAWS = (16, 64)
_MOST_STEPS = 400
_WINDOW, _SETTLED = 10, 1e-3
"""Settled: the last ten steps added less than a thousandth to the energy of every solution."""
_CHUNK_ENTRIES = 1 << 22

Refit = Callable[[FloatArray, int], FloatArray]
"""Estimates (…, cells) for counts (…, observations), with the steps of the fit times a factor, but at
least 50."""


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


@dataclass(frozen=True)
class FisherInformation:
    """Error bars by the delta method on the simplex, for any number of cells.

    Law: J = Σ_A n_A·C_A·diag(1/p_A)·C_Aᵀ, the expected information of all reports, p_A = θC_A (at least
    2.4 reports, see ``RARE``); the companion is θ + J⁺·Σ_A C_A((counts_A − n_A p_A)/p_A) and its
    covariance J⁺, both within Σθ = 1. RAPPOR enters by the sums of its bits and their covariance,
    several reports of one person by all combinations (at least 2.4 people in each cell). Where
    cells × combinations exceed 8,388,608 the observed information stands in; ``method`` says so, and the
    intervals are then too narrow unless each combination seen was seen many times.
    Above 2,048 cells there is no matrix: J + diag(1/u²) stands for J, u_x = n·max(1, g_x)/J_xx, and
    conjugate gradients find the companion and 16 to 64 draws from its covariance. No cell x can hold
    more than about u_x of the people, because θ_x·J_xx ≤ n·g_x in the mean, with g the gradient of the
    certificate; where the reports say more than that, u makes no difference.
    Cost: m²·n for the matrix, n the reports or combinations, and m³ to invert it; above 2,048 cells
    some 120,000,000/m products, more only for the least number of draws. ``seed`` is for the draws.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        count("seed", self.seed, least=0)

    def errors(
        self,
        observations: Observations,
        distribution: FloatArray,
        refit: Refit,
        progress: Progress | None,
    ) -> DrawnErrors | GaussianErrors:
        parts = informations(observations, distribution)
        ways = dict.fromkeys(f"; {part.how}" for part in parts if part.how)
        if distribution.size <= MATRIX_CELLS:
            return _inverted(observations.total, distribution, parts, "".join(ways))
        generator = np.random.default_rng(self.seed)
        solver = _Solver(parts, observations.total, generator)
        return solver.errors(distribution, "".join(ways), Meter(progress))


def informations(observations: Observations, distribution: FloatArray) -> list[Information]:
    """The information of every tally with reports, at a distribution."""
    return [
        tally_information(observations, number, distribution)
        for number, tally in enumerate(observations.tallies)
        if tally.total
    ]


def _inverted(
    people: int, distribution: FloatArray, parts: Sequence[Information], how: str
) -> GaussianErrors:
    covariance, lost = tangent_inverse(np.asarray(sum(part.matrix() for part in parts)))
    return GaussianErrors(
        distribution=distribution,
        centre=distribution + covariance @ sum(part.score for part in parts),
        covariance=covariance,
        lost=lost,
        people=people,
        method=f"Fisher information, one unbiased step from the estimate{how}",
    )


class _Solution(NamedTuple):
    """Solutions (…, cells), the steps they took, and whether they settled."""

    values: FloatArray
    steps: int
    settled: bool


class _Solver:
    """(J + diag(1/u²))⁻¹ by conjugate gradients, scaled by the diagonal."""

    def __init__(
        self, parts: Sequence[Information], people: int, generator: np.random.Generator
    ) -> None:
        self._parts = parts
        self._people = people
        self._generator = generator
        self._cells = parts[0].score.size
        self._chunk = max(1, _CHUNK_ENTRIES // self._cells)
        self._score = np.asarray(sum(part.score for part in parts))
        diagonal = self._diagonal(_DRAWS[1])
        most = people + np.maximum(self._score, 0.0)  # n·g, at least n
        self._ridge = np.maximum(diagonal / most, 1.0) ** 2
        self._scale = diagonal + self._ridge

    def errors(self, distribution: FloatArray, how: str, meter: Meter) -> DrawnErrors:
        sides = np.stack([self._score, np.ones(self._cells)])
        step, ones = (found := self.solve(sides)).values
        least, most = _DRAWS
        draws = int(np.clip(_EFFORT // (self._cells * found.steps), least, most))
        drawn = np.concatenate(list(self._drawn(draws, found.steps, meter)))
        kept = "" if found.settled else f", ended at {found.steps} steps before it settled"
        return DrawnErrors(
            distribution=distribution,
            centre=distribution + _within_total(step, ones),
            draws=_within_total(drawn, ones),
            people=self._people,
            method=(
                f"Fisher information, one nearly unbiased step from the estimate and {draws} draws by "
                f"conjugate gradients{kept}, because {self._cells:,} cells are more than the "
                f"{MATRIX_CELLS:,} whose matrix is inverted; standard errors are known to "
                f"{50 * np.sqrt(2 / draws):.0f} %{how}"
            ),
        )

    def solve(self, sides: FloatArray, tell: Callable[[int], None] | None = None) -> _Solution:
        """x with (J + diag(1/u²))x = sides (…, cells), all at once."""
        values, residual = np.zeros_like(sides), sides.copy()
        direction = residual / self._scale
        slope = _dot(residual, direction)
        gains: list[FloatArray] = []
        settled = False
        while not settled and len(gains) < _MOST_STEPS:
            image = self._times(direction)
            length = _ratio(slope, _dot(direction, image))
            values += length[:, None] * direction
            residual -= length[:, None] * image
            gains.append(length * slope)
            scaled = residual / self._scale
            before, slope = slope, _dot(residual, scaled)
            direction = scaled + _ratio(slope, before)[:, None] * direction
            recent = np.sum(gains[-_WINDOW:], axis=0)
            settled = bool((recent <= _SETTLED * np.sum(gains, axis=0)).all())
            if tell is not None:
                tell(len(gains))
        return _Solution(values, len(gains), settled)

    def _drawn(self, draws: int, expected: int, meter: Meter) -> Iterator[FloatArray]:
        """Draws from the inverse, a chunk at a time; each takes about as many steps as expected."""
        sizes = [min(self._chunk, draws - first) for first in range(0, draws, self._chunk)]
        for number, size in enumerate(sizes):
            noise = self._noise(size)
            noise += self._generator.standard_normal(noise.shape) * np.sqrt(self._ridge)

            def tell(steps: int, done: int = number) -> None:
                meter.at((done + min(steps / expected, 0.99)) / len(sizes))

            yield self.solve(noise, tell).values
        meter.at(1.0)

    def _times(self, changes: FloatArray) -> FloatArray:
        total = changes * self._ridge
        for part in self._parts:
            total += part.times(changes)
        return total

    def _noise(self, draws: int) -> FloatArray:
        return np.asarray(sum(part.noise(draws, self._generator) for part in self._parts))

    def _diagonal(self, draws: int) -> FloatArray:
        """J_xx, to a relative √(2/draws): the mean square of random scores."""
        total = np.zeros(self._cells)
        for first in range(0, draws, self._chunk):
            total += np.square(self._noise(min(self._chunk, draws - first))).sum(axis=0)
        return total / draws


def _within_total(values: FloatArray, ones: FloatArray) -> FloatArray:
    """Solutions brought to a sum of zero, as all changes of a distribution have; ones solves for 1."""
    return np.asarray(values - values.sum(axis=-1, keepdims=True) * (ones / ones.sum()))


def _dot(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("...i,...i->...", first, second))


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


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
