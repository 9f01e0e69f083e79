"""The data of the papers: files of check-ins, and the authors’ grids."""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray, frozen
from geoveil.errors import InvalidFile
from geoveil.measure import earth_movers_distance_km
from geoveil.space.grid import Grid

PLACES = ("data", "../shared/data")
"""Folders that are tried in turn when neither ``--data`` nor ``GEOVEIL_DATA`` names one."""


class MissingData(InvalidFile):
    """A file that an experiment needs is not there."""


def default_folder() -> Path:
    """``GEOVEIL_DATA``, or the first of the usual places that exists."""
    named = os.environ.get("GEOVEIL_DATA")
    if named:
        return Path(named)
    return next((Path(place) for place in PLACES if Path(place).is_dir()), Path(PLACES[0]))


@dataclass(frozen=True)
class CheckIns:
    """Check-ins in degrees; ``user`` where the file tells people apart, else empty."""

    lat: FloatArray
    lng: FloatArray
    user: IntArray


@dataclass(frozen=True)
class DataFolder:
    """A folder of check-in files (CSV, also gzipped), read when they are asked for."""

    path: Path = field(default_factory=default_folder)

    def check_ins(self, name: str) -> CheckIns:
        """The check-ins of ``name.csv.gz`` or ``name.csv``: columns lat, lon and, if there, user, count.

        Each file is read once: most experiments of a paper ask for the same city.
        """
        return _check_ins(self, name)

    def visits(self, name: str) -> tuple[IntArray, IntArray]:
        """Who was where, for every visit: the columns user and place, as codes."""
        rows = self.rows(name)
        try:
            users, places = (
                np.array([int(row[key]) for row in rows], np.int64) for key in ("user", "place")
            )
        except (KeyError, TypeError, ValueError):
            raise InvalidFile(f"{name}.csv must have whole numbers as user and place") from None
        return users, places

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of ``name.csv.gz`` or ``name.csv``, each by the names of its columns."""
        openers: dict[str, Any] = {".csv.gz": gzip.open, ".csv": open}
        for ending, opened in openers.items():
            path = self.path / f"{name}{ending}"
            if path.is_file():
                with opened(path, "rt", encoding="utf-8", newline="") as lines:
                    return list(csv.DictReader(lines))
        raise MissingData(
            f"{name}.csv.gz is not in {self.path}; name its folder with GEOVEIL_DATA or --data "
            "(docs/privic.md says what it holds and where it comes from)"
        )


@cache
def _check_ins(folder: DataFolder, name: str) -> CheckIns:
    rows = folder.rows(name)
    if not rows or not {"lat", "lon"} <= set(rows[0]):
        raise InvalidFile(f"{name}.csv must have the columns lat and lon, and rows")
    try:
        times = np.array([int(row.get("count") or 1) for row in rows])
        lat, lng = (np.array([float(row[key]) for row in rows]) for key in ("lat", "lon"))
        users = [int(row["user"]) for row in rows] if "user" in rows[0] else []
    except (TypeError, ValueError):
        raise InvalidFile(f"{name}.csv must hold numbers in every row") from None
    user = np.repeat(np.array(users, np.int64), times[: len(users)])
    columns = np.repeat(lat, times), np.repeat(lng, times), user
    return CheckIns(*map(frozen, columns))  # all who ask share them


# --- The two cities as the papers cut them: cells in degrees, distances in cells of half a kilometre


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
    """A city with its people.

    Without ``cell_km``, distances are in *cells* of 0.5 km, and so is every ``_km`` here.
    """

    name: str
    grid: Grid
    people: IntArray

    @cached_property
    def truth(self) -> FloatArray:
        """The distribution of the people."""
        return np.bincount(self.people, minlength=self.grid.size) / self.people.size

    def error_km(self, estimate: FloatArray) -> float:
        """The earth mover's distance of an estimate from the truth."""
        return earth_movers_distance_km(estimate, self.truth, self.grid)


def load_city(cut: Cut, data: DataFolder, *, cell_km: float | None = None) -> City:
    """The check-ins of a city by cell, as the authors' loader sees them; distances in cells or in km."""
    points = data.check_ins(cut.file)
    row = _between_edges(points.lat, cut.south, cut.lat_step, cut.rows)
    column = _between_edges(points.lng, cut.west, cut.lng_step, cut.columns)
    inside = (row >= 0) & (row < cut.rows) & (column >= 0) & (column < cut.columns)
    cells = (row * cut.columns + column)[inside]
    kind = CellGrid if cell_km is None else Grid
    grid = kind(rows=cut.rows, columns=cut.columns, cell_km=cell_km or 1.0)
    return City(cut.name, grid, cells[1:])


def _between_edges(degrees: FloatArray, first: float, step: float, cells: int) -> IntArray:
    """Which step each coordinate lies in, upper edges closed.

    Compared with the edges themselves, as the authors do: dividing by the step would round 21 points
    of San Francisco, whose longitude is an edge, into the next column.
    """
    edges = np.arange(first, first + (cells + 0.5) * step, step)
    return np.searchsorted(edges, degrees, side="left") - 1
