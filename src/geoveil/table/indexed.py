"""Reading files that have an index, Parquet and GeoPackage; geometry in them is well-known binary.

Parquet is read row group by row group, GeoPackage through pyogrio.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from geoveil.arrays import FloatArray
from geoveil.document.canonical import strict_json
from geoveil.errors import InvalidFile, require
from geoveil.space.projection import check_degrees
from geoveil.table import reader
from geoveil.table.columns import arrow_numbers, without_views

_POINT_BYTES = 21  # WKB: byte order, type (uint32), x, y (float64)
_SECTION_ROWS = 1 << 20  # at least, for a section of several row groups
_WITH_HEIGHT = (1001, 0x80000001)  # types of points with a height behind x and y: ISO, extended


class IndexedReader(reader.TableReader):
    """Rows of Arrow, whose points may lie in a column of well-known binary, or of pairs x and y."""

    _rows = _read = 0
    _shapes: pa.Array | None = None

    @property
    def fraction(self) -> float | None:
        return min(1.0, self._read / self._rows) if self._rows > 0 else None

    def _selection(
        self, batch: pa.RecordBatch, columns: Sequence[str], geometry: str
    ) -> pa.RecordBatch:
        """These columns of a batch, the coordinates among them those of its points."""
        self._read += batch.num_rows
        plain = [name for name in columns if name not in reader.GEOMETRY]
        arrays = {name: without_views(batch.column(name)) for name in plain}
        if reader.GEOMETRY[0] in columns:
            self._shapes = batch.column(geometry)
            lng, lat = points_of(self._shapes)
            arrays |= dict(zip(reader.GEOMETRY, map(arrow_numbers, (lat, lng)), strict=True))
        return pa.RecordBatch.from_arrays([arrays[name] for name in columns], columns)

    def shape_of(self, row: int) -> str | None:
        if self._shapes is None or pa.types.is_struct(self._shapes.type):
            return None
        return wkb_shape(self._shapes[row].as_py())


class ParquetReader(IndexedReader):
    """A Parquet file. Coordinates are columns of numbers, or the points of its geometry column."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._handle = Path(path).open("rb")  # noqa: SIM115 (closed by close)
        try:
            self._file = parquet.ParquetFile(self._handle, buffer_size=1 << 20, pre_buffer=False)
        except (pa.ArrowException, OSError):
            self._handle.close()
            raise InvalidFile(f"{path} must be a whole Parquet file; it is not") from None
        self.columns = list(self._file.schema_arrow.names)
        metadata = self._file.schema_arrow.metadata or {}
        try:
            self._document = reader.read_document(metadata.get(reader.DOCUMENT.encode(), b""), path)
            self.geometries = geometry_columns(self._file.schema_arrow, path)
        except InvalidFile:
            self.close()
            raise
        self._geometry, self._crs = None, None
        try:  # the main geometry column of a GeoParquet file, where its points can be read
            geo = geo_metadata(self._file.schema_arrow, path)
            primary, described = str(geo["primary_column"]), geo["columns"][geo["primary_column"]]
            kind = self._file.schema_arrow.field(primary).type
            pairs = pa.types.is_struct(kind) and {"x", "y"} <= {part.name for part in kind}
            if described["encoding"] == ("point" if pairs else "WKB"):
                self._geometry, self._crs = primary, described.get("crs")
                self.coordinates = reader.GEOMETRY
        except (KeyError, TypeError):
            pass
        self._groups = range(self._file.num_row_groups)
        self._rows = self._file.metadata.num_rows

    def batches(
        self, coordinates: Sequence[str], others: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        columns = list(dict.fromkeys([*coordinates, *others]))
        if reader.GEOMETRY[0] in columns:
            check_degrees(self._crs, self.name)
        geometry = self._geometry or ""
        stored = [geometry if name in reader.GEOMETRY else name for name in columns]
        options = {"batch_size": reader.BATCH_ROWS, "columns": list(dict.fromkeys(stored))}
        self.number = sum(map(self._rows_in, range(self._groups.start)))  # that of its first row
        try:
            for group in self._groups:
                for batch in self._file.iter_batches(row_groups=[group], **options):
                    yield self._selection(batch, columns, geometry)
                    self.number += batch.num_rows
        except (pa.ArrowException, OSError):  # the message could repeat a value
            raise InvalidFile(f"{self.name} must be a whole Parquet file; it is damaged") from None

    def _rows_in(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).num_rows)

    def sections(self) -> Iterator[reader.Section]:
        first = rows = 0
        for group in self._groups:
            rows += self._rows_in(group)
            if rows >= _SECTION_ROWS or group == self._groups[-1]:
                yield first, group + 1
                first, rows = group + 1, 0

    def narrow(self, section: reader.Section) -> None:
        self._groups = range(*section)

    def close(self) -> None:
        self._file.close()
        self._handle.close()


