"""Amounts by district, such as a census: polygons in GeoJSON, shared out among cells by area."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.document.canonical import strict_json
from geoveil.errors import InvalidFile, InvalidInput
from geoveil.space.box import Box
from geoveil.space.grid import Grid
from geoveil.space.masked_grid import MaskedGrid
from geoveil.space.outline import Outline, read_outlines
from geoveil.space.projection import check_degrees
from geoveil.space.space import Space
from geoveil.table.reader import Source, unpacking


@dataclass(frozen=True, eq=False)
class Districts:
    """Areas with an amount each, spread evenly in it."""

    areas: tuple[tuple[Outline, ...], ...]
    """The parts of each."""
    amounts: FloatArray
    name: str

    @property
    def box(self) -> Box:
        """The box around all of them."""
        rings = [
            ring
            for parts in self.areas
            for outline in parts
            for polygon in outline.polygons
            for ring in polygon
        ]
        corners = np.concatenate(rings)
        return Box.around(lat=corners[:, 1], lng=corners[:, 0])

    def by_cell(self, space: Space) -> tuple[FloatArray, float]:
        """The amount in every cell, and the share of the whole that lies outside of all of them.

        A cell gets of a district what it covers of its area, exactly. Districts that overlap count each.
        """
        if not isinstance(space, Grid | MaskedGrid):
            raise InvalidFile(
                f"{self.name} holds districts, which are shared out among the cells of a grid; "
                f"{space!r} is none"
            )
        grid = space.grid if isinstance(space, MaskedGrid) else space
        found = np.zeros(grid.size)
        for parts, amount in zip(self.areas, self.amounts.tolist(), strict=True):
            area_km2 = sum(outline.area_km2(grid.plane) for outline in parts)
            covered = np.sum([outline.coverage(grid) for outline in parts], axis=0)
            if area_km2 > 0:
                found += amount * covered * (grid.cell_km**2 / area_km2)
        cells = found if space is grid else found[space.cells]  # type: ignore[union-attr]
        total = float(self.amounts.sum())
        lost = 1.0 - float(cells.sum()) / total if total > 0 else 0.0
        return cells, lost if lost > 1e-6 else 0.0


def read_districts(path: str, column: str) -> Districts:
    """The districts of a GeoJSON file with the amounts in a property of theirs."""
    with Source(path) as source, unpacking(source.name):
        data = source.read()
    try:
        document = strict_json(data)
        features = list(document["features"])
    except (ValueError, RecursionError, KeyError, TypeError):
        raise InvalidFile(f"{path} must be a FeatureCollection in UTF-8") from None
    check_degrees(document.get("crs"), path)
    areas, amounts = [], []
    for number, feature in enumerate(features, start=1):
        amounts.append(_amount(feature, column, f"feature {number} of {path}"))
        try:
            areas.append(tuple(read_outlines(feature)))
        except InvalidInput as problem:
            raise InvalidFile(f"feature {number} of {path}: {problem}") from None
    return Districts(tuple(areas), np.array(amounts), path)


def _amount(feature: Any, column: str, which: str) -> float:
    properties = feature.get("properties") if isinstance(feature, Mapping) else None
    value = properties.get(column) if isinstance(properties, Mapping) else None
    try:
        if isinstance(value, bool):
            raise TypeError
        amount = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        amount = np.nan
    if not (np.isfinite(amount) and amount >= 0):
        raise InvalidFile(f"{which} must have a number of at least 0 as {column!r}")
    return amount
