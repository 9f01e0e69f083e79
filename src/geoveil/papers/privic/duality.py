"""What PRIVIC says before it collects, computed: the oracle of §3.2, Figure 4, and Theorem 5.1."""

from __future__ import annotations

import heapq
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign import blahut_arimoto
from geoveil.estimate import ActiveSetNewton, CertifiedWithin, IterativeBayesianUpdate, Steps
from geoveil.estimate.em import em_path
from geoveil.estimate.likelihood import (
    ChannelLikelihood,
    DenseLikelihood,
    Likelihood,
    Objective,
    uniform,
)
from geoveil.measure.distance import earth_movers_distance_km
from geoveil.mechanism import PlanarGeometric
from geoveil.papers.privic.published_tables import (
    DESIGN_UPDATES,
    PARIS_CAMPAIGN,
    SAN_FRANCISCO_CAMPAIGN,
)
from geoveil.papers.repeated import exact_maximum, repeated_counts
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot import Curve, draw_curves
from geoveil.randomness import seeded

# -- §3.2: questions to an oracle ------------------------------------------------------------------

ORACLE_BETAS = (0.2, 0.4, 0.6, 1.0, 1.4, 2.0, 3.0, 5.0)
_NEARLY = 0.05
"""«Equal or approximately equal»: within a twentieth."""


def entropy_bits(shares: FloatArray) -> float:
    """Σ p times the entropy of p/Σp: what a column of a joint distribution adds to H(X|Y)."""
    seen = shares[shares > 0]
    return float(-(seen * np.log2(seen / seen.sum())).sum())


def fewest_questions(shares: FloatArray) -> float:
    """The expected number of yes-or-no questions under the best strategy (Huffman's tree), times the mass.

    >>> fewest_questions(np.array([0.5, 0.25, 0.25]))
    1.5
    """
    heap = sorted(shares[shares > 0].tolist())
    asked = 0.0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        asked += both
        heapq.heappush(heap, both)
    return asked


def balanced_questions(shares: FloatArray) -> float:
    """The same under the paper's strategy: every question splits the mass as evenly as it can.

    >>> balanced_questions(np.array([0.5, 0.25, 0.25]))
    1.5
    """
    asked, open_parts = 0.0, [np.sort(shares[shares > 0])[::-1]]
    while open_parts:
        part = open_parts.pop()
        if part.size > 1:
            below = np.cumsum(part)[:-1]
            cut = int(np.abs(below - below[-1] / 2 - part[-1] / 2).argmin()) + 1
            asked += float(part.sum())
            open_parts += [part[:cut], part[cut:]]
    return asked


class Questions(NamedTuple):
    """Bits and questions before a report (first) and after one, at each β."""

    entropy: FloatArray
    best: FloatArray
    balanced: FloatArray


def judge_oracle(asked: Questions) -> Verdict:
    """§3.2: the best number of questions is H(X), after a report H(X|Y), and the report saves I(X;Y)."""
    before, after = asked.best[0], asked.best[1:]
    off = asked.best / asked.entropy - 1
    leaked, saved = asked.entropy[0] - asked.entropy[1:], before - after
    return Verdict.of(
        Claim(
            "the best strategy is a balanced tree",
            bool((asked.balanced <= (1 + _NEARLY) * asked.best).all()),
            f"it asks at most {(asked.balanced / asked.best).max():.3f} times as many questions",
        ),
        Claim(
            "without a report the best strategy asks H(X) questions",
            bool(abs(off[0]) <= _NEARLY),
            f"{before:.2f} against {asked.entropy[0]:.2f}",
        ),
        Claim(
            "after a report the best strategy asks H(X|Y) questions",
            bool((np.abs(off[1:]) <= _NEARLY).all()),
            f"{off[1:].min():+.0%} to {off[1:].max():+.0%}; with little noise "
            f"{after[-1]:.2f} against {asked.entropy[-1]:.2f}, as no question is shorter than one",
        ),
        Claim(
            "H(X|Y) is at most H(X)",
            bool((leaked >= 0).all() and (saved >= 0).all()),
            f"a report saves {saved.min():.2f} to {saved.max():.2f} questions",
        ),
        Claim(
            "the smaller the leakage, the more questions are left",
            bool((np.diff(after[np.argsort(leaked)]) < 0).all()),
            f"{leaked.min():.2f} to {leaked.max():.2f} bits, {after.max():.2f} to {after.min():.2f} left",
        ),
    )


