"""Pairs: trip reports counted pair by pair, where trips may begin and end, and the operator between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import scipy

from geoveil.arrays import FloatArray, IntArray, ReadOnly, frozen, indices
from geoveil.channel.channel import Channel, checked_channel, whole_counts
from geoveil.channel.observed import TINY
from geoveil.channel.operator import DenseOperator, Operator
from geoveil.errors import InvalidInput, Unsupported, number_of
from geoveil.space.masked_grid import AnyGrid
from geoveil.space.points import Points
from geoveil.space.space import MATRIX_LIMIT

MOST_SPOTS = 2_048
"""Up to so many the rows of all spots are held as a matrix, and products are matrix products."""
Classes = npt.NDArray[np.int8]
_ACROSS = 2
"""Spots a side of a square cell where rows depend on the position in it."""
_BESIDE, _INSIDE = 4, 9
"""Other reports that one is compared with, and positions a side of a cell from which that is done."""


class TripTally(ReadOnly):
    """How often each pair of reports came: one cell for where trips began, one for where they ended.

    Only pairs that were seen are kept, so memory is that of the different pairs. Tallies of one
    mechanism add.

    >>> import geoveil as gv
    >>> tally = TripTally(gv.RandomizedResponse(gv.Line(3), epsilon=2.0), [0, 0, 2], [1, 1, 2])
    >>> tally.pairs.tolist(), tally.counts.tolist(), tally.total
    ([[0, 1], [2, 2]], [2, 1], 3)
    """

    channel: Channel
    """The channel that made both reports of every trip."""
    pairs: IntArray
    """(pairs, 2): the reports of the pairs seen, each once, in order."""
    counts: IntArray
    """(pairs,): how often each was seen."""

    def __init__(
        self,
        channel: Channel,
        origins: npt.ArrayLike,
        destinations: npt.ArrayLike,
        counts: npt.ArrayLike | None = None,
    ) -> None:
        self.channel = pairable(channel)
        size = channel.report_count
        begun = indices("origins", origins, size).ravel()
        ended = indices("destinations", destinations, size).ravel()
        check_both_ends(begun.size, ended.size)
        often = whole_counts(np.ones(begun.size) if counts is None else counts, begun.size, "pair")
        coded, which = np.unique(begun * size + ended, return_inverse=True)
        total = np.zeros(coded.size, dtype=np.int64)
        np.add.at(total, which.ravel(), often)
        self.pairs = frozen(np.stack(np.divmod(coded[total > 0], size), axis=1))
        self.counts = frozen(total[total > 0])

    @property
    def total(self) -> int:
        """How many trips were reported."""
        return int(self.counts.sum())

    def of_origins(self) -> IntArray:
        """How often each report stands for where a trip began."""
        return self._side(0)

    def of_destinations(self) -> IntArray:
        """How often each report stands for where a trip ended."""
        return self._side(1)

    def _side(self, side: int) -> IntArray:
        counted = np.bincount(self.pairs[:, side], self.counts, self.channel.report_count)
        return counted.astype(np.int64)

    def __add__(self, other: TripTally) -> TripTally:
        if not isinstance(other, TripTally):
            return NotImplemented
        if other.channel is not self.channel and other.channel != self.channel:
            raise InvalidInput("trip tallies must come from the same mechanism to be added")
        pairs = np.concatenate([self.pairs, other.pairs])
        counts = np.concatenate([self.counts, other.counts])
        return TripTally(self.channel, pairs[:, 0], pairs[:, 1], counts)

    def __radd__(self, other: object) -> Self:
        """From the 0 that ``sum`` begins with."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __repr__(self) -> str:
        pairs = number_of(len(self.pairs), "different pair")
        return f"TripTally({number_of(self.total, 'trip')}, {pairs} of {self.channel!r})"


def check_both_ends(origins: int, destinations: int) -> None:
    """Refuse trips of which only one end is known."""
    if origins != destinations:
        raise InvalidInput(
            f"origins ({origins}) must be as many as destinations ({destinations}); leave out trips "
            "of which only one end is known"
        )


def pairable(channel: Channel) -> Channel:
    """The channel, if its reports are whole numbers that can be paired."""
    if type(checked_channel("mechanism", channel)).tally is not Channel.tally:
        raise Unsupported(
            f"reports of {channel!r} are not cells; use one that reports cells, such as gv.elastic(grid, …)"
        )
    return channel


