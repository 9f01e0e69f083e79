"""What machines ask: health, readiness, metrics, and the description of the interface."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from geoveil.server.metrics import MEDIA_TYPE
from geoveil.server.negotiation import tagged
from geoveil.server.openapi import document_bytes
from geoveil.server.operation import JSON, Answer, Audience, Operation
from geoveil.server.problem import Problem
from geoveil.server.routes.campaigns import answer
from geoveil.server.service import Service
from geoveil.server.shapes import Health

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


OPERATIONS = (
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
