"""The routes: what the service answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from geoveil.server import openapi as api
from geoveil.server.logs import MEDIA_TYPE
from geoveil.server.openapi import Audience, Content, Handler, Operation
from geoveil.server.pages import HTML, PARTICIPANT
from geoveil.server.problem import JSON, Problem, decode, tagged
from geoveil.server.round_documents import served
from geoveil.server.settings_of_campaign import CampaignSettings, refusing
from geoveil.server.uploads import Counted, Report, Reports, Results
from geoveil.store import Overloaded, StoreFailed

if TYPE_CHECKING:
    from geoveil.server.app import Service

OPERATIONS: list[Operation] = []
"""One row for each method at each address, in the order of the OpenAPI document."""
HELD: tuple[str, Content] = ("As you hold it.", {})
OPEN_TO_PAGES = {
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "date, etag, retry-after",
    "cross-origin-resource-policy": "cross-origin",
}
"""On answers that pages of other origins may read."""


def operation(
    audience: Audience,
    where: str,
    answers: Mapping[int, tuple[str, Any]],
    *,
    summary: str = "",
    **more: Any,
) -> Callable[[Handler], Handler]:
    """Enter a handler into :data:`OPERATIONS`; ``where`` is a method and an address.

    Its summary is the first line of its docstring unless given. An answer that is no mapping is JSON.
    """
    method, path = where.split()
    contents = {
        status: (meaning, content if isinstance(content, Mapping) else {JSON: content})
        for status, (meaning, content) in answers.items()
    }

    def enter(handler: Handler) -> Handler:
        line = summary or (handler.__doc__ or "").partition("\n")[0].removesuffix(".")
        OPERATIONS.append(Operation(method, path, line, audience, handler, contents, **more))
        return handler

    return enter


operators = partial(operation, Audience.OPERATOR)
participants = partial(operation, Audience.PARTICIPANT)
everybody = partial(operation, Audience.PUBLIC)


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    """A value as JSON that nobody keeps."""
    sent = {"cache-control": "no-store", **headers}
    return Response(msgspec.json.encode(value), status, sent, media_type=JSON)


# --- What operators ask: a campaign made, listed, its round closed


_SETTINGS = msgspec.json.Decoder(CampaignSettings)
_CHANGES = msgspec.json.Decoder(api.Changes)


@operators(
    "POST /api/campaigns",
    {
        201: (
            "The campaign is made, and accepts reports; one of many cells when it is prepared.",
            api.Created,
        )
    },
    problems=("invalid-campaign", "campaign-exists"),
    body=CampaignSettings,
    job=True,
)
async def create(service: Service, request: Request) -> Response:
    """Make a campaign."""
    settings = decode(_SETTINGS, await service.body(request.scope, request.receive))
    with refusing():
        record = await service.working(service.campaigns.create, settings)
    location = f"campaigns/{record.id}"  # relative: a proxy may have taken a prefix off
    return answer(api.Created(record.id, service.link(record.id)), 201, location=location)


@operators("GET /api/campaigns", {200: ("All campaigns, oldest first.", api.Campaigns)})
async def listing(service: Service, request: Request) -> Response:
    """List the campaigns."""
    records = await service.blocking(service.store.campaigns)
    finished = await service.blocking(service.campaigns.finished)
    rows = [
        api.Listed(
            record.id,
            record.name,
            service.link(record.id),
            record.created_at_s,
            "finished" if record.state == "running" and record.id in finished else record.state,
            record.published_at_s is not None,
        )
        for record in records
    ]
    return answer(api.Campaigns(rows))


@operators(
    "PATCH /api/campaigns/{campaign}",
    {200: ("The state of the campaign.", api.State)},
    problems=("invalid-campaign", "campaign-preparing", "campaign-ended", "campaign-finished"),
    body=api.Changes,
)
async def change(service: Service, request: Request) -> Response:
    """Rename, pause, resume, end or publish a campaign, or open its next round now."""
    campaign = service.campaign_id(request.path_params["campaign"])
    changes = decode(_CHANGES, await service.body(request.scope, request.receive))
    with refusing():
        values = msgspec.structs.asdict(changes)
        await service.blocking(service.campaigns.change, campaign, **values)
    values = await service.blocking(service.campaigns.state, campaign)
    return answer({**values, "link": service.link(campaign)})


@operators(
    "DELETE /api/campaigns/{campaign}",
    {204: ("Counts, ids, estimates and mechanisms are gone.", {})},
    job=True,
)
async def delete(service: Service, request: Request) -> Response:
    """Delete a campaign and all it holds."""
    campaign = service.campaign_id(request.path_params["campaign"])
    await service.working(service.campaigns.delete, campaign)
    return Response(status_code=204, headers={"cache-control": "no-store"})


@operators(
    "POST /api/campaigns/{campaign}/rounds",
    {202: ("The round is closed; its estimate follows.", api.Closed)},
    problems=("round-too-small", "campaign-preparing", "campaign-ended"),
    job=True,
)
async def close(service: Service, request: Request) -> Response:
    """Close the round now."""
    campaign = service.campaign_id(request.path_params["campaign"])
    number = await service.blocking(service.campaigns.close, campaign)
    return answer(api.Closed(number, "closed"), 202)


# --- What participants and their apps ask: the state, the mechanism, and the upload of reports


_STATE_S = 1
_MECHANISM_S = 20
_ASSETS: Content = {
    kind: {"type": "string"} for kind in ("text/javascript", "text/css", "image/svg+xml")
}


@participants(
    "GET /api/campaigns/{campaign}", {200: ("State, totals and alarms.", api.State), 304: HELD}
)
async def state(service: Service, request: Request) -> Response:
    """The state of a campaign."""
    campaign = service.campaign_id(request.path_params["campaign"])
    values = await service.blocking(service.campaigns.state, campaign)
    content = msgspec.json.encode({**values, "link": service.link(campaign)})
    return tagged(request, content, JSON, cache=f"public, max-age={_STATE_S}")


@participants(
    "GET /api/campaigns/{campaign}/mechanism",
    {200: ("The same bytes for everybody.", {JSON: api.OFFERED_SCHEMA}), 304: HELD},
    problems=("campaign-paused", "campaign-preparing", "campaign-ended", "campaign-finished"),
)
async def mechanism(service: Service, request: Request) -> Response:
    """The current mechanism document, or all of them where people choose."""
    campaign = service.campaign_id(request.path_params["campaign"])
    current = await service.blocking(service.campaigns.mechanism, campaign)
    content = await service.working(served, current.mechanism, current.document)
    cache = f"public, max-age={_MECHANISM_S}"
    dated = {"date": formatdate(service.clock(), usegmt=True)}  # for devices that name a slot
    return tagged(request, content, JSON, cache=cache, tag=current.mechanism, headers=dated)


OPERATIONS.append(
    Operation(
        "POST",
        "/api/campaigns/{campaign}/reports",
        "Send one report, or several",
        Audience.PARTICIPANT,
        None,
        {200: ("Stored: the answer comes after the commit.", {JSON: Counted | Results})},
        ("unknown-mechanism", "mechanism-expired", "cell-out-of-range",
         "slot-out-of-range", "not-offered", "ticket-needed", "campaign-paused", "campaign-ended",
         "overloaded"),
        body=Report | Reports,
    )
)  # fmt: skip


@participants(
    "GET /c/{campaign}",
    {
        200: ("The participant page, for browsers.", {HTML: {"type": "string"}}),
        304: HELD,
        307: ("Where the campaign is.", {}),
    },
)
async def link(service: Service, request: Request) -> Response:
    """The link that participants share."""
    page = service.pages.suits(request, PARTICIPANT)
    try:
        campaign = await service.existing(request)
    except Problem as problem:
        if page and problem.name == "unknown-campaign":  # the page says so, in the reader's words
            return service.pages.page(request, PARTICIPANT, status=404)
        raise
    if page:
        return service.pages.page(request, PARTICIPANT)
    return RedirectResponse(f"../api/campaigns/{campaign}", 307, {"vary": "Accept"})


@everybody(
    "GET /assets/{file}",
    {200: ("It never changes: its name says what it holds.", _ASSETS), 304: HELD},
    problems=("not-found",),
)
async def asset(service: Service, request: Request) -> Response:
    """A file of the pages."""
    return service.pages.asset(request, request.path_params["file"])


# --- Server-sent events: totals, rounds and alarms of a campaign as they change


EVENT_STREAM = "text/event-stream"
_LOOK_S = 1.0
_HEARTBEAT_S = 15.0
_EVENTS = {
    "round": (
        "round", "state", "preparation", "mechanism", "rounds_closed", "estimate", "given_up",
        "name", "published",
    ),
    "counts": ("round", "reports_counted"),
    "alarm": ("alarm", "manipulation_gain"),
}  # fmt: skip
"""Event → the entries of the state it tells; totals, never counts of cells."""


@everybody(
    "GET /api/campaigns/{campaign}/events",
    {200: ("Server-sent events.", {EVENT_STREAM: {"type": "string"}})},
    problems=("overloaded",),
)
async def events(service: Service, request: Request) -> Response:
    """Totals, rounds and alarms as they change."""
    campaign = service.campaign_id(request.path_params["campaign"])
    first = await service.blocking(service.campaigns.state, campaign)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if request.method == "HEAD":
        return Response(None, 200, headers, media_type=EVENT_STREAM)
    network = service.limits.networks.of(request.scope)
    if not service.listening.take(network):
        service.refused("listeners")
        raise Problem("overloaded", "too many listen to events; try again later")
    stream = _stream(service, campaign, first)
    give_back = partial(service.listening.give_back, network)
    return Sharing(give_back, stream, 200, headers, media_type=EVENT_STREAM)


class Sharing(StreamingResponse):
    """A stream that has a share of something, given back however it ends."""

    def __init__(self, give_back: Callable[[], None], *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._give_back = give_back

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._give_back()


async def _stream(service: Service, campaign: str, state: dict[str, Any]) -> AsyncIterator[bytes]:
    last_data: dict[str, bytes] = {}
    quiet_s = 0.0
    try:
        while True:
            news = _news(state, last_data)
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
    except (StoreFailed, Overloaded, Problem):  # gone for now, or the campaign for good
        return


def _news(state: dict[str, Any], last_data: dict[str, bytes]) -> bytes:
    """The events whose entries changed since they were last told."""
    lines = []
    for name, entries in _EVENTS.items():
        data = msgspec.json.encode({entry: state[entry] for entry in entries})
        if last_data.get(name) != data:
            last_data[name] = data
            lines.append(b"event: %b\ndata: %b\n\n" % (name.encode(), data))
    return b"".join(lines)


# --- What machines ask: health, readiness, metrics, and the description of the interface


@everybody("GET /healthz", {200: ("It does.", api.Health)})
async def health(service: Service, request: Request) -> Response:
    """Whether the process answers."""
    return answer(api.Health("ok"))


@everybody("GET /readyz", {200: ("They can.", api.Health)}, problems=("overloaded",))
async def readiness(service: Service, request: Request) -> Response:
    """Whether reports can be stored now."""
    if service.closing.is_set():
        raise Problem("overloaded", "the service is stopping")
    await service.ready()
    return answer(api.Health("ready"))


@everybody("GET /metrics", {200: ("Totals only.", {"text/plain": {"type": "string"}})})
async def metrics(service: Service, request: Request) -> Response:
    """Counters in the text format of Prometheus, of all server processes."""
    headers = {"cache-control": "no-store", "content-type": MEDIA_TYPE}
    shared = service.shared_metrics
    text = shared.text() if shared.alone else await asyncio.to_thread(shared.text)
    return Response(text, 200, headers)


@everybody("GET /openapi.json", {200: ("OpenAPI 3.1.", {JSON: {"type": "object"}}), 304: HELD})
async def openapi(service: Service, request: Request) -> Response:
    """This document."""
    return tagged(request, api.document_bytes(), JSON, cache="public, max-age=3600")
