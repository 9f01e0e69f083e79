"""One server process: what its routes share, and the application around them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from geoveil.document.wire import ID_PATTERN
from geoveil.server import problem as problems
from geoveil.server.apart import Calculator, in_turn
from geoveil.server.campaigns import Campaigns
from geoveil.server.connections import Places
from geoveil.server.dashboard import OPERATIONS
from geoveil.server.handlers import OPEN_TO_PAGES
from geoveil.server.limits import Limits, Shares
from geoveil.server.logs import Log, Metrics, SharedMetrics, Trace
from geoveil.server.map_files import Files
from geoveil.server.openapi import Audience, Operation, Regions
from geoveil.server.pages import Pages
from geoveil.server.settings import Settings, Tokens
from geoveil.server.trusted_clock import TrustedClock
from geoveil.server.upkeep import Upkeep
from geoveil.server.uploads import PREFIX, STORE_S, SUFFIX, Uploads, campaign_of_upload
from geoveil.server.worker import Worker
from geoveil.store import GroupWriter, Overloaded, Store, StoreFailed

P = ParamSpec("P")
T = TypeVar("T")
_SUMMARY_S = 60.0
_METRICS_S = 1.0
_READY_S = 1.0
_THREADS = 16
_MOST_WAITING = 256
_MOST_JOBS = 4
_SMALL_BYTES = 4096
"""So much of a body is taken whatever is on its way: reports are shorter, and connections are bounded."""
_OUTCOMES = {"estimate-unfinished": "unfinished", "estimate-given-up": "given up"}
"""Event of the worker → how the metrics count an attempt at an estimate; any other event: failed."""
_ID = re.compile(ID_PATTERN.replace("$", r"\Z"))
ELSEWHERE = "(elsewhere)"
"""Stands for addresses that do not exist, in metrics and logs."""
UPLOAD = PREFIX + "{campaign}" + SUFFIX
_SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_CLOSED = {"cross-origin-resource-policy": "same-origin"}
_PREFLIGHT_S = "86400"
_ADMITTED = "geoveil.admitted"
"""In the scope of a request that came with the token of an operator."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""No address has these; the router's patterns would let a newline at the end pass."""
_ENCODED = re.compile(rb"%(2f|5c)", re.IGNORECASE)
"""Slashes that are none to a proxy and would be some here: no address has these either."""


