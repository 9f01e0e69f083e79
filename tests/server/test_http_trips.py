"""A campaign of trips from outside: reports with two cells, a device's trip, flows in every format."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from geoveil.client import Device, Refused
from geoveil.document.wire import MechanismDocument
from server.conftest import InProcess
from server.live import Live, new_id

TRIPS = {"id": "trips", "epsilon_per_km": 2.0, "trips": True, "minimum_reports": 8}
REPORTS = "/api/campaigns/trips/reports"
HOME, WORK = (45.75, 4.82), (45.77, 4.86)


def test_a_report_needs_both_ends_where_trips_are_asked_for_and_only_there(
    service: InProcess,
) -> None:
    service.campaign(**TRIPS)
    service.campaign(id="places")
    document = MechanismDocument.read(service.get("/api/campaigns/trips/mechanism").content)
    last = document.law.centres.size - 1
    report = {"mechanism": document.id, "id": new_id(), "cell": 0, "to": last}
    assert service.post(REPORTS, json=report).json()["status"] == "counted"
    assert service.post(REPORTS, json=report).json()["status"] == "counted"  # the same one
    for wrong, problem in (
        ({"to": last + 1}, "cell-out-of-range"),
        ({"cell": last + 1}, "cell-out-of-range"),
        ({"to": -1}, "malformed-body"),
        ({"to": None}, "malformed-body"),
        ({"slot": 0}, "not-offered"),
    ):
        answer = service.post(REPORTS, json={**report, "id": new_id(), **wrong})
        assert answer.json()["type"].endswith(f"/{problem}"), wrong
    beyond = service.post(REPORTS, json={**report, "id": new_id(), "to": last + 1}).json()
    assert beyond["detail"] == f"cell and to must be from 0 to {last}"
    half = {"mechanism": document.id, "id": new_id(), "cell": 0}
    assert "asks for trips" in service.post(REPORTS, json=half).json()["detail"]
    places = MechanismDocument.read(service.get("/api/campaigns/places/mechanism").content)
    both = {"mechanism": places.id, "id": new_id(), "cell": 0, "to": 1}
    refused = service.post("/api/campaigns/places/reports", json=both).json()
    assert "does not ask for trips" in refused["detail"]
    state = service.get("/api/campaigns/trips").json()
    assert state["reports_counted"] == {"round": 1, "all": 1}
    assert state["settings"]["trips"] is True


def test_flows_before_the_first_close_and_of_places(service: InProcess) -> None:
    service.campaign(**TRIPS)
    assert service.get("/api/campaigns/trips/flows").json()["type"].endswith("/no-estimate-yet")
    unknown = service.get("/api/campaigns/nowhere/flows").json()
    assert unknown["type"].endswith("/unknown-campaign")


def test_devices_report_trips_and_flows_are_served(shared: Live, tmp_path: Path) -> None:
    with shared.client() as anybody:
        campaign = shared.campaign(**TRIPS)
        link = f"{shared.url}/c/{campaign}"
        for number in range(8):
            device = Device(
                link, max_epsilon_per_km=4.0, budget_per_km=4.0, ledger=tmp_path / f"{number}.db"
            )
            apart = 0.005 * number  # here and there, as in a city
            receipt = device.report_trip(
                origin=(HOME[0], HOME[1] + apart), destination=(WORK[0] - apart, WORK[1])
            )
            assert (receipt.acknowledged, receipt.epsilon_per_km) == (True, 4.0)
        with pytest.raises(Refused, match="use report_trip"):
            Device(
                link, max_epsilon_per_km=4.0, budget_per_km=9.0, ledger=tmp_path / "other.db"
            ).report(lat=HOME[0], lng=HOME[1])
        with shared.operator() as operator:
            assert operator.post(f"/api/campaigns/{campaign}/rounds").status_code == 202
        flows = None
        for _ in range(500):
            flows = anybody.get(f"/api/campaigns/{campaign}/flows.json")
            if flows.status_code == 200 and not flows.json()["unfinished"]:
                break
            time.sleep(0.2)
        assert flows is not None
        told = flows.json()
        assert (told["kind"], told["reports"], told["round"]) == ("flows", 8, 1)
        assert len(told["low"]) == len(told["share"]) == len(told["high"])
        for ending, kind in (
            ("geojson", "application/geo+json"),
            ("csv", "text/csv"),
            ("parquet", "application/vnd.apache.parquet"),
        ):
            answer = anybody.get(f"/api/campaigns/{campaign}/flows.{ending}")
            assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, kind)
            by_kind = anybody.get(f"/api/campaigns/{campaign}/flows", headers={"accept": kind})
            assert by_kind.content == answer.content
        named = anybody.get(f"/api/campaigns/{campaign}/flows.csv").headers["content-disposition"]
        assert "flows-round-1.csv" in named
        following = MechanismDocument.read(
            anybody.get(f"/api/campaigns/{campaign}/mechanism").content
        )
        assert (following.round, following.trips) == (2, True)
