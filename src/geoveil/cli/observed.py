"""What was observed, as files say it: tallies out of tally documents and tables of noisy reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from geoveil.channel.channel import Channel, Tally
from geoveil.cli.choice import lay_grid
from geoveil.cli.console import ProgressBar
from geoveil.document.saved import AnyMechanism, load_mechanism, mechanism_from_dict
from geoveil.errors import GeoveilError, InvalidFile
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.space.grid import Grid
from geoveil.space.space import Space
from geoveil.table import Extent, LocationTable, open_table
from geoveil.table.locations import BadRows
from geoveil.table.reader import PIPE, TableReader
from geoveil.table.tallies import count_reports, is_tally, load_tally


@dataclass(frozen=True)
class Inputs:
    """Files of one kind or the other, and how to read them."""

    sources: tuple[str, ...]
    mechanism: str | None
    box: tuple[float, ...] | None
    cell_km: float
    lat: str | None
    lng: str | None
    bad_rows: BadRows
    delimiter: str
    format: str | None

    def tallies(self, progress: ProgressBar) -> list[Tally]:
        """One tally for each file, in their order.

        Reports of continuous noise go into the cells of the map that the other files are about, so
        these come first; the pipe, which cannot be read twice, comes last.
        """
        found: dict[int, Tally] = {}
        points: list[int] = []
        order = sorted(range(len(self.sources)), key=lambda number: self.sources[number] == PIPE)
        for number in order:
            tally = self._tally(self.sources[number], _map_of(found), progress, wait=True)
            points += [number] if tally is None else []
            found |= {} if tally is None else {number: tally}
        for number in points:
            tally = self._tally(self.sources[number], _map_of(found), progress, wait=False)
            assert tally is not None
            found[number] = tally
        return [found[number] for number in range(len(self.sources))]

    def _tally(
        self, source: str, space: Space | None, progress: ProgressBar, *, wait: bool
    ) -> Tally | None:
        """The tally of a file; ``None`` for continuous reports that may ``wait`` for a map."""
        progress.stage(f"counting {source}")
        if source != PIPE and is_tally(source):
            return load_tally(source)
        with self._open(source) as reader:
            mechanism = self._mechanism(reader)
            if wait and source != PIPE and isinstance(mechanism, ContinuousLaplace):
                return None
            return count_reports(
                reader,
                self._channel(mechanism, source, space),
                lat=self.lat,
                lng=self.lng,
                bad_rows=self.bad_rows,
                advance=lambda rows: progress.update(reader.fraction, f"{rows:,} reports"),
            )

    def _open(self, source: str) -> TableReader:
        drop = self.bad_rows == "drop"
        return open_table(source, format=self.format, delimiter=self.delimiter, drop_bad=drop)

    def _mechanism(self, reader: TableReader) -> AnyMechanism:
        """The mechanism the file carries, or the one given for files that carry none."""
        carried = reader.metadata
        if carried is not None and "estimate" in carried:
            raise InvalidFile(f"{reader.name} must hold noisy reports; it is an estimate already")
        if carried is None and self.mechanism is None:
            raise InvalidFile(
                f"{reader.name} does not say which mechanism made its reports; give it with "
                "--mechanism FILE, the document that geoveil obfuscate --save-mechanism FILE writes"
            )
        given = None if self.mechanism is None else load_mechanism(self.mechanism)
        if carried is None:
            assert given is not None
            return given
        made_by = _rebuilt(carried, reader.name)
        if given is not None and given != made_by and len(self.sources) == 1:
            raise click.UsageError(
                f"{reader.name} says that another mechanism than {self.mechanism} made it; "
                "leave --mechanism out"
            )
        return made_by

    def _channel(self, mechanism: AnyMechanism, source: str, space: Space | None) -> Channel:
        """The channel of the reports; continuous ones are put in the cells of a grid."""
        if not isinstance(mechanism, ContinuousLaplace):
            if self.box is not None:
                raise click.UsageError("--box is of no use here: the mechanism brings its own map")
            return mechanism
        if self.box is not None:
            return mechanism.on(lay_grid(self.box, self.cell_km))
        if space is None and source == PIPE:
            raise click.UsageError("--box must be given for a pipe, which cannot be read twice")
        if space is not None and not isinstance(space, Grid):
            raise click.UsageError(
                f"{source} holds points, which must be counted in the cells of a grid; "
                f"the other files are about {space!r}"
            )
        return mechanism.on(space or lay_grid(tuple(self._extent(source)), self.cell_km))

    def _extent(self, source: str) -> Any:
        """The box of the reports of all files, which are noisy already."""
        extent = Extent()
        for each in self.sources:
            with self._open(each) as reader:
                for part in LocationTable(
                    reader, lat=self.lat, lng=self.lng, bad_rows=self.bad_rows
                ):
                    extent.add(part.lat, part.lng)
        return extent.box(source)


def _map_of(found: Mapping[int, Tally]) -> Space | None:
    """The map that the tallies found so far are about."""
    return next((tally.space for tally in found.values()), None)


def _rebuilt(document: Mapping[str, Any], name: str) -> AnyMechanism:
    try:
        return mechanism_from_dict(document)
    except GeoveilError as problem:
        raise InvalidFile(f"{name}: {problem}") from None
