"""The documents of a round: made at once or prepared, renewed, as they are kept, and as devices get them.

Everything here is a function of its arguments, clocks included. A design of 65,536 cells takes about a
minute: a campaign of many cells is kept at once and says that it is being prepared, and its round opens when
the worker has made its documents. What cannot be made ends the campaign, with the reason.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from geoveil.arrays import one_blas_thread
from geoveil.campaign import Campaign
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import MechanismDocument, pack_levels, publish, tag_of, unpack_levels
from geoveil.errors import InvalidInput, SolverFailed, Unsupported
from geoveil.position.positional import Placed, on_one_lattice
from geoveil.server.recent import Recent
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.space import MATRIX_LIMIT, MaskedGrid, Points, space_from_dict
from geoveil.store import PreparationRecord, RoundRecord

SLOW_CLOCKS_S = 300
"""Documents begin to hold this long before they are published, for devices whose clocks are slow."""
AT_ONCE_CELLS = MATRIX_LIMIT
"""Up to so many cells a mechanism is made while the operator waits, in some seconds."""
AT_ONCE_PLACES = 512
"""The same for a list of places, which are on no grid: a design for more takes long."""
AT_ONCE_LIMITED = 512
"""The same for cells within city limits: more take ten seconds or longer for each promise."""

Documents = tuple[MechanismDocument, ...]
"""The documents of one round: one for each promise, the strongest first."""


def first_documents(
    settings: CampaignSettings,
    campaign: str,
    now_s: int,
    space: Placed | None = None,
    number: int = 1,
) -> Documents:
    """The documents of a round before the first report: every cell is as likely as any other.

    The cells are those of the box, or of ``space``, which an operator drew. Places are laid on one lattice
    here, for all rounds and promises: devices know by it that they are the same places.
    """
    rule = settings.rule
    try:
        if isinstance(space, Points):
            space = on_one_lattice(space, rule.promises)
        if space is None:
            alike = CampaignSettings(
                name="box",
                box=settings.box,
                cell_km=settings.cell_km,
                promises_per_km=rule.promises,
                camouflage=rule.camouflage,
                most_leverage=rule.most_leverage,
            )
            begun = _begun_in_box(alike)
        else:
            begun = Campaign(space, rule=rule)
        first = current_documents(begun, settings, campaign, now_s)
    except (SolverFailed, Unsupported) as problem:
        raise InvalidInput(
            f"epsilon_per_km ({rule.epsilon_per_km:.6g}) must suit the cells: {problem}"
        ) from None
    return tuple(replace(document, round=number) for document in first)


@lru_cache(8)
def _begun_in_box(alike: CampaignSettings) -> Campaign:
    """A campaign before the first report, by all that its mechanisms depend on; kept for others like it."""
    return Campaign(alike.grid, rule=alike.rule)


def current_documents(
    campaign: Campaign, settings: CampaignSettings, name: str, now_s: int
) -> Documents:
    """The documents of the open round of a campaign, published now."""
    since_s, until_s = _validity(settings, now_s)
    return tuple(
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
        for level, mechanism in enumerate(campaign.current.mechanisms)
    )


def _validity(settings: CampaignSettings, now_s: int) -> tuple[int, int]:
    """From when and until when a document that is published now holds."""
    return max(0, now_s - SLOW_CLOCKS_S), now_s + settings.mechanism_s


def renewed(
    current: RoundRecord, settings: CampaignSettings, now_s: int, number: int
) -> RoundRecord:
    """The same mechanisms in a round of its own, from now on.

    Nothing new was estimated, and a design follows from the estimate.
    """
    documents = renewed_documents(current.document, settings, now_s, number)
    return replace(record_of(documents, settings, now_s), around=current.around)


def renewed_documents(
    documents: bytes, settings: CampaignSettings, now_s: int, number: int
) -> Documents:
    """The documents of a round as they are kept, for another round from now on."""
    since_s, until_s = _validity(settings, now_s)
    return tuple(
        replace(document, round=number, not_before_s=since_s, expires_s=until_s)
        for document in unpack_levels(documents)
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
        document=pack_levels(documents),
        cells=slots * sum(document.law.centres.size**ends for document in documents),
        opened_at_s=opened_at_s,
        expires_at_s=first.expires_s,
        accept_until_s=first.expires_s + settings.grace_s,
        levels=" ".join(document.id for document in documents) if several else "",
        slots=slots,
        ends=ends,
        around=int(first.area.around),
    )


_SERVED = Recent[bytes](32 << 20)
"""What devices are given, by id."""


def served(mechanism: str, document: bytes) -> bytes:
    """What a device is given: all levels in one body, or the only document with its id."""
    body = _SERVED.get(mechanism)
    if body is None:
        body, values = document, json.loads(document)
        if values["kind"] != "levels":
            body = canonical_bytes({"id": mechanism, **values})
        _SERVED.keep(mechanism, body, len(body))
    return body


# --- Prepared: of many cells, by the worker


@dataclass(frozen=True, slots=True)
class Preparing:
    """A preparation with all that its documents are made from; it can be sent to another process."""

    record: PreparationRecord
    settings: CampaignSettings
    now_s: int
    large: ClassVar[bool] = True
    """Only what takes long is prepared."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The round that opens, or a sentence why there is none."""

    opened: RoundRecord | None
    problem: str = ""
    unfinished: ClassVar[tuple[str, ...]] = ()
    """A preparation is whole or there is none."""

    @property
    def event(self) -> str:
        """Its name in the log."""
        return "preparation-refused" if self.opened is None else "campaign-prepared"


@one_blas_thread()
def prepare(work: Preparing) -> Prepared:
    """The documents of the round that a campaign waits for."""
    record, settings = work.record, work.settings
    space = space_from_dict(json.loads(record.space)) if record.space else None
    assert space is None or isinstance(space, Placed)
    try:
        documents = first_documents(settings, record.campaign, work.now_s, space, record.round)
    except InvalidInput as problem:
        return Prepared(None, str(problem))
    return Prepared(record_of(documents, settings, work.now_s))


def at_once(space: Placed, promises: int = 1) -> bool:
    """Whether mechanisms for so many promises are made while the operator waits."""
    if isinstance(space, Points):
        return space.size * promises <= AT_ONCE_PLACES
    if isinstance(space, MaskedGrid):
        return space.size * promises <= min(AT_ONCE_LIMITED, AT_ONCE_CELLS)
    return space.size <= AT_ONCE_CELLS


def lacks_area(preparation: PreparationRecord, settings: CampaignSettings) -> bool:
    """Whether there are more cells than a mechanism is made for until an operator draws city limits."""
    return not preparation.space and settings.needs_area


def described_preparation(
    preparation: PreparationRecord | None, settings: CampaignSettings, *, ended: bool
) -> dict[str, Any] | None:
    """What everybody may know: that a round is being prepared, what it waits for, or why it cannot be.

    Of a campaign that its operator ended meanwhile there is nothing to say.
    """
    if preparation is None or (ended and not preparation.problem):
        return None
    lacks = lacks_area(preparation, settings)
    return {"round": preparation.round, "problem": preparation.problem or None, "needs_area": lacks}
