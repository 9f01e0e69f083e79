"""Geoveil: tell a city where people are without learning where anyone is.

A mechanism is a channel, a channel is an operator with a guarantee, and a guarantee can be checked.
Every name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# fmt: off
# isort: off
if TYPE_CHECKING:
    from geoveil.channel.channel import Channel as Channel, Tally as Tally
    from geoveil.channel.composed import (
        DenseChannel as DenseChannel, Remapped as Remapped, StackedChannel as StackedChannel,
    )
    from geoveil.channel.guarantee import (
        BetweenPositions as BetweenPositions,
        GeneralPrivacy as GeneralPrivacy, GeoIndistinguishability as GeoIndistinguishability,
        Guarantee as Guarantee, LocalDifferentialPrivacy as LocalDifferentialPrivacy, PerKilometre
        as PerKilometre, WithinRadius as WithinRadius,
    )
    from geoveil.client.budget import Budget as Budget, BudgetSpent as BudgetSpent
    from geoveil.campaign.advice import advise as advise
    from geoveil.campaign.campaign import Campaign as Campaign
    from geoveil.campaign.elastic_design import blahut_arimoto as blahut_arimoto, elastic as elastic
    from geoveil.campaign.simulation import simulate as simulate
    from geoveil.channel.certificate import Certificate as Certificate, certify as certify
    from geoveil.document.exact import ExactTable as ExactTable
    from geoveil.document.saved import (
        load_mechanism as load_mechanism, save_mechanism as save_mechanism,
    )
    from geoveil.estimate.bayesian_update import (
        IterativeBayesianUpdate as IterativeBayesianUpdate,
    )
    from geoveil.estimate.uncertainty import Bootstrap as Bootstrap
    from geoveil.estimate.stopping import CrossValidated as CrossValidated
    from geoveil.estimate.em import ActiveSetNewton as ActiveSetNewton, Squarem as Squarem
    from geoveil.estimate.fitted import Estimate as Estimate
    from geoveil.estimate.linear import (
        MatrixInversion as MatrixInversion, RandomizedResponseEstimator as
        RandomizedResponseEstimator, RapporEstimator as RapporEstimator,
    )
    from geoveil.estimate.mixture import (
        AverageMechanism as AverageMechanism, AverageOfEstimates as AverageOfEstimates,
    )
    from geoveil.channel.joint import JointTally as JointTally
    from geoveil.estimate.stopping import (
        CertifiedWithin as CertifiedWithin, LikelihoodChange as LikelihoodChange, Steps as Steps,
    )
    from geoveil.estimate.uncertainty import FisherInformation as FisherInformation
    from geoveil.measure import (
        adversary_error_km as adversary_error_km, earth_movers_distance_km as
        earth_movers_distance_km, expected_loss as expected_loss, mean_distance_km as
        mean_distance_km, mutual_information_bits as mutual_information_bits, total_variation as
        total_variation,
    )
    from geoveil.mechanism.disc import Disc as Disc
    from geoveil.mechanism.elastic import Elastic as Elastic, Exponential as Exponential
    from geoveil.mechanism.local import RandomizedResponse as RandomizedResponse, Rappor as Rappor
    from geoveil.mechanism.planar import (
        ContinuousLaplace as ContinuousLaplace, LinearGeometric as LinearGeometric,
        PlanarGeometric as PlanarGeometric, PlanarLaplace as PlanarLaplace,
    )
    from geoveil.mechanism.remap import (
        BayesianPlace as BayesianPlace, NearestPlace as NearestPlace, bayesian_remap as
        bayesian_remap, nearest_remap as nearest_remap,
    )
    from geoveil.optimal.circular import CircularNoise as CircularNoise
    from geoveil.optimal.optimal_mechanism import optimal_mechanism as optimal_mechanism
    from geoveil.optimal.radial import optimal_noise as optimal_noise
    from geoveil.optimal.regularity import (
        Region as Region, applicable_theorems as applicable_theorems,
    )
    from geoveil.optimal.strategy import optimal_strategy as optimal_strategy
    from geoveil.position.positional import PositionalElastic as PositionalElastic
    from geoveil.randomness import Randomness as Randomness, seeded as seeded
    from geoveil.release.count_release import CountRelease as CountRelease
    from geoveil.release.comparator import leakage_curve as leakage_curve
    from geoveil.release.geometric_release import GeometricRelease as GeometricRelease
    from geoveil.space.box import Box as Box
    from geoveil.space.grid import Grid as Grid, Line as Line
    from geoveil.space.points import Hexagons as Hexagons, Points as Points
    from geoveil.space.space import (
        RadialLoss as RadialLoss, Space as Space, distance_km as distance_km, squared_distance_km2
        as squared_distance_km2,
    )
    from geoveil.table.obfuscation import obfuscate as obfuscate
    from geoveil.table.results import load_estimate as load_estimate
    from geoveil.table.tallies import load_tally as load_tally
    from geoveil.trips.trips import Trips as Trips
    from geoveil.verify.alarm import PoisoningAlarm as PoisoningAlarm
    from geoveil.verify.auditor import audit as audit
    from geoveil.verify.manipulation import manipulation_gain as manipulation_gain

_HOMES = {
    "channel.channel": ("Channel", "Tally",),
    "channel.composed": ("DenseChannel", "Remapped", "StackedChannel",),
    "channel.guarantee": (
        "BetweenPositions", "GeneralPrivacy", "GeoIndistinguishability", "Guarantee",
        "LocalDifferentialPrivacy", "PerKilometre", "WithinRadius",
    ),
    "channel.joint": ("JointTally",),
    "client.budget": ("Budget", "BudgetSpent",),
    "campaign.advice": ("advise",),
    "campaign.campaign": ("Campaign",),
    "campaign.elastic_design": ("blahut_arimoto", "elastic",),
    "campaign.simulation": ("simulate",),
    "channel.certificate": ("Certificate", "certify",),
    "document.exact": ("ExactTable",),
    "document.saved": ("load_mechanism", "save_mechanism",),
    "estimate.bayesian_update": ("IterativeBayesianUpdate",),
    "estimate.em": ("ActiveSetNewton", "Squarem",),
    "estimate.fitted": ("Estimate",),
    "estimate.linear": ("MatrixInversion", "RandomizedResponseEstimator", "RapporEstimator",),
    "estimate.mixture": ("AverageMechanism", "AverageOfEstimates",),
    "estimate.stopping": ("CertifiedWithin", "CrossValidated", "LikelihoodChange", "Steps",),
    "estimate.uncertainty": ("Bootstrap", "FisherInformation",),
    "measure": (
        "adversary_error_km", "earth_movers_distance_km", "expected_loss", "mean_distance_km",
        "mutual_information_bits", "total_variation",
    ),
    "mechanism.disc": ("Disc",),
    "mechanism.elastic": ("Elastic", "Exponential",),
    "mechanism.local": ("RandomizedResponse", "Rappor",),
    "mechanism.planar": (
        "ContinuousLaplace", "LinearGeometric", "PlanarGeometric", "PlanarLaplace",
    ),
    "mechanism.remap": ("BayesianPlace", "NearestPlace", "bayesian_remap", "nearest_remap",),
    "optimal.circular": ("CircularNoise",),
    "optimal.optimal_mechanism": ("optimal_mechanism",),
    "optimal.radial": ("optimal_noise",),
    "optimal.regularity": ("Region", "applicable_theorems",),
    "optimal.strategy": ("optimal_strategy",),
    "position.positional": ("PositionalElastic",),
    "randomness": ("Randomness", "seeded",),
    "release.count_release": ("CountRelease",),
    "release.comparator": ("leakage_curve",),
    "release.geometric_release": ("GeometricRelease",),
    "space.box": ("Box",),
    "space.grid": ("Grid", "Line",),
    "space.points": ("Hexagons", "Points",),
    "space.space": ("RadialLoss", "Space", "distance_km", "squared_distance_km2",),
    "table.obfuscation": ("obfuscate",),
    "table.results": ("load_estimate",),
    "table.tallies": ("load_tally",),
    "trips.trips": ("Trips",),
    "verify.alarm": ("PoisoningAlarm",),
    "verify.auditor": ("audit",),
    "verify.manipulation": ("manipulation_gain",),
}
"""The modules that hold the names of the library."""
# isort: on
# fmt: on

_HOME = {name: module for module, names in _HOMES.items() for name in names}
_PACKAGES = frozenset({"errors", *(module.partition(".")[0] for module in _HOMES)})

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in _PACKAGES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_HOME, *_PACKAGES, *(name for name in globals() if name.startswith("__"))})
