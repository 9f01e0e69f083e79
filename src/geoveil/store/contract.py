"""The store: what every database does, and what SQLite and PostgreSQL do alike."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store import records
from geoveil.store import statements as sql

R = TypeVar("R")
_AT_A_TIME = 10_000
"""Ids looked at in one transaction that forgets: reports are counted between two of these."""
_ROUNDS_AT_A_TIME = 20
"""Of a campaign that is deleted: each may have megabytes."""


class Store(ABC):
    """Campaigns, rounds, counts. Thread-safe; calls block until their commit.

    Reads see every commit that was acknowledged before they began. A database supplies transactions,
    counting and copies; all other statements are here and the same for every database.
    """

    engine: str
    """What it is built on and where it is, without user and password: ``SQLite 3.54.1 at geoveil.db``."""
    schema: int | None = None
    """The number of an older program's schema, where it has that one; it can then be copied only."""
    tables: Mapping[str, tuple[str, ...]] = records.TABLES
    """Table → columns, as copies have them; fewer where the schema is that of an older program."""
    LOCKED: ClassVar[str] = "SELECT key, state FROM campaign WHERE id = :campaign"
    """Key and state of a campaign whose rounds nobody else changes until the transaction ends."""
    ALONE: ClassVar[str] = "SELECT 1"
    """From here to the end of the transaction no other counts reports."""

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
    def settle(self) -> None:
        """Empty the log beside the tables, where it is ours: it tells how reports came one after another,
        and holds what was removed. Where somebody reads, a later call does it."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[records.Snapshot]:
        """Everything as of one moment, for backups and moves to another store; counting goes on."""

    @abstractmethod
    def fill(self, snapshot: records.Snapshot) -> None:
        """Take over everything of another store with the same tables, in one transaction; ``InvalidInput``
        unless this one is empty."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is under way and let go of everything."""

    # -- campaigns and rounds --------------------------------------------------------------------

    def create_campaign(
        self,
        campaign: records.CampaignRecord,
        first: records.RoundRecord | None,
        ticket_key: bytes | None = None,
    ) -> bool:
        """Keep a campaign with its first round; ``False`` (and nothing kept) where the id exists.

        Without a round it waits for the first to be prepared. With what signs tickets its ids are forgotten
        only when it has ended: each is that of a ticket.
        """
        if first is not None and (first.campaign != campaign.id or first.number != 1):
            raise InvalidInput("first must be round 1 of the campaign it is kept with")
        with self.writing() as run:
            keys = run(sql.KEEP_CAMPAIGN, **asdict(campaign))
            if keys and first is not None:
                sql.open_round(run, keys[0][0], first)
            elif keys:
                run(sql.PREPARE, campaign_key=keys[0][0], number=1, space=b"")
            if keys and ticket_key is not None:
                run(sql.KEEP_TICKET_KEY, campaign_key=keys[0][0], primes=ticket_key)
        return bool(keys)

    def campaigns(self) -> list[records.CampaignRecord]:
        """All campaigns, oldest first."""
        return self._every(records.CampaignRecord, f"{sql.CAMPAIGN} ORDER BY key")

    def campaign(self, campaign: str) -> records.CampaignRecord | None:
        """One campaign."""
        statement = f"{sql.CAMPAIGN} WHERE id = :campaign"
        return self._one(records.CampaignRecord, statement, campaign=campaign)

    def change_campaign(
        self,
        campaign: str,
        *,
        at_s: int,
        name: str | None = None,
        state: records.State | None = None,
        published: bool | None = None,
        minimum: int | None = None,
        following: records.RoundRecord | None = None,
        still_open: bool = False,
    ) -> bool:
        """Another name or state for a campaign, its map for everybody or (``False``) no longer, its open
        round closed where it has ``minimum`` reports, the next one opened: all in one transaction.

        A map that is published stays so since when it was; :meth:`close_round` says when nothing is closed.
        ``False``, and nothing changed, where there is no campaign, its end, which is for good, would be taken
        back, or another round should open and cannot, as :meth:`replace_document` says.
        """
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=campaign)
            if not locked or (state not in (None, "ended") and locked[0][1] == "ended"):
                return False
            if following is not None and not self._replace(
                run, locked[0], following, following.number - 1, at_s, still_open
            ):
                return False
            key = {"campaign_key": locked[0][0]}
            run(sql.CHANGE_CAMPAIGN, **key, name=name, state=state)
            if published is not None:
                run(sql.PUBLISH_MAP if published else sql.TAKE_MAP_BACK, **key, at_s=at_s)
            if minimum is not None:
                self._close_last(run, locked[0][0], minimum, at_s)
        return True

    def keep_backdrop(self, campaign: str, backdrop: bytes | None) -> bool:
        """What the pages draw behind the cells, as GeoJSON, or nothing; ``False`` without campaign."""
        statement = "UPDATE campaign SET backdrop = :backdrop WHERE id = :campaign RETURNING key"
        return bool(self._write(statement, campaign=campaign, backdrop=backdrop))

    def backdrop(self, campaign: str) -> bytes | None:
        """What the pages draw behind the cells; ``None`` where there is nothing."""
        statement = "SELECT backdrop FROM campaign WHERE id = :campaign"
        backdrop: bytes | None = self._value(statement, campaign=campaign)
        return backdrop

    def delete_campaign(self, campaign: str) -> bool:
        """Remove a campaign and all it holds; ``False`` where there is none.

        It ends first, and its ids and rounds go in parts, so that others are counted meanwhile; where the
        program is stopped half-way, the campaign is ended, and can be deleted again. Where another process
        has deleted it meanwhile, one that was made under its key or its id stays.
        """
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=campaign)
            if not locked:
                return False
            key = {"campaign_key": locked[0][0]}
            run(self.ALONE)
            run("UPDATE campaign SET state = 'ended' WHERE key = :campaign_key", **key)
            run(sql.DROP_ALL_IDS, **key)
        while self._write(sql.DELETE_IDS, size=_AT_A_TIME, campaign=campaign, **key):
            pass
        while self._delete_rounds(campaign, **key):
            pass
        self.settle()
        return True

    def _delete_rounds(self, campaign: str, campaign_key: int) -> bool:
        """Remove the last rounds of a campaign that is being deleted, and with the first ones itself.

        Whether some are left.
        """
        key: dict[str, object] = {"campaign_key": campaign_key}
        gone: list[records.Row] = []
        with self.writing() as run:
            # locked, or an estimate would come between two of these
            if run(self.LOCKED, campaign=campaign) != [(campaign_key, "ended")]:
                return False
            for statement in sql.DELETE_ROUNDS:
                gone = run(statement, size=_ROUNDS_AT_A_TIME, **key)
            if len(gone) == _ROUNDS_AT_A_TIME:
                return True
            for statement in sql.DELETE_REST:
                run(statement, **key)
        return False

    def rounds(
        self, campaign: str, numbers: Iterable[int] | None = None
    ) -> list[records.RoundRecord]:
        """All rounds of a campaign, or those of these numbers, oldest first, with their totals now."""
        statement = f"{sql.ROUND} WHERE c.id = :campaign"
        if numbers is None:
            statement = f"{statement} ORDER BY r.number"
            return self._every(records.RoundRecord, statement, campaign=campaign)
        statement = f"{statement} AND r.number = :number"
        with self.reading() as run:
            found = (run(statement, campaign=campaign, number=number) for number in sorted(numbers))
            return [records.RoundRecord(*row) for rows in found for row in rows]

    def round_times(self, campaign: str) -> list[records.RoundTimes]:
        """All rounds of a campaign without their documents, oldest first."""
        statement = f"{sql.TIMES} WHERE c.id = :campaign ORDER BY r.number"
        return self._every(records.RoundTimes, statement, campaign=campaign)

    def last_round(self, campaign: str) -> records.RoundRecord | None:
        """The newest round of a campaign."""
        return self._one(records.RoundRecord, sql.NEWEST, campaign=campaign)

    def last_rounds(self) -> list[records.RoundTimes]:
        """The newest round of every campaign that is running, the oldest campaign first."""
        return self._every(records.RoundTimes, sql.LAST_OF_RUNNING)

    def progress(self, campaign: str) -> records.Progress:
        """How far a campaign has come; no round and nothing counted where there is none."""
        with self.reading() as run:
            newest = run(sql.NEWEST, campaign=campaign)
            ((reports, rounds),) = run(sql.IN_ALL, campaign=campaign)
        last = records.RoundRecord(*newest[0]) if newest else None
        still_open = last is not None and last.closed_at_s is None  # no other is
        return records.Progress(last, reports, rounds - still_open)

    def rounds_concluded(self, campaign: str, *, before: int = sys.maxsize) -> int:
        """How many rounds before this one have an estimate, wait for it, or were given up beside a next one.

        Reports of such a round enter the estimate of the next: a campaign whose last round is closed stays
        at its end.
        """
        return int(self._value(sql.CONCLUDED, campaign=campaign, before=before))

    def round_of(self, mechanism: str) -> records.RoundRecord | None:
        """The round that published this document, alone or among those of several promises."""
        statement = f"{sql.ROUND} WHERE r.mechanism = :mechanism OR r.key = ({sql.LEVEL_ROUND})"
        return self._one(records.RoundRecord, statement, mechanism=mechanism)

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
            locked = run(self.LOCKED, campaign=campaign)
            return bool(locked) and self._close_last(run, locked[0][0], minimum, at_s, number)

    def _close_last(
        self, run: sql.Run, campaign_key: int, minimum: int, at_s: int, number: int | None = None
    ) -> bool:
        """Close the last round of a campaign where it is open, large enough and (if given) this one."""
        for key, newest, closed_at_s, total in run(sql.LAST_ROUND, campaign_key=campaign_key):
            if number in (None, newest) and closed_at_s is None and total >= max(minimum, 1):
                ended = {"key": key, "at_s": at_s}
                run("UPDATE round SET closed_at_s = :at_s WHERE key = :key", **ended)
                run("INSERT INTO closing (round_key, closed_at_s) VALUES (:key, :at_s)", **ended)
                run(self.ALONE)
                sql.take_counts(run, campaign_key, key)
                return True
        return False

    def closings(self) -> list[records.ClosingRecord]:
        """Closed rounds that wait for their estimate, oldest first."""
        return self._every(records.ClosingRecord, sql.CLOSINGS)

    def reported_rounds(self, campaign: str, number: int) -> list[int]:
        """The rounds that had reports when round ``number`` closed, oldest first."""
        return [row[0] for row in self._read(sql.REPORTED, campaign=campaign, number=number)]

    def closing_counts(
        self, campaign: str, number: int, rounds: Iterable[int] | None = None
    ) -> dict[int, IntArray]:
        """Round number → counts by cell, as they were when round ``number`` closed; of ``rounds`` or all."""
        with self.reading() as run:
            return sql.counts_at(run, campaign, number, rounds)

    def closing_pairs(
        self, campaign: str, number: int, rounds: Iterable[int] | None = None
    ) -> dict[int, IntArray]:
        """Round number → (k, 2): the reports that came until round ``number`` closed, and how often each.

        For trips, whose pairs are too many to count each in a place of its own.
        """
        with self.reading() as run:
            return sql.pairs_at(run, campaign, number, rounds)

    def publish(
        self, estimate: records.EstimateRecord, following: records.RoundRecord | None
    ) -> bool:
        """Keep the estimate of a closed round and open the next one, if any, in one transaction.

        ``False``, and nothing changed, where this round already has an estimate, or the campaign is gone.
        """
        expected = (estimate.campaign, estimate.round + 1)
        if following is not None and (following.campaign, following.number) != expected:
            raise InvalidInput("following must be the round after the one that was estimated")
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=estimate.campaign)
            if not locked:
                return False
            closed = run(
                f"SELECT round_key FROM closing WHERE round_key = {sql.ROUND_KEY}",
                campaign=estimate.campaign,
                number=estimate.round,
            )
            if not closed:
                raise InvalidInput(f"round ({estimate.round}) must be closed before its estimate")
            new = run(sql.KEEP_ESTIMATE, key=closed[0][0], **asdict(estimate))
            # also where an older program, not stopped yet, kept the estimate and did not say so
            run("UPDATE closing SET estimated = 1 WHERE round_key = :key", key=closed[0][0])
            if new and following is not None:
                sql.open_after(run, locked[0], estimate.round, following)
        return bool(new)

    def give_up(self, number: int, following: records.RoundRecord) -> bool:
        """Wait no longer for the estimate of a closing; the next round opens where none has.

        Its counts enter the next closing. ``False`` where it has its estimate or was given up before. When
        is what ``following`` says; a second after the next opened where that is not later, so that whether
        it opened then is known, whatever the clock did.
        """
        campaign, at_s = following.campaign, following.opened_at_s
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=campaign)
            rows = run(sql.GIVE_UP, campaign=campaign, number=number, at_s=at_s)
            if rows:
                sql.open_after(run, locked[0], number, following)
        return bool(rows)

    def given_up(self, campaign: str, *, after: int = 0) -> dict[int, int]:
        """The rounds after this one whose estimate was given up, and how many attempts at it failed."""
        return dict(self._read(sql.GIVEN_UP, campaign=campaign, number=after))

    def replace_document(
        self, following: records.RoundRecord, *, after: int, at_s: int, still_open: bool = False
    ) -> bool:
        """Open a round without waiting for an estimate, in one transaction: round ``after``, the last
        one, is closed where it was open. ``False`` where another did so first, the campaign ended, or
        the round is closed that was to be ``still_open``: it may be the last of its campaign."""
        if following.number <= after:
            raise InvalidInput(f"following ({following.number}) must come after round {after}")
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=following.campaign)
            return bool(locked) and self._replace(
                run, locked[0], following, after, at_s, still_open
            )

    @staticmethod
    def _replace(
        run: sql.Run,
        campaign: records.Row,
        following: records.RoundRecord,
        after: int,
        at_s: int,
        still_open: bool,
    ) -> bool:
        last = run(sql.LAST_ROUND, campaign_key=campaign[0])
        if not last or (still_open and last[0][2] is not None):
            return False
        opened = sql.open_after(run, campaign, after, following)
        if opened:
            only = f"{sql.CLOSE_OPEN} AND number = :after"
            run(only, campaign_key=campaign[0], after=after, at_s=at_s)
        return opened

    def estimate(self, campaign: str, number: int | None = None) -> records.EstimateRecord | None:
        """The estimate made at the close of a round; of the last one that has any, without a number.

        Its ``slots`` are left to :meth:`slot_maps`: they are long.
        """
        which = "" if number is None else "AND r.number = :number"
        statement = f"{sql.ESTIMATE} {which} ORDER BY r.number DESC LIMIT 1"
        return self._one(records.EstimateRecord, statement, campaign=campaign, number=number)

    def slot_maps(self, campaign: str, number: int) -> bytes:
        """The maps of slots beside the estimate of a round; empty where there are none."""
        statement = f"SELECT slots FROM estimate WHERE round_key = {sql.ROUND_KEY}"
        return bytes(self._value(statement, campaign=campaign, number=number) or b"")

    def estimated_rounds(self, campaign: str) -> set[int]:
        """The numbers of the rounds that have an estimate."""
        return {number for (number,) in self._read(sql.ESTIMATED, campaign=campaign)}

    def forget_ids(self, *, now_s: int) -> int:
        """Drop the ids of rounds whose ``accept_until_s`` lies before ``now_s``; how many.

        From then on ``add`` refuses reports for such a round with ``InvalidInput``, since a repeated
        one would count again: a ``now_s`` some minutes back spares those still on their way.
        """
        dropped = 0
        for (campaign_key,) in dict.fromkeys(self._read(sql.OVER, now_s=now_s)):
            after: bytes | None = b""
            while after is not None:
                with self.writing() as run:
                    after, some = sql.forget_some(run, campaign_key, now_s, after, _AT_A_TIME)
                dropped += some
        return dropped

    # -- work on closings and preparations --------------------------------------------------------

    def claim(self, job: records.Job, *, until_s: int, held_until_s: int = 0) -> bool:
        """Take the work on a job for a while, so that several processes do not all do it.

        Whoever has it gives ``held_until_s``, until when, to have it longer; so does whoever has seen that
        stand still for as long as a claim lasts, to take it over. No time is compared with a clock, which
        may have been set. ``False`` where another has it, it is done or given up, the campaign waits for
        another preparation by now, or the claim is none of this job: it is one of a campaign made anew.
        """
        times = {"until_s": until_s, "held_until_s": held_until_s}
        return bool(self._write(sql.CLAIM[type(job)], **sql.names_of(job), **times))

    def release(self, job: records.Job, *, held_until_s: int) -> None:
        """Give the work on a job back, for whoever comes next, unless another has it by now."""
        self._write(sql.RELEASE[type(job)], **sql.names_of(job), held_until_s=held_until_s)

    def failed(self, job: records.Job) -> int:
        """One more attempt at a job has failed; how many have."""
        rows = self._write(sql.FAIL[type(job)], **sql.names_of(job))
        return int(rows[0][0]) if rows else 0

    # -- rounds that open when their mechanisms are made ------------------------------------------

    def preparation(self, campaign: str) -> records.PreparationRecord | None:
        """What a campaign waits for, or why it cannot be; ``None`` where all is prepared."""
        statement = f"{sql.PREPARATION} WHERE c.id = :campaign"
        return self._one(records.PreparationRecord, statement, campaign=campaign)

    def preparations(self) -> list[records.PreparationRecord]:
        """What is to be prepared, oldest campaign first."""
        running = "WHERE p.problem = '' AND c.state <> 'ended' ORDER BY c.key"
        return self._every(records.PreparationRecord, f"{sql.PREPARATION} {running}")

    def prepare(self, preparation: records.PreparationRecord) -> bool:
        """Let a campaign wait for this round, in the place of any other it waits for.

        ``False``, and nothing changed, where there is no such campaign, it has ended, or the round would
        not be its next.
        """
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=preparation.campaign)
            if not locked or locked[0][1] == "ended":
                return False
            key = {"campaign_key": locked[0][0]}
            last = run(sql.LAST_ROUND, **key)
            if last and last[0][1] >= preparation.round:
                return False
            run(sql.PREPARE, number=preparation.round, space=preparation.space, **key)
        return True

    def refuse_preparation(self, preparation: records.PreparationRecord, problem: str) -> bool:
        """Keep why a round cannot open, and end its campaign; ``False`` where it waits for another."""
        if not problem:
            raise InvalidInput("problem must be a sentence")
        with self.writing() as run:
            run(self.LOCKED, campaign=preparation.campaign)
            refused = run(sql.REFUSE, problem=problem, **sql.names_of(preparation))
            if refused:
                run("UPDATE campaign SET state = 'ended' WHERE id = :id", id=preparation.campaign)
        return bool(refused)

    def finish_preparation(
        self, preparation: records.PreparationRecord, opened: records.RoundRecord, *, at_s: int
    ) -> bool:
        """Open the round that a campaign waited for, in one transaction; the one before is closed.

        ``False``, and no round opened, where the campaign has ended or waits for something else by now; or
        where a round as late is open already: then it waits for this one no longer.
        """
        if (opened.campaign, opened.number) != (preparation.campaign, preparation.round):
            raise InvalidInput("opened must be the round that was prepared")
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=preparation.campaign)
            if not locked or locked[0][1] == "ended":
                return False
            key = {"campaign_key": locked[0][0]}
            last = run(sql.LAST_ROUND, **key)
            if not run(sql.PREPARED, **sql.names_of(preparation)) or (
                last and last[0][1] >= preparation.round
            ):
                return False
            run(sql.CLOSE_OPEN, **key, at_s=at_s)
            sql.open_round(run, locked[0][0], opened)
        return True

    # -- tickets ---------------------------------------------------------------------------------

    def ticket_key(self, campaign: str) -> bytes | None:
        """What signs the tickets of a campaign; ``None`` where nothing does."""
        primes: bytes | None = self._value(sql.TICKET_KEY, campaign=campaign)
        return primes

    def invite(self, campaign: str, digests: Sequence[bytes]) -> bool:
        """Keep the SHA-256 of codes that each is good for one ticket; ``False``, and none kept, where the
        campaign has ended or there is none."""
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=campaign)
            if not locked or locked[0][1] == "ended":
                return False
            for digest in digests:
                run(sql.INVITE, campaign_key=locked[0][0], digest=digest)
        return True

    def invitations(self, campaign: str) -> tuple[int, int]:
        """How many codes were made, and how many of them used."""
        ((made, used),) = self._read(sql.INVITED, campaign=campaign)
        return made, used

    def use_invitation(self, campaign: str, digest: bytes, request: bytes) -> bool | None:
        """Use a code for one request, by its SHA-256, now or again; ``False`` where it was used for
        another, ``None`` where there is no such code."""
        with self.writing() as run:
            code = {"campaign": campaign, "digest": digest}
            if run(sql.USE_INVITATION, **code, request=request):
                return True
            return False if run(sql.IS_INVITED, **code) else None

    # -- operators -------------------------------------------------------------------------------

    def add_token(self, digest: bytes, *, label: str, at_s: int) -> None:
        """Keep the SHA-256 of an operator's token."""
        self._write(sql.KEEP_TOKEN, digest=digest, label=label, at_s=at_s)

    def token_known(self, digest: bytes) -> bool:
        """Whether a token with this SHA-256 may operate."""
        return bool(self._read("SELECT 1 FROM token WHERE digest = :digest", digest=digest))

    def has_tokens(self) -> bool:
        """Whether any operator's token is kept."""
        return bool(self._read("SELECT 1 FROM token LIMIT 1"))

    def tokens(self) -> list[records.TokenRecord]:
        """The tokens of all operators, oldest first."""
        statement = "SELECT digest, label, created_at_s FROM token ORDER BY created_at_s, digest"
        return self._every(records.TokenRecord, statement)

    def take_back_token(self, digest: bytes) -> bool:
        """Let the token with this SHA-256 operate no more; ``False`` where there is none."""
        statement = "DELETE FROM token WHERE digest = :digest RETURNING digest"
        return bool(self._write(statement, digest=digest))

    # -- time ------------------------------------------------------------------------------------

    def keep_time(self, at_s: int) -> None:
        """Keep the time of now, for :meth:`time_kept` after the next start."""
        self._write(sql.KEEP_TIME, at_s=at_s)

    def time_kept(self) -> int | None:
        """The time when a service last looked; ``None`` where none ever has."""
        seen_s: int | None = self._value("SELECT seen_at_s FROM upkeep")
        return seen_s

    def shared_time_s(self) -> float | None:
        """The time by the database's own clock, which services on several machines share; else ``None``."""
        return None

    def mark_copy(self, at_s: int | None) -> None:
        """Say that this is a copy of a store as of some time, or (``None``) no longer one."""
        if at_s is None:
            self._write("UPDATE upkeep SET copied_at_s = NULL")
        else:
            self._write(sql.MARK_COPY, at_s=at_s)

    def copied_at_s(self) -> int | None:
        """When the backup was made that this store was restored from; ``None`` where it was not."""
        copied_s: int | None = self._value("SELECT copied_at_s FROM upkeep")
        return copied_s

    # -- inside ----------------------------------------------------------------------------------

    def _read(self, statement: str, **values: object) -> list[records.Row]:
        with self.reading() as run:
            return run(statement, **values)

    def _every(self, kind: Callable[..., R], statement: str, **values: object) -> list[R]:
        return [kind(*row) for row in self._read(statement, **values)]

    def _one(self, kind: Callable[..., R], statement: str, **values: object) -> R | None:
        return next(iter(self._every(kind, statement, **values)), None)

    def _value(self, statement: str, **values: object) -> Any:
        """The only value of the first row; ``None`` without one."""
        rows = self._read(statement, **values)
        return rows[0][0] if rows else None

    def _write(self, statement: str, **values: object) -> list[records.Row]:
        with self.writing() as run:
            return run(statement, **values)
