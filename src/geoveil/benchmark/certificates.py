"""Exact certificates: how long they take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from geoveil.audit import certify
from geoveil.benchmark.timing import Figure, duration
from geoveil.channel.dense import DenseChannel
from geoveil.mechanism import Elastic
from geoveil.report.table import ExactTable
from geoveil.space.grid import Grid

_LIMIT = 60.0


def certificates() -> Iterator[Figure]:
    """1,024 cells by enumeration, as floats and as integers; 10⁴ cells of an elastic lattice."""
    grid = Grid(rows=32, columns=32, cell_km=0.5)
    mechanism = Elastic(grid, beta_per_km=1.0, weights=_uneven(grid.size))
    dense = DenseChannel(grid, mechanism.matrix(), guarantee=mechanism.guarantee)
    yield duration("certify 1,024 cells, dense", lambda: certify(dense), limit=_LIMIT)
    exact = ExactTable(mechanism)
    yield duration("certify 1,024 cells, integer table", lambda: certify(exact), limit=_LIMIT)
    large = Grid(rows=100, columns=100, cell_km=0.5)
    weights = _uneven(large.size)
    yield duration(
        "certify 10⁴ cells, elastic lattice",
        lambda: certify(Elastic(large, beta_per_km=1.0, weights=weights)),
        limit=_LIMIT,
    )


def _uneven(size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return 1.0 + np.sin(np.arange(size)) ** 2
