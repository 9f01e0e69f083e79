"""Figures 4 and 5: likelihoods with many maxima and with one at a corner; bound (17) for one person."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

from geoveil.arrays import FloatArray
from geoveil.campaign.long_run import Mesh, compositions
from geoveil.estimate.em import em_path
from geoveil.estimate.likelihood import DenseLikelihood, Objective
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import Curve, draw_curves

SINGULAR = np.array([[3, 2, 1], [2, 2, 2], [1, 2, 3]]) / 6
"""A of equation (7)."""
RESPONSE = np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2]]) / 4
"""A' of equation (8), 3-ary randomised response."""
_STEPS = 2000
_PARTS = 60


class Surface(NamedTuple):
    """L over the distributions on three values, and where the update ends from several starts."""

    states: FloatArray
    """(distributions, 3), the border included."""
    likelihood: FloatArray
    corner: FloatArray
    """L at the two distributions the paper names, (0, 1, 0) first."""
    slope: FloatArray
    """∂L/∂θ₁ and ∂L/∂θ₃ at (0, 1, 0), θ₂ = 1 − θ₁ − θ₃."""
    ends: FloatArray
    """(starts, 3)"""


def _surface(matrix: FloatArray, counts: Sequence[int], other: Sequence[float]) -> Surface:
    states = compositions(_PARTS, 3) / _PARTS
    seen = np.array(counts)

    def value(thetas: FloatArray) -> FloatArray:
        return np.asarray(xlogy(seen, thetas @ matrix).sum(axis=-1))

    corner = np.array([0.0, 1.0, 0.0])
    gradient = matrix @ (seen / (corner @ matrix))
    starts = Mesh(3, 8).states
    path = em_path(Objective(DenseLikelihood(matrix), np.tile(seen, (len(starts), 1))), starts)
    ends = next(islice(path, _STEPS, None)).theta
    named = value(np.array([corner, other]))
    return Surface(states, value(states), named, gradient[[0, 2]] - gradient[1], ends)


def _best(found: Surface) -> FloatArray:
    """The distributions of the mesh that are maxima."""
    return found.states[found.likelihood > found.likelihood.max() - 1e-12]


def judge_many(found: Surface) -> Verdict:
    """§III-A and B: every distribution with θ₁ = θ₃ is a maximum, and the update may end in any of them."""
    best, ends = _best(found), found.ends
    on_line = np.abs(found.states[:, 0] - found.states[:, 2]) < 1e-12
    apart = float(np.ptp(ends[:, 1]))
    return Verdict.of(
        Claim(
            "(0, 1, 0) and (½, 0, ½) are both maxima",
            bool((np.abs(found.corner - found.likelihood.max()) < 1e-12).all()),
            f"L {found.corner[0]:.4f} and {found.corner[1]:.4f}, the largest {found.likelihood.max():.4f}",
        ),
        Claim(
            "the maxima are those with θ₁ = θ₃",
            len(best) == int(on_line.sum()) and bool((best[:, 0] == best[:, 2]).all()),
            f"{len(best)} of a mesh of {len(found.states)}, {int(on_line.sum())} with θ₁ = θ₃",
        ),
        Claim(
            "where the update ends depends on its start",
            apart > 0.1 and bool((np.abs(ends[:, 0] - ends[:, 2]) < 1e-3).all()),
            f"θ₂ from {ends[:, 1].min():.2f} to {ends[:, 1].max():.2f} over {len(ends)} starts",
        ),
    )


def judge_corner(found: Surface) -> Verdict:
    """§III-C and D: one maximum, (0, 1, 0); L is not stationary there; the update ends there."""
    best = _best(found)
    unique = len(best) == 1 and best[0, 1] == 1
    return Verdict.of(
        Claim(
            "(0, 1, 0) is the only maximum",
            bool(unique),
            f"{len(best)} of a mesh of {len(found.states)}",
        ),
        Claim(
            "the derivatives there are −0.5, so that it is not stationary",
            bool((np.abs(found.slope + 0.5) < 1e-9).all()),
            f"{found.slope[0]:.1f} and {found.slope[1]:.1f}: the reports have exactly the law of "
            "(0, 1, 0); −0.5 belongs to {1, 2, 2, 2, 3}",
        ),
        Claim(
            "the update ends there, which is no interior point",
            bool(found.ends[:, 1].min() > 0.99),
            f"θ₂ at least {found.ends[:, 1].min():.4f} after {_STEPS} steps from {len(found.ends)} starts",
        ),
    )


