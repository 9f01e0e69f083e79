"""``--prior`` and ``--column``: what is believed about where people are, as a file says it."""

from __future__ import annotations

from dataclasses import dataclass

import click
import numpy as np

from geoveil.arrays import FloatArray, IntArray, prior_over
from geoveil.cli.console import Console
from geoveil.cli.options import INPUT, Area, Decorator, together
from geoveil.errors import InvalidFile, number_of
from geoveil.space.space import MapSpace, Space
from geoveil.table import results, streamed
from geoveil.table.amounts import Districts, Raster, is_raster, read_districts, read_raster
from geoveil.table.columns import cell_numbers
from geoveil.table.locations import Extent, Reading, list_columns, tell_bad_rows
from geoveil.table.reader import TableReader

_MANY_OUTSIDE = 0.01
OWN_MAP = "the prior brings its own map"


@dataclass(frozen=True)
class PriorFile:
    """A file of cells with an amount each, or of places or pixels that are put into the cells of a map."""

    source: str
    column: str | None

    def read(
        self, console: Console, reading: Reading, area: Area | None = None, on: Space | None = None
    ) -> results.Result:
        """The share of every cell: of the file's own map, else of ``on``, else of the area's grid."""
        area = area or Area(None, 0.5)
        if is_raster(self.source):
            if self.column is not None:
                raise click.UsageError(f"--column is for tables; {self.source} is a raster")
            return self._by_area(read_raster(self.source), console, area, on)
        try:
            with reading.open(self.source) as reader:
                return self._read(reader, console, reading, area, on)
        except streamed.PlainDocument as document:
            area.refuse(OWN_MAP)
            return results.result_of(document, self.source)

    def _read(
        self, reader: TableReader, console: Console, reading: Reading, area: Area, on: Space | None
    ) -> results.Result:
        columns, carried = reader.columns, reader.metadata
        results.refuse_others(reader)
        if self.column is None and "share" not in columns:
            raise click.UsageError(
                f"--column must name the amounts in {self.source}; {list_columns(columns)}; places "
                "without amounts go through geoveil tally and geoveil estimate first"
            )
        if carried is not None:
            area.refuse(OWN_MAP)
        if carried is None and isinstance(reader, streamed.GeoJSONReader) and reader.areas:
            districts = read_districts(reader, self.column or "share")
            return self._by_area(districts, console, area, on)
        if "cell" not in columns:
            return self._located(reader, console, reading, area, on)
        if carried is None and (on is not None or area.is_chosen):
            return self._cells(reader, on or area.grid())
        if carried is None and not {"lat", "lng"} <= set(columns):
            raise click.UsageError(f"--box must be given: {self.source} has cells without a map")
        return results.read_cells(reader, self.column)

    def _by_area(
        self, amounts: Raster | Districts, console: Console, area: Area, on: Space | None
    ) -> results.Result:
        """Pixels or districts, shared out among the cells of a map by area."""
        space = on or area.grid(None if area.is_chosen else amounts.box)
        if not isinstance(space, MapSpace):
            raise InvalidFile(f"{self.source} is a map, and {space!r} has none")
        people, lost = amounts.by_cell(space)
        if not people.any():
            raise InvalidFile(f"{self.source} must hold amounts inside the box; it has none there")
        if lost > 0:
            share = "more than 99.9" if lost > 0.999 else f"{100 * lost:.3g}"  # and never 100
            console.note(f"{share} % of {self.source} lie outside the box and are left out")
        return results.Result(space, prior_over(people, space.size, name=self.source))

    def _cells(self, reader: TableReader, space: Space) -> results.Result:
        """Rows that name cells of a map which the file does not have."""
        amounts = results.amount_column(reader, self.column)
        table = results.read_numbers(reader, ["cell", amounts], amounts)
        cells = cell_numbers(table["cell"], space.size, self.source, f" of {space!r}")
        return self._result(space, cells, table[amounts], amounts)

    def _located(
        self, reader: TableReader, console: Console, reading: Reading, area: Area, on: Space | None
    ) -> results.Result:
        """Rows that are places, put into the cells of a map."""
        amounts = results.amount_column(reader, self.column)
        table, extent = reading.locations(reader, keep=[amounts]), Extent()
        parts = list(table)
        for part in parts:
            extent.add(part.lat, part.lng)
        extent.check(self.source)
        tell_bad_rows(self.source, table.bad, table.read)
        space = on or area.grid(None if area.is_chosen else extent.box(self.source))
        if not isinstance(space, MapSpace):
            raise InvalidFile(
                f"{self.source} must have a column 'cell', since {space!r} has no map"
            )
        lat = np.concatenate([part.lat for part in parts])
        lng = np.concatenate([part.lng for part in parts])
        written = [part.others.column(amounts) for part in parts]
        values = results.checked_amounts(written, amounts, self.source, table.bad)
        cells, inside = space.nearest_cells(lat=lat, lng=lng)
        self._tell_outside(int(np.count_nonzero(~inside)), inside.size, console)
        result = self._result(space, cells[inside], values[inside], amounts)
        if on is None and not area.is_chosen:
            console.note(
                f"the places of {self.source} are put into {space!r}; --box chooses another"
            )
        return result

    def _tell_outside(self, outside: int, rows: int, console: Console) -> None:
        lie, are = ("lies", "is") if outside == 1 else ("lie", "are")
        words = f"{outside:,} of {number_of(rows, 'row')} of {self.source} {lie} outside the box"
        if outside == rows:
            raise InvalidFile(
                f"{words}; give another --box, or are latitude and longitude in the other order?"
            )
        if outside:
            tell = console.warn if outside >= _MANY_OUTSIDE * rows else console.note
            tell(f"{words} and {are} left out")

    def _result(
        self, space: Space, cells: IntArray, values: FloatArray, column: str
    ) -> results.Result:
        people = np.bincount(cells, weights=values, minlength=space.size)
        name = f"column {column!r} of {self.source}"
        return results.Result(space, prior_over(people, space.size, name=name))


def prior_options(help: str, *, required: bool = False) -> Decorator:
    """``--prior`` and ``--column``, which reach the command as ``prior``; ``None`` without a file."""

    def build(source: str | None, column: str | None) -> PriorFile | None:
        if source is None and column is not None:
            raise click.UsageError("--column must come with --prior FILE, which has such a column")
        return None if source is None else PriorFile(source, column)

    return together(
        click.option("--prior", "source", type=INPUT, required=required, metavar="FILE", help=help),
        click.option("--column", metavar="NAME",
                     help="Column of the prior's amounts, such as population; share unless given."),
        name="prior", make=build,
    )  # fmt: skip
