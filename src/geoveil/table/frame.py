"""Noisy reports from whatever holds the locations in memory: frames, tables, dictionaries."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.base import Channel
from geoveil.errors import InvalidInput, Unsupported
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.randomness import SYSTEM, Randomness
from geoveil.space.outside import Outside
from geoveil.space.projection import either_longitude
from geoveil.table.columns import check_column, coordinate_columns
from geoveil.table.geometry import geometry_columns
from geoveil.table.persons import LimitBy, PersonLimit, Reporting, Rows
from geoveil.table.reports import Reports, reporter_for

_WGS84 = "EPSG:4326"


def obfuscate(
    frame: Any,
    mechanism: Channel | ContinuousLaplace,
    *,
    lat: str | None = None,
    lng: str | None = None,
    lon: str | None = None,
    keep: Sequence[str] = (),
    person: str | None = None,
    per_person: int | None = None,
    limit_by: LimitBy = "sample",
    outside: Outside = "drop",
    randomness: Randomness = SYSTEM,
) -> Any:
    """One noisy report for each row of a DataFrame, GeoDataFrame, pyarrow Table or dict of arrays.

    The result is of the same kind, in the same order, and holds the report only: ``cell``, ``lat``
    and ``lng`` (the centre of the reported cell), or ``lat`` and ``lng`` of continuous noise, and
    points for a GeoDataFrame. Other columns, and the index, may tell who somebody is and are left
    behind; name the ones to ``keep``, which must not be geometry. Columns are found by their usual
    names unless given. Places outside the map are left out, with a warning that says how many; it is
    an error when all are.

    Rows about one ``person`` (the column that says who) are held to ``per_person`` reports: rows at
    random (``limit_by="sample"``), the first (``"cap"``), or as many different places, each of which
    always gives the same report (``"memoise"``).

    Guarantee: that of the mechanism, for each report; reports about one person add up.
    Cost: that of sampling, and of locating: about 0.2 µs a row.

    >>> import geoveil as gv
    >>> grid = gv.Grid.from_box(south=48.8, west=2.2, north=48.9, east=2.4, cell_km=0.5)
    >>> mechanism = gv.PlanarGeometric(grid, epsilon_per_km=2.0)
    >>> people = {"who": ["a", "b"], "lat": [48.85, 48.86], "lon": [2.35, 2.30]}
    >>> noisy = obfuscate(people, mechanism)
    >>> sorted(noisy), len(noisy["cell"])
    (['cell', 'lat', 'lng'], 2)
    """
    columns = _column_names(frame)
    longitude = None if lng is None and lon is None else either_longitude(lng, lon)
    true_lat, true_lng, used = _coordinates(frame, columns, lat, longitude)
    if person is None and per_person is not None:
        raise InvalidInput(
            f"per_person ({per_person}) must come with person, the column that says who"
        )
    limit = None if person is None else PersonLimit(person, per_person, limit_by)
    kept = [check_column(columns, name, "the table") for name in dict.fromkeys(keep)]
    reporter = reporter_for(mechanism, outside=outside, randomness=randomness)
    check_kept(kept, [*used, *_geometries(frame, kept), *reporter.column_names])
    reporting = Reporting(limit, draw=reporter.draw, randomness=randomness)
    persons = None if limit is None else reporting.number(_persons(frame, columns, limit.column))
    places, taken = reporter.place(true_lat, true_lng)
    count = reporter.outside
    count.check("the table", count.hint or "are these the right columns, and is it the right box?")
    if count.dropped:
        advice = count.hint and f"; {count.hint}"
        warnings.warn(f"{count.sentence()}{advice}", stacklevel=2)
    rows = Rows(places, np.arange(taken.size), persons).take(taken)
    (drawn,) = reporting.reports([rows]) if rows.numbers.size else (rows,)
    return _like(frame, Reports(reporter.columns(drawn.places), drawn.numbers), kept)


def _persons(frame: Any, columns: Sequence[str], name: str) -> list[Any]:
    """Whom each row is about."""
    column = frame[check_column(columns, name, "the table")]
    persons = column.to_pylist() if hasattr(column, "to_pylist") else np.asarray(column).tolist()
    for position, person in enumerate(persons):
        if person is None or person != person:
            raise InvalidInput(
                f"the entry at position {position} of column {name!r} must say whom it is about"
            )
    return persons


def check_kept(kept: Sequence[str], taken: Sequence[str]) -> None:
    """Refuse to keep a true coordinate, or a column with the name of a report's."""
    wrong = [name for name in kept if name in taken]
    if wrong:
        raise InvalidInput(
            f"columns to keep ({', '.join(wrong)}) must not be coordinates or cells; leave them out"
        )


