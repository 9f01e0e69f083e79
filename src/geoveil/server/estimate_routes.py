"""Estimates and flows: the latest and every earlier one; of all reports or of a slot; and as files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from geoveil.document.slots import MOST_SLOTS
from geoveil.errors import MissingExtra
from geoveil.server import openapi as api
from geoveil.server.campaigns import LARGEST_ROUND
from geoveil.server.handlers import HELD, OPEN_TO_PAGES, Sharing, everybody
from geoveil.server.invitations import OPERATIONS
from geoveil.server.map_files import MadeOf, Slot, flow_file, head_of, rendered
from geoveil.server.openapi import Handler
from geoveil.server.problem import JSON, VIEWS, Problem, holds, holds_any, preferred, takes_gzip
from geoveil.store import EstimateRecord

if TYPE_CHECKING:
    from geoveil.server.app import Service

__all__ = ["OPERATIONS"]

_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_SLOT = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
ASKED_EACH_TIME = "public, no-cache"
"""A round's file too: another campaign may have its id. Districts are told in the order of a backdrop."""
_ROUND = {"type": "integer", "minimum": 1, "maximum": LARGEST_ROUND}
_WHICH = {"oneOf": [{"type": "integer", "minimum": 0, "maximum": MOST_SLOTS - 1}, {"const": "all"}]}
QUERY: dict[str, api.Parameter] = {"round": (_ROUND, "Number of a round.")}
_OF_SLOT: dict[str, api.Parameter] = {
    "slot": (_WHICH, "The map of one slot, or of all of them one by one.")
}


def _in_all_forms(
    path: str,
    meaning: str,
    schema: Mapping[str, Any],
    problems: tuple[str, ...],
    query: Mapping[str, api.Parameter],
) -> Callable[[Handler], Handler]:
    """Enter a handler twice: its form by what the client accepts, and by the ending of the address."""
    contents = {kind: schema if kind == JSON else {} for kind in VIEWS.values()}

    def enter(handler: Handler) -> Handler:
        line = (handler.__doc__ or "").removesuffix(".")
        common = (*problems, "not-acceptable", "malformed-body")
        for ending, how, more in (
            ("", ", by Accept", ()),
            (".{ending}", " as a file", ("not-found",)),
        ):
            everybody(
                f"GET /api/campaigns/{{campaign}}/{path}{ending}",
                {200: (meaning, contents), 304: HELD},
                summary=line + how,
                problems=common + more,
                query=query,
            )(handler)
        return handler

    return enter


def round_number(request: Request) -> int | None:
    """The round of ``?round=``; ``None`` for the latest."""
    number = request.query_params.get("round")
    if number is None:
        return None
    if not _NUMBER.fullmatch(number):
        raise Problem("malformed-body", "round must be a whole number from 1")
    return int(number)


def _asked_slot(request: Request) -> Slot:
    """The slot of ``?slot=``; ``None`` for the map of all reports."""
    slot = request.query_params.get("slot")
    if slot is None:
        return None
    if slot == "all":
        return "all"
    if not _SLOT.fullmatch(slot):
        raise Problem("malformed-body", "slot must be a whole number from 0, or all")
    return int(slot)


def asked_ending(request: Request) -> str:
    """The ending of the address, or what the client accepts."""
    ending: str | None = request.path_params.get("ending")
    if ending is None:
        offered = {kind: ending for ending, kind in VIEWS.items()}
        return offered[preferred(request.headers.get("accept", ""), list(offered))]
    if ending not in VIEWS:
        raise Problem("not-found", f"an estimate ends in .{', .'.join(VIEWS)}")
    return ending


@_in_all_forms(
    "estimate",
    "The estimate.",
    api.ESTIMATES_SCHEMA,
    ("unknown-round", "unknown-slot", "no-estimate-yet"),
    QUERY | _OF_SLOT,
)
async def latest(service: Service, request: Request) -> Response:
    """The latest estimate."""
    return await _estimate(service, request, round_number(request))


@_in_all_forms(
    "rounds/{number}/estimate",
    "The estimate.",
    api.ESTIMATES_SCHEMA,
    ("unknown-round", "unknown-slot", "no-estimate-yet"),
    _OF_SLOT,
)
async def of_round(service: Service, request: Request) -> Response:
    """The estimate of a round."""
    number = request.path_params["number"]
    if not _NUMBER.fullmatch(number):
        raise Problem("unknown-round", "rounds are numbered from 1")
    return await _estimate(service, request, int(number))


async def _estimate(service: Service, request: Request, number: int | None) -> Response:
    slot = _asked_slot(request)

    def made_of(record: EstimateRecord) -> tuple[Any, ...]:
        if slot is None:
            return record.body, b"", None
        return record.body, service.store.slot_maps(record.campaign, record.round), slot

    name = "round-{}" if slot is None else f"round-{{}}-slot-{slot}"
    return await _exported(service, request, number, rendered, name, made_of)


@_in_all_forms(
    "flows",
    "The flows of a campaign of trips.",
    api.FLOWS_SCHEMA,
    ("unknown-round", "no-estimate-yet", "not-offered"),
    QUERY,
)
async def flows(service: Service, request: Request) -> Response:
    """The flows between districts."""
    number = round_number(request)
    return await _exported(
        service, request, number, flow_file, "flows-round-{}", lambda record: (record.body,)
    )


async def _exported(
    service: Service,
    request: Request,
    number: int | None,
    render: Callable[..., bytes],
    called: str,
    made_of: Callable[[EstimateRecord], tuple[Any, ...]],
) -> Response:
    """A file of a campaign, not made again for who holds it; open to pages where published.

    ``called`` names it by its round.
    """
    campaign = service.campaign_id(request.path_params["campaign"])
    ending = asked_ending(request)

    def read(number: int | None) -> MadeOf:
        record = service.campaigns.estimate(campaign, number)
        name = f"{campaign}-{called.format(record.round)}.{ending}"
        return MadeOf(name, record.round, made_of(record))

    name, which, tag = await service.blocking(head_of, read, number)
    packed = takes_gzip(request)
    own = f"{tag}-gzip" if packed else tag
    sent = {
        "etag": f'"{own}"',
        "cache-control": ASKED_EACH_TIME,
        "vary": "Accept, Accept-Encoding",
        "content-disposition": f'inline; filename="{name}"',
    }
    if (await service.blocking(service.campaigns.state, campaign))["published"]:
        sent |= OPEN_TO_PAGES
    if holds(request, own):
        return Response(status_code=304, headers=sent)
    try:
        made_from = tag, render, read, which
        file = await service.files.file(service, request.scope, *made_from, text=ending == "json")
    except MissingExtra as error:
        raise Problem("not-acceptable", str(error)) from None
    if holds_any(request):
        return Response(status_code=304, headers=sent)
    sent["etag"] = f'"{file.tag}-gzip"' if packed else f'"{file.tag}"'
    sent["content-length"] = str(len(file.packed) if packed else file.size)
    if packed:
        sent["content-encoding"] = "gzip"
    if request.method == "HEAD":
        return Response(None, 200, sent, media_type=VIEWS[ending])
    loan = service.limits.networks.of(request.scope), file.tag, len(file.packed)
    if not service.files.lend(*loan):
        service.refused("large answers")
        raise Problem("overloaded", "too many files are read slowly; try again later")
    give_back = partial(service.files.give_back, *loan)
    return Sharing(give_back, file.pieces(packed=packed), 200, sent, media_type=VIEWS[ending])
