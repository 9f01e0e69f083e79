"""The counts of several server processes: sums that never go back, whoever is asked."""

from __future__ import annotations

import re
from pathlib import Path

from geoveil.server.logs import Metrics, SharedMetrics

_COUNTED = re.compile(r'^geoveil_reports_total{outcome="counted"} (\d+)$', re.MULTILINE)


def counted(text: str) -> int:
    found = _COUNTED.search(text)
    assert found is not None
    return int(found[1])


def member(folder: Path, number: int, waiting: int = 0) -> tuple[Metrics, SharedMetrics]:
    own = Metrics()
    own.gauges = {"geoveil_queue_reports": ("Reports that wait.", lambda: waiting)}
    return own, SharedMetrics(own, folder / f"{number}.json")


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
