"""Channels made of others: dense, remapped, stacked, averaged, exact tables."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from geoveil.channel.channel import inverse_distribution
from geoveil.channel.composed import AverageChannel
from geoveil.channel.joint import JointChannel
from geoveil.errors import InvalidInput

LINE = gv.Line(6)
GRID = gv.Grid(rows=3, columns=4, cell_km=0.5)
MAP = [0, 0, 1, 4, 4, 5]


def some_matrix() -> np.ndarray:
    matrix = np.random.default_rng(0).dirichlet(np.ones(9), size=6) + 0.05
    return matrix / matrix.sum(axis=1, keepdims=True)


class TestDense(ChannelContract):
    @staticmethod
    def cases() -> dict[str, Case]:
        def make() -> gv.Channel:
            claim = gv.LocalDifferentialPrivacy(formulas.losses(some_matrix()).max() + 1e-9)
            return gv.DenseChannel(LINE, some_matrix(), guarantee=claim)

        return {"6x9": Case(make, some_matrix, lambda: formulas.line(6))}


class TestRemapped(ChannelContract):
    @staticmethod
    def cases() -> dict[str, Case]:
        def gathered(matrix: np.ndarray, to: list[int], size: int) -> np.ndarray:
            out = np.zeros((len(matrix), size))
            for report, target in enumerate(to):
                out[:, target] += matrix[:, report]
            return out

        sevenths = [7 * cell % 12 for cell in range(12)]
        return {
            "line": Case(
                lambda: gv.Remapped(gv.LinearGeometric(LINE, epsilon_per_unit=0.7), MAP),
                lambda: gathered(formulas.linear_geometric(6, 0.7), MAP, 6),
                lambda: formulas.line(6),
            ),
            "grid": Case(
                lambda: gv.Remapped(gv.PlanarGeometric(GRID, epsilon_per_km=2.0), sevenths),
                lambda: gathered(formulas.planar_geometric(3, 4, 1.0), sevenths, 12),
                lambda: formulas.lattice(3, 4, 0.5),
            ),
            "bits": Case(
                lambda: gv.Remapped(gv.Rappor(gv.Line(3), epsilon=2.0), [0, 0, 1, 1, 2, 0, 1, 2]),
                lambda: gathered(formulas.rappor(3, 2.0), [0, 0, 1, 1, 2, 0, 1, 2], 3),
                lambda: formulas.line(3),
            ),
        }


class TestStacked(ChannelContract):
    documented = False

    @staticmethod
    def cases() -> dict[str, Case]:
        def make() -> gv.Channel:
            parts = [
                gv.Exponential(GRID, epsilon_per_km=1.0),
                gv.PlanarGeometric(GRID, epsilon_per_km=2.0),
            ]
            return gv.StackedChannel(parts, [0.3, 0.7])

        def formula() -> np.ndarray:
            near = formulas.exponential(formulas.lattice(3, 4, 0.5), 1.0)
            return np.hstack([0.3 * near, 0.7 * formulas.planar_geometric(3, 4, 1.0)])

        return {"two": Case(make, formula, lambda: formulas.lattice(3, 4, 0.5))}


class TestAverage(ChannelContract):
    documented = False

    @staticmethod
    def cases() -> dict[str, Case]:
        def make() -> gv.Channel:
            parts = [gv.RandomizedResponse(LINE, epsilon=e) for e in (0.5, 2.0)]
            return AverageChannel(parts, [0.25, 0.75])

        def formula() -> np.ndarray:
            return 0.25 * formulas.randomized_response(
                6, 0.5
            ) + 0.75 * formulas.randomized_response(6, 2.0)

        return {"two": Case(make, formula, lambda: formulas.line(6))}


class TestJoint(ChannelContract):
    """One report through each of two channels, the combination as one report."""

    documented = False

    @staticmethod
    def cases() -> dict[str, Case]:
        def make() -> gv.Channel:
            return JointChannel(
                [gv.RandomizedResponse(LINE, epsilon=1.0), gv.DenseChannel(LINE, some_matrix())]
            )

        def law() -> np.ndarray:
            response = gv.RandomizedResponse(LINE, epsilon=1.0).matrix()
            return np.stack([np.kron(*rows) for rows in zip(response, some_matrix(), strict=True)])

        return {"6x54": Case(make, law, lambda: formulas.line(6))}


class TestExactTable(ChannelContract):
    documented = False

    @staticmethod
    def cases() -> dict[str, Case]:
        def blended(matrix: np.ndarray) -> np.ndarray:
            return (1 - 2.0**-20) * matrix + 2.0**-20 / matrix.shape[1]

        return {
            "grid": Case(
                lambda: gv.ExactTable(gv.PlanarGeometric(GRID, epsilon_per_km=2.0)),
                lambda: blended(formulas.planar_geometric(3, 4, 1.0)),
                lambda: formulas.lattice(3, 4, 0.5),
            ),
            "bits": Case(
                lambda: gv.ExactTable(gv.Rappor(gv.Line(4), epsilon=1.0)),
                lambda: blended(formulas.rappor(4, 1.0)),
                lambda: formulas.line(4),
            ),
        }


@pytest.mark.parametrize(
    "matrix",
    [
        [[1.0, 0.0]],
        [[0.5, 0.6], [0.5, 0.5]],
        [[-0.1, 1.1], [0.5, 0.5]],
        [[np.nan, 1.0], [0.5, 0.5]],
        [[1.0], [0.5, 0.5]],
        [[], []],
        "ab",
        [1.0, 1.0],
    ],
)
def test_a_matrix_that_is_no_channel_is_refused(matrix: object) -> None:
    with pytest.raises(InvalidInput, match="matrix"):
        gv.DenseChannel(gv.Line(2), matrix)


def test_a_matrix_cannot_be_changed_after_it_was_certified() -> None:
    given = np.array([[0.75, 0.25], [0.25, 0.75]])
    channel = gv.DenseChannel(gv.Line(2), given)
    given[0] = 0.5
    assert channel.row(0).tolist() == [0.75, 0.25]
    with pytest.raises(ValueError, match="read-only"):
        channel.matrix()[0, 0] = 1.0


def test_stacked_channels_cut_values_by_part_and_keep_the_weakest_claim() -> None:
    weak, strong = (gv.Exponential(GRID, epsilon_per_km=e) for e in (3.0, 1.0))
    stacked = gv.StackedChannel([strong, weak])
    assert stacked.guarantee == weak.guarantee
    assert [part.tolist() for part in stacked.split(np.arange(24.0))] == [
        list(range(12)),
        list(range(12, 24)),
    ]
    mixed = gv.StackedChannel([strong, gv.RandomizedResponse(GRID, epsilon=1.0)])
    assert mixed.guarantee is None
    for wrong in ([], [strong, gv.RandomizedResponse(LINE, epsilon=1.0)]):
        with pytest.raises(InvalidInput):
            gv.StackedChannel(wrong)
    with pytest.raises(InvalidInput):
        gv.StackedChannel([strong, weak], [0.5, 0.6])


def test_an_impossible_report_is_never_drawn_at_the_edge_of_an_interval() -> None:
    law = np.array([0.0, 0.25, 0.0, 0.75, 0.0])
    uniform = np.array([1e-300, 0.25, np.nextafter(0.25, 0), 1 - 2.0**-53])
    assert inverse_distribution(law, uniform).tolist() == [1, 3, 1, 3]
