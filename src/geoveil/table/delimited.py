"""Reading CSV: a header line, then rows, plain or gzip.

Every column stays text until a number is wanted, so that no row can change the meaning of another
and kept columns come out exactly as they went in. A document that the file carries stands in its
column ``geoveil``, in pieces one below the other.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from geoveil.errors import InvalidFile
from geoveil.table import reader
from geoveil.table.locations import REMEDY, list_columns

_LONGEST_HEADER = 1 << 16
_SECTION_BLOCKS = 8
_SAID = re.compile(r'"?sep=([,;|\t])"?\s*', re.IGNORECASE)
"""A first line that says what parts the fields, as spreadsheets write and read it."""
_PACKED = (b"BZh", b"PK\x03\x04", b"\xfd7zXZ", b"7z\xbc\xaf")
"""How files packed by bzip2, ZIP (spreadsheets too), xz and 7-Zip begin."""
_SEARCHED = 4
"""Blocks in which a document is looked for: somebody may have sorted the rows."""


class DelimitedReader(reader.TableReader):
    """A CSV file or pipe in UTF-8, with a header line."""

    def __init__(
        self, source: reader.Source, *, delimiter: str = ",", drop_bad: bool = False
    ) -> None:
        self._source = source
        self.name = source.name
        self._delimiter = delimiter
        self._drop_bad = drop_bad
        self._broken_row: int | None = None
        self._rows = 0
        self._fields = self._read_header()
        self._blocks: Iterator[tuple[int, bytes]] = reader.blocks_of_rows(
            source, self._line_end, delimiter=self._delimiter.encode()
        )
        self._document = self._carried() if self._fields.count(reader.DOCUMENT) == 1 else None
        carrier = () if self._document is None else (reader.DOCUMENT,)
        self.columns = [name for name in self._fields if name not in carrier]

    def batches(
        self, coordinates: Sequence[str], others: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        # Coordinates may hold anything and are looked at as bytes; the others must be text.
        types = dict.fromkeys(others, pa.string()) | dict.fromkeys(coordinates, pa.binary())
        kinds = {str(self._fields.index(name)): kind for name, kind in types.items()}
        try:
            with reader.unpacking(self.name):
                for start, block in self._blocks:
                    table = self._parse(block, kinds, self._broken).rename_columns(list(types))
                    self._rows += table.num_rows
                    self.number = start
                    yield from table.combine_chunks().to_batches()
        except reader.OpenQuote:
            row = self._rows + self.refused + 1
            raise InvalidFile(
                f"row {row} of {self.name} must close its quote; the rows after it cannot be told "
                "apart; close it, or write a quote inside quotes twice"
            ) from None
        except pa.ArrowInvalid:  # its message would repeat the row
            if self._broken_row is None:
                raise InvalidFile(
                    f"{self.name} must be CSV text in UTF-8; some row cannot be read as such"
                ) from None
            raise InvalidFile(
                f"row {self._broken_row} of {self.name} must have {len(self._fields)} fields, "
                f"as the header has; {REMEDY}"
            ) from None

    def sections(self) -> Iterator[reader.Section]:
        if self._source.packed or reader.is_pipe(self._source.path):
            return
        bounds: list[int] = []
        for start, block in self._blocks:
            if len(bounds) == _SECTION_BLOCKS:
                yield (*bounds, start)
                bounds = []
            bounds.append(start)
            end = start + len(block)
        if bounds:
            yield (*bounds, end)

    def narrow(self, section: reader.Section) -> None:
        def blocks() -> Iterator[tuple[int, bytes]]:
            with Path(self._source.path).open("rb") as file:
                for start, stop in pairwise(section):
                    file.seek(self._header_bytes + start)
                    yield start, file.read(stop - start)

        self._blocks = blocks()

    def _carried(self) -> dict[str, Any] | None:
        """The document of the column ``geoveil``: its pieces, as far as the first rows have them."""
        place = str(self._fields.index(reader.DOCUMENT))
        pieces: list[bytes] = []
        blocks: list[tuple[int, bytes]] = []
        for start, block in self._blocks:
            blocks.append((start, block))
            values = self._parse(block, {place: pa.binary()}, lambda row: "skip")[place].to_pylist()
            pieces += filter(None, values)
            if not (values and values[-1]) and (pieces or len(blocks) == _SEARCHED):
                break
        self._blocks = iter(chain(blocks, self._blocks))
        return reader.read_document(b"".join(pieces), self.name) if pieces else None

    def _parse(
        self,
        block: bytes,
        types: dict[str, pa.DataType],
        broken: Callable[[arrow_csv.InvalidRow], str],
    ) -> pa.Table:
        """The rows of a block. Columns go by their position: names may occur twice."""
        return arrow_csv.read_csv(
            pa.BufferReader(block),
            read_options=arrow_csv.ReadOptions(
                use_threads=False,  # so that the number of a broken row is known
                block_size=len(block) + 1,
                column_names=[str(position) for position in range(len(self._fields))],
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=broken
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(types), column_types=types, strings_can_be_null=False
            ),
        )

    def _broken(self, row: arrow_csv.InvalidRow) -> str:
        """Skip and count a row with the wrong number of fields, or note which one it was."""
        if self._drop_bad:
            self.refused += 1
            return "skip"
        if self._broken_row is None and row.number is not None:
            self._broken_row = self._rows + row.number
        return "error"

    def _read_header(self) -> list[str]:
        """Take the header from the source: the names of the columns."""
        head = self._source.head(_LONGEST_HEADER)
        if head[:4] == b"PAR1":
            raise InvalidFile(f"{self.name} is a Parquet file; name it so that it ends in .parquet")
        if head.startswith(_PACKED):
            raise InvalidFile(
                f"{self.name} is packed, or a spreadsheet; unpack it, or save the spreadsheet as CSV"
            )
        first = head.split(b"\n", 1)[0]
        try:
            if b"\0" in first:
                raise ValueError("binary")
            first.decode("utf-8-sig")
        except ValueError:  # includes UnicodeDecodeError
            raise InvalidFile(
                f"{self.name} must be CSV text in UTF-8; save it again as that"
            ) from None
        # Up to the last whole line; what comes after the header is looked at later.
        cut = max(head.rfind(b"\n"), head.rfind(b"\r")) + 1
        whole = head[:cut] if cut and len(head) >= _LONGEST_HEADER else head
        text = io.StringIO(whole.decode("utf-8-sig", errors="replace"), newline="")
        if said := _SAID.fullmatch(text.readline()):
            self._delimiter = said[1]
        else:
            text.seek(0)
        lines = csv.reader(text, delimiter=self._delimiter)
        fields = next((fields for fields in lines if any(fields)), None)
        if fields is None:
            raise InvalidFile(
                f"{self.name} must have a header line with the names of its columns; it is empty"
            )
        columns = [field.strip() for field in fields]
        check_delimiter(columns, self._delimiter, self.name)
        self._line_end = b"\n" if b"\n" in head else b"\r"
        before = lines.line_num + (said is not None)
        self._header_bytes = sum(map(len, head.splitlines(keepends=True)[:before]))
        self._source.read(self._header_bytes)
        return columns


def check_delimiter(columns: Sequence[str], delimiter: str, name: str) -> None:
    """Refuse a header that was not parted, where it shows which mark would have parted it."""
    others = [mark for mark in ";\t|," if mark in columns[0] and mark != delimiter]
    if len(columns) == 1 and others:
        # in the quotes that a shell needs
        mark = "tab" if others[0] == "\t" else repr(others[0])
        raise InvalidFile(
            f"{name} seems to part its fields by {others[0]!r}, not {delimiter!r}; "
            f"give --delimiter {mark}: {list_columns(columns)}"
        )
