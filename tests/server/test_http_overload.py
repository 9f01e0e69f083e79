"""Promises 5 and 9: late reports keep their mechanism; overload sheds and never lies."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from geoveil.campaign import rounds
from geoveil.server import connections
from geoveil.server.conclusion import conclude
from geoveil.server.worker import Jobs
from geoveil.store import Upload, open_store
from server.conftest import InProcess
from server.live import HANG_S, Live, cells_of, new_id
from server.rounds_support import tick
from server.uploads import Ledger, Uploader, send_again, stored
from store.memory import MemoryStore

REPORTS = "/api/campaigns/lyon/reports"
pytestmark = pytest.mark.usefixtures("one_design")


class Gated(MemoryStore):
    """A store whose commits wait for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)

    def add(self, uploads: Sequence[Upload]) -> list[bool]:
        self.begun.release()
        assert self.gate.wait(HANG_S)
        return super().add(uploads)


def test_a_full_queue_is_refused_and_what_was_taken_counts(
    inside: Callable[..., InProcess],
) -> None:
    store = Gated()
    service = inside(store, queue_limit=5)
    service.campaign()
    mechanism = service.mechanism()["id"]
    ids = [new_id() for _ in range(40)]

    def send(name: str) -> int:
        return service.post(
            REPORTS, json={"mechanism": mechanism, "id": name, "cell": 1}
        ).status_code

    with ThreadPoolExecutor(40) as pool:
        answers = [pool.submit(send, name) for name in ids]
        while sum(answer.done() for answer in answers) < 30:  # 5 in a commit, 5 waiting
            time.sleep(0.01)
        store.gate.set()
        statuses = Counter(answer.result(HANG_S) for answer in answers)
    assert set(statuses) == {200, 503}
    assert store.counts("lyon")[1].sum() == statuses[200]
    assert {send(name) for name in ids} == {200}
    assert store.counts("lyon")[1].sum() == 40


def test_a_batch_larger_than_the_queue_is_taken_whole_or_not_at_all(
    inside: Callable[..., InProcess],
) -> None:
    store = Gated()
    service = inside(store, queue_limit=5)
    service.campaign()
    mechanism = service.mechanism()["id"]

    def send(number: int) -> httpx.Response:
        batch = [{"mechanism": mechanism, "id": new_id(), "cell": 1} for _ in range(number)]
        return service.post(REPORTS, json={"reports": batch})

    with ThreadPoolExecutor(2) as pool:
        taken = [pool.submit(send, 1)]
        assert store.begun.acquire(timeout=HANG_S)  # this one is in a commit, the next one waits
        taken.append(pool.submit(send, 1))
        while service.service.writer.waiting < 1:
            time.sleep(0.01)
        answer = send(6)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        store.gate.set()
        assert [each.result(HANG_S).status_code for each in taken] == [200, 200]
    assert store.counts("lyon")[1].sum() == 2
    assert send(6).status_code == 200
    assert store.counts("lyon")[1].sum() == 8


