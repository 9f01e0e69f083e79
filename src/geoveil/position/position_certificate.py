"""The largest loss per kilometre between any two positions, bounded over all of them.

A report y from the position x has probability C(x, y) = c(y)·k(|x − y|)/Z(x). With φ = −log k, the row w,
a_y = ∇φ(x − y) and g = Σ_y w_y·a_y = −∇Z/Z, the gradient of log C(·, y) is g − a_y. Positions form a
rectangle, so the loss per km is at most ε = sup_x max_y |a_y − g|. A square of centre q and half-diagonal
ρ is bounded by Taylor's theorem around q, and is quartered while its bound lies above what was seen
elsewhere. docs/decisions/0011-positions.md has the steps, for whoever writes this again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from geoveil.arrays import BoolArray, FloatArray, IntArray
from geoveil.errors import InvalidInput
from geoveil.position.centres import Centres, Lattice
from geoveil.position.cone import RoundedCone
from geoveil.position.grid_sums import InCells, WholeSums, WindowSums, window_cells
from geoveil.position.steepest import Mean, Steepest, length, longest, norm, norm_of_third

_TOLERANCE = 0.004
"""A square is quartered while its bound exceeds the worst place seen by this part, for each β·cell."""
_FIRST = 0.5
"""β times the side of the squares to begin with, at most."""
_MOST_SQUARES = 1 << 22
"""Squares to begin with, at most, where a claim is checked; a law that needs more is not believed."""
_AT_ONCE = 1 << 18
"""So many squares are expanded together."""
MOST_WORK = 1 << 30
"""These times the centres in a window, or in a list, at most, likewise: some minutes in a browser."""
_DEEPEST = 8
"""How often a square is quartered, at most; what is then still open counts with its bound."""
_REACH = 12.0
"""On a grid, centres up to so many 1/β away are summed one by one, those beyond bounded together."""
_BEYOND = 1 / 32
"""The share of those beyond, at most, in parts of the tolerance; where it may be more, reach is doubled."""
_ENTRIES = 1 << 16
"""How many pairs of a square and a centre are looked at together."""
_LOOKS, _MANY_LOOKS = 16, 256
"""How many places are looked at closely before others are left out for what was seen there; on grids of
more cells than 4,096, from the second time on."""
_AHEAD, _LONG = 5, 0.1
"""Where g is longer than this part of β and leaves the centres within so many cells, all are looked at."""
_ROUNDING = 1e-11
"""Of sums of up to 2¹⁶ numbers of one sign, relative, with a margin."""


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


class _Squares(NamedTuple):
    """Squares of one size: a node each, and which of its ``parts`` × ``parts`` parts."""

    node: IntArray
    """(k, 2): east and north, in sides of an undivided square."""
    part: IntArray
    """(k, 2): east and north, 0 … parts − 1."""
    parts: int

    def only(self, chosen: IntArray) -> _Squares:
        """Some of them."""
        return _Squares(self.node[chosen], self.part[chosen], self.parts)

    def quartered(self, chosen: IntArray) -> _Squares:
        """Four for each of the chosen."""
        corners = np.array([(0, 0), (1, 0), (0, 1), (1, 1)])
        part = (2 * self.part[chosen, None] + corners).reshape(-1, 2)
        return _Squares(np.repeat(self.node[chosen], 4, axis=0), part, 2 * self.parts)


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

    def certify(self, claim_per_km: float = 0.0) -> PositionCertificate:
        """ε between any two positions, a little above the loss at the worst place looked at.

        With a claim, no square is cut whose bound is at most that: the answer is then at most the claim, or
        above it. Where no place was seen that breaks it, the answer without a claim may still be below it.
        Cost: on a grid, ten to a hundred squares a cell, with the centres within reach (some hundred) for
        each, and all centres for a few squares; elsewhere all of them for each.
        """
        if (self.weights <= 0).any():
            raise InvalidInput("weights must be positive")
        beta, tolerance = self.cone.beta_per_km, self._tolerance
        if self.centres.size == 1:
            return PositionCertificate(0.0, 0.0, (0.0, 0.0), 1)
        if claim_per_km and (self._squares > _MOST_SQUARES or self.work > MOST_WORK):
            return PositionCertificate(math.inf, 0.0, (0.0, 0.0), 0)
        squares, best, worst, closed, visits = self._first(), 0.0, (0.0, 0.0), 0.0, 0
        for depth in range(_DEEPEST + 1):
            visits += len(squares.node)
            threshold = max((1.0 + tolerance) * best, claim_per_km)
            squares, mean, bound, largest_below = self._above(squares, threshold)
            closed, rho = max(closed, largest_below), self._half_diagonal_km / squares.parts
            alone = beta + mean.length  # at least max |a_y − g| at q, since |a_y| ≤ β
            # It matters which centres there are where none may lie ahead, in the direction of g.
            edge, size = self._few_ahead(self._places_km(squares), mean), _LOOKS
            order = np.argsort(-alone, kind="stable")
            while True:
                threshold = max((1.0 + tolerance) * best, claim_per_km)
                above = edge[order] | (alone[order] > (1.0 - 0.75 * tolerance) * threshold)
                order = order[above & (bound[order] > threshold)]
                if not order.size:
                    break
                now, order = order[:size], order[size:]
                places = self._places_km(squares.only(now))
                losses, most = self._steepest.at(places, mean.only(now), rho, threshold)
                bound[now] = np.minimum(bound[now], most)
                if losses.max() > best:
                    best, at = float(losses.max()), places[int(losses.argmax())]
                    worst = float(at[0]), float(at[1])
                size = self._looks
            if 0.0 < claim_per_km < best:  # broken: whatever the rest shows, it is no less
                return PositionCertificate(max(closed, float(bound.max())), best, worst, visits)
            cut = np.flatnonzero((bound > threshold) & (depth < _DEEPEST))
            bound[cut] = 0.0
            closed = max(closed, float(bound.max(initial=0.0)))
            if not cut.size:
                break
            squares = squares.quartered(cut)
        return PositionCertificate(closed, best, worst, visits)

    def _above(
        self, squares: _Squares, threshold: float
    ) -> tuple[_Squares, Mean, FloatArray, float]:
        """The squares whose first bound is above, g in them, their bounds, and the largest of all others.

        A few at a time: the work on the way takes many times the memory of the result.
        """
        beta, rho = self.cone.beta_per_km, self._half_diagonal_km / squares.parts
        values, count, closed = np.empty((8, len(squares.node))), 0, 0.0
        for start in range(0, len(squares.node), _AT_ONCE):
            some = np.arange(start, min(start + _AT_ONCE, len(squares.node)))
            mean = self._mean(squares.only(some), rho, self._tolerance)
            bound = beta + np.minimum(longest(*mean[:5], rho) + mean.rest, beta)
            above = bound > threshold
            closed = max(closed, float(bound[~above].max(initial=0.0)))
            now = np.stack((*mean, bound, some))[:, above]
            values[:, count : count + now.shape[1]] = now
            count += now.shape[1]
        *parts, bound, numbers = values[:, :count]
        return squares.only(numbers.astype(np.int64)), Mean(*parts), bound, closed

    @property
    def _looks(self) -> int:
        """How many places are looked at together from the second time on."""
        many = self.centres.lattice is not None and self.centres.lattice.many
        return _MANY_LOOKS if many else max(_LOOKS, _ENTRIES // self.centres.size)

    @property
    def _squares(self) -> int:
        """Squares to begin with."""
        return int(self._extent.prod()) * self._parts**2

    @property
    def work(self) -> int:
        """Squares to begin with times centres in a window, or in all of a list: what a device has to sum."""
        lattice = self.centres.lattice
        if lattice is None:
            return self._squares * self.centres.size
        cells = window_cells(_REACH / self.cone.beta_per_km, self.side_km)
        sides = [2 * min(cells, size - 1) + 1 for size in (lattice.rows, lattice.columns)]
        return self._squares * math.prod(sides)

    def estimate_per_km(self) -> float:
        """The worst loss at the centres of the cells of a grid, those that do not exist included.

        No bound on anything; for a search, in some part of the time of a certificate.
        """
        lattice = self.centres.lattice
        if lattice is None:
            raise InvalidInput("only the law of a grid can be looked at so")
        sums = WholeSums(lattice, self.weights, self.cone, self.side_km).at_centres()
        nodes = np.stack(np.meshgrid(np.arange(lattice.columns), np.arange(lattice.rows)), -1)
        places = np.asarray((nodes - lattice.rim).reshape(-1, 2) * self.side_km, np.float64)
        east, north = (-sums[1:] / (np.maximum(sums[0], 0.0) + self._floor)).reshape(2, -1)
        none = np.zeros(east.size)
        mean, worst = Mean(east, north, none, none, none, none), 0.0
        steep = mean.length
        inside = (places == np.clip(places, *self.centres.rectangle_km)).all(axis=1)
        order = np.flatnonzero(inside)[np.argsort(-steep[inside])]
        for start in range(0, order.size, _MANY_LOOKS):
            now = order[start : start + _MANY_LOOKS]
            if self.cone.beta_per_km + steep[now[0]] <= worst:
                break
            losses, _ = self._steepest.at(places[now], mean.only(now), 0.0, worst)
            worst = max(worst, float(losses.max()))
        return worst

    def worst_at(self, places_km: FloatArray) -> float:
        """The worst loss at some places (k, 2) of the rectangle; no bound on anything, for a search."""
        losses, _ = self._steepest.at(places_km, self._mean_of(places_km, 0.0), 0.0)
        return float(losses.max())

    @cached_property
    def _tolerance(self) -> float:
        return min(max(_TOLERANCE * self.cone.beta_per_km * self.side_km, 0.001), 0.02)

    @cached_property
    def _steepest(self) -> Steepest:
        return Steepest(self.centres.points_km, self.cone)

    # -- squares -------------------------------------------------------------------------------

    @cached_property
    def _extent(self) -> IntArray:
        """How many undivided squares cover the rectangle, east and north: one where it has no width."""
        low, high = self.centres.rectangle_km
        return np.maximum(np.ceil((high - low) / self.side_km - 1e-9), 1).astype(np.int64)

    @cached_property
    def _sides_km(self) -> FloatArray:
        """The sides of an undivided one (a rectangle is cut evenly), east and north."""
        low, high = self.centres.rectangle_km
        return (high - low) / self._extent

    @property
    def _half_diagonal_km(self) -> float:
        return float(np.hypot(*self._sides_km)) / 2.0

    @property
    def _parts(self) -> int:
        """How often a side is cut at first: flat enough for β, and with ρ at most the radius of the tip."""
        parts, longest = 1, max(self.cone.beta_per_km / _FIRST, 0.75 / self.cone.radius_km)
        while longest * self.side_km > parts:
            parts *= 2
        return parts

    def _first(self) -> _Squares:
        """The squares to begin with; those at one place of their nodes stand together."""
        parts = self._parts
        nodes, inner = (
            np.indices(sides).reshape(2, -1).T for sides in (self._extent.tolist(), [parts, parts])
        )
        return _Squares(
            np.tile(nodes, (len(inner), 1)), np.repeat(inner, len(nodes), axis=0), parts
        )

    def _places_km(self, squares: _Squares) -> FloatArray:
        """(k, 2): the centres q."""
        return self.centres.rectangle_km[0] + self._sides_km * (
            squares.node + (squares.part + 0.5) / squares.parts
        )

    # -- g and its change in a square ----------------------------------------------------------

    def _mean(self, squares: _Squares, rho: float, tolerance: float) -> Mean:
        """g in squares; on a grid from centres within reach: the others, of share s, change it by ≤ 2βs."""
        lattice = self.centres.lattice
        if lattice is None:
            return self._mean_of(self._places_km(squares), rho)
        if lattice.many and squares.parts == self._parts:
            return self._mean_everywhere(squares, lattice, rho)
        sums, share = np.empty((11, len(squares.node))), np.zeros(len(squares.node))
        unsure, reach_km = np.arange(share.size), _REACH / self.cone.beta_per_km
        grows = math.exp(self.cone.beta_per_km * rho)  # Z falls at most so much in a square
        while unsure.size:
            near = WindowSums(lattice, self.weights, self.cone, self.side_km, reach_km)
            near_sums, beyond = near.at(self._in_cells(squares.only(unsure), lattice), rho)
            near_sums[0] += self._floor
            sums[:, unsure], share[unsure] = near_sums, beyond * grows / near_sums[0]
            unsure = unsure[share[unsure] > _BEYOND * tolerance]
            reach_km *= 2.0
        return self._expanded(sums / sums[0], rho, share)

    def _mean_everywhere(self, squares: _Squares, lattice: Lattice, rho: float) -> Mean:
        """g at the squares to begin with, from all centres at once; what rounding changes counts as rest."""
        whole = WholeSums(lattice, self.weights, self.cone, self.side_km)
        inner, which, column, row = self._in_cells(squares, lattice)
        sums, noise = np.empty((11, which.size)), np.empty(which.size)
        for number, (east, north) in enumerate(inner.tolist()):
            members = np.flatnonzero(which == number)
            whole_sums, off = whole.at(east, north, rho)
            sums[:, members] = whole_sums[:, row[members], column[members]]
            noise[members] = off
        sums[0] = np.maximum(sums[0], 0.0) + self._floor
        sums[10] = np.maximum(sums[10], 0.0)
        mean = self._expanded(sums / sums[0], rho, np.zeros(which.size))
        return mean._replace(rest=mean.rest + noise / sums[0])

    def _in_cells(self, squares: _Squares, lattice: Lattice) -> InCells:
        """Where their centres q lie."""
        at = np.array(self.centres.low) / lattice.step + (squares.part + 0.5) / squares.parts * (
            self._sides_km / self.side_km
        )
        shift = np.floor(at + 0.5).astype(np.int64)
        _, first, which = np.unique(
            squares.part @ (squares.parts, 1), return_index=True, return_inverse=True
        )
        column, row = (squares.node + shift + lattice.rim).T
        return InCells((at - shift)[first], which, column, row)

    def _mean_of(self, places: FloatArray, rho: float) -> Mean:
        """From all centres."""
        sums, step = np.empty((11, len(places))), max(1, _ENTRIES // self.centres.size)
        for start in range(0, len(places), step):
            offsets = places[start : start + step, None] - self.centres.points_km
            terms = self.cone.expansion(offsets[..., 0], offsets[..., 1], rho)
            sums[:, start : start + step] = terms @ self.weights
        sums[0] += self._floor
        return self._expanded(sums / sums[0], rho, np.zeros(len(places)))

    @cached_property
    def _floor(self) -> float:
        """What the floor of the kernel adds to Z, everywhere alike."""
        return self.cone.floor * float(self.weights.sum())

    def _expanded(self, shares: FloatArray, rho: float, beyond: FloatArray) -> Mean:
        """g = N/D with N = −∇Z/Z(q) and D = Z/Z(q), both expanded at q.

        N = n + A·h + ½B·hh + r with |r| ≤ R, and D = 1 − n·h − ½h·A·h − ⅙B·hhh − …, as its gradient is −N.
        So g = n + J·h + ½T·hh + …
        """
        beta = self.cone.beta_per_km
        n_e, n_n, a_ee, a_en, a_nn, *third = -shares[1:10]
        n, rest = length(n_e, n_n), shares[10]
        ee, en, nn = a_ee + n_e * n_e, a_en + n_e * n_n, a_nn + n_n * n_n
        turned = (  # T = B + 2(n·h)J·h + (h·A·h)n, symmetric in its three places
            third[0] + 2.0 * n_e * ee + a_ee * n_e,
            third[1] + 2.0 * n_e * en + a_ee * n_n,
            third[2] + 2.0 * n_n * en + a_nn * n_e,
            third[3] + 2.0 * n_n * nn + a_nn * n_n,
        )
        a, j = norm(a_ee, a_en, a_nn), norm(ee, en, nn)
        b, t = norm_of_third(*third), norm_of_third(*turned)
        bent = rho**2 / 2.0 * t
        whole = n + rho * j + bent
        above = rest + rho * n * bent + rho**2 / 2.0 * a * (rho * j + bent)
        above += (rho**3 / 6.0 * b + rho * rest) * whole
        least = 1.0 - rho * (n + rho / 2.0 * (a + rho / 3.0 * b) + rest)
        least = np.maximum(least, math.exp(-beta * rho))
        total = bent + above / least + 2.0 * beta * beyond + beta * _ROUNDING
        return Mean(n_e, n_n, ee, en, nn, total)

    def _few_ahead(self, places: FloatArray, mean: Mean) -> BoolArray:
        """Where g is long, and leads out of the rectangle of the centres before it meets many of them."""
        g, steps = mean.length, np.full(len(places), np.inf)
        low, high = self.centres.points_km.min(axis=0), self.centres.points_km.max(axis=0)
        for axis, along in enumerate((mean.east, mean.north)):
            way = np.where(along > 0.0, high[axis] - places[:, axis], places[:, axis] - low[axis])
            steps = np.minimum(steps, np.maximum(way, 0.0) / np.maximum(np.abs(along), 1e-300))
        return (steps * g < _AHEAD * self.side_km) & (g > _LONG * self.cone.beta_per_km)
