"""The service as its routes see it: one object that holds what they share."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool

from geoveil.server.campaigns import Campaigns
from geoveil.server.limits import Limits
from geoveil.server.logs import Log, Metrics, Trace
from geoveil.server.problem import Problem
from geoveil.server.settings import Settings, Tokens
from geoveil.server.settings_of_campaign import ID_PATTERN
from geoveil.server.worker import Worker
from geoveil.store.contract import Store
from geoveil.store.group_writer import GroupWriter

P = ParamSpec("P")
T = TypeVar("T")
_SUMMARY_S = 60.0
_ID = re.compile(ID_PATTERN.replace("$", r"\Z"))


class Service:
    """Store, writer, campaigns, worker and limits of one server process."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        base_url: str = "",
        log: Log | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.settings = settings
        self.base_url = (settings.base_url or base_url).rstrip("/")
        self.log = log or Log(settings.log_level)
        self.clock = clock
        self.campaigns = Campaigns(store, clock=clock)
        self.writer = GroupWriter(store, most_waiting=settings.queue_limit)
        self.worker = Worker(self.campaigns, event=self._estimated, fault=self._not_estimated)
        self.tokens = Tokens(store, clock=clock)
        self.metrics = Metrics()
        self.limits = Limits(
            requests_per_minute=settings.requests_per_minute,
            reports_per_minute=settings.reports_per_minute,
            loopback=settings.limit_loopback,
            trusted_proxy=settings.trusted_proxy,
        )
        self.listening = 0
        self.closing = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._add_gauges()

    def _add_gauges(self) -> None:
        self.metrics.gauge(
            "geoveil_queue_reports", "Reports that wait for a commit.", lambda: self.writer.waiting
        )
        self.metrics.gauge("geoveil_listeners", "Open streams of events.", lambda: self.listening)

    def link(self, campaign: str) -> str:
        """The link that participants open."""
        return f"{self.base_url}/c/{campaign}"

    def campaign_id(self, given: str) -> str:
        """The id where it can be one; what cannot never reaches the store."""
        if not _ID.match(given):
            raise Problem("unknown-campaign", "there is no campaign with this id")
        return given

    async def blocking(self, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Run something that waits for the store outside the event loop."""
        return await run_in_threadpool(call, *given, **named)

    async def start(self) -> None:
        """Begin to look after rounds."""
        self.worker.start()
        self._tasks = [
            asyncio.create_task(self._every(self.settings.tick_s, self._tick)),
            asyncio.create_task(self._every(_SUMMARY_S, self._summarise)),
        ]

    async def stop(self, timeout_s: float) -> None:
        """Drain the writer, stop the worker, close the store: nothing acknowledged is lost."""
        self.closing.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.blocking(self.writer.close)
        await self.blocking(self.worker.stop, timeout_s)
        self.log.summary()
        await self.blocking(self.store.close)

    async def _every(self, seconds: float, work: Callable[[], Any]) -> None:
        while not self.closing.is_set():
            try:
                await work()
            except Exception as error:
                self.log.fault("upkeep failed", error)
            await asyncio.sleep(seconds)

    async def _tick(self) -> None:
        await self.blocking(self._look)

    def _look(self) -> None:
        for work in self.campaigns.tick():
            self.worker.submit(work)

    def _estimated(self, name: str) -> None:
        self.metrics.estimates["made"] += 1
        self.log.event(name)

    def _not_estimated(self, name: str, trace: Trace) -> None:
        self.metrics.estimates["failed"] += 1
        self.log.fault(name, trace)

    async def _summarise(self) -> None:
        self.log.summary()
