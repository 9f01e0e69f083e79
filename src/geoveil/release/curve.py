"""The leakage–distortion curve: what accuracy costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from geoveil.errors import InvalidInput, TooLarge
from geoveil.release.comparator import NoisyCounts, comparator_leakage, matched
from geoveil.release.count_release import CountRelease
from geoveil.release.optimum import ReleaseDesign

MULTIPLIERS = tuple(float(rate) for rate in np.geomspace(0.25, 4.0, 9).round(4))
"""Multipliers between almost nothing told and almost nothing changed, for counts of tens."""

Kind = type[NoisyCounts]


@dataclass(frozen=True)
class CurvePoint:
    """One release of the curve, and what comparators leak at the same distortion, by name."""

    multiplier: float
    distortion: float
    leakage_bits: float
    certificate_nats: float
    personal_bits: float
    comparators_bits: dict[str, float]


def leakage_curve(
    build: Callable[[float], CountRelease],
    multipliers: Sequence[float] = MULTIPLIERS,
    comparators: Sequence[Kind] = (),
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[CurvePoint]:
    """The release ``build(multiplier)`` at each multiplier, beside comparators tuned to its distortion.

    A comparator is left out where its noisy vectors cannot be listed, or its ε would leave the range.
    """
    points = []
    for number, multiplier in enumerate(multipliers):
        progress(number, len(multipliers))
        release = build(multiplier)
        points.append(
            CurvePoint(
                multiplier,
                release.distortion,
                release.leakage_bits,
                release.certificate_nats,
                release.most_personal_leakage_bits,
                _beside(release, comparators),
            )
        )
    return points


def _beside(release: CountRelease, comparators: Sequence[Kind]) -> dict[str, float]:
    """The leakage of each comparator at the distortion of a release, timestamp by timestamp."""
    found: dict[str, float] = {}
    for kind in comparators:
        try:
            told = {made: _at_equal_distortion(kind, made) for made in set(release.designs)}
        except (TooLarge, InvalidInput):
            continue
        found[kind.name] = sum(told[made] for made in release.designs)
    return found


def _at_equal_distortion(kind: Kind, design: ReleaseDesign) -> float:
    law = design.law
    if not law.is_whole:
        raise TooLarge("a comparator must have all count vectors listed")
    tuned = matched(kind, law.vectors, law.probabilities, distortion=design.distortion)
    return comparator_leakage(tuned, law.probabilities).bits
