"""Many equal places: the release on orbits is that on all count vectors, and reaches far beyond these."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

import geoveil as gv
from geoveil.errors import TooLarge
from geoveil.release import CountLaw, CountVectors, Prior, ReleaseDesign
from geoveil.release.count_release import listed_within_reach
from geoveil.release.equal_places import Arrangements, number_of_partitions
from geoveil.release.optimum import design
from geoveil.release.orbits import Orbits
from geoveil.release.symmetric_design import (
    OrbitLaw,
    SymmetricDesign,
    symmetric_design,
    symmetric_within_reach,
)

CLASSES = [
    (5, (4,)),
    (4, (1, 3)),
    (4, (3, 1, 1)),
    (4, (2, 3)),
    (3, (2, 2, 1)),
    (3, (2, 2, 2)),
    (6, (2,)),
    (3, (1, 1)),
]


def listed(people: int, sizes: tuple[int, ...]) -> tuple[Orbits, np.ndarray, np.ndarray]:
    """The orbits, all vectors, and which orbit each is in."""
    orbits = Orbits(people, sizes)
    vectors = CountVectors(people, sum(sizes)).vectors
    cuts = np.cumsum(sizes)[:-1]
    return orbits, vectors, np.array([orbits.index(np.split(each, cuts)) for each in vectors])


@pytest.mark.parametrize(("people", "sizes"), CLASSES)
def test_kernels_of_orbits_are_means_over_their_vectors(
    people: int, sizes: tuple[int, ...]
) -> None:
    orbits, vectors, number = listed(people, sizes)
    size = np.bincount(number, minlength=orbits.size)
    np.testing.assert_allclose(np.exp(orbits.log_sizes), size, rtol=1e-12)
    squares = np.square(vectors[:, None] - vectors).sum(axis=-1)
    values = np.exp(-0.7 * np.sqrt(np.arange(2 * people**2 + 1)))[None]
    (means,) = orbits.means(values)
    by_hand = np.zeros(means.shape)
    np.add.at(by_hand, (number[:, None], number), values[0][squares])
    np.testing.assert_allclose(means, by_hand / np.outer(size, size), rtol=1e-12)
    (again,) = orbits.means(values)  # from what was held
    np.testing.assert_array_equal(means, again)
    for at in range(orbits.size):
        assert orbits.index(orbits.counts(at)) == at


SKEWED = [0.4] + [0.1] * 6
PEOPLE = np.array([[0.1] * 4 + [0.3] * 2, [0.2] * 4 + [0.1] * 2, [0.1] * 4 + [0.3] * 2])
PRIORS = {
    "all equal": (6, [1 / 5] * 5),
    "one apart": (5, SKEWED),
    "two classes": (4, [0.3, 0.3, 0.1, 0.1, 0.2]),
    "nobody there": (4, [0.5, 0.5, 0.0, 0.0, 0.0]),
    "one prior each": (3, PEOPLE),
}


@pytest.mark.parametrize("rate", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", PRIORS)
def test_the_release_on_orbits_is_that_on_vectors(name: str, rate: float) -> None:
    people, shares = PRIORS[name]
    prior = Prior.parse(shares, people)
    ours = symmetric_design(OrbitLaw.of(prior), rate)
    theirs = design(CountLaw.of(prior), rate)
    assert theirs.law.is_whole
    near = 2 * (ours.certificate_nats + theirs.certificate_nats) + 1e-9
    assert ours.certificate_nats <= 1e-6
    both = [made.leakage_nats + rate * made.distortion for made in (ours, theirs)]
    assert both[0] == pytest.approx(both[1], abs=near)
    assert ours.law.entropy_bits == pytest.approx(theirs.law.entropy_bits)
    assert ours.leakage_bits == pytest.approx(theirs.leakage_bits, abs=2e-3)
    assert ours.distortion == pytest.approx(theirs.distortion, abs=2e-3)
    # with the very weights of the orbits, all of it is the same to the last digits
    vectors = theirs.vectors.vectors
    number = np.array([ours.law.orbits.index(ours.law.by_class(each)) for each in vectors])
    weights = ours.weights[number] / np.bincount(number)[number]
    kernel = np.exp(-rate * theirs.vectors.distances_km())
    expanded = ReleaseDesign(theirs.law, rate, ours.ascent)
    expanded.weights = weights
    assert expanded.leakage_nats == pytest.approx(ours.leakage_nats, abs=1e-10)
    assert expanded.distortion == pytest.approx(ours.distortion, abs=1e-10)
    np.testing.assert_allclose(
        expanded.personal_leakage_bits, ours.personal_leakage_bits, atol=1e-9
    )
    gradient = kernel @ (theirs.law.probabilities / (kernel @ weights))
    assert math.log(max(1.0, gradient.max())) == pytest.approx(ours.certificate_nats, abs=1e-9)
    for at in (0, len(vectors) // 2):
        row = np.bincount(number, expanded.row(vectors[at]), minlength=ours.law.orbits.size)
        np.testing.assert_allclose(ours.row(vectors[at]), row, atol=1e-12)
        assert ours.law.surprise(vectors[at]) == pytest.approx(theirs.law.surprise(vectors[at]))


@pytest.mark.parametrize("name", ["all equal", "one apart", "two classes"])
def test_draws_follow_the_law_of_the_vectors(name: str) -> None:
    people, shares = PRIORS[name]
    prior = Prior.parse(shares, people)
    ours = symmetric_design(OrbitLaw.of(prior), 2.0)
    vectors = CountVectors(people, prior.places)
    number = np.array([ours.law.orbits.index(ours.law.by_class(each)) for each in vectors.vectors])
    truth = vectors.vectors[7 * vectors.size // 10]
    if name == "two classes":  # differing in both: how near one is drawn decides about the other
        truth = np.array([2, 0, 1, 0, 1])
    away = np.linalg.norm(vectors.vectors - truth, axis=1)
    law = ours.weights[number] / np.bincount(number)[number] * np.exp(-2.0 * away)
    law /= law.sum()
    source, draws = gv.seeded(3), 500
    drawn = np.stack([ours.sample(truth, source) for _ in range(draws)])
    seen = np.bincount(vectors.index(drawn), minlength=vectors.size)
    likely = law * draws >= 5
    expected = np.append(law[likely], law[~likely].sum()) * draws
    counted = np.append(seen[likely], seen[~likely].sum())
    keep = expected > 0
    assert chisquare(counted[keep], expected[keep]).pvalue > 1e-3
    assert seen[law == 0].sum() == 0


def test_orbits_that_hardly_ever_come_tell_nothing_about_a_person() -> None:
    made = symmetric_design(OrbitLaw.of(Prior.parse([0.4, 0.2, 0.2, 0.2], 4)), 0.5)
    for orbit in range(made.weights.size):
        never, hardly = made.weights.copy(), made.weights.copy()
        never[orbit], hardly[orbit] = 0.0, 2e-323
        told = []
        for weights in (never, hardly):
            ascent = replace(made.ascent, distribution=weights)
            kernels = np.stack([made._kernel, made._weighted])
            other = SymmetricDesign(made.law, 0.5, kernels, ascent)
            told.append(other.personal_leakage_bits)
        np.testing.assert_allclose(*told, rtol=1e-12)


@pytest.mark.parametrize("rate", [0.5, 3.0, 60.0, 300.0])
@pytest.mark.parametrize("shares", [[0.5, 0.5, 0.0, 0.0], [0.25] * 4, [0.4, 0.2, 0.2, 0.2]])
def test_unlikely_counts_and_sharp_releases(shares: list[float], rate: float) -> None:
    """Nothing may be lost where e^{−λ·d} is next to nothing: counts that the prior does not know."""
    law = OrbitLaw.of(Prior.parse(shares, 6))
    made = symmetric_design(law, rate)
    assert np.isfinite([made.leakage_nats, made.distortion, *made.personal_leakage_bits]).all()
    vectors = CountVectors(6, 4)
    number = np.array([law.orbits.index(law.by_class(each)) for each in vectors.vectors])
    each = made.weights[number] / np.bincount(number)[number]
    truth = np.array([0, 0, 2, 4])
    with np.errstate(divide="ignore"):
        logs = np.log(each) - rate * np.linalg.norm(vectors.vectors - truth, axis=1)
    expected = np.bincount(number, np.exp(logs - logs.max()), minlength=law.orbits.size)
    np.testing.assert_allclose(made.row(truth), expected / expected.sum(), atol=1e-9)
    drawn = vectors.index(made.sample(truth, gv.seeded(4)))
    assert logs[drawn] > logs.max() - 60
    assert law.surprise(truth) == pytest.approx(0.0) if shares[3] == 0 else True


def test_arrangements_count_all_ways() -> None:
    fixed, moved, places = (3, 1), (2, 2, 1), 5
    arrangements = Arrangements(fixed, moved, places)
    by_hand: Counter[int] = Counter()
    vectors = CountVectors(5, 5).vectors
    for each in vectors[(np.sort(vectors)[:, ::-1] == (2, 2, 1, 0, 0)).all(axis=1)]:
        by_hand[int(each[0] * 3 + each[1])] += 1
    assert arrangements.ways == dict(by_hand)
    drawn = arrangements.draw(7, gv.seeded(1))
    assert sorted(drawn, reverse=True) == [2, 2, 1, 0, 0]
    assert 3 * drawn[0] + drawn[1] == 7


def test_many_more_vectors_than_can_be_listed() -> None:
    release = gv.CountRelease(people=10, prior=np.full(200, 1 / 200), multiplier=1.5)
    (made,) = release.designs
    assert isinstance(made, SymmetricDesign)
    assert made.law.orbits.size == number_of_partitions(10, 200)[-1] == 42
    assert release.certificate_nats <= 1e-6
    assert 0 < release.leakage_bits < made.law.entropy_bits
    assert release.chain.holds
    assert release.epsilon == pytest.approx(2 * math.sqrt(2) * 1.5)
    truth = np.bincount([3, 3, 7, 50, 51, 52, 60, 61, 199, 199], minlength=200)
    released = release.sample(truth, randomness=gv.seeded(2))
    assert released.sum() == 10
    assert released.shape == (200,)
    with pytest.raises(TooLarge, match="fewer to be listed"):
        made.channel  # noqa: B018
    with pytest.raises(TooLarge, match="fewer to be listed"):
        made.vectors  # noqa: B018
    # a limit is kept, and a distortion met
    limited = gv.CountRelease(people=10, prior=np.full(200, 1 / 200), leakage_bits=3.0)
    assert 2.9 < limited.leakage_bits <= 3.0


def test_what_is_small_stays_on_vectors_and_what_is_unequal_out_of_reach() -> None:
    (small,) = gv.CountRelease(people=5, prior=[0.2] * 5, multiplier=1.0).designs
    assert isinstance(small, ReleaseDesign)
    unequal = Prior.parse(np.arange(1, 41) / 820, 10)
    assert not listed_within_reach(unequal)
    assert not symmetric_within_reach(unequal)
    with pytest.raises(TooLarge, match="merge the places"):
        gv.CountRelease(people=10, prior=np.arange(1, 41) / 820, multiplier=1.0)
    many = Prior.parse(np.full(100, 0.01), 60)
    assert not symmetric_within_reach(many)
    with pytest.raises(TooLarge, match="groups of at most"):
        gv.CountRelease(people=60, prior=np.full(100, 0.01), multiplier=1.0)
    with pytest.raises(TooLarge):
        gv.CountRelease.as_published(people=10, prior=np.full(200, 1 / 200), multiplier=1.0)
