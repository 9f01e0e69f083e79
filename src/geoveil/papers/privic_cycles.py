"""PRIVIC, section 7: the published campaign by cycle, ours beside it, and both at the same promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray, uniform
from geoveil.campaign import Campaign, Crowd, DesignedElastic, Simulation, blahut_arimoto, simulate
from geoveil.errors import percent
from geoveil.estimate import Steps
from geoveil.papers import report
from geoveil.papers.data import PARIS, SAN_FRANCISCO, City, Cut, load_city
from geoveil.papers.report import Claim, Experiment, Measured, Setting, Verdict, experiment
from geoveil.plot import Curve, Panel, draw_maps


@dataclass(frozen=True)
class PublishedCampaign:
    """A city with the numbers of §7: cycles of collection, Blahut–Arimoto and update steps."""

    cut: Cut
    cycles: int
    design_steps: int
    update_steps: int

    def city(self, setting: Setting) -> City:
        """The city with its people."""
        return load_city(self.cut, setting.data)

    def as_published(self, city: City, beta: float) -> Campaign:
        """A fresh campaign under the paper's rule; β per cell."""
        return Campaign.as_published(
            city.grid, beta_per_km=beta, design_steps=self.design_steps, update_steps=self.update_steps
        )  # fmt: skip


PARIS_CAMPAIGN = PublishedCampaign(PARIS, cycles=14, design_steps=8, update_steps=10)
SAN_FRANCISCO_CAMPAIGN = PublishedCampaign(SAN_FRANCISCO, cycles=7, design_steps=5, update_steps=5)
"""Cycle 1 of the tables is the uniform start, so 15 and 8 printed cycles are 14 and 7 collections."""
CAMPAIGNS = {"paris": PARIS_CAMPAIGN, "san-francisco": SAN_FRANCISCO_CAMPAIGN}

DESIGN_UPDATES = Steps(9)
"""Blahut–Arimoto in Figures 2 and 3: ten iterations, the first from uniform weights. These give the tight
ε of the authors' code to all its digits (0.392818 at β = 0.2 in Paris)."""


def designed(city: City, prior: FloatArray, beta: float) -> DesignedElastic:
    """Blahut–Arimoto as in Figures 2 and 3; β per cell."""
    return blahut_arimoto(city.grid, prior, beta_per_km=beta, stop=DESIGN_UPDATES)


def re_reporting(
    campaign: PublishedCampaign, city: City, beta: float, setting: Setting, seeds: int
) -> list[Simulation]:
    """Everybody reports in every cycle, as in the paper's tables; one simulation a seed."""
    crowd, cycles = Crowd(city.people, "each round"), campaign.cycles
    return [
        simulate(campaign.as_published(city, beta), crowd, rounds=cycles, seed=setting.seed + seed)
        for seed in range(seeds)
    ]


def errors(simulations: Sequence[Simulation]) -> FloatArray:
    """(simulations, cycles): EMD in cells."""
    return np.array([[cycle.error_km for cycle in simulation.rounds] for simulation in simulations])


# --- Tables 2 and 3 with Figures 8 and 9: the error by cycle, everybody reporting in each


