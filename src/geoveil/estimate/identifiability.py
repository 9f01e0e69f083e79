"""Which cells the reports can tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import scipy

from geoveil.arrays import ArrayLike, BoolArray, FloatArray, IntArray, frozen, uniform
from geoveil.channel.operator import DenseOperator, Operator
from geoveil.estimate.em import ActiveSetNewton, Squarem
from geoveil.estimate.objective import Objective, Point
from geoveil.space.space import MATRIX_LIMIT

_TOLERANCE = 1e-12
_INVOLVED = 1e-8
_NAMED = 6
_AT_MAXIMUM = 1e-9
"""The certificate, in nats per report, at which the maximum counts as found."""
_ON_FACE = 1e-5
"""Cells whose gradient is within this of one can carry a share at the maximum."""
_EMPTY = 1e-7
_FIRST_STEPS, _MOST_STEPS = 200, 300


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Whether one distribution fits the reports best; true or false, with the reason in words.

    Law: all maxima of the likelihood give the reports seen the same probabilities, and lie on the cells
    with gradient one (the face). The maximum is therefore unique if no change of the shares of these
    cells leaves the probabilities of the reports seen as they are, and, where some of them are
    empty, if no such change keeps them from becoming negative. Numerically: changes that move the
    probabilities by less than about 1e-12 of the largest count as none.
    Reference: IBU Thm 7, whose condition (no such change of *any* cells) is enough but not needed.
    """

    rank: int
    """The cells less the number of independent changes that the reports do not show."""
    cells: int
    undetermined: BoolArray
    """The cells whose share can be moved to others without any change in the reports seen."""
    alike: tuple[tuple[int, ...], ...]
    """Groups of cells that give every report seen the same probability, and may have a share."""
    reason: str

    def __bool__(self) -> bool:
        return self.rank == self.cells

    def __str__(self) -> str:
        return self.reason


def tell_apart(operator: Operator, counts: ArrayLike) -> Identifiability:
    """Whether the reports seen have one best distribution, and else which cells they confuse.

    Cost: one QR factorisation, m²·(reports seen); where that does not tell all cells apart, also the
    exact maximum. Beyond 4,096 cells nothing is tested and the answer is false with that reason.
    """
    weights = np.asarray(counts, dtype=np.float64)
    cells = operator.shape[0]
    if cells > MATRIX_LIMIT:
        return _untested(cells, f"{cells:,} are more than {MATRIX_LIMIT:,}")
    observed = np.flatnonzero(weights)
    columns = _scaled(operator.columns(observed))
    possible = columns.max(axis=0) > 0
    columns, weights = columns[:, possible], weights[observed[possible]]
    if _full_rank(columns):
        return all_told_apart(cells, f"the reports tell all {cells} cells apart")
    point = _maximum(columns, weights)
    if point.certificate > _AT_MAXIMUM:
        return _untested(cells, "the exact maximum was not found")
    face = np.flatnonzero(point.gradient > 1 - _ON_FACE)
    lost = null_space(_with_total(columns[face]))
    if _fixed(point.theta[face], lost):
        empty = int((point.theta <= _EMPTY).sum())
        best = f"one map fits the reports best, with {empty} of {cells} cells empty"
        return all_told_apart(cells, best if empty else f"the reports tell all {cells} cells apart")
    return _confused(columns, face, lost)


def tell_apart_by(operator: Operator) -> Identifiability:
    """Whether a channel tells all its cells apart when every report counts and shares may be negative.

    Cost: one QR factorisation, m²·reports.
    """
    columns = _scaled(operator.matrix())
    cells = len(columns)
    if _full_rank(columns):
        return all_told_apart(cells, f"the reports tell all {cells} cells apart")
    return _confused(columns, np.arange(cells), null_space(_with_total(columns)))


def all_told_apart(cells: int, why: str) -> Identifiability:
    """All cells are told apart, and why."""
    nowhere = frozen(np.zeros(cells, dtype=np.bool_))
    return Identifiability(cells, cells, nowhere, (), f"identifiable: {why}")


def _untested(cells: int, why: str) -> Identifiability:
    reason = f"not tested whether the reports tell all cells apart: {why}"
    return Identifiability(0, cells, frozen(np.ones(cells, dtype=np.bool_)), (), reason)


def _confused(columns: FloatArray, face: IntArray, lost: FloatArray) -> Identifiability:
    """Shares of the cells of the face can move along the lost changes (face, k)."""
    cells = len(columns)
    undetermined = np.zeros(cells, dtype=np.bool_)
    undetermined[face] = (np.abs(lost) > _INVOLVED).any(axis=1)
    involved = np.flatnonzero(undetermined)
    alike = _groups(columns[involved], involved)
    reason = _words(involved, alike)
    return Identifiability(cells - lost.shape[1], cells, frozen(undetermined), alike, reason)


