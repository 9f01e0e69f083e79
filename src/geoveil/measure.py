"""What a mechanism costs and hides, and how far an estimate is from the truth.

How far reports and guesses are from people, in kilometres; entropy, divergence and leakage, in bits or nats,
always by name; and what the reports of an isolated place give away.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import (
    ArrayLike,
    FloatArray,
    IntArray,
    able,
    by_position,
    distribution,
    finite,
    indices,
    numbers,
    one_blas_thread,
    part,
    prior_over,
)
from geoveil.channel.channel import Channel, checked_channel
from geoveil.errors import InvalidInput, TooLarge, require
from geoveil.space.space import MATRIX_LIMIT, RadialLoss, Space, checked_space, distance_km

FEW_ROWS = 64
"""Up to so many rows are taken one by one even where the channel has a formula for all of them."""
Loss = Callable[[Space, ArrayLike, ArrayLike], FloatArray]
"""loss(space, a, b): how bad it is that b stands for a; arrays of cells broadcast."""


@one_blas_thread()
def mean_distance_km(channel: Channel, prior: ArrayLike | None = None) -> float:
    """The mean distance Σ π(x) C[x, y] d(x, y) between a person and their report, in km.

    The prior is uniform when none is given. Reports must be cells. Of a mechanism between positions it is
    the distance from the position of a person, who stands anywhere in the cell.
    Cost: one row at a time unless the channel has a formula; never an m×m array.

    >>> import geoveil as gv
    >>> mean_distance_km(gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]]))
    0.25
    """
    return expected_loss(channel, prior, distance_km)


@one_blas_thread()
def expected_loss(channel: Channel, prior: ArrayLike | None, loss: Loss | ArrayLike) -> float:
    """The expected loss Σ π(x) C[x, y] L(x, y) for any loss.

    ``loss`` is a function ``loss(space, a, b)`` such as ``distance_km`` (then reports must be
    cells), or a matrix with a row per cell and a column per report. A prior of ``None`` is uniform.
    Units: those of the loss. Cost: as ``mean_distance_km``.

    >>> import geoveil as gv
    >>> coin = gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> expected_loss(coin, [1.0, 0.0], [[0.0, 8.0], [8.0, 0.0]])
    2.0
    """
    weights = _prior_of(channel, prior)
    support = np.flatnonzero(weights)
    between_cells = channel.starts_at_cells and channel.report_count == channel.space.size
    few = support.size <= FEW_ROWS and between_cells
    if isinstance(loss, RadialLoss) and not few:
        return float(
            weights @ channel.mean_of_distance(lambda distance: _finite(loss.at(distance)))
        )
    losses: Iterable[FloatArray]
    if callable(loss):
        channel._check_reports_are_cells()
        cells = np.arange(channel.space.size)
        losses = (loss_values(loss, channel.space, cell, cells) for cell in support)
    else:
        losses = loss_matrix(loss, channel.space.size, channel.report_count)[support]
    rows = zip(support.tolist(), losses, strict=True)
    return float(sum(weights[cell] * (channel._row(cell) @ of_cell) for cell, of_cell in rows))


def _prior_of(channel: Channel, prior: ArrayLike | None) -> FloatArray:
    """Where the people of a channel are: uniform where no prior is given."""
    return prior_over(prior, checked_channel("channel", channel).space.size)


def loss_values(loss: Loss, space: Space, a: ArrayLike, b: ArrayLike) -> FloatArray:
    """The loss function at cells that broadcast, checked: finite, one number per pair."""
    able("loss", loss, "__call__", "a function loss(space, a, b), such as gv.distance_km")
    values = np.asarray(loss(space, a, b), dtype=np.float64)
    if values.shape != np.broadcast_shapes(np.shape(a), np.shape(b)):
        raise InvalidInput(
            f"loss (result of shape {values.shape}) must give one number per pair of cells"
        )
    return _finite(values)


def _finite(values: FloatArray) -> FloatArray:
    if not np.isfinite(values).all():
        raise InvalidInput("loss must be finite for every pair of cells")
    return values


def loss_matrix(loss: ArrayLike, rows: int, columns: int) -> FloatArray:
    """Losses given as a matrix, checked: finite, a row per cell and a column per report."""
    matrix = numbers("loss", loss, "a function or a matrix of numbers")
    if matrix.shape != (rows, columns):
        raise InvalidInput(f"loss (shape {matrix.shape}) must be {rows} cells × {columns} reports")
    if not np.isfinite(matrix).all():
        raise InvalidInput("loss must hold finite numbers only")
    return matrix


# --- What somebody who knows the prior and sees a report can still find out


_BLOCK = 512  # reports handled at once: the product then holds 512 numbers per cell


@one_blas_thread()
def adversary_error_km(channel: Channel, prior: ArrayLike | None = None) -> float:
    """The adversary's expected error Σ_y min_z Σ_x π(x) C[x, y] d(x, z), in km.

    The guess z may be any cell. The prior, known to the adversary, is uniform when none is given.
    Cost: (cells with positive prior) × cells × reports in matrix products: seconds for 4,096 cells.
    Refused when the rows where the prior is positive hold more than 4096² numbers.
    Reference: Shokri et al. (2012), the objective; FREEWILL §8.2.4.

    >>> import geoveil as gv
    >>> deaf = gv.DenseChannel(gv.Line(3), [[1.0], [1.0], [1.0]])
    >>> round(adversary_error_km(deaf), 12)
    0.666666666667
    """
    return adversary_loss(channel, prior, distance_km)


def adversary_loss(channel: Channel, prior: ArrayLike | None, loss: Loss) -> float:
    """The adversary's expected loss Σ_y min_z Σ_x π(x) C[x, y] L(x, z), for any loss L."""
    return float(sum(block.min(axis=0).sum() for block in _guess_losses(channel, prior, loss)))


