"""The largest loss per kilometre between any two positions, bounded over all of them.

A report y from the position x has probability C(x, y) = c(y)·k(|x − y|)/Z(x). With φ = −log k, the row w,
a_y = ∇φ(x − y) and g = Σ_y w_y·a_y, the gradient of log C(·, y) is g − a_y. Positions form a rectangle, so
the loss per km is at most ε = sup_x max_y |a_y − g|. A square of centre q and half-diagonal ρ is bounded by
Taylor's theorem around q, and is quartered while its bound lies above what was seen elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.errors import InvalidInput
from geoveil.position.centres import Centres, Lattice
from geoveil.position.cone import Majorants, RoundedCone, Slopes

_TOLERANCE = 0.004
"""A square is quartered while its bound exceeds the worst place seen by this part, for each β·cell."""
_FIRST = 0.5
"""β times the side of the squares to begin with, at most."""
_DEEPEST = 8
"""How often a square is quartered, at most; what is then still open counts with its bound."""
_NEAR = 3
"""On a grid, centres up to so many cells away are looked at one by one."""
_SHELLS, _STEEP = (0.98, 0.9, 0.7, 0.4, 0.1, 0.0), 0.9
"""Centres farther than near are bounded together while |a_y| falls to these shares of β; the worst of them
is looked for among those of the steeper shells."""
_AIMS, _PAD = (1.5, 2.5, 4.0, 6.0), 8
"""How many cells ahead a centre is looked for, and the margin that this needs."""
_ENTRIES = 1 << 17
"""How many pairs of square and centre are looked at together."""
_FEW, _FEW_PAIRS = 32, 1 << 15
"""So few squares at one place of their cells, or pairs of those left, are looked at one by one."""
_ROUNDING = 1e-14
"""Of an FFT product, in units of the norms of its factors."""


class PositionCertificate(NamedTuple):
    """What was shown about a law."""

    epsilon_per_km: float
    """No two positions lose more per km."""
    seen_per_km: float
    """The loss per km around the worst place that was looked at: a lower bound."""
    worst_km: tuple[float, float]
    """That place, east and north of the origin of the centres."""
    places: int
    """How many were looked at."""


class _Means(NamedTuple):
    """Means over the rows at places q, arrays of the shape of q."""

    east: FloatArray
    north: FloatArray
    """g."""
    east_east: FloatArray
    north_north: FloatArray
    east_north: FloatArray
    """J = E[∇²φ] − Cov(a), the derivative of g."""
    third: FloatArray
    """At most the second derivative of g in the square (decision 11)."""
    rounding: FloatArray
    """Error of the sums, relative to Z."""


class _Squares(NamedTuple):
    """Squares of one size: a node each, and which of its ``parts`` × ``parts`` parts."""

    node: IntArray
    """(k, 2): east and north, in sides of an undivided square."""
    part: IntArray
    """(k, 2): east and north, 0 … parts − 1."""
    parts: int

    def quartered(self) -> _Squares:
        """Four for each."""
        corners = np.array([(0, 0), (1, 0), (0, 1), (1, 1)])
        part = (2 * self.part[:, None] + corners).reshape(-1, 2)
        return _Squares(np.repeat(self.node, 4, axis=0), part, 2 * self.parts)


@dataclass(frozen=True, eq=False)
class Law:
    """Centres, a weight for each, and how it falls with the distance."""

    centres: Centres
    weights: FloatArray
    cone: RoundedCone

    @cached_property
    def side_km(self) -> float:
        """The side of an undivided square: a cell of the grid, or a tip of the kernel."""
        lattice = self.centres.lattice
        return lattice.step * self.centres.pitch_km if lattice else self.cone.radius_km

    def certify(self) -> PositionCertificate:
        """ε between any two positions, a little above the loss at the worst place looked at.

        Cost: on a grid nine FFTs for each sub-position of a cell at which many squares are open (some
        hundred); elsewhere a pass over all centres for every square.
        """
        if (self.weights <= 0).any():
            raise InvalidInput("weights must be positive")
        tolerance = min(max(_TOLERANCE * self.cone.beta_per_km * self.side_km, 0.001), 0.02)
        if self.centres.size == 1:
            return PositionCertificate(0.0, 0.0, (0.0, 0.0), 1)
        open_squares, best, worst, closed, places = self._first(), 0.0, (0.0, 0.0), 0.0, 0
        for depth in range(_DEEPEST + 1):
            seen, bound = self._evaluate(open_squares)
            places += seen.size
            if seen.max() > best:
                best = float(seen.max())
                east, north = self._place(open_squares)[int(seen.argmax())].tolist()
                worst = (east, north)
            done = (bound <= (1.0 + tolerance) * best) | (depth == _DEEPEST)
            closed = max(closed, float(bound[done].max(initial=0.0)))
            if done.all():
                break
            left = ~done
            open_squares = _Squares(
                open_squares.node[left], open_squares.part[left], open_squares.parts
            ).quartered()
        return PositionCertificate(min(closed, 2.0 * self.cone.beta_per_km), best, worst, places)

    # -- squares -------------------------------------------------------------------------------

    @cached_property
    def _extent(self) -> IntArray:
        """How many undivided squares cover the rectangle, east and north; 0 where it has no width."""
        (west, south), (east, north) = self.centres.rectangle_km
        sides = np.array((east - west, north - south)) / self.side_km
        return np.ceil(sides - 1e-9).astype(np.int64)

    @cached_property
    def _sides_km(self) -> FloatArray:
        """The sides of an undivided one (a rectangle is cut evenly), east and north."""
        low, high = self.centres.rectangle_km
        return (high - low) / np.maximum(self._extent, 1)

    def _first(self) -> _Squares:
        parts = 1
        while self.cone.beta_per_km * self.side_km > _FIRST * parts:
            parts *= 2
        counts = np.maximum(self._extent, 1)
        nodes = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, 2)
        inner = np.stack(np.meshgrid(np.arange(parts), np.arange(parts), indexing="ij"), -1)
        inner = inner.reshape(-1, 2)
        return _Squares(
            np.repeat(nodes, len(inner), axis=0), np.tile(inner, (len(nodes), 1)), parts
        )

    def _place(self, squares: _Squares) -> FloatArray:
        """(k, 2): the centres q, in km."""
        return self.centres.rectangle_km[0] + self._sides_km * (
            squares.node + (squares.part + 0.5) / squares.parts
        )

    def _evaluate(self, squares: _Squares) -> tuple[FloatArray, FloatArray]:
        """(k,), (k,): the loss per km at the centres of squares, and at most anywhere in them."""
        rho = float(np.hypot(*self._sides_km)) / 2.0 / squares.parts
        seen, bound = np.zeros(len(squares.node)), np.zeros(len(squares.node))
        one_by_one = np.arange(len(squares.node))
        lattice = self.centres.lattice
        if lattice is not None:
            code = squares.part @ (squares.parts, 1)
            order = np.argsort(code, kind="stable")
            starts = np.flatnonzero(np.diff(code[order], prepend=-1))
            direct = []
            for group in np.split(order, starts[1:]):
                if group.size <= _FEW:
                    direct.append(group)
                    continue
                seen[group], bound[group] = self._by_fft(
                    squares.node[group], squares.part[group[0]] + 0.5, squares.parts, rho
                )
            one_by_one = np.concatenate(direct) if direct else one_by_one[:0]
        places, step = self._place(squares), max(1, _ENTRIES // self.centres.size)
        for start in range(0, one_by_one.size, step):
            chosen = one_by_one[start : start + step]
            seen[chosen], bound[chosen] = self._directly(places[chosen], rho)
        return seen, bound

    # -- one place at a time -------------------------------------------------------------------

    def _directly(self, places: FloatArray, rho: float) -> tuple[FloatArray, FloatArray]:
        """As :meth:`_evaluate`, from every pair of a place and a centre."""
        centres = self.centres.points_km
        east, north = (places[:, axis] - centres[:, axis, None] for axis in (0, 1))  # (n, k)
        offsets = _Offsets.of(self.cone, east, north, rho)
        sums = np.einsum("n,fnk->fk", self.weights, offsets.integrands())
        means = _means(self.cone, sums, rho, np.full(len(places), 1e-15 * self.centres.size))
        return offsets.worst(means)

    # -- by FFT on a grid ----------------------------------------------------------------------

    @cached_property
    def _spectrum(self) -> npt.NDArray[np.complex128]:
        lattice = self._lattice
        return fft.rfft2(lattice.spread(self.weights), lattice.shape)

    @property
    def _lattice(self) -> Lattice:
        if self.centres.lattice is None:
            raise InvalidInput("places that lie on no grid have no products by FFT")
        return self.centres.lattice

    def _by_fft(
        self, nodes: IntArray, part: FloatArray, parts: int, rho: float
    ) -> tuple[FloatArray, FloatArray]:
        """As :meth:`_evaluate`, for squares at the same place in their cells."""
        lattice = self._lattice
        # The rectangle begins at a centre or at the edge of its cell.
        low = np.array(self.centres.low) / lattice.step
        inner = low - np.ceil(low) + np.where(self._extent == 0, 0.0, part / parts)
        east, north = lattice.offsets(*inner)
        offsets = _Offsets.of(self.cone, east * self.side_km, north * self.side_km, rho)
        integrands = offsets.integrands()
        products = fft.irfft2(fft.rfft2(integrands) * self._spectrum, lattice.shape)
        column, row = (nodes + np.ceil(low).astype(np.int64) + lattice.rim).T
        norm = float(np.linalg.norm(self.weights)) * float(np.linalg.norm(integrands[0]))
        sums = products[:, row, column]
        error = _ROUNDING * norm / sums[0]
        means = _means(self.cone, sums, rho, error)
        seen, bound = self._ahead(row, column, inner, means, rho)
        rest = np.flatnonzero(seen == 0.0)
        if rest.size * self.centres.size > _FEW_PAIRS:
            few = _Means(*(part[rest] for part in means))
            seen[rest], bound[rest] = self._near_and_far(
                row[rest], column[rest], inner * self.side_km, few, rho
            )
        elif rest.size:
            places = np.stack((column[rest], row[rest]), axis=-1) - lattice.rim + inner
            seen[rest], bound[rest] = self._directly(places * self.side_km, rho)
        return seen, bound

    def _ahead(
        self, row: IntArray, column: IntArray, inner: FloatArray, means: _Means, rho: float
    ) -> tuple[FloatArray, FloatArray]:
        """Where some centre lies in the direction of g: about the worst of all, and β + |g| bounds them.

        Where none of those tried exists both are 0.
        """
        length, reach, _ = _lengths(means, rho)
        seen = np.zeros(row.size)
        safe = np.maximum(length, 1e-300)
        for cells in _AIMS:
            down = np.rint(inner[1] + cells * means.north / safe).astype(np.int64)
            across = np.rint(inner[0] + cells * means.east / safe).astype(np.int64)
            there = self._exists[row + down + _PAD, column + across + _PAD]
            loss = self._loss(down, across, inner * self.side_km, means)
            seen = np.where(there, np.maximum(seen, loss), seen)
        return seen, np.where(seen > 0.0, self.cone.beta_per_km + reach + self._slack(means), 0.0)

    @cached_property
    def _exists(self) -> BoolArray:
        """Whether a centre is there, by row and column, with a margin."""
        lattice = self._lattice
        return np.pad(lattice.spread(np.ones(self.centres.size)) > 0, _PAD)

    def _slack(self, means: _Means) -> FloatArray:
        return 8.0 * self.cone.beta_per_km * means.rounding

    def _near_and_far(
        self, row: IntArray, column: IntArray, inner_km: FloatArray, means: _Means, rho: float
    ) -> tuple[FloatArray, FloatArray]:
        around = np.arange(-_NEAR, _NEAR + 2)
        down, across = (
            each.ravel()[:, None] for each in np.meshgrid(around, around, indexing="ij")
        )
        there = self._exists[row + down + _PAD, column + across + _PAD]  # (near, k)
        east = inner_km[0] - across * self.side_km
        north = inner_km[1] - down * self.side_km
        seen, bound = _Offsets.of(self.cone, east, north, rho).worst(means, there)
        far_seen, far_bound = self._far(row, column, inner_km, means, rho)
        return np.maximum(seen, far_seen), np.maximum(bound, far_bound)

    def _far(
        self, row: IntArray, column: IntArray, inner_km: FloatArray, means: _Means, rho: float
    ) -> tuple[FloatArray, FloatArray]:
        """The centres farther than ``_NEAR`` cells, by the directions in which there may be some.

        a_y points away from y: |a_y − g| comes to |a_y| + |g| where some y lies in the direction of g, and to
        less by the angle where none does. They lie in strips to the west, east, south and north; of each the
        direction nearest to g counts. |a_y| falls from β where the kernel grows flat: shell by shell.
        """
        lattice, beta, side = self._lattice, self.cone.beta_per_km, self.side_km
        length, reach, turn = _lengths(means, rho)
        seen, bound = np.zeros(row.size), np.zeros(row.size)
        angle = beta * rho / ((_NEAR + 1) * side - rho)
        steep = 1.0
        for share in _SHELLS:
            window = self._within(share) + rho
            low = np.ceil((inner_km - window) / side).astype(np.int64)
            high = np.floor((inner_km + window) / side).astype(np.int64)
            south = np.maximum(row + low[1], 0)
            north = np.minimum(row + high[1], lattice.rows - 1)
            west = np.maximum(column + low[0], 0)
            east = np.minimum(column + high[0], lattice.columns - 1)
            strips = (
                (south, north, west, np.minimum(east, column - _NEAR - 1)),
                (south, north, np.maximum(west, column + _NEAR + 2), east),
                (south, np.minimum(north, row - _NEAR - 1), west, east),
                (np.maximum(south, row + _NEAR + 2), north, west, east),
            )
            for bottom, top, left, right in strips:
                there = (bottom <= top) & (left <= right)
                # the strip as seen from q: ranges of offsets y − q
                up = [(edge - row) * side - inner_km[1] for edge in (bottom, top)]
                ahead = [(edge - column) * side - inner_km[0] for edge in (left, right)]
                along = _most_along(ahead, up, means, length)
                at = np.sqrt((steep * beta) ** 2 + length**2 + 2.0 * steep * beta * along)
                most = np.minimum(np.maximum(at + angle, length) + turn, steep * beta + reach)
                bound = np.where(there, np.maximum(bound, most), bound)
                corners = ((down, across) for down in (bottom, top) for across in (left, right))
                for down, across in corners if share >= _STEEP else ():
                    real = (
                        there
                        & self._exists[
                            np.clip(down, 0, lattice.rows - 1) + _PAD,
                            np.clip(across, 0, lattice.columns - 1) + _PAD,
                        ]
                    )
                    loss = self._loss(down - row, across - column, inner_km, means)
                    seen = np.where(real, np.maximum(seen, loss), seen)
            steep = share
        return seen, bound * (1.0 + 1e-12) + self._slack(means)

    def _within(self, share: float) -> float:
        """So far away in km, and farther, |a_y| is at most this share of β (s = share: ψ = log((1−s)/sτ))."""
        if share == 0.0:
            return float(self._lattice.rows + self._lattice.columns) * self.side_km
        decay = math.log((1.0 - share) / share / self.cone.floor)
        return decay / self.cone.beta_per_km + self.cone.radius_km * (1.0 - 14.0 / 24.0)

    def _loss(
        self, down: IntArray, across: IntArray, inner_km: FloatArray, means: _Means
    ) -> FloatArray:
        """|a_y − g| at q for the centre so many rows and columns from the node."""
        east, north = inner_km[0] - across * self.side_km, inner_km[1] - down * self.side_km
        rate = self.cone.rates(np.hypot(east, north))
        return np.hypot(rate * east - means.east, rate * north - means.north)


def _most_along(
    ahead: list[FloatArray], up: list[FloatArray], means: _Means, length: FloatArray
) -> FloatArray:
    """max of g·d/|d| over d in a rectangle that does not contain 0: |g| where the ray along g meets it."""
    best = np.maximum.reduce(
        [
            (means.east * x + means.north * y) / np.maximum(np.hypot(x, y), 1e-300)
            for x in ahead
            for y in up
        ]
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        times = [
            np.sort(np.stack((low / slope, high / slope)), axis=0)
            for (low, high), slope in ((ahead, means.east), (up, means.north))
        ]
    enters = np.maximum(np.maximum(times[0][0], times[1][0]), 0.0)
    meets = enters <= np.minimum(times[0][1], times[1][1])
    return np.where(meets | ~np.isfinite(enters), length, best)


class _Offsets(NamedTuple):
    """Offsets of places from centres, and what the kernel does there and within ρ: arrays of one shape."""

    cone: RoundedCone
    rho: float
    east: FloatArray
    north: FloatArray
    slopes: Slopes
    within: Majorants

    @classmethod
    def of(cls, cone: RoundedCone, east: FloatArray, north: FloatArray, rho: float) -> _Offsets:
        distance = np.hypot(east, north)
        return cls(cone, rho, east, north, cone.slopes(east, north), cone.majorants(distance, rho))

    def integrands(self) -> FloatArray:
        """(9, …): k, k·a (2), k·(∇²φ − aaᵀ) (3), k·|a|², k·H₂², k·H₃."""
        east, north = self.east, self.north
        k, rate, bend = self.slopes
        both, pull = bend - rate**2, k * rate
        across, along = both * east, k * both * north
        return np.stack(
            (
                k,
                pull * east,
                pull * north,
                pull + k * across * east,
                pull + along * north,
                along * east,
                pull * rate * (east**2 + north**2),
                k * self.within.second**2,
                k * self.within.third,
            )
        )

    def worst(self, means: _Means, there: BoolArray | None = None) -> tuple[FloatArray, FloatArray]:
        """(k,), (k,): max over the centres (n, …) of |a_y − g| at q, and of its bound in the square."""
        east, north, rho = self.east, self.north, self.rho
        _, rate, bend = self.slopes
        b_east, b_north = rate * east - means.east, rate * north - means.north
        k_ee = rate + bend * east**2 - means.east_east
        k_nn = rate + bend * north**2 - means.north_north
        k_en = bend * east * north - means.east_north
        length = np.hypot(b_east, b_north)
        pulled = np.hypot(k_ee * b_east + k_en * b_north, k_en * b_east + k_nn * b_north)
        change = rho * _norm(k_ee, k_nn, k_en)
        bound = np.sqrt(length**2 + 2.0 * rho * pulled + change**2)
        bound += rho**2 / 2.0 * (self.within.third + means.third)
        bound = np.minimum(bound, self.cone.beta_per_km + _lengths(means, rho)[1])
        if there is not None:
            length, bound = np.where(there, length, 0.0), np.where(there, bound, 0.0)
        slack = 8.0 * self.cone.beta_per_km * means.rounding
        return length.max(axis=0), bound.max(axis=0) * (1.0 + 1e-12) + slack


def _means(cone: RoundedCone, sums: FloatArray, rho: float, error: FloatArray) -> _Means:
    """From the sums of :meth:`_Offsets.integrands` over the centres."""
    east, north, ee, nn, en, square, second, third = sums[1:] / sums[0]
    beta = cone.beta_per_km
    grows = math.exp(2.0 * beta * rho)  # a row changes at most so much within the square
    spread = np.sqrt(np.maximum(square - east**2 - north**2, 0.0))
    second, third = np.maximum(second, 0.0), np.maximum(third, 0.0)
    variance = np.minimum(beta**2, grows * (spread + rho * np.sqrt(second)) ** 2)
    most = grows * third + 3.0 * np.sqrt(grows * second * variance) + 2.0 * beta * variance
    return _Means(east, north, ee + east**2, nn + north**2, en + east * north, most, error)


def _norm(ee: FloatArray, nn: FloatArray, en: FloatArray) -> FloatArray:
    """The largest eigenvalue, in size, of a symmetric 2 × 2 matrix."""
    return np.abs(ee + nn) / 2.0 + np.hypot((ee - nn) / 2.0, en)


def _lengths(means: _Means, rho: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """|g| at q, at most |g| in the square, and at most the change of g."""
    length = np.hypot(means.east, means.north)
    pulled = np.hypot(
        means.east_east * means.east + means.east_north * means.north,
        means.east_north * means.east + means.north_north * means.north,
    )
    norm = _norm(means.east_east, means.north_north, means.east_north)
    rest = rho**2 / 2.0 * means.third
    reach = np.sqrt(length**2 + 2.0 * rho * pulled + (rho * norm) ** 2) + rest
    return length, reach, rho * norm + rest
