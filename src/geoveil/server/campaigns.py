"""Campaigns of the service: their states, rounds and closings."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

import msgspec

from geoveil.document.canonical import canonical_bytes
from geoveil.document.ticket import SigningKey, as_text
from geoveil.document.wire import new_id
from geoveil.errors import InvalidInput, number_of
from geoveil.server import conclusion as conclusions
from geoveil.server import round_documents
from geoveil.server.problem import NewerSettings, Problem
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.server.shapes import Drawn, space_of
from geoveil.server.trusted_clock import TrustedClock
from geoveil.store import (
    CampaignRecord,
    EstimateRecord,
    PreparationRecord,
    RoundRecord,
    RoundTimes,
    State,
    Store,
)

FRESH_S = 1.0
"""How old an answer about what changes may be, so that several processes agree within a second."""
LARGEST_ROUND = 999_999_999
"""No address names a later one, and no device takes one of twice as many."""
_MOST_ROUNDS, _MOST_UNKNOWN = 4096, 1024
_STANDING = {
    "paused": "the campaign takes no reports for now; try again later",
    "ended": "the campaign has ended and takes no reports any more",
}
_NO_MAP = "a report would enter no map any more"
VERSION_1 = b'"geoveil":1,'
"""In documents whose promise was between cells; their campaigns have ended."""


class Campaigns:
    """All campaigns of a store. Thread-safe; every call blocks but :meth:`find` of a known mechanism.

    What never changes (settings, published rounds) is kept here; what changes is read from the store
    again when it is more than a second old by ``clock``.
    """

    def __init__(self, store: Store, *, clock: TrustedClock | None = None) -> None:
        self.store = store
        self.clock = clock or TrustedClock()
        self._lock = Lock()
        self._settings: dict[str, tuple[tuple[int, bytes], CampaignSettings]] = {}
        """Campaign → when it was made with its settings as the store has them, and these decoded."""
        self.published: dict[str, RoundRecord] = {}
        """Mechanism → its round, where :meth:`find` has looked it up; for a look without waiting."""
        self.ticket_keys: dict[str, SigningKey | None] = {}
        """Campaign → what :meth:`ticket_key` has looked up, for the same."""
        self._unknown: dict[str, float] = {}
        self._current: dict[str, tuple[float, RoundRecord]] = {}
        self._states: dict[str, tuple[float, dict[str, Any]]] = {}
        self.changes: Counter[str] = Counter()
        """Campaign → how often something was changed here, for looks that were under way meanwhile."""
        self._over: dict[str, str] = {}
        """Campaign that is finished → its last mechanism: it stays so until another follows."""
        self._standing: dict[str, State] = {}
        """Campaign → what its operator says of it, as of the last look."""

    # -- making ----------------------------------------------------------------------------------

    def create(self, settings: CampaignSettings) -> CampaignRecord:
        """Check the settings, design the first mechanism for people who may be anywhere, keep both.

        Of many cells the mechanism is left to the worker, and the campaign says that it is being prepared.
        Raises ``InvalidInput`` with one sentence, or ``campaign-exists``.
        """
        settings.problems()
        now = int(self.clock())
        settings.check_not_over(now)
        campaign = new_id(settings.name) if settings.id is None else settings.id
        exists = Problem(
            "campaign-exists", f"a campaign {campaign!r} exists already; choose another id"
        )
        if self.store.campaign(campaign) is not None:
            raise exists
        settings = msgspec.structs.replace(settings, id=campaign)
        first = None
        if round_documents.at_once(settings.grid):
            documents = round_documents.first_documents(settings, campaign, now)
            first = round_documents.record_of(documents, settings, now)
        record = CampaignRecord(campaign, settings.name, settings.to_bytes(), now)
        key = SigningKey.new().to_bytes() if settings.tickets else None
        if not self.store.create_campaign(record, first, key):
            raise exists
        return record

    def draw(self, campaign: str, area: Drawn) -> None:
        """Keep only the cells of a box that city limits cover, or places in it, before anybody has reported.

        A round with mechanisms for those follows the open one, or is prepared where they are many. A
        report that was drawn under the box and comes later is counted in its own round, and enters no map.
        Raises ``unknown-campaign``, ``campaign-ended``, ``area-fixed`` or ``invalid-campaign``.
        """
        if self._record(campaign).state == "ended":
            raise Problem("campaign-ended", "a campaign that has ended keeps its area")
        settings, now = self.settings(campaign), int(self.clock())
        waits, last = self.store.preparation(campaign), self.store.last_round(campaign)
        after = 0 if last is None else last.number
        if waits is not None and waits.round <= after:
            waits = None  # another round was opened in its place
        number = after + 1 if waits is None else waits.round
        space = space_of(settings, area)
        self._check_unreported(campaign)
        if not round_documents.at_once(space, len(settings.rule.promises)):
            wanted = PreparationRecord(campaign, number, canonical_bytes(space.to_dict()))
            accepted = self.store.prepare(wanted)
        else:
            documents = round_documents.first_documents(settings, campaign, now, space, number)
            following = round_documents.record_of(documents, settings, now)
            self._check_unreported(campaign)  # nobody has meanwhile
            if waits is None:
                accepted = self.store.replace_document(following, after=after, at_s=now)
            else:
                accepted = self.store.finish_preparation(waits, following, at_s=now)
        self.forget(campaign)
        if not accepted:  # it ended, or another was drawn or prepared, a moment ago: from there
            self.draw(campaign, area)

    def _check_unreported(self, campaign: str) -> None:
        if self.store.progress(campaign).reports:
            raise Problem(
                "area-fixed",
                "the area must be drawn before the first report; make another campaign for another area",
            )

    # -- looking up ------------------------------------------------------------------------------

    def find(self, mechanism: str) -> RoundRecord | None:
        """The round that published a mechanism, as it was then; ``None`` where nobody did.

        Its total and its closing are those of when it was first looked up: use what does not change. It
        comes without its document: thousands are remembered, and a document may have 100 kB and more.
        """
        published = self.published.get(mechanism)
        if published is not None or self._fresh(self._unknown.get(mechanism)):
            return published
        now, published = self.clock(), self.store.round_of(mechanism)
        if published is not None:
            self._record(published.campaign)  # and with it whether that takes reports
            self.ticket_key(published.campaign)  # and its settings, with what its reports need
            published = replace(published, document=b"")
        with self._lock:
            if published is None:
                _remember(self._unknown, mechanism, now, _MOST_UNKNOWN)
            else:
                _remember(self.published, mechanism, published, _MOST_ROUNDS)
        return published

    def settings(self, campaign: str) -> CampaignSettings:
        """The settings of a campaign; raises ``unknown-campaign`` or :class:`NewerSettings`."""
        cached = self._settings.get(campaign)
        if cached is None:
            record = self._record(campaign)
            try:
                settings = msgspec.json.decode(record.settings, type=CampaignSettings)
            except msgspec.ValidationError:
                raise NewerSettings(campaign) from None
            cached = (record.created_at_s, record.settings), settings
            self._settings[campaign] = cached
        return cached[1]

    def ticket_key(self, campaign: str) -> SigningKey | None:
        """What signs the tickets of a campaign; ``None`` where reports need no tickets.

        Raises ``unknown-campaign``.
        """
        key = self.ticket_keys.get(campaign)
        if key is None and self.settings(campaign).tickets:
            stored = self.store.ticket_key(campaign)
            if stored is None:
                raise Problem("unknown-campaign", f"there is no campaign {campaign!r}")
            key = SigningKey.from_bytes(stored)
        self.ticket_keys[campaign] = key
        return key

    def _record(self, campaign: str) -> CampaignRecord:
        changes, record = self.changes[campaign], self.store.campaign(campaign)
        if record is None:
            raise Problem("unknown-campaign", f"there is no campaign {campaign!r}")
        version = record.created_at_s, record.settings
        if self._settings.get(campaign, (version,))[0] != version:  # another, under the same id
            self._forget_all(campaign)
            changes = 0
        with self._lock:  # what was read before a change is not kept
            if self.changes[campaign] == changes:
                self._standing[campaign] = record.state
        return record

    def check_running(self, campaign: str) -> None:
        """Raise ``campaign-paused`` or ``campaign-ended`` where the operator says so, as of the last look."""
        standing = self._standing.get(campaign, "running")
        if standing != "running":
            raise Problem(f"campaign-{standing}", _STANDING[standing])

    def mechanism(self, campaign: str) -> RoundRecord:
        """The round whose mechanism people should use now, at most a second old.

        Raises ``campaign-paused``, ``campaign-preparing``, ``campaign-ended`` or, once the last round is
        closed, ``campaign-finished``, so that nobody draws a report for nothing. While any other closed
        round is being estimated this is still that round.
        """
        since, current = self._current.get(campaign, (None, None))
        if current is None or not self._fresh(since):
            record = self._record(campaign)
            self.check_running(campaign)
            current = self._prepared(record)
        self.check_running(campaign)
        if current.closed_at_s is not None and self.state(campaign)["state"] == "finished":
            raise Problem("campaign-finished", _NO_MAP)
        return current

    def check_unfinished(self, campaign: str, *, late: bool = False) -> None:
        """Raise where :meth:`mechanism` is refused for good or for now, but for a mechanism being prepared.

        ``late``: a finished campaign passes for as long as reports that were drawn before still count.
        """
        self.check_running(campaign)
        if self.state(campaign)["state"] == "finished" and not (
            late and self.clock() <= self.look(campaign).accept_until_s
        ):
            raise Problem("campaign-finished", _NO_MAP)

    def state(self, campaign: str) -> dict[str, Any]:
        """What everybody may know about a campaign, as plain JSON values, at most a second old.

        Its entries are those of :func:`geoveil.server.conclusion.described`.
        """
        since, state = self._states.get(campaign, (None, None))
        if state is not None and self._fresh(since):
            return state
        changes = self.changes[campaign]
        now, settings = self.clock(), self.settings(campaign)
        # first, or the last round could be among these as well
        concluded = 0 if settings.rounds is None else self.store.rounds_concluded(campaign)
        progress, latest = self.store.progress(campaign), self.store.estimate(campaign)
        waiting = self.store.preparation(campaign)
        estimated = 0 if latest is None else latest.round
        given_up = max(self.store.given_up(campaign, after=estimated), default=0)
        record = self._record(campaign)  # last: where it was deleted meanwhile, nothing above holds
        waits = round_documents.described_preparation(
            waiting, settings, ended=record.state == "ended"
        )
        state = conclusions.described(
            record, settings, progress, latest, concluded, given_up, int(now), waits
        )
        key = self.ticket_key(campaign)
        state["ticket_key"] = key and as_text(key.public.spki)
        with self._lock:  # what was read before a change, or before another's look, is not kept
            since, _ = self._states.get(campaign, (now, None))
            if self.changes[campaign] == changes and not now < since < now + FRESH_S:
                self._states[campaign] = (now, state)
        return state

    def finished(self) -> set[str]:
        """The running campaigns whose last round is over, so that nobody is asked any more."""
        now, over = self.clock(), set()
        for last in self.store.last_rounds():
            if self._over.get(last.campaign) == last.mechanism:
                over.add(last.campaign)
            elif last.closed_at_s is not None or now >= last.expires_at_s:
                with suppress(Problem, NewerSettings):  # it was deleted meanwhile
                    if self.is_over(last, self.settings(last.campaign)):
                        over.add(last.campaign)
                        self._over[last.campaign] = last.mechanism
        return over

    def estimate(self, campaign: str, number: int | None = None) -> EstimateRecord:
        """The estimate made at the close of a round, or the latest one.

        Raises ``unknown-campaign``, ``unknown-round`` or ``no-estimate-yet``.
        """
        self.settings(campaign)
        estimate = self.store.estimate(campaign, number)
        if estimate is not None:
            return estimate
        last = self.store.last_round(campaign)
        if number is not None and not 1 <= number <= (0 if last is None else last.number):
            raise Problem("unknown-round", f"campaign {campaign!r} has no round {number}")
        sentence, failed = f"campaign {campaign!r} has no estimate", self.store.given_up(campaign)
        which = max(failed, default=0) if number is None else number
        attempts = number_of(failed.get(which, 0), "attempt")
        if number is not None:
            sentence += f" of round {number}"
        if which in failed and number is None:
            sentence += f"; that of round {which} was given up after {attempts} that failed"
        elif which in failed:
            sentence += f" and gets none: it was given up after {attempts} that failed"
        raise Problem("no-estimate-yet", sentence)

    # -- changing --------------------------------------------------------------------------------

    def change(
        self,
        campaign: str,
        *,
        name: str | None = None,
        state: State | None = None,
        published: bool | None = None,
        next_round_now: bool = False,
    ) -> None:
        """Rename, pause, resume, end or publish; an end is for good, and closes the open round.

        ``next_round_now`` opens the next round with the mechanism of this one, whose reports enter the next
        estimate. Nothing is changed where one of the changes cannot be, or fails. Raises
        ``unknown-campaign``, ``invalid-campaign``, ``campaign-ended``, and with ``next_round_now``
        ``campaign-preparing`` or, once the last round is closed, ``campaign-finished``.
        """
        record, settings, now = self._record(campaign), self.settings(campaign), int(self.clock())
        ended = Problem("campaign-ended", "an end is for good; make another campaign")
        if name is not None:
            msgspec.structs.replace(settings, name=name).problems()
        if state is not None and record.state == "ended" != state:
            raise ended
        if next_round_now and state == "ended":
            raise InvalidInput("next_round_now must be left out where the campaign ends")
        minimum, following, still_open = None, None, False
        if next_round_now:
            current = self._going_on(campaign)
            following = round_documents.renewed(current, settings, now, current.number + 1)
            still_open = current.closed_at_s is None
        elif state == "ended":
            last = self.store.last_round(campaign)
            if last is None or VERSION_1 not in last.document:
                minimum = settings.minimum_reports
        changed = self.store.change_campaign(
            campaign,
            at_s=now,
            name=name,
            state=state,
            published=published,
            minimum=minimum,
            following=following,
            still_open=still_open,
        )
        self.forget(campaign)  # first: what others read before counts no more
        standing = self._record(campaign).state  # raises where it was deleted meanwhile
        if not changed and standing == "ended":
            raise ended
        if not changed:  # its round was closed a moment ago, or the next one opened: from there
            self.change(
                campaign, name=name, state=state, published=published, next_round_now=next_round_now
            )

    def delete(self, campaign: str) -> None:
        """Remove a campaign and all it holds; raises ``unknown-campaign``."""
        self._record(campaign)
        self._standing[campaign] = "ended"  # while it goes
        self.store.delete_campaign(campaign)
        self._forget_all(campaign)

    def _forget_all(self, campaign: str) -> None:
        """Drop all that is remembered here of a campaign that is gone."""
        self.forget(campaign)
        with self._lock:
            self._settings.pop(campaign, None)
            self.ticket_keys.pop(campaign, None)
            self._standing.pop(campaign, None)
            self.changes.pop(campaign, None)
            for mechanism in [m for m, r in self.published.items() if r.campaign == campaign]:
                del self.published[mechanism]

    # -- closing ---------------------------------------------------------------------------------

    def close(self, campaign: str) -> int:
        """Close the open round by hand and say its number; one that is closed already stays so.

        Raises ``unknown-campaign``, ``campaign-preparing``, ``campaign-ended``, or ``round-too-small`` below
        the minimum of reports.
        """
        minimum = self.settings(campaign).minimum_reports
        current = self._prepared(self._record(campaign))
        if current.closed_at_s is None and not self.close_if_large(current, minimum):
            current = self.look(campaign)
            if current.closed_at_s is None:
                if self._record(campaign).state == "ended":
                    raise Problem("campaign-ended", "a campaign that has ended closes no rounds")
                if current.total >= minimum:  # they have come since, or another round is open
                    return self.close(campaign)
                raise Problem(
                    "round-too-small",
                    f"round {current.number} ({number_of(current.total, 'report')}) must have at least "
                    f"{minimum} to be closed; wait for more",
                )
        return current.number

    def _going_on(self, campaign: str) -> RoundRecord:
        """The current round of a campaign that may open another."""
        record = self._record(campaign)
        if record.state == "ended":
            raise Problem("campaign-ended", "a campaign that has ended opens no rounds")
        current = self._prepared(record)
        if current.closed_at_s is not None and self.is_over(current, self.settings(campaign)):
            last = f"round {current.number} was the last of the campaign"
            raise Problem("campaign-finished", f"{last}; make another campaign for more")
        return current

    # -- rounds, for upkeep and worker -------------------------------------------------------------

    def look(self, campaign: str) -> RoundRecord:
        """The current round as the store has it now: the last one."""
        self.settings(campaign)  # raises where there is none
        now = self.clock()
        _, before = self._current.get(campaign, (None, None))
        current = None if before is None else self.store.round_of(before.mechanism)
        if current is None or current.closed_at_s is not None:
            current = self.store.last_round(campaign)
            if current is None:
                self._record(campaign)  # raises where it was deleted meanwhile
                raise Problem("campaign-ended", "the campaign ended before it could take reports")
        self._current[campaign] = (now, current)
        return current

    def refresh(self) -> list[RoundTimes]:
        """Know what another process has changed or deleted; the newest rounds of running campaigns.

        One that was made under the id of one that was deleted is another.
        """
        with self._lock:
            changes = self.changes.copy()
        campaigns = self.store.campaigns()
        stored = {record.id: (record.created_at_s, record.settings) for record in campaigns}
        with self._lock:
            changed = {name: self._standing.get(name, "running") for name in self.changes - changes}
            self._standing = {record.id: record.state for record in campaigns} | changed
        for campaign, (version, _) in list(self._settings.items()):
            if stored.get(campaign) != version:
                self._forget_all(campaign)
        now, newest = self.clock(), self.store.last_rounds()
        for last in newest:  # known as it was then, where its document is here
            since, current = self._current.get(last.campaign, (now, None))
            if current is not None and current.mechanism == last.mechanism and since < now:
                current = replace(current, closed_at_s=last.closed_at_s, total=last.total)
                self._current[last.campaign] = (now, current)
        return newest

    def is_over(self, current: RoundRecord | RoundTimes, settings: CampaignSettings) -> bool:
        """Whether the last round of a campaign is closed, or would be if it had enough reports."""
        if settings.rounds is None or (
            current.closed_at_s is None and self.clock() < current.expires_at_s
        ):
            return False
        # not all that are: it may be closed by now itself
        before = self.store.rounds_concluded(current.campaign, before=current.number)
        return settings.ends_with(before + 1)

    def close_if_large(self, current: RoundRecord, minimum: int) -> bool:
        """Close a round that has at least so many reports; whether it was closed by this."""
        closed = VERSION_1 not in current.document and self.store.close_round(
            current.campaign, current.number, minimum=minimum, at_s=int(self.clock())
        )
        self.forget(current.campaign)
        return closed

    def renew(self, current: RoundRecord, settings: CampaignSettings, number: int) -> None:
        """Open a round from now on with the mechanism of the last."""
        now = int(self.clock())
        record = round_documents.renewed(current, settings, now, number)
        seen_open = current.closed_at_s is None
        self.store.replace_document(record, after=current.number, at_s=now, still_open=seen_open)
        self.forget(current.campaign)

    def forget(self, campaign: str) -> None:
        """Drop what may have changed of a campaign: the next look reads it from the store."""
        with self._lock:
            self.changes[campaign] += 1
        for cache in (self._current, self._states, self._over):
            cache.pop(campaign, None)

    # -- inside ------------------------------------------------------------------------------------

    def _fresh(self, since: float | None) -> bool:
        return since is not None and 0 <= self.clock() - since < FRESH_S

    def _prepared(self, record: CampaignRecord) -> RoundRecord:
        """The current round of a campaign whose mechanism is made; ``campaign-preparing`` else."""
        waits = None if record.state == "ended" else self.store.preparation(record.id)
        if waits is None or waits.problem:
            return self.look(record.id)
        if round_documents.lacks_area(waits, self.settings(record.id)):
            sentence = "this campaign waits for the city limits that its operator draws"
        else:
            sentence = "the mechanism of this campaign is being made, which may take minutes"
        raise Problem("campaign-preparing", f"{sentence}; try again later")


def _remember(recent: dict[str, Any], key: str, value: Any, most: int) -> None:
    """Keep a value, and no more than so many: the oldest goes first."""
    if len(recent) >= most:
        del recent[next(iter(recent))]
    recent[key] = value
