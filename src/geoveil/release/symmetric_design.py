"""The release that leaks least where many places are equally likely: the same problem, on orbits of vectors.

Whoever exchanges two places with the same prior changes neither the law of the counts nor distances. The
problem is convex, so that some optimum is symmetric too: its weights are the same all over an orbit. On
orbits the kernel is the mean of e^{−λ·d} over all exchanges, and weights and probabilities are sums. What
comes out is the release of the whole lattice, with its certificate, its leakage and its draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import numpy as np
from scipy.special import entr, rel_entr, softmax

from geoveil.arrays import FloatArray, IntArray, frozen, positive
from geoveil.channel.channel import inverse_distribution
from geoveil.channel.kernel import DenseKernel
from geoveil.errors import TooLarge
from geoveil.estimate.em import Ascent, maximise
from geoveil.estimate.stopping import Progress, Stop
from geoveil.randomness import SYSTEM, Randomness
from geoveil.release.counts import CountVectors
from geoveil.release.optimum import FINE, WorkingSetNewton, leaked_nats
from geoveil.release.orbits import MOST_WORK, Orbits
from geoveil.release.prior import EQUALLY_LIKELY, Prior, put_together

_FAINT = 1e-250
_MOST_PEOPLE = 100
"""More are out of reach over two equal places already."""


def symmetric_within_reach(prior: Prior) -> bool:
    """Whether the release for a prior can be designed on orbits, what leaks about each person included."""
    sizes = [len(group) for group in prior.equal_places]
    if max(sizes) == 1 or prior.people > _MOST_PEOPLE:
        return False
    return all(Orbits.work(prior.people, split) <= MOST_WORK for split in _with_one_apart(sizes))


def _with_one_apart(sizes: Sequence[int]) -> list[list[int]]:
    """The classes, for each of several places with one of these as the last class."""
    apart = [
        [*sizes[:at], size - 1, *sizes[at + 1 :], 1] for at, size in enumerate(sizes) if size > 1
    ]
    return [list(sizes), *apart]


@dataclass(frozen=True, eq=False)
class OrbitLaw:
    """P(the counts are one of an orbit), for all of them: nothing is left out."""

    prior: Prior
    groups: tuple[tuple[int, ...], ...]
    """The places of each class."""
    orbits: Orbits
    probabilities: FloatArray
    is_whole = True

    @classmethod
    def of(cls, prior: Prior, classes: tuple[tuple[int, ...], ...] | None = None) -> OrbitLaw:
        """The law of the counts; ``classes`` are of equal places, as large as can be unless given."""
        groups = classes or prior.equal_places
        orbits = Orbits(prior.people, [len(group) for group in groups])
        law = _on_orbits(orbits, _on_classes(prior, groups).law(_totals(orbits)))
        return cls(prior, groups, orbits, frozen(law / law.sum()))

    @property
    def vectors(self) -> NoReturn:
        """They are too many to list."""
        raise _unlisted(self.prior)

    @cached_property
    def entropy_bits(self) -> float:
        """H(A): what an unchanged release would tell about the counts, in bits."""
        within = float(self.probabilities @ self.orbits.log_sizes)
        return (float(entr(self.probabilities).sum()) + within) / math.log(2)

    def by_class(self, counts: IntArray) -> list[IntArray]:
        """Counts by place as an array for each class."""
        return [counts[list(group)] for group in self.groups]

    def surprise(self, counts: IntArray) -> float:
        """P(p(A) ≤ p(a)) for valid counts a: how likely counts are that are no likelier than these."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.probabilities) - self.orbits.log_sizes
        own = float(logs[self.orbits.index(self.by_class(counts))])
        if own == -math.inf:
            return 0.0
        return float(self.probabilities[logs <= own + EQUALLY_LIKELY].sum())


