"""Tables of locations: read and written in batches, so that memory does not grow with the file.

CSV, Parquet and GeoJSON are told apart by the ending of the name; ``-`` is a pipe. What comes in is
checked once, here, and no message ever repeats a value: a bad row is named by its number.
"""

from geoveil.table.extent import Extent
from geoveil.table.format import Format, format_of
from geoveil.table.frame import obfuscate
from geoveil.table.locations import Locations, LocationTable
from geoveil.table.obfuscation import TableSummary, obfuscate_table
from geoveil.table.persons import PersonLimit
from geoveil.table.reader import open_table
from geoveil.table.reports import Reporter, reporter_for
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
