"""PostgreSQL behind the service: one server process killed, several that agree with each other."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from databases import Cluster, cluster
from geoveil.errors import InvalidInput
from geoveil.server import run
from geoveil.server.logs import Log
from geoveil.server.run import Server, Supervisor, bind, never
from geoveil.server.settings import Settings
from geoveil.store import StoreFailed, open_store
from server.live import HANG_S, Live, new_id
from server.test_http_killed import kill_again_and_again
from server.test_shared_metrics import counted
from server.uploads import post, stored


def children(process: int) -> list[int]:
    """The server processes under a supervisor."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [number for number in map(int, found) if b"spawn_main" in _command(number)]


def _command(number: int) -> bytes:
    return Path(f"/proc/{number}/cmdline").read_bytes()


def test_an_acknowledged_report_survives_a_killed_process(
    tmp_path: Path, postgres: Cluster
) -> None:
    with Live(tmp_path, postgres.database()) as server:
        kill_again_and_again(server, kills=1, acknowledged=200, batch=3)


@pytest.mark.slow
def test_an_acknowledged_report_survives_200_killed_processes(
    tmp_path: Path, postgres: Cluster
) -> None:
    with Live(tmp_path, postgres.database()) as server:
        counted = kill_again_and_again(server, kills=200, acknowledged=100_000, batch=20)
    assert counted >= 100_000


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="looks at processes as Linux shows them"
)
def test_several_processes_count_an_id_once_and_survive_the_death_of_one(
    tmp_path: Path, postgres: Cluster
) -> None:
    with Live(tmp_path, postgres.database(), processes=2) as server:
        assert server.process is not None
        campaign = server.kept_campaign()
        mechanism = server.mechanism(campaign)["id"]
        report = [(new_id(), 3)]

        def send(reports: list[tuple[str, int]]) -> int:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
            try:
                return post(connection, campaign, mechanism, reports)
            finally:
                connection.close()

        with ThreadPoolExecutor(20) as pool:
            assert set(pool.map(send, [report] * 50)) == {200}
        first, second = children(server.process.pid)
        os.kill(first, signal.SIGKILL)
        others = [[(new_id(), 5)] for _ in range(20)]
        for other in others:
            while True:  # a connection may have waited at the process that died
                try:
                    assert send(other) == 200
                except OSError:
                    continue
                break
        assert second in children(server.process.pid)
        until_s = time.monotonic() + HANG_S
        while server.log.read_text().count('"started"') < 3 and time.monotonic() < until_s:
            time.sleep(0.1)
        assert server.log.read_text().count('"started"') == 3, "the one that died is started again"
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        (failed,) = (line for line in lines if line["event"] == "process-failed")
        assert (failed["level"], failed["exit"]) == ("error", -signal.SIGKILL)
        server.stop()
        assert server.code == 0
        assert not Path(f"/proc/{second}").exists()
        assert stored(server.database, campaign) == Counter({3: 1, 5: 20})


