"""The earth mover's distance against a linear program, closed forms and the published figures."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from geoveil import measure as transport
from geoveil.errors import InvalidInput, MissingExtra, TooLarge
from geoveil.measure import earth_movers_distance_km, total_variation
from geoveil.space.grid import Grid, Line
from geoveil.space.space import Space

seeds = st.integers(0, 2**32 - 1)


def random_pair(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    p, q = np.random.default_rng(seed).dirichlet(np.full(size, 0.4), size=2)
    return p, q


def by_linear_program(p: np.ndarray, q: np.ndarray, distances: np.ndarray) -> float:
    """min Σ T·d over T ≥ 0 with the given row and column sums; nothing reduced."""
    m = p.size
    rows = np.kron(np.eye(m), np.ones(m))
    columns = np.kron(np.ones(m), np.eye(m))
    solved = linprog(
        distances.ravel(),
        A_eq=np.vstack([rows, columns[:-1]]),
        b_eq=np.concatenate([p, q[:-1]]),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert solved.status == 0
    return float(solved.fun)


@settings(max_examples=40)
@given(seeds, st.integers(2, 4), st.integers(2, 4))
def test_on_a_grid_it_is_the_optimum_of_the_linear_program(
    seed: int, rows: int, columns: int
) -> None:
    space = Grid(rows=rows, columns=columns, cell_km=0.7)
    p, q = random_pair(space.size, seed)
    expected = by_linear_program(p, q, space.distances_km())
    assert earth_movers_distance_km(p, q, space) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=25)
@given(
    seeds,
    st.sampled_from(
        [Line(7), Grid(rows=1, columns=7, cell_km=2.0), Grid(rows=7, columns=1, cell_km=2.0)]
    ),
)
def test_on_a_line_the_closed_form_is_the_optimum_too(seed: int, space: Space) -> None:
    p, q = random_pair(7, seed)
    expected = by_linear_program(p, q, space.distances_km())
    assert earth_movers_distance_km(p, q, space) == pytest.approx(expected, abs=1e-9)


class Stops(Space):
    """Stops along a road, numbered in no order."""

    def __init__(self, kilometres: list[float]) -> None:
        self.size = len(kilometres)
        self.centres = np.array(kilometres)[:, None]

    def to_dict(self) -> dict[str, Any]:
        return {"stops": self.centres.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Stops:
        return cls(values["stops"])


@settings(max_examples=25)
@given(seeds)
def test_cells_on_a_line_need_no_order(seed: int) -> None:
    space = Stops([3.0, 0.5, 7.0, 1.0, 0.0, 2.5])
    p, q = random_pair(6, seed)
    expected = by_linear_program(p, q, space.distances_km())
    assert earth_movers_distance_km(p, q, space) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=25)
@given(seeds)
def test_it_is_a_metric_between_the_bounds_of_total_variation(seed: int) -> None:
    space = Grid(rows=4, columns=5, cell_km=0.5)
    p, q = random_pair(20, seed)
    r, _ = random_pair(20, seed + 1)
    distance = earth_movers_distance_km(p, q, space)
    assert distance == pytest.approx(earth_movers_distance_km(q, p, space), abs=1e-12)
    around = earth_movers_distance_km(p, r, space) + earth_movers_distance_km(r, q, space)
    assert distance <= around + 1e-12
    variation = total_variation(p, q)
    assert 0.5 * variation - 1e-12 <= distance <= 0.5 * np.hypot(3, 4) * variation + 1e-12
    assert earth_movers_distance_km(p, p, space) == 0


def test_moving_everybody_costs_the_length_of_the_move() -> None:
    space = Grid(rows=10, columns=10, cell_km=0.5)
    p = np.zeros((10, 10))
    p[:5, :4] = np.random.default_rng(1).dirichlet(np.ones(20)).reshape(5, 4)
    moved = np.roll(p, (3, 4), axis=(0, 1))
    assert earth_movers_distance_km(p.ravel(), moved.ravel(), space) == pytest.approx(2.5)


def test_tiny_masses_do_not_disturb() -> None:
    space = Grid(rows=6, columns=6, cell_km=1.0)
    p, q = random_pair(36, 3)
    p[p < np.median(p)] = 1e-200
    clean = np.where(p > 1e-100, p, 0)
    found = earth_movers_distance_km(p / p.sum(), q, space)
    assert found == pytest.approx(
        earth_movers_distance_km(clean / clean.sum(), q, space), abs=1e-12
    )


def test_a_problem_beyond_reach_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PAIR_LIMIT", 30)
    p, q = np.eye(36)[0], np.full(36, 1 / 36)
    with pytest.raises(TooLarge, match=r"1 × 35 cells.*coarser"):
        earth_movers_distance_km(p, q, Grid(rows=6, columns=6, cell_km=1.0))


def test_without_the_extra_the_plane_is_refused_and_the_line_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(MissingExtra, match=r"POT.*geoveil\[transport\]"):
        earth_movers_distance_km([1, 0, 0, 0], [0, 0, 0, 1], Grid(rows=2, columns=2, cell_km=1.0))
    assert earth_movers_distance_km([1, 0, 0], [0, 0, 1], Line(3)) == 2


def test_distributions_of_another_space_are_refused() -> None:
    with pytest.raises(InvalidInput, match="q"):
        earth_movers_distance_km([0.5, 0.5], [1.0], Line(2))


def published_truth(
    path: Path, corner: tuple[float, float], step: tuple[float, float], grid: Grid
) -> np.ndarray:
    """The share of each cell in the authors' grid: upper edges closed, first point lost."""
    with gzip.open(path, "rt") as lines:
        points = np.loadtxt(lines, delimiter=",", skiprows=1)
    row, column = (np.ceil((points - corner) / step) - 1).astype(int).T
    inside = (row >= 0) & (row < grid.rows) & (column >= 0) & (column < grid.columns)
    cells = (row * grid.columns + column)[inside][1:]
    return np.bincount(cells, minlength=grid.size) / cells.size


@pytest.mark.parametrize(
    ("name", "corner", "step", "shape", "expected"),
    [
        ("paris", (48.8286, 2.2855), (0.00427, 0.0066), (11, 15), 2.0226),
        ("san-francisco", (37.7228, -122.5153), (0.0044875, 0.005683), (16, 24), 7.376),
    ],
)
def test_the_uniform_start_is_as_far_from_the_truth_as_published(
    name: str,
    corner: tuple[float, float],
    step: tuple[float, float],
    shape: tuple[int, int],
    expected: float,
    shared_data: Callable[[str], Path],
) -> None:
    cells = Grid(rows=shape[0], columns=shape[1], cell_km=1.0)
    truth = published_truth(shared_data(f"gowalla-{name}.csv.gz"), corner, step, cells)
    uniform = np.full(cells.size, 1 / cells.size)
    found = earth_movers_distance_km(uniform, truth, cells)
    assert found == pytest.approx(expected, abs=0.6 * 10.0 ** -len(str(expected).split(".")[1]))
