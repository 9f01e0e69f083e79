"""Figures 1 and 2: a planted island, and where its reports go."""

from __future__ import annotations

from functools import partial
from typing import Any

from geoveil.arrays import FloatArray
from geoveil.channel.base import Channel
from geoveil.collect import blahut_arimoto, elastic
from geoveil.measure.elasticity import elasticity, isolation_km, most_crowded_cell, plant_island
from geoveil.mechanism import PlanarLaplace
from geoveil.papers.cities import City
from geoveil.papers.privic.campaign import PARIS_CAMPAIGN
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.plot import Panel, draw_maps

ISLAND = (1, 1)
"""Row and column, in the south-west; the paper gives no coordinates."""
SHORE_CELLS = 2.9
"""Everybody so near is moved onto the island."""
NEAR_CELLS = 2.0
LEVELS = (0.4, 0.8, 1.2, 1.6, 2.0)


def _island(city: City) -> tuple[int, FloatArray]:
    cell = int(city.grid.cell_at(*ISLAND))
    return cell, plant_island(city.grid, city.truth, cell=cell, radius_km=SHORE_CELLS)


def _planted(setting: Setting) -> Finding:
    city = PARIS_CAMPAIGN.city(setting)
    cell, prior = _island(city)
    isolation = isolation_km(city.grid, prior)
    crowd = most_crowded_cell(city.grid, prior)
    rows = [
        [name, each, round(float(prior[each]), 4), round(float(isolation[each]), 2)]
        for name, each in (("A, vulnerable", cell), ("B, strong", crowd))
    ]
    return Finding(
        agreement=Agreement.YES if isolation[cell] > isolation[crowd] else Agreement.NO,
        conclusion=f"From A one must go {isolation[cell]:.1f} cells to meet 5 % of the others, from B "
        f"{isolation[crowd]:.1f}.",
        table=Table.of(["place", "cell", "share", "cells to a crowd"], rows),
        draw=lambda figure: draw_maps(figure, city.grid, [Panel("Paris with an island", prior)]),
    )


def _mechanisms(city: City, prior: FloatArray, epsilon: float) -> dict[str, Channel]:
    """All at the same certified ε; plain Blahut–Arimoto as well at the paper's ε = 2β."""
    dial = {
        f"camouflage {k:g}": elastic(city.grid, prior, epsilon_per_km=epsilon, camouflage=k)
        for k in (0.0, 0.5, 0.9, 1.0)
    }
    laplace = PlanarLaplace(city.grid, epsilon_per_km=epsilon)
    published = blahut_arimoto(city.grid, prior, beta_per_km=epsilon / 2)
    return {"Laplace": laplace, "Blahut–Arimoto at ε = 2β": published, **dial}


def _elastic(setting: Setting) -> Finding:
    city = PARIS_CAMPAIGN.city(setting)
    cell, prior = _island(city)
    levels = LEVELS[1::2] if setting.quick else LEVELS
    rows, found = [], {}
    for number, epsilon in enumerate(levels):
        setting.progress(number / len(levels), f"ε = {epsilon:g} per cell")
        for name, mechanism in _mechanisms(city, prior, epsilon).items():
            both = elasticity(mechanism, prior, radius_km=NEAR_CELLS, isolated=cell)
            found[epsilon, name] = both
            rows.append([
                epsilon, name, round(both.isolated.within, 3), round(both.isolated.mean_posterior, 3),
                round(both.crowded.within, 3), round(both.crowded.mean_posterior, 3),
            ])  # fmt: skip
    hidden = [
        found[e, "Blahut–Arimoto at ε = 2β"].isolated.within < found[e, "Laplace"].isolated.within
        for e in levels
    ]
    shown = found[0.8, "Laplace"], found[0.8, "camouflage 0.5"], found[0.8, "camouflage 1"]
    posterior = [each.isolated.mean_posterior for each in shown]
    return Finding(
        agreement=Agreement.of(*hidden),
        conclusion=(
            f"At {sum(hidden)} of {len(levels)} levels somebody on the island is reported near it less "
            "often than under Laplace; with little noise the island is its own nearest crowd. At a "
            f"certified ε of 0.8 the attacker's mean posterior on the island is {posterior[0]:.2f} "
            f"under Laplace, {posterior[1]:.2f} at camouflage 0.5 and {posterior[2]:.2f} at 1; in the "
            "crowd the mechanisms hardly differ."
        ),
        table=Table.of(
            ["ε per cell", "mechanism", "A: P(report within 2 cells)", "A: attacker's mean posterior",
             "B: P(report within 2 cells)", "B: attacker's mean posterior"],
            rows,
        ),
        draw=partial(_draw, city, [each.isolated.reports for each in shown]),
        figure_size=(11.0, 4.0),
    )  # fmt: skip


def _draw(city: City, reports: list[FloatArray], figure: Any) -> None:
    titles = ("Laplace", "camouflage 0.5", "camouflage 1")
    panels = [Panel(f"{t}, ε = 0.8 certified", r) for t, r in zip(titles, reports, strict=True)]
    draw_maps(figure, city.grid, panels, label="probability of the report, from the island")


FIGURE_1 = Experiment(
    "figure-1",
    "Figure 1: a vulnerable and a strong place in Paris",
    "A planted island A is isolated, B lies in a crowd.",
    _planted,
)
FIGURE_2 = Experiment(
    "figure-2",
    "Figure 2: where the reports of the island go",
    "Blahut–Arimoto reports an isolated place in the nearest crowd, Laplace around itself; a crowded "
    "place is treated alike.",
    _elastic,
)
