"""What is known of an ℓ and a region: regularity, and which theorems apply.

Circular noise looks the same from every side, so of a region only the lengths of its displacements
matter (NOISE, Theorem 4), and the largest disk inside it (Theorems 6 and 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from geoveil.arrays import ArrayLike, FloatArray, frozen, instance, lengths, positive, yes_or_no
from geoveil.channel.guarantee import (
    A_GUARANTEE,
    BetweenPositions,
    GeoIndistinguishability,
    Guarantee,
    checked_losses,
)
from geoveil.channel.words import rounded_down, rounded_up
from geoveil.errors import InvalidInput
from geoveil.space import Box, Space
from geoveil.space.space import checked_space

_TOLERANCE = 1e-9
_STEPS = 240  # distances per scale at which sums are compared
_SCALES_KM = np.geomspace(1e-4, 1e4, 17)


@dataclass(frozen=True)
class TablePrivacy(Guarantee):
    """ℓ by a table: a loss of at most ``losses[i]`` up to ``distances_km[i]``, and ∞ beyond the last.

    >>> near_and_far = TablePrivacy(distances_km=(0.5, 2.0), losses=(0.5, 1.0))
    >>> near_and_far.loss([0.0, 0.3, 0.5, 1.0, 3.0]).tolist()
    [0.0, 0.5, 0.5, 1.0, inf]
    """

    distances_km: Sequence[float]
    losses: Sequence[float]

    def __post_init__(self) -> None:
        for name, least in (("distances_km", np.nextafter(0, 1)), ("losses", 0.0)):
            numbers = np.asarray(getattr(self, name), dtype=np.float64)
            if numbers.ndim != 1 or numbers.size == 0 or not np.isfinite(numbers).all():
                raise InvalidInput(f"{name} must be a list of finite numbers")
            if (numbers < 0).any():
                raise InvalidInput(f"{name} must not be negative")
            falls = np.diff(numbers) < least  # two distances must differ, two losses need not
            if falls.any():
                position = int(np.argmax(falls)) + 1
                raise InvalidInput(
                    f"{name} must increase; the entry at position {position} does not"
                )
            object.__setattr__(self, name, tuple(numbers.tolist()))
        if len(self.distances_km) != len(self.losses):
            raise InvalidInput(
                f"losses ({len(self.losses)}) must be as many as distances_km "
                f"({len(self.distances_km)})"
            )
        if self.distances_km[0] <= 0:
            raise InvalidInput("distances_km must be above 0")

    def loss(self, distance_km: ArrayLike) -> FloatArray:
        distance = lengths("distance_km", distance_km)
        values = np.append(self.losses, math.inf)
        losses = values[np.searchsorted(self.distances_km, distance, side="left")]
        return np.where(distance > 0, losses, 0.0)

    def sentence(self, unit: str | None = None) -> str:
        parts = zip(self.losses, self.distances_km, strict=True)
        listed = ", ".join(
            f"{rounded_up(loss)} up to {rounded_down(distance)} {unit or self.unit}"
            for loss, distance in parts
        )
        return (
            "ℓ-privacy: the loss between two places that the mechanism tells apart is at most "
            f"{listed}; farther ones may be told apart with certainty"
        )

    def _corners(self) -> FloatArray:
        corners = np.asarray(self.distances_km)
        return np.concatenate([corners, np.nextafter(corners, np.inf)])


@dataclass(frozen=True)
class WithinRegion(Guarantee):
    """Another ℓ for people who never leave a region: ∞ beyond its diameter, where nobody else can be."""

    privacy: Guarantee
    diameter_km: float

    def loss(self, distance_km: ArrayLike) -> FloatArray:
        distance = lengths("distance_km", distance_km)
        return np.where(distance <= self.diameter_km, self.privacy.loss(distance), math.inf)

    def sentence(self, unit: str | None = None) -> str:
        wide = f"{rounded_down(self.diameter_km)} {unit or self.unit}"
        return f"{self.privacy.sentence(unit or self.unit)}, in a region of diameter {wide}"

    def _corners(self) -> FloatArray:
        edge = [self.diameter_km, np.nextafter(self.diameter_km, np.inf)]
        return np.concatenate([self.privacy._corners(), edge])


def check_increasing(privacy: Guarantee) -> None:
    """Refuse an ℓ that is negative, falls somewhere, or is no number; tested at 4,000 distances.

    >>> from geoveil.channel.guarantee import GeneralPrivacy
    >>> check_increasing(GeneralPrivacy(lambda d: 1 - d, "1 − d"))
    Traceback (most recent call last):
    ...
    geoveil.errors.InvalidInput: privacy (ℓ(1.00... km) = -0.00...) must not be negative
    """
    instance("privacy", privacy, Guarantee, A_GUARANTEE)
    distances = _distances(privacy)
    values = checked_losses(distances, privacy.loss(distances))
    with np.errstate(invalid="ignore"):
        falls = values[1:] < values[:-1] * (1 - _TOLERANCE)
    if falls.any():
        first = int(np.argmax(falls))
        raise InvalidInput(
            f"privacy (ℓ = {values[first]:.6g} at {distances[first]:.6g} km and "
            f"{values[first + 1]:.6g} at {distances[first + 1]:.6g} km) must not decrease with the "
            "distance"
        )


@dataclass(frozen=True)
class Regularity:
    """Whether ℓ(a + b) ≤ ℓ(a) + ℓ(b) always holds, and two distances for which it does not."""

    holds: bool
    counterexample_km: tuple[float, float] | None = None

    def __bool__(self) -> bool:
        return self.holds


def regularity(privacy: Guarantee) -> Regularity:
    """Whether ℓ is regular: the triangle inequality survives it.

    For an increasing ℓ this says ℓ(a + b) ≤ ℓ(a) + ℓ(b). Tested at the corners of ℓ and on 17 scales
    from a decimetre to 10,000 km; a counterexample is exact, its absence is numerical evidence
    (for a promise per km and a local one the answer is known).
    Reference: NOISE, Def. 3.

    >>> from geoveil.channel.guarantee import WithinRadius
    >>> regularity(WithinRadius(radius_km=1.0, epsilon=1.0)).holds
    False
    """
    check_increasing(privacy)
    if isinstance(privacy, GeoIndistinguishability):
        return Regularity(True)
    even, corners = np.arange(1, _STEPS + 1) / _STEPS, privacy._corners()
    around = np.concatenate([corners, corners / 2, corners / 3])
    for scale in _SCALES_KM:
        distances = np.unique(np.concatenate([scale * even, around]))
        single = privacy.loss(distances)
        with np.errstate(invalid="ignore"):
            excess = privacy.loss(distances[:, None] + distances) - (single[:, None] + single)
        excess = np.where(np.isfinite(single[:, None] + single), excess, -np.inf)
        if excess.max() > _TOLERANCE:
            # of equally bad pairs the one that says most: both distances as large as can be
            size = np.where(excess >= excess.max(), np.minimum(distances[:, None], distances), 0.0)
            a, b = np.unravel_index(int(size.argmax()), size.shape)
            return Regularity(False, (float(distances[a]), float(distances[b])))
    return Regularity(True)


def superadditive_from_km(privacy: Guarantee) -> float | None:
    """The smallest d₀ found with ℓ(d₀ + d) ≥ ℓ(d₀) + ℓ(d) for all d; 0.0 when every d₀ > 0 will do.

    ``None`` where no distance up to 10,000 km will. Reference: NOISE, Theorem 6.

    >>> from geoveil.channel.guarantee import LocalDifferentialPrivacy, WithinRadius
    >>> superadditive_from_km(WithinRadius(radius_km=1.5, epsilon=1.0))
    1.5
    >>> superadditive_from_km(LocalDifferentialPrivacy(1.0)) is None
    True
    """
    check_increasing(privacy)
    if _proportional(privacy):
        return 0.0
    moves = _distances(privacy)
    starts = [moves[:: max(1, moves.size // 800)], privacy._corners()]
    candidates, single = np.unique(np.concatenate(starts)), privacy.loss(moves)
    holds = np.zeros(candidates.size, dtype=np.bool_)
    for place, start in enumerate(candidates.tolist()):
        sums = (privacy.loss(start) + single) * (1 - _TOLERANCE) - _TOLERANCE
        holds[place] = (privacy.loss(start + moves) >= sums).all()
    if not holds.any():
        return None
    return 0.0 if holds.all() else float(candidates[holds.argmax()])


def _proportional(privacy: Guarantee) -> bool:
    """Whether ℓ(d) = ε·d; what rounding adds between positions is the same at every distance."""
    slack = privacy.slack if isinstance(privacy, BetweenPositions) else 0.0
    return isinstance(privacy, GeoIndistinguishability) and slack == 0.0


def _distances(privacy: Guarantee) -> FloatArray:
    """Distances at which ℓ is looked at: all scales, its corners, and just beyond them."""
    return np.unique(np.concatenate([np.geomspace(1e-4, 1e4, 4001), privacy._corners()]))


# --- Regions, and which theorems of NOISE hold for a distinguishability function on them, in words


@dataclass(frozen=True)
class Region:
    """A connected region, or a finite set of places.

    In a connected region every length up to the diameter occurs; between finitely many places only
    ``lengths_km``. ``disk_km`` is the diameter of the largest disk inside (0 for places).
    """

    name: str
    diameter_km: float
    disk_km: float
    is_disk: bool = False
    lengths_km: FloatArray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        instance("name", self.name, str, "a text")
        yes_or_no("is_disk", self.is_disk)
        disk, diameter = (lengths(name, getattr(self, name)) for name in ("disk_km", "diameter_km"))
        if disk.ndim or diameter.ndim or disk > diameter:
            raise InvalidInput(
                "diameter_km must be one length, and disk_km another that is no longer"
            )
        object.__setattr__(self, "diameter_km", float(diameter))
        object.__setattr__(self, "disk_km", float(disk))
        if self.lengths_km is not None:
            moves = lengths("lengths_km", self.lengths_km)
            if moves.ndim != 1 or moves[:1].tolist() != [0.0] or not (np.diff(moves) > 0).all():
                raise InvalidInput("lengths_km must be a list of lengths that rise from 0")
            object.__setattr__(self, "lengths_km", frozen(moves.copy()))

    @classmethod
    def plane(cls) -> Region:
        """The whole plane: ℓ-privacy here is ℓ-privacy everywhere."""
        return cls("the plane", math.inf, math.inf, is_disk=True)

    @classmethod
    def disk(cls, *, diameter_km: float) -> Region:
        """A disk."""
        diameter = positive("diameter_km", diameter_km)
        return cls(f"a disk of diameter {diameter:.6g} km", diameter, diameter, is_disk=True)

    @classmethod
    def rectangle(cls, *, width_km: float, height_km: float) -> Region:
        """A rectangle."""
        width, height = positive("width_km", width_km), positive("height_km", height_km)
        return cls(
            f"a rectangle of {width:.6g} × {height:.6g} km",
            math.hypot(width, height),
            min(width, height),
        )

    @classmethod
    def box(cls, box: Box) -> Region:
        """The rectangle around a box of latitudes and longitudes."""
        west, south, east, north = instance("box", box, Box, "a gv.Box(…)").rectangle_km
        return cls.rectangle(width_km=east - west, height_km=north - south)

    @classmethod
    def cells(cls, space: Space) -> Region:
        """The centres of the cells of a space, and nothing between them."""
        moves = np.unique(checked_space(space).distances_km())
        return cls(f"{space.size} places", float(moves[-1]), 0.0, lengths_km=moves)

    @property
    def shortest_km(self) -> float:
        """The shortest move between two places; 0 where moves can be as short as one likes."""
        lengths = np.zeros(1) if self.lengths_km is None else self.lengths_km
        return float(lengths[min(1, lengths.size - 1)])

    def shortest_move_km(
        self, difference_km: FloatArray, total_km: FloatArray, tolerance_km: float
    ) -> FloatArray:
        """The shortest possible move between noise vectors r and r′ long: ∞ where there is none.

        A move of length s is possible when ``|r − r′| ≤ s ≤ r + r′``. Reference: NOISE §4.2, ℓ_X.
        """
        if self.lengths_km is None:
            possible = difference_km <= self.diameter_km + tolerance_km
            return np.where(possible, difference_km, math.inf)
        lengths = np.append(self.lengths_km, math.inf)
        shortest = lengths[np.searchsorted(lengths, difference_km - tolerance_km)]
        return np.where(shortest <= total_km + tolerance_km, shortest, math.inf)


@dataclass(frozen=True)
class Theorems:
    """Which theorems of NOISE hold for an ℓ and a region, in words."""

    regular: bool
    superadditive_from_km: float | None
    as_on_the_plane: bool
    """ℓ-privacy on the region is ℓ-privacy on the whole plane (Theorem 6)."""
    circular_suffices: bool
    """No noise of another shape has a smaller loss."""
    laplace_is_optimal: bool
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.sentences)


def checked_region(region: Region | None) -> Region:
    """The region itself, the whole plane for ``None``; an error for anything else."""
    such_as = "a region, such as gv.Region.disk(diameter_km=2.0)"
    return Region.plane() if region is None else instance("region", region, Region, such_as)


def applicable_theorems(privacy: Guarantee, region: Region | None = None) -> Theorems:
    """Which theorems apply to a promise on a region (the plane unless given), in words.

    Beyond the paper: for an increasing loss and ℓ-privacy on the plane, circular noise suffices even
    where ℓ is not regular. Let A_t be where the noise function exceeds t. Privacy says that A_t
    widened by d lies in A_{t·exp(−ℓ(d))}, so by the Brunn–Minkowski inequality the disks of equal
    areas are nested the same way: the symmetric decreasing rearrangement is private too, and
    moves probability inwards only.

    >>> from geoveil.channel.guarantee import GeoIndistinguishability
    >>> applicable_theorems(GeoIndistinguishability(1.0)).laplace_is_optimal
    True
    """
    where = checked_region(region)
    regular, start = regularity(privacy), superadditive_from_km(privacy)
    contains = start is not None and (where.disk_km >= start if start > 0 else where.disk_km > 0)
    equal = contains or math.isinf(where.diameter_km)
    on_disk = regular.holds and where.is_disk
    laplace = _proportional(privacy) and float(privacy.loss(1.0)) > 0 and where.disk_km > 0
    first = "ℓ is regular (Definition 3)."
    if regular.counterexample_km is not None:
        a, b = (f"{distance:.4g}" for distance in regular.counterexample_km)
        first = f"ℓ is not regular (Definition 3): ℓ({a} + {b} km) exceeds ℓ({a}) + ℓ({b})."
    if equal and regular:
        circular = "Circular noise loses nothing against any other (Theorem 7)."
    elif on_disk:
        circular = "Circular noise loses nothing against any other on a disk (Theorem 5)."
    elif equal:
        circular = (
            "Theorem 7 does not apply, yet for increasing losses circular noise loses nothing: the "
            "decreasing rearrangement of a private noise is private."
        )
    else:
        circular = "Whether circular noise is enough is not known here."
    last = "Among noise bounded by M and ρ-tight, if there is any, one is best (Theorem 8)."
    if laplace:
        last = "Planar Laplace noise is optimal for every increasing loss (Theorem 9)."
    words = (first, _words_on_the_plane(start, where, contains), circular, last)
    return Theorems(regular.holds, start, equal, equal or on_disk, laplace, words)


def _words_on_the_plane(start: float | None, where: Region, contains: bool) -> str:
    """What Theorem 6 says: whether privacy on the region is privacy on the plane."""
    if start is None:
        return "No d₀ has ℓ(d₀ + d) ≥ ℓ(d₀) + ℓ(d) for all d, so Theorem 6 does not apply."
    condition = "every d₀ > 0" if start == 0 else f"d₀ = {start:.4g} km"
    if math.isinf(where.diameter_km):
        size = "with an area" if start == 0 else "that contains a disk of that diameter"
        return f"Theorem 6 holds with {condition}: every region {size} is as good as the plane."
    if contains:
        return f"Theorem 6 holds with {condition}: privacy on {where.name} is privacy on the plane."
    return f"Theorem 6 would need a disk of {condition} inside {where.name}; there is none."
