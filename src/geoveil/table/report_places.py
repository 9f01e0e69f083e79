"""The places that reports name: the cells of a map, and those around it that a mechanism may report."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.ndimage import distance_transform_edt

from geoveil.arrays import BoolArray, FloatArray, IntArray, frozen
from geoveil.channel.channel import Channel
from geoveil.errors import Unsupported
from geoveil.space import AnyGrid
from geoveil.space.space import MapSpace


def rim_reports(channel: Channel) -> int | None:
    """How many reports name the rim, after the cells; ``None`` where reports are no places at all."""
    beyond = channel.report_count - channel.space.size
    return beyond if beyond == 0 or channel.report_steps is not None else None


class ReportPlaces:
    """Reports of a channel as places on its map, and places as reports.

    Reports 0 … size − 1 are the cells of the space; those of the rim follow, places beside the map that
    are nobody's cell.

    >>> import geoveil as gv
    >>> grid = gv.Grid.from_box(south=48.8, west=2.2, north=48.82, east=2.23, cell_km=1.0)
    >>> places = ReportPlaces(gv.PlanarGeometric(grid, epsilon_per_km=2.0))
    >>> places.nearest_cells(lat=np.array([48.815]), lng=np.array([2.201]))[0].tolist()
    [6]
    """

    def __init__(self, channel: Channel) -> None:
        if not isinstance(channel.space, MapSpace):
            raise Unsupported(
                f"{channel.space!r} has no map; use a mechanism on a Grid.from_box or on Points"
            )
        if rim_reports(channel) is None:
            raise Unsupported(f"reports of {channel!r} are not cells; use its sample method")
        self._space = channel.space
        wide = channel.report_count > channel.space.size
        self._steps = channel.report_steps if wide else None

    @cached_property
    def latlng(self) -> tuple[FloatArray, FloatArray]:
        """Latitude and longitude of every report, to a centimetre."""
        degrees = self._space.centres_latlng()
        if self._steps is not None:
            around = self._steps * self._cell_km + self._space.centres[0]
            degrees = self._space.plane.to_latlng(around)
        lat, lng = (frozen(np.round(each, 7)) for each in degrees)
        return lat, lng

    def nearest_cells(self, *, lat: FloatArray, lng: FloatArray) -> tuple[IntArray, BoolArray]:
        """The reports nearest to places in degrees, and which of the places lie in what they name."""
        if self._steps is None:
            return self._space.nearest_cells(lat=lat, lng=lng)
        offset = self._space.plane.to_plane(lat=lat, lng=lng) - self._space.centres[0]
        first = self._steps.min(axis=0)
        reached = self._steps.max(axis=0)  # the last column and row
        wanted = np.rint(offset / self._cell_km)
        nearest = np.clip(wanted, first, reached).astype(np.int64)
        column, row = (nearest - first).T
        reports: IntArray = self._numbers[
            self._nearest[0][row, column], self._nearest[1][row, column]
        ]
        inside = (nearest == wanted).all(axis=1) & (self._numbers[row, column] >= 0)
        return reports, inside

    def inside(self, *, lat: FloatArray, lng: FloatArray) -> BoolArray:
        """Which places lie in what a report may name."""
        return self.nearest_cells(lat=lat, lng=lng)[1]

    @property
    def _cell_km(self) -> float:
        assert isinstance(self._space, AnyGrid)
        return self._space.cell_km

    @cached_property
    def _numbers(self) -> IntArray:
        """(rows, columns) of the rectangle around all reports: the report of each, −1 for none."""
        assert self._steps is not None
        column, row = (self._steps - self._steps.min(axis=0)).T
        numbers = np.full((row.max() + 1, column.max() + 1), -1)
        numbers[row, column] = np.arange(row.size)
        return frozen(numbers)

    @cached_property
    def _nearest(self) -> tuple[IntArray, IntArray]:
        """(rows, columns): row and column of the nearest place of the rectangle with a report."""
        rows, columns = distance_transform_edt(
            self._numbers < 0, return_distances=False, return_indices=True
        )
        return rows, columns
