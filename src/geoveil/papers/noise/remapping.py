"""Figure 5: noisy points to the nearest cell, or to the best cell for a person's prior."""

from __future__ import annotations

from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.mechanism.remapped_noise import BayesianPlace, NearestPlace
from geoveil.papers.noise.angeles import SAMPLE, Person, busiest
from geoveil.papers.page import COLOURS
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.randomness import seeded

CELL_KM = 0.5
EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 1.8, 2.2, 2.6, 3.0)
QUICK_EPSILONS = (0.2, 1.0, 3.0)
DRAWS, QUICK_DRAWS = 8_000, 1_500
_SURE = 5


def remapping(setting: Setting) -> Finding:
    """The expected loss of two people under both rules, from the same noise."""
    people = busiest(setting.data, 2, cell_km=CELL_KM)
    epsilons = QUICK_EPSILONS if setting.quick else EPSILONS
    rows = []
    for number, person in enumerate(people):
        for step, epsilon in enumerate(epsilons):
            done = (number * len(epsilons) + step) / (2 * len(epsilons))
            setting.progress(done, f"person {number + 1}, ε = {epsilon:g}")
            losses = _losses(person, epsilon, QUICK_DRAWS if setting.quick else DRAWS, setting.seed)
            rows.append((f"person {number + 1}", len(person.places_km), epsilon, *losses))
    table = np.array([row[2:] for row in rows], dtype=np.float64).reshape(2, len(epsilons), 5)
    gain = 1 - table[:, :, 3] / table[:, :, 1]
    return Finding(
        *judge_remapping(table[:, :, 1], table[:, :, 3], np.hypot(table[:, :, 2], table[:, :, 4])),
        Table.of(
            ("person", "check-ins", "epsilon per km", "nearest km", "nearest error km",
             "Bayesian km", "Bayesian error km"), rows,
        ),
        lambda figure: _draw(figure, table),
        {"largest_gain": float(gain.max()), "smallest_gain": float(gain.min())},
        figure_size=(8.0, 3.6),
    )  # fmt: skip


def judge_remapping(nearest: FloatArray, bayesian: FloatArray, error: FloatArray) -> Verdict:
    """§7.3: from the losses under both rules, and the standard error of their difference."""
    gain, saved = 1 - bayesian / nearest, nearest - bayesian
    sure = saved > _SURE * error
    return Verdict.of(
        Claim(
            "Bayesian remapping is significantly better than the nearest cell",
            bool(sure.all()),
            f"it loses {gain.min():.0%} to {gain.max():.0%} less, beyond {_SURE} standard errors in "
            f"{int(sure.sum())} of {sure.size} cases",
        ),
        note=SAMPLE,
    )


def _losses(person: Person, epsilon: float, draws: int, seed: int) -> tuple[float, ...]:
    noise = ContinuousLaplace(epsilon_per_km=epsilon)
    nearest = NearestPlace(noise, person.grid, spread=False)
    bayesian = BayesianPlace(noise, person.grid, person.prior, spread=False)
    found = [
        rule.expected_loss(person.prior, draws=draws, randomness=seeded(seed))
        for rule in (nearest, bayesian)
    ]
    return *found[0], *found[1]


def _draw(figure: Any, table: FloatArray) -> None:
    for number, axes in enumerate(figure.subplots(1, 2, sharey=True)):
        epsilon, nearest, _, bayesian, _ = table[number].T
        axes.plot(epsilon, bayesian, color=COLOURS[0], label="Bayesian remapping")
        axes.plot(epsilon, nearest, "--", color=COLOURS[1], label="to the nearest cell")
        axes.set(xlabel="ε per km", title=f"person {number + 1}", ylim=(0, None))
        if number == 0:
            axes.set_ylabel("expected loss (km)")
            axes.legend()


FIGURE_5 = Experiment(
    "figure-5",
    "Figure 5: remapping on 80 × 60 cells",
    "moving a noisy point to the best cell for a person's own prior loses significantly less than moving "
    "it to the nearest cell.",
    remapping,
    judge_remapping,
)
