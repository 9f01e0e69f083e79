"""The average of several channels: the mechanism of a person drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, distribution, frozen
from geoveil.channel.base import Channel
from geoveil.channel.guarantee import weakest
from geoveil.errors import InvalidInput


class AverageChannel(Channel):
    """Σ w_i C_i for channels over the same space with the same reports.

    Guarantee: the weakest of the parts', where one of them is implied by all others; else none.
    Cost: that of all the parts together.
    Reference: FREEWILL eq. (7), A[n].

    >>> from geoveil.channel.dense import DenseChannel
    >>> from geoveil.space.line import Line
    >>> honest = DenseChannel(Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> contrary = DenseChannel(Line(2), [[0.25, 0.75], [0.75, 0.25]])
    >>> AverageChannel([honest, contrary], [0.5, 0.5]).matrix().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    def __init__(self, channels: Sequence[Channel], weights: npt.ArrayLike) -> None:
        self.channels = self.made_of = tuple(channels)
        if not self.channels:
            raise InvalidInput("channels must hold at least one channel")
        self.weights: FloatArray = frozen(distribution("weights", weights, len(self.channels)))
        self.space = self.channels[0].space
        self.report_count = self.channels[0].report_count
        self.guarantee = weakest([channel.guarantee for channel in self.channels])
        self._check_alike()

    def _check_alike(self) -> None:
        if any(channel.space != self.space for channel in self.channels):
            raise InvalidInput("channels must be over the same space to be averaged")
        counts = sorted({channel.report_count for channel in self.channels})
        if len(counts) > 1:
            raise InvalidInput(
                f"channels (with {', '.join(map(str, counts))} reports) must have the same "
                "reports to be averaged; use AverageOfEstimates or IterativeBayesianUpdate"
            )

    def push(self, theta: npt.ArrayLike) -> FloatArray:
        return self._mean([channel.push(theta) for channel in self.channels])

    def pull(self, values: npt.ArrayLike) -> FloatArray:
        return self._mean([channel.pull(values) for channel in self.channels])

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._mean([channel._push(theta) for channel in self.channels])

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._mean([channel._pull(values) for channel in self.channels])

    def _row(self, cell: int) -> FloatArray:
        return self._mean([channel._row(cell) for channel in self.channels])

    def _column(self, report: int) -> FloatArray:
        return self._mean([channel._column(report) for channel in self.channels])

    def _mean(self, parts: list[FloatArray]) -> FloatArray:
        return np.asarray(sum(w * part for w, part in zip(self.weights, parts, strict=True)))

    def __repr__(self) -> str:
        return f"AverageChannel({len(self.channels)} channels over {self.space!r})"
