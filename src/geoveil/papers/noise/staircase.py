"""The open question of NOISE: the best noise for a promise within a radius is a staircase."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from geoveil.channel.guarantee import WithinRadius
from geoveil.optimal.circular import CircularNoise
from geoveil.optimal.radial import OptimalNoise, optimal_noise
from geoveil.papers.noise.radials import WORDS
from geoveil.papers.page import COLOURS
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.space.loss import RadialLoss, distance_km, squared_distance_km2

RADIUS_KM = 1.0
EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
QUICK_EPSILONS = (1.0, 3.0)
LOSSES = (distance_km, squared_distance_km2)
_PROVEN = 1e-3


def staircase(radius_km: float, epsilon: float, first_km: float) -> CircularNoise:
    """Flat up to ``first_km``, then lower by e^{−ε} in rings of ``radius_km``; first ≤ radius.

    With first = radius it is the noise most like a uniform disk of that radius.
    """
    steps = math.ceil(45.0 / epsilon) + 2
    edges = np.r_[0.0, first_km + radius_km * np.arange(steps)]
    heights = np.exp(-epsilon * np.arange(steps))
    total = float((math.pi * np.diff(edges**2) * heights).sum())
    return CircularNoise.of_rings(edges, heights / total, privacy=WithinRadius(radius_km, epsilon))


def open_question(setting: Setting) -> Finding:
    """The best noise for (D, ε)-location privacy, against Laplace and disk-like noise."""
    epsilons = QUICK_EPSILONS if setting.quick else EPSILONS
    made, rows = [], []
    for step, epsilon in enumerate(epsilons):
        for loss in LOSSES:
            setting.progress(step / len(epsilons), f"ε = {epsilon:g}, {loss.name}")
            promise = WithinRadius(RADIUS_KM, epsilon)
            best = optimal_noise(privacy=promise, loss=loss, gap=1e-3 if setting.quick else 2e-4)
            made.append(best)
            rows.append(_row(epsilon, loss, best))
    steps = all(_is_staircase(noise, row[0]) for noise, row in zip(made, rows, strict=True))
    gains = [row[6] for row in rows]
    return Finding(
        *judge_open_question(max(noise.gap for noise in made), steps, gains),
        Table.of(
            ("epsilon", "loss", "optimum", "lower bound", "Laplace ε/D per km", "disk-like",
             "gain over Laplace", "gain over disk-like", "first step km"), rows,
        ),
        lambda figure: _draw(figure, made, rows),
        {"largest_gain_over_laplace": max(gains), "largest_gap": max(n.gap for n in made)},
        figure_size=(8.6, 3.8),
    )  # fmt: skip


def judge_open_question(gap: float, steps: bool, gains: Sequence[float]) -> Verdict:
    """§8: from the proven gap, whether every noise is a staircase, and its gains over Laplace."""
    shape = "a staircase, flat and lower by e^{−ε} in rings of width D" if steps else "no staircase"
    return Verdict.of(
        Claim(
            "the framework provides the tools to identify the optimal noise within a radius",
            gap <= _PROVEN,
            f"found and proven to {gap:.1g} of its loss",
        ),
        note=(
            f"It is {shape}. Against Laplace noise of ε/D per km, which keeps the same promise, it saves "
            f"{100 * min(gains):.2g} % to {100 * max(gains):.2g} %."
        ),
    )


def _row(epsilon: float, loss: RadialLoss, best: OptimalNoise) -> tuple[Any, ...]:
    per_km = epsilon / RADIUS_KM
    laplace = 2 / per_km if loss is distance_km else 6 / per_km**2
    disk = staircase(RADIUS_KM, epsilon, RADIUS_KM).expected_loss(loss)
    reached = best.loss_reached
    return (
        epsilon, loss.name, reached, best.optimality.lower_bound, laplace, disk,
        1 - reached / laplace, 1 - reached / disk, first_step_km(best),
    )  # fmt: skip


def first_step_km(noise: CircularNoise) -> float:
    """Where the density first falls below half way, in logarithms, to the next step."""
    logs = np.log(noise.pieces.left)
    fallen = int(np.argmax(logs < logs[0] - 0.25 * (logs[0] - logs[min(logs.size - 1, 3)])))
    return float(noise.pieces.edges[fallen])


def _is_staircase(noise: CircularNoise, epsilon: float) -> bool:
    """Whether nearly all probability lies on steps e^{−ε} apart."""
    depth = np.log(noise.pieces.left[0] / noise.pieces.left) / epsilon
    on_step = np.abs(depth - np.rint(depth)) < 1e-3
    return bool(noise.pieces.masses[on_step].sum() > 0.85)


def _draw(figure: Any, made: list[OptimalNoise], rows: list[tuple[Any, ...]]) -> None:
    left, right = figure.subplots(1, 2)
    radius = np.linspace(0, 4, 2001)
    shown = [
        n for n, row in zip(made, rows, strict=True) if row[0] == 1.0 and n.loss is distance_km
    ]
    for noise in shown:
        left.plot(
            radius, noise.density_per_km2(radius), color=COLOURS[0], label="optimal: a staircase"
        )
        disk = staircase(RADIUS_KM, 1.0, RADIUS_KM)
        left.plot(
            radius,
            disk.density_per_km2(radius),
            ":",
            color=COLOURS[2],
            label="disk-like: first step D",
        )
        left.plot(radius, np.exp(-radius) / (2 * np.pi), "--", color=COLOURS[1], label="Laplace")
    left.set(xlabel="noise r (km)", ylabel="density R(r) per km²", title="D = 1 km, ε = 1")
    left.legend()
    for colour, loss in zip(COLOURS, LOSSES, strict=False):
        name = WORDS[loss.name]
        mine = [row for row in rows if row[1] == loss.name]
        epsilon = [row[0] for row in mine]
        right.plot(epsilon, [100 * row[6] for row in mine], color=colour, label=f"Laplace, {name}")
        right.plot(
            epsilon, [100 * row[7] for row in mine], ":", color=colour, label=f"disk-like, {name}"
        )
    right.set(xlabel="ε within D", ylabel="loss saved (%)", title="gain of the optimum over")
    right.legend(fontsize=7)


OPEN_QUESTION = Experiment(
    "open-question",
    "The open question: the best noise within a radius",
    "what noise is optimal for (D, ε)-location privacy, a loss of at most ε within a distance D, is left "
    "for future work; the tools of the paper suffice to find it.",
    open_question,
    judge_open_question,
)
