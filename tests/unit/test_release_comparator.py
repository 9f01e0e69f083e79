"""Comparators: back to valid vectors, equal distortion, exact and estimated leakage."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geoveil as gv
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure import mean_distance_km, mutual_information_bits
from geoveil.plot.curves import save_leakage_curve
from geoveil.release import (
    CountRelease,
    CountVectors,
    CurvePoint,
    GeometricCounting,
    NoisyCounts,
    Prior,
    SimpleCounting,
    comparator,
    comparator_leakage,
    leakage_curve,
    matched,
)
from geoveil.release.comparator import draw_nearest, nearest_matrix

KINDS = [SimpleCounting, GeometricCounting]
SKEWED = [0.1, 0.1, 0.8]


def law_of(people: int, prior: list[float]) -> np.ndarray:
    return Prior.parse(prior, people).law(CountVectors(people, len(prior)))


@pytest.mark.parametrize(("people", "places"), [(5, 1), (5, 2), (4, 3), (3, 4)])
def test_the_nearest_valid_vectors_share_equally(people: int, places: int) -> None:
    shares = nearest_matrix(people, places).toarray()
    valid = CountVectors(people, places).vectors
    for row, noisy in enumerate(itertools.product(range(people + 1), repeat=places)):
        squares = np.square(valid - np.array(noisy)).sum(axis=1)
        best = squares == squares.min()
        np.testing.assert_allclose(shares[row], best / best.sum(), rtol=1e-12)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 50))
def test_drawn_vectors_are_valid_and_nearest(noisy: list[int], people: int) -> None:
    given_ = np.array(noisy)
    drawn = draw_nearest(given_, people, gv.seeded(1))
    assert drawn.sum() == people
    assert (drawn >= 0).all()
    # No single move of one unit brings it nearer: for a convex distance that is the minimum.
    own = np.square(drawn - given_).sum()
    for one, other in itertools.permutations(range(len(noisy)), 2):
        moved = drawn.copy()
        moved[one] -= 1
        moved[other] += 1
        assert moved[one] < 0 or np.square(moved - given_).sum() >= own


@pytest.mark.parametrize("kind", KINDS)
def test_the_tuned_comparator_has_the_wanted_distortion(kind: type[NoisyCounts]) -> None:
    law = law_of(8, SKEWED)
    for wanted in (0.1, 1.0, 2.5):
        tuned = matched(kind, CountVectors(8, 3), law, distortion=wanted)
        matrix, distances = tuned.matrix(), tuned.vectors.distances_km()
        assert law @ (matrix * distances).sum(axis=1) == pytest.approx(wanted, rel=1e-5)
        assert mean_distance_km(tuned, law) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_distortion_out_of_range_is_refused(kind: type[NoisyCounts]) -> None:
    with pytest.raises(InvalidInput, match="ε between"):
        matched(kind, CountVectors(5, 3), law_of(5, SKEWED), distortion=50.0)
    with pytest.raises(InvalidInput, match="above 0"):
        matched(kind, CountVectors(5, 3), law_of(5, SKEWED), distortion=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_leakage_is_that_of_the_matrix(kind: type[NoisyCounts]) -> None:
    law, channel = law_of(6, SKEWED), kind(CountVectors(6, 3), epsilon=1.0)
    joint = law[:, None] * channel.matrix()
    apart = law[:, None] * joint.sum(axis=0)
    wanted = float((joint * np.log2(joint / apart)).sum())
    found = comparator_leakage(channel, law)
    assert found.standard_error_bits == 0.0
    assert found.bits == pytest.approx(wanted, abs=1e-10)
    assert mutual_information_bits(channel, law) == pytest.approx(wanted, abs=1e-10)


@pytest.mark.statistical
def test_the_estimate_says_how_far_it_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    law, channel = law_of(10, SKEWED), SimpleCounting(CountVectors(10, 3), epsilon=1.0)
    exact = comparator_leakage(channel, law).bits
    monkeypatch.setattr(comparator, "_EXACT_TERMS", 0)
    estimate = comparator_leakage(channel, law, rows=300, seed=4)
    assert 0 < estimate.standard_error_bits < 0.05
    assert abs(estimate.bits - exact) < 6.2 * estimate.standard_error_bits  # 6e-10 two-sided
    wrong = mutual_information_bits(SimpleCounting(CountVectors(10, 3), epsilon=2.0), law)
    assert abs(estimate.bits - wrong) > 6.2 * estimate.standard_error_bits


@pytest.mark.parametrize("prior", [[1 / 3] * 3, SKEWED])
def test_the_release_leaks_less_at_equal_distortion(prior: list[float]) -> None:
    points = leakage_curve(
        lambda rate: CountRelease(people=6, prior=prior, multiplier=rate), (0.6, 1.0, 2.0), KINDS
    )
    for point in points:
        assert set(point.comparators_bits) == {"simple-counting", "geometric-counting"}
        assert all(bits > point.leakage_bits for bits in point.comparators_bits.values())
        assert point.personal_bits <= point.leakage_bits
    assert [point.multiplier for point in points] == [0.6, 1.0, 2.0]
    assert points[0].distortion > points[1].distortion > points[2].distortion


def test_a_curve_does_without_comparators_that_cannot_be_listed() -> None:
    points = leakage_curve(
        lambda rate: CountRelease(people=70, prior=SKEWED, multiplier=rate), (3.0,), KINDS
    )
    assert points[0].comparators_bits == {}


def test_refusals() -> None:
    with pytest.raises(TooLarge, match="noisy count vectors"):
        SimpleCounting(CountVectors(300, 3), epsilon=1.0).row(0)
    with pytest.raises(InvalidInput, match="whole lattice"):
        SimpleCounting(CountVectors(9, 3, (1, 0, 0), (9, 9, 9)), epsilon=1.0)
    with pytest.raises(InvalidInput, match="epsilon"):
        SimpleCounting(CountVectors(4, 3), epsilon=0.0)
    # Samples need no list of noisy vectors.
    far = SimpleCounting(CountVectors(300, 3), epsilon=0.5)
    drawn = far.vectors.vectors[far.sample([0, 17, 40_000])]
    assert (drawn.sum(axis=1) == 300).all()
    assert far.guarantee.epsilon_per_km == pytest.approx(0.5 * math.sqrt(3))


def test_counts_are_clamped_before_the_nearest_vector() -> None:
    """As documented, and it matters: (4, −2, 2) of two people stands for (1, 0, 1), not (2, 0, 0)."""
    channel = SimpleCounting(CountVectors(2, 3), epsilon=1.0)
    np.testing.assert_allclose(channel.one_count.sum(axis=1), 1.0)
    # everything below zero is at zero
    assert channel.one_count[0, 0] == pytest.approx(1 - 0.5 * math.exp(-0.5))
    noisy = np.array([4, -2, 2])
    clamped = np.clip(noisy, 0, 2)
    assert _nearest_valid(noisy, 2).tolist() == [[2, 0, 0]]
    assert _nearest_valid(clamped, 2).tolist() == [[1, 0, 1]]
    shares = nearest_matrix(2, 3).toarray()[np.ravel_multi_index(tuple(clamped), (3, 3, 3))]
    assert shares[channel.vectors.index([1, 0, 1])] == 1.0


def _nearest_valid(noisy: np.ndarray, people: int) -> np.ndarray:
    valid = CountVectors(people, noisy.size).vectors
    squares = np.square(valid - noisy).sum(axis=1)
    return valid[squares == squares.min()]


def test_a_picture_marks_a_point_of_its_curve_and_no_other(tmp_path: Path) -> None:
    points = [CurvePoint(multiplier, 1.0, 0.5, 0.0, 0.1, {}) for multiplier in (1.0, 2.5)]
    with pytest.raises(InvalidInput, match=r"multiplier \(2\) must be one of .*: 1, 2\.5$"):
        save_leakage_curve(str(tmp_path / "curve.svg"), points, 2.0)
