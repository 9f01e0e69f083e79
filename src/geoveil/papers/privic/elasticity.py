"""Figures 1 and 2: a planted island, and where its reports go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.channel.base import Channel
from geoveil.collect import blahut_arimoto, elastic
from geoveil.measure.elasticity import mean_posterior, plant_island
from geoveil.papers.cities import City
from geoveil.papers.privic.campaign import DESIGN_UPDATES, PARIS_CAMPAIGN
from geoveil.papers.privic.laplace import inside, wider_laplace
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot import Panel, draw_maps

ISLAND, CROWD = (4, 3), (7, 7)
"""Rows from the south and columns from the west: (6, 3) and (3, 7) from the north in the authors' code
(github.com/blitzwas/PRIVIC, indices 93 and 52), which the paper calls A and B."""
SHORE_CELLS = 2.9
"""Everybody so near is taken off: five by five cells around A."""
NEAR_CELLS = 2.0
LEVELS = (0.4, 1.2, 1.6, 2.0)
"""ε = 2β per cell, the rows of Figure 2."""
ELASTIC, LAPLACE, DIAL = "Blahut–Arimoto", "Laplace", "camouflage 0.5"


def islands(city: City) -> dict[str, FloatArray]:
    """The two priors of the authors: as the text says, and as their code has it.

    The text moves everybody around A onto A. The code leaves one in a hundred there and moves the
    others, as here, to one cell in the north-west and to five in the northern crowd.
    """
    cell = int(city.grid.cell_at(*ISLAND))
    text = plant_island(city.grid, city.truth, cell=cell, radius_km=SHORE_CELLS)
    code = text.copy()
    code[cell] = 0.01
    code[city.grid.cell_at(8, 3)] += 0.01
    for column in range(6, 11):
        code[city.grid.cell_at(9, column)] += (text[cell] - 0.02) / 5
    return {f"{text[cell]:.1%} on A": text, f"{code[cell]:.1%} on A": code}


def _near(city: City, place: tuple[int, int], radius: float) -> Any:
    return city.grid.distances_from_km(int(city.grid.cell_at(*place))) <= radius


class Planted(NamedTuple):
    """What Figure 1 shows: shares of the people of Paris, and where A lies."""

    around_a: float
    """In the five by five cells around A, before they are moved."""
    left_around_a: float
    """The same without A, afterwards; the larger of the two priors."""
    at_b: float
    at_busiest: float
    around_b: float
    """Within two cells of B, without B."""
    even_a: float
    even_b: float
    """The shares those cells would have if all cells had the same."""
    south_west: bool


def judge_island(planted: Planted) -> Verdict:
    """§3.3: A alone in a quiet south-west, B the centre of a crowd."""
    return Verdict.of(
        Claim(
            "A lies in a quiet area of the south-west",
            planted.south_west and planted.around_a < planted.even_a,
            f"{planted.around_a:.1%} of the people in 25 cells, an even share would be {planted.even_a:.1%}",
        ),
        Claim(
            "nobody is left around A",
            planted.left_around_a == 0,
            f"{planted.left_around_a:.1%}",
        ),
        Claim(
            "B has many people",
            planted.at_b >= planted.at_busiest,
            f"{planted.at_b:.1%}; the busiest cell has {planted.at_busiest:.1%}",
        ),
        Claim(
            "B has many people around it",
            planted.around_b > planted.even_b,
            f"{planted.around_b:.1%} within two cells, an even share would be {planted.even_b:.1%}",
        ),
    )


def _planted(setting: Setting) -> Finding:
    city = PARIS_CAMPAIGN.city(setting)
    priors = islands(city)
    block, near_b = _near(city, ISLAND, SHORE_CELLS), _near(city, CROWD, NEAR_CELLS)
    a, b = (int(city.grid.cell_at(*place)) for place in (ISLAND, CROWD))
    planted = Planted(
        float(city.truth[block].sum()),
        float(max(prior[block].sum() - prior[a] for prior in priors.values())),
        float(city.truth[b]),
        float(city.truth.max()),
        float(city.truth[near_b].sum() - city.truth[b]),
        float(block.mean()),
        float((near_b.sum() - 1) / city.grid.size),
        ISLAND[0] < (city.grid.rows - 1) / 2 and ISLAND[1] < (city.grid.columns - 1) / 2,
    )
    rows = [
        [name, *(round(float(prior[cell]), 4) for cell in (a, b))] for name, prior in priors.items()
    ]
    panels = [Panel(name, prior) for name, prior in priors.items()]
    return Finding(
        *judge_island(planted),
        table=Table.of(["prior", "share of A", "share of B"], rows),
        draw=lambda figure: draw_maps(figure, city.grid, panels),
        figure_size=(9.0, 3.8),
    )


class Hidden(NamedTuple):
    """One prior: Blahut–Arimoto (first) and Laplace, one column a level."""

    likeliest: FloatArray
    """Cells from A to its likeliest report."""
    deserted: FloatArray
    """P(report in the deserted cells around A, or A itself)."""
    from_crowd: float
    """Cells from Blahut–Arimoto's likeliest report at the lowest ε to the middle of the largest crowd."""
    from_b: FloatArray
    """Cells from B to its likeliest report."""


