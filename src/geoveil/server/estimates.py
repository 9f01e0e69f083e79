"""Estimates of the service, and the forms in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

import msgspec
import numpy as np

from geoveil.arrays import FloatArray, IntArray
from geoveil.channel.channel import Channel, Tally
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import MechanismDocument
from geoveil.estimate.bars import ErrorBars
from geoveil.estimate.estimate import Estimate
from geoveil.estimate.observations import Observations
from geoveil.estimate.uncertainty import FisherInformation
from geoveil.space.space import MATRIX_LIMIT
from geoveil.table.reader import Format
from geoveil.table.results import put_result, result_from_dict
from geoveil.verify.alarm import AlarmResult, PoisoningAlarm
from geoveil.verify.guard import Guarded, GuardedUpdate
from geoveil.verify.manipulation import Attack, ManipulationGain

VERSION = 1
LEVEL = 0.95
"""Of the intervals."""
FAKE_SHARE = 0.01
"""The share of fake reports that the manipulation gain is about."""

_BAR_PRODUCTS = MATRIX_LIMIT**3
"""Error bars take cells³ products a round: all rounds up to a thousand cells or so, then the largest."""
_ALARM_EFFORT, _GAIN_EFFORT = 80_000_000, 40_000_000
"""Cells × steps to refit, some two seconds and one; see ``_fits``."""
_SLOWER_FROM = 512
"""Cells from which a step takes longer for each, because its arrays leave the caches."""
_SETTING_UP = 5
"""A refit takes as long as so many steps before its first."""
_ALARM_ROUNDS = 4
_ALARM_REPLICATES = (49, 199)
_GUARD_PASSES = 3
_GAIN_ROUNDS = 2
_GAIN_CELLS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Used:
    """A round that an estimate is made from: its document, and its counts at the closing."""

    document: MechanismDocument
    counts: IntArray

    @property
    def tally(self) -> Tally:
        """The counts with the channel that made them."""
        return Tally(self.document.mechanism, self.counts)


Suspicion = tuple[int, int]
"""A round in which fakes were found, and the cell they name."""


class NewestRounds:
    """The alarm over as many of the newest rounds, against as many honest campaigns, as can be afforded."""

    def check(self, tallies: Iterable[Tally], estimate: Estimate) -> AlarmResult:
        """Whether the newest rounds look like honest people."""
        given = list(tallies)
        least, most = _ALARM_REPLICATES
        affordable = _fits(_ALARM_EFFORT, estimate)
        rounds = max(1, min(_ALARM_ROUNDS, len(given), affordable // least))
        replicates = max(least, min(most, affordable // rounds))
        return PoisoningAlarm(replicates=replicates).check(given[-rounds:], estimate)


def inspect(
    used: Sequence[Used], *, guarded: bool, suspects: Sequence[Suspicion] = (), least: int = 1
) -> Guarded:
    """The estimate from all rounds and the alarm; ``guarded`` leaves out what the alarm finds fake.

    ``suspects`` are where fakes were found before: the alarm looks at the newest rounds alone, and fakes
    of older ones must stay out. Every round keeps ``least`` reports, or all it has.
    """
    guard = GuardedUpdate(NewestRounds(), most=_GUARD_PASSES if guarded else 0, least=least)
    mechanisms = {known.document.round: known.document.mechanism for known in used}
    known = [(mechanisms[number], cell) for number, cell in suspects if number in mechanisms]
    return guard.inspect((each.tally for each in used), suspects=known if guarded else ())


def suspects_in(body: bytes) -> tuple[Suspicion, ...]:
    """Where an earlier estimate left reports out."""
    found = read_body(body)["alarm"].get("left_out", {}).get("found", ())
    return tuple((number, cell) for number, cell in found)


def estimate_body(
    campaign: str, number: int, closed_at_s: int, used: Sequence[Used], inspected: Guarded
) -> bytes:
    """The estimate of a closed round with error bars, certificate, alarm and manipulation gain."""
    newest, estimate = used[-1].document, inspected.estimate
    left = _left(used, inspected)
    return canonical_bytes(
        {
            "geoveil": VERSION,
            "kind": "estimate",
            "campaign": campaign,
            "round": number,
            "closed_at": closed_at_s,
            "epsilon_per_km": newest.epsilon_per_km,
            "space": newest.mechanism.space.to_dict(),
            "reports": reports_of(used),
            "rounds": [_described(known) for known in used],
            "distribution": estimate.distribution.tolist(),
            **_error_bars(left, estimate.distribution),
            "certificate_nats_per_report": float(estimate.certificate),
            "steps": estimate.steps,
            "stopped": estimate.stopped,
            "alarm": _alarm(used, inspected),
            "manipulation_gain": _gain(left, estimate),
        }
    )


def reports_of(used: Sequence[Used]) -> int:
    """How many reports were counted in these rounds, fakes among them."""
    return sum(int(known.counts.sum()) for known in used)


def _left(used: Sequence[Used], inspected: Guarded) -> list[Used]:
    """The rounds without what the guard took out."""
    waiting = {tally.channel: tally.counts for tally in inspected.left}
    left = []
    for known in used:
        channel = known.document.mechanism
        kept = np.minimum(known.counts, waiting[channel])
        waiting[channel] = waiting[channel] - kept
        left.append(replace(known, counts=kept))
    return left


def read_body(body: bytes) -> dict[str, Any]:
    """The body as plain values."""
    values: dict[str, Any] = msgspec.json.decode(body)
    return values


def _described(known: Used) -> dict[str, Any]:
    document = known.document
    return {"round": document.round, "mechanism": document.id, "reports": int(known.counts.sum())}


def _numbers(used: Sequence[Used]) -> list[int]:
    return [known.document.round for known in used]


# -- error bars ------------------------------------------------------------------------------------


def _error_bars(used: Sequence[Used], distribution: FloatArray) -> dict[str, Any]:
    """Standard errors (null where the data say nothing) and intervals.

    Bars from some of the rounds are wider than they could be, and hold what they claim.
    """
    most = max(1, _BAR_PRODUCTS // distribution.size**3)
    largest = sorted(used, key=lambda known: -int(known.counts.sum()))[:most]
    chosen = sorted(largest, key=lambda known: known.document.round)
    bars = _bars([known.tally for known in chosen], distribution)
    low, high = bars.interval(LEVEL)
    errors = [float(error) if np.isfinite(error) else None for error in bars.standard_error()]
    interval = {"level": LEVEL, "low": low.tolist(), "high": high.tolist()}
    return {
        "standard_error": errors,
        "interval": {**interval, "method": bars.method, "rounds": _numbers(chosen)},
    }


def _bars(tallies: list[Tally], distribution: FloatArray) -> ErrorBars:
    return FisherInformation().errors(
        Observations(tallies), distribution, lambda counts, _: counts, None
    )


# -- alarm and manipulation gain -------------------------------------------------------------------


def _fits(effort: int, estimate: Estimate) -> int:
    """How many sets of counts of one round can be refitted with an effort."""
    cells = estimate.space.size
    each = cells * (estimate.steps + _SETTING_UP) * max(1.0, cells / _SLOWER_FROM)
    return int(effort // each)


def _alarm(used: Sequence[Used], inspected: Guarded) -> dict[str, Any]:
    """Whether the newest rounds look like honest people, and what was left out where they do not."""
    found, left = inspected.alarms[0], inspected.left
    channels = {tally.channel for tally in left[-found.rounds :]}
    rounds: dict[Channel, int] = {known.document.mechanism: known.document.round for known in used}
    return {
        "raised": found.raised,
        "p_value": found.p_value,
        "statistic": found.statistic,
        "threshold": found.threshold,
        "false_alarm": found.false_alarm,
        "suspicious": found.suspicious.tolist(),
        "left_out": {
            "reports": int(inspected.fakes.sum()),
            "found": [[rounds[left[place].channel], cell] for place, cell in inspected.suspects],
        },
        "still_raised": inspected.alarms[-1].raised,
        "replicates": found.replicates,
        "rounds": _numbers([known for known in used if known.document.mechanism in channels]),
        "summary": inspected.summary(),
    }


def _gain(used: Sequence[Used], estimate: Estimate) -> dict[str, Any]:
    """How far fake reports under the newest mechanisms would move this estimate.

    The steps of the estimate are taken again with the expected counts of honest people and with fakes
    among them, one fake report at a time: of every cell, or of cells spread evenly over the grid.
    """
    attacked = _distinct(used, _GAIN_ROUNDS)
    steps, cells = max(1, estimate.steps), estimate.space.size
    affordable = _fits(_GAIN_EFFORT, estimate) // len(attacked)
    tried = np.unique(
        np.linspace(0, cells - 1, min(cells, max(_GAIN_CELLS, affordable))).round().astype(np.int64)
    )
    channels = [known.document.mechanism for known in attacked]
    attack = Attack(channels, estimate.distribution, FAKE_SHARE, 100_000, None)
    gains = attack.screened(tried, steps, lambda change: change)
    row, target = np.unravel_index(int(gains.argmax()), gains.shape)
    by_target = np.full(cells, np.nan)
    by_target[tried] = gains.max(axis=0)[tried]
    found = ManipulationGain(
        float(gains[row, target]), int(target), int(tried[row]), attack.share, attack.reports,
        by_target, tried,
    )  # fmt: skip
    return {
        "gain": found.gain,
        "median": found.median,
        "target": found.target,
        "fake": found.fake,
        "share": found.share,
        "fakes_tried": tried.size,
        "fakes_possible": cells,
        "rounds": _numbers(attacked),
        "summary": found.summary(),
    }


def _distinct(used: Sequence[Used], most: int) -> list[Used]:
    """The newest rounds with mechanisms of their own (a renewed one is the same), oldest first."""
    found: list[Used] = []
    for known in reversed(used):
        if all(known.document.mechanism != other.document.mechanism for other in found):
            found.insert(0, known)
        if len(found) == most:
            break
    return found


# --- An estimate as files: JSON as it is kept, GeoJSON and CSV and Parquet made from it


@dataclass(frozen=True, slots=True)
class View:
    """A form of an estimate: how it is asked for, what it is called, how it is made."""

    ending: str
    media_type: str
    render: Callable[[bytes], bytes]


def _as(kind: Format) -> Callable[[bytes], bytes]:
    """How the file of that format is made from a body."""

    def render(body: bytes) -> bytes:
        sink = BytesIO()
        put_result(sink, kind, result_from_dict(read_body(body)))
        return sink.getvalue()

    return render


VIEWS: Mapping[str, View] = {
    view.ending: view
    for view in (
        View("json", "application/json", bytes),
        View("geojson", "application/geo+json", _as(Format.GEOJSON)),
        View("csv", "text/csv", _as(Format.CSV)),
        View("parquet", "application/vnd.apache.parquet", _as(Format.PARQUET)),
    )
}
"""By their endings."""
