"""What every space offers: a number of cells and a true metric between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, indices
from geoveil.errors import TooLarge

MATRIX_LIMIT = 4096
"""No m×m array is made for more cells than this."""


class Space(ABC):
    """A finite set of cells 0 … size − 1 with centres and a true metric.

    Distances are kilometres. A space without a map (``Line``) counts in units of its own; then
    ``unit`` says so and every name that ends in ``_km`` reads in that unit.
    """

    unit: str = "km"
    size: int
    centres: FloatArray
    """(size, 1 or 2): the centres of the cells, in kilometres."""

    def distance_km(self, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
        """Distances between the centres of cells ``a`` and ``b`` (arrays broadcast)."""
        first = self.centres[indices("cells", a, self.size)]
        second = self.centres[indices("cells", b, self.size)]
        return self._norm(first - second)

    def apart_km(self, distance_km: float) -> FloatArray:
        """How far apart the cells of two people may be who are ``distance_km`` apart.

        Here people are at the cells themselves; where they are moved to the centre of a cell first,
        a space says by how much that may part them.
        """
        return np.array([distance_km])

    def distances_km(self) -> FloatArray:
        """The full matrix of distances; refused above 4,096 cells."""
        self.check_matrix("the matrix of distances")
        return self._norm(self.centres[:, None, :] - self.centres[None, :, :])

    def distances_from_km(self, cell: int) -> FloatArray:
        """Distances from one cell to every cell."""
        return self._norm(self.centres - self.centres[cell])

    @property
    def least_distance_km(self) -> float:
        """The distance of the two closest cells; infinite where there is only one."""
        pair = self.closest_cells
        return math.inf if pair is None else float(self.distance_km(*pair))

    @property
    def closest_cells(self) -> tuple[int, int] | None:
        """Two cells with no two closer; ``None`` where there is only one cell."""
        if self.size == 1:
            return None
        from scipy.spatial import cKDTree  # here, since it is slow to import

        distances, cells = cKDTree(self.centres).query(self.centres, k=2)
        first = int(np.argmin(np.asarray(distances)[:, 1]))
        one, other = np.asarray(cells)[first].tolist()
        return one, other

    @staticmethod
    def _norm(difference: FloatArray) -> FloatArray:
        if difference.shape[-1] == 1:
            return np.abs(difference[..., 0])
        return np.hypot(difference[..., 0], difference[..., 1])

    def check_matrix(self, what: str) -> None:
        """Refuse what would need an m×m array for a large m."""
        if self.size > MATRIX_LIMIT:
            raise TooLarge(
                f"{what} ({self.size} × {self.size}) must have at most {MATRIX_LIMIT} cells a side; "
                "use push, pull and row, which need no matrix"
            )

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The space as plain JSON values; ``space_from_dict`` reads it back."""

    @classmethod
    @abstractmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Space:
        """The space that ``to_dict`` described."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and (self is other or self.to_dict() == other.to_dict())

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.size))
