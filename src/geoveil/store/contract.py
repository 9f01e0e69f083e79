"""The store: what every database does, and the statements that SQLite and PostgreSQL share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import ClassVar, NamedTuple

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store import records
from geoveil.store import statements as sql
from geoveil.store.preparations import PreparationStore, prepare

_AT_A_TIME = 10_000
"""Ids looked at in one transaction that forgets: reports are counted between two of these."""


class RoundKeys(NamedTuple):
    """What counting needs to know of a round; none of it ever changes."""

    campaign_key: int
    round_key: int
    cells: int


Pending = dict[int, dict[bytes, tuple[int, int, int]]]
"""Campaign key → id → round key and cell it counts for, and the position of its upload; of several
uploads with one id, the first."""


class Store(PreparationStore):
    """Campaigns, rounds, counts. Thread-safe; calls block until their commit.

    Reads see every commit that was acknowledged before they began. A database supplies transactions,
    counting and copies; all other statements are here and the same for every database.
    """

    engine: str
    """What it is built on, with its version: ``SQLite 3.54.1``."""
    LOCKED: ClassVar[str] = "SELECT key, state FROM campaign WHERE id = :campaign"
    """Key and state of a campaign whose rounds nobody else changes until the transaction ends."""
    ALONE: ClassVar[str] = "SELECT 1"
    """From here to the end of the transaction no other counts reports."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, int], RoundKeys] = {}

    # -- what a database supplies ----------------------------------------------------------------

    @abstractmethod
    def reading(self) -> AbstractContextManager[sql.Run]:
        """A transaction that only reads, all of it from one moment."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[sql.Run]:
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

    def create_campaign(
        self, campaign: records.CampaignRecord, first: records.RoundRecord | None
    ) -> bool:
        """Keep a campaign with its first round; ``False`` (and nothing kept) where the id exists.

        Without a round it waits for the first to be prepared.
        """
        if first is not None and (first.campaign != campaign.id or first.number != 1):
            raise InvalidInput("first must be round 1 of the campaign it is kept with")
        with self.writing() as run:
            keys = run(
                "INSERT INTO campaign (id, name, settings, created_at_s)"
                " VALUES (:id, :name, :settings, :created_at_s)"
                " ON CONFLICT (id) DO NOTHING RETURNING key",
                **asdict(campaign),
            )
            if keys and first is not None:
                sql.open_round(run, keys[0][0], first)
            elif keys:
                prepare(run, keys[0][0], records.PreparationRecord(campaign.id, 1))
        return bool(keys)

    def campaigns(self) -> list[records.CampaignRecord]:
        """All campaigns, oldest first."""
        rows = self._read(f"{sql.CAMPAIGN} ORDER BY key")
        return [records.CampaignRecord(*row) for row in rows]

    def campaign(self, campaign: str) -> records.CampaignRecord | None:
        """One campaign."""
        rows = self._read(f"{sql.CAMPAIGN} WHERE id = :campaign", campaign=campaign)
        return records.CampaignRecord(*rows[0]) if rows else None

    def change_campaign(
        self, campaign: str, *, name: str | None = None, state: records.State | None = None
    ) -> bool:
        """Another name or state for a campaign; ``False`` where there is none."""
        with self.writing() as run:
            changed = run(
                "UPDATE campaign SET name = coalesce(:name, name), state = coalesce(:state, state)"
                " WHERE id = :campaign RETURNING key",
                campaign=campaign,
                name=name,
                state=state,
            )
        return bool(changed)

    def publish_map(self, campaign: str, at_s: int | None) -> bool:
        """Everybody may see the map from now on, or (``None``) no longer; ``False`` where there is none.

        A map that is published stays so since when it was.
        """
        when = "NULL" if at_s is None else "coalesce(published_at_s, :at_s)"
        statement = (
            f"UPDATE campaign SET published_at_s = {when} WHERE id = :campaign RETURNING key"
        )
        return bool(self._write(statement, campaign=campaign, at_s=at_s))

    def keep_backdrop(self, campaign: str, backdrop: bytes | None) -> bool:
        """What the pages draw behind the cells, as GeoJSON, or nothing; ``False`` without campaign."""
        statement = "UPDATE campaign SET backdrop = :backdrop WHERE id = :campaign RETURNING key"
        return bool(self._write(statement, campaign=campaign, backdrop=backdrop))

    def backdrop(self, campaign: str) -> bytes | None:
        """What the pages draw behind the cells; ``None`` where there is nothing."""
        rows = self._read("SELECT backdrop FROM campaign WHERE id = :campaign", campaign=campaign)
        return rows[0][0] if rows else None

    def delete_campaign(self, campaign: str) -> bool:
        """Remove a campaign and all it holds; ``False`` where there is none.

        It ends first and its ids go in parts, so that others are counted meanwhile; where the program
        is stopped half-way, the campaign is ended, and can be deleted again.
        """
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=campaign)
            if not locked:
                return False
            key = {"campaign_key": locked[0][0]}
            run(self.ALONE)
            run("UPDATE campaign SET state = 'ended' WHERE key = :campaign_key", **key)
            run("UPDATE round SET ids_dropped = 2 WHERE campaign_key = :campaign_key", **key)
        while self._write(sql.DELETE_IDS, size=_AT_A_TIME, **key):
            pass
        with self.writing() as run:
            for statement in sql.DELETE_REST:
                run(statement, **key)
            for known in [known for known in self._keys if known[0] == campaign]:
                del self._keys[known]
        return True

    def rounds(self, campaign: str) -> list[records.RoundRecord]:
        """All rounds of a campaign, oldest first, with their totals now."""
        rows = self._read(
            f"{sql.ROUND} WHERE c.id = :campaign ORDER BY r.number", campaign=campaign
        )
        return [records.RoundRecord(*row) for row in rows]

    def last_round(self, campaign: str) -> records.RoundRecord | None:
        """The newest round of a campaign."""
        statement = f"{sql.ROUND} WHERE c.id = :campaign ORDER BY r.number DESC LIMIT 1"
        rows = self._read(statement, campaign=campaign)
        return records.RoundRecord(*rows[0]) if rows else None

    def rounds_concluded(self, campaign: str) -> int:
        """How many rounds of a campaign have an estimate, or wait for it."""
        rows = self._read(sql.CONCLUDED, campaign=campaign)
        return int(rows[0][0])

    def round_of(self, mechanism: str) -> records.RoundRecord | None:
        """The round that published this document, alone or among those of several promises."""
        statement = f"{sql.ROUND} WHERE r.mechanism = :mechanism OR r.key = ({sql.LEVEL_ROUND})"
        rows = self._read(statement, mechanism=mechanism)
        return records.RoundRecord(*rows[0]) if rows else None

    def counts(self, campaign: str) -> dict[int, IntArray]:
        """Round number → counts by cell, all from one moment."""
        with self.reading() as run:
            return sql.counts_now(run, campaign)

    # -- closing ---------------------------------------------------------------------------------

    def close_round(self, campaign: str, number: int, *, minimum: int, at_s: int) -> bool:
        """Close the open round and keep apart what was counted until that moment, in one transaction.

        ``False``, and nothing changed, where it is closed already, is not the last one, or has fewer
        than ``minimum`` (and at least 1) reports.
        """
        with self.writing() as run:
            keys = self._end_round(run, campaign, number, least=max(minimum, 1), at_s=at_s)
            if keys is None:
                return False
            campaign_key, key = keys
            run(
                "INSERT INTO closing (round_key, closed_at_s) VALUES (:key, :at_s)",
                key=key,
                at_s=at_s,
            )
            run(self.ALONE)
            sql.take_counts(run, campaign_key, key)
        return True

    def closings(self) -> list[records.ClosingRecord]:
        """Closed rounds that wait for their estimate, oldest first."""
        return [records.ClosingRecord(*row) for row in self._read(sql.CLOSINGS)]

    def closing_counts(self, campaign: str, number: int) -> dict[int, IntArray]:
        """Round number → counts by cell, as they were when round ``number`` closed."""
        with self.reading() as run:
            return sql.counts_at(run, campaign, number)

    def closing_pairs(self, campaign: str, number: int) -> dict[int, IntArray]:
        """Round number → (k, 2): the reports that came until round ``number`` closed, and how often each.

        For trips, whose pairs are too many to count each in a place of its own.
        """
        with self.reading() as run:
            return sql.pairs_at(run, campaign, number)

    def claim(
        self, campaign: str, number: int, *, now_s: int, for_s: int, held_until_s: int = 0
    ) -> bool:
        """Take the work on a closing for a while, so that several processes do not all do it.

        One that ends an hour later than this would was made by a clock that was wrong, and is none.
        Whoever has it gives ``held_until_s``, until when, to have it longer. No two claims on a closing
        end at the same time, since each begins after the one before, so that names the one.
        """
        times = {"now_s": now_s, "until_s": now_s + for_s, "held_until_s": held_until_s}
        with self.writing() as run:
            return bool(run(sql.CLAIM, campaign=campaign, number=number, **times))

    def release(self, campaign: str, number: int) -> None:
        """Give the work on a closing back, for whoever comes next; only whoever claimed it may."""
        with self.writing() as run:
            run(
                f"UPDATE closing SET claimed_until_s = 0 WHERE round_key = {sql.ROUND_KEY}",
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
                f"SELECT round_key FROM closing WHERE round_key = {sql.ROUND_KEY}",
                campaign=estimate.campaign,
                number=estimate.round,
            )
            if not closed:
                raise InvalidInput(f"round ({estimate.round}) must be closed before its estimate")
            new = run(
                "INSERT INTO estimate (round_key, made_at_s, reports, body, slots)"
                " VALUES (:key, :made_at_s, :reports, :body, :slots)"
                " ON CONFLICT (round_key) DO NOTHING RETURNING round_key",
                key=closed[0][0],
                **asdict(estimate),
            )
            if new and following is not None:
                _open_after(run, locked[0], estimate.round, following)
        return bool(new)

    def failed(self, campaign: str, number: int) -> int:
        """One more attempt at the estimate of a closing has failed; how many have."""
        with self.writing() as run:
            rows = run(
                "UPDATE closing SET failures = failures + 1"
                f" WHERE round_key = {sql.ROUND_KEY} RETURNING failures",
                campaign=campaign,
                number=number,
            )
        return int(rows[0][0]) if rows else 0

    def give_up(
        self, campaign: str, number: int, following: records.RoundRecord, *, at_s: int
    ) -> bool:
        """Wait no longer for the estimate of a closing; the next round opens where none has.

        Its counts enter the next closing. ``False`` where it has its estimate or was given up before.
        """
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=campaign)
            rows = run(
                f"UPDATE closing SET given_up_at_s = :at_s WHERE round_key = {sql.ROUND_KEY}"
                " AND given_up_at_s IS NULL AND NOT EXISTS"
                " (SELECT 1 FROM estimate e WHERE e.round_key = closing.round_key) RETURNING round_key",
                campaign=campaign,
                number=number,
                at_s=at_s,
            )
            if rows:
                _open_after(run, locked[0], number, following)
        return bool(rows)

    def replace_document(self, following: records.RoundRecord, *, after: int, at_s: int) -> bool:
        """Open a round without waiting for an estimate, in one transaction: round ``after``, the last
        one, is closed where it was open. ``False`` where another did so first, or the campaign ended."""
        if following.number <= after:
            raise InvalidInput(f"following ({following.number}) must come after round {after}")
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=following.campaign)
            opened = bool(locked) and _open_after(run, locked[0], after, following)
            if opened:
                run(
                    "UPDATE round SET closed_at_s = :at_s WHERE closed_at_s IS NULL"
                    " AND campaign_key = :campaign_key AND number = :after",
                    campaign_key=locked[0][0],
                    after=after,
                    at_s=at_s,
                )
        return opened

    def estimate(self, campaign: str, number: int | None = None) -> records.EstimateRecord | None:
        """The estimate made at the close of a round; of the last one that has any, without a number.

        Its ``slots`` are left to :meth:`slot_maps`: they are long.
        """
        which = "" if number is None else "AND r.number = :number"
        statement = f"{sql.ESTIMATE} {which} ORDER BY r.number DESC LIMIT 1"
        rows = self._read(statement, campaign=campaign, number=number)
        return records.EstimateRecord(*rows[0]) if rows else None

    def slot_maps(self, campaign: str, number: int) -> bytes:
        """The maps of slots beside the estimate of a round; empty where there are none."""
        rows = self._read(
            f"SELECT slots FROM estimate WHERE round_key = {sql.ROUND_KEY}",
            campaign=campaign,
            number=number,
        )
        return bytes(rows[0][0]) if rows else b""

    def estimated_rounds(self, campaign: str) -> set[int]:
        """The numbers of the rounds that have an estimate."""
        rows = self._read(
            "SELECT r.number FROM estimate e JOIN round r ON r.key = e.round_key"
            " JOIN campaign c ON c.key = r.campaign_key WHERE c.id = :campaign",
            campaign=campaign,
        )
        return {number for (number,) in rows}

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
                with self.writing() as run:
                    after, some = sql.forget_some(run, campaign_key, round_key, after, _AT_A_TIME)
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

    # -- time ------------------------------------------------------------------------------------

    def keep_time(self, at_s: int) -> None:
        """Keep the time of now, for :meth:`time_kept` after the next start."""
        self._write(sql.KEEP_TIME, at_s=at_s)

    def time_kept(self) -> int | None:
        """The time when a service last looked; ``None`` where none ever has."""
        rows = self._read("SELECT seen_at_s FROM upkeep")
        return int(rows[0][0]) if rows else None

    def mark_copy(self, at_s: int | None) -> None:
        """Say that this is a copy of a store as of some time, or (``None``) no longer one."""
        if at_s is None:
            self._write("UPDATE upkeep SET copied_at_s = NULL")
        else:
            self._write(sql.MARK_COPY, at_s=at_s)

    def copied_at_s(self) -> int | None:
        """Of which time this is a backup that was put back; ``None`` where it is none."""
        rows = self._read("SELECT copied_at_s FROM upkeep")
        return rows[0][0] if rows else None

    # -- inside ----------------------------------------------------------------------------------

    def _read(self, statement: str, **values: object) -> list[records.Row]:
        with self.reading() as run:
            return run(statement, **values)

    def _write(self, statement: str, **values: object) -> list[records.Row]:
        with self.writing() as run:
            return run(statement, **values)

    def _end_round(
        self, run: sql.Run, campaign: str, number: int, *, least: int, at_s: int
    ) -> tuple[int, int] | None:
        """Mark the open round as closed; the keys of campaign and round, or ``None`` where it cannot be."""
        locked = run(self.LOCKED, campaign=campaign)
        if not locked:
            return None
        rows = run(sql.LAST_ROUND, campaign_key=locked[0][0])
        if not rows:
            return None
        key, last, closed_at_s, total = rows[0]
        if last != number or closed_at_s is not None or total < least:
            return None
        run("UPDATE round SET closed_at_s = :at_s WHERE key = :key", key=key, at_s=at_s)
        return locked[0][0], key

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
                f"SELECT campaign_key, key, cells FROM round WHERE key = {sql.ROUND_KEY}",
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


def _open_after(
    run: sql.Run, campaign: records.Row, after: int, following: records.RoundRecord
) -> bool:
    """Open a round where ``after`` is the last one and the campaign goes on."""
    key, state = campaign
    last = run(sql.LAST_ROUND, campaign_key=key)
    if state == "ended" or not last or last[0][1] != after:
        return False
    sql.open_round(run, key, following)
    return True
