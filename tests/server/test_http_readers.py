"""Strangers who read: what takes long to make is made one at a time, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from geoveil.errors import MissingExtra
from geoveil.server import connections, dashboard, estimate_routes, map_files
from geoveil.server.apart import EstimatorLost
from geoveil.server.connections import Protocol
from geoveil.server.map_files import Files
from geoveil.server.problem import Problem
from geoveil.server.recent import Recent
from geoveil.server.worker import LARGE_LIMIT_S
from geoveil.store import Overloaded, StoreFailed
from server.conftest import InProcess
from server.live import HANG_S, LYON
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


class Apart:
    """In the place of a process: what goes there and what comes back is copied, as for one."""

    asked = 0

    def answer(self, limit_s: float, *asked: Any) -> Any:
        self.asked += 1
        call, *given = pickle.loads(pickle.dumps(asked))
        return pickle.loads(pickle.dumps(call(print, *given)))


def _not_installed(ending: str) -> bytes:
    raise MissingExtra("pyarrow", "parquet", "writing Parquet")


def test_tables_of_large_maps_are_made_in_a_process_apart(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = closed.service.files
    here = closed.get(f"{CAMPAIGN}/estimate.csv")
    monkeypatch.setattr(files, "_files", Recent(map_files.REMEMBERED_BYTES))
    monkeypatch.setattr(map_files, "APART_BYTES", 1_000)
    monkeypatch.setattr(files, "apart", apart := Apart())
    there = closed.get(f"{CAMPAIGN}/estimate.csv")
    assert (there.content, there.headers["etag"]) == (here.content, here.headers["etag"])
    assert apart.asked == 1
    assert_problem(closed.get(f"{CAMPAIGN}/estimate.csv?slot=1"), "unknown-slot")
    assert apart.asked == 2
    assert closed.get(f"{CAMPAIGN}/estimate.json").status_code == 200
    assert apart.asked == 2  # as it is kept
    lacking = map_files._pack_apart(print, _not_installed, "parquet", ())
    assert isinstance(lacking, Problem)
    assert lacking.name == "not-acceptable"


class Held(bytes):
    """What a file is made of, counted as long as anybody holds it."""

    alive = 0

    def __new__(cls, content: bytes) -> Held:
        cls.alive += 1
        return super().__new__(cls, content)

    def __del__(self) -> None:
        Held.alive -= 1


def test_who_waits_holds_nothing(closed: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds may wait, and what a file of the largest map is made of has six megabytes."""
    campaigns, held, many = closed.service.campaigns, [], 30
    estimate, render = campaigns.estimate, estimate_routes.rendered

    def read(*given: Any) -> Any:
        record = estimate(*given)
        return replace(record, body=Held(record.body))

    def noted(*given: Any) -> Any:
        while len(closed.service.files._tables._waiters or ()) < many - 1:
            time.sleep(0.001)
        held.append(Held.alive)
        return render(*given)

    monkeypatch.setattr(campaigns, "estimate", read)
    monkeypatch.setattr(estimate_routes, "rendered", noted)
    answers = at_once(closed, *[("GET", "estimate.geojson", {})] * many)
    assert {answer.status_code for answer in answers} == {200}
    assert held == [1]


