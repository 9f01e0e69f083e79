"""The privacy loss a channel really has, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from geoveil.channel.guarantee import (
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
)

FLOAT_TOLERANCE = 1e-9
"""What a table of floats can show: its claim is met to nine digits. Integer tables get none."""


@dataclass(frozen=True)
class PrivacyLoss:
    """The largest log-ratio of two rows, in two measures, rounded up.

    ``pair`` are the two cells with the largest loss per km. Where no closed form is known for one of
    the measures, it is ``None``.
    """

    epsilon_per_km: float
    epsilon: float | None
    pair: tuple[int, int] | None
    exact: bool
    how: str
    """How it was found, in words."""

    def proves(self, claim: Guarantee) -> bool:
        """Whether a channel with this loss keeps what is claimed."""
        lower = 1 - FLOAT_TOLERANCE
        if GeoIndistinguishability(self.epsilon_per_km * lower).implies(claim):
            return True
        return self.epsilon is not None and (
            LocalDifferentialPrivacy(self.epsilon * lower).implies(claim)
        )
