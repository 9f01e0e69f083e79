"""Guarantees as values: what a channel promises about two places d apart.

All are ℓ-privacy (NOISE, Def. 1): P(y|x) ≤ exp(ℓ(d(x, x′)))·P(y|x′) for all x, x′, y. They differ in ℓ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, able, count, finite, instance, lengths, positive
from geoveil.channel import words
from geoveil.errors import InvalidInput, Unsupported

_MOST_PARTS = 1 << 16
_TRIED_KM = tuple(np.geomspace(1e-3, 1e4, 4001))
"""Where a general ℓ is looked at."""
A_GUARANTEE = "a guarantee, such as gv.PerKilometre(1.0)"


class Guarantee(ABC):
    """A bound ℓ(d) on the privacy loss, in nats, between two places d apart that a channel tells apart.

    The places are cells, or exact positions where nobody is moved to a cell.

    Guarantees add (several reports about one place, distances counted in one unit), multiply by a
    number of reports, and compare with :meth:`implies`. Sums are exact: their order does not matter,
    and they do not drift.
    """

    between_positions: ClassVar[bool] = False
    """Whether the two places are where people stand, whatever their cells."""
    unit: ClassVar[str] = "km"
    """What d is counted in: of a channel's promise the unit of its space."""
    by_distance: ClassVar[bool] = True
    """Whether the loss depends on how far apart the places are, and so on the unit."""

    def counted_in(self, unit: str) -> Self:
        """The same promise about distances in another unit, with the same numbers."""
        promise = copy(self)
        object.__setattr__(promise, "unit", unit)
        return promise

    @abstractmethod
    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        """ℓ(d) in nats for each distance; 0 at distance 0."""

    @abstractmethod
    def sentence(self, unit: str | None = None) -> str:
        """The promise in one plain sentence; ``unit`` is that of the space, its own unless given."""

    def amount(self, unit: str | None = None) -> str:
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
        instance("other", other, Guarantee, A_GUARANTEE)
        if isinstance(other, BetweenPositions):  # a distance of cells says nothing about positions
            return isinstance(self, LocalDifferentialPrivacy) and self.epsilon <= other.slack
        ends = [1e-300, 1e-6, 1e300]
        distances = np.concatenate((ends, _TRIED_KM, other._corners(), self._corners()))
        with np.errstate(over="ignore"):
            return bool((self.loss(distances) <= other.loss(distances) * (1 + 1e-12)).all())

    def _corners(self) -> FloatArray:
        """Distances at which ℓ jumps, and just beyond them."""
        return np.empty(0)

    def __add__(self, other: Guarantee) -> Guarantee:
        if not isinstance(other, Guarantee):
            return NotImplemented
        total = SumOfGuarantees((self, other))
        return total if len(total.parts) > 1 else total.parts[0]

    def __mul__(self, reports: int) -> Guarantee:
        number = count("reports", reports, most=_MOST_PARTS)
        return self if number == 1 else SumOfGuarantees((self,) * number)

    def __rmul__(self, reports: int) -> Guarantee:
        return self * reports

    def __str__(self) -> str:
        return self.sentence(self.unit)


def as_written(value: float) -> Fraction:
    """The number that a float is written as: 0.1 is a tenth, and three of them are 0.3."""
    return Fraction(repr(float(value)))


def _no_less(exact: Fraction) -> float:
    """The nearest float to an exact number that is not written below it."""
    try:
        nearest = float(exact)
    except OverflowError:
        return math.inf
    return nearest if as_written(nearest) >= exact else math.nextafter(nearest, math.inf)


