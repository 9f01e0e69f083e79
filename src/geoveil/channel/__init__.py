"""The channel contract, guarantees, and the structures that make channels fast."""

from geoveil.channel.channel import Channel, Tally
from geoveil.channel.composed import DenseChannel, Remapped, StackedChannel
from geoveil.channel.guarantee import (
    GeneralPrivacy,
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
    PerKilometre,
    SumOfGuarantees,
    WithinRadius,
)

__all__ = [
    "Channel",
    "DenseChannel",
    "GeneralPrivacy",
    "GeoIndistinguishability",
    "Guarantee",
    "LocalDifferentialPrivacy",
    "PerKilometre",
    "Remapped",
    "StackedChannel",
    "SumOfGuarantees",
    "Tally",
    "WithinRadius",
]
