"""Locating places to cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from geoveil.benchmark.timing import Figure, ratio
from geoveil.space.grid import Grid


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
