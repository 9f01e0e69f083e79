"""Tables of locations: read and written in batches, so that memory does not grow with the file.

CSV, Parquet and GeoJSON are told apart by the ending of the name; ``-`` is a pipe. What comes in is
checked once, here, and no message ever repeats a value: a bad row is named by its number.
"""

from geoveil.table.locations import Extent, Locations, LocationTable
from geoveil.table.obfuscation import (
    Reporter,
    TableSummary,
    obfuscate,
    obfuscate_table,
    reporter_for,
)
from geoveil.table.persons import PersonLimit
from geoveil.table.reader import Format, format_of, open_table
from geoveil.table.writer import create_table

__all__ = [
    "Extent",
    "Format",
    "LocationTable",
    "Locations",
    "PersonLimit",
    "Reporter",
    "TableSummary",
    "create_table",
    "format_of",
    "obfuscate",
    "obfuscate_table",
    "open_table",
    "reporter_for",
]
