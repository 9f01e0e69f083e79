"""Estimates: the latest and every earlier one, as a file of any kind; of all reports or of a slot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from geoveil.document.slots import MOST_SLOTS
from geoveil.errors import MissingExtra
from geoveil.server import openapi as api
from geoveil.server.estimate_files import VIEWS, NoSuchMap, Slot, rendered
from geoveil.server.handlers import HELD, OPEN_TO_PAGES, operation
from geoveil.server.openapi import Audience
from geoveil.server.problem import Problem, preferred, tagged

if TYPE_CHECKING:
    from geoveil.server.app import Service

_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SLOT = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
LATEST_CACHE = "public, no-cache"
ROUND_CACHE = "public, max-age=31536000, immutable"
_ESTIMATES = {
    view.media_type: api.ESTIMATE_SCHEMA if ending == "json" else {}
    for ending, view in VIEWS.items()
}
_ROUND = {"type": "integer", "minimum": 1, "maximum": 999_999_999}
_WHICH = {"oneOf": [{"type": "integer", "minimum": 0, "maximum": MOST_SLOTS - 1}, {"const": "all"}]}
QUERY: dict[str, api.Parameter] = {"round": (_ROUND, "Number of a round.")}
_OF_SLOT: dict[str, api.Parameter] = {
    "slot": (_WHICH, "The map of one slot, or of all of them one by one.")
}


def asked_round(request: Request) -> int | None:
    """The round of ``?round=``; ``None`` for the latest."""
    asked = request.query_params.get("round")
    if asked is None:
        return None
    if not _NUMBER.fullmatch(asked):
        raise Problem("malformed-body", "round must be a whole number from 1")
    return int(asked)


def _asked_slot(request: Request) -> Slot:
    """The slot of ``?slot=``; ``None`` for the map of all reports."""
    asked = request.query_params.get("slot")
    if asked is None:
        return None
    if asked == "all":
        return "all"
    if not _SLOT.fullmatch(asked):
        raise Problem("malformed-body", "slot must be a whole number from 0, or all")
    return int(asked)


async def latest(service: Service, request: Request) -> Response:
    """The latest estimate, or the one of ``?round=``."""
    number = asked_round(request)
    cache = LATEST_CACHE if number is None else ROUND_CACHE
    return await _estimate(service, request, number, cache)


async def of_round(service: Service, request: Request) -> Response:
    """The estimate made at the close of a round; it never changes."""
    asked = request.path_params["number"]
    if not _NUMBER.fullmatch(asked):
        raise Problem("unknown-round", "rounds are numbered from 1")
    return await _estimate(service, request, int(asked), ROUND_CACHE)


async def _estimate(service: Service, request: Request, number: int | None, cache: str) -> Response:
    campaign, slot = service.campaign_id(request.path_params["campaign"]), _asked_slot(request)
    ending = asked_ending(request)
    record = await service.blocking(service.campaigns.estimate, campaign, number)
    slots = b""
    if slot is not None:
        slots = await service.blocking(service.store.slot_maps, campaign, record.round)
    try:
        content = await service.working(rendered, ending, record.body, slots, slot)
    except MissingExtra as error:
        raise Problem("not-acceptable", str(error)) from None
    except NoSuchMap as error:
        raise Problem("no-estimate-yet" if error.known else "unknown-slot", str(error)) from None
    part = "" if slot is None else f"-slot-{slot}"
    name = f"{campaign}-round-{record.round}{part}.{ending}"
    return await exported(service, request, content, name, cache)


def asked_ending(request: Request) -> str:
    """The ending of the address, or what the client accepts."""
    ending: str | None = request.path_params.get("ending")
    if ending is None:
        offered = {view.media_type: ending for ending, view in VIEWS.items()}
        return offered[preferred(request.headers.get("accept", ""), list(offered))]
    if ending not in VIEWS:
        raise Problem("not-found", f"an estimate ends in .{', .'.join(VIEWS)}")
    return ending


async def exported(
    service: Service, request: Request, content: bytes, name: str, cache: str
) -> Response:
    """A file of a campaign by its name; pages of other origins may read it where it is published."""
    headers = {"content-disposition": f'inline; filename="{name}"'}
    campaign = service.campaign_id(request.path_params["campaign"])
    if (await service.blocking(service.campaigns.state, campaign))["published"]:
        headers |= OPEN_TO_PAGES
    media_type = VIEWS[name.rpartition(".")[2]].media_type
    return tagged(request, content, media_type, cache=cache, headers=headers)


for _path, _summary, _handler in (
    ("/api/campaigns/{campaign}/estimate", "The latest estimate", latest),
    ("/api/campaigns/{campaign}/rounds/{number}/estimate", "The estimate of a round", of_round),
):
    for _ending, _how in (("", ", by Accept"), (".{ending}", " as a file")):
        operation(
            f"GET {_path}{_ending}",
            _summary + _how,
            Audience.PUBLIC,
            {200: ("The estimate.", _ESTIMATES), 304: HELD},
            problems=(
                "unknown-round", "unknown-slot", "no-estimate-yet", "not-acceptable", "malformed-body",
                *(["not-found"] if _ending else []),
            ),
            query={**(QUERY if _handler is latest else {}), **_OF_SLOT},
        )(_handler)  # fmt: skip
