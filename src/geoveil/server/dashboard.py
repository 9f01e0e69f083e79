"""What the dashboard asks beside what everybody may: the rounds, noisy counts, regions, area, backdrop.

All of it is for operators, but for the backdrop, which every page may draw, and regions of a published map.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from geoveil.server import openapi as api
from geoveil.server.apart import CalculationFailed, EstimatorLost
from geoveil.server.campaign_advice import OPERATIONS
from geoveil.server.estimate_routes import ASKED_EACH_TIME, QUERY, round_number
from geoveil.server.handlers import HELD, answer, everybody, operators
from geoveil.server.pages import HTML, policy
from geoveil.server.problem import GEOJSON, Problem, tagged
from geoveil.server.region_shares import evidence_of, regions_of
from geoveil.server.settings_of_campaign import refusing
from geoveil.server.shapes import BACKDROP_BYTES, backdrop_of, districts_of, read_area, read_regions
from geoveil.server.worker import LARGE_LIMIT_S
from geoveil.space.outline import Outline
from geoveil.store import Overloaded, StoreFailed

if TYPE_CHECKING:
    from geoveil.server.app import Service

__all__ = ["OPERATIONS"]

DASHBOARD, PUBLIC_MAP, CERTIFICATE = "index.html", "m/index.html", "certificate/index.html"
REGIONS_S = 60.0
"""How long an operator waits at most, turns of others included."""
READER_S = 20.0
"""How long the reader of a published map does, turns included; one at a time, so that operators wait no
longer for them."""
_MOST_ANSWERS = 100
"""About districts of published maps, that are remembered."""
AGAIN_S = 300.0
"""After districts of a published map could not be worked out, before they are tried again."""


@operators(
    "GET /api/campaigns/{campaign}/rounds", {200: ("Oldest first, with their totals.", api.Rounds)}
)
async def rounds(service: Service, request: Request) -> Response:
    """All rounds of a campaign."""
    campaign = service.campaign_id(request.path_params["campaign"])
    settings = await service.blocking(service.campaigns.settings, campaign)
    every = await service.blocking(service.store.round_times, campaign)
    estimated = await service.blocking(service.store.estimated_rounds, campaign)
    failed = await service.blocking(service.store.given_up, campaign)
    rows = [
        api.RoundOf(
            round_.number,
            round_.mechanism,
            round_.opened_at_s,
            round_.closed_at_s,
            round_.total,
            round_.number in estimated,
            round_.number in failed,
        )
        for round_ in every
    ]
    return answer(api.Rounds(settings.minimum_reports, rows))


@operators(
    "GET /api/campaigns/{campaign}/counts",
    {200: ("By cell, as they were received.", api.NoisyCounts)},
    problems=("unknown-round", "no-estimate-yet", "not-offered", "malformed-body"),
    query=QUERY,
    job=True,
)
async def counts(service: Service, request: Request) -> Response:
    """The noisy counts that an estimate was made from."""
    campaign = service.campaign_id(request.path_params["campaign"])
    evidence = await service.blocking(
        evidence_of, service.campaigns, campaign, round_number(request)
    )
    return answer(await service.working(evidence.noisy_counts))  # reads the documents of all rounds


@operators(
    "POST /api/campaigns/{campaign}/estimate/regions",
    {200: ("In the order of the regions.", api.Regions)},
    problems=("unknown-round", "no-estimate-yet", "invalid-geojson", "not-offered"),
    query=QUERY,
    body=api.GEOJSON_SCHEMA,
    job=True,
)
async def regions(service: Service, request: Request) -> Response:
    """Share and interval of regions, given as GeoJSON."""
    campaign = service.campaign_id(request.path_params["campaign"])
    body = await service.body(request.scope, request.receive, limit_bytes=BACKDROP_BYTES)
    number = round_number(request)
    outlines = await service.working(read_regions, body)
    ask = partial(service.calculated, REGIONS_S)
    return answer(await _shares(service, campaign, number, outlines, ask))


@everybody(
    "POST /api/campaigns/{campaign}/map/region",
    {200: ("Of the latest estimate.", api.Regions)},
    problems=("no-estimate-yet", "invalid-geojson", "not-offered", "overloaded"),
    body=api.GEOJSON_SCHEMA,
)
async def region_of_map(service: Service, request: Request) -> Response:
    """Share and interval of a region of a published map, given as GeoJSON."""
    campaign, _ = await _published(service, request)
    body = await service.body(request.scope, request.receive)
    if service.reader_asks.locked():
        raise Problem(
            "overloaded", "somebody else's region is worked out now; try again in a moment"
        )
    async with service.reader_asks:
        outlines = await service.working(read_regions, body)  # which may take a second by itself
        if len(outlines) != 1:
            raise Problem("invalid-geojson", "it must be one region")
        ask = partial(service.calculated, READER_S)
        return answer(await _shares(service, campaign, None, outlines, ask))


@everybody(
    "GET /api/campaigns/{campaign}/map/districts",
    {200: ("Of the latest estimate, in the order of the backdrop.", api.Regions)},
    problems=("no-estimate-yet", "not-offered", "overloaded"),
)
async def districts_of_map(service: Service, request: Request) -> Response:
    """Share and interval of every district of a published map."""
    campaign, state = await _published(service, request)
    backdrop = await service.blocking(service.store.backdrop, campaign)
    estimate = tuple((state["estimate"] or {}).values())
    key = (campaign, estimate, await service.working(_hash, backdrop or b""))
    if key not in service.districts:
        if len(service.districts) >= _MOST_ANSWERS:
            under_way = {of: task for of, task in service.districts.items() if not task.done()}
            service.districts = under_way
        work = _districts(service, campaign, backdrop)
        service.districts[key] = task = asyncio.create_task(work)
        task.add_done_callback(partial(_forget_failure, service, key))
    task = service.districts[key]
    try:
        with nullcontext() if task.done() else service.waiting(request.scope):
            async with asyncio.timeout(READER_S):
                districts = await asyncio.shield(task)
    except TimeoutError:
        raise Overloaded("the districts are being worked out; try again later") from None
    if districts is None:
        raise Problem("not-offered", "the operator drew no districts")
    return answer(districts)


async def _districts(service: Service, campaign: str, backdrop: bytes | None) -> api.Regions | None:
    """What readers are told of districts: of one map after another, in as long as an estimate may take."""
    async with service.district_turns:
        areas = await service.working(districts_of, backdrop) if backdrop else []
        calculate = partial(service.district_calculator.answer, LARGE_LIMIT_S)
        ask = partial(service.working, calculate)
        return await _shares(service, campaign, None, areas, ask) if areas else None


def _forget_failure(service: Service, key: Any, task: asyncio.Task[Any]) -> None:
    """Try again later, or at once where only the store failed or the service was busy."""
    failure = None if task.cancelled() else task.exception()
    if isinstance(failure, EstimatorLost) and not service.closing.is_set():  # no reader is told why
        service.log.fault("regions-failed", failure)
    if failure is not None:
        busy = isinstance(failure, StoreFailed | Overloaded) and not isinstance(
            failure, EstimatorLost
        )
        later_s = 0.0 if busy else AGAIN_S
        task.get_loop().call_later(later_s, service.districts.pop, key, None)


async def _published(service: Service, request: Request) -> tuple[str, dict[str, Any]]:
    """The campaign in the address and its state, where everybody may see its map."""
    campaign = service.campaign_id(request.path_params["campaign"])
    state = await service.blocking(service.campaigns.state, campaign)
    if not state["published"]:
        raise Problem("not-offered", "the map of this campaign is not published")
    return campaign, state


async def _shares(
    service: Service,
    campaign: str,
    number: int | None,
    outlines: list[Outline],
    ask: Callable[..., Awaitable[api.Regions | Problem]],
) -> api.Regions:
    evidence = await service.blocking(evidence_of, service.campaigns, campaign, number)
    try:
        outcome = await ask(regions_of, evidence, outlines)
    except CalculationFailed as error:
        service.log.fault("regions-failed", error)
        raise Problem("not-offered", "the interval of a region could not be worked out") from None
    if isinstance(outcome, Problem):
        raise outcome
    return outcome


# --- The area: city limits, or places


@operators(
    "PUT /api/campaigns/{campaign}/area",
    {
        204: (
            "A mechanism for those cells or places is published, or is being made where they are many.",
            {},
        )
    },
    problems=("invalid-geojson", "invalid-campaign", "area-fixed", "campaign-ended"),
    body=api.AREA_SCHEMA,
    job=True,
)
async def put_area(service: Service, request: Request) -> Response:
    """City limits: the cells of the box outside of them do not exist. Or places in the place of cells."""
    campaign = await service.existing(request)
    body = await service.body(request.scope, request.receive, limit_bytes=BACKDROP_BYTES)
    area = await service.working(read_area, body)
    with refusing():
        await service.working(service.campaigns.draw, campaign, area)
    return Response(status_code=204, headers={"cache-control": "no-store"})


# --- The backdrop: streets and coast behind the cells


@operators(
    "PUT /api/campaigns/{campaign}/backdrop",
    {204: ("It is kept.", {})},
    problems=("invalid-geojson",),
    body=api.GEOJSON_SCHEMA,
    job=True,
)
async def put_backdrop(service: Service, request: Request) -> Response:
    """What the pages draw behind the cells."""
    campaign = await service.existing(request)
    body = await service.body(request.scope, request.receive, limit_bytes=BACKDROP_BYTES)
    return await _keep(service, campaign, await service.working(backdrop_of, body))


@operators("DELETE /api/campaigns/{campaign}/backdrop", {204: ("It is gone.", {})})
async def delete_backdrop(service: Service, request: Request) -> Response:
    """Draw nothing behind the cells any more."""
    return await _keep(service, await service.existing(request), None)


async def _keep(service: Service, campaign: str, backdrop: bytes | None) -> Response:
    if not await service.blocking(service.store.keep_backdrop, campaign, backdrop):
        raise Problem("unknown-campaign", "the campaign was deleted meanwhile")
    return Response(status_code=204, headers={"cache-control": "no-store"})


@everybody(
    "GET /api/campaigns/{campaign}/backdrop",
    {
        200: ("Lines and areas.", {GEOJSON: {"type": "object"}}),
        204: ("The operator gave none.", {}),
        304: HELD,
    },
)
async def backdrop(service: Service, request: Request) -> Response:
    """What is drawn behind the cells."""
    campaign = await service.existing(request)
    content = await service.blocking(service.store.backdrop, campaign)
    if content is None:
        return Response(status_code=204, headers={"cache-control": "no-store"})
    tag = await service.working(_hash, content)
    return tagged(request, content, GEOJSON, cache=ASKED_EACH_TIME, tag=tag)


def _hash(backdrop: bytes) -> str:
    """SHA-256 of a backdrop: a few milliseconds, in which others would wait."""
    return hashlib.sha256(backdrop).hexdigest()


# --- The pages: the dashboard, a published map, the certificate of a mechanism


_PAGE = {HTML: {"type": "string"}}


def _headers(service: Service, *, frames: str = "'none'") -> dict[str, str]:
    """The policy of a page with a map: pictures also from the tile server, where one was chosen."""
    tiles = urlsplit(service.settings.tile_url)
    images = f"'self' {tiles.scheme}://{tiles.netloc}" if tiles.netloc else "'self'"
    return {"content-security-policy": policy(frames=frames, images=images)}


async def _exists(service: Service, request: Request) -> str | None:
    """The id of the campaign in the address; ``None`` where there is none."""
    try:
        return await service.existing(request)
    except Problem as problem:
        if problem.name != "unknown-campaign":
            raise
        return None


@everybody(
    "GET /", {200: ("A page; it asks for the token.", _PAGE), 304: HELD}, problems=("not-found",)
)
async def dashboard(service: Service, request: Request) -> Response:
    """The dashboard of operators."""
    return service.pages.page(request, DASHBOARD, headers=_headers(service))


@everybody(
    "GET /m/{campaign}",
    {200: ("A page that any other may hold in a frame.", _PAGE), 304: HELD},
    problems=("not-found",),
)
async def public_map(service: Service, request: Request) -> Response:
    """A published map."""
    campaign = await _exists(service, request)
    shown = campaign and (await service.blocking(service.campaigns.state, campaign))["published"]
    if not shown:
        if not service.pages.suits(request, PUBLIC_MAP):
            raise Problem("not-found", "no map is published here")
        return service.pages.page(request, PUBLIC_MAP, status=404, headers=_headers(service))
    opened = {**_headers(service, frames="*"), "cross-origin-resource-policy": "cross-origin"}
    return service.pages.page(request, PUBLIC_MAP, headers=opened)


@everybody(
    "GET /certificate/{campaign}",
    {200: ("A page that recomputes it in the browser.", _PAGE), 304: HELD},
    problems=("not-found",),
)
async def certificate(service: Service, request: Request) -> Response:
    """The certificate of the current mechanism."""
    status = 200 if await _exists(service, request) else 404
    if status == 404 and not service.pages.suits(request, CERTIFICATE):
        raise Problem("unknown-campaign", "there is no campaign with this id")
    return service.pages.page(request, CERTIFICATE, status=status)


@everybody("GET /api/map", {200: ("The tile server, where there is one.", api.Ground)})
async def ground(service: Service, request: Request) -> Response:
    """What the maps of the pages are drawn on."""
    settings = service.settings
    return answer(api.Ground(settings.tile_url or None, settings.tile_attribution))
