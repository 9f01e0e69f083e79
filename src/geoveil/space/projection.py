"""Degrees at the border: the tangent plane, and places given by latitude and longitude."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from geoveil import arrays
from geoveil.arrays import ArrayLike, BoolArray, FloatArray
from geoveil.errors import InvalidFile, InvalidInput, OutsideSpace
from geoveil.space.outside import no_degrees

Degrees = ArrayLike | None
"""A longitude under one of its two names, ``lng`` or ``lon``: given once, under either."""
EQUATOR_KM = 6378.137
"""Semi-major axis a of WGS84."""
_FLATTENING = 1.0 / 298.257223563
ECCENTRICITY_SQUARED = _FLATTENING * (2.0 - _FLATTENING)
_LIMB_KM = 6400.0  # just beyond the outline of the globe seen from above any point
_BLOCK = 1 << 15  # temporaries of one block stay in the cache


@dataclass(frozen=True, init=False)
class TangentPlane:
    """The plane that touches the WGS84 ellipsoid at one place; x east, y north, in kilometres.

    Units: degrees outside, kilometres inside. Cost: linear, four sines or cosines a point, with
    temporaries of bounded size. Sound across ±180° and beside the poles.

    >>> plane = TangentPlane(lat=48.85, lng=2.35)
    >>> plane.to_plane(lat=48.86, lng=2.35).round(3).tolist()
    [0.0, 1.112]
    >>> lat, lng = plane.to_latlng([[3.0, -4.0]])
    >>> plane.to_plane(lat=lat, lng=lng).round(9).tolist()
    [[3.0, -4.0]]
    """

    lat: float
    lng: float

    def __init__(self, lat: float, lng: float | None = None, *, lon: float | None = None) -> None:
        latitude, east = coordinates(lat=lat, lng=lng, lon=lon)
        if latitude.ndim:
            raise InvalidInput(f"lat and lng (shape {latitude.shape}) must be one place")
        object.__setattr__(self, "lat", float(latitude))
        object.__setattr__(self, "lng", float(wrapped(east)))

    def to_plane(
        self, *, lat: ArrayLike, lng: Degrees = None, lon: Degrees = None, folded: bool = False
    ) -> FloatArray:
        """Plane coordinates (…, 2) in km of places given in degrees; any real longitude is wrapped.

        The far side of the globe, which an orthographic map would fold back onto the near one, is
        one place instead: due north of the origin, just beyond every point of the near side. Where it is
        ``folded`` back, no two places anywhere on the globe come farther apart than they are.
        """
        latitude, longitude = coordinates(lat=lat, lng=lng, lon=lon)
        flat_lat, flat_lng = latitude.ravel(), longitude.ravel()
        plane = np.empty((flat_lat.size, 2))
        for block in blocks(flat_lat.size):
            east, north = self.project(flat_lat[block], flat_lng[block], folded=folded)
            plane[block, 0], plane[block, 1] = east, north
        return plane.reshape(*latitude.shape, 2)

    def project(
        self, lat: FloatArray, lng: FloatArray, *, folded: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """(east, north) in km of checked coordinates: one block, no chunking."""
        sine0, cosine0, normal0 = self._origin
        turn = np.deg2rad(wrapped(lng) - self.lng)
        latitude = np.deg2rad(lat)
        sine, cosine = np.sin(latitude), np.cos(latitude)
        normal = EQUATOR_KM / np.sqrt(1.0 - ECCENTRICITY_SQUARED * sine * sine)
        axial = cosine * np.cos(turn)  # towards the meridian of the origin, over N
        east = normal * (cosine * np.sin(turn))
        north = normal * (cosine0 * (1.0 - ECCENTRICITY_SQUARED) * sine - sine0 * axial)
        north += ECCENTRICITY_SQUARED * normal0 * sine0 * cosine0
        if not folded:
            hidden = cosine0 * axial + sine0 * sine < 0.0  # the surface faces away from the plane
            east[hidden], north[hidden] = 0.0, _LIMB_KM
        return east, north

    def to_latlng(self, xy: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Latitude and longitude in degrees, −180 ≤ lng < 180, of plane coordinates (…, 2) in km.

        The up component u solves A u² + 2 B u + C = 0, the condition to lie on the ellipsoid.
        """
        plane = plane_coordinates("xy", xy)
        flat = plane.reshape(-1, 2)
        lat, lng = np.empty(len(flat)), np.empty(len(flat))
        for block in blocks(len(flat)):
            lat[block], lng[block] = self._unproject(flat[block, 0], flat[block, 1])
        return lat.reshape(plane.shape[:-1]), lng.reshape(plane.shape[:-1])

    def _unproject(self, east: FloatArray, north: FloatArray) -> tuple[FloatArray, FloatArray]:
        if not ((np.abs(east) < _LIMB_KM) & (np.abs(north) < _LIMB_KM)).all():
            raise OutsideSpace(_BEYOND)
        sine0, cosine0, normal0 = self._origin
        stretch = 1.0 / (1.0 - ECCENTRICITY_SQUARED)  # (a/b)²
        a = cosine0**2 + stretch * sine0**2
        b = normal0 + (stretch - 1.0) * sine0 * cosine0 * north
        c = east * east + (sine0**2 + stretch * cosine0**2) * north * north
        discriminant = b * b - a * c
        if not (discriminant >= 0.0).all():
            raise OutsideSpace(_BEYOND)
        up = -c / (b + np.sqrt(discriminant))  # the root near 0, without cancellation
        x = normal0 * cosine0 - sine0 * north + cosine0 * up
        z = normal0 * sine0 / stretch + cosine0 * north + sine0 * up
        lat = np.rad2deg(np.arctan2(z, np.hypot(x, east) / stretch))
        return lat, wrapped(self.lng + np.rad2deg(np.arctan2(east, x)))

    @cached_property
    def _origin(self) -> tuple[float, float, float]:
        """sin φ₀, cos φ₀ and N₀, the radius of curvature in the prime vertical."""
        sine, cosine = np.sin(np.deg2rad(self.lat)), np.cos(np.deg2rad(self.lat))
        normal = EQUATOR_KM / np.sqrt(1.0 - ECCENTRICITY_SQUARED * sine * sine)
        return float(sine), float(cosine), float(normal)


