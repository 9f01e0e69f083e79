"""The mechanisms of others, noise on every count and back to a valid vector, and a curve beside ours."""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import comb, entr

from geoveil import arrays
from geoveil.arrays import ArrayLike, BoolArray, FloatArray, IntArray, count, distribution, positive
from geoveil.channel.channel import Channel, inverse_distribution
from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure import mean_distance_km, mutual_information_bits
from geoveil.randomness import Randomness, seeded
from geoveil.release.count_release import AnyDesign, CountRelease
from geoveil.release.counts import CountVectors
from geoveil.root import NeverSafe, safe_root

BOX_LIMIT = 1 << 24
"""No more noisy vectors than this are listed."""


class Nearest(NamedTuple):
    """The nearest valid vectors of some noisy ones, which may be several at the same distance.

    They are ``base`` with ``sign`` added at any ``rest`` of the places in ``open``.
    """

    base: IntArray
    sign: IntArray
    rest: IntArray
    open: BoolArray


def nearest(noisy: IntArray, people: int | IntArray) -> Nearest:
    """The nearest valid vectors of noisy ones (…, places) whose counts are not negative.

    What is missing goes to all places alike; what is too much is taken from all alike, but never
    below zero. Moving one unit more or less than the others is what ties are about.
    """
    places = noisy.shape[-1]
    missing = people - noisy.sum(axis=-1)
    # level: the largest t with Σ min(z_i, t) ≤ excess, which can be taken from every place alike
    ordered = np.sort(noisy, axis=-1)
    before, remaining = np.cumsum(ordered, axis=-1) - ordered, places - np.arange(places)
    levels = (np.maximum(-missing, 0)[..., None] - before) // remaining
    # the first place, in order, that is not emptied has its level below its own count
    first = np.argmax((levels < ordered) | (remaining == 1), axis=-1)
    level = np.take_along_axis(levels, first[..., None], axis=-1)
    lowered = np.maximum(noisy - level, 0)
    rest = np.where(missing >= 0, missing % places, lowered.sum(axis=-1) - people)
    raised = noisy + np.maximum(missing, 0)[..., None] // places
    short = missing[..., None] >= 0
    base, is_open = np.where(short, raised, lowered), short | (noisy > level)
    return Nearest(base, np.where(missing >= 0, 1, -1), rest, is_open)


def draw_nearest(noisy: IntArray, people: int | IntArray, randomness: Randomness) -> IntArray:
    """One nearest valid vector for each noisy one, ties broken at random."""
    closest = nearest(noisy, people)
    order = randomness.uniform(noisy.size).reshape(noisy.shape)
    rank = np.argsort(np.argsort(np.where(closest.open, order, 2.0), axis=-1), axis=-1)
    return closest.base + closest.sign[..., None] * (rank < closest.rest[..., None])


@lru_cache(maxsize=8)
def nearest_matrix(people: int, places: int) -> csr_array:
    """(noisy vectors, valid vectors): which valid ones stand for each noisy one, ties in equal shares.

    Noisy vectors are those with counts 0 … people each, in row-major order; at most 2²⁴.
    """
    size = (people + 1) ** places
    if size > BOX_LIMIT:
        raise TooLarge(
            f"noisy count vectors ({size:.3g}) must be at most {BOX_LIMIT:,} to be listed; "
            "use fewer people or places"
        )
    sides = (people + 1,) * places
    noisy = np.stack(np.unravel_index(np.arange(size), sides), axis=1).astype(np.int64)
    vectors, closest = CountVectors(people, places), nearest(noisy, people)
    choices = comb(closest.open.sum(axis=1), closest.rest)
    # every set of places that may get the one unit more or less
    chosen = (combinations(range(places), number) for number in range(places))
    entries = []
    for some in map(list, chain.from_iterable(chosen)):
        fits = np.flatnonzero((closest.rest == len(some)) & closest.open[:, some].all(axis=1))
        moved = closest.base[fits]
        moved[:, some] += closest.sign[fits, None]
        entries.append((fits, vectors.index(moved), 1.0 / choices[fits]))
    rows, columns, shares = (np.concatenate(part) for part in zip(*entries, strict=True))
    return csr_array((shares, (rows, columns)), shape=(size, vectors.size))


_EXACT_TERMS = 1 << 30
_STRIDE, _CLOSE = 0.3, 1e-6
_LEAST_EPSILON, _MOST_EPSILON = 1e-3, 100.0
"""The range the paper tries (AGG §5.2.1)."""


