"""Promises 24 and 25: nothing linkable is kept, and no small round is disclosed."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from geoveil.server.conclusion import conclude
from geoveil.server.worker import Jobs
from geoveil.store import open_store, write_backup
from server.conftest import InProcess
from server.live import HANG_S, Live, new_id
from server.rounds_support import NOON, Clock, tick

ADDRESS = "127.0.0.77"
CANARIES = {
    "User-Agent": "canary-agent-8c1f",
    "Cookie": "session=canary-cookie-77ad",
    "Referer": "https://canary-referrer-90be.example/",
    "X-Forwarded-For": "203.0.113.199",
    "Accept-Language": "canary-language-5e5e",
    "X-Request-Id": "canary-request-3d3d",
}
WORDS = ["canary", "203.0.113.199", ADDRESS, "query-4242"]


def visit(server: Live, campaign: str) -> list[str]:
    """Do what participants do, from an address and with headers that would be known again."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.port, timeout=HANG_S, source_address=(ADDRESS, 0)
    )
    paths = [
        "",
        "/mechanism",
        "/estimate",
        "/estimate.csv?canary=query-4242",
        "/nothing",
        "/reports",
    ]
    for path in paths:
        connection.request("GET", f"/api/campaigns/{campaign}{path}", headers=CANARIES)
        connection.getresponse().read()
    mechanism = server.mechanism(campaign)["id"]
    ids = [new_id() for _ in range(30)]
    bodies = [json.dumps({"mechanism": mechanism, "id": name, "cell": 3}) for name in ids]
    for body in [
        *bodies,
        "canary",
        '{"canary": 1}',
        json.dumps({"mechanism": mechanism, "canary": 1}),
    ]:
        connection.request(
            "POST", f"/api/campaigns/{campaign}/reports?canary=query-4242", body, CANARIES
        )
        connection.getresponse().read()
    connection.close()
    return ids


def test_nothing_linkable_is_kept(tmp_path: Path) -> None:
    with Live(tmp_path, log_level="debug", requests_per_minute=100_000) as server:
        campaign = server.kept_campaign()
        with server.operator() as operator:  # with the token
            assert operator.get("/api/campaigns").status_code == 200
        ids = visit(server, campaign)
        while_running = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert "geoveil.db-wal" in while_running
        server.kill()
        after_kill = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        store = open_store(server.database, create=False)
        write_backup(store, tmp_path / "backup.db")
        store.close()
        server.start()
        visit(server, campaign)
        server.stop()
        after_stop = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for files in (while_running, after_kill, after_stop):
        for name, content in files.items():
            found = [word for word in WORDS if word.encode() in content]
            assert not found, f"{found} in {name}"
            assert socket.inet_aton(ADDRESS) not in content, name
            assert server.token.encode() not in content, name
    log = after_stop["server.log"].decode()
    assert not [name for name in ids if name in log]
    assert not [line for line in log.splitlines() if campaign in line]
    assert "backup.db" in after_stop


def test_a_deleted_campaign_is_gone_from_the_files(shared: Live) -> None:
    shared.kept_campaign(id="stays", name="Stays")
    campaign = shared.kept_campaign(name="Canary of Lyon")
    ids = visit(shared, campaign)
    mechanism = shared.mechanism(campaign)["id"]
    with shared.operator() as operator:
        assert operator.delete(f"/api/campaigns/{campaign}").status_code == 204
    held = {path.name: path.read_bytes() for path in shared.folder.iterdir()}
    assert "geoveil.db-wal" in held
    for name, content in held.items():
        assert not [each for each in ids if bytes.fromhex(each) in content], name
        assert b"Canary" not in content, name
        assert mechanism.encode() not in content, name
    assert b"Stays" in held["geoveil.db"]


def test_the_log_of_the_database_is_emptied_by_and_by(
    inside: Callable[..., InProcess], tmp_path: Path
) -> None:
    clock = Clock()
    service = inside(open_store(tmp_path / "geoveil.db"), clock=clock)
    service.campaign()
    send(service, 20)
    log = tmp_path / "geoveil.db-wal"
    assert log.stat().st_size > 0
    clock.now += 61
    service.service.upkeep.tick()
    assert log.stat().st_size == 0


@pytest.fixture
def small(inside: Callable[..., InProcess]) -> tuple[InProcess, Clock]:
    clock = Clock()
    service = inside(clock=clock)
    service.campaign(minimum_reports=50, round_hours=1.0, mechanism_hours=5.0)
    return service, clock


def send(service: InProcess, number: int) -> None:
    mechanism = service.mechanism()["id"]
    for index in range(number):
        report = {"mechanism": mechanism, "id": new_id(), "cell": index % 5}
        assert service.post("/api/campaigns/lyon/reports", json=report).status_code == 200


def work(service: InProcess) -> int:
    campaigns = service.service.campaigns
    done = [Jobs(campaigns).work(closing) for closing in tick(campaigns)]
    return sum(Jobs(campaigns).publish(each, conclude(each)) for each in done)


def readings(service: InProcess) -> list[Any]:
    """All that anybody can read about estimates."""
    endings = ["", ".json", ".geojson", ".csv", ".parquet"]
    paths = [f"estimate{ending}" for ending in endings]
    paths += [f"estimate{ending}?round=1" for ending in endings]
    paths += [f"rounds/1/estimate{ending}" for ending in endings]
    return [service.get(f"/api/campaigns/lyon/{path}") for path in paths]


def test_one_report_below_the_minimum_releases_nothing(
    small: tuple[InProcess, Clock],
) -> None:
    service, clock = small
    send(service, 49)
    first = service.mechanism()["id"]
    assert service.post("/api/campaigns/lyon/rounds", operator=True).status_code == 409
    for hours in (0.5, 1.5, 4.0):
        clock.now = NOON + 3600 * hours
        assert work(service) == 0
        assert {answer.status_code for answer in readings(service)} == {404}
        assert service.mechanism()["id"] == first
    clock.now += 2
    send(service, 1)
    assert work(service) == 1
    assert {answer.status_code for answer in readings(service)} == {200}
    assert service.mechanism()["id"] != first


def test_a_mechanism_that_expires_below_the_minimum_is_replaced_without_a_release(
    small: tuple[InProcess, Clock],
) -> None:
    service, clock = small
    send(service, 49)
    before = service.mechanism()
    clock.now += 3600 * 6
    assert work(service) == 0
    clock.now += 2
    after = service.mechanism()
    assert (after["round"], after["weights"]) == (2, before["weights"])
    assert {answer.status_code for answer in readings(service)} == {404}


def test_read_apis_tell_totals_and_never_counts_of_cells(
    small: tuple[InProcess, Clock],
) -> None:
    service, _ = small
    send(service, 49)
    state = service.get("/api/campaigns/lyon").json()
    assert state["reports_counted"] == {"round": 49, "all": 49}
    numbers = [value for value in _leaves(state) if isinstance(value, list) and len(value) > 4]
    assert numbers == []
    assert "cell" not in service.get("/metrics").text


def _leaves(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        for each in value.values():
            yield from _leaves(each)