def test_no_more_is_remembered_than_there_is_room_for(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = closed.get(f"{CAMPAIGN}/estimate.csv")  # both are sent packed, as they are kept
    room_bytes = int(first.headers["content-length"])
    monkeypatch.setattr(closed.service.files._files, "most_bytes", room_bytes)
    with watched(estimate_routes, "rendered") as watch:
        assert closed.get(f"{CAMPAIGN}/estimate.csv").content == first.content
        assert watch.calls == 0
        long = closed.get(f"{CAMPAIGN}/estimate.geojson")
        assert int(long.headers["content-length"]) > room_bytes
        assert closed.get(f"{CAMPAIGN}/estimate.geojson").content == long.content
        assert watch.calls == 2  # too long to be kept
        assert closed.get(f"{CAMPAIGN}/estimate.csv").content == first.content
        assert watch.calls == 2


def test_who_waits_too_long_for_the_files_of_others_is_told_so(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_files, "FILE_S", 0.01)
    with watched(estimate_routes, "rendered"):
        both = at_once(closed, ("GET", "estimate.csv", {}), ("GET", "estimate.geojson", {}))
    made, other = sorted(both, key=lambda answer: answer.status_code)
    assert made.status_code == 200
    assert_problem(other, "overloaded")
    for ending in ("csv", "geojson"):
        assert closed.get(f"{CAMPAIGN}/estimate.{ending}").status_code == 200


def test_who_waits_for_the_files_of_others_leaves_connections_to_everybody_else(
    closed: InProcess, inside: Callable[..., InProcess]
) -> None:
    few = inside(closed.store, connections=32)  # of which 8 may wait, 2 from one network
    tables = [("GET", f"estimate.{ending}", {}) for ending in ("csv", "geojson", "parquet")]
    with watched(estimate_routes, "rendered") as watch:
        answers = sorted(at_once(few, *tables), key=lambda answer: answer.status_code)
        assert [answer.status_code for answer in answers] == [200, 200, 503]
        assert_problem(answers[-1], "overloaded")
        assert watch.calls == 2
        assert {few.get(f"{CAMPAIGN}/{path}").status_code for _, path, _ in tables} == {200}
        many = at_once(few, *tables, *tables)  # what is there already, nobody waits for
        assert {answer.status_code for answer in many} == {200}


def test_files_of_any_length_are_sent_piece_by_piece(
    closed: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of the largest map is longer than all that may wait for the readers of a network."""
    plain = {"accept-encoding": "identity"}
    for module in (connections, map_files):
        monkeypatch.setattr(module, "MOST_UNREAD_BYTES_A_NETWORK", 1_000)
    monkeypatch.setattr(connections, "LARGE_BYTES", 1_000)
    monkeypatch.setattr(map_files, "_PIECE_BYTES", 100)
    for path in ("estimate.geojson", "estimate.json"):
        packed, whole = (closed.get(f"{CAMPAIGN}/{path}", headers=each) for each in ({}, plain))
        assert packed.status_code == whole.status_code == 200
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.content == whole.content
        head = closed.request("HEAD", f"{CAMPAIGN}/{path}", headers=plain)
        assert int(head.headers["content-length"]) == len(whole.content) > 1_000
        assert packed.headers["etag"] != whole.headers["etag"]
        for headers, answer in (({}, packed), (plain, whole)):
            held = {**headers, "if-none-match": answer.headers["etag"]}
            assert closed.get(f"{CAMPAIGN}/{path}", headers=held).status_code == 304


def test_files_are_lent_to_many_and_not_to_all_at_once() -> None:
    files, mebibyte = Files(), 1 << 20
    assert all(files.lend(b"office", "map", 10 * mebibyte) for _ in range(40))
    assert not files.lend(b"office", "other", 10 * mebibyte)
    assert sum(files.lend(b"office", "map", 10 * mebibyte) for _ in range(99)) == 8
    assert files.lend(b"home", "other", 20 * mebibyte)  # longer than all its share, and alone
    assert all(files.lend(bytes([n]), "map", 10 * mebibyte) for n in range(100))
    assert not files.lend(b"elsewhere", "third", 30 * mebibyte)
    for _ in range(48):
        files.give_back(b"office", "map", 10 * mebibyte)
    assert files.lend(b"office", "other", 20 * mebibyte)


def test_a_table_keeps_no_text_waiting(closed: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_files, "FILE_S", 0.01)
    with watched(estimate_routes, "rendered"):
        both = at_once(closed, ("GET", "estimate.geojson", {}), ("GET", "estimate.json", {}))
    assert [answer.status_code for answer in both] == [200, 200]


def reader_of(connection: socket.socket | None) -> tuple[Protocol, list[str]]:
    """A connection for whose reader much waits all the time, and why it was cut."""
    reader = Protocol.__new__(Protocol)
    cut: list[str] = []
    loop = SimpleNamespace(time=lambda: 0.0, call_later=lambda *_: None)
    reader.loop, reader._head_since_s, reader._unread_bytes = loop, None, 0  # type: ignore[assignment]
    reader.places = SimpleNamespace(refused=cut.append)  # type: ignore[assignment]
    reader.transport = SimpleNamespace(  # type: ignore[assignment]
        get_write_buffer_size=lambda: 65_536,
        get_extra_info=lambda name: connection,
        abort=lambda: None,
    )
    reader.flow = FlowControl(reader.transport)
    return reader, cut


def test_a_reader_who_takes_what_waits_is_not_cut_while_more_follows() -> None:
    reader, cut = reader_of(None)
    for _ in range(5):
        reader._look()
        reader.resume_writing()
    assert not cut
    reader._look()
    reader._look()
    assert cut == ["slow readers"]


def test_a_reader_is_not_cut_while_the_system_sends_what_it_has() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as theirs,
        listener.accept()[0] as ours,
    ):
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(bytes(1 << 16))
        reader, cut = reader_of(ours)
        reader._look()
        queued = reader._waiting_bytes()
        while reader._waiting_bytes() > queued - 20_000:
            theirs.recv(1 << 16)
        reader._look()
        assert not cut
        reader._look()
        assert cut == ["slow readers"]


@pytest.mark.parametrize(
    ("module", "name", "path"),
    [(map_files, "_tag", "estimate"), (dashboard, "_hash", "backdrop")],
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


class Slow(Apart):
    """Answers when it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.failure: Exception | None = None

    def answer(self, limit_s: float, *asked: Any) -> Any:
        assert limit_s == LARGE_LIMIT_S
        assert self.may.wait(HANG_S)
        if self.failure is not None:
            self.asked += 1
            raise self.failure
        return super().answer(limit_s, *asked)


@pytest.fixture
def slow(closed: InProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """What works out the districts of the closed campaign, which is published with one."""
    assert closed.request("PATCH", CAMPAIGN, operator=True, json={"published": True}).is_success
    assert closed.request("PUT", f"{CAMPAIGN}/backdrop", operator=True, json=HALF).is_success
    slow = Slow()
    monkeypatch.setattr(closed.service, "district_calculator", slow)
    yield slow
    slow.may.set()


def test_districts_that_take_long_are_worked_out_once_and_keep_nobody_waiting(
    closed: InProcess, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large map they take longer than any reader waits; whoever comes later is told them."""
    path = f"{CAMPAIGN}/map/districts"
    with monkeypatch.context() as patch:
        patch.setattr(dashboard, "READER_S", 0.2)
        for answer in at_once(closed, *[("GET", "map/districts", {})] * 3):
            assert_problem(answer, "overloaded")
    for operator, asked in ((True, "estimate/regions"), (False, "map/region")):
        other = closed.post(f"{CAMPAIGN}/{asked}", operator=operator, json=HALF)
        assert other.status_code == 200
    slow.may.set()
    assert closed.get(path).json() == other.json()
    assert slow.asked == 1


def test_readers_who_wait_are_told_of_the_districts_that_they_asked_for(
    closed: InProcess, slow: Slow
) -> None:
    """Not of those that are drawn when their turn has come."""
    path, service = f"{CAMPAIGN}/map/districts", closed.service
    slow.may.set()

    async def taken_away() -> httpx.Response:
        async with asyncio.TaskGroup() as tasks, service.district_turns:
            asking = tasks.create_task(closed.client.get(path))
            while not service.districts:
                await asyncio.sleep(0.01)
            assert service.store.keep_backdrop("lyon", None)
        return asking.result()

    assert closed.run(taken_away()).status_code == 200
    assert_problem(closed.get(path), "not-offered")


def test_who_waits_for_districts_leaves_connections_to_everybody_else(
    closed: InProcess, slow: Slow, inside: Callable[..., InProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = inside(closed.store, connections=32)
    monkeypatch.setattr(few.service, "district_calculator", slow)
    districts = [("GET", "map/districts", {})] * 3

    async def ask() -> list[httpx.Response]:
        async with asyncio.TaskGroup() as tasks:
            asking = [
                tasks.create_task(few.client.get(f"{CAMPAIGN}/{path}")) for _, path, _ in districts
            ]
            done, _ = await asyncio.wait(
                asking, timeout=HANG_S, return_when=asyncio.FIRST_COMPLETED
            )
            assert {task.result().status_code for task in done} == {503}
            slow.may.set()
        return [task.result() for task in asking]

    assert sorted(answer.status_code for answer in few.run(ask())) == [200, 200, 503]
    assert {answer.status_code for answer in at_once(few, *districts)} == {200}


def test_districts_that_fail_are_not_tried_again_by_every_reader(
    closed: InProcess, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, told = f"{CAMPAIGN}/map/districts", []
    monkeypatch.setattr(closed.service.log, "fault", lambda name, error: told.append(name))
    slow.may.set()
    slow.failure = EstimatorLost("it takes too long; ask for less")
    for _ in range(3):
        assert_problem(closed.get(path), "overloaded")
    assert (slow.asked, told) == (1, ["regions-failed"])
    closed.service.districts.clear()
    monkeypatch.setattr(dashboard, "AGAIN_S", 0.0)
    assert_problem(closed.get(path), "overloaded")
    slow.failure = None
    assert closed.get(path).status_code == 200


@pytest.mark.parametrize("failure", [Overloaded("it is full"), StoreFailed("it is away")])
def test_districts_are_tried_again_at_once_after_a_moment_in_which_the_service_was_busy(
    closed: InProcess, slow: Slow, failure: Exception
) -> None:
    slow.may.set()
    slow.failure = failure
    assert closed.get(f"{CAMPAIGN}/map/districts").status_code == 503
    slow.failure = None
    assert closed.get(f"{CAMPAIGN}/map/districts").status_code == 200


def test_a_service_stops_while_districts_are_worked_out(
    closed: InProcess, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "READER_S", 0.2)
    assert_problem(closed.get(f"{CAMPAIGN}/map/districts"), "overloaded")
    (task,) = closed.service.districts.values()
    monkeypatch.setattr(slow, "end", slow.may.set, raising=False)
    closed.run(closed.service.stop(5.0))
    assert task.cancelled()


def test_regions_of_readers_are_read_one_at_a_time(closed: InProcess) -> None:
    assert closed.request("PATCH", CAMPAIGN, operator=True, json={"published": True}).is_success
    with watched(dashboard, "read_regions") as watch:
        answers = at_once(closed, *[("POST", "map/region", {"json": HALF})] * 8)
        assert watch.at_once == 1
    assert [answer.status_code for answer in answers].count(200) >= 1
    for answer in answers:
        if answer.status_code != 200:
            assert_problem(answer, "overloaded")
