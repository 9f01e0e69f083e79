"""Entropy, divergences and leakage against sums written out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.channel.composed import DenseChannel
from geoveil.errors import InvalidInput
from geoveil.measure import (
    entropy_bits,
    kl_divergence_bits,
    kl_divergence_nats,
    mutual_information_bits,
    total_variation,
)
from geoveil.space.grid import Line

seeds = st.integers(0, 2**32 - 1)


def random_channel(size: int, reports: int, seed: int) -> DenseChannel:
    rows = np.random.default_rng(seed).dirichlet(np.full(reports, 0.3), size=size)
    return DenseChannel(Line(size), rows)


def random_prior(size: int, seed: int, zeros: int = 0) -> np.ndarray:
    prior = np.random.default_rng(seed).dirichlet(np.ones(size))
    prior[:zeros] = 0
    return prior / prior.sum()


def information_by_hand(matrix: np.ndarray, prior: np.ndarray) -> float:
    law = [sum(prior[x] * matrix[x, y] for x in range(len(prior))) for y in range(matrix.shape[1])]
    return sum(
        prior[x] * matrix[x, y] * math.log2(matrix[x, y] / law[y])
        for x, y in itertools.product(range(matrix.shape[0]), range(matrix.shape[1]))
        if prior[x] * matrix[x, y] > 0
    )


def test_entropy_of_known_distributions() -> None:
    assert entropy_bits(np.full(8, 1 / 8)) == pytest.approx(3, abs=1e-14)
    assert entropy_bits([0, 1, 0]) == 0
    assert entropy_bits([0.9, 0.1]) == pytest.approx(-0.9 * math.log2(0.9) - 0.1 * math.log2(0.1))


@given(seeds, st.integers(1, 6), st.integers(1, 7), st.integers(0, 2))
def test_mutual_information_is_its_double_sum(
    seed: int, size: int, reports: int, zeros: int
) -> None:
    channel = random_channel(size, reports, seed)
    prior = random_prior(size, seed, min(zeros, size - 1))
    found = mutual_information_bits(channel, prior)
    assert found == pytest.approx(information_by_hand(channel.matrix(), prior), abs=1e-12)
    assert 0 <= found <= entropy_bits(prior) + 1e-12


@pytest.mark.parametrize("zeros", [0, 20, 87])
def test_mutual_information_with_many_and_with_few_rows(zeros: int) -> None:
    channel = random_channel(90, 5, seed=1)
    prior = random_prior(90, 2, zeros)
    expected = information_by_hand(channel.matrix(), prior)
    assert mutual_information_bits(channel, prior) == pytest.approx(expected, abs=1e-12)


def test_a_faithful_channel_leaks_the_entropy_and_a_deaf_one_nothing() -> None:
    prior = random_prior(9, 3)
    faithful = DenseChannel(Line(9), np.eye(9))
    deaf = DenseChannel(Line(9), np.tile(random_prior(4, 4), (9, 1)))
    assert mutual_information_bits(faithful, prior) == pytest.approx(entropy_bits(prior), abs=1e-13)
    assert mutual_information_bits(deaf, prior) == pytest.approx(0, abs=1e-13)
    assert mutual_information_bits(faithful) == pytest.approx(math.log2(9), abs=1e-13)


@given(seeds)
def test_processing_reports_never_adds_information(seed: int) -> None:
    channel, after = random_channel(5, 6, seed), random_channel(6, 4, seed + 1)
    prior = random_prior(5, seed)
    processed = DenseChannel(Line(5), channel.matrix() @ after.matrix())
    before = mutual_information_bits(channel, prior)
    assert mutual_information_bits(processed, prior) <= before + 1e-12


@given(seeds, st.integers(2, 8))
def test_total_variation_is_the_largest_difference_over_events(seed: int, size: int) -> None:
    p, q = random_prior(size, seed), random_prior(size, seed + 1)
    events = itertools.product([False, True], repeat=size)
    largest = max(float((p - q)[list(event)].sum()) for event in events)
    assert total_variation(p, q) == pytest.approx(largest, abs=1e-14)
    assert total_variation(p, p) == 0


@given(seeds, st.integers(2, 8))
def test_divergence_is_its_sum_and_bounds_total_variation(seed: int, size: int) -> None:
    p, q = random_prior(size, seed, zeros=1), random_prior(size, seed + 1)
    by_hand = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
    assert kl_divergence_nats(p, q) == pytest.approx(by_hand, abs=1e-13)
    assert kl_divergence_bits(p, q) == pytest.approx(by_hand / math.log(2), abs=1e-13)
    assert total_variation(p, q) <= math.sqrt(kl_divergence_nats(p, q) / 2) + 1e-12  # Pinsker
    assert kl_divergence_nats(q, p) == math.inf


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.5], [1.0]),
        ([0.5, 0.6], [0.5, 0.5]),
        ([1.5, -0.5], [0.5, 0.5]),
        ([math.nan, 1.0], [0.5, 0.5]),
        ([], []),
        (1.0, 1.0),
        ([[0.5, 0.5]], [0.5, 0.5]),
        (["a", "b"], [0.5, 0.5]),
    ],
)
def test_what_is_no_pair_of_distributions_is_refused(p: object, q: object) -> None:
    for measure in (total_variation, kl_divergence_nats, kl_divergence_bits):
        with pytest.raises(InvalidInput):
            measure(p, q)  # type: ignore[arg-type]


def test_a_prior_for_another_space_is_refused() -> None:
    with pytest.raises(InvalidInput, match="prior"):
        mutual_information_bits(random_channel(4, 4, 0), [0.5, 0.5])
