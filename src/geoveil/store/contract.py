"""The store: what every database does, and the statements that SQLite and PostgreSQL share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store import records

_AT_A_TIME = 10_000
"""Ids looked at in one transaction that forgets: reports are counted between two of these."""

_CAMPAIGN = "SELECT id, name, settings, created_at_s FROM campaign"
_TOTAL = """
    CAST(coalesce((SELECT sum(t.count) FROM round_total t WHERE t.round_key = r.key), 0) AS bigint)
"""
_ROUND = f"""
    SELECT c.id, r.number, r.mechanism, r.document, r.cells, r.opened_at_s, r.expires_at_s,
           r.accept_until_s, r.closed_at_s, {_TOTAL}
    FROM round r JOIN campaign c ON c.key = r.campaign_key
"""
_LAST_ROUND = f"""
    SELECT r.key, r.number, r.closed_at_s, {_TOTAL}
    FROM round r WHERE r.campaign_key = :campaign_key ORDER BY r.number DESC LIMIT 1
"""
_ROUND_KEY = """
    (SELECT r.key FROM round r JOIN campaign c ON c.key = r.campaign_key
     WHERE c.id = :campaign AND r.number = :number)
"""
_COUNTS = """
    SELECT r.key, r.number, r.cells, t.cell, CAST(sum(t.count) AS bigint)
    FROM round r JOIN campaign c ON c.key = r.campaign_key LEFT JOIN tally t ON t.round_key = r.key
    WHERE c.id = :campaign GROUP BY r.key, r.number, r.cells, t.cell ORDER BY r.number
"""
_CLOSINGS = """
    SELECT c.id, r.number, k.closed_at_s, o.number, t.counts
    FROM closing k JOIN round r ON r.key = k.round_key JOIN campaign c ON c.key = r.campaign_key
    JOIN closing_tally t ON t.closing_key = k.round_key JOIN round o ON o.key = t.round_key
    WHERE NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = k.round_key)
    ORDER BY k.closed_at_s, k.round_key, o.number
"""
_CLAIM = f"""
    UPDATE closing SET claimed_until_s = :until_s
    WHERE (claimed_until_s <= :now_s OR claimed_until_s = :held_until_s) AND round_key = {_ROUND_KEY}
    AND NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = closing.round_key)
    RETURNING round_key
"""
_ESTIMATE = """
    SELECT c.id, r.number, e.made_at_s, e.reports, e.body
    FROM estimate e JOIN round r ON r.key = e.round_key JOIN campaign c ON c.key = r.campaign_key
    WHERE c.id = :campaign
