"""Places and hexagons over HTTP: drawn, reported by a real device, mapped, exported, audited."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from geoveil.cli.program import program
from geoveil.client import Device
from geoveil.document.wire import MechanismDocument
from geoveil.server.shapes import BACKDROP_BYTES
from geoveil.space import Points, space_from_dict
from geoveil.table.results import read_result
from server.conftest import InProcess
from server.live import LYON, Live, new_id

CAMPAIGN = "/api/campaigns/lyon"
AREA = f"{CAMPAIGN}/area"
LIMITS = {
    "type": "Polygon",
    "coordinates": [[[4.81, 45.73], [4.87, 45.73], [4.86, 45.77], [4.82, 45.77], [4.81, 45.73]]],
}
SHOPS = [[4.81, 45.73], [4.83, 45.76], [4.84, 45.75], [4.841, 45.752], [4.86, 45.74], [4.87, 45.77]]


def put(service: InProcess, body: Any, **given: Any) -> Any:
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    return service.request("PUT", AREA, operator=True, **sent, **given)


def multi(*positions: Any) -> dict[str, Any]:
    return {"type": "MultiPoint", "coordinates": list(positions)}


def test_places_take_the_place_of_cells(service: InProcess) -> None:
    before = MechanismDocument.read(service.get(f"{CAMPAIGN}/mechanism").content)
    assert service.request("PUT", AREA, json=multi(*SHOPS)).status_code == 401
    assert put(service, multi(*SHOPS)).status_code == 204
    document = MechanismDocument.read(service.get(f"{CAMPAIGN}/mechanism").content)
    assert (document.area.size, document.round) == (6, before.round + 1)
    assert document.to_dict()["space"]["kind"] == "centres"
    assert service.get(CAMPAIGN).json()["around"] is False
    lat, lng = document.mechanism.space.centres_latlng()
    assert np.abs(np.stack([lng, lat], axis=1) - SHOPS).max() < 1e-4
    assert (
        put(service, LIMITS).status_code == 204
    )  # and back to squares, before anybody has reported
    assert "mask" in service.mechanism()["space"]
    assert put(service, multi(*SHOPS[:4])).status_code == 204
    mechanism = service.mechanism()
    report = {"mechanism": mechanism["id"], "id": new_id(), "cell": 4}
    refused = service.post(f"{CAMPAIGN}/reports", json=report).json()
    assert refused["type"].endswith("/cell-out-of-range")
    assert service.post(f"{CAMPAIGN}/reports", json=report | {"cell": 3}).status_code == 200
    for area in (multi(*SHOPS), LIMITS):
        late = put(service, area)
        assert (late.status_code, late.json()["type"].rpartition("/")[2]) == (409, "area-fixed")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (multi(SHOPS[0]), 422, "at least 2"),
        (multi(SHOPS[0], SHOPS[0]), 422, "must differ"),
        (multi(SHOPS[0], [4.810005, 45.73]), 422, "at least a metre apart"),
        (multi(SHOPS[0], [4.89, 45.75]), 422, "in the box of the campaign"),
        (multi(SHOPS[0], [-175.2, 45.75]), 422, "places must lie on one flat map"),
        (multi(SHOPS[0], [181, 45.75]), 422, "within ±180"),
        (multi(*[[4.80 + n / 70000, 45.75] for n in range(4097)]), 422, "at most 4,096"),
        ({"type": "GeometryCollection", "geometries": [LIMITS, multi(*SHOPS)]}, 422, "points only"),
        (b'{"type": "MultiPoint", "coordinates": [[4.81, 45.73], [NaN, 45.75]]}', 400, ""),
        (b'{"type": "MultiPoint", "coordinates": [[4.81, 45.73], [1e999, 45.75]]}', 400, ""),
        (b" " * (BACKDROP_BYTES + 1), 413, "at most"),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_the_campaign_as_it_was(
    service: InProcess, body: Any, status: int, words: str
) -> None:
    before = service.mechanism()["id"]
    answer = put(service, body)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]
    assert "45.7" not in answer.text  # no coordinate comes back
    assert service.mechanism()["id"] == before


def test_trips_stay_between_cells(service: InProcess) -> None:
    service.campaign(id="trips", trips=True)
    words = "trips must be between all cells of a box"
    for area in (multi(*SHOPS), LIMITS):
        answer = service.request("PUT", "/api/campaigns/trips/area", operator=True, json=area)
        assert answer.status_code == 422
        assert words in answer.json()["detail"]


def test_what_places_will_mean_is_said_before(service: InProcess) -> None:
    box = {"box": LYON["box"], "cell_km": 1.0}
    asked = {**box, "area": multi(*SHOPS)}
    left = service.post("/api/advice/area", json=asked, operator=True).json()
    assert (left["cells"], left["of"], left["parts"]) == (6, 6, 1)
    assert left["space"]["kind"] == "points"
    question = {**box, "epsilon_per_km": 1.0, "people": 500, "places": left["space"]}
    advice = service.post("/api/advice", json=question, operator=True).json()
    assert advice["cells"] == 6
    assert any("which place a person is at" in each for each in advice["sentences"])
    assert len(advice["example"]["map"]) == 6
    many = np.random.default_rng(1).uniform((45.72, 4.8), (45.78, 4.88), size=(400, 2))
    listed = {"kind": "points", "lat": many[:, 0].tolist(), "lng": many[:, 1].tolist()}
    advice = service.post("/api/advice", json=question | {"places": listed}, operator=True).json()
    assert advice["cells"] == 400
    assert any("in the place of your 400" in each for each in advice["sentences"])
    for wrong in ({"kind": "line", "size": 3}, {"kind": "points", "lat": [1], "lng": [2, 3]}):
        answer = service.post("/api/advice", json=question | {"places": wrong}, operator=True)
        assert answer.status_code == 422, answer.text


def closed_round(server: Live, campaign: str, people: np.ndarray, number: int) -> dict[str, Any]:
    """Honest people at these places report, the round closes; its estimate."""
    document = MechanismDocument.read(json.dumps(server.mechanism(campaign)).encode())
    drawn = document.mechanism.sample_at(lat=people[:, 0], lng=people[:, 1]).tolist()
    reports = [{"mechanism": document.id, "id": new_id(), "cell": cell} for cell in drawn]
    address = f"/api/campaigns/{campaign}"
    with server.operator() as operator:
        for start in range(0, len(reports), 1000):
            body = {"reports": reports[start : start + 1000]}
            assert operator.post(f"{address}/reports", json=body).status_code == 200
        assert operator.post(f"{address}/rounds").status_code == 202
        while server.mechanism(campaign)["round"] == number:
            time.sleep(0.1)
        return dict(operator.get(f"{address}/estimate").json())


@pytest.mark.slow
def test_hexagons_from_the_command_line_to_the_map(tmp_path: Path) -> None:
    """By the commands of the docs: written, drawn, reported by a device in two rounds, exported, audited."""
    pytest.importorskip("h3")
    limits, points = tmp_path / "limits.geojson", tmp_path / "hexagons.geojson"
    limits.write_text(json.dumps(LIMITS))
    written = CliRunner().invoke(
        program,
        ["hexagons", str(limits), "--resolution", "7", "-o", str(points), "--json"],
        catch_exceptions=False,
    )
    said = json.loads(written.stdout)
    with Live(tmp_path, tick_s=0.1) as server:
        campaign = server.campaign(box=said["box"], epsilon_per_km=1.5)
        address = f"/api/campaigns/{campaign}"
        with server.operator() as operator:
            answer = operator.put(f"{address}/area", content=points.read_bytes())
            assert answer.status_code == 204, answer.text
        device = Device(
            f"{server.url}/c/{campaign}", max_epsilon_per_km=2.0, budget_per_km=9.0,
            ledger=tmp_path / "ledger.db", again="round",
        )  # fmt: skip
        told = device.explain()
        assert f"One of {said['hexagons']} places about" in told
        assert "around where you stand, at one of them or elsewhere, with" in told
        with server.client() as client:
            assert client.get(address).json()["around"] is True
        assert device.report(lat=45.75, lng=4.84).round == 2
        people = np.random.default_rng(1).normal((45.75, 4.84), 0.012, size=(2000, 2))
        closed_round(server, campaign, people, 2)
        server.kill()
        server.start()
        again = device.report(
            lat=45.75, lng=4.84
        )  # refuses where places are not those it saw first
        assert (again.round, again.acknowledged) == (3, True)
        made = closed_round(server, campaign, people, 3)
        space = space_from_dict(made["space"])
        assert isinstance(space, Points)
        assert (space.size, space.around) == (said["hexagons"], True)
        assert space.cell_km**2 == pytest.approx(said["area_km2"])
        assert made["reports"] == 4002
        with server.operator() as operator:
            region = operator.post(f"{address}/estimate/regions", json=LIMITS).json()["regions"][0]
            assert 0 < region["low"] <= region["share"] <= region["high"] <= 1
            table = list(csv.DictReader(io.StringIO(operator.get(f"{address}/estimate.csv").text)))
            assert [float(row["share"]) for row in table] == pytest.approx(made["distribution"])
            for ending in ("csv", "geojson", "parquet", "json"):
                file = tmp_path / f"estimate.{ending}"
                file.write_bytes(operator.get(f"{address}/estimate.{ending}").content)
                read = read_result(str(file))
                assert read.space == space
                assert read.share == pytest.approx(made["distribution"])
            assert operator.get(f"{address}/counts").json()["outside"] == 0
        link = f"{server.url}/c/{campaign}"
        audited = CliRunner().invoke(program, ["audit", link, "--draws", "20000"])
        assert audited.exit_code == 0, audited.output
    errors = [json.loads(each) for each in server.log.read_text().splitlines()]
    assert not [each for each in errors if each["level"] == "error"]
