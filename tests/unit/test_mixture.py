"""[e]_R and [e]_M against their definitions, and where each of them fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoveil.channel.channel import Tally
from geoveil.channel.composed import AverageChannel, DenseChannel, StackedChannel
from geoveil.channel.guarantee import LocalDifferentialPrivacy
from geoveil.channel.joint import JointTally
from geoveil.errors import InvalidInput, Unsupported
from geoveil.estimate.bayesian_update import IterativeBayesianUpdate
from geoveil.estimate.em import ActiveSetNewton
from geoveil.estimate.fitted import by_mechanism
from geoveil.estimate.linear import MatrixInversion, RapporEstimator
from geoveil.estimate.mixture import AverageMechanism, AverageOfEstimates
from geoveil.estimate.stopping import CertifiedWithin
from geoveil.mechanism.local import RandomizedResponse, Rappor
from geoveil.mechanism.planar import LinearGeometric
from geoveil.randomness import seeded
from geoveil.space.grid import Line

LINE = Line(4)
MIXED = [
    RandomizedResponse(LINE, epsilon=1.5),
    LinearGeometric(LINE, epsilon_per_unit=0.8),
    DenseChannel(LINE, np.array([[7, 1, 1, 1], [2, 5, 2, 1], [1, 1, 6, 2], [1, 2, 3, 4]]) / 10),
]
exact = IterativeBayesianUpdate(stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton())


def random_tallies(seed: int) -> list[Tally]:
    counts = np.random.default_rng(seed).integers(1, 300, (3, 4))
    return [Tally(channel, row) for channel, row in zip(MIXED, counts, strict=True)]


@settings(max_examples=8)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([MatrixInversion(), MatrixInversion("normalise"), exact]),
)
def test_the_average_of_estimates_is_their_mean_weighted_by_reports(seed: int, estimator) -> None:  # type: ignore[no-untyped-def]
    tallies = random_tallies(seed)
    parts = [estimator.fit(tally) for tally in tallies]
    weights = np.array([tally.total for tally in tallies]) / sum(tally.total for tally in tallies)
    found = AverageOfEstimates(estimator).fit(tallies)
    assert found.distribution == pytest.approx(
        sum(w * p.distribution for w, p in zip(weights, parts, strict=True))
    )
    centres = np.stack([p.errors.centre for p in parts])
    centre = weights @ centres
    assert found.errors.centre == pytest.approx(centre)
    # who is in which group varies too: E(θ_A²) − θ² over the people, as in a poll
    variance = sum(w**2 * p.standard_error**2 for w, p in zip(weights, parts, strict=True))
    variance += (weights @ centres**2 - centre**2) / found.total
    assert found.standard_error == pytest.approx(np.sqrt(variance))
    pairs, ends = [p.region([0, 3]).standard_error for p in parts], centres[:, [0, 3]].sum(axis=1)
    of_pair = np.square(weights * pairs).sum()
    of_pair += (weights @ ends**2 - (weights @ ends) ** 2) / found.total
    assert found.region([0, 3]).standard_error == pytest.approx(float(np.sqrt(of_pair)))
    low, high = found.interval(0.95)
    reach = 1.959964 * found.standard_error
    assert low == pytest.approx(np.clip(np.minimum(centre - reach, found.distribution), 0, 1))
    ends = np.maximum(np.maximum(centre, 0) + reach, found.distribution)
    assert high == pytest.approx(np.clip(ends, 0, 1))
    assert found.stopped.startswith("average of 3 estimates, each ")


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_the_average_mechanism_is_the_estimate_for_the_mean_matrix(seed: int) -> None:
    tallies = random_tallies(seed)
    total = sum(tally.total for tally in tallies)
    matrix = sum(tally.total / total * tally.channel.matrix() for tally in tallies)
    pooled = Tally(DenseChannel(LINE, matrix), sum(tally.counts for tally in tallies))
    for estimator in (MatrixInversion(), exact):
        direct, found = estimator.fit(pooled), AverageMechanism(estimator).fit(tallies)
        assert found.distribution == pytest.approx(direct.distribution, abs=1e-6)
        assert found.standard_error == pytest.approx(direct.standard_error, rel=1e-4)
        assert found.stopped.endswith("under the average of 3 mechanisms")


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_neither_beats_maximum_likelihood_and_both_know_by_how_much(seed: int) -> None:
    tallies = random_tallies(seed)
    best = exact.fit(tallies)
    for way in (AverageOfEstimates, AverageMechanism):
        for estimator in (MatrixInversion(), exact):
            found = way(estimator).fit(tallies)
            assert found.log_likelihood <= best.log_likelihood + 1e-9
            assert best.log_likelihood - found.log_likelihood <= found.certificate + 1e-9


def test_expected_counts_give_the_distribution_back() -> None:
    """Proposition 1, without noise: each group of people reports exactly as expected."""
    truth = np.array([0.4, 0.3, 0.2, 0.1])
    dense = [
        MIXED[2],
        DenseChannel(LINE, np.array([[1, 1, 1, 7], [2, 5, 2, 1], [3, 1, 4, 2], [4, 2, 3, 1]]) / 10),
    ]
    tallies = [
        Tally(channel, np.rint(people * (truth @ channel.matrix())).astype(int))
        for channel, people in zip(dense, (1000, 3000), strict=True)
    ]
    for way in (AverageOfEstimates, AverageMechanism):
        assert way(MatrixInversion()).fit(tallies).distribution == pytest.approx(truth, abs=1e-10)


def test_mechanisms_that_cancel_leave_the_average_mechanism_nothing() -> None:
    """FREEWILL eq. (11): each tells much, their average tells nothing, both together tell all."""
    two = Line(2)
    honest = DenseChannel(two, [[0.75, 0.25], [0.25, 0.75]])
    contrary = DenseChannel(two, [[0.25, 0.75], [0.75, 0.25]])
    tallies = [Tally(honest, [700, 300]), Tally(contrary, [300, 700])]  # as expected of (0.9, 0.1)
    lost = AverageMechanism(MatrixInversion()).fit(tallies)
    assert lost.distribution == pytest.approx([0.5, 0.5])
    assert not lost.identifiable
    assert np.isinf(lost.standard_error).all()
    assert lost.certificate > 0.1
    kept = AverageOfEstimates(MatrixInversion()).fit(tallies)
    assert kept.distribution == pytest.approx([0.9, 0.1])
    assert kept.identifiable
    assert kept.certificate == pytest.approx(0, abs=1e-12)


def test_an_average_is_as_identifiable_as_its_worst_part() -> None:
    deaf = DenseChannel(LINE, np.full((4, 4), 0.25))
    tallies = [*random_tallies(1), Tally(deaf, [25, 25, 25, 25])]
    found = AverageOfEstimates(MatrixInversion()).fit(tallies)
    assert not found.identifiable
    assert found.identifiable.rank == 1
    assert np.isinf(found.standard_error).all()


def test_tallies_of_equal_mechanisms_are_one_and_empty_ones_none() -> None:
    rappor = [Rappor(LINE, epsilon=e) for e in (1.0, 1.0, 2.0)]
    vectors = [m.tally(m.sample([0, 1, 1, 3], randomness=seeded(i))) for i, m in enumerate(rappor)]
    response = Tally(RandomizedResponse(LINE, epsilon=1.5), [4, 3, 2, 1])
    empty = Tally(RandomizedResponse(LINE, epsilon=9.0), [0, 0, 0, 0])
    joined = by_mechanism([*vectors, response, empty, random_tallies(2)[0]])
    assert [tally.total for tally in joined] == [8, 4, 10 + random_tallies(2)[0].total]
    assert sum(tally.counts.sum() for tally in joined) == 22 + random_tallies(2)[0].total


def test_rappor_is_averaged_by_estimates_and_refused_by_mechanism() -> None:
    mechanisms = [Rappor(LINE, epsilon=e) for e in (1.0, 4.0)]
    people = np.repeat([0, 1, 2], [500, 300, 200])
    tallies = [m.tally(m.sample(people, randomness=seeded(i))) for i, m in enumerate(mechanisms)]
    found = AverageOfEstimates(RapporEstimator()).fit(tallies)
    parts = [RapporEstimator().fit(tally).distribution for tally in tallies]
    assert found.distribution == pytest.approx(np.mean(parts, axis=0))
    with pytest.raises(Unsupported, match="RapporEstimator"):
        AverageMechanism(MatrixInversion()).fit(tallies)


def test_different_reports_or_spaces_cannot_be_averaged() -> None:
    binary = DenseChannel(LINE, np.array([[1.0, 0], [0.7, 0.3], [0.3, 0.7], [0, 1]]))
    with pytest.raises(InvalidInput, match=r"2, 4 reports.*AverageOfEstimates"):
        AverageMechanism(MatrixInversion()).fit([*random_tallies(1), Tally(binary, [5, 5])])
    other = RandomizedResponse(Line(5), epsilon=1.0)
    for way in (AverageOfEstimates, AverageMechanism):
        with pytest.raises(InvalidInput, match="same space"):
            way(MatrixInversion()).fit([*random_tallies(1), Tally(other, [1, 1, 1, 1, 1])])


def test_an_average_channel_is_a_channel() -> None:
    weights = [0.5, 0.3, 0.2]
    average = AverageChannel(MIXED, weights)
    matrix = sum(w * channel.matrix() for w, channel in zip(weights, MIXED, strict=True))
    theta, values = np.random.default_rng(3).dirichlet(np.ones(4), size=2)
    assert average.matrix() == pytest.approx(matrix)
    assert average.push(theta) == pytest.approx(theta @ matrix)
    assert average.pull(values) == pytest.approx(matrix @ values)
    assert average.likelihood(2) == pytest.approx(matrix[:, 2])
    assert average.guarantee is None
    levels = [RandomizedResponse(LINE, epsilon=e) for e in (1.0, 2.0)]
    assert AverageChannel(levels, [0.5, 0.5]).guarantee == LocalDifferentialPrivacy(2.0)
    with pytest.raises(InvalidInput, match="at least one"):
        AverageChannel([], [])
    with pytest.raises(InvalidInput, match="share one space"):
        AverageChannel([levels[0], RandomizedResponse(Line(5), epsilon=1.0)], [0.5, 0.5])


@pytest.mark.parametrize("wrong", [[], ["coin"], RandomizedResponse(LINE, epsilon=1.0), None])
def test_channels_are_joined_by_a_list_of_them(wrong: Any) -> None:
    for join in (StackedChannel, lambda channels: JointTally(channels, [[0]])):
        with pytest.raises(InvalidInput, match="a list of at least one mechanism"):
            join(wrong)
