"""Every sentence about privacy, made in one place from a guarantee and the way people come into it.

A guarantee bounds the loss between the places that a channel tells apart. Between two people it depends
on how they came to these places: continuous noise starts where they stand; on a grid each of them is
taken to the centre of a cell, so that two people a step apart may be a whole diagonal apart; among
places of interest and on a line the promise is between the places themselves. Numbers that bound a
loss are rounded up, and those that bound how much two people have in common are rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING

import numpy as np

from geoveil.arrays import count, positive
from geoveil.space import AnyGrid, Points, Space

if TYPE_CHECKING:
    from geoveil.channel.channel import Channel
    from geoveil.channel.guarantee import Guarantee

NEARBY_KM = 0.2
"""How far apart the two people are whom a sentence speaks of where nobody asks for another distance."""

_NOTHING = "It promises nothing: a report may tell any two people apart."
_ROUNDING = Decimal("1e-12")  # what doubles are off by is no reason to round to the next digit
_ALIKE = math.log(10.0)
"""Up to this loss two people are said to be able to send the same report; the odds follow in any case."""
_MOST_IN_WORDS = 1e6
"""Larger factors are printed as powers of e, and smaller shares are not spoken of."""


def rounded_up(value: float, digits: int = 6) -> str:
    """A number that is not negative with so many digits, never below it.

    >>> rounded_up(1.4918, 3), rounded_up(2.0), rounded_up(0.1 + 0.2)
    ('1.5', '2', '0.3')
    """
    return _rounded(value, digits, ROUND_CEILING, 1 - _ROUNDING)


def rounded_down(value: float, digits: int = 6) -> str:
    """A number that is not negative with so many digits, never above it."""
    return _rounded(value, digits, ROUND_FLOOR, 1 + _ROUNDING)


def _rounded(value: float, digits: int, rounding: str, slack: Decimal) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    context = Context(prec=digits, rounding=rounding)
    return f"{float(context.create_decimal(Decimal(value) * slack)):.{digits}g}"


def promise_of_a_report(guarantee: Guarantee | None, unit: str | None = None) -> str:
    """What a mechanism promises for each report, short enough to stand beside a map.

    >>> from geoveil.channel.guarantee import GeoIndistinguishability, LocalDifferentialPrivacy
    >>> promise_of_a_report(GeoIndistinguishability(2.0))
    'ε = 2 per km between cells for each report'
    >>> promise_of_a_report(LocalDifferentialPrivacy(1.0))
    'ε = 1 whatever the distance for each report'
    """
    from geoveil.channel.guarantee import BetweenPositions, GeoIndistinguishability

    if guarantee is None:
        return "no promise"
    between = ""
    if isinstance(guarantee, BetweenPositions):
        between = ", between any two positions,"
    elif isinstance(guarantee, GeoIndistinguishability):
        between = " between cells"
    return f"{guarantee.amount(unit)}{between} for each report"


def spend_in_words(
    guarantee: Guarantee | None,
    reports_per_person: int | None = None,
    *,
    unit: str | None = None,
    chosen: bool = False,
    what: str = "report",
) -> str:
    """What a person has spent, where it is known how often anybody reports; else what a report costs.

    Where people have ``chosen`` among promises, the guarantee is the weakest of them. ``what`` it is the
    cost of may be a trip, of two reports.

    >>> from geoveil.channel.guarantee import GeoIndistinguishability
    >>> spend_in_words(GeoIndistinguishability(2.0))
    'Each report spends ε = 2 per km; the reports of one person add up.'
    >>> spend_in_words(GeoIndistinguishability(2.0), 3)
    'Every person has spent at most ε = 6 per km, in at most 3 reports.'
    """
    if guarantee is None:
        return _NOTHING
    if reports_per_person is None:
        most = "at most " if chosen else ""
        return (
            f"Each {what} spends {most}{guarantee.amount(unit)}; the {what}s of one person add up."
        )
    reports = count("reports_per_person", reports_per_person)
    often = f"one {what}" if reports == 1 else f"at most {reports:,} {what}s"
    return f"Every person has spent at most {(guarantee * reports).amount(unit)}, in {often}."


def explain(
    guarantee: Guarantee | None, space: Space | None, distance_km: float, *, who: str = ""
) -> str:
    """What a report tells about two people this far apart who come into ``space``, in plain words.

    Without a space they come in with their exact positions, as in continuous noise; ``who`` says which
    people these are, where the promise is not about everybody.
    """
    distance = positive("distance_km", distance_km)
    if guarantee is None:
        return _NOTHING
    level = loss_between(guarantee, space, _possible(space, distance))
    return _sentence(_two_people(space, distance, level, who), level)


def explain_with_cost(guarantee: Guarantee | None, space: Space | None, distance_km: float) -> str:
    """``explain``, and what a report costs where it starts from the position itself."""
    text = explain(guarantee, space, distance_km)
    return text if space is not None or guarantee is None else f"{text} {spend_in_words(guarantee)}"


def explain_together(channels: Sequence[Channel], distance_km: float) -> str:
    """What all reports of somebody who stayed in one place tell together, each through its channel.

    About people where all channels are over grids, or over one space; else only about places.
    """
    distance, reports = positive("distance_km", distance_km), len(channels)
    promises = [channel.guarantee for channel in channels if channel.guarantee is not None]
    if len(promises) < reports:
        return _NOTHING
    space = channels[0].told_apart
    alike = all(channel.told_apart == space for channel in channels)
    if not (alike or all(isinstance(channel.space, AnyGrid) for channel in channels)):
        total = math.fsum(float(promise.loss(distance)) for promise in promises)
        return _sentence(
            _two_places(distance, channels[0].space.unit, reports), total, reports=reports
        )
    possible = _possible(space, distance)
    total = math.fsum(
        loss_between(promise, channel.told_apart, possible)
        for promise, channel in zip(promises, channels, strict=True)
    )
    return _sentence(_who_stay(space, distance, total, reports), total, reports=reports)


def between_places(guarantee: Guarantee, distance_km: float, *, reports: int = 1) -> str:
    """What a report tells about two places that a channel tells apart: all that a bare promise knows.

    A promise between positions knows more: the places are where people stand.
    """
    distance = positive("distance_km", distance_km)
    level = float(guarantee.loss(distance))
    pair = _two_places(distance, guarantee.unit, reports)
    if guarantee.between_positions:
        pair = _two_people(None, distance, level)
        if reports > 1:
            pair = _who_stay(None, distance, level, reports)
    return _sentence(pair, level, reports=reports)


def explain_nearby(
    guarantee: Guarantee, distance_km: float, within_km: float, *, reports: int
) -> str:
    """What several reports tell about people who move a little, each around a place of their own.

    ``guarantee`` is that of all the reports together about one position. Where one person's positions all
    lie within r of a place and another's within r of a place d away, two of them are at most d + 2r apart
    at every report, so that the losses add up to that of all reports at d + 2r.

    >>> from geoveil.channel.guarantee import BetweenPositions
    >>> explain_nearby(BetweenPositions(3.0, 0.03), 0.2, 0.1, reports=3)[:97]
    'Two people who each stay within 100 m of a place, these places 200 m apart: any 3 reports togethe'
    """
    distance, within = positive("distance_km", distance_km), positive("within_km", within_km)
    pair = (
        f"Two people who each stay within {_length(within, 'km')} of a place, these places "
        f"{_length(distance, 'km')} apart"
    )
    level = float(guarantee.loss(distance + 2.0 * within))
    return _sentence(pair, level, reports=count("reports", reports))


def explain_trip(
    guarantee: Guarantee | None, space: Space | None, distance_km: float, *, who: str = ""
) -> str:
    """What the report of a trip tells about two people whose trips begin and end this far apart.

    ``guarantee`` is that of one end; both ends are drawn by themselves, so their losses add. ``who`` says
    which trips these are, where the promise is not about all.

    >>> from geoveil.channel.guarantee import GeoIndistinguishability
    >>> explain_trip(GeoIndistinguishability(1.0), None, 0.2)[:84]
    'Two people whose trips begin 200 m apart and end 200 m apart: any report is at most '
    """
    distance = positive("distance_km", distance_km)
    if guarantee is None:
        return _NOTHING
    possible = _possible(space, distance)
    far = f"{_length(possible, 'km' if space is None else space.unit)} apart"
    pair = f"Two people whose trips begin {far} and end {far}{who and f', {who}'}"
    if isinstance(space, AnyGrid):
        pair = f"{pair}, wherever in their cells"
    return _sentence(pair, 2 * loss_between(guarantee, space, possible))


def loss_between(guarantee: Guarantee, space: Space | None, distance_km: float) -> float:
    """The largest loss between two people this far apart, in nats: over all places they may be taken to."""
    apart = distance_km if space is None else space.apart_km(distance_km)
    return float(np.max(guarantee.loss(apart)))


def _possible(space: Space | None, distance: float) -> float:
    """The distance, or that of the closest two places where people are at places and none are so close."""
    if space is None or isinstance(space, AnyGrid) or space.size == 1:
        return distance
    return max(distance, space.least_distance_km)


def _two_people(
    space: Space | None, distance: float, level: float, who: str = "", same: str = "report"
) -> str:
    """How a sentence begins: who it is about, or the consequence where people report their positions."""
    if space is None and level <= _ALIKE:
        near = f"Whoever stands within {_length(distance, 'km')} of you"
        return f"{near}{who and f', {who},'} could have sent the same {same}"
    return f"{_two_apart(space, distance)}{who and f', {who}'}"


def _who_stay(space: Space | None, distance: float, level: float, reports: int) -> str:
    """How a sentence begins that is about people who do not move between their reports."""
    if space is None and level <= _ALIKE and reports > 1:
        same = f"{reports:,} reports, where neither of you moves"
        return _two_people(space, distance, level, same=same)
    return f"{_two_apart(space, distance)}, who do not move"


def _two_apart(space: Space | None, distance: float) -> str:
    if space is None:
        return f"Two people {_length(distance, 'km')} apart"
    possible = _possible(space, distance)
    far = f"{_length(possible, space.unit)} apart"
    if isinstance(space, AnyGrid):
        return f"Two people {far}, wherever they stand in their cells"
    if possible > distance:
        far = f"{far}, the closest there are"
    if isinstance(space, Points):
        return f"Two people at places {far} (whoever is elsewhere counts as at the nearest)"
    return f"Two cells {far}"


def _two_places(distance: float, unit: str, reports: int) -> str:
    teller = "mechanism tells" if reports == 1 else "mechanisms tell"
    return f"Two places {_length(distance, unit)} apart that the {teller} apart"


def _length(distance: float, unit: str) -> str:
    """A distance, rounded down: what holds for a longer one holds for it."""
    if unit != "km":
        several = "s" if unit == "unit" and distance != 1 else ""
        return f"{rounded_down(distance, 4)} {unit}{several}"
    if distance < 1:
        return f"{rounded_down(distance * 1000, 4)} m"
    return f"{rounded_down(distance, 4)} km"


def _sentence(pair: str, level: float, *, reports: int = 1) -> str:
    """The ratio in words, and as a frequency.

    A report y with C[x, y] ≤ e^ℓ·C[x′, y] comes from x′ at least 100·e^{−ℓ} times on average in as many
    draws as bring it 100 times from x: so N = ⌊100·e^{−ℓ}⌋ holds for whichever report was seen. The
    overlap of the two laws, Σ_y min(C[x, y], C[x′, y]) ≥ 2/(1 + e^ℓ) ≥ e^{−ℓ}, is larger, but holds
    for reports as they come and not for the telling ones among them.
    """
    several = reports > 1
    if math.isinf(level):
        what = f"{reports:,} reports together" if several else "a report"
        return f"{pair}: {what} may tell them apart with certainty."
    what = f"any {reports:,} reports together are" if several else "any report is"
    if level == 0:
        return f"{pair}: {what} exactly as likely from one as from the other."
    factor = f"e^{rounded_up(level, 3)}"
    if level < math.log(_MOST_IN_WORDS):
        factor = f"{float(rounded_up(math.exp(level), 3)):,g}"
    return (
        f"{pair}: {what} at most {factor} times as likely from one as from the other"
        f"{_frequency(level, 'sets of reports' if several else 'reports')}."
    )


def _frequency(level: float, what: str) -> str:
    of = 100
    while of * math.exp(-level) < 1 and of < _MOST_IN_WORDS:
        of *= 10
    least = math.floor(of * math.exp(-level) * (1 + 1e-12))
    if least == 0:
        return ""
    return f"; of {of:,} such {what} from one, at least {least} on average would also come from the other"
