"""Which cells the reports can tell apart (IBU Thm 7 and its corollaries)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import geoveil as gv
from contract.estimators import matrices
from geoveil.estimate import (
    ActiveSetNewton,
    CertifiedWithin,
    DenseOperator,
    IterativeBayesianUpdate,
    Steps,
)
from geoveil.estimate.em import maximise
from geoveil.estimate.identifiability import lost_directions, tell_apart, tell_apart_by

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
    assert str(estimate.identifiable) == "identifiable: the reports tell all 6 cells apart"


def test_one_best_map_is_enough() -> None:
    """Reports never seen look alike, but who was never reported is best left out: the maximum is one.

    By hand: k-RR, the three cells seen carry (share·(k − 1 + e^ε) − 1)/(e^ε − 1), renormalised.
    """
    channel = gv.RandomizedResponse(gv.Line(10), epsilon=6.0)
    tally = gv.Tally(channel, [500, 300, 200, *[0] * 7])
    estimate = IterativeBayesianUpdate(stop=CertifiedWithin(1e-12), accelerate=ActiveSetNewton())
    found = estimate.fit(tally).identifiable
    assert found
    assert not found.undetermined.any()
    assert str(found) == "identifiable: one map fits the reports best, with 7 of 10 cells empty"
    keep, other = channel.row(0)[0], channel.row(0)[1]
    shares = (np.array([0.5, 0.3, 0.2]) * (keep + 2 * other) - other) / (keep - other)
    theta = np.append(shares, np.zeros(7))
    gradient = channel.matrix() @ (tally.counts / 1000 / (theta @ channel.matrix()))
    np.testing.assert_allclose(gradient[:3], 1.0, atol=1e-12)
    assert gradient[3:].max() < 0.999  # nobody else can have a share


def test_cells_that_only_look_alike_are_named() -> None:
    channel = gv.RandomizedResponse(LINE, epsilon=1.0)
    twins = channel.matrix()
    twins[5] = twins[4]
    found = tell_apart(DenseOperator(twins), [1, 1, 1, 1, 5, 0])
    assert not found
    assert (found.rank, found.alike) == (5, ((4, 5),))
    np.testing.assert_array_equal(np.flatnonzero(found.undetermined), [4, 5])
    assert str(found).startswith("not identifiable: the reports cannot tell cells 4 and 5 apart;")
    assert tell_apart(DenseOperator(twins), [50, 1, 1, 1, 0, 0])  # twins with nobody in them


def test_an_empty_cell_on_the_face_does_not_open_it() -> None:
    """The reports follow the row of a corner exactly: a change is unseen, but would go below zero."""
    rows = DenseOperator(np.array([[6, 2, 2], [2, 6, 2], [2, 2, 6], [3, 3, 4]]) / 10)
    assert tell_apart(rows, [6, 2, 2])
    inside = tell_apart(rows, [3, 3, 4])
    assert not inside
    assert inside.undetermined.all()


@pytest.mark.parametrize("seed", range(12))
def test_the_verdict_is_that_of_a_linear_program(seed: int) -> None:
    """All best maps: θ ≥ 0 with the probabilities of the best one; two ends of them, or one point."""
    generator = np.random.default_rng(seed)
    cells, reports = int(generator.integers(3, 8)), int(generator.integers(2, 6))
    matrix = generator.dirichlet(np.full(reports, 0.5), size=cells)
    counts = generator.integers(0, 30, reports) + np.eye(reports, dtype=int)[0]
    best = maximise(
        DenseOperator(matrix), counts, stop=CertifiedWithin(1e-13), accelerate=ActiveSetNewton()
    ).distribution
    seen = matrix[:, counts > 0].T
    direction = generator.normal(size=cells)
    ends = [
        linprog(sign * direction, A_eq=seen, b_eq=seen @ best, bounds=(0, 1)).x for sign in (1, -1)
    ]
    assert bool(tell_apart(DenseOperator(matrix), counts)) == (np.ptp(ends, axis=0).max() < 1e-4)


def test_reports_that_no_cell_makes_do_not_count() -> None:
    found = tell_apart(DenseOperator(np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])), [1, 1, 1])
    assert found
    assert found.reason == "identifiable: the reports tell all 2 cells apart"


def test_lost_directions_are_invisible_changes() -> None:
    matrix = np.random.default_rng(3).dirichlet(np.ones(3), size=5)
    lost = lost_directions(matrix)
    assert lost.shape == (5, 2)
    np.testing.assert_allclose(lost.T @ matrix, 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(lost, axis=0), 1)
    assert lost_directions(np.eye(5)).shape == (5, 0)


def test_a_channel_without_information_tells_nothing_apart() -> None:
    found = tell_apart(DenseOperator(np.full((9, 3), 1 / 3)), [1, 1, 1])
    assert not found
    assert (found.rank, found.cells) == (1, 9)
    assert found.alike == (tuple(range(9)),)
    assert "cannot tell cells 0, 1, 2, 3, 4, 5 … (9 cells) apart" in found.reason


def test_combinations_of_unlike_cells_are_found() -> None:
    """The middle row is the mean of the outer ones: no two cells alike, one combination lost."""
    matrix = np.array([[0.5, 0.5, 0, 0], [0.3, 0.4, 0.2, 0.1], [0.1, 0.3, 0.4, 0.2], [0, 0, 0, 1]])
    matrix[1] = (matrix[0] + matrix[2]) / 2
    found = tell_apart(DenseOperator(matrix), [1, 1, 1, 1])
    assert (found.rank, found.alike) == (3, ())
    np.testing.assert_array_equal(found.undetermined, [True, True, True, False])
    assert "shares can move among cells 0, 1 and 2 without any change" in found.reason


@settings(max_examples=40)
@given(st.data())
def test_the_rank_is_that_of_singular_values(data: st.DataObject) -> None:
    """Where every report counts and shares may be negative."""
    matrix = data.draw(matrices())
    copies = data.draw(st.integers(0, 2))
    matrix = np.concatenate([matrix, matrix[:copies]])
    found = tell_apart_by(DenseOperator(matrix))
    system = np.concatenate([matrix, np.ones((len(matrix), 1))], axis=1)
    assert found.rank == np.linalg.matrix_rank(system, tol=1e-11)
    assert bool(found) == (found.rank == len(matrix))
    assert len(found.alike) >= (copies > 0)


def test_scale_of_columns_does_not_hide_information() -> None:
    """A report that is hardly ever made still tells cells apart once it was seen."""
    matrix = np.array(
        [[1 - 3e-13, 1e-13, 2e-13], [1 - 5e-13, 4e-13, 1e-13], [1 - 2e-13, 1e-13, 1e-13]]
    )
    assert tell_apart(DenseOperator(matrix), [5, 1, 1]).rank == 3


def test_large_spaces_are_not_tested_and_say_so() -> None:
    line = gv.Line(5000)
    tally = gv.LinearGeometric(line, epsilon_per_unit=1.0).tally([1, 2, 3])
    found = IterativeBayesianUpdate(stop=Steps(1)).fit(tally).identifiable
    assert not found
    assert (
        found.reason
        == "not tested whether the reports tell all cells apart: 5,000 are more than 4,096"
    )
    assert found.undetermined.all()
