"""Amounts by pixel or district, such as a census, shared out among cells by area.

Rasters are GeoTIFF or Esri's ASCII grids in degrees; districts are polygons in GeoJSON.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.errors import InvalidFile, InvalidInput, require
from geoveil.space import Box, Grid, MapSpace, MaskedGrid, Space
from geoveil.space.outline import Outline, box_around, read_outlines
from geoveil.space.projection import check_degrees, wrapped
from geoveil.table.streamed import GeoJSONReader

_ENDINGS = (".asc", ".tif", ".tiff")
_MOST_PIXELS = 10**8
_PARTS = 32
"""A pixel is parted so that a cell is at least so many parts wide."""
_LEAST_PARTS, _MOST_PARTS = 4, 256
"""How often a side is parted."""
_AT_ONCE = 1 << 21
"""Parts of pixels that are located together."""

# Tags of TIFF, and keys of GeoTIFF
_SCALE, _TIE, _MATRIX, _KEYS, _ABSENT = 33550, 33922, 34264, 34735, 42113
_COLOURS, _SIZES, _FORMAT = 262, (279, 325), 339
_MODEL, _RASTER, _GEOGRAPHIC, _PROJECTED = 1024, 1025, 2048, 3072
_POINTS = 2  # of _RASTER: values are at points, not over areas
_SIGNED = 2  # of _FORMAT: numbers may be below 0


def is_raster(path: str) -> bool:
    """Whether a file is a raster, by its ending."""
    return PurePath(path.lower()).suffix in _ENDINGS


@dataclass(frozen=True, eq=False)
class Raster:
    """Amounts by pixel; row 0 is the northernmost."""

    amounts: FloatArray
    """(rows, columns): not negative; 0 where there is none."""
    north: float
    west: float
    lat_step: float
    lng_step: float

    @property
    def box(self) -> Box:
        """The box that the pixels cover."""
        rows, columns = self.amounts.shape
        south = max(self.north - rows * self.lat_step, -90.0)
        east = self.west + columns * self.lng_step
        return Box(south=south, west=self.west, north=min(self.north, 90.0), east=east)

    def by_cell(self, space: MapSpace) -> tuple[FloatArray, float]:
        """The amount in every cell, and the share of the whole that lies outside of all of them.

        Every pixel is parted into equal rectangles of degrees, each with an equal share of its amount, and
        each goes to the cell that its middle lies in: a share by area, to about 1/64 of a cell along each of
        its edges. Places without cells of a size (``Points``) take whatever is nearest.
        """
        if isinstance(space, MaskedGrid):
            some = self.by_cell(space.grid)[0][space.cells]
            return some, _lost(some, self.amounts, 1e-9)
        rows, columns = self._near(space)
        parts, sums = self._parts(space), np.zeros(space.size)
        inner = (np.arange(parts) + 0.5) / parts
        lat = (self.north - (rows[:, None] + inner) * self.lat_step).ravel()
        lng = (self.west + (columns[:, None] + inner) * self.lng_step).ravel()
        height = max(1, _AT_ONCE // max(1, columns.size * parts * parts))
        for first in range(0, rows.size, height):
            some = self.amounts[np.ix_(rows[first : first + height], columns)]
            amounts = some.repeat(parts, 0).repeat(parts, 1)
            held = np.flatnonzero(amounts)
            row, column = np.divmod(held, columns.size * parts)
            place = {"lat": lat[first * parts + row], "lng": wrapped(lng[column])}
            cells, inside = space.nearest_cells(**place)
            weights = amounts.ravel()[held] / parts**2
            sums += np.bincount(cells[inside], weights[inside], minlength=space.size)
        return sums, _lost(sums, self.amounts, 1e-9)

    def _near(self, space: MapSpace) -> tuple[IntArray, IntArray]:
        """The rows and columns of pixels that can have a part in a cell."""
        rows, columns = (np.arange(size) for size in self.amounts.shape)
        if not isinstance(space, Grid):
            return rows, columns
        lat, lng = space.plane.to_latlng(space.corners_km())
        middle = space.plane.lng
        turn = wrapped(self.west - middle + (columns + 0.5) * self.lng_step)
        reach = np.abs(wrapped(lng - middle)).max() + self.lng_step
        centre = self.north - (rows + 0.5) * self.lat_step
        near = (centre > lat.min() - self.lat_step) & (centre < lat.max() + self.lat_step)
        return rows[near], columns[np.abs(turn) <= reach]

    def _parts(self, space: MapSpace) -> int:
        """How often a side of a pixel is parted."""
        if not isinstance(space, Grid):
            return _LEAST_PARTS
        pixel_km = 111.3 * max(self.lat_step, self.lng_step)
        return int(np.clip(math.ceil(_PARTS * pixel_km / space.cell_km), _LEAST_PARTS, _MOST_PARTS))


def _lost(placed: FloatArray, amounts: FloatArray, least: float) -> float:
    """The share of all amounts that was not placed, 0 where it is below the ``least``."""
    total = float(amounts.sum())
    lost = 1.0 - float(placed.sum()) / total if total > 0 else 0.0
    return lost if lost > least else 0.0


def read_raster(path: str) -> Raster:
    """The amounts of a GeoTIFF (.tif) or of an ASCII grid (.asc), in degrees of WGS84."""
    reader = _ascii_grid if path.lower().endswith(".asc") else _geotiff
    raster = reader(path)
    if not raster.amounts.size or raster.amounts.ndim != 2:
        raise InvalidFile(f"{path} must hold one band of pixels; it does not")
    if not np.isfinite(raster.amounts).all() or (raster.amounts < 0).any():
        raise InvalidFile(
            f"{path} must hold amounts of at least 0; it holds others: are they heights, or is the value "
            "for no data not declared?"
        )
    rows, columns = raster.amounts.shape
    south, width = raster.north - rows * raster.lat_step, columns * raster.lng_step
    on_earth = -90.001 <= south <= raster.north <= 90.001 and -180.001 <= raster.west <= 180.001
    if not (raster.lat_step > 0 and raster.lng_step > 0 and on_earth and width < 180.0):
        raise InvalidFile(
            f"{path} must be in degrees of WGS84 and less than half of the globe wide; its corner and "
            "pixels are no such degrees: convert it with gdalwarp -t_srs EPSG:4326, and cut it out"
        )
    return raster


def _without(amounts: FloatArray, absent: float | None) -> FloatArray:
    """The amounts, 0 where they are absent."""
    missing = np.isnan(amounts) if absent is None else np.isnan(amounts) | (amounts == absent)
    return np.where(missing, 0.0, amounts)


_NAMES = ("ncols", "nrows", "xllcorner", "yllcorner", "xllcenter", "yllcenter", "cellsize",
          "nodata_value")  # fmt: skip


def _ascii_grid(path: str) -> Raster:
    described = Path(path).with_suffix(".prj")
    if described.is_file():
        check_degrees(described.read_text(encoding="utf-8", errors="replace")[:4096].strip(), path)
    words: dict[str, float] = {}
    try:
        with Path(path).open(encoding="ascii") as lines:
            while True:
                start = lines.tell()
                name, _, value = lines.readline().expandtabs().strip().partition(" ")
                if name.lower() not in _NAMES:
                    lines.seek(start)
                    break
                words[name.lower()] = float(value)
            columns, rows, step = int(words["ncols"]), int(words["nrows"]), words["cellsize"]
            if not 0 < columns * rows <= _MOST_PIXELS:
                raise ValueError
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # text after the numbers
                values = np.fromstring(lines.read(), dtype=np.float64, sep=" ")
        amounts = values.reshape(rows, columns)
        west = words["xllcorner"] if "xllcorner" in words else words["xllcenter"] - step / 2
        south = words["yllcorner"] if "yllcorner" in words else words["yllcenter"] - step / 2
    except (KeyError, ValueError, OverflowError, DeprecationWarning):
        raise InvalidFile(
            f"{path} must be an ASCII grid with at most {_MOST_PIXELS:,} pixels: ncols, nrows, xllcorner, "
            "yllcorner and cellsize, then as many numbers"
        ) from None
    absent = words.get("nodata_value")
    return Raster(_without(amounts, absent), south + rows * step, west, step, step)


def _geotiff(path: str) -> Raster:
    require("PIL", "plot", "reading GeoTIFF", "Pillow")
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            if image.format != "TIFF" or image.width * image.height > _MOST_PIXELS:
                raise InvalidFile(
                    f"{path} must be a TIFF of at most {_MOST_PIXELS:,} pixels; cut it out first"
                )
            tags: Any = image.tag_v2  # type: ignore[attr-defined]
            keys, scale, tie = _keys(tags.get(_KEYS)), tags.get(_SCALE), tags.get(_TIE)
            turned, absent = tags.get(_MATRIX), tags.get(_ABSENT)
            _check_system(keys, path)
            if tags.get(_COLOURS) == 0 or any(0 in tags.get(sizes, ()) for sizes in _SIZES):
                raise ValueError  # Pillow would count down from 255, or take other bytes for pixels
            if image.mode == "L" and _SIGNED in tags.get(_FORMAT, ()):
                raise ValueError  # Pillow would take -1 for 255
            amounts = np.asarray(image, dtype=np.float64)
    except (OSError, ValueError, TypeError, SyntaxError, KeyError) as problem:
        if isinstance(problem, InvalidFile | FileNotFoundError | PermissionError):
            raise
        raise InvalidFile(
            f"{path} must be a GeoTIFF of one band of at most 32 bits that can be unpacked, without sparse "
            "parts; write it anew, for instance with gdal_translate -b 1 -ot Float32 -co COMPRESS=DEFLATE"
        ) from None
    if turned is not None or scale is None or tie is None or len(scale) < 2 or len(tie) < 6:
        raise InvalidFile(
            f"{path} must say where its pixels lie, north up: it has no corner and pixel size; warp it with "
            "gdalwarp -t_srs EPSG:4326"
        )
    shift = 0.5 if keys.get(_RASTER) == _POINTS else 0.0
    column, row, _, lng, lat = tie[:5]
    west = float(lng) - (float(column) + shift) * float(scale[0])
    north = float(lat) + (float(row) + shift) * float(scale[1])
    try:
        missing = None if absent is None else float(str(absent).strip("\x00 "))
        if missing is not None and image.mode == "F":  # as the pixels hold it
            with np.errstate(over="ignore"):
                missing = float(np.float32(missing))
    except ValueError:
        missing = None
    return Raster(_without(amounts, missing), north, west, float(scale[1]), float(scale[0]))


def _keys(stored: Any) -> dict[int, int]:
    """The keys of GeoTIFF that are short numbers."""
    values = [int(value) for value in stored or ()]
    groups = [values[start : start + 4] for start in range(4, len(values) - 3, 4)]
    return {key: value for key, place, _, value in groups if place == 0}


def _check_system(keys: dict[int, int], path: str) -> None:
    """Refuse what is not in degrees of WGS84, with the system it is in."""
    system = keys.get(_PROJECTED) or keys.get(_GEOGRAPHIC)
    if keys.get(_MODEL) == 2 and keys.get(_GEOGRAPHIC) == 4326:
        return
    named = f"EPSG:{system}" if system not in (None, 0, 32767) else "one of its own, or not said"
    raise InvalidFile(
        f"{path} must hold longitude and latitude in degrees (WGS84); its coordinate reference system is "
        f"{named}; convert it with gdalwarp -t_srs EPSG:4326"
    )


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
        return box_around(chain.from_iterable(self.areas))

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
        sums = np.zeros(grid.size)
        for parts, amount in zip(self.areas, self.amounts.tolist(), strict=True):
            area_km2 = sum(outline.area_km2(grid.plane) for outline in parts)
            covered = np.sum([outline.coverage(grid) for outline in parts], axis=0)
            if area_km2 > 0:
                sums += amount * covered * (grid.cell_km**2 / area_km2)
        cells = sums if space is grid else sums[space.cells]  # type: ignore[union-attr]
        return cells, _lost(cells, self.amounts, 1e-6)


def read_districts(reader: GeoJSONReader, column: str) -> Districts:
    """The districts of an open GeoJSON file with the amounts in a property of theirs."""
    areas, amounts = [], []
    for number, feature in enumerate(reader.features(), start=1):
        amounts.append(_amount(feature, column, f"feature {number} of {reader.name}"))
        try:
            areas.append(tuple(read_outlines(feature)))
        except InvalidInput as problem:
            raise InvalidFile(f"feature {number} of {reader.name}: {problem}") from None
    return Districts(tuple(areas), np.array(amounts), reader.name)


def _amount(feature: Any, column: str, which: str) -> float:
    properties = feature.get("properties") if isinstance(feature, Mapping) else None
    value = properties.get(column) if isinstance(properties, Mapping) else None
    try:
        if isinstance(value, bool):
            raise TypeError
        amount = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        amount = np.nan
    if not (np.isfinite(amount) and amount >= 0):
        raise InvalidFile(f"{which} must have a number of at least 0 as {column!r}")
    return amount
