"""Where the reports of a document lie: a grid, the cells of one that a mask leaves, or any list of places."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray, frozen, positive
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.position.centres import Centres
from geoveil.position.positional import centres_over, origin_km
from geoveil.position.whole_law import LEADING_BITS, beyond_leading, leading_bits
from geoveil.space import MATRIX_LIMIT, MOST_CELLS, AnyGrid, Points, space_from_dict
from geoveil.space.box import check_reach
from geoveil.space.masked_grid import base64_bytes, grid_beneath
from geoveil.space.projection import TangentPlane

WIDEST_GRID = 2 * MOST_CELLS
"""Cells of a grid of which a mask leaves some."""
_LARGEST_EXPONENT = 21
_PLACES = {"kind", "origin", "cell_km", "points"}


@dataclass(frozen=True, eq=False)
class Area:
    """Cells on a map, without the rim that a law may have around them; at most 65,536, of a list 4,096.

    They are ``squares``, or the places of a list: ``points``, in steps of the lattice from the origin of the
    plane.
    """

    plane: TangentPlane
    cell_km: float
    """The side of a cell, or how far apart the places of a list are; the kernel is rounded by it."""
    squares: AnyGrid | None = None
    points: IntArray | None = None
    around: bool = False
    """Whether people of a place of a list are taken to stand around it; no device needs to know."""

    @classmethod
    def of_squares(cls, squares: AnyGrid) -> Area:
        """All cells of a grid over a box, or some."""
        if not 2 <= squares.size <= MOST_CELLS:
            raise InvalidInput(
                f"a document must have 2 to {MOST_CELLS} cells, not {squares.size}; choose other cells or "
                "another box"
            )
        grid, _ = grid_beneath(squares)
        if grid.size > WIDEST_GRID:
            raise InvalidInput(
                f"the grid under a mask must have at most {WIDEST_GRID} cells, not {grid.size}; choose "
                "larger cells or a smaller box"
            )
        return cls(grid.plane, grid.cell_km, squares)

    @classmethod
    def of_space(cls, space: AnyGrid | Points, centres: Centres) -> Area:
        """The cells of a space on a map; those of a list as their centres lie on the lattice."""
        if isinstance(space, Points):
            return cls.of_places(space.plane, centres.points, space.cell_km, around=space.around)
        return cls.of_squares(space)

    @classmethod
    def of_places(
        cls, plane: TangentPlane, points: IntArray, cell_km: float, *, around: bool = False
    ) -> Area:
        """A list of places, each once."""
        if not 2 <= len(points) <= MATRIX_LIMIT or len(np.unique(points, axis=0)) < len(points):
            raise InvalidInput(f"centres must be 2 to {MATRIX_LIMIT} different places")
        side_km = positive("cell_km", cell_km)
        return cls(plane, side_km, points=frozen(points.copy()), around=around)

    @property
    def many(self) -> bool:
        """Whether weights are written in two bytes each."""
        return self.size > MATRIX_LIMIT

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self._cells.size if self.points is None else len(self.points)

    @property
    def _cells(self) -> AnyGrid:
        """The squares, where the places are not listed."""
        assert self.squares is not None
        return self.squares

    def space(self, step: int) -> AnyGrid | Points:
        """The cells as a space, where ``step`` steps of the lattice make a cell."""
        if self.points is None:
            return self._cells
        return Points.on_lattice(
            self.plane, self.points, step=step, cell_km=self.cell_km, around=self.around
        )

    def centres(self, *, step: int, rim: int) -> Centres:
        """Where reports lie, in steps of the lattice: ``step`` of them make a cell."""
        if self.points is None:
            return centres_over(self._cells, step=step, rim=rim)
        if rim:
            raise InvalidInput("rim must be 0 around a list of places")
        pitch_km = self.cell_km / step
        width, height = ((np.abs(self.points).max(axis=0)) * 2 * pitch_km).tolist()
        check_reach("the list of places", width, height)
        return Centres.of_places(self.points, pitch_km=pitch_km)

    @cached_property
    def origin_km(self) -> FloatArray:
        """The origin of the centres in the plane: cell 0 of the grid, or that of the plane."""
        return np.zeros(2) if self.squares is None else origin_km(self.squares)

    def place_km(self, lat: float, lng: float) -> FloatArray:
        """A position anywhere on the globe, in km from the origin of the centres."""
        place: FloatArray = self.plane.to_plane(lat=lat, lng=lng, folded=True) - self.origin_km
        return place

    def inside(self, lat: float, lng: float) -> bool:
        """Whether a position lies in one of the cells; where there is no grid, everybody is inside."""
        if self.squares is None:
            return True
        grid, mask = grid_beneath(self.squares)
        cell, inside = grid.nearest_cells(lat=lat, lng=lng)
        return bool(inside) and (mask is None or bool(mask[int(cell)]))

    def latlng(self, place_km: FloatArray) -> tuple[float, float]:
        """A place given from the origin of the centres, in degrees."""
        lat, lng = self.plane.to_latlng(place_km + self.origin_km)
        return float(lat), float(lng)

    # -- documents -----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        if self.points is None:
            return self._cells.to_dict()
        packed = packed_integers(self.points.ravel(), signed=True)
        origin = [self.plane.lat, self.plane.lng]
        return {"kind": "centres", "origin": origin, "cell_km": self.cell_km, "points": packed}

    @classmethod
    def from_dict(cls, values: Any) -> Area:
        """The area that ``to_dict`` described; an error of the library for anything else."""
        if not isinstance(values, Mapping):
            raise InvalidFile("space must be a JSON object")
        if values.get("kind") == "centres":
            return cls._of_list(values)
        for side in (values.get("rows"), values.get("columns")):
            if type(side) is not int or not 1 <= side <= MOST_CELLS:
                raise InvalidFile(f"rows and columns must be whole numbers up to {MOST_CELLS}")
        most = MOST_CELLS if values.get("mask") is None else WIDEST_GRID
        if values.get("box") is None or values["rows"] * values["columns"] > most:
            raise InvalidFile(f"space must be a grid over a box, of at most {most} cells")
        space = space_from_dict(values)
        assert isinstance(space, AnyGrid)  # nothing else has rows, columns and a box
        return cls.of_squares(space)

    @classmethod
    def _of_list(cls, values: Mapping[str, Any]) -> Area:
        origin, cell_km = values.get("origin"), values.get("cell_km")
        numbers = [*origin, cell_km] if isinstance(origin, list) and len(origin) == 2 else []
        if set(values) != _PLACES or not numbers or {type(n) for n in numbers} - {int, float}:
            raise InvalidFile("centres must have an origin [lat, lng], a cell_km and points")
        if not 1e-3 <= numbers[2] <= 1e3:
            raise InvalidFile("cell_km must lie between 0.001 and 1000")
        points = unpacked_integers("points", values["points"], signed=True)
        if points.size % 2:
            raise InvalidFile("points must be pairs, east and north")
        plane = TangentPlane(lat=numbers[0], lng=numbers[1])
        return cls.of_places(plane, points.reshape(-1, 2), numbers[2])


# --- Many whole numbers in few characters: four bytes each, the highest first, in base 64; or two


def packed_integers(values: IntArray, *, signed: bool = False) -> str:
    """Whole numbers of 32 bits as text.

    >>> packed_integers(np.array([1, 2**31])), unpacked_integers("weights", "AAAAAYAAAAA=").tolist()
    ('AAAAAYAAAAA=', [1, 2147483648])
    """
    return b64encode(values.astype(">i4" if signed else ">u4").tobytes()).decode()


def unpacked_integers(name: str, text: Any, *, signed: bool = False) -> IntArray:
    """The numbers again; every list of numbers has one text."""
    data = base64_bytes(name, text)
    if len(data) % 4 or not data:
        raise InvalidFile(f"{name} must hold whole numbers of four bytes")
    return np.frombuffer(data, dtype=">i4" if signed else ">u4").astype(np.int64)


def packed_weights(values: IntArray) -> str:
    """Weights of 12 leading bits, two bytes each: e, the highest five, and m, the other eleven.

    A weight is m where e is 0, and else (2048 + m)·2^(e − 1); so every weight has one code.

    >>> packed_weights(np.array([1, 2047, 4096, 4095 << 8])), unpacked_weights("AAEH/xAAT/8=").tolist()
    ('AAEH/xAAT/8=', [1, 2047, 4096, 1048320])
    """
    if not np.array_equal(leading_bits(values), values):
        raise InvalidInput(
            f"weights of more than {MATRIX_LIMIT} cells must have {LEADING_BITS} leading bits each"
        )
    shift = beyond_leading(values)
    # 2048 and more of the leading bits count as one more shift
    codes = (shift << 11) + (values >> shift)
    return b64encode(codes.astype(">u2").tobytes()).decode()


def unpacked_weights(text: Any) -> IntArray:
    """The weights again; every list of weights has one text."""
    data = base64_bytes("weights", text)
    if len(data) % 2 or not data:
        raise InvalidFile("weights must hold codes of two bytes")
    codes = np.frombuffer(data, dtype=">u2").astype(np.int64)
    exponent, mantissa = codes >> 11, codes & 0x7FF
    if (exponent > _LARGEST_EXPONENT).any():
        raise InvalidFile("weights must be below 2^32")
    return np.where(exponent > 0, (2048 + mantissa) << np.maximum(exponent - 1, 0), mantissa)