"""


class Run(Protocol):
    """Runs one statement inside a transaction; its rows."""

    def __call__(self, statement: str, **values: object) -> list[records.Row]: ...


class RoundKeys(NamedTuple):
    """What counting needs to know of a round; none of it ever changes."""

    campaign_key: int
    round_key: int
    cells: int


Pending = dict[int, dict[bytes, tuple[int, int, int]]]
"""Campaign key → id → round key and cell it counts for, and the position of its upload; of several
uploads with one id, the first."""


class Store(ABC):
    """Campaigns, rounds, counts. Thread-safe; calls block until their commit.

    Reads see every commit that was acknowledged before they began. A database supplies transactions,
    counting and copies; all other statements are here and the same for every database.
    """

    engine: str
    """What it is built on, with its version: ``SQLite 3.54.1``."""
    LOCKED: ClassVar[str] = "SELECT key FROM campaign WHERE id = :campaign"
    """The key of a campaign whose rounds nobody else changes until the transaction ends."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, int], RoundKeys] = {}

    # -- what a database supplies ----------------------------------------------------------------

    @abstractmethod
    def reading(self) -> AbstractContextManager[Run]:
        """A transaction that only reads, all of it from one moment."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Run]:
        """A transaction that is committed at the end, or undone where anything was raised."""

    @abstractmethod
    def add(self, uploads: Sequence[records.Upload]) -> list[bool]:
        """Count reports in one transaction; ``True`` where the id was new in its campaign.

        An id counts once per campaign, whatever it carries the second time. Id and count are written
        together or not at all. Cells and rounds were checked by the caller; an unknown round, one whose
        ids were forgotten, or a cell out of range raises ``InvalidInput`` and keeps nothing of the call.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise ``StoreFailed`` unless the store can read and write now (for readiness)."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[records.Snapshot]:
        """Everything as of one moment, for backups and moves to another store; counting goes on."""

    @abstractmethod
    def fill(self, snapshot: records.Snapshot) -> None:
        """Take over everything of another store, in one transaction; ``InvalidInput`` unless this one
        is empty."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is under way and let go of everything."""

    # -- campaigns and rounds --------------------------------------------------------------------

    def create_campaign(self, campaign: records.CampaignRecord, first: records.RoundRecord) -> bool:
        """Keep a campaign with its first round; ``False`` (and nothing kept) where the id exists."""
        if first.campaign != campaign.id or first.number != 1:
            raise InvalidInput("first must be round 1 of the campaign it is kept with")
        with self.writing() as run:
            keys = run(
                "INSERT INTO campaign (id, name, settings, created_at_s)"
                " VALUES (:id, :name, :settings, :created_at_s)"
                " ON CONFLICT (id) DO NOTHING RETURNING key",
                **asdict(campaign),
            )
            if keys:
                _open_round(run, keys[0][0], first)
        return bool(keys)

    def campaigns(self) -> list[records.CampaignRecord]:
        """All campaigns, oldest first."""
        return [records.CampaignRecord(*row) for row in self._read(f"{_CAMPAIGN} ORDER BY key")]

    def campaign(self, campaign: str) -> records.CampaignRecord | None:
        """One campaign."""
        rows = self._read(f"{_CAMPAIGN} WHERE id = :campaign", campaign=campaign)
        return records.CampaignRecord(*rows[0]) if rows else None

    def rounds(self, campaign: str) -> list[records.RoundRecord]:
        """All rounds of a campaign, oldest first, with their totals now."""
        rows = self._read(f"{_ROUND} WHERE c.id = :campaign ORDER BY r.number", campaign=campaign)
        return [records.RoundRecord(*row) for row in rows]

    def round_of(self, mechanism: str) -> records.RoundRecord | None:
        """The round that published this document."""
        rows = self._read(f"{_ROUND} WHERE r.mechanism = :mechanism", mechanism=mechanism)
        return records.RoundRecord(*rows[0]) if rows else None

    def counts(self, campaign: str) -> dict[int, IntArray]:
        """Round number → counts by cell, all from one moment."""
        with self.reading() as run:
            return {number: counts for _, number, counts in _counts(run, campaign)}

    # -- closing ---------------------------------------------------------------------------------

    def close_round(self, campaign: str, number: int, *, minimum: int, at_s: int) -> bool:
        """Close the open round and keep the counts of all rounds at that moment, in one transaction.

        ``False``, and nothing changed, where it is closed already, is not the last one, or has fewer
        than ``minimum`` (and at least 1) reports.
        """
        with self.writing() as run:
            keys = self._end_round(run, campaign, number, least=max(minimum, 1), at_s=at_s)
            if keys is None:
                return False
            _, key = keys
            run(
                "INSERT INTO closing (round_key, closed_at_s) VALUES (:key, :at_s)",
                key=key,
                at_s=at_s,
            )
            for round_key, _, counts in _counts(run, campaign):
                run(
                    "INSERT INTO closing_tally (closing_key, round_key, counts)"
                    " VALUES (:key, :round_key, :counts)",
                    key=key,
                    round_key=round_key,
                    counts=records.packed(counts),
                )
        return True

    def closings(self) -> list[records.ClosingRecord]:
        """Closed rounds that have no estimate yet, oldest first."""
        waiting: dict[tuple[str, int, int], dict[int, IntArray]] = {}
        for campaign, number, at_s, other, counts in self._read(_CLOSINGS):
            waiting.setdefault((campaign, number, at_s), {})[other] = records.unpacked(counts)
        return [records.ClosingRecord(*closed, counts) for closed, counts in waiting.items()]

    def claim(
        self, campaign: str, number: int, *, now_s: int, for_s: int, held_until_s: int = 0
    ) -> bool:
        """Take the work on a closing for a while, so that several processes do not all do it.

        Whoever has it gives ``held_until_s``, until when, to have it longer. No two claims on a closing
        end at the same time, since each begins after the one before, so that names the one.
        """
        times = {"now_s": now_s, "until_s": now_s + for_s, "held_until_s": held_until_s}
        with self.writing() as run:
            return bool(run(_CLAIM, campaign=campaign, number=number, **times))

    def release(self, campaign: str, number: int) -> None:
        """Give the work on a closing back, for whoever comes next; only whoever claimed it may."""
        with self.writing() as run:
            run(
                f"UPDATE closing SET claimed_until_s = 0 WHERE round_key = {_ROUND_KEY}",
                campaign=campaign,
                number=number,
            )

    def publish(
        self, estimate: records.EstimateRecord, following: records.RoundRecord | None
    ) -> bool:
        """Keep the estimate of a closed round and open the next one, if any, in one transaction.

        ``False``, and nothing changed, where this round already has an estimate.
        """
        expected = (estimate.campaign, estimate.round + 1)
        if following is not None and (following.campaign, following.number) != expected:
            raise InvalidInput("following must be the round after the one that was estimated")
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=estimate.campaign)
            closed = run(
                f"SELECT round_key FROM closing WHERE round_key = {_ROUND_KEY}",
                campaign=estimate.campaign,
                number=estimate.round,
            )
            if not closed:
                raise InvalidInput(f"round ({estimate.round}) must be closed before its estimate")
            new = run(
                "INSERT INTO estimate (round_key, made_at_s, reports, body)"
                " VALUES (:key, :made_at_s, :reports, :body)"
                " ON CONFLICT (round_key) DO NOTHING RETURNING round_key",
                key=closed[0][0],
                **asdict(estimate),
            )
            if new and following is not None:
                _open_round(run, locked[0][0], following)
        return bool(new)

    def replace_document(self, following: records.RoundRecord, *, at_s: int) -> bool:
        """Close the last round of a campaign without an estimate (its document expired with too few
        reports) and open the next one, in one transaction; ``False`` where another did so first."""
        with self.writing() as run:
            keys = self._end_round(
                run, following.campaign, following.number - 1, least=0, at_s=at_s
            )
            if keys is not None:
                _open_round(run, keys[0], following)
        return keys is not None

    def estimate(self, campaign: str, number: int | None = None) -> records.EstimateRecord | None:
        """The estimate made at the close of a round; of the last one that has any, without a number."""
        which = "" if number is None else "AND r.number = :number"
        statement = f"{_ESTIMATE} {which} ORDER BY r.number DESC LIMIT 1"
        rows = self._read(statement, campaign=campaign, number=number)
        return records.EstimateRecord(*rows[0]) if rows else None

    def forget_ids(self, *, now_s: int) -> int:
        """Drop the ids of rounds whose ``accept_until_s`` lies before ``now_s``; how many.

        From then on ``add`` refuses reports for such a round with ``InvalidInput``, since a repeated
        one would count again: a ``now_s`` some minutes back spares those still on their way.
        """
        dropped = 0
        for campaign_key, round_key in self._read(
            "SELECT campaign_key, key FROM round"
            " WHERE ids_dropped < 2 AND accept_until_s < :now_s ORDER BY key",
            now_s=now_s,
        ):
            after: bytes | None = b""
            while after is not None:
                after, some = self._forget_some(campaign_key, round_key, after)
                dropped += some
        return dropped

    # -- operators -------------------------------------------------------------------------------

    def add_token(self, digest: bytes, *, label: str, at_s: int) -> None:
        """Keep the SHA-256 of an operator's token."""
        with self.writing() as run:
            run(
                "INSERT INTO token (digest, label, created_at_s) VALUES (:digest, :label, :at_s)"
                " ON CONFLICT (digest) DO NOTHING",
                digest=digest,
                label=label,
                at_s=at_s,
            )

    def token_known(self, digest: bytes) -> bool:
        """Whether a token with this SHA-256 may operate."""
        return bool(self._read("SELECT 1 FROM token WHERE digest = :digest", digest=digest))

    def has_tokens(self) -> bool:
        """Whether any operator's token was ever kept."""
        return bool(self._read("SELECT 1 FROM token LIMIT 1"))

    # -- inside ----------------------------------------------------------------------------------

    def _read(self, statement: str, **values: object) -> list[records.Row]:
        with self.reading() as run:
            return run(statement, **values)

    def _end_round(
        self, run: Run, campaign: str, number: int, *, least: int, at_s: int
    ) -> tuple[int, int] | None:
        """Mark the open round as closed; the keys of campaign and round, or ``None`` where it cannot be."""
        locked = run(self.LOCKED, campaign=campaign)
        if not locked:
            return None
        key, last, closed_at_s, total = run(_LAST_ROUND, campaign_key=locked[0][0])[0]
        if last != number or closed_at_s is not None or total < least:
            return None
        run("UPDATE round SET closed_at_s = :at_s WHERE key = :key", key=key, at_s=at_s)
        return locked[0][0], key

    def _forget_some(
        self, campaign_key: int, round_key: int, after: bytes
    ) -> tuple[bytes | None, int]:
        """Drop ids from ``after`` on; the id to go on from (none: all done) and how many were dropped."""
        with self.writing() as run:
            mine = run(  # takes no more reports, and keeps other processes from the same work
                "UPDATE round SET ids_dropped = 1 WHERE key = :key AND ids_dropped < 2 RETURNING key",
                key=round_key,
            )
            if not mine:
                return None, 0
            further = run(
                "SELECT id FROM report WHERE campaign_key = :campaign_key AND id > :after"
                " ORDER BY id LIMIT 1 OFFSET :size",
                campaign_key=campaign_key,
                after=after,
                size=_AT_A_TIME - 1,
            )
            stop: bytes | None = further[0][0] if further else None
            some = (
                "FROM report WHERE campaign_key = :campaign_key AND id > :after"
                f"{' AND id <= :stop' if further else ''} AND round_key = :round_key"
            )
            values: dict[str, object] = {"campaign_key": campaign_key, "round_key": round_key}
            values |= {"after": after, "stop": stop}
            ((count,),) = run(f"SELECT count(*) {some}", **values)
            run(f"DELETE {some}", **values)
            if stop is None:
                run("UPDATE round SET ids_dropped = 2 WHERE key = :key", key=round_key)
        return stop, int(count)

    def _sorted(self, uploads: Sequence[records.Upload]) -> tuple[Pending, list[int]]:
        """Uploads by campaign and id, and the keys of all rounds they name; each cell checked."""
        pending: Pending = {}
        named: dict[tuple[str, int], RoundKeys] = {}
        for position, (campaign, number, id, cell) in enumerate(uploads):
            keys = named.get((campaign, number))
            if keys is None:
                keys = named[campaign, number] = self._round_keys(campaign, number)
            campaign_key, round_key, cells = keys
            if not 0 <= cell < cells:
                raise InvalidInput(
                    f"cell of the report at position {position} must be below {cells}"
                )
            if len(id) != records.ID_BYTES:
                raise InvalidInput(f"id of the report at position {position} must have 16 bytes")
            ids = pending.get(campaign_key)
            if ids is None:
                ids = pending[campaign_key] = {}
            ids.setdefault(id, (round_key, cell, position))
        return pending, [keys.round_key for keys in named.values()]

    def _round_keys(self, campaign: str, number: int) -> RoundKeys:
        """The keys of a round, remembered since they never change."""
        keys = self._keys.get((campaign, number))
        if keys is None:
            rows = self._read(
                f"SELECT campaign_key, key, cells FROM round WHERE key = {_ROUND_KEY}",
                campaign=campaign,
                number=number,
            )
            if not rows:
                raise InvalidInput(f"round ({number}) must be one of the campaign's")
            keys = self._keys[campaign, number] = RoundKeys(*rows[0])
        return keys


