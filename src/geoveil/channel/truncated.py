"""Noise on an infinite lattice, every point outside the grid moved to its nearest cell.

For a grid of R × C cells the nearest cell is found by clamping both coordinates. With k(a, b) the
probability of a noise step of ±a rows and ±b columns, the channel has three kinds of entries:

- inside:  k(|Δrow|, |Δcolumn|), a convolution;
- rim:     sums of k over a half line beyond the edge, a convolution along the edge;
- corners: sums of k over a quadrant.

So a product is one two-dimensional FFT and one one-dimensional FFT per axis: O(m log m). Sums beyond
an edge fade with the distance from it, so only the lines near an edge take part in the latter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.backend import Array, Backend, Selection
from geoveil.channel.channel import Channel
from geoveil.channel.kernel import FFT_NOISE, LatticeKernel, fft_workers, lattice_distances_km
from geoveil.channel.operator import MovedOperator, Operator
from geoveil.space.grid import Grid

_FADED = 1e-17
"""Entries this small beside all others change no product: its rounding is a hundred times as large."""


class Tables(NamedTuple):
    """The entries of a truncated channel by offset (a rows, b columns from the true cell), each R × C."""

    inside: FloatArray
    beyond_columns: FloatArray
    """Σ over all steps of exactly a rows and at least b columns to one side."""
    beyond_rows: FloatArray
    """Σ over all steps of at least a rows to one side and exactly b columns."""
    corner: FloatArray
    """Σ over all steps of at least a rows and at least b columns."""

    def map(self, function: Callable[[FloatArray], FloatArray]) -> Tables:
        """The tables of another operator, entry by entry."""
        return Tables(*(function(table) for table in self))


def summed_tables(
    rows: int, columns: int, reach: int, noise_row: Callable[[int, int], FloatArray]
) -> Tables:
    """Tables from ``noise_row(a, width)`` = k(a, 0 … width−1), summed out to ``reach`` cells beyond the grid.

    Rows are visited from far to near and only sums are kept, so memory stays O(m).
    """
    inside, beyond_columns, beyond_rows, corner = (np.zeros((rows, columns)) for _ in range(4))
    rows_sum, corner_sum = np.zeros(columns), np.zeros(columns)
    for a in range(rows + reach - 1, -1, -1):
        line = noise_row(a, columns + reach)
        tail = line[columns:].sum() + np.cumsum(line[:columns][::-1])[::-1]  # at least b columns
        rows_sum = rows_sum + line[:columns]
        corner_sum = corner_sum + tail
        if a < rows:
            inside[a], beyond_columns[a] = line[:columns], tail
            beyond_rows[a], corner[a] = rows_sum, corner_sum
    # An axis one cell long has no inside: its one cell collects the whole line, both half lines once.
    if columns == 1:
        inside, beyond_rows = 2 * beyond_columns - inside, 2 * corner - beyond_rows
    if rows == 1:
        inside, beyond_columns = 2 * beyond_rows - inside, 2 * corner - beyond_columns
    return Tables(inside, beyond_columns, beyond_rows, corner)


class TruncatedOperator(Operator):
    """The operator of the tables: a convolution inside, another along each edge, sums at the corners.

    The four edges are visited as (flip): flip 1 is the west or south edge, −1 the opposite one, whose
    tables are the same read backwards. An axis one cell long has no edges (see the tables).
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        rows, columns = self.box = (tables.inside.shape[0], tables.inside.shape[1])
        self._across = (1, -1) if columns > 1 else ()
        self._down = (1, -1) if rows > 1 else ()
        self._inner_rows = slice(1, -1) if self._down else slice(None)
        self._inner_columns = slice(1, -1) if self._across else slice(None)
        self._kernel = LatticeKernel(tables.inside)
        self._high = scipy.fft.next_fast_len(2 * rows - 1, real=True)
        self._wide = scipy.fft.next_fast_len(2 * columns - 1, real=True)
        self._workers = fft_workers(4 * rows * columns)
        beyond = np.square(tables.beyond_columns).sum() + np.square(tables.beyond_rows).sum()
        norm = self._kernel.norm + 2 * float(np.sqrt(beyond))
        self.fft_noise = FFT_NOISE * norm
        self._near_columns = _near((tables.beyond_columns, tables.corner), 1, norm)
        self._near_rows = _near((tables.beyond_rows, tables.corner), 0, norm)
        # Spectra of the half-line sums along their edge: (frequency, column) and (row, frequency).
        sides = tables.beyond_columns[:, self._near_columns]
        ends = tables.beyond_rows[self._near_rows]
        self._sides = scipy.fft.rfft(_even(sides, self._high, 0), axis=0).real
        self._ends = scipy.fft.rfft(_even(ends, self._wide, 1), axis=1).real
        near_both = np.ix_(self._near_rows, self._near_columns)
        self._corner = tables.corner[near_both]
        self._corners: tuple[Any, ...] = (..., *near_both)

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(self.box), math.prod(self.box)

    def _push(self, theta: FloatArray) -> FloatArray:
        rows, columns = self.box
        given = theta.reshape(*theta.shape[:-1], rows, columns)
        out = self._kernel._push(theta).reshape(given.shape)
        # West and east: column c of θ reaches the edge with Σ over at least c columns; along the edge
        # that is a convolution, so spectra (frequency, column) are multiplied and summed over c.
        if self._across:
            strips = given[..., self._near_columns]
            spectrum = scipy.fft.rfft(strips, self._high, axis=-2, workers=self._workers)
        for flip in self._across:
            summed = np.einsum("...fc,fc->...f", spectrum, self._sides[:, ::flip])
            side = scipy.fft.irfft(summed, self._high, axis=-1)[..., :rows]
            out[..., self._inner_rows, _edge(flip)] = side[..., self._inner_rows]
        # South and north in the same way, with spectra (row, frequency); then the four corners.
        if self._down:
            strips = given[..., self._near_rows, :]
            spectrum = scipy.fft.rfft(strips, self._wide, axis=-1, workers=self._workers)
            corners = given[self._corners]
        for flip in self._down:
            summed = np.einsum("...rf,rf->...f", spectrum, self._ends[::flip])
            end = scipy.fft.irfft(summed, self._wide, axis=-1)[..., :columns]
            out[..., _edge(flip), self._inner_columns] = end[..., self._inner_columns]
            for over in self._across:
                corner = np.einsum("...rc,rc->...", corners, self._corner[::flip, ::over])
                out[..., _edge(flip), _edge(over)] = corner
        return out.reshape(theta.shape)

    def _pull(self, values: FloatArray) -> FloatArray:
        rows, columns = self.box
        given = values.reshape(*values.shape[:-1], rows, columns)
        inside = given.copy()  # what the rim reports is not a convolution with k, but with its sums
        for flip in self._across:
            inside[..., _edge(flip)] = 0.0
        for flip in self._down:
            inside[..., _edge(flip), :] = 0.0
        out = self._kernel._push(inside.reshape(values.shape)).reshape(given.shape)
        # The adjoint of ``_push``: each edge (…, rows) is spread over the columns near it, as the product
        # of its spectrum (…, frequency, 1) and those of the half-line sums (frequency, column).
        if self._across:
            edges = [_middle(given[..., _edge(flip)], self._inner_rows) for flip in self._across]
            along: Any = sum(
                scipy.fft.rfft(edge, self._high)[..., :, None] * self._sides[:, ::flip]
                for flip, edge in zip(self._across, edges, strict=True)
            )
            strips = scipy.fft.irfft(along, self._high, axis=-2, workers=self._workers)[
                ..., :rows, :
            ]
            out[..., self._near_columns] += strips
        if self._down:  # likewise (…, 1, frequency) times (row, frequency)
            edges = [
                _middle(given[..., _edge(flip), :], self._inner_columns) for flip in self._down
            ]
            along = sum(
                scipy.fft.rfft(edge, self._wide)[..., None, :] * self._ends[::flip]
                for flip, edge in zip(self._down, edges, strict=True)
            )
            strips = scipy.fft.irfft(along, self._wide, axis=-1, workers=self._workers)[
                ..., :columns
            ]
            out[..., self._near_rows, :] += strips
        for flip in self._down:
            for over in self._across:
                corner = given[..., _edge(flip), _edge(over)]
                out[self._corners] += corner[..., None, None] * self._corner[::flip, ::over]
        return out.reshape(values.shape)

    def _on(self, backend: Backend) -> MovedOperator:
        elsewhere = _Elsewhere(self, backend)
        return MovedOperator(self, backend, elsewhere.push, elsewhere.pull)

    def _row(self, row: int) -> FloatArray:
        """From the tables alone: exact."""
        rows, columns = self.box
        i, j = divmod(row, columns)
        down, across = np.abs(np.arange(rows) - i), np.abs(np.arange(columns) - j)
        out = self.tables.inside[np.ix_(down, across)]
        for over in self._across:
            out[self._inner_rows, _edge(over)] = self.tables.beyond_columns[:, ::over][
                down[self._inner_rows], j
            ]
        for flip in self._down:
            out[_edge(flip), self._inner_columns] = self.tables.beyond_rows[::flip][
                i, across[self._inner_columns]
            ]
            for over in self._across:
                out[_edge(flip), _edge(over)] = self.tables.corner[::flip, ::over][i, j]
        return out.ravel()

    def _column(self, column: int) -> FloatArray:
        rows, columns = self.box
        i, j = divmod(column, columns)
        down, across = np.abs(np.arange(rows) - i), np.abs(np.arange(columns) - j)
        over = 0 if not self._across else 1 if j == 0 else -1 if j == columns - 1 else 0
        flip = 0 if not self._down else 1 if i == 0 else -1 if i == rows - 1 else 0
        if over and flip:
            return self.tables.corner[::flip, ::over].ravel()
        if over:
            return self.tables.beyond_columns[down][:, ::over].ravel()
        if flip:
            return self.tables.beyond_rows[::flip][:, across].ravel()
        return self.tables.inside[np.ix_(down, across)].ravel()


