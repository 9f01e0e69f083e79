"""The channel: rows are true cells, columns are reports; and the tally of its reports."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import entr

from geoveil.arrays import FloatArray, IntArray, frozen, indices, refrozen, vector
from geoveil.channel import words
from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee, LocalDifferentialPrivacy
from geoveil.errors import InvalidInput, Unsupported
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space.space import Space

if TYPE_CHECKING:
    from geoveil.channel.guarantee import Guarantee


class Channel(ABC):
    """P(report | true cell) as a linear operator.

    Required of every channel: ``space``, ``report_count``, ``guarantee``, ``_push``, ``_pull``, ``_row``.
    Overridden where structure allows: ``_sample`` (without building rows), ``_column``.
    """

    space: Space
    report_count: int
    guarantee: Guarantee | None
    """What the channel promises; ``None`` where it promises nothing. Fixed when the channel is made."""
    made_of: tuple[Channel, ...] = ()
    """The channels whose promises it passes on, if it has none of its own."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "guarantee" and name in vars(self):
            raise Unsupported(
                "the guarantee of a channel cannot be changed, since its law does not change with it; "
                "certify(channel, claim=…) says whether another one holds"
            )
        super().__setattr__(name, value)

    # -- what a channel supplies ---------------------------------------------------------------

    @abstractmethod
    def _push(self, theta: FloatArray) -> FloatArray:
        """(…, size) → (…, report_count), without checks."""

    @abstractmethod
    def _pull(self, values: FloatArray) -> FloatArray:
        """(…, report_count) → (…, size), without checks."""

    @abstractmethod
    def _row(self, cell: int) -> FloatArray:
        """The law of reports at one cell, without checks."""

    def _column(self, report: int) -> FloatArray:
        unit = np.zeros(self.report_count)
        unit[report] = 1.0
        return self._pull(unit)

    def _sample(self, cells: IntArray, randomness: Randomness) -> IntArray:
        """One report for each of the (flat) cells; here from the rows of the cells that occur."""
        reports = np.empty(cells.size, dtype=np.int64)
        uniform = randomness.uniform(cells.size)
        for cell, people in people_by_cell(cells):
            reports[people] = inverse_distribution(self._row(cell), uniform[people])
        return reports

    def closed_form_loss(self) -> PrivacyLoss | None:
        """The exact loss of the law by a closed form, rounded up; ``None`` where there is none."""
        return None

    # -- what follows --------------------------------------------------------------------------

    def push(self, theta: npt.ArrayLike) -> FloatArray:
        """The law of reports θC when true cells follow ``theta``; the last axis is the cells."""
        return self._push(vector("theta", theta, self.space.size))

    def pull(self, values: npt.ArrayLike) -> FloatArray:
        """The mean of ``values`` (one per report) at each true cell: Cv; the last axis is the reports."""
        return self._pull(vector("values", values, self.report_count))

    def row(self, cell: int) -> FloatArray:
        """The law of reports of somebody in ``cell``."""
        return self._row(int(indices("cell", cell, self.space.size)))

    def likelihood(self, report: int) -> FloatArray:
        """P(report | x) for every cell x: one column."""
        return self._column(int(indices("report", report, self.report_count)))

    def matrix(self) -> FloatArray:
        """The whole channel as an array, rows true cells; refused above 4,096 cells."""
        self.space.check_matrix("the matrix of the channel")
        return np.stack([self._row(cell) for cell in range(self.space.size)])

    def explain(self, distance_km: float) -> str:
        """What a report tells about two people this far apart, in plain words.

        >>> import geoveil as gv
        >>> grid = gv.Grid(rows=4, columns=4, cell_km=0.5)
        >>> print(gv.PlanarGeometric(grid, epsilon_per_km=2.0).explain(0.2))
        Two people 200 m apart, wherever they stand in their cells: any report is at most 4.12 times as \
        likely from one as from the other; of 100 such reports from one, at least 24 on average \
        would also come from the other.
        """
        said = words.explain(self.guarantee, self.space, distance_km)
        return words.if_claimed(said, claimed=self.only_claimed)

    @property
    def only_claimed(self) -> bool:
        """Whether the guarantee is a claim that the law does not prove: ``certify`` may."""
        if self.made_of:
            return any(part.only_claimed for part in self.made_of)
        loss = self.closed_form_loss()
        claim = self.guarantee
        return claim is not None and loss is not None and not loss.proves(claim)

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """Σ_y C[x, y]·f(d(x, y)) for every cell x, where reports are cells; f takes kilometres."""
        self._check_reports_are_cells()
        return np.array(
            [
                self._row(x) @ function(self.space.distances_from_km(x))
                for x in range(self.space.size)
            ]
        )

    def row_entropies_nats(self) -> FloatArray:
        """The entropy of the report of somebody in x, in nats, for every cell x."""
        return np.array([entr(self._row(x)).sum() for x in range(self.space.size)])

    @property
    def leverage(self) -> float:
        """How many people a fake report may weigh for, to first order: the largest 1/C[x, x].

        Somebody in x reports x with probability C[x, x], so an estimator counts 1/C[x, x] people for a
        report x that nobody else explains. Infinite where a cell is never reported.
        """
        self._check_reports_are_cells()
        stays = min(float(self._row(cell)[cell]) for cell in range(self.space.size))
        return 1 / stays if stays > 0 else math.inf

    def _check_reports_are_cells(self) -> None:
        if self.report_count != self.space.size:
            raise Unsupported("the reports of this channel are not cells, so they have no distance")

    def sample(self, cells: npt.ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """One noisy report for each true cell, with the operating system's randomness by default."""
        true = indices("cells", cells, self.space.size)
        return self._sample(true.ravel(), checked_randomness(randomness)).reshape(true.shape)

    def tally(self, reports: npt.ArrayLike) -> Tally:
        """Count the reports, with the channel that made them."""
        from geoveil.channel.channel import Tally

        made = indices("reports", reports, self.report_count)
        return Tally(self, np.bincount(made.ravel(), minlength=self.report_count))


def people_by_cell(cells: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Every cell that occurs, with the positions at which it does."""
    if cells.size:
        order = np.argsort(cells, kind="stable")
        occupied, starts = np.unique(cells[order], return_index=True)
        yield from zip(occupied.tolist(), np.split(order, starts[1:]), strict=True)


def inverse_distribution(row: FloatArray, uniform: FloatArray) -> IntArray:
    """Outcomes of the law ``row`` at the given uniform numbers in (0, 1)."""
    cumulative = np.cumsum(row)
    found = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
    return np.minimum(found, np.flatnonzero(row)[-1]).astype(np.int64)


# --- Tallies: how often each report was seen, with the channel that made them


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


# --- The privacy loss a channel really has, as a value


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

    def proves(self, claim: Guarantee) -> bool:
        """Whether a channel with this loss keeps what is claimed."""
        lower = 1 - FLOAT_TOLERANCE
        if GeoIndistinguishability(self.epsilon_per_km * lower).implies(claim):
            return True
        return self.epsilon is not None and (
            LocalDifferentialPrivacy(self.epsilon * lower).implies(claim)
        )
