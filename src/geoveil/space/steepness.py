"""How steep a function on a space is: the largest |v(x) − v(x′)| / d(x, x′) over all pairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.space.grid import Grid
from geoveil.space.line import Line
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
    return _by_rows(values, space)


def _by_rows(values: FloatArray, space: Space) -> Steepness:
    best = Steepness(0.0, (0, 1))
    for cell in range(space.size - 1):
        distance = space.distances_from_km(cell)[cell + 1 :]
        slopes = np.abs(values[cell + 1 :] - values[cell]) / distance
        steepest = int(np.argmax(slopes))
        if slopes[steepest] > best.slope_per_km:
            best = Steepness(float(slopes[steepest]), (cell, cell + 1 + steepest))
    return best


def _on_lattice(values: FloatArray, pitch_km: float) -> Steepness:
    rows, columns = values.shape
    spread = float(values.max() - values.min())
    best = Steepness(0.0, (0, 1))
    steps = 0
    for down, across, distance in _offsets(rows, columns):
        far = pitch_km * distance
        if spread <= best.slope_per_km * far:
            return best
        if steps > _STEPS:
            return Steepness(max(best.slope_per_km, spread / far), best.pair, exact=False)
        for left in (False, True)[: 1 + (down > 0 and across > 0)]:
            change = _differences(values, down, across, left=left)
            steps += change.size
            where = int(np.argmax(change))
            slope = float(change.ravel()[where]) / far
            if slope > best.slope_per_km:
                best = Steepness(slope, _pair(where, down, across, columns, left=left))
    return best


def _offsets(rows: int, columns: int) -> Iterator[tuple[int, int, float]]:
    """Offsets (down ≥ 0, across ≥ 0) in order of distance, without (0, 0)."""
    distance = np.hypot(np.arange(rows)[:, None], np.arange(columns)[None, :]).ravel()
    order = np.argsort(distance, kind="stable")[1:]
    for k in order:
        yield int(k) // columns, int(k) % columns, float(distance[k])


def _differences(values: FloatArray, down: int, across: int, *, left: bool) -> FloatArray:
    rows, columns = values.shape
    near = values[: rows - down, across:] if left else values[: rows - down, : columns - across]
    far = values[down:, : columns - across] if left else values[down:, across:]
    return np.abs(far - near)


def _pair(where: int, down: int, across: int, columns: int, *, left: bool) -> tuple[int, int]:
    row, column = divmod(where, columns - across)
    first = row * columns + column + (across if left else 0)
    second = (row + down) * columns + column + (0 if left else across)
    return first, second
