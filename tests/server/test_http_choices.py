"""A campaign that offers several promises, from outside: one answer, a report for each, a device's choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoveil.client import Device, Refused
from geoveil.document.wire import MechanismDocument
from server.conftest import InProcess
from server.live import Live, cells_of, new_id

OFFERED = {"id": "choice", "epsilon_per_km": None, "promises_per_km": [0.5, 1.0]}
REPORTS = "/api/campaigns/choice/reports"


def test_every_level_takes_reports_and_nothing_else_does(service: InProcess) -> None:
    service.campaign(**OFFERED)
    answer = service.get("/api/campaigns/choice/mechanism")
    levels = MechanismDocument.read_levels(answer.content)
    assert [level.epsilon_per_km for level in levels] == [0.5, 1.0]
    last = levels[0].law.centres.size - 1
    for level in levels:
        report = {"mechanism": level.id, "id": new_id(), "cell": last}
        assert service.post(REPORTS, json=report).json()["status"] == "counted"
        beyond = service.post(REPORTS, json={**report, "id": new_id(), "cell": last + 1})
        assert beyond.json()["type"].endswith("/cell-out-of-range")
        slotted = service.post(REPORTS, json={**report, "id": new_id(), "slot": 0})
        assert slotted.json()["type"].endswith("/not-offered")
    tag = answer.headers["etag"].strip('"')
    all_of_them = service.post(REPORTS, json={"mechanism": tag, "id": new_id(), "cell": 0})
    assert all_of_them.json()["type"].endswith("/unknown-mechanism")
    held = service.get("/api/campaigns/choice/mechanism", headers={"If-None-Match": f'"{tag}"'})
    assert held.status_code == 304
    state = service.get("/api/campaigns/choice").json()
    assert state["reports_counted"] == {"round": 2, "all": 2}
    assert state["choices"] is None  # who chose what is told with estimates only
    assert cells_of(answer.json()["levels"][0]) == last + 1


def test_a_device_takes_the_strongest_promise_or_the_one_its_person_chose(
    shared: Live, tmp_path: Path
) -> None:
    place = {"lat": 45.75, "lng": 4.84}
    campaign = shared.campaign(**OFFERED)
    for name, promise, charged in (("a", None, 0.5), ("b", 1.0, 1.0)):
        device = Device(
            f"{shared.url}/c/{campaign}", max_epsilon_per_km=1.0, budget_per_km=10.0,
            ledger=tmp_path / f"{name}.db", promise_per_km=promise,
        )  # fmt: skip
        receipt = device.report(**place)
        assert (receipt.acknowledged, receipt.epsilon_per_km) == (True, charged)
    stranger = Device(
        f"{shared.url}/c/{campaign}", max_epsilon_per_km=1.0, budget_per_km=10.0,
        ledger=tmp_path / "c.db", promise_per_km=0.7,
    )  # fmt: skip
    with pytest.raises(Refused, match="does not offer the promise"):
        stranger.report(**place)
