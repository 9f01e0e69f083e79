"""A campaign small enough for tests: its documents, a collector in memory, and one behind real HTTP."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import geoveil as gv
from geoveil.client import Device, Ledger, Patience, Refused
from geoveil.client.network import Answer, Unreachable
from geoveil.document.wire import MechanismDocument, publish

LYON = gv.Grid.from_box(south=45.74, west=4.81, north=45.78, east=4.87, cell_km=0.5)
PLACE = {"lat": 45.76, "lng": 4.84}
NOW_S = 1_800_000_000
PROBLEM = "https://geoveil.org/problems/"


@cache
def mechanism(grid: gv.Grid, epsilon_per_km: float) -> gv.PositionalElastic:
    made = gv.elastic(grid, epsilon_per_km=epsilon_per_km, between="positions")
    assert isinstance(made, gv.PositionalElastic)
    return made


@cache
def document(
    number: int = 1,
    *,
    campaign: str = "lyon",
    epsilon_per_km: float = 2.0,
    grid: gv.Grid = LYON,
    not_before_s: int = NOW_S - 1000,
    expires_s: int = NOW_S + 1000,
    trips: bool = False,
) -> MechanismDocument:
    return publish(
        mechanism(grid, epsilon_per_km),
        campaign=campaign,
        round=number,
        not_before_s=not_before_s,
        expires_s=expires_s,
        trips=trips,
    )


def counted(report: dict[str, Any]) -> Answer:
    body = json.dumps({"id": report["id"], "status": "counted"}).encode()
    return Answer(200, "application/json", 0.0, body)


def problem(status: int, name: str, *, retry_after_s: float = 0.0) -> Answer:
    values = {"type": PROBLEM + name, "title": "…", "status": status, "detail": "…"}
    return Answer(status, "application/problem+json", retry_after_s, json.dumps(values).encode())


@dataclass
class Collector:
    """A collector in memory, which is also a transport; ``faults`` come before its own answers.

    A fault is an answer, or an exception; ``after`` ones happen when the report has been counted.
    """

    served: bytes = b""
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    tags: list[str | None] = field(default_factory=list)
    faults: list[Answer | Exception] = field(default_factory=list)
    after: list[Answer | Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.served = self.served or document().served()

    def get(self, path: str, *, tag: str | None, limit: int) -> Answer:
        self.tags.append(tag)
        if tag is not None and tag == json.loads(self.served).get("id"):
            return Answer(304, "application/json", 0.0, b"")
        return Answer(200, "application/json", 0.0, self.served)

    def post(self, path: str, body: bytes, *, limit: int, ticket: str = "") -> Answer:
        report = json.loads(body)
        self.attempts.append(report)
        _happens(self.faults)
        if self.faults:
            return self.faults.pop(0)  # type: ignore[return-value]
        self.reports[report["id"]] = report
        _happens(self.after)
        return self.after.pop(0) if self.after else counted(report)  # type: ignore[return-value]


def _happens(faults: list[Answer | Exception]) -> None:
    if faults and isinstance(faults[0], Exception):
        raise faults.pop(0)  # type: ignore[misc]


CUT = Unreachable("cut")
QUICK = Patience(attempts=3, sleep=lambda _: None)


def device(collector: Collector | str, ledger: str | Path | Ledger, **options: Any) -> Device:
    """A device of the campaign, with a clock that stands still and no pauses."""
    settings: dict[str, Any] = {
        "max_epsilon_per_km": 2.0,
        "budget_per_km": 10.0,
        "patience": QUICK,
        "clock": lambda: NOW_S,
    }
    if isinstance(collector, Collector):
        return Device(
            "https://collector.example/c/lyon",
            ledger=ledger,
            **{**settings, "transport": collector, **options},
        )
    return Device(collector, ledger=ledger, **{**settings, **options})


def refused(call: Any, *arguments: Any, **options: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        call(*arguments, **options)
    return caught.value


class Eye:
    """Reads a location, and knows whether anybody looked."""

    def __init__(self, lat: float = PLACE["lat"], lng: float = PLACE["lng"]) -> None:
        self.place = (lat, lng)
        self.looks = 0

    def __call__(self) -> tuple[float, float]:
        self.looks += 1
        return self.place


Respond = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Service:
    """What a real HTTP server saw, and how it answers."""

    url: str
    respond: Respond
    server: ThreadingHTTPServer
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)

    def wrap(self, context: ssl.SSLContext) -> None:
        """TLS from now on."""
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)


class Server(ThreadingHTTPServer):
    """Says nothing when a device hangs up."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def serving(respond: Respond) -> Iterator[Service]:
    """An HTTP server on this machine; ``respond`` writes every answer."""
    service: Service

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.body = self.rfile.read(length)
            seen = (self.command, self.path, dict(self.headers), self.body)
            service.requests.append(seen)
            service.respond(self)

        do_GET = do_POST = _handle

        def log_message(self, *_: object) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        service = Service(f"http://127.0.0.1:{server.server_port}/c/lyon", respond, server)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    sent = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    for name, value in {**sent, **{k.replace("_", "-"): v for k, v in headers.items()}}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def honest(served: bytes, counts: dict[str, int]) -> Respond:
    """The wire of the service: the document with its tag, and reports counted once."""

    def respond(handler: Any) -> None:
        tag = f'"{json.loads(served)["id"]}"'
        if handler.command == "GET" and handler.headers.get("If-None-Match") == tag:
            send(handler, 304, b"", ETag=tag)
        elif handler.command == "GET":
            send(handler, 200, served, ETag=tag)
        else:
            report = json.loads(handler.body)
            counts[report["id"]] = report["cell"]
            send(handler, 200, counted(report).body)

    return respond
