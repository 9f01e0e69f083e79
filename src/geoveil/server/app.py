"""The application: uploads straight through, everything else by the router, one guard around each."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from geoveil.server.handlers import OPERATIONS
from geoveil.server.openapi import Audience, Operation
from geoveil.server.problem import ARRIVED, ClientGone, Problem, problem_of
from geoveil.server.service import Service
from geoveil.server.uploads import PREFIX, SUFFIX, Uploads, campaign_of_upload

ELSEWHERE = "(elsewhere)"
"""Stands for addresses that do not exist, in metrics and logs."""
UPLOAD = PREFIX + "{campaign}" + SUFFIX
_SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_OPEN = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}
_CLOSED = {"cross-origin-resource-policy": "same-origin"}
_PREFLIGHT_S = "86400"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""No address has these; the router's patterns would let a newline at the end pass."""


class Application:
    """The service as an ASGI callable; made inside a running event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._uploads = Uploads(service)
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in OPERATIONS:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        routes = [
            Route(path, _Endpoint(self, by_path[path]), methods=_methods(by_path[path]))
            for path in by_path
        ]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["app"] = self
        try:
            if _CONTROL.search(scope["path"]):
                raise Problem("not-found")
            campaign = campaign_of_upload(scope)
            if campaign is None:
                await self._router(scope, receive, send)
            else:
                await self._upload(campaign, scope, receive, send)
        except (HTTPException, Problem) as error:
            response = problem_of(error).response()
            self.finish(response, ELSEWHERE, Audience.PUBLIC, 0.0)
            await _send(response, scope, receive, send)

    async def _upload(self, campaign: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers, content = await self._uploads.answer(campaign, scope, receive)
        except ClientGone:
            return
        except Exception as error:
            response = self._problem(error).response()
            self.finish(response, UPLOAD, Audience.PARTICIPANT, 0.0)
            await _send(response, scope, receive, send)
            return
        self.service.metrics.requests[UPLOAD, 200] += 1
        self.service.log.count(UPLOAD, 200)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def respond(self, operation: Operation, request: Request) -> Response:
        """The answer of an operation behind its guards; never an exception but ``ClientGone``."""
        service = self.service
        try:
            service.limits.check_request(service.limits.client(request.scope))
            if operation.audience is Audience.OPERATOR:
                token = request.headers.get("authorization")
                await service.blocking(service.tokens.check, token)
            if operation.handler is None:
                raise Problem("not-found")
            return await operation.handler(service, request)
        except ClientGone:
            raise
        except Exception as error:
            return self._problem(error).response()

    def _problem(self, error: Exception) -> Problem:
        problem = problem_of(error)
        if problem.name == "internal":
            self.service.log.fault("internal error", error)
        return problem

    def finish(self, response: Response, route: str, audience: Audience, seconds: float) -> None:
        """Security headers on the answer; the request counted and, where it is an operator's, logged."""
        status = response.status_code
        origins = _OPEN if audience is Audience.PARTICIPANT else _CLOSED
        for name, value in (_SECURITY | origins).items():
            response.headers.setdefault(name, value)
        self.service.metrics.requests[route, status] += 1
        if audience is Audience.OPERATOR:
            self.service.log.request(route, status, seconds)
        else:
            self.service.log.count(route, status)


class _Endpoint:
    """All the operations at one address."""

    def __init__(self, application: Application, operations: Mapping[str, Operation]) -> None:
        self._application = application
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = time.perf_counter()
        operation = self._operations.get("GET" if scope["method"] == "HEAD" else scope["method"])
        try:
            if operation is None:
                operation = next(iter(self._operations.values()))
                response = _preflight(self._operations)
            else:
                response = await self._application.respond(operation, Request(scope, receive, send))
        except ClientGone:
            return
        seconds = time.perf_counter() - began_s
        self._application.finish(response, operation.path, operation.audience, seconds)
        await _send(response, scope, receive, send)


async def _send(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer; where part of the body is still on its way, hang up rather than take it for a request."""
    if ARRIVED not in scope:
        response.headers["connection"] = "close"
    await response(scope, receive, send)


def _methods(operations: Mapping[str, Operation]) -> list[str]:
    """The methods of an address; with ``OPTIONS`` where web pages of other origins may call it."""
    asked = any(each.audience is Audience.PARTICIPANT for each in operations.values())
    return [*operations, "OPTIONS"] if asked else [*operations]


def _preflight(operations: Mapping[str, Any]) -> Response:
    """What a browser asks before a page of another origin may send."""
    headers = {
        "access-control-allow-methods": ", ".join(operations),
        "access-control-allow-headers": "content-type",
        "access-control-max-age": _PREFLIGHT_S,
    }
    return Response(status_code=204, headers=headers)
