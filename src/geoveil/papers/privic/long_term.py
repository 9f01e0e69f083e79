"""PRIVIC in the long run: Figure 5 and the Markov chain of §6, written down on a few cells."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.campaign.long_run import LongRun, Mesh, long_run
from geoveil.measure.information import total_variation
from geoveil.papers.privic.published_tables import PARIS_CAMPAIGN
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.randomness import seeded
from geoveil.space.line import Line


class Meshes(NamedTuple):
    """Meshes on three cells: parts, states, and how far a distribution can be from the nearest."""

    parts: FloatArray
    states: FloatArray
    farthest: FloatArray


def judge_meshes(found: Meshes) -> Verdict:
    """§6: the mesh is finite, smaller than k^(m−1), and fills the simplex as k grows."""
    return Verdict.of(
        Claim(
            "the mesh has fewer than k^(m−1) states",
            bool((found.states < found.parts**2).all()),
            f"{found.states[0]:.0f} of {found.parts[0] ** 2:.0f} for k = {found.parts[0]:.0f}, "
            f"{found.states[-1]:.0f} of {found.parts[-1] ** 2:.0f} for k = {found.parts[-1]:.0f}",
        ),
        Claim(
            "it fills the simplex as k grows",
            bool(
                (np.diff(found.farthest) < 0).all() and found.farthest[-1] < 0.2 * found.farthest[0]
            ),
            f"the farthest distribution is {found.farthest[0]:.2f} away at first, "
            f"{found.farthest[-1]:.3f} at last, in total variation",
        ),
    )


def _meshes(setting: Setting) -> Finding:
    parts = np.array([5, 10, 20, 40, 70])
    drawn = seeded(setting.seed).generator.dirichlet(np.ones(3), 2000 if setting.quick else 20_000)
    meshes = [Mesh(3, int(each)) for each in parts]
    far = [
        np.abs(mesh.states[mesh.nearest(drawn)] - drawn).sum(axis=1).max() / 2 for mesh in meshes
    ]
    found = Meshes(
        parts.astype(float), np.array([float(len(m.states)) for m in meshes]), np.array(far)
    )
    return Finding(
        *judge_meshes(found),
        table=Table.of(
            ["k", "states K", "farthest distribution (TV)"], list(zip(*found, strict=True))
        ),
        draw=partial(_draw_meshes, meshes[1:3]),
        figure_size=(8.0, 3.8),
    )


def _draw_meshes(meshes: Sequence[Mesh], figure: Any) -> None:
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    for axes, mesh in zip(figure.subplots(1, len(meshes)), meshes, strict=True):
        axes.fill(*corners.T, facecolor="#eef3f8", edgecolor="black", lw=0.8)
        axes.plot(*(mesh.states @ corners).T, "o", ms=3.0)
        axes.set(title=f"k = {mesh.parts}: K = {len(mesh.states)} states", aspect="equal")
        axes.axis("off")


# -- §6: the Markov chain --------------------------------------------------------------------------

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


def judge_chains(chains: Sequence[Long]) -> Verdict:
    """Lemma 6.1, its proof, Theorems 6.2 and 6.3, and the discussion in §7."""
    several = ", ".join
    return Verdict.of(
        Claim(
            "irreducible and aperiodic (Lemma 6.1)",
            all(each.irreducible and each.period == 1 for each in chains),
            several(f"{'one class' if c.irreducible else 'more'}, period {c.period}" for c in chains),
        ),
        Claim(
            "every belief can follow every other in one cycle (its proof)",
            all(each.possible == 1 for each in chains),
            several(f"{each.possible:.0%} of the pairs" for each in chains),
        ),
        Claim(
            "ψ(θ) is one over the mean time to return (Theorem 6.2)",
            all(each.return_gap < 1e-6 for each in chains),
            f"at most {max(each.return_gap for each in chains):.0e} apart",
        ),
        Claim(
            "the start is forgotten (Theorem 6.3)",
            all(each.start_gap < 1e-3 for each in chains),
            f"total variation {several(f'{each.start_gap:.0e}' for each in chains)} after {_CYCLES} cycles",
        ),
        Claim(
            "the maximum-likelihood map has the highest chance (§7)",
            all(each.mode_gap <= each.step + 1e-9 for each in chains),
            several(f"the likeliest is {c.mode_gap:.3f} off, a step is {c.step:.3f}" for c in chains),
        ),
        note=f"Chains: {'; '.join(each.name for each in chains)}.",
    )  # fmt: skip


def _chains(setting: Setting) -> Finding:
    runs = []
    for number, (truth, people, parts) in enumerate(CHAINS[: 2 if setting.quick else 3]):
        setting.progress(number / len(CHAINS), f"{len(truth)} cells, {people} people")
        runs.append(long_run(
            Line(len(truth)), truth, beta_per_km=1.0, design_steps=PARIS_CAMPAIGN.design_steps,
            update_steps=PARIS_CAMPAIGN.update_steps, people=people, parts=parts,
        ))  # fmt: skip
    chains = [_long(run) for run in runs]
    return Finding(
        *judge_chains(chains),
        table=Table.of(
            [
                "chain",
                "irreducible",
                "period",
                "pairs possible in a cycle",
                "ψ·E τ − 1 at most",
                "start still seen (TV)",
                "likeliest belief off by (TV)",
                "mesh step (TV)",
            ],
            chains,
        ),
        draw=partial(_draw_chains, runs),
        figure_size=(9.5, 3.6),
    )


def _long(run: LongRun) -> Long:
    chain, truth = run.chain, run.truth
    after = np.linalg.matrix_power(chain.transitions, _CYCLES)
    likeliest = run.mesh.states[chain.stationary.argmax()]
    return Long(
        f"truth {' '.join(f'{share:g}' for share in truth)}, {run.people} people a cycle, "
        f"{len(run.mesh.states)} beliefs",
        chain.irreducible,
        chain.period,
        float(chain.possible.mean()),
        _return_gap(chain.transitions, chain.stationary),
        float(0.5 * np.abs(after - chain.stationary).sum(axis=1).max()),
        float(total_variation(likeliest, truth)),
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


def _draw_chains(runs: Sequence[LongRun], figure: Any) -> None:
    left, right = figure.subplots(1, 2)
    for run in runs[:2]:
        left.plot(run.mesh.states[:, 0], run.chain.stationary, label=f"{run.people} people a cycle")
    left.axvline(runs[0].truth[0], color="0.5", linestyle=":", label="truth")
    left.set(xlabel="share believed in the first cell", ylabel="chance in the long run, ψ")
    left.legend(fontsize=8)
    for run in runs:
        starts = np.eye(len(run.mesh.states))
        worst = []
        for _ in range(40):
            worst.append(0.5 * np.abs(starts - run.chain.stationary).sum(axis=1).max())
            starts = starts @ run.chain.transitions
        right.plot(np.maximum(worst, 1e-9), label=f"{run.space.size} cells, {run.people} people")
    right.set(xlabel="cycles", ylabel="worst start, total variation to ψ", yscale="log")
    right.legend(fontsize=8)


FIGURE_5 = Experiment(
    "figure-5",
    "Figure 5: a mesh of distributions on three cells",
    "The discretised simplex is finite, with K < k^(m−1) states, and fills the simplex as k grows.",
    _meshes,
    judge_meshes,
)
CHAIN = Experiment(
    "markov-chain",
    "§6: PRIVIC as a Markov chain",
    "PRIVIC is an irreducible and aperiodic chain, any belief following any other; its law ψ in the long "
    "run is unique, one over the mean return time, the same from every start, and highest at the "
    "maximum-likelihood map.",
    _chains,
    judge_chains,
)