def over() -> InvalidInput:
    """What to say of a report whose round is over for good."""
    return InvalidInput("round must still know its ids; reports for it came to an end")


def _open_round(run: Run, campaign_key: int, opened: records.RoundRecord) -> None:
    """Keep a round that opens now; whatever the record says of its end or its total is not kept."""
    new = run(
        "INSERT INTO round (campaign_key, number, mechanism, document, cells, opened_at_s,"
        " expires_at_s, accept_until_s) VALUES (:campaign_key, :number, :mechanism, :document,"
        " :cells, :opened_at_s, :expires_at_s, :accept_until_s)"
        " ON CONFLICT (mechanism) DO NOTHING RETURNING key",
        campaign_key=campaign_key,
        **asdict(opened),
    )
    if not new:
        raise InvalidInput("mechanism must not be published twice; make a document of its own")


def _counts(run: Run, campaign: str) -> list[tuple[int, int, IntArray]]:
    """Key, number and counts of every round of a campaign; one statement, so of one moment."""
    rounds: dict[int, tuple[int, int, IntArray]] = {}
    for key, number, cells, cell, count in run(_COUNTS, campaign=campaign):
        if key not in rounds:
            rounds[key] = (key, number, np.zeros(cells, dtype=np.int64))
        if cell is not None:
            rounds[key][2][cell] = count
    return list(rounds.values())
