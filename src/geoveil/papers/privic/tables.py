"""Tables 2 and 3 with Figures 8 and 9: the error by cycle, everybody reporting in each."""

from __future__ import annotations

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
from geoveil.papers.privic.published import PUBLISHED
from geoveil.papers.report import Agreement, Experiment, Finding, Setting, Table
from geoveil.plot import Curve, draw_curves

BETAS = (1.0, 0.5)


def _table(setting: Setting, *, campaign: Campaign, within: float) -> Finding:
    city = campaign.city(setting)
    seeds = 2 if setting.quick else 5
    ours = {}
    for number, beta in enumerate(BETAS):
        setting.progress(number / len(BETAS), f"β = {beta:g} per cell")
        ours[beta] = errors(re_reporting(campaign, city, beta, setting, seeds))
    theirs = {beta: PUBLISHED[campaign.cut.name, beta] for beta in BETAS}
    gaps = {beta: np.abs(ours[beta].mean(axis=0) - theirs[beta].mean(axis=0)) for beta in BETAS}
    widest = float(max(gap.max() for gap in gaps.values()))
    return Finding(
        agreement=Agreement.YES if widest <= within else Agreement.PARTLY,
        conclusion=(
            f"Over all cycles and both β the means differ by at most {widest:.4f} cells "
            f"({seeds} rounds of ours beside the paper's 5); after the last cycle ours are "
            f"{ours[1.0].mean(axis=0)[-1]:.4f} and {ours[0.5].mean(axis=0)[-1]:.4f}."
        ),
        table=_rows(ours, theirs),
        draw=partial(_draw, ours, theirs),
        numbers={"widest_gap_cells": widest, "line_cells": within, "rounds": seeds},
    )


def _rows(ours: dict[float, FloatArray], theirs: dict[float, FloatArray]) -> Table:
    columns = ["cycle"]
    for beta in BETAS:
        columns += [f"published, β={beta:g} (cells)", f"ours, β={beta:g} (cells)"]
    means = [each[beta].mean(axis=0) for beta in BETAS for each in (theirs, ours)]
    rows = [
        [cycle + 2, *(round(float(m[cycle]), 4) for m in means)] for cycle in range(len(means[0]))
    ]
    return Table.of(columns, rows)


def _draw(ours: dict[float, FloatArray], theirs: dict[float, FloatArray], figure: Any) -> None:
    for axes, beta in zip(figure.subplots(1, 2), BETAS, strict=True):
        cycles = np.arange(2.0, ours[beta].shape[1] + 2)
        curves = [Curve("published", cycles, theirs[beta]), Curve("ours", cycles, ours[beta])]
        draw_curves(
            axes, curves, x_label="cycle", y_label="EMD (cells)", title=f"β = {beta:g} per cell"
        )


TABLE_2 = Experiment(
    "table-2",
    "Table 2 and Figure 8: Paris, error by cycle",
    "The error falls with every cycle and settles near 0.14 (β=1) and 0.31 cells (β=0.5).",
    partial(_table, campaign=PARIS_CAMPAIGN, within=0.03),
)
TABLE_3 = Experiment(
    "table-3",
    "Table 3 and Figure 9: San Francisco, error by cycle",
    "The error falls with every cycle to about 0.19 (β=1) and 0.44 cells (β=0.5).",
    partial(_table, campaign=SAN_FRANCISCO_CAMPAIGN, within=0.01),
)