# As printed: EMD in cells, cycles down, five rounds across for β = 1 and five for β = 0.5. Cycle 1 is the
# uniform start itself; the first line is cycle 2, the first collection.
_PARIS = """
0.27104 0.27796 0.28247 0.27758 0.26276   | 0.57738 0.57994 0.55791 0.60717 0.56880
0.21916 0.23750 0.25035 0.25116 0.23241   | 0.51324 0.48295 0.47043 0.51285 0.45826
0.19156 0.21115 0.21726 0.20913 0.20408   | 0.43184 0.42398 0.41040 0.45230 0.41119
0.18241 0.19264 0.19570 0.19747 0.18728   | 0.39741 0.38771 0.37284 0.41176 0.36953
0.16526 0.18020 0.174578 0.17310 0.17268  | 0.37818 0.35482 0.36039 0.36375 0.38045
0.14643 0.18159 0.16092 0.17222 0.17139   | 0.35044 0.34383 0.34818 0.35760 0.36804
0.13860 0.17605 0.15938 0.17078 0.16192   | 0.34086 0.32983 0.35769 0.34430 0.34780
0.15047 0.16926 0.15153 0.17005 0.15266   | 0.33137 0.31749 0.34690 0.33840 0.34028
0.14734 0.14825 0.14585 0.15001 0.15459   | 0.3170 0.32975 0.32772 0.34529 0.32670
0.14227 0.14135 0.14326 0.13797 0.14507   | 0.31917 0.31851 0.32689 0.33667 0.32043
0.13818 0.14448 0.14703 0.13589 0.14142   | 0.32137 0.32451 0.31843 0.32556 0.34014
0.16111 0.13641 0.14893 0.14208 0.13808   | 0.31224 0.31219 0.31380 0.31515 0.31159
0.13894 0.13111 0.14094 0.14199 0.14192   | 0.30883 0.30496 0.30578 0.30726 0.30282
0.15106 0.14271 0.14601 0.13584 0.12413   | 0.29405 0.31198 0.30786 0.31167 0.30100
"""
_SAN_FRANCISCO = """
0.37229 0.37038 0.36784 0.36949 0.36816   | 0.79621 0.80474 0.80219 0.80670 0.79940
0.29828 0.298370 0.30017 0.29784 0.29859  | 0.64931 0.66292 0.65362 0.65950 0.65285
0.26091 0.26029 0.26231 0.26180 0.26518   | 0.56896 0.57378 0.57338 0.57125 0.56618
0.23472 0.23419 0.23337 0.23740 0.23897   | 0.51672 0.51710 0.51735 0.51880 0.51138
0.21367 0.21432 0.21537 0.21777 0.21881   | 0.48194 0.48299 0.47992 0.48267 0.47791
0.19612 0.19761 0.19904 0.20120 0.20067   | 0.45531 0.45861 0.45122 0.45732 0.45450
0.18244 0.18412 0.18741 0.18724 0.18674   | 0.43588 0.43745 0.43558 0.43704 0.43584
"""

PUBLISHED: dict[tuple[str, float], FloatArray] = {
    (city, beta): np.array([line.split("|")[half].split() for line in text.split("\n")[1:-1]], float).T
    for city, text in (("Paris", _PARIS), ("San Francisco", _SAN_FRANCISCO))
    for half, beta in enumerate((1.0, 0.5))
}  # fmt: skip
"""EMD in cells by city and β per cell: one row a round, one column a cycle, from cycle 2 on."""

START = {"Paris": 2.02262, "San Francisco": 7.37595}
"""EMD of the uniform start in cells, cycle 1 of Tables 2 and 3."""

Cycles = Mapping[float, FloatArray]
"""β → (rounds, cycles): EMD in cells."""


def spread(rounds: FloatArray) -> float:
    """How far the printed rounds of one β lie apart, in the cycle where they differ most."""
    return float(np.ptp(rounds, axis=0).max())


def judge_cycles(ours: Cycles, theirs: Cycles) -> Verdict:
    """The printed numbers, and §7 on Figures 8 and 9: the error falls with every cycle and converges.

    Differences count where they exceed the spread of the paper's own rounds.
    """
    claims = []
    for beta in theirs:
        mean, printed = ours[beta].mean(axis=0), theirs[beta].mean(axis=0)
        noise = spread(theirs[beta])
        gap, rise = np.abs(mean - printed).max(), np.diff(mean).max()
        last, theirs_last = abs(mean[-1] - mean[-2]), abs(printed[-1] - printed[-2])
        claims += [
            Claim(f"β = {beta:g}: the printed means", gap <= noise,
                  f"at most {gap:.4f} cells apart, the printed rounds {noise:.4f}; at last "
                  f"{mean[-1]:.4f} against {printed[-1]:.4f}"),
            Claim(f"β = {beta:g}: the error falls with every cycle", rise <= noise and mean[-1] < mean[0],
                  f"{mean[0]:.3f} to {mean[-1]:.3f}, largest rise {max(rise, 0):.4f}"),
            Claim(f"β = {beta:g}: it has converged at the end", last <= noise,
                  f"the last cycle changes it by {last:.4f}, in the paper by {theirs_last:.4f}, the rounds "
                  f"differ by {noise:.4f}"),
        ]  # fmt: skip
    return Verdict.of(*claims)


def _printed(campaign: PublishedCampaign) -> Cycles:
    return {beta: PUBLISHED[campaign.cut.name, beta] for beta in (1.0, 0.5)}


