"""Spaces, tallies, estimates and advice as tables of pandas and GeoPandas."""

from __future__ import annotations

from dataclasses import fields
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from geoveil.campaign.advice import Advice, Choice
from geoveil.channel.channel import Tally
from geoveil.errors import Unsupported, require
from geoveil.estimate.fitted import Estimate
from geoveil.mechanism.local import RapporTally
from geoveil.space.space import Space
from geoveil.table.reports import rim_reports
from geoveil.table.results import Result, shares_and_bars

if TYPE_CHECKING:
    from geopandas import GeoDataFrame
    from pandas import DataFrame

_LEVEL = 0.95
"""Of the intervals in a frame."""
_WGS84 = "EPSG:4326"

Columns = dict[str, Any]


def frame_of(result: object) -> DataFrame:
    """One row for each cell, or for each setting of an advice."""
    require("pandas", "geo", "to_frame")
    import pandas as pd

    return pd.DataFrame(columns_of(result))


def geodataframe_of(result: object) -> GeoDataFrame:
    """One row for each cell with its shape in degrees; only where there is a map."""
    require("geopandas", "geo", "to_geodataframe")
    import geopandas

    columns, space = columns_of(result), getattr(result, "space", result)
    if not isinstance(space, Space):
        raise Unsupported(f"{type(result).__name__} has no cells; use to_frame")
    if "lat" not in columns:
        raise Unsupported(f"{space!r} has no map; use to_frame")
    features = space.to_geojson()["features"]  # type: ignore[attr-defined]
    shapes = geopandas.GeoDataFrame.from_features(features, crs=_WGS84).geometry
    return geopandas.GeoDataFrame(columns, geometry=shapes)


@singledispatch
def columns_of(result: object) -> Columns:
    """The columns by name, in order."""
    raise Unsupported(f"{type(result).__name__} has no table")


@columns_of.register
def _columns_of_space(result: Space) -> Columns:
    columns = Result(result, np.zeros(result.size)).columns()
    del columns["share"]
    return columns


@columns_of.register
def _columns_of_tally(result: Tally) -> Columns:
    """How often each cell was reported; reports that name no cell are left out."""
    by_bits = isinstance(result, RapporTally)  # one bit for each cell
    if rim_reports(result.channel) is None and not by_bits:
        raise Unsupported(
            f"reports of {result.channel!r} do not name cells; look at counts, by report, instead"
        )
    return _columns_of_space(result.space) | {"reports": result.sums[: result.space.size]}


@columns_of.register
def _columns_of_estimate(result: Estimate) -> Columns:
    """Shares, and error bars at 95 %."""
    return shares_and_bars(result, _LEVEL).columns()


@columns_of.register
def _columns_of_advice(result: Advice) -> Columns:
    names = [field.name for field in fields(Choice) if field.name != "mechanism"]
    columns = {name: [getattr(choice, name) for choice in result.choices] for name in names}
    return columns | {"recommended": [choice is result.recommended for choice in result.choices]}
