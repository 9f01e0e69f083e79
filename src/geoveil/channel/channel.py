"""The channel: an operator whose rows are the laws of reports at the true cells; and the tally of reports."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy

from geoveil.arrays import (
    FloatArray,
    IntArray,
    ReadOnly,
    by_position,
    frozen,
    indices,
    instance,
    without_gaps,
)
from geoveil.channel import words
from geoveil.channel.guarantee import (
    BetweenPositions,
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
    Promising,
)
from geoveil.channel.operator import Operator
from geoveil.errors import InvalidInput, Unsupported, number_of
from geoveil.holding import Drawn, Framed, Shown, below
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space.space import MATRIX_LIMIT, Space

Reports = npt.NDArray[Any]
"""Whole numbers, one for each report; bit vectors along the last axis for RAPPOR."""

_PARTS = 12
"""Parts of a side of a cell with two positions each, where draws from all over it are looked at."""
_AT_ONCE = 1 << 20
"""Entries of laws that are held at once."""
FLOAT_TOLERANCE = 1e-9
"""What a table of floats can show: its claim is met to nine digits. Integer tables get none."""


@dataclass(frozen=True)
class PrivacyLoss:
    """The largest log-ratio of two rows, in two measures, rounded up.

    ``pair`` are the two cells with the largest loss per km. Where no closed form is known for one of
    the measures, it is ``None``.
    """

    epsilon_per_km: float
    epsilon: float | None
    pair: tuple[int, int] | None
    exact: bool
    how: str
    """How it was found, in words."""
    slack: float | None = None
    """Where the loss is between positions: what rounding adds to it, whatever their distance."""
    place_km: tuple[float, float] | None = None
    """The place around which positions lose most per km, east and north in the plane of the space."""
    keeps: Callable[[BetweenPositions], bool] | None = None
    """What devices ask of a claim between positions: it may show one a little below the loss."""

    def proves(self, claim: Guarantee) -> bool:
        """Whether a channel with this loss keeps what is claimed."""
        lower = 1 - FLOAT_TOLERANCE
        if self.slack is not None:
            if BetweenPositions(self.epsilon_per_km * lower, self.slack).implies(claim):
                return True
            if self.keeps is None or not isinstance(claim, BetweenPositions):
                return False
            return self.keeps(claim)
        if GeoIndistinguishability(self.epsilon_per_km * lower).implies(claim):
            return True
        return self.epsilon is not None and (
            LocalDifferentialPrivacy(self.epsilon * lower).implies(claim)
        )


class Excerpt(NamedTuple):
    """What reports tell about some cells alone: all an audit of the draws needs."""

    laws: FloatArray
    """(cells, letters): the probability of each letter at each cell."""
    letters: Callable[[Reports], IntArray]
    """Reports as letters, their shape that of the cells they were drawn at."""
    report_shape: tuple[int, ...]
    """The shape of one report: a whole number, or so many bits."""
    report_values: int
    """Reports hold whole numbers below this."""


class Places(Operator):
    """P(report | place): rows are places in the cells, whose mean by ``share`` is the row of the cell."""

    cell: IntArray
    """(places,): the cell that each is in."""
    share: FloatArray
    """(places,): how many of the people of its cell stand there, spread evenly."""
    offset: FloatArray
    """(places, 2): east and north of the centre of its cell, in cells."""


class Channel(Promising, Shown, Operator):
    """P(report | true cell) as an operator: rows are cells and sum to one, columns are reports.

    Besides what every operator defines: ``space``, ``report_count``, ``_row``, and ``guarantee``, which
    follows from the law. Overridden where structure allows: ``_sample`` (without building rows),
    ``closed_form_loss``.
    """

    _names = ("cell", "report")
    space: Space
    report_count: int

    # -- must be defined -------------------------------------------------------------------------

    @abstractmethod
    def _row(self, row: int) -> FloatArray:
        """The law of reports at one cell, exact."""

    # -- may be overridden -----------------------------------------------------------------------

    def closed_form_loss(self) -> PrivacyLoss | None:
        """The exact loss of the law by a closed form, rounded up; ``None`` where there is none."""
        return None

    def compared_table(self) -> tuple[FloatArray, float]:
        """What ``certify`` enumerates: rows up to one common factor, and the tolerance of its claim."""
        return self.matrix(), FLOAT_TOLERANCE

    @property
    def excerpt_cells(self) -> int:
        """How many cells an audit draws at: their laws have at most 2²⁴ entries."""
        return max(4, min(16, (1 << 24) // self.report_count))

    def excerpt(self, cells: IntArray) -> Excerpt:
        """What reports tell about some cells; here the letters are the reports themselves.

        Draws come from all over the cells, where products take a few positions: so do these laws.
        """
        laws = np.stack([self._law_all_over(cell) for cell in cells.tolist()])
        return Excerpt(laws, lambda reports: reports, (), self.report_count)

    def _law_all_over(self, cell: int) -> FloatArray:
        places, _ = self.standing
        if len(places) > 1:
            line, shares = positions_on_a_side(2)
            even = ((np.arange(_PARTS)[:, None] + 0.5 + line) / _PARTS).ravel()
            uniform, _ = over_cell(even, np.tile(shares / _PARTS, _PARTS))
            places = self.somewhere(np.full(len(uniform), cell), uniform)
        law, width = np.zeros(self.report_count), max(1, _AT_ONCE // self.report_count)
        for start in range(0, len(places), width):
            law += self.laws_from(cell, places[start : start + width]).sum(axis=0)
        return law / len(places)

    promise_takes_long: bool = False
    """Whether asking for the guarantee would begin minutes of enumeration."""

    @property
    def report_steps(self) -> IntArray | None:
        """(reports, 2): east and north of cell 0, in cells, where some reports name places beside a grid."""
        return None

    loss_across_cell: float = 0.0
    """ε times the side of a cell, where the report depends on the position in it."""
    positions_across: int = 1
    """A cell has so many positions a side where the law depends on the position in it."""

    @property
    def standing(self) -> tuple[FloatArray, FloatArray]:
        """(k, 2) and (k,): where in their cells people stand, in cells, with shares: one is the middle."""
        return over_cell(*positions_on_a_side(self.positions_across))

    @property
    def all_over(self) -> tuple[FloatArray, FloatArray]:
        """The same of the positions that distances are averaged over."""
        return np.zeros((1, 2)), np.ones(1)

    @property
    def starts_at_cells(self) -> bool:
        """Whether the distance of a report is that from the centre of a cell, not from a position in it."""
        return self.told_apart is not None

    def somewhere(self, cells: IntArray, uniform: FloatArray) -> FloatArray:
        """(k, 2): where somebody of each cell stands, in cells from its middle; from two even numbers."""
        return uniform - 0.5

    def places(self, across: int) -> Places | None:
        """The law at ``across``² places in every cell; ``None`` where it does not depend on the place."""
        return None

    def columns_from(self, inside: FloatArray, chosen: IntArray) -> FloatArray:
        """(cells, chosen): columns for people at one position in their cells, (east, north) in cells."""
        return self.columns(chosen)

    def laws_from(self, cell: int, inside: FloatArray) -> FloatArray:
        """(k, reports): the laws that draws from positions (k, 2) in one cell follow."""
        row = np.asarray(self.row(cell), np.float64)
        return np.broadcast_to(row, (len(inside), row.size))

    def _sample_from(self, cells: IntArray, inside: FloatArray, randomness: Randomness) -> Reports:
        """A report for each of the cells, from positions (k, 2) in them, (east, north) in cells."""
        return self._sample(cells, randomness)

    # -- should be overridden for speed ----------------------------------------------------------

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        """One report for each of the (flat) cells; here from the rows of the cells that occur."""
        reports = np.empty(cells.size, dtype=np.int64)
        uniform = randomness.uniform(cells.size)
        for cell, people in people_by_cell(cells):
            reports[people] = inverse_distribution(self._row(cell), uniform[people])
        return reports

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Σ_y C[x, y]·f(d(x, y)) for every cell x, where reports are cells; f takes kilometres."""
        self._check_reports_are_cells()
        return self.mean_of_distance_to(np.arange(self.space.size), function)

    def mean_of_distance_to(
        self, cells: IntArray, function: Callable[[FloatArray], FloatArray]
    ) -> FloatArray:
        """``mean_of_distance`` where every report y stands for the cell ``cells[y]``."""
        means = (
            self._row(x) @ function(self.space.distances_from_km(x)[cells])
            for x in range(self.space.size)
        )
        return np.fromiter(means, np.float64, self.space.size)

    def row_entropies_nats(self) -> FloatArray:
        """The entropy of the report of somebody in x, in nats, for every cell x."""
        return np.array([scipy.special.entr(self._row(x)).sum() for x in range(self.space.size)])

    @property
    def leverage(self) -> float:
        """How many people a fake report may weigh for, to first order: the largest 1/C[x, x].

        Somebody in x reports x with probability C[x, x], so an estimator counts 1/C[x, x] people for a
        report x that nobody else explains. Infinite where a cell is never reported.
        """
        self._check_reports_are_cells()
        stays = min(float(self._row(cell)[cell]) for cell in range(self.space.size))
        return 1 / stays if stays > 0 else math.inf

    # -- what follows ----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Cells and reports."""
        return self.space.size, self.report_count

    def likelihood(self, report: int) -> FloatArray:
        """P(report | x) for every cell x: one column."""
        return self.column(report)

    def columns(self, chosen: IntArray) -> FloatArray:
        """Some columns, from the whole matrix where that takes less time."""
        cells, reports = self.shape
        if 4 * chosen.size < reports or cells > MATRIX_LIMIT:
            return super().columns(chosen)
        matrix = self.matrix()
        return matrix if np.array_equal(chosen, np.arange(reports)) else matrix[:, chosen]

    def matrix(self) -> FloatArray:
        """The whole channel as an array, rows true cells; refused above 4,096 cells."""
        self.space.check_matrix("the matrix of the channel")
        return super().matrix()

    def explain(self, distance_km: float) -> str:
        """What a report tells about two people this far apart, in plain words: the consequence, odds and
        frequencies and, where the promise is between positions, the cost.

        >>> import geoveil as gv
        >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
        >>> print(gv.PlanarGeometric(grid, epsilon_per_km=2.0).explain(0.2))
        Two people 200 m apart, wherever they stand in their cells: any report is at most 4.12 times as \
        likely from one as from the other; of 100 such reports from one, at least 24 on average \
        would also come from the other.
        """
        return words.explain_with_cost(self.guarantee, self.told_apart, distance_km)

    @property
    def short_promise(self) -> str:
        """What it promises for each report, short enough to stand beside a map."""
        if self.promise_takes_long:
            return "a promise that was not worked out (gv.certify does)"
        return words.promise_of_a_report(self.guarantee, self.space.unit)

    @property
    def told_apart(self) -> Space | None:
        """The places that the promise is about; ``None`` where these are the positions themselves."""
        return self.space

    def _check_reports_are_cells(self) -> None:
        if self.report_count != self.space.size:
            raise Unsupported("the reports of this channel are not cells, so they have no distance")

    def sample(self, cells: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> Reports:
        """One noisy report for each true cell, with the operating system's randomness by default."""
        true = indices("cells", cells, self.space.size)
        return self._sample(true.ravel(), checked_randomness(randomness)).reshape(true.shape)

    def tally(self, reports: npt.ArrayLike) -> Tally:
        """Count the reports, with the channel that made them."""
        numbers = indices("reports", reports, self.report_count)
        return Tally(self, np.bincount(numbers.ravel(), minlength=self.report_count))


def checked_channel(name: str, channel: Any) -> Channel:
    """The channel itself; an error for anything else."""
    return instance(name, channel, Channel, "a mechanism on cells, such as gv.elastic(grid, …)")


def positions_on_a_side(across: int) -> tuple[FloatArray, FloatArray]:
    """Where along a side of its cell, −½ … ½, somebody spread evenly stands, and with which share.

    Gauss and Legendre's places: two of them average every cubic exactly, where halves would not.
    """
    places, shares = np.polynomial.legendre.leggauss(across)
    return places / 2.0, shares / 2.0


def over_cell(line: FloatArray, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(k², 2) and (k²,): east and north, the former fastest, from k places along a side and their shares."""
    inside = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    return inside, np.outer(shares, shares).ravel()


def people_by_cell(cells: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Every cell that occurs, with the positions at which it does."""
    if cells.size:
        order = np.argsort(cells, kind="stable")
        occupied, starts = np.unique(cells[order], return_index=True)
        yield from zip(occupied.tolist(), np.split(order, starts[1:]), strict=True)


def inverse_distribution(row: FloatArray, uniform: FloatArray) -> IntArray:
    """Outcomes of the law ``row`` at the given uniform numbers in (0, 1)."""
    cumulative = np.cumsum(row)
    outcomes = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return np.minimum(outcomes, np.flatnonzero(row)[-1]).astype(np.int64)


# --- Tallies: how often each report was seen, with the channel that made them


RARE = 2.4
"""Reports expected less often count as if expected this often: a report never seen then bounds a
share by 1.96·√2.4 ≈ 3 reports, the rule of three, instead of by nothing."""
_MOST = 2.0**62
"""Two tallies below this add without leaving 64 bits."""


class Information(NamedTuple):
    """What one tally adds: the information A·diag(weights)·Aᵀ, the score, and how they were found."""

    columns: Operator
    """A: (cells, any)."""
    weights: FloatArray
    """(any,)."""
    score: FloatArray
    """(cells,)."""
    how: str = ""
    """Empty where all reports of the channel were counted, as usual."""

    def matrix(self) -> FloatArray:
        """(cells, cells). Cost: cells²·columns."""
        columns = self.columns.matrix()
        return np.asarray((columns * self.weights) @ columns.T)

    def times(self, changes: FloatArray) -> FloatArray:
        """The information times changes (…, cells). Cost: a push and a pull."""
        return self.columns._pull(self.columns._push(changes) * self.weights)

    def scores(self, normal: FloatArray) -> FloatArray:
        """(…, any) standard normal numbers → (…, cells): scores with the information for their covariance."""
        return self.columns._pull(normal * np.sqrt(self.weights))


class Tally(Framed, Drawn, Shown, ReadOnly):
    """Counts of the reports of one channel: all an estimator needs.

    Tallies of the same channel add. ``operator`` has the columns the counts belong to: the channel
    itself, or the columns of what was seen where there are too many reports to count them all.
    """

    channel: Channel
    """The channel that made the reports."""
    complete: ClassVar[bool] = True
    """Whether every report of the channel has a count, so that the rows of ``operator`` sum to one."""

    def __init__(self, channel: Channel, counts: npt.ArrayLike) -> None:
        self.channel = checked_channel("channel", channel)
        self._counts: IntArray = frozen(whole_counts(counts, channel.report_count))

    @property
    def operator(self) -> Operator:
        """The columns of the observations that are counted."""
        return self.channel

    @property
    def counts(self) -> IntArray:
        """How often each observation was made."""
        return self._counts

    @property
    def sums(self) -> IntArray:
        """How often each cell was named, where reports name cells."""
        return self.counts

    @property
    def space(self) -> Space:
        """Where the people are."""
        return self.channel.space

    @property
    def total(self) -> int:
        """How many reports were counted."""
        return int(self.counts.sum())

    @property
    def nats_left_out(self) -> float:
        """What the log-likelihood of all reports lacks by ``operator``, whose columns may have no factors."""
        return 0.0

    def information(self, distribution: FloatArray) -> Information:
        """The expected Fisher information of the counts at a distribution. Cost: a push and a pull.

        A count has the variance n·p of a rare report; what it lacks to n·p(1 − p) lies along the sum of
        all counts, which is known. No variance is below ``RARE``.
        """
        expected = self.total * np.maximum(self.channel._push(distribution), np.finfo(float).tiny)
        variance = np.maximum(expected, RARE)
        score = self.channel._pull((self.counts - expected) * self.total / variance)
        return Information(self.channel, self.total**2 / variance, score)

    def telling_columns(self) -> FloatArray:
        """(cells, any): columns that tell apart exactly the cells which the reports tell apart.

        Reports not seen count as well: that they were not seen says something.
        """
        return self.channel.matrix()

    def save(self, path: str | Path) -> None:
        """Write the counts and the document of their mechanism as JSON; ``gv.load_tally`` reads it back."""
        below("save_tally")(self, path)

    def __add__(self, other: Tally) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        alike = other.channel is self.channel or other.channel == self.channel
        if not alike or other.complete != self.complete:
            raise InvalidInput(
                "tallies must be of one kind and come from the same channel (joint ones from the same "
                "channels, in one order) to be added; pass both to fit([…])"
            )
        return self._plus(other)

    def __radd__(self, other: object) -> Self:
        """From the 0 that ``sum`` begins with."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def _plus(self, other: Tally) -> Tally:
        """The sum with another tally of the same channel."""
        return Tally(self.channel, self.counts + other.counts)

    def __repr__(self) -> str:
        return f"Tally({number_of(self.total, 'report')} of {self.channel!r})"


def whole_counts(counts: Any, size: int, kind: str = "report") -> IntArray:
    """So many counts, one per report or per other ``kind``, whose sum fits 64 bits with room."""
    array = without_gaps("counts", by_position("counts", counts))
    if array.shape != (size,):
        raise InvalidInput(f"counts (shape {array.shape}) must have {size} entries, one per {kind}")
    if array.dtype.kind not in "iu" and (
        array.dtype.kind != "f" or not np.isfinite(array).all() or (array != np.floor(array)).any()
    ):
        raise InvalidInput("counts must be whole numbers within 64 bits")
    if (array < 0).any():
        raise InvalidInput("counts must not be negative")
    if array.sum(dtype=np.float64) >= _MOST:
        raise InvalidInput("counts must sum to less than 2^62")
    return np.array(array, dtype=np.int64)
