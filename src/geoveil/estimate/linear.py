"""Linear estimators: inversion repaired to a distribution, randomised response, RAPPOR."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy

from geoveil.arrays import ArrayLike, FloatArray, one_blas_thread, one_of, vector
from geoveil.channel.channel import RARE, Channel, Tally
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate import bars, fitted, mixture
from geoveil.estimate.identifiability import all_told_apart, null_space, tell_apart_by
from geoveil.mechanism.local import RandomizedResponse, Rappor

Repair = Literal["project", "normalise"]


def project_onto_simplex(values: ArrayLike) -> FloatArray:
    """The distribution nearest to ``values`` in Euclidean distance: max(v − τ, 0) with sum one.

    τ is found exactly from the sorted values. Cost: m log m.
    Reference: FREEWILL §5.1 (Wang and Carreira-Perpiñán, 2013).

    >>> project_onto_simplex([0.75, 0.5, -0.25]).tolist()
    [0.625, 0.375, 0.0]
    """
    point = _one_vector(values)
    below = point - point.max()  # the projection does not see a common shift; this keeps digits
    falling = np.sort(below)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, point.size + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    nearest = np.maximum(below - excess[last], 0.0)
    return np.asarray(nearest / nearest.sum())


def clip_and_normalise(values: ArrayLike) -> FloatArray:
    """Negative values set to zero, the others rescaled to sum to one.

    Reference: FREEWILL §5.1 (INV-N).

    >>> clip_and_normalise([0.75, 0.25, -0.25]).tolist()
    [0.75, 0.25, 0.0]
    """
    clipped = np.maximum(_one_vector(values), 0.0)
    total = float(clipped.sum())
    if total <= 0:
        raise InvalidInput("values must be positive somewhere to be normalised")
    return np.asarray(clipped / total)


REPAIRS: dict[str, Callable[[ArrayLike], FloatArray]] = {
    "project": project_onto_simplex,
    "normalise": clip_and_normalise,
}


_DONE = {"project": "projected onto the simplex", "normalise": "cut at zero and normalised"}


@dataclass(frozen=True)
class _Repaired:
    """An estimator whose linear solution is brought back to the simplex."""

    repair: Repair = "project"

    def __post_init__(self) -> None:
        one_of("repair", self.repair, REPAIRS)

    def _words(self, solution: FloatArray) -> str:
        """What the repair had to do."""
        if solution.min() >= 0 and abs(float(solution.sum()) - 1.0) < 1e-9:
            return "left as it was: a distribution already"
        return _DONE[self.repair]


def _one_vector(values: ArrayLike) -> FloatArray:
    shape = np.shape(values)
    if len(shape) != 1 or shape[0] == 0:
        raise InvalidInput(f"values (shape {shape}) must be one vector with at least one entry")
    return vector("values", values, shape[0])


# --- The linear system vC = q behind matrix inversion, factorised once and solved many times


SINGULAR = 1e-13
"""A channel is singular when its reciprocal condition (relative singular value) is below this."""


class LinearSystem:
    """q ↦ v with vC = q, or the shortest v with vC nearest to q.

    A square channel of full rank is factorised (LU); any other is solved by least squares (a complete
    orthogonal factorisation), and ``how`` says so. Never an inverse.
    Cost: m³ once and m² per solution when square; otherwise about 4·m³ per call, however many
    right-hand sides it has. Refused above 4,096 cells.

    >>> import geoveil as gv
    >>> system = LinearSystem(gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]]))
    >>> system.solve(np.array([0.625, 0.375])).round(12).tolist()
    [0.75, 0.25]
    >>> system.how
    'solved exactly'
    """

    def __init__(self, channel: Channel) -> None:
        self.matrix = channel.matrix()
        self.cells, self.reports = self.matrix.shape
        self.rank, self.how = self.cells, "solved exactly"
        self._factors: tuple[Any, Any] | None = None
        why = f"{self.reports} reports for {self.cells} cells"
        if self.cells == self.reports:
            factors, pivots, zero_at = scipy.linalg.lapack.dgetrf(self.matrix)
            norm = np.abs(self.matrix).sum(axis=0).max()
            if zero_at == 0 and scipy.linalg.lapack.dgecon(factors, norm, norm="1")[0] > SINGULAR:
                self._factors = factors, pivots
                return
            why = "the channel is singular"
        unit = np.zeros(self.reports)
        self.rank = int(
            scipy.linalg.lstsq(self.matrix.T, unit, cond=SINGULAR, lapack_driver="gelsy")[2]
        )
        caveat = "" if self.rank == self.cells else f"; it cannot tell all {self.cells} cells apart"
        self.how = f"solved by least squares: {why}{caveat}"

    def solve(self, laws: FloatArray) -> FloatArray:
        """(…, reports) → (…, cells)."""
        columns = laws.reshape(-1, self.reports).T
        if self._factors is not None:
            solved = scipy.linalg.lapack.dgetrs(*self._factors, columns, trans=1)[0]
        else:
            solved = scipy.linalg.lstsq(
                self.matrix.T, columns, cond=SINGULAR, lapack_driver="gelsy"
            )[0]
        return np.asarray(solved.T.reshape(*laws.shape[:-1], self.cells))

    def lost(self) -> FloatArray:
        """(cells, cells − rank): an orthonormal basis of the changes of v that vC does not show."""
        if self.rank == self.cells:
            return np.zeros((self.cells, 0))
        basis = scipy.linalg.qr(null_space(self.matrix.T, self.rank), mode="economic")[0]
        return np.asarray(basis)


# --- Matrix inversion: solve for the distribution, then bring it back to the simplex


@dataclass(frozen=True)
class MatrixInversion(_Repaired):
    """The distribution whose law of reports is nearest to what was seen, made valid afterwards.

    Law: v solves vC = q (least squares where C is not square or is singular; ``stopped`` says so).
    ``repair="project"`` takes the distribution nearest to v, ``"normalise"`` sets negative entries to
    zero and rescales. v is unbiased where C has full rank; the repaired estimate is not. Error bars
    are those of v (delta method), cut to [0, 1] and stretched to hold the estimate.
    Cost: m³, once; refused above 4,096 cells.
    Reference: FREEWILL §5.1 (INV, INV-P, INV-N).

    >>> import geoveil as gv
    >>> mechanism = gv.RandomizedResponse(gv.Line(3), epsilon=2.0)
    >>> estimate = MatrixInversion(repair="project").fit(gv.Tally(mechanism, [600, 300, 100]))
    >>> estimate.distribution.round(3).tolist()
    [0.72, 0.28, 0.0]
    >>> estimate.stopped
    'solved exactly, then projected onto the simplex'
    """

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> fitted.Estimate:
        """The estimate from one tally, or from several of one mechanism."""
        observations = fitted.Observations(tallies)
        mechanisms = fitted.by_mechanism(observations.tallies)
        if len(mechanisms) > 1:
            raise InvalidInput(
                f"tallies (of {len(mechanisms)} mechanisms) must come from one mechanism to invert it; "
                "use AverageMechanism(MatrixInversion()), AverageOfEstimates(MatrixInversion()) or "
                "IterativeBayesianUpdate()"
            )
        tally = mechanisms[0]
        if not tally.complete:
            raise Unsupported(
                "matrix inversion needs every report of the channel, and this tally keeps only those "
                "seen; use RapporEstimator for RAPPOR, or IterativeBayesianUpdate"
            )
        system = LinearSystem(tally.channel)
        solution = system.solve(tally.counts / tally.total)
        distribution = REPAIRS[self.repair](solution)
        return fitted.Estimate(
            space=observations.space,
            distribution=distribution,
            total=observations.total,
            steps=0,
            stopped=f"{system.how}, then {self._words(solution)}",
            find_fit=lambda: fitted.fit_of(observations, distribution),
            find_errors=lambda: _errors(system, tally.total, solution, distribution),
            find_identifiability=lambda: tell_apart_by(tally.channel),
            find_promises=lambda: fitted.promises_of(observations.tallies),
        )


def _errors(
    system: LinearSystem, total: int, solution: FloatArray, distribution: FloatArray
) -> bars.GaussianErrors:
    """Cov(v) = Pᵀ(diag(p) − pᵀp)P/n with p = θC, where v = qP.

    Each count has a variance n·p(1 − p) of at least ``RARE``: a report that nearly everybody makes is
    known no better than one that hardly anybody makes.
    """
    law = distribution @ system.matrix
    own = np.maximum(total * law * (1.0 - law), RARE) + total * np.square(law)
    spread = system.solve(np.diag(np.sqrt(own) / total))
    mean = system.solve(law)
    return bars.GaussianErrors(
        method="delta method on the solution before its repair",
        distribution=distribution,
        centre=solution,
        people=total,
        covariance=spread.T @ spread - np.outer(mean, mean) / total,
        lost=system.lost(),
    )


# --- Randomised response and RAPPOR in closed form, whatever privacy level each person chose


class _ClosedForm(_Repaired):
    """Whatever levels people chose, the average of their mechanisms is noise + gain·θ, solved for θ."""

    _kind: ClassVar[type[RandomizedResponse | Rappor]]

    @abstractmethod
    def _mixture(self, tally: Tally, epsilon: float) -> mixture.Mixture:
        """What the mechanism of one tally does to a one-hot datum."""

    @abstractmethod
    def _moments(self, group: mixture.Mixture, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """d and u, with diag(d) − u·uᵀ the covariance of one report as a vector of bits."""

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> fitted.Estimate:
        """The estimate from tallies over one space, all of the mechanism this estimator is for."""
        counted = [tally for tally in fitted.checked_tallies(tallies) if tally.total]
        groups = []
        for tally in counted:
            if not isinstance(tally.channel, self._kind):
                raise Unsupported(
                    f"a tally (of {tally.channel!r}) must come from {self._kind.__name__} for this "
                    "estimator; use AverageMechanism(MatrixInversion()) or IterativeBayesianUpdate()"
                )
            groups.append(self._mixture(tally, tally.channel.epsilon))
        noise, gain, total = mixture.pooled(groups)
        sums = np.sum([tally.sums for tally in counted], axis=0)
        solution = (sums / total - noise) / gain
        distribution = REPAIRS[self.repair](solution)
        levels, cells = len({group[:2] for group in groups}), distribution.size
        said = "one privacy level" if levels == 1 else f"{levels} privacy levels together"
        why = f"every level above 0 tells all {cells} cells apart"
        return fitted.Estimate(
            space=counted[0].space,
            distribution=distribution,
            total=int(total),
            steps=0,
            stopped=f"solved exactly for {said}, then {self._words(solution)}",
            find_fit=lambda: fitted.fit_of(fitted.Observations(counted), distribution),
            find_errors=lambda: self._errors(groups, solution, distribution),
            find_identifiability=lambda: all_told_apart(cells, why),
            find_promises=lambda: fitted.promises_of(counted),
        )

    def _errors(
        self, groups: Sequence[mixture.Mixture], solution: FloatArray, distribution: FloatArray
    ) -> bars.DiagonalErrors:
        """Reports are independent, so their covariances add, group by group; ``RARE`` is the least."""
        overall = mixture.pooled(groups)
        scale = overall.people * overall.gain
        spreads, factors = zip(
            *(self._moments(group, distribution) for group in groups), strict=True
        )
        people = np.array([group.people for group in groups])
        shared = people @ np.square(factors)
        return bars.DiagonalErrors(
            method="exact variances at the estimate, before its repair",
            distribution=distribution,
            centre=solution,
            people=int(overall.people),
            spread=(np.maximum(people @ np.stack(spreads) - shared, RARE) + shared) / scale**2,
            factors=np.sqrt(people)[:, None] * np.stack(factors) / scale,
        )


@dataclass(frozen=True)
class RandomizedResponseEstimator(_ClosedForm):
    """[INV]_M for people who use k-ary randomised response at levels of their own.

    Law: θ̂ = ((e^{ε[n]}+k−1)·q − 1)/(e^{ε[n]}−1) with 1/(k−1+e^{ε[n]}) = mean of 1/(k−1+e^{ε_i}), then
    the repair. Before the repair it is unbiased, and its error at most that of
    ``randomized_response_error_bound``. Error bars are exact variances at θ̂.
    Cost: O(k), any k. The same as ``AverageMechanism(MatrixInversion())``, without a matrix.
    Reference: FREEWILL eqs. (8) and (9), Proposition 2.

    >>> import geoveil as gv
    >>> line = gv.Line(2)
    >>> strict, open_ = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 3.0))
    >>> tallies = [gv.Tally(strict, [60, 40]), gv.Tally(open_, [240, 60])]
    >>> RandomizedResponseEstimator().fit(tallies).distribution.round(3).tolist()
    [0.815, 0.185]
    """

    _kind = RandomizedResponse

    def _mixture(self, tally: Tally, epsilon: float) -> mixture.Mixture:
        return mixture.randomized_response_mixture(epsilon, tally.total, tally.space.size)

    def _moments(self, group: mixture.Mixture, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        law = group.noise + group.gain * theta  # one report as a one-hot vector: diag(p) − ppᵀ
        return law, law


@dataclass(frozen=True)
class RapporEstimator(_ClosedForm):
    """[RAP]_M for people who use RAPPOR at levels of their own, from the sums of the bits alone.

    Law: θ̂ = ((e^{ε[n]/2}+1)·s − 1)/(e^{ε[n]/2}−1) with s the mean bit vector and
    1/(1+e^{ε[n]/2}) = mean of 1/(1+e^{ε_i/2}), then the repair. Before the repair it is unbiased, and
    its error at most that of ``rappor_error_bound``. Error bars are exact variances at θ̂.
    Cost: O(k), any k.
    Reference: FREEWILL eqs. (13) and (14), Proposition 3.

    >>> import geoveil as gv
    >>> rappor = gv.Rappor(gv.Line(2), epsilon=2.0)
    >>> bits = [[1, 0]] * 60 + [[0, 1]] * 20 + [[0, 0]] * 10 + [[1, 1]] * 10
    >>> RapporEstimator().fit(rappor.tally(bits)).distribution.round(3).tolist()
    [0.933, 0.067]
    """

    _kind = Rappor

    def _mixture(self, tally: Tally, epsilon: float) -> mixture.Mixture:
        return mixture.rappor_mixture(epsilon, tally.total)

    def _moments(self, group: mixture.Mixture, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Bits of mean μ have variance μ(1−μ); two share −gain²·θ_x·θ_y through the true cell."""
        mean, shared = group.noise + group.gain * theta, group.gain * theta
        return mean * (1.0 - mean) + np.square(shared), shared