_BEYOND = "xy must lie within the outline of the globe, about 6,356 km around the origin"


def wrapped(lng: Any) -> Any:
    """Longitudes in −180 ≤ lng < 180; those that already are stay exactly as they are."""
    beyond = (lng < -180.0) | (lng >= 180.0)
    if not np.any(beyond):
        return lng
    turned = np.remainder(lng, 360.0)
    return np.where(beyond, np.where(turned >= 180.0, turned - 360.0, turned), lng)


def blocks(size: int) -> Iterator[slice]:
    """Consecutive slices that cover ``size`` entries."""
    return (slice(start, start + _BLOCK) for start in range(0, size, _BLOCK))


def either_longitude(lng: Any, lon: Any) -> Any:
    """The longitude by either of its names; both or neither is an error."""
    if lng is None and lon is not None:
        return lon
    if lng is None or lon is not None:
        names = "neither" if lng is None else "both"
        raise InvalidInput(f"the longitude ({names}) must be given once, as lng or as lon")
    return lng


def coordinates(
    *, lat: ArrayLike, lng: Degrees = None, lon: Degrees = None
) -> tuple[FloatArray, FloatArray]:
    """Latitudes and longitudes as finite arrays of one shape, or an error without their values."""
    latitude, longitude = numbers("lat", lat), numbers("lng", either_longitude(lng, lon))
    if latitude.shape != longitude.shape:
        raise InvalidInput(
            f"lat (shape {latitude.shape}) and lng (shape {longitude.shape}) must have one shape"
        )
    wrong = np.abs(latitude) > 90.0
    hint = no_degrees(latitude[wrong], longitude[wrong])
    refuse("lat must lie in -90 … 90 degrees", wrong, hint)
    return latitude, longitude


def plane_coordinates(name: str, value: ArrayLike) -> FloatArray:
    """The value as finite plane coordinates (…, 2)."""
    plane = numbers(name, value)
    if plane.ndim == 0 or plane.shape[-1] != 2:
        raise InvalidInput(f"{name} (shape {plane.shape}) must end in pairs (east, north)")
    return plane


def numbers(name: str, value: Any) -> FloatArray:
    """The value as a finite float array; text and booleans are refused too."""
    such_as = "numbers, in one array without gaps"
    array = arrays.numbers(name, value, such_as)
    raw = np.asarray(value)
    held = raw.flat if raw.dtype.kind == "O" else ()
    if raw.dtype.kind in "bSU" or any(isinstance(e, str | bytes | bool) for e in held):
        raise InvalidInput(f"{name} must be {such_as}")
    refuse(f"{name} must be finite", ~np.isfinite(array))
    return array


def refuse(condition: str, wrong: BoolArray, hint: str = "") -> None:
    """Raise ``condition`` with the position of the first wrong entry, never with its value."""
    if wrong.any():
        position = int(np.flatnonzero(wrong.ravel())[0])
        advice = f"; {hint}" if hint else ""
        raise InvalidInput(f"{condition}; the entry at position {position} is not{advice}")


_DEGREES = re.compile(
    r"\b(EPSG:+4326|(OGC:([\d.]*:)?)?CRS:?84)$|^GEOG[A-Z]*\[\"WGS[ _]?(19)?84[\" ]"
)
_PLAIN_NAMES = ("WGS 84", "WGS 84 (CRS84)")
_PRECISE = re.compile(r"\d[.,]\d\d")


def check_degrees(crs: Any, name: str) -> None:
    """Refuse coordinates that are not degrees of WGS84; no reference system means that they are.

    ``crs`` is PROJJSON, the ``crs`` member of GeoJSON, or text.

    >>> check_degrees({"id": {"authority": "EPSG", "code": 4326}}, "places.parquet")
    """
    if crs is None:
        return
    try:  # AUTHORITY:CODE where there is one, else the name; empty where there is neither
        if isinstance(crs, str):
            named = crs
        elif "id" in crs:
            named = f"{crs['id']['authority']}:{crs['id']['code']}"
        else:
            named = str(crs["name"] if "name" in crs else crs["properties"]["name"])
    except (KeyError, TypeError):
        named = ""
    if _DEGREES.search(named) or (named in _PLAIN_NAMES and crs["type"] == "GeographicCRS"):
        return
    shown = "one of its own" if not named or _PRECISE.search(named) else named[:60]
    raise InvalidFile(
        f"{name} must hold longitude and latitude in degrees (WGS84); its coordinate reference "
        f"system is {shown}; convert it to EPSG:4326"
    )
