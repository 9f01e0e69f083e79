"""IBU, section IX on the map: San Francisco from noisy reports, at one level and at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray
from geoveil.papers import repeated, report
from geoveil.papers.data import SAN_FRANCISCO, City, load_city
from geoveil.papers.repeated import MAXIMUM, METHODS, NORMALISED, PROJECTED, TOLERANCE
from geoveil.papers.report import Claim, Measured, Setting, Verdict, experiment
from geoveil.plot import Curve, Panel, draw_maps

EPSILON_PER_KM = 1.0
VALIDATED, EXACT = "EM, cross-validated stop", "EM, exact maximum"
_EMPTY = 1e-6


def judge_city(
    varied: Mapping[str, float], moved: Mapping[str, float], empty: Mapping[str, int], cells: int
) -> Verdict:
    """§IX-B on Fig. 9: EM best, INV-P slightly better than INV-N, the maximum not interior.

    Total variation, EMD in km and cells with next to nobody, by name of the distribution.
    """
    shares, km = (
        [measure[name] for name in (MAXIMUM, PROJECTED, NORMALISED)] for measure in (varied, moved)
    )
    return Verdict.of(
        Claim("EM outperforms both inversions", shares[0] < min(shares[1:]) and km[0] < min(km[1:]),
              f"TV {report.listed(shares, '.3f')} and {report.listed(km, '.3f')} km for EM, INV-P, INV-N"),
        Claim("INV-P is better than INV-N", moved[PROJECTED] < moved[NORMALISED],
              f"{moved[PROJECTED]:.3f} against {moved[NORMALISED]:.3f} km"),
        Claim("EM leaves many cells empty, so that the maximum is not interior",
              empty[MAXIMUM] >= 0.05 * cells,
              f"{empty[MAXIMUM]} of {cells} below {_EMPTY:g}, {empty[EXACT]} at the exact maximum, "
              f"{empty['original']} truly empty"),
        note=f"The stop matters: {moved[VALIDATED]:.3f} km cross-validated, {moved[EXACT]:.3f} at the "
        "exact maximum.",
    )  # fmt: skip


@experiment(
    "Fig. 9: San Francisco from reports with planar geometric noise, ε = 1 per km", judge_city
)
def figure_9(setting: Setting) -> Measured:
    """EM outperforms INV-N and INV-P, INV-P is slightly better than INV-N, and the maximum of the
    likelihood leaves many cells empty: it is not interior.
    """
    city = load_city(SAN_FRANCISCO, setting.data, cell_km=0.5)
    mechanism = gv.PlanarGeometric(city.grid, epsilon_per_km=EPSILON_PER_KM)
    counts = repeated.repeated_counts(mechanism, lambda _: city.people, 1, setting.seed)
    estimates = repeated.all_methods(mechanism, counts)
    maps = {"original": city.truth, "noisy": counts[0] / counts.sum()}
    maps |= {method: repetitions[0] for method, repetitions in estimates.items()}
    maps[VALIDATED] = gv.IterativeBayesianUpdate().fit(gv.Tally(mechanism, counts[0])).distribution
    maps[EXACT] = repeated.exact_maximum(mechanism, counts)[0]
    varied = {name: gv.total_variation(shares, city.truth) for name, shares in maps.items()}
    moved = {name: city.error_km(shares) for name, shares in maps.items()}
    empty = {name: int((shares < _EMPTY).sum()) for name, shares in maps.items()}

    def draw(figure: Any) -> None:
        panels = [
            Panel(name if name == "original" else f"{name}, TV {varied[name]:.2f}", values)
            for name, values in maps.items()
            if name != EXACT
        ]
        label = "share of check-ins per cell"
        draw_maps(figure, city.grid, panels, columns=3, label=label, gamma=0.4)

    figures = (varied, moved, empty, city.grid.size)
    columns = "distribution | total variation | EMD (km) | cells below 1e-6"
    rows = [[name, varied[name], moved[name], empty[name]] for name in maps]
    words = {"em": MAXIMUM, "projected": PROJECTED, "normalised": NORMALISED}
    numbers: dict[str, float] = {f"emd_{word}_km": moved[name] for word, name in words.items()}
    numbers |= {"tv_em": varied[MAXIMUM], "empty_cells_em": empty[MAXIMUM]}
    return Measured(figures, columns, rows, draw, numbers, (11.0, 5.0))


# --- Figures 10, 11 and 12: the error of each method at every level of privacy


PER_KM, QUICK_PER_KM = (0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0.2, 1.0, 3.0, 6.0)
LOCAL = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)
QUICK_LOCAL = (1.0, 4.0, 7.0, 10.0)

Build = Callable[[City, float], gv.Channel]
Errors = dict[str, FloatArray]
"""method → (levels, repetitions), or the means of the repetitions"""


def _sweep(
    setting: Setting, build: Build, levels: Sequence[float], *, moved: bool, exact: bool = False
) -> tuple[Errors, Errors]:
    """Total variation and, where wanted, EMD of every method, level and repetition.

    One stop for all: Alg. 1 with the same δ under every mechanism and level; ``exact`` adds the
    maximum itself.
    """
    city, repetitions = load_city(SAN_FRANCISCO, setting.data, cell_km=0.5), setting.pick(100, 3)
    varied, distances = [], []
    for number, epsilon in enumerate(setting.each(levels, "ε = {:g}")):
        channel, seed = build(city, epsilon), setting.seed + number
        counts = repeated.repeated_counts(channel, lambda _: city.people, repetitions, seed)
        estimates = repeated.all_methods(channel, counts)
        if exact:
            estimates[EXACT] = repeated.exact_maximum(channel, counts)
        varied.append(repeated.errors(estimates, partial(gv.total_variation, city.truth)))
        distances.append(repeated.errors(estimates if moved else {}, city.error_km))
    return repeated.stacked(varied), repeated.stacked(distances)


def _measured(
    figures: tuple[Any, ...], name: str, levels: Sequence[float], measures: Mapping[str, Errors],
    y_labels: Sequence[str], x_label: str,
) -> Measured:  # fmt: skip
    """Mean errors in a table, and curves in one panel for each measure."""
    means = {
        f"{m}, {method}": e.mean(axis=1) for m, es in measures.items() for method, e in es.items()
    }
    panels = {
        measure: [Curve(method, np.array(levels), values.T) for method, values in errors.items()]
        for measure, errors in measures.items()
    }
    rows = zip(levels, *means.values(), strict=True)
    draw = report.curves(panels, x_label, y_labels, y_scale="log", titled=False)
    numbers = {
        f"{method}_emd_strictest_km": float(values[0].mean())
        for method, values in measures.get("EMD (km)", {}).items()
    }
    return Measured(figures, [name, *means], rows, draw, numbers, (10.0, 4.0))


def _means(errors: Errors) -> Errors:
    return {method: values.mean(axis=1) for method, values in errors.items()}


def _better(errors: Errors) -> FloatArray:
    """The better of the two inversions at each level."""
    return np.minimum(errors[NORMALISED], errors[PROJECTED])


def _both(
    setting: Setting, name: str, build: Build, levels: Sequence[float], *, exact: bool
) -> Measured:
    """Figures 10 and 12: total variation and EMD."""
    varied, moved = _sweep(setting, build, levels, moved=True, exact=exact)
    figures, measures = (levels, _means(varied), _means(moved)), {"TV": varied, "EMD (km)": moved}
    labels = ("total variation", "earth mover's distance (km)")
    return _measured(figures, name, levels, measures, labels, name)


def judge_geometric(levels: Sequence[float], tv: Errors, emd: Errors) -> Verdict:
    """§IX-C on Fig. 10; mean errors by level."""
    ahead = {"TV": _better(tv) / tv[MAXIMUM], "EMD": _better(emd) / emd[MAXIMUM]}
    one = list(levels).index(1.0)
    falling = all((np.diff(error[method]) < 0).all() for error in (tv, emd) for method in METHODS)
    return Verdict.of(
        Claim("all methods improve with ε", falling,
              f"EM {emd[MAXIMUM][0]:.2f} to {emd[MAXIMUM][-1]:.3f} km, INV-P {emd[PROJECTED][0]:.2f} to "
              f"{emd[PROJECTED][-1]:.3f}"),
        *(Claim(f"EM outperforms both inversions in {name}", (ratios > 1).all(),
                f"the better inversion has {report.span(ratios)} times its {name}")
          for name, ratios in ahead.items()),
        Claim("EM is ahead above all at strong privacy", ahead["EMD"][0] >= 2 * ahead["EMD"][-1],
              f"{ahead['EMD'][0]:.1f} times at ε = {levels[0]:g}, {ahead['EMD'][-1]:.2f} at {levels[-1]:g}"),
        Claim("at ε = 1 INV-P is significantly better than INV-N in EMD",
              emd[PROJECTED][one] < 0.5 * emd[NORMALISED][one],
              f"{emd[PROJECTED][one]:.2f} against {emd[NORMALISED][one]:.2f} km"),
        Claim("at ε = 1 the TV of INV-P and INV-N is almost the same",
              abs(tv[PROJECTED][one] / tv[NORMALISED][one] - 1) < 0.1,
              f"{tv[PROJECTED][one]:.2f} and {tv[NORMALISED][one]:.2f}"),
    )  # fmt: skip


@experiment("Fig. 10: planar geometric noise at every level", judge_geometric)
def figure_10(setting: Setting) -> Measured:
    """All methods improve with ε; EM outperforms both inversions, above all at strong privacy; at ε = 1
    INV-P is far better than INV-N in EMD although their TV is almost the same.
    """

    def build(city: City, epsilon: float) -> gv.Channel:
        return gv.PlanarGeometric(city.grid, epsilon_per_km=epsilon)

    return _both(setting, "ε per km", build, setting.pick(PER_KM, QUICK_PER_KM), exact=False)


def judge_laplace(tv: Mapping[str, Errors]) -> Verdict:
    """§IX-C on Fig. 11: mean TV by level under «Laplace» and «exponential» noise."""
    ahead = {name: _better(errors) / errors[MAXIMUM] for name, errors in tv.items()}
    better = tv["Laplace"][MAXIMUM] < tv["exponential"][MAXIMUM]
    return Verdict.of(
        *(Claim(f"{name}: EM substantially outperforms both inversions",
                (ratio > 1).all() and np.median(ratio) >= 1.25,
                f"the better one has {report.span(ratio)} times its TV, {np.median(ratio):.2f} at half "
                "of the levels or more")
          for name, ratio in ahead.items()),
        Claim("Laplace noise gives better estimates than the exponential mechanism", better.all(),
              f"at {report.share(better)} levels"),
    )  # fmt: skip


@experiment("Fig. 11: Laplace and exponential noise at every level", judge_laplace)
def figure_11(setting: Setting) -> Measured:
    """EM substantially outperforms both inversions under both mechanisms, and Laplace noise gives better
    estimates than the exponential mechanism at the same ε.
    """
    levels = setting.pick(PER_KM, QUICK_PER_KM)
    builds: dict[str, Build] = {
        "Laplace": lambda city, e: gv.PlanarLaplace(city.grid, epsilon_per_km=e),
        "exponential": lambda city, e: gv.Exponential(city.grid, epsilon_per_km=e),
    }
    varied = {
        name: _sweep(setting, build, levels, moved=False)[0] for name, build in builds.items()
    }
    figures = ({name: _means(errors) for name, errors in varied.items()},)
    measures = {f"TV, {name}": errors for name, errors in varied.items()}
    labels = [f"total variation, {name}" for name in varied]
    return _measured(figures, "ε per km", levels, measures, labels, "ε (per km)")


def judge_response(levels: Sequence[float], tv: Errors, emd: Errors) -> Verdict:
    """§IX-D on Fig. 12; mean errors by level, EM stopped by Alg. 1 at one δ, and its maximum."""
    all_tv = np.array([tv[method] for method in METHODS])
    apart = all_tv.max(axis=0) / all_tv.min(axis=0)
    behind, closeness = tv[MAXIMUM] / _better(tv), emd[PROJECTED] / emd[MAXIMUM]
    superior = np.maximum(emd[MAXIMUM], emd[PROJECTED]) < emd[NORMALISED]
    exact, exact_close = tv[EXACT] / _better(tv), emd[PROJECTED] / emd[EXACT]
    return Verdict.of(
        Claim("the differences are not substantial", (apart < 1.5).all(),
              f"the worst has {report.span(apart)} times the TV of the best"),
        Claim("EM has the lowest TV at every ε", (behind <= 1).all(),
              f"at {report.share(behind <= 1)}; {report.span(behind)} times the better inversion's"),
        Claim("in EMD EM and INV-P are almost the same", (np.abs(closeness - 1) < 0.25).all(),
              f"INV-P has {report.span(closeness)} times the EMD of EM"),
        Claim("EM and INV-P are superior to INV-N in EMD", superior.all(),
              f"both at {report.share(superior)} levels"),
        note=f"EM is stopped at δ = {TOLERANCE:g} per report everywhere; its maximum has "
        f"{report.span(exact)} times the TV of the better inversion, and INV-P {report.span(exact_close)} "
        "times the EMD of that.",
    )  # fmt: skip


@experiment("Fig. 12: k-ary randomised response at every level", judge_response)
def figure_12(setting: Setting) -> Measured:
    """The differences are not substantial: EM has the lowest TV at every ε, and in EMD EM and INV-P are
    almost the same and better than INV-N.
    """

    def build(city: City, epsilon: float) -> gv.Channel:
        return gv.RandomizedResponse(city.grid, epsilon=epsilon)

    return _both(setting, "ε", build, setting.pick(LOCAL, QUICK_LOCAL), exact=True)
