"""What a store keeps: its records, its tables, and the steps to their schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from geoveil.errors import GeoveilError, InvalidInput

ID_BYTES = 16
"""Of the id of a report."""

State = Literal["running", "paused", "ended"]
"""Of a campaign, as its operator says."""

Row = tuple[Any, ...]
Snapshot = Callable[[str], Iterable[Row]]
"""A whole store at one moment: all rows of a table by its name, columns as in ``Store.tables``."""


class StoreFailed(GeoveilError):
    """The store could not do it (disk full, database gone): nothing was acknowledged; try again later."""


class Overloaded(GeoveilError):
    """More reports wait for their commit than may: this one was not taken; try again later."""


class NewerSchema(GeoveilError):
    """The database was made by a newer program; this one does not touch it."""


class OlderSchema(InvalidInput):
    """The database was made by an older program, and nobody said that it may be changed."""

    def __init__(self, version: int, latest: int) -> None:
        self.version = version
        super().__init__(
            f"schema ({version}) must be {latest}; start the server once to migrate it"
        )


@dataclass(frozen=True, slots=True)
class CampaignRecord:
    """A campaign as it is kept: its public id, its name, and its settings as canonical JSON."""

    id: str
    name: str
    settings: bytes
    created_at_s: int
    state: State = "running"
    published_at_s: int | None = None
    """When its map was published; ``None`` where it is not."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round as it is kept: the document it published, and until when reports under it count."""

    campaign: str
    number: int
    """From 1 on; after a backup was put back, above every number published before."""
    mechanism: str
    """Id of the document: SHA-256 of its bytes, in hexadecimal."""
    document: bytes
    cells: int
    """How many different reports there are, of all levels and slots, of trips all pairs: 0 … cells − 1."""
    opened_at_s: int
    expires_at_s: int
    accept_until_s: int
    """Expiry and grace: a later report is refused."""
    closed_at_s: int | None = None
    total: int = 0
    """Reports counted so far under this mechanism, late ones included."""
    levels: str = ""
    """Ids of its documents with spaces between, the strongest promise first; empty where there is one."""
    slots: int = 1
    """How many slots of time its reports tell apart."""
    ends: int = 1
    """How many places a report names: 2 where it is a trip."""
    around: int = 0
    """1 where its cells are a list of places and people stand around each, in a cell, instead of at it."""

    @property
    def cells_each(self) -> int:
        """How many different cells a report of one level and slot may name, at each of its ends."""
        reports = self.cells // (max(1, len(self.levels.split())) * self.slots)
        return reports if self.ends == 1 else math.isqrt(reports)

    def report_number(self, mechanism: str, slot: int, cell: int, to: int = 0) -> int:
        """The number that a report is counted under: levels one after another, in each its slots.

        Of trips, which end at ``to``, the pairs of each level and slot follow each other.

        >>> ids = f"{64 * 'a'} {64 * 'b'}"
        >>> kept = RoundRecord("paris", 1, 64 * "0", b"{}", 12, 0, 10, 20, levels=ids, slots=2)
        >>> kept.cells_each, kept.report_number(64 * "b", 1, 2)
        (3, 11)
        >>> trips = RoundRecord("paris", 1, 64 * "0", b"{}", 18, 0, 10, 20, slots=2, ends=2)
        >>> trips.cells_each, trips.report_number(64 * "0", 1, 1, 2)
        (3, 14)
        """
        level = self.levels.split().index(mechanism) if self.levels else 0
        pair = cell if self.ends == 1 else cell * self.cells_each + to
        return (level * self.slots + slot) * self.cells_each**self.ends + pair


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """A round without its document, which is long: enough to know whether it is due."""

    campaign: str
    number: int
    mechanism: str
    opened_at_s: int
    expires_at_s: int
    closed_at_s: int | None
    total: int


class Progress(NamedTuple):
    """How far a campaign has come, all from one moment."""

    last: RoundRecord | None
    """Its newest round."""
    reports: int
    """Counted so far in all of its rounds."""
    closed: int
    """How many of its rounds are."""


class Upload(NamedTuple):
    """One report on its way to the store: whose round it belongs to, its id (16 bytes), its cell.

    A tuple, since thousands a second are made and taken apart.
    """

    campaign: str
    round: int
    id: bytes
    cell: int
    mechanism: str = ""
    """Where it is not empty, it must be the round's: a campaign made anew under the same id has others."""


