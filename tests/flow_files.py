"""Files of flows, read back."""

from __future__ import annotations

import numpy as np

from geoveil.table.district_tables import VERSION, FlowTable
from geoveil.table.reader import open_table
from geoveil.table.results import read_numbers

_NUMBERS = ("share", "standard_error", "low", "high")


def read_flows(path: str) -> FlowTable:
    """What a file says that ``put_flows`` or the service wrote."""
    with open_table(path) as reader:
        wanted = [name for name in _NUMBERS if name in reader.columns]
        found = read_numbers(reader, wanted, "share")
        document = dict(reader.metadata or {})
    assert document.pop("flows") == VERSION
    names, latlng = document.pop("names"), document.pop("latlng")
    square = (len(names), len(names))  # a row for each pair, or reshaping fails
    return FlowTable(
        tuple(map(str, names)),
        latlng=None if latlng is None else np.array(latlng, dtype=np.float64),
        description=document,
        **{name: values.reshape(square) for name, values in found.items()},
    )
