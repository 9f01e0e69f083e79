"""Noise around points of the plane and of the globe, for any law of its radius.

On the sphere a radius drawn for the plane is kept with probability sin(r/R)/(r/R), the ratio of the
circumferences there and here: the density per unit *area* is then the same function of the
great-circle distance, up to a constant that does not depend on the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.randomness import Randomness
from geoveil.space.projection import coordinates, plane_coordinates, wrapped

SAFE_RADIUS_KM = 6335.439
"""The smallest radius of curvature of WGS84: distances on this sphere never exceed those on the ground."""

Polar = Callable[[int, Randomness], tuple[FloatArray, FloatArray]]
"""polar(size, randomness): so many radii in km and angles in radians of noise in the plane."""

_CHUNK = 1 << 15


def noisy_km(polar: Polar, xy_km: npt.ArrayLike, randomness: Randomness) -> FloatArray:
    """Noisy points of the plane, rounded to a lattice of 0.1 m that is the same for everybody."""
    points = plane_coordinates("xy_km", xy_km)
    radius, angle = polar(points.size // 2, randomness)
    steps = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
    return np.rint((points + steps.reshape(points.shape)) * 1e4) / 1e4


def noisy_latlng(
    polar: Polar, lat: npt.ArrayLike, lng: npt.ArrayLike, randomness: Randomness
) -> tuple[FloatArray, FloatArray]:
    """Noisy latitudes and longitudes, rounded to a lattice of 1e-6 degrees (0.1 m)."""
    true_lat, true_lng = coordinates(lat=lat, lng=lng)
    noisy_lat, noisy_lng = np.empty(true_lat.size), np.empty(true_lat.size)
    flat_lat, flat_lng = true_lat.ravel(), wrapped(true_lng.ravel())
    for start in range(0, true_lat.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        radius, angle = _spherical(polar, flat_lat[part].size, randomness)
        noisy_lat[part], noisy_lng[part] = destination(
            flat_lat[part], flat_lng[part], radius / SAFE_RADIUS_KM, angle
        )
    lattice_lng = wrapped(_on_lattice(noisy_lng, true_lat.shape))  # rounding can reach 180
    return _on_lattice(noisy_lat, true_lat.shape), lattice_lng


def _spherical(polar: Polar, size: int, randomness: Randomness) -> tuple[FloatArray, FloatArray]:
    radius, angle = polar(size, randomness)
    open_draws = np.arange(size)
    while open_draws.size:
        arc = radius[open_draws] / SAFE_RADIUS_KM
        kept = np.where(arc < math.pi, np.sinc(arc / math.pi), 0.0)
        open_draws = open_draws[~randomness.chance(kept, open_draws.size)]
        radius[open_draws], angle[open_draws] = polar(open_draws.size, randomness)
    return radius, angle


def _on_lattice(degrees: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Rounded to 1e-6 degrees; a scalar for a scalar."""
    return (np.rint(degrees * 1e6) / 1e6).reshape(shape)[()]


def destination(
    lat: FloatArray, lng: FloatArray, arc: FloatArray, bearing: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Where one arrives after an ``arc`` (radians) along a great circle, in degrees."""
    sin_lat, cos_lat = np.sin(np.radians(lat)), np.cos(np.radians(lat))
    sin_arc, cos_arc = np.sin(arc), np.cos(arc)
    along, across = np.cos(bearing) * sin_arc, np.sin(bearing) * sin_arc
    sine = sin_lat * cos_arc + cos_lat * along
    turn = np.arctan2(across, cos_lat * cos_arc - sin_lat * along)
    return np.degrees(np.arcsin(np.clip(sine, -1, 1))), wrapped(lng + np.degrees(turn))
