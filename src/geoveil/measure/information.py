"""Entropy, divergence, leakage and elasticity. Bits or nats, always by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import entr, rel_entr

from geoveil import arrays
from geoveil.arrays import ArrayLike, FloatArray, distribution, finite, prior_over
from geoveil.channel.channel import Channel
from geoveil.errors import InvalidInput
from geoveil.space.space import Space

FEW_ROWS = 64
"""Up to so many rows are taken one by one even where the channel has a formula for all of them."""


def entropy_bits(p: ArrayLike) -> float:
    """The entropy −Σ p log₂ p of a distribution, in bits; 0·log 0 is 0.

    >>> entropy_bits([0.5, 0.25, 0.25])
    1.5
    """
    return float(entr(distribution("p", p, _length(p))).sum()) / math.log(2)


def total_variation(p: ArrayLike, q: ArrayLike) -> float:
    """The total variation ½ Σ|p − q|: the largest difference in the probability of any event.

    >>> total_variation([1.0, 0.0], [0.25, 0.75])
    0.75
    """
    first, second = _pair(p, q)
    return min(1.0, 0.5 * float(np.abs(first - second).sum()))


def kl_divergence_nats(p: ArrayLike, q: ArrayLike) -> float:
    """The Kullback–Leibler divergence Σ p ln(p/q) of p from q, in nats.

    Infinite where q is zero and p is not.

    >>> kl_divergence_nats([0.5, 0.5], [1.0, 0.0])
    inf
    """
    first, second = _pair(p, q)
    return max(0.0, float(rel_entr(first, second).sum()))


def kl_divergence_bits(p: ArrayLike, q: ArrayLike) -> float:
    """The Kullback–Leibler divergence Σ p log₂(p/q) of p from q, in bits.

    >>> kl_divergence_bits([1.0, 0.0], [0.25, 0.75])
    2.0
    """
    return kl_divergence_nats(p, q) / math.log(2)


@arrays.one_blas_thread()
def mutual_information_bits(channel: Channel, prior: ArrayLike | None = None) -> float:
    """What one report tells about the cell: I(X; Y) = H(Y) − Σ π(x) H(Y | x), in bits.

    The prior is uniform when none is given. The result is an average over people and reports; the
    guarantee of a channel, which bounds the worst case, is another matter.
    Cost: one product and the entropies of the rows, one at a time unless the channel has a formula
    for them; never an m×m array. Accurate to about 1e-15·log m.
    Reference: PRIVIC §3 (rate of a rate–distortion problem).

    >>> import geoveil as gv
    >>> mutual_information_bits(gv.DenseChannel(gv.Line(2), [[1.0, 0.0], [0.0, 1.0]]), [0.5, 0.5])
    1.0
    """
    weights = prior_over(prior, channel.space.size)
    support = np.flatnonzero(weights)
    of_report = float(entr(np.maximum(channel._push(weights), 0.0)).sum())
    if support.size > FEW_ROWS:
        of_rows = channel.row_entropies_nats()[support]
    else:
        of_rows = np.array([float(entr(channel._row(cell)).sum()) for cell in support.tolist()])
    return max(0.0, of_report - float(weights[support] @ of_rows)) / math.log(2)


def _pair(p: Any, q: Any) -> tuple[FloatArray, FloatArray]:
    first = distribution("p", p, _length(p))
    return first, distribution("q", q, first.size)


def _length(p: Any) -> int:
    shape = np.shape(p)
    return int(shape[-1]) if shape else 0


# --- The elastic property: where the reports of an isolated place go, and what they give away
#
# A mechanism that treats all places alike reports somebody alone on an island around the island, and
# whoever knows the map knows who it was. An elastic one reports them in the nearest crowd.


CROWD = 0.05
"""How many of all people make a crowd."""


def isolation_km(space: Space, prior: ArrayLike, *, crowd: float = CROWD) -> FloatArray:
    """How far one must go from each cell to have met a crowd, in km.

    The smallest r such that the *other* cells within r hold at least the share ``crowd`` of all
    people; people in the cell itself do not hide each other from somebody who asks about the cell.
    Infinite where the other cells together hold less.
    Cost: O(m² log m) time, one row of distances at a time; refused above 4,096 cells.

    >>> from geoveil.space.grid import Line
    >>> isolation_km(Line(4), [0.5, 0.0, 0.0, 0.5]).tolist()
    [3.0, 1.0, 1.0, 3.0]
    """
    space.check_matrix("isolation")
    share = finite("crowd", crowd)
    if not 0.0 < share < 1.0:
        raise InvalidInput(f"crowd ({crowd!r}) must lie between 0 and 1")
    people = prior_over(prior, space.size)
    radius_km = np.full(space.size, np.inf)
    for cell in range(space.size):
        distances = space.distances_from_km(cell)
        order = np.argsort(distances, kind="stable")
        met = np.cumsum(np.where(order == cell, 0.0, people[order]))
        enough = int(np.searchsorted(met, share * (1 - 1e-12)))
        if enough < order.size:
            radius_km[cell] = distances[order[enough]]
    return radius_km


def most_isolated_cell(space: Space, prior: ArrayLike) -> int:
    """The occupied cell with the largest ``isolation_km``; among equals the one with most people."""
    people = prior_over(prior, space.size)
    isolation = np.where(people > 0, isolation_km(space, people), -np.inf)
    return int(np.lexsort((people, isolation))[-1])


def most_crowded_cell(space: Space, prior: ArrayLike) -> int:
    """The occupied cell with the smallest ``isolation_km``; among equals the one with most people."""
    people = prior_over(prior, space.size)
    company = np.where(people > 0, -isolation_km(space, people), -np.inf)
    return int(np.lexsort((people, company))[-1])


def plant_island(space: Space, prior: ArrayLike, *, cell: int, radius_km: float) -> FloatArray:
    """The prior with an island: everybody within ``radius_km`` of the cell is moved into the cell.

    Reference: PRIVIC §3.3, which leaves the cell and the radius open.

    >>> from geoveil.space.grid import Line
    >>> plant_island(Line(4), [0.25] * 4, cell=0, radius_km=2.0).tolist()
    [0.75, 0.0, 0.0, 0.25]
    """
    people = prior_over(prior, space.size).copy()
    middle = int(arrays.indices("cell", cell, space.size))
    near = space.distances_from_km(middle) <= finite("radius_km", radius_km)
    moved = float(people[near].sum())
    people[near] = 0.0
    people[middle] = moved
    return people


def report_within(channel: Channel, cell: int, *, radius_km: float) -> float:
    """P(report within ``radius_km`` of the cell) for somebody in the cell; reports must be cells."""
    channel._check_reports_are_cells()
    near = channel.space.distances_from_km(int(cell)) <= finite("radius_km", radius_km)
    return float(channel.row(cell)[near].sum())


def mean_posterior(channel: Channel, cell: int, prior: ArrayLike | None = None) -> float:
    """What an attacker who knows the prior believes on average about somebody in the cell.

    Σ_y C[x, y]·P(x | y), the posterior on the true cell averaged over its reports; at least the
    prior share of the cell (Jensen), one where every report gives the cell away.

    >>> import geoveil as gv
    >>> mean_posterior(gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]]), 0, [0.5, 0.5])
    0.625
    """
    weights = prior_over(prior, channel.space.size)
    row = channel.row(cell)
    law = np.maximum(channel._push(weights), weights[cell] * row)
    seen = law > 0
    return float((row[seen] * weights[cell] * row[seen] / law[seen]).sum())
