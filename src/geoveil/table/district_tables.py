"""Districts, and flows between them, as tables: CSV, GeoParquet and GeoJSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.errors import Unsupported
from geoveil.estimate.regions import RegionShares
from geoveil.space.outline import Outline
from geoveil.table import writer
from geoveil.table.reader import Format

VERSION = 1
"""Of the descriptions that files of districts and of flows carry."""
_DECIMALS = 7
"""Of degrees: a centimetre."""


def put_zones(
    sink: IO[bytes],
    kind: Format,
    outlines: Sequence[Outline],
    shares: Mapping[str, RegionShares],
    level: float,
    description: Mapping[str, Any],
) -> None:
    """Write the bytes of a file of the districts of one or several maps, each under the name of its slot.

    Columns: region, share, standard_error, low, high, in_cut_cells, and slot where slots have names. As
    GeoJSON and in Parquet the districts keep their shapes.
    """
    rows = [regions.rows(level) for regions in shares.values()]
    called = "name" if kind is Format.GEOJSON else "region"
    columns: dict[str, Any] = {called: [name for table in rows for name in table["region"]]}
    if len(shares) > 1 or "" not in shares:
        columns["slot"] = [name for name, regions in shares.items() for _ in regions.names]
    for name in list(rows[0])[1:]:
        columns[name] = np.concatenate([table[name] for table in rows])
    shapes = [_geometry(outline) for outline in outlines] * len(shares)
    stated = {**description, "zones": VERSION, "interval_level": level}
    stated["people"] = {
        name: {"left_out": regions.left_out, "counted_twice": regions.counted_twice}
        for name, regions in shares.items()
    }
    writer.put_table(sink, kind, columns, stated, shapes)


def _geometry(outline: Outline) -> dict[str, Any]:
    """The polygons of a district, closed, longitudes as they run."""
    polygons = [
        [np.concatenate((ring, ring[:1])).tolist() if (ring[0] != ring[-1]).any() else ring.tolist()
         for ring in polygon]
        for polygon in outline.polygons
    ]  # fmt: skip
    if len(polygons) == 1:
        return {"type": "Polygon", "coordinates": polygons[0]}
    return {"type": "MultiPolygon", "coordinates": polygons}


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
        columns: dict[str, Any] = {"from": named[begun].tolist(), "to": named[ended].tolist()}
        columns["share"] = self.share.ravel()
        for name in ("standard_error", "low", "high"):
            if getattr(self, name) is not None:
                columns[name] = getattr(self, name).ravel()
        if self.latlng is not None:
            lat, lng = np.round(self.latlng, _DECIMALS).T
            columns |= {"lat": lat[begun], "lng": lng[begun]}
            columns |= {"to_lat": lat[ended], "to_lng": lng[ended]}
        return columns

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


def put_flows(sink: IO[bytes], kind: Format, table: FlowTable) -> None:
    """Write the bytes of a file of flows, which carries their description."""
    columns = table.columns()
    if kind is Format.GEOJSON:
        if table.latlng is None:
            raise Unsupported(
                "flows of a space without a map have no lines; write .csv or .parquet"
            )
        columns = {name: columns[name] for name in columns if not name.endswith(("lat", "lng"))}
    shapes = None if table.latlng is None else table.shapes()
    writer.put_table(sink, kind, columns, table.document(), shapes)
