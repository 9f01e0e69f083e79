"""What was observed: tallies side by side, and several reports of one person."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, frozen, indices
from geoveil.channel.channel import Channel, Tally
from geoveil.errors import ImpossibleReport, InvalidInput
from geoveil.estimate.likelihood import ChannelLikelihood, Likelihood, StackedLikelihood, uniform
from geoveil.space.space import Space

_SUSPECT = 1e-12
_COMPLETE = 1e-6


class Observations:
    """Tallies of one space as one likelihood and one vector of counts.

    ``fit`` of every estimator starts here, so that wrong input is refused once and in one voice:
    no tallies, tallies of different spaces, no report at all, reports that no cell can have made.
    """

    space: Space
    tallies: tuple[Tally, ...]
    """As given, those of equal channels added up."""
    likelihood: Likelihood
    counts: IntArray
    """The counts of all tallies, one after the other."""

    def __init__(self, tallies: Tally | Iterable[Tally]) -> None:
        given = checked_tallies(tallies)
        for number, tally in enumerate(given):
            _check_possible(number, tally)
        self.tallies = _joined(given)
        self.space = self.tallies[0].space
        self.parts = tuple(ChannelLikelihood(tally.channel) for tally in self.tallies)
        self.likelihood = self.parts[0] if len(self.parts) == 1 else StackedLikelihood(self.parts)
        self.counts = np.concatenate([tally.counts for tally in self.tallies])
        self.total = int(self.counts.sum())

    def split(self, values: FloatArray) -> list[FloatArray]:
        """Values by observation, cut into one array for each tally."""
        ends = np.cumsum([part.observations for part in self.parts])[:-1]
        return np.split(values, ends, axis=-1)

    def complete(self, number: int) -> bool:
        """Whether the columns of a tally are all its reports, so that every row sums to one.

        Not so where the tally holds only what was seen: RAPPOR, several reports of one person.
        """
        part = self.parts[number]
        sums = part.pull(np.ones(part.observations))
        return bool(np.abs(sums - 1.0).max() < _COMPLETE)


def checked_tallies(tallies: Tally | Iterable[Tally]) -> tuple[Tally, ...]:
    """One tally or several of one space, with at least one report among them, or an error."""
    given: Sequence[Any] = [tallies] if isinstance(tallies, Tally) else _listed(tallies)
    if not given:
        raise InvalidInput("tallies must not be empty; pass at least one tally")
    for number, tally in enumerate(given):
        if not isinstance(tally, Tally):
            raise InvalidInput(
                f"tally {number} ({type(tally).__name__}) must be a tally; "
                "make one with mechanism.tally(reports)"
            )
        if tally.space != given[0].space:
            raise InvalidInput(f"tally {number} must be about the same space as tally 0")
    if not any(tally.total for tally in given):
        raise InvalidInput("tallies must hold at least one report; all counts are zero")
    return tuple(given)


def _check_possible(number: int, tally: Tally) -> None:
    """Refuse a report that was counted and that no cell can have made."""
    channel = tally.channel
    law = channel._push(uniform(channel.space.size))
    doubtful = (tally.counts > 0) & (law <= _SUSPECT * law.max(initial=0.0))
    for report in np.flatnonzero(doubtful):
        if not (channel._column(int(report)) > 0).any():
            raise ImpossibleReport(
                f"tally {number} must hold reports its channel can make; report {report} was "
                f"counted {tally.counts[report]} times and has probability zero at every cell"
            )


def _joined(tallies: tuple[Tally, ...]) -> tuple[Tally, ...]:
    if len(tallies) == 1:
        return tallies  # a channel is hashed by all its parameters
    joined: dict[Channel, Tally] = {}
    for tally in tallies:
        known = joined.get(tally.channel)
        joined[tally.channel] = tally if known is None else known + tally
    return tuple(joined.values())


def _listed(tallies: Any) -> list[Any]:
    try:
        return list(tallies)
    except TypeError:
        raise InvalidInput(
            f"tallies ({type(tallies).__name__}) must be a tally or a list of tallies; "
            "make one with mechanism.tally(reports)"
        ) from None


# --- Several reports of one person: the product of their columns


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
