"""An estimate as files: JSON as it is kept, GeoJSON and CSV and Parquet made from it.

A table has a row for each cell: its number, its centre in degrees, its share and the ends of its
interval, all of them numbers under fixed names, so that no spreadsheet can take one for a formula; what
the file says about itself is JSON. The files are those of ``geoveil estimate``, which names their space:
``geoveil evaluate``, ``design`` and ``audit`` read all four.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO

from geoveil.server.estimates import read_body
from geoveil.table.format import Format
from geoveil.table.results import put_result, result_from_dict


@dataclass(frozen=True, slots=True)
class View:
    """A form of an estimate: how it is asked for, what it is called, how it is made."""

    ending: str
    media_type: str
    render: Callable[[bytes], bytes]


def _as(kind: Format) -> Callable[[bytes], bytes]:
    """How the file of that format is made from a body."""

    def render(body: bytes) -> bytes:
        sink = BytesIO()
        put_result(sink, kind, result_from_dict(read_body(body)))
        return sink.getvalue()

    return render


VIEWS: Mapping[str, View] = {
    view.ending: view
    for view in (
        View("json", "application/json", bytes),
        View("geojson", "application/geo+json", _as(Format.GEOJSON)),
        View("csv", "text/csv", _as(Format.CSV)),
        View("parquet", "application/vnd.apache.parquet", _as(Format.PARQUET)),
    )
}
"""By their endings."""
