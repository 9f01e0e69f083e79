"""``geoveil evaluate``: how far an estimate is from the truth, beside two yardsticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np
from rich.console import Console as RichConsole
from rich.table import Table

from geoveil.arrays import FloatArray
from geoveil.cli.console import (
    Console,
    ProgressBar,
    location_options,
    machine_options,
    outside_option,
    two_columns,
)
from geoveil.cli.obfuscate import warn_of_outside
from geoveil.errors import InvalidInput, TooLarge
from geoveil.measure.distance import check_transport, earth_movers_distance_km
from geoveil.measure.information import total_variation
from geoveil.plot.maps import Panel, picture_kind, save_maps
from geoveil.space.outside import Outside, OutsideCount
from geoveil.space.space import Space
from geoveil.table import LocationTable, open_table
from geoveil.table.geojson import PlainDocument
from geoveil.table.locations import BadRows
from geoveil.table.reader import TableReader
from geoveil.table.results import Result, read_result
from geoveil.table.writer import binary_sink, check_target


@dataclass(frozen=True)
class Distance:
    """How far a distribution is from the truth; ``emd_km`` is None where it is too large to find."""

    emd_km: float | None
    total_variation: float


@dataclass(frozen=True)
class TrueShares:
    """The true share of each cell, of how many places; ``None`` for a table of shares."""

    shares: FloatArray
    places: int | None = None
    outside: OutsideCount = field(default_factory=lambda: OutsideCount("drop"))
    if_clamped: FloatArray | None = None
    """The shares, had every place outside gone to the nearest cell."""

    def looks_clamped(self, estimate: FloatArray) -> bool:
        """Whether the estimate is nearer to the clamped truth, as a whole and where that has gained.

        Reports that were clamped put those who are outside on the edge of the map, and no estimate
        can take them away again.
        """
        if self.if_clamped is None or not self.outside.worth_a_warning:
            return False
        gained = self.if_clamped > self.shares
        between = (self.if_clamped[gained].sum() + self.shares[gained].sum()) / 2
        nearer = total_variation(estimate, self.if_clamped) < total_variation(estimate, self.shares)
        return bool(nearer and estimate[gained].sum() > between)


@dataclass(frozen=True)
class Truth:
    """How the true places are read."""

    source: str
    lat: str | None
    lng: str | None
    bad_rows: BadRows
    delimiter: str
    format: str | None
    outside: Outside

    def shares(self, space: Space, progress: ProgressBar) -> TrueShares:
        """The true share of each cell."""
        drop = self.bad_rows == "drop"
        try:
            with open_table(
                self.source, format=self.format, delimiter=self.delimiter, drop_bad=drop
            ) as reader:
                if "share" not in reader.columns:
                    return self._counted(reader, space, progress)
        except PlainDocument:
            pass  # an estimate of the service
        return TrueShares(self._given(space))

    def _given(self, space: Space) -> FloatArray:
        other = read_result(self.source, format=self.format, delimiter=self.delimiter)
        if other.space.size != space.size or not np.allclose(
            other.space.centres, space.centres, atol=1e-3
        ):
            raise InvalidInput(f"{self.source} must be about the same cells as the estimate")
        return other.share

    def _counted(self, reader: TableReader, space: Any, progress: ProgressBar) -> TrueShares:
        if not hasattr(space, "centres_latlng"):
            raise InvalidInput(f"{space!r} has no map; the truth must be a table of shares")
        counts, clamped = np.zeros((2, space.size), dtype=np.int64)
        outside = OutsideCount(self.outside)
        locations = LocationTable(reader, lat=self.lat, lng=self.lng, bad_rows=self.bad_rows)
        for part in locations:
            cells, taken = outside.locate(space, part.lat, part.lng)
            counts += np.bincount(cells[taken], minlength=space.size)
            clamped += np.bincount(cells, minlength=space.size)
            progress.update(reader.fraction, f"{locations.read:,} rows")
        locations.check(outside)
        total = int(counts.sum())
        return TrueShares(counts / total, total, outside, clamped / clamped.sum())


@click.command()
@click.argument("estimate", metavar="ESTIMATE")
@click.option(
    "--truth", "source", required=True, metavar="FILE", help="The true places, or shares."
)
@outside_option
@click.option("--plot", metavar="FILE", help="Draw truth and estimate as maps (.png, .svg, .pdf).")
@location_options
@machine_options
def command(estimate: str, machine: bool, plot: str | None, **options: Any) -> None:
    """Compare an estimate with the truth: earth mover's distance in km and total variation.

    Beside it stand two yardsticks: the uniform guess, and the noisy reports taken at their word.
    Where the estimate has intervals, their coverage is the share of cells whose true share lies in
    theirs. FILE holds true places (CSV, Parquet, GeoJSON), or a share for each cell.

    \b
    geoveil evaluate estimate.geojson --truth checkins.csv
    """
    truth = Truth(**options)
    if plot is not None:
        picture_kind(plot)
        check_target(plot, estimate, truth.source)
    console = Console(machine=machine)
    with console.progress("reading the estimate") as progress:
        result = read_result(estimate)
        check_transport(result.space)
        progress.stage("reading the truth")
        found = truth.shares(result.space, progress)
        shares = found.shares
        progress.stage("comparing")
        distances = _distances(result, shares)
        if plot is not None:
            _draw(plot, result, shares)
    warn_of_outside(console, found.outside)
    clamped = found.looks_clamped(result.share)
    if clamped:
        console.warn(
            "the estimate is nearer to a truth whose places outside are moved to the nearest cell: "
            "its reports were probably clamped, which draws crowds along the edge that are not "
            "there; make them again with --outside drop"
        )
    values = {
        "cells": result.space.size,
        "unit": result.space.unit,
        "true_places": found.places,
        "outside_dropped": found.outside.dropped,
        "outside_clamped": found.outside.clamped,
        "estimate_looks_clamped": clamped,
        **{name: vars(distance) for name, distance in distances.items()},
        "coverage": _coverage(result, shares),
    }
    console.result(values, lambda screen: _show(screen, values, distances, found.outside))


def _distances(result: Result, truth: FloatArray) -> dict[str, Distance]:
    others = {"estimate": result.share, "uniform_guess": np.full(truth.size, 1 / truth.size)}
    if result.reports is not None and result.reports.any():
        others["noisy_reports"] = result.reports / result.reports.sum()
    return {name: _distance(other, truth, result.space) for name, other in others.items()}


def _distance(other: FloatArray, truth: FloatArray, space: Space) -> Distance:
    try:
        moved: float | None = earth_movers_distance_km(other, truth, space)
    except TooLarge:
        moved = None
    return Distance(moved, total_variation(other, truth))


def _coverage(result: Result, truth: FloatArray) -> dict[str, Any] | None:
    """The share of cells whose interval holds the truth; of those where anybody was, by themselves too."""
    if result.low is None or result.high is None:
        return None
    held = (result.low <= truth) & (truth <= result.high)
    occupied = truth > 0
    return {
        "level": (result.description or {}).get("interval_level"),
        "all_cells": float(held.mean()),
        "occupied_cells": float(held[occupied].mean()),
    }


def _draw(path: str, result: Result, truth: FloatArray) -> None:
    panels = [Panel("truth", truth)]
    if result.reports is not None and result.reports.any():
        panels.append(Panel("noisy reports, as they came", result.reports / result.reports.sum()))
    panels.append(Panel("estimate", result.share))
    with binary_sink(path) as sink:
        save_maps(sink, picture_kind(path), result.space, panels)


def _show(
    screen: RichConsole,
    values: dict[str, Any],
    distances: dict[str, Distance],
    outside: OutsideCount,
) -> None:
    unit = values["unit"]
    table = Table(
        "", f"earth mover's distance ({unit})", "total variation", box=None, pad_edge=False
    )
    for name, distance in distances.items():
        moved = "too many cells" if distance.emd_km is None else f"{distance.emd_km:.4f}"
        table.add_row(name.replace("_", " "), moved, f"{distance.total_variation:.4f}")
    screen.print(table)
    lines = {}
    if values["true_places"] is not None:
        lines["truth"] = f"{values['true_places']:,} places in {values['cells']:,} cells"
    if outside.outside:
        lines["outside"] = outside.sentence()
    if values["coverage"] is not None:
        lines["coverage"] = _coverage_words(values["coverage"])
    screen.print(two_columns(lines))


def _coverage_words(coverage: dict[str, Any]) -> str:
    level = coverage["level"]
    kind = "the intervals" if level is None else f"the {100 * level:g} % intervals"
    return (
        f"{kind} hold the true share of {100 * coverage['all_cells']:.1f} % of all cells "
        f"and of {100 * coverage['occupied_cells']:.1f} % of those where anybody was"
    )
