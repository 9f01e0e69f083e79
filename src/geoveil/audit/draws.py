"""What an audit looks at: some cells, their reports as whole numbers, and the law these should have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.base import Channel
from geoveil.mechanism.rappor import Rappor
from geoveil.randomness import Randomness, seeded
from geoveil.space.base import Space
from geoveil.space.grid import Grid

_CELLS = 16
_BITS = 10
_ENTRIES = 1 << 24


class Fault(Exception):
    """Something an audit found, as a plain sentence."""


@dataclass(frozen=True)
class View:
    """The cells under test, the law of each over the letters, and how reports become letters."""

    cells: IntArray
    laws: FloatArray
    """(cells, letters): what ``row`` says."""
    letters_of: Callable[[Any, tuple[int, ...]], IntArray]
    """Reports of some shape of cells, checked and turned into letters of that shape."""

    def draw(self, channel: Channel, cells: IntArray, randomness: Randomness) -> IntArray:
        """Letters of the reports that the public sampler makes for the given cells."""
        return self.letters_of(channel.sample(cells, randomness=randomness), cells.shape)


def view_of(channel: Channel) -> View:
    """The view of a channel whose reports are whole numbers, or of RAPPOR's bit vectors."""
    if isinstance(channel, Rappor):
        return _view_of_bits(channel)
    most = max(4, min(_CELLS, _ENTRIES // channel.report_count))
    cells = spread_cells(channel.space, most)
    laws = np.stack([_checked_row(channel, int(cell)) for cell in cells])
    return View(cells, laws, lambda reports, shape: _whole(reports, shape, channel.report_count))


def spread_cells(space: Space, most: int) -> IntArray:
    """All cells if they are few; else the corners, the centre with a neighbour, and some at random."""
    size = space.size
    if size <= most:
        return np.arange(size)
    columns = space.columns if isinstance(space, Grid) else size
    middle = size // columns // 2 * columns + columns // 2
    fixed = [middle, middle - 1, 0, 1, size - 1, columns - 1, size - columns]
    order = dict.fromkeys([*fixed, *seeded(size).below(min(size, 2**32), 4 * most).tolist()])
    return np.sort(np.array(list(order)[:most]))


def _checked_row(channel: Channel, cell: int) -> FloatArray:
    row = np.asarray(channel.row(cell), dtype=np.float64)
    if row.shape != (channel.report_count,):
        raise Fault(f"row {cell} has shape {row.shape} instead of ({channel.report_count},)")
    return row


def _whole(reports: Any, shape: tuple[int, ...], count: int) -> IntArray:
    array = np.asarray(reports)
    if array.shape != shape:
        raise Fault(f"the sampler gave shape {array.shape} for cells of shape {shape}")
    if array.dtype.kind not in "iu":
        raise Fault(f"the sampler gave reports of type {array.dtype} instead of whole numbers")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= count):
        raise Fault(f"the sampler gave a report outside 0 … {count - 1}")
    return array.astype(np.int64)


def _view_of_bits(channel: Rappor) -> View:
    """Reports cut to the bits of at most ten cells: what is left is RAPPOR on those cells alone."""
    cells = spread_cells(channel.space, _BITS)
    places = np.arange(cells.size)
    letters = np.arange(1 << cells.size)[:, None] >> places & 1
    flips = (letters[None] ^ np.eye(cells.size, dtype=np.int64)[:, None]).sum(axis=-1)
    laws = channel.keep ** (cells.size - flips) * (1 - channel.keep) ** flips

    def letters_of(reports: Any, shape: tuple[int, ...]) -> IntArray:
        bits = _whole(reports, (*shape, channel.space.size), 2)
        return (bits[..., cells] << places).sum(axis=-1)

    return View(cells, laws, letters_of)
