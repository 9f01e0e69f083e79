"""Mechanisms whose law depends on the position in the cell, as channels over cells."""

from __future__ import annotations

import numpy as np
import pytest

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from geoveil.space import MaskedGrid

GENERATOR = np.random.default_rng(21)


def cone(distance: np.ndarray, beta: float, radius: float) -> np.ndarray:
    """e^{−ψ} + 2⁻²¹, ψ integrated by hand from ψ′ = β·t(5 − t⁴)/4."""
    t = np.minimum(distance / radius, 1.0)
    psi = beta * radius * (5 * t**2 / 2 - t**6 / 6) / 4
    return np.exp(-psi - beta * np.maximum(distance - radius, 0.0)) + 2.0**-21


def matrix(
    rows: int, columns: int, cell: float, beta: float, weights: np.ndarray, rim: int, across: int,
    absent: tuple[tuple[int, int], ...] = (),
) -> np.ndarray:  # fmt: skip
    """Means of rows over Gauss and Legendre's places in every cell, one place at a time."""
    inner = [(r, c) for r in range(rows) for c in range(columns) if (r, c) not in absent]
    ring = [
        (r, c)
        for r in range(-rim, rows + rim)
        for c in range(-rim, columns + rim)
        if not (0 <= r < rows and 0 <= c < columns)
    ]
    centres = np.array(inner + ring, dtype=float) * cell
    edge = 0.0 if rim else cell / 2
    low, high = (
        end(np.array(inner) * cell, axis=0) + away
        for end, away in ((np.min, -edge), (np.max, edge))
    )
    places, shares = np.polynomial.legendre.leggauss(across)
    result = np.zeros((len(inner), len(centres)))
    for number, place in enumerate(np.array(inner) * cell):
        for up, of_row in zip(places / 2 * cell, shares / 2, strict=True):
            for right, of_column in zip(places / 2 * cell, shares / 2, strict=True):
                at = np.clip(place + np.array([up, right]), low, high)
                law = weights * cone(np.linalg.norm(centres - at, axis=1), beta, 0.87 * cell)
                result[number] += of_row * of_column * law / law.sum()
    return result


def weights_of(size: int) -> np.ndarray:
    return GENERATOR.integers(1 << 20, 1 << 24, size)


class TestPositionalElastic(ChannelContract):
    mechanism = gv.PositionalElastic

    @staticmethod
    def cases() -> dict[str, Case]:
        def case(rows: int, columns: int, cell: float, beta: float, rim: int, across: int) -> Case:
            grid = gv.Grid(rows=rows, columns=columns, cell_km=cell)
            weights = weights_of((rows + 2 * rim) * (columns + 2 * rim))
            return Case(
                lambda: gv.PositionalElastic(
                    grid, beta_per_km=beta, weights=weights, step=200, rim=rim
                ),
                lambda: matrix(rows, columns, cell, beta, weights, rim, across),
                lambda: formulas.lattice(rows, columns, cell),
            )

        def masked(rim: int, absent: tuple[tuple[int, int], ...]) -> Case:
            grid, mask = gv.Grid(rows=4, columns=5, cell_km=0.5), np.ones((4, 5), dtype=bool)
            for hole in absent:
                mask[hole] = False
            weights = weights_of(int(mask.sum()) + rim * 22)
            there = mask.ravel()
            return Case(
                lambda: gv.PositionalElastic(
                    MaskedGrid(grid, mask), beta_per_km=0.8, weights=weights, step=200, rim=rim
                ),
                lambda: matrix(4, 5, 0.5, 0.8, weights, rim, 2, absent),
                lambda: formulas.lattice(4, 5, 0.5)[there][:, there],
            )

        lagoon, edge = ((1, 1), (1, 2), (2, 2)), tuple((row, 0) for row in range(4))
        return {
            "with a lagoon": masked(0, lagoon),
            "with a lagoon and a rim": masked(1, lagoon),
            "without its first column": masked(0, (*edge, (0, 1))),
            "grid": case(3, 4, 0.5, 0.8, 0, 2),
            "steep": case(3, 4, 0.5, 2.5, 0, 3),
            "with a rim": case(3, 4, 0.5, 0.6, 1, 2),
            "one row": case(1, 6, 1.0, 0.4, 0, 2),
        }

    def test_means_and_entropies_of_rows(
        self, channel: gv.Channel, formula: np.ndarray, case: Case
    ) -> None:
        wanted = -(formula * np.log(formula)).sum(axis=1)
        np.testing.assert_allclose(channel.row_entropies_nats(), wanted, atol=1e-8)


def test_the_mean_distance_is_from_positions_and_not_from_centres() -> None:
    grid = gv.Grid(rows=4, columns=4, cell_km=1.0)
    mechanism = gv.elastic(grid, epsilon_per_km=1.0, between="positions")
    generator = gv.seeded(5)
    places = generator.uniform(2 * 40_000).reshape(-1, 2) * 4.0 - 2.0
    reports = mechanism.sample_at_km(places, randomness=generator)
    apart = np.hypot(*(places - grid.centres[reports]).T)
    assert mechanism.mean_distance_km == pytest.approx(apart.mean(), rel=0.02)
