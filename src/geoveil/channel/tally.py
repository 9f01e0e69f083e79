"""Tallies: how often each report was seen, with the channel that made them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import IntArray, frozen, refrozen
from geoveil.channel.base import Channel
from geoveil.errors import InvalidInput
from geoveil.space.base import Space

_MOST = 2.0**62
"""Two tallies below this add without leaving 64 bits."""


class Tally:
    """Counts of the reports of one channel: all an estimator needs.

    Tallies of the same channel add. ``channel`` is the operator whose columns the counts belong to.
    """

    channel: Channel
    counts: IntArray

    def __init__(self, channel: Channel, counts: npt.ArrayLike) -> None:
        self.channel = channel
        self.counts = frozen(_whole_counts(counts, channel.report_count))

    @property
    def space(self) -> Space:
        """Where the people are."""
        return self.channel.space

    @property
    def total(self) -> int:
        """How many reports were counted."""
        return int(self.counts.sum())

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        if other.channel is not self.channel and other.channel != self.channel:
            raise InvalidInput(
                "tallies must come from the same channel to be added; pass both to fit([…])"
            )
        return Tally(self.channel, self.counts + other.counts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(refrozen(state))

    def __repr__(self) -> str:
        return f"Tally({self.total} reports of {self.channel!r})"


def _whole_counts(counts: Any, size: int) -> IntArray:
    try:
        array = np.asarray(counts)
    except ValueError:
        raise InvalidInput("counts must be whole numbers, in one array without gaps") from None
    if array.shape != (size,):
        raise InvalidInput(f"counts (shape {array.shape}) must have {size} entries, one per report")
    if array.dtype.kind not in "iu" and (
        array.dtype.kind != "f" or not np.isfinite(array).all() or (array != np.floor(array)).any()
    ):
        raise InvalidInput("counts must be whole numbers within 64 bits")
    if (array < 0).any():
        raise InvalidInput("counts must not be negative")
    if array.sum(dtype=np.float64) >= _MOST:
        raise InvalidInput("counts must sum to less than 2^62")
    return np.array(array, dtype=np.int64)
