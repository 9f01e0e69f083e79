"""Where a person can be: a grid, a line, places; kilometres inside, degrees at the border."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geoveil.errors import InvalidFile
from geoveil.space.box import Box
from geoveil.space.grid import Grid, Line
from geoveil.space.masked_grid import AnyGrid, MaskedGrid
from geoveil.space.outside import Outside, OutsideCount
from geoveil.space.points import Hexagons, Points
from geoveil.space.projection import TangentPlane
from geoveil.space.space import MATRIX_LIMIT, MOST_CELLS, MapSpace, Space, kind_of

__all__ = [
    "MATRIX_LIMIT", "MOST_CELLS", "AnyGrid", "Box", "Grid", "Hexagons", "Line", "MapSpace", "MaskedGrid",
    "Outside", "OutsideCount", "Points", "Space", "TangentPlane", "register_space", "space_from_dict",
]  # fmt: skip

_KINDS: dict[str, type[Space]] = {
    "grid": Grid,
    "line": Line,
    "points": Points,
    "hexagons": Hexagons,
}


def register_space(kind: str, space: type[Space]) -> None:
    """Let ``space_from_dict`` read a kind of space that another package brings."""
    _KINDS[kind] = space


def space_from_dict(values: Mapping[str, Any]) -> Space:
    """The space that ``to_dict`` described, of whichever kind.

    >>> space_from_dict({"kind": "line", "size": 5})
    Line(size=5)
    """
    kind = kind_of(values)
    if kind not in _KINDS:
        raise InvalidFile(f"the kind of a space ({kind!r}) must be one of {', '.join(_KINDS)}")
    if kind == "grid" and "mask" in values:
        return MaskedGrid.from_dict(values)
    return _KINDS[kind].from_dict(values)
