"""Promises 1, 3 and 10: kills lose and double nothing, an id counts once, stopping is quick."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from geoveil.store import Upload, open_store
from server.live import HANG_S, Live, cells_of, new_id
from server.uploads import OF_SLOTS, OF_TRIPS, Ledger, Uploader, post, send_again, stored

CLOSED_TERMINAL = getattr(signal, "SIGHUP", signal.SIGTERM)
"""What a server hears when its terminal is closed, where there is such a signal."""


def kill_again_and_again(
    server: Live, *, kills: int, acknowledged: int, batch: int, **settings: Any
) -> int:
    """Kill a server under load; afterwards every count must be explained. How many were acknowledged."""
    campaign = server.kept_campaign(**settings)
    offered = server.mechanism(campaign)
    levels = offered.get("levels", [offered])
    slots = len(levels[0].get("slots", {}).get("names", [""]))
    trips = levels[0].get("trips", False)
    cells_each = cells_of(levels[0]) if slots > 1 or trips else 0
    cells = cells_of(levels[0]) * (cells_each if trips else slots)
    names = OF_TRIPS if trips else OF_SLOTS
    ledgers = [Ledger() for _ in levels]

    def numbered(what: str) -> Counter[int]:
        """How often each report must be counted: levels stand one after another, in each its slots."""
        return Counter(
            level * cells + cell
            for level, ledger in enumerate(ledgers)
            for cell in getattr(ledger, what).values()
        )

    for turn in range(kills):
        killed = threading.Event()
        aim = numbered("counted").total() + acknowledged // kills
        threads = [
            Uploader(
                server.port, campaign, levels[index % len(levels)]["id"], cells,
                ledgers[index % len(levels)], killed.is_set, batch, index, cells_each, names,
            )
            for index in range(turn, turn + 4)
        ]  # fmt: skip
        for thread in threads:
            thread.start()
        while sum(len(ledger.counted) for ledger in ledgers) < aim:
            assert any(thread.is_alive() for thread in threads)
            time.sleep(0.005)
        server.kill()
        killed.set()
        for thread in threads:
            thread.join(HANG_S)
        counts = stored(server.database, campaign)
        known, unknown = numbered("counted"), numbered("unknown")
        assert not known - counts, "an acknowledged report is lost"
        assert counts.total() <= known.total() + unknown.total(), "a report counts twice"
        server.start()
    for level, ledger in zip(levels, ledgers, strict=True):
        send_again(server.port, campaign, level["id"], ledger, cells_each, names)
        assert set(ledger.statuses) <= {200}
    server.stop()
    assert stored(server.database, campaign) == numbered("counted")
    return numbered("counted").total()


def test_an_acknowledged_report_survives_a_killed_process(tmp_path: Path) -> None:
    with Live(tmp_path) as server:
        kill_again_and_again(server, kills=1, acknowledged=200, batch=3)


@pytest.mark.slow
def test_reports_of_every_promise_and_slot_survive_a_killed_process(tmp_path: Path) -> None:
    with Live(tmp_path) as server:
        offered = {"epsilon_per_km": None, "promises_per_km": [0.5, 1.0]}
        slots = {"slots": "hour", "zone": "Europe/Paris"}
        kill_again_and_again(server, kills=2, acknowledged=600, batch=3, **offered, **slots)


@pytest.mark.slow
def test_trips_survive_a_killed_process_with_both_their_ends(tmp_path: Path) -> None:
    with Live(tmp_path) as server:
        kill_again_and_again(server, kills=2, acknowledged=600, batch=3, trips=True)


@pytest.mark.slow
def test_trips_survive_100_killed_processes_with_both_their_ends(tmp_path: Path) -> None:
    with Live(tmp_path) as server:
        counted = kill_again_and_again(server, kills=100, acknowledged=50_000, batch=20, trips=True)
    assert counted >= 50_000


@pytest.mark.slow
def test_an_acknowledged_report_survives_200_killed_processes(tmp_path: Path) -> None:
    with Live(tmp_path) as server:
        counted = kill_again_and_again(server, kills=200, acknowledged=100_000, batch=20)
    assert counted >= 100_000


@pytest.mark.slow
def test_reports_of_every_promise_and_slot_survive_100_killed_processes(tmp_path: Path) -> None:
    offered: dict[str, Any] = {"epsilon_per_km": None, "promises_per_km": [0.5, 1.0, 2.0]}
    offered |= {"slots": "weekday-hour", "zone": "Europe/Paris"}
    with Live(tmp_path) as server:
        counted = kill_again_and_again(server, kills=100, acknowledged=50_000, batch=20, **offered)
    assert counted >= 50_000


@pytest.mark.usefixtures("heard_signals")
def test_one_id_counts_once_however_often_it_comes(live: Live) -> None:
    campaign = live.kept_campaign()
    mechanism = live.mechanism(campaign)["id"]
    report = [(new_id(), 3)]

    def send(_: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=HANG_S)
        try:
            return post(connection, campaign, mechanism, report)
        finally:
            connection.close()

    with ThreadPoolExecutor(50) as pool:
        assert set(pool.map(send, range(50))) == {200}
    live.kill()
    live.start()
    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(send, range(10))) == {200}
    live.stop(CLOSED_TERMINAL)
    assert live.code == 0
    assert json.loads(live.log.read_text().splitlines()[-1])["event"] == "stopped"
    with closing(open_store(live.database, create=False)) as store:  # as the next start does
        assert store.add([Upload(campaign, 1, bytes.fromhex(report[0][0]), 3)]) == [False]
    assert stored(live.database, campaign) == {3: 1}


def written(campaign: str, mechanism: str, name: str, cell: int) -> bytes:
    body = json.dumps({"mechanism": mechanism, "id": name, "cell": cell})
    head = (
        f"POST /api/campaigns/{campaign}/reports HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
    )
    return f"{head}\r\n\r\n{body}".encode()


def test_an_answer_that_never_arrives_is_asked_for_again(shared: Live) -> None:
    """The client hangs up after the commit and before it reads the answer; then it sends again."""
    campaign = shared.kept_campaign()
    mechanism = shared.mechanism(campaign)["id"]
    reports = [(new_id(), index % 7) for index in range(40)]
    with ExitStack() as connections:
        for name, cell in reports:
            connection = socket.create_connection(("127.0.0.1", shared.port), HANG_S)
            connections.enter_context(connection)
            connection.sendall(written(campaign, mechanism, name, cell))
        with shared.client() as client:
            while client.get(f"/api/campaigns/{campaign}").json()["reports_counted"]["all"] < 40:
                time.sleep(0.05)
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=HANG_S)
    for report in reports:
        assert post(connection, campaign, mechanism, [report]) == 200
    connection.close()
    assert stored(shared.database, campaign) == Counter(cell for _, cell in reports)


def test_stopping_under_load_is_quick_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Live(tmp_path) as server:
        campaign = server.kept_campaign()
        mechanism = server.mechanism(campaign)
        ledger = Ledger()
        seconds = stop_under_load(server, campaign, mechanism, ledger)
        assert server.code == 0
        assert '"stopped"' in server.log.read_text()
        assert not Counter(ledger.counted.values()) - stored(server.database, campaign)
        began = time.perf_counter()
        server.start()
        with server.client() as client:
            assert client.get("/readyz").json() == {"status": "ready"}
        ready = time.perf_counter() - began
        send_again(server.port, campaign, mechanism["id"], ledger)
        with capsys.disabled():
            print(f"\nstopped in {seconds:.2f} s, ready again in {ready:.2f} s")  # noqa: T201
        server.stop()
        assert stored(server.database, campaign) == Counter(ledger.counted.values())
    assert set(ledger.statuses) <= {200, 503}


def stop_under_load(
    server: Live, campaign: str, mechanism: dict[str, Any], ledger: Ledger
) -> float:
    """Stop while reports arrive and somebody listens; how long the end took."""
    stopped, aim = threading.Event(), len(ledger.counted) + 500
    threads = [
        Uploader(
            server.port, campaign, mechanism["id"], cells_of(mechanism), ledger, stopped.is_set,
            10, index,
        )
        for index in range(8)
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    while len(ledger.counted) < aim:
        time.sleep(0.005)
    with (
        server.client() as listener,
        listener.stream("GET", f"/api/campaigns/{campaign}/events") as stream,
    ):
        next(stream.iter_lines())
        seconds = server.stop()
    stopped.set()
    for thread in threads:
        thread.join(HANG_S)
    return seconds


@pytest.mark.slow
def test_a_million_stored_ids_do_not_slow_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Live(tmp_path) as server:
        campaign = server.campaign()
    store = open_store(server.database, create=False)
    for _ in range(100):
        store.add([Upload(campaign, 1, os.urandom(16), cell % 40) for cell in range(10_000)])
    store.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        began = time.perf_counter()
        server.start()
        with server.client() as client:
            assert client.get("/readyz").json() == {"status": "ready"}
        ready = time.perf_counter() - began
        seconds = server.stop(number)
        with capsys.disabled():
            print(f"\n1M ids: ready in {ready:.2f} s, {number.name} in {seconds:.2f} s")  # noqa: T201
    assert stored(server.database, campaign).total() == 1_000_000
