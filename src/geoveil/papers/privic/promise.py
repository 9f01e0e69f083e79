"""Ours beside the paper at the same promise: people report once, certified ε, the dial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.collect import Collection, Crowd, Simulation, simulate
from geoveil.papers.cities import City
from geoveil.papers.privic.campaign import PARIS_CAMPAIGN, SAN_FRANCISCO_CAMPAIGN, Campaign
from geoveil.papers.privic.published import PUBLISHED, spread
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot import Curve, draw_curves

PROMISES = (2.0, 1.0)
DIALS = (0.9, 0.5, 0.0)
PAPER = "as published"

ROUNDS = {"Paris": 15, "San Francisco": 8}


def _same_promise(
    setting: Setting, *, campaign: Campaign, judge: Callable[[Rules], Verdict]
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


def _collections(campaign: Campaign, city: City, epsilon: float) -> dict[str, Collection]:
    ours = {
        _dial_name(dial): Collection(city.grid, epsilon_per_km=epsilon, camouflage=dial)
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


def _experiment(campaign: Campaign, name: str) -> Experiment:
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
