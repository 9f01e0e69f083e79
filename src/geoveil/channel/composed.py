"""Channels made of a matrix, of a rank-one part, or of other channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import scipy

from geoveil.arrays import (
    ArrayLike,
    ByParts,
    FloatArray,
    IntArray,
    by_position,
    distribution,
    frozen,
    indices,
    numbers,
    sums_of_rows,
    uniform,
)
from geoveil.channel.certificate import Certificate, check_claim, enumerated
from geoveil.channel.channel import Channel, PrivacyLoss, checked_channel
from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee, checked_guarantee
from geoveil.channel.joint import ManyChannels
from geoveil.channel.kernel import kernel_on
from geoveil.channel.operator import DenseOperator, StackedOperator
from geoveil.errors import InvalidInput
from geoveil.randomness import Randomness
from geoveil.space.grid import Grid, Line
from geoveil.space.space import MATRIX_LIMIT, Space, checked_space

_QUICK = 1024
"""Up to so many cells all pairs of rows are compared in seconds."""


class DenseChannel(DenseOperator, Channel):
    """Any channel, by its matrix: C[x, y] = P(y | x).

    Guarantee: the largest loss per km between any two rows, enumerated when it is first asked for (m²·n
    steps, up to 4,096 cells) and rounded up; ``None`` where that is infinite. Another promise may
    be stated with ``guarantee=``: it is enumerated at once, and refused where the matrix breaks it.
    Cost: m·n per product.

    >>> import geoveil as gv
    >>> coin = gv.DenseChannel(gv.Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> coin.push([1.0, 0.0]).tolist()
    [0.75, 0.25]
    >>> coin.guarantee.amount("unit")
    'ε = 1.09862 per unit'
    """

    _certificate: Certificate | None = None
    """What was enumerated last."""

    def __init__(
        self, space: Space, matrix: ArrayLike, *, guarantee: Guarantee | None = None
    ) -> None:
        self.space = checked_space(space)
        DenseOperator.__init__(self, frozen(_stochastic(matrix, space.size)))
        self.report_count = self._matrix.shape[1]
        self._fixed = checked_guarantee("guarantee", guarantee)
        if self._fixed is not None:
            check_claim(self, self._fixed)

    def _promise(self) -> Guarantee | None:
        return self._enumerated if self._fixed is None else self._fixed

    @property
    def promise_takes_long(self) -> bool:  # type: ignore[override]
        """A matrix of more than 1,024 cells whose loss nobody has asked for yet."""
        ready = self._fixed is not None or "_enumerated" in vars(self)
        return not ready and _QUICK < self.space.size <= MATRIX_LIMIT

    @cached_property
    def _enumerated(self) -> Guarantee | None:
        if self.space.size > MATRIX_LIMIT:
            return None
        own = enumerated(self, None)
        return GeoIndistinguishability(own.epsilon_per_km) if own.holds else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DenseChannel) or self.space != other.space:
            return False
        # nothing is enumerated where the same was stated, or each has the promise of the same matrix
        same = type(self) is type(other) and self._fixed == other._fixed
        alike = np.array_equal(self._matrix, other._matrix)
        return alike and (same or self.guarantee == other.guarantee)

    def __hash__(self) -> int:
        return hash((self.space, self.report_count))

    def __repr__(self) -> str:
        return f"DenseChannel({self.space!r}, {self.space.size} × {self.report_count})"


class UnpromisedChannel(DenseChannel):
    """A matrix that promises nothing, whatever its loss is; ``certify`` says what that is."""

    def __init__(self, space: Space, matrix: ArrayLike) -> None:
        super().__init__(space, matrix)
        self._enumerated = None  # nobody has to ask


@enumerated.register
def _enumerated_once(channel: DenseChannel, claim: Guarantee | None) -> Certificate:
    """An earlier certificate answers for the same claim, and for any that its loss implies."""
    before = channel._certificate
    if before is not None and claim == before.claimed:
        return before
    if before is not None and math.isfinite(before.epsilon_per_km):
        loss = GeoIndistinguishability(before.epsilon_per_km)
        if claim is None or loss.implies(claim):
            return replace(before, claimed=claim, holds=True, problem=None)
    channel._certificate = enumerated.dispatch(Channel)(channel, claim)
    return channel._certificate


def _stochastic(matrix: ArrayLike, size: int) -> FloatArray:
    array = numbers(
        "matrix", by_position("matrix", matrix, axes=2), "rows of numbers, all of one length"
    ).copy("K")
    if array.ndim != 2 or array.shape[0] != size or array.shape[1] == 0:
        raise InvalidInput(
            f"matrix (shape {array.shape}) must have {size} rows, one per cell, and a column per report"
        )
    sums_of_rows("matrix", array, tolerance=1e-9)
    return array


# --- A channel that is a diagonal plus a matrix of rank one


class RankOneChannel(Channel):
    """C[x, y] = diagonal[x]·[x = y] + left[x]·right[y], reports are cells; products cost O(m)."""

    _made_of = ("_diagonal", "_left", "_right")

    def __init__(
        self, space: Space, diagonal: FloatArray, left: FloatArray, right: FloatArray
    ) -> None:
        self.space = space
        self.report_count = space.size
        self._diagonal, self._left, self._right = diagonal, left, right

    def _push(self, theta: FloatArray) -> FloatArray:
        return theta * self._diagonal + (theta @ self._left)[..., None] * self._right

    def _pull(self, values: FloatArray) -> FloatArray:
        return values * self._diagonal + (values @ self._right)[..., None] * self._left

    def _row(self, row: int) -> FloatArray:
        entries = self._left[row] * self._right
        entries[row] += self._diagonal[row]
        return entries

    def _column(self, column: int) -> FloatArray:
        entries = self._left * self._right[column]
        entries[column] += self._diagonal[column]
        return entries

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        if not isinstance(self.space, Grid | Line):
            return super().mean_of_distance(function)
        own = self._diagonal * function(np.zeros(1))
        return np.asarray(own + self._left * kernel_on(self.space, function)._push(self._right))


# --- The average of several channels: the mechanism of a person drawn at random


class AverageChannel(ByParts, ManyChannels):
    """Σ w_i C_i for channels over the same space with the same reports.

    Guarantee: the weakest of the parts', where one of them is implied by all others; else none.
    Cost: that of all the parts together.
    Reference: FREEWILL eq. (7), A[n].

    >>> from geoveil.channel.composed import DenseChannel
    >>> from geoveil.space.grid import Line
    >>> honest = DenseChannel(Line(2), [[0.75, 0.25], [0.25, 0.75]])
    >>> contrary = DenseChannel(Line(2), [[0.25, 0.75], [0.75, 0.25]])
    >>> AverageChannel([honest, contrary], [0.5, 0.5]).matrix().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    _parts = ("channels", "weights")

    def __init__(self, channels: Sequence[Channel], weights: ArrayLike) -> None:
        self._join(channels)
        self.weights: FloatArray = frozen(distribution("weights", weights, len(self.channels)))
        self.report_count = self.channels[0].report_count
        counts = sorted({channel.report_count for channel in self.channels})
        if len(counts) > 1:
            raise InvalidInput(
                f"channels (with {', '.join(map(str, counts))} reports) must have the same "
                "reports to be averaged; use AverageOfEstimates or IterativeBayesianUpdate"
            )

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._mean(channel._push(theta) for channel in self.channels)

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        return self._mean(channel._push_noise(theta) for channel in self.channels)

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._mean(channel._pull(values) for channel in self.channels)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        return self._mean(channel._pull_noise(values) for channel in self.channels)

    def _row(self, row: int) -> FloatArray:
        return self._mean(channel._row(row) for channel in self.channels)

    def _column(self, column: int) -> FloatArray:
        return self._mean(channel._column(column) for channel in self.channels)

    def closed_form_loss(self) -> PrivacyLoss | None:
        """A bound: the largest loss of the parts."""
        return self._largest_loss(exact=False)

    def columns_from(self, inside: FloatArray, chosen: IntArray) -> FloatArray:
        return self._mean(channel.columns_from(inside, chosen) for channel in self.channels)

    def laws_from(self, cell: int, inside: FloatArray) -> FloatArray:
        return self._mean(channel.laws_from(cell, inside) for channel in self.channels)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        if self.standing[1].size == 1:
            return Channel._sample(self, cells, randomness)
        return super()._sample(cells, randomness)

    def _sample_from(self, cells: IntArray, inside: FloatArray, randomness: Randomness) -> IntArray:
        return self._choose_and_sample(self.weights, cells, inside, randomness)[1]

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        return self._mean(channel.mean_of_distance(function) for channel in self.channels)

    def mean_of_distance_to(
        self, cells: IntArray, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        return self._mean(channel.mean_of_distance_to(cells, function) for channel in self.channels)

    def _mean(self, parts: Iterable[FloatArray]) -> FloatArray:
        return np.asarray(sum(w * part for w, part in zip(self.weights, parts, strict=True)))

    def __repr__(self) -> str:
        return f"AverageChannel({len(self.channels)} channels over {self.space!r})"


# --- Several channels side by side: people who chose different mechanisms, seen as one operator


class StackedChannel(ByParts, StackedOperator, ManyChannels):
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

    _parts = ("channels", "shares")

    def __init__(self, channels: Sequence[Channel], shares: ArrayLike | None = None) -> None:
        self._join(channels)
        number = len(channels)
        given = uniform(number) if shares is None else distribution("shares", shares, number)
        self.shares: FloatArray = frozen(given)
        StackedOperator.__init__(self, self.channels, self.shares)
        self.report_count = int(self.starts[-1])

    def closed_form_loss(self) -> PrivacyLoss | None:
        """The largest of the parts': a share scales all of a column alike."""
        return self._largest_loss(exact=bool((self.shares > 0).all()))

    def columns_from(self, inside: FloatArray, chosen: IntArray) -> FloatArray:
        parts = [
            DenseOperator(part.columns_from(inside, np.arange(part.report_count)))
            for part in self.channels
        ]
        return StackedOperator(parts, self.shares).columns(chosen)

    def laws_from(self, cell: int, inside: FloatArray) -> FloatArray:
        parts = zip(self.shares, self.channels, strict=True)
        laws = [share * channel.laws_from(cell, inside) for share, channel in parts]
        return np.concatenate(laws, axis=1)

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        means = [channel.mean_of_distance(function) for channel in self.channels]
        return np.asarray(self.shares @ means)

    def mean_of_distance_to(
        self, cells: IntArray, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        parts = zip(self.channels, np.split(cells, self.starts[1:-1]), strict=True)
        means = [channel.mean_of_distance_to(own, function) for channel, own in parts]
        return np.asarray(self.shares @ means)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        chosen, reports = self._choose_and_sample(self.shares, cells, None, randomness)
        return self.starts[chosen] + reports

    def _sample_from(self, cells: IntArray, inside: FloatArray, randomness: Randomness) -> IntArray:
        chosen, reports = self._choose_and_sample(self.shares, cells, inside, randomness)
        return self.starts[chosen] + reports

    def __repr__(self) -> str:
        return f"StackedChannel({len(self.channels)} channels, {self.report_count} reports)"


# --- A channel followed by a fixed map of its reports


class Remapped(ByParts, ManyChannels):
    """Every report y of a channel is replaced by the cell ``map[y]``.

    Law: P(z|x) = Σ_{y: map[y] = z} C[x, y].
    Guarantee: unchanged, as it is post-processing; a collector can do it as well as a device.
    Cost: that of the channel.
    Reference: NOISE §6 (remapping).

    >>> import geoveil as gv
    >>> line = gv.LinearGeometric(gv.Line(4), epsilon_per_unit=1.0)
    >>> Remapped(line, [0, 0, 3, 3]).row(0).round(1).tolist()
    [0.9, 0.0, 0.0, 0.1]
    """

    _parts = ("channel", "map")

    def __init__(self, channel: Channel, map: ArrayLike) -> None:
        self._join([checked_channel("channel", channel)])
        self.channel = channel
        self.report_count = channel.space.size
        self.map: IntArray = frozen(indices("map", by_position("map", map), self.space.size).copy())
        if self.map.shape != (channel.report_count,):
            raise InvalidInput(
                f"map (shape {self.map.shape}) must have {channel.report_count} entries, one per report"
            )
        self._gather = scipy.sparse.csr_array(
            (np.ones(self.map.size), (self.map, np.arange(self.map.size))),
            shape=(self.report_count, self.map.size),
        )

    def closed_form_loss(self) -> PrivacyLoss | None:
        """That of the channel, now an upper bound: putting reports together can only hide."""
        if (loss := self.channel.closed_form_loss()) is None:
            return None
        how = f"{loss.how}, before a map"
        return replace(loss, pair=None, exact=False, how=how)

    def columns_from(self, inside: FloatArray, chosen: IntArray) -> FloatArray:
        before = self.channel.columns_from(inside, np.arange(self.map.size))
        return self._gathered(before)[:, chosen]

    def _sample_from(self, cells: IntArray, inside: FloatArray, randomness: Randomness) -> IntArray:
        return self.map[self.channel._sample_from(cells, inside, randomness)]

    def laws_from(self, cell: int, inside: FloatArray) -> FloatArray:
        return self._gathered(self.channel.laws_from(cell, inside))

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._gathered(self.channel._push(theta))

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        noise = self.channel._push_noise(theta)
        return self._gathered(np.broadcast_to(noise, (*theta.shape[:-1], self.map.size)))

    def _gathered(self, law: FloatArray) -> FloatArray:
        flat = law.reshape(-1, law.shape[-1])
        gathered: FloatArray = (self._gather @ flat.T).T.reshape(*law.shape[:-1], self.report_count)
        return gathered

    def _pull(self, values: FloatArray) -> FloatArray:
        return self.channel._pull(values[..., self.map])

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        return self.channel._pull_noise(values[..., self.map])

    def mean_of_distance_to(
        self, cells: IntArray, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """From where the channel starts, to where its reports are moved."""
        return self.channel.mean_of_distance_to(cells[self.map], function)

    def _row(self, row: int) -> FloatArray:
        return self._gathered(self.channel._row(row))

    def _column(self, column: int) -> FloatArray:
        entries = np.zeros(self.space.size)
        for report in np.flatnonzero(self.map == column):
            entries += self.channel._column(int(report))
        return entries

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        return self.map[self.channel._sample(cells, randomness)]

    def __repr__(self) -> str:
        return f"Remapped({self.channel!r}, {np.unique(self.map).size} cells left)"
