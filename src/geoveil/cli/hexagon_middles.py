"""``geoveil hexagons``: the middles of H3 hexagons over an area, as a campaign of the service takes them."""

from __future__ import annotations

import json
import math

import click

from geoveil.cli.console import Console
from geoveil.cli.options import machine_options, output_option
from geoveil.errors import InvalidInput, TooLarge
from geoveil.space import MATRIX_LIMIT, Box, Hexagons
from geoveil.table.reader import Format, format_of
from geoveil.table.writer import binary_sink, check_target

_DECIMALS = 5
"""Of the edges of the box, about a metre."""


@click.command()
@click.argument("limits", metavar="LIMITS.geojson")
@click.option("--resolution", type=click.IntRange(0, 15), required=True,
              help="Of H3: hexagons of 8 are 0.7 km² on average, of 7 5 km².")  # fmt: skip
@output_option("Where the points go, as GeoJSON.", metavar="POINTS.geojson")
@machine_options
def command(limits: str, resolution: int, output: str, machine: bool) -> None:
    """Write the middles of all H3 hexagons that overlap an area, for PUT …/area of a campaign.

    Every point says the area of its hexagon (area_km2), by which the service knows that people are anywhere
    in it, and its H3 id (h3), which is for you: the service does not keep it. Cells of the campaign are
    numbered in the order of the file. The box shown is the smallest that a campaign over them may have.
    Needs the extra h3; neither the service nor any device does.

    \b
    geoveil hexagons limits.geojson --resolution 8 -o hexagons.geojson
    """
    if format_of(output, "geojson", writing=True) is not Format.GEOJSON:
        raise InvalidInput(f"output ({output}) must end in .geojson or .json")
    check_target(output, limits)
    hexagons = Hexagons(limits, resolution=resolution)
    if hexagons.size > MATRIX_LIMIT:
        raise TooLarge(
            f"hexagons ({hexagons.size:,}) must be at most {MATRIX_LIMIT:,} in a campaign; choose a lower "
            "resolution, or a smaller area"
        )
    points = hexagons.middles_to_geojson()
    console = Console(machine=machine, output=output)
    with binary_sink(output) as sink:
        sink.write(json.dumps(points).encode() + b"\n")
    lat, lng = hexagons.centres_latlng()
    south, west, north, east = Box.around(lat=lat, lng=lng)
    scale = 10.0**_DECIMALS
    box = [math.floor(edge * scale) / scale for edge in (south, west)]
    box += [math.ceil(edge * scale) / scale for edge in (north, east)]
    area = hexagons.cell_km**2
    values = {"written": output, "hexagons": hexagons.size, "area_km2": area, "box": box}
    lines = {
        "written": output,
        "hexagons": f"{hexagons.size:,} of {area:.3g} km² on average",
        "box": ", ".join(map(str, box)),
    }
    console.result(values, lines)
