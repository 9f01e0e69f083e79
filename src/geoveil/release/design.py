"""The release channel of one timestamp: least leakage for its distortion, with a certificate."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from geoveil.arrays import FloatArray, IntArray, frozen, positive
from geoveil.channel.base import inverse_distribution
from geoveil.channel.kernel import DenseKernel, Kernel, kernel_on
from geoveil.collect.weights import KernelLikelihood, exponential_kernel
from geoveil.estimate.em import Ascent, maximise
from geoveil.estimate.likelihood import DenseLikelihood, Likelihood
from geoveil.estimate.stopping import CertifiedWithin, Progress, Stop
from geoveil.mechanism.elastic import Elastic
from geoveil.randomness import SYSTEM, Randomness
from geoveil.release.counts import CountVectors
from geoveil.release.law import CountLaw
from geoveil.release.published import LeakageChange
from geoveil.release.working_set import WorkingSetNewton

FINE, COARSE = CertifiedWithin(1e-6, maximum=2000), CertifiedWithin(1e-3, maximum=2000)
"""How near the least leakage a design must come, in nats: on a whole lattice, and on a window."""
_TINY = 1e-300


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
    def _kernel(self) -> Kernel:
        return exponential_kernel(self.vectors, self.multiplier)

    @cached_property
    def _point(self) -> tuple[FloatArray, FloatArray]:
        """p/Z over the vectors and g = K(p/Z)."""
        noise = np.maximum(self._kernel.noise(self.weights), _TINY)
        scaled = self._prior / np.maximum(self._kernel.apply(self.weights), noise)
        return scaled, np.maximum(self._kernel.apply(scaled), 0.0)

    @property
    def _prior(self) -> FloatArray:
        return self.law.probabilities

    @cached_property
    def _log_normaliser(self) -> FloatArray:
        """log Z where the prior is positive, zero elsewhere."""
        scaled, _ = self._point
        seen = scaled > 0
        result = np.zeros(self.vectors.size)
        result[seen] = np.log(self._prior[seen]) - np.log(scaled[seen])
        return result

    @cached_property
    def output(self) -> FloatArray:
        """P(Ã = ã) for each vector of the window."""
        released = self.weights * self._point[1]
        return frozen(released / released.sum())

    @cached_property
    def distortion(self) -> float:
        """E d(A, Ã), in people."""
        rate = self.multiplier
        distances = kernel_on(self.vectors, lambda d: d * np.exp(-rate * d))
        return max(0.0, float(self.weights @ distances.apply(self._point[0])))

    @cached_property
    def leakage_nats(self) -> float:
        """I(A; Ã) = −λD − Σ p log Z − Σ P(ã) log g(ã), in nats."""
        gradient = self._point[1]
        possible = self.output > 0
        ratio = float(self.output[possible] @ np.log(gradient[possible]))
        expected = -self.multiplier * self.distortion - float(self._prior @ self._log_normaliser)
        return max(0.0, expected - ratio)

    @property
    def leakage_bits(self) -> float:
        """I(A; Ã) in bits."""
        return self.leakage_nats / math.log(2)

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
        margin = self.margin
        while margin and not self.law.can_widen(margin):
            margin //= 2
        wide = self.law.widened(margin).vectors
        scaled = np.zeros(wide.size)
        scaled[wide.index(self.vectors.vectors)] = self._point[0]
        gradient = exponential_kernel(wide, self.multiplier).apply(scaled)
        beyond = math.log(self._point[0].sum()) - self.multiplier * (margin + 1)
        return max(0.0, math.log(gradient.max()), beyond)

    @property
    def margin(self) -> int:
        """How far outside the window a release could still want to be."""
        return max(0, math.ceil(math.log(self._point[0].sum()) / self.multiplier))

    def pushed(self, laws: FloatArray) -> FloatArray:
        """Laws of Ã (rows) where the counts follow ``laws`` (rows) instead of p, on the same support."""
        scaled, _ = self._point
        ratio = np.divide(scaled, self._prior, out=np.zeros_like(scaled), where=self._prior > 0)
        return np.maximum(self._kernel.apply(laws * ratio), 0.0) * self.weights

    # -- single vectors --------------------------------------------------------------------------

    def row(self, counts: IntArray) -> FloatArray:
        """The law of the release when ``counts`` is the truth: exact, for any valid vector."""
        distance = CountVectors._norm(self.vectors.centres[self._support] - counts)
        terms = np.log(self.weights[self._support]) - self.multiplier * distance
        row = np.zeros(self.vectors.size)
        row[self._support] = np.exp(terms - logsumexp(terms))
        return row

    @cached_property
    def _support(self) -> IntArray:
        return np.flatnonzero(self.weights)

    def sample(self, counts: IntArray, randomness: Randomness = SYSTEM) -> IntArray:
        """One release for a valid vector."""
        (number,) = inverse_distribution(self.row(counts), randomness.uniform(1))
        return np.array(self.vectors.vectors[number])

    @cached_property
    def channel(self) -> Elastic:
        """The design as an elastic channel on its window, for ``certify`` and all that takes channels."""
        return Elastic(self.vectors, beta_per_km=self.multiplier, weights=self.weights)


def design(
    law: CountLaw,
    multiplier: float,
    *,
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> ReleaseDesign:
    """The channel with least leakage + λ·distortion for a law of the counts.

    It is brought within 1e-6 nats of the least on a whole lattice and 1e-3 on a window, or as the rule
    ``stop`` has it; ``certificate_nats`` has what is proven, the vectors left out included.
    """
    rate = positive("multiplier", multiplier)
    rule = (FINE if law.is_whole else COARSE) if stop is None else stop
    made = ReleaseDesign(law, rate, _ascent(law, rate, rule, progress))
    if made.outside_nats <= max(made.ascent.certificate, COARSE.tolerance):
        return made
    if not law.can_widen(made.margin):
        return made  # with the certificate it has
    wider = law.widened(made.margin)  # releases outside the window would leak less
    return ReleaseDesign(wider, rate, _ascent(wider, rate, rule, progress))


def published_design(law: CountLaw, multiplier: float, threshold: float) -> ReleaseDesign:
    """Algorithm 1 of the paper as printed: plain steps until the leakage falls by less than δ nats."""
    rate = positive("multiplier", multiplier)
    distances = kernel_on(law.vectors, lambda d: d * np.exp(-rate * d))
    stop = LeakageChange(positive("threshold", threshold), rate, distances)
    likelihood = _likelihood(exponential_kernel(law.vectors, rate), law.vectors.size)
    return ReleaseDesign(law, rate, maximise(likelihood, law.probabilities, stop=stop))


def _ascent(law: CountLaw, rate: float, stop: Stop, progress: Progress | None) -> Ascent:
    kernel = exponential_kernel(law.vectors, rate)
    return maximise(
        _likelihood(kernel, law.vectors.size),
        law.probabilities,
        stop=stop,
        accelerate=WorkingSetNewton(kernel.rows),
        progress=progress,
    )


def _likelihood(kernel: Kernel, size: int) -> Likelihood:
    """A matrix where there is one, else the kernel."""
    if isinstance(kernel, DenseKernel):
        return DenseLikelihood(kernel.rows(np.arange(size)))
    return WindowLikelihood(kernel, size)


class WindowLikelihood(KernelLikelihood):
    """Blahut–Arimoto on a window, where every vector with a prior has a Z well above the noise of an FFT.

    After a step Z(a) ≥ p(a)·e^{−λ·mean distance}, and the law leaves out vectors below about 1e-13, so no
    column needs to be summed apart; what the start or an extrapolation puts lower is lifted to the noise.
    """

    exact = True

    def push(self, theta: FloatArray) -> FloatArray:
        return np.maximum(self.kernel.apply(theta), self.kernel.noise(theta))
