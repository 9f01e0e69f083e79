"""What every store does: the one contract behind memory, SQLite and PostgreSQL.

A store knows campaigns, rounds, counts and the ids of reports already counted; it knows no mathematics.
Every method that changes something returns after its commit. Times are whole seconds since 1970 (UTC) and
belong to rounds and campaigns, never to reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from geoveil.arrays import IntArray
from geoveil.errors import GeoveilError


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
        """All rows of a table, one after the other, columns in the order of ``geoveil.store.layout``."""
