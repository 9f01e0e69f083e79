"""Two ways to error bars: the information in the reports, and the whole estimate again on resampled data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy

from geoveil.arrays import FloatArray, checked_seed, count
from geoveil.channel.channel import Information
from geoveil.channel.kernel import Beneath, lattice_beneath
from geoveil.errors import TooLarge
from geoveil.estimate import bars, fitted, identifiability, stopping
from geoveil.estimate.uneven import PlacesOfAll, bars_show
from geoveil.space import MATRIX_LIMIT

MATRIX_CELLS = 2_048
"""Up to so many unknowns the information is inverted as a matrix, in a few seconds."""

_SINGULAR = 1e-12
_EFFORT = 60_000_000
"""Cells × draws × steps of conjugate gradients, at most: some fifteen seconds on one core."""
_DRAWS = (16, 64)
_MOST_STEPS = 400
_WINDOW, _SETTLED = 10, 1e-3
"""Settled: the last ten steps added less than a thousandth to the energy of every solution."""
_CHUNK_ENTRIES = 1 << 22
_CROWDS = ", no cell above a crowd around it"
Refit = Callable[[FloatArray, int], FloatArray]
"""Estimates (…, cells) for counts (…, observations), with the steps of the fit times a factor, but at
least 50."""


class Uncertainty(Protocol):
    """A way to find error bars for a fitted distribution."""

    def errors(
        self,
        observations: fitted.Observations,
        distribution: FloatArray,
        refit: Refit,
        progress: stopping.Progress | None,
    ) -> bars.ErrorBars:
        """The error bars of ``distribution``, which was estimated from ``observations``."""


@dataclass(frozen=True)
class FisherInformation:
    """Error bars by the delta method on the simplex, for any number of cells.

    Law: J = Σ_A n_A·C_A·diag(1/p_A)·C_Aᵀ, the expected information of all reports, p_A = θC_A (at least
    2.4 reports, see ``RARE``); the companion is θ + J⁺·Σ_A C_A((counts_A − n_A p_A)/p_A) and its
    covariance J⁺, both within Σθ = 1; no interval ends above that of a crowd around its cell
    (:class:`~geoveil.estimate.bars.Nearby`). RAPPOR enters by the sums of its bits and their covariance,
    several reports of one person by all combinations (at least 2.4 people in each cell). Where
    cells × combinations exceed 8,388,608 the observed information stands in; ``method`` says so, and the
    intervals are then too narrow unless each combination seen was seen many times.
    Where positions are wide apart in a cell (ε·cell above one, or less where crowds are large), where the
    crowd of each cell stands is unknown as well, and varies as much as the place of one person would
    (docs/estimation.md).
    Above 2,048 unknowns there is no matrix: J + diag(1/u²) stands for J, u_x = n·max(1, g_x)/J_xx, and
    conjugate gradients (:class:`InformationSolver`) find the companion and 16 to 64 draws from its
    covariance. No cell x can hold more than about u_x of the people, because θ_x·J_xx ≤ n·g_x in the mean,
    with g the gradient of the certificate; where the reports say more than that, u makes no difference.
    Cost: m²·n for the matrix, n the reports or combinations, and m³ to invert it; above 2,048 cells
    some thousand products on a lattice and up to 120,000,000/m elsewhere, more only for the least number
    of draws. Crowds take up to that again for the intervals of all cells. ``seed`` is for the draws.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        checked_seed(self.seed)

    def errors(
        self,
        observations: fitted.Observations,
        distribution: FloatArray,
        refit: Refit,
        progress: stopping.Progress | None,
    ) -> bars.ErrorBars:
        return self.about(observations, distribution, None, progress)

    def about(
        self,
        observations: fitted.Observations,
        distribution: FloatArray,
        combinations: FloatArray | None = None,
        progress: stopping.Progress | None = None,
    ) -> bars.ErrorBars:
        """Error bars without a refit: of all cells, or where there is no matrix for some combinations
        (k, cells) alone, k + 2 solutions by conjugate gradients in the place of 16 to 64 draws."""
        cells = distribution.size
        places = PlacesOfAll.that_bars_show(observations, distribution, MATRIX_CELLS)
        if places is None:
            parts, unknowns = informations(observations, distribution), cells
            uneven = _as_even(observations, distribution)
        else:
            parts = places.informations(observations.tallies, distribution)
            unknowns = places.unknowns
            uneven = ", people not taken to stand evenly in their cells"
        how = uneven + "".join(dict.fromkeys(f"; {part.how}" for part in parts if part.how))
        if unknowns > MATRIX_CELLS:
            space, people = observations.space, observations.total
            beneath, draws = lattice_beneath(space), np.random.default_rng(self.seed)
            solver = InformationSolver(parts, cells, people, beneath, draws)
            if combinations is not None:
                return solver.about(distribution, how, combinations)
            errors = solver.errors(distribution, how, stopping.Meter(progress))
            return replace(errors, nearby=bars.Nearby(space.centres))
        information = np.asarray(sum(part.matrix() for part in parts))
        score = np.asarray(sum(part.score for part in parts))
        if places is not None:
            information, score = _about_crowds(information, score, cells)
        covariance, lost = tangent_inverse(information)
        return bars.GaussianErrors(
            method=f"Fisher information, one unbiased step from the estimate{_CROWDS}{how}",
            distribution=distribution,
            centre=distribution + covariance @ score,
            people=observations.total,
            covariance=covariance,
            lost=lost,
            nearby=bars.Nearby(observations.space.centres),
        )


