"""What every store does, what is uploaded to it, and its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from geoveil.arrays import IntArray
from geoveil.errors import GeoveilError, InvalidInput


class StoreFailed(GeoveilError):
    """The store could not do it (disk full, database gone): nothing was acknowledged; try again later."""


class Overloaded(GeoveilError):
    """More reports wait for their commit than may: this one was not taken; try again later."""


class NewerSchema(GeoveilError):
    """The database was made by a newer program; this one does not touch it."""


@dataclass(frozen=True, slots=True)
class CampaignRecord:
    """A campaign as it is kept: its public id, its name, and its settings as canonical JSON."""

    id: str
    name: str
    settings: bytes
    created_at_s: int


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """A round as it is kept: the document it published, and until when reports under it count."""

    campaign: str
    number: int
    """From 1, without gaps."""
    mechanism: str
    """Id of the document: SHA-256 of its bytes, in hexadecimal."""
    document: bytes
    cells: int
    """How many different reports there are: cells 0 … cells − 1."""
    opened_at_s: int
    expires_at_s: int
    accept_until_s: int
    """Expiry and grace: a later report is refused."""
    closed_at_s: int | None = None
    total: int = 0
    """Reports counted so far under this mechanism, late ones included."""


class Upload(NamedTuple):
    """One report on its way to the store: whose round it belongs to, its id (16 bytes), its cell.

    A tuple, since thousands a second are made and taken apart.
    """

    campaign: str
    round: int
    id: bytes
    cell: int


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


@dataclass(frozen=True, slots=True)
class Closing:
    """A round that is closed and waits for its estimate: the counts of every round at that moment."""

    campaign: str
    round: int
    closed_at_s: int
    counts: Mapping[int, IntArray]
    """Round number → counts by cell, as of the closing transaction."""


class Store(Protocol):
    """Campaigns, rounds, counts. Thread-safe; calls block until their commit.

    Reads see every commit that was acknowledged before they began.
    """

    @property
    def engine(self) -> str:
        """What it is built on, with its version: ``SQLite 3.54.1``."""

    # -- campaigns and rounds --------------------------------------------------------------------

    def create_campaign(self, campaign: CampaignRecord, first: RoundRecord) -> bool:
        """Keep a campaign with its first round; ``False`` (and nothing kept) where the id exists."""

    def campaigns(self) -> list[CampaignRecord]:
        """All campaigns, oldest first."""

    def campaign(self, campaign: str) -> CampaignRecord | None:
        """One campaign."""

    def rounds(self, campaign: str) -> list[RoundRecord]:
        """All rounds of a campaign, oldest first, with their totals now."""

    def round_of(self, mechanism: str) -> RoundRecord | None:
        """The round that published this document."""

    # -- reports ---------------------------------------------------------------------------------

    def add(self, uploads: Sequence[Upload]) -> list[bool]:
        """Count reports in one transaction; ``True`` where the id was new in its campaign.

        An id counts once per campaign, whatever it carries the second time. Id and count are written
        together or not at all. Cells and rounds were checked by the caller; an unknown round, one whose
        ids were forgotten, or a cell out of range raises ``InvalidInput`` and keeps nothing of the call.
        """

    def counts(self, campaign: str) -> dict[int, IntArray]:
        """Round number → counts by cell, all from one moment."""

    # -- closing ---------------------------------------------------------------------------------

    def close_round(self, campaign: str, number: int, *, minimum: int, at_s: int) -> bool:
        """Close the open round and keep the counts of all rounds at that moment, in one transaction.

        ``False``, and nothing changed, where it is closed already, is not the last one, or has fewer
        than ``minimum`` (and at least 1) reports.
        """

    def closings(self) -> list[Closing]:
        """Closed rounds that have no estimate yet, oldest first."""

    def claim(
        self, campaign: str, number: int, *, now_s: int, for_s: int, held_until_s: int = 0
    ) -> bool:
        """Take the work on a closing for a while, so that several processes do not all do it.

        Whoever has it gives ``held_until_s``, until when, to have it longer. No two claims on a closing
        end at the same time, since each begins after the one before, so that names the one.
        """

    def release(self, campaign: str, number: int) -> None:
        """Give the work on a closing back, for whoever comes next; only whoever claimed it may."""

    def publish(self, estimate: EstimateRecord, following: RoundRecord | None) -> bool:
        """Keep the estimate of a closed round and open the next one, if any, in one transaction.

        ``False``, and nothing changed, where this round already has an estimate.
        """

    def replace_document(self, following: RoundRecord, *, at_s: int) -> bool:
        """Close the last round of a campaign without an estimate (its document expired with too few
        reports) and open the next one, in one transaction; ``False`` where another did so first."""

    def estimate(self, campaign: str, number: int | None = None) -> EstimateRecord | None:
        """The estimate made at the close of a round; of the last one that has any, without a number."""

    def forget_ids(self, *, now_s: int) -> int:
        """Drop the ids of rounds whose ``accept_until_s`` lies before ``now_s``; how many.

        From then on ``add`` refuses reports for such a round with ``InvalidInput``, since a repeated
        one would count again: a ``now_s`` some minutes back spares those still on their way.
        """

    # -- operators -------------------------------------------------------------------------------

    def add_token(self, digest: bytes, *, label: str, at_s: int) -> None:
        """Keep the SHA-256 of an operator's token."""

    def token_known(self, digest: bytes) -> bool:
        """Whether a token with this SHA-256 may operate."""

    def has_tokens(self) -> bool:
        """Whether any operator's token was ever kept."""

    # -- the store itself ------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``StoreFailed`` unless the store can read and write now (for readiness)."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Everything as of one moment, for backups and moves to another store."""

    def fill(self, snapshot: Snapshot) -> None:
        """Take over everything of another store, in one transaction; ``InvalidInput`` unless this one
        is empty."""

    def close(self) -> None:
        """Finish what is under way and let go of everything."""


