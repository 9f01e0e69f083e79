"""``geoveil flows``: from noisy trips to flows between districts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import click
import numpy as np

import geoveil as gv
from geoveil.arrays import FloatArray, IntArray
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar, Screen, columns_of_numbers, in_words
from geoveil.cli.estimate_inputs import mechanism_of
from geoveil.errors import GeoveilError, InvalidFile, InvalidInput, number_of, percent
from geoveil.estimate.bars import checked_level
from geoveil.plot.pictures import FlowPicture, save_flows
from geoveil.space import AnyGrid, MapSpace
from geoveil.table import district_tables, trip_rows, writer
from geoveil.table.locations import Reading, TripEnd
from geoveil.table.reader import Source, format_of, is_pipe
from geoveil.table.tallies import is_tally, load_trip_tally
from geoveil.trips.flows import DistrictFlows, blocks, middles_km
from geoveil.trips.pairs import TripTally

_SHOWN = 8
"""The largest flows that are printed."""
_FITTING = 0.4
"""The part of the work before the intervals, roughly."""


@click.command()
@shared.inputs_argument
@shared.output_option("File of flows between districts; - for a pipe.")
@click.option("--block", type=click.IntRange(min=1), default=3, show_default=True,
              help="Districts are blocks of so many by so many cells.")  # fmt: skip
@shared.zone_options("Districts in GeoJSON in the place of blocks.")
@shared.level_option("pair of districts")
@click.option("--replicates", type=click.IntRange(min=2), default=40, show_default=True,
              help="How often the estimate is made again for the intervals.")  # fmt: skip
@click.option("--no-intervals", is_flag=True, help="Leave the intervals out, which take longest.")
@shared.mechanism_file_option
@shared.plot_option("Draw the largest flows on a map")
@shared.location_options
@click.option("--to-lat", help="Column of the latitude where trips end.")
@click.option("--to-lng", "--to-lon", "to_lng", help="Column of the longitude where trips end.")
@shared.machine_options
def command(
    sources: tuple[str, ...], output: str, block: int, zones: str | None, zone_name: str,
    level: float, replicates: int,
    no_intervals: bool, mechanism: str | None, plot: str | None, reading: Reading,
    to_lat: str | None, to_lng: str | None, machine: bool,
) -> None:  # fmt: skip
    """Estimate how many trips go from where to where, from noisy trips.

    IN are files that geoveil obfuscate --trips wrote, or tallies of geoveil tally --trips; several must
    come from one mechanism. OUT has one row for each pair of districts: the share of all trips, standard
    error and interval; as GeoJSON the pairs are lines. Single pairs of cells are known badly; quote
    districts, with their intervals.

    \b
    geoveil flows noisy.parquet -o flows.geojson --plot flows.png
    geoveil flows monday.json tuesday.json -o flows.csv --block 4
    geoveil flows noisy.parquet -o flows.csv --zones districts.geojson
    """
    format_of(output, reading.format, writing=True)
    checked_level(level)
    writer.check_target(output, *sources, mechanism, zones)
    shared.check_picture(plot, *sources, output)
    console = Console(machine=machine, output=output)
    reading = replace(reading, to=TripEnd(to_lat, to_lng))
    with console.progress("counting") as progress:
        tally = _counted(sources, mechanism, reading, console, progress)
        progress.stage("estimating")
        whole = 1.0 if no_intervals else _FITTING
        flows = gv.Trips(tally.channel).fit(
            tally, replicates=replicates,
            progress=lambda done, of: progress.update(whole * done / of),
        )  # fmt: skip
        if zones is None:
            numbers, told = numbered_blocks(flows.space, block)
            between = flows.between(numbers)
        else:
            told = f"those of {in_words(zones)}"
            between = flows.between(zones, name=zone_name)
        if not no_intervals:
            progress.update(_FITTING, "intervals")
        table = flow_table(between, told, None if no_intervals else level)
        progress.stage("writing")
        writer.write_by(district_tables.put_flows, output, table, format=reading.format)
        if plot is not None:
            save_flows(plot, picture_of(between, table))
    values = {"output": output, **(table.description or {})}
    console.result(values, lambda screen: _show(screen, table, output, plot))


def numbered_blocks(space: gv.Space, side: int) -> tuple[IntArray, str]:
    """The block of side × side cells that each is in, from the south-west row by row, and what they are."""
    if not isinstance(space, AnyGrid):
        return np.arange(space.size), f"places of {space!r}"
    what = "cells" if side == 1 else f"blocks of {side} × {side} cells"
    # those without a cell of the city are left out of the numbers
    return np.unique(blocks(space, side), return_inverse=True)[1], what


def flow_table(between: DistrictFlows, told: str, level: float | None) -> district_tables.FlowTable:
    """All that a file says of flows; ``told`` is what the districts are; without a level, no intervals."""
    flows = between.flows
    bars: dict[str, FloatArray] = {}
    stays: dict[str, Any] = {
        "stay_share": flows.stay_share,
        "stay_in_district_share": between.stay_share,
    }
    if level is not None:
        low, high = between.interval(level)
        bars = {"standard_error": between.standard_error, "low": low, "high": high}
        stays["stay_interval"] = list(flows.stay_interval(level))
    description = {
        "space": flows.space.to_dict(),
        "trips": flows.total,
        "districts": told,
        "pairs": between.count**2,
        "steps": flows.steps,
        "stopped": flows.stopped,
        **stays,
        "elsewhere_share": between.elsewhere_share,
        "interval_level": level,
        "error_bars": "none: they were not asked for" if level is None else between.errors.method,
    }
    middles, space = None, flows.space
    with suppress(GeoveilError):  # not all spaces have a map
        if isinstance(space, MapSpace):
            middles = np.stack(space.plane.to_latlng(middles_km(space, between.members)), axis=1)
    return district_tables.FlowTable(
        between.names, between.matrix, middles, description=description, **bars
    )


def picture_of(between: DistrictFlows, table: district_tables.FlowTable) -> FlowPicture:
    """The same as a picture."""
    flows = between.flows
    ends = (flows.origins + flows.destinations) / 2
    middles = middles_km(flows.space, between.members)
    return FlowPicture(flows.space, middles, table.share, table.low, ends)


def _counted(
    sources: tuple[str, ...], given: str | None, reading: Reading, console: Console,
    progress: ProgressBar,
) -> TripTally:  # fmt: skip
    """One tally of all files, which must come from one mechanism."""
    total: TripTally | None = None
    for path in sources:
        progress.stage(f"counting {path}")
        source = Source(path) if is_pipe(path) else path
        if is_tally(source):
            tally = load_trip_tally(source)
        else:
            with reading.open(source) as reader:
                channel = mechanism_of(reader, given, what="trips")
                if not isinstance(channel, gv.Channel):
                    raise InvalidFile(
                        f"{reader.name} must hold trips between cells; its reports are points"
                    )
                tally, outside = trip_rows.count_trip_reports(
                    reader, channel, reading,
                    advance=lambda rows: progress.update(reader.fraction, number_of(rows, "trip")),
                )  # fmt: skip
                console.warn_of_outside(outside)
        if total is not None and tally.channel != total.channel:
            raise InvalidInput(
                f"{path} must come from the mechanism of the files before it; flows of different "
                "mechanisms are not pooled; estimate each by itself"
            )
        total = tally if total is None else total + tally
    assert total is not None
    return total


def _show(screen: Screen, table: district_tables.FlowTable, output: str, plot: str | None) -> None:
    about = table.description or {}
    screen.print(
        f"{number_of(about['pairs'], 'pair')} of districts ({about['districts']}) from "
        f"{number_of(about['trips'], 'trip')}, in {in_words(output)}{f', drawn in {plot}' if plot else ''}"
    )
    interval = about.get("stay_interval")
    ends = f" ({_percents(*interval)})" if interval else ""
    screen.print(
        f"{percent(about['stay_share'])} of trips stay in their cell{ends}, "
        f"{percent(about['stay_in_district_share'])} in their district"
    )
    headings = ["to", "share"] + (["interval"] if table.low is not None else [])
    rows = columns_of_numbers(headings, first="from")
    for place in np.argsort(-table.share, axis=None, kind="stable")[:_SHOWN].tolist():
        begun, ended = divmod(place, len(table.names))
        row = [table.names[begun], table.names[ended], percent(table.share[begun, ended])]
        if table.low is not None and table.high is not None:
            row.append(_percents(table.low[begun, ended], table.high[begun, ended]))
        rows.add_row(*row)
    screen.print(rows)
    if table.low is not None:
        screen.print(f"Intervals of pairs: {about['error_bars']}; each is for one pair by itself.")


def _percents(low: float, high: float) -> str:
    return f"{percent(low).removesuffix(' %')}–{percent(high)}"
