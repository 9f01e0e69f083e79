"""Several reports of one person: the product of their columns."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, frozen, indices
from geoveil.channel.base import Channel
from geoveil.channel.tally import Tally
from geoveil.errors import ImpossibleReport, InvalidInput

_MOST_ENTRIES = 1 << 23


class ObservedCombinations(Channel):
    """The columns of the combinations that were seen, P(z₁|x)·P(z₂|x)·…, each up to a factor.

    No estimate depends on the factor of a column; each is scaled to a maximum of one, so that many
    reports of one person do not underflow. Rows therefore do not sum to one.
    Guarantee: the sum of the parts', ``None`` where one has none.
    Cost: cells × combinations per product.
    """

    def __init__(self, channels: Sequence[Channel], combinations: IntArray) -> None:
        self.channels = self.made_of = tuple(channels)
        self.space = channels[0].space
        self.combinations = frozen(np.array(combinations))
        self.report_count = len(combinations)
        promises = [channel.guarantee for channel in channels if channel.guarantee is not None]
        known = len(promises) == len(channels)
        self.guarantee = functools.reduce(operator.add, promises) if known else None
        self._matrix: FloatArray = frozen(_products(self.channels, self.combinations))

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta @ self._matrix

    def _pull(self, values: FloatArray) -> FloatArray:
        return values @ self._matrix.T

    def _row(self, cell: int) -> FloatArray:
        row: FloatArray = self._matrix[cell]
        return row

    def _column(self, report: int) -> FloatArray:
        return self._matrix[:, report]

    def matrix(self) -> FloatArray:
        return self._matrix

    def numbers(self) -> IntArray:
        """Which of all combinations each of those seen is, as ``every_combination`` orders them."""
        sizes = tuple(channel.report_count for channel in self.channels)
        return np.asarray(np.ravel_multi_index(tuple(self.combinations.T), sizes))

    def every_combination(self) -> FloatArray | None:
        """(cells, combinations): the law of all combinations; ``None`` beyond 8,388,608 entries."""
        cells = self.space.size
        if cells * math.prod(channel.report_count for channel in self.channels) > _MOST_ENTRIES:
            return None
        law = np.ones((cells, 1))
        for channel in self.channels:
            columns = np.maximum(channel.matrix(), 0.0)
            law = (law[:, :, None] * columns[:, None, :]).reshape(cells, -1)
        return law

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ObservedCombinations)
            and self.channels == other.channels
            and np.array_equal(self.combinations, other.combinations)
        )

    def __hash__(self) -> int:
        return hash((ObservedCombinations, self.channels, self.report_count))

    def __repr__(self) -> str:
        return (
            f"ObservedCombinations({len(self.channels)} channels, {self.report_count} combinations)"
        )


class JointTally(Tally):
    """Counts of people by the combination of reports each of them made about one place.

    ``reports`` has a row for each person and a column for each channel. ``total`` is the number of
    people. A joint tally goes into ``fit`` alone or in a list, beside tallies of single reports and
    joint tallies of other channels; it is the model of IBU §V (one vector zⁱ per person).

    >>> import geoveil as gv
    >>> line = gv.Line(3)
    >>> first, second = (gv.RandomizedResponse(line, epsilon=e) for e in (1.0, 2.0))
    >>> JointTally([first, second], [[0, 0], [0, 1], [0, 0]]).counts.tolist()
    [2, 1]
    """

    def __init__(self, channels: Sequence[Channel], reports: npt.ArrayLike) -> None:
        made = np.asarray(reports)
        if not channels:
            raise InvalidInput("channels must not be empty")
        if any(channel.space != channels[0].space for channel in channels):
            raise InvalidInput("channels must share one space")
        if made.ndim != 2 or made.shape[1] != len(channels):
            raise InvalidInput(
                f"reports (shape {made.shape}) must have a row for each person "
                f"and {len(channels)} columns, one for each channel"
            )
        columns = [
            indices(f"reports of channel {number}", made[:, number], channel.report_count)
            for number, channel in enumerate(channels)
        ]
        combinations, counts = _distinct(columns, [channel.report_count for channel in channels])
        super().__init__(ObservedCombinations(channels, combinations), counts)

    def __add__(self, other: Tally) -> Tally:
        """Both crowds together: a combination counts as often as in the two."""
        if not isinstance(other, JointTally):
            return NotImplemented
        mine, theirs = self.channel, other.channel
        assert isinstance(mine, ObservedCombinations)
        assert isinstance(theirs, ObservedCombinations)
        if mine.channels != theirs.channels:
            raise InvalidInput(
                "joint tallies must come from the same channels, in one order, to be added; "
                "pass both to fit([…])"
            )
        seen = np.concatenate((mine.combinations, theirs.combinations))
        kept, which = np.unique(seen, axis=0, return_inverse=True)
        counts = np.zeros(len(kept), dtype=np.int64)
        np.add.at(counts, which.ravel(), np.concatenate((self.counts, other.counts)))
        both = JointTally.__new__(JointTally)
        Tally.__init__(both, ObservedCombinations(mine.channels, kept), counts)
        return both


def _distinct(columns: list[IntArray], sizes: list[int]) -> tuple[IntArray, IntArray]:
    """The combinations that occur, in order, and how often; by one number each where they fit."""
    if math.prod(sizes) >= 2**62:
        return np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
    keys, counts = np.unique(np.ravel_multi_index(columns, sizes), return_counts=True)
    return np.stack(np.unravel_index(keys, sizes), axis=1), counts


def _products(channels: tuple[Channel, ...], combinations: IntArray) -> FloatArray:
    """(cells, combinations): products of columns, each scaled to a maximum of one."""
    logs = np.zeros((channels[0].space.size, len(combinations)))
    for number, channel in enumerate(channels):
        reports, which = np.unique(combinations[:, number], return_inverse=True)
        columns = [np.maximum(channel._column(int(report)), 0.0) for report in reports]
        with np.errstate(divide="ignore"):
            logs += np.log(np.stack(columns, axis=1))[:, which.ravel()] if columns else 0.0
    largest = logs.max(axis=0) if len(combinations) else np.zeros(0)
    if np.isneginf(largest).any():
        wrong = combinations[int(np.argmin(largest))].tolist()
        raise ImpossibleReport(
            f"reports must be possible together; the combination {wrong} "
            "has probability zero at every cell"
        )
    return np.asarray(np.exp(logs - largest))
