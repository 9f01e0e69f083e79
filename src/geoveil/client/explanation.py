"""What a report would send and cost, in plain words."""

from __future__ import annotations

from geoveil.channel.words import NEARBY_KM, rounded_down
from geoveil.client.address import Address
from geoveil.client.document import Verified


def explanation(
    address: Address, current: Verified, left_per_km: float, budget_per_km: float
) -> str:
    """Four sentences: where to, what, how far off, and what it costs."""
    document = current.document
    mechanism = document.mechanism
    grid = mechanism.space
    cell_m = 1000 * grid.cell_km
    return (
        f"Round {document.round} of the campaign {document.campaign} at {address.origin}: one of "
        f"{grid.size} cells of {cell_m:.0f} m would be sent, drawn at random around yours, with a "
        "random number and the id of the rule it was drawn by; "
        f"nothing else. From the middle of the map it lies {_mean_distance_km(current):.2g} km away "
        f"on average. {mechanism.explain(NEARBY_KM)} This report costs {mechanism.guarantee.amount()}; "
        f"{rounded_down(left_per_km)} of {rounded_down(budget_per_km)} per km are left."
    )


def _mean_distance_km(current: Verified) -> float:
    mechanism = current.document.mechanism
    grid = mechanism.space
    middle = int(grid.cell_at(grid.rows // 2, grid.columns // 2))
    return float(mechanism.row(middle) @ grid.distances_from_km(middle))
