"""What ``geoveil estimate`` reads: files of noisy reports and tallies, and which mechanisms made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

import geoveil as gv
from geoveil.cli import options as shared
from geoveil.cli.console import Console, ProgressBar
from geoveil.document.saved import AnyMechanism, mechanism_from_dict
from geoveil.errors import GeoveilError, InvalidFile, number_of
from geoveil.position.positional import Placed
from geoveil.table import locations, reports
from geoveil.table.reader import Source, TableReader, is_pipe
from geoveil.table.results import OF_ESTIMATES
from geoveil.table.tallies import is_tally

OWN_MAP = "the mechanism brings its own map"


@dataclass(frozen=True)
class Inputs:
    """Files of reports and tally documents, and how to read them."""

    sources: tuple[str, ...]
    mechanism: str | None
    area: shared.Area
    reading: locations.Reading
    console: Console
    progress: ProgressBar

    def tallies(self) -> list[gv.Tally]:
        """One tally for each file, in their order.

        Reports of continuous noise go into the cells of the map that the other files are about, so
        these come first; the pipe, which cannot be read twice, comes last.
        """
        tallies: dict[int, gv.Tally] = {}
        order = sorted(range(len(self.sources)), key=lambda number: is_pipe(self.sources[number]))
        for wait in (True, False):
            for number in order:
                space = next((tally.space for tally in tallies.values()), None)
                if number not in tallies:
                    tally = self._tally(self.sources[number], space, wait=wait)
                    tallies |= {} if tally is None else {number: tally}
        return [tallies[number] for number in range(len(self.sources))]

    def by_slot(self, slots: reports.SlotColumn) -> dict[str, list[gv.Tally]]:
        """The tallies of each slot over all files, slots in their order."""
        by_name: dict[str, list[gv.Tally]] = {}
        for reader, channel in self._files("slots", "--by"):
            tallies, left_out, standing = reports.count_by_slot(
                reader, channel, self.reading, slots, advance=self._advance(reader)
            )
            for name, tally in tallies.items():
                by_name.setdefault(name, []).append(tally)
            if left_out:
                were = "has no slot and was" if left_out == 1 else "have no slot and were"
                self.console.warn(f"{number_of(left_out, 'row')} of {reader.name} {were} left out")
            if standing:
                self.console.warn(
                    f"{number_of(standing, 'time')} without an offset in {reader.name}: --zone leaves such "
                    f"as they stand, for hours of {slots.zone}; write Z behind times of UTC"
                )
        return {name: by_name[name] for name in reports.in_order(set(by_name))}

    def by_person(self, column: str) -> list[gv.Tally]:
        """The reports of all files by person: those of one person are about one place."""
        files = [
            reports.read_persons(
                reader, channel, self.reading, column, advance=self._advance(reader)
            )
            for reader, channel in self._files("persons", "--joint")
        ]
        named = [person for file in files for person in file.by_person]
        if len(files) > 1 and len(set(named)) == len(named):
            self.console.warn(
                f"nobody is in two of the {len(files)} files by {column!r}: every file counts people of its "
                "own; are they named alike in all?"
            )
        self.progress.stage("joining the reports of each person")
        return reports.joint_tallies(files)

    def _files(self, what: str, option: str) -> Iterator[tuple[TableReader, gv.Channel]]:
        """Every file, open, and the channel of its reports; a tally says nothing of ``what``."""
        space: gv.Space | None = None
        for path in self.sources:
            self.progress.stage(f"counting {path}")
            source = Source(path) if is_pipe(path) else path
            if is_tally(source):
                raise click.UsageError(
                    f"{path} is a tally, which says nothing of {what}; leave {option} out"
                )
            with self.reading.open(source) as reader:
                channel = self._channel(self._mechanism(reader), path, space)
                yield reader, channel
            space = channel.space

    def _advance(self, reader: TableReader) -> Callable[[int], None]:
        return lambda rows: self.progress.update(reader.fraction, number_of(rows, "report"))

    def _tally(self, path: str, space: gv.Space | None, *, wait: bool) -> gv.Tally | None:
        """The tally of a file; ``None`` for continuous reports that may ``wait`` for a map."""
        self.progress.stage(f"counting {path}")
        source = Source(path) if is_pipe(path) else path  # the pipe is looked at and then read on
        if is_tally(source):
            self.area.refuse(OWN_MAP)
            return gv.load_tally(source)
        with self.reading.open(source) as reader:
            mechanism = self._mechanism(reader)
            if wait and not is_pipe(path) and isinstance(mechanism, gv.ContinuousLaplace):
                return None
            tally, outside = reports.count_reports(
                reader,
                self._channel(mechanism, path, space),
                self.reading,
                advance=self._advance(reader),
            )
            # Noise without cells of its own leaves the box by itself; then only a hint is worth a word.
            if outside.hint or not isinstance(mechanism, gv.ContinuousLaplace):
                self.console.warn_of_outside(outside)
            return tally

    def _mechanism(self, reader: TableReader) -> AnyMechanism:
        if "to_cell" in reader.columns:
            self.console.note(
                f"{reader.name} holds trips, and this is where they begin; geoveil flows reads both ends"
            )
        return mechanism_of(reader, self.mechanism, alone=len(self.sources) == 1)

    def _channel(self, mechanism: AnyMechanism, path: str, space: gv.Space | None) -> gv.Channel:
        """The channel of the reports; continuous ones are put in the cells of a grid."""
        if not isinstance(mechanism, gv.ContinuousLaplace):
            self.area.refuse(OWN_MAP)
            return mechanism
        if self.area.within is not None:
            raise click.UsageError(
                "--within is not for points of continuous noise, which lie anywhere; give --box"
            )
        if self.area.box is not None:
            return mechanism.on(_whole(self.area.grid()))
        if space is None and is_pipe(path):
            raise click.UsageError("--box must be given for a pipe, which cannot be read twice")
        if space is not None and not isinstance(space, gv.Grid):
            raise click.UsageError(
                f"{path} holds points, which must be counted in the cells of a grid; "
                f"the other files are about {space!r}"
            )
        # the box of the reports of all files, which are noisy already
        return mechanism.on(space or _whole(self.area.grid(self.reading.box(*self.sources))))


def _whole(grid: Placed) -> gv.Grid:
    assert isinstance(grid, gv.Grid)
    return grid


def mechanism_of(
    reader: TableReader, path: str | None, *, what: str = "reports", alone: bool = True
) -> AnyMechanism:
    """The mechanism that the file carries, or the one given for files that carry none.

    Where the file stands ``alone`` it is refused that both are there and differ.
    """
    carried = reader.metadata
    if carried is not None and OF_ESTIMATES.keys() & carried.keys():
        raise InvalidFile(f"{reader.name} must hold noisy {what}; it is an estimate already")
    stated = None if path is None else gv.load_mechanism(path)
    if carried is None and stated is not None:
        return stated
    if carried is None:
        raise InvalidFile(
            f"{reader.name} does not say which mechanism made its reports; give it with "
            "--mechanism FILE, the document that geoveil obfuscate --save-mechanism FILE writes"
        )
    try:
        own = mechanism_from_dict(carried)
    except GeoveilError as problem:
        raise InvalidFile(f"{reader.name}: {problem}") from None
    if stated is not None and stated != own and alone:
        raise click.UsageError(
            f"{reader.name} says that another mechanism than {path} made it; leave --mechanism out"
        )
    return own