def _oracle(setting: Setting) -> Finding:
    city = PARIS_CAMPAIGN.city(setting)
    joints = [city.truth[:, None]]
    for number, beta in enumerate(ORACLE_BETAS):
        setting.progress(number / len(ORACLE_BETAS), f"β = {beta:g} per cell")
        design = blahut_arimoto(city.grid, city.truth, beta_per_km=beta, stop=DESIGN_UPDATES)
        joints.append(city.truth[:, None] * design.matrix())
    asked = Questions(*(
        np.array([sum(measure(column) for column in joint.T) for joint in joints])
        for measure in (entropy_bits, fewest_questions, balanced_questions)
    ))  # fmt: skip
    names = ["none", *ORACLE_BETAS]
    return Finding(
        *judge_oracle(asked),
        table=Table.of(
            ["β per cell", "H (bits)", "questions, best", "questions, balanced", "leakage (bits)"],
            [
                [name, *row, round(float(asked.entropy[0].round(4)) - row[0], 4)]
                for name, row in zip(names, np.array(asked).T.round(4).tolist(), strict=True)
            ],
        ),
        draw=partial(_draw_oracle, asked),
    )


def _draw_oracle(asked: Questions, figure: Any) -> None:
    betas = np.array(ORACLE_BETAS)
    curves = [
        Curve("best strategy, after a report", betas, asked.best[1:]),
        Curve("balanced tree, after a report", betas, asked.balanced[1:]),
        Curve("H(X|Y)", betas, asked.entropy[1:]),
    ]
    axes = figure.subplots()
    draw_curves(axes, curves, x_label="β per cell", y_label="questions or bits", x_scale="log")
    axes.axhline(asked.best[0], color="0.5", linestyle=":", lw=1.0)
    axes.annotate("best strategy without a report", (betas[0], asked.best[0] + 0.08), fontsize=8)


# -- Figure 4: Blahut–Arimoto and the iterative Bayesian update ------------------------------------


class Duality(NamedTuple):
    """Both iterations from uniform, and how far the update is from the maximum under planar noise."""

    weights: FloatArray
    """(iterations, cells): c_t of Blahut–Arimoto, by equations (1) and (2)."""
    estimates: FloatArray
    """(iterations, cells): θ_t of the update with x and y exchanged."""
    behind: FloatArray
    """Log-likelihood below the maximum, nats per report, at each step."""


def judge_duality(both: Duality) -> Verdict:
    """§4: the two iterations are one with x and y exchanged; Theorem 4.1: the update finds the maximum."""
    apart = float(np.abs(both.weights - both.estimates).max())
    nearer = bool((np.diff(both.behind) <= 1e-12).all())
    return Verdict.of(
        Claim(
            "Blahut–Arimoto is the update with x and y exchanged",
            apart < 1e-9,
            f"at most {apart:.0e} apart in {len(both.weights)} iterations",
        ),
        Claim(
            "under planar geometric noise the update converges to the maximum (Theorem 4.1)",
            nearer and both.behind[-1] < 1e-4,
            f"{both.behind[0]:.2g} nats per report below it at first, {both.behind[-1]:.1g} after "
            f"{len(both.behind) - 1} steps, {'never' if nearer else 'sometimes'} further away",
        ),
    )


