"""The counts of several server processes: sums that never go back, whoever is asked."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from databases import Cluster
from geoveil.server.logs import Metrics
from geoveil.server.shared_metrics import PlaceOfProcess, SharedMetrics
from server.live import HANG_S, Live, new_id
from server.test_http_postgres import children

_COUNTED = re.compile(r'^geoveil_reports_total{outcome="counted"} (\d+)$', re.MULTILINE)


def counted(text: str) -> int:
    found = _COUNTED.search(text)
    assert found is not None
    return int(found[1])


def member(folder: Path, number: int, waiting: int = 0) -> tuple[Metrics, SharedMetrics]:
    own = Metrics()
    own.gauges = {"geoveil_queue_reports": ("Reports that wait.", lambda: waiting)}
    return own, SharedMetrics(own, PlaceOfProcess(folder, number))


def test_whoever_is_asked_tells_the_sums(tmp_path: Path) -> None:
    (first, told), (second, other) = member(tmp_path, 0, 3), member(tmp_path, 1, 4)
    first.reports["counted"] += 5
    first.requests["/metrics", 200] += 1
    first.commit_s.observe(0.002)
    second.reports["counted"] += 7
    second.requests["/metrics", 200] += 2
    second.commit_s.observe(99.0)
    other.keep()
    text = told.text()
    assert text == other.text()
    assert counted(text) == 12
    for line in (
        'geoveil_requests_total{route="/metrics",status="200"} 3',
        'geoveil_commit_seconds_bucket{le="0.0025"} 1',
        "geoveil_commit_seconds_sum 99.002000",
        "geoveil_commit_seconds_count 2",
        "geoveil_queue_reports 7",
    ):
        assert line in text.splitlines()


def test_what_was_told_is_never_less_later(tmp_path: Path) -> None:
    (first, told), (_, other) = member(tmp_path, 0), member(tmp_path, 1)
    first.reports["counted"] += 5
    assert counted(told.text()) == 5
    assert counted(other.text()) == 5  # kept before it was told
    _, following = member(tmp_path, 0)  # in the place of the first, which was killed
    assert counted(following.text()) == counted(other.text()) == 5


def test_a_file_that_cannot_be_read_or_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text('{"requests"')
    own, told = member(tmp_path / "gone", 1)
    own.reports["counted"] += 1
    assert counted(told.text()) == 1
    _, beside = member(tmp_path, 1)
    assert counted(beside.text()) == 0


def test_one_process_needs_no_file() -> None:
    own = Metrics()
    alone = SharedMetrics(own)
    assert alone.alone
    assert alone.text().splitlines() == list(own.lines())


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="looks at processes as Linux shows them"
)
def test_counters_of_two_processes_never_go_back(tmp_path: Path, postgres: Cluster) -> None:
    with Live(tmp_path, postgres.database(), processes=2) as server:
        assert server.process is not None
        campaign = server.campaign()
        mechanism = server.mechanism(campaign)["id"]
        told: list[int] = []

        def ask(times: int) -> None:
            for _ in range(times):
                with server.client() as client:
                    told.append(counted(client.get("/metrics").text))

        for number in range(1, 31):
            body = {"mechanism": mechanism, "id": new_id(), "cell": 1}
            with server.client() as client:
                path = f"/api/campaigns/{campaign}/reports"
                assert client.post(path, content=json.dumps(body)).status_code == 200
            ask(1)
            assert told[-1] <= number
        time.sleep(1.5)  # each has kept its counts
        ask(10)
        assert told[-10:] == [30] * 10
        os.kill(children(server.process.pid)[0], signal.SIGKILL)
        until_s = time.monotonic() + HANG_S
        while server.log.read_text().count('"started"') < 3 and time.monotonic() < until_s:
            time.sleep(0.1)
        ask(10)
        assert told[-10:] == [30] * 10
        assert told == sorted(told)