class NoisyCounts(Channel):
    """Noise on each count by itself, kept between 0 and M, then the nearest valid vector.

    Law: z_i = clamp(a_i + noise, 0, M) for every place, ã the valid vector nearest to z, ties in equal
    shares. The clamping comes first, so ã need not be the valid vector nearest to a + noise itself;
    AGG §2.1.4 asks for counts between 0 and M that sum to M and does not say how SCM gets there.
    Guarantee: one person who goes elsewhere changes two counts by one, so 2ε; per unit of distance
    ε·√L, since Σ|Δ_i| ≤ √L·‖Δ‖.
    Cost: (M + 1)^L noisy vectors are listed for rows and products, none for samples.
    """

    name: ClassVar[str]

    def __init__(self, vectors: CountVectors, *, epsilon: float) -> None:
        if vectors.size != CountVectors(vectors.people, vectors.places).size:
            raise InvalidInput("vectors must be the whole lattice, without bounds")
        self.space = self.vectors = vectors
        self.report_count = vectors.size
        self.epsilon = positive("epsilon", epsilon)
        self.guarantee = GeoIndistinguishability(self.epsilon * math.sqrt(vectors.places))

    @abstractmethod
    def tail(self, number: IntArray) -> FloatArray:
        """P(noise ≥ k) for k ≥ 1; the noise is symmetric."""

    @cached_property
    def one_count(self) -> FloatArray:
        """(M + 1, M + 1): the law of one noisy, clamped count for each true one."""
        people = self.vectors.people
        counts = np.arange(people + 1)
        away = np.abs(counts - counts[:, None])
        tail = self.tail(np.maximum(away, 1))
        beyond = np.where(away > 0, tail, 1 - tail)
        here = np.where(away > 0, beyond - self.tail(away + 1), 2 * beyond - 1)
        return np.where((counts == 0) | (counts == people), beyond, here)

    @property
    def _nearest(self) -> Any:
        return nearest_matrix(self.vectors.people, self.vectors.places)

    @cached_property
    def _cells(self) -> IntArray:
        """Where among the noisy vectors each valid one is."""
        sides = (self.vectors.people + 1,) * self.vectors.places
        cells = np.ravel_multi_index(tuple(self.vectors.vectors.T), sides)
        return np.asarray(cells, dtype=np.int64)

    def _row(self, row: int) -> FloatArray:
        noisy = np.ones(1)
        for true in self.vectors.vectors[row]:  # the product law of all counts, place by place
            noisy = np.multiply.outer(noisy, self.one_count[true]).ravel()
        return np.asarray(noisy @ self._nearest)

    def _push(self, theta: FloatArray) -> FloatArray:
        spread = np.zeros((*theta.shape[:-1], self._nearest.shape[0]))
        spread[..., self._cells] = theta
        noisy = self._each_count(spread, self.one_count)
        return np.asarray(noisy.reshape(-1, noisy.shape[-1]) @ self._nearest).reshape(theta.shape)

    def _pull(self, values: FloatArray) -> FloatArray:
        flat = values.reshape(-1, values.shape[-1])
        noisy = np.asarray(flat @ self._nearest.T).reshape(*values.shape[:-1], -1)
        return self._each_count(noisy, self.one_count.T)[..., self._cells]

    def _each_count(self, noisy: FloatArray, matrix: FloatArray) -> FloatArray:
        """The product with ``matrix`` along the axis of every place."""
        places = self.vectors.places
        values = noisy.reshape(*noisy.shape[:-1], *[self.vectors.people + 1] * places)
        for axis in range(-places, 0):
            values = np.moveaxis(np.moveaxis(values, axis, -1) @ matrix, -1, axis)
        return values.reshape(noisy.shape)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        counts = self.vectors.vectors[cells]
        noisy = np.empty_like(counts)
        for true in np.unique(counts):
            there = counts == true
            uniform = randomness.uniform(int(there.sum()))
            noisy[there] = inverse_distribution(self.one_count[true], uniform)
        return self.vectors.index(draw_nearest(noisy, self.vectors.people, randomness))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vectors!r}, epsilon={self.epsilon:.6g})"


class SimpleCounting(NoisyCounts):
    """The simple counting mechanism (SCM): Laplace noise of scale 1/ε on each count, rounded.

    Reference: Chan, Shi & Song, ACM TISSEC 14(3), 2011; the comparator of AGG §5.

    >>> channel = SimpleCounting(CountVectors(5, 3), epsilon=1.0)
    >>> channel.row(0).sum().round(9).item()
    1.0
    """

    name = "simple-counting"

    def tail(self, number: IntArray) -> FloatArray:
        return 0.5 * np.exp(-self.epsilon * (number - 0.5))


class GeometricCounting(NoisyCounts):
    """The geometric mechanism: two-sided geometric noise, P(k) ∝ e^{−ε|k|}, on each count.

    Reference: Ghosh, Roughgarden & Sundararajan, SIAM Journal on Computing 41(6), 2012.
    """

    name = "geometric-counting"

    def tail(self, number: IntArray) -> FloatArray:
        ratio = math.exp(-self.epsilon)
        return np.exp(-self.epsilon * number) / (1 + ratio)


