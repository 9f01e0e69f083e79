"""Flows: how many trips go from where to where, with what is known about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoveil.arrays import FloatArray, IntArray, ReadOnly, count, frozen, part
from geoveil.errors import InvalidInput, number_of
from geoveil.estimate.bars import LOST, DrawnErrors, Ends, ErrorBars
from geoveil.estimate.regions import named_members
from geoveil.space.masked_grid import AnyGrid, grid_beneath
from geoveil.space.space import Space

_WHOLE = 1e-9
"""Parts of a cell that sum to one within this are all of it."""


@dataclass(eq=False, repr=False, kw_only=True)
class Flows(ReadOnly):
    """Shares of trips between cells, estimated from noisy pairs.

    ``matrix[o, d]`` is the share of trips from cell o to cell d; all of it sums to one. Single pairs of
    cells are known badly: sum them over districts (``between``), whose shares have intervals. These are
    found when first asked for, by a parametric bootstrap: the flows are drawn from again and the whole
    estimate is made of each draw; what this shows of its bias is taken off. The interval of the share that
    stays is that of sums of the reports that lie on either side of it (:class:`StayErrors`).
    Units: ``log_likelihood`` and ``certificate`` in nats per trip.
    Reference: docs/trips.md.
    """

    space: Space
    matrix: FloatArray
    total: int
    steps: int
    stopped: str
    log_likelihood: float
    certificate: float
    model: FloatArray
    """The shares of the model that EM began from: stay, independent ends, near by each reach."""
    find_replicates: Callable[[], FloatArray]
    """(k, cells, cells): how far estimates of drawn trips lie from the flows that these were drawn from."""
    find_stay_bounds: Callable[[FloatArray], FloatArray]
    find_lost: Callable[[], FloatArray]
    """(cells, k): changes of where an end is that no report shows."""

    def __post_init__(self) -> None:
        self.matrix, self.model = frozen(np.array(self.matrix)), frozen(np.array(self.model))

    @property
    def origins(self) -> FloatArray:
        """The share of trips that begin in each cell."""
        return np.asarray(self.matrix.sum(axis=1))

    @property
    def destinations(self) -> FloatArray:
        """The share of trips that end in each cell."""
        return np.asarray(self.matrix.sum(axis=0))

    @property
    def stay_share(self) -> float:
        """The share of trips that end in the cell where they began."""
        return float(np.trace(self.matrix))

    def stay_interval(self, level: float = 0.95) -> tuple[float, float]:
        """An interval that holds the true share of trips that stay with probability about ``level``.

        Between cells it does whatever the flows are; between positions what standing unevenly in cells
        may change is weighed by the flows estimated. Wide noise makes it wide (docs/trips.md).
        """
        low, high = self.stay_errors.interval(level)
        return float(low[0]), float(high[0])

    @cached_property
    def stay_errors(self) -> StayErrors:
        """The error bars of the share that stays, and of the share that goes."""
        bounds, share = self.find_stay_bounds(self.matrix), self.stay_share
        centre = float(np.clip(bounds[:, 0].mean(), 0.0, 1.0))
        return StayErrors(
            method="sums of the reports whose mean lies on either side of the share",
            distribution=np.array([share, 1.0 - share]),
            centre=np.array([centre, 1.0 - centre]),
            people=self.total,
            bounds=bounds,
        )

    def between(self, districts: Any, *, name: str = "name") -> DistrictFlows:
        """The flows between districts.

        ``districts`` are what ``Estimate.regions`` takes: GeoJSON (a dictionary or a file), a GeoDataFrame,
        or {name: cells}; ``name`` is the property that names them. Or they are numbers, one for each cell,
        0, 1, …, or −1 for none; or (cells, districts), how much of each cell lies in each district. The trips
        of a cell that is cut are taken to begin and end anywhere in it, each end by itself.
        """
        if isinstance(districts, Mapping | str | Path) or hasattr(districts, "__geo_interface__"):
            names, parts = named_members(self.space, districts, name=name)
            return DistrictFlows(self, _checked_parts(parts.T, self.space.size), names)
        array = np.asarray(districts)
        if array.ndim == 2:
            return DistrictFlows(self, _checked_parts(array, self.space.size))
        if array.shape != (self.space.size,) or array.dtype.kind not in "iu":
            raise InvalidInput(
                f"districts (shape {array.shape}) must be {self.space.size} whole numbers, one for each "
                "cell; -1 for a cell of no district"
            )
        if (array < -1).any() or array.max(initial=-1) < 0:
            raise InvalidInput(
                "districts must be 0 or more, or -1 for none, and one at least must be named"
            )
        members = np.zeros((array.size, int(array.max()) + 1))
        named = np.flatnonzero(array >= 0)
        members[named, array[named]] = 1.0
        return DistrictFlows(self, members)

    @cached_property
    def _replicates(self) -> FloatArray:
        return self.find_replicates()

    def __repr__(self) -> str:
        trips = number_of(self.total, "trip")
        return f"Flows({trips}, {self.space.size}² pairs of cells, {self.stopped})"


@dataclass(frozen=True, eq=False)
class StayErrors(ErrorBars):
    """Error bars of the share that stays, from sums of reports whose mean is at most it, and at least it.

    Between cells no model of the flows is used, so no flows make them miss: see docs/trips.md.
    """

    bounds: FloatArray
    """(2, 2): of the sums below and above, the value and the standard error."""

    def standard_error(self, combinations: FloatArray | None = None) -> FloatArray:
        return np.full(2, self.bounds[:, 1].max())

    def interval(self, level: float, combinations: FloatArray | None = None) -> Ends:
        reach = self._quantile(part("level", level)) * self.bounds[:, 1] * (-1.0, 1.0)
        low, high = np.clip(self.bounds[:, 0] + reach, 0.0, 1.0)
        low, high = min(low, high), max(low, high)  # both below none, or above all
        return self._stretched(
            level, combinations, np.array([low, 1.0 - high]), np.array([high, 1.0 - low])
        )


class DistrictFlows:
    """Shares of trips between districts, with intervals."""

    def __init__(self, flows: Flows, members: FloatArray, names: Sequence[str] = ()) -> None:
        self.flows = flows
        self.names = tuple(names) or tuple(map(str, range(members.shape[1])))
        self.members: FloatArray = frozen(members)
        """(cells, districts): how much of each cell lies in each district."""
        self.count = members.shape[1]
        self.matrix: FloatArray = frozen(self.summed(flows.matrix))
        """(districts, districts): the share of all trips from one to another."""

    @property
    def stay_share(self) -> float:
        """The share of all trips that begin and end in one and the same district."""
        return float(np.trace(self.matrix))

    @property
    def elsewhere_share(self) -> float:
        """The share of trips with an end in no district."""
        return max(0.0, 1.0 - float(self.matrix.sum()))

    @cached_property
    def errors(self) -> ErrorBars:
        """The error bars of all pairs of districts, row by row, and last those of trips with an end in no
        district, where cells are in none; ``errors.method`` says how."""
        shares, errors = self.matrix.ravel(), self.summed(self.flows._replicates)
        errors = errors.reshape(len(errors), -1)
        if (self.members.sum(axis=1) < 1.0 - _WHOLE).any():
            shares = np.append(shares, self.elsewhere_share)
            errors = np.column_stack((errors, -errors.sum(axis=1)))
        # A share is known where both of its ends are.
        sides = np.column_stack((self.members, self.members.sum(axis=1))).T
        *known, inside = np.abs(sides @ self.flows.find_lost()).max(axis=1, initial=0.0) <= LOST
        unknown = np.append(~np.outer(known, known), not inside)[: shares.size]
        # The bias is known only as far as the flows drawn from resemble the true ones: it widens the bars.
        return DrawnErrors(
            method=f"parametric bootstrap of the whole estimate from roughened flows, {len(errors)} "
            "replicates, bias taken off",
            distribution=shares,
            centre=shares - errors.mean(axis=0),
            people=self.flows.total,
            draws=errors,
            lost=np.eye(unknown.size)[:, unknown] if unknown.any() else None,
        )

    @property
    def standard_error(self) -> FloatArray:
        """(districts, districts)."""
        return self._by_pair(self.errors.standard_error())

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Low and high ends for every pair of districts, each (districts, districts).

        Each interval is for one pair by itself: of many pairs, about a share 1 − ``level`` lies outside.
        """
        low, high = self.errors.interval(level)
        return self._by_pair(low), self._by_pair(high)

    def _by_pair(self, values: FloatArray) -> FloatArray:
        return values[: self.matrix.size].reshape(self.matrix.shape)

    def summed(self, matrices: FloatArray) -> FloatArray:
        """Shares between cells summed to those between districts: (…, districts, districts)."""
        return np.asarray(self.members.T @ matrices @ self.members)

    def __repr__(self) -> str:
        trips = number_of(self.flows.total, "trip")
        return f"DistrictFlows({number_of(self.count, 'district')}, {trips})"


