"""What a promise and a dial will mean for a box and so many people, before anything is collected."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray, IntArray, count, one_blas_thread, uniform
from geoveil.campaign.elastic_design import elastic
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.words import NEARBY_KM, explain, explain_trip
from geoveil.errors import MissingExtra, number_of, two_digits
from geoveil.estimate import IterativeBayesianUpdate
from geoveil.measure import (
    earth_movers_distance_km,
    entropy_bits,
    mean_distance_km,
    mutual_information_bits,
)
from geoveil.position.positional import Placed
from geoveil.space import Box, Grid, MaskedGrid, Points
from geoveil.space.points import at_places

MOST_CELLS = 160
"""A box of more cells is looked at in larger ones: a question must be answered within seconds."""
_WIDEST = 4.0
"""ε times the side of those larger cells, at most: beyond, a part of the box is looked at."""
_CROWDS = ((0.32, 0.58, 0.10, 0.42), (0.66, 0.36, 0.07, 0.26), (0.72, 0.76, 0.05, 0.14))
"""Of the example city: middle and spread as shares of the box (east, north), and share of the people."""
_REPEATS = 3
_SEED = 1


@dataclass(frozen=True, eq=False)
class Outlook:
    """The first round of a campaign, played with an example city in the place of the real one."""

    grid: Placed
    """The cells or places it was worked out on."""
    cells: int
    """How many the campaign itself would have."""
    people: int
    played: int
    """How many of them are on the cells it was worked out on."""
    part: bool
    """Whether those are a part of the area, in its middle."""
    mechanism: Channel
    city: FloatArray
    """Where the people of the example are, by cell."""
    reported: FloatArray
    """The share of reports in every cell, of one try."""
    brought_back: FloatArray
    """The map that comes back, of the same try."""
    mean_distance_km: float
    leakage_bits: float
    error_km: float | None
    """Earth mover's distance from the city to the map that comes back, on average over a few tries;
    ``None`` where the extra that measures it is not installed."""
    reported_error_km: float | None
    """The same for the map of reports as they are."""

    @property
    def coarser(self) -> bool:
        """Whether larger cells stand for those of the campaign."""
        return self.grid.size < self.cells

    def sentences(self) -> list[str]:
        """What it means, in words, the consequence for a person first."""
        there = "place a person is at" if at_places(self.grid) else "cell a person is in"
        said = [
            explain(self.mechanism.guarantee, None, NEARBY_KM),
            f"A report lands {two_digits(self.mean_distance_km)} km from its person on average.",
            f"It tells {self._bits} of which {there}.",
        ]
        if self.error_km is not None and self.reported_error_km is not None:
            said.append(
                f"With {number_of(self.played, 'report')} of an example city the map that comes back is "
                f"about {_metres(self.error_km)} off, and the map of the reports as they are "
                f"{_metres(self.reported_error_km)}."
            )
        return [*said, *self._worked_out_on()]

    def sentences_of_trips(self) -> list[str]:
        """What it means where every report is a trip: two places, each drawn by itself."""
        lands = f"lands {two_digits(self.mean_distance_km)} km from where it was on average"
        off = "How far off the flows will be is not worked out beforehand"
        return [
            explain_trip(self.mechanism.guarantee, None, NEARBY_KM),
            "A trip is charged twice, since it is two reports that are known to be one person's.",
            f"Each end of a trip {lands}, and tells {self._bits} of which cell that was.",
            f"{off}: they come with intervals between districts.",
            *self._worked_out_on(),
        ]

    @property
    def _bits(self) -> str:
        """What a report tells, of what there is to be told."""
        return f"{self.leakage_bits:.2g} of the {entropy_bits(self.city):.2g} bits"

    def _worked_out_on(self) -> list[str]:
        """On which cells this was worked out, where they are not those of the campaign."""
        if not self.coarser:
            return []
        cells = f"{self.grid.size} cells of {two_digits(self.grid.cell_km)} km"
        if not self.part:
            return [f"Worked out on {cells} in the place of your {self.cells:,}."]
        area = f"the middle of your area of {self.cells:,} cells"
        people = f"{self.played:,} of {number_of(self.people, 'person', 'people')}"
        return [f"Worked out on {area}: {cells}, and in proportion {people}."]


def _metres(km: float) -> str:
    return f"{km * 1000:.0f} m" if km < 1 else f"{two_digits(km)} km"


@one_blas_thread()
def outlook(grid: Placed, *, epsilon_per_km: float, camouflage: float, people: int) -> Outlook:
    """What a campaign's opening mechanism makes of an example city of so many people.

    The mechanism is the one a campaign opens with, which believes that people may be anywhere; the city
    has three crowds and people in between. The same question has the same answer. Of a box with more
    than 160 cells larger ones are looked at: distances and errors hardly depend on cells
    that are smaller than the noise. Where those would be too large for that, a part in the middle is, with
    as many of the people. Of more than 160 places it is the cells that have one.

    >>> import geoveil as gv
    >>> box = gv.Grid.from_box(south=45.72, west=4.8, north=45.78, east=4.88, cell_km=1.0)
    >>> expected = outlook(box, epsilon_per_km=2.0, camouflage=0.5, people=5000)
    >>> expected.grid.size, bool(0.5 < expected.mean_distance_km < 2.0)
    (49, True)
    """
    number, whole = count("people", people), coarsened(grid, _WIDEST / epsilon_per_km)
    coarse = middle_of(whole)
    played = max(1, round(number * coarse.size / whole.size))
    mechanism = elastic(
        coarse,
        uniform(coarse.size),
        epsilon_per_km=epsilon_per_km,
        camouflage=camouflage,
        between="positions",
    )
    city = example_city(coarse)
    law = np.maximum(mechanism.push(city), 0.0)
    sources = (np.random.default_rng([_SEED, repeat]) for repeat in range(_REPEATS))
    tallies = [Tally(mechanism, source.multinomial(played, law / law.sum())) for source in sources]
    maps = [IterativeBayesianUpdate().fit(tally).distribution for tally in tallies]
    reported = [_shares(tally.counts[: coarse.size]) for tally in tallies]
    return Outlook(
        grid=coarse,
        cells=grid.size,
        people=number,
        played=played,
        part=coarse is not whole,
        mechanism=mechanism,
        city=city,
        reported=reported[0],
        brought_back=maps[0],
        mean_distance_km=mean_distance_km(mechanism, city),
        leakage_bits=mutual_information_bits(mechanism, city),
        error_km=_mean_error_km(maps, city, coarse),
        reported_error_km=_mean_error_km(reported, city, coarse),
    )


def _shares(counts: IntArray) -> FloatArray:
    """Shares of the reports that lie on the map; even where none does."""
    total = counts.sum()
    return counts / total if total else uniform(counts.size)


def _mean_error_km(maps: list[FloatArray], city: FloatArray, grid: Placed) -> float | None:
    try:
        return float(np.mean([earth_movers_distance_km(shares, city, grid) for shares in maps]))
    except MissingExtra:
        return None


def coarsened(space: Placed, widest_km: float = math.inf) -> Placed:
    """The same box, or the same city, in cells so large that there are at most 160 of them.

    Or in cells of ``widest_km``, where those are more; no cell gets smaller. Of more places than that it is
    the cells, as large as places are apart, that have one.
    """
    if space.size <= MOST_CELLS:
        return space
    if isinstance(space, Points):
        lat, lng = space.centres_latlng()
        whole = _cells_over(Box.around(lat=lat, lng=lng).widened(space.cell_km / 2), space.cell_km)
        space = _part_of(whole, whole.locate(lat=lat, lng=lng, outside="clamp"))
    coarse, cell_km = space, space.cell_km
    while coarse.size > MOST_CELLS and space.box is not None and cell_km < widest_km:
        cell_km *= max(1.05, float(np.sqrt(coarse.size / MOST_CELLS)))
        cell_km = min(cell_km, widest_km)
        coarse = whole = _cells_over(space.box, cell_km)
        if isinstance(space, MaskedGrid):
            coarse = _part_of(whole, whole.locate_km(space.centres, outside="clamp"))
    return coarse


def _cells_over(box: Box, cell_km: float) -> Grid:
    south, west, north, east = box
    return Grid.from_box(south=south, west=west, north=north, east=east, cell_km=cell_km)


def _part_of(grid: Grid, cells: IntArray | int) -> MaskedGrid:
    """The part of a grid that these cells make."""
    there = np.zeros(grid.size, dtype=np.bool_)
    there[cells] = True
    return MaskedGrid(grid, there)


def middle_of(space: Placed) -> Placed:
    """At most 160 cells or so around the middle of an area; all of it where it has no more."""
    if isinstance(space, Points):
        return space
    base = space if isinstance(space, Grid) else space.grid
    if space.size <= MOST_CELLS or base.box is None:
        return space
    away = np.hypot(*(space.centres - space.centres.mean(axis=0)).T)
    centre = base.locate_km(space.centres[int(away.argmin())], outside="clamp")
    row, column = (int(index) for index in base.row_column(centre))
    high = min(base.rows, math.isqrt(MOST_CELLS))
    wide = min(base.columns, MOST_CELLS // high)
    south, west = (
        min(max(0, at - size // 2), most - size)
        for at, size, most in ((row, high, base.rows), (column, wide, base.columns))
    )
    corners = base.corners_km()[[south, south + high], [west, west + wide]]
    inside = base.cell_km / 4.0  # another plane may measure a little more, and count a row more
    lat, lng = base.plane.to_latlng(corners + np.array([[inside], [-inside]]))
    part = Grid.from_box(south=lat[0], west=lng[0], north=lat[1], east=lng[1], cell_km=base.cell_km)
    if isinstance(space, MaskedGrid):
        lat, lng = part.plane.to_latlng(part.centres)
        there = space.inside(lat=lat, lng=lng)
        if there.sum() > 1:
            return MaskedGrid(part, there)
    return part


def example_city(grid: Placed) -> FloatArray:
    """Shares of the cells in a city of three crowds, with a fifth of the people in between."""
    low, high = grid.centres.min(axis=0), grid.centres.max(axis=0)
    size = np.maximum(high - low, grid.cell_km)
    place = (grid.centres - low) / size
    city = np.full(grid.size, 0.18 / grid.size)
    for east, north, spread, share in _CROWDS:
        away = np.square((place - (east, north)) * size / size.min()).sum(axis=1)
        crowd = np.exp(-away / (2 * (2 * spread) ** 2))
        city += share * crowd / crowd.sum()
    return np.asarray(city / city.sum())
