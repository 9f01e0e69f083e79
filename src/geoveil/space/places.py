"""Places to be located: degrees or kilometres, taken one block at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray
from geoveil.space.projection import TangentPlane, blocks, coordinates, plane_coordinates

_Entry = TypeVar("_Entry", bound=np.generic)


@dataclass(frozen=True)
class Places:
    """The shape of the input, and (east, north) in the plane of any slice of it, flat."""

    shape: tuple[int, ...]
    project: Callable[[slice], tuple[FloatArray, FloatArray]]

    @classmethod
    def in_degrees(cls, plane: TangentPlane, lat: npt.ArrayLike, lng: npt.ArrayLike) -> Places:
        """Places by latitude and longitude."""
        latitude, longitude = coordinates(lat=lat, lng=lng)
        flat_lat, flat_lng = latitude.ravel(), longitude.ravel()
        return cls(latitude.shape, lambda block: plane.project(flat_lat[block], flat_lng[block]))

    @classmethod
    def in_km(cls, xy: npt.ArrayLike) -> Places:
        """Places by plane coordinates (…, 2)."""
        plane = plane_coordinates("xy", xy)
        flat = plane.reshape(-1, 2)
        return cls(plane.shape[:-1], lambda block: (flat[block, 0], flat[block, 1]))

    def each(
        self, rule: Callable[[FloatArray, FloatArray], npt.NDArray[_Entry]], dtype: type[_Entry]
    ) -> npt.NDArray[_Entry]:
        """The value of ``rule`` at every place, in the shape of the input."""
        found = np.empty(math.prod(self.shape), dtype=dtype)
        for block in blocks(found.size):
            found[block] = rule(*self.project(block))
        return found.reshape(self.shape)
