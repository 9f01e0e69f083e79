"""Figures 6, 7 and 10: the two cities, their estimates, and the error against β."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.estimate.objective import uniform
from geoveil.measure.transport import earth_movers_distance_km
from geoveil.papers.cities import City
from geoveil.papers.privic.campaign import (
    PARIS_CAMPAIGN,
    SAN_FRANCISCO_CAMPAIGN,
    Campaign,
    errors,
    re_reporting,
)
from geoveil.papers.privic.published import START
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


def _maps(setting: Setting, *, campaign: Campaign) -> Finding:
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


def _map_experiment(campaign: Campaign, name: str) -> Experiment:
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