def adversary_guesses(
    channel: Channel, prior: ArrayLike | None = None, loss: Loss = distance_km
) -> IntArray:
    """The adversary's best guess argmin_z Σ_x π(x) C[x, y] L(x, z), one cell per report.

    Among equally good guesses the first cell is taken. A report that the prior makes impossible is
    answered as if none had been seen.
    Reference: docs/optimal.md (the same map remaps reports without touching the guarantee).

    >>> import geoveil as gv
    >>> coin = gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> adversary_guesses(coin, [0.9, 0.1]).tolist()
    [0, 0]
    """
    weights = _prior_of(channel, prior)
    best = [block.argmin(axis=0) for block in _guess_losses(channel, prior, loss)]
    guesses = np.concatenate(best).astype(np.int64)
    impossible = channel._push(weights) <= 0
    if impossible.any():
        support = np.flatnonzero(weights)
        unseen = _losses_of_guesses(channel, support, loss) @ weights[support]
        guesses[impossible] = int(unseen.argmin())
    return guesses


@one_blas_thread()
def bayes_error(channel: Channel, prior: ArrayLike | None = None) -> float:
    """The probability 1 − Σ_y max_x π(x) C[x, y] that the best guess of the cell is wrong.

    Cost: one row at a time where the prior is positive.

    >>> import geoveil as gv
    >>> bayes_error(gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]]))
    0.25
    """
    weights = _prior_of(channel, prior)
    rows = (weights[cell] * channel._row(cell) for cell in np.flatnonzero(weights).tolist())
    return max(0.0, 1.0 - float(reduce(np.maximum, rows).sum()))


def _guess_losses(channel: Channel, prior: ArrayLike | None, loss: Loss) -> Iterator[FloatArray]:
    """Σ_x π(x) C[x, y] L(x, z) as blocks of reports y (columns) against all guesses z (rows)."""
    weights = _prior_of(channel, prior)
    support = np.flatnonzero(weights)
    columns = max(channel.report_count, channel.space.size)
    if support.size * columns > MATRIX_LIMIT**2:
        raise TooLarge(
            f"the adversary's table ({support.size} cells with positive prior × {columns}) must hold "
            f"at most {MATRIX_LIMIT}² numbers; use a coarser grid or a prior with fewer cells"
        )
    joint = np.stack([weights[cell] * channel._row(int(cell)) for cell in support])
    losses = _losses_of_guesses(channel, support, loss)
    for start in range(0, channel.report_count, _BLOCK):
        yield losses @ joint[:, start : start + _BLOCK]


def _losses_of_guesses(channel: Channel, support: IntArray, loss: Loss) -> FloatArray:
    """(guesses z, cells x of the support): L(x, z)."""
    guesses = np.arange(channel.space.size)
    return loss_values(loss, channel.space, support, guesses[:, None])


# --- The earth mover's distance: how far, on average, mass must travel to turn p into q


PAIR_LIMIT = 4096 * 4096
"""No transport problem with more (source, destination) pairs is attempted: a few seconds, 1 GB."""

_NEGLIGIBLE = 1e-17  # mass that is rounding: together at most 1e-17 · cells · diameter kilometres
_STEPS = 50_000_000