def _by_cycle(setting: Setting, *, campaign: PublishedCampaign) -> Measured:
    city, theirs, seeds = campaign.city(setting), _printed(campaign), setting.pick(5, 2)
    ours = {
        beta: errors(re_reporting(campaign, city, beta, setting, seeds))
        for beta in setting.each(list(theirs), "β = {:g} per cell")
    }
    columns, means, panels = ["cycle"], [], {}
    cycles = np.arange(2.0, campaign.cycles + 2)
    for beta in theirs:
        columns += [f"published, β={beta:g} (cells)", f"ours, β={beta:g} (cells)"]
        means += [theirs[beta].mean(axis=0), ours[beta].mean(axis=0)]
        beside = [Curve("published", cycles, theirs[beta]), Curve("ours", cycles, ours[beta])]
        panels[f"β = {beta:g} per cell"] = beside
    gaps = np.abs(np.array(means[::2]) - means[1::2])
    rows = zip(cycles.astype(int), *np.round(means, 4), strict=True)
    numbers = {"widest_gap_cells": float(gaps.max()), "rounds": seeds}
    return Measured((ours,), columns, rows, report.curves(panels, "cycle", "EMD (cells)"), numbers)


TABLES = tuple(
    Experiment(
        f"table-{number}",
        f"Table {number} and Figure {number + 6}: {campaign.cut.name}, error by cycle",
        f"The error falls with every cycle and converges, to {last} cells (β = 1 and 0.5).",
        partial(judge_cycles, theirs=_printed(campaign)),
        partial(_by_cycle, campaign=campaign),
    )
    for number, campaign, last in (
        (2, PARIS_CAMPAIGN, "0.140 and 0.305"),
        (3, SAN_FRANCISCO_CAMPAIGN, "0.186 and 0.436"),
    )
)


# --- Figures 6 and 7: the two cities, and their estimates after the last cycle


PRINTED_PEOPLE = {"Paris": (10_078, 10_260), "San Francisco": (123_025, 123_108)}
"""Check-ins according to §3 and to §7."""
PRINTED_GRID = {"Paris": (12, 16), "San Francisco": (17, 24)}
"""Rows and columns according to §3 and §7."""


def judge_cities(cities: Sequence[tuple[str, tuple[int, int], int, float]]) -> Verdict:
    """What §3, §7 and the first line of Tables 2 and 3 print about the two cities.

    A city as we cut it: name, rows and columns, check-ins, and the error of the uniform start in cells.
    """
    people, grids, starts = [], [], []
    for name, (rows, columns), number, start in cities:
        (in_3, in_7), (high, wide) = PRINTED_PEOPLE[name], PRINTED_GRID[name]
        people.append(f"{name} {number:,}, §3 says {in_3:,} and §7 {in_7:,}")
        grids.append(f"{name} {columns} × {rows} against {wide} × {high}")
        starts.append(f"{start:.4f} against {START[name]:.4f}")
    return Verdict.of(
        Claim("the check-ins, as one of the two sections has them",
              all(people in PRINTED_PEOPLE[name] for name, _, people, _ in cities), ", ".join(people)),
        Claim("the printed grids", all(shape == PRINTED_GRID[name] for name, shape, _, _ in cities),
              ", ".join(grids)),
        Claim("the error of the uniform start (Tables 2 and 3, N = 1)",
              all(abs(start - START[name]) < 1e-3 for name, *_, start in cities), ", ".join(starts)),
    )  # fmt: skip


@experiment("Figure 6: the two cities", judge_cities)
def figure_6(setting: Setting) -> Measured:
    """10,078 check-ins in Paris and 123,025 in San Francisco (§3; §7 says 10,260 and 123,108), on grids of
    16 × 12 and 24 × 17 cells; EMD of the uniform start 2.02262 and 7.37595.
    """
    cities = [campaign.city(setting) for campaign in CAMPAIGNS.values()]
    cuts = [
        (city.name, city.grid.shape, city.people.size, city.error_km(uniform(city.grid.size)))
        for city in cities
    ]

    def draw(figure: Any) -> None:
        for part, city in zip(figure.subfigures(1, len(cities)), cities, strict=True):
            draw_maps(part, city.grid, [Panel(f"{city.name}, check-ins", city.truth)])

    columns = """city | rows | columns | check-ins | published, §3 | published, §7 |
        EMD of uniform (cells) | published (cells)"""
    rows = [
        [name, *shape, n, *PRINTED_PEOPLE[name], start, START[name]]
        for name, shape, n, start in cuts
    ]
    return Measured((cuts,), columns, rows, draw, figure_size=(9.5, 4.0))


