"""Servers for the tests of this folder: real processes, and the application in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from databases import postgres
from geoveil.arrays import uniform
from geoveil.campaign import positional_design
from geoveil.server.apart import Calculator
from geoveil.server.app import Application, Service
from geoveil.server.logs import Log
from geoveil.server.settings import Settings
from geoveil.store import Store
from server.live import HANG_S, LYON, TOKEN, Live
from store.memory import MemoryStore

__all__ = ["postgres"]

T = TypeVar("T")


class _Lasting(Calculator):
    """Answers for all applications in this process, and ends with it: to start takes two seconds."""

    def end(self) -> None:
        """Not with one of them."""


_CALCULATOR = _Lasting()


class InProcess:
    """The application on an event loop in a thread, called without a network."""

    def __init__(
        self,
        store: Store | None = None,
        *,
        clock: Callable[[], float] | None = None,
        **settings: Any,
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.store = store or MemoryStore()
        self.settings = Settings(**{"tick_s": 3600.0, "log_level": "error", **settings})
        self._clock = {} if clock is None else {"clock": clock}
        self.run(self._open())

    async def _open(self) -> None:
        self.service = Service(
            self.store,
            self.settings,
            base_url="http://test",
            log=Log(self.settings.log_level),
            **self._clock,
        )
        self.service.calculator = self.service.district_calculator = _CALCULATOR
        self.service.tokens.prepare(TOKEN)
        self.application = Application(self.service)
        transport = httpx.ASGITransport(self.application, client=("198.51.100.7", 1))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://test")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(HANG_S)

    def request(
        self, method: str, path: str, *, operator: bool = False, **given: Any
    ) -> httpx.Response:
        headers = dict(given.pop("headers", {}))
        if operator:
            headers["authorization"] = f"Bearer {TOKEN}"
        return self.run(self.client.request(method, path, headers=headers, **given))

    def get(self, path: str, **given: Any) -> httpx.Response:
        return self.request("GET", path, **given)

    def post(self, path: str, **given: Any) -> httpx.Response:
        return self.request("POST", path, **given)

    def campaign(self, **changes: Any) -> str:
        answer = self.post("/api/campaigns", json=LYON | changes, operator=True)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def mechanism(self, campaign: str = "lyon") -> dict[str, Any]:
        return dict(self.get(f"/api/campaigns/{campaign}/mechanism").json())

    def close(self) -> None:
        self.run(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _close(self) -> None:
        await self.client.aclose()
        await self.service.stop(5.0)


@cache
def _for_everybody(make: Callable[..., Any]) -> Callable[..., Any]:
    def again(space: Any, prior: Any, *promise: Any) -> Any:
        made = make(space, uniform(space.size), *promise)
        made.prior = prior
        return made

    return again


@pytest.fixture
def one_design(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round has the weights of the first, whatever the map says: for tests that are not about them."""
    make = _for_everybody(positional_design._promising)
    monkeypatch.setattr(positional_design, "_promising", make)


@pytest.fixture
def inside() -> Iterator[Callable[..., InProcess]]:
    """Makes applications in this process, and closes them."""
    made: list[InProcess] = []

    def make(*given: Any, **settings: Any) -> InProcess:
        made.append(InProcess(*given, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def service(inside: Callable[..., InProcess]) -> InProcess:
    """An application with the campaign ``lyon``."""
    made = inside()
    made.campaign()
    return made


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """A real server over SQLite."""
    with Live(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A real server for all tests of this process that leave it running: to start one takes seconds."""
    with Live(tmp_path_factory.mktemp("running"), tick_s=0.1) as server:
        yield server


@pytest.fixture
def shared(running: Live) -> Iterator[Live]:
    """The same without a campaign, for one test."""
    yield running
    empty(running)


def empty(server: Live) -> None:
    """Delete all campaigns of a server."""
    with server.operator() as operator:
        for campaign in operator.get("/api/campaigns").json()["campaigns"]:
            assert operator.delete(f"/api/campaigns/{campaign['id']}").status_code == 204
