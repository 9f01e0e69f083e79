"""Campaigns, rounds and operators in SQL: the part of the contract that both databases do alike.

Statements are written once, with named parameters (``:name``) and nothing that only one database
understands. A database supplies its transactions and the hot path: counting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from geoveil.errors import InvalidInput
from geoveil.store.contract import CampaignRecord, EstimateRecord, RoundRecord
from geoveil.store.layout import Row
from geoveil.store.uploads import RoundKeys

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