def _as_even(observations: fitted.Observations, distribution: FloatArray) -> str:
    """What is to be said of bars that take people as spread evenly, where that matters."""
    if not bars_show(observations, distribution, MATRIX_CELLS):
        return ""
    return ", people taken to stand evenly in cells that are wide for the noise: too narrow if they do not"


def _about_crowds(
    information: FloatArray, score: FloatArray, cells: int
) -> tuple[FloatArray, FloatArray]:
    """Information and score about the first ``cells`` unknowns, the others of variance one before."""
    between = information[:cells, cells:]
    others = information[cells:, cells:].copy()
    others[np.diag_indices_from(others)] += 1.0
    sides = np.column_stack((between.T, score[cells:]))
    solved = scipy.linalg.lapack.dposv(others, sides, lower=1)[1]  # (others + 1)⁻¹ of both
    marginal = np.asarray(information[:cells, :cells] - between @ solved[:, :-1])
    return marginal, np.asarray(score[:cells] - between @ solved[:, -1])


def informations(observations: fitted.Observations, distribution: FloatArray) -> list[Information]:
    """The information of every tally with reports, at a distribution."""
    return [tally.information(distribution) for tally in observations.tallies if tally.total]


class InformationSolver:
    """(J + diag(1/u²))⁻¹ by conjugate gradients, preconditioned with S·F·diag(1/f)·Fᵀ·S.

    S = diag(J + diag(1/u²))^{−½}; where a lattice is ``beneath`` F are its cosines, cut to those of its
    places that are cells, and f is the diagonal of FᵀS(J + diag(1/u²))SF, which is nearly all of it where
    noise is alike everywhere; elsewhere F = 1. Both diagonals come from random scores, to a relative
    √(2/64): that changes the number of steps alone.
    """

    def __init__(
        self,
        parts: Sequence[Information],
        cells: int,
        people: int,
        beneath: Beneath | None,
        generator: np.random.Generator,
    ) -> None:
        self._parts = parts
        self._people = people
        self._beneath = beneath
        self._generator = generator
        self._crowds = cells
        self._cells = parts[0].score.size
        self._chunk = max(1, _CHUNK_ENTRIES // self._cells)
        self._score = np.asarray(sum(part.score for part in parts))
        diagonal = self._mean_square(self._noise)  # J_xx
        most = people + np.maximum(self._score, 0.0)  # n·g, at least n
        self._ridge = np.maximum(diagonal / most, 1.0) ** 2  # 1/u²
        self._ridge[cells:] = 1.0  # where crowds stand has variance one before any report
        self._scale = np.sqrt(diagonal + self._ridge)
        if beneath is not None:
            self._spectrum = self._mean_square(
                lambda draws: self._waves(self._scores(draws) / self._scale)
            )

    def errors(self, distribution: FloatArray, how: str, meter: stopping.Meter) -> bars.DrawnErrors:
        crowds = self._crowds
        sides = np.stack([self._score, np.arange(self._cells) < crowds])
        (step, ones), steps, settled = self.solve(sides)
        least, most = _DRAWS
        draws = int(np.clip(_EFFORT // (self._cells * steps), least, most))
        changes = np.concatenate(list(self._chunks(draws, steps, meter)))
        one = ones[:crowds]
        return bars.DrawnErrors(
            method=(
                f"Fisher information, one nearly unbiased step from the estimate and {draws} draws "
                f"{self._why(steps, settled)}; standard errors are known to "
                f"{50 * np.sqrt(2 / draws):.0f} %{_CROWDS}{how}"
            ),
            distribution=distribution,
            centre=distribution + _within_total(step[:crowds], one),
            people=self._people,
            draws=_within_total(changes[:, :crowds], one),
        )

    def about(
        self, distribution: FloatArray, how: str, combinations: FloatArray
    ) -> bars.SolvedErrors:
        """Error bars of some combinations a (k, cells): aᵀ(J + diag(1/u²))⁻¹a within Σθ = 1."""
        crowds = self._crowds
        sides = np.zeros((2 + len(combinations), self._cells))
        sides[0], sides[1, :crowds], sides[2:, :crowds] = self._score, 1.0, combinations
        solutions, steps, settled = self.solve(sides)
        step, one, solved = solutions[0, :crowds], solutions[1, :crowds], solutions[2:, :crowds]
        variance = _dot(combinations, solved) - np.square(combinations @ one) / one.sum()
        return bars.SolvedErrors(
            method=(
                "Fisher information, one nearly unbiased step from the estimate, solved for each region "
                f"{self._why(steps, settled)}{how}"
            ),
            distribution=distribution,
            centre=distribution + _within_total(step, one),
            people=self._people,
            combinations=combinations,
            variance=variance,
        )

    def _why(self, steps: int, settled: bool) -> str:
        """Why by conjugate gradients, and whether they were given up."""
        early = "" if settled else f", ended at {steps} steps before it settled"
        unknowns = "cells" if self._cells == self._crowds else "unknowns"
        many = f"{self._cells:,} {unknowns} are more than the {MATRIX_CELLS:,} whose matrix is inverted"
        return f"by conjugate gradients{early}, because {many}"

    def solve(
        self, sides: FloatArray, tell: Callable[[int], None] = lambda steps: None
    ) -> tuple[FloatArray, int, bool]:
        """x with (J + diag(1/u²))x = sides (…, cells), all at once; its steps; whether they settled."""
        values, _, steps, settled = conjugate_gradients(
            lambda x: np.asarray(x * self._ridge + sum(part.times(x) for part in self._parts)),
            sides, self._nearly_solved, _MOST_STEPS, tell,
        )  # fmt: skip
        return values, steps, settled

    def _chunks(self, draws: int, expected: int, meter: stopping.Meter) -> Iterator[FloatArray]:
        """Draws from the inverse, a chunk at a time; each takes about as many steps as expected."""
        sizes = [min(self._chunk, draws - first) for first in range(0, draws, self._chunk)]
        for number, size in enumerate(sizes):

            def tell(steps: int, chunk: int = number) -> None:
                meter.at((chunk + min(steps / expected, 0.99)) / len(sizes))

            # The inverse turns scores with a covariance into draws with the inverse of that.
            yield self.solve(self._scores(size), tell)[0]
        meter.at(1.0)

    def _nearly_solved(self, residual: FloatArray) -> FloatArray:
        """(…, cells) times the preconditioner."""
        scaled = residual / self._scale
        if self._beneath is not None:
            mask = self._beneath.mask
            lattice = (self._waves(scaled) / self._spectrum).reshape(-1, *mask.shape)
            whole = scipy.fft.idctn(lattice, axes=(-2, -1), norm="ortho")
            scaled = whole[:, mask].reshape(residual.shape)
        return np.asarray(scaled / self._scale)

    def _waves(self, values: FloatArray) -> FloatArray:
        """(…, cells) as sums of cosines of the lattice, one for each of its cells."""
        assert self._beneath is not None
        lattice = self._beneath.spread(values.reshape(-1, self._crowds), 0.0)
        waves = scipy.fft.dctn(lattice, axes=(-2, -1), norm="ortho")
        return np.asarray(waves.reshape(*values.shape[:-1], -1))

    def _mean_square(self, draw: Callable[[int], FloatArray]) -> FloatArray:
        """(any,): of many draws (draws, any), made a chunk at a time."""
        draws = _DRAWS[1]
        sums = (
            np.square(draw(min(self._chunk, draws - first))).sum(axis=0)
            for first in range(0, draws, self._chunk)
        )
        return np.asarray(sum(sums)) / draws

    def _scores(self, draws: int) -> FloatArray:
        """(draws, cells): random scores with covariance J + diag(1/u²)."""
        noise = self._noise(draws)
        noise += self._generator.standard_normal(noise.shape) * np.sqrt(self._ridge)
        return noise

    def _noise(self, draws: int) -> FloatArray:
        """(draws, cells): random scores with covariance J."""
        shapes = ((draws, part.weights.size) for part in self._parts)
        normal = (self._generator.standard_normal(shape) for shape in shapes)
        return np.asarray(sum(map(Information.scores, self._parts, normal)))


def conjugate_gradients(
    times: Callable[[FloatArray], FloatArray],
    sides: FloatArray,
    nearly_solved: Callable[[FloatArray], FloatArray],
    most_steps: int,
    tell: Callable[[int], None] = lambda steps: None,
) -> tuple[FloatArray, FloatArray, int, bool]:
    """x with Ax = sides (any, cells), all at once: x, what it lacks, its steps, and whether they settled.

    They have when the last ten added less than a thousandth to the energy xᵀAx of every side.
    """
    # values, residual and direction are (sides, cells), lengths (sides,)
    values, residual = np.zeros_like(sides), sides.copy()
    direction = nearly_solved(residual)
    slope = _dot(residual, direction)
    gains: list[FloatArray] = []  # what each step adds to the energy
    settled = False
    while not settled and len(gains) < most_steps:
        image = times(direction)
        length = _ratio(slope, _dot(direction, image))
        values += length[:, None] * direction
        residual -= length[:, None] * image
        gains.append(length * slope)
        onward = nearly_solved(residual)
        before, slope = slope, _dot(residual, onward)
        direction = onward + _ratio(slope, before)[:, None] * direction
        recent = np.sum(gains[-_WINDOW:], axis=0)
        settled = bool((recent <= _SETTLED * np.sum(gains, axis=0)).all())
        tell(len(gains))
    return values, residual, len(gains), settled


def _within_total(changes: FloatArray, one: FloatArray) -> FloatArray:
    """(…, cells) brought to a sum of zero, as all changes of a distribution have; ``one`` solves for 1."""
    return np.asarray(changes - changes.sum(axis=-1, keepdims=True) * (one / one.sum()))


def _dot(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray(np.einsum("...i,...i->...", first, second))


def _ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """One over the other, zero where the other is."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def tangent_inverse(information: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The inverse of the information among changes that sum to zero, and directions without any.

    J + s·11ᵀ equals J on those changes and is regular exactly where J is regular on them. Shapes: J
    and its inverse (cells, cells), the directions (cells, any).
    """
    bordered = information + information.diagonal().mean()
    scale = np.sqrt(np.maximum(bordered.diagonal(), np.finfo(float).tiny))
    scaled = bordered / scale / scale[:, None]  # its diagonal is one
    factor, failed = scipy.linalg.lapack.dpotrf(scaled, lower=1, clean=1)
    norm = np.abs(scaled).sum(axis=0).max()
    if not failed and scipy.linalg.lapack.dpocon(factor, norm, uplo="L")[0] >= _SINGULAR:
        half, _ = scipy.linalg.lapack.dpotri(factor, lower=1)
        inverse, lost = np.tril(half) + np.tril(half, -1).T, np.zeros((len(scaled), 0))
    else:  # the pseudo-inverse, and what it leaves out
        values, vectors = scipy.linalg.eigh(scaled)
        regular = values > _SINGULAR * values[-1]
        inverse = (vectors[:, regular] / values[regular]) @ vectors[:, regular].T
        lost = vectors[:, ~regular]
    inverse = inverse / scale / scale[:, None]
    lost = lost / scale[:, None]
    lost = lost / np.linalg.norm(lost, axis=0)
    # K⁻¹ − K⁻¹11ᵀK⁻¹/(1ᵀK⁻¹1): the covariance given that the changes sum to zero.
    total = inverse.sum(axis=1)
    return inverse - np.outer(total, total) / total.sum(), lost


# --- Error bars by simulation


_MOST_ENTRIES = 1 << 28
_PROGRESS_CALLS = 20


@dataclass(frozen=True)
class Bootstrap:
    """Error bars by parametric bootstrap over the tallies, for any number of cells.

    Law: the estimate is carried on to ``carry_on`` times its steps and at least to 50, which takes
    most of the smoothing out of it; each tally is drawn again from the law of reports of that
    distribution (multinomial, same total), and estimated with as many steps. Where a tally holds only
    what was seen (RAPPOR, several reports of one person), its counts are resampled instead. Up to
    4,096 cells the directions no report shows are found first; their cells have the interval [0, 1].
    Cost: replicates × carry_on times that of the estimate, and one QR factorisation of the channels
    up to 4,096 cells; replicates advance as one batch.
    Guarantee: none on coverage. Early stopping hides some of the bias: see ``benchmarks.coverage``.

    >>> Bootstrap(replicates=500).seed
    0
    """

    replicates: int = 200
    carry_on: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        count("replicates", self.replicates, least=2)
        count("carry_on", self.carry_on)
        checked_seed(self.seed)

    def errors(
        self,
        observations: fitted.Observations,
        distribution: FloatArray,
        refit: Refit,
        progress: stopping.Progress | None,
    ) -> bars.BootstrapErrors:
        cells = distribution.size
        if self.replicates * cells > _MOST_ENTRIES:
            raise TooLarge(
                f"replicates ({self.replicates}) × cells ({cells}) must be at most {_MOST_ENTRIES}; "
                "use fewer replicates"
            )
        centre = refit(observations.counts.astype(np.float64), self.carry_on)
        counts = self._resampled(observations, centre)
        replicates = np.empty((self.replicates, cells))
        chunk = max(1, min(_CHUNK_ENTRIES // counts.shape[1], self.replicates // _PROGRESS_CALLS))
        for first in range(0, self.replicates, chunk):
            replicates[first : first + chunk] = refit(counts[first : first + chunk], self.carry_on)
            if progress is not None:
                progress(min(first + chunk, self.replicates), self.replicates)
        return bars.BootstrapErrors(
            method=f"parametric bootstrap, {self.replicates} replicates"
            + _as_even(observations, distribution),
            distribution=distribution,
            centre=centre,
            people=observations.total,
            replicates=replicates,
            lost=_lost(observations),
        )

    def _resampled(self, observations: fitted.Observations, centre: FloatArray) -> FloatArray:
        """(replicates, observations): new counts of every tally."""
        generator = np.random.default_rng(self.seed)
        counts = []
        for tally in observations.tallies:
            if not tally.total:
                counts.append(np.zeros((self.replicates, tally.counts.size), dtype=np.int64))
                continue
            law = tally.counts.astype(np.float64)
            if tally.complete:
                law = np.maximum(tally.operator._push(centre), 0.0)
            shares = law / max(law.sum(), np.finfo(float).tiny)
            counts.append(generator.multinomial(tally.total, shares, size=self.replicates))
        return np.concatenate(counts, axis=1).astype(np.float64)


def _lost(observations: fitted.Observations) -> FloatArray:
    """(cells, k): the directions that no tally shows; none are looked for above 4,096 cells."""
    cells = observations.space.size
    if cells > MATRIX_LIMIT:
        return np.zeros((cells, 0))
    lost, columns = np.eye(cells), []
    for tally in observations.tallies:
        if tally.total and lost.shape[1]:
            columns.append(tally.telling_columns())
            lost = identifiability.lost_directions(np.concatenate(columns, axis=1))
    return lost
