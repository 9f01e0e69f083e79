"""Channels on count vectors: the release itself, and noise on every count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

import geoveil as gv
from contract import formulas
from contract.channels import Case, ChannelContract
from geoveil.release import CountVectors, GeometricCounting, NoisyCounts, SimpleCounting

SIZES = [(1, 1), (3, 1), (4, 2), (4, 3), (2, 4)]
FREQUENT = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9]) / 77.0


def listed(people: int, places: int) -> np.ndarray:
    """All count vectors by trying every assignment of counts."""
    tried = itertools.product(range(people + 1), repeat=places)
    return np.array([counts for counts in tried if sum(counts) == people])


def distances(vectors: np.ndarray) -> np.ndarray:
    return np.array([[math.dist(a, b) for b in vectors] for a in vectors])


def nearest(noisy: tuple[int, ...], vectors: np.ndarray) -> np.ndarray:
    """Equal shares for all valid vectors nearest to a noisy one."""
    squares = np.square(vectors - np.array(noisy)).sum(axis=1)
    return (squares == squares.min()) / (squares == squares.min()).sum()


def noise_formula(
    people: int, places: int, one: Callable[[int], float], reach: int = 400
) -> np.ndarray:
    """P(ã | a) from the law of one noise ``one(k)``, clamped, then the nearest vectors."""
    vectors = listed(people, places)
    count = np.zeros((people + 1, people + 1))
    for true in range(people + 1):
        for step in range(-reach, reach + 1):
            count[true, min(max(true + step, 0), people)] += one(step)
    matrix = np.zeros((len(vectors), len(vectors)))
    for noisy in itertools.product(range(people + 1), repeat=places):
        share = nearest(noisy, vectors)
        for number, true in enumerate(vectors):
            matrix[number] += (
                math.prod(count[a, z] for a, z in zip(true, noisy, strict=True)) * share
            )
    return matrix


class TestRelease(ChannelContract):
    @staticmethod
    def cases() -> dict[str, Case]:
        def made(people: int, places: int, weights: np.ndarray | None) -> Case:
            vectors = listed(people, places)
            return Case(
                lambda: gv.Elastic(CountVectors(people, places), beta_per_km=0.9, weights=weights),
                lambda: formulas.elastic(distances(vectors), 0.9, weights),
                lambda: distances(vectors),
            )

        weighted = {"4 × 3, weights": made(4, 3, FREQUENT)}
        return weighted | {f"{m} × {k}": made(m, k, None) for m, k in SIZES}


def counting_cases(kind: type[NoisyCounts], one: Callable[[int, float], float]) -> dict[str, Case]:
    def made(people: int, places: int, epsilon: float) -> Case:
        return Case(
            lambda: kind(CountVectors(people, places), epsilon=epsilon),
            lambda: noise_formula(people, places, lambda k: one(k, epsilon)),
            lambda: distances(listed(people, places)),
        )

    return {f"{m} × {k}, ε = {e}": made(m, k, e) for m, k in SIZES[2:] for e in (0.3, 1.5)}


class TestSimpleCounting(ChannelContract):
    documented = False

    @staticmethod
    def cases() -> dict[str, Case]:
        def rounded_laplace(k: int, epsilon: float) -> float:
            if k == 0:
                return 1 - math.exp(-epsilon / 2)
            return math.exp(-epsilon * abs(k)) * math.sinh(epsilon / 2)

        return counting_cases(SimpleCounting, rounded_laplace)


class TestGeometricCounting(ChannelContract):
    documented = False

    @staticmethod
    def cases() -> dict[str, Case]:
        return counting_cases(
            GeometricCounting,
            lambda k, epsilon: math.tanh(epsilon / 2) * math.exp(-epsilon * abs(k)),
        )
