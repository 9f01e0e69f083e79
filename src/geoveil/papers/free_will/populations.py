"""FREEWILL: people with different mechanisms, and what estimators make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Channel
from geoveil.channel.composed import AverageChannel
from geoveil.estimate.likelihood import DenseLikelihood, StackedLikelihood
from geoveil.estimate.linear import REPAIRS, LinearSystem
from geoveil.mechanism.linear_geometric import LinearGeometric
from geoveil.mechanism.local import RandomizedResponse
from geoveil.mechanism.planar import PlanarGeometric
from geoveil.optimal.strategy import optimal_strategy
from geoveil.papers.data import SAN_FRANCISCO, DataFolder, load_city
from geoveil.papers.repeated import (
    TOLERANCE,
    binomial,
    earth_movers,
    maximum_likelihood,
    people_of,
    repeated_counts,
)
from geoveil.papers.report import Setting
from geoveil.plot.curves import Curve
from geoveil.space.grid import Grid
from geoveil.space.line import Line
from geoveil.space.space import Space

Alphabet = Literal["linear", "planar"]
Kind = Literal["k-RR", "geometric", "geometric and k-RR", "Shokri's"]

RAPPOR = {
    "high privacy": tuple(level / 10 for level in range(1, 11)),
    "low privacy": tuple(float(level) for level in range(1, 11)),
}
"""Table 4."""

RESPONSE: dict[Alphabet, tuple[float, ...]] = {
    "linear": (3.00, 3.54, 3.96, 4.34, 4.69, 5.06, 5.46, 5.93, 6.60, 8.08),
    "planar": (3.05, 4.19, 4.81, 5.27, 5.67, 6.05, 6.44, 6.87, 7.40, 8.20),
}
"""Table 5."""

GEOMETRIC: dict[Alphabet, tuple[float, ...]] = {
    "linear": (0.020, 0.025, 0.031, 0.039, 0.050, 0.065, 0.088, 0.131, 0.236, 0.869),
    "planar": (0.190, 0.244, 0.310, 0.390, 0.493, 0.632, 0.835, 1.159, 1.762, 3.124),
}
"""Table 6, per unit and per kilometre."""

SHOKRI: dict[Alphabet, tuple[float, ...]] = {
    "linear": (1.0, 4.0, 7.0, 10.0, 13.0, 16.0, 19.0, 22.0, 24.5, 28.0),
    "planar": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4, 2.7, 3.0),
}
"""Table 8: bounds on the mean loss, in units and in kilometres."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Mechanisms over one space, and the true distribution of the people."""

    space: Space
    truth: FloatArray
    mechanisms: tuple[Channel, ...]
    invertible: bool = True
    """Whether inversion is one of the methods; for strategies the paper leaves it out."""


def mixture(kind: Kind, alphabet: Alphabet, data: DataFolder) -> Mixture:
    """The mixture of a kind, on 100 numbers in a row or on the cells of San Francisco."""
    space, truth = _alphabet(alphabet, data)
    if kind == "Shokri's":
        return Mixture(space, truth, _strategies(space, SHOKRI[alphabet]), invertible=False)
    response, geometric = RESPONSE[alphabet], GEOMETRIC[alphabet]
    made: list[Channel] = []
    if kind != "k-RR":
        chosen = geometric if kind == "geometric" else geometric[5:]
        made += _geometric(space, chosen)
    if kind != "geometric":
        chosen = response if kind == "k-RR" else response[:5]
        made += [RandomizedResponse(space, epsilon=level) for level in chosen]
    return Mixture(space, truth, tuple(made))


def _geometric(space: Space, levels: Sequence[float]) -> list[Channel]:
    if isinstance(space, Line):
        return [LinearGeometric(space, epsilon_per_unit=level) for level in levels]
    assert isinstance(space, Grid)
    return [PlanarGeometric(space, epsilon_per_km=level) for level in levels]


def _strategies(space: Space, limits: Sequence[float]) -> tuple[Channel, ...]:
    """Those of largest entropy for people of whom nothing is known: the paper's uniform profile."""
    profile = np.full(space.size, 1 / space.size)
    return tuple(optimal_strategy(space, profile, mean_loss_km=limit) for limit in limits)


def _alphabet(alphabet: Alphabet, data: DataFolder) -> tuple[Space, FloatArray]:
    """Binomial on 0 … 99, or the check-ins of San Francisco in cells of half a kilometre."""
    if alphabet == "linear":
        return Line(100), binomial(100)
    city = load_city(SAN_FRANCISCO, data)
    return Grid(rows=SAN_FRANCISCO.rows, columns=SAN_FRANCISCO.columns, cell_km=0.5), city.truth


# --- Everybody with a mechanism of their own, simulated: EMD of every method against the number of people


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
