"""Simulated devices, many at once: load for a collector, counted and timed.

Run ``python -m benchmarks load LINK`` in the folder of the repository, with the link of a campaign.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import Any, cast

import click
import numpy as np

from geoveil.arrays import FloatArray, count, positive
from geoveil.cli.console import Console
from geoveil.cli.options import machine_options
from geoveil.client.collector import Collector, Patience, check_promise
from geoveil.client.network import Address, Network
from geoveil.client.refusal import Refused
from geoveil.document.wire import MechanismDocument, report_texts
from geoveil.errors import GeoveilError, InvalidInput
from geoveil.position.positional import Placed

LARGEST_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """A closed loop (each connection sends when it was answered) or an open one at a fixed rate.

    A run ends after ``seconds`` or ``requests``, whichever comes first: it is bounded in both.
    """

    seconds: float = 10.0
    requests: int = 1_000_000
    connections: int = 32
    batch: int = 1
    """Reports in one request."""
    rate_per_s: float | None = None
    """Requests begun per second, whether answered or not; ``None``: as many as are answered."""
    seed: int = 0
    """Where the simulated people are; never what they report, which the operating system draws."""

    def __post_init__(self) -> None:
        positive("seconds", self.seconds)
        count("requests", self.requests)
        count("connections", self.connections)
        if count("batch", self.batch) > LARGEST_BATCH:
            raise InvalidInput(f"batch ({self.batch}) must be at most {LARGEST_BATCH}")
        if self.rate_per_s is not None:
            positive("rate_per_s", self.rate_per_s)
        count("seed", self.seed, least=0)


# --- What a load run saw: answers by kind, and how long they took


@dataclass
class LoadResult:
    """Requests and reports by what became of them; latencies of all that were answered."""

    seconds: float = 0.0
    requests: int = 0
    counted: int = 0
    """Reports that were acknowledged."""
    refused: int = 0
    """Reports refused for a stated reason, such as an expired mechanism."""
    shed: int = 0
    """Requests asked to come again later (429, 503): nothing of them was counted."""
    unknown: int = 0
    """Requests without an answer: their reports may or may not be counted."""
    statuses: dict[int, int] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list, repr=False)

    @property
    def reports_per_s(self) -> float:
        """Reports acknowledged per second."""
        return self.counted / self.seconds if self.seconds else 0.0

    def latency_s(self, percentile: float) -> float:
        """The latency that ``percentile`` of all answers stayed below; NaN where there were none."""
        if not self.latencies_s:
            return float("nan")
        return float(np.percentile(np.array(self.latencies_s), percentile))

    def add(self, status: int, reports: int, refused: int, latency_s: float) -> None:
        """One answer."""
        self.requests += 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.latencies_s.append(latency_s)
        if status == 200:
            self.counted += reports - refused
            self.refused += refused
        elif status in (429, 503):
            self.shed += 1
        else:
            self.refused += reports

    def to_dict(self) -> dict[str, Any]:
        """The result for machines."""
        latencies = {f"p{p}": self.latency_s(p) * 1000 for p in (50, 95, 99)}
        names = ("seconds", "requests", "counted", "refused", "shed", "unknown")
        return {
            **{name: getattr(self, name) for name in names},
            "statuses": {str(status): number for status, number in sorted(self.statuses.items())},
            "reports_per_s": self.reports_per_s,
            "latency_ms": latencies if self.latencies_s else None,
        }


# --- One kept connection: a request goes out, its answer comes back, nothing else happens


Done = Callable[[int, bytes], None]
"""Called with the status and the body; status 0 where the connection was lost before an answer."""

_HEAD_END = b"\r\n\r\n"
_MOST_HEAD = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*(?:\r\n|$)")


class LoadFailed(GeoveilError):
    """The collector could not be reached, or did not speak HTTP."""


class Connection(asyncio.Protocol):
    """HTTP/1.1 with ``Content-Length`` answers, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._done: Done | None = None

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, done: Done) -> None:
        """Send, and call ``done`` once."""
        assert self._transport is not None
        self._done = done
        self._transport.write(request)

    def close(self) -> None:
        """Let go."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish(0, b"")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            if len(self._buffer) > _MOST_HEAD:
                self.close()
            return
        head = bytes(self._buffer[:end]).lower()
        body_at = end + len(_HEAD_END)
        length = _LENGTH.search(head)
        if length is None:
            self.close()
        elif len(self._buffer) >= body_at + int(length[1]):
            body = bytes(self._buffer[body_at : body_at + int(length[1])])
            self._buffer.clear()
            if b"\r\nconnection: close" in head:
                self.close()
            self._finish(int(head[9:12]), body)

    def _finish(self, status: int, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, body)


def post(host: str, path: str, body: bytes) -> bytes:
    """The bytes of a POST of JSON: the same headers as a device sends."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: geoveil\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


# --- Simulated devices: the checks and the exact sampler of real ones, without a ledger each


_MADE_AT_ONCE = 4096
_HOT_SPOTS = 6