def judge_maps(start: float, blurred: float, sharp: float) -> Verdict:
    """§7 on Figure 7: both maps fairly accurate, their error very low, the one for β = 1 better.

    EMD in cells: before the first report, and after the last cycle at β = 0.5 and 1.
    """
    return Verdict.of(
        Claim("the error is very low for both β", max(blurred, sharp) <= 0.2 * start,
              f"{blurred:.3f} and {sharp:.3f} cells, at most a fifth of the {start:.2f} before the first "
              "report"),
        Claim("the estimate is better for β = 1 than for 0.5", sharp < blurred,
              f"{sharp:.3f} against {blurred:.3f} cells"),
        note="More β is less noise and a better estimate; one sentence of §7 says the opposite.",
    )  # fmt: skip


def _maps(setting: Setting, *, campaign: PublishedCampaign) -> Measured:
    city = campaign.city(setting)
    panels, rows = [Panel("truth", city.truth)], []
    for beta in (0.5, 1.0):
        last = re_reporting(campaign, city, beta, setting, 1)[0].rounds[-1]
        panels.append(Panel(f"β = {beta:g}, EMD {last.error_km:.2f} cells", last.distribution))
        rows.append([beta, round(last.error_km, 4), round(last.mean_distance_km, 3)])
    draw = partial(draw_maps, space=city.grid, panels=panels)
    figures = (START[city.name], rows[0][1], rows[1][1])
    columns = "β per cell | EMD (cells) | mean distance (cells)"
    return Measured(figures, columns, rows, draw, figure_size=(11.0, 4.2))


FIGURE_7 = tuple(
    Experiment(
        f"figure-7-{name}",
        f"Figure 7: the estimates after the last cycle, {campaign.cut.name}",
        "After convergence the estimates are fairly accurate for both β, with a very low error, and "
        "better for β = 1 than for β = 0.5.",
        judge_maps,
        partial(_maps, campaign=campaign),
    )
    for name, campaign in CAMPAIGNS.items()
)


BETAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


def judge_pareto(betas: FloatArray, errors_by_city: Mapping[str, FloatArray]) -> Verdict:
    """§7 on Figure 10: the error falls sharply at first and then stabilises, in both cities alike."""
    claims = []
    for name, curve in errors_by_city.items():
        mean = curve.mean(axis=0)
        slopes = -np.diff(mean) / np.diff(betas)
        first = (mean[0] - mean[1]) / (mean[0] - mean[-1])
        claims += [
            Claim(f"{name}: the error falls with β", (slopes > 0).all(),
                  f"{mean[0]:.3f} to {mean[-1]:.3f} cells"),
            Claim(f"{name}: it falls sharply at first", first >= 0.5,
                  f"{percent(first, 0)} of the fall between β = {betas[0]:g} and {betas[1]:g}"),
            Claim(f"{name}: then it stabilises", abs(slopes[-1]) <= 0.1 * slopes[0],
                  f"{slopes[0]:.1f} cells per unit of β at first, {slopes[-1]:.2f} at last"),
        ]  # fmt: skip
    return Verdict.of(*claims)


@experiment("Figure 10: the error against β", judge_pareto)
def figure_10(setting: Setting) -> Measured:
    """The error decreases sharply at first and then stabilises as β grows, in both cities."""
    betas = np.array(setting.pick(BETAS, BETAS[::2]))
    last: dict[str, FloatArray] = {}
    for campaign in CAMPAIGNS.values():
        city, seeds = campaign.city(setting), setting.pick(5, 1)
        runs = [
            errors(re_reporting(campaign, city, beta, setting, seeds))[:, -1]
            for beta in setting.each(betas.tolist(), f"{city.name}, β = {{:g}}")
        ]
        last[city.name] = np.array(runs).T
    means = [curve.mean(axis=0).round(4) for curve in last.values()]
    curves = [Curve(name, betas, curve) for name, curve in last.items()]
    columns = ["β per cell", *(f"{name}, EMD (cells)" for name in last)]
    draw = report.curves({"": curves}, "β per cell", "EMD (cells)")
    return Measured((betas, last), columns, zip(betas, *means, strict=True), draw)


# --- Ours beside the paper at the same promise: people report once, certified ε, the dial


PROMISES = (2.0, 1.0)
DIALS = {f"camouflage {dial:g}": dial for dial in (0.9, 0.5, 0.0)}
PAPER = "as published"
ROUNDS = {"Paris": 15, "San Francisco": 8}