def test_a_database_that_stops_is_said_and_heals(tmp_path: Path, postgres: Cluster) -> None:
    with Live(tmp_path, postgres.database()) as server:
        campaign = server.kept_campaign()
        mechanism = server.mechanism(campaign)["id"]
        path, ids = f"/api/campaigns/{campaign}/reports", [new_id() for _ in range(3)]
        bodies = [{"mechanism": mechanism, "id": name, "cell": 1} for name in ids]
        with server.client() as client:
            assert client.post(path, json=bodies[0]).status_code == 200
            postgres.stop("immediate")
            try:
                refused = client.post(path, json=bodies[1])
                ready = client.get("/readyz")
            finally:
                postgres.start()
            assert refused.json()["type"].endswith("/storage-unavailable")
            assert (refused.status_code, ready.status_code) == (503, 503)
            assert client.get("/healthz").status_code == 200
            while client.post(path, json=bodies[2]).status_code != 200:
                time.sleep(0.1)
        server.stop()
        assert stored(server.database, campaign) == Counter({1: 2})
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    whys = [line["why"] for line in lines if line["event"] == "refused"]
    assert any("connection to server on socket" in why for why in whys)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server of two processes, for tests that leave it so."""
    if not Path("/proc/self").exists():
        pytest.skip("looks at processes as Linux shows them")
    with Live(tmp_path_factory.mktemp("two"), cluster().database(), processes=2) as server:
        yield server


def kill_one(server: Live) -> Callable[[], None]:
    """Kill one of the processes; what waits until another serves in its place."""
    assert server.process is not None
    before = server.log.read_text().count('"started"')
    os.kill(children(server.process.pid)[0], signal.SIGKILL)
    return lambda: wait_for(server, "started", before + 1)


def wait_for(server: Live, event: str, times: int = 1) -> None:
    until_s = time.monotonic() + HANG_S
    while server.log.read_text().count(f'"{event}"') < times:
        assert time.monotonic() < until_s, server.log.read_text()
        time.sleep(0.1)


def test_every_line_of_the_log_is_json_while_the_database_is_gone(
    two: Live, postgres: Cluster
) -> None:
    postgres.stop("immediate")
    try:
        until_another_serves = kill_one(two)
        wait_for(two, "process-failed", 2)  # the one killed, and the one in its place
        wait_for(two, "psycopg.pool")
    finally:
        postgres.start()
    until_another_serves()
    lines = [json.loads(line) for line in two.log.read_text().splitlines()]
    failed = next(line for line in lines if line["event"] == "process-failed" and "error" in line)
    assert (failed["level"], failed["error"]) == ("error", "StoreFailed")
    assert "failed to take a connection" in failed["why"]


def test_a_process_in_the_place_of_a_dead_one_brings_no_token_back_and_goes_on_counting(
    two: Live,
) -> None:
    campaign = two.kept_campaign()
    mechanism = two.mechanism(campaign)["id"]
    told: list[int] = []

    def ask(times: int) -> None:
        for _ in range(times):
            with two.client() as client:
                told.append(counted(client.get("/metrics").text))

    for number in range(1, 9):
        body = {"mechanism": mechanism, "id": new_id(), "cell": 1}
        with two.client() as client:
            path = f"/api/campaigns/{campaign}/reports"
            assert client.post(path, content=json.dumps(body)).status_code == 200
        ask(1)
        assert told[-1] <= number
    until_s = time.monotonic() + HANG_S
    while told[-6:] != [8] * 6:  # until each has kept its counts
        assert time.monotonic() < until_s
        ask(1)
    with closing(open_store(two.database)) as store:
        [kept] = store.tokens()
        assert store.take_back_token(kept.digest)
        kill_one(two)()
        ask(6)
        assert told[-6:] == [8] * 6
        assert told == sorted(told)
        assert store.tokens() == []


def test_a_stop_while_it_starts_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal reached all: a process is gone before it listened, and the supervisor knows why."""
    supervisor = Supervisor(
        Settings(processes=2, database="postgresql://host/name"), socket.socket()
    )
    told, nothing = [], SimpleNamespace()

    def stopped(_: float) -> bool:
        supervisor._stop(signal.SIGTERM, None)
        return False

    process = SimpleNamespace(
        is_alive=lambda: False, terminate=lambda: None, join=lambda *_: None, kill=lambda: None
    )
    nothing.wait = stopped
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(supervisor, "_start", lambda number: (process, nothing))
    supervisor.run(lambda: told.append(True))
    assert told == []


