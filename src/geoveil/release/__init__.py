"""Counts of a trusted aggregator, released with the least leakage for their accuracy."""

# fmt: off
# isort: off
from geoveil.release.comparator import (
    CurvePoint, GeometricCounting, NoisyCounts, SimpleCounting, comparator_leakage, leakage_curve, matched,
)
from geoveil.release.count_release import CountRelease, GroupedRelease, LeakageChain, even_groups
from geoveil.release.counts import CountVectors, number_of_vectors
from geoveil.release.optimum import ReleaseDesign
from geoveil.release.prior import CountLaw, MergedPlaces, Prior, merge_least_visited

__all__ = [
    "CountLaw", "CountRelease", "CountVectors", "CurvePoint", "GeometricCounting",
    "GroupedRelease", "LeakageChain", "MergedPlaces", "NoisyCounts", "Prior",
    "ReleaseDesign", "SimpleCounting", "comparator_leakage", "even_groups", "leakage_curve", "matched",
    "merge_least_visited", "number_of_vectors",
]
# isort: on
# fmt: on