def _duality(setting: Setting) -> Finding:
    city = PARIS_CAMPAIGN.city(setting)
    iterations, steps = (50, 300) if setting.quick else (200, 3000)
    every = np.arange(city.grid.size)
    kernel = np.exp(-np.stack([city.grid.distances_from_km(int(cell)) for cell in every]))
    people = np.bincount(city.people, minlength=city.grid.size)
    path = em_path(Objective(DenseLikelihood(kernel), people), uniform(city.grid.size))
    estimates = np.array([point.theta for point in islice(path, iterations)])
    planar = PlanarGeometric(city.grid, epsilon_per_km=1.0)
    counts = repeated_counts(planar, lambda _: city.people, 1, setting.seed)
    likelihood = ChannelLikelihood(planar)
    climbed = em_path(Objective(likelihood, counts[0]), uniform(city.grid.size))
    reached = np.array([float(point.log_likelihood) for point in islice(climbed, steps + 1)])
    best = _log_likelihood(likelihood, counts[0], exact_maximum(likelihood, counts)[0])
    both = Duality(
        _iterated(kernel, city.truth, iterations), estimates, np.maximum(best - reached, 0.0)
    )
    shown = np.unique(np.geomspace(1, iterations, 12).astype(int)) - 1
    apart = np.abs(both.weights - both.estimates).max(axis=1)
    return Finding(
        *judge_duality(both),
        table=Table.of(["iteration", "largest difference"], [[t, apart[t]] for t in shown]),
        draw=partial(_draw_duality, both, np.argsort(city.truth)[[-1, -5, -20, -60]]),
        figure_size=(9.5, 3.8),
    )


def _iterated(kernel: FloatArray, prior: FloatArray, iterations: int) -> FloatArray:
    """c_t by Definition 2.8, the channel written out in every iteration."""
    channel = np.full(kernel.shape, 1 / len(kernel))
    weights = []
    for _ in range(iterations):
        weights.append(prior @ channel)  # (1)
        channel = weights[-1] * kernel
        channel /= channel.sum(axis=1, keepdims=True)  # (2)
    return np.array(weights)


def _log_likelihood(likelihood: Likelihood, counts: FloatArray, theta: FloatArray) -> float:
    return float(next(em_path(Objective(likelihood, counts), theta)).log_likelihood)