def _figure_4(setting: Setting) -> Finding:
    found = _surface(SINGULAR, (1, 1, 1), (0.5, 0.0, 0.5))
    return _shown(judge_many(found), found)


def _figure_5(setting: Setting) -> Finding:
    found = _surface(RESPONSE, (1, 2, 1), (1 / 3, 1 / 3, 1 / 3))
    return _shown(judge_corner(found), found)


def _shown(verdict: Verdict, found: Surface) -> Finding:
    order = np.argsort(-found.likelihood, kind="stable")[:12]
    return Finding(
        *verdict,
        table=Table.of(
            ("θ₁", "θ₂", "θ₃", "L"),
            [[*found.states[at].round(4), round(float(found.likelihood[at]), 6)] for at in order],
        ),
        draw=partial(_draw_surface, found),
        figure_size=(6.4, 4.6),
    )


def _draw_surface(found: Surface, figure: Any) -> None:
    axes = figure.subplots()
    low = found.likelihood.max() - 1.5
    x, y = found.states[:, 0], found.states[:, 2]
    drawn = axes.tricontourf(x, y, np.maximum(found.likelihood, low), levels=24, cmap="viridis")
    figure.colorbar(drawn, label="log-likelihood L(θ)")
    best, mark = _best(found), {"ms": 4.0, "clip_on": False, "zorder": 5}
    axes.plot(best[:, 0], best[:, 2], "o", color="white", mec="black", label="maximum", **mark)
    ends = found.ends
    axes.plot(ends[:, 0], ends[:, 2], "x", color="#D55E00", label="end of the update", **mark)
    axes.set(xlabel="θ₁", ylabel="θ₃", aspect="equal")
    axes.legend(fontsize=8)


# -- bound (17) ------------------------------------------------------------------------------------

LENGTHS = (1, 2, 5, 10, 20, 40, 80, 160)
DELTAS = (0.05, 0.1, 0.2, 0.4)
"""Bits."""
TWINS = np.array([[2, 1, 1], [2, 1, 1], [1, 1, 2]]) / 4
"""A mechanism with two equal rows."""


class Single(NamedTuple):
    """One person whose value is reported k times; exact, over all counts of the k reports."""

    tails: FloatArray
    """(lengths, deltas): P(D_KL(q‖a) > δ), the worst of the three values."""
    bounds: FloatArray
    """(lengths, deltas): (1 + k)^3·2^(−kδ)."""
    distinct: FloatArray
    """P(the maximum misses the value) for each length, a mechanism with three different rows."""
    twins: FloatArray
    """The same where two rows are equal, one of their values true."""


def judge_bound(found: Single) -> Verdict:
    """§VI-C: bound (17); the error goes to 0 where rows differ and stays where they do not."""
    share = float((found.tails / np.minimum(found.bounds, 1e300)).max())
    useful = int((found.bounds < 1).sum())
    return Verdict.of(
        Claim(
            "bound (17) holds",
            bool((found.tails <= found.bounds).all()),
            f"at {found.tails.size} pairs of k and δ the chance is at most {share:.2g} of it; it is below 1 "
            f"at {useful} of them",
        ),
        Claim(
            "with different rows the error goes to 0 as k grows",
            bool(found.distinct[-1] < 1e-3 and (np.diff(found.distinct) <= 1e-12).all()),
            f"{found.distinct[0]:.2f} at k = {LENGTHS[0]}, {found.distinct[-1]:.1g} at {LENGTHS[-1]}",
        ),
        Claim(
            "with equal rows the error does not go to 0",
            bool(found.twins.min() > 0.1 and abs(found.twins[-1] - found.twins[-2]) < 0.01),
            f"{found.twins[0]:.2f} at k = {LENGTHS[0]}, {found.twins[-1]:.2f} at {LENGTHS[-1]}",
        ),
    )