@dataclass(frozen=True, slots=True)
class EstimateRecord:
    """What was learnt when a round closed: a JSON result, never changed afterwards."""

    campaign: str
    round: int
    made_at_s: int
    reports: int
    """How many reports, over all rounds, it was made from."""
    body: bytes
    """Canonical JSON: distribution, intervals, certificate, alarm, manipulation gain."""
    slots: bytes = b""
    """Deflated JSON: the maps of all slots, asked for by themselves; empty where there are none."""


@dataclass(frozen=True, slots=True)
class ClosingRecord:
    """A round that is closed and waits for its estimate."""

    campaign: str
    round: int
    closed_at_s: int
    failures: int = 0
    """Attempts that failed."""
    claimed_until_s: int = field(default=0, compare=False)
    """Until when a process has claimed it, by the clock of that process; 0: nobody has."""


@dataclass(frozen=True, slots=True)
class PreparationRecord:
    """A round that opens when its mechanisms are made, in a campaign that waits for it."""

    campaign: str
    round: int
    space: bytes = b""
    """Its cells as canonical JSON; empty for all of the box."""
    failures: int = 0
    """Attempts that failed."""
    problem: str = ""
    """Why it cannot be, in one sentence; empty while it may."""
    claimed_until_s: int = field(default=0, compare=False)
    """The same as in a :class:`ClosingRecord`."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """An operator's token as it is kept."""

    digest: bytes
    """SHA-256 of the token."""
    label: str
    created_at_s: int


Job = ClosingRecord | PreparationRecord
"""What a process takes to work on: a round that closed, or one that is to open."""


# --- The tables of a store as they travel from one database to another: names and columns, in order


_COLUMNS = {
    "campaign": "key id name settings created_at_s state published_at_s backdrop",
    "round": "key campaign_key number mechanism document cells opened_at_s expires_at_s"
    " accept_until_s closed_at_s ids_dropped levels slots ends around",
    "level": "mechanism round_key",
    "report": "campaign_key id round_key",
    "tally": "round_key cell count",
    "round_total": "round_key count",
    "closing": "round_key closed_at_s claimed_until_s failures given_up_at_s estimated",
    "closing_tally": "closing_key round_key counts",
    "estimate": "round_key made_at_s reports body slots",
    "preparation": "campaign_key number space claimed_until_s failures problem",
    "ticket_key": "campaign_key primes",
    "invitation": "campaign_key digest request",
    "token": "digest label created_at_s",
    "upkeep": "key seen_at_s copied_at_s",
}
TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {table: tuple(columns.split()) for table, columns in _COLUMNS.items()}
)
"""Table → columns; a table comes after those it refers to."""


def tables_among(existing: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    """The part of :data:`TABLES` that a database of an older program has: ``existing`` (table, column)."""
    pairs = set(existing)
    tables = {
        table: tuple(name for name in columns if (table, name) in pairs)
        for table, columns in TABLES.items()
    }
    return {table: columns for table, columns in tables.items() if columns}


# --- Numbered steps from an empty database to the schema of this program, and back


_NAME = re.compile(r"(?P<number>\d{4})_(?P<name>\w+)\.up\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, and how to take it back."""

    number: int
    name: str
    up: str
    down: str


@cache
def migrations(database: str) -> tuple[Migration, ...]:
    """All steps for ``sqlite`` or ``postgres``, in order.

    >>> [step.number for step in migrations("sqlite")]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    """
    folder = files("geoveil.store") / "schema" / database
    matches = [match for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return tuple(
        Migration(
            number=int(match["number"]),
            name=match["name"],
            up=(folder / match[0]).read_text(encoding="utf-8"),
            down=(folder / match[0].replace(".up.", ".down.")).read_text(encoding="utf-8"),
        )
        for match in sorted(matches, key=lambda match: match[0])
    )


def missing(
    steps: tuple[Migration, ...], version: int, *, create: bool = True
) -> tuple[Migration, ...]:
    """The steps a database of this version has yet to take; where not ``create``, there must be none."""
    latest = steps[-1].number
    if version > latest:
        raise NewerSchema(
            f"schema ({version}) must be at most {latest}: a newer program made this database; "
            "use that program"
        )
    if version < latest and not create:
        raise OlderSchema(version, latest)
    return tuple(step for step in steps if step.number > version)
