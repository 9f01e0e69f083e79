"""Rounds without any input or output: from the counts of a closing to its estimate and the next document.

Everything here is a function of its arguments, clocks and randomness included: the same closing gives
the same bytes, whichever process works on it and however often.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from geoveil.arrays import FloatArray, IntArray, one_blas_thread
from geoveil.campaign.design import elastic
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import MechanismDocument, publish
from geoveil.errors import GeoveilError, InvalidInput, SolverFailed
from geoveil.server.estimates import Suspicion, Used, estimate_body, inspect, reports_of
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.store.contract import RoundRecord

SLOW_CLOCKS_S = 300
"""Documents begin to hold this long before they are published, for devices whose clocks are slow."""


class NothingToRelease(GeoveilError):
    """A closing whose round has fewer reports than the campaign's minimum: there is no estimate of it."""


@dataclass(frozen=True, slots=True)
class Work:
    """A closing with all that its estimate is made from; it can be sent to another process."""

    campaign: str
    round: int
    closed_at_s: int
    settings: CampaignSettings
    documents: Mapping[int, bytes]
    """Round number → its document, for the rounds to use."""
    counts: Mapping[int, IntArray]
    """Round number → counts by cell as of the closing, for the same rounds."""
    suspects: tuple[Suspicion, ...] = ()
    """Rounds and cells in which the estimate before found fakes."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a closing led to: the body of its estimate, and the next round, if any, as if opened at once."""

    body: bytes
    reports: int
    following: RoundRecord | None


def is_last(settings: CampaignSettings, number: int) -> bool:
    """Whether a campaign ends with this round."""
    return settings.rounds is not None and number >= settings.rounds


def is_due(current: RoundRecord, settings: CampaignSettings, now_s: int) -> bool:
    """Whether an open round should end: enough reports, enough time, or its document has expired."""
    full = settings.round_size is not None and current.total >= settings.round_size
    over = settings.round_hours is not None and (
        now_s >= current.opened_at_s + round(settings.round_hours * 3600)
    )
    return full or over or now_s >= current.expires_at_s


def usable(settings: CampaignSettings, counts: Mapping[int, IntArray]) -> dict[int, IntArray]:
    """The rounds that an estimate may use: those with the minimum of reports."""
    least = max(1, settings.minimum_reports)
    return {number: counts[number] for number in sorted(counts) if counts[number].sum() >= least}


@one_blas_thread()
def conclude(work: Work) -> Conclusion:
    """The estimate of a closing and the next document.

    Cost: one fit over all rounds with the minimum of reports, its error bars, the alarm, the
    manipulation gain, one design; a few fits and alarms more where the alarm is raised.
    """
    counts = usable(work.settings, work.counts)
    if work.round not in counts:
        raise NothingToRelease(
            f"round {work.round} must have at least {work.settings.minimum_reports} reports to be released"
        )
    used = [
        Used(MechanismDocument.read(work.documents[number]), counts[number]) for number in counts
    ]
    settings = work.settings
    inspected = inspect(
        used, guarded=settings.guarded, suspects=work.suspects, least=settings.minimum_reports
    )
    body = estimate_body(work.campaign, work.round, work.closed_at_s, used, inspected)
    if is_last(work.settings, work.round):
        return Conclusion(body, reports_of(used), None)
    believed = inspected.estimate.distribution
    document = _designed(work.settings, work.campaign, work.round + 1, believed, work.closed_at_s)
    following = record_of(document, work.settings, work.closed_at_s)
    return Conclusion(body, reports_of(used), following)


# -- documents -------------------------------------------------------------------------------------


def first_document(settings: CampaignSettings, campaign: str, now_s: int) -> MechanismDocument:
    """The document of the first round: nothing is believed yet, every cell is as likely as any other."""
    try:
        return _designed(settings, campaign, 1, _uniform(settings), now_s)
    except SolverFailed as problem:
        raise InvalidInput(
            f"epsilon_per_km ({settings.epsilon_per_km:.6g}) must suit the cells: {problem}"
        ) from None


def renewed(
    document: MechanismDocument, settings: CampaignSettings, now_s: int
) -> MechanismDocument:
    """The same mechanism in a round of its own, for one that expired with too few reports.

    What is believed has not changed, and a design is a function of what is believed.
    """
    not_before_s, expires_s = _validity(settings, now_s)
    return replace(
        document, round=document.round + 1, not_before_s=not_before_s, expires_s=expires_s
    )


def record_of(
    document: MechanismDocument, settings: CampaignSettings, opened_at_s: int
) -> RoundRecord:
    """A round as it is kept when its document is published."""
    return RoundRecord(
        campaign=document.campaign,
        number=document.round,
        mechanism=document.id,
        document=document.to_bytes(),
        cells=document.mechanism.space.size,
        opened_at_s=opened_at_s,
        expires_at_s=document.expires_s,
        accept_until_s=document.expires_s + settings.grace_s,
    )


@lru_cache(256)
def served(mechanism: str, document: bytes) -> bytes:
    """What a device is given: the kept document with its id, as ``MechanismDocument.served`` writes it."""
    return canonical_bytes({"id": mechanism, **json.loads(document)})


def _designed(
    settings: CampaignSettings, campaign: str, number: int, believed: FloatArray, now_s: int
) -> MechanismDocument:
    mechanism = elastic(
        settings.grid,
        believed,
        epsilon_per_km=settings.epsilon_per_km,
        camouflage=settings.camouflage,
        most_leverage=settings.most_leverage,
    )
    not_before_s, expires_s = _validity(settings, now_s)
    return publish(
        mechanism,
        campaign=campaign,
        round=number,
        not_before_s=not_before_s,
        expires_s=expires_s,
    )


def _validity(settings: CampaignSettings, now_s: int) -> tuple[int, int]:
    return max(0, now_s - SLOW_CLOCKS_S), now_s + settings.mechanism_s


def _uniform(settings: CampaignSettings) -> FloatArray:
    cells = settings.grid.size
    return np.full(cells, 1 / cells)


def opened(following: RoundRecord, settings: CampaignSettings, now_s: int) -> RoundRecord:
    """The next round as it opens now; with a lifetime counted from now where half of its own is over.

    Its document was made for the moment of the closing, and the estimate may have come much later.
    """
    if 2 * (following.expires_at_s - now_s) >= settings.mechanism_s:
        return replace(following, opened_at_s=now_s)
    not_before_s, expires_s = _validity(settings, now_s)
    document = MechanismDocument.read(following.document)
    later = replace(document, not_before_s=not_before_s, expires_s=expires_s)
    return record_of(later, settings, now_s)
