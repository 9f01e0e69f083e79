"""Tallies of places and of trips as documents in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from geoveil.arrays import IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.document.canonical import canonical_bytes, file_json
from geoveil.document.saved import mechanism_from_dict, mechanism_to_dict
from geoveil.errors import GeoveilError, InvalidFile, Unsupported
from geoveil.files import file_name
from geoveil.table import writer
from geoveil.table.reader import Source, is_pipe, unpacked_name, unpacking
from geoveil.trips.pairs import TripTally

VERSION = 1
"""Of tally documents; a reader refuses any other."""
_LISTS = {"tally": ("counts",), "trip_tally": ("origins", "destinations", "counts")}
"""What a document of each kind holds, beside the mechanism."""
_KINDS = {"tally": "a tally document", "trip_tally": "a tally of trips"}
_WRITTEN = {"tally": "geoveil tally", "trip_tally": "geoveil tally --trips"}
_INSTEAD = {
    "tally": "the tally counts trips, not places; give it to geoveil flows",
    "trip_tally": "the tally counts places, not trips; give it to geoveil estimate",
}
"""For a document of the other kind."""

_LOOKED_AT = 1 << 16
_Made = TypeVar("_Made")


def tally_to_dict(tally: Tally | TripTally) -> dict[str, Any]:
    """The tally as plain JSON values: version, the mechanism's document, the counts of its reports.

    Of trips each pair that was seen, with its count.

    >>> import geoveil as gv
    >>> tally = gv.Tally(gv.RandomizedResponse(gv.Line(2), epsilon=1.0), [3, 4])
    >>> tally_to_dict(tally)["counts"]
    [3, 4]
    """
    if isinstance(tally, Tally) and not tally.complete:
        raise Unsupported(
            f"{type(tally).__name__} has no document form: it counts what was seen, not every report; "
            "pickle it"
        )
    kind, arrays = "tally", [tally.counts]
    if isinstance(tally, TripTally):
        kind, arrays = "trip_tally", [*tally.pairs.T, tally.counts]
    lists = zip(_LISTS[kind], (array.tolist() for array in arrays), strict=True)
    return {kind: VERSION, "mechanism": mechanism_to_dict(tally.channel), **dict(lists)}


def save_tally(tally: Tally | TripTally, path: str | Path) -> None:
    """Write the tally's document as one line of JSON; ``-`` is standard output."""
    document = canonical_bytes(tally_to_dict(tally)) + b"\n"
    with writer.binary_sink(file_name(path)) as sink:
        sink.write(document)


def load_tally(path: str | Path | Source) -> Tally:
    """Read a tally's document, plain or gzip; ``-`` is a pipe."""
    return _loaded(path, "tally", Tally)


def load_trip_tally(path: str | Path | Source) -> TripTally:
    """The same of a tally of trips."""
    return _loaded(path, "trip_tally", TripTally)


def _loaded(path: str | Path | Source, kind: str, make: Callable[..., _Made]) -> _Made:
    """What is made of a document; whatever is wrong with it names the file."""
    with Source.of(path) as source, unpacking(source.name):
        data = source.read()
    words = f"{source.name} must be a JSON tally document in UTF-8 that names no entry twice"
    values = file_json(data, words)
    try:
        return make(*_checked(values, kind))
    except GeoveilError as problem:
        raise InvalidFile(f"{source.name}: {problem}") from None


def _checked(values: object, kind: str) -> tuple[Channel | IntArray, ...]:
    """The mechanism and the numbers of a document of this kind; a clear error for anything else."""
    what, names = _KINDS[kind], _LISTS[kind]
    if isinstance(values, Mapping) and any(other in values for other in _KINDS if other != kind):
        raise InvalidFile(_INSTEAD[kind])
    if not isinstance(values, Mapping) or values.get(kind) != VERSION:
        raise InvalidFile(f'{what} must say "{kind}": {VERSION}; {_WRITTEN[kind]} writes one')
    mechanism = mechanism_from_dict(values.get("mechanism"))
    if not isinstance(mechanism, Channel):
        raise InvalidFile(f"{what} must hold a mechanism on cells")
    lists = [values.get(name) for name in names]
    sound = all(
        isinstance(part, list) and set(map(type, part)) <= {int}  # no true, no 1.0
        for part in lists
    )
    if not sound or len({len(part) for part in lists if part is not None}) != 1:
        length = " of one length" if len(names) > 1 else ""
        raise InvalidFile(f"{what} must hold {', '.join(names)}: lists of whole numbers{length}")
    try:
        return mechanism, *(np.array(part, dtype=np.int64) for part in lists)
    except OverflowError:
        raise InvalidFile(f"the numbers of {what} must be below 2⁶³") from None


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
    return not features and (not is_pipe(path.path) or head.lstrip()[:1] == b"{")
