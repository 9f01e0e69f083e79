"""The state of a campaign: what everybody may know about it while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from geoveil.server.estimates import read_body
from geoveil.server.rounds import is_last
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.store.contract import EstimateRecord, RoundRecord


def state_of(
    current: RoundRecord, settings: CampaignSettings, latest: EstimateRecord | None, now_s: int
) -> str:
    """Where a campaign stands: "open", "estimating" or "finished".

    The last round ends a campaign with its estimate, or without one when its document has expired.
    """
    last = is_last(settings, current.number)
    if current.closed_at_s is None:
        return "finished" if last and now_s >= current.expires_at_s else "open"
    done = latest is not None and latest.round >= current.number
    return "finished" if last and done else "estimating"


def described(
    settings: CampaignSettings,
    rounds: Sequence[RoundRecord],
    latest: EstimateRecord | None,
    now_s: int,
) -> dict[str, Any]:
    """A campaign as plain JSON values.

    ``id``, ``name``, ``state``, ``settings``, ``round``, ``mechanism``, ``expires``,
    ``reports_counted`` ({"round", "all"}), ``rounds_closed``, ``estimate`` ({"round", "reports",
    "made_at"} of the latest), its ``alarm`` and its ``manipulation_gain``; null before the first.
    """
    current = rounds[-1]
    body = {} if latest is None else read_body(latest.body)
    return {
        "id": current.campaign,
        "name": settings.name,
        "state": state_of(current, settings, latest, now_s),
        "settings": msgspec.to_builtins(settings),
        "round": current.number,
        "mechanism": current.mechanism,
        "expires": current.expires_at_s,
        "reports_counted": {
            "round": current.total,
            "all": sum(known.total for known in rounds),
        },
        "rounds_closed": sum(known.closed_at_s is not None for known in rounds),
        "estimate": _made(latest),
        "alarm": body.get("alarm"),
        "manipulation_gain": body.get("manipulation_gain"),
    }


def _made(latest: EstimateRecord | None) -> dict[str, int] | None:
    if latest is None:
        return None
    return {"round": latest.round, "reports": latest.reports, "made_at": latest.made_at_s}