@dataclass(frozen=True)
class _WithEpsilon(Guarantee):
    """A guarantee by its ε, which is kept as an exact number beside the float it is shown as.

    The float of a sum is rounded up once; what is added and compared is the exact number.
    """

    exact: Fraction = field(init=False, repr=False)
    _name: ClassVar[str] = "epsilon"

    def __post_init__(self) -> None:
        epsilon = finite(self._name, getattr(self, self._name), least=0)
        object.__setattr__(self, self._name, epsilon)
        object.__setattr__(self, "exact", as_written(epsilon))

    def __mul__(self, reports: int) -> Self:
        return self._with(self.exact * count("reports", reports))

    def plus(self, other: Self) -> Self:
        """The sum with one of the same kind; ``+`` adds any two."""
        if type(other) is not type(self) or other._kind() != self._kind():
            raise InvalidInput(
                f"other ({other!r}) must be of the same kind as {self!r}; add them by +"
            )
        return self._with(self.exact + other.exact)

    def _with(self, exact: Fraction) -> Self:
        promise = copy(self)
        object.__setattr__(promise, self._name, finite(self._name, _no_less(exact)))
        object.__setattr__(promise, "exact", exact)
        return promise

    def _kind(self) -> Hashable:
        """Guarantees of one kind add up to one guarantee."""
        return type(self)


@dataclass(frozen=True)
class GeoIndistinguishability(_WithEpsilon):
    """ℓ(d) = ε·d: the loss grows with distance, ε nats for every kilometre.

    >>> promise = GeoIndistinguishability(epsilon_per_km=0.1)
    >>> promise + promise + promise == 3 * promise == GeoIndistinguishability(0.3)
    True
    >>> promise.level_within(0.5)
    0.05
    """

    epsilon_per_km: float
    _name: ClassVar[str] = "epsilon_per_km"

    @classmethod
    def exactly(cls, epsilon_per_km: Fraction) -> GeoIndistinguishability:
        """The promise of an exact ε, such as a sum that was kept; its float is rounded up."""
        return cls(0.0)._with(epsilon_per_km)

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        return self.epsilon_per_km * lengths("distance_km", distance_km)

    def sentence(self, unit: str | None = None) -> str:
        return (
            f"geo-indistinguishability, {self.amount(unit)}: the loss between two places that the "
            "mechanism tells apart is at most ε times their distance"
        )

    def amount(self, unit: str | None = None) -> str:
        return f"ε = {words.rounded_up(self.epsilon_per_km)} per {unit or self.unit}"

    def implies(self, other: Guarantee) -> bool:
        if isinstance(other, GeoIndistinguishability) and not isinstance(other, BetweenPositions):
            return self.exact <= other.exact
        return super().implies(other)


@dataclass(frozen=True)
class BetweenPositions(GeoIndistinguishability):
    """ℓ(d) = ε·d + η for any two positions, wherever they stand in their cells; η is the same at every d > 0.

    η stands for whole numbers: a position is taken to a fine lattice, and kernels are rounded.

    >>> promise = BetweenPositions(epsilon_per_km=2.0, slack=0.015)
    >>> promise + promise == 2 * promise == BetweenPositions(4.0, 0.03)
    True
    """

    slack: float = 0.0
    between_positions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "slack", finite("slack", self.slack, least=0))

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        distance = lengths("distance_km", distance_km)
        return np.where(distance > 0, super().loss(distance) + self.slack, 0.0)

    def sentence(self, unit: str | None = None) -> str:
        return (
            f"geo-indistinguishability between positions, {self.amount(unit)}: the loss between any two "
            "positions is at most ε times their distance, and what rounding adds"
        )

    def amount(self, unit: str | None = None) -> str:
        return f"{super().amount(unit)} and {words.rounded_up(self.slack, 2)} for rounding"

    def implies(self, other: Guarantee) -> bool:
        if isinstance(other, BetweenPositions):
            return self.exact <= other.exact and self.slack <= other.slack
        if isinstance(other, GeoIndistinguishability) and self.slack:  # which is more, near enough
            return False
        return super().implies(other)

    def __mul__(self, reports: int) -> Self:
        return super().__mul__(reports)._slackened(as_written(self.slack) * reports)

    def plus(self, other: Self) -> Self:
        total = super().plus(other)
        return total._slackened(as_written(self.slack) + as_written(other.slack))

    @classmethod
    def exactly(cls, epsilon_per_km: Fraction, slack: Fraction = Fraction(0)) -> BetweenPositions:
        """The promise of an exact ε and η, such as sums that were kept; their floats are rounded up."""
        return cls(0.0)._with(epsilon_per_km)._slackened(slack)

    def _slackened(self, slack: Fraction) -> Self:
        """This one, just made, with its slack."""
        object.__setattr__(self, "slack", _no_less(slack))
        return self


