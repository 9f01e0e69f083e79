"""Running a plan: many connections, a closed or an open loop, every answer accounted for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter

from geoveil.client.address import Address
from geoveil.client.refusal import Refused
from geoveil.load.connection import Connection, LoadFailed, post
from geoveil.load.fleet import Fleet
from geoveil.load.plan import Plan
from geoveil.load.result import LoadResult

_REFRESH_S = 1.0
_LAST_ANSWERS_S = 10.0
_PACE_S = 0.001


def run_load(
    url: str,
    plan: Plan,
    *,
    max_epsilon_per_km: float,
    anywhere: bool = False,
    progress: Callable[[LoadResult], None] | None = None,
) -> LoadResult:
    """Load the collector of a campaign and say what it answered.

    Refused for collectors that are not on this machine, unless ``anywhere``.
    """
    address = Address.of(url, insecure=anywhere)
    if not (anywhere or address.local):
        raise LoadFailed("load must stay on this machine; for another, say so with --anywhere")
    fleet = Fleet(address, max_epsilon_per_km=max_epsilon_per_km, seed=plan.seed)
    runner = _Runner(address, fleet, plan)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(runner.run(progress))
    return uvloop.run(runner.run(progress))


class _Runner:
    """One run: connections, the work still to be sent, and what was answered."""

    def __init__(self, address: Address, fleet: Fleet, plan: Plan) -> None:
        self._address = address
        self._fleet = fleet
        self._plan = plan
        self._bodies = self._requests()
        self._result = LoadResult()
        self._idle: deque[Connection] = deque()
        self._late: deque[float] = deque()
        self._begun = 0
        self._under_way = 0
        self._ends_at = 0.0

    async def run(self, progress: Callable[[LoadResult], None] | None) -> LoadResult:
        """All of the plan; the last answers are waited for, but not for ever."""
        for _ in range(self._plan.connections):
            self._idle.append(await self._connect())
        start = perf_counter()
        self._ends_at = start + self._plan.seconds
        refreshing = asyncio.create_task(self._keep_fresh(progress))
        try:
            await (self._closed_loop() if self._plan.rate_per_s is None else self._open_loop(start))
            self._result.seconds = perf_counter() - start
            await self._last_answers()
        finally:
            refreshing.cancel()
            for connection in self._idle:
                connection.close()
        return self._result

    def _requests(self) -> Iterator[bytes]:
        reports, batch = self._fleet.reports(), self._plan.batch
        host = self._address.origin.partition("://")[2]
        path = self._address.reports_path
        while True:
            if batch == 1:
                yield post(host, path, next(reports))
            else:
                joined = b",".join(next(reports) for _ in range(batch))
                yield post(host, path, b'{"reports":[%s]}' % joined)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                Connection, self._address.host, self._address.port, ssl=self._address.secure or None
            )
        except OSError:
            raise LoadFailed("the collector must be reachable; is it running?") from None
        return connection

    def _more(self) -> bool:
        return self._begun < self._plan.requests and perf_counter() < self._ends_at

    async def _closed_loop(self) -> None:
        while self._more():
            while self._idle and self._more():
                self._begin(self._idle.popleft(), perf_counter())
            await asyncio.sleep(_PACE_S)

    async def _open_loop(self, start: float) -> None:
        """Requests begin on time; where no connection is free they wait, and the wait counts."""
        pace = 1.0 / (self._plan.rate_per_s or 1.0)
        due = 0
        while due < self._plan.requests and perf_counter() < self._ends_at:
            now = perf_counter()
            while start + due * pace <= now and due < self._plan.requests:
                self._late.append(start + due * pace)
                due += 1
            while self._late and self._idle:
                self._begin(self._idle.popleft(), self._late.popleft())
            await asyncio.sleep(_PACE_S)
        while self._late and perf_counter() < self._ends_at + _LAST_ANSWERS_S:
            while self._late and self._idle:
                self._begin(self._idle.popleft(), self._late.popleft())
            await asyncio.sleep(_PACE_S)
        self._result.unknown += len(self._late)

    def _begin(self, connection: Connection, due_at: float) -> None:
        self._begun += 1
        self._under_way += 1

        def done(status: int, body: bytes) -> None:
            self._under_way -= 1
            self._answered(connection, status, body, due_at)

        connection.send(next(self._bodies), done)

    def _answered(self, connection: Connection, status: int, body: bytes, due_at: float) -> None:
        now = perf_counter()
        if status:
            refused = body.count(b'"refused"') if self._plan.batch > 1 else 0
            self._result.add(status, self._plan.batch, refused, now - due_at)
        else:
            self._result.requests += 1
            self._result.unknown += 1
        if not connection.open:
            asyncio.get_running_loop().create_task(self._replace())
        elif self._late:
            self._begin(connection, self._late.popleft())
        elif self._plan.rate_per_s is None and self._more():
            self._begin(connection, now)
        else:
            self._idle.append(connection)

    async def _replace(self) -> None:
        while perf_counter() < self._ends_at:
            try:
                self._idle.append(await self._connect())
                return
            except LoadFailed:
                await asyncio.sleep(0.1)

    async def _last_answers(self) -> None:
        until = perf_counter() + _LAST_ANSWERS_S
        while self._under_way and perf_counter() < until:
            await asyncio.sleep(_PACE_S)

    async def _keep_fresh(self, progress: Callable[[LoadResult], None] | None) -> None:
        """The mechanism of a new round, as soon as a device would see it."""
        while True:
            await asyncio.sleep(_REFRESH_S)
            if progress is not None:
                progress(self._result)
            try:
                await asyncio.to_thread(self._fleet.refresh)
            except Refused:
                continue
