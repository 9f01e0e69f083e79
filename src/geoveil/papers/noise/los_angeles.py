"""NOISE, section 7: Los Angeles, coarse cells and remapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.mechanism.remap import BayesianPlace, NearestPlace
from geoveil.optimal.optimal_mechanism import OptimalMechanism, optimal_mechanism
from geoveil.papers.data import CheckIns, DataFolder
from geoveil.papers.report import COLOURS, Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.randomness import seeded
from geoveil.space.box import Box
from geoveil.space.grid import Grid

FILE = "gowalla-los-angeles"
REGION = Box(south=33.9301, west=-118.5354, north=34.1996, east=-118.1010)
WIDTH_KM, HEIGHT_KM = 40.0, 30.0
SAMPLE = (
    "The people are the busiest of a 47 % sample that ends 4 km short of the eastern edge, not the "
    "paper's."
)
"""What every figure made from this file must say."""


@dataclass(frozen=True, eq=False)
class Person:
    """One person's check-ins in kilometres, and their cells on a grid centred on the region."""

    user: int
    places_km: FloatArray
    grid: Grid

    @property
    def cells(self) -> IntArray:
        """The cell of every check-in."""
        return np.atleast_1d(self.grid.locate_km(self.places_km, outside="clamp"))

    @property
    def prior(self) -> FloatArray:
        """How often each cell was visited."""
        return np.bincount(self.cells, minlength=self.grid.size) / len(self.places_km)


def busiest(data: DataFolder, count: int, *, cell_km: float) -> list[Person]:
    """The people with the most check-ins in the region, on cells of the given side."""
    south, west, north, east = REGION
    inside = data.check_ins(FILE).within(south=south, west=west, north=north, east=east)
    users, visits = np.unique(inside.user, return_counts=True)
    chosen = users[np.argsort(-visits, kind="stable")[:count]]
    rows, columns = round(HEIGHT_KM / cell_km), round(WIDTH_KM / cell_km)
    grid = Grid(rows=rows, columns=columns, cell_km=cell_km)
    return [_person(int(user), inside.of_user(int(user)), grid) for user in chosen]


def _person(user: int, visits: CheckIns, grid: Grid) -> Person:
    places = REGION.plane.to_plane(lat=visits.lat, lng=visits.lng)
    west, south, east, north = REGION.rectangle_km
    return Person(user, places - [(west + east) / 2, (south + north) / 2], grid)


# --- Figure 4: symmetric noise against personal optimal mechanisms on a coarse grid


CELL_KM = 5.0
EPSILONS = np.round(np.arange(0.2, 3.01, 0.1), 1)
_SOLVED_KM = 1e-3  # more than what the programs are solved to
QUICK_EPSILONS = np.array([0.2, 0.6, 1.0, 2.0, 3.0])


def coarse_grid(setting: Setting) -> Finding:
    """The expected loss of four people, in true distance, for both kinds of mechanism."""
    people = busiest(setting.data, 2 if setting.quick else 4, cell_km=CELL_KM)
    epsilons = QUICK_EPSILONS if setting.quick else EPSILONS
    rows, gaps = [], []
    for number, person in enumerate(people):
        for step, epsilon in enumerate(epsilons.tolist()):
            done = (number * epsilons.size + step) / (len(people) * epsilons.size)
            setting.progress(done, f"person {number + 1}, ε = {epsilon:g}")
            best = optimal_mechanism(person.grid, person.prior, epsilon_per_km=epsilon, gap=1e-5)
            gaps.append(best.optimality.gap)
            rows.append(
                (f"person {number + 1}", len(person.places_km), epsilon, 2 / epsilon,
                 true_loss(person, best), best.optimality.expected_loss,
                 best.certificate.epsilon_per_km)
            )  # fmt: skip
    return _finding(rows, len(people), float(max(gaps)))


def true_loss(person: Person, mechanism: OptimalMechanism) -> float:
    """The mean distance between where the person really was and the reported centre, in km."""
    centres, rows = person.grid.centres, mechanism.matrix()[person.cells]
    offsets = person.places_km[:, None, :] - centres
    distances: FloatArray = np.hypot(offsets[..., 0], offsets[..., 1])
    return float((rows * distances).sum(axis=1).mean())


