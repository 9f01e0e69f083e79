"""Campaigns, rounds and counts in SQL: the statements that both databases share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store.contract import (
    CampaignRecord,
    Closing,
    EstimateRecord,
    RoundKeys,
    RoundRecord,
    Row,
    packed,
    unpacked,
)

_ROUND = """
    SELECT c.id, r.number, r.mechanism, r.document, r.cells, r.opened_at_s, r.expires_at_s,
           r.accept_until_s, r.closed_at_s,
           CAST(coalesce((SELECT sum(t.count) FROM round_total t WHERE t.round_key = r.key), 0) AS bigint)
    FROM round r JOIN campaign c ON c.key = r.campaign_key
"""
_CAMPAIGN = "SELECT id, name, settings, created_at_s FROM campaign"
_ESTIMATE = """
    SELECT c.id, r.number, e.made_at_s, e.reports, e.body
    FROM estimate e JOIN round r ON r.key = e.round_key JOIN campaign c ON c.key = r.campaign_key
    WHERE c.id = :campaign
"""


class Run(Protocol):
    """Runs one statement inside a transaction; its rows."""

    def __call__(self, statement: str, **values: object) -> list[Row]: ...


class Records(ABC):
    """What is kept about campaigns, rounds, estimates and tokens."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, int], RoundKeys] = {}

    @abstractmethod
    def reading(self) -> AbstractContextManager[Run]:
        """A transaction that only reads, all of it from one moment."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Run]:
        """A transaction that is committed at the end, or undone where anything was raised."""

    @abstractmethod
    def lock(self, run: Run, campaign: str) -> int | None:
        """The key of a campaign whose rounds nobody else changes until the transaction ends."""

    # -- campaigns and rounds --------------------------------------------------------------------

    def create_campaign(self, campaign: CampaignRecord, first: RoundRecord) -> bool:
        """Keep a campaign with its first round; ``False`` (and nothing kept) where the id exists."""
        if first.campaign != campaign.id or first.number != 1:
            raise InvalidInput("first must be round 1 of the campaign it is kept with")
        with self.writing() as run:
            made = run(
                "INSERT INTO campaign (id, name, settings, created_at_s)"
                " VALUES (:id, :name, :settings, :created_at_s)"
                " ON CONFLICT (id) DO NOTHING RETURNING key",
                id=campaign.id,
                name=campaign.name,
                settings=campaign.settings,
                created_at_s=campaign.created_at_s,
            )
            if made:
                open_round(run, int(made[0][0]), first)
        return bool(made)

    def campaigns(self) -> list[CampaignRecord]:
        """All campaigns, oldest first."""
        with self.reading() as run:
            return [CampaignRecord(*row) for row in run(f"{_CAMPAIGN} ORDER BY key")]

    def campaign(self, campaign: str) -> CampaignRecord | None:
        """One campaign."""
        with self.reading() as run:
            rows = run(f"{_CAMPAIGN} WHERE id = :campaign", campaign=campaign)
        return CampaignRecord(*rows[0]) if rows else None

    def rounds(self, campaign: str) -> list[RoundRecord]:
        """All rounds of a campaign, oldest first, with their totals now."""
        with self.reading() as run:
            rows = run(f"{_ROUND} WHERE c.id = :campaign ORDER BY r.number", campaign=campaign)
        return [RoundRecord(*row) for row in rows]

    def round_of(self, mechanism: str) -> RoundRecord | None:
        """The round that published this document."""
        with self.reading() as run:
            rows = run(f"{_ROUND} WHERE r.mechanism = :mechanism", mechanism=mechanism)
        return RoundRecord(*rows[0]) if rows else None

    def keys(self, campaign: str, number: int) -> RoundKeys:
        """The keys of a round, remembered since they never change."""
        found = self._keys.get((campaign, number))
        if found is None:
            with self.reading() as run:
                rows = run(
                    "SELECT c.key, r.key, r.cells FROM round r JOIN campaign c ON c.key = r.campaign_key"
                    " WHERE c.id = :campaign AND r.number = :number",
                    campaign=campaign,
                    number=number,
                )
            if not rows:
                raise InvalidInput(f"round ({number}) must be one of the campaign's")
            found = self._keys[campaign, number] = RoundKeys(*rows[0])
        return found

    # -- estimates -------------------------------------------------------------------------------

    def estimate(self, campaign: str, number: int | None = None) -> EstimateRecord | None:
        """The estimate made at the close of a round; of the last one that has any, without a number."""
        which = "" if number is None else " AND r.number = :number"
        values: Mapping[str, object] = {} if number is None else {"number": number}
        with self.reading() as run:
            rows = run(
                f"{_ESTIMATE}{which} ORDER BY r.number DESC LIMIT 1", campaign=campaign, **values
            )
        return EstimateRecord(*rows[0]) if rows else None

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
        with self.reading() as run:
            return bool(run("SELECT 1 FROM token WHERE digest = :digest", digest=digest))

    def has_tokens(self) -> bool:
        """Whether any operator's token was ever kept."""
        with self.reading() as run:
            return bool(run("SELECT 1 FROM token LIMIT 1"))


