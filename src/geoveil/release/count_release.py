"""Releasing counts: the channel, its leakage, its distortion, and samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import rel_entr

from geoveil.arrays import FloatArray, IntArray, count, positive
from geoveil.errors import InvalidInput
from geoveil.estimate.stopping import Progress, Stop
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.release.coarsening import check_reach
from geoveil.release.counts import checked_counts
from geoveil.release.optimum import ReleaseDesign, design, published_design
from geoveil.release.prior import CountLaw, Prior
from geoveil.root import NeverSafe, safe_root


def personal_leakage_bits(design: ReleaseDesign) -> FloatArray:
    """I(A_m; Ã) in bits for every person m: what the release tells about where that person is.

    Law: r_l(ã) = Σ_a P(ã|a)·P(a | m is at l), and I = Σ_l θ_l·KL(r_l ‖ Σ_k θ_k r_k).
    Cost: one product for each place and kind of person; people with the same prior share theirs.
    Reference: AGG Def. 1 and §5.2.2.
    """
    prior = design.law.prior
    by_kind = np.zeros(prior.rows.shape[0])
    for kind, laws in prior.laws_given_place(design.vectors):
        possible = prior.rows[kind] > 0
        by_kind[kind] = _mixture_information_bits(
            design.pushed(laws[possible]), prior.rows[kind][possible]
        )
    return by_kind[prior.kind]


def _mixture_information_bits(laws: FloatArray, weights: FloatArray) -> float:
    """I between the index of a mixture and what is drawn from it, in bits."""
    laws = laws / laws.sum(axis=1, keepdims=True)
    divergences = rel_entr(laws, weights @ laws).sum(axis=1)
    return max(0.0, float(weights @ divergences)) / math.log(2)


@dataclass(frozen=True)
class LeakageChain:
    """Theorem 1 of AGG in numbers: personal ≤ aggregate ≤ the sum over the timestamps, in bits.

    ``personal_bits`` is the largest leakage about one person, ``aggregate_bits`` I(A; Ã) of the whole
    release, ``upper_bits`` Σ_t I(A(t); Ã(t)). Without correlation in time the last two are equal
    (AGG Cor. 1). ``least_bits`` is a proven lower bound on what any release with the same distortion
    tells about the counts.
    """

    personal_bits: float
    aggregate_bits: float
    upper_bits: float
    least_bits: float

    @property
    def holds(self) -> bool:
        """Whether the numbers are in the order of the theorem, up to rounding."""
        slack = 1e-9 * (1.0 + self.upper_bits)
        ordered = self.personal_bits <= self.aggregate_bits + slack
        return ordered and self.least_bits <= self.aggregate_bits <= self.upper_bits + slack


# --- Releasing counts: what a trusted aggregator publishes instead of the true ones


LARGEST, SMALLEST = 64.0, 1e-9
"""Multipliers between which the answer is sought; at the largest the counts come out unchanged."""
_CLOSE = 2e-4
"""How near the wanted distortion or leakage, and the answer, is sought, relative."""
_NOTHING_BITS = 1e-9


class CountRelease:
    """Publish how many people are at each place so that as little as possible leaks for its accuracy.

    Law: at every timestamp the counts a are replaced by a valid vector ã (whole, not negative, the same
    sum) with probability ∝ c_t(ã)·e^{−λ·d(a, ã)}, d the Euclidean norm of the difference and c_t the weights
    with the least I(A(t); Ã(t)) + λ·D_t (Blahut–Arimoto). One λ for all timestamps makes the sum least.
    Exactly one of ``multiplier`` (λ), ``distortion`` (total, in people) and ``leakage_bits`` (limit on the
    total) is given; the others are solved for on the safe side.

    ``prior``: where people are likely to be. One distribution over the places for everybody; or one row
    per person; or, for ``timestamps`` of their own, an array (timestamps, people or 1, places).
    Guarantee: an average one, ``leakage_bits`` under the prior, and at most ``personal_leakage_bits`` about
    each person; in the worst case, whatever the prior, a person who is elsewhere changes the
    probability of a release by at most e^{ε}, ε = 2√2·λ for each timestamp (``epsilon``).
    Each ``sample`` is a release: releases of the same counts add up.
    Cost: two FFT products in L − 1 dimensions a step; some 10⁵ to 10⁷ vectors in seconds.
    Units: bits, people. Reference: AGG Alg. 1, Thm 1.

    >>> release = CountRelease(people=20, prior=[0.8, 0.1, 0.1], multiplier=1.0)
    >>> round(release.leakage_bits, 3), round(release.distortion, 3)
    (0.797, 1.535)
    >>> round(float(release.personal_leakage_bits.max()), 3), release.chain.holds
    (0.025, True)
    >>> int(release.sample([16, 2, 2]).sum())
    20
    """

    designs: tuple[ReleaseDesign, ...]
    """The release channel of each timestamp."""

    def __init__(
        self,
        *,
        people: int,
        prior: npt.ArrayLike,
        multiplier: float | None = None,
        distortion: float | None = None,
        leakage_bits: float | None = None,
        timestamps: int | None = None,
        stop: Stop | None = None,
        progress: Progress | None = None,
    ) -> None:
        target = _one_target(multiplier, distortion, leakage_bits)
        laws = _laws(parse_priors(prior, people, timestamps))

        def build(rate: float) -> _Designs:
            return _Designs(laws, rate, lambda law: design(law, rate, stop=stop, progress=progress))

        made = build(target[1]) if target[0] == "multiplier" else _calibrated(build, *target)
        self._take(made)

    @classmethod
    def as_published(
        cls,
        *,
        people: int,
        prior: npt.ArrayLike,
        multiplier: float,
        threshold: float = 1e-3,
        timestamps: int | None = None,
    ) -> CountRelease:
        """The paper's Algorithm 1 as printed: stopped where the leakage falls by ``threshold`` nats."""
        rate = positive("multiplier", multiplier)
        laws = _laws(parse_priors(prior, people, timestamps))
        made = cls.__new__(cls)
        made._take(_Designs(laws, rate, lambda law: published_design(law, rate, threshold)))
        return made

    def _take(self, made: _Designs) -> None:
        self.designs = made.designs
        self.multiplier = made.multiplier
        first = made.designs[0].law.prior
        self.people, self.places = first.people, first.places
        self.timestamps = len(made.designs)

    # -- what leaks ------------------------------------------------------------------------------

    @cached_property
    def leakage_bits(self) -> float:
        """I(A; Ã): what the release tells about the counts, summed over the timestamps, in bits."""
        return sum(made.leakage_bits for made in self.designs)

    @cached_property
    def distortion(self) -> float:
        """E d(A, Ã): how far the release is from the counts, summed over the timestamps, in people."""
        return sum(made.distortion for made in self.designs)

    @cached_property
    def personal_leakage_bits(self) -> FloatArray:
        """(people,): I(A_m; Ã) of each person over all timestamps, in bits."""
        each = {id(made): personal_leakage_bits(made) for made in _different(self.designs)}
        return np.sum([each[id(made)] for made in self.designs], axis=0)

    @property
    def most_personal_leakage_bits(self) -> float:
        """The leakage about the person who is told most about, in bits."""
        return float(self.personal_leakage_bits.max())

    @cached_property
    def certificate_nats(self) -> float:
        """A proven bound on how far the leakage is above the least possible at its distortion, in nats."""
        return sum(made.certificate_nats for made in self.designs)

    @property
    def least_leakage_bits(self) -> float:
        """No release with this distortion can tell less about the counts than this, in bits."""
        return max(0.0, self.leakage_bits - self.certificate_nats / math.log(2))

    @property
    def epsilon(self) -> float:
        """Differential privacy of one release: the loss, in nats, if one person is elsewhere throughout.

        2√2·λ for each timestamp, whatever the prior and the weights; a bound, not tight.
        """
        return 2 * math.sqrt(2) * self.multiplier * self.timestamps

    @property
    def chain(self) -> LeakageChain:
        """The order of the leakages (AGG Thm 1), in numbers."""
        total = self.leakage_bits
        return LeakageChain(self.most_personal_leakage_bits, total, total, self.least_leakage_bits)

    # -- releasing -------------------------------------------------------------------------------

    def sample(self, counts: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """What to publish instead of ``counts``: (places,), or (timestamps, places) where there are several.

        Every count is checked before anything is drawn, with the operating system's randomness by
        default.
        """
        checked = checked_counts(counts, self.people, self.places)
        wanted = (self.timestamps, self.places)
        single = checked.ndim == 1 and self.timestamps == 1
        if not single and checked.shape != wanted:
            raise InvalidInput(
                f"counts (shape {checked.shape}) must have shape {wanted}: a row for each timestamp"
            )
        rows, source = (
            zip(self.designs, np.atleast_2d(checked), strict=True),
            checked_randomness(randomness),
        )
        released = np.stack([made.sample(row, source) for made, row in rows])
        return released[0] if single else released

    def __repr__(self) -> str:
        moments = f", timestamps={self.timestamps}" if self.timestamps > 1 else ""
        return (
            f"CountRelease(people={self.people}, places={self.places}{moments}, "
            f"multiplier={self.multiplier:.6g})"
        )


class _Designs:
    """The designs of all timestamps at one multiplier; equal laws share one."""

    def __init__(
        self,
        laws: Sequence[CountLaw],
        multiplier: float,
        make: Callable[[CountLaw], ReleaseDesign],
    ) -> None:
        self.multiplier = multiplier
        made = {id(law): make(law) for law in _different(laws)}
        self.designs = tuple(made[id(law)] for law in laws)

    @property
    def leakage_bits(self) -> float:
        return sum(made.leakage_bits for made in self.designs)

    @property
    def distortion(self) -> float:
        return sum(made.distortion for made in self.designs)


def _calibrated(build: Callable[[float], _Designs], name: str, wanted: float) -> _Designs:
    """The designs at the multiplier that meets a target from the safe side.

    Leakage grows and distortion falls with the multiplier. On a straight piece of the curve one
    multiplier has many optimal releases; a target inside it is kept, not met.
    """
    limited = name == "leakage_bits"

    def excess(made: _Designs) -> float:
        if limited:
            return made.leakage_bits / wanted - 1
        # where nothing is told, a smaller multiplier changes nothing: there the search ends
        nothing = made.leakage_bits <= _NOTHING_BITS and made.distortion <= wanted
        return 0.0 if nothing else made.distortion / wanted - 1

    try:
        return safe_root(
            build,
            excess,
            [1.0],
            within=(LARGEST, SMALLEST) if limited else (SMALLEST, LARGEST),
            tolerance=_CLOSE,
            step=_CLOSE,
            growth=1.0,  # at tiny multipliers almost any weights pass, however far off
            end_excess=lambda: 0.0,
        ).made
    except NeverSafe:
        raise InvalidInput(
            f"distortion ({wanted:g}) must be larger; to change nothing, publish the counts"
        ) from None


def _one_target(
    multiplier: float | None, distortion: float | None, leakage_bits: float | None
) -> tuple[str, float]:
    named = {"multiplier": multiplier, "distortion": distortion, "leakage_bits": leakage_bits}
    given = {name: value for name, value in named.items() if value is not None}
    if len(given) != 1:
        raise InvalidInput(
            f"exactly one of {', '.join(named)} must be given, not {len(given)} of them"
        )
    ((name, value),) = given.items()
    return name, positive(name, value)


def parse_priors(prior: npt.ArrayLike, people: int, timestamps: int | None) -> list[Prior]:
    """One prior for each timestamp; equal ones are the same object."""
    moments = 1 if timestamps is None else count("timestamps", timestamps)
    try:
        dimensions = np.ndim(prior)
    except ValueError:
        raise InvalidInput("prior must be rows of numbers, all of one length") from None
    if dimensions < 3:
        return [Prior.parse(prior, people)] * moments
    layers = np.asarray(prior)
    if dimensions > 3 or (timestamps is not None and layers.shape[0] != moments):
        raise InvalidInput(
            f"prior (shape {layers.shape}) must be (timestamps, people or 1, places)"
        )
    known: dict[bytes, Prior] = {}
    return [known.setdefault(layer.tobytes(), Prior.parse(layer, people)) for layer in layers]


def _laws(priors: Sequence[Prior]) -> list[CountLaw]:
    for prior in _different(priors):
        check_reach(prior)
    laws = {id(prior): CountLaw.of(prior) for prior in _different(priors)}
    return [laws[id(prior)] for prior in priors]


def _different(things: Sequence[Any]) -> list[Any]:
    """Each object once, in order."""
    return list({id(thing): thing for thing in things}.values())
