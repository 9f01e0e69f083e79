"""How far a report is from the truth on average: what a mechanism costs its user."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.base import Channel
from geoveil.errors import InvalidInput
from geoveil.measure.information import FEW_ROWS, prior_of
from geoveil.space.base import Space
from geoveil.space.loss import RadialLoss, distance_km

Loss = Callable[[Space, npt.ArrayLike, npt.ArrayLike], FloatArray]
"""loss(space, a, b): how bad it is that b stands for a; arrays of cells broadcast."""


def mean_distance_km(channel: Channel, prior: npt.ArrayLike | None = None) -> float:
    """The mean distance Σ π(x) C[x, y] d(x, y) between a person and their report, in km.

    The prior is uniform when none is given. Reports must be cells.

    Cost: one row at a time unless the channel has a formula; never an m×m array.

    >>> from geoveil.channel.dense import DenseChannel
    >>> from geoveil.space.line import Line
    >>> mean_distance_km(DenseChannel(Line(2), [[0.75, 0.25], [0.25, 0.75]]))
    0.25
    """
    return expected_loss(channel, prior, distance_km)


def expected_loss(
    channel: Channel, prior: npt.ArrayLike | None, loss: Loss | npt.ArrayLike
) -> float:
    """The expected loss Σ π(x) C[x, y] L(x, y) for any loss.

    ``loss`` is a function ``loss(space, a, b)`` such as ``distance_km`` (then reports must be
    cells), or a matrix with a row per cell and a column per report. A prior of ``None`` is uniform.

    Units: those of the loss. Cost: as ``mean_distance_km``.

    >>> from geoveil.channel.dense import DenseChannel
    >>> from geoveil.space.line import Line
    >>> coin = DenseChannel(Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> expected_loss(coin, [1.0, 0.0], [[0.0, 8.0], [8.0, 0.0]])
    2.0
    """
    weights = prior_of(channel, prior)
    support = np.flatnonzero(weights)
    if isinstance(loss, RadialLoss) and support.size > FEW_ROWS:
        return float(weights @ channel.mean_of_distance(loss.at))
    rows = zip(support.tolist(), _loss_rows(channel, loss, support), strict=True)
    return float(sum(weights[cell] * (channel._row(cell) @ losses) for cell, losses in rows))


def _loss_rows(
    channel: Channel, loss: Loss | npt.ArrayLike, cells: IntArray
) -> Iterator[FloatArray]:
    """L(x, ·) over the reports of the channel, for each of the cells x in turn."""
    if not callable(loss):
        return iter(_loss_matrix(loss, channel.space.size, channel.report_count)[cells])
    channel._check_reports_are_cells()
    everywhere = np.arange(channel.space.size)
    return (loss_values(loss, channel.space, cell, everywhere) for cell in cells)


def loss_values(loss: Loss, space: Space, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
    """The loss function at cells that broadcast, checked: finite, one number per pair."""
    values = np.asarray(loss(space, a, b), dtype=np.float64)
    if values.shape != np.broadcast_shapes(np.shape(a), np.shape(b)):
        raise InvalidInput(
            f"loss (result of shape {values.shape}) must give one number per pair of cells"
        )
    if not np.isfinite(values).all():
        raise InvalidInput("loss must be finite for every pair of cells")
    return values


def _loss_matrix(loss: npt.ArrayLike, rows: int, columns: int) -> FloatArray:
    try:
        matrix = np.asarray(loss, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput("loss must be a function or a matrix of numbers") from None
    if matrix.shape != (rows, columns):
        raise InvalidInput(f"loss (shape {matrix.shape}) must be {rows} cells × {columns} reports")
    if not np.isfinite(matrix).all():
        raise InvalidInput("loss must hold finite numbers only")
    return matrix
