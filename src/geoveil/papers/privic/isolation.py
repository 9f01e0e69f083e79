"""PRIVIC, Figs 1 to 3: isolated places, and Laplace noise beside Blahut–Arimoto."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign import blahut_arimoto, elastic
from geoveil.channel.channel import Channel
from geoveil.channel.composed import DenseChannel
from geoveil.estimate import IterativeBayesianUpdate, Steps
from geoveil.measure.distance import earth_movers_distance_km
from geoveil.measure.elasticity import mean_posterior, plant_island
from geoveil.measure.information import mutual_information_bits
from geoveil.mechanism import PlanarLaplace
from geoveil.papers.data import City
from geoveil.papers.privic.published_tables import (
    DESIGN_UPDATES,
    PARIS_CAMPAIGN,
    SAN_FRANCISCO_CAMPAIGN,
    PublishedCampaign,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot import Curve, Panel, draw_curves, draw_maps
from geoveil.randomness import seeded
from geoveil.space.grid import Grid

BETAS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 5.0)
_QUICK = (0.2, 0.6, 1.0, 5.0)
_MARGIN = 5
"""The paper lets Laplace report up to five cells beyond the map."""
_UPDATE = IterativeBayesianUpdate(stop=Steps(10))


def wider_laplace(city: City, epsilon: float) -> Channel:
    """Planar Laplace whose reports may lie five cells beyond the city on every side."""
    rows, columns = (side + 2 * _MARGIN for side in city.grid.shape)
    wide = PlanarLaplace(Grid(rows=rows, columns=columns, cell_km=1.0), epsilon_per_km=epsilon)
    matrix = np.stack([wide.row(int(cell)) for cell in _inner(city)])
    return DenseChannel(city.grid, matrix)


def inside(city: City, channel: Channel, cell: int) -> FloatArray:
    """The row of a cell, reports in the city only."""
    row = channel.row(cell)
    return row if row.size == city.grid.size else row[_inner(city)]


def _inner(city: City) -> IntArray:
    """The cells of the city among those of the wider grid."""
    row, column = city.grid.row_column(np.arange(city.grid.size))
    return (row + _MARGIN) * (city.grid.shape[1] + 2 * _MARGIN) + column + _MARGIN


def _error(city: City, channel: Channel, seed: int) -> float:
    tally = channel.tally(channel.sample(city.people, randomness=seeded(seed)))
    return earth_movers_distance_km(_UPDATE.fit(tally).distribution, city.truth, city.grid)


class Utility(NamedTuple):
    """EMD in cells by β: Blahut–Arimoto (first) and Laplace, one row a seed."""

    betas: FloatArray
    elastic: FloatArray
    laplace: FloatArray


def judge_utility(found: Utility, *, above: float, most: float) -> Verdict:
    """§3.4: Blahut–Arimoto significantly better for above < β ≤ most; both errors go to zero."""
    private = (found.betas > above) & (found.betas <= most)
    clearly = found.elastic.max(axis=0) < found.laplace.min(axis=0)
    means = np.array([found.elastic.mean(axis=0), found.laplace.mean(axis=0)])
    first = int(np.flatnonzero(private)[0])
    return Verdict.of(
        Claim(
            f"Blahut–Arimoto estimates significantly better for {above:g} < β ≤ {most:g}",
            bool(clearly[private].all()),
            f"in every run at {int(clearly[private].sum())} of {int(private.sum())} levels; at β = "
            f"{found.betas[first]:g} its error is {means[0, first]:.2f} cells and Laplace's "
            f"{means[1, first]:.2f}",
        ),
        Claim(
            "both errors go to zero as β grows",
            bool((means[:, -1] < 0.05 * means[:, 0]).all()),
            f"{means[0, 0]:.2f} to {means[0, -1]:.3f} cells and {means[1, 0]:.2f} to {means[1, -1]:.3f}",
        ),
    )


def _statistical_utility(
    setting: Setting, *, campaign: PublishedCampaign, judge: Callable[..., Verdict]
) -> Finding:
    city = campaign.city(setting)
    betas = _QUICK if setting.quick else BETAS
    seeds = 1 if setting.quick else 5
    rows, curves = [], np.zeros((2, seeds, len(betas)))
    for number, beta in enumerate(betas):
        setting.progress(number / len(betas), f"ε = {2 * beta:g} per cell")
        elastic = blahut_arimoto(city.grid, city.truth, beta_per_km=beta, stop=DESIGN_UPDATES)
        tight = elastic.certified_epsilon_per_km
        laplace = wider_laplace(city, tight)
        for which, channel in enumerate((elastic, laplace)):
            curves[which, :, number] = [
                _error(city, channel, setting.seed + seed) for seed in range(seeds)
            ]
        bits = [mutual_information_bits(each, city.truth) for each in (elastic, laplace)]
        means = curves[:, :, number].mean(axis=1)
        rows.append([2 * beta, round(tight, 3), *means.round(4), *np.round(bits, 3)])
    return Finding(
        *judge(Utility(np.array(betas), *curves)),
        table=Table.of(
            [
                "ε = 2β (per cell)",
                "certified ε (per cell)",
                "EMD, Blahut–Arimoto (cells)",
                "EMD, Laplace (cells)",
                "leakage, Blahut–Arimoto (bits)",
                "leakage, Laplace (bits)",
            ],
            rows,
        ),
        draw=partial(_draw, np.array([row[1] for row in rows]), curves),
    )


def _draw(tight: FloatArray, curves: FloatArray, figure: Any) -> None:
    names = ("Blahut–Arimoto", "Laplace")
    draw_curves(
        figure.subplots(),
        [Curve(name, tight, curve) for name, curve in zip(names, curves, strict=True)],
        x_label="certified ε per cell",
        y_label="EMD (cells)",
        y_scale="log",
    )


def _experiment(
    letter: str, campaign: PublishedCampaign, *, above: float, most: float
) -> Experiment:
    judge = partial(judge_utility, above=above, most=most)
    return Experiment(
        f"figure-3{letter}",
        f"Figure 3{letter}: Blahut–Arimoto against Laplace, {campaign.cut.name}",
        f"At the same tight ε the estimate under Blahut–Arimoto is significantly better than under "
        f"Laplace at high privacy, for β in ({above:g}, {most:g}] in {campaign.cut.name}, and both errors "
        "converge to 0 as β grows.",
        partial(_statistical_utility, campaign=campaign, judge=judge),
        judge,
    )


FIGURE_3A = _experiment("a", PARIS_CAMPAIGN, above=0.4, most=1.4)
FIGURE_3B = _experiment("b", SAN_FRANCISCO_CAMPAIGN, above=0.0, most=1.0)
"""The paper's interval for San Francisco is (0, 1), «ε up to 2»."""


# --- Figures 1 and 2: a planted island, and where its reports go


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
