"""A whole round on a real server: full, closed, estimated in the worker's process, published, told."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from geoveil.document.wire import MechanismDocument
from server.live import Live, new_id


def report_all(server: Live, campaign: str, number: int) -> None:
    """Honest devices, most of them in one cell."""
    document = MechanismDocument.read(json.dumps(server.mechanism(campaign)).encode())
    law, source = document.law, random.Random(1)
    cells = [
        7 if source.random() < 0.7 else source.randrange(document.area.size) for _ in range(number)
    ]
    centres = law.centres.points
    half = abs(int((centres[1] - centres[0]).max())) // 2
    drawn = [  # people stand anywhere in their cells, the crowd of cell 7 around the middle of it
        law.draw(
            centres[cell] + [source.randint(-far, far), source.randint(-far, far)],
            source.randbytes(16),
        )
        for cell in cells
        for far in [half // 2 if cell == 7 else half]
    ]
    reports = [{"mechanism": document.id, "id": new_id(), "cell": cell} for cell in drawn]
    with server.client() as client:
        for start in range(0, number, 1000):
            body = {"reports": reports[start : start + 1000]}
            assert client.post(f"/api/campaigns/{campaign}/reports", json=body).status_code == 200


def told_until(server: Live, campaign: str, name: str, wanted: Any) -> None:
    """Listen to events until one says what is wanted."""
    with (
        server.client() as client,
        client.stream("GET", f"/api/campaigns/{campaign}/events") as stream,
    ):
        event = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == name and wanted(json.loads(line[6:])):
                return
    raise AssertionError("the stream ended before it was told")


def test_a_round_closes_by_count_and_its_estimate_is_published(tmp_path: Path) -> None:
    with Live(tmp_path, tick_s=0.1) as server:
        campaign = server.kept_campaign(
            epsilon_per_km=3.0, round_size=4000, minimum_reports=100, minimum_round_hours=0
        )
        first = server.mechanism(campaign)
        report_all(server, campaign, 4000)
        told_until(server, campaign, "round", lambda said: said["round"] == 2)
        told_until(server, campaign, "alarm", lambda said: said["alarm"] is not None)
        with server.client() as client:
            state = client.get(f"/api/campaigns/{campaign}").json()
            body = client.get(f"/api/campaigns/{campaign}/estimate").json()
            while client.get(f"/api/campaigns/{campaign}/mechanism").json()["round"] == 1:
                time.sleep(0.1)
        second = server.mechanism(campaign)
        assert (state["rounds_closed"], state["reports_counted"]["all"]) == (1, 4000)
        assert (state["estimate"]["round"], state["alarm"]["raised"]) == (1, False)
        assert state["manipulation_gain"]["gain"] > 1
        assert body["distribution"][7] == pytest.approx(0.7, abs=0.1)
        assert (second["round"], second["epsilon_per_km"]) == (2, 3.0)
        assert second["weights"] != first["weights"]
        report_all(server, campaign, 100)
        with server.operator() as operator:
            assert operator.post(f"/api/campaigns/{campaign}/rounds").json()["round"] == 2
        told_until(server, campaign, "round", lambda said: said["round"] == 3)
    log = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert [line["event"] for line in log].count("estimate-made") == 2
    assert not [line for line in log if line["level"] == "error"]
