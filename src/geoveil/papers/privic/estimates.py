"""PRIVIC, section 7: estimates by cycle, and at the same promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.campaign import Campaign, Crowd, Simulation, simulate
from geoveil.estimate.likelihood import uniform
from geoveil.measure.distance import earth_movers_distance_km
from geoveil.papers.data import City
from geoveil.papers.privic.published_tables import (
    PARIS_CAMPAIGN,
    PUBLISHED,
    SAN_FRANCISCO_CAMPAIGN,
    START,
    PublishedCampaign,
    errors,
    re_reporting,
    spread,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot import Curve, Panel, draw_curves, draw_maps

CAMPAIGNS = (PARIS_CAMPAIGN, SAN_FRANCISCO_CAMPAIGN)
BETAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
PRINTED_PEOPLE = {"Paris": (10_078, 10_260), "San Francisco": (123_025, 123_108)}
"""Check-ins according to §3 and to §7."""
PRINTED_GRID = {"Paris": (12, 16), "San Francisco": (17, 24)}
"""Rows and columns according to §3 and §7."""


class Cut(NamedTuple):
    """A city as we cut it: rows and columns, check-ins, and the error of the uniform start in cells."""

    name: str
    shape: tuple[int, int]
    people: int
    start: float


def judge_cities(cities: Sequence[Cut]) -> Verdict:
    """What §3, §7 and the first line of Tables 2 and 3 print about the two cities."""
    return Verdict.of(
        Claim(
            "the check-ins, as one of the two sections has them",
            all(each.people in PRINTED_PEOPLE[each.name] for each in cities),
            ", ".join(
                f"{each.name} {each.people:,}, §3 says {PRINTED_PEOPLE[each.name][0]:,} and §7 "
                f"{PRINTED_PEOPLE[each.name][1]:,}"
                for each in cities
            ),
        ),
        Claim(
            "the printed grids",
            all(each.shape == PRINTED_GRID[each.name] for each in cities),
            ", ".join(
                f"{each.name} {each.shape[1]} × {each.shape[0]} against "
                f"{PRINTED_GRID[each.name][1]} × {PRINTED_GRID[each.name][0]}"
                for each in cities
            ),
        ),
        Claim(
            "the error of the uniform start (Tables 2 and 3, N = 1)",
            all(abs(each.start - START[each.name]) < 1e-3 for each in cities),
            ", ".join(f"{each.start:.4f} against {START[each.name]:.4f}" for each in cities),
        ),
    )


def _cities(setting: Setting) -> Finding:
    cities = [campaign.city(setting) for campaign in CAMPAIGNS]
    cuts = [
        Cut(
            city.name,
            city.grid.shape,
            city.people.size,
            earth_movers_distance_km(uniform(city.grid.size), city.truth, city.grid),
        )
        for city in cities
    ]
    rows = [
        [c.name, *c.shape, c.people, *PRINTED_PEOPLE[c.name], c.start, START[c.name]] for c in cuts
    ]
    return Finding(
        *judge_cities(cuts),
        table=Table.of(
            ["city", "rows", "columns", "check-ins", "published, §3", "published, §7",
             "EMD of uniform (cells)", "published (cells)"],
            rows,
        ),
        draw=partial(_draw_cities, cities),
        figure_size=(9.5, 4.0),
    )  # fmt: skip


def _draw_cities(cities: Sequence[City], figure: Any) -> None:
    parts = figure.subfigures(1, len(cities))
    for part, city in zip(parts, cities, strict=True):
        draw_maps(part, city.grid, [Panel(f"{city.name}, check-ins", city.truth)])


class Estimated(NamedTuple):
    """EMD in cells: before the first report, and after the last cycle at β = 0.5 and 1."""

    start: float
    blurred: float
    sharp: float


def judge_maps(found: Estimated) -> Verdict:
    """§7 on Figure 7: both maps fairly accurate, their error very low, the one for β = 1 better."""
    return Verdict.of(
        Claim(
            "the error is very low for both β",
            max(found.blurred, found.sharp) <= 0.2 * found.start,
            f"{found.blurred:.3f} and {found.sharp:.3f} cells, at most a fifth of the {found.start:.2f} "
            "before the first report",
        ),
        Claim(
            "the estimate is better for β = 1 than for 0.5",
            found.sharp < found.blurred,
            f"{found.sharp:.3f} against {found.blurred:.3f} cells",
        ),
        note="More β is less noise and a better estimate; one sentence of §7 says the opposite.",
    )


def _maps(setting: Setting, *, campaign: PublishedCampaign) -> Finding:
    city = campaign.city(setting)
    panels, rows = [Panel("truth", city.truth)], []
    for beta in (0.5, 1.0):
        last = re_reporting(campaign, city, beta, setting, 1)[0].rounds[-1]
        panels.append(Panel(f"β = {beta:g}, EMD {last.error_km:.2f} cells", last.distribution))
        rows.append([beta, round(last.error_km, 4), round(last.mean_distance_km, 3)])
    return Finding(
        *judge_maps(Estimated(START[city.name], rows[0][1], rows[1][1])),
        table=Table.of(["β per cell", "EMD (cells)", "mean distance (cells)"], rows),
        draw=lambda figure: draw_maps(figure, city.grid, panels),
        figure_size=(11.0, 4.2),
    )


def judge_pareto(betas: FloatArray, errors_by_city: Mapping[str, FloatArray]) -> Verdict:
    """§7 on Figure 10: the error falls sharply at first and then stabilises, in both cities alike."""
    claims = []
    for name, curve in errors_by_city.items():
        mean = curve.mean(axis=0)
        slopes = -np.diff(mean) / np.diff(betas)
        first = (mean[0] - mean[1]) / (mean[0] - mean[-1])
        claims += [
            Claim(
                f"{name}: the error falls with β",
                bool((slopes > 0).all()),
                f"{mean[0]:.3f} to {mean[-1]:.3f} cells",
            ),
            Claim(
                f"{name}: it falls sharply at first",
                bool(first >= 0.5),
                f"{first:.0%} of the fall between β = {betas[0]:g} and {betas[1]:g}",
            ),
            Claim(
                f"{name}: then it stabilises",
                bool(abs(slopes[-1]) <= 0.1 * slopes[0]),
                f"{slopes[0]:.1f} cells per unit of β at first, {slopes[-1]:.2f} at last",
            ),
        ]
    return Verdict.of(*claims)


def _pareto(setting: Setting) -> Finding:
    betas = BETAS[::2] if setting.quick else BETAS
    seeds = 1 if setting.quick else 5
    curves: dict[str, FloatArray] = {}
    for place, campaign in enumerate(CAMPAIGNS):
        city = campaign.city(setting)
        lasts = []
        for number, beta in enumerate(betas):
            setting.progress((place + number / len(betas)) / 2, f"{city.name}, β = {beta:g}")
            lasts.append(errors(re_reporting(campaign, city, beta, setting, seeds))[:, -1])
        curves[city.name] = np.array(lasts).T
    rows = [
        [beta, *(round(float(curve[:, k].mean()), 4) for curve in curves.values())]
        for k, beta in enumerate(betas)
    ]
    return Finding(
        *judge_pareto(np.array(betas), curves),
        table=Table.of(["β per cell", *(f"{name}, EMD (cells)" for name in curves)], rows),
        draw=partial(_draw_pareto, np.array(betas), curves),
    )


def _draw_pareto(betas: FloatArray, curves: dict[str, FloatArray], figure: Any) -> None:
    lines = [Curve(name, betas, curve) for name, curve in curves.items()]
    draw_curves(figure.subplots(), lines, x_label="β per cell", y_label="EMD (cells)")


def _map_experiment(campaign: PublishedCampaign, name: str) -> Experiment:
    return Experiment(
        name,
        f"Figure 7: the estimates after the last cycle, {campaign.cut.name}",
        "After convergence the estimates are fairly accurate for both β, with a very low error, and "
        "better for β = 1 than for β = 0.5.",
        partial(_maps, campaign=campaign),
        judge_maps,
    )


FIGURE_6 = Experiment(
    "figure-6",
    "Figure 6: the two cities",
    "10,078 check-ins in Paris and 123,025 in San Francisco (§3; §7 says 10,260 and 123,108), on grids of "
    "16 × 12 and 24 × 17 cells; EMD of the uniform start 2.02262 and 7.37595.",
    _cities,
    judge_cities,
)
FIGURE_7A = _map_experiment(PARIS_CAMPAIGN, "figure-7-paris")
FIGURE_7C = _map_experiment(SAN_FRANCISCO_CAMPAIGN, "figure-7-san-francisco")
FIGURE_10 = Experiment(
    "figure-10",
    "Figure 10: the error against β",
    "The error decreases sharply at first and then stabilises as β grows, in both cities.",
    _pareto,
    judge_pareto,
)


# --- Ours beside the paper at the same promise: people report once, certified ε, the dial


PROMISES = (2.0, 1.0)
DIALS = (0.9, 0.5, 0.0)
PAPER = "as published"

ROUNDS = {"Paris": 15, "San Francisco": 8}


def _same_promise(
    setting: Setting, *, campaign: PublishedCampaign, judge: Callable[[Rules], Verdict]
) -> Finding:
    city = campaign.city(setting)
    seeds = 1 if setting.quick else 5
    done: dict[tuple[float, str], list[Simulation]] = {}
    jobs = [(epsilon, seed) for epsilon in PROMISES for seed in range(seeds)]
    for number, (epsilon, seed) in enumerate(jobs):
        setting.progress(number / len(jobs), f"ε = {epsilon:g} per cell, seed {seed}")
        for name, collection in _collections(campaign, city, epsilon).items():
            run = simulate(
                collection,
                Crowd(city.people),
                rounds=ROUNDS[city.name],
                seed=setting.seed + seed,
                hindsight=False,
            )
            done.setdefault((epsilon, name), []).append(run)
    return _finding(done, judge)


def _collections(campaign: PublishedCampaign, city: City, epsilon: float) -> dict[str, Campaign]:
    ours = {
        _dial_name(dial): Campaign(city.grid, epsilon_per_km=epsilon, camouflage=dial)
        for dial in DIALS
    }
    return {PAPER: campaign.as_published(city, epsilon / 2), **ours}


def _dial_name(dial: float) -> str:
    return f"camouflage {dial:g}"


def _errors(runs: list[Simulation]) -> FloatArray:
    return np.array([[each.error_km for each in run.rounds] for run in runs])


class Once(NamedTuple):
    """A rule after the last round, people reporting once: EMD and distance in cells, leakage in bits."""

    error: float
    distance: float
    leakage: float


Rules = Mapping[tuple[float, str], Once]
"""certified ε per cell, rule → what it does"""


def judge_promise(found: Rules, *, city: str) -> Verdict:
    """Tables 2 and 3 for people who report once, and «an optimal trade-off» of leakage and service."""
    claims = []
    for epsilon in PROMISES:
        printed = PUBLISHED[city, epsilon / 2]
        line = float(printed[:, -1].mean()) + spread(printed)
        mine = found[epsilon, PAPER]
        ahead = [
            name
            for (level, name), other in found.items()
            if level == epsilon and other.leakage < mine.leakage and other.distance < mine.distance
        ]
        claims += [
            Claim(
                f"ε = {epsilon:g}: the paper's rule reaches the printed error",
                mine.error <= line,
                f"{mine.error:.3f} cells, printed {printed[:, -1].mean():.3f} where everybody reports in "
                "every cycle",
            ),
            Claim(
                f"ε = {epsilon:g}: it trades leakage for distance optimally",
                not ahead,
                f"{', '.join(ahead) or 'no setting of the dial'} leaks less over a shorter distance",
            ),
        ]
    return Verdict.of(*claims, note=_shares(found))


def _shares(found: Rules) -> str:
    """What the dial leaves of the error of the paper's rule."""
    told = [
        f"{found[epsilon, _dial_name(dial)].error / found[epsilon, PAPER].error:.2f}"
        for dial in DIALS
        for epsilon in PROMISES
    ]
    dials = ", ".join(f"{dial:g}" for dial in DIALS)
    return (
        f"Ours at the same certified ε, all rounds pooled, camouflage {dials}: the error is "
        f"{', '.join(told)} times that of the paper's rule (ε = {PROMISES[0]:g} and {PROMISES[1]:g} each)."
    )


