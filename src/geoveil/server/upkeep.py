"""What a service does each second: rounds that are due close, rounds that expired are renewed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from geoveil.server import round_documents
from geoveil.server.campaigns import LARGEST_ROUND, Campaigns
from geoveil.server.problem import Problem
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.store import ClosingRecord, RoundRecord, RoundTimes, StoreFailed

FORGET_EVERY_S = 60.0
"""How often the ids of rounds that accept nothing any more are dropped."""
QUEUED_S = 600
"""How long after its end a round keeps its ids: reports taken in time may still wait for a commit."""
MOST_ROUNDS_A_SECOND = 10
"""More than can be opened in one campaign: each needs a look at the store and an estimate."""


class Upkeep:
    """Looks after the campaigns of one process; another may do the same over the same store.

    While the clock is in doubt no round is closed or opened, and no id is forgotten. ``fault`` is told once
    of a campaign that cannot be looked after; the others go on.
    """

    def __init__(self, campaigns: Campaigns, *, fault: Callable[[str, Exception], None]) -> None:
        self.campaigns = campaigns
        self.store = campaigns.store
        self.clock = campaigns.clock
        self._cleaned_at_s = self.clock()
        self._began = False
        self._settled: dict[str, tuple[RoundTimes, bool, int]] = {}
        """Campaign → its newest round, whether it had expired, and how often the campaign was changed here,
        where a look at it changed nothing."""
        self._fault = fault
        self._failing: set[str] = set()

    def tick(self) -> list[ClosingRecord]:
        """Look at every campaign once: close what is due, renew what expired, drop old ids.

        Returns the closings without an estimate, for a ``Worker``.
        """
        self.clock.compare()
        if not self.clock.in_doubt:
            if not self._began:
                self._open_above()
            waiting = {record.campaign for record in self.store.preparations()}
            newest = self.campaigns.refresh()
            for campaign in waiting:
                self._try(campaign, lambda settings: None)
            for last in newest:
                if last.campaign not in waiting:
                    self._try(last.campaign, partial(self._attend, last))
            running = {last.campaign for last in newest}
            self._failing &= running | waiting
            self._settled = {name: self._settled[name] for name in running & self._settled.keys()}
            self._keep_house()
        else:
            self.campaigns.refresh()
        return self.store.closings()

    def _open_above(self) -> None:
        """Where the store is a backup, open rounds above all that may have been published since.

        It stays one where that fails for a campaign: the next start does it again.
        """
        copied_at_s = self.store.copied_at_s()
        if copied_at_s is not None:
            # of either sign: a clock that was set back hides how much has passed
            passed = MOST_ROUNDS_A_SECOND * abs(int(self.clock()) - copied_at_s)
            waiting = {record.campaign: record for record in self.store.preparations()}
            for campaign in self.store.campaigns():
                if campaign.id in waiting:
                    record = waiting[campaign.id]
                    self.store.prepare(replace(record, round=_later(record.round, passed)))
                    continue
                if campaign.state != "ended":
                    self._try(campaign.id, partial(self._renew_above, campaign.id, passed))
            if not self._failing:
                self.store.mark_copy(None)
        self._began = True

    def _renew_above(self, campaign: str, passed: int, settings: CampaignSettings) -> None:
        current = self.campaigns.look(campaign)
        if not self.campaigns.is_over(current, settings):
            self.campaigns.renew(current, settings, _later(current.number, passed) + 1)

    def _try(self, campaign: str, look: Callable[[CampaignSettings], None]) -> None:
        """Look at a campaign; what only this one raises, such as settings of a newer program, is its own."""
        try:
            with suppress(Problem):  # it was deleted or has ended meanwhile
                look(self.campaigns.settings(campaign))
            self._failing.discard(campaign)
        except StoreFailed:
            raise
        except Exception as error:
            if campaign not in self._failing:
                self._fault("campaign-failed", error)
            self._failing.add(campaign)

    def _attend(self, last: RoundTimes, settings: CampaignSettings) -> None:
        """Look at the newest round of a campaign, and read it where there may be something to do."""
        now, campaign = int(self.clock()), last.campaign
        expired = now >= last.expires_at_s
        due = expired or (last.closed_at_s is None and settings.is_due(last, now))
        look = last, expired, self.campaigns.changes[campaign]
        if _ahead(last, now) or (due and self._settled.get(campaign) != look):
            self._roll_over(self.campaigns.look(campaign), settings)
            self._settled[campaign] = last, expired, self.campaigns.changes[campaign]

    def _roll_over(self, current: RoundRecord, settings: CampaignSettings) -> None:
        now, campaigns = int(self.clock()), self.campaigns
        ahead, is_open = _ahead(current, now), current.closed_at_s is None
        # also of a closed round: nobody need wait for the estimate with a document of no use
        useless = ahead or now >= current.expires_at_s
        enough = current.total >= settings.minimum_reports
        if is_open and not ahead and enough and settings.is_due(current, now):
            campaigns.close_if_large(current, settings.minimum_reports)
        elif (is_open and ahead) or (useless and not campaigns.is_over(current, settings)):
            campaigns.renew(current, settings, current.number + 1)

    def _keep_house(self) -> None:
        """Once a minute: keep the time, drop the ids of rounds that accept nothing any more, and settle."""
        now = self.clock()
        if 0 <= now - self._cleaned_at_s < FORGET_EVERY_S:
            return
        self._cleaned_at_s = now
        self.store.keep_time(int(now))
        if self.clock.certain:
            self.store.forget_ids(now_s=int(now) - QUEUED_S)
        self.store.settle()


def _ahead(opened: RoundRecord | RoundTimes, now_s: int) -> bool:
    """Whether a round opened in the future: the clock was wrong when it did."""
    return opened.opened_at_s > now_s + round_documents.SLOW_CLOCKS_S


def _later(number: int, rounds: int) -> int:
    """The number so many rounds later, or half-way to the largest: also where a clock is decades wrong."""
    return number + min(rounds, max(LARGEST_ROUND - number, 0) // 2)
