"""Channels made of several over one space; several reports of one person about one place, and their tally."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from geoveil.arrays import ByParts, FloatArray, IntArray, frozen, indices, without_gaps
from geoveil.channel.channel import RARE, Channel, Information, PrivacyLoss, Tally
from geoveil.channel.guarantee import Guarantee, weakest
from geoveil.channel.operator import DenseOperator
from geoveil.errors import ImpossibleReport, InvalidInput, TooLarge
from geoveil.randomness import Randomness
from geoveil.space import AnyGrid, Points, Space

_MOST_ENTRIES = 1 << 23
_MOST_LETTERS = 1 << 20
"""Of the law of one cell alone, which an audit looks at."""
_POSSIBLE = 1e-200
_TOGETHER = 1 << 17
"""Cells × combinations that are multiplied together, small enough for a processor's cache."""


class ManyChannels(Channel):
    """A channel made of one or several over one space."""

    channels: tuple[Channel, ...]

    def _join(self, channels: Any) -> None:
        valid = isinstance(channels, Sequence) and all(isinstance(c, Channel) for c in channels)
        if not (valid and channels):
            raise InvalidInput("channels must be a list of at least one mechanism")
        self.channels, self.space = tuple(channels), channels[0].space
        if any(channel.space != self.space for channel in channels):
            raise InvalidInput("channels must share one space")

    def _promise(self) -> Guarantee | None:
        """The weakest of theirs, where it is implied by all: somebody may hold it."""
        return weakest([channel.guarantee for channel in self.channels])

    @property
    def told_apart(self) -> Space | None:
        """The positions themselves where all are about these."""
        between_positions = all(channel.told_apart is None for channel in self.channels)
        return None if between_positions else self.space

    # -- where in a cell somebody stands: what one of them depends on, all together do ----------------

    @property
    def _most_spread(self) -> Channel:
        return max(self.channels, key=lambda channel: channel.standing[1].size)

    @property
    def loss_across_cell(self) -> float:  # type: ignore[override]
        """The largest of theirs: a report comes from one of them."""
        return max(channel.loss_across_cell for channel in self.channels)

    @property
    def positions_across(self) -> int:  # type: ignore[override]
        return max(channel.positions_across for channel in self.channels)

    @property
    def standing(self) -> tuple[FloatArray, FloatArray]:
        return self._most_spread.standing

    @property
    def all_over(self) -> tuple[FloatArray, FloatArray]:
        return self._most_spread.all_over

    @property
    def starts_at_cells(self) -> bool:
        return all(channel.starts_at_cells for channel in self.channels)

    def somewhere(self, cells: IntArray, uniform: FloatArray) -> FloatArray:
        return self._most_spread.somewhere(cells, uniform)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        inside = np.zeros((cells.size, 2))
        if self.standing[1].size > 1:  # where somebody stands, once for all channels
            inside = self.somewhere(cells, randomness.uniform(2 * cells.size).reshape(-1, 2))
        return self._sample_from(cells, inside, randomness)

    # -- one of the channels for each person ------------------------------------------------------------

    def _largest_loss(self, *, exact: bool) -> PrivacyLoss | None:
        """The largest of theirs: what each of them keeps, all that somebody may use keep."""
        losses = [channel.closed_form_loss() for channel in self.channels]
        forms = [loss for loss in losses if loss is not None]
        if len(forms) < len(losses):
            return None
        slacks = [loss.slack for loss in forms if loss.slack is not None]
        if slacks and len(slacks) < len(forms):
            return None  # some between positions, some between cells: nothing holds for all
        worst = max(forms, key=lambda loss: loss.epsilon_per_km)
        epsilons = [loss.epsilon for loss in forms if loss.epsilon is not None]
        epsilon = max(epsilons) if len(epsilons) == len(forms) else None
        exact = exact and all(loss.exact for loss in forms)
        slack = max(slacks) if slacks else None
        return PrivacyLoss(worst.epsilon_per_km, epsilon, worst.pair, exact, worst.how, slack)

    def _choose_and_sample(
        self, shares: FloatArray, cells: IntArray, inside: FloatArray | None, randomness: Randomness
    ) -> tuple[IntArray, IntArray]:
        """Which channel each person uses and what it reports, from positions in the cells if given."""
        chosen = np.searchsorted(np.cumsum(shares)[:-1], randomness.uniform(cells.size))
        reports = np.empty(cells.size, dtype=np.int64)
        for number, channel in enumerate(self.channels):
            mine = np.flatnonzero(chosen == number)
            if inside is None:
                reports[mine] = channel._sample(cells[mine], randomness)
            else:
                reports[mine] = channel._sample_from(cells[mine], inside[mine], randomness)
        return chosen, reports


