"""Figures 2 and 3: the best noise with no promise but a bound, and for ε per km."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from geoveil.channel.guarantee import GeoIndistinguishability
from geoveil.optimal.radial import OptimalNoise, optimal_noise
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.space.loss import RadialLoss, distance_km, squared_distance_km2

BOUNDS_PER_KM2 = (0.1, 0.3, 1.0, 3.0)
EPSILON_PER_KM = 5.0  # the paper's 1/200 per metre

threshold = RadialLoss("distance beyond 300 m", lambda r: np.maximum(r - 0.3, 0.0))
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
        Agreement.of(off < 1e-3),
        "the best noise fills a disk of radius 1/√(πM) with density M (radii differ by less than "
        f"{max(off, 1e-12):.0e} of it); without a bound there is none.",
        Table.of(
            ("M per km2", "radius km", "1/√(πM) km", "mean distance km", "lower bound km"), rows
        ),
        lambda figure: _draw_disks(figure, made),
        {"largest_relative_error_of_the_radius": off},
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
    for number, loss in enumerate(LOSSES):
        setting.progress(number / len(LOSSES), loss.name)
        privacy = GeoIndistinguishability(epsilon)
        made.append(optimal_noise(privacy=privacy, loss=loss, gap=1e-3 if setting.quick else 1e-4))
    radius = np.linspace(0.0, 2.0, 401)
    exact = epsilon**2 / (2 * math.pi) * np.exp(-epsilon * radius)
    rows = [
        (
            noise.loss.name,
            noise.loss_reached,
            noise.optimality.lower_bound,
            _laplace_loss(noise.loss, epsilon),
            float(np.abs(noise.density_per_km2(radius) / exact - 1).max()),
        )
        for noise in made
    ]
    worst = max(row[4] for row in rows)
    missing = max(noise.gap for noise in made)
    return Finding(
        Agreement.of(worst < 1e-3),
        f"the program returns planar Laplace noise for all {len(LOSSES)} losses (densities agree to "
        f"{worst:.1g}) and proves that nothing is better by more than {missing:.1g}.",
        Table.of(
            ("loss", "loss of the optimum", "lower bound", "loss of Laplace", "density off by"),
            rows,
        ),
        lambda figure: _draw_laplace(figure, made, epsilon),
        {"largest_relative_error_of_the_density": worst, "largest_gap": missing},
        figure_size=(8.4, 3.6),
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
)

FIGURE_3 = Experiment(
    "figure-3",
    "Figure 3 and Theorem 9: planar Laplace noise, ε = 1/200 per metre",
    "planar Laplace noise is optimal for ε-geo-indistinguishability on every region with an area and "
    "for every increasing loss.",
    laplace,
)
