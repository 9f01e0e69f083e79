"""Reading tables: formats by ending, sources, rows in batches."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast

from geoveil.document.canonical import file_json
from geoveil.errors import InvalidFile, InvalidInput, require
from geoveil.files import PIPE, file_name, standard_input

if TYPE_CHECKING:
    import pyarrow as pa

DOCUMENT = "geoveil"
"""Where a table carries what it says about itself (the mechanism of its reports, the space of its
cells): a member of GeoJSON, a key of Parquet's metadata, a column of CSV."""

_PACKED = (".gz", ".zst")


class Format(Enum):
    """How a table of locations is written down."""

    CSV = "csv"
    PARQUET = "parquet"
    GEOJSON = "geojson"
    GPX = "gpx"
    GPKG = "gpkg"

    @property
    def seekable(self) -> bool:
        """Whether a file is gone through by its index, which neither a pipe nor packed bytes have."""
        return self in (Format.PARQUET, Format.GPKG)


READ_ONLY = (Format.GPX, Format.GPKG)
"""Formats that are read and not written."""
_ENDINGS = {f".{kind.value}": kind for kind in Format} | {".json": Format.GEOJSON}
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_ARCHIVES = (".zip", ".bz2", ".xz", ".7z", ".tar", ".tgz", ".rar")


def format_of(
    path: str, stated: str | None = None, *, writing: bool = False, folder: bool = False
) -> Format:
    """The format of a file by its ending; of a pipe the one given, or CSV. All of them need pyarrow.

    ``folder`` is for an engine that reads the files of a folder as one table.

    >>> format_of("checkins.csv.gz"), format_of("noisy.parquet"), format_of("-")
    (<Format.CSV: 'csv'>, <Format.PARQUET: 'parquet'>, <Format.CSV: 'csv'>)
    """
    require("pyarrow", "cli", "reading and writing tables")
    if path == PIPE:
        return Format(stated or "csv")
    if path and not (writing or folder) and Path(path).is_dir():
        raise InvalidInput(f"{path} must be a file; it is a folder: name a file in it")
    name = unpacked_name(path)
    ending = PurePath(name).suffix
    if ending not in _ENDINGS and (stated is not None or (path and is_pipe(path))):
        return Format(stated or "csv")
    kind = _ENDINGS.get(ending)
    wrong = kind is None or (kind.seekable and name != path.lower())
    if kind is None or wrong or (writing and kind in READ_ONLY):
        more = "" if writing else ", .gpx, .gpkg"
        if ending in _SPREADSHEETS and not writing:
            raise InvalidInput(
                f"file ({path}) must be a table as text; save the spreadsheet as CSV"
            )
        if ending in _ARCHIVES and not writing:
            raise InvalidInput(f"file ({path}) must be unpacked, or packed by gzip; unpack it")
        raise InvalidInput(
            f"file ({path}) must end in .csv, .parquet, .geojson, .json{more}, or in one of these but "
            f".parquet{'' if writing else ' and .gpkg'} with .gz or .zst behind it; --format says what a "
            "file with another ending is"
        )
    return kind


def is_pipe(path: str) -> bool:
    """Whether what has this name can be read once only: standard input, or a pipe with a name."""
    return path == PIPE or Path(path).is_fifo()


def unpacked_name(path: str) -> str:
    """The name of a file in small letters, without the ending that says how it is packed."""
    name = path.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    return name