def open_round(run: Run, campaign_key: int, opened: RoundRecord) -> None:
    """Keep a round that opens now; whatever the record says of its end or its total is not kept."""
    made = run(
        "INSERT INTO round (campaign_key, number, mechanism, document, cells, opened_at_s,"
        " expires_at_s, accept_until_s) VALUES (:campaign_key, :number, :mechanism, :document,"
        " :cells, :opened_at_s, :expires_at_s, :accept_until_s)"
        " ON CONFLICT (mechanism) DO NOTHING RETURNING key",
        campaign_key=campaign_key,
        number=opened.number,
        mechanism=opened.mechanism,
        document=opened.document,
        cells=opened.cells,
        opened_at_s=opened.opened_at_s,
        expires_at_s=opened.expires_at_s,
        accept_until_s=opened.accept_until_s,
    )
    if not made:
        raise InvalidInput("mechanism must not be published twice; make a document of its own")


# --- Counts and the ends of rounds in SQL, each change in one transaction; alike in both databases


_LAST = """
    SELECT r.key, r.number, r.closed_at_s,
           CAST(coalesce((SELECT sum(t.count) FROM round_total t WHERE t.round_key = r.key), 0) AS bigint)
    FROM round r WHERE r.campaign_key = :campaign_key ORDER BY r.number DESC LIMIT 1
"""
_CLOSED = """
    SELECT r.key, EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = r.key)
    FROM closing k JOIN round r ON r.key = k.round_key
    WHERE r.campaign_key = :campaign_key AND r.number = :number
"""


class Rounds(Records):
    """How a round ends, and what is kept of that moment."""

    def counts(self, campaign: str) -> dict[int, IntArray]:
        """Round number → counts by cell, all from one moment."""
        with self.reading() as run:
            found = run("SELECT key FROM campaign WHERE id = :campaign", campaign=campaign)
            return {n: counts for _, n, counts in _counts(run, found[0][0])} if found else {}

    def close_round(self, campaign: str, number: int, *, minimum: int, at_s: int) -> bool:
        """Close the open round and keep the counts of all rounds at that moment, in one transaction."""
        with self.writing() as run:
            campaign_key = self.lock(run, campaign)
            if campaign_key is None:
                return False
            key, last, closed_at_s, total = run(_LAST, campaign_key=campaign_key)[0]
            if last != number or closed_at_s is not None or total < max(minimum, 1):
                return False
            _mark_closed(run, key, at_s)
            run(
                "INSERT INTO closing (round_key, closed_at_s) VALUES (:key, :at_s)",
                key=key,
                at_s=at_s,
            )
            for round_key, _, counts in list(_counts(run, campaign_key)):
                run(
                    "INSERT INTO closing_tally (closing_key, round_key, counts)"
                    " VALUES (:key, :round_key, :counts)",
                    key=key,
                    round_key=round_key,
                    counts=packed(counts),
                )
        return True

    def closings(self) -> list[Closing]:
        """Closed rounds that have no estimate yet, oldest first."""
        with self.reading() as run:
            waiting = run(
                "SELECT k.round_key, c.id, r.number, k.closed_at_s FROM closing k"
                " JOIN round r ON r.key = k.round_key JOIN campaign c ON c.key = r.campaign_key"
                " WHERE NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = k.round_key)"
                " ORDER BY k.closed_at_s, k.round_key"
            )
            return [
                Closing(campaign, number, at_s, _kept(run, key))
                for key, campaign, number, at_s in waiting
            ]

    def claim(
        self, campaign: str, number: int, *, now_s: int, for_s: int, held_until_s: int = 0
    ) -> bool:
        """Take the work on a closing for a while, or have it longer."""
        with self.writing() as run:
            return bool(
                run(
                    "UPDATE closing SET claimed_until_s = :until_s"
                    " WHERE (claimed_until_s <= :now_s OR claimed_until_s = :held_until_s)"
                    " AND round_key = (SELECT r.key FROM round r JOIN campaign c"
                    " ON c.key = r.campaign_key WHERE c.id = :campaign AND r.number = :number)"
                    " AND NOT EXISTS (SELECT 1 FROM estimate e WHERE e.round_key = closing.round_key)"
                    " RETURNING round_key",
                    until_s=now_s + for_s,
                    now_s=now_s,
                    held_until_s=held_until_s,
                    campaign=campaign,
                    number=number,
                )
            )

    def release(self, campaign: str, number: int) -> None:
        """Give the work on a closing back, for whoever comes next."""
        with self.writing() as run:
            run(
                "UPDATE closing SET claimed_until_s = 0 WHERE round_key = (SELECT r.key FROM round r"
                " JOIN campaign c ON c.key = r.campaign_key"
                " WHERE c.id = :campaign AND r.number = :number)",
                campaign=campaign,
                number=number,
            )

    def publish(self, estimate: EstimateRecord, following: RoundRecord | None) -> bool:
        """Keep the estimate of a closed round and open the next one, if any, in one transaction."""
        expected = (estimate.campaign, estimate.round + 1)
        if following is not None and (following.campaign, following.number) != expected:
            raise InvalidInput("following must be the round after the one that was estimated")
        with self.writing() as run:
            campaign_key = self.lock(run, estimate.campaign)
            closed = run(_CLOSED, campaign_key=campaign_key, number=estimate.round)
            if campaign_key is None or not closed:
                raise InvalidInput(f"round ({estimate.round}) must be closed before its estimate")
            key, estimated = closed[0]
            if estimated:
                return False
            run(
                "INSERT INTO estimate (round_key, made_at_s, reports, body)"
                " VALUES (:key, :made_at_s, :reports, :body)",
                key=key,
                made_at_s=estimate.made_at_s,
                reports=estimate.reports,
                body=estimate.body,
            )
            if following is not None:
                open_round(run, campaign_key, following)
        return True

    def replace_document(self, following: RoundRecord, *, at_s: int) -> bool:
        """Close the last round without an estimate and open the next one, in one transaction."""
        with self.writing() as run:
            campaign_key = self.lock(run, following.campaign)
            if campaign_key is None:
                return False
            key, last, closed_at_s, _ = run(_LAST, campaign_key=campaign_key)[0]
            if last != following.number - 1 or closed_at_s is not None:
                return False
            _mark_closed(run, key, at_s)
            open_round(run, campaign_key, following)
        return True


