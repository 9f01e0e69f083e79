"""Counts of a trusted aggregator, released with the least leakage for their accuracy."""

from geoveil.release import counts as _box
from geoveil.release.coarsening import MergedPlaces, even_groups, merge_least_visited
from geoveil.release.comparator import (
    ComparatorLeakage,
    GeometricCounting,
    NoisyCounts,
    SimpleCounting,
    comparator_leakage,
    matched,
)
from geoveil.release.count_release import CountRelease, LeakageChain
from geoveil.release.counts import CountVectors, number_of_vectors
from geoveil.release.curve import CurvePoint, leakage_curve
from geoveil.release.groups import GroupedRelease
from geoveil.release.optimum import ReleaseDesign
from geoveil.release.prior import CountLaw, Prior

__all__ = [
    "ComparatorLeakage",
    "CountLaw",
    "CountRelease",
    "CountVectors",
    "CurvePoint",
    "GeometricCounting",
    "GroupedRelease",
    "LeakageChain",
    "MergedPlaces",
    "NoisyCounts",
    "Prior",
    "ReleaseDesign",
    "SimpleCounting",
    "comparator_leakage",
    "even_groups",
    "leakage_curve",
    "matched",
    "merge_least_visited",
    "number_of_vectors",
]

del _box