class Once(NamedTuple):
    """A rule after the last round, people reporting once: EMD and distance in cells, leakage in bits."""

    error: float
    distance: float
    leakage: float


Rules = Mapping[tuple[float, str], Once]
"""certified ε per cell, rule → what it does"""


def judge_promise(rules: Rules, *, city: str) -> Verdict:
    """Tables 2 and 3 for people who report once, and «an optimal trade-off» of leakage and service."""
    claims = []
    for epsilon in PROMISES:
        printed = PUBLISHED[city, epsilon / 2]
        last, mine = float(printed[:, -1].mean()), rules[epsilon, PAPER]
        ahead = [
            name
            for (level, name), other in rules.items()
            if level == epsilon and other.leakage < mine.leakage and other.distance < mine.distance
        ]
        claims += [
            Claim(f"ε = {epsilon:g}: the paper's rule reaches the printed error",
                  mine.error <= last + spread(printed),
                  f"{mine.error:.3f} cells, printed {last:.3f} where everybody reports in every cycle"),
            Claim(f"ε = {epsilon:g}: it trades leakage for distance optimally", not ahead,
                  f"{', '.join(ahead) or 'no setting of the dial'} leaks less over a shorter distance"),
        ]  # fmt: skip
    ratios = [rules[e, dial].error / rules[e, PAPER].error for dial in DIALS for e in PROMISES]
    note = (
        f"Ours at the same certified ε, all rounds pooled, camouflage {report.listed(DIALS.values(), 'g')}: "
        f"the error is {report.listed(ratios)} times that of the paper's rule (ε = {PROMISES[0]:g} and "
        f"{PROMISES[1]:g} each)."
    )
    return Verdict.of(*claims, note=note)


def _same_promise(setting: Setting, *, campaign: PublishedCampaign) -> Measured:
    city = campaign.city(setting)
    crowd, rounds = Crowd(city.people), ROUNDS[city.name]
    runs: dict[tuple[float, str], list[Simulation]] = {}
    jobs = [(epsilon, seed) for epsilon in PROMISES for seed in range(setting.pick(5, 1))]
    for epsilon, seed in setting.each(jobs, "ε = {:g} per cell, seed {}"):
        rules = {PAPER: campaign.as_published(city, epsilon / 2)}
        rules |= {
            name: Campaign(city.grid, epsilon_per_km=epsilon, camouflage=dial, between="cells")
            for name, dial in DIALS.items()
        }
        for name, rule in rules.items():
            run = simulate(rule, crowd, rounds=rounds, seed=setting.seed + seed, ends=True)
            runs.setdefault((epsilon, name), []).append(run)
    last = {}
    for key, simulations in runs.items():
        ends = [run.rounds[-1] for run in simulations]
        measured = [[end.error_km, end.mean_distance_km, end.leakage_bits] for end in ends]
        last[key] = Once(*np.mean(measured, axis=0).tolist())
    panels = {
        f"ε = {epsilon:g} per cell, certified": [
            Curve(name, np.arange(1.0, rounds + 1), errors(simulations))
            for (promise, name), simulations in runs.items()
            if promise == epsilon
        ]
        for epsilon in PROMISES
    }
    columns = """ε per cell | rule | EMD (cells) | share of the paper's | mean distance (cells) |
        leakage (bits)"""
    rows, numbers = [], {}
    for (epsilon, name), (error, distance, leakage) in last.items():
        ratio = error / last[epsilon, PAPER].error
        rows.append([f"{epsilon:g}", name, error, ratio, distance, leakage])
        numbers[f"error_ratio_{epsilon:g}_{name}"] = ratio
    draw = report.curves(panels, "round", "EMD (cells)", y_scale="log")
    return Measured((last,), columns, rows, draw, numbers)


SAME_PROMISE = tuple(
    Experiment(
        f"same-promise-{name}",
        f"Same promise, people report once: {campaign.cut.name}",
        "The error after the last cycle is that of Tables 2 and 3, and PRIVIC provides an optimal trade-off "
        "between leakage and quality of service. Here people report once, as its budget of 2β for each "
        "would have it, and not in every cycle.",
        partial(judge_promise, city=campaign.cut.name),
        partial(_same_promise, campaign=campaign),
    )
    for name, campaign in CAMPAIGNS.items()
)
