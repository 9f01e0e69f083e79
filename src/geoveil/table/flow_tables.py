"""Flows between districts as tables: CSV, GeoParquet and GeoJSON lines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.errors import InvalidFile, Unsupported
from geoveil.table import well_known, writer
from geoveil.table.reader import DOCUMENT, Format, format_of, open_table
from geoveil.table.results import read_numbers

VERSION = 1
"""Of the description that a file of flows carries."""
_NUMBERS = ("share", "standard_error", "low", "high")
_DECIMALS = 7
"""Of degrees: a centimetre."""


@dataclass(frozen=True)
class FlowTable:
    """Shares of trips from district to district, with what is known about them."""

    names: Sequence[str]
    share: FloatArray
    """(districts, districts): of all trips, by where they began and where they ended."""
    latlng: FloatArray | None = None
    """(districts, 2): the middle of each, in degrees; ``None`` where there is no map."""
    standard_error: FloatArray | None = None
    low: FloatArray | None = None
    high: FloatArray | None = None
    description: Mapping[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """What a file says about itself: the districts in their order, and the description."""
        middles = None if self.latlng is None else np.round(self.latlng, _DECIMALS).tolist()
        named = {"names": list(self.names), "latlng": middles}
        return {"flows": VERSION, **named, **(self.description or {})}

    def columns(self) -> dict[str, Any]:
        """The columns of the file, in order: one row for each pair of districts."""
        size = len(self.names)
        begun, ended = np.divmod(np.arange(size * size), size)
        named = np.array(self.names, dtype=object)
        made: dict[str, Any] = {"from": named[begun].tolist(), "to": named[ended].tolist()}
        made["share"] = self.share.ravel()
        for name in ("standard_error", "low", "high"):
            if getattr(self, name) is not None:
                made[name] = getattr(self, name).ravel()
        if self.latlng is not None:
            lat, lng = np.round(self.latlng, _DECIMALS).T
            made |= {
                "lat": lat[begun],
                "lng": lng[begun],
                "to_lat": lat[ended],
                "to_lng": lng[ended],
            }
        return made

    def shapes(self) -> list[dict[str, Any]]:
        """For each pair a line from middle to middle; for trips within a district its middle."""
        assert self.latlng is not None
        places = np.round(self.latlng[:, ::-1], _DECIMALS).tolist()
        return [
            {"type": "Point", "coordinates": begun}
            if begun is ended
            else {"type": "LineString", "coordinates": [begun, ended]}
            for begun in places
            for ended in places
        ]


def write_flows(path: str, table: FlowTable, *, format: str | None = None) -> None:
    """Write flows by the ending of the name; the file carries their description."""
    kind = format_of(path, format, writing=True)
    if kind is Format.GEOJSON and table.latlng is None:
        raise Unsupported("flows of a space without a map have no lines; write .csv or .parquet")
    with writer.binary_sink(path) as sink:
        put_flows(sink, kind, table)


def put_flows(sink: IO[bytes], kind: Format, table: FlowTable) -> None:
    """Write the bytes of a file of flows."""
    import pyarrow as pa

    document = table.document()
    columns = table.columns()
    if kind is Format.GEOJSON:
        head = json.dumps(document, ensure_ascii=False, allow_nan=False)
        start = f'{{"type":"FeatureCollection",\n"{DOCUMENT}":{head},\n"features":['
        sink.write(start.encode())
        told = [name for name in columns if not name.endswith(("lat", "lng"))]
        values = zip(*(np.asarray(columns[name], dtype=object) for name in told), strict=True)
        comma = "\n"
        for shape, row in zip(table.shapes(), values, strict=True):
            properties = {name: _plain(value) for name, value in zip(told, row, strict=True)}
            feature = {"type": "Feature", "geometry": shape, "properties": properties}
            sink.write(
                f"{comma}{json.dumps(feature, ensure_ascii=False, allow_nan=False)}".encode()
            )
            comma = ",\n"
        sink.write(b"\n]}\n")
        return
    arrays = {
        name: pa.array(values)
        if isinstance(values, list)
        else pa.array(values, mask=~np.isfinite(values))
        for name, values in columns.items()
    }
    described = {}
    if kind is Format.PARQUET and table.latlng is not None:
        shapes = table.shapes()
        arrays[well_known.GEOMETRY_COLUMN] = pa.array(map(well_known.well_known_binary, shapes))
        described = {"geo": well_known.geoparquet_metadata(shapes)}
    batch = pa.RecordBatch.from_pydict(arrays, metadata=described)
    with writer.table_into(sink, kind, batch.schema, document) as rows:
        rows.write(batch)


def read_flows(path: str, *, format: str | None = None, delimiter: str = ",") -> FlowTable:
    """Read a file that :func:`write_flows` or the service wrote."""
    with open_table(path, format=format, delimiter=delimiter) as reader:
        wanted = [name for name in _NUMBERS if name in reader.columns]
        found = read_numbers(reader, wanted)
        document = dict(reader.metadata or {})
    if document.pop("flows", None) != VERSION:
        raise InvalidFile(f'{path} must be a file of flows, which says "flows": {VERSION}')
    names, latlng = document.pop("names", None), document.pop("latlng", None)
    if not isinstance(names, list) or "share" not in found:
        raise InvalidFile(f"{path} must name its districts and have a column 'share'")
    square = (len(names), len(names))
    if any(values.size != square[0] * square[1] for values in found.values()):
        raise InvalidFile(f"{path} must have one row for each pair of its {len(names)} districts")
    return FlowTable(
        tuple(map(str, names)),
        latlng=None if latlng is None else np.array(latlng, dtype=np.float64),
        description=document,
        **{name: values.reshape(square) for name, values in found.items()},
    )


def _plain(value: Any) -> Any:
    """A number or a name for JSON; what is not known is null."""
    if isinstance(value, str):
        return value
    return float(value) if np.isfinite(value) else None