class GeoPackageReader(IndexedReader):
    """A GeoPackage with one layer of points. Its attributes are columns; coordinates are the geometry's.

    Cost: one pass; memory for one batch. Needs the extra ``geo``.
    """

    coordinates = reader.GEOMETRY

    def __init__(self, path: str) -> None:
        require("pyogrio", "geo", "reading GeoPackage")
        import pyogrio

        self.name = path
        with Path(path).open("rb"):  # a missing file is said as for any other
            pass
        try:
            layers = [str(name) for name in pyogrio.list_layers(path)[:, 0]]
            about = pyogrio.read_info(path, layer=layers[0]) if len(layers) == 1 else {}
        except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError):
            raise InvalidFile(f"{path} must be a whole GeoPackage; it is not") from None
        if len(layers) != 1:
            named = f": {', '.join(name[:40] for name in layers[:20])}" if layers else ""
            raise InvalidFile(f"{path} must have one layer; it has {len(layers)}{named}")
        self._layer = layers[0]
        self._crs = about["crs"]
        self.columns = [str(name) for name in about["fields"]]
        self._rows = int(about["features"])

    def batches(
        self, coordinates: Sequence[str], others: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        import pyogrio

        columns = list(dict.fromkeys([*coordinates, *others]))
        properties = [name for name in columns if name not in reader.GEOMETRY]
        if reader.GEOMETRY[0] in columns:
            check_degrees(self._crs, self.name)
        try:
            with pyogrio.open_arrow(
                self.name,
                layer=self._layer,
                columns=properties,
                batch_size=reader.BATCH_ROWS,
                use_pyarrow=True,
            ) as (about, stored):
                geometry = about["geometry_name"] or "wkb_geometry"
                for batch in stored:
                    yield self._selection(batch, columns, geometry)
                    self.number += 1
        except (pa.ArrowException, pyogrio.errors.DataSourceError):
            raise InvalidFile(f"{self.name} must be a whole GeoPackage; it is damaged") from None

    def close(self) -> None:
        """The file is open only while batches are read."""


# --- Geometry: which columns hold it, and the points in well-known binary


def geometry_columns(schema: pa.Schema, name: str) -> list[str]:
    """The columns that hold geometry, by the metadata of GeoParquet or by an Arrow extension."""
    described = geo_metadata(schema, name).get("columns")
    names = set(described) if isinstance(described, dict) else set()
    for field in schema:
        named = str(getattr(field.type, "extension_name", ""))
        stored = (field.metadata or {}).get(b"ARROW:extension:name", b"")
        if named.startswith("geoarrow.") or stored.startswith(b"geoarrow."):
            names.add(field.name)
    return [name for name in schema.names if name in names]


def geo_metadata(schema: pa.Schema, name: str) -> dict[str, Any]:
    """What GeoParquet says about the columns of the table ``name``; empty where it says nothing."""
    try:
        geo = strict_json((schema.metadata or {}).get(b"geo", b"{}"))
        if isinstance(geo, dict):
            return geo
    except (ValueError, RecursionError):
        pass
    raise InvalidFile(
        f"{name} must carry its GeoParquet metadata as a JSON object in UTF-8 that names no entry "
        "twice; write the file again, or take 'geo' out of its metadata"
    )


def wkb_shape(entry: bytes | None) -> str | None:
    """What well-known binary says it is, where that is known and is no point."""
    if entry is None or len(entry) < 5 or _is_point(entry):
        return None
    kind = (_kind(entry) & 0xFFFF) % 1000
    return dict(enumerate(("point of more dimensions", *reader.SHAPES), start=1)).get(kind)


def points_of(values: pa.Array) -> tuple[FloatArray, FloatArray]:
    """(x, y) of a column of points; NaN where an entry is none."""
    if not pa.types.is_struct(values.type):
        return wkb_points(values)
    parts = (values.flatten()[values.type.get_field_index(name)] for name in "xy")
    x, y = (part.cast(pa.float64()).fill_null(np.nan) for part in parts)
    return x.to_numpy(zero_copy_only=False), y.to_numpy(zero_copy_only=False)


def wkb_points(values: pa.Array) -> tuple[FloatArray, FloatArray]:
    """(x, y) of a column of well-known binary points; NaN where an entry is no point."""
    stored = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    x, y = np.full((2, len(stored)), np.nan)
    stored = stored.cast(pa.large_binary()).fill_null(b"")
    _, ends, data = stored.buffers()
    if data is None or data.size < _POINT_BYTES:
        return x, y
    bounds = np.frombuffer(ends, dtype=np.int64)[stored.offset :][: len(stored) + 1]
    long = np.isin(np.diff(bounds), (_POINT_BYTES, _POINT_BYTES + 8))
    at, begins, lengths = np.flatnonzero(long), bounds[:-1][long], np.diff(bounds)[long]
    flat = np.frombuffer(data, dtype=np.uint8)
    heads = np.lib.stride_tricks.sliding_window_view(flat, _POINT_BYTES)[begins]
    for order, mark in ((1, "<"), (0, ">")):
        points = heads.view([("order", "u1"), ("kind", f"{mark}u4"), ("xy", f"{mark}f8", 2)])[:, 0]
        kinds = np.isin(points["kind"], _WITH_HEIGHT)
        good = np.where(lengths == _POINT_BYTES, points["kind"] == 1, kinds)
        good &= points["order"] == order
        x[at[good]], y[at[good]] = points["xy"][good].T
    return x, y


def _is_point(entry: bytes) -> bool:
    kind = _kind(entry)
    if len(entry) == _POINT_BYTES:
        return kind == 1
    return len(entry) == _POINT_BYTES + 8 and kind in _WITH_HEIGHT


def _kind(entry: bytes) -> int:
    return int.from_bytes(entry[1:5], "little" if entry[:1] == b"\x01" else "big")