def _checked_parts(array: npt.NDArray[Any], cells: int) -> FloatArray:
    """(cells, districts): parts of cells, not negative and no more than the whole of any."""
    if array.shape[0] != cells or not array.shape[1] or array.dtype.kind not in "fiub":
        raise InvalidInput(
            f"districts (shape {array.shape}) must say for each of {cells} cells how much of it lies in "
            "each district"
        )
    parts = array.astype(np.float64)
    if not (
        np.isfinite(parts).all() and (parts >= 0).all() and (parts.sum(axis=1) <= 1 + _WHOLE).all()
    ):
        raise InvalidInput(
            "districts must hold parts of cells from 0 to 1 that sum to at most 1 for each cell; "
            "districts must not overlap"
        )
    return parts


def blocks(space: AnyGrid, side: int) -> IntArray:
    """(cells,): the block of side × side cells that each is in, by number, row by row from the south-west."""
    count("side", side)
    grid, mask = grid_beneath(space)
    cells = np.arange(grid.size) if mask is None else np.flatnonzero(mask)
    row, column = np.divmod(cells, grid.columns)
    return np.asarray(row // side * -(-grid.columns // side) + column // side)


def middles_km(space: Space, members: FloatArray) -> FloatArray:
    """(districts, any): the middle of the cells of each, weighted by how much of them it has."""
    whole = np.maximum(members.sum(axis=0), 1e-12)
    return np.asarray(members.T @ space.centres / whole[:, None])
