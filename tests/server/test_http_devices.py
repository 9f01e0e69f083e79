"""Real devices and a real collector: rounds closed as fast as it can, and a backup put back under them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from geoveil.client import Device
from server.live import Live
from server.test_http_round import report_all
from server.uploads import stored

HERE = {"lat": 45.75, "lng": 4.84}


def device(server: Live, campaign: str, ledger: Path, **options: Any) -> Device:
    return Device(
        f"{server.url}/c/{campaign}",
        max_epsilon_per_km=1.0,
        budget_per_km=10.0,
        ledger=ledger,
        **options,
    )


def close_round(server: Live, campaign: str) -> None:
    """Enough reports of others, the end of the round, and the next mechanism."""
    number = server.mechanism(campaign)["round"]
    report_all(server, campaign, 60)
    with server.operator() as operator:
        assert operator.post(f"/api/campaigns/{campaign}/rounds", json={}).status_code < 300
    while server.mechanism(campaign)["round"] == number:
        time.sleep(0.05)


def no_signal() -> tuple[float, float]:
    raise TimeoutError("no signal")


@pytest.mark.slow
def test_a_backup_put_back_keeps_devices_and_counts_nothing_twice(tmp_path: Path) -> None:
    """Promises 32 and 37, on the service as it is."""
    database, backup = tmp_path / "geoveil.db", tmp_path / "monday.db"
    with Live(tmp_path, tick_s=0.05) as server:
        campaign = server.campaign(minimum_reports=50)
        early = device(server, campaign, tmp_path / "early.db")
        first = early.report(**HERE)
        server.stop()
        shutil.copy(database, backup)
        server.start()
        for _ in range(3):
            close_round(server, campaign)
            assert early.report(lat=45.73, lng=4.86) == first
        late = device(server, campaign, tmp_path / "late.db")
        lost = late.report(**HERE)
        only_saw = device(server, campaign, tmp_path / "saw.db")
        with pytest.raises(TimeoutError):
            only_saw.report(locate=no_signal)
        often = device(server, campaign, tmp_path / "often.db", again="round")
        often.report(**HERE)
        server.stop()
        for file in tmp_path.glob("geoveil.db*"):
            file.unlink()
        shutil.copy(backup, database)
        server.start()
        assert server.mechanism(campaign)["round"] == 1
        assert early.report(**HERE) == first
        assert late.report(**HERE) == lost
        assert only_saw.report(**HERE).round == 1
        assert often.report(**HERE).round == 1
        for it, spent in ((early, 1.0), (late, 1.0), (only_saw, 1.0), (often, 2.0)):
            assert it.flush() == []
            assert it.ledger.spent_per_km == spent
        server.stop()
        assert stored(server.database, campaign).total() == 3
