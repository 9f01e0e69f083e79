"""A city for the benchmarks: no file, any grid, the same for the same seed."""

from __future__ import annotations

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.space.grid import Grid

_DISTRICTS = 12
_COUNTRYSIDE = 0.02


def city_prior(grid: Grid, *, seed: int = 1) -> FloatArray:
    """Where people are: a dozen round districts of uneven size, and a few people anywhere.

    >>> from geoveil.space.grid import Grid
    >>> round(float(city_prior(Grid(rows=4, columns=5, cell_km=0.5)).sum()), 12)
    1.0
    """
    generator = np.random.default_rng(seed)
    row, column = np.mgrid[: grid.rows, : grid.columns]
    density = np.full(grid.shape, _COUNTRYSIDE / grid.size)
    for _ in range(_DISTRICTS):
        north, east = generator.uniform(0, grid.rows), generator.uniform(0, grid.columns)
        spread = generator.uniform(0.03, 0.12) * min(grid.shape)
        district = np.exp(-((row - north) ** 2 + (column - east) ** 2) / (2 * spread**2))
        density += generator.uniform(0.3, 1.0) * district / (district.sum() * _DISTRICTS)
    distribution: FloatArray = density.ravel() / density.sum()
    return distribution