def _bound(setting: Setting) -> Finding:
    tails = np.array([
        [max(_tail(RESPONSE[value], k, delta) for value in range(3)) for delta in DELTAS] for k in LENGTHS
    ])  # fmt: skip
    bounds = np.array([[(1.0 + k) ** 3 * 2.0 ** (-k * delta) for delta in DELTAS] for k in LENGTHS])
    errors = [np.array([_missed(matrix, k) for k in LENGTHS]) for matrix in (RESPONSE, TWINS)]
    found = Single(tails, bounds, *errors)
    rows = [
        [k, delta, tails[i, j], bounds[i, j]]
        for i, k in enumerate(LENGTHS)
        for j, delta in enumerate(DELTAS)
    ]
    return Finding(
        *judge_bound(found),
        table=Table.of(("k", "δ (bits)", "P(D_KL > δ)", "bound (17)"), rows),
        draw=partial(_draw_bound, found),
        figure_size=(9.5, 3.8),
    )


def _chances(row: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """All counts of k reports, and the chance of each."""
    counts = compositions(k, 3).astype(np.float64)
    logs = gammaln(k + 1.0) - gammaln(counts + 1).sum(axis=1) + xlogy(counts, row).sum(axis=1)
    return counts, np.exp(logs)


def _tail(row: FloatArray, k: int, delta: float) -> float:
    counts, chances = _chances(row, k)
    shares = counts / k
    divergence = (xlogy(shares, shares) - xlogy(shares, row)).sum(axis=1) / np.log(2.0)
    return float(chances[divergence > delta].sum())


def _missed(matrix: FloatArray, k: int) -> float:
    """The first value is true; between equal maxima one is picked at random (Theorem 6)."""
    counts, chances = _chances(matrix[0], k)
    values = counts @ np.log(matrix).T
    best = values > values.max(axis=1, keepdims=True) - 1e-9
    return float(chances @ (1 - best[:, 0] / best.sum(axis=1)))


def _draw_bound(found: Single, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    lengths = np.array(LENGTHS, dtype=np.float64)
    for at, delta in enumerate(DELTAS):
        (line,) = left.plot(
            lengths, np.maximum(found.tails[:, at], 1e-15), "o-", ms=3, label=f"δ = {delta:g}"
        )
        left.plot(lengths, found.bounds[:, at], "--", lw=1.0, color=line.get_color())
    left.set(
        xscale="log", yscale="log", xlabel="reports k", ylabel="chance (points), bound (dashed)"
    )
    left.set_ylim(1e-13, 1e6)
    left.legend(fontsize=8)
    curves = [
        Curve("three different rows", lengths, found.distinct),
        Curve("two equal rows", lengths, found.twins),
    ]
    draw_curves(right, curves, x_label="reports k", y_label="P(maximum misses)", x_scale="log")


FIGURE_4 = Experiment(
    "figure-4",
    "Fig. 4: a likelihood with infinitely many maxima",
    "With mechanism (7) and reports {1, 2, 3} every θ with θ₁ = θ₃ is a maximum, (0, 1, 0) and (½, 0, ½) "
    "among them, and the update may converge to any of them.",
    _figure_4,
    judge_many,
)
FIGURE_5 = Experiment(
    "figure-5",
    "Fig. 5: a maximum at a corner",
    "With mechanism (8) and reports {1, 2, 2, 3} the only maximum is (0, 1, 0); both derivatives are −0.5 "
    "there, so that it is not stationary, and the update converges to it.",
    _figure_5,
    judge_corner,
)
BOUND_17 = Experiment(
    "bound-17",
    "Bound (17): one person, many reports",
    "P(D_KL(q‖a) > δ) ≤ (1 + k)^|Z|·2^(−kδ): the maximum finds the value of one person with an error that "
    "goes to 0 as the k reports grow, unless another value has the same row.",
    _bound,
    judge_bound,
)
