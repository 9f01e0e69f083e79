"""The region around Los Angeles of NOISE §7.2, 40 × 30 km, and the people who checked in there.

The file is a sample of 47 % of all check-ins and ends at 118.1445° W, about 4 km short of the region's
eastern edge: the last cells are empty because of the file, not because nobody was there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.papers.data import CheckIns, DataFolder
from geoveil.space.box import Box
from geoveil.space.grid import Grid

FILE = "gowalla-los-angeles"
REGION = Box(south=33.9301, west=-118.5354, north=34.1996, east=-118.1010)
WIDTH_KM, HEIGHT_KM = 40.0, 30.0
SAMPLE = (
    "The people are the busiest of a 47 % sample that ends 4 km short of the eastern edge, not the "
    "paper's."
)
"""What every figure made from this file must say."""


@dataclass(frozen=True, eq=False)
class Person:
    """One person's check-ins in kilometres, and their cells on a grid centred on the region."""

    user: int
    places_km: FloatArray
    grid: Grid

    @property
    def cells(self) -> IntArray:
        """The cell of every check-in."""
        return np.atleast_1d(self.grid.locate_km(self.places_km, outside="clamp"))

    @property
    def prior(self) -> FloatArray:
        """How often each cell was visited."""
        return np.bincount(self.cells, minlength=self.grid.size) / len(self.places_km)


def busiest(data: DataFolder, count: int, *, cell_km: float) -> list[Person]:
    """The people with the most check-ins in the region, on cells of the given side."""
    south, west, north, east = REGION
    inside = data.check_ins(FILE).within(south=south, west=west, north=north, east=east)
    users, visits = np.unique(inside.user, return_counts=True)
    chosen = users[np.argsort(-visits, kind="stable")[:count]]
    rows, columns = round(HEIGHT_KM / cell_km), round(WIDTH_KM / cell_km)
    grid = Grid(rows=rows, columns=columns, cell_km=cell_km)
    return [_person(int(user), inside.of_user(int(user)), grid) for user in chosen]


def _person(user: int, visits: CheckIns, grid: Grid) -> Person:
    places = REGION.plane.to_plane(lat=visits.lat, lng=visits.lng)
    west, south, east, north = REGION.rectangle_km
    return Person(user, places - [(west + east) / 2, (south + north) / 2], grid)
