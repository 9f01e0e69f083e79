"""From the counts of a closing to its estimate, as it is kept and read, and to the next document.

Everything here is a function of its arguments, clocks included: the same closing gives the same bytes,
whichever process works on it and however often. The mathematics is that of :class:`geoveil.Campaign`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np

from geoveil.arrays import IntArray, one_blas_thread
from geoveil.campaign import Campaign, Closing, Round
from geoveil.campaign.one_map import Standing
from geoveil.campaign.rounds import read_fakes
from geoveil.channel.channel import Tally
from geoveil.document.canonical import canonical_bytes
from geoveil.document.slots import Slots
from geoveil.document.wire import MechanismDocument, tag_of, unpack_levels
from geoveil.errors import GeoveilError, number_of
from geoveil.estimate.bars import ErrorBars
from geoveil.server.maps_by_slot import (
    OfSlot,
    by_slot,
    fitted_slots,
    packed_maps,
    short,
    slot_alarm,
    slots_summary,
)
from geoveil.server.round_documents import AT_ONCE_PLACES, Documents, current_documents, record_of
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.space import MATRIX_LIMIT, AnyGrid
from geoveil.space.masked_grid import grid_beneath
from geoveil.store import CampaignRecord, EstimateRecord, Progress, RoundRecord
from geoveil.trips.flows import blocks

VERSION = 1
DIGITS = 6
"""How many digits the numbers beside the shares of cells are kept with."""
LEVEL = 0.95
"""Confidence level of the intervals."""
BLOCKS = (2, 4, 8)
"""Sides, in cells, of the blocks that are released with intervals, beside the cells."""
LISTED = b'"kind":"centres"'
"""In documents whose cells are a list of places."""


class NothingToRelease(GeoveilError):
    """A closing whose round has fewer reports than the campaign's minimum: there is no estimate of it."""

    def __init__(self, work: Work) -> None:
        least = number_of(work.settings.minimum_reports, "report")
        super().__init__(f"round {work.round} must have at least {least} to be released")


