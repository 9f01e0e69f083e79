"""A primal–dual interior-point method for optimal mechanisms, with the structure used.

The program, one column C·y of the channel per report y:

    minimise  Σ_y q_y·C·y   subject to   C·y in K for every y,   Σ_y C·y = 1,

where q_y(x) = π(x)·L(x, y) and K holds the private columns: v ≥ 0 and v(x) ≥ g·v(x′) for each pair
(x, x′, g = e^{−w}). The columns meet only in the m row sums, so a Newton step factors one m × m matrix
per report and one for the row sums: O(m⁴) work where a general solver sees m² variables and m³ rows.

For any multipliers μ ≥ 0 of the pairs, Σ_x min_y (q_y − Bᵀμ_y)(x) is a lower bound on the optimum,
whatever the rounding errors that led to μ. The solver stops on that bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.optimal.newton import ColumnProgram, Newton, Point, Targets

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
