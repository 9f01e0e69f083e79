"""People who do not stand evenly in their cells: what that does to a map and to its error bars.

Between positions a report depends on where in its cell somebody stands. It matters little while the promise
times the side of a cell is small. Near one it moves the map, beyond one its error bars and the alarm too: a
crowd at one edge of its cell looks like people in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.channel import Channel, Information, Places, Tally
from geoveil.channel.operator import Operator, StackedOperator
from geoveil.estimate import fitted

MAP_SHOWS = 0.75
"""ε·cell above which where people stand in their cells moves the map."""
_BARS_SHOW = 1.0 + 1e-9
"""ε·cell above which it moves more than error bars allow for, however few the reports."""
_CROWD_SHOWS = 1_600.0
"""People in the largest crowd from whom on it does at ε·cell = 1: 40²."""
_UNKNOWNS = 3
"""Unknowns of a cell where places are left open: its crowd, and how far east and north that stands."""
_WIDTH = np.sqrt(1.0 / 12.0)
"""The standard deviation of a place in a cell, along a side, in cells."""


def crowds_show(people: int, distribution: FloatArray, most_unknowns: int) -> float:
    """ε·cell above which so many people show where in their cells they stand; infinite for many cells."""
    if _UNKNOWNS * distribution.size > most_unknowns:
        return float("inf")
    return float((_CROWD_SHOWS / (people * distribution.max())) ** 0.25)


def bars_show(
    observations: fitted.Observations, distribution: FloatArray, most_unknowns: int
) -> bool:
    """Whether it matters to error bars where in their cells people stand."""
    widest = max(tally.channel.loss_across_cell for tally in observations.tallies)
    return widest > min(_BARS_SHOW, crowds_show(observations.total, distribution, most_unknowns))


class PlacesOfAll:
    """The places in the cells of one space, for the tallies of several mechanisms."""

    def __init__(self, laws: Mapping[Channel, Places]) -> None:
        parts = list(laws.values())
        first = parts[0]
        self.laws = laws
        """The places under every mechanism, in the order of the tallies."""
        self.cell, self.share, self.offset = first.cell, first.share, first.offset
        self.operator: Operator = first if len(parts) == 1 else StackedOperator(parts)

    @classmethod
    def of(
        cls, observations: fitted.Observations, across: int = 3, *, shows: float = _BARS_SHOW
    ) -> PlacesOfAll | None:
        """``across``² places in every cell; ``None`` up to ε·cell = ``shows``, or if a law is not known."""
        tallies = observations.tallies
        steepest = max(tally.channel.loss_across_cell for tally in tallies)
        if steepest <= shows or any(tally.operator is not tally.channel for tally in tallies):
            return None
        laws = {tally.channel: tally.channel.places(across) for tally in tallies}
        places = {channel: law for channel, law in laws.items() if law is not None}
        same = len({(law.shape[0], law.share.tobytes()) for law in places.values()}) == 1
        return cls(places) if same and len(places) == len(tallies) else None

    @classmethod
    def that_bars_show(
        cls, observations: fitted.Observations, distribution: FloatArray, most_unknowns: int
    ) -> PlacesOfAll | None:
        """The places that error bars leave open: above ε·cell = 1, and below where crowds are large.

        A crowd at an edge of its cell is taken for one that is larger or smaller by a part that grows as
        (ε·cell)², while √crowd people are known: the product of both says whether it shows. Only where it
        makes no more than ``most_unknowns``.
        """
        shows = crowds_show(observations.total, distribution, most_unknowns)
        return cls.of(observations, shows=min(_BARS_SHOW, shows))

    def spread(self, theta: FloatArray) -> FloatArray:
        """(…, cells) → (…, places): everybody evenly in their cell."""
        return np.asarray(theta[..., self.cell] * self.share)

    def by_cell(self, values: FloatArray) -> FloatArray:
        """(…, places) → (…, cells): the sums."""
        flat = values.reshape(-1, values.shape[-1])
        sums = [np.bincount(self.cell, one) for one in flat]
        return np.reshape(sums, (*values.shape[:-1], -1))

    def informations(self, tallies: Sequence[Tally], distribution: FloatArray) -> list[Information]:
        """The information of every tally about the crowds of the cells and where in them they stand."""
        parts = []
        for tally in tallies:
            if tally.total:
                moved = _Displaced(self, self.laws[tally.channel], distribution)
                weights = tally.information(distribution).weights
                away = tally.counts / tally.total - tally.channel._push(distribution)
                parts.append(Information(moved, weights, moved._pull(away * weights)))
        return parts

    def astray(self, sums: Iterable[tuple[Channel, FloatArray]], theta: FloatArray) -> FloatArray:
        """(k, places): how sums over reports vary with where in their cells people stand.

        ``sums`` are the weights (k, reports) of the reports of each mechanism. If the crowd of every cell
        stands at one of its places, each with its share for a chance and each cell by itself, the sums vary
        as this times independent numbers of variance one.
        """
        by_place = np.asarray(sum(self.laws[channel]._pull(weights) for channel, weights in sums))
        away = by_place - self.by_cell(by_place * self.share)[:, self.cell]
        return np.asarray(away * (np.sqrt(self.share) * theta[self.cell]))

    @property
    def unknowns(self) -> int:
        """How many the informations are about: the crowds of the cells, then two for where each stands."""
        return _UNKNOWNS * (int(self.cell.max()) + 1)


class _Displaced(Operator):
    """Rows: a share more in each cell, then each crowd moved east and north in its cell by σ, the standard
    deviation of one person's place. Columns are reports.

    A crowd moved by d·σ has the law θ_x·Σ_l share_l·(1 + d·o_l/σ)·P(report | place l) to first order; the
    rows are its derivatives. The variance of d is one: a crowd's place is as uncertain as that of one
    person.
    """

    def __init__(self, places: PlacesOfAll, part: Places, theta: FloatArray) -> None:
        self._places, self._part, self._cells = places, part, theta.size
        middle = places.by_cell((places.share[:, None] * places.offset).T)  # (2, cells)
        away = (places.offset.T - middle[:, places.cell]) / _WIDTH  # (2, places)
        self._by_place = places.share * away * theta[places.cell]

    @property
    def shape(self) -> tuple[int, int]:
        return 3 * self._cells, self._part.shape[1]

    def _push(self, theta: FloatArray) -> FloatArray:
        more, east, north = (
            theta[..., number * self._cells : (number + 1) * self._cells] for number in range(3)
        )
        cell = self._places.cell
        crowd = self._places.spread(more)
        crowd += east[..., cell] * self._by_place[0] + north[..., cell] * self._by_place[1]
        return self._part._push(crowd)

    def _pull(self, values: FloatArray) -> FloatArray:
        laws = self._part._pull(values)
        parts = (self._places.share, *self._by_place)
        return np.concatenate([self._places.by_cell(laws * part) for part in parts], axis=-1)

    def matrix(self) -> FloatArray:
        reports = np.eye(self._part.shape[1])
        return self._pull(reports).T
