"""Writing GeoJSON points one feature at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import IO, TYPE_CHECKING, Any

from geoveil.report.canonical import canonical_bytes
from geoveil.table.writer import TableWriter

if TYPE_CHECKING:
    import pyarrow as pa


_ENCODE = json.JSONEncoder(ensure_ascii=False, default=str).encode


class FeatureWriter(TableWriter):
    """A FeatureCollection of points; columns other than ``lat`` and ``lng`` become properties."""

    def __init__(self, sink: IO[bytes], document: Mapping[str, Any] | None) -> None:
        self._sink = sink
        self._first = True
        carried = "" if document is None else f'"geoveil":{canonical_bytes(document).decode()},\n'
        self._put(f'{{"type":"FeatureCollection",\n{carried}"features":[')

    def write(self, batch: pa.RecordBatch) -> None:
        features = ",\n".join(_features(batch))
        if features:
            self._put(("\n" if self._first else ",\n") + features)
            self._first = False

    def finish(self) -> None:
        self._put("\n]}\n")

    def _put(self, text: str) -> None:
        self._sink.write(text.encode())


def _features(batch: pa.RecordBatch) -> Iterator[str]:
    """Each row as the text of a feature; JSON of numbers is what ``repr`` gives."""
    names = [name for name in batch.schema.names if name not in ("lat", "lng")]
    columns = [_texts(_ENCODE(name), batch.column(name).to_pylist()) for name in names]
    lat, lng = batch.column("lat").to_pylist(), batch.column("lng").to_pylist()
    rows = map(",".join, zip(*columns, strict=True)) if columns else repeat("", len(lat))
    for north, east, properties in zip(lat, lng, rows, strict=True):
        yield (
            f'{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{east!r},{north!r}]}},'
            f'"properties":{{{properties}}}}}'
        )


def _texts(name: str, values: list[Any]) -> Iterator[str]:
    for value in values:
        if type(value) is int:
            yield f"{name}:{value}"
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{name}:null"
        else:
            yield f"{name}:{_ENCODE(value)}"
