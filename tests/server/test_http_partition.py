"""Promises 12 and 34: a database that is stopped or out of reach, and a full disk, fail closed and heal."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import pytest

from databases import Cluster
from geoveil.server.uploads import STORE_S
from partition import Proxy
from server.live import Live, new_id
from server.uploads import stored

WITHIN_S = 5.0
"""What is promised. The service must give up sooner; ``benchmarks/service.py faults`` measures it."""
NEVER_S = 30.0
"""Who waits for a network that says nothing waits for minutes; a busy machine answers a little late."""
CAMPAIGN = "/api/campaigns/lyon"
ASKED = (
    "/readyz",
    CAMPAIGN,
    "/api/campaigns/lyon/mechanism",
    "/api/campaigns/lyon/estimate",
)


def status(client: httpx.Client, method: str, path: str, **given: Any) -> int:
    return client.request(method, path, **given).status_code


def report(mechanism: str) -> dict[str, Any]:
    return {"mechanism": mechanism, "id": new_id(), "cell": 1}


def until_ready(client: httpx.Client) -> None:
    """Wait until reports can be stored again."""
    began = time.monotonic()
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() - began < NEVER_S
        time.sleep(0.05)


def test_a_database_out_of_reach_is_answered_503_and_heals(
    tmp_path: Path, postgres: Cluster
) -> None:
    """Connections that say nothing any more, and then such as are cut."""
    assert STORE_S < WITHIN_S
    with Proxy(postgres.database()) as proxy, Live(tmp_path, proxy.address) as server:
        server.kept_campaign()
        mechanism, path = server.mechanism("lyon")["id"], "/api/campaigns/lyon/reports"
        told: list[bool] = []
        for cut in (False, True):
            with server.client() as client:
                told.append(status(client, "POST", path, json=report(mechanism)) == 200)
                proxy.hold()
                if cut:
                    proxy.cut()
                time.sleep(1.2)  # the answers that are kept for a second are over
                with ThreadPoolExecutor(40) as pool:
                    many = [
                        *[pool.submit(status, client, "GET", asked) for asked in ASKED * 5],
                        *[pool.submit(status, client, "POST", path, json=report(mechanism))
                          for _ in range(20)],
                    ]  # fmt: skip
                    time.sleep(0.2)
                    assert status(client, "GET", "/healthz") == 200
                    # sooner than those who ask for a campaign, and were before it: it waits for no store
                    assert not any(
                        each.done() for each in many[ASKED.index(CAMPAIGN) : 20 : len(ASKED)]
                    )
                    wait(many, timeout=NEVER_S)
                    answered = [each.result(0) for each in many if each.done()]
                    proxy.go_on()  # also where some still wait
                assert answered == [503] * 40
                until_ready(client)
                told += [
                    status(client, "POST", path, json=report(mechanism)) == 200 for _ in range(5)
                ]
                assert all(told)
        server.stop()
        kept = stored(proxy.address, "lyon")[1]
        # what was not acknowledged may still be kept, once
        assert len(told) <= kept <= len(told) + 40


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight MiB, where this machine lets a test mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("a file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_readiness_says_no_on_a_full_disk_and_heals(small_disk: Path, tmp_path: Path) -> None:
    database = f"sqlite:///{small_disk / 'geoveil.db'}"
    with Live(tmp_path, database) as server:
        server.kept_campaign()
        mechanism, path = server.mechanism("lyon")["id"], "/api/campaigns/lyon/reports"
        acknowledged = Counter[int]()

        def send(client: httpx.Client, number: int) -> int:
            reports = [report(mechanism) for _ in range(number)]
            status = client.post(path, json={"reports": reports}).status_code
            acknowledged[status] += number
            return status

        with server.client() as client:
            assert client.get("/readyz").status_code == 200
            assert send(client, 500) == 200
            ballast = small_disk / "ballast"
            with ballast.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            time.sleep(1.1)
            assert client.get("/readyz").status_code == 503
            while send(client, 1_000) == 200:
                pass
            assert client.get("/healthz").status_code == 200
            ballast.unlink()
            until_ready(client)
            assert send(client, 500) == 200
        assert set(acknowledged) == {200, 503}
        server.stop()
        assert stored(database, "lyon").total() == acknowledged[200]
