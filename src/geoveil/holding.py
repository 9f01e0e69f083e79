"""What a result does for whoever holds it: frames, pictures, a small page in a notebook.

Spaces, tallies and estimates know nothing of tables and pictures, which are packages below them. So the
functions that do these things are named here by text and imported when somebody asks for one; nothing else
reaches down.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geopandas import GeoDataFrame
    from matplotlib.figure import Figure
    from pandas import DataFrame

BELOW = {
    "frame_of": "geoveil.table.frames",
    "geodataframe_of": "geoveil.table.frames",
    "picture_of": "geoveil.plot.pictures",
    "page_of": "geoveil.plot.notebook",
    "save_estimate": "geoveil.table.results",
    "save_tally": "geoveil.table.tallies",
}
"""The functions that results call, and the modules that have them."""


def below(name: str) -> Any:
    """One of the functions in :data:`BELOW`."""
    return getattr(import_module(BELOW[name]), name)


class Shown:
    """Has a small page of its own in notebooks: a map or a table."""

    def _repr_html_(self) -> str:
        return str(below("page_of")(self))


class Framed:
    """Becomes a table of pandas or GeoPandas."""

    def to_frame(self) -> DataFrame:
        """A DataFrame with one row for each cell (or setting). Needs the extra ``geo``."""
        frame: DataFrame = below("frame_of")(self)
        return frame

    def to_geodataframe(self) -> GeoDataFrame:
        """The same with the shape of each cell, in degrees (WGS84). Needs the extra ``geo``."""
        frame: GeoDataFrame = below("geodataframe_of")(self)
        return frame


class Drawn:
    """Can be drawn."""

    def plot(self, path: str | None = None, *, title: str | None = None) -> Figure:
        """A figure for a report, also written to ``path`` (.png, .svg or .pdf). Needs the extra ``plot``."""
        figure: Figure = below("picture_of")(self, path, title)
        return figure
