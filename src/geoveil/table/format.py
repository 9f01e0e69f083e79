"""File formats, told apart by the ending of a name."""

from __future__ import annotations

from enum import Enum
from pathlib import PurePath

from geoveil.errors import InvalidInput, MissingExtra

PIPE = "-"
"""The name that stands for standard input or standard output."""

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
    """The format of a file by its ending; of a pipe the one given, or CSV.

    >>> format_of("checkins.csv.gz"), format_of("noisy.parquet"), format_of("-")
    (<Format.CSV: 'csv'>, <Format.PARQUET: 'parquet'>, <Format.CSV: 'csv'>)
    """
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


def require_pyarrow() -> None:
    """One clear line when pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingExtra("pyarrow", "cli", "reading and writing files") from None