def judge_reports(found: Mapping[str, Hidden]) -> Verdict:
    """§3.3 on Figure 2, for each prior."""
    at = LEVELS.index(1.6)
    claims = []
    for prior, one in found.items():
        away = ", ".join(f"{cells:.1f}" for cells in one.likeliest[0])
        claims += [
            Claim(
                f"{prior}: at ε = 0.4 it is most probably reported around the most crowded region",
                one.from_crowd <= NEAR_CELLS,
                f"{one.from_crowd:.1f} cells from its middle",
            ),
            Claim(
                f"{prior}: as ε grows the likeliest report moves closer",
                bool((np.diff(one.likeliest[0]) <= 0).all() and one.likeliest[0, -1] < one.likeliest[0, 0]),
                f"{away} cells from A",
            ),
            Claim(
                f"{prior}: to crowded places, never to A itself",
                bool((one.likeliest[0] > 0).all()),
                f"A itself at {int((one.likeliest[0] == 0).sum())} of {len(LEVELS)} levels",
            ),
            Claim(
                f"{prior}: Laplace always reports it around itself",
                bool((one.likeliest[1] == 0).all()),
                f"A is likeliest at {int((one.likeliest[1] == 0).sum())} of {len(LEVELS)} levels",
            ),
            Claim(
                f"{prior}: at ε = 1.6 almost all of Laplace's reports lie in the deserted area",
                bool(one.deserted[1, at] >= 0.9),
                f"{one.deserted[1, at]:.0%}",
            ),
            Claim(
                f"{prior}: at ε = 1.6 Blahut–Arimoto's lie in the crowds nearby",
                bool(one.deserted[0, at] < 0.5),
                f"{one.deserted[0, at]:.0%} stay in the deserted area or on A",
            ),
            Claim(
                f"{prior}: both report B around B",
                bool((one.from_b <= NEAR_CELLS).all()),
                f"likeliest report at most {one.from_b.max():.1f} cells away",
            ),
        ]  # fmt: skip
    return Verdict.of(
        *claims,
        note="The larger share on A is the text's, the smaller that of the authors' code.",
    )


def _mechanisms(city: City, prior: FloatArray, epsilon: float) -> dict[str, Channel]:
    """The paper's two at ε = 2β, and ours, certified."""
    return {
        ELASTIC: blahut_arimoto(city.grid, prior, beta_per_km=epsilon / 2, stop=DESIGN_UPDATES),
        LAPLACE: wider_laplace(city, epsilon),
        DIAL: elastic(city.grid, prior, epsilon_per_km=epsilon, camouflage=0.5),
    }


def _reports(setting: Setting) -> Finding:
    city = PARIS_CAMPAIGN.city(setting)
    rows: list[list[Any]] = []
    panels, found = [], {}
    for name, prior in islands(city).items():
        rows += [[name, *row] for row in _rows(city, prior)]
        found[name] = _hidden(city, prior, [row[1:] for row in rows if row[0] == name])
        for mechanism in (ELASTIC, LAPLACE):
            channel = _mechanisms(city, prior, 1.6)[mechanism]
            reports = inside(city, channel, int(city.grid.cell_at(*ISLAND)))
            panels.append(Panel(f"{mechanism}, {name}", reports))
    return Finding(
        *judge_reports(found),
        table=Table.of(
            ["prior", "ε per cell", "mechanism", "A: cells to the likeliest report",
             "A: P(in the deserted area)", "A: attacker's mean posterior",
             "B: cells to the likeliest report", "B: P(within 2 cells)"],
            rows,
        ),
        draw=lambda figure: draw_maps(
            figure, city.grid, panels, columns=2, label="probability of the report from A, ε = 1.6"
        ),
        figure_size=(9.0, 6.4),
    )  # fmt: skip


def _rows(city: City, prior: FloatArray) -> list[list[Any]]:
    """ε, mechanism, and for A and B where their reports go."""
    a, b = (int(city.grid.cell_at(*place)) for place in (ISLAND, CROWD))
    block, near_b = _near(city, ISLAND, SHORE_CELLS), _near(city, CROWD, NEAR_CELLS)
    rows = []
    for epsilon in LEVELS:
        for name, channel in _mechanisms(city, prior, epsilon).items():
            from_a, from_b = inside(city, channel, a), inside(city, channel, b)
            rows.append([
                epsilon, name, round(_cells(city, a, from_a), 2), round(float(from_a[block].sum()), 3),
                round(mean_posterior(channel, a, prior), 3), round(_cells(city, b, from_b), 2),
                round(float(from_b[near_b].sum()), 3),
            ])  # fmt: skip
    return rows


def _cells(city: City, cell: int, reports: FloatArray) -> float:
    """From a cell to its likeliest report."""
    return float(city.grid.distances_from_km(cell)[int(reports.argmax())])


def _hidden(city: City, prior: FloatArray, rows: list[list[Any]]) -> Hidden:
    def column(number: int) -> FloatArray:
        return np.array([[r[number] for r in rows if r[1] == name] for name in (ELASTIC, LAPLACE)])

    crowds = [
        prior[city.grid.distances_from_km(x) <= NEAR_CELLS].sum() for x in range(city.grid.size)
    ]
    lowest = _mechanisms(city, prior, LEVELS[0])[ELASTIC].row(int(city.grid.cell_at(*ISLAND)))
    middle = int(np.argmax(crowds))
    return Hidden(column(2), column(3), _cells(city, middle, lowest), column(5))


FIGURE_1 = Experiment(
    "figure-1",
    "Figure 1: a vulnerable and a strong place in Paris",
    "A, in a low-density area of the south-west, is alone once the people around it are moved; B, in the "
    "centre, has many people and a highly populated surrounding.",
    _planted,
    judge_island,
)
FIGURE_2 = Experiment(
    "figure-2",
    "Figure 2: where the reports of A and B go",
    "Blahut–Arimoto reports A in a crowd, the nearer the larger ε, and at ε = 1.6 in the crowds nearby; "
    "Laplace reports it around itself, at ε = 1.6 almost completely in a deserted area; B is reported "
    "around itself by both.",
    _reports,
    judge_reports,
)
