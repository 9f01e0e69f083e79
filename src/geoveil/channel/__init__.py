"""The channel contract, guarantees, and the structures that make channels fast."""

from geoveil.channel.base import Channel
from geoveil.channel.dense import DenseChannel
from geoveil.channel.guarantee import (
    GeneralPrivacy,
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
    PerKilometre,
    SumOfGuarantees,
    WithinRadius,
)
from geoveil.channel.remapped import Remapped
from geoveil.channel.stacked import StackedChannel
from geoveil.channel.tally import Tally

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
