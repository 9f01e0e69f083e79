"""Whole rows of CSV out of a stream of bytes, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator

from geoveil.errors import InvalidFile
from geoveil.table.source import Source

BLOCK = 1 << 22
_LONGEST_ROW = 1 << 26


def blocks_of_rows(source: Source, line_end: bytes, *, size: int = BLOCK) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes that each begin and end with a row; blank ones are left out.

    A line end inside quotes does not end a row: a row ends where the quotes before it are even
    (a quote inside quotes is written twice). Cost: one pass; memory for two blocks.
    """
    rest = b""
    while piece := source.read(size):
        data = rest + piece
        cut = last_row_end(data, line_end)
        if not cut and len(data) > _LONGEST_ROW:
            raise InvalidFile(f"{source.name} must have rows below 64 MB; is a quote left open?")
        if data[:cut].strip():
            yield data[:cut]
        rest = data[cut:]
    if rest.strip():
        yield rest


def last_row_end(data: bytes, line_end: bytes) -> int:
    r"""Where the last whole row ends; 0 where there is none. The data begin with a row.

    >>> last_row_end(b'1,2\n"a\nb",3\n4,', b"\n")
    12
    """
    odd = data.count(b'"') % 2
    end, place = len(data), data.rfind(line_end)
    while place >= 0:
        odd ^= data.count(b'"', place, end) % 2
        if not odd:
            return place + len(line_end)
        end, place = place, data.rfind(line_end, 0, place)
    return 0
