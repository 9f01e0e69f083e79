"""The adversary's guesses and errors against loops over reports, guesses and cells."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoveil.channel.composed import DenseChannel
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure import (
    adversary_error_km,
    adversary_guesses,
    adversary_loss,
    bayes_error,
    mean_distance_km,
)
from geoveil.space.grid import Grid, Line
from geoveil.space.space import Space, squared_distance_km2

GRID = Grid(rows=2, columns=3, cell_km=0.5)
seeds = st.integers(0, 2**32 - 1)


def random_case(seed: int, reports: int = 6) -> tuple[DenseChannel, np.ndarray]:
    generator = np.random.default_rng(seed)
    matrix = generator.dirichlet(np.full(reports, 0.5), size=6)
    return DenseChannel(GRID, matrix), generator.dirichlet(np.ones(6))


def losses_by_hand(channel: DenseChannel, prior: np.ndarray, power: int = 1) -> np.ndarray:
    """losses[y, z] = Σ_x π(x) C[x, y] d(x, z)^power, one number at a time."""
    matrix, cells = channel.matrix(), range(6)
    return np.array(
        [
            [
                sum(prior[x] * matrix[x, y] * float(GRID.distance_km(x, z)) ** power for x in cells)
                for z in cells
            ]
            for y in range(channel.report_count)
        ]
    )


def wrong_cell(space: Space, a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return np.asarray(np.not_equal(a, b), dtype=np.float64)


@given(seeds, st.integers(1, 8))
def test_error_and_guesses_are_the_best_that_can_be_done(seed: int, reports: int) -> None:
    channel, prior = random_case(seed, reports)
    losses = losses_by_hand(channel, prior)
    assert adversary_error_km(channel, prior) == pytest.approx(losses.min(axis=1).sum())
    guesses = adversary_guesses(channel, prior)
    assert losses[np.arange(reports), guesses] == pytest.approx(losses.min(axis=1), abs=1e-15)


@given(seeds)
def test_another_loss_asks_for_another_guess(seed: int) -> None:
    channel, prior = random_case(seed)
    losses = losses_by_hand(channel, prior, power=2)
    assert adversary_loss(channel, prior, squared_distance_km2) == pytest.approx(
        losses.min(axis=1).sum()
    )
    guesses = adversary_guesses(channel, prior, squared_distance_km2)
    assert losses[np.arange(6), guesses] == pytest.approx(losses.min(axis=1), abs=1e-15)


@given(seeds)
def test_bayes_error_is_the_loss_of_naming_the_wrong_cell(seed: int) -> None:
    channel, prior = random_case(seed)
    best = sum(max(prior[x] * channel.matrix()[x, y] for x in range(6)) for y in range(6))
    assert bayes_error(channel, prior) == pytest.approx(1 - best)
    assert adversary_loss(channel, prior, wrong_cell) == pytest.approx(1 - best)


@given(seeds)
def test_the_adversary_does_no_worse_than_believing_the_report_or_ignoring_it(seed: int) -> None:
    channel, prior = random_case(seed)
    error = adversary_error_km(channel, prior)
    assert error <= mean_distance_km(channel, prior) + 1e-12
    assert error <= (GRID.distances_km() @ prior).min() + 1e-12


def test_a_faithful_channel_leaves_no_error() -> None:
    faithful = DenseChannel(GRID, np.eye(6))
    assert adversary_error_km(faithful) == 0
    assert bayes_error(faithful) == pytest.approx(0, abs=1e-15)
    assert adversary_guesses(faithful).tolist() == list(range(6))


def test_the_prior_is_uniform_unless_given() -> None:
    channel, _ = random_case(11)
    uniform = np.full(6, 1 / 6)
    assert adversary_error_km(channel) == pytest.approx(adversary_error_km(channel, uniform))
    assert bayes_error(channel) == pytest.approx(bayes_error(channel, uniform))


def test_a_report_the_prior_excludes_is_answered_as_if_unseen() -> None:
    line = Line(5)
    matrix = np.eye(5)
    prior = [0.0, 0.1, 0.1, 0.8, 0.0]
    assert adversary_guesses(DenseChannel(line, matrix), prior).tolist() == [3, 1, 2, 3, 3]


def test_many_reports_are_answered_in_blocks() -> None:
    generator = np.random.default_rng(4)
    matrix = generator.dirichlet(np.ones(1300), size=6)
    channel = DenseChannel(GRID, matrix)
    losses = GRID.distances_km() @ (matrix / 6)
    assert adversary_guesses(channel).tolist() == losses.argmin(axis=0).tolist()
    assert adversary_error_km(channel) == pytest.approx(losses.min(axis=0).sum())


def test_a_table_beyond_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geoveil.measure.MATRIX_LIMIT", 5)
    channel, prior = random_case(1)
    with pytest.raises(TooLarge, match=r"6 cells with positive prior × 6"):
        adversary_error_km(channel, prior)
    prior[2:] = 0
    assert adversary_error_km(channel, prior / prior.sum()) >= 0


def test_a_prior_for_another_space_is_refused() -> None:
    with pytest.raises(InvalidInput, match="prior"):
        adversary_guesses(random_case(1)[0], [1.0])
