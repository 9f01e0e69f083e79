"""The routes: what the service answers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from geoveil.errors import InvalidInput, MissingExtra
from geoveil.server.conclusion import VIEWS, View, served
from geoveil.server.logs import MEDIA_TYPE
from geoveil.server.openapi import (
    CAMPAIGN,
    JSON,
    Answer,
    Audience,
    Operation,
    Parameter,
    document_bytes,
)
from geoveil.server.problem import Problem, check_media_type, decode, preferred, read_body, tagged
from geoveil.server.service import Service
from geoveil.server.settings_of_campaign import CampaignSettings
from geoveil.server.uploads import (
    Campaigns,
    Closed,
    Counted,
    Created,
    Health,
    Listed,
    Report,
    Reports,
    Results,
    State,
)
from geoveil.store.contract import StoreFailed

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


CAMPAIGN_OPERATIONS = (
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


# --- Estimates: the latest and every earlier one, as JSON, GeoJSON, CSV or Parquet


_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_LATEST_CACHE = "public, no-cache"
_ROUND_CACHE = "public, max-age=31536000, immutable"

ESTIMATE_SCHEMA = {
    "type": "object",
    "title": "Estimate",
    "description": "The distribution over cells brought back from the reports, as of the close of a round.",
    "required": ["geoveil", "kind", "campaign", "round", "space", "reports", "distribution", "interval"],
    "properties": {
        "kind": {"const": "estimate"},
        "campaign": {"type": "string"},
        "round": {"type": "integer", "minimum": 1},
        "reports": {"type": "integer", "minimum": 1},
        "distribution": {"type": "array", "items": {"type": "number", "minimum": 0}},
    },
}  # fmt: skip


async def latest(service: Service, request: Request) -> Response:
    """The latest estimate, or the one of ``?round=``."""
    asked = request.query_params.get("round")
    if asked is None:
        return await _estimate(service, request, None, _LATEST_CACHE)
    if not _NUMBER.fullmatch(asked):
        raise Problem("malformed-body", "round must be a whole number from 1")
    return await _estimate(service, request, int(asked), _ROUND_CACHE)


async def of_round(service: Service, request: Request) -> Response:
    """The estimate made at the close of a round; it never changes."""
    asked = request.path_params["number"]
    if not _NUMBER.fullmatch(asked):
        raise Problem("unknown-round", "rounds are numbered from 1")
    return await _estimate(service, request, int(asked), _ROUND_CACHE)


async def _estimate(service: Service, request: Request, number: int | None, cache: str) -> Response:
    campaign = service.campaign_id(request.path_params["campaign"])
    view = _view(request)
    record = await service.blocking(service.campaigns.estimate, campaign, number)
    try:
        content = await service.blocking(view.render, record.body)
    except MissingExtra as error:
        raise Problem("not-acceptable", str(error)) from None
    name = f"{campaign}-round-{record.round}.{view.ending}"
    headers = {"content-disposition": f'inline; filename="{name}"'}
    return tagged(request, content, view.media_type, cache=cache, headers=headers)


def _view(request: Request) -> View:
    """By the ending of the address, or else by what the client accepts."""
    ending = request.path_params.get("ending")
    if ending is None:
        offered = {view.media_type: view for view in VIEWS.values()}
        return offered[preferred(request.headers.get("accept", ""), list(offered))]
    if ending not in VIEWS:
        raise Problem("not-found", f"an estimate ends in .{', .'.join(VIEWS)}")
    return VIEWS[ending]


_CONTENT = {
    view.media_type: ESTIMATE_SCHEMA if view.ending == "json" else {} for view in VIEWS.values()
}
_ROUND = Parameter("number", "path", {"type": "integer", "minimum": 1}, "Number of the round.")
_ENDING = Parameter("ending", "path", {"enum": list(VIEWS)}, "Format of the file.")
_QUERY = Parameter(
    "round",
    "query",
    {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    "Number of a round.",
)


def _operation(path: str, summary: str, *parameters: Parameter) -> Operation:
    by_number, by_ending = _ROUND in parameters, _ENDING in parameters
    problems = ["unknown-campaign", "unknown-round", "no-estimate-yet", "not-acceptable"]
    problems += ["not-found"] if by_ending else []
    problems += [] if by_number else ["malformed-body"]
    return Operation(
        "GET",
        path,
        summary,
        Audience.PUBLIC,
        {200: Answer("The estimate.", _CONTENT), 304: Answer("As you hold it.")},
        of_round if by_number else latest,
        problems=tuple(problems),
        parameters=(CAMPAIGN, *parameters),
    )


_LATEST_PATH = "/api/campaigns/{campaign}/estimate"
_ROUND_PATH = "/api/campaigns/{campaign}/rounds/{number}/estimate"
ESTIMATE_OPERATIONS = (
    _operation(_LATEST_PATH, "The latest estimate, by Accept", _QUERY),
    _operation(_LATEST_PATH + ".{ending}", "The latest estimate as a file", _ENDING, _QUERY),
    _operation(_ROUND_PATH, "The estimate of a round, by Accept", _ROUND),
    _operation(_ROUND_PATH + ".{ending}", "The estimate of a round as a file", _ROUND, _ENDING),
)


# --- Server-sent events: totals, rounds and alarms of a campaign as they change


EVENT_STREAM = "text/event-stream"
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
        return Response(None, 200, headers, media_type=EVENT_STREAM)
    return StreamingResponse(
        _stream(service, campaign, first), 200, headers, media_type=EVENT_STREAM
    )


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


EVENT_OPERATIONS = (
    Operation(
        "GET",
        "/api/campaigns/{campaign}/events",
        "Totals, rounds and alarms as they change",
        Audience.PUBLIC,
        {200: Answer("Server-sent events.", {EVENT_STREAM: {"type": "string"}})},
        events,
        problems=("unknown-campaign", "overloaded"),
        parameters=(CAMPAIGN,),
    ),
)


# --- What participants and their apps ask: the state, the mechanism, and the upload of reports


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


PARTICIPANT_OPERATIONS = (
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


# --- What machines ask: health, readiness, metrics, and the description of the interface


_TEXT = "text/plain"


async def health(service: Service, request: Request) -> Response:
    """The process answers."""
    return answer(Health("ok"))


async def readiness(service: Service, request: Request) -> Response:
    """The store can read and write, and the process is not about to stop."""
    if service.closing.is_set():
        raise Problem("overloaded", "the service is stopping")
    await service.blocking(service.store.check)
    return answer(Health("ready"))


async def metrics(service: Service, request: Request) -> Response:
    """Counters for Prometheus."""
    headers = {"cache-control": "no-store", "content-type": MEDIA_TYPE}
    return Response(service.metrics.text(), 200, headers)


async def openapi(service: Service, request: Request) -> Response:
    """This interface as an OpenAPI document."""
    return tagged(request, document_bytes(), JSON, cache="public, max-age=3600")


MONITORING_OPERATIONS = (
    Operation(
        "GET",
        "/healthz",
        "Whether the process answers",
        Audience.PUBLIC,
        {200: Answer("It does.", {JSON: Health})},
        health,
    ),
    Operation(
        "GET",
        "/readyz",
        "Whether reports can be stored now",
        Audience.PUBLIC,
        {200: Answer("They can.", {JSON: Health})},
        readiness,
        problems=("overloaded",),
    ),
    Operation(
        "GET",
        "/metrics",
        "Counters in the text format of Prometheus",
        Audience.PUBLIC,
        {200: Answer("Totals only.", {_TEXT: {"type": "string"}})},
        metrics,
    ),
    Operation(
        "GET",
        "/openapi.json",
        "This document",
        Audience.PUBLIC,
        {200: Answer("OpenAPI 3.1.", {JSON: {"type": "object"}}), 304: Answer("As you hold it.")},
        openapi,
    ),
)


OPERATIONS: tuple[Operation, ...] = (
    *CAMPAIGN_OPERATIONS,
    *PARTICIPANT_OPERATIONS,
    *ESTIMATE_OPERATIONS,
    *EVENT_OPERATIONS,
    *MONITORING_OPERATIONS,
)
"""One row for each method at each address, in the order of the OpenAPI document."""
