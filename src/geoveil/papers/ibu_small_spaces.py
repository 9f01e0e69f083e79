"""IBU on three values, on lines and on bit vectors: Figs 2, 4, 5, 13 and 14, and bound (17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy

import geoveil as gv
from geoveil.arrays import FloatArray, uniform
from geoveil.campaign.long_run import Mesh, compositions
from geoveil.channel.operator import DenseOperator
from geoveil.estimate.objective import Objective, em_path
from geoveil.papers import repeated, report
from geoveil.papers.repeated import MAXIMUM, METHODS, NORMALISED, PROJECTED
from geoveil.papers.report import Claim, Measured, Setting, Verdict, experiment
from geoveil.plot.curves import COLOURS, Curve, draw_curves

PEOPLE = 100_000

SIZE = 100


def judge_line(errors: Mapping[tuple[str, str], float]) -> Verdict:
    """§IX-A and the introduction: EM outperforms the inversions by far; INV-P is nearer than INV-N.

    Mean EMD in units by original and method.
    """
    claims = []
    for name in dict.fromkeys(original for original, _ in errors):
        em, projected, normalised = (errors[name, m] for m in (MAXIMUM, PROJECTED, NORMALISED))
        other = min(projected, normalised)
        claims += [
            Claim(f"{name}: EM outperforms both inversions by far", 2 * em < other,
                  f"mean EMD {em:.2f} units, the better of the others {other:.2f}"),
            Claim(f"{name}: INV-P is nearer than INV-N", projected < normalised,
                  f"{projected:.2f} against {normalised:.2f}"),
        ]  # fmt: skip
    return Verdict.of(*claims)


@experiment("Fig. 2: estimates on a line under geometric noise, ε = 0.1 per unit", judge_line)
def figure_2(setting: Setting) -> Measured:
    """EM clearly outperforms both inversions for a binomial and for a uniform original, and INV-P is
    slightly nearer to the truth than INV-N.
    """
    line = gv.Line(SIZE)
    mechanism = gv.LinearGeometric(line, epsilon_per_unit=0.1)
    originals = {
        "binomial": repeated.binomial(SIZE),
        "uniform on 20…39": repeated.uniform_between(SIZE, 20, 39),
    }
    rows: list[list[Any]] = []
    first: dict[tuple[str, str], FloatArray] = {}
    for name in setting.each(list(originals), "{}"):
        theta, repetitions = originals[name], setting.pick(20, 3)
        people = repeated.people_of(theta, PEOPLE)
        counts = repeated.repeated_counts(mechanism, people, repetitions, setting.seed)
        estimates = repeated.all_methods(mechanism, counts)
        varied = repeated.errors(estimates, partial(gv.total_variation, theta))
        moved = repeated.errors(
            estimates, partial(gv.earth_movers_distance_km, q=theta, space=line)
        )
        for method, shares in estimates.items():
            rows.append([name, method, float(varied[method].mean()), float(moved[method].mean())])
            first[name, method] = shares[0]

    def draw(figure: Any) -> None:
        axes = figure.subplots(2, 3, sharex=True, sharey="row")
        for part, ((name, method), estimate) in zip(axes.ravel(), first.items(), strict=True):
            theta, numbers = originals[name], np.arange(SIZE)
            part.bar(numbers, estimate, width=1.0, color=COLOURS[5], label="estimated")
            part.step(numbers, theta, where="mid", color="black", lw=1.0, label="original")
            part.set_title(f"{method}, {name}", fontsize=9)
            part.set_ylim(0.0, 2.4 * theta.max())
        for part in axes[1]:
            part.set_xlabel("number")
        for part in axes[:, 0]:
            part.set_ylabel("share")
        axes[0, 2].legend(fontsize=8)

    errors = {(name, method): emd for name, method, _, emd in rows}
    columns = "original | method | total variation | EMD (units)"
    numbers = {f"emd_{method}_{name.split()[0]}": emd for (name, method), emd in errors.items()}
    return Measured((errors,), columns, rows, draw, numbers, (9.0, 5.2))


# --- Figures 4 and 5: likelihoods on three values with many maxima, and with one at a corner


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

    @property
    def best(self) -> FloatArray:
        """The distributions of the mesh that are maxima."""
        return self.states[self.likelihood > self.likelihood.max() - 1e-12]


def judge_many(surface: Surface) -> Verdict:
    """§III-A and B: every distribution with θ₁ = θ₃ is a maximum, and the update may end in any of them."""
    best, ends, (one, other) = surface.best, surface.ends, surface.corner
    most = surface.likelihood.max()
    on_line = int((np.abs(surface.states[:, 0] - surface.states[:, 2]) < 1e-12).sum())
    return Verdict.of(
        Claim("(0, 1, 0) and (½, 0, ½) are both maxima", (np.abs(surface.corner - most) < 1e-12).all(),
              f"L {one:.4f} and {other:.4f}, the largest {most:.4f}"),
        Claim("the maxima are those with θ₁ = θ₃",
              len(best) == on_line and (best[:, 0] == best[:, 2]).all(),
              f"{len(best)} of a mesh of {len(surface.states)}, {on_line} with θ₁ = θ₃"),
        Claim("where the update ends depends on its start",
              np.ptp(ends[:, 1]) > 0.1 and (np.abs(ends[:, 0] - ends[:, 2]) < 1e-3).all(),
              f"θ₂ from {report.span(ends[:, 1])} over {len(ends)} starts"),
    )  # fmt: skip


def judge_corner(surface: Surface) -> Verdict:
    """§III-C and D: one maximum, (0, 1, 0); L is not stationary there; the update ends there."""
    best, slope, nearest = surface.best, surface.slope, surface.ends[:, 1].min()
    return Verdict.of(
        Claim("(0, 1, 0) is the only maximum", len(best) == 1 and best[0, 1] == 1,
              f"{len(best)} of a mesh of {len(surface.states)}"),
        Claim("the derivatives there are −0.5, so that it is not stationary",
              (np.abs(slope + 0.5) < 1e-9).all(),
              f"{slope[0]:.1f} and {slope[1]:.1f}: the reports have exactly the law of (0, 1, 0); −0.5 "
              "belongs to {1, 2, 2, 2, 3}"),
        Claim("the update ends there, which is no interior point", nearest > 0.99,
              f"θ₂ at least {nearest:.4f} after {_STEPS} steps from {len(surface.ends)} starts"),
    )  # fmt: skip


def _surface(matrix: FloatArray, counts: Sequence[int], other: Sequence[float]) -> Measured:
    """The likelihood of some reports under a mechanism; ``other`` is named beside (0, 1, 0)."""
    states, reports = compositions(_PARTS, 3) / _PARTS, np.array(counts)

    def value(thetas: FloatArray) -> FloatArray:
        return np.asarray(xlogy(reports, thetas @ matrix).sum(axis=-1))

    corner = np.array([0.0, 1.0, 0.0])
    gradient = matrix @ (reports / (corner @ matrix))
    starts = Mesh(3, 8).states
    path = em_path(Objective(DenseOperator(matrix), np.tile(reports, (len(starts), 1))), starts)
    ends = next(islice(path, _STEPS, None)).theta
    named, slope = value(np.array([corner, other])), gradient[[0, 2]] - gradient[1]
    surface = Surface(states, value(states), named, slope, ends)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        shown = np.maximum(surface.likelihood, surface.likelihood.max() - 1.5)
        contours = axes.tricontourf(states[:, 0], states[:, 2], shown, levels=24, cmap="viridis")
        figure.colorbar(contours, label="log-likelihood L(θ)")
        best, mark = surface.best, {"ms": 4.0, "clip_on": False, "zorder": 5}
        axes.plot(best[:, 0], best[:, 2], "o", color="white", mec="black", label="maximum", **mark)
        axes.plot(ends[:, 0], ends[:, 2], "x", color="#D55E00", label="end of the update", **mark)
        axes.set(xlabel="θ₁", ylabel="θ₃", aspect="equal")
        axes.legend(fontsize=8)

    order = np.argsort(-surface.likelihood, kind="stable")[:12]
    rows = [[*states[at].round(4), round(float(surface.likelihood[at]), 6)] for at in order]
    return Measured((surface,), "θ₁ | θ₂ | θ₃ | L", rows, draw, figure_size=(6.4, 4.6))


@experiment("Fig. 4: a likelihood with infinitely many maxima", judge_many)
def figure_4(setting: Setting) -> Measured:
    """With mechanism (7) and reports {1, 2, 3} every θ with θ₁ = θ₃ is a maximum, (0, 1, 0) and (½, 0, ½)
    among them, and the update may converge to any of them.
    """
    return _surface(SINGULAR, (1, 1, 1), (0.5, 0.0, 0.5))


@experiment("Fig. 5: a maximum at a corner", judge_corner)
def figure_5(setting: Setting) -> Measured:
    """With mechanism (8) and reports {1, 2, 2, 3} the only maximum is (0, 1, 0); both derivatives are −0.5
    there, so that it is not stationary, and the update converges to it.
    """
    return _surface(RESPONSE, (1, 2, 1), (1 / 3, 1 / 3, 1 / 3))


# --- Bound (17): one person whose value is reported k times; exact, over all counts of the k reports


LENGTHS = (1, 2, 5, 10, 20, 40, 80, 160)
DELTAS = (0.05, 0.1, 0.2, 0.4)
"""Bits."""
TWINS = np.array([[2, 1, 1], [2, 1, 1], [1, 1, 2]]) / 4
"""A mechanism with two equal rows."""


def judge_bound(
    tails: FloatArray, bounds: FloatArray, distinct: FloatArray, twins: FloatArray
) -> Verdict:
    """§VI-C: bound (17); the error goes to 0 where rows differ and stays where they do not.

    ``tails`` (lengths, deltas) is P(D_KL(q‖a) > δ) for the worst of the three values and ``bounds`` its
    bound (1 + k)^3·2^(−kδ); ``distinct`` and ``twins`` (lengths,) are P(the maximum misses the value) under
    a mechanism with three different rows, and with two equal ones of which one is true.
    """
    most = (tails / np.minimum(bounds, 1e300)).max()
    return Verdict.of(
        Claim("bound (17) holds", (tails <= bounds).all(),
              f"at {tails.size} pairs of k and δ the chance is at most {most:.2g} of it; it is below 1 at "
              f"{int((bounds < 1).sum())} of them"),
        Claim("with different rows the error goes to 0 as k grows",
              distinct[-1] < 1e-3 and (np.diff(distinct) <= 1e-12).all(),
              f"{distinct[0]:.2f} at k = {LENGTHS[0]}, {distinct[-1]:.1g} at {LENGTHS[-1]}"),
        Claim("with equal rows the error does not go to 0",
              twins.min() > 0.1 and abs(twins[-1] - twins[-2]) < 0.01,
              f"{twins[0]:.2f} at k = {LENGTHS[0]}, {twins[-1]:.2f} at {LENGTHS[-1]}"),
    )  # fmt: skip


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


@experiment("Bound (17): one person, many reports", judge_bound)
def bound_17(setting: Setting) -> Measured:
    """P(D_KL(q‖a) > δ) ≤ (1 + k)^|Z|·2^(−kδ): the maximum finds the value of one person with an error that
    goes to 0 as the k reports grow, unless another value has the same row.
    """
    pairs = [(k, delta) for k in LENGTHS for delta in DELTAS]
    shape = len(LENGTHS), len(DELTAS)
    tails = np.reshape([max(_tail(row, *pair) for row in RESPONSE) for pair in pairs], shape)
    bounds = np.reshape([(1.0 + k) ** 3 * 2.0 ** (-k * delta) for k, delta in pairs], shape)
    distinct, twins = (np.array([_missed(m, k) for k in LENGTHS]) for m in (RESPONSE, TWINS))

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        k = np.array(LENGTHS, dtype=np.float64)
        for at, delta in enumerate(DELTAS):
            above = np.maximum(tails[:, at], 1e-15)
            (line,) = left.plot(k, above, "o-", ms=3, label=f"δ = {delta:g}")
            left.plot(k, bounds[:, at], "--", lw=1.0, color=line.get_color())
        left.set(xscale="log", yscale="log", xlabel="reports k")
        left.set(ylabel="chance (points), bound (dashed)", ylim=(1e-13, 1e6))
        left.legend(fontsize=8)
        curves = [Curve("three different rows", k, distinct), Curve("two equal rows", k, twins)]
        draw_curves(right, curves, x_label="reports k", y_label="P(maximum misses)", x_scale="log")

    rows = [[*p, t, b] for p, t, b in zip(pairs, tails.ravel(), bounds.ravel(), strict=True)]
    columns = "k | δ (bits) | P(D_KL > δ) | bound (17)"
    return Measured((tails, bounds, distinct, twins), columns, rows, draw, figure_size=(9.5, 3.8))


# --- Figures 13 and 14: RAPPOR on ten values


RAPPOR_SIZE = 10
LEVELS, QUICK_LEVELS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), (0.25, 0.5, 2.0)
ORIGINALS = {
    "binomial": repeated.binomial(RAPPOR_SIZE),
    "uniform on 3…6": repeated.uniform_between(RAPPOR_SIZE, 3, 6),
}


def _estimates(
    theta: FloatArray, epsilon: float, repetitions: int, seed: int
) -> dict[str, FloatArray]:
    """Every method on (repetitions, 2^10) counts of the bit vectors."""
    mechanism = gv.Rappor(gv.Line(RAPPOR_SIZE), epsilon=epsilon)
    people = repeated.people_of(theta, PEOPLE)
    counts = repeated.repeated_counts(mechanism, people, repetitions, seed)
    # (s − flip)/(keep − flip), s the share of vectors with each bit set (FREEWILL eq. 14)
    vectors = np.arange(1 << RAPPOR_SIZE)[:, None] >> np.arange(RAPPOR_SIZE) & 1
    shares = counts @ vectors / counts.sum(axis=1, keepdims=True)
    solved = (shares - mechanism.flip) / (mechanism.keep - mechanism.flip)
    matrix = np.stack([mechanism.row(cell) for cell in range(RAPPOR_SIZE)])
    update = repeated.maximum_likelihood(DenseOperator(matrix), counts)
    return dict(zip(METHODS, [*repeated.repaired(solved), update], strict=True))


def judge_recovery(varied: Mapping[str, float], away: Mapping[str, float]) -> Verdict:
    """§IX-E on Fig. 13: mean TV of EM beside that of a uniform guess, by original."""
    return Verdict.of(
        *(Claim(f"EM recovers the {name}", error < 0.25 * away[name],
                f"mean TV {error:.3f}, less than a quarter of a uniform guess's {away[name]:.3f}")
          for name, error in varied.items())
    )  # fmt: skip


@experiment("Fig. 13: EM under RAPPOR, ten values, ε = 0.5", judge_recovery)
def figure_13(setting: Setting) -> Measured:
    """EM recovers a binomial and a uniform original from 100,000 RAPPOR vectors at ε = 0.5."""
    repetitions, flat = setting.pick(100, 3), uniform(RAPPOR_SIZE)
    first, varied, away = {}, {}, {}
    for name, theta in ORIGINALS.items():
        estimates = _estimates(theta, 0.5, repetitions, setting.seed)
        errors = repeated.errors(estimates, partial(gv.total_variation, theta))
        first[name], varied[name] = estimates[MAXIMUM][0], float(errors[MAXIMUM].mean())
        away[name] = gv.total_variation(theta, flat)

    def draw(figure: Any) -> None:
        axes, cells = figure.subplots(1, 2, sharey=True), np.arange(RAPPOR_SIZE)
        for part, (name, theta) in zip(axes, ORIGINALS.items(), strict=True):
            part.bar(cells - 0.2, theta, width=0.4, color="0.6", label="original")
            part.bar(cells + 0.2, first[name], width=0.4, color=COLOURS[0], label="EM")
            part.set(title=name, xlabel="value", xticks=cells)
        axes[0].set_ylabel("share")
        axes[0].legend(fontsize=8)

    columns = "original | value | true share | estimate of the first run"
    rows = [
        [name, cell, theta[cell], first[name][cell]]
        for name, theta in ORIGINALS.items()
        for cell in range(RAPPOR_SIZE)
    ]
    numbers = {f"tv_{name.split()[0]}": value for name, value in varied.items()}
    return Measured((varied, away), columns, rows, draw, numbers, (8.0, 3.4))


def judge_alike(ratios: Mapping[tuple[str, str], FloatArray]) -> Verdict:
    """§IX-E on Fig. 14: TV over that of EM by original and method, one for each level."""
    return Verdict.of(
        *(Claim(f"{name}: {method} and EM have almost the same quality",
                (np.abs(values - 1) < 0.25).all(), f"{report.span(values)} times its TV")
          for (name, method), values in ratios.items())
    )  # fmt: skip


@experiment("Fig. 14: RAPPOR at every level", judge_alike)
def figure_14(setting: Setting) -> Measured:
    """INV-N, INV-P and EM have almost the same quality under RAPPOR."""
    levels, repetitions = setting.pick(LEVELS, QUICK_LEVELS), setting.pick(100, 5)
    errors: list[dict[tuple[str, str], FloatArray]] = []
    for number, epsilon in enumerate(setting.each(levels, "ε = {:g}")):
        errors.append({})
        for name, theta in ORIGINALS.items():
            estimates = _estimates(theta, epsilon, repetitions, setting.seed + number)
            by_method = repeated.errors(estimates, partial(gv.total_variation, theta))
            errors[-1] |= {(name, method): values for method, values in by_method.items()}
    varied = repeated.stacked(errors)
    means = {key: values.mean(axis=1) for key, values in varied.items()}
    ratios = {
        (name, method): means[name, method] / means[name, MAXIMUM]
        for name in ORIGINALS
        for method in (PROJECTED, NORMALISED)
    }
    panels = {
        name: [Curve(method, np.array(levels), varied[name, method].T) for method in METHODS]
        for name in ORIGINALS
    }
    columns = ("original", "ε", *(f"TV, {method}" for method in METHODS))
    rows = [
        [name, epsilon, *(means[name, method][number] for method in METHODS)]
        for name in ORIGINALS
        for number, epsilon in enumerate(levels)
    ]
    draw = report.curves(panels, "ε", "total variation", x_scale="log", y_scale="log", sharey=True)
    numbers = {f"most_{m}_{n.split()[0]}": float(values.max()) for (n, m), values in ratios.items()}
    return Measured((ratios,), columns, rows, draw, numbers, (9.0, 3.6))