@dataclass(frozen=True, slots=True)
class Work:
    """A closing with all that its estimate is made from; it can be sent to another process."""

    campaign: str
    round: int
    closed_at_s: int
    settings: CampaignSettings
    documents: Mapping[int, bytes]
    """Round number → its document, for rounds with reports."""
    counts: Mapping[int, IntArray]
    """Round number → counts by cell as of the closing, at least for the same rounds; of trips (k, 2): the
    numbers of the pairs that came, and how often each."""
    before: tuple[int, bytes] | None = None
    """The last round that has an estimate, and the body of that."""
    last: bool = False
    """Whether the campaign ends with this round."""
    around: bool = False
    """Whether people stand around the places that its cells are."""
    seed: tuple[int, IntArray] | None = None
    """Where the first round is trusted: its number, and its counts as of its own closing."""
    left_out: int = 0
    """How many older rounds with reports it is not made from, for want of time."""

    @property
    def large(self) -> bool:
        """Whether it takes long: more cells than a matrix is made of, or many places on no grid."""
        listed = [number for number, document in self.documents.items() if LISTED in document]
        most = max((self.counts[number].size for number in listed), default=0)
        return most > AT_ONCE_PLACES or (not listed and self.settings.grid.size > MATRIX_LIMIT)


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a closing led to: the body of its estimate, and the next round, if any, as if opened at once."""

    body: bytes
    reports: int
    following: RoundRecord | None
    unfinished: tuple[str, ...] = ()
    """The parts that the body does not have, by their names in :data:`PARTS`."""
    slots: bytes = b""
    """One map for each slot, where the campaign has slots."""
    event: ClassVar[str] = "estimate-made"
    """Its name in the log."""


@one_blas_thread()
def conclude(work: Work, tell: Callable[[Conclusion], None] = lambda _: None) -> Conclusion:
    """The estimate of a closing and the next document.

    ``tell`` is told what there is, as soon as there is a map and a next document and after each part
    but the last: whoever cannot wait takes that.

    Cost: one fit over all rounds with the minimum of reports, its error bars, the alarm, the
    manipulation gain, one design; a few fits and alarms more where the alarm is raised.
    """
    settings, last = work.settings, work.last
    texts = sorted(work.documents.items())
    every = {number: unpack_levels(text, around=work.around) for number, text in texts}
    spaces = {number: levels[0].area.to_dict() for number, levels in every.items()}
    # before its first report, a campaign may get other cells: those of the newest round are meant
    documents = {number: every[number] for number in every if spaces[number] == spaces[max(spaces)]}
    rounds = [round_of(number, levels, work.counts[number]) for number, levels in documents.items()]
    if work.before is not None:
        _remember(rounds, *work.before)
    for round_ in rounds:
        if work.seed is not None and round_.number == work.seed[0]:
            round_.seed = round_of(round_.number, documents[round_.number], work.seed[1]).tallies
    space = rounds[-1].mechanisms[0].space if rounds else settings.grid
    campaign = Campaign.from_rounds(
        space, rounds, rule=settings.rule, minimum_reports=settings.minimum_reports
    )
    if not rounds or campaign.current.number != work.round or not campaign.close_round(last=last):
        raise NothingToRelease(work)
    closing, following = campaign.closing, None
    if not last:
        published = current_documents(campaign, settings, work.campaign, work.closed_at_s)
        following = record_of(published, settings, work.closed_at_s)
    parts: dict[str, Any] = {}
    maps = b""
    timed = settings.slots is not None
    names = [name for name, part in PARTS.items() if timed or part is not None]
    for position, name in enumerate(names):
        unfinished = tuple(names[position:])
        body = _body(work, documents, closing, parts, unfinished)
        tell(Conclusion(body, closing.reports, following, unfinished, maps))
        part = PARTS[name]
        if part is not None:
            parts |= part(closing)
        elif name == "slots":
            parts["slots"], maps = _slots(work, documents, closing)
        else:
            slots, tallies = _by_slot(work, closing)
            least = settings.minimum_reports
            parts["alarm"]["slots"] = slot_alarm(closing, tallies, slots.names, least)
    body = _body(work, documents, closing, parts, ())
    return Conclusion(body, closing.reports, following, slots=maps)


def round_of(number: int, levels: Sequence[MechanismDocument], counts: IntArray) -> Round:
    """A round from its documents and its counts, whose slots are added up."""
    by_level = counts.reshape(len(levels), -1, levels[0].law.centres.size).sum(axis=1)
    tallies = (Tally(level.mechanism, of) for level, of in zip(levels, by_level, strict=True))
    return Round(number, tuple(tallies))


def _remember(rounds: Iterable[Round], number: int, body: bytes) -> None:
    """Give a round what its own estimate said: shares, fakes, which rounds agreed, what choices meant."""
    estimate = read_body(body)
    fakes = estimate.get("alarm", {}).get("fakes", {}).get("found", ())
    for round_ in rounds:
        if round_.number == number:
            round_.distribution = np.array(estimate["distribution"])
            round_.fakes = tuple(map(read_fakes, fakes))
            round_.dependent = bool(estimate.get("choices", {}).get("dependent"))
            if "drift" in estimate:
                round_.standing = Standing.from_dict(estimate["drift"])


# --- The body of an estimate


def _body(
    work: Work,
    documents: Mapping[int, Documents],
    closing: Closing,
    parts: Mapping[str, Any],
    unfinished: tuple[str, ...],
) -> bytes:
    """The estimate of a closed round with the parts there are, and the names of those there are not."""
    estimate = closing.estimate
    return canonical_bytes(
        {
            **about(work, documents, {round_.number: round_.total for round_ in closing.rounds}),
            "space": _space(documents[work.round][0]),
            "reports": closing.reports,
            "distribution": estimate.distribution.tolist(),
            "certificate_nats_per_report": float(estimate.certificate),
            "steps": estimate.steps,
            "stopped": estimate.stopped,
            "unfinished": list(unfinished),
            "drift": {
                **closing.standing.to_dict(),
                "summary": closing.standing.summary(take_over=not work.settings.trusted_seed),
            },
            **_choices(closing),
            **parts,
        }
    )


def about(
    work: Work, documents: Mapping[int, Documents], totals: Mapping[int, int]
) -> dict[str, Any]:
    """What every estimate says of its campaign, and of the rounds it is made from, with their reports."""
    promises = [document.epsilon_per_km for document in documents[work.round]]
    return {
        "geoveil": VERSION,
        "kind": "estimate",
        "campaign": work.campaign,
        "round": work.round,
        "closed_at": work.closed_at_s,
        "epsilon_per_km": promises[-1],
        **({"promises_per_km": promises} if len(promises) > 1 else {}),
        "slack_nats": max(level.promise.slack for number in totals for level in documents[number]),
        "rounds": [
            {"round": number, "mechanism": tag_of(documents[number]), "reports": total}
            for number, total in totals.items()
        ],
        **({"rounds_left_out": work.left_out} if work.left_out else {}),
    }


def _space(document: MechanismDocument) -> dict[str, Any]:
    """The cells of a map as files and pages read them: places in degrees."""
    return document.area.space(document.step).to_dict()


def _choices(closing: Closing) -> dict[str, Any]:
    """What each promise contributed, where the minimum of reports chose it, and what the choice means."""
    choices = closing.choices
    if choices is None:
        return {}
    public = {level.promise_per_km: level for level in choices.released}
    levels = [
        {
            "epsilon_per_km": promise,
            "reports": public[promise].reports if promise in public else None,
            "bits_per_report": public[promise].bits_per_report if promise in public else None,
        }
        for promise, *_ in choices.levels
    ]
    described = {
        "levels": levels,
        "dependent": choices.dependent,
        "p_value": None if choices.compared is None else choices.compared.p_value,
        "summary": choices.summary(),
    }
    return {"choices": described}


def _error_bars(closing: Closing) -> dict[str, Any]:
    """Standard errors (null where the data say nothing) and intervals."""
    bars, rounds = closing.error_bars()
    low, high = bars.interval(LEVEL)
    errors = [float(error) if np.isfinite(error) else None for error in bars.standard_error()]
    space = closing.estimate.space  # a list of places has no rows and columns, and no blocks
    blocks = [block_bars(bars, space, side) for side in BLOCKS if isinstance(space, AnyGrid)]
    interval = {"level": LEVEL, "low": low.tolist(), "high": high.tolist(), "method": bars.method}
    return {
        "standard_error": errors,
        "interval": {**interval, "rounds": [round_.number for round_ in rounds]},
        "blocks": blocks,
    }


def block_bars(bars: ErrorBars, space: AnyGrid, side: int) -> dict[str, Any]:
    """Standard errors and intervals of blocks of side × side cells, from the south-west, row by row.

    A crowd is known far better than each of its cells; intervals of cells do not add up. A block without
    a cell that exists has nobody.
    """
    grid, _ = grid_beneath(space)
    across = -(-grid.columns // side)
    number = across * -(-grid.rows // side)
    there, block = np.unique(blocks(space, side), return_inverse=True)
    together = bars.of_groups(block)
    low, high, errors = np.zeros(number), np.zeros(number), np.zeros(number)
    low[there], high[there] = together.interval(LEVEL)
    errors[there] = together.standard_error()
    return {
        "side": side,
        "columns": across,
        "standard_error": short(errors, DIGITS),
        "low": short(low, DIGITS),
        "high": short(high, DIGITS),
    }


def _alarm(closing: Closing) -> dict[str, Any]:
    """Whether the map's newest rounds look like honest people; how many fakes, and what was left out."""
    alarm, inspected = closing.alarm, closing.inspected
    fewest, most = inspected.fake_range
    described = {
        **alarm.to_dict(),
        "fakes": {
            "least": fewest,
            "most": most,
            "left_out": int(inspected.fakes.sum()),
            "named": list(inspected.named),
            "found": list(map(list, closing.fakes)),
            "possible": list(map(list, closing.possible_fakes)),
        },
        "still_raised": inspected.alarms[-1].raised,
        "rounds": [round_.number for round_ in closing.alarm_rounds],
        "summary": (closing.guard or alarm).summary(),
    }
    return {"alarm": described}