@one_blas_thread()
def earth_movers_distance_km(p: ArrayLike, q: ArrayLike, space: Space) -> float:
    """The exact earth mover's (Wasserstein-1) distance between two distributions, in km.

    min Σ T[x, y] d(x, y) over T ≥ 0 with row sums p and column sums q. Because d is a metric, what
    p and q have in common can stay where it is: only surplus and deficit of p − q take part. Cells
    on one straight line need no optimisation: the answer is ∫|F_p − F_q|.
    Cost: network simplex on (surplus cells) × (deficit cells) pairs, 0.7 s for 4,096 cells; refused
    above 4096² pairs. Needs the extra ``transport`` unless the cells lie on a line.
    Units: kilometres (of a space without a map: its own unit).

    >>> from geoveil.space.grid import Line
    >>> earth_movers_distance_km([1.0, 0.0, 0.0], [0.0, 0.5, 0.5], Line(3))
    1.5
    """
    surplus = distribution("p", p, checked_space(space).size) - distribution("q", q, space.size)
    axis = _straight_line(space.centres)
    if axis is not None:
        order = np.argsort(axis, kind="stable")
        carried = np.abs(np.cumsum(surplus[order])[:-1])
        return float(carried @ np.diff(axis[order]))
    giving, taking = np.flatnonzero(surplus > _NEGLIGIBLE), np.flatnonzero(surplus < -_NEGLIGIBLE)
    if not (giving.size and taking.size):
        return 0.0
    if giving.size * taking.size > PAIR_LIMIT:
        raise TooLarge(
            f"the transport problem ({giving.size} × {taking.size} cells) must have at most "
            f"{PAIR_LIMIT} pairs; compare on a coarser grid"
        )
    distances = np.ascontiguousarray(space.distance_km(giving[:, None], taking))
    return _transport(surplus[giving], -surplus[taking], distances)


def check_transport(space: Space) -> None:
    """Say before any work that the distance needs an extra that is not installed."""
    if _straight_line(checked_space(space).centres) is None:
        require_transport()


def require_transport() -> None:
    """The extra for distances in the plane must be installed."""
    require("ot", "transport", "the earth mover's distance in the plane", "POT")


def _straight_line(centres: FloatArray) -> FloatArray | None:
    """The one coordinate in which the centres differ, or None where they differ in two."""
    varying = [column for column in centres.T if np.ptp(column) > 0]
    return None if len(varying) > 1 else (varying or list(centres.T))[0]


def _transport(supply: FloatArray, demand: FloatArray, distances: FloatArray) -> float:
    require_transport()
    from ot import emd

    mass = 0.5 * float(supply.sum() + demand.sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what went wrong is read from the log instead
        _, log = emd(supply / supply.sum(), demand / demand.sum(), distances, _STEPS, log=True)
    if log["warning"] is not None:
        raise TooLarge(
            f"the transport problem ({supply.size} × {demand.size} cells) must be solved within "
            f"{_STEPS} steps; compare on a coarser grid"
        )
    return mass * float(log["cost"])


# --- Entropy, divergence and leakage


def entropy_bits(p: ArrayLike) -> float:
    """The entropy −Σ p log₂ p of a distribution, in bits; 0·log 0 is 0.

    >>> entropy_bits([0.5, 0.25, 0.25])
    1.5
    """
    return float(scipy.special.entr(_whole("p", p)).sum()) / math.log(2)


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
    return max(0.0, float(scipy.special.rel_entr(first, second).sum()))


def kl_divergence_bits(p: ArrayLike, q: ArrayLike) -> float:
    """The Kullback–Leibler divergence Σ p log₂(p/q) of p from q, in bits.

    >>> kl_divergence_bits([1.0, 0.0], [0.25, 0.75])
    2.0
    """
    return kl_divergence_nats(p, q) / math.log(2)


@one_blas_thread()
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
    weights = _prior_of(channel, prior)
    support = np.flatnonzero(weights)
    of_report = float(scipy.special.entr(np.maximum(channel._push(weights), 0.0)).sum())
    if support.size > FEW_ROWS:
        of_rows = channel.row_entropies_nats()[support]
    else:
        of_rows = np.array(
            [float(scipy.special.entr(channel._row(cell)).sum()) for cell in support.tolist()]
        )
    return max(0.0, of_report - float(weights[support] @ of_rows)) / math.log(2)


def _pair(p: Any, q: Any) -> tuple[FloatArray, FloatArray]:
    first = _whole("p", p)
    return first, distribution("q", q, first.size)


def _whole(name: str, value: Any) -> FloatArray:
    """A distribution over as many cells as it has entries."""
    array = numbers(name, by_position(name, value))
    return distribution(name, array, array.shape[-1] if array.ndim else 0)


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
    space.check_matrix("isolation", "choose larger cells")
    share = part("crowd", crowd)
    people = prior_over(prior, space.size)
    radius_km = np.full(space.size, np.inf)
    for cell in range(space.size):
        distances = space.distances_from_km(cell)
        order = np.argsort(distances, kind="stable")
        company = np.cumsum(np.where(order == cell, 0.0, people[order]))
        enough = int(np.searchsorted(company, share * (1 - 1e-12)))
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
    middle = int(indices("cell", cell, space.size))
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
    weights = _prior_of(channel, prior)
    row = channel.row(cell)
    law = np.maximum(channel._push(weights), weights[cell] * row)
    possible = law > 0
    return float((row[possible] * weights[cell] * row[possible] / law[possible]).sum())
