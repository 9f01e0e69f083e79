"""Releasing counts: what a trusted aggregator publishes instead of the true ones, and what that tells."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, IntArray, by_position, count, numbers, positive
from geoveil.errors import InvalidInput, TooLarge
from geoveil.estimate.stopping import Progress, Stop
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.release import counts as counting
from geoveil.release.counts import checked_counts
from geoveil.release.optimum import ReleaseDesign, design, published_design
from geoveil.release.prior import CountLaw, Prior, merge_least_visited, parted
from geoveil.release.symmetric_design import (
    OrbitLaw,
    SymmetricDesign,
    symmetric_design,
    symmetric_within_reach,
)
from geoveil.root import NeverSafe, safe_root

LARGEST, SMALLEST = 64.0, 1e-9
"""Multipliers between which the answer is sought; at the largest the counts come out unchanged."""
_CLOSE = 2e-4
"""How near the wanted distortion or leakage, and the answer, is sought, relative."""
_NOTHING_BITS = 1e-9
_MOST_TIMESTAMPS = 1 << 20

AnyLaw = CountLaw | OrbitLaw
AnyDesign = ReleaseDesign | SymmetricDesign
Thing = TypeVar("Thing")
Result = TypeVar("Result")


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
    Cost: two FFT products in L − 1 dimensions a step; some 10⁵ to 10⁷ vectors in seconds. Where there are
    more, places with the same prior are exchanged: up to some twenty people, over any number of them.
    Units: bits, people. Reference: AGG Alg. 1, Thm 1.

    >>> release = CountRelease(people=20, prior=[0.8, 0.1, 0.1], multiplier=1.0)
    >>> round(release.leakage_bits, 3), round(release.distortion, 3)
    (0.797, 1.535)
    >>> round(float(release.personal_leakage_bits.max()), 3), release.chain.holds
    (0.025, True)
    >>> int(release.sample([16, 2, 2]).sum())
    20
    """

    designs: tuple[AnyDesign, ...]
    """The release of each timestamp: a channel on count vectors, or on orbits of too many of them."""

    def __init__(
        self,
        *,
        people: int,
        prior: ArrayLike,
        multiplier: float | None = None,
        distortion: float | None = None,
        leakage_bits: float | None = None,
        timestamps: int | None = None,
        stop: Stop | None = None,
        progress: Progress | None = None,
    ) -> None:
        named = {"multiplier": multiplier, "distortion": distortion, "leakage_bits": leakage_bits}
        goals = {name: value for name, value in named.items() if value is not None}
        if len(goals) != 1:
            raise InvalidInput(
                f"exactly one of {', '.join(named)} must be given, not {len(goals)} of them"
            )
        ((name, value),) = goals.items()
        target = positive(name, value)
        # the law of the counts at each timestamp; equal priors share one
        laws = _once_each(
            _priors(prior, people, timestamps),
            lambda own: CountLaw.of(own) if listed_within_reach(own) else OrbitLaw.of(own),
        )

        def build(rate: float) -> tuple[AnyDesign, ...]:
            return _once_each(laws, lambda law: _design(law, rate, stop, progress))

        if multiplier is not None:
            self._take(target, build(target))
        else:
            self._take(*_calibrated(build, target, limited=leakage_bits is not None))

    @classmethod
    def as_published(
        cls,
        *,
        people: int,
        prior: ArrayLike,
        multiplier: float,
        threshold: float = 1e-3,
        timestamps: int | None = None,
    ) -> CountRelease:
        """The paper's Algorithm 1 as printed: stopped where the leakage falls by ``threshold`` nats."""
        rate = positive("multiplier", multiplier)
        laws = _once_each(_priors(prior, people, timestamps, listed=True), CountLaw.of)
        release = cls.__new__(cls)
        release._take(rate, _once_each(laws, lambda law: published_design(law, rate, threshold)))
        return release

    def _take(self, multiplier: float, designs: tuple[AnyDesign, ...]) -> None:
        self.designs, self.multiplier, self.timestamps = designs, multiplier, len(designs)
        prior = designs[0].law.prior
        self.people, self.places = prior.people, prior.places

    # -- what leaks ------------------------------------------------------------------------------

    @cached_property
    def leakage_bits(self) -> float:
        """I(A; Ã): what the release tells about the counts, summed over the timestamps, in bits."""
        return sum(one.leakage_bits for one in self.designs)

    @cached_property
    def distortion(self) -> float:
        """E d(A, Ã): how far the release is from the counts, summed over the timestamps, in people."""
        return sum(one.distortion for one in self.designs)

    @cached_property
    def personal_leakage_bits(self) -> FloatArray:
        """(people,): I(A_m; Ã) of each person over all timestamps, in bits.

        Law: r_l(ã) = Σ_a P(ã|a)·P(a | m is at l), and I = Σ_l θ_l·KL(r_l ‖ Σ_k θ_k r_k).
        Cost: one product for each place and kind of person; people with the same prior share theirs.
        Reference: AGG Def. 1 and §5.2.2.
        """
        return np.sum([one.personal_leakage_bits for one in self.designs], axis=0)

    @property
    def most_personal_leakage_bits(self) -> float:
        """The leakage about the person who is told most about, in bits."""
        return float(self.personal_leakage_bits.max())

    @cached_property
    def certificate_nats(self) -> float:
        """A proven bound on how far the leakage is above the least possible at its distortion, in nats."""
        return sum(one.certificate_nats for one in self.designs)

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

    def sample(self, counts: ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """What to publish instead of ``counts``: (places,), or (timestamps, places) where there are several.

        Every count is checked before anything is drawn, with the operating system's randomness by
        default.
        """
        checked = checked_counts(counts, self.people, self.places)
        shape = (self.timestamps, self.places)
        single = checked.ndim == 1 and self.timestamps == 1
        if not single and checked.shape != shape:
            raise InvalidInput(
                f"counts (shape {checked.shape}) must have shape {shape}: a row for each timestamp"
            )
        source = checked_randomness(randomness)
        rows = zip(self.designs, np.atleast_2d(checked), strict=True)
        released = np.stack([one.sample(row, source) for one, row in rows])
        return released[0] if single else released

    def __repr__(self) -> str:
        moments = f", timestamps={self.timestamps}" if self.timestamps > 1 else ""
        return (
            f"CountRelease(people={self.people}, places={self.places}{moments}, "
            f"multiplier={self.multiplier:.6g})"
        )


def _calibrated(
    build: Callable[[float], tuple[AnyDesign, ...]], target: float, *, limited: bool
) -> tuple[float, tuple[AnyDesign, ...]]:
    """The multiplier whose designs keep a limit on the leakage, or else on the distortion, and these.

    Leakage grows and distortion falls with the multiplier. On a straight piece of the curve one
    multiplier has many optimal releases; a target inside it is kept, not met.
    """

    def excess(designs: tuple[AnyDesign, ...]) -> float:
        leakage = sum(one.leakage_bits for one in designs)
        if limited:
            return leakage / target - 1
        distortion = sum(one.distortion for one in designs)
        # where nothing is told, a smaller multiplier changes nothing: there the search ends
        nothing = leakage <= _NOTHING_BITS and distortion <= target
        return 0.0 if nothing else distortion / target - 1

    try:
        nearest = safe_root(
            build,
            excess,
            [1.0],
            within=(LARGEST, SMALLEST) if limited else (SMALLEST, LARGEST),
            tolerance=_CLOSE,
            step=_CLOSE,
            growth=1.0,  # at tiny multipliers almost any weights pass, however far off
            end_excess=lambda: 0.0,
        )
    except NeverSafe:
        raise InvalidInput(
            f"distortion ({target:g}) must be larger; to change nothing, publish the counts"
        ) from None
    return nearest.at, nearest.result


def _design(law: AnyLaw, rate: float, stop: Stop | None, progress: Progress | None) -> AnyDesign:
    if isinstance(law, OrbitLaw):
        return symmetric_design(law, rate, stop=stop, progress=progress)
    return design(law, rate, stop=stop, progress=progress)


def _priors(
    prior: ArrayLike, people: int, timestamps: int | None, *, listed: bool = False
) -> list[Prior]:
    """The prior of each timestamp, within reach (``listed``: on count vectors); equal ones are one."""
    moments = 1 if timestamps is None else count("timestamps", timestamps, most=_MOST_TIMESTAMPS)
    layers = numbers("prior", by_position("prior", prior), "rows of numbers, all of one length")
    if layers.ndim < 3:
        priors = [Prior.parse(layers, people)] * moments
    else:
        wrong = timestamps is not None and layers.shape[0] != moments
        if layers.ndim > 3 or not layers.shape[0] or wrong:
            raise InvalidInput(
                f"prior (shape {layers.shape}) must be (timestamps, people or 1, places)"
            )
        different = {layer.tobytes(): Prior.parse(layer, people) for layer in layers}
        priors = [different[layer.tobytes()] for layer in layers]
    for one in dict.fromkeys(priors):
        check_reach(one, listed=listed)
    return priors


def _once_each(things: Sequence[Thing], make: Callable[[Thing], Result]) -> tuple[Result, ...]:
    """``make`` of each thing, called once for equal things."""
    results = {thing: make(thing) for thing in dict.fromkeys(things)}
    return tuple(results[thing] for thing in things)


class GroupedRelease:
    """A release for more people than one release can handle: one for each group of them.

    Law: ã = Σ_g ã_g, each group's counts released by a :class:`CountRelease` of its own with the same
    multiplier. ``groups`` is their number, or the people of each.
    Guarantee: that of the groups; a person is in one of them. All measures are upper bounds, since
    only the sum is published: I(A; Ã) ≤ Σ_g I(A_g; Ã_g), I(A_m; Ã) ≤ I(A_m; Ã_g), E d ≤ Σ_g D_g.
    Cost: one design for each different group. Units: bits, people.

    >>> grouped = GroupedRelease(people=40, prior=[0.8, 0.1, 0.1], multiplier=1.0, groups=2)
    >>> round(grouped.leakage_bits, 3), grouped.sample([[16, 2, 2], [15, 5, 0]]).sum().item()
    (1.595, 40)
    """

    def __init__(
        self,
        *,
        people: int,
        prior: ArrayLike,
        multiplier: float,
        groups: int | Sequence[Sequence[int]],
    ) -> None:
        everybody = Prior.parse(prior, people)
        self.multiplier = positive("multiplier", multiplier)
        if isinstance(groups, int | float | np.integer):
            self.groups = tuple(even_groups(people, groups))
        else:
            self.groups = tuple(parted(groups, "person", people))
        self.people, self.places = everybody.people, everybody.places

        def release(kinds: tuple[int, ...]) -> CountRelease:
            rows = everybody.rows[list(kinds)]
            return CountRelease(people=len(kinds), prior=rows, multiplier=self.multiplier)

        kinds = [tuple(np.sort(everybody.kind[group]).tolist()) for group in self.groups]
        self.releases = _once_each(kinds, release)

    @property
    def leakage_bits(self) -> float:
        """At least I(A; Ã), in bits."""
        return sum(release.leakage_bits for release in self.releases)

    @property
    def distortion(self) -> float:
        """At least E d(A, Ã), in people."""
        return sum(release.distortion for release in self.releases)

    @property
    def personal_leakage_bits(self) -> FloatArray:
        """(people,): at least I(A_m; Ã) of each person, in bits."""
        result = np.zeros(self.people)
        for group, release in zip(self.groups, self.releases, strict=True):
            result[group] = release.most_personal_leakage_bits
        return result

    @property
    def epsilon(self) -> float:
        """Differential privacy of one release, in nats: a person is in one group only."""
        return self.releases[0].epsilon

    def sample(self, counts: ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """What to publish for the counts of each group, (groups, places): one valid vector for all."""
        table = numbers("counts", counts, "rows of whole numbers, all of one length")
        if table.ndim != 2 or len(table) != len(self.groups):
            raise InvalidInput(
                f"counts (shape {table.shape}) must have a row for each of the "
                f"{len(self.groups)} groups"
            )
        pairs = list(zip(table, self.releases, strict=True))
        # all are checked before any is drawn
        rows = [checked_counts(row, release.people, self.places) for row, release in pairs]
        checked = zip(rows, self.releases, strict=True)
        return np.sum([one.sample(row, randomness=randomness) for row, one in checked], axis=0)

    def __repr__(self) -> str:
        return (
            f"GroupedRelease(people={self.people}, places={self.places}, "
            f"groups={len(self.groups)}, multiplier={self.multiplier:.6g})"
        )


def even_groups(people: int, groups: int) -> list[IntArray]:
    """The people 0 … M − 1 in ``groups`` parts as equal as can be."""
    if count("groups", groups) > count("people", people):
        raise InvalidInput(f"groups ({groups}) must be at most {people}, the number of people")
    return np.array_split(np.arange(people, dtype=np.int64), groups)


# --- Reach: more count vectors than can be handled are refused, with the coarser question that would fit


def within_reach(prior: Prior) -> bool:
    """Whether a release for this prior can be designed, on count vectors or on orbits of them."""
    return listed_within_reach(prior) or symmetric_within_reach(prior)


def listed_within_reach(prior: Prior) -> bool:
    """Whether it can be designed on count vectors: these can be listed, and transforms made."""
    people, places = prior.people, prior.places
    lower, upper = prior.window()
    if not counting.within_products(people, lower, upper, counting.REACH):
        return False
    size = counting.CountVectors.estimated_size(people, lower, upper)
    if not prior.is_common:  # people join one at a time, so all smaller counts are needed too
        spare = int(np.argmax(np.subtract(upper, lower)))
        lower, upper = (0,) * places, (*upper[:spare], people, *upper[spare + 1 :])
        size = counting.CountVectors.estimated_size(people, lower, upper)
    return size <= counting.VECTOR_LIMIT


def check_reach(prior: Prior, *, listed: bool = False) -> None:
    """Refuse what is beyond reach, with the number of vectors and the coarsening that would fit."""
    fits = listed_within_reach if listed else within_reach
    if fits(prior):
        return
    lower, upper = prior.window()
    size = counting.CountVectors.estimated_size(prior.people, lower, upper)
    points = float(min(counting.transform_points(lower, upper), 10**300))
    advice = []

    def merged_is_too_large(places: int) -> bool:
        return not listed_within_reach(prior.merged(merge_least_visited(prior, places).groups))

    # the finest merging within reach: fewer places have fewer vectors
    places = 1 + bisect.bisect_left(range(2, prior.places), True, key=merged_is_too_large)
    if places > 1:
        advice.append(f"merge the places into {places} (merge_least_visited)")
    groups = 2
    while groups <= prior.people:
        largest = -(-prior.people // groups)
        if fits(Prior.parse(prior.mean, largest)):
            split = f"split the people into {groups} groups of at most {largest}"
            advice.append(f"{split} (GroupedRelease)")
            break
        groups = max(groups + 1, groups * 5 // 4)
    raise TooLarge(
        f"count vectors ({size:.3g} for {prior.people} people and {prior.places} places) must have at most "
        f"{counting.ENTRY_LIMIT:.3g} distances between them ({size**2:.3g}), or a transform of at "
        f"most {counting.REACH:.3g} points ({points:.3g}) and {counting.VECTOR_LIMIT:.3g} vectors; "
        f"{' or '.join(advice)}"
    )
