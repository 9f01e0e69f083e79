"""The mechanisms: each states its law, guarantee and reference."""

from typing import Any

from geoveil.mechanism.disc import Disc
from geoveil.mechanism.elastic import Elastic, Exponential
from geoveil.mechanism.local import RandomizedResponse, Rappor
from geoveil.mechanism.mechanism import Mechanism
from geoveil.mechanism.planar import (
    ContinuousLaplace,
    LinearGeometric,
    PlanarGeometric,
    PlanarLaplace,
)
from geoveil.mechanism.remap import bayesian_remap, nearest_remap

MECHANISMS: dict[str, Any] = {
    kind.name: kind
    for kind in (
        PlanarGeometric, PlanarLaplace, ContinuousLaplace, Exponential, Elastic, RandomizedResponse,
        Rappor, Disc, LinearGeometric,
    )
}  # fmt: skip
"""Every mechanism by the name that documents and the command line use."""

__all__ = [
    "MECHANISMS", "ContinuousLaplace", "Disc", "Elastic", "Exponential", "LinearGeometric",
    "Mechanism", "PlanarGeometric", "PlanarLaplace", "RandomizedResponse", "Rappor", "bayesian_remap",
    "nearest_remap",
]  # fmt: skip
