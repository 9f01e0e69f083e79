"""Which theorems of NOISE hold for a distinguishability function and a region, in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from geoveil.channel.guarantee import GeoIndistinguishability, Guarantee
from geoveil.optimal.region import Region
from geoveil.optimal.regularity import Regularity, regularity, superadditive_from_km


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
    where = region or Region.plane()
    regular, start = regularity(privacy), superadditive_from_km(privacy)
    contains = start is not None and (where.disk_km >= start if start > 0 else where.disk_km > 0)
    equal = contains or math.isinf(where.diameter_km)
    circular = equal or (bool(regular) and where.is_disk)
    laplace = isinstance(privacy, GeoIndistinguishability) and where.disk_km > 0
    words = (
        _regular_words(regular),
        _start_words(start, where, contains),
        _circular_words(bool(regular), equal, where),
    )
    more = (
        "Planar Laplace noise is optimal for every increasing loss (Theorem 9)."
        if laplace
        else "Among noise bounded by M and ρ-tight, if there is any, one is best (Theorem 8)."
    )
    return Theorems(bool(regular), start, equal, circular, laplace, (*words, more))


def _regular_words(regular: Regularity) -> str:
    if regular.counterexample_km is None:
        return "ℓ is regular (Definition 3)."
    a, b = regular.counterexample_km
    return (
        f"ℓ is not regular (Definition 3): ℓ({a:.4g} + {b:.4g} km) exceeds ℓ({a:.4g}) + ℓ({b:.4g})."
    )


def _start_words(start: float | None, where: Region, contains: bool) -> str:
    if start is None:
        return "No d₀ has ℓ(d₀ + d) ≥ ℓ(d₀) + ℓ(d) for all d, so Theorem 6 does not apply."
    condition = "every d₀ > 0" if start == 0 else f"d₀ = {start:.4g} km"
    if math.isinf(where.diameter_km):
        size = "with an area" if start == 0 else "that contains a disk of that diameter"
        return f"Theorem 6 holds with {condition}: every region {size} is as good as the plane."
    if contains:
        return f"Theorem 6 holds with {condition}: privacy on {where.name} is privacy on the plane."
    return f"Theorem 6 would need a disk of {condition} inside {where.name}; there is none."


def _circular_words(regular: bool, equal: bool, where: Region) -> str:
    if regular and equal:
        return "Circular noise loses nothing against any other (Theorem 7)."
    if regular and where.is_disk:
        return "Circular noise loses nothing against any other on a disk (Theorem 5)."
    if equal:
        return (
            "Theorem 7 does not apply, yet for increasing losses circular noise loses nothing: the "
            "decreasing rearrangement of a private noise is private."
        )
    return "Whether circular noise is enough is not known here."
