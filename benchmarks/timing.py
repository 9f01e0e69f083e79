"""Timing, ours and the yardstick in turns, the best of several repeats; and a city to time on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import numpy as np

from geoveil.arrays import FloatArray
from geoveil.space.grid import Grid


@dataclass(frozen=True)
class Figure:
    """One measured figure and the line it has to stay below, or ``at_least`` reach.

    ``value`` is a ratio to the yardstick, a slope, a share or a time, as ``unit`` says.
    """

    name: str
    seconds: float
    value: float
    unit: str
    limit: float
    yardstick: str = ""
    yardstick_seconds: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of its line."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def cells(self) -> tuple[str, ...]:
        """The figure as a row of a table."""
        beside = "" if self.yardstick_seconds is None else _time(self.yardstick_seconds)
        verdict = "met" if self.met else "MISSED"
        value, limit = (_number(number, self.unit) for number in (self.value, self.limit))
        target = f"{'≥' if self.at_least else '≤'} {limit}"
        return self.name, _time(self.seconds), self.yardstick, beside, value, target, verdict


_SHORTEST_SECONDS = 1e-3
HEADINGS = ("figure", "ours", "yardstick", "its time", "value", "target", "")


def ratio(
    name: str,
    ours: Callable[[], Any],
    yardstick: str,
    bare: Callable[[], Any],
    *,
    limit: float,
    repeats: int = 7,
) -> Figure:
    """Our time as a multiple of the yardstick's."""
    seconds, beside = best_of(ours, bare, repeats=repeats)
    return Figure(name, seconds, seconds / beside, "×", limit, yardstick, beside)


def faster(
    name: str,
    ours: Callable[[], Any],
    yardstick: str,
    bare: Callable[[], Any],
    *,
    limit: float,
    repeats: int = 3,
    scale: float = 1.0,
) -> Figure:
    """How many times as fast we are as the yardstick, of which ``bare`` does one part in ``scale``."""
    seconds, part = best_of(ours, bare, repeats=repeats, warm=False)
    beside = scale * part
    return Figure(name, seconds, beside / seconds, "× faster", limit, yardstick, beside, True)


def share(
    name: str,
    ours: Callable[[], Any],
    inside: Inside,
    yardstick: str,
    bare: Callable[[], Any],
    *,
    limit: float,
) -> Figure:
    """How much processor time is spent inside what cannot be spared, in per cent; bare time beside."""
    seconds, beside = best_of(ours, bare, repeats=2)
    with inside:
        start = process_time()
        ours()
        whole = process_time() - start
    return Figure(name, seconds, 100 * inside.seconds / whole, "%", limit, yardstick, beside, True)


def duration(
    name: str,
    ours: Callable[[], Any],
    *,
    limit: float,
    repeats: int = 1,
    clock: Callable[[], float] = perf_counter,
) -> Figure:
    """Our time alone, against a fixed line; the first run counts, since it may be the only one."""
    (seconds,) = best_of(ours, repeats=repeats, warm=False, clock=clock)
    return Figure(name, seconds, seconds, "s", limit)


def slope(
    name: str,
    ours: tuple[Callable[[], Any], Callable[[], Any]],
    yardstick: str,
    bare: tuple[Callable[[], Any], Callable[[], Any]],
    *,
    growth: float,
    limit: float,
    repeats: int = 7,
) -> Figure:
    """The exponent p in cost ∝ sizeᵖ from a small to a large size, whose ratio is ``growth``.

    Caches make even the bare work grow faster than its arithmetic: its exponent is named beside.
    """
    few, many, bare_few, bare_many = best_of(*ours, *bare, repeats=repeats)
    exponent, beside = (
        math.log(large / small) / math.log(growth)
        for small, large in ((few, many), (bare_few, bare_many))
    )
    name_beside = f"{yardstick}: slope {beside:.3g}"
    return Figure(name, many, exponent, "slope", limit, name_beside, bare_many)


class Inside:
    """The processor seconds, of all threads, spent inside some functions of a module while entered."""

    def __init__(self, module: Any, names: Sequence[str]) -> None:
        self.seconds = 0.0
        self._module = module
        self._kept = {name: getattr(module, name) for name in names}

    def __enter__(self) -> Inside:
        for name, function in self._kept.items():
            setattr(self._module, name, self._clocked(function))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._kept.items():
            setattr(self._module, name, function)

    def _clocked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            start = process_time()
            result = function(*given, **named)
            self.seconds += process_time() - start
            return result

        return call


def best_of(
    *works: Callable[[], Any],
    repeats: int,
    warm: bool = True,
    clock: Callable[[], float] = perf_counter,
) -> list[float]:
    """The shortest time of each work; they take turns, so that a busy moment hits all alike.

    Works of very different length are not hit alike: ``clock=process_time`` leaves others out. That clock may
    stand still for a while, as where a machine is lent out among several: a short work is done again until
    the clock has gone on by a thousandth of a second, and its time is the mean.
    """
    best = [math.inf] * len(works)
    for work in works if warm else ():
        work()
    for _ in range(repeats):
        for index, work in enumerate(works):
            start, times, spent = clock(), 0, 0.0
            while spent < _SHORTEST_SECONDS:
                work()
                times, spent = times + 1, clock() - start
            best[index] = min(best[index], spent / times)
    return best


def markdown(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(figure.cells() for figure in figures)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _number(value: float, unit: str) -> str:
    """Three digits and the unit; thousands written out."""
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.3g} {unit}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


_DISTRICTS = 12
_COUNTRYSIDE = 0.02


def city_prior(grid: Grid, *, seed: int = 1) -> FloatArray:
    """Where people are: a dozen round districts of uneven size, and a few people anywhere.

    >>> from geoveil.space.grid import Grid
    >>> round(float(city_prior(Grid(rows=4, columns=5, cell_km=0.5)).sum()), 12)
    1.0
    """
    generator = np.random.default_rng(seed)
    row, column = np.mgrid[: grid.rows, : grid.columns]
    density = np.full(grid.shape, _COUNTRYSIDE / grid.size)
    for _ in range(_DISTRICTS):
        north, east = generator.uniform(0, grid.rows), generator.uniform(0, grid.columns)
        spread = generator.uniform(0.03, 0.12) * min(grid.shape)
        district = np.exp(-((row - north) ** 2 + (column - east) ** 2) / (2 * spread**2))
        density += generator.uniform(0.3, 1.0) * district / (district.sum() * _DISTRICTS)
    distribution: FloatArray = density.ravel() / density.sum()
    return distribution
