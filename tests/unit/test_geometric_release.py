"""Counts of many people at many places, with exact noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from contract.statistics import assert_follows
from geoveil.errors import InvalidInput
from geoveil.release.geometric_release import discrete_laplace, exponential_chance

CITY = np.random.default_rng(1).multinomial(
    20_000, np.random.default_rng(2).dirichlet(np.full(300, 0.3)), size=3
)


def law_of_noise(steps: int, of: int, reach: int) -> np.ndarray:
    """P(k) for −reach … reach, all beyond put on the ends."""
    rate = steps / of
    inside = np.exp(-rate * np.abs(np.arange(-reach, reach + 1))) * math.tanh(rate / 2)
    beyond = math.exp(-rate * reach) / (1 + math.exp(-rate))
    inside[[0, -1]] = beyond
    return inside


@pytest.mark.statistical
@pytest.mark.parametrize(("steps", "of"), [(1, 1), (1, 3), (5, 2), (700_001, 1 << 20)])
def test_noise_follows_its_law(steps: int, of: int) -> None:
    drawn = discrete_laplace(steps, of, 40_000, gv.seeded(4))
    law = law_of_noise(steps, of, 4)
    assert law.sum() == pytest.approx(1.0)
    assert_follows(np.clip(drawn, -4, 4) + 4, law)


@pytest.mark.statistical
@pytest.mark.parametrize(("part", "of"), [(0, 3), (1, 3), (2, 3), (3, 3)])
def test_chances_are_exponentials(part: int, of: int) -> None:
    happened = exponential_chance(np.full(40_000, part), of, gv.seeded(5))
    chance = math.exp(-part / of)
    if part == 0:
        assert happened.all()
    else:
        assert_follows(happened.astype(np.int64), np.array([1 - chance, chance]))


@given(st.floats(1e-3, 150), st.integers(1, 30))
@settings(deadline=None)
def test_the_loss_that_is_drawn_never_exceeds_the_promise(epsilon: float, timestamps: int) -> None:
    release = gv.GeometricRelease(epsilon, timestamps=timestamps)
    assert release.exact_epsilon <= Fraction(epsilon)
    assert float(release.exact_epsilon) == pytest.approx(epsilon, abs=timestamps * 2.0**-22)


def test_counts_come_out_valid_and_near() -> None:
    release = gv.GeometricRelease(3.0, timestamps=3)
    published = release.sample(CITY, randomness=gv.seeded(1))
    assert published.shape == CITY.shape
    assert (published >= 0).all()
    np.testing.assert_array_equal(published.sum(axis=1), CITY.sum(axis=1))
    assert np.abs(published - CITY).mean() < release.mean_noise
    again = release.sample(CITY, randomness=gv.seeded(2))
    assert (again != published).any()
    weak = gv.GeometricRelease(300.0, timestamps=3).sample(CITY)
    np.testing.assert_array_equal(weak, CITY)


def test_the_noise_is_as_large_as_is_said() -> None:
    for epsilon in (0.2, 1.0, 4.0):
        release = gv.GeometricRelease(epsilon)
        drawn = discrete_laplace(release.steps, 1 << 24, 20_000, gv.seeded(3))
        assert np.abs(drawn).mean() == pytest.approx(release.mean_noise, rel=0.05)


def test_small_tables_and_empty_ones() -> None:
    release = gv.GeometricRelease(1.0)
    assert release.sample([7]).tolist() == [7]
    assert release.sample([0, 0]).tolist() == [0, 0]
    assert "at most e^1" in release.sentence()
    assert "at all 4 timestamps" in gv.GeometricRelease(1.0, timestamps=4).sentence()


def test_the_law_of_a_whole_release_keeps_the_promise() -> None:
    """Two places and three people: every release from every table, by many draws of the noise's law."""
    release, people = gv.GeometricRelease(1.2), 3
    rate, reach = release.steps / 2**24, 120
    line = np.arange(-reach, reach + 1)
    noise = np.exp(-rate * np.abs(line)) * math.tanh(rate / 2)
    rows = []
    for first in range(people + 1):
        law = np.zeros(people + 1)
        here = np.zeros(people + 1)
        np.add.at(here, np.clip(first + line, 0, people), noise)
        there = np.zeros(people + 1)
        np.add.at(there, np.clip(people - first + line, 0, people), noise)
        for a in range(people + 1):
            for b in range(people + 1):
                middle = (a + people - b) / 2  # nearest first count with the right sum
                for end in {math.floor(middle), math.ceil(middle)}:
                    law[end] += here[a] * there[b] / len({math.floor(middle), math.ceil(middle)})
        rows.append(law)
    table = np.array(rows)
    losses = np.abs(np.log(table[1:] / table[:-1]))
    assert losses.max() <= 1.2 + 1e-9
    assert losses.max() > 0.9  # and nearly uses it
    source, times = gv.seeded(9), 1500
    alone = np.array([release.sample([2, 1], randomness=source) for _ in range(20)])
    # as many timestamps at as much each: the same law, all drawn at once
    many = gv.GeometricRelease(1.2 * times, timestamps=times)
    assert many.steps == release.steps
    drawn = np.concatenate((alone, many.sample([[2, 1]] * times, randomness=source)))
    assert (drawn.sum(axis=1) == people).all()
    assert_follows(drawn[:, 0], table[2])


@pytest.mark.parametrize("wrong", [[1.5, 2], [-1, 2], [[1, 2], [3, 4]], [], 3, "ab", [math.nan, 1]])
def test_what_it_refuses(wrong: object) -> None:
    with pytest.raises(InvalidInput, match="counts"):
        gv.GeometricRelease(1.0).sample(wrong)  # type: ignore[arg-type]


def test_which_promises_it_refuses() -> None:
    for wrong in (0.0, -1.0, math.nan, 1e-9, 1e4):
        with pytest.raises(InvalidInput, match="epsilon"):
            gv.GeometricRelease(wrong)
    with pytest.raises(InvalidInput, match="timestamps"):
        gv.GeometricRelease(1.0, timestamps=0)
