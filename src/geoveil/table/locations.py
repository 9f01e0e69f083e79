"""Checked locations out of a table, bad rows named or dropped, with the columns to keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from geoveil.arrays import BoolArray, FloatArray
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.table.columns import check_column, coordinate_columns, numbers
from geoveil.table.reader import TableReader

if TYPE_CHECKING:
    import pyarrow as pa

BadRows = Literal["raise", "drop"]


@dataclass(frozen=True)
class Locations:
    """Some consecutive rows of a table: true places in degrees, and the columns to keep."""

    lat: FloatArray
    lng: FloatArray
    kept: pa.RecordBatch

    def __repr__(self) -> str:
        return f"Locations({self.lat.size} rows)"


class LocationTable:
    """The locations of a table, batch by batch.

    Columns are found by their usual names in any case (lat, latitude, y; lng, lon, long, longitude,
    x) or given. A row whose coordinates are missing, not numbers, not finite or out of range is an
    error that says its number (the first row after the header is row 1) and never its value; with
    ``bad_rows="drop"`` such rows are left out and counted in ``bad``.
    """

    def __init__(
        self,
        reader: TableReader,
        *,
        lat: str | None = None,
        lng: str | None = None,
        keep: Sequence[str] = (),
        bad_rows: BadRows = "raise",
    ) -> None:
        self._reader = reader
        self.name = reader.name
        self._lat, self._lng = _coordinates(reader, lat, lng)
        self.keep = [check_column(reader.columns, each, self.name) for each in dict.fromkeys(keep)]
        true = {self._lat, self._lng, *reader.geometries}.intersection(self.keep)
        if true:
            raise InvalidInput(
                f"columns to keep ({', '.join(sorted(true))}) must not be the true coordinates; "
                "leave them out"
            )
        self._drop = bad_rows == "drop"
        self._bad = 0
        self._rows = 0

    @property
    def bad(self) -> int:
        """How many rows were left out because their coordinates are not usable."""
        return self._bad + self._reader.refused

    @property
    def read(self) -> int:
        """How many rows were read so far, with those left out."""
        return self._rows + self._reader.refused

    def __iter__(self) -> Iterator[Locations]:
        for batch in self._reader.batches([self._lat, self._lng], self.keep):
            yield self._check(batch)

    def _check(self, batch: pa.RecordBatch) -> Locations:
        lat, lng = numbers(batch.column(self._lat)), numbers(batch.column(self._lng))
        kept = batch.select(self.keep)
        good = valid(lat, lng)
        first = self._rows
        self._rows += lat.size
        if good.all():
            return Locations(lat, lng, kept)
        if not self._drop:
            raise InvalidFile(self._problem(lat, lng, good, first))
        self._bad += int(good.size - np.count_nonzero(good))
        return Locations(lat[good], lng[good], kept.filter(_mask(good)))

    def _problem(self, lat: FloatArray, lng: FloatArray, good: BoolArray, first: int) -> str:
        worst = int(np.flatnonzero(~good)[0])
        row = f"row {first + worst + 1} of {self._reader.name}"
        if not (np.isfinite(lat[worst]) and np.isfinite(lng[worst])):
            return f"{row} must have numbers for its coordinates; correct it, or drop bad rows"
        return (
            f"{row} must have a latitude in -90 to 90 and a longitude in -180 to 180; "
            "correct it, or drop bad rows"
        )


def valid(lat: FloatArray, lng: FloatArray) -> BoolArray:
    """Which pairs are places on the Earth: finite, |lat| ≤ 90, |lng| ≤ 180."""
    return (np.abs(lat) <= 90.0) & (np.abs(lng) <= 180.0)


def _coordinates(reader: TableReader, lat: str | None, lng: str | None) -> tuple[str, str]:
    if reader.coordinates is not None and lat is None and lng is None:
        return reader.coordinates
    if reader.coordinates is not None and not {lat, lng} <= set(reader.columns):
        raise InvalidInput(f"{reader.name} has coordinates of its own; leave the column names out")
    return coordinate_columns(reader.columns, lat, lng, reader.name)


def _mask(good: BoolArray) -> pa.Array:
    import pyarrow as pa

    return pa.array(good)
