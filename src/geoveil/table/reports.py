"""Noisy columns out of true places: the one step at which a location becomes a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.channel.base import Channel
from geoveil.errors import InvalidInput, OutsideSpace, Unsupported
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.outside import Outside, check_outside

_CENTRE_DECIMALS = 7  # of a degree: about a centimetre


@dataclass(frozen=True)
class Reports:
    """Columns of noisy reports, and which of the given places they answer (``None``: all)."""

    columns: dict[str, npt.NDArray[Any]]
    answered: BoolArray | None = None


class Reporter(ABC):
    """Turns true latitudes and longitudes into columns of noisy reports, one report per place.

    Nothing but the report is in the columns. Guarantee: that of the mechanism, for each row; rows
    about one person add up. ``left_out`` counts the places dropped because they lie outside,
    ``clamped`` those that were moved to the nearest cell.
    """

    column_names: list[str]
    left_out: int = 0
    clamped: int = 0

    @abstractmethod
    def report(self, *, lat: FloatArray, lng: FloatArray) -> Reports:
        """One noisy report for each place in degrees."""


def reporter_for(
    mechanism: Channel | ContinuousLaplace,
    *,
    outside: Outside = "clamp",
    randomness: Randomness = SYSTEM,
) -> Reporter:
    """The reporter of a mechanism: cells for a channel, points for continuous noise."""
    if isinstance(mechanism, ContinuousLaplace):
        return PointReporter(mechanism, randomness=randomness)
    return CellReporter(mechanism, outside=outside, randomness=randomness)


class PointReporter(Reporter):
    """Reports of continuous noise: ``lat`` and ``lng``."""

    def __init__(self, mechanism: ContinuousLaplace, *, randomness: Randomness = SYSTEM) -> None:
        self._mechanism = mechanism
        self._randomness = randomness
        self.column_names = ["lat", "lng"]

    def report(self, *, lat: FloatArray, lng: FloatArray) -> Reports:
        noisy = self._mechanism.sample_latlng(lat=lat, lng=lng, randomness=self._randomness)
        return Reports({"lat": noisy[0], "lng": noisy[1]})


class CellReporter(Reporter):
    """Reports of a mechanism on cells: ``cell``, and its centre as ``lat`` and ``lng``."""

    def __init__(
        self, mechanism: Channel, *, outside: Outside = "clamp", randomness: Randomness = SYSTEM
    ) -> None:
        check_outside(outside)
        self._mechanism = mechanism
        self._space: Any = _mapped(mechanism, outside)
        self._outside = outside
        self._randomness = randomness
        self._places = 0
        self.column_names = ["cell", "lat", "lng"]

    @cached_property
    def _centres(self) -> list[FloatArray]:
        return [np.round(part, _CENTRE_DECIMALS) for part in self._space.centres_latlng()]

    def report(self, *, lat: FloatArray, lng: FloatArray) -> Reports:
        noisy, answered = self.draw(lat=lat, lng=lng, randomness=self._randomness)
        columns = {"cell": noisy, "lat": self._centres[0][noisy], "lng": self._centres[1][noisy]}
        return Reports(columns, answered)

    def draw(
        self, *, lat: FloatArray, lng: FloatArray, randomness: Randomness
    ) -> tuple[IntArray, BoolArray | None]:
        """The reported cells alone, and which of the places they answer (``None``: all)."""
        answered = self._answered(lat, lng)
        self._places += lat.size
        if answered is not None:
            lat, lng = lat[answered], lng[answered]
        cells = self._space.locate(lat=lat, lng=lng)
        return self._mechanism.sample(cells, randomness=randomness), answered

    def _answered(self, lat: FloatArray, lng: FloatArray) -> BoolArray | None:
        """Which places get a report; ``None`` when all do. Those outside are counted."""
        if not hasattr(self._space, "inside"):
            return None
        inside: BoolArray = self._space.inside(lat=lat, lng=lng)
        missing = int(inside.size - np.count_nonzero(inside))
        if self._outside == "clamp":
            self.clamped += missing
            return None
        if missing and self._outside == "raise":
            number = self._places + int(np.flatnonzero(~inside)[0]) + 1
            raise OutsideSpace(
                f"every place must lie in the box; number {number} does not; "
                "widen the box, or let such places be clamped or dropped"
            )
        self.left_out += missing
        return inside if missing else None


def _mapped(mechanism: Channel, outside: Outside) -> Any:
    """The space of the mechanism, when its reports are cells on a map."""
    if not isinstance(mechanism, Channel):
        kind = type(mechanism).__name__
        raise InvalidInput(f"mechanism ({kind}) must be a mechanism, such as PlanarGeometric")
    space = mechanism.space
    if not hasattr(space, "centres_latlng"):
        raise Unsupported(f"{space!r} has no map; use a mechanism on a Grid.from_box or on Points")
    if mechanism.report_count != space.size:
        raise Unsupported(f"reports of {mechanism!r} are not cells; use its sample method")
    if outside != "clamp" and not hasattr(space, "inside"):
        raise Unsupported(f"{space!r} has no outside; the nearest place stands for every other")
    return space
