"""What a person can keep: which cell was sent where, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """One report that left the device; apart from what it cost here, nothing else did.

    ``lat`` and ``lng`` are the centre of the *sent* cell, for a map.
    """

    campaign: str
    round: int
    mechanism: str
    """Id of the mechanism document: the same for everybody, so it can be compared."""
    report: str
    """Id of the report: 16 random bytes, in hexadecimal."""
    cell: int
    lat: float
    lng: float
    epsilon_per_km: float
    """What the report was charged."""
    budget_left_per_km: float
    acknowledged: bool
