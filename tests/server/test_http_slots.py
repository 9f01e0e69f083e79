"""A campaign with slots from outside: reports that name one, devices by the clock, maps of slots as files."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoveil.client import Device, Refused
from geoveil.document.wire import MechanismDocument
from geoveil.server.conclusion import conclude
from geoveil.server.worker import Jobs
from geoveil.table.results import read_result
from server.conftest import InProcess
from server.live import LYON, Live, new_id
from server.rounds_support import tick

SLOTTED = {
    "id": "hours", "minimum_reports": 20, "zone": "Europe/Paris",
    "slots": {"every": "day", "names": ["night", "day", "evening"], "starts": [0, 360, 1080]},
}  # fmt: skip
REPORTS = "/api/campaigns/hours/reports"
ESTIMATE = "/api/campaigns/hours/estimate"
pytestmark = pytest.mark.usefixtures("one_design")


def send(service: InProcess, numbers: dict[int, int]) -> None:
    """So many reports in each slot."""
    document = MechanismDocument.read(service.get("/api/campaigns/hours/mechanism").content)
    cells = np.random.default_rng(1).integers(0, document.law.centres.size, size=1000)
    reports = [
        {"mechanism": document.id, "id": new_id(), "cell": int(cells[at]), "slot": slot}
        for slot, number in numbers.items()
        for at in range(number)
    ]
    results = service.post(REPORTS, json={"reports": reports}).json()["results"]
    assert {each["status"] for each in results} == {"counted"}


def closed(service: InProcess) -> None:
    assert service.post("/api/campaigns/hours/rounds", operator=True).status_code == 202
    campaigns = service.service.campaigns
    for closing in tick(campaigns):
        work = Jobs(campaigns).work(closing)
        assert Jobs(campaigns).publish(work, conclude(work))


def problem(answer: Any) -> str:
    return str(answer.json()["type"]).rsplit("/", 1)[1]


@pytest.fixture
def hours(service: InProcess) -> InProcess:
    service.campaign(**SLOTTED)
    return service


def test_a_report_names_its_slot_and_one_that_exists(hours: InProcess) -> None:
    answer = hours.get("/api/campaigns/hours/mechanism")
    slots = {**SLOTTED["slots"], "zone": "Europe/Paris"}  # type: ignore[dict-item]
    assert answer.json()["slots"] == slots
    assert answer.headers["date"].endswith(" GMT")
    report = {"mechanism": answer.json()["id"], "id": new_id(), "cell": 0}
    assert problem(hours.post(REPORTS, json=report)) == "slot-out-of-range"
    for wrong in (3, 167):
        assert problem(hours.post(REPORTS, json={**report, "slot": wrong})) == "slot-out-of-range"
    for wrong in (-1, 168, 1.5, "day", None):
        assert problem(hours.post(REPORTS, json={**report, "slot": wrong})) == "malformed-body"
    assert problem(hours.post(REPORTS, json={**report, "slot": 0, "to": 1})) == "not-offered"
    assert not hours.store.counts("hours")[1].any()
    for slot in (2, 1):  # the id counts once, whatever it says the second time
        assert hours.post(REPORTS, json={**report, "slot": slot}).json()["status"] == "counted"
    counts = hours.store.counts("hours")[1].reshape(3, -1)
    assert counts.sum(axis=1).tolist() == [0, 0, 1]
    batch = {
        "reports": [{**report, "id": new_id(), "slot": 9}, {**report, "id": new_id(), "slot": 2}]
    }
    results = hours.post(REPORTS, json=batch).json()["results"]
    assert [each["status"] for each in results] == ["refused", "counted"]


def test_maps_of_slots_are_files_of_every_kind(hours: InProcess, tmp_path: Path) -> None:
    send(hours, {0: 300, 1: 200, 2: 5})
    assert problem(hours.get(f"{ESTIMATE}?slot=0")) == "no-estimate-yet"
    closed(hours)
    whole = hours.get(ESTIMATE).json()
    assert whole["slots"]["reports"] == [300, 200, None]
    assert whole["reports"] == 505
    one = hours.get(f"{ESTIMATE}?slot=1")
    body = one.json()
    assert (body["kind"], body["reports"], body["round"]) == ("estimate", 200, 1)
    assert body["slot"] == {"number": 1, "name": "day", "zone": "Europe/Paris", "every": "day"}
    assert "day" not in one.headers["content-disposition"]
    assert one.headers["content-disposition"].endswith('hours-round-1-slot-1.json"')
    share = np.array(body["distribution"])
    for ending in ("json", "geojson", "csv", "parquet"):
        answer = hours.get(f"{ESTIMATE}.{ending}?slot=1")
        assert answer.status_code == 200
        path = tmp_path / f"one.{ending}"
        path.write_bytes(answer.content)
        found = read_result(str(path))
        np.testing.assert_allclose(found.share, share / share.sum(), rtol=1e-4, atol=1e-9)
        assert found.low is not None
        assert (found.low <= found.high).all()
    same = hours.get("/api/campaigns/hours/rounds/1/estimate.csv?slot=1")
    assert same.content == hours.get(f"{ESTIMATE}.csv?round=1&slot=1").content
    assert same.headers["cache-control"] == "public, no-cache"
    cells = len(body["distribution"])
    rows = list(csv.DictReader(io.StringIO(hours.get(f"{ESTIMATE}.csv?slot=all").text)))
    assert [row["slot"] for row in rows[::cells]] == ["night", "day"]
    features = json.loads(hours.get(f"{ESTIMATE}.geojson?slot=all").content)["features"]
    assert len(features) == 2 * cells
    together = hours.get(f"{ESTIMATE}?slot=all").json()
    assert [each["name"] for each in together["maps"]] == ["night", "day"]
    assert together["maps"][1]["distribution"] == body["distribution"]
    document = hours.get("/openapi.json").json()
    answers = document["paths"]["/api/campaigns/{campaign}/estimate"]["get"]["responses"]
    described = answers["200"]["content"]["application/json"]["schema"]["oneOf"]
    for said, schema in zip((body, together), described, strict=True):
        assert said["kind"] == schema["properties"]["kind"]["const"]
        assert set(schema["required"]) <= set(said)
    assert hours.get(f"{ESTIMATE}.parquet?slot=all").content[:4] == b"PAR1"


def test_slots_that_have_no_map(hours: InProcess) -> None:
    send(hours, {0: 30, 2: 5})
    closed(hours)
    below = hours.get(f"{ESTIMATE}?slot=2")
    assert problem(below) == "no-estimate-yet"
    assert below.json()["detail"] == "slot 2 (evening) has fewer than 20 reports so far"
    assert problem(hours.get(f"{ESTIMATE}?slot=3")) == "unknown-slot"
    for wrong in ("-1", "01", "1.0", "day", "", "٣"):
        assert problem(hours.get(f"{ESTIMATE}?slot={wrong}")) == "malformed-body"
    assert problem(hours.get(f"{ESTIMATE}?round=9&slot=0")) == "unknown-round"
    lyon = hours.mechanism()
    report = {"mechanism": lyon["id"], "cell": 0, "slot": 0}
    answer = hours.post("/api/campaigns/lyon/reports", json={**report, "id": new_id()})
    assert problem(answer) == "not-offered"


def test_settings_that_cannot_be_are_refused_in_words(service: InProcess) -> None:
    for changes, words in (
        ({"slots": "hour"}, "slots and zone must be given together"),
        ({"slots": "hour", "zone": "Europe/Atlantis"}, "Europe/Atlantis"),
        ({"slots": "minute", "zone": "UTC"}, "minute"),
    ):
        answer = service.post("/api/campaigns", json={**LYON, "id": "x", **changes}, operator=True)
        assert answer.status_code in (400, 422)
        assert words in answer.json()["detail"]


def test_devices_name_the_slot_of_their_clock(shared: Live, tmp_path: Path) -> None:
    campaign = shared.campaign(**{**SLOTTED, "slots": "weekday-hour"})
    device = Device(
        f"{shared.url}/c/{campaign}", max_epsilon_per_km=2.0, budget_per_km=10.0,
        ledger=tmp_path / "ledger.db",
    )  # fmt: skip
    receipt = device.report(lat=45.75, lng=4.84)
    assert receipt.acknowledged
    assert receipt.slot is not None
    assert 0 <= receipt.slot < 168
    ahead = Device(
        f"{shared.url}/c/{campaign}", max_epsilon_per_km=2.0, budget_per_km=10.0,
        ledger=tmp_path / "ahead.db", clock=lambda: time.time() + 3 * 3600,
    )  # fmt: skip
    with pytest.raises(Refused, match="different slots"):
        ahead.report(lat=45.75, lng=4.84)