def _slots(
    work: Work, documents: Mapping[int, Documents], closing: Closing
) -> tuple[dict[str, Any], bytes]:
    """What is said about the slots, and one map for each that has the minimum of reports."""
    slots, tallies = _by_slot(work, closing)
    maps = fitted_slots(closing, tallies, work.settings.minimum_reports)
    summary = slots_summary(slots, maps, work.settings.minimum_reports, closing)
    about = {
        "campaign": work.campaign,
        "round": work.round,
        "space": _space(documents[work.round][0]),
    }
    return summary, packed_maps(about, summary, maps, LEVEL)


def _by_slot(work: Work, closing: Closing) -> tuple[Slots, Sequence[OfSlot]]:
    slots = work.settings.time_slots
    assert slots is not None
    return slots, by_slot(closing, work.counts, len(slots.names))


def _gain(closing: Closing) -> dict[str, Any]:
    """How far fake reports under the newest mechanisms would move this estimate."""
    gain, rounds = closing.manipulation_gain()
    described = {
        **{name: getattr(gain, name) for name in ("gain", "median", "target", "fake", "share")},
        "fakes_tried": gain.tried.size,
        "fakes_possible": gain.gains.size,
        "rounds": [round_.number for round_ in rounds],
        "summary": gain.summary(),
    }
    return {"manipulation_gain": described}


