"""Reading GeoPackage: the points of its one layer, through pyogrio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geoveil.errors import InvalidFile, require
from geoveil.space.projection import check_degrees
from geoveil.table.parquet import wkb_points, wkb_shape
from geoveil.table.reader import BATCH_ROWS, GEOMETRY, TableReader

if TYPE_CHECKING:
    import pyarrow as pa


class GeoPackageReader(TableReader):
    """A GeoPackage with one layer of points. Its attributes are columns; coordinates are the geometry's.

    Cost: one pass; memory for one batch. Needs the extra ``geo``.
    """

    coordinates = GEOMETRY

    def __init__(self, path: str) -> None:
        require("pyogrio", "geo", "reading GeoPackage")
        import pyogrio

        self.name = path
        with Path(path).open("rb"):  # a missing file is said as for any other
            pass
        try:
            layers = [str(name) for name in pyogrio.list_layers(path)[:, 0]]
            about = pyogrio.read_info(path, layer=layers[0]) if len(layers) == 1 else {}
        except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError):
            raise InvalidFile(f"{path} must be a whole GeoPackage; it is not") from None
        if len(layers) != 1:
            named = f": {', '.join(name[:40] for name in layers[:20])}" if layers else ""
            raise InvalidFile(f"{path} must have one layer; it has {len(layers)}{named}")
        self._layer = layers[0]
        self._crs = about["crs"]
        self.columns = [str(name) for name in about["fields"]]
        self._rows, self._read = int(about["features"]), 0
        self._shapes: Any = None

    @property
    def fraction(self) -> float | None:
        return min(1.0, self._read / self._rows) if self._rows > 0 else None

    def batches(
        self, coordinates: Sequence[str], kept: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyogrio

        columns = list(dict.fromkeys([*coordinates, *kept]))
        wanted = [name for name in columns if name not in GEOMETRY]
        if GEOMETRY[0] in columns:
            check_degrees(self._crs, self.name)
        try:
            with pyogrio.open_arrow(
                self.name,
                layer=self._layer,
                columns=wanted,
                batch_size=BATCH_ROWS,
                use_pyarrow=True,
            ) as (about, stored):
                geometry = about["geometry_name"] or "wkb_geometry"
                for batch in stored:
                    self._read += batch.num_rows
                    arrays = {name: batch.column(name) for name in wanted}
                    if GEOMETRY[0] in columns:
                        self._shapes = batch.column(geometry)
                        lng, lat = wkb_points(self._shapes)
                        arrays |= {GEOMETRY[0]: pa.array(lat), GEOMETRY[1]: pa.array(lng)}
                    yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], columns)
                    self.number += 1
        except (pa.ArrowException, pyogrio.errors.DataSourceError):
            raise InvalidFile(f"{self.name} must be a whole GeoPackage; it is damaged") from None

    def shape_of(self, row: int) -> str | None:
        return None if self._shapes is None else wkb_shape(self._shapes[row].as_py())

    def close(self) -> None:
        """The file is open only while batches are read."""