class _Elsewhere:
    """The two products on another device; nothing is changed in place there."""

    def __init__(self, operator: TruncatedOperator, backend: Backend) -> None:
        rows, columns = self.box = operator.box
        self.across, self.down = bool(operator._across), bool(operator._down)
        self.backend, self.xp = backend, backend.xp
        self.kernel = operator._kernel.on(backend)
        self.high, self.wide = operator._high, operator._wide
        self.near_columns = Selection(operator._near_columns, columns).on(backend)
        self.near_rows = Selection(operator._near_rows, rows).on(backend)
        # one for either edge, and for either end of it
        self.sides = [backend.put(operator._sides[:, ::flip]) for flip in (1, -1)]
        self.ends = [backend.put(operator._ends[::flip]) for flip in (1, -1)]
        self.corners = [
            [backend.put(operator._corner[::flip, ::over]) for over in (1, -1)] for flip in (1, -1)
        ]
        inner = np.zeros(self.box)
        inner[operator._inner_rows, operator._inner_columns] = 1.0
        self.inside = backend.put(inner)
        self.inner_rows, self.inner_columns = (backend.put(inner.max(axis=axis)) for axis in (1, 0))

    def push(self, theta: Array) -> Array:
        xp, (rows, columns) = self.xp, self.box
        given = xp.reshape(theta, (*theta.shape[:-1], rows, columns))
        out = xp.reshape(self.kernel._push(theta), given.shape)
        if self.across:
            strips = self.near_columns.take(given)
            spectrum = xp.fft.rfft(strips, n=self.high, axis=-2)
            west, east = (
                xp.fft.irfft(xp.sum(spectrum * side, axis=-1), n=self.high, axis=-1)[..., :rows]
                for side in self.sides
            )
            out = xp.concat((west[..., None], out[..., 1:-1], east[..., None]), axis=-1)
        if self.down:
            strips = xp.take(given, self.near_rows.places, axis=-2)
            spectrum = xp.fft.rfft(strips, n=self.wide, axis=-1)
            south, north = (
                xp.fft.irfft(xp.sum(spectrum * end, axis=-2), n=self.wide, axis=-1)[..., :columns]
                for end in self.ends
            )
            if self.across:
                near = self.near_columns.take(strips)
                (southwest, southeast), (northwest, northeast) = (
                    [xp.sum(near * table, axis=(-2, -1))[..., None] for table in tables]
                    for tables in self.corners
                )
                south = xp.concat((southwest, south[..., 1:-1], southeast), axis=-1)
                north = xp.concat((northwest, north[..., 1:-1], northeast), axis=-1)
            out = xp.concat((south[..., None, :], out[..., 1:-1, :], north[..., None, :]), axis=-2)
        return xp.reshape(out, theta.shape)

    def pull(self, values: Array) -> Array:
        xp, (rows, columns) = self.xp, self.box
        given = xp.reshape(values, (*values.shape[:-1], rows, columns))
        inside = xp.reshape(given * self.inside, values.shape)
        out = xp.reshape(self.kernel._pull(inside), given.shape)
        if self.across:
            edges = (given[..., 0] * self.inner_rows, given[..., -1] * self.inner_rows)
            along = sum(
                xp.fft.rfft(edge, n=self.high)[..., None] * side
                for edge, side in zip(edges, self.sides, strict=True)
            )
            strips = xp.fft.irfft(along, n=self.high, axis=-2)[..., :rows, :]
            out = out + self.near_columns.put(strips)
        if self.down:
            edges = (given[..., 0, :] * self.inner_columns, given[..., -1, :] * self.inner_columns)
            along = sum(
                xp.fft.rfft(edge, n=self.wide)[..., None, :] * end
                for edge, end in zip(edges, self.ends, strict=True)
            )
            strips = xp.fft.irfft(along, n=self.wide, axis=-1)[..., :columns]
            if self.across:
                strips = strips + self.near_columns.put(self._from_corners(given))
            out = out + xp.matrix_transpose(self.near_rows.put(xp.matrix_transpose(strips)))
        return xp.reshape(out, values.shape)

    def _from_corners(self, given: Array) -> Array:
        """(…, near rows, near columns): what the four corners give back."""
        return sum(
            given[..., _edge(flip), _edge(over)][..., None, None] * table
            for flip, tables in zip((1, -1), self.corners, strict=True)
            for over, table in zip((1, -1), tables, strict=True)
        )


