"""The tables of a store as they travel from one database to another: names and columns, in order.

Keys travel as they are. What only one database has stays behind: shards are summed, and the number of
the schema is that of the database written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from geoveil.arrays import IntArray

Row = tuple[Any, ...]

TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "campaign": ("key", "id", "name", "settings", "created_at_s"),
        "round": (
            "key",
            "campaign_key",
            "number",
            "mechanism",
            "document",
            "cells",
            "opened_at_s",
            "expires_at_s",
            "accept_until_s",
            "closed_at_s",
            "ids_dropped",
        ),
        "report": ("campaign_key", "id", "round_key"),
        "tally": ("round_key", "cell", "count"),
        "round_total": ("round_key", "count"),
        "closing": ("round_key", "closed_at_s", "claimed_until_s"),
        "closing_tally": ("closing_key", "round_key", "counts"),
        "estimate": ("round_key", "made_at_s", "reports", "body"),
        "token": ("digest", "label", "created_at_s"),
    }
)
"""Table → columns; a table comes after those it refers to."""


def packed(counts: IntArray) -> bytes:
    """Counts by cell as ``closing_tally.counts`` keeps them: 8 bytes a cell, little-endian.

    >>> packed(np.array([1, 0], dtype=np.int64)).hex()
    '01000000000000000000000000000000'
    """
    return counts.astype("<i8").tobytes()


def unpacked(counts: bytes) -> IntArray:
    """The counts again."""
    return np.frombuffer(counts, dtype="<i8").astype(np.int64)
