"""Estimation: the exact maximum, a million cells, any number of people, RAPPOR, the stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from scipy import fft

from benchmarks.core import kernel_transforms
from benchmarks.timing import Figure, Inside, city_prior, duration, faster, ratio, share
from geoveil.arrays import FloatArray, IntArray, uniform
from geoveil.campaign.elastic_design import blahut_arimoto
from geoveil.channel.channel import Channel, Tally
from geoveil.estimate import (
    ActiveSetNewton,
    CertifiedWithin,
    IterativeBayesianUpdate,
    RapporEstimator,
    Steps,
    maximise,
)
from geoveil.estimate.fitted import Observations
from geoveil.estimate.objective import Objective, em_path
from geoveil.measure import earth_movers_distance_km
from geoveil.mechanism import PlanarGeometric, Rappor
from geoveil.randomness import SYSTEM, seeded
from geoveil.space.grid import Grid, Line

_SIDE = 1000
_STEPS = 10
_HINDSIGHT_STEPS = 400


def estimation() -> Iterator[Figure]:
    """Each figure of estimation beside its yardstick."""
    yield exact_maximum()
    yield million_cells()
    yield people_do_not_matter()
    yield from rappor()
    yield stop_in_hindsight()


def exact_maximum() -> Figure:
    """408 cells, 123,000 reports: certified to 1e-9 by Newton, beside plain EM to 1e-5 only."""
    grid = Grid(rows=17, columns=24, cell_km=0.5)
    prior = city_prior(grid)
    observed = Observations(_tally(blahut_arimoto(grid, prior, beta_per_km=1.0), prior, 123_000))

    def climb(tolerance: float, accelerate: ActiveSetNewton | None) -> Callable[[], Any]:
        stop = CertifiedWithin(tolerance)
        return lambda: maximise(
            observed.operator, observed.counts, stop=stop, accelerate=accelerate
        )

    return faster(
        "active-set Newton to 1e-9, 408 cells, 123,000 reports",
        climb(1e-9, ActiveSetNewton()),
        "plain EM to 1e-5",
        climb(1e-5, None),
        limit=5.0,
    )


def million_cells() -> Figure:
    """EM on 10⁶ cells without a matrix, beside nothing but the transforms of its products."""
    grid = Grid(rows=_SIDE, columns=_SIDE, cell_km=0.5)
    prior = city_prior(grid)
    observed = Observations(_tally(PlanarGeometric(grid, epsilon_per_km=2.0), prior, 10**7))
    steps = Steps(_STEPS)
    transforms = kernel_transforms(_SIDE, 2 * (_STEPS + 1))
    return share(
        f"EM, planar geometric, 10⁶ cells ({_STEPS} of 100 steps)",
        lambda: maximise(observed.operator, observed.counts, stop=steps),
        Inside(fft, ("fft", "ifft", "rfft", "irfft")),
        "share inside the FFTs; bare FFTs of the same sizes",
        transforms,
        limit=80.0,
    )


def people_do_not_matter() -> Figure:
    """100 EM steps for 10 mechanisms on 384 cells: 10⁸ reports beside 10⁴."""
    grid = Grid(rows=16, columns=24, cell_km=0.5)
    prior = city_prior(grid)
    levels = np.linspace(0.5, 3.0, 10)
    mechanisms = [PlanarGeometric(grid, epsilon_per_km=float(level)) for level in levels]
    update = IterativeBayesianUpdate(stop=Steps(100))

    def fit(people: int) -> Callable[[], Any]:
        tallies = [_tally(mechanism, prior, people // 10) for mechanism in mechanisms]
        return lambda: update.fit(tallies)

    return ratio(
        "GIBU, 10 mechanisms × 384 cells, 10⁸ reports",
        fit(10**8),
        "10⁴ reports",
        fit(10**4),
        limit=1.2,
    )


def rappor() -> Iterator[Figure]:
    """Perturb and estimate beside bare NumPy, and EM over the distinct vectors."""
    generator = np.random.default_rng(1)
    cells = generator.integers(0, 100, 10**5)
    mechanism, estimator = Rappor(Line(100), epsilon=2.0), RapporEstimator()
    for source, named in ((SYSTEM, "the system's randomness"), (seeded(1), "seeded")):
        yield ratio(
            f"RAPPOR, k = 100, n = 10⁵, {named}",
            lambda source=source: estimator.fit(  # type: ignore[misc]
                mechanism.tally(mechanism.sample(cells, randomness=source))
            ),
            "bare NumPy, seeded",
            lambda: bare_rappor(cells, 100, 2.0, generator),
            limit=1.2,
        )
    few, small = generator.integers(0, 20, 10**5), Rappor(Line(20), epsilon=2.0)
    reports = small.sample(few, randomness=seeded(2))
    update = IterativeBayesianUpdate(stop=CertifiedWithin(1e-6))
    yield duration(
        "RAPPOR by EM to 1e-6, k = 20, n = 10⁵",
        lambda: update.fit(small.tally(reports)),
        limit=5.0,
    )


def bare_rappor(
    cells: IntArray, size: int, epsilon: float, generator: np.random.Generator
) -> FloatArray:
    """RAPPOR as one would write it: flip bits, average, invert, project onto the simplex."""
    flip = 1 / (1 + np.exp(epsilon / 2))
    bits = generator.random((cells.size, size)) < flip
    bits[np.arange(cells.size), cells] ^= True
    inverted = (bits.mean(axis=0) - flip) / (1 - 2 * flip)
    falling = np.sort(inverted)[::-1]
    excess = (np.cumsum(falling) - 1) / np.arange(1, size + 1)
    kept: FloatArray = np.maximum(inverted - excess[falling > excess][-1], 0)
    return kept


def stop_in_hindsight() -> Figure:
    """Earth mover's distance at the cross-validated stop beside the best stop, had the truth been known."""
    grid = Grid(rows=17, columns=24, cell_km=0.5)
    chosen, best, seconds = [], [], []
    for seed in range(1, 6):
        truth = city_prior(grid, seed=seed)
        tally = _tally(blahut_arimoto(grid, truth, beta_per_km=2.0), truth, 100_000, seed)
        start = perf_counter()
        estimate = IterativeBayesianUpdate().fit(tally).distribution
        seconds.append(perf_counter() - start)
        chosen.append(earth_movers_distance_km(estimate, truth, grid))
        best.append(best_stop_km(tally, truth))
    return Figure(
        "cross-validated stop, EMD, 408 cells, 10⁵ reports, 5 seeds",
        float(np.mean(seconds)),
        float(np.mean(chosen) / np.mean(best)),
        "×",
        1.1,
        f"best stop in hindsight ({np.mean(best) * 1000:.0f} m)",
    )


def best_stop_km(tally: Tally, truth: FloatArray) -> float:
    """The smallest distance from the truth along the path of EM, at some 40 stops up to 400 steps."""
    observed = Observations(tally)
    path = em_path(Objective(observed.operator, observed.counts), uniform(truth.size))
    wanted = set(np.unique(np.geomspace(1, _HINDSIGHT_STEPS, 40).astype(int)).tolist())
    return min(
        earth_movers_distance_km(point.theta, truth, tally.space)
        for step, point in enumerate(islice(path, _HINDSIGHT_STEPS + 1))
        if step in wanted
    )


def _tally(channel: Channel, prior: FloatArray, people: int, seed: int = 1) -> Tally:
    """What so many people would report: one multinomial draw, whatever their number."""
    law = channel.push(prior)
    counts = np.random.default_rng(seed).multinomial(people, law / law.sum())
    return Tally(channel, counts)