@dataclass(frozen=True)
class Spots:
    """Where people may stand: cells, or a few places in each where a report depends on the position.

    Between positions, two people of one cell need not stand together: a trip within a cell and one
    over its border are told apart by quarters, which whole cells cannot (docs/trips.md).
    Spot k·cells + x is the k-th of cell x.
    """

    operator: Operator
    """(spots, reports): the law of reports at every spot."""
    cells: int
    centres_km: FloatArray
    """(spots, any)."""
    cell_km: float
    """How far neighbouring cells are apart."""
    blind: bool = False
    """Whether reports depend on the position in a cell, which is passed over: there are too many."""

    @classmethod
    def of(cls, channel: Channel) -> Spots:
        """Places in cells between positions, as long as their rows make a matrix; else cells.

        Quarters of square cells; others have the places at which their law is averaged.
        """
        space, (standing, _) = channel.space, channel.standing
        if isinstance(space, AnyGrid) and len(standing) > 1:
            line = (np.arange(_ACROSS) + 0.5) / _ACROSS - 0.5
            standing = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
        if isinstance(space, AnyGrid | Points) and 1 < len(standing) <= MOST_SPOTS // space.size:
            reports = np.arange(channel.report_count)
            rows = np.concatenate([channel.columns_from(at, reports) for at in standing])
            places = np.concatenate([space.centres + at * space.cell_km for at in standing])
            return cls(DenseOperator(rows), space.size, places, space.cell_km)
        operator: Operator = channel
        if space.size <= MOST_SPOTS:
            operator = DenseOperator(channel.matrix())
        blind = len(standing) > 1
        return cls(operator, space.size, space.centres, space.least_distance_km, blind)

    @property
    def size(self) -> int:
        """How many there are."""
        return self.operator.shape[0]

    @property
    def pitch_km(self) -> float:
        """How far neighbouring spots are apart."""
        return self.cell_km / float(np.sqrt(self.size // self.cells))

    def distances_km(self, first: int | None = None) -> FloatArray:
        """(spots, spots); of the first alone, one for each cell, the distances of cells."""
        if self.size > MATRIX_LIMIT:
            raise Unsupported(
                f"{self.size:,} cells must be at most {MATRIX_LIMIT:,} to estimate flows between them; "
                "use larger cells"
            )
        places = self.centres_km[:first]
        return np.asarray(scipy.spatial.distance.cdist(places, places))

    def classes(self, edges_km: FloatArray) -> Classes:
        """(cells, cells): the number of the class that their distance lies in; empty ones have none."""
        apart = np.digitize(self.distances_km(self.cells), edges_km).astype(np.int8)
        return np.searchsorted(np.unique(apart), apart).astype(np.int8)

    def blocks(self, side: int) -> IntArray:
        """(spots,): the block of about side × side cells that each lies in, by number."""
        if self.cells == 1:  # with no neighbour to be apart from
            return np.zeros(self.size, dtype=np.int64)
        places = self.centres_km[: self.cells]
        from_corner = places - places.min(axis=0) + self.cell_km / 2
        _, block = np.unique(from_corner // (side * self.cell_km), axis=0, return_inverse=True)
        return np.tile(np.asarray(block).ravel(), self.size // self.cells)

    def between_cells(self, flows: FloatArray) -> FloatArray:
        """(…, spots²) → (…, cells, cells): what stands at spots, summed over the spots of each cell."""
        many = self.size // self.cells
        parts = flows.reshape(*flows.shape[:-1], many, self.cells, many, self.cells)
        return np.asarray(parts.sum(axis=(-4, -2)))


class PairOperator(Operator):
    """C⊗C on some pairs of reports: rows are pairs of spots, columns the pairs of reports.

    Law: push gives (CᵀΘC)[y, z] for every pair (y, z), pull gives C·V·Cᵀ with V zero but at the pairs;
    each is a product on either side, and no matrix of pairs by pairs exists.
    Cost: 2·spots products of the channel, for each vector.
    """

    def __init__(self, side: Operator, pairs: IntArray) -> None:
        self._side = side
        self._pairs = pairs
        self.exact = side.exact

    @property
    def shape(self) -> tuple[int, int]:
        return self._side.shape[0] ** 2, len(self._pairs)

    def law(self, theta: FloatArray) -> FloatArray:
        """(spots²,) → (reports, reports): the law of all pairs of reports."""
        spots = self._side.shape[0]
        ended = self._side._push(theta.reshape(spots, spots))  # (spots, reports): by destination
        # (reports of the end, of the begin), turned round
        return self._side._push(np.ascontiguousarray(ended.T)).T

    def _push(self, theta: FloatArray) -> FloatArray:
        first, second = self._pairs.T
        vectors = theta.reshape(-1, theta.shape[-1])
        laws = np.empty((len(vectors), len(self._pairs)))
        for law, vector in zip(laws, vectors, strict=True):  # one by one: memory for one law
            law[:] = self.law(vector)[first, second]
        return laws.reshape(*theta.shape[:-1], -1)

    def _pull(self, values: FloatArray) -> FloatArray:
        spots, reports = self._side.shape
        first, second = self._pairs.T
        vectors = values.reshape(-1, values.shape[-1])
        pulled = np.empty((len(vectors), spots, spots))
        table = np.zeros((reports, reports))  # by report of the begin, of the end
        for result, vector in zip(pulled, vectors, strict=True):
            table[first, second] = vector
            ended = self._side._pull(table)  # (reports of the begin, spots of the end)
            result[:] = self._side._pull(np.ascontiguousarray(ended.T)).T
        return pulled.reshape(*values.shape[:-1], -1)

    def _column(self, column: int) -> FloatArray:
        first, second = (int(report) for report in self._pairs[column])
        return np.outer(self._side._column(first), self._side._column(second)).ravel()

    def _row(self, row: int) -> FloatArray:
        begun, ended = divmod(row, self._side.shape[0])
        first, second = self._pairs.T
        return np.asarray(self._side._row(begun)[first] * self._side._row(ended)[second])


# --- What no flows explain


def pair_chances(tally: TripTally) -> FloatArray:
    """(pairs,): how often honest people, whatever their trips, would send each pair seen so often or oftener.

    Law: a report y has some others S(y) beside it that are likely where y is. From wherever, y is at most
    λ_y = max_x C[x, y] / Σ_{s in S(y)} C[x, s] times as likely as all of these together. So any flows that
    send a pair (y, z) send its neighbours, the other pairs of ({y} ∪ S(y)) × ({z} ∪ S(z)), at least
    1/ρ = (1 + 1/λ_y)·(1 + 1/λ_z) − 1 times as often. Of the trips that came as either, those of the pair are
    binomial with a chance of at most ρ/(1 + ρ). No model is fitted.
    Between positions x is one of nine positions a side in every cell, its edges among them, and λ_y as much
    larger as it may be between them: e^{2ε·r}, r the farthest from one of them.
    """
    ratio, beside = _beside(tally.channel)
    near = beside + scipy.sparse.eye_array(len(ratio))
    often = scipy.sparse.csr_array((tally.counts, tuple(tally.pairs.T)), shape=near.shape)
    first, second = tally.pairs.T
    around = np.asarray((near.T @ often @ near).tocsr()[first, second]).ravel() - tally.counts
    more = 1.0 + 1.0 / ratio
    neighbours = more[first] * more[second] - 1.0
    return np.asarray(scipy.special.betainc(tally.counts, around + 1.0, 1.0 / (1.0 + neighbours)))


def _beside(channel: Channel) -> tuple[FloatArray, scipy.sparse.csr_array]:
    """λ of every report, and (reports, reports): one where a report stands beside the one of the column."""
    channel.space.check_matrix("the law of pairs")
    reports = np.arange(channel.report_count)
    middle = np.maximum(channel.columns(reports), 0.0)
    there = middle[middle.argmax(axis=0)]  # (reports, reports): the law where each is likeliest
    there[reports, reports] = -1.0
    number = min(_BESIDE, reports.size - 1)
    chosen = np.argpartition(-there, number - 1, axis=1)[:, :number] if number else there[:, :0]
    places = chosen.astype(np.int64).ravel(), np.repeat(reports, number)
    beside = scipy.sparse.csr_array((np.ones(chosen.size), places), shape=there.shape)
    line = np.linspace(-0.5, 0.5, _INSIDE) if channel.standing[1].size > 1 else np.zeros(1)
    ratio = np.zeros(reports.size)
    for east in line:
        for north in line:
            law = np.maximum(channel.columns_from(np.array([east, north]), reports), 0.0)
            others = np.maximum(law @ beside, TINY)
            ratio = np.maximum(ratio, (law / others).max(axis=0))
    farthest = np.sqrt(0.5) / max(1, line.size - 1)  # in cells
    return ratio * np.exp(2 * channel.loss_across_cell * farthest), beside