def matched(
    kind: type[NoisyCounts], vectors: CountVectors, prior: ArrayLike, *, distortion: float
) -> NoisyCounts:
    """The comparator of this kind whose mean distance is ``distortion``, ε between 0.001 and 100.

    >>> from geoveil.release.prior import Prior
    >>> vectors = CountVectors(5, 3)
    >>> law = Prior.parse([0.1, 0.1, 0.8], 5).law(vectors)
    >>> round(matched(SimpleCounting, vectors, law, distortion=0.8).epsilon, 2)
    1.59
    """
    target = positive("distortion", distortion)
    law = distribution("prior", prior, vectors.size)

    # Far from the edges the distance is near √(2(L − 1))/ε.
    guess = math.sqrt(2 * max(1, vectors.places - 1)) / target
    try:
        nearest = safe_root(
            lambda epsilon: kind(vectors, epsilon=epsilon),
            lambda channel: mean_distance_km(channel, law) / target - 1,
            [min(max(guess, _LEAST_EPSILON), _MOST_EPSILON)],
            within=(_LEAST_EPSILON, _MOST_EPSILON),
            tolerance=_CLOSE,
            stride=_STRIDE,
        )
    except NeverSafe:
        nearest = None
    if nearest is None or nearest.excess < -_CLOSE:
        raise InvalidInput(
            f"distortion ({target:g}) must be one that ε between {_LEAST_EPSILON:g} and "
            f"{_MOST_EPSILON:g} gives"
        )
    return nearest.result


@dataclass(frozen=True)
class ComparatorLeakage:
    """I(A; Ã) of a comparator; ``standard_error_bits`` is zero where it is exact."""

    bits: float
    standard_error_bits: float


def comparator_leakage(
    channel: NoisyCounts, prior: ArrayLike, *, rows: int = 400, seed: int = 1
) -> ComparatorLeakage:
    """I(A; Ã) of a comparator under a law of the counts: exact, or estimated from ``rows`` rows.

    Exact while N·(M + 1)^L is at most 2³⁰. Above, H(Ã) is still exact and H(Ã | A) is the mean of the row
    entropies of ``rows`` vectors drawn from the prior: unbiased, with its standard error.
    """
    law = distribution("prior", prior, channel.vectors.size)
    terms = channel.vectors.size * (channel.vectors.people + 1) ** channel.vectors.places
    if terms <= _EXACT_TERMS:
        return ComparatorLeakage(mutual_information_bits(channel, law), 0.0)
    cells = inverse_distribution(law, seeded(seed).uniform(count("rows", rows, least=2)))
    entropies = np.array([entr(channel._row(int(cell))).sum() for cell in cells]) / math.log(2)
    released = float(entr(channel._push(law)).sum()) / math.log(2)
    error = float(entropies.std(ddof=1)) / math.sqrt(rows)
    return ComparatorLeakage(max(0.0, released - float(entropies.mean())), error)


MULTIPLIERS = tuple(float(rate) for rate in np.geomspace(0.25, 4.0, 9).round(4))
"""Multipliers between almost nothing told and almost nothing changed, for counts of tens."""


@dataclass(frozen=True)
class CurvePoint:
    """One release of the curve, and what comparators leak at the same distortion, by name."""

    multiplier: float
    distortion: float
    leakage_bits: float
    certificate_nats: float
    personal_bits: float
    comparators_bits: dict[str, float]


_BUILD = "a function from a multiplier to a gv.CountRelease"


def leakage_curve(
    build: Callable[[float], CountRelease],
    multipliers: Sequence[float] = MULTIPLIERS,
    comparators: Sequence[type[NoisyCounts]] = (),
    *,
    progress: Callable[[int, int], None] = lambda part, whole: None,
) -> list[CurvePoint]:
    """The release ``build(multiplier)`` at each multiplier, beside comparators tuned to its distortion.

    A comparator is left out where its noisy vectors cannot be listed, or its ε would leave the range.
    """
    arrays.able("build", build, "__call__", _BUILD)
    tell = arrays.teller(progress)
    kinds: Sequence[Any] = comparators
    arrays.able("comparators", kinds, "__len__", "a list of classes, such as [GeometricCounting]")
    arrays.able("multipliers", multipliers, "__len__", "a list of numbers, such as [0.5, 1.0, 2.0]")
    if not all(isinstance(kind, type) and issubclass(kind, NoisyCounts) for kind in kinds):
        raise InvalidInput("comparators must be classes of noisy counts, such as GeometricCounting")
    points = []
    for number, multiplier in enumerate(multipliers):
        tell(number, len(multipliers))
        release = arrays.instance("build", build(multiplier), CountRelease, _BUILD)
        beside: dict[str, float] = {}
        for kind in comparators:
            with contextlib.suppress(TooLarge, InvalidInput):
                bits = {one: _at_equal_distortion(kind, one) for one in set(release.designs)}
                beside[kind.name] = sum(bits[one] for one in release.designs)
        leakage = release.leakage_bits, release.certificate_nats, release.most_personal_leakage_bits
        points.append(CurvePoint(multiplier, release.distortion, *leakage, beside))
    return points


def _at_equal_distortion(kind: type[NoisyCounts], design: AnyDesign) -> float:
    """What a comparator leaks at the distortion of a release of one timestamp, in bits."""
    law = design.law
    if not law.is_whole:
        raise TooLarge("a comparator must have all count vectors listed")
    tuned = matched(kind, law.vectors, law.probabilities, distortion=design.distortion)
    return comparator_leakage(tuned, law.probabilities).bits
