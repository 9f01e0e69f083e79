"""Districts: the share of people in each, with an interval of its own."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.arrays import FloatArray, ReadOnly, frozen, indices
from geoveil.errors import InvalidInput, Unsupported, number_of, percent, require
from geoveil.estimate.bars import ErrorBars
from geoveil.space import Grid, MapSpace, MaskedGrid, Points, Space
from geoveil.space.outline import Outline, read_outlines, some_of

if TYPE_CHECKING:
    import pandas as pd

_SLIVER = 0.01
"""Of a cell: what edges drawn apart may leave out or count twice, and nobody is told."""
_LEAST_LAND = 1e-6


class RegionShares(ReadOnly):
    """The share of all people in each of several regions of a map.

    A region that cuts through a cell has the part of the people of that cell that it has of its area: people
    are taken to stand evenly in their cells, and ``in_cut_cells`` says for how much of the share that
    matters. Intervals are those of the regions, from the covariance or the replicates of the estimate:
    intervals of cells do not add up, since what one cell has too much its neighbour has too little.
    """

    def __init__(
        self, names: Sequence[str], members: FloatArray, distribution: FloatArray, errors: ErrorBars
    ) -> None:
        self.names = tuple(names)
        self.members: FloatArray = frozen(np.array(members))
        """(regions, cells): the part of every cell that lies in each."""
        self._distribution = distribution
        self._errors = errors
        self.share: FloatArray = frozen(np.clip(self.members @ distribution, 0.0, 1.0))
        """(regions,)."""

    @cached_property
    def standard_error(self) -> FloatArray:
        """(regions,): infinite where the data say nothing."""
        errors: FloatArray = frozen(np.array(self._errors.standard_error(self.members)))
        return errors

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Low and high ends, for every region, of an interval that holds its true share."""
        return self._errors.interval(level, self.members)

    @property
    def in_cut_cells(self) -> FloatArray:
        """(regions,): of the share, that of people in cells that lie in the region only in part."""
        cut = (self.members > _SLIVER) & (self.members < 1.0 - _SLIVER)
        return np.asarray((self.members * cut) @ self._distribution)

    @property
    def left_out(self) -> float:
        """The share of all people who are in no region."""
        gaps = np.maximum(1.0 - self.members.sum(axis=0), 0.0)
        return float(gaps * (gaps > _SLIVER) @ self._distribution)

    @property
    def counted_twice(self) -> float:
        """The share of all people who are in another region as well, once for each beyond the first."""
        twice = np.maximum(self.members.sum(axis=0) - 1.0, 0.0)
        return float(twice * (twice > _SLIVER) @ self._distribution)

    def summary(self) -> str:
        """Whether the regions share all people among them, in words."""
        words = []
        if self.left_out > 0.0:
            words.append(f"{percent(self.left_out)} of the people are in no region")
        if self.counted_twice > 0.0:
            words.append(f"regions overlap: {percent(self.counted_twice)} are counted again")
        return "; ".join(words) or "every cell that has people is in one region, and in no other"

    def rows(self, level: float = 0.95) -> dict[str, Any]:
        """A table: the names, and what is known about each region."""
        low, high = self.interval(level)
        return {
            "region": list(self.names),
            "share": self.share,
            "standard_error": self.standard_error,
            "low": low,
            "high": high,
            "in_cut_cells": self.in_cut_cells,
        }

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """The table as a data frame, one row for each region."""
        require("pandas", "geo", "a data frame of regions")
        import pandas as pd

        return pd.DataFrame(self.rows(level))

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Names and shares."""
        return iter(zip(self.names, self.share.tolist(), strict=True))

    def __repr__(self) -> str:
        return f"RegionShares({number_of(len(self), 'region')}; {self.summary()})"


# --- Which part of every cell lies in which region


def named_members(
    space: Space, districts: Any, *, name: str = "name", within: Any = None
) -> tuple[tuple[str, ...], FloatArray]:
    """Names of regions and the part (regions, cells) of every cell in each.

    ``districts`` is GeoJSON or what else :func:`read_outlines` takes, or {name: cells}. Several of one name
    stay apart, with a warning.
    """
    if isinstance(districts, Mapping) and not isinstance(districts.get("type"), str):
        members = np.zeros((len(districts), space.size))
        for row, (title, cells) in zip(members, districts.items(), strict=True):
            row[indices(f"cells of {title!r}", cells, space.size)] = 1.0
        names = tuple(map(str, districts))
    else:
        outlines = read_outlines(districts, name=name)
        names = tuple(outline.name for outline in outlines)
        land = None if within is None else read_outlines(within)
        members = members_of(space, outlines, land)
    if not names:
        raise InvalidInput("districts must not be empty; give at least one region")
    alike = [repr(title) for title, times in Counter(names).items() if times > 1]
    if alike:
        warnings.warn(
            f"several districts have the name {some_of(alike)} and stay apart, each with its own share; "
            "join those that are one, or name them by another property",
            stacklevel=2,
        )
    return names, members


def members_of(
    space: Space, outlines: Sequence[Outline], within: Sequence[Outline] | None = None
) -> FloatArray:
    """(outlines, cells): the part of every cell in each outline.

    ``within`` are limits that nobody is outside of: then it is the part of what of the cell lies inside.
    Where outlines reach beyond the limits as well, they share such a cell in proportion to their parts.
    """
    parts = np.stack([_part(space, outline) for outline in outlines])
    if within is None:
        return parts
    land = np.clip(sum(_part(space, outline) for outline in within), 0.0, 1.0)
    shared = np.where(land < 1.0, np.maximum(land, parts.sum(axis=0)), 1.0)
    return np.divide(parts, shared, out=np.zeros_like(parts), where=shared > _LEAST_LAND)


def _part(space: Space, outline: Outline) -> FloatArray:
    if isinstance(space, MaskedGrid):
        return outline.coverage(space.grid)[space.cells]
    if isinstance(space, Grid):
        return outline.coverage(space)
    if isinstance(space, Points) and space.around:
        return outline.coverage_of(space.boundaries_km, space.plane)
    if not isinstance(space, MapSpace):
        raise Unsupported(f"{space!r} has no map; give regions as {{name: cells}}")
    lat, lng = space.centres_latlng()
    return outline.holds(lat=lat, lng=lng).astype(np.float64)