def _column_names(frame: Any) -> list[str]:
    if isinstance(frame, Mapping) or _is(frame, "pandas", "DataFrame"):
        return [str(name) for name in frame]
    if _is(frame, "pyarrow", "Table"):
        return [str(name) for name in frame.column_names]
    raise Unsupported(
        f"frame ({type(frame).__name__}) must be a DataFrame, GeoDataFrame, pyarrow Table "
        "or dict of arrays"
    )


def _coordinates(
    frame: Any, columns: Sequence[str], lat: str | None, lng: str | None
) -> tuple[FloatArray, FloatArray, list[str]]:
    """Latitudes, longitudes, and the names of the columns they came from."""
    if lat is None and lng is None and _is(frame, "geopandas", "GeoDataFrame"):
        points = _in_degrees(frame)
        return _floats(points.y, "geometry"), _floats(points.x, "geometry"), [frame.geometry.name]
    lat, lng = coordinate_columns(columns, lat, lng, "the table")
    first, second = _floats(frame[lat], lat), _floats(frame[lng], lng)
    if first.shape != second.shape:
        raise InvalidInput(f"columns {lat!r} and {lng!r} must have the same length")
    return first, second, [lat, lng]


def _in_degrees(frame: Any) -> Any:
    """The points of a GeoDataFrame in WGS84; without a reference system they are taken to be."""
    geometry = frame.geometry
    if not (geometry.geom_type == "Point").all():
        raise InvalidInput(
            "the geometry must hold points only; use its centroids, or drop the rest"
        )
    if frame.crs is None:
        return geometry
    try:
        return geometry.to_crs(_WGS84)
    except (RuntimeError, ValueError):  # what pyproj raises where there is no way
        named = str(getattr(frame.crs, "name", frame.crs))[:60]
        raise InvalidInput(
            f"the geometry must be in a system that converts to degrees (WGS84); it is in {named!r}"
        ) from None


def _geometries(frame: Any, names: Sequence[str]) -> list[str]:
    """Those of the named columns that hold geometry: true places in another form."""
    if _is(frame, "pyarrow", "Table"):
        return geometry_columns(frame.schema)
    return [name for name in names if _is_geometry(frame[name])]


def _is_geometry(values: Any) -> bool:
    first = next((each for each in values if each is not None), None)
    return str(getattr(values, "dtype", "")) == "geometry" or hasattr(first, "__geo_interface__")


def _floats(values: Any, name: str) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"column {name!r} must hold numbers only") from None
    if array.ndim != 1:
        raise InvalidInput(f"column {name!r} must be one-dimensional")
    return array


def _like(frame: Any, reports: Reports, kept: Sequence[str]) -> Any:
    """The reports and the kept columns as the kind of thing that came in."""
    if isinstance(frame, Mapping):
        return reports.columns | {name: np.asarray(frame[name])[reports.rows] for name in kept}
    if _is(frame, "pyarrow", "Table"):
        return _arrow_table(frame, reports, kept)
    import pandas as pd

    table = pd.DataFrame(reports.columns)
    for name in kept:
        table[name] = frame[name].array[reports.rows]
    if _is(frame, "geopandas", "GeoDataFrame"):
        import geopandas

        points = geopandas.points_from_xy(table["lng"], table["lat"])
        return geopandas.GeoDataFrame(table, geometry=points, crs=_WGS84)
    return table


def _arrow_table(frame: Any, reports: Reports, kept: Sequence[str]) -> Any:
    import pyarrow as pa

    columns: dict[str, Any] = {name: pa.array(values) for name, values in reports.columns.items()}
    columns |= {name: frame.column(name).take(pa.array(reports.rows)) for name in kept}
    return pa.table(columns)


def _is(frame: Any, package: str, name: str) -> bool:
    """Whether the frame is of this class, without importing a package nobody has used."""
    module = sys.modules.get(package)
    return module is not None and isinstance(frame, getattr(module, name))
