"""What a space is: cells with centres and distances in kilometres, and losses between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, indices
from geoveil.errors import InvalidFile, TooLarge

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


# --- Reading a space back from plain JSON values


def kind_of(values: object) -> str:
    """The kind a document says it is; empty where it says nothing."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    return kind if isinstance(kind, str) else ""


def entries(values: Mapping[str, Any], kind: str, *names: str) -> list[Any]:
    """The values under ``names``; a document of another kind, with gaps or extras, is refused."""
    if kind_of(values) != kind:
        raise InvalidFile(f'the document must describe a space of kind "{kind}"')
    if set(values) != {"kind", *names}:
        listed = ", ".join(("kind", *names))
        raise InvalidFile(f'a document of kind "{kind}" must have exactly the entries {listed}')
    return [values[name] for name in names]


# --- Losses: how bad it is to be taken for b when one is at a


@dataclass(frozen=True)
class RadialLoss:
    """A loss that depends on the distance alone: L(a, b) = f(d(a, b)).

    Called as ``loss(space, a, b)`` on cells (arrays broadcast); :meth:`at` gives f itself, for the
    plane, where there are no cells. ``f`` is vectorised and takes kilometres.

    Reference: NOISE §4.1, where losses are increasing functions of the distance.

    >>> from geoveil.space.line import Line
    >>> late = RadialLoss("minutes on foot", lambda kilometres: 12 * kilometres)
    >>> late(Line(5), [0, 1], 4).tolist()
    [48.0, 36.0]
    """

    name: str
    function: Callable[[FloatArray], FloatArray]

    def __call__(self, space: Space, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
        return self.at(space.distance_km(a, b))

    def at(self, distance_km: npt.ArrayLike) -> FloatArray:
        """The loss at each distance."""
        distance = np.asarray(distance_km, dtype=np.float64)
        return np.asarray(self.function(distance), dtype=np.float64)

    def __repr__(self) -> str:
        return self.name


def _itself(distance: FloatArray) -> FloatArray:
    return distance


distance_km = RadialLoss("distance_km", _itself)
"""The distance itself, in kilometres."""

squared_distance_km2 = RadialLoss("squared_distance_km2", np.square)
"""The squared distance, in square kilometres."""
