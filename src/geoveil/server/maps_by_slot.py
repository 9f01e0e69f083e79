"""One map for each slot of time at the close of a round, made from its own reports.

A slot has a map from the minimum of reports on, over all rounds that the map of all is made from.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

from geoveil.arrays import FloatArray, IntArray
from geoveil.campaign import Closing
from geoveil.campaign.rounds import SLOWER_FROM
from geoveil.channel.channel import Tally
from geoveil.document.canonical import canonical_bytes
from geoveil.document.slots import Slots
from geoveil.errors import number_of
from geoveil.estimate import Estimate, FisherInformation, IterativeBayesianUpdate
from geoveil.estimate.bars import ErrorBars
from geoveil.estimate.fitted import Observations
from geoveil.estimate.mixture import averaged
from geoveil.estimate.uneven import MAP_SHOWS
from geoveil.space.space import MATRIX_LIMIT
from geoveil.verify.alarm import PoisoningAlarm, steps_of_slot

VERSION = 1
_DIGITS = 4
KIND = "estimate-by-slot"
MOST_SEARCHED = 100_000
"""Cells × mechanisms × slots, some ten seconds, whose held-out reports choose for all slots."""
MOST_BARS = MATRIX_LIMIT**3
"""Slots × mechanisms × cells³, some thirty seconds; maps have error bars from the mechanisms that fit in."""

MOST_CHECKED = 600_000_000
"""Places × steps × replicates of all slots that the alarm looks at, some fifteen seconds."""
ALARM_REPLICATES = 99, 199
"""How many honest releases slots are compared with: as many as tell one in a hundred, or more."""

OfSlot = Sequence[Sequence[Tally]]
"""The tallies of one slot by level, each over all rounds."""


class SlotMap(NamedTuple):
    """The map of one slot."""

    number: int
    estimate: Estimate
    bars: ErrorBars | None
    """``None`` where there is no time for them."""


def by_slot(closing: Closing, counts: Mapping[int, IntArray], slots: int) -> Sequence[OfSlot]:
    """The reports of each slot by level, in the rounds that an estimate is made from."""
    levels = closing.rounds[0].tallies
    tallies: list[list[list[Tally]]] = [[[] for _ in levels] for _ in range(slots)]
    for round_ in closing.rounds:
        by_level = counts[round_.number].reshape(len(round_.mechanisms), slots, -1)
        for level, mechanism in enumerate(round_.mechanisms):
            for slot in range(slots):
                if by_level[level, slot].any():
                    tallies[slot][level].append(Tally(mechanism, by_level[level, slot]))
    return tallies


def fitted_slots(closing: Closing, slots: Sequence[OfSlot], minimum: int) -> list[SlotMap]:
    """A map for each slot with the minimum of reports.

    Where the choice of a promise depends on the place, each is the average of one map for each promise.
    """
    every = {number: list(chain(*levels)) for number, levels in enumerate(slots)}
    enough = {
        number: tallies
        for number, tallies in every.items()
        if sum(tally.total for tally in tallies) >= minimum
    }
    if not enough:
        return []
    cells = closing.estimate.space.size
    mechanisms = len({mechanism for round_ in closing.rounds for mechanism in round_.mechanisms})
    searched = max(1, MOST_SEARCHED // (cells * mechanisms))
    pooled = None if closing.depends else closing.estimate
    kinds: list[Mapping[int, Sequence[Tally]]] = [enough]
    if closing.depends:
        levels = range(len(slots[0]))
        kinds = [{number: slots[number][level] for number in enough} for level in levels]
    parts = [
        IterativeBayesianUpdate().fit_slots(kind, pooled=pooled, searched=searched)
        for kind in kinds
        if any(kind.values())
    ]
    affordable = MOST_BARS // (len(enough) * cells**3)
    maps = []
    for number, tallies in enough.items():
        of_slot = [part[number] for part in parts if number in part]
        one = of_slot[0] if len(of_slot) == 1 else averaged(of_slot, tallies)
        maps.append(SlotMap(number, one, _bars(one, tallies, affordable, len(of_slot) > 1)))
    return maps


def _bars(
    estimate: Estimate, tallies: Sequence[Tally], affordable: int, is_average: bool
) -> ErrorBars | None:
    """Error bars from so many mechanisms, those with most reports: from some of them they are wider."""
    if is_average:
        return estimate.errors if len(tallies) <= affordable else None
    chosen = sorted(tallies, key=lambda tally: -tally.total)[:affordable]
    if not chosen:
        return None
    return FisherInformation().errors(
        Observations(chosen), estimate.distribution, lambda counts, _: counts, None
    )


def slot_alarm(
    closing: Closing, slots: Sequence[OfSlot], names: Sequence[str], minimum: int
) -> dict[str, Any] | None:
    """Whether each slot that has a map looks like honest people of its own, in the rounds that the alarm of
    all looked at. Where not all can be looked at, those with most reports are."""
    mechanisms = {mechanism for round_ in closing.alarm_rounds for mechanism in round_.mechanisms}
    groups: dict[tuple[int, int], list[Tally]] = {}
    for number, levels in enumerate(slots):
        if sum(tally.total for tally in chain(*levels)) < minimum:
            continue
        newest = [[tally for tally in level if tally.channel in mechanisms] for level in levels]
        parts = newest if closing.depends else [list(chain(*newest))]
        groups |= {(number, level): part for level, part in enumerate(parts) if part}
    if not groups:
        return None
    several = {number for number, _ in groups}
    checked, replicates = _affordable(groups, closing.estimate)
    result = PoisoningAlarm(replicates=replicates).check_slots(checked, closing.estimate)
    odd = list(dict.fromkeys(number for number, _ in result.groups))
    looked = len({number for number, _ in checked})
    said = replace(result, groups=tuple(names[number] for number in odd)).summary()
    return {
        **result.to_dict(),
        "slots": odd,
        "checked": looked,
        "summary": f"{said} {looked} of {number_of(len(several), 'slot')} with a map looked at.",
    }


def _affordable(
    groups: Mapping[tuple[int, int], list[Tally]], pooled: Estimate
) -> tuple[dict[tuple[int, int], list[Tally]], int]:
    """The groups that can be looked at, the largest at least, and beside how many honest ones."""
    least, most = ALARM_REPLICATES
    checked: dict[tuple[int, int], list[Tally]] = {}
    effort = 0
    for key in sorted(groups, key=lambda key: -sum(tally.total for tally in groups[key])):
        one = sum(_places(tally) * steps_of_slot(groups[key], pooled) for tally in groups[key])
        if checked and (effort + one) * least > MOST_CHECKED:
            break
        checked[key], effort = groups[key], effort + one
    return dict(sorted(checked.items())), max(least, min(most, MOST_CHECKED // effort))


def _places(tally: Tally) -> int:
    """What a step works on: cells, or places in them where these are open."""
    channel = tally.channel
    cells = channel.space.size * (-(-channel.space.size // SLOWER_FROM))
    return cells * (2 * channel.positions_across**2 if channel.loss_across_cell > MAP_SHOWS else 1)


# --- As they are told and kept


def slots_summary(
    slots: Slots, maps: Sequence[SlotMap], minimum: int, closing: Closing
) -> dict[str, Any]:
    """What an estimate says about its slots: names and boundaries, and the reports of those with a map."""
    reports = {slot.number: slot.estimate.total for slot in maps}
    number, few = len(slots.names), len(slots.names) - len(maps)
    own = "has a map of its own" if len(maps) == 1 else "have a map of their own"
    words = f"{len(maps)} of {number_of(number, 'slot')} ({slots.zone}) {own}"
    if few:
        have = "has" if few == 1 else "have"
        words += f"; {few} {have} fewer than {number_of(minimum, 'report')} so far"
    if maps and any(round_.seed for round_ in closing.rounds):
        words += ". None of the maps is held to the trusted first round"
    if maps and closing.waiting:
        words += ". Newer rounds that disagree are in none of them, nor in their intervals"
    if maps and any(most.any() for most in closing.inspected.most):
        words += ". Reports that may be fakes are in them: they are left out of the map of all only"
    return {
        **slots.to_dict(),
        "minimum_reports": minimum,
        "reports": [reports.get(slot) for slot in range(number)],
        "summary": f"{words}.",
    }


def packed_maps(
    about: Mapping[str, Any], summary: Mapping[str, Any], maps: Sequence[SlotMap], level: float
) -> bytes:
    """All maps in one text, deflated: they are kept for every round. Nothing where there is none."""
    if not maps:
        return b""
    names = summary["names"]
    text = canonical_bytes(
        {
            "geoveil": VERSION,
            "kind": KIND,
            **about,
            "slots": summary,
            "interval_level": level,
            "maps": [_entry(slot, names[slot.number], level) for slot in maps],
        }
    )
    return zlib.compress(text, 9)


def read_maps(packed: bytes) -> bytes:
    """The text that :func:`packed_maps` packed; the first programs with slots stored it unpacked."""
    return packed if packed.startswith(b"{") else zlib.decompress(packed)


def _entry(slot: SlotMap, name: str, level: float) -> dict[str, Any]:
    number, estimate, bars = slot
    entry: dict[str, Any] = {
        "slot": number,
        "name": name,
        "reports": estimate.total,
        "steps": estimate.steps,
        "stopped": estimate.stopped,
        "distribution": short(estimate.distribution, _DIGITS),
    }
    if bars is not None:
        low, high = bars.interval(level)
        entry |= {
            "standard_error": short(bars.standard_error(), _DIGITS),
            "low": short(low, _DIGITS),
            "high": short(high, _DIGITS),
            "method": bars.method,
        }
    return entry


def short(values: FloatArray, digits: int) -> list[float | None]:
    """So many digits: what is kept for every round is kept short. Nothing where the data say nothing."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values.flat]