def _scaled(columns: FloatArray) -> FloatArray:
    """Every column with a maximum of one: a report hardly ever made tells cells apart all the same."""
    return columns / np.maximum(columns.max(axis=0, initial=0.0), np.finfo(float).tiny)


def _with_total(columns: FloatArray) -> FloatArray:
    """(reports + 1, cells): its null space holds the changes that sum to zero and that no column shows."""
    return np.concatenate([columns.T, np.ones((1, len(columns)))])


def _full_rank(columns: FloatArray) -> bool:
    """Whether no change at all goes unseen, by a factorisation without pivots and its condition."""
    system = _with_total(columns)
    if system.shape[0] < system.shape[1]:
        return False
    triangle = scipy.linalg.qr(system, mode="r")[0][: system.shape[1]]
    reciprocal, _ = scipy.linalg.lapack.dtrcon(np.asfortranarray(triangle), norm="1", uplo="U")
    return bool(reciprocal > len(columns) * _TOLERANCE) or not null_space(system).shape[1]


def _maximum(columns: FloatArray, weights: FloatArray) -> Point:
    """Where the likelihood is largest: plain steps, then Newton's from the cells that carry a share."""
    objective = Objective(DenseOperator(columns), weights)
    start = uniform(objective.unknowns)
    point = next(islice(Squarem().path(objective, start), _FIRST_STEPS - 1, None))
    carried = np.where(point.theta > _EMPTY / objective.unknowns, point.theta, 0.0)
    for point in islice(ActiveSetNewton(0).path(objective, carried / carried.sum()), _MOST_STEPS):
        if point.certificate <= 1e-3 * _AT_MAXIMUM:
            break
    return point


def _fixed(shares: FloatArray, lost: FloatArray) -> bool:
    """Whether the shares cannot move along the changes (cells, k) without one becoming negative."""
    if not lost.shape[1]:
        return True
    emptied = lost[shares <= _EMPTY]
    if not len(emptied) or null_space(emptied).shape[1]:
        return False
    # is there a change that takes nothing from an empty cell and gives something to one?
    most: Any = scipy.optimize.linprog(
        -emptied.sum(axis=0), A_ub=-emptied, b_ub=np.zeros(len(emptied)), bounds=(-1, 1)
    )
    return bool(most.fun > -_ON_FACE)


def lost_directions(columns: FloatArray) -> FloatArray:
    """(cells, lost): unit changes of a distribution that no column (cells, reports) shows.

    Cost: one pivoted QR factorisation, m²·reports.
    """
    lost = null_space(_with_total(columns))
    return np.asarray(lost / np.linalg.norm(lost, axis=0))


def null_space(system: FloatArray, rank: int | None = None) -> FloatArray:
    """(columns, columns − rank): a basis of the null space of a matrix, whose rank is found if not given."""
    cells = system.shape[1]
    triangle, order = scipy.linalg.qr(system, mode="r", pivoting=True)
    if rank is None:
        size = np.abs(np.diag(triangle))
        rank = int((size > _TOLERANCE * size[0]).sum())
    basis = np.zeros((cells, cells - rank))
    if rank < cells:
        basis[order[:rank]] = -scipy.linalg.solve_triangular(
            triangle[:rank, :rank], triangle[:rank, rank:]
        )
        basis[order[rank:]] = np.eye(cells - rank)
    return basis


def _groups(rows: FloatArray, cells: IntArray) -> tuple[tuple[int, ...], ...]:
    """Cells whose rows are equal to nine digits."""
    _, which = np.unique(np.round(rows, 9), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.flatnonzero(np.diff(which.ravel()[order])) + 1
    groups = [tuple(cells[group].tolist()) for group in np.split(order, ends)]
    return tuple(sorted(group for group in groups if len(group) > 1))


def _words(involved: IntArray, alike: tuple[tuple[int, ...], ...]) -> str:
    """Which cells are confused: those alike by name, then those whose shares only go together."""
    parts = [f"cells {_listed(group)} apart" for group in alike[:3]]
    if len(alike) > 3:
        parts.append(f"{len(alike) - 3} more such groups")
    others = np.setdiff1d(involved, np.concatenate([*alike, []]))
    said = [f"the reports cannot tell {', nor '.join(parts)}"] if parts else []
    if others.size:
        named = _listed(tuple(involved.tolist()))
        said.append(f"shares can move among cells {named} without any change in the reports")
    return f"not identifiable: {'; '.join(said)}; sums over such cells are known better"


def _listed(group: tuple[int, ...]) -> str:
    if len(group) > _NAMED:
        return f"{', '.join(map(str, group[:_NAMED]))} … ({len(group)} cells)"
    *first, last = map(str, group)
    return f"{', '.join(first)} and {last}" if first else last
