"""NOISE made again: its figures, and an answer to the question it leaves open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.optimal import OptimalMechanism, OptimalNoise
from geoveil.papers import report
from geoveil.papers.data import DataFolder
from geoveil.papers.report import Claim, Measured, Setting, Verdict, experiment
from geoveil.plot.curves import COLOURS

_SAME = 1e-3
"""Figures this near, relatively, are the same."""
WORDS = {gv.distance_km.name: "distance", gv.squared_distance_km2.name: "squared distance"}
"""What pictures call a loss."""

# --- Figures 2 and 3: radials of least loss


BOUNDS_PER_KM2 = (0.1, 0.3, 1.0, 3.0)
EPSILON_PER_KM = 5.0  # the paper's 1/200 per metre
REGIONS = (gv.Region.plane(), gv.Region.disk(diameter_km=1.0))
threshold = gv.RadialLoss("distance beyond 300 m", lambda r: np.maximum(r - 0.3, 0.0))
LOSSES = (gv.distance_km, gv.squared_distance_km2, threshold)


def judge_single_point(radii_km: Sequence[float], off: float) -> Verdict:
    """§6, Figure 2: from where the noise ends by rising M, and how far that is from 1/√(πM)."""
    return Verdict.of(
        Claim("as much probability as possible is on short noise", off < _SAME,
              f"density M up to 1/√(πM), to {max(off, 1e-12):.0e} of it"),
        Claim("the best radial depends on M", all(one > other for one, other in pairwise(radii_km)),
              f"it ends at {report.listed(radii_km)} km"),
        note="Without a bound there is none.",
    )  # fmt: skip


@experiment("Figure 2: the best radial for a single point", judge_single_point)
def figure_2(setting: Setting) -> Measured:
    """where the region is a single point, the optimal noise depends on the bound M and puts as much
    probability as M allows on short noise.
    """
    rows = []
    for bound in setting.each(BOUNDS_PER_KM2, "M = {:g}"):
        noise = gv.optimal_noise(privacy=None, bound_per_km2=bound, gap=1e-3)
        expected, least = 1 / math.sqrt(math.pi * bound), noise.optimality.lower_bound
        rows.append((bound, noise.reach_km, expected, noise.loss_reached, least))
    off = max(abs(radius / expected - 1) for _, radius, expected, _, _ in rows)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for bound, edge, *_ in rows:
            axes.plot([0, edge, edge, 2.2], [bound, bound, 0, 0], label=f"M = {bound:g} per km²")
        axes.set(xlabel="noise r (km)", ylabel="density R(r) per km²", xlim=(0, 2.0))
        axes.legend()

    columns = "M per km2 | radius km | 1/√(πM) km | mean distance km | lower bound km"
    numbers = {"largest_relative_error_of_the_radius": off}
    return Measured(([row[1] for row in rows], off), columns, rows, draw, numbers)


def judge_laplace(missing: float, off: float, losses: int, regions: int) -> Verdict:
    """Theorem 9: from what another noise could save at most, and how far the best is from Laplace."""
    return Verdict.of(
        Claim("planar Laplace noise is optimal for every increasing loss and region", missing <= _SAME,
              f"nothing saves more than {missing:.1g} of its loss, for {losses} losses and {regions} "
              "regions"),
        Claim("its radial is ε²/(2π)·e^{−εr}", off <= _SAME,
              f"the density of the program is off by {off:.1g} at most"),
    )  # fmt: skip


@experiment("Figure 3 and Theorem 9: planar Laplace noise, ε = 1/200 per metre", judge_laplace)
def figure_3(setting: Setting) -> Measured:
    """planar Laplace noise is optimal for ε-geo-indistinguishability on every region with an area and
    for every increasing loss.
    """
    epsilon = EPSILON_PER_KM

    def density(radius: FloatArray) -> FloatArray:
        return epsilon**2 / (2 * math.pi) * np.exp(-epsilon * radius)

    # the loss of Laplace, ∫ ε²·r·e^{−εr}·L(r) dr, by the trapezium rule on a fine grid
    fine, radius = np.linspace(0.0, 45.0 / epsilon, 400_001), np.linspace(0.0, 2.0, 401)
    cases = [(loss, region) for region in REGIONS for loss in LOSSES]
    cases, best, rows = cases[: setting.pick(6, 4)], [], []  # one loss is enough on the disk
    for loss, region in setting.each(cases, "{0.name} on {1.name}"):
        privacy, gap = gv.GeoIndistinguishability(epsilon), setting.pick(1e-4, 1e-3)
        noise = gv.optimal_noise(privacy=privacy, loss=loss, region=region, gap=gap)
        values = epsilon**2 * fine * np.exp(-epsilon * fine) * loss.at(fine)
        of_laplace = float(np.sum(values[1:] + values[:-1]) / 2 * (fine[1] - fine[0]))
        off = float(np.abs(noise.density_per_km2(radius) / density(radius) - 1).max())
        least = noise.optimality.lower_bound
        best.append(noise)
        rows.append((loss.name, region.name, noise.loss_reached, least, of_laplace, off))
    worst, missing = max(row[5] for row in rows), max(1 - row[3] / row[4] for row in rows)

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        radius = np.linspace(0, 1.2, 300)
        left.plot(radius, density(radius), color="#bbbbbb", linewidth=5, label="planar Laplace")
        for noise, style in zip(best, ("-", "--", ":"), strict=False):
            name = WORDS.get(noise.loss.name, noise.loss.name)
            left.plot(radius, noise.density_per_km2(radius), style, label=f"best for {name}")
        left.set(xlabel="noise r (km)", ylabel="density R(r) per km²", title="the radial")
        left.legend(fontsize=7)
        side = np.linspace(-1, 1, 201)
        painted = best[0].density_per_km2(np.hypot(side[:, None], side))
        shown = right.imshow(painted, extent=(-1, 1, -1, 1), origin="lower", cmap="cividis")
        right.set(xlabel="east (km)", ylabel="north (km)")
        right.set_title(f"the noise, ε = {epsilon:g} per km")
        right.grid(False)
        figure.colorbar(shown, ax=right, label="per km²", shrink=0.85)

    figures = (missing, worst, len(LOSSES), len(REGIONS))
    columns = "loss | region | loss of the optimum | lower bound | loss of Laplace | density off by"
    numbers = {"largest_relative_error_of_the_density": worst, "largest_gap": missing}
    return Measured(figures, columns, rows, draw, numbers, (8.4, 3.6))


# --- Section 7: people of Los Angeles


FILE = "gowalla-los-angeles"
REGION = gv.Box(south=33.9301, west=-118.5354, north=34.1996, east=-118.1010)
WIDTH_KM, HEIGHT_KM = 40.0, 30.0
SAMPLE = (
    "The people are the busiest of a 47 % sample that ends 4 km short of the eastern edge, not the "
    "paper's."
)
"""What every figure made from this file must say."""


@dataclass(frozen=True, eq=False)
class Person:
    """One person's check-ins in kilometres, and their cells on a grid centred on the region."""

    places_km: FloatArray
    grid: gv.Grid

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
    (south, west, north, east), points = REGION, data.check_ins(FILE)
    degrees = np.stack([points.lat, points.lng], axis=1)
    inside = ((degrees >= [south, west]) & (degrees <= [north, east])).all(axis=1)
    (lat, lng), user = degrees[inside].T, points.user[inside]
    users, visits = np.unique(user, return_counts=True)
    chosen = users[np.argsort(-visits, kind="stable")[:count]]
    rows, columns = round(HEIGHT_KM / cell_km), round(WIDTH_KM / cell_km)
    grid = gv.Grid(rows=rows, columns=columns, cell_km=cell_km)
    west, south, east, north = REGION.rectangle_km
    places = REGION.plane.to_plane(lat=lat, lng=lng) - [(west + east) / 2, (south + north) / 2]
    return [Person(places[user == who], grid) for who in chosen]


