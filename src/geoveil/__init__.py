"""Geoveil: tell a city where people are without learning where anyone is.

A mechanism is a channel, a channel is an operator with a guarantee, and a guarantee can be checked.
"""

from geoveil.audit import Certificate, certify
from geoveil.channel import (
    Channel,
    DenseChannel,
    GeneralPrivacy,
    GeoIndistinguishability,
    Guarantee,
    LocalDifferentialPrivacy,
    PerKilometre,
    Remapped,
    StackedChannel,
    SumOfGuarantees,
    Tally,
    WithinRadius,
)
from geoveil.mechanism import (
    MECHANISMS,
    ContinuousLaplace,
    Elastic,
    Exponential,
    LinearGeometric,
    Mechanism,
    PlanarGeometric,
    PlanarLaplace,
    RandomizedResponse,
    Rappor,
    bayesian_remap,
    nearest_remap,
)
from geoveil.randomness import Randomness, SeededRandomness, SystemRandomness, seeded
from geoveil.report import ExactTable, load_mechanism, save_mechanism
from geoveil.space import Box, Grid, Line, Points, Space, TangentPlane

__version__ = "0.1.0"

__all__ = [
    "MECHANISMS",
    "Box",
    "Certificate",
    "Channel",
    "ContinuousLaplace",
    "DenseChannel",
    "Elastic",
    "ExactTable",
    "Exponential",
    "GeneralPrivacy",
    "GeoIndistinguishability",
    "Grid",
    "Guarantee",
    "Line",
    "LinearGeometric",
    "LocalDifferentialPrivacy",
    "Mechanism",
    "PerKilometre",
    "PlanarGeometric",
    "PlanarLaplace",
    "Points",
    "RandomizedResponse",
    "Randomness",
    "Rappor",
    "Remapped",
    "SeededRandomness",
    "Space",
    "StackedChannel",
    "SumOfGuarantees",
    "SystemRandomness",
    "Tally",
    "TangentPlane",
    "WithinRadius",
    "bayesian_remap",
    "certify",
    "load_mechanism",
    "nearest_remap",
    "save_mechanism",
    "seeded",
]
