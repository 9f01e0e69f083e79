"""The core: products, sampling, certificates and locating, each beside the bare work it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import fft

from benchmarks.timing import Figure, duration, ratio, slope
from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.certificate import certify
from geoveil.channel.channel import Channel
from geoveil.channel.composed import DenseChannel
from geoveil.channel.kernel import fft_workers
from geoveil.document.exact import ExactTable
from geoveil.mechanism import ContinuousLaplace, Elastic, PlanarGeometric, RandomizedResponse
from geoveil.space.grid import Grid, Line

_SMALL, _LARGE = 100, 1000


def products() -> Iterator[Figure]:
    """push + pull at 10⁶ cells against one forward and one inverse FFT each, and how cost grows."""
    for build in (_planar_geometric, _elastic):
        large = build(_LARGE)
        yield ratio(
            f"push + pull, {large.name}, 10⁶ cells",
            both_products(large),
            "2 × (rfft2 + irfft2)",
            bare_transforms(_LARGE),
            limit=2.5,
        )
        yield slope(
            f"cost from 10⁴ to 10⁶ cells, {large.name}",
            (both_products(build(_SMALL)), both_products(large)),
            "the FFTs",
            (bare_transforms(_SMALL), bare_transforms(_LARGE)),
            growth=(_LARGE / _SMALL) ** 2,
            limit=1.15,
        )


def _planar_geometric(side: int) -> Any:
    return PlanarGeometric(Grid(rows=side, columns=side, cell_km=0.5), epsilon_per_km=2.0)


def _elastic(side: int) -> Any:
    return Elastic(Grid(rows=side, columns=side, cell_km=0.5), beta_per_km=1.0)


def both_products(channel: Channel) -> Callable[[], None]:
    """push of a distribution and pull of values."""
    theta = _uneven(channel.space.size)

    def work() -> None:
        channel.push(theta)
        channel.pull(theta)

    return work


def bare_transforms(side: int) -> Callable[[], None]:
    """What two linear convolutions of a side × side lattice cannot do without."""
    padded = 2 * (fft.next_fast_len(2 * side - 1, real=True),)
    theta = _uneven(side * side).reshape(side, side)
    workers = fft_workers(padded[0] * padded[1])

    def work() -> None:
        for _ in range(2):
            spectrum = fft.rfft2(theta, padded, workers=workers)
            fft.irfft2(spectrum, padded, workers=workers)

    return work


def kernel_transforms(side: int, products: int) -> Callable[[], None]:
    """The transforms of so many kernel products, axis by axis as the products make them."""
    padded = fft.next_fast_len(2 * side - 1, real=True)
    theta = _uneven(side * side).reshape(side, side)
    workers = fft_workers(padded * padded)

    def work() -> None:
        for _ in range(products):
            spectrum = fft.rfft(theta, padded, axis=-1, workers=workers)
            spectrum = fft.fft(spectrum, padded, axis=0, overwrite_x=True, workers=workers)
            spectrum = fft.ifft(spectrum, axis=0, overwrite_x=True, workers=workers)
            fft.irfft(spectrum[:side], padded, axis=-1, workers=workers)

    return work


def _uneven(size: int) -> FloatArray:
    values = 1.0 + np.sin(np.arange(size))
    distribution: FloatArray = values / values.sum()
    return distribution


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


_CERTIFICATE_S = 60.0


def certificates() -> Iterator[Figure]:
    """1,024 cells by enumeration, as floats and as integers; 10⁴ cells of an elastic lattice."""
    grid = Grid(rows=32, columns=32, cell_km=0.5)
    mechanism = Elastic(grid, beta_per_km=1.0, weights=_uneven(grid.size))
    matrix = mechanism.matrix()
    yield duration(
        "certify 1,024 cells, dense",
        lambda: certify(DenseChannel(grid, matrix)),  # anew, since a channel remembers its loss
        limit=_CERTIFICATE_S,
    )
    exact = ExactTable(mechanism)
    yield duration(
        "certify 1,024 cells, integer table", lambda: certify(exact), limit=_CERTIFICATE_S
    )
    large = Grid(rows=100, columns=100, cell_km=0.5)
    weights = _uneven(large.size)
    yield duration(
        "certify 10⁴ cells, elastic lattice",
        lambda: certify(Elastic(large, beta_per_km=1.0, weights=weights)),
        limit=_CERTIFICATE_S,
    )


def locating() -> Iterator[Figure]:
    """10⁷ places to cells on the true map, beside plain arithmetic on degrees (which is wrong)."""
    generator = np.random.default_rng(1)
    south, west, north, east = 48.82, 2.28, 48.88, 2.40
    lat, lng = generator.uniform(south, north, 10**7), generator.uniform(west, east, 10**7)
    grid = Grid.from_box(south=south, west=west, north=north, east=east, cell_km=0.5)

    def degrees() -> None:
        row = ((lat - south) / (north - south) * grid.rows).astype(np.int64)
        column = ((lng - west) / (east - west) * grid.columns).astype(np.int64)
        row * grid.columns + column

    yield ratio(
        "locate 10⁷ points",
        lambda: grid.locate(lat=lat, lng=lng),
        "equal steps of degrees",
        degrees,
        limit=20.0,
        repeats=3,
    )