class Fleet:
    """Devices of people who do not exist: each reports once, from a place of its own.

    The current mechanism is fetched, verified and checked by the code of :class:`geoveil.client.Device`; the
    reports are drawn from the same whole numbers. Only the ledger is left out: nobody is simulated twice.
    """

    def __init__(self, address: Address, *, max_epsilon_per_km: float, seed: int = 0) -> None:
        self._limit = max_epsilon_per_km
        self._collector = Collector(address, Network(address), Patience())
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._crowd: FloatArray | None = None
        self.verified = self.refresh()

    def refresh(self) -> MechanismDocument:
        """Fetch the mechanism again; refused where a device would refuse it."""
        found = self._collector.mechanism(max_epsilon_per_km=self._limit, now_s=time())
        check_promise(found)
        if self._crowd is None:
            self._crowd = crowd_on(found.mechanism.space, self._generator)
        self.verified = found
        return found

    def reports(self) -> Iterator[bytes]:
        """Reports as JSON texts, without end, always under the mechanism fetched last."""
        while True:
            current = self.verified
            cells = current.mechanism.space.size
            places = self._generator.choice(cells, size=_MADE_AT_ONCE, p=self._crowd)
            for text in report_texts(current, current.mechanism.sample(places)):
                yield text
                if self.verified is not current:
                    break


def crowd_on(grid: Placed, generator: np.random.Generator) -> FloatArray:
    """A made-up distribution: a few hot spots over a thin spread."""
    centres = grid.centres
    low, high = centres.min(axis=0), centres.max(axis=0)
    density = np.full(grid.size, 0.02)
    for _ in range(_HOT_SPOTS):
        middle = generator.uniform(low, high)
        width = generator.uniform(1.0, 3.0) * grid.cell_km
        density += np.exp(-np.square(centres - middle).sum(axis=1) / (2 * width**2))
    shares: FloatArray = density / density.sum()
    return shares


# --- Running a plan: many connections, a closed or an open loop, every answer accounted for


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
            until = perf_counter() + _LAST_ANSWERS_S
            while self._under_way and perf_counter() < until:
                await asyncio.sleep(_PACE_S)
        finally:
            refreshing.cancel()
            for connection in self._idle:
                connection.close()
        return self._result

    def _requests(self) -> Iterator[bytes]:
        reports, batch = self._fleet.reports(), self._plan.batch
        host = self._address.origin.partition("://")[2]
        path = self._address.path("/reports")
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
        while True:
            now = perf_counter()
            planned = due < self._plan.requests and now < self._ends_at
            if not planned and not (self._late and now < self._ends_at + _LAST_ANSWERS_S):
                break
            while planned and start + due * pace <= now and due < self._plan.requests:
                self._late.append(start + due * pace)
                due += 1
            while self._late and self._idle:
                self._begin(self._idle.popleft(), self._late.popleft())
            await asyncio.sleep(_PACE_S)
        self._result.unknown += len(self._late)

    def _begin(self, connection: Connection, due_at: float) -> None:
        if not connection.open:  # the service closed it while it was idle
            if self._plan.rate_per_s is not None:
                self._late.appendleft(due_at)
            asyncio.get_running_loop().create_task(self._replace())
            return
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


# --- The command, and what a person is told


@click.command()
@click.argument("url", metavar="LINK")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="At most this long.")
@click.option("--requests", type=click.IntRange(min=1), default=1_000_000, show_default=True,
              help="At most so many.")  # fmt: skip
@click.option("--connections", type=click.IntRange(1, 4096), default=32, show_default=True)
@click.option("--batch", type=click.IntRange(1, 1000), default=1, show_default=True,
              help="Reports in one request.")  # fmt: skip
@click.option("--rate", "rate_per_s", type=float, metavar="R",
              help="Open loop: R requests a second, answered or not.")  # fmt: skip
@click.option("--max-epsilon-per-km", type=float, default=10.0, show_default=True,
              help="The largest promise the devices accept.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Where the simulated people are; reports are always drawn by the system.")  # fmt: skip
@click.option("--anywhere", is_flag=True,
              help="Allow a collector that is not on this machine; yours, one hopes.")  # fmt: skip
@machine_options
def load_collector(
    machine: bool, url: str, max_epsilon_per_km: float, anywhere: bool, **options: Any
) -> None:
    """Load a campaign's collector with simulated devices: real checks, exact draws, one report each.

    \b
    python -m benchmarks load http://localhost:8000/c/paris-k3x7qa --seconds 60 --connections 128
    python -m benchmarks load http://localhost:8000/c/paris-k3x7qa --rate 1000 --seconds 600
    """
    console = Console(machine=machine)
    plan = Plan(**options)
    with console.progress("sending reports") as bar:
        result = run_load(
            url, plan, max_epsilon_per_km=max_epsilon_per_km, anywhere=anywhere,
            progress=lambda so_far: bar.update(None, f"{so_far.counted:,} counted"),
        )  # fmt: skip
    pace = f"{result.reports_per_s:,.0f} a second"
    rows = {
        "Counted": f"{result.counted:,} reports in {result.seconds:.3g} s: {pace}",
        "Requests": f"{result.requests:,}",
        "Latency": ", ".join(f"p{p} {1000 * result.latency_s(p):.3g} ms" for p in (50, 95, 99)),
        "Refused": f"{result.refused:,} reports, for a stated reason",
        "Shed": f"{result.shed:,} requests asked to come again",
        "Unknown": f"{result.unknown:,} requests without an answer",
    }
    console.result(result.to_dict(), rows)


def main(given: Sequence[str]) -> int:
    """The command as a program: what must be otherwise is one line, and exit code 2."""
    try:
        load_collector.main(list(given), "python -m benchmarks load")
    except GeoveilError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
