"""What a store in memory holds, and the same as tables that other stores can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from geoveil.arrays import IntArray
from geoveil.store.contract import CampaignRecord, Closing, EstimateRecord, RoundRecord, Snapshot
from geoveil.store.layout import TABLES, Row, packed, unpacked


@dataclass(slots=True)
class KeptRound:
    """A round with its counts; its record says open and 0, the rest is here."""

    key: int
    record: RoundRecord
    counts: IntArray
    closed_at_s: int | None = None
    closing: Closing | None = None
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


class MemorySnapshot:
    """A copy of all tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def tables(self) -> Sequence[str]:
        """Names of the tables, parents before children."""
        return tuple(TABLES)

    def rows(self, table: str) -> Iterable[Row]:
        """All rows of a table."""
        return self._tables[table]


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
    tables: dict[str, list[Row]] = {name: list(snapshot.rows(name)) for name in snapshot.tables()}
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
        kept.closing = Closing(
            kept.record.campaign, kept.record.number, closed_at_s, kept_counts[key]
        )
    for key, made_at_s, reports, body in tables["estimate"]:
        record = rounds[key].record
        rounds[key].estimate = EstimateRecord(
            record.campaign, record.number, made_at_s, reports, body
        )
