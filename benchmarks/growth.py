"""How the work grows with the number of cells: processor seconds, as a table and as a picture."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core import both_products
from benchmarks.timing import best_of, city_prior
from geoveil.campaign.elastic_design import Between, elastic
from geoveil.client.collector import check_promise, offered
from geoveil.document.wire import publish
from geoveil.estimate.objective import Objective, em_path
from geoveil.mechanism import PlanarGeometric
from geoveil.plot.curves import Curve, draw_curves
from geoveil.plot.maps import picture
from geoveil.position.positional import PositionalElastic
from geoveil.space.grid import Grid

_SMALL_S = 0.2
"""What takes less is done several times."""


@dataclass(frozen=True)
class Growth:
    """One kind of work at several sizes."""

    work: str
    cells: tuple[int, ...]
    seconds: tuple[float, ...]

    def exponents(self) -> Iterator[float]:
        """p in cost ∝ cellsᵖ from each size to the next."""
        for (few, short), (many, long) in pairwise(zip(self.cells, self.seconds, strict=True)):
            yield math.log(long / short) / math.log(many / few)


def growths(scale: float = 1.0) -> Iterator[Growth]:
    """Products, estimation, design and the device's check; ``scale`` makes every side smaller."""
    for work, sides, prepared in (
        ("push + pull, planar geometric", (16, 64, 256, 1024, 2048), _products),
        ("one EM step, planar geometric", (16, 64, 256, 1024, 2048), _step),
        ("design at a promise between cells", (10, 32, 100, 316), _design_between("cells")),
        ("design at a promise between positions", (10, 22, 45, 64), _design_between("positions")),
        ("a device checks a rule", (10, 22, 45, 64), _check),
    ):
        smaller = sorted({max(3, round(scale * side)) for side in sides})
        grids = [Grid(rows=side, columns=side, cell_km=0.5) for side in smaller]
        seconds = [_seconds(prepared(grid)) for grid in grids]
        yield Growth(work, tuple(grid.size for grid in grids), tuple(seconds))


def _on_the_map(side: int) -> Grid:
    """A square of cells around 0°, 0°, where a device can be."""
    half_km = 0.25 * (side - 0.5)
    north, east = half_km / 110.574, half_km / 111.32
    return Grid.from_box(south=-north, west=-east, north=north, east=east, cell_km=0.5)


def _seconds(work: Callable[[], Any]) -> float:
    """Processor time, the best of three where it is short; what is read from a cache is not asked twice."""
    clock = time.process_time
    (first,) = best_of(work, repeats=1, warm=False, clock=clock)
    if first > _SMALL_S or getattr(work, "once", False):
        return first
    (again,) = best_of(work, repeats=3, warm=False, clock=clock)
    return min(first, again)


def _products(grid: Grid) -> Callable[[], Any]:
    work = both_products(PlanarGeometric(grid, epsilon_per_km=2.0))
    work()  # the spectrum of the noise is made once
    return work


def _step(grid: Grid) -> Callable[[], Any]:
    mechanism = PlanarGeometric(grid, epsilon_per_km=2.0)
    counts = np.random.default_rng(1).poisson(100 * grid.size * city_prior(grid) + 1.0)
    path = em_path(
        Objective(mechanism, counts.astype(np.float64)), np.full(grid.size, 1 / grid.size)
    )
    next(path)
    return lambda: [point.certificate for point in islice(path, 1)]


def _design_between(between: Between) -> Callable[[Grid], Callable[[], Any]]:
    def prepared(grid: Grid) -> Callable[[], Any]:
        prior = city_prior(grid)
        return lambda: elastic(grid, prior, epsilon_per_km=2.0, camouflage=0.5, between=between)

    return prepared


def _check(grid: Grid) -> Callable[[], Any]:
    city = _on_the_map(grid.rows)
    made = elastic(city, city_prior(city), epsilon_per_km=2.0, camouflage=0.5, between="positions")
    assert isinstance(made, PositionalElastic)
    assert city.size == grid.size
    now_s = int(time.time())
    (document,) = offered(
        publish(made, campaign="city", round=1, not_before_s=now_s, expires_s=now_s + 60).served()
    )

    def work() -> None:
        check_promise(document)

    work.once = True  # type: ignore[attr-defined]
    return work


def table(found: Sequence[Growth]) -> str:
    """Every size in a row: processor time, and how the cost grew from the size before."""
    lines = ["| work | cells | processor time | growth since the last |", "|---|---:|---:|---:|"]
    for each in found:
        exponents = ["", *(f"cells^{exponent:.2f}" for exponent in each.exponents())]
        for cells, seconds, exponent in zip(each.cells, each.seconds, exponents, strict=True):
            took = f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
            lines.append(f"| {each.work} | {cells:,} | {took} | {exponent} |")
    return "\n".join(lines)


def draw(found: Sequence[Growth], path: Path) -> None:
    """Cells against seconds, both by factors."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    curves = [Curve(each.work, np.array(each.cells), np.array(each.seconds)) for each in found]
    with picture(str(path), 7.2, 4.4) as figure:
        axes = figure.subplots()
        labels = {"x_label": "cells", "y_label": "processor seconds"}
        draw_curves(axes, curves, **labels, x_scale="log", y_scale="log")
        for axis in (
            axes.xaxis,
            axes.yaxis,
        ):  # so many powers of ten leave no room for what is between
            axis.set_major_locator(LogLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def growth(images: Path | None) -> str:
    """Measure, draw where a folder is given, and give the part of the page."""
    found = list(growths())
    if images is None:
        return table(found)
    draw(found, images / "growth.png")
    return f"![Cells against processor seconds](images/growth.png)\n\n{table(found)}"
