"""Some cells of a grid, such as those of a city: the others do not exist."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from geoveil.arrays import (
    ArrayLike,
    BoolArray,
    FloatArray,
    IntArray,
    by_position,
    frozen,
    indices,
    instance,
)
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.space.box import Box
from geoveil.space.grid import Grid
from geoveil.space.outline import Outline
from geoveil.space.projection import TangentPlane
from geoveil.space.space import MapSpace

LEAST_SHARE = 0.01
"""A cell exists where the area covers at least this part of it."""


class MaskedGrid(MapSpace):
    """The cells of a grid that exist, numbered row by row from the south-west; nobody is elsewhere.

    ``Grid.from_polygon`` makes one from city limits. Distances are those of the grid, straight over
    whatever lies between: islands and bays make no difference to noise, which knows no coast.

    Units: as of :class:`Grid`. Cost: products on the whole grid by FFT, then masked.

    >>> lake = np.ones((4, 5), dtype=bool)
    >>> lake[1:3, 1:4] = False
    >>> shore = MaskedGrid(Grid(rows=4, columns=5, cell_km=1.0), lake)
    >>> shore
    MaskedGrid(14 of 4 × 5 cells of 1 km)
    >>> shore.distance_km(5, 6).item(), shore.parts
    (4.0, 1)
    """

    def __init__(self, grid: Grid, mask: ArrayLike) -> None:
        instance("grid", grid, Grid, "a Grid")
        flags = np.asarray(by_position("mask", mask))
        if flags.dtype != np.bool_ or flags.size != grid.size:
            raise InvalidInput(f"mask must be {grid.size} times true or false, one per cell")
        self.grid = grid
        self.mask: BoolArray = frozen(flags.ravel().copy())
        """(cells of the grid,)."""
        self.cells: IntArray = frozen(np.flatnonzero(self.mask))
        """(size,): the numbers that the cells have in the grid."""
        self.size = self.cells.size
        if self.size < 2:
            raise InvalidInput(
                f"the area must leave at least two cells of {grid.cell_km:g} km in the box, not {self.size}; "
                "choose smaller cells, or an area that lies in the box (in GeoJSON longitude first)"
            )

    @classmethod
    def covered(cls, grid: Grid, outlines: Sequence[Outline]) -> MaskedGrid:
        """The cells of a grid of which outlines cover at least 1 %."""
        parts = np.zeros(grid.size)
        for outline in outlines:  # which may be hundreds, of as many cells as there are at most
            parts += outline.coverage(grid)
        return cls(grid, parts >= LEAST_SHARE)

    # -- its shape -------------------------------------------------------------------------------

    @property
    def cell_km(self) -> float:
        """The side of a cell."""
        return self.grid.cell_km

    @property
    def box(self) -> Box | None:
        """The box of the grid; an abstract one has none."""
        return self.grid.box

    @property
    def plane(self) -> TangentPlane:
        """The tangent plane at the centre of the box."""
        return self.grid.plane

    @cached_property
    def parts(self) -> int:
        """How many islands: groups of cells that touch, at a corner at least."""
        from scipy import ndimage  # here, since it is seldom needed

        return int(ndimage.label(self.mask.reshape(self.grid.shape), np.ones((3, 3)))[1])

    def _centres(self) -> FloatArray:
        return self.grid.centres[self.cells]

    def distance_km(self, a: ArrayLike, b: ArrayLike) -> FloatArray:
        """Distances between the centres of cells ``a`` and ``b``; equal offsets, equal distances."""
        first, second = (self.cells[indices("cells", numbers, self.size)] for numbers in (a, b))
        return self.grid.distance_km(first, second)

    def apart_km(self, distance_km: float) -> FloatArray:
        """How far apart the centres may be of the cells of two people who stand in cells that exist."""
        return self.grid.apart_km(distance_km)

    # -- values of the grid ------------------------------------------------------------------------

    def spread(self, values: FloatArray, empty: float = 0.0) -> FloatArray:
        """(…, size) → (…, rows, columns), ``empty`` where there is no cell."""
        wide = np.full((*values.shape[:-1], self.grid.size), empty)
        wide[..., self.cells] = values
        return wide.reshape(*values.shape[:-1], *self.grid.shape)

    # -- cells -----------------------------------------------------------------------------------

    @cached_property
    def _numbers(self) -> IntArray:
        """(cells of the grid,): the number of each here, −1 where it does not exist."""
        numbers = np.full(self.grid.size, -1)
        numbers[self.cells] = np.arange(self.size)
        return numbers

    def _nearest(self, east: FloatArray, north: FloatArray) -> IntArray:
        signed = self.grid._nearest(east, north)
        cell = self._numbers[np.where(signed < 0, ~signed, signed)]
        astray = np.flatnonzero((cell < 0) | (signed < 0))
        if astray.size:
            places = np.stack([east[astray], north[astray]], axis=-1)
            cell[astray] = ~np.asarray(self._tree.query(np.clip(places, -1e9, 1e9))[1])
        return cell

    # -- documents -------------------------------------------------------------------------------

    def to_geojson(self, properties: Mapping[str, ArrayLike] | None = None) -> dict[str, Any]:
        """The cells as a GeoJSON FeatureCollection, with one value per cell for each property."""
        return self.grid.to_geojson(properties, self.cells)

    def to_dict(self) -> dict[str, Any]:
        """The document of the grid, and the mask: one bit for each of its cells, in base 64."""
        bits = b64encode(np.packbits(self.mask).tobytes()).decode()
        return {**self.grid.to_dict(), "mask": bits}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MaskedGrid:
        fields = dict(values)
        mask = fields.pop("mask", None)
        grid = Grid.from_dict(fields)
        return cls(grid, _bits(mask, grid.size))

    def __repr__(self) -> str:
        where = f", in {self.parts} parts)" if self.parts > 1 else ")"
        grid = repr(self.grid).removeprefix("Grid(").removesuffix(")")
        return f"MaskedGrid({self.size:,} of {grid}{where}"


AnyGrid = Grid | MaskedGrid
"""Square cells: all of a grid, or some of them."""


def grid_beneath(space: AnyGrid) -> tuple[Grid, BoolArray | None]:
    """The whole grid, and which of its cells exist; ``None`` for all."""
    return (space, None) if isinstance(space, Grid) else (space.grid, space.mask)


def base64_bytes(name: str, text: Any) -> bytes:
    """The bytes that a text in base 64 holds; every list of bytes has one text."""
    if not isinstance(text, str):
        raise InvalidFile(f"{name} must be text in base 64")
    try:
        data = b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        raise InvalidFile(f"{name} must be text in base 64") from None
    if b64encode(data).decode() != text:
        raise InvalidFile(f"{name} must be text in base 64, with no bits to spare")
    return data


def _bits(text: Any, size: int) -> BoolArray:
    data = base64_bytes("mask", text)
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8)).astype(bool)
    if len(data) != -(-size // 8) or bits[size:].any():
        raise InvalidFile("mask must have one bit for each cell of the grid")
    return bits[:size]
