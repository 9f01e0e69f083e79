"""The priors and cases of the paper, and the curves that its figures are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.papers.report import Setting
from geoveil.release import (
    CountRelease,
    CurvePoint,
    GeometricCounting,
    SimpleCounting,
    leakage_curve,
)

THRESHOLD = 1e-3
"""Nats; the paper's threshold for convergence."""

PRIORS: Mapping[str, Sequence[float]] = {
    "p1": (1 / 3, 1 / 3, 1 / 3),
    "p2": (0.25, 0.5, 0.25),
    "p3": (0.1, 0.1, 0.8),
    "p4": (0.8, 0.1, 0.1),
}
_EVEN, _FIRST, _SECOND, _THIRD = PRIORS["p1"], PRIORS["p4"], (0.1, 0.8, 0.1), PRIORS["p3"]
CASES: Mapping[str, Sequence[Sequence[float]]] = {
    "C1": (_EVEN,) * 5,
    "C2": (
        (0.421, 0.129, 0.450),
        (0.415, 0.219, 0.366),
        (0.188, 0.777, 0.035),
        (0.659, 0.110, 0.231),
        (0.449, 0.379, 0.172),
    ),
    "C3": (
        (0.06, 0.9, 0.04),
        (0.8, 0.1, 0.1),
        (0.2, 0.7, 0.1),
        (0.1, 0.05, 0.85),
        (0.75, 0.15, 0.1),
    ),
    "C4": (_FIRST, _EVEN, _EVEN, _EVEN, _EVEN),
    "C5": (_SECOND, _THIRD, _FIRST, _EVEN, _EVEN),
    "C6": (_SECOND, _THIRD, _SECOND, _THIRD, _FIRST),
}
MULTIPLIERS = (0.4, 0.5, 0.63, 0.8, 1.0, 1.26, 1.6, 2.0, 2.5, 3.2, 4.0)
QUICK_MULTIPLIERS = (0.5, 1.0, 2.0)
COLUMNS = (
    "λ",
    "distortion (people)",
    "leakage (bits)",
    "certificate (nats)",
    "most about one person (bits)",
    "SCM at equal distortion (bits)",
    "geometric at equal distortion (bits)",
    "certified optimum: distortion",
    "certified optimum: leakage (bits)",
)


@dataclass(frozen=True)
class Series:
    """One curve of the paper: Algorithm 1 with its threshold, and the certified optimum beside it."""

    name: str
    points: Sequence[CurvePoint]
    optimum: Sequence[CurvePoint]

    def rows(self) -> list[list[float | None]]:
        """One row for each multiplier, in the order of ``COLUMNS``."""
        return [
            [
                point.multiplier,
                point.distortion,
                point.leakage_bits,
                point.certificate_nats,
                point.personal_bits,
                point.comparators_bits.get(SimpleCounting.name),
                point.comparators_bits.get(GeometricCounting.name),
                best.distortion,
                best.leakage_bits,
            ]
            for point, best in zip(self.points, self.optimum, strict=True)
        ]

    @property
    def distortion(self) -> FloatArray:
        """E d(A, Ã) along the curve, in people."""
        return np.array([point.distortion for point in self.points])

    @property
    def leakage_bits(self) -> FloatArray:
        """I(A; Ã) along the curve."""
        return np.array([point.leakage_bits for point in self.points])

    def leakage_at(self, distortion: FloatArray) -> FloatArray:
        """The leakage at given distortions, between the points of the optimum."""
        found = sorted((point.distortion, point.leakage_bits) for point in self.optimum)
        return np.interp(distortion, *np.transpose(found))

    def ratio_at(self, multiplier: float) -> float:
        """How many times as much the simple counting mechanism leaks at the distortion of a multiplier."""
        (point,) = (point for point in self.points if point.multiplier == multiplier)
        return point.comparators_bits[SimpleCounting.name] / point.leakage_bits


def series(setting: Setting, name: str, people: int, prior: npt.ArrayLike) -> Series:
    """The curve of Algorithm 1 for one prior or one row per person, comparators tuned to it."""
    multipliers = QUICK_MULTIPLIERS if setting.quick else MULTIPLIERS

    def published(rate: float) -> CountRelease:
        return CountRelease.as_published(
            people=people, prior=prior, multiplier=rate, threshold=THRESHOLD
        )

    def certified(rate: float) -> CountRelease:
        return CountRelease(people=people, prior=prior, multiplier=rate)

    points = leakage_curve(published, multipliers, (SimpleCounting, GeometricCounting))
    return Series(name, points, leakage_curve(certified, multipliers))


def disorder_bits(*curves: Series) -> float:
    """By how much any curve leaks more than the one before it at a distortion that all have; 0 if none."""
    lowest = max(float(curve.distortion.min()) for curve in curves)
    highest = min(float(curve.distortion.max()) for curve in curves)
    shared = np.linspace(lowest, highest, 25)
    levels = np.stack([curve.leakage_at(shared) for curve in curves])
    return max(0.0, float(np.diff(levels, axis=0).max()))
