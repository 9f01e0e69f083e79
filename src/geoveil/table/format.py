"""File formats, told apart by the ending of a name."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath

from geoveil.errors import InvalidInput, require

PIPE = "-"
"""The name that stands for standard input or standard output."""

DOCUMENT = "geoveil"
"""Where a table carries what it says about itself (the mechanism of its reports, the space of its
cells): a member of GeoJSON, a key of Parquet's metadata, a column of CSV."""

_ENDINGS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".geojson": "geojson",
    ".json": "geojson",
}


class Format(Enum):
    """How a table of locations is written down."""

    CSV = "csv"
    PARQUET = "parquet"
    GEOJSON = "geojson"


def format_of(path: str, given: str | None = None) -> Format:
    """The format of a file by its ending; of a pipe the one given, or CSV. All of them need pyarrow.

    >>> format_of("checkins.csv.gz"), format_of("noisy.parquet"), format_of("-")
    (<Format.CSV: 'csv'>, <Format.PARQUET: 'parquet'>, <Format.CSV: 'csv'>)
    """
    require("pyarrow", "cli", "reading and writing tables")
    if path == PIPE:
        return Format(given or "csv")
    name = path.lower().removesuffix(".gz")
    ending = PurePath(name).suffix
    if given is not None and ending not in _ENDINGS:
        return Format(given)
    if ending not in _ENDINGS or (ending == ".parquet" and name != path.lower()):
        raise InvalidInput(f"file ({path}) must end in .csv, .csv.gz, .parquet, .geojson or .json")
    return Format(_ENDINGS[ending])


def is_compressed(path: str) -> bool:
    """Whether a name asks for gzip."""
    return path.lower().endswith(".gz")
