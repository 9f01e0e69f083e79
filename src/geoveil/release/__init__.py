"""Counts of a trusted aggregator, released with the least leakage for their accuracy."""

from geoveil.release import box as _box  # products on count vectors are registered there
from geoveil.release.coarsening import MergedPlaces, even_groups, merge_least_visited
from geoveil.release.comparator import (
    ComparatorLeakage,
    GeometricCounting,
    NoisyCounts,
    SimpleCounting,
    comparator_leakage,
    matched,
)
from geoveil.release.counts import CountVectors, number_of_vectors
from geoveil.release.curve import CurvePoint, leakage_curve
from geoveil.release.design import ReleaseDesign
from geoveil.release.groups import GroupedRelease
from geoveil.release.law import CountLaw
from geoveil.release.personal import LeakageChain
from geoveil.release.prior import Prior
from geoveil.release.release import CountRelease

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
