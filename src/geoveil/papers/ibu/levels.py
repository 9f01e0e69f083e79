"""IBU, section IX on the map: San Francisco at every level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.estimate.bayesian_update import IterativeBayesianUpdate
from geoveil.estimate.likelihood import ChannelLikelihood
from geoveil.mechanism.elastic import Exponential
from geoveil.mechanism.local import RandomizedResponse
from geoveil.mechanism.planar import PlanarGeometric, PlanarLaplace
from geoveil.papers.data import SAN_FRANCISCO, load_city
from geoveil.papers.repeated import (
    MAXIMUM,
    METHODS,
    NORMALISED,
    PROJECTED,
    TOLERANCE,
    all_methods,
    earth_movers,
    exact_maximum,
    repeated_counts,
    total_variations,
)
from geoveil.papers.report import Claim, Experiment, Finding, Setting, Table, Verdict
from geoveil.plot.curves import Curve, draw_curves
from geoveil.plot.maps import Panel, draw_maps
from geoveil.space.grid import Grid

EPSILON_PER_KM = 1.0
VALIDATED, EXACT = "EM, cross-validated stop", "EM, exact maximum"
_EMPTY = 1e-6


@dataclass(frozen=True, eq=False)
class SanFrancisco:
    """The check-ins on 16 × 24 cells of half a kilometre, distances in kilometres."""

    grid: Grid
    people: IntArray
    truth: FloatArray


def san_francisco(setting: Setting) -> SanFrancisco:
    """The city as both papers cut it; 123,025 check-ins here, 123,273 in the paper."""
    city = load_city(SAN_FRANCISCO, setting.data)
    grid = Grid(rows=SAN_FRANCISCO.rows, columns=SAN_FRANCISCO.columns, cell_km=0.5)
    return SanFrancisco(grid, city.people, city.truth)


def _run(setting: Setting) -> Finding:
    city = san_francisco(setting)
    mechanism = PlanarGeometric(city.grid, epsilon_per_km=EPSILON_PER_KM)
    counts = repeated_counts(mechanism, lambda _: city.people, 1, setting.seed)
    found = all_methods(mechanism, counts) | _other_stops(mechanism, counts)
    panels = {"original": city.truth, "noisy": counts[0] / counts.sum()}
    panels |= {method: each[0] for method, each in found.items()}
    varied = {
        name: float(total_variations(each[None], city.truth)[0]) for name, each in panels.items()
    }
    moved = {
        name: float(earth_movers(each[None], city.truth, city.grid)[0])
        for name, each in panels.items()
    }
    empty = {name: int((each < _EMPTY).sum()) for name, each in panels.items()}
    return Finding(
        *judge_city(varied, moved, empty, city.grid.size),
        table=Table.of(
            ("distribution", "total variation", "EMD (km)", "cells below 1e-6"),
            [[name, varied[name], moved[name], empty[name]] for name in panels],
        ),
        draw=partial(_draw, city.grid, panels, varied),
        numbers={
            "emd_em_km": moved[MAXIMUM],
            "emd_projected_km": moved[PROJECTED],
            "emd_normalised_km": moved[NORMALISED],
            "tv_em": varied[MAXIMUM],
            "empty_cells_em": empty[MAXIMUM],
        },
        figure_size=(11.0, 5.0),
    )


def judge_city(
    varied: Mapping[str, float], moved: Mapping[str, float], empty: Mapping[str, int], cells: int
) -> Verdict:
    """§IX-B on Fig. 9: EM best, INV-P slightly better than INV-N, the maximum not interior."""

    def told(errors: Mapping[str, float]) -> str:
        return ", ".join(f"{errors[name]:.3f}" for name in (MAXIMUM, PROJECTED, NORMALISED))

    return Verdict.of(
        Claim(
            "EM outperforms both inversions",
            varied[MAXIMUM] < min(varied[NORMALISED], varied[PROJECTED])
            and moved[MAXIMUM] < min(moved[NORMALISED], moved[PROJECTED]),
            f"TV {told(varied)} and {told(moved)} km for EM, INV-P, INV-N",
        ),
        Claim(
            "INV-P is better than INV-N",
            moved[PROJECTED] < moved[NORMALISED],
            f"{moved[PROJECTED]:.3f} against {moved[NORMALISED]:.3f} km",
        ),
        Claim(
            "EM leaves many cells empty, so that the maximum is not interior",
            empty[MAXIMUM] >= 0.05 * cells,
            f"{empty[MAXIMUM]} of {cells} below {_EMPTY:g}, {empty[EXACT]} at the exact maximum, "
            f"{empty['original']} truly empty",
        ),
        note=f"The stop matters: {moved[VALIDATED]:.3f} km cross-validated, {moved[EXACT]:.3f} at the "
        "exact maximum.",
    )


def _other_stops(mechanism: PlanarGeometric, counts: IntArray) -> dict[str, FloatArray]:
    """The same EM stopped where held-out reports are predicted best, and run to the maximum itself."""
    validated = IterativeBayesianUpdate().fit(Tally(mechanism, counts[0])).distribution
    exact = exact_maximum(ChannelLikelihood(mechanism), counts)
    return {VALIDATED: validated[None], EXACT: exact}


def _draw(grid: Grid, panels: dict[str, FloatArray], varied: dict[str, float], figure: Any) -> None:
    drawn = [
        Panel(name if name == "original" else f"{name}, TV {varied[name]:.2f}", values)
        for name, values in panels.items()
        if name != EXACT
    ]
    draw_maps(figure, grid, drawn, columns=3, label="share of check-ins per cell", gamma=0.4)


FIGURE_9 = Experiment(
    name="figure-9",
    title="Fig. 9: San Francisco from reports with planar geometric noise, ε = 1 per km",
    statement=(
        "EM outperforms INV-N and INV-P, INV-P is slightly better than INV-N, and the maximum of the "
        "likelihood leaves many cells empty: it is not interior."
    ),
    run=_run,
    judge=judge_city,
)


# --- Figures 10, 11 and 12: the error of each method at every level of privacy, in San Francisco


PER_KM = (0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
LOCAL = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
_QUICK_PER_KM = (0.2, 1.0, 3.0, 6.0)
_QUICK_LOCAL = (1.0, 4.0, 7.0, 10.0)
_REPETITIONS, _QUICK_REPETITIONS = 100, 3
EXACT_MAXIMUM = "EM, exact maximum"

Build = Callable[[Grid, float], Channel]
Errors = dict[str, FloatArray]
"""method → (levels, repetitions)"""


def _sweep(
    setting: Setting,
    city: SanFrancisco,
    build: Build,
    levels: Sequence[float],
    *,
    moved: bool = True,
    exact: bool = False,
) -> tuple[Errors, Errors]:
    """Total variation and, where wanted, EMD of every method, level and repetition.

    One stop for all: Alg. 1 with the same δ under every mechanism and level; ``exact`` adds the
    maximum itself.
    """
    repetitions = _QUICK_REPETITIONS if setting.quick else _REPETITIONS
    varied: dict[str, list[FloatArray]] = {}
    distances: dict[str, list[FloatArray]] = {}
    for number, epsilon in enumerate(levels):
        setting.progress(number / len(levels), f"ε = {epsilon:g}")
        channel = build(city.grid, epsilon)
        counts = repeated_counts(channel, lambda _: city.people, repetitions, setting.seed + number)
        found = all_methods(channel, counts)
        if exact:
            found[EXACT_MAXIMUM] = exact_maximum(ChannelLikelihood(channel), counts)
        for method, each in found.items():
            varied.setdefault(method, []).append(total_variations(each, city.truth))
            if moved:
                distances.setdefault(method, []).append(earth_movers(each, city.truth, city.grid))
    arrays = {method: np.array(each) for method, each in varied.items()}
    return arrays, {method: np.array(each) for method, each in distances.items()}


def _better(errors: Errors) -> FloatArray:
    """The better of the two inversions at each level."""
    return np.minimum(errors[NORMALISED], errors[PROJECTED])


def judge_geometric(levels: Sequence[float], tv: Errors, emd: Errors) -> Verdict:
    """§IX-C on Fig. 10; mean errors by level."""
    ahead = {"TV": _better(tv) / tv[MAXIMUM], "EMD": _better(emd) / emd[MAXIMUM]}
    one = list(levels).index(1.0)
    falling = all((np.diff(each[method]) < 0).all() for each in (tv, emd) for method in METHODS)
    alike = abs(tv[PROJECTED][one] / tv[NORMALISED][one] - 1)
    return Verdict.of(
        Claim(
            "all methods improve with ε",
            bool(falling),
            f"EM {emd[MAXIMUM][0]:.2f} to {emd[MAXIMUM][-1]:.3f} km, INV-P {emd[PROJECTED][0]:.2f} to "
            f"{emd[PROJECTED][-1]:.3f}",
        ),
        *(
            Claim(
                f"EM outperforms both inversions in {name}",
                bool((each > 1).all()),
                f"the better inversion has {_range(each)} times its {name}",
            )
            for name, each in ahead.items()
        ),
        Claim(
            "EM is ahead above all at strong privacy",
            bool(ahead["EMD"][0] >= 2 * ahead["EMD"][-1]),
            f"{ahead['EMD'][0]:.1f} times at ε = {levels[0]:g}, {ahead['EMD'][-1]:.2f} at {levels[-1]:g}",
        ),
        Claim(
            "at ε = 1 INV-P is significantly better than INV-N in EMD",
            bool(emd[PROJECTED][one] < 0.5 * emd[NORMALISED][one]),
            f"{emd[PROJECTED][one]:.2f} against {emd[NORMALISED][one]:.2f} km",
        ),
        Claim(
            "at ε = 1 the TV of INV-P and INV-N is almost the same",
            bool(alike < 0.1),
            f"{tv[PROJECTED][one]:.2f} and {tv[NORMALISED][one]:.2f}",
        ),
    )


def _figure_10(setting: Setting) -> Finding:
    city = san_francisco(setting)
    levels = _QUICK_PER_KM if setting.quick else PER_KM
    varied, moved = _sweep(
        setting, city, lambda grid, e: PlanarGeometric(grid, epsilon_per_km=e), levels
    )
    tv, emd = _means(varied), _means(moved)
    return _both(judge_geometric(levels, tv, emd), "ε per km", levels, varied, moved)


def judge_laplace(tv: Mapping[str, Errors]) -> Verdict:
    """§IX-C on Fig. 11: mean TV by level under «Laplace» and «exponential» noise."""
    claims = []
    for name, each in tv.items():
        ahead = _better(each) / each[MAXIMUM]
        claims.append(
            Claim(
                f"{name}: EM substantially outperforms both inversions",
                bool((ahead > 1).all() and np.median(ahead) >= 1.25),
                f"the better one has {_range(ahead)} times its TV, {np.median(ahead):.2f} at half of the "
                "levels or more",
            )
        )
    better = tv["Laplace"][MAXIMUM] < tv["exponential"][MAXIMUM]
    return Verdict.of(
        *claims,
        Claim(
            "Laplace noise gives better estimates than the exponential mechanism",
            bool(better.all()),
            f"at {int(better.sum())} of {better.size} levels",
        ),
    )


def _figure_11(setting: Setting) -> Finding:
    city = san_francisco(setting)
    levels = _QUICK_PER_KM if setting.quick else PER_KM
    builds: dict[str, Build] = {
        "Laplace": lambda grid, e: PlanarLaplace(grid, epsilon_per_km=e),
        "exponential": lambda grid, e: Exponential(grid, epsilon_per_km=e),
    }
    varied = {
        name: _sweep(setting, city, build, levels, moved=False)[0] for name, build in builds.items()
    }
    tv = {name: _means(each) for name, each in varied.items()}
    return Finding(
        *judge_laplace(tv),
        table=_table("ε per km", levels, {f"TV, {name}": each for name, each in tv.items()}),
        draw=partial(
            _draw_levels,
            levels,
            [(f"total variation, {name}", each) for name, each in varied.items()],
            "ε (per km)",
        ),
        figure_size=(10.0, 4.0),
    )


def judge_response(levels: Sequence[float], tv: Errors, emd: Errors) -> Verdict:
    """§IX-D on Fig. 12; mean errors by level, EM stopped by Alg. 1 at one δ, and its maximum."""
    all_tv = np.array([tv[method] for method in METHODS])
    apart = all_tv.max(axis=0) / all_tv.min(axis=0)
    behind, closeness = tv[MAXIMUM] / _better(tv), emd[PROJECTED] / emd[MAXIMUM]
    superior = np.maximum(emd[MAXIMUM], emd[PROJECTED]) < emd[NORMALISED]
    exact, exact_close = tv[EXACT_MAXIMUM] / _better(tv), emd[PROJECTED] / emd[EXACT_MAXIMUM]
    return Verdict.of(
        Claim(
            "the differences are not substantial",
            bool((apart < 1.5).all()),
            f"the worst has {_range(apart)} times the TV of the best",
        ),
        Claim(
            "EM has the lowest TV at every ε",
            bool((behind <= 1).all()),
            f"at {int((behind <= 1).sum())} of {len(levels)}; {_range(behind)} times the better inversion's",
        ),
        Claim(
            "in EMD EM and INV-P are almost the same",
            bool((np.abs(closeness - 1) < 0.25).all()),
            f"INV-P has {_range(closeness)} times the EMD of EM",
        ),
        Claim(
            "EM and INV-P are superior to INV-N in EMD",
            bool(superior.all()),
            f"both at {int(superior.sum())} of {len(levels)} levels",
        ),
        note=f"EM is stopped at δ = {TOLERANCE:g} per report everywhere; its maximum has {_range(exact)} "
        f"times the TV of the better inversion, and INV-P {_range(exact_close)} times the EMD of that.",
    )


def _figure_12(setting: Setting) -> Finding:
    city = san_francisco(setting)
    levels = _QUICK_LOCAL if setting.quick else LOCAL
    varied, moved = _sweep(
        setting, city, lambda grid, e: RandomizedResponse(grid, epsilon=e), levels, exact=True
    )
    verdict = judge_response(levels, _means(varied), _means(moved))
    return _both(verdict, "ε", levels, varied, moved)


def _both(
    verdict: Verdict, name: str, levels: Sequence[float], varied: Errors, moved: Errors
) -> Finding:
    panels = [("total variation", varied), ("earth mover's distance (km)", moved)]
    return Finding(
        *verdict,
        table=_table(name, levels, {"TV": _means(varied), "EMD (km)": _means(moved)}),
        draw=partial(_draw_levels, levels, panels, name),
        numbers={
            f"{method}_emd_strictest_km": float(each[0].mean()) for method, each in moved.items()
        },
        figure_size=(10.0, 4.0),
    )


def _range(values: FloatArray) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"


def _means(errors: Errors) -> Errors:
    return {method: each.mean(axis=1) for method, each in errors.items()}


def _table(name: str, levels: Sequence[float], measures: dict[str, Errors]) -> Table:
    columns = [name, *(f"{m}, {method}" for m, errors in measures.items() for method in errors)]
    values = [each for errors in measures.values() for each in errors.values()]
    return Table.of(columns, [[level, *row] for level, *row in zip(levels, *values, strict=True)])


def _draw_levels(
    levels: Sequence[float], panels: list[tuple[str, Errors]], x_label: str, figure: Any
) -> None:
    axes = figure.subplots(1, len(panels))
    for part, (label, errors) in zip(axes, panels, strict=True):
        curves = [Curve(name, np.array(levels), each.T) for name, each in errors.items()]
        draw_curves(part, curves, x_label=x_label, y_label=label, y_scale="log")


FIGURE_10 = Experiment(
    name="figure-10",
    title="Fig. 10: planar geometric noise at every level",
    statement=(
        "All methods improve with ε; EM outperforms both inversions, above all at strong privacy; at "
        "ε = 1 INV-P is far better than INV-N in EMD although their TV is almost the same."
    ),
    run=_figure_10,
    judge=judge_geometric,
)
FIGURE_11 = Experiment(
    name="figure-11",
    title="Fig. 11: Laplace and exponential noise at every level",
    statement=(
        "EM substantially outperforms both inversions under both mechanisms, and Laplace noise gives "
        "better estimates than the exponential mechanism at the same ε."
    ),
    run=_figure_11,
    judge=judge_laplace,
)
FIGURE_12 = Experiment(
    name="figure-12",
    title="Fig. 12: k-ary randomised response at every level",
    statement=(
        "The differences are not substantial: EM has the lowest TV at every ε, and in EMD EM and INV-P are "
        "almost the same and better than INV-N."
    ),
    run=_figure_12,
    judge=judge_response,
)
