"""The places that reports name: the cells of a map, and the rim around it where a mechanism has one."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from geoveil.arrays import BoolArray, FloatArray, IntArray, frozen
from geoveil.channel.channel import Channel
from geoveil.errors import Unsupported
from geoveil.position.positional import PositionalElastic
from geoveil.space.space import MapSpace


def rim_reports(channel: Channel) -> int | None:
    """How many reports name the rim, after the cells; ``None`` where reports are no places at all."""
    beyond = channel.report_count - channel.space.size
    return beyond if beyond == 0 or isinstance(channel, PositionalElastic) else None


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
        self._wide = channel if channel.report_count > channel.space.size else None

    @cached_property
    def latlng(self) -> tuple[FloatArray, FloatArray]:
        """Latitude and longitude of every report, to a centimetre."""
        degrees = self._space.centres_latlng()
        if isinstance(self._wide, PositionalElastic):
            around = self._wide.centres.points_km + self._space.centres[0]
            degrees = self._space.plane.to_latlng(around)
        lat, lng = (frozen(np.round(each, 7)) for each in degrees)
        return lat, lng

    def nearest_cells(self, *, lat: FloatArray, lng: FloatArray) -> tuple[IntArray, BoolArray]:
        """The reports nearest to places in degrees, and which of the places lie in what they name."""
        wide = self._wide
        if not isinstance(wide, PositionalElastic):
            return self._space.nearest_cells(lat=lat, lng=lng)
        offset = self._space.plane.to_plane(lat=lat, lng=lng) - self._space.centres[0]
        reached = np.array(wide.space.shape[::-1]) + (wide.rim - 1)  # the last column and row
        wanted = np.rint(offset / wide.space.cell_km)
        nearest = np.clip(wanted, -wide.rim, reached).astype(np.int64)
        reports: IntArray = self._numbers[nearest[:, 1] + wide.rim, nearest[:, 0] + wide.rim]
        return reports, (nearest == wanted).all(axis=1)

    def inside(self, *, lat: FloatArray, lng: FloatArray) -> BoolArray:
        """Which places lie in what a report may name."""
        return self.nearest_cells(lat=lat, lng=lng)[1]

    @cached_property
    def _numbers(self) -> IntArray:
        """(rows, columns) of the cells and the rim: the report of each."""
        assert isinstance(self._wide, PositionalElastic)
        rim, cell = self._wide.rim, self._wide.step
        at = self._wide.centres.points // cell + rim
        numbers = np.full(np.array(self._wide.space.shape) + 2 * rim, -1)
        numbers[at[:, 1], at[:, 0]] = np.arange(len(at))
        return frozen(numbers)
