"""Radial functions in pieces: exponential between two radii, free to jump at them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from geoveil.arrays import ByParts, FloatArray, IntArray, frozen
from geoveil.errors import InvalidInput
from geoveil.root import safe_root

_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(12))
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2
_SOLVED = 1e-13
_MOST_STEPS = 60
_SETTLED, _HALVINGS = 1e-13, 50
"""Of a mean, what two halves of a piece may differ from the whole by; how often one is halved at most."""
_SUDDEN = 0.25
"""Of the change between the outermost nodes of a piece, what may lie outside of them: 2 % of its length."""


@dataclass(frozen=True, eq=False)
class Segments(ByParts):
    """R(r) on [edges[i], edges[i + 1]): from ``left[i]`` to ``right[i]``, log-linear; 0 beyond.

    A piece that is zero at an end is a straight line instead. Units: km, and per km² for R.
    """

    edges: FloatArray
    left: FloatArray
    right: FloatArray
    _parts: ClassVar[tuple[str, ...]] = ("edges", "left", "right")

    def __post_init__(self) -> None:
        for part in (self.edges, self.left, self.right):
            frozen(part)

    @classmethod
    def constant(cls, edges: FloatArray, values: FloatArray) -> Segments:
        """A step function; neighbours of equal height become one."""
        starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
        jumps = np.r_[edges[starts], edges[-1]]
        return cls(jumps, values[starts].copy(), values[starts].copy())

    @property
    def widths(self) -> FloatArray:
        """How long each piece is."""
        return np.diff(self.edges)

    def at(self, radius: FloatArray) -> FloatArray:
        """R at each radius; 0 beyond the last edge."""
        piece = np.searchsorted(self.edges, radius, side="right") - 1
        inside = (piece >= 0) & (piece < self.left.size)
        piece = np.where(inside, piece, 0)
        part = (radius - self.edges[piece]) / self.widths[piece]
        return np.where(inside, self._between(piece, part), 0.0)

    def _between(self, piece: Any, part: FloatArray) -> FloatArray:
        return _between(self.left[piece], self.right[piece], part)

    def integrals(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """∫ R(r)·f(r)·2πr dr over every piece, by Gauss–Legendre with 12 nodes."""
        ends = np.stack((self.edges[:-1], self.edges[1:]))
        return _integrals(function, ends, np.stack((self.left, self.right)))

    @cached_property
    def masses(self) -> FloatArray:
        """The probability of every piece."""
        return self.integrals(np.ones_like)

    @cached_property
    def total(self) -> float:
        """∫ R(r)·2πr dr: 1 for a density."""
        return float(self.masses.sum())

    def scaled(self, factor: float) -> Segments:
        """factor·R."""
        return Segments(self.edges, self.left * factor, self.right * factor)

    def trimmed(self) -> Segments:
        """The same function without the pieces at the end on which it is 0."""
        count = int(np.flatnonzero(np.maximum(self.left, self.right))[-1]) + 1
        return Segments(self.edges[: count + 1], self.left[:count], self.right[:count])

    def bounded(self, limit: float) -> Segments:
        """c·R cut off at ``limit``, with c such that the total is 1; R as a density if it fits.

        Cutting off keeps every ratio that a promise limits.
        """
        density = self.scaled(1.0 / self.total)
        if max(density.left.max(), density.right.max()) <= limit:
            return density

        def cut(factor: float) -> Segments:
            left, right = (
                np.minimum(side * factor, limit) for side in (density.left, density.right)
            )
            return Segments(self.edges, left, right)

        # a disk at the limit holds 1 up to rounding
        return safe_root(
            cut, lambda pieces: 1.0 - pieces.total - 1e-12, [1.0], within=(1.0, 1e9),
            tolerance=1e-15, step=1e-15,
        ).result  # fmt: skip

    def mean(self, function: Callable[[FloatArray], FloatArray], longest: float) -> float:
        """∫ R(r)·f(r)·2πr dr, pieces no longer than ``longest`` halved where f jumps or bends."""
        pieces = self._split(np.maximum(1, np.ceil(self.widths / longest)).astype(np.int64))
        ends = np.stack((pieces.edges[:-1], pieces.edges[1:]))
        heights = np.stack((pieces.left, pieces.right))
        settled, unsettled = 0.0, _integrals(function, ends, heights)
        negligible = _SETTLED * float(np.abs(unsettled).sum())
        for _ in range(_HALVINGS):
            middle, between = ends.mean(axis=0), _between(heights[0], heights[1], np.asarray(0.5))
            ends = np.array((np.r_[ends[0], middle], np.r_[middle, ends[1]]))
            heights = np.array((np.r_[heights[0], between], np.r_[between, heights[1]]))
            halves = _integrals(function, ends, heights)
            hidden = _hidden(function, ends, heights) > negligible
            off = np.abs(halves.reshape(2, -1).sum(axis=0) - unsettled) > negligible
            both = np.tile(off | hidden.reshape(2, -1).any(axis=0), 2)
            settled += float(halves[~both].sum())
            ends, heights, unsettled = ends[:, both], heights[:, both], halves[both]
            if not unsettled.size:
                break
        return settled + float(unsettled.sum())

    def _split(self, parts: IntArray) -> Segments:
        """The same function with each piece cut into so many."""
        piece = np.repeat(np.arange(parts.size), parts)
        first = np.concatenate([np.arange(count) / count for count in parts.tolist()])
        last = first + 1.0 / parts[piece]
        edges = np.r_[self.edges[piece] + self.widths[piece] * first, self.edges[-1]]
        return Segments(edges, self._between(piece, first), self._between(piece, last))

    # -- inverse distribution --------------------------------------------------------------------

    def within(self, radius: FloatArray) -> FloatArray:
        """P(noise ≤ r) for each radius."""
        piece = np.searchsorted(self.edges, radius, side="right") - 1
        piece = np.clip(piece, 0, self.left.size - 1)
        part = np.clip((radius - self.edges[piece]) / self.widths[piece], 0.0, 1.0)
        return self._before[piece] + self.masses[piece] * self._share(piece, part)

    def quantile(self, probability: FloatArray) -> FloatArray:
        """The radius below which the noise stays with the given probability: the inverse of ``within``.

        Newton's method kept inside a shrinking bracket, for those not yet solved.
        """
        # Per probability: its piece i, the share of the piece's mass below it, and the part t in [0, 1]
        # of the piece that is solved for; (r₀ + w·t) is the radius.
        mass = np.atleast_1d(probability).ravel() * self.total
        piece = np.searchsorted(np.r_[self._before, self.total], mass, side="right") - 1
        piece = np.clip(piece, 0, np.flatnonzero(self.masses)[-1])
        share = np.clip((mass - self._before[piece]) / self.masses[piece], 0.0, 1.0)
        part = np.where(self.edges[piece] > 0, share, np.sqrt(share))
        low, high = np.zeros_like(part), np.ones_like(part)
        unsolved = np.arange(part.size)  # those not yet solved
        for _ in range(_MOST_STEPS):
            here, at = piece[unsolved], part[unsolved]
            error = self._share(here, at) - share[unsolved]
            low[unsolved] = np.where(error < 0, at, low[unsolved])
            high[unsolved] = np.where(error > 0, at, high[unsolved])
            reached = self.edges[here] + self.widths[here] * at
            with np.errstate(divide="ignore", invalid="ignore"):
                # d share/dt = R(r)·r/∫ R·r over the piece, R relative to its larger end as in _moment
                heights = self._between(here, at) / np.maximum(self.left[here], self.right[here])
                slope = heights * reached / self._moment(here, np.ones_like(at))
                moved = at - error / slope
            inside = (moved >= low[unsolved]) & (moved <= high[unsolved])
            part[unsolved] = np.where(inside, moved, (low[unsolved] + high[unsolved]) / 2)
            unsolved = unsolved[np.abs(part[unsolved] - at) > _SOLVED]
            if not unsolved.size:
                break
        radius = self.edges[piece] + self.widths[piece] * part
        return radius.reshape(np.shape(probability))

    @cached_property
    def _before(self) -> FloatArray:
        return np.r_[0.0, np.cumsum(self.masses)[:-1]]

    def _share(self, piece: Any, part: FloatArray) -> FloatArray:
        """How much of a piece's probability lies in its first ``part``, by the closed form."""
        whole = self._moment(piece, np.ones_like(part))
        return self._moment(piece, part) / np.where(whole > 0, whole, 1.0)

    def _moment(self, piece: Any, part: FloatArray) -> FloatArray:
        """∫ (a + ws)·R(s)/max R ds over the first ``part`` of a piece that starts at a, w wide."""
        left, right = self.left[piece], self.right[piece]
        start, width, top = self.edges[piece], self.widths[piece], np.maximum(left, right)
        top = np.where(top > 0, top, 1.0)
        straight = (left == 0) | (right == 0)
        slope = np.where(straight, (right - left) / top, 0.0)
        line = left / top * (start * part + width * part**2 / 2)
        line += slope * (start * part**2 / 2 + width * part**3 / 3)
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = np.where(straight, 0.0, np.log(left / right))
        first, second = _exponential_moments(fall, part)
        return np.where(straight, line, left / top * (start * first + width * second))


