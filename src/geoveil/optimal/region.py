"""Regions in which a person may be, as far as ℓ-privacy is concerned: how long a move can be.

Circular noise looks the same from every side, so of a region only the lengths of its displacements
matter (NOISE, Theorem 4), and the largest disk inside it (Theorems 6 and 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from geoveil.arrays import FloatArray, frozen, positive
from geoveil.space.box import Box
from geoveil.space.space import Space


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
        west, south, east, north = box.rectangle_km
        return cls.rectangle(width_km=east - west, height_km=north - south)

    @classmethod
    def cells(cls, space: Space) -> Region:
        """The centres of the cells of a space, and nothing between them."""
        lengths = np.unique(space.distances_km())
        return cls(f"{space.size} places", float(lengths[-1]), 0.0, lengths_km=frozen(lengths))

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
        found = lengths[np.searchsorted(lengths, difference_km - tolerance_km)]
        return np.where(found <= total_km + tolerance_km, found, math.inf)