def _finding(rows: list[tuple[Any, ...]], people: int, gap: float) -> Finding:
    table = np.array([row[2:6] for row in rows], dtype=np.float64).reshape(people, -1, 4)
    epsilon, symmetric, personal = table[0, :, 0], table[0, :, 1], table[:, :, 2]
    level = personal[:, -1]
    crossings = [float(epsilon[np.argmax(loss > symmetric)]) for loss in personal]
    return Finding(
        *judge_coarse(epsilon, symmetric, personal),
        Table.of(
            ("person", "check-ins", "epsilon per km", "symmetric km", "optimal km",
             "optimal between centres km", "certified epsilon per km"), rows,
        ),
        lambda figure: _draw(figure, epsilon, personal),
        {
            "largest_gap": gap,
            "settled_km_least": float(level.min()),
            "settled_km_most": float(level.max()),
            "crossing_epsilon_least": min(crossings),
            "crossing_epsilon_most": max(crossings),
        },
        figure_size=(8.0, 5.2),
    )  # fmt: skip


def judge_coarse(epsilon: FloatArray, symmetric: FloatArray, personal: FloatArray) -> Verdict:
    """§7.2: from the losses by ε, (ε,) of the symmetric and (people, ε) of the personal mechanisms."""
    strong, weak = epsilon < 1 - 1e-9, epsilon > 1 + 1e-9
    rise = max(float(np.diff(losses, axis=-1).max()) for losses in (symmetric, personal))
    ahead = (personal < symmetric)[:, strong]
    lowest = min(float(symmetric[strong].min()), float(personal[:, strong].min()))
    level = personal[:, -1]
    moved = float(np.abs(personal[:, epsilon >= 2] - level[:, None]).max())
    return Verdict.of(
        Claim("no loss grows with ε", rise <= _SOLVED_KM, f"by {max(rise, 0.0):.1g} km at most"),
        Claim(
            "for ε < 1 both losses are above 1.9 km", lowest > 1.9, f"the least is {lowest:.2f} km"
        ),
        Claim(
            "for ε < 1 the personal mechanism loses less",
            bool(ahead.all()),
            f"in {int(ahead.sum())} of {ahead.size} cases",
        ),
        Claim(
            "for ε > 1 the symmetric loss falls at the rate 2/ε to 0.66 km at ε = 3 and is the smaller",
            abs(float(symmetric[-1]) - 0.66) < 0.01 and bool((symmetric < personal)[:, weak].all()),
            f"to {symmetric[-1]:.2f} km, smaller in {int((symmetric < personal)[:, weak].sum())} of "
            f"{personal[:, weak].size} cases",
        ),
        Claim(
            "the personal losses stabilise around 2.0 km",
            float(np.abs(level - 2.0).max()) < 0.2 and moved < 0.1,
            f"at {', '.join(f'{value:.2f}' for value in level)} km, within {moved:.2f} km from ε = 2 on",
        ),
        note=SAMPLE,
    )


def _draw(figure: Any, epsilon: FloatArray, personal: FloatArray) -> None:
    columns, smooth = 2, np.linspace(epsilon[0], epsilon[-1], 200)
    grid = figure.subplots(-(-len(personal) // columns), columns, sharex=True, sharey=True)
    for number, (axes, loss) in enumerate(zip(np.ravel(grid), personal, strict=False)):
        axes.plot(smooth, 2 / smooth, color=COLOURS[0], label="symmetric (Laplace)")
        axes.plot(epsilon, loss, "--", color=COLOURS[1], label="optimal on the grid")
        axes.set_title(f"person {number + 1}", fontsize=9)
        axes.set_ylim(0, 11)
    np.ravel(grid)[0].legend()
    figure.supxlabel("ε per km")
    figure.supylabel("expected loss (km)")


FIGURE_4 = Experiment(
    "figure-4",
    "Figure 4: symmetric noise against optimal mechanisms on an 8 × 6 grid",
    "for ε < 1 both losses are above 1.9 km, and on cells of 5 km the optimal mechanism of a person loses "
    "less than planar Laplace noise; for ε > 1 it stabilises around 2.0 km while the symmetric loss falls "
    "to 0.66 km at ε = 3.",
    coarse_grid,
    judge_coarse,
)


# --- Figure 5: noisy points to the nearest cell, or to the best cell for a person's prior


REMAPPED_CELL_KM = 0.5
REMAPPED_EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 1.8, 2.2, 2.6, 3.0)
QUICK_REMAPPED_EPSILONS = (0.2, 1.0, 3.0)
DRAWS, QUICK_DRAWS = 8_000, 1_500
_SURE = 5


def remapping(setting: Setting) -> Finding:
    """The expected loss of two people under both rules, from the same noise."""
    people = busiest(setting.data, 2, cell_km=REMAPPED_CELL_KM)
    epsilons = QUICK_REMAPPED_EPSILONS if setting.quick else REMAPPED_EPSILONS
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
        lambda figure: _draw_remapping(figure, table),
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


def _draw_remapping(figure: Any, table: FloatArray) -> None:
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
