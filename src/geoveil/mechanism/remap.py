"""Reports moved to better places: remapping of channels and of continuous noise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy

from geoveil.arrays import (
    ArrayLike,
    ByParts,
    FloatArray,
    IntArray,
    count,
    frozen,
    indices,
    instance,
    prior_over,
    yes_or_no,
)
from geoveil.channel.channel import Channel, PrivacyLoss, Tally, checked_channel
from geoveil.channel.composed import Remapped
from geoveil.channel.truncated import TruncatedLattice
from geoveil.channel.words import explain
from geoveil.errors import InvalidInput, TooLarge, Unsupported
from geoveil.measure import Loss, adversary_guesses, loss_values
from geoveil.mechanism.noise import Noise
from geoveil.randomness import SYSTEM, Randomness, checked_randomness
from geoveil.space import Grid, Points
from geoveil.space.projection import plane_coordinates
from geoveil.space.space import distance_km


def nearest_remap(channel: Channel, cells: ArrayLike) -> Remapped:
    """Every report to the nearest of the given cells, for example those on land.

    Law: map[y] = argmin over the given cells of d(y, z), the first in case of a tie.
    Guarantee: that of the channel. Cost: reports × cells once, then that of the channel.
    Reference: NOISE §6.1.
    """
    if checked_channel("channel", channel).report_count != channel.space.size:
        raise InvalidInput("nearest_remap needs a channel whose reports are cells")
    allowed = np.unique(indices("cells", cells, channel.space.size))
    if not allowed.size:
        raise InvalidInput("cells must not be empty")
    space, everywhere = channel.space, np.arange(channel.space.size)
    step = max(1, (1 << 22) // allowed.size)
    nearest = [
        np.argmin(space.distance_km(everywhere[i : i + step, None], allowed[None, :]), axis=1)
        for i in range(0, everywhere.size, step)
    ]
    return Remapped(channel, allowed[np.concatenate(nearest)])


def bayesian_remap(channel: Channel, prior: ArrayLike, *, loss: Loss = distance_km) -> Remapped:
    """Every report to the cell that is best on average for somebody who knows the prior.

    Law: map[y] = argmin_z Σ_x π(x)·C[x, y]·L(x, z); a report the prior rules out keeps the best guess
    without any report.
    Guarantee: that of the channel. Cost: m³ in blocks, up to 4,096 cells.
    Reference: NOISE §6.2; Chatzikokolakis, ElSalamouny & Palamidessi, PETS 2017.

    >>> import geoveil as gv
    >>> line = gv.LinearGeometric(gv.Line(3), epsilon_per_unit=0.1)
    >>> bayesian_remap(line, [0.8, 0.1, 0.1]).map.tolist()
    [0, 0, 0]
    """
    return Remapped(channel, adversary_guesses(channel, prior, loss))


# --- Noise on the plane whose points are moved to places where somebody may be


_BLOCK = 1 << 21  # entries of the largest array at work
_PARTS = 5
"""A cell is cut into so many parts each way, where the remap of a point depends on more than its cell."""
_PROBES = 11
"""Each part by so many points each way, where its neighbours are moved elsewhere."""
_WITHIN = 0.9999
"""This share of the noise is remapped where it falls, the rest where it leaves that circle."""
_MOST_WORK = 1 << 38
_SOME_NOISE = "noise on the plane, such as gv.ContinuousLaplace(epsilon_per_km=1.0)"


class RemappedNoise(ByParts, Channel):
    """Continuous noise, its points replaced by cells of a map or by places of interest.

    ``remap_km`` and ``remap_latlng`` move noisy points, ``tally_latlng`` counts them where they go;
    ``sample`` is the whole mechanism. On a grid people stand anywhere in their cells, all places
    alike, or in the centres where ``spread`` is false; at places of interest, in the places.
    Guarantee: that of the noise. Cost: no matrix; places of interest have no law, only samples.
    Reference: NOISE §7.3.
    """

    space: Grid | Points
    _parts: ClassVar[tuple[str, ...]] = ("noise", "space", "spread")

    def __init__(self, noise: Noise, space: Grid | Points, *, spread: bool = True) -> None:
        if not isinstance(space, Grid | Points):
            raise InvalidInput("space must be a grid or places of interest: noise needs a plane")
        self.noise: Noise = instance("noise", noise, Noise, _SOME_NOISE)
        self.space = space
        self.spread = yes_or_no("spread", spread) and isinstance(space, Grid)
        self.report_count = space.size
        self.guarantee = noise.guarantee

    def explain(self, distance_km: float) -> str:
        """What a report of ``sample`` tells about two people this far apart, in plain words."""
        return explain(self.guarantee, self.space, distance_km)

    @abstractmethod
    def _remap(self, points: FloatArray) -> IntArray:
        """The cells of points (n, 2)."""

    def remap_km(self, xy_km: ArrayLike) -> IntArray:
        """The cells that points (…, 2) in the plane of the space are moved to."""
        points = plane_coordinates("xy_km", xy_km)
        return self._remap(points.reshape(-1, 2)).reshape(points.shape[:-1])

    def remap_latlng(
        self, *, lat: ArrayLike, lng: ArrayLike | None = None, lon: ArrayLike | None = None
    ) -> IntArray:
        """The cells that points in degrees are moved to."""
        return self.remap_km(self.space.plane.to_plane(lat=lat, lng=lng, lon=lon))

    def tally_latlng(
        self, *, lat: ArrayLike, lng: ArrayLike | None = None, lon: ArrayLike | None = None
    ) -> Tally:
        """Count noisy points in degrees, each where it is moved to."""
        return self.tally(self.remap_latlng(lat=lat, lng=lng, lon=lon))

    def sample(self, cells: ArrayLike, *, randomness: Randomness = SYSTEM) -> IntArray:
        """One reported cell for each true one."""
        true, source = indices("cells", cells, self.space.size), checked_randomness(randomness)
        places = self.space.centres[true]
        if isinstance(self.space, Grid) and self.spread:
            within = source.uniform(places.size).reshape(places.shape) - 0.5
            places = places + self.space.cell_km * within
        return self.remap_km(self.noise.sample_km(places, randomness=source))

    # -- the law, on a grid -----------------------------------------------------------------------

    @cached_property
    def _law(self) -> Channel:
        if not isinstance(self.space, Grid):
            raise Unsupported("remapped noise has a law on a Grid only; at places, use its samples")
        return self._law_on(self.space)

    @abstractmethod
    def _law_on(self, grid: Grid) -> Channel:
        """The channel of the whole mechanism."""

    @property
    def loss_across_cell(self) -> float:  # type: ignore[override]
        return self.noise.loss_across(self.space.cell_km) if self.spread else 0.0

    def closed_form_loss(self) -> PrivacyLoss | None:
        """That of the noise, an upper bound: moving points costs nothing."""
        return self.noise.loss_on_cells()

    def _push(self, theta: FloatArray) -> FloatArray:
        return self._law._push(theta)

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        return self._law._push_noise(theta)

    def _pull(self, values: FloatArray) -> FloatArray:
        return self._law._pull(values)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        return self._law._pull_noise(values)

    def _row(self, row: int) -> FloatArray:
        return self._law._row(row)

    def _column(self, column: int) -> FloatArray:
        return self._law._column(column)

    def expected_loss(
        self,
        prior: ArrayLike,
        loss: Loss = distance_km,
        *,
        draws: int = 20_000,
        randomness: Randomness = SYSTEM,
    ) -> tuple[float, float]:
        """The mean loss of people who follow a prior, from samples, and its standard error.

        True cells are spread over the prior evenly, so that only the noise is left to chance.
        """
        size = count("draws", draws, least=2)
        weights = prior_over(prior, self.space.size)
        even = (np.arange(size) + checked_randomness(randomness).uniform(1)) / size
        true = np.minimum(np.searchsorted(np.cumsum(weights), even, side="right"), weights.size - 1)
        reported = self.sample(true, randomness=randomness)
        losses = loss_values(loss, self.space, true, reported)
        return float(losses.mean()), float(losses.std(ddof=1) / np.sqrt(size))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.noise!r}, {self.space!r}, spread={self.spread})"


class NearestPlace(RemappedNoise):
    """Every noisy point to the nearest cell or place.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=1, columns=3, cell_km=1.0)
    >>> NearestPlace(gv.ContinuousLaplace(epsilon_per_km=1.0), grid).remap_km([9.0, 0.1]).item()
    2
    """

    def _remap(self, points: FloatArray) -> IntArray:
        return np.atleast_1d(
            np.asarray(self.space.locate_km(points, outside="clamp"), dtype=np.int64)
        )

    def _law_on(self, grid: Grid) -> Channel:
        return self.noise.on(grid, spread=self.spread)


class BayesianPlace(RemappedNoise):
    """Every noisy point to the place that is best on average for its posterior.

    Law: argmin over places y of Σ_x π(x)·R(d(x, z))·L(x, y) for a noisy point z, the first in case of a
    tie; a point that the prior and the noise rule out goes where it is best without any point.
    Cost: points × cells with positive prior × cells, in blocks. The law takes 25 small squares a cell,
    those at a border shared out by where 121 points of them go among what is best around, and is right to
    some thousandths; not so with ``spread=False`` where the density jumps, since points are then moved
    elsewhere where it does: up to a tenth for a disk as wide as a cell. Use samples there.
    Reference: NOISE §7.3, second technique.

    >>> import geoveil as gv
    >>> grid = gv.Grid(rows=1, columns=3, cell_km=1.0)
    >>> home = BayesianPlace(gv.ContinuousLaplace(epsilon_per_km=0.1), grid, [0.9, 0.05, 0.05])
    >>> home.remap_km([1.0, 0.0]).item()
    0
    """

    _parts = (*RemappedNoise._parts, "_support", "_weights", "_losses")

    def __init__(
        self,
        noise: Noise,
        space: Grid | Points,
        prior: ArrayLike,
        *,
        loss: Loss = distance_km,
        spread: bool = True,
    ) -> None:
        super().__init__(noise, space, spread=spread)
        weights = prior_over(prior, space.size)
        self._support = np.flatnonzero(weights)
        self._weights: FloatArray = frozen(weights[self._support])
        places = np.arange(space.size)
        self._losses: FloatArray = frozen(loss_values(loss, space, self._support[:, None], places))

    def _remap(self, points: FloatArray) -> IntArray:
        step = max(1, _BLOCK // max(self._losses.shape))
        parts = [self._best(points[i : i + step]) for i in range(0, len(points), step)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def compared_table(self) -> tuple[FloatArray, float]:
        raise Unsupported(
            "the law of noise moved by a prior is right to some thousandths, too little for a certificate; "
            "claim an ε per km, which the noise itself keeps"
        )

    def _law_on(self, grid: Grid) -> Channel:
        beyond = int(np.ceil(self.noise.radius_km(_WITHIN) / grid.cell_km))
        rows, columns = (_PARTS * (cells + 2 * beyond) for cells in grid.shape)
        if rows * columns * self._losses.size > _MOST_WORK:
            raise TooLarge(
                f"the law of remapped noise ({rows} × {columns} small squares, {grid.size} cells) must "
                f"take at most {_MOST_WORK:.2g} losses; choose larger cells or less noise"
            )
        fine = Grid(rows=rows, columns=columns, cell_km=grid.cell_km / _PARTS)
        # the small squares of every cell, (cells, 25); where people stand in the centre, its middle one
        rim = beyond * _PARTS
        inner = np.arange(fine.size).reshape(fine.shape)[rim : rows - rim, rim : columns - rim]
        blocks = inner.reshape(grid.rows, _PARTS, grid.columns, _PARTS).swapaxes(1, 2)
        squares = blocks.reshape(grid.size, _PARTS**2)
        if not self.spread:
            squares = squares[:, [_PARTS**2 // 2]]
        owner = np.repeat(np.arange(grid.size), squares.shape[1])
        shares = np.full(squares.size, 1 / squares.shape[1])
        placed = scipy.sparse.csr_array(
            (shares, (owner, squares.ravel())), shape=(grid.size, fine.size)
        )
        moved = self._moved(fine, fine.centres + grid.centres.mean(axis=0))
        return _FinerGrid(grid, self.noise.on(fine, spread=self.spread), placed, moved)

    def _moved(self, fine: Grid, centres: FloatArray) -> Any:
        """(small squares, cells): how much of each square goes where, by probes where that differs."""
        where = self._remap(centres)
        padded = np.pad(where.reshape(fine.shape), 1, "edge")
        around = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))
        mixed = around.max(axis=(2, 3)) != around.min(axis=(2, 3))
        squares = np.flatnonzero(mixed)
        along = (np.arange(_PROBES) + 0.5) / _PROBES - 0.5
        probes = fine.cell_km * np.stack(np.meshgrid(along, along), axis=-1).reshape(-1, 2)
        nearby = np.sort(around[mixed].reshape(-1, 9), axis=1)  # first in case of a tie
        step = max(1, _BLOCK // (len(probes) * len(self._support)))
        chosen = [
            self._best_of(centres[squares[i : i + step], None] + probes, nearby[i : i + step])
            for i in range(0, squares.size, step)
        ]
        probe_cells = np.concatenate([np.empty(0, dtype=np.int64), *chosen])
        whole = np.flatnonzero(~mixed)
        owner = np.concatenate((whole, np.repeat(squares, len(probes))))
        shares = np.repeat([1.0, 1 / len(probes)], [whole.size, probe_cells.size])
        target = np.concatenate((where[whole], probe_cells))
        return scipy.sparse.csr_array((shares, (owner, target)), shape=(fine.size, self.space.size))

    def _best(self, points: FloatArray) -> IntArray:
        return np.argmin(self._posterior(points) @ self._losses, axis=1)

    def _best_of(self, points: FloatArray, cells: IntArray) -> IntArray:
        """The best of some cells (squares, any) for the points (squares, points, 2), one after another."""
        posterior = self._posterior(points.reshape(-1, 2)).reshape(*points.shape[:2], -1)
        losses = posterior @ self._losses.T[cells].swapaxes(1, 2)
        return np.take_along_axis(cells, losses.argmin(axis=2), axis=1).ravel()

    def _posterior(self, points: FloatArray) -> FloatArray:
        """(points, cells with positive prior)."""
        apart = scipy.spatial.distance.cdist(points, self.space.centres[self._support])
        posterior = self._weights * self.noise.density_per_km2(apart)
        ruled_out = ~(posterior.sum(axis=1) > 0)
        posterior[ruled_out] = self._weights
        posterior /= posterior.sum(axis=1, keepdims=True)
        return posterior


class _FinerGrid(Channel):
    """People in the cells of a grid, noise on a finer and wider one, reports moved back to the cells.

    Law: the product of three channels, P = S·F·W: S[x, v] is the share of the people of cell x that stand in
    the small square v, F the noise on the finer grid, W[z, y] the share of the small square z that is
    moved to the cell y.
    Guarantee and cost: those of the finer channel.
    """

    space: Grid

    def __init__(self, space: Grid, fine: TruncatedLattice, placed: Any, moved: Any) -> None:
        self.space = space
        self.fine = fine
        self.placed = placed  # sparse S: cells × small squares
        self.moved = moved  # sparse W: small squares × cells
        self.report_count = space.size
        self.guarantee = fine.guarantee

    def _push(self, theta: FloatArray) -> FloatArray:
        return np.asarray(self.fine._push(self._standing(theta)) @ self.moved).reshape(theta.shape)

    def _push_noise(self, theta: FloatArray) -> FloatArray:
        standing = self._standing(theta)
        noise = np.broadcast_to(self.fine._push_noise(standing), standing.shape)
        return np.asarray(noise @ self.moved).reshape(theta.shape)

    def _standing(self, theta: FloatArray) -> FloatArray:
        """(any, small squares): the people of each vector."""
        return np.asarray(theta.reshape(-1, self.space.size) @ self.placed)

    def _pull(self, values: FloatArray) -> FloatArray:
        worth = self._before_moves(values)
        return np.asarray(self.fine._pull(worth) @ self.placed.T).reshape(values.shape)

    def _pull_noise(self, values: FloatArray) -> FloatArray:
        noise = self.fine._pull_noise(self._before_moves(values))
        return noise.reshape(*values.shape[:-1], 1)

    def _before_moves(self, values: FloatArray) -> FloatArray:
        """(any, small squares): what reports from each of them are worth."""
        return np.asarray(values.reshape(-1, self.report_count) @ self.moved.T)

    def _row(self, row: int) -> FloatArray:
        shares = self.placed[[row]].tocoo()
        return np.asarray(_sum(shares.data, shares.col, self.fine._row) @ self.moved)

    def _column(self, column: int) -> FloatArray:
        shares = self.moved[:, [column]].tocoo()
        nobody = np.zeros(self.fine.space.size)
        return np.asarray(self.placed @ (nobody + _sum(shares.data, shares.row, self.fine._column)))


def _sum(shares: FloatArray, lines: IntArray, line: Callable[[int], FloatArray]) -> Any:
    """Σ of some lines of a channel, each with its share."""
    return sum(share * line(int(number)) for share, number in zip(shares, lines, strict=True))
