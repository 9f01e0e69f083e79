"""Reading GPX: the points of tracks and routes and the waypoints, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from geoveil.errors import InvalidFile
from geoveil.table.reader import BATCH_ROWS, BLOCK, Source, TableReader, unpacking

if TYPE_CHECKING:
    import pyarrow as pa

_POINTS = {"wpt": "waypoint", "rtept": "route", "trkpt": "track"}
_LONGEST_TIME = 64

Row = dict[str, str | None]


class TrackPointReader(TableReader):
    """A GPX file: columns ``lat``, ``lng``, ``time`` (as written) and ``kind`` of every point in it.

    Cost: one pass; memory for one batch. Declarations of a document type are refused: entities in them can
    grow without end.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.columns = ["lat", "lng", "time", "kind"]
        self._rows: list[Row] = []
        self._root: str | None = None
        self._open: Row | None = None
        self._time: list[str] | None = None

    def batches(
        self, coordinates: Sequence[str], kept: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = list(dict.fromkeys([*coordinates, *kept]))
        with unpacking(self.name):
            for rows in self._pieces():
                arrays = [
                    pa.array([row[name] for row in rows], type=pa.string()) for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=columns)
                self.number += 1

    def _pieces(self) -> Iterator[list[Row]]:
        parser: Any = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._refuse
        try:
            while block := self._source.read(BLOCK):
                parser.Parse(block, False)
                while len(self._rows) >= BATCH_ROWS:
                    piece, self._rows = self._rows[:BATCH_ROWS], self._rows[BATCH_ROWS:]
                    yield piece
            parser.Parse(b"", True)
        except expat.ExpatError as error:  # its own message could repeat what stands in the file
            raise InvalidFile(
                f"{self.name} must be a whole GPX file; it breaks off or is no XML at line {error.lineno}"
            ) from None
        if self._rows:
            yield self._rows

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition(" ")[2]
        if self._root is None:
            self._root = tag
            if tag != "gpx":
                raise InvalidFile(f"{self.name} must be a GPX file; it is other XML")
        if tag in _POINTS:
            place = attributes.get("lat"), attributes.get("lon")
            self._open = {"lat": place[0], "lng": place[1], "time": None, "kind": _POINTS[tag]}
        elif tag == "time" and self._open is not None:
            self._time = []

    def _text(self, text: str) -> None:
        if self._time is not None and len(self._time) < _LONGEST_TIME:
            self._time.append(text[:_LONGEST_TIME])

    def _end(self, name: str) -> None:
        tag = name.rpartition(" ")[2]
        if tag == "time" and self._open is not None and self._time is not None:
            self._open["time"] = "".join(self._time).strip() or None
            self._time = None
        elif tag in _POINTS and self._open is not None:
            self._rows.append(self._open)
            self._open = None

    def _refuse(self, *declared: object) -> None:
        raise InvalidFile(f"{self.name} must not declare a document type; take <!DOCTYPE> out")
