"""Counts of a trusted aggregator, released with the least leakage for their accuracy."""

# fmt: off
# isort: off
from geoveil.release.comparator import (
    ComparatorLeakage, CurvePoint, GeometricCounting, NoisyCounts, SimpleCounting, comparator_leakage,
    leakage_curve, matched,
)
from geoveil.release.count_release import CountRelease, GroupedRelease, LeakageChain, even_groups
from geoveil.release.geometric_release import GeometricRelease
from geoveil.release.counts import CountVectors, number_of_vectors
from geoveil.release.optimum import ReleaseDesign
from geoveil.release.prior import CountLaw, MergedPlaces, Prior, merge_least_visited

__all__ = [
    "ComparatorLeakage", "CountLaw", "CountRelease", "CountVectors", "CurvePoint", "GeometricCounting",
    "GeometricRelease", "GroupedRelease", "LeakageChain", "MergedPlaces", "NoisyCounts", "Prior",
    "ReleaseDesign", "SimpleCounting", "comparator_leakage", "even_groups", "leakage_curve", "matched",
    "merge_least_visited", "number_of_vectors",
]
# isort: on
# fmt: on