def _near(tables: tuple[FloatArray, ...], axis: int, norm: float) -> IntArray:
    """The lines near either edge: all but those whose sums beyond it are lost in rounding anyway."""
    squares = np.max([np.square(table).sum(axis=1 - axis) for table in tables], axis=0)
    onward = np.sqrt(2 * np.cumsum(squares[::-1])[::-1])  # norm of all lines from each one on
    reach = int(np.count_nonzero(onward > _FADED * norm))
    lines = np.arange(squares.size)
    near: IntArray = lines[(lines < reach) | (lines >= squares.size - reach)]
    return near


def _edge(flip: int) -> int:
    return 0 if flip == 1 else -1


def _middle(line: FloatArray, inner: slice) -> FloatArray:
    """An edge without its corners, which have sums of their own."""
    kept = np.zeros_like(line)
    kept[..., inner] = line[..., inner]
    return kept


def _even(table: FloatArray, length: int, axis: int) -> FloatArray:
    """The table made periodic and even along one axis: entry −a equals entry a."""
    moved = np.moveaxis(table, axis, 0)
    folded = np.zeros((length, moved.shape[1]))
    folded[: len(moved)] = moved
    folded[length - len(moved) + 1 :] = moved[:0:-1]
    return np.moveaxis(folded, 0, axis)


class TruncatedLattice(TruncatedOperator, Channel):
    """A channel from lattice noise, clamped to a grid; mechanisms supply the tables."""

    space: Grid

    def __init__(self, space: Grid, tables: Tables) -> None:
        self.space = space
        self.report_count = space.size
        TruncatedOperator.__init__(self, tables)

    def mean_of_distance(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        # Every entry at offset (a, b) goes with the distance at that offset, rim and corners too.
        weights = function(lattice_distances_km(self.space))
        return self._row_sums(lambda table: table * weights)

    def row_entropies_nats(self) -> FloatArray:
        return self._row_sums(scipy.special.entr)

    def _row_sums(self, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """The row sums of the operator with other entries."""
        return TruncatedOperator(self.tables.map(function))._pull(np.ones(self.report_count))
