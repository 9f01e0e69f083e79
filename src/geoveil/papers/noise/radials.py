"""NOISE: radials of least loss, and the staircase that the paper leaves open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from geoveil.channel.guarantee import GeoIndistinguishability, WithinRadius
from geoveil.optimal.circular import CircularNoise
from geoveil.optimal.radial import OptimalNoise, optimal_noise
from geoveil.optimal.region import Region
from geoveil.papers.report import COLOURS, Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.space.space import RadialLoss, distance_km, squared_distance_km2

BOUNDS_PER_KM2 = (0.1, 0.3, 1.0, 3.0)
EPSILON_PER_KM = 5.0  # the paper's 1/200 per metre

threshold = RadialLoss("distance beyond 300 m", lambda r: np.maximum(r - 0.3, 0.0))
REGIONS = (Region.plane(), Region.disk(diameter_km=1.0))
_SAME = 1e-3
LOSSES = (distance_km, squared_distance_km2, threshold)
WORDS = {distance_km.name: "distance", squared_distance_km2.name: "squared distance"}
"""What pictures call a loss."""


def single_point(setting: Setting) -> Finding:
    """The best radial for several bounds M where nothing is promised."""
    made: list[OptimalNoise] = []
    for number, bound in enumerate(BOUNDS_PER_KM2):
        setting.progress(number / len(BOUNDS_PER_KM2), f"M = {bound:g}")
        made.append(optimal_noise(privacy=None, bound_per_km2=bound, gap=1e-3))
    rows = [_disk_row(bound, noise) for bound, noise in zip(BOUNDS_PER_KM2, made, strict=True)]
    off = max(abs(row[1] / row[2] - 1) for row in rows)
    return Finding(
        *judge_single_point([row[1] for row in rows], off),
        Table.of(
            ("M per km2", "radius km", "1/√(πM) km", "mean distance km", "lower bound km"), rows
        ),
        lambda figure: _draw_disks(figure, made),
        {"largest_relative_error_of_the_radius": off},
    )


def judge_single_point(radii_km: Sequence[float], off: float) -> Verdict:
    """§6, Figure 2: from where the noise ends by rising M, and how far that is from 1/√(πM)."""
    return Verdict.of(
        Claim(
            "as much probability as possible is on short noise",
            off < _SAME,
            f"density M up to 1/√(πM), to {max(off, 1e-12):.0e} of it",
        ),
        Claim(
            "the best radial depends on M",
            all(one > other for one, other in pairwise(radii_km)),
            f"it ends at {', '.join(f'{radius:.2f}' for radius in radii_km)} km",
        ),
        note="Without a bound there is none.",
    )


def _disk_row(bound: float, noise: OptimalNoise) -> tuple[float, ...]:
    """Where the noise ends, and its mean distance with the lower bound."""
    return (
        bound, noise.reach_km, 1 / math.sqrt(math.pi * bound), noise.loss_reached,
        noise.optimality.lower_bound,
    )  # fmt: skip


def laplace(setting: Setting) -> Finding:
    """The linear program for ε per km under several losses, against planar Laplace noise."""
    epsilon = EPSILON_PER_KM
    made: list[OptimalNoise] = []
    cases = [(loss, region) for region in REGIONS for loss in LOSSES]
    if setting.quick:  # one loss is enough on the second region
        cases = cases[: len(LOSSES) + 1]
    for number, (loss, region) in enumerate(cases):
        setting.progress(number / len(cases), f"{loss.name} on {region.name}")
        privacy = GeoIndistinguishability(epsilon)
        gap = 1e-3 if setting.quick else 1e-4
        made.append(optimal_noise(privacy=privacy, loss=loss, region=region, gap=gap))
    radius = np.linspace(0.0, 2.0, 401)
    exact = epsilon**2 / (2 * math.pi) * np.exp(-epsilon * radius)
    rows = [
        (
            noise.loss.name,
            region.name,
            noise.loss_reached,
            noise.optimality.lower_bound,
            _laplace_loss(noise.loss, epsilon),
            float(np.abs(noise.density_per_km2(radius) / exact - 1).max()),
        )
        for noise, (_, region) in zip(made, cases, strict=True)
    ]
    worst = max(row[5] for row in rows)
    missing = max(1 - row[3] / row[4] for row in rows)
    return Finding(
        *judge_laplace(missing, worst, len(LOSSES), len(REGIONS)),
        Table.of(
            (
                "loss",
                "region",
                "loss of the optimum",
                "lower bound",
                "loss of Laplace",
                "density off by",
            ),
            rows,
        ),
        lambda figure: _draw_laplace(figure, made[: len(LOSSES)], epsilon),
        {"largest_relative_error_of_the_density": worst, "largest_gap": missing},
        figure_size=(8.4, 3.6),
    )


def judge_laplace(missing: float, off: float, losses: int, regions: int) -> Verdict:
    """Theorem 9: from what another noise could save at most, and how far the best is from Laplace."""
    return Verdict.of(
        Claim(
            "planar Laplace noise is optimal for every increasing loss and region",
            missing <= _SAME,
            f"nothing saves more than {missing:.1g} of its loss, for {losses} losses and {regions} regions",
        ),
        Claim(
            "its radial is ε²/(2π)·e^{−εr}",
            off <= _SAME,
            f"the density of the program is off by {off:.1g} at most",
        ),
    )


def _laplace_loss(loss: RadialLoss, epsilon: float) -> float:
    """∫ ε²·r·e^{−εr}·L(r) dr by the trapezium rule on a fine grid."""
    radius = np.linspace(0.0, 45.0 / epsilon, 400_001)
    values = epsilon**2 * radius * np.exp(-epsilon * radius) * loss.at(radius)
    return float(np.sum(values[1:] + values[:-1]) / 2 * (radius[1] - radius[0]))


def _draw_disks(figure: Any, made: list[OptimalNoise]) -> None:
    axes = figure.subplots()
    for bound, noise in zip(BOUNDS_PER_KM2, made, strict=True):
        edge = noise.reach_km
        axes.plot([0, edge, edge, 2.2], [bound, bound, 0, 0], label=f"M = {bound:g} per km²")
    axes.set(xlabel="noise r (km)", ylabel="density R(r) per km²", xlim=(0, 2.0))
    axes.legend()


def _draw_laplace(figure: Any, made: list[OptimalNoise], epsilon: float) -> None:
    left, right = figure.subplots(1, 2)
    radius = np.linspace(0, 1.2, 300)
    exact = epsilon**2 / (2 * math.pi) * np.exp(-epsilon * radius)
    left.plot(radius, exact, color="#bbbbbb", linewidth=5, label="planar Laplace")
    for noise, style in zip(made, ("-", "--", ":"), strict=True):
        name = WORDS.get(noise.loss.name, noise.loss.name)
        left.plot(radius, noise.density_per_km2(radius), style, label=f"best for {name}")
    left.set(xlabel="noise r (km)", ylabel="density R(r) per km²", title="the radial")
    left.legend(fontsize=7)
    side = np.linspace(-1, 1, 201)
    density = made[0].density_per_km2(np.hypot(side[:, None], side))
    shown = right.imshow(density, extent=(-1, 1, -1, 1), origin="lower", cmap="cividis")
    right.set(xlabel="east (km)", ylabel="north (km)", title=f"the noise, ε = {epsilon:g} per km")
    right.grid(False)
    figure.colorbar(shown, ax=right, label="per km²", shrink=0.85)


FIGURE_2 = Experiment(
    "figure-2",
    "Figure 2: the best radial for a single point",
    "where the region is a single point, the optimal noise depends on the bound M and puts as much "
    "probability as M allows on short noise.",
    single_point,
    judge_single_point,
)

FIGURE_3 = Experiment(
    "figure-3",
    "Figure 3 and Theorem 9: planar Laplace noise, ε = 1/200 per metre",
    "planar Laplace noise is optimal for ε-geo-indistinguishability on every region with an area and "
    "for every increasing loss.",
    laplace,
    judge_laplace,
)


# --- The open question of NOISE: the best noise for a promise within a radius is a staircase


RADIUS_KM = 1.0
EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
QUICK_EPSILONS = (1.0, 3.0)
STAIRCASE_LOSSES = (distance_km, squared_distance_km2)
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
        for loss in STAIRCASE_LOSSES:
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
    for colour, loss in zip(COLOURS, STAIRCASE_LOSSES, strict=False):
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
