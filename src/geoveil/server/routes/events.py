"""Server-sent events: totals, rounds and alarms of a campaign as they change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from geoveil.server.operation import CAMPAIGN, Answer, Audience, Operation
from geoveil.server.problem import Problem
from geoveil.server.service import Service
from geoveil.store.contract import StoreFailed

MEDIA_TYPE = "text/event-stream"
_LOOK_S = 1.0
_HEARTBEAT_S = 15.0
_EVENTS = {
    "round": ("round", "state", "mechanism", "rounds_closed", "estimate"),
    "counts": ("round", "reports_counted"),
    "alarm": ("alarm", "manipulation_gain"),
}
"""Event → the entries of the state it tells; totals, never counts of cells."""


async def events(service: Service, request: Request) -> Response:
    """A stream that first tells how things stand, then what changes, until the client leaves."""
    campaign = service.campaign_id(request.path_params["campaign"])
    first = await service.blocking(service.campaigns.state, campaign)
    if service.listening >= service.settings.listeners:
        raise Problem("overloaded", "too many listen to events; try again later")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if request.method == "HEAD":
        return Response(None, 200, headers, media_type=MEDIA_TYPE)
    return StreamingResponse(_stream(service, campaign, first), 200, headers, media_type=MEDIA_TYPE)


async def _stream(service: Service, campaign: str, state: dict[str, Any]) -> AsyncIterator[bytes]:
    service.listening += 1
    told: dict[str, bytes] = {}
    quiet_s = 0.0
    try:
        while True:
            news = _news(state, told)
            quiet_s = 0.0 if news else quiet_s + _LOOK_S
            if quiet_s >= _HEARTBEAT_S:
                news, quiet_s = b": still here\n\n", 0.0
            if news:
                yield news
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.closing.wait(), _LOOK_S)
            if service.closing.is_set():
                return
            state = await service.blocking(service.campaigns.state, campaign)
    except StoreFailed:
        return
    finally:
        service.listening -= 1


def _news(state: dict[str, Any], told: dict[str, bytes]) -> bytes:
    """The events whose entries changed since they were last told."""
    lines = []
    for name, entries in _EVENTS.items():
        data = msgspec.json.encode({entry: state[entry] for entry in entries})
        if told.get(name) != data:
            told[name] = data
            lines.append(b"event: %b\ndata: %b\n\n" % (name.encode(), data))
    return b"".join(lines)


OPERATIONS = (
    Operation(
        "GET",
        "/api/campaigns/{campaign}/events",
        "Totals, rounds and alarms as they change",
        Audience.PUBLIC,
        {200: Answer("Server-sent events.", {MEDIA_TYPE: {"type": "string"}})},
        events,
        problems=("unknown-campaign", "overloaded"),
        parameters=(CAMPAIGN,),
    ),
)
