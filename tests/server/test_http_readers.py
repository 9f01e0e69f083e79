"""Strangers who read: what takes long to make is made one at a time, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from geoveil.server import dashboard, estimate_routes
from server.conftest import InProcess
from server.live import LYON
from server.test_http_problems import assert_problem
from server.test_http_routes import CAMPAIGN, closed

__all__ = ["closed"]

SOUTH, WEST, NORTH, EAST = LYON["box"]
HALF = {
    "type": "Feature",
    "properties": {"kind": "district", "name": "South"},
    "geometry": {
        "type": "Polygon",
        "coordinates": [
            [[WEST, SOUTH], [EAST, SOUTH], [EAST, NORTH - 0.03], [WEST, NORTH], [WEST, SOUTH]]
        ],
    },
}


class Watched:
    """A function with a count of its calls, and of how many were under way at once at most."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._under_way = 0
        self.calls = 0
        self.at_once = 0

    def __call__(self, *given: Any) -> Any:
        with self._lock:
            self.calls += 1
            self._under_way += 1
            self.at_once = max(self.at_once, self._under_way)
        try:
            time.sleep(0.05)
            return self._call(*given)
        finally:
            with self._lock:
                self._under_way -= 1


@contextmanager
def watched(module: Any, name: str) -> Iterator[Watched]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, watch := Watched(getattr(module, name)))
        yield watch


def at_once(service: InProcess, *asked: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
    async def ask() -> list[httpx.Response]:
        client = service.client
        calls = (client.request(how, f"{CAMPAIGN}/{path}", **more) for how, path, more in asked)
        return list(await asyncio.gather(*calls))

    return service.run(ask())


def test_files_are_made_one_at_a_time_and_remembered(closed: InProcess) -> None:
    endings = ["csv", "geojson", "parquet"] * 6
    paths = [f"{kind}.{ending}" for kind in ("estimate", "rounds/1/estimate") for ending in endings]
    with watched(estimate_routes, "rendered") as watch:
        answers = at_once(closed, *(("GET", path, {}) for path in paths))
        assert {answer.status_code for answer in answers} == {200}
        assert watch.at_once == 1
        assert watch.calls == 3  # the latest is that of round 1, under the same name
    assert len({answer.content for answer in answers}) == 3


def test_no_more_is_remembered_than_there_is_room_for(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = closed.get(f"{CAMPAIGN}/estimate.csv")
    monkeypatch.setattr(estimate_routes, "REMEMBERED_BYTES", len(first.content))
    with watched(estimate_routes, "rendered") as watch:
        assert closed.get(f"{CAMPAIGN}/estimate.csv").content == first.content
        assert watch.calls == 0
        long = closed.get(f"{CAMPAIGN}/estimate.geojson")
        assert len(long.content) > len(first.content)
        assert closed.get(f"{CAMPAIGN}/estimate.geojson").content == long.content
        assert watch.calls == 2  # too long to be kept
        assert closed.get(f"{CAMPAIGN}/estimate.csv").content == first.content
        assert watch.calls == 2


def test_who_waits_too_long_for_the_files_of_others_is_told_so(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate_routes, "FILE_S", 0.01)
    with watched(estimate_routes, "rendered"):
        both = at_once(closed, ("GET", "estimate.csv", {}), ("GET", "estimate.geojson", {}))
    made, other = sorted(both, key=lambda answer: answer.status_code)
    assert made.status_code == 200
    assert_problem(other, "overloaded")
    for ending in ("csv", "geojson"):
        assert closed.get(f"{CAMPAIGN}/estimate.{ending}").status_code == 200


@pytest.mark.parametrize(
    ("module", "name", "path"),
    [(estimate_routes, "_tag", "estimate"), (dashboard, "_hash", "backdrop")],
)
def test_nobody_waits_while_something_long_is_hashed(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, path: str
) -> None:
    assert closed.request("PUT", f"{CAMPAIGN}/backdrop", operator=True, json=HALF).is_success
    hashed, threads = getattr(module, name), set()

    def noted(*given: Any) -> Any:
        threads.add(threading.get_ident())
        return hashed(*given)

    monkeypatch.setattr(module, name, noted)
    assert closed.get(f"{CAMPAIGN}/{path}").status_code == 200
    assert threads
    assert closed.run(_thread()) not in threads


async def _thread() -> int:
    return threading.get_ident()


def test_a_backdrop_is_read_for_districts_once(closed: InProcess) -> None:
    assert closed.request("PATCH", CAMPAIGN, operator=True, json={"published": True}).is_success
    street = {"type": "LineString", "coordinates": [[WEST, SOUTH], [EAST, NORTH]]}
    for drawn, status in ((street, 422), (HALF, 200)):
        put = closed.request("PUT", f"{CAMPAIGN}/backdrop", operator=True, json=drawn)
        assert put.status_code == 204
        with watched(dashboard, "districts_of") as watch:
            answers = at_once(closed, *[("GET", "map/districts", {})] * 8)
            assert {answer.status_code for answer in answers} == {status}
            assert (watch.calls, watch.at_once) == (1, 1)


def test_regions_of_readers_are_read_one_at_a_time(closed: InProcess) -> None:
    assert closed.request("PATCH", CAMPAIGN, operator=True, json={"published": True}).is_success
    with watched(dashboard, "read_regions") as watch:
        answers = at_once(closed, *[("POST", "map/region", {"json": HALF})] * 8)
        assert watch.at_once == 1
    assert [answer.status_code for answer in answers].count(200) >= 1
    for answer in answers:
        if answer.status_code != 200:
            assert_problem(answer, "overloaded")