@pytest.mark.parametrize(
    ("status", "why"), [(1, "its log says why it did not"), (-9, "it ended with -9")]
)
def test_a_process_that_is_killed_while_it_starts_is_no_puzzle(
    status: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(
        Settings(processes=2, database="postgresql://host/name"), socket.socket()
    )
    process = SimpleNamespace(
        is_alive=lambda: False,
        exitcode=status,
        terminate=lambda: None,
        join=lambda *_: None,
        kill=lambda: None,
    )
    deaf = SimpleNamespace(wait=lambda _: False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(supervisor, "_start", lambda number: (process, deaf))
    with pytest.raises(StoreFailed, match=f"a server process must start; {why}$"):
        supervisor.run(lambda: None)


def test_processes_go_on_where_there_is_no_memory_for_the_one_that_was_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(processes=2, database="postgresql://host/name")
    supervisor = Supervisor(settings, SimpleNamespace())  # type: ignore[arg-type]
    killed, new = (SimpleNamespace(sentinel=n, exitcode=-9, join=lambda: None) for n in (7, 8))
    asked, supervisor._started = [], [(killed, None)]  # type: ignore[list-item]

    def start(place: int) -> Any:
        asked.append(place)
        if len(asked) < 4:
            raise OSError("Cannot allocate memory")
        return new, None

    monkeypatch.setattr(run, "wait", lambda there, _: [7] if 7 in there else [])
    monkeypatch.setattr(run, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(supervisor, "_start", start)
    for _ in range(4):
        supervisor._replace_dead()
    assert (asked, supervisor._started) == ([0] * 4, [(new, None)])
    told = capsys.readouterr().err
    assert told.count('"process-failed"') == 4  # that it ended, and why it stays away
    assert told.count('"error": "OSError"') == 3


def test_processes_that_end_young_are_followed_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s, asked, dies_after_s = 1000.0, [995.0], 5.0
    process = SimpleNamespace(sentinel=7, exitcode=-11, join=lambda: None)
    steady = SimpleNamespace(sentinel=8)
    settings = Settings(processes=2, database="postgresql://host/name")
    supervisor = Supervisor(settings, SimpleNamespace())  # type: ignore[arg-type]
    supervisor._started = [(steady, None), (process, None)]  # type: ignore[list-item]

    def ended(there: dict[int, int], _: float) -> list[int]:
        return [7] if 7 in there and now_s >= asked[-1] + dies_after_s else []

    def start(place: int) -> Any:
        assert place == 1, "the other goes on"
        asked.append(now_s)
        return process, None

    monkeypatch.setattr(run, "wait", ended)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(supervisor, "_start", start)

    def starts(number: int) -> list[float]:
        """How long after the end of the one before each of so many was started."""
        nonlocal now_s
        del asked[:-1]
        while len(asked) <= number:
            supervisor._replace_dead()
            now_s += 1.0
        return [later - earlier - dies_after_s for earlier, later in pairwise(asked)]

    assert starts(8) == [0, 1, 2, 4, 8, 16, 30, 30]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    waits = [line["seconds"] for line in lines if line["event"] == "process-waits"]
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    dies_after_s = 100.0  # one that lived is followed at once
    assert starts(2) == [0, 0]
    supervisor._stop(signal.SIGTERM, None)
    now_s += 1000.0
    supervisor._replace_dead()
    assert len(asked) == 3, "nothing is started while it stops"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_service_has_its_port_alone_before_it_has_started(processes: int) -> None:
    settings = Settings(port=0, processes=processes, database="postgresql://host/name")
    with (
        bind(settings) as listener,
        pytest.raises(InvalidInput, match="must be free to listen on: Address already in use"),
    ):
        bind(replace(settings, port=listener.getsockname()[1]))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_signal_ends_at_once_whoever_was_told(processes: int) -> None:
    """One of several hears it from a terminal or systemd, which tell all, and from the supervisor: once."""
    settings = Settings(processes=processes, database="postgresql://host/name")
    server = Server(
        uvicorn.Config(never, log_config=None), settings, Log("error"), lambda _: None, None
    )
    supervisor, killed = Supervisor(settings, SimpleNamespace()), []  # type: ignore[arg-type]
    process = SimpleNamespace(kill=lambda: killed.append(True))
    supervisor._started = [(process, None)] * processes  # type: ignore[list-item]
    for times in range(2):
        assert (server.force_exit, killed) == (False, [])
        assert server.should_exit == bool(times)
        server.handle_exit(signal.SIGTERM, None)
        supervisor._stop(signal.SIGTERM, None)
    assert server.force_exit == (processes == 1)
    assert killed == [True] * processes