def _draw_duality(both: Duality, cells: IntArray, figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    count = np.arange(len(both.weights))
    shown = np.unique(np.geomspace(1, count.size, 14).astype(int)) - 1
    for cell in cells:
        (line,) = left.plot(count, both.weights[:, cell], lw=1.2)
        left.plot(shown, both.estimates[shown, cell], "o", ms=3.5, mfc="none", c=line.get_color())
    left.set(xlabel="iteration", ylabel="c (line), θ (circles), four cells", xscale="symlog")
    right.plot(both.behind)
    right.set(xlabel="step", ylabel="below the maximum (nats per report)", yscale="log")
    right.set(xscale="symlog", xlim=(0, both.behind.size))


# -- Theorem 5.1: a unique maximum -----------------------------------------------------------------

STEPS = (0, 1, 2, 4, 8, 12, 20, 50, 100, 300, 1000)
_QUICK = (0, 4, 8, 20, 200)
COLUMNS = (
    "updates of c",
    "leakage (bits)",
    "mean distance (cells)",
    "EMD (cells)",
    "cells with c > 1e-6",
)


class Limit(NamedTuple):
    """The mechanism that Blahut–Arimoto converges to, and the error of estimates on the way."""

    cells: int
    reported: int
    """Cells that the limit still reports."""
    rank: int
    """Of the limit as a matrix: how many maps it tells apart."""
    errors: FloatArray
    """EMD in cells, the first under uniform weights, the last near the limit."""


def judge_limit(limit: Limit) -> Verdict:
    """Theorem 5.1 with the step of Lemma 6.1 on which it rests: every report possible, one maximum."""
    return Verdict.of(
        Claim(
            "every cell can be reported under the limit of Blahut–Arimoto (proof of Lemma 6.1)",
            limit.reported == limit.cells,
            f"{limit.reported} of {limit.cells} cells",
        ),
        Claim(
            "the maximum of the likelihood is unique whatever was reported (Theorem 5.1)",
            limit.rank == limit.cells,
            f"the limit has rank {limit.rank}, and {limit.cells} would be needed",
        ),
        Claim(
            "so the update still recovers the distribution",
            bool(limit.errors[-1] <= 1.25 * limit.errors[0]),
            f"{limit.errors[-1]:.3f} cells of error, {limit.errors[0]:.3f} under uniform weights",
        ),
        note="The paper's 5 to 10 iterations stay clear of the limit, and so does the dial below 1.",
    )


def _collapse(setting: Setting) -> Finding:
    city = SAN_FRANCISCO_CAMPAIGN.city(setting)
    steps = _QUICK if setting.quick else STEPS
    rows = []
    for number, updates in enumerate(steps):
        setting.progress(number / len(steps), f"{updates} updates")
        design = blahut_arimoto(city.grid, city.truth, beta_per_km=1.0, stop=Steps(updates))
        tally = design.tally(design.sample(city.people, randomness=seeded(setting.seed)))
        estimate = IterativeBayesianUpdate().fit(tally).distribution
        error = earth_movers_distance_km(estimate, city.truth, city.grid)
        rows.append([
            updates, round(design.leakage_bits, 3), round(design.mean_distance_km, 3),
            round(error, 3), design.cells_with_weight,
        ])  # fmt: skip
    optimum = blahut_arimoto(
        city.grid, city.truth, beta_per_km=1.0, stop=CertifiedWithin(1e-9), accelerate=ActiveSetNewton()
    )  # fmt: skip
    limit = Limit(
        city.grid.size,
        int((optimum.weights > 0).sum()),
        int(np.linalg.matrix_rank(optimum.matrix())),
        np.array([row[3] for row in rows]),
    )
    return Finding(
        *judge_limit(limit),
        table=Table.of(COLUMNS, rows),
        draw=partial(_draw_collapse, np.array(rows, dtype=np.float64)),
        numbers={"cells_left": limit.reported, "error_growth": rows[-1][3] / rows[0][3]},
        figure_size=(7.0, 5.2),
    )


def _draw_collapse(rows: Any, figure: Any) -> None:
    axes = figure.subplots(2, 2, sharex=True).ravel()
    for each, column in zip(axes, range(1, 5), strict=True):
        each.plot(rows[:, 0], rows[:, column], marker="o", markersize=3.5)
        each.set(xscale="symlog", title=COLUMNS[column])
        each.set_ylim(bottom=0)
    for each in axes[2:]:
        each.set_xlabel(COLUMNS[0])


ORACLE = Experiment(
    "oracle",
    "§3.2: questions to an oracle, Paris",
    "An attacker who asks yes-or-no questions needs H(X) of them at best, with a balanced tree, and "
    "H(X|Y) after a report (equal or approximately): mutual information is what the report saves.",
    _oracle,
    judge_oracle,
)
FIGURE_4 = Experiment(
    "figure-4",
    "Figure 4 and Theorem 4.1: Blahut–Arimoto and the Bayesian update are dual",
    "Exchanging x and y turns an iteration of Blahut–Arimoto into one of the iterative Bayesian update; "
    "hence the update converges to the maximum under planar geometric noise.",
    _duality,
    judge_duality,
)
COLLAPSE = Experiment(
    "collapse",
    "Theorem 5.1: Blahut–Arimoto run to its limit, San Francisco, β = 1 per cell",
    "Under the mechanism to which Blahut–Arimoto converges every report is possible and the maximum "
    "likelihood estimate is unique, so that the update finds it.",
    _collapse,
    judge_limit,
)
