"""Linear programs with very many constraints: a primal–dual interior point that uses their structure.

    min Σ q[x, y]·C[x, y]   over   BC ≥ 0,  C ≥ 0,  rows of C that sum to one

B is shared by all reports, so the Newton equations fall apart into one m × m system for each report,
coupled by the m row sums alone. Shapes: m cells, n reports, p pairs of cells; G = [B; I] is (p + m, m).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from geoveil.arrays import FloatArray, IntArray

_NUDGE = 1e-14  # keeps a factor positive when its condition number leaves double precision
_STEP_BACK = 0.995
_CORRECTIONS = 2
_STALLED = 12  # steps without a better bound or loss
_STEPS = "the steps ran out: allow more of them, or a larger gap"
ROUNDING = "rounding ends the progress: ask for a larger gap"
_PRECISION = "the Newton equations left double precision: ask for a larger gap, or take fewer cells"


Progress = Callable[[float, str], None]
"""progress(fraction done in [0, 1], a word about it)"""


class Point(NamedTuple):
    """Where the method is, or a direction: the channel C, s = GC, their multipliers, those of the sums."""

    columns: FloatArray  # (m, n)
    slack: FloatArray  # (p + m, n): BC, and C itself below
    price: FloatArray  # (p + m, n)
    row_price: FloatArray  # (m,)

    def moved(self, by: Point, primal: float, dual: float) -> Point:
        """A step of different lengths in the primal and the dual variables."""
        return Point(
            self.columns + primal * by.columns,
            self.slack + primal * by.slack,
            self.price + dual * by.price,
            self.row_price + dual * by.row_price,
        )

    def longest_steps(self, by: Point) -> tuple[float, float]:
        """How far one can go until a slack, or a price, becomes zero; at most 1."""
        primal = float((-by.slack / self.slack).max(initial=1.0))
        dual = float((-by.price / self.price).max(initial=1.0))
        return 1.0 / primal, 1.0 / dual

    def complementarity(self) -> float:
        """s·price, which is the gap of a feasible point."""
        return float(np.vdot(self.slack, self.price))


class ColumnProgram:
    """The costs q (m, n) and the constraints of one column: C[a] ≥ factor·C[b] for each pair (a, b)."""

    def __init__(self, costs: FloatArray, pairs: IntArray, factors: FloatArray) -> None:
        self.costs = costs
        self.size, self.reports = costs.shape
        self.pairs = len(pairs)
        (first, second), cells = pairs.T, np.arange(self.size)
        rows, ones = np.arange(self.pairs), np.ones(self.pairs)
        constraints = sparse.csr_array(
            (np.r_[ones, -factors], (np.r_[rows, rows], np.r_[first, second])),
            shape=(self.pairs, self.size),
        )
        self.matrix = sparse.csr_array(sparse.vstack([constraints, sparse.eye_array(self.size)]))
        self.transposed = self.matrix.T.tocsr()
        self._constraints_transposed = constraints.T.tocsr()
        # Gᵀ·diag(W)·G of every report at once: entry (x, x′) is a fixed sum over W.
        places = np.r_[
            first * self.size + first, second * self.size + second,
            first * self.size + second, second * self.size + first, cells * (self.size + 1),
        ]  # fmt: skip
        values = np.r_[ones, factors**2, -factors, -factors, np.ones(self.size)]
        self._spread = sparse.csr_array(
            (values, (places, np.r_[np.tile(rows, 4), self.pairs + cells])),
            shape=(self.size**2, self.pairs + self.size),
        )

    def hessians(self, weights: FloatArray) -> FloatArray:
        """Gᵀ·diag(W_y)·G for every report y: (n, m, m)."""
        spread = self._spread @ weights
        spread[:: self.size + 1] *= 1.0 + _NUDGE
        return np.ascontiguousarray(spread.T).reshape(self.reports, self.size, self.size)

    def bound(self, pair_price: FloatArray) -> float:
        """A lower bound on the optimum from any prices μ ≥ 0 (p, n): Σ_x min_y (q − Bᵀμ)[x, y]."""
        return float((self.costs - self._constraints_transposed @ pair_price).min(axis=1).sum())

    def dual_residual(self, point: Point) -> FloatArray:
        """q − λ − Gᵀ·price: zero where the prices explain every cost."""
        return self.costs - point.row_price[:, None] - self.transposed @ point.price

    def start(self, columns: FloatArray) -> Point:
        """A point on the central path as far as the slacks go, from a strictly private channel."""
        slack = self.matrix @ columns
        centre = float(np.vdot(self.costs, columns)) / slack.size
        centre = max(centre, 1e-12 * float(np.abs(self.costs).max(initial=1e-300)))
        price = centre / slack
        return Point(columns, slack, price, (self.costs - self.transposed @ price).mean(axis=1))


class Newton:
    """One factorisation at a point, used for several directions."""

    def __init__(self, program: ColumnProgram, point: Point) -> None:
        self.program, self.point = program, point
        # V_y with H_y⁻¹ = V_y·V_yᵀ, upper triangular, made in place of H_y.
        self._roots = program.hessians(point.price / point.slack)
        coupling = np.zeros((program.size, program.size), order="F")
        for root in self._roots:
            # The transposed view is in LAPACK's order: nothing is copied.
            factor, failed = linalg.lapack.dpotrf(root.T, lower=1, clean=1, overwrite_a=1)
            inverse, singular = linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)
            if failed or singular:
                raise np.linalg.LinAlgError("the Newton equations left double precision")
            if inverse.base is not root:
                root[:] = inverse.T
            # Σ_y V_y·V_yᵀ, its upper triangle: how the row sums answer to their prices
            coupling = linalg.blas.dsyrk(1.0, root.T, beta=1.0, c=coupling, trans=1, overwrite_c=1)
        self._rows = linalg.cho_factor(coupling, overwrite_a=True, check_finite=False)

    def direction(self, products: FloatArray, dual: FloatArray, rows: FloatArray) -> Point:
        """The step with s∘dprice + price∘ds = products, and the residuals of dual and row sums gone."""
        program, point = self.program, self.point
        alone = self._solve((program.transposed @ (products / point.slack) - dual).T)
        row_price = linalg.cho_solve(self._rows, rows - alone.sum(axis=0))
        columns = (alone + self._solve(np.broadcast_to(row_price, alone.shape))).T
        slack = program.matrix @ columns
        return Point(columns, slack, (products - point.price * slack) / point.slack, row_price)

    def _solve(self, right: FloatArray) -> FloatArray:
        """H_y⁻¹·right_y for every report y; (n, m) in and out."""
        half = np.matmul(self._roots.transpose(0, 2, 1), right[:, :, None])
        solved: FloatArray = np.matmul(self._roots, half)[:, :, 0]
        return solved


@dataclass(frozen=True)
class Solved:
    """What the solver found for the constraints it was given."""

    columns: FloatArray
    pair_price: FloatArray
    bound: float
    steps: int
    stopped: str
    converged: bool


def solve(
    program: ColumnProgram,
    start: FloatArray,
    *,
    gap: float,
    most_steps: int,
    progress: Callable[[float, float], None],
) -> Solved:
    """Mehrotra's predictor–corrector with Gondzio's centrality corrections, from a private start.

    Stops when loss − bound ≤ gap·loss, after ``most_steps``, or when rounding ends the progress; the
    best bound seen is kept. Cost: about 20 to 80 steps of O(m⁴ + pairs·m).
    Reference: Wright, *Primal–Dual Interior-Point Methods* (1997), ch. 10; Gondzio 1996.
    """
    point = program.start(start)
    bound, prices, least, since, step = -np.inf, point.price[: program.pairs], np.inf, 0, 0
    stopped = _STEPS
    for step in range(most_steps + 1):
        loss, open_products = float(np.vdot(program.costs, point.columns)), point.complementarity()
        reached = program.bound(point.price[: program.pairs])
        since = 0 if reached > bound or open_products < 0.9 * least else since + 1
        least = min(least, open_products)
        if reached > bound:
            bound, prices = reached, point.price[: program.pairs]
        progress(loss, bound)
        if loss - bound <= gap * abs(loss):
            return Solved(point.columns, prices, bound, step, "within the gap", converged=True)
        if step == most_steps:
            break
        if since >= _STALLED:
            stopped = ROUNDING
            break
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                point = _advance(program, point)
        except (np.linalg.LinAlgError, FloatingPointError, ValueError):
            stopped = _PRECISION
            break
    return Solved(point.columns, prices, bound, step, stopped, converged=False)


def _advance(program: ColumnProgram, point: Point) -> Point:
    """One step: predict, centre, correct, move."""
    newton = Newton(program, point)
    dual, rows = program.dual_residual(point), 1.0 - point.columns.sum(axis=1)
    total, products = point.complementarity(), -point.slack * point.price
    ahead = newton.direction(products, dual, rows)
    predicted = point.moved(ahead, *point.longest_steps(ahead)).complementarity()
    # Mehrotra: aim at products as small as the prediction got them, and make up for its second order.
    centre = total / point.slack.size * (predicted / total) ** 3
    products = centre + products - ahead.slack * ahead.price
    step = newton.direction(products, dual, rows)
    lengths = point.longest_steps(step)
    for _ in range(_CORRECTIONS):
        # Gondzio: pull the products of a longer step back between centre/10 and 10·centre.
        primal, dually = (min(1.0, 1.08 * length + 0.08) for length in lengths)
        beyond = point.moved(step, primal, dually)
        outliers = beyond.slack * beyond.price
        inside = np.clip(outliers, 0.1 * centre, 10.0 * centre)
        aimed = products + np.maximum(inside - outliers, -10.0 * centre)
        again = newton.direction(aimed, dual, rows)
        longer = point.longest_steps(again)
        if sum(longer) < sum(lengths) + 0.02:
            break
        step, products, lengths = again, aimed, longer
    # what rounding left over of the residuals, solved for once more
    dual_left = dual - step.row_price[:, None] - program.transposed @ step.price
    refined = newton.direction(np.zeros_like(products), dual_left, rows - step.columns.sum(axis=1))
    step = step.moved(refined, 1.0, 1.0)
    primal, dually = (_STEP_BACK * s if s < 1 else 1.0 for s in point.longest_steps(step))
    return point.moved(step, primal, dually)