class SymmetricDesign:
    """A :class:`ReleaseDesign` on orbits: ã instead of a with probability ∝ c(ã)·e^{−λ·d(a, ã)}, c symmetric.

    Law: c maximises Σ_a p(a) log Z(a) over all weights; ``weights`` are sums of c over orbits.
    Guarantee: that of every release of its form, e^{2√2·λ} for one person elsewhere, whatever the prior.
    Cost: a matrix of means of the kernel for every two orbits. Units: d in people, λ per person.
    """

    def __init__(
        self, law: OrbitLaw, multiplier: float, kernels: FloatArray, ascent: Ascent
    ) -> None:
        self.law, self.multiplier, self.ascent = law, multiplier, ascent
        self.weights = ascent.distribution
        self._kernel, self._weighted = kernels
        """Means of e^{−λ·d} and of d·e^{−λ·d}."""

    @property
    def vectors(self) -> NoReturn:
        """They are too many to list."""
        raise _unlisted(self.law.prior)

    @property
    def channel(self) -> NoReturn:
        """A channel needs them listed."""
        raise _unlisted(self.law.prior)

    @cached_property
    def _total(self) -> FloatArray:
        """Z, of every vector of an orbit."""
        return self._kernel @ self.weights

    @cached_property
    def output(self) -> FloatArray:
        """P(Ã in an orbit)."""
        return frozen(self._released(self.law.probabilities))

    @cached_property
    def distortion(self) -> float:
        """E d(A, Ã), in people."""
        return float(self._ratio(self.law.probabilities) @ (self._weighted @ self.weights))

    def _ratio(self, law: FloatArray) -> FloatArray:
        """Its chances over Z, where there are any."""
        return np.divide(law, self._total, out=np.zeros(law.size), where=law > 0)

    @cached_property
    def leakage_nats(self) -> float:
        """I(A; Ã), in nats."""
        with np.errstate(divide="ignore"):  # Z may vanish where nobody is
            return leaked_nats(self, np.log(self._total))

    @property
    def leakage_bits(self) -> float:
        """I(A; Ã) in bits."""
        return self.leakage_nats / math.log(2)

    @property
    def certificate_nats(self) -> float:
        """At most so many nats lie between the leakage and the least one possible at this distortion.

        That of the loop: log max g over all orbits, which is the maximum over all vectors.
        """
        return self.ascent.certificate

    # -- about one person --------------------------------------------------------------------------

    @cached_property
    def personal_leakage_bits(self) -> FloatArray:
        """(people,): I(A_m; Ã) in bits.

        Law: Σ_l θ_l·KL(r_l ‖ P(Ã)), r_l the law of Ã where m is at l; it is the same for all places of a
        class. One of these is taken apart, so that releases are told apart by what that one has.
        """
        prior = self.law.prior
        nats = np.zeros(len(prior.rows))
        for number, group in enumerate(self.law.groups):
            likely = prior.rows[:, group[0]]
            apart, place = (self, number)
            if len(group) > 1:
                apart, place = self._with_one_apart(number), len(self.law.groups)
            orbits, merged = apart.law.orbits, _on_classes(prior, apart.law.groups)
            for kind, laws in merged.laws_given_place(_totals(orbits)):
                if likely[kind] > 0:
                    law = _on_orbits(orbits, laws[place])
                    released = apart._released(law / law.sum())
                    divergence = rel_entr(released, apart.output)[apart.output > 0].sum()
                    nats[kind] += len(group) * likely[kind] * divergence
        return np.maximum(nats, 0.0)[prior.kind] / math.log(2)

    def _released(self, law: FloatArray) -> FloatArray:
        """P(Ã in an orbit) where the counts follow another law."""
        released = self.weights * (self._ratio(law) @ self._kernel)
        return released / released.sum()

    def _with_one_apart(self, number: int) -> SymmetricDesign:
        """The same release, the last place of a class being one by itself."""
        groups = list(self.law.groups)
        *others, one = groups[number]
        groups[number] = tuple(others)
        law = OrbitLaw.of(self.law.prior, (*groups, (one,)))
        coarse = []
        for at in range(law.orbits.size):  # the orbit with the last class again part of its own
            counts = law.orbits.counts(at)
            counts[number] = np.append(counts[number], counts.pop())
            coarse.append(self.law.orbits.index(counts))
        share = np.exp(law.orbits.log_sizes - self.law.orbits.log_sizes[coarse])
        weights = self.weights[coarse] * share
        kernels = law.orbits.means(_kernels(self.multiplier, law.prior.people))
        ascent = replace(self.ascent, distribution=weights)
        return SymmetricDesign(law, self.multiplier, kernels, ascent)

    # -- single vectors ----------------------------------------------------------------------------

    def row(self, counts: IntArray) -> FloatArray:
        """The chances of the orbits when ``counts`` is the truth, likely or not."""
        classes = self.law.by_class(counts)
        row: FloatArray = self.weights * self._kernel[self.law.orbits.index(classes)]
        if row.sum() > _FAINT:
            return row / row.sum()
        # all that may be released is so far away that e^{−λ·d} is next to nothing
        logs = np.full(row.size, -np.inf)
        for orbit in np.flatnonzero(self.weights):
            near = self.law.orbits.log_mean(classes, int(orbit), self._log_kernel)
            logs[orbit] = near + math.log(self.weights[orbit])
        return np.asarray(softmax(logs))

    @property
    def _log_kernel(self) -> FloatArray:
        """−λ·d by squared distance."""
        return -self.multiplier * np.sqrt(np.arange(2.0 * self.law.prior.people**2 + 1.0))

    def sample(self, counts: IntArray, randomness: Randomness = SYSTEM) -> IntArray:
        """One release for a valid vector: an orbit, then one of its vectors by its distance."""
        (orbit,) = inverse_distribution(self.row(counts), randomness.uniform(1))
        classes = self.law.by_class(counts)
        vector = self.law.orbits.draw_near(classes, int(orbit), self._log_kernel, randomness)
        released = np.empty(self.law.prior.places, dtype=np.int64)
        for group, held in zip(self.law.groups, vector, strict=True):
            released[list(group)] = held
        return released


