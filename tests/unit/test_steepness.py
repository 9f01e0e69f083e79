"""The steepest slope against all pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import geoveil as gv
from geoveil.channel import kernel as module
from geoveil.channel.kernel import steepness

SPACES = [
    gv.Grid(rows=5, columns=8, cell_km=0.3),
    gv.Grid(rows=1, columns=7, cell_km=2.0),
    gv.Grid(rows=7, columns=1, cell_km=2.0),
    gv.Grid(rows=2, columns=2, cell_km=1.0),
    gv.Line(30),
    gv.Points(xy_km=np.random.default_rng(0).normal(size=(25, 2))),
]


def all_pairs(values: np.ndarray, space: gv.Space) -> float:
    pairs = itertools.combinations(range(space.size), 2)
    return max(abs(values[x] - values[y]) / float(space.distance_km(x, y)) for x, y in pairs)


@pytest.mark.parametrize("space", SPACES, ids=repr)
@pytest.mark.parametrize("power", [1, 9])
def test_the_steepest_of_all_pairs_is_found(space: gv.Space, power: int) -> None:
    for seed in range(6):
        values = np.random.default_rng(seed).normal(size=space.size) ** power
        found = steepness(values, space)
        assert found.exact
        assert found.slope_per_km == pytest.approx(all_pairs(values, space), rel=1e-12)
        x, y = found.pair
        slope = abs(values[x] - values[y]) / float(space.distance_km(x, y))
        assert slope == pytest.approx(found.slope_per_km, rel=1e-12)


def test_the_steepest_pair_may_lie_along_either_diagonal() -> None:
    grid = gv.Grid(rows=2, columns=2, cell_km=1.0)
    assert steepness(np.array([9.0, 0.5, 0.5, 0.0]), grid).pair == (0, 1)
    # equal neighbours on the rows and columns: only a diagonal is steep
    for values, pair in (([5.0, 2.4, 2.6, 0.0], {0, 3}), ([2.4, 5.0, 0.0, 2.6], {1, 2})):
        found = steepness(np.array(values), grid)
        assert set(found.pair) == pair
        assert found.slope_per_km == pytest.approx(5 / np.sqrt(2))


def test_smooth_values_need_far_pairs() -> None:
    grid = gv.Grid(rows=6, columns=9, cell_km=1.0)
    wave = np.where(grid.centres[:, 0] > 0, 1.0, 0.0) + 0.01 * np.arange(grid.size)
    assert steepness(wave, grid).slope_per_km == pytest.approx(all_pairs(wave, grid), rel=1e-12)
    assert steepness(np.zeros(54), grid).slope_per_km == 0.0


def test_one_cell_has_no_slope() -> None:
    assert steepness(np.array([3.0]), gv.Line(1)).slope_per_km == 0.0


def test_when_the_work_is_too_much_the_answer_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 100)
    grid = gv.Grid(rows=12, columns=12, cell_km=0.5)
    # a slope that grows with distance: near pairs do not settle it
    values = np.square(grid.centres[:, 0])
    found = steepness(values, grid)
    assert not found.exact
    assert found.slope_per_km >= all_pairs(values, grid)
