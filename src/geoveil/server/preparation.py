"""Campaigns of many cells: their mechanisms are made outside of the request, by the worker.

A design of 65,536 cells takes about a minute. The campaign is kept at once and says that it is being
prepared; its round opens when its documents are made. What cannot be made ends the campaign, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from geoveil.arrays import one_blas_thread
from geoveil.document.canonical import canonical_bytes
from geoveil.errors import InvalidInput
from geoveil.position.positional import Placed
from geoveil.server.conclusion import MANY_PLACES
from geoveil.server.problem import Problem
from geoveil.server.round_documents import first_documents, opened, record_of
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.server.trusted_clock import Clock
from geoveil.space import MATRIX_LIMIT, Points, space_from_dict
from geoveil.store import PreparationRecord, RoundRecord, Store

AT_ONCE_CELLS = MATRIX_LIMIT
"""Up to so many cells a mechanism is made while the operator waits, in some seconds."""
AT_ONCE_PLACES = MANY_PLACES
"""Of a list of places, which are on no grid."""
GIVEN_UP = "its mechanism could not be made; make another campaign of fewer cells"


@dataclass(frozen=True, slots=True)
class Preparing:
    """A preparation with all that its documents are made from; it can be sent to another process."""

    wanted: PreparationRecord
    settings: CampaignSettings
    now_s: int

    @property
    def large(self) -> bool:
        """Whether it takes long; only such are prepared here."""
        return True

    @property
    def space(self) -> Placed | None:
        """The cells that an operator drew; ``None`` for all of the box."""
        kept = self.wanted.space
        space = space_from_dict(json.loads(kept)) if kept else None
        assert space is None or isinstance(space, Placed)
        return space


@dataclass(frozen=True, slots=True)
class Prepared:
    """The round that opens, or a sentence why there is none."""

    opened: RoundRecord | None
    problem: str = ""

    @property
    def unfinished(self) -> tuple[str, ...]:
        """A preparation is whole or there is none."""
        return ()

    @property
    def told(self) -> str:
        """The event that it is."""
        return "preparation-refused" if self.opened is None else "campaign-prepared"


@one_blas_thread()
def prepare(work: Preparing) -> Prepared:
    """The documents of the round that a campaign waits for."""
    wanted, settings = work.wanted, work.settings
    try:
        made = first_documents(settings, wanted.campaign, work.now_s, work.space)
    except InvalidInput as problem:
        return Prepared(None, str(problem))
    documents = tuple(replace(document, round=wanted.round) for document in made)
    return Prepared(record_of(documents, settings, work.now_s))


def at_once(space: Placed) -> bool:
    """Whether a mechanism is made while the operator waits."""
    return space.size <= (AT_ONCE_PLACES if isinstance(space, Points) else AT_ONCE_CELLS)


def wanted_area(campaign: str, number: int, space: Placed) -> PreparationRecord:
    """A round of a campaign over the cells that an operator drew."""
    return PreparationRecord(campaign, number, canonical_bytes(space.to_dict()))


def lacks_area(wanted: PreparationRecord, settings: CampaignSettings) -> bool:
    """Whether there are more cells than a mechanism is made for until an operator draws city limits."""
    return not wanted.space and settings.needs_area


def described_preparation(
    wanted: PreparationRecord | None, settings: CampaignSettings, *, ended: bool
) -> dict[str, Any] | None:
    """What everybody may know: that a round is being prepared, what it waits for, or why it cannot be.

    Of a campaign that its operator ended meanwhile there is nothing to say.
    """
    if wanted is None or (ended and not wanted.problem):
        return None
    lacks = lacks_area(wanted, settings)
    return {"round": wanted.round, "problem": wanted.problem or None, "needs_area": lacks}


def check_prepared(wanted: PreparationRecord | None, settings: CampaignSettings) -> None:
    """Raise ``campaign-preparing`` where a campaign waits for its mechanism."""
    if wanted is None or wanted.problem:
        return
    if lacks_area(wanted, settings):
        sentence = "this campaign waits for the city limits that its operator draws"
    else:
        sentence = "the mechanism of this campaign is being made, which takes a minute or more"
    raise Problem("campaign-preparing", f"{sentence}; try again later")


class Preparations:
    """What the worker does with preparations: takes, makes and keeps them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Callable[[str], CampaignSettings],
        forget: Callable[[str], None],
    ) -> None:
        self._store, self._clock, self._settings, self._forget = store, clock, settings, forget

    def waiting(self) -> list[PreparationRecord]:
        """What can be prepared now; a box of too many cells waits for city limits."""
        return [each for each in self._store.preparations() if self._can_begin(each)]

    def _can_begin(self, wanted: PreparationRecord) -> bool:
        try:
            return not lacks_area(wanted, self._settings(wanted.campaign))
        except Problem:  # deleted meanwhile
            return False

    def claim(self, wanted: PreparationRecord, *, for_s: int, held_until_s: int = 0) -> int:
        """Take a preparation for a while, or have it longer: until when; 0 where another process has it."""
        now = int(self._clock())
        claimed = self._store.claim_preparation(
            wanted, now_s=now, for_s=for_s, held_until_s=held_until_s
        )
        return now + for_s if claimed else 0

    def release(self, wanted: PreparationRecord) -> None:
        """Give a preparation back that this process had taken."""
        self._store.release_preparation(wanted)

    def work(self, wanted: PreparationRecord) -> Preparing:
        """A preparation with all that it is made from."""
        return Preparing(wanted, self._settings(wanted.campaign), int(self._clock()))

    def publish(self, work: Preparing, made: Prepared) -> bool:
        """Open the round, or keep why it cannot be; ``False`` where the campaign waits for another by now."""
        wanted, now = work.wanted, int(self._clock())
        if made.opened is None:
            kept = self._store.refuse_preparation(wanted, made.problem)
        else:
            following = opened(made.opened, work.settings, now)
            kept = self._store.finish_preparation(wanted, following, at_s=now)
        self._forget(wanted.campaign)
        return kept

    def failed(self, wanted: PreparationRecord) -> int:
        """An attempt has failed; how many have."""
        return self._store.preparation_failed(wanted)

    def give_up(self, wanted: PreparationRecord) -> bool:
        """Make no further attempt: the campaign ends."""
        kept = self._store.refuse_preparation(wanted, GIVEN_UP)
        self._forget(wanted.campaign)
        return kept
