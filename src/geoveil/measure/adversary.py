"""What somebody who knows the prior and sees a report can still find out.

The adversary of Shokri et al. (2012) knows the channel and the prior, sees one report and answers
with the cell that is best for them on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.base import Channel
from geoveil.errors import TooLarge
from geoveil.measure.distance import Loss, loss_values
from geoveil.measure.information import prior_of
from geoveil.space.base import MATRIX_LIMIT
from geoveil.space.loss import distance_km

_BLOCK = 512  # reports handled at once: the product then holds 512 numbers per cell


def adversary_error_km(channel: Channel, prior: npt.ArrayLike | None = None) -> float:
    """The adversary's expected error Σ_y min_z Σ_x π(x) C[x, y] d(x, z), in km.

    The guess z may be any cell. The prior, known to the adversary, is uniform when none is given.

    Cost: (cells with positive prior) × cells × reports in matrix products: seconds for 4,096 cells.
    Refused when the rows where the prior is positive hold more than 4096² numbers.

    Reference: Shokri et al. (2012), the objective; FREEWILL §8.2.4.

    >>> from geoveil.channel.dense import DenseChannel
    >>> from geoveil.space.line import Line
    >>> deaf = DenseChannel(Line(3), [[1.0], [1.0], [1.0]])
    >>> round(adversary_error_km(deaf), 12)
    0.666666666667
    """
    return adversary_loss(channel, prior, distance_km)


def adversary_loss(channel: Channel, prior: npt.ArrayLike | None, loss: Loss) -> float:
    """The adversary's expected loss Σ_y min_z Σ_x π(x) C[x, y] L(x, z), for any loss L."""
    return float(sum(block.min(axis=0).sum() for block in _guess_losses(channel, prior, loss)))


def adversary_guesses(
    channel: Channel, prior: npt.ArrayLike | None = None, loss: Loss = distance_km
) -> IntArray:
    """The adversary's best guess argmin_z Σ_x π(x) C[x, y] L(x, z), one cell per report.

    Among equally good guesses the first cell is taken. A report that the prior makes impossible is
    answered as if none had been seen.

    Reference: docs/optimal.md (the same map remaps reports without touching the guarantee).

    >>> from geoveil.channel.dense import DenseChannel
    >>> from geoveil.space.line import Line
    >>> coin = DenseChannel(Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> adversary_guesses(coin, [0.9, 0.1]).tolist()
    [0, 0]
    """
    weights = prior_of(channel, prior)
    guesses = [block.argmin(axis=0) for block in _guess_losses(channel, prior, loss)]
    found = np.concatenate(guesses).astype(np.int64)
    impossible = channel._push(weights) <= 0
    if impossible.any():
        found[impossible] = _guess_unseen(channel, weights, loss)
    return found


def bayes_error(channel: Channel, prior: npt.ArrayLike | None = None) -> float:
    """The probability 1 − Σ_y max_x π(x) C[x, y] that the best guess of the cell is wrong.

    Cost: one row at a time where the prior is positive.

    >>> from geoveil.channel.dense import DenseChannel
    >>> from geoveil.space.line import Line
    >>> bayes_error(DenseChannel(Line(2), [[0.75, 0.25], [0.25, 0.75]]))
    0.25
    """
    weights = prior_of(channel, prior)
    rows = (weights[cell] * channel._row(cell) for cell in np.flatnonzero(weights).tolist())
    return max(0.0, 1.0 - float(reduce(np.maximum, rows).sum()))


def _guess_losses(
    channel: Channel, prior: npt.ArrayLike | None, loss: Loss
) -> Iterator[FloatArray]:
    """Σ_x π(x) C[x, y] L(x, z) as blocks of reports y (columns) against all guesses z (rows)."""
    weights = prior_of(channel, prior)
    support = np.flatnonzero(weights)
    _check_size(support.size, max(channel.report_count, channel.space.size))
    joint = np.stack([weights[cell] * channel._row(int(cell)) for cell in support])
    losses = _losses_of_guesses(channel, support, loss)
    for start in range(0, channel.report_count, _BLOCK):
        yield losses @ joint[:, start : start + _BLOCK]


def _losses_of_guesses(channel: Channel, support: IntArray, loss: Loss) -> FloatArray:
    guesses = np.arange(channel.space.size)
    return loss_values(loss, channel.space, support, guesses[:, None])


def _guess_unseen(channel: Channel, weights: FloatArray, loss: Loss) -> int:
    support = np.flatnonzero(weights)
    return int((_losses_of_guesses(channel, support, loss) @ weights[support]).argmin())


def _check_size(rows: int, columns: int) -> None:
    if rows * columns > MATRIX_LIMIT**2:
        raise TooLarge(
            f"the adversary's table ({rows} cells with positive prior × {columns}) must hold at "
            f"most {MATRIX_LIMIT}² numbers; use a coarser grid or a prior with fewer cells"
        )
