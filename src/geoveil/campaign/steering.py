"""What steers the next mechanism: the estimate averaged over neighbouring cells.

Camouflage hides a lonely person in the nearest crowd, so whoever can make a lonely place look crowded
strips it. Fakes that behave like people of that place cannot be told from people; but an average over
the cells around lets no single place look crowded, whatever the fakes send.
"""

from __future__ import annotations

import math

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.elastic_design import Between
from geoveil.space import Grid, Line, MaskedGrid, Space

_SHARP = {"cells": 2.0, "positions": 4.0}
"""ε × cell from which the next cells around are enough: people are told apart where they stand."""
_REACH = 2.5
"""Cells are averaged as far as so many times 1/ε, and two cells at least."""


def reach_in_cells(epsilon_per_km: float, cell_km: float, between: Between) -> int:
    """How many cells to each side are averaged: 1 (3 × 3), 2 (5 × 5), 3 (7 × 7) or more for wider noise.

    >>> [reach_in_cells(epsilon, 1.0, "cells") for epsilon in (4, 2, 1, 0.5)]
    [1, 1, 3, 5]
    >>> reach_in_cells(2.0, 1.0, "positions")
    2
    """
    product = epsilon_per_km * cell_km
    return 1 if product >= _SHARP[between] else max(2, math.ceil(_REACH / product))


def averaged(
    space: Space, believed: FloatArray, *, epsilon_per_km: float, between: Between
) -> FloatArray:
    """A distribution averaged over the cells around each cell, scaled to a sum of one.

    On a grid the mean over the rows and columns within :func:`reach_in_cells`, where cells beyond the edge
    count as empty (fewer cells to share with would make a place at the edge look more crowded), as do those
    that a mask leaves out; among
    places the mean over as many nearest ones.
    Cost: rows² · columns and rows · columns² products on a grid, cells² elsewhere.

    >>> import geoveil as gv
    >>> city = gv.Grid(rows=9, columns=9, cell_km=1.0)
    >>> lonely = np.zeros(81)
    >>> lonely[40] = 1.0
    >>> steering = averaged(city, lonely, epsilon_per_km=1.0, between="cells")
    >>> int((steering > 0).sum()), round(float(steering.max()), 3)
    (49, 0.02)
    """
    if space.size == 1:
        return believed
    if isinstance(space, MaskedGrid):
        around = _around(space.grid, space.spread(believed), epsilon_per_km, between)
        mean = around.ravel()[space.cells]
    elif isinstance(space, Grid):
        mean = _around(space, believed.reshape(space.shape), epsilon_per_km, between).ravel()
    elif isinstance(space, Line):
        reach = reach_in_cells(epsilon_per_km, space.least_distance_km, between)
        mean = _means(space.size, reach) @ believed
    else:
        mean = believed[_nearest(space, epsilon_per_km, between)].mean(axis=1)
    scaled: FloatArray = mean / mean.sum()
    return scaled


def _around(
    grid: Grid, believed: FloatArray, epsilon_per_km: float, between: Between
) -> FloatArray:
    """(rows, columns) → the same, averaged."""
    reach = reach_in_cells(epsilon_per_km, grid.cell_km, between)
    return np.asarray(_means(grid.rows, reach) @ believed @ _means(grid.columns, reach).T)


def _means(size: int, reach: int) -> FloatArray:
    """(size, size): each row the mean over the places within reach, those beyond the ends empty."""
    places = np.arange(size)
    near = np.abs(places[:, None] - places) <= reach
    return near / (2.0 * reach + 1.0)


def _nearest(space: Space, epsilon_per_km: float, between: Between) -> IntArray:
    """(cells, any): the nearest cells of each, itself among them."""
    distances = [space.distances_from_km(cell) for cell in range(space.size)]
    spacing = float(np.median([np.partition(each, 1)[1] for each in distances]))
    reach = reach_in_cells(epsilon_per_km, max(spacing, np.finfo(float).tiny), between)
    number = min(space.size, (2 * reach + 1) ** 2)
    return np.stack([np.argsort(each, kind="stable")[:number] for each in distances])
