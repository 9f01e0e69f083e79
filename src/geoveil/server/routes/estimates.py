"""Estimates: the latest and every earlier one, as JSON, GeoJSON, CSV or Parquet."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from geoveil.errors import MissingExtra
from geoveil.server.negotiation import preferred, tagged
from geoveil.server.operation import CAMPAIGN, Answer, Audience, Operation, Parameter
from geoveil.server.problem import Problem
from geoveil.server.service import Service
from geoveil.server.views import VIEWS, View

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
OPERATIONS = (
    _operation(_LATEST_PATH, "The latest estimate, by Accept", _QUERY),
    _operation(_LATEST_PATH + ".{ending}", "The latest estimate as a file", _ENDING, _QUERY),
    _operation(_ROUND_PATH, "The estimate of a round, by Accept", _ROUND),
    _operation(_ROUND_PATH + ".{ending}", "The estimate of a round as a file", _ROUND, _ENDING),
)
