"""Back to the simplex: two ways to turn numbers that sum to about one into a distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, vector
from geoveil.errors import InvalidInput

Repair = Literal["project", "normalise"]


def project_onto_simplex(values: npt.ArrayLike) -> FloatArray:
    """The distribution nearest to ``values`` in Euclidean distance: max(v − τ, 0) with sum one.

    τ is found exactly from the sorted values. Cost: m log m.

    Reference: FREEWILL §5.1 (Wang and Carreira-Perpiñán, 2013).

    >>> project_onto_simplex([0.75, 0.5, -0.25]).tolist()
    [0.625, 0.375, 0.0]
    """
    given = _one_vector(values)
    below = given - given.max()  # the projection does not see a common shift; this keeps digits
    falling = np.sort(below)[::-1]
    excess = (np.cumsum(falling) - 1.0) / np.arange(1, given.size + 1)
    kept = int(np.flatnonzero(falling > excess)[-1])
    nearest = np.maximum(below - excess[kept], 0.0)
    return np.asarray(nearest / nearest.sum())


def clip_and_normalise(values: npt.ArrayLike) -> FloatArray:
    """Negative values set to zero, the others rescaled to sum to one.

    Reference: FREEWILL §5.1 (INV-N).

    >>> clip_and_normalise([0.75, 0.25, -0.25]).tolist()
    [0.75, 0.25, 0.0]
    """
    kept = np.maximum(_one_vector(values), 0.0)
    total = float(kept.sum())
    if total <= 0:
        raise InvalidInput("values must be positive somewhere to be normalised")
    return np.asarray(kept / total)


REPAIRS: dict[str, Callable[[npt.ArrayLike], FloatArray]] = {
    "project": project_onto_simplex,
    "normalise": clip_and_normalise,
}


def checked_repair(name: str) -> Repair:
    """The name of a repair, or an error that lists those that exist."""
    if name == "project":
        return "project"
    if name == "normalise":
        return "normalise"
    raise InvalidInput(f"repair ({name!r}) must be one of: {', '.join(REPAIRS)}")


def _one_vector(values: npt.ArrayLike) -> FloatArray:
    shape = np.shape(values)
    if len(shape) != 1 or shape[0] == 0:
        raise InvalidInput(f"values (shape {shape}) must be one vector with at least one entry")
    return vector("values", values, shape[0])
