"""Guarantees as values: what a channel promises about two people d apart.

All are ℓ-privacy (NOISE, Def. 1): P(y|x) ≤ exp(ℓ(d(x, x′)))·P(y|x′) for all x, x′, y. They differ in ℓ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, count, finite, positive
from geoveil.errors import InvalidInput


class Guarantee(ABC):
    """A bound ℓ(d) on the privacy loss, in nats, between two people d kilometres apart.

    Guarantees add (several reports about one place), multiply by a number of reports, and compare
    with :meth:`implies`.
    """

    @abstractmethod
    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        """ℓ(d) in nats for each distance; 0 at distance 0."""

    @abstractmethod
    def sentence(self) -> str:
        """The promise in one plain sentence."""

    def level_within(self, radius_km: float) -> float:
        """The largest loss between two people at most ``radius_km`` apart, in nats."""
        return float(self.loss(positive("radius_km", radius_km)))

    def explain(self, distance_km: float, *, cell_diagonal_km: float = 0.0) -> str:
        """What the promise means for two people this far apart, in plain words.

        A promise between the centres of cells covers people anywhere in theirs at ℓ(d + diagonal).

        >>> GeoIndistinguishability(epsilon_per_km=2.0).explain(0.2)
        'Two people 200 m apart: any report is at most 1.49 times as likely from one as from the other.'
        """
        distance = positive("distance_km", distance_km)
        metres = f"{distance * 1000:.0f} m" if distance < 1 else f"{distance:.3g} km"
        where = ", anywhere in their cells" if cell_diagonal_km else ""
        level = float(self.loss(distance + cell_diagonal_km))
        if math.isinf(level):
            return f"Two people {metres} apart{where}: a report may tell them apart with certainty."
        factor = f"{math.exp(level):.3g}" if level < 50 else f"e^{level:.3g}"
        return (
            f"Two people {metres} apart{where}: any report is at most {factor} times as likely "
            "from one as from the other."
        )

    def implies(self, other: Guarantee) -> bool:
        """Whether this promise is at least as strong as ``other`` at every distance.

        Exact for the named guarantees and their sums, which are straight lines between their
        corners, 0 and ∞; for a general ℓ it is tested at 4,001 distances from a metre to 10,000 km.
        """
        ends = [1e-300, 1e-6, 1e300]
        distances = np.concatenate(
            (ends, np.geomspace(1e-3, 1e4, 4001), other._corners(), self._corners())
        )
        with np.errstate(over="ignore"):
            return bool((self.loss(distances) <= other.loss(distances) * (1 + 1e-12)).all())

    def _corners(self) -> FloatArray:
        """Distances at which ℓ jumps, and just beyond them."""
        return np.empty(0)

    def __add__(self, other: Guarantee) -> Guarantee:
        if not isinstance(other, Guarantee):
            return NotImplemented
        if type(self) is type(other):
            merged = self._plus(other)
            if merged is not None:
                return merged
        return _sum_of(self, other)

    def _plus(self, other: Any) -> Guarantee | None:
        """The sum as one guarantee of the same kind, where there is one."""
        return None

    def __mul__(self, reports: int) -> Guarantee:
        total: Guarantee = self
        for _ in range(count("reports", reports) - 1):
            total = total + self
        return total

    __rmul__ = __mul__

    def __str__(self) -> str:
        return self.sentence()


@dataclass(frozen=True)
class GeoIndistinguishability(Guarantee):
    """ℓ(d) = ε·d: the loss grows with distance, ε nats for every kilometre.

    >>> promise = GeoIndistinguishability(epsilon_per_km=2.0)
    >>> promise + promise
    GeoIndistinguishability(epsilon_per_km=4.0)
    >>> promise.level_within(0.5)
    1.0
    """

    epsilon_per_km: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon_per_km", finite("epsilon_per_km", self.epsilon_per_km))
        if self.epsilon_per_km < 0:
            raise InvalidInput(f"epsilon_per_km ({self.epsilon_per_km}) must not be negative")

    @classmethod
    def from_level(cls, *, level: float, radius_km: float) -> GeoIndistinguishability:
        """Loss at most ``level`` nats between people within ``radius_km``: ε = level / radius."""
        return cls(positive("level", level) / positive("radius_km", radius_km))

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        return self.epsilon_per_km * np.asarray(distance_km, dtype=np.float64)

    def sentence(self) -> str:
        return (
            f"geo-indistinguishability, ε = {self.epsilon_per_km:.6g} per km: "
            "the loss is at most ε times the distance"
        )

    def implies(self, other: Guarantee) -> bool:
        if isinstance(other, GeoIndistinguishability):
            return self.epsilon_per_km <= other.epsilon_per_km
        return super().implies(other)

    def __mul__(self, reports: int) -> GeoIndistinguishability:
        return GeoIndistinguishability(self.epsilon_per_km * count("reports", reports))

    def _plus(self, other: GeoIndistinguishability) -> Guarantee:
        return GeoIndistinguishability(self.epsilon_per_km + other.epsilon_per_km)


PerKilometre = GeoIndistinguishability
"""The same promise by its ℓ-privacy name: ℓ(d) = ε·d."""


@dataclass(frozen=True)
class LocalDifferentialPrivacy(Guarantee):
    """ℓ(d) = ε for every d > 0: no two cells can be told apart beyond ε, however far."""

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", finite("epsilon", self.epsilon))
        if self.epsilon < 0:
            raise InvalidInput(f"epsilon ({self.epsilon}) must not be negative")

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        return np.where(np.asarray(distance_km, dtype=np.float64) > 0, self.epsilon, 0.0)

    def sentence(self) -> str:
        return (
            f"local differential privacy, ε = {self.epsilon:.6g}: "
            "the loss is at most ε whatever the distance"
        )

    def implies(self, other: Guarantee) -> bool:
        if isinstance(other, LocalDifferentialPrivacy):
            return self.epsilon <= other.epsilon
        if isinstance(other, GeoIndistinguishability):
            return self.epsilon == 0
        return super().implies(other)

    def _plus(self, other: LocalDifferentialPrivacy) -> Guarantee:
        return LocalDifferentialPrivacy(self.epsilon + other.epsilon)


@dataclass(frozen=True)
class WithinRadius(Guarantee):
    """ℓ(d) = ε for 0 < d ≤ D and ∞ beyond: (D, ε)-location privacy."""

    radius_km: float
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius_km", positive("radius_km", self.radius_km))
        object.__setattr__(self, "epsilon", finite("epsilon", self.epsilon))
        if self.epsilon < 0:
            raise InvalidInput(f"epsilon ({self.epsilon}) must not be negative")

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        distance = np.asarray(distance_km, dtype=np.float64)
        near = np.where(distance > 0, self.epsilon, 0.0)
        return np.where(distance <= self.radius_km, near, np.inf)

    def sentence(self) -> str:
        return (
            f"location privacy within {self.radius_km:.6g} km, ε = {self.epsilon:.6g}: "
            "people no farther apart differ by at most ε; farther ones may be told apart"
        )

    def _corners(self) -> FloatArray:
        return np.array([self.radius_km, np.nextafter(self.radius_km, np.inf)])

    def _plus(self, other: WithinRadius) -> Guarantee | None:
        if self.radius_km == other.radius_km:
            return WithinRadius(self.radius_km, self.epsilon + other.epsilon)
        return None


@dataclass(frozen=True)
class GeneralPrivacy(Guarantee):
    """ℓ given as a function of the distance in km (vectorised, not negative, not decreasing)."""

    function: Callable[[FloatArray], FloatArray]
    name: str = "ℓ"

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        distance = np.asarray(distance_km, dtype=np.float64)
        values = np.asarray(self.function(distance), dtype=np.float64)
        return np.where(distance > 0, values, 0.0)

    def sentence(self) -> str:
        return f"ℓ-privacy with ℓ(d) = {self.name}"


def _sum_of(first: Guarantee, second: Guarantee) -> Guarantee:
    parts = [*_parts(first), *_parts(second)]
    return SumOfGuarantees(tuple(parts))


def _parts(guarantee: Guarantee) -> tuple[Guarantee, ...]:
    return guarantee.parts if isinstance(guarantee, SumOfGuarantees) else (guarantee,)


@dataclass(frozen=True)
class SumOfGuarantees(Guarantee):
    """Several reports under promises of different kinds: the losses add."""

    parts: tuple[Guarantee, ...]

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        return np.sum([part.loss(distance_km) for part in self.parts], axis=0)

    def sentence(self) -> str:
        return " plus ".join(part.sentence() for part in self.parts)

    def _corners(self) -> FloatArray:
        return np.concatenate([part._corners() for part in self.parts])


def weakest(guarantees: Sequence[Guarantee | None]) -> Guarantee | None:
    """The one guarantee that all the others imply; ``None`` where there is none, or somebody has none."""
    for candidate in guarantees:
        if candidate is not None and all(
            g is not None and g.implies(candidate) for g in guarantees
        ):
            return candidate
    return None
