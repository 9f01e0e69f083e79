"""``geoveil evaluate``: how far an estimate is from the truth, beside two yardsticks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np
from rich.table import Table

import geoveil as gv
from geoveil.arrays import FloatArray, uniform
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, Screen, two_columns
from geoveil.errors import InvalidFile, InvalidInput, TooLarge, Unsupported, number_of
from geoveil.measure import check_transport
from geoveil.plot import maps
from geoveil.space import MapSpace, Outside, OutsideCount
from geoveil.table import results, streamed
from geoveil.table.locations import Reading
from geoveil.table.reader import TableReader


@dataclass(frozen=True)
class TrueShares:
    """The true share of each cell, of how many places; ``None`` for a table of shares."""

    shares: FloatArray
    places: int | None = None
    bad_rows: int = 0
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
        away, clamped = (
            gv.total_variation(estimate, truth) for truth in (self.shares, self.if_clamped)
        )
        return bool(clamped < away and estimate[gained].sum() > between)


@click.command()
@click.argument("estimate", type=shared.INPUT, metavar="ESTIMATE")
@click.option(
    "--truth",
    "source",
    type=shared.INPUT,
    required=True,
    metavar="FILE",
    help="The true places, or shares.",
)
@shared.outside_option
@shared.plot_option("Draw truth and estimate as maps")
@shared.location_options
@shared.machine_options
def command(
    estimate: str, source: str, outside: Outside, plot: str | None, reading: Reading, machine: bool
) -> None:
    """Compare an estimate with the truth: earth mover's distance in km and total variation.

    Beside it stand two yardsticks: the uniform guess, and the noisy reports taken at their word.
    Where the estimate has intervals, their coverage is the share of cells whose true share lies in
    theirs. FILE holds true places (CSV, Parquet, GeoJSON), or a share for each cell.

    \b
    geoveil evaluate estimate.geojson --truth checkins.csv
    """
    shared.check_picture(plot, estimate, source)
    console = Console(machine=machine)
    with console.progress("reading the estimate") as progress:
        result = results.read_result(estimate)
        check_transport(result.space)
        progress.stage("reading the truth")
        truth = _truth(source, reading, outside, result.space, progress)
        progress.stage("comparing")
        others = {"estimate": result.share, "uniform_guess": uniform(result.space.size)}
        if result.reported_share is not None:
            others["noisy_reports"] = result.reported_share
        distances = {
            name: _distance(other, truth.shares, result.space) for name, other in others.items()
        }
        if plot is not None:
            panels = maps.estimate_panels(result.share, result.reported_share)
            maps.save_maps(plot, result.space, [maps.Panel("truth", truth.shares), *panels])
    console.warn_of_outside(truth.outside)
    clamped = truth.looks_clamped(result.share)
    if clamped:
        console.warn(
            "the estimate is nearer to a truth whose places outside are moved to the nearest cell: "
            "its reports were probably clamped, which draws crowds along the edge that are not "
            "there; make them again with --outside drop"
        )
    values = {
        "cells": result.space.size,
        "unit": result.space.unit,
        "true_places": truth.places,
        "bad_rows_dropped": truth.bad_rows,
        "outside_dropped": truth.outside.dropped,
        "outside_clamped": truth.outside.clamped,
        "estimate_looks_clamped": clamped,
        **distances,
        "coverage": _coverage(result, truth.shares),
    }
    console.result(values, lambda screen: _show(screen, values, list(distances), truth.outside))


def _truth(
    source: str, reading: Reading, outside: Outside, space: gv.Space, progress: ProgressBar
) -> TrueShares:
    """The true share of each cell: places that are counted, or a table of shares."""
    try:
        with reading.open(source) as reader:
            if "share" in reader.columns:
                other = results.read_cells(reader)
            elif reader.metadata is None:
                return _counted(reader, reading, OutsideCount(outside), space, progress)
            else:
                raise InvalidFile(
                    f"{source} must hold true places, or shares; it holds noisy reports"
                )
    except streamed.PlainDocument as document:  # an estimate of the service
        other = results.result_of(document, source)
    if not _same_cells(other.space, space):
        raise InvalidInput(f"{source} must be about the same cells as the estimate")
    return TrueShares(other.share)


def _same_cells(other: gv.Space, space: gv.Space) -> bool:
    """Whether the cells lie at the same places: on the map, where both have one."""
    centres = other.centres
    if isinstance(other, MapSpace) and isinstance(space, MapSpace):
        with suppress(Unsupported):  # one of them has no map
            lat, lng = other.centres_latlng()
            centres = space.plane.to_plane(lat=lat, lng=lng)
    same = centres.shape == space.centres.shape
    return same and np.allclose(centres, space.centres, atol=1e-3)


def _counted(
    reader: TableReader, reading: Reading, outside: OutsideCount, space: gv.Space, progress: ProgressBar
) -> TrueShares:  # fmt: skip
    if not isinstance(space, MapSpace):
        raise InvalidInput(f"{space!r} has no map; the truth must be a table of shares")
    counts, clamped = np.zeros((2, space.size), dtype=np.int64)
    locations = reading.locations(reader)
    for part in locations:
        cells, usable = outside.locate(space, part.lat, part.lng)
        counts += np.bincount(cells[usable], minlength=space.size)
        clamped += np.bincount(cells, minlength=space.size)
        progress.update(reader.fraction, number_of(locations.read, "row"))
    locations.check(outside)
    total = int(counts.sum())
    return TrueShares(counts / total, total, locations.bad, outside, clamped / clamped.sum())


def _distance(other: FloatArray, truth: FloatArray, space: gv.Space) -> dict[str, float | None]:
    """How far a distribution is from the truth; ``None`` where it is too large to find."""
    try:
        moved: float | None = gv.earth_movers_distance_km(other, truth, space)
    except TooLarge:
        moved = None
    return {"emd_km": moved, "total_variation": gv.total_variation(other, truth)}


def _coverage(result: results.Result, truth: FloatArray) -> dict[str, Any] | None:
    """The share of cells whose interval holds the truth; of those where anybody was, by themselves too."""
    if result.low is None or result.high is None:
        return None
    held = (result.low <= truth) & (truth <= result.high)
    return {
        "level": (result.description or {}).get("interval_level"),
        "all_cells": float(held.mean()),
        "occupied_cells": float(held[truth > 0].mean()),
    }


def _show(screen: Screen, values: dict[str, Any], names: list[str], outside: OutsideCount) -> None:
    title = f"earth mover's distance ({values['unit']})"
    table = Table("", title, "total variation", box=None, pad_edge=False)
    for name in names:
        moved = values[name]["emd_km"]
        far = "too many cells" if moved is None else f"{moved:.4f}"
        table.add_row(name.replace("_", " "), far, f"{values[name]['total_variation']:.4f}")
    screen.print(table)
    places, coverage = values["true_places"], values["coverage"]
    lines = {"truth": "", "outside": outside.sentence()}
    if places is not None:
        cells = number_of(values["cells"], "cell")
        lines["truth"] = f"{number_of(places, 'place')} in {cells}"
    if coverage is not None:
        level = coverage["level"]
        kind = "the intervals" if level is None else f"the {100 * level:g} % intervals"
        lines["coverage"] = (
            f"{kind} hold the true share of {100 * coverage['all_cells']:.1f} % of all cells "
            f"and of {100 * coverage['occupied_cells']:.1f} % of those where anybody was"
        )
    screen.print(two_columns(lines))
