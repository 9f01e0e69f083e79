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
from geoveil.errors import InvalidInput, Unsupported
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.outside import Outside, OutsideCount, check_outside
from geoveil.space.projection import coordinates

_CENTRE_DECIMALS = 7  # of a degree: about a centimetre

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Reports:
    """Columns of noisy reports, and the positions of the places they answer."""

    columns: Columns
    rows: IntArray


class Reporter(ABC):
    """Turns true latitudes and longitudes into columns of noisy reports, in three steps.

    ``place`` says what is reported on (cells, or degrees) and which of the places are taken; ``draw``
    draws a report for each; ``columns`` writes reports as columns. Nothing but the report is in
    them. Guarantee: that of the mechanism, for each report; reports about one person add up.
    ``outside`` counts the places outside the map.
    """

    column_names: list[str]
    outside: OutsideCount

    @abstractmethod
    def place(self, lat: FloatArray, lng: FloatArray) -> tuple[npt.NDArray[Any], BoolArray]:
        """What is reported on, for places in degrees, and which of the places are taken."""

    @abstractmethod
    def draw(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One noisy report for each."""

    @abstractmethod
    def columns(self, drawn: npt.NDArray[Any]) -> Columns:
        """The reports as columns of a table."""

    def report(self, *, lat: FloatArray, lng: FloatArray) -> Reports:
        """One noisy report for each place in degrees that is taken."""
        places, taken = self.place(lat, lng)
        return Reports(self.columns(self.draw(places[taken])), np.flatnonzero(taken))


def reporter_for(
    mechanism: Channel | ContinuousLaplace,
    *,
    outside: Outside = "drop",
    randomness: Randomness = SYSTEM,
) -> Reporter:
    """The reporter of a mechanism: cells for a channel, points for continuous noise."""
    if isinstance(mechanism, ContinuousLaplace):
        return PointReporter(mechanism, randomness=randomness)
    return CellReporter(mechanism, outside=outside, randomness=randomness)


class PointReporter(Reporter):
    """Reports of continuous noise: ``lat`` and ``lng``. Nothing is outside."""

    def __init__(self, mechanism: ContinuousLaplace, *, randomness: Randomness = SYSTEM) -> None:
        self._mechanism = mechanism
        self._randomness = randomness
        self.column_names = ["lat", "lng"]
        self.outside = OutsideCount("raise")

    def place(self, lat: FloatArray, lng: FloatArray) -> tuple[npt.NDArray[Any], BoolArray]:
        places = np.column_stack(coordinates(lat=lat, lng=lng))
        return places, np.ones(len(places), dtype=np.bool_)

    def draw(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        lat, lng = places[:, 0], places[:, 1]
        noisy = self._mechanism.sample_latlng(lat=lat, lng=lng, randomness=self._randomness)
        return np.column_stack(noisy)

    def columns(self, drawn: npt.NDArray[Any]) -> Columns:
        return {"lat": drawn[:, 0], "lng": drawn[:, 1]}


class CellReporter(Reporter):
    """Reports of a mechanism on cells: ``cell``, and its centre as ``lat`` and ``lng``."""

    def __init__(
        self, mechanism: Channel, *, outside: Outside = "drop", randomness: Randomness = SYSTEM
    ) -> None:
        check_outside(outside)
        self.mechanism = mechanism
        self._space: Any = _mapped(mechanism)
        self.randomness = randomness
        self.column_names = ["cell", "lat", "lng"]
        self.outside = OutsideCount(outside)

    @cached_property
    def _centres(self) -> list[FloatArray]:
        return [np.round(part, _CENTRE_DECIMALS) for part in self._space.centres_latlng()]

    def place(self, lat: FloatArray, lng: FloatArray) -> tuple[npt.NDArray[Any], BoolArray]:
        return self.outside.locate(self._space, lat, lng)

    def draw(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.mechanism.sample(places, randomness=self.randomness)

    def columns(self, drawn: npt.NDArray[Any]) -> Columns:
        return {"cell": drawn, "lat": self._centres[0][drawn], "lng": self._centres[1][drawn]}


def _mapped(mechanism: Channel) -> Any:
    """The space of the mechanism, when its reports are cells on a map."""
    if not isinstance(mechanism, Channel):
        kind = type(mechanism).__name__
        raise InvalidInput(f"mechanism ({kind}) must be a mechanism, such as PlanarGeometric")
    space = mechanism.space
    if not hasattr(space, "centres_latlng"):
        raise Unsupported(f"{space!r} has no map; use a mechanism on a Grid.from_box or on Points")
    if mechanism.report_count != space.size:
        raise Unsupported(f"reports of {mechanism!r} are not cells; use its sample method")
    return space
