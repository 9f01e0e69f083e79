"""Everybody with a mechanism of their own, simulated: EMD of every method against the number of people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.average import AverageChannel
from geoveil.estimate.likelihood import DenseLikelihood, StackedLikelihood
from geoveil.estimate.simplex import REPAIRS
from geoveil.estimate.system import LinearSystem
from geoveil.papers.data import DataFolder
from geoveil.papers.free_will.mixtures import Alphabet, Kind, Mixture, mixture
from geoveil.papers.repeated import (
    TOLERANCE,
    earth_movers,
    maximum_likelihood,
    people_of,
    repeated_counts,
)
from geoveil.papers.report import Setting
from geoveil.plot.curves import Curve

GENERAL = "GIBU"
RESULTS = ("[INV]_R, normalised", "[INV]_R, projected", "[IBU]_R")
INVERTED = ("[INV]_M, normalised", "[INV]_M, projected")
UPDATED = "[IBU]_M"

PEOPLE = (1_000, 3_000, 10_000, 30_000, 100_000)
QUICK_PEOPLE = (1_000, 10_000, 100_000)
REPETITIONS, QUICK_REPETITIONS = 20, 3
_REPAIRS = tuple(REPAIRS[name] for name in ("normalise", "project"))


@dataclass(frozen=True, eq=False)
class Methods:
    """All methods for one mixture; factorisations and matrices are made once."""

    mixture: Mixture
    tolerance: float = TOLERANCE

    @cached_property
    def _parts(self) -> list[DenseLikelihood]:
        return [DenseLikelihood(each.matrix()) for each in self.mixture.mechanisms]

    @cached_property
    def _systems(self) -> list[LinearSystem]:
        return [LinearSystem(each) for each in self.mixture.mechanisms]

    @cached_property
    def _average(self) -> AverageChannel:
        number = len(self.mixture.mechanisms)
        return AverageChannel(self.mixture.mechanisms, np.full(number, 1 / number))

    @cached_property
    def _average_system(self) -> LinearSystem:
        return LinearSystem(self._average)

    @cached_property
    def _average_part(self) -> DenseLikelihood:
        return DenseLikelihood(self._average.matrix())

    def general(self, counts: list[IntArray]) -> dict[str, FloatArray]:
        """GIBU: the columns of all mechanisms side by side."""
        together = StackedLikelihood(self._parts)
        side_by_side = DenseLikelihood(together.columns(np.arange(together.observations)))
        found = maximum_likelihood(side_by_side, np.concatenate(counts, axis=1), self.tolerance)
        return {GENERAL: found}

    def combined_results(self, counts: list[IntArray]) -> dict[str, FloatArray]:
        """[INV]_R and [IBU]_R: an estimate for each mechanism, then their mean (eqs. 4 and 5)."""
        updated = [
            maximum_likelihood(part, each, self.tolerance)
            for part, each in zip(self._parts, counts, strict=True)
        ]
        found = {RESULTS[-1]: np.mean(updated, axis=0)}
        if self.mixture.invertible:
            solved = [
                system.solve(_shares(each))
                for system, each in zip(self._systems, counts, strict=True)
            ]
            for name, repair in zip(RESULTS[:-1], _REPAIRS, strict=True):
                found[name] = np.mean([_rows(repair, each) for each in solved], axis=0)
        return found

    def combined_mechanisms(self, counts: list[IntArray]) -> dict[str, FloatArray]:
        """[INV]_M and [IBU]_M: one estimate under the average mechanism (eq. 7)."""
        pooled = np.sum(counts, axis=0)
        found = {UPDATED: maximum_likelihood(self._average_part, pooled, self.tolerance)}
        if self.mixture.invertible:
            solved = self._average_system.solve(_shares(pooled))
            for name, repair in zip(INVERTED, _REPAIRS, strict=True):
                found[name] = _rows(repair, solved)
        return found


@dataclass(frozen=True, eq=False)
class Simulated:
    """EMD (sizes, repetitions) by method, in the unit of the space."""

    people: tuple[int, ...]
    errors: dict[str, FloatArray]
    units: str

    def curve(self, method: str) -> Curve:
        """The error of a method against the number of people."""
        return Curve(method, np.array(self.people, dtype=np.float64), self.errors[method].T)

    def final(self, method: str) -> float:
        """The mean error with the most people."""
        return float(self.errors[method][-1].mean())

    def least(self, methods: Sequence[str]) -> FloatArray:
        """The least mean error of the methods, for each number of people."""
        return np.min([self.errors[method].mean(axis=1) for method in methods], axis=0)

    def behind(self, methods: Sequence[str]) -> float:
        """The least error of the methods over that of GIBU, averaged over the numbers of people."""
        return float((self.least(methods) / self.errors[GENERAL].mean(axis=1)).mean())


@dataclass(frozen=True)
class Asked:
    """What is simulated; whom to tell is no part of it."""

    kind: Kind
    alphabet: Alphabet
    data: DataFolder
    quick: bool
    seed: int
    progress: Callable[[float | None, str], None] = field(compare=False)


def simulated(kind: Kind, alphabet: Alphabet, setting: Setting) -> Simulated:
    """The simulation of a mixture, kept for the other figures that show it."""
    asked = Asked(kind, alphabet, setting.data, setting.quick, setting.seed, setting.progress)
    return _simulated(asked)


@lru_cache(maxsize=16)
def _simulated(asked: Asked) -> Simulated:
    made = mixture(asked.kind, asked.alphabet, asked.data)
    methods = Methods(made, 10 * TOLERANCE if asked.quick else TOLERANCE)
    people = QUICK_PEOPLE if asked.quick else PEOPLE
    errors: dict[str, list[FloatArray]] = {}
    for number, size in enumerate(people):
        asked.progress(number / len(people), f"{asked.kind}, {asked.alphabet}, {size:,} people")
        counts = _counts(made, size, asked)
        found = methods.general(counts) | methods.combined_mechanisms(counts)
        if asked.alphabet == "linear":  # the paper shows combined results there only
            found |= methods.combined_results(counts)
        for method, each in found.items():
            errors.setdefault(method, []).append(earth_movers(each, made.truth, made.space))
    arrays = {method: np.array(each) for method, each in errors.items()}
    return Simulated(people, arrays, "units" if asked.alphabet == "linear" else "km")


def _counts(made: Mixture, size: int, asked: Asked) -> list[IntArray]:
    """(repetitions, reports) for each mechanism, which an equal share of the people uses."""
    repetitions = QUICK_REPETITIONS if asked.quick else REPETITIONS
    draw = people_of(made.truth, size // len(made.mechanisms))
    return [
        repeated_counts(mechanism, draw, repetitions, asked.seed + 100 * number + size)
        for number, mechanism in enumerate(made.mechanisms)
    ]


def _shares(counts: IntArray) -> FloatArray:
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _rows(repair: Callable[[FloatArray], FloatArray], solved: FloatArray) -> FloatArray:
    return np.stack([repair(row) for row in solved])
