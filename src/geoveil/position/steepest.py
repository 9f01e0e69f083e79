"""The largest slope of a law at some positions, over all its centres, without looking at most of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.position.cone import RoundedCone

_MARGIN = 1.0 + 1e-9
"""Makes up for the rounding of a tile's bound, many times over."""
_TOGETHER = 1 << 17
"""How many pairs of a place and a centre are looked at together."""


class Mean(NamedTuple):
    """g = −∇Z/Z at places q and within ρ of them, arrays of one shape."""

    east: FloatArray
    north: FloatArray
    east_east: FloatArray
    east_north: FloatArray
    north_north: FloatArray
    """∇g."""
    rest: FloatArray
    """|g − g(q) − ∇g(q)·h|, at most."""

    @property
    def length(self) -> FloatArray:
        """|g| at q."""
        return length(self.east, self.north)

    def only(self, chosen: IntArray) -> Mean:
        """At some of the places."""
        return Mean(*(part[chosen] for part in self))


class Steepest:
    """max_y |a_y − g| over the centres y, a_y = ∇φ(x − y), at places q and within ρ of them.

    Centres lie in tiles of √n, and one bound for all centres of a tile tells whether any of them can be the
    largest. Few tiles can, and the rest is left out: what is found is the largest over all centres, to the
    last digit. docs/decisions/0011-positions.md has the bound in its step 7.
    """

    def __init__(self, centres_km: FloatArray, cone: RoundedCone) -> None:
        self._cone = cone
        tiles = _cut(centres_km, max(1, round(len(centres_km) ** 0.5)))
        widest = max(tile.size for tile in tiles)
        # the last centre of a smaller tile stands in it several times, which changes no maximum
        members = np.stack([tile[np.minimum(np.arange(widest), tile.size - 1)] for tile in tiles])
        self._centres = centres_km[members]  # (tiles, widest, 2)
        low, high = self._centres.min(axis=1), self._centres.max(axis=1)
        self._middle = low + (high - low) / 2.0
        self._reach = length(*(high - low).T) / 2.0

    def at(
        self, places_km: FloatArray, mean: Mean, rho: float, enough: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """(k,), (k,): the largest |a_y − g| at the places, and a bound on it within ρ of them.

        Tiles whose bound is at most ``enough`` count with that bound and are not looked at: the first is then
        the largest over the others, and the second may be too high only where it is at most ``enough``.
        """
        at, within = self._bounds(places_km, mean, rho)
        matters = within * (1.0 + 1e-12) + mean.rest[:, None] > enough
        squares, most = np.zeros(len(places_km)), np.zeros(len(places_km))
        first, rows = within.argmax(axis=1), np.flatnonzero(matters.any(axis=1))
        squares[rows], most[rows] = self._walk(rows, first[rows], places_km, mean, rho)
        matters[rows, first[rows]] = False
        place, tile = np.nonzero(
            matters & ((at * at > squares[:, None]) | (within > most[:, None]))
        )
        within[rows, first[rows]] = 0.0
        within[place, tile] = 0.0
        if place.size:
            more = self._walk(place, tile, places_km, mean, rho)
            starts = np.flatnonzero(np.diff(place, prepend=-1))
            for largest, values in zip((squares, most), more, strict=True):
                largest[place[starts]] = np.maximum(
                    largest[place[starts]], np.maximum.reduceat(values, starts)
                )
        if enough > 0.0:
            most = np.maximum(most, np.where(matters, 0.0, within).max(axis=1))
        return np.sqrt(squares), most * (1.0 + 1e-12) + mean.rest

    def _bounds(self, places: FloatArray, mean: Mean, rho: float) -> tuple[FloatArray, FloatArray]:
        """(k, tiles), twice: no |a_y − g| of the centres of a tile is larger, at q and within ρ.

        |a_y − g|² = α² − 2α·u·g + |g|² with u = (q − y)/|q − y| and α = |a_y|: convex in α, so largest at an
        end; −u·g is at most that of any direction into the tile.
        """
        cone, beta, reach = self._cone, self._cone.beta_per_km, self._reach
        east, north = (places[:, axis, None] - self._middle[:, axis] for axis in (0, 1))
        r = length(east, north)
        low = np.maximum(r - reach, 0.0)
        near = np.exp(-cone.decay(low))
        alpha = beta * near / (near + cone.floor)
        steep = mean.length[:, None]
        ahead = reach * steep - east * mean.east[:, None] - north * mean.north[:, None]
        lead = np.where(low > reach, np.minimum(ahead / np.maximum(low, 1e-300), steep), steep)
        lead = np.where(ahead < 0.0, ahead / np.maximum(r + reach, 1e-300), lead)
        at = np.sqrt(steep * steep + np.maximum(alpha * (alpha + 2.0 * lead), 0.0))
        within = at + rho * (cone.cone_rates(low) + cone.fades(r + reach) * beta**2)
        within += rho * norm(*(part[:, None] for part in mean[2:5]))
        within += rho**2 / 2.0 * cone.bend_changes(r, reach + rho)
        return at * _MARGIN, within * _MARGIN

    def _walk(
        self, place: IntArray, tile: IntArray, places: FloatArray, mean: Mean, rho: float
    ) -> tuple[FloatArray, FloatArray]:
        """(pairs,), (pairs,): the same over the centres of one tile each, the first of them squared."""
        squares, most = np.empty(place.size), np.empty(place.size)
        step = max(1, _TOGETHER // self._centres.shape[1])
        for start in range(0, place.size, step):
            part = slice(start, start + step)
            both = self._over_tile(places[place[part]], tile[part], mean.only(place[part]), rho)
            squares[part], most[part] = both
        return squares, most

    def _over_tile(
        self, places: FloatArray, tile: IntArray, mean: Mean, rho: float
    ) -> tuple[FloatArray, FloatArray]:
        g_east, g_north, j_ee, j_en, j_nn = (part[:, None] for part in mean[:5])
        away = places[:, None] - self._centres[tile]  # (pairs, centres, 2)
        east, north = away[..., 0], away[..., 1]
        _, rate, bend = self._cone.slopes(east, north)
        b_east, b_north = rate * east - g_east, rate * north - g_north
        ee = rate + bend * east * east - j_ee
        nn = rate + bend * north * north - j_nn
        en = bend * east * north - j_en
        most = longest(b_east, b_north, ee, en, nn, rho)
        most += rho**2 / 2.0 * self._cone.bend_changes(length(east, north), rho)
        return (b_east * b_east + b_north * b_north).max(axis=1), most.max(axis=1)


def _cut(centres: FloatArray, most: int) -> list[IntArray]:
    """The numbers of the centres in tiles of at most so many, halved across their longer side."""
    tiles, waiting = [], [np.arange(len(centres))]
    while waiting:
        numbers = waiting.pop()
        if numbers.size <= most:
            tiles.append(numbers)
            continue
        axis = int(np.argmax(np.ptp(centres[numbers], axis=0)))
        order = numbers[np.argsort(centres[numbers, axis], kind="stable")]
        waiting += [order[: order.size // 2], order[order.size // 2 :]]
    return tiles


def longest(
    east: FloatArray, north: FloatArray, ee: FloatArray, en: FloatArray, nn: FloatArray, rho: float
) -> FloatArray:
    """|v + M·h| over |h| ≤ ρ, at most, for a symmetric 2 × 2 matrix M."""
    pulled = length(ee * east + en * north, en * east + nn * north)
    change = rho * norm(ee, en, nn)
    return np.sqrt(east * east + north * north + 2.0 * rho * pulled + change * change)


def length(east: FloatArray, north: FloatArray) -> FloatArray:
    """As ``np.hypot``, in a third of the time."""
    return np.sqrt(east * east + north * north)


def norm(ee: FloatArray, en: FloatArray, nn: FloatArray) -> FloatArray:
    """The largest eigenvalue, in size, of a symmetric 2 × 2 matrix."""
    return np.abs(ee + nn) / 2.0 + length((ee - nn) / 2.0, en)


def norm_of_third(eee: FloatArray, een: FloatArray, enn: FloatArray, nnn: FloatArray) -> FloatArray:
    """|T·hhh| over |h| = 1, at most: the waves of one and of three turns that it is the sum of."""
    return (length(eee - 3.0 * enn, 3.0 * een - nnn) + 3.0 * length(eee + enn, een + nnn)) / 4.0
