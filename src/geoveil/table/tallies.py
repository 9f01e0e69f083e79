"""Tallies in files, and counting the reports of a file into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from geoveil.arrays import IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.document.canonical import canonical_bytes, strict_json
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, Unsupported
from geoveil.space import MapSpace, OutsideCount
from geoveil.table import writer
from geoveil.table.locations import Reading, cell_numbers, numbers
from geoveil.table.reader import PIPE, Source, TableReader, unpacked_name, unpacking
from geoveil.table.report_places import ReportPlaces, rim_reports

VERSION = 1
"""Of tally documents; a reader refuses any other."""

_LOOKED_AT = 1 << 16
_Made = TypeVar("_Made")


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
    if isinstance(values, Mapping) and "trip_tally" in values:
        raise InvalidFile("the tally counts trips, not places; give it to geoveil flows")
    if not isinstance(values, Mapping) or values.get("tally") != VERSION:
        raise InvalidFile(f'a tally document must say "tally": {VERSION}')
    mechanism, counts = mechanism_from_dict(values.get("mechanism")), values.get("counts")
    if not isinstance(mechanism, Channel):
        raise InvalidFile("a tally document must hold a mechanism on cells")
    if not isinstance(counts, list) or not all(
        type(each) is int for each in counts
    ):  # no true, no 1.0
        raise InvalidFile("the counts of a tally document must be a list of whole numbers")
    try:
        return Tally(mechanism, np.array(counts, dtype=np.int64))
    except OverflowError:
        raise InvalidFile("the counts of a tally document must be below 2⁶³") from None


def save_tally(tally: Tally, path: str | Path) -> None:
    """Write the tally's document; ``-`` is standard output."""
    write_document(tally_to_dict(tally), path)


def load_tally(path: str | Source) -> Tally:
    """Read a tally's document, plain or gzip; ``-`` is a pipe."""
    return read_document(path, tally_from_dict)


def write_document(values: dict[str, Any], path: str | Path) -> None:
    """Write a tally's values as one line of JSON."""
    with writer.binary_sink(str(path)) as sink:
        sink.write(canonical_bytes(values) + b"\n")


def read_document(path: str | Source, made: Callable[[object], _Made]) -> _Made:
    """What is made of the values of a tally document; whatever is wrong with them names the file."""
    values, name = document_of(path)
    try:
        return made(values)
    except GeoveilError as problem:
        raise InvalidFile(f"{name}: {problem}") from None


def document_of(path: str | Source) -> tuple[object, str]:
    """The values of a tally document, plain or gzip, and the name of the file."""
    with Source.of(path) as source, unpacking(source.name):
        data = source.read()
    try:
        return strict_json(data), source.name
    except (ValueError, RecursionError):
        raise InvalidFile(
            f"{source.name} must be a JSON tally document in UTF-8 that names no entry twice"
        ) from None


def is_tally(path: str | Source) -> bool:
    """Whether a file is a tally document, by its ending and its first bytes; an open pipe by these."""
    if isinstance(path, str):
        if not unpacked_name(path).endswith(".json"):
            return False
        with Source(path) as source:
            return is_tally(source)
    with unpacking(path.name):
        head = path.head(_LOOKED_AT)
    features = b'"features"' in head or b'"FeatureCollection"' in head
    return not features and (path.path != PIPE or head.lstrip()[:1] == b"{")


def count_reports(
    reader: TableReader,
    channel: Channel,
    reading: Reading,
    *,
    advance: Callable[[int], None] = lambda rows: None,
) -> tuple[Tally, OutsideCount]:
    """Count the noisy reports of a file: its column ``cell``, else its coordinates put in cells.

    Coordinates are those of reports, so a report outside of all that the channel may report belongs to
    the nearest of it; such reports are counted, and a file all of whose reports are is refused.
    Cost: one pass, memory for one batch.
    """
    if rim_reports(channel) is None:
        raise Unsupported(f"reports of {channel!r} are not cells; use its tally method")
    outside = OutsideCount("clamp")
    counts = np.zeros(channel.report_count, dtype=np.int64)
    rows = 0
    for cells in _reported(reader, channel, reading, outside):
        counts += np.bincount(cells, minlength=counts.size)
        rows += cells.size
        advance(rows)
    if not rows:
        raise InvalidFile(f"{reader.name} must have at least one report; it has none")
    return Tally(channel, counts), outside


def _reported(
    reader: TableReader, channel: Channel, reading: Reading, outside: OutsideCount
) -> Iterator[IntArray]:
    """The reports of a file, batch by batch."""
    space = channel.space
    if "cell" in reader.columns and reading.lat is None and reading.lng is None:
        rows, why = 0, "; was the file made by another mechanism?"
        if channel.report_count > space.size:
            why = f", of which {space.size} and up lie beside the map{why}"
        for batch in reader.batches(["cell"]):
            named = numbers(batch.column("cell"))
            yield cell_numbers(named, channel.report_count, reader.name, why, rows)
            rows += named.size
        return
    if not isinstance(space, MapSpace):
        raise InvalidInput(f"{reader.name} must have a column 'cell', since {space!r} has no map")
    locations, places = reading.locations(reader), ReportPlaces(channel)
    for part in locations:
        yield outside.locate(places, part.lat, part.lng)[0]
    if outside.places:
        locations.check(outside)