class JointChannel(ByParts, DenseOperator, ManyChannels):
    """A person makes one report through each channel; the combination is one report.

    Law: P(z₁, z₂, …|x) = P(z₁|x)·P(z₂|x)·…, combinations numbered with the last report running fastest.
    Where a law depends on the position in the cell, that is the mean over positions of such products; but
    not for noise on real places that is counted in cells (``noise.on(grid)``), whose rows are means already:
    its reports are taken as if people stood somewhere else in their cells each time.
    Guarantee: the sum of the parts', ``None`` where one has none.
    Cost: cells × combinations per product, up to 8,388,608 of them.

    >>> import geoveil as gv
    >>> coin = gv.RandomizedResponse(gv.Line(2), epsilon=1.0)
    >>> JointChannel([coin, coin]).guarantee
    LocalDifferentialPrivacy(epsilon=2.0)
    """

    _parts = ("channels",)
    shape, columns = Channel.shape, Channel.columns  # which need no matrix

    def __init__(self, channels: Sequence[Channel]) -> None:
        self._join(channels)
        self.sizes = tuple(channel.report_count for channel in channels)
        self.report_count = math.prod(self.sizes)

    def _promise(self) -> Guarantee | None:
        promises = [channel.guarantee for channel in self.channels]
        actual = [promise for promise in promises if promise is not None]
        return reduce(add, actual) if len(actual) == len(promises) else None

    @property
    def loss_across_cell(self) -> float:  # type: ignore[override]
        """The sum of theirs: a report holds one of each."""
        return sum(channel.loss_across_cell for channel in self.channels)

    def closed_form_loss(self) -> PrivacyLoss | None:
        """The sum of the parts', where all of them are between positions."""
        losses = [channel.closed_form_loss() for channel in self.channels]
        slacks = [loss.slack for loss in losses if loss is not None and loss.slack is not None]
        if len(slacks) < len(losses):
            return None
        total = sum(loss.epsilon_per_km for loss in losses if loss is not None)
        how = "the sum of bounds over all positions"
        return PrivacyLoss(total * (1 + 1e-12), None, None, False, how, sum(slacks))

    @property
    def enumerable(self) -> bool:
        """Whether all combinations fit a matrix."""
        return self.space.size * self.report_count <= _MOST_ENTRIES

    @cached_property
    def _matrix(self) -> FloatArray:  # type: ignore[override]
        """(cells, combinations)."""
        if not self.enumerable:
            raise TooLarge(
                f"combinations ({self.report_count}) × cells ({self.space.size}) must be at most "
                f"{_MOST_ENTRIES}; use their tally, which needs only those seen"
            )
        every, total = np.arange(self.report_count), np.zeros((self.space.size, self.report_count))
        for inside, share in zip(*self.standing, strict=True):
            total += share * self.columns_from(inside, every)
        return total

    def columns_from(self, inside: FloatArray, chosen: IntArray) -> FloatArray:
        parts = (c.columns_from(inside, np.arange(c.report_count)) for c in self.channels)
        return _of_all(np.maximum(part, 0.0) for part in parts)[:, chosen]

    def mean_of_distance_to(
        self, cells: IntArray, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        if self.starts_at_cells:
            return super().mean_of_distance_to(cells, function)
        assert isinstance(self.space, AnyGrid | Points)  # those with positions
        total, every = np.zeros(self.space.size), np.arange(self.report_count)
        for inside, share in zip(*self.all_over, strict=True):
            away = self.space.centres + inside * self.space.cell_km
            apart = function(scipy.spatial.distance.cdist(away, self.space.centres[cells]))
            total += share * (self.columns_from(inside, every) * apart).sum(axis=1)
        return total

    def laws_from(self, cell: int, inside: FloatArray) -> FloatArray:
        if self.report_count > _MOST_LETTERS:
            raise TooLarge(f"combinations ({self.report_count}) must be at most {_MOST_LETTERS}")
        return _of_all(channel.laws_from(cell, inside) for channel in self.channels)

    def _column(self, column: int) -> FloatArray:
        combination = np.array([np.unravel_index(column, self.sizes)])
        scaled, largest = _scaled_products(self, combination)
        return scaled[:, 0] * math.exp(largest[0])

    def _sample_from(self, cells: IntArray, inside: FloatArray, randomness: Randomness) -> IntArray:
        reports = tuple(
            channel._sample_from(cells, inside, randomness) for channel in self.channels
        )
        return np.asarray(np.ravel_multi_index(reports, self.sizes))

    def __repr__(self) -> str:
        return f"JointChannel({len(self.channels)} channels, {self.report_count} combinations)"


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

    channel: JointChannel
    complete = False

    def __init__(self, channels: Sequence[Channel], reports: npt.ArrayLike) -> None:
        channel, rows = JointChannel(channels), without_gaps("reports", reports)
        if rows.ndim != 2 or rows.shape[1] != len(channels):
            raise InvalidInput(
                f"reports (shape {rows.shape}) must have a row for each person "
                f"and {len(channels)} columns, one for each channel"
            )
        columns = [
            indices(f"reports of channel {number}", rows[:, number], size)
            for number, size in enumerate(channel.sizes)
        ]
        self._count(channel, np.stack(columns, axis=1), np.ones(len(rows), dtype=np.int64))

    def _count(self, channel: JointChannel, people: IntArray, times: IntArray) -> None:
        """The combinations (people, channels) that occur, in order, and how often."""
        if channel.report_count < 2**62:  # by one number each
            keys = np.ravel_multi_index(tuple(people.T), channel.sizes)
            distinct, which = np.unique(keys, return_inverse=True)
            combinations = np.stack(np.unravel_index(distinct, channel.sizes), axis=1)
        else:
            combinations, which = np.unique(people, axis=0, return_inverse=True)
        self.channel = channel
        self.combinations: IntArray = frozen(combinations)
        counts = np.bincount(which.ravel(), times, len(combinations)).astype(np.int64)
        self._counts = frozen(counts)
        columns, largest = _products(channel, combinations)
        self._columns = DenseOperator(frozen(columns))
        self._nats_left_out = float(counts @ largest)

    @property
    def operator(self) -> DenseOperator:
        """The columns of the combinations that were seen, each scaled to a maximum of one.

        No estimate depends on the factor of a column, and many reports of one person do not underflow.
        """
        return self._columns

    @property
    def nats_left_out(self) -> float:
        """Σ log of the largest entry of a column before it was scaled, over all people."""
        return self._nats_left_out

    def information(self, distribution: FloatArray) -> Information:
        """Expected over all combinations, or observed from those seen where there are too many.

        Combinations are many and most are rare; the floor is therefore on the people of each cell.
        """
        if not self.channel.enumerable:
            return self._observed_information(distribution)
        every = self.channel.matrix()
        people = np.maximum(self.total * distribution, RARE)
        numbers = np.ravel_multi_index(tuple(self.combinations.T), self.channel.sizes)
        counts = np.bincount(numbers, weights=self.counts, minlength=every.shape[1])
        possible = people @ every > _POSSIBLE
        columns = every[:, possible]
        variance = people @ columns
        missing = counts[possible] - self.total * (distribution @ columns)
        return Information(
            DenseOperator(columns),
            self.total**2 / variance,
            columns @ (missing * self.total / variance),
            "several reports of one person by all their combinations",
        )

    def _observed_information(self, distribution: FloatArray) -> Information:
        """The score is right up to a constant."""
        law = np.maximum(self.operator._push(distribution), np.finfo(float).tiny)
        return Information(
            self.operator,
            self.counts / law**2,
            self.operator._pull(self.counts / law),
            "observed information of the reports seen, too narrow where each kind was seen a few times",
        )

    def telling_columns(self) -> FloatArray:
        """The columns of all combinations, or of those seen where there are too many."""
        return (self.channel if self.channel.enumerable else self.operator).matrix()

    def _plus(self, other: Tally) -> JointTally:
        """Both crowds together: a combination counts as often as in the two."""
        assert isinstance(other, JointTally)
        both = JointTally.__new__(JointTally)
        people = np.concatenate((self.combinations, other.combinations))
        both._count(self.channel, people, np.concatenate((self.counts, other.counts)))
        return both


def _of_all(laws: Iterable[FloatArray]) -> FloatArray:
    """(rows, reports) of each channel → (rows, combinations): the products."""
    return reduce(lambda one, more: (one[..., None] * more[:, None]).reshape(len(one), -1), laws)


def _reports_seen(
    joint: JointChannel, combinations: IntArray
) -> tuple[Any, list[tuple[Channel, IntArray]]]:
    """How often each combination has each report, (combinations, reports), and which these are by channel:
    several reports through one channel are counted together."""
    place, seen, size = np.empty_like(combinations), [], 0
    for channel in {id(each): each for each in joint.channels}.values():
        numbers = [number for number, each in enumerate(joint.channels) if each is channel]
        reports, which = np.unique(combinations[:, numbers], return_inverse=True)
        place[:, numbers] = size + which.reshape(-1, len(numbers))
        seen.append((channel, reports))
        size += reports.size
    rows = np.repeat(np.arange(len(combinations)), len(joint.channels))
    pairs = np.ones(place.size), (rows, place.ravel())
    return scipy.sparse.csr_array(pairs, shape=(len(combinations), size)), seen


def _scaled_products(joint: JointChannel, combinations: IntArray) -> tuple[FloatArray, FloatArray]:
    """(cells, combinations): the means over positions of products of columns, each scaled to a maximum
    of one; and the logarithms (combinations,) of what these were."""
    often, seen = _reports_seen(joint, combinations)
    columns = np.zeros((joint.space.size, len(combinations)))
    largest = np.full(len(combinations), -np.inf)
    step = max(1, _TOGETHER // joint.space.size)
    for inside, share in zip(*joint.standing, strict=True):
        parts = [channel.columns_from(inside, reports).T for channel, reports in seen]
        with np.errstate(divide="ignore"):
            logs = np.log(np.maximum(np.concatenate(parts), 0.0))
        for start in range(0, len(combinations), step):
            some = slice(start, start + step)
            products = often[some] @ logs
            top = np.maximum(largest[some], products.max(axis=1))
            shift = np.where(np.isneginf(top), 0.0, top)
            columns[:, some] *= np.exp(largest[some] - shift)
            columns[:, some] += share * np.exp(products - shift[:, None]).T
            largest[some] = top
    most = columns.max(axis=0, initial=0.0)
    possible = most > 0.0
    columns /= np.where(possible, most, 1.0)
    return columns, largest + np.log(most, out=np.zeros_like(most), where=possible)


def _products(joint: JointChannel, combinations: IntArray) -> tuple[FloatArray, FloatArray]:
    """The same; refused where a combination is possible nowhere."""
    columns, largest = _scaled_products(joint, combinations)
    if np.isneginf(largest).any():
        wrong = combinations[int(np.argmin(largest))].tolist()
        raise ImpossibleReport(
            f"reports must be possible together; the combination {wrong} "
            "has probability zero at every cell"
        )
    return columns, largest
