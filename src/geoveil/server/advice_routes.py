"""What operators ask before they make a campaign: what it will mean, and which cells city limits leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from geoveil.errors import InvalidInput
from geoveil.server.campaign_advice import Advice, AreaLeft, AreaQuestion, Question, advise
from geoveil.server.drawn_area import read_area, space_within
from geoveil.server.flow_handlers import OPERATIONS
from geoveil.server.handlers import answer, operation
from geoveil.server.openapi import JSON, Audience
from geoveil.server.problem import Problem, decode
from geoveil.server.settings_of_campaign import CampaignSettings, refused
from geoveil.server.shapes import BACKDROP_BYTES
from geoveil.space import MaskedGrid

if TYPE_CHECKING:
    from geoveil.server.app import Service

__all__ = ["OPERATIONS"]

ADVICE_S = 60.0
"""How long an operator waits at most, turns of others included."""
ADVICE_BYTES = 512 << 10
"""Longest question: 4,096 places have up to 200 kB."""
_QUESTION = msgspec.json.Decoder(Question)
_AREA = msgspec.json.Decoder(AreaQuestion)
_AROUND_BYTES = 1024
"""What an area question has beside its GeoJSON."""


@operation(
    "POST /api/advice",
    "What a campaign will mean, before it is made",
    Audience.OPERATOR,
    {200: ("In numbers, in words and on an example city.", {JSON: Advice})},
    problems=("invalid-campaign", "overloaded"),
    body=Question,
)
async def advice(service: Service, request: Request) -> Response:
    """The outlook of a campaign that does not exist yet; settings that cannot be are refused as there."""
    body = await service.body(request.scope, request.receive, limit_bytes=ADVICE_BYTES)
    asked = decode(_QUESTION, body)
    try:
        asked.problems()
        asked.space  # noqa: B018 — raises where the mask is none
    except InvalidInput as error:
        raise refused(error) from None
    found = await service.working(service.calculator.answer, ADVICE_S, advise, asked)
    if isinstance(found, str):
        raise Problem("invalid-campaign", found)
    return answer(found)


@operation(
    "POST /api/advice/area",
    "Which cells of a box city limits leave, or which places there are, before a campaign is made",
    Audience.OPERATOR,
    {200: ("How many, and which.", {JSON: AreaLeft})},
    problems=("invalid-geojson", "invalid-campaign", "overloaded"),
    body=AreaQuestion,
)
async def area(service: Service, request: Request) -> Response:
    """What ``PUT …/area`` would leave; up to 4 MiB of GeoJSON."""
    limit_bytes = BACKDROP_BYTES + _AROUND_BYTES
    body = await service.body(request.scope, request.receive, limit_bytes=limit_bytes)
    asked: AreaQuestion = decode(_AREA, body)
    settings = CampaignSettings(
        name="area", box=asked.box, cell_km=asked.cell_km, epsilon_per_km=1.0
    )
    try:
        settings.problems()
        drawn = await service.working(read_area, bytes(asked.area))
        left = await service.working(space_within, settings, drawn)
    except InvalidInput as error:
        raise refused(error) from None
    of, parts = (settings.grid.size, left.parts) if isinstance(left, MaskedGrid) else (left.size, 1)
    return answer(AreaLeft(left.size, of, parts, left.to_dict()))
