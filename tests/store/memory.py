"""The model of a store: everything in memory, in the plainest way that does what the contract says."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace

import numpy as np

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store import Store, open_store
from geoveil.store.records import (
    ID_BYTES,
    TABLES,
    CampaignRecord,
    ClosingRecord,
    EstimateRecord,
    Job,
    PreparationRecord,
    Progress,
    RoundRecord,
    RoundTimes,
    Row,
    Snapshot,
    State,
    StoreFailed,
    TokenRecord,
    Upload,
)
from geoveil.store.statements import over, packed, unpacked


@dataclass(slots=True)
class KeptRound:
    """A round with its counts; its record says open and 0, the rest is here."""

    key: int
    record: RoundRecord
    counts: IntArray
    closed_at_s: int | None = None
    closing: ClosingRecord | None = None
    claimed_until_s: int = 0
    given_up_at_s: int | None = None
    estimate: EstimateRecord | None = None
    ids_dropped: bool = False

    def now(self) -> RoundRecord:
        """The record as of now."""
        return replace(self.record, closed_at_s=self.closed_at_s, total=int(self.counts.sum()))


@dataclass(slots=True)
class KeptCampaign:
    """A campaign with its rounds, and the number of the round each id was counted in."""

    record: CampaignRecord
    rounds: list[KeptRound]
    backdrop: bytes | None = None
    ids: dict[bytes, int] = field(default_factory=dict)
    at_closings: dict[int, dict[int, IntArray]] = field(default_factory=dict)
    """Round that closed → the counts of all rounds then."""
    preparation: PreparationRecord | None = None
    claimed_until_s: int = 0
    """Of the preparation."""
    ticket_key: bytes | None = None
    invitations: dict[bytes, bytes | None] = field(default_factory=dict)
    """Digest of a code → that of what was signed for it."""

    def wanted(self) -> PreparationRecord | None:
        """The preparation, with the claim on it now."""
        kept = self.preparation
        return kept and replace(kept, claimed_until_s=self.claimed_until_s)

    def counts(self) -> dict[int, IntArray]:
        """Round number → counts now."""
        return {kept.record.number: kept.counts.copy() for kept in self.rounds}


Campaigns = dict[str, KeptCampaign]
Tokens = dict[bytes, tuple[str, int]]
Tables = Mapping[str, list[Row]]


def tables_of(campaigns: Iterable[KeptCampaign], tokens: Tokens) -> Tables:
    """Everything as rows, in the columns of ``layout.TABLES``."""
    tables: dict[str, list[Row]] = {table: [] for table in TABLES}
    for key, kept in enumerate(campaigns, start=1):
        record = kept.record
        tables["campaign"].append(
            (
                key,
                record.id,
                record.name,
                record.settings,
                record.created_at_s,
                record.state,
                record.published_at_s,
                kept.backdrop,
            )
        )
        keys = {one.record.number: one.key for one in kept.rounds}
        for one in kept.rounds:
            _add_round(tables, key, one)
        _add_counts(tables, kept, keys)
        tables["report"] += [(key, id, keys[number]) for id, number in kept.ids.items()]
        if waits := kept.preparation:
            tables["preparation"].append(
                (key, waits.round, waits.space, kept.claimed_until_s, waits.failures, waits.problem)
            )
        if kept.ticket_key is not None:
            tables["ticket_key"].append((key, kept.ticket_key))
        tables["invitation"] += [(key, *each) for each in kept.invitations.items()]
    tables["token"] += [(digest, *rest) for digest, rest in tokens.items()]
    return tables


def _add_counts(tables: dict[str, list[Row]], kept: KeptCampaign, keys: Mapping[int, int]) -> None:
    """What each closing took, and what was counted since the last."""
    taken = {one.record.number: np.zeros_like(one.counts) for one in kept.rounds}
    for closed, counts in sorted(kept.at_closings.items()):
        for number, then in counts.items():
            if (then > taken[number]).any():
                fresh = then - taken[number]
                cells = {int(cell): int(fresh[cell]) for cell in np.flatnonzero(fresh)}
                tables["closing_tally"].append((keys[closed], keys[number], packed(cells)))
                taken[number] = then
    for one in kept.rounds:
        live = one.counts - taken[one.record.number]
        for cell in np.flatnonzero(live):
            tables["tally"].append((one.key, int(cell), int(live[cell])))


def _add_round(tables: dict[str, list[Row]], campaign_key: int, kept: KeptRound) -> None:
    r = kept.record
    facts = (r.number, r.mechanism, r.document, r.cells)
    times = (r.opened_at_s, r.expires_at_s, r.accept_until_s, kept.closed_at_s)
    kinds = (r.levels, r.slots, r.ends, r.around)
    tables["round"].append((kept.key, campaign_key, *facts, *times, 2 * kept.ids_dropped, *kinds))
    tables["level"] += [(mechanism, kept.key) for mechanism in r.levels.split()]
    if total := int(kept.counts.sum()):
        tables["round_total"].append((kept.key, total))
    if kept.closing:
        closing = kept.closing
        tables["closing"].append(
            (
                kept.key,
                closing.closed_at_s,
                kept.claimed_until_s,
                closing.failures,
                kept.given_up_at_s,
                int(kept.estimate is not None),
            )
        )
    if made := kept.estimate:
        kept_estimate = (kept.key, made.made_at_s, made.reports, made.body, made.slots)
        tables["estimate"].append(kept_estimate)


def read_tables(snapshot: Snapshot) -> tuple[Campaigns, Tokens]:
    """Everything again, from the rows of any store."""
    tables: dict[str, list[Row]] = {name: list(snapshot(name)) for name in TABLES}
    campaigns = {
        key: KeptCampaign(CampaignRecord(*facts), [], backdrop)
        for key, *facts, backdrop in tables["campaign"]
    }
    for campaign_key, number, space, claimed_until_s, failures, problem in tables["preparation"]:
        owner = campaigns[campaign_key]
        wanted = PreparationRecord(owner.record.id, number, space, failures, problem)
        owner.preparation, owner.claimed_until_s = wanted, claimed_until_s
    for campaign_key, primes in tables["ticket_key"]:
        campaigns[campaign_key].ticket_key = primes
    for campaign_key, digest, request in tables["invitation"]:
        campaigns[campaign_key].invitations[digest] = request
    rounds: dict[int, KeptRound] = {}
    for key, campaign_key, *row in tables["round"]:
        *facts, closed_at_s, dropped, levels, slots, ends, around = row
        owner = campaigns[campaign_key]
        kinds = {"levels": levels, "slots": slots, "ends": ends, "around": around}
        record = RoundRecord(owner.record.id, *facts, **kinds)
        counts = np.zeros(record.cells, dtype=np.int64)
        rounds[key] = KeptRound(key, record, counts, closed_at_s, ids_dropped=bool(dropped))
        owner.rounds.append(rounds[key])
    for campaign_key, id, round_key in tables["report"]:
        campaigns[campaign_key].ids[id] = rounds[round_key].record.number
    for round_key, cell, count in tables["tally"]:
        rounds[round_key].counts[cell] += count
    _read_ends(tables, rounds)
    for owner in campaigns.values():
        _read_counts(owner, tables, rounds)
    tokens = {digest: (label, at_s) for digest, label, at_s in tables["token"]}
    return {kept.record.id: kept for kept in campaigns.values()}, tokens


def _read_ends(tables: Tables, rounds: Mapping[int, KeptRound]) -> None:
    for key, closed_at_s, claimed_until_s, failures, given_up_at_s, _ in tables["closing"]:
        kept = rounds[key]
        kept.claimed_until_s, kept.given_up_at_s = claimed_until_s, given_up_at_s
        kept.closing = ClosingRecord(
            kept.record.campaign, kept.record.number, closed_at_s, failures
        )
    for key, *estimate in tables["estimate"]:
        record = rounds[key].record
        rounds[key].estimate = EstimateRecord(record.campaign, record.number, *estimate)


def _read_counts(owner: KeptCampaign, tables: Tables, rounds: Mapping[int, KeptRound]) -> None:
    closed = [one for one in owner.rounds if one.closing]
    so_far = {one.record.number: np.zeros_like(one.counts) for one in owner.rounds}
    for one in closed:
        for closing_key, round_key, counts in tables["closing_tally"]:
            if closing_key == one.key:
                fresh = np.zeros_like(rounds[round_key].counts)
                for cell, count in unpacked(counts).tolist():
                    fresh[cell] = count
                so_far[rounds[round_key].record.number] = (
                    so_far[rounds[round_key].record.number] + fresh
                )
                rounds[round_key].counts += fresh
        upto = one.record.number
        owner.at_closings[upto] = {n: then for n, then in so_far.items() if n <= upto}


# --- A store that forgets everything when it ends: the model the others are compared with


class MemoryStore:
    """Campaigns, rounds and counts in dictionaries, behind one lock.

    >>> store = MemoryStore()
    >>> first = RoundRecord("paris", 1, 64 * "0", b"{}", 2, 0, 10, 20)
    >>> store.create_campaign(CampaignRecord("paris", "Paris", b"{}", 0), first)
    True
    >>> store.add([Upload("paris", 1, bytes(16), 1), Upload("paris", 1, bytes(16), 1)])
    [True, False]
    >>> store.counts("paris")
    {1: array([0, 1])}
    """

    engine = "memory"
    schema = None

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._campaigns: Campaigns = {}
        self._tokens: Tokens = {}
        self._seen_at_s: int | None = None
        self._copied_at_s: int | None = None
        self._closed = False

    def copy(self) -> MemoryStore:
        """Another that keeps the same, whatever becomes of this one; one that was closed is open again."""
        made = MemoryStore()
        with self._lock:
            made._campaigns, made._tokens = deepcopy(self._campaigns), dict(self._tokens)
            made._seen_at_s, made._copied_at_s = self._seen_at_s, self._copied_at_s
        return made

    # -- campaigns and rounds --------------------------------------------------------------------

    def create_campaign(
        self,
        campaign: CampaignRecord,
        first: RoundRecord | None,
        ticket_key: bytes | None = None,
    ) -> bool:
        """Keep a campaign with its first round; ``False`` (and nothing kept) where the id exists."""
        if first is not None and (first.campaign != campaign.id or first.number != 1):
            raise InvalidInput("first must be round 1 of the campaign it is kept with")
        with self._lock:
            if campaign.id in self._campaigns:
                return False
            rounds = [] if first is None else [self._new_round(first)]
            waits = PreparationRecord(campaign.id, 1) if first is None else None
            kept = KeptCampaign(campaign, rounds, preparation=waits, ticket_key=ticket_key)
            self._campaigns[campaign.id] = kept
            return True

    # -- preparations ----------------------------------------------------------------------------

    def preparation(self, campaign: str) -> PreparationRecord | None:
        """What a campaign waits for."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return kept.wanted() if kept else None

    def preparations(self) -> list[PreparationRecord]:
        """What is to be prepared."""
        with self._lock:
            waiting = [kept for kept in self._campaigns.values() if kept.record.state != "ended"]
            return [wanted for kept in waiting if (wanted := kept.wanted()) and not wanted.problem]

    def prepare(self, wanted: PreparationRecord) -> bool:
        """Let a campaign wait for this round."""
        with self._lock:
            kept = self._campaigns.get(wanted.campaign)
            last = kept.rounds[-1].record.number if kept and kept.rounds else 0
            if kept is None or kept.record.state == "ended" or last >= wanted.round:
                return False
            kept.preparation = replace(wanted, failures=0, problem="")
            kept.claimed_until_s = 0
            return True

    def refuse_preparation(self, wanted: PreparationRecord, problem: str) -> bool:
        """Keep why a round cannot open, and end its campaign."""
        if not problem:
            raise InvalidInput("problem must be a sentence")
        with self._lock:
            kept = self._waiting_for(wanted)
            if kept is None or kept.preparation is None:
                return False
            kept.preparation = replace(kept.preparation, problem=problem)
            kept.record = replace(kept.record, state="ended")
            return True

    def finish_preparation(
        self, wanted: PreparationRecord, opened: RoundRecord, *, at_s: int
    ) -> bool:
        """Open the round that a campaign waited for."""
        if (opened.campaign, opened.number) != (wanted.campaign, wanted.round):
            raise InvalidInput("opened must be the round that was prepared")
        with self._lock:
            kept = self._waiting_for(wanted)
            if kept is None or kept.record.state == "ended":
                return False
            kept.preparation = None
            if kept.rounds and kept.rounds[-1].record.number >= wanted.round:
                return False
            new = self._new_round(opened)
            for one in kept.rounds:
                one.closed_at_s = at_s if one.closed_at_s is None else one.closed_at_s
            kept.rounds.append(new)
            return True

    def _waiting_for(self, wanted: PreparationRecord) -> KeptCampaign | None:
        """The campaign where it waits for this very round and cells."""
        kept = self._campaigns.get(wanted.campaign)
        waits = kept.preparation if kept else None
        same = waits and (waits.round, waits.space, waits.problem) == (
            wanted.round,
            wanted.space,
            "",
        )
        return kept if same else None

    def campaigns(self) -> list[CampaignRecord]:
        """All campaigns, oldest first."""
        with self._lock:
            return [kept.record for kept in self._campaigns.values()]

    def campaign(self, campaign: str) -> CampaignRecord | None:
        """One campaign."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return kept.record if kept else None

    def change_campaign(
        self,
        campaign: str,
        *,
        at_s: int,
        name: str | None = None,
        state: State | None = None,
        published: bool | None = None,
        minimum: int | None = None,
        following: RoundRecord | None = None,
        still_open: bool = False,
    ) -> bool:
        """Another name, state or round for a campaign, and its map for everybody or no longer."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            if kept is None:
                return False
            old = kept.record
            if old.state == "ended" and state in ("running", "paused"):
                return False
            if following is not None:
                after = following.number - 1
                opened = self.replace_document(
                    following, after=after, at_s=at_s, still_open=still_open
                )
                if not opened:
                    return False
            kept.record = replace(old, name=name or old.name, state=state or old.state)
            if published is not None:
                since = at_s if old.published_at_s is None else old.published_at_s
                kept.record = replace(kept.record, published_at_s=since if published else None)
            if minimum is not None and kept.rounds:
                last = kept.rounds[-1].record.number
                self.close_round(campaign, last, minimum=minimum, at_s=at_s)
            return True

    def keep_backdrop(self, campaign: str, backdrop: bytes | None) -> bool:
        """What the pages draw behind the cells."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            if kept is None:
                return False
            kept.backdrop = backdrop
            return True

    def backdrop(self, campaign: str) -> bytes | None:
        """What the pages draw behind the cells."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return kept.backdrop if kept else None

    def delete_campaign(self, campaign: str) -> bool:
        """Remove a campaign and all it holds."""
        with self._lock:
            return self._campaigns.pop(campaign, None) is not None

    def rounds(self, campaign: str, numbers: Iterable[int] | None = None) -> list[RoundRecord]:
        """All rounds of a campaign, or those of these numbers, oldest first, with their totals now."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            every = [one.now() for one in kept.rounds] if kept else []
            wanted = None if numbers is None else set(numbers)
            return [each for each in every if wanted is None or each.number in wanted]

    def last_round(self, campaign: str) -> RoundRecord | None:
        """The newest round of a campaign."""
        rounds = self.rounds(campaign)
        return rounds[-1] if rounds else None

    def last_rounds(self) -> list[RoundTimes]:
        """The newest round of every campaign that is running."""
        with self._lock:
            running = [each.id for each in self.campaigns() if each.state == "running"]
            return [times[-1] for each in running if (times := self.round_times(each))]

    def round_times(self, campaign: str) -> list[RoundTimes]:
        """All rounds of a campaign without their documents."""
        names = [field.name for field in fields(RoundTimes)]
        return [
            RoundTimes(*(getattr(each, name) for name in names)) for each in self.rounds(campaign)
        ]

    def progress(self, campaign: str) -> Progress:
        """How far a campaign has come."""
        rounds = self.rounds(campaign)
        return Progress(
            rounds[-1] if rounds else None,
            sum(each.total for each in rounds),
            sum(each.closed_at_s is not None for each in rounds),
        )

    def rounds_concluded(self, campaign: str, *, before: int = sys.maxsize) -> int:
        """How many rounds have an estimate, wait for it, or were given up beside a next one."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            rounds = kept.rounds if kept else []
            opened = {one.key: _opened_next(rounds, one) for one in rounds}
            return sum(
                one.given_up_at_s is None or opened[one.key] < one.given_up_at_s
                for one in rounds
                if one.closing and one.record.number < before
            )

    def given_up(self, campaign: str, *, after: int = 0) -> dict[int, int]:
        """The rounds after this one whose estimate was given up, and how many attempts at it failed."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return {
                one.record.number: one.closing.failures
                for one in (kept.rounds if kept else [])
                if one.closing and one.given_up_at_s is not None and one.record.number > after
            }

    def round_of(self, mechanism: str) -> RoundRecord | None:
        """The round that published this document."""
        with self._lock:
            for kept in self._rounds():
                if mechanism in (kept.record.mechanism, *kept.record.levels.split()):
                    return kept.now()
            return None

    # -- reports ---------------------------------------------------------------------------------

    def add(self, uploads: Sequence[Upload]) -> list[bool]:
        """Count reports, all or none; ``True`` where the id was new in its campaign."""
        with self._lock:
            for upload in uploads:
                self._check(upload)
            return [self._count(upload) for upload in uploads]

    def counts(self, campaign: str) -> dict[int, IntArray]:
        """Round number → counts by cell, all from one moment."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return kept.counts() if kept else {}

    # -- closing ---------------------------------------------------------------------------------

    def close_round(self, campaign: str, number: int, *, minimum: int, at_s: int) -> bool:
        """Close the open round and keep the counts of all rounds at that moment."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            if kept is None or not kept.rounds:
                return False
            last = kept.rounds[-1]
            enough = int(last.counts.sum()) >= max(minimum, 1)
            if last.record.number != number or last.closed_at_s is not None or not enough:
                return False
            last.closed_at_s = at_s
            last.closing = ClosingRecord(campaign, number, at_s)
            kept.at_closings[number] = kept.counts()
            return True

    def closings(self) -> list[ClosingRecord]:
        """Closed rounds that have no estimate yet, oldest first."""
        with self._lock:
            rounds = sorted(self._rounds(), key=lambda one: one.key)
            waiting = [
                replace(one.closing, claimed_until_s=one.claimed_until_s)
                for one in rounds
                if _waits(one) and one.closing
            ]
            return sorted(waiting, key=lambda closing: closing.closed_at_s)

    def reported_rounds(self, campaign: str, number: int) -> list[int]:
        """The rounds that had reports when a round closed, oldest first."""
        counts = self.closing_counts(campaign, number)
        return sorted(each for each, found in counts.items() if found.any())

    def closing_counts(
        self, campaign: str, number: int, rounds: Iterable[int] | None = None
    ) -> dict[int, IntArray]:
        """Round number → counts by cell, as they were when a round closed."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            counts = kept.at_closings.get(number, {}) if kept else {}
            wanted = counts.keys() if rounds is None else counts.keys() & set(rounds)
            return {each: counts[each] for each in sorted(wanted)}

    def closing_pairs(
        self, campaign: str, number: int, rounds: Iterable[int] | None = None
    ) -> dict[int, IntArray]:
        """The same as rows of number and count, of the reports that came."""
        counts = self.closing_counts(campaign, number, rounds)
        return {
            each: np.stack([np.flatnonzero(found), found[found > 0]], axis=1)
            for each, found in counts.items()
            if found.any()
        }

    def claim(self, job: Job, *, until_s: int, held_until_s: int = 0) -> bool:
        """Take the work on a job for a while, or have it longer."""
        with self._lock:
            kept = self._kept(job)
            if kept is None or not _to_do(kept) or kept.claimed_until_s != held_until_s:
                return False
            kept.claimed_until_s = until_s
            return True

    def release(self, job: Job, *, held_until_s: int) -> None:
        """Give the work on a job back, for whoever comes next."""
        with self._lock:
            kept = self._kept(job)
            if kept and kept.claimed_until_s == held_until_s:
                kept.claimed_until_s = 0

    def failed(self, job: Job) -> int:
        """One more attempt at a job has failed; how many have."""
        with self._lock:
            kept = self._kept(job)
            if isinstance(kept, KeptCampaign) and kept.preparation is not None:
                failures = kept.preparation.failures + 1
                kept.preparation = replace(kept.preparation, failures=failures)
                return failures
            if isinstance(kept, KeptRound) and kept.closing is not None:
                kept.closing = replace(kept.closing, failures=kept.closing.failures + 1)
                return kept.closing.failures
            return 0

    def _kept(self, job: Job) -> KeptRound | KeptCampaign | None:
        """Where the work on a job is noted."""
        if isinstance(job, PreparationRecord):
            return self._waiting_for(job)
        return self._find(job.campaign, job.round)

    def publish(self, estimate: EstimateRecord, following: RoundRecord | None) -> bool:
        """Keep the estimate of a closed round and open the next one, if any."""
        expected = (estimate.campaign, estimate.round + 1)
        if following is not None and (following.campaign, following.number) != expected:
            raise InvalidInput("following must be the round after the one that was estimated")
        with self._lock:
            if estimate.campaign not in self._campaigns:
                return False
            kept = self._find(estimate.campaign, estimate.round)
            if kept is None or kept.closing is None:
                raise InvalidInput(f"round ({estimate.round}) must be closed before its estimate")
            if kept.estimate is not None:
                return False
            if following is not None:
                self._open_after(estimate.round, following)
            kept.estimate = estimate
            return True

    def give_up(self, number: int, following: RoundRecord) -> bool:
        """Wait no longer for the estimate of a closing."""
        with self._lock:
            kept = self._find(following.campaign, number)
            if kept is None or not _waits(kept):
                return False
            kept.given_up_at_s = following.opened_at_s
            if not self._open_after(number, following):
                opened = _opened_next(self._campaigns[following.campaign].rounds, kept)
                if opened < math.inf:
                    kept.given_up_at_s = max(kept.given_up_at_s, int(opened) + 1)
            return True

    def replace_document(
        self, following: RoundRecord, *, after: int, at_s: int, still_open: bool = False
    ) -> bool:
        """Open a round without waiting for an estimate."""
        if following.number <= after:
            raise InvalidInput("following must come after the round it replaces")
        with self._lock:
            kept = self._campaigns.get(following.campaign)
            if kept is None or not kept.rounds:
                return False
            last = kept.rounds[-1]
            if still_open and last.closed_at_s is not None:
                return False
            if not self._open_after(after, following):
                return False
            last.closed_at_s = at_s if last.closed_at_s is None else last.closed_at_s
            return True

    def _open_after(self, after: int, following: RoundRecord) -> bool:
        kept = self._campaigns[following.campaign]
        if kept.record.state == "ended" or kept.rounds[-1].record.number != after:
            return False
        kept.rounds.append(self._new_round(following))
        return True

    def estimate(self, campaign: str, number: int | None = None) -> EstimateRecord | None:
        """The estimate made at the close of a round; of the last one that has any, without a number."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            made = [one.estimate for one in kept.rounds if one.estimate] if kept else []
            found = next((one for one in made[::-1] if number in (None, one.round)), None)
            return found and replace(found, slots=b"")

    def slot_maps(self, campaign: str, number: int) -> bytes:
        """The maps of slots beside the estimate of a round."""
        with self._lock:
            kept = self._find(campaign, number)
            return kept.estimate.slots if kept and kept.estimate else b""

    def estimated_rounds(self, campaign: str) -> set[int]:
        """The rounds that have an estimate."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return {one.record.number for one in kept.rounds if one.estimate} if kept else set()

    def forget_ids(self, *, now_s: int) -> int:
        """Drop the ids of rounds that no longer accept reports; how many."""
        with self._lock:
            before = sum(len(kept.ids) for kept in self._campaigns.values())
            for kept in self._campaigns.values():
                if kept.ticket_key is not None and kept.record.state != "ended":
                    continue
                over = {r.record.number for r in kept.rounds if r.record.accept_until_s < now_s}
                kept.ids = {id: number for id, number in kept.ids.items() if number not in over}
                for one in kept.rounds:
                    one.ids_dropped |= one.record.number in over
            return before - sum(len(kept.ids) for kept in self._campaigns.values())

    # -- tickets ---------------------------------------------------------------------------------

    def ticket_key(self, campaign: str) -> bytes | None:
        """What signs the tickets of a campaign; ``None`` where nothing does."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return kept.ticket_key if kept else None

    def invite(self, campaign: str, digests: Sequence[bytes]) -> bool:
        """Keep the SHA-256 of codes that each is good for one ticket."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            if kept is None or kept.record.state == "ended":
                return False
            kept.invitations = dict.fromkeys(digests) | kept.invitations
            return True

    def invitations(self, campaign: str) -> tuple[int, int]:
        """How many codes were made, and how many of them used."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            requests = [*kept.invitations.values()] if kept else []
            return len(requests), len(requests) - requests.count(None)

    def use_invitation(self, campaign: str, digest: bytes, request: bytes) -> bool | None:
        """Use a code for one request, now or again; ``None`` where there is no such code."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            if kept is None or digest not in kept.invitations:
                return None
            kept.invitations[digest] = kept.invitations[digest] or request
            return kept.invitations[digest] == request

    # -- operators -------------------------------------------------------------------------------

    def add_token(self, digest: bytes, *, label: str, at_s: int) -> None:
        """Keep the SHA-256 of an operator's token."""
        with self._lock:
            self._tokens.setdefault(digest, (label, at_s))

    def token_known(self, digest: bytes) -> bool:
        """Whether a token with this SHA-256 may operate."""
        with self._lock:
            return digest in self._tokens

    def has_tokens(self) -> bool:
        """Whether any operator's token is kept."""
        with self._lock:
            return bool(self._tokens)

    def tokens(self) -> list[TokenRecord]:
        """The tokens of all operators, oldest first."""
        with self._lock:
            kept = [TokenRecord(digest, *rest) for digest, rest in self._tokens.items()]
        return sorted(kept, key=lambda each: (each.created_at_s, each.digest))

    def take_back_token(self, digest: bytes) -> bool:
        """Let the token with this SHA-256 operate no more; ``False`` where there is none."""
        with self._lock:
            return self._tokens.pop(digest, None) is not None

    # -- time ------------------------------------------------------------------------------------

    def keep_time(self, at_s: int) -> None:
        """Keep the time of now."""
        self._seen_at_s = at_s

    def time_kept(self) -> int | None:
        """The time when a service last looked."""
        return self._seen_at_s

    def mark_copy(self, at_s: int | None) -> None:
        """Say that this is a copy, or no longer one."""
        self._copied_at_s = at_s
        if self._seen_at_s is None:
            self._seen_at_s = at_s

    def copied_at_s(self) -> int | None:
        """Of which time this is a backup."""
        return self._copied_at_s

    # -- the store itself ------------------------------------------------------------------------

    def settle(self) -> None:
        """There is no log."""

    def check(self) -> None:
        """Raise ``StoreFailed`` once the store is closed."""
        if self._closed:
            raise StoreFailed("the store is closed")

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Everything as of one moment."""
        with self._lock:
            tables = tables_of(self._campaigns.values(), self._tokens)
            if self._seen_at_s is not None:
                tables["upkeep"].append((1, self._seen_at_s, self._copied_at_s))
        yield tables.__getitem__

    def fill(self, snapshot: Snapshot) -> None:
        """Take over everything of another store."""
        with self._lock:
            if self._campaigns or self._tokens:
                raise InvalidInput("the store must be empty to take over another one")
            self._campaigns, self._tokens = read_tables(snapshot)
            for _, seen_at_s, copied_at_s in snapshot("upkeep"):
                self._seen_at_s, self._copied_at_s = seen_at_s, copied_at_s

    def close(self) -> None:
        """Nothing is kept open; what was kept stays readable."""
        self._closed = True

    # -- inside ----------------------------------------------------------------------------------

    def _rounds(self) -> Iterator[KeptRound]:
        for kept in self._campaigns.values():
            yield from kept.rounds

    def _find(self, campaign: str, number: int) -> KeptRound | None:
        kept = self._campaigns.get(campaign)
        rounds = kept.rounds if kept else []
        return next((one for one in rounds if one.record.number == number), None)

    def _new_round(self, record: RoundRecord) -> KeptRound:
        if any(kept.record.mechanism == record.mechanism for kept in self._rounds()):
            raise InvalidInput("mechanism must not be published twice; make a document of its own")
        opened = replace(record, closed_at_s=None, total=0)
        key = 1 + max((kept.key for kept in self._rounds()), default=0)
        return KeptRound(key, opened, np.zeros(record.cells, dtype=np.int64))

    def _check(self, upload: Upload) -> None:
        kept = self._find(upload.campaign, upload.round)
        if kept is None or upload.mechanism not in ("", kept.record.mechanism):
            raise InvalidInput(f"round ({upload.round}) must be one of the campaign's")
        if kept.ids_dropped:
            raise over()
        if not 0 <= upload.cell < kept.record.cells:
            raise InvalidInput(f"cell of a report must be below {kept.record.cells}")
        if len(upload.id) != ID_BYTES:
            raise InvalidInput(f"id of a report must have {ID_BYTES} bytes")

    def _count(self, upload: Upload) -> bool:
        kept = self._campaigns[upload.campaign]
        if upload.id in kept.ids:
            return False
        kept.ids[upload.id] = upload.round
        one = self._find(upload.campaign, upload.round)
        assert one is not None
        one.counts[upload.cell] += 1
        return True


def _to_do(kept: KeptRound | KeptCampaign) -> bool:
    if isinstance(kept, KeptCampaign):
        return kept.record.state != "ended"
    return _waits(kept)


def _opened_next(rounds: list[KeptRound], one: KeptRound) -> float:
    """When the round after this one opened; never, where there is none."""
    return next((each.record.opened_at_s for each in rounds if each.key > one.key), math.inf)


def _waits(kept: KeptRound) -> bool:
    """Whether a round is closed and its estimate is to be made."""
    return bool(kept.closing) and not kept.estimate and kept.given_up_at_s is None


def open_any(address: str) -> Store:
    """The store at an address, ``memory:`` for a new model."""
    return MemoryStore() if address == "memory:" else open_store(address)
