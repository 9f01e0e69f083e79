"""Optimal mechanisms and noise: against the whole linear program, and how large a grid can be."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from scipy import optimize, sparse

from geoveil.arrays import FloatArray
from geoveil.benchmark.city import city_prior
from geoveil.benchmark.timing import Figure, duration, faster
from geoveil.channel.guarantee import GeoIndistinguishability, WithinRadius
from geoveil.optimal import OptimalMechanism, optimal_mechanism, optimal_noise
from geoveil.space.grid import Grid

_linprog: Any = optimize.linprog
_MINUTE = 60.0
_SIZES = ((10, 12), (11, 12), (12, 12), (12, 13), (12, 16), (14, 17))


def optimal() -> Iterator[Figure]:
    """48 cells beside HiGHS, the largest grid in a minute, and the best noise."""
    grid = Grid(rows=6, columns=8, cell_km=5.0)
    prior = city_prior(grid)
    for epsilon in (1.0, 0.2):
        yield from _beside_highs(grid, prior, epsilon)
    yield _largest()
    yield from _noise()


def whole_program(grid: Grid, prior: FloatArray, epsilon: float) -> float:
    """The least expected distance with every constraint written down: m²(m − 1) rows, by HiGHS.

    Its tolerances are 1e-10: with the usual 1e-7 its own answers differ by 1e-6 of each other.
    """
    size, distances = grid.size, grid.distances_km()
    x, other = np.nonzero(~np.eye(size, dtype=np.bool_))
    rows = (np.arange(x.size)[:, None] * size + np.arange(size)).ravel()
    columns = [(cells[:, None] * size + np.arange(size)).ravel() for cells in (x, other)]
    factors = np.repeat(np.exp(-epsilon * distances[x, other]), size)
    constraints = sparse.csr_array(
        (np.r_[-np.ones(rows.size), factors], (np.r_[rows, rows], np.r_[columns[0], columns[1]])),
        shape=(rows.size, size * size),
    )
    sums = sparse.kron(sparse.eye_array(size), np.ones((1, size))).tocsr()
    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = _linprog(
        (prior[:, None] * distances).ravel(), A_ub=constraints, b_ub=np.zeros(rows.size),
        A_eq=sums, b_eq=np.ones(size), method="highs", options=tolerances,
    )  # fmt: skip
    return float(found.fun)


def _beside_highs(grid: Grid, prior: FloatArray, epsilon: float) -> Iterator[Figure]:
    kept: dict[str, Any] = {}

    def ours() -> None:
        kept["ours"] = optimal_mechanism(grid, prior, epsilon_per_km=epsilon)

    def highs() -> None:
        kept["highs"] = whole_program(grid, prior, epsilon)

    name = f"optimal mechanism, 48 cells, ε = {epsilon:g}"
    rows = f"HiGHS with all {grid.size**2 * (grid.size - 1):,} constraints"
    first = faster(name, ours, rows, highs, limit=3.0, repeats=2)
    yield first
    made: OptimalMechanism = kept["ours"]
    off = abs(made.optimality.expected_loss - kept["highs"])
    yield Figure(f"{name}: difference of the optima", first.seconds, off, "km", 1e-7, rows)
    certified = made.certificate.epsilon_per_km / epsilon
    yield Figure(f"{name}: certified ε", first.seconds, certified, "of ε", 1.0)


def _largest() -> Figure:
    """The largest grid over 40 × 30 km whose mechanism is within 1e-4 of the optimum in a minute."""
    cells, seconds = 0, 0.0
    for rows, columns in _SIZES:
        grid = Grid(rows=rows, columns=columns, cell_km=40.0 / columns)
        began = perf_counter()
        made = optimal_mechanism(grid, city_prior(grid), epsilon_per_km=0.5, gap=1e-4)
        took = perf_counter() - began
        if took > _MINUTE or made.optimality.gap > 1e-4 or not made.certificate.holds:
            break
        cells, seconds = grid.size, took
    name = "largest grid to a gap of 1e-4 in 60 s, ε = 0.5"
    return Figure(name, seconds, float(cells), "cells", 120.0, at_least=True)


def _noise() -> Iterator[Figure]:
    """The best radial for ε per km, whose loss is known, and for a promise within a radius."""
    promise = GeoIndistinguishability(1.0)
    first = duration("optimal noise, ε per km", lambda: optimal_noise(privacy=promise), limit=1.0)
    yield first
    off = 100 * abs(optimal_noise(privacy=promise).loss_reached / 2.0 - 1)
    yield Figure("optimal noise, ε per km: loss off 2/ε by", first.seconds, off, "%", 0.1, "2/ε")
    within = WithinRadius(radius_km=1.0, epsilon=1.0)
    yield duration(
        "optimal noise, within a radius", lambda: optimal_noise(privacy=within), limit=1.0
    )