class Snapshot(Protocol):
    """A consistent view of a whole store, table by table, rows as plain values."""

    def tables(self) -> Sequence[str]:
        """Names of the tables, parents before children."""

    def rows(self, table: str) -> Iterable[tuple[object, ...]]:
        """All rows of a table, one after the other, columns in the order of ``geoveil.store.contract``."""


# --- What databases share about counting: reports sorted by campaign, each id once, each cell checked


ID_BYTES = 16


class RoundKeys(NamedTuple):
    """What counting needs to know of a round; none of it ever changes."""

    campaign_key: int
    round_key: int
    cells: int


Counting = tuple[int, int, int]
"""Round key and cell that an id would count for, and the position of its upload."""

Pending = dict[int, dict[bytes, Counting]]
"""Campaign key → id → what it adds; of several uploads with one id, the first."""


def sort_out(
    uploads: Sequence[Upload], find: Callable[[str, int], RoundKeys]
) -> tuple[Pending, list[int]]:
    """Uploads by campaign and id, and the keys of all rounds they name.

    ``find`` knows rounds and raises ``InvalidInput`` for others.
    """
    pending: Pending = {}
    known: dict[tuple[str, int], RoundKeys] = {}
    for position, (campaign, number, id, cell) in enumerate(uploads):
        keys = known.get((campaign, number))
        if keys is None:
            keys = known[campaign, number] = find(campaign, number)
        campaign_key, round_key, cells = keys
        if not 0 <= cell < cells:
            raise InvalidInput(f"cell of the report at position {position} must be below {cells}")
        if len(id) != ID_BYTES:
            raise InvalidInput(f"id of the report at position {position} must have 16 bytes")
        ids = pending.get(campaign_key)
        if ids is None:
            ids = pending[campaign_key] = {}
        ids.setdefault(id, (round_key, cell, position))
    return pending, [keys.round_key for keys in known.values()]


def over() -> InvalidInput:
    """What to say of a report whose round is over for good."""
    return InvalidInput("round must still know its ids; reports for it came to an end")


# --- The tables of a store as they travel from one database to another: names and columns, in order


Row = tuple[Any, ...]

TABLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "campaign": ("key", "id", "name", "settings", "created_at_s"),
        "round": (
            "key",
            "campaign_key",
            "number",
            "mechanism",
            "document",
            "cells",
            "opened_at_s",
            "expires_at_s",
            "accept_until_s",
            "closed_at_s",
            "ids_dropped",
        ),
        "report": ("campaign_key", "id", "round_key"),
        "tally": ("round_key", "cell", "count"),
        "round_total": ("round_key", "count"),
        "closing": ("round_key", "closed_at_s", "claimed_until_s"),
        "closing_tally": ("closing_key", "round_key", "counts"),
        "estimate": ("round_key", "made_at_s", "reports", "body"),
        "token": ("digest", "label", "created_at_s"),
    }
)
"""Table → columns; a table comes after those it refers to."""


def packed(counts: IntArray) -> bytes:
    """Counts by cell as ``closing_tally.counts`` keeps them: 8 bytes a cell, little-endian.

    >>> packed(np.array([1, 0], dtype=np.int64)).hex()
    '01000000000000000000000000000000'
    """
    return counts.astype("<i8").tobytes()


def unpacked(counts: bytes) -> IntArray:
    """The counts again."""
    return np.frombuffer(counts, dtype="<i8").astype(np.int64)


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
    [1, 2, 3]
    """
    folder = files("geoveil.store") / "schema" / database
    found = [match for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))]
    return tuple(
        Migration(
            number=int(match["number"]),
            name=match["name"],
            up=(folder / match[0]).read_text(encoding="utf-8"),
            down=(folder / match[0].replace(".up.", ".down.")).read_text(encoding="utf-8"),
        )
        for match in sorted(found, key=lambda match: match[0])
    )


def missing(steps: tuple[Migration, ...], version: int) -> tuple[Migration, ...]:
    """The steps a database of this version has yet to take."""
    latest = steps[-1].number
    if version > latest:
        raise NewerSchema(
            f"schema ({version}) must be at most {latest}: a newer program made this database; "
            "use that program"
        )
    return tuple(step for step in steps if step.number > version)
