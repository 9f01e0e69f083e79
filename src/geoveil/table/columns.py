"""Which columns hold the latitude and the longitude, and their numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.errors import InvalidFile, InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

LATITUDE_NAMES = ("lat", "latitude", "y")
LONGITUDE_NAMES = ("lng", "lon", "long", "longitude", "x")

_NUMBER = r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$"
_DATA = re.compile(
    r"^\s*[-+]?\d+([.,]\d*)?\s*$"  # a number
    r"|\d[.,]\d"
    r"|\d\s*[°º˚'’′\"”″]"  # degrees, minutes or seconds
    r"|^\s*[-+]?\d[\d\s:dm]*s?\s*[NSEW]?\s*$"  # 48 51 24 N, 48d51m24s
    r"|^\s*[NSEW]\s*\d+[\s:d]\s*\d",  # N48:51:24
    re.IGNORECASE,
)


def find_column(columns: Sequence[str], usual: Sequence[str], what: str, source: str) -> str:
    """The one column with a usual name, in any case.

    >>> find_column(["user", "Latitude"], LATITUDE_NAMES, "latitude", "checkins.csv")
    'Latitude'
    """
    found = [name for name in columns if name.strip().lower() in usual]
    if len(found) == 1:
        return found[0]
    problem = "more than one column" if found else "no column"
    raise InvalidFile(
        f"{source} has {problem} named as a {what} ({', '.join(usual)}); "
        f"say which one it is: {list_columns(columns)}"
    )


def coordinate_columns(
    columns: Sequence[str], lat: str | None, lng: str | None, source: str
) -> tuple[str, str]:
    """The columns of the latitude and the longitude: those given, else those with a usual name."""
    named = [
        check_column(columns, given, source) if given else find_column(columns, usual, what, source)
        for given, usual, what in (
            (lat, LATITUDE_NAMES, "latitude"),
            (lng, LONGITUDE_NAMES, "longitude"),
        )
    ]
    if named[0] == named[1]:
        raise InvalidInput(f"latitude and longitude ({named[0]!r}) must be two columns")
    return named[0], named[1]


def check_column(columns: Sequence[str], name: str, source: str) -> str:
    """The name itself, when the table has exactly one such column."""
    if columns.count(name) == 1:
        return name
    problem = "more than one column" if name in columns else "no column"
    raise InvalidFile(f"{source} has {problem} named {name!r}: {list_columns(columns)}")


def list_columns(columns: Sequence[str]) -> str:
    """The names that exist, in words; withheld where they look like somebody's data."""
    if any(_DATA.search(name) for name in columns):
        return "the first line looks like data, not names; put a line of column names before it"
    shown = ", ".join(name[:40] for name in columns[:40])
    more = f" and {len(columns) - 40} more" if len(columns) > 40 else ""
    return f"it has {shown}{more}" if columns else "it has no columns"


def numbers(values: pa.Array) -> FloatArray:
    """A column as floats; whatever is not a number becomes NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if _is_text(values.type):
        values = _parse(values)
    elif not (_is_numeric(values.type) or pa.types.is_null(values.type)):
        return np.full(len(values), np.nan)
    floats = pc.fill_null(pc.cast(values, pa.float64(), safe=False), np.nan)
    return np.asarray(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def _parse(values: pa.Array) -> pa.Array:
    """Text to floats, the fast way when every entry is a number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return pc.cast(pc.cast(values, pa.string()), pa.float64())
    except pa.ArrowInvalid:
        binary = pc.cast(values, pa.binary())
        trimmed = pc.replace_substring_regex(binary, pattern=r"^\s+|\s+$", replacement="")
        clean = pc.if_else(pc.match_substring_regex(trimmed, _NUMBER), trimmed, None)
        return pc.cast(pc.cast(clean, pa.string()), pa.float64())


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    text = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in text) or str(kind) in ("string_view", "binary_view")


def _is_numeric(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
