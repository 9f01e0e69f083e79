"""What was observed, as files say it: tallies out of tally documents and tables of noisy reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from geoveil.channel.base import Channel
from geoveil.channel.tally import Tally
from geoveil.cli.choice import lay_grid
from geoveil.cli.console import ProgressBar
from geoveil.errors import GeoveilError, InvalidFile
from geoveil.mechanism.continuous_laplace import ContinuousLaplace
from geoveil.mechanism.planar_laplace import PlanarLaplace
from geoveil.report.document import AnyMechanism, load_mechanism, mechanism_from_dict
from geoveil.table import Extent, LocationTable, open_table
from geoveil.table.format import PIPE
from geoveil.table.locations import BadRows
from geoveil.table.reader import TableReader
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
        """One tally for each file, in their order."""
        return [self._tally(source, progress) for source in self.sources]

    def _tally(self, source: str, progress: ProgressBar) -> Tally:
        progress.stage(f"counting {source}")
        if source != PIPE and is_tally(source):
            return load_tally(source)
        with self._open(source) as reader:
            return count_reports(
                reader,
                self._channel(self._mechanism(reader), source),
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
                f"{reader.name} does not say which mechanism made its reports (Parquet and GeoJSON "
                "written by geoveil obfuscate do); give --mechanism mechanism.json"
            )
        given = None if self.mechanism is None else load_mechanism(self.mechanism)
        if carried is None:
            assert given is not None
            return given
        made_by = _rebuilt(carried, reader.name)
        if given is not None and given != made_by:
            raise click.UsageError(
                f"{reader.name} says that another mechanism than {self.mechanism} made it; "
                "leave --mechanism out"
            )
        return made_by

    def _channel(self, mechanism: AnyMechanism, source: str) -> Channel:
        """The channel of the reports; continuous ones are put in the cells of a grid."""
        if not isinstance(mechanism, ContinuousLaplace):
            if self.box is not None:
                raise click.UsageError("--box is of no use here: the mechanism brings its own map")
            return mechanism
        if self.box is None and source == PIPE:
            raise click.UsageError("--box must be given for a pipe, which cannot be read twice")
        grid = lay_grid(self.box or tuple(self._extent(source)), self.cell_km)
        return PlanarLaplace(grid, epsilon_per_km=mechanism.epsilon_per_km)

    def _extent(self, source: str) -> Any:
        """The box of the reports of all files, which are noisy already."""
        extent = Extent()
        for each in self.sources:
            if is_tally(each):
                raise click.UsageError(f"--box must be given to join {source} with {each}")
            with self._open(each) as reader:
                for part in LocationTable(
                    reader, lat=self.lat, lng=self.lng, bad_rows=self.bad_rows
                ):
                    extent.add(part.lat, part.lng)
        return extent.box(source)


def _rebuilt(document: Mapping[str, Any], name: str) -> AnyMechanism:
    try:
        return mechanism_from_dict(document)
    except GeoveilError as problem:
        raise InvalidFile(f"{name}: {problem}") from None
