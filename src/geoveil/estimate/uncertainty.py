"""The information in reports, and the standard errors that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import eigh, lapack

from geoveil.arrays import FloatArray, count
from geoveil.channel.channel import Information
from geoveil.estimate.bars import DrawnErrors, ErrorBars, GaussianErrors
from geoveil.estimate.observations import Observations
from geoveil.estimate.stopping import Meter, Progress

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
    return [tally.information(distribution) for tally in observations.tallies if tally.total]


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
