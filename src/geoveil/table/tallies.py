"""Tallies in files: documents that hold only counts, and the counts of a file of noisy reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import IntArray
from geoveil.channel.base import Channel
from geoveil.channel.tally import Tally
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.report.canonical import canonical_bytes, strict_json
from geoveil.report.document import mechanism_from_dict, mechanism_to_dict
from geoveil.table.columns import numbers
from geoveil.table.locations import BadRows, LocationTable
from geoveil.table.reader import TableReader
from geoveil.table.source import Source, unpacking
from geoveil.table.writer import binary_sink

VERSION = 1
"""Of tally documents; a reader refuses any other."""

_LOOKED_AT = 1 << 16


def tally_to_dict(tally: Tally) -> dict[str, Any]:
    """The tally as plain JSON values: version, the mechanism's document, the counts of its reports.

    >>> import geoveil as gv
    >>> tally = gv.Tally(gv.RandomizedResponse(gv.Line(2), epsilon=1.0), [3, 4])
    >>> tally_to_dict(tally)["counts"]
    [3, 4]
    """
    document = mechanism_to_dict(tally.channel)
    return {"tally": VERSION, "mechanism": document, "counts": tally.counts.tolist()}


def tally_from_dict(values: object) -> Tally:
    """The tally that ``tally_to_dict`` described; a clear error for anything else."""
    if not isinstance(values, Mapping) or values.get("tally") != VERSION:
        raise InvalidFile(f'a tally document must say "tally": {VERSION}')
    mechanism = mechanism_from_dict(values.get("mechanism"))
    if not isinstance(mechanism, Channel):
        raise InvalidFile("a tally document must hold a mechanism on cells")
    return Tally(mechanism, _counts(values.get("counts")))


def _counts(listed: object) -> IntArray:
    """Whole numbers; JSON's true and 1.0 are not."""
    if not isinstance(listed, list) or not all(type(each) is int for each in listed):
        raise InvalidFile("the counts of a tally document must be a list of whole numbers")
    try:
        return np.array(listed, dtype=np.int64)
    except OverflowError:
        raise InvalidFile("the counts of a tally document must be below 2⁶³") from None


def save_tally(tally: Tally, path: str | Path) -> None:
    """Write the tally's document; ``-`` is standard output."""
    with binary_sink(str(path)) as sink:
        sink.write(canonical_bytes(tally_to_dict(tally)) + b"\n")


def load_tally(path: str) -> Tally:
    """Read a tally's document, plain or gzip; ``-`` is a pipe."""
    with Source(path) as source, unpacking(source.name):
        data = source.read()
    try:
        values = strict_json(data)
    except (ValueError, RecursionError):
        raise InvalidFile(
            f"{path} must be a JSON tally document in UTF-8 that names no entry twice"
        ) from None
    try:
        return tally_from_dict(values)
    except GeoveilError as problem:
        raise InvalidFile(f"{path}: {problem}") from None


def is_tally(path: str) -> bool:
    """Whether a file is a tally document, by its ending and its first bytes."""
    if not path.lower().removesuffix(".gz").endswith(".json"):
        return False
    with Source(path) as source, unpacking(source.name):
        head = source.head(_LOOKED_AT)
    return b'"features"' not in head and b'"FeatureCollection"' not in head


def count_reports(
    reader: TableReader,
    channel: Channel,
    *,
    lat: str | None = None,
    lng: str | None = None,
    bad_rows: BadRows = "raise",
    advance: Callable[[int], None] = lambda rows: None,
) -> Tally:
    """Count the noisy reports of a file: its column ``cell``, else its coordinates put in cells.

    Coordinates are those of reports, so a report outside the space belongs to the nearest cell.
    Cost: one pass, memory for one batch.
    """
    if channel.report_count != channel.space.size:
        raise Unsupported(f"reports of {channel!r} are not cells; use its tally method")
    named = "cell" in reader.columns and lat is None and lng is None
    batches = _named(reader, channel) if named else _located(reader, channel, lat, lng, bad_rows)
    counts = np.zeros(channel.report_count, dtype=np.int64)
    rows = 0
    for cells in batches:
        counts += np.bincount(cells, minlength=counts.size)
        rows += cells.size
        advance(rows)
    if not rows:
        raise InvalidFile(f"{reader.name} must have at least one report; it has none")
    return Tally(channel, counts)


def _named(reader: TableReader, channel: Channel) -> Iterator[IntArray]:
    """The cells of the column ``cell``; what is no cell is named by its row."""
    rows = 0
    for batch in reader.batches(["cell"]):
        cells = numbers(batch.column("cell"))
        wrong = ~((cells >= 0) & (cells < channel.report_count) & (cells == np.floor(cells)))
        if wrong.any():
            row = rows + int(np.flatnonzero(wrong)[0]) + 1
            raise InvalidFile(
                f"row {row} of {reader.name} must name a cell in 0 … {channel.report_count - 1}; "
                "was the file made by another mechanism?"
            )
        rows += cells.size
        yield cells.astype(np.int64)


def _located(
    reader: TableReader, channel: Channel, lat: str | None, lng: str | None, bad_rows: BadRows
) -> Iterator[npt.NDArray[np.int64]]:
    space: Any = channel.space
    if not hasattr(space, "centres_latlng"):
        raise InvalidInput(f"{reader.name} must have a column 'cell', since {space!r} has no map")
    for part in LocationTable(reader, lat=lat, lng=lng, bad_rows=bad_rows):
        yield np.atleast_1d(space.locate(lat=part.lat, lng=part.lng, outside="clamp"))
