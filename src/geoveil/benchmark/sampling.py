"""Sampling with the operating system's randomness, beside bare NumPy with its own fast generator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.benchmark.timing import Figure, ratio
from geoveil.mechanism import ContinuousLaplace, PlanarGeometric, RandomizedResponse
from geoveil.space.grid import Grid
from geoveil.space.line import Line

_EARTH_KM = 6371.0


def sampling() -> Iterator[Figure]:
    """Continuous Laplace on 10⁶ points, randomised response, and planar geometric on cells."""
    generator = np.random.default_rng(1)
    lat, lng = generator.uniform(48, 49, 10**6), generator.uniform(2, 3, 10**6)
    noise = ContinuousLaplace(epsilon_per_km=2.0)
    yield ratio(
        "continuous Laplace, 10⁶ points",
        lambda: noise.sample_latlng(lat=lat, lng=lng),
        "NumPy Gamma + great circle",
        lambda: bare_laplace(lat, lng, 2.0, generator),
        limit=1.5,
    )
    cells = generator.integers(0, 100, 10**5)
    response = RandomizedResponse(Line(100), epsilon=1.0)
    yield ratio(
        "randomised response, k = 100, n = 10⁵",
        lambda: response.sample(cells),
        "NumPy random + integers",
        lambda: bare_response(cells, 100, 1.0, generator),
        limit=2.0,
        repeats=25,
    )
    planar = PlanarGeometric(Grid(rows=100, columns=100, cell_km=0.5), epsilon_per_km=2.0)
    places = generator.integers(0, planar.space.size, 10**6)
    yield ratio(
        "planar geometric, 10⁶ cells drawn",
        lambda: planar.sample(places),
        "NumPy Gamma + rounding",
        lambda: bare_lattice(places, 100, 1.0, generator),
        limit=4.0,
    )


def bare_laplace(
    lat: FloatArray, lng: FloatArray, epsilon_per_km: float, generator: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Planar Laplace noise as one would write it in six lines: Gamma radius, great-circle step."""
    arc = generator.gamma(2.0, 1 / epsilon_per_km, lat.size) / _EARTH_KM
    angle = generator.uniform(0, 2 * np.pi, lat.size)
    north = np.radians(lat)
    sine = np.sin(north) * np.cos(arc) + np.cos(north) * np.sin(arc) * np.cos(angle)
    turn = np.arctan2(
        np.sin(angle) * np.sin(arc) * np.cos(north), np.cos(arc) - np.sin(north) * sine
    )
    return np.degrees(np.arcsin(sine)), (lng + np.degrees(turn) + 180) % 360 - 180


def bare_response(
    cells: IntArray, size: int, epsilon: float, generator: np.random.Generator
) -> IntArray:
    """Randomised response as one would write it: keep, or one of the others."""
    keep = generator.random(cells.size) < np.exp(epsilon) / (size - 1 + np.exp(epsilon))
    other = generator.integers(0, size - 1, cells.size)
    reports: IntArray = np.where(keep, cells, other + (other >= cells))
    return reports


def bare_lattice(
    cells: IntArray, side: int, decay: float, generator: np.random.Generator
) -> IntArray:
    """Rounded Gamma noise, clamped: not the right law, but the least work such a step can be."""
    radius = generator.gamma(2.0, 1 / decay, cells.size)
    angle = generator.uniform(0, 2 * np.pi, cells.size)
    row = np.clip(np.rint(cells // side + radius * np.sin(angle)), 0, side - 1)
    column = np.clip(np.rint(cells % side + radius * np.cos(angle)), 0, side - 1)
    return (row * side + column).astype(np.int64)
