"""Tables 2 and 3 with Figures 8 and 9: the error by cycle, everybody reporting in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.papers.privic.campaign import (
    PARIS_CAMPAIGN,
    SAN_FRANCISCO_CAMPAIGN,
    Campaign,
    errors,
    re_reporting,
)
from geoveil.papers.privic.published import PUBLISHED, spread
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot import Curve, draw_curves

BETAS = (1.0, 0.5)


Cycles = Mapping[float, FloatArray]
"""β → (rounds, cycles): EMD in cells."""


def judge_cycles(ours: Cycles, theirs: Cycles) -> Verdict:
    """The printed numbers, and §7 on Figures 8 and 9: the error falls with every cycle and converges.

    Differences count where they exceed the spread of the paper's own rounds.
    """
    claims = []
    for beta in BETAS:
        mean, printed, noise = (
            ours[beta].mean(axis=0),
            theirs[beta].mean(axis=0),
            spread(theirs[beta]),
        )
        gap, rise = np.abs(mean - printed).max(), np.diff(mean).max()
        last, theirs_last = abs(mean[-1] - mean[-2]), abs(printed[-1] - printed[-2])
        claims += [
            Claim(
                f"β = {beta:g}: the printed means",
                bool(gap <= noise),
                f"at most {gap:.4f} cells apart, the printed rounds {noise:.4f}; at last "
                f"{mean[-1]:.4f} against {printed[-1]:.4f}",
            ),
            Claim(
                f"β = {beta:g}: the error falls with every cycle",
                bool(rise <= noise and mean[-1] < mean[0]),
                f"{mean[0]:.3f} to {mean[-1]:.3f}, largest rise {max(rise, 0):.4f}",
            ),
            Claim(
                f"β = {beta:g}: it has converged at the end",
                bool(last <= noise),
                f"the last cycle changes it by {last:.4f}, in the paper by {theirs_last:.4f}, the rounds "
                f"differ by {noise:.4f}",
            ),
        ]
    return Verdict.of(*claims)


def _table(setting: Setting, *, campaign: Campaign, judge: Callable[[Cycles], Verdict]) -> Finding:
    city = campaign.city(setting)
    seeds = 2 if setting.quick else 5
    ours = {}
    for number, beta in enumerate(BETAS):
        setting.progress(number / len(BETAS), f"β = {beta:g} per cell")
        ours[beta] = errors(re_reporting(campaign, city, beta, setting, seeds))
    theirs = _printed(campaign)
    gaps = [np.abs(ours[beta].mean(axis=0) - theirs[beta].mean(axis=0)).max() for beta in BETAS]
    return Finding(
        *judge(ours),
        table=_rows(ours, theirs),
        draw=partial(_draw, ours, theirs),
        numbers={"widest_gap_cells": float(max(gaps)), "rounds": seeds},
    )


def _printed(campaign: Campaign) -> dict[float, FloatArray]:
    return {beta: PUBLISHED[campaign.cut.name, beta] for beta in BETAS}


def _rows(ours: Cycles, theirs: Cycles) -> Table:
    columns = ["cycle"]
    for beta in BETAS:
        columns += [f"published, β={beta:g} (cells)", f"ours, β={beta:g} (cells)"]
    means = [each[beta].mean(axis=0) for beta in BETAS for each in (theirs, ours)]
    rows = [
        [cycle + 2, *(round(float(m[cycle]), 4) for m in means)] for cycle in range(len(means[0]))
    ]
    return Table.of(columns, rows)


def _draw(ours: Cycles, theirs: Cycles, figure: Any) -> None:
    for axes, beta in zip(figure.subplots(1, 2), BETAS, strict=True):
        cycles = np.arange(2.0, ours[beta].shape[1] + 2)
        curves = [Curve("published", cycles, theirs[beta]), Curve("ours", cycles, ours[beta])]
        draw_curves(
            axes, curves, x_label="cycle", y_label="EMD (cells)", title=f"β = {beta:g} per cell"
        )


def _experiment(number: int, campaign: Campaign, figure: int, last: str) -> Experiment:
    judge = partial(judge_cycles, theirs=_printed(campaign))
    return Experiment(
        f"table-{number}",
        f"Table {number} and Figure {figure}: {campaign.cut.name}, error by cycle",
        f"The error falls with every cycle and converges, to {last} cells (β = 1 and 0.5).",
        partial(_table, campaign=campaign, judge=judge),
        judge,
    )


TABLE_2 = _experiment(2, PARIS_CAMPAIGN, 8, "0.140 and 0.305")
TABLE_3 = _experiment(3, SAN_FRANCISCO_CAMPAIGN, 9, "0.186 and 0.436")