class Source:
    """The bytes of a table, read once from front to back.

    Bytes can be looked at before they are read (``head``); gzip and zstd are recognised by their first
    bytes, whatever the name of the file. ``fraction`` is the share of the file already read, for progress.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = file_name(path)
        self.name = "standard input" if self.path == PIPE else self.path
        raw = standard_input() if self.path == PIPE else Path(path).open("rb")  # noqa: SIM115 (see close)
        self._raw = cast(io.BufferedReader, raw)
        try:  # the length of a regular file; ``None`` where there is no knowing it
            size = os.fstat(raw.fileno()).st_size
            self._size = size if size > 0 and self._raw.seekable() else None
        except (OSError, ValueError):
            self._size = None
        self._head = b""
        self._bytes: Any = self._raw
        self._ended = self.packed = False
        """Whether the bytes are unpacked on the way, so that no place in the file can be gone to."""
        if self.head(2) == b"\x1f\x8b":  # gzip
            self._unpack(gzip.GzipFile(fileobj=_Chained(self._head, self._raw)))
        elif self.head(4) == b"\x28\xb5\x2f\xfd":  # zstd
            require("pyarrow", "cli", "unpacking zstd")
            import pyarrow as pa

            behind = pa.PythonFile(_Chained(self._head, self._raw), mode="r")
            self._unpack(pa.CompressedInputStream(behind, "zstd"))

    def _unpack(self, unpacked: Any) -> None:
        self._bytes, self._head, self._ended, self.packed = unpacked, b"", False, True

    @classmethod
    def of(cls, path: str | Path | Source) -> Source:
        """The source of a name; one that is open already stays as it is."""
        return path if isinstance(path, Source) else cls(path)

    @property
    def fraction(self) -> float | None:
        """The share of the file already read, in [0, 1]; ``None`` for a pipe."""
        return min(1.0, self._raw.tell() / self._size) if self._size else None

    def head(self, size: int) -> bytes:
        """The next ``size`` bytes (fewer at the end) without consuming them."""
        while len(self._head) < size and not self._ended:
            piece = self._bytes.read1(size - len(self._head))
            self._ended = not piece
            self._head += piece
        return self._head[:size]

    def read(self, size: int = -1) -> bytes:
        """The next ``size`` bytes, fewer only at the end; or all that is left.

        One system call at a time, so that an interrupt is noticed between any two of them.
        """
        if size < 0:
            return self.read(len(self._head)) + self._bytes.read()
        head = self._head[:size]
        self._head = self._head[len(head) :]
        pieces, missing = [head], size - len(head)
        while missing and (piece := self._bytes.read1(missing)):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        if self.path != PIPE:
            self._raw.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class _Chained(io.RawIOBase):
    """Bytes already taken from a stream, then the rest of it."""

    def __init__(self, head: bytes, rest: io.BufferedReader) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._head:
            return self._rest.read(size)
        head = self._head if size < 0 else self._head[:size]
        self._head = self._head[len(head) :]
        return head + (self._rest.read() if size < 0 else b"")


@contextmanager
def unpacking(name: str) -> Iterator[None]:
    """Turn the ways in which unpacking fails into one clear line."""
    try:
        yield
    except (EOFError, zlib.error, OSError) as error:
        if getattr(error, "errno", None) is not None or isinstance(error, BrokenPipeError):
            raise
        raise InvalidFile(
            f"{name} must be a whole gzip or zstd file; it is cut off or damaged"
        ) from None


# --- Whole rows of CSV out of a stream of bytes, a block at a time

BLOCK = 1 << 22
_LONGEST_ROW = 1 << 26


class OpenQuote(InvalidFile):
    """A quote is left open, so that the rows after it cannot be told apart."""


def blocks_of_rows(
    source: Source, line_end: bytes, *, delimiter: bytes = b",", size: int = BLOCK
) -> Iterator[tuple[int, bytes]]:
    """Blocks of about ``size`` bytes that each begin and end with a row; blank ones are left out.

    Before each stands where it begins, in bytes from where the source stood at first.
    A line end inside quotes does not end a row. A quote opens a field only where it is the first
    character of that field; inside, a quote is written twice. ``OpenQuote`` is raised after the last
    row before one that leaves its quote open.
    Cost: one pass, about 0.5 µs a row where there are quotes; memory for two blocks.
    """
    rest, start = b"", 0
    while piece := source.read(size):
        data = rest + piece
        cut = last_row_end(data, line_end, delimiter)
        if not cut and len(data) > _LONGEST_ROW:
            raise InvalidFile(f"{source.name} must have rows below 64 MB; is a quote left open?")
        if data[:cut].strip():
            yield start, data[:cut]
        rest, start = data[cut:], start + cut
    if last_row_end(rest + line_end, line_end, delimiter) == 0:
        raise OpenQuote(f"{source.name} must close every quote; one is left open")
    if rest.strip():
        yield start, rest


def last_row_end(data: bytes, line_end: bytes, delimiter: bytes = b",") -> int:
    r"""Where the last whole row ends; 0 where there is none. The data begin with a row.

    >>> last_row_end(b'1,2\n"a\nb",3\n4,', b"\n")
    12
    >>> last_row_end(b'5" pipe\n6,"a\n', b"\n")
    8
    """
    if b'"' not in data:
        return data.rfind(line_end) + len(line_end)
    match = _rows(line_end, delimiter).match(data)
    return match.end() if match else 0


@cache
def _rows(line_end: bytes, delimiter: bytes) -> re.Pattern[bytes]:
    """As many whole rows as there are; a lone other line end parts fields like a delimiter.

    Text after a closing quote belongs to its field on one line. Over several lines it shows that the
    quote was left open and has met a later one: such a row is never whole.
    """
    parts = b"".join(mark for mark in (re.escape(delimiter), b"\r", b"\n") if mark != line_end)
    text = rb"[^" + parts + line_end + rb"]*+"
    short = rb'"[^"\r\n]*+(?:""[^"\r\n]*+)*+"' + text
    long = rb'"[^"]*+(?:""[^"]*+)*+"(?=[' + parts + line_end + rb"])"
    field = rb"(?:" + short + rb"|" + long + rb'|(?!")' + text + rb")"
    return re.compile(
        rb"(?:" + field + rb"(?:[" + parts + rb"]" + field + rb")*+" + line_end + rb")*+"
    )


# --- Opening a table by its name

BATCH_ROWS = 1 << 17
"""Rows of a batch where the format leaves the choice."""

SHAPES = (
    "LineString", "Polygon", "MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection"
)  # fmt: skip
"""What geometry may be that is no point; of well-known binary, from 2 on."""

GEOMETRY = ("latitude of the geometry", "longitude of the geometry")
"""The coordinate columns of formats that hold points."""

Section = tuple[int, ...]
"""Rows of a table that can be read by themselves: the bytes at which blocks of text begin and the last
one ends, or the first of some row groups of Parquet and the one after the last."""


class TableReader(ABC):
    """A table read once from front to back, in batches of rows.

    ``columns`` are its names; ``coordinates`` the columns that are latitude and longitude by the
    format itself (GeoJSON, GeoParquet), else ``None``; ``geometries`` the columns that hold
    geometry, which are true places whether or not the coordinates come from them; ``refused`` counts
    the rows that could not be taken apart, where they are to be dropped. ``number`` belongs to the last
    batch and to no other of the table, whoever reads it and whichever section of it.
    """

    name: str
    columns: list[str]
    coordinates: tuple[str, str] | None = None
    geometries: Sequence[str] = ()
    refused: int = 0
    number: int = 0
    _document: dict[str, Any] | None = None
    _source: Source

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The document that the table carries, else ``None``."""
        return self._document

    @abstractmethod
    def batches(
        self, coordinates: Sequence[str], others: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows in order, with these columns only: numbers or text, then the others."""

    def sections(self) -> Iterator[Section]:
        """The whole table in sections, in order; none where its format cannot be cut."""
        return iter(())

    def narrow(self, section: Section) -> None:
        """Read this section and nothing else."""
        raise NotImplementedError

    def shape_of(self, row: int) -> str | None:
        """What the geometry in a row of the last batch is, where it is known and no point."""
        return None

    @property
    def fraction(self) -> float | None:
        """The share already read, in [0, 1]; ``None`` where it cannot be known."""
        return self._source.fraction

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


def open_table(
    path: str | Source, *, format: str | None = None, delimiter: str = ",", drop_bad: bool = False
) -> TableReader:
    """Open a table of locations for reading, by the ending of its name.

    Cost: one pass; memory for one batch (about 130,000 rows), whatever the size of the file.
    ``format`` is for pipes (``-``) and names without a known ending. ``drop_bad`` leaves out CSV
    rows with too few or too many fields, and counts them. A source that was opened already, to look at
    its head, is read on.
    """
    name = path.path if isinstance(path, Source) else path
    kind = format_of(name, format)
    if kind.seekable and is_pipe(name):
        title = {Format.PARQUET: "Parquet", Format.GPKG: "GeoPackage"}[kind]
        raise InvalidInput(f"{title} input must be a file, not a pipe; it is read by its index")
    if kind.seekable:
        from geoveil.table.indexed import GeoPackageReader, ParquetReader

        return ParquetReader(name) if kind is Format.PARQUET else GeoPackageReader(name)
    from geoveil.table.delimited import DelimitedReader
    from geoveil.table.streamed import GeoJSONReader, TrackPointReader

    source = Source.of(path)
    try:
        with unpacking(source.name):
            if kind is Format.GEOJSON:
                return GeoJSONReader(source)
            if kind is Format.GPX:
                return TrackPointReader(source)
            return DelimitedReader(source, delimiter=delimiter, drop_bad=drop_bad)
    except BaseException:
        source.close()
        raise


def read_document(stored: bytes, name: str) -> dict[str, Any] | None:
    """The document that a table carries as JSON; ``None`` where it is something else's entry."""
    if not stored.startswith(b"{"):
        return None
    document = file_json(
        stored,
        f"{name} carries a document that is not JSON in UTF-8, or names an entry twice; restore it, or take "
        f"{DOCUMENT!r} out",
    )
    return document if isinstance(document, dict) else None
