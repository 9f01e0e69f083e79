"""What the worker works on: closings to estimate and rounds to prepare, from claim to outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoveil.document.canonical import canonical_bytes
from geoveil.position.positional import Placed
from geoveil.server.conclusion import Conclusion, Work
from geoveil.server.problem import Problem
from geoveil.server.round_documents import Prepared, Preparing, lacks_area, opened, renewed
from geoveil.store import EstimateRecord, Job, PreparationRecord

if TYPE_CHECKING:
    from geoveil.server.campaigns import Campaigns

GIVEN_UP = "its mechanism could not be made; make another campaign of fewer cells"
AnyWork = Work | Preparing
Outcome = Conclusion | Prepared


class Jobs:
    """The jobs of all campaigns of a store; thread-safe."""

    def __init__(self, campaigns: Campaigns) -> None:
        self._campaigns = campaigns
        self._store = campaigns.store

    def want(self, campaign: str, number: int, space: Placed) -> bool:
        """Let a round over the cells that an operator drew be prepared; ``False`` where it cannot be."""
        return self._store.prepare(
            PreparationRecord(campaign, number, canonical_bytes(space.to_dict()))
        )

    def preparations(self) -> list[PreparationRecord]:
        """What can be prepared now; a box of too many cells waits for city limits."""
        return [each for each in self._store.preparations() if self._can_begin(each)]

    def _can_begin(self, wanted: PreparationRecord) -> bool:
        try:
            return not lacks_area(wanted, self._campaigns.settings(wanted.campaign))
        except Problem:  # deleted meanwhile
            return False

    def claim(self, job: Job, *, for_s: int, held_until_s: int = 0) -> int:
        """Take a job for a while, or have it longer: until when; 0 where another process has it."""
        now = int(self._campaigns.clock())
        claimed = self._store.claim(job, now_s=now, for_s=for_s, held_until_s=held_until_s)
        return now + for_s if claimed else 0

    def work(self, job: Job) -> AnyWork:
        """A job with all that it is made from, for another process.

        After the second attempt at an estimate that failed, and every further one, only a quarter of the
        rounds: the estimate says which it is made from.
        """
        settings = self._campaigns.settings(job.campaign)
        if isinstance(job, PreparationRecord):
            return Preparing(job, settings, int(self._campaigns.clock()))
        campaign, store = job.campaign, self._store
        counted = store.closing_pairs if settings.trips else store.closing_counts
        counts = counted(campaign, job.round)
        filled = [number for number in sorted(counts) if counts[number].any()]
        newest = set(filled[-max(1, len(filled) >> 2 * max(0, job.failures - 1)) :])
        rounds = [each for each in store.rounds(campaign) if each.number in newest]
        documents = {each.number: each.document for each in rounds}
        before = store.estimate(campaign)
        return Work(
            campaign,
            job.round,
            job.closed_at_s,
            settings,
            documents,
            {number: counts[number] for number in documents},
            None if before is None else (before.round, before.body),
            settings.ends_with(store.rounds_concluded(campaign)),
            bool(rounds and rounds[-1].around),
        )

    def publish(self, work: AnyWork, outcome: Outcome) -> bool:
        """Keep what a job led to; ``False`` where another process has, or another preparation is wanted.

        The next round opens now; a document of which too little is left gets a lifetime that begins now.
        """
        now = int(self._campaigns.clock())
        if isinstance(work, Preparing):
            assert isinstance(outcome, Prepared)
            campaign = work.wanted.campaign
            if outcome.opened is None:
                kept = self._store.refuse_preparation(work.wanted, outcome.problem)
            else:
                following = opened(outcome.opened, work.settings, now)
                kept = self._store.finish_preparation(work.wanted, following, at_s=now)
        else:
            assert isinstance(outcome, Conclusion)
            campaign, made = work.campaign, (outcome.reports, outcome.body, outcome.slots)
            after = outcome.following and opened(outcome.following, work.settings, now)
            kept = self._store.publish(EstimateRecord(campaign, work.round, now, *made), after)
        self._campaigns.forget(campaign)
        return kept

    def give_up(self, job: Job) -> bool:
        """Make no further attempt; ``False`` where another process has made or given it up.

        A campaign goes on without an estimate, with the mechanism it has, and the reports enter the next
        one; without its mechanism it ends.
        """
        if isinstance(job, PreparationRecord):
            kept = self._store.refuse_preparation(job, GIVEN_UP)
        else:
            now, settings = int(self._campaigns.clock()), self._campaigns.settings(job.campaign)
            current = self._campaigns.look(job.campaign)
            record = renewed(current, settings, now, current.number + 1)
            kept = self._store.give_up(job.campaign, job.round, record, at_s=now)
        self._campaigns.forget(job.campaign)
        return kept