def _mark_closed(run: Run, key: int, at_s: int) -> None:
    run("UPDATE round SET closed_at_s = :at_s WHERE key = :key", key=key, at_s=at_s)


def _counts(run: Run, campaign_key: int) -> Iterable[tuple[int, int, IntArray]]:
    """Key, number and counts of every round of a campaign; one statement, so of one moment."""
    rows = run(
        "SELECT r.key, r.number, r.cells, t.cell, CAST(sum(t.count) AS bigint)"
        " FROM round r LEFT JOIN tally t ON t.round_key = r.key"
        " WHERE r.campaign_key = :campaign_key"
        " GROUP BY r.key, r.number, r.cells, t.cell ORDER BY r.number",
        campaign_key=campaign_key,
    )
    rounds: dict[int, tuple[int, int, IntArray]] = {}
    for key, number, cells, cell, count in rows:
        if key not in rounds:
            rounds[key] = (key, number, np.zeros(cells, dtype=np.int64))
        if cell is not None:
            rounds[key][2][cell] = count
    return rounds.values()


def _kept(run: Run, closing_key: int) -> dict[int, IntArray]:
    rows = run(
        "SELECT r.number, k.counts FROM closing_tally k JOIN round r ON r.key = k.round_key"
        " WHERE k.closing_key = :closing_key ORDER BY r.number",
        closing_key=closing_key,
    )
    return {number: unpacked(counts) for number, counts in rows}


# --- Ids of reports are kept only while a repeated one could still arrive; then they are dropped


_AT_A_TIME = 10_000
"""Ids looked at in one transaction: reports are counted between two of these."""


class Forgetting(Rounds):
    """Drops the ids of rounds that no longer accept reports."""

    def forget_ids(self, *, now_s: int) -> int:
        """Drop the ids of rounds that no longer accept reports; how many."""
        with self.reading() as run:
            over = run(
                "SELECT campaign_key, key FROM round"
                " WHERE ids_dropped < 2 AND accept_until_s < :now_s ORDER BY key",
                now_s=now_s,
            )
        return sum(self._forget(*keys) for keys in over)

    def _forget(self, campaign_key: int, round_key: int) -> int:
        dropped, after = 0, b""
        while True:
            stop, count = self._forget_some(campaign_key, round_key, after)
            dropped += count
            if stop is None:
                return dropped
            after = stop

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
            some = (
                "FROM report WHERE campaign_key = :campaign_key AND id > :after"
                f"{' AND id <= :stop' if further else ''} AND round_key = :round_key"
            )
            values: dict[str, object] = {
                "campaign_key": campaign_key,
                "round_key": round_key,
                "after": after,
            }
            if further:
                values["stop"] = further[0][0]
            ((count,),) = run(f"SELECT count(*) {some}", **values)
            run(f"DELETE {some}", **values)
            if not further:
                run("UPDATE round SET ids_dropped = 2 WHERE key = :key", key=round_key)
        return (further[0][0] if further else None), int(count)
