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
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

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

    The tables of the east and the north edge are those of the opposite one read backwards. An axis one cell
    long has no edges (see the tables).
    """

    _made_of = ("_kernel", "_inside", "_edges", "_sides", "_ends", "_corners")

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        rows, columns = self.box = (tables.inside.shape[0], tables.inside.shape[1])
        self._across, self._down = columns > 1, rows > 1
        self._kernel = LatticeKernel(tables.inside)
        self._workers = fft_workers(4 * rows * columns)
        beyond = np.square(tables.beyond_columns).sum() + np.square(tables.beyond_rows).sum()
        norm = self._kernel.norm + 2 * float(np.sqrt(beyond))
        self.fft_noise = FFT_NOISE * norm
        # one where a cell is inside, and where it is no corner
        self._inside, self._edges = np.zeros(self.box), np.ones(self.box)
        self._inside[tuple(slice(1, -1) if size > 1 else slice(None) for size in self.box)] = 1.0
        if self._across and self._down:
            self._edges[np.ix_((0, -1), (0, -1))] = 0.0
        self._near_columns = _near((tables.beyond_columns, tables.corner), 1, norm)
        self._near_rows = _near((tables.beyond_rows, tables.corner), 0, norm)
        # (near columns × near rows, corners): southwest, southeast, northwest, northeast
        near, ways = tables.corner.T[np.ix_(self._near_columns, self._near_rows)], (1, -1)
        self._corners = np.array([near[::e, ::n].ravel() for n in ways for e in ways]).T

    @property
    def shape(self) -> tuple[int, int]:
        return math.prod(self.box), math.prod(self.box)

    @cached_property
    def _sides(self) -> tuple[Selection, FloatArray, FloatArray]:
        """The lines near west and east, with the spectra of their sums: for products, not to draw."""
        near = Selection(self._near_columns, self.box[1])
        return near, *_spectra(self.tables.beyond_columns, self._near_columns)

    @cached_property
    def _ends(self) -> tuple[Selection, FloatArray, FloatArray]:
        """The lines near south and north, with the spectra of their sums."""
        near = Selection(self._near_rows, self.box[0])
        return near, *_spectra(self.tables.beyond_rows.T, self._near_rows)

    def _push(self, theta: Array) -> Array:
        xp = self._at.xp
        lattice = xp.reshape(theta, (*theta.shape[:-1], *self.box))
        out = xp.reshape(self._kernel._push(theta), lattice.shape)
        if self._across:
            out = self._framed(out, self._reached(lattice, *self._sides))
        if self._down:
            ends = self._reached(self._turned(lattice), *self._ends)  # (…, columns, 2)
            if self._across:
                near = self._ends[0].take(self._turned(self._sides[0].take(lattice)))
                flat = xp.reshape(near, (*theta.shape[:-1], self._corners.shape[0]))
                corners = xp.reshape(flat @ self._corners, (*theta.shape[:-1], 2, 2))
                ends = self._turned(self._framed(self._turned(ends), corners))
            out = self._turned(self._framed(self._turned(out), ends))
        return xp.reshape(out, theta.shape)

    def _pull(self, values: Array) -> Array:
        xp = self._at.xp
        lattice = xp.reshape(values, (*values.shape[:-1], *self.box))
        # what the rim reports is not a convolution with k, but with its sums
        inside, edges = xp.reshape(lattice * self._inside, values.shape), lattice * self._edges
        out = xp.reshape(self._kernel._pull(inside), lattice.shape)
        if self._across:
            out = out + self._spread(edges, *self._sides)
        if self._down:
            out = out + self._turned(self._spread(self._turned(edges), *self._ends))
        if self._across and self._down:
            four = [lattice[..., row, column, None] for row in (0, -1) for column in (0, -1)]
            sizes = (near.places.shape[0] for near in (self._sides[0], self._ends[0]))
            flat = self._at.joined(four) @ self._corners.T
            near = self._ends[0].put(xp.reshape(flat, (*values.shape[:-1], *sizes)))
            out = out + self._sides[0].put(self._turned(near))
        return xp.reshape(out, values.shape)

    def _reached(self, lattice: Array, near: Selection, *spectra: Array) -> Array:
        """(…, along, lines) → (…, along, 2): what reaches either edge, from the lines near one.

        Line c reaches an edge with the sums over at least c steps. Along the edge that is a convolution, so
        spectra (frequency, line) are multiplied and summed over the lines.
        """
        along, length, at = lattice.shape[-2], _periodic(lattice.shape[-2]), self._at
        with scipy.fft.set_workers(self._workers):
            spectrum = at.fft.rfft(near.take(lattice), n=length, axis=-2)
            edges = [at.fft.irfft(at.xp.sum(spectrum * own, axis=-1), n=length) for own in spectra]
        return at.joined([edge[..., :along, None] for edge in edges])

    def _spread(self, lattice: Array, near: Selection, *spectra: Array) -> Array:
        """The adjoint: (…, along, lines) → the same, both edges spread over the lines near one."""
        along, length, fft = lattice.shape[-2], _periodic(lattice.shape[-2]), self._at.fft
        with scipy.fft.set_workers(self._workers):
            edges = (fft.rfft(lattice[..., edge], n=length)[..., None] for edge in (0, -1))
            spectrum = sum(edge * own for edge, own in zip(edges, spectra, strict=True))
            return near.put(fft.irfft(spectrum, n=length, axis=-2)[..., :along, :])

    def _framed(self, lines: Array, ends: Array) -> Array:
        """Lines (…, n) with other first and last entries (…, 2)."""
        return self._at.joined((ends[..., :1], lines[..., 1:-1], ends[..., 1:]))

    def _turned(self, lattice: Array) -> Array:
        return self._at.xp.moveaxis(lattice, -1, -2)

    def _on(self, backend: Backend) -> MovedOperator:
        moved = super()._on(backend)
        moved.exact = False  # edges are summed by FFT, also where the inside is not
        return moved

    def _row(self, row: int) -> FloatArray:
        """From the tables alone: exact."""
        rows, columns = self.box
        i, j = divmod(row, columns)
        down, across = np.abs(np.arange(rows) - i), np.abs(np.arange(columns) - j)
        sides, ends = (j, columns - 1 - j), (i, rows - 1 - i)  # how far from either edge
        out = _crossed(self.tables.inside, down, across)
        if self._across:
            out = self._framed(out, _crossed(self.tables.beyond_columns, down, sides))
        if self._down:
            rims = _crossed(self.tables.beyond_rows, ends, across)
            if self._across:
                rims = self._framed(rims, _crossed(self.tables.corner, ends, sides))
            out = self._framed(out.T, rims.T).T
        return np.asarray(out.ravel())

    def _column(self, column: int) -> FloatArray:
        rows, columns = self.box
        i, j = divmod(column, columns)
        down, across = np.abs(np.arange(rows) - i), np.abs(np.arange(columns) - j)
        over = {0: 1, columns - 1: -1}.get(j) if self._across else None
        flip = {0: 1, rows - 1: -1}.get(i) if self._down else None
        if over and flip:
            return self.tables.corner[::flip, ::over].flatten()  # a copy, as all others are
        if over:
            return self.tables.beyond_columns[down][:, ::over].ravel()
        if flip:
            return self.tables.beyond_rows[::flip][:, across].ravel()
        return _crossed(self.tables.inside, down, across).ravel()


def _crossed(table: FloatArray, rows: ArrayLike, columns: ArrayLike) -> FloatArray:
    """The entries where some rows and columns cross: ``np.ix_`` takes three times as long."""
    return table.take(np.asarray(rows), axis=0).take(np.asarray(columns), axis=1)


def _near(tables: tuple[FloatArray, ...], axis: int, norm: float) -> IntArray:
    """The lines near either edge: all but those whose sums beyond it are lost in rounding anyway."""
    squares = np.max([np.square(table).sum(axis=1 - axis) for table in tables], axis=0)
    onward = np.sqrt(2 * np.cumsum(squares[::-1])[::-1])  # norm of all lines from each one on
    reach = int(np.count_nonzero(onward > _FADED * norm))
    lines = np.arange(squares.size)
    near: IntArray = lines[(lines < reach) | (lines >= squares.size - reach)]
    return near


def _periodic(lines: int) -> int:
    """A length without wrapping round."""
    return scipy.fft.next_fast_len(2 * lines - 1, real=True)


def _spectra(table: FloatArray, near: IntArray) -> tuple[FloatArray, FloatArray]:
    """(frequency, line) of the sums along an edge, for either edge: the same read backwards.

    Made periodic and even along the edge: entry −a equals entry a.
    """
    lines = table[:, near]
    even = np.zeros((_periodic(len(lines)), near.size))
    even[: len(lines)] = lines
    even[len(even) - len(lines) + 1 :] = lines[:0:-1]
    spectrum = scipy.fft.rfft(even, axis=0).real
    return spectrum, spectrum[:, ::-1]


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