PARTS: Mapping[str, Callable[[Closing], dict[str, Any]] | None] = {
    "error_bars": _error_bars,
    "alarm": _alarm,
    "slots": None,
    "manipulation_gain": _gain,
    "slot_alarm": None,
}
"""What is said about a map, the most important first; each part can be left out. Slots, where there are
any, have maps and an alarm of their own, which need the counts."""


def read_body(body: bytes) -> dict[str, Any]:
    """The body as plain values."""
    values: dict[str, Any] = msgspec.json.decode(body)
    return values


# --- A campaign as everybody may know it


class LatestParts(msgspec.Struct):
    """What the state of a campaign says of its latest estimate; the maps in its body are passed over."""

    alarm: Any = None
    drift: Any = None
    choices: Any = None
    manipulation_gain: Any = None


def described(
    record: CampaignRecord,
    settings: CampaignSettings,
    progress: Progress,
    latest: EstimateRecord | None,
    concluded: int,
    given_up: int,
    now_s: int,
    preparation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A campaign as plain JSON values: where it stands, what was counted, the latest estimate.

    One whose mechanism is being made is ``preparing``; before its first round ``round`` is 0, there is no
    ``mechanism``, and it does not expire.

    ``estimate`` is {"round", "reports", "made_at"} of the latest, beside its ``alarm`` and its
    ``manipulation_gain``; all null before the first. ``concluded`` is how many rounds have closed with
    enough reports, ``given_up`` the newest whose estimate was given up (0: none), null among the entries
    where a later one has its estimate. A campaign is ``finished`` when its last round closes, though its
    estimate is still to come, or when the document of that round expires: no report drawn from then on
    would enter a map.
    """
    current = progress.last
    state = "preparing"
    if current is not None and preparation is None:
        last = settings.ends_with(concluded + (current.closed_at_s is None))
        closed = current.closed_at_s is not None
        state = "estimating" if closed else "open"
        if last and (closed or now_s >= current.expires_at_s):
            state = "finished"
    if record.state != "running":
        state = record.state
    parts = LatestParts() if latest is None else msgspec.json.decode(latest.body, type=LatestParts)
    return {
        "id": record.id,
        "name": record.name,
        "state": state,
        "published": record.published_at_s is not None,
        "settings": msgspec.to_builtins(msgspec.structs.replace(settings, name=record.name)),
        "preparation": preparation,
        "round": 0 if current is None else current.number,
        "mechanism": None if current is None else current.mechanism,
        "around": current is not None and bool(current.around),
        "expires": None if current is None else current.expires_at_s,
        "reports_counted": {
            "round": 0 if current is None else current.total,
            "all": progress.reports,
        },
        "rounds_closed": progress.closed,
        "estimate": latest
        and {"round": latest.round, "reports": latest.reports, "made_at": latest.made_at_s},
        "given_up": given_up if given_up > (0 if latest is None else latest.round) else None,
        **msgspec.structs.asdict(parts),
    }
