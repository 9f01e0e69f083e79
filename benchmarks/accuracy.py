"""The error of the map at an equal promise, ours beside what others would use, with the time each takes.

10,000 people drawn from the check-ins of Paris, each reporting once, 192 cells of half a kilometre. Planar
Laplace, planar geometric, the published rule (five rounds, the last one estimated) and ours promise ε per km
between the centres of cells, as the papers have it. Randomised response, RAPPOR and the disc promise the same
ε whatever the distance, which is more beyond a kilometre and less within; each is estimated as ``choosing``
does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import process_time

import numpy as np

import geoveil as gv
from benchmarks.choices import City, cities
from benchmarks.choosing import Map, error_m, randomized_response, rappor, reported, said
from geoveil.arrays import FloatArray
from geoveil.campaign.rules import PublishedRule
from geoveil.papers.data import default_folder
from geoveil.papers.privic_cycles import CAMPAIGNS

_PEOPLE, _SEEDS, _ROUNDS = 10_000, 5, 5
_PROMISES = (1.0, 2.0)


def accuracy(_: Path | None = None) -> str:
    """A table with the error in metres and the processor time of one map; empty without the check-ins."""
    lines = []
    for city in cities(default_folder(), "gowalla-paris"):
        lines += [
            "| Paris, 10,000 people, camouflage 0 | "
            + " | ".join(f"error, ε = {each:g} | time of a map" for each in _PROMISES)
            + " |",
            "|---|" + "---:|" * (2 * len(_PROMISES)),
        ]
        found = {
            name: [_measured(city, way(each)) for each in _PROMISES] for name, way in WAYS.items()
        }
        lines += [
            f"| {name} | "
            + " | ".join(f"{error:,.0f} m | {1000 * spent:.0f} ms" for error, spent in measured)
            + " |"
            for name, measured in found.items()
        ]
    return "\n".join(lines)


def published(epsilon_per_km: float) -> Map:
    """PRIVIC as published: Blahut–Arimoto at β = ε/2, designed and estimated from round to round."""
    campaign = CAMPAIGNS["paris"]
    rule = PublishedRule(epsilon_per_km / 2.0, campaign.design_steps, campaign.update_steps)

    def shares(city: City, people: int, generator: np.random.Generator) -> FloatArray:
        believed: FloatArray = np.full(city.grid.size, 1 / city.grid.size)
        for _ in range(_ROUNDS):
            mechanism = rule.design(city.grid, believed)
            tally = said(mechanism, city, people // _ROUNDS, generator)
            believed = rule.estimate([tally], believed).distribution
        return believed

    return shares


@cache
def _sharpest(grid: gv.Grid, *, epsilon_per_km: float) -> gv.Channel:
    return gv.elastic(grid, epsilon_per_km=epsilon_per_km, camouflage=0.0, between="cells")


def _measured(city: City, way: Map) -> tuple[float, float]:
    """The mean error in metres, and the processor seconds of one map."""
    before = process_time()
    errors = [
        error_m(city, way(city, _PEOPLE, np.random.default_rng(seed))) for seed in range(_SEEDS)
    ]
    return float(np.mean(errors)), (process_time() - before) / _SEEDS


WAYS: dict[str, Callable[[float], Map]] = {
    "ours, ε per km": lambda each: reported(partial(_sharpest, epsilon_per_km=each)),
    "the published rule, ε per km": published,
    "planar Laplace, ε per km": lambda each: reported(
        partial(gv.PlanarLaplace, epsilon_per_km=each)
    ),
    "planar geometric, ε per km": lambda each: reported(
        partial(gv.PlanarGeometric, epsilon_per_km=each)
    ),
    "randomised response, ε at any distance": randomized_response,
    "RAPPOR, ε at any distance": rappor,
    "the disc, ε at any distance": lambda each: reported(partial(gv.Disc, epsilon=each)),
}
"""What they are called, and the maps that people end up with at an ε."""
