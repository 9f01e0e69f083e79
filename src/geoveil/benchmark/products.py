"""Products of channels on large grids, beside the bare FFTs they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import fft

from geoveil.arrays import FloatArray
from geoveil.benchmark.timing import Figure, ratio, slope
from geoveil.channel.base import Channel
from geoveil.channel.kernel import fft_workers
from geoveil.mechanism import Elastic, PlanarGeometric
from geoveil.space.grid import Grid

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