class Service:
    """Store, writer, campaigns, worker and limits of one server process."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        base_url: str = "",
        log: Log | None = None,
        clock: TrustedClock | None = None,
        place: Path | None = None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.base_url = (settings.base_url or base_url).rstrip("/")
        self.log = log or Log(settings.log_level)
        self.clock = clock or TrustedClock(tell=self.log.event)
        self.campaigns = Campaigns(store, clock=self.clock)
        self.upkeep = Upkeep(self.campaigns, fault=self.log.fault)
        self.writer = GroupWriter(store, most_waiting=settings.queue_limit)
        self.worker = Worker(self.campaigns, event=self._log_work, fault=self._log_fault)
        self.calculator = Calculator()
        self._questions = asyncio.Lock()
        self._jobs = Shares(_MOST_JOBS, _MOST_JOBS)
        self.files = Files()
        self.reader_asks = asyncio.Lock()
        self.district_calculator = Calculator(lasting=False)
        self.district_turns = asyncio.Lock()
        self.districts: dict[tuple[str, tuple[int, ...], str], asyncio.Task[Regions | None]] = {}
        """Campaign, estimate (of which round, from how many reports, when) and SHA-256 of the backdrop →
        what readers of its map are told of districts; nothing where there are none."""
        self.tokens = Tokens(store, clock=self.clock)
        self.pages = Pages()
        self.metrics = Metrics()
        self.limits = Limits(
            requests_per_minute=settings.requests_per_minute,
            reports_per_minute=settings.reports_per_minute,
            loopback=settings.limit_loopback,
            trusted_proxy=settings.trusted_proxy,
        )
        self.listening = Shares(settings.listeners, settings.listeners_per_network)
        self.bodies = Shares(settings.body_memory_bytes, settings.body_memory_bytes // 4)
        connections = settings.connections, settings.connections_per_network
        self.places = Places(*connections, self.limits.networks, self.refused)
        patient = max(1, settings.connections // 4)
        self._waiting_readers = Shares(patient, max(1, patient // 4))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="geoveil-store")
        self._waiting = 0
        self._ready: asyncio.Future[None] | None = None
        self._ready_since_s = 0.0
        self.closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics.gauges = {
            "geoveil_queue_reports": (
                "Reports that wait for a commit.",
                lambda: self.writer.waiting,
            ),
            "geoveil_connections": ("Open connections.", lambda: len(self.places)),
            "geoveil_listeners": ("Open streams of events.", lambda: self.listening.taken),
            "geoveil_clock_apart_seconds": (
                "Between the machine's clock and the database's, of all processes together.",
                lambda: abs(self.clock.apart_s),
            ),
        }
        self.shared_metrics = SharedMetrics(self.metrics, place)

    @property
    def calculators(self) -> tuple[Calculator, ...]:
        """The processes that requests wait for."""
        return self.calculator, self.district_calculator, self.files.apart

    def link(self, campaign: str) -> str:
        """The link that participants open."""
        return f"{self.base_url}/c/{campaign}"

    def campaign_id(self, name: str) -> str:
        """The id where it can be one; what cannot never reaches the store."""
        if not _ID.match(name):
            raise problems.Problem("unknown-campaign", "there is no campaign with this id")
        return name

    async def existing(self, request: Request) -> str:
        """The id of the campaign in the address; raises ``unknown-campaign``."""
        campaign = self.campaign_id(request.path_params["campaign"])
        await self.blocking(self.campaigns.settings, campaign)
        return campaign

    async def blocking(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Run something that waits for the store outside the event loop, and wait only so long."""
        try:
            async with asyncio.timeout(STORE_S):
                return await self.working(call, *arguments, **keywords)
        except TimeoutError:
            raise StoreFailed("the store must answer in time; try again later") from None

    async def working(self, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """The same for something that is computed, which may take longer."""
        if self._waiting >= _MOST_WAITING:
            raise Overloaded("too many requests wait for the store; try again later")
        work = partial(call, *arguments, **keywords)
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._waiting += 1
        future.add_done_callback(self._count_answer)
        return await asyncio.shield(future)

    async def calculated(
        self,
        limit_s: float,
        call: Callable[Concatenate[Callable[[Any], None], P], T],
        *arguments: P.args,
        **none: P.kwargs,
    ) -> T:
        """What ``call(send, *arguments)`` returns in a process apart; ``Overloaded`` where that takes longer,
        turns of others included."""
        until_s = time.monotonic() + limit_s
        async with in_turn(self._questions, limit_s):
            left_s = until_s - time.monotonic()
            ask = partial(self.calculator.answer, left_s, call, *arguments, **none)
            return await self.working(ask)

    def job(self) -> AbstractContextManager[None]:
        """The place of one of few jobs of operators, from its body on; ``Overloaded`` where there is none."""
        why_not = "operators have as much done as can be at a time; try again later"
        return self._jobs.held(None, why_not)

    def waiting(self, scope: Scope) -> AbstractContextManager[None]:
        """A place among readers who wait for what is made for others too; ``Overloaded`` where there is none.

        Who waits gives no connection up: they may not have them all.
        """
        why_not = "too many wait for what is being made; try again later"
        return self._waiting_readers.held(self.limits.networks.of(scope), why_not)

    def _count_answer(self, future: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # whoever asked may have gone

    async def ready(self) -> None:
        """Raise ``StoreFailed`` unless reports can be stored; looked at once a second, whoever asks."""
        now_s = time.monotonic()
        if self._ready is None or (self._ready.done() and now_s - self._ready_since_s >= _READY_S):
            self._ready_since_s = now_s
            self._ready = asyncio.ensure_future(self.blocking(self.store.check))
            self._ready.add_done_callback(lambda look: look.cancelled() or look.exception())
        await asyncio.shield(self._ready)

    def refused(self, what: str, why: str = "") -> None:
        """Count something that was refused, for the metrics and the log, which also says why."""
        self.metrics.refused[what] += 1
        self.log.refused[what, why] += 1

    async def body(
        self, scope: Scope, receive: Receive, *, limit_bytes: int | None = None
    ) -> bytes:
        """The body of a request, plain JSON as far as its headers say, limited in length and time.

        What has not arrived with its head is limited in memory too, with all others on their way, but for
        its beginning: whoever fills that memory keeps no report out.
        """
        problems.check_media_type(scope["headers"])
        limit_bytes = limit_bytes or self.settings.body_limit_bytes
        if problems.ARRIVED in scope:
            return await problems.read_body(receive, limit_bytes, lambda size: None)
        network, held_bytes = self.limits.networks.of(scope), 0
        free_bytes = _SMALL_BYTES

        def room(size: int) -> None:
            nonlocal held_bytes, free_bytes
            free_bytes, size = max(0, free_bytes - size), max(0, size - free_bytes)
            if not self.bodies.take(network, size):
                self.refused("bodies")
                detail = "too many bodies are on their way"
                raise problems.Problem("overloaded", detail, headers=problems.CLOSE)
            held_bytes += size

        try:
            async with asyncio.timeout(self.settings.body_timeout_s):
                return await problems.read_body(receive, limit_bytes, room)
        except TimeoutError:
            self.refused("slow bodies")
            detail = f"the body did not arrive within {self.settings.body_timeout_s:g} s"
            raise problems.Problem("malformed-body", detail, headers=problems.CLOSE) from None
        finally:
            self.bodies.give_back(network, held_bytes)

    async def start(self) -> None:
        """Begin to look after rounds."""
        self.worker.start()
        self._tasks = [
            asyncio.create_task(self._every(self.settings.tick_s, self._look)),
            asyncio.create_task(self._every(_SUMMARY_S, self.log.summary)),
            asyncio.create_task(self._every(_METRICS_S, self.shared_metrics.keep)),
        ]

    async def stop(self, timeout_s: float) -> None:
        """Drain the writer, stop the worker, close the store: nothing acknowledged is lost."""
        self.closing.set()
        tasks = [*self._tasks, *self.districts.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self.writer.close)
        await asyncio.to_thread(self.worker.stop, timeout_s)
        for apart in self.calculators:
            await asyncio.to_thread(apart.end)
        self.log.summary()
        self.shared_metrics.keep()
        await asyncio.to_thread(self.store.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _every(self, seconds: float, work: Callable[[], None]) -> None:
        failing = False
        while not self.closing.is_set():
            try:
                await asyncio.to_thread(work)
                if failing:
                    self.log.event("upkeep-goes-on")
                failing = False
            except Exception as error:
                if not failing:  # said once, not every second
                    self.log.fault("upkeep-failed", error)
                failing = True
            await asyncio.sleep(seconds)

    def _look(self) -> None:
        for closing in self.upkeep.tick():
            self.worker.submit(closing)
        for preparation in self.worker.jobs.preparations():
            self.worker.submit(preparation)

    def _log_work(self, name: str) -> None:
        if name == "estimate-made":
            self.metrics.estimates["made"] += 1
        self.log.event(name)

    def _log_fault(self, name: str, trace: Trace) -> None:
        if not name.startswith("preparation-"):
            self.metrics.estimates[_OUTCOMES.get(name, "failed")] += 1
        self.log.fault(name, trace)


# --- The application: uploads straight through, everything else by the router, one guard around each


class Application:
    """The service as an ASGI callable; made inside a running event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._uploads = Uploads(service)
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in OPERATIONS:
            by_path.setdefault(operation.path, {})[operation.method] = operation
        self._router = Router(
            [self._route(path, operations) for path, operations in by_path.items()],
            redirect_slashes=False,
        )

    def _route(self, path: str, operations: Mapping[str, Operation]) -> Route:
        """All the operations at one address; ``OPTIONS`` too where pages of other origins may call it."""
        shared = [
            method
            for method, operation in operations.items()
            if operation.audience is Audience.PARTICIPANT
        ]
        ticket = "authorization, " if path.endswith(SUFFIX) else ""
        preflight = {
            "access-control-allow-methods": ", ".join(shared),
            "access-control-allow-headers": f"{ticket}content-type",
            "access-control-max-age": _PREFLIGHT_S,
        }

        async def endpoint(request: Request) -> Response:
            began_s = time.perf_counter()
            operation = operations.get("GET" if request.method == "HEAD" else request.method)
            if operation is None:
                response = Response(status_code=204, headers=preflight)
            else:
                response = await self.respond(operation, request)
            seconds = time.perf_counter() - began_s
            audience = operation.audience if operation else Audience.PARTICIPANT
            self._finish(response, request.scope, path, audience, seconds)
            return response

        return Route(path, endpoint, methods=[*operations, *(["OPTIONS"] if shared else [])])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope["app"] = self
        try:
            if _CONTROL.search(scope["path"]) or _ENCODED.search(scope.get("raw_path") or b""):
                raise problems.Problem("not-found")
            campaign = campaign_of_upload(scope)
            if campaign is None:
                await self._router(scope, receive, send)
            else:
                await self._upload(campaign, scope, receive, send)
        except (HTTPException, problems.Problem) as error:
            response = problems.problem_of(error).response()
            self._finish(response, scope, ELSEWHERE, Audience.PUBLIC, 0.0)
            await response(scope, receive, send)
        except problems.ClientGone:
            return

    async def _upload(self, campaign: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers, content = await self._uploads.answer(campaign, scope, receive)
        except problems.ClientGone:
            return
        except Exception as error:
            response = self._problem(error)
            self._finish(response, scope, UPLOAD, Audience.PARTICIPANT, 0.0)
            await response(scope, receive, send)
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
                request.scope[_ADMITTED] = True
            if operation.handler is None:
                raise problems.Problem("not-found")
            with service.job() if operation.job else nullcontext():
                response = await operation.handler(service, request)
            service.places.check_room(request.scope, len(getattr(response, "body", b"")))
            return response
        except problems.ClientGone:
            raise
        except Exception as error:
            return self._problem(error)

    def _problem(self, error: Exception) -> Response:
        problem = problems.problem_of(error)
        if problem.name in ("too-many-requests", "overloaded", "storage-unavailable"):
            why = str(error) if isinstance(error, StoreFailed) else ""
            self.service.refused(problem.name, why)
        if problem.name == "internal":
            self.service.log.fault("internal-error", error)
        return problem.response()

    def _finish(
        self, response: Response, scope: Scope, route: str, audience: Audience, seconds: float
    ) -> None:
        """Security headers on the answer; the request counted or, where it is an operator's, logged.

        Where part of the body is still on its way, the service hangs up rather than take it for a request.
        """
        status = response.status_code
        origins = OPEN_TO_PAGES if audience is Audience.PARTICIPANT else _CLOSED
        for name, value in (_SECURITY | origins).items():
            response.headers.setdefault(name, value)
        if problems.ARRIVED not in scope:
            response.headers["connection"] = "close"
        self.service.metrics.requests[route, status] += 1
        if _ADMITTED in scope:
            self.service.log.request(route, status, seconds)
        else:
            self.service.log.count(route, status)
