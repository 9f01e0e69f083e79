"""The documents of a round: made when it opens, renewed, as they are kept, and as devices get them.

Everything here is a function of its arguments, clocks included.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

from geoveil.campaign import Campaign
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import MechanismDocument, kept_levels, publish, read_kept, tag_of
from geoveil.errors import InvalidInput, SolverFailed, Unsupported
from geoveil.position.positional import Placed, PositionalElastic, on_one_lattice
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.space import Points
from geoveil.store import RoundRecord

SLOW_CLOCKS_S = 300
"""Documents begin to hold this long before they are published, for devices whose clocks are slow."""

Documents = tuple[MechanismDocument, ...]
"""Of one round: one for each promise, the strongest first."""


def first_documents(
    settings: CampaignSettings, campaign: str, now_s: int, space: Placed | None = None
) -> Documents:
    """Those of the first round: nothing is believed yet, every cell is as likely as any other.

    The cells are those of the box, or of ``space``, which an operator drew. Places keep the lattice that they
    are laid on here in all rounds and for all promises: it is what tells devices that they are the same.
    """
    rule = settings.rule
    try:
        if isinstance(space, Points):
            space = on_one_lattice(space, rule.promises)
        begun = Campaign(settings.grid if space is None else space, rule=rule)
        return current_documents(begun, settings, campaign, now_s)
    except (SolverFailed, Unsupported) as problem:
        raise InvalidInput(
            f"epsilon_per_km ({rule.epsilon_per_km:.6g}) must suit the cells: {problem}"
        ) from None


def current_documents(
    campaign: Campaign, settings: CampaignSettings, name: str, now_s: int
) -> Documents:
    """Those of the open round of a campaign, published now."""
    since_s, until_s = _validity(settings, now_s)
    documents = []
    for level, mechanism in enumerate(campaign.current.mechanisms):
        assert isinstance(mechanism, PositionalElastic)
        documents.append(
            publish(
                mechanism,
                campaign=name,
                round=campaign.current.number,
                not_before_s=since_s,
                expires_s=until_s,
                level=level,
                slots=settings.time_slots,
                trips=settings.trips,
            )
        )
    return tuple(documents)


def _validity(settings: CampaignSettings, now_s: int) -> tuple[int, int]:
    """From when and until when a document that is published now holds."""
    return max(0, now_s - SLOW_CLOCKS_S), now_s + settings.mechanism_s


def renewed(
    current: RoundRecord, settings: CampaignSettings, now_s: int, number: int
) -> RoundRecord:
    """The same mechanisms in a round of its own, from now on.

    What is believed has not changed, and a design is a function of what is believed.
    """
    documents = renewed_documents(current.document, settings, now_s, number)
    return replace(record_of(documents, settings, now_s), around=current.around)


def renewed_documents(
    kept: bytes, settings: CampaignSettings, now_s: int, number: int
) -> Documents:
    """The documents of a round as they are kept, for another round from now on."""
    since_s, until_s = _validity(settings, now_s)
    return tuple(
        replace(document, round=number, not_before_s=since_s, expires_s=until_s)
        for document in read_kept(kept)
    )


def opened(following: RoundRecord, settings: CampaignSettings, now_s: int) -> RoundRecord:
    """The next round as it opens now; with a lifetime counted from now where half of its own is over.

    Its document was made for the moment of the closing, and the estimate may have come much later, or
    the clock has been put right since.
    """
    left_s, ahead_s = following.expires_at_s - now_s, following.opened_at_s - now_s
    if 2 * left_s >= settings.mechanism_s and ahead_s <= SLOW_CLOCKS_S:
        return replace(following, opened_at_s=now_s)
    return renewed(following, settings, now_s, following.number)


def record_of(documents: Documents, settings: CampaignSettings, opened_at_s: int) -> RoundRecord:
    """A round as it is kept when its documents are published."""
    first, several = documents[0], len(documents) > 1
    slots = 1 if first.slots is None else len(first.slots.names)
    ends = 2 if first.trips else 1
    return RoundRecord(
        campaign=first.campaign,
        number=first.round,
        mechanism=tag_of(documents),
        document=kept_levels(documents),
        cells=slots * sum(document.law.centres.size**ends for document in documents),
        opened_at_s=opened_at_s,
        expires_at_s=first.expires_s,
        accept_until_s=first.expires_s + settings.grace_s,
        levels=" ".join(document.id for document in documents) if several else "",
        slots=slots,
        ends=ends,
        around=int(first.area.around),
    )


@lru_cache(256)
def served(mechanism: str, document: bytes) -> bytes:
    """What a device is given: all levels in one body, or the only document with its id."""
    kept = json.loads(document)
    return document if kept["kind"] == "levels" else canonical_bytes({"id": mechanism, **kept})
