"""What a campaign does against fakes that behave like people, whom no estimator can tell from people.

Camouflage hides a lonely person in the nearest crowd, so whoever can make a lonely place look crowded
strips it. The next mechanism is steered by an average over the cells around, which lets no single place look
crowded, whatever the fakes send.

Reports that are known to be honest, of one's own staff or of a panel, bound what the others can do: not by
their number, but by what they say. Later estimates stay within the error bars of such a seed round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign.elastic_design import Between
from geoveil.channel.channel import Tally
from geoveil.estimate import Estimate, Estimator, FisherInformation
from geoveil.estimate.fitted import Observations, fit_of
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


# --- A trusted seed round


LEVEL = 0.95
"""Of the bars, for all cells together: so often they hold the whole truth."""
_STEPS = 200


def held_to_seed(
    estimate: Estimate, tallies: list[Tally], seed: Sequence[Tally], estimator: Estimator
) -> Estimate:
    """An estimate held to the error bars of a trusted round; itself where it lies within them.

    The bars are those of the seed alone, wide enough to hold all cells at once 19 times in 20 (each at
    1 − 0.05/cells), so that an honest campaign is hardly ever touched. A cell can then be moved by the
    width of its bar at most, whatever the fakes send and however many they are.
    """
    low, high = estimator.fit(seed).interval(1 - (1 - LEVEL) / estimate.space.size)
    held = held_within(estimate.distribution, low, high)
    moved = int(np.count_nonzero(np.abs(held - estimate.distribution) > 1e-12))
    if not moved:
        return estimate
    observations = Observations(tallies)
    return Estimate(
        space=estimate.space,
        distribution=held,
        total=estimate.total,
        steps=estimate.steps,
        stopped=f"{estimate.stopped}; then held to the error bars of the trusted seed round",
        find_fit=lambda: fit_of(observations, held),
        find_errors=lambda: FisherInformation().errors(
            observations, held, lambda counts, _: counts, None
        ),
        find_identifiability=lambda: estimate.identifiable,
        find_promises=lambda: estimate.promises,
    )


def held_within(distribution: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """The distribution within bounds that is nearest by Kullback–Leibler divergence.

    Law: min(max(τ·θ, low), high) with the τ for which it sums to one; Σ low ≤ 1 ≤ Σ high must hold.

    >>> held_within(np.array([0.7, 0.2, 0.1]), np.zeros(3), np.array([0.4, 1.0, 1.0])).round(2).tolist()
    [0.4, 0.4, 0.2]
    """
    given = np.maximum(distribution, np.finfo(float).tiny)
    below, above = 0.0, 1.0
    while np.clip(above * given, low, high).sum() < 1.0 and above < 1e300:
        above *= 2.0
    for _ in range(_STEPS):
        middle = (below + above) / 2
        if np.clip(middle * given, low, high).sum() < 1.0:
            below = middle
        else:
            above = middle
    held = np.clip(above * given, low, high)
    return np.asarray(held / held.sum())