EPSILONS = np.round(np.arange(0.2, 3.01, 0.1), 1).tolist()
QUICK_EPSILONS = [0.2, 0.6, 1.0, 2.0, 3.0]
_SOLVED_KM = 1e-3  # more than what the programs are solved to


def true_loss(person: Person, mechanism: OptimalMechanism) -> float:
    """The mean distance between where the person really was and the reported centre, in km."""
    offsets = person.places_km[:, None, :] - person.grid.centres
    distances = np.hypot(offsets[..., 0], offsets[..., 1])
    return float((mechanism.matrix()[person.cells] * distances).sum(axis=1).mean())


def judge_coarse(epsilon: FloatArray, symmetric: FloatArray, personal: FloatArray) -> Verdict:
    """§7.2: from the losses by ε, (ε,) of the symmetric and (people, ε) of the personal mechanisms."""
    strong, weak = epsilon < 1 - 1e-9, epsilon > 1 + 1e-9
    rise = max(float(np.diff(losses, axis=-1).max()) for losses in (symmetric, personal))
    ahead, behind = (personal < symmetric)[:, strong], (symmetric < personal)[:, weak]
    lowest = min(symmetric[strong].min(), personal[:, strong].min())
    level = personal[:, -1]
    moved = np.abs(personal[:, epsilon >= 2] - level[:, None]).max()
    return Verdict.of(
        Claim("no loss grows with ε", rise <= _SOLVED_KM, f"by {max(rise, 0.0):.1g} km at most"),
        Claim("for ε < 1 both losses are above 1.9 km", lowest > 1.9, f"the least is {lowest:.2f} km"),
        Claim("for ε < 1 the personal mechanism loses less", ahead.all(), f"in {report.share(ahead)} cases"),
        Claim("for ε > 1 the symmetric loss falls at the rate 2/ε to 0.66 km at ε = 3 and is the smaller",
              abs(symmetric[-1] - 0.66) < 0.01 and behind.all(),
              f"to {symmetric[-1]:.2f} km, smaller in {report.share(behind)} cases"),
        Claim("the personal losses stabilise around 2.0 km", np.abs(level - 2.0).max() < 0.2 and moved < 0.1,
              f"at {report.listed(level)} km, within {moved:.2f} km from ε = 2 on"),
        note=SAMPLE,
    )  # fmt: skip


