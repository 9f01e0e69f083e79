"""Several channels side by side: people who chose different mechanisms, seen as one operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, distribution, frozen, vector
from geoveil.channel.base import Channel
from geoveil.channel.guarantee import weakest
from geoveil.channel.loss import PrivacyLoss
from geoveil.errors import InvalidInput
from geoveil.randomness import Randomness


class StackedChannel(Channel):
    """A person uses channel A with probability share[A], and the report says which.

    Law: the columns of all channels side by side, those of A times share[A].
    Guarantee: the weakest of the parts where one is implied by all, else ``None``: somebody may hold it.
    Cost: the sum of the parts'.
    Reference: FREEWILL §4 (the generalised update sees the columns of all mechanisms).

    >>> import geoveil as gv
    >>> line = gv.Line(3)
    >>> both = StackedChannel([gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 2.0)])
    >>> both.report_count, round(float(both.row(0).sum()), 12)
    (6, 1.0)
    """

    def __init__(self, channels: Sequence[Channel], shares: npt.ArrayLike | None = None) -> None:
        if not channels:
            raise InvalidInput("channels must not be empty")
        if any(channel.space != channels[0].space for channel in channels):
            raise InvalidInput("channels must share one space")
        self.channels = self.made_of = tuple(channels)
        self.space = channels[0].space
        self.report_count = sum(channel.report_count for channel in channels)
        equal = np.full(len(channels), 1 / len(channels))
        self.shares = frozen(
            equal if shares is None else distribution("shares", shares, len(channels))
        )
        self.guarantee = weakest([channel.guarantee for channel in channels])
        self.starts = frozen(np.cumsum([0, *(channel.report_count for channel in channels)]))

    def parts(self, values: FloatArray) -> list[FloatArray]:
        """Values by report, cut into one array for each channel."""
        return [values[..., a:b] for a, b in zip(self.starts[:-1], self.starts[1:], strict=True)]

    def closed_form_loss(self) -> PrivacyLoss | None:
        """The largest of the parts': a share scales all of a column alike."""
        losses = [channel.closed_form_loss() for channel in self.channels]
        known = [loss for loss in losses if loss is not None]
        if len(known) < len(losses):
            return None
        worst = max(known, key=lambda loss: loss.epsilon_per_km)
        epsilons = [loss.epsilon for loss in known if loss.epsilon is not None]
        epsilon = max(epsilons) if len(epsilons) == len(known) else None
        exact = bool((self.shares > 0).all()) and all(loss.exact for loss in known)
        return PrivacyLoss(worst.epsilon_per_km, epsilon, worst.pair, exact, worst.how)

    def push(self, theta: npt.ArrayLike) -> FloatArray:
        return self._joined([channel.push(theta) for channel in self.channels])

    def pull(self, values: npt.ArrayLike) -> FloatArray:
        parts = self.parts(vector("values", values, self.report_count))
        return self._summed([c.pull(part) for c, part in zip(self.channels, parts, strict=True)])

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._joined([channel._push(theta) for channel in self.channels])

    def _pull(self, values: FloatArray) -> FloatArray:
        parts = self.parts(values)
        return self._summed([c._pull(part) for c, part in zip(self.channels, parts, strict=True)])

    def _joined(self, laws: list[FloatArray]) -> FloatArray:
        return np.concatenate([s * law for s, law in zip(self.shares, laws, strict=True)], axis=-1)

    def _summed(self, pulled: list[FloatArray]) -> FloatArray:
        return np.sum([s * part for s, part in zip(self.shares, pulled, strict=True)], axis=0)

    def _row(self, cell: int) -> FloatArray:
        return np.concatenate([share * channel._row(cell) for share, channel in self._shared()])

    def _column(self, report: int) -> FloatArray:
        part = int(np.searchsorted(self.starts, report, side="right")) - 1
        return self.shares[part] * self.channels[part]._column(report - int(self.starts[part]))

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        chosen = np.searchsorted(np.cumsum(self.shares)[:-1], randomness.uniform(cells.size))
        reports = np.empty(cells.size, dtype=np.int64)
        for part, channel in enumerate(self.channels):
            mine = np.flatnonzero(chosen == part)
            reports[mine] = self.starts[part] + channel._sample(cells[mine], randomness)
        return reports

    def _shared(self) -> list[tuple[float, Channel]]:
        return list(zip(self.shares.tolist(), self.channels, strict=True))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StackedChannel)
            and self.channels == other.channels
            and np.array_equal(self.shares, other.shares)
        )

    def __hash__(self) -> int:
        return hash((StackedChannel, self.channels))

    def __repr__(self) -> str:
        return f"StackedChannel({len(self.channels)} channels, {self.report_count} reports)"
