"""What operators do: make campaigns, list them, close rounds."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from geoveil.errors import InvalidInput
from geoveil.server.body import check_media_type, decode, read_body
from geoveil.server.operation import CAMPAIGN, JSON, Answer, Audience, Operation
from geoveil.server.problem import Problem
from geoveil.server.service import Service
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.server.shapes import Campaigns, Closed, Created, Listed

_SETTINGS = msgspec.json.Decoder(CampaignSettings)


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    """A value as JSON that nobody keeps."""
    sent = {"cache-control": "no-store", **headers}
    return Response(msgspec.json.encode(value), status, sent, media_type=JSON)


async def create(service: Service, request: Request) -> Response:
    """Make a campaign and its first mechanism."""
    check_media_type(request.headers.raw)
    limits = service.settings
    body = await read_body(
        request.scope,
        request.receive,
        limit_bytes=limits.body_limit_bytes,
        timeout_s=limits.body_timeout_s,
    )
    settings = decode(_SETTINGS, body)
    try:
        made = await service.blocking(service.campaigns.create, settings)
    except InvalidInput as error:
        raise Problem("invalid-campaign", str(error)) from None
    location = f"/api/campaigns/{made.id}"
    return answer(Created(made.id, service.link(made.id)), 201, location=location)


async def listing(service: Service, request: Request) -> Response:
    """All campaigns."""
    found = await service.blocking(service.store.campaigns)
    rows = [Listed(each.id, each.name, service.link(each.id), each.created_at_s) for each in found]
    return answer(Campaigns(rows))


async def close(service: Service, request: Request) -> Response:
    """Close the open round by hand; its estimate and the next mechanism follow."""
    campaign = service.campaign_id(request.path_params["campaign"])
    number = await service.blocking(service.campaigns.close, campaign)
    return answer(Closed(number, "closed"), 202)


OPERATIONS = (
    Operation(
        "POST",
        "/api/campaigns",
        "Make a campaign",
        Audience.OPERATOR,
        {201: Answer("The campaign is made and accepts reports.", {JSON: Created})},
        create,
        problems=("invalid-campaign", "campaign-exists"),
        body=CampaignSettings,
    ),
    Operation(
        "GET",
        "/api/campaigns",
        "List the campaigns",
        Audience.OPERATOR,
        {200: Answer("All campaigns, oldest first.", {JSON: Campaigns})},
        listing,
    ),
    Operation(
        "POST",
        "/api/campaigns/{campaign}/rounds",
        "Close the round now",
        Audience.OPERATOR,
        {202: Answer("The round is closed; its estimate follows.", {JSON: Closed})},
        close,
        problems=("unknown-campaign", "round-too-small"),
        parameters=(CAMPAIGN,),
    ),
)
