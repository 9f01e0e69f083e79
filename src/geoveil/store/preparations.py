"""Rounds that open when their mechanisms are made: what is to be made, and by whom.

A design of many cells takes longer than a request may. The campaign is kept at once, and with it what is
to be prepared; a row of ``preparation`` is there until the round opens, or the reason why it cannot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import ClassVar

from geoveil.errors import InvalidInput
from geoveil.store import records
from geoveil.store import statements as sql

_PREPARATION = """
    SELECT c.id, p.number, p.space, p.failures, p.problem
    FROM preparation p JOIN campaign c ON c.key = p.campaign_key
"""
_CAMPAIGN_KEY = "(SELECT key FROM campaign WHERE id = :campaign)"
_SAME = f"""
    campaign_key = {_CAMPAIGN_KEY} AND number = :number AND space = :space AND problem = ''
"""
_CLAIM = f"""
    UPDATE preparation SET claimed_until_s = :until_s
    WHERE (claimed_until_s <= :now_s OR claimed_until_s > :until_s + {sql.OUTDATED_S}
           OR claimed_until_s = :held_until_s) AND {_SAME}
    AND EXISTS (SELECT 1 FROM campaign c WHERE c.key = campaign_key AND c.state <> 'ended')
    RETURNING campaign_key
"""
_PREPARE = """
    INSERT INTO preparation (campaign_key, number, space) VALUES (:campaign_key, :number, :space)
    ON CONFLICT (campaign_key) DO UPDATE SET number = excluded.number, space = excluded.space,
        claimed_until_s = 0, failures = 0, problem = ''
"""


class PreparationStore(ABC):
    """The part of a store that keeps preparations."""

    LOCKED: ClassVar[str]

    @abstractmethod
    def reading(self) -> AbstractContextManager[sql.Run]:
        """A transaction that only reads."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[sql.Run]:
        """A transaction that is committed at the end."""

    def preparation(self, campaign: str) -> records.PreparationRecord | None:
        """What a campaign waits for, or why it cannot be; ``None`` where all is prepared."""
        with self.reading() as run:
            rows = run(f"{_PREPARATION} WHERE c.id = :campaign", campaign=campaign)
        return records.PreparationRecord(*rows[0]) if rows else None

    def preparations(self) -> list[records.PreparationRecord]:
        """What is to be prepared, oldest campaign first."""
        with self.reading() as run:
            rows = run(f"{_PREPARATION} WHERE p.problem = '' AND c.state <> 'ended' ORDER BY c.key")
        return [records.PreparationRecord(*row) for row in rows]

    def prepare(self, wanted: records.PreparationRecord) -> bool:
        """Let a campaign wait for this round, in the place of any other it waits for.

        ``False``, and nothing changed, where there is no such campaign, it has ended, or the round would
        not be its next.
        """
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=wanted.campaign)
            if not locked or locked[0][1] == "ended":
                return False
            last = run(sql.LAST_ROUND, campaign_key=locked[0][0])
            if last and last[0][1] >= wanted.round:
                return False
            prepare(run, locked[0][0], wanted)
        return True

    def claim_preparation(
        self,
        wanted: records.PreparationRecord,
        *,
        now_s: int,
        for_s: int,
        held_until_s: int = 0,
    ) -> bool:
        """Take the work on a preparation for a while, as on a closing; ``False`` where another has it, or
        the campaign waits for something else by now."""
        times = {"now_s": now_s, "until_s": now_s + for_s, "held_until_s": held_until_s}
        with self.writing() as run:
            return bool(run(_CLAIM, **_names(wanted), **times))

    def release_preparation(self, wanted: records.PreparationRecord) -> None:
        """Give the work on a preparation back; only whoever claimed it may."""
        with self.writing() as run:
            run(f"UPDATE preparation SET claimed_until_s = 0 WHERE {_SAME}", **_names(wanted))

    def preparation_failed(self, wanted: records.PreparationRecord) -> int:
        """One more attempt has failed; how many have."""
        with self.writing() as run:
            rows = run(
                f"UPDATE preparation SET failures = failures + 1 WHERE {_SAME} RETURNING failures",
                **_names(wanted),
            )
        return int(rows[0][0]) if rows else 0

    def refuse_preparation(self, wanted: records.PreparationRecord, problem: str) -> bool:
        """Keep why a round cannot open, and end its campaign; ``False`` where it waits for another."""
        if not problem:
            raise InvalidInput("problem must be a sentence")
        with self.writing() as run:
            run(self.LOCKED, campaign=wanted.campaign)
            statement = f"UPDATE preparation SET problem = :problem WHERE {_SAME} RETURNING number"
            refused = run(statement, **_names(wanted), problem=problem)
            if refused:
                run(
                    "UPDATE campaign SET state = 'ended' WHERE id = :campaign",
                    campaign=wanted.campaign,
                )
        return bool(refused)

    def finish_preparation(
        self, wanted: records.PreparationRecord, opened: records.RoundRecord, *, at_s: int
    ) -> bool:
        """Open the round that a campaign waited for, in one transaction; the one before is closed.

        ``False``, and nothing changed, where the campaign has ended or waits for something else by now.
        """
        if (opened.campaign, opened.number) != (wanted.campaign, wanted.round):
            raise InvalidInput("opened must be the round that was prepared")
        with self.writing() as run:
            locked = run(self.LOCKED, campaign=wanted.campaign)
            if not locked or locked[0][1] == "ended":
                return False
            done = run(
                f"DELETE FROM preparation WHERE {_SAME} RETURNING campaign_key", **_names(wanted)
            )
            if done:
                run(
                    "UPDATE round SET closed_at_s = :at_s"
                    " WHERE closed_at_s IS NULL AND campaign_key = :campaign_key",
                    campaign_key=locked[0][0],
                    at_s=at_s,
                )
                sql.open_round(run, locked[0][0], opened)
        return bool(done)


def prepare(run: sql.Run, campaign_key: int, wanted: records.PreparationRecord) -> None:
    """Keep what a campaign waits for, in the place of what it waited for."""
    run(_PREPARE, campaign_key=campaign_key, number=wanted.round, space=wanted.space)


def _names(wanted: records.PreparationRecord) -> dict[str, object]:
    """What tells one preparation from another of the same campaign."""
    return {"campaign": wanted.campaign, "number": wanted.round, "space": wanted.space}