PerKilometre = GeoIndistinguishability
"""The same promise by its ℓ-privacy name: ℓ(d) = ε·d."""


@dataclass(frozen=True)
class LocalDifferentialPrivacy(_WithEpsilon):
    """ℓ(d) = ε for every d > 0: no two cells can be told apart beyond ε, however far."""

    epsilon: float
    by_distance: ClassVar[bool] = False

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        return np.where(lengths("distance_km", distance_km) > 0, self.epsilon, 0.0)

    def sentence(self, unit: str | None = None) -> str:
        return (
            f"local differential privacy, ε = {words.rounded_up(self.epsilon)}: "
            "the loss is at most ε whatever the distance"
        )

    def amount(self, unit: str | None = None) -> str:
        return f"ε = {words.rounded_up(self.epsilon)} whatever the distance"

    def implies(self, other: Guarantee) -> bool:
        if isinstance(other, LocalDifferentialPrivacy):
            return self.exact <= other.exact
        if isinstance(other, GeoIndistinguishability) and not isinstance(other, BetweenPositions):
            return self.epsilon == 0
        return super().implies(other)


@dataclass(frozen=True)
class WithinRadius(_WithEpsilon):
    """ℓ(d) = ε for 0 < d ≤ D and ∞ beyond: (D, ε)-location privacy."""

    radius_km: float
    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "radius_km", positive("radius_km", self.radius_km))

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        distance = lengths("distance_km", distance_km)
        near = np.where(distance > 0, self.epsilon, 0.0)
        return np.where(distance <= self.radius_km, near, np.inf)

    def sentence(self, unit: str | None = None) -> str:
        return (
            f"location privacy within {words.rounded_down(self.radius_km)} {unit or self.unit}, "
            f"ε = {words.rounded_up(self.epsilon)}: the loss between two places that the mechanism "
            "tells apart is at most ε if they are no farther from each other; farther ones may be "
            "told apart with certainty"
        )

    def amount(self, unit: str | None = None) -> str:
        within = words.rounded_down(self.radius_km)
        return f"ε = {words.rounded_up(self.epsilon)} between places within {within} {unit or self.unit}"

    def _corners(self) -> FloatArray:
        return np.array([self.radius_km, np.nextafter(self.radius_km, np.inf)])

    def _kind(self) -> Hashable:
        return type(self), self.radius_km


@dataclass(frozen=True)
class GeneralPrivacy(Guarantee):
    """ℓ given as a function of the distance in km (vectorised, not negative, not decreasing)."""

    function: Callable[[FloatArray], FloatArray]
    name: str = "ℓ"

    def __post_init__(self) -> None:
        such_as = "a function that gives ℓ(d) in nats for distances in km, such as np.sqrt"
        able("function", self.function, "__call__", such_as)
        with np.errstate(all="ignore"):
            self.loss(_TRIED_KM)

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        distance = lengths("distance_km", distance_km)
        values = np.asarray(self.function(distance), dtype=np.float64)
        if values.shape not in (distance.shape, ()):
            raise InvalidInput("privacy must give one number for every distance")
        return checked_losses(distance, np.where(distance > 0, values, 0.0))

    def sentence(self, unit: str | None = None) -> str:
        return f"{self.amount(unit)}, d in {unit or self.unit} between places that the mechanism tells apart"

    def amount(self, unit: str | None = None) -> str:
        return f"ℓ-privacy with ℓ(d) = {self.name}"


