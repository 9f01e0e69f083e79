"""Several reports of one person about one place, read from files and joined by person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from geoveil.arrays import IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.channel.joint import JointTally
from geoveil.errors import InvalidFile, InvalidInput, Unsupported
from geoveil.table.locations import Reading, check_column
from geoveil.table.reader import TableReader
from geoveil.table.report_places import rim_reports
from geoveil.table.slot_counts import reported_beside

MOST_ENTRIES = 1 << 27
"""Positions in a cell × cells × people with several reports, a gigabyte of numbers."""
MOST_REPORTS = 64
"""Of one person."""


@dataclass
class PersonReports:
    """The reports of one file: who made them, and the mechanism."""

    name: str
    channel: Channel
    by_person: dict[str, list[int]] = field(default_factory=dict)


def read_persons(
    reader: TableReader,
    channel: Channel,
    reading: Reading,
    column: str,
    *,
    advance: Callable[[int], None] = lambda rows: None,
) -> PersonReports:
    """The reports of a file by the entries of a column; rows without an entry are refused."""
    if rim_reports(channel) is None:
        raise Unsupported(f"reports of {channel!r} are not cells; use its tally method")
    check_column(reader.columns, column, reader.name)
    found, rows = PersonReports(reader.name, channel), 0
    for cells, values in reported_beside(reader, channel, reading, column):
        for cell, person in zip(cells.tolist(), values.to_pylist(), strict=True):
            rows += 1
            if person is None or person in ("", b""):
                raise InvalidFile(
                    f"row {rows} of {reader.name} must name a person in column {column!r}; it names none"
                )
            name = person.decode("utf-8", "replace") if isinstance(person, bytes) else str(person)
            found.by_person.setdefault(name, []).append(cell)
        advance(rows)
    if not rows:
        raise InvalidFile(f"{reader.name} must have at least one report; it has none")
    return found


def joint_tallies(files: Sequence[PersonReports]) -> list[Tally]:
    """One tally for everybody with a single report, and one for each way to have several.

    A way is how many reports come from which file. No sentence names a person.
    """
    ways: dict[tuple[int, ...], list[list[int]]] = {}
    persons = dict.fromkeys(person for each in files for person in each.by_person)
    for person in persons:
        way, reports = [], []
        for number, each in enumerate(files):
            mine = each.by_person.get(person, [])
            way += [number] * len(mine)
            reports += mine
        if len(reports) > MOST_REPORTS:
            raise InvalidInput(
                f"reports of one person ({len(reports)}) must be at most {MOST_REPORTS}; is the column "
                "that of persons?"
            )
        ways.setdefault(tuple(way), []).append(reports)
    return [_tally(files, way, rows) for way, rows in sorted(ways.items())]


def _tally(files: Sequence[PersonReports], way: Sequence[int], rows: list[list[int]]) -> Tally:
    channels = [files[number].channel for number in way]
    if len(channels) == 1:
        single: IntArray = np.array(rows, dtype=np.int64)[:, 0]
        return Tally(channels[0], np.bincount(single, minlength=channels[0].report_count))
    kinds = len(Counter(map(tuple, rows)))
    positions = max(channel.positions_across for channel in channels) ** 2
    entries = positions * channels[0].space.size * kinds
    if entries > MOST_ENTRIES:
        raise InvalidInput(
            f"combinations of reports ({kinds:,}) × cells ({channels[0].space.size:,}) × positions in "
            f"a cell ({positions}) must be at most {MOST_ENTRIES:,}; choose larger cells, or --between "
            "cells when obfuscating"
        )
    return JointTally(channels, rows)
