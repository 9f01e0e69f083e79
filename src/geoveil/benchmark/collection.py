"""PRIVIC: designing mechanisms, one cycle, Blahut–Arimoto with and without a certificate."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import numpy as np

from geoveil.benchmark.city import city_prior
from geoveil.benchmark.products import kernel_transforms
from geoveil.benchmark.timing import Figure, best_of, duration, faster, ratio
from geoveil.channel.tally import Tally
from geoveil.collect.design import blahut_arimoto, elastic
from geoveil.collect.weights import exponential_kernel, rate_distortion_weights
from geoveil.estimate import ActiveSetNewton, CertifiedWithin, IterativeBayesianUpdate, Steps
from geoveil.space.grid import Grid

_SIDE = 1000
_TINY = 1e-300
"""Processors multiply numbers below this a hundred times slower: the yardstick is spared that."""
_DESIGN_STEPS, _UPDATE_STEPS = 8, 10
Rows = list[list[float]]


def collection() -> Iterator[Figure]:
    """Each figure of the collection beside its yardstick."""
    yield from designs()
    yield paris_cycle()
    yield million_cells()
    yield certified()


def designs() -> Iterator[Figure]:
    """A promise and a dial on 10⁴ and on 10⁶ cells, and the memory the latter takes."""
    yield duration("elastic design at a promise, 10⁴ cells", _design(100), limit=10.0, repeats=3)
    tracemalloc.start()
    made = duration("elastic design at a promise, 10⁶ cells", _design(_SIDE), limit=60.0)
    megabytes = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    yield made
    yield Figure("the same, memory at its peak", made.seconds, megabytes, "MB", 1000.0, "no matrix")


def _design(side: int) -> Callable[[], Any]:
    grid = Grid(rows=side, columns=side, cell_km=0.5)
    prior = city_prior(grid)
    return lambda: elastic(grid, prior, epsilon_per_km=2.0, camouflage=0.5)


def paris_cycle() -> Figure:
    """Design and estimate on 165 cells, beside the formulas as nested loops in Python.

    One step of each kind is timed in Python and multiplied by the number of steps; all by processor
    time, since on a busy machine seconds of Python are interrupted and a millisecond is not.
    """
    grid = Grid(rows=11, columns=15, cell_km=0.5)
    prior, beta = city_prior(grid), 1.0
    design = blahut_arimoto(grid, prior, beta_per_km=beta, stop=Steps(_DESIGN_STEPS))
    counts = np.random.default_rng(1).multinomial(10_000, design.push(prior))
    tally, update = Tally(design, counts), IterativeBayesianUpdate(stop=Steps(_UPDATE_STEPS))
    known, seen = prior.tolist(), (counts / counts.sum()).tolist()
    flat, distances, channel = (
        [1 / grid.size] * grid.size,
        grid.distances_km().tolist(),
        _rows(design),
    )

    def cycle() -> None:
        blahut_arimoto(grid, prior, beta_per_km=beta, stop=Steps(_DESIGN_STEPS))
        update.fit(tally)

    (seconds,) = best_of(cycle, repeats=200, clock=process_time)
    one_design, one_update = best_of(
        lambda: design_step(flat, known, distances, beta),
        lambda: update_step(flat, seen, channel),
        repeats=2,
        warm=False,
        clock=process_time,
    )
    loops = _DESIGN_STEPS * one_design + _UPDATE_STEPS * one_update
    return Figure(
        "one cycle, 165 cells, 8 BA + 10 EM steps",
        seconds,
        loops / seconds,
        "× faster",
        5000.0,
        "triple loops in Python (one step of each timed, scaled)",
        loops,
        at_least=True,
    )


def _rows(design: Any) -> Rows:
    rows: Rows = design.matrix().tolist()
    return rows


def design_step(
    weights: list[float], prior: list[float], distances: Rows, beta: float
) -> list[float]:
    """One step of PRIVIC Alg. 2 as its formulas read, rows normalised: three nested loops."""
    cells = range(len(weights))
    updated = [0.0] * len(weights)
    for x in cells:
        for y in cells:
            normaliser = 0.0
            for z in cells:
                normaliser += weights[z] * math.exp(-beta * distances[x][z])
            updated[y] += prior[x] * weights[y] * math.exp(-beta * distances[x][y]) / normaliser
    return updated


def update_step(theta: list[float], seen: list[float], channel: Rows) -> list[float]:
    """One step of the iterative Bayesian update as its formula reads: three nested loops."""
    cells = range(len(theta))
    updated = [0.0] * len(theta)
    for x in cells:
        for z in cells:
            law = 0.0
            for u in cells:
                law += theta[u] * channel[u][z]
            updated[x] += seen[z] * theta[x] * channel[x][z] / law
    return updated


def million_cells() -> Figure:
    """8 Blahut–Arimoto steps on 10⁶ cells beside nothing but the transforms of their products."""
    grid = Grid(rows=_SIDE, columns=_SIDE, cell_km=0.5)
    prior, kernel = city_prior(grid), exponential_kernel(grid, 1.0)
    kernel.apply(prior)
    return ratio(
        "Blahut–Arimoto, 8 steps, 10⁶ cells",
        lambda: rate_distortion_weights(kernel, prior, Steps(_DESIGN_STEPS)),
        "its FFTs alone",
        kernel_transforms(_SIDE, 2 * (_DESIGN_STEPS + 1)),
        limit=2.5,
        repeats=2,
    )


def certified() -> Figure:
    """The rate–distortion optimum on 400 cells to 1e-6 nats, beside plain iteration on matrices."""
    grid = Grid(rows=20, columns=20, cell_km=0.5)
    prior, stop = city_prior(grid), CertifiedWithin(1e-6)
    dense = np.exp(-grid.distances_km())

    def ours() -> None:
        blahut_arimoto(grid, prior, beta_per_km=1.0, stop=stop, accelerate=ActiveSetNewton())

    return faster(
        "certified Blahut–Arimoto to 1e-6 nats, 400 cells",
        ours,
        "plain dense iteration to the same certificate",
        lambda: plain_iteration(dense, prior, stop.tolerance),
        limit=10.0,
        repeats=2,
    )


def plain_iteration(kernel: Any, prior: Any, tolerance: float) -> tuple[Any, float]:
    """Blahut–Arimoto in NumPy until log max g ≤ tolerance, nothing else: its weights, its certificate."""
    weights = np.full(prior.size, 1 / prior.size)
    while True:
        gain = kernel @ (prior / (kernel @ weights))
        certificate = float(np.log(gain.max()))
        if certificate <= tolerance:
            return weights, certificate
        weights = weights * gain
        weights[weights < _TINY] = 0.0