def _finding(
    done: dict[tuple[float, str], list[Simulation]], judge: Callable[[Rules], Verdict]
) -> Finding:
    found = {}
    for key, runs in done.items():
        last = [run.rounds[-1] for run in runs]
        means = [[m.error_km, m.mean_distance_km, m.leakage_bits] for m in last]
        found[key] = Once(*np.mean(means, axis=0).tolist())
    ratios = {key: one.error / found[key[0], PAPER].error for key, one in found.items()}
    rows = [
        [f"{epsilon:g}", name, one.error, ratios[epsilon, name], one.distance, one.leakage]
        for (epsilon, name), one in found.items()
    ]
    return Finding(
        *judge(found),
        table=Table.of(
            [
                "ε per cell",
                "rule",
                "EMD (cells)",
                "share of the paper's",
                "mean distance (cells)",
                "leakage (bits)",
            ],
            rows,
        ),
        draw=partial(_draw, done),
        numbers={f"error_ratio_{epsilon:g}_{name}": r for (epsilon, name), r in ratios.items()},
    )


def _draw(done: dict[tuple[float, str], list[Simulation]], figure: Any) -> None:
    for axes, epsilon in zip(figure.subplots(1, 2), PROMISES, strict=True):
        names = [name for promise, name in done if promise == epsilon]
        curves = [
            Curve(name, np.arange(1.0, len(runs[0].rounds) + 1), _errors(runs))
            for name in names
            for runs in [done[epsilon, name]]
        ]
        title = f"ε = {epsilon:g} per cell, certified"
        draw_curves(
            axes, curves, x_label="round", y_label="EMD (cells)", title=title, y_scale="log"
        )


def _experiment(campaign: PublishedCampaign, name: str) -> Experiment:
    judge = partial(judge_promise, city=campaign.cut.name)
    return Experiment(
        name,
        f"Same promise, people report once: {campaign.cut.name}",
        "The error after the last cycle is that of Tables 2 and 3, and PRIVIC provides an optimal trade-off "
        "between leakage and quality of service. Here people report once, as its budget of 2β for each "
        "would have it, and not in every cycle.",
        partial(_same_promise, campaign=campaign, judge=judge),
        judge,
    )


PROMISE_PARIS = _experiment(PARIS_CAMPAIGN, "same-promise-paris")
PROMISE_SAN_FRANCISCO = _experiment(SAN_FRANCISCO_CAMPAIGN, "same-promise-san-francisco")
