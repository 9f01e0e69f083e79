"""Figure 3: the estimate under Blahut–Arimoto and under Laplace noise at equal ε."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.base import Channel
from geoveil.channel.dense import DenseChannel
from geoveil.collect import blahut_arimoto
from geoveil.estimate import IterativeBayesianUpdate, Steps
from geoveil.measure.information import mutual_information_bits
from geoveil.measure.transport import earth_movers_distance_km
from geoveil.mechanism import PlanarLaplace
from geoveil.papers.cities import City
from geoveil.papers.privic.campaign import (
    DESIGN_UPDATES,
    PARIS_CAMPAIGN,
    SAN_FRANCISCO_CAMPAIGN,
    Campaign,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot import Curve, draw_curves
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
    setting: Setting, *, campaign: Campaign, judge: Callable[..., Verdict]
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


def _experiment(letter: str, campaign: Campaign, *, above: float, most: float) -> Experiment:
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
