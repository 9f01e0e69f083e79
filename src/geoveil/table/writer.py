"""Writing tables: whole files or none, in any format."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from geoveil.document.canonical import canonical_bytes
from geoveil.errors import InvalidInput
from geoveil.files import PIPE, replaced_file
from geoveil.table.columns import arrow_numbers, arrow_texts, python_values
from geoveil.table.reader import DOCUMENT, Format, format_of

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST_FIELD = 30_000
"""Characters of CSV: a cell of a spreadsheet holds 32,767."""

FORMULAS = ("=", "+", "-", "@")
"""With these a formula begins in a spreadsheet."""

_MARKS = re.compile('[,"\r\n]')
"""What cannot stand in CSV without quotes."""


class TableWriter(ABC):
    """A table being written, one record batch after another."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch."""

    def finish(self) -> None:  # noqa: B027 (most formats have nothing there)
        """Write what a format has at its end."""

    def abandon(self) -> None:  # noqa: B027 (most hold nothing)
        """Let go of a table that will not be kept."""


@contextmanager
def create_table(
    path: str,
    schema: pa.Schema,
    *,
    format: str | None = None,
    document: Mapping[str, Any] | None = None,
) -> Iterator[TableWriter]:
    """A table to write to, in the format of the ending of its name; ``-`` is standard output.

    The table carries ``document`` under the name ``geoveil``: in the key-value metadata of Parquet, as
    a member of GeoJSON, in a column of CSV. Rows are written beside the target under a passing name,
    which becomes the target when the block ends well and is removed when it does not.
    """
    kind = format_of(path, format, writing=True)
    with binary_sink(path) as sink, table_into(sink, kind, schema, document) as writer:
        yield writer


@contextmanager
def table_into(
    sink: IO[bytes], kind: Format, schema: pa.Schema, document: Mapping[str, Any] | None
) -> Iterator[TableWriter]:
    """A table to write to, whose bytes go to ``sink``."""
    writers = {Format.CSV: DelimitedWriter, Format.PARQUET: ParquetWriter}
    writer: TableWriter = writers.get(kind, FeatureWriter)(sink, schema, document)
    try:
        yield writer
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


