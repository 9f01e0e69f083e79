"""Figures 6, 7 and 10: the two cities, their estimates, and the error against β."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.measure.transport import earth_movers_distance_km
from geoveil.papers.cities import City
from geoveil.papers.privic.campaign import (
    PARIS_CAMPAIGN,
    SAN_FRANCISCO_CAMPAIGN,
    Campaign,
    errors,
    re_reporting,
)
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.plot import Curve, Panel, draw_curves, draw_maps

CAMPAIGNS = (PARIS_CAMPAIGN, SAN_FRANCISCO_CAMPAIGN)
BETAS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
PEOPLE = {"Paris": 10_078, "San Francisco": 123_025}
START = {"Paris": 2.02262, "San Francisco": 7.37595}


def _cities(setting: Setting) -> Finding:
    cities = [campaign.city(setting) for campaign in CAMPAIGNS]
    rows, same = [], []
    for city in cities:
        uniform = np.full(city.grid.size, 1 / city.grid.size)
        start = earth_movers_distance_km(uniform, city.truth, city.grid)
        same += [city.people.size == PEOPLE[city.name], abs(start - START[city.name]) < 1e-3]
        rows.append([city.name, city.people.size, PEOPLE[city.name], start, START[city.name]])
    return Finding(
        agreement=Agreement.of(*same),
        conclusion="The grids found by reproduction hold the published numbers of check-ins and "
        "give the published error of the uniform start.",
        table=Table.of(
            ["city", "check-ins", "published", "EMD of uniform (cells)", "published (cells)"], rows
        ),
        draw=partial(_draw_city, cities[0]),
    )


def _draw_city(city: City, figure: Any) -> None:
    draw_maps(figure, city.grid, [Panel(f"{city.name}, check-ins", city.truth)])


def _maps(setting: Setting, *, campaign: Campaign) -> Finding:
    city = campaign.city(setting)
    panels, rows = [Panel("truth", city.truth)], []
    for beta in (0.5, 1.0):
        run = re_reporting(campaign, city, beta, setting, 1)[0]
        last = run.rounds[-1]
        panels.append(Panel(f"β = {beta:g}, EMD {last.error_km:.2f} cells", last.distribution))
        rows.append([beta, round(last.error_km, 4), round(last.mean_distance_km, 3)])
    sharper = rows[1][1] < rows[0][1]
    return Finding(
        agreement=Agreement.YES if sharper else Agreement.NO,
        conclusion=f"The estimate is closer to the truth for β = 1 ({rows[1][1]} cells) than for "
        f"β = 0.5 ({rows[0][1]} cells): more β is less noise (one sentence of §7 says the opposite).",
        table=Table.of(["β per cell", "EMD (cells)", "mean distance (cells)"], rows),
        draw=lambda figure: draw_maps(figure, city.grid, panels),
        figure_size=(11.0, 4.2),
    )


def _pareto(setting: Setting) -> Finding:
    betas = BETAS[1::2] if setting.quick else BETAS
    seeds = 1 if setting.quick else 5
    curves: dict[str, FloatArray] = {}
    for place, campaign in enumerate(CAMPAIGNS):
        city = campaign.city(setting)
        lasts = []
        for number, beta in enumerate(betas):
            setting.progress((place + number / len(betas)) / 2, f"{city.name}, β = {beta:g}")
            lasts.append(errors(re_reporting(campaign, city, beta, setting, seeds))[:, -1])
        curves[city.name] = np.array(lasts).T
    falling = [bool((np.diff(curve.mean(axis=0)) < 0).all()) for curve in curves.values()]
    rows = [
        [beta, *(round(float(curve[:, k].mean()), 4) for curve in curves.values())]
        for k, beta in enumerate(betas)
    ]
    return Finding(
        agreement=Agreement.of(*falling),
        conclusion=f"The error falls with β: from {rows[0][1]} to {rows[-1][1]} cells in Paris and "
        f"from {rows[0][2]} to {rows[-1][2]} in San Francisco.",
        table=Table.of(["β per cell", *(f"{name}, EMD (cells)" for name in curves)], rows),
        draw=partial(_draw_pareto, np.array(betas), curves),
    )


def _draw_pareto(betas: FloatArray, curves: dict[str, FloatArray], figure: Any) -> None:
    lines = [Curve(name, betas, curve) for name, curve in curves.items()]
    draw_curves(figure.subplots(), lines, x_label="β per cell", y_label="EMD (cells)")


FIGURE_6 = Experiment(
    "figure-6",
    "Figure 6: the two cities",
    "10,078 check-ins in Paris and 123,025 in San Francisco.",
    _cities,
)
FIGURE_7A = Experiment(
    "figure-7-paris",
    "Figure 7: the estimates after the last cycle, Paris",
    "After convergence the estimated map looks like the true one, for both β.",
    partial(_maps, campaign=PARIS_CAMPAIGN),
)
FIGURE_7C = Experiment(
    "figure-7-san-francisco",
    "Figure 7: the estimates after the last cycle, San Francisco",
    "After convergence the estimated map looks like the true one, for both β.",
    partial(_maps, campaign=SAN_FRANCISCO_CAMPAIGN),
)
FIGURE_10 = Experiment(
    "figure-10",
    "Figure 10: the error against β",
    "The error decreases sharply at first and then settles as β grows, in both cities.",
    _pareto,
)
