"""IBU on lines and bit vectors: Figs 2, 9, 13 and 14."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.estimate.likelihood import DenseLikelihood, uniform
from geoveil.estimate.linear import REPAIRS
from geoveil.measure.information import total_variation
from geoveil.mechanism.linear_geometric import LinearGeometric
from geoveil.mechanism.local import Rappor
from geoveil.papers.repeated import (
    MAXIMUM,
    METHODS,
    NORMALISED,
    PROJECTED,
    all_methods,
    binomial,
    earth_movers,
    maximum_likelihood,
    people_of,
    repeated_counts,
    total_variations,
    uniform_between,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import COLOURS, Curve, draw_curves
from geoveil.randomness import seeded
from geoveil.space.line import Line

SIZE, PEOPLE, EPSILON = 100, 100_000, 0.1
COLUMNS = ("original", "method", "total variation", "EMD (units)")
Panels = dict[str, tuple[FloatArray, dict[str, FloatArray]]]


def _run(setting: Setting) -> Finding:
    line = Line(SIZE)
    mechanism = LinearGeometric(line, epsilon_per_unit=EPSILON)
    originals = {"binomial": binomial(SIZE), "uniform on 20…39": uniform_between(SIZE, 20, 39)}
    repetitions = 3 if setting.quick else 20
    rows, panels, errors = [], Panels(), {}
    for number, (name, theta) in enumerate(originals.items()):
        setting.progress(number / 2, name)
        counts = repeated_counts(mechanism, people_of(theta, PEOPLE), repetitions, setting.seed)
        found = all_methods(mechanism, counts)
        panels[name] = theta, {method: each[0] for method, each in found.items()}
        for method in METHODS:
            moved = float(earth_movers(found[method], theta, line).mean())
            varied = float(total_variations(found[method], theta).mean())
            rows.append([name, method, varied, moved])
            errors[name, method] = moved
    return Finding(
        *judge_line(errors),
        table=Table.of(COLUMNS, rows),
        draw=partial(_draw, panels),
        numbers={
            f"emd_{method}_{name.split()[0]}": errors[name, method]
            for name in originals
            for method in METHODS
        },
        figure_size=(9.0, 5.2),
    )


def judge_line(errors: Mapping[tuple[str, str], float]) -> Verdict:
    """§IX-A and the introduction: EM outperforms the inversions by far; INV-P is nearer than INV-N."""
    claims = []
    for name in dict.fromkeys(original for original, _ in errors):
        em, projected, normalised = (errors[name, m] for m in (MAXIMUM, PROJECTED, NORMALISED))
        claims += [
            Claim(
                f"{name}: EM outperforms both inversions by far",
                2 * em < min(projected, normalised),
                f"mean EMD {em:.2f} units, the better of the others {min(projected, normalised):.2f}",
            ),
            Claim(
                f"{name}: INV-P is nearer than INV-N",
                projected < normalised,
                f"{projected:.2f} against {normalised:.2f}",
            ),
        ]
    return Verdict.of(*claims)


def _draw(panels: Panels, figure: Any) -> None:
    axes = figure.subplots(2, 3, sharex=True, sharey="row")
    for row, (name, (theta, found)) in zip(axes, panels.items(), strict=True):
        for each, method in zip(row, METHODS, strict=True):
            each.bar(np.arange(SIZE), found[method], width=1.0, color=COLOURS[5], label="estimated")
            each.step(np.arange(SIZE), theta, where="mid", color="black", lw=1.0, label="original")
            each.set_title(f"{method}, {name}", fontsize=9)
            each.set_ylim(0.0, 2.4 * theta.max())
    for each in axes[1]:
        each.set_xlabel("number")
    axes[0, 0].set_ylabel("share")
    axes[1, 0].set_ylabel("share")
    axes[0, 2].legend(fontsize=8)


FIGURE_2 = Experiment(
    name="figure-2",
    title="Fig. 2: estimates on a line under geometric noise, ε = 0.1 per unit",
    statement=(
        "EM clearly outperforms both inversions for a binomial and for a uniform original, and INV-P "
        "is slightly nearer to the truth than INV-N."
    ),
    run=_run,
    judge=judge_line,
)


# --- Figures 13 and 14: RAPPOR on ten values


RAPPOR_SIZE, RAPPOR_PEOPLE, RAPPOR_EPSILON = 10, 100_000, 0.5
LEVELS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
_QUICK_LEVELS = (0.25, 0.5, 2.0)
ORIGINALS = {
    "binomial": binomial(RAPPOR_SIZE),
    "uniform on 3…6": uniform_between(RAPPOR_SIZE, 3, 6),
}


def _estimates(
    theta: FloatArray, epsilon: float, people: int, repetitions: int, seed: int
) -> dict[str, FloatArray]:
    """Every method on (repetitions, 2^10) counts of the bit vectors."""
    mechanism = Rappor(Line(RAPPOR_SIZE), epsilon=epsilon)
    letters = 1 << np.arange(RAPPOR_SIZE)
    counts = []
    for number in range(repetitions):
        randomness = seeded(seed * 1_000_003 + number)
        bits = mechanism.sample(people_of(theta, people)(randomness), randomness=randomness)
        counts.append(np.bincount(bits @ letters, minlength=1 << RAPPOR_SIZE))
    table = np.stack(counts)
    matrix = np.stack([mechanism.row(cell) for cell in range(RAPPOR_SIZE)])
    solved = _linear(mechanism, table)
    return {
        NORMALISED: np.stack([REPAIRS["normalise"](row) for row in solved]),
        PROJECTED: np.stack([REPAIRS["project"](row) for row in solved]),
        MAXIMUM: maximum_likelihood(DenseLikelihood(matrix), table),
    }


def _linear(mechanism: Rappor, counts: IntArray) -> FloatArray:
    """(s − flip)/(keep − flip), s the share of vectors with each bit set (FREEWILL eq. 14)."""
    bits = np.arange(1 << RAPPOR_SIZE)[:, None] >> np.arange(RAPPOR_SIZE) & 1
    shares = counts @ bits / counts.sum(axis=1, keepdims=True)
    return np.asarray((shares - mechanism.flip) / (mechanism.keep - mechanism.flip))


def _figure_13(setting: Setting) -> Finding:
    repetitions = 3 if setting.quick else 100
    found, varied = {}, {}
    for name, theta in ORIGINALS.items():
        found[name] = _estimates(theta, RAPPOR_EPSILON, RAPPOR_PEOPLE, repetitions, setting.seed)[
            MAXIMUM
        ]
        varied[name] = float(total_variations(found[name], theta).mean())
    away = {name: total_variation(theta, uniform(RAPPOR_SIZE)) for name, theta in ORIGINALS.items()}
    rows = [
        [name, cell, float(theta[cell]), float(found[name][0, cell])]
        for name, theta in ORIGINALS.items()
        for cell in range(RAPPOR_SIZE)
    ]
    return Finding(
        *judge_recovery(varied, away),
        table=Table.of(("original", "value", "true share", "estimate of the first run"), rows),
        draw=partial(_draw_estimates, found),
        numbers={f"tv_{name.split()[0]}": value for name, value in varied.items()},
        figure_size=(8.0, 3.4),
    )


def judge_recovery(varied: Mapping[str, float], away: Mapping[str, float]) -> Verdict:
    """§IX-E on Fig. 13: mean TV of EM beside that of a uniform guess, by original."""
    return Verdict.of(
        *(
            Claim(
                f"EM recovers the {name}",
                error < 0.25 * away[name],
                f"mean TV {error:.3f}, less than a quarter of a uniform guess's {away[name]:.3f}",
            )
            for name, error in varied.items()
        )
    )


def _draw_estimates(found: dict[str, FloatArray], figure: Any) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    for each, (name, theta) in zip(axes, ORIGINALS.items(), strict=True):
        cells = np.arange(RAPPOR_SIZE)
        each.bar(cells - 0.2, theta, width=0.4, color="0.6", label="original")
        each.bar(cells + 0.2, found[name][0], width=0.4, color=COLOURS[0], label="EM")
        each.set(title=name, xlabel="value", xticks=cells)
    axes[0].set_ylabel("share")
    axes[0].legend(fontsize=8)


def _figure_14(setting: Setting) -> Finding:
    levels = _QUICK_LEVELS if setting.quick else LEVELS
    repetitions = 5 if setting.quick else 100
    errors: dict[tuple[str, str], list[FloatArray]] = {}
    for number, epsilon in enumerate(levels):
        setting.progress(number / len(levels), f"ε = {epsilon:g}")
        for name, theta in ORIGINALS.items():
            estimates = _estimates(
                theta, epsilon, RAPPOR_PEOPLE, repetitions, setting.seed + number
            )
            for method, each in estimates.items():
                errors.setdefault((name, method), []).append(total_variations(each, theta))
    varied = {key: np.array(each) for key, each in errors.items()}
    ratios = {
        (name, method): varied[name, method].mean(axis=1) / varied[name, MAXIMUM].mean(axis=1)
        for name in ORIGINALS
        for method in (PROJECTED, NORMALISED)
    }
    rows = [
        [name, epsilon, *(float(varied[name, method][number].mean()) for method in METHODS)]
        for name in ORIGINALS
        for number, epsilon in enumerate(levels)
    ]
    return Finding(
        *judge_alike(ratios),
        table=Table.of(("original", "ε", *(f"TV, {method}" for method in METHODS)), rows),
        draw=partial(_draw_levels, levels, varied),
        numbers={f"most_{m}_{n.split()[0]}": float(each.max()) for (n, m), each in ratios.items()},
        figure_size=(9.0, 3.6),
    )


def judge_alike(ratios: Mapping[tuple[str, str], FloatArray]) -> Verdict:
    """§IX-E on Fig. 14: TV over that of EM by original and method, one for each level."""
    return Verdict.of(
        *(
            Claim(
                f"{name}: {method} and EM have almost the same quality",
                bool((np.abs(each - 1) < 0.25).all()),
                f"{each.min():.2f} to {each.max():.2f} times its TV",
            )
            for (name, method), each in ratios.items()
        )
    )


def _draw_levels(
    levels: tuple[float, ...], varied: dict[tuple[str, str], FloatArray], figure: Any
) -> None:
    axes = figure.subplots(1, 2, sharey=True)
    for each, name in zip(axes, ORIGINALS, strict=True):
        curves = [Curve(method, np.array(levels), varied[name, method].T) for method in METHODS]
        draw_curves(
            each,
            curves,
            x_label="ε",
            y_label="total variation",
            title=name,
            x_scale="log",
            y_scale="log",
        )


FIGURE_13 = Experiment(
    name="figure-13",
    title="Fig. 13: EM under RAPPOR, ten values, ε = 0.5",
    statement="EM recovers a binomial and a uniform original from 100,000 RAPPOR vectors at ε = 0.5.",
    run=_figure_13,
    judge=judge_recovery,
)
FIGURE_14 = Experiment(
    name="figure-14",
    title="Fig. 14: RAPPOR at every level",
    statement="INV-N, INV-P and EM have almost the same quality under RAPPOR.",
    run=_figure_14,
    judge=judge_alike,
)