def check_target(target: str, *others: str | None) -> None:
    """Refuse, before the work, a target that cannot be written or is one of the other files, if given."""
    path = Path(target)
    if target != PIPE and path.is_dir():
        raise InvalidInput(f"output ({target}) must be a file; it is a folder")
    if target != PIPE and (path.is_file() or not path.exists()):  # a device is not replaced
        folder = path.resolve().parent
        if not folder.is_dir():
            raise InvalidInput(f"output ({target}) must lie in a folder that exists; make it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise InvalidInput(f"output ({target}) must lie in a folder that you may write to")
    for other in others:
        if other is None or PIPE in (target, other):
            continue
        first, second = Path(target), Path(other)
        there = first.exists() and second.exists()
        if first.samefile(second) if there else first.resolve() == second.resolve():
            raise InvalidInput(
                f"output ({target}) must not be the same file as {other}; choose another name"
            )


@contextmanager
def binary_sink(path: str) -> Iterator[IO[bytes]]:
    """Bytes to write to: a file that appears whole, packed by its ending, or standard output for ``-``."""
    with replaced_file(path) as handle:
        if path.lower().endswith(".zst"):
            import pyarrow as pa

            with pa.CompressedOutputStream(pa.PythonFile(handle, mode="w"), "zstd") as packed:
                yield cast(IO[bytes], packed)
        elif path.lower().endswith(".gz"):
            # No name and no time in the header: the same rows give the same bytes.
            with gzip.GzipFile("", mode="wb", fileobj=handle, compresslevel=6, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        else:
            yield handle


class DelimitedWriter(TableWriter):
    """CSV with a header line; text is quoted in the batches where some of it has to be.

    The document stands in a last column, ``geoveil``: in the first row, and in those below it where it
    is longer than a spreadsheet or Python's ``csv`` lets a field be. All other rows leave it empty.
    """

    def __init__(
        self, sink: IO[bytes], schema: pa.Schema, document: Mapping[str, Any] | None = None
    ) -> None:
        _check_plain(schema)
        self._sink = sink
        self._carries = document is not None
        self._rest = "" if document is None else canonical_bytes(document).decode()
        names = [*schema.names, DOCUMENT] if self._carries else schema.names
        if names.count(DOCUMENT) > 1:
            raise InvalidInput(
                f"columns of CSV ({DOCUMENT}) must leave that name to the document that the file "
                "carries; rename the column, or write Parquet or GeoJSON"
            )
        quoted = (
            '"' + name.replace('"', '""') + '"' if _MARKS.search(name) else name for name in names
        )
        sink.write((",".join(quoted) + "\n").encode())

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows and self._rest:  # apart from the others, which need no quotes for it
            size = max(_LONGEST_FIELD, -(-len(self._rest) // batch.num_rows))
            # none that a spreadsheet would take for a formula
            pieces = re.findall(rf"(?s).{{1,{size}}}[{re.escape(''.join(FORMULAS))}]*", self._rest)
            self._put(batch.slice(0, len(pieces)), pieces)
            self._rest, batch = "", batch.slice(len(pieces))
        if batch.num_rows:
            self._put(batch)

    def _put(self, batch: pa.RecordBatch, pieces: Sequence[str] | None = None) -> None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if self._carries:
            text = pa.string()
            last = pa.nulls(batch.num_rows, text) if pieces is None else arrow_texts(pieces)
            names = [*batch.schema.names, DOCUMENT]
            batch = pa.RecordBatch.from_arrays([*batch.columns, last], names=names)
        style = "needed" if any(map(_has_marks, batch.columns)) else "none"
        options = arrow_csv.WriteOptions(include_header=False, quoting_style=style)
        arrow_csv.write_csv(batch, _Kept(self._sink), write_options=options)


class ParquetWriter(TableWriter):
    """Parquet with Zstandard compression, the mechanism document in its metadata."""

    def __init__(
        self, sink: IO[bytes], schema: pa.Schema, document: Mapping[str, Any] | None
    ) -> None:
        from pyarrow import parquet

        if document is not None:
            others = schema.metadata or {}
            schema = schema.with_metadata({**others, DOCUMENT: canonical_bytes(document)})
        self._schema = schema
        self._sink = _Kept(sink)
        self._writer = parquet.ParquetWriter(self._sink, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch.replace_schema_metadata(self._schema.metadata))

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._sink.discard = True
        self._writer.close()


class _Kept(io.RawIOBase):
    """A sink that pyarrow may close without closing the file under it."""

    discard = False

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data) if self.discard else self._sink.write(data)


def _check_plain(schema: pa.Schema) -> None:
    """Refuse columns whose values have no text of their own: lists, structures, bytes."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    wrong = []
    for field in schema:
        if _is_number(field.type) or _is_text(field.type):
            continue
        if pa.types.is_timestamp(field.type):  # of some zone, which may be unknown here
            python_values(arrow_numbers(np.zeros(1, np.int64)).cast(field.type), field.name)
        try:  # found by writing none of its rows
            arrow_csv.write_csv(pa.schema([field]).empty_table(), pa.BufferOutputStream())
            plain = "binary" not in str(field.type)  # written where it happens to be text
        except (pa.ArrowInvalid, NotImplementedError):
            plain = False
        wrong += [] if plain else [field.name]
    if wrong:
        raise InvalidInput(
            f"columns of CSV ({', '.join(wrong)}) must hold numbers or text, not lists, structures "
            "or bytes; write Parquet or GeoJSON, or leave them out"
        )


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _has_marks(column: pa.Array) -> bool:
    """Whether some text of the column cannot stand in CSV without quotes."""
    import pyarrow.compute as pc

    if _is_number(column.type):
        return False
    if not _is_text(column.type):
        return True
    return bool(pc.any(pc.match_substring_regex(column, _MARKS.pattern)).as_py())


_ENCODE = json.JSONEncoder(ensure_ascii=False, default=str).encode


class FeatureWriter(TableWriter):
    """A FeatureCollection of points; columns other than ``lat`` and ``lng`` become properties."""

    def __init__(
        self, sink: IO[bytes], schema: pa.Schema, document: Mapping[str, Any] | None
    ) -> None:
        self._sink = sink
        self._before = "\n"
        carried = "" if document is None else f'"geoveil":{canonical_bytes(document).decode()},\n'
        sink.write(f'{{"type":"FeatureCollection",\n{carried}"features":['.encode())

    def write(self, batch: pa.RecordBatch) -> None:
        features = ",\n".join(_features(batch))
        if features:
            self._sink.write((self._before + features).encode())
            self._before = ",\n"

    def finish(self) -> None:
        self._sink.write(b"\n]}\n")


def _features(batch: pa.RecordBatch) -> Iterator[str]:
    """Each row as the text of a feature; JSON of numbers is what ``repr`` gives."""
    names = [name for name in batch.schema.names if name not in ("lat", "lng")]
    columns = [_texts(_ENCODE(name), python_values(batch.column(name), name)) for name in names]
    lat, lng = batch.column("lat").to_pylist(), batch.column("lng").to_pylist()
    rows = map(",".join, zip(*columns, strict=True)) if columns else repeat("", len(lat))
    for north, east, properties in zip(lat, lng, rows, strict=True):
        yield (
            f'{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{east!r},{north!r}]}},'
            f'"properties":{{{properties}}}}}'
        )


def _texts(name: str, values: list[Any]) -> Iterator[str]:
    for value in values:
        if type(value) is int:
            yield f"{name}:{value}"
        else:
            yield f"{name}:{_ENCODE(_as_json(value))}"


def _as_json(value: Any) -> Any:
    """A value with null for what is no number, also inside lists and structures, and bytes as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        return [_as_json(part) for part in value]
    if isinstance(value, dict):
        return {name: _as_json(part) for name, part in value.items()}
    return value


# --- Small tables, column by column


def write_by(put: Callable[..., None], path: str, *content: Any, format: str | None = None) -> None:
    """A file by the ending of its name, whose bytes ``put(sink, kind, *content)`` writes."""
    kind = format_of(path, format, writing=True)
    with binary_sink(path) as sink:
        put(sink, kind, *content)


def put_table(
    sink: IO[bytes],
    kind: Format,
    columns: Mapping[str, Any],
    document: Mapping[str, Any] | None = None,
    shapes: Sequence[Any] | None = None,
) -> None:
    """Write arrays of numbers and lists of text; GeoJSON and Parquet keep the shape of each row.

    What is not known has no number: an empty field, or null. In GeoJSON a ``cell`` is the id of its feature.
    """
    import pyarrow as pa

    if kind is Format.GEOJSON:
        head = json.dumps(document, ensure_ascii=False, allow_nan=False)
        sink.write(f'{{"type":"FeatureCollection",\n"{DOCUMENT}":{head},\n"features":['.encode())
        before = "\n"
        for feature in _shaped(columns, shapes or ()):
            text = json.dumps(feature, ensure_ascii=False, allow_nan=False)
            sink.write(f"{before}{text}".encode())
            before = ",\n"
        sink.write(b"\n]}\n")
        return
    arrays, described = {}, {}
    for name, values in columns.items():
        valid = np.isfinite(values) if isinstance(values, np.ndarray) else None
        arrays[name] = arrow_texts(values) if valid is None else arrow_numbers(values, valid)
    if kind is Format.PARQUET and shapes is not None:
        arrays[GEOMETRY_COLUMN] = arrow_texts(
            [well_known_binary(shape) for shape in shapes], binary=True
        )
        described = {"geo": geoparquet_metadata(shapes)}
    batch = pa.RecordBatch.from_pydict(arrays, metadata=described or None)
    with table_into(sink, kind, batch.schema, document) as table:
        table.write(batch)


def _shaped(columns: Mapping[str, Any], shapes: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Each row as a feature."""
    lists = (
        [None if isinstance(value, float) and not math.isfinite(value) else value for value in some]
        for some in (np.asarray(column).tolist() for column in columns.values())
    )
    for shape, *row in zip(shapes, *lists, strict=True):
        properties = dict(zip(columns, row, strict=True))
        numbered = {"id": properties["cell"]} if "cell" in properties else {}
        yield {"type": "Feature", **numbered, "geometry": shape, "properties": properties}


GEOMETRY_COLUMN = "geometry"
_TYPES = {"Point": 1, "LineString": 2, "Polygon": 3, "MultiPolygon": 6}


def well_known_binary(geometry: Any) -> bytes:
    """A GeoJSON geometry as well-known binary, little-endian.

    >>> well_known_binary({"type": "Point", "coordinates": [4.8, 45.7]}).hex()[:18]
    '010100000033333333'
    """
    kind, coordinates = geometry["type"], geometry["coordinates"]
    head = struct.pack("<BI", 1, _TYPES[kind])
    if kind == "Point":
        return head + struct.pack("<2d", *coordinates)
    if kind == "LineString":
        return head + _ring(coordinates)
    if kind == "Polygon":
        return head + struct.pack("<I", len(coordinates)) + b"".join(map(_ring, coordinates))
    parts = ({"type": "Polygon", "coordinates": part} for part in coordinates)
    return head + struct.pack("<I", len(coordinates)) + b"".join(map(well_known_binary, parts))


def _ring(ring: Sequence[Sequence[float]]) -> bytes:
    flat = [value for position in ring for value in position]
    return struct.pack(f"<I{len(flat)}d", len(ring), *flat)


def geoparquet_metadata(geometries: Iterable[Any]) -> bytes:
    """The entry ``geo`` of a Parquet file whose column ``geometry`` holds these; degrees of WGS84."""
    types = sorted({geometry["type"] for geometry in geometries})
    column = {"encoding": "WKB", "geometry_types": types, "edges": "planar"}
    described = {
        "version": "1.1.0",
        "primary_column": GEOMETRY_COLUMN,
        "columns": {GEOMETRY_COLUMN: column},
    }
    return json.dumps(described).encode()
