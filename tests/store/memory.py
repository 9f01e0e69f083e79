"""The model of a store: everything in memory, in the plainest way that does what the contract says."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from geoveil.arrays import IntArray
from geoveil.errors import InvalidInput
from geoveil.store import Store, open_store
from geoveil.store.contract import over
from geoveil.store.records import (
    ID_BYTES,
    TABLES,
    CampaignRecord,
    ClosingRecord,
    EstimateRecord,
    RoundRecord,
    Row,
    Snapshot,
    StoreFailed,
    Upload,
    packed,
    unpacked,
)


@dataclass(slots=True)
class KeptRound:
    """A round with its counts; its record says open and 0, the rest is here."""

    key: int
    record: RoundRecord
    counts: IntArray
    closed_at_s: int | None = None
    closing: ClosingRecord | None = None
    claimed_until_s: int = 0
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
    ids: dict[bytes, int] = field(default_factory=dict)

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
            (key, record.id, record.name, record.settings, record.created_at_s)
        )
        keys = {one.record.number: one.key for one in kept.rounds}
        for one in kept.rounds:
            _add_round(tables, key, one, keys)
        tables["report"] += [(key, id, keys[number]) for id, number in kept.ids.items()]
    tables["token"] += [(digest, *rest) for digest, rest in tokens.items()]
    return tables


def _add_round(
    tables: dict[str, list[Row]], campaign_key: int, kept: KeptRound, keys: Mapping[int, int]
) -> None:
    r = kept.record
    facts = (r.number, r.mechanism, r.document, r.cells)
    times = (r.opened_at_s, r.expires_at_s, r.accept_until_s, kept.closed_at_s)
    tables["round"].append((kept.key, campaign_key, *facts, *times, 2 * kept.ids_dropped))
    for cell in np.flatnonzero(kept.counts):
        tables["tally"].append((kept.key, int(cell), int(kept.counts[cell])))
    if total := int(kept.counts.sum()):
        tables["round_total"].append((kept.key, total))
    if kept.closing:
        tables["closing"].append((kept.key, kept.closing.closed_at_s, kept.claimed_until_s))
        for number, counts in kept.closing.counts.items():
            tables["closing_tally"].append((kept.key, keys[number], packed(counts)))
    if made := kept.estimate:
        tables["estimate"].append((kept.key, made.made_at_s, made.reports, made.body))


def read_tables(snapshot: Snapshot) -> tuple[Campaigns, Tokens]:
    """Everything again, from the rows of any store."""
    tables: dict[str, list[Row]] = {name: list(snapshot(name)) for name in TABLES}
    campaigns = {row[0]: KeptCampaign(CampaignRecord(*row[1:]), []) for row in tables["campaign"]}
    rounds: dict[int, KeptRound] = {}
    for key, campaign_key, *facts, closed_at_s, dropped in tables["round"]:
        owner = campaigns[campaign_key]
        record = RoundRecord(owner.record.id, *facts)
        counts = np.zeros(record.cells, dtype=np.int64)
        rounds[key] = KeptRound(key, record, counts, closed_at_s, ids_dropped=bool(dropped))
        owner.rounds.append(rounds[key])
    for campaign_key, id, round_key in tables["report"]:
        campaigns[campaign_key].ids[id] = rounds[round_key].record.number
    for round_key, cell, count in tables["tally"]:
        rounds[round_key].counts[cell] = count
    _read_ends(tables, rounds)
    tokens = {digest: (label, at_s) for digest, label, at_s in tables["token"]}
    return {kept.record.id: kept for kept in campaigns.values()}, tokens


def _read_ends(tables: Tables, rounds: Mapping[int, KeptRound]) -> None:
    kept_counts: dict[int, dict[int, IntArray]] = {}
    for closing_key, round_key, counts in tables["closing_tally"]:
        number = rounds[round_key].record.number
        kept_counts.setdefault(closing_key, {})[number] = unpacked(counts)
    for key, closed_at_s, claimed_until_s in tables["closing"]:
        kept = rounds[key]
        kept.claimed_until_s = claimed_until_s
        kept.closing = ClosingRecord(
            kept.record.campaign, kept.record.number, closed_at_s, kept_counts[key]
        )
    for key, made_at_s, reports, body in tables["estimate"]:
        record = rounds[key].record
        rounds[key].estimate = EstimateRecord(
            record.campaign, record.number, made_at_s, reports, body
        )


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

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._campaigns: Campaigns = {}
        self._tokens: Tokens = {}
        self._closed = False

    # -- campaigns and rounds --------------------------------------------------------------------

    def create_campaign(self, campaign: CampaignRecord, first: RoundRecord) -> bool:
        """Keep a campaign with its first round; ``False`` (and nothing kept) where the id exists."""
        if first.campaign != campaign.id or first.number != 1:
            raise InvalidInput("first must be round 1 of the campaign it is kept with")
        with self._lock:
            if campaign.id in self._campaigns:
                return False
            self._campaigns[campaign.id] = KeptCampaign(campaign, [self._new_round(first)])
            return True

    def campaigns(self) -> list[CampaignRecord]:
        """All campaigns, oldest first."""
        with self._lock:
            return [kept.record for kept in self._campaigns.values()]

    def campaign(self, campaign: str) -> CampaignRecord | None:
        """One campaign."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return kept.record if kept else None

    def rounds(self, campaign: str) -> list[RoundRecord]:
        """All rounds of a campaign, oldest first, with their totals now."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            return [one.now() for one in kept.rounds] if kept else []

    def round_of(self, mechanism: str) -> RoundRecord | None:
        """The round that published this document."""
        with self._lock:
            for kept in self._rounds():
                if kept.record.mechanism == mechanism:
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
            if kept is None:
                return False
            last = kept.rounds[-1]
            enough = int(last.counts.sum()) >= max(minimum, 1)
            if last.record.number != number or last.closed_at_s is not None or not enough:
                return False
            last.closed_at_s = at_s
            last.closing = ClosingRecord(campaign, number, at_s, kept.counts())
            return True

    def closings(self) -> list[ClosingRecord]:
        """Closed rounds that have no estimate yet, oldest first."""
        with self._lock:
            rounds = sorted(self._rounds(), key=lambda one: one.key)
            waiting = [one.closing for one in rounds if one.closing and not one.estimate]
            return sorted(waiting, key=lambda closing: closing.closed_at_s)

    def claim(
        self, campaign: str, number: int, *, now_s: int, for_s: int, held_until_s: int = 0
    ) -> bool:
        """Take the work on a closing for a while, or have it longer."""
        with self._lock:
            kept = self._find(campaign, number)
            if not kept or not kept.closing or kept.estimate:
                return False
            if now_s < kept.claimed_until_s != held_until_s:
                return False
            kept.claimed_until_s = now_s + for_s
            return True

    def release(self, campaign: str, number: int) -> None:
        """Give the work on a closing back, for whoever comes next."""
        with self._lock:
            kept = self._find(campaign, number)
            if kept:
                kept.claimed_until_s = 0

    def publish(self, estimate: EstimateRecord, following: RoundRecord | None) -> bool:
        """Keep the estimate of a closed round and open the next one, if any."""
        expected = (estimate.campaign, estimate.round + 1)
        if following is not None and (following.campaign, following.number) != expected:
            raise InvalidInput("following must be the round after the one that was estimated")
        with self._lock:
            kept = self._find(estimate.campaign, estimate.round)
            if kept is None or kept.closing is None:
                raise InvalidInput(f"round ({estimate.round}) must be closed before its estimate")
            if kept.estimate is not None:
                return False
            if following is not None:
                self._campaigns[following.campaign].rounds.append(self._new_round(following))
            kept.estimate = estimate
            return True

    def replace_document(self, following: RoundRecord, *, at_s: int) -> bool:
        """Close the last round of a campaign without an estimate and open the next one."""
        with self._lock:
            kept = self._campaigns.get(following.campaign)
            if kept is None:
                return False
            last = kept.rounds[-1]
            if last.record.number != following.number - 1 or last.closed_at_s is not None:
                return False
            kept.rounds.append(self._new_round(following))
            last.closed_at_s = at_s
            return True

    def estimate(self, campaign: str, number: int | None = None) -> EstimateRecord | None:
        """The estimate made at the close of a round; of the last one that has any, without a number."""
        with self._lock:
            kept = self._campaigns.get(campaign)
            made = [one.estimate for one in kept.rounds if one.estimate] if kept else []
            return next((one for one in made[::-1] if number in (None, one.round)), None)

    def forget_ids(self, *, now_s: int) -> int:
        """Drop the ids of rounds that no longer accept reports; how many."""
        with self._lock:
            before = sum(len(kept.ids) for kept in self._campaigns.values())
            for kept in self._campaigns.values():
                over = {r.record.number for r in kept.rounds if r.record.accept_until_s < now_s}
                kept.ids = {id: number for id, number in kept.ids.items() if number not in over}
                for one in kept.rounds:
                    one.ids_dropped |= one.record.number in over
            return before - sum(len(kept.ids) for kept in self._campaigns.values())

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
        """Whether any operator's token was ever kept."""
        with self._lock:
            return bool(self._tokens)

    # -- the store itself ------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``StoreFailed`` once the store is closed."""
        if self._closed:
            raise StoreFailed("the store is closed")

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Everything as of one moment."""
        with self._lock:
            tables = tables_of(self._campaigns.values(), self._tokens)
        yield tables.__getitem__

    def fill(self, snapshot: Snapshot) -> None:
        """Take over everything of another store."""
        with self._lock:
            if self._campaigns or self._tokens:
                raise InvalidInput("the store must be empty to take over another one")
            self._campaigns, self._tokens = read_tables(snapshot)

    def close(self) -> None:
        """Nothing is kept open; what was kept stays readable."""
        self._closed = True

    # -- inside ----------------------------------------------------------------------------------

    def _rounds(self) -> Iterator[KeptRound]:
        for kept in self._campaigns.values():
            yield from kept.rounds

    def _find(self, campaign: str, number: int) -> KeptRound | None:
        kept = self._campaigns.get(campaign)
        return kept.rounds[number - 1] if kept and 1 <= number <= len(kept.rounds) else None

    def _new_round(self, record: RoundRecord) -> KeptRound:
        if any(kept.record.mechanism == record.mechanism for kept in self._rounds()):
            raise InvalidInput("mechanism must not be published twice; make a document of its own")
        opened = replace(record, closed_at_s=None, total=0)
        key = 1 + max((kept.key for kept in self._rounds()), default=0)
        return KeptRound(key, opened, np.zeros(record.cells, dtype=np.int64))

    def _check(self, upload: Upload) -> None:
        kept = self._find(upload.campaign, upload.round)
        if kept is None:
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
        kept.rounds[upload.round - 1].counts[upload.cell] += 1
        return True


def open_any(address: str) -> Store:
    """The store at an address, ``memory:`` for a new model."""
    return MemoryStore() if address == "memory:" else open_store(address)
