"""Linear programs with very many constraints: an interior point, its Newton steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse

from geoveil.arrays import FloatArray, IntArray

_NUDGE = 1e-14  # keeps a factor positive when its condition number leaves double precision


class Point(NamedTuple):
    """Where the method is: columns C, slacks s = BC, multipliers μ of s, ν of C ≥ 0, λ of the sums."""

    columns: FloatArray
    slack: FloatArray
    pair_price: FloatArray
    entry_price: FloatArray
    row_price: FloatArray

    def moved(self, by: Point, primal: float, dual: float) -> Point:
        """A step of different lengths in the primal and the dual variables."""
        return Point(
            self.columns + primal * by.columns,
            self.slack + primal * by.slack,
            self.pair_price + dual * by.pair_price,
            self.entry_price + dual * by.entry_price,
            self.row_price + dual * by.row_price,
        )

    def plus(self, other: Point) -> Point:
        """Two directions added."""
        return self.moved(other, 1.0, 1.0)

    def longest_steps(self, by: Point) -> tuple[float, float]:
        """How far one can go until a slack, or a price, becomes zero; at most 1."""
        primal = min(_reach(self.slack, by.slack), _reach(self.columns, by.columns))
        dual = min(_reach(self.pair_price, by.pair_price), _reach(self.entry_price, by.entry_price))
        return primal, dual

    def complementarity(self) -> float:
        """s·μ + C·ν, which is the gap of a feasible point."""
        return float(np.vdot(self.slack, self.pair_price) + np.vdot(self.columns, self.entry_price))


class Targets(NamedTuple):
    """Right-hand sides of a Newton step: s∘dμ + μ∘ds, C∘dν + ν∘dC, dual and row-sum residuals."""

    pairs: FloatArray
    entries: FloatArray
    dual: FloatArray
    rows: FloatArray


class ColumnProgram:
    """The costs q and the constraints B of one column, shared by all reports."""

    def __init__(self, costs: FloatArray, pairs: IntArray, factors: FloatArray) -> None:
        self.costs = costs
        self.size, self.reports = costs.shape
        first, second = pairs[:, 0], pairs[:, 1]
        rows, ones = np.arange(len(pairs)), np.ones(len(pairs))
        self.matrix = sparse.csr_array(
            (np.r_[ones, -factors], (np.r_[rows, rows], np.r_[first, second])),
            shape=(len(pairs), self.size),
        )
        self.transposed = self.matrix.T.tocsr()
        # Bᵀ·diag(W)·B of every report at once: entry (x, x′) is a fixed sum over W.
        places = np.r_[
            first * self.size + first, second * self.size + second,
            first * self.size + second, second * self.size + first,
        ]  # fmt: skip
        self._spread = sparse.csr_array(
            (np.r_[ones, factors**2, -factors, -factors], (places, np.tile(rows, 4))),
            shape=(self.size**2, len(pairs)),
        )

    def hessians(self, pair_weights: FloatArray, entry_weights: FloatArray) -> FloatArray:
        """Bᵀ·diag(W_y)·B + diag(D_y) for every report y: (reports, size, size)."""
        spread = self._spread @ pair_weights
        diagonal = np.arange(self.size) * (self.size + 1)
        spread[diagonal] = (spread[diagonal] + entry_weights) * (1.0 + _NUDGE)
        return np.ascontiguousarray(spread.T).reshape(self.reports, self.size, self.size)

    def bound(self, pair_price: FloatArray) -> float:
        """A lower bound on the optimum from any prices μ ≥ 0."""
        return float((self.costs - self.transposed @ pair_price).min(axis=1).sum())

    def start(self, columns: FloatArray) -> Point:
        """A point on the central path as far as the slacks go, from a strictly private channel."""
        slack = self.matrix @ columns
        centre = float(np.vdot(self.costs, columns)) / (slack.size + columns.size)
        centre = max(centre, 1e-12 * float(np.abs(self.costs).max(initial=1e-300)))
        pair_price, entry_price = centre / slack, centre / columns
        left = self.costs - self.transposed @ pair_price - entry_price
        return Point(columns, slack, pair_price, entry_price, left.mean(axis=1))


class Newton:
    """One factorisation at a point, used for several directions."""

    def __init__(self, program: ColumnProgram, point: Point) -> None:
        self.program, self.point = program, point
        hessians = program.hessians(
            point.pair_price / point.slack, point.entry_price / point.columns
        )
        self._roots = _inverse_roots(hessians)
        self._rows = linalg.cho_factor(_coupling(self._roots), overwrite_a=True, check_finite=False)

    def direction(self, targets: Targets) -> Point:
        """The solution of the Newton equations for the given right-hand sides."""
        program, point = self.program, self.point
        wanted = (
            program.transposed @ (targets.pairs / point.slack)
            + targets.entries / point.columns
            - targets.dual
        )
        alone = self._solve(wanted.T)
        row_price = linalg.cho_solve(self._rows, targets.rows - alone.sum(axis=0))
        columns = (alone + self._solve(np.broadcast_to(row_price, alone.shape))).T
        slack = program.matrix @ columns
        pair_price = (targets.pairs - point.pair_price * slack) / point.slack
        entry_price = (targets.entries - point.entry_price * columns) / point.columns
        return Point(columns, slack, pair_price, entry_price, row_price)

    def refined(self, found: Point, targets: Targets) -> Point:
        """The direction with what rounding left over solved for once more."""
        dual = (
            targets.dual
            - found.row_price[:, None]
            - self.program.transposed @ found.pair_price
            - found.entry_price
        )
        rows = targets.rows - found.columns.sum(axis=1)
        none = Targets(np.zeros_like(targets.pairs), np.zeros_like(targets.entries), dual, rows)
        return found.plus(self.direction(none))

    def _solve(self, right: FloatArray) -> FloatArray:
        """H_y⁻¹·right_y for every report y; (reports, size) in and out."""
        half = np.matmul(self._roots.transpose(0, 2, 1), right[:, :, None])
        solved: FloatArray = np.matmul(self._roots, half)[:, :, 0]
        return solved


def _inverse_roots(hessians: FloatArray) -> FloatArray:
    """V_y with H_y⁻¹ = V_y·V_yᵀ, upper triangular, in place; LinAlgError where H_y is not positive."""
    for hessian in hessians:
        # The transposed view is in LAPACK's order: nothing is copied.
        factor, failed = linalg.lapack.dpotrf(hessian.T, lower=1, clean=1, overwrite_a=1)
        inverse, singular = linalg.lapack.dtrtri(factor, lower=1, overwrite_c=1)
        if failed or singular:
            raise np.linalg.LinAlgError("the Newton equations left double precision")
        if inverse.base is not hessian:
            hessian[:] = inverse.T
    return hessians


def _coupling(roots: FloatArray) -> FloatArray:
    """Σ_y V_y·V_yᵀ, its upper triangle."""
    total = np.zeros(roots.shape[1:], order="F")
    for root in roots:
        total = linalg.blas.dsyrk(1.0, root.T, beta=1.0, c=total, trans=1, overwrite_c=1)
    return total


def _reach(values: FloatArray, by: FloatArray) -> float:
    fastest = float((-by / values).max(initial=0.0))
    return 1.0 if fastest <= 1.0 else 1.0 / fastest


# --- A primal–dual interior-point method for optimal mechanisms, with the structure used


_STEP_BACK = 0.995
_CORRECTIONS = 2
_STALLED = 12  # steps without a better bound or loss
_STEPS = "the steps ran out: allow more of them, or a larger gap"
ROUNDING = "rounding ends the progress: ask for a larger gap"
_PRECISION = "the Newton equations left double precision: ask for a larger gap, or take fewer cells"


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
    bound, prices, since = -np.inf, point.pair_price, 0
    least = np.inf
    stopped, converged = _STEPS, False
    step = 0
    for step in range(most_steps + 1):
        loss, reached = (
            float(np.vdot(program.costs, point.columns)),
            program.bound(point.pair_price),
        )
        open_products = point.complementarity()
        since = 0 if reached > bound or open_products < 0.9 * least else since + 1
        least = min(least, open_products)
        if reached > bound:
            bound, prices = reached, point.pair_price
        progress(loss, bound)
        if loss - bound <= gap * abs(loss):
            stopped, converged = "within the gap", True
            break
        if since >= _STALLED or step == most_steps:
            stopped = stopped if step == most_steps else ROUNDING
            break
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                point = _advance(program, point)
        except (np.linalg.LinAlgError, FloatingPointError, ValueError):
            stopped = _PRECISION
            break
    return Solved(point.columns, prices, bound, step, stopped, converged)


def _advance(program: ColumnProgram, point: Point) -> Point:
    """One step: predict, centre, correct, move."""
    newton = Newton(program, point)
    total = point.complementarity()
    mean = total / (point.slack.size + point.columns.size)
    dual = (
        program.costs
        - point.row_price[:, None]
        - program.transposed @ point.pair_price
        - point.entry_price
    )
    rows = 1.0 - point.columns.sum(axis=1)
    pairs, entries = -point.slack * point.pair_price, -point.columns * point.entry_price
    ahead = newton.direction(Targets(pairs, entries, dual, rows))
    left = point.moved(ahead, *point.longest_steps(ahead)).complementarity()
    centre = mean * (left / total) ** 3
    targets = Targets(
        centre + pairs - ahead.slack * ahead.pair_price,
        centre + entries - ahead.columns * ahead.entry_price,
        dual,
        rows,
    )
    found = newton.direction(targets)
    steps = point.longest_steps(found)
    for _ in range(_CORRECTIONS):
        aimed = _centred(point, found, steps, targets, centre)
        again = newton.direction(aimed)
        longer = point.longest_steps(again)
        if sum(longer) < sum(steps) + 0.02:
            break
        found, targets, steps = again, aimed, longer
    found = newton.refined(found, targets)
    primal, dually = (_STEP_BACK * s if s < 1 else 1.0 for s in point.longest_steps(found))
    return point.moved(found, primal, dually)


def _centred(
    point: Point, by: Point, steps: tuple[float, float], targets: Targets, centre: float
) -> Targets:
    """Targets that pull the products of a longer step back between centre/10 and 10·centre."""
    primal, dual = (min(1.0, 1.08 * step + 0.08) for step in steps)
    ahead = point.moved(by, primal, dual)
    pairs, entries = ahead.slack * ahead.pair_price, ahead.columns * ahead.entry_price
    return targets._replace(
        pairs=targets.pairs + _pull(pairs, centre), entries=targets.entries + _pull(entries, centre)
    )


def _pull(products: FloatArray, centre: float) -> FloatArray:
    inside = np.clip(products, 0.1 * centre, 10.0 * centre)
    return np.maximum(inside - products, -10.0 * centre)
