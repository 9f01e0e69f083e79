"""PRIVIC, Figs 1 to 3: isolated places, and Laplace noise beside Blahut–Arimoto."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.errors import percent
from geoveil.measure import mean_posterior, plant_island
from geoveil.papers import privic_cycles as cycles
from geoveil.papers import report
from geoveil.papers.data import City
from geoveil.papers.report import Claim, Experiment, Measured, Setting, Verdict, experiment
from geoveil.plot import Curve, Panel, draw_maps

_MARGIN = 5
"""The paper lets Laplace report up to five cells beyond the map."""


def wider_laplace(city: City, epsilon: float) -> gv.Channel:
    """Planar Laplace whose reports may lie five cells beyond the city on every side."""
    rows, columns = (side + 2 * _MARGIN for side in city.grid.shape)
    wide = gv.PlanarLaplace(
        gv.Grid(rows=rows, columns=columns, cell_km=1.0), epsilon_per_km=epsilon
    )
    return gv.DenseChannel(city.grid, np.stack([wide.row(int(cell)) for cell in _inner(city)]))


def inside(city: City, channel: gv.Channel, cell: int) -> FloatArray:
    """The row of a cell, reports in the city only."""
    row = channel.row(cell)
    return row if row.size == city.grid.size else row[_inner(city)]


def _inner(city: City) -> IntArray:
    """The cells of the city among those of the wider grid."""
    row, column = city.grid.row_column(np.arange(city.grid.size))
    return (row + _MARGIN) * (city.grid.shape[1] + 2 * _MARGIN) + column + _MARGIN


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
    return {f"{percent(prior[cell], 1)} on A": prior for prior in (text, code)}


def _places(city: City) -> tuple[int, int, Any, Any]:
    """The cells of A and B, the block around A and the cells near B."""
    a, b = (int(city.grid.cell_at(*place)) for place in (ISLAND, CROWD))
    distances = city.grid.distances_from_km
    return a, b, distances(a) <= SHORE_CELLS, distances(b) <= NEAR_CELLS


def judge_island(
    around_a: float, left_around_a: float, at_b: float, at_busiest: float, around_b: float,
    even_a: float, even_b: float, south_west: bool,
) -> Verdict:  # fmt: skip
    """§3.3 on Figure 1: A alone in a quiet south-west, B the centre of a crowd.

    Shares of the people of Paris: in the five by five cells around A before they are moved; the same
    without A afterwards, the larger of the two priors; at B; in the busiest cell; within two cells of B,
    without B; and the shares those cells would have if all cells had the same.
    """
    return Verdict.of(
        Claim("A lies in a quiet area of the south-west", south_west and around_a < even_a,
              f"{percent(around_a, 1)} of the people in 25 cells, an even share is {percent(even_a, 1)}"),
        Claim("nobody is left around A", left_around_a == 0, percent(left_around_a, 1)),
        Claim("B has many people", at_b >= at_busiest,
              f"{percent(at_b, 1)}; the busiest cell has {percent(at_busiest, 1)}"),
        Claim("B has many people around it", around_b > even_b,
              f"{percent(around_b, 1)} within two cells, an even share is {percent(even_b, 1)}"),
    )  # fmt: skip


@experiment("Figure 1: a vulnerable and a strong place in Paris", judge_island)
def figure_1(setting: Setting) -> Measured:
    """A, in a low-density area of the south-west, is alone once the people around it are moved; B, in the
    centre, has many people and a highly populated surrounding.
    """
    city = cycles.PARIS_CAMPAIGN.city(setting)
    priors, truth = islands(city), city.truth
    a, b, block, near_b = _places(city)
    middle = (np.array(city.grid.shape) - 1) / 2
    rest = max(prior[block].sum() - prior[a] for prior in priors.values())
    even = block.mean(), (near_b.sum() - 1) / city.grid.size
    shares = truth[block].sum(), rest, truth[b], truth.max(), truth[near_b].sum() - truth[b], *even
    figures = (*shares, (np.array(ISLAND) < middle).all())
    rows = [[name, round(float(p[a]), 4), round(float(p[b]), 4)] for name, p in priors.items()]
    draw = partial(draw_maps, space=city.grid, panels=[Panel(*item) for item in priors.items()])
    return Measured(figures, "prior | share of A | share of B", rows, draw, figure_size=(9.0, 3.8))


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


def judge_reports(reports: Mapping[str, Hidden]) -> Verdict:
    """§3.3 on Figure 2, for each prior."""
    at = LEVELS.index(1.6)
    claims = []
    for prior, ((own, laplace), deserted, from_crowd, from_b) in reports.items():
        claims += [
            Claim(f"{prior}: at ε = 0.4 it is most probably reported around the most crowded region",
                  from_crowd <= NEAR_CELLS, f"{from_crowd:.1f} cells from its middle"),
            Claim(f"{prior}: as ε grows the likeliest report moves closer",
                  (np.diff(own) <= 0).all() and own[-1] < own[0],
                  f"{report.listed(own, '.1f')} cells from A"),
            Claim(f"{prior}: to crowded places, never to A itself", (own > 0).all(),
                  f"A itself at {report.share(own == 0)} levels"),
            Claim(f"{prior}: Laplace always reports it around itself", (laplace == 0).all(),
                  f"A is likeliest at {report.share(laplace == 0)} levels"),
            Claim(f"{prior}: at ε = 1.6 almost all of Laplace's reports lie in the deserted area",
                  deserted[1, at] >= 0.9, percent(deserted[1, at], 0)),
            Claim(f"{prior}: at ε = 1.6 Blahut–Arimoto's lie in the crowds nearby", deserted[0, at] < 0.5,
                  f"{percent(deserted[0, at], 0)} stay in the deserted area or on A"),
            Claim(f"{prior}: both report B around B", (from_b <= NEAR_CELLS).all(),
                  f"likeliest report at most {from_b.max():.1f} cells away"),
        ]  # fmt: skip
    note = "The larger share on A is the text's, the smaller that of the authors' code."
    return Verdict.of(*claims, note=note)


@experiment("Figure 2: where the reports of A and B go", judge_reports)
def figure_2(setting: Setting) -> Measured:
    """Blahut–Arimoto reports A in a crowd, the nearer the larger ε, and at ε = 1.6 in the crowds nearby;
    Laplace reports it around itself, at ε = 1.6 almost completely in a deserted area; B is reported
    around itself by both.
    """
    city = cycles.PARIS_CAMPAIGN.city(setting)
    distances = city.grid.distances_km()
    a, b, block, near_b = _places(city)
    rows: list[list[Any]] = []
    panels, hidden = [], {}
    for prior_name, prior in islands(city).items():
        own: dict[str, list[list[float]]] = {ELASTIC: [], LAPLACE: [], DIAL: []}
        for epsilon in LEVELS:
            dial = gv.elastic(
                city.grid, prior, epsilon_per_km=epsilon, camouflage=0.5, between="cells"
            )
            design = cycles.designed(city, prior, epsilon / 2)
            mechanisms = {ELASTIC: design, LAPLACE: wider_laplace(city, epsilon), DIAL: dial}
            for name, channel in mechanisms.items():
                from_a, from_b = inside(city, channel, a), inside(city, channel, b)
                own[name].append([
                    round(distances[a, from_a.argmax()], 2), round(float(from_a[block].sum()), 3),
                    round(mean_posterior(channel, a, prior), 3),
                    round(distances[b, from_b.argmax()], 2), round(float(from_b[near_b].sum()), 3),
                ])  # fmt: skip
                rows.append([prior_name, epsilon, name, *own[name][-1]])
                if epsilon == 1.6 and name != DIAL:
                    panels.append(Panel(f"{name}, {prior_name}", from_a))
            if epsilon == LEVELS[0]:
                likeliest = int(design.row(a).argmax())
        crowded = int(((distances <= NEAR_CELLS) @ prior).argmax())
        to_a, deserted, _, to_b, _ = np.moveaxis(np.array([own[ELASTIC], own[LAPLACE]]), -1, 0)
        hidden[prior_name] = Hidden(to_a, deserted, float(distances[crowded, likeliest]), to_b)
    label = "probability of the report from A, ε = 1.6"
    columns = """prior | ε per cell | mechanism | A: cells to the likeliest report |
        A: P(in the deserted area) | A: attacker's mean posterior | B: cells to the likeliest report |
        B: P(within 2 cells)"""
    draw = partial(draw_maps, space=city.grid, panels=panels, columns=2, label=label)
    return Measured((hidden,), columns, rows, draw, figure_size=(9.0, 6.4))


BETAS, QUICK_BETAS = (0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 5.0), (0.2, 0.6, 1.0, 5.0)


def judge_utility(
    betas: FloatArray, elastic: FloatArray, laplace: FloatArray, *, above: float, most: float
) -> Verdict:
    """§3.4: Blahut–Arimoto significantly better for above < β ≤ most; both errors go to zero.

    EMD in cells under both, (seeds, betas).
    """
    private = (betas > above) & (betas <= most)
    clearly = (elastic.max(axis=0) < laplace.min(axis=0))[private]
    means = np.array([elastic.mean(axis=0), laplace.mean(axis=0)])
    first = int(np.flatnonzero(private)[0])
    return Verdict.of(
        Claim(f"Blahut–Arimoto estimates significantly better for {above:g} < β ≤ {most:g}", clearly.all(),
              f"in every run at {report.share(clearly)} levels; at β = {betas[first]:g} its error is "
              f"{means[0, first]:.2f} cells and Laplace's {means[1, first]:.2f}"),
        Claim("both errors go to zero as β grows", (means[:, -1] < 0.05 * means[:, 0]).all(),
              f"{means[0, 0]:.2f} to {means[0, -1]:.3f} cells and {means[1, 0]:.2f} to {means[1, -1]:.3f}"),
    )  # fmt: skip


def _utility(setting: Setting, *, campaign: cycles.PublishedCampaign) -> Measured:
    city, update = campaign.city(setting), gv.IterativeBayesianUpdate(stop=gv.Steps(10))
    betas, seeds = setting.pick(BETAS, QUICK_BETAS), setting.pick(5, 1)
    rows, errors = [], np.zeros((2, seeds, len(betas)))
    for number, beta in enumerate(betas):
        setting.progress(number / len(betas), f"ε = {2 * beta:g} per cell")
        design = cycles.designed(city, city.truth, beta)
        tight = design.certified_epsilon_per_km
        channels = design, wider_laplace(city, tight)
        for which, seed in product(range(2), range(seeds)):
            reports = channels[which].sample(city.people, randomness=gv.seeded(setting.seed + seed))
            estimate = update.fit(channels[which].tally(reports)).distribution
            errors[which, seed, number] = city.error_km(estimate)
        bits = [gv.mutual_information_bits(channel, city.truth) for channel in channels]
        means = errors[:, :, number].mean(axis=1)
        rows.append([2 * beta, round(tight, 3), *means.round(4), *np.round(bits, 3)])
    levels = np.array([row[1] for row in rows])
    curves = [Curve(ELASTIC, levels, errors[0]), Curve(LAPLACE, levels, errors[1])]
    columns = """ε = 2β (per cell) | certified ε (per cell) | EMD, Blahut–Arimoto (cells) |
        EMD, Laplace (cells) | leakage, Blahut–Arimoto (bits) | leakage, Laplace (bits)"""
    draw = report.curves({"": curves}, "certified ε per cell", "EMD (cells)", y_scale="log")
    return Measured((np.array(betas), *errors), columns, rows, draw)


FIGURE_3 = tuple(
    Experiment(
        f"figure-3{letter}",
        f"Figure 3{letter}: Blahut–Arimoto against Laplace, {campaign.cut.name}",
        f"At the same tight ε the estimate under Blahut–Arimoto is significantly better than under "
        f"Laplace at high privacy, for β in ({above:g}, {most:g}] in {campaign.cut.name}, and both errors "
        "converge to 0 as β grows.",
        partial(judge_utility, above=above, most=most),
        partial(_utility, campaign=campaign),
    )
    for letter, campaign, above, most in (
        ("a", cycles.PARIS_CAMPAIGN, 0.4, 1.4),
        ("b", cycles.SAN_FRANCISCO_CAMPAIGN, 0.0, 1.0),
    )
)
"""The paper's interval for San Francisco is (0, 1), «ε up to 2»."""