def _between(left: FloatArray, right: FloatArray, part: FloatArray) -> FloatArray:
    """R at a part of pieces with these heights at their ends."""
    straight = (left == 0) | (right == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        curved = left * np.exp(np.log(right / left) * part)
    return np.where(straight, left + (right - left) * part, curved)


def _integrals(
    function: Callable[[FloatArray], FloatArray], ends: FloatArray, heights: FloatArray
) -> FloatArray:
    """∫ R(r)·f(r)·2πr dr over pieces with these ends (2, n), and R at them (2, n)."""
    widths = ends[1] - ends[0]
    radius = ends[0][:, None] + widths[:, None] * _NODES
    density = _between(heights[0][:, None], heights[1][:, None], _NODES)
    return (density * function(radius) * (2 * math.pi) * radius * _WEIGHTS).sum(axis=1) * widths


def _hidden(
    function: Callable[[FloatArray], FloatArray], ends: FloatArray, heights: FloatArray
) -> FloatArray:
    """What sums over pieces miss, at most, where f jumps between an end and the node next to it; else 0."""
    places, widths = np.r_[0.0, _NODES[[0, -1]], 1.0], ends[1] - ends[0]
    changes = np.abs(np.diff(function(ends[0][:, None] + widths[:, None] * places)))
    outside = changes[:, 0] + changes[:, 2]
    missed = outside * heights.max(axis=0) * (2 * math.pi) * ends[1] * (widths * _NODES[0])
    return np.where(outside > _SUDDEN * changes[:, 1], missed, 0.0)


def _exponential_moments(fall: FloatArray, part: FloatArray) -> tuple[FloatArray, FloatArray]:
    """∫₀ᵗ e^{−κs} ds and ∫₀ᵗ s·e^{−κs} ds, without cancellation for small κt."""
    x = fall * part
    small = np.abs(x) < 0.05
    safe = np.where(small, 1.0, x)
    first = np.where(small, 1 - x / 2 + x**2 / 6 - x**3 / 24 + x**4 / 120 - x**5 / 720,
                     -np.expm1(-safe) / safe)  # fmt: skip
    second = np.where(small, 0.5 - x / 3 + x**2 / 8 - x**3 / 30 + x**4 / 144 - x**5 / 840,
                      (-np.expm1(-safe) - safe * np.exp(-safe)) / safe**2)  # fmt: skip
    return part * first, part**2 * second


def from_function(
    radial: Callable[[FloatArray], FloatArray], reach_km: float, breaks_km: FloatArray
) -> Segments:
    """Pieces that follow a function to 1e-10 of its probability, halved where they do not yet."""
    edges = np.unique(np.r_[np.linspace(0.0, reach_km, 257), breaks_km[breaks_km < reach_km]])
    for _ in range(40):
        # just short of an edge, so that a jump there belongs to the next piece
        ends = checked_radial(radial, edges[1:] * (1 - 1e-13))
        pieces = Segments(edges, checked_radial(radial, edges[:-1]), ends)
        middle = (edges[1:] + edges[:-1]) / 2
        off = np.abs(checked_radial(radial, middle) - pieces.at(middle)) * middle * pieces.widths
        bad = off * (2 * math.pi) > 1e-10 * max(pieces.total, 1e-300) / math.sqrt(edges.size)
        bad &= pieces.widths > 1e-12 * reach_km
        if not bad.any() or edges.size > 200_000:
            break
        edges = np.sort(np.r_[edges, middle[bad]])
    return pieces


def checked_radial(radial: Callable[[FloatArray], FloatArray], radius: FloatArray) -> FloatArray:
    """The values of a radial, which must be finite and not negative."""
    values = np.asarray(radial(radius), dtype=np.float64)
    if values.shape != radius.shape:
        raise InvalidInput("radial must give one number for every radius")
    if not np.isfinite(values).all() or (values < 0).any():
        raise InvalidInput("radial must be finite and not negative at every radius")
    return values
