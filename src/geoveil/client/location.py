"""A location on its way to a drawn cell: read once, drawn from, and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

from geoveil.channel.words import NEARBY_KM
from geoveil.client.ledger_book import Drawn
from geoveil.client.refusal import Refused, without_frames
from geoveil.document.canonical import document_id
from geoveil.document.wire import MechanismDocument
from geoveil.errors import OutsideSpace

Beyond = Literal["clamp", "refuse"]
"""A location outside the box: the nearest cell takes its place, or nothing is sent."""
Locate = Callable[[], tuple[float, float] | tuple[float, float, float]]
"""Reads the location: latitude and longitude in degrees, and how accurate they are in km, if known."""


class Whereabouts:
    """Where somebody is: two numbers or a function that reads them. Empty once it was read."""

    __slots__ = ("_accuracy_km", "_read")

    def __init__(self, read: Locate | None, accuracy_km: float | None) -> None:
        self._read = read
        self._accuracy_km = accuracy_km

    def forget(self) -> None:
        """Nothing is here any more."""
        self._read = None

    @without_frames
    def draw(self, document: MechanismDocument, bits: bytes, outside: Beyond) -> Drawn:
        """Read the location and draw from it; what ``locate`` raises is raised as it is."""
        read, accuracy_km = self._read, self._accuracy_km
        self.forget()
        assert read is not None
        fix: Any = read()
        try:
            lat, lng, *more = fix
            accuracy_km = more[0] if more else accuracy_km
            if len(more) > 1 or not (_is_number(lat) and _is_number(lng)):
                raise TypeError
            if accuracy_km is not None and not _is_fine(accuracy_km, document):
                raise Refused("accuracy", f"cells of {1000 * cell_km(document):.4g} m")
            return draw_at(document, float(lat), float(lng), bits, outside)
        except OutsideSpace:
            raise Refused("outside") from None
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
    if locate is not None and lat is None and east is None:
        return Whereabouts(locate, accuracy_km)
    if locate is None and lat is not None and east is not None:
        return Whereabouts(lambda: (lat, east), accuracy_km)
    return "report must be given lat and lng, or locate, a function that reads them"


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_fine(accuracy_km: Any, document: MechanismDocument) -> bool:
    """Whether a fix is no coarser than a cell; for the map's sake, not for privacy."""
    return _is_number(accuracy_km) and 0 <= accuracy_km <= cell_km(document)


# --- The law of a document: all that a device asks of it, and the one place that knows how


def space_id(document: MechanismDocument) -> str:
    """SHA-256 of where reports can lie, which a campaign must not change."""
    return document_id(document.mechanism.space.to_dict())


def cell_km(document: MechanismDocument) -> float:
    """How large the cells are."""
    return document.mechanism.space.cell_km


def draw_at(
    document: MechanismDocument, lat: float, lng: float, bits: bytes, outside: Beyond
) -> Drawn:
    """The report for a position, and the centre of the cell it names; the same work everywhere."""
    grid = document.mechanism.space
    cells, inside = grid.nearest_cells(lat=lat, lng=lng)
    if outside == "refuse" and not inside:
        raise OutsideSpace("the location lies outside")
    reported = document.mechanism.draw(int(cells), bits)
    centre_lat, centre_lng = grid.plane.to_latlng(grid.centres[reported])
    return reported, float(centre_lat), float(centre_lng)


def in_words(document: MechanismDocument) -> str:
    """What a report sends, how far from the truth it lies, and what it tells about two people."""
    mechanism, grid = document.mechanism, document.mechanism.space
    middle = int(grid.cell_at(grid.rows // 2, grid.columns // 2))
    mean_km = float(mechanism.row(middle) @ grid.distances_from_km(middle))
    return (
        f"one of {grid.size} cells of {1000 * grid.cell_km:.0f} m would be sent, drawn at random "
        "around yours, with a random number and the id of the rule it was drawn by; nothing else. "
        f"From the middle of the map it lies {mean_km:.2g} km away on average. "
        f"{mechanism.explain(NEARBY_KM)}"
    )
