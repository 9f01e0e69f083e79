"""A location on its way to a drawn cell: read once, drawn from, and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import numpy as np

from geoveil.channel.words import NEARBY_KM, explain, explain_trip
from geoveil.client.ledger_book import Drawn
from geoveil.client.refusal import Refused, without_frames
from geoveil.document.wire import MechanismDocument
from geoveil.errors import two_digits

Beyond = Literal["clamp", "refuse"]
"""A location outside the cells: a report is drawn there too, or nothing is sent."""
Locate = Callable[[], tuple[float, float] | tuple[float, float, float]]
"""Reads the location: latitude and longitude in degrees, and how accurate they are in km, if known."""


class Whereabouts:
    """Where somebody is: two numbers or a function that reads them. Empty once it was read."""

    __slots__ = ("_accuracy_km", "_locate")

    def __init__(self, locate: Locate | None, accuracy_km: float | None) -> None:
        self._locate = locate
        self._accuracy_km = accuracy_km

    def forget(self) -> None:
        """Nothing is here any more."""
        self._locate = None

    @without_frames
    def draw(self, document: MechanismDocument, bits: bytes, outside: Beyond) -> Drawn:
        """Read the location and draw from it; what ``locate`` raises is raised as it is."""
        locate, accuracy_km = self._locate, self._accuracy_km
        self.forget()
        assert locate is not None
        fix: Any = locate()
        try:
            lat, lng, *more = fix
            accuracy_km = more[0] if more else accuracy_km
            if len(more) > 1 or not (_is_number(lat) and _is_number(lng)):
                raise TypeError
            area, law = document.area, document.law
            if accuracy_km is not None and not (
                _is_number(accuracy_km) and 0 <= accuracy_km <= area.cell_km
            ):  # for the map's sake, not for privacy
                raise Refused("accuracy", f"cells of {1000 * area.cell_km:.4g} m")
            place = area.place_km(float(lat), float(lng))
            if outside == "refuse" and not area.inside(float(lat), float(lng)):
                raise Refused("outside")
            reported = law.draw(law.steps_of(place), bits)  # the same work everywhere
            return reported, *area.latlng(law.centres.points_km[reported])
        except (TypeError, ValueError, ArithmeticError):
            raise Refused("location") from None


def whereabouts(
    lat: Any, lng: Any, lon: Any, locate: Locate | None, accuracy_km: float | None
) -> Whereabouts | str:
    """What was given to ``report``, or what is wrong with it in words."""
    if lng is not None and lon is not None:
        return "the longitude (both) must be given once, as lng or as lon"
    east = lon if lng is None else lng
    if accuracy_km is not None and not (_is_number(accuracy_km) and accuracy_km >= 0):
        return "accuracy_km must be a number of kilometres, 0 or more"
    if callable(locate) and lat is None and east is None:
        return Whereabouts(locate, accuracy_km)
    if locate is None and lat is not None and east is not None:
        return Whereabouts(lambda: (lat, east), accuracy_km)
    return "report must be given lat and lng, or locate, a function that reads them"


def end_of_trip(name: str, end: Any) -> Whereabouts | str:
    """One end of a trip as it was given to ``report_trip``, or what is wrong with it in words."""
    if callable(end):
        return Whereabouts(end, None)
    if isinstance(end, tuple) and len(end) in (2, 3):
        return Whereabouts(lambda: end, None)
    return (
        f"{name} must be (lat, lng), or (lat, lng, accuracy_km), or a function that reads them; both "
        "ends of a trip must be given"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def in_words(document: MechanismDocument, slot: int | None = None) -> str:
    """What a report tells about two people, what is sent, and how far from the truth it lies.

    ``slot`` is the one that would be named.
    """
    law, cells = document.law, document.area.size
    middle = law.centres.rectangle_km.mean(axis=0)
    row = law.rows_at(law.steps_of(middle)[None])[0].astype(float)
    away = law.centres.points_km - middle
    mean_km = float(row @ np.hypot(away[:, 0], away[:, 1]) / row.sum())
    sides = f"{1000 * document.area.cell_km:.0f} m"
    listed = f"{cells} places about {sides} apart"
    around = " or of a ring around them" if document.rim else ""
    named = listed if document.area.points is not None else f"{cells} cells of {sides}{around}"
    when = ""
    if document.slots is not None and slot is not None:
        when = (
            f", and the slot of now ({document.slots.in_words(slot)}), which says when, not where, and is "
            "not changed by chance"
        )
    if document.trips:
        return (
            f"{explain_trip(document.promise, None, NEARBY_KM)} Two of {named} would be sent, one drawn at "
            "random around where your trip began and one around where it ended, with a random number and "
            f"the id of the rule they were drawn by{when}; nothing else. From the middle of the map each "
            f"lies {two_digits(mean_km)} km away on average. That both ends are one person's is known, and "
            "is why a trip costs twice."
        )
    stand = "where you stand" + (
        ", at one of them or elsewhere" if document.area.points is not None else ""
    )
    return (
        f"{explain(document.promise, None, NEARBY_KM)} One of {named} would be sent, drawn at random around "
        f"{stand}, with a random number and the id of the rule it was drawn by{when}; nothing else. "
        f"From the middle of the map it lies {two_digits(mean_km)} km away on average."
    )
