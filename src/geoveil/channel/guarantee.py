"""Guarantees as values: what a channel promises about two places d apart.

All are ℓ-privacy (NOISE, Def. 1): P(y|x) ≤ exp(ℓ(d(x, x′)))·P(y|x′) for all x, x′, y. They differ in ℓ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, count, finite, positive
from geoveil.channel import words
from geoveil.errors import InvalidInput


class Guarantee(ABC):
    """A bound ℓ(d) on the privacy loss, in nats, between two places d apart that a channel tells apart.

    The places are cells, or exact positions where nobody is moved to a cell.

    Guarantees add (several reports about one place), multiply by a number of reports, and compare
    with :meth:`implies`.
    """

    @abstractmethod
    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        """ℓ(d) in nats for each distance; 0 at distance 0."""

    @abstractmethod
    def sentence(self, unit: str = "km") -> str:
        """The promise in one plain sentence; ``unit`` is that of the space."""

    def amount(self, unit: str = "km") -> str:
        """How much it is, in a few words."""
        return self.sentence(unit)

    def level_within(self, radius_km: float) -> float:
        """The largest loss between two places at most ``radius_km`` apart, in nats."""
        return float(self.loss(positive("radius_km", radius_km)))

    def explain(self, distance_km: float) -> str:
        """What the promise means between two places that a channel tells apart, in plain words.

        How far apart the places of two people are only a mechanism knows: its own ``explain`` speaks
        of people.

        >>> print(GeoIndistinguishability(epsilon_per_km=2.0).explain(0.2))
        Two places 200 m apart that the mechanism tells apart: any report is at most 1.5 times as \
        likely from one as from the other; of 100 such reports from one, at least 67 on average \
        would also come from the other.
        """
        return words.between_places(self, distance_km)

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
        """Loss at most ``level`` nats between places within ``radius_km``: ε = level / radius."""
        return cls(positive("level", level) / positive("radius_km", radius_km))

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        return self.epsilon_per_km * np.asarray(distance_km, dtype=np.float64)

    def sentence(self, unit: str = "km") -> str:
        return (
            f"geo-indistinguishability, {self.amount(unit)}: the loss between two places that the "
            "mechanism tells apart is at most ε times their distance"
        )

    def amount(self, unit: str = "km") -> str:
        return f"ε = {words.rounded_up(self.epsilon_per_km)} per {unit}"

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

    def sentence(self, unit: str = "km") -> str:
        return (
            f"local differential privacy, ε = {words.rounded_up(self.epsilon)}: "
            "the loss is at most ε whatever the distance"
        )

    def amount(self, unit: str = "km") -> str:
        return f"ε = {words.rounded_up(self.epsilon)} whatever the distance"

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

    def sentence(self, unit: str = "km") -> str:
        return (
            f"location privacy within {words.rounded_down(self.radius_km)} {unit}, "
            f"ε = {words.rounded_up(self.epsilon)}: the loss between two places that the mechanism "
            "tells apart is at most ε if they are no farther from each other; farther ones may be "
            "told apart with certainty"
        )

    def amount(self, unit: str = "km") -> str:
        within = words.rounded_down(self.radius_km)
        return f"ε = {words.rounded_up(self.epsilon)} between places within {within} {unit}"

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

    def sentence(self, unit: str = "km") -> str:
        return f"{self.amount(unit)}, d in {unit} between places that the mechanism tells apart"

    def amount(self, unit: str = "km") -> str:
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

    def sentence(self, unit: str = "km") -> str:
        return f"{self.amount(unit)}: the losses between two places that the mechanism tells apart add up"

    def amount(self, unit: str = "km") -> str:
        return " plus ".join(part.amount(unit) for part in self.parts)

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
