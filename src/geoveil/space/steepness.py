"""How steep a function on a space is: the largest |v(x) − v(x′)| / d(x, x′) over all pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.space.grid import Grid, Line
from geoveil.space.masked_grid import MaskedGrid
from geoveil.space.space import Space

_STEPS = 1 << 32
"""Differences looked at before far pairs are bounded instead."""


@dataclass(frozen=True)
class Steepness:
    """The steepest slope per km, the pair of cells that has it, and whether it is exact or a bound."""

    slope_per_km: float
    pair: tuple[int, int]
    exact: bool = True


def steepness(values: FloatArray, space: Space) -> Steepness:
    """The steepest slope of ``values`` (one per cell) over all pairs of cells.

    On a lattice pairs are visited by offset, near ones first: once (max − min)/d falls below the best
    slope found, no farther pair can beat it. Usually few offsets are needed; after 2³² differences
    the rest is bounded by (max − min)/d and the answer is marked as not exact.
    """
    if space.size == 1:
        return Steepness(0.0, (0, 0))
    if isinstance(space, Grid):
        return _on_lattice(values.reshape(space.shape), space.cell_km)
    if isinstance(space, Line):
        return _on_lattice(values.reshape(1, -1), 1.0)
    if isinstance(space, MaskedGrid):
        found = _on_lattice(space.spread(values, empty=np.nan), space.cell_km)
        one, other = np.searchsorted(space.cells, found.pair).tolist()
        return Steepness(found.slope_per_km, (one, other), found.exact)
    best = Steepness(0.0, (0, 1))
    for cell in range(space.size - 1):
        distance = space.distances_from_km(cell)[cell + 1 :]
        slopes = np.abs(values[cell + 1 :] - values[cell]) / distance
        steepest = int(np.argmax(slopes))
        if slopes[steepest] > best.slope_per_km:
            best = Steepness(float(slopes[steepest]), (cell, cell + 1 + steepest))
    return best


def _on_lattice(values: FloatArray, pitch_km: float) -> Steepness:
    """``values`` is (rows, columns), not a number where there is no cell; pairs by offset (down ≥ 0,
    across ≥ 0), in order of distance."""
    rows, columns = values.shape
    spread = float(np.nanmax(values) - np.nanmin(values))
    distances = np.hypot(np.arange(rows)[:, None], np.arange(columns)[None, :]).ravel()
    first, second = np.flatnonzero(~np.isnan(values))[:2].tolist()
    best, steps = Steepness(0.0, (first, second)), 0
    for offset in np.argsort(distances, kind="stable")[1:]:  # the first is no offset at all
        (down, across), far_km = divmod(int(offset), columns), pitch_km * float(distances[offset])
        if spread <= best.slope_per_km * far_km:
            return best
        if steps > _STEPS:
            return Steepness(max(best.slope_per_km, spread / far_km), best.pair, exact=False)
        west, east = slice(0, columns - across), slice(across, columns)
        # down to the east, and (where that is another offset) down to the west
        for near, far in ((west, east), (east, west))[: 1 + (down > 0 and across > 0)]:
            change = np.fmax(np.abs(values[down:, far] - values[: rows - down, near]), 0.0)
            steps += change.size
            row, column = divmod(int(np.argmax(change)), columns - across)
            slope = float(change[row, column]) / far_km
            if slope > best.slope_per_km:
                start = row * columns + column
                best = Steepness(slope, (start + near.start, start + down * columns + far.start))
    return best
