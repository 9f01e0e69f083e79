"""Reading GeoJSON and GPX point by point, from front to back: the whole file is never in memory."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import numpy as np

from geoveil.document.canonical import named_once
from geoveil.errors import InvalidFile
from geoveil.space.projection import check_degrees
from geoveil.table import reader
from geoveil.table.columns import arrow_numbers, arrow_texts
from geoveil.table.reader import Source, TableReader, unpacking

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = 1 << 15
_PIECE = 1 << 18
_LONGEST_VALUE = 1 << 26
_SPACE: Any = re.compile(r"[ \t\r\n]*+")
_AFTER_VALUE = frozenset(" \t\r\n,:]}")
_NUMBERS = (float, int)
_DECODER = json.JSONDecoder()
_ONCE = json.JSONDecoder(object_pairs_hook=named_once)  # for our documents, not for every feature
_AREAS = ("Polygon", "MultiPolygon")


class GeoJSONReader(TableReader):
    """A FeatureCollection of points. Properties are columns; coordinates are the geometry's own."""

    coordinates = reader.GEOMETRY

    def __init__(self, source: Source) -> None:
        self._batch: list[Any] = []
        self._source = source
        self.name = source.name
        self._scanner = FeatureScanner(source, self.name)
        self._features = self._scanner.features()
        first = next(self._features, None)
        self._features = chain([] if first is None else [first], self._features)
        self.columns = list(_properties(first))
        geometry = first.get("geometry") if isinstance(first, dict) else None
        self.areas = isinstance(geometry, dict) and geometry.get("type") in _AREAS
        """Whether its first feature is an area."""
        self.geometries = [
            name
            for name, value in _properties(first).items()
            if isinstance(value, dict) and {"coordinates", "geometries"} & set(value)
        ]

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The document among the members read so far; of a file, also behind its features."""
        document = self._scanner.document
        if document is None and self._document is None and not reader.is_pipe(self._source.path):
            with Source(self._source.path) as again, unpacking(self.name):
                scanner = FeatureScanner(again, self.name)
                deque(scanner.features(), maxlen=0)
            self._document = scanner.document or {}
        return document or self._document or None

    def batches(
        self, coordinates: Sequence[str], others: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = list(dict.fromkeys([*coordinates, *others]))
        stored = [name for name in columns if name not in reader.GEOMETRY]
        with unpacking(self.name):
            while features := list(islice(self._features, _BATCH)):
                points = np.array([_point(feature) for feature in features], dtype=np.float64)
                self._batch = features
                lng, lat = points.T
                arrays = dict(zip(reader.GEOMETRY, map(arrow_numbers, (lat, lng)), strict=True))
                for name in stored:
                    texts = [_text(_properties(feature).get(name)) for feature in features]
                    arrays[name] = arrow_texts(texts)
                self._check_degrees(columns)
                self.number += 1
                yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=columns)
        self._check_degrees(columns)

    def features(self) -> Iterator[Any]:
        """The features that were not read yet, as they stand there."""
        with unpacking(self.name):
            yield from self._features
        self._check_degrees(self.coordinates)

    def shape_of(self, row: int) -> str | None:
        try:
            kind = self._batch[row]["geometry"]["type"]
        except (KeyError, TypeError):
            return None
        return kind if kind in reader.SHAPES else None

    def _check_degrees(self, columns: Sequence[str]) -> None:
        """Look at the reference system as far as it was read: it may stand after the features."""
        if reader.GEOMETRY[0] in columns:
            check_degrees(self._scanner.members.get("crs"), self.name)


class PlainDocument(InvalidFile):
    """A JSON object that is no FeatureCollection; ``values`` are its members."""

    def __init__(self, message: str, values: dict[str, Any]) -> None:
        super().__init__(message)
        self.values = values


class FeatureScanner:
    """The members of a FeatureCollection in the order in which they stand in the file.

    Cost: one pass; memory for the largest feature. Members other than ``features`` are read whole and
    kept in ``members``: the document of the table under ``geoveil``, a reference system under ``crs``.
    """

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self._name = name
        self._text = ""
        self._place = 0
        self._ended = False
        self._rest = b""
        self.members: dict[str, Any] = {}

    @property
    def document(self) -> dict[str, Any] | None:
        """What the table says about itself, as far as it was read."""
        value = self.members.get(reader.DOCUMENT)
        return value if isinstance(value, dict) else None

    def features(self) -> Iterator[Any]:
        """Each feature as parsed JSON. Refuses what is not a FeatureCollection."""
        self._expect("{")
        has_features = False
        while self._peek() != "}":
            key = self._value()
            self._expect(":")
            if key == "features":
                has_features = True
                yield from self._entries()
            else:
                if key == reader.DOCUMENT and key in self.members:
                    self._refuse()  # two documents, and which one holds is anybody's guess
                self.members[key] = self._value(_ONCE)
                if key == "type" and self.members[key] != "FeatureCollection":
                    self._refuse()
            if not self._another():
                break
        self._expect("}")
        if not has_features:
            raise PlainDocument(self._problem, self.members)

    def _entries(self) -> Iterator[Any]:
        self._expect("[")
        while self._peek() != "]":
            yield self._value()
            if not self._another():
                break
        self._expect("]")

    def _another(self) -> bool:
        """Whether a comma follows; it is taken."""
        if self._peek() != ",":
            return False
        self._place += 1
        if self._peek() in "]}":
            self._refuse()
        return True

    def _value(self, decoder: json.JSONDecoder = _DECODER) -> Any:
        """One JSON value; a number may go on in the next piece, so its end must be seen."""
        self._peek()
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._place)
            except (ValueError, RecursionError):
                end = len(self._text)
            if self._text[end : end + 1] in _AFTER_VALUE:
                self._place = end
                return value
            if self._ended or len(self._text) - self._place > _LONGEST_VALUE:
                self._refuse()
            self._more(max(_PIECE, len(self._text) - self._place))

    def _peek(self) -> str:
        """The next character that is not white space, without taking it."""
        while True:
            self._place += len(_SPACE.match(self._text, self._place)[0])
            if self._place < len(self._text):
                return self._text[self._place]
            if self._ended:
                self._refuse()
            self._more(_PIECE)

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            self._refuse()
        self._place += 1

    def _more(self, size: int) -> None:
        """Read on, keeping what is not yet understood; half a character waits for its rest."""
        piece = self._source.read(size)
        self._ended = not piece
        data = self._rest + piece
        try:
            text, self._rest = data.decode(), b""
        except UnicodeDecodeError as error:
            if self._ended or len(data) - error.start > 3:
                self._refuse()
            text, self._rest = data[: error.start].decode(), data[error.start :]
        if not self._text:
            text = text.removeprefix("\ufeff")
        self._text, self._place = self._text[self._place :] + text, 0

    @property
    def _problem(self) -> str:
        return f"{self._name} must be a whole GeoJSON FeatureCollection in UTF-8"

    def _refuse(self) -> Any:
        raise InvalidFile(self._problem) from None


def _point(feature: Any) -> tuple[float, float]:
    """(lng, lat) of a point feature; NaN where it is anything else."""
    try:
        geometry = feature["geometry"]
        lng, lat = geometry["coordinates"][:2]
        if geometry["type"] == "Point" and type(lng) in _NUMBERS and type(lat) in _NUMBERS:
            return float(lng), float(lat)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    return np.nan, np.nan


def _properties(feature: Any) -> Mapping[str, Any]:
    properties = feature.get("properties") if isinstance(feature, dict) else None
    return properties if isinstance(properties, dict) else {}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


# --- GPX: the points of tracks and routes and the waypoints, one row each

_POINTS = {"wpt": "waypoint", "rtept": "route", "trkpt": "track"}
_LONGEST_TIME = 64
_Row = dict[str, str | None]


class TrackPointReader(TableReader):
    """A GPX file: columns ``lat``, ``lng``, ``time`` (as written) and ``kind`` of every point in it.

    Cost: one pass; memory for one batch. Declarations of a document type are refused: entities in them can
    grow without end.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.columns = ["lat", "lng", "time", "kind"]
        self._rows: list[_Row] = []
        self._root: str | None = None
        self._open: _Row | None = None
        self._time: list[str] | None = None

    def batches(
        self, coordinates: Sequence[str], others: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        columns = list(dict.fromkeys([*coordinates, *others]))
        with unpacking(self.name):
            for rows in self._pieces():
                arrays = [arrow_texts([row[name] for row in rows]) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, names=columns)
                self.number += 1

    def _pieces(self) -> Iterator[list[_Row]]:
        parser: Any = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._refuse
        try:
            while block := self._source.read(reader.BLOCK):
                parser.Parse(block, False)
                while len(self._rows) >= reader.BATCH_ROWS:
                    piece = self._rows[: reader.BATCH_ROWS]
                    del self._rows[: reader.BATCH_ROWS]
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
