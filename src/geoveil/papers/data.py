"""Where the check-in files of the papers lie, and how they are read."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, cast

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray
from geoveil.errors import InvalidFile

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

    def within(
        self, *, south: float, west: float, north: float, east: float, closed: bool = True
    ) -> CheckIns:
        """Those in a box; with ``closed=False`` its southern and western edges are left out."""
        low = np.greater_equal if closed else np.greater
        inside = low(self.lat, south) & low(self.lng, west)
        return self.chosen(inside & (self.lat <= north) & (self.lng <= east))

    def of_user(self, user: int) -> CheckIns:
        """Those of one person."""
        return self.chosen(self.user == user)

    def chosen(self, which: npt.NDArray[np.bool_]) -> CheckIns:
        """Those where ``which`` is true."""
        return CheckIns(
            self.lat[which], self.lng[which], self.user[which] if self.user.size else self.user
        )

    @property
    def size(self) -> int:
        """How many there are."""
        return self.lat.size


@dataclass(frozen=True)
class DataFolder:
    """A folder of check-in files (CSV, also gzipped), read when they are asked for."""

    path: Path = field(default_factory=default_folder)

    def check_ins(self, name: str) -> CheckIns:
        """The check-ins of ``name.csv.gz`` or ``name.csv``: columns lat, lon and, if there, user, count."""
        with self._open(name) as lines:
            rows = list(csv.DictReader(lines))
        if not rows or not {"lat", "lon"} <= set(rows[0]):
            raise InvalidFile(f"{name}.csv must have the columns lat and lon, and rows")
        return _check_ins(name, rows)

    def visits(self, name: str) -> tuple[IntArray, IntArray]:
        """Who was where, for every visit: the columns user and place, as codes."""
        with self._open(name) as lines:
            rows = list(csv.DictReader(lines))
        try:
            users, places = (
                np.array([int(row[key]) for row in rows], np.int64) for key in ("user", "place")
            )
        except (KeyError, TypeError, ValueError):
            raise InvalidFile(f"{name}.csv must have whole numbers as user and place") from None
        return users, places

    def _open(self, name: str) -> TextIO:
        for path in (self.path / f"{name}.csv.gz", self.path / f"{name}.csv"):
            if path.is_file():
                if path.suffix == ".gz":
                    return cast(TextIO, gzip.open(path, "rt", encoding="utf-8", newline=""))
                return path.open(encoding="utf-8", newline="")
        raise MissingData(
            f"{name}.csv.gz is not in {self.path}; name its folder with GEOVEIL_DATA or --data "
            "(docs/privic.md says what it holds and where it comes from)"
        )


def _check_ins(name: str, rows: list[dict[str, str]]) -> CheckIns:
    try:
        times = np.array([int(row.get("count") or 1) for row in rows])
        lat, lng = (_repeated((float(row[key]) for row in rows), times) for key in ("lat", "lon"))
        users = np.array([int(row["user"]) for row in rows] if "user" in rows[0] else [], np.int64)
    except (TypeError, ValueError):
        raise InvalidFile(f"{name}.csv must hold numbers in every row") from None
    return CheckIns(lat, lng, np.repeat(users, times) if users.size else users)


def _repeated(values: Iterable[float], times: IntArray) -> FloatArray:
    return np.repeat(np.fromiter(values, np.float64, times.size), times)