def checked_losses(distance_km: FloatArray, losses: FloatArray) -> FloatArray:
    """The losses of an ℓ at some distances; an error where one is no number, or negative."""
    if losses.shape != distance_km.shape or np.isnan(losses).any():
        raise InvalidInput("privacy must give one number for every distance")
    if (losses < 0).any():
        first = np.unravel_index(np.argmax(losses < 0), losses.shape)
        raise InvalidInput(
            f"privacy (ℓ({distance_km[first]:.6g} km) = {losses[first]:.6g}) must not be negative"
        )
    return losses


@dataclass(frozen=True)
class SumOfGuarantees(Guarantee):
    """Several reports under promises of different kinds: the losses add.

    Parts of one kind are added up, and stand in one order whatever the order they came in.
    """

    parts: tuple[Guarantee, ...]

    def __post_init__(self) -> None:
        alike: dict[Hashable, _WithEpsilon] = {}
        others: list[Guarantee] = []
        units = {part.unit for part in self._flat() if part.by_distance}
        if len(units) > 1:
            raise InvalidInput(
                f"guarantees that are added must count distances in one unit; these count in "
                f"{' and in '.join(sorted(units))}"
            )
        for part in self._flat():
            if isinstance(part, _WithEpsilon):
                kind = part._kind()
                alike[kind] = alike[kind].plus(part) if kind in alike else part
            else:
                others.append(part)
        together = sorted(
            [*alike.values(), *others], key=lambda part: (type(part).__name__, repr(part))
        )
        object.__setattr__(self, "parts", tuple(together))
        object.__setattr__(self, "unit", units.pop() if units else together[0].unit)

    def counted_in(self, unit: str) -> SumOfGuarantees:
        return SumOfGuarantees(tuple(part.counted_in(unit) for part in self.parts))

    def _flat(self) -> Iterator[Guarantee]:
        for part in self.parts:
            yield from part.parts if isinstance(part, SumOfGuarantees) else (part,)

    def __mul__(self, reports: int) -> SumOfGuarantees:
        return SumOfGuarantees(tuple(part * reports for part in self.parts))

    def loss(self, distance_km: npt.ArrayLike) -> FloatArray:
        return np.sum([part.loss(distance_km) for part in self.parts], axis=0)

    def sentence(self, unit: str | None = None) -> str:
        return f"{self.amount(unit)}: the losses between two places that the mechanism tells apart add up"

    def amount(self, unit: str | None = None) -> str:
        return " plus ".join(part.amount(unit or self.unit) for part in self.parts)

    def _corners(self) -> FloatArray:
        return np.concatenate([part._corners() for part in self.parts])


class Promising:
    """Something with a promise. It is a fact: fixed when the thing is made, or computed from its law."""

    _fixed: Guarantee | None

    @property
    def guarantee(self) -> Guarantee | None:
        """What it promises; ``None`` where that is nothing."""
        promise = self._promise()
        unit = self.space.unit if hasattr(self, "space") else "km"
        return promise if promise is None or promise.unit == unit else promise.counted_in(unit)

    @guarantee.setter
    def guarantee(self, promise: Guarantee | None) -> None:
        if hasattr(self, "_fixed") or type(self)._promise is not Promising._promise:
            raise Unsupported(
                "the guarantee of a channel cannot be changed, since its law does not change with it; "
                "certify(channel, claim=…) says whether another one holds"
            )
        self._fixed = checked_guarantee("guarantee", promise)

    def _promise(self) -> Guarantee | None:
        return getattr(self, "_fixed", None)


def checked_guarantee(name: str, value: Any) -> Guarantee | None:
    """The guarantee itself, or ``None`` for none; an error for anything else."""
    return None if value is None else instance(name, value, Guarantee, f"{A_GUARANTEE}, or None")


def weakest(guarantees: Sequence[Guarantee | None]) -> Guarantee | None:
    """The one guarantee that all the others imply; ``None`` where there is none, or somebody has none."""
    for candidate in guarantees:
        if candidate is not None and all(
            g is not None and g.implies(candidate) for g in guarantees
        ):
            return candidate
    return None
