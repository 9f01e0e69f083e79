"""Opening a table by its name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from geoveil.errors import InvalidFile, InvalidInput
from geoveil.report.canonical import strict_json
from geoveil.table.format import DOCUMENT, PIPE, Format, format_of

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 17
"""Rows of a batch where the format leaves the choice."""


GEOMETRY = ("latitude of the geometry", "longitude of the geometry")
"""The coordinate columns of formats that hold points."""


class TableReader(ABC):
    """A table read once from front to back, in batches of rows.

    ``columns`` are its names; ``coordinates`` the columns that are latitude and longitude by the
    format itself (GeoJSON, GeoParquet), else ``None``; ``geometries`` the columns that hold
    geometry, which are true places whether or not the coordinates come from them; ``refused`` counts
    the rows that could not be taken apart, where they are to be dropped.
    """

    name: str
    columns: list[str]
    coordinates: tuple[str, str] | None = None
    geometries: Sequence[str] = ()
    refused: int = 0
    _document: dict[str, Any] | None = None

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The document that the table carries, else ``None``."""
        return self._document

    @abstractmethod
    def batches(
        self, coordinates: Sequence[str], kept: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows in order, with these columns only: numbers or text, then whatever is kept."""

    def shape_of(self, row: int) -> str | None:
        """What the geometry in a row of the last batch is, where it is known and no point."""
        return None

    @property
    @abstractmethod
    def fraction(self) -> float | None:
        """The share already read, in [0, 1]; ``None`` where it cannot be known."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file."""

    def __enter__(self) -> TableReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_table(
    path: str, *, format: str | None = None, delimiter: str = ",", drop_bad: bool = False
) -> TableReader:
    """Open a table of locations for reading, by the ending of its name.

    Cost: one pass; memory for one batch (about 130,000 rows), whatever the size of the file.
    ``format`` is for pipes (``-``) and names without a known ending. ``drop_bad`` leaves out CSV
    rows with too few or too many fields, and counts them.
    """
    kind = format_of(path, format)
    if kind is Format.CSV:
        from geoveil.table.delimited import DelimitedReader

        return DelimitedReader(path, delimiter=delimiter, drop_bad=drop_bad)
    if kind is Format.GEOJSON:
        from geoveil.table.geojson import GeoJSONReader

        return GeoJSONReader(path)
    if path == PIPE:
        raise InvalidInput("Parquet input must be a file, not a pipe; its index stands at the end")
    from geoveil.table.parquet import ParquetReader

    return ParquetReader(path)


def read_document(stored: bytes, name: str) -> dict[str, Any] | None:
    """The document that a table carries as JSON; ``None`` where it is something else's entry."""
    if not stored.startswith(b"{"):
        return None
    try:
        document = strict_json(stored)
    except (ValueError, RecursionError):
        raise InvalidFile(
            f"{name} carries a document that is not JSON in UTF-8, or names an entry twice; restore it, "
            f"or take {DOCUMENT!r} out"
        ) from None
    return document if isinstance(document, dict) else None
