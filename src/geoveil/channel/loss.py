"""The privacy loss a channel really has, as a value."""

from __future__ import annotations

from dataclasses import dataclass


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
