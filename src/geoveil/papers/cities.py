"""The two cities as the papers cut them: cells in degrees, distances in cells of half a kilometre.

Found by reproducing PRIVIC's tables (docs/privic.md): Paris is 11 × 15 cells and San Francisco 16 × 24;
upper edges are closed, lower ones open; the authors' loader loses the first point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.papers.data import DataFolder
from geoveil.space.grid import Grid


@dataclass(frozen=True)
class Cut:
    """How a paper cuts a city: the south-west corner, the steps in degrees, rows and columns."""

    name: str
    file: str
    south: float
    west: float
    lat_step: float
    lng_step: float
    rows: int
    columns: int


class CellGrid(Grid):
    """A grid measured in its own cells, as the papers do."""

    unit = "cells"


PARIS = Cut("Paris", "gowalla-paris", 48.8286, 2.2855, 0.00427, 0.0066, 11, 15)
SAN_FRANCISCO = Cut(
    "San Francisco", "gowalla-san-francisco", 37.7228, -122.5153, 0.0044875, 0.005683, 16, 24
)


@dataclass(frozen=True, eq=False)
class City:
    """A city with its people. Its distances, and so every ``_km`` here, are in *cells* of 0.5 km."""

    name: str
    grid: Grid
    people: IntArray

    @cached_property
    def truth(self) -> FloatArray:
        """The distribution of the people."""
        return np.bincount(self.people, minlength=self.grid.size) / self.people.size


def load_city(cut: Cut, data: DataFolder) -> City:
    """The check-ins of a city by cell, as the authors' loader sees them."""
    points = data.check_ins(cut.file)
    row = _between_edges(points.lat, cut.south, cut.lat_step, cut.rows)
    column = _between_edges(points.lng, cut.west, cut.lng_step, cut.columns)
    inside = (row >= 0) & (row < cut.rows) & (column >= 0) & (column < cut.columns)
    cells = (row * cut.columns + column)[inside]
    return City(cut.name, CellGrid(rows=cut.rows, columns=cut.columns, cell_km=1.0), cells[1:])


def _between_edges(degrees: FloatArray, first: float, step: float, cells: int) -> IntArray:
    """Which step each coordinate lies in, upper edges closed.

    Compared with the edges themselves, as the authors do: dividing by the step would round 21 points
    of San Francisco, whose longitude is an edge, into the next column.
    """
    edges = np.arange(first, first + (cells + 0.5) * step, step)
    return np.searchsorted(edges, degrees, side="left") - 1
