"""What participants and their apps ask: the state, the mechanism, and the upload of reports."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from geoveil.server.negotiation import tagged
from geoveil.server.operation import CAMPAIGN, JSON, Answer, Audience, Operation
from geoveil.server.rounds import served
from geoveil.server.service import Service
from geoveil.server.shapes import Counted, Report, Reports, Results, State

_STATE_S = 1
_MECHANISM_S = 60

MECHANISM_SCHEMA = {
    "type": "object",
    "title": "MechanismDocument",
    "description": "The mechanism of a round, the same for everybody; its id is the SHA-256 of the rest.",
    "required": [
        "geoveil", "kind", "id", "campaign", "round", "space", "epsilon_per_km", "beta_per_km",
        "weights", "kernel", "not_before", "expires",
    ],
    "properties": {
        "geoveil": {"const": 1},
        "kind": {"const": "mechanism"},
        "id": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "campaign": {"type": "string"},
        "round": {"type": "integer", "minimum": 1},
        "space": {"type": "object"},
        "epsilon_per_km": {"type": "number", "exclusiveMinimum": 0},
        "beta_per_km": {"type": "number", "exclusiveMinimum": 0},
        "weights": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "kernel": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "not_before": {"type": "integer"},
        "expires": {"type": "integer"},
    },
}  # fmt: skip


async def state(service: Service, request: Request) -> Response:
    """What everybody may know about a campaign."""
    campaign = service.campaign_id(request.path_params["campaign"])
    found = await service.blocking(service.campaigns.state, campaign)
    content = msgspec.json.encode({**found, "link": service.link(campaign)})
    return tagged(request, content, JSON, cache=f"public, max-age={_STATE_S}")


async def mechanism(service: Service, request: Request) -> Response:
    """The current mechanism document."""
    campaign = service.campaign_id(request.path_params["campaign"])
    current = await service.blocking(service.campaigns.mechanism, campaign)
    content = await service.blocking(served, current.mechanism, current.document)
    cache = f"public, max-age={_MECHANISM_S}"
    return tagged(request, content, JSON, cache=cache, tag=current.mechanism)


async def link(service: Service, request: Request) -> Response:
    """The link that people share."""
    campaign = service.campaign_id(request.path_params["campaign"])
    await service.blocking(service.campaigns.settings, campaign)
    return RedirectResponse(f"/api/campaigns/{campaign}", 307)


OPERATIONS = (
    Operation(
        "GET",
        "/api/campaigns/{campaign}",
        "The state of a campaign",
        Audience.PARTICIPANT,
        {200: Answer("State, totals and alarms.", {JSON: State}), 304: Answer("As you hold it.")},
        state,
        problems=("unknown-campaign",),
        parameters=(CAMPAIGN,),
    ),
    Operation(
        "GET",
        "/api/campaigns/{campaign}/mechanism",
        "The current mechanism document",
        Audience.PARTICIPANT,
        {
            200: Answer("The same bytes for everybody.", {JSON: MECHANISM_SCHEMA}),
            304: Answer("As you hold it."),
        },
        mechanism,
        problems=("unknown-campaign",),
        parameters=(CAMPAIGN,),
    ),
    Operation(
        "POST",
        "/api/campaigns/{campaign}/reports",
        "Send one report, or several",
        Audience.PARTICIPANT,
        {200: Answer("Stored: the answer comes after the commit.", {JSON: Counted | Results})},
        None,
        problems=(
            "unknown-campaign",
            "unknown-mechanism",
            "mechanism-expired",
            "mechanism-not-yet-valid",
            "cell-out-of-range",
            "overloaded",
        ),
        parameters=(CAMPAIGN,),
        body=Report | Reports,
    ),
    Operation(
        "GET",
        "/c/{campaign}",
        "The link that participants share",
        Audience.PARTICIPANT,
        {307: Answer("Where the campaign is.")},
        link,
        problems=("unknown-campaign",),
        parameters=(CAMPAIGN,),
    ),
)
