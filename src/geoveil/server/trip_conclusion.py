"""From the pairs of a closing to its flows, as they are kept; the law stays as it is.

A campaign of trips keeps one mechanism, so the trips of all its rounds are one tally.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from geoveil.arrays import one_blas_thread
from geoveil.document.canonical import canonical_bytes
from geoveil.document.wire import unpack_levels
from geoveil.server.conclusion import DIGITS, LEVEL, Conclusion, NothingToRelease, Work, about
from geoveil.server.maps_by_slot import short
from geoveil.server.round_documents import record_of, renewed_documents
from geoveil.space import Grid
from geoveil.trips.flows import DistrictFlows, Flows, blocks
from geoveil.trips.pairs import TripTally
from geoveil.trips.trips import Trips
from geoveil.verify.alarm import PoisoningAlarm

MOST_DISTRICTS = 64
"""Blocks of cells are as small as this allows, and no smaller than two by two."""
_REPLICATES = 20
_ALARM_REPLICATES = 102
"""As few as tell what is allowed: where cells are wide for their promise each of them takes long."""


@one_blas_thread()
def conclude_trips(work: Work, tell: Callable[[Conclusion], None]) -> Conclusion:
    """The flows of a closing, and the same mechanism for the next round.

    ``tell`` is told the flows before their intervals, and these before the alarm. Rounds below the minimum
    of trips are not used. Cost: one fit of flows, and as many again as there are replicates; the alarm.
    """
    settings = work.settings
    documents = {number: unpack_levels(text) for number, text in sorted(work.documents.items())}
    totals = {number: int(work.counts[number][:, 1].sum()) for number in documents}
    used = [number for number in documents if totals[number] >= settings.minimum_reports]
    if work.round not in used:
        raise NothingToRelease(work)
    newest = documents[work.round][0]
    rows = np.concatenate([work.counts[number] for number in used])  # which have one law
    begun, ended = np.divmod(rows[:, 0], newest.law.centres.size)
    tally = TripTally(newest.mechanism, begun, ended, rows[:, 1])
    following = None
    if not work.last:
        text, now_s = work.documents[work.round], work.closed_at_s
        next_documents = renewed_documents(text, settings, now_s, work.round + 1)
        following = record_of(next_documents, settings, now_s)
    flows = Trips(tally.channel).fit(tally, replicates=_REPLICATES)
    grid = flows.space
    assert isinstance(grid, Grid)
    side = side_of(grid)
    between = flows.between(blocks(grid, side))
    said = {
        **about(work, documents, {number: totals[number] for number in used}),
        "space": newest.area.to_dict(),
        "reports": tally.total,
        "distribution": ((flows.origins + flows.destinations) / 2).tolist(),
        "certificate_nats_per_report": float(flows.certificate),
        "steps": flows.steps,
        "stopped": flows.stopped,
    }
    values = {  # shares between districts, row by row, and of both ends by cell
        "side": side,
        "columns": -(-grid.columns // side),
        "share": short(between.matrix, DIGITS),
        "origins": short(flows.origins, DIGITS),
        "destinations": short(flows.destinations, DIGITS),
        "stay_share": flows.stay_share,
        "stay_in_district_share": between.stay_share,
    }

    def conclusion(*unfinished: str) -> Conclusion:
        body = canonical_bytes({**said, "unfinished": list(unfinished), "flows": values})
        return Conclusion(body, tally.total, following, unfinished)

    tell(conclusion("error_bars", "alarm"))
    values |= _bars(flows, between)
    tell(conclusion("alarm"))
    alarm = PoisoningAlarm(replicates=_ALARM_REPLICATES).check_trips(tally)
    said["alarm"] = {**alarm.to_dict(), "still_raised": alarm.raised, "rounds": used}
    return conclusion()


def side_of(grid: Grid) -> int:
    """Cells a side of a district: two, or as many more as leave few enough districts."""
    side = 2
    while -(-grid.rows // side) * -(-grid.columns // side) > MOST_DISTRICTS:
        side += 1
    return side


def _bars(flows: Flows, between: DistrictFlows) -> dict[str, Any]:
    low, high = between.interval(LEVEL)
    return {
        "standard_error": short(between.standard_error, DIGITS),
        "low": short(low, DIGITS),
        "high": short(high, DIGITS),
        "level": LEVEL,
        "method": between.errors.method,
        "stay_interval": list(flows.stay_interval(LEVEL)),
    }
