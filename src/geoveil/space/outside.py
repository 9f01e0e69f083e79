"""Places outside their space: clamped, dropped or refused, counted, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from geoveil.arrays import BoolArray, FloatArray, IntArray, one_of
from geoveil.errors import OutsideSpace, number_of

Outside = Literal["clamp", "drop", "raise"]
"""``"clamp"``: to the nearest cell; ``"drop"``: left out; ``"raise"``: an error."""


class Findable(Protocol):
    """Where places are looked up: a map, or all that reports about one may name."""

    def nearest_cells(self, *, lat: FloatArray, lng: FloatArray) -> tuple[IntArray, BoolArray]:
        """The nearest of its cells for each place, and which of the places are inside."""


SWAPPED = "latitude and longitude look swapped"
_LOOKED_AT = 1000  # places are enough to see what they are
_MOST = 0.9  # of them have to agree
_FARTHEST_METRES = 2.1e7  # no map in metres has larger coordinates
_WORTH_A_WARNING = 0.01


def check_outside(outside: str) -> None:
    """Refuse a word that is none of the three."""
    one_of("outside", outside, get_args(Outside))


def settle(
    cells: IntArray,
    inside: BoolArray,
    outside: Outside,
    hint: Callable[[BoolArray], str] = lambda beyond: "",
) -> int | IntArray:
    """The clamped ``cells``, less those outside (then flat) or refused, as ``outside`` says.

    One place that lies outside cannot be left out of one answer: there ``"drop"`` refuses too.
    ``hint(beyond)`` is what may be wrong with those where ``beyond``, flat, is true.
    """
    check_outside(outside)
    if outside == "drop" and cells.ndim:
        return cells[inside]
    if outside != "clamp" and not inside.all():
        beyond = ~inside.ravel()
        raise OutsideSpace(
            f"every place must lie in the space; {np.count_nonzero(beyond)} of {beyond.size} do "
            f"not, the first at position {np.flatnonzero(beyond)[0]}; "
            + (hint(beyond) or "leave these out or use outside='clamp'")
        )
    return cells if cells.ndim else int(cells)


def on_earth(lat: FloatArray, lng: FloatArray) -> BoolArray:
    """Which pairs are places on the Earth: finite, |lat| ≤ 90, |lng| ≤ 180."""
    return (np.abs(lat) <= 90.0) & (np.abs(lng) <= 180.0)


def no_degrees(lat: FloatArray, lng: FloatArray) -> str:
    """What coordinates out of range look like, in words; empty where nobody can tell.

    >>> no_degrees(np.array([-122.4]), np.array([37.8]))
    'latitude and longitude look swapped'
    >>> no_degrees(np.array([6250000.0]), np.array([262000.0]))
    'these look like projected coordinates in metres; convert them to WGS84 degrees (EPSG:4326)'
    """
    lat, lng = lat[:_LOOKED_AT], lng[:_LOOKED_AT]
    small, large = np.sort(np.abs([lat, lng]), axis=0)
    if _mostly(on_earth(lng, lat)):
        return SWAPPED
    if _mostly((large > _FARTHEST_METRES) & on_earth(lat / 1e7, lng / 1e7)):
        either = "1,000,000 or " if _mostly(on_earth(lat / 1e6, lng / 1e6)) else ""
        return f"these look like degrees times {either}10,000,000; divide them by that"
    if _mostly((small > 1000.0) & (large <= _FARTHEST_METRES)):
        return (
            "these look like projected coordinates in metres; convert them to WGS84 degrees "
            "(EPSG:4326)"
        )
    return ""


_READINGS: dict[str, Callable[[FloatArray, FloatArray], Iterable[FloatArray]]] = {
    SWAPPED: lambda lat, lng: (lng, lat),
    "the longitudes look as if their minus sign were lost": lambda lat, lng: (lat, -lng),
    "these look like radians; convert them to degrees": lambda *radians: np.rad2deg(radians),
}


def elsewhere(space: Findable, lat: FloatArray, lng: FloatArray) -> str:
    """What places outside a space look like: a reading that puts nearly all of them inside."""
    for words, reading in _READINGS.items():
        with np.errstate(over="ignore"):
            read_lat, read_lng = reading(lat[:_LOOKED_AT], lng[:_LOOKED_AT])
        good = on_earth(read_lat, read_lng)
        if not _mostly(good):
            continue
        if _mostly(space.nearest_cells(lat=read_lat[good], lng=read_lng[good])[1]):
            return words
    return ""


def _mostly(true: BoolArray) -> bool:
    return true.size > 0 and float(true.mean()) >= _MOST


@dataclass
class OutsideCount:
    """How many places of a table lie outside the map, what is done with them, what may be wrong.

    >>> from geoveil.space.grid import Grid
    >>> paris = Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=0.5)
    >>> count = OutsideCount("drop")
    >>> cells, inside = count.locate(paris, np.array([48.85, 2.3]), np.array([2.3, 48.85]))
    >>> count.sentence()
    '1 of 2 places (50 %) lies outside the map and was left out'
    >>> count.hint
    'latitude and longitude look swapped'
    """

    rule: Outside
    places: int = 0
    outside: int = 0
    hint: str = ""
    moved: str = "to the nearest cell"
    """Where the rule ``"clamp"`` takes them, in words."""
    what: Literal["places", "trips"] = "places"
    """What is counted; a trip with an end outside is outside."""

    def locate(
        self, space: Findable, lat: FloatArray, lng: FloatArray
    ) -> tuple[IntArray, BoolArray]:
        """The nearest cells of some more places, and which of the places are usable."""
        cells, inside = space.nearest_cells(lat=lat, lng=lng)
        return cells, self._usable(inside, lambda: elsewhere(space, lat[~inside], lng[~inside]))

    def locate_both(
        self, space: Findable, begun: tuple[FloatArray, ...], ended: tuple[FloatArray, ...]
    ) -> tuple[IntArray, BoolArray]:
        """(trips, 2): the nearest cells of both ends of some more trips, and which are usable."""
        first, here = space.nearest_cells(lat=begun[0], lng=begun[1])
        second, there = space.nearest_cells(lat=ended[0], lng=ended[1])

        def hint() -> str:
            beyond = [np.concatenate([begun[axis][~here], ended[axis][~there]]) for axis in (0, 1)]
            return elsewhere(space, *beyond)

        return np.stack([first, second], axis=1), self._usable(here & there, hint)

    def _usable(self, inside: BoolArray, hint: Callable[[], str]) -> BoolArray:
        """Count some more, and say which are usable: those inside, or all where they are clamped."""
        missing = int(inside.size - np.count_nonzero(inside))
        if missing and self.rule == "raise":
            number = self.places + int(np.flatnonzero(~inside)[0]) + 1
            one = self.what.removesuffix("s")
            raise OutsideSpace(
                f"every {one} must lie on the map; number {number} does not; "
                f"choose a larger map, or let such {self.what} be clamped or dropped"
            )
        if missing and not self.hint:
            self.hint = hint()
        self.places += inside.size
        self.outside += missing
        return np.ones_like(inside) if self.rule == "clamp" else inside

    def add(self, other: OutsideCount) -> None:
        """Take in what another process has counted."""
        self.places += other.places
        self.outside += other.outside
        self.hint = self.hint or other.hint

    @property
    def dropped(self) -> int:
        """How many were left out."""
        return self.outside if self.rule == "drop" else 0

    @property
    def clamped(self) -> int:
        """How many were moved onto the map."""
        return self.outside if self.rule == "clamp" else 0

    @property
    def worth_a_warning(self) -> bool:
        """Whether they are one in a hundred or more."""
        return 0 < self.outside >= _WORTH_A_WARNING * self.places

    def sentence(self) -> str:
        """How many, of how many, and what became of them; empty where none is outside."""
        if not self.outside:
            return ""
        share = f"{100 * self.outside / self.places:.3g}"
        fate = "left out" if self.rule == "drop" else f"moved {self.moved}"
        lies, has, was = ("lies", "has", "was") if self.outside == 1 else ("lie", "have", "were")
        lies = lies if self.what == "places" else f"{has} an end"
        places = number_of(self.places, self.what.removesuffix("s"))
        return f"{self.outside:,} of {places} ({share} %) {lies} outside the map and {was} {fate}"

    def check(self, name: str, advice: str) -> None:
        """Refuse a table none of whose places is inside; from then on ``advice`` is the hint."""
        if self.places and self.outside == self.places:
            lie = "the only one lies" if self.places == 1 else f"all {self.places:,} lie"
            raise OutsideSpace(
                f"{name} must have a {self.what.removesuffix('s')} on the map; {lie} outside; {advice}"
            )
        if self.hint:
            self.hint = advice
