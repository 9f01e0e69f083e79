"""The release channel: the paper's values, the optimum and its certificate, and the window."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multinomial

import geoveil as gv
from geoveil.arrays import uniform
from geoveil.channel.operator import DenseOperator
from geoveil.estimate.em import maximise
from geoveil.estimate.objective import Objective
from geoveil.estimate.stopping import CertifiedWithin
from geoveil.measure import mean_distance_km, mutual_information_bits
from geoveil.mechanism.elastic import exponential_kernel
from geoveil.release import CountLaw, CountRelease, CountVectors, Prior, ReleaseDesign
from geoveil.release.optimum import (
    COARSE,
    LiftedKernel,
    WorkingSetNewton,
    design,
    published_design,
)

EVEN, SKEWED = [1 / 3] * 3, [0.1, 0.1, 0.8]


def by_hand(people: int, prior: list[float], rate: float, threshold: float) -> tuple[float, float]:
    """Algorithm 1 line by line on dense arrays: I in nats as the algorithm has it, and D."""
    vectors = CountVectors(people, len(prior)).vectors
    p = multinomial.pmf(vectors, people, prior)
    d = np.sqrt(np.square(vectors[:, None] - vectors).sum(axis=-1))
    r, before = np.full(len(p), 1 / len(p)), None
    while True:
        q = r * np.exp(-rate * d)
        q /= q.sum(axis=1, keepdims=True)
        leakage = float((p[:, None] * q * np.log(q / r)).sum())
        if before is not None and before - leakage <= threshold:
            return leakage, float((p[:, None] * q * d).sum())
        before, r = leakage, p @ q


@pytest.mark.parametrize(
    ("people", "prior", "leakage", "distortion"),
    [
        (5, EVEN, 0.403, 1.292),
        (5, SKEWED, 0.388, 0.801),
        (20, EVEN, 1.553, 1.742),
        (20, SKEWED, 0.823, 1.518),
    ],
)
def test_the_values_of_the_paper_at_its_threshold(
    people: int, prior: list[float], leakage: float, distortion: float
) -> None:
    release = CountRelease.as_published(people=people, prior=prior, multiplier=1.0)
    assert round(release.leakage_bits, 3) == leakage
    assert round(release.distortion, 3) == distortion
    nats, wanted = by_hand(people, prior, 1.0, 1e-3)
    assert release.distortion == pytest.approx(wanted, rel=1e-9)
    # The algorithm takes the old marginal; ours is the mutual information itself, so never more.
    assert release.leakage_bits <= nats / math.log(2)
    assert release.leakage_bits == pytest.approx(nats / math.log(2), abs=5e-4)


@pytest.mark.parametrize("threshold", [1e-1, 1e-2, 1e-5])
def test_other_thresholds_stop_where_the_algorithm_stops(threshold: float) -> None:
    release = CountRelease.as_published(people=9, prior=SKEWED, multiplier=1.4, threshold=threshold)
    assert release.distortion == pytest.approx(by_hand(9, SKEWED, 1.4, threshold)[1], rel=1e-9)
    assert f"less than {threshold:g} nats" in release.designs[0].ascent.stopped


@pytest.mark.parametrize("rate", [0.05, 0.7, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("prior", [EVEN, SKEWED, [0.5, 0.5, 0.0]])
def test_leakage_and_distortion_are_those_of_the_channel(prior: list[float], rate: float) -> None:
    release = CountRelease(people=11, prior=prior, multiplier=rate)
    (made,) = release.designs
    law = made.law.probabilities
    assert release.leakage_bits == pytest.approx(
        mutual_information_bits(made.channel, law), abs=1e-9
    )
    assert release.distortion == pytest.approx(mean_distance_km(made.channel, law), abs=1e-9)
    np.testing.assert_allclose(made.output, made.channel.push(law), atol=1e-12)
    assert release.certificate_nats <= 1e-6


def test_no_channel_tried_beats_the_certified_least() -> None:
    release = CountRelease(people=7, prior=SKEWED, multiplier=1.0)
    law = release.designs[0].law.probabilities
    objective = release.leakage_bits * math.log(2) + release.distortion
    generator = np.random.default_rng(5)
    weights = release.designs[0].weights
    for strength in (0.01, 0.1, 1.0):
        mixed = (1 - strength) * weights + strength * generator.dirichlet(np.ones(law.size))
        other = gv.Elastic(release.designs[0].vectors, beta_per_km=1.0, weights=mixed)
        tried = mutual_information_bits(other, law) * math.log(2) + mean_distance_km(other, law)
        assert tried >= objective - release.certificate_nats
    assert release.leakage_bits - 1e-5 < release.least_leakage_bits <= release.leakage_bits


def test_the_certificate_is_that_of_the_whole_problem() -> None:
    made = design(CountLaw.of(Prior.parse(SKEWED, 12)), 1.0)
    kernel = np.exp(-made.vectors.distances_km())
    law = made.law.probabilities
    gradient = kernel @ (law / (kernel @ made.weights))
    assert made.certificate_nats == pytest.approx(math.log(max(1.0, gradient.max())), abs=1e-12)


# -- windows ---------------------------------------------------------------------------------------


def whole(people: int, prior: list[float]) -> CountLaw:
    known = Prior.parse(prior, people)
    vectors = CountVectors(people, len(prior))
    law = known.law(vectors)
    return CountLaw(known, vectors, law / law.sum(), 0.0)


@pytest.mark.parametrize(
    ("people", "prior", "rate"),
    [(60, SKEWED, 1.0), (60, EVEN, 0.4), (19, [0.7, 0.1, 0.1, 0.1], 1.5)],
)
def test_a_window_gives_what_the_whole_lattice_gives(
    people: int, prior: list[float], rate: float
) -> None:
    windowed = CountLaw.of(Prior.parse(prior, people))
    assert not windowed.is_whole
    made = design(windowed, rate)
    assert made.certificate_nats <= 1e-3
    everything = whole(people, prior)
    kernel = np.exp(-rate * everything.vectors.distances_km())
    reference = maximise(
        DenseOperator(kernel),
        everything.probabilities,
        stop=CertifiedWithin(1e-5, maximum=500),
        accelerate=WorkingSetNewton(lambda cells: kernel[cells]),
    )
    ours = made.leakage_nats + rate * made.distortion
    least = -reference.log_likelihood - reference.certificate
    # The certificate of the window holds on the whole lattice, tail and outside included.
    assert least - 1e-9 <= ours <= -reference.log_likelihood + made.certificate_nats + 1e-9


def test_the_certificate_of_a_window_holds_outside_it() -> None:
    made = design(CountLaw.of(Prior.parse(EVEN, 60)), 0.6)
    assert not made.law.is_whole
    assert math.log(exact_gradient(made, 0.6)) <= made.certificate_nats
    # Without the margin the bound says nothing: releases at the rim are as welcome as those inside.
    assert made.margin > 0


def test_a_window_that_is_too_small_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    law = CountLaw.of(Prior.parse(EVEN, 60))
    outside = ReleaseDesign.outside_nats.func  # type: ignore[attr-defined]
    refused = property(lambda made: 0.5 if made.law is law else outside(made))
    monkeypatch.setattr(ReleaseDesign, "outside_nats", refused)
    made = design(law, 1.0)
    assert made.vectors.size > law.vectors.size
    assert made.certificate_nats <= 1e-3
    np.testing.assert_allclose(made.law.probabilities.sum(), 1.0, rtol=1e-12)
    assert made.law.probabilities[made.vectors.index(law.vectors.vectors)].tolist() == (
        law.probabilities.tolist()
    )


def exact_gradient(made: ReleaseDesign, rate: float) -> float:
    """max g over the whole lattice, written out."""
    everything = CountVectors(made.vectors.people, made.vectors.places).centres
    support, seen = np.flatnonzero(made.weights), np.flatnonzero(made.law.probabilities)
    centres = made.vectors.centres

    def near(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.exp(-rate * np.sqrt(np.square(a[:, None] - b).sum(axis=-1)))

    sums = near(centres[seen], centres[support]) @ made.weights[support]
    ratio = made.law.probabilities[seen] / sums
    return float((near(everything, centres[seen]) @ ratio).max())


def test_the_largest_case_of_the_issue_is_certified() -> None:
    made = design(CountLaw.of(Prior.parse(EVEN, 1000)), 1.0)
    assert made.certificate_nats <= 1e-3
    assert made.ascent.products < 200
    rows = np.flatnonzero(made.law.probabilities)[::997]
    centres, seen = made.vectors.centres, np.flatnonzero(made.weights)
    for row in rows:  # Z by FFT against sums written out, down to the rim of the window
        distance = np.sqrt(np.square(centres[seen] - centres[row]).sum(axis=1))
        exact = float(np.exp(-distance) @ made.weights[seen])
        assert made._averages.log_normaliser[row] == pytest.approx(math.log(exact), abs=1e-5)


def test_any_valid_vector_can_be_released_from_a_window() -> None:
    release = CountRelease(people=300, prior=EVEN, multiplier=1.0)
    assert not release.designs[0].law.is_whole
    for counts in ([300, 0, 0], [0, 0, 300], [100, 100, 100]):
        drawn = release.sample(counts, randomness=gv.seeded(1))
        assert drawn.sum() == 300
        assert (drawn >= 0).all()


# -- the accelerator -------------------------------------------------------------------------------


def test_the_working_set_never_lowers_f_and_ends_at_the_maximum() -> None:
    law = whole(14, [0.7, 0.1, 0.1, 0.1])
    kernel = np.exp(-0.9 * law.vectors.distances_km())
    accelerate = WorkingSetNewton(lambda cells: kernel[cells], warm_steps=3, largest=60, entering=5)
    ascent = maximise(
        DenseOperator(kernel),
        law.probabilities,
        stop=CertifiedWithin(1e-8),
        accelerate=accelerate,
    )
    values = np.array(ascent.trace.log_likelihood)
    assert ascent.certificate <= 1e-8
    assert (np.diff(values) >= -1e-12).all()
    assert ascent.steps < 60
    plain = maximise(DenseOperator(kernel), law.probabilities, stop=CertifiedWithin(1e-4))
    assert plain.log_likelihood <= ascent.log_likelihood + 1e-8
    assert ascent.products < plain.products / 3


def test_the_working_set_waits_while_many_vectors_matter() -> None:
    law = whole(14, [0.7, 0.1, 0.1, 0.1])
    kernel = np.exp(-3.0 * law.vectors.distances_km())
    accelerate = WorkingSetNewton(lambda cells: pytest.fail("too early"), warm_steps=1, largest=2)
    objective = Objective(DenseOperator(kernel), law.probabilities)
    path = accelerate.path(objective, uniform(law.vectors.size))
    assert all(next(path).theta.min() > 0 for _ in range(12))


def test_what_lies_below_the_noise_is_lifted_to_it() -> None:
    vectors = CountVectors(300, 3, (0, 0, 0), (300, 40, 300))
    operator = LiftedKernel(exponential_kernel(vectors, 5.0))
    theta = np.zeros(vectors.size)
    theta[0] = 1.0
    assert operator.push(theta).min() == operator.kernel.noise(theta)[0] > 0


def test_design_stops_as_asked() -> None:
    law = CountLaw.of(Prior.parse(EVEN, 15))
    assert design(law, 1.0, stop=gv.Steps(3)).ascent.steps == 3
    assert published_design(law, 1.0, 1e-2).ascent.steps > 3
    assert COARSE.tolerance == 1e-3


@pytest.mark.parametrize("faint", [1e-323, 1e-310])
def test_releases_that_hardly_ever_come_tell_nothing_about_a_person(faint: float) -> None:
    made = design(CountLaw.of(Prior.parse([0.9, 0.1], 4)), 1.0)
    weights = np.where(np.arange(5) < 2, faint, [0.0, 0.0, 0.2, 0.3, 0.5])
    never, hardly = (
        ReleaseDesign(made.law, 1.0, replace(made.ascent, distribution=given))
        for given in (np.where(weights > 1e-300, weights, 0.0), weights)
    )
    wanted = never.personal_leakage_bits
    np.testing.assert_allclose(hardly.personal_leakage_bits, wanted, rtol=1e-12)
