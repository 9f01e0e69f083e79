"""Flows of campaigns of trips: as JSON, GeoJSON lines, CSV or GeoParquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from geoveil.errors import MissingExtra
from geoveil.server.estimate_files import VIEWS
from geoveil.server.estimate_routes import (
    LATEST_CACHE,
    QUERY,
    ROUND_CACHE,
    asked_ending,
    asked_round,
    exported,
)
from geoveil.server.handlers import HELD, OPERATIONS, operation
from geoveil.server.openapi import Audience
from geoveil.server.problem import Problem
from geoveil.server.trip_conclusion import flow_file

if TYPE_CHECKING:
    from geoveil.server.app import Service

__all__ = ["OPERATIONS"]

_NUMBERS = {"type": "array", "items": {"type": "number", "minimum": 0}}
FLOWS_SCHEMA = {
    "type": "object",
    "title": "Flows",
    "description": "Shares of trips between districts, as of the close of a round. Districts are blocks "
    "of side × side cells, numbered by rows from the south-west; pairs follow each other by origin.",
    "required": ["geoveil", "kind", "campaign", "round", "space", "reports", "side", "share"],
    "properties": {
        "kind": {"const": "flows"},
        "campaign": {"type": "string"},
        "round": {"type": "integer", "minimum": 1},
        "reports": {"type": "integer", "minimum": 1},
        "side": {"type": "integer", "minimum": 2},
        "columns": {"type": "integer", "minimum": 1},
        **dict.fromkeys(
            ("share", "low", "high", "standard_error", "origins", "destinations"), _NUMBERS
        ),
        "stay_share": {"type": "number"},
        "stay_in_district_share": {"type": "number"},
        "stay_interval": _NUMBERS,
        "unfinished": {"type": "array", "items": {"const": "error_bars"}},
    },
}
_FLOWS = {
    view.media_type: FLOWS_SCHEMA if ending == "json" else {} for ending, view in VIEWS.items()
}


async def flows(service: Service, request: Request) -> Response:
    """The latest flows, or those of ``?round=``."""
    number, ending = asked_round(request), asked_ending(request)
    campaign = service.campaign_id(request.path_params["campaign"])
    record = await service.blocking(service.campaigns.estimate, campaign, number)
    try:
        content = await service.working(flow_file, ending, record.body)
    except MissingExtra as error:
        raise Problem("not-acceptable", str(error)) from None
    cache = LATEST_CACHE if number is None else ROUND_CACHE
    name = f"{campaign}-flows-round-{record.round}.{ending}"
    return await exported(service, request, content, name, cache)


for _ending, _how in (("", ", by Accept"), (".{ending}", " as a file")):
    operation(
        f"GET /api/campaigns/{{campaign}}/flows{_ending}",
        f"The flows between districts{_how}",
        Audience.PUBLIC,
        {200: ("The flows of a campaign of trips.", _FLOWS), 304: HELD},
        problems=(
            "unknown-round", "no-estimate-yet", "not-offered", "not-acceptable", "malformed-body",
            *(["not-found"] if _ending else []),
        ),
        query=QUERY,
    )(flows)  # fmt: skip