@experiment("Figure 4: symmetric noise against optimal mechanisms on an 8 × 6 grid", judge_coarse)
def figure_4(setting: Setting) -> Measured:
    """for ε < 1 both losses are above 1.9 km, and on cells of 5 km the optimal mechanism of a person loses
    less than planar Laplace noise; for ε > 1 it stabilises around 2.0 km while the symmetric loss falls
    to 0.66 km at ε = 3.
    """
    people = busiest(setting.data, setting.pick(4, 2), cell_km=5.0)
    epsilons = setting.pick(EPSILONS, QUICK_EPSILONS)
    rows, gaps = [], []
    jobs = [(number, epsilon) for number in range(1, len(people) + 1) for epsilon in epsilons]
    for number, epsilon in setting.each(jobs, "person {}, ε = {:g}"):
        person = people[number - 1]
        best = gv.optimal_mechanism(person.grid, person.prior, epsilon_per_km=epsilon, gap=1e-5)
        gaps.append(best.optimality.gap)
        centres_km, certified = best.optimality.expected_loss, best.certificate.epsilon_per_km
        measured = (2 / epsilon, true_loss(person, best), centres_km, certified)
        rows.append((f"person {number}", len(person.places_km), epsilon, *measured))
    table = np.array([row[2:5] for row in rows]).reshape(len(people), -1, 3)
    epsilon, symmetric, personal = table[0, :, 0], table[0, :, 1], table[:, :, 2]
    crossings = [float(epsilon[np.argmax(loss > symmetric)]) for loss in personal]

    def draw(figure: Any) -> None:
        smooth = np.linspace(epsilon[0], epsilon[-1], 200)
        grid = figure.subplots(-(-len(personal) // 2), 2, sharex=True, sharey=True)
        for number, (axes, loss) in enumerate(zip(np.ravel(grid), personal, strict=False)):
            axes.plot(smooth, 2 / smooth, color=COLOURS[0], label="symmetric (Laplace)")
            axes.plot(epsilon, loss, "--", color=COLOURS[1], label="optimal on the grid")
            axes.set_title(f"person {number + 1}", fontsize=9)
            axes.set_ylim(0, 11)
        np.ravel(grid)[0].legend()
        figure.supxlabel("ε per km")
        figure.supylabel("expected loss (km)")

    columns = """person | check-ins | epsilon per km | symmetric km | optimal km |
        optimal between centres km | certified epsilon per km"""
    numbers: dict[str, float] = {"largest_gap": float(max(gaps))}
    for name, values in (("settled_km", personal[:, -1].tolist()), ("crossing_epsilon", crossings)):
        numbers |= {f"{name}_least": min(values), f"{name}_most": max(values)}
    return Measured((epsilon, symmetric, personal), columns, rows, draw, numbers, (8.0, 5.2))


REMAPPED_EPSILONS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 1.8, 2.2, 2.6, 3.0)
_SURE = 5


def judge_remapping(nearest: FloatArray, bayesian: FloatArray, error: FloatArray) -> Verdict:
    """§7.3: from the losses under both rules, and the standard error of their difference."""
    gain, sure = 1 - bayesian / nearest, nearest - bayesian > _SURE * error
    return Verdict.of(
        Claim("Bayesian remapping is significantly better than the nearest cell", sure.all(),
              f"it loses {report.span(gain, '.0%')} less, beyond {_SURE} standard errors in "
              f"{report.share(sure)} cases"),
        note=SAMPLE,
    )  # fmt: skip


@experiment("Figure 5: remapping on 80 × 60 cells", judge_remapping)
def figure_5(setting: Setting) -> Measured:
    """moving a noisy point to the best cell for a person's own prior loses significantly less than moving
    it to the nearest cell.
    """
    people = busiest(setting.data, 2, cell_km=0.5)
    epsilons, draws = setting.pick((REMAPPED_EPSILONS, 8_000), ((0.2, 1.0, 3.0), 1_500))
    rows: list[tuple[Any, ...]] = []
    jobs = [(number, epsilon) for number in (1, 2) for epsilon in epsilons]
    for number, epsilon in setting.each(jobs, "person {}, ε = {:g}"):
        person, noise = people[number - 1], gv.ContinuousLaplace(epsilon_per_km=epsilon)
        nearest = gv.NearestPlace(noise, person.grid, spread=False)
        bayesian = gv.BayesianPlace(noise, person.grid, person.prior, spread=False)
        losses = [
            rule.expected_loss(person.prior, draws=draws, randomness=gv.seeded(setting.seed))
            for rule in (nearest, bayesian)
        ]  # each with its standard error
        rows.append((f"person {number}", len(person.places_km), epsilon, *losses[0], *losses[1]))
    table = np.array([row[2:] for row in rows], dtype=np.float64).reshape(2, len(epsilons), 5)
    _, nearest_km, nearest_error, bayesian_km, bayesian_error = np.moveaxis(table, -1, 0)
    gain = 1 - bayesian_km / nearest_km

    def draw(figure: Any) -> None:
        for number, axes in enumerate(figure.subplots(1, 2, sharey=True)):
            axes.plot(epsilons, bayesian_km[number], color=COLOURS[0], label="Bayesian remapping")
            axes.plot(epsilons, nearest_km[number], "--", color=COLOURS[1],
                      label="to the nearest cell")  # fmt: skip
            axes.set(xlabel="ε per km", title=f"person {number + 1}", ylim=(0, None))
        figure.axes[0].set_ylabel("expected loss (km)")
        figure.axes[0].legend()

    figures = (nearest_km, bayesian_km, np.hypot(nearest_error, bayesian_error))
    columns = """person | check-ins | epsilon per km | nearest km | nearest error km | Bayesian km |
        Bayesian error km"""
    numbers = {"largest_gain": float(gain.max()), "smallest_gain": float(gain.min())}
    return Measured(figures, columns, rows, draw, numbers, (8.0, 3.6))


RADIUS_KM = 1.0
RADIUS_EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def staircase(radius_km: float, epsilon: float, first_km: float) -> gv.CircularNoise:
    """Flat up to ``first_km``, then lower by e^{−ε} in rings of ``radius_km``; first ≤ radius.

    With first = radius it is the noise most like a uniform disk of that radius.
    """
    steps = math.ceil(45.0 / epsilon) + 2
    edges = np.r_[0.0, first_km + radius_km * np.arange(steps)]
    heights = np.exp(-epsilon * np.arange(steps))
    total = float((math.pi * np.diff(edges**2) * heights).sum())
    promise = gv.WithinRadius(radius_km, epsilon)
    return gv.CircularNoise.of_rings(edges, heights / total, privacy=promise)


def first_step_km(noise: gv.CircularNoise) -> float:
    """Where the density first falls below half way, in logarithms, to the next step."""
    logs = np.log(noise.pieces.left)
    fallen = int(np.argmax(logs < logs[0] - 0.25 * (logs[0] - logs[min(logs.size - 1, 3)])))
    return float(noise.pieces.edges[fallen])


def _is_staircase(noise: gv.CircularNoise, epsilon: float) -> bool:
    """Whether nearly all probability lies on steps e^{−ε} apart."""
    depth = np.log(noise.pieces.left[0] / noise.pieces.left) / epsilon
    on_step = np.abs(depth - np.rint(depth)) < 1e-3
    return bool(noise.pieces.masses[on_step].sum() > 0.85)


def judge_open_question(gap: float, steps: bool, gains: Sequence[float]) -> Verdict:
    """§8: from the proven gap, whether every noise is a staircase, and its gains over Laplace."""
    shape = "a staircase, flat and lower by e^{−ε} in rings of width D" if steps else "no staircase"
    return Verdict.of(
        Claim("the framework provides the tools to identify the optimal noise within a radius", gap <= _SAME,
              f"found and proven to {gap:.1g} of its loss"),
        note=f"It is {shape}. Against Laplace noise of ε/D per km, which keeps the same promise, it saves "
        f"{100 * min(gains):.2g} % to {100 * max(gains):.2g} %.",
    )  # fmt: skip


@experiment("The open question: the best noise within a radius", judge_open_question)
def open_question(setting: Setting) -> Measured:
    """what noise is optimal for (D, ε)-location privacy, a loss of at most ε within a distance D, is left
    for future work; the tools of the paper suffice to find it.
    """
    losses = (gv.distance_km, gv.squared_distance_km2)
    best: dict[tuple[float, str], OptimalNoise] = {}
    rows = []
    for epsilon in setting.each(setting.pick(RADIUS_EPSILONS, (1.0, 3.0)), "ε = {:g}"):
        disk, per_km = staircase(RADIUS_KM, epsilon, RADIUS_KM), epsilon / RADIUS_KM
        for loss, laplace in zip(losses, (2 / per_km, 6 / per_km**2), strict=True):
            privacy, gap = gv.WithinRadius(RADIUS_KM, epsilon), setting.pick(2e-4, 1e-3)
            noise = gv.optimal_noise(privacy=privacy, loss=loss, gap=gap)
            reached, disk_loss = noise.loss_reached, disk.expected_loss(loss)
            best[epsilon, loss.name] = noise
            rows.append((
                epsilon, loss.name, reached, noise.optimality.lower_bound, laplace, disk_loss,
                1 - reached / laplace, 1 - reached / disk_loss, first_step_km(noise),
            ))  # fmt: skip
    gap = max(noise.gap for noise in best.values())
    steps = all(_is_staircase(noise, epsilon) for (epsilon, _), noise in best.items())
    gains = [row[6] for row in rows]

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        radius = np.linspace(0, 4, 2001)
        shown = {
            "optimal: a staircase": ("-", 0, best[1.0, gv.distance_km.name].density_per_km2(radius)),
            "disk-like: first step D": (":", 2, staircase(RADIUS_KM, 1.0, RADIUS_KM).density_per_km2(radius)),
            "Laplace": ("--", 1, np.exp(-radius) / (2 * np.pi)),
        }  # fmt: skip
        for label, (style, number, density) in shown.items():
            left.plot(radius, density, style, color=COLOURS[number], label=label)
        left.set(xlabel="noise r (km)", ylabel="density R(r) per km²", title="D = 1 km, ε = 1")
        left.legend()
        for colour, loss in zip(COLOURS, losses, strict=False):
            own = [row for row in rows if row[1] == loss.name]
            epsilon, *_, laplace, disk, _ = zip(*own, strict=True)
            for other, gain, style in (("Laplace", laplace, "-"), ("disk-like", disk, ":")):
                label = f"{other}, {WORDS[loss.name]}"
                right.plot(epsilon, 100 * np.array(gain), style, color=colour, label=label)
        right.set(xlabel="ε within D", ylabel="loss saved (%)", title="gain of the optimum over")
        right.legend(fontsize=7)

    columns = """epsilon | loss | optimum | lower bound | Laplace ε/D per km | disk-like |
        gain over Laplace | gain over disk-like | first step km"""
    numbers = {"largest_gain_over_laplace": max(gains), "largest_gap": gap}
    return Measured((gap, steps, gains), columns, rows, draw, numbers, (8.6, 3.8))
