"""Counts and the ends of rounds in SQL, each change in one transaction; alike in both databases."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store.contract import Closing, EstimateRecord, RoundRecord
from geoveil.store.layout import packed, unpacked
from geoveil.store.records import Records, Run, open_round

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
