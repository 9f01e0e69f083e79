"""What a space is: cells with centres and distances in kilometres, places in them, losses between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np

from geoveil import arrays
from geoveil.arrays import ArrayLike, BoolArray, FloatArray, IntArray, ReadOnly, frozen, indices
from geoveil.errors import InvalidFile, TooLarge
from geoveil.holding import Framed, Shown
from geoveil.space.outside import Outside, elsewhere, settle
from geoveil.space.projection import Degrees, TangentPlane, blocks, coordinates, plane_coordinates

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

MATRIX_LIMIT = 4096
"""No m×m array is made for more cells than this."""
MOST_CELLS = 1 << 16
"""The most cells of a grid, or of those that a mask leaves, under a promise between positions."""


class Space(Framed, Shown, ReadOnly, ABC):
    """A finite set of cells 0 … size − 1 with centres and a true metric.

    Distances are kilometres. A space without a map (``Line``) counts in units of its own; then
    ``unit`` says so and every name that ends in ``_km`` reads in that unit.
    """

    unit: str = "km"
    size: int
    in_rows: ClassVar[bool] = False
    """Whether cells 0 and 1 are neighbours with no two closer, as in a lattice numbered by rows."""

    @cached_property
    def centres(self) -> FloatArray:
        """(size, 1 or 2): the centres of the cells, in kilometres; made on first use, then fixed."""
        return frozen(self._centres())

    def _centres(self) -> FloatArray:
        """The centres, for a space that does not set them."""
        raise NotImplementedError

    def distance_km(self, a: ArrayLike, b: ArrayLike) -> FloatArray:
        """Distances between the centres of cells ``a`` and ``b`` (arrays broadcast)."""
        first, second = (indices("cells", cells, self.size) for cells in (a, b))
        arrays.check_broadcast(a=first, b=second)
        return self._norm(self.centres[first] - self.centres[second])

    def apart_km(self, distance_km: float) -> FloatArray:
        """How far apart the cells of two people may be who are ``distance_km`` apart.

        Here people are at the cells themselves; where they are moved to the centre of a cell first,
        a space says by how much that may part them.
        """
        return np.array([distance_km])

    def distances_km(self) -> FloatArray:
        """The full matrix of distances; refused above 4,096 cells."""
        self._check_distances()
        cells = np.arange(self.size)
        return self.distance_km(cells[:, None], cells)

    def distances_from_km(self, cell: int) -> FloatArray:
        """Distances from one cell to every cell."""
        return self.distance_km(cell, np.arange(self.size))

    @property
    def least_distance_km(self) -> float:
        """The distance of the two closest cells; infinite where there is only one."""
        pair = self.closest_cells
        return math.inf if pair is None else float(self.distance_km(*pair))

    @property
    def closest_cells(self) -> tuple[int, int] | None:
        """Two cells with no two closer; ``None`` where there is only one cell."""
        if self.size == 1 or self.in_rows:
            return None if self.size == 1 else (0, 1)
        distances, cells = self._tree.query(self.centres, k=2)
        first = int(np.argmin(np.asarray(distances)[:, 1]))
        one, other = np.asarray(cells)[first].tolist()
        return one, other

    @cached_property
    def _tree(self) -> cKDTree:
        """The centres, to find the nearest."""
        from scipy.spatial import cKDTree  # here, since it is slow to import

        return cKDTree(self.centres)

    @staticmethod
    def _norm(difference: FloatArray) -> FloatArray:
        if difference.shape[-1] == 1:
            return np.abs(difference[..., 0])
        return np.hypot(difference[..., 0], difference[..., 1])

    def _check_distances(self) -> None:
        advice = "distances_from_km gives one row, and mechanisms on a Grid need no matrix"
        self.check_matrix("the matrix of distances", advice)

    def check_matrix(
        self, what: str, advice: str = "use push, pull and row, which need no matrix"
    ) -> None:
        """Refuse what would need an m×m array for a large m."""
        if self.size > MATRIX_LIMIT:
            raise TooLarge(
                f"{what} ({self.size} × {self.size}) must have at most {MATRIX_LIMIT} cells a side; {advice}"
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


def checked_space(space: Any) -> Space:
    """The space itself; an error for anything else."""
    return arrays.instance(
        "space", space, Space, "a space, such as gv.Grid(…), gv.Points(…) or gv.Line(…)"
    )


# --- Spaces in the plane, and on the map where they have one: places find their cells


class MapSpace(Space):
    """Cells in the plane; ``plane`` lays them on the map, and refuses where there is none.

    Units: plane coordinates in kilometres east and north, those of ``centres``; latitude and longitude
    in degrees. A kind of such space says what its ``plane`` is and which cell is nearest.
    """

    @property
    @abstractmethod
    def plane(self) -> TangentPlane:
        """The tangent plane that ``centres`` are coordinates of."""

    @abstractmethod
    def _nearest(self, east: FloatArray, north: FloatArray) -> IntArray:
        """The nearest cell n of each place, written as −1 − n where the place lies outside."""

    def centres_latlng(self) -> tuple[FloatArray, FloatArray]:
        """Latitudes and longitudes of the centres."""
        return self.plane.to_latlng(self.centres)

    @overload
    def locate(
        self, *, lat: float, lng: float = ..., lon: float = ..., outside: Outside = ...
    ) -> int: ...
    @overload
    def locate(
        self, *, lat: ArrayLike, lng: Degrees = ..., lon: Degrees = ..., outside: Outside = ...
    ) -> IntArray: ...
    def locate(
        self,
        *,
        lat: ArrayLike,
        lng: Degrees = None,
        lon: Degrees = None,
        outside: Outside = "raise",
    ) -> int | IntArray:
        """Cells of places in degrees: an ``int`` for one place, else an array of the same shape.

        Outside places are refused (``"raise"``), left out (``"drop"``: the cells of the others, flat;
        ``inside`` tells which) or go to the nearest cell (``"clamp"``; all those more than a quarter
        of the globe away to one and the same). A place at most 1 % of a cell off a grid counts as
        inside, and so does all of its box. Nothing is outside of points: the nearest one counts.
        """
        latitude, longitude = coordinates(lat=lat, lng=lng, lon=lon)
        cells, inside = self.nearest_cells(lat=latitude, lng=longitude)
        return settle(
            cells,
            inside,
            outside,
            lambda beyond: elsewhere(self, latitude.ravel()[beyond], longitude.ravel()[beyond]),
        )

    def locate_km(self, xy: ArrayLike, *, outside: Outside = "raise") -> int | IntArray:
        """Cells of places (…, 2) in kilometres east and north, the coordinates of ``centres``."""
        return settle(*self._nearest_km(xy), outside)

    def nearest_cells(
        self, *, lat: ArrayLike, lng: Degrees = None, lon: Degrees = None
    ) -> tuple[IntArray, BoolArray]:
        """The nearest cells of places in degrees, and which of the places are inside."""
        plane = self.plane
        latitude, longitude = coordinates(lat=lat, lng=lng, lon=lon)
        flat_lat, flat_lng = latitude.ravel(), longitude.ravel()
        return self._by_blocks(
            latitude.shape, lambda block: plane.project(flat_lat[block], flat_lng[block])
        )

    def _nearest_km(self, xy: ArrayLike) -> tuple[IntArray, BoolArray]:
        plane = plane_coordinates("xy", xy)
        flat = plane.reshape(-1, 2)
        return self._by_blocks(plane.shape[:-1], lambda block: (flat[block, 0], flat[block, 1]))

    def _by_blocks(
        self, shape: tuple[int, ...], project: Callable[[slice], tuple[FloatArray, FloatArray]]
    ) -> tuple[IntArray, BoolArray]:
        """Nearest cells and insideness of places whose (east, north) ``project`` gives by the block."""
        signed = np.empty(math.prod(shape), dtype=np.int64)
        for block in blocks(signed.size):
            signed[block] = self._nearest(*project(block))
        signed = signed.reshape(shape)
        return np.where(signed < 0, ~signed, signed), signed >= 0

    def inside(self, *, lat: ArrayLike, lng: Degrees = None, lon: Degrees = None) -> BoolArray:
        """Which places are inside; ``lat[inside]`` are those that ``outside="drop"`` keeps."""
        return self.nearest_cells(lat=lat, lng=lng, lon=lon)[1]

    def inside_km(self, xy: ArrayLike) -> BoolArray:
        """Which places (…, 2), in kilometres east and north, are inside."""
        return self._nearest_km(xy)[1]


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


@dataclass(frozen=True)
class RadialLoss:
    """A loss that depends on the distance alone: L(a, b) = f(d(a, b)).

    Called as ``loss(space, a, b)`` on cells (arrays broadcast); :meth:`at` gives f itself, for the
    plane, where there are no cells. ``f`` is vectorised and takes kilometres.

    Reference: NOISE §4.1, where losses are increasing functions of the distance.

    >>> from geoveil.space.grid import Line
    >>> late = RadialLoss("minutes on foot", lambda kilometres: 12 * kilometres)
    >>> late(Line(5), [0, 1], 4).tolist()
    [48.0, 36.0]
    """

    name: str
    function: Callable[[FloatArray], FloatArray]

    def __post_init__(self) -> None:
        arrays.able(
            "function", self.function, "__call__", "a function of distances in km, such as np.sqrt"
        )

    def __call__(self, space: Space, a: ArrayLike, b: ArrayLike) -> FloatArray:
        return self.at(checked_space(space).distance_km(a, b))

    def at(self, distance_km: ArrayLike) -> FloatArray:
        """The loss at each distance."""
        distance = arrays.lengths("distance_km", distance_km)
        return np.asarray(self.function(distance), dtype=np.float64)

    def __repr__(self) -> str:
        return self.name


distance_km = RadialLoss("distance_km", np.asarray)
"""The distance itself, in kilometres."""

squared_distance_km2 = RadialLoss("squared_distance_km2", np.square)
"""The squared distance, in square kilometres."""
