"""Which cells the reports can tell apart (IBU Thm 7 and its corollaries)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import geoveil as gv
from contract.estimators import matrices
from geoveil.estimate import DenseLikelihood, IterativeBayesianUpdate, Steps
from geoveil.estimate.identifiability import lost_directions, tell_apart

LINE = gv.Line(6)


@pytest.mark.parametrize(
    "channel",
    [
        gv.RandomizedResponse(LINE, epsilon=0.5),
        gv.RandomizedResponse(LINE, epsilon=1e-6),
        gv.LinearGeometric(LINE, epsilon_per_unit=0.1),
        gv.PlanarGeometric(gv.Grid(rows=2, columns=3, cell_km=1.0), epsilon_per_km=0.5),
    ],
    ids=repr,
)
def test_every_report_seen_tells_all_cells_apart(channel: gv.Channel) -> None:
    """Corollaries 1 to 3."""
    estimate = IterativeBayesianUpdate(stop=Steps(1)).fit(gv.Tally(channel, np.arange(1, 7)))
    assert estimate.identifiable
    assert estimate.identifiable.rank == 6
    assert not estimate.identifiable.undetermined.any()
    assert str(estimate.identifiable).startswith("identifiable: the 6 kinds of reports")


def test_reports_not_seen_do_not_count() -> None:
    """Randomised response: cells whose report was never seen look alike, except by Σθ = 1."""
    channel = gv.RandomizedResponse(LINE, epsilon=1.0)
    found = IterativeBayesianUpdate(stop=Steps(1)).fit(gv.Tally(channel, [1, 1, 1, 1, 0, 0]))
    assert not found.identifiable
    assert found.identifiable.rank == 5
    assert found.identifiable.alike == ((4, 5),)
    np.testing.assert_array_equal(np.flatnonzero(found.identifiable.undetermined), [4, 5])
    assert "alike in every report: cells 4, 5" in found.identifiable.reason
    one_unseen = IterativeBayesianUpdate(stop=Steps(1)).fit(gv.Tally(channel, [1, 1, 1, 1, 1, 0]))
    assert one_unseen.identifiable


def test_reports_that_no_cell_makes_do_not_count() -> None:
    found = tell_apart(DenseLikelihood(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])), [1, 1, 1])
    assert found
    assert found.reason == "identifiable: the 2 kinds of reports seen tell all 2 cells apart"


def test_lost_directions_are_invisible_changes() -> None:
    matrix = np.random.default_rng(3).dirichlet(np.ones(3), size=5)
    lost = lost_directions(matrix)
    assert lost.shape == (5, 2)
    np.testing.assert_allclose(lost.T @ matrix, 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(lost, axis=0), 1)
    assert lost_directions(np.eye(5)).shape == (5, 0)


def test_a_channel_without_information_tells_nothing_apart() -> None:
    found = tell_apart(DenseLikelihood(np.full((9, 3), 1 / 3)), [1, 1, 1])
    assert not found
    assert (found.rank, found.cells) == (1, 9)
    assert found.alike == (tuple(range(9)),)
    assert "0, 1, 2, 3, 4, 5, … (9 cells)" in found.reason


def test_combinations_of_unlike_cells_are_found() -> None:
    """The middle row is the mean of the outer ones: no two cells alike, one combination lost."""
    matrix = np.array([[0.5, 0.5, 0, 0], [0.3, 0.4, 0.2, 0.1], [0.1, 0.3, 0.4, 0.2], [0, 0, 0, 1]])
    matrix[1] = (matrix[0] + matrix[2]) / 2
    found = tell_apart(DenseLikelihood(matrix), [1, 1, 1, 1])
    assert (found.rank, found.alike) == (3, ())
    np.testing.assert_array_equal(found.undetermined, [True, True, True, False])
    assert "1 combinations of cells cannot be told apart; 3 cells are involved" in found.reason


@settings(max_examples=40)
@given(st.data())
def test_the_rank_is_that_of_singular_values(data: st.DataObject) -> None:
    matrix = data.draw(matrices())
    copies = data.draw(st.integers(0, 2))
    matrix = np.concatenate([matrix, matrix[:copies]])
    seen = np.array(
        data.draw(st.lists(st.booleans(), min_size=matrix.shape[1], max_size=matrix.shape[1]))
    )
    seen[0] = True
    found = tell_apart(DenseLikelihood(matrix), seen.astype(int))
    system = np.concatenate([matrix[:, seen], np.ones((len(matrix), 1))], axis=1)
    assert found.rank == np.linalg.matrix_rank(system, tol=1e-11)
    assert bool(found) == (found.rank == len(matrix))
    assert len(found.alike) >= (copies > 0)


def test_scale_of_columns_does_not_hide_information() -> None:
    """A report that is hardly ever made still tells cells apart once it was seen."""
    matrix = np.array(
        [[1 - 3e-13, 1e-13, 2e-13], [1 - 5e-13, 4e-13, 1e-13], [1 - 2e-13, 1e-13, 1e-13]]
    )
    assert tell_apart(DenseLikelihood(matrix), [5, 1, 1]).rank == 3


def test_large_spaces_are_not_tested_and_say_so() -> None:
    line = gv.Line(5000)
    tally = gv.LinearGeometric(line, epsilon_per_unit=1.0).tally([1, 2, 3])
    found = IterativeBayesianUpdate(stop=Steps(1)).fit(tally).identifiable
    assert not found
    assert found.reason == "not tested: 5000 cells, and the rank is computed up to 4096"
    assert found.undetermined.all()