def test_long_results_are_given_only_where_readers_take_them_and_then_nothing_is_counted(
    service: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = service.mechanism()["id"]
    cells = [1] + [200_000] * 500  # one that counts, and hundreds with a sentence why they do not
    batch = [{"mechanism": mechanism, "id": new_id(), "cell": cell} for cell in cells]
    with monkeypatch.context() as others_read_slowly:
        others_read_slowly.setattr(connections, "MOST_UNREAD_BYTES", connections.LARGE_BYTES)
        answer = service.post(REPORTS, json={"reports": batch})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert service.store.counts("lyon")[1].sum() == 0
        assert service.post(REPORTS, json={"reports": batch[:50]}).status_code == 200
    assert service.post(REPORTS, json={"reports": batch}).status_code == 200
    assert service.store.counts("lyon")[1].sum() == 1


def test_a_real_server_sheds_and_recovers(tmp_path: Path) -> None:
    with Live(tmp_path, queue_limit=3) as server:
        campaign = server.kept_campaign()
        mechanism = server.mechanism(campaign)
        cells, ledger, over = cells_of(mechanism), Ledger(), threading.Event()
        threads = [
            Uploader(server.port, campaign, mechanism["id"], cells, ledger, over.is_set, 2, index)
            for index in range(16)
        ]
        for thread in threads:
            thread.start()
        while not (ledger.statuses[503] and len(ledger.counted) > 100):
            assert any(thread.is_alive() for thread in threads)
            time.sleep(0.01)
        over.set()
        for thread in threads:
            thread.join(HANG_S)
        assert set(ledger.statuses) == {200, 503}
        assert stored(server.database, campaign) == Counter(ledger.counted.values())
        send_again(server.port, campaign, mechanism["id"], ledger)
        server.stop()
        assert stored(server.database, campaign) == Counter(ledger.counted.values())


def storm(
    service: InProcess, *, rounds: int, per_round: int, threads: int = 4
) -> Counter[tuple[int, int]]:
    """Reports under all mechanisms so far while rounds roll over; what was sent by (round, cell).

    Mechanisms of odd rounds report from the lower half of the cells, of even rounds from the upper
    half, so that one report under the wrong round shows.
    """
    mechanisms = [service.mechanism()]
    cells = cells_of(mechanisms[0])
    sent: Counter[tuple[int, int]] = Counter()
    lock, over = threading.Lock(), threading.Event()

    def upload(seed: int) -> None:
        place = seed
        while not over.is_set():
            batch = []
            for _ in range(20):
                place += 1
                used = mechanisms[place % len(mechanisms)]
                cell = place // 3 % (cells // 2) + (cells // 2) * (used["round"] % 2)
                batch.append((used, {"mechanism": used["id"], "id": new_id(), "cell": cell}))
            answer = service.post(REPORTS, json={"reports": [report for _, report in batch]})
            assert all(result["status"] == "counted" for result in answer.json()["results"])
            with lock:
                sent.update((used["round"], report["cell"]) for used, report in batch)

    with ThreadPoolExecutor(threads) as pool:
        working = [pool.submit(upload, seed * 1000) for seed in range(threads)]
        try:
            for number in range(1, rounds + 1):
                while (
                    sum(count for (used, _), count in sent.copy().items() if used == number)
                    < per_round
                ):
                    for each in working:
                        assert not each.done() or each.result() is None
                    time.sleep(0.01)
                assert service.post("/api/campaigns/lyon/rounds", operator=True).status_code == 202
                campaigns = service.service.campaigns
                for work in map(Jobs(campaigns).work, tick(campaigns)):
                    Jobs(campaigns).publish(work, conclude(work))
                mechanisms.append(service.mechanism())
        finally:
            over.set()
        for each in working:
            each.result(HANG_S)
    return sent


def counted(service: InProcess) -> Counter[tuple[int, int]]:
    return Counter(
        {
            (number, cell): int(count)
            for number, counts in service.store.counts("lyon").items()
            for cell, count in enumerate(counts)
            if count
        }
    )


def test_late_reports_count_under_the_mechanism_they_carry(
    inside: Callable[..., InProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_ALARM_REPLICATES", (49, 49))  # they do look odd
    store = open_store(f"sqlite:///{tmp_path / 'storm.db'}")
    service = inside(store, requests_per_minute=0, reports_per_minute=0)
    service.campaign(cell_km=2.0)  # 16 cells: closing a round is no part of what is tested
    sent = storm(service, rounds=3, per_round=300, threads=2)
    assert counted(service) == sent
    assert {number for number, _ in sent} >= {1, 2, 3}


@pytest.mark.slow
def test_100_000_late_reports_count_under_the_mechanism_they_carry(
    inside: Callable[..., InProcess], tmp_path: Path
) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'storm.db'}")
    service = inside(store, requests_per_minute=0, reports_per_minute=0)
    service.campaign()
    sent = storm(service, rounds=20, per_round=2_000)
    while sent.total() < 100_000:
        sent += storm_again(service)
    assert counted(service) == sent


def storm_again(service: InProcess) -> Counter[tuple[int, int]]:
    """A thousand more under the current mechanism."""
    mechanism = service.mechanism()
    cells = cells_of(mechanism)
    batch = [
        {"mechanism": mechanism["id"], "id": new_id(), "cell": index % cells}
        for index in range(1000)
    ]
    assert service.post(REPORTS, json={"reports": batch}).status_code == 200
    return Counter((mechanism["round"], report["cell"]) for report in batch)
