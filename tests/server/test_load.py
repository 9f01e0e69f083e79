"""The load generator: bounded, accounted for, on this machine only, and through the device's own checks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from benchmarks.__main__ import main
from benchmarks.load import Connection, Fleet, LoadFailed, LoadResult, Plan, run_load

from geoveil.client import Refused
from geoveil.client.network import Address
from geoveil.errors import InvalidInput
from server.conftest import empty
from server.live import Live


@pytest.fixture(scope="module")
def live(running: Live) -> Iterator[Live]:
    running.campaign()
    yield running
    empty(running)


TOTAL = [0]
"""Reports acknowledged so far by the server of this file."""


def link(live: Live) -> str:
    return f"{live.url}/c/lyon"


def counted(live: Live, least: int = 0) -> int:
    """How many reports are counted; answers may be a second old, so at least ``least`` are waited for."""
    until = time.monotonic() + 20
    with live.client() as client:
        while True:
            state = client.get("/api/campaigns/lyon").json()
            found = int(state["reports_counted"]["all"])
            if found >= least or time.monotonic() > until:
                return found


@pytest.mark.parametrize(
    "plan",
    [
        Plan(seconds=30, requests=150, connections=8),
        Plan(seconds=30, requests=12, connections=4, batch=25),
        Plan(seconds=30, requests=60, connections=4, rate_per_s=300.0),
    ],
    ids=["closed", "batches", "open"],
)
def test_every_acknowledged_report_is_counted_and_no_other(live: Live, plan: Plan) -> None:
    before = counted(live, least=TOTAL[0])
    result = run_load(link(live), plan, max_epsilon_per_km=1.0)
    assert result.requests == plan.requests
    assert result.counted == plan.requests * plan.batch
    assert (result.refused, result.shed, result.unknown) == (0, 0, 0)
    TOTAL[0] = before + result.counted
    assert counted(live, least=TOTAL[0]) == TOTAL[0]
    assert 0 < result.latency_s(50) <= result.latency_s(99)


def test_time_is_a_bound_too(live: Live) -> None:
    result = run_load(link(live), Plan(seconds=0.3, connections=2), max_epsilon_per_km=1.0)
    assert result.requests < 1_000_000
    assert result.counted > 0


def test_devices_refuse_what_a_device_refuses(live: Live) -> None:
    with pytest.raises(Refused) as refusal:
        run_load(link(live), Plan(requests=1), max_epsilon_per_km=0.5)
    assert refusal.value.reason == "promise"


def test_other_machines_need_a_word() -> None:
    with pytest.raises(LoadFailed, match="this machine"):
        run_load("https://collector.example/c/lyon", Plan(), max_epsilon_per_km=1.0)


def test_reports_are_valid_and_each_has_an_id_of_its_own(live: Live) -> None:
    fleet = Fleet(Address.of(link(live)), max_epsilon_per_km=1.0)
    reports = fleet.reports()
    values = [json.loads(next(reports)) for _ in range(5000)]
    cells = fleet.verified.mechanism.space.size
    assert {value["mechanism"] for value in values} == {fleet.verified.id}
    assert len({value["id"] for value in values}) == len(values)
    assert all(0 <= value["cell"] < cells for value in values)
    assert len({value["cell"] for value in values}) > cells / 2


def test_answers_that_were_shed_or_lost_are_told_apart() -> None:
    result = LoadResult(seconds=2.0)
    for status in (200, 200, 503, 429, 400):
        result.add(status, 10, 1 if status == 200 else 0, 0.01)
    assert (result.counted, result.refused, result.shed, result.requests) == (18, 12, 2, 5)
    assert result.reports_per_s == 9.0
    assert LoadResult().to_dict()["latency_ms"] is None


def test_an_answer_in_pieces_is_put_together() -> None:
    class Pipe:
        def is_closing(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            sent.append(data)

        def close(self) -> None:
            closed.append(True)

    sent: list[bytes] = []
    closed: list[bool] = []
    answers: list[tuple[int, bytes]] = []
    connection = Connection()
    connection.connection_made(Pipe())  # type: ignore[arg-type]
    connection.send(b"x", lambda status, body: answers.append((status, body)))
    for part in (b"HTTP/1.1 200 OK\r\nContent-", b"Length: 4\r\n\r\nab", b"cd"):
        connection.data_received(part)
    assert answers == [(200, b"abcd")]
    connection.send(b"y", lambda status, body: answers.append((status, body)))
    connection.connection_lost(None)
    assert answers[-1] == (0, b"")
    assert not closed


@pytest.mark.parametrize(
    "change",
    [{"seconds": 0}, {"requests": 0}, {"connections": 0}, {"batch": 1001}, {"rate_per_s": -1.0}],
)
def test_a_plan_without_bounds_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Plan(**change)  # type: ignore[arg-type]


def test_the_command_prints_what_was_answered(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["load", link(live), "--requests", "20", "--max-epsilon-per-km", "1"]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    assert "20 reports" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*arguments, "--json"])
    values = json.loads(capsys.readouterr().out)
    assert values["counted"] == 20
    assert values["statuses"] == {"200": 20}


def test_a_collector_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "http://127.0.0.1:9/c/lyon", "--requests", "1"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
