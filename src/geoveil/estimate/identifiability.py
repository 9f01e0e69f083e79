"""Which cells the reports can tell apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, solve_triangular

from geoveil.arrays import BoolArray, FloatArray, frozen
from geoveil.estimate.likelihood import Likelihood
from geoveil.space.base import MATRIX_LIMIT

_TOLERANCE = 1e-12
_INVOLVED = 1e-8
_NAMED = 6


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Whether the reports seen determine one distribution; true or false, with the reason in words.

    Law: the maximum of the likelihood is unique if no two distributions give the reports seen the
    same probabilities, that is if [L_seen | 1] has rank m (IBU Thm 7). The rank is numerical: directions
    that change the probabilities by less than about 1e-12 of the largest count as lost. The condition
    is sufficient; where it fails, the maximum may still be unique because no cell can be negative.
    """

    rank: int
    cells: int
    undetermined: BoolArray
    """The cells whose share can be moved to others without any change in the reports seen."""
    alike: tuple[tuple[int, ...], ...]
    """Groups of cells that give every report seen the same probability."""
    reason: str

    def __bool__(self) -> bool:
        return self.rank == self.cells

    def __str__(self) -> str:
        return self.reason


def tell_apart(likelihood: Likelihood, counts: npt.ArrayLike) -> Identifiability:
    """The rank of [L_seen | 1], the cells in its null space, and groups of cells alike.

    Cost: one pivoted QR factorisation, m²·(reports seen); beyond 4,096 cells nothing is tested and
    the answer is false with that reason.
    """
    seen = np.flatnonzero(np.asarray(counts))
    cells = likelihood.unknowns
    if cells > MATRIX_LIMIT:
        why = f"not tested: {cells} cells, and the rank is computed up to {MATRIX_LIMIT}"
        return Identifiability(0, cells, frozen(np.ones(cells, dtype=np.bool_)), (), why)
    columns = likelihood.columns(seen)
    columns = columns[:, columns.max(axis=0) > 0]
    system = np.concatenate([(columns / columns.max(axis=0)).T, np.ones((1, cells))])
    lost = _null_space(system)
    rank = cells - lost.shape[1]
    undetermined: BoolArray = np.asarray((np.abs(lost) > _INVOLVED).any(axis=1))
    alike = _groups(system) if rank < cells else ()
    reason = _words(rank, cells, columns.shape[1], undetermined, alike)
    return Identifiability(rank, cells, frozen(undetermined), alike, reason)


def lost_directions(columns: FloatArray) -> FloatArray:
    """(cells, lost): unit changes of a distribution that no column (cells, reports) shows.

    Cost: one pivoted QR factorisation, m²·reports.
    """
    lost = _null_space(np.concatenate([columns.T, np.ones((1, len(columns)))]))
    return np.asarray(lost / np.linalg.norm(lost, axis=0))


def _null_space(system: FloatArray) -> FloatArray:
    """(columns, columns − rank): a basis of the null space of a matrix."""
    cells = system.shape[1]
    triangle, order = qr(system, mode="r", pivoting=True)
    size = np.abs(np.diag(triangle))
    rank = int((size > _TOLERANCE * size[0]).sum())
    basis = np.zeros((cells, cells - rank))
    if rank < cells:
        basis[order[:rank]] = -solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
        basis[order[rank:]] = np.eye(cells - rank)
    return basis


def _groups(system: FloatArray) -> tuple[tuple[int, ...], ...]:
    """Cells whose columns of the system are equal to nine digits."""
    _, which = np.unique(np.round(system.T, 9), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.flatnonzero(np.diff(which.ravel()[order])) + 1
    groups = [tuple(group.tolist()) for group in np.split(order, ends)]
    return tuple(sorted(group for group in groups if len(group) > 1))


def _words(
    rank: int, cells: int, seen: int, undetermined: BoolArray, alike: tuple[tuple[int, ...], ...]
) -> str:
    if rank == cells:
        return f"identifiable: the {seen} kinds of reports seen tell all {cells} cells apart"
    said = (
        f"not identifiable: the {seen} kinds of reports seen have rank {rank} for {cells} cells, so "
        f"{cells - rank} combinations of cells cannot be told apart; "
        f"{int(undetermined.sum())} cells are involved"
    )
    if alike:
        named = "; ".join(_listed(group) for group in alike[:3])
        more = "" if len(alike) <= 3 else f" and {len(alike) - 3} more groups"
        said += f"; alike in every report: cells {named}{more}"
    return said


def _listed(group: tuple[int, ...]) -> str:
    shown = ", ".join(str(cell) for cell in group[:_NAMED])
    return shown if len(group) <= _NAMED else f"{shown}, … ({len(group)} cells)"
