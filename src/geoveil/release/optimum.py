"""The release channel of least leakage for its distortion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from scipy.special import entr, rel_entr, softmax

from geoveil.arrays import ArrayLike, FloatArray, IntArray, frozen, positive
from geoveil.channel.channel import inverse_distribution
from geoveil.channel.kernel import Kernel, kernel_on
from geoveil.channel.operator import DenseOperator, Operator
from geoveil.estimate.em import Accelerator, ActiveSetNewton, Ascent, Squarem, maximise
from geoveil.estimate.objective import Objective, Point, em_path
from geoveil.estimate.stopping import CertifiedWithin, Progress, Steps, Stop
from geoveil.mechanism.elastic import Elastic, exponential_kernel
from geoveil.randomness import SYSTEM, Randomness
from geoveil.release.counts import CountVectors
from geoveil.release.prior import CountLaw

_NEGLIGIBLE = 1e-6
_ENTRY = 1e-9
_TRIAL, _WORTH = 3, 0.1
_ROUNDING = 1e-14
_FINER = 0.03
"""How much nearer the maximum of a part is sought than the whole is known to be."""


@dataclass(frozen=True)
class WorkingSetNewton:
    """:class:`Squarem`, then exact maxima on a few unknowns at a time once few of them matter.

    Law: now and then, where few unknowns carry the mass (e to the entropy of θ at most ``largest``), solve
    the problem restricted to these with :class:`ActiveSetNewton`; then, with the gradient over all
    unknowns, let those with the largest g > 1 enter, and solve again. Three such rounds are a trial: if
    they bring the certificate to a tenth the method stays with them, each round one step, else they are
    forgotten and the extrapolated steps go on, twice as many as before.
    Cost: three products per Squarem step; a matrix of (working unknowns × observations) and one product
    per round. ``rows`` gives rows of L, exact, over all observations.
    Reference: the exchange method for mixtures (Böhning, Annals of the Institute of Statistical
    Mathematics 47, 1995), with Newton steps inside.
    """

    rows: Callable[[IntArray], FloatArray]
    warm_steps: int = 8
    largest: int = 256
    entering: int = 64

    def path(self, objective: Objective, start: FloatArray) -> Iterator[Point]:
        """The start, the extrapolated steps, then the point after each round."""
        steps, wait = Squarem().path(objective, start), self.warm_steps + 1
        best: Point | None = None
        while best is None:
            for point in islice(steps, wait):
                yield point
            wait *= 2
            if np.exp(entr(point.theta).sum()) <= self.largest:
                best = self._trial(objective, point)
        while True:
            yield best
            following = self._round(objective, best)
            gain = following.log_likelihood - best.log_likelihood
            nearer = following.certificate < best.certificate
            if not (gain > 0 or (gain >= -_ROUNDING and nearer)):
                return
            best = following

    def _trial(self, objective: Objective, point: Point) -> Point | None:
        """The point after a few rounds; ``None`` where they are not worth it."""
        trial = point
        for _ in range(_TRIAL):
            trial = self._round(objective, trial)
            if trial.certificate <= _WORTH * point.certificate:
                return trial if trial.log_likelihood >= point.log_likelihood else None
        return None

    def _round(self, objective: Objective, point: Point) -> Point:
        """The maximum over the unknowns with the most mass, and those that want to enter most."""
        heavy = np.argsort(-point.theta, kind="stable")[: self.largest]
        heavy = heavy[point.theta[heavy] > _NEGLIGIBLE * point.theta.max()]
        eager = np.argsort(-point.gradient, kind="stable")[: self.entering]
        working = np.union1d(heavy, eager[point.gradient[eager] > 1.0])
        start = np.maximum(point.theta[working], _ENTRY)
        ascent = maximise(
            DenseOperator(self.rows(working)[:, objective.observed]),
            objective.weights,
            start=start / start.sum(),
            stop=CertifiedWithin(max(_FINER * float(point.certificate), 1e-10), maximum=200),
            accelerate=ActiveSetNewton(warm_steps=3),
        )
        theta = np.zeros(point.theta.size)
        theta[working] = ascent.distribution
        return objective.at(theta)


@dataclass(frozen=True)
class LeakageChange:
    """Until one step lowers the leakage by at most ``threshold`` nats.

    Law: I_k = Σ p(a) q_k(ã|a) log(q_k(ã|a)/c_k(ã)) = −f(c_k) − λ·D_k; the first step with I_{k−1} − I_k ≤ δ
    is the last. ``distances`` is the kernel d·e^{−λd}, from which D_k comes.
    Cost: the path is walked twice, first with one more product a step to find its end.
    Reference: AGG Alg. 1, line 8. It says nothing about the distance to the optimum; the certificate does.
    """

    threshold: float
    multiplier: float
    distances: Kernel
    maximum: int = 100_000

    def settled(
        self, operator: Operator, weights: ArrayLike, start: FloatArray, progress: Progress | None
    ) -> Steps:
        """The number of steps that Algorithm 1 makes on these data."""
        objective, before = Objective(operator, weights), np.inf
        for step, point in enumerate(em_path(objective, start)):
            nearness = self.distances._push(point.theta)[objective.observed]
            distortion = float(objective.weights @ (nearness / point.law))
            leakage = -float(point.log_likelihood) - self.multiplier * distortion
            if before - leakage <= self.threshold or step >= self.maximum:
                return Steps(step, f"the leakage fell by less than {self.threshold:g} nats")
            before = leakage
        raise AssertionError("expectation–maximisation goes on without end")


FINE, COARSE = CertifiedWithin(1e-6, maximum=2000), CertifiedWithin(1e-3, maximum=2000)
"""How near the least leakage a design must come, in nats: on a whole lattice, and on a window."""


def leaked_nats(design: Any, log_total: FloatArray) -> float:
    """I(A; Ã) = −λD − Σ p log Z − Σ P(ã) log g(ã), g = P(ã)/c(ã), over vectors or orbits, in nats."""
    probabilities, output = design.law.probabilities, design.output
    occurs, possible = probabilities > 0, output > 0
    normaliser = float(probabilities[occurs] @ log_total[occurs])
    logs = np.log(output[possible] / design.weights[possible])
    return max(
        0.0, -design.multiplier * design.distortion - normaliser - float(output[possible] @ logs)
    )


class ReleaseDesign:
    """Release ã instead of the counts a with probability ∝ c(ã)·e^{−λ·d(a, ã)}.

    Law: c maximises Σ_a p(a) log Z(a), Z(a) = Σ_ã c(ã)e^{−λd(a, ã)}: Blahut–Arimoto, the one EM loop with
    the roles swapped. c lives on the window of the law; a may be any valid vector.
    Guarantee: one person who goes elsewhere changes the probability of any release by at most a factor
    e^{2√2·λ}, whatever the prior (the elastic family's 2λ per unit of distance, a move being √2).
    Cost: two FFT products in L − 1 dimensions a step. Units: d in people, λ per person.
    Reference: AGG Alg. 1.
    """

    def __init__(self, law: CountLaw, multiplier: float, ascent: Ascent) -> None:
        self.law = law
        self.multiplier = multiplier
        self.ascent = ascent
        self.weights = ascent.distribution

    @property
    def vectors(self) -> CountVectors:
        """The vectors that can be released."""
        return self.law.vectors

    # -- averages --------------------------------------------------------------------------------

    @cached_property
    def _averages(self) -> _Averages:
        return _Averages(self.vectors, beta_per_km=self.multiplier, weights=self.weights)

    @cached_property
    def output(self) -> FloatArray:
        """P(Ã = ã) for each vector of the window."""
        released = self.pushed(self.law.probabilities)
        return frozen(released / released.sum())

    @cached_property
    def distortion(self) -> float:
        """E d(A, Ã), in people."""
        means = self._averages.mean_of_distance(lambda distance: distance)
        return max(0.0, float(self.law.probabilities @ means))

    @cached_property
    def leakage_nats(self) -> float:
        """I(A; Ã), in nats."""
        return leaked_nats(self, self._averages.log_normaliser)

    @property
    def leakage_bits(self) -> float:
        """I(A; Ã) in bits."""
        return self.leakage_nats / math.log(2)

    def pushed(self, laws: FloatArray) -> FloatArray:
        """Laws of Ã (rows) where the counts follow ``laws`` (rows) instead of p, on the support of p."""
        return np.maximum(self._averages._push(laws * (self.law.probabilities > 0)), 0.0)

    @cached_property
    def certificate_nats(self) -> float:
        """At most so many nats lie between the leakage and the least one possible at this distortion.

        The certificate of the loop, the vectors outside the window and the tail left out included.
        """
        # A vector that was left out would add at most p·(−log Z), and Z is at least its largest term.
        farthest = math.sqrt(2) * self.vectors.people
        tail = self.law.left_out * (self.multiplier * farthest - math.log(self.weights.max()))
        return max(self.ascent.certificate, self.outside_nats) + max(0.0, tail)

    @cached_property
    def outside_nats(self) -> float:
        """The certificate over the releases outside the window: log max g there, if above zero.

        g(ã) ≤ Σ(p/Z)·e^{−λ·distance to the window}, so beyond a margin nothing can want to enter; the
        margin itself, or as much of it as a transform can hold, is looked at with one product.
        """
        if self.law.is_whole:
            return 0.0
        margin, ratio = self.margin, self._ratio
        while margin and not self.law.can_widen(margin):
            margin //= 2
        wide = self.law.widened(margin).vectors
        spread = np.zeros(wide.size)
        spread[wide.index(self.vectors.vectors)] = ratio
        gradient = exponential_kernel(wide, self.multiplier)._push(spread)
        beyond = math.log(ratio.sum()) - self.multiplier * (margin + 1)
        return max(0.0, math.log(gradient.max()), beyond)

    @property
    def margin(self) -> int:
        """How far outside the window a release could still want to be."""
        return max(0, math.ceil(math.log(self._ratio.sum()) / self.multiplier))

    @property
    def _ratio(self) -> FloatArray:
        """p/Z over the vectors of the window."""
        return self.law.probabilities * self._averages._inverse

    @cached_property
    def personal_leakage_bits(self) -> FloatArray:
        """(people,): I(A_m; Ã), in bits."""
        prior = self.law.prior
        by_kind = np.zeros(prior.rows.shape[0])
        for kind, laws in prior.laws_given_place(self.vectors):
            shares = prior.rows[kind][prior.rows[kind] > 0]
            released = self.pushed(laws[prior.rows[kind] > 0])  # (places, vectors): r_l
            released /= released.sum(axis=1, keepdims=True)
            output = shares @ released
            # what hardly ever comes may have no chance left after rounding
            divergences = rel_entr(released, output)[:, output > 0].sum(axis=1)
            by_kind[kind] = max(0.0, float(shares @ divergences)) / math.log(2)
        return by_kind[prior.kind]

    # -- single vectors --------------------------------------------------------------------------

    def row(self, counts: IntArray) -> FloatArray:
        """The law of the release when ``counts`` is the truth: exact, for any valid vector."""
        support = np.flatnonzero(self.weights)
        distance = CountVectors._norm(self.vectors.centres[support] - counts)
        row = np.zeros(self.vectors.size)
        row[support] = softmax(np.log(self.weights[support]) - self.multiplier * distance)
        return row

    def sample(self, counts: IntArray, randomness: Randomness = SYSTEM) -> IntArray:
        """One release for a valid vector."""
        (number,) = inverse_distribution(self.row(counts), randomness.uniform(1))
        return np.array(self.vectors.vectors[number])

    @cached_property
    def channel(self) -> Elastic:
        """The design as an elastic channel on its window, for ``certify`` and all that takes channels."""
        return Elastic(self.vectors, beta_per_km=self.multiplier, weights=self.weights)


class _Averages(Elastic):
    """The elastic law for averages under a prior alone: Z is lifted to the noise of its product.

    Every vector with a prior has a Z well above that, and of the others no average knows; so no
    row needs to be summed apart, however large the window. It certifies nothing: ``channel`` does.
    """

    _remote = np.zeros(0, dtype=np.int64)  # no cell goes without the FFT

    def _log_normaliser(self) -> FloatArray:
        return np.log(LiftedKernel(self._kernel)._push(self.weights))


class LiftedKernel(Operator):
    """Blahut–Arimoto on a window, where every vector with a prior has a Z well above the noise of an FFT.

    After a step Z(a) ≥ p(a)·e^{−λ·mean distance}, and the law leaves out vectors below about 1e-13, so no
    column needs to be summed apart; what the start or an extrapolation puts lower is lifted to the noise.
    """

    exact = True

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    @property
    def shape(self) -> tuple[int, int]:
        return self.kernel.shape

    def _push(self, theta: FloatArray) -> FloatArray:
        return np.maximum(self.kernel._push(theta), np.maximum(self.kernel.noise(theta), 1e-300))

    def _pull(self, values: FloatArray) -> FloatArray:
        return np.maximum(self.kernel._push(values), 0.0)

    def columns(self, chosen: IntArray) -> FloatArray:
        return self.kernel.columns(chosen)


def design(
    law: CountLaw, multiplier: float, *, stop: Stop | None = None, progress: Progress | None = None
) -> ReleaseDesign:
    """The channel with least leakage + λ·distortion for a law of the counts.

    It is brought within 1e-6 nats of the least on a whole lattice and 1e-3 on a window, or as the rule
    ``stop`` has it; ``certificate_nats`` has what is proven, the vectors left out included.
    """
    rate = positive("multiplier", multiplier)
    rule = (FINE if law.is_whole else COARSE) if stop is None else stop

    def best(law: CountLaw) -> ReleaseDesign:
        kernel = exponential_kernel(law.vectors, rate)
        newton = WorkingSetNewton(kernel.rows)
        return ReleaseDesign(law, rate, _ascent(kernel, law, rule, newton, progress))

    release = best(law)
    enough = release.outside_nats <= max(release.ascent.certificate, COARSE.tolerance)
    if enough or not law.can_widen(release.margin):
        return release  # with the certificate it has
    return best(law.widened(release.margin))  # releases outside the window would leak less


def published_design(law: CountLaw, multiplier: float, threshold: float) -> ReleaseDesign:
    """Algorithm 1 of the paper as printed: plain steps until the leakage falls by less than δ nats."""
    rate = positive("multiplier", multiplier)
    distances = kernel_on(law.vectors, lambda d: d * np.exp(-rate * d))
    stop = LeakageChange(positive("threshold", threshold), rate, distances)
    return ReleaseDesign(law, rate, _ascent(exponential_kernel(law.vectors, rate), law, stop))


def _ascent(
    kernel: Kernel,
    law: CountLaw,
    stop: Stop,
    accelerate: Accelerator | None = None,
    progress: Progress | None = None,
) -> Ascent:
    """Blahut–Arimoto for the law of the counts, above the noise of the kernel where it has any."""
    operator = kernel if kernel.exact else LiftedKernel(kernel)
    return maximise(
        operator, law.probabilities, stop=stop, accelerate=accelerate, progress=progress
    )