def symmetric_design(
    law: OrbitLaw, multiplier: float, *, stop: Stop | None = None, progress: Progress | None = None
) -> SymmetricDesign:
    """The channel with least leakage + λ·distortion, within 1e-6 nats or as the rule ``stop`` has it."""
    rate = positive("multiplier", multiplier)
    kernels = law.orbits.means(_kernels(rate, law.prior.people))
    kernel, rule = DenseKernel(kernels[0]), FINE if stop is None else stop
    newton = WorkingSetNewton(kernel.rows)
    ascent = maximise(kernel, law.probabilities, stop=rule, accelerate=newton, progress=progress)
    return SymmetricDesign(law, rate, kernels, ascent)


def _unlisted(prior: Prior) -> TooLarge:
    return TooLarge(
        f"count vectors ({prior.people} people over {prior.places} places) must be fewer to be listed; "
        "equal places were exchanged instead, and leakage, distortion and draws need no list"
    )


def _kernels(multiplier: float, people: int) -> FloatArray:
    """(2, 2M² + 1): e^{−λ·d} and d·e^{−λ·d} by squared distance."""
    distance = np.sqrt(np.arange(2.0 * people**2 + 1.0))
    near = np.exp(-multiplier * distance)
    return np.stack((near, distance * near))


def _on_classes(prior: Prior, groups: Sequence[Sequence[int]]) -> Prior:
    """The same people, the places of each class as one; kinds stay what they are."""
    return Prior(put_together(prior.rows, groups), prior.kind)


def _totals(orbits: Orbits) -> CountVectors:
    """All ways to spread people over the classes."""
    return CountVectors(orbits.people, len(orbits.sizes))


def _on_orbits(orbits: Orbits, law: FloatArray) -> FloatArray:
    """The law of orbits from that of how many people each class has: within one, all places are alike."""
    return law[_totals(orbits).index(orbits.totals)] * np.exp(orbits.log_chances)
