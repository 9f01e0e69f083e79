"""Design: mechanisms at a promise, Blahut–Arimoto, optimal mechanisms and noise, release channels."""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import Any

import numpy as np
from scipy import fft, optimize, sparse

from benchmarks.core import kernel_transforms
from benchmarks.timing import Figure, best_of, city_prior, duration, faster, ratio
from geoveil.arrays import FloatArray
from geoveil.campaign.elastic_design import blahut_arimoto, elastic
from geoveil.channel.channel import Tally
from geoveil.channel.guarantee import GeoIndistinguishability, WithinRadius
from geoveil.channel.kernel import fft_workers
from geoveil.estimate import ActiveSetNewton, CertifiedWithin, IterativeBayesianUpdate, Steps
from geoveil.estimate.em import maximise
from geoveil.mechanism.elastic import exponential_kernel
from geoveil.optimal import OptimalMechanism, optimal_mechanism, optimal_noise
from geoveil.randomness import seeded
from geoveil.release import CountRelease, ReleaseDesign, number_of_vectors
from geoveil.release.counts import box_sides
from geoveil.space.grid import Grid

_SIDE = 1000
_TINY = 1e-300
"""Processors multiply numbers below this a hundred times slower: the yardstick is spared that."""
_DESIGN_STEPS, _UPDATE_STEPS = 8, 10
Rows = list[list[float]]


def campaign() -> Iterator[Figure]:
    """Each figure of a campaign's designs beside its yardstick."""
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
    return lambda: elastic(grid, prior, epsilon_per_km=2.0, camouflage=0.5, between="cells")


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
    kernel._push(prior)
    return ratio(
        "Blahut–Arimoto, 8 steps, 10⁶ cells",
        lambda: maximise(kernel, prior, stop=Steps(_DESIGN_STEPS)),
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


SIZES = ((1000, 3), (60, 4), (20, 5))
_SECONDS, _NATS, _GIBIBYTES = 60.0, 1e-3, 4.0


def release() -> Iterator[Figure]:
    """One release channel for each size, its certificate, the memory of it all, and personal leakages."""
    for people, places in SIZES:
        yield from _release_channel(people, places)
    yield from _equal_places(20, 1000)
    yield from _memory()
    yield _personal()


def _release_channel(people: int, places: int) -> Iterator[Figure]:
    began = perf_counter()
    made = CountRelease(people=people, prior=np.full(places, 1 / places), multiplier=1.0)
    certificate = made.certificate_nats
    seconds = perf_counter() - began
    (design,) = made.designs
    what = f"{people} people × {places} places, {number_of_vectors(people, places):,} vectors"
    assert isinstance(design, ReleaseDesign)
    products = design.ascent.products
    (bare,) = best_of(_bare_box(design), repeats=3)
    yardstick = f"{products} × (rfftn + irfftn)"
    yield Figure(
        f"release channel, {what}", seconds, seconds, "s", _SECONDS, yardstick, products * bare
    )
    yield Figure(f"its certificate, {what}", seconds, certificate, "nats", _NATS)


def _equal_places(people: int, places: int) -> Iterator[Figure]:
    """The same where places are equal and vectors too many: on orbits, what leaks about each included."""
    began = perf_counter()
    made = CountRelease(people=people, prior=np.full(places, 1 / places), multiplier=1.0)
    certificate = made.certificate_nats
    seconds = perf_counter() - began
    what = (
        f"{people} people × {places} equal places, {number_of_vectors(people, places):.2g} vectors"
    )
    yield Figure(f"release channel, {what}", seconds, seconds, "s", 2 * _SECONDS)
    yield Figure(f"its certificate, {what}", seconds, certificate, "nats", _NATS)
    began = perf_counter()
    assert made.chain.holds
    seconds = perf_counter() - began
    yield Figure(f"what leaks about each person, {what}", seconds, seconds, "s", 5 * _SECONDS)


def _bare_box(design: ReleaseDesign) -> Callable[[], None]:
    """What one product on the box of the window cannot do without."""
    sides = box_sides(design.vectors.lower, design.vectors.upper)
    padded = tuple(fft.next_fast_len(2 * side - 1, real=True) for side in sides)
    values = np.ones(sides)
    workers = fft_workers(int(np.prod(padded)))

    def work() -> None:
        fft.irfftn(fft.rfftn(values, padded, workers=workers), padded, workers=workers)

    return work


def _memory() -> Iterator[Figure]:
    """The most memory this process has held, where the operating system says it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kibibytes elsewhere
    yield Figure("memory, peak of the process", 0.0, most * unit / 2**30, "GiB", _GIBIBYTES)


def _personal() -> Figure:
    """Everybody's leakage where everybody has another prior."""
    shares = seeded(1).uniform(60).reshape(20, 3)
    shares /= shares.sum(axis=1, keepdims=True)

    def work() -> None:
        made = CountRelease(people=20, prior=shares, multiplier=1.0)
        made.personal_leakage_bits.max()

    return duration("personal leakage, 20 people × 3 places, design included", work, limit=1.0)
