"""What PRIVIC proves, computed: the oracle of §3.2, Figures 4 and 5, Theorem 5.1 and the chain of §6."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, uniform
from geoveil.campaign.long_run import LongRun, Mesh, long_run
from geoveil.channel.operator import DenseOperator
from geoveil.errors import percent
from geoveil.estimate.objective import Objective, em_path
from geoveil.papers import report
from geoveil.papers.privic_cycles import PARIS_CAMPAIGN, SAN_FRANCISCO_CAMPAIGN, designed
from geoveil.papers.repeated import exact_maximum, repeated_counts
from geoveil.papers.report import Claim, Measured, Setting, Verdict, experiment
from geoveil.plot import Curve, draw_curves

ORACLE_BETAS = (0.2, 0.4, 0.6, 1.0, 1.4, 2.0, 3.0, 5.0)
_NEARLY = 0.05
"""«Equal or approximately equal»: within a twentieth."""


def entropy_bits(shares: FloatArray) -> float:
    """Σ p times the entropy of p/Σp: what a column of a joint distribution adds to H(X|Y)."""
    positive = shares[shares > 0]
    return float(-(positive * np.log2(positive / positive.sum())).sum())


def fewest_questions(shares: FloatArray) -> float:
    """The expected number of yes-or-no questions under the best strategy (Huffman's tree), times the mass.

    >>> fewest_questions(np.array([0.5, 0.25, 0.25]))
    1.5
    """
    heap = sorted(shares[shares > 0].tolist())
    questions = 0.0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heap[0]
        questions += both
        heapq.heapreplace(heap, both)
    return questions


def balanced_questions(shares: FloatArray) -> float:
    """The same under the paper's strategy: every question splits the mass as evenly as it can.

    >>> balanced_questions(np.array([0.5, 0.25, 0.25]))
    1.5
    """
    likely_first = np.sort(shares[shares > 0])[::-1]
    below: list[float] = [0.0, *np.cumsum(likely_first).tolist()]
    questions, open_parts = 0.0, [(0, likely_first.size)]
    while open_parts:
        start, end = open_parts.pop()
        if end - start > 1:
            middle = (below[start] + below[end]) / 2
            cut = bisect_left(below, middle, start + 1, end - 1)
            if cut > start + 1 and middle - below[cut - 1] <= below[cut] - middle:
                cut -= 1
            questions += float(likely_first[start:end].sum())
            open_parts += [(start, cut), (cut, end)]
    return questions


def judge_oracle(entropy: FloatArray, best: FloatArray, balanced: FloatArray) -> Verdict:
    """§3.2: the best number of questions is H(X), after a report H(X|Y), and the report saves I(X;Y).

    Bits and questions before a report (first) and after one, at each β.
    """
    before, after, off = best[0], best[1:], best / entropy - 1
    leaked, saved = entropy[0] - entropy[1:], before - after
    return Verdict.of(
        Claim("the best strategy is a balanced tree", (balanced <= (1 + _NEARLY) * best).all(),
              f"it asks at most {(balanced / best).max():.3f} times as many questions"),
        Claim("without a report the best strategy asks H(X) questions", abs(off[0]) <= _NEARLY,
              f"{before:.2f} against {entropy[0]:.2f}"),
        Claim("after a report the best strategy asks H(X|Y) questions", (np.abs(off[1:]) <= _NEARLY).all(),
              f"{report.span(off[1:], '+.0%')}; with little noise {after[-1]:.2f} against "
              f"{entropy[-1]:.2f}, as no question is shorter than one"),
        Claim("H(X|Y) is at most H(X)", (leaked >= 0).all() and (saved >= 0).all(),
              f"a report saves {report.span(saved)} questions"),
        Claim("the smaller the leakage, the more questions are left",
              (np.diff(after[np.argsort(leaked)]) < 0).all(),
              f"{report.span(leaked)} bits, {after.max():.2f} to {after.min():.2f} left"),
    )  # fmt: skip


@experiment("§3.2: questions to an oracle, Paris", judge_oracle)
def oracle(setting: Setting) -> Measured:
    """An attacker who asks yes-or-no questions needs H(X) of them at best, with a balanced tree, and
    H(X|Y) after a report (equal or approximately): mutual information is what the report saves.
    """
    city = PARIS_CAMPAIGN.city(setting)
    joints = [city.truth[:, None]]
    for beta in setting.each(ORACLE_BETAS, "β = {:g} per cell"):
        joints.append(city.truth[:, None] * designed(city, city.truth, beta).matrix())
    entropy, best, balanced = (
        np.array([sum(measure(column) for column in joint.T) for joint in joints])
        for measure in (entropy_bits, fewest_questions, balanced_questions)
    )

    def draw(figure: Any) -> None:
        betas, axes = np.array(ORACLE_BETAS), figure.subplots()
        curves = [
            Curve("best strategy, after a report", betas, best[1:]),
            Curve("balanced tree, after a report", betas, balanced[1:]),
            Curve("H(X|Y)", betas, entropy[1:]),
        ]
        draw_curves(axes, curves, x_label="β per cell", y_label="questions or bits", x_scale="log")
        axes.axhline(best[0], color="0.5", linestyle=":", lw=1.0)
        axes.annotate("best strategy without a report", (betas[0], best[0] + 0.08), fontsize=8)

    rounded = np.array([entropy, best, balanced]).round(4)
    leakage = (rounded[0, 0] - rounded[0]).round(4)
    columns = "β per cell | H (bits) | questions, best | questions, balanced | leakage (bits)"
    rows = zip(["none", *ORACLE_BETAS], *rounded, leakage, strict=True)
    return Measured((entropy, best, balanced), columns, rows, draw)


def judge_duality(weights: FloatArray, estimates: FloatArray, behind: FloatArray) -> Verdict:
    """§4: the two iterations are one with x and y exchanged; Theorem 4.1: the update finds the maximum.

    From uniform, (iterations, cells): c_t of Blahut–Arimoto by equations (1) and (2), and θ_t of the update
    with x and y exchanged. Then under planar noise the log-likelihood below the maximum, nats per report,
    at each step.
    """
    apart = np.abs(weights - estimates).max()
    nearer = (np.diff(behind) <= 1e-12).all()
    return Verdict.of(
        Claim("Blahut–Arimoto is the update with x and y exchanged", apart < 1e-9,
              f"at most {apart:.0e} apart in {len(weights)} iterations"),
        Claim("under planar geometric noise the update converges to the maximum (Theorem 4.1)",
              nearer and behind[-1] < 1e-4,
              f"{behind[0]:.2g} nats per report below it at first, {behind[-1]:.1g} after "
              f"{len(behind) - 1} steps, {'never' if nearer else 'sometimes'} further away"),
    )  # fmt: skip


@experiment(
    "Figure 4 and Theorem 4.1: Blahut–Arimoto and the Bayesian update are dual", judge_duality
)
def figure_4(setting: Setting) -> Measured:
    """Exchanging x and y turns an iteration of Blahut–Arimoto into one of the iterative Bayesian update;
    hence the update converges to the maximum under planar geometric noise.
    """
    city = PARIS_CAMPAIGN.city(setting)
    iterations, steps = setting.pick((200, 3000), (50, 300))
    start, kernel = uniform(city.grid.size), np.exp(-city.grid.distances_km())
    people = np.bincount(city.people, minlength=city.grid.size)
    path = em_path(Objective(DenseOperator(kernel), people), start)
    estimates = np.array([point.theta for point in islice(path, iterations)])
    weights, channel = np.empty_like(estimates), np.full(kernel.shape, 1 / len(kernel))
    for row in weights:  # Definition 2.8, the channel written out in every iteration
        row[:] = city.truth @ channel  # (1)
        channel = row * kernel
        channel /= channel.sum(axis=1, keepdims=True)  # (2)
    apart = np.abs(weights - estimates).max(axis=1)

    planar = gv.PlanarGeometric(city.grid, epsilon_per_km=1.0)
    counts = repeated_counts(planar, lambda _: city.people, 1, setting.seed)
    objective = Objective(planar, counts[0])
    reached = [float(p.log_likelihood) for p in islice(em_path(objective, start), steps + 1)]
    best = next(em_path(objective, exact_maximum(planar, counts)[0])).log_likelihood
    behind = np.maximum(float(best) - np.array(reached), 0.0)

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        shown = np.unique(np.geomspace(1, iterations, 14).astype(int)) - 1
        for cell in np.argsort(city.truth)[[-1, -5, -20, -60]]:
            (line,) = left.plot(np.arange(iterations), weights[:, cell], lw=1.2)
            left.plot(shown, estimates[shown, cell], "o", ms=3.5, mfc="none", c=line.get_color())
        left.set(xlabel="iteration", ylabel="c (line), θ (circles), four cells", xscale="symlog")
        right.plot(behind)
        right.set(xlabel="step", ylabel="below the maximum (nats per report)", yscale="log")
        right.set(xscale="symlog", xlim=(0, behind.size))

    shown = np.unique(np.geomspace(1, iterations, 12).astype(int)) - 1
    rows, columns = zip(shown, apart[shown], strict=True), "iteration | largest difference"
    return Measured((weights, estimates, behind), columns, rows, draw, figure_size=(9.5, 3.8))


STEPS, QUICK_STEPS = (0, 1, 2, 4, 8, 12, 20, 50, 100, 300, 1000), (0, 4, 8, 20, 200)


def judge_limit(cells: int, reported: int, rank: int, errors: FloatArray) -> Verdict:
    """Theorem 5.1 with the step of Lemma 6.1 on which it rests: every report possible, one maximum.

    The cells that the limit of Blahut–Arimoto still reports, its rank as a matrix (how many maps it tells
    apart), and the EMD of estimates in cells, the first under uniform weights, the last near the limit.
    """
    return Verdict.of(
        Claim("every cell can be reported under the limit of Blahut–Arimoto (proof of Lemma 6.1)",
              reported == cells, f"{reported} of {cells} cells"),
        Claim("the maximum of the likelihood is unique whatever was reported (Theorem 5.1)", rank == cells,
              f"the limit has rank {rank}, and {cells} would be needed"),
        Claim("so the update still recovers the distribution", errors[-1] <= 1.25 * errors[0],
              f"{errors[-1]:.3f} cells of error, {errors[0]:.3f} under uniform weights"),
        note="The paper's 5 to 10 iterations stay clear of the limit, and so does the dial below 1.",
    )  # fmt: skip


@experiment(
    "Theorem 5.1: Blahut–Arimoto run to its limit, San Francisco, β = 1 per cell", judge_limit
)
def collapse(setting: Setting) -> Measured:
    """Under the mechanism to which Blahut–Arimoto converges every report is possible and the maximum
    likelihood estimate is unique, so that the update finds it.
    """
    city = SAN_FRANCISCO_CAMPAIGN.city(setting)
    names = (
        "updates of c", "leakage (bits)", "mean distance (cells)", "EMD (cells)", "cells with c > 1e-6",
    )  # fmt: skip
    rows = []
    for updates in setting.each(setting.pick(STEPS, QUICK_STEPS), "{} updates"):
        design = gv.blahut_arimoto(city.grid, city.truth, beta_per_km=1.0, stop=gv.Steps(updates))
        tally = design.tally(design.sample(city.people, randomness=gv.seeded(setting.seed)))
        estimate = gv.IterativeBayesianUpdate().fit(tally).distribution
        rows.append([
            updates, round(design.leakage_bits, 3), round(design.mean_distance_km, 3),
            round(city.error_km(estimate), 3), design.cells_with_weight,
        ])  # fmt: skip
    optimum = gv.blahut_arimoto(
        city.grid, city.truth, beta_per_km=1.0, stop=gv.CertifiedWithin(1e-9), accelerate=gv.ActiveSetNewton()
    )  # fmt: skip
    cells, rank = int((optimum.weights > 0).sum()), int(np.linalg.matrix_rank(optimum.matrix()))
    errors = [row[3] for row in rows]

    def draw(figure: Any) -> None:
        updates, *measured = np.array(rows, dtype=np.float64).T
        axes = figure.subplots(2, 2, sharex=True).ravel()
        for part, title, values in zip(axes, names[1:], measured, strict=True):
            part.plot(updates, values, marker="o", markersize=3.5)
            part.set(xscale="symlog", title=title)
            part.set_ylim(bottom=0)
        for part in axes[2:]:
            part.set_xlabel(names[0])

    figures = (city.grid.size, cells, rank, np.array(errors))
    numbers = {"cells_left": cells, "error_growth": errors[-1] / errors[0]}
    return Measured(figures, names, rows, draw, numbers, (7.0, 5.2))


# --- §6 in the long run: Figure 5, and the Markov chain written down on a few cells


def judge_meshes(parts: FloatArray, states: FloatArray, farthest: FloatArray) -> Verdict:
    """§6: the mesh is finite, smaller than k^(m−1), and fills the simplex as k grows.

    On three cells: parts k, states, and how far a distribution can be from the nearest.
    """
    return Verdict.of(
        Claim("the mesh has fewer than k^(m−1) states", (states < parts**2).all(),
              f"{states[0]:.0f} of {parts[0] ** 2:.0f} for k = {parts[0]:.0f}, "
              f"{states[-1]:.0f} of {parts[-1] ** 2:.0f} for k = {parts[-1]:.0f}"),
        Claim("it fills the simplex as k grows",
              (np.diff(farthest) < 0).all() and farthest[-1] < 0.2 * farthest[0],
              f"the farthest distribution is {farthest[0]:.2f} away at first, {farthest[-1]:.3f} at last, "
              "in total variation"),
    )  # fmt: skip


@experiment("Figure 5: a mesh of distributions on three cells", judge_meshes)
def figure_5(setting: Setting) -> Measured:
    """The discretised simplex is finite, with K < k^(m−1) states, and fills the simplex as k grows."""
    parts = np.array([5.0, 10.0, 20.0, 40.0, 70.0])
    points = gv.seeded(setting.seed).generator.dirichlet(np.ones(3), setting.pick(20_000, 2000))
    meshes = [Mesh(3, int(number)) for number in parts]
    far = [
        np.abs(mesh.states[mesh.nearest(points)] - points).sum(axis=1).max() / 2 for mesh in meshes
    ]
    figures = parts, np.array([float(len(mesh.states)) for mesh in meshes]), np.array(far)

    def draw(figure: Any) -> None:
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
        for axes, mesh in zip(figure.subplots(1, 2), meshes[1:3], strict=True):
            axes.fill(*corners.T, facecolor="#eef3f8", edgecolor="black", lw=0.8)
            axes.plot(*(mesh.states @ corners).T, "o", ms=3.0)
            axes.set(title=f"k = {mesh.parts}: K = {len(mesh.states)} states", aspect="equal")
            axes.axis("off")

    columns = "k | states K | farthest distribution (TV)"
    return Measured(figures, columns, zip(*figures, strict=True), draw, figure_size=(8.0, 3.8))


CHAINS = (((0.7, 0.3), 40, 40), ((0.7, 0.3), 200, 40), ((0.5, 0.3, 0.2), 100, 20))
"""Truth, people in each cycle, parts of the mesh."""
_CYCLES = 1000


class Long(NamedTuple):
    """One chain: what Lemma 6.1, Theorems 6.2 and 6.3 and §7 speak about."""

    name: str
    irreducible: bool
    period: int
    possible: float
    """The share of the pairs of beliefs of which one can follow the other in one cycle."""
    return_gap: float
    """The largest |ψ(θ)·E τ(θ) − 1| over the beliefs seen in at least one cycle of a million."""
    start_gap: float
    """The largest total variation between ψ and the law after many cycles, over all starts."""
    mode_gap: float
    """Total variation between the likeliest belief in the long run and the truth."""
    step: float
    """One step of the mesh in total variation."""

    @classmethod
    def of(cls, run: LongRun) -> Long:
        """The facts of a chain that was written down."""
        chain, truth, states = run.chain, run.truth, run.mesh.states
        after = np.linalg.matrix_power(chain.transitions, _CYCLES)
        shares = " ".join(f"{share:g}" for share in truth)
        return cls(
            f"truth {shares}, {run.people} people a cycle, {len(states)} beliefs",
            chain.irreducible,
            chain.period,
            float(chain.possible.mean()),
            _return_gap(chain.transitions, chain.stationary),
            float(0.5 * np.abs(after - chain.stationary).sum(axis=1).max()),
            float(gv.total_variation(states[chain.stationary.argmax()], truth)),
            1 / run.mesh.parts,
        )


def _return_gap(transitions: FloatArray, stationary: FloatArray) -> float:
    """ψ·E τ against one, E τ by first-step equations: h = 1 + P·h off the state, E τ = 1 + P·h at it."""
    size, gaps = len(transitions), []
    for state in np.flatnonzero(stationary > 1e-6):
        others = np.delete(np.arange(size), state)
        away = np.eye(size - 1) - transitions[np.ix_(others, others)]
        hitting = np.linalg.solve(away, np.ones(size - 1))
        returned = 1 + transitions[state, others] @ hitting
        gaps.append(abs(stationary[state] * returned - 1))
    return float(max(gaps))


def judge_chains(chains: Sequence[Long]) -> Verdict:
    """Lemma 6.1, its proof, Theorems 6.2 and 6.3, and the discussion in §7."""
    several = ", ".join
    return Verdict.of(
        Claim("irreducible and aperiodic (Lemma 6.1)", all(c.irreducible and c.period == 1 for c in chains),
              several(f"{'one class' if c.irreducible else 'more'}, period {c.period}" for c in chains)),
        Claim("every belief can follow every other in one cycle (its proof)",
              all(c.possible == 1 for c in chains),
              several(f"{percent(c.possible, 0)} of the pairs" for c in chains)),
        Claim("ψ(θ) is one over the mean time to return (Theorem 6.2)",
              all(c.return_gap < 1e-6 for c in chains),
              f"at most {max(c.return_gap for c in chains):.0e} apart"),
        Claim("the start is forgotten (Theorem 6.3)", all(c.start_gap < 1e-3 for c in chains),
              f"total variation {several(f'{c.start_gap:.0e}' for c in chains)} after {_CYCLES} cycles"),
        Claim("the maximum-likelihood map has the highest chance (§7)",
              all(c.mode_gap <= c.step + 1e-9 for c in chains),
              several(f"the likeliest is {c.mode_gap:.3f} off, a step is {c.step:.3f}" for c in chains)),
        note=f"Chains: {'; '.join(c.name for c in chains)}.",
    )  # fmt: skip


@experiment("§6: PRIVIC as a Markov chain", judge_chains)
def markov_chain(setting: Setting) -> Measured:
    """PRIVIC is an irreducible and aperiodic chain, any belief following any other; its law ψ in the long
    run is unique, one over the mean return time, the same from every start, and highest at the
    maximum-likelihood map.
    """
    rule = PARIS_CAMPAIGN
    runs = [
        long_run(
            gv.Line(len(truth)), truth, beta_per_km=1.0, design_steps=rule.design_steps,
            update_steps=rule.update_steps, people=people, parts=parts,
        )
        for truth, people, parts in setting.each(setting.pick(CHAINS, CHAINS[:2]), "truth {}, {} people")
    ]  # fmt: skip
    chains = [Long.of(run) for run in runs]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        for run in runs[:2]:
            first = run.mesh.states[:, 0]
            left.plot(first, run.chain.stationary, label=f"{run.people} people a cycle")
        left.axvline(runs[0].truth[0], color="0.5", linestyle=":", label="truth")
        left.set(xlabel="share believed in the first cell", ylabel="chance in the long run, ψ")
        for run in runs:
            law, worst = np.eye(len(run.mesh.states)), []
            for _ in range(40):
                worst.append(0.5 * np.abs(law - run.chain.stationary).sum(axis=1).max())
                law = law @ run.chain.transitions
            label = f"{run.space.size} cells, {run.people} people"
            right.plot(np.maximum(worst, 1e-9), label=label)
        right.set(xlabel="cycles", ylabel="worst start, total variation to ψ", yscale="log")
        for axes in (left, right):
            axes.legend(fontsize=8)

    columns = """chain | irreducible | period | pairs possible in a cycle | ψ·E τ − 1 at most |
        start still seen (TV) | likeliest belief off by (TV) | mesh step (TV)"""
    return Measured((chains,), columns, chains, draw, figure_size=(9.5, 3.6))
