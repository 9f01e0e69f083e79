"""Everything at once: kills, stops, partitions, full disks, clocks and slow clients; and two servers."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from databases import cluster
from server.faults import WITHIN_S, Faults
from server.live import HANG_S, Live
from server.uploads import Ledger, Uploader, send_again, stored

SECONDS = 240.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_nothing_is_lost_and_everybody_reports_again_within_a_minute(
    kind: str, tmp_path: Path
) -> None:
    if kind == "postgres":
        cluster()
    with Faults(kind, tmp_path).running() as faults:
        faults.run(SECONDS)
        sys.stdout.write(f"\n{kind}: {dict(faults.happened)}, {faults.acknowledged()} reports\n")
        sys.stdout.write(f"reports again after: {dict(faults.longest_s)}\n")
        assert max(faults.longest_s.values()) <= WITHIN_S
        assert not faults.difference()


@pytest.mark.slow
def test_two_servers_on_one_file_count_every_report_once(tmp_path: Path) -> None:
    """SQLite lets one of them write at a time; the other waits its turn."""
    (tmp_path / "other").mkdir()
    with Live(tmp_path) as one, Live(tmp_path / "other", one.database) as other:
        campaign = one.campaign()
        mechanism = other.mechanism(campaign)
        ledger, over = Ledger(), threading.Event()
        threads = [
            Uploader(server.port, campaign, mechanism["id"], 20, ledger, over.is_set, 5, index)
            for index, server in enumerate((one, other) * 3)
        ]
        for thread in threads:
            thread.start()
        while len(ledger.counted) < 1_500:
            assert any(thread.is_alive() for thread in threads)
            over.wait(0.05)
        other.kill()
        over.set()
        for thread in threads:
            thread.join(HANG_S)
        send_again(one.port, campaign, mechanism["id"], ledger)
        one.stop()
        assert stored(one.database, campaign).total() == len(ledger.counted)
