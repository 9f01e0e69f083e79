"""People with different mechanisms: estimators made for one, reused for several, and what levels amount to.

Estimators made for one mechanism can be reused for several in two ways. Neither is maximum likelihood:
``IterativeBayesianUpdate().fit([…])`` uses the same tallies better (FREEWILL §7 and §8). The certificate of
the results says how much likelihood they may lack.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from geoveil.arrays import (
    ArrayLike,
    FloatArray,
    able,
    count,
    distribution,
    numbers,
    one_blas_thread,
)
from geoveil.channel.channel import Tally
from geoveil.channel.composed import AverageChannel
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate import bars, fitted


class Estimator(Protocol):
    """Whatever turns tallies into an estimate."""

    def fit(self, tallies: Tally | Iterable[Tally]) -> fitted.Estimate:
        """The estimate from one tally or several."""


def checked_estimator(estimator: Estimator) -> Estimator:
    """The estimator itself; an error for anything else."""
    able("estimator", estimator, "fit", "an estimator, such as gv.IterativeBayesianUpdate()")
    return estimator


@dataclass(frozen=True)
class _Reused:
    """An estimator for one mechanism, used for several."""

    estimator: Estimator

    def __post_init__(self) -> None:
        checked_estimator(self.estimator)


class AverageOfEstimates(_Reused):
    """[e]_R: one estimate for each mechanism, averaged by the number of reports.

    Law: θ̂ = Σ_A (n^A/n)·e(A, D^A), after joining the tallies of equal mechanisms.
    Cost: that of the estimator, once for each mechanism.
    Reference: FREEWILL eqs. (4) and (5). Each estimate sees only a part of the reports, and what a
    repair adds to each does not average out.

    >>> import geoveil as gv
    >>> from geoveil.estimate.linear import MatrixInversion
    >>> line = gv.Line(2)
    >>> strict, open_ = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 3.0))
    >>> tallies = [gv.Tally(strict, [60, 40]), gv.Tally(open_, [240, 60])]
    >>> AverageOfEstimates(MatrixInversion()).fit(tallies).distribution.round(3).tolist()
    [0.803, 0.197]
    """

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> fitted.Estimate:
        """The estimate from tallies of one space, whatever their mechanisms."""
        merged = fitted.by_mechanism(fitted.checked_tallies(tallies))
        return self.fit_groups([[tally] for tally in merged])

    @one_blas_thread()
    def fit_groups(self, groups: Iterable[Sequence[Tally]]) -> fitted.Estimate:
        """The average of one estimate for each group of people, such as all who chose the same promise.

        Right whatever the groups have to do with the places of their people.
        """
        lists = [list(group) for group in groups]
        tallies = [tally for group in lists for tally in group]
        return averaged([self.estimator.fit(group) for group in lists], tallies)


def averaged(parts: Sequence[fitted.Estimate], tallies: Sequence[Tally]) -> fitted.Estimate:
    """Σ (n_p/n)·θ_p over estimates of parts of the people, made from ``each`` of these tallies together."""
    weights = np.array([part.total for part in parts], dtype=np.float64)
    weights /= weights.sum()
    distribution = weights @ np.stack([part.distribution for part in parts])
    reasons = list(dict.fromkeys(part.stopped for part in parts))
    more = "" if len(reasons) == 1 else f" (and {len(reasons) - 1} other ways)"
    return fitted.Estimate(
        space=parts[0].space,
        distribution=distribution,
        total=sum(part.total for part in parts),
        steps=max(part.steps for part in parts),
        stopped=f"average of {len(parts)} estimates, each {reasons[0]}{more}",
        find_fit=lambda: fitted.fit_of(fitted.Observations(tallies), distribution),
        find_errors=lambda: bars.AveragedErrors.of(
            distribution, [p.errors for p in parts], weights
        ),
        find_identifiability=lambda: min(
            (part.identifiable for part in parts), key=lambda verdict: verdict.rank
        ),
        find_promises=lambda: fitted.promises_of(tallies),
    )


class AverageMechanism(_Reused):
    """[e]_M: one estimate from all reports, as if made by the average of the mechanisms.

    Law: e(A[n], q[n]) with A[n] = Σ_A (n^A/n)·A and q[n] the share of each report among all.
    All mechanisms must have the same reports. Consistent for matrix inversion; for maximum likelihood
    it is not maximum likelihood, and where mechanisms cancel each other in the average, nothing is
    left to estimate from. Error bars are those under the average mechanism: on the safe side,
    because knowing who used which mechanism only lowers the variance of q[n].
    Reference: FREEWILL §5.1, §5.3 and Proposition 1.

    >>> import geoveil as gv
    >>> from geoveil.estimate.linear import MatrixInversion
    >>> line = gv.Line(2)
    >>> strict, open_ = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 3.0))
    >>> tallies = [gv.Tally(strict, [60, 40]), gv.Tally(open_, [240, 60])]
    >>> AverageMechanism(MatrixInversion()).fit(tallies).distribution.round(3).tolist()
    [0.815, 0.185]
    """

    @one_blas_thread()
    def fit(self, tallies: Tally | Iterable[Tally]) -> fitted.Estimate:
        """The estimate from tallies of one space whose channels have the same reports."""
        observations = fitted.Observations(fitted.by_mechanism(fitted.checked_tallies(tallies)))
        several = len(observations.tallies)
        if not all(tally.complete for tally in observations.tallies):
            raise Unsupported(
                "the average mechanism needs every report of each channel, and a tally keeps only "
                "those seen; use RapporEstimator for RAPPOR, or IterativeBayesianUpdate"
            )
        shares = [tally.total / observations.total for tally in observations.tallies]
        average = AverageChannel([tally.channel for tally in observations.tallies], shares)
        counts = sum(tally.counts for tally in observations.tallies)
        inner = self.estimator.fit(Tally(average, counts))
        return fitted.Estimate(
            space=inner.space,
            distribution=inner.distribution,
            total=inner.total,
            steps=inner.steps,
            stopped=f"{inner.stopped}, under the average of {several} mechanisms",
            find_fit=lambda: fitted.fit_of(observations, inner.distribution),
            find_errors=lambda: inner.errors,
            find_identifiability=lambda: inner.identifiable,
            find_promises=lambda: fitted.promises_of(observations.tallies),
        )


# --- Mixed privacy levels: the level they amount to, and the error that can be expected
#
# People choose ε_i of their own. For randomised response and for RAPPOR the average mechanism is of the
# same kind again, at a level ε[n]; the linear estimators and their error depend on it alone. Everything
# is computed from two means that stay accurate for tiny and for huge ε: the **noise**, the chance that a
# report names a given wrong cell (sets a given wrong bit), and the **gain**, the share of the signal
# that is left.


class Mixture(NamedTuple):
    """What a mixture of levels does to a one-hot datum b on average: noise + gain·b."""

    noise: float
    gain: float
    people: float


def pooled(parts: Sequence[Mixture]) -> Mixture:
    """Several groups of people as one: the means over all of them."""
    noise, gain, people = np.array(parts).T
    total = float(people.sum())
    return Mixture(float(noise @ people) / total, float(gain @ people) / total, total)


def randomized_response_mixture(epsilon: ArrayLike, people: ArrayLike, size: int) -> Mixture:
    """Noise = mean of 1/(k−1+e^ε), gain = mean of (e^ε−1)/(k−1+e^ε), over the people."""
    levels, weights, total = _levels(epsilon, people)
    fading = np.exp(-levels)
    scale = 1.0 + (count("size", size) - 1) * fading
    return Mixture(
        float(weights @ (fading / scale)), float(weights @ (-np.expm1(-levels) / scale)), total
    )


def rappor_mixture(epsilon: ArrayLike, people: ArrayLike) -> Mixture:
    """Noise = mean of 1/(1+e^{ε/2}), gain = mean of tanh(ε/4), over the people."""
    levels, weights, total = _levels(epsilon, people)
    fading = np.exp(-levels / 2)
    return Mixture(
        float(weights @ (fading / (1 + fading))), float(weights @ np.tanh(levels / 4)), total
    )


def randomized_response_level(epsilon: ArrayLike, *, size: int, people: ArrayLike = 1) -> float:
    """ε[n] of people who use k-ary randomised response at levels of their own.

    1/(k−1+e^{ε[n]}) = mean of 1/(k−1+e^{ε_i}), where k is ``size`` and ``people`` says how many
    people use each level (one number: the same for all).
    Reference: FREEWILL eq. (8).

    >>> round(randomized_response_level([2.0, 2.0], size=10), 12)
    2.0
    """
    return _log1p_ratio(randomized_response_mixture(epsilon, people, size))


def rappor_level(epsilon: ArrayLike, *, people: ArrayLike = 1) -> float:
    """ε[n] of people who use RAPPOR at levels of their own.

    1/(1+e^{ε[n]/2}) = mean of 1/(1+e^{ε_i/2}).
    Reference: FREEWILL eq. (13).

    >>> round(rappor_level([2.0, 2.0]), 12)
    2.0
    """
    return 2 * _log1p_ratio(rappor_mixture(epsilon, people))


def randomized_response_error_bound(
    theta: ArrayLike, epsilon: ArrayLike, people: ArrayLike
) -> float:
    """Upper bound on E‖θ̂ − θ‖² of matrix inversion under k-ary randomised response.

    (1 − Σθ²)/n + (k−1)(k + 2(e^{ε[n]}−1)) / (n(e^{ε[n]}−1)²), before any repair. Exact when all use
    the same level. ``epsilon`` lists the levels, ``people`` how many use each.
    Reference: FREEWILL Proposition 2.

    >>> round(randomized_response_error_bound([0.5, 0.5], 1.0, people=100), 8)
    0.02341347
    """
    truth = distribution("theta", theta, np.size(theta))
    noise, gain, total = randomized_response_mixture(epsilon, people, truth.size)
    added = (truth.size - 1) * noise * (truth.size * noise + 2 * gain) / gain**2
    return (1.0 - float(truth @ truth) + added) / total


def rappor_error_bound(theta: ArrayLike, epsilon: ArrayLike, people: ArrayLike) -> float:
    """Upper bound on E‖θ̂ − θ‖² of the linear estimator under RAPPOR.

    (1 − Σθ²)/n + k e^{ε[n]/2} / (n(e^{ε[n]/2}−1)²), before any repair. Exact when all use the same
    level. ``epsilon`` lists the levels, ``people`` how many use each.
    Reference: FREEWILL Proposition 3.

    >>> round(rappor_error_bound([0.5, 0.5], 2.0, people=100), 8)
    0.02341347
    """
    truth = distribution("theta", theta, np.size(theta))
    noise, gain, total = rappor_mixture(epsilon, people)
    added = truth.size * noise * (1.0 - noise) / gain**2
    return (1.0 - float(truth @ truth) + added) / total


def _log1p_ratio(mixture: Mixture) -> float:
    return math.log1p(mixture.gain / mixture.noise) if mixture.noise > 0 else math.inf


def _levels(epsilon: ArrayLike, people: ArrayLike) -> tuple[FloatArray, FloatArray, float]:
    """The levels, the share of the people at each, and the number of people, checked."""
    levels = np.atleast_1d(numbers("epsilon", epsilon))
    heads = numbers("people", people)
    if levels.ndim != 1 or not levels.size or not (np.isfinite(levels) & (levels > 0)).all():
        raise InvalidInput("epsilon must hold finite levels above 0")
    if heads.ndim and heads.shape != levels.shape:
        raise InvalidInput(f"people (shape {heads.shape}) must have one entry per level")
    if not np.isfinite(heads).all() or (heads < 0).any() or not heads.any():
        raise InvalidInput("people must be finite, not negative, and not all zero")
    spread = np.broadcast_to(heads, levels.shape)
    return levels, spread / spread.sum(), float(spread.sum())
